/* SPDX-License-Identifier: MIT */
/* Flush consolidation: fewer flushes, and none that is lost. */
#include "bootstrap/servers.h"

#include <weir/embedded.h>
#include <weir/fault.h>
#include <weir/fixed_length.h>
#include <weir/flush_consolidation.h>

static weir_hold hold;

/* Counts the flushes that get to the head; and an answer with a flush to every message, from behind
 * the consolidation. */
typedef struct world {
    weir_flush_consolidation config;
    weir_group *group; /* of the handler, NULL: the loop */
    unsigned flushes;  /* that came through */
    unsigned answers;  /* to every message; 0: one */
    bool flushes_at_end;
    const char *at; /* the callback of the answering handler in which it does this: */
    void (*act)(weir_ctx *ctx);
} world;

static void counter_flush(weir_ctx *ctx)
{
    world *self = weir_ctx_arg(ctx);
    self->flushes++;
    weir_ctx_flush(ctx);
}

static const weir_handler_type counter_type = { .name = "counter", .flush = counter_flush };

static void act_at(weir_ctx *ctx, const char *at)
{
    world *self = weir_ctx_arg(ctx);
    if (self->act == NULL || strcmp(self->at, at) != 0)
        return;
    void (*act)(weir_ctx * ctx) = self->act;
    self->act = NULL;
    act(ctx);
}

static void answer_one(weir_ctx *ctx)
{
    weir_ctx_write(ctx, weir_buf_msg(weir_buf_from("x", 1)), NULL);
    weir_ctx_flush(ctx);
}

static void answer_on_read(weir_ctx *ctx, weir_msg *msg)
{
    world *self = weir_ctx_arg(ctx);
    weir_msg_release(msg);
    for (unsigned i = 0; i < (self->answers > 0 ? self->answers : 1); i++)
        answer_one(ctx);
    act_at(ctx, "read");
}

static void answer_on_read_complete(weir_ctx *ctx)
{
    world *self = weir_ctx_arg(ctx);
    if (self->flushes_at_end)
        answer_one(ctx);
    act_at(ctx, "read_complete");
    weir_ctx_fire_read_complete(ctx);
}

static void answer_on_event(weir_ctx *ctx, weir_msg *event)
{
    weir_msg_release(event);
    answer_one(ctx);
    act_at(ctx, "event");
}

static void answer_on_error(weir_ctx *ctx, const weir_error *error)
{
    act_at(ctx, "error");
    weir_ctx_fire_error(ctx, error);
}

static void answer_on_writability(weir_ctx *ctx)
{
    act_at(ctx, "writability");
    weir_ctx_fire_writability(ctx);
}

static const weir_handler_type answer_type = {
    .name = "answer",
    .on_read = answer_on_read,
    .on_read_complete = answer_on_read_complete,
    .on_event = answer_on_event,
    .on_error = answer_on_error,
    .on_writability = answer_on_writability,
};

static int add_all(weir_channel *channel, void *arg)
{
    world *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_handler_config consolidation = {
        .type = &weir_flush_consolidation_handler,
        .name = "consolidation",
        .arg = &self->config,
        .place = WEIR_PLACE_LAST,
        .group = self->group,
    };
    int code = weir_pipeline_add_last(pipeline, "counter", &counter_type, self);
    if (code == 0)
        code = weir_pipeline_add(pipeline, &consolidation, NULL);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "answer", &answer_type, self);
}

static weir_embedded *begin(world *self)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_all, .arg = self };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void read_one(weir_embedded *embedded)
{
    weir_embedded_write_inbound_part(embedded, weir_buf_msg(weir_buf_from("q", 1)));
}

static void expect(weir_embedded *embedded, world *self, unsigned flushes, size_t sent)
{
    assert_int_equal(self->flushes, flushes);
    assert_int_equal(weir_embedded_outbound_count(embedded), sent);
    while (weir_embedded_outbound_count(embedded) > 0)
        weir_msg_release(weir_embedded_read_outbound(embedded));
    self->flushes = 0;
}

