/* SPDX-License-Identifier: MIT */
/* Listeners of in-process connections, and the names they are found by. */
#include "transport/local_listener.h"

#include "base/alloc.h"
#include "channel/extras.h"
#include "transport/accepted.h"
#include "transport/local.h"

#include <errno.h>

typedef struct weir_local_listener weir_local_listener;
struct weir_local_listener {
    weir_local_end end;

    /* Under the lock of all listeners. */
    weir_local_listener *next; /* in its bucket */
    weir_address address;
    bool is_bound;
    weir_list waiting; /* pipes that nobody has accepted yet, each with a reference */
    unsigned waiting_count, backlog;
    int64_t max_connections; /* 0: none */
    bool is_limited;         /* it accepts none until there are fewer */
    weir_listener_stats stats;
};

/*
 * The names of this process: the one thing that all listeners share, for a name has to lead from
 * anywhere to its listener. Nothing is made or freed for it, and it is empty when nobody listens.
 * Programs choose the names, not their peers, so the hash needs no secret.
 */
#define BUCKETS 64
static struct {
    pthread_mutex_t lock;
    weir_local_listener *buckets[BUCKETS];
} names = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* Where the listener of that name is linked, or would be. Under the lock. */
static weir_local_listener **find(const weir_address *address)
{
    weir_local_listener **at = &names.buckets[weir_address_hash(address, NULL) % BUCKETS];
    while (*at != NULL && !weir_address_equal(&(*at)->address, address))
        at = &(*at)->next;
    return at;
}

/* Waiting to be accepted ----------------------------------------------------------------------- */

int weir__local_knock(weir_local_pipe *pipe)
{
    int code = -ECONNREFUSED;
    bool is_lifted = false;
    pthread_mutex_lock(&names.lock);
    weir_local_listener *listener = *find(&pipe->remote);
    if (listener != NULL && listener->waiting_count < listener->backlog) {
        code = 0;
        pipe->listener = listener;
        listener->waiting_count++;
        weir__list_push_back(&listener->waiting, &weir__local_pipe_retain(pipe)->node);
        is_lifted = weir__local_end_lift(&listener->end);
    }
    pthread_mutex_unlock(&names.lock);
    if (is_lifted)
        weir__local_end_ring(&listener->end);
    return code;
}

/* Under the lock. The list's reference is the caller's then. */
static weir_local_pipe *take_out(weir_list_node *node)
{
    weir_local_pipe *pipe = WEIR_CONTAINER(node, weir_local_pipe, node);
    weir__list_remove(node);
    pipe->listener->waiting_count--;
    return pipe;
}

void weir__local_withdraw(weir_local_pipe *pipe)
{
    pthread_mutex_lock(&names.lock);
    bool is_waiting = weir__list_is_linked(&pipe->node);
    if (is_waiting)
        take_out(&pipe->node);
    pthread_mutex_unlock(&names.lock);
    if (is_waiting)
        weir__local_pipe_release(pipe);
}

static weir_local_pipe *take_waiting(weir_local_listener *self)
{
    pthread_mutex_lock(&names.lock);
    weir_list_node *node = weir__list_first(&self->waiting);
    weir_local_pipe *pipe = node != NULL ? take_out(node) : NULL;
    pthread_mutex_unlock(&names.lock);
    return pipe;
}

/* The limit of connections --------------------------------------------------------------------- */

static bool is_full(const weir_local_listener *self)
{
    return self->max_connections > 0 && self->stats.connections >= (uint64_t)self->max_connections;
}

/* Whether more may be accepted; else it goes on when a connection has closed. */
static bool may_accept(weir_local_listener *self)
{
    pthread_mutex_lock(&names.lock);
    bool is_limited = is_full(self);
    self->stats.limited += is_limited && !self->is_limited;
    self->is_limited = is_limited;
    pthread_mutex_unlock(&names.lock);
    return !is_limited;
}

void weir__local_listener_child_opened(weir_channel *listener)
{
    weir_local_listener *self = (weir_local_listener *)listener;
    pthread_mutex_lock(&names.lock);
    self->stats.connections++;
    pthread_mutex_unlock(&names.lock);
}

void weir__local_listener_child_closed(weir_channel *listener)
{
    weir_local_listener *self = (weir_local_listener *)listener;
    pthread_mutex_lock(&names.lock);
    self->stats.connections--;
    bool is_lifted = self->is_limited && !is_full(self) && weir__local_end_lift(&self->end);
    pthread_mutex_unlock(&names.lock);
    if (is_lifted)
        weir__local_end_ring(&self->end);
}

/* Accepting ------------------------------------------------------------------------------------ */

static weir_msg *new_accepted(weir_local_listener *self, weir_local_pipe *pipe)
{
    weir_channel *child = weir__local_child_new(&self->end.base, pipe);
    weir_msg *msg = child != NULL ? weir__accepted_new(child) : NULL;
    if (msg == NULL)
        weir_channel_release(child);
    return msg;
}

static void count_accepted(weir_local_listener *self, bool is_accepted)
{
    pthread_mutex_lock(&names.lock);
    self->stats.accepted += is_accepted;
    self->stats.failed += !is_accepted;
    pthread_mutex_unlock(&names.lock);
}

/* NULL when it could not be accepted, and then the other side knows. */
static weir_msg *accept_one(weir_local_listener *self, weir_local_pipe *pipe)
{
    weir_msg *msg = new_accepted(self, pipe);
    bool is_wanted = weir__local_pipe_settle(pipe, msg != NULL ? 0 : -ECONNREFUSED);
    count_accepted(self, msg != NULL && is_wanted);
    if (msg == NULL) {
        weir__pipeline_fire_code(&self->end.base, -ENOMEM, "accepting failed");
    } else if (!is_wanted) {
        weir_msg_release(msg); /* the client has aborted in this moment */
        msg = NULL;
    }
    return msg;
}

