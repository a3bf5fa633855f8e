/* SPDX-License-Identifier: MIT */
/* The channel itself, for the files of this layer and the transports. */
#ifndef WEIR_CHANNEL_CHANNEL_H
#define WEIR_CHANNEL_CHANNEL_H

#include "base/list.h"
#include "base/mpsc.h"
#include "channel/lifecycle.h"
#include "channel/outbound.h"
#include "channel/pipeline.h"
#include "channel/transport.h"
#include "exec/future.h"
#include "exec/notice.h"
#include "loop/loop.h"

#include <weir/channel.h>

/* The reasons why a channel is unwritable, in one number: the water marks, and the count of holds,
 * those that need reads apart. */
enum {
    WEIR__ABOVE_MARK = 1,
    WEIR__HOLD = 2,
    WEIR__HOLD_NEEDING_READS = 1 << 16,
    WEIR__PAUSES_READING = WEIR__HOLD_NEEDING_READS - 1,
};

/* The loop's, but for what is atomic: other threads read that, or write it where it says so. */
struct weir_channel {
    const weir_transport *transport; /* set once, as the parent and the id */
    weir_pipeline pipeline;

    /* Reading. */
    struct {
        bool is_wanted;     /* a read was requested, and its batch has not begun */
        bool is_reading;    /* start_reading was called last, not stop_reading */
        bool is_in_batch;   /* between the first read and its end */
        bool is_batch_open; /* the same, also after reading was stopped */
        bool has_stopped;   /* reading, since a guard has looked */
        _Atomic(bool) is_auto_read, allows_half_closure;
        _Atomic(bool) is_ended;    /* EOF, or a read error */
        weir_hold unwritable_hold; /* the option pause_when_unwritable */
        _Atomic(uint16_t) holds;   /* that are set; other threads write it, too */
        _Atomic(uint64_t) bytes, messages, discarded;
    } in;

    /* Writing. */
    struct {
        weir_outbound queue;
        _Atomic(uint32_t) unwritable; /* see WEIR__ABOVE_MARK; other threads write it, too */
        _Atomic(uint32_t) low_bytes, high_bytes;
        weir_notice writability; /* fires on_writability */
        bool is_writability_queued, is_told_unwritable;
        bool is_lent;           /* a relay sends: shutting down waits for its end */
        bool is_shut;           /* the transport's shutdown was called */
        bool is_telling_loss;   /* of a write, right now */
        _Atomic(bool) is_ended; /* no more writes */
        _Atomic(bool) pauses_when_unwritable;
        _Atomic(int64_t) sent_at; /* when some of it was sent last */
        weir_promise *shutdown_promise;
    } out;

    /* Its life: see lifecycle.h. */
    struct {
        _Atomic(uint8_t) state;
        _Atomic(bool) is_active; /* connected or bound, on this loop */
        bool is_registered_told; /* on_registered was fired, and no on_unregistered since */
        bool is_active_told;     /* on_active, and no on_inactive */
        bool is_advancing;       /* the notice is queued */
        bool is_closed_told;     /* its closed future and close promises are complete */
        bool is_counted;         /* among the children of its parent */
        bool is_held;            /* the loop has a reference */
        bool has_target;
        bool has_place;             /* a group keeps the target for it until it gets there */
        bool is_resting;            /* its handlers were removed in a turn before this one */
        bool needs_init;            /* its parent's init_child is called when it gets to a loop */
        _Atomic(bool) is_abandoned; /* its loop has not waited for offloaded handlers */
        int16_t init_failure;       /* of the first add that failed, while an initializer runs */
        uint32_t offloaded_events;  /* that have not returned */
        uint32_t removed_contexts;  /* that the loop will free */
        weir_resident member;       /* of the loop */
        weir_promise *detach_promise;
        weir_promise_list close_promises;
        union {
            weir_notice notice; /* advances it */
            weir_call call;     /* the same, once it closes without a loop */
        };
        union {
            struct {               /* if has_target */
                weir_loop *target; /* it shall go there; retained */
                weir_promise *target_promise;
            };
            weir_deferred deferred; /* the last step of closing, which is later */
        };
    } life;

    /* Calls from other threads: see inbox.c. */
    struct {
        _Atomic(weir_mpsc_node *) head;
        _Atomic(size_t) bytes; /* of writes among them */
        weir_task task;        /* takes the inbox to the loop */
        weir_mpsc_node *calls; /* the loop's: taken from the inbox, not yet performed */
        _Atomic(bool)
            has_kept; /* calls of the loop thread, or of the owner before there is a loop, wait */
        _Atomic(bool) is_posted;  /* the task is */
        _Atomic(bool) is_full;    /* others have posted writes above the high mark */
        _Atomic(uint16_t) missed; /* calls that failed for lack of memory */
        uint16_t due;             /* loop thread only: bits of `missed` to act on after `calls` */
        _Atomic(bool) is_losing;  /* calls. It was logged, and has not been better since */
        _Atomic(int16_t) lost;    /* why a write was, the last of them */
        _Atomic(uint32_t) pending_adds; /* of handlers: see pipeline_edit.c */
    } inbox;

