/* SPDX-License-Identifier: MIT */
/* Connection pools: who gets what and when, what ends, and that nothing is lost or too much. */
#include "bootstrap/clients.h"

#include <weir/connection_pool.h>

/* Where each channel has a loop of its own, time is kept by an executor that all share, and whose
 * thread stays for a while: there nobody has a limit who does not ask for one. */
static weir_connection_pool *open_pool(const weir_connection_pool_config *config, const char *text)
{
    weir_connection_pool *pool = NULL;
    weir_connection_pool_config full = *config;
    weir_error error = { 0 };
    if (full.acquire_timeout_ns == 0 && weir_group_next(full.client.group) == NULL)
        full.acquire_timeout_ns = WEIR_OFF;
    if (weir_connection_pool_new(&pool, &full, text, &error) < 0)
        fail_msg("%s", error.message);
    return pool;
}

static weir_connection_pool_stats stats(weir_connection_pool *pool)
{
    weir_connection_pool_stats now;
    weir_connection_pool_get_stats(pool, &now);
    return now;
}

static weir_promise *acquire(weir_connection_pool *pool)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_connection_pool_acquire(pool, promise);
    return promise;
}

static weir_group *driven; /* by the test itself, if there is one */

/* Waits for the outcome, which is a channel: the caller's reference. And until its loop has nothing
 * to do for it, so that it is back as soon as it is given back. */
static weir_channel *channel_of(weir_promise *promise)
{
    weir_future *future = weir_promise_future(promise);
    assert_int_equal(weir_future_await(future), 0);
    weir_channel *channel = weir_channel_retain(weir_future_value(future));
    weir_promise_release(promise);
    if (driven != NULL)
        step_all(driven);
    WAIT_FOR(!atomic_load(&channel->inbox.is_posted));
    return channel;
}

static weir_channel *borrow(weir_connection_pool *pool)
{
    return channel_of(acquire(pool));
}

static void give_back(weir_connection_pool *pool, weir_channel *channel)
{
    assert_int_equal(weir_connection_pool_give_back(pool, channel), 0);
    weir_channel_release(channel);
}

static void expect_failure(weir_promise *promise, int code)
{
    assert_int_equal(weir_future_await(weir_promise_future(promise)), code);
    weir_promise_release(promise);
}

static void cancel(weir_promise *promise)
{
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
}

static void close_and_wait(weir_connection_pool *pool)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_connection_pool_close(pool, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    weir_connection_pool_stats now = stats(pool);
    assert_int_equal(now.idle + now.borrowed + now.connecting + now.checking + now.closing, 0);
    assert_int_equal(now.waiting, 0);
    assert_int_equal(now.created, now.closed);
}

/* A pool to a peer, on one of the backends. */
typedef struct setting {
    weir_group *group;
    peer to;
    weir_connection_pool *pool;
} setting;

static setting open_setting(const backend *on, weir_connection_pool_config config)
{
    setting self = { .group = open_loops(on), .to = answering_peer("127.0.0.1:0") };
    config.client.group = self.group;
    self.pool = open_pool(&config, self.to.text);
    return self;
}

static void close_setting(setting *self)
{
    close_and_wait(self->pool);
    weir_connection_pool_release(self->pool);
    end_group(self->group);
    close_peer(&self->to);
}

#define POOL(...) ((weir_connection_pool_config){ __VA_ARGS__ })

/* Making --------------------------------------------------------------------------------------- */

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]);
    weir_client_config client = { .group = group };
    const struct {
        weir_connection_pool_config config;
        const char *says;
    } cases[] = {
        { { .max = 1 }, "group" },
        { { .client = client, .max = -1 }, "max is -1" },
        { { .client = client, .max_pending = -2 }, "max_pending is -2" },
        { { .client = client, .acquire_timeout_ns = -3 }, "acquire_timeout_ns is -3" },
        { { .client = client, .idle_timeout_ns = -4 }, "idle_timeout_ns is -4" },
        { { .client = client, .finish_timeout_ns = -6 }, "finish_timeout_ns is -6" },
        { { .client = { .group = group, .stagger_ns = -5 } }, "stagger_ns is -5" },
    };
    weir_connection_pool *pool = NULL;
    weir_error error;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(weir_connection_pool_new(&pool, &cases[i].config, "a:1", &error), -EINVAL);
        if (strstr(error.message, cases[i].says) == NULL)
            fail_msg("no '%s' in '%s'", cases[i].says, error.message);
    }
    weir_connection_pool_config good = { .client = client };
    assert_int_equal(weir_connection_pool_new(&pool, NULL, "a:1", NULL), -EINVAL);
    assert_int_equal(weir_connection_pool_new(NULL, &good, "a:1", NULL), -EINVAL);
    assert_int_equal(weir_connection_pool_new(&pool, &good, NULL, NULL), -EINVAL);
    assert_null(pool);
    /* The text is looked at when it is used. */
    pool = open_pool(&good, "nonsense");
    expect_failure(acquire(pool), -EINVAL);
    weir_connection_pool_acquire(pool, NULL);
    weir_promise *promise = weir_promise_new(NULL);
    weir_connection_pool_acquire(NULL, promise);
    expect_failure(promise, -EINVAL);
    weir_connection_pool_release(weir_connection_pool_retain(pool));
    weir_connection_pool_release(pool);
    weir_connection_pool_release(NULL);
    end_group(group);
}

/* Nothing of the caller's is needed afterwards. */
static void config_is_copied(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]);
    peer to = answering_peer("127.0.0.1:0");
    char text[64], local[] = "127.0.0.7:0";
    weir_option_value option = { WEIR_OPTION_MAX_OUTBOUND_BYTES, 4321 };
    weir_connection_pool_config config = { .client = { .group = group, .local = local } };
    config.client.options = &option;
    config.client.option_count = 1;
    snprintf(text, sizeof text, "%s", to.text);
    weir_connection_pool *pool = open_pool(&config, text);
    memset(text, 'x', sizeof text);
    memset(local, 'x', sizeof local);
    option = (weir_option_value){ WEIR_OPTIONS_END, 0 };
    weir_channel *channel = borrow(pool);
    int64_t value;
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, &value), 0);
    assert_int_equal(value, 4321);
    give_back(pool, channel);
    close_and_wait(pool);
    weir_connection_pool_release(pool);
    end_group(group);
    close_peer(&to);
}

/* Lending -------------------------------------------------------------------------------------- */

static void last_one_used_is_lent_first(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 3));
        weir_channel *a = borrow(it.pool), *b = borrow(it.pool);
        assert_ptr_not_equal(a, b);
        assert_true(weir_channel_is_active(a));
        assert_int_equal(stats(it.pool).borrowed, 2);
        give_back(it.pool, a);
        give_back(it.pool, b);
        assert_int_equal(stats(it.pool).idle, 2);
        assert_ptr_equal(borrow(it.pool), b);
        assert_ptr_equal(borrow(it.pool), a);
        assert_int_equal(stats(it.pool).created, 2);
        give_back(it.pool, a);
        give_back(it.pool, b);
        close_setting(&it);
    }
}

