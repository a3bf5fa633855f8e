/* SPDX-License-Identifier: MIT */
/* Channel groups: who is in them, and what is done to all of them, with everybody coming and going.
 */
#include "harness.h"

#include <weir/channel_group.h>
#include <weir/embedded.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static weir_hold hold;

/* A world of channels -------------------------------------------------------------------------- */

#define MOST 8

typedef struct world {
    weir_group *loops;
    weir_embedded *embedded[MOST];
    weir_channel *channels[MOST]; /* borrowed from those */
    int count;
    weir_channel_group *group;
} world;

static weir_group *new_loops(int loops, bool is_manual)
{
    weir_group *group;
    weir_group_config config = { .loops = loops, .is_manual = is_manual, .watchdog_ns = WEIR_OFF };
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    return group;
}

static void end_loops(weir_group *loops)
{
    weir_group_shutdown(loops, 0, WEIR_SECONDS(10));
    weir_group_free(loops);
}

static weir_embedded *new_embedded(weir_group *loops, weir_init_fn init, void *arg)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .group = loops, .init = init, .arg = arg };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

/* Channels on two loops that the test steps, none of them in the group yet. */
static void begin_with(world *w, int count, weir_init_fn init)
{
    *w = (world){ .loops = new_loops(2, true), .count = count, .group = weir_channel_group_new() };
    assert_non_null(w->group);
    for (int i = 0; i < count; i++) {
        w->embedded[i] = new_embedded(w->loops, init, w->group);
        w->channels[i] = weir_embedded_channel(w->embedded[i]);
    }
}

/* The same, and all are in the group. */
static void begin(world *w, int count)
{
    begin_with(w, count, NULL);
    for (int i = 0; i < count; i++)
        assert_int_equal(weir_channel_group_add(w->group, w->channels[i]), 0);
    assert_int_equal(weir_channel_group_count(w->group), count);
}

static void end(world *w)
{
    weir_channel_group_release(w->group);
    for (int i = 0; i < w->count; i++)
        weir_embedded_free(w->embedded[i]);
    end_loops(w->loops);
}

/* Does all that there is to do. */
static void settle(weir_group *loops)
{
    while (weir_group_next_ns(loops) == 0)
        weir_group_step(loops);
}

static weir_msg *text(const char *string)
{
    weir_buf *buf = weir_buf_from(string, strlen(string));
    assert_non_null(buf);
    return weir_buf_msg(buf);
}

/* What was sent since, as one string. */
static void expect_sent(weir_embedded *embedded, const char *expected)
{
    char sent[64];
    size_t length = weir_embedded_read_outbound_bytes(embedded, sent, sizeof sent - 1);
    sent[length] = '\0';
    assert_string_equal(sent, expected);
}

static int code_of(weir_promise *promise)
{
    return weir_future_code(weir_promise_future(promise));
}

static weir_promise *new_promise(void)
{
    weir_promise *promise = weir_promise_new(NULL);
    assert_non_null(promise);
    return promise;
}

static uint64_t live_allocations(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.live;
}

/* Members -------------------------------------------------------------------------------------- */

static bool visit_nothing(void *arg, weir_channel *channel)
{
    (void)arg;
    (void)channel;
    return true;
}

static void null_is_refused_everywhere(void **state)
{
    (void)state;
    world w;
    begin(&w, 1);
    weir_promise *promise = new_promise(), *other = new_promise();
    assert_null(weir_channel_group_retain(NULL));
    weir_channel_group_release(NULL);
    assert_int_equal(weir_channel_group_add(NULL, w.channels[0]), -EINVAL);
    assert_int_equal(weir_channel_group_add(w.group, NULL), -EINVAL);
    assert_int_equal(weir_channel_group_remove(NULL, w.channels[0]), -EINVAL);
    assert_int_equal(weir_channel_group_remove(w.group, NULL), -EINVAL);
    assert_false(weir_channel_group_contains(NULL, w.channels[0]));
    assert_false(weir_channel_group_contains(w.group, NULL));
    assert_int_equal(weir_channel_group_count(NULL), 0);
    assert_null(weir_channel_group_find(NULL, 1));
    assert_int_equal(weir_channel_group_each(NULL, visit_nothing, NULL), 0);
    assert_int_equal(weir_channel_group_each(w.group, NULL, NULL), 0);
    assert_int_equal(weir_channel_group_broadcast(NULL, text("x"), NULL), 0);
    assert_int_equal(
        weir_channel_group_broadcast(NULL, NULL, &(weir_broadcast){ .promise = promise }), 0);
    assert_int_equal(code_of(promise), -EINVAL);
    weir_channel_group_close_all(NULL, NULL);
    weir_channel_group_close_all(NULL, other);
    assert_int_equal(code_of(other), -EINVAL);
    assert_false(weir_channel_group_is_closed(NULL));
    weir_promise_release(promise);
    weir_promise_release(other);
    end(&w);
}

static void members_are_added_found_and_removed(void **state)
{
    (void)state;
    world w;
    begin_with(&w, 2, NULL);
    weir_channel *one = w.channels[0], *other = w.channels[1];
    assert_int_equal(weir_channel_group_count(w.group), 0);
    assert_int_equal(weir_channel_group_remove(w.group, one), WEIR_ENOTFOUND);
    assert_null(weir_channel_group_find(w.group, weir_channel_id(one)));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(weir_channel_group_add(w.group, one), 0);
        assert_int_equal(weir_channel_group_add(w.group, one), -EEXIST);
        assert_int_equal(weir_channel_group_count(w.group), 1);
        assert_true(weir_channel_group_contains(w.group, one));
        assert_false(weir_channel_group_contains(w.group, other));
        weir_channel *found = weir_channel_group_find(w.group, weir_channel_id(one));
        assert_ptr_equal(found, one);
        weir_channel_release(found);
        assert_null(weir_channel_group_find(w.group, weir_channel_id(other)));
        assert_int_equal(weir_channel_group_remove(w.group, one), 0);
        assert_int_equal(weir_channel_group_remove(w.group, one), WEIR_ENOTFOUND);
        assert_false(weir_channel_group_contains(w.group, one));
        assert_int_equal(weir_channel_group_count(w.group), 0);
    }
    end(&w);
}

