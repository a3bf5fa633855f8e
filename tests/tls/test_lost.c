/* SPDX-License-Identifier: MIT */
/* Connections that are lost, before the handshake is done or then: why is told, once, and at once.
 */
#include "tls/hellos.h"
#include "tls/notes.h"
#include "tls/town.h"

#include <weir/tls_select.h>

#include <string.h>

/* Both ends of a pair, with what the handlers behind TLS have seen. */
typedef struct losing {
    pair both;
    notes seen[2];
    pair_end *ends[2];
} losing;

static void losing_begin_on(losing *self, bool allows_half_closure, weir_group *group)
{
    *self = (losing){ .both.server.tls.handshake_group = group };
    self->ends[0] = &self->both.client;
    self->ends[1] = &self->both.server;
    for (size_t i = 0; i < 2; i++) {
        self->ends[i]->last = &noting;
        self->ends[i]->last_arg = &self->seen[i];
        self->ends[i]->allows_half_closure = allows_half_closure;
    }
    pair_begin(&self->both);
}

static void losing_begin(losing *self, bool allows_half_closure)
{
    losing_begin_on(self, allows_half_closure, NULL);
}

/* It is over by now, for this reason, which nobody has heard twice. */
static void expect_lost(const losing *self, size_t i, int code)
{
    char expected[64];
    weir_channel *channel = weir_embedded_channel(self->ends[i]->embedded);
    weir_future *future = weir_tls_handshake(channel);
    snprintf(expected, sizeof expected, "active %s inactive ", weir_error_name(code));
    assert_string_equal(self->seen[i].text, expected);
    assert_int_equal(weir_future_code(future), code);
    assert_non_null(weir_future_error(future));
    assert_int_equal(weir_future_error(future)->code, code);
    assert_false(weir_channel_is_open(channel));
    pair_expect_error(self->ends[i], code);
    assert_false(weir_embedded_take_error(self->ends[i]->embedded, NULL));
}

static void a_reset_in_the_handshake_is_told_as_one(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < 2; i++) {
            losing self;
            losing_begin(&self, half);
            weir_embedded_end_inbound(self.ends[i]->embedded, -ECONNRESET);
            expect_lost(&self, i, -ECONNRESET);
            pair_finish(&self.both);
        }
    }
}

/* Without half-closure as well, though the channel would wait for what is still to be said. */
static void an_end_in_the_handshake_is_told_at_once(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < 2; i++) {
            losing self;
            losing_begin(&self, half);
            weir_channel *channel = weir_embedded_channel(self.ends[i]->embedded);
            weir_promise *waits = weir_channel_promise(channel);
            weir_channel_write_and_flush(channel, weir_buf_msg(weir_buf_from("x", 1)), waits);
            weir_embedded_run(self.ends[i]->embedded);
            weir_embedded_end_inbound(self.ends[i]->embedded, 0);
            expect_lost(&self, i, WEIR_EOF);
            assert_int_equal(weir_future_code(weir_promise_future(waits)), WEIR_EOF);
            weir_promise_release(waits);
            pair_finish(&self.both);
        }
    }
}

/* Who has asked for a shutdown before hears of it, too. */
static void so_does_a_shutdown_that_waits(void **state)
{
    losing self;
    (void)state;
    losing_begin(&self, false);
    weir_channel *channel = weir_embedded_channel(self.both.client.embedded);
    weir_promise *shut = weir_channel_promise(channel);
    weir_channel_shutdown(channel, shut);
    weir_embedded_run(self.both.client.embedded);
    assert_false(weir_future_is_done(weir_promise_future(shut)));
    weir_embedded_end_inbound(self.both.client.embedded, 0);
    expect_lost(&self, 0, WEIR_EOF);
    assert_int_equal(weir_future_code(weir_promise_future(shut)), WEIR_EOF);
    weir_promise_release(shut);
    pair_finish(&self.both);
}

/* A step that is computed elsewhere may be the last; when it was not, the end is told. */
static void an_end_while_a_step_is_away_is_told_behind_it(void **state)
{
    weir_group *others = new_group_of(1);
    blocker held;
    losing self;
    (void)state;
    losing_begin_on(&self, false, others);
    weir_embedded *server = self.both.server.embedded;
    block(&held, weir_group_at(others, 0));
    pair_carry_to(&self.both, &self.both.server);
    weir_embedded_end_inbound(server, 0);
    assert_string_equal(self.seen[1].text, "active ");
    unblock(&held);
    weir_future *future = weir_tls_handshake(weir_embedded_channel(server));
    WAIT_FOR(weir_embedded_run(server) >= 0 && weir_future_is_done(future));
    weir_embedded_run(server);
    expect_lost(&self, 1, WEIR_EOF);
    pair_finish(&self.both);
    end_group(others);
}