static void given_back_once_and_to_whom_it_belongs(void **state)
{
    (void)state;
    setting it = open_setting(&backends[0], POOL(.max = 3));
    setting other = open_setting(&backends[0], POOL(.max = 3));
    weir_client_config client = { .group = it.group };
    weir_channel *stranger = NULL, *mine = borrow(it.pool);
    assert_int_equal(weir_client_connect(&stranger, &client, it.to.text, NULL), 0);
    assert_int_equal(weir_connection_pool_give_back(it.pool, stranger), -EINVAL);
    assert_int_equal(weir_connection_pool_give_back(it.pool, NULL), -EINVAL);
    assert_int_equal(weir_connection_pool_give_back(NULL, mine), -EINVAL);
    assert_int_equal(weir_connection_pool_give_back(other.pool, mine), -EINVAL);
    assert_int_equal(weir_connection_pool_give_back(it.pool, mine), 0);
    assert_int_equal(weir_connection_pool_give_back(it.pool, mine), -EINVAL);
    assert_int_equal(stats(it.pool).idle, 1);
    weir_channel_release(mine);
    close_and_release(stranger);
    close_setting(&it);
    close_setting(&other);
}

static void discarded_connection_is_closed_and_replaced(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 1));
        weir_client_config client = { .group = it.group };
        weir_channel *stranger = NULL, *broken = borrow(it.pool);
        assert_int_equal(weir_client_connect(&stranger, &client, it.to.text, NULL), 0);
        weir_promise *waiting = acquire(it.pool);
        assert_int_equal(weir_connection_pool_discard(it.pool, stranger), -EINVAL);
        assert_int_equal(weir_connection_pool_discard(it.pool, NULL), -EINVAL);
        assert_int_equal(weir_connection_pool_discard(NULL, broken), -EINVAL);
        assert_true(weir_channel_is_open(stranger) && weir_channel_is_open(broken));
        assert_int_equal(weir_connection_pool_discard(it.pool, broken), 0);
        assert_int_equal(weir_connection_pool_discard(it.pool, broken), -EINVAL);
        assert_int_equal(weir_future_await(weir_channel_closed(broken)), 0);
        assert_int_equal(weir_future_await(weir_promise_future(waiting)), 0);
        weir_channel *fresh = weir_future_value(weir_promise_future(waiting));
        assert_ptr_not_equal(fresh, broken);
        assert_int_equal(weir_connection_pool_give_back(it.pool, fresh), 0);
        assert_int_equal(weir_connection_pool_discard(it.pool, fresh), -EINVAL);
        assert_true(weir_channel_is_open(fresh)); /* it is the pool's again */
        assert_int_equal(stats(it.pool).created, 2);
        weir_promise_release(waiting);
        weir_channel_release(broken);
        close_and_release(stranger);
        close_setting(&it);
    }
}

static void never_more_than_max_and_in_order(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 2));
        weir_channel *a = borrow(it.pool), *b = borrow(it.pool);
        weir_promise *waiting[4];
        for (int i = 0; i < 4; i++)
            waiting[i] = acquire(it.pool);
        assert_int_equal(stats(it.pool).waiting, 4);
        for (int i = 0; i < 4; i++) {
            weir_channel *next = i % 2 == 0 ? a : b;
            for (int k = i; k < 4; k++)
                assert_int_equal(code_of(waiting[k]), -EINPROGRESS);
            assert_int_equal(weir_connection_pool_give_back(it.pool, next), 0);
            assert_int_equal(code_of(waiting[i]), 0);
            assert_ptr_equal(weir_future_value(weir_promise_future(waiting[i])), next);
        }
        assert_int_equal(stats(it.pool).created, 2);
        assert_int_equal(stats(it.pool).borrowed, 2);
        for (int i = 0; i < 4; i++)
            weir_promise_release(waiting[i]);
        give_back(it.pool, a);
        give_back(it.pool, b);
        close_setting(&it);
    }
}

/* One that is given back goes to who waits, though another is being made for them; and that is
 * there for the next. */
static void given_back_goes_before_what_is_on_its_way(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int fails = 0; fails < 2; fails++) {
            weir_group *group = open_loops(on);
            peer to = answering_peer("127.0.0.1:0");
            names some = NAMES(to.text);
            weir_client_config client = { .group = group, .resolver = &some.base };
            weir_connection_pool *pool = open_pool(&POOL(.client = client, .max = 2), "a.b:1");
            weir_channel *first = borrow(pool);
            some.is_late = true;
            weir_promise *second = acquire(pool);
            assert_int_equal(stats(pool).connecting, 1);
            give_back(pool, weir_channel_retain(first));
            assert_ptr_equal(channel_of(second), first);
            assert_int_equal(stats(pool).connecting, 1);
            some.code = fails ? WEIR_ENONAME : 0;
            answer_late(&some);
            WAIT_FOR(stats(pool).connecting == 0);
            assert_int_equal(stats(pool).idle, fails ? 0 : 1);
            give_back(pool, first);
            weir_channel_release(first); /* borrowed twice */
            close_and_wait(pool);
            weir_connection_pool_release(pool);
            end_group(group);
            close_peer(&to);
        }
    }
}

static void line_has_an_end(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 1, .max_pending = 2));
        weir_promise *promises[3] = { acquire(it.pool), acquire(it.pool), acquire(it.pool) };
        weir_promise *late = acquire(it.pool);
        assert_int_equal(code_of(late), WEIR_ELIMIT);
        expect_failure(late, WEIR_ELIMIT);
        for (int i = 0; i < 3; i++)
            give_back(it.pool, channel_of(promises[i]));
        close_setting(&it);

        it = open_setting(on, POOL(.max = 1, .max_pending = WEIR_OFF));
        weir_channel *channel = borrow(it.pool);
        expect_failure(acquire(it.pool), WEIR_ELIMIT);
        give_back(it.pool, channel);
        give_back(it.pool, borrow(it.pool));
        close_setting(&it);
    }
}

/* Time ----------------------------------------------------------------------------------------- */

/* On a group that the test drives. */
typedef struct stage {
    weir_virtual_clock clock;
    weir_group *group;
    peer to;
    weir_connection_pool *pool;
} stage;

static void open_stage(stage *self, weir_connection_pool_config config)
{
    driven = self->group = open_manual(&self->clock);
    self->to = answering_peer("127.0.0.1:0");
    config.client.group = self->group;
    self->pool = open_pool(&config, self->to.text);
}

static void pass_ms(stage *self, int ms)
{
    weir_virtual_clock_advance(&self->clock, WEIR_MS(ms));
    step_all(self->group);
}

static void close_stage(stage *self)
{
    close_and_wait(self->pool);
    weir_connection_pool_release(self->pool);
    end_group(self->group);
    driven = NULL;
    close_peer(&self->to);
}

static void waiting_has_its_time(void **state)
{
    (void)state;
    stage it;
    open_stage(&it, POOL(.max = 1, .acquire_timeout_ns = WEIR_MS(100)));
    weir_channel *channel = borrow(it.pool);
    weir_promise *first = acquire(it.pool);
    pass_ms(&it, 40);
    weir_promise *second = acquire(it.pool);
    pass_ms(&it, 59);
    assert_int_equal(code_of(first), -EINPROGRESS);
    pass_ms(&it, 1);
    assert_int_equal(code_of(first), -ETIMEDOUT);
    assert_non_null(strstr(weir_future_error(weir_promise_future(first))->message, it.to.text));
    pass_ms(&it, 39);
    assert_int_equal(code_of(second), -EINPROGRESS);
    pass_ms(&it, 1);
    assert_int_equal(code_of(second), -ETIMEDOUT);
    assert_int_equal(stats(it.pool).timeouts, 2);
    assert_int_equal(stats(it.pool).waiting, 0);
    weir_promise_release(first);
    weir_promise_release(second);
    /* And again, when nobody has waited for long. */
    pass_ms(&it, 1000);
    first = acquire(it.pool);
    second = acquire(it.pool);
    pass_ms(&it, 99);
    give_back(it.pool, channel);
    assert_int_equal(code_of(first), 0);
    assert_int_equal(code_of(second), -EINPROGRESS);
    pass_ms(&it, 1);
    expect_failure(second, -ETIMEDOUT);
    give_back(it.pool, channel_of(first));
    close_stage(&it);
}

