/* SPDX-License-Identifier: MIT */
/* weir-load: the options, and what came out. */
#include "load.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_help(void)
{
    printf(
        "usage: weir-load [switch ...] ADDRESS\n"
        "Puts load on an echo server (127.0.0.1:7000, [::1]:7000, unix:/path, unix:@name) and "
        "tells\n"
        "how long its answers took. One thread.\n\n"
        "  --mode MODE      echo: messages over connections that stay (unless told)\n"
        "                   connect: connect, one message there and back, close; again\n"
        "                   idle: connections that do nothing after their first message\n"
        "  --io KIND        epoll or uring, in mode echo; uring if it is there, unless told\n"
        "  --connections N  at the same time (1)\n"
        "  --size BYTES     of a message (64); 0 in mode connect: connect, end the output, wait\n"
        "                   until the server closes\n"
        "  --depth N        messages on their way on each connection (1)\n"
        "  --rate N         so many messages a second in all, sent at fixed times whatever comes\n"
        "                   back; the time of each counts from when it was due. Without it, the\n"
        "                   next is sent when one is back\n"
        "  --warmup S       not counted (0.5)\n"
        "  --duration S     counted (5)\n"
        "  --count N        so many messages instead, without warm-up\n"
        "  --watch PID      what the server costs meanwhile: CPU, system calls, memory\n"
        "  --steps          counts the instructions in user mode of the server that is watched, "
        "by\n"
        "                   single steps, and kills it; with --count, in mode echo\n"
        "  --tls[=resumed]  over TLS 1.3 (AES-256-GCM, X25519), whoever the server is; resumed: "
        "as\n"
        "                   soon as there are sessions\n"
        "  --json           print for programs\n"
        "  --help           this text\n");
}

/* Options -------------------------------------------------------------------------------------- */

static double number(const char *what, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= least && value <= most)) {
        fprintf(stderr, "weir-load: %s: '%s' is no number from %g to %g\n", what, text, least,
                most);
        exit(2);
    }
    return value;
}

static load_mode mode_from(const char *text)
{
    static const char *const names[] = { "echo", "connect", "idle" };
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0)
            return (load_mode)i;
    }
    fprintf(stderr, "weir-load: --mode: '%s' is none of echo, connect and idle\n", text);
    exit(2);
}

static load_io io_from(const char *text)
{
    bool is_uring = strcmp(text, "uring") == 0;
    if (is_uring || strcmp(text, "epoll") == 0)
        return is_uring ? LOAD_URING : LOAD_EPOLL;
    fprintf(stderr, "weir-load: --io: '%s' is neither epoll nor uring\n", text);
    exit(2);
}

static bool is_resumed_from(const char *text)
{
    if (text == NULL || strcmp(text, "resumed") == 0)
        return text != NULL;
    fprintf(stderr, "weir-load: --tls: '%s' is not resumed\n", text);
    exit(2);
}

