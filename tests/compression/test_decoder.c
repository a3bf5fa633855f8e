/* SPDX-License-Identifier: MIT */
/* The handler that decompresses: as fast as it is asked to, and no further than it may. */
#include "compression/coding.h"

static weir_hold hold;

/* What the handler behind it gets, and does about it. */
typedef struct reader {
    weir_decompression config;
    bytes got;
    size_t buffers, completes, events, inactives;
    size_t largest;
    size_t stops_after; /* so many buffers it switches auto_read off; 0: never */
    size_t closes_after, removes_after;
    bool reads_inside; /* asks for the next inside on_read */
    unsigned depth, deepest;
    bool had_all_at_event; /* when input_closed came */
    size_t all;
} reader;

static void reader_on_read(weir_ctx *ctx, weir_msg *msg)
{
    reader *self = weir_ctx_arg(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    self->buffers++;
    if (weir_buf_readable(buf) > self->largest)
        self->largest = weir_buf_readable(buf);
    bytes_add(&self->got, buf);
    if (++self->depth > self->deepest)
        self->deepest = self->depth;
    if (self->buffers == self->stops_after)
        weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL);
    if (self->buffers == self->closes_after)
        weir_ctx_close(ctx, NULL);
    if (self->buffers == self->removes_after)
        assert_int_equal(weir_pipeline_remove(weir_ctx_pipeline(ctx), "codec", NULL), 0);
    if (self->reads_inside)
        weir_ctx_read(ctx);
    self->depth--;
}

static void reader_on_read_complete(weir_ctx *ctx)
{
    reader *self = weir_ctx_arg(ctx);
    self->completes++;
    weir_ctx_fire_read_complete(ctx);
}

static void reader_on_event(weir_ctx *ctx, weir_msg *event)
{
    reader *self = weir_ctx_arg(ctx);
    self->events++;
    self->had_all_at_event = self->got.length == self->all;
    weir_ctx_fire_event(ctx, event);
}

static void reader_on_inactive(weir_ctx *ctx)
{
    reader *self = weir_ctx_arg(ctx);
    self->inactives++;
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type reader_type = {
    .name = "reader",
    .on_read = reader_on_read,
    .on_read_complete = reader_on_read_complete,
    .on_event = reader_on_event,
    .on_inactive = reader_on_inactive,
};

static int add_both(weir_channel *channel, void *arg)
{
    reader *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "codec", &weir_compression_decoder, &self->config);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "reader", &reader_type, self);
}

static weir_embedded *begin(reader *self)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_both, .arg = self };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void set(weir_embedded *embedded, weir_option option, int64_t value)
{
    assert_int_equal(weir_channel_set_option(weir_embedded_channel(embedded), option, value, NULL),
                     0);
    weir_embedded_run(embedded);
}

static void ask(weir_embedded *embedded)
{
    weir_channel_read(weir_embedded_channel(embedded));
    weir_embedded_run(embedded);
}

static bool is_open(weir_embedded *embedded)
{
    return weir_channel_is_open(weir_embedded_channel(embedded));
}

/* Bytes in, bytes out -------------------------------------------------------------------------- */

static void every_format_is_decoded(void **state)
{
    (void)state;
    static const size_t pieces[] = { 1, 100, SIZE_MAX / 2 };
    FOR_EACH_FORMAT(format)
    {
        for (size_t i = 0; i < 3; i++) {
            bytes from = words(pieces[i] == 1 ? 5000 : 400000), small = compressed(format, &from);
            reader self = { .config.format = format };
            weir_embedded *embedded = begin(&self);
            for (size_t at = 0, piece; at < small.length; at += piece) {
                piece = small.length - at < pieces[i] ? small.length - at : pieces[i];
                assert_int_equal(weir_embedded_write_inbound_bytes(embedded, small.at + at, piece),
                                 0);
            }
            assert_true(weir_embedded_is_reading(embedded));
            assert_true(self.largest <= 64 * KIB);
            assert_int_equal(weir_embedded_end_inbound(embedded, 0), 0);
            assert_false(is_open(embedded));
            codec_end(embedded);
            bytes_free(&small);
            assert_same_bytes(self.got, from);
        }
    }
}

