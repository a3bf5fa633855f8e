/* SPDX-License-Identifier: MIT */
/* The chunked handler: inputs and what was written behind them, in order. */
#include "handler/chunked.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdatomic.h>

#define MOST_CHUNKS 16 /* at once; then it is the others' turn */
#define MIN_LOOK_NS WEIR_MS(10)
#define MAX_LOOK_NS WEIR_MS(1280)

typedef weir_chunked_state chunked_handler;

/* The queue: inputs, and what was written behind them ------------------------------------------ */

static weir_queued_write take_first(chunked_handler *self)
{
    if (self->is_waiting)
        weir__chunked_leave(weir_chunked_from_msg(self->queue.first->msg));
    self->is_waiting = false;
    self->is_begun = false;
    return weir__write_queue_take(&self->queue);
}

static void drop_first(chunked_handler *self, int code)
{
    weir_queued_write dropped = take_first(self);
    weir__write_queue_drop(&dropped, code);
}

static void drop_all(chunked_handler *self, int code)
{
    while (self->queue.first != NULL)
        drop_first(self, code);
    weir__write_queue_fail_shutdown(&self->queue, code);
}

/* Progress ------------------------------------------------------------------------------------- */

/* A chunk on its way, of an input that tells how far it got. */
typedef struct step {
    weir_listener listener;
    weir_chunked *input;
    weir_channel *channel;
    weir_promise *promise; /* of the input, with its last chunk */
    uint64_t sent;
} step;

static void step_free(step *self)
{
    weir_promise_release(self->promise);
    weir_channel_release(self->channel);
    weir_msg_release(&self->input->msg);
    weir__free(self);
}

static void step_dropped(weir_listener *listener, weir_future *future)
{
    (void)future;
    step_free(WEIR_CONTAINER(listener, step, listener));
}

static void step_done(weir_listener *listener, weir_future *future)
{
    step *self = WEIR_CONTAINER(listener, step, listener);
    weir_chunked *input = self->input;
    int code = weir_future_code(future);
    if (code == 0)
        input->config.on_progress(input, input->config.arg, self->sent, input->config.total_bytes);
    if (self->promise != NULL)
        weir_promise_set(self->promise, code);
    step_free(self);
}

/* A promise for a chunk that tells; NULL without memory. */
static weir_promise *begin_step(weir_ctx *ctx, weir_chunked *input, weir_promise *of_input)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_promise *promise = weir_channel_promise(channel);
    step *self = promise != NULL ? weir__alloc(sizeof *self) : NULL;
    if (self == NULL) {
        if (promise != NULL)
            weir_promise_set(promise, -ENOMEM); /* or it would seem forgotten */
        weir_promise_release(promise);
        return NULL;
    }
    *self = (step){ .listener = { .done = step_done, .dropped = step_dropped } };
    self->input = input;
    self->sent = input->given;
    weir_msg_retain(&input->msg);
    self->channel = weir_channel_retain(channel);
    self->promise = of_input != NULL ? weir_promise_retain(of_input) : NULL;
    weir_future_listen(weir_promise_future(promise), &self->listener);
    return promise;
}

/* Passing on ----------------------------------------------------------------------------------- */

/* Bytes are missing: what follows would be taken for them. Those before it still go. */
static void give_up(weir_ctx *ctx, chunked_handler *self, int code)
{
    bool is_told = self->queue.first->promise != NULL;
    weir_ctx_flush(ctx);
    self->has_failed = true; /* the close may take a while, and nothing may go meanwhile */
    drop_first(self, code);
    drop_all(self, WEIR_ECLOSED);
    weir_ctx_close(ctx, NULL);
    if (!is_told)
        weir_ctx_fail(ctx, code, "the rest of a message could not be read: %s",
                      weir_error_text(code));
}

static void pass_chunk(weir_ctx *ctx, weir_chunked *input, weir_buf *chunk, weir_promise *promise)
{
    weir_promise *told = NULL;
    if (input->config.on_progress != NULL)
        told = begin_step(ctx, input, promise);
    weir_ctx_write_piece(ctx, &chunk->msg, told != NULL ? told : promise);
    weir_promise_release(told);
}

