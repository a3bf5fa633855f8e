/* SPDX-License-Identifier: MIT */
/* Pipelines: the way of events through the handlers, and the initializer. */
#include "channel/channel.h"
#include "spy.h"

/* A transport that keeps nothing, so that the tail has to end what nobody took. ---------------- */

static bool bare_is_active(const weir_channel *channel)
{
    (void)channel;
    return true;
}

static void bare_ignore(weir_channel *channel)
{
    (void)channel;
}

static void bare_flush(weir_channel *channel)
{
    weir_msg *msg;
    while ((msg = weir__outbound_take(&channel->out.queue)) != NULL)
        weir_msg_release(msg);
    weir__channel_sent(channel, 0);
}

static bool bare_quiesce(weir_channel *channel, bool is_closing)
{
    (void)channel;
    (void)is_closing;
    return true;
}

static void bare_destroy(weir_channel *channel)
{
    free(channel);
}

static const weir_transport bare_transport = {
    .name = "bare",
    .is_stream = true,
    .is_active = bare_is_active,
    .start_reading = bare_ignore,
    .stop_reading = bare_ignore,
    .flush = bare_flush,
    .quiesce = bare_quiesce,
    .close = bare_ignore,
    .destroy = bare_destroy,
};

static weir_channel *bare_new(void)
{
    weir_channel *channel = calloc(1, sizeof *channel);
    assert_non_null(channel);
    weir__channel_init(channel, &bare_transport, NULL);
    return channel;
}

/* On the loop of an embedded channel, which is the way to run it. */
static void bare_register(weir_channel *channel, weir_embedded *host)
{
    weir_channel_register(channel, weir_embedded_executor(host), NULL);
    assert_int_equal(weir_embedded_run(host), 0);
}

static void bare_end(weir_channel *channel, weir_embedded *host)
{
    weir_channel_close(channel, NULL);
    assert_int_equal(weir_embedded_run(host), 0);
    weir_channel_release(channel);
    spy_end(host);
}

/* Rows ----------------------------------------------------------------------------------------- */

static void s139_ends_are_fixed(void **state)
{
    (void)state;
    weir_handler_info info;
    weir_embedded *embedded = spy_open_unregistered(no_handlers);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    const char *const ends[] = { "head", "tail" };
    assert_int_equal(weir_pipeline_count(pipeline), 0);
    assert_int_equal(weir_pipeline_at(pipeline, 0, &info), WEIR_ENOTFOUND);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_pipeline_find(pipeline, ends[i], &info), WEIR_ENOTFOUND);
        assert_null(weir_pipeline_ctx(pipeline, ends[i]));
        assert_int_equal(weir_pipeline_remove(pipeline, ends[i], NULL), WEIR_ENOTFOUND);
        assert_int_equal(weir_pipeline_replace(pipeline, ends[i], "x", &spy, NULL), WEIR_ENOTFOUND);
        assert_int_equal(weir_pipeline_add_before(pipeline, ends[i], "x", &spy, NULL),
                         WEIR_ENOTFOUND);
        assert_int_equal(weir_pipeline_add_after(pipeline, ends[i], "x", &spy, NULL),
                         WEIR_ENOTFOUND);
    }
    assert_int_equal(weir_pipeline_find_type(pipeline, &weir__head_type, NULL), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_find_type(pipeline, &weir__tail_type, NULL), WEIR_ENOTFOUND);
    /* Names are the user's, all of them; and whoever comes is between the ends. */
    assert_int_equal(weir_pipeline_add_last(pipeline, "head", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_first(pipeline, "tail", &spy, NULL), 0);
    spy_expect_names(pipeline, "tail, head");
    spy_register(embedded);
    spy_forget();
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("x")), 0);
    assert_trace("tail.on_read head.on_read tail.on_read_complete head.on_read_complete");
    spy_expect_text(weir_embedded_read_inbound(embedded), "x");
    spy_end(embedded);
}

