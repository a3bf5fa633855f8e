/* SPDX-License-Identifier: MIT */
/* A pause in reading, when something has run out. */
#ifndef WEIR_TRANSPORT_RETRY_H
#define WEIR_TRANSPORT_RETRY_H

#include "transport/socket.h"

#include <weir/timer.h>

#define WEIR__RETRY_NS WEIR_MS(100)

typedef struct weir_retry {
    weir_timer timer;
    weir_socket *socket;
    bool is_waiting;
} weir_retry;

/* Reading, if it is still wished, begins again after WEIR__RETRY_NS; says so in the log. */
void weir__retry_later(weir_retry *self, weir_socket *socket, int code);

/* The socket leaves its loop. */
void weir__retry_cancel(weir_retry *self);

#endif
