/* SPDX-License-Identifier: MIT */
/* The connection pool, for the files it is made of. */
#ifndef WEIR_BOOTSTRAP_CONNECTION_POOL_H
#define WEIR_BOOTSTRAP_CONNECTION_POOL_H

#include "base/list.h"
#include "channel/inbox.h"
#include "exec/executor.h"
#include "exec/operation.h"

#include <weir/connection_pool.h>
#include <weir/timer.h>

#include <pthread.h>

/*
 * Everything is decided under the pool's lock and done without it, for whatever is done may call
 * somebody who calls the pool. After each change `weir__connection_pool_pump` does what has become
 * possible, step by step: nobody else has to remember who waits.
 *
 *   CONNECTING -> BORROWED -> IDLE -> BORROWED     lent, given back, lent again
 *   BORROWED -> RETURNING -> IDLE                  what the borrower wants is still to be done
 *   IDLE -> CHECKING -> BORROWED                   the user has a look at it
 *   any of these -> CLOSING -> GONE                by us
 *   BORROWED -> LOST -> GONE                       by itself, and given back
 *
 * A connection has a place from CONNECTING until its channel is closed.
 */
typedef enum weir_connection_state {
    WEIR__CONNECTING,
    WEIR__IDLE,     /* in the list of those */
    WEIR__CHECKING, /* the user's function has it */
    WEIR__BORROWED,
    WEIR__RETURNING, /* given back, but on its way through the channel's inbox */
    WEIR__CLOSING,   /* by us */
    WEIR__LOST,      /* closed while it was lent, and not given back yet */
    WEIR__GONE,
} weir_connection_state;

/* Counted: by the place, by the channel (as an attribute), by a check, by a call. */
typedef struct weir_connection {
    _Atomic(uint32_t) refs;
    weir_connection_pool *pool; /* its memory is held */
    weir_promise *connected;    /* while it connects */
    weir_listener on_connected, on_checked, on_closed;
    weir_call returned, finishing;
    weir_ctx_timer finish_timer; /* on the loop, as is sent_before */
    uint64_t sent_before;        /* bytes, when the timer was started */

    /* Under the pool's lock. */
    weir_connection_state state;
    weir_channel *channel; /* from then on until it is closed */
    weir_list_node node;   /* while it is idle, connects, or is finishing */
    int64_t idle_since_ns;
    bool is_auto_read; /* as it was before the first loan */
} weir_connection;

/* An acquire that waits in the line. The thread that removes it from the line ends it. */
typedef struct weir_waiter {
    weir_operation operation;
    weir_connection_pool *pool;
    weir_list_node node; /* in the line, under the pool's lock */
    int64_t since_ns;
} weir_waiter;

/* Waits for the oldest of those that all wait equally long. Holds the pool while it is armed. */
typedef struct weir_time_limit {
    weir_timer timer;
    weir_connection_pool *pool;
    int64_t after_ns; /* 0: there is none */
    bool is_armed;    /* under the pool's lock */
} weir_time_limit;

struct weir_connection_pool {
    _Atomic(uint32_t) refs;  /* of users */
    _Atomic(uint32_t) holds; /* of the memory: the users', each connection's and so on */
    weir_client_config client;
    void (*init_release)(void *arg); /* of its `arg`; may be NULL */
    char *address, *local;
    size_t max, max_pending;
    weir_connection_check_fn check;
    void *check_arg;
    int64_t finish_timeout_ns;         /* 0: no limit */
    weir_executor *executor;           /* of the time limits */
    weir_time_limit patience, boredom; /* of those who wait, of idle connections */

    pthread_mutex_t lock; /* of what follows */
    weir_list line;       /* waiters, the first one first */
    weir_list idle;       /* connections, the last one first */
    weir_list connecting;
    weir_list finishing; /* CLOSING, but they still send */
    weir_connection_pool_stats stats;
    bool is_closed;
    weir_promise_list on_closed;
};

static inline void weir__connection_pool_lock(weir_connection_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
}

static inline void weir__connection_pool_unlock(weir_connection_pool *pool)
{
    pthread_mutex_unlock(&pool->lock);
}

static inline size_t weir__connection_pool_places(const weir_connection_pool_stats *stats)
{
    return stats->idle + stats->borrowed + stats->connecting + stats->checking + stats->closing;
}

static inline int64_t weir__connection_pool_now_ns(const weir_connection_pool *pool)
{
    return weir_clock_now_ns(pool->executor->clock);
}

/* The memory of a pool. */
weir_connection_pool *weir__connection_pool_hold(weir_connection_pool *pool);
void weir__connection_pool_let_go(weir_connection_pool *pool);

/* Does what can be done for those who wait. Without the lock. */
void weir__connection_pool_pump(weir_connection_pool *pool);

/* Removes the first waiter from the line: the caller ends it. NULL: there is none. Under the lock.
 */
weir_waiter *weir__connection_pool_pop(weir_connection_pool *pool);

/* Fails one waiter (NULL: none), or all in the line. */
void weir__connection_pool_fail(weir_waiter *waiter, int code);
void weir__connection_pool_fail_all(weir_connection_pool *pool, int code);

/* A place has become free; maybe it was the last one of a closed pool. */
void weir__connection_pool_tell_if_over(weir_connection_pool *pool);

/* Under the lock: an idle one is closed, and counts as that; the caller closes the channel, a
 * reference. */
weir_channel *weir__connection_begin_close(weir_connection *self);

/* Closes the first connection of a list of the pool, idle or finishing; cancels the first one that
 * is connecting. Both return false if there is none. */
bool weir__connection_close_first(weir_connection_pool *pool, weir_list *list);
bool weir__connection_cancel(weir_connection_pool *pool);

/* How long things may take: connection_time.c. Armed when somebody has begun to wait. */
void weir__time_limit_init(weir_time_limit *self, weir_connection_pool *pool, int64_t after_ns);
void weir__time_limit_arm(weir_time_limit *self);

#endif
