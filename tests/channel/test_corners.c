/* SPDX-License-Identifier: MIT */
/* Where two things meet that seldom do: each case was a bug that a review found. */
#include "channel/spy.h"
#include "channel/stub.h"

#include <weir/duplex.h>

static weir_hold hold;

/* Helpers -------------------------------------------------------------------------------------- */

/* Calls a function on a loop that has a thread, and waits for it. */
static int call_on(weir_executor *loop, weir_call_fn fn, void *arg)
{
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(loop, fn, arg, &future), 0);
    int code = weir_future_await(future);
    weir_future_release(future);
    return code;
}

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

/* A stub with a transport of its own; the caller has the only reference. */
static stub *new_stub_of(const weir_transport *transport, story *to, _Atomic(bool) *is_freed)
{
    stub *self = new_stub(to, is_freed);
    self->base.transport = transport;
    return self;
}

/* Registers with a loop that has a thread, and waits until all of that was told. */
static void register_on(weir_channel *channel, weir_executor *loop)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_register(channel, loop, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    assert_int_equal(call_on(loop, nothing, NULL), 0);
}

static void leave_loop(weir_channel *channel, weir_executor *loop)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_deregister(channel, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    assert_int_equal(call_on(loop, nothing, NULL), 0);
}

static void run_elsewhere(void *(*fn)(void *arg), void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, arg), 0);
    pthread_join(thread, NULL);
}

static int add_in_group(weir_pipeline *pipeline, const char *name, const weir_handler_type *type,
                        weir_group *group)
{
    weir_handler_config config = { .type = type, .name = name, .place = WEIR_PLACE_LAST };
    config.group = group;
    return weir_pipeline_add(pipeline, &config, NULL);
}

/* Registration --------------------------------------------------------------------------------- */

typedef struct leaver {
    ear left;
    story *story;
} leaver;

static void leaver_added(weir_ctx *ctx)
{
    leaver *self = weir_ctx_arg(ctx);
    call_with_ear(weir_channel_deregister, weir_ctx_channel(ctx), &self->left, self->story, "left");
}

static const weir_handler_type leaver_type = { .name = "leaver", .added = leaver_added };

static void a_deregistration_inside_added_comes_after_the_registration(void **state)
{
    (void)state;
    story to = STORY;
    ear registered;
    leaver arg = { .story = &to };
    spy_entry entries[] = { { "leaver", &leaver_type, &arg }, { 0 } };
    weir_embedded *e = spy_open_unregistered(entries);
    weir_channel *channel = weir_embedded_channel(e);
    go_with_ear(weir_channel_register, channel, weir_embedded_executor(e), &registered, &to,
                "registered");
    assert_int_equal(weir_embedded_run(e), 0);
    story_is(&to, "registered=ok left=ok");
    assert_int_equal(registered.told, 1);
    assert_int_equal(arg.left.told, 1);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_OPEN);
    weir_embedded_free(e);
}

/* The promise is in the queue of the channel that it refers to. */
static void an_unregistered_channel_with_a_waiting_write_goes_with_its_last_reference(void **state)
{
    (void)state;
    story to = STORY;
    ear written;
    _Atomic(bool) is_freed = false;
    stub *self = new_stub(NULL, &is_freed);
    write_text(&self->base, "x", &written, &to);
    story_is(&to, "");
    weir_channel_release(&self->base);
    story_is(&to, "x=WEIR_ECLOSED");
    assert_true(is_freed);
}

static void a_promise_that_outlives_its_channel_keeps_only_its_memory(void **state)
{
    (void)state;
    story to = STORY;
    ear closed, late;
    _Atomic(bool) is_freed = false;
    stub *self = new_stub(NULL, &is_freed);
    ear_listen(&closed, &to, "closed", weir_channel_closed(&self->base));
    weir_promise *promise = ear_promise(&late, &to, "late", &self->base);
    weir_channel_release(&self->base);
    story_is(&to, "closed=ok");
    assert_false(is_freed);
    assert_int_equal(weir_promise_set(promise, 0), 0);
    story_is(&to, "late=ok");
    weir_promise_release(promise);
    assert_true(is_freed);
}

/* Pipeline ------------------------------------------------------------------------------------- */

typedef struct coming {
    weir_pipeline *pipeline;
    int added, replaced, put_before;
} coming;

static void *announce(void *arg)
{
    coming *self = arg;
    self->added = weir_pipeline_add_last(self->pipeline, "x", &spy, NULL);
    return NULL;
}

static int replace_announced(void *arg)
{
    coming *self = arg;
    run_elsewhere(announce, self);
    self->replaced = weir_pipeline_replace(self->pipeline, "x", "y", &spy, NULL);
    self->put_before = weir_pipeline_add_before(self->pipeline, "x", "z", &spy, NULL);
    return 0;
}

static void the_loop_does_not_replace_a_handler_that_is_only_announced(void **state)
{
    (void)state;
    weir_embedded *e = spy_open(no_handlers);
    coming arg = { weir_embedded_pipeline(e), -1, 0, 0 };
    assert_int_equal(weir_embedded_call(e, replace_announced, &arg), 0);
    assert_int_equal(weir_embedded_run(e), 0);
    assert_int_equal(arg.added, 0);
    assert_int_equal(arg.replaced, WEIR_ENOTFOUND);
    assert_int_equal(arg.put_before, WEIR_ENOTFOUND);
    assert_trace("x.added");
    spy_expect_names(arg.pipeline, "x");
    assert_int_equal(weir_embedded_write_inbound_bytes(e, "a", 1), 0);
    assert_trace("x.on_read x.on_read_complete");
    spy_expect_text(weir_embedded_read_inbound(e), "a");
    spy_end(e);
}

static void add_helper(weir_ctx *ctx)
{
    assert_int_equal(weir_pipeline_add_before(weir_ctx_pipeline(ctx), weir_ctx_name(ctx), "helper",
                                              &spy_reads, NULL),
                     0);
}

