/* SPDX-License-Identifier: MIT */
/* Fails the n-th call of any kind that is made on weir's own threads, by its nature. */
#ifndef WEIR_TESTS_TRANSPORT_NTH_FAULT_H
#define WEIR_TESTS_TRANSPORT_NTH_FAULT_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static struct {
    atomic_bool is_paused;
    atomic_uint seen;
    atomic_uint at;
    atomic_bool has_failed;
    char name[32];
} nth;

static _Thread_local bool is_test_thread;

static int fail_nth(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    /* A loop that cannot wait or be woken is another story, told in the tests of loops. */
    if (is_test_thread || atomic_load(&nth.is_paused) || strcmp(call, "epoll_wait") == 0 ||
        strcmp(call, "poll") == 0 || strcmp(call, "write") == 0)
        return 0;
    if (atomic_fetch_add(&nth.seen, 1) + 1 != nth.at)
        return 0;
    snprintf(nth.name, sizeof nth.name, "%s", call);
    atomic_store(&nth.has_failed, true);
    if (strcmp(call, "alloc") == 0 || strcmp(call, "pool") == 0)
        return -ENOMEM;
    return strcmp(call, "accept4") == 0 || strcmp(call, "pipe2") == 0 ? -EMFILE : -ENOBUFS;
}

#endif