static load_settings parse(int argc, char **argv)
{
    enum {
        MODE,
        IO,
        CONNECTIONS,
        SIZE,
        DEPTH,
        RATE,
        WARMUP,
        DURATION,
        COUNT,
        WATCH,
        STEPS,
        JSON,
        TLS,
        HELP
    };
    static const struct option switches[] = {
        { "mode", required_argument, NULL, MODE },
        { "io", required_argument, NULL, IO },
        { "connections", required_argument, NULL, CONNECTIONS },
        { "size", required_argument, NULL, SIZE },
        { "depth", required_argument, NULL, DEPTH },
        { "rate", required_argument, NULL, RATE },
        { "warmup", required_argument, NULL, WARMUP },
        { "duration", required_argument, NULL, DURATION },
        { "count", required_argument, NULL, COUNT },
        { "watch", required_argument, NULL, WATCH },
        { "steps", no_argument, NULL, STEPS },
        { "json", no_argument, NULL, JSON },
        { "tls", optional_argument, NULL, TLS },
        { "help", no_argument, NULL, HELP },
        { 0 },
    };
    load_settings self = {
        .connections = 1,
        .size = 64,
        .depth = 1,
        .warmup_s = 0.5,
        .duration_s = 5,
    };
    static char name[] = "weir-load";
    argv[0] = name; /* so that getopt's messages do not name a path */
    for (int which; (which = getopt_long(argc, argv, "", switches, NULL)) != -1;) {
        switch (which) {
        case MODE:
            self.mode = mode_from(optarg);
            break;
        case IO:
            self.io = io_from(optarg);
            break;
        case CONNECTIONS:
            self.connections = (unsigned)number("--connections", optarg, 1, 1e6);
            break;
        case SIZE:
            self.size = (size_t)number("--size", optarg, 0, 1 << 28);
            break;
        case DEPTH:
            self.depth = (unsigned)number("--depth", optarg, 1, 1e5);
            break;
        case RATE:
            self.rate = number("--rate", optarg, 1e-3, 1e9);
            break;
        case WARMUP:
            self.warmup_s = number("--warmup", optarg, 0, 1e6);
            break;
        case DURATION:
            self.duration_s = number("--duration", optarg, 1e-3, 1e6);
            break;
        case COUNT:
            self.count = (uint64_t)number("--count", optarg, 1, 1e15);
            break;
        case WATCH:
            self.watched = (pid_t)number("--watch", optarg, 1, 1 << 30);
            break;
        case STEPS:
            self.is_stepped = true;
            break;
        case JSON:
            self.is_json = true;
            break;
        case TLS:
            load_use_tls(is_resumed_from(optarg));
            break;
        case HELP:
            print_help();
            exit(0);
        default:
            fprintf(stderr, "weir-load: --help lists the switches\n");
            exit(2);
        }
    }
    if (argc - optind != 1) {
        fprintf(stderr, "weir-load: one address is wanted; --help tells more\n");
        exit(2);
    }
    self.to = argv[optind];
    if (self.io == LOAD_URING && (self.mode != LOAD_ECHO || load_tls_counted() != NULL)) {
        fprintf(stderr, "weir-load: --io uring is for mode echo without TLS\n");
        exit(2);
    }
    if (self.is_stepped && (self.mode != LOAD_ECHO || self.count == 0 || self.watched == 0)) {
        fprintf(stderr, "weir-load: --steps takes --watch, --count and mode echo\n");
        exit(2);
    }
    if (self.size == 0 && (self.mode != LOAD_CONNECT || load_tls_counted() != NULL)) {
        fprintf(stderr, "weir-load: --size 0 is for mode connect without TLS\n");
        exit(2);
    }
    return self;
}

/* What came out -------------------------------------------------------------------------------- */

static double per_message(const load_result *result, double value)
{
    return value >= 0 && result->messages > 0 ? value / (double)result->messages : -1;
}

static void print_json(const load_result *self)
{
    const histogram *latency = &self->latency;
    printf("{\"io\": \"%s\", \"messages\": %llu, \"seconds\": %.6f, \"failed\": %llu, "
           "\"client_cpu_ns\": %.0f",
           self->io, (unsigned long long)self->messages, self->seconds,
           (unsigned long long)self->failed, self->own_cpu_ns);
    printf(", \"kernel_kib\": %lld, \"kernel_kib_before\": %lld", (long long)self->kernel_kib,
           (long long)self->kernel_kib_before);
    printf(", \"latency_ns\": {\"mean\": %.0f, \"p50\": %llu, \"p90\": %llu, \"p99\": %llu, "
           "\"p999\": %llu, \"max\": %llu}",
           histogram_mean(latency), (unsigned long long)histogram_percentile(latency, 0.5),
           (unsigned long long)histogram_percentile(latency, 0.9),
           (unsigned long long)histogram_percentile(latency, 0.99),
           (unsigned long long)histogram_percentile(latency, 0.999),
           (unsigned long long)latency->largest_ns);
    if (self->is_watched)
        printf(", \"server\": {\"cpu_ns\": %.0f, \"user_share\": %.5f, \"samples\": %lld, "
               "\"entries\": %lld, \"resident_kib\": %lld, \"resident_kib_before\": %lld}",
               self->server.cpu_ns, self->server.user_share, (long long)self->server.samples,
               (long long)self->server.entries, (long long)self->server.resident_kib,
               (long long)self->resident_kib_before);
    if (self->steps > 0)
        printf(", \"steps\": %llu", (unsigned long long)self->steps);
    const load_tls_counts *tls = load_tls_counted();
    if (tls != NULL)
        printf(", \"tls\": {\"handshakes\": %llu, \"resumed\": %llu}",
               (unsigned long long)tls->handshakes, (unsigned long long)tls->resumed);
    printf("}\n");
}

