/* SPDX-License-Identifier: MIT */
/* Making channels of sockets, by what they are for. */
#include "transport/local.h"
#include "transport/socket.h"

#include <errno.h>
#include <fcntl.h>

static const char *const kind_names[] = { "stream", "listener", "datagram socket" };

static int refuse(weir_error *error, int code, weir_socket_kind kind, const char *why)
{
    return weir_error_set(error, code, "socket", "no %s: %s", kind_names[kind], why);
}

static int family_of(const weir_address *address)
{
    switch (weir_address_kind_of(address)) {
    case WEIR_ADDRESS_IPV4:
        return AF_INET;
    case WEIR_ADDRESS_IPV6:
        return AF_INET6;
    case WEIR_ADDRESS_UNIX:
        return AF_UNIX;
    default:
        return AF_UNSPEC;
    }
}

/* What a new socket should have, where the kernel's default is another: it must not fail for that,
 * but for a listener on [::], which takes IPv4 as well whatever the system's setting is. */
static void set_defaults(weir_sys *sys, weir_socket_kind kind, int fd, int family)
{
    if (kind == WEIR_SOCKET_LISTENER)
        weir__sockopt_set(sys, fd, family, WEIR_OPTION_REUSE_ADDRESS, 1);
    if (kind != WEIR_SOCKET_DATAGRAM && family != AF_UNIX)
        weir__sockopt_set(sys, fd, family, WEIR_OPTION_NO_DELAY, 1);
    if (family == AF_INET6)
        weir__sockopt_set(sys, fd, family, WEIR_OPTION_IPV6_ONLY, 0);
}

static int make(weir_channel **channel, weir_sys *sys, weir_socket_kind kind, int fd, int family,
                bool is_active)
{
    switch (kind) {
    case WEIR_SOCKET_STREAM:
        return weir__stream_new(channel, NULL, sys, fd, family, is_active);
    case WEIR_SOCKET_LISTENER:
        return weir__listener_new(channel, sys, fd, family, is_active);
    default:
        return weir__datagram_new(channel, sys, fd, family, is_active);
    }
}

static int open_socket(weir_channel **channel, weir_sys *sys, weir_socket_kind kind, int family,
                       weir_error *error)
{
    int type = kind == WEIR_SOCKET_DATAGRAM ? SOCK_DGRAM : SOCK_STREAM;
    int fd = sys->socket(sys, family, type, 0);
    if (fd < 0)
        return refuse(error, fd, kind, weir_error_text(fd));
    set_defaults(sys, kind, fd, family);
    int code = make(channel, sys, kind, fd, family, false);
    if (code < 0) {
        sys->close(sys, fd);
        return refuse(error, code, kind, "there is no memory for it");
    }
    return 0;
}

int weir__channel_open(weir_channel **channel, weir_sys *sys, weir_socket_kind kind,
                       const weir_address *address, weir_error *error)
{
    if (channel == NULL || (unsigned)kind > WEIR_SOCKET_DATAGRAM)
        return weir_error_set(error, -EINVAL, "socket", "that is no kind of socket");
    int family = family_of(address);
    if (family != AF_UNSPEC)
        return open_socket(channel, sys, kind, family, error);
    if (weir_address_kind_of(address) != WEIR_ADDRESS_LOCAL)
        return refuse(error, -EINVAL, kind, "there is no address that would say its family");
    if (kind == WEIR_SOCKET_DATAGRAM)
        return refuse(error, -EAFNOSUPPORT, kind, "local channels are streams");
    int code = weir__local_new(channel, kind == WEIR_SOCKET_LISTENER);
    return code < 0 ? refuse(error, code, kind, weir_error_text(code)) : 0;
}

int weir_channel_new(weir_channel **channel, weir_socket_kind kind, const weir_address *address,
                     weir_error *error)
{
    return weir__channel_open(channel, weir__sys_linux(), kind, address, error);
}

/* Descriptors that somebody else made ---------------------------------------------------------- */

static int number_of(weir_sys *sys, int fd, int name, int *value)
{
    socklen_t length = sizeof *value;
    return sys->getsockopt(sys, fd, SOL_SOCKET, name, value, &length);
}

/* Whether it can be used at once; a negative code when it is something else. */
static int examine(weir_sys *sys, weir_socket_kind kind, int fd, int *family)
{
    int type = 0, is_listening = 0;
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int code = number_of(sys, fd, SO_DOMAIN, family);
    if (code == 0)
        code = number_of(sys, fd, SO_TYPE, &type);
    if (code == 0)
        code = number_of(sys, fd, SO_ACCEPTCONN, &is_listening);
    if (code < 0)
        return code;
    if (*family != AF_INET && *family != AF_INET6 && *family != AF_UNIX)
        return -EAFNOSUPPORT;
    if (type != (kind == WEIR_SOCKET_DATAGRAM ? SOCK_DGRAM : SOCK_STREAM) ||
        (is_listening && kind != WEIR_SOCKET_LISTENER))
        return -EINVAL;
    if (is_listening)
        return true;
    if (sys->getpeername(sys, fd, (struct sockaddr *)&address, &length) == 0)
        return kind == WEIR_SOCKET_LISTENER ? -EINVAL : true;
    if (kind != WEIR_SOCKET_DATAGRAM)
        return false;
    /* A datagram socket is bound when it has a port, or a name. */
    weir_address local;
    length = sizeof address;
    if (sys->getsockname(sys, fd, (struct sockaddr *)&address, &length) < 0 ||
        weir_address_from_sockaddr(&local, (struct sockaddr *)&address, length) < 0)
        return false;
    return *family == AF_UNIX ? length > sizeof(sa_family_t) : weir_address_port(&local) != 0;
}

/* How long it takes to close, if somebody has set that. Without the memory for it the descriptor
 * stays the caller's. */
static int learn_linger(weir_channel *channel, weir_sys *sys, int fd, int family)
{
    int64_t linger_ns = 0;
    weir__sockopt_get(sys, fd, family, WEIR_OPTION_CLOSE_LINGER_NS, &linger_ns);
    int code = family != AF_UNIX ? weir__lingering_set(weir__socket_of(channel), linger_ns) : 0;
    if (code < 0) {
        weir__socket_withdraw(weir__socket_of(channel));
        weir_channel_release(channel);
    }
    return code;
}

int weir__channel_adopt(weir_channel **channel, weir_sys *sys, weir_socket_kind kind, int fd,
                        weir_error *error)
{
    int family = AF_UNSPEC;
    if (channel == NULL || (unsigned)kind > WEIR_SOCKET_DATAGRAM)
        return weir_error_set(error, -EINVAL, "socket", "that is no kind of socket");
    int code = examine(sys, kind, fd, &family);
    if (code >= 0) {
        bool is_active = code > 0;
        code = sys->own(sys, fd);
        if (kind != WEIR_SOCKET_DATAGRAM && family != AF_UNIX)
            weir__sockopt_set(sys, fd, family, WEIR_OPTION_NO_DELAY, 1);
        if (code == 0)
            code = make(channel, sys, kind, fd, family, is_active);
        if (code == 0)
            code = learn_linger(*channel, sys, fd, family);
    }
    return code < 0 ? weir_error_set(error, code, "socket", "descriptor %d is no %s for us: %s", fd,
                                     kind_names[kind], weir_error_text(code))
                    : 0;
}

int weir_channel_from_descriptor(weir_channel **channel, weir_socket_kind kind, int fd,
                                 weir_error *error)
{
    return weir__channel_adopt(channel, weir__sys_linux(), kind, fd, error);
}