static const weir_handler_type half_with_helper = {
    .name = "in",
    .added = add_helper,
    .removed = spy_removed,
    .on_read = spy_on_read,
};
static const weir_handler_type other_half = {
    .name = "out",
    .removed = spy_removed,
    .write = spy_write,
};

static int remove_duplex(void *embedded)
{
    return weir_pipeline_remove(weir_embedded_pipeline(embedded), "duplex", NULL);
}

static void a_duplex_takes_out_its_halves_and_not_what_a_half_has_added(void **state)
{
    (void)state;
    weir_duplex halves = { &half_with_helper, NULL, &other_half, NULL };
    spy_entry entries[] = { { "duplex", &weir_duplex_handler, &halves }, { 0 } };
    weir_embedded *e = spy_open(entries);
    assert_int_equal(weir_pipeline_count(weir_embedded_pipeline(e)), 4);
    assert_int_equal(spy_call(e, remove_duplex), 0);
    spy_expect_names(weir_embedded_pipeline(e), "helper");
    spy_forget();
    assert_int_equal(weir_embedded_write_inbound_bytes(e, "a", 1), 0);
    assert_trace("helper.on_read");
    spy_expect_text(weir_embedded_read_inbound(e), "a");
    spy_end(e);
}

static const weir_handler_type takes_bytes = {
    .name = "bytes",
    .on_read = spy_on_read,
    .takes_reads = &weir_buf_type,
};

/* Looks at the pipeline of its arg, as a program may that logs a channel with each line. */
static void look_and_note(void *arg, weir_log_level level, const char *origin, const char *text)
{
    char names[64];
    weir_handler_info info;
    weir_pipeline_names(arg, names, sizeof names);
    spy_note("%s %s: %s [%s] %d", weir_log_level_name(level), origin, text, names,
             weir_pipeline_find(arg, "doubler", &info));
}

static int add_mismatch(void *embedded)
{
    return weir_pipeline_add_last(weir_embedded_pipeline(embedded), "b", &takes_bytes, NULL);
}

static void a_log_sink_may_look_at_the_pipeline_whose_mismatch_is_logged(void **state)
{
    (void)state;
    spy_entry entries[] = { { "doubler", &doubler, NULL }, { 0 } };
    weir_embedded *e = spy_open(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(e);
    assert_int_equal(weir_log_set(WEIR_LOG_WARN, look_and_note, pipeline), 0);
    assert_int_equal(spy_call(e, add_mismatch), -EPROTOTYPE);
    assert_int_equal(weir_log_set(WEIR_LOG_OFF, NULL, NULL), 0);
    assert_trace("error pipeline: 'doubler' gives reads of type number, but 'bytes' takes buf "
                 "[doubler] 0");
    spy_expect_names(pipeline, "doubler");
    spy_end(e);
}

static weir_embedded *inner;

static int note_call(void *arg)
{
    (void)arg;
    spy_note("called");
    return 0;
}

static void expect_refusals(const int *codes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (codes[i] != -EDEADLK)
            spy_note("call %zu: %s", i, codes[i] == 0 ? "ok" : weir_error_name(codes[i]));
    }
}

static void run_and_feed_inside(weir_ctx *ctx)
{
    (void)ctx;
    int codes[] = {
        weir_embedded_run(inner),
        weir_embedded_advance(inner, 1),
        weir_embedded_call(inner, note_call, NULL),
        weir_embedded_write_inbound(inner, spy_text("b")),
        weir_embedded_write_inbound_part(inner, spy_text("b")),
        weir_embedded_write_inbound_bytes(inner, "b", 1),
        weir_embedded_end_batch(inner),
        weir_embedded_end_inbound(inner, 0),
    };
    expect_refusals(codes, sizeof codes / sizeof *codes);
}

static void write_and_close_inside(weir_ctx *ctx)
{
    (void)ctx;
    int codes[] = {
        weir_embedded_write_outbound(inner, spy_text("b")),
        weir_embedded_flush(inner),
        weir_embedded_accept(inner, SIZE_MAX),
        weir_embedded_close(inner),
    };
    expect_refusals(codes, sizeof codes / sizeof *codes);
}

/* Nothing but -EDEADLK comes of calls to an embedded channel from its own handler. */
static void expect_refused_inside(void (*act)(weir_ctx *ctx))
{
    spy_act calls = { .at = "on_read", .act = act };
    spy_entry entries[] = { { "a", &spy, &calls }, { 0 } };
    inner = spy_open(entries);
    assert_int_equal(weir_embedded_write_inbound_bytes(inner, "a", 1), 0);
    spy_expect_text(weir_embedded_read_inbound(inner), "a");
    assert_trace("a.on_read a.on_read_complete");
    assert_int_equal(weir_embedded_inbound_count(inner), 0);
    assert_int_equal(weir_embedded_outbound_count(inner), 0);
    spy_end(inner);
}

static void an_embedded_channel_is_not_run_or_fed_by_its_handlers(void **state)
{
    (void)state;
    expect_refused_inside(run_and_feed_inside);
}

static void an_embedded_channel_is_not_written_or_closed_by_its_handlers(void **state)
{
    (void)state;
    expect_refused_inside(write_and_close_inside);
}

/* Lanes ---------------------------------------------------------------------------------------- */

typedef struct visit {
    weir_pipeline *pipeline;
    weir_group *group;
    int added, removed;
} visit;

static int add_and_remove(void *arg)
{
    visit *self = arg;
    self->added = add_in_group(self->pipeline, "x", &spy, self->group);
    self->removed = weir_pipeline_remove(self->pipeline, "x", NULL);
    return 0;
}

static void a_handler_that_never_got_to_its_executor_is_removed(void **state)
{
    (void)state;
    for (int is_manual = 0; is_manual < 2; is_manual++) {
        weir_group *group = open_executors(is_manual);
        assert_int_equal(weir_group_shutdown(group, 0, 0), 0);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        weir_embedded *e = spy_open(no_handlers);
        visit arg = { weir_embedded_pipeline(e), group, -1, -1 };
        assert_int_equal(weir_embedded_call(e, add_and_remove, &arg), 0);
        weir_embedded_run(e);
        assert_int_equal(arg.added, 0);
        assert_int_equal(arg.removed, 0);
        assert_trace("x.removed");
        spy_expect_names(arg.pipeline, "");
        weir_embedded_free(e);
        assert_trace("");
        weir_group_free(group);
    }
}

