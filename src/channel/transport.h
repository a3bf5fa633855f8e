/* SPDX-License-Identifier: MIT */
/* What carries a channel's bytes: the functions a transport has, and those it calls. */
#ifndef WEIR_CHANNEL_TRANSPORT_H
#define WEIR_CHANNEL_TRANSPORT_H

#include <weir/buf.h>
#include <weir/channel.h>

/*
 * A transport embeds the channel as the first member of a struct of its own. Everything happens on
 * the channel's loop, unless it says otherwise; before the first registration on the thread that
 * made the channel. A promise is borrowed and may be NULL; the transport sees to it that it is
 * completed.
 */
typedef struct weir_transport {
    const char *name;
    bool is_stream; /* bytes must not be skipped: when some are lost, the channel is closed */

    /* Comes to the loop weir_channel_loop, and leaves it; nothing is under way then. NULL: nothing
     * to do. */
    int (*attach)(weir_channel *channel);
    void (*detach)(weir_channel *channel);

    /* Whether it is connected or bound already when it is registered. NULL: no. */
    bool (*is_active)(const weir_channel *channel);

    /* NULL: it cannot do that. On success, weir__channel_activate. */
    void (*bind)(weir_channel *channel, const weir_address *local, weir_promise *promise);
    void (*connect)(weir_channel *channel, const weir_address *remote, const weir_address *local,
                    weir_promise *promise);
    void (*disconnect)(weir_channel *channel, weir_promise *promise);

    /* Whether reads should come now; the last word counts. */
    void (*start_reading)(weir_channel *channel);
    void (*stop_reading)(weir_channel *channel);

    /* Whether it can send such a message. NULL: any. */
    bool (*takes)(const weir_channel *channel, const weir_msg *msg);

    /* Something is flushed: sends from weir__channel_outbound, unless it is at it already, and
     * calls weir__channel_sent after each step. */
    void (*flush)(weir_channel *channel);

    /* Everything is sent: tells the other side that no more comes. NULL: it cannot do that. */
    void (*shutdown)(weir_channel *channel, weir_promise *promise);

    /* Ends what is under way: true when nothing is, else weir__channel_quiesced is called when that
     * has happened. May be called again, before and after that. Without `is_closing` the channel
     * only moves: bytes on their way must get there, or stay in the queue. */
    bool (*quiesce)(weir_channel *channel, bool is_closing);

    /* Closes it; nothing is under way. Any thread. */
    void (*close)(weir_channel *channel);

    /* Frees the struct; it is closed. Any thread. */
    void (*destroy)(weir_channel *channel);

    /* 0, or WEIR_ENOTFOUND. Any thread. NULL: it has none. */
    int (*local_address)(const weir_channel *channel, weir_address *address);
    int (*remote_address)(const weir_channel *channel, weir_address *address);

    /* Options that are not the channel's own: -ENOPROTOOPT when it does not have that one. NULL: it
     * has none. Getting is for any thread. Those of a listener's children are set on each child
     * (0), or on the listener alone, from whom they have it by themselves (1); -ENOPROTOOPT when no
     * child has that one. NULL: 0. */
    int (*set_option)(weir_channel *channel, weir_option option, int64_t value);
    int (*get_option)(const weir_channel *channel, weir_option option, int64_t *value);
    int (*child_option)(const weir_channel *channel, weir_option option);

    /* Messages, events and errors that reached the tail: true when it has taken them over. NULL:
     * never. */
    bool (*unhandled)(weir_channel *channel, weir_msg *msg, const weir_error *error);
} weir_transport;

/* Prepares the embedded channel; the caller has the one reference. The parent is retained. */
void weir__channel_init(weir_channel *channel, const weir_transport *transport,
                        weir_channel *parent);

/* A child that was accepted gets the options its parent has for it, and pauses when it is not
 * writable: 0, -ENOMEM, or what setting an option says. On the parent's loop, before the child is
 * registered. */
int weir__channel_inherit(weir_channel *child);

/* It is connected or bound now. */
void weir__channel_activate(weir_channel *channel);

/* Something was read: the message goes with the call, as does a buffer of which the length is
 * known; the batch is over; and there will be no more (code 0), or that was an error. */
void weir__channel_read(weir_channel *channel, weir_msg *msg);
void weir__channel_read_bytes(weir_channel *channel, weir_buf *buf, size_t length);
void weir__channel_read_complete(weir_channel *channel);
void weir__channel_read_ended(weir_channel *channel, int code);

/* The outbound queue has changed: something was sent, or sending failed (a negative code). */
void weir__channel_sent(weir_channel *channel, int code);

/* A message without a promise could not be sent; for datagrams, which fail one by one. */
void weir__channel_lost(weir_channel *channel, int code);

/* Nothing is in flight any more, after quiesce. */
void weir__channel_quiesced(weir_channel *channel);

#endif
