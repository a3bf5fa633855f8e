/* SPDX-License-Identifier: MIT */
/* Routes: a server, its clients, and the pipeline that both ends of their connections have. */
#ifndef CHAOS_ROUTE_H
#define CHAOS_ROUTE_H

#include "dice.h"
#include "end.h"

#include <weir/weir.h>

#ifdef WEIR_HAS_COMPRESSION
#include <weir/compression.h>
#endif
#ifdef WEIR_HAS_TLS
#include <weir/tls.h>
#else
typedef struct weir_tls_context weir_tls_context;
#endif

typedef enum transport {
    TRANSPORT_TCP,
    TRANSPORT_UNIX,
    TRANSPORT_LOCAL,
} transport;

enum { ROUTE_MAX_OPTIONS = 8 };

/* The handlers of a route's pipelines, and their configs. */
struct route {
    world *world;
    unsigned number;
    transport transport;
    uint32_t stream_bytes; /* that each writer may write */
    char address[64];

    bool has_traffic, has_idle, has_tls, has_compression, has_flush, has_frames, has_flow;
    bool has_chunked, has_file_bytes;
    bool takes_chunked, takes_files, has_whole_frames; /* what follows from these */
    bool offloads_end, offloads_frames, offloads_chunked, offloads_compression, offloads_tls;

    weir_traffic traffic;
    weir_idle idle;
    weir_flush_consolidation flush;
    weir_length_field frame_in;
    weir_length_prepender frame_out;
#ifdef WEIR_HAS_COMPRESSION
    weir_compression compression;
    weir_decompression decompression;
#endif
#ifdef WEIR_HAS_TLS
    weir_tls tls_server, tls_client;
#endif

    weir_option_value server_options[ROUTE_MAX_OPTIONS], client_options[ROUTE_MAX_OPTIONS];
    size_t server_option_count, client_option_count;

    weir_group *boss, *workers, *clients;
    weir_server *server;
    weir_connection_pool *pool; /* NULL: none */
};

/* Chooses a route and starts its server. A route whose server cannot start, because of a fault, has
 * none, and its clients fail. */
void route_open(route *self, world *where, unsigned number, dice *d);

/* Begins a connection; or acquires one from the pool. */
void route_connect(route *self, dice *d);

/* Gives the references back, first or all. */
void route_release_server(route *self);
void route_release(route *self);

void route_print(const route *self, FILE *to);

#endif
