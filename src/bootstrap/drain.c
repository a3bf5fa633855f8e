/* SPDX-License-Identifier: MIT */
/* Seeing a server's connections off. */
#include "bootstrap/server.h"

#include "base/alloc.h"
#include "channel/channel.h"
#include "exec/executor.h"

#include <weir/log.h>
#include <weir/timer.h>

#include <errno.h>

#define PAUSE_MS 10
#define MOST_VAIN_WALKS 100

/*
 * No list of connections is kept. They are looked for when it matters, by a task that walks from
 * loop to loop over the workers. Each connection that it finds is waited for; when they have
 * closed, another walk looks for more, for a channel may have moved past the first one. When a walk
 * finds none, that was it, unless the server counts some: then another walk follows after a pause.
 * Once the time is up, walks close what they find. Those that are counted but not found may be
 * between two loops just now, and the next walks find them; or they have gone to a loop of
 * somebody else's, or off any loop, and after some walks in vain the drain ends without them.
 */
struct weir_drain {
    weir_drain *next; /* the server's: among those that wait for the listeners to be closed */
    weir_server *server;
    weir_promise *promise; /* may be NULL */
    int64_t timeout_ms;
    weir_timer timer;
    weir_timer pause; /* between two walks */
    weir_task walker;
    size_t at;                 /* which loop it is at */
    struct farewell *to_close; /* what it has found there, when the time is up */

    /* Under the server's lock. */
    uint32_t refs; /* its own until it ends, the timer's */
    bool has_begun, has_ended;
    bool is_late; /* the time is up */
    bool is_walking;
    bool walks_again; /* something has changed since it began */
    bool has_found;
    unsigned vain_walks; /* that have found none of those that are counted, since it is late */
    size_t waiting;      /* connections that have not closed yet */
};

/* The wait for one connection. */
typedef struct farewell {
    weir_listener on_closed;
    weir_drain *drain;
    weir_channel *channel; /* to be closed: a reference */
    struct farewell *next;
} farewell;

static void lock(const weir_drain *self)
{
    pthread_mutex_lock(&self->server->lock);
}

static void unlock(const weir_drain *self)
{
    pthread_mutex_unlock(&self->server->lock);
}

static void release(weir_drain *self)
{
    weir_server *server = self->server;
    lock(self);
    bool is_last = --self->refs == 0;
    unlock(self);
    if (!is_last)
        return;
    weir__free(self);
    weir_server_release(server);
}

static void end(weir_drain *self, uint64_t left)
{
    weir_server *server = self->server;
    weir_promise *promise = self->promise;
    weir_timer_cancel(&self->timer);
    if (left > 0)
        weir_log(WEIR_LOG_WARN, "server",
                 "the drain of %s ends without %llu connections that are on no loop of the workers",
                 server->text, (unsigned long long)left);
    weir__promise_end(promise, left > 0 ? -ETIMEDOUT : 0);
    weir_promise_release(promise);
    weir__server_drained(server);
    release(self);
}

/* Walking -------------------------------------------------------------------------------------- */

static void walk(weir_drain *self);

/* Under the lock: whether the next walk begins now. */
static bool begins_walk(weir_drain *self)
{
    if (self->has_ended || !self->has_begun || self->is_walking)
        return false;
    self->is_walking = true;
    return true;
}

static void on_closed(weir_listener *listener, weir_future *future)
{
    farewell *said = WEIR_CONTAINER(listener, farewell, on_closed);
    weir_drain *self = said->drain;
    (void)future;
    weir__free(said);
    lock(self);
    bool walks = --self->waiting == 0 && begins_walk(self);
    unlock(self);
    if (walks)
        walk(self);
    release(self);
}

/* What it finds is closed afterwards: a handler that hears of it may move other channels. */
static void visit(weir_channel *channel, void *arg)
{
    weir_drain *self = arg;
    if (!weir__server_has_accepted(self->server, channel) ||
        weir_channel_get_state(channel) >= WEIR_CHANNEL_CLOSED)
        return; /* or it is closed, and only its handlers are still told */
    weir_future *closed = weir_channel_closed(channel);
    farewell *said = closed != NULL ? weir__zalloc(sizeof *said) : NULL;
    lock(self);
    bool is_late = self->is_late;
    self->has_found = true;
    self->vain_walks = 0;
    self->waiting += said != NULL;
    self->refs += said != NULL;
    unlock(self);
    if (said == NULL) {
        weir_channel_close(channel, NULL); /* without memory to wait for it */
        return;
    }
    said->drain = self;
    said->on_closed.done = on_closed;
    if (is_late) {
        said->channel = weir_channel_retain(channel);
        said->next = self->to_close;
        self->to_close = said;
    }
    weir_future_listen(closed, &said->on_closed);
}

/* What was said goes with its channel, but not before this task has returned. */
static void close_found(weir_drain *self)
{
    while (self->to_close != NULL) {
        farewell *said = self->to_close;
        weir_channel *channel = said->channel;
        self->to_close = said->next;
        weir_channel_close(channel, NULL);
        weir_channel_release(channel);
    }
}

