/* SPDX-License-Identifier: MIT */
/* weir-load: what it is asked for, what it found, and its three kinds of load. It is one thread
 * over epoll or io_uring and uses nothing of weir, so that it costs little and favours nobody. */
#ifndef WEIR_LOAD_LOAD_H
#define WEIR_LOAD_LOAD_H

#include "histogram.h"
#include "steps.h"
#include "watch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

typedef enum load_mode {
    LOAD_ECHO,    /* messages over connections that stay */
    LOAD_CONNECT, /* connect, one message, close; again */
    LOAD_IDLE,    /* connections that do nothing */
} load_mode;

typedef enum load_io {
    LOAD_ANY, /* the cheaper one that is there */
    LOAD_EPOLL,
    LOAD_URING,
} load_io;

typedef struct load_settings {
    load_mode mode;
    load_io io;
    const char *to;
    unsigned connections;
    size_t size;       /* bytes of a message */
    unsigned depth;    /* messages on their way on each connection */
    double rate;       /* messages per second of all connections; 0: the next when one is back */
    double warmup_s;   /* not counted */
    double duration_s; /* counted */
    uint64_t count;    /* so many messages instead, all of them counted */
    pid_t watched;     /* 0: nobody */
    bool is_stepped;   /* the watched one's instructions are counted; it does not survive that */
    bool is_json;
} load_settings;

typedef struct load_result {
    uint64_t messages;
    double seconds;
    const char *io;  /* which was used */
    uint64_t failed; /* connections that were refused, cut, or answered something else */
    histogram latency;
    double own_cpu_ns;
    watch_result server;
    uint64_t steps; /* instructions of the server in user mode, if they were asked for */
    int64_t resident_kib_before;           /* of the server, before the first connection */
    int64_t kernel_kib_before, kernel_kib; /* of all the kernel's objects, both ends of sockets */
    bool is_watched;
} load_result;

/* Each returns 0, or -1 with a line on standard error. */
int load_echo(const load_settings *settings, load_result *result);
int load_connect(const load_settings *settings, load_result *result);
int load_idle(const load_settings *settings, load_result *result);

/* The part that is counted -------------------------------------------------------------------- */

typedef struct load_span {
    const load_settings *settings;
    load_result *result;
    watch *watch;
    steps *steps;
    uint64_t begin_ns, end_ns; /* of what is counted; UINT64_MAX: not yet known */
    double own_cpu_ns;         /* when it began */
    bool has_begun;
} load_span;

uint64_t load_now_ns(void);

/* What all objects of the kernel take by now, -1 if it does not say. */
int64_t load_kernel_kib(void);

/* Before the first connection. False: there is nobody to watch. */
bool load_span_open(load_span *self, const load_settings *settings, load_result *result);

/* When all is connected: from here the warm-up runs. */
void load_span_warm_up(load_span *self);

/* One message is back, sent at that time. */
void load_span_add(load_span *self, uint64_t sent_ns, uint64_t now_ns);

/* Whether it is over by the time or by the count; begins to count when the warm-up is over. */
bool load_span_is_over(load_span *self, uint64_t now_ns);

/* Notes what it cost and how long it took. */
void load_span_close(load_span *self);

/* Where to ------------------------------------------------------------------------------------ */

typedef struct load_target {
    struct sockaddr_storage address;
    socklen_t length;
    unsigned next_source; /* loopback addresses to connect from, in turn: each has its own ports */
} load_target;

/* host:port, [v6]:port or unix:/path, unix:@name; -1 with a line on standard error. */
int load_target_from(load_target *self, const char *text);

/* A socket that does not block and is connecting; -1 and errno. */
int load_target_connect(load_target *self);

/* Connects all of them and waits until they are; -1 with a line on standard error. */
int load_target_connect_all(load_target *self, int *fds, unsigned count);

/* A connection's bytes, plain or through TLS, with the results and errno of send and recv. */
ssize_t load_send(int fd, const void *bytes, size_t length);
ssize_t load_recv(int fd, void *bytes, size_t size);
void load_close(int fd);

/* From now on all connections speak TLS, which verifies nothing. */
void load_use_tls(bool is_resumed);

/* Of the connections that are closed by now. */
typedef struct load_tls_counts {
    uint64_t handshakes, resumed;
} load_tls_counts;

/* NULL: they speak no TLS. */
const load_tls_counts *load_tls_counted(void);

/* Does the handshake of a connection and waits for it; -1. */
int load_shake(int fd);

/* Whether the last EAGAIN of a send means that bytes have to come first. */
bool load_waits_for_bytes(int fd);

/* The answer must be what was sent: byte i of a stream of messages of that size. */
typedef struct load_pattern {
    uint8_t *bytes;
    size_t size, length; /* of a message; of all, a multiple of it */
} load_pattern;

void load_pattern_init(load_pattern *self, size_t size, size_t least);
bool load_pattern_fits(const load_pattern *self, size_t at, const uint8_t *bytes, size_t length);
void load_pattern_end(load_pattern *self);

#endif
