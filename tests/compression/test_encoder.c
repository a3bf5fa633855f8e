/* SPDX-License-Identifier: MIT */
/* The handler that compresses: what is written, when it goes, and what its promises say. */
#include "compression/coding.h"
#include "exec/executors.h"

#include <weir/client.h>
#include <weir/file.h>
#include <weir/server.h>

#include <fcntl.h>
#include <stdatomic.h>

static weir_embedded *begin(const weir_compression *config)
{
    return codec_new(&weir_compression_encoder, config);
}

/* Writes without a flush. */
static weir_promise *put(weir_embedded *embedded, const void *from, size_t length)
{
    weir_promise *promise = weir_channel_promise(weir_embedded_channel(embedded));
    weir_channel_write(weir_embedded_channel(embedded), &weir_buf_from(from, length)->msg, promise);
    weir_embedded_run(embedded);
    return promise;
}

static int code_of(weir_promise *promise)
{
    return weir_future_code(weir_promise_future(promise));
}

static int end_of(weir_promise *promise)
{
    int code = code_of(promise);
    weir_promise_release(promise);
    return code;
}

/* All that went out. */
static void take_sent(weir_embedded *embedded, bytes *to)
{
    weir_msg *msg;
    while ((msg = weir_embedded_read_outbound(embedded)) != NULL)
        bytes_add(to, weir_buf_from_msg(msg));
}

static bool is_open(weir_embedded *embedded)
{
    return weir_channel_is_open(weir_embedded_channel(embedded));
}

/* Writing -------------------------------------------------------------------------------------- */

static void all_writes_make_one_stream(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        weir_compression config = { .format = format };
        weir_embedded *embedded = begin(&config);
        bytes from = words(300000), sent = bytes_new(0);
        for (size_t at = 0; at < from.length; at += 1000)
            weir_promise_release(put(embedded, from.at + at, 1000));
        assert_int_equal(weir_embedded_flush(embedded), 0);
        weir_channel_shutdown(weir_embedded_channel(embedded), NULL);
        weir_embedded_run(embedded);
        assert_true(weir_embedded_is_output_shut(embedded));
        take_sent(embedded, &sent);
        codec_end(embedded);
        outcome found = decompressed(format, &sent);
        assert_int_equal(found.code, 0);
        assert_true(sent.length < from.length / 2);
        assert_same_bytes(found.out, from);
        bytes_free(&sent);
    }
}

/* The other side can read all that was flushed, and each flush costs little. */
static void a_flush_carries_all_that_was_written(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        weir_compression config = { .format = format };
        weir_embedded *embedded = begin(&config);
        weir_decompressor *decompressor =
            decompressor_new((weir_decompression){ .format = format });
        for (int i = 0; i < 20; i++) {
            bytes sent = bytes_new(0);
            outcome found = { .out = bytes_new(0) };
            weir_promise *first = put(embedded, "one message, ", 13);
            weir_promise *second = put(embedded, "and another", 11);
            assert_int_equal(code_of(first), -EINPROGRESS);
            assert_int_equal(weir_embedded_flush(embedded), 0);
            assert_int_equal(end_of(first), 0);
            assert_int_equal(end_of(second), 0);
            take_sent(embedded, &sent);
            assert_true(sent.length < 60);
            decompress_piece(decompressor, sent.at, sent.length, &found);
            assert_same_bytes(found.out, bytes_of_text("one message, and another"));
            bytes_free(&sent);
        }
        weir_decompressor_free(decompressor);
        weir_embedded_free(embedded);
    }
}

static void a_flush_of_nothing_sends_nothing(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        weir_compression config = { .format = format };
        weir_embedded *embedded = begin(&config);
        for (int i = 0; i < 3; i++)
            assert_int_equal(weir_embedded_flush(embedded), 0);
        assert_int_equal(weir_embedded_outbound_count(embedded), 0);
        weir_promise_release(put(embedded, "x", 1));
        weir_embedded_flush(embedded);
        bytes sent = bytes_new(0);
        take_sent(embedded, &sent);
        weir_embedded_flush(embedded);
        assert_int_equal(weir_embedded_outbound_count(embedded), 0);
        bytes_free(&sent);
        weir_embedded_free(embedded);
    }
}