static void on_resumed(weir_ctx *ctx);

/* The next buffer of the input that is first; its last one takes the promise along. */
static void pass_next(weir_ctx *ctx, chunked_handler *self, weir_chunked *input)
{
    weir_buf *chunk;
    weir_queued_write sent;
    weir_pulled pulled = weir__chunked_pull(input, &chunk);
    const weir_queued_write *first = self->queue.first;
    if (first == NULL || first->msg != &input->msg) { /* dropped in that call */
        if (chunk != NULL)
            weir_buf_release(chunk);
        return;
    }
    switch (pulled) {
    case WEIR_PULLED_CHUNK:
        pass_chunk(ctx, input, chunk, NULL);
        break;
    case WEIR_PULLED_LAST:
        sent = take_first(self);
        pass_chunk(ctx, input, chunk, sent.promise);
        weir_msg_release(sent.msg);
        weir_promise_release(sent.promise);
        break;
    case WEIR_PULLED_NOT_NOW:
        self->is_waiting = weir__chunked_wait(input, ctx, on_resumed);
        break;
    case WEIR_PULLED_FAILED:
        give_up(ctx, self, input->code);
        break;
    }
}

static void pass_first(weir_ctx *ctx, chunked_handler *self)
{
    const weir_queued_write *first = self->queue.first;
    weir_chunked *input = weir_chunked_from_msg(first->msg);
    if (!self->is_begun && first->promise != NULL &&
        !weir_promise_set_uncancellable(first->promise)) {
        drop_first(self, -ECANCELED);
        return;
    }
    self->is_begun = true;
    self->look_ns = MIN_LOOK_NS;
    if (input != NULL) {
        weir_msg_retain(&input->msg); /* it may do anything when it is asked */
        pass_next(ctx, self, input);
        weir_msg_release(&input->msg);
        return;
    }
    weir_queued_write passed = take_first(self);
    weir__write_queue_pass(ctx, &passed);
}

/* Whether there is something to pass on, and nothing but the channel to wait for. A channel that
 * is on no loop waits for the next one: an input may be resumed by a thread that no handler expects
 * to run on. */
static bool has_ready(weir_ctx *ctx, const chunked_handler *self)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    return weir__write_queue_has_flushed(&self->queue) && !self->is_waiting &&
           !weir_ctx_is_removed(ctx) && weir_channel_is_open(channel) &&
           weir_channel_get_state(channel) != WEIR_CHANNEL_OPEN;
}

static bool can_go_on(weir_ctx *ctx, const chunked_handler *self)
{
    return has_ready(ctx, self) && weir_channel_is_writable(weir_ctx_channel(ctx));
}

/* Sending some may make it writable again. */
static void pass_some(weir_ctx *ctx, chunked_handler *self)
{
    int left = MOST_CHUNKS;
    while (left > 0 && can_go_on(ctx, self)) {
        for (; left > 0 && can_go_on(ctx, self); left--)
            pass_first(ctx, self);
        weir_ctx_flush(ctx);
    }
}

/*
 * Whether the rest has its time: at once, when it was only the others' turn. When the channel is
 * full, on_writability tells when it is not. But it may seem full without ever having been so, and
 * then nobody is told: on an executor of its own the handler also counts what is on its way to the
 * loop, which may be sent bit by bit as it gets there. So it looks now and then, and the less often
 * the longer nothing has happened.
 */
static int come_again(weir_ctx *ctx, chunked_handler *self)
{
    if (!has_ready(ctx, self))
        return 0;
    int64_t delay_ns = can_go_on(ctx, self) ? 0 : self->look_ns;
    return weir_ctx_schedule(ctx, &self->again, delay_ns);
}

/* Passes on what is flushed as long as the channel is writable, in several goes if that is much; in
 * one if there is no memory for a timer. */
