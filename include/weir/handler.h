/* SPDX-License-Identifier: MIT */
/* Handlers: what a pipeline is made of, and what a handler can do from its place in it. */
#ifndef WEIR_HANDLER_H
#define WEIR_HANDLER_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/error.h>
#include <weir/future.h>
#include <weir/msg.h>
#include <weir/timer.h>

WEIR_BEGIN_DECLS

typedef struct weir_channel weir_channel;
typedef struct weir_pipeline weir_pipeline;

/**
 * A handler's place in one pipeline: what its callbacks get. It belongs to the handler's executor,
 * which is the channel's loop unless the handler was added with a group of its own: every weir_ctx_
 * function is called there (asserted in debug builds), from `added` on until the turn of the loop
 * after that in which `removed` was called.
 */
typedef struct weir_ctx weir_ctx;

/**
 * What a handler does: const and static, one for any number of channels. A callback that is NULL
 * passes the event on, and costs nothing; one that is there decides itself whether the event goes
 * on, by calling the function of the same name (weir_ctx_fire_read, weir_ctx_write, ...).
 *
 * A message that a callback gets is its own: it passes it on, or releases it. A promise is
 * borrowed, and may be NULL; whoever does not pass it on completes it, now or later (then it
 * retains it). Addresses and errors are borrowed for the call.
 *
 * Everything is allowed inside every callback: to close the channel, to remove any handler, to
 * write.
 */
typedef struct weir_handler_type {
    const char *name;  /* for logs, and for a handler that is added without a name */
    size_t state_size; /* of what weir_ctx_state returns */
    bool is_single;    /* a second one in the same pipeline is rejected */

    /* A protocol upgrade, as TLS: it changes how the bytes are encoded for the handlers after it.
     * When it is added to an active channel, none of these may hold data from before: then the add
     * fails with WEIR_EHELD and the channel closes, because a peer may have put it there to be
     * taken for what follows (STARTTLS). One that replaces another upgrade continues what that
     * began. A channel with an upgrade cannot be relayed by the kernel. */
    bool is_upgrade;

    /* How much the handler holds of what it has read and not passed on: bytes or messages, 0 for
     * nothing. On its executor, also while one of its callbacks passes a message on. NULL: it
     * never holds any. */
    size_t (*held_reads)(const weir_ctx *ctx);

    /*
     * The argument it is added with. By default that is a pointer, and its memory stays the
     * caller's. A handler with a config sets `arg_size`: every add copies so many bytes before it
     * returns, on whichever thread it is called, and weir_ctx_arg returns the copy, so that the
     * config may be a compound literal. NULL stays NULL.
     *
     * `arg_retain` then makes the copy independent: it replaces lists and strings in it by copies
     * and retains counted objects. A negative code fails the add. With an `arg_size` of 0 it gets
     * the argument itself, to retain it. `arg_release` undoes that when the context is freed, after
     * `removed`. Both on any thread, with an argument that is not NULL; neither checks whether it
     * makes sense: `added` does. Both may be NULL.
     */
    size_t arg_size;
    int (*arg_retain)(void *arg);
    void (*arg_release)(void *arg);

    /* `added` runs once the channel is registered, and weir_ctx_fail in it rejects the handler.
     * After an add that returned 0 `removed` runs exactly once, also if the channel closed before
     * `added` could run; the state is still zero then. Both run on the handler's executor; if that
     * has terminated, `removed` runs on the channel's loop. */
    void (*added)(weir_ctx *ctx);
    void (*removed)(weir_ctx *ctx);

    /* Inbound: from the head to the tail. */
    void (*on_registered)(weir_ctx *ctx);
    void (*on_active)(weir_ctx *ctx); /* it is connected, or bound */
    void (*on_read)(weir_ctx *ctx, weir_msg *msg);
    void (*on_read_complete)(weir_ctx *ctx); /* the last on_read for now has been */
    void (*on_event)(weir_ctx *ctx, weir_msg *event);
    void (*on_writability)(weir_ctx *ctx); /* weir_channel_is_writable has changed, for a while at
                                              least */
    void (*on_inactive)(weir_ctx *ctx);
    void (*on_unregistered)(weir_ctx *ctx);
    void (*on_error)(weir_ctx *ctx, const weir_error *error);

    /* Outbound: from the tail to the head, where it is done. */
    void (*bind)(weir_ctx *ctx, const weir_address *local, weir_promise *promise);
    void (*connect)(weir_ctx *ctx, const weir_address *remote, const weir_address *local,
                    weir_promise *promise); /* `local` may be NULL */
    void (*disconnect)(weir_ctx *ctx, weir_promise *promise);
    void (*read)(weir_ctx *ctx); /* somebody wants to read */
    void (*write)(weir_ctx *ctx, weir_msg *msg, weir_promise *promise);
    void (*flush)(weir_ctx *ctx);
    void (*shutdown)(weir_ctx *ctx, weir_promise *promise);
    void (*close)(weir_ctx *ctx, weir_promise *promise);
    void (*deregister)(weir_ctx *ctx, weir_promise *promise);

    /*
     * What it takes from its neighbours and gives them, for a check when it is added; NULL: it
     * does not say. A frame decoder takes reads of weir_buf_type and gives reads of its frames'
     * type.
     */
    const weir_msg_type *takes_reads, *gives_reads;
    const weir_msg_type *takes_writes, *gives_writes;
} weir_handler_type;

