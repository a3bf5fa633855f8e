/* SPDX-License-Identifier: MIT */
/* The hand-written pipeline, out of sight of those who call it. */
#include "peers/hops.h"

#include "bench.h"

#define PASS(n)                                                                                    \
    static void pass_##n(hop *self, weir_msg *msg)                                                 \
    {                                                                                              \
        hop *next = self->next;                                                                    \
        next->read(next, msg);                                                                     \
        BENCH_APART(n);                                                                            \
    }
HOPS(PASS)

const hop_fn hops_pass[HOPS_MOST] = {
#define ENTRY(n) pass_##n,
    HOPS(ENTRY)
};

void hop_take(hop *self, weir_msg *msg)
{
    (void)msg;
    self->taken++;
}
