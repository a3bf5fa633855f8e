/* SPDX-License-Identifier: MIT */
/* The embedded channel and its transport. */
#ifndef WEIR_TESTING_EMBEDDED_H
#define WEIR_TESTING_EMBEDDED_H

#include "base/list.h"
#include "channel/channel.h"

#include <weir/clock.h>
#include <weir/embedded.h>
#include <weir/script.h>

/* A message or an error that came out. */
typedef struct weir_kept {
    weir_list_node node;
    weir_msg *msg;
    weir_error error;
} weir_kept;

typedef struct embedded_channel {
    weir_channel base;
    weir_embedded *owner; /* NULL once that is gone */
} embedded_channel;

struct weir_embedded {
    weir_channel *channel;
    weir_group *group;
    weir_executor *executor;
    bool owns_group;
    weir_script *script;
    weir_virtual_clock clock;
    uint64_t first_serial; /* of the messages that were made since it was, for the leak detector */

    /* The loop's; looked at when that stands still. */
    weir_list inbound, outbound, errors;
    size_t inbound_count, outbound_count, error_count;
    size_t accepted; /* how many more messages the other side takes */
    int send_code;
    weir_init_fn init;
    void *init_arg;
    int init_code;
    bool is_connected, is_reading, is_output_shut;
};

extern const weir_transport weir__embedded_transport;

/* The oldest of a list, NULL when there is none: to be freed; and its message alone. */
weir_kept *weir__kept_take(weir_list *list, size_t *count);
weir_msg *weir__kept_take_msg(weir_list *list, size_t *count);

#endif
