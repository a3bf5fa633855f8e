/* SPDX-License-Identifier: MIT */
/* The hosts file, with an index: finding a name takes the same time in a file of any length. */
#ifndef WEIR_BOOTSTRAP_HOSTS_FILE_H
#define WEIR_BOOTSTRAP_HOSTS_FILE_H

#include "bootstrap/addresses.h"

/* One name of a line. */
typedef struct weir_hosts_entry {
    uint32_t name, address; /* where they begin in the text */
    uint32_t next;          /* entry of the same bucket, later in the file, plus 1; 0: none */
} weir_hosts_entry;

/* Does not change after it was made: any thread may search it. */
typedef struct weir_hosts_file {
    char *text; /* its words, each with a terminating 0 */
    weir_hosts_entry *entries;
    uint32_t *buckets; /* of a power of 2: the first entry, plus 1 */
    uint32_t count, mask;
} weir_hosts_file;

/* Makes the index. `text`, below 4 GiB and from weir__alloc, belongs to the file from now on, if
 * this returns 0. Else -ENOMEM. */
int weir__hosts_file_init(weir_hosts_file *file, char *text);
void weir__hosts_file_free(weir_hosts_file *file);

/* Adds the addresses that the file has for the host, on any of its lines, or for localhost, if it
 * has none at all, the loopback addresses. Whether there are any: then no server is asked, not even
 * for a family that the file does not have. */
bool weir__hosts_file_find(const weir_hosts_file *file, const char *host, weir_candidates *ipv6,
                           weir_candidates *ipv4);

#endif
