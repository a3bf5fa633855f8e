/* SPDX-License-Identifier: MIT */
/* Channels that go to another loop during their handshake. */
#include "tls/town.h"

#include <semaphore.h>

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

/* Loops that take no channel ----------------------------------------------------------------- */

static int refuse_to_start(void *arg, const char *name, void (*run)(void *run_arg), void *run_arg)
{
    (void)arg, (void)name, (void)run, (void)run_arg;
    return -EAGAIN;
}

static weir_group *new_loops_that_refuse(const backend *io, bool have_ended)
{
    weir_group *group = NULL;
    weir_group_config config = { .count = 1, .io = io->io };
    config.start = have_ended ? NULL : refuse_to_start;
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    if (have_ended) {
        weir_group_shutdown(group, 0, 0);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    }
    return group;
}

/* Where the last callbacks of a channel run. */
typedef struct last_calls {
    _Atomic(weir_executor *) event_on, inactive_on, removed_on;
} last_calls;

static void last_calls_on_event(weir_ctx *ctx, weir_msg *event)
{
    last_calls *self = weir_ctx_arg(ctx);
    atomic_store(&self->event_on, weir_executor_current());
    weir_ctx_fire_event(ctx, event);
}

static void last_calls_on_inactive(weir_ctx *ctx)
{
    last_calls *self = weir_ctx_arg(ctx);
    atomic_store(&self->inactive_on, weir_executor_current());
    weir_ctx_fire_inactive(ctx);
}

static void last_calls_removed(weir_ctx *ctx)
{
    last_calls *self = weir_ctx_arg(ctx);
    atomic_store(&self->removed_on, weir_executor_current());
}

static const weir_handler_type last_calls_type = { .name = "last_calls",
                                                   .on_event = last_calls_on_event,
                                                   .on_inactive = last_calls_on_inactive,
                                                   .removed = last_calls_removed };

static void move_to_refusal(town *self, weir_group *refusing, int code)
{
    caller by;
    last_calls seen = { .event_on = NULL };
    int before = atomic_load(&self->accepted_count);
    weir_channel *channel = town_call(self, &by);
    WAIT_FOR(atomic_load(&self->accepted_count) > before);
    weir_channel *accepted = weir_channel_retain(atomic_load(&self->accepted));
    weir_executor *loop = weir_loop_executor(weir_channel_loop(accepted));
    assert_int_equal(weir_pipeline_add_last(weir_channel_pipeline(accepted), "last_calls",
                                            &last_calls_type, &seen),
                     0);
    weir_promise *moved = new_promise();
    weir_channel_move(accepted, weir_group_at(refusing, 0), moved);
    assert_int_equal(weir_future_await(weir_promise_future(moved)), code);
    weir_promise_release(moved);
    assert_int_equal(weir_future_await(weir_channel_closed(accepted)), 0);
    assert_ptr_equal(atomic_load(&seen.inactive_on), loop);
    assert_ptr_equal(atomic_load(&seen.removed_on), loop);
    weir_channel_release(accepted);
    town_hang_up(channel);
    WAIT_FOR(atomic_load(&by.inactives) == 1);
}

/* The step of the handshake comes back to the loop that the channel is closed on, or is dropped. */
static void a_refused_move_during_a_handshake_closes_on_its_own_loop(void **state)
{
    enum { TIMES = 30 };
    town self = { .tls = { 0 } };
    town_open_filled(&self, *state, HANDSHAKE_ELSEWHERE, "127.0.0.1:0");
    harness_log_begin(WEIR_LOG_WARN);
    for (int have_ended = 0; have_ended < 2; have_ended++) {
        weir_group *refusing = new_loops_that_refuse(*state, have_ended);
        for (int i = 0; i < TIMES; i++)
            move_to_refusal(&self, refusing, have_ended ? WEIR_ESHUTDOWN : -EAGAIN);
        weir_group_shutdown(refusing, 0, 0);
        weir_group_free(refusing);
    }
    harness_log_end();
    town_close(&self);
}

/* Steps that come back when the channel is on no loop ----------------------------------------- */

