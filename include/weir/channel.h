/* SPDX-License-Identifier: MIT */
/* Channels: a connection, a listener, a datagram socket or a pipe in memory. */
#ifndef WEIR_CHANNEL_H
#define WEIR_CHANNEL_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/duration.h>
#include <weir/error.h>
#include <weir/future.h>
#include <weir/loop.h>
#include <weir/msg.h>
#include <weir/pipeline.h>

WEIR_BEGIN_DECLS

/*
 * A channel belongs to one loop at a time, on whose thread all its events are handled. Any thread
 * may call the functions below: what they ask for happens at once on the loop, and from elsewhere
 * goes there, in the order of the calls.
 *
 * Channels are counted. Whatever hands one out hands out a reference; inside callbacks it is
 * borrowed. The loop holds one, too, until the channel is closed: giving up a reference does not
 * close a registered channel. Calls on a channel that is closed fail with WEIR_ECLOSED.
 */
typedef struct weir_channel weir_channel;

/** Takes a reference and returns the channel. Thread-safe. */
WEIR_API weir_channel *weir_channel_retain(weir_channel *channel);

/** Gives a reference back; NULL is fine. One that is on no loop is closed with the last. */
WEIR_API void weir_channel_release(weir_channel *channel);

/** The same, as the function that frees the value of a promise (weir_promise_succeed). */
WEIR_API void weir_channel_release_value(void *channel);

/* Looking ------------------------------------------------------------------------------------ */

/** Where a channel is in its life. */
typedef enum weir_channel_state {
    WEIR_CHANNEL_OPEN,         /* made, or taken off its loop: on none */
    WEIR_CHANNEL_REGISTERED,   /* on a loop, but neither connected nor bound */
    WEIR_CHANNEL_ACTIVE,       /* connected, or bound */
    WEIR_CHANNEL_CLOSING,      /* waits for what is under way */
    WEIR_CHANNEL_CLOSED,       /* closed, still to be told */
    WEIR_CHANNEL_UNREGISTERED, /* over: its handlers are gone, too */
} weir_channel_state;

/** The present state. Thread-safe. */
WEIR_API weir_channel_state weir_channel_get_state(const weir_channel *channel);

/** "open", "registered" and so on. */
WEIR_API const char *weir_channel_state_name(weir_channel_state state);

/** ACTIVE; and not CLOSING or later. */
WEIR_API bool weir_channel_is_active(const weir_channel *channel);
WEIR_API bool weir_channel_is_open(const weir_channel *channel);

/** Whether a read has found the end of the other side's stream, or has failed: true from before the
 * event or the error that tells it, and from then on. By nothing else: not when sending has failed
 * or this side has closed the channel, and not by what the other side says inside of its stream, as
 * close_notify of TLS: for that a handler asks weir_ctx_is_input_closed. Any thread. */
WEIR_API bool weir_channel_is_input_closed(const weir_channel *channel);

/** True once the channel takes no more writes: after a shutdown, finish or close, or a failed send.
 * Thread-safe. */
WEIR_API bool weir_channel_is_output_closed(const weir_channel *channel);

/** A number that no other channel of this process has or had. Logs print it as %08llx. */
WEIR_API uint64_t weir_channel_id(const weir_channel *channel);

/** The listener that accepted it, or what else it is a part of; NULL. Borrowed. */
WEIR_API weir_channel *weir_channel_parent(const weir_channel *channel);

/** Borrowed; it lives as long as the channel. */
WEIR_API weir_pipeline *weir_channel_pipeline(weir_channel *channel);

/** The loop it is on, or was on last; NULL before it is registered, and when it is over. Borrowed
 * from its group. */
WEIR_API weir_loop *weir_channel_loop(const weir_channel *channel);

/** What carries it: "tcp", "embedded". */
WEIR_API const char *weir_channel_kind(const weir_channel *channel);

/** Its own address and the other side's: 0, WEIR_ENOTFOUND while there is none. When somebody in
 * between has told whom it speaks for (<weir/proxy_protocol.h>), the other side is that one. */
WEIR_API int weir_channel_local_address(const weir_channel *channel, weir_address *address);
WEIR_API int weir_channel_remote_address(const weir_channel *channel, weir_address *address);