static int add_on_loops(void *arg)
{
    visit *self = arg;
    return add_in_group(self->pipeline, "x", &spy, self->group);
}

static void a_lane_on_a_group_of_loops_is_refused(void **state)
{
    (void)state;
    weir_error error = { .code = 0 };
    weir_embedded *e = spy_open(no_handlers);
    weir_group *group = open_group(&(weir_group_config){ .loops = 1, .is_manual = true });
    visit arg = { weir_embedded_pipeline(e), group, -1, -1 };
    weir_handler_config config = { .type = &spy, .name = "x", .place = WEIR_PLACE_LAST };
    config.group = group;
    assert_int_equal(weir_pipeline_add(arg.pipeline, &config, &error), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    assert_non_null(strstr(error.message, "'spy'"));
    assert_int_equal(weir_embedded_call(e, add_on_loops, &arg), -EINVAL);
    assert_trace("");
    spy_expect_names(arg.pipeline, "");
    spy_end(e);
    end_group(group);
}

static unsigned allocations_in_lane;

static void pass_inactive_without_memory(weir_ctx *ctx)
{
    spy_note("%s.on_inactive", weir_ctx_name(ctx));
    harness_fail_nth("alloc", 1, -ENOMEM);
    weir_ctx_fire_inactive(ctx);
    allocations_in_lane = harness_fail_end();
}

static const weir_handler_type poor_lane = {
    .name = "poor lane",
    .on_inactive = pass_inactive_without_memory,
};
static const weir_handler_type behind = {
    .name = "behind",
    .removed = spy_removed,
    .on_inactive = spy_on_inactive,
    .on_unregistered = spy_on_unregistered,
};

static void a_lane_without_memory_still_passes_on_inactive(void **state)
{
    (void)state;
    weir_embedded *e = spy_open(no_handlers);
    weir_pipeline *pipeline = weir_embedded_pipeline(e);
    weir_group *lane = open_executors(true);
    assert_int_equal(add_in_group(pipeline, "lane", &poor_lane, lane), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "behind", &behind, NULL), 0);
    do {
        weir_embedded_run(e);
    } while (weir_group_step(lane) > 0);
    allocations_in_lane = 0;
    weir_channel_close(weir_embedded_channel(e), NULL);
    do {
        weir_embedded_run(e);
    } while (weir_group_step(lane) > 0);
    assert_true(allocations_in_lane > 0); /* and the first one failed */
    assert_trace("lane.on_inactive behind.on_inactive behind.on_unregistered behind.removed");
    weir_embedded_free(e);
    end_group(lane);
}

/* Finish and writing --------------------------------------------------------------------------- */

static void finish_lingers_after_a_shutdown_that_a_handler_has_done(void **state)
{
    (void)state;
    story to = STORY;
    ear finish;
    spy_act keeps_shutdown = { .at = "shutdown", .act = spy_pass_nothing, .stops = true };
    spy_entry entries[] = { { "a", &spy, &keeps_shutdown }, { 0 } };
    weir_embedded *e = spy_open(entries);
    weir_channel *channel = weir_embedded_channel(e);
    call_with_ear(weir_channel_finish, channel, &finish, &to, "finish");
    weir_embedded_run(e);
    assert_trace("a.shutdown");
    weir_embedded_advance(e, WEIR_MS(5000) - 1); /* linger_ns */
    story_is(&to, "");
    assert_true(weir_channel_is_active(channel));
    weir_embedded_advance(e, 1);
    story_is(&to, "finish=ok");
    assert_false(weir_channel_is_open(channel));
    weir_embedded_free(e);
}

static int write_ten(void *embedded)
{
    weir_channel_write(weir_embedded_channel(embedded), spy_text("0123456789"), NULL);
    return 0;
}

static void bytes_before_writable_are_those_above_the_water_marks_only(void **state)
{
    (void)state;
    weir_embedded *e = spy_open(no_handlers);
    weir_channel *channel = weir_embedded_channel(e);
    assert_int_equal(weir_channel_set_water_marks(channel, 4, 15), 0);
    weir_embedded_run(e);
    spy_call(e, write_ten);
    assert_int_equal(weir_channel_set_write_hold(channel, fresh_hold(&hold), true), 0);
    weir_embedded_run(e);
    assert_false(weir_channel_is_writable(channel));
    assert_int_equal(weir_channel_bytes_before_writable(channel), 0);
    spy_call(e, write_ten);
    assert_int_equal(weir_channel_bytes_before_writable(channel), 16);
    assert_int_equal(weir_channel_set_write_hold(channel, &hold, false), 0);
    weir_embedded_run(e);
    assert_false(weir_channel_is_writable(channel));
    assert_int_equal(weir_channel_bytes_before_writable(channel), 16);
    weir_embedded_free(e);
}

/* Hands over what there is, and then waits. */
static void begin_to_send(weir_channel *channel)
{
    struct iovec pieces[8];
    weir__outbound_gather(&channel->out.queue, pieces, 8);
    ((stub *)channel)->is_busy = true;
}

typedef struct late_write {
    stub *stub;
    ear first, second;
    story *story;
} late_write;

static int write_close_write(void *arg)
{
    late_write *self = arg;
    weir_channel *channel = &self->stub->base;
    write_text(channel, "first", &self->first, self->story);
    weir_channel_flush(channel);
    weir_channel_close(channel, NULL);
    write_text(channel, "second", &self->second, self->story);
    weir_channel_flush(channel);
    return 0;
}

static int end_send(void *arg)
{
    late_write *self = arg;
    weir_channel *channel = &self->stub->base;
    weir__outbound_sent(&channel->out.queue, 5);
    weir__channel_sent(channel, 0);
    return stub_become_quiet(self->stub);
}

