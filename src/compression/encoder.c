/* SPDX-License-Identifier: MIT */
/* The handler that compresses what is written. */
#include <weir/channel.h>
#include <weir/compression.h>

#include <errno.h>

typedef struct encoder {
    weir_compressor *engine;
    weir_promise *joint; /* of the writes since the last flush: theirs follow it. NULL: none has one
                          */
    bool is_begun;       /* something was written */
    bool has_unflushed;  /* bytes that may not be out */
    bool is_ended;       /* the end of the stream was written */
    bool has_failed;     /* it cannot be written */
} encoder;

static void end_joint(encoder *self, int code)
{
    weir_promise *joint = self->joint;
    self->joint = NULL;
    if (joint != NULL)
        weir_promise_set(joint, code);
    weir_promise_release(joint);
}

/* Bytes are missing, so there will be no more. */
static void fail(weir_ctx *ctx, encoder *self, int code, const char *message)
{
    self->has_failed = true;
    end_joint(self, code);
    weir_ctx_close(ctx, NULL); /* first: no handler may answer the error with more bytes */
    weir_ctx_fail(ctx, code, "%s", message);
}

/* Passing on ----------------------------------------------------------------------------------- */

/* The last message carries the promise; without one there is none to carry it, but those before it
 * have gone already, so an empty one does. Nothing that matters happens behind the write: whoever
 * gets it may write, close the channel, or remove this. */
static void pass_on(weir_ctx *ctx, encoder *self, weir_buf *last, bool has_all)
{
    weir_promise *joint = has_all ? self->joint : NULL;
    if (last == NULL && joint == NULL)
        return;
    if (last == NULL && (last = weir_buf_new(0)) == NULL) {
        fail(ctx, self, -ENOMEM, "no memory for a write");
        return;
    }
    if (has_all)
        self->joint = NULL;
    weir_ctx_write_piece(ctx, &last->msg, joint);
    if (has_all)
        weir_promise_release(joint);
}

/* Takes the reference to `out`. */
static int gather(weir_buf **all, weir_buf *out)
{
    weir_buf *first = *all;
    if (first == NULL) {
        *all = out;
        return 0;
    }
    int code = 0;
    if (!weir_buf_is_composite(first)) {
        weir_buf *composite = weir_buf_new_composite();
        code = composite != NULL ? weir_buf_composite_add(composite, first) : -ENOMEM;
        if (composite != NULL)
            *all = composite;
    }
    if (code == 0)
        return weir_buf_composite_add(*all, out);
    weir_buf_release(out);
    return code;
}

/* All that comes of it goes on as one message, when the compressor has come to rest. */
static void compress(weir_ctx *ctx, encoder *self, weir_buf *in, weir_compress how)
{
    weir_error error;
    weir_buf *all = NULL, *out;
    weir_compressed result;
    do {
        result = weir_compressor_run(self->engine, in, how, &out, &error);
        int code = out != NULL ? gather(&all, out) : 0;
        if (code < 0) {
            weir_error_set(&error, code, "compressor", "no memory for what was compressed");
            result = WEIR_COMPRESSED_REFUSED;
        }
    } while (result == WEIR_COMPRESSED_MORE);
    if (result == WEIR_COMPRESSED_DONE) {
        pass_on(ctx, self, all, how != WEIR_COMPRESS_SOME);
        return;
    }
    if (all != NULL)
        weir_buf_release(all);
    fail(ctx, self, error.code, error.message);
}

/* Its bytes may leave the compressor with any write or flush that follows: it is done when they
 * have all gone. */
static int join(weir_ctx *ctx, encoder *self, weir_promise *promise)
{
    if (promise == NULL)
        return 0;
    if (!weir_promise_set_uncancellable(promise))
        return -ECANCELED;
    if (self->joint == NULL)
        self->joint = weir_channel_promise(weir_ctx_channel(ctx));
    return self->joint != NULL ? weir_promise_follow(promise, weir_promise_future(self->joint))
                               : -ENOMEM;
}

/* The end of the stream. Whether it gets there nobody asks, so it has a promise of its own if there
 * is no other: otherwise a peer that has gone would be an error. */
static void finish(weir_ctx *ctx, encoder *self)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    if (self->has_failed || !weir_channel_is_active(channel))
        return;
    if (!self->is_ended) {
        self->is_ended = true;
        self->has_unflushed = false;
        if (self->joint == NULL)
            self->joint = weir_channel_promise(channel);
        compress(ctx, self, NULL, WEIR_COMPRESS_END);
    }
    weir_ctx_flush(ctx);
}

/* The handler ---------------------------------------------------------------------------------- */

static void encoder_added(weir_ctx *ctx)
{
    encoder *self = weir_ctx_state(ctx);
    weir_error error;
    int code = weir_compressor_new(&self->engine, weir_ctx_arg(ctx), &error);
    if (code < 0)
        weir_ctx_fail(ctx, code, "%s", error.message);
}

static void encoder_removed(weir_ctx *ctx)
{
    encoder *self = weir_ctx_state(ctx);
    if (self->is_begun && self->engine != NULL)
        finish(ctx, self);
    end_joint(self, weir_channel_is_open(weir_ctx_channel(ctx)) ? -ECANCELED : WEIR_ECLOSED);
    weir_compressor_free(self->engine);
    self->engine = NULL;
    self->has_failed = true;
}

static int check_write(weir_ctx *ctx, const encoder *self, const weir_buf *buf)
{
    if (self->has_failed || !weir_channel_is_open(weir_ctx_channel(ctx)))
        return WEIR_ECLOSED;
    if (self->is_ended)
        return -EPIPE;
    return buf != NULL ? 0 : -EOPNOTSUPP;
}

static void encoder_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    encoder *self = weir_ctx_state(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    int code = check_write(ctx, self, buf);
    if (code == 0)
        code = join(ctx, self, promise);
    if (code < 0) {
        weir_ctx_refuse_write(ctx, msg, promise, code);
        return;
    }
    if (weir_buf_readable(buf) > 0) {
        weir_buf view; /* others may hold the buffer, whose reader stays where it is */
        weir_buf_slice(buf, weir_buf_reader(buf), weir_buf_readable(buf), &view);
        self->is_begun = self->has_unflushed = true;
        compress(ctx, self, &view, WEIR_COMPRESS_SOME);
    }
    weir_buf_release(buf);
}

static void encoder_flush(weir_ctx *ctx)
{
    encoder *self = weir_ctx_state(ctx);
    bool has_unflushed = self->has_unflushed;
    self->has_unflushed = false;
    if (has_unflushed && !self->has_failed)
        compress(ctx, self, NULL, WEIR_COMPRESS_FLUSH);
    else if (!self->has_failed)
        pass_on(ctx, self, NULL, true);
    weir_ctx_flush(ctx);
}

static void encoder_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    finish(ctx, weir_ctx_state(ctx));
    weir_ctx_shutdown(ctx, promise);
}

static void encoder_close(weir_ctx *ctx, weir_promise *promise)
{
    finish(ctx, weir_ctx_state(ctx));
    weir_ctx_close(ctx, promise);
}

const weir_handler_type weir_compression_encoder = {
    .name = "compression",
    .state_size = sizeof(encoder),
    .arg_size = sizeof(weir_compression),
    .added = encoder_added,
    .removed = encoder_removed,
    .write = encoder_write,
    .flush = encoder_flush,
    .shutdown = encoder_shutdown,
    .close = encoder_close,
};
