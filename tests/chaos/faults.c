/* SPDX-License-Identifier: MIT */
/* Faults at a rate. */
#include "faults.h"

#include "dice.h"
#include "verdict.h"

#include <weir/error.h>
#include <weir/fault.h>

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

enum { SHORT = 1, MAX_FAULTS = 4 };

/* How each call fails, as Linux documents it. EAGAIN and short reads are missing: they would claim
 * that a descriptor has no more input, and epoll would report none. A failing io_uring_setup other
 * than for memory would be remembered for the process. */
static const struct {
    const char *call;
    int faults[MAX_FAULTS];
} table[] = {
    { "alloc", { -ENOMEM } },
    { "pool", { -ENOMEM } },
    { "accept4", { -EMFILE, -ENOBUFS, -ECONNABORTED, -EINTR } },
    { "bind", { -EADDRINUSE } },
    { "connect", { -ECONNREFUSED, -EINTR } },
    { "epoll_create1", { -EMFILE } },
    { "epoll_ctl", { -ENOMEM, -ENOSPC } },
    { "epoll_wait", { -EINTR } },
    { "eventfd", { -EMFILE } },
    { "io_uring_enter", { -EINTR, -EBUSY, -EAGAIN } },
    { "io_uring_register", { -ENOMEM } },
    { "io_uring_setup", { -ENOMEM } },
    { "listen", { -EADDRINUSE } },
    { "poll", { -EINTR } },
    { "pread", { -EIO, SHORT } },
    { "pread_cached", { -EAGAIN, SHORT } },
    { "pthread_create", { -EAGAIN } },
    { "read", { -EINTR } },
    { "recv", { -ECONNRESET, -EINTR, -ENOMEM } },
    { "recvmsg", { -ECONNRESET, -EINTR, -ENOMEM } },
    { "send", { -ECONNRESET, -EPIPE, -EINTR, SHORT } },
    { "sendfile", { -EIO, -EINTR, SHORT } },
    { "sendmsg", { -ECONNRESET, -EPIPE, -EINTR, SHORT } },
    { "setsockopt", { -ENOMEM } },
    { "shutdown", { -ENOTCONN } },
    { "socket", { -EMFILE, -ENOBUFS } },
};

static atomic_uint one_in;
static _Atomic uint64_t base_seed;
static atomic_uint failed;
static atomic_uint threads; /* that have a generator for this seed */

/* Each thread has a generator of its own; in the order they come, for want of a better one. */
static dice *dice_of_thread(void)
{
    static _Thread_local dice own;
    static _Thread_local uint64_t own_seed;
    uint64_t seed = atomic_load_explicit(&base_seed, memory_order_relaxed);
    if (own_seed != seed) {
        own_seed = seed;
        own.state = seed + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed);
    }
    return &own;
}

static int choose_fault(dice *d, const char *call)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].call, call) != 0)
            continue;
        unsigned count = 0;
        while (count < MAX_FAULTS && table[i].faults[count] != 0)
            count++;
        return table[i].faults[dice_below(d, count)];
    }
    return 0;
}

static int on_call(void *arg, const char *call, size_t *length)
{
    (void)arg;
    unsigned rate = atomic_load_explicit(&one_in, memory_order_relaxed);
    if (rate == 0)
        return 0;
    dice *d = dice_of_thread();
    if (!dice_one_in(d, rate))
        return 0;
    int fault = choose_fault(d, call);
    if (fault == 0 || (fault == SHORT && (length == NULL || *length < 2)))
        return 0;
    atomic_fetch_add_explicit(&failed, 1, memory_order_relaxed);
    verdict_trace("fault: %s %s", call, fault == SHORT ? "short" : weir_error_name(fault));
    if (fault != SHORT)
        return fault;
    *length = 1 + dice_below(d, (uint32_t)(*length - 1));
    return 0;
}

void faults_install(void)
{
    weir_fault_set(on_call, NULL);
}

void faults_begin(uint32_t rate, uint64_t seed)
{
    atomic_store_explicit(&failed, 0, memory_order_relaxed);
    atomic_store_explicit(&threads, 0, memory_order_relaxed);
    atomic_store_explicit(&base_seed, seed, memory_order_relaxed);
    atomic_store_explicit(&one_in, rate, memory_order_relaxed);
}

void faults_stop(void)
{
    atomic_store_explicit(&one_in, 0, memory_order_relaxed);
}

unsigned faults_count(void)
{
    return atomic_load_explicit(&failed, memory_order_relaxed);
}
