/* SPDX-License-Identifier: MIT */
/* The files that configure name lookups, as they were at one time: the hosts file, resolv.conf. */
#ifndef WEIR_BOOTSTRAP_NAME_CONFIG_H
#define WEIR_BOOTSTRAP_NAME_CONFIG_H

#include "base/sys.h"
#include "bootstrap/hosts_file.h"
#include "bootstrap/search_list.h"

#include <stdatomic.h>

#define WEIR__HOSTS_FILE_MAX (16u << 20)  /* bytes; lines after that are ignored, with a warning */
#define WEIR__RESOLV_CONF_MAX (64u << 10) /* the same */

/* Where they are. */
typedef struct weir_name_paths {
    const char *resolv_conf, *hosts;
} weir_name_paths;

/* Does not change: a changed file makes another one. */
typedef struct weir_name_config {
    _Atomic(int) refs;
    struct stat resolv_conf, hosts_file; /* all 0: there was none */
    weir_search_list search;
    weir_hosts_file hosts;
} weir_name_config;

/* Reads both files; one that is missing or not accessible is like an empty one. 0 and a reference,
 * -ENOMEM, or the error of reading. */
int weir__name_config_load(weir_name_config **config, weir_sys *sys, const weir_name_paths *paths);

/* Whether the files are still those that were read. */
bool weir__name_config_is_current(const weir_name_config *config, weir_sys *sys,
                                  const weir_name_paths *paths);

/* Thread-safe; NULL is fine. */
weir_name_config *weir__name_config_retain(weir_name_config *config);
void weir__name_config_release(weir_name_config *config);

#endif
