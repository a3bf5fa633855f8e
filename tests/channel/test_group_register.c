/* SPDX-License-Identifier: MIT */
/* Channels that are registered with a group: one loop for each of them, or the next. */
#include "channel/stub.h"

#include "exec/per_channel.h"
#include "living.h"
#include "loop/loop.h"

#include <sched.h>

static weir_group *open_blocking(int max_channels)
{
    weir_group_config config = { .io = WEIR_IO_BLOCKING, .max_channels = max_channels };
    config.watchdog_ns = WEIR_OFF; /* it would be one more thread */
    return open_group(&config);
}

static size_t active_of(weir_group *group)
{
    size_t active, idle;
    weir_group_get_channels(group, &active, &idle);
    return active;
}

static size_t idle_of(weir_group *group)
{
    size_t active, idle;
    weir_group_get_channels(group, &active, &idle);
    return idle;
}

/* When what is under way is over. */
static void expect_use(weir_group *group, size_t active, size_t idle)
{
    WAIT_FOR(active_of(group) == active && idle_of(group) == idle);
}

static void listen_and_register(weir_group *group, weir_channel *channel, ear *at, story *to)
{
    weir_promise *promise = ear_promise(at, to, "register", channel);
    weir_group_register(group, channel, promise);
    weir_promise_release(promise);
}

/* Registers, and waits for how it went. */
static int register_and_wait(weir_group *group, weir_channel *channel)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_group_register(group, channel, promise);
    int code = weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

static stub *open_in(weir_group *group)
{
    stub *self = new_stub(NULL, NULL);
    assert_int_equal(register_and_wait(group, &self->base), 0);
    return self;
}

static void close_and_forget(stub *self)
{
    weir_channel_close(&self->base, NULL);
    weir_channel_release(&self->base);
}

/* One loop for each ---------------------------------------------------------------------------- */

static void s134_each_channel_has_a_loop_of_its_own(void **state)
{
    (void)state;
    size_t threads = count_threads();
    weir_group *group = open_blocking(0);
    stub *all[3];
    for (size_t i = 0; i < 3; i++) {
        all[i] = open_in(group);
        assert_ptr_equal(executor_of(&all[i]->base), weir_group_at(group, i));
    }
    assert_int_equal(count_threads(), threads + 3);
    expect_use(group, 3, 0);
    weir_executor *free_one = executor_of(&all[1]->base);
    close_and_forget(all[1]);
    expect_use(group, 2, 1);
    all[1] = open_in(group);
    assert_ptr_equal(executor_of(&all[1]->base), free_one);
    assert_int_equal(weir_group_count(group), 3);
    assert_int_equal(count_threads(), threads + 3);
    for (size_t i = 0; i < 3; i++)
        close_and_forget(all[i]);
    expect_use(group, 0, 3);
    end_group(group);
}

static void s123_the_order_is_that_of_any_registration(void **state)
{
    (void)state;
    story to = STORY;
    ear registered;
    weir_group *group = open_blocking(0);
    stub *one = new_stub(&to, NULL);
    listen_and_register(group, &one->base, &registered, &to);
    WAIT_FOR(story_has(&to, "active"));
    story_is(&to, "added register=ok registered active");
    assert_ptr_equal(registered.executor, weir_group_at(group, 0));
    close_and_forget(one);
    expect_use(group, 0, 1);
    end_group(group);
}

