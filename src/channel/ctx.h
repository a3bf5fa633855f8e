/* SPDX-License-Identifier: MIT */
/* Contexts: a handler's place in a pipeline. */
#ifndef WEIR_CHANNEL_CTX_H
#define WEIR_CHANNEL_CTX_H

#include "loop/loop.h"

#include <weir/pipeline.h>

/* Where a context is in its life. */
enum {
    WEIR_CTX_NEW,     /* `added` has not been called: the channel is not registered yet */
    WEIR_CTX_ADDING,  /* it is being called */
    WEIR_CTX_LIVE,    /* gets events */
    WEIR_CTX_REMOVED, /* gets none any more, but stays linked for those who stand on it */
};

struct weir_ctx {
    weir_ctx *prev, *next; /* the loop's; written under the channel's lock, others look */
    const weir_handler_type *type;
    uint32_t mask;     /* which events it wants: none until it is added, none once removed */
    bool is_slow;      /* see weir_ctx_link, whose fields these first ones are */
    bool is_elsewhere; /* it has a lane, see lane.h, behind its state */
    uint8_t state;
    bool is_listed;  /* can be found: under the lock */
    uint32_t serial; /* no other handler of the channel has it */
    bool owns_name;  /* it was renamed */
    bool is_heir;    /* of a switch: those behind it know of that */
    bool in_error;   /* its executor's: on_error is running */
    bool is_resting; /* removed, and the turn in which that was is over */
    weir_channel *channel;
};

/* Any context but those of the ends, which every channel has and which need no more than that. */
typedef struct weir_member {
    weir_ctx ctx;
    void *arg;
    char *name; /* under the lock */
    union {
        weir_deferred deferred; /* frees it, when it is removed */
        weir_error *failure;    /* where a failing `added` says so */
    };
} weir_member;

static inline weir_member *weir__ctx_member(const weir_ctx *ctx)
{
    return (weir_member *)ctx;
}

/* Its name; for others than its own handler under the lock. */
static inline const char *weir__ctx_name(const weir_ctx *ctx)
{
    return weir__ctx_member(ctx)->name;
}

/* The handler's own memory begins here. */
#define WEIR__CTX_STATE ((sizeof(weir_member) + 15) & ~(size_t)15)

/* Of a name that weir gives: '#', ten digits, the end. */
#define WEIR__SERIAL_SIZE 12

/* The head or the tail, which are parts of their pipeline. */
void weir__ctx_init_end(weir_ctx *ctx, weir_channel *channel, const weir_handler_type *type);

/* -ENOMEM. A name that weir gives is written when the serial is known. */
int weir__ctx_new(weir_ctx **ctx, weir_channel *channel, const weir_handler_config *config);
void weir__ctx_free(weir_ctx *ctx);

/* Its name, cut to fit. Any thread. */
void weir__ctx_copy_name(const weir_ctx *ctx, char *to, size_t size);

/* Tells the handler that it has come; then it gets events. On the loop, as all of these. */
void weir__ctx_call_added(weir_ctx *ctx);

/* Its `added` has failed: takes it out and raises the error at the head. */
void weir__ctx_added_failed(weir_ctx *ctx, const weir_error *error);

/* Takes a context out of events' sight, then calls `removed`. */
void weir__ctx_remove(weir_ctx *ctx);

/* A handler elsewhere has nothing on its way any more: frees the context if it waits for that. */
void weir__ctx_returned(weir_ctx *ctx);

#endif
