/* SPDX-License-Identifier: MIT */
/* What the example servers share: their options, and a life from "listening" to a signal. */
#ifndef WEIR_EXAMPLES_COMMON_H
#define WEIR_EXAMPLES_COMMON_H

#include <weir/weir.h>

/* TLS on one side of a program, as the command line says; common_tls.c has it. */
typedef struct example_tls {
    bool is_wanted;                /* --tls, or --connect-tls */
    const char *certificate, *key; /* --cert and --key: files */
    const char *ca;                /* --ca: a file */
    const char *host;              /* --host */
    bool is_insecure;              /* --insecure */

    /* For common_tls.c alone. */
    struct weir_tls_context *context;
    char host_of_address[256];
} example_tls;

typedef struct example {
    /* Set these, before example_parse changes them to what the command line says. */
    const char *name;    /* of the program */
    const char *about;   /* what it does, for --help: whole lines */
    const char *listen;  /* the address */
    const char *connect; /* another one, for a program that has --connect; else NULL */
    bool has_copy;       /* whether it has --copy, too */
    bool has_proxy;      /* whether it has --proxy-protocol */
    bool has_tls;        /* whether it has --tls, and with `connect` also --connect-tls */

    bool is_copying;    /* --copy was there */
    bool expects_proxy; /* --proxy-protocol was there */
    example_tls tls;    /* towards clients */
    example_tls connect_tls;

    /* Made by example_listen. */
    weir_group *boss, *workers;
    weir_server *server;

    /* For common.c alone. */
    int boss_loops, loops, acceptors;
    weir_group *main_loop;
    weir_signal interrupt, terminate;
    bool is_ending;
} example;

/** Reads the command line. Does not return after --help, nor from what it does not understand. */
void example_parse(example *self, int argc, char **argv);

/** Listens as the command line says; of the config only the groups and acceptors are filled in.
 * False when that fails, which it has then told on standard error. */
bool example_listen(example *self, const weir_server_config *config);

/** Says where it listens, and returns when a signal has ended the server. */
void example_serve(example *self);

/** Gives everything back, however far it came. */
void example_end(example *self);

/* For all programs: */

struct option; /* of <getopt.h> */

/** The next option, as getopt_long; -1 when only words are left, from argv[optind] on. An
 * explanation and exit(2) for options that are none, and for more words than there should be. */
int example_next_option(const char *program, int argc, char **argv, const struct option *options,
                        int most_words);

/** The same for a program that knows --help alone. */
void example_only_help(const char *program, int argc, char **argv, int most_words,
                       const char *help);

/** A number within a range, or an explanation and exit(2). `what` is the option. */
int example_number(const char *program, const char *what, const char *text, int least, int most);

/** --io and --log: what they say holds for the whole program. The same for bad values. */
void example_choose_io(const char *program, const char *kind);
void example_choose_log(const char *program, const char *level);

/* TLS. Where weir was built without it, who wants it is told so. */

/** Makes ready what the command line asks for, if it asks: a server's side, or a client's towards
 * an address. False when that fails, which is then told on standard error. An explanation and
 * exit(2) for switches that do not go together. */
bool example_tls_serve(example_tls *self, const char *program);
bool example_tls_connect(example_tls *self, const char *program, const char *address);

/** The next handler of a pipeline, if TLS is wanted; 0 or what adding it says. */
int example_tls_add(const example_tls *self, weir_channel *channel);

void example_tls_end(example_tls *self);

/** --help's lines of a client's side. */
#define EXAMPLE_TLS_HELP                                                                           \
    "  --ca FILE          whom to trust to say who the server is (default: as the system does)\n"  \
    "  --host NAME        whom the certificate must be for (default: the host of --connect)\n"     \
    "  --insecure         take anybody for the server: whoever is in between reads along\n"

#endif
