/* SPDX-License-Identifier: MIT */
/* The base of aggregators, with a protocol of letters: a start, content, a last part. */
#include "codec/codecs.h"

#include "exec/executors.h"

#include <weir/aggregator.h>
#include <weir/decoder.h>

/* The protocol --------------------------------------------------------------------------------- */

typedef struct letter_part {
    weir_msg msg;
    weir_part kind;
    int64_t announced;
    weir_buf *content; /* NULL: none */
} letter_part;

static void part_destroy(weir_msg *msg)
{
    letter_part *self = (letter_part *)msg;
    if (self->content != NULL)
        weir_buf_release(self->content);
    free(self);
}

static const weir_msg_type part_type = { .name = "part", .destroy = part_destroy };

static weir_msg *part_with(weir_part kind, int64_t announced, weir_buf *content)
{
    letter_part *self = calloc(1, sizeof *self);
    assert_non_null(self);
    weir_msg_init(&self->msg, &part_type);
    self->kind = kind;
    self->announced = announced;
    self->content = content;
    return &self->msg;
}

static weir_msg *part_of(weir_part kind, const char *content)
{
    size_t length = strlen(content);
    return part_with(kind, -1, length > 0 ? weir_buf_from(content, length) : NULL);
}

typedef struct letter {
    weir_msg msg;
    weir_buf *content; /* NULL: none */
    bool is_truncated, has_last;
} letter;

static void letter_destroy(weir_msg *msg)
{
    letter *self = (letter *)msg;
    if (self->content != NULL)
        weir_buf_release(self->content);
    free(self);
}

static const weir_msg_type letter_type = { .name = "letter", .destroy = letter_destroy };

/* What the handler of a test does, and saw. */
typedef struct post {
    weir_aggregator_limits limits;
    int code;      /* that `finish` fails with */
    bool is_empty; /* it makes nothing */
    int starts, oversizes;
    char in_start, in_oversize; /* c: closes, r: removes the handler, w: writes, f: fails, n: reads
                                   the start of the next one */
    bool has_no_oversize;
    weir_group *group;
    uint64_t copied;
    size_t most_pieces;
} post;

static weir_part letter_part_of(weir_ctx *ctx, const weir_msg *msg)
{
    (void)ctx;
    return msg->type == &part_type ? ((const letter_part *)msg)->kind : WEIR_PART_FOREIGN;
}

static const weir_buf *letter_content(weir_ctx *ctx, const weir_msg *msg)
{
    (void)ctx;
    return ((const letter_part *)msg)->content;
}

static int64_t letter_announced(weir_ctx *ctx, const weir_msg *start)
{
    (void)ctx;
    return ((const letter_part *)start)->announced;
}

static int letter_finish(weir_ctx *ctx, const weir_aggregate *parts, weir_msg **whole)
{
    post *office = weir_ctx_arg(ctx);
    assert_non_null(parts->start);
    assert_int_equal(parts->last == NULL, parts->is_truncated);
    if (office->code < 0 || office->is_empty)
        return office->code;
    letter *self = calloc(1, sizeof *self);
    weir_msg_init(&self->msg, &letter_type);
    self->content = parts->content != NULL ? weir_buf_retain(parts->content) : NULL;
    self->is_truncated = parts->is_truncated;
    self->has_last = parts->last != NULL;
    *whole = &self->msg;
    return 0;
}

static void act(weir_ctx *ctx, char what)
{
    if (what == 'c')
        weir_ctx_close(ctx, NULL);
    if (what == 'r')
        weir_ctx_remove(ctx);
    if (what == 'f')
        weir_ctx_fail(ctx, -EPERM, "not here");
    if (what == 'n') /* the next one begins, once */
        weir_pipeline_fire_read(weir_ctx_pipeline(ctx), part_of(WEIR_PART_START, "12345"));
    if (what == 'w')
        weir_ctx_write_and_flush(ctx, weir_buf_msg(weir_buf_from("answer", 6)), NULL);
}

static void letter_on_start(weir_ctx *ctx, const weir_msg *start)
{
    post *office = weir_ctx_arg(ctx);
    assert_non_null(start);
    office->starts++;
    act(ctx, office->in_start);
}

static void letter_on_oversize(weir_ctx *ctx, const weir_msg *start)
{
    post *office = weir_ctx_arg(ctx);
    assert_non_null(start);
    char what = office->oversizes++ > 0 && office->in_oversize == 'n' ? 0 : office->in_oversize;
    act(ctx, what);
}

static const weir_aggregator_type letters = {
    .part = letter_part_of,
    .content = letter_content,
    .announced = letter_announced,
    .finish = letter_finish,
    .on_start = letter_on_start,
    .on_oversize = letter_on_oversize,
};

static const weir_aggregator_type plain_letters = {
    .part = letter_part_of,
    .content = letter_content,
    .finish = letter_finish,
};