static void a_channel_that_closes_leaves_all_its_groups(void **state)
{
    (void)state;
    world w;
    begin(&w, 2);
    weir_channel_group *second = weir_channel_group_new(), *third = weir_channel_group_new();
    assert_int_equal(weir_channel_group_add(second, w.channels[0]), 0);
    assert_int_equal(weir_channel_group_add(third, w.channels[0]), 0);
    assert_int_equal(weir_channel_group_remove(third, w.channels[0]), 0);
    weir_channel_close(w.channels[0], NULL);
    settle(w.loops);
    assert_false(weir_channel_group_contains(w.group, w.channels[0]));
    assert_true(weir_channel_group_contains(w.group, w.channels[1]));
    assert_int_equal(weir_channel_group_count(w.group), 1);
    assert_int_equal(weir_channel_group_count(second), 0);
    assert_int_equal(weir_channel_group_remove(second, w.channels[0]), WEIR_ENOTFOUND);
    weir_channel_group_release(second);
    weir_channel_group_release(third);
    end(&w);
}

static int close_and_add(void *arg)
{
    world *w = arg;
    weir_channel_close(w->channels[0], NULL);
    assert_int_equal(weir_channel_get_state(w->channels[0]), WEIR_CHANNEL_CLOSING);
    return weir_channel_group_add(w->group, w->channels[0]);
}

static void a_closed_channel_is_not_added(void **state)
{
    (void)state;
    world w;
    begin_with(&w, 1, NULL);
    assert_int_equal(weir_embedded_call(w.embedded[0], close_and_add, &w), WEIR_ECLOSED);
    settle(w.loops);
    assert_int_equal(weir_channel_group_add(w.group, w.channels[0]), WEIR_ECLOSED);
    assert_int_equal(weir_channel_group_count(w.group), 0);
    end(&w);
}

/* A peer that joins and leaves rooms all day shall not fill the memory. */
static void coming_and_going_leaves_nothing_behind(void **state)
{
    (void)state;
    world w;
    begin(&w, 1);
    uint64_t before = live_allocations();
    for (int i = 0; i < 1000; i++) {
        weir_channel_group *room = weir_channel_group_new();
        assert_int_equal(weir_channel_group_add(room, w.channels[0]), 0);
        if (i % 2 == 0)
            assert_int_equal(weir_channel_group_remove(room, w.channels[0]), 0);
        weir_channel_group_release(room);
        assert_int_equal(weir_channel_group_remove(w.group, w.channels[0]), 0);
        assert_int_equal(weir_channel_group_add(w.group, w.channels[0]), 0);
    }
    assert_int_equal(live_allocations(), before);
    end(&w);
}

static void a_group_that_goes_lets_its_channels_live(void **state)
{
    (void)state;
    world w;
    begin(&w, 3);
    weir_channel_close(w.channels[2], NULL); /* under way */
    assert_ptr_equal(weir_channel_group_retain(w.group), w.group);
    weir_channel_group_release(w.group);
    assert_int_equal(weir_channel_group_count(w.group), 3);
    weir_channel_group_release(w.group);
    w.group = NULL;
    settle(w.loops);
    assert_true(weir_channel_is_active(w.channels[0]));
    weir_channel_write_and_flush(w.channels[0], text("x"), NULL);
    settle(w.loops);
    expect_sent(w.embedded[0], "x");
    end(&w);
}

static void a_group_outlives_channels_and_loops(void **state)
{
    (void)state;
    world w;
    begin(&w, 3);
    weir_channel_group *group = weir_channel_group_retain(w.group);
    end(&w);
    assert_int_equal(weir_channel_group_count(group), 0);
    weir_channel_group_release(group);
}

static void a_channel_off_its_loop_leaves_when_it_is_closed(void **state)
{
    (void)state;
    world w;
    begin(&w, 1);
    weir_promise *promise = weir_channel_promise(w.channels[0]);
    weir_channel *channel = weir_channel_retain(w.channels[0]);
    weir_channel_deregister(channel, promise);
    settle(w.loops);
    assert_int_equal(code_of(promise), 0);
    weir_promise_release(promise);
    weir_channel_group *group = weir_channel_group_retain(w.group);
    end(&w);
    assert_int_equal(weir_channel_group_count(group), 0);
    weir_channel_release(channel);
    weir_channel_group_release(group);
}

/* Walks ---------------------------------------------------------------------------------------- */

typedef struct visits {
    world *w;
    weir_channel *seen[MOST];
    int count, most;
    void (*act)(struct visits *self, weir_channel *channel);
} visits;

static bool visit(void *arg, weir_channel *channel)
{
    visits *self = arg;
    assert_true(self->count < MOST);
    self->seen[self->count++] = channel;
    if (self->act != NULL)
        self->act(self, channel);
    return self->count != self->most;
}

static void expect_visits(world *w, void (*act)(visits *, weir_channel *), const char *expected)
{
    visits all = { .w = w, .act = act };
    char seen[MOST + 1] = "";
    assert_int_equal(weir_channel_group_each(w->group, visit, &all), strlen(expected));
    for (int i = 0; i < all.count; i++) {
        for (int k = 0; k < w->count; k++) {
            if (w->channels[k] == all.seen[i])
                seen[i] = (char)('0' + k);
        }
    }
    assert_string_equal(seen, expected);
}

static void remove_it(visits *self, weir_channel *channel)
{
    assert_int_equal(weir_channel_group_remove(self->w->group, channel), 0);
}

static void remove_the_next(visits *self, weir_channel *channel)
{
    for (int i = 0; i + 1 < self->w->count; i++) {
        if (self->w->channels[i] == channel)
            weir_channel_group_remove(self->w->group, self->w->channels[i + 1]);
    }
}

/* Goes to the end of the order, again and again. */
static void come_back(visits *self, weir_channel *channel)
{
    assert_int_equal(weir_channel_group_remove(self->w->group, channel), 0);
    assert_int_equal(weir_channel_group_add(self->w->group, channel), 0);
}

static void walk_inside(visits *self, weir_channel *channel)
{
    (void)channel;
    assert_int_equal(weir_channel_group_each(self->w->group, visit_nothing, NULL), 3);
}

static void a_walk_visits_each_once_whatever_happens_inside(void **state)
{
    (void)state;
    world w;
    begin(&w, 3);
    expect_visits(&w, NULL, "012");
    expect_visits(&w, walk_inside, "012");
    expect_visits(&w, come_back, "012");
    expect_visits(&w, remove_the_next, "02");
    assert_int_equal(weir_channel_group_add(w.group, w.channels[1]), 0);
    expect_visits(&w, NULL, "021");
    visits two = { .w = &w, .most = 2 };
    assert_int_equal(weir_channel_group_each(w.group, visit, &two), 2);
    expect_visits(&w, remove_it, "021");
    expect_visits(&w, NULL, "");
    end(&w);
}

