/* SPDX-License-Identifier: MIT */
/* The two ends of a channel: when it reads, half-closure, shutdown and finish. */
#include "channel/story.h"

/* Reading -------------------------------------------------------------------------------------- */

static int set_auto_read(weir_channel *channel, bool is_auto_read)
{
    return weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, is_auto_read, NULL);
}

static int no_auto_read(weir_channel *channel, void *arg)
{
    if (arg != NULL)
        add_recorder(channel, arg);
    return set_auto_read(channel, false);
}

/* A batch of one message, and whether the channel wants another one. */
static bool batch(weir_embedded *e)
{
    assert_true(weir_embedded_is_reading(e));
    assert_int_equal(weir_embedded_write_inbound_bytes(e, "x", 1), 0);
    return weir_embedded_is_reading(e);
}

static void with_auto_read_it_reads_on_and_on(void **state)
{
    (void)state;
    story to = STORY;
    weir_embedded *e = open_recorded(&to);
    for (int i = 0; i < 3; i++)
        assert_true(batch(e));
    story_is(&to, "added registered active read(x) complete read(x) complete read(x) complete");
    weir_embedded_close(e);
    assert_false(weir_embedded_is_reading(e));
    weir_embedded_free(e);
}

static void without_auto_read_each_read_is_one_batch(void **state)
{
    (void)state;
    story to = STORY;
    weir_embedded *e = open_embedded(&(weir_embedded_config){ .init = no_auto_read, .arg = &to });
    weir_channel *channel = weir_embedded_channel(e);
    assert_false(weir_embedded_is_reading(e));
    for (int i = 0; i < 2; i++) {
        weir_channel_read(channel);
        weir_channel_read(channel); /* is the same wish */
        weir_embedded_run(e);
        assert_true(weir_embedded_is_reading(e));
        /* A batch is over with its end, not with its first message. */
        weir_embedded_write_inbound_part(e, text_msg("a"));
        assert_true(weir_embedded_is_reading(e));
        weir_embedded_write_inbound_part(e, text_msg("b"));
        assert_true(weir_embedded_is_reading(e));
        weir_embedded_end_batch(e);
        assert_false(weir_embedded_is_reading(e));
    }
    story_is(&to, "added registered active read(a) read(b) complete read(a) read(b) complete");
    weir_embedded_free(e);
}

typedef struct holding_reads {
    weir_channel *channel;
    weir_hold *hold;
    bool is_set;
} holding_reads;

static int set_hold(void *arg)
{
    const holding_reads *self = arg;
    return weir_channel_set_read_hold(self->channel, self->hold, self->is_set);
}

static void channel_reads_once_the_last_hold_is_released(void **state)
{
    (void)state;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    assert_true(weir_embedded_is_reading(e));
    weir_hold holds[4] = { { .needs_reads = false } };
    for (unsigned i = 1; i <= 3; i++) {
        holding_reads set = { channel, &holds[i], true };
        assert_int_equal(weir_embedded_call(e, set_hold, &set), 0);
        assert_int_equal(weir_embedded_call(e, set_hold, &set), 0); /* which changes nothing */
        assert_false(weir_embedded_is_reading(e));
    }
    weir_channel_read(channel); /* whoever asks for it */
    weir_embedded_run(e);
    for (unsigned i = 3; i >= 1; i--) {
        holding_reads set = { channel, &holds[i], false };
        assert_false(weir_embedded_is_reading(e));
        assert_int_equal(weir_embedded_call(e, set_hold, &set), 0);
    }
    assert_true(weir_embedded_is_reading(e));
    for (int i = 0; i < 2; i++) { /* from elsewhere: as soon as the loop gets to it */
        assert_int_equal(weir_channel_set_read_hold(channel, &holds[2], i == 0), 0);
        weir_embedded_run(e);
        assert_int_equal(weir_embedded_is_reading(e), i == 1);
    }
    assert_int_equal(weir_channel_set_read_hold(channel, NULL, true), -EINVAL);
    assert_int_equal(weir_channel_set_read_hold(NULL, &holds[0], true), -EINVAL);
    weir_embedded_free(e);
}

