/* SPDX-License-Identifier: MIT */
/* Datagram channels: opened on an address, or told why not. */
#include "bootstrap/clients.h"

#include <weir/datagram.h>

static weir_channel *bind_on(weir_group *group, record *seen, const char *text)
{
    weir_client_config config = { .group = group, .init = record_init, .arg = seen };
    weir_channel *channel = NULL;
    weir_error error = { 0 };
    if (weir_client_bind(&channel, &config, text, &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(atomic_load(&seen->inits), 1);
    assert_true(weir_channel_is_active(channel));
    return channel;
}

static void local_text(const weir_channel *channel, char text[WEIR_ADDRESS_TEXT_MAX])
{
    weir_address address;
    assert_int_equal(weir_channel_local_address(channel, &address), 0);
    weir_address_text(&address, text, WEIR_ADDRESS_TEXT_MAX);
}

static void expect_failure(const weir_client_config *config, const char *text, int code,
                           const char *message)
{
    weir_channel *channel = NULL;
    weir_error error = { 0 };
    assert_int_equal(weir_client_bind(&channel, config, text, &error), code);
    assert_null(channel);
    assert_int_equal(error.code, code);
    if (strstr(error.message, message) == NULL)
        fail_msg("no '%s' in '%s'", message, error.message);
}

static void every_form_of_address_opens(void **state)
{
    (void)state;
    char name[64];
    make_unix_text(name, "@datagrams-");
    const char *const texts[] = { "127.0.0.1:0", "[::1]:0", "localhost:0", ":0", name };
    FOR_EACH_BACKEND(on)
    {
        for (size_t i = 0; i < COUNT(texts); i++) {
            weir_group *group = open_loops(on);
            record seen = { 0 };
            close_and_release(bind_on(group, &seen, texts[i]));
            end_group(group);
            assert_int_equal(atomic_load(&seen.inactives), 1);
        }
    }
}

static void an_address_in_use_is_told(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        weir_client_config config = { .group = group };
        record seen = { 0 };
        char text[WEIR_ADDRESS_TEXT_MAX];
        weir_channel *first = bind_on(group, &seen, "127.0.0.1:0");
        local_text(first, text);
        expect_failure(&config, text, -EADDRINUSE, text);
        expect_failure(&config, "192.0.2.1:0", -EADDRNOTAVAIL, "192.0.2.1:0");
        close_and_release(first);
        end_group(group);
    }
}

static void names_that_do_not_resolve_are_told(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]);
    names some = NAMES("");
    weir_client_config config = { .group = group, .resolver = &some.base };
    expect_failure(&config, "example.org:80", WEIR_ENONAME, "example.org:80");
    some.code = WEIR_ENONAME;
    expect_failure(&config, "example.org:80", WEIR_ENONAME, "example.org:80");
    end_group(group);
}

static void what_is_wrong_is_said_at_once(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]), *another = open_loops(&backends[0]);
    weir_option_value wrong = { WEIR_OPTION_RECEIVE_BUFFER_BYTES, -5 };
    const struct {
        weir_client_config config;
        const char *text, *says;
    } cases[] = {
        { { .group = group }, "127.0.0.1:70000", "127.0.0.1:70000" },
        { { .group = group }, "", "''" },
        { { .group = group }, NULL, "address" },
        { { .group = NULL }, "127.0.0.1:0", "group" },
        { { .group = group, .option_count = 2 }, "127.0.0.1:0", "option 0" },
        { { .group = group, .attr_count = 2 }, "127.0.0.1:0", "attribute 0" },
        { { .group = group, .options = &wrong, .option_count = 1 },
          "127.0.0.1:0",
          "receive_buffer_bytes is -5" },
        { { .group = group, .loop = weir_group_loop_at(another, 0) },
          "127.0.0.1:0",
          "none of the group's" },
    };
    weir_promise *promise = weir_promise_new(NULL);
    for (size_t i = 0; i < COUNT(cases); i++) {
        weir_error error = { 0 };
        expect_failure(&cases[i].config, cases[i].text, -EINVAL, cases[i].says);
        assert_int_equal(weir_client_start_bind(&cases[i].config, cases[i].text, promise, &error),
                         -EINVAL);
        assert_false(weir_future_is_done(weir_promise_future(promise)));
    }
    weir_client_config good = { .group = group };
    weir_error error = { 0 };
    assert_int_equal(weir_client_start_bind(&good, "127.0.0.1:0", NULL, &error), -EINVAL);
    assert_non_null(strstr(error.message, "promise"));
    assert_int_equal(weir_client_bind(NULL, &good, "127.0.0.1:0", NULL), -EINVAL);
    weir_promise_set(promise, 0);
    weir_promise_release(promise);
    end_group(another);
    end_group(group);
}