static void close_it(visits *self, weir_channel *channel)
{
    (void)self;
    weir_channel_close(channel, NULL);
}

static int close_each(void *arg)
{
    expect_visits(arg, close_it, "0123");
    return 0;
}

static void channels_may_be_closed_inside_a_walk(void **state)
{
    (void)state;
    world w;
    begin(&w, 4);
    assert_int_equal(weir_embedded_call(w.embedded[0], close_each, &w), 0);
    settle(w.loops);
    assert_int_equal(weir_channel_group_count(w.group), 0);
    end(&w);
}

static void release_the_group(visits *self, weir_channel *channel)
{
    (void)channel;
    weir_channel_group_release(self->w->group);
    self->w->group = NULL;
}

static void the_group_may_be_released_inside_a_walk(void **state)
{
    (void)state;
    world w;
    begin(&w, 3);
    visits all = { .w = &w, .act = release_the_group };
    assert_int_equal(weir_channel_group_each(w.group, visit, &all), 3);
    end(&w);
}

/* Broadcasts ----------------------------------------------------------------------------------- */

static bool is_writable(void *arg, weir_channel *channel)
{
    assert_ptr_equal(arg, &weir_buf_type);
    return weir_channel_is_writable(channel);
}

/* As from a buffer that could not be made: nothing may follow the gap. */
static void broadcast_of_null_fails_every_write(void **state)
{
    (void)state;
    world w;
    begin(&w, 2);
    weir_broadcast_result result = { 77, 77 };
    weir_broadcast how = { .promise = new_promise(), .result = &result };
    assert_int_equal(weir_channel_group_broadcast(w.group, NULL, &how), 2);
    settle(w.loops);
    assert_int_equal(code_of(how.promise), -ENOMEM);
    assert_int_equal(result.failed, 2);
    weir_promise_release(how.promise);
    assert_int_equal(weir_channel_group_broadcast(w.group, NULL, NULL), 2);
    weir_channel_group_broadcast(w.group, text("after the gap"), NULL);
    settle(w.loops);
    for (int i = 0; i < 2; i++) {
        assert_false(weir_channel_is_open(w.channels[i]));
        expect_sent(w.embedded[i], "");
        weir_error error;
        assert_true(weir_embedded_take_error(w.embedded[i], &error));
        assert_int_equal(error.code, -ENOMEM);
    }
    end(&w);
}

static void a_broadcast_reaches_all_but_one(void **state)
{
    (void)state;
    world w;
    begin(&w, 4);
    assert_int_equal(weir_channel_group_broadcast(w.group, text("a"), NULL), 4);
    assert_int_equal(weir_channel_group_broadcast(w.group, text("b"),
                                                  &(weir_broadcast){ .except = w.channels[1] }),
                     3);
    assert_int_equal(weir_channel_set_write_hold(w.channels[2], fresh_hold(&hold), true), 0);
    weir_broadcast to_writable = { .matches = is_writable, .match_arg = (void *)&weir_buf_type };
    assert_int_equal(weir_channel_group_broadcast(w.group, text("c"), &to_writable), 3);
    assert_int_equal(weir_channel_group_remove(w.group, w.channels[3]), 0);
    assert_int_equal(weir_channel_group_broadcast(w.group, text("d"), NULL), 3);
    settle(w.loops);
    expect_sent(w.embedded[0], "abcd");
    expect_sent(w.embedded[1], "acd");
    expect_sent(w.embedded[2], "abd");
    expect_sent(w.embedded[3], "abc");
    end(&w);
}

/* A handler that takes the first byte of what is written, and appends one. */
static void change_written(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_buf *buf = weir_buf_from_msg(msg);
    assert_int_equal(weir_buf_skip(buf, 1), 0);
    assert_int_equal(weir_buf_write_u8(buf, '!'), 0);
    weir_ctx_write(ctx, msg, promise);
}

static const weir_handler_type changer = { .name = "changer", .write = change_written };

static int add_changer(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "changer", &changer, arg);
}

static void each_channel_has_indices_of_its_own(void **state)
{
    (void)state;
    world w;
    begin_with(&w, 3, add_changer);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_channel_group_add(w.group, w.channels[i]), 0);
    weir_msg *msg = text("abc");
    weir_channel_group_broadcast(w.group, weir_msg_retain(msg), NULL);
    settle(w.loops);
    for (int i = 0; i < 3; i++)
        expect_sent(w.embedded[i], "bc!");
    assert_int_equal(weir_buf_readable(weir_buf_from_msg(msg)), 3);
    assert_int_equal(weir_msg_release(msg), 1);
    end(&w);
}

static void destroy_nothing(weir_msg *msg)
{
    (void)msg;
}

static const weir_msg_type plain_type = { .name = "plain", .destroy = destroy_nothing };

static void another_message_is_shared(void **state)
{
    (void)state;
    world w;
    weir_msg msg;
    begin(&w, 3);
    weir_msg_init(&msg, &plain_type);
    weir_channel_group_broadcast(w.group, weir_msg_retain(&msg), NULL);
    settle(w.loops);
    assert_int_equal(weir_msg_refs(&msg), 4);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(weir_embedded_read_outbound(w.embedded[i]), &msg);
        weir_msg_release(&msg);
    }
    assert_int_equal(weir_msg_release(&msg), 1);
    end(&w);
}

static void a_promise_joins_the_results(void **state)
{
    (void)state;
    world w;
    begin(&w, 3);
    weir_broadcast_result result = { 77, 77 };
    weir_broadcast how = { .promise = new_promise(), .result = &result };
    assert_int_equal(weir_embedded_accept(w.embedded[1], 0), 0);
    assert_int_equal(weir_channel_group_broadcast(w.group, text("x"), &how), 3);
    settle(w.loops);
    assert_int_equal(code_of(how.promise), -EINPROGRESS); /* one of them waits */
    assert_int_equal(weir_future_cancel(weir_promise_future(how.promise)), -EBUSY);
    assert_int_equal(result.succeeded, 77);
    assert_int_equal(weir_embedded_accept(w.embedded[1], SIZE_MAX), 0);
    settle(w.loops);
    assert_int_equal(code_of(how.promise), 0);
    assert_int_equal(result.succeeded, 3);
    assert_int_equal(result.failed, 0);
    weir_promise_release(how.promise);
    end(&w);
}