/* Reads again, so many times, where it was told to. */
typedef struct reader {
    int in_read, in_complete;
} reader;

static void reader_on_read(weir_ctx *ctx, weir_msg *msg)
{
    reader *self = weir_ctx_arg(ctx);
    weir_msg_release(msg);
    if (self->in_read > 0 && self->in_read--)
        weir_ctx_read(ctx);
}

static void reader_on_read_complete(weir_ctx *ctx)
{
    reader *self = weir_ctx_arg(ctx);
    if (self->in_complete > 0 && self->in_complete--)
        weir_channel_read(weir_ctx_channel(ctx));
    weir_ctx_fire_read_complete(ctx);
}

static const weir_handler_type reads_again = {
    .name = "reads again",
    .on_read = reader_on_read,
    .on_read_complete = reader_on_read_complete,
};

static void read_inside_a_batch_brings_one_more(void **state)
{
    (void)state;
    reader in_read = { .in_read = 2 }, in_complete = { .in_complete = 2 };
    reader *const readers[] = { &in_read, &in_complete };
    for (size_t i = 0; i < 2; i++) {
        weir_embedded *e = open_embedded(&(weir_embedded_config){ .init = no_auto_read });
        weir_pipeline_add_last(weir_embedded_pipeline(e), NULL, &reads_again, readers[i]);
        weir_channel_read(weir_embedded_channel(e));
        weir_embedded_run(e);
        assert_true(batch(e));
        assert_true(batch(e));
        assert_false(batch(e));
        weir_embedded_free(e);
    }
}

static void stop_in_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_msg_release(msg);
    assert_int_equal(set_auto_read(weir_ctx_channel(ctx), false), 0);
}

static const weir_handler_type stops_reading = { .name = "stops", .on_read = stop_in_on_read };

static void auto_read_is_switched_off_inside_on_read(void **state)
{
    (void)state;
    weir_embedded *e = open_embedded(NULL);
    weir_pipeline_add_last(weir_embedded_pipeline(e), NULL, &stops_reading, NULL);
    assert_true(weir_embedded_is_reading(e));
    weir_embedded_write_inbound_part(e, text_msg("a"));
    assert_false(weir_embedded_is_reading(e));          /* at once */
    weir_embedded_write_inbound_part(e, text_msg("b")); /* what raced still comes */
    weir_embedded_end_batch(e);
    assert_false(weir_embedded_is_reading(e));
    set_auto_read(weir_embedded_channel(e), true);
    weir_embedded_run(e);
    assert_true(weir_embedded_is_reading(e));
    weir_embedded_free(e);
}

static void swallow_read(weir_ctx *ctx)
{
    ++*(int *)weir_ctx_arg(ctx);
}

static const weir_handler_type swallows_read = { .name = "swallows", .read = swallow_read };

static void a_handler_that_keeps_read_to_itself_stops_reading(void **state)
{
    (void)state;
    int asked = 0;
    weir_embedded *e = open_embedded(NULL);
    assert_true(batch(e));
    weir_pipeline_add_last(weir_embedded_pipeline(e), "s", &swallows_read, &asked);
    weir_embedded_run(e);
    assert_false(batch(e));
    assert_int_equal(asked, 1);
    weir_pipeline_remove(weir_embedded_pipeline(e), "s", NULL);
    weir_channel_read(weir_embedded_channel(e));
    weir_embedded_run(e);
    assert_true(batch(e));
    weir_embedded_free(e);
}