static void s135_too_many_channels(void **state)
{
    (void)state;
    story to = STORY;
    ear registered, closed;
    _Atomic(bool) is_freed = false;
    weir_group *group = open_blocking(2);
    stub *first = open_in(group), *second = open_in(group), *third = new_stub(&to, &is_freed);
    ear_listen(&closed, &to, "closed", weir_channel_closed(&third->base));
    harness_log_begin(WEIR_LOG_WARN);
    listen_and_register(group, &third->base, &registered, &to);
    assert_true(harness_log_has("closed by force"));
    assert_true(harness_log_has("too many channels"));
    assert_int_equal(harness_log_end(), 1);
    assert_int_equal(registered.code, WEIR_ELIMIT);
    assert_int_equal(registered.told, 1);
    assert_true(story_has(&to, "closed=ok"));
    assert_false(story_has(&to, "added"));
    assert_int_equal(weir_channel_get_state(&third->base), WEIR_CHANNEL_UNREGISTERED);
    weir_channel_release(&third->base);
    assert_true(is_freed);
    assert_int_equal(weir_group_count(group), 2);
    close_and_forget(second);
    expect_use(group, 1, 1);
    second = open_in(group);
    close_and_forget(first);
    close_and_forget(second);
    expect_use(group, 0, 2);
    end_group(group);
}

/* Without a promise the log is all there is. */
static void a_channel_that_nobody_asks_about_is_closed_too(void **state)
{
    (void)state;
    weir_group *group = open_blocking(1);
    stub *first = open_in(group), *second = new_stub(NULL, NULL);
    weir_channel_write(&second->base, text_msg("waits for a loop"), NULL);
    harness_log_begin(WEIR_LOG_WARN);
    weir_group_register(group, &second->base, NULL);
    assert_true(harness_log_has("too many channels"));
    harness_log_end();
    assert_int_equal(weir_channel_get_state(&second->base), WEIR_CHANNEL_UNREGISTERED);
    weir_channel_release(&second->base);
    close_and_forget(first);
    expect_use(group, 0, 1);
    end_group(group);
}

static int deregister_code(weir_channel *channel)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_deregister(channel, promise);
    int code = weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

static void s136_a_deregistered_channel_leaves_its_loop_to_others(void **state)
{
    (void)state;
    weir_group *group = open_blocking(1);
    stub *first = open_in(group);
    assert_int_equal(deregister_code(&first->base), 0);
    expect_use(group, 0, 1);
    stub *second = open_in(group);
    assert_ptr_equal(executor_of(&second->base), weir_group_at(group, 0));
    close_and_forget(second);
    expect_use(group, 0, 1);
    /* It comes back, asked from a thread that is not its. */
    assert_int_equal(register_and_wait(group, &first->base), 0);
    expect_use(group, 1, 0);
    close_and_forget(first);
    expect_use(group, 0, 1);
    end_group(group);
}

static void s137_a_group_that_is_shutting_down(void **state)
{
    (void)state;
    for (int has_loops = 0; has_loops < 2; has_loops++) {
        story to = STORY;
        ear registered, closed;
        weir_group *group = open_blocking(0);
        if (has_loops) {
            close_and_forget(open_in(group));
            expect_use(group, 0, 1);
        }
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
        stub *late = new_stub(&to, NULL);
        ear_listen(&closed, &to, "closed", weir_channel_closed(&late->base));
        harness_log_begin(WEIR_LOG_WARN);
        listen_and_register(group, &late->base, &registered, &to);
        assert_true(harness_log_has("closed by force"));
        assert_true(harness_log_has("shutting down"));
        assert_int_equal(harness_log_end(), 1);
        assert_true(story_has(&to, "register=WEIR_ESHUTDOWN"));
        assert_true(story_has(&to, "closed=ok"));
        weir_channel_release(&late->base);
        weir_group_free(group);
    }
}