    /* Any thread's. */
    struct {
        _Atomic(uint32_t) refs;
        _Atomic(uint32_t) anchors; /* what keeps its memory: promises, and the references */
        _Atomic(weir_loop *) loop; /* NULL before the first, and when it is over */
        _Atomic(struct weir_channel_extras *) extras; /* what few channels need, NULL until then */
        _Atomic(weir_future *) closed;                /* NULL until it is asked for, or complete */
        weir_home home;                               /* where its promises' listeners run */
        _Atomic(bool) is_end_requested; /* a shutdown or close was; a handler may delay it */
        _Atomic(bool) is_draining;
    } shared;

    weir_channel *parent;
    uint64_t id;
};

static inline weir_loop *weir__channel_loop(const weir_channel *channel)
{
    return atomic_load_explicit(&channel->shared.loop, memory_order_acquire);
}

/* Whether this thread may touch what is the loop's. */
static inline bool weir__channel_is_mine(const weir_channel *channel)
{
    weir_loop *loop = weir__channel_loop(channel);
    return loop == NULL || weir_executor_is_current(&loop->base);
}

/* Whose a channel is, for a call from anywhere. */
typedef enum weir_owner {
    WEIR_OWNER_ME,     /* this thread's: its loop's, or, before it has one, its maker's */
    WEIR_OWNER_OTHERS, /* the call has to go through the inbox */
    WEIR_OWNER_NOBODY, /* it is over */
} weir_owner;

static inline weir_life_state weir__channel_state(const weir_channel *channel)
{
    return weir__life_state(&channel->life.state);
}

static inline weir_owner weir__channel_owner(const weir_channel *channel)
{
    /* In this order: its loop goes last, so a thread that finds none sees what state it is in. */
    weir_loop *loop = weir__channel_loop(channel);
    if (weir__channel_state(channel) == WEIR_LIFE_ENDED)
        return WEIR_OWNER_NOBODY;
    return loop == NULL || weir_executor_is_current(&loop->base) ? WEIR_OWNER_ME
                                                                 : WEIR_OWNER_OTHERS;
}

static inline bool weir__channel_is_closing(const weir_channel *channel)
{
    return weir__channel_state(channel) >= WEIR_LIFE_CLOSING;
}

/* On a loop, also while it leaves that. */
static inline bool weir__channel_is_attached(const weir_channel *channel)
{
    weir_life_state state = weir__channel_state(channel);
    return state == WEIR_LIFE_ATTACHED || state == WEIR_LIFE_DETACHING;
}

static inline bool weir__channel_is_active(const weir_channel *channel)
{
    return weir__channel_is_attached(channel) &&
           atomic_load_explicit(&channel->life.is_active, memory_order_relaxed);
}

/* Active, and not about to leave: it may read and send. */
static inline bool weir__channel_is_running(const weir_channel *channel)
{
    return weir__channel_state(channel) == WEIR_LIFE_ATTACHED &&
           atomic_load_explicit(&channel->life.is_active, memory_order_relaxed);
}

/* Active, also while it is between two loops. */
static inline bool weir__channel_was_active(const weir_channel *channel)
{
    return weir__channel_is_active(channel) ||
           (channel->life.is_active_told && !weir__channel_is_closing(channel));
}

/* Records that a shutdown or close was requested, which a handler may delay. Any thread. */
static inline void weir__channel_note_end(weir_channel *channel)
{
    atomic_store_explicit(&channel->shared.is_end_requested, true, memory_order_relaxed);
}

static inline bool weir__channel_is_end_requested(const weir_channel *channel)
{
    return atomic_load_explicit(&channel->shared.is_end_requested, memory_order_relaxed);
}

static inline weir_channel *weir__channel_at(weir_home *home)
{
    return WEIR_CONTAINER(home, weir_channel, shared.home);
}

/* Whether it is about to leave its loop for another. On the loop. */
static inline bool weir__channel_is_moving(const weir_channel *channel)
{
    return channel->life.has_target && weir__channel_state(channel) != WEIR_LIFE_ATTACHING;
}

/* Completes and releases a promise in a field, if there is one, and clears the field. */
static inline void weir__channel_end_promise(weir_promise **promise, int code)
{
    weir_promise *ended = *promise;
    *promise = NULL;
    weir__promise_end(ended, code);
    weir_promise_release(ended);
}

/* channel.c ------------------------------------------------------------------------------------ */

/* The loop it is on, retained; NULL: none. Any thread. */
weir_loop *weir__channel_retain_loop(weir_channel *channel);

/* Posts a task to the loop it is on; WEIR_ECLOSED if there is none. Any thread. */
int weir__channel_post(weir_channel *channel, weir_task *task);

/* Sets the loop that the channel belongs to, and whose memory it keeps; NULL: none. */
void weir__channel_set_loop(weir_channel *channel, weir_loop *loop);

/* A message was lost: closes a stream, at once, or before any call that is pushed after this one.
 * Needs no memory. Any thread. */