/* An executor that computes no step before it is let. */
static size_t waiting_in(const weir_group *group)
{
    weir_group_pending pending;
    weir_group_get_pending(group, &pending);
    return pending.tasks;
}

typedef struct gate {
    weir_group *group;
    sem_t opens;
} gate;

static int wait_at_gate(void *arg)
{
    gate *self = arg;
    while (sem_wait(&self->opens) != 0)
        continue;
    return 0;
}

static void close_gate(gate *self)
{
    assert_int_equal(weir_executor_execute(weir_group_at(self->group, 0), wait_at_gate, self), 0);
}

/* Everything that was posted before has run. */
static int do_nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void await_executor(gate *self)
{
    weir_future *done;
    assert_int_equal(weir_executor_submit(weir_group_at(self->group, 0), do_nothing, NULL, &done),
                     0);
    weir_future_await(done);
    weir_future_release(done);
}

static void open_gate(gate *self)
{
    sem_post(&self->opens);
}

static void gate_begin(gate *self)
{
    const weir_group_config config = { .count = 1, .max_pending_tasks = 16 };
    assert_int_equal(weir_group_new_executors(&self->group, &config, NULL), 0);
    assert_int_equal(sem_init(&self->opens, 0, 0), 0);
}

static void gate_end(gate *self)
{
    end_group(self->group);
    sem_destroy(&self->opens);
}

/* The channel has left its loop, which has terminated; the last of its handshake comes back from
 * the executor, or the answer about its certificate; then it gets another loop, or is closed. */
static void leave_and_talk(town *self, const backend *io, gate *steps, bool is_last)
{
    enum { LENGTH = 5000 };
    caller by;
    last_calls seen = { .event_on = NULL };
    weir_group *first = loops_of(io, 1), *second = loops_of(io, 1);
    if (steps != NULL) {
        close_gate(steps);
        WAIT_FOR(waiting_in(steps->group) == 0);
    }
    int before = atomic_load(&self->accepted_count);
    weir_channel *channel = town_call(self, &by);
    WAIT_FOR(atomic_load(&self->accepted_count) > before);
    weir_channel *accepted = weir_channel_retain(atomic_load(&self->accepted));
    assert_int_equal(weir_pipeline_add_last(weir_channel_pipeline(accepted), "last_calls",
                                            &last_calls_type, &seen),
                     0);
    weir_promise *moved = new_promise(), *left = new_promise(), *back = new_promise();
    if (steps != NULL) { /* behind the first of two steps */
        WAIT_FOR(waiting_in(steps->group) == 1);
        close_gate(steps);
        open_gate(steps);
        WAIT_FOR(waiting_in(steps->group) == 1);
    } else {
        WAIT_FOR(atomic_load(&asked) != NULL);
    }
    weir_channel_move(accepted, weir_group_at(first, 0), moved);
    arrive(moved);
    weir_channel_deregister(accepted, left);
    arrive(left);
    end_group(first);
    if (steps != NULL) {
        open_gate(steps);
        await_executor(steps);
    } else {
        choose_now(self->contexts[0]);
    }
    if (is_last) {
        weir_channel_close(accepted, back);
        arrive(back);
        assert_null(atomic_load(&seen.event_on));
    } else {
        weir_channel_register(accepted, weir_group_at(second, 0), back);
        arrive(back);
        town_say(channel, LENGTH);
        WAIT_FOR(atomic_load(&by.heard) >= LENGTH || atomic_load(&by.errors) > 0);
        assert_int_equal(atomic_load(&by.last_error), 0);
        assert_ptr_equal(atomic_load(&seen.event_on), weir_group_at(second, 0));
    }
    town_hang_up(channel);
    weir_channel_release(accepted);
    WAIT_FOR(atomic_load(&by.inactives) == 1);
    end_group(second);
}

static void a_handshake_ends_on_the_next_loop_when_its_loop_has_terminated(void **state)
{
    for (int i = 0; i < 20; i++) {
        gate steps;
        town self = { .tls = { 0 } };
        gate_begin(&steps);
        town_open_filled(&self, *state, ON_LOOP, "127.0.0.1:0");
        self.tls.handshake_group = steps.group;
        leave_and_talk(&self, *state, &steps, i % 4 == 3);
        town_close(&self);
        gate_end(&steps);
    }
}

