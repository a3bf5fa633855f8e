/* SPDX-License-Identifier: MIT */
/* The base of decoders, with a decoder as small as they come: a byte says how many follow. */
#include "codecs.h"

#include "exec/executors.h"
#include "testing/random.h"

#include <stdio.h>
#include <weir/decoder.h>
#include <weir/delimiter.h>

/* A byte that says how many follow; '!' refuses, '?' complains and skips a byte, '#' is a bug. */
typedef struct frames {
    weir_decoder decoder;
} frames;

static weir_decoded decode_frame(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    uint8_t length;
    weir_buf *frame;
    if (weir_buf_get_u8(in, weir_buf_reader(in), &length) < 0)
        return WEIR_DECODED_NOTHING;
    weir_decoder_looked(weir_ctx_state(ctx), 1);
    if (length == '!')
        return weir_decoder_refuse(ctx, -EBADMSG, "an exclamation mark");
    if (length == '?') {
        weir_decoder_complain(ctx, -EILSEQ, "a question");
        weir_buf_skip(in, 1);
        return WEIR_DECODED_SKIPPED;
    }
    if (length == '#')
        return WEIR_DECODED_SKIPPED;
    if (weir_buf_readable(in) <= length)
        return WEIR_DECODED_NOTHING;
    weir_buf_skip(in, 1);
    if (weir_buf_read_slice(in, length, &frame) < 0) {
        weir_buf_set_reader(in, weir_buf_reader(in) - 1);
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory for a frame");
    }
    *out = &frame->msg;
    return WEIR_DECODED_MESSAGE;
}

static const weir_decoder_type copying = { .decode = decode_frame, .max_message = 101 };
static const weir_decoder_type chaining = {
    .decode = decode_frame,
    .max_message = 101,
    .cumulation = WEIR_CUMULATION_CHAIN,
};

static void frames_added(weir_ctx *ctx)
{
    const weir_decoder_type *type = weir_ctx_arg(ctx);
    weir_decoder_init(weir_ctx_state(ctx), type != NULL ? type : &copying);
}

static const weir_handler_type frames_handler = {
    .name = "frames",
    .state_size = sizeof(frames),
    .added = frames_added,
    WEIR_DECODER_CALLBACKS,
};

static int add_frames(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "frames", &frames_handler, arg);
}

static weir_embedded *embedded_with(weir_init_fn init, const void *arg)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = init, .arg = (void *)arg };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void write_text(weir_embedded *embedded, const char *text)
{
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, text, strlen(text)), 0);
}

/* Bytes and messages --------------------------------------------------------------------------- */

static void messages_of_one_read_are_parts_of_it(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    weir_buf *read = weir_buf_from("\3abc\0\2de\5fgh", 12);
    const uint8_t *bytes = weir_buf_peek(read, 0, 12);
    assert_int_equal(weir_embedded_write_inbound(embedded, &read->msg), 0);
    assert_int_equal(weir_embedded_inbound_count(embedded), 3);
    weir_buf *first = weir_buf_from_msg(weir_embedded_read_inbound(embedded));
    assert_ptr_equal(weir_buf_peek(first, 0, 3), bytes + 1);
    weir_buf_release(first);
    codec_expect_text(embedded, "");
    codec_expect_text(embedded, "de");
    write_text(embedded, "i");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    write_text(embedded, "j\1k");
    codec_expect_text(embedded, "fghij");
    codec_expect_text(embedded, "k");
    codec_end(embedded);
}

/* Only the message that straddles two reads is copied. */
static void behind_a_message_that_straddles_nothing_is_copied(void **state)
{
    (void)state;
    for (int chains = 0; chains <= 1; chains++) {
        weir_embedded *embedded = embedded_with(add_frames, chains ? &chaining : &copying);
        weir_buf *read = weir_buf_new(300);
        write_text(embedded, "\5ab");
        weir_buf_write_str(read, "cde");
        for (int i = 0; i < 90; i++)
            weir_buf_write_str(read, "\2xy");
        const uint8_t *bytes = weir_buf_peek(read, 0, 273);
        assert_int_equal(weir_embedded_write_inbound(embedded, &read->msg), 0);
        codec_expect_text(embedded, "abcde");
        for (int i = 0; i < 90; i++) {
            weir_buf *frame = weir_buf_from_msg(weir_embedded_read_inbound(embedded));
            assert_ptr_equal(weir_buf_peek(frame, 0, 2), bytes + 3 + i * 3 + 1);
            weir_buf_release(frame);
        }
        codec_end(embedded);
    }
}

static void few_bytes_do_not_keep_a_large_buffer(void **state)
{
    (void)state;
    weir_pool_stats before, after;
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    weir_pool_get_stats(&before);
    weir_buf *read = weir_buf_new(60000);
    weir_buf_write_str(read, "\5ab");
    assert_int_equal(weir_embedded_write_inbound(embedded, &read->msg), 0);
    weir_pool_get_stats(&after);
    assert_true(after.used_bytes < before.used_bytes + 1024);
    write_text(embedded, "cde");
    codec_expect_text(embedded, "abcde");
    codec_end(embedded);
}

static void what_is_no_buffer_passes(void **state)
{
    (void)state;
    static weir_msg note = WEIR_MSG_CONSTANT(&weir_buf_type);
    static const weir_msg_type note_type = { .name = "note" };
    note.type = &note_type;
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    write_text(embedded, "\2a");
    assert_int_equal(weir_embedded_write_inbound(embedded, &note), 0);
    assert_ptr_equal(weir_embedded_read_inbound(embedded), &note);
    write_text(embedded, "b");
    codec_expect_text(embedded, "ab");
    codec_end(embedded);
}

/* Errors --------------------------------------------------------------------------------------- */

static void what_is_refused_closes(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\1a!\1b", 5), -EBADMSG);
    codec_expect_text(embedded, "a");
    codec_expect_error(embedded, -EBADMSG, "an exclamation mark (at byte 2 of the stream)");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    codec_end(embedded);
}

static void what_is_refused_closes_whoever_is_removed(void **state)
{
    (void)state;
    codec_closes_although_removed(codec_new(&frames_handler, NULL), &weir_buf_from("!\1b", 3)->msg,
                                  -EBADMSG);
    weir_buf *pieces = weir_buf_new_composite();
    weir_buf_composite_add(pieces, weir_buf_from("\1a", 2));
    weir_embedded *embedded = codec_new(&frames_handler, NULL);
    harness_fail_nth("pool", 1, -ENOMEM);
    codec_closes_although_removed(embedded, &pieces->msg, -ENOMEM);
    harness_fail_end();
}