/* However the bytes come: the same bytes, and an error or none. */
static void verify(weir_decompression config, const bytes *input, unsigned errors)
{
    codec self = { &weir_compression_decoder, &config };
    weir_verifier_config verified = {
        .init = codec_add,
        .arg = &self,
        .input = input->at,
        .length = input->length,
        .is_stream = true,
        .random_cuts = 4,
        .all_ends_up_to = 50,
    };
    weir_verifier_report report;
    weir_error error;
    if (weir_verify(&verified, &report, &error) < 0)
        fail_msg("%s: %s", weir_compression_name(config.format), error.message);
    assert_int_equal(report.errors, errors);
}

static void every_cut_comes_to_the_same(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(70), small = compressed(format, &from), more = compressed(format, &from);
        weir_decompression config = { .format = format };
        verify(config, &small, 0);
        bytes_join(&more, &small);
        verify(config, &more,
               format == WEIR_COMPRESSION_ZLIB || format == WEIR_COMPRESSION_DEFLATE ||
                       format == WEIR_COMPRESSION_BROTLI
                   ? 1
                   : 0);
        small.length -= 3;
        config.max_output = 69;
        verify(config, &more, 1);
        bytes_free(&from);
        bytes_free(&small);
        bytes_free(&more);
    }
}

static void what_is_no_buffer_passes(void **state)
{
    (void)state;
    static weir_msg_type type = { .name = "other" };
    static weir_msg other = WEIR_MSG_CONSTANT(&type);
    weir_decompression config = { .format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = codec_new(&weir_compression_decoder, &config);
    assert_int_equal(weir_embedded_write_inbound(embedded, &other), 0);
    assert_ptr_equal(weir_embedded_read_inbound(embedded), &other);
    codec_end(embedded);
}

static void what_makes_no_sense_cannot_be_added(void **state)
{
    (void)state;
    codec_is_refused(&weir_compression_decoder, NULL);
    codec_is_refused(&weir_compression_decoder, &(weir_decompression){ .format = 0 });
    codec_is_refused(&weir_compression_decoder,
                     &(weir_decompression){ .format = WEIR_COMPRESSION_GZIP, .chunk_bytes = 1 });
    codec_is_refused(&weir_compression_decoder,
                     &(weir_decompression){ .format = WEIR_COMPRESSION_GZIP, .max_ratio = -5 });
}

/* Bad input ------------------------------------------------------------------------------------ */

static void a_bomb_closes_the_channel(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes small = bomb(format, 10 * MIB);
        reader self = { .config.format = format };
        weir_embedded *embedded = begin(&self);
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, small.at, small.length),
                         WEIR_ELIMIT);
        weir_error error;
        assert_true(weir_embedded_take_error(embedded, &error));
        assert_string_equal(error.origin, "codec");
        assert_non_null(strstr(error.message, weir_compression_name(format)));
        assert_non_null(strstr(error.message, "max_ratio, 100 times"));
        assert_false(is_open(embedded));
        assert_true(self.got.length <= 100 * small.length + 64 * KIB);
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "more", 4), WEIR_ECLOSED);
        codec_end(embedded); /* the end of the connection adds nothing */
        bytes_free(&self.got);
        bytes_free(&small);
    }
}

static void garbage_closes_the_channel(void **state)
{
    (void)state;
    reader self = { .config.format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = begin(&self);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "GET / HTTP/1.1\r\n", 16),
                     -EBADMSG);
    codec_expect_error(embedded, -EBADMSG,
                       "gzip: incorrect header check (at byte 2 of the stream)");
    assert_false(is_open(embedded));
    assert_int_equal(self.buffers, 0);
    codec_end(embedded);
    bytes_free(&self.got);
}

