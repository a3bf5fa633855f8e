/* SPDX-License-Identifier: MIT */
/* What the example servers share: their options, and a life from "listening" to a signal. */
#include "common.h"

#include <ctype.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_MS 5000 /* how long open connections may take to end when the server does */

/* Options -------------------------------------------------------------------------------------- */

static void refuse(const char *program, const char *why, const char *what)
{
    fprintf(stderr, "%s: %s %s; try --help\n", program, why, what);
    exit(2);
}

int example_next_option(const char *program, int argc, char **argv, const struct option *options,
                        int most_words)
{
    opterr = 0; /* getopt_long would tell with the whole path of the program */
    int which = getopt_long(argc, argv, ":", options, NULL);
    if (which == '?' && isprint(optopt))
        refuse(program, "unknown option", (char[]){ '-', (char)optopt, '\0' });
    else if (which == '?')
        refuse(program, "unknown option", argv[optind - 1]);
    else if (which == ':')
        refuse(program, "no value after", argv[optind - 1]);
    else if (which == -1 && argc - optind > most_words)
        refuse(program, "unexpected argument", argv[optind + most_words]);
    return which;
}

void example_only_help(const char *program, int argc, char **argv, int most_words, const char *help)
{
    static const struct option options[] = { { "help", no_argument, NULL, 0 }, { 0 } };
    if (example_next_option(program, argc, argv, options, most_words) == -1)
        return;
    fputs(help, stdout);
    exit(0);
}

int example_number(const char *program, const char *what, const char *text, int least, int most)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || number < least || number > most) {
        fprintf(stderr, "%s: %s: '%s' is no number from %d to %d\n", program, what, text, least,
                most);
        exit(2);
    }
    return (int)number;
}

/* A group that does not say takes what the environment says. */
void example_choose_io(const char *program, const char *kind)
{
    if (weir_io_kind_from(kind) >= 0) {
        setenv("WEIR_IO", kind, 1);
        return;
    }
    fprintf(stderr, "%s: --io: '%s' is none of auto, epoll, uring and blocking\n", program, kind);
    exit(2);
}

void example_choose_log(const char *program, const char *level)
{
    int number = weir_log_level_from(level);
    if (number < 0) {
        fprintf(stderr, "%s: --log: '%s' is none of off, error, warn, info, debug and trace\n",
                program, level);
        exit(2);
    }
    weir_log_to_stderr((weir_log_level)number);
}

static void print_help(const example *self)
{
    printf("usage: %s [OPTION]...\n%s\n", self->name, self->about);
    printf("  --listen ADDR    where to listen; port 0 is any that is free (default %s)\n",
           self->listen);
    if (self->connect != NULL)
        printf("  --connect ADDR   where to connect to (default %s)\n", self->connect);
    if (self->has_copy)
        printf("  --copy           let handlers see the bytes; --log debug shows them\n");
    if (self->has_proxy)
        printf(
            "  --proxy-protocol connections come through a proxy, and begin with a header of its\n"
            "                   that says from whom; --log info shows it\n");
    if (self->has_tls)
        printf("  --tls            clients speak TLS\n"
               "  --cert FILE      the certificate for that, with those that lead to its issuer\n"
               "                   (default: one is made for localhost, which nobody trusts)\n"
               "  --key FILE       the certificate's key\n");
    if (self->has_tls && self->connect != NULL)
        printf("  --connect-tls    the other server speaks TLS\n" EXAMPLE_TLS_HELP);
    printf(
        "  --io KIND        auto, epoll, uring or blocking, as WEIR_IO of the environment\n"
        "  --boss N         loops that accept connections (default 1)\n"
        "  --loops N        loops that serve them (default: two per CPU)\n"
        "  --acceptors N    listeners on the address, one per boss loop (default 1)\n"
        "  --log LEVEL      off, error, warn, info, debug or trace (default warn)\n"
        "  --help           this text\n"
        "An address is 127.0.0.1:80, [::1]:80, :80, localhost:80, unix:/path or unix:@name; to\n"
        "listen, also fd:3, a socket that is inherited, or systemd:, those of LISTEN_FDS. With\n"
        "--io blocking each connection has a loop of its own, however many --boss and --loops "
        "say.\n"
        "SIGINT and SIGTERM end it: open connections have %d s to end, or until the next signal.\n",
        DRAIN_MS / 1000);
}