/** Who is connected in truth, whatever weir_channel_set_remote_address has said: the same codes. */
WEIR_API int weir_channel_peer_address(const weir_channel *channel, weir_address *address);

/** What weir_channel_remote_address answers from now on, on every thread: for handlers that find
 * out who speaks through a proxy. It is copied; NULL: the peer's own again. -EINVAL, -ENOMEM. Any
 * thread. */
WEIR_API int weir_channel_set_remote_address(weir_channel *channel, const weir_address *address);

/** Returns the future that completes once the channel is closed and `removed` of every handler has
 * run, on whichever executor: no callback of a handler runs from then on, so this is the moment to
 * free their arguments. (An argument that a handler type copies or counts itself is released when
 * the channel's memory is.) Close and finish promises complete at the same moment, and all that
 * waits for channels (drains, pools, channel groups) waits for it. Only the shutdown timeout of a
 * group does not: see weir_group_shutdown. Borrowed. NULL without memory, only the first time.
 * Thread-safe. */
WEIR_API weir_future *weir_channel_closed(weir_channel *channel);

/** A promise whose listeners run on the loop that the channel is on. If that loop terminates first,
 * they are dropped (see weir_listener). On a channel that is on no loop yet, or is closed and has
 * left its loop, they run on the thread that completes the promise. NULL: no memory. */
WEIR_API weir_promise *weir_channel_promise(weir_channel *channel);

/** Counters of a channel. */
typedef struct weir_channel_stats {
    uint64_t bytes_in, messages_in;   /* received */
    uint64_t bytes_out, messages_out; /* sent */
    uint64_t discarded;               /* messages that reached the tail of the pipeline */
    size_t pending_bytes;             /* written, and not yet sent */
} weir_channel_stats;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_channel_get_stats(const weir_channel *channel, weir_channel_stats *stats);

/** One line about a channel, for logs and debuggers: returns the length like snprintf. On its loop,
 * or when nothing runs. */
WEIR_API size_t weir_channel_dump(const weir_channel *channel, char *to, size_t size);

/* Doing: through the pipeline, from its tail ------------------------------------------------- */

/*
 * A promise may be NULL. When there is no memory to carry a call from another thread to the loop,
 * its promise fails with -ENOMEM; without a promise the channel is closed, unless it was a read or
 * a flush, which the next one makes up for.
 *
 * The promise of a write: if it succeeds, the kernel (or whatever carries the channel) has accepted
 * every byte; the peer may not have read them. If the write was cancelled, no byte was sent. After
 * any other failure it is not known that all bytes were sent: none, some or all may arrive.
 * Handlers that join writes (TLS: records, compression: blocks) complete the promises of a flush
 * together, so a close in the middle of it fails writes whose bytes have left. Ask the peer before
 * a write is repeated on another connection.
 */

/** Puts it on a loop. WEIR_EREGISTERED when it is on one, WEIR_ELOOPTYPE when that executor is no
 * event loop. When the loop takes no tasks any more, the channel is closed. Not through the
 * pipeline. */
WEIR_API void weir_channel_register(weir_channel *channel, weir_executor *loop,
                                    weir_promise *promise);

/** Puts it on a loop of a group: the next one, or with WEIR_IO_BLOCKING one of its own, which is
 * free for another when the channel has left. WEIR_EREGISTERED when it is on a loop. When the group
 * has none for it the channel is closed: WEIR_ELIMIT when there are max_channels already,
 * WEIR_ESHUTDOWN when it is shutting down, or what kept it from making one. WEIR_ELOOPTYPE for a
 * group of plain executors. Not through the pipeline. Any thread. */
WEIR_API void weir_group_register(weir_group *group, weir_channel *channel, weir_promise *promise);

/** Takes it off its loop, once nothing is under way; what is written meanwhile waits. Then it can
 * be registered with any loop: nothing is lost, and the order stays. Before the first registration
 * this waits for it. */
WEIR_API void weir_channel_deregister(weir_channel *channel, weir_promise *promise);

/** Both together: takes it to another loop. */
WEIR_API void weir_channel_move(weir_channel *channel, weir_executor *loop, weir_promise *promise);

/** Bind to `local`; connect to `remote` (`local` may be NULL); end the association of a datagram
 * channel. Thread-safe. */
WEIR_API void weir_channel_bind(weir_channel *channel, const weir_address *local,
                                weir_promise *promise);
