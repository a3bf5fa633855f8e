/* SPDX-License-Identifier: MIT */
/* A cache of DNS answers: bounded, with the lifetime of each answer, and of its absence. */
#ifndef WEIR_BOOTSTRAP_NAME_CACHE_H
#define WEIR_BOOTSTRAP_NAME_CACHE_H

#include "base/list.h"
#include "bootstrap/addresses.h"

#define WEIR__NAME_CACHE_MAX 2048 /* answers; a full cache drops the least recently used one */
#define WEIR__NAME_TTL_MAX_S 3600 /* an answer is asked for again after that at the latest */
#define WEIR__NAME_TTL_ABSENT_S 5 /* that there is no such name, or no address of that family */

/* The owner's lock protects it. Zero it, then set the key, which has to be random: peers may choose
 * the names. */
typedef struct weir_name_cache {
    uint64_t key[2];
    weir_list *buckets; /* NULL until the first entry */
    weir_list by_use;   /* the last one used first */
    size_t count;
} weir_name_cache;

/* Finds the addresses that a name, whose case does not matter, has in a family (AF_INET, AF_INET6):
 * none if it is known to have none. False when nothing is known, or it has expired. */
bool weir__name_cache_find(weir_name_cache *cache, const char *name, int family, int64_t now_ns,
                           weir_candidates *found);

/* Remembers them for `ttl_s`, but no longer than the limits above; not if that is 0, or without
 * memory. */
void weir__name_cache_put(weir_name_cache *cache, const char *name, int family,
                          const weir_candidates *candidates, uint32_t ttl_s, int64_t now_ns);

/* Forgets everything, and frees the memory. */
void weir__name_cache_clear(weir_name_cache *cache);

#endif
