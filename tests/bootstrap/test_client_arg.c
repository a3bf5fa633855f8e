/* SPDX-License-Identifier: MIT */
/* arg_release of a client's config: called once when init can no longer run, never if the call
 * fails. */
#include "bootstrap/clients.h"

#include <weir/connection_pool.h>

/* An argument that notices a release that is too early or too late. */
typedef struct owned {
    record record;
    atomic_int releases, late_inits;
} owned;

static void release_owned(void *arg)
{
    atomic_fetch_add(&((owned *)arg)->releases, 1);
}

static int init_owned(weir_channel *channel, void *arg)
{
    owned *self = arg;
    atomic_fetch_add(&self->late_inits, atomic_load(&self->releases));
    return record_init(channel, &self->record);
}

static weir_client_config config_of(owned *self, weir_group *group)
{
    return (weir_client_config){
        .group = group, .init = init_owned, .arg = self, .arg_release = release_owned
    };
}

#define ANY_INITS (-1)

/* It may still be on its way when the promise completes; the end of the group is later in any case.
 */
static void expect_released(owned *self, int inits)
{
    WAIT_FOR(atomic_load(&self->releases) > 0);
    assert_int_equal(atomic_load(&self->releases), 1);
    assert_int_equal(atomic_load(&self->late_inits), 0);
    if (inits != ANY_INITS)
        assert_int_equal(atomic_load(&self->record.inits), inits);
}

/* The group is gone: nothing can call it any more. */
static void end_released(owned *self, weir_group *group, int inits)
{
    expect_released(self, inits);
    end_group(group);
    assert_int_equal(atomic_load(&self->releases), 1);
}

static int outcome_of(const weir_client_config *config, const char *text, weir_channel **channel)
{
    weir_promise *promise = new_promise();
    assert_int_equal(weir_client_start(config, text, promise, NULL), 0);
    int code = weir_future_await(weir_promise_future(promise));
    if (code == 0)
        *channel = weir_channel_retain(weir_future_value(weir_promise_future(promise)));
    weir_promise_release(promise);
    return code;
}

static void connect_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        owned self = { .releases = 0 };
        weir_group *group = open_loops(on);
        weir_client_config config = config_of(&self, group);
        peer to = answering_peer("127.0.0.1:0");
        weir_channel *channel = NULL;
        assert_int_equal(outcome_of(&config, to.text, &channel), 0);
        expect_released(&self, 1); /* while the channel is open */
        close_and_release(channel);
        end_released(&self, group, 1);
        close_peer(&to);
    }
}

/* The first address fails, so init may run for several channels. */
static void connect_to_a_name_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        owned self = { .releases = 0 };
        char list[256];
        weir_group *group = open_loops(on);
        weir_client_config config = config_of(&self, group);
        peer none = refusing_peer("127.0.0.1:0"), to = answering_peer("127.0.0.1:0");
        snprintf(list, sizeof list, "%s %s", none.text, to.text);
        names some = NAMES(list);
        weir_channel *channel = NULL;
        config.resolver = &some.base;
        assert_int_equal(outcome_of(&config, "some.test:1", &channel), 0);
        close_and_release(channel);
        end_released(&self, group, ANY_INITS);
        assert_in_range(atomic_load(&self.record.inits), 1, 2);
        close_peer(&none);
        close_peer(&to);
    }
}

static void connect_without_init_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        owned self = { .releases = 0 };
        weir_group *group = open_loops(on);
        weir_client_config config = config_of(&self, group);
        peer to = answering_peer("127.0.0.1:0");
        weir_channel *channel = NULL;
        config.init = NULL;
        assert_int_equal(outcome_of(&config, to.text, &channel), 0);
        close_and_release(channel);
        end_released(&self, group, 0);
        close_peer(&to);
    }
}

static void connect_that_is_waited_for_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        owned self = { .releases = 0 };
        weir_group *group = open_loops(on);
        weir_client_config config = config_of(&self, group);
        peer to = answering_peer("127.0.0.1:0");
        weir_channel *channel = NULL;
        assert_int_equal(weir_client_connect(&channel, &config, to.text, NULL), 0);
        close_and_release(channel);
        end_released(&self, group, 1);
        close_peer(&to);
    }
}

static void connect_that_fails_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int is_init = 0; is_init < 2; is_init++) {
            owned self = { .record.init_code = is_init ? -EPROTO : 0 };
            weir_group *group = open_loops(on);
            weir_client_config config = config_of(&self, group);
            peer to = is_init ? answering_peer("127.0.0.1:0") : refusing_peer("127.0.0.1:0");
            weir_channel *channel = NULL;
            assert_int_equal(outcome_of(&config, to.text, &channel),
                             is_init ? -EPROTO : -ECONNREFUSED);
            end_released(&self, group, ANY_INITS);
            assert_true(!is_init || atomic_load(&self.record.inits) == 1);
            close_peer(&to);
        }
    }
}