static void empty_writes_have_promises_too(void **state)
{
    (void)state;
    weir_compression config = { .format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = begin(&config);
    weir_promise *first = put(embedded, "", 0);
    assert_int_equal(code_of(first), -EINPROGRESS);
    weir_embedded_flush(embedded);
    assert_int_equal(end_of(first), 0);
    bytes sent = bytes_new(0);
    take_sent(embedded, &sent);
    assert_int_equal(sent.length, 0);
    bytes_free(&sent);
    weir_embedded_free(embedded);
}

static void composites_and_views_are_written_as_they_are(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        weir_compression config = { .format = format };
        weir_embedded *embedded = begin(&config);
        bytes from = words(1000), sent = bytes_new(0);
        weir_buf *whole = weir_buf_from(from.at, from.length), *slice;
        weir_buf *composite = weir_buf_new_composite();
        for (size_t at = 0; at < 500; at += 50) {
            assert_int_equal(weir_buf_retained_slice(whole, at, 50, &slice), 0);
            assert_int_equal(weir_buf_composite_add(composite, slice), 0);
        }
        weir_buf_retain(composite);
        weir_embedded_write_outbound(embedded, &composite->msg);
        assert_int_equal(weir_buf_readable(composite),
                         500); /* whoever holds it may write it again */
        weir_buf_release(composite);
        assert_int_equal(weir_buf_set_reader(whole, 500), 0);
        weir_embedded_write_outbound(embedded, &whole->msg);
        weir_embedded_close(embedded);
        take_sent(embedded, &sent);
        codec_end(embedded);
        outcome found = decompressed(format, &sent);
        assert_int_equal(found.code, 0);
        assert_same_bytes(found.out, from);
        bytes_free(&sent);
    }
}

static void what_is_no_buffer_is_refused(void **state)
{
    (void)state;
    weir_compression config = { .format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = begin(&config);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    weir_promise *promise = weir_channel_promise(weir_embedded_channel(embedded));
    weir_channel_write(weir_embedded_channel(embedded), &weir_file_region_new(fd, 0, 0)->msg,
                       promise);
    weir_embedded_run(embedded);
    assert_int_equal(end_of(promise), -EOPNOTSUPP);
    assert_true(is_open(embedded));
    weir_embedded_free(embedded);
}

static void what_makes_no_sense_cannot_be_added(void **state)
{
    (void)state;
    codec_is_refused(&weir_compression_encoder, NULL);
    codec_is_refused(&weir_compression_encoder, &(weir_compression){ .format = 0 });
    codec_is_refused(&weir_compression_encoder,
                     &(weir_compression){ .format = WEIR_COMPRESSION_GZIP, .level = 10 });
    codec_is_refused(&weir_compression_encoder,
                     &(weir_compression){ .format = WEIR_COMPRESSION_ZLIB, .window_bits = 1 });
}

/* Promises ------------------------------------------------------------------------------------- */

typedef struct story {
    char text[16];
    size_t count;
} story;

typedef struct told {
    weir_listener listener;
    story *story;
    char name;
} told;

static void tell(weir_listener *listener, weir_future *future)
{
    told *self = WEIR_CONTAINER(listener, told, listener);
    self->story->text[self->story->count++] = weir_future_code(future) == 0 ? self->name : '!';
}

/* Not when a part of the bytes has gone, and in the order of the writes. */
static void promises_wait_for_the_last_byte(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        weir_compression config = { .format = format };
        weir_embedded *embedded = begin(&config);
        enum { MUCH = 500000 };
        bytes from = random_bytes(2 * MUCH), sent = bytes_new(0);
        story heard = { .count = 0 };
        told tellers[3];
        weir_promise *promises[3];
        weir_embedded_accept(embedded, 0);
        for (int i = 0; i < 3; i++) {
            promises[i] = put(embedded, from.at + (i == 2 ? MUCH : 0), i == 1 ? 10 : MUCH);
            tellers[i] = (told){ { .done = tell }, &heard, "abc"[i] };
            weir_future_listen(weir_promise_future(promises[i]), &tellers[i].listener);
        }
        weir_embedded_flush(embedded);
        weir_promise *later = put(embedded, "later", 5);
        while (weir_embedded_accept(embedded, 1) == 0 &&
               weir_embedded_outbound_count(embedded) > 0) {
            take_sent(embedded, &sent);
            for (int i = 0; i < 3; i++)
                assert_int_equal(code_of(promises[i]) == 0, heard.count == 3);
            if (heard.count == 3)
                break;
        }
        assert_string_equal(heard.text, "abc");
        assert_true(sent.length >= from.length);
        assert_int_equal(code_of(later), -EINPROGRESS);
        for (int i = 0; i < 3; i++)
            assert_int_equal(end_of(promises[i]), 0);
        weir_embedded_accept(embedded, SIZE_MAX);
        weir_embedded_flush(embedded);
        assert_int_equal(end_of(later), 0);
        bytes_free(&from);
        bytes_free(&sent);
        weir_embedded_free(embedded);
    }
}