static void s140_works_without_handlers(void **state)
{
    (void)state;
    weir_embedded *embedded;
    weir_address address;
    weir_embedded_config config = { .is_unconnected = true };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_promise *connected = weir_channel_promise(channel);
    weir_promise *written = weir_channel_promise(channel);
    weir_promise *closed = weir_channel_promise(channel);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_REGISTERED);
    assert_int_equal(weir_address_parse(&address, "127.0.0.1:1", NULL), 0);
    weir_channel_connect(channel, &address, NULL, connected);
    weir_embedded_run(embedded);
    assert_int_equal(weir_future_code(weir_promise_future(connected)), 0);
    assert_true(weir_channel_is_active(channel));
    assert_true(weir_embedded_is_reading(embedded));
    weir_channel_write_and_flush(channel, spy_text("hello"), written);
    weir_embedded_run(embedded);
    assert_int_equal(weir_future_code(weir_promise_future(written)), 0);
    spy_expect_text(weir_embedded_read_outbound(embedded), "hello");
    weir_channel_close(channel, closed);
    weir_embedded_run(embedded);
    assert_int_equal(weir_future_code(weir_promise_future(closed)), 0);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
    weir_promise_release(connected);
    weir_promise_release(written);
    weir_promise_release(closed);
    spy_end(embedded);
}

static int deaths;

static void count_death(weir_msg *msg)
{
    deaths++;
    free(msg);
}

static const weir_msg_type mortal_type = { .name = "mortal", .destroy = count_death };

static weir_msg *mortal(void)
{
    weir_msg *msg = malloc(sizeof *msg);
    assert_non_null(msg);
    weir_msg_init(msg, &mortal_type);
    return msg;
}

static void s141_tail_discards(void **state)
{
    (void)state;
    weir_channel_stats stats;
    weir_embedded *host = spy_open(no_handlers);
    weir_channel *channel = bare_new();
    assert_int_equal(weir_pipeline_add_last(weir_channel_pipeline(channel), "x", &spy_writes, NULL),
                     0);
    bare_register(channel, host);
    deaths = 0;
    harness_log_begin(WEIR_LOG_DEBUG);
    weir_pipeline_fire_read(weir_channel_pipeline(channel), mortal());
    weir_embedded_run(host);
    assert_int_equal(deaths, 1);
    assert_true(harness_log_has("discarded a message of type mortal"));
    assert_int_equal(harness_log_end(), 1);
    /* What is written passes the tail by. */
    weir_channel_write_and_flush(channel, mortal(), NULL);
    weir_embedded_run(host);
    assert_trace("x.write");
    assert_int_equal(deaths, 2);
    weir_channel_get_stats(channel, &stats);
    assert_int_equal(stats.discarded, 1);
    assert_int_equal(stats.messages_out, 1);
    /* An event that nobody wanted is no cause for a line. */
    harness_log_begin(WEIR_LOG_DEBUG);
    weir_pipeline_fire_event(weir_channel_pipeline(channel), mortal());
    weir_embedded_run(host);
    assert_int_equal(harness_log_end(), 0);
    assert_int_equal(deaths, 3);
    bare_end(channel, host);
}

static void s142_inbound_from_the_head_outbound_from_the_tail(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy_reads, NULL },
                            { "x", &spy_writes, NULL },
                            { "b", &spy_reads, NULL },
                            { "y", &spy_writes, NULL },
                            { "c", &spy_reads, NULL },
                            { "z", &spy_writes, NULL },
                            { 0 } };
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("in")), 0);
    assert_trace("a.on_read b.on_read c.on_read");
    assert_int_equal(weir_embedded_write_outbound(embedded, spy_text("out")), 0);
    assert_trace("z.write y.write x.write");
    spy_expect_text(weir_embedded_read_inbound(embedded), "in");
    spy_expect_text(weir_embedded_read_outbound(embedded), "out");
    spy_end(embedded);
}

static void write_by_ctx(weir_ctx *ctx)
{
    weir_ctx_write_and_flush(ctx, spy_text("by ctx"), NULL);
}