static weir_msg *next_accepted(weir_local_end *end)
{
    weir_local_listener *self = (weir_local_listener *)end;
    weir_local_pipe *pipe;
    weir_msg *msg = NULL;
    while (msg == NULL && end->base.in.is_reading && may_accept(self) &&
           (pipe = take_waiting(self)) != NULL) {
        msg = accept_one(self, pipe);
        weir__local_pipe_release(pipe);
    }
    return msg;
}

static void accept_waiting(weir_local_end *end)
{
    weir__local_end_deliver(end, next_accepted);
}

/* The transport -------------------------------------------------------------------------------- */

static int bind_name(weir_local_listener *self, const weir_address *local)
{
    if (weir_address_kind_of(local) != WEIR_ADDRESS_LOCAL)
        return -EAFNOSUPPORT;
    pthread_mutex_lock(&names.lock);
    weir_local_listener **at = find(local);
    int code = self->is_bound ? -EINVAL : *at != NULL ? -EADDRINUSE : 0;
    if (code == 0) {
        self->address = *local;
        self->is_bound = true;
        *at = self;
    }
    pthread_mutex_unlock(&names.lock);
    return code;
}

static void listener_bind(weir_channel *channel, const weir_address *local, weir_promise *promise)
{
    int code = bind_name((weir_local_listener *)channel, local);
    weir__promise_end(promise, code);
    if (code == 0)
        weir__channel_activate(channel);
}

static bool listener_is_active(const weir_channel *channel)
{
    return ((const weir_local_listener *)channel)->is_bound;
}

static int listener_local_address(const weir_channel *channel, weir_address *address)
{
    const weir_local_listener *self = (const weir_local_listener *)channel;
    pthread_mutex_lock(&names.lock);
    bool has_name = weir_address_kind_of(&self->address) == WEIR_ADDRESS_LOCAL;
    *address = self->address;
    pthread_mutex_unlock(&names.lock);
    return has_name ? 0 : WEIR_ENOTFOUND;
}

static void listener_close(weir_channel *channel)
{
    weir_local_listener *self = (weir_local_listener *)channel;
    pthread_mutex_lock(&names.lock);
    weir__local_end_mute(&self->end);
    if (self->is_bound)
        *find(&self->address) = self->next;
    self->is_bound = false;
    pthread_mutex_unlock(&names.lock);
    weir_local_pipe *pipe;
    while ((pipe = take_waiting(self)) != NULL) {
        weir__local_pipe_settle(pipe, -ECONNREFUSED);
        weir__local_pipe_release(pipe);
    }
}

static void listener_destroy(weir_channel *channel)
{
    weir__free(channel);
}

static int listener_set_option(weir_channel *channel, weir_option option, int64_t value)
{
    weir_local_listener *self = (weir_local_listener *)channel;
    if (option != WEIR_OPTION_BACKLOG && option != WEIR_OPTION_MAX_CONNECTIONS)
        return -ENOPROTOOPT;
    pthread_mutex_lock(&names.lock);
    if (option == WEIR_OPTION_BACKLOG)
        self->backlog = (unsigned)value;
    else
        self->max_connections = value;
    bool is_lifted = self->is_limited && !is_full(self) && weir__local_end_lift(&self->end);
    pthread_mutex_unlock(&names.lock);
    if (is_lifted)
        weir__local_end_ring(&self->end);
    return 0;
}

static int listener_get_option(const weir_channel *channel, weir_option option, int64_t *value)
{
    const weir_local_listener *self = (const weir_local_listener *)channel;
    if (option != WEIR_OPTION_BACKLOG && option != WEIR_OPTION_MAX_CONNECTIONS)
        return -ENOPROTOOPT;
    pthread_mutex_lock(&names.lock);
    *value = option == WEIR_OPTION_BACKLOG ? self->backlog : self->max_connections;
    pthread_mutex_unlock(&names.lock);
    return 0;
}

static const weir_transport listener_transport = {
    .name = "local listener",
    .attach = weir__local_end_attach,
    .detach = weir__local_end_detach,
    .is_active = listener_is_active,
    .bind = listener_bind,
    .start_reading = weir__local_end_start_reading,
    .stop_reading = weir__local_end_stop_reading,
    .quiesce = weir__local_end_quiesce,
    .close = listener_close,
    .destroy = listener_destroy,
    .local_address = listener_local_address,
    .set_option = listener_set_option,
    .get_option = listener_get_option,
};

bool weir__local_listener_stats(const weir_channel *channel, weir_listener_stats *stats)
{
    if (channel->transport != &listener_transport)
        return false;
    pthread_mutex_lock(&names.lock);
    *stats = ((const weir_local_listener *)channel)->stats;
    pthread_mutex_unlock(&names.lock);
    return true;
}

weir_channel *weir__local_listener_new(void)
{
    weir_local_listener *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    weir__channel_init(&self->end.base, &listener_transport, NULL);
    weir__local_end_init(&self->end, &names.lock, accept_waiting);
    weir__list_init(&self->waiting);
    self->backlog = WEIR__LOCAL_BACKLOG;
    if (weir__channel_need_extras(&self->end.base) == NULL) { /* they count its children */
        weir_channel_release(&self->end.base);
        return NULL;
    }
    return &self->end.base;
}