static void promises_fail_with_the_sending(void **state)
{
    (void)state;
    weir_compression config = { .format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = begin(&config);
    weir_promise *first = put(embedded, "first", 5), *second = put(embedded, "second", 6);
    weir_embedded_fail_sends(embedded, -ECONNRESET);
    weir_embedded_flush(embedded);
    assert_int_equal(end_of(first), -ECONNRESET);
    assert_int_equal(end_of(second), -ECONNRESET);
    assert_false(is_open(embedded));
    weir_embedded_free(embedded);
}

static void promises_fail_when_the_peer_closes_it(void **state)
{
    (void)state;
    weir_compression config = { .format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = begin(&config);
    weir_embedded_accept(embedded, 0);
    weir_promise *flushed = put(embedded, "flushed", 7);
    weir_embedded_flush(embedded);
    weir_promise *waiting = put(embedded, "waiting", 7);
    weir_embedded_end_inbound(embedded, -ECONNRESET);
    assert_int_equal(end_of(flushed), WEIR_ECLOSED);
    assert_int_equal(end_of(waiting), WEIR_ECLOSED);
    weir_promise *late = put(embedded, "late", 4);
    assert_int_equal(end_of(late), WEIR_ECLOSED);
    weir_embedded_free(embedded);
}

static void a_cancelled_write_is_not_written(void **state)
{
    (void)state;
    weir_compression config = { .format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = begin(&config);
    weir_promise *before = weir_channel_promise(weir_embedded_channel(embedded));
    assert_int_equal(weir_future_cancel(weir_promise_future(before)), 0);
    weir_channel_write(weir_embedded_channel(embedded), &weir_buf_from("never", 5)->msg, before);
    weir_promise *written = put(embedded, "written", 7);
    assert_int_equal(weir_future_cancel(weir_promise_future(written)), -EBUSY);
    weir_embedded_close(embedded);
    assert_int_equal(end_of(before), -ECANCELED);
    assert_int_equal(end_of(written), 0);
    bytes sent = bytes_new(0);
    take_sent(embedded, &sent);
    outcome found = decompressed(WEIR_COMPRESSION_GZIP, &sent);
    assert_same_bytes(found.out, bytes_of_text("written"));
    bytes_free(&sent);
    codec_end(embedded);
}

/* Ends ----------------------------------------------------------------------------------------- */

typedef enum ending { CLOSE, SHUTDOWN, FINISH, REMOVE, PEER_ENDS, ENDINGS } ending;

static void end_by(weir_embedded *embedded, ending how)
{
    weir_channel *channel = weir_embedded_channel(embedded);
    if (how == CLOSE)
        weir_channel_close(channel, NULL);
    else if (how == SHUTDOWN)
        weir_channel_shutdown(channel, NULL);
    else if (how == FINISH)
        weir_channel_finish(channel, NULL);
    else if (how == REMOVE)
        assert_int_equal(weir_pipeline_remove(weir_embedded_pipeline(embedded), "codec", NULL), 0);
    else
        weir_embedded_end_inbound(embedded, 0);
    weir_embedded_run(embedded);
}

/* However it ends, what was written is whole; also what was not flushed. */
static void every_end_writes_the_end_of_the_stream(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        for (ending how = CLOSE; how < ENDINGS; how++) {
            weir_compression config = { .format = format };
            weir_embedded *embedded = begin(&config);
            weir_promise *flushed = put(embedded, "flushed, ", 9);
            weir_embedded_flush(embedded);
            weir_promise *waiting = put(embedded, "not flushed", 11);
            end_by(embedded, how);
            assert_int_equal(end_of(flushed), 0);
            assert_int_equal(end_of(waiting), 0);
            bytes sent = bytes_new(0);
            take_sent(embedded, &sent);
            outcome found = decompressed(format, &sent);
            assert_int_equal(found.code, 0);
            assert_same_bytes(found.out, bytes_of_text("flushed, not flushed"));
            bytes_free(&sent);
            codec_end(embedded);
        }
    }
}

static void an_empty_stream_has_an_end_too(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        for (ending how = CLOSE; how < REMOVE; how++) {
            weir_compression config = { .format = format };
            weir_embedded *embedded = begin(&config);
            end_by(embedded, how);
            bytes sent = bytes_new(0);
            take_sent(embedded, &sent);
            assert_true(sent.length > 0);
            outcome found = decompressed(format, &sent);
            assert_int_equal(found.code, 0);
            assert_int_equal(found.out.length, 0);
            bytes_free(&found.out);
            bytes_free(&sent);
            codec_end(embedded);
        }
    }
}

static void the_end_is_written_once(void **state)
{
    (void)state;
    weir_compression config = { .format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = begin(&config);
    weir_promise_release(put(embedded, "x", 1));
    end_by(embedded, SHUTDOWN);
    weir_promise *late = put(embedded, "late", 4);
    assert_int_equal(end_of(late), -EPIPE);
    end_by(embedded, SHUTDOWN);
    end_by(embedded, REMOVE);
    end_by(embedded, CLOSE);
    bytes sent = bytes_new(0);
    take_sent(embedded, &sent);
    outcome found = decompressed(WEIR_COMPRESSION_GZIP, &sent);
    assert_int_equal(found.code, 0);
    assert_same_bytes(found.out, bytes_of_text("x"));
    assert_int_equal(sent.length, 10 + 3 + 8); /* one member */
    bytes_free(&sent);
    codec_end(embedded);
}

/* That it does not get there is no error: the peer has gone, and that is known. */
static void an_end_that_cannot_be_sent_is_no_error(void **state)
{
    (void)state;
    weir_compression config = { .format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = begin(&config);
    weir_embedded_fail_sends(embedded, -EPIPE);
    weir_embedded_close(embedded);
    assert_int_equal(weir_embedded_check(embedded), 0);
    codec_end(embedded);
}

static void before_it_is_connected_there_is_nothing_to_end(void **state)
{
    (void)state;
    weir_compression config = { .format = WEIR_COMPRESSION_GZIP };
    codec added = { &weir_compression_encoder, &config };
    weir_embedded *embedded;
    weir_embedded_config unconnected = { .init = codec_add, .arg = &added, .is_unconnected = true };
    assert_int_equal(weir_embedded_new(&embedded, &unconnected, NULL), 0);
    weir_promise *promise = put(embedded, "x", 1);
    weir_embedded_close(embedded);
    assert_int_equal(end_of(promise), WEIR_ECLOSED);
    codec_end(embedded);
}

/* Handlers between it and the head may do anything inside a write of its: close the channel, take
 * it out, or write themselves. What was written is whole, and in order. */
typedef enum meddling { M_CLOSE, M_SHUTDOWN, M_REMOVE, M_WRITE, MEDDLINGS } meddling;

typedef struct meddler {
    meddling how;
    size_t count, at; /* the write at which it meddles */
    weir_promise *more;
} meddler;

static void meddle(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    meddler *self = weir_ctx_arg(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    bool is_now = ++self->count == self->at;
    weir_ctx_write(ctx, msg, promise);
    if (!is_now)
        return;
    if (self->how == M_CLOSE)
        weir_channel_close(channel, NULL);
    else if (self->how == M_SHUTDOWN)
        weir_channel_shutdown(channel, NULL);
    else if (self->how == M_REMOVE)
        weir_pipeline_remove(weir_ctx_pipeline(ctx), "codec", NULL);
    else
        weir_channel_write(channel, &weir_buf_from("more", 4)->msg,
                           self->more = weir_channel_promise(channel));
}

static const weir_handler_type meddler_type = { .name = "meddler", .write = meddle };

static void others_may_meddle_with_its_writes(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        for (unsigned i = 0; i < MEDDLINGS * 4; i++) {
            weir_compression config = { .format = format };
            weir_embedded *embedded = begin(&config);
            meddler self = { .how = i % MEDDLINGS, .at = 1 + i / MEDDLINGS };
            bytes from = random_bytes(300000), sent = bytes_new(0);
            assert_int_equal(weir_pipeline_add_first(weir_embedded_pipeline(embedded), "meddler",
                                                     &meddler_type, &self),
                             0);
            weir_promise *first = put(embedded, from.at, from.length);
            weir_embedded_flush(embedded);
            assert_int_equal(end_of(first), 0);
            if (self.how == M_REMOVE)
                weir_pipeline_remove(weir_embedded_pipeline(embedded), "codec", NULL);
            weir_embedded_close(embedded);
            int code = self.more != NULL ? end_of(self.more) : -EPIPE;
            if (code == 0)
                bytes_add(&from, weir_buf_from("more", 4));
            else
                assert_int_equal(code, -EPIPE); /* inside the write of the end */
            take_sent(embedded, &sent);
            codec_end(embedded);
            outcome found = decompressed(format, &sent);
            assert_int_equal(found.code, 0);
            assert_same_bytes(found.out, from);
            bytes_free(&sent);
        }
    }
}

/* Faults --------------------------------------------------------------------------------------- */

/* What arrives is what was promised: all of it, or less and somebody is told. */
static void without_memory_no_promise_lies(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(150000);
        for (unsigned nth = 1, calls = nth; calls >= nth; nth++) {
            weir_compression config = { .format = format };
            weir_embedded *embedded = begin(&config);
            weir_channel *channel = weir_embedded_channel(embedded);
            weir_promise *promises[4];
            weir_buf *bufs[4];
            for (int i = 0; i < 4; i++) {
                promises[i] = i == 1 ? NULL : weir_channel_promise(channel);
                bufs[i] = weir_buf_from(from.at + (size_t)i * 30000, 30000);
            }
            harness_fail_nth("alloc", nth, -ENOMEM);
            for (int i = 0; i < 4; i++) {
                weir_channel_write(channel, &bufs[i]->msg, promises[i]);
                if (i % 2 == 1)
                    weir_channel_flush(channel);
                weir_embedded_run(embedded);
            }
            weir_channel_close(channel, NULL);
            weir_embedded_run(embedded);
            calls = harness_fail_end();
            bytes sent = bytes_new(0), promised = bytes_new(0);
            take_sent(embedded, &sent);
            outcome found = decompressed(format, &sent);
            bool is_lost = false;
            for (int i = 0; i < 4; i++) {
                int code = i == 1 ? -EINPROGRESS : end_of(promises[i]);
                if (i != 1)
                    assert_int_not_equal(code, -EINPROGRESS);
                is_lost |= code < 0 && i != 1;
                if (i == 1 || code == 0)
                    bytes_add(&promised, weir_buf_from(from.at + (size_t)i * 30000, 30000));
            }
            if (!weir_embedded_take_error(embedded, NULL) && !is_lost) {
                assert_int_equal(found.out.length, 120000);
                assert_memory_equal(found.out.at, from.at, 120000);
            } else if (found.code == 0) {
                /* A write was refused, and told so; the others are whole. */
                assert_true(found.out.length <= promised.length || promised.length == 0);
            }
            while (weir_embedded_take_error(embedded, NULL))
                ;
            bytes_free(&found.out);
            bytes_free(&sent);
            bytes_free(&promised);
            weir_embedded_free(embedded);
        }
        bytes_free(&from);
    }
}

/* Over sockets --------------------------------------------------------------------------------- */

enum { SENT = 3000000 };

typedef struct transfer {
    weir_compression compression;
    weir_decompression decompression;
    _Atomic(size_t) received;
    _Atomic(bool) is_wrong, has_ended;
    bool is_manual;
    bool is_noise;         /* what is sent, all of it at once */
    weir_group *elsewhere; /* where the handlers run; NULL: on the loop */
} transfer;

static uint8_t byte_at(const transfer *self, size_t at)
{
    if (self->is_noise)
        return (uint8_t)((at + 1) * 0x9e3779b97f4a7c15u >> 37);
    return (uint8_t)((at >> 3) * 7 + (at >> 11));
}

static void receive(weir_ctx *ctx, weir_msg *msg)
{
    transfer *self = weir_ctx_arg(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    uint8_t byte;
    while (weir_buf_read_u8(buf, &byte) == 0) {
        if (byte != byte_at(self, self->received))
            self->is_wrong = true;
        self->received++;
    }
    weir_buf_release(buf);
}

static void receive_more(weir_ctx *ctx)
{
    const transfer *self = weir_ctx_arg(ctx);
    if (self->is_manual)
        weir_ctx_read(ctx);
}

static void receive_error(weir_ctx *ctx, const weir_error *error)
{
    transfer *self = weir_ctx_arg(ctx);
    (void)error;
    self->is_wrong = true;
    weir_ctx_close(ctx, NULL);
}

static void receive_end(weir_ctx *ctx)
{
    transfer *self = weir_ctx_arg(ctx);
    self->has_ended = true;
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type receiver = {
    .name = "receiver",
    .on_active = receive_more,
    .on_read = receive,
    .on_read_complete = receive_more,
    .on_inactive = receive_end,
    .on_error = receive_error,
};

static int init_server_child(weir_channel *channel, void *arg)
{
    transfer *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    if (self->is_manual)
        weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL);
    weir_handler_config decoder = { .type = &weir_compression_decoder,
                                    .arg = &self->decompression,
                                    .place = WEIR_PLACE_LAST,
                                    .group = self->elsewhere };
    int code = weir_pipeline_add(pipeline, &decoder, NULL);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, NULL, &receiver, self);
}

static int init_client(weir_channel *channel, void *arg)
{
    transfer *self = arg;
    weir_handler_config encoder = { .type = &weir_compression_encoder,
                                    .arg = &self->compression,
                                    .place = WEIR_PLACE_LAST,
                                    .group = self->elsewhere };
    return weir_pipeline_add(weir_channel_pipeline(channel), &encoder, NULL);
}

static void send_all(const transfer *self, weir_channel *channel)
{
    for (size_t at = 0; at < SENT;) {
        weir_buf *buf = weir_buf_new(50000);
        for (size_t i = 0; i < 50000 && at < SENT; i++, at++)
            weir_buf_write_u8(buf, byte_at(self, at));
        if (self->is_noise) {
            weir_channel_write_and_flush(channel, &buf->msg, NULL);
            continue;
        }
        weir_promise *promise = weir_promise_new(NULL);
        weir_channel_write_and_flush(channel, &buf->msg, promise);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
        weir_promise_release(promise);
    }
}

static void transfer_over_sockets(transfer *self)
{
    weir_group *group;
    weir_server *server;
    weir_address address;
    weir_channel *channel;
    weir_error error;
    char text[64];
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 2 }, &error), 0);
    weir_server_config serving = {
        .boss = group, .workers = group, .init_child = init_server_child, .arg = self
    };
    assert_int_equal(weir_server_listen(&server, &serving, "127.0.0.1:0", &error), 0);
    assert_int_equal(weir_server_address(server, &address), 0);
    weir_address_text(&address, text, sizeof text);
    weir_client_config calling = { .group = group, .init = init_client, .arg = self };
    assert_int_equal(weir_client_connect(&channel, &calling, text, &error), 0);
    send_all(self, channel);
    weir_channel_finish(channel, NULL);
    weir_future_await(weir_channel_closed(channel));
    weir_channel_release(channel);
    WAIT_FOR(self->has_ended);
    weir_server_release(server);
    weir_group_shutdown(group, 0, WEIR_SECONDS(5));
    weir_group_free(group);
    assert_false(self->is_wrong);
    assert_true(self->has_ended);
    assert_int_equal(self->received, SENT);
}

