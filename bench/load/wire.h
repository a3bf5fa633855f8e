/* SPDX-License-Identifier: MIT */
/* The wire: how the bytes of connections that stay get to the server and back. By epoll; or by
 * io_uring, which costs this side less: whoever costs more than the server measures himself. */
#ifndef WEIR_LOAD_WIRE_H
#define WEIR_LOAD_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who is told. Connections are counted from 0. */
typedef struct wire_user {
    void *arg;
    /* What is to be sent next, and how much in one piece; 0: nothing. */
    size_t (*next)(void *arg, unsigned which, const uint8_t **bytes);
    void (*sent)(void *arg, unsigned which, size_t length);
    void (*received)(void *arg, unsigned which, const uint8_t *bytes, size_t length);
    void (*failed)(void *arg, const char *what);
} wire_user;

typedef struct wire wire;

typedef struct wire_type {
    const char *name;

    /* NULL: there is none here, because of `*why`. */
    wire *(*open)(const wire_user *user, const int *fds, unsigned count, const char **why);
    void (*close)(wire *self);

    /* There is something to send on that connection, if not at once, then with the next wait. */
    void (*send)(wire *self, unsigned which);

    /* Waits for something to happen, so long at most, and tells it: whether there was anything. */
    bool (*wait)(wire *self, uint64_t timeout_ns);
} wire_type;

extern const wire_type wire_epoll, wire_uring;

/* Messages up to this are received in one piece by both. */
#define WIRE_URING_BYTES (16 * 1024)

#endif