static void end(weir_embedded *embedded)
{
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

/* Fewer ---------------------------------------------------------------------------------------- */

static void a_batch_has_one_flush(void **state)
{
    (void)state;
    world self = { .flushes_at_end = true };
    weir_embedded *embedded = begin(&self);
    for (int i = 0; i < 100; i++)
        read_one(embedded);
    expect(embedded, &self, 0, 0);
    weir_embedded_end_batch(embedded);
    expect(embedded, &self, 1, 101); /* with those at the end of the batch */
    weir_embedded_end_batch(embedded);
    expect(embedded, &self, 1, 1);
    self.flushes_at_end = false;
    weir_embedded_end_batch(embedded);
    expect(embedded, &self, 0, 0); /* none where there was none */
    end(embedded);
}

static void so_many_are_enough(void **state)
{
    (void)state;
    static const int64_t most[] = { 0, 1, 2, 10, 300 };
    for (size_t i = 0; i < COUNT(most); i++) {
        world self = { .config.most_flushes = most[i] };
        weir_embedded *embedded = begin(&self);
        unsigned each = most[i] > 0 ? (unsigned)most[i] : 256;
        for (unsigned n = 0; n < 3 * each; n++)
            read_one(embedded);
        expect(embedded, &self, 3, (size_t)3 * each);
        read_one(embedded);
        weir_embedded_end_batch(embedded);
        expect(embedded, &self, 1, 1);
        end(embedded);
    }
}

static void event(weir_embedded *embedded)
{
    weir_pipeline_fire_event(weir_embedded_pipeline(embedded), weir_buf_msg(weir_buf_from("e", 1)));
}

static void outside_a_batch_they_go_at_once(void **state)
{
    (void)state;
    world self = { 0 };
    weir_embedded *embedded = begin(&self);
    for (int batch = 0; batch < 2; batch++) {
        for (int i = 0; i < 5; i++)
            event(embedded);
        weir_embedded_run(embedded);
        expect(embedded, &self, 5, 5);
        read_one(embedded); /* behind a batch as before one */
        weir_embedded_end_batch(embedded);
        expect(embedded, &self, 1, 1);
    }
    end(embedded);
}

static void or_once_a_turn(void **state)
{
    (void)state;
    world self = { .config = { .most_flushes = 10, .is_always = true } };
    weir_embedded *embedded = begin(&self);
    for (int i = 0; i < 25; i++)
        event(embedded);
    weir_embedded_run(embedded);
    expect(embedded, &self, 3, 25);
    event(embedded);
    weir_embedded_run(embedded);
    expect(embedded, &self, 1, 1);
    weir_executor_stats stats;
    weir_executor_get_stats(weir_embedded_executor(embedded), &stats);
    assert_int_equal(stats.timers, 0);
    read_one(embedded); /* one that waits for its time, and a batch meanwhile */
    event(embedded);
    weir_embedded_end_batch(embedded);
    weir_embedded_run(embedded);
    expect(embedded, &self, 1, 2);
    end(embedded);
}

static void act_flush_again(weir_ctx *ctx)
{
    weir_executor_stats stats;
    weir_executor_get_stats(weir_ctx_executor(ctx), &stats);
    assert_int_equal(stats.timers, 1);
    answer_one(ctx);
    weir_executor_get_stats(weir_ctx_executor(ctx), &stats);
    assert_int_equal(stats.timers, 0);
}

static void what_is_flushed_needs_no_timer(void **state)
{
    (void)state;
    world self = { .config = { .most_flushes = 2, .is_always = true },
                   .at = "event",
                   .act = act_flush_again };
    weir_embedded *embedded = begin(&self);
    event(embedded);
    weir_embedded_run(embedded);
    expect(embedded, &self, 1, 2);
    end(embedded);
}

/* None is lost --------------------------------------------------------------------------------- */

static void act_close(weir_ctx *ctx)
{
    weir_ctx_close(ctx, NULL);
}

static void act_shutdown(weir_ctx *ctx)
{
    weir_ctx_shutdown(ctx, NULL);
}

static void act_disconnect(weir_ctx *ctx)
{
    weir_ctx_disconnect(ctx, NULL);
}

static void act_deregister(weir_ctx *ctx)
{
    weir_ctx_deregister(ctx, NULL);
}

static void act_remove(weir_ctx *ctx)
{
    weir_pipeline_remove(weir_ctx_pipeline(ctx), "consolidation", NULL);
}

static void act_finish(weir_ctx *ctx)
{
    weir_channel_finish(weir_ctx_channel(ctx), NULL);
}

static void act_fail(weir_ctx *ctx)
{
    weir_pipeline_fire_error(weir_ctx_pipeline(ctx), -EIO, "for the test");
}

static void act_be_unwritable(weir_ctx *ctx)
{
    weir_channel_set_write_hold(weir_ctx_channel(ctx), fresh_hold(&hold), true);
}

/* In the middle of a batch, and none of its end: all that was flushed is out. */
static void what_is_held_goes_before_the_end(void **state)
{
    (void)state;
    static void (*const acts[])(
        weir_ctx * ctx) = { act_close,  act_shutdown, act_disconnect, act_deregister,
                            act_remove, act_finish,   act_fail,       act_be_unwritable };
    static const char *const places[] = { "read", "event", "read_complete" };
    for (size_t i = 0; i < COUNT(acts) * COUNT(places); i++) {
        world self = { .answers = 3, .at = places[i % COUNT(places)] };
        weir_embedded *embedded = begin(&self);
        self.act = acts[i / COUNT(places)];
        read_one(embedded);
        size_t sent = 3;
        if (strcmp(self.at, "event") == 0) {
            event(embedded);
            weir_embedded_run(embedded);
            sent++;
        } else if (strcmp(self.at, "read_complete") == 0) {
            weir_embedded_end_batch(embedded);
        }
        assert_null(self.act);
        expect(embedded, &self, 1, sent);
        weir_embedded_take_error(embedded, NULL);
        end(embedded);
    }
}

/* Also inside these callbacks. */
static void everything_may_be_closed_everywhere(void **state)
{
    (void)state;
    static void (*const acts[])(weir_ctx * ctx) = { act_close, act_remove };
    static const char *const places[] = { "error", "writability" };
    for (size_t i = 0; i < COUNT(acts) * COUNT(places); i++) {
        world self = { .at = places[i % 2], .act = acts[i / 2] };
        weir_embedded *embedded = begin(&self);
        read_one(embedded);
        weir_channel_set_write_hold(weir_embedded_channel(embedded), fresh_hold(&hold), true);
        weir_pipeline_fire_error(weir_embedded_pipeline(embedded), -EIO, "for the test");
        weir_embedded_run(embedded);
        assert_null(self.act);
        expect(embedded, &self, 1, 1);
        weir_embedded_take_error(embedded, NULL);
        end(embedded);
    }
}

/* Or the next write might be one too many, though the other side takes all there is. */
static void what_is_above_the_mark_is_not_held(void **state)
{
    (void)state;
    world self = { .answers = 200 };
    weir_embedded *embedded = begin(&self);
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_channel_set_water_marks(channel, 10, 20), 0);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, 50, NULL), 0);
    weir_embedded_run(embedded);
    read_one(embedded);
    weir_embedded_end_batch(embedded);
    assert_int_equal(weir_embedded_check(embedded), 0);
    expect(embedded, &self, 10, 200);
    end(embedded);
}

