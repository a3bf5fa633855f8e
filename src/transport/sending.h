/* SPDX-License-Identifier: MIT */
/* What a stream sends and receives that is not bytes alone: files and descriptors. */
#ifndef WEIR_TRANSPORT_SENDING_H
#define WEIR_TRANSPORT_SENDING_H

#include "transport/socket.h"

bool weir__sending_takes(const weir_socket *self, const weir_msg *msg);

/* Describes what to send of such a message, which is the first in the queue: as `gather`. */
int weir__sending_prepare(weir_socket *self, weir_msg *msg, weir_io_send *send);

/* So much of it was sent: 0, or the code with which the stream fails. */
int weir__sending_sent(weir_socket *self, int sent);

/* The socket closes. */
void weir__sending_end(weir_socket *self);

/* The message that a result brings; NULL without memory, and then everything is released. */
weir_msg *weir__received(weir_sys *sys, const weir_io_result *result);

#endif