/*
 * The beginning of a context, for the inline functions below: four events come with every message,
 * and a hop should cost a few instructions. All of it is weir's.
 */
typedef struct weir_ctx_link weir_ctx_link;
struct __attribute__((may_alias)) weir_ctx_link {
    weir_ctx_link *prev, *next;
    const weir_handler_type *type;
    uint32_t mask; /* which events it wants */
    bool is_slow;  /* calls are checked to be on the right thread: in debug builds */
};

enum {
    WEIR__ON_READ = 1 << 2,
    WEIR__ON_READ_COMPLETE = 1 << 3,
    WEIR__WRITE = 1 << 13,
    WEIR__FLUSH = 1 << 14,
};

#ifdef __cplusplus
#define WEIR__POINTER(type, pointer) reinterpret_cast<type *>(pointer)
#else
#define WEIR__POINTER(type, pointer) ((type *)(pointer))
#endif

/* Looking ------------------------------------------------------------------------------------ */

/** The handler's own memory in this pipeline: zeroed at first, aligned for everything; NULL when
 * its type has none. */
WEIR_API void *weir_ctx_state(const weir_ctx *ctx);

/** Returns the argument of the add, or its copy if the type has an `arg_size`. */
WEIR_API void *weir_ctx_arg(const weir_ctx *ctx);

/** Its name in the pipeline: borrowed, until it is renamed. */
WEIR_API const char *weir_ctx_name(const weir_ctx *ctx);
/** The handler's type, its channel and its pipeline: borrowed. */
WEIR_API const weir_handler_type *weir_ctx_type(const weir_ctx *ctx);
WEIR_API weir_channel *weir_ctx_channel(const weir_ctx *ctx);
WEIR_API weir_pipeline *weir_ctx_pipeline(const weir_ctx *ctx);

/** Where its callbacks run. */
WEIR_API weir_executor *weir_ctx_executor(const weir_ctx *ctx);

/** Whether it has been removed; then no more callbacks come. */
WEIR_API bool weir_ctx_is_removed(const weir_ctx *ctx);

/** Whether weir_event_input_closed has reached the handler, or its place before it was added: all
 * messages of the peer have passed, and none follows. It is fired by the transport at EOF, or by a
 * handler nearer to the head at an end inside of the stream (close_notify of TLS). A handler that
 * is added to an open channel asks in `added`. On the handler's executor. */
WEIR_API bool weir_ctx_is_input_closed(const weir_ctx *ctx);

/* Inbound: to the next handler towards the tail ---------------------------------------------- */