static void a_stream_that_is_cut_off_is_told(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(1000), small = compressed(format, &from);
        reader self = { .config.format = format };
        weir_embedded *embedded = begin(&self);
        char text[128];
        weir_embedded_write_inbound_bytes(embedded, small.at, small.length - 1);
        assert_int_equal(weir_embedded_end_inbound(embedded, 0), WEIR_EOF);
        snprintf(text, sizeof text, "the %s stream is cut off (at byte %zu of the stream)",
                 weir_compression_name(format), small.length - 1);
        codec_expect_error(embedded, WEIR_EOF, text);
        assert_int_equal(self.inactives, 1);
        codec_end(embedded);
        bytes_free(&self.got);
        bytes_free(&from);
        bytes_free(&small);
    }
}

/* Half of a connection is enough to tell, and there is nothing to answer to half of a stream. */
static void a_stream_that_is_cut_off_closes_what_is_half_closed(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(1000), small = compressed(format, &from);
        reader self = { .config.format = format };
        weir_embedded *embedded = begin(&self);
        set(embedded, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
        weir_embedded_write_inbound_bytes(embedded, small.at, small.length - 1);
        assert_int_equal(weir_embedded_end_inbound(embedded, 0), WEIR_EOF);
        assert_true(weir_embedded_take_error(embedded, NULL));
        assert_false(is_open(embedded));
        assert_int_equal(self.events, 1);
        assert_int_equal(self.inactives, 1);
        codec_end(embedded);
        bytes_free(&self.got);
        bytes_free(&from);
        bytes_free(&small);
    }
}

/* As it is asked to ---------------------------------------------------------------------------- */

static void each_read_brings_a_chunk(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        enum { CHUNK = 4096, ALL = 300000 };
        bytes small = bomb(format, ALL);
        reader self = { .config = {
                            .format = format, .chunk_bytes = CHUNK, .max_ratio = WEIR_OFF } };
        weir_embedded *embedded = begin(&self);
        set(embedded, WEIR_OPTION_AUTO_READ, 0);
        assert_false(weir_embedded_is_reading(embedded));
        ask(embedded);
        assert_true(weir_embedded_is_reading(embedded));
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, small.at, small.length), 0);
        size_t before = 0, reads = 1;
        while (self.got.length < ALL) {
            assert_in_range(self.got.length - before, 1, 2 * CHUNK - 1);
            assert_int_equal(self.completes, reads);
            before = self.got.length;
            weir_embedded_run(embedded);
            weir_embedded_advance(embedded, WEIR_MS(1000));
            assert_int_equal(self.got.length, before); /* not unless it is asked to */
            assert_false(weir_embedded_is_reading(embedded));
            ask(embedded);
            reads++;
        }
        assert_true(reads >= ALL / (2 * CHUNK));
        /* Nothing is left: now the channel is asked. */
        ask(embedded);
        assert_true(weir_embedded_is_reading(embedded));
        assert_int_equal(weir_embedded_end_inbound(embedded, 0), 0);
        codec_end(embedded);
        bytes_free(&small);
        assert_same_bytes(self.got, zeroes(ALL));
    }
}

/* Small reads of one batch come as they are, up to a chunk. */
static void a_batch_is_not_torn_apart(void **state)
{
    (void)state;
    bytes from = words(3000), small = bytes_new(0);
    weir_compressor *compressor =
        compressor_new((weir_compression){ .format = WEIR_COMPRESSION_ZLIB });
    reader self = { .config.format = WEIR_COMPRESSION_ZLIB };
    weir_embedded *embedded = begin(&self);
    set(embedded, WEIR_OPTION_AUTO_READ, 0);
    ask(embedded);
    for (size_t at = 0; at < 3000; at += 100) {
        small.length = 0;
        compress_piece(compressor, from.at + at, 100, WEIR_COMPRESS_FLUSH, &small);
        weir_embedded_write_inbound_part(embedded, &weir_buf_from(small.at, small.length)->msg);
    }
    assert_int_equal(self.completes, 0);
    weir_embedded_end_batch(embedded);
    assert_int_equal(self.buffers, 30);
    assert_int_equal(self.completes, 1);
    assert_false(weir_embedded_is_reading(embedded));
    weir_compressor_free(compressor);
    bytes_free(&small);
    weir_embedded_free(embedded);
    assert_same_bytes(self.got, from);
}

