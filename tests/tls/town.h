/* SPDX-License-Identifier: MIT */
/* An echo server behind TLS, with clients, over real loops and threads. */
#ifndef WEIR_TESTS_TLS_TOWN_H
#define WEIR_TESTS_TLS_TOWN_H

#include "tls/pair.h"

#include "bootstrap/servers.h"

#include <weir/client.h>
#include <weir/tls_select.h>

/* Where TLS computes. */
typedef enum place {
    ON_LOOP,
    HANDSHAKE_ELSEWHERE,
    ALL_ELSEWHERE,
} place;

typedef struct town {
    weir_group *loops, *clients, *others;
    weir_server *server;
    weir_tls_context *contexts[2]; /* the server's and the client's */
    weir_tls tls;                  /* the server's */
    place place;
    weir_tls_sni *sni; /* how the server finds its context; NULL: it has it in `tls` */
    bool is_double;    /* TLS in TLS, on both sides */
    int64_t linger_ns; /* of accepted connections; 0: as always */
    char address[64];
    atomic_int actives, inactives, errors, last_error, sessions;
    _Atomic(weir_channel *) accepted; /* the last one, with a reference */
    atomic_int accepted_count;
} town;

/* A client that collects. */
typedef struct caller {
    town *town;
    weir_tls tls;
    atomic_size_t heard;
    atomic_int wrong, errors, last_error, inactives;
} caller;

/* Listens at an address: the port of "127.0.0.1:0" is in `address` then. */
void town_open(town *self, const backend *io, place where, const char *address);

/* The same of one that has something already: times, is_double. */
void town_open_filled(town *self, const backend *io, place where, const char *address);
void town_close(town *self);

/* A client that is connected, with one reference; its handshake may still be under way. */
weir_channel *town_call(town *self, caller *by);

/* For servers and clients that are made otherwise; the argument is the town and the caller. */
int town_init_child(weir_channel *channel, void *arg);
int town_init_caller(weir_channel *channel, void *arg);

int town_add_tls(weir_channel *channel, const char *name, const weir_tls *tls, weir_group *group);

/* Closes it, and gives the reference back. */
void town_hang_up(weir_channel *channel);

/* Writes so many bytes, in pieces of all sizes, and flushes; callers know what they expect. */
void town_say(weir_channel *channel, size_t length);

/* Four callers say little and much, hear it again and hang up, and nothing goes wrong. */
void town_echo(town *self);

#endif