static void nobody_to_write_to_is_a_success(void **state)
{
    (void)state;
    world w;
    begin(&w, 1);
    weir_broadcast_result result = { 77, 77 };
    weir_broadcast how = { .except = w.channels[0], .promise = new_promise(), .result = &result };
    assert_int_equal(weir_channel_group_broadcast(w.group, text("x"), &how), 0);
    assert_int_equal(code_of(how.promise), 0);
    assert_int_equal(result.succeeded + result.failed, 0);
    weir_promise_release(how.promise);
    end(&w);
}

static void a_cancelled_promise_prevents_the_broadcast(void **state)
{
    (void)state;
    world w;
    begin(&w, 1);
    weir_broadcast how = { .promise = new_promise() };
    assert_int_equal(weir_future_cancel(weir_promise_future(how.promise)), 0);
    assert_int_equal(weir_channel_group_broadcast(w.group, text("x"), &how), 0);
    settle(w.loops);
    expect_sent(w.embedded[0], "");
    weir_promise_release(how.promise);
    end(&w);
}

static void fill(world *w, int which)
{
    assert_int_equal(
        weir_channel_set_option(w->channels[which], WEIR_OPTION_MAX_OUTBOUND_BYTES, 4, NULL), 0);
    assert_int_equal(weir_embedded_accept(w->embedded[which], 0), 0);
    weir_channel_write_and_flush(w->channels[which], text("full"), NULL);
    settle(w->loops);
}

static void a_channel_that_fails_does_not_hurt_the_others(void **state)
{
    (void)state;
    world w;
    begin(&w, 4);
    weir_broadcast_result result;
    weir_broadcast how = { .promise = new_promise(), .result = &result };
    fill(&w, 1);
    assert_int_equal(weir_channel_group_broadcast(w.group, text("x"), &how), 4);
    settle(w.loops);
    assert_int_equal(code_of(how.promise), WEIR_ELIMIT);
    assert_int_equal(result.succeeded, 3);
    assert_int_equal(result.failed, 1);
    weir_promise_release(how.promise);
    for (int i = 0; i < 4; i++)
        expect_sent(w.embedded[i], i == 1 ? "" : "x");
    assert_true(weir_channel_is_active(w.channels[1])); /* whoever asked was told */
    weir_channel_group_broadcast(w.group, text("y"), NULL);
    settle(w.loops);
    assert_false(weir_channel_is_open(w.channels[1])); /* nobody was: no gap is left */
    assert_false(weir_channel_group_contains(w.group, w.channels[1]));
    for (int i = 0; i < 4; i++)
        expect_sent(w.embedded[i], i == 1 ? "" : "y");
    end(&w);
}

typedef struct beside {
    world *w;
    weir_broadcast how;
} beside;

static int broadcast_beside_a_close(void *arg)
{
    beside *self = arg;
    weir_channel_close(self->w->channels[0], NULL);
    assert_true(weir_channel_group_contains(self->w->group, self->w->channels[0]));
    return (int)weir_channel_group_broadcast(self->w->group, text("x"), &self->how);
}

static void a_channel_that_closes_fails_alone(void **state)
{
    (void)state;
    world w;
    weir_broadcast_result result;
    begin(&w, 4);
    beside all = { &w, { .promise = new_promise(), .result = &result } };
    assert_int_equal(weir_embedded_call(w.embedded[0], broadcast_beside_a_close, &all), 4);
    settle(w.loops);
    assert_int_equal(code_of(all.how.promise), WEIR_ECLOSED);
    assert_int_equal(result.succeeded, 3);
    assert_int_equal(result.failed, 1);
    weir_promise_release(all.how.promise);
    for (int i = 1; i < 4; i++)
        expect_sent(w.embedded[i], "x");
    end(&w);
}

/* The example of the header -------------------------------------------------------------------- */

static void chat_on_active(weir_ctx *ctx)
{
    if (weir_channel_group_add(weir_ctx_arg(ctx), weir_ctx_channel(ctx)) < 0)
        weir_ctx_close(ctx, NULL);
    weir_ctx_fire_active(ctx);
}

static void chat_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_broadcast to_others = { .except = weir_ctx_channel(ctx) };
    weir_channel_group_broadcast(weir_ctx_arg(ctx), msg, &to_others);
}

static const weir_handler_type chat = {
    .name = "chat",
    .on_active = chat_on_active,
    .on_read = chat_on_read,
};

static int add_chat(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "chat", &chat, arg);
}

static void handlers_chat_through_a_group(void **state)
{
    (void)state;
    world w;
    begin_with(&w, 4, add_chat);
    settle(w.loops);
    assert_int_equal(weir_channel_group_count(w.group), 4);
    assert_int_equal(weir_embedded_write_inbound(w.embedded[0], text("hello")), 0);
    assert_int_equal(weir_embedded_write_inbound(w.embedded[1], text(" hi")), 0);
    assert_int_equal(weir_embedded_close(w.embedded[3]), 0);
    assert_int_equal(weir_embedded_write_inbound(w.embedded[2], text(".")), 0);
    settle(w.loops);
    expect_sent(w.embedded[0], " hi.");
    expect_sent(w.embedded[1], "hello.");
    expect_sent(w.embedded[2], "hello hi");
    expect_sent(w.embedded[3], "hello hi");
    weir_channel_group_close(w.group, NULL);
    settle(w.loops);
    weir_embedded *late = new_embedded(w.loops, add_chat, w.group);
    settle(w.loops);
    assert_false(weir_channel_is_open(weir_embedded_channel(late)));
    weir_embedded_free(late);
    end(&w);
}

/* Closing -------------------------------------------------------------------------------------- */

static void expect_all_closed(world *w)
{
    for (int i = 0; i < w->count; i++)
        assert_true(weir_future_is_done(weir_channel_closed(w->channels[i])));
    assert_int_equal(weir_channel_group_count(w->group), 0);
}

static void close_all_waits_until_all_are_closed(void **state)
{
    (void)state;
    world w;
    begin(&w, 4);
    weir_promise *promise = new_promise(), *second = new_promise(), *third = new_promise();
    weir_channel_close(w.channels[1], NULL); /* under way */
    weir_channel_group_close_all(w.group, promise);
    weir_channel_group_close_all(w.group, second);
    weir_channel_group_close_all(w.group, NULL);
    assert_int_equal(code_of(promise), -EINPROGRESS);
    settle(w.loops);
    assert_int_equal(code_of(promise), 0);
    assert_int_equal(code_of(second), 0);
    expect_all_closed(&w);
    weir_channel_group_close_all(w.group, third); /* nothing to do */
    assert_int_equal(code_of(third), 0);
    weir_promise_release(promise);
    weir_promise_release(second);
    weir_promise_release(third);
    end(&w);
}