static void a_read_before_it_is_active_counts_when_it_is(void **state)
{
    (void)state;
    weir_embedded_config config = { .init = no_auto_read, .is_unconnected = true };
    weir_embedded *e = open_embedded(&config);
    weir_channel_read(weir_embedded_channel(e));
    weir_embedded_run(e);
    assert_false(weir_embedded_is_reading(e));
    weir_embedded_call(e, bind_somewhere, weir_embedded_channel(e));
    assert_false(batch(e));
    weir_embedded_free(e);
}

static void it_does_not_read_while_it_cannot_write(void **state)
{
    (void)state;
    const weir_option_value options[] = { { WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 1 },
                                          { WEIR_OPTION_WRITE_LOW_BYTES, 0 },
                                          { WEIR_OPTION_WRITE_HIGH_BYTES, 1 } };
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    weir_channel_set_options(channel, options, 3, NULL);
    weir_embedded_accept(e, 0);
    weir_embedded_write_outbound(e, text_msg("blocked"));
    assert_false(weir_channel_is_writable(channel));
    assert_false(weir_embedded_is_reading(e));
    weir_embedded_accept(e, SIZE_MAX);
    assert_true(weir_channel_is_writable(channel));
    assert_true(weir_embedded_is_reading(e));
    /* A hold on writes counts as well, and switching the option off reads again. */
    weir_hold hold = { .needs_reads = false };
    weir_channel_set_write_hold(channel, &hold, true);
    weir_embedded_run(e);
    assert_false(weir_embedded_is_reading(e));
    weir_channel_set_option(channel, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 0, NULL);
    weir_embedded_run(e);
    assert_true(weir_embedded_is_reading(e));
    weir_embedded_free(e);
}

static int write_much_and_pause(void *arg)
{
    weir_channel *channel = arg;
    weir_channel_set_option(channel, WEIR_OPTION_WRITE_LOW_BYTES, 0, NULL);
    weir_channel_set_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, 1, NULL);
    weir_channel_write(channel, text_msg("much"), NULL);
    return weir_channel_set_option(channel, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 1, NULL);
}

static void pausing_can_be_switched_on_when_it_cannot_write_already(void **state)
{
    (void)state;
    weir_embedded *e = open_embedded(NULL);
    assert_int_equal(weir_embedded_call(e, write_much_and_pause, weir_embedded_channel(e)), 0);
    assert_false(weir_channel_is_writable(weir_embedded_channel(e)));
    assert_false(weir_embedded_is_reading(e));
    weir_embedded_flush(e);
    assert_true(weir_embedded_is_reading(e));
    weir_embedded_free(e);
}

/* Writing and half-closure --------------------------------------------------------------------- */

static void s115_a_write_waits_for_the_flush(void **state)
{
    (void)state;
    story to = STORY;
    ear a, b, c;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    write_text(channel, "a", &a, &to);
    write_text(channel, "b", &b, &to);
    weir_embedded_run(e);
    assert_int_equal(weir_embedded_outbound_count(e), 0);
    story_is(&to, "");
    weir_channel_flush(channel);
    write_text(channel, "c", &c, &to); /* behind the flush */
    weir_embedded_run(e);
    sent_is(e, "ab");
    story_is(&to, "a=ok b=ok");
    weir_embedded_flush(e);
    sent_is(e, "c");
    story_is(&to, "c=ok");
    weir_embedded_free(e);
}

static int allow_half_closure(weir_channel *channel, void *arg)
{
    if (arg != NULL)
        add_recorder(channel, arg);
    return weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1, NULL);
}

static weir_embedded *open_half(story *to)
{
    return open_embedded(&(weir_embedded_config){ .init = allow_half_closure, .arg = to });
}

static void the_other_sides_end_closes(void **state)
{
    (void)state;
    story to = STORY;
    weir_embedded *e = open_recorded(&to);
    weir_embedded_write_inbound_bytes(e, "x", 1);
    assert_int_equal(weir_embedded_end_inbound(e, 0), 0);
    story_is(&to, "added registered active read(x) complete inactive unregistered removed");
    weir_embedded_free(e);
}