static void answering_on_error(weir_ctx *ctx, const weir_error *error)
{
    const bool *removes = weir_ctx_arg(ctx);
    weir_ctx_writef(ctx, "error %d\n", error->code);
    weir_channel_finish(weir_ctx_channel(ctx), NULL);
    if (*removes)
        weir_pipeline_remove(weir_ctx_pipeline(ctx), "frames", NULL);
}

static const weir_handler_type answering_handler = { .name = "answering",
                                                     .on_error = answering_on_error };

static weir_embedded *open_answering(bool *removes)
{
    weir_embedded *embedded = codec_new(&frames_handler, NULL);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    weir_handler_info info;
    assert_int_equal(weir_pipeline_at(pipeline, 0, &info), 0);
    assert_int_equal(weir_pipeline_replace(pipeline, info.name, "frames", &frames_handler, NULL),
                     0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "answering", &answering_handler, removes), 0);
    return embedded;
}

static void error_response_is_sent_before_the_end(void **state)
{
    (void)state;
    bool removes = false;
    char answer[32] = "";
    weir_embedded *embedded = open_answering(&removes);
    weir_embedded_write_inbound_bytes(embedded, "\1a!\1b", 5);
    weir_embedded_run(embedded);
    assert_int_equal(weir_embedded_read_outbound_bytes(embedded, answer, sizeof answer - 1), 10);
    assert_string_equal(answer, "error -74\n");
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded))); /* until the peer's EOF */
    weir_embedded_write_inbound_bytes(embedded, "\1c", 2);
    codec_expect_text(embedded, "a");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0); /* the rest is dropped */
    weir_embedded_end_inbound(embedded, 0);
    weir_embedded_run(embedded);
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    codec_end(embedded);
}

/* Later bytes would reach handlers that expect frames. */
static void finish_without_the_decoder_closes_at_once(void **state)
{
    (void)state;
    bool removes = true;
    weir_embedded *embedded = open_answering(&removes);
    weir_embedded_write_inbound_bytes(embedded, "!\1b", 3);
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    weir_embedded_run(embedded);
    weir_msg_release(weir_embedded_read_outbound(embedded)); /* it was flushed before that */
    codec_end(embedded);
}

/* Then what is behind the complaint goes on as it is. */
static void who_is_removed_by_a_complaint_hands_the_rest_on(void **state)
{
    (void)state;
    for (int straddles = 0; straddles <= 1; straddles++) {
        weir_embedded *embedded = codec_new(&frames_handler, NULL);
        weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
        assert_int_equal(weir_pipeline_add_last(pipeline, "remover", &codec_remover, NULL), 0);
        weir_embedded_write_inbound_bytes(embedded, "\2ab?\2cd", straddles ? 2 : 7);
        if (straddles)
            weir_embedded_write_inbound_bytes(embedded, "b?\2cd", 5);
        codec_expect_error(embedded, -EILSEQ, "a question (at byte 3 of the stream)");
        codec_expect_text(embedded, "ab");
        codec_expect_text(embedded, "\2cd");
        assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
        codec_end(embedded);
    }
}

static void behind_a_complaint_it_goes_on(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\1a?\1b", 5), -EILSEQ);
    codec_expect_error(embedded, -EILSEQ, "a question (at byte 2 of the stream)");
    codec_expect_text(embedded, "a");
    codec_expect_text(embedded, "b");
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    codec_end(embedded);
}

static void a_message_has_a_limit(void **state)
{
    (void)state;
    const char *longest = "\144", *too_long = "\145"; /* 100 and 101 bytes */
    for (int is_whole = 0; is_whole <= 1; is_whole++) {
        weir_embedded *embedded = embedded_with(add_frames, NULL);
        char bytes[204];
        memset(bytes, 'x', sizeof bytes);
        bytes[0] = *longest;
        bytes[101] = *too_long;
        int code = 0;
        for (size_t at = 0; at < sizeof bytes && code == 0; at += is_whole ? sizeof bytes : 1)
            code = weir_embedded_write_inbound_bytes(embedded, bytes + at,
                                                     is_whole ? sizeof bytes : 1);
        assert_int_equal(code, WEIR_ELIMIT);
        codec_expect_error(embedded, WEIR_ELIMIT,
                           "a message is longer than 101 bytes (at byte 101 of the stream)");
        assert_int_equal(weir_embedded_inbound_count(embedded), 1);
        weir_msg_release(weir_embedded_read_inbound(embedded));
        codec_end(embedded);
    }
}

static void a_decoder_that_stands_still_is_stopped(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "#", 1), -EPROTO);
    codec_expect_error(embedded, -EPROTO,
                       "the decoder goes on without reading (at byte 0 of the stream)");
    codec_end(embedded);
}

/* Gives a message for every byte, and as many more as that says, without reading. */
typedef struct repeater {
    weir_decoder decoder;
    unsigned left;
} repeater;

static weir_decoded decode_repeat(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    repeater *self = weir_ctx_state(ctx);
    uint8_t count;
    if (self->left > 0) {
        self->left--;
    } else if (weir_buf_read_u8(in, &count) == 0) {
        self->left = count;
    } else {
        return WEIR_DECODED_NOTHING;
    }
    *out = weir_buf_msg(weir_buf_new(0));
    return WEIR_DECODED_MESSAGE;
}

static void repeater_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = { .decode = decode_repeat };
    weir_decoder_init(weir_ctx_state(ctx), &type);
}

static const weir_handler_type repeater_handler = {
    .name = "repeater",
    .state_size = sizeof(repeater),
    .added = repeater_added,
    WEIR_DECODER_CALLBACKS,
};

static int add_repeater(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "repeater", &repeater_handler,
                                  arg);
}

static size_t drain(weir_embedded *embedded)
{
    size_t count = 0;
    for (weir_msg *msg; (msg = weir_embedded_read_inbound(embedded)) != NULL; count++)
        weir_msg_release(msg);
    return count;
}

