/* SPDX-License-Identifier: MIT */
/* The handler that decompresses what is read, as it is asked to. */
#include <weir/channel.h>
#include <weir/compression.h>
#include <weir/loop.h>

#include <errno.h>

#define MOST_WAITING ((size_t)2 << 20)
#define MOST_AT_ONCE 16 /* buffers; then it is the others' turn */
#define NORMAL_CHUNK ((size_t)64 << 10)
#define LOOK_NS WEIR_MS(50)

/*
 * Unlike a frame, what a few bytes expand to has no end that they foretell. So this is not a
 * weir_decoder, which decodes whatever came: it stops as soon as nobody wants more.
 */
typedef struct decoder {
    weir_decompressor *engine;
    weir_buf *rest;     /* compressed bytes that wait; NULL: none */
    size_t wanted;      /* how much was asked for, with auto_read off */
    size_t chunk_bytes; /* what one read() asks for */
    bool is_rest_own;   /* nobody else has that buffer */
    bool has_more;      /* than it has given of what it took */
    bool is_running;    /* further up the stack */
    bool is_in_batch;   /* of reads, whose end will be told */
    bool has_given;     /* something, in this batch */
    bool has_held_read; /* a read() that was not passed on, because there is a rest */
    bool has_ended;     /* no more comes; told behind the rest */
    bool is_closing;    /* there is no later: all of it now */
    bool is_over;       /* it has ended, or was refused */
    weir_ctx_timer again;
} decoder;

static bool has_rest(const decoder *self)
{
    return self->has_more || weir_buf_readable(self->rest) > 0;
}

static void drop_rest(decoder *self)
{
    if (self->rest != NULL)
        weir_buf_release(self->rest);
    self->rest = NULL;
    self->has_more = self->is_rest_own = false;
}

static bool has_option(weir_ctx *ctx, weir_option option)
{
    int64_t value = 0;
    weir_channel_get_option(weir_ctx_channel(ctx), option, &value);
    return value != 0;
}

static bool is_paused(weir_ctx *ctx)
{
    return has_option(ctx, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE) &&
           !weir_channel_is_writable(weir_ctx_channel(ctx));
}

/* Whether somebody wants more. */
static bool is_wanted(weir_ctx *ctx, const decoder *self)
{
    if (self->is_closing)
        return true;
    return !is_paused(ctx) && (self->wanted > 0 || has_option(ctx, WEIR_OPTION_AUTO_READ));
}

static bool can_go_on(weir_ctx *ctx, const decoder *self)
{
    return !self->is_over && has_rest(self) && is_wanted(ctx, self);
}

/* What is wrong is told, and that is the end. */
static void refuse(weir_ctx *ctx, decoder *self, int code, const char *message)
{
    self->is_over = true;
    drop_rest(self);
    weir_ctx_fail(ctx, code, "%s", message);
    if (!weir_ctx_is_removed(ctx))
        weir_ctx_close(ctx, NULL);
}

/* Giving --------------------------------------------------------------------------------------- */

static void give(weir_ctx *ctx, decoder *self, weir_buf *out)
{
    size_t length = weir_buf_readable(out);
    self->has_given = true;
    self->wanted -= length < self->wanted ? length : self->wanted;
    if (!has_option(ctx, WEIR_OPTION_AUTO_READ))
        self->has_held_read = false; /* this is the answer to it */
    weir_ctx_fire_read(ctx, &out->msg);
}

/* The next buffer. */
static void give_one(weir_ctx *ctx, decoder *self)
{
    weir_error error;
    weir_buf *out;
    weir_compressed result = weir_decompressor_run(self->engine, self->rest, &out, &error);
    if (result == WEIR_COMPRESSED_REFUSED) {
        refuse(ctx, self, error.code, error.message);
        return;
    }
    self->has_more = result == WEIR_COMPRESSED_MORE;
    if (!has_rest(self))
        drop_rest(self);
    if (out != NULL)
        give(ctx, self, out); /* last: it may close the channel, remove this, or read */
}

/* The stream has ended. */
static void finish(weir_ctx *ctx, decoder *self)
{
    weir_error error;
    if (!self->is_over && weir_decompressor_finish(self->engine, &error) < 0)
        refuse(ctx, self, error.code, error.message);
    self->is_over = true;
}

/* Nothing waits: what did so behind it has its turn. */
static void go_behind_the_rest(weir_ctx *ctx, decoder *self)
{
    bool has_held_read = self->has_held_read, has_ended = self->has_ended;
    self->has_held_read = self->has_ended = false;
    if (has_held_read)
        weir_ctx_read(ctx);
    if (!has_ended)
        return;
    finish(ctx, self);
    weir_ctx_fire_event(ctx, &weir_event_input_closed);
}