static void with_half_closure_writing_goes_on(void **state)
{
    (void)state;
    story to = STORY;
    ear shut;
    weir_embedded *e = open_half(&to);
    weir_channel *channel = weir_embedded_channel(e);
    weir_embedded_end_inbound(e, 0);
    weir_embedded_end_inbound(e, 0); /* is told once */
    story_is(&to, "added registered active input_closed");
    assert_true(weir_channel_is_active(channel));
    assert_false(weir_embedded_is_reading(e));
    weir_embedded_write_outbound(e, text_msg("answer"));
    sent_is(e, "answer");
    call_with_ear(weir_channel_shutdown, channel, &shut, &to, "shutdown");
    weir_embedded_run(e);
    story_is(&to, "shutdown=ok inactive unregistered removed"); /* both ends are shut */
    weir_embedded_free(e);
}

/* Whether nothing more comes can be asked inside what tells it, and in what a handler is asked for
 * because of it. */
static void note_input(weir_ctx *ctx)
{
    bool *is_closed = weir_ctx_arg(ctx);
    *is_closed = weir_channel_is_input_closed(weir_ctx_channel(ctx));
}

static void input_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    note_input(ctx);
}

static void input_on_event(weir_ctx *ctx, weir_msg *event)
{
    note_input(ctx);
    weir_ctx_fire_event(ctx, event);
}

static void input_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    note_input(ctx);
    weir_ctx_shutdown(ctx, promise);
}

static void that_input_is_closed_can_be_asked(void **state)
{
    static const weir_handler_type asks = { .name = "asks",
                                            .on_error = input_on_error,
                                            .on_event = input_on_event,
                                            .shutdown = input_shutdown };
    (void)state;
    for (int way = 0; way < 3; way++) {
        bool is_closed = false;
        weir_embedded *e = way == 0 ? open_half(NULL) : open_embedded(NULL);
        weir_channel *channel = weir_embedded_channel(e);
        weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &asks, &is_closed);
        weir_embedded_run(e);
        assert_false(weir_channel_is_input_closed(channel));
        weir_embedded_end_inbound(e, way == 2 ? -ECONNRESET : 0);
        assert_true(is_closed);
        assert_true(weir_channel_is_input_closed(channel));
        weir_embedded_free(e);
    }
}

/* A handler that notes, when it is added, whether EOF has passed its place. */
typedef struct latecomer {
    weir_ctx *ctx;
    bool was_closed, has_event;
} latecomer;

static void late_added(weir_ctx *ctx)
{
    latecomer *self = weir_ctx_arg(ctx);
    self->ctx = ctx;
    self->was_closed = weir_ctx_is_input_closed(ctx);
}