static void letter_added(weir_ctx *ctx)
{
    const post *office = weir_ctx_arg(ctx);
    weir_aggregator_init(ctx, office->has_no_oversize ? &plain_letters : &letters, &office->limits);
}

static void letter_on_read(weir_ctx *ctx, weir_msg *msg)
{
    const weir_aggregator *self = weir_ctx_state(ctx);
    post *office = weir_ctx_arg(ctx);
    weir_aggregator_on_read(ctx, msg);
    size_t pieces = weir_buf_composite_count(self->chain);
    office->copied = self->copied;
    office->most_pieces = pieces > office->most_pieces ? pieces : office->most_pieces;
}

static const weir_handler_type letter_handler = {
    .name = "letters",
    .state_size = sizeof(weir_aggregator),
    .added = letter_added,
    .removed = weir_aggregator_removed,
    .on_read = letter_on_read,
    .on_read_complete = weir_aggregator_on_read_complete,
    .on_event = weir_aggregator_on_event,
    .held_reads = weir_aggregator_held,
    .on_inactive = weir_aggregator_on_inactive,
};

static const weir_handler_type macro_handler = {
    .name = "letters",
    .state_size = sizeof(weir_aggregator),
    .added = letter_added,
    WEIR_AGGREGATOR_CALLBACKS,
};

static int add_letters(weir_channel *channel, void *arg)
{
    post *office = arg;
    weir_handler_config config = { .type = &letter_handler, .name = "codec", .arg = office };
    config.place = WEIR_PLACE_LAST;
    config.group = office->group;
    return weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
}

static weir_embedded *open_post(post *office)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_letters, .arg = office };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void feed(weir_embedded *embedded, weir_part kind, const char *content)
{
    weir_embedded_write_inbound(embedded, part_of(kind, content));
}

static void expect_letter(weir_embedded *embedded, const char *content, bool is_truncated)
{
    letter *self = (letter *)weir_embedded_read_inbound(embedded);
    assert_non_null(self);
    assert_ptr_equal(self->msg.type, &letter_type);
    assert_int_equal(self->is_truncated, is_truncated);
    assert_int_equal(self->has_last, !is_truncated);
    char found[256];
    size_t length = weir_buf_readable(self->content);
    assert_int_equal(length, strlen(content));
    if (length > 0)
        assert_int_equal(
            weir_buf_get_bytes(self->content, weir_buf_reader(self->content), found, length), 0);
    assert_memory_equal(found, content, length);
    weir_msg_release(&self->msg);
}

static void expect_nothing(weir_embedded *embedded)
{
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
}

/* Wholes --------------------------------------------------------------------------------------- */

static void parts_become_one(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = 100 } };
    weir_embedded *embedded = open_post(&office);
    feed(embedded, WEIR_PART_START, "");
    assert_int_equal(office.starts, 1);
    feed(embedded, WEIR_PART_CONTENT, "dear ");
    feed(embedded, WEIR_PART_CONTENT, "");
    feed(embedded, WEIR_PART_CONTENT, "friend");
    expect_nothing(embedded);
    feed(embedded, WEIR_PART_LAST, "!");
    expect_letter(embedded, "dear friend!", false);
    feed(embedded, WEIR_PART_START, "a");
    feed(embedded, WEIR_PART_LAST, "");
    expect_letter(embedded, "a", false);
    feed(embedded, WEIR_PART_ALL, "at once");
    expect_letter(embedded, "at once", false);
    assert_int_equal(office.starts, 2); /* nothing was to come */
    feed(embedded, WEIR_PART_START, "");
    feed(embedded, WEIR_PART_LAST, "");
    letter *empty = (letter *)weir_embedded_read_inbound(embedded);
    assert_null(empty->content);
    weir_msg_release(&empty->msg);
    codec_end(embedded);
}

static void what_is_foreign_passes(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = 100 } };
    weir_embedded *embedded = open_post(&office);
    feed(embedded, WEIR_PART_START, "a");
    weir_embedded_write_inbound_bytes(embedded, "foreign", 7);
    codec_expect_text(embedded, "foreign");
    feed(embedded, WEIR_PART_LAST, "b");
    expect_letter(embedded, "ab", false);
    codec_end(embedded);
}

/* Large pieces are chained as they are, small ones copied together: never many pieces. */
static weir_buf *filled(size_t length, uint8_t byte)
{
    weir_buf *buf = weir_buf_new(length);
    assert_int_equal(weir_buf_write_fill(buf, byte, length), 0);
    return buf;
}