static void connect_that_times_out_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        owned self = { .releases = 0 };
        weir_group *group = open_loops(on);
        weir_client_config config = config_of(&self, group);
        peer to = hanging_peer("127.0.0.1:0");
        weir_channel *channel = NULL;
        config.connect_timeout_ms = 20;
        assert_int_equal(outcome_of(&config, to.text, &channel), -ETIMEDOUT);
        end_released(&self, group, ANY_INITS);
        close_peer(&to);
    }
}

/* During the lookup, and while it connects; init may have run or not. */
static void cancelled_connect_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int is_lookup = 0; is_lookup < 2; is_lookup++) {
            owned self = { .releases = 0 };
            weir_group *group = open_loops(on);
            weir_client_config config = config_of(&self, group);
            peer to = hanging_peer("127.0.0.1:0");
            names some = NAMES(to.text);
            some.is_late = is_lookup;
            config.resolver = &some.base;
            weir_promise *promise = new_promise();
            assert_int_equal(weir_client_start(&config, "some.test:1", promise, NULL), 0);
            assert_int_equal(atomic_load(&self.releases), 0);
            assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
            assert_int_equal(end_of(promise), -ECANCELED);
            if (is_lookup)
                answer_late(&some);
            end_released(&self, group, ANY_INITS);
            close_peer(&to);
        }
    }
}

static void end_of_the_loop_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int is_lookup = 0; is_lookup < 2; is_lookup++) {
            owned self = { .releases = 0 };
            weir_group *group = open_loops(on);
            weir_client_config config = config_of(&self, group);
            peer to = hanging_peer("127.0.0.1:0");
            names some = NAMES(to.text);
            some.is_late = is_lookup;
            config.resolver = &some.base;
            weir_promise *promise = new_promise();
            assert_int_equal(weir_client_start(&config, "some.test:1", promise, NULL), 0);
            end_group(group);
            assert_int_equal(end_of(promise), WEIR_ESHUTDOWN);
            if (is_lookup)
                answer_late(&some);
            expect_released(&self, ANY_INITS);
            close_peer(&to);
        }
    }
}

/* The group has ended, and nothing of the call is left. */
static void call_on_an_ended_group_releases_nothing(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        owned self = { .releases = 0 };
        weir_group *group = open_loops(on);
        weir_client_config config = config_of(&self, group);
        weir_promise *promise = new_promise();
        assert_int_equal(weir_group_shutdown(group, 0, 10000), 0);
        int code = weir_client_start(&config, "127.0.0.1:9", promise, NULL);
        if (code == 0)
            assert_int_equal(weir_future_await(weir_promise_future(promise)), WEIR_ESHUTDOWN);
        else
            weir_promise_set(promise, 0); /* it was left alone */
        weir_promise_release(promise);
        weir_group_free(group);
        assert_int_equal(atomic_load(&self.releases), code == 0);
        assert_int_equal(atomic_load(&self.record.inits), 0);
    }
}

static void call_that_fails_releases_nothing(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        names refuses = NAMES("");
        refuses.refusal = -EAGAIN;
        for (int i = 0; i < 4; i++) {
            owned self = { .releases = 0 };
            weir_client_config config = config_of(&self, group);
            weir_promise *promise = new_promise();
            config.resolver = &refuses.base;
            config.stagger_ms = i == 1 ? -7 : 0;
            config.local = i == 2 ? "nonsense" : NULL;
            const char *text = i == 0 ? "127.0.0.1:70000" : "some.test:1";
            assert_true(weir_client_start(&config, text, promise, NULL) < 0);
            if (i != 2) /* a bind has no `local` */
                assert_true(weir_client_start_bind(&config, text, promise, NULL) < 0);
            weir_promise_set(promise, 0); /* it was left alone */
            weir_promise_release(promise);
            assert_int_equal(atomic_load(&self.releases), 0);
        }
        end_group(group);
    }
}

/* Every allocation of the call, and of what follows it, fails once. */
static void call_without_memory_releases_once_if_it_succeeds(void **state)
{
    (void)state;
    bool has_failed = true;
    for (unsigned at = 1; has_failed; at++) {
        owned self = { .releases = 0 };
        weir_group *group = open_loops(&backends[0]);
        weir_client_config config = config_of(&self, group);
        peer to = answering_peer("127.0.0.1:0");
        weir_promise *promise = new_promise();
        fault_begin("alloc", at, -ENOMEM);
        int code = weir_client_start(&config, to.text, promise, NULL);
        if (code == 0)
            weir_future_await(weir_promise_future(promise));
        else
            assert_int_equal(code, -ENOMEM);
        end_group(group);
        has_failed = fault_end();
        if (code < 0)
            weir_promise_set(promise, 0); /* it was left alone */
        weir_promise_release(promise);
        assert_int_equal(atomic_load(&self.releases), code == 0);
        assert_int_equal(atomic_load(&self.late_inits), 0);
        close_peer(&to);
    }
}