static void it_works_over_sockets(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        for (int is_manual = 0; is_manual < 2; is_manual++) {
            transfer self = { .compression.format = format,
                              .decompression = { .format = format, .max_ratio = WEIR_OFF },
                              .is_manual = is_manual };
            transfer_over_sockets(&self);
        }
    }
}

static void it_works_over_sockets_on_executors_of_its_own(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        transfer self = { .compression.format = format,
                          .decompression = { .format = format, .max_ratio = WEIR_OFF },
                          .elsewhere = new_group(&(weir_group_config){ .loops = 1 }) };
        transfer_over_sockets(&self);
        weir_group_shutdown(self.elsewhere, 0, WEIR_SECONDS(5));
        weir_group_free(self.elsewhere);
    }
}

/* The connection is faster than what comes of it is taken; then it is not read, and what waits
 * keeps within its limit. */
static void it_reads_no_faster_than_it_gives(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        transfer self = {
            .compression.format = format,
            .decompression = { .format = format, .max_ratio = WEIR_OFF, .chunk_bytes = 512 },
            .is_noise = true
        };
        transfer_over_sockets(&self);
    }
}

/* What comes is sent back as large as it became, by handlers on the loop or elsewhere. More than a
 * channel takes at once: it waits for the other side. */
typedef struct swelling {
    weir_decompression decompression;
    weir_group *elsewhere;
    _Atomic(size_t) received;
    _Atomic(int) code;
} swelling;

