/* SPDX-License-Identifier: MIT */
/* The simulated network: whole servers and clients in one thread, on a virtual clock, from a seed.
 */
#ifndef WEIR_SIM_H
#define WEIR_SIM_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/channel.h>
#include <weir/clock.h>
#include <weir/duration.h>
#include <weir/error.h>
#include <weir/future.h>
#include <weir/group.h>
#include <weir/socket.h>

WEIR_BEGIN_DECLS

/*
 * A simulation has hosts, each with addresses and event loops of its own, and a network between
 * them that can be slow, lose connections or be cut. Servers, clients, pools and pipelines run on
 * it as they do on Linux: only their group is another one. No thread is started, no socket opened,
 * and no time passes but on the simulation's clock, which moves on when there is nothing to do.
 *
 *     weir_sim *sim;
 *     weir_sim_host *here, *there;
 *     weir_group *servers, *clients;
 *     weir_sim_new(&sim, &(weir_sim_config){ .seed = 7, .link.jitter_ns = WEIR_MS(5) }, NULL);
 *     weir_sim_add_host(sim, &there, "server", "10.0.0.1");
 *     weir_sim_add_host(sim, &here, "client", "10.0.0.2");
 *     weir_sim_add_group(there, &servers, NULL, NULL);
 *     weir_sim_add_group(here, &clients, NULL, NULL);
 *     weir_server_listen(&server, &(weir_server_config){ .workers = servers, ... }, ":80", NULL);
 *     weir_client_connect(&channel, &(weir_client_config){ .group = clients, ... }, "server:80",
 *                         NULL);
 *     weir_sim_run(sim, WEIR_SECONDS(10));
 *     ...
 *     weir_sim_free(sim);
 *
 * Everything that is left to chance is drawn from the seed: the same program with the same seed
 * does the same, in the same order, and leaves the same trace, byte for byte. That holds as long as
 * the program itself leaves nothing to chance: no threads, no other clock, no pointers or channel
 * ids in what it sends, hashes or prints.
 *
 * What is simulated: TCP and Unix streams and their listeners, UDP, and the names of hosts. What is
 * not: Unix datagrams, multicast, descriptors that are sent along, splicing (weir_relay), signals;
 * those fail with -EOPNOTSUPP or -ENOSYS. Files are the real ones.
 *
 * All functions on the thread that made the simulation, and unless they say otherwise also from
 * inside callbacks.
 */
typedef struct weir_sim weir_sim;
typedef struct weir_sim_host weir_sim_host;

/** The most hosts of a simulation, and addresses of a host. */
#define WEIR_SIM_HOSTS 32
#define WEIR_SIM_ADDRESSES 4

/** What the way from one host to another is like. Zero is a calm one. A chance is from 0, never, to
 * 1, always. */
typedef struct weir_sim_link {
    int64_t latency_ns; /* how long everything takes; 0: 0.1 ms (a host to itself: none), WEIR_OFF:
                           none */
    int64_t jitter_ns;  /* and up to so much more, drawn each time; a stream's order stays */
    int64_t bytes_per_second; /* 0: any number */
    int64_t window_bytes; /* a stream takes so many that the other side has not read; 0: 65536 */
    double reset;         /* the chance of each send that the connection is lost: ECONNRESET */
    double refuse;        /* the chance of each connect to be refused, though somebody listens */
    double cut;           /* the chance of each send or connect that both ways are cut */
    int64_t cut_ns;       /* up to so long, drawn each time; 0: 1 s */
    double lose;          /* the chance of each datagram to be lost */
    double duplicate;     /* or to come twice */
} weir_sim_link;

/** Takes a line of the trace, without a line end: borrowed. */
typedef void (*weir_sim_trace_fn)(void *arg, const char *line);

/** How a simulation is made. Zero is the default of everything: a calm network. */
typedef struct weir_sim_config {
    uint64_t seed;
    weir_sim_link link; /* between any two hosts, until weir_sim_set_link */

    double short_read;  /* the chance of each receive to bring less than there is; and of each send
                           to arrive in pieces, each in its own time */
    double short_write; /* the chance of each send to take less than there is room for */
    double reorder;     /* the chance of each poll to tell what is ready in any order, and some of
                           it later; and of each round to step the loops in any order */
    double interrupt;   /* the chance of each call to fail with EINTR, once */
    int64_t timeout_ns; /* a connection or connect that gets nothing through for so long has failed
                           with ETIMEDOUT; 0: 120 s */

    /* The trace: lines go to `trace`, if there is one; of the others the last ones are kept. */
    weir_sim_trace_fn trace;
    void *trace_arg;
    size_t trace_bytes; /* how much is kept; 0: nothing, and no lines are made without `trace` */
} weir_sim_config;

/** Draws a network from a seed, for who tries many: each of the troubles above is there or not, and
 * mild or bad. Writes the seed, the link, and what stands between them and the trace. */
WEIR_API void weir_sim_draw_config(weir_sim_config *config, uint64_t seed);

/** Makes a simulation, without hosts yet. The config may be NULL. -EINVAL for what is out of range,
 * which `error` (may be NULL) names; -ENOMEM. */
WEIR_API int weir_sim_new(weir_sim **sim, const weir_sim_config *config, weir_error *error);

/** Ends all its groups: closes their channels, as weir_group_shutdown does, and frees them. Returns
 * how many descriptors nobody has closed, and the trace names them. What belongs to the groups, as
 * channels or pools, has to be released by then. Not from inside callbacks: misuse, and SIZE_MAX.
 */
WEIR_API size_t weir_sim_finish(weir_sim *sim);

