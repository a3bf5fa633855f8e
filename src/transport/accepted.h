/* SPDX-License-Identifier: MIT */
/* Making the messages that listeners read. */
#ifndef WEIR_TRANSPORT_ACCEPTED_H
#define WEIR_TRANSPORT_ACCEPTED_H

#include <weir/accepted.h>

/* Takes the reference to the child. NULL without memory, and then the child is the caller's. */
weir_msg *weir__accepted_new(weir_channel *child);

#endif
