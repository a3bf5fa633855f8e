/* SPDX-License-Identifier: MIT */
/* A client and a server that talk TLS to each other, without a network. */
#ifndef WEIR_TESTS_TLS_PAIR_H
#define WEIR_TESTS_TLS_PAIR_H

#include "harness.h"

#include <weir/channel.h>
#include <weir/embedded.h>
#include <weir/tls.h>

/* What one of the two has. */
typedef struct pair_end {
    weir_embedded *embedded;
    weir_tls tls;
    const weir_handler_type *first; /* NULL: weir_tls_handler with `tls` */
    void *first_arg;
    const weir_handler_type *last; /* behind TLS; NULL: none */
    void *last_arg;
    bool allows_half_closure;
    weir_option_value option; /* one more; value 0 and AUTO_READ count as well */
    bool has_option;
    int64_t begins_ns; /* by the clock of its loop */
} pair_end;

typedef struct pair {
    pair_end client, server;
    size_t most; /* bytes that get to the other side at a time; 0: all of them */
} pair;

/* Contexts for "localhost" that trust each other: fill what else `config` is to have, or NULL. Kept
 * by the caller, who releases them. */
weir_tls_context *pair_server_context(const weir_tls_config *config);
weir_tls_context *pair_client_context(const weir_tls_config *config);

/* The certificate of those, made once for the process. */
const weir_tls_self_signed *pair_identity(void);

/* Adds what an end has, for weir_embedded_config.init. */
int pair_init(weir_channel *channel, void *end);

/* What OpenSSL and weir make once, as a group's setup. */
int pair_warm_up(void **state);

/* Makes both channels; `pair` may have been filled: contexts that are NULL are made, and released
 * by pair_finish. */
void pair_begin(pair *both);

/* The same with an option of both channels. */
void pair_begin_with(pair *both, weir_option option, int64_t value);

/* Carries what was sent to the other side, until there is nothing more. Returns how many bytes. */
size_t pair_carry(pair *both);

/* To one side only, what there is now. */
size_t pair_carry_to(pair *both, pair_end *to);

/* Both handshakes are done then. */
void pair_shake(pair *both);

/* Writes a text on one side, flushes, carries it, and compares what came out on the other. */
void pair_say(pair *both, pair_end *from, const char *text);

/* Writes bytes on one side, and does not flush them: a promise, for the next one to release. */
weir_promise *pair_write(pair_end *end, const void *bytes, size_t length);
int pair_code_of(weir_promise *promise);

/* All that has come out on a side, as one text in `to`; its length. */
size_t pair_heard(pair_end *end, char *to, size_t size);

/* Takes the error on a side, and compares its code. */
void pair_expect_error(pair_end *end, int code);

void pair_finish(pair *both);

#endif