/** Does that, if nobody did, and frees it with its hosts. NULL is fine. */
WEIR_API void weir_sim_free(weir_sim *sim);

/* Hosts and groups --------------------------------------------------------------------------- */

/** Adds a host with an address, IPv4 or IPv6 and without a port, that it can listen on and comes
 * from; 127.0.0.1 and ::1 it has anyway. The name is what clients may call it by, and what the
 * trace does: up to 31 bytes. -EINVAL for a text that is no address or no name, -EEXIST for one
 * that another host has, -ENOSPC, -ENOMEM. It lives as long as the simulation. */
WEIR_API int weir_sim_add_host(weir_sim *sim, weir_sim_host **host, const char *name,
                               const char *address);

/** Gives it one more address, up to WEIR_SIM_ADDRESSES. Fails as above. */
WEIR_API int weir_sim_add_address(weir_sim_host *host, const char *address);

/** Makes a group of event loops on the host: 1 unless the config (may be NULL) says otherwise. Of
 * the config is_manual, clock, watchdog_ns and io_source are the simulation's. The group is, too:
 * borrowed, and freed with weir_sim_finish, not with weir_group_free; it may be shut down at any
 * time. Not from inside callbacks. */
WEIR_API int weir_sim_add_group(weir_sim_host *host, weir_group **group,
                                const weir_group_config *config, weir_error *error);

/** weir_channel_new, for a channel that will be on a loop of this host: servers and clients make
 * theirs themselves. */
WEIR_API int weir_sim_channel_new(weir_sim_host *host, weir_channel **channel,
                                  weir_socket_kind kind, const weir_address *address,
                                  weir_error *error);

/** The host may have so many descriptors; more are refused with -EMFILE. 0: any number. */
WEIR_API void weir_sim_limit_descriptors(weir_sim_host *host, size_t most);

/* The network -------------------------------------------------------------------------------- */

/** What the way from one host to another is like from now on: the other way is another one, so call
 * it twice. -EINVAL. */
WEIR_API int weir_sim_set_link(weir_sim_host *from, weir_sim_host *to, const weir_sim_link *link,
                               weir_error *error);

/** Nothing gets through between two hosts, or with NULL between one and all others, for so long
 * (negative: until weir_sim_mend). What was under way and what is sent waits, until timeout_ns. */
WEIR_API void weir_sim_cut(weir_sim_host *host, weir_sim_host *other, int64_t duration_ns);
WEIR_API void weir_sim_mend(weir_sim_host *host, weir_sim_host *other);

/** All connections between two hosts, or with NULL all of one, are lost: what is under way, too.
 * How many there were. */
WEIR_API size_t weir_sim_reset(weir_sim_host *host, weir_sim_host *other);

/* Running ------------------------------------------------------------------------------------ */

/*
 * Waiting for a future runs the simulation as well: weir_server_listen, weir_client_connect and
 * weir_future_await work, and fail with -EDEADLK when nothing can ever complete it. The functions
 * here also draw the order in which loops have their turns.
 *
 * Each returns -EDEADLK from inside a callback, and -ELOOP when something goes on for ever though
 * no time passes.
 */

/** Runs until the clock says `until_ns`: 0. Or -EDEADLK as soon as nothing will ever happen any
 * more: no timer is set, and nothing is under way. */
WEIR_API int weir_sim_run(weir_sim *sim, int64_t until_ns);

/** Runs until the future is complete: 0, whatever its code is. -ETIMEDOUT when that takes longer
 * than `timeout_ns` (negative: as long as it takes), -EDEADLK when it never will be. */
WEIR_API int weir_sim_wait(weir_sim *sim, weir_future *future, int64_t timeout_ns);

/** Whether what a test waits for has come. */
typedef bool (*weir_sim_condition_fn)(void *arg);

/** The same for a condition, which is asked whenever something has happened. */
WEIR_API int weir_sim_run_until(weir_sim *sim, weir_sim_condition_fn condition, void *arg,
                                int64_t timeout_ns);

/** The clock, which begins at 0: borrowed; and what it says. */
WEIR_API weir_clock *weir_sim_clock(weir_sim *sim);
WEIR_API int64_t weir_sim_now_ns(const weir_sim *sim);

/** A number below `limit` (0 for 0), and whether something with such a chance happens, drawn from
 * the seed: for programs that leave something to chance. */
WEIR_API uint64_t weir_sim_random(weir_sim *sim, uint64_t limit);
WEIR_API bool weir_sim_chance(weir_sim *sim, double chance);

/* Looking ------------------------------------------------------------------------------------ */

/** Adds a line to the trace, behind the time and the host's name; the host may be NULL. */
WEIR_API void weir_sim_trace(weir_sim *sim, const weir_sim_host *host, const char *format, ...)
    WEIR_PRINTF(3, 4);

/** What is kept of the trace, one line for each step: borrowed until something happens. */
WEIR_API const char *weir_sim_get_trace(const weir_sim *sim);

/** Counters of a simulation. */
typedef struct weir_sim_stats {
    uint64_t steps; /* turns of loops */
    uint64_t connects, accepts, refused, resets, timeouts, cuts;
    uint64_t bytes_sent, bytes_received; /* by streams */
    uint64_t datagrams_sent, datagrams_received;
    size_t descriptors; /* that are open, those of the loops themselves among them */
    size_t connections; /* that at least one side has open */
} weir_sim_stats;

/** Copies the counters. */
WEIR_API void weir_sim_get_stats(const weir_sim *sim, weir_sim_stats *stats);

WEIR_END_DECLS

#endif