static void messages_without_bytes_are_counted(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(add_repeater, NULL);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\20\20", 2), 0);
    assert_int_equal(drain(embedded), 34);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\21", 1), -EPROTO);
    assert_int_equal(drain(embedded), 17);
    codec_expect_error(
        embedded, -EPROTO,
        "the decoder gives messages without reading any bytes (at byte 3 of the stream)");
    codec_end(embedded);
}

/* The end -------------------------------------------------------------------------------------- */

static void an_end_inside_a_message_is_told(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    write_text(embedded, "\1a\5bcd");
    codec_expect_text(embedded, "a");
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_error(
        embedded, WEIR_EOF,
        "the stream ends inside a message, 4 bytes behind its begin (at byte 2 of the "
        "stream)");
    codec_end(embedded);
}

/* Everything up to the end is one message. */
static weir_decoded decode_nothing(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    (void)ctx, (void)in, (void)out;
    return WEIR_DECODED_NOTHING;
}

static weir_decoded decode_rest(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    weir_buf *rest;
    if (weir_buf_readable(in) == 0)
        return WEIR_DECODED_NOTHING;
    if (weir_buf_read_slice(in, weir_buf_readable(in), &rest) < 0)
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory");
    *out = &rest->msg;
    return WEIR_DECODED_MESSAGE;
}

static void rest_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = { .decode = decode_nothing, .decode_last = decode_rest };
    weir_decoder_init(weir_ctx_state(ctx), &type);
}

static const weir_handler_type rest_handler = {
    .name = "rest",
    .state_size = sizeof(weir_decoder),
    .added = rest_added,
    WEIR_DECODER_CALLBACKS,
};

static int add_rest(weir_channel *channel, void *arg)
{
    if (arg != NULL)
        weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, true, NULL);
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "rest", &rest_handler, NULL);
}

static void the_end_can_make_a_message(void **state)
{
    (void)state;
    int yes = 1;
    for (int is_half = 0; is_half <= 1; is_half++) {
        weir_embedded *embedded = embedded_with(add_rest, is_half ? &yes : NULL);
        write_text(embedded, "abc");
        write_text(embedded, "def");
        assert_int_equal(weir_embedded_inbound_count(embedded), 0);
        weir_embedded_end_inbound(embedded, 0);
        codec_expect_text(embedded, "abcdef");
        assert_int_equal(weir_channel_is_open(weir_embedded_channel(embedded)), is_half);
        codec_end(embedded);
    }
}

/* Without memory nobody can tell what the end makes of it: that is no clean end. */
static void an_end_without_memory_is_told(void **state)
{
    (void)state;
    for (int is_half = 0; is_half <= 1; is_half++) {
        weir_embedded *embedded = embedded_with(add_rest, is_half ? &is_half : NULL);
        write_text(embedded, "abc");
        harness_fail_nth("pool", 1, -ENOMEM);
        weir_embedded_end_inbound(embedded, 0);
        assert_int_equal(harness_fail_end(), 1);
        codec_expect_error(embedded, -ENOMEM, "no memory for what was read");
        assert_int_equal(weir_embedded_inbound_count(embedded), 0);
        assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        codec_end(embedded);
    }
}

/* Takes digits as they come and remembers their sum, which a line's end makes a message of; at the
 * end of the stream, two. */
typedef struct summer {
    weir_decoder decoder;
    unsigned sum, last_ones;
    bool has_digits;
} summer;

static weir_decoded give_number(unsigned number, weir_msg **out)
{
    weir_buf *buf = weir_buf_new(16);
    assert_non_null(buf);
    weir_buf_printf(buf, "%u", number);
    *out = &buf->msg;
    return WEIR_DECODED_MESSAGE;
}

static weir_decoded decode_sum(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    summer *self = weir_ctx_state(ctx);
    for (uint8_t byte; weir_buf_read_u8(in, &byte) == 0;) {
        weir_decoder_looked(&self->decoder, 1);
        if (byte == '\n') {
            unsigned sum = self->sum;
            self->sum = 0;
            self->has_digits = false;
            return give_number(sum, out);
        }
        self->sum += byte - '0';
        self->has_digits = true;
    }
    return WEIR_DECODED_NOTHING;
}

static weir_decoded decode_last_sum(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    summer *self = weir_ctx_state(ctx);
    weir_decoded decoded = decode_sum(ctx, in, out);
    if (decoded != WEIR_DECODED_NOTHING || self->last_ones == 2)
        return decoded;
    return give_number(self->last_ones++ == 0 ? self->sum : 1000, out);
}

static void summer_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = { .decode = decode_sum,
                                            .decode_last = decode_last_sum,
                                            .max_message = 8 };
    weir_decoder_init(weir_ctx_state(ctx), &type);
}

static const weir_handler_type summer_handler = {
    .name = "summer",
    .state_size = sizeof(summer),
    .added = summer_added,
    WEIR_DECODER_CALLBACKS,
};

static void bytes_can_be_taken_as_they_come(void **state)
{
    (void)state;
    weir_embedded *embedded = codec_new(&summer_handler, NULL);
    write_text(embedded, "12");
    write_text(embedded, "3\n4\n5");
    codec_expect_text(embedded, "6");
    codec_expect_text(embedded, "4");
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_text(embedded, "5");
    codec_expect_text(embedded, "1000");
    codec_end(embedded);
    codec_verify(&summer_handler, NULL, "123\n4\n5", 7, 2, 0);
    codec_verify(&summer_handler, NULL, "1234567\n1\n", 10, 2, 0);
    codec_verify(&summer_handler, NULL, "1\n12345678\n", 11, 1, 1);
    codec_verify(&summer_handler, NULL, "1\n123456789", 11, 1, 1);
}

/* In the middle -------------------------------------------------------------------------------- */

/* What happens when the message "x" comes. */
typedef struct middle {
    enum { REMOVE, REPLACE, READ, READ_TOO_MUCH, CLOSE } what;
    weir_pipeline *pipeline;
    weir_delimited *lines;
    const weir_decoder_type *type; /* NULL: copying */
} middle;

static void read_more(middle *self)
{
    size_t count = self->what == READ ? 1 : 40;
    char bytes[4096];
    memset(bytes, 2, sizeof bytes);
    memcpy(bytes, "d\2ef", 4);
    for (size_t i = 0; i < count; i++)
        weir_pipeline_fire_read(self->pipeline,
                                weir_buf_msg(weir_buf_from(bytes, self->what == READ ? 4 : 4096)));
}