/* A read that brings bytes nothing comes of yet is followed by another. */
static void who_asks_gets_something(void **state)
{
    (void)state;
    bytes from = words(100), small = compressed(WEIR_COMPRESSION_GZIP, &from);
    reader self = { .config.format = WEIR_COMPRESSION_GZIP };
    weir_embedded *embedded = begin(&self);
    set(embedded, WEIR_OPTION_AUTO_READ, 0);
    ask(embedded);
    for (size_t at = 0; at < small.length && self.got.length < from.length; at++) {
        assert_true(weir_embedded_is_reading(embedded));
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, small.at + at, 1), 0);
        if (self.got.length > 0 && self.got.length < from.length && self.completes > 0)
            ask(embedded);
    }
    assert_false(weir_embedded_is_reading(embedded));
    weir_embedded_free(embedded);
    bytes_free(&small);
    assert_same_bytes(self.got, from);
}

static void switching_reads_off_stops_it_at_once(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes small = bomb(format, 5 * MIB);
        reader self = { .config = { .format = format, .max_ratio = WEIR_OFF }, .stops_after = 3 };
        weir_embedded *embedded = begin(&self);
        weir_embedded_write_inbound_bytes(embedded, small.at, small.length);
        assert_int_equal(self.buffers, 3);
        assert_false(weir_embedded_is_reading(embedded));
        set(embedded, WEIR_OPTION_AUTO_READ, 1);
        weir_embedded_advance(embedded, 0);
        assert_true(weir_embedded_is_reading(embedded));
        assert_int_equal(weir_embedded_end_inbound(embedded, 0), 0);
        codec_end(embedded);
        bytes_free(&small);
        assert_same_bytes(self.got, zeroes(5 * MIB));
    }
}

static void what_waits_comes_in_order_before_what_is_read(void **state)
{
    (void)state;
    bytes from = words(300000), small = compressed(WEIR_COMPRESSION_GZIP, &from);
    reader self = { .config = { .format = WEIR_COMPRESSION_GZIP, .chunk_bytes = 1000 } };
    weir_embedded *embedded = begin(&self);
    set(embedded, WEIR_OPTION_AUTO_READ, 0);
    for (size_t at = 0; at < small.length; at += 5000) /* though nobody asks */
        weir_embedded_write_inbound_bytes(embedded, small.at + at,
                                          small.length - at < 5000 ? small.length - at : 5000);
    assert_true(self.got.length < 2000);
    set(embedded, WEIR_OPTION_AUTO_READ, 1);
    weir_embedded_run(embedded);
    assert_int_equal(weir_embedded_end_inbound(embedded, 0), 0);
    codec_end(embedded);
    bytes_free(&small);
    assert_same_bytes(self.got, from);
}

static void what_waits_has_a_limit(void **state)
{
    (void)state;
    bytes small = bomb(WEIR_COMPRESSION_GZIP, MIB), rest = zeroes(100000);
    reader self = { .config = { .format = WEIR_COMPRESSION_GZIP, .max_ratio = WEIR_OFF } };
    weir_embedded *embedded = begin(&self);
    set(embedded, WEIR_OPTION_AUTO_READ, 0);
    int code = weir_embedded_write_inbound_bytes(embedded, small.at, small.length);
    size_t waiting = 0;
    for (; code == 0; waiting += rest.length)
        code = weir_embedded_write_inbound_bytes(embedded, rest.at, rest.length);
    assert_int_equal(code, WEIR_ELIMIT);
    assert_in_range(waiting, 2 * MIB - 100000, 2 * MIB + 100000);
    codec_expect_error(embedded, WEIR_ELIMIT, "no room for the compressed bytes that wait");
    assert_false(is_open(embedded));
    codec_end(embedded);
    bytes_free(&self.got);
    bytes_free(&small);
    bytes_free(&rest);
}