WEIR_API void weir_channel_connect(weir_channel *channel, const weir_address *remote,
                                   const weir_address *local, weir_promise *promise);
WEIR_API void weir_channel_disconnect(weir_channel *channel, weir_promise *promise);

/** Asks for one batch of reads; with auto_read, which is the default, weir asks itself. */
WEIR_API void weir_channel_read(weir_channel *channel);

/** Queues a message, which it takes; it is sent with the next flush. NULL is a message whose
 * allocation failed, and fails the write with -ENOMEM. WEIR_ELIMIT when more than
 * max_outbound_bytes would be queued, or wait in the loop's inbox already. A write that fails
 * without a promise raises on_error and closes a stream. See above for the meaning of a failure. */
WEIR_API void weir_channel_write(weir_channel *channel, weir_msg *msg, weir_promise *promise);
WEIR_API void weir_channel_flush(weir_channel *channel);
WEIR_API void weir_channel_write_and_flush(weir_channel *channel, weir_msg *msg,
                                           weir_promise *promise);

/** Sends what was written, then tells the other side that no more comes (FIN). Further writes fail
 * with -EPIPE; reading goes on. -EALREADY while another shutdown waits for its turn. */
WEIR_API void weir_channel_shutdown(weir_channel *channel, weir_promise *promise);

/** Closes now: what was flushed gets one attempt, what is left fails with WEIR_ECLOSED. The promise
 * succeeds with weir_channel_closed, at once if that is complete. */
WEIR_API void weir_channel_close(weir_channel *channel, weir_promise *promise);

/** Closes in good order: sends what was written, however long the other side takes to read it;
 * shutdown; then waits until the other side has ended, too, at most for linger_ns; then close,
 * which also cuts it short at any time. What it reads meanwhile goes through the pipeline. The
 * promise succeeds with weir_channel_closed; -EALREADY for a second one. */
WEIR_API void weir_channel_finish(weir_channel *channel, weir_promise *promise);

/** Asks the handlers to end the channel soon: fires weir_event_draining, once. Handlers that do not
 * know the event ignore it, so the channel stays open until it is closed. Cannot fail. Thread-safe.
 */
WEIR_API void weir_channel_drain(weir_channel *channel);

/** Whether weir_channel_drain was called. Thread-safe. */
WEIR_API bool weir_channel_is_draining(const weir_channel *channel);

/** Closes at once, without sending what is queued and without asking a handler: a TCP peer receives
 * a reset and knows that the stream is incomplete; the peer of any other channel sees EOF. Also
 * ends a close that waits (close_linger_ns). Pending writes fail with WEIR_ECLOSED. Cannot fail.
 * Thread-safe. */
WEIR_API void weir_channel_reset(weir_channel *channel);

/* Writability -------------------------------------------------------------------------------- */

/** Whether no more is queued than the high water mark, or, once it was more, than the low one; and
 * no hold on writes is set. On other threads writes that the loop has not taken yet
 * count, too. A false is always followed by on_writability, unless the channel closes. Thread-safe.
 */
WEIR_API bool weir_channel_is_writable(const weir_channel *channel);

/** How many bytes can be written until it is not writable, and have to be sent until the water
 * marks allow it again; 0 when that is so already. */
WEIR_API size_t weir_channel_bytes_before_unwritable(const weir_channel *channel);
WEIR_API size_t weir_channel_bytes_before_writable(const weir_channel *channel);

/** Both water marks at once, which otherwise are the options write_low_bytes and write_high_bytes.
 * -EINVAL when they are the wrong way round or out of range, WEIR_ECLOSED, -ENOMEM. */
WEIR_API int weir_channel_set_water_marks(weir_channel *channel, size_t low_bytes,
                                          size_t high_bytes);

/**
 * Keeps a channel from reading, or from being writable, while it is set: for a handler that has to
 * wait for something. Embed it in the handler's state, zeroed; it is for one direction of one
 * channel at a time. Release it in `removed`.
 */
typedef struct weir_hold {
    /* Yours, for writes: it ends by something that is read, as a handshake does, so
     * pause_when_unwritable does not count it. */
    bool needs_reads;
    WEIR_ATOMIC(bool) is_set; /* weir's */
} weir_hold;