static void content_is_not_copied(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = 1000000 } };
    weir_embedded *embedded = open_post(&office);
    feed(embedded, WEIR_PART_START, "");
    const uint8_t *places[3];
    for (uint8_t i = 0; i < 3; i++) {
        weir_buf *piece = filled(5000, i);
        places[i] = weir_buf_peek(piece, 0, 5000);
        weir_embedded_write_inbound(embedded, part_with(WEIR_PART_CONTENT, -1, piece));
    }
    feed(embedded, WEIR_PART_CONTENT, "small");
    feed(embedded, WEIR_PART_LAST, "ones");
    assert_int_equal(office.copied, 9);
    letter *self = (letter *)weir_embedded_read_inbound(embedded);
    assert_int_equal(weir_buf_composite_count(self->content), 4);
    for (size_t i = 0; i < 3; i++)
        assert_ptr_equal(weir_buf_peek(self->content, i * 5000, 5000), places[i]);
    weir_msg_release(&self->msg);
    codec_end(embedded);
}

/* However the bytes are cut, pieces and copies stay few. */
static void many_small_pieces_make_few_large_ones(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    post office = { .limits = { .max_bytes = COUNT } };
    weir_embedded *embedded = open_post(&office);
    weir_embedded_write_inbound_part(embedded, part_of(WEIR_PART_START, ""));
    weir_buf *byte = filled(1, 'x');
    weir_msg *part = part_with(WEIR_PART_CONTENT, -1, byte);
    for (int i = 0; i < COUNT; i++)
        weir_embedded_write_inbound_part(embedded, weir_msg_retain(part));
    weir_msg_release(part);
    feed(embedded, WEIR_PART_LAST, "");
    assert_int_equal(office.copied, COUNT);
    assert_int_equal(office.most_pieces, 0);
    letter *self = (letter *)weir_embedded_read_inbound(embedded);
    assert_int_equal(weir_buf_readable(self->content), COUNT);
    assert_true(weir_buf_capacity(self->content) <= 2 * COUNT);
    weir_msg_release(&self->msg);
    codec_end(embedded);
}

/* Large and small in turn, and composites of small ones, up to the limit of pieces. */
static void pieces_are_limited(void **state)
{
    (void)state;
    for (int is_composite = 0; is_composite < 2; is_composite++) {
        post office = { .limits = { .max_bytes = 10000000 } };
        office.limits.max_pieces = is_composite ? 1000000 : 50;
        weir_embedded *embedded = open_post(&office);
        size_t total = 0;
        feed(embedded, WEIR_PART_START, "");
        for (int i = 0; i < 500; i++) {
            weir_buf *piece = filled(2000, (uint8_t)i);
            if (is_composite) {
                weir_buf *part = piece;
                piece = weir_buf_new_composite();
                for (size_t at = 0; at < 2000; at += 10) {
                    weir_buf *slice;
                    assert_int_equal(weir_buf_retained_slice(part, at, 10, &slice), 0);
                    weir_buf_composite_add(piece, slice);
                }
                weir_buf_release(part);
            }
            weir_embedded_write_inbound(embedded, part_with(WEIR_PART_CONTENT, -1, piece));
            feed(embedded, WEIR_PART_CONTENT, "s");
            total += 2001;
        }
        feed(embedded, WEIR_PART_LAST, "");
        assert_true(office.most_pieces <= (is_composite ? 0 : 50));
        assert_true(office.copied <= total);
        letter *self = (letter *)weir_embedded_read_inbound(embedded);
        assert_int_equal(weir_buf_readable(self->content), total);
        assert_true(weir_buf_composite_count(self->content) <= 51);
        for (size_t i = 0; i < 500; i++) {
            uint8_t byte;
            assert_int_equal(weir_buf_get_u8(self->content, i * 2001 + 1999, &byte), 0);
            assert_int_equal(byte, (uint8_t)i);
            assert_int_equal(weir_buf_get_u8(self->content, i * 2001 + 2000, &byte), 0);
            assert_int_equal(byte, 's');
        }
        weir_msg_release(&self->msg);
        codec_end(embedded);
    }
}

/* Limits --------------------------------------------------------------------------------------- */

static void the_limit_is_what_fits(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = 4 } };
    weir_embedded *embedded = open_post(&office);
    feed(embedded, WEIR_PART_START, "12");
    feed(embedded, WEIR_PART_CONTENT, "34");
    feed(embedded, WEIR_PART_CONTENT, "");
    feed(embedded, WEIR_PART_LAST, "");
    expect_letter(embedded, "1234", false);
    weir_embedded_write_inbound(embedded, part_with(WEIR_PART_START, 4, NULL));
    feed(embedded, WEIR_PART_LAST, "1234");
    expect_letter(embedded, "1234", false);
    codec_end(embedded);
}

/* In the start, in the middle, in the last part, all at once, or announced. */
static void feed_too_much(weir_embedded *embedded, int where)
{
    if (where == 3) {
        feed(embedded, WEIR_PART_ALL, "12345");
        return;
    }
    if (where == 4)
        weir_embedded_write_inbound(embedded, part_with(WEIR_PART_START, 5, NULL));
    else
        feed(embedded, WEIR_PART_START, where == 0 ? "12345" : "12");
    feed(embedded, WEIR_PART_CONTENT, where == 1 ? "345" : "34");
    feed(embedded, WEIR_PART_LAST, "5");
}