/* The time cannot be kept, so nobody may begin to wait. */
static void without_a_clock_nobody_waits(void **state)
{
    (void)state;
    stage it;
    probe fillers[16];
    driven = it.group = open_group(&(weir_group_config){
        .loops = 1, .is_manual = true, .max_pending_tasks = 16, .watchdog_ns = WEIR_OFF });
    it.to = answering_peer("127.0.0.1:0");
    it.pool = open_pool(
        &POOL(.client = { .group = it.group }, .max = 1, .acquire_timeout_ns = WEIR_MS(1)),
        it.to.text);
    weir_channel *channel = borrow(it.pool);
    expect_failure(acquire(it.pool), -ETIMEDOUT);
    for (int i = 0; i < 16; i++) {
        fillers[i] = PROBE;
        assert_int_equal(weir_executor_post(weir_group_at(it.group, 0), &fillers[i].task), 0);
    }
    weir_promise *promise = acquire(it.pool);
    assert_int_equal(code_of(promise), -EAGAIN);
    expect_failure(promise, -EAGAIN);
    assert_int_equal(stats(it.pool).waiting, 0);
    step_all(it.group);
    expect_failure(acquire(it.pool), -ETIMEDOUT);
    give_back(it.pool, channel);
    close_stage(&it);
}

/* With the real time, on both. */
static void limits_hold_everywhere(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 1, .acquire_timeout_ns = WEIR_MS(1500),
                                           .idle_timeout_ns = WEIR_MS(20)));
        weir_channel *channel = borrow(it.pool);
        expect_failure(acquire(it.pool), -ETIMEDOUT);
        give_back(it.pool, channel);
        WAIT_FOR(stats(it.pool).closed == 1);
        close_setting(&it);
    }
    assert_int_equal(weir_executor_global_wait_idle(WEIR_SECONDS(30)), 0);
}

static void waiting_may_be_without_end(void **state)
{
    (void)state;
    stage it;
    open_stage(&it, POOL(.max = 1, .acquire_timeout_ns = WEIR_OFF));
    weir_channel *channel = borrow(it.pool);
    weir_promise *promise = acquire(it.pool);
    pass_ms(&it, 1000000000);
    assert_int_equal(code_of(promise), -EINPROGRESS);
    give_back(it.pool, channel);
    give_back(it.pool, channel_of(promise));
    close_stage(&it);
}

static void idle_ones_have_their_time(void **state)
{
    (void)state;
    stage it;
    open_stage(&it, POOL(.max = 3, .idle_timeout_ns = WEIR_MS(1000)));
    weir_channel *a = borrow(it.pool), *b = borrow(it.pool), *c = borrow(it.pool);
    give_back(it.pool, a);
    pass_ms(&it, 400);
    give_back(it.pool, b);
    pass_ms(&it, 599);
    assert_int_equal(stats(it.pool).idle, 2);
    pass_ms(&it, 1);
    assert_int_equal(stats(it.pool).idle, 1);
    assert_int_equal(stats(it.pool).closed, 1);
    /* The other one was needed meanwhile. */
    assert_ptr_equal(borrow(it.pool), b);
    pass_ms(&it, 5000);
    assert_int_equal(stats(it.pool).closed, 1);
    give_back(it.pool, b);
    give_back(it.pool, c);
    pass_ms(&it, 999);
    assert_int_equal(stats(it.pool).idle, 2);
    pass_ms(&it, 1);
    assert_int_equal(stats(it.pool).idle, 0);
    assert_int_equal(stats(it.pool).closed, 3);
    close_stage(&it);
}

/* A connection that takes too long is for whoever comes next. */
static void late_connection_stays(void **state)
{
    (void)state;
    stage it;
    names some = NAMES("");
    char list[64];
    weir_connection_pool_config config = { .max = 1, .acquire_timeout_ns = WEIR_MS(100) };
    driven = it.group = open_manual(&it.clock);
    it.to = answering_peer("127.0.0.1:0");
    snprintf(list, sizeof list, "%s", it.to.text);
    some.list = list;
    some.is_late = true;
    config.client.group = it.group;
    config.client.resolver = &some.base;
    it.pool = open_pool(&config, "example.org:80");
    weir_promise *promise = acquire(it.pool);
    pass_ms(&it, 100);
    expect_failure(promise, -ETIMEDOUT);
    assert_int_equal(stats(it.pool).connecting, 1);
    answer_late(&some);
    step_all(it.group);
    assert_int_equal(stats(it.pool).idle, 1);
    give_back(it.pool, borrow(it.pool));
    assert_int_equal(stats(it.pool).created, 1);
    close_stage(&it);
}

/* What ends ------------------------------------------------------------------------------------ */

static void one_that_ends_while_idle_leaves(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 1));
        weir_channel *channel = weir_channel_retain(borrow(it.pool));
        int fd = accept_one(&it.to);
        give_back(it.pool, channel);
        close(fd);
        WAIT_FOR(stats(it.pool).closed == 1);
        assert_int_equal(stats(it.pool).idle, 0);
        weir_channel *next = borrow(it.pool);
        assert_ptr_not_equal(next, channel);
        give_back(it.pool, next);
        weir_channel_release(channel);
        close_setting(&it);
    }
}

static void one_that_ends_while_lent_makes_room(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 1));
        weir_channel *channel = borrow(it.pool);
        weir_promise *waiting = acquire(it.pool);
        close(accept_one(&it.to));
        weir_channel *next = channel_of(waiting);
        assert_ptr_not_equal(next, channel);
        assert_true(weir_channel_is_active(next));
        assert_int_equal(stats(it.pool).borrowed, 1);
        /* It has to be given back all the same, once. */
        assert_int_equal(weir_connection_pool_give_back(it.pool, channel), 0);
        assert_int_equal(weir_connection_pool_give_back(it.pool, channel), -EINVAL);
        assert_int_equal(stats(it.pool).idle, 0);
        weir_channel_release(channel);
        give_back(it.pool, next);
        close_setting(&it);
    }
}

/* Given back by who has closed it, though its loop has not noticed yet. */
static void closed_one_is_not_lent_again(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 1));
        for (int i = 0; i < 100; i++) {
            weir_channel *channel = borrow(it.pool);
            weir_channel_close(channel, NULL);
            assert_int_equal(weir_connection_pool_give_back(it.pool, channel), 0);
            assert_int_equal(weir_connection_pool_give_back(it.pool, channel), -EINVAL);
            weir_channel *next = borrow(it.pool);
            assert_ptr_not_equal(next, channel);
            assert_true(weir_channel_is_active(next));
            weir_channel_release(channel);
            weir_channel_flush(next); /* which does no harm, but keeps it for a moment */
            give_back(it.pool, next);
        }
        assert_int_equal(stats(it.pool).created, 101);
        close_setting(&it);
    }
}

static void finish_it(weir_channel *channel)
{
    weir_channel_finish(channel, NULL);
}

static void shut_it_down(weir_channel *channel)
{
    weir_channel_shutdown(channel, NULL);
}