/** Sets or releases a hold on reads: while any is set, nothing is read, even if asked for;
 * auto_read stays as it is. Setting twice is setting once. -EINVAL for NULL. Thread-safe once the
 * channel is registered; from another thread than the loop's, reads in progress may still arrive.
 */
WEIR_API int weir_channel_set_read_hold(weir_channel *channel, weir_hold *hold, bool is_set);

/** Sets or releases a hold on writes: while any is set, the channel is not writable. Writes are
 * accepted all the same. Otherwise the same. */
WEIR_API int weir_channel_set_write_hold(weir_channel *channel, weir_hold *hold, bool is_set);

/* Options ------------------------------------------------------------------------------------ */

/*
 * allow_half_closure: when the other side ends its stream, handlers get weir_event_input_closed,
 * and may go on writing. Without it the channel is closed then, as soon as what was flushed is
 * sent, or the other side has taken nothing of it for linger_ns.
 */

/*
 * close_linger_ns: a close waits until the peer has acknowledged everything, at most so long; 0
 * resets the connection instead. The end of the stream goes at once, and the channel is CLOSING
 * until the waiting is over. The kernel (SO_LINGER) would wait inside close(2); here no thread
 * does: the channel's loop looks now and then, up to 50 ms late. One that is on no loop is closed
 * at once, as are all when their loop ends or has no memory for a timer: nobody waits then, and the
 * kernel goes on by itself. On datagrams and Unix sockets it has no effect.
 */

/* Options of every channel: name, kind, min, max, default. A connect_timeout_ns of 0 or WEIR_OFF is
 * no limit. */
#define WEIR_CHANNEL_OPTIONS(X)                                                                    \
    X(AUTO_READ, auto_read, BOOL, 0, 1, 1)                                                         \
    X(ALLOW_HALF_CLOSURE, allow_half_closure, BOOL, 0, 1, 0)                                       \
    X(PAUSE_WHEN_UNWRITABLE, pause_when_unwritable, BOOL, 0, 1, 0)                                 \
    X(WRITE_LOW_BYTES, write_low_bytes, BYTES, 0, INT32_MAX, 32768)                                \
    X(WRITE_HIGH_BYTES, write_high_bytes, BYTES, 1, INT32_MAX, 65536)                              \
    X(MAX_OUTBOUND_BYTES, max_outbound_bytes, BYTES, 1, INT64_MAX, 16777216)                       \
    X(MAX_EVENTS_AWAY, max_events_away, COUNT, 1, 1000000, 256)                                    \
    X(LINGER_NS, linger_ns, NS, 0, WEIR_SECONDS(86400), WEIR_SECONDS(5))                           \
    X(CONNECT_TIMEOUT_NS, connect_timeout_ns, NS, WEIR_OFF, WEIR_SECONDS(86400), WEIR_SECONDS(30))

/* What sockets have, each kind its own: where one does not, -ENOPROTOOPT. They are the kernel's,
 * who may round what it is given, doubles buffer sizes, and has defaults of its own: -1 here. */
