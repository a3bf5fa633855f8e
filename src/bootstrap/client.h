/* SPDX-License-Identifier: MIT */
/* What the ways to open a channel share, and those that take time. */
#ifndef WEIR_BOOTSTRAP_CLIENT_H
#define WEIR_BOOTSTRAP_CLIENT_H

#include "exec/executor.h"

#include <weir/client.h>

/* What is wrong with a config, but for the text of the address: 0 or -EINVAL. */
int weir__client_check(const weir_client_config *config, const char *address, weir_error *error);

/* A copy of the config with lists of its own; false without memory, and then it is still to be
 * freed. */
bool weir__client_copy(weir_client_config *to, const weir_client_config *from);
void weir__client_free_copy(weir_client_config *config);

/* A config that outlives the call, with lists of its own, and an init whose failure is remembered:
 * otherwise that would just close the channel. Stays where it is. */
typedef struct weir_client_plan {
    weir_client_config config; /* its init calls the one below */
    weir_init_fn init;
    void *init_arg;
    void (*init_release)(void *arg); /* of `init_arg`; NULL: not ours to release */
    int init_code;
} weir_client_plan;

/* As weir__client_copy. */
bool weir__client_plan(weir_client_plan *plan, const weir_client_config *config);

/* Frees the copy. Releases the argument of `init`, unless `init_release` was cleared because the
 * call that made the plan has failed. */
void weir__client_end_plan(weir_client_plan *plan);

/* Options, attributes and handlers of a new channel. `is_connected`: what the kernel has to know
 * its socket was told before. 0 or a negative code. */
int weir__client_set_up(const weir_client_config *config, weir_channel *channel, bool is_connected);

/* A weir_value_free_fn. */
void weir__client_release_channel(void *channel);

#endif