static void leave_a_write(weir_channel *channel)
{
    weir_channel_write(channel, weir_buf_msg(weir_buf_from("later", 5)), NULL);
}

static void stop_reading(weir_channel *channel)
{
    weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL);
}

static weir_hold read_hold, write_hold;

static void pause_reading(weir_channel *channel)
{
    weir_channel_set_read_hold(channel, fresh_hold(&read_hold), true);
}

static void forbid_writing(weir_channel *channel)
{
    weir_channel_set_write_hold(channel, fresh_hold(&write_hold), true);
}

/* Given back in a state that its next borrower could not use: it is sent to its end instead. */
static void used_up_connection_is_not_lent_again(void **state)
{
    static void (*const acts[])(weir_channel * channel) = {
        finish_it, shut_it_down, leave_a_write, stop_reading, pause_reading, forbid_writing,
    };
    (void)state;
    /* One that does not read closes only when it has lingered. */
    static const weir_option_value linger = { WEIR_OPTION_LINGER_NS, WEIR_MS(20) };
    FOR_EACH_BACKEND(on)
    {
        for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
            setting it = open_setting(
                on, POOL(.max = 2, .client.options = &linger, .client.option_count = 1));
            weir_channel *channel = borrow(it.pool);
            int fd = accept_one(&it.to);
            acts[i](channel);
            assert_int_equal(weir_connection_pool_give_back(it.pool, channel), 0);
            weir_channel *next = borrow(it.pool);
            assert_ptr_not_equal(next, channel);
            assert_false(weir_channel_is_output_closed(next));
            char text[5];
            if (acts[i] == leave_a_write)
                assert_int_equal(recv(fd, text, sizeof text, MSG_WAITALL), sizeof text);
            expect_end(fd);
            weir_channel_release(channel);
            give_back(it.pool, next);
            close_setting(&it);
        }
    }
}

/* Peers that do not read ----------------------------------------------------------------------- */

enum { OUTPUT_BYTES = 8 << 20 }; /* of which the kernel takes a fraction */

static const weir_option_value small_buffer = { WEIR_OPTION_SEND_BUFFER_BYTES, 4096 };

/* The peer's receive buffer is fixed, and so is the number of bytes it takes without reading. */
static void limit_receive_buffer(const peer *to)
{
    int bytes = 65536;
    assert_int_equal(setsockopt(to->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
}

static weir_connection_pool_config stalling(int64_t finish_timeout_ns)
{
    return POOL(.max = 1, .finish_timeout_ns = finish_timeout_ns, .client.options = &small_buffer,
                .client.option_count = 1);
}

/* Borrows a connection and returns it with output left; returns the peer's descriptor. */
static int return_with_output(weir_connection_pool *pool, const peer *to)
{
    limit_receive_buffer(to);
    weir_channel *channel = borrow(pool);
    int fd = accept_one(to);
    weir_buf *output = weir_buf_new(OUTPUT_BYTES);
    assert_non_null(output);
    assert_int_equal(weir_buf_write_fill(output, 'x', OUTPUT_BYTES), 0);
    weir_channel_write_and_flush(channel, weir_buf_msg(output), NULL);
    give_back(pool, channel);
    return fd;
}

static void pool_close_closes_connection_whose_peer_reads_nothing(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, stalling(WEIR_OFF));
        int fd = return_with_output(it.pool, &it.to);
        WAIT_FOR(stats(it.pool).closing == 1);
        weir_promise *closed = weir_promise_new(NULL);
        weir_connection_pool_close(it.pool, closed);
        WAIT_FOR(code_of(closed) == 0);
        weir_promise_release(closed);
        close_setting(&it);
        close(fd);
    }
}

static void finish_timeout_frees_place_when_peer_reads_nothing(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, stalling(WEIR_MS(20)));
        int fd = return_with_output(it.pool, &it.to);
        weir_promise *next = acquire(it.pool);
        WAIT_FOR(code_of(next) == 0);
        give_back(it.pool, channel_of(next));
        assert_int_equal(stats(it.pool).closed, 1);
        close_setting(&it);
        close(fd);
    }
}

/* Reads up to `bytes`; how many there were before EOF. */
static size_t receive(stage *it, int fd, size_t bytes)
{
    static char text[65536];
    size_t done = 0;
    ssize_t got = -1;
    while (done < bytes && got != 0) {
        size_t room = bytes - done < sizeof text ? bytes - done : sizeof text;
        WAIT_FOR_STEPPING((got = recv(fd, text, room, MSG_DONTWAIT)) >= 0, step_all(it->group));
        done += (size_t)got;
    }
    return done;
}

static void finish_timeout_spares_peer_that_reads_slowly(void **state)
{
    (void)state;
    stage it;
    open_stage(&it, stalling(WEIR_SECONDS(1)));
    int fd = return_with_output(it.pool, &it.to);
    size_t received = 0;
    pass_ms(&it, 999);
    while (received < OUTPUT_BYTES) {
        assert_int_equal(stats(it.pool).closing, 1);
        received += receive(&it, fd, 1 << 20);
        pass_ms(&it, 1000);
    }
    assert_int_equal(received, OUTPUT_BYTES);
    assert_int_equal(receive(&it, fd, 1), 0);
    close(fd);
    WAIT_FOR_STEPPING(stats(it.pool).closed == 1, step_all(it.group));
    /* One that has read a part, and then stops. */
    fd = return_with_output(it.pool, &it.to);
    step_all(it.group);
    assert_int_equal(receive(&it, fd, 1 << 20), 1 << 20);
    pass_ms(&it, 1000);
    assert_int_equal(stats(it.pool).closing, 1);
    WAIT_FOR_STEPPING(stats(it.pool).closed == 2, pass_ms(&it, 1000));
    close(fd);
    close_stage(&it);
}

static void finish_timeout_has_default_and_can_be_off(void **state)
{
    (void)state;
    for (int is_off = 0; is_off < 2; is_off++) {
        stage it;
        open_stage(&it, stalling(is_off ? WEIR_OFF : 0));
        int fd = return_with_output(it.pool, &it.to);
        step_all(it.group);
        pass_ms(&it, 9999);
        assert_int_equal(stats(it.pool).closing, 1);
        if (!is_off)
            WAIT_FOR_STEPPING(stats(it.pool).closed == 1, pass_ms(&it, 10000));
        pass_ms(&it, 1000000000);
        assert_int_equal(stats(it.pool).closing, is_off);
        close_stage(&it);
        close(fd);
    }
}

/* The linger option has a limit of its own, which may be longer. */
static void finish_timeout_ends_with_the_output(void **state)
{
    (void)state;
    static const weir_option_value linger = { WEIR_OPTION_LINGER_NS, WEIR_SECONDS(5) };
    stage it;
    open_stage(&it, POOL(.max = 1, .finish_timeout_ns = WEIR_MS(1000), .client.options = &linger,
                         .client.option_count = 1));
    weir_channel *channel = borrow(it.pool);
    int fd = accept_one(&it.to);
    leave_a_write(channel);
    give_back(it.pool, channel);
    step_all(it.group);
    for (int i = 0; i < 4; i++)
        pass_ms(&it, 1000);
    assert_int_equal(stats(it.pool).closing, 1);
    pass_ms(&it, 1000);
    assert_int_equal(stats(it.pool).closed, 1);
    close(fd);
    close_stage(&it);
}

