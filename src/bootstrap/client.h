/* SPDX-License-Identifier: MIT */
/* What the ways to open a channel share, and those that take time. */
#ifndef WEIR_BOOTSTRAP_CLIENT_H
#define WEIR_BOOTSTRAP_CLIENT_H

#include "exec/executor.h"

#include <weir/client.h>

/* A copy of the config with lists of its own; false without memory, and then it is still to be
 * freed. */
bool weir__client_copy(weir_client_config *to, const weir_client_config *from);
void weir__client_free_copy(weir_client_config *config);

/* Options, attributes and handlers of a new channel. `is_connected`: what the kernel has to know
 * its socket was told before. 0 or a negative code. */
int weir__client_set_up(const weir_client_config *config, weir_channel *channel, bool is_connected);

/* Begins to connect on a loop of the config's group, which is checked: a promise of that loop, the
 * caller's reference, that will succeed with a channel and can be cancelled. Or a negative code.
 * connector.c: every address of a name in its turn, and the first one wins. */
int weir__connector_start(const weir_client_config *config, const char *text,
                          weir_promise **promise, weir_error *error);

/* A weir_value_free_fn. */
void weir__client_release_channel(void *channel);

#endif
