/* SPDX-License-Identifier: MIT */
/* Socket options: weir's names for what setsockopt has. */
#include "transport/socket.h"

#include <errno.h>
#include <linux/in6.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>

/* Which sockets have it. */
enum {
    INET = 1, /* IPv4 and IPv6 */
    ANY = 2,  /* and Unix */
};

typedef struct sockopt {
    uint8_t families;
    bool is_inherited; /* an accepted socket has what its listener has */
    int level, name;
    int level6, name6; /* for IPv6 sockets, where that is another; 0: it is not */
} sockopt;

static const sockopt table[WEIR_OPTIONS_END] = {
    [WEIR_OPTION_RECEIVE_BUFFER_BYTES] = { ANY, true, SOL_SOCKET, SO_RCVBUF, 0, 0 },
    [WEIR_OPTION_SEND_BUFFER_BYTES] = { ANY, true, SOL_SOCKET, SO_SNDBUF, 0, 0 },
    [WEIR_OPTION_RECEIVE_LOW_BYTES] = { ANY, false, SOL_SOCKET, SO_RCVLOWAT, 0, 0 },
    [WEIR_OPTION_REUSE_ADDRESS] = { ANY, true, SOL_SOCKET, SO_REUSEADDR, 0, 0 },
    [WEIR_OPTION_REUSE_PORT] = { INET, false, SOL_SOCKET, SO_REUSEPORT, 0, 0 },
    [WEIR_OPTION_PRIORITY] = { ANY, false, SOL_SOCKET, SO_PRIORITY, 0, 0 },
    [WEIR_OPTION_MARK] = { ANY, true, SOL_SOCKET, SO_MARK, 0, 0 },
    [WEIR_OPTION_BUSY_POLL_NS] = { ANY, true, SOL_SOCKET, SO_BUSY_POLL, 0, 0 },
    [WEIR_OPTION_INCOMING_CPU] = { INET, false, SOL_SOCKET, SO_INCOMING_CPU, 0, 0 },
    [WEIR_OPTION_BIND_INTERFACE] = { INET, true, SOL_SOCKET, SO_BINDTOIFINDEX, 0, 0 },
    [WEIR_OPTION_TOS] = { INET, true, IPPROTO_IP, IP_TOS, IPPROTO_IPV6, IPV6_TCLASS },
    [WEIR_OPTION_TTL] = { INET, true, IPPROTO_IP, IP_TTL, IPPROTO_IPV6, IPV6_UNICAST_HOPS },
    [WEIR_OPTION_FREE_BIND] = { INET, true, IPPROTO_IP, IP_FREEBIND, IPPROTO_IPV6, IPV6_FREEBIND },
    [WEIR_OPTION_TRANSPARENT] = { INET, true, IPPROTO_IP, IP_TRANSPARENT, IPPROTO_IPV6,
                                  IPV6_TRANSPARENT },
    [WEIR_OPTION_IPV6_ONLY] = { INET, true, 0, 0, IPPROTO_IPV6, IPV6_V6ONLY },
    [WEIR_OPTION_PATH_MTU_DISCOVERY] = { INET, true, IPPROTO_IP, IP_MTU_DISCOVER, IPPROTO_IPV6,
                                         IPV6_MTU_DISCOVER },
    [WEIR_OPTION_BIND_ADDRESS_NO_PORT] = { INET, false, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0, 0 },
    [WEIR_OPTION_NO_DELAY] = { INET, true, IPPROTO_TCP, TCP_NODELAY, 0, 0 },
    [WEIR_OPTION_CORK] = { INET, true, IPPROTO_TCP, TCP_CORK, 0, 0 },
    [WEIR_OPTION_QUICK_ACK] = { INET, false, IPPROTO_TCP, TCP_QUICKACK, 0, 0 },
    [WEIR_OPTION_KEEP_ALIVE] = { INET, true, SOL_SOCKET, SO_KEEPALIVE, 0, 0 },
    [WEIR_OPTION_KEEP_IDLE_NS] = { INET, true, IPPROTO_TCP, TCP_KEEPIDLE, 0, 0 },
    [WEIR_OPTION_KEEP_INTERVAL_NS] = { INET, true, IPPROTO_TCP, TCP_KEEPINTVL, 0, 0 },
    [WEIR_OPTION_KEEP_COUNT] = { INET, true, IPPROTO_TCP, TCP_KEEPCNT, 0, 0 },
    [WEIR_OPTION_USER_TIMEOUT_NS] = { INET, true, IPPROTO_TCP, TCP_USER_TIMEOUT, 0, 0 },
    [WEIR_OPTION_NOT_SENT_LOW_BYTES] = { INET, true, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 0, 0 },
    [WEIR_OPTION_MAX_SEGMENT_BYTES] = { INET, true, IPPROTO_TCP, TCP_MAXSEG, 0, 0 },
    [WEIR_OPTION_WINDOW_CLAMP_BYTES] = { INET, true, IPPROTO_TCP, TCP_WINDOW_CLAMP, 0, 0 },
    [WEIR_OPTION_SYN_COUNT] = { INET, true, IPPROTO_TCP, TCP_SYNCNT, 0, 0 },
    [WEIR_OPTION_FAST_OPEN_CONNECT] = { INET, false, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 0, 0 },
    [WEIR_OPTION_CLOSE_LINGER_NS] = { ANY, true, SOL_SOCKET, SO_LINGER, 0, 0 },
    [WEIR_OPTION_DEFER_ACCEPT_NS] = { INET, false, IPPROTO_TCP, TCP_DEFER_ACCEPT, 0, 0 },
    [WEIR_OPTION_FAST_OPEN] = { INET, false, IPPROTO_TCP, TCP_FASTOPEN, 0, 0 },
    [WEIR_OPTION_RECEIVE_OFFLOAD] = { INET, false, IPPROTO_UDP, UDP_GRO, 0, 0 },
    [WEIR_OPTION_BROADCAST] = { INET, false, SOL_SOCKET, SO_BROADCAST, 0, 0 },
    [WEIR_OPTION_MULTICAST_TTL] = { INET, false, IPPROTO_IP, IP_MULTICAST_TTL, IPPROTO_IPV6,
                                    IPV6_MULTICAST_HOPS },
    [WEIR_OPTION_MULTICAST_LOOP] = { INET, false, IPPROTO_IP, IP_MULTICAST_LOOP, IPPROTO_IPV6,
                                     IPV6_MULTICAST_LOOP },
    [WEIR_OPTION_MULTICAST_INTERFACE] = { INET, false, IPPROTO_IP, IP_MULTICAST_IF, IPPROTO_IPV6,
                                          IPV6_MULTICAST_IF },
    [WEIR_OPTION_MULTICAST_ALL] = { INET, false, IPPROTO_IP, IP_MULTICAST_ALL, IPPROTO_IPV6,
                                    IPV6_MULTICAST_ALL },
    [WEIR_OPTION_RECEIVE_ORIGINAL] = { INET, false, IPPROTO_IP, IP_RECVORIGDSTADDR, IPPROTO_IPV6,
                                       IPV6_RECVORIGDSTADDR },
};

