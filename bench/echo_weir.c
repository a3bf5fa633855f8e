/* SPDX-License-Identifier: MIT */
/* echo-weir: the echo server that is measured: one thread, as the peers' (bench/peers). It is
 * examples/echo.c without its choices. On request it adds handlers, and loops: a boss that accepts
 * connections for workers. */
#include <weir/weir.h>
#ifdef BENCH_HAS_TLS
#include <weir/tls.h>
#endif

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_HANDLERS = 100 };

typedef struct settings {
    const char *listen;
    weir_io_kind io;
    int boss, loops; /* boss 0: the workers accept; loops 0: one */
    int watchdog_s;  /* 0: the default */
    int bystanders, forwarders;
    bool has_full_close;           /* the end of a client's output closes its connection */
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

/* Written once, so that a connection's instructions are weir's alone. */
typedef char handler_names[MAX_HANDLERS][16];
static handler_names bystander_names, forwarder_names;

static void write_names(handler_names names, const char *stem)
{
    for (int i = 0; i < MAX_HANDLERS; i++)
        snprintf(names[i], sizeof names[i], "%s-%d", stem, i);
}

static int add_handlers(weir_pipeline *pipeline, const handler_names names,
                        const weir_handler_type *type, int count)
{
    int code = 0;
    for (int i = 0; i < count && code == 0; i++)
        code = weir_pipeline_add_last(pipeline, names[i], type, NULL);
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
    if (!chosen->has_full_close)
        weir_channel_set_option(ch, WEIR_OPTION_ALLOW_HALF_CLOSURE, true, NULL);
    int code = chosen->tls != NULL ? add_tls(pipeline, chosen) : 0;
    if (code == 0)
        code = add_handlers(pipeline, bystander_names, &bystander, chosen->bystanders);
    if (code == 0)
        code = add_handlers(pipeline, forwarder_names, &forwarder, chosen->forwarders);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "echo", &echo, NULL);
}

/* Running -------------------------------------------------------------------------------------- */

static int count_from(const char *text)
{
    char *end;
    long count = strtol(text, &end, 10);
    if (end == text || *end != '\0' || count < 0 || count > MAX_HANDLERS) {
        fprintf(stderr, "echo-weir: '%s' is no number from 0 to %d\n", text, MAX_HANDLERS);
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
    enum { LISTEN, IO, BOSS, LOOPS, WATCHDOG, BYSTANDERS, FORWARDERS, FULL_CLOSE, CERT, KEY };
    static const struct option switches[] = {
        { "listen", required_argument, NULL, LISTEN },
        { "io", required_argument, NULL, IO },
        { "boss", required_argument, NULL, BOSS },
        { "loops", required_argument, NULL, LOOPS },
        { "watchdog", required_argument, NULL, WATCHDOG },
        { "bystanders", required_argument, NULL, BYSTANDERS },
        { "forwarders", required_argument, NULL, FORWARDERS },
        { "full-close", no_argument, NULL, FULL_CLOSE },
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
        case BOSS:
            self.boss = count_from(optarg);
            break;
        case LOOPS:
            self.loops = count_from(optarg);
            break;
        case WATCHDOG:
            self.watchdog_s = count_from(optarg);
            break;
        case BYSTANDERS:
            self.bystanders = count_from(optarg);
            break;
        case FORWARDERS:
            self.forwarders = count_from(optarg);
            break;
        case FULL_CLOSE:
            self.has_full_close = true;
            break;
        case CERT:
            self.certificate = optarg;
            break;
        case KEY:
            self.key = optarg;
            break;
        default:
            fprintf(stderr,
                    "usage: echo-weir [--listen ADDRESS] [--io KIND] [--boss N] [--loops N] "
                    "[--watchdog SECONDS] "
                    "[--bystanders N] [--forwarders N] [--full-close] "
                    "[--cert FILE --key FILE]\n");
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

typedef struct groups {
    weir_group *boss, *workers; /* boss NULL: the workers accept */
} groups;

static int open_groups(groups *self, const settings *chosen, weir_error *error)
{
    weir_group_config workers = { .loops = chosen->loops > 0 ? chosen->loops : 1,
                                  .io = chosen->io,
                                  .watchdog_ns = WEIR_SECONDS(chosen->watchdog_s),
                                  .name = "worker" };
    weir_group_config boss = { .loops = chosen->boss, .io = chosen->io, .name = "boss" };
    int code = weir_group_new(&self->workers, &workers, error);
    if (code == 0 && chosen->boss > 0)
        code = weir_group_new(&self->boss, &boss, error);
    return code;
}

static int listen_and_serve(const groups *on, settings *chosen, const sigset_t *ends,
                            weir_error *error)
{
    const weir_server_config config = {
        .boss = on->boss,
        .workers = on->workers,
        .init_child = init_child,
        .arg = chosen,
    };
    weir_server *server = NULL;
    int code = weir_server_listen(&server, &config, chosen->listen, error);
    if (code == 0)
        serve(server, ends);
    return code;
}

int main(int argc, char **argv)
{
    settings chosen = parse(argc, argv);
    groups on = { 0 };
    weir_error error;
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    write_names(bystander_names, "bystander");
    write_names(forwarder_names, "forwarder");
    int code = open_groups(&on, &chosen, &error);
    if (code == 0 && chosen.certificate != NULL)
        code = open_tls(&chosen, &error);
    if (code == 0)
        code = listen_and_serve(&on, &chosen, &ends, &error);
    if (code < 0)
        fprintf(stderr, "echo-weir: %s\n", error.message);
    weir_group_free(on.boss);
    weir_group_free(on.workers);
    close_tls(&chosen);
    return code == 0 ? 0 : 1;
}