/* Also when the first of it was more than that already. */
static void a_large_buffer_does_not_lift_the_limit(void **state)
{
    (void)state;
    bytes from = random_bytes(4 * MIB), small = compressed(WEIR_COMPRESSION_GZIP, &from);
    reader self = { .config = { .format = WEIR_COMPRESSION_GZIP } };
    weir_embedded *embedded = begin(&self);
    set(embedded, WEIR_OPTION_AUTO_READ, 0);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, small.at, 3 * MIB), 0);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, small.at + 3 * MIB, KIB),
                     WEIR_ELIMIT);
    codec_expect_error(embedded, WEIR_ELIMIT, "no room for the compressed bytes that wait");
    assert_false(is_open(embedded));
    codec_end(embedded);
    bytes_free(&self.got);
    bytes_free(&small);
    bytes_free(&from);
}

/* The answer to what comes waits for the other side, so no more is made of it. */
static void it_waits_while_the_channel_is_not_writable(void **state)
{
    (void)state;
    bytes small = bomb(WEIR_COMPRESSION_GZIP, 5 * MIB);
    reader self = { .config = { .format = WEIR_COMPRESSION_GZIP, .max_ratio = WEIR_OFF } };
    weir_embedded *embedded = begin(&self);
    weir_channel *channel = weir_embedded_channel(embedded);
    set(embedded, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 1);
    weir_channel_set_write_hold(channel, fresh_hold(&hold), true);
    weir_embedded_run(embedded);
    weir_embedded_write_inbound_bytes(embedded, small.at, small.length);
    assert_int_equal(self.buffers, 0);
    weir_channel_set_write_hold(channel, &hold, false);
    weir_embedded_run(embedded);
    weir_embedded_advance(embedded, 0);
    assert_int_equal(self.got.length, 5 * MIB);
    assert_true(weir_embedded_is_reading(embedded));
    codec_end(embedded);
    bytes_free(&small);
    bytes_free(&self.got);
}

static void reads_inside_reads_do_not_nest(void **state)
{
    (void)state;
    bytes small = bomb(WEIR_COMPRESSION_GZIP, 5 * MIB);
    for (int is_auto = 0; is_auto < 2; is_auto++) {
        reader self = { .config = { .format = WEIR_COMPRESSION_GZIP,
                                    .max_ratio = WEIR_OFF,
                                    .chunk_bytes = 1024 },
                        .reads_inside = true };
        weir_embedded *embedded = begin(&self);
        set(embedded, WEIR_OPTION_AUTO_READ, is_auto);
        ask(embedded);
        weir_embedded_write_inbound_bytes(embedded, small.at, small.length);
        weir_embedded_run(embedded);
        assert_int_equal(self.got.length, 5 * MIB);
        assert_int_equal(self.deepest, 1);
        assert_true(weir_embedded_is_reading(embedded));
        codec_end(embedded);
        bytes_free(&self.got);
    }
    bytes_free(&small);
}

/* The end -------------------------------------------------------------------------------------- */

static void the_rest_comes_when_the_connection_is_closed(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes small = bomb(format, 5 * MIB);
        reader self = { .config = { .format = format, .max_ratio = WEIR_OFF } };
        weir_embedded *embedded = begin(&self);
        set(embedded, WEIR_OPTION_AUTO_READ, 0);
        weir_embedded_write_inbound_bytes(embedded, small.at, small.length);
        assert_true(self.got.length < 128 * KIB);
        assert_int_equal(weir_embedded_end_inbound(embedded, 0), 0);
        assert_int_equal(self.inactives, 1);
        codec_end(embedded);
        bytes_free(&small);
        assert_same_bytes(self.got, zeroes(5 * MIB));
    }
}