static void the_end_of_the_input_does_not_lose_the_answer(void **state)
{
    (void)state;
    world self = { 0 };
    weir_embedded *embedded = begin(&self);
    read_one(embedded);
    weir_embedded_end_inbound(embedded, 0);
    expect(embedded, &self, 1, 1);
    assert_true(weir_embedded_is_output_shut(embedded));
    end(embedded);
}

static void below_zero_is_refused(void **state)
{
    (void)state;
    world self = { .config.most_flushes = -1 };
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_all, .arg = &self };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), -EINVAL);
}

static int add_usual(weir_channel *channel, void *arg)
{
    (void)arg;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), NULL,
                                  &weir_flush_consolidation_handler, NULL);
}

static void no_config_is_every_default(void **state)
{
    (void)state;
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_usual };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_embedded_write_outbound(embedded, weir_buf_msg(weir_buf_from("x", 1)));
    weir_msg_release(weir_embedded_read_outbound(embedded));
    end(embedded);
}

/* Without memory for the timer it does not wait. */
static void every_call_may_fail_once(void **state)
{
    (void)state;
    for (unsigned nth = 1, seen = 1; seen >= nth - 1; nth++) { /* until it fails no more */
        world self = { .config.is_always = true };
        weir_embedded *embedded = begin(&self);
        weir_promise *promise = weir_channel_promise(weir_embedded_channel(embedded));
        harness_fail_nth(NULL, nth, -ENOMEM);
        weir_channel_write(weir_embedded_channel(embedded), weir_buf_msg(weir_buf_from("x", 1)),
                           promise);
        weir_channel_flush(weir_embedded_channel(embedded));
        weir_embedded_run(embedded);
        seen = harness_fail_end();
        weir_embedded_free(embedded);
        assert_true(end_of(promise) != -EINPROGRESS);
    }
}