static void too_much_closes(void **state)
{
    (void)state;
    for (int where = 0; where < 5; where++) {
        post office = { .limits = { .max_bytes = 4 } };
        weir_embedded *embedded = open_post(&office);
        feed_too_much(embedded, where);
        codec_expect_error(embedded, WEIR_ELIMIT, "a message is longer than 4 bytes");
        assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        assert_int_equal(office.oversizes, 0);
        expect_nothing(embedded);
        codec_end(embedded);
    }
}

static void what_is_refused_closes_whoever_is_removed(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = 4 } };
    codec_closes_although_removed(open_post(&office), part_of(WEIR_PART_ALL, "12345"), WEIR_ELIMIT);
    codec_closes_although_removed(open_post(&office), part_of(WEIR_PART_LAST, ""), -EPROTO);
}

/* What is read between the refusal and the end of the channel does not go on. */
static void burst_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_fire_read(ctx, part_of(WEIR_PART_START, "12345"));
    weir_ctx_fire_read(ctx, part_of(WEIR_PART_LAST, ""));
    weir_ctx_fire_read(ctx, part_of(WEIR_PART_ALL, "next"));
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type burst = { .name = "burst", .on_read = burst_on_read };

static void behind_what_is_refused_nothing_goes_on(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = 4 } };
    weir_embedded *embedded = open_post(&office);
    weir_pipeline_add_first(weir_embedded_pipeline(embedded), "burst", &burst, NULL);
    weir_embedded_write_inbound_bytes(embedded, "foreign", 7);
    codec_expect_error(embedded, WEIR_ELIMIT, "a message is longer than 4 bytes");
    assert_false(weir_embedded_take_error(embedded, NULL));
    codec_expect_text(embedded, "foreign");
    expect_nothing(embedded);
    codec_end(embedded);
}

static void too_much_is_skipped_and_answered(void **state)
{
    (void)state;
    for (int where = 0; where < 5; where++) {
        post office = { .limits = { 4, WEIR_AGGREGATOR_SKIP, 0 }, .in_oversize = 'w' };
        weir_embedded *embedded = open_post(&office);
        feed_too_much(embedded, where);
        assert_int_equal(office.oversizes, 1);
        assert_int_equal(office.starts, where == 1 || where == 2 ? 1 : 0);
        codec_expect_written(embedded, "answer", 6);
        expect_nothing(embedded);
        feed(embedded, WEIR_PART_START, "a");
        feed(embedded, WEIR_PART_LAST, "b");
        expect_letter(embedded, "ab", false);
        codec_end(embedded);
    }
}

/* Who was told that it is too long need not send the rest; but content without a start is wrong
 * behind the last part. */
static void behind_what_is_skipped_a_start_may_come(void **state)
{
    (void)state;
    post office = { .limits = { 4, WEIR_AGGREGATOR_SKIP, 0 } };
    weir_embedded *embedded = open_post(&office);
    weir_embedded_write_inbound(embedded, part_with(WEIR_PART_START, 5, NULL));
    feed(embedded, WEIR_PART_ALL, "next");
    expect_letter(embedded, "next", false);
    codec_end(embedded);
    for (int is_all = 0; is_all < 2; is_all++) {
        embedded = open_post(&office);
        weir_part kind = is_all ? WEIR_PART_ALL : WEIR_PART_START;
        weir_embedded_write_inbound(embedded, part_with(kind, 5, NULL));
        if (!is_all)
            feed(embedded, WEIR_PART_LAST, "");
        feed(embedded, WEIR_PART_CONTENT, "no start");
        codec_expect_error(embedded, -EPROTO, "a part of a message comes without its start");
        codec_end(embedded);
    }
    assert_int_equal(office.oversizes, 3);
}

static void without_a_callback_too_much_is_an_error(void **state)
{
    (void)state;
    post office = { .limits = { 4, WEIR_AGGREGATOR_SKIP, 0 }, .has_no_oversize = true };
    weir_embedded *embedded = open_post(&office);
    feed_too_much(embedded, 1);
    codec_expect_error(embedded, WEIR_ELIMIT, "a message is longer than 4 bytes");
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    feed(embedded, WEIR_PART_ALL, "next");
    expect_letter(embedded, "next", false);
    codec_end(embedded);
}

static void too_much_is_handed_on_truncated(void **state)
{
    (void)state;
    for (int where = 0; where < 5; where++) {
        post office = { .limits = { 4, WEIR_AGGREGATOR_TRUNCATE, 0 } };
        weir_embedded *embedded = open_post(&office);
        feed_too_much(embedded, where);
        if (where == 4)
            expect_letter(embedded, "345", false); /* what is announced need not come */
        else
            expect_letter(embedded, "1234", true);
        feed(embedded, WEIR_PART_ALL, "next");
        expect_letter(embedded, "next", false);
        codec_end(embedded);
    }
}