#define WEIR_SOCKET_OPTIONS(X)                                                                     \
    /* All of them. */                                                                             \
    X(RECEIVE_BUFFER_BYTES, receive_buffer_bytes, BYTES, 1, INT32_MAX / 2, -1)                     \
    X(SEND_BUFFER_BYTES, send_buffer_bytes, BYTES, 1, INT32_MAX / 2, -1)                           \
    X(RECEIVE_LOW_BYTES, receive_low_bytes, BYTES, 1, INT32_MAX, 1)                                \
    X(REUSE_ADDRESS, reuse_address, BOOL, 0, 1, -1)                                                \
    X(REUSE_PORT, reuse_port, BOOL, 0, 1, 0)                                                       \
    X(PRIORITY, priority, COUNT, 0, INT32_MAX, 0)                                                  \
    X(MARK, mark, COUNT, 0, UINT32_MAX, 0)                                                         \
    X(BUSY_POLL_NS, busy_poll_ns, NS, 0, WEIR_US(INT32_MAX), -1)                                   \
    X(INCOMING_CPU, incoming_cpu, COUNT, 0, 65535, -1)                                             \
    X(BIND_INTERFACE, bind_interface, COUNT, 0, INT32_MAX, 0)                                      \
    /* IPv4 and IPv6. */                                                                           \
    X(TOS, tos, COUNT, 0, 255, 0)                                                                  \
    X(TTL, ttl, COUNT, 1, 255, -1)                                                                 \
    X(FREE_BIND, free_bind, BOOL, 0, 1, 0)                                                         \
    X(TRANSPARENT, transparent, BOOL, 0, 1, 0)                                                     \
    X(IPV6_ONLY, ipv6_only, BOOL, 0, 1, 0)                                                         \
    X(PATH_MTU_DISCOVERY, path_mtu_discovery, COUNT, 0, 5, -1)                                     \
    /* A client that binds to an address and port 0 gets the port with the connect: more of them   \
     * than there are ports, as long as they go to different places. */                            \
    X(BIND_ADDRESS_NO_PORT, bind_address_no_port, BOOL, 0, 1, 0)                                   \
    /* TCP. */                                                                                     \
    X(NO_DELAY, no_delay, BOOL, 0, 1, 1)                                                           \
    X(CORK, cork, BOOL, 0, 1, 0)                                                                   \
    X(QUICK_ACK, quick_ack, BOOL, 0, 1, -1)                                                        \
    X(KEEP_ALIVE, keep_alive, BOOL, 0, 1, 0)                                                       \
    X(KEEP_IDLE_NS, keep_idle_ns, NS, 1, WEIR_SECONDS(32767), -1)                                  \
    X(KEEP_INTERVAL_NS, keep_interval_ns, NS, 1, WEIR_SECONDS(32767), -1)                          \
    X(KEEP_COUNT, keep_count, COUNT, 1, 127, -1)                                                   \
    X(USER_TIMEOUT_NS, user_timeout_ns, NS, 0, WEIR_MS(INT32_MAX), 0)                              \
    X(NOT_SENT_LOW_BYTES, not_sent_low_bytes, BYTES, 0, INT32_MAX, -1)                             \
    X(MAX_SEGMENT_BYTES, max_segment_bytes, BYTES, 88, 32767, -1)                                  \
    X(WINDOW_CLAMP_BYTES, window_clamp_bytes, BYTES, 0, INT32_MAX, -1)                             \
    X(SYN_COUNT, syn_count, COUNT, 1, 127, -1)                                                     \
    X(FAST_OPEN_CONNECT, fast_open_connect, BOOL, 0, 1, 0)                                         \
    /* A close waits so long until the peer has acknowledged everything; 0: it resets. */          \
    X(CLOSE_LINGER_NS, close_linger_ns, NS, WEIR_OFF, WEIR_SECONDS(32767), WEIR_OFF)               \
    /* Listeners. */                                                                               \
    X(BACKLOG, backlog, COUNT, 1, INT32_MAX, 4096)                                                 \
    X(MAX_CONNECTIONS, max_connections, COUNT, 0, INT32_MAX, 0)                                    \
    X(DEFER_ACCEPT_NS, defer_accept_ns, NS, 0, WEIR_SECONDS(INT32_MAX), 0)                         \
    X(FAST_OPEN, fast_open, COUNT, 0, INT32_MAX, 0)                                                \
    /* Datagrams. */                                                                               \
    X(MAX_DATAGRAM_BYTES, max_datagram_bytes, BYTES, 1, 65535, 2048)                               \
    X(DELIVER_TRUNCATED, deliver_truncated, BOOL, 0, 1, 0)                                         \
    X(RECEIVE_OFFLOAD, receive_offload, BOOL, 0, 1, 0)                                             \
    X(BROADCAST, broadcast, BOOL, 0, 1, 0)                                                         \
    X(MULTICAST_TTL, multicast_ttl, COUNT, 0, 255, 1)                                              \
    X(MULTICAST_LOOP, multicast_loop, BOOL, 0, 1, 1)                                               \
    X(MULTICAST_INTERFACE, multicast_interface, COUNT, 0, INT32_MAX, 0)                            \
    /* Also what groups send that others on this machine have joined. */                           \
    X(MULTICAST_ALL, multicast_all, BOOL, 0, 1, 1)                                                 \
    X(RECEIVE_ORIGINAL, receive_original, BOOL, 0, 1, 0)                                           \
    /* Unix streams. */                                                                            \
    X(MAX_DESCRIPTORS, max_descriptors, COUNT, 0, 253, 0)