/* Datagrams --------------------------------------------------------------------------------------
 */

static void bind_releases_once(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        int init_code, code;
    } cases[] = {
        { "127.0.0.1:0", 0, 0 },
        { "192.0.2.1:0 127.0.0.1:0", 0, 0 }, /* init runs for both */
        { "192.0.2.1:0", 0, -EADDRNOTAVAIL },
        { "127.0.0.1:0", -EPROTO, -EPROTO },
        { "", 0, WEIR_ENONAME },
    };
    FOR_EACH_BACKEND(on)
    {
        for (size_t i = 0; i < COUNT(cases); i++) {
            owned self = { .record.init_code = cases[i].init_code };
            weir_group *group = open_loops(on);
            weir_client_config config = config_of(&self, group);
            names some = NAMES(cases[i].list);
            weir_channel *channel = NULL;
            config.resolver = &some.base;
            assert_int_equal(weir_client_bind(&channel, &config, "some.test:1", NULL),
                             cases[i].code);
            if (channel != NULL)
                close_and_release(channel);
            end_released(&self, group, ANY_INITS);
        }
    }
}

static void cancelled_bind_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        owned self = { .releases = 0 };
        weir_group *group = open_loops(on);
        weir_client_config config = config_of(&self, group);
        names some = NAMES("127.0.0.1:0");
        some.is_late = true;
        config.resolver = &some.base;
        weir_promise *promise = new_promise();
        assert_int_equal(weir_client_start_bind(&config, "some.test:1", promise, NULL), 0);
        assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
        assert_int_equal(end_of(promise), -ECANCELED);
        answer_late(&some);
        end_released(&self, group, 1); /* the channel is opened all the same, and closed */
    }
}

/* Pools ------------------------------------------------------------------------------------------
 */

static weir_channel *borrow(weir_connection_pool *pool)
{
    weir_promise *promise = new_promise();
    weir_connection_pool_acquire(pool, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_channel *channel = weir_channel_retain(weir_future_value(weir_promise_future(promise)));
    weir_promise_release(promise);
    return channel;
}

static void give_back(weir_connection_pool *pool, weir_channel *channel)
{
    assert_int_equal(weir_connection_pool_give_back(pool, channel), 0);
    weir_channel_release(channel);
}

/* Once for the pool, however many connections it makes. */
static void pool_releases_once_at_its_end(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int count = 0; count < 4; count++) {
            owned self = { .releases = 0 };
            weir_group *group = open_loops(on);
            weir_connection_pool_config config = { .client = config_of(&self, group) };
            weir_connection_pool *pool = NULL;
            weir_channel *channels[4];
            peer to = answering_peer("127.0.0.1:0");
            config.acquire_timeout_ms = WEIR_OFF;
            assert_int_equal(weir_connection_pool_new(&pool, &config, to.text, NULL), 0);
            for (int i = 0; i < count; i++)
                channels[i] = borrow(pool);
            for (int i = 0; i < count; i++)
                give_back(pool, channels[i]);
            assert_int_equal(atomic_load(&self.releases), 0);
            weir_connection_pool_release(pool);
            expect_released(&self, count);
            end_released(&self, group, count);
            close_peer(&to);
        }
    }
}

static void pool_that_is_not_made_releases_nothing(void **state)
{
    (void)state;
    owned self = { .releases = 0 };
    weir_group *group = open_loops(&backends[0]);
    weir_connection_pool_config config = { .client = config_of(&self, group), .max = -1 };
    weir_connection_pool *pool = NULL;
    assert_int_equal(weir_connection_pool_new(&pool, &config, "127.0.0.1:9", NULL), -EINVAL);
    config.max = 1;
    bool has_failed = true;
    for (unsigned at = 1; has_failed; at++) {
        fault_begin("alloc", at, -ENOMEM);
        int code = weir_connection_pool_new(&pool, &config, "127.0.0.1:9", NULL);
        has_failed = fault_end();
        assert_int_equal(code, has_failed ? -ENOMEM : 0);
        assert_int_equal(atomic_load(&self.releases), 0);
    }
    weir_connection_pool_release(pool);
    end_released(&self, group, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        client_case(connect_releases_once),
        client_case(connect_to_a_name_releases_once),
        client_case(connect_without_init_releases_once),
        client_case(connect_that_is_waited_for_releases_once),
        client_case(connect_that_fails_releases_once),
        client_case(connect_that_times_out_releases_once),
        client_case(cancelled_connect_releases_once),
        client_case(end_of_the_loop_releases_once),
        client_case(call_on_an_ended_group_releases_nothing),
        client_case(call_that_fails_releases_nothing),
        client_case(call_without_memory_releases_once_if_it_succeeds),
        client_case(bind_releases_once),
        client_case(cancelled_bind_releases_once),
        client_case(pool_releases_once_at_its_end),
        client_case(pool_that_is_not_made_releases_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