/** Pass the event to the next handler towards the tail. */
WEIR_API void weir_ctx_fire_registered(weir_ctx *ctx);
WEIR_API void weir_ctx_fire_active(weir_ctx *ctx);
/** Passes a message on, and its ownership with it, as all functions here do that take one. At the
 * tail it is released, and counted as discarded. NULL is a message whose allocation failed: the
 * handler fails with -ENOMEM and the channel closes. */
static inline void weir_ctx_fire_read(weir_ctx *ctx, weir_msg *msg);
/** Pass the event to the next handler towards the tail. They take `event`. */
static inline void weir_ctx_fire_read_complete(weir_ctx *ctx);
WEIR_API void weir_ctx_fire_event(weir_ctx *ctx, weir_msg *event);
WEIR_API void weir_ctx_fire_writability(weir_ctx *ctx);
WEIR_API void weir_ctx_fire_inactive(weir_ctx *ctx);
WEIR_API void weir_ctx_fire_unregistered(weir_ctx *ctx);
/** At the tail it is logged as a warning. */
WEIR_API void weir_ctx_fire_error(weir_ctx *ctx, const weir_error *error);

/**
 * The handler has failed. Its own on_error hears of it first, then those towards the tail as each
 * passes it on. Inside on_error it goes on behind this handler. Inside `added` it removes the
 * handler, and the error is raised at the head. The origin is the handler's name. A code that is
 * not negative counts as -EINVAL.
 */
WEIR_API void weir_ctx_fail(weir_ctx *ctx, int code, const char *format, ...) WEIR_PRINTF(3, 4);

/* Outbound: to the next handler towards the head --------------------------------------------- */

/*
 * The promise may be NULL. It is completed when the operation has been done or has failed; a
 * failure of one that has no promise is told by on_error, from the head, when it was a write, and
 * then a stream is closed as well, because bytes are never skipped.
 */

/** Pass the operation to the next handler towards the head. `promise` and `local` of a connect
 * may be NULL. */
WEIR_API void weir_ctx_bind(weir_ctx *ctx, const weir_address *local, weir_promise *promise);
WEIR_API void weir_ctx_connect(weir_ctx *ctx, const weir_address *remote, const weir_address *local,
                               weir_promise *promise);
WEIR_API void weir_ctx_disconnect(weir_ctx *ctx, weir_promise *promise);
WEIR_API void weir_ctx_read(weir_ctx *ctx);
/** Writes a message. NULL is one whose allocation failed: the write fails with -ENOMEM, so
 * `weir_ctx_write(ctx, weir_buf_msg(weir_buf_from(...)), NULL)` never leaves a gap. */
static inline void weir_ctx_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise);
/** Pass the operation to the next handler towards the head. They take `msg`; `promise` may be NULL.
 */
static inline void weir_ctx_flush(weir_ctx *ctx);
WEIR_API void weir_ctx_write_and_flush(weir_ctx *ctx, weir_msg *msg, weir_promise *promise);
WEIR_API void weir_ctx_shutdown(weir_ctx *ctx, weir_promise *promise);

/** Writes a copy of a string, or formatted text, as a buffer. Without memory the write fails as one
 * of NULL does. */
WEIR_API void weir_ctx_write_str(weir_ctx *ctx, const char *string);
WEIR_API void weir_ctx_writef(weir_ctx *ctx, const char *format, ...) WEIR_PRINTF(2, 3);

/** For a handler that cannot pass a write on: releases the message (NULL: it is gone) and fails the
 * promise. Without one it closes the channel and fails itself (weir_ctx_fail), because the peer
 * would take the next write for the missing bytes; not when the channel is closed already. */
WEIR_API void weir_ctx_refuse_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise, int code);

/**
 * Writes a piece of a stream: for a handler that splits a message, or whose next output depends on
 * this one, as a compressor's does. If the piece is rejected anywhere, the channel closes at once,
 * the error is raised, and no later byte is sent, with a promise or without.
 *
 * The promise (may be NULL) is that of the message whose last piece this is: it completes when the
 * piece is sent, has the code of what rejected it, and cannot be cancelled from this call on.
 */