static void middle_on_read(weir_ctx *ctx, weir_msg *msg)
{
    middle *self = weir_ctx_arg(ctx);
    const weir_buf *buf = weir_buf_from_msg(msg);
    uint8_t first = 0;
    weir_buf_get_u8(buf, weir_buf_reader(buf), &first);
    bool is_it = weir_buf_readable(buf) == 1 && first == 'x';
    weir_ctx_fire_read(ctx, msg);
    if (is_it && self->what == REMOVE)
        assert_int_equal(weir_pipeline_remove(self->pipeline, "frames", NULL), 0);
    if (is_it && self->what == REPLACE)
        assert_int_equal(weir_pipeline_replace(self->pipeline, "frames", "lines",
                                               &weir_line_decoder, self->lines),
                         0);
    if (is_it && (self->what == READ || self->what == READ_TOO_MUCH))
        read_more(self);
    if (is_it && self->what == CLOSE)
        weir_ctx_close(ctx, NULL);
}

static const weir_handler_type middle_handler = { .name = "middle", .on_read = middle_on_read };

static int add_middle(weir_channel *channel, void *arg)
{
    middle *self = arg;
    self->pipeline = weir_channel_pipeline(channel);
    int code = add_frames(channel, (void *)self->type);
    return code < 0 ? code : weir_pipeline_add_last(self->pipeline, "middle", &middle_handler, arg);
}

static void who_is_removed_hands_the_rest_on(void **state)
{
    (void)state;
    middle self = { .what = REMOVE };
    weir_embedded *embedded = embedded_with(add_middle, &self);
    write_text(embedded, "\1a\1x\2bc");
    codec_expect_text(embedded, "a");
    codec_expect_text(embedded, "x");
    codec_expect_text(embedded, "\2bc");
    write_text(embedded, "\3de");
    codec_expect_text(embedded, "\3de");
    codec_end(embedded);
    /* Also when the message straddled two reads. */
    embedded = embedded_with(add_middle, &self);
    write_text(embedded, "\1");
    write_text(embedded, "x\2bc");
    codec_expect_text(embedded, "x");
    codec_expect_text(embedded, "\2bc");
    codec_end(embedded);
}

/* A byte is a message when two more are there. */
static weir_decoded decode_ahead(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    weir_buf *byte;
    if (weir_buf_readable(in) < 3)
        return WEIR_DECODED_NOTHING;
    if (weir_buf_read_slice(in, 1, &byte) < 0)
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory");
    *out = &byte->msg;
    return WEIR_DECODED_MESSAGE;
}

/* What is left of an earlier read goes on together with the next one, and each byte once. */
static void who_is_removed_looking_ahead_hands_the_rest_on(void **state)
{
    (void)state;
    for (int chains = 0; chains <= 1; chains++) {
        weir_decoder_type type = { .decode = decode_ahead,
                                   .cumulation = chains ? WEIR_CUMULATION_CHAIN
                                                        : WEIR_CUMULATION_COPY };
        middle self = { .what = REMOVE, .type = &type };
        weir_embedded *embedded = embedded_with(add_middle, &self);
        write_text(embedded, "xb");
        assert_int_equal(weir_embedded_inbound_count(embedded), 0);
        write_text(embedded, "cd");
        codec_expect_text(embedded, "x");
        codec_expect_text(embedded, "bcd");
        codec_end(embedded);
    }
}

/* Another protocol from here on. */
static void the_rest_goes_to_the_one_in_its_place(void **state)
{
    (void)state;
    weir_delimited lines = { .max_length = 10 };
    for (size_t cut = 1; cut < 9; cut++) {
        middle self = { .what = REPLACE, .lines = &lines };
        weir_embedded *embedded = embedded_with(add_middle, &self);
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\1a\1xbc\nd\n", cut), 0);
        assert_int_equal(
            weir_embedded_write_inbound_bytes(embedded, &"\1a\1xbc\nd\n"[cut], 9 - cut), 0);
        codec_expect_text(embedded, "a");
        codec_expect_text(embedded, "x");
        codec_expect_text(embedded, "bc");
        codec_expect_text(embedded, "d");
        codec_end(embedded);
    }
}

static int remove_frames(void *arg)
{
    return weir_pipeline_remove(arg, "frames", NULL);
}

static void what_is_kept_goes_on_when_it_is_removed_between_reads(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    write_text(embedded, "\1a\4bc");
    codec_expect_text(embedded, "a");
    assert_int_equal(weir_embedded_call(embedded, remove_frames, weir_embedded_pipeline(embedded)),
                     0);
    codec_expect_text(embedded, "\4bc");
    codec_end(embedded);
}

static void what_comes_meanwhile_is_next(void **state)
{
    (void)state;
    middle self = { .what = READ };
    weir_embedded *embedded = embedded_with(add_middle, &self);
    write_text(embedded, "\1x\2ab\2c");
    codec_expect_text(embedded, "x");
    codec_expect_text(embedded, "ab");
    codec_expect_text(embedded, "cd");
    codec_expect_text(embedded, "ef");
    codec_end(embedded);
}

static void what_comes_meanwhile_has_a_limit(void **state)
{
    (void)state;
    middle self = { .what = READ_TOO_MUCH };
    weir_embedded *embedded = embedded_with(add_middle, &self);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "\1x\1a", 4), WEIR_ELIMIT);
    codec_expect_text(embedded, "x");
    codec_expect_error(embedded, WEIR_ELIMIT,
                       "no room for the 69632 bytes that came meanwhile (at byte 2 of the stream)");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    codec_end(embedded);
}

static void messages_of_a_read_come_although_one_closes(void **state)
{
    (void)state;
    middle self = { .what = CLOSE };
    weir_embedded *embedded = embedded_with(add_middle, &self);
    weir_embedded_write_inbound_bytes(embedded, "\1x\1a", 4);
    codec_expect_text(embedded, "x");
    codec_expect_text(embedded, "a");
    codec_end(embedded);
}

static int set_single(void *arg)
{
    weir_ctx *ctx = weir_pipeline_ctx(arg, "frames");
    weir_decoder_set_single(weir_ctx_state(ctx), true);
    return 0;
}