/* As when the other side is found to be gone by who sends. */
static void so_is_what_cannot_be_sent(void **state)
{
    losing self;
    (void)state;
    losing_begin(&self, false);
    weir_embedded_fail_sends(self.ends[1]->embedded, -EPIPE);
    pair_carry(&self.both);
    expect_lost(&self, 1, -EPIPE);
    pair_finish(&self.both);
}

static void a_close_notify_in_the_handshake_is_an_end(void **state)
{
    static const uint8_t close_notify[] = { 21, 3, 3, 0, 2, 1, 0 };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        losing self;
        losing_begin(&self, false);
        if (i == 1)
            pair_carry_to(&self.both, self.ends[1]);
        weir_embedded_write_inbound_bytes(self.ends[i]->embedded, close_notify,
                                          sizeof close_notify);
        weir_embedded_run(self.ends[i]->embedded);
        expect_lost(&self, i, WEIR_EOF);
        pair_finish(&self.both);
    }
}

/* Once it is open ------------------------------------------------------------------------------ */

/* Told once, and no end without close_notify besides. */
static void expect_lost_open(losing *self, size_t i, const char *told, int code)
{
    char expected[64];
    snprintf(expected, sizeof expected, "active session %sinactive ", told);
    weir_channel *channel = weir_embedded_channel(self->ends[i]->embedded);
    assert_string_equal(self->seen[i].text, expected);
    assert_false(weir_channel_is_open(channel));
    assert_int_equal(weir_channel_is_input_closed(channel), code == -ECONNRESET);
    if (code < 0)
        pair_expect_error(self->ends[i], code);
    assert_false(weir_embedded_take_error(self->ends[i]->embedded, NULL));
    pair_finish(&self->both);
}

static void a_reset_of_an_open_connection_is_told_once(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < 2; i++) {
            losing self;
            losing_begin(&self, half);
            pair_shake(&self.both);
            weir_promise *waits = pair_write(self.ends[i], "x", 1);
            weir_embedded_end_inbound(self.ends[i]->embedded, -ECONNRESET);
            assert_int_equal(pair_code_of(waits), -ECONNRESET);
            expect_lost_open(&self, i, "ECONNRESET ", -ECONNRESET);
        }
    }
}

static void so_is_what_cannot_be_sent_then(void **state)
{
    losing self;
    (void)state;
    losing_begin(&self, false);
    pair_shake(&self.both);
    weir_promise *waits = pair_write(self.ends[0], "x", 1);
    weir_embedded_fail_sends(self.ends[0]->embedded, -EPIPE);
    weir_embedded_flush(self.ends[0]->embedded);
    assert_int_equal(pair_code_of(waits), -EPIPE);
    expect_lost_open(&self, 0, "EPIPE ", -EPIPE);
}

static int close_at_the_head(void *channel)
{
    static const weir_handler_type closer = { .name = "closer" };
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_first(pipeline, "closer", &closer, NULL);
    weir_ctx_close(weir_pipeline_ctx(pipeline, "closer"), NULL);
    return code;
}

/* Nobody has cut it then. */
static void a_close_nearer_to_the_head_is_no_truncation(void **state)
{
    losing self;
    (void)state;
    losing_begin(&self, false);
    pair_shake(&self.both);
    weir_channel *channel = weir_embedded_channel(self.ends[0]->embedded);
    assert_int_equal(weir_embedded_call(self.ends[0]->embedded, close_at_the_head, channel), 0);
    expect_lost_open(&self, 0, "", 0);
}

/* It cannot begin ------------------------------------------------------------------------------ */

static weir_tls no_host;

static int add_tls(void *channel)
{
    return weir_pipeline_add_first(weir_channel_pipeline(channel), "tls", &weir_tls_handler,
                                   &no_host);
}

static void why_it_cannot_begin_is_said_in_words(void **state)
{
    weir_embedded *embedded;
    (void)state;
    assert_int_equal(weir_embedded_new(&embedded, NULL, NULL), 0);
    weir_channel *channel = weir_embedded_channel(embedded);
    no_host = (weir_tls){ .context = pair_client_context(NULL), .host = ".a" };
    assert_int_equal(weir_embedded_call(embedded, add_tls, channel), -EINVAL);
    weir_future *future = weir_tls_handshake(channel);
    assert_int_equal(weir_future_code(future), -EINVAL);
    assert_non_null(weir_future_error(future));
    assert_non_null(strstr(weir_future_error(future)->message, "'.a' is no host"));
    pair_expect_error(&(pair_end){ .embedded = embedded }, -EINVAL);
    assert_false(weir_embedded_take_error(embedded, NULL));
    weir_tls_context_stats stats;
    weir_tls_context_get_stats(no_host.context, &stats);
    assert_int_equal(stats.failed, 1);
    weir_embedded_free(embedded);
    weir_tls_context_release(no_host.context);
}

