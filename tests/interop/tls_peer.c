/* SPDX-License-Identifier: MIT */
/* One side of TLS connections, with everything that can be said to the component, for programs of
 * others to talk to:
 *
 *     tls-peer serve ADDRESS IO [KEY=VALUE...]    answers with what it reads, until it is killed
 *     tls-peer connect ADDRESS IO [KEY=VALUE...]  count=N times one after the other: says say=TEXT,
 * and prints the answer
 *
 * Prints a line for each session, answer, error and end. */
#include <weir/tls_select.h>
#include <weir/weir.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 8 /* hosts, protocols */

typedef struct settings {
    weir_tls_config config;
    weir_tls tls;
    weir_tls_host hosts[MOST];
    size_t host_count;
    weir_tls_sni sni;
    bool has_default; /* for hosts that are not in the list */
    bool is_optional; /* plain connections are let in */
    bool is_insecure;
    const char *say;
    int count;
} settings;

static void check(int code, const weir_error *error)
{
    if (code >= 0)
        return;
    fprintf(stderr, "tls-peer: %s\n", error->message);
    exit(1);
}

/* What is told --------------------------------------------------------------------------------- */

static const char *or_none(const char *text)
{
    return text != NULL ? text : "-";
}

static void on_event(weir_ctx *ctx, weir_msg *event)
{
    const weir_tls_session *session = weir_tls_session_from(event);
    if (session != NULL)
        printf("session version=1.%d cipher=%s alpn=%s host=%s resumed=%d verified=%d peer=%s\n",
               (int)session->version, session->cipher, or_none(session->alpn),
               or_none(session->host), session->is_resumed,
               session->peer != NULL && session->peer->is_verified,
               session->peer != NULL ? session->peer->subject : "-");
    if (event == &weir_event_input_closed) {
        printf("end\n");
        weir_ctx_shutdown(ctx, NULL);
    }
    weir_ctx_fire_event(ctx, event);
}

static void on_error(weir_ctx *ctx, const weir_error *error)
{
    printf("error %d %s\n", error->code, error->message);
    weir_ctx_close(ctx, NULL);
}

static void on_inactive(weir_ctx *ctx)
{
    printf("closed\n");
    weir_ctx_fire_inactive(ctx);
}

/* A server ------------------------------------------------------------------------------------- */

static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static const weir_handler_type echo = {
    .name = "echo",
    .on_read = echo_on_read,
    .on_read_complete = echo_on_read_complete,
    .on_event = on_event,
    .on_error = on_error,
    .on_inactive = on_inactive,
};

static int init_child(weir_channel *channel, void *arg)
{
    settings *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, true, NULL);
    int code = self->host_count > 0
                   ? weir_pipeline_add_last(pipeline, "sni", &weir_tls_sni_handler, &self->sni)
                   : weir_pipeline_add_last(pipeline, "tls",
                                            self->is_optional ? &weir_tls_optional_handler
                                                              : &weir_tls_handler,
                                            &self->tls);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "echo", &echo, NULL);
}

static void serve(settings *self, const char *address, weir_group *group)
{
    weir_server_config config = {
        .boss = group, .workers = group, .init_child = init_child, .arg = self
    };
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address bound;
    weir_error error;
    weir_server *server;
    check(weir_tls_context_new_server(&self->tls.context, &self->config, &error), &error);
    if (self->host_count > 0)
        check(weir_tls_hosts_new(&self->sni.hosts, self->hosts, self->host_count,
                                 self->has_default ? self->tls.context : NULL, &error),
              &error);
    self->sni.tls = self->tls;
    check(weir_server_listen(&server, &config, address, &error), &error);
    weir_server_address(server, &bound);
    weir_address_text(&bound, text, sizeof text);
    printf("listening on %s\n", text);
    weir_future_await(weir_server_closed(server));
    weir_server_release(server);
}

/* A client ------------------------------------------------------------------------------------- */

static void client_on_active(weir_ctx *ctx)
{
    const settings *self = weir_ctx_arg(ctx);
    weir_buf *line = weir_buf_from(self->say, strlen(self->say));
    weir_buf_write_bytes(line, "\n", 1);
    weir_ctx_write_and_flush(ctx, weir_buf_msg(line), NULL);
    weir_ctx_fire_active(ctx);
}

static void client_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_buf *answer = weir_buf_from_msg(msg);
    size_t length = weir_buf_readable(answer);
    char text[256] = "";
    weir_buf_read_bytes(answer, text, length < sizeof text ? length : sizeof text - 1);
    printf("answer %s", text); /* a short line comes in one record */
    weir_msg_release(msg);
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type client = {
    .name = "client",
    .on_active = client_on_active,
    .on_read = client_on_read,
    .on_event = on_event,
    .on_error = on_error,
    .on_inactive = on_inactive,
};

