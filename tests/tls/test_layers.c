/* SPDX-License-Identifier: MIT */
/* TLS inside of TLS: two handlers in one pipeline. */
#include "tls/notes.h"
#include "tls/town.h"

#include <string.h>

/* One end: outer TLS, a handler between, inner TLS, and one behind it. */
typedef struct end {
    weir_embedded *embedded;
    weir_tls outer, inner;
    notes between, behind;
    bool allows_half_closure;
} end;

typedef struct nest {
    pair both; /* for carrying: its ends are those of the others */
    end client, server;
} nest;

static int init_end(weir_channel *channel, void *arg)
{
    end *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, self->allows_half_closure,
                            NULL);
    int code = weir_pipeline_add_last(pipeline, "outer", &weir_tls_handler, &self->outer);
    if (code == 0)
        code = weir_pipeline_add_last(pipeline, "between", &noting, &self->between);
    if (code == 0)
        code = weir_pipeline_add_last(pipeline, "inner", &weir_tls_handler, &self->inner);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "behind", &noting, &self->behind);
}

static void begin_end(end *self, pair_end *of, weir_tls_context *outer, weir_tls_context *inner)
{
    weir_embedded_config config = { .init = init_end, .arg = self };
    self->outer.context = outer;
    self->inner.context = inner;
    self->outer.host = self->inner.host = "localhost";
    assert_int_equal(weir_embedded_new(&self->embedded, &config, NULL), 0);
    of->embedded = self->embedded;
    of->tls.context = inner;
    weir_tls_context_release(outer);
}

/* `self` may have been filled. */
static void begin(nest *self)
{
    static const char *const outside[] = { "outside", NULL }, *const inside[] = { "inside", NULL };
    const weir_tls_config outer = { .alpn = outside }, inner = { .alpn = inside };
    begin_end(&self->server, &self->both.server, pair_server_context(&outer),
              pair_server_context(&inner));
    begin_end(&self->client, &self->both.client, pair_client_context(&outer),
              pair_client_context(&inner));
}

static void one_works_inside_of_the_other(void **state)
{
    (void)state;
    for (size_t most = 0; most < 3; most++) {
        nest self = { .both.most = most };
        begin(&self);
        pair_shake(&self.both);
        pair_say(&self.both, &self.both.client, "hello");
        pair_say(&self.both, &self.both.server, "and back");
        const weir_tls_session *session =
            weir_future_value(weir_tls_handshake(weir_embedded_channel(self.client.embedded)));
        assert_string_equal(session->alpn, "inside"); /* the one that was added last */
        weir_channel_close(weir_embedded_channel(self.client.embedded), NULL);
        weir_embedded_run(self.client.embedded);
        pair_carry(&self.both);
        assert_false(weir_channel_is_open(weir_embedded_channel(self.client.embedded)));
        weir_embedded_end_inbound(self.server.embedded, 0);
        assert_false(weir_channel_is_open(weir_embedded_channel(self.server.embedded)));
        assert_int_equal(weir_embedded_check(self.client.embedded), 0);
        assert_int_equal(weir_embedded_check(self.server.embedded), 0);
        pair_finish(&self.both);
    }
}

/* Who is behind the inner one is told of that one only. */
static const char *alpn_seen;

static void note_alpn(weir_ctx *ctx, const weir_tls_session *session)
{
    (void)ctx;
    alpn_seen = strcmp(session->alpn, "inside") == 0 ? "inside" : "outside";
}

static void each_hears_of_the_tls_it_is_behind(void **state)
{
    nest self = { .client.behind.on_session = note_alpn };
    (void)state;
    begin(&self);
    pair_shake(&self.both);
    assert_string_equal(alpn_seen, "inside");
    assert_string_equal(self.client.behind.text, "active session ");
    assert_true(strncmp(self.client.between.text, "active session read ", 20) == 0);
    assert_null(strstr(self.client.between.text + 20, "session"));
    pair_finish(&self.both);
}

static void the_inner_one_ends_before_the_outer(void **state)
{
    nest self = { .client.allows_half_closure = true, .server.allows_half_closure = true };
    (void)state;
    begin(&self);
    pair_shake(&self.both);
    weir_channel_shutdown(weir_embedded_channel(self.client.embedded), NULL);
    weir_embedded_run(self.client.embedded);
    pair_carry(&self.both);
    weir_embedded_end_inbound(self.server.embedded, 0);
    assert_string_equal(self.server.behind.text, "active session input_closed ");
    pair_say(&self.both, &self.both.server, "still here");
    assert_int_equal(weir_embedded_check(self.server.embedded), 0);
    pair_finish(&self.both);
}

/* With the outer one ended as it should be, the inner one is cut off all the same. */
static int remove_inner_and_shut(void *arg)
{
    weir_channel *channel = arg;
    int code = weir_pipeline_remove(weir_channel_pipeline(channel), "inner", NULL);
    weir_channel_shutdown(channel, NULL);
    return code;
}

static int forget_inner(void *arg)
{
    weir_ctx *outer = weir_pipeline_ctx(weir_channel_pipeline(arg), "between");
    weir_ctx_shutdown(outer, NULL);
    return 0;
}

