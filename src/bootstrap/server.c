/* SPDX-License-Identifier: MIT */
/* Servers: who keeps them, how they end, and what they tell. */
#include "bootstrap/server.h"

#include "base/alloc.h"
#include "channel/extras.h"

#include <errno.h>

/* Counting ------------------------------------------------------------------------------------- */

weir_server *weir_server_retain(weir_server *server)
{
    if (server != NULL)
        atomic_fetch_add_explicit(&server->refs, 1, memory_order_relaxed);
    return server;
}

/* By a child's loop, maybe, so its groups may be gone already. */
static void destroy(weir_server *server)
{
    weir__free(server->descriptors);
    weir_addresses_free(server->candidates);
    weir__server_free_config(&server->config);
    weir__free(server->listeners);
    weir__free(server->text);
    pthread_mutex_destroy(&server->lock);
    weir__free(server);
}

void weir_server_release(weir_server *server)
{
    if (server != NULL && atomic_fetch_sub_explicit(&server->refs, 1, memory_order_acq_rel) == 1)
        destroy(server);
}

/* Ending --------------------------------------------------------------------------------------- */

/* Under the lock: whether nothing is left to be waited for. True once, for who ends it. */
static bool claim_end(weir_server *server)
{
    bool is_over = server->is_ending && server->draining == 0 && !server->is_closed;
    server->is_closed |= is_over;
    return is_over;
}

static void be_over(weir_server *server)
{
    weir__future_complete(&server->closed, 0);
    weir_server_release(server); /* it is under way no more */
}

/* Those that waited for the listeners; each may be gone once it has begun. */
static void begin_drains(weir_server *server)
{
    pthread_mutex_lock(&server->lock);
    weir_drain *drain = server->drains;
    server->drains = NULL;
    pthread_mutex_unlock(&server->lock);
    while (drain != NULL) {
        weir_drain *next = weir__drain_next(drain);
        weir__drain_begin(drain);
        drain = next;
    }
}

void weir__server_drained(weir_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->draining--;
    bool is_over = claim_end(server);
    pthread_mutex_unlock(&server->lock);
    if (is_over)
        be_over(server);
}

/* The last listener may be closed by several at once: one of them does the rest. */
void weir__server_end_if_closed(weir_server *server)
{
    pthread_mutex_lock(&server->lock);
    bool ends = !server->is_starting && server->listening == 0 && !server->is_ending;
    server->is_ending |= ends;
    bool is_over = ends && claim_end(server);
    weir_promise_list promises = { NULL };
    if (ends) {
        promises = server->on_ending;
        server->on_ending.first = NULL;
    }
    pthread_mutex_unlock(&server->lock);
    weir__promises_complete(&promises, 0);
    if (ends)
        begin_drains(server);
    if (is_over)
        be_over(server);
}

static void add_stats(weir_listener_stats *to, const weir_channel *channel)
{
    weir_listener_stats from;
    if (weir_channel_listener_stats(channel, &from) < 0)
        return;
    to->accepted += from.accepted;
    to->connections += from.connections;
    to->failed += from.failed;
    to->refused += from.refused;
    to->pauses += from.pauses;
    to->limited += from.limited;
}

void weir__listening_free(void *listening)
{
    weir_listening *self = listening;
    weir_server *server = self->server;
    pthread_mutex_lock(&server->lock);
    if (self->is_known) {
        add_stats(&server->past, self->channel);
        server->listeners[self->index] = NULL;
    }
    pthread_mutex_unlock(&server->lock);
    weir__free(self);
    weir_server_release(server);
}

/* The channels as they are now, each with a reference of its own. */
void weir__server_close_listeners(weir_server *server)
{
    for (size_t i = 0; i < weir_server_listener_count(server); i++) {
        weir_channel *channel = weir_server_listener(server, i);
        if (channel != NULL)
            weir_channel_close(channel, NULL);
        weir_channel_release(channel);
    }
    weir__server_end_if_closed(server);
}

void weir_server_close(weir_server *server, weir_promise *promise)
{
    if (server == NULL) {
        weir__promise_end(promise, -EINVAL);
        return;
    }
    pthread_mutex_lock(&server->lock);
    bool is_ending = server->is_ending;
    server->is_closing = true;
    if (!is_ending)
        weir__promises_add(&server->on_ending, promise);
    pthread_mutex_unlock(&server->lock);
    if (is_ending)
        weir__promise_end(promise, 0);
    else
        weir__server_close_listeners(server);
}

void weir_server_drain(weir_server *server, int64_t timeout_ns, weir_promise *promise)
{
    weir_drain *drain = server != NULL ? weir__drain_new(server, timeout_ns, promise) : NULL;
    if (drain == NULL) {
        weir__promise_end(promise, server == NULL ? -EINVAL : -ENOMEM);
        weir_server_close(server, NULL);
        return;
    }
    pthread_mutex_lock(&server->lock);
    server->is_closing = true;
    server->draining++;
    bool begins = server->is_ending; /* nobody else would begin it */
    if (!begins)
        weir__drain_queue(drain, &server->drains);
    pthread_mutex_unlock(&server->lock);
    if (begins)
        weir__drain_begin(drain);
    weir__server_close_listeners(server);
}
/* Looking -------------------------------------------------------------------------------------- */

/* To lock something is no change of it. */
static void lock(const weir_server *server)
{
    pthread_mutex_lock((pthread_mutex_t *)&server->lock);
}

static void unlock(const weir_server *server)
{
    pthread_mutex_unlock((pthread_mutex_t *)&server->lock);
}

int weir_server_address(const weir_server *server, weir_address *address)
{
    if (server == NULL || address == NULL)
        return -EINVAL;
    lock(server);
    bool has_address = server->has_address;
    *address = server->address;
    unlock(server);
    return has_address ? 0 : WEIR_ENOTFOUND;
}

weir_group *weir_server_boss(const weir_server *server)
{
    return server != NULL ? server->config.boss : NULL;
}

weir_group *weir_server_workers(const weir_server *server)
{
    return server != NULL ? server->config.workers : NULL;
}

size_t weir_server_listener_count(const weir_server *server)
{
    if (server == NULL)
        return 0;
    lock(server);
    size_t count = server->count;
    unlock(server);
    return count;
}

weir_channel *weir_server_listener(const weir_server *server, size_t index)
{
    if (server == NULL)
        return NULL;
    lock(server);
    const weir_listening *self = index < server->count ? server->listeners[index] : NULL;
    weir_channel *channel = self != NULL && !self->is_closed ? weir_channel_retain(self->channel)
                                                             : NULL;
    unlock(server);
    return channel;
}

/* Under the lock. */
static void sum_up(const weir_server *server, weir_listener_stats *stats)
{
    *stats = server->past;
    for (size_t i = 0; i < server->count; i++) {
        if (server->listeners[i] != NULL)
            add_stats(stats, server->listeners[i]->channel);
    }
}

uint64_t weir__server_children(const weir_server *server)
{
    uint64_t count = 0;
    for (size_t i = 0; i < server->count; i++) { /* one that is gone has no children */
        if (server->listeners[i] != NULL)
            count += weir__channel_children(server->listeners[i]->channel);
    }
    return count;
}

void weir_server_get_stats(const weir_server *server, weir_listener_stats *stats)
{
    *stats = (weir_listener_stats){ 0 };
    if (server == NULL)
        return;
    lock(server);
    sum_up(server, stats);
    unlock(server);
}

weir_future *weir_server_closed(weir_server *server)
{
    return &server->closed;
}
