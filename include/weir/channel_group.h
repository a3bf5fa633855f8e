/* SPDX-License-Identifier: MIT */
/* Channel groups: a set of open channels, to find them in and to write to all of them. */
#ifndef WEIR_CHANNEL_GROUP_H
#define WEIR_CHANNEL_GROUP_H

#include <weir/api.h>
#include <weir/channel.h>
#include <weir/future.h>
#include <weir/msg.h>

WEIR_BEGIN_DECLS

/*
 * A channel comes in by weir_channel_group_add and goes by itself when it is closed. Its channels
 * may be on any number of loops, and a channel in any number of groups. A chat room, as a handler
 * that every channel has, with the group as its argument:
 *
 *     static void chat_on_active(weir_ctx *ctx)
 *     {
 *         if (weir_channel_group_add(weir_ctx_arg(ctx), weir_ctx_channel(ctx)) < 0)
 *             weir_ctx_close(ctx, NULL);
 *         weir_ctx_fire_active(ctx);
 *     }
 *
 *     static void chat_on_read(weir_ctx *ctx, weir_msg *msg)
 *     {
 *         weir_broadcast to_others = { .except = weir_ctx_channel(ctx) };
 *         weir_channel_group_broadcast(weir_ctx_arg(ctx), msg, &to_others);
 *     }
 *
 *     static const weir_handler_type chat = {
 *         .name = "chat",
 *         .on_active = chat_on_active,
 *         .on_read = chat_on_read,
 *     };
 *
 * Groups are counted. A group holds a reference to each of its channels; a channel holds none to
 * its groups, so the last weir_channel_group_release frees a group, whose channels live on. All
 * functions may be called on any thread, also inside any callback.
 */
typedef struct weir_channel_group weir_channel_group;

/** An empty group with one reference, the caller's. NULL: no memory. */
WEIR_API weir_channel_group *weir_channel_group_new(void);

/** Takes a reference and returns the group. Thread-safe. */
WEIR_API weir_channel_group *weir_channel_group_retain(weir_channel_group *group);

/** Gives a reference back; NULL is fine. With the last one the group lets go of its channels, as
 * weir_channel_group_remove does. */
WEIR_API void weir_channel_group_release(weir_channel_group *group);

/* Members ------------------------------------------------------------------------------------ */

/** Puts a channel in; the group takes a reference of its own. -EEXIST when it is in already,
 * WEIR_ECLOSED when it is closed or closing. With WEIR_ECLOSED also when the group itself is
 * closed, and then the channel is closed, too. -ENOMEM, -EINVAL. */
WEIR_API int weir_channel_group_add(weir_channel_group *group, weir_channel *channel);

/** Takes a channel out, and gives the reference back, which closes a channel that is on no loop
 * when it is the last. WEIR_ENOTFOUND when it is not in, -EINVAL. */
WEIR_API int weir_channel_group_remove(weir_channel_group *group, weir_channel *channel);

/** Whether it is in. One that closes is, until the listeners of weir_channel_closed are told. */
WEIR_API bool weir_channel_group_contains(weir_channel_group *group, const weir_channel *channel);

/** How many channels are in it; 0 for NULL. */
WEIR_API size_t weir_channel_group_count(weir_channel_group *group);

/** The channel with that weir_channel_id: a reference, the caller's to release. NULL when it is not
 * in. Takes the same time however many are in it. */
WEIR_API weir_channel *weir_channel_group_find(weir_channel_group *group, uint64_t id);

/** What to do with a channel of a group, which is borrowed: false ends the walk. No lock is held,
 * and everything is allowed. */
typedef bool (*weir_channel_visit_fn)(void *arg, weir_channel *channel);

/** Visits the channels in the order they came, on the calling thread. Each that is in the group
 * from the beginning to the end is visited once; one that goes before its turn is not, nor one that
 * comes meanwhile. Returns how many were visited. Never allocates. */
WEIR_API size_t weir_channel_group_each(weir_channel_group *group, weir_channel_visit_fn visit,
                                        void *arg);

/* Writing to many ---------------------------------------------------------------------------- */

/** What became of a broadcast: one count for each channel it was written to. */
typedef struct weir_broadcast_result {
    size_t succeeded, failed;
} weir_broadcast_result;

/** How to broadcast. Zero is the default of everything; the struct is copied. */
typedef struct weir_broadcast {
    const weir_channel *except; /* not to this one; compared only */

    /* Only to those for which this says true, with `match_arg`; NULL: to all. As
     * weir_channel_visit_fn: it may do everything. */
    weir_channel_visit_fn matches;
    void *match_arg;

    /* Complete when every write is: with 0, or the code of the first that failed; -ENOMEM when
     * there is no memory to wait for them, and then nothing is written. It cannot be cancelled any
     * more; when it already was, nothing is written. NULL: none. */
    weir_promise *promise;
    weir_broadcast_result *result; /* filled before the promise is complete, and has to be there
                                      until then; needs a promise; NULL: none */
} weir_broadcast;

/**
 * Writes a message to the channels of a group, and flushes. The message goes with the call. `how`
 * may be NULL: to all. Returns how many it was written to.
 *
 * A channel that cannot take it fails alone, as weir_channel_write does: its result counts as
 * failed when there is a promise; without one it is closed rather than left with a gap. A slow
 * reader is such a channel once max_outbound_bytes wait for it, unless `matches` asks
 * weir_channel_is_writable.
 *
 * A buffer reaches each channel as a duplicate of its own: handlers on several threads may move its
 * indices and append to it, but should not change bytes in place, which are everybody's. Of another
 * message each channel gets a reference: its handlers must not change it. What one thread
 * broadcasts arrives in order everywhere; what two threads do may arrive in another order at each.
 */
WEIR_API size_t weir_channel_group_broadcast(weir_channel_group *group, weir_msg *msg,
                                             const weir_broadcast *how);

/* Closing many ------------------------------------------------------------------------------- */

/** Closes all channels that are in it. The promise (may be NULL) succeeds when weir_channel_closed
 * of all of them is complete, so that arguments of their handlers can be freed; also of those that
 * are removed meanwhile; while several such calls are under way, when the channels of all of them
 * are. One whose handlers keep it open is waited for. The group stays until then. Needs no memory.
 * -EINVAL, by the promise, without a group. */
WEIR_API void weir_channel_group_close_all(weir_channel_group *group, weir_promise *promise);

/** The same, and closes the group: a channel that is added from now on is closed at once. */
WEIR_API void weir_channel_group_close(weir_channel_group *group, weir_promise *promise);

/** Whether the group has been closed. Thread-safe. */
WEIR_API bool weir_channel_group_is_closed(weir_channel_group *group);

WEIR_END_DECLS

#endif