static void in_single_mode_each_read_gives_one(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    weir_embedded_call(embedded, set_single, weir_embedded_pipeline(embedded));
    write_text(embedded, "\1a\1b\1c\2d");
    codec_expect_text(embedded, "a");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    write_text(embedded, "e");
    codec_expect_text(embedded, "b");
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    weir_embedded_end_inbound(embedded, 0);
    codec_expect_text(embedded, "c");
    codec_expect_text(embedded, "de");
    codec_end(embedded);
}

/* The receiver of the first message upgrades the protocol, as STARTTLS does. */
static void upgrading_on_read(weir_ctx *ctx, weir_msg *msg)
{
    static const weir_handler_type upgrade = { .name = "upgrade", .is_upgrade = true };
    weir_pipeline_add_first(weir_ctx_pipeline(ctx), NULL, &upgrade, NULL);
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type upgrading = { .name = "upgrading", .on_read = upgrading_on_read };

static int add_upgrading(weir_channel *channel, void *arg)
{
    int code = add_frames(channel, arg);
    return code < 0
               ? code
               : weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &upgrading, NULL);
}

static void upgrade_fails_inside_a_pass_with_bytes_left(void **state)
{
    (void)state;
    static const struct {
        const char *first, *second; /* reads */
        const char *left;           /* of which so many bytes are left; NULL: none */
    } rows[] = {
        { "\1a", NULL, NULL }, { "\1a\1b", NULL, "2" }, { "\1a\2", NULL, "1" },
        { "\2a", "b", NULL },  { "\2a", "b\1c", "2" },  { "\2", "ab\3d", "2" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int chains = 0; chains < 2; chains++) {
            char words[128];
            weir_embedded *embedded = embedded_with(add_upgrading, chains ? &chaining : &copying);
            const char *reads[] = { rows[i].first, rows[i].second };
            for (size_t j = 0; j < 2 && reads[j] != NULL; j++)
                weir_embedded_write_inbound_bytes(embedded, reads[j], strlen(reads[j]));
            assert_int_equal(weir_embedded_inbound_count(embedded), rows[i].left == NULL);
            assert_int_equal(weir_channel_is_open(weir_embedded_channel(embedded)),
                             rows[i].left == NULL);
            if (rows[i].left != NULL) {
                snprintf(words, sizeof words,
                         "'upgrade' cannot be added: 'frames' holds %s bytes or messages from "
                         "before it",
                         rows[i].left);
                codec_expect_error(embedded, WEIR_EHELD, words);
                weir_embedded_take_error(embedded, NULL); /* the stream ends inside a message */
            }
            drain(embedded);
            codec_end(embedded);
        }
    }
    /* Between two reads, too. */
    weir_embedded *embedded = embedded_with(add_frames, NULL);
    write_text(embedded, "\3ab");
    codec_upgrade(embedded, 3);
    codec_end(embedded);
}

/* What waits for its read is no message that is too long, but not without a limit either. */
static void in_single_mode_what_waits_has_a_limit(void **state)
{
    (void)state;
    char bytes[2 * 32000];
    for (size_t at = 0; at < sizeof bytes; at += 2)
        memcpy(bytes + at, "\1x", 2);
    for (int kind = 0; kind < 4; kind++) {
        weir_embedded *embedded = embedded_with(add_frames, kind & 1 ? &chaining : &copying);
        weir_embedded_call(embedded, set_single, weir_embedded_pipeline(embedded));
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, bytes, sizeof bytes), 0);
        if (kind & 2) { /* as much as there is room for, which is 64 KiB */
            assert_int_equal(weir_embedded_write_inbound_bytes(embedded, bytes, 1540), 0);
            assert_int_equal(drain(embedded), 2);
            weir_embedded_end_inbound(embedded, 0);
            assert_int_equal(drain(embedded), (sizeof bytes + 1540) / 2 - 2);
        } else {
            assert_int_equal(weir_embedded_write_inbound_bytes(embedded, bytes, 1542), WEIR_ELIMIT);
            codec_expect_error(embedded, WEIR_ELIMIT,
                               "no room for the 65538 bytes that wait to be decoded (at byte 4 of "
                               "the stream)");
            assert_int_equal(drain(embedded), 2);
        }
        codec_end(embedded);
    }
}

static int set_single_and_no_reads(weir_channel *channel, void *arg)
{
    weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, false, NULL);
    return add_frames(channel, arg);
}

/* Who reads on request asks for a message, not for bytes. */
static void a_request_to_read_lasts_until_there_is_a_message(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(set_single_and_no_reads, NULL);
    weir_channel_read(weir_embedded_channel(embedded));
    weir_embedded_run(embedded);
    assert_true(weir_embedded_is_reading(embedded));
    write_text(embedded, "\2a");
    assert_true(weir_embedded_is_reading(embedded));
    write_text(embedded, "b");
    assert_false(weir_embedded_is_reading(embedded));
    codec_expect_text(embedded, "ab");
    codec_end(embedded);
}

/* Whoever gets the messages does anything in between, by chance: reads what comes next at once,
 * puts another decoder in the place of this one, takes it out, keeps the message, asks for single
 * ones. What it sees is written down as it was sent. */
typedef struct chaos {
    weir_pipeline *pipeline;
    uint64_t chance;
    char sent[1100];
    size_t length, fed;
    weir_buf *seen;
    weir_msg *held[16];
    size_t held_count;
    int depth;
    bool is_removed;
} chaos;

static size_t choose(chaos *self, size_t count)
{
    return (size_t)(weir__random_next(&self->chance) % count);
}

static weir_msg *next_read(chaos *self)
{
    size_t length = 1 + choose(self, 40), left = self->length - self->fed;
    length = length < left ? length : left;
    weir_buf *read = weir_buf_new(length * (1 + 9 * choose(self, 2)));
    weir_buf_write_bytes(read, self->sent + self->fed, length);
    self->fed += length;
    return &read->msg;
}

static void chaos_write_down(chaos *self, const weir_buf *buf)
{
    weir_buf *copy;
    size_t length = weir_buf_readable(buf);
    if (!self->is_removed)
        weir_buf_write_u8(self->seen, (uint8_t)length);
    assert_int_equal(weir_buf_copy(buf, weir_buf_reader(buf), length, &copy), 0);
    weir_buf_write_buf(self->seen, copy, length);
    weir_buf_release(copy);
}