enum { SWOLLEN = 40 * 1024 * 1024 };

static void send_back(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write_and_flush(ctx, msg, NULL);
}

static void note_error(weir_ctx *ctx, const weir_error *error)
{
    swelling *self = weir_ctx_arg(ctx);
    self->code = error->code;
    weir_ctx_close(ctx, NULL);
}

static void count_bytes(weir_ctx *ctx, weir_msg *msg)
{
    swelling *self = weir_ctx_arg(ctx);
    self->received += weir_msg_size(msg);
    weir_msg_release(msg);
}

static const weir_handler_type sender_back = { .name = "back",
                                               .on_read = send_back,
                                               .on_error = note_error };
static const weir_handler_type counter = { .name = "counter",
                                           .on_read = count_bytes,
                                           .on_error = note_error };

static int init_swelling_child(weir_channel *channel, void *arg)
{
    swelling *self = arg;
    weir_handler_config decoder = { .type = &weir_compression_decoder,
                                    .arg = &self->decompression,
                                    .place = WEIR_PLACE_LAST,
                                    .group = self->elsewhere };
    weir_handler_config back = {
        .type = &sender_back, .arg = self, .place = WEIR_PLACE_LAST, .group = self->elsewhere
    };
    int code = weir_pipeline_add(weir_channel_pipeline(channel), &decoder, NULL);
    return code < 0 ? code : weir_pipeline_add(weir_channel_pipeline(channel), &back, NULL);
}