static void the_end_of_the_input_is_told_behind_the_rest(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes small = bomb(format, MIB);
        reader self = { .config = { .format = format, .max_ratio = WEIR_OFF }, .all = MIB };
        weir_embedded *embedded = begin(&self);
        set(embedded, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
        set(embedded, WEIR_OPTION_AUTO_READ, 0);
        weir_embedded_write_inbound_bytes(embedded, small.at, small.length);
        assert_int_equal(weir_embedded_end_inbound(embedded, 0), 0);
        assert_int_equal(self.events, 0);
        for (int i = 0; i < 1000 && self.got.length < MIB; i++) {
            assert_int_equal(self.events, 0);
            ask(embedded);
        }
        ask(embedded);
        assert_int_equal(self.events, 1);
        assert_true(self.had_all_at_event);
        assert_true(is_open(embedded));
        codec_end(embedded);
        bytes_free(&small);
        assert_same_bytes(self.got, zeroes(MIB));
    }
}

/* Whether nobody wants it yet, or the rest of it has not come. */
static void upgrade_fails_inside_a_stream(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        for (int kind = 0; kind < 3; kind++) {
            bytes from = words(400000), small = compressed(format, &from);
            reader self = { .config.format = format, .stops_after = kind == 1 };
            weir_embedded *embedded = begin(&self);
            size_t length = kind == 2 ? small.length - 1 : small.length;
            assert_int_equal(weir_embedded_write_inbound_bytes(embedded, small.at, length), 0);
            size_t got = self.got.length;
            codec_upgrade(embedded, kind > 0);
            assert_int_equal(self.got.length, got);
            codec_end(embedded);
            bytes_free(&small);
            bytes_free(&from);
            bytes_free(&self.got);
        }
    }
}

static void a_close_in_the_middle_is_no_harm(void **state)
{
    (void)state;
    bytes small = bomb(WEIR_COMPRESSION_GZIP, 5 * MIB);
    reader self = { .config = { .format = WEIR_COMPRESSION_GZIP, .max_ratio = WEIR_OFF },
                    .closes_after = 2 };
    weir_embedded *embedded = begin(&self);
    weir_embedded_write_inbound_bytes(embedded, small.at, small.length);
    assert_false(is_open(embedded));
    assert_int_equal(self.inactives, 1);
    weir_embedded_take_error(embedded, NULL);
    codec_end(embedded);
    bytes_free(&small);
    bytes_free(&self.got);
}

/* What it took comes out decompressed, the rest as it was. */
static void removed_in_the_middle_it_hands_on_the_rest(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        for (size_t buffers = 1; buffers < 4; buffers++) {
            bytes from = words(MIB), small = compressed(format, &from);
            reader self = { .config = { .format = format, .chunk_bytes = 4096 },
                            .removes_after = buffers };
            weir_embedded *embedded = begin(&self);
            assert_int_equal(weir_embedded_write_inbound_bytes(embedded, small.at, small.length),
                             0);
            assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "and more", 8), 0);
            size_t plain = 0;
            while (plain < from.length && self.got.at[plain] == from.at[plain])
                plain++;
            size_t rest = self.got.length - plain;
            assert_true(plain >= buffers * 512 && rest >= 8 && rest - 8 <= small.length);
            /* All that comes of what is not in the rest. */
            bytes taken = bytes_of(small.at, small.length - (rest - 8));
            outcome found = decompressed(format, &taken);
            assert_in_range(plain, found.out.length, found.out.length + 2); /* by chance the same */
            bytes_free(&found.out);
            bytes_free(&taken);
            assert_memory_equal(self.got.at + self.got.length - 8, "and more", 8);
            assert_true(
                memcmp(self.got.at + plain, small.at + small.length - (rest - 8), rest - 8) == 0);
            codec_end(embedded);
            bytes_free(&self.got);
            bytes_free(&from);
            bytes_free(&small);
        }
    }
}

