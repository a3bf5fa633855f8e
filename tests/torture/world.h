/* SPDX-License-Identifier: MIT */
/* Where a scenario takes place: groups, a server that sends back what it gets, and clients of it
 * that know what they should hear. */
#ifndef WEIR_TESTS_TORTURE_WORLD_H
#define WEIR_TESTS_TORTURE_WORLD_H

#include <weir/weir.h>

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* For what can never be right, whatever has failed. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            _exit(3);                                                                              \
        }                                                                                          \
    } while (0)

/* How a scenario is played. */
typedef struct setting {
    weir_io_kind io;
    /* False: everything in one thread, which steps it; the clock moves to the next timer when there
     * is nothing else to do, so whoever waits for something that will never happen is found out at
     * once. True: acceptors, workers and clients have groups, and so threads, of their own. */
    bool has_threads;
} setting;

/* A client of something that sends back what it gets. */
typedef struct client {
    weir_channel *channel;
    weir_promise *written; /* the last write */
    atomic_size_t sent;
    atomic_size_t came;
    atomic_size_t until; /* the future below is complete when so many have come, or none will */
    _Atomic(weir_promise *) there; /* NULL: nobody waits */
    atomic_int closed_count;
} client;

enum { MOST_PROMISES = 64 };

typedef struct world {
    setting how;
    weir_virtual_clock clock;
    weir_group *boss, *workers, *clients; /* without threads one and the same */
    weir_group *helpers;                  /* plain executors, if somebody needs them */
    weir_server *server;
    client one, other;                   /* here, as their channels may live as long */
    char address[WEIR_ADDRESS_TEXT_MAX]; /* the server's, for clients */
    weir_promise *promises[MOST_PROMISES];
    int promise_count;
    atomic_int code; /* of the first step that failed */
} world;

void begin_world(world *self, const setting *how);

/* Ends everything in good order, and demands that every promise is complete: the code. */
int end_world(world *self);

bool is_well(const world *self);
void note(world *self, int code);

/* A promise of which the end is checked at the end of the world; bound to the channel, or to
 * nobody. NULL without memory. */
weir_promise *promised(world *self, weir_channel *channel);

/* Waits until there is a result, and demands that it comes. */
#define wait_for(self, future) wait_here(self, future, __FILE__, __LINE__)
void wait_here(const world *self, weir_future *future, const char *file, int line);

/* Waits that long at most: whether there is a result. */
bool wait_a_while(const world *self, weir_future *future, int64_t ms);

/* The same as wait_for, and takes note of the code; NULL is fine. */
#define wait_and_note(self, promise) wait_and_note_here(self, promise, __FILE__, __LINE__)
void wait_and_note_here(world *self, weir_promise *promise, const char *file, int line);

/* A group of plain executors. */
void make_helpers(world *self);

/* Ends all groups and waits for that. */
void shut_down(world *self);

/* The server ----------------------------------------------------------------------------------- */

/* A server of `config` (its groups come from the world) at an address, which is then the world's.
 */
void serve_with(world *self, weir_server **server, weir_server_config *config, const char *address);

/* One that sends back what it gets; the handler runs on the helpers if there are any. */
void serve(world *self, const char *address);
void serve_options(world *self, const char *address, const weir_option_value *options,
                   size_t option_count);

/* An init_child function, with the world as its argument: what such a server's children have. */
int add_echo(weir_channel *channel, void *world);

/* Ends a server and what it has accepted. */
void end_server(world *self, weir_server *server);

/* A handler's on_error: closes. */
void close_on_error(weir_ctx *ctx, const weir_error *error);

/* The client ----------------------------------------------------------------------------------- */

/* Bytes that tell their place in the stream. */
static inline uint8_t byte_at(size_t index)
{
    return (uint8_t)(index * 7 + index / 251);
}

/* An init function: adds the client's handler. */
int add_client(weir_channel *channel, void *who);

void connect_client(world *self, client *who);
void connect_client_options(world *self, client *who, const weir_option_value *options,
                            size_t option_count);

/* The next bytes that it should say; NULL without memory. */
weir_buf *next_bytes(const client *who, size_t length);

/* Writes; nobody asks what became of it: if it is lost, so is all that follows. */
void say(world *self, client *who, size_t length);

/* Writes with a promise, which hear waits for. */
void say_last(world *self, client *who, size_t length);

/* The same with a message of so many bytes; NULL: there was no memory for it. */
void write_last(world *self, client *who, weir_msg *msg, size_t length);

/* Waits until all has come back that was sent, or it is clear that it will not. */
void hear(world *self, client *who);

void close_client(world *self, client *who);

#endif