/* The loop ends with its channel on it. */
static void s137_a_shutdown_closes_the_channels(void **state)
{
    (void)state;
    weir_group *group = open_blocking(0);
    stub *one = open_in(group);
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_SECONDS(10)), 0);
    assert_int_equal(weir_future_await(weir_channel_closed(&one->base)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    assert_int_equal(active_of(group) + idle_of(group), 0);
    weir_channel_release(&one->base);
    weir_group_free(group);
}

/* Other groups --------------------------------------------------------------------------------- */

static void s024_with_other_groups_it_is_the_next_loop(void **state)
{
    (void)state;
    weir_group *group = open_group(&(weir_group_config){ .loops = 3 });
    stub *all[6];
    for (size_t i = 0; i < 6; i++) {
        all[i] = open_in(group);
        assert_ptr_equal(executor_of(&all[i]->base), weir_group_at(group, i % 3));
    }
    for (size_t i = 0; i < 6; i++)
        close_and_forget(all[i]);
    end_group(group);
}

static void a_group_of_plain_executors_has_no_loop(void **state)
{
    (void)state;
    weir_group *group = NULL;
    assert_int_equal(weir_group_new_executors(&group, &(weir_group_config){ .count = 1 }, NULL), 0);
    stub *one = new_stub(NULL, NULL);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(register_and_wait(group, &one->base), WEIR_ELOOPTYPE);
    assert_true(harness_log_has("incompatible event loop type"));
    harness_log_end();
    assert_int_equal(weir_channel_get_state(&one->base), WEIR_CHANNEL_OPEN);
    weir_channel_close(&one->base, NULL);
    weir_channel_release(&one->base);
    end_group(group);
}

static void nothing_is_no_group_and_no_channel(void **state)
{
    (void)state;
    weir_group *group = open_blocking(0);
    stub *one = new_stub(NULL, NULL);
    assert_int_equal(register_and_wait(group, NULL), -EINVAL);
    assert_int_equal(register_and_wait(NULL, &one->base), -EINVAL);
    weir_group_register(NULL, NULL, NULL);
    assert_int_equal(weir_group_count(group), 0);
    weir_channel_close(&one->base, NULL);
    weir_channel_release(&one->base);
    end_group(group);
}

/* Handlers need a group whose executors are for everybody. */
static void a_handler_cannot_run_in_such_a_group(void **state)
{
    (void)state;
    weir_group *group = open_blocking(0);
    stub *one = new_stub(NULL, NULL);
    weir_handler_config config = { .type = &recorder, .group = group };
    assert_int_equal(weir_pipeline_add(&one->base.pipeline, &config, NULL), -EINVAL);
    weir_channel_close(&one->base, NULL);
    weir_channel_release(&one->base);
    weir_embedded *none = NULL;
    weir_error error;
    assert_int_equal(weir_embedded_new(&none, &(weir_embedded_config){ .group = group }, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "group"));
    end_group(group);
}

/* Places that nobody comes to ------------------------------------------------------------------ */

static void registering_twice_takes_one_place(void **state)
{
    (void)state;
    weir_group *group = open_blocking(0);
    stub *one = open_in(group);
    assert_int_equal(register_and_wait(group, &one->base), WEIR_EREGISTERED);
    weir_promise *first = weir_promise_new(NULL), *second = weir_promise_new(NULL);
    stub *two = new_stub(NULL, NULL);
    weir_group_register(group, &two->base, first);
    weir_group_register(group, &two->base, second); /* while the other is under way */
    assert_int_equal(weir_future_await(weir_promise_future(first)), 0);
    assert_int_equal(weir_future_await(weir_promise_future(second)), WEIR_EREGISTERED);
    weir_promise_release(first);
    weir_promise_release(second);
    expect_use(group, 2, 0);
    assert_int_equal(weir_group_count(group), 2);
    close_and_forget(one);
    close_and_forget(two);
    expect_use(group, 0, 2);
    end_group(group);
}

static void a_closed_channel_takes_none(void **state)
{
    (void)state;
    weir_group *group = open_blocking(0);
    stub *one = new_stub(NULL, NULL);
    weir_channel_close(&one->base, NULL);
    assert_int_equal(register_and_wait(group, &one->base), WEIR_ECLOSED);
    assert_int_equal(weir_group_count(group), 0);
    weir_channel_release(&one->base);
    end_group(group);
}

/* It was on the loop before, which is another's now; where it goes next does not take it. */
static void a_place_that_was_left_is_not_given_back_again(void **state)
{
    (void)state;
    weir_group *group = open_blocking(1), *ended = ended_group(false);
    weir_executor *taken = NULL;
    stub *one = open_in(group);
    assert_int_equal(deregister_code(&one->base), 0);
    expect_use(group, 0, 1);
    assert_int_equal(weir__group_take(group, &taken), 0);
    weir_promise *promise = weir_promise_new(NULL);
    harness_log_begin(WEIR_LOG_WARN);
    weir_channel_register(&one->base, weir_group_at(ended, 0), promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), WEIR_ESHUTDOWN);
    harness_log_end();
    weir_promise_release(promise);
    expect_use(group, 1, 0);
    weir__group_give_back(group, taken);
    weir_channel_release(&one->base);
    weir_group_free(ended);
    end_group(group);
}

