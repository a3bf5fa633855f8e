/* SPDX-License-Identifier: MIT */
/* Listeners: what they accept, and what they do when there is no room for it. */
#include "base/alloc.h"
#include "base/counter.h"
#include "channel/extras.h"
#include "transport/accepted.h"
#include "transport/local_listener.h"
#include "transport/retry.h"

#include <errno.h>
#include <linux/filter.h>
#include <string.h>

#define DEFAULT_BACKLOG 4096
#define MOST_REFUSALS 64 /* before such a pause */

typedef struct listener {
    weir_socket socket;
    _Atomic(int) backlog; /* others read it */
    int reserve; /* a descriptor that is given up when there are no others, to say no with */
    weir_retry retry;

    /* The limit of connections: children on any loop count down. */
    _Atomic(int64_t) max_connections; /* 0: none */
    _Atomic(int64_t) connections;
    _Atomic(bool) is_limited; /* it waits until there are fewer */
    _Atomic(bool) is_resume_posted;
    weir_task resume;

    _Atomic(uint64_t) accepted, failed, refused, pauses, limited;
} listener;

static listener *listener_of(const weir_channel *channel)
{
    return (listener *)channel;
}

static void count(_Atomic(uint64_t) *counter)
{
    weir__counter_add(counter, 1);
}

/* Reading -------------------------------------------------------------------------------------- */

static bool is_full(const listener *self)
{
    int64_t most = atomic_load(&self->max_connections);
    return most > 0 && atomic_load(&self->connections) >= most;
}

/* Sets the flag before it looks once more, as a child that closes counts before it looks at the
 * flag: one of the two sees the other. */
static bool has_to_wait(listener *self)
{
    if (!is_full(self)) {
        if (atomic_load(&self->is_limited))
            atomic_store(&self->is_limited, false); /* the limit is another one now */
        return false;
    }
    if (!atomic_exchange(&self->is_limited, true))
        count(&self->limited);
    if (is_full(self))
        return true;
    atomic_store(&self->is_limited, false);
    return false;
}

static void listener_start_reading(weir_channel *channel)
{
    listener *self = listener_of(channel);
    if (self->reserve < 0) /* it was used, and could not be made again at once */
        self->reserve = self->socket.sys->eventfd(self->socket.sys, 0);
    if (!self->retry.is_waiting && !has_to_wait(self))
        weir__socket_start_reading(channel);
}

static void go_on(listener *self)
{
    weir_channel *channel = &self->socket.channel;
    if (channel->in.is_reading && weir__channel_loop(channel) != NULL)
        listener_start_reading(channel);
}

/* Takes the resuming to the loop that the listener is on, unless it is on its way. Without a loop
 * there is nobody to resume: then registering it begins to read. */
static void post_resume(listener *self)
{
    weir_channel *channel = &self->socket.channel;
    if (atomic_exchange(&self->is_resume_posted, true))
        return;
    weir_channel_retain(channel);
    if (weir__channel_post(channel, &self->resume) < 0)
        self->resume.dropped(&self->resume);
}

static int on_resume(weir_task *task)
{
    listener *self = WEIR_CONTAINER(task, listener, resume);
    weir_channel *channel = &self->socket.channel;
    atomic_store(&self->is_resume_posted, false);
    if (weir__channel_is_mine(channel))
        go_on(self);
    else
        post_resume(self); /* it has gone to another loop meanwhile */
    weir_channel_release(channel);
    return 0;
}

static void resume_dropped(weir_task *task)
{
    listener *self = WEIR_CONTAINER(task, listener, resume);
    atomic_store(&self->is_resume_posted, false);
    weir_channel_release(&self->socket.channel);
}

void weir__listener_child_closed(weir_channel *channel)
{
    listener *self = listener_of(channel);
    atomic_fetch_sub(&self->connections, 1);
    if (atomic_load(&self->is_limited) && !is_full(self) &&
        atomic_exchange(&self->is_limited, false))
        post_resume(self);
}

/* Trouble -------------------------------------------------------------------------------------- */

static void pause_for_a_while(listener *self, int code)
{
    count(&self->pauses);
    weir__retry_later(&self->retry, &self->socket, code);
}

/* Without a channel a close_linger_ns that the listener has passed on cannot be waited for. */
static void drop(listener *self, int fd)
{
    weir_sys *sys = self->socket.sys;
    if (weir__lingering_ns(&self->socket) > 0)
        weir__lingering_switch_off(sys, fd);
    sys->close(sys, fd);
}

/* With the reserve given up there is one descriptor: enough to tell those who wait that it is of no
 * use, instead of letting them hang. */
static void refuse_politely(listener *self)
{
    weir_sys *sys = self->socket.sys;
    int fd = 0;
    if (self->reserve < 0)
        return;
    sys->close(sys, self->reserve);
    for (int i = 0; i < MOST_REFUSALS && fd >= 0; i++) {
        fd = sys->accept(sys, self->socket.file.fd, NULL, NULL);
        if (fd >= 0) {
            drop(self, fd);
            count(&self->refused);
        }
    }
    self->reserve = sys->eventfd(sys, 0);
}