static void write_by_channel(weir_ctx *ctx)
{
    weir_channel_write_and_flush(weir_ctx_channel(ctx), spy_text("by channel"), NULL);
}

static void s143_channel_from_the_end_ctx_from_its_place(void **state)
{
    (void)state;
    spy_act by_ctx = { "on_read", write_by_ctx, true, false };
    spy_act by_channel = { "on_read_complete", write_by_channel, true, false };
    spy_entry entries[] = { { "x", &spy_writes, NULL },
                            { "m", &spy, &by_ctx },
                            { "n", &spy, &by_channel },
                            { "z", &spy_writes, NULL },
                            { 0 } };
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_inbound_part(embedded, spy_text("in")), 0);
    assert_trace("m.on_read x.write");
    assert_int_equal(weir_embedded_end_batch(embedded), 0);
    assert_trace("m.on_read_complete n.on_read_complete z.write n.write m.write x.write "
                 "n.flush m.flush");
    spy_expect_text(weir_embedded_read_outbound(embedded), "by ctx");
    spy_expect_text(weir_embedded_read_outbound(embedded), "by channel");
    spy_end(embedded);
}

/* Every event there is, from the channel; promises of those that have one. */
static int fire_everything(void *arg)
{
    weir_embedded *embedded = arg;
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    weir_ctx *first = weir_pipeline_ctx(pipeline, "a");
    weir_address address;
    weir_address_parse(&address, "127.0.0.1:1", NULL);
    weir_ctx_fire_registered(first);
    weir_ctx_fire_active(first);
    weir_ctx_fire_writability(first);
    weir_ctx_fire_inactive(first);
    weir_ctx_fire_unregistered(first);
    weir_pipeline_fire_read(pipeline, spy_text("in"));
    weir_pipeline_fire_read_complete(pipeline);
    weir_pipeline_fire_event(pipeline, spy_text("event"));
    weir_pipeline_fire_error(pipeline, -EIO, "all");
    weir_channel_bind(channel, &address, NULL);
    weir_channel_connect(channel, &address, NULL, NULL);
    weir_channel_write(channel, spy_text("out"), NULL);
    weir_channel_flush(channel);
    weir_channel_read(channel);
    weir_channel_shutdown(channel, NULL);
    weir_channel_deregister(channel, NULL);
    return 0;
}

static void s144_handler_passes_on_what_it_does_not_override(void **state)
{
    (void)state;
    spy_entry entries[] = {
        { "a", &spy_all, NULL }, { "one", &spy_errors, NULL }, { "z", &spy_all, NULL }, { 0 }
    };
    weir_error error;
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(spy_call(embedded, fire_everything), 0);
    assert_trace("z.on_registered z.on_active z.on_writability z.on_inactive z.on_unregistered "
                 "a.on_read z.on_read a.on_read_complete z.on_read_complete z.read a.read "
                 "a.on_event z.on_event a.on_error(EIO) one.on_error(EIO) z.on_error(EIO) "
                 "z.bind a.bind z.connect a.connect z.write a.write z.flush a.flush "
                 "z.read a.read z.shutdown a.shutdown z.deregister a.deregister "
                 "a.on_unregistered z.on_unregistered");
    assert_true(weir_embedded_take_error(embedded, &error));
    assert_string_equal(error.message, "all");
    spy_expect_text(weir_embedded_read_inbound(embedded), "in");
    spy_expect_text(weir_embedded_read_outbound(embedded), "out");
    spy_register(embedded);
    spy_forget();
    weir_channel_disconnect(weir_embedded_channel(embedded), NULL);
    weir_embedded_run(embedded);
    /* A stream has no other way to disconnect than to close. */
    assert_trace("z.disconnect a.disconnect a.on_inactive z.on_inactive a.on_unregistered "
                 "z.on_unregistered z.removed a.removed");
    spy_end(embedded);
}