static void an_init_that_fails_is_what_is_told(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        record seen = { .init_code = -EDOM };
        weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
        expect_failure(&config, "127.0.0.1:0", -EDOM, "127.0.0.1:0");
        assert_int_equal(atomic_load(&seen.inits), 1);
        assert_int_equal(atomic_load(&seen.actives), 0);
        end_group(group);
    }
}

/* The first ones are not this machine's, or of a family that it does not have. */
static void addresses_are_tried_in_order(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        record seen = { 0 };
        names some = NAMES("198.51.100.1:0 [2001:db8::1]:0 127.0.0.2:0 127.0.0.1:0");
        weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
        char text[WEIR_ADDRESS_TEXT_MAX];
        weir_channel *channel = NULL;
        config.resolver = &some.base;
        assert_int_equal(weir_client_bind(&channel, &config, "example.org:0", NULL), 0);
        local_text(channel, text);
        assert_memory_equal(text, "127.0.0.2:", 10);
        close_and_release(channel);
        WAIT_FOR(atomic_load(&seen.inactives) == 1);
        assert_int_equal(atomic_load(&seen.actives), 1);
        /* Without a socket of the family there is no channel either. */
        fault_begin("socket", 1, -EAFNOSUPPORT);
        some.list = "[::1]:0 127.0.0.1:0";
        assert_int_equal(weir_client_bind(&channel, &config, "example.org:0", NULL), 0);
        assert_true(fault_end());
        close_and_release(channel);
        /* All of them fail; or one in a way that the others are not tried for. */
        some.list = "203.0.113.1:0 198.51.100.1:0";
        expect_failure(&config, "example.org:0", -EADDRNOTAVAIL, "example.org:0");
        some.list = "127.0.0.1:0 127.0.0.2:0";
        fault_begin("bind", 1, -EACCES);
        expect_failure(&config, "example.org:0", -EACCES, "example.org:0");
        fault_end();
        end_group(group);
    }
}

/* At any moment: the channel is nobody's, and is closed. */
static void who_has_cancelled_gets_no_channel(void **state)
{
    (void)state;
    FOR_EACH_BACKEND(on)
    {
        weir_group *group = open_loops(on);
        for (int i = 0; i < 50; i++) {
            names some = NAMES("127.0.0.1:0");
            record seen = { 0 };
            some.is_late = i == 0;
            weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
            config.resolver = &some.base;
            weir_promise *promise = weir_promise_new(NULL);
            assert_int_equal(weir_client_start_bind(&config, "example.org:0", promise, NULL), 0);
            for (int k = 0; k < i; k++)
                sched_yield();
            bool is_cancelled = weir_future_cancel(weir_promise_future(promise)) == 0;
            if (some.is_late)
                answer_late(&some);
            if (!is_cancelled) { /* the loop may be about to complete it */
                assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
                weir_channel_close(weir_future_value(weir_promise_future(promise)), NULL);
            }
            weir_promise_release(promise);
            WAIT_FOR(atomic_load(&seen.inactives) == 1);
            wait_until_idle(group);
        }
        end_group(group);
    }
}

static int bind_there(void *arg)
{
    weir_client_config config = { .group = arg };
    weir_channel *channel = NULL;
    weir_error error = { 0 };
    int code = weir_client_bind(&channel, &config, "localhost:0", &error);
    assert_non_null(strstr(error.message, "localhost:0"));
    return code;
}

static void waiting_is_refused_on_threads_of_weir(void **state)
{
    (void)state;
    weir_group *group = open_loops(&backends[0]), *executors = new_group_of(1);
    assert_int_equal(call_on(weir_group_next(group), bind_there, group), -EDEADLK);
    assert_int_equal(call_on(weir_group_next(executors), bind_there, group), -EDEADLK);
    assert_int_equal(call_on(weir_group_background(group), bind_there, group), -EDEADLK);
    end_group(executors);
    end_group(group);
}

static void faults_leave_nothing_behind(void **state)
{
    (void)state;
    bool is_over = false;
    for (unsigned nth = 1; !is_over; nth++) {
        weir_group *group = open_loops(&backends[0]);
        record seen = { 0 };
        weir_client_config config = { .group = group, .init = record_init, .arg = &seen };
        weir_channel *channel = NULL;
        fault_begin(NULL, nth, -ENOMEM);
        int code = weir_client_bind(&channel, &config, "127.0.0.1:0", NULL);
        is_over = !fault_end();
        if (code == 0)
            close_and_release(channel);
        else
            assert_null(channel);
        end_group(group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        client_case(every_form_of_address_opens),
        client_case(an_address_in_use_is_told),
        client_case(names_that_do_not_resolve_are_told),
        client_case(what_is_wrong_is_said_at_once),
        client_case(an_init_that_fails_is_what_is_told),
        client_case(addresses_are_tried_in_order),
        client_case(who_has_cancelled_gets_no_channel),
        client_case(waiting_is_refused_on_threads_of_weir),
        client_case(faults_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
