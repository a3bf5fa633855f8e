/* SPDX-License-Identifier: MIT */
/* What few channels need: made on first use. */
#ifndef WEIR_CHANNEL_EXTRAS_H
#define WEIR_CHANNEL_EXTRAS_H

#include "channel/channel.h"

/* Those that the channel itself has come first; the others are the transport's. */
enum {
    WEIR__CHANNEL_OPTIONS_END = WEIR_OPTION_CONNECT_TIMEOUT_NS + 1,
};

typedef struct weir_attr weir_attr;
struct weir_attr {
    weir_attr *next;
    const weir_attr_key *key;
    void *value;
};

/* Which executor of a group serves a channel's handlers. */
typedef struct weir_pin weir_pin;
struct weir_pin {
    weir_pin *next;
    weir_group *group;
    weir_executor *executor;
};

typedef struct weir_channel_extras {
    weir_attr *attrs;     /* under the channel's lock */
    weir_address *client; /* likewise: whom the other side speaks for; NULL: for itself */

    /* The loop's. */
    weir_list timers; /* of handlers */
    weir_pin *pins;
    weir_hold offload_hold; /* on reads: too many events are in flight to offloaded handlers */
    _Atomic(int64_t) options[WEIR__CHANNEL_OPTIONS_END]; /* those without a place of their own */
    weir_option_value *child_options;                    /* for the channel's children */
    size_t child_option_count;
    weir_init_fn init_child; /* called on the loop of a child that waits for it */
    void *init_child_arg;
    _Atomic(uint64_t) children; /* whose closed future is not complete; any thread's */

    weir_channel *channel; /* whose these are */

    /* Finishing. */
    weir_ctx_timer linger; /* of the head's */
    weir_listener on_shutdown;
    weir_promise *finish_promise;
    uint64_t sent_before; /* when progress was looked at last */
    bool is_finishing, is_lingering;
    bool is_leave_pending; /* a move's own deregistration has not come through the pipeline */

    weir_listener on_leave; /* of the deregistration of a move */
} weir_channel_extras;

/* NULL when there are none yet. */
static inline weir_channel_extras *weir__channel_extras(const weir_channel *channel)
{
    return atomic_load_explicit(&channel->shared.extras, memory_order_acquire);
}

/* Children of the channel whose closed future is not complete. A parent counts those that are made
 * once it has extras. Any thread. */
static inline uint64_t weir__channel_children(const weir_channel *channel)
{
    const weir_channel_extras *extras = weir__channel_extras(channel);
    return extras != NULL ? atomic_load_explicit(&extras->children, memory_order_acquire) : 0;
}

/* Makes them when there are none: NULL without memory. Any thread. */
weir_channel_extras *weir__channel_need_extras(weir_channel *channel);

/* With the channel. */
void weir__channel_free_extras(weir_channel *channel);

/* Whom the other side speaks for: false when that is itself. Any thread. */
bool weir__channel_client(const weir_channel *channel, weir_address *address);

int64_t weir__channel_option(const weir_channel *channel, weir_option option);

/* Whether it was asked to close in good order; and the first half of that is done. */
bool weir__channel_is_finishing(const weir_channel *channel);

/* Closes the channel of a handler that cannot read on, after its on_error; not if a handler has
 * answered with weir_channel_finish, and this one is still there to drop what follows. */
void weir__ctx_close_unless_finishing(weir_ctx *ctx);
void weir__finish_output_shut(weir_channel *channel);

/* The other side has ended its stream, and nobody wants half of one: closes, as soon as the answers
 * that are on their way have been sent. */
void weir__finish_input_ended(weir_channel *channel);

/* The channel closes: nothing of finishing goes on. */
void weir__finish_closed(weir_channel *channel);

#endif
