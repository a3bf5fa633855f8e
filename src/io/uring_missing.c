/* SPDX-License-Identifier: MIT */
/* In place of the io_uring backend, when weir is built without it. */
#include "io/io.h"

#include <errno.h>

int weir__uring_open(weir_sys *sys, weir_io_counters *counters, const weir_uring_config *config,
                     weir_io **io)
{
    (void)sys;
    (void)counters;
    (void)config;
    (void)io;
    return -ENOSYS;
}

int weir__uring_check(weir_sys *sys, weir_error *error)
{
    (void)sys;
    return weir_error_set(error, -ENOSYS, "uring",
                          "there is no io_uring here: weir was built without liburing");
}
