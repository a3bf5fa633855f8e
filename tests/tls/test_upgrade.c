/* SPDX-License-Identifier: MIT */
/* TLS in the middle of a connection (STARTTLS): nothing from before is taken for what follows. */
#include "tls/raw.h"

#include <weir/delimiter.h>
#include <weir/flow_control.h>
#include <weir/tls_select.h>

#include <stdio.h>
#include <string.h>

/* Which handlers hold something, and what TLS begins with. */
typedef struct kind {
    const weir_handler_type *first;
    bool has_flow_control;
    bool is_tls_elsewhere, are_lines_elsewhere;
} kind;

static const kind kinds[] = {
    { .first = &weir_tls_handler },
    { .first = &weir_tls_handler, .has_flow_control = true },
    { .first = &weir_tls_handler, .is_tls_elsewhere = true },
    { .first = &weir_tls_handler, .are_lines_elsewhere = true },
    { .first = &weir_tls_sni_handler },
    { .first = &weir_tls_optional_handler },
};

#define KINDS (sizeof kinds / sizeof *kinds)

/* A server with lines, of which one asks for TLS. */
typedef struct server {
    const kind *kind;
    weir_embedded *embedded;
    weir_group *group; /* stepped by hand */
    weir_tls tls;
    weir_tls_sni sni;
    char heard[256]; /* lines, in angle brackets when a session is there, and events */
    bool has_session;
    int code; /* of the add */
} server;

static void note(server *self, const char *format, const char *text)
{
    size_t length = strlen(self->heard);
    snprintf(self->heard + length, sizeof self->heard - length, format, text);
}

static void start_tls(weir_ctx *ctx, server *self)
{
    weir_handler_config config = { .type = self->kind->first, .place = WEIR_PLACE_FIRST };
    config.arg = config.type == &weir_tls_sni_handler ? (void *)&self->sni : &self->tls;
    config.group = self->kind->is_tls_elsewhere ? self->group : NULL;
    weir_ctx_write_and_flush(ctx, weir_buf_msg(weir_buf_from("go\n", 3)), NULL);
    self->code = weir_pipeline_add(weir_ctx_pipeline(ctx), &config, NULL);
}

static void server_on_read(weir_ctx *ctx, weir_msg *msg)
{
    server *self = weir_ctx_arg(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    char text[32] = "";
    weir_buf_read_bytes(buf, text, weir_buf_readable(buf));
    weir_msg_release(msg);
    note(self, self->has_session ? "<%s> " : "%s ", text);
    if (strcmp(text, "STARTTLS") == 0)
        start_tls(ctx, self);
    weir_ctx_read(ctx);
}

static void server_on_event(weir_ctx *ctx, weir_msg *event)
{
    server *self = weir_ctx_arg(ctx);
    bool is_session = weir_tls_session_from(event) != NULL;
    self->has_session |= is_session;
    note(self, "%s ", is_session ? "session" : "?");
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type serving = { .name = "serving",
                                           .on_read = server_on_read,
                                           .on_event = server_on_event };

static int add_all(weir_channel *channel, void *arg)
{
    static const weir_delimited lines = { .max_length = 100 };
    server *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_handler_config config = { .type = &weir_line_decoder, .arg = (void *)&lines };
    config.group = self->kind->are_lines_elsewhere ? self->group : NULL;
    if (self->kind->has_flow_control)
        weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL);
    int code = weir_pipeline_add(pipeline, &config, NULL);
    if (code == 0 && self->kind->has_flow_control)
        code = weir_pipeline_add_last(pipeline, NULL, &weir_flow_control_handler, NULL);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, NULL, &serving, self);
}

/* Until nothing is left to do. */
static void run(server *self)
{
    do
        weir_embedded_run(self->embedded);
    while (weir_group_step(self->group) > 0);
    weir_embedded_run(self->embedded);
}

static void begin(server *self, const kind *how, const char *said)
{
    weir_group_config executors = { .count = 1, .is_manual = true, .watchdog_ns = WEIR_OFF };
    weir_embedded_config config = { .init = add_all, .arg = self };
    *self = (server){ .kind = how, .tls.context = pair_server_context(NULL) };
    self->tls.close_timeout_ns = self->sni.tls.close_timeout_ns = WEIR_OFF;
    assert_int_equal(weir_tls_hosts_new(&self->sni.hosts, NULL, 0, self->tls.context, NULL), 0);
    assert_int_equal(weir_group_new_executors(&self->group, &executors, NULL), 0);
    assert_int_equal(weir_embedded_new(&self->embedded, &config, NULL), 0);
    weir_channel_read(weir_embedded_channel(self->embedded));
    run(self);
    weir_embedded_write_inbound_bytes(self->embedded, said, strlen(said));
    run(self);
}

static void end(server *self)
{
    weir_embedded_close(self->embedded);
    run(self);
    weir_embedded_free(self->embedded);
    weir_group_shutdown(self->group, 0, 0);
    weir_group_free(self->group);
    weir_tls_hosts_release(self->sni.hosts);
    weir_tls_context_release(self->tls.context);
}

static void upgrade_fails_with_bytes_from_before(void **state)
{
    static const char *const inputs[] = { "NOOP\nSTARTTLS\nRSET\n", "NOOP\nSTARTTLS\nR",
                                          "NOOP\nSTARTTLS\nRSET\nDELE\nQ" };
    (void)state;
    for (size_t i = 0; i < KINDS * 3; i++) {
        server self;
        weir_error error = { 0 };
        begin(&self, &kinds[i / 3], inputs[i % 3]);
        assert_true(weir_embedded_take_error(self.embedded, &error));
        assert_int_equal(error.code, WEIR_EHELD);
        assert_int_equal(self.code, WEIR_EHELD);
        while (weir_embedded_take_error(self.embedded, NULL)) /* the stream ends inside a line */
            ;
        assert_false(weir_channel_is_open(weir_embedded_channel(self.embedded)));
        assert_string_equal(self.heard, "NOOP STARTTLS ");
        end(&self);
    }
}

static void upgrade_succeeds_without_bytes_from_before(void **state)
{
    (void)state;
    for (size_t i = 0; i < KINDS; i++) {
        server self;
        static raw client;
        char heard[16];
        begin(&self, &kinds[i], "NOOP\nSTARTTLS\n");
        assert_int_equal(weir_embedded_read_outbound_bytes(self.embedded, heard, sizeof heard), 3);
        raw_begin(&client, self.embedded, false, 0);
        for (int j = 0; j < 5; j++) {
            raw_carry(&client);
            run(&self);
        }
        assert_true(SSL_is_init_finished(client.ssl));
        raw_say(&client, "HELO\nQUIT\n");
        raw_carry(&client);
        run(&self);
        assert_string_equal(self.heard, "NOOP STARTTLS session <HELO> <QUIT> ");
        assert_int_equal(weir_embedded_check(self.embedded), 0);
        raw_end(&client);
        end(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(upgrade_fails_with_bytes_from_before),
        weir_case(upgrade_succeeds_without_bytes_from_before),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