static void what_is_cut_off_inside_is_truncation(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        nest self = { .server.allows_half_closure = half };
        begin(&self);
        pair_shake(&self.both);
        weir_embedded_call(self.client.embedded, forget_inner,
                           weir_embedded_channel(self.client.embedded));
        pair_carry(&self.both);
        weir_embedded_end_inbound(self.server.embedded, 0);
        pair_expect_error(&self.both.server, WEIR_ETLS_TRUNCATED);
        assert_false(weir_channel_is_open(weir_embedded_channel(self.server.embedded)));
        weir_embedded_take_error(self.client.embedded, NULL);
        pair_finish(&self.both);
    }
}

static void removed_inside_the_outer_one_goes_on(void **state)
{
    nest self = { .client.allows_half_closure = true, .server.allows_half_closure = true };
    (void)state;
    begin(&self);
    pair_shake(&self.both);
    assert_int_equal(weir_embedded_call(self.client.embedded, remove_inner_and_shut,
                                        weir_embedded_channel(self.client.embedded)),
                     0);
    pair_carry(&self.both);
    weir_embedded_end_inbound(self.server.embedded, 0);
    assert_string_equal(self.server.behind.text, "active session input_closed ");
    pair_finish(&self.both);
}

/* An end in the handshake of the inner one is told at once, by whichever of the two it came. */
static void an_end_in_the_inner_handshake_is_told(void **state)
{
    (void)state;
    for (int with_notify = 0; with_notify < 2; with_notify++) {
        nest self = { 0 };
        begin(&self);
        weir_future *future = weir_tls_handshake(weir_embedded_channel(self.server.embedded));
        while (pair_carry_to(&self.both, &self.both.server) > 0 &&
               strstr(self.server.between.text, "session") == NULL)
            pair_carry_to(&self.both, &self.both.client);
        assert_false(weir_future_is_done(future));
        if (with_notify)
            weir_embedded_call(self.client.embedded, forget_inner,
                               weir_embedded_channel(self.client.embedded));
        pair_carry_to(&self.both, &self.both.server);
        weir_embedded_end_inbound(self.server.embedded, 0);
        assert_int_equal(weir_future_code(future), WEIR_EOF);
        pair_expect_error(&self.both.server, WEIR_EOF);
        assert_false(weir_channel_is_open(weir_embedded_channel(self.server.embedded)));
        weir_embedded_take_error(self.client.embedded, NULL);
        pair_finish(&self.both);
    }
}

/* Each layer has holds of its own ----------------------------------------------------------------
 */

static void what_waits_in_one_holds_the_writer_back(void **state)
{
    static char much[100000];
    nest self = { 0 };
    (void)state;
    memset(much, 'x', sizeof much);
    begin(&self);
    weir_channel *channel = weir_embedded_channel(self.client.embedded);
    weir_channel_write(channel, weir_buf_msg(weir_buf_from(much, sizeof much)), NULL);
    weir_embedded_run(self.client.embedded);
    assert_false(weir_channel_is_writable(channel));
    weir_embedded_flush(self.client.embedded);
    pair_carry(&self.both);
    assert_true(weir_channel_is_writable(channel));
    pair_finish(&self.both);
}

static int send_something_outside(void *arg)
{
    weir_ctx *between = weir_pipeline_ctx(weir_channel_pipeline(arg), "between");
    weir_ctx_write_and_flush(between, weir_buf_msg(weir_buf_from("x", 1)), NULL);
    return 0;
}

static void a_step_of_one_stops_reading(void **state)
{
    weir_group *others = new_group_of(1);
    nest self = { .server.inner.handshake_group = others };
    blocker held;
    (void)state;
    begin(&self);
    block(&held, weir_group_at(others, 0));
    pair_carry(&self.both);
    assert_false(weir_embedded_is_reading(self.server.embedded));
    weir_embedded_call(self.client.embedded, send_something_outside,
                       weir_embedded_channel(self.client.embedded));
    pair_carry(&self.both); /* what the outer layer receives meanwhile changes nothing */
    assert_false(weir_embedded_is_reading(self.server.embedded));
    unblock(&held);
    pair_finish(&self.both);
    end_group(others);
}

/* Sockets -------------------------------------------------------------------------------------- */

static void an_echo_over_sockets(void **state)
{
    for (place where = ON_LOOP; where <= ALL_ELSEWHERE; where++) {
        town self = { .is_double = true };
        town_open_filled(&self, *state, where, "127.0.0.1:0");
        town_echo(&self);
        town_close(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(one_works_inside_of_the_other),
        weir_case(each_hears_of_the_tls_it_is_behind),
        weir_case(the_inner_one_ends_before_the_outer),
        weir_case(what_is_cut_off_inside_is_truncation),
        weir_case(removed_inside_the_outer_one_goes_on),
        weir_case(an_end_in_the_inner_handshake_is_told),
        weir_case(what_waits_in_one_holds_the_writer_back),
        weir_case(a_step_of_one_stops_reading),
        each_backend(an_echo_over_sockets),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