static int init_counter(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &counter, arg);
}

static void swell(swelling *self, const bytes *small)
{
    weir_group *group;
    weir_server *server;
    weir_address address;
    weir_channel *channel;
    weir_error error;
    char text[64];
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 2 }, &error), 0);
    weir_server_config serving = {
        .boss = group, .workers = group, .init_child = init_swelling_child, .arg = self
    };
    assert_int_equal(weir_server_listen(&server, &serving, "127.0.0.1:0", &error), 0);
    assert_int_equal(weir_server_address(server, &address), 0);
    weir_address_text(&address, text, sizeof text);
    weir_client_config calling = { .group = group, .init = init_counter, .arg = self };
    assert_int_equal(weir_client_connect(&channel, &calling, text, &error), 0);
    weir_channel_write_and_flush(channel, &weir_buf_from(small->at, small->length)->msg, NULL);
    WAIT_FOR(self->received >= SWOLLEN || self->code < 0);
    weir_channel_close(channel, NULL);
    weir_future_await(weir_channel_closed(channel));
    weir_channel_release(channel);
    weir_server_release(server);
    weir_group_shutdown(group, 0, WEIR_SECONDS(5));
    weir_group_free(group);
    assert_int_equal(self->received, SWOLLEN);
}

static void what_swells_waits_for_the_other_side(void **state)
{
    (void)state;
    bytes small = bomb(WEIR_COMPRESSION_GZIP, SWOLLEN);
    for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
        swelling self = { .decompression = { .format = WEIR_COMPRESSION_GZIP,
                                             .max_ratio = WEIR_OFF } };
        if (is_elsewhere)
            self.elsewhere = new_group(&(weir_group_config){ .loops = 1 });
        swell(&self, &small);
        if (is_elsewhere) {
            weir_group_shutdown(self.elsewhere, 0, WEIR_SECONDS(5));
            weir_group_free(self.elsewhere);
        }
    }
    bytes_free(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(all_writes_make_one_stream),
        weir_case(a_flush_carries_all_that_was_written),
        weir_case(a_flush_of_nothing_sends_nothing),
        weir_case(empty_writes_have_promises_too),
        weir_case(composites_and_views_are_written_as_they_are),
        weir_case(what_is_no_buffer_is_refused),
        weir_case(what_makes_no_sense_cannot_be_added),
        weir_case(promises_wait_for_the_last_byte),
        weir_case(promises_fail_with_the_sending),
        weir_case(promises_fail_when_the_peer_closes_it),
        weir_case(a_cancelled_write_is_not_written),
        weir_case(every_end_writes_the_end_of_the_stream),
        weir_case(an_empty_stream_has_an_end_too),
        weir_case(the_end_is_written_once),
        weir_case(an_end_that_cannot_be_sent_is_no_error),
        weir_case(before_it_is_connected_there_is_nothing_to_end),
        weir_case(others_may_meddle_with_its_writes),
        weir_case(without_memory_no_promise_lies),
        weir_case(it_works_over_sockets),
        weir_case(it_works_over_sockets_on_executors_of_its_own),
        weir_case(it_reads_no_faster_than_it_gives),
        weir_case(what_swells_waits_for_the_other_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
