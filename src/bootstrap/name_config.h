/* SPDX-License-Identifier: MIT */
/* The files that configure name lookups, as they were at one time: the hosts file, resolv.conf. */
#ifndef WEIR_BOOTSTRAP_NAME_CONFIG_H
#define WEIR_BOOTSTRAP_NAME_CONFIG_H

#include "base/sys.h"
#include "bootstrap/hosts_file.h"

#include <stdatomic.h>

/* The search list: domains to append to short host names. */
#define WEIR__NAME_MAX 253  /* bytes of a name: what fits in the 255 that DNS has for one */
#define WEIR__SEARCH_MAX 32 /* domains; further ones are ignored */
#define WEIR__NDOTS_MAX 15  /* larger values count as this one */

typedef struct weir_search_list {
    unsigned ndots; /* a host with fewer dots is looked up in the domains first */
    unsigned count;
    char domains[WEIR__SEARCH_MAX][WEIR__NAME_MAX + 1]; /* without a trailing dot */
} weir_search_list;

/*
 * Reads the search list as glibc does: of the `search` and `domain` lines of resolv.conf the last
 * one counts, `options ndots:n` sets ndots (1 by default), and the values of LOCALDOMAIN and
 * RES_OPTIONS, if not NULL, override both. Words that are no domain names are ignored. Without any
 * of them the list is empty: the domain of the machine's own host name is not used, so that no
 * server learns of it.
 */
void weir__search_list_read(weir_search_list *list, const char *resolv_conf,
                            const char *localdomain, const char *res_options);

/* An absolute name: with its trailing dot, or empty. */
typedef char weir_absolute_name[WEIR__NAME_MAX + 2];

/* The nth name to try for a host: with few dots the search domains first, else the host itself.
 * False when there are no more; a name that is too long is an empty one. */
bool weir__search_list_name(const weir_search_list *list, const char *host, unsigned nth,
                            weir_absolute_name name);

/* The configuration ---------------------------------------------------------------------------- */

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