static void late_on_event(weir_ctx *ctx, weir_msg *event)
{
    latecomer *self = weir_ctx_arg(ctx);
    self->has_event |= event == &weir_event_input_closed;
    assert_true(weir_ctx_is_input_closed(ctx));
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type late_type = { .name = "late",
                                             .added = late_added,
                                             .on_event = late_on_event };
static const weir_handler_type deaf_type = { .name = "deaf", .added = late_added };

static void holder_on_event(weir_ctx *ctx, weir_msg *event)
{
    *(weir_ctx **)weir_ctx_arg(ctx) = ctx; /* passes it on later, as flow control does */
    (void)event;
}

static const weir_handler_type holder_type = { .name = "holder", .on_event = holder_on_event };

static void add_late(weir_embedded *e, weir_place place, const weir_handler_type *type,
                     latecomer *arg)
{
    const weir_handler_config config = {
        .type = type, .arg = arg, .place = place, .base = "holder"
    };
    assert_int_equal(weir_pipeline_add(weir_embedded_pipeline(e), &config, NULL), 0);
    weir_embedded_run(e);
}

static int pass_eof_on(void *arg)
{
    weir_ctx_fire_event(arg, &weir_event_input_closed);
    return 0;
}

/* A handler further towards the head may still have messages that come before EOF. */
static void a_handler_added_after_eof_finds_the_input_closed(void **state)
{
    (void)state;
    latecomer first = { 0 }, before = { 0 }, after = { 0 }, last = { 0 }, deaf = { 0 },
              at_last = { 0 };
    weir_ctx *holding = NULL;
    weir_embedded *e = open_half(NULL);
    weir_pipeline_add_last(weir_embedded_pipeline(e), "holder", &holder_type, &holding);
    add_late(e, WEIR_PLACE_LAST, &late_type, &last);
    assert_false(last.was_closed);
    weir_embedded_end_inbound(e, 0);
    assert_non_null(holding);
    add_late(e, WEIR_PLACE_FIRST, &late_type, &first);
    add_late(e, WEIR_PLACE_BEFORE, &late_type, &before);
    add_late(e, WEIR_PLACE_AFTER, &late_type, &after);
    add_late(e, WEIR_PLACE_LAST, &deaf_type, &deaf);
    assert_true(first.was_closed && before.was_closed);
    assert_true(!after.was_closed && !deaf.was_closed);
    assert_false(weir_ctx_is_input_closed(last.ctx));
    assert_int_equal(weir_embedded_call(e, pass_eof_on, holding), 0);
    assert_true(!first.has_event && !before.has_event && after.has_event && last.has_event);
    assert_true(weir_ctx_is_input_closed(deaf.ctx) && weir_ctx_is_input_closed(after.ctx));
    add_late(e, WEIR_PLACE_LAST, &late_type, &at_last);
    assert_true(at_last.was_closed && !at_last.has_event);
    weir_embedded_free(e);
}

static void the_other_order_of_ends_closes_too(void **state)
{
    (void)state;
    story to = STORY;
    weir_embedded *e = open_half(&to);
    weir_channel_shutdown(weir_embedded_channel(e), NULL);
    weir_embedded_run(e);
    assert_true(weir_embedded_is_output_shut(e));
    weir_embedded_write_inbound_bytes(e, "x", 1); /* reading goes on */
    story_is(&to, "added registered active read(x) complete");
    weir_embedded_end_inbound(e, 0);
    story_is(&to, "inactive unregistered removed");
    weir_embedded_free(e);
}

static void a_read_error_is_told_behind_the_data_and_closes(void **state)
{
    (void)state;
    story to = STORY;
    weir_embedded *e = open_half(&to);
    weir_embedded_write_inbound_bytes(e, "x", 1);
    weir_embedded_end_inbound(e, -ECONNRESET);
    story_is(&to, "added registered active read(x) complete error(ECONNRESET) inactive "
                  "unregistered removed");
    weir_embedded_free(e);
}

static void shutdown_sends_what_was_written_first(void **state)
{
    (void)state;
    story to = STORY;
    ear a, b, late, shut;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    weir_embedded_accept(e, 1);
    write_text(channel, "a", &a, &to);
    write_text(channel, "b", &b, &to); /* neither is flushed */
    call_with_ear(weir_channel_shutdown, channel, &shut, &to, "shutdown");
    write_text(channel, "late", &late, &to);
    weir_embedded_run(e);
    story_is(&to, "a=ok late=EPIPE");
    assert_false(weir_embedded_is_output_shut(e));
    weir_embedded_accept(e, SIZE_MAX);
    assert_true(weir_embedded_is_output_shut(e));
    story_is(&to, "b=ok shutdown=ok");
    sent_is(e, "ab");
    assert_true(weir_channel_is_active(channel));
    assert_true(weir_embedded_is_reading(e));
    call_with_ear(weir_channel_shutdown, channel, &shut, &to, "again");
    weir_embedded_run(e);
    story_is(&to, "again=ok");
    weir_embedded_free(e);
}

static void shutdown_waits_until_it_is_active(void **state)
{
    (void)state;
    story to = STORY;
    ear a, shut;
    weir_embedded *e = open_embedded(&(weir_embedded_config){ .is_unconnected = true });
    weir_channel *channel = weir_embedded_channel(e);
    write_text(channel, "a", &a, &to);
    call_with_ear(weir_channel_shutdown, channel, &shut, &to, "shutdown");
    weir_embedded_run(e);
    story_is(&to, "");
    weir_embedded_call(e, bind_somewhere, channel);
    story_is(&to, "a=ok shutdown=ok");
    assert_true(weir_embedded_is_output_shut(e));
    sent_is(e, "a");
    weir_embedded_free(e);
}

static void shutdown_that_did_not_come_about_fails(void **state)
{
    (void)state;
    story to = STORY;
    ear a, shut;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    weir_embedded_accept(e, 0);
    write_text(channel, "a", &a, &to);
    call_with_ear(weir_channel_shutdown, channel, &shut, &to, "shutdown");
    weir_embedded_run(e);
    weir_embedded_close(e);
    story_is(&to, "a=WEIR_ECLOSED shutdown=WEIR_ECLOSED");
    assert_false(weir_embedded_is_output_shut(e));
    weir_embedded_free(e);
}

/* Finish --------------------------------------------------------------------------------------- */

static void finish_sends_all_lingers_and_closes(void **state)
{
    (void)state;
    story to = STORY;
    ear a, finish;
    weir_embedded *e = open_recorded(&to);
    weir_channel *channel = weir_embedded_channel(e);
    write_text(channel, "a", &a, &to);
    call_with_ear(weir_channel_finish, channel, &finish, &to, "finish");
    weir_embedded_run(e);
    sent_is(e, "a");
    assert_true(weir_embedded_is_output_shut(e));
    weir_embedded_write_inbound_bytes(e, "x", 1); /* is still read */
    weir_embedded_advance(e, WEIR_MS(4999));
    story_is(&to, "added registered active a=ok read(x) complete");
    assert_true(weir_channel_is_active(channel));
    weir_embedded_advance(e, WEIR_MS(1));
    story_is(&to, "inactive unregistered removed finish=ok");
    weir_embedded_free(e);
}

static void finish_ends_with_the_other_sides_end(void **state)
{
    (void)state;
    story to = STORY;
    ear finish;
    for (int is_half = 0; is_half < 2; is_half++) {
        weir_embedded *e = is_half ? open_half(&to) : open_recorded(&to);
        call_with_ear(weir_channel_finish, weir_embedded_channel(e), &finish, &to, "finish");
        weir_embedded_run(e);
        story_is(&to, "added registered active");
        weir_embedded_end_inbound(e, 0);
        story_is(&to, "inactive unregistered removed finish=ok");
        weir_embedded_advance(e, WEIR_MS(10000)); /* nothing is left that could fire */
        weir_embedded_free(e);
    }
}

static void finish_does_not_wait_for_who_has_ended(void **state)
{
    (void)state;
    story to = STORY;
    ear finish;
    weir_embedded *e = open_half(&to);
    weir_embedded_end_inbound(e, 0);
    call_with_ear(weir_channel_finish, weir_embedded_channel(e), &finish, &to, "finish");
    weir_embedded_run(e);
    story_is(&to, "added registered active input_closed inactive unregistered removed finish=ok");
    weir_embedded_free(e);
}

static void finish_lingers_as_long_as_the_option_says(void **state)
{
    (void)state;
    story to = STORY;
    ear finish;
    for (int64_t linger_ns = 0; linger_ns <= WEIR_MS(7); linger_ns += WEIR_MS(7)) {
        weir_embedded *e = open_embedded(NULL);
        weir_channel *channel = weir_embedded_channel(e);
        weir_channel_set_option(channel, WEIR_OPTION_LINGER_NS, linger_ns, NULL);
        call_with_ear(weir_channel_finish, channel, &finish, &to, "finish");
        weir_embedded_run(e);
        if (linger_ns > 0) {
            weir_embedded_advance(e, linger_ns - 1);
            story_is(&to, "");
            weir_embedded_advance(e, 1);
        }
        story_is(&to, "finish=ok");
        weir_embedded_free(e);
    }
}

static void finish_waits_for_a_slow_other_side(void **state)
{
    (void)state;
    story to = STORY;
    ear a, finish;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    weir_embedded_accept(e, 0);
    write_text(channel, "a", &a, &to);
    call_with_ear(weir_channel_finish, channel, &finish, &to, "finish");
    weir_embedded_run(e);
    weir_embedded_advance(e, WEIR_MS(60000)); /* lingering begins when everything is sent */
    story_is(&to, "");
    weir_embedded_accept(e, SIZE_MAX);
    story_is(&to, "a=ok");
    weir_embedded_advance(e, WEIR_MS(5000));
    story_is(&to, "finish=ok");
    sent_is(e, "a");
    weir_embedded_free(e);
}

/* Two such peers that finish would else wait for each other for ever. */
static void finish_resumes_reading_that_unwritability_paused(void **state)
{
    (void)state;
    story to = STORY;
    ear a, finish;
    weir_embedded *e = open_recorded(&to);
    weir_channel *channel = weir_embedded_channel(e);
    assert_int_equal(weir_channel_set_water_marks(channel, 0, 1), 0);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 1, NULL),
                     0);
    weir_embedded_accept(e, 0);
    write_text(channel, "abc", &a, &to);
    weir_embedded_run(e);
    assert_false(weir_channel_is_writable(channel));
    assert_false(weir_embedded_is_reading(e));
    call_with_ear(weir_channel_finish, channel, &finish, &to, "finish");
    weir_embedded_run(e);
    for (int i = 0; i < 3; i++)
        assert_true(batch(e));
    weir_embedded_accept(e, 1); /* which weighs the queue once more */
    assert_true(batch(e));
    weir_embedded_accept(e, SIZE_MAX);
    sent_is(e, "abc");
    weir_embedded_advance(e, WEIR_MS(5000));
    assert_true(weir_future_is_done(weir_channel_closed(channel)));
    weir_embedded_free(e);
}

