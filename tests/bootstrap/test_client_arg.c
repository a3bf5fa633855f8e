/* SPDX-License-Identifier: MIT */
/* arg_release of a client's config: called once when init can no longer run, never if the call
 * fails. */
#include "bootstrap/clients.h"

#include <weir/connection_pool.h>

/* A call, whose argument notices a release that is too early or too late. */
typedef struct call {
    record record;
    atomic_int releases, late_inits;
    weir_group *group;
    weir_client_config config;
    peer to;
    names names;
} call;

static void release_arg(void *arg)
{
    atomic_fetch_add(&((call *)arg)->releases, 1);
}

static int init_channel(weir_channel *channel, void *arg)
{
    call *self = arg;
    atomic_fetch_add(&self->late_inits, atomic_load(&self->releases));
    return record_init(channel, &self->record);
}

/* `open_peer` may be NULL. */
static void open_call(call *self, const backend *on, peer (*open_peer)(const char *text))
{
    self->group = open_loops(on);
    self->to = open_peer != NULL ? open_peer("127.0.0.1:0") : (peer){ .fd = -1, .filler = -1 };
    self->config = (weir_client_config){
        .group = self->group, .init = init_channel, .arg = self, .arg_release = release_arg
    };
}

/* Every name has these addresses. */
static void use_names(call *self, const char *list)
{
    self->names = NAMES(list);
    self->config.resolver = &self->names.base;
}

#define ANY_INITS (-1)

/* It may still be on its way when the promise completes; the end of the group is later in any case.
 */
static void expect_released(call *self, int inits)
{
    WAIT_FOR(atomic_load(&self->releases) > 0);
    assert_int_equal(atomic_load(&self->releases), 1);
    assert_int_equal(atomic_load(&self->late_inits), 0);
    if (inits != ANY_INITS)
        assert_int_equal(atomic_load(&self->record.inits), inits);
}

/* Without the group nothing can call it any more. */
static void end_call(call *self, int inits)
{
    expect_released(self, inits);
    end_group(self->group);
    assert_int_equal(atomic_load(&self->releases), 1);
    if (self->to.fd >= 0)
        close_peer(&self->to);
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

static weir_channel *connect_to(call *self, const char *text)
{
    weir_channel *channel = NULL;
    assert_int_equal(outcome_of(&self->config, text, &channel), 0);
    return channel;
}

static void expect_failure(call *self, int code)
{
    weir_channel *channel = NULL;
    assert_int_equal(outcome_of(&self->config, self->to.text, &channel), code);
}

static void connect_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        call self = { .releases = 0 };
        open_call(&self, on, answering_peer);
        weir_channel *channel = connect_to(&self, self.to.text);
        expect_released(&self, 1); /* while the channel is open */
        close_and_release(channel);
        end_call(&self, 1);
    }
}

/* The first address fails, so init may run for several channels. */
static void connect_to_a_name_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        call self = { .releases = 0 };
        char list[256];
        open_call(&self, on, answering_peer);
        peer none = refusing_peer("127.0.0.1:0");
        snprintf(list, sizeof list, "%s %s", none.text, self.to.text);
        use_names(&self, list);
        close_and_release(connect_to(&self, "some.test:1"));
        end_call(&self, ANY_INITS);
        assert_in_range(atomic_load(&self.record.inits), 1, 2);
        close_peer(&none);
    }
}

static void connect_without_init_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        call self = { .releases = 0 };
        open_call(&self, on, answering_peer);
        self.config.init = NULL;
        close_and_release(connect_to(&self, self.to.text));
        end_call(&self, 0);
    }
}

static void connect_that_is_waited_for_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        call self = { .releases = 0 };
        weir_channel *channel = NULL;
        open_call(&self, on, answering_peer);
        assert_int_equal(weir_client_connect(&channel, &self.config, self.to.text, NULL), 0);
        close_and_release(channel);
        end_call(&self, 1);
    }
}

static void connect_that_fails_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int is_init = 0; is_init < 2; is_init++) {
            call self = { .record.init_code = is_init ? -EPROTO : 0 };
            open_call(&self, on, is_init ? answering_peer : refusing_peer);
            expect_failure(&self, is_init ? -EPROTO : -ECONNREFUSED);
            end_call(&self, ANY_INITS);
            assert_true(!is_init || atomic_load(&self.record.inits) == 1);
        }
    }
}

static void connect_that_times_out_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        call self = { .releases = 0 };
        open_call(&self, on, hanging_peer);
        self.config.connect_timeout_ns = WEIR_MS(20);
        expect_failure(&self, -ETIMEDOUT);
        end_call(&self, ANY_INITS);
    }
}

/* A connect that does not complete by itself: its lookup does not, or its peer does not answer. */
static weir_promise *start_hanging(call *self, const backend *on, bool is_lookup)
{
    weir_promise *promise = new_promise();
    open_call(self, on, hanging_peer);
    use_names(self, self->to.text);
    self->names.is_late = is_lookup;
    assert_int_equal(weir_client_start(&self->config, "some.test:1", promise, NULL), 0);
    return promise;
}

/* During the lookup, and while it connects; init may have run or not. */
static void cancelled_connect_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int is_lookup = 0; is_lookup < 2; is_lookup++) {
            call self = { .releases = 0 };
            weir_promise *promise = start_hanging(&self, on, is_lookup);
            assert_int_equal(atomic_load(&self.releases), 0);
            assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
            assert_int_equal(end_of(promise), -ECANCELED);
            if (is_lookup)
                answer_late(&self.names);
            end_call(&self, ANY_INITS);
        }
    }
}

