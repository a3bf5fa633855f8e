/* SPDX-License-Identifier: MIT */
/* The world of a seed: its groups, routes, ends and threads, from the first call to the checks. */
#ifndef CHAOS_WORLD_H
#define CHAOS_WORLD_H

#include "dice.h"
#include "route.h"

#include <pthread.h>

/* Options of the command line. */
typedef struct settings {
    weir_io_kind io;  /* WEIR_IO_AUTO: all */
    int64_t fault_in; /* one call in so many fails; 0: none, negative: as the seed says */
    unsigned limit_s; /* for one seed */
} settings;

enum { MAX_LOOP_GROUPS = 3, MAX_ROUTES = 3, MAX_ENDS = 256, MAX_DRIVERS = 2, MAX_BORROWED = 16 };

typedef struct loop_group {
    weir_group *group;
    weir_io_kind io;
} loop_group;

/* A connection that was acquired from a pool, and is to be given back. */
typedef struct loan {
    weir_connection_pool *pool;
    weir_channel *channel;
} loan;

typedef struct driver {
    world *world;
    unsigned number;
    dice dice;
    pthread_t thread;
} driver;

struct world {
    uint64_t seed;
    settings settings;
    dice dice; /* the main thread's */

    loop_group loops[MAX_LOOP_GROUPS];
    unsigned loop_groups;
    weir_group *executors;
    weir_tls_context *tls_server, *tls_client;
    weir_channel_group *room;
    stream *broadcasts; /* to the room, by the first driver */

    route routes[MAX_ROUTES];
    unsigned route_count;

    _Atomic(end *) ends[MAX_ENDS];
    atomic_uint end_count;
    atomic_uint inits, children, clients; /* initializers called: of all, accepted, connecting */

    driver drivers[MAX_DRIVERS];
    unsigned driver_count, steps;
    bool ends_under_load;  /* drivers go on while everything is shut down */
    atomic_bool is_calm;   /* no more random actions */
    atomic_uint acting;    /* handlers and listeners that are in one */
    atomic_bool is_ending; /* everything is being closed */

    pthread_mutex_t lock; /* of the loans */
    loan loans[MAX_BORROWED];
    unsigned loan_count;
};

/* Makes certificates and such, once. */
void world_init(void);

/* Runs a seed; returns when it has passed. */
void world_run(uint64_t seed, const settings *how, const char *repeat);

/* Gives an end its number; false when there are too many. Then publishes it for the drivers. */
bool world_number_end(world *self, end *which);
void world_publish_end(world *self, end *which);

/* Any loop that a channel can be moved to; NULL when there is none. */
weir_executor *world_any_loop(world *self, dice *d);
bool world_is_blocking(const world *self, const weir_group *group);

/* Keeps a connection of a pool until a driver uses it and gives it back. */
void world_borrow(world *self, weir_connection_pool *pool, weir_channel *channel);

#endif