/* Faults --------------------------------------------------------------------------------------- */

/* All of it comes, or the begin of it and an error. */
static void without_memory_it_is_told_and_closed(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        bytes from = words(200000), small = compressed(format, &from);
        for (unsigned nth = 1, calls = nth; calls >= nth; nth++) {
            reader self = { .config = { .format = format, .chunk_bytes = 5000 } };
            weir_embedded *embedded = begin(&self);
            set(embedded, WEIR_OPTION_AUTO_READ, 0);
            weir_buf *first = weir_buf_from(small.at, small.length / 2);
            weir_buf *second = weir_buf_from(small.at + small.length / 2,
                                             small.length - small.length / 2);
            harness_fail_nth("alloc", nth, -ENOMEM);
            weir_embedded_write_inbound(embedded, &first->msg);
            weir_embedded_write_inbound(embedded, &second->msg);
            for (int i = 0; i < 1000 && is_open(embedded) && self.got.length < from.length; i++)
                ask(embedded);
            calls = harness_fail_end();
            assert_true(self.got.length == from.length || !is_open(embedded));
            assert_true(self.got.length <= from.length);
            assert_true(self.got.length == 0 || memcmp(self.got.at, from.at, self.got.length) == 0);
            weir_embedded_free(embedded);
            bytes_free(&self.got);
        }
        bytes_free(&from);
        bytes_free(&small);
    }
}

static void without_memory_it_cannot_be_added(void **state)
{
    (void)state;
    FOR_EACH_FORMAT(format)
    {
        unsigned failures = 0;
        for (unsigned nth = 1, calls = nth; calls >= nth; nth++) {
            reader self = { .config.format = format };
            weir_embedded *embedded = NULL;
            weir_embedded_config config = { .init = add_both, .arg = &self };
            harness_fail_nth("alloc", nth, -ENOMEM);
            int code = weir_embedded_new(&embedded, &config, NULL);
            calls = harness_fail_end();
            /* All or nothing: either it failed, or there is a channel with both handlers. */
            assert_true(code == 0 || code == -ENOMEM);
            assert_true(calls < nth ? code == 0 : true);
            assert_int_equal(embedded != NULL, code == 0);
            if (code == 0)
                assert_int_equal(weir_pipeline_count(weir_embedded_pipeline(embedded)), 2);
            if (code == 0)
                assert_true(is_open(embedded));
            failures += code < 0;
            weir_embedded_free(embedded);
        }
        assert_true(failures > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_format_is_decoded),
        weir_case(every_cut_comes_to_the_same),
        weir_case(what_is_no_buffer_passes),
        weir_case(what_makes_no_sense_cannot_be_added),
        weir_case(a_bomb_closes_the_channel),
        weir_case(garbage_closes_the_channel),
        weir_case(a_stream_that_is_cut_off_is_told),
        weir_case(a_stream_that_is_cut_off_closes_what_is_half_closed),
        weir_case(each_read_brings_a_chunk),
        weir_case(a_batch_is_not_torn_apart),
        weir_case(who_asks_gets_something),
        weir_case(switching_reads_off_stops_it_at_once),
        weir_case(what_waits_comes_in_order_before_what_is_read),
        weir_case(what_waits_has_a_limit),
        weir_case(a_large_buffer_does_not_lift_the_limit),
        weir_case(it_waits_while_the_channel_is_not_writable),
        weir_case(reads_inside_reads_do_not_nest),
        weir_case(the_rest_comes_when_the_connection_is_closed),
        weir_case(the_end_of_the_input_is_told_behind_the_rest),
        weir_case(upgrade_fails_inside_a_stream),
        weir_case(a_close_in_the_middle_is_no_harm),
        weir_case(removed_in_the_middle_it_hands_on_the_rest),
        weir_case(without_memory_it_is_told_and_closed),
        weir_case(without_memory_it_cannot_be_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