static void finish_timeout_holds_without_memory(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        bool has_come = true;
        for (unsigned at = 1; has_come; at++) {
            setting it = open_setting(on, stalling(WEIR_MS(1)));
            weir_channel *channel = borrow(it.pool);
            int fd = accept_one(&it.to);
            weir_buf *output = weir_buf_new(OUTPUT_BYTES);
            assert_int_equal(weir_buf_write_fill(output, 'x', OUTPUT_BYTES), 0);
            fault_begin(NULL, at, -ENOMEM);
            weir_channel_write_and_flush(channel, weir_buf_msg(output), NULL);
            give_back(it.pool, channel);
            WAIT_FOR(stats(it.pool).borrowed == 0 && stats(it.pool).closing == 0);
            has_come = fault_end();
            close_setting(&it);
            close(fd);
        }
    }
}

/* A handler that holds the first shutdown or close, as TLS does while it waits for the peer. */
static void hold_shutdown(weir_ctx *ctx, weir_promise *promise)
{
    atomic_int *requests = weir_ctx_arg(ctx);
    if (atomic_fetch_add(requests, 1) > 0)
        weir_ctx_shutdown(ctx, promise);
}

static void hold_close(weir_ctx *ctx, weir_promise *promise)
{
    atomic_int *requests = weir_ctx_arg(ctx);
    if (atomic_fetch_add(requests, 1) > 0)
        weir_ctx_close(ctx, promise);
}

static const weir_handler_type holder = {
    .name = "holder",
    .shutdown = hold_shutdown,
    .close = hold_close,
};

static int init_holder(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "holder", &holder, arg);
}

static void close_it(weir_channel *channel)
{
    weir_channel_close(channel, NULL);
}

static void connection_whose_end_waits_in_a_handler_is_not_lent_again(void **state)
{
    static void (*const acts[])(weir_channel * channel) = { shut_it_down, close_it };
    static const weir_option_value linger = { WEIR_OPTION_LINGER_NS, WEIR_MS(20) };
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
            atomic_int requests = 0;
            weir_connection_pool_config config = POOL(.max = 2, .client.options = &linger,
                                                      .client.option_count = 1);
            config.client.init = init_holder;
            config.client.arg = &requests;
            setting it = open_setting(on, config);
            weir_channel *channel = borrow(it.pool);
            acts[i](channel);
            WAIT_FOR(atomic_load(&requests) == 1); /* else the next one's would be held */
            assert_int_equal(weir_connection_pool_give_back(it.pool, channel), 0);
            weir_channel *next = borrow(it.pool);
            assert_ptr_not_equal(next, channel);
            weir_channel_release(channel);
            give_back(it.pool, next);
            close_setting(&it);
        }
    }
}

/* Its loop has to do something first, and the pool is closed meanwhile, or the connection ends. */
static void much_may_happen_on_the_way_back(void **state)
{
    (void)state;
    for (int cuts = 0; cuts < 2; cuts++) {
        setting it = open_setting(&backends[0], POOL(.max = 1));
        weir_channel *channel = borrow(it.pool);
        int fd = accept_one(&it.to);
        blocker held;
        block(&held, weir_group_at(it.group, 0));
        if (cuts)
            weir_channel_close(channel, NULL);
        weir_channel_flush(channel);
        give_back(it.pool, weir_channel_retain(channel));
        assert_int_equal(weir_connection_pool_give_back(it.pool, channel), -EINVAL);
        assert_int_equal(stats(it.pool).borrowed, 1);
        assert_int_equal(stats(it.pool).idle, 0);
        weir_promise *waiting = acquire(it.pool);
        assert_int_equal(code_of(waiting), -EINPROGRESS);
        if (!cuts) {
            cancel(waiting);
            weir_connection_pool_close(it.pool, NULL);
        }
        unblock(&held);
        if (cuts) {
            weir_channel *next = channel_of(waiting);
            assert_ptr_not_equal(next, channel);
            give_back(it.pool, next);
        }
        expect_end(fd);
        weir_channel_release(channel);
        close_setting(&it);
    }
}

static void failures_are_told_to_those_who_wait(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer none = refusing_peer("127.0.0.1:0");
        weir_connection_pool_config config = { .client = { .group = group }, .max = 2 };
        weir_connection_pool *pool = open_pool(&config, none.text);
        weir_promise *promises[5];
        for (int i = 0; i < 5; i++)
            promises[i] = acquire(pool);
        for (int i = 0; i < 5; i++) {
            weir_future *future = weir_promise_future(promises[i]);
            assert_int_equal(weir_future_await(future), -ECONNREFUSED);
            assert_non_null(strstr(weir_future_error(future)->message, none.text));
            weir_promise_release(promises[i]);
        }
        assert_int_equal(stats(pool).created, 0);
        close_and_wait(pool);
        weir_connection_pool_release(pool);
        close_peer(&none);
        end_group(group);
    }
}

/* Cancelling ----------------------------------------------------------------------------------- */

static void who_gives_up_leaves_the_line(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 1));
        weir_channel *channel = borrow(it.pool);
        weir_promise *first = acquire(it.pool), *second = acquire(it.pool);
        cancel(first);
        assert_int_equal(stats(it.pool).waiting, 1);
        give_back(it.pool, channel);
        give_back(it.pool, channel_of(second));
        /* One who had given up before. */
        weir_promise *promise = weir_promise_new(NULL);
        weir_future_cancel(weir_promise_future(promise));
        weir_connection_pool_acquire(it.pool, promise);
        expect_failure(promise, -ECANCELED);
        assert_int_equal(stats(it.pool).idle, 1);
        assert_int_equal(stats(it.pool).waiting, 0);
        close_setting(&it);
    }
}

static void connection_for_who_gave_up_stays(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        names some = NAMES("");
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        weir_client_config client = { .group = group, .resolver = &some.base };
        some.list = to.text;
        some.is_late = true;
        weir_connection_pool *pool = open_pool(&POOL(.client = client, .max = 1), "example.org:80");
        cancel(acquire(pool));
        assert_int_equal(stats(pool).connecting, 1);
        answer_late(&some);
        WAIT_FOR(stats(pool).idle == 1);
        give_back(pool, borrow(pool));
        assert_int_equal(stats(pool).created, 1);
        close_and_wait(pool);
        weir_connection_pool_release(pool);
        end_group(group);
        close_peer(&to);
    }
}

/* The pool has not heard yet that it was cancelled, and finds out when it has a connection. */
static void next_one_gets_what_nobody_wants(void **state)
{
    (void)state;
    setting it = open_setting(&backends[0], POOL(.max = 1));
    weir_group *busy = new_group_of(1);
    blocker held;
    block(&held, weir_group_at(busy, 0));
    weir_channel *channel = borrow(it.pool);
    weir_promise *first = weir_promise_new(weir_group_at(busy, 0));
    weir_connection_pool_acquire(it.pool, first);
    weir_promise *second = acquire(it.pool);
    cancel(first);
    assert_int_equal(stats(it.pool).waiting, 2);
    give_back(it.pool, channel);
    assert_int_equal(code_of(second), 0);
    /* And without a next one. */
    weir_promise *third = weir_promise_new(weir_group_at(busy, 0));
    weir_connection_pool_acquire(it.pool, third);
    cancel(third);
    give_back(it.pool, channel_of(second));
    assert_int_equal(stats(it.pool).idle, 1);
    assert_int_equal(stats(it.pool).borrowed, 0);
    unblock(&held);
    end_group(busy);
    close_setting(&it);
}

/* Closing -------------------------------------------------------------------------------------- */

