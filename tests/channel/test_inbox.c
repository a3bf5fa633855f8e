/* SPDX-License-Identifier: MIT */
/* The inbox of a channel: calls of other threads that there is no memory for. */
#include "harness.h"

#include "exec/executors.h"

#include <weir/buf.h>
#include <weir/embedded.h>

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* Blocks the loop in the middle of a call of the inbox, so that the next calls are pushed before
 * the loop has finished with those it has taken. */
typedef struct gate {
    weir_group *group;
    weir_embedded *embedded;
    weir_channel *channel;
    atomic_bool is_reached, is_open;
} gate;

static void gate_on_event(weir_ctx *ctx, weir_msg *event)
{
    gate *self = weir_ctx_arg(ctx);
    atomic_store(&self->is_reached, true);
    WAIT_FOR(atomic_load(&self->is_open));
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type gate_type = { .name = "gate", .on_event = gate_on_event };

static int init_gate(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "gate", &gate_type, arg);
}

static weir_msg *text(const char *word)
{
    weir_buf *buf = weir_buf_from(word, strlen(word));
    assert_non_null(buf);
    return weir_buf_msg(buf);
}

static void open_blocked_gate(gate *self)
{
    weir_group_config loops = { .loops = 1, .watchdog_ns = WEIR_OFF };
    assert_int_equal(weir_group_new(&self->group, &loops, NULL), 0);
    weir_embedded_config config = { .group = self->group, .init = init_gate, .arg = self };
    assert_int_equal(weir_embedded_new(&self->embedded, &config, NULL), 0);
    self->channel = weir_embedded_channel(self->embedded);
    weir_pipeline_fire_event(weir_channel_pipeline(self->channel), text("block"));
    WAIT_FOR(atomic_load(&self->is_reached));
    harness_log_begin(WEIR_LOG_WARN);
    weir_channel_write(self->channel, text("first"), NULL);
    harness_fail_nth("alloc", 1, -ENOMEM);
    weir_channel_flush(self->channel);
    assert_int_equal(harness_fail_end(), 1);
}

/* The loop goes on, and has performed all calls when this returns. */
static void unblock_gate(gate *self)
{
    atomic_store(&self->is_open, true);
    for (int i = 0; i < 4; i++)
        settle(weir_group_at(self->group, 0));
    assert_true(harness_log_has("an event was lost"));
    harness_log_end();
}

static void end_gate(gate *self)
{
    weir_embedded_free(self->embedded);
    end_group(self->group);
}

static void expect_sent(gate *self, const char *word)
{
    weir_msg *sent = weir_embedded_read_outbound(self->embedded);
    assert_non_null(sent);
    const weir_buf *buf = weir_buf_from_msg(sent);
    assert_int_equal(weir_buf_readable(buf), strlen(word));
    weir_msg_release(sent);
}

static void flush_without_memory_sends_the_write_before_it(void **state)
{
    (void)state;
    gate self = { 0 };
    open_blocked_gate(&self);
    unblock_gate(&self);
    expect_sent(&self, "first");
    end_gate(&self);
}

/* A close attempts to send what was flushed, so the flush comes before it. */
static void close_without_memory_follows_the_flush_before_it(void **state)
{
    (void)state;
    gate self = { 0 };
    open_blocked_gate(&self);
    harness_fail_nth("alloc", 1, -ENOMEM);
    weir_channel_close(self.channel, NULL);
    assert_int_equal(harness_fail_end(), 1);
    unblock_gate(&self);
    expect_sent(&self, "first");
    assert_false(weir_channel_is_open(self.channel));
    end_gate(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(flush_without_memory_sends_the_write_before_it),
        weir_case(close_without_memory_follows_the_flush_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
