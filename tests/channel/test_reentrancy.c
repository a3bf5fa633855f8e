/* SPDX-License-Identifier: MIT */
/* What handlers may do inside their callbacks: come, go, fail, close and write in each of them. */
#include "spy.h"

static void remove_self(weir_ctx *ctx)
{
    assert_int_equal(weir_ctx_remove(ctx), 0);
    assert_true(weir_ctx_is_removed(ctx));
    assert_int_equal(weir_ctx_remove(ctx), WEIR_ENOTFOUND);
}

static void remove_b(weir_ctx *ctx)
{
    assert_int_equal(weir_pipeline_remove(weir_ctx_pipeline(ctx), "b", NULL), 0);
}

static void replace_b(weir_ctx *ctx)
{
    assert_int_equal(weir_pipeline_replace(weir_ctx_pipeline(ctx), "b", "new", &spy, NULL), 0);
}

static void fail_eperm(weir_ctx *ctx)
{
    weir_ctx_fail(ctx, -EPERM, "not allowed");
}

static void close_channel(weir_ctx *ctx)
{
    weir_channel_close(weir_ctx_channel(ctx), NULL);
}

static void close_ctx(weir_ctx *ctx)
{
    weir_ctx_close(ctx, NULL);
}

static void fire_event(weir_ctx *ctx)
{
    weir_pipeline_fire_event(weir_ctx_pipeline(ctx), spy_text("x"));
}

static void write_from_tail(weir_ctx *ctx)
{
    weir_channel_write_and_flush(weir_ctx_channel(ctx), spy_text("answer"), NULL);
}

static void flush_from_tail(weir_ctx *ctx)
{
    weir_channel_flush(weir_ctx_channel(ctx));
}

/* Hands a message in, and takes out what came through. */
static void read_one(weir_embedded *embedded)
{
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("x")), 0);
    spy_expect_text(weir_embedded_read_inbound(embedded), "x");
}