static int init_client(weir_channel *channel, void *arg)
{
    settings *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "tls", &weir_tls_handler, &self->tls);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "client", &client, self);
}

static void connect_all(settings *self, const char *address, weir_group *group)
{
    weir_client_config config = { .group = group, .init = init_client, .arg = self };
    weir_error error;
    check(weir_tls_context_new_client(&self->tls.context, &self->config, &error), &error);
    if (self->is_insecure)
        weir_tls_context_dangerously_verify_nothing(self->tls.context);
    for (int i = 0; i < self->count; i++) {
        weir_channel *channel;
        check(weir_client_connect(&channel, &config, address, &error), &error);
        weir_future_await(weir_channel_closed(channel));
        weir_channel_release(channel);
    }
}

/* The command line ----------------------------------------------------------------------------- */

/* "a,b,c" in its parts. */
static size_t split(char *text, const char **parts)
{
    size_t count = 0;
    for (char *part = strtok(text, ","); part != NULL && count < MOST; part = strtok(NULL, ","))
        parts[count++] = part;
    return count;
}

static void add_host(settings *self, char *text)
{
    const char *parts[MOST + 1] = { 0 };
    weir_tls_config config = self->config;
    weir_tls_host *host = &self->hosts[self->host_count++];
    weir_error error;
    split(text, parts);
    host->name = parts[0];
    config.certificate_file = parts[1];
    config.key_file = parts[2];
    check(weir_tls_context_new_server(&host->context, &config, &error), &error);
}

static void set(settings *self, const char *key, char *value)
{
    static const char *protocols[MOST + 1];
    const struct {
        const char *key, **value;
    } texts[] = {
        { "cert", &self->config.certificate_file },
        { "key", &self->config.key_file },
        { "ca", &self->config.ca_file },
        { "ciphers", &self->config.ciphers },
        { "name", &self->tls.host },
        { "say", &self->say },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(key, texts[i].key) != 0)
            continue;
        *texts[i].value = value;
        return;
    }
    if (strcmp(key, "alpn") == 0) {
        split(value, protocols);
        self->config.alpn = protocols;
    } else if (strcmp(key, "auth") == 0) {
        self->config.client_auth = strcmp(value, "required") == 0 ? WEIR_TLS_CLIENT_AUTH_REQUIRED
                                                                  : WEIR_TLS_CLIENT_AUTH_OPTIONAL;
    } else if (strcmp(key, "max") == 0) {
        self->config.max_version = (weir_tls_version)atoi(value);
    } else if (strcmp(key, "session_s") == 0) {
        self->config.session_lifetime_ns = atoi(value) < 0 ? WEIR_OFF : WEIR_SECONDS(atoi(value));
    } else if (strcmp(key, "handshake_ms") == 0) {
        self->tls.handshake_timeout_ns = WEIR_MS(atoi(value));
    } else if (strcmp(key, "count") == 0) {
        self->count = atoi(value);
    } else if (strcmp(key, "host") == 0) {
        add_host(self, value);
    } else if (strcmp(key, "with") == 0) {
        self->has_default |= strcmp(value, "default") == 0;
        self->is_optional |= strcmp(value, "plain") == 0;
        self->is_insecure |= strcmp(value, "insecure") == 0;
        if (strcmp(value, "executors") == 0)
            weir_group_new_executors(&self->tls.handshake_group, &(weir_group_config){ .count = 2 },
                                     NULL);
    } else {
        fprintf(stderr, "tls-peer: what is %s?\n", key);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    settings self = { .say = "hello", .count = 1 };
    weir_error error;
    weir_group *group;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 4) {
        fprintf(stderr, "usage: tls-peer serve|connect ADDRESS IO [KEY=VALUE...]\n");
        return 2;
    }
    for (int i = 4; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (value == NULL)
            return 2;
        *value = '\0';
        set(&self, argv[i], value + 1);
    }
    weir_group_config config = { .loops = 2, .io = (weir_io_kind)weir_io_kind_from(argv[3]) };
    check(weir_group_new(&group, &config, &error), &error);
    if (strcmp(argv[1], "serve") == 0)
        serve(&self, argv[2], group);
    else
        connect_all(&self, argv[2], group);
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
    weir_group_free(group);
    weir_group_free(self.tls.handshake_group);
    weir_tls_context_release(self.tls.context);
    return 0;
}
