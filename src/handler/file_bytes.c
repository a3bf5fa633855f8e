/* SPDX-License-Identifier: MIT */
/* The file bytes handler. */
#include <weir/file_bytes.h>

#include "base/alloc.h"

#include <weir/buf.h>
#include <weir/channel.h>
#include <weir/file.h>

#include <errno.h>

#define CHUNK_BYTES ((size_t)64 * 1024)
#define MOST_CHUNKS 16 /* at once; then it is the others' turn */
#define SHORTEST_LOOK_MS 10
#define LONGEST_LOOK_MS 1280

typedef struct item item;
struct item {
    item *next;
    weir_msg *msg;
    weir_promise *promise;
    size_t weight;
};

/*
 * Files, and what was written behind them:
 *
 *     first              unflushed      last
 *      [file] -> [buf] -> [buf] -> ... [file]
 *
 * `at` bytes of the first have been passed on, when it is a file. While there is any, whatever is
 * written goes to the end.
 */
typedef struct file_bytes {
    item *first, *unflushed, *last;
    uint64_t at;
    size_t weight;
    bool is_begun;   /* the first cannot be cancelled any more */
    bool is_pumping; /* further up the stack */
    bool is_ending;  /* a shutdown waits for the end of the queue */
    bool has_failed; /* bytes are missing, so there will be no more */
    weir_promise *shutdown_promise;
    weir_ctx_timer again;
    int look_ms; /* how long to wait before it looks again */
} file_bytes;

static void end_promise(weir_promise *promise, int code)
{
    if (promise != NULL)
        weir_promise_set(promise, code);
    weir_promise_release(promise);
}

/* The queue ------------------------------------------------------------------------------------ */

static int append(file_bytes *self, weir_msg *msg, weir_promise *promise, size_t weight)
{
    item *added = weir__alloc(sizeof *added);
    if (added == NULL)
        return -ENOMEM;
    *added = (item){ .msg = msg, .weight = weight };
    if (promise != NULL)
        added->promise = weir_promise_retain(promise);
    if (self->first == NULL)
        self->first = added;
    else
        self->last->next = added;
    self->last = added;
    if (self->unflushed == NULL)
        self->unflushed = added;
    self->weight += weight;
    return 0;
}

static item take_first(file_bytes *self)
{
    item *first = self->first, taken = *first;
    self->first = first->next;
    if (self->unflushed == first)
        self->unflushed = first->next;
    self->weight -= first->weight;
    self->at = 0;
    self->is_begun = false;
    weir__free(first);
    return taken;
}

static void drop_first(file_bytes *self, int code)
{
    item dropped = take_first(self);
    weir_msg_release(dropped.msg);
    end_promise(dropped.promise, code);
}

static void drop_all(file_bytes *self, int code)
{
    weir_promise *shutdown_promise = self->shutdown_promise;
    while (self->first != NULL)
        drop_first(self, code);
    self->shutdown_promise = NULL;
    self->is_ending = false;
    end_promise(shutdown_promise, code);
}

/* Passing on ----------------------------------------------------------------------------------- */

/* Bytes are missing: what follows would be taken for them. Those before it still go. */
static void give_up(weir_ctx *ctx, file_bytes *self, int code)
{
    bool is_told = self->first->promise != NULL;
    weir_ctx_flush(ctx);
    self->has_failed = true; /* the close may take a while, and nothing may go meanwhile */
    drop_first(self, code);
    drop_all(self, WEIR_ECLOSED);
    if (!is_told)
        weir_ctx_fail(ctx, code, "a file could not be read: %s", weir_error_text(code));
    weir_ctx_close(ctx, NULL);
}

/* The next buffer of the file that is first; its last one takes the promise along. */
static int pass_chunk(weir_ctx *ctx, file_bytes *self, const weir_file_region *region)
{
    weir_buf *chunk;
    int code = weir_file_region_read(region, self->at, CHUNK_BYTES, &chunk);
    if (code == 0 && chunk == NULL && (chunk = weir_buf_new(0)) == NULL) /* an empty file */
        code = -ENOMEM;
    if (code < 0)
        return code;
    self->at += weir_buf_readable(chunk);
    if (self->at < region->length) {
        weir_ctx_write(ctx, &chunk->msg, NULL);
        return 0;
    }
    item sent = take_first(self);
    weir_ctx_write(ctx, &chunk->msg, sent.promise);
    weir_msg_release(sent.msg);
    weir_promise_release(sent.promise);
    return 0;
}

static void pass_first(weir_ctx *ctx, file_bytes *self)
{
    item *first = self->first;
    if (!self->is_begun && first->promise != NULL &&
        !weir_promise_set_uncancellable(first->promise)) {
        drop_first(self, -ECANCELED);
        return;
    }
    self->is_begun = true;
    self->look_ms = SHORTEST_LOOK_MS;
    if (first->msg->type == &weir_file_region_type) {
        int code = pass_chunk(ctx, self, (const weir_file_region *)first->msg);
        if (code < 0)
            give_up(ctx, self, code);
        return;
    }
    item passed = take_first(self);
    weir_ctx_write(ctx, passed.msg, passed.promise);
    weir_promise_release(passed.promise);
}

