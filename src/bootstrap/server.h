/* SPDX-License-Identifier: MIT */
/* The server, for the files it is made of. */
#ifndef WEIR_BOOTSTRAP_SERVER_H
#define WEIR_BOOTSTRAP_SERVER_H

#include "base/sys.h"
#include "exec/operation.h"

#include <weir/server.h>

#include <pthread.h>

typedef struct weir_drain weir_drain;
typedef struct weir_server weir_server;

/* A listener of a server: an attribute of that channel, so it goes when the last child is gone. */
typedef struct weir_listening {
    weir_server *server;   /* a reference */
    weir_channel *channel; /* a reference until it is closed */
    size_t index;
    weir_listener on_step, on_closed;

    /* Under the server's lock. */
    bool is_known; /* the server has it in its list */
    bool is_closed;
} weir_listening;

/*
 * A server is kept by its users, by each listener (until the last of its children is gone, too),
 * and by what is under way. It keeps the listeners until they are closed.
 */
struct weir_server {
    _Atomic(uint32_t) refs;
    weir_server_config config; /* with lists of its own */
    char *text;                /* the address, as it was given */
    weir_operation start;      /* of no executor: it is on the loop of the present step */
    weir_awaited on_resolved;

    /* While it starts, of who does the next step. */
    weir_addresses *candidates;
    size_t next_candidate;
    int *descriptors; /* in place of an address */
    int init_code;    /* of the user's init, when it failed */
    size_t wanted;    /* how many listeners */

    pthread_mutex_t lock; /* of what follows */
    weir_address address; /* where it listens */
    bool has_address;
    bool is_starting;
    bool is_closing; /* no further listener is opened */
    bool is_ending;  /* the last listener is closed: somebody does what is left */
    bool is_closed;
    size_t listening;            /* listeners that are not closed */
    size_t count;                /* how many there are or were */
    weir_listening **listeners;  /* NULL: gone; of those that are closed children may be left */
    weir_listener_stats past;    /* of those that are gone */
    weir_promise_list on_ending; /* promises of close */
    weir_drain *drains;          /* that wait until the listeners are closed */
    size_t draining;             /* those, and the others that are under way */
    weir_home home;              /* of the next, for which the server stays */
    weir_future closed;
};

/* server_config.c: what is wrong with it is told; 0 or -EINVAL. */
int weir__server_check(const weir_server_config *config, const char *address, weir_error *error);

/* A copy with lists of its own, and both groups; false without memory, and then it is still to be
 * freed. */
bool weir__server_copy_config(weir_server_config *to, const weir_server_config *from);
void weir__server_free_config(weir_server_config *config);

/* listening.c: opens the next listener, and that the one after it, until all listen and the start
 * is over; or it fails, and everything is closed again. Without an error of its own that says where
 * and what. */
void weir__server_open_next(weir_server *server);
void weir__server_fail_start(weir_server *server, int code, const weir_error *error);

/* server.c: closes what listens; and ends the server, if nothing listens any more. */
void weir__server_close_listeners(weir_server *server);
void weir__server_end_if_closed(weir_server *server);

/* Whether a channel was accepted by a listener of the server. */
bool weir__server_has_accepted(const weir_server *server, const weir_channel *channel);

/* Under the lock: how many accepted channels there are, wherever they are, whose handlers are not
 * all removed. */
uint64_t weir__server_children(const weir_server *server);

/* Prepares a listener: options, attributes, and handlers, the acceptor last. It is the channel's
 * from then on, also when this fails. */
int weir__acceptor_prepare(weir_listening *listening, weir_error *error);

/* The channel of a listener is gone. */
void weir__listening_free(void *listening);

/* Sees the connections off: see drain.c. NULL: no memory. The time runs at once; the rest begins
 * when the listeners are closed, and ends by itself. */
weir_drain *weir__drain_new(weir_server *server, int64_t timeout_ns, weir_promise *promise);
void weir__drain_begin(weir_drain *self);

/* The list of those that have not begun. */
void weir__drain_queue(weir_drain *self, weir_drain **list);
weir_drain *weir__drain_next(const weir_drain *self);

/* One of them has ended. */
void weir__server_drained(weir_server *server);

/* Sockets that were handed over by whoever started the process: how many, in a list for weir__free;
 * 0 when the text is an ordinary address; or a negative code. */
int weir__inherited_find(const char *text, int **descriptors, weir_error *error);

#endif