static void a_limit_must_be_chosen(void **state)
{
    (void)state;
    static const post offices[] = {
        { .limits = { .max_bytes = 0 } },
        { .limits = { .max_bytes = 0, .oversize = WEIR_AGGREGATOR_SKIP } },
        { .limits = { .max_bytes = (size_t)WEIR_BUF_MAX + 1 } },
        { .limits = { .max_bytes = 1, .oversize = (weir_aggregator_oversize)9 } },
    };
    for (size_t i = 0; i < sizeof offices / sizeof *offices; i++)
        codec_is_refused(&macro_handler, &offices[i]);
}

/* Nothing is allocated because somebody announces it. */
static void announcing_costs_nothing(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = WEIR_BUF_MAX } };
    weir_embedded *embedded = open_post(&office);
    weir_msg *start = part_with(WEIR_PART_START, 0x70000000, NULL);
    harness_fail_nth("pool", 100000, -ENOMEM); /* to count them */
    weir_embedded_write_inbound(embedded, start);
    assert_int_equal(harness_fail_end(), 0);
    weir_embedded_write_inbound(embedded, part_of(WEIR_PART_LAST, "little"));
    expect_letter(embedded, "little", false);
    codec_end(embedded);
}

/* Ends in the middle --------------------------------------------------------------------------- */

static void parts_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const weir_part rows[][2] = {
        { WEIR_PART_CONTENT, WEIR_PART_FOREIGN },
        { WEIR_PART_LAST, WEIR_PART_FOREIGN },
        { WEIR_PART_START, WEIR_PART_START },
        { WEIR_PART_START, WEIR_PART_ALL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        post office = { .limits = { 4, WEIR_AGGREGATOR_SKIP, 0 } };
        weir_embedded *embedded = open_post(&office);
        feed(embedded, rows[i][0], "x");
        if (rows[i][1] != WEIR_PART_FOREIGN)
            feed(embedded, rows[i][1], "y");
        codec_expect_error(embedded, -EPROTO,
                           i < 2 ? "a part of a message comes without its start"
                                 : "a message begins inside another one");
        assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        codec_end(embedded);
    }
}

static void the_end_inside_a_message_is_told(void **state)
{
    (void)state;
    for (int is_half = 0; is_half < 2; is_half++) {
        post office = { .limits = { .max_bytes = 100 } };
        weir_embedded *embedded = open_post(&office);
        weir_channel *channel = weir_embedded_channel(embedded);
        weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, is_half, NULL);
        feed(embedded, WEIR_PART_START, "123");
        weir_embedded_end_inbound(embedded, 0);
        codec_expect_error(embedded, WEIR_EOF,
                           "the stream ends inside a message, behind 3 bytes of its content");
        codec_end(embedded);
    }
    post office = { .limits = { 2, WEIR_AGGREGATOR_SKIP, 0 } };
    weir_embedded *embedded = open_post(&office);
    feed(embedded, WEIR_PART_START, "123");
    codec_end(embedded); /* nobody misses what was skipped */
}

static int remove_letters(void *arg)
{
    return weir_pipeline_remove(arg, "codec", NULL);
}

static void the_removal_inside_a_message_is_told(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = 100 } };
    weir_embedded *embedded = open_post(&office);
    feed(embedded, WEIR_PART_START, "123");
    weir_embedded_call(embedded, remove_letters, weir_embedded_pipeline(embedded));
    weir_embedded_run(embedded);
    codec_expect_error(embedded, -ECANCELED,
                       "the aggregator was removed inside a message, behind 3 bytes of its "
                       "content");
    feed(embedded, WEIR_PART_CONTENT, "passes");
    weir_msg *part = weir_embedded_read_inbound(embedded);
    assert_ptr_equal(part->type, &part_type);
    weir_msg_release(part);
    codec_end(embedded);
}

static void upgrade_fails_inside_a_message(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) { /* outside, begun, inside, skipping the rest */
        post office = { .limits = { 4, WEIR_AGGREGATOR_SKIP, 0 } };
        weir_embedded *embedded = open_post(&office);
        if (kind == 0)
            feed(embedded, WEIR_PART_ALL, "abc");
        else
            feed(embedded, WEIR_PART_START, kind == 1 ? "" : kind == 2 ? "abc" : "abcde");
        codec_upgrade(embedded, kind > 0);
        if (kind == 0)
            expect_letter(embedded, "abc", false);
        expect_nothing(embedded);
        codec_end(embedded);
    }
}