/* The backend gave up: for want of something, or because of the one connection. Anything else is
 * treated like a want, too, so that a listener never spins and never stops. */
static void on_trouble(listener *self, int code)
{
    switch (code) {
    case -ECONNABORTED:
    case -EPROTO:
    case -EPERM:
    case -ENETDOWN:
    case -ENETUNREACH:
    case -EHOSTDOWN:
    case -EHOSTUNREACH:
    case -ENONET:
    case -ENOPROTOOPT:
    case -EOPNOTSUPP:
    case -ETIMEDOUT:
        count(&self->failed);
        break;
    case -EMFILE:
    case -ENFILE:
        refuse_politely(self);
        pause_for_a_while(self, code);
        break;
    default:
        pause_for_a_while(self, code);
        break;
    }
}

/* Accepting ------------------------------------------------------------------------------------ */

static void remember_remote(weir_socket *child, const weir_io_result *result)
{
    if (child->family == AF_INET && result->address_length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in remote;
        memcpy(&remote, result->address, sizeof remote);
        memcpy(&child->remote_host, &remote.sin_addr, sizeof remote.sin_addr);
        child->remote_port = remote.sin_port;
        child->has_remote = true;
    } else if (child->family == AF_INET6 && result->address_length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 remote;
        memcpy(&remote, result->address, sizeof remote);
        child->remote_host = remote.sin6_addr;
        child->remote_scope = remote.sin6_scope_id;
        child->remote_port = remote.sin6_port;
        child->has_remote = true;
    }
}

/* NULL, and the descriptor is closed, without memory or when an option cannot be set. */
static weir_msg *make_child(listener *self, const weir_io_result *result)
{
    weir_channel *parent = &self->socket.channel, *child;
    weir_sys *sys = self->socket.sys;
    if (weir__stream_new(&child, parent, sys, result->code, self->socket.family, true) < 0) {
        drop(self, result->code);
        return NULL;
    }
    atomic_fetch_add(&self->connections, 1);
    remember_remote(weir__socket_of(child), result);
    int64_t linger_ns = weir__lingering_ns(&self->socket);
    int code = linger_ns > 0 ? weir__lingering_set(weir__socket_of(child), linger_ns) : 0;
    if (code < 0)
        weir__lingering_switch_off(sys, result->code);
    else
        code = weir__channel_inherit(child);
    weir_msg *msg = code == 0 ? weir__accepted_new(child) : NULL;
    if (msg == NULL)
        weir_channel_release(child); /* which closes it */
    return msg;
}

static void accept_one(listener *self, const weir_io_result *result)
{
    weir_channel *channel = &self->socket.channel;
    weir_msg *msg = NULL;
    if (weir__channel_is_closing(channel))
        drop(self, result->code);
    else if ((msg = make_child(self, result)) == NULL)
        count(&self->failed);
    if (msg == NULL)
        return;
    count(&self->accepted);
    weir__channel_read(channel, msg, weir_msg_size(msg));
    if (self->socket.in.is_in_flight && has_to_wait(self))
        weir__socket_stop_reading(channel);
}

static void on_accepted(weir_io_op *op, const weir_io_result *result)
{
    listener *self = listener_of(&weir__socket_of_in(op)->channel);
    if (result->code >= 0)
        accept_one(self, result);
    if (result->is_armed || weir__socket_continue_quiesce(&self->socket) || result->code >= 0)
        return; /* after a one-shot accept the end of the batch goes on */
    if (result->code != -ECANCELED)
        on_trouble(self, result->code);
    go_on(self);
}

static void on_batch_end(weir_io_op *op)
{
    listener *self = listener_of(&weir__socket_of_in(op)->channel);
    if (!weir__channel_is_closing(&self->socket.channel))
        weir__channel_read_complete(&self->socket.channel);
    go_on(self);
}

/* The transport -------------------------------------------------------------------------------- */

static void listener_bind(weir_channel *channel, const weir_address *local, weir_promise *promise)
{
    listener *self = listener_of(channel);
    weir_sys *sys = self->socket.sys;
    int code = self->socket.is_connected ? -EINVAL : weir__socket_bind(&self->socket, local);
    if (code == 0)
        code = sys->listen(sys, self->socket.file.fd, self->backlog);
    self->socket.is_connected |= code == 0;
    weir__promise_end(promise, code);
    if (code == 0)
        weir__channel_activate(channel);
}

/* The retry's timer belongs to a loop; elsewhere reading begins anew. */
static bool listener_quiesce(weir_channel *channel, bool is_closing)
{
    listener *self = listener_of(channel);
    weir__retry_cancel(&self->retry);
    return weir__socket_quiesce(channel, is_closing);
}

static void listener_close(weir_channel *channel)
{
    listener *self = listener_of(channel);
    if (self->reserve >= 0)
        self->socket.sys->close(self->socket.sys, self->reserve);
    self->reserve = -1;
    weir__socket_close(channel);
}

static void listener_destroy(weir_channel *channel)
{
    weir__free(listener_of(channel));
}