typedef struct told {
    weir_listener listener;
    world *w;
    bool is_told;
} told;

static void check_all_closed(weir_listener *listener, weir_future *future)
{
    told *self = WEIR_CONTAINER(listener, told, listener);
    assert_int_equal(weir_future_code(future), 0);
    expect_all_closed(self->w);
    self->is_told = true;
}

/* Removing one does not make it closed. */
static void close_all_waits_for_those_that_are_removed_meanwhile(void **state)
{
    (void)state;
    world w;
    begin(&w, 3);
    weir_promise *promise = new_promise();
    told last = { .listener.done = check_all_closed, .w = &w };
    weir_future_listen(weir_promise_future(promise), &last.listener);
    weir_channel_group_close_all(w.group, promise);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_channel_group_remove(w.group, w.channels[i]), 0);
    assert_int_equal(weir_channel_group_remove(w.group, w.channels[0]), WEIR_ENOTFOUND);
    assert_int_equal(weir_channel_group_add(w.group, w.channels[0]), WEIR_ECLOSED);
    assert_false(weir_channel_group_contains(w.group, w.channels[0]));
    assert_int_equal(weir_channel_group_count(w.group), 0);
    assert_int_equal(weir_channel_group_each(w.group, visit_nothing, NULL), 0);
    assert_int_equal(weir_channel_group_broadcast(w.group, text("x"), NULL), 0);
    assert_int_equal(code_of(promise), -EINPROGRESS);
    settle(w.loops);
    assert_true(last.is_told);
    weir_promise_release(promise);
    end(&w);
}

/* A handler that empties the group when its channel is asked to close, and only then closes it. */
static void empty_the_group(weir_ctx *ctx, weir_promise *promise)
{
    world *w = weir_ctx_arg(ctx);
    for (int i = 0; i < w->count; i++)
        weir_channel_group_remove(w->group, w->channels[i]);
    weir_ctx_close(ctx, promise);
}

static const weir_handler_type emptier = { .name = "emptier", .close = empty_the_group };

static int close_all_here(void *arg)
{
    told *last = arg;
    weir_promise *promise = new_promise();
    weir_future_listen(weir_promise_future(promise), &last->listener);
    weir_channel_group_close_all(last->w->group, promise);
    weir_promise_release(promise);
    return 0;
}

static void close_all_closes_also_those_that_its_own_closing_removes(void **state)
{
    (void)state;
    world w;
    begin(&w, 4);
    told last = { .listener.done = check_all_closed, .w = &w };
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(w.channels[0]), "emptier", &emptier, &w), 0);
    settle(w.loops);
    assert_int_equal(weir_embedded_call(w.embedded[0], close_all_here, &last), 0);
    settle(w.loops);
    assert_true(last.is_told);
    end(&w);
}

static void a_channel_added_after_close_all_stays_open(void **state)
{
    (void)state;
    world w;
    begin_with(&w, 2, NULL);
    weir_promise *promise = new_promise();
    assert_int_equal(weir_channel_group_add(w.group, w.channels[0]), 0);
    weir_channel_group_close_all(w.group, promise);
    assert_false(weir_channel_group_is_closed(w.group));
    assert_int_equal(weir_channel_group_add(w.group, w.channels[1]), 0);
    settle(w.loops);
    assert_int_equal(code_of(promise), 0);
    assert_int_equal(weir_channel_group_count(w.group), 1);
    assert_true(weir_channel_is_active(w.channels[1]));
    weir_promise_release(promise);
    end(&w);
}

static void a_closed_group_closes_what_is_added(void **state)
{
    (void)state;
    world w;
    begin_with(&w, 2, NULL);
    weir_promise *promise = new_promise();
    assert_int_equal(weir_channel_group_add(w.group, w.channels[0]), 0);
    weir_channel_group_close(w.group, promise);
    assert_true(weir_channel_group_is_closed(w.group));
    assert_int_equal(weir_channel_group_add(w.group, w.channels[1]), WEIR_ECLOSED);
    assert_int_equal(weir_channel_group_count(w.group), 1);
    settle(w.loops);
    assert_int_equal(code_of(promise), 0);
    expect_all_closed(&w);
    weir_promise_release(promise);
    end(&w);
}

static void a_group_stays_until_its_channels_are_closed(void **state)
{
    (void)state;
    world w;
    begin(&w, 3);
    weir_promise *promise = new_promise();
    weir_channel_group_close_all(w.group, promise);
    weir_channel_group_release(w.group);
    w.group = NULL;
    settle(w.loops);
    assert_int_equal(code_of(promise), 0);
    for (int i = 0; i < 3; i++)
        assert_false(weir_channel_is_open(w.channels[i]));
    weir_promise_release(promise);
    end(&w);
}

/* Faults --------------------------------------------------------------------------------------- */

static int fail_all(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    return strcmp(call, "alloc") == 0 || strcmp(call, "pool") == 0 ? -ENOMEM : 0;
}

static void closing_needs_no_memory(void **state)
{
    (void)state;
    world w;
    begin_with(&w, 4, NULL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_channel_group_add(w.group, w.channels[i]), 0);
    weir_promise *promise = new_promise();
    weir_fault_set(fail_all, NULL);
    weir_channel_group_close(w.group, promise);
    assert_int_equal(weir_channel_group_add(w.group, w.channels[3]), WEIR_ECLOSED);
    settle(w.loops);
    weir_fault_set(NULL, NULL);
    assert_int_equal(code_of(promise), 0);
    expect_all_closed(&w);
    weir_promise_release(promise);
    end(&w);
}

static void a_broadcast_without_memory_leaves_no_gaps(void **state)
{
    (void)state;
    world w;
    begin(&w, 3);
    weir_promise *promise = new_promise();
    weir_msg *first = text("x"), *second = text("y");
    weir_fault_set(fail_all, NULL);
    assert_int_equal(
        weir_channel_group_broadcast(w.group, first, &(weir_broadcast){ .promise = promise }), 0);
    assert_int_equal(code_of(promise), -ENOMEM);
    settle(w.loops);
    assert_int_equal(weir_channel_group_count(w.group), 3);
    assert_int_equal(weir_channel_group_broadcast(w.group, second, NULL), 3);
    settle(w.loops);
    weir_fault_set(NULL, NULL);
    expect_all_closed(&w);
    weir_promise_release(promise);
    end(&w);
}

