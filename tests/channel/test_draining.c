/* SPDX-License-Identifier: MIT */
/* Draining channels: the event that asks handlers to finish. */
#include "channel/stub.h"

#include <errno.h>
#include <stdatomic.h>

typedef struct counts {
    atomic_int drains;
    bool closes;
} counts;

static void count_on_event(weir_ctx *ctx, weir_msg *event)
{
    counts *self = weir_ctx_arg(ctx);
    if (event == &weir_event_draining) {
        atomic_fetch_add(&self->drains, 1);
        assert_true(weir_channel_is_draining(weir_ctx_channel(ctx)));
        if (self->closes)
            weir_ctx_close(ctx, NULL);
    }
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type counter_type = { .name = "counter", .on_event = count_on_event };

static int init_counter(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "counter", &counter_type, arg);
}

static weir_embedded *open_counting(counts *self)
{
    weir_embedded *embedded = NULL;
    weir_embedded_config config = { .init = init_counter, .arg = self };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void draining_fires_one_event(void **state)
{
    (void)state;
    counts self = { 0 };
    weir_embedded *embedded = open_counting(&self);
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_false(weir_channel_is_draining(channel));
    for (int i = 0; i < 3; i++) {
        weir_channel_drain(channel);
        assert_true(weir_channel_is_draining(channel));
        weir_embedded_run(embedded);
        assert_int_equal(atomic_load(&self.drains), 1);
    }
    assert_true(weir_channel_is_open(channel)); /* the handlers decide */
    weir_embedded_free(embedded);
}

static void handler_may_close_when_draining(void **state)
{
    (void)state;
    counts self = { .closes = true };
    weir_embedded *embedded = open_counting(&self);
    weir_channel_drain(weir_embedded_channel(embedded));
    weir_embedded_run(embedded);
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    weir_channel_drain(weir_embedded_channel(embedded));
    weir_embedded_run(embedded);
    assert_int_equal(atomic_load(&self.drains), 1);
    weir_embedded_free(embedded);
}

static void closed_channel_fires_no_draining_event(void **state)
{
    (void)state;
    counts self = { 0 };
    weir_embedded *embedded = open_counting(&self);
    weir_channel_close(weir_embedded_channel(embedded), NULL);
    weir_channel_drain(weir_embedded_channel(embedded));
    weir_embedded_run(embedded);
    weir_channel_drain(weir_embedded_channel(embedded));
    weir_embedded_run(embedded);
    assert_int_equal(atomic_load(&self.drains), 0);
    weir_embedded_free(embedded);
    weir_channel_drain(NULL);
    assert_false(weir_channel_is_draining(NULL));
}

static void draining_needs_no_memory(void **state)
{
    (void)state;
    counts self = { 0 };
    weir_embedded *embedded = open_counting(&self);
    harness_fail_nth("alloc", 1, -ENOMEM);
    weir_channel_drain(weir_embedded_channel(embedded));
    assert_int_equal(harness_fail_end(), 0);
    weir_embedded_run(embedded);
    assert_int_equal(atomic_load(&self.drains), 1);
    weir_embedded_free(embedded);
}

static void draining_before_registration_fires_after_it(void **state)
{
    (void)state;
    counts self = { 0 };
    weir_group *group = open_group(&(weir_group_config){ .loops = 1, .watchdog_ns = WEIR_OFF });
    stub *channel = new_stub(NULL, NULL);
    assert_int_equal(init_counter(&channel->base, &self), 0);
    weir_channel_drain(&channel->base);
    assert_int_equal(atomic_load(&self.drains), 0);
    weir_channel_register(&channel->base, weir_group_at(group, 0), NULL);
    WAIT_FOR(atomic_load(&self.drains) == 1);
    weir_channel_close(&channel->base, NULL);
    weir_channel_release(&channel->base);
    end_group(group);
}

static void *drain_often(void *arg)
{
    for (int i = 0; i < 10; i++)
        weir_channel_drain(arg);
    return NULL;
}

static void draining_on_many_threads_fires_one_event(void **state)
{
    (void)state;
    weir_group *group = open_group(&(weir_group_config){ .loops = 1, .watchdog_ns = WEIR_OFF });
    for (int round = 0; round < 20; round++) {
        counts self = { 0 };
        pthread_t threads[3];
        stub *channel = new_stub(NULL, NULL);
        assert_int_equal(init_counter(&channel->base, &self), 0);
        weir_channel_register(&channel->base, weir_group_at(group, 0), NULL);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, drain_often, &channel->base), 0);
        for (size_t i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        WAIT_FOR(atomic_load(&self.drains) == 1);
        weir_channel_close(&channel->base, NULL);
        weir_future_await(weir_channel_closed(&channel->base));
        assert_int_equal(atomic_load(&self.drains), 1);
        weir_channel_release(&channel->base);
    }
    end_group(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(draining_fires_one_event),
        weir_case(handler_may_close_when_draining),
        weir_case(closed_channel_fires_no_draining_event),
        weir_case(draining_needs_no_memory),
        weir_case(draining_before_registration_fires_after_it),
        weir_case(draining_on_many_threads_fires_one_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