static int listener_set_option(weir_channel *channel, weir_option option, int64_t value)
{
    listener *self = listener_of(channel);
    if (option == WEIR_OPTION_MAX_CONNECTIONS) {
        atomic_store(&self->max_connections, value);
        if (has_to_wait(self))
            weir__socket_stop_reading(channel);
        else
            go_on(self);
        return 0;
    }
    if (option != WEIR_OPTION_BACKLOG)
        return weir__socket_set_option(channel, option, value);
    self->backlog = (int)value;
    /* The kernel takes another one at any time. */
    return self->socket.is_connected
               ? self->socket.sys->listen(self->socket.sys, self->socket.file.fd, self->backlog)
               : 0;
}

static int listener_get_option(const weir_channel *channel, weir_option option, int64_t *value)
{
    const listener *self = listener_of(channel);
    if (option == WEIR_OPTION_MAX_CONNECTIONS)
        *value = atomic_load(&self->max_connections);
    else if (option == WEIR_OPTION_BACKLOG)
        *value = self->backlog;
    else
        return weir__socket_get_option(channel, option, value);
    return 0;
}

static int listener_child_option(const weir_channel *channel, weir_option option)
{
    int family = weir__socket_of(channel)->family;
    if (option == WEIR_OPTION_MAX_DESCRIPTORS && family == AF_UNIX)
        return 0;
    if (!weir__sockopt_is_for(WEIR_SOCKET_STREAM, family, option))
        return -ENOPROTOOPT;
    return weir__sockopt_is_inherited(family, option);
}

#define LISTENER(transport_name)                                                                   \
    {                                                                                              \
        .name = (transport_name), .attach = weir__socket_attach, .detach = weir__socket_detach,    \
        .is_active = weir__socket_is_active, .bind = listener_bind,                                \
        .start_reading = listener_start_reading, .stop_reading = weir__socket_stop_reading,        \
        .quiesce = listener_quiesce, .close = listener_close, .destroy = listener_destroy,         \
        .local_address = weir__socket_local_address, .set_option = listener_set_option,            \
        .get_option = listener_get_option, .child_option = listener_child_option,                  \
    }

const weir_transport weir__listener_transport = LISTENER("tcp listener");
const weir_transport weir__unix_listener_transport = LISTENER("unix listener");

static bool is_listener(const weir_channel *channel)
{
    return channel->transport == &weir__listener_transport ||
           channel->transport == &weir__unix_listener_transport;
}

int weir__listener_new(weir_channel **channel, weir_sys *sys, int fd, int family, bool is_listening)
{
    listener *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    weir__socket_init(&self->socket,
                      family == AF_UNIX ? &weir__unix_listener_transport
                                        : &weir__listener_transport,
                      NULL, sys, fd, family);
    self->socket.is_connected = is_listening;
    self->socket.in.kind = WEIR_IO_ACCEPT;
    self->socket.in.on_done = on_accepted;
    self->socket.in.on_batch_end = on_batch_end;
    self->backlog = DEFAULT_BACKLOG;
    self->resume.run = on_resume;
    self->resume.dropped = resume_dropped;
    *channel = &self->socket.channel;
    if (weir__channel_need_extras(*channel) == NULL) { /* they count its children */
        weir__free(self);
        return -ENOMEM;
    }
    self->reserve = sys->eventfd(sys, 0); /* it can do without */
    return 0;
}

/* A program for the kernel: the number of the CPU, modulo the number of sockets. */
int weir__listener_steer(weir_channel *channel, uint32_t sockets)
{
    struct sock_filter code[] = {
        { BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)(SKF_AD_OFF + SKF_AD_CPU) },
        { BPF_ALU | BPF_MOD | BPF_K, 0, 0, sockets },
        { BPF_RET | BPF_A, 0, 0, 0 },
    };
    struct sock_fprog program = { .len = sizeof code / sizeof *code, .filter = code };
    const listener *self = listener_of(channel);
    if (channel->transport != &weir__listener_transport)
        return -EOPNOTSUPP;
    int result = WEIR_ECLOSED;
    weir__channel_lock(channel);
    if (self->socket.is_open)
        result = self->socket.sys->setsockopt(self->socket.sys, self->socket.fd, SOL_SOCKET,
                                              SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program);
    weir__channel_unlock(channel);
    return result;
}

static uint64_t read_counter(const _Atomic(uint64_t) *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

int weir_channel_listener_stats(const weir_channel *channel, weir_listener_stats *stats)
{
    if (channel == NULL || stats == NULL)
        return -EINVAL;
    if (!is_listener(channel))
        return weir__local_listener_stats(channel, stats) ? 0 : -EOPNOTSUPP;
    const listener *self = listener_of(channel);
    *stats = (weir_listener_stats){
        .accepted = read_counter(&self->accepted),
        .connections = (uint64_t)atomic_load(&self->connections),
        .failed = read_counter(&self->failed),
        .refused = read_counter(&self->refused),
        .pauses = read_counter(&self->pauses),
        .limited = read_counter(&self->limited),
    };
    return 0;
}