/** All options. */
#define WEIR_OPTIONS(X) WEIR_CHANNEL_OPTIONS(X) WEIR_SOCKET_OPTIONS(X)

/** The options: WEIR_OPTION_ and the name of the table above. */
typedef enum weir_option {
#define WEIR__OPTION_ENUM(id, name, kind, least, most, normal) WEIR_OPTION_##id,
    WEIR_OPTIONS(WEIR__OPTION_ENUM)
#undef WEIR__OPTION_ENUM
        WEIR_OPTIONS_END
} weir_option;

/** The unit of an option's value. */
typedef enum weir_option_kind {
    WEIR_KIND_BOOL,
    WEIR_KIND_COUNT,
    WEIR_KIND_BYTES,
    WEIR_KIND_NS,
} weir_option_kind;

/** What an option is. */
typedef struct weir_option_info {
    const char *name;
    weir_option_kind kind;
    int64_t least, most, normal;
} weir_option_info;

/** NULL for a number that is none. */
WEIR_API const weir_option_info *weir_option_get_info(weir_option option);

/** The option of that name, -EINVAL when there is none. */
WEIR_API int weir_option_from(const char *name);

/** An option with a value: how lists of them are passed, for a channel or its accepted children. */
typedef struct weir_option_value {
    weir_option option;
    int64_t value;
} weir_option_value;

/** Sets an option. -EINVAL for a value out of range, or a low water mark above the high one,
 * -ENOPROTOOPT when this kind of channel does not have it, WEIR_ECLOSED, -ENOMEM; `error` (may be
 * NULL) names the option and the value. From another thread than the loop's, only the range is
 * checked before it returns; what fails later is logged. */
WEIR_API int weir_channel_set_option(weir_channel *channel, weir_option option, int64_t value,
                                     weir_error *error);
WEIR_API int weir_channel_get_option(const weir_channel *channel, weir_option option,
                                     int64_t *value);

/** Sets several, in order, until one fails. */
WEIR_API int weir_channel_set_options(weir_channel *channel, const weir_option_value *options,
                                      size_t count, weir_error *error);

/** Sets an option for the children that a channel will have: what a listener accepts gets it before
 * its handlers are added. What Linux passes on from a listening socket to those it accepts is set
 * on the listener itself, where it counts for it, too, and can be read; a connection whose child
 * cannot be given one of the others is closed, and counted as `failed` in weir_listener_stats.
 * -EINVAL for a value out of range, -ENOPROTOOPT when no child can have it, what the kernel says,
 * WEIR_ECLOSED, -ENOMEM. Before the channel is registered, or on its loop: -EPERM elsewhere. */
WEIR_API int weir_channel_set_child_option(weir_channel *channel, weir_option option, int64_t value,
                                           weir_error *error);

/* Attributes --------------------------------------------------------------------------------- */

/** What something that is attached to a channel is: const and static, compared by address. */
typedef struct weir_attr_key {
    const char *name;
    void (*destroy)(void *value); /* the channel goes, or another value comes; NULL: nothing */
} weir_attr_key;

/** Attaches a value, which is the channel's from then on, also when this fails: NULL takes what
 * there is away. -EINVAL, -ENOMEM. Any thread. */
WEIR_API int weir_channel_set_attr(weir_channel *channel, const weir_attr_key *key, void *value);

/** NULL when there is none. Borrowed, until another one is set. Any thread. */
WEIR_API void *weir_channel_attr(const weir_channel *channel, const weir_attr_key *key);

/** An attribute with a value: how lists of them are passed. */
typedef struct weir_attr_value {
    const weir_attr_key *key;
    void *value;
} weir_attr_value;

/* Events that weir fires itself -------------------------------------------------------------- */

/** The peer has closed its output (EOF), with allow_half_closure: constant, compare by address. A
 * handler that is added later calls weir_ctx_is_input_closed. */
WEIR_API extern weir_msg weir_event_input_closed;

/** The channel shall end soon (weir_channel_drain, weir_server_drain): constant, compare by
 * address. A protocol that keeps idle connections open closes them now, and finishes the others
 * after the response in progress. A handler that is added later calls weir_channel_is_draining. */
WEIR_API extern weir_msg weir_event_draining;

WEIR_END_DECLS

#endif
