/* SPDX-License-Identifier: MIT */
/* In place of c-ares, in a build without it. */
#include "bootstrap/names.h"

#include <errno.h>

bool weir__cares_serves(const weir_name_query *query)
{
    (void)query;
    return false;
}

int weir__cares_start(const weir_name_query *query)
{
    (void)query;
    return -EOPNOTSUPP;
}

int weir__cares_set_up(weir_group *group, const char *resolv_conf, const char *hosts, uint16_t port,
                       int timeout_ms)
{
    (void)group, (void)resolv_conf, (void)hosts, (void)port, (void)timeout_ms;
    return -EOPNOTSUPP;
}