void weir__channel_lose(weir_channel *channel, int code);

/* Runs a notice after everything that was completed before. The notice holds a reference. */
void weir__channel_queue_notice(weir_channel *channel, weir_notice *notice);

/* Completes the closed future. */
void weir__channel_complete_closed(weir_channel *channel);

/* The lock of what other threads look at: names, attributes. Several channels share one. */
void weir__channel_lock(const weir_channel *channel);
void weir__channel_unlock(const weir_channel *channel);

/* attach.c: how it gets to a loop and leaves it. On the loop ------------------------------------
 */

void weir__channel_deregister_now(weir_channel *channel, weir_promise *promise);

/* On the loop that it attaches to: attaches it. */
void weir__channel_arrive(weir_channel *channel);

/* On the loop that it leaves: the other loop has rejected it. Closes it. */
void weir__channel_reject(weir_channel *channel, int code);

/* It goes to no other loop: the promise of that fails with the code. */
void weir__channel_forget_target(weir_channel *channel, int code);

/* Take a step of its life: true if another may follow. close.c has weir__close_advance. */
bool weir__attach_advance(weir_channel *channel);
bool weir__detach_advance(weir_channel *channel);

/* close.c: how it closes. On the loop -----------------------------------------------------------
 */

bool weir__close_advance(weir_channel *channel);
void weir__channel_close_now(weir_channel *channel, weir_promise *promise);
void weir__channel_reset_now(weir_channel *channel);

/* Nothing is in flight: closes the transport. */
void weir__channel_close_transport(weir_channel *channel);

/* Takes the steps of its life that wait for no event: after the callback in progress, and after the
 * listeners of promises that are complete by now. By its owner. */
void weir__channel_advance(weir_channel *channel);

/* The same after something that a step may have waited for. */
static inline void weir__channel_recheck(weir_channel *channel)
{
    if (weir__channel_state(channel) != WEIR_LIFE_ATTACHED)
        weir__channel_advance(channel);
}

/* Fires an event as a visit of its own, for the watchdog: the loop may be in the task of another
 * channel. */
void weir__channel_fire(weir_channel *channel, weir_event_kind kind);

/* The channel as a member of its loop. */
extern const weir_resident_type weir__channel_member_type;

/* Calls `visit`, which may close it, for each channel on a loop. */
void weir__loop_each_channel(weir_loop *loop, void (*visit)(weir_channel *channel, void *arg),
                             void *arg);

/* flow.c: reading, writing, writability. On the loop unless they say otherwise -------------------
 */

void weir__channel_read_now(weir_channel *channel);
void weir__channel_fire_read_complete(weir_channel *channel);
void weir__channel_set_auto_read(weir_channel *channel, bool is_auto_read);

/* Starts or stops reading, after something changed that decides it. */
void weir__channel_update_reading(weir_channel *channel);

void weir__channel_write_now(weir_channel *channel, weir_msg *msg, weir_promise *promise);
void weir__channel_flush_now(weir_channel *channel);
void weir__channel_shutdown_now(weir_channel *channel, weir_promise *promise);

/* It is active: sends what waited for that, and ends the output if that was requested. */
void weir__channel_resume_output(weir_channel *channel);

/* Updates whether it is writable, after the water marks, the queue or the holds changed. `_again`:
 * also fires on_writability for a thread that may have seen it unwritable meanwhile. */
void weir__channel_update_writability(weir_channel *channel);
void weir__channel_update_writability_again(weir_channel *channel);

/* A notice: fires on_writability. */
void weir__channel_fire_writability(weir_notice *notice);

/* The inbox is empty: notifies a thread that found the channel unwritable because of it. */
void weir__channel_inbox_emptied(weir_channel *channel);

/* Bytes that are queued; on other threads also those in the inbox. Any thread. */
size_t weir__channel_pending_bytes(const weir_channel *channel);

/* Records that some output was sent just now. */
static inline void weir__channel_note_sent(weir_channel *channel)
{
    atomic_store_explicit(&channel->out.sent_at, weir__channel_loop(channel)->base.now_ns,
                          memory_order_relaxed);
}

/* Others --------------------------------------------------------------------------------------- */

/* finish.c: bytes that were sent; on the loop, including those of a message in progress. */
uint64_t weir__channel_sent_bytes(const weir_channel *channel);

/* pipeline_edit.c: calls an initializer and returns its code, or that of the first add in it that
 * failed. The second one calls that of the parent for its children, whose failure closes the
 * channel. On the loop. */
int weir__channel_init_by(weir_channel *channel, weir_init_fn init, void *arg);
void weir__channel_init_child(weir_channel *channel);

/* describe.c: finds the handler and callback that run, by the functions on the stack: events pass
 * from handler to handler without a record of it. For a channel, on its thread; and for the context
 * of an offloaded handler. See weir_describe_fn. */
void weir__channel_describe(const void *channel, const weir_stack *stack, weir_subject *subject);
void weir__ctx_describe(const void *ctx, const weir_stack *stack, weir_subject *subject);

#endif
