/* SPDX-License-Identifier: MIT */
/* Contexts: a handler's place in a pipeline. */
#ifndef WEIR_CHANNEL_CTX_H
#define WEIR_CHANNEL_CTX_H

#include "loop/loop.h"

#include <weir/pipeline.h>

#include <stdatomic.h>

/* Where a context is in its life. */
enum {
    WEIR_CTX_NEW,      /* `added` has not been called: the channel is not registered yet */
    WEIR_CTX_UNWANTED, /* removed before that; `removed` waits for a loop to be called by */
    WEIR_CTX_ADDING,   /* it is being called */
    WEIR_CTX_LIVE,     /* gets events */
    WEIR_CTX_REMOVED,  /* gets none any more, but stays linked for those who stand on it */
};

/* Whether weir_event_input_closed has got as far as a context. */
enum {
    WEIR__EOF_PASSED = 1, /* on the loop: delivered to it, posted to its executor, or skipped it */
    WEIR__EOF_RECEIVED = 2, /* on its executor */
};

struct weir_ctx {
    weir_ctx *prev, *next; /* the loop's; written under the channel's lock, others look */
    const weir_handler_type *type;
    uint32_t mask;     /* which events it wants: none until it is added, none once removed */
    bool is_slow;      /* see weir_ctx_link, whose fields these first ones are */
    bool is_elsewhere; /* it has a lane, see lane.h, behind its state */
    uint8_t state;
    bool is_listed;       /* can be found: under the lock */
    uint32_t serial;      /* no other handler of the channel has it */
    bool owns_name;       /* it was renamed */
    bool is_heir : 1;     /* of a switch: the handlers after it know of it */
    bool is_resting : 1;  /* removed, and the turn in which that was is over */
    bool in_error;        /* its executor's: on_error is running */
    _Atomic(uint8_t) eof; /* of WEIR__EOF_*; an offloaded handler reads it, too */
    weir_channel *channel;
};

/* Any context but those of the ends, which every channel has and which need no more than that. */
typedef struct weir_member {
    weir_ctx ctx;
    void *arg;
    char *name; /* under the lock */
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

/* -ENOMEM, or the code of `arg_retain`. A name that weir gives is written when the serial is known.
 */
int weir__ctx_new(weir_ctx **ctx, weir_channel *channel, const weir_handler_config *config);
void weir__ctx_free(weir_ctx *ctx);

/* Its name, cut to fit. Any thread. */
void weir__ctx_copy_name(const weir_ctx *ctx, char *to, size_t size);

/* Calls `added`; from then on the handler gets events. Returns the code that `added` failed with,
 * and then the handler is removed, and the error has been raised at the head and is in `error`.
 * One on another executor is added later: 0. On the loop, as all of these. */
int weir__ctx_call_added(weir_ctx *ctx, weir_error *error);

/* The same for an add that has returned 0 already: a failure without a promise closes the channel.
 */
void weir__ctx_call_added_late(weir_ctx *ctx);

/* The `added` of one on another executor has run there, and failed unless `error` is NULL. */
void weir__ctx_added_elsewhere(weir_ctx *ctx, const weir_error *error);

/* Whether the add has a promise; and fails that, if there is one. */
bool weir__ctx_has_promise(weir_ctx *ctx);
bool weir__ctx_fail_promise(weir_ctx *ctx, int code);

/* Hides a context from events, then calls `removed`, also if `added` was never called. */
void weir__ctx_remove(weir_ctx *ctx);

/* A handler elsewhere has nothing on its way any more: frees the context if it waits for that. */
void weir__ctx_returned(weir_ctx *ctx);

#endif