static void what_cannot_be_put_together_is_told(void **state)
{
    (void)state;
    for (int is_empty = 0; is_empty < 2; is_empty++) {
        post office = { .limits = { .max_bytes = 100 }, .is_empty = is_empty };
        office.code = is_empty ? 0 : -EBADMSG;
        weir_embedded *embedded = open_post(&office);
        feed(embedded, WEIR_PART_START, "1");
        feed(embedded, WEIR_PART_LAST, "2");
        codec_expect_error(embedded, is_empty ? -EPROTO : -EBADMSG,
                           "a message could not be put together");
        assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
        codec_end(embedded);
    }
}

/* Inside callbacks ----------------------------------------------------------------------------- */

static void everything_is_allowed_in_the_callbacks(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        bool is_start = i & 1;
        char what = "crwf"[i / 4];
        bool is_announced = i & 2;
        post office = { .limits = { 4, WEIR_AGGREGATOR_SKIP, 0 } };
        *(is_start ? &office.in_start : &office.in_oversize) = what;
        weir_embedded *embedded = open_post(&office);
        if (!is_start && is_announced)
            weir_embedded_write_inbound(embedded, part_with(WEIR_PART_START, 5, NULL));
        else
            feed(embedded, WEIR_PART_START, is_start ? "1" : "12345");
        if (weir_channel_is_open(weir_embedded_channel(embedded))) {
            feed(embedded, WEIR_PART_CONTENT, "2");
            feed(embedded, WEIR_PART_LAST, "3");
        }
        assert_int_equal(office.starts + office.oversizes, 1);
        weir_embedded_take_error(embedded, NULL);
        while (weir_embedded_inbound_count(embedded) > 0)
            weir_msg_release(weir_embedded_read_inbound(embedded));
        while (weir_embedded_outbound_count(embedded) > 0)
            weir_msg_release(weir_embedded_read_outbound(embedded));
        codec_end(embedded);
    }
}

/* A handler behind it that closes, removes the aggregator, or reads the next parts at once. */
typedef struct reader {
    char what;
    int depth;
    unsigned letters;
} reader;

static void reader_on_read(weir_ctx *ctx, weir_msg *msg)
{
    reader *self = weir_ctx_arg(ctx);
    weir_pipeline *pipeline = weir_ctx_pipeline(ctx);
    weir_msg_release(msg);
    self->letters++;
    if (self->what == 'c')
        weir_ctx_close(ctx, NULL);
    if (self->what == 'r')
        weir_pipeline_remove(pipeline, "codec", NULL);
    if (self->what == 's' && self->depth++ == 0)
        weir_pipeline_fire_read(pipeline, part_of(WEIR_PART_START, "12345"));
    if (self->what == 'n' && self->depth++ < 3) {
        weir_pipeline_fire_read(pipeline, part_of(WEIR_PART_START, "12"));
        weir_pipeline_fire_read(pipeline, part_of(WEIR_PART_LAST, "34567"));
    }
}

static const weir_handler_type reader_handler = { .name = "reader", .on_read = reader_on_read };

static void everything_is_allowed_to_who_gets_it(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        reader self = { .what = "crn"[i / 2] };
        bool is_truncated = i % 2;
        post office = { .limits = { 4, WEIR_AGGREGATOR_TRUNCATE, 0 } };
        weir_embedded *embedded = open_post(&office);
        weir_pipeline_add_last(weir_embedded_pipeline(embedded), "reader", &reader_handler, &self);
        feed(embedded, WEIR_PART_START, "12");
        feed(embedded, WEIR_PART_LAST, is_truncated ? "345" : "34");
        assert_int_equal(self.letters, self.what == 'n' ? 4 : 1);
        codec_end(embedded);
    }
}

/* The next message comes while the last part of one is found too long, and is too long itself: the
 * rest of that is skipped, not that of the first. */
static void the_next_one_may_come_while_one_is_too_long(void **state)
{
    (void)state;
    for (weir_aggregator_oversize oversize = WEIR_AGGREGATOR_SKIP;
         oversize <= WEIR_AGGREGATOR_TRUNCATE; oversize++) {
        bool is_truncated = oversize == WEIR_AGGREGATOR_TRUNCATE;
        for (int is_all = 0; is_all <= 1; is_all++) {
            post office = { .limits = { 4, oversize, 0 }, .in_oversize = 'n' };
            reader self = { .what = is_truncated ? 's' : 0 };
            weir_embedded *embedded = open_post(&office);
            weir_pipeline_add_last(weir_embedded_pipeline(embedded), "reader", &reader_handler,
                                   &self);
            if (!is_all)
                feed(embedded, WEIR_PART_START, "12");
            feed(embedded, is_all ? WEIR_PART_ALL : WEIR_PART_LAST, "34567");
            feed(embedded, WEIR_PART_CONTENT, "rest of the second");
            feed(embedded, WEIR_PART_LAST, "and its end");
            feed(embedded, WEIR_PART_ALL, "next");
            assert_int_equal(self.letters, is_truncated ? 3 : 1);
            assert_int_equal(office.oversizes, is_truncated ? 0 : 2);
            codec_end(embedded);
        }
    }
}

