/* SPDX-License-Identifier: MIT */
/* What the example servers share: common options, and weir_app_run with them. */
#ifndef WEIR_EXAMPLES_COMMON_H
#define WEIR_EXAMPLES_COMMON_H

#include "options.h"

#include <weir/weir.h>

/* TLS on one side of a program; see common_tls.c. */
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

/* clang-format off */
#define EXAMPLE_TLS_SERVER_OPTIONS(tls)                                                            \
    { "tls", NULL, "speak TLS with clients", .flag = &(tls)->is_wanted },                          \
    { "cert", "FILE", "certificate chain (default: self-signed, for localhost)",                   \
      .text = &(tls)->certificate },                                                               \
    { "key", "FILE", "private key of the certificate", .text = &(tls)->key }

#define EXAMPLE_TLS_CLIENT_OPTIONS(tls)                                                            \
    { "ca", "FILE", "trusted certificates (default: those of the system)", .text = &(tls)->ca },   \
    { "host", "NAME", "name in the server's certificate (default: the host of --connect)",         \
      .text = &(tls)->host },                                                                      \
    { "insecure", NULL, "do not verify the server's certificate", .flag = &(tls)->is_insecure }
/* clang-format on */

/* A server. The command line overrides the addresses. */
typedef struct example {
    const char *name;
    const char *about;             /* for --help: complete lines */
    const char *listen;            /* the address */
    const char *connect;           /* of another server; NULL: none */
    const example_option *options; /* besides the common ones; NULL: none */
    weir_server_config server;     /* without groups and acceptors */

    /* Called when the server listens on `address`, as weir_app_config's. May be NULL. */
    int (*on_start)(weir_app *app, const weir_address *address, weir_error *error);

    example_tls tls; /* with clients */
    example_tls connect_tls;
} example;

/** Parses the command line, serves until a signal, and returns the exit code. */
int example_run(example *self, int argc, char **argv);

/* TLS. Without OpenSSL, programs that ask for it fail. */

/** Loads the context that the options ask for, if any: of a server, or of a client that connects to
 * `address`. Returns false after printing an error. Exits with 2 if the options contradict each
 * other. */
bool example_tls_serve(example_tls *self, const char *program);
bool example_tls_connect(example_tls *self, const char *program, const char *address);

/** Adds the handler to the tail of the pipeline if the options ask for TLS. Returns 0 or the code
 * of weir_pipeline_add_last. */
int example_tls_add(const example_tls *self, weir_channel *channel);

/** Releases the context. */
void example_tls_end(example_tls *self);

#endif
