/* SPDX-License-Identifier: MIT */
/* What every channel over a socket does alike. */
#include "transport/socket.h"

#include "base/address.h"
#include "base/alloc.h"
#include "io/kept.h"

#include <errno.h>
#include <string.h>

void weir__socket_init(weir_socket *self, const weir_transport *transport, weir_channel *parent,
                       weir_sys *sys, int fd, int family)
{
    self->sys = sys;
    self->fd = self->file.fd = fd;
    self->family = (uint8_t)family;
    self->is_open = true;
    self->in.file = &self->file;
    weir__channel_init(&self->channel, transport, parent);
}

weir_socket_extras *weir__socket_need_extras(weir_socket *self)
{
    if (self->extras == NULL)
        self->extras = weir__zalloc(sizeof *self->extras);
    return self->extras;
}

/* Coming to a loop, and leaving it ------------------------------------------------------------- */

static void describe(const weir_io_file *file, const weir_stack *stack, weir_subject *subject)
{
    weir__channel_describe(&WEIR_CONTAINER(file, weir_socket, file)->channel, stack, subject);
}

int weir__socket_attach(weir_channel *channel)
{
    weir_socket *self = weir__socket_of(channel);
    weir_io *io = weir__socket_io(self);
    int code = io->type->attach(io, &self->file, self->fd);
    self->is_attached = code == 0;
    self->file.is_described = code == 0;
    io->describe = describe;
    return code;
}

void weir__socket_detach(weir_channel *channel)
{
    weir_socket *self = weir__socket_of(channel);
    weir_io *io = weir__socket_io(self);
    self->is_attached = false;
    io->type->detach(io, &self->file);
}

bool weir__socket_is_active(const weir_channel *channel)
{
    return weir__socket_of(channel)->is_connected;
}

static bool is_busy(const weir_socket *self)
{
    return self->is_lingering ||
           (self->is_attached && (self->file.in_flight > 0 || weir__io_is_sending(&self->file)));
}

/* A channel that closes does not wait for a relay, which may wait for somebody else's bytes. */
static bool is_relaying(const weir_socket *self)
{
    return (self->is_relayed || self->is_relay) && !weir__channel_is_closing(&self->channel);
}

static void cancel(weir_socket *self, weir_io_op *op)
{
    if (op != NULL && op->is_in_flight)
        weir__io_cancel(weir__socket_io(self), op);
}

/* When the channel only moves, a connect and a relay are waited for: they cannot be taken to
 * another loop. */
bool weir__socket_quiesce(weir_channel *channel, bool is_closing)
{
    weir_socket *self = weir__socket_of(channel);
    if (is_closing && self->is_relay)
        weir__relaying_stop(self->extras->relaying);
    self->is_quiescing = is_busy(self) || is_relaying(self) ||
                         (is_closing && weir__lingering_begin(self));
    if (!self->is_quiescing)
        return true;
    cancel(self, &self->in);
    if (is_closing) {
        cancel(self, self->file.out); /* a connect */
        cancel(self, self->file.in);  /* a relay's */
    }
    if (is_closing || !self->is_relay)
        weir__io_cancel_send(weir__socket_io(self), &self->file);
    return false;
}

bool weir__socket_continue_quiesce(weir_socket *self)
{
    if (!self->is_quiescing)
        return false;
    bool is_closing = weir__channel_is_closing(&self->channel);
    if (is_busy(self) || is_relaying(self) || (is_closing && weir__lingering_begin(self)))
        return true;
    self->is_quiescing = false;
    weir__channel_quiesced(&self->channel);
    return true;
}

void weir__socket_send_cancelled(weir_io_file *file)
{
    weir__socket_continue_quiesce(weir__socket_of_file(file));
}

/* Others ask it under the lock. */
bool weir__socket_withdraw(weir_socket *self)
{
    weir__channel_lock(&self->channel);
    bool was_open = self->is_open;
    self->is_open = false;
    weir__channel_unlock(&self->channel);
    return was_open;
}

static void close_descriptor(weir_socket *self)
{
    if (self->is_attached) {
        weir_io *io = weir__socket_io(self);
        io->type->close_file(io, &self->file);
    } else {
        weir__kept_drop(self->sys, &self->file);
        self->sys->close(self->sys, self->file.fd);
    }
    self->is_attached = false;
}

void weir__socket_close(weir_channel *channel)
{
    weir_socket *self = weir__socket_of(channel);
    if (self->extras != NULL)
        weir__claim_end(self->sys, self->extras->claim);
    weir__lingering_end(self);
    if (weir__socket_withdraw(self))
        close_descriptor(self);
    weir__free(self->extras);
    self->extras = NULL;
    if (channel->parent != NULL)
        weir__listener_child_closed(channel->parent);
}

/* Addresses ------------------------------------------------------------------------------------ */

typedef int (*name_fn)(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length);

