/* SPDX-License-Identifier: MIT */
/* In-process channels without memory: whichever allocation fails, nothing leaks or is left waiting.
 */
#include "transport/locals.h"

/* A promise that may not be there, and has to end once if it is. */
typedef struct hope {
    ear ear;
    bool is_there;
} hope;

static weir_promise *hope_for(hope *self, weir_channel *channel)
{
    weir_promise *promise = weir_channel_promise(channel);
    self->is_there = promise != NULL;
    if (self->is_there)
        ear_listen(&self->ear, NULL, "hope", weir_promise_future(promise));
    return promise;
}

static void hope_has_ended(const hope *self)
{
    if (self->is_there)
        assert_int_equal(self->ear.told, 1);
}

enum { BIND, CONNECT, WRITE, SHUTDOWN = WRITE + 40, CLOSE, HOPES };

typedef struct attempt {
    pair loops;
    server server;
    counter seen;
    weir_channel *listener, *client;
    hope hopes[HOPES];
} attempt;

static weir_channel *new_or_null(bool is_listener)
{
    weir_channel *channel = NULL;
    int code = weir__local_new(&channel, is_listener);
    assert_true(code == 0 ? channel != NULL : code == -ENOMEM && channel == NULL);
    return channel;
}

static void open_listener(attempt *self, const weir_address *name)
{
    self->listener = new_or_null(true);
    if (self->listener == NULL)
        return;
    weir_pipeline_add_last(weir_channel_pipeline(self->listener), NULL, &acceptor, &self->server);
    weir_channel_set_child_option(self->listener, WEIR_OPTION_LINGER_NS, WEIR_MS(1), NULL);
    weir_channel_register(self->listener, self->loops.first, NULL);
    weir_promise *promise = hope_for(&self->hopes[BIND], self->listener);
    weir_channel_bind(self->listener, name, promise);
    weir_promise_release(promise);
    run_pair(&self->loops);
}

static void open_client(attempt *self, const weir_address *name)
{
    self->client = new_or_null(false);
    if (self->client == NULL)
        return;
    weir_channel_register(self->client, self->loops.second, NULL);
    weir_promise *promise = hope_for(&self->hopes[CONNECT], self->client);
    weir_channel_connect(self->client, name, NULL, promise);
    weir_promise_release(promise);
    run_pair(&self->loops);
}

static void use_client(attempt *self)
{
    for (uint32_t i = 0; i < 40; i++) {
        weir_promise *promise = hope_for(&self->hopes[WRITE + i], self->client);
        weir_channel_write_and_flush(self->client, new_number(i, 3000), promise);
        weir_promise_release(promise);
    }
    run_pair(&self->loops);
    weir_channel_move(self->client, self->loops.first, NULL);
    run_pair(&self->loops);
    weir_promise *promise = hope_for(&self->hopes[SHUTDOWN], self->client);
    weir_channel_shutdown(self->client, promise);
    weir_promise_release(promise);
    run_pair(&self->loops);
}

static void close_all(attempt *self)
{
    if (self->client != NULL) {
        weir_promise *promise = hope_for(&self->hopes[CLOSE], self->client);
        weir_channel_close(self->client, promise);
        weir_promise_release(promise);
    }
    if (self->listener != NULL)
        weir_channel_close(self->listener, NULL);
    run_pair(&self->loops);
    weir_channel_release(self->client);
    weir_channel_release(self->listener);
    weir_channel_release(self->server.child);
}

static void whichever_allocation_fails_everything_ends(void **state)
{
    (void)state;
    static attempt a;
    weir_address name = name_of("local:faults");
    int succeeded = 0;
    for (unsigned nth = 1;; nth++) {
        a = (attempt){ .server = { .init = add_counter, .arg = &a.seen } };
        open_pair(&a.loops);
        a.server.children = a.loops.second;
        harness_fail_nth("alloc", nth, -ENOMEM);
        open_listener(&a, &name);
        open_client(&a, &name);
        if (a.client != NULL)
            use_client(&a);
        close_all(&a);
        bool has_failed = harness_fail_end() >= nth;
        end_group(a.loops.group);
        for (int i = 0; i < HOPES; i++)
            hope_has_ended(&a.hopes[i]);
        assert_int_equal(a.seen.wrong > 0 && a.seen.next == 40, false);
        succeeded += a.seen.next == 40;
        if (!has_failed) {
            assert_int_equal(a.seen.next, 40);
            assert_int_equal(a.hopes[CONNECT].ear.code, 0);
            break;
        }
        assert_true(nth < 2000);
    }
    assert_true(succeeded > 1); /* some failures do no harm */
}

