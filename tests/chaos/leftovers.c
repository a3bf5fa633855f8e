/* SPDX-License-Identifier: MIT */
/* Leftovers. */
#include "leftovers.h"

#include "verdict.h"

#include <weir/threads.h>
#include <weir/timer.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#define PRINT_LEAKS() __lsan_do_recoverable_leak_check()
#else
#define PRINT_LEAKS() 0
#endif

static void print_leak(void *arg, const weir_leak *leak)
{
    (void)arg;
    fprintf(stderr, "  %zu messages of type %s, made at\n%s\n", leak->count, leak->type,
            leak->place);
}

static int is_more(const living *now, const living *before)
{
    return now->used_blocks > before->used_blocks || now->allocations > before->allocations ||
           now->messages > before->messages || now->descriptors > before->descriptors ||
           now->threads > before->threads;
}

void leftovers_check(const living *before)
{
    living now = living_count();
    /* A joined thread stays in the list until the kernel has ended it. */
    for (int tries = 0; is_more(&now, before) && tries < 20; tries++) {
        usleep(1000);
        now = living_count();
    }
    if (is_more(&now, before)) { /* the global executor's thread ends after an idle second */
        weir_executor_global_wait_idle(WEIR_SECONDS(5));
        usleep(20000);
        now = living_count();
    }
    if (is_more(&now, before))
        (void)PRINT_LEAKS();
    if (now.messages > before->messages)
        weir_leak_report(print_leak, NULL);
    MUST(!is_more(&now, before),
         "left alive: %zu messages, %" PRId64 " blocks, %" PRId64
         " allocations, %zd descriptors, %zd threads",
         now.messages - before->messages, (int64_t)(now.used_blocks - before->used_blocks),
         (int64_t)(now.allocations - before->allocations),
         (ssize_t)(now.descriptors - before->descriptors),
         (ssize_t)(now.threads - before->threads));
}