/* Elsewhere ------------------------------------------------------------------------------------ */

static void it_can_have_an_executor_of_its_own(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = 100 }, .group = new_group_of(1) };
    weir_embedded *embedded = open_post(&office);
    for (int i = 0; i < 50; i++) {
        feed(embedded, WEIR_PART_START, "1");
        feed(embedded, WEIR_PART_CONTENT, "2");
        feed(embedded, WEIR_PART_LAST, "3");
    }
    feed(embedded, WEIR_PART_START, "and no end");
    for (int i = 0; i < 50; i++) {
        WAIT_FOR_STEPPING(weir_embedded_inbound_count(embedded) != 0, weir_embedded_run(embedded));
        expect_letter(embedded, "123", false);
    }
    weir_embedded_close(embedded);
    WAIT_FOR_STEPPING(weir_embedded_take_error(embedded, NULL), weir_embedded_run(embedded));
    weir_embedded_free(embedded);
    end_group(office.group);
}

/* Without auto-read it asks for as many reads as a message takes. */
static void it_reads_until_there_is_one(void **state)
{
    (void)state;
    post office = { .limits = { .max_bytes = 100 } };
    weir_embedded *embedded = open_post(&office);
    weir_channel_set_option(weir_embedded_channel(embedded), WEIR_OPTION_AUTO_READ, 0, NULL);
    weir_embedded_run(embedded);
    assert_false(weir_embedded_is_reading(embedded));
    weir_channel_read(weir_embedded_channel(embedded));
    weir_embedded_run(embedded);
    feed(embedded, WEIR_PART_START, "1");
    assert_true(weir_embedded_is_reading(embedded));
    feed(embedded, WEIR_PART_CONTENT, "2");
    assert_true(weir_embedded_is_reading(embedded));
    feed(embedded, WEIR_PART_LAST, "3");
    assert_false(weir_embedded_is_reading(embedded));
    expect_letter(embedded, "123", false);
    weir_embedded_write_inbound_part(embedded, part_of(WEIR_PART_ALL, "4"));
    weir_embedded_write_inbound_part(embedded, part_of(WEIR_PART_START, "5"));
    weir_embedded_end_batch(embedded); /* there was one: the next is asked for by who wants it */
    assert_false(weir_embedded_is_reading(embedded));
    expect_letter(embedded, "4", false);
    feed(embedded, WEIR_PART_LAST, "6");
    expect_letter(embedded, "56", false);
    codec_end(embedded);
}

/* Behind a decoder, from bytes: a letter says which part it is, a digit how long it is. ----------
 */

static weir_decoded decode_part(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    uint8_t head[2];
    weir_buf *content = NULL;
    if (weir_buf_readable(in) < 2)
        return WEIR_DECODED_NOTHING;
    weir_buf_get_bytes(in, weir_buf_reader(in), head, 2);
    const char *kind = memchr("SCLA", head[0], 4);
    size_t length = (size_t)(head[1] - '0');
    if (kind == NULL || head[1] < '0' || head[1] > '9')
        return weir_decoder_refuse(ctx, -EPROTO, "no part");
    if (weir_buf_readable(in) < 2 + length)
        return WEIR_DECODED_NOTHING;
    weir_buf_skip(in, 2);
    if (length > 0 && weir_buf_read_slice(in, length, &content) < 0)
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory");
    *out = part_with((weir_part)(WEIR_PART_START + (kind - (const char *)memchr("SCLA", 'S', 4))),
                     -1, content);
    return WEIR_DECODED_MESSAGE;
}

static const weir_decoder_type part_decoder = { .decode = decode_part, .max_message = 11 };

static void decoder_added(weir_ctx *ctx)
{
    weir_decoder_init(weir_ctx_state(ctx), &part_decoder);
}

static const weir_handler_type part_handler = {
    .name = "parts",
    .state_size = sizeof(weir_decoder),
    .added = decoder_added,
    WEIR_DECODER_CALLBACKS,
};

/* The content alone, so that it can be compared. */
static int finish_bytes(weir_ctx *ctx, const weir_aggregate *parts, weir_msg **whole)
{
    (void)ctx;
    weir_buf *content = parts->content != NULL ? weir_buf_retain(parts->content) : weir_buf_new(0);
    *whole = weir_buf_msg(content);
    return content != NULL ? 0 : -ENOMEM;
}

static const weir_aggregator_type byte_letters = {
    .part = letter_part_of,
    .content = letter_content,
    .finish = finish_bytes,
};

static void bytes_added(weir_ctx *ctx)
{
    weir_aggregator_init(ctx, &byte_letters, weir_ctx_arg(ctx));
}

static const weir_handler_type byte_handler = {
    .name = "letters",
    .state_size = sizeof(weir_aggregator),
    .added = bytes_added,
    WEIR_AGGREGATOR_CALLBACKS,
};