static void pump(weir_ctx *ctx)
{
    chunked_handler *self = weir_ctx_state(ctx);
    if (self->is_pumping)
        return;
    self->is_pumping = true;
    do
        pass_some(ctx, self);
    while (come_again(ctx, self) < 0 && can_go_on(ctx, self));
    self->is_pumping = false;
    weir__write_queue_passed(ctx, &self->queue);
}

static void on_resumed(weir_ctx *ctx)
{
    chunked_handler *self = weir_ctx_state(ctx);
    self->is_waiting = false;
    pump(ctx);
}

static void on_again(weir_ctx_timer *timer, weir_ctx *ctx)
{
    chunked_handler *self = WEIR_CONTAINER(timer, chunked_handler, again);
    self->look_ns = self->look_ns < MAX_LOOK_NS ? self->look_ns * 2 : MAX_LOOK_NS;
    pump(ctx); /* which begins anew with the shortest, if anything goes */
}

/* The handler ---------------------------------------------------------------------------------- */

void weir__chunked_added(weir_ctx *ctx)
{
    chunked_handler *self = weir_ctx_state(ctx);
    self->again.fire = on_again;
    self->look_ns = MIN_LOOK_NS;
}

void weir__chunked_removed(weir_ctx *ctx)
{
    drop_all(weir_ctx_state(ctx),
             weir_channel_is_open(weir_ctx_channel(ctx)) ? -ECANCELED : WEIR_ECLOSED);
}

void weir__chunked_on_registered(weir_ctx *ctx)
{
    pump(ctx);
    weir_ctx_fire_registered(ctx);
}

void weir__chunked_on_inactive(weir_ctx *ctx)
{
    drop_all(weir_ctx_state(ctx), WEIR_ECLOSED);
    weir_ctx_fire_inactive(ctx);
}

void weir__chunked_on_writability(weir_ctx *ctx)
{
    pump(ctx);
    weir_ctx_fire_writability(ctx);
}

/* Keeps a message in its place behind an input: 0, or why it cannot. */
static int keep(weir_ctx *ctx, chunked_handler *self, weir_msg *msg, weir_promise *promise)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    size_t size = weir_msg_size(msg), weight = size > 0 ? size : 1;
    int64_t most = 0;
    if (!weir_channel_is_open(channel) || self->has_failed)
        return WEIR_ECLOSED;
    if (self->queue.is_ending)
        return -EPIPE;
    weir_channel_get_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, &most);
    if (weight > (size_t)most || self->queue.weight > (size_t)most - weight)
        return WEIR_ELIMIT;
    return weir__write_queue_add(&self->queue, msg, promise, weight);
}

void weir__chunked_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    chunked_handler *self = weir_ctx_state(ctx);
    weir_chunked *input = weir_chunked_from_msg(msg);
    if (self->queue.first == NULL && input == NULL && !self->has_failed) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    bool is_again = input != NULL &&
                    atomic_exchange_explicit(&input->is_written, true, memory_order_relaxed);
    int code = is_again ? -EALREADY : keep(ctx, self, msg, promise);
    if (code < 0)
        weir_ctx_refuse_write(ctx, msg, promise, code);
}

void weir__chunked_flush(weir_ctx *ctx)
{
    chunked_handler *self = weir_ctx_state(ctx);
    weir__write_queue_flush(&self->queue);
    weir_ctx_flush(ctx);
    pump(ctx);
}

void weir__chunked_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    chunked_handler *self = weir_ctx_state(ctx);
    if (self->has_failed) { /* behind a gap an end would look like a good one */
        if (promise != NULL)
            weir_promise_set(promise, WEIR_ECLOSED);
    } else if (weir__write_queue_shutdown(ctx, &self->queue, promise)) {
        weir__chunked_flush(ctx);
    }
}

const weir_handler_type weir_chunked_handler = {
    .name = "chunked",
    WEIR__CHUNKED_CALLBACKS,
    .write = weir__chunked_write,
};
