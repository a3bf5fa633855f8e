/* SPDX-License-Identifier: MIT */
/* Streams between two peers: the pattern in both directions at once. */
#ifndef WEIR_TESTS_TRANSPORT_FLOWS_H
#define WEIR_TESTS_TRANSPORT_FLOWS_H

#include "transport/sockets.h"

static inline void close_peer(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static inline void make_small(int fd)
{
    int size = 65536; /* less is more than TCP can do with, on a loopback device */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

static inline weir_channel_stats stats_of_channel(const weir_channel *channel)
{
    weir_channel_stats stats;
    weir_channel_get_stats(channel, &stats);
    return stats;
}

/* One direction of a stream, seen from one of its ends. */
typedef struct flow {
    int fd;
    size_t to_send, sent, to_get, got;
    bool ends; /* its output, after the last byte */
    bool has_shut, expects_eof, has_eof;
} flow;

static inline void flow_out(flow *self)
{
    uint8_t bytes[32768];
    size_t part = self->to_send - self->sent;
    if (part > sizeof bytes)
        part = sizeof bytes;
    fill_pattern(bytes, self->sent, part);
    ssize_t code = send(self->fd, bytes, part, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (code < 0 && errno != EAGAIN)
        print_error("send says %s, after %zu bytes\n", strerror(errno), self->sent);
    assert_true(code > 0 || errno == EAGAIN);
    self->sent += code > 0 ? (size_t)code : 0;
}

static inline void flow_in(flow *self)
{
    uint8_t bytes[65536];
    ssize_t code = recv(self->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (code < 0 && errno == EAGAIN)
        return;
    if (code == 0 && self->expects_eof && self->got == self->to_get) {
        self->has_eof = true;
        return;
    }
    if (code <= 0 || self->got + (size_t)code > self->to_get)
        fail_msg("recv says %zd, errno %d, after %zu of %zu bytes", code, errno, self->got,
                 self->to_get);
    assert_true(is_pattern(bytes, self->got, (size_t)code));
    self->got += (size_t)code;
}

static inline short wish_of(const flow *self)
{
    bool is_reading = self->got < self->to_get || (self->expects_eof && !self->has_eof);
    return (short)((self->sent < self->to_send ? POLLOUT : 0) | (is_reading ? POLLIN : 0));
}

static inline void flow_end(flow *self)
{
    if (!self->ends || self->has_shut || self->sent < self->to_send)
        return;
    assert_int_equal(shutdown(self->fd, SHUT_WR), 0);
    self->has_shut = true;
}

/* Until each of them, two at most, has sent and got everything. */
static inline void run_flows(flow *flows, size_t count)
{
    for (;;) {
        struct pollfd entries[2];
        bool is_flowing = false;
        for (size_t i = 0; i < count; i++) {
            flow_end(&flows[i]);
            short wish = wish_of(&flows[i]);
            entries[i] = (struct pollfd){ .fd = wish != 0 ? flows[i].fd : -1, .events = wish };
            is_flowing = is_flowing || wish != 0;
        }
        if (!is_flowing)
            return;
        if (poll(entries, count, PATIENCE_MS) <= 0)
            fail_msg("nothing moves: %zu of %zu sent, %zu of %zu received", flows[0].sent,
                     flows[0].to_send, flows[0].got, flows[0].to_get);
        for (size_t i = 0; i < count; i++) {
            if (entries[i].revents & POLLOUT)
                flow_out(&flows[i]);
            if (entries[i].revents & (POLLIN | POLLHUP | POLLERR))
                flow_in(&flows[i]);
        }
    }
}

/* The pattern goes from each of the two to the other. */
static inline void pump(int left, int right, size_t there, size_t back)
{
    flow flows[] = {
        { .fd = left, .to_send = there, .to_get = back },
        { .fd = right, .to_send = back, .to_get = there },
    };
    run_flows(flows, 2);
}

/* The same, and the end of each direction follows its last byte at once. */
static inline void pump_to_end(int left, int right, size_t there, size_t back)
{
    flow flows[] = {
        { .fd = left, .to_send = there, .to_get = back, .ends = true, .expects_eof = true },
        { .fd = right, .to_send = back, .to_get = there, .ends = true, .expects_eof = true },
    };
    run_flows(flows, 2);
}

/* Each ends its output, and sees the end of the other's. */
static inline void end_streams(int left, int right)
{
    assert_int_equal(shutdown(left, SHUT_WR), 0);
    peer_expect_eof(right);
    assert_int_equal(shutdown(right, SHUT_WR), 0);
    peer_expect_eof(left);
}

#endif