static void end_of_the_loop_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int is_lookup = 0; is_lookup < 2; is_lookup++) {
            call self = { .releases = 0 };
            weir_promise *promise = start_hanging(&self, on, is_lookup);
            end_group(self.group);
            assert_int_equal(end_of(promise), WEIR_ESHUTDOWN);
            if (is_lookup)
                answer_late(&self.names);
            expect_released(&self, ANY_INITS);
            close_peer(&self.to);
        }
    }
}

/* Of a call that has failed, which leaves its promise alone. */
static void release_pending(weir_promise *promise)
{
    weir_promise_set(promise, 0);
    weir_promise_release(promise);
}

/* The group has ended, and nothing of the call is left. */
static void call_on_an_ended_group_releases_nothing(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        call self = { .releases = 0 };
        open_call(&self, on, NULL);
        weir_promise *promise = new_promise();
        assert_int_equal(weir_group_shutdown(self.group, 0, WEIR_SECONDS(10)), 0);
        int code = weir_client_start(&self.config, "127.0.0.1:9", promise, NULL);
        if (code == 0)
            assert_int_equal(end_of(promise), WEIR_ESHUTDOWN);
        else
            release_pending(promise);
        weir_group_free(self.group);
        assert_int_equal(atomic_load(&self.releases), code == 0);
        assert_int_equal(atomic_load(&self.record.inits), 0);
    }
}

static void call_that_fails_releases_nothing(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        for (int i = 0; i < 4; i++) {
            call self = { .releases = 0 };
            weir_promise *promise = new_promise();
            open_call(&self, on, NULL);
            use_names(&self, "");
            self.names.refusal = -EAGAIN;
            self.config.stagger_ns = i == 1 ? -7 : 0;
            self.config.local = i == 2 ? "nonsense" : NULL;
            const char *text = i == 0 ? "127.0.0.1:70000" : "some.test:1";
            assert_true(weir_client_start(&self.config, text, promise, NULL) < 0);
            if (i != 2) /* a bind has no `local` */
                assert_true(weir_client_start_bind(&self.config, text, promise, NULL) < 0);
            release_pending(promise);
            end_group(self.group);
            assert_int_equal(atomic_load(&self.releases), 0);
        }
    }
}

/* Every allocation of the call, and of what follows it, fails once. */
static void call_without_memory_releases_once_if_it_succeeds(void **state)
{
    (void)state;
    bool has_failed = true;
    for (unsigned at = 1; has_failed; at++) {
        call self = { .releases = 0 };
        open_call(&self, &backends[0], answering_peer);
        weir_promise *promise = new_promise();
        fault_begin("alloc", at, -ENOMEM);
        int code = weir_client_start(&self.config, self.to.text, promise, NULL);
        if (code == 0)
            weir_future_await(weir_promise_future(promise));
        else
            assert_int_equal(code, -ENOMEM);
        end_group(self.group);
        has_failed = fault_end();
        if (code < 0)
            release_pending(promise);
        else
            weir_promise_release(promise);
        assert_int_equal(atomic_load(&self.releases), code == 0);
        assert_int_equal(atomic_load(&self.late_inits), 0);
        close_peer(&self.to);
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
            call self = { .record.init_code = cases[i].init_code };
            weir_channel *channel = NULL;
            open_call(&self, on, NULL);
            use_names(&self, cases[i].list);
            assert_int_equal(weir_client_bind(&channel, &self.config, "some.test:1", NULL),
                             cases[i].code);
            if (channel != NULL)
                close_and_release(channel);
            end_call(&self, ANY_INITS);
        }
    }
}

static void cancelled_bind_releases_once(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        call self = { .releases = 0 };
        weir_promise *promise = new_promise();
        open_call(&self, on, NULL);
        use_names(&self, "127.0.0.1:0");
        self.names.is_late = true;
        assert_int_equal(weir_client_start_bind(&self.config, "some.test:1", promise, NULL), 0);
        assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
        assert_int_equal(end_of(promise), -ECANCELED);
        answer_late(&self.names);
        end_call(&self, 1); /* the channel is opened all the same, and closed */
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
            call self = { .releases = 0 };
            open_call(&self, on, answering_peer);
            weir_connection_pool_config config = { .client = self.config };
            weir_connection_pool *pool = NULL;
            weir_channel *channels[4];
            config.acquire_timeout_ns = WEIR_OFF;
            assert_int_equal(weir_connection_pool_new(&pool, &config, self.to.text, NULL), 0);
            for (int i = 0; i < count; i++)
                channels[i] = borrow(pool);
            for (int i = 0; i < count; i++)
                give_back(pool, channels[i]);
            assert_int_equal(atomic_load(&self.releases), 0);
            weir_connection_pool_release(pool);
            expect_released(&self, count);
            end_call(&self, count);
        }
    }
}

static void pool_that_is_not_made_releases_nothing(void **state)
{
    (void)state;
    call self = { .releases = 0 };
    open_call(&self, &backends[0], NULL);
    weir_connection_pool_config config = { .client = self.config, .max = -1 };
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
    end_call(&self, 0);
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
