/* SPDX-License-Identifier: MIT */
/* What carries a channel's bytes: the functions that a transport has, and those that it calls. */
#ifndef WEIR_CHANNEL_TRANSPORT_H
#define WEIR_CHANNEL_TRANSPORT_H

#include <weir/buf.h>
#include <weir/channel.h>

/*
 * A transport embeds the channel as the first member of its own struct. All functions run on the
 * channel's loop unless they say otherwise; before the first registration, on the thread that made
 * the channel. A promise is borrowed and may be NULL; the transport completes it.
 */
typedef struct weir_transport {
    const char *name;
    bool is_stream; /* a lost write closes the channel, because no byte may be skipped */

    /* Attach to the loop of weir_channel_loop, and detach from it; nothing is in flight then. NULL:
     * nothing to do. */
    int (*attach)(weir_channel *channel);
    void (*detach)(weir_channel *channel);

    /* Whether it is connected or bound when it is registered. NULL: no. */
    bool (*is_active)(const weir_channel *channel);

    /* NULL: not supported. On success they call weir__channel_activate. */
    void (*bind)(weir_channel *channel, const weir_address *local, weir_promise *promise);
    void (*connect)(weir_channel *channel, const weir_address *remote, const weir_address *local,
                    weir_promise *promise);
    void (*disconnect)(weir_channel *channel, weir_promise *promise);

    /* Start and stop reading; the latest call wins. */
    void (*start_reading)(weir_channel *channel);
    void (*stop_reading)(weir_channel *channel);

    /* Whether it can send a message that is not a buffer. NULL: any message. */
    bool (*takes)(const weir_channel *channel, const weir_msg *msg);

    /* Sends the flushed messages of the queue, unless it does so already, and calls
     * weir__channel_sent after each step. NULL: nothing can be written to it. */
    void (*flush)(weir_channel *channel);

    /* Everything is sent: ends the output (FIN). NULL: not supported. */
    void (*shutdown)(weir_channel *channel, weir_promise *promise);

    /* Ends what is in flight. Returns true if nothing is; otherwise weir__channel_quiesced follows.
     * May be called again at any time. Without `is_closing` the channel only leaves its loop: bytes
     * in flight must arrive, or stay in the queue. */
    bool (*quiesce)(weir_channel *channel, bool is_closing);

    /* Closes it; nothing is in flight. Any thread. */
    void (*close)(weir_channel *channel);

    /* Frees the struct of a closed channel. Any thread. */
    void (*destroy)(weir_channel *channel);

    /* 0, or WEIR_ENOTFOUND. Any thread. NULL: it has no addresses. */
    int (*local_address)(const weir_channel *channel, weir_address *address);
    int (*remote_address)(const weir_channel *channel, weir_address *address);

    /* Options that are not the channel's own: -ENOPROTOOPT for one it does not have. get_option
     * runs on any thread. NULL: it has none. */
    int (*set_option)(weir_channel *channel, weir_option option, int64_t value);
    int (*get_option)(const weir_channel *channel, weir_option option, int64_t *value);

    /* How a listener's children get an option. 0: it is set on each child. 1: it is set on the
     * listener, and children inherit it. -ENOPROTOOPT: no child has it. NULL: 0. */
    int (*child_option)(const weir_channel *channel, weir_option option);

    /* A message or an error that reached the tail: returns true if it takes it. NULL: never. */
    bool (*unhandled)(weir_channel *channel, weir_msg *msg, const weir_error *error);
} weir_transport;

/* Initialises the embedded channel with one reference, the caller's. Retains the parent. */
void weir__channel_init(weir_channel *channel, const weir_transport *transport,
                        weir_channel *parent);

/* Sets the child options of the parent on an accepted channel, and pause_when_unwritable. 0,
 * -ENOMEM, or the code of an option. On the parent's loop, before the child is registered. */
int weir__channel_inherit(weir_channel *child);

/* The channel is connected or bound now. */
void weir__channel_activate(weir_channel *channel);

/* A message was read; the channel takes it. `size` is its size. */
void weir__channel_read(weir_channel *channel, weir_msg *msg, size_t size);

/* The end of a batch of reads. */
void weir__channel_read_complete(weir_channel *channel);

/* EOF (code 0), or reading has failed. */
void weir__channel_read_ended(weir_channel *channel, int code);

/* The outbound queue has changed: something was sent, or sending has failed (a negative code). */
void weir__channel_sent(weir_channel *channel, int code);

/* A message without a promise could not be sent. */
void weir__channel_lost(weir_channel *channel, int code);

/* Nothing is in flight any more, after quiesce returned false. */
void weir__channel_quiesced(weir_channel *channel);

#endif