static void chaos_on_read(weir_ctx *ctx, weir_msg *msg)
{
    chaos *self = weir_ctx_arg(ctx);
    const weir_decoder_type *type = choose(self, 2) ? &chaining : &copying;
    size_t what = choose(self, 24);
    chaos_write_down(self, weir_buf_from_msg(msg));
    if (self->held_count < 16 && choose(self, 3) == 0)
        self->held[self->held_count++] = msg;
    else
        weir_msg_release(msg);
    if (what < 6 && self->depth < 5 && self->fed < self->length) {
        self->depth++;
        weir_pipeline_fire_read(self->pipeline, next_read(self));
        self->depth--;
    } else if (what < 8 && !self->is_removed) {
        assert_int_equal(weir_pipeline_replace(self->pipeline, "frames", "frames", &frames_handler,
                                               (void *)type),
                         0);
    } else if (what < 9 && !self->is_removed) {
        self->is_removed = true;
        assert_int_equal(weir_pipeline_remove(self->pipeline, "frames", NULL), 0);
    } else if (what < 11 && !self->is_removed) {
        weir_decoder_set_single(weir_ctx_state(weir_pipeline_ctx(self->pipeline, "frames")),
                                choose(self, 2));
    }
}

static const weir_handler_type chaos_handler = { .name = "chaos", .on_read = chaos_on_read };

static int add_chaos(weir_channel *channel, void *arg)
{
    chaos *self = arg;
    self->pipeline = weir_channel_pipeline(channel);
    int code = add_frames(channel, (void *)(choose(self, 2) ? &chaining : &copying));
    return code < 0 ? code : weir_pipeline_add_last(self->pipeline, NULL, &chaos_handler, self);
}

static void nothing_is_lost_whatever_happens_meanwhile(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        chaos self = { .chance = seed, .seen = weir_buf_new(0) };
        while (self.length < 1000) {
            size_t length = choose(&self, 10) == 0 ? 64 + choose(&self, 36) : choose(&self, 30);
            self.sent[self.length++] = (char)length; /* not one that complains or refuses */
            for (size_t i = 0; i < length; i++)
                self.sent[self.length++] = (char)('a' + choose(&self, 26));
        }
        weir_embedded *embedded = embedded_with(add_chaos, &self);
        while (self.fed < self.length)
            assert_int_equal(weir_embedded_write_inbound(embedded, next_read(&self)), 0);
        assert_int_equal(weir_embedded_end_inbound(embedded, 0), 0);
        codec_check_bytes(&self.seen->msg, self.sent, self.length);
        while (self.held_count > 0)
            weir_msg_release(self.held[--self.held_count]);
        codec_end(embedded);
    }
}

/* Elsewhere ------------------------------------------------------------------------------------ */

static int add_frames_elsewhere(weir_channel *channel, void *arg)
{
    weir_handler_config config = { .type = &frames_handler, .name = "frames", .group = arg };
    config.place = WEIR_PLACE_LAST;
    return weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
}

static void wait_for_text(weir_embedded *embedded, const char *text)
{
    WAIT_FOR_STEPPING(weir_embedded_inbound_count(embedded) != 0, weir_embedded_run(embedded));
    codec_expect_text(embedded, text);
}

static void it_can_have_an_executor_of_its_own(void **state)
{
    (void)state;
    weir_group *group = new_group_of(1);
    for (int is_removed = 0; is_removed <= 1; is_removed++) {
        weir_error error = { 0 };
        weir_embedded *embedded = embedded_with(add_frames_elsewhere, group);
        for (int i = 0; i < 50; i++)
            for (const char *at = "\3abc\2de"; *at != '\0'; at += at[1] != '\0' ? 2 : 1)
                weir_embedded_write_inbound_bytes(embedded, at, at[1] != '\0' ? 2 : 1);
        write_text(embedded, "\4fg");
        if (is_removed)
            weir_pipeline_remove(weir_embedded_pipeline(embedded), "frames", NULL);
        for (int i = 0; i < 50; i++) {
            wait_for_text(embedded, "abc");
            wait_for_text(embedded, "de");
        }
        if (is_removed)
            wait_for_text(embedded, "\4fg"); /* the rest, as it is */
        else
            weir_embedded_write_inbound_bytes(embedded, "hi!", 3);
        if (!is_removed)
            wait_for_text(embedded, "fghi");
        WAIT_FOR_STEPPING(is_removed || weir_embedded_take_error(embedded, &error),
                          weir_embedded_run(embedded));
        assert_int_equal(error.code, is_removed ? 0 : -EBADMSG);
        weir_embedded_free(embedded);
    }
    end_group(group);
}

/* Verified ------------------------------------------------------------------------------------- */

static void however_the_bytes_come(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t length;
        unsigned messages, errors;
    } inputs[] = {
        { "\3abc\0\2de\5fgh", 12, 3, 0 },
        { "\1a?\2bc?\1d", 9, 3, 2 },
        { "\1a\2bc!\1d", 8, 2, 1 },
        { "\3abc\145more", 9, 1, 0 },
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        for (int chains = 0; chains <= 1; chains++) {
            weir_verifier_config config = {
                .init = add_frames,
                .arg = (void *)(chains ? &chaining : &copying),
                .input = inputs[i].bytes,
                .length = inputs[i].length,
                .decoder = "frames",
            };
            weir_verifier_report report;
            weir_error error;
            if (weir_verify(&config, &report, &error) < 0)
                fail_msg("%s", error.message);
            assert_int_equal(report.messages, inputs[i].messages);
            assert_int_equal(report.errors, inputs[i].errors);
            assert_true(report.runs > inputs[i].length * inputs[i].length / 2);
        }
    }
}

/* A long input: ten messages of random lengths. */
static void a_long_input_costs_in_proportion(void **state)
{
    (void)state;
    char bytes[700];
    memset(bytes, 'x', sizeof bytes);
    for (size_t at = 0; at < sizeof bytes; at += 70)
        bytes[at] = 69;
    weir_verifier_config config = {
        .init = add_frames,
        .input = bytes,
        .length = sizeof bytes,
        .decoder = "frames",
        .random_cuts = 4,
    };
    weir_error error;
    if (weir_verify(&config, NULL, &error) < 0)
        fail_msg("%s", error.message);
}

/* Decoders that do it wrong, in ways that the verifier is there to find. */
typedef enum wrong {
    LOOKS_BACK,
    WHOLE_READS,
    LOSES_STATE,
    LOOKS_BACK_AND_REFUSES,
    LEAKS,
    DROPS_GOOD_BYTES, /* that came together with a bad one */
    REFUSES_SELDOM,   /* only when it came behind another one */
} wrong;

