/* SPDX-License-Identifier: MIT */
/* Ends: one channel of a connection, with the handler that checks what it receives. */
#ifndef CHAOS_END_H
#define CHAOS_END_H

#include "dice.h"
#include "stream.h"
#include "tenure.h"

#include <weir/channel.h>
#include <weir/handler.h>

#include <stdio.h>

#define END_HOLDS 3

typedef struct world world;
typedef struct route route;
typedef struct guest guest;

/* The threads that may act on an end. */
typedef enum end_role {
    END_HELD,   /* drivers, which have a reference until the seed ends; and its own handler */
    END_LOOSE,  /* its handler alone: nothing but weir holds it */
    END_POOLED, /* its handler, and the thread that has acquired it from the pool */
} end_role;

struct end {
    world *world;
    route *route;
    unsigned number;
    bool is_server;
    end_role role;
    weir_channel *channel; /* a reference for END_HELD, else to be used in callbacks alone */
    tenure tenure;         /* of the end's own handler */
    weir_ctx *ctx;         /* the handler's; on its executor */
    dice dice;             /* the handler's */
    stream *by_handler, *by_driver;
    receiver in;
    door on_loop, offloaded;
    _Atomic(end *) peer;
    _Atomic(guest *) guests;

    /* Events, for the checks at the end of the seed. */
    bool is_registered, was_active, is_active; /* as the handler was notified */
    atomic_bool is_ended;                      /* this side closes or finishes it */
    atomic_uint shutdowns;                     /* of its output */
    atomic_bool is_input_ended;                /* as the handler was notified */
    atomic_bool has_eof;                       /* received before this side ended it */
    atomic_bool has_failed;                    /* on_error, or a write that failed */
    atomic_bool is_opened, is_down, is_closed; /* on_active, on_inactive, weir_channel_closed */
    atomic_bool is_spent;                      /* its borrower has ended it */
    weir_listener closed;
    bool is_watched;

    atomic_uint writability_events;
    weir_hold read_holds[END_HOLDS], write_holds[END_HOLDS]; /* that actions set */

    /* The driver's: it has seen that the channel is not writable. */
    bool is_blocked;
    unsigned blocked_at;
};

/* Makes the end of a channel inside its initializer, and adds its handler. A negative code fails
 * the initializer. */
int end_new(route *path, weir_channel *channel, bool is_server, end_role role, dice *d);

/* The end of a channel that has one. */
end *end_of(weir_channel *channel);

/* Two ends have found that they are of one connection. */
void end_set_peer(end *self, end *peer);

/* Notes that this side ends the channel, before it does. */
void end_set_ended(end *self);

/* Notes that a driver has seen that the channel is not writable; asks whether that still stands. */
void end_set_blocked(end *self, unsigned events_before);
bool end_is_blocked(end *self);

/* Whether no output is in flight to the peer, or none can arrive. */
bool end_has_settled(end *self);

/* When all threads have ended. */
void end_check(const end *self);
void end_print(const end *self, FILE *to);
void end_free(end *self);

#endif