static void a_second_finish_is_under_way_already(void **state)
{
    (void)state;
    story to = STORY;
    ear finish, second;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    call_with_ear(weir_channel_finish, channel, &finish, &to, "finish");
    call_with_ear(weir_channel_finish, channel, &second, &to, "second");
    weir_embedded_run(e);
    story_is(&to, "second=EALREADY");
    weir_embedded_end_inbound(e, 0);
    story_is(&to, "finish=ok");
    weir_embedded_free(e);
}

static void finish_of_what_is_not_connected_closes(void **state)
{
    (void)state;
    story to = STORY;
    ear finish;
    for (int is_unregistered = 0; is_unregistered < 2; is_unregistered++) {
        weir_embedded_config config = { .is_unconnected = true };
        config.is_unregistered = is_unregistered;
        weir_embedded *e = open_embedded(&config);
        call_with_ear(weir_channel_finish, weir_embedded_channel(e), &finish, &to, "finish");
        weir_embedded_run(e);
        story_is(&to, "finish=ok");
        assert_false(weir_channel_is_open(weir_embedded_channel(e)));
        weir_embedded_free(e);
    }
}

static void close_cuts_a_finish_short(void **state)
{
    (void)state;
    story to = STORY;
    ear a, finish, close;
    for (int is_blocked = 0; is_blocked < 2; is_blocked++) {
        weir_embedded *e = open_embedded(NULL);
        weir_channel *channel = weir_embedded_channel(e);
        if (is_blocked)
            weir_embedded_accept(e, 0);
        write_text(channel, "a", &a, &to);
        call_with_ear(weir_channel_finish, channel, &finish, &to, "finish");
        weir_embedded_run(e);
        story_is(&to, is_blocked ? "" : "a=ok");
        call_with_ear(weir_channel_close, channel, &close, &to, "close");
        weir_embedded_run(e);
        story_is(&to, is_blocked ? "a=WEIR_ECLOSED finish=ok close=ok" : "finish=ok close=ok");
        weir_embedded_free(e);
    }
}