static void s145_message_is_transformed_on_its_way(void **state)
{
    (void)state;
    spy_entry entries[] = {
        { "d", &doubler, NULL }, { "e", &doubler, NULL }, { "p", &printer, NULL }, { 0 }
    };
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_inbound(embedded, number_new(3)), 0);
    assert_int_equal(weir_embedded_write_inbound(embedded, number_new(-5)), 0);
    spy_expect_text(weir_embedded_read_inbound(embedded), "<12>");
    spy_expect_text(weir_embedded_read_inbound(embedded), "<-20>");
    spy_end(embedded);
}

static void s146_reply_goes_through_the_outbound_handlers(void **state)
{
    (void)state;
    spy_act reply = { "on_read", write_by_ctx, true, false };
    spy_entry entries[] = { { "x", &spy_writes, NULL },
                            { "y", &spy_writes, NULL },
                            { "z", &spy_writes, NULL },
                            { "a", &spy_reads, NULL },
                            { "b", &spy_reads, NULL },
                            { "c", &spy_reads, &reply },
                            { 0 } };
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("in")), 0);
    assert_trace("a.on_read b.on_read c.on_read z.write y.write x.write");
    spy_expect_text(weir_embedded_read_outbound(embedded), "by ctx");
    spy_end(embedded);
}

static void fail_with_arg(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_fail(ctx, *(const int *)weir_ctx_arg(ctx), "%s failed", weir_ctx_name(ctx));
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type failing = { .name = "failing", .on_read = fail_with_arg };

static void s147_error_that_nobody_takes_is_logged(void **state)
{
    (void)state;
    int code = -EIO;
    spy_entry entries[] = { { "f", &failing, &code }, { "r", &spy_reads, NULL }, { 0 } };
    weir_embedded *host = spy_open(no_handlers);
    weir_channel *channel = bare_new();
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    assert_int_equal(spy_add_entries(pipeline, entries), 0);
    bare_register(channel, host);
    harness_log_begin(WEIR_LOG_WARN);
    weir_pipeline_fire_read(pipeline, spy_text("x"));
    weir_embedded_run(host);
    assert_true(harness_log_has("an error that no handler took: f: f failed (EIO)"));
    assert_int_equal(harness_log_end(), 1);
    assert_trace("r.on_read");
    assert_true(weir_channel_is_active(channel));
    bare_end(channel, host);
}

static void s148_catcher_at_the_end_sees_all_errors(void **state)
{
    (void)state;
    int codes[] = { -EIO, -EPERM, -ENOSPC };
    spy_entry entries[] = { { "a", &failing, &codes[0] },
                            { "b", &failing, &codes[1] },
                            { "c", &failing, &codes[2] },
                            { "last", &spy, NULL },
                            { 0 } };
    weir_error error;
    const char *const origins[] = { "a", "b", "c" };
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("x")), -EIO);
    assert_trace("last.on_error(EIO) last.on_error(EPERM) last.on_error(ENOSPC) last.on_read "
                 "last.on_read_complete");
    for (int i = 0; i < 3; i++) {
        assert_true(weir_embedded_take_error(embedded, &error));
        assert_int_equal(error.code, codes[i]);
        assert_string_equal(error.origin, origins[i]);
    }
    assert_false(weir_embedded_take_error(embedded, &error));
    weir_msg_release(weir_embedded_read_inbound(embedded));
    spy_end(embedded);
}

static void s149_whole_life_in_order(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy_all, NULL }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    assert_trace("");
    spy_register(embedded);
    assert_trace("a.added a.on_registered a.on_active a.read");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_embedded_write_inbound_part(embedded, spy_text("1")), 0);
        assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("2")), 0);
        assert_trace("a.on_read a.on_read a.on_read_complete a.read");
        weir_msg_release(weir_embedded_read_inbound(embedded));
        weir_msg_release(weir_embedded_read_inbound(embedded));
    }
    assert_int_equal(weir_embedded_close(embedded), 0);
    assert_trace("a.close a.on_inactive a.on_unregistered a.removed");
    spy_end(embedded);
}

