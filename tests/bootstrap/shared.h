/* SPDX-License-Identifier: MIT */
/* What the tests of servers and of clients share: backends, addresses, promises, and a fault at the
 * n-th call. */
#ifndef WEIR_TESTS_BOOTSTRAP_SHARED_H
#define WEIR_TESTS_BOOTSTRAP_SHARED_H

#include "exec/executors.h"

#include <weir/address.h>
#include <weir/future.h>
#include <weir/group.h>
#include <weir/resolver.h>

#include <stdio.h>
#include <sys/socket.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Backends ------------------------------------------------------------------------------------- */

typedef struct backend {
    const char *name;
    weir_io_kind io;
} backend;

static const backend backends[] = {
    { "epoll", WEIR_IO_EPOLL },
    { "blocking", WEIR_IO_BLOCKING },
    { "uring", WEIR_IO_URING },
};

/* What it is instead, where there is no io_uring. */
static inline const backend *there_is(const backend *wanted)
{
    return wanted->io == WEIR_IO_URING && !harness_has_uring() ? &backends[0] : wanted;
}

static inline weir_group *open_group(const weir_group_config *config)
{
    weir_group *group = NULL;
    assert_int_equal(weir_group_new(&group, config, NULL), 0);
    return group;
}

/* Where there are no numbers of loops, each channel has its own. */
static inline weir_group *loops_of(const backend *with, int count)
{
    weir_group_config config = { .io = with->io, .watchdog_ns = WEIR_OFF };
    config.loops = with->io == WEIR_IO_BLOCKING ? 0 : count;
    return open_group(&config);
}

/* Names are asked for in the background, and a drain's time is watched there while there are no
 * loops yet: what is left of that ends by itself. */
static inline int assert_nothing_left(void **state)
{
    assert_int_equal(weir_executor_global_wait_idle(WEIR_SECONDS(60)), 0);
    return harness_assert_nothing_left(state);
}

/* Addresses ------------------------------------------------------------------------------------ */

static inline weir_address address_of(const char *text)
{
    weir_address address;
    assert_int_equal(weir_address_parse(&address, text, NULL), 0);
    return address;
}

/* A plain stream socket of the address's kind; what the system calls that is told. */
static inline int socket_for(const weir_address *address, const struct sockaddr **name,
                             socklen_t *length)
{
    size_t size;
    *name = weir_address_sockaddr(address, &size);
    *length = (socklen_t)size;
    assert_non_null(*name);
    int fd = socket((*name)->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

/* Answers who has asked for a name: with addresses that a space separates, or a code. -EALREADY
 * when nobody wants to know any more. */
static inline int answer_with(weir_promise *promise, int code, const char *texts)
{
    weir_address list[WEIR_ADDRESSES_MAX];
    size_t count = 0;
    char copy[1024], *rest = NULL;
    if (code < 0)
        return weir_promise_fail(promise, code);
    snprintf(copy, sizeof copy, "%s", texts);
    for (char *one = strtok_r(copy, " ", &rest); one != NULL; one = strtok_r(NULL, " ", &rest))
        list[count++] = address_of(one);
    weir_addresses *addresses = weir_addresses_new(list, count);
    if (addresses == NULL)
        return weir_promise_fail(promise, -ENOMEM);
    code = weir_promise_succeed(promise, addresses, weir_addresses_free);
    if (code < 0)
        weir_addresses_free(addresses);
    return code;
}

/* Promises ------------------------------------------------------------------------------------- */

static inline weir_promise *new_promise(void)
{
    weir_promise *promise = weir_promise_new(NULL);
    assert_non_null(promise);
    return promise;
}

static inline int code_of(weir_promise *promise)
{
    return weir_future_code(weir_promise_future(promise));
}

static inline bool is_pending(weir_promise *promise)
{
    return !weir_future_is_done(weir_promise_future(promise));
}

/* Waits for it and lets it go. */
static inline int end_of(weir_promise *promise)
{
    int code = weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

/* Faults --------------------------------------------------------------------------------------- */

/* The n-th call of weir's fails, on whatever thread it is. */
typedef struct fault {
    _Atomic(const char *) only; /* NULL: any, but for those that only wait or wake */
    atomic_uint at, seen;
    atomic_int code;
} fault;

static fault the_fault;

static inline bool may_fail(const char *call)
{
    static const char *const never[] = { "epoll_wait", "poll", "read", "write", "close" };
    const char *only = atomic_load(&the_fault.only);
    if (only != NULL)
        return strcmp(call, only) == 0;
    for (size_t i = 0; i < COUNT(never); i++) {
        if (strcmp(call, never[i]) == 0)
            return false;
    }
    return true;
}

static inline int fail_at(void *arg, const char *call, size_t *length)
{
    (void)arg, (void)length;
    if (!may_fail(call) || atomic_fetch_add(&the_fault.seen, 1) + 1 != atomic_load(&the_fault.at))
        return 0;
    return atomic_load(&the_fault.code);
}

static inline void fault_begin(const char *only, unsigned at, int code)
{
    atomic_store(&the_fault.only, only);
    atomic_store(&the_fault.at, at);
    atomic_store(&the_fault.code, code);
    atomic_store(&the_fault.seen, 0);
    weir_fault_set(fail_at, NULL);
}

/* Whether it came to that. */
static inline bool fault_end(void)
{
    weir_fault_set(NULL, NULL);
    return atomic_load(&the_fault.seen) >= atomic_load(&the_fault.at);
}

#endif