static void finish_after_a_shutdown_that_waits_sends_all(void **state)
{
    (void)state;
    story to = STORY;
    ear a, shut, finish;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    weir_embedded_accept(e, 0);
    write_text(channel, "a", &a, &to);
    call_with_ear(weir_channel_shutdown, channel, &shut, &to, "shutdown");
    call_with_ear(weir_channel_finish, channel, &finish, &to, "finish");
    weir_embedded_run(e);
    story_is(&to, "");
    weir_embedded_accept(e, SIZE_MAX);
    story_is(&to, "a=ok shutdown=ok");
    sent_is(e, "a");
    weir_embedded_end_inbound(e, 0);
    story_is(&to, "finish=ok");
    weir_embedded_free(e);
}

static void finish_sends_all_though_the_other_side_has_ended(void **state)
{
    (void)state;
    story to = STORY;
    ear a, finish;
    for (int is_half = 0; is_half < 2; is_half++) {
        weir_embedded *e = is_half ? open_half(NULL) : open_embedded(NULL);
        weir_channel *channel = weir_embedded_channel(e);
        weir_embedded_accept(e, 0);
        write_text(channel, "a", &a, &to);
        call_with_ear(weir_channel_finish, channel, &finish, &to, "finish");
        weir_embedded_end_inbound(e, 0);
        story_is(&to, "");
        weir_embedded_accept(e, SIZE_MAX);
        story_is(&to, "a=ok finish=ok");
        sent_is(e, "a");
        weir_embedded_free(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(with_auto_read_it_reads_on_and_on),
        weir_case(without_auto_read_each_read_is_one_batch),
        weir_case(channel_reads_once_the_last_hold_is_released),
        weir_case(read_inside_a_batch_brings_one_more),
        weir_case(auto_read_is_switched_off_inside_on_read),
        weir_case(a_handler_that_keeps_read_to_itself_stops_reading),
        weir_case(a_read_before_it_is_active_counts_when_it_is),
        weir_case(it_does_not_read_while_it_cannot_write),
        weir_case(pausing_can_be_switched_on_when_it_cannot_write_already),
        weir_case(s115_a_write_waits_for_the_flush),
        weir_case(the_other_sides_end_closes),
        weir_case(with_half_closure_writing_goes_on),
        weir_case(that_input_is_closed_can_be_asked),
        weir_case(a_handler_added_after_eof_finds_the_input_closed),
        weir_case(the_other_order_of_ends_closes_too),
        weir_case(a_read_error_is_told_behind_the_data_and_closes),
        weir_case(shutdown_sends_what_was_written_first),
        weir_case(shutdown_waits_until_it_is_active),
        weir_case(shutdown_that_did_not_come_about_fails),
        weir_case(finish_sends_all_lingers_and_closes),
        weir_case(finish_ends_with_the_other_sides_end),
        weir_case(finish_does_not_wait_for_who_has_ended),
        weir_case(finish_lingers_as_long_as_the_option_says),
        weir_case(finish_waits_for_a_slow_other_side),
        weir_case(finish_resumes_reading_that_unwritability_paused),
        weir_case(a_second_finish_is_under_way_already),
        weir_case(finish_of_what_is_not_connected_closes),
        weir_case(close_cuts_a_finish_short),
        weir_case(finish_after_a_shutdown_that_waits_sends_all),
        weir_case(finish_sends_all_though_the_other_side_has_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