static void it_can_have_an_executor_of_its_own(void **state)
{
    (void)state;
    world self = { .group = new_group_of(1) };
    weir_embedded *embedded = begin(&self);
    for (int batch = 0; batch < 5; batch++) {
        for (int i = 0; i < 20; i++)
            read_one(embedded);
        weir_embedded_end_batch(embedded);
    }
    WAIT_FOR_STEPPING(weir_embedded_outbound_count(embedded) >= 100, weir_embedded_run(embedded));
    assert_in_range(self.flushes, 1, 100);
    while (weir_embedded_outbound_count(embedded) > 0)
        weir_msg_release(weir_embedded_read_outbound(embedded));
    weir_embedded_free(embedded);
    end_group(self.group);
}

/* System calls --------------------------------------------------------------------------------- */

static atomic_uint sends;

static int count_sends(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    if (strncmp(call, "send", 4) == 0)
        atomic_fetch_add(&sends, 1);
    return 0;
}

static void echo_and_flush(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write_and_flush(ctx, msg, NULL);
}

static const weir_handler_type eager_type = { .name = "eager", .on_read = echo_and_flush };
static const weir_fixed_length eight = { .length = 8 };
static weir_flush_consolidation consolidation;

static int init_eager(weir_channel *child, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(child);
    int code = weir_pipeline_add_last(pipeline, "frames", &weir_fixed_length_decoder,
                                      (void *)&eight);
    if (code == 0 && arg != NULL)
        code = weir_pipeline_add_last(pipeline, NULL, &weir_flush_consolidation_handler, arg);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "eager", &eager_type, NULL);
}

/* How many calls it takes to answer 64 messages that come at once. */
static unsigned calls_for(void *config)
{
    setup self;
    char text[64 * 8];
    prepare(&self, &backends[0], 1, 0);
    self.config.init_child = init_eager;
    self.config.arg = config;
    self.config.init = NULL;
    listen_on(&self, EVERYWHERE);
    int fd = dial(self.server);
    atomic_store(&sends, 0);
    weir_fault_set(count_sends, NULL);
    memset(text, 'x', sizeof text);
    assert_int_equal(send(fd, text, sizeof text, MSG_NOSIGNAL), sizeof text);
    assert_int_equal(recv(fd, text, sizeof text, MSG_WAITALL), sizeof text);
    close(fd);
    close_all(&self);
    weir_fault_set(NULL, NULL);
    return atomic_load(&sends);
}

static void there_are_fewer_system_calls(void **state)
{
    (void)state;
    unsigned without = calls_for(NULL), with = calls_for(&consolidation);
    print_message("64 answers: %u calls, consolidated %u\n", without, with);
    assert_true(without >= 16); /* of one connection in a turn; then they are put together anyway */
    assert_true(with <= 3);     /* also if the bytes should come in several pieces */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(a_batch_has_one_flush),
        weir_case(so_many_are_enough),
        weir_case(outside_a_batch_they_go_at_once),
        weir_case(or_once_a_turn),
        weir_case(what_is_flushed_needs_no_timer),
        weir_case(what_is_held_goes_before_the_end),
        weir_case(everything_may_be_closed_everywhere),
        weir_case(what_is_above_the_mark_is_not_held),
        weir_case(the_end_of_the_input_does_not_lose_the_answer),
        weir_case(below_zero_is_refused),
        weir_case(no_config_is_every_default),
        weir_case(every_call_may_fail_once),
        weir_case(it_can_have_an_executor_of_its_own),
        weir_case(there_are_fewer_system_calls),
    };
    return cmocka_run_group_tests_name("handler.flush_consolidation", tests, NULL, NULL);
}