/* NULL when sockets of that family do not have it. */
static const sockopt *find(int family, weir_option option, int *level, int *name)
{
    const sockopt *found = &table[option];
    bool is_inet = family == AF_INET || family == AF_INET6;
    if (found->families == 0 || (found->families == INET && !is_inet))
        return NULL;
    bool is_other = family == AF_INET6 && found->level6 != 0;
    *level = is_other ? found->level6 : found->level;
    *name = is_other ? found->name6 : found->name;
    return *level == 0 && *name == 0 ? NULL : found;
}

/* An accepted Unix socket is a new one, and no copy of its listener. */
bool weir__sockopt_is_inherited(int family, weir_option option)
{
    return family != AF_UNIX && table[option].is_inherited;
}

/* Some the kernel would take from others, too, or refuse in another way. */
bool weir__sockopt_is_for(weir_socket_kind kind, int family, weir_option option)
{
    int level, name;
    if (find(family, option, &level, &name) == NULL)
        return false;
    switch (option) {
    case WEIR_OPTION_FAST_OPEN_CONNECT:
    case WEIR_OPTION_BIND_ADDRESS_NO_PORT:
        return kind == WEIR_SOCKET_STREAM;
    case WEIR_OPTION_DEFER_ACCEPT_NS:
    case WEIR_OPTION_FAST_OPEN:
        return kind == WEIR_SOCKET_LISTENER;
    case WEIR_OPTION_RECEIVE_OFFLOAD:
    case WEIR_OPTION_BROADCAST:
    case WEIR_OPTION_MULTICAST_TTL:
    case WEIR_OPTION_MULTICAST_LOOP:
    case WEIR_OPTION_MULTICAST_INTERFACE:
    case WEIR_OPTION_MULTICAST_ALL:
    case WEIR_OPTION_RECEIVE_ORIGINAL:
        return kind == WEIR_SOCKET_DATAGRAM;
    default:
        return true;
    }
}

