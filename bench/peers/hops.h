/* SPDX-License-Identifier: MIT */
/* The hand-written pipeline: function pointers in a list, and nothing else. */
#ifndef WEIR_BENCH_HOPS_H
#define WEIR_BENCH_HOPS_H

#include <weir/msg.h>

/*
 * Handlers of a pipeline are different functions, here and in weir and Netty: a CPU that comes
 * through the same few jumps again and again, to the same targets, cannot tell where it is, and
 * predicts them badly. So there are as many as the longest pipeline has.
 */
#define HOPS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define HOPS_MOST 8

typedef struct hop hop;
struct hop {
    void (*read)(hop *self, weir_msg *msg);
    hop *next;
    uint64_t taken; /* the last one's: how many messages */
};

typedef void (*hop_fn)(hop *self, weir_msg *msg);

/* Each passes the message to the next. */
extern const hop_fn hops_pass[HOPS_MOST];

void hop_take(hop *self, weir_msg *msg);

#endif
