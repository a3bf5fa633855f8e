/* SPDX-License-Identifier: MIT */
/* Contexts: a handler's place in a pipeline. */
#ifndef WEIR_CHANNEL_CTX_H
#define WEIR_CHANNEL_CTX_H

#include "channel/event.h"
#include "loop/loop.h"

#include <weir/pipeline.h>

#include <stdatomic.h>

/* Where a context is in its life. */
enum {
    WEIR_CTX_NEW,      /* `added` has not been called: the channel is not registered yet */
    WEIR_CTX_UNWANTED, /* removed before that; `removed` waits for a loop to be called by */
    WEIR_CTX_ADDING,   /* `added` runs */
    WEIR_CTX_LIVE,     /* gets events */
    WEIR_CTX_FAILED,   /* `added` has failed; of an offloaded handler, until it is removed */
    WEIR_CTX_REMOVED,  /* gets no events; stays linked for events that stand on it */
};

/* An offloaded handler has two: its own, which belongs to its executor, and the boundary in the
 * pipeline. See offload.h. */
struct weir_ctx {
    weir_ctx *prev, *next;
    const weir_handler_type *type;
    uint32_t mask; /* which events it wants: none until it is added, none once removed */
    bool is_slow;  /* see weir_ctx_link, whose fields these first ones are */
    bool is_offloaded;
    uint8_t state;
    bool is_replaced : 1;  /* another takes its place and is being added: names do not find it */
    bool has_replaced : 1; /* it replaced another handler before its own `added` ran */
    bool is_resting : 1;   /* removed, and the turn in which that was is over */
    bool in_error;         /* on_error is running */
    _Atomic(bool) has_eof; /* weir_event_input_closed has got as far */
    uint32_t number;       /* no other handler of the channel has it */
    weir_channel *channel;
};

/* Any context but the head and the tail, which are parts of the pipeline and need no more. */
typedef struct weir_member {
    weir_ctx ctx;
    void *arg;
    const char *name;
    union {
        weir_deferred deferred; /* frees it, when it is removed */
        struct {
            weir_error *failure;   /* where a failing `added` says so */
            weir_promise *promise; /* completed when it has been added, or that has failed; NULL */
        };
    };
} weir_member;

static inline weir_member *weir__ctx_member(const weir_ctx *ctx)
{
    return (weir_member *)ctx;
}

static inline const char *weir__ctx_name(const weir_ctx *ctx)
{
    return weir__ctx_member(ctx)->name;
}

/* The handler's own memory begins here. */
#define WEIR__CTX_STATE ((sizeof(weir_member) + 15) & ~(size_t)15)

/* Of a name that weir gives: '#', ten digits, the end. */
#define WEIR__NUMBER_SIZE 12

/* Whether every event that is passed on is checked to be on the right thread. */
#ifdef WEIR_DEBUG
#define WEIR__CTX_IS_CHECKED true
#else
#define WEIR__CTX_IS_CHECKED false
#endif

/* The head or the tail. */
static inline void weir__ctx_init_end(weir_ctx *ctx, weir_channel *channel,
                                      const weir_handler_type *type)
{
    *ctx = (weir_ctx){ .type = type, .channel = channel, .state = WEIR_CTX_LIVE };
    ctx->mask = weir__handler_mask(type);
    ctx->is_slow = WEIR__CTX_IS_CHECKED;
}

/* -ENOMEM, -EINVAL for the group, or the code of `arg_retain`. A name that weir gives is written by
 * weir__ctx_set_number. Any thread. */
int weir__ctx_new(weir_ctx **ctx, weir_channel *channel, const weir_handler_config *config);
void weir__ctx_set_number(weir_ctx *ctx, uint32_t number);
void weir__ctx_free(weir_ctx *ctx);
void weir__ctx_free_linked(weir_ctx *ctx); /* one of a pipeline */

/* The handler's own context and type, of a context in the pipeline. */
weir_ctx *weir__ctx_handler(const weir_ctx *ctx);
static inline const weir_handler_type *weir__ctx_type(const weir_ctx *ctx)
{
    return weir__ctx_handler(ctx)->type;
}

/* How much the handler holds of what it has read: bytes or messages. On its executor. */
size_t weir__ctx_held(const weir_ctx *ctx);

/* Calls `added` of the handler's own context: it gets events, or its code is in `error`. On its
 * executor. */
void weir__ctx_run_added(weir_ctx *ctx, weir_error *error);

/* Calls `removed`; the handler gets no event and no timer afterwards. On its executor. */
void weir__ctx_run_removed(weir_ctx *ctx);

/* On the loop, with a context in the pipeline, as all that follow: calls `added`. Returns the code
 * that it failed with; then the handler is removed, and the error has been raised at the head and
 * is in `error`. An offloaded one is added later: 0. */
int weir__ctx_call_added(weir_ctx *ctx, weir_error *error);

/* The same for an add that has returned 0 already: a failure without a promise closes the channel.
 */
void weir__ctx_call_added_late(weir_ctx *ctx);

/* `added` of an offloaded handler has run, and failed unless `error` is NULL. */
void weir__ctx_added_there(weir_ctx *ctx, weir_promise *promise, const weir_error *error);

/* Whether the add has a promise; and fails that, if there is one. */
bool weir__ctx_has_promise(weir_ctx *ctx);
bool weir__ctx_fail_promise(weir_ctx *ctx, int code);

/* Hides a context from events, then calls `removed`, also if `added` was never called. */
void weir__ctx_remove(weir_ctx *ctx);

/* The same at the end of the channel, which frees the context. */
void weir__ctx_remove_at_end(weir_ctx *ctx);

/* Whether the context is removed, and only the channel frees it. */
bool weir__ctx_goes_with_channel(const weir_ctx *ctx);

/* No event of an offloaded handler is in flight: frees the context if it waits for that. */
void weir__ctx_returned(weir_ctx *ctx);

/* Whether this is the thread on which a context may be used. */
bool weir__ctx_is_here(const weir_ctx *ctx);

/* A handler fails inside its `added`: true, and the error is kept, when that is so. */
bool weir__ctx_fail_added(weir_ctx *ctx, const weir_error *error);

#endif
