/* SPDX-License-Identifier: MIT */
/* Everything is allowed inside every callback: each act in each of them, and without memory. */
#include "spy.h"

static weir_hold hold;

/* The acts ---------------------------------------------------------------------------------------
 */

static void close_channel(weir_ctx *ctx)
{
    weir_channel_close(weir_ctx_channel(ctx), NULL);
}

static void close_ctx(weir_ctx *ctx)
{
    weir_ctx_close(ctx, NULL);
}

static void finish_channel(weir_ctx *ctx)
{
    weir_channel_finish(weir_ctx_channel(ctx), NULL);
}

static void shut_channel(weir_ctx *ctx)
{
    weir_channel_shutdown(weir_ctx_channel(ctx), NULL);
}

static void leave_loop(weir_ctx *ctx)
{
    weir_channel_deregister(weir_ctx_channel(ctx), NULL);
}

static void move_channel(weir_ctx *ctx)
{
    weir_channel_move(weir_ctx_channel(ctx), weir_executor_current(), NULL);
}

static void remove_self(weir_ctx *ctx)
{
    weir_ctx_remove(ctx);
}

static void remove_everybody(weir_ctx *ctx)
{
    weir_pipeline *pipeline = weir_ctx_pipeline(ctx);
    weir_handler_info info;
    while (weir_pipeline_at(pipeline, 0, &info) == 0)
        weir_pipeline_remove(pipeline, info.name, NULL);
}

static void replace_self(weir_ctx *ctx)
{
    weir_pipeline_replace(weir_ctx_pipeline(ctx), weir_ctx_name(ctx), "other", &spy, NULL);
}

static void write_and_flush(weir_ctx *ctx)
{
    weir_buf *buf = weir_buf_from("x", 1);
    if (buf != NULL)
        weir_channel_write_and_flush(weir_ctx_channel(ctx), &buf->msg, NULL);
}

static void fail_here(weir_ctx *ctx)
{
    weir_ctx_fail(ctx, -EIO, "on purpose");
}

static void stop_reading(weir_ctx *ctx)
{
    weir_channel_set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, 0, NULL);
}

static void (*const acts[])(weir_ctx *ctx) = {
    close_channel, close_ctx,        finish_channel, shut_channel,    leave_loop, move_channel,
    remove_self,   remove_everybody, replace_self,   write_and_flush, fail_here,  stop_reading,
};

static const char *const callbacks[] = {
    "added",       "removed",         "on_registered",  "on_active", "on_read", "on_read_complete",
    "on_event",    "on_error",        "on_writability", "bind",      "connect", "disconnect",
    "read",        "write",           "flush",          "shutdown",  "close",   "deregister",
    "on_inactive", "on_unregistered",
};

/* The scenario -----------------------------------------------------------------------------------
 */

static void push_bytes(weir_embedded *embedded, const char *bytes)
{
    for (; *bytes != '\0'; bytes++)
        weir_embedded_write_inbound_bytes(embedded, bytes, 1); /* one at a time */
}

/* Something of every kind of event; what disconnects a stream is one of the two ways to close it.
 */
static void run_everything(weir_embedded *embedded, bool disconnects)
{
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_address address;
    weir_address_parse(&address, "local:here", NULL);
    weir_channel_bind(channel, &address, NULL);
    weir_channel_connect(channel, &address, NULL, NULL);
    weir_embedded_run(embedded);
    push_bytes(embedded, "ab");
    weir_pipeline_fire_event(pipeline, &weir_event_input_closed);
    weir_pipeline_fire_error(pipeline, -EPROTO, "from outside");
    weir_channel_set_write_hold(channel, fresh_hold(&hold), true);
    weir_embedded_run(embedded);
    weir_channel_set_write_hold(channel, &hold, false);
    weir_buf *buf = weir_buf_from("yz", 2);
    if (buf != NULL)
        weir_embedded_write_outbound(embedded, &buf->msg);
    weir_channel_move(channel, weir_embedded_executor(embedded), NULL);
    weir_embedded_run(embedded);
    weir_channel_shutdown(channel, NULL);
    weir_embedded_run(embedded);
    if (disconnects)
        weir_channel_disconnect(channel, NULL);
    weir_embedded_advance(embedded, WEIR_SECONDS(10));
}

static int count(const char *word)
{
    int found = 0;
    for (const char *at = strstr(spy_trace, word); at != NULL; at = strstr(at + 1, word))
        found++;
    return found;
}