static const weir_handler_type leaver = { .name = "leaver", .removed = spy_removed };

static void s150_handlers_leave_from_tail_to_head(void **state)
{
    (void)state;
    spy_entry entries[] = {
        { "a", &leaver, NULL }, { "b", &spy, NULL }, { "c", &leaver, NULL }, { 0 }
    };
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(weir_embedded_close(embedded), 0);
    assert_trace("b.close b.on_inactive b.on_unregistered c.removed b.removed a.removed");
    assert_int_equal(weir_pipeline_count(weir_embedded_pipeline(embedded)), 0);
    assert_int_equal(weir_pipeline_add_last(weir_embedded_pipeline(embedded), "d", &spy, NULL),
                     WEIR_ECLOSED);
    spy_end(embedded);
    assert_trace("");
}

static void count_on_read(weir_ctx *ctx, weir_msg *msg)
{
    int *count = weir_ctx_state(ctx);
    assert_int_equal((uintptr_t)count % 16, 0);
    ++*count;
    weir_msg_release(msg);
    spy_note("%s=%d", weir_ctx_name(ctx), *count);
}

static const weir_handler_type counter = {
    .name = "counter",
    .state_size = sizeof(int),
    .on_read = count_on_read,
};

static void s151_state_is_the_contexts(void **state)
{
    (void)state;
    spy_entry first[] = { { "a", &counter, NULL }, { 0 } };
    spy_entry second[] = { { "b", &counter, NULL }, { 0 } };
    weir_embedded *one = spy_open(first), *two = spy_open(second);
    weir_embedded *const turns[] = { one, two, one, one, two };
    for (int i = 0; i < 5; i++)
        assert_int_equal(weir_embedded_write_inbound(turns[i], spy_text("x")), 0);
    assert_trace("a=1 b=1 a=2 a=3 b=2");
    spy_end(two);
    spy_end(one);
}

/* Adds `by` to every byte of a message, which it owns. */
static weir_msg *shift_bytes(weir_msg *msg, int by)
{
    char bytes[64];
    size_t size = weir_buf_readable((weir_buf *)msg);
    assert_int_equal(weir_buf_read_bytes((weir_buf *)msg, bytes, size), 0);
    weir_msg_release(msg);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(bytes[i] + by);
    return &weir_buf_from(bytes, size)->msg;
}

static void shift_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_fire_read(ctx, shift_bytes(msg, -1));
}

static void shift_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_ctx_write(ctx, shift_bytes(msg, 1), promise);
}

static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write_and_flush(ctx, msg, NULL);
}

static const weir_handler_type shift = {
    .name = "shift",
    .on_read = shift_on_read,
    .write = shift_write,
};
static const weir_handler_type echo = { .name = "echo", .on_read = echo_on_read };

/* What one has sent is what the other reads; the wire shows the bytes. */
static void carry(weir_embedded *from, weir_embedded *to, const char *wire)
{
    weir_msg *msg = weir_embedded_read_outbound(from);
    assert_non_null(msg);
    assert_int_equal(weir_buf_readable((weir_buf *)msg), strlen(wire));
    spy_expect_text(weir_msg_retain(msg), wire);
    assert_int_equal(weir_msg_refs(msg), 1);
    weir_msg_release(msg);
    assert_int_equal(weir_embedded_write_inbound(to, spy_text(wire)), 0);
}

static void s152_client_and_server_side_of_a_pair(void **state)
{
    (void)state;
    spy_entry of_server[] = { { "shift", &shift, NULL }, { "echo", &echo, NULL }, { 0 } };
    spy_entry of_client[] = { { "shift", &shift, NULL }, { 0 } };
    weir_embedded *server = spy_open(of_server), *client = spy_open(of_client);
    assert_int_equal(weir_embedded_write_outbound(client, spy_text("HAL")), 0);
    carry(client, server, "IBM");
    carry(server, client, "IBM");
    spy_expect_text(weir_embedded_read_inbound(client), "HAL");
    spy_end(client);
    spy_end(server);
}