void example_parse(example *self, int argc, char **argv)
{
    enum {
        LISTEN,
        IO,
        BOSS,
        LOOPS,
        ACCEPTORS,
        LOG,
        HELP,
        CONNECT,
        COPY,
        PROXY,
        TLS,
        CERT,
        KEY,
        CONNECT_TLS,
        CA,
        HOST,
        INSECURE,
        ALL
    };
    struct option options[ALL + 1] = {
        [LISTEN] = { "listen", required_argument, NULL, LISTEN },
        [IO] = { "io", required_argument, NULL, IO },
        [BOSS] = { "boss", required_argument, NULL, BOSS },
        [LOOPS] = { "loops", required_argument, NULL, LOOPS },
        [ACCEPTORS] = { "acceptors", required_argument, NULL, ACCEPTORS },
        [LOG] = { "log", required_argument, NULL, LOG },
        [HELP] = { "help", no_argument, NULL, HELP },
    };
    struct option *next = &options[HELP + 1]; /* what some have */
    if (self->connect != NULL)
        *next++ = (struct option){ "connect", required_argument, NULL, CONNECT };
    if (self->has_copy)
        *next++ = (struct option){ "copy", no_argument, NULL, COPY };
    if (self->has_proxy)
        *next++ = (struct option){ "proxy-protocol", no_argument, NULL, PROXY };
    if (self->has_tls) {
        *next++ = (struct option){ "tls", no_argument, NULL, TLS };
        *next++ = (struct option){ "cert", required_argument, NULL, CERT };
        *next++ = (struct option){ "key", required_argument, NULL, KEY };
    }
    if (self->has_tls && self->connect != NULL) {
        *next++ = (struct option){ "connect-tls", no_argument, NULL, CONNECT_TLS };
        *next++ = (struct option){ "ca", required_argument, NULL, CA };
        *next++ = (struct option){ "host", required_argument, NULL, HOST };
        *next++ = (struct option){ "insecure", no_argument, NULL, INSECURE };
    }
    const char *name = self->name;
    example_choose_log(name, "warn");
    self->boss_loops = 1;
    for (int which; (which = example_next_option(name, argc, argv, options, 0)) != -1;) {
        switch (which) {
        case LISTEN:
            self->listen = optarg;
            break;
        case CONNECT:
            self->connect = optarg;
            break;
        case COPY:
            self->is_copying = true;
            break;
        case PROXY:
            self->expects_proxy = true;
            break;
        case TLS:
            self->tls.is_wanted = true;
            break;
        case CERT:
            self->tls.certificate = optarg;
            break;
        case KEY:
            self->tls.key = optarg;
            break;
        case CONNECT_TLS:
            self->connect_tls.is_wanted = true;
            break;
        case CA:
            self->connect_tls.ca = optarg;
            break;
        case HOST:
            self->connect_tls.host = optarg;
            break;
        case INSECURE:
            self->connect_tls.is_insecure = true;
            break;
        case IO:
            example_choose_io(name, optarg);
            break;
        case BOSS:
            self->boss_loops = example_number(name, "--boss", optarg, 1, 1024);
            break;
        case LOOPS:
            self->loops = example_number(name, "--loops", optarg, 1, 1024);
            break;
        case ACCEPTORS:
            self->acceptors = example_number(name, "--acceptors", optarg, 1, 1024);
            break;
        case LOG:
            example_choose_log(name, optarg);
            break;
        default: /* HELP */
            print_help(self);
            exit(0);
        }
    }
}

/* Signals -------------------------------------------------------------------------------------- */

/* The first one lets connections end, the second one ends them. One that comes before there is a
 * server is kept for example_serve. */
static void on_signal(example *self, int number)
{
    weir_listener_stats stats;
    weir_server_get_stats(self->server, &stats);
    if (!self->is_ending && stats.connections > 0)
        fprintf(stderr, "%s: %s: open connections have %d s to end, or until the next signal\n",
                self->name, strsignal(number), DRAIN_MS / 1000);
    weir_server_drain(self->server, self->is_ending ? 0 : DRAIN_MS, NULL);
    self->is_ending = true;
}

static void on_interrupt(weir_signal *signal, int number)
{
    on_signal(WEIR_CONTAINER(signal, example, interrupt), number);
}

static void on_terminate(weir_signal *signal, int number)
{
    on_signal(WEIR_CONTAINER(signal, example, terminate), number);
}

/* A manual loop has no thread: the main thread runs it while it waits for the server's end. */
static int catch_signals(example *self, weir_error *error)
{
    weir_group_config config = { .loops = 1, .is_manual = true };
    int code = weir_group_new(&self->main_loop, &config, error);
    if (code < 0)
        return code;
    weir_loop *loop = weir_group_loop_at(self->main_loop, 0);
    self->interrupt.raised = on_interrupt;
    self->terminate.raised = on_terminate;
    code = weir_loop_signal(loop, &self->interrupt, SIGINT);
    if (code == 0)
        code = weir_loop_signal(loop, &self->terminate, SIGTERM);
    return code < 0 ? weir_error_set(error, code, self->name, "cannot wait for signals: %s",
                                     weir_error_text(code))
                    : 0;
}

/* A server's life ------------------------------------------------------------------------------ */

bool example_listen(example *self, const weir_server_config *config)
{
    weir_group_config boss = { .loops = self->boss_loops, .name = "boss" };
    weir_group_config workers = { .loops = self->loops, .name = "worker" };
    weir_server_config full = *config;
    weir_error error;
    if (!example_tls_connect(&self->connect_tls, self->name, self->connect) ||
        !example_tls_serve(&self->tls, self->name))
        return false;
    int code = catch_signals(self, &error); /* before there are other threads */
    if (code == 0)
        code = weir_group_new(&self->boss, &boss, &error);
    if (code == 0)
        code = weir_group_new(&self->workers, &workers, &error);
    if (code == 0) {
        full.boss = self->boss;
        full.workers = self->workers;
        full.acceptors = self->acceptors;
        code = weir_server_listen(&self->server, &full, self->listen, &error);
    }
    if (code < 0)
        fprintf(stderr, "%s: %s\n", self->name, error.message);
    return code == 0;
}

void example_serve(example *self)
{
    weir_address address;
    char text[WEIR_ADDRESS_TEXT_MAX] = "";
    if (weir_server_address(self->server, &address) == 0)
        weir_address_text(&address, text, sizeof text);
    printf("listening on %s\n", text);
    fflush(stdout);
    if (self->is_ending)
        weir_server_drain(self->server, 0, NULL);
    weir_future_await(weir_server_closed(self->server));
}

/* Nothing is under way any more that a quiet period would be good for. */
static void end_group(weir_group *group)
{
    if (group != NULL)
        weir_group_shutdown(group, 0, DRAIN_MS);
    weir_group_free(group);
}

void example_end(example *self)
{
    weir_server_release(self->server);
    end_group(self->boss);
    end_group(self->workers);
    end_group(self->main_loop);
    example_tls_end(&self->tls);
    example_tls_end(&self->connect_tls);
    weir_leak_report(NULL, NULL); /* debug builds name the messages that nobody released */
}