/* Whatever happened: who came has gone, and nobody was told of an end without a beginning. */
static void check_trace(void)
{
    assert_true(strlen(spy_trace) < sizeof spy_trace - 64);
    assert_int_equal(count(".added"), count(".removed"));
    /* Of one that was there from the beginning: who comes later hears only of the end. */
    assert_true(count("c.on_inactive") <= count("c.on_active"));
    assert_true(count("c.on_unregistered") <= count("c.on_registered"));
    spy_forget();
}

/* `act` in the callback `at` of the middle one of three handlers; whether it came to that. */
static bool try(void (*act)(weir_ctx *ctx), const char *at)
{
    spy_act what = { at, act, false, false };
    spy_entry entries[] = {
        { "a", &spy_all, NULL }, { "b", &spy_all, &what }, { "c", &spy_all, NULL }, { 0 }
    };
    weir_embedded *embedded = NULL;
    weir_embedded_config config = { .init = spy_init, .arg = entries, .is_unconnected = true };
    spy_forget();
    if (weir_embedded_new(&embedded, &config, NULL) == 0) {
        run_everything(embedded, strcmp(at, "disconnect") == 0);
        weir_embedded_close(embedded);
        assert_int_equal(weir_channel_get_state(weir_embedded_channel(embedded)),
                         WEIR_CHANNEL_UNREGISTERED);
        weir_embedded_free(embedded);
    }
    check_trace();
    return what.is_done;
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void everything_is_allowed_everywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(callbacks); i++) {
        for (size_t k = 0; k < COUNT(acts); k++) {
            if (!try(acts[k], callbacks[i]))
                fail_msg("%s was never called", callbacks[i]);
        }
    }
}

/* The same with every allocation failing in turn, for the acts that matter most. */
static void everywhere_also_without_memory(void **state)
{
    (void)state;
    void (*const some[])(weir_ctx * ctx) = { close_channel, move_channel, remove_everybody,
                                             fail_here };
    for (size_t i = 0; i < COUNT(callbacks); i++) {
        for (size_t k = 0; k < COUNT(some); k++) {
            unsigned nth = 0, calls;
            do {
                harness_fail_nth("alloc", ++nth, -ENOMEM);
                try(some[k], callbacks[i]);
                calls = harness_fail_end();
            } while (calls >= nth);
            assert_true(nth > 10);
        }
    }
}

/* Before it has a loop ------------------------------------------------------------------------- */

static int write_three(void *channel)
{
    weir_channel_write_and_flush(channel, spy_text("three"), NULL);
    return 0;
}

/* While "one" still waits for its turn; "three" comes when that has been, but not yet "two". */
static void write_two(weir_ctx *ctx)
{
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_channel_write_and_flush(channel, spy_text("two"), NULL);
    assert_int_equal(weir_executor_execute(weir_executor_current(), write_three, channel), 0);
}

static void early_calls_keep_their_order(void **state)
{
    (void)state;
    spy_act act = { "on_registered", write_two, false, false };
    spy_entry entries[] = { { "a", &spy, &act }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_channel_write_and_flush(weir_embedded_channel(embedded), spy_text("one"), NULL);
    weir_channel_register(weir_embedded_channel(embedded), weir_embedded_executor(embedded), NULL);
    weir_embedded_run(embedded);
    spy_expect_text(weir_embedded_read_outbound(embedded), "one");
    spy_expect_text(weir_embedded_read_outbound(embedded), "two");
    spy_expect_text(weir_embedded_read_outbound(embedded), "three");
    spy_end(embedded);
}

/* A flush that could not be kept must not take what was kept past the handlers. */
static void early_calls_wait_for_the_handlers_also_without_memory(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_channel_write(channel, spy_text("one"), NULL);
    harness_fail_nth("alloc", 1, -ENOMEM);
    weir_channel_flush(channel);
    assert_int_equal(harness_fail_end(), 1);
    assert_trace("");
    spy_register(embedded);
    assert_trace("a.added a.on_registered a.on_active a.write a.flush");
    spy_expect_text(weir_embedded_read_outbound(embedded), "one");
    spy_end(embedded);
}

static void early_write_that_is_lost_closes(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_channel_write(channel, spy_text("one"), NULL);
    weir_msg *two = spy_text("two");
    harness_fail_nth("alloc", 1, -ENOMEM);
    weir_channel_write(channel, two, NULL);
    assert_int_equal(harness_fail_end(), 1);
    assert_false(weir_channel_is_open(channel));
    assert_true(weir_future_is_done(weir_channel_closed(channel)));
    assert_trace("a.removed");
    weir_embedded_free(embedded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(everything_is_allowed_everywhere),
        weir_case(everywhere_also_without_memory),
        weir_case(early_calls_keep_their_order),
        weir_case(early_calls_wait_for_the_handlers_also_without_memory),
        weir_case(early_write_that_is_lost_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