static bool can_go_on(weir_ctx *ctx, const file_bytes *self)
{
    return self->first != self->unflushed && weir_channel_is_writable(weir_ctx_channel(ctx)) &&
           !weir_ctx_is_removed(ctx);
}

static void shut_when_passed(weir_ctx *ctx, file_bytes *self)
{
    weir_promise *promise = self->shutdown_promise;
    if (!self->is_ending || self->first != NULL)
        return;
    self->is_ending = false;
    self->shutdown_promise = NULL;
    weir_ctx_shutdown(ctx, promise);
    weir_promise_release(promise);
}

/* Sending some may make it writable again. */
static void pass_some(weir_ctx *ctx, file_bytes *self)
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
static int come_again(weir_ctx *ctx, file_bytes *self)
{
    if (self->first == self->unflushed || weir_ctx_is_removed(ctx))
        return 0;
    int64_t delay_ns = can_go_on(ctx, self) ? 0 : WEIR_MS(self->look_ms);
    return weir_ctx_schedule(ctx, &self->again, delay_ns);
}

/* Passes on what is flushed as long as the channel is writable, in several goes if that is much; in
 * one if there is no memory for a timer. */
static void pump(weir_ctx *ctx)
{
    file_bytes *self = weir_ctx_state(ctx);
    if (self->is_pumping)
        return;
    self->is_pumping = true;
    do
        pass_some(ctx, self);
    while (come_again(ctx, self) < 0 && can_go_on(ctx, self));
    self->is_pumping = false;
    shut_when_passed(ctx, self);
}

static void on_again(weir_ctx_timer *timer, weir_ctx *ctx)
{
    file_bytes *self = WEIR_CONTAINER(timer, file_bytes, again);
    self->look_ms = self->look_ms < LONGEST_LOOK_MS ? self->look_ms * 2 : LONGEST_LOOK_MS;
    pump(ctx); /* which begins anew with the shortest, if anything goes */
}

/* The handler ---------------------------------------------------------------------------------- */

static void file_bytes_added(weir_ctx *ctx)
{
    file_bytes *self = weir_ctx_state(ctx);
    self->again.fire = on_again;
    self->look_ms = SHORTEST_LOOK_MS;
}

static void file_bytes_removed(weir_ctx *ctx)
{
    drop_all(weir_ctx_state(ctx),
             weir_channel_is_open(weir_ctx_channel(ctx)) ? -ECANCELED : WEIR_ECLOSED);
}

static void file_bytes_on_inactive(weir_ctx *ctx)
{
    drop_all(weir_ctx_state(ctx), WEIR_ECLOSED);
    weir_ctx_fire_inactive(ctx);
}

static void file_bytes_on_writability(weir_ctx *ctx)
{
    pump(ctx);
    weir_ctx_fire_writability(ctx);
}

/* Keeps a message in its place behind a file: 0, or why it cannot. */
static int keep(weir_ctx *ctx, file_bytes *self, weir_msg *msg, weir_promise *promise)
{
    const weir_channel *channel = weir_ctx_channel(ctx);
    size_t size = weir_msg_size(msg), weight = size > 0 ? size : 1;
    int64_t most = 0;
    if (!weir_channel_is_open(channel) || self->has_failed)
        return WEIR_ECLOSED;
    if (self->is_ending)
        return -EPIPE;
    weir_channel_get_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, &most);
    if (weight > (size_t)most || self->weight > (size_t)most - weight)
        return WEIR_ELIMIT;
    return append(self, msg, promise, weight);
}

static void file_bytes_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    file_bytes *self = weir_ctx_state(ctx);
    if (self->first == NULL && msg->type != &weir_file_region_type && !self->has_failed) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    int code = keep(ctx, self, msg, promise);
    if (code < 0)
        weir_ctx_refuse_write(ctx, msg, promise, code);
}

static void file_bytes_flush(weir_ctx *ctx)
{
    file_bytes *self = weir_ctx_state(ctx);
    self->unflushed = NULL;
    weir_ctx_flush(ctx);
    pump(ctx);
}

static void file_bytes_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    file_bytes *self = weir_ctx_state(ctx);
    if (self->has_failed || self->is_ending) { /* behind a gap an end would look like a good one */
        if (promise != NULL)
            weir_promise_set(promise, self->has_failed ? WEIR_ECLOSED : -EALREADY);
        return;
    }
    if (self->first == NULL) {
        weir_ctx_shutdown(ctx, promise);
        return;
    }
    self->is_ending = true;
    self->shutdown_promise = promise != NULL ? weir_promise_retain(promise) : NULL;
    file_bytes_flush(ctx);
}

const weir_handler_type weir_file_bytes_handler = {
    .name = "file bytes",
    .state_size = sizeof(file_bytes),
    .added = file_bytes_added,
    .removed = file_bytes_removed,
    .on_inactive = file_bytes_on_inactive,
    .on_writability = file_bytes_on_writability,
    .write = file_bytes_write,
    .flush = file_bytes_flush,
    .shutdown = file_bytes_shutdown,
};