/* Adds until all are in, and tells how often that failed. */
static unsigned add_in_spite_of_faults(world *w)
{
    unsigned failures = 0;
    for (int i = 0; i < w->count; i++) {
        int code;
        while ((code = weir_channel_group_add(w->group, w->channels[i])) == -ENOMEM) {
            assert_false(weir_channel_group_contains(w->group, w->channels[i]));
            failures++;
        }
        assert_int_equal(code, 0);
    }
    assert_int_equal(weir_channel_group_count(w->group), w->count);
    return failures;
}

static void every_allocation_of_an_add_may_fail(void **state)
{
    (void)state;
    unsigned nth = 0, seen, failures = 0;
    do {
        world w;
        begin_with(&w, 2, NULL);
        weir_channel_group_release(w.group);
        harness_fail_nth("alloc", ++nth, -ENOMEM);
        if ((w.group = weir_channel_group_new()) == NULL) {
            failures++;
            w.group = weir_channel_group_new();
        }
        failures += add_in_spite_of_faults(&w);
        seen = harness_fail_end();
        end(&w);
    } while (seen >= nth);
    assert_int_equal(failures, nth - 1);
    assert_true(nth > 4);
}

/* Closes a channel at the n-th allocation of an add, which is after its look at the channel. */
typedef struct ambush {
    world *w;
    unsigned at, seen;
} ambush;

static int close_at_nth(void *arg, const char *call, size_t *length)
{
    ambush *self = arg;
    (void)length;
    if (strcmp(call, "alloc") == 0 && ++self->seen == self->at) {
        weir_channel_close(self->w->channels[0], NULL);
        settle(self->w->loops);
    }
    return 0;
}

static void a_channel_that_closes_while_it_is_added_is_not_in(void **state)
{
    (void)state;
    ambush all = { .at = 0 };
    do {
        world w;
        begin_with(&w, 1, NULL);
        all = (ambush){ .w = &w, .at = all.at + 1 };
        weir_fault_set(close_at_nth, &all);
        int code = weir_channel_group_add(w.group, w.channels[0]);
        weir_fault_set(NULL, NULL);
        assert_int_equal(code, all.seen < all.at ? 0 : WEIR_ECLOSED);
        assert_int_equal(weir_channel_group_count(w.group), code == 0);
        end(&w);
    } while (all.seen >= all.at);
    assert_true(all.at > 4);
}

/* Behind eight members the table grows, or does so later. */
static void a_table_that_cannot_grow_holds_them_all_the_same(void **state)
{
    (void)state;
    world first, second;
    begin(&first, MOST);
    begin(&second, 2); /* so that they have been in a group before */
    uint64_t before = live_allocations();
    harness_fail_nth("alloc", 2, -ENOMEM);
    assert_int_equal(weir_channel_group_add(first.group, second.channels[0]), 0);
    assert_int_equal(harness_fail_end(), 2);
    assert_int_equal(live_allocations(), before + 1);
    assert_int_equal(weir_channel_group_add(first.group, second.channels[1]), 0);
    assert_int_equal(live_allocations(), before + 3);
    assert_int_equal(weir_channel_group_count(first.group), MOST + 2);
    for (int i = 0; i < MOST; i++)
        assert_true(weir_channel_group_contains(first.group, first.channels[i]));
    for (int i = 0; i < 2; i++)
        assert_true(weir_channel_group_contains(first.group, second.channels[i]));
    end(&second);
    end(&first);
}

/* What the results say is so, and nobody is hurt. Returns the promise's code. */
static int broadcast_with_fault(world *w, const char *call, unsigned nth, unsigned *seen)
{
    weir_broadcast_result result = { 0 };
    weir_broadcast how = { .promise = new_promise(), .result = &result };
    weir_msg *msg = text("x");
    size_t sent = 0;
    harness_fail_nth(call, nth, -ENOMEM);
    size_t count = weir_channel_group_broadcast(w->group, msg, &how);
    settle(w->loops);
    *seen = harness_fail_end();
    int code = code_of(how.promise);
    weir_promise_release(how.promise);
    for (int i = 0; i < w->count; i++)
        sent += weir_embedded_outbound_count(w->embedded[i]);
    assert_int_equal(sent, result.succeeded);
    assert_int_equal(result.succeeded + result.failed, count);
    assert_true(weir_channel_group_count(w->group) >= sent); /* less when sending itself fails */
    assert_int_equal(code, sent == (size_t)w->count ? 0 : -ENOMEM);
    return code;
}

static void every_allocation_of_a_broadcast_may_fail(void **state)
{
    (void)state;
    static const char *const calls[] = { "alloc", "pool" };
    for (int which = 0; which < 2; which++) {
        unsigned nth = 0, seen, failures = 0;
        do {
            world w;
            begin(&w, 3);
            failures += broadcast_with_fault(&w, calls[which], ++nth, &seen) < 0;
            end(&w);
        } while (seen >= nth);
        assert_int_equal(failures, nth - 1);
        assert_true(nth > 3);
    }
}

/* Many ----------------------------------------------------------------------------------------- */

#define MANY 10000

static void ten_thousand_members(void **state)
{
    (void)state;
    static weir_embedded *all[MANY];
    weir_group *loops = new_loops(2, true);
    weir_channel_group *group = weir_channel_group_new();
    weir_promise *promise = new_promise();
    weir_broadcast_result result;
    for (int i = 0; i < MANY; i++) {
        all[i] = new_embedded(loops, NULL, NULL);
        assert_int_equal(weir_channel_group_add(group, weir_embedded_channel(all[i])), 0);
    }
    for (int i = 0; i < MANY; i++) {
        weir_channel *channel = weir_embedded_channel(all[i]);
        weir_channel *found = weir_channel_group_find(group, weir_channel_id(channel));
        assert_ptr_equal(found, channel);
        weir_channel_release(found);
    }
    for (int i = 0; i < MANY; i += 2)
        assert_int_equal(weir_channel_group_remove(group, weir_embedded_channel(all[i])), 0);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(weir_channel_group_contains(group, weir_embedded_channel(all[i])), i % 2);
    weir_broadcast how = { .promise = promise, .result = &result };
    assert_int_equal(weir_channel_group_broadcast(group, text("x"), &how), MANY / 2);
    settle(loops);
    assert_int_equal(code_of(promise), 0);
    assert_int_equal(result.succeeded, MANY / 2);
    weir_promise_release(promise);
    promise = new_promise();
    weir_channel_group_close_all(group, promise);
    settle(loops);
    assert_int_equal(code_of(promise), 0);
    assert_int_equal(weir_channel_group_count(group), 0);
    weir_promise_release(promise);
    weir_channel_group_release(group);
    weir_group_shutdown(loops, 0, WEIR_SECONDS(10)); /* closes the others at once */
    for (int i = 0; i < MANY; i++)
        weir_embedded_free(all[i]);
    weir_group_free(loops);
}

