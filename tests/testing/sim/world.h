/* SPDX-License-Identifier: MIT */
/* What the simulated programs share: a world drawn from a seed, what must hold in it, and clients
 * that know what they should hear. */
#ifndef WEIR_TESTS_SIM_WORLD_H
#define WEIR_TESTS_SIM_WORLD_H

#include <weir/sim.h>
#include <weir/weir.h>

#define MOST_CLIENTS 8

/* The longest that anything may take, by the simulation's clock. */
#define STALL_NS WEIR_SECONDS(600)

typedef struct world {
    weir_sim *sim;
    weir_sim_config config;
    weir_sim_host *server_host, *client_hosts[2];
    weir_group *servers, *clients[2];
    weir_server *server;
    size_t unended; /* probes that have not seen the end of their channel */
    int64_t max_outbound_bytes;
    bool is_limited;      /* by that, or in descriptors: then somebody may be dropped for it */
    bool is_refusal_harm; /* a connect that is refused costs somebody else a connection, too */
    char failure[256];    /* the first thing that did not hold; empty: everything did */
} world;

/* What must hold: remembers the first that does not. Returns whether it does. */
bool demand(world *w, bool holds, const char *format, ...) WEIR_PRINTF(3, 4);

/* Whether no connection can have been hurt by the network, so that nobody may wait for ever; and
 * nobody was dropped for a limit either, so that no bytes may be missing. */
bool is_sound(const world *w);
bool is_unhurt(const world *w);

/* The first handler of every pipeline: looks at its course and its queue. The argument is the
 * world. */
extern const weir_handler_type probe_type;
int add_probe(world *w, weir_channel *channel);

/* A server on 10.0.0.1:80 whose children have a probe and what `init` adds. */
void open_server(world *w, weir_init_fn init_child, void *arg);

/* What sends back what it gets: adds a probe and that; the argument is the world. */
int init_echo(weir_channel *channel, void *w);

/* A number from `least` to `most`; and one that is more often small. */
int64_t draw(world *w, int64_t least, int64_t most);
int64_t draw_small(world *w, int64_t least, int64_t most);

/* About how many bytes a client should move, so that a small window does not make it endless. */
int64_t draw_amount(world *w);

/* What is said, by whom, at which place. */
static inline uint8_t pattern(unsigned who, uint64_t at)
{
    return (uint8_t)((at * 131 + who * 17) ^ (at >> 8) ^ (at >> 16));
}

/* Talkers ------------------------------------------------------------------------------------ */

/* A client of something that sends back what it gets. */
typedef struct talker {
    world *w;
    unsigned number;
    weir_group *group;
    const char *address;
    uint64_t total, sent, received;
    uint64_t quits_at; /* closes without a word when so much was received; UINT64_MAX: does not */
    int64_t ahead;     /* how much it sends without hearing anything */
    bool reads_by_hand, dithers, shuts_down, finishes, moves;
    bool waits; /* for the other side to end, too, once it has heard that nothing more comes */
    bool is_connected, is_over;
    int error; /* the first */
    int64_t progress_ns;
    weir_listener on_connect;
    weir_promise *connect;
} talker;

void talker_start(talker *self, world *w, unsigned number, const char *address);
/* It is over, or will be by itself, as all are in the end. */
bool talker_is_over(const talker *self);

/* Some of them at the same time. */
typedef struct crowd {
    talker talkers[MOST_CLIENTS];
    unsigned count;
} crowd;

/* Starts them, and runs until all are over. */
void crowd_talk(crowd *self, world *w, const char *address);

/* Programs ----------------------------------------------------------------------------------- */

typedef struct program {
    const char *name;
    void (*run)(world *w);
} program;

extern const program echo_program, chat_program, proxy_program, pool_program;
extern const program *const programs[];

/* Runs until the condition holds, and demands that it comes to that. */
void run_until(world *w, weir_sim_condition_fn condition, void *arg);

/* Closes the server and ends all groups, so that what a program has on its stack may go. */
void end_world(world *w);

/* Runs a program with the world of a seed. Whether everything held; else `failure` says what. The
 * trace goes to `trace`, or is not made. */
bool run_seed(const program *what, uint64_t seed, weir_sim_trace_fn trace, void *trace_arg,
              char failure[256]);

#endif
