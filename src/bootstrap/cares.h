/* SPDX-License-Identifier: MIT */
/* The state that c-ares lookups of a group share, and one lookup. */
#ifndef WEIR_BOOTSTRAP_CARES_H
#define WEIR_BOOTSTRAP_CARES_H

#include "base/list.h"
#include "base/sys.h"
#include "bootstrap/name_cache.h"
#include "bootstrap/name_config.h"
#include "bootstrap/names.h"
#include "exec/group.h"
#include "exec/operation.h"
#include "loop/loop.h"

#include <ares.h>

/* Lookups that run at once in a group; others wait in order. */
#define WEIR__CARES_MAX 512

typedef struct weir_names {
    weir_group_data data;

    /* Set once. */
    weir_name_paths paths;
    uint16_t port;  /* 0: 53 */
    int timeout_ms; /* of the first try; each further one has twice as long */

    pthread_mutex_t lock;     /* of the fields below */
    weir_name_config *config; /* as it was read last; NULL before the first lookup */
    weir_name_cache cache;    /* of answers that servers gave under this configuration */
    size_t running;
    weir_list waiting; /* lookups, as the lookup's file links them */
} weir_names;

/* The group's, made on first use; NULL without memory or random numbers for its key. */
weir_names *weir__names_of(weir_group *group);

/* The current configuration, read again if a file has changed, which also clears the cache: 0 and a
 * reference. A negative code if it cannot be read, and never could before. Any thread. */
int weir__names_config(weir_names *names, weir_sys *sys, weir_name_config **config);

/* Lookups ----------------------------------------------------------------------------------------
 */

enum { WEIR__IPV6, WEIR__IPV4, WEIR__FAMILIES, WEIR__NO_FAMILY };

/* One question of the two. */
typedef struct weir_ares_question {
    struct weir_ares_lookup *of;
    int family;
    bool is_done;
    bool is_timed_out;
    int code;
    weir_candidates found;
} weir_ares_question;

/*
 *   start            on the loop: takes its place among those that run, or waits for one
 *   run              opens a channel, and asks for the first name
 *   proceed          after every call of c-ares: passes answers on, asks for the next name
 *   conclude         completes the promises, closes the channel
 *
 * Each lookup has a channel of its own, so c-ares reads resolv.conf for each, every question comes
 * from a new port, and closing the channel ends it. Names are tried one after another, as the
 * search list has them; both families are asked for each, so that no two hosts are mixed. c-ares
 * only gets absolute names, which it does not search for: versions differ in where they take
 * domains from. Each definite answer is cached when it is received, by name and family.
 */
typedef struct weir_ares_lookup {
    weir_operation operation; /* of the last promise, from `start` on; each socket holds it */
    weir_loop *loop;
    ares_channel channel;
    weir_list sockets; /* open, which the loop watches */
    int failure;       /* of a watch that could not be started; 0: none */
    weir_names *names;
    weir_name_config *config; /* a reference: as it was when the lookup started */
    weir_promise *promise, *rest;
    uint16_t port;
    weir_task task; /* its start, or its turn after it has waited */
    weir_list_node waiting;
    weir_resident resident;
    weir_timer retry, delay;

    bool is_running; /* and counted among those */
    bool is_open;    /* it has a channel */
    int passed;      /* the family whose addresses the first promise has; or WEIR__NO_FAMILY */
    bool is_delay_over;
    bool is_concluded;
    weir_ares_question questions[WEIR__FAMILIES];
    unsigned tried;          /* names */
    bool has_failed;         /* a server failed to answer for one of those */
    weir_absolute_name name; /* the last of them */
    char host[];
} weir_ares_lookup;

/* Starts a lookup that servers have to answer, on the loop of the executor. 0, and *query->rest is
 * set; or a negative code. Any thread. */
int weir__ares_lookup_start(const weir_name_query *query, weir_executor *executor,
                            weir_names *names, weir_name_config *config);

/* Asks, and concludes the lookup some time, or at once. On the loop. */
void weir__ares_lookup_run(weir_ares_lookup *lookup);

/* Completes the promises that are pending, closes the channel, and ends the operation. On the loop,
 * and not from within a call of c-ares. */
void weir__ares_lookup_conclude(weir_ares_lookup *lookup, int code);

/* c-ares has read or written: the channel may have answers. After every call of c-ares. */
void weir__ares_lookup_proceed(weir_ares_lookup *lookup);

/* Its timers. */
int weir__ares_on_retry(weir_timer *timer);
int weir__ares_on_delay(weir_timer *timer);

/* Opens the channel, with the servers and options of resolv.conf, whose sockets use the loop's
 * system calls: ARES_SUCCESS, or the failure. On the loop. */
int weir__ares_sockets_open(weir_ares_lookup *lookup);

#endif