/* On an executor of its own it also counts what is on its way to the loop, which may be gone
 * without the channel ever having been full: then nobody tells that it is writable. It may also be
 * gone since this has stopped because of it. */
static void look_later(weir_ctx *ctx, decoder *self)
{
    weir_loop *loop = weir_channel_loop(weir_ctx_channel(ctx));
    if (self->is_over || loop == NULL || weir_ctx_executor(ctx) == weir_loop_executor(loop))
        return;
    int64_t delay_ns = is_paused(ctx) ? LOOK_NS : 0;
    if ((delay_ns > 0 || can_go_on(ctx, self)) &&
        weir_ctx_schedule(ctx, &self->again, delay_ns) < 0)
        refuse(ctx, self, -ENOMEM, "no memory for a timer");
}

/* Gives what is wanted, in several goes if that is much; in one if there is no memory for a timer.
 */
static void pump(weir_ctx *ctx)
{
    decoder *self = weir_ctx_state(ctx);
    if (self->is_running)
        return;
    self->is_running = true;
    do {
        for (int i = 0; (i < MOST_AT_ONCE || self->is_closing) && can_go_on(ctx, self); i++)
            give_one(ctx, self);
    } while (can_go_on(ctx, self) && weir_ctx_schedule(ctx, &self->again, 0) < 0);
    self->is_running = false;
    if (!has_rest(self))
        go_behind_the_rest(ctx, self);
    else
        look_later(ctx, self);
}

/* What was asked for is used up, unless that was after the last buffer. */
static void end_batch(decoder *self)
{
    if (self->has_given && !self->has_held_read)
        self->wanted = 0;
    self->has_given = false;
}

/* Outside of a batch it ends one itself. */
static void pump_and_complete(weir_ctx *ctx)
{
    decoder *self = weir_ctx_state(ctx);
    pump(ctx);
    if (!self->has_given || self->is_running || self->is_in_batch)
        return;
    end_batch(self);
    weir_ctx_fire_read_complete(ctx);
}

static void on_again(weir_ctx_timer *timer, weir_ctx *ctx)
{
    (void)timer;
    pump_and_complete(ctx);
}

/* Soon, but not inside the call that asked for it. */
static void pump_soon(weir_ctx *ctx, decoder *self)
{
    if (!self->is_running && weir_ctx_schedule(ctx, &self->again, 0) < 0)
        pump_and_complete(ctx);
}

/* Keeping -------------------------------------------------------------------------------------- */

/* Others may hold the buffer that the rest is in, so nothing is appended to it. */
static int make_own(decoder *self)
{
    weir_buf *own;
    if (self->is_rest_own)
        return 0;
    int code = weir_buf_copy(self->rest, weir_buf_reader(self->rest), weir_buf_readable(self->rest),
                             &own);
    if (code < 0)
        return code;
    weir_buf_release(self->rest);
    self->rest = own;
    self->is_rest_own = true;
    return 0;
}

/* Takes the reference. */
static int keep(decoder *self, weir_buf *buf)
{
    size_t length = weir_buf_readable(buf), waiting = weir_buf_readable(self->rest);
    if (self->rest == NULL) {
        self->rest = buf; /* which may be large already */
        return 0;
    }
    bool is_too_much = waiting > MOST_WAITING || length > MOST_WAITING - waiting;
    int code = is_too_much ? WEIR_ELIMIT : make_own(self);
    if (code == 0 && weir_buf_reader(self->rest) > weir_buf_readable(self->rest))
        weir_buf_discard_read(self->rest); /* a failure leaves it as it is */
    if (code == 0)
        code = weir_buf_write_buf(self->rest, buf, length);
    weir_buf_release(buf);
    return code;
}

/* The handler ---------------------------------------------------------------------------------- */

static void decoder_added(weir_ctx *ctx)
{
    decoder *self = weir_ctx_state(ctx);
    const weir_decompression *config = weir_ctx_arg(ctx);
    weir_error error;
    int code = weir_decompressor_new(&self->engine, config, &error);
    if (code < 0) {
        weir_ctx_fail(ctx, code, "%s", error.message);
        return;
    }
    self->chunk_bytes = config->chunk_bytes > 0 ? config->chunk_bytes : NORMAL_CHUNK;
    self->again.fire = on_again;
}

/* With auto_read on it goes on until that is off; then nobody has asked. */
static void ask(weir_ctx *ctx, decoder *self)
{
    self->wanted = has_option(ctx, WEIR_OPTION_AUTO_READ) ? 0 : self->chunk_bytes;
}