static void a_write_after_close_fails_though_a_send_is_under_way(void **state)
{
    (void)state;
    story to = STORY;
    pair loops;
    weir_channel_stats stats;
    weir_transport transport = stub_transport;
    transport.flush = begin_to_send;
    open_pair(&loops);
    late_write arg = { .stub = new_stub_of(&transport, NULL, NULL), .story = &to };
    weir_channel *channel = &arg.stub->base;
    weir_channel_register(channel, loops.first, NULL);
    run_pair(&loops);
    on_loop(&loops, loops.first, write_close_write, &arg);
    assert_int_equal(arg.first.told, 0);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_CLOSING);
    on_loop(&loops, loops.first, end_send, &arg);
    assert_int_equal(arg.first.code, 0);
    assert_int_equal(arg.second.code, WEIR_ECLOSED);
    assert_int_equal(arg.first.told + arg.second.told, 2);
    weir_channel_get_stats(channel, &stats);
    assert_int_equal(stats.bytes_out, 5);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
    weir_channel_release(channel);
    end_group(loops.group);
}

/* Messages whose bytes are taken out of them after they were written --------------------------- */

static void take_all(weir_buf *buf)
{
    char bytes[64];
    assert_int_equal(weir_buf_read_bytes(buf, bytes, weir_buf_readable(buf)), 0);
}

static void put_shrunk(weir_outbound *queue, weir_promise *promise)
{
    weir_buf *buf = weir_buf_from("abc", 3);
    assert_non_null(buf);
    weir_msg_retain(&buf->msg);
    assert_int_equal(weir__outbound_add(queue, &buf->msg, 3, promise), 0);
    take_all(buf);
    weir_msg_release(&buf->msg);
}

static void a_hundred_thousand_shrunk_messages_do_not_use_up_the_stack(void **state)
{
    (void)state;
    story to = STORY;
    ear ears[3];
    const char *names[] = { "first", "last", "whole" };
    struct iovec pieces[4];
    weir_outbound queue = { .first = NULL };
    weir_promise *promises[3];
    for (int i = 0; i < 3; i++) {
        promises[i] = weir_promise_new(NULL);
        ear_listen(&ears[i], &to, names[i], weir_promise_future(promises[i]));
    }
    put_shrunk(&queue, promises[0]);
    for (int i = 0; i < 100000; i++) {
        weir_promise *promise = weir_promise_new(NULL);
        put_shrunk(&queue, promise);
        weir_promise_release(promise);
    }
    put_shrunk(&queue, promises[1]);
    assert_int_equal(weir__outbound_add(&queue, text_msg("whole"), 5, promises[2]), 0);
    weir__outbound_flush(&queue);
    assert_int_equal(weir__outbound_gather(&queue, pieces, 4), 1);
    assert_int_equal(pieces[0].iov_len, 5);
    assert_memory_equal(pieces[0].iov_base, "whole", 5);
    story_is(&to, "first=WEIR_EBOUNDS last=WEIR_EBOUNDS");
    weir__outbound_sent(&queue, 5);
    story_is(&to, "whole=ok");
    assert_false(weir__outbound_has_flushed(&queue));
    for (int i = 0; i < 3; i++)
        weir_promise_release(promises[i]);
}

static size_t gathered;

static void send_gathered(weir_channel *channel)
{
    struct iovec pieces[8];
    size_t bytes = 0;
    int count = weir__outbound_gather(&channel->out.queue, pieces, 8);
    for (int i = 0; i < count; i++)
        bytes += pieces[i].iov_len;
    gathered += bytes;
    weir__outbound_sent(&channel->out.queue, bytes);
    weir__channel_sent(channel, count < 0 ? count : 0);
}

typedef struct shrinker {
    weir_channel *channel;
    story *story;
    ear at;
    bool has_promise, is_piece;
} shrinker;

static int write_shrunk(void *arg)
{
    shrinker *self = arg;
    weir_promise *promise = NULL;
    weir_buf *buf = weir_buf_from("abc", 3);
    if (self->has_promise)
        promise = ear_promise(&self->at, self->story, "abc", self->channel);
    weir_msg_retain(&buf->msg);
    weir_ctx *ctx = weir_pipeline_ctx(weir_channel_pipeline(self->channel), "recorder");
    (self->is_piece ? weir_ctx_write_piece : weir_ctx_write)(ctx, &buf->msg, promise);
    take_all(buf);
    if (self->is_piece || promise == NULL) /* which must not follow the gap */
        weir_channel_write(self->channel, text_msg("next"), NULL);
    weir_msg_release(&buf->msg);
    weir_channel_flush(self->channel);
    weir_promise_release(promise);
    return 0;
}

static void a_shrunk_message_without_a_promise_is_an_error_and_closes(void **state)
{
    (void)state;
    story to = STORY;
    pair loops;
    weir_transport transport = stub_transport;
    transport.flush = send_gathered;
    open_pair(&loops);
    stub *self = new_stub_of(&transport, &to, NULL);
    shrinker arg = { .channel = &self->base, .story = &to, .has_promise = true };
    weir_channel_register(arg.channel, loops.first, NULL);
    run_pair(&loops);
    story_is(&to, "added registered active");
    on_loop(&loops, loops.first, write_shrunk, &arg);
    story_is(&to, "abc=WEIR_EBOUNDS");
    assert_true(weir_channel_is_active(arg.channel));
    arg.has_promise = false;
    gathered = 0;
    on_loop(&loops, loops.first, write_shrunk, &arg);
    story_is(&to, "error(WEIR_EBOUNDS) inactive unregistered removed");
    assert_int_equal(gathered, 0);
    weir_channel_release(arg.channel);
    end_group(loops.group);
}

static void a_shrunk_piece_closes_though_it_has_a_promise(void **state)
{
    (void)state;
    story to = STORY;
    pair loops;
    weir_transport transport = stub_transport;
    transport.flush = send_gathered;
    gathered = 0;
    open_pair(&loops);
    stub *self = new_stub_of(&transport, &to, NULL);
    shrinker arg = { &self->base, &to, .has_promise = true, .is_piece = true };
    weir_channel_register(arg.channel, loops.first, NULL);
    run_pair(&loops);
    story_is(&to, "added registered active");
    on_loop(&loops, loops.first, write_shrunk, &arg);
    story_is(&to, "error(WEIR_EBOUNDS) abc=WEIR_EBOUNDS inactive unregistered removed");
    assert_int_equal(gathered, 0);
    weir_channel_release(arg.channel);
    end_group(loops.group);
}

