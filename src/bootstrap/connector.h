/* SPDX-License-Identifier: MIT */
/* The race for a connection: every address of a name, each in its turn, and the first one wins. */
#ifndef WEIR_BOOTSTRAP_CONNECTOR_H
#define WEIR_BOOTSTRAP_CONNECTOR_H

#include "exec/executor.h"

#include <weir/client.h>

/* Begins to connect on a loop of the config's group, which is checked: a promise of that loop, the
 * caller's reference, that will succeed with a channel and can be cancelled. Or a negative code. */
int weir__connector_start(const weir_client_config *config, const char *text,
                          weir_promise **promise, weir_error *error);

#endif
