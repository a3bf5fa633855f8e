/* SPDX-License-Identifier: MIT */
/* echo-weir: the echo server that is measured: one thread, as the peers' (bench/peers). It is
 * examples/echo.c without its choices, with further handlers on request. */
#include <weir/weir.h>
#ifdef BENCH_HAS_TLS
#include <weir/tls.h>
#endif

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_HANDLERS = 100 };

typedef struct settings {
    const char *listen;
    weir_io_kind io;
    int bystanders, forwarders;
    const char *certificate, *key; /* NULL: without TLS */
    struct weir_tls_context *tls;
} settings;

/* Handlers ------------------------------------------------------------------------------------- */

static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static void echo_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        weir_ctx_shutdown(ctx, NULL);
    weir_ctx_fire_event(ctx, event);
}

static void echo_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type echo = {
    .name = "echo",
    .on_read = echo_on_read,
    .on_read_complete = echo_on_read_complete,
    .on_event = echo_on_event,
    .on_error = echo_on_error,
};

/* Takes part in each of the four events of a message, and does nothing but pass it on. */
static void forward_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_fire_read(ctx, msg);
}

static void forward_read_complete(weir_ctx *ctx)
{
    weir_ctx_fire_read_complete(ctx);
}

static void forward_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    weir_ctx_write(ctx, msg, promise);
}

static void forward_flush(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static const weir_handler_type forwarder = {
    .name = "forwarder",
    .on_read = forward_read,
    .on_read_complete = forward_read_complete,
    .write = forward_write,
    .flush = forward_flush,
};

/* Takes part in none of them. */
static const weir_handler_type bystander = { .name = "bystander" };

static int add_handlers(weir_pipeline *pipeline, const char *stem, const weir_handler_type *type,
                        int count)
{
    int code = 0;
    for (int i = 0; i < count && code == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s-%d", stem, i);
        code = weir_pipeline_add_last(pipeline, name, type, NULL);
    }
    return code;
}

#ifdef BENCH_HAS_TLS
static int open_tls(settings *self, weir_error *error)
{
    const weir_tls_config config = { .certificate_file = self->certificate, .key_file = self->key };
    return weir_tls_context_new_server(&self->tls, &config, error);
}

static int add_tls(weir_pipeline *pipeline, const settings *chosen)
{
    return weir_pipeline_add_last(pipeline, "tls", &weir_tls_handler,
                                  &(weir_tls){ .context = chosen->tls });
}

static void close_tls(settings *self)
{
    weir_tls_context_release(self->tls);
}
#else
static int open_tls(settings *self, weir_error *error)
{
    (void)self;
    return weir_error_set(error, -ENOSYS, "echo-weir", "it was built without TLS");
}

static int add_tls(weir_pipeline *pipeline, const settings *chosen)
{
    (void)pipeline, (void)chosen;
    return -ENOSYS;
}

static void close_tls(settings *self)
{
    (void)self;
}
#endif

static int init_child(weir_channel *ch, void *arg)
{
    const settings *chosen = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(ch);
    weir_channel_set_option(ch, WEIR_OPTION_ALLOW_HALF_CLOSURE, true, NULL);
    int code = chosen->tls != NULL ? add_tls(pipeline, chosen) : 0;
    if (code == 0)
        code = add_handlers(pipeline, "bystander", &bystander, chosen->bystanders);
    if (code == 0)
        code = add_handlers(pipeline, "forwarder", &forwarder, chosen->forwarders);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "echo", &echo, NULL);
}

/* Running -------------------------------------------------------------------------------------- */

static int count_from(const char *text)
{
    char *end;
    long count = strtol(text, &end, 10);
    if (end == text || *end != '\0' || count < 0 || count > MOST_HANDLERS) {
        fprintf(stderr, "echo-weir: '%s' is no number from 0 to %d\n", text, MOST_HANDLERS);
        exit(2);
    }
    return (int)count;
}

static weir_io_kind io_from(const char *text)
{
    int kind = weir_io_kind_from(text);
    if (kind < 0) {
        fprintf(stderr, "echo-weir: there is no --io %s\n", text);
        exit(2);
    }
    return (weir_io_kind)kind;
}

static settings parse(int argc, char **argv)
{
    enum { LISTEN, IO, BYSTANDERS, FORWARDERS, CERT, KEY };
    static const struct option switches[] = {
        { "listen", required_argument, NULL, LISTEN },
        { "io", required_argument, NULL, IO },
        { "bystanders", required_argument, NULL, BYSTANDERS },
        { "forwarders", required_argument, NULL, FORWARDERS },
        { "cert", required_argument, NULL, CERT },
        { "key", required_argument, NULL, KEY },
        { 0 },
    };
    settings self = { .listen = "127.0.0.1:7007" };
    for (int which; (which = getopt_long(argc, argv, "", switches, NULL)) != -1;) {
        switch (which) {
        case LISTEN:
            self.listen = optarg;
            break;
        case IO:
            self.io = io_from(optarg);
            break;
        case BYSTANDERS:
            self.bystanders = count_from(optarg);
            break;
        case FORWARDERS:
            self.forwarders = count_from(optarg);
            break;
        case CERT:
            self.certificate = optarg;
            break;
        case KEY:
            self.key = optarg;
            break;
        default:
            fprintf(stderr, "usage: echo-weir [--listen ADDRESS] [--io KIND] [--bystanders N] "
                            "[--forwarders N] [--cert FILE --key FILE]\n");
            exit(2);
        }
    }
    if ((self.certificate == NULL) != (self.key == NULL)) {
        fprintf(stderr, "echo-weir: --cert and --key are wanted together\n");
        exit(2);
    }
    return self;
}

/* Until SIGINT or SIGTERM, which are blocked in every thread. */
static void serve(weir_server *server, const sigset_t *ends)
{
    weir_address address;
    char text[WEIR_ADDRESS_TEXT_MAX] = "";
    int number;
    if (weir_server_address(server, &address) == 0)
        weir_address_text(&address, text, sizeof text);
    printf("listening on %s\n", text);
    fflush(stdout);
    sigwait(ends, &number);
    weir_server_drain(server, 0, NULL);
    weir_future_await(weir_server_closed(server));
    weir_server_release(server);
}

int main(int argc, char **argv)
{
    settings chosen = parse(argc, argv);
    weir_group *group = NULL;
    weir_server *server = NULL;
    weir_error error;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    int code = weir_group_new(&group, &(weir_group_config){ .loops = 1, .io = chosen.io }, &error);
    if (code == 0 && chosen.certificate != NULL)
        code = open_tls(&chosen, &error);
    if (code == 0)
        code = weir_server_listen(
            &server,
            &(weir_server_config){ .workers = group, .init_child = init_child, .arg = &chosen },
            chosen.listen, &error);
    if (code == 0)
        serve(server, &ends);
    else
        fprintf(stderr, "echo-weir: %s\n", error.message);
    weir_group_free(group);
    close_tls(&chosen);
    return code == 0 ? 0 : 1;
}