/* Moving --------------------------------------------------------------------------------------- */

static void complete_arg(weir_ctx *ctx)
{
    weir_promise_set(weir_ctx_arg(ctx), 0); /* refused the second time, which is well */
    weir_ctx_fire_unregistered(ctx);
}

static const weir_handler_type completes = {
    .name = "completes",
    .on_unregistered = complete_arg,
};

static void what_is_completed_while_it_leaves_is_told_on_the_new_loop(void **state)
{
    (void)state;
    story to = STORY;
    ear completed;
    pair loops;
    open_pair(&loops);
    weir_embedded *e = open_on_pair(&loops, &to);
    weir_channel *channel = weir_embedded_channel(e);
    weir_promise *promise = ear_promise(&completed, &to, "completed", channel);
    weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &completes, promise);
    weir_channel_move(channel, loops.second, NULL);
    run_pair(&loops);
    assert_true(story_has(&to, "completed=ok"));
    assert_int_equal(completed.told, 1);
    assert_ptr_equal(completed.executor, loops.second);
    close_on_pair(&loops, e);
    assert_int_equal(completed.told, 1);
    weir_promise_release(promise);
}

static void a_move_to_a_group_that_is_freed_meanwhile_fails_and_closes(void **state)
{
    (void)state;
    story to = STORY;
    ear moved;
    _Atomic(bool) is_freed = false;
    weir_group *from = open_group(&(weir_group_config){ .loops = 1 });
    weir_group *target = open_group(&(weir_group_config){ .loops = 1 });
    weir_executor *loop = weir_group_at(from, 0);
    stub *self = new_stub(&to, &is_freed);
    weir_channel *channel = &self->base;
    self->is_busy = true;
    register_on(channel, loop);
    story_is(&to, "added registered active");
    go_with_ear(weir_channel_move, channel, weir_group_at(target, 0), &moved, NULL, "moved");
    assert_int_equal(call_on(loop, nothing, NULL), 0); /* it waits for the transport now */
    end_group(target);
    assert_int_equal(moved.told, 0);
    assert_int_equal(call_on(loop, stub_become_quiet, self), 0);
    assert_int_equal(weir_future_await(weir_channel_closed(channel)), 0);
    WAIT_FOR(moved.told == 1);
    assert_int_equal(moved.code, WEIR_ESHUTDOWN);
    weir_channel_release(channel);
    end_group(from);
    story_is(&to, "unregistered inactive removed");
    assert_true(is_freed);
}

/* Promises of a channel that moves, completed by everybody. */
enum { SETTERS = 4, PROMISES = 400 };

typedef struct promise_ear {
    weir_listener listener;
    weir_channel *channel;
    _Atomic(int) told, wrong;
} promise_ear;

typedef struct setter {
    pthread_t thread;
    weir_channel *channel;
    _Atomic(int) *running;
    promise_ear ears[PROMISES];
} setter;

static void check_place(weir_listener *listener, weir_future *future)
{
    promise_ear *self = (promise_ear *)listener;
    (void)future;
    self->wrong += !weir_executor_is_current(executor_of(self->channel));
    self->told++;
}

static void *set_promises(void *arg)
{
    setter *self = arg;
    for (int i = 0; i < PROMISES; i++) {
        promise_ear *at = &self->ears[i];
        weir_promise *promise = weir_channel_promise(self->channel);
        *at = (promise_ear){ { .done = check_place }, self->channel, 0, 0 };
        weir_future_listen(weir_promise_future(promise), &at->listener);
        weir_promise_set(promise, 0);
        weir_promise_release(promise);
    }
    (*self->running)--;
    return NULL;
}

static void promises_set_during_moves_are_told_once_where_the_channel_is(void **state)
{
    (void)state;
    static setter setters[SETTERS];
    _Atomic(int) running = SETTERS;
    uint32_t lap = 0;
    weir_group *group = open_group(&(weir_group_config){ .loops = 2 });
    weir_channel *channel = &new_stub(NULL, NULL)->base;
    register_on(channel, weir_group_at(group, 0));
    for (int i = 0; i < SETTERS; i++) {
        setters[i] = (setter){ .channel = channel, .running = &running };
        pthread_create(&setters[i].thread, NULL, set_promises, &setters[i]);
    }
    for (; lap < 20 || running > 0; lap++) {
        weir_promise *promise = weir_promise_new(NULL);
        weir_channel_move(channel, weir_group_at(group, (lap + 1) % 2), promise);
        assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
        weir_promise_release(promise);
    }
    for (int i = 0; i < SETTERS; i++)
        pthread_join(setters[i].thread, NULL);
    for (int i = 0; i < SETTERS * PROMISES; i++)
        WAIT_FOR(setters[i / PROMISES].ears[i % PROMISES].told > 0);
    weir_channel_close(channel, NULL);
    assert_int_equal(weir_future_await(weir_channel_closed(channel)), 0);
    weir_channel_release(channel);
    end_group(group); /* what would be told twice was told by now */
    for (int i = 0; i < SETTERS * PROMISES; i++) {
        promise_ear *at = &setters[i / PROMISES].ears[i % PROMISES];
        assert_int_equal(at->told, 1);
        assert_int_equal(at->wrong, 0);
    }
}

/* Loops that end ------------------------------------------------------------------------------- */

/* One channel is off its loop; another one is told that the loop ends, and in that moment something
 * is done to the first. */
typedef struct window {
    weir_channel *channel;
    void *(*elsewhere)(void *arg);
    bool removes;
    int removed, added;
} window;

static void *close_it(void *arg)
{
    weir_channel_close(((window *)arg)->channel, NULL);
    return NULL;
}