/* A batch comes because somebody asked for it, perhaps before this was here; but not to get more
 * when there is a rest. */
static void decoder_on_read(weir_ctx *ctx, weir_msg *msg)
{
    decoder *self = weir_ctx_state(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    if (buf == NULL) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    if (self->is_over) {
        weir_buf_release(buf);
        return;
    }
    if (!self->is_in_batch && !has_rest(self))
        ask(ctx, self);
    self->is_in_batch = true;
    int code = keep(self, buf);
    if (code < 0)
        refuse(ctx, self, code, "no room for the compressed bytes that wait");
    else
        pump(ctx);
}

/* Who asked for a read gets something, however many reads that takes. */
static void decoder_on_read_complete(weir_ctx *ctx)
{
    decoder *self = weir_ctx_state(ctx);
    bool is_answered = self->has_given || self->is_over || has_rest(self);
    self->is_in_batch = false;
    end_batch(self);
    if (!is_answered && !has_option(ctx, WEIR_OPTION_AUTO_READ))
        weir_ctx_read(ctx);
    weir_ctx_fire_read_complete(ctx);
}

static void decoder_read(weir_ctx *ctx)
{
    decoder *self = weir_ctx_state(ctx);
    ask(ctx, self);
    if (!self->is_running && !has_rest(self)) {
        weir_ctx_read(ctx);
        return;
    }
    self->has_held_read = true;
    pump_soon(ctx, self);
}

static void decoder_on_writability(weir_ctx *ctx)
{
    decoder *self = weir_ctx_state(ctx);
    if (can_go_on(ctx, self))
        pump_soon(ctx, self);
    weir_ctx_fire_writability(ctx);
}

/* Inside of a stream it has taken bytes, too, and decodes what follows by them. */
static size_t decoder_held(const weir_ctx *ctx)
{
    const decoder *self = weir_ctx_state(ctx);
    return !self->is_over && (has_rest(self) || weir_decompressor_finish(self->engine, NULL) != 0);
}

static void decoder_on_event(weir_ctx *ctx, weir_msg *event)
{
    decoder *self = weir_ctx_state(ctx);
    if (event != &weir_event_input_closed || self->is_over) {
        weir_ctx_fire_event(ctx, event);
        return;
    }
    self->has_ended = true; /* the event is a constant, so it can be made again */
    pump_and_complete(ctx);
}

static void decoder_on_inactive(weir_ctx *ctx)
{
    decoder *self = weir_ctx_state(ctx);
    self->is_closing = true;
    self->has_held_read = false;
    pump_and_complete(ctx);
    if (!self->is_running)
        finish(ctx, self);
    weir_ctx_fire_inactive(ctx);
}

/* What it has taken in goes on decompressed, the rest as it is. */
static void hand_on(weir_ctx *ctx, weir_decompressor *engine, weir_buf *rest)
{
    weir_compressed result;
    weir_buf *out;
    do {
        result = weir_decompressor_run(engine, NULL, &out, NULL);
        if (out != NULL)
            weir_ctx_fire_read(ctx, &out->msg);
    } while (result == WEIR_COMPRESSED_MORE);
    if (rest != NULL)
        weir_ctx_fire_read(ctx, &rest->msg);
}

static void decoder_removed(weir_ctx *ctx)
{
    decoder *self = weir_ctx_state(ctx), left = *self;
    self->engine = NULL;
    self->rest = NULL;
    self->is_over = true;
    self->has_more = self->has_ended = self->has_held_read = false;
    if (!left.is_over && has_rest(&left) && weir_channel_is_open(weir_ctx_channel(ctx))) {
        hand_on(ctx, left.engine, left.rest);
        self->has_given |= !left.is_in_batch;
        left.rest = NULL;
    }
    drop_rest(&left);
    weir_decompressor_free(left.engine);
    if (!left.is_running && !left.is_in_batch && self->has_given)
        weir_ctx_fire_read_complete(ctx);
    if (left.has_held_read)
        weir_ctx_read(ctx);
    if (left.has_ended)
        weir_ctx_fire_event(ctx, &weir_event_input_closed);
}

const weir_handler_type weir_compression_decoder = {
    .name = "decompression",
    .state_size = sizeof(decoder),
    .arg_size = sizeof(weir_decompression),
    .added = decoder_added,
    .removed = decoder_removed,
    .held_reads = decoder_held,
    .on_read = decoder_on_read,
    .on_read_complete = decoder_on_read_complete,
    .on_event = decoder_on_event,
    .on_writability = decoder_on_writability,
    .on_inactive = decoder_on_inactive,
    .read = decoder_read,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
