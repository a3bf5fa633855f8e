/* SPDX-License-Identifier: MIT */
/* The race of the addresses of a name: Happy Eyeballs. */
#ifndef WEIR_BOOTSTRAP_RACE_H
#define WEIR_BOOTSTRAP_RACE_H

#include "bootstrap/client.h"
#include "exec/operation.h"
#include "io/io.h"
#include "loop/loop.h"

#include <weir/timer.h>

typedef struct weir_race weir_race;

/* One address that is tried. */
typedef struct weir_attempt {
    weir_race *race;
    const weir_address *address;
    weir_io_file file;
    weir_io_op op;
    struct weir_claim *claim; /* of the path it comes from */
    weir_channel *channel;    /* within the process, in place of a socket: while it connects */
    weir_awaited on_local;
    bool is_given_up; /* it has not answered, and the next one needs what it has */
    int code;         /* 0 while nobody knows */
} weir_attempt;

/*
 * The first address is tried; when that fails, or takes long, the next one; there may be several at
 * once. Where there cannot be, because the loop is for one descriptor, or there are no more, the
 * one that hangs is given up after its share of the time that is left. Until a socket has won it is
 * none of any channel's. All of it is the loop's.
 */
struct weir_race {
    /* The owner's to set. */
    const weir_client_plan *plan;
    const char *text;          /* what it connects to */
    const weir_address *local; /* where to come from; may be none */
    weir_loop *loop;
    weir_operation *operation; /* which each attempt holds */
    int64_t until_ns;          /* when all of it has to be over; 0: whenever it is */

    weir_timer stagger; /* the next one's time comes */
    int64_t tried_ns;   /* when the last one was tried */
    bool is_crowded;    /* or that to give one up, for the next has no room */
    weir_attempt *attempts;
    size_t count;      /* of addresses; those from `next` on are only addresses yet */
    size_t next;       /* which to try */
    size_t running;    /* attempts under way */
    bool may_get_more; /* addresses: then it is not lost, though all have failed */
    bool is_over;
};

/* The owner's, in connector.c. The race is over, once: a channel, which the owner keeps, or how the
 * first address failed. A socket's channel still has to be set up and registered; an in-process one
 * is both. Neither is called after weir__race_stop. */
void weir__connector_won(weir_race *race, weir_channel *channel, bool is_registered);
void weir__connector_lost(weir_race *race, int code);

/* An attempt that was stopped has ended. */
void weir__connector_settle(weir_race *race);

/* Begins; the addresses have to stay. If `may_get_more`, weir__race_add follows. 0, and the race
 * may be over already; or a negative code, and nothing has begun. */
int weir__race_begin(weir_race *self, const weir_addresses *addresses, bool may_get_more);

/* Adds further addresses (NULL: there are none), which have to stay, to those that were not tried
 * yet, alternating, the first of the new ones first (RFC 8305, section 3). Once, on the loop. */
void weir__race_add(weir_race *self, const weir_addresses *addresses);

/* Whatever is under way ends soon: weir__connector_settle follows each time, until there is nothing
 * running. Also when it has not begun. */
void weir__race_stop(weir_race *self);

/* What was tried, and why not; what nobody knows has failed like all of it, and that is logged. */
void weir__race_describe(const weir_race *self, int failure, weir_error *error);

void weir__race_free(weir_race *self);

#endif