/* The initializer ------------------------------------------------------------------------------ */

static int inits;

static int init_two(weir_channel *channel, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    char names[64];
    weir_pipeline_names(pipeline, names, sizeof names);
    spy_note("init(%s)", names);
    inits++;
    int code = weir_pipeline_add_last(pipeline, "a", &spy_coming, NULL);
    if (code == 0)
        code = weir_pipeline_add_last(pipeline, "b", &spy_coming, NULL);
    return code < 0 || arg == NULL ? code : *(int *)arg;
}

static void s127_initializer_runs_once_and_leaves(void **state)
{
    (void)state;
    weir_embedded *embedded = spy_open_unregistered(no_handlers);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    inits = 0;
    assert_int_equal(weir_pipeline_add_initializer(NULL, init_two, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_add_initializer(pipeline, NULL, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_add_initializer(pipeline, init_two, NULL), 0);
    assert_int_equal(inits, 0);
    spy_register(embedded);
    assert_trace("init(initializer#0) a.added b.added");
    spy_expect_names(pipeline, "a, b");
    weir_channel_deregister(weir_embedded_channel(embedded), NULL);
    weir_embedded_run(embedded);
    assert_int_equal(weir_channel_get_state(weir_embedded_channel(embedded)), WEIR_CHANNEL_OPEN);
    spy_register(embedded);
    assert_int_equal(inits, 1);
    assert_trace("");
    spy_end(embedded);
}

static void s127_failing_initializer_closes_its_channel_only(void **state)
{
    (void)state;
    int code = -EACCES;
    spy_entry echoing[] = { { "echo", &echo, NULL }, { 0 } };
    weir_embedded *host = spy_open(echoing);
    weir_channel *channel = bare_new();
    assert_int_equal(weir_pipeline_add_initializer(weir_channel_pipeline(channel), init_two, &code),
                     0);
    harness_log_begin(WEIR_LOG_WARN);
    bare_register(channel, host);
    assert_true(harness_log_has("could not be initialised, and is closed"));
    assert_int_equal(harness_log_end(), 1);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
    assert_int_equal(weir_future_code(weir_channel_closed(channel)), 0);
    assert_int_equal(weir_embedded_write_inbound(host, spy_text("alive")), 0);
    spy_expect_text(weir_embedded_read_outbound(host), "alive");
    bare_end(channel, host);
}

/* As embedded.h says. */
static void embedded_channel_tells_what_init_failed_with(void **state)
{
    (void)state;
    int code = -EACCES;
    weir_embedded *embedded = NULL;
    weir_error error = { .code = 0 };
    weir_embedded_config config = { .init = init_two, .arg = &code };
    assert_int_equal(weir_embedded_new(&embedded, &config, &error), -EACCES);
    assert_int_equal(error.code, -EACCES);
    assert_null(embedded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s139_ends_are_fixed),
        weir_case(s140_works_without_handlers),
        weir_case(s141_tail_discards),
        weir_case(s142_inbound_from_the_head_outbound_from_the_tail),
        weir_case(s143_channel_from_the_end_ctx_from_its_place),
        weir_case(s144_handler_passes_on_what_it_does_not_override),
        weir_case(s145_message_is_transformed_on_its_way),
        weir_case(s146_reply_goes_through_the_outbound_handlers),
        weir_case(s147_error_that_nobody_takes_is_logged),
        weir_case(s148_catcher_at_the_end_sees_all_errors),
        weir_case(s149_whole_life_in_order),
        weir_case(s150_handlers_leave_from_tail_to_head),
        weir_case(s151_state_is_the_contexts),
        weir_case(s152_client_and_server_side_of_a_pair),
        weir_case(s127_initializer_runs_once_and_leaves),
        weir_case(s127_failing_initializer_closes_its_channel_only),
        weir_case(embedded_channel_tells_what_init_failed_with),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