/* The listener goes on when it could not accept, and the one who connects is told. */
static void who_cannot_be_accepted_is_refused(void **state)
{
    (void)state;
    pair loops;
    server side = { .children = NULL };
    ear connected;
    open_pair(&loops);
    side.listener = new_local(true);
    weir_pipeline_add_last(weir_channel_pipeline(side.listener), "acceptor", &acceptor, &side);
    assert_int_equal(
        weir_channel_set_child_option(side.listener, WEIR_OPTION_LINGER_NS, WEIR_MS(1), NULL), 0);
    weir_channel_register(side.listener, loops.first, NULL);
    weir_address name = name_of("local:poor");
    weir_channel_bind(side.listener, &name, NULL);
    run_pair(&loops);
    for (unsigned nth = 1; nth <= 3; nth++) { /* the child, its option, the message */
        weir_channel_set_option(side.listener, WEIR_OPTION_AUTO_READ, 0, NULL);
        run_pair(&loops);
        weir_channel *client = new_client(loops.second, NULL, NULL);
        connect_to(client, "local:poor", &connected, NULL);
        run_pair(&loops);
        assert_int_equal(connected.told, 0);
        weir_channel_set_option(side.listener, WEIR_OPTION_AUTO_READ, 1, NULL);
        harness_fail_nth("alloc", nth, -ENOMEM);
        run_pair(&loops);
        harness_fail_end();
        assert_int_equal(connected.code, -ECONNREFUSED);
        assert_int_equal(side.errors, (int)nth);
        assert_true(weir_channel_is_active(side.listener));
        client_end(client);
        run_pair(&loops);
    }
    weir_channel *client = new_client(loops.second, NULL, NULL);
    connect_to(client, "local:poor", &connected, NULL);
    run_pair(&loops);
    assert_int_equal(connected.code, 0);
    client_end(client);
    server_end(&side);
    run_pair(&loops);
    end_group(loops.group);
}

static void close_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type closes = { .name = "closes", .on_error = close_on_error };

/* A listener that gives up when accepting fails accepts nobody afterwards. */
static void a_listener_can_close_when_accepting_fails(void **state)
{
    (void)state;
    pair loops;
    server side = { .children = NULL };
    ear connected[3];
    weir_channel *clients[3];
    open_pair(&loops);
    side.listener = new_local(true);
    weir_pipeline_add_last(weir_channel_pipeline(side.listener), "closes", &closes, NULL);
    weir_pipeline_add_last(weir_channel_pipeline(side.listener), "acceptor", &acceptor, &side);
    weir_channel_set_option(side.listener, WEIR_OPTION_AUTO_READ, 0, NULL);
    weir_channel_register(side.listener, loops.first, NULL);
    weir_address name = name_of("local:poorer");
    weir_channel_bind(side.listener, &name, NULL);
    run_pair(&loops);
    for (int i = 0; i < 3; i++) {
        clients[i] = new_client(loops.second, NULL, NULL);
        connect_to(clients[i], "local:poorer", &connected[i], NULL);
    }
    run_pair(&loops);
    weir_channel_set_option(side.listener, WEIR_OPTION_AUTO_READ, 1, NULL);
    harness_fail_nth("alloc", 1, -ENOMEM);
    run_pair(&loops);
    harness_fail_end();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(connected[i].code, -ECONNREFUSED);
        client_end(clients[i]);
    }
    assert_int_equal(side.accepted, 0);
    weir_channel_release(side.listener);
    run_pair(&loops);
    end_group(loops.group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(whichever_allocation_fails_everything_ends),
        weir_case(who_cannot_be_accepted_is_refused),
        weir_case(a_listener_can_close_when_accepting_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