static void print_latency(const histogram *latency)
{
    static const struct {
        const char *name;
        double share;
    } rows[] = { { "p50", 0.5 }, { "p90", 0.9 }, { "p99", 0.99 }, { "p99.9", 0.999 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        printf("  %-6s %10.1f us\n", rows[i].name,
               (double)histogram_percentile(latency, rows[i].share) / 1e3);
    printf("  %-6s %10.1f us\n", "max", (double)latency->largest_ns / 1e3);
}

static void print_server(const load_settings *settings, const load_result *self)
{
    const watch_result *server = &self->server;
    printf("server: busy %.0f%%, memory %lld KiB, of which %.0f bytes a connection\n",
           server->cpu_ns / self->seconds / 1e7, (long long)server->resident_kib,
           (double)(server->resident_kib - self->resident_kib_before) * 1024 /
               settings->connections);
    if (self->messages == 0 || settings->mode == LOAD_IDLE)
        return;
    printf("  a message costs %.0f ns of CPU", per_message(self, server->cpu_ns));
    if (server->user_share >= 0)
        printf(", %.0f of them in user mode (by %s)",
               per_message(self, server->cpu_ns * server->user_share),
               server->samples > 0 ? "samples" : "the kernel's ticks");
    if (server->entries >= 0)
        printf(", %.2f system calls", per_message(self, (double)server->entries));
    printf("\n");
}

static void print_text(const load_settings *settings, const load_result *self)
{
    static const char *const nouns[] = { "messages", "connections", "answers" };
    printf("%llu %s in %.2f s", (unsigned long long)self->messages, nouns[settings->mode],
           self->seconds);
    if (settings->mode != LOAD_IDLE) {
        printf(", %.0f a second; this client was busy %.0f%%\n",
               (double)self->messages / self->seconds, self->own_cpu_ns / self->seconds / 1e7);
        print_latency(&self->latency);
    } else {
        printf("\n");
    }
    const load_tls_counts *tls = load_tls_counted();
    if (tls != NULL)
        printf("TLS: %llu handshakes, %llu of them resumed\n", (unsigned long long)tls->handshakes,
               (unsigned long long)tls->resumed);
    if (self->is_watched)
        print_server(settings, self);
    if (self->steps > 0)
        printf("  a message takes %.1f instructions in user mode (by single steps)\n",
               per_message(self, (double)self->steps));
}

int main(int argc, char **argv)
{
    static int (*const runs[])(const load_settings *, load_result *) = {
        [LOAD_ECHO] = load_echo,
        [LOAD_CONNECT] = load_connect,
        [LOAD_IDLE] = load_idle,
    };
    static load_result result = { .io = "epoll" }; /* a histogram is too much for a stack */
    load_settings settings = parse(argc, argv);
    if (runs[settings.mode](&settings, &result) < 0)
        return 1;
    if (settings.is_json)
        print_json(&result);
    else
        print_text(&settings, &result);
    return 0;
}