static void closing_ends_everything_in_its_time(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        setting it = open_setting(on, POOL(.max = 2));
        weir_channel *a = borrow(it.pool), *b = borrow(it.pool);
        weir_promise *waiting = acquire(it.pool), *closed = weir_promise_new(NULL);
        weir_connection_pool_close(it.pool, closed);
        assert_int_equal(code_of(waiting), WEIR_ECLOSED);
        expect_failure(waiting, WEIR_ECLOSED);
        expect_failure(acquire(it.pool), WEIR_ECLOSED);
        assert_int_equal(code_of(closed), -EINPROGRESS);
        assert_true(weir_channel_is_active(a));
        give_back(it.pool, a);
        WAIT_FOR(stats(it.pool).closed == 1);
        assert_int_equal(code_of(closed), -EINPROGRESS);
        assert_true(weir_channel_is_active(b));
        give_back(it.pool, b);
        assert_int_equal(weir_future_await(weir_promise_future(closed)), 0);
        weir_promise_release(closed);
        close_setting(&it); /* once more */
    }
}

/* The linker has weir call this one instead. */
int __real_weir_promise_succeed(weir_promise *promise, void *value, weir_value_free_fn free_value);
int __wrap_weir_promise_succeed(weir_promise *promise, void *value, weir_value_free_fn free_value);

static _Atomic(weir_promise *) unwanted; /* by who changes their mind in the last moment */
static weir_connection_pool *abandoned;
static weir_promise *abandoned_closed;

int __wrap_weir_promise_succeed(weir_promise *promise, void *value, weir_value_free_fn free_value)
{
    weir_promise *expected = promise;
    if (promise != NULL && atomic_compare_exchange_strong(&unwanted, &expected, NULL)) {
        weir_future_cancel(weir_promise_future(promise));
        weir_connection_pool_close(abandoned, abandoned_closed);
    }
    return __real_weir_promise_succeed(promise, value, free_value);
}

static void nothing_becomes_idle_in_a_closed_pool(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int is_old = 0; is_old < 2; is_old++) { /* a new connection, or one that was idle */
            setting it = open_setting(on, POOL(.max = 1));
            if (is_old)
                give_back(it.pool, borrow(it.pool));
            weir_promise *promise = weir_promise_new(NULL);
            abandoned = it.pool;
            abandoned_closed = weir_promise_new(NULL);
            atomic_store(&unwanted, promise);
            weir_connection_pool_acquire(it.pool, promise);
            expect_failure(promise, -ECANCELED);
            expect_failure(abandoned_closed, 0);
            assert_int_equal(stats(it.pool).idle, 0);
            close_setting(&it);
        }
    }
}

static void closing_ends_what_connects(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer slow = hanging_peer("127.0.0.1:0");
        weir_connection_pool_config config = { .client = { .group = group }, .max = 2 };
        weir_connection_pool *pool = open_pool(&config, slow.text);
        weir_promise *promises[3] = { acquire(pool), acquire(pool), acquire(pool) };
        assert_int_equal(stats(pool).connecting, 2);
        close_and_wait(pool);
        for (int i = 0; i < 3; i++)
            expect_failure(promises[i], WEIR_ECLOSED);
        weir_connection_pool_release(pool);
        close_peer(&slow);
        end_group(group);
    }
}

static void last_reference_closes(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        peer to = answering_peer("127.0.0.1:0");
        weir_connection_pool_config config = { .client = { .group = group }, .max = 2 };
        weir_connection_pool *pool = open_pool(&config, to.text);
        weir_channel *lent = borrow(pool), *idle = borrow(pool);
        int lent_fd = accept_one(&to), idle_fd = accept_one(&to);
        give_back(pool, idle);
        weir_promise *waiting = acquire(pool);
        give_back(pool, channel_of(waiting));
        weir_connection_pool_release(pool);
        expect_end(idle_fd);
        assert_true(weir_channel_is_active(lent));
        /* Whoever has it may still use it, and close it. */
        close_and_release(lent);
        expect_end(lent_fd);
        close_peer(&to);
        end_group(group);
    }
}

static void group_may_end_first(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int patient = 0; patient < 2; patient++) {
            setting it = open_setting(on,
                                      POOL(.max = 1, .acquire_timeout_ns = patient ? WEIR_OFF : 0));
            weir_channel *channel = borrow(it.pool);
            weir_promise *waiting[3];
            for (int i = 0; i < 3; i++)
                waiting[i] = acquire(it.pool);
            assert_int_equal(weir_group_shutdown(it.group, 0, WEIR_SECONDS(10)), 0);
            for (int i = 0; i < 3; i++)
                expect_failure(waiting[i], WEIR_ESHUTDOWN);
            weir_future_await(weir_group_terminated(it.group));
            expect_failure(acquire(it.pool), WEIR_ESHUTDOWN);
            assert_int_equal(weir_connection_pool_give_back(it.pool, channel), 0);
            weir_channel_release(channel);
            close_and_wait(it.pool);
            weir_connection_pool_release(it.pool);
            weir_group_free(it.group);
            close_peer(&it.to);
        }
    }
}

/* Checking ------------------------------------------------------------------------------------- */

typedef struct examiner {
    int code;
    bool is_late;   /* the answer waits for answer_check */
    bool is_silent; /* there is none */
    atomic_int asked;
    weir_promise *late;
    weir_channel *last;
} examiner;

static void examine(weir_channel *channel, weir_promise *promise, void *arg)
{
    examiner *self = arg;
    self->last = channel;
    if (self->is_late)
        self->late = weir_promise_retain(promise);
    else if (!self->is_silent)
        weir_promise_set(promise, self->code);
    atomic_fetch_add(&self->asked, 1);
}

static void answer_check(examiner *self, int code)
{
    weir_promise *promise = self->late;
    self->late = NULL;
    weir_promise_set(promise, code);
    weir_promise_release(promise);
}

static void only_good_ones_are_lent_again(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        examiner it = { 0 };
        setting at = open_setting(on, POOL(.max = 1, .check = examine, .check_arg = &it));
        weir_channel *first = borrow(at.pool);
        assert_int_equal(atomic_load(&it.asked), 0); /* it is new */
        give_back(at.pool, weir_channel_retain(first));
        weir_channel *again = borrow(at.pool);
        assert_ptr_equal(again, first);
        assert_int_equal(atomic_load(&it.asked), 1);
        give_back(at.pool, again);
        it.code = -EPROTO;
        weir_channel *other = borrow(at.pool);
        assert_ptr_not_equal(other, first);
        assert_int_equal(atomic_load(&it.asked), 2);
        assert_false(weir_channel_is_open(first));
        weir_channel_release(first);
        give_back(at.pool, other);
        close_setting(&at);
    }
}

/* A check that uses the channel, and then succeeds. */
static void (*check_act)(weir_channel *channel);

static void check_and_act(weir_channel *channel, weir_promise *promise, void *arg)
{
    (void)arg;
    check_act(channel);
    weir_promise_set(promise, 0);
}

static void connection_that_its_check_has_used_up_is_not_lent(void **state)
{
    static void (*const acts[])(weir_channel * channel) = {
        finish_it, shut_it_down, leave_a_write, stop_reading, pause_reading, forbid_writing,
    };
    static const weir_option_value linger = { WEIR_OPTION_LINGER_NS, WEIR_MS(20) };
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
            setting it = open_setting(on,
                                      POOL(.max = 2, .check = check_and_act,
                                           .client.options = &linger, .client.option_count = 1));
            check_act = acts[i];
            weir_channel *channel = borrow(it.pool);
            int fd = accept_one(&it.to);
            assert_int_equal(weir_connection_pool_give_back(it.pool, channel), 0);
            weir_channel *next = borrow(it.pool);
            assert_ptr_not_equal(next, channel);
            assert_true(weir_channel_is_writable(next));
            weir_channel_release(channel);
            close(fd);
            give_back(it.pool, next);
            close_setting(&it);
        }
    }
}