WEIR_API void weir_ctx_write_piece(weir_ctx *ctx, weir_msg *msg, weir_promise *promise);

/** Pass the operation to the next handler towards the head. `promise` may be NULL. */
WEIR_API void weir_ctx_close(weir_ctx *ctx, weir_promise *promise);
WEIR_API void weir_ctx_deregister(weir_ctx *ctx, weir_promise *promise);

/** Removes this handler from its pipeline. WEIR_ENOTFOUND if it is removed already. */
WEIR_API int weir_ctx_remove(weir_ctx *ctx);

/* Timers of a handler ------------------------------------------------------------------------ */

/**
 * A timer that belongs to a handler: it goes with the channel when that moves to another loop, and
 * is cancelled, without a call, when the handler is removed. Embed it in the handler's state.
 */
typedef struct weir_ctx_timer weir_ctx_timer;
struct weir_ctx_timer {
    void (*fire)(weir_ctx_timer *timer, weir_ctx *ctx); /* yours */
    /* weir's: */
    weir_timer timer;
    weir_ctx *ctx;
    weir_list_node node;
    int64_t left_ns;
    uint8_t state;
};

/** Fires once, `delay_ns` from now, on the handler's executor. A timer that waits already gets the
 * new time. -EINVAL for a removed handler or a timer without `fire`, else as weir_timer_schedule.
 */
WEIR_API int weir_ctx_schedule(weir_ctx *ctx, weir_ctx_timer *timer, int64_t delay_ns);

/** Has the timer not fire; it is yours again at once. Nothing when it does not wait. */
WEIR_API void weir_ctx_cancel(weir_ctx *ctx, weir_ctx_timer *timer);

/* Inline ------------------------------------------------------------------------------------- */

/** The same as weir_ctx_fire_read and so on, as functions: what those call for all but the simplest
 * case. */
WEIR_API void weir_ctx_fire_read_slowly(weir_ctx *ctx, weir_msg *msg);
WEIR_API void weir_ctx_fire_read_complete_slowly(weir_ctx *ctx);
WEIR_API void weir_ctx_write_slowly(weir_ctx *ctx, weir_msg *msg, weir_promise *promise);
WEIR_API void weir_ctx_flush_slowly(weir_ctx *ctx);

/* The tail wants everything inbound and the head everything outbound, so the searches end. */

static inline void weir_ctx_fire_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_link *at = WEIR__POINTER(weir_ctx_link, ctx);
    if (!at->is_slow && msg) {
        do
            at = at->next;
        while ((at->mask & WEIR__ON_READ) == 0);
        at->type->on_read(WEIR__POINTER(weir_ctx, at), msg);
    } else {
        weir_ctx_fire_read_slowly(ctx, msg);
    }
}

static inline void weir_ctx_fire_read_complete(weir_ctx *ctx)
{
    weir_ctx_link *at = WEIR__POINTER(weir_ctx_link, ctx);
    if (!at->is_slow) {
        do
            at = at->next;
        while ((at->mask & WEIR__ON_READ_COMPLETE) == 0);
        at->type->on_read_complete(WEIR__POINTER(weir_ctx, at));
    } else {
        weir_ctx_fire_read_complete_slowly(ctx);
    }
}

static inline void weir_ctx_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_ctx_link *at = WEIR__POINTER(weir_ctx_link, ctx);
    if (!at->is_slow && msg) {
        do
            at = at->prev;
        while ((at->mask & WEIR__WRITE) == 0);
        at->type->write(WEIR__POINTER(weir_ctx, at), msg, promise);
    } else {
        weir_ctx_write_slowly(ctx, msg, promise);
    }
}

static inline void weir_ctx_flush(weir_ctx *ctx)
{
    weir_ctx_link *at = WEIR__POINTER(weir_ctx_link, ctx);
    if (!at->is_slow) {
        do
            at = at->prev;
        while ((at->mask & WEIR__FLUSH) == 0);
        at->type->flush(WEIR__POINTER(weir_ctx, at));
    } else {
        weir_ctx_flush_slowly(ctx);
    }
}

WEIR_END_DECLS

#endif