/* Threads -------------------------------------------------------------------------------------- */

#define THREADS 4

typedef struct crew crew;
typedef void (*body_fn)(crew *self, int index);

struct crew {
    pthread_barrier_t start;
    body_fn body;
    weir_group *loops;
    weir_channel_group *group, *other;
    weir_channel *channel;
    _Atomic(int) next, asked, answered, wins;
};

typedef struct crew_member {
    pthread_t thread;
    crew *crew;
    int index;
} crew_member;

static void *run_member(void *arg)
{
    crew_member *self = arg;
    pthread_barrier_wait(&self->crew->start);
    self->crew->body(self->crew, self->index);
    return NULL;
}

static void run_crew(crew *self, body_fn body)
{
    crew_member members[THREADS];
    self->body = body;
    pthread_barrier_init(&self->start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        members[i] = (crew_member){ .crew = self, .index = i };
        assert_int_equal(pthread_create(&members[i].thread, NULL, run_member, &members[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(members[i].thread, NULL);
    pthread_barrier_destroy(&self->start);
}

static int join_loop(void *arg)
{
    (void)arg;
    return 0;
}

/* Returns when the loops have done what they were asked for until now. */
static void settle_threads(weir_group *loops)
{
    for (int rounds = 0; rounds < 4; rounds++) {
        for (size_t i = 0; i < weir_group_count(loops); i++) {
            weir_future *future;
            assert_int_equal(
                weir_executor_submit(weir_group_at(loops, i), join_loop, NULL, &future), 0);
            assert_int_equal(weir_future_await(future), 0);
            weir_future_release(future);
        }
    }
}

static void begin_crew(crew *self)
{
    *self = (crew){ .loops = new_loops(2, false), .group = weir_channel_group_new() };
}

static void end_crew(crew *self)
{
    weir_channel_group_release(self->group);
    end_loops(self->loops);
}

typedef struct question {
    weir_listener listener;
    crew *crew;
    weir_broadcast_result result;
    size_t count;
} question;

static void question_answered(weir_listener *listener, weir_future *future)
{
    question *self = WEIR_CONTAINER(listener, question, listener);
    (void)future;
    self->crew->answered++;
    free(self);
}

/* A broadcast whose end is counted. */
static void ask_all(crew *self)
{
    question *one = calloc(1, sizeof *one);
    weir_broadcast how = { .promise = weir_promise_new(NULL), .result = &one->result };
    one->listener.done = question_answered;
    one->crew = self;
    self->asked++;
    weir_future_listen(weir_promise_future(how.promise), &one->listener);
    weir_channel_group_broadcast(self->group, weir_buf_msg(weir_buf_from("x", 1)), &how);
    weir_promise_release(how.promise);
}

static bool look_at(void *arg, weir_channel *channel)
{
    crew *self = arg;
    weir_channel *found = weir_channel_group_find(self->group, weir_channel_id(channel));
    weir_channel_release(found); /* it may have gone */
    return true;
}

static void come_write_and_go(crew *self, int index)
{
    for (int i = 0; i < 60; i++) {
        weir_embedded *mine = new_embedded(self->loops, NULL, NULL);
        weir_channel *channel = weir_embedded_channel(mine);
        assert_int_equal(weir_channel_group_add(self->group, channel), 0);
        ask_all(self);
        weir_channel_group_broadcast(self->group, weir_buf_msg(weir_buf_from("y", 1)),
                                     &(weir_broadcast){ .except = channel });
        weir_channel_group_each(self->group, look_at, self);
        if ((i + index) % 3 == 0)
            assert_int_equal(weir_channel_group_remove(self->group, channel), 0);
        weir_embedded_free(mine);
    }
}

static void four_threads_broadcast_while_channels_come_and_go(void **state)
{
    (void)state;
    crew all;
    begin_crew(&all);
    weir_embedded *stays = new_embedded(all.loops, NULL, NULL);
    assert_int_equal(weir_channel_group_add(all.group, weir_embedded_channel(stays)), 0);
    run_crew(&all, come_write_and_go);
    settle_threads(all.loops);
    assert_int_equal(weir_channel_group_count(all.group), 1);
    assert_int_equal(weir_embedded_outbound_count(stays), (size_t)THREADS * 60 * 2);
    weir_embedded_free(stays);
    end_crew(&all);
    assert_int_equal(all.answered, all.asked);
}

/* Each thread adds the same channel to a group of its own and to one of all, for the first time. */
static void add_the_same(crew *self, int index)
{
    (void)index;
    weir_channel_group *mine = weir_channel_group_new();
    assert_int_equal(weir_channel_group_add(mine, self->channel), 0);
    int code = weir_channel_group_add(self->group, self->channel);
    assert_true(code == 0 || code == -EEXIST);
    self->wins += code == 0;
    weir_channel_group_release(mine);
}

static void one_channel_is_added_by_four_threads(void **state)
{
    (void)state;
    crew all;
    begin_crew(&all);
    for (int i = 0; i < 50; i++) {
        weir_embedded *embedded = new_embedded(all.loops, NULL, NULL);
        all.channel = weir_embedded_channel(embedded);
        all.wins = 0;
        run_crew(&all, add_the_same);
        assert_int_equal(all.wins, 1);
        assert_int_equal(weir_embedded_close(embedded), 0);
        settle_threads(all.loops);
        assert_int_equal(weir_channel_group_count(all.group), 0);
        weir_embedded_free(embedded);
    }
    end_crew(&all);
}

/* One adds, one removes, one closes, one lets a group go that has it. */
static void tear_at_it(crew *self, int index)
{
    switch (index) {
    case 0:
        weir_channel_group_add(self->group, self->channel);
        break;
    case 1:
        weir_channel_group_remove(self->group, self->channel);
        break;
    case 2:
        weir_channel_close(self->channel, NULL);
        break;
    default:
        weir_channel_group_release(self->other);
        break;
    }
}

static void adding_removing_closing_and_releasing_at_once(void **state)
{
    (void)state;
    crew all;
    begin_crew(&all);
    for (int i = 0; i < 200; i++) {
        weir_embedded *embedded = new_embedded(all.loops, NULL, NULL);
        all.channel = weir_embedded_channel(embedded);
        all.other = weir_channel_group_new();
        assert_int_equal(weir_channel_group_add(all.other, all.channel), 0);
        if (i % 2 == 0)
            assert_int_equal(weir_channel_group_add(all.group, all.channel), 0);
        run_crew(&all, tear_at_it);
        assert_int_equal(weir_future_await(weir_channel_closed(all.channel)), 0);
        settle_threads(all.loops);
        assert_int_equal(weir_channel_group_count(all.group), 0);
        weir_embedded_free(embedded);
    }
    end_crew(&all);
}

/* One closes all, others close some, remove some, and add one. */
static void close_at_once(crew *self, int index)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel *channel;
    switch (index) {
    case 0:
        weir_channel_group_close(self->group, promise);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
        break;
    case 1:
        weir_channel_group_close_all(self->group, promise);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
        break;
    case 2:
        weir_channel_close(self->channel, NULL);
        weir_promise_set(promise, 0);
        break;
    default:
        channel = weir_channel_parent(self->channel);
        weir_channel_group_remove(self->group, self->channel);
        weir_channel_group_add(self->group, channel);
        weir_promise_set(promise, 0);
        break;
    }
    weir_promise_release(promise);
}

static void a_group_is_closed_while_its_channels_close(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        crew all;
        weir_embedded *some[6];
        begin_crew(&all);
        weir_embedded *late = new_embedded(all.loops, NULL, NULL);
        weir_embedded_config config = { .group = all.loops, .parent = weir_embedded_channel(late) };
        for (int k = 0; k < 6; k++) {
            assert_int_equal(weir_embedded_new(&some[k], &config, NULL), 0);
            all.channel = weir_embedded_channel(some[k]);
            assert_int_equal(weir_channel_group_add(all.group, all.channel), 0);
        }
        run_crew(&all, close_at_once);
        /* Both promises are complete, so all that were in when the group was closed are closed. */
        for (int k = 0; k < 5; k++)
            assert_true(weir_future_is_done(weir_channel_closed(weir_embedded_channel(some[k]))));
        assert_int_equal(weir_future_await(weir_channel_closed(all.channel)), 0);
        assert_int_equal(weir_future_await(weir_channel_closed(weir_embedded_channel(late))), 0);
        settle_threads(all.loops);
        assert_int_equal(weir_channel_group_count(all.group), 0);
        for (int k = 0; k < 6; k++)
            weir_embedded_free(some[k]);
        weir_embedded_free(late);
        end_crew(&all);
    }
}

#define SEVERAL 200

typedef struct several {
    crew crew;
    weir_embedded *all[SEVERAL];
} several;

static void begin_several(several *self)
{
    begin_crew(&self->crew);
    self->crew.other = weir_channel_group_new();
    for (int i = 0; i < SEVERAL; i++) {
        self->all[i] = new_embedded(self->crew.loops, NULL, NULL);
        weir_channel *channel = weir_embedded_channel(self->all[i]);
        assert_int_equal(weir_channel_group_add(self->crew.group, channel), 0);
        assert_int_equal(weir_channel_group_add(self->crew.other, channel), 0);
    }
}

static void end_several(several *self)
{
    for (int i = 0; i < SEVERAL; i++)
        assert_int_equal(
            weir_future_await(weir_channel_closed(weir_embedded_channel(self->all[i]))), 0);
    settle_threads(self->crew.loops);
    assert_int_equal(weir_channel_group_count(self->crew.group), 0);
    for (int i = 0; i < SEVERAL; i++)
        weir_embedded_free(self->all[i]);
    end_crew(&self->crew);
}

/* Two close the channels, two remove them, and one of those lets their other group go. */
static void close_and_remove_all(crew *self, int index)
{
    several *all = WEIR_CONTAINER(self, several, crew);
    if (index == 0)
        weir_channel_group_release(self->other);
    for (int i = 0; i < SEVERAL; i++) {
        weir_channel *channel = weir_embedded_channel(all->all[i]);
        if (index < 2)
            weir_channel_group_remove(self->group, channel);
        else if (i % 2 == index % 2)
            weir_channel_close(channel, NULL);
    }
}

static void many_are_removed_while_they_close_and_a_group_goes(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        several all;
        begin_several(&all);
        run_crew(&all.crew, close_and_remove_all);
        end_several(&all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(null_is_refused_everywhere),
        weir_case(members_are_added_found_and_removed),
        weir_case(a_channel_that_closes_leaves_all_its_groups),
        weir_case(a_closed_channel_is_not_added),
        weir_case(coming_and_going_leaves_nothing_behind),
        weir_case(a_group_that_goes_lets_its_channels_live),
        weir_case(a_group_outlives_channels_and_loops),
        weir_case(a_channel_off_its_loop_leaves_when_it_is_closed),
        weir_case(a_walk_visits_each_once_whatever_happens_inside),
        weir_case(channels_may_be_closed_inside_a_walk),
        weir_case(the_group_may_be_released_inside_a_walk),
        weir_case(broadcast_of_null_fails_every_write),
        weir_case(a_broadcast_reaches_all_but_one),
        weir_case(each_channel_has_indices_of_its_own),
        weir_case(another_message_is_shared),
        weir_case(a_promise_joins_the_results),
        weir_case(nobody_to_write_to_is_a_success),
        weir_case(a_cancelled_promise_prevents_the_broadcast),
        weir_case(a_channel_that_fails_does_not_hurt_the_others),
        weir_case(a_channel_that_closes_fails_alone),
        weir_case(handlers_chat_through_a_group),
        weir_case(close_all_waits_until_all_are_closed),
        weir_case(close_all_waits_for_those_that_are_removed_meanwhile),
        weir_case(close_all_closes_also_those_that_its_own_closing_removes),
        weir_case(a_channel_added_after_close_all_stays_open),
        weir_case(a_closed_group_closes_what_is_added),
        weir_case(a_group_stays_until_its_channels_are_closed),
        weir_case(closing_needs_no_memory),
        weir_case(a_broadcast_without_memory_leaves_no_gaps),
        weir_case(every_allocation_of_an_add_may_fail),
        weir_case(a_channel_that_closes_while_it_is_added_is_not_in),
        weir_case(a_table_that_cannot_grow_holds_them_all_the_same),
        weir_case(every_allocation_of_a_broadcast_may_fail),
        weir_case(ten_thousand_members),
        weir_case(four_threads_broadcast_while_channels_come_and_go),
        weir_case(one_channel_is_added_by_four_threads),
        weir_case(adding_removing_closing_and_releasing_at_once),
        weir_case(a_group_is_closed_while_its_channels_close),
        weir_case(many_are_removed_while_they_close_and_a_group_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