/* The loop has no thread, because there is no eventfd, or no thread. */
static void a_loop_that_does_not_start_gives_the_place_back(void **state)
{
    (void)state;
    const char *calls[] = { "eventfd", "pthread_create" };
    weir_group *group = open_blocking(1);
    for (size_t i = 0; i < 2; i++) {
        stub *one = new_stub(NULL, NULL);
        harness_log_begin(WEIR_LOG_WARN);
        harness_fail_nth(calls[i], 1, -EMFILE);
        assert_true(register_and_wait(group, &one->base) < 0);
        harness_fail_end();
        assert_true(harness_log_has("closed by force"));
        harness_log_end();
        assert_int_equal(weir_channel_get_state(&one->base), WEIR_CHANNEL_UNREGISTERED);
        weir_channel_release(&one->base);
        expect_use(group, 0, 1);
    }
    close_and_forget(open_in(group));
    expect_use(group, 0, 1);
    end_group(group);
}

/* A transport that does not want to be attached: the loop has seen it come, and go. */
static int refuse_to_attach(weir_channel *channel)
{
    (void)channel;
    return -EBUSY;
}

static void a_transport_that_refuses_gives_the_place_back(void **state)
{
    (void)state;
    weir_transport picky = stub_transport;
    picky.attach = refuse_to_attach;
    weir_group *group = open_blocking(1);
    harness_log_begin(WEIR_LOG_WARN);
    for (int i = 0; i < 3; i++) {
        stub *one = new_stub(NULL, NULL);
        one->base.transport = &picky;
        assert_int_equal(register_and_wait(group, &one->base), -EBUSY);
        expect_use(group, 0, 1);
        weir_channel_release(&one->base);
    }
    assert_int_equal(harness_log_end(), 3);
    close_and_forget(open_in(group));
    expect_use(group, 0, 1);
    end_group(group);
}

/* On its way from loop to loop ----------------------------------------------------------------- */

/* In a callback of its the channel leaves, and asks for another loop: that has to wait until the
 * callback is over, with a place kept for it. */
typedef struct traveller {
    weir_group *to;
    story story;
    weir_promise *promise;
    ear registered;
    bool closes, has_left;
    unsigned failing; /* which allocation; 0: none */
    size_t active;    /* while it is on its way */
} traveller;