static weir_buf *leaked;

static weir_decoded decode_wrongly(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    const wrong *what = weir_ctx_arg(ctx);
    weir_buf *frame;
    int64_t at = weir_buf_find(in, weir_buf_reader(in), weir_buf_readable(in), '\n');
    if (*what == LOOKS_BACK || *what == LOOKS_BACK_AND_REFUSES)
        weir_decoder_looked(weir_ctx_state(ctx), weir_buf_readable(in));
    if (*what == LOOKS_BACK_AND_REFUSES && at == 500)
        return weir_decoder_refuse(ctx, -EBADMSG, "a bad line");
    if (at < 0 && *what == LOSES_STATE)
        weir_buf_skip(in, weir_buf_readable(in)); /* and forgets it */
    if (at < 0 && (*what != WHOLE_READS || weir_buf_readable(in) == 0))
        return WEIR_DECODED_NOTHING;
    size_t length = at < 0 ? weir_buf_readable(in) : (size_t)at + 1 - weir_buf_reader(in);
    assert_int_equal(weir_buf_read_slice(in, length, &frame), 0);
    if (*what == LEAKS && leaked == NULL)
        leaked = weir_buf_retain(frame);
    *out = &frame->msg;
    return WEIR_DECODED_MESSAGE;
}

/* A stream, in which the last byte is bad. */
static weir_decoded decode_stream_wrongly(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    const wrong *what = weir_ctx_arg(ctx);
    weir_buf *bytes;
    size_t length = weir_buf_readable(in);
    if (*what < DROPS_GOOD_BYTES)
        return decode_wrongly(ctx, in, out);
    if (weir_buf_find(in, weir_buf_reader(in), length, '!') >= 0 &&
        (*what == DROPS_GOOD_BYTES || length > 1))
        return weir_decoder_refuse(ctx, -EBADMSG, "a bad byte");
    if (length == 0)
        return WEIR_DECODED_NOTHING;
    assert_int_equal(weir_buf_read_slice(in, length, &bytes), 0);
    *out = &bytes->msg;
    return WEIR_DECODED_MESSAGE;
}

static void wrong_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = { .decode = decode_stream_wrongly };
    weir_decoder_init(weir_ctx_state(ctx), &type);
}

static const weir_handler_type wrong_handler = {
    .name = "wrong",
    .state_size = sizeof(weir_decoder),
    .added = wrong_added,
    WEIR_DECODER_CALLBACKS,
};

static int add_wrong(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "wrong", &wrong_handler, arg);
}

static int verify_wrong_stream(wrong what, size_t length, bool is_stream, weir_error *error)
{
    char bytes[512];
    memset(bytes, 'x', sizeof bytes);
    bytes[3] = '\n';
    bytes[length - 1] = what < DROPS_GOOD_BYTES ? '\n' : '!';
    weir_verifier_config config = {
        .init = add_wrong,
        .arg = &what,
        .input = bytes,
        .length = length,
        .decoder = "wrong",
        .random_cuts = 2,
        .is_stream = is_stream,
    };
    return weir_verify(&config, NULL, error);
}

static int verify_wrong(wrong what, size_t length, weir_error *error)
{
    return verify_wrong_stream(what, length, false, error);
}

/* A stream may come in any buffers, and stop a little earlier before an error; else it is the
 * same. */
static void the_verifier_knows_streams(void **state)
{
    (void)state;
    weir_error error;
    assert_int_equal(verify_wrong_stream(WHOLE_READS, 8, true, &error), 0);
    assert_int_equal(verify_wrong_stream(LOSES_STATE, 8, true, &error), -EBADMSG);
    assert_int_equal(verify_wrong_stream(DROPS_GOOD_BYTES, 8, true, &error), 0);
    assert_int_equal(verify_wrong_stream(DROPS_GOOD_BYTES, 8, false, &error), -EBADMSG);
    assert_int_equal(verify_wrong_stream(REFUSES_SELDOM, 8, true, &error), -EBADMSG);
}

static void the_verifier_finds_what_is_wrong(void **state)
{
    (void)state;
    weir_error error;
    assert_int_equal(verify_wrong(LOOKS_BACK, 512, &error), WEIR_ELIMIT);
    assert_non_null(strstr(error.message, "looked at too often"));
    assert_int_equal(verify_wrong(WHOLE_READS, 8, &error), -EBADMSG);
    assert_int_equal(verify_wrong(LOSES_STATE, 8, &error), -EBADMSG);
    assert_non_null(strstr(error.message, "byte by byte, closed after"));
    assert_int_equal(verify_wrong(LOOKS_BACK_AND_REFUSES, 501, &error), WEIR_ELIMIT);
    assert_int_equal(weir_verify(NULL, NULL, &error), -EINVAL);
    assert_int_equal(
        weir_verify(&(weir_verifier_config){ .init = add_frames, .length = 1 }, NULL, &error),
        -EINVAL);
}

/* Also where leaks are not looked for otherwise. */
static void the_verifier_finds_leaks(void **state)
{
    (void)state;
    weir_leak_mode mode = weir_leak_get_mode();
    for (int is_off = 0; is_off <= 1; is_off++) {
        weir_error error;
        weir_leak_set_mode(is_off ? WEIR_LEAK_OFF : mode);
        assert_int_equal(verify_wrong(LEAKS, 8, &error), -EEXIST);
        assert_non_null(strstr(error.message, "left alive"));
        assert_int_equal(weir_leak_get_mode(), is_off ? WEIR_LEAK_OFF : mode);
        weir_buf_release(leaked);
        leaked = NULL;
    }
    weir_leak_set_mode(mode);
}

/* Two decoders, one behind the other, a message of the second in several of the first. */
static int add_two(weir_channel *channel, void *arg)
{
    (void)arg;
    int code = add_frames(channel, (void *)&copying);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), "summer",
                                             &summer_handler, NULL);
}

static int add_frames_twice(weir_channel *channel, void *arg)
{
    int code = add_frames(channel, arg);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), "again",
                                             &frames_handler, arg);
}