static int ask(const weir_channel *channel, name_fn name, weir_address *address)
{
    const weir_socket *self = weir__socket_of(channel);
    struct sockaddr_storage storage;
    socklen_t length = sizeof storage;
    int code = -EBADF;
    weir__channel_lock(channel);
    if (self->is_open)
        code = name(self->sys, self->fd, (struct sockaddr *)&storage, &length);
    weir__channel_unlock(channel);
    if (code == 0)
        code = weir_address_from_sockaddr(address, (struct sockaddr *)&storage, length);
    return code < 0 ? WEIR_ENOTFOUND : 0;
}

int weir__socket_local_address(const weir_channel *channel, weir_address *address)
{
    return ask(channel, weir__socket_of(channel)->sys->getsockname, address);
}

int weir__socket_remote_address(const weir_channel *channel, weir_address *address)
{
    const weir_socket *self = weir__socket_of(channel);
    if (!self->has_remote)
        return ask(channel, self->sys->getpeername, address);
    struct in_addr host;
    memcpy(&host, &self->remote_host, sizeof host);
    if (self->family == AF_INET)
        weir__address_set_ipv4(address, host, self->remote_port);
    else
        weir__address_set_ipv6(address, self->remote_host, self->remote_scope, self->remote_port);
    return 0;
}

int weir_channel_descriptor(const weir_channel *channel)
{
    if (channel == NULL || channel->transport->detach != weir__socket_detach)
        return -EBADF;
    weir__channel_lock(channel);
    int fd = weir__socket_of(channel)->is_open ? weir__socket_of(channel)->fd : -EBADF;
    weir__channel_unlock(channel);
    return fd;
}

int weir__socket_bind(weir_socket *self, const weir_address *local)
{
    size_t length;
    const struct sockaddr *address = weir_address_sockaddr(local, &length);
    if (address == NULL)
        return -EINVAL;
    if (weir_address_kind_of(local) == WEIR_ADDRESS_UNIX) {
        weir_socket_extras *extras = weir__socket_need_extras(self);
        return extras != NULL ? weir__claim_bind(self->sys, self->file.fd, local, &extras->claim)
                              : -ENOMEM;
    }
    return self->sys->bind(self->sys, self->file.fd, address, (socklen_t)length);
}

/* Reading -------------------------------------------------------------------------------------- */

/* Without auto_read one batch was asked for, and no more should come. */
void weir__socket_start_reading(weir_channel *channel)
{
    weir_socket *self = weir__socket_of(channel);
    if (self->in.is_in_flight || !self->is_attached)
        return; /* it is being cancelled: then its end will see that reading is wished again */
    self->in.is_multishot = channel->in.is_auto_read;
    weir__io_submit(weir__socket_io(self), &self->in);
}

void weir__socket_stop_reading(weir_channel *channel)
{
    weir_socket *self = weir__socket_of(channel);
    if (self->in.is_in_flight)
        weir__io_cancel(weir__socket_io(self), &self->in);
}

void weir__socket_end_batch(weir_socket *self)
{
    if (!weir__channel_is_closing(&self->channel))
        weir__channel_read_complete(&self->channel);
    if (!self->in.is_in_flight && self->channel.in.is_reading)
        weir__socket_start_reading(&self->channel);
}

/* Options -------------------------------------------------------------------------------------- */

static bool has_option(const weir_socket *self, weir_option option)
{
    weir_socket_kind kind = self->in.kind == WEIR_IO_ACCEPT    ? WEIR_SOCKET_LISTENER
                            : self->in.kind == WEIR_IO_RECEIVE ? WEIR_SOCKET_STREAM
                                                               : WEIR_SOCKET_DATAGRAM;
    return weir__sockopt_is_for(kind, self->family, option);
}

int weir__socket_set_option(weir_channel *channel, weir_option option, int64_t value)
{
    weir_socket *self = weir__socket_of(channel);
    if (!has_option(self, option))
        return -ENOPROTOOPT;
    if (!self->is_open)
        return WEIR_ECLOSED;
    bool is_linger = option == WEIR_OPTION_CLOSE_LINGER_NS && self->family != AF_UNIX;
    int code = is_linger && value > 0 ? weir__lingering_reserve(self) : 0;
    if (code == 0)
        code = weir__sockopt_set(self->sys, self->file.fd, self->family, option, value);
    if (code == 0 && is_linger)
        weir__lingering_set(self, value);
    return code;
}

int weir__socket_get_option(const weir_channel *channel, weir_option option, int64_t *value)
{
    const weir_socket *self = weir__socket_of(channel);
    int code = WEIR_ECLOSED;
    if (!has_option(self, option))
        return -ENOPROTOOPT;
    weir__channel_lock(channel);
    if (self->is_open)
        code = weir__sockopt_get(self->sys, self->fd, self->family, option, value);
    weir__channel_unlock(channel);
    return code;
}