static void travel(weir_ctx *ctx)
{
    traveller *self = weir_ctx_arg(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    if (self->has_left)
        return;
    self->has_left = true;
    weir_channel_deregister(channel, NULL);
    if (self->failing > 0)
        harness_fail_nth("alloc", self->failing, -ENOMEM);
    weir_group_register(self->to, channel, self->promise);
    harness_fail_end();
    self->active = active_of(self->to);
    if (self->closes)
        weir_channel_close(channel, NULL);
}

static const weir_handler_type travels = { .name = "travels", .on_active = travel };

static stub *send_travelling(traveller *self, weir_group *from)
{
    stub *one = new_stub(NULL, NULL);
    self->promise = ear_promise(&self->registered, &self->story, "register", &one->base);
    assert_int_equal(weir_pipeline_add_last(&one->base.pipeline, "travels", &travels, self), 0);
    assert_int_equal(register_and_wait(from, &one->base), 0);
    WAIT_FOR(self->registered.told == 1);
    weir_promise_release(self->promise);
    return one;
}

static void it_goes_from_an_epoll_loop_to_one_of_its_own(void **state)
{
    (void)state;
    for (int closes = 0; closes < 2; closes++) {
        weir_group *from = open_group(&(weir_group_config){ .loops = 1 });
        traveller self = { .to = open_blocking(1), .story = STORY, .closes = closes };
        stub *one = send_travelling(&self, from);
        assert_int_equal(self.active, 1);
        assert_int_equal(self.registered.code, closes ? WEIR_ECLOSED : 0);
        if (closes)
            expect_use(self.to, 0, 1);
        else
            assert_ptr_equal(executor_of(&one->base), weir_group_at(self.to, 0));
        close_and_forget(one);
        expect_use(self.to, 0, 1);
        end_group(from);
        end_group(self.to);
    }
}

static void registering_while_it_leaves_needs_no_memory(void **state)
{
    (void)state;
    weir_group *from = open_group(&(weir_group_config){ .loops = 1 });
    traveller self = { .to = open_blocking(1), .story = STORY, .failing = 1 };
    close_and_forget(open_in(self.to)); /* so that there is a loop */
    expect_use(self.to, 0, 1);
    stub *one = send_travelling(&self, from);
    assert_int_equal(self.registered.code, 0);
    expect_use(self.to, 1, 0);
    close_and_forget(one);
    expect_use(self.to, 0, 1);
    end_group(from);
    end_group(self.to);
}

/* Many at once --------------------------------------------------------------------------------- */

enum { THREADS = 6, ROUNDS = 40 };

typedef struct crowd {
    weir_group *group;
    _Atomic(int) accepted;
} crowd;

static void *register_often(void *arg)
{
    crowd *self = arg;
    for (int i = 0; i < ROUNDS; i++) {
        stub *one = new_stub(NULL, NULL);
        if (i % 4 == 0) { /* closes it while it may be on its way */
            weir_group_register(self->group, &one->base, NULL);
            close_and_forget(one);
            continue;
        }
        int code = register_and_wait(self->group, &one->base);
        assert_true(code == 0 || code == WEIR_ELIMIT);
        atomic_fetch_add(&self->accepted, code == 0);
        if (code == 0 && i % 4 == 1)
            assert_int_equal(deregister_code(&one->base), 0);
        close_and_forget(one);
    }
    return NULL;
}

static void channels_come_and_go_from_many_threads(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_WARN);
    for (int most = 0; most <= 3; most += 3) {
        crowd all = { .group = open_blocking(most) };
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, register_often, &all), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        expect_use(all.group, 0, weir_group_count(all.group));
        if (most == 0)
            assert_int_equal(atomic_load(&all.accepted), THREADS * ROUNDS * 3 / 4);
        else
            assert_true(weir_group_count(all.group) <= 3);
        end_group(all.group);
    }
    harness_log_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s134_each_channel_has_a_loop_of_its_own),
        weir_case(s123_the_order_is_that_of_any_registration),
        weir_case(s135_too_many_channels),
        weir_case(a_channel_that_nobody_asks_about_is_closed_too),
        weir_case(s136_a_deregistered_channel_leaves_its_loop_to_others),
        weir_case(s137_a_group_that_is_shutting_down),
        weir_case(s137_a_shutdown_closes_the_channels),
        weir_case(s024_with_other_groups_it_is_the_next_loop),
        weir_case(a_group_of_plain_executors_has_no_loop),
        weir_case(nothing_is_no_group_and_no_channel),
        weir_case(a_handler_cannot_run_in_such_a_group),
        weir_case(registering_twice_takes_one_place),
        weir_case(a_closed_channel_takes_none),
        weir_case(a_place_that_was_left_is_not_given_back_again),
        weir_case(a_loop_that_does_not_start_gives_the_place_back),
        weir_case(a_transport_that_refuses_gives_the_place_back),
        weir_case(it_goes_from_an_epoll_loop_to_one_of_its_own),
        weir_case(registering_while_it_leaves_needs_no_memory),
        weir_case(channels_come_and_go_from_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