/* With a part of the ClientHello, or with none of it. */
static void a_reset_before_there_is_a_name_is_told_once(void **state)
{
    weir_tls_context *context = pair_server_context(NULL);
    weir_tls_hosts *hosts;
    (void)state;
    assert_int_equal(weir_tls_hosts_new(&hosts, NULL, 0, context, NULL), 0);
    weir_tls_sni sni = { .hosts = hosts };
    for (size_t length = 0; length < 10; length += 9) {
        pair_end end = { .first = &weir_tls_sni_handler, .first_arg = &sni };
        weir_embedded_config config = { .init = pair_init, .arg = &end };
        hello made;
        hello_make(&made, "localhost");
        assert_int_equal(weir_embedded_new(&end.embedded, &config, NULL), 0);
        weir_embedded_write_inbound_bytes(end.embedded, made.bytes, length);
        weir_embedded_end_inbound(end.embedded, -ECONNRESET);
        pair_expect_error(&end, -ECONNRESET);
        assert_false(weir_embedded_take_error(end.embedded, NULL));
        assert_false(weir_channel_is_open(weir_embedded_channel(end.embedded)));
        weir_embedded_free(end.embedded);
    }
    weir_tls_hosts_release(hosts);
    weir_tls_context_release(context);
}

/* Sockets -------------------------------------------------------------------------------------- */

static void reset(int fd)
{
    const struct linger at_once = { .l_onoff = 1 };
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(fd);
}

static uint64_t bytes_in(const weir_channel *channel)
{
    weir_channel_stats stats;
    weir_channel_get_stats(channel, &stats);
    return stats.bytes_in;
}

/* A peer that begins a handshake and goes, in its way. */
static void lose_over(const backend *io, void (*go)(int fd), int code)
{
    for (place where = ON_LOOP; where <= ALL_ELSEWHERE; where++) {
        town self = { .tls.handshake_timeout_ns = WEIR_OFF,
                      .linger_ns = WEIR_SECONDS(3600) }; /* nothing ends it so */
        hello made;
        town_open_filled(&self, io, where, "127.0.0.1:0");
        hello_make(&made, "localhost");
        int fd = dial(self.server);
        assert_int_equal(send(fd, made.bytes, 100, MSG_NOSIGNAL), 100);
        WAIT_FOR(atomic_load(&self.accepted_count) == 1);
        weir_channel *channel = self.accepted;
        WAIT_FOR(weir_tls_handshake(channel) != NULL && bytes_in(channel) == 100);
        go(fd);
        assert_int_equal(weir_future_await(weir_tls_handshake(channel)), code);
        WAIT_FOR(atomic_load(&self.inactives) == 1);
        assert_int_equal(atomic_load(&self.errors), 1);
        assert_int_equal(atomic_load(&self.last_error), code);
        weir_tls_context_stats stats;
        weir_tls_context_get_stats(self.contexts[0], &stats);
        assert_int_equal(stats.failed, 1);
        town_close(&self);
    }
}

static void a_reset_over_sockets(void **state)
{
    lose_over(*state, reset, -ECONNRESET);
}

static void end_output(int fd)
{
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    hear_end(fd);
    close(fd);
}

static void an_end_over_sockets(void **state)
{
    lose_over(*state, end_output, WEIR_EOF);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(a_reset_in_the_handshake_is_told_as_one),
        weir_case(an_end_in_the_handshake_is_told_at_once),
        weir_case(so_does_a_shutdown_that_waits),
        weir_case(an_end_while_a_step_is_away_is_told_behind_it),
        weir_case(so_is_what_cannot_be_sent),
        weir_case(a_close_notify_in_the_handshake_is_an_end),
        weir_case(a_reset_of_an_open_connection_is_told_once),
        weir_case(so_is_what_cannot_be_sent_then),
        weir_case(a_close_nearer_to_the_head_is_no_truncation),
        weir_case(why_it_cannot_begin_is_said_in_words),
        weir_case(a_reset_before_there_is_a_name_is_told_once),
        each_backend(a_reset_over_sockets),
        each_backend(an_end_over_sockets),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