static void checks_may_take_their_time(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        examiner it = { .is_late = true };
        setting at = open_setting(on, POOL(.max = 2, .check = examine, .check_arg = &it));
        weir_channel *first = borrow(at.pool);
        give_back(at.pool, first);
        weir_promise *one = acquire(at.pool), *two = acquire(at.pool);
        assert_int_equal(stats(at.pool).checking, 1);
        /* Who waits gets the first there is: here the new one. */
        weir_channel *new = channel_of(one);
        assert_int_equal(stats(at.pool).checking, 1);
        answer_check(&it, 0);
        weir_channel *old = channel_of(two);
        assert_ptr_equal(old, it.last);
        assert_ptr_not_equal(old, new);
        give_back(at.pool, new);
        give_back(at.pool, old);
        /* Nobody wants it any more: it stays. */
        weir_promise *three = acquire(at.pool);
        cancel(three);
        answer_check(&it, 0);
        assert_int_equal(stats(at.pool).idle, 2);
        assert_int_equal(stats(at.pool).created, 2);
        close_setting(&at);
    }
}

static void much_may_happen_during_a_check(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        examiner it = { .is_late = true };
        setting at = open_setting(on, POOL(.max = 1, .check = examine, .check_arg = &it));
        /* The connection ends, and who waits gets another one at once. */
        weir_channel *channel = borrow(at.pool);
        int fd = accept_one(&at.to);
        give_back(at.pool, channel);
        weir_promise *promise = acquire(at.pool);
        close(fd);
        weir_channel *next = channel_of(promise);
        answer_check(&it, 0);
        assert_int_equal(stats(at.pool).borrowed, 1);
        assert_int_equal(stats(at.pool).idle, 0);
        give_back(at.pool, next);
        /* Nobody answers. */
        it.is_late = false;
        it.is_silent = true;
        weir_channel *third = borrow(at.pool);
        assert_int_equal(stats(at.pool).created, 3);
        give_back(at.pool, third);
        /* The pool is closed. */
        it.is_late = true;
        promise = acquire(at.pool);
        weir_promise *closed = weir_promise_new(NULL);
        weir_connection_pool_close(at.pool, closed);
        expect_failure(promise, WEIR_ECLOSED);
        assert_int_equal(code_of(closed), -EINPROGRESS);
        answer_check(&it, 0);
        assert_int_equal(weir_future_await(weir_promise_future(closed)), 0);
        weir_promise_release(closed);
        close_setting(&at);
    }
}

/* Inside callbacks ----------------------------------------------------------------------------- */

/* Takes a connection, gives it back in the listener, and asks for the next there. */
typedef struct chain {
    weir_listener listener;
    weir_connection_pool *pool;
    weir_promise *promise;
    int left;
    bool closes;
    atomic_bool is_over;
} chain;

static void chain_on(weir_listener *listener, weir_future *future);

static void ask_on(chain *self)
{
    self->promise = weir_promise_new(NULL);
    self->listener.done = chain_on;
    weir_future_listen(weir_promise_future(self->promise), &self->listener);
    weir_connection_pool_acquire(self->pool, self->promise);
}

static void chain_on(weir_listener *listener, weir_future *future)
{
    chain *self = WEIR_CONTAINER(listener, chain, listener);
    weir_promise *promise = self->promise;
    int code = weir_future_code(future);
    if (code == 0 && --self->left == 0 && self->closes)
        weir_connection_pool_close(self->pool, NULL);
    if (code == 0)
        assert_int_equal(weir_connection_pool_give_back(self->pool, weir_future_value(future)), 0);
    if (self->left > 0)
        ask_on(self);
    else
        atomic_store(&self->is_over, true);
    weir_promise_release(promise);
}

static void listeners_may_do_everything(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int closes = 0; closes < 2; closes++) {
            setting it = open_setting(on, POOL(.max = 2));
            chain chains[5];
            for (int i = 0; i < 5; i++) {
                chains[i] = (chain){ .pool = it.pool, .left = 200 };
                /* All have to end without the pool, too. */
                chains[i].closes = closes && i == 4;
            }
            if (closes) {
                ask_on(&chains[4]);
                WAIT_FOR(atomic_load(&chains[4].is_over));
            } else {
                for (int i = 0; i < 5; i++)
                    ask_on(&chains[i]);
                for (int i = 0; i < 5; i++)
                    WAIT_FOR(atomic_load(&chains[i].is_over));
                assert_true(stats(it.pool).created <= 2);
            }
            close_setting(&it);
        }
    }
}

/* Faults --------------------------------------------------------------------------------------- */

static bool use_with_fault(const backend *on, bool checks, unsigned at, int code)
{
    examiner it = { 0 };
    weir_connection_pool_config config = { .max = 2, .idle_timeout_ns = WEIR_MS(1000000) };
    config.check = checks ? examine : NULL;
    config.check_arg = &it;
    size_t before = open_descriptors();
    weir_group *group = open_loops(on);
    peer to = answering_peer("127.0.0.1:0");
    weir_connection_pool *pool = NULL;
    weir_promise *promises[4], *closed = weir_promise_new(NULL);
    for (int i = 0; i < 4; i++)
        promises[i] = weir_promise_new(NULL);
    config.client.group = group;
    fault_begin(NULL, at, code);
    int made = weir_connection_pool_new(&pool, &config, to.text, NULL);
    for (int i = 0; i < 4; i++) {
        weir_future *future = weir_promise_future(promises[i]);
        if (made < 0)
            weir_promise_set(promises[i], made);
        else
            weir_connection_pool_acquire(pool, promises[i]);
        if (i < 3 && weir_future_await(future) == 0 && i != 1) /* one stays lent */
            assert_int_equal(weir_connection_pool_give_back(pool, weir_future_value(future)), 0);
    }
    weir_future_await(weir_promise_future(promises[3]));
    if (made == 0) {
        weir_connection_pool_stats now = stats(pool);
        assert_int_equal(now.waiting, 0);
        weir_connection_pool_close(pool, closed);
        for (int i = 1; i < 4; i += 2) {
            weir_future *future = weir_promise_future(promises[i]);
            if (weir_future_code(future) == 0)
                assert_int_equal(weir_connection_pool_give_back(pool, weir_future_value(future)),
                                 0);
        }
        assert_int_equal(weir_future_await(weir_promise_future(closed)), 0);
        weir_connection_pool_release(pool);
    } else {
        weir_promise_set(closed, made);
    }
    end_group(group);
    bool has_come = fault_end();
    for (int i = 0; i < 4; i++)
        weir_promise_release(promises[i]);
    weir_promise_release(closed);
    close_peer(&to);
    assert_int_equal(open_descriptors(), before);
    return has_come;
}

static void faults_lose_nothing(void **state)
{
    (void)state;
    static const int codes[] = { -ENOMEM, -EMFILE };
    FOR_EACH_BACKEND(on)
    {
        for (size_t i = 0; i < COUNT(codes); i++) {
            for (int checks = 0; checks < 2; checks++) {
                unsigned at = 1;
                while (use_with_fault(on, checks, at, codes[i]))
                    at++;
                assert_true(at > 20);
            }
        }
    }
    assert_int_equal(weir_executor_global_wait_idle(WEIR_SECONDS(30)), 0);
}

