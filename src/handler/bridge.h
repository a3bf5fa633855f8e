/* SPDX-License-Identifier: MIT */
/* A bridge and its two sides, as bridge.c, bridge_relay.c and bridge_connect.c share them. */
#ifndef WEIR_HANDLER_BRIDGE_H
#define WEIR_HANDLER_BRIDGE_H

#include <weir/bridge.h>

#include <stdatomic.h>

/*
 * Each channel belongs to a side, which its handler owns. Only the loop of the channel uses the
 * side, except for the atomic fields.
 *
 *   weir__bridge_new  makes the sides, with a reference for each handler
 *   added             the handler owns its side
 *   joined            the side knows the other channel and passes buffered messages on
 *   on_inactive       finishes or resets the other channel
 *   removed           the second of the two handlers reports the end
 */
typedef struct weir_bridge_pair weir_bridge_pair;

typedef struct weir_early_message weir_early_message;

/* The kernel relay of a side's input. */
typedef enum weir_relay_state {
    WEIR__RELAY_OFF,     /* not started */
    WEIR__RELAY_WAITING, /* until everything that was written to the other channel is sent */
    WEIR__RELAY_RUNNING,
    WEIR__RELAY_REJECTED,
} weir_relay_state;

typedef struct weir_bridge_side {
    weir_bridge_pair *pair;
    weir_ctx *ctx;                   /* of its handler, once added */
    _Atomic(weir_channel *) channel; /* a reference; NULL until connected */
    bool is_joined;                  /* messages go to the other channel */
    _Atomic(bool) has_eof;
    _Atomic(bool) has_left; /* the handler was removed from the open channel */
    bool has_failed, has_ended;
    uint64_t bytes; /* passed on, without those of a running relay */

    weir_hold hold; /* on reads, while the other channel is not writable */
    weir_ctx_timer peer_check;

    weir_ctx_timer idle_check;
    uint64_t moved;  /* bytes of both channels, at the last idle check */
    int idle_checks; /* in a row that found no byte moved */

    /* bridge_relay.c */
    weir_relay_state relay;
    uint64_t relayed_bytes_before; /* bytes_in of the channel when the relay began */
    weir_hold relay_hold;          /* on reads, while WEIR__RELAY_WAITING */
    weir_listener on_drained, on_relayed;

    /* bridge_connect.c */
    weir_hold early_hold; /* on reads: of the front, while too many bytes wait for the back channel;
                             of the back, until the front has joined */
    weir_early_message *first_early, **last_early;
    size_t early_bytes;
} weir_bridge_side;

enum { WEIR__FRONT, WEIR__BACK };

extern const weir_handler_type weir__bridge_type;

struct weir_bridge_pair {
    _Atomic(uint32_t) refs;
    _Atomic(uint32_t) open_ends; /* handlers, the call that makes the bridge, and a client that may
                                    yet call init; the last of them reports */
    weir_bridge_side sides[2];
    weir_bridge_config config;
    _Atomic(bool) has_error;
    weir_error error; /* the first one; written by the thread that set has_error */

    /* bridge_connect.c */
    weir_promise *connecting; /* NULL if the back channel was there already */
    weir_listener on_connected;
    weir_init_fn init; /* of the back channel */
    void *init_arg;
    void (*init_release)(void *arg);
};

static inline weir_bridge_side *weir__bridge_other_side(weir_bridge_side *self)
{
    weir_bridge_side *sides = self->pair->sides;
    return self == &sides[WEIR__FRONT] ? &sides[WEIR__BACK] : &sides[WEIR__FRONT];
}

static inline weir_channel *weir__bridge_channel(weir_bridge_side *self)
{
    return atomic_load_explicit(&self->channel, memory_order_acquire);
}

static inline weir_channel *weir__bridge_other_channel(weir_bridge_side *self)
{
    return weir__bridge_channel(weir__bridge_other_side(self));
}

static inline void weir__bridge_set_channel(weir_bridge_side *self, weir_channel *channel)
{
    atomic_store_explicit(&self->channel, weir_channel_retain(channel), memory_order_release);
}

/* The handler was removed from the open channel, which belongs to the application again. */
static inline bool weir__bridge_has_left(weir_bridge_side *self)
{
    return atomic_load_explicit(&self->has_left, memory_order_acquire);
}

/* 0, -EINVAL or -ENOMEM. The caller owns a reference and an open end. */
int weir__bridge_new(weir_bridge_pair **made, const weir_bridge_config *config);

void weir__bridge_retain(weir_bridge_pair *self);
void weir__bridge_release(weir_bridge_pair *self);

/* Releases a reference and an open end. */
void weir__bridge_end_making(weir_bridge_pair *self);

/* The same for a call that fails with `code`, which it returns: the bridge then reports nothing. */
int weir__bridge_fail_making(weir_bridge_pair *self, int code);

/* Whether the channel is, or was, registered. */
bool weir__bridge_accepts(const weir_channel *channel);

/* Adds the handler of a side. */
int weir__bridge_add_side(weir_bridge_side *self, weir_channel *channel);

/* Keeps the first error. Thread-safe. */
void weir__bridge_set_error(weir_bridge_pair *self, int code, const char *origin,
                            const char *message);

/* Sets or clears one of the side's read holds. Thread-safe; does nothing before there is a channel.
 */
void weir__bridge_set_hold(weir_bridge_side *self, weir_hold *hold, bool is_set);

void weir__bridge_pass_message(weir_bridge_side *self, weir_msg *msg);
void weir__bridge_pass_eof(weir_bridge_side *self);

/* After a batch of messages: flushes, and stops reading if the other channel is not writable. */
void weir__bridge_end_batch(weir_bridge_side *self);

/* Looks for a reset of the peer every few seconds, while the channel is not read. */
void weir__bridge_start_peer_checks(weir_bridge_side *self);

/* bridge_relay.c */

/* Starts the kernel relay once the side has passed on enough bytes. */
void weir__bridge_relay_if_due(weir_bridge_side *self);

/* The bytes that were passed on, with those of a running relay. */
uint64_t weir__bridge_bytes(weir_bridge_side *self);

/* bridge_connect.c */

/* Buffers a message until the other channel is connected. Takes the message. */
void weir__bridge_buffer_early(weir_bridge_side *self, weir_msg *msg);

/* Releases the messages that are still buffered. */
void weir__bridge_drop_early(weir_bridge_side *self);

#endif
