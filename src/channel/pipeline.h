/* SPDX-License-Identifier: MIT */
/* The pipeline: the list of contexts, and how events get from one to the next. */
#ifndef WEIR_CHANNEL_PIPELINE_H
#define WEIR_CHANNEL_PIPELINE_H

#include "loop/loop.h"

#include <weir/pipeline.h>

/* The events, each a bit of a context's mask. Inbound ones first. */
typedef enum weir_event_kind {
    WEIR_EV_REGISTERED,
    WEIR_EV_ACTIVE,
    WEIR_EV_READ,
    WEIR_EV_READ_COMPLETE,
    WEIR_EV_EVENT,
    WEIR_EV_WRITABILITY,
    WEIR_EV_INACTIVE,
    WEIR_EV_UNREGISTERED,
    WEIR_EV_ERROR,
    WEIR_OP_BIND,
    WEIR_OP_CONNECT,
    WEIR_OP_DISCONNECT,
    WEIR_OP_READ,
    WEIR_OP_WRITE,
    WEIR_OP_FLUSH,
    WEIR_OP_SHUTDOWN,
    WEIR_OP_CLOSE,
    WEIR_OP_DEREGISTER,
    /* Only to carry it to a handler elsewhere. */
    WEIR_EV_ADDED,
    WEIR_EV_REMOVED,
} weir_event_kind;

/* An event with whatever goes with it. The message is owned, the rest borrowed. */
typedef struct weir_event {
    weir_event_kind kind;
    weir_msg *msg;
    weir_promise *promise;
    const weir_error *error;
    const weir_address *address, *local;
} weir_event;

static inline bool weir__event_is_inbound(weir_event_kind kind)
{
    return kind <= WEIR_EV_ERROR;
}

/* Where a context is in its life. */
enum {
    WEIR_CTX_NEW,     /* `added` has not been called: the channel is not registered yet */
    WEIR_CTX_ADDING,  /* it is being called */
    WEIR_CTX_LIVE,    /* gets events */
    WEIR_CTX_FAILED,  /* its `added` has failed */
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
    weir_channel *channel;
    void *arg;
    char *name;      /* under the lock */
    bool owns_name;  /* it was renamed */
    bool in_error;   /* its executor's: on_error is running */
    bool is_resting; /* removed, and the turn in which that was is over */
    union {
        weir_deferred deferred; /* frees it, when it is removed */
        weir_error *failure;    /* where a failing `added` says so */
    };
};

struct weir_pipeline {
    weir_ctx head, tail;
    weir_ctx *arriving; /* named already, but not in the list yet: under the lock */
    uint32_t next_serial;
};

void weir__pipeline_init(weir_pipeline *pipeline, weir_channel *channel);

/* The channel was registered: calls every `added` that waited for it. */
void weir__pipeline_call_added(weir_pipeline *pipeline);

/* Takes all handlers out, from the tail to the head. */
void weir__pipeline_remove_all(weir_pipeline *pipeline);

/* Frees what is left, when the channel goes. */
void weir__pipeline_deinit(weir_pipeline *pipeline);

/* Takes a context out of events' sight, then calls `removed`. */
void weir__ctx_remove(weir_ctx *ctx);

/* The handler's own memory begins here. */
#define WEIR__CTX_STATE ((sizeof(weir_ctx) + 15) & ~(size_t)15)

/* Its name, cut to fit. Any thread. */
void weir__ctx_copy_name(const weir_ctx *ctx, char *to, size_t size);

/* Its `added` has failed: takes it out and raises the error at the head. */
void weir__ctx_added_failed(weir_ctx *ctx, const weir_error *error);

/* A handler elsewhere has nothing on its way any more: frees the context if it waits for that. */
void weir__ctx_returned(weir_ctx *ctx);

/* weir_pipeline_add, and which serial the handler has got. */
int weir__pipeline_add(weir_pipeline *pipeline, const weir_handler_config *config, uint32_t *serial,
                       weir_error *error);

/* The handler with a serial, NULL when it went in the meantime. On the loop, or under the lock. */
weir_ctx *weir__pipeline_find_serial(weir_pipeline *pipeline, uint32_t serial);

/* The first or last context: ordinary handlers of weir's own, see ends.c. */
extern const weir_handler_type weir__head_type, weir__tail_type;

uint32_t weir__handler_mask(const weir_handler_type *type);

/* Events: see event.c ---------------------------------------------------------------------- */

/* Passes an event on from a context, or from the ends of the pipeline. On the loop. */
void weir__event_pass(weir_ctx *from, const weir_event *event);

/* Begins an event where such events begin. On the loop. */
void weir__event_enter(weir_channel *channel, const weir_event *event);

/* Has the handler of a context called, on the present thread. */
void weir__event_call(weir_ctx *ctx, const weir_event *event);

/* Ends an event that cannot get any further. */
void weir__event_drop(weir_channel *channel, const weir_event *event, int code);

/* From the ends. On the loop. */
void weir__pipeline_fire(weir_channel *channel, weir_event_kind kind);
void weir__pipeline_fire_error(weir_channel *channel, const weir_error *error);
void weir__pipeline_fire_code(weir_channel *channel, int code, const char *what);

#endif