/* Many ----------------------------------------------------------------------------------------- */

/* On threads that cmocka does not know. */
static void expect(bool is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "not so: %s\n", what);
    abort();
}

#define EXPECT(condition) expect((condition), #condition)

#define THREADS 8
#define TIMES 1250 /* of each */
#define MOST 3

/* Accepts, and cuts what it has accepted, now and then. */
typedef struct cutter {
    peer to;
    atomic_bool is_over;
} cutter;

static void *cut(void *arg)
{
    cutter *self = arg;
    int fds[64];
    unsigned count = 0, seed = 7;
    while (!atomic_load(&self->is_over)) {
        struct pollfd wait = { .fd = self->to.fd, .events = POLLIN };
        if (poll(&wait, 1, 1) == 1 && count < COUNT(fds))
            fds[count++] = accept_one(&self->to);
        seed = seed * 1103515245 + 12345;
        if (count > 0 && ((seed >> 16) % 3 == 0 || count == COUNT(fds))) {
            unsigned at = (seed >> 20) % count;
            close(fds[at]);
            fds[at] = fds[--count];
        }
    }
    while (count > 0)
        close(fds[--count]);
    return NULL;
}

typedef struct crowd {
    weir_connection_pool *pool;
    pthread_mutex_t lock;
    weir_channel *lent[THREADS];
    atomic_int served, cancelled;
    bool gives_up; /* sometimes */
} crowd;

/* Nobody else has it. */
static void set_lent(crowd *self, weir_channel *channel, bool is_lent)
{
    int at = -1;
    pthread_mutex_lock(&self->lock);
    for (int i = 0; i < THREADS; i++) {
        EXPECT(!is_lent || self->lent[i] != channel);
        if (self->lent[i] == (is_lent ? NULL : channel))
            at = i;
    }
    EXPECT(at >= 0);
    self->lent[at] = is_lent ? channel : NULL;
    pthread_mutex_unlock(&self->lock);
}

static void use_one(crowd *self, weir_channel *channel)
{
    set_lent(self, channel, true);
    sched_yield();
    set_lent(self, channel, false);
    EXPECT(weir_connection_pool_give_back(self->pool, channel) == 0);
    atomic_fetch_add(&self->served, 1);
}

static void *use_many(void *arg)
{
    crowd *self = arg;
    for (int i = 0; i < TIMES; i++) {
        weir_promise *promise = acquire(self->pool);
        weir_future *future = weir_promise_future(promise);
        if (self->gives_up && i % 7 == 0)
            weir_future_cancel(future);
        int code = weir_future_await(future);
        if (code == 0)
            use_one(self, weir_future_value(future));
        else
            EXPECT(code == -ECANCELED);
        if (code < 0)
            atomic_fetch_add(&self->cancelled, 1);
        weir_connection_pool_stats now = stats(self->pool);
        EXPECT(now.idle + now.borrowed + now.connecting + now.checking + now.closing <= MOST);
        weir_promise_release(promise);
    }
    return NULL;
}

static void check_slowly(weir_channel *channel, weir_promise *promise, void *arg)
{
    (void)arg;
    sched_yield();
    weir_promise_set(promise, weir_channel_id(channel) % 5 == 0 ? -EPROTO : 0);
}

static void run_crowd(const backend *on, weir_connection_pool_config config, bool gives_up)
{
    cutter it = { .to = answering_peer("127.0.0.1:0") };
    weir_group *group = open_group(&(weir_group_config){
        .io = on->io, .loops = on->io == WEIR_IO_BLOCKING ? 0 : 2, .watchdog_ns = WEIR_OFF });
    config.client.group = group;
    config.max = MOST;
    crowd all = { .pool = open_pool(&config, it.to.text), .gives_up = gives_up };
    pthread_mutex_init(&all.lock, NULL);
    pthread_t threads[THREADS + 1];
    assert_int_equal(pthread_create(&threads[THREADS], NULL, cut, &it), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_many, &all), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&all.served) + atomic_load(&all.cancelled), THREADS * TIMES);
    close_and_wait(all.pool);
    weir_connection_pool_release(all.pool);
    atomic_store(&it.is_over, true);
    pthread_join(threads[THREADS], NULL);
    end_group(group);
    close_peer(&it.to);
}

static void many_threads_share_a_few(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        run_crowd(on, POOL(.acquire_timeout_ns = WEIR_OFF), false);
        run_crowd(on, POOL(.acquire_timeout_ns = INT64_MAX, .idle_timeout_ns = INT64_MAX), false);
    }
}

static void many_threads_give_up_and_check(void **state)
{
    (void)state;
    weir_connection_pool_config config = { .acquire_timeout_ns = WEIR_MS(1000000),
                                           .idle_timeout_ns = WEIR_MS(1) };
    config.check = check_slowly;
    FOR_EACH_BACKEND(on)
    run_crowd(on, config, true);
    assert_int_equal(weir_executor_global_wait_idle(WEIR_SECONDS(30)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(what_is_wrong_is_said),
        weir_case(config_is_copied),
        weir_case(last_one_used_is_lent_first),
        weir_case(given_back_once_and_to_whom_it_belongs),
        weir_case(discarded_connection_is_closed_and_replaced),
        weir_case(never_more_than_max_and_in_order),
        weir_case(given_back_goes_before_what_is_on_its_way),
        weir_case(line_has_an_end),
        weir_case(waiting_has_its_time),
        weir_case(without_a_clock_nobody_waits),
        weir_case(limits_hold_everywhere),
        weir_case(waiting_may_be_without_end),
        weir_case(idle_ones_have_their_time),
        weir_case(late_connection_stays),
        weir_case(one_that_ends_while_idle_leaves),
        weir_case(one_that_ends_while_lent_makes_room),
        weir_case(closed_one_is_not_lent_again),
        weir_case(used_up_connection_is_not_lent_again),
        weir_case(pool_close_closes_connection_whose_peer_reads_nothing),
        weir_case(finish_timeout_frees_place_when_peer_reads_nothing),
        weir_case(finish_timeout_spares_peer_that_reads_slowly),
        weir_case(finish_timeout_has_default_and_can_be_off),
        weir_case(finish_timeout_ends_with_the_output),
        weir_case(finish_timeout_holds_without_memory),
        weir_case(connection_whose_end_waits_in_a_handler_is_not_lent_again),
        weir_case(much_may_happen_on_the_way_back),
        weir_case(failures_are_told_to_those_who_wait),
        weir_case(who_gives_up_leaves_the_line),
        weir_case(connection_for_who_gave_up_stays),
        weir_case(next_one_gets_what_nobody_wants),
        weir_case(closing_ends_everything_in_its_time),
        weir_case(nothing_becomes_idle_in_a_closed_pool),
        weir_case(closing_ends_what_connects),
        weir_case(last_reference_closes),
        weir_case(group_may_end_first),
        weir_case(only_good_ones_are_lent_again),
        weir_case(connection_that_its_check_has_used_up_is_not_lent),
        weir_case(checks_may_take_their_time),
        weir_case(much_may_happen_during_a_check),
        weir_case(listeners_may_do_everything),
        weir_case(faults_lose_nothing),
        weir_case(many_threads_share_a_few),
        weir_case(many_threads_give_up_and_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