#define SPIES(act_a, act_b, act_c)                                                                 \
    {                                                                                              \
        { "a", &spy, act_a }, { "b", &spy, act_b }, { "c", &spy, act_c },                          \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Coming --------------------------------------------------------------------------------------- */

static void added_waits_for_registration(void **state)
{
    (void)state;
    spy_entry entries[] = SPIES(NULL, NULL, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_trace("");
    spy_register(embedded);
    assert_trace("a.added b.added c.added a.on_registered b.on_registered c.on_registered "
                 "a.on_active b.on_active c.on_active");
    weir_channel_deregister(channel, NULL);
    weir_embedded_run(embedded);
    spy_forget();
    spy_register(embedded);
    assert_trace("a.on_registered b.on_registered c.on_registered");
    spy_end(embedded);
}

static void no_event_comes_before_added(void **state)
{
    (void)state;
    spy_act act = { "added", fire_event, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    assert_trace("a.added b.added a.on_event c.added a.on_registered b.on_registered "
                 "c.on_registered a.on_active b.on_active c.on_active");
    spy_end(embedded);
}

/* And what `added` itself fires then waits behind it. */
static void event_before_registration_waits_for_the_handlers(void **state)
{
    (void)state;
    spy_act act = { "added", fire_event, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline_fire_event(weir_embedded_pipeline(embedded), spy_text("x"));
    weir_embedded_run(embedded);
    assert_trace("");
    spy_register(embedded);
    assert_trace("a.added b.added c.added a.on_registered b.on_registered c.on_registered "
                 "a.on_active b.on_active c.on_active a.on_event b.on_event c.on_event a.on_event "
                 "b.on_event c.on_event");
    spy_end(embedded);
}

static void fail_twice(weir_ctx *ctx)
{
    fail_eio(ctx);
    fail_eperm(ctx);
}

static void failing_added_closes_a_channel_that_relied_on_it(void **state)
{
    (void)state;
    spy_act act = { "added", fail_twice, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    assert_trace("a.added b.added b.removed a.on_error(EIO) c.added c.removed a.removed");
    spy_expect_error(embedded, -EIO, "b"); /* the first one counts */
    assert_int_equal(weir_embedded_check(embedded), 0);
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    spy_end(embedded);
}

static int add_failing(void *embedded)
{
    static spy_act act;
    act = (spy_act){ "added", fail_eio, false, false };
    return weir_pipeline_add_before(weir_embedded_pipeline(embedded), "b", "f", &spy, &act);
}

static void failing_added_returns_its_code_and_raises_it(void **state)
{
    (void)state;
    spy_entry entries[] = SPIES(NULL, NULL, NULL);
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(spy_call(embedded, add_failing), -EIO);
    assert_trace("f.added f.removed a.on_error(EIO) b.on_error(EIO) c.on_error(EIO)");
    spy_expect_error(embedded, -EIO, "f");
    /* Its name is free. */
    assert_int_equal(spy_call(embedded, add_failing), -EIO);
    spy_expect_error(embedded, -EIO, "f");
    spy_end(embedded);
}

static void add_neighbours(weir_ctx *ctx)
{
    weir_pipeline *pipeline = weir_ctx_pipeline(ctx);
    assert_int_equal(weir_pipeline_add_before(pipeline, "b", "b0", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_after(pipeline, "b", "b1", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "z", &spy, NULL), 0);
}

static void added_may_add(void **state)
{
    (void)state;
    spy_act act = { "added", add_neighbours, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    assert_trace("a.added b.added b0.added b1.added z.added c.added a.on_registered "
                 "b0.on_registered b.on_registered b1.on_registered c.on_registered "
                 "z.on_registered a.on_active b0.on_active b.on_active b1.on_active c.on_active "
                 "z.on_active");
    spy_end(embedded);
}

static void added_may_remove_itself(void **state)
{
    (void)state;
    spy_act act = { "added", remove_self, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    assert_trace("a.added b.added b.removed c.added a.on_registered c.on_registered a.on_active "
                 "c.on_active");
    spy_end(embedded);
}

static void remove_then_fail(weir_ctx *ctx)
{
    remove_self(ctx);
    fail_eio(ctx);
}

/* It is out already, so there is nothing left to take out, and the error goes on from its place. */
static void added_may_remove_itself_and_fail(void **state)
{
    (void)state;
    spy_act act = { "added", remove_then_fail, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    assert_trace("a.added b.added b.removed c.added a.on_registered c.on_registered a.on_active "
                 "c.on_active");
    spy_expect_error(embedded, -EIO, "b");
    spy_end(embedded);
}

static void added_may_remove_one_before_its_added(void **state)
{
    (void)state;
    spy_act act = { "added", remove_b, false, false };
    spy_entry entries[] = SPIES(&act, NULL, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    assert_trace("a.added b.removed c.added a.on_registered c.on_registered a.on_active "
                 "c.on_active");
    spy_end(embedded);
}

static void added_may_close(void **state)
{
    (void)state;
    spy_act act = { "added", close_channel, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    assert_trace("a.added b.added a.close c.added c.removed b.removed a.removed");
    assert_int_equal(weir_channel_get_state(weir_embedded_channel(embedded)),
                     WEIR_CHANNEL_UNREGISTERED);
    spy_end(embedded);
}

static void removed_runs_once_without_added(void **state)
{
    (void)state;
    spy_entry entries[] = SPIES(NULL, NULL, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_remove(pipeline, "a", NULL), 0);
    assert_int_equal(weir_pipeline_replace(pipeline, "b", "n", &spy, NULL), 0);
    assert_int_equal(weir_ctx_remove(weir_pipeline_ctx(pipeline, "c")), 0);
    spy_register(embedded);
    assert_trace("a.removed b.removed c.removed n.added n.on_registered n.on_active");
    spy_end(embedded);
    /* And with the channel, when that never got to a loop. */
    embedded = spy_open_unregistered(entries);
    weir_embedded_free(embedded);
    assert_trace("c.removed b.removed a.removed");
}

/* Errors --------------------------------------------------------------------------------------- */

static void failing_is_told_to_itself_first(void **state)
{
    (void)state;
    spy_act act = { "on_read", fail_eio, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_error error;
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("x")), -EIO);
    assert_trace("a.on_read b.on_read b.on_error(EIO) c.on_error(EIO) c.on_read "
                 "a.on_read_complete b.on_read_complete c.on_read_complete");
    assert_true(weir_embedded_take_error(embedded, &error));
    assert_string_equal(error.origin, "b");
    assert_string_equal(error.message, "input or output 5");
    weir_msg_release(weir_embedded_read_inbound(embedded));
    spy_end(embedded);
}

static void handler_that_takes_an_error_ends_it(void **state)
{
    (void)state;
    spy_act fails = { "write", fail_eio, false, false };
    spy_act takes = { "on_error", write_from_tail, true, false };
    spy_entry entries[] = SPIES(&fails, &takes, NULL);
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_outbound(embedded, spy_text("x")), 0);
    assert_trace("c.write b.write a.write a.on_error(EIO) b.on_error(EIO) "
                 "c.write b.write a.write c.flush b.flush a.flush c.flush b.flush a.flush");
    spy_expect_text(weir_embedded_read_outbound(embedded), "answer");
    spy_expect_text(weir_embedded_read_outbound(embedded), "x");
    spy_end(embedded);
}

static void error_inside_on_error_goes_on_behind(void **state)
{
    (void)state;
    spy_act act = { "on_error", fail_eperm, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    weir_pipeline_fire_error(weir_embedded_pipeline(embedded), -EIO, "outside");
    weir_embedded_run(embedded);
    assert_trace("a.on_error(EIO) b.on_error(EIO) c.on_error(EPERM) c.on_error(EIO)");
    spy_expect_error(embedded, -EPERM, "b");
    spy_expect_error(embedded, -EIO, "pipeline");
    spy_end(embedded);
}

/* Of the last handler: it ends at the tail, and the next error finds the handler as before. */
static void error_inside_on_error_ends_at_the_tail(void **state)
{
    (void)state;
    spy_act act = { "on_error", fail_eperm, true, false };
    spy_entry entries[] = { { "a", &spy, &act }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    for (int i = 0; i < 2; i++) {
        weir_pipeline_fire_error(weir_embedded_pipeline(embedded), -EIO, "outside");
        weir_embedded_run(embedded);
        assert_trace("a.on_error(EIO)");
    }
    spy_expect_error(embedded, -EPERM, "a");
    spy_expect_error(embedded, -EIO, "pipeline");
    assert_true(weir_channel_is_active(weir_embedded_channel(embedded)));
    spy_end(embedded);
}

static void fail_without_a_reason(weir_ctx *ctx)
{
    weir_ctx_fail(ctx, 0, NULL);
}

static void code_that_is_no_error_counts_as_einval(void **state)
{
    (void)state;
    spy_act act = { "on_event", fail_without_a_reason, false, false };
    spy_entry entries[] = SPIES(&act, NULL, NULL);
    weir_embedded *embedded = spy_open(entries);
    weir_pipeline_fire_event(weir_embedded_pipeline(embedded), spy_text("x"));
    weir_embedded_run(embedded);
    assert_trace("a.on_event a.on_error(EINVAL) b.on_error(EINVAL) c.on_error(EINVAL) "
                 "b.on_event c.on_event");
    spy_expect_error(embedded, -EINVAL, "a");
    spy_end(embedded);
}

static void event_ends_where_it_is_taken(void **state)
{
    (void)state;
    spy_act act = { "on_event", remove_self, true, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    weir_msg *event = spy_text("x");
    weir_pipeline_fire_event(weir_embedded_pipeline(embedded), weir_msg_retain(event));
    weir_embedded_run(embedded);
    assert_trace("a.on_event b.on_event b.removed");
    assert_int_equal(weir_msg_refs(event), 1);
    weir_pipeline_fire_event(weir_embedded_pipeline(embedded), event);
    weir_embedded_run(embedded);
    assert_trace("a.on_event c.on_event");
    spy_end(embedded);
}

/* Going, inside an event ----------------------------------------------------------------------- */

static void removed_context_still_forwards(void **state)
{
    (void)state;
    spy_act act = { "on_read", remove_self, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    read_one(embedded);
    assert_trace("a.on_read b.on_read b.removed c.on_read a.on_read_complete c.on_read_complete");
    spy_expect_names(weir_embedded_pipeline(embedded), "a, c");
    spy_end(embedded);
}

static void use_removed_self(weir_ctx *ctx)
{
    remove_self(ctx);
    weir_ctx_write_and_flush(ctx, spy_text("late"), NULL);
    weir_ctx_fire_event(ctx, spy_text("late"));
    fail_eio(ctx);
    assert_string_equal(weir_ctx_name(ctx), "b");
}

static void removed_context_still_writes_and_fails(void **state)
{
    (void)state;
    spy_act act = { "on_read_complete", use_removed_self, true, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_end_batch(embedded), -EIO);
    assert_trace("a.on_read_complete b.on_read_complete b.removed a.write a.flush c.on_event "
                 "c.on_error(EIO)");
    spy_expect_text(weir_embedded_read_outbound(embedded), "late");
    spy_expect_error(embedded, -EIO, "b");
    spy_end(embedded);
}

static void next_handler_may_be_replaced(void **state)
{
    (void)state;
    spy_act act = { "on_read", replace_b, false, false };
    spy_entry entries[] = SPIES(&act, NULL, NULL);
    weir_embedded *embedded = spy_open(entries);
    read_one(embedded);
    assert_trace("a.on_read new.added b.removed new.on_read c.on_read a.on_read_complete "
                 "new.on_read_complete c.on_read_complete");
    spy_end(embedded);
}

static void next_handler_may_be_removed(void **state)
{
    (void)state;
    spy_act act = { "on_read", remove_b, false, false };
    spy_entry entries[] = SPIES(&act, NULL, NULL);
    weir_embedded *embedded = spy_open(entries);
    read_one(embedded);
    assert_trace("a.on_read b.removed c.on_read a.on_read_complete c.on_read_complete");
    spy_end(embedded);
}

/* Then what stands on it, further up the stack, goes on from its place. */
static void previous_handler_may_be_removed(void **state)
{
    (void)state;
    spy_act in = { "on_read", remove_b, false, false };
    spy_entry entries[] = SPIES(NULL, NULL, &in);
    weir_embedded *embedded = spy_open(entries);
    read_one(embedded);
    assert_trace("a.on_read b.on_read c.on_read b.removed a.on_read_complete c.on_read_complete");
    spy_end(embedded);
    spy_act out = { "write", remove_b, false, false };
    spy_entry outbound[] = SPIES(&out, NULL, NULL);
    embedded = spy_open(outbound);
    assert_int_equal(weir_embedded_write_outbound(embedded, spy_text("y")), 0);
    assert_trace("c.write b.write a.write b.removed c.flush a.flush");
    spy_expect_text(weir_embedded_read_outbound(embedded), "y");
    spy_end(embedded);
}

static void replace_all(weir_ctx *ctx)
{
    weir_pipeline *pipeline = weir_ctx_pipeline(ctx);
    assert_int_equal(weir_pipeline_remove(pipeline, "a", NULL), 0);
    assert_int_equal(weir_pipeline_remove(pipeline, "b", NULL), 0);
    assert_int_equal(weir_pipeline_remove(pipeline, "c", NULL), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "b", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_first(pipeline, "a", &spy, NULL), 0);
}

static void all_handlers_may_be_exchanged(void **state)
{
    (void)state;
    spy_act act = { "on_read", replace_all, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    read_one(embedded);
    assert_trace("a.on_read b.on_read a.removed b.removed c.removed b.added a.added b.on_read "
                 "a.on_read_complete b.on_read_complete");
    spy_expect_names(weir_embedded_pipeline(embedded), "a, b");
    spy_end(embedded);
}

/* Inside what another handler forwards; the one in between stays on the stack. */
static void handler_may_go_inside_its_own_forwarding(void **state)
{
    (void)state;
    spy_act first = { "on_read", fire_event, false, false };
    spy_act second = { "on_event", remove_b, false, false };
    spy_entry entries[] = SPIES(NULL, &first, &second);
    weir_embedded *embedded = spy_open(entries);
    read_one(embedded);
    assert_trace("a.on_read b.on_read a.on_event b.on_event c.on_event b.removed c.on_read "
                 "a.on_read_complete c.on_read_complete");
    spy_end(embedded);
}

/* Closing inside events ------------------------------------------------------------------------ */

static void closing_inside_on_read(void **state)
{
    (void)state;
    spy_act act = { "on_read", close_channel, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    read_one(embedded);
    assert_trace("a.on_read b.on_read c.close b.close a.close c.on_read a.on_read_complete "
                 "b.on_read_complete c.on_read_complete a.on_inactive b.on_inactive c.on_inactive "
                 "a.on_unregistered b.on_unregistered c.on_unregistered c.removed b.removed "
                 "a.removed");
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("y")), WEIR_ECLOSED);
    assert_trace("");
    spy_end(embedded);
}

static void closing_inside_on_active(void **state)
{
    (void)state;
    spy_act act = { "on_active", close_ctx, false, false };
    spy_entry entries[] = { { "a", &spy, NULL }, { "b", &spy, &act }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    assert_trace("a.added b.added a.on_registered b.on_registered a.on_active b.on_active a.close "
                 "a.on_inactive b.on_inactive a.on_unregistered b.on_unregistered b.removed "
                 "a.removed");
    assert_false(weir_embedded_is_reading(embedded));
    spy_end(embedded);
}

/* That a handler closes is no failure of the initialisation. */
static void embedded_channel_can_be_made_whose_handler_closes(void **state)
{
    (void)state;
    spy_act act = { "on_active", close_ctx, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_channel_get_state(weir_embedded_channel(embedded)),
                     WEIR_CHANNEL_UNREGISTERED);
    spy_end(embedded);
}

static void closing_inside_on_registered(void **state)
{
    (void)state;
    spy_act act = { "on_registered", close_channel, false, false };
    spy_entry entries[] = { { "a", &spy, &act }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    assert_trace("a.added a.on_registered a.close a.on_unregistered a.removed");
    spy_end(embedded);
}

static void closing_before_registration(void **state)
{
    (void)state;
    spy_entry entries[] = SPIES(NULL, NULL, NULL);
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_promise *written = weir_channel_promise(channel);
    weir_promise *registered = weir_channel_promise(channel);
    weir_channel_write_and_flush(channel, spy_text("x"), written);
    weir_channel_close(channel, NULL);
    assert_int_equal(weir_future_code(weir_promise_future(written)), WEIR_ECLOSED);
    assert_int_equal(weir_future_code(weir_channel_closed(channel)), 0);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
    assert_int_equal(weir_pipeline_add_last(weir_embedded_pipeline(embedded), "n", &spy, NULL),
                     WEIR_ECLOSED);
    assert_int_equal(weir_pipeline_count(weir_embedded_pipeline(embedded)), 0);
    weir_channel_register(channel, weir_embedded_executor(embedded), registered);
    weir_embedded_run(embedded);
    assert_int_equal(weir_future_code(weir_promise_future(registered)), WEIR_ECLOSED);
    assert_trace("c.removed b.removed a.removed");
    weir_promise_release(written);
    weir_promise_release(registered);
    spy_end(embedded);
}

static weir_promise *late_promise;

static void close_with_promise(weir_ctx *ctx)
{
    late_promise = weir_channel_promise(weir_ctx_channel(ctx));
    weir_channel_close(weir_ctx_channel(ctx), late_promise);
}

/* Too late, but who asks for it shall hear that it is so. */
static void closing_inside_what_closing_causes(void **state)
{
    (void)state;
    const char *const events[] = { "on_inactive", "on_unregistered", "removed", "close" };
    for (int i = 0; i < 4; i++) {
        spy_act act = { events[i], close_with_promise, false, false };
        spy_entry entries[] = { { "a", &spy, &act }, { 0 } };
        weir_embedded *embedded = spy_open(entries);
        assert_int_equal(weir_embedded_close(embedded), 0);
        assert_int_equal(weir_future_code(weir_promise_future(late_promise)), 0);
        assert_trace(i == 0   ? "a.close a.on_inactive a.close a.on_unregistered a.removed"
                     : i == 1 ? "a.close a.on_inactive a.on_unregistered a.close a.removed"
                     : i == 2 ? "a.close a.on_inactive a.on_unregistered a.removed"
                              : "a.close a.close a.on_inactive a.on_unregistered a.removed");
        weir_promise_release(late_promise);
        spy_end(embedded);
    }
}

static void add_another(weir_ctx *ctx)
{
    assert_int_equal(weir_pipeline_add_last(weir_ctx_pipeline(ctx), "n", &spy, NULL), WEIR_ECLOSED);
    assert_int_equal(weir_pipeline_remove(weir_ctx_pipeline(ctx), "a", NULL), WEIR_ENOTFOUND);
    write_from_tail(ctx);
    weir_ctx_write(ctx, spy_text("x"), NULL);
    weir_ctx_close(ctx, NULL);
    fail_eio(ctx);
}

static void much_is_tried_inside_removed(void **state)
{
    (void)state;
    spy_act act = { "removed", add_another, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_close(embedded), 0);
    assert_trace("c.close b.close a.close a.on_inactive b.on_inactive c.on_inactive "
                 "a.on_unregistered b.on_unregistered c.on_unregistered c.removed b.removed "
                 "a.write a.close a.removed");
    spy_expect_error(embedded, -EIO, "b");
    spy_end(embedded);
}

static void add_late(weir_ctx *ctx)
{
    assert_int_equal(weir_pipeline_add_last(weir_ctx_pipeline(ctx), "n", &spy, NULL), 0);
}

/* Until the handlers are taken out, one that comes is told so, and then that it goes. */
static void handler_that_comes_while_closing_is_told_both(void **state)
{
    (void)state;
    spy_act act = { "on_unregistered", add_late, false, false };
    spy_entry entries[] = { { "a", &spy, &act }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_close(embedded), 0);
    assert_trace("a.close a.on_inactive a.on_unregistered n.added n.on_unregistered n.removed "
                 "a.removed");
    spy_end(embedded);
}

/* Writing -------------------------------------------------------------------------------------- */

static void writing_inside_on_read_complete(void **state)
{
    (void)state;
    spy_act act = { "on_read_complete", write_from_tail, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    read_one(embedded);
    assert_trace("a.on_read b.on_read c.on_read a.on_read_complete b.on_read_complete c.write "
                 "b.write a.write c.flush b.flush a.flush c.on_read_complete");
    spy_expect_text(weir_embedded_read_outbound(embedded), "answer");
    spy_end(embedded);
}

static void flushing_inside_flush(void **state)
{
    (void)state;
    spy_act act = { "flush", flush_from_tail, false, false };
    spy_entry entries[] = SPIES(NULL, &act, NULL);
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_outbound(embedded, spy_text("y")), 0);
    assert_trace("c.write b.write a.write c.flush b.flush c.flush b.flush a.flush a.flush");
    spy_expect_text(weir_embedded_read_outbound(embedded), "y");
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    spy_end(embedded);
}

static void writing_inside_flush(void **state)
{
    (void)state;
    spy_act act = { "flush", write_from_tail, false, false };
    spy_entry entries[] = SPIES(&act, NULL, NULL);
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_outbound(embedded, spy_text("first")), 0);
    assert_trace("c.write b.write a.write c.flush b.flush a.flush c.write b.write a.write c.flush "
                 "b.flush a.flush");
    spy_expect_text(weir_embedded_read_outbound(embedded), "first");
    spy_expect_text(weir_embedded_read_outbound(embedded), "answer");
    spy_end(embedded);
}

/* The code of a write with a promise. */
static int write_and_ask(weir_embedded *embedded)
{
    weir_promise *promise = weir_channel_promise(weir_embedded_channel(embedded));
    weir_channel_write_and_flush(weir_embedded_channel(embedded), spy_text("a long text"), promise);
    weir_embedded_run(embedded);
    int code = weir_future_code(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

static void write_that_fails_is_told_once(void **state)
{
    (void)state;
    spy_entry entries[] = SPIES(NULL, NULL, NULL);
    weir_embedded *embedded = spy_open(entries);
    weir_channel *channel = weir_embedded_channel(embedded);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, 5, NULL), 0);
    weir_embedded_run(embedded);
    /* By its promise, if it has one ... */
    assert_int_equal(write_and_ask(embedded), WEIR_ELIMIT);
    assert_trace("c.write b.write a.write c.flush b.flush a.flush");
    assert_int_equal(weir_embedded_check(embedded), 0);
    assert_true(weir_channel_is_active(channel));
    /* ... else by an error, and the stream ends. */
    weir_channel_write(channel, spy_text("a long text"), NULL);
    weir_embedded_run(embedded);
    assert_trace("c.write b.write a.write a.on_error(WEIR_ELIMIT) b.on_error(WEIR_ELIMIT) "
                 "c.on_error(WEIR_ELIMIT) a.on_inactive b.on_inactive c.on_inactive "
                 "a.on_unregistered b.on_unregistered c.on_unregistered c.removed b.removed "
                 "a.removed");
    spy_expect_error(embedded, WEIR_ELIMIT, "embedded");
    spy_end(embedded);
}

static void failed_sending_ends_the_stream(void **state)
{
    (void)state;
    for (int has_promise = 0; has_promise < 2; has_promise++) {
        spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
        weir_embedded *embedded = spy_open(entries);
        weir_embedded_fail_sends(embedded, -ECONNRESET);
        if (has_promise)
            assert_int_equal(write_and_ask(embedded), -ECONNRESET);
        else
            assert_int_equal(weir_embedded_write_outbound(embedded, spy_text("x")), -ECONNRESET);
        assert_trace(has_promise ? "a.write a.flush a.on_inactive a.on_unregistered a.removed"
                                 : "a.write a.flush a.on_error(ECONNRESET) a.on_inactive "
                                   "a.on_unregistered a.removed");
        assert_int_equal(weir_embedded_take_error(embedded, NULL), !has_promise);
        spy_end(embedded);
    }
}

static void close_then_write(weir_ctx *ctx)
{
    close_channel(ctx);
    write_from_tail(ctx);
    late_promise = weir_channel_promise(weir_ctx_channel(ctx));
    weir_channel_write(weir_ctx_channel(ctx), spy_text("x"), late_promise);
}

static void writing_after_close(void **state)
{
    (void)state;
    spy_act act = { "on_read", close_then_write, true, false };
    spy_entry entries[] = { { "a", &spy, &act }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("x")), 0);
    assert_trace("a.on_read a.close a.write a.flush a.write a.on_read_complete a.on_inactive "
                 "a.on_unregistered a.removed");
    assert_int_equal(weir_future_code(weir_promise_future(late_promise)), WEIR_ECLOSED);
    weir_promise_release(late_promise);
    /* And when everything is over. */
    assert_int_equal(write_and_ask(embedded), WEIR_ECLOSED);
    assert_int_equal(weir_embedded_write_outbound(embedded, spy_text("x")), WEIR_ECLOSED);
    weir_pipeline_fire_event(weir_embedded_pipeline(embedded), spy_text("x"));
    weir_pipeline_fire_read(weir_embedded_pipeline(embedded), spy_text("x"));
    weir_pipeline_fire_error(weir_embedded_pipeline(embedded), -EIO, "x");
    weir_embedded_run(embedded);
    assert_trace("");
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    spy_end(embedded);
}

static void writing_before_registration_waits(void **state)
{
    (void)state;
    weir_embedded *embedded = spy_open_unregistered(no_handlers);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_write_and_flush(channel, spy_text("early"), promise);
    weir_channel_write(channel, spy_text("later"), NULL);
    weir_embedded_run(embedded);
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), -EINPROGRESS);
    spy_register(embedded);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), 0);
    assert_int_equal(weir_embedded_outbound_count(embedded), 1);
    weir_embedded_flush(embedded);
    spy_expect_text(weir_embedded_read_outbound(embedded), "early");
    spy_expect_text(weir_embedded_read_outbound(embedded), "later");
    weir_promise_release(promise);
    spy_end(embedded);
}

static void secret_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_msg_release(msg);
    weir_ctx_write(ctx, spy_text("encrypted"), promise);
}

/* A handler that encrypts must not be passed by because it has not heard of the channel yet. */
static void writing_before_registration_passes_no_handler_by(void **state)
{
    (void)state;
    static const weir_handler_type secret = { .name = "secret", .write = secret_write };
    spy_entry entries[] = { { "secret", &secret, NULL }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_channel_write_and_flush(weir_embedded_channel(embedded), spy_text("plain"), NULL);
    spy_register(embedded);
    spy_expect_text(weir_embedded_read_outbound(embedded), "encrypted");
    spy_end(embedded);
}

/* Messages ------------------------------------------------------------------------------------- */

static weir_msg *forgotten;

static void forget_on_read(weir_ctx *ctx, weir_msg *msg)
{
    (void)ctx;
    forgotten = msg;
}

static const weir_handler_type forgetful = { .name = "forgetful", .on_read = forget_on_read };

static void forgotten_message_is_reported(void **state)
{
    (void)state;
    if (weir_leak_get_mode() != WEIR_LEAK_ALL)
        skip();
    spy_entry entries[] = { { "f", &forgetful, NULL }, { 0 } };
    weir_embedded_report report;
    weir_msg *older = spy_text("older"); /* made before, and no concern of the channel's */
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("x")), 0);
    assert_int_equal(weir_embedded_write_outbound(embedded, spy_text("y")), 0);
    weir_pipeline_fire_error(weir_embedded_pipeline(embedded), -EIO, "x");
    weir_embedded_run(embedded);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_embedded_finish(embedded, &report), 3);
    assert_true(harness_log_has("buf"));
    harness_log_end();
    assert_int_equal(report.leaked, 1);
    assert_int_equal(report.inbound, 0);
    assert_int_equal(report.outbound, 1);
    assert_int_equal(report.errors, 1);
    weir_msg_release(forgotten);
    weir_msg_release(older);
    weir_embedded_free(embedded);
}

static void release_on_read(weir_ctx *ctx, weir_msg *msg)
{
    (void)ctx;
    weir_msg_release(msg);
    weir_msg_release(msg);
}

static const weir_handler_type hasty = { .name = "hasty", .on_read = release_on_read };

static void read_by_hasty(void *arg)
{
    weir_embedded_write_inbound(arg, spy_text("x"));
}

static void message_released_twice_is_misuse(void **state)
{
    (void)state;
    if (!HARNESS_MISUSE_ABORTS)
        skip();
    spy_entry entries[] = { { "h", &hasty, NULL }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    harness_expect_abort(read_by_hasty, embedded, "");
    spy_end(embedded);
}

/* The life of a context ------------------------------------------------------------------------ */

typedef struct turn {
    weir_task task;
    weir_ctx *ctx;
} turn;

static int remove_in_turn(weir_task *task)
{
    turn *self = WEIR_CONTAINER(task, turn, task);
    return weir_ctx_remove(self->ctx);
}

static int use_in_turn(weir_task *task)
{
    turn *self = WEIR_CONTAINER(task, turn, task);
    assert_true(weir_ctx_is_removed(self->ctx));
    assert_string_equal(weir_ctx_name(self->ctx), "b");
    weir_ctx_fire_event(self->ctx, &weir_event_input_closed); /* no allocation */
    return 0;
}

static int find_b(void *arg)
{
    turn *self = ((void **)arg)[0];
    self->ctx = weir_pipeline_ctx(weir_embedded_pipeline(((void **)arg)[1]), "b");
    return 0;
}

static uint64_t live(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.live;
}

static void context_lives_to_the_end_of_the_turn_after(void **state)
{
    (void)state;
    spy_entry entries[] = SPIES(NULL, NULL, NULL);
    weir_group *group;
    weir_group_config group_config = { .loops = 1, .is_manual = true };
    assert_int_equal(weir_group_new(&group, &group_config, NULL), 0);
    weir_embedded *embedded;
    weir_embedded_config config = { .init = spy_init, .arg = entries, .group = group };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    turn self = { .task = { .run = remove_in_turn, .name = "turn" } };
    assert_int_equal(weir_embedded_call(embedded, find_b, (void *[]){ &self, embedded }), 0);
    while (weir_group_step(group) > 0) {
    }
    spy_forget();
    uint64_t before = live();
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &self.task), 0);
    weir_group_step(group);
    assert_trace("b.removed");
    assert_int_equal(live(), before);
    self.task.run = use_in_turn;
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &self.task), 0);
    weir_group_step(group);
    assert_trace("c.on_event");
    assert_int_equal(live(), before - 1);
    spy_end(embedded);
    weir_group_shutdown(group, 0, 0);
    weir_group_free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(added_waits_for_registration),
        weir_case(no_event_comes_before_added),
        weir_case(event_before_registration_waits_for_the_handlers),
        weir_case(failing_added_closes_a_channel_that_relied_on_it),
        weir_case(failing_added_returns_its_code_and_raises_it),
        weir_case(added_may_add),
        weir_case(added_may_remove_itself),
        weir_case(added_may_remove_itself_and_fail),
        weir_case(added_may_remove_one_before_its_added),
        weir_case(added_may_close),
        weir_case(removed_runs_once_without_added),
        weir_case(failing_is_told_to_itself_first),
        weir_case(handler_that_takes_an_error_ends_it),
        weir_case(error_inside_on_error_goes_on_behind),
        weir_case(error_inside_on_error_ends_at_the_tail),
        weir_case(code_that_is_no_error_counts_as_einval),
        weir_case(event_ends_where_it_is_taken),
        weir_case(removed_context_still_forwards),
        weir_case(removed_context_still_writes_and_fails),
        weir_case(next_handler_may_be_replaced),
        weir_case(next_handler_may_be_removed),
        weir_case(previous_handler_may_be_removed),
        weir_case(all_handlers_may_be_exchanged),
        weir_case(handler_may_go_inside_its_own_forwarding),
        weir_case(closing_inside_on_read),
        weir_case(closing_inside_on_active),
        weir_case(closing_inside_on_registered),
        weir_case(closing_before_registration),
        weir_case(closing_inside_what_closing_causes),
        weir_case(much_is_tried_inside_removed),
        weir_case(handler_that_comes_while_closing_is_told_both),
        weir_case(writing_inside_on_read_complete),
        weir_case(flushing_inside_flush),
        weir_case(writing_inside_flush),
        weir_case(write_that_fails_is_told_once),
        weir_case(failed_sending_ends_the_stream),
        weir_case(writing_after_close),
        weir_case(writing_before_registration_waits),
        weir_case(forgotten_message_is_reported),
        weir_case(message_released_twice_is_misuse),
        weir_case(context_lives_to_the_end_of_the_turn_after),
        weir_case(embedded_channel_can_be_made_whose_handler_closes),
        weir_case(writing_before_registration_passes_no_handler_by),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