static void an_answer_waits_for_the_next_loop_when_its_loop_has_terminated(void **state)
{
    weir_tls_sni sni = { .choose = choose };
    town self = { .sni = &sni };
    town_open_filled(&self, *state, ON_LOOP, "127.0.0.1:0");
    for (int i = 0; i < 20; i++)
        leave_and_talk(&self, *state, NULL, i % 4 == 3);
    town_close(&self);
}

/* Executors that take no step: the loop computes it itself, rather late than never. */
static void without_its_group_a_handshake_is_computed_on_the_loop(void **state)
{
    for (int have_ended = 0; have_ended < 2; have_ended++) {
        town self = { .tls = { 0 } };
        weir_group_config config = { .count = 2 };
        config.start = have_ended ? NULL : refuse_to_start;
        harness_log_begin(WEIR_LOG_WARN);
        town_open_filled(&self, *state, HANDSHAKE_ELSEWHERE, "127.0.0.1:0");
        end_group(self.others);
        assert_int_equal(weir_group_new_executors(&self.others, &config, NULL), 0);
        self.tls.handshake_group = self.others;
        if (have_ended) {
            weir_group_shutdown(self.others, 0, 0);
            weir_future_await(weir_group_terminated(self.others));
        }
        town_echo(&self);
        assert_int_equal(atomic_load(&self.errors), 0);
        town_close(&self);
        harness_log_end();
    }
}

/* The executor learns of nothing that came before, so that the thread sanitizer sees whether the
 * step itself does. */
static atomic_bool may_compute;

static int spin(void *arg)
{
    (void)arg;
    WAIT_FOR(atomic_load_explicit(&may_compute, memory_order_relaxed));
    return 0;
}

static void a_step_outlives_its_channel_and_loops(void **state)
{
    enum { CLIENTS = 4 };
    gate steps;
    caller by[CLIENTS];
    weir_channel *channels[CLIENTS];
    town self = { .tls = { 0 } };
    gate_begin(&steps);
    atomic_store(&may_compute, false);
    assert_int_equal(weir_executor_execute(weir_group_at(steps.group, 0), spin, NULL), 0);
    WAIT_FOR(waiting_in(steps.group) == 0);
    town_open_filled(&self, *state, ON_LOOP, "127.0.0.1:0");
    self.tls.handshake_group = steps.group;
    for (int i = 0; i < CLIENTS; i++)
        channels[i] = town_call(&self, &by[i]);
    WAIT_FOR(waiting_in(steps.group) == CLIENTS);
    for (int i = 0; i < CLIENTS; i++)
        weir_channel_release(channels[i]);
    town_close(&self);
    atomic_store_explicit(&may_compute, true, memory_order_relaxed);
    WAIT_FOR(waiting_in(steps.group) == 0);
    gate_end(&steps);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        server_case(an_answer_finds_the_channel_wherever_it_is, 0), /* loops for many channels */
        server_case(an_answer_finds_the_channel_wherever_it_is, 2),
        server_case(a_handshake_ends_on_the_next_loop_when_its_loop_has_terminated, 0),
        server_case(a_handshake_ends_on_the_next_loop_when_its_loop_has_terminated, 2),
        server_case(an_answer_waits_for_the_next_loop_when_its_loop_has_terminated, 0),
        server_case(an_answer_waits_for_the_next_loop_when_its_loop_has_terminated, 2),
        server_case(without_its_group_a_handshake_is_computed_on_the_loop, 0),
        server_case(without_its_group_a_handshake_is_computed_on_the_loop, 2),
        server_case(a_step_outlives_its_channel_and_loops, 0),
        server_case(a_step_outlives_its_channel_and_loops, 2),
        server_case(a_refused_move_during_a_handshake_closes_on_its_own_loop, 0),
        server_case(a_refused_move_during_a_handshake_closes_on_its_own_loop, 2),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