/* The kernel's unit of an option that is a time. */
static int64_t unit_ns(weir_option option)
{
    switch (option) {
    case WEIR_OPTION_KEEP_IDLE_NS:
    case WEIR_OPTION_KEEP_INTERVAL_NS:
    case WEIR_OPTION_CLOSE_LINGER_NS:
    case WEIR_OPTION_DEFER_ACCEPT_NS:
        return WEIR_SECONDS(1);
    case WEIR_OPTION_USER_TIMEOUT_NS:
        return WEIR_MS(1);
    case WEIR_OPTION_BUSY_POLL_NS:
        return WEIR_US(1);
    default:
        return 1;
    }
}

/* Rounded up, so that a short time does not become 0, which often means none. */
static int in_kernel_units(weir_option option, int64_t value)
{
    int64_t unit = unit_ns(option);
    return (int)(value > 0 ? (value - 1) / unit + 1 : value);
}

int weir__sockopt_set(weir_sys *sys, int fd, int family, weir_option option, int64_t value)
{
    int level, name, number = in_kernel_units(option, value);
    if (find(family, option, &level, &name) == NULL)
        return -ENOPROTOOPT;
    if (option == WEIR_OPTION_CLOSE_LINGER_NS) {
        struct linger linger = { .l_onoff = value >= 0, .l_linger = value >= 0 ? number : 0 };
        return sys->setsockopt(sys, fd, level, name, &linger, sizeof linger);
    }
    if (option == WEIR_OPTION_MULTICAST_INTERFACE && family == AF_INET) {
        struct ip_mreqn request = { .imr_ifindex = number };
        return sys->setsockopt(sys, fd, level, name, &request, sizeof request);
    }
    if (option == WEIR_OPTION_RECEIVE_ORIGINAL && family == AF_INET6) /* which may be for both */
        sys->setsockopt(sys, fd, IPPROTO_IP, IP_RECVORIGDSTADDR, &number, sizeof number);
    return sys->setsockopt(sys, fd, level, name, &number, sizeof number);
}

int weir__sockopt_get(weir_sys *sys, int fd, int family, weir_option option, int64_t *value)
{
    int level, name, number = 0;
    struct linger linger = { 0 };
    bool is_linger = option == WEIR_OPTION_CLOSE_LINGER_NS;
    socklen_t length = is_linger ? sizeof linger : sizeof number;
    if (find(family, option, &level, &name) == NULL)
        return -ENOPROTOOPT;
    int code = sys->getsockopt(sys, fd, level, name, is_linger ? (void *)&linger : &number,
                               &length);
    if (code < 0)
        return code;
    if (is_linger)
        number = linger.l_onoff ? linger.l_linger : WEIR_OFF;
    if (option == WEIR_OPTION_MARK)
        *value = (uint32_t)number;
    else
        *value = number > 0 ? number * unit_ns(option) : number;
    return 0;
}