static void *add_to_it(void *arg)
{
    window *self = arg;
    self->added = weir_pipeline_add_last(weir_channel_pipeline(self->channel), "y", &spy, NULL);
    return NULL;
}

static void use_window(weir_ctx *ctx)
{
    window *self = weir_ctx_arg(ctx);
    if (self->removes)
        self->removed = weir_pipeline_remove(weir_channel_pipeline(self->channel), "x", NULL);
    run_elsewhere(self->elsewhere, self);
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type window_type = { .name = "window", .on_inactive = use_window };

/* The state of the channel when the loop has ended; then all of it is freed. */
static weir_channel_state end_loop_with(window *self)
{
    _Atomic(bool) is_freed = false, is_other_freed = false;
    weir_group *group = open_group(&(weir_group_config){ .loops = 1 });
    weir_executor *loop = weir_group_at(group, 0);
    weir_channel *other = &new_stub(NULL, &is_other_freed)->base;
    self->channel = &new_stub(NULL, &is_freed)->base;
    weir_pipeline_add_last(weir_channel_pipeline(self->channel), "x", &spy, NULL);
    weir_pipeline_add_last(weir_channel_pipeline(other), "window", &window_type, self);
    register_on(self->channel, loop);
    register_on(other, loop);
    leave_loop(self->channel, loop);
    spy_forget();
    harness_log_begin(WEIR_LOG_ERROR); /* that a task was left may be warned of */
    assert_int_equal(weir_group_shutdown(group, 0, 0), 0);
    weir_group_free(group);
    assert_int_equal(harness_log_end(), 0);
    weir_channel_state state = weir_channel_get_state(self->channel);
    weir_channel_release(other);
    assert_true(is_other_freed);
    weir_channel_release(self->channel);
    assert_true(is_freed);
    return state;
}

static void a_channel_off_its_loop_is_closed_from_elsewhere_while_the_loop_ends(void **state)
{
    (void)state;
    window w = { .elsewhere = close_it };
    assert_int_equal(end_loop_with(&w), WEIR_CHANNEL_UNREGISTERED);
    assert_trace("x.close x.on_inactive x.removed");
}

static void a_removal_and_an_addition_while_the_loop_ends_leave_nothing(void **state)
{
    (void)state;
    window w = { .elsewhere = add_to_it, .removes = true, .removed = -1, .added = -1 };
    assert_int_equal(end_loop_with(&w), WEIR_CHANNEL_OPEN);
    assert_int_equal(w.removed, 0);
    assert_int_equal(w.added, 0);
    assert_trace("x.removed y.removed");
}

static void a_loop_that_ends_with_an_open_channel_logs_nothing(void **state)
{
    (void)state;
    for (int is_manual = 0; is_manual < 2; is_manual++) {
        story to = STORY;
        ear closed;
        weir_group *group = open_group(&(weir_group_config){ .loops = 1, .is_manual = is_manual });
        weir_channel *channel = &new_stub(&to, NULL)->base;
        register_on(channel, weir_group_at(group, 0));
        ear_listen(&closed, &to, "closed", weir_channel_closed(channel));
        harness_log_begin(WEIR_LOG_WARN);
        assert_int_equal(weir_group_shutdown(group, 0, 0), 0);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        weir_group_free(group);
        assert_int_equal(harness_log_end(), 0);
        assert_int_equal(closed.told, 1);
        assert_true(story_has(&to, "inactive unregistered removed"));
        assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
        weir_channel_release(channel);
    }
}

static void a_transport_that_stays_busy_is_closed_by_force_when_the_loop_ends(void **state)
{
    (void)state;
    for (int is_asked = 0; is_asked < 2; is_asked++) {
        story to = STORY;
        ear closed, written, close;
        _Atomic(bool) is_freed = false;
        weir_group *group = open_group(&(weir_group_config){ .loops = 1 });
        stub *self = new_stub(&to, &is_freed);
        weir_channel *channel = &self->base;
        self->is_busy = true;
        register_on(channel, weir_group_at(group, 0));
        story_is(&to, "added registered active");
        ear_listen(&closed, NULL, "", weir_channel_closed(channel));
        write_text(channel, "x", &written, NULL);
        if (is_asked)
            call_with_ear(weir_channel_close, channel, &close, NULL, "");
        assert_int_equal(call_on(weir_group_at(group, 0), nothing, NULL), 0);
        assert_int_equal(closed.told, 0);
        harness_log_begin(WEIR_LOG_WARN);
        assert_int_equal(weir_group_shutdown(group, 0, WEIR_MS(20)), 0);
        weir_group_free(group);
        assert_true(harness_log_has("ends with 1 channels that did not close"));
        assert_int_equal(harness_log_end(), 1);
        assert_int_equal(closed.told, 1);
        assert_int_equal(written.told, 1);
        assert_int_equal(written.code, WEIR_ECLOSED);
        if (is_asked)
            assert_true(close.told == 1 && close.code == 0);
        story_is(&to, "inactive unregistered removed");
        assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
        stub_become_quiet(self); /* too late to matter */
        assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
        weir_channel_release(channel);
        assert_true(is_freed);
    }
}

/* Timers of handlers that are due at the same time --------------------------------------------- */

typedef struct twins {
    weir_ctx_timer first, second;
} twins;

/* What the first one does in its fire; the second one waits in the queue by then. */
typedef struct twin_order {
    void (*act)(weir_ctx *ctx, twins *self);
    pair *loops;
    weir_executor *target;
    weir_ctx *ctx;
    int first_fires, second_fires, code;
    weir_executor *second_fired_on;
} twin_order;

static void first_fires(weir_ctx_timer *timer, weir_ctx *ctx)
{
    twin_order *order = weir_ctx_arg(ctx);
    order->first_fires++;
    if (order->act != NULL)
        order->act(ctx, WEIR_CONTAINER(timer, twins, first));
}

static void second_fires(weir_ctx_timer *timer, weir_ctx *ctx)
{
    twin_order *order = weir_ctx_arg(ctx);
    (void)timer;
    order->second_fires++;
    order->second_fired_on = weir_executor_current();
}

static void twins_added(weir_ctx *ctx)
{
    twins *self = weir_ctx_state(ctx);
    twin_order *order = weir_ctx_arg(ctx);
    order->ctx = ctx;
    self->first.fire = first_fires;
    self->second.fire = second_fires;
    assert_int_equal(weir_ctx_schedule(ctx, &self->first, WEIR_MS(10)), 0);
    assert_int_equal(weir_ctx_schedule(ctx, &self->second, WEIR_MS(10) + 1), 0);
}

static const weir_handler_type twins_type = {
    .name = "twins",
    .state_size = sizeof(twins),
    .added = twins_added,
};

static void schedule_second(weir_ctx *ctx, twins *self)
{
    twin_order *order = weir_ctx_arg(ctx);
    order->code = weir_ctx_schedule(ctx, &self->second, WEIR_MS(1000));
}

static void cancel_second(weir_ctx *ctx, twins *self)
{
    weir_ctx_cancel(ctx, &self->second);
}

static void cancel_and_schedule_second(weir_ctx *ctx, twins *self)
{
    cancel_second(ctx, self);
    schedule_second(ctx, self);
}

static void move_to_target(weir_ctx *ctx, twins *self)
{
    twin_order *order = weir_ctx_arg(ctx);
    (void)self;
    weir_channel_move(weir_ctx_channel(ctx), order->target, NULL);
}

static void remove_twins(weir_ctx *ctx, twins *self)
{
    twin_order *order = weir_ctx_arg(ctx);
    (void)self;
    order->code = weir_ctx_remove(ctx);
}

static weir_embedded *open_twins(pair *loops, twin_order *order)
{
    open_pair(loops);
    order->loops = loops;
    weir_embedded *e = open_on_pair(loops, NULL);
    weir_pipeline_add_last(weir_embedded_pipeline(e), "twins", &twins_type, order);
    run_pair(loops);
    return e;
}

/* Both are due in one look at the clock. */
static weir_embedded *fire_twins(pair *loops, twin_order *order)
{
    weir_embedded *e = open_twins(loops, order);
    advance_pair(loops, WEIR_MS(20));
    assert_int_equal(order->first_fires, 1);
    assert_int_equal(order->code, 0);
    return e;
}

static void twins_fire_together(void **state)
{
    (void)state;
    pair loops;
    twin_order order = { .act = NULL };
    weir_embedded *e = fire_twins(&loops, &order);
    assert_int_equal(order.second_fires, 1);
    close_on_pair(&loops, e);
}

static void a_due_timer_gets_another_time_from_the_one_before_it(void **state)
{
    (void)state;
    void (*acts[])(weir_ctx *, twins *) = { schedule_second, cancel_and_schedule_second };
    for (int i = 0; i < 2; i++) {
        pair loops;
        twin_order order = { .act = acts[i] };
        weir_embedded *e = fire_twins(&loops, &order);
        assert_int_equal(order.second_fires, 0);
        advance_pair(&loops, WEIR_MS(1000) - 1);
        assert_int_equal(order.second_fires, 0);
        advance_pair(&loops, 1);
        assert_int_equal(order.second_fires, 1);
        advance_pair(&loops, WEIR_MS(5000));
        assert_int_equal(order.second_fires, 1);
        close_on_pair(&loops, e);
    }
}

static void a_due_timer_is_cancelled_by_the_one_before_it(void **state)
{
    (void)state;
    pair loops;
    twin_order order = { .act = cancel_second };
    weir_embedded *e = fire_twins(&loops, &order);
    advance_pair(&loops, WEIR_MS(5000));
    assert_int_equal(order.second_fires, 0);
    close_on_pair(&loops, e);
}

static void a_due_timer_fires_after_the_move_that_the_one_before_it_began(void **state)
{
    (void)state;
    for (int is_away = 0; is_away < 2; is_away++) {
        pair loops;
        twin_order order = { .act = move_to_target };
        weir_embedded *e = open_twins(&loops, &order);
        order.target = is_away ? loops.second : loops.first;
        advance_pair(&loops, WEIR_MS(20));
        assert_int_equal(order.first_fires, 1);
        assert_int_equal(order.second_fires, 1);
        assert_ptr_equal(order.second_fired_on, order.target);
        assert_ptr_equal(executor_of(weir_embedded_channel(e)), order.target);
        assert_true(weir_channel_is_active(weir_embedded_channel(e)));
        advance_pair(&loops, WEIR_MS(5000));
        assert_int_equal(order.second_fires, 1);
        close_on_pair(&loops, e);
    }
}

static void a_due_timer_goes_with_the_handler_that_the_one_before_it_removed(void **state)
{
    (void)state;
    pair loops;
    twin_order order = { .act = remove_twins };
    weir_embedded *e = fire_twins(&loops, &order);
    advance_pair(&loops, WEIR_MS(5000)); /* the state is gone: asan would see it fire */
    assert_int_equal(order.second_fires, 0);
    assert_int_equal(weir_pipeline_count(weir_embedded_pipeline(e)), 0);
    close_on_pair(&loops, e);
}

static int remove_by_task(void *arg)
{
    twin_order *order = arg;
    order->code = weir_ctx_remove(order->ctx);
    return 0;
}

static void due_timers_go_with_a_handler_that_a_task_before_them_removed(void **state)
{
    (void)state;
    pair loops;
    twin_order order = { .act = NULL, .code = -1 };
    weir_embedded *e = open_twins(&loops, &order);
    weir_virtual_clock_advance(&loops.clock, WEIR_MS(20));
    on_loop(&loops, loops.first, remove_by_task, &order);
    assert_int_equal(order.code, 0);
    advance_pair(&loops, WEIR_MS(5000));
    assert_int_equal(order.first_fires + order.second_fires, 0);
    close_on_pair(&loops, e);
}

/* Timers that cannot be moved ------------------------------------------------------------------ */

typedef struct triplets {
    weir_ctx_timer timers[3];
} triplets;

/* What the handler does when it hears of the failure. */
typedef struct triplet_order {
    void (*on_failure)(weir_ctx *ctx, triplets *self);
    int fires[3], errors, code;
} triplet_order;

static void triplet_fires(weir_ctx_timer *timer, weir_ctx *ctx)
{
    triplets *self = weir_ctx_state(ctx);
    triplet_order *order = weir_ctx_arg(ctx);
    order->fires[timer - self->timers]++;
}

static void triplets_added(weir_ctx *ctx)
{
    triplets *self = weir_ctx_state(ctx);
    for (int i = 0; i < 3; i++) {
        self->timers[i].fire = triplet_fires;
        assert_int_equal(weir_ctx_schedule(ctx, &self->timers[i], WEIR_MS(10 + i)), 0);
    }
}

static void triplets_on_error(weir_ctx *ctx, const weir_error *error)
{
    triplet_order *order = weir_ctx_arg(ctx);
    order->errors++;
    order->code = error->code;
    order->on_failure(ctx, weir_ctx_state(ctx));
}

static const weir_handler_type triplets_type = {
    .name = "triplets",
    .state_size = sizeof(triplets),
    .added = triplets_added,
    .on_error = triplets_on_error,
};

static void cancel_next(weir_ctx *ctx, triplets *self)
{
    weir_ctx_cancel(ctx, &self->timers[1]);
}

static void schedule_lost(weir_ctx *ctx, triplets *self)
{
    assert_int_equal(weir_ctx_schedule(ctx, &self->timers[0], WEIR_MS(10)), 0);
}

static int attach_to_poor_loop(weir_channel *channel)
{
    (void)channel;
    harness_fail_nth("alloc", 1, -ENOMEM); /* the next is for the loop's first timer */
    return 0;
}

/* The first of three timers is lost on the way to another loop. */
static void move_triplets(triplet_order *order)
{
    pair loops;
    weir_transport transport = stub_transport;
    open_pair(&loops);
    weir_channel *channel = &new_stub_of(&transport, NULL, NULL)->base;
    weir_pipeline_add_last(weir_channel_pipeline(channel), "triplets", &triplets_type, order);
    weir_channel_register(channel, loops.first, NULL);
    run_pair(&loops);
    transport.attach = attach_to_poor_loop;
    weir_channel_move(channel, loops.second, NULL);
    run_pair(&loops);
    assert_true(harness_fail_end() > 0);
    assert_ptr_equal(executor_of(channel), loops.second);
    assert_int_equal(order->errors, 1);
    assert_int_equal(order->code, -ENOMEM);
    advance_pair(&loops, WEIR_MS(100));
    weir_channel_close(channel, NULL);
    run_pair(&loops);
    weir_channel_release(channel);
    end_group(loops.group);
}

static void a_handler_may_cancel_when_it_hears_that_a_timer_is_lost(void **state)
{
    (void)state;
    triplet_order order = { .on_failure = cancel_next };
    move_triplets(&order);
    assert_int_equal(order.fires[0], 0);
    assert_int_equal(order.fires[1], 0);
    assert_int_equal(order.fires[2], 1);
}

static void a_handler_may_schedule_again_what_was_lost(void **state)
{
    (void)state;
    triplet_order order = { .on_failure = schedule_lost };
    move_triplets(&order);
    for (int i = 0; i < 3; i++)
        assert_int_equal(order.fires[i], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* With threads, first: a loop that a failing case leaves behind would disturb them. */
        weir_case(a_handler_that_never_got_to_its_executor_is_removed),
        weir_case(a_move_to_a_group_that_is_freed_meanwhile_fails_and_closes),
        weir_case(promises_set_during_moves_are_told_once_where_the_channel_is),
        weir_case(a_channel_off_its_loop_is_closed_from_elsewhere_while_the_loop_ends),
        weir_case(a_removal_and_an_addition_while_the_loop_ends_leave_nothing),
        weir_case(a_loop_that_ends_with_an_open_channel_logs_nothing),
        weir_case(a_transport_that_stays_busy_is_closed_by_force_when_the_loop_ends),
        /* By hand. */
        weir_case(an_unregistered_channel_with_a_waiting_write_goes_with_its_last_reference),
        weir_case(a_promise_that_outlives_its_channel_keeps_only_its_memory),
        weir_case(the_loop_does_not_replace_a_handler_that_is_only_announced),
        weir_case(a_duplex_takes_out_its_halves_and_not_what_a_half_has_added),
        weir_case(a_log_sink_may_look_at_the_pipeline_whose_mismatch_is_logged),
        weir_case(an_embedded_channel_is_not_run_or_fed_by_its_handlers),
        weir_case(a_lane_on_a_group_of_loops_is_refused),
        weir_case(a_lane_without_memory_still_passes_on_inactive),
        weir_case(finish_lingers_after_a_shutdown_that_a_handler_has_done),
        weir_case(bytes_before_writable_are_those_above_the_water_marks_only),
        weir_case(a_write_after_close_fails_though_a_send_is_under_way),
        weir_case(a_hundred_thousand_shrunk_messages_do_not_use_up_the_stack),
        weir_case(a_shrunk_message_without_a_promise_is_an_error_and_closes),
        weir_case(a_shrunk_piece_closes_though_it_has_a_promise),
        weir_case(what_is_completed_while_it_leaves_is_told_on_the_new_loop),
        weir_case(twins_fire_together),
        weir_case(a_due_timer_gets_another_time_from_the_one_before_it),
        weir_case(a_due_timer_is_cancelled_by_the_one_before_it),
        weir_case(a_due_timer_fires_after_the_move_that_the_one_before_it_began),
        weir_case(a_due_timer_goes_with_the_handler_that_the_one_before_it_removed),
        weir_case(due_timers_go_with_a_handler_that_a_task_before_them_removed),
        weir_case(a_handler_may_cancel_when_it_hears_that_a_timer_is_lost),
        weir_case(a_handler_may_schedule_again_what_was_lost),
        weir_case(a_deregistration_inside_added_comes_after_the_registration),
        weir_case(an_embedded_channel_is_not_written_or_closed_by_its_handlers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