/* False when all loops have ended, and no walk would find anything any more. */
static bool pause_walk(weir_drain *self)
{
    weir_group *workers = self->server->config.workers;
    int code = WEIR_ESHUTDOWN;
    for (size_t i = 0; i < weir_group_count(workers) && code == WEIR_ESHUTDOWN; i++)
        code = weir_timer_schedule(&self->pause, weir_group_at(workers, i), WEIR_MS(PAUSE_MS));
    if (code < 0 && code != WEIR_ESHUTDOWN)
        walk(self); /* at once, for want of memory */
    return code != WEIR_ESHUTDOWN;
}

/* Under the lock: whether it is worth another walk, after a pause, to look for what is counted. */
static bool has_to_look_again(weir_drain *self)
{
    if (weir__server_connections(self->server) == 0)
        return false;
    return !self->is_late || ++self->vain_walks < MOST_VAIN_WALKS;
}

/* Every loop was visited. */
static void end_walk(weir_drain *self)
{
    lock(self);
    bool is_idle = !self->walks_again && !self->has_found && self->waiting == 0;
    bool looks_again = is_idle && has_to_look_again(self);
    self->is_walking = looks_again;
    unlock(self);
    if (looks_again && pause_walk(self))
        return;
    lock(self);
    self->is_walking = false;
    self->has_ended |= is_idle;
    uint64_t left = weir__server_connections(self->server);
    bool walks = (self->walks_again || self->waiting == 0) && begins_walk(self);
    unlock(self);
    if (is_idle)
        end(self, left);
    else if (walks)
        walk(self);
}

static int on_pause(weir_timer *timer)
{
    walk(WEIR_CONTAINER(timer, weir_drain, pause));
    return 0;
}

static void pause_cancelled(weir_timer *timer)
{
    walk(WEIR_CONTAINER(timer, weir_drain, pause));
}

/* To the next loop that takes the task. */
static void go_on(weir_drain *self)
{
    weir_group *workers = self->server->config.workers;
    while (self->at < weir_group_count(workers)) {
        weir_executor *executor = weir_group_at(workers, self->at++);
        if (weir__executor_post_always(executor, &self->walker) == 0)
            return;
    }
    end_walk(self);
}

static int visit_loop(weir_task *task)
{
    weir_drain *self = WEIR_CONTAINER(task, weir_drain, walker);
    weir_loop *loop = weir_executor_loop(weir_group_at(self->server->config.workers, self->at - 1));
    if (loop != NULL)
        weir__loop_each_channel(loop, visit, self);
    close_found(self);
    go_on(self);
    return 0;
}

static void loop_has_ended(weir_task *task)
{
    go_on(WEIR_CONTAINER(task, weir_drain, walker));
}

static void walk(weir_drain *self)
{
    lock(self);
    self->walks_again = self->has_found = false;
    unlock(self);
    self->at = 0;
    go_on(self);
}

/* Beginning ------------------------------------------------------------------------------------ */

static void be_late(weir_drain *self)
{
    lock(self);
    self->is_late = true;
    self->walks_again |= self->is_walking;
    bool walks = begins_walk(self);
    unlock(self);
    if (walks)
        walk(self);
}

static int on_timer(weir_timer *timer)
{
    weir_drain *self = WEIR_CONTAINER(timer, weir_drain, timer);
    be_late(self);
    release(self);
    return 0;
}

/* It has ended, or the loop of the timer has, and nobody would watch the time any more. */
static void timer_cancelled(weir_timer *timer)
{
    weir_drain *self = WEIR_CONTAINER(timer, weir_drain, timer);
    be_late(self);
    release(self);
}

weir_drain *weir__drain_new(weir_server *server, int64_t timeout_ms, weir_promise *promise)
{
    weir_drain *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    self->server = weir_server_retain(server);
    self->promise = weir_promise_retain(promise);
    self->timeout_ms = timeout_ms;
    self->is_late = timeout_ms == 0;
    self->walker.run = visit_loop;
    self->walker.dropped = loop_has_ended;
    self->timer.fire = on_timer;
    self->timer.cancelled = timer_cancelled;
    self->pause.fire = on_pause;
    self->pause.cancelled = pause_cancelled;
    self->refs = 2; /* its own, and of who has made it */
    return self;
}

void weir__drain_watch_time(weir_drain *self)
{
    weir_group *workers = self->server->config.workers;
    weir_executor *executor = weir_group_at(workers, 0);
    if (executor == NULL)
        executor = weir_group_background(workers);
    if (self->timeout_ms > 0) {
        lock(self);
        self->refs++;
        unlock(self);
        if (weir_timer_schedule(&self->timer, executor, WEIR_MS(self->timeout_ms)) < 0)
            timer_cancelled(&self->timer);
    }
    release(self);
}

void weir__drain_begin(weir_drain *self)
{
    lock(self);
    self->has_begun = true;
    bool walks = begins_walk(self);
    unlock(self);
    if (walks)
        walk(self);
}

void weir__drain_queue(weir_drain *self, weir_drain **list)
{
    self->next = *list;
    *list = self;
}

weir_drain *weir__drain_next(const weir_drain *self)
{
    return self->next;
}
