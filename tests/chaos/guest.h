/* SPDX-License-Identifier: MIT */
/* Guests: handlers that pass everything on, added and removed at any time on any thread. */
#ifndef CHAOS_GUEST_H
#define CHAOS_GUEST_H

#include "end.h"

/* Adds, removes or replaces a guest of a channel, at random. Any thread that may call functions of
 * the channel. */
void guest_change(end *host, weir_channel *channel, dice *d);

/* weir_channel_closed is complete: no callback may follow, arguments are poisoned. */
void guest_channel_closed(end *host);

/* When all threads have ended. */
void guest_check_all(const end *host);
void guest_free_all(end *host);

#endif