static int add_decoder_too(weir_channel *channel, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "codec", &part_handler, NULL);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "letters", &byte_handler, arg);
}

static void verify(weir_aggregator_limits limits, const char *input, unsigned messages,
                   unsigned errors)
{
    weir_verifier_config config = {
        .init = add_decoder_too,
        .arg = &limits,
        .input = input,
        .length = strlen(input),
        .decoder = "codec",
        .random_cuts = 8,
    };
    weir_verifier_report report;
    weir_error error;
    if (weir_verify(&config, &report, &error) < 0)
        fail_msg("%s", error.message);
    if (report.messages != messages || report.errors != errors)
        fail_msg("%s: %u messages, %u errors", input, (unsigned)report.messages,
                 (unsigned)report.errors);
}

static void however_the_bytes_come_the_same_comes_of_them(void **state)
{
    (void)state;
    weir_aggregator_limits limits = { .max_bytes = 8 };
    verify(limits, "S0C3abcC0L2deA3fghS1iL0S5", 3, 0);
    verify(limits, "S4abcdC5efghi", 0, 1); /* what is closed for comes last */
    verify(limits, "A1aC1b", 1, 1);
    verify(limits, "S1aS1b", 0, 1);
    limits.oversize = WEIR_AGGREGATOR_SKIP;
    verify(limits, "S4abcdC5efghiC1xL0A1x", 1, 1);
    limits.oversize = WEIR_AGGREGATOR_TRUNCATE;
    verify(limits, "S4abcdC5efghiC1xL0A1xS9abcdefghiA9abcdefghiL", 4, 0);
}

/* Faults --------------------------------------------------------------------------------------- */

/* Whichever buffer there is no memory for: the letters before are whole and in order, and if one is
 * missing the channel is closed. */
static void every_allocation_may_fail_once(void **state)
{
    (void)state;
    bool has_failed = true;
    for (unsigned nth = 1; has_failed; nth++) {
        post office = { .limits = { .max_bytes = 100000 } };
        weir_embedded *embedded = open_post(&office);
        weir_msg *parts[7] = {
            part_of(WEIR_PART_START, "1"),   part_with(WEIR_PART_CONTENT, -1, filled(3000, 'x')),
            part_of(WEIR_PART_CONTENT, "2"), part_with(WEIR_PART_CONTENT, -1, filled(3000, 'x')),
            part_of(WEIR_PART_LAST, "3"),    part_of(WEIR_PART_START, "12"),
            part_of(WEIR_PART_LAST, "3"),
        };
        harness_fail_nth("pool", nth, -ENOMEM);
        for (int i = 0; i < 7; i++)
            weir_embedded_write_inbound(embedded, parts[i]);
        has_failed = harness_fail_end() >= nth;
        size_t count = weir_embedded_inbound_count(embedded);
        assert_true(count == 2 ||
                    (has_failed && !weir_channel_is_open(weir_embedded_channel(embedded))));
        for (size_t i = 0; i < count; i++) {
            letter *self = (letter *)weir_embedded_read_inbound(embedded);
            assert_int_equal(weir_buf_readable(self->content), i == 0 ? 6003 : 3);
            weir_msg_release(&self->msg);
        }
        weir_embedded_free(embedded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(parts_become_one),
        weir_case(what_is_foreign_passes),
        weir_case(content_is_not_copied),
        weir_case(many_small_pieces_make_few_large_ones),
        weir_case(pieces_are_limited),
        weir_case(the_limit_is_what_fits),
        weir_case(too_much_closes),
        weir_case(what_is_refused_closes_whoever_is_removed),
        weir_case(behind_what_is_refused_nothing_goes_on),
        weir_case(too_much_is_skipped_and_answered),
        weir_case(behind_what_is_skipped_a_start_may_come),
        weir_case(without_a_callback_too_much_is_an_error),
        weir_case(too_much_is_handed_on_truncated),
        weir_case(a_limit_must_be_chosen),
        weir_case(announcing_costs_nothing),
        weir_case(parts_that_do_not_fit_are_refused),
        weir_case(the_end_inside_a_message_is_told),
        weir_case(the_removal_inside_a_message_is_told),
        weir_case(upgrade_fails_inside_a_message),
        weir_case(what_cannot_be_put_together_is_told),
        weir_case(everything_is_allowed_in_the_callbacks),
        weir_case(everything_is_allowed_to_who_gets_it),
        weir_case(the_next_one_may_come_while_one_is_too_long),
        weir_case(it_can_have_an_executor_of_its_own),
        weir_case(it_reads_until_there_is_one),
        weir_case(however_the_bytes_come_the_same_comes_of_them),
        weir_case(every_allocation_may_fail_once),
    };
    return cmocka_run_group_tests_name("codec.aggregator", tests, NULL, NULL);
}
