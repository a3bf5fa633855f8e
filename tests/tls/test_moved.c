/* SPDX-License-Identifier: MIT */
/* Channels that go to another loop while somebody chooses a certificate for them. */
#include "tls/town.h"

static _Atomic(weir_promise *) asked;

static void choose(weir_channel *channel, const char *host, weir_promise *promise, void *arg)
{
    (void)channel, (void)host, (void)arg;
    atomic_store(&asked, weir_promise_retain(promise));
}

static void release_context(void *context)
{
    weir_tls_context_release(context);
}

static void choose_now(weir_tls_context *context)
{
    weir_promise *promise = atomic_exchange(&asked, NULL);
    weir_promise_succeed(promise, weir_tls_context_retain(context), release_context);
    weir_promise_release(promise);
}

static weir_executor *other_loop(const town *self, const weir_channel *channel)
{
    weir_executor *first = weir_group_at(self->loops, 0), *second = weir_group_at(self->loops, 1);
    return weir_loop_executor(weir_channel_loop(channel)) == first ? second : first;
}

static void arrive(weir_promise *promise)
{
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
}

enum { BEHIND, MEANWHILE, BEFORE, BETWEEN, ORDERS };

/* The answer comes behind the move, while it is under way, right before it, or when the channel is
 * on no loop at all. */
static void move_and_talk(town *self, int order)
{
    enum { LENGTH = 5000 };
    caller by;
    weir_channel *channel = town_call(self, &by);
    WAIT_FOR(atomic_load(&asked) != NULL);
    weir_channel *accepted = weir_channel_retain(atomic_load(&self->accepted));
    weir_promise *left = new_promise(), *moved = new_promise();
    weir_executor *to = other_loop(self, accepted);
    if (order == BEFORE)
        choose_now(self->contexts[0]);
    if (order == BETWEEN) {
        weir_channel_deregister(accepted, left);
        assert_int_equal(weir_future_await(weir_promise_future(left)), 0);
        choose_now(self->contexts[0]);
        weir_channel_register(accepted, to, moved);
    } else {
        weir_channel_move(accepted, to, moved);
    }
    if (order == MEANWHILE)
        choose_now(self->contexts[0]);
    arrive(moved);
    if (order == BEHIND)
        choose_now(self->contexts[0]);
    town_say(channel, LENGTH);
    WAIT_FOR(atomic_load(&by.heard) >= LENGTH || atomic_load(&by.errors) > 0);
    assert_int_equal(atomic_load(&by.last_error), 0);
    assert_int_equal(atomic_load(&by.wrong), 0);
    town_hang_up(channel);
    weir_promise_release(left);
    weir_channel_release(accepted);
    WAIT_FOR(atomic_load(&by.inactives) == 1);
}

static void an_answer_finds_the_channel_wherever_it_is(void **state)
{
    enum { TIMES = 20 };
    weir_tls_sni sni = { .choose = choose };
    town self = { .sni = &sni };
    town_open_filled(&self, *state, ON_LOOP, "127.0.0.1:0");
    for (int i = 0; i < TIMES * ORDERS; i++)
        move_and_talk(&self, i % ORDERS);
    WAIT_FOR(atomic_load(&self.inactives) == TIMES * ORDERS);
    assert_int_equal(atomic_load(&self.errors), 0);
    assert_int_equal(atomic_load(&self.sessions), TIMES * ORDERS);
    town_close(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        server_case(an_answer_finds_the_channel_wherever_it_is, 0), /* loops for many channels */
        server_case(an_answer_finds_the_channel_wherever_it_is, 2),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