static void decoders_stand_behind_each_other(void **state)
{
    (void)state;
    weir_embedded *embedded = embedded_with(add_two, NULL);
    write_text(embedded, "\2"
                         "12"
                         "\3"
                         "3\n4");
    codec_expect_text(embedded, "6");
    weir_embedded_free(embedded);
    for (int chains = 0; chains <= 1; chains++) {
        embedded = embedded_with(add_frames_twice, chains ? &chaining : &copying);
        write_text(embedded, "\3\5ab\2cd\2e\1\1f");
        codec_expect_text(embedded, "abcde");
        codec_expect_text(embedded, "f");
        codec_end(embedded);
    }
}

/* What others hold of a read is not written to, and a read-only one is fine. */
static void reads_stay_as_they_are(void **state)
{
    (void)state;
    for (int chains = 0; chains <= 1; chains++) {
        weir_embedded *embedded = embedded_with(add_frames, chains ? &chaining : &copying);
        weir_buf *whole = weir_buf_from("\5abXYZ", 6), *first, *read_only;
        assert_int_equal(weir_buf_duplicate(whole, &first), 0);
        assert_int_equal(weir_buf_set_writer(first, 3), 0);
        weir_buf_retain(first);
        assert_int_equal(weir_embedded_write_inbound(embedded, &first->msg), 0);
        write_text(embedded, "cd");
        assert_int_equal(weir_buf_writer(first), 3);
        weir_buf_release(first);
        codec_check_bytes(&whole->msg, "\5abXYZ", 6);
        weir_buf *rest = weir_buf_from("e\3g", 3);
        assert_int_equal(weir_buf_read_only(rest, &read_only), 0);
        weir_buf_release(rest);
        assert_int_equal(weir_embedded_write_inbound(embedded, &read_only->msg), 0);
        codec_expect_text(embedded, "abcde");
        write_text(embedded, "hi");
        codec_expect_text(embedded, "ghi");
        codec_end(embedded);
    }
}

/* Faults --------------------------------------------------------------------------------------- */

/* Each allocation fails once. */
static void without_memory_it_says_so(void **state)
{
    (void)state;
    for (int chains = 0; chains <= 1; chains++) {
        for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
            weir_embedded *embedded = embedded_with(add_frames, chains ? &chaining : &copying);
            weir_buf *reads[] = { weir_buf_from("\1a\4b", 4), weir_buf_from("cde\2f", 5),
                                  weir_buf_from("g\1", 2), weir_buf_from("h", 1) };
            size_t messages = 0;
            int code = 0;
            harness_fail_nth("pool", nth, -ENOMEM);
            for (size_t i = 0; i < 4; i++) {
                int result = weir_embedded_write_inbound(embedded, &reads[i]->msg);
                code = code == 0 ? result : code;
            }
            calls = harness_fail_end();
            messages = drain(embedded);
            assert_true(code == 0 ? messages == 4 : messages < 4);
            if (code < 0)
                assert_true(weir_embedded_take_error(embedded, NULL));
            codec_end(embedded);
        }
    }
}

/* A few bytes of a large read are copied; the next read is chained to them, which takes memory. */
static void without_memory_for_a_chain_it_says_so(void **state)
{
    (void)state;
    unsigned failures = 0;
    char frame[101] = { 100 };
    memset(frame + 1, 'x', 100);
    for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
        weir_embedded *embedded = embedded_with(add_frames, &chaining);
        weir_buf *large = weir_buf_new(4096), *rest = weir_buf_from(frame + 3, 98);
        assert_int_equal(weir_buf_write_bytes(large, frame, 3), 0);
        assert_int_equal(weir_embedded_write_inbound(embedded, &large->msg), 0);
        harness_fail_nth("pool", nth, -ENOMEM);
        int code = weir_embedded_write_inbound(embedded, &rest->msg);
        calls = harness_fail_end();
        failures += code < 0;
        assert_true(code == 0 || code == -ENOMEM);
        if (code == 0)
            codec_expect(embedded, frame + 1, 100);
        else
            assert_true(weir_embedded_take_error(embedded, NULL));
        assert_int_equal(weir_channel_is_open(weir_embedded_channel(embedded)), code == 0);
        codec_end(embedded);
    }
    assert_true(failures > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(messages_of_one_read_are_parts_of_it),
        weir_case(behind_a_message_that_straddles_nothing_is_copied),
        weir_case(few_bytes_do_not_keep_a_large_buffer),
        weir_case(what_is_no_buffer_passes),
        weir_case(what_is_refused_closes),
        weir_case(error_response_is_sent_before_the_end),
        weir_case(finish_without_the_decoder_closes_at_once),
        weir_case(what_is_refused_closes_whoever_is_removed),
        weir_case(who_is_removed_by_a_complaint_hands_the_rest_on),
        weir_case(behind_a_complaint_it_goes_on),
        weir_case(a_message_has_a_limit),
        weir_case(a_decoder_that_stands_still_is_stopped),
        weir_case(messages_without_bytes_are_counted),
        weir_case(an_end_inside_a_message_is_told),
        weir_case(the_end_can_make_a_message),
        weir_case(an_end_without_memory_is_told),
        weir_case(bytes_can_be_taken_as_they_come),
        weir_case(who_is_removed_hands_the_rest_on),
        weir_case(who_is_removed_looking_ahead_hands_the_rest_on),
        weir_case(the_rest_goes_to_the_one_in_its_place),
        weir_case(what_is_kept_goes_on_when_it_is_removed_between_reads),
        weir_case(what_comes_meanwhile_is_next),
        weir_case(what_comes_meanwhile_has_a_limit),
        weir_case(messages_of_a_read_come_although_one_closes),
        weir_case(in_single_mode_each_read_gives_one),
        weir_case(in_single_mode_what_waits_has_a_limit),
        weir_case(a_request_to_read_lasts_until_there_is_a_message),
        weir_case(nothing_is_lost_whatever_happens_meanwhile),
        weir_case(upgrade_fails_inside_a_pass_with_bytes_left),
        weir_case(it_can_have_an_executor_of_its_own),
        weir_case(however_the_bytes_come),
        weir_case(a_long_input_costs_in_proportion),
        weir_case(the_verifier_finds_what_is_wrong),
        weir_case(the_verifier_finds_leaks),
        weir_case(the_verifier_knows_streams),
        weir_case(decoders_stand_behind_each_other),
        weir_case(reads_stay_as_they_are),
        weir_case(without_memory_it_says_so),
        weir_case(without_memory_for_a_chain_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
