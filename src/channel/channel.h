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

/* Why a channel does not read though somebody wants to. */
enum {
    WEIR__PAUSE_UNWRITABLE = 1, /* the option pause_when_unwritable */
    WEIR__PAUSE_AWAY = 2,       /* too many events are on their way to handlers elsewhere */
    WEIR__PAUSE_LEAVING = 4,    /* it is being taken off its loop */
    WEIR__PAUSE_RELAYED = 8,    /* its bytes go elsewhere, without being read */
    WEIR__PAUSE_SHAPED = 16,    /* it has read more than its traffic may be */
    WEIR__PAUSE_LAST = 16,      /* the next three are users' own */
};

/* The reason of the water marks among those against writing, and those that pause reading: all but
 * the one of writes that wait for a handshake, which ends by what is read. */
#define WEIR__UNWRITABLE 1u
#define WEIR__PAUSING (~(1u << 30))

struct weir_channel {
    /* Set once. */
    weir_channel *parent;
    uint64_t id;

    /* Any thread's. */
    _Atomic(uint32_t) refs;
    _Atomic(uint32_t) anchors; /* what keeps its memory: promises, and the references as one */
    _Atomic(weir_mpsc_node *) inbox; /* calls from elsewhere, see inbox.c */
    _Atomic(size_t) inbox_bytes;     /* of writes among them */
    weir_task inbox_task;            /* takes the inbox to the loop */
    weir_home home;                  /* where its promises' listeners run */
    _Atomic(weir_future *) closed;   /* NULL until somebody asks for it, or it is */
    _Atomic(bool) is_inbox_posted;   /* its task is on its way */
    _Atomic(uint8_t) missed;         /* calls there was no memory for */
    _Atomic(int16_t) lost;           /* why a write was, the last of them */
    _Atomic(bool) is_losing;         /* calls. It was logged, and has not been better since */

    /* The loop's. */
    bool is_held_by_loop : 1; /* the loop has a reference */
    bool has_place : 1;
    bool is_going : 1;
    bool is_closed_told : 1; /* its closed future and close promises are complete */
    bool is_counted : 1;     /* among the children of its parent */
    bool has_kept : 1;       /* calls that waited for a loop have not been performed */
    int16_t init_failure;    /* of the first add that failed, while an initializer runs */
    weir_mpsc_node *calls;   /* taken from the inbox, not yet performed */
    weir_resident resident;
    weir_promise *loop_promise; /* of coming to a loop, or leaving it */
    weir_promise *shutdown_promise;
    weir_promise_list close_promises;
    union {
        weir_notice news;
        weir_call news_call; /* the same, once it closes without a loop */
    };
    weir_notice writability;
    union {
        struct {
            weir_executor *place; /* that a group keeps for it until it gets there, if has_place */
            weir_loop *going_to;  /* which has not registered it yet, if is_going; retained */
        };
        weir_deferred deferred; /* the last step of closing, which is later */
    };
    _Atomic(uint64_t) discarded;
    uint32_t away;               /* events on their way to handlers elsewhere */
    uint32_t resting;            /* removed contexts that the loop will free */
    _Atomic(uint32_t) low_bytes; /* others read it */

    /* What every message looks at, so that it is on few cache lines. The loop's, but for those that
     * are atomic: others read them. */
    _Atomic(uint32_t) high_bytes;
    const weir_transport *transport;              /* set once */
    _Atomic(weir_loop *) loop;                    /* NULL before the first, and when it is over */
    _Atomic(struct weir_channel_extras *) extras; /* what few channels need, NULL until then */
    _Atomic(uint32_t) unwritable; /* reasons against writing, one bit each: others write it, too */
    weir_lifecycle life;
    bool is_news_queued, is_writability_queued;
    bool is_told_unwritable;
    _Atomic(bool) is_auto_read, allows_half_closure, pauses_when_unwritable;
    bool is_read_wanted;            /* a read was requested, and its batch has not begun */
    bool is_reading;                /* start_reading was called last, not stop_reading */
    bool is_in_batch : 1;           /* between the first read and its end */
    bool is_batch_open : 1;         /* the same, also after reading was stopped */
    bool is_output_lent : 1;        /* a relay sends: shutting down waits for its end */
    bool is_leaving : 1;            /* deregistration is under way */
    bool is_settling : 1;           /* its handlers are being told that they have come */
    bool has_stopped : 1;           /* reading, since a guard has looked */
    bool is_telling_loss : 1;       /* of a write, right now */
    _Atomic(bool) is_input_ended;   /* EOF, or a read error; other threads read it */
    _Atomic(bool) is_output_ended;  /* no more writes; others read it, too */
    bool is_output_shut;            /* the transport's shutdown was called */
    _Atomic(bool) is_abandoned;     /* its loop has not waited for handlers on other executors */
    _Atomic(uint8_t) pauses;        /* why it does not read: others write it, too */
    _Atomic(bool) is_inbox_full;    /* others have posted writes above the high mark */
    _Atomic(bool) is_end_requested; /* a shutdown or close was asked for; a handler may hold it */
    _Atomic(uint64_t) bytes_in, messages_in;
    _Atomic(int64_t) sent_at; /* when some of its output went last; others read it */
    weir_outbound outbound;
    weir_spare *spare; /* the loop's, while the channel is on it: entries of the queue */
    weir_pipeline pipeline;
};

static inline weir_loop *weir__channel_loop(const weir_channel *channel)
{
    return atomic_load_explicit(&channel->loop, memory_order_acquire);
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

static inline weir_owner weir__channel_owner(const weir_channel *channel)
{
    /* In this order: its loop goes last, so who finds none sees what state it is in. */
    weir_loop *loop = weir__channel_loop(channel);
    if (weir__lifecycle_state(&channel->life) == WEIR_CHANNEL_UNREGISTERED)
        return WEIR_OWNER_NOBODY;
    return loop == NULL || weir_executor_is_current(&loop->base) ? WEIR_OWNER_ME
                                                                 : WEIR_OWNER_OTHERS;
}

/* Active, also while it is between two loops. */
static inline bool weir__channel_was_active(const weir_channel *channel)
{
    return weir__lifecycle_state(&channel->life) == WEIR_CHANNEL_ACTIVE || channel->life.was_active;
}

static inline bool weir__channel_is_closing(const weir_channel *channel)
{
    return weir__lifecycle_state(&channel->life) >= WEIR_CHANNEL_CLOSING;
}

/* Records that a shutdown or close was requested, which a handler may delay. Any thread. */
static inline void weir__channel_note_end(weir_channel *channel)
{
    atomic_store_explicit(&channel->is_end_requested, true, memory_order_relaxed);
}

static inline bool weir__channel_is_end_requested(const weir_channel *channel)
{
    return atomic_load_explicit(&channel->is_end_requested, memory_order_relaxed);
}

static inline weir_channel *weir__channel_at(weir_home *home)
{
    return WEIR_CONTAINER(home, weir_channel, home);
}

/* The loop it is on, retained; NULL: none. Any thread. */
weir_loop *weir__channel_retain_loop(weir_channel *channel);

/* Takes a task to the loop it is on; WEIR_ECLOSED when there is none. Any thread. */
int weir__channel_post(weir_channel *channel, weir_task *task);

/* It belongs to another loop from now on, whose memory it keeps; NULL: to none. */
void weir__channel_set_loop(weir_channel *channel, weir_loop *loop);

/* The ends of operations, at the head. On the loop. */
void weir__channel_write_now(weir_channel *channel, weir_msg *msg, weir_promise *promise);
void weir__channel_flush_now(weir_channel *channel);
void weir__channel_read_now(weir_channel *channel);
void weir__channel_fire_read_complete(weir_channel *channel);
void weir__channel_shutdown_now(weir_channel *channel, weir_promise *promise);
void weir__channel_close_now(weir_channel *channel, weir_promise *promise);
void weir__channel_deregister_now(weir_channel *channel, weir_promise *promise);

/* It is active, and something waited for that: sends it, and ends the output if that was wished. */
void weir__channel_resume_output(weir_channel *channel);

/* Whether it is about to leave its loop for another. On the loop. */
bool weir__channel_is_moving(const weir_channel *channel);

/* A message was lost: closes a stream, at once or before any call that is pushed from now on.
 * Needs no memory. Any thread. */
void weir__channel_lose(weir_channel *channel, int code);

/* Once it is closed and its last handler is removed: completes its closed future, leaves its loop.
 */
void weir__channel_try_to_go(weir_channel *channel);

/* Leaves its loop, if it wants to and nothing holds it there any more. */
void weir__channel_try_to_leave(weir_channel *channel);

/* Calls an initializer: its code, or that of the first add in it that failed. On the loop. */
int weir__channel_init_by(weir_channel *channel, weir_init_fn init, void *arg);

/* On the loop it goes to: registers there. */
void weir__channel_arrive(weir_channel *channel);

/* The loop it goes to does not take it: closes it, on the loop that it comes from. */
void weir__channel_not_taken(weir_channel *channel, int code);

void weir__channel_set_auto_read(weir_channel *channel, bool is_auto_read);

/* Stops or allows reading, for one reason. */
void weir__channel_set_pause(weir_channel *channel, uint8_t reason, bool is_paused);

/* What decides whether it reads has changed. */
void weir__channel_update_reading(weir_channel *channel);

/* Tells something behind all that was completed before. It holds a reference of its own. */
void weir__channel_queue_notice(weir_channel *channel, weir_notice *notice);

/* What is queued, with what other threads have written and the loop has not seen yet. Any thread.
 */
size_t weir__channel_pending_bytes(const weir_channel *channel);

/* A notice: the pipeline hears whether it is writable, if that is another than it heard last. */
void weir__channel_tell_writability(weir_notice *notice);

/* The water marks or what is queued has changed. */
void weir__channel_weigh(weir_channel *channel);

/* Others have set a reason against writing, or taken it back. */
void weir__channel_weigh_anew(weir_channel *channel);

/* The posted writes of other threads are queued or have failed: notifies a thread that found the
 * channel unwritable because of them. */
void weir__channel_inbox_emptied(weir_channel *channel);

/* How many bytes were sent; on the loop, those of a message that is on its way included. */
uint64_t weir__channel_sent_bytes(const weir_channel *channel);

/* Some of its output went just now. On the loop. */
static inline void weir__channel_note_sent(weir_channel *channel)
{
    atomic_store_explicit(&channel->sent_at, weir__channel_loop(channel)->base.now_ns,
                          memory_order_relaxed);
}

/* Finds the handler and callback that run by the functions on the stack: events pass from handler
 * to handler without a record of it. The first is for a channel, on its own thread; the second for
 * the context of an offloaded handler. See weir_describe_fn. */
void weir__channel_describe(const void *channel, const weir_stack *stack, weir_subject *subject);
void weir__ctx_describe(const void *ctx, const weir_stack *stack, weir_subject *subject);

/* It is closed, and nobody asks in vain. */
void weir__channel_tell_closed(weir_channel *channel);

/* Calls `visit` for each channel on a loop, which may close it. On the loop. */
void weir__loop_each_channel(weir_loop *loop, void (*visit)(weir_channel *channel, void *arg),
                             void *arg);

/* The lock of what other threads look at: names, attributes. A few share one. */
void weir__channel_lock(const weir_channel *channel);
void weir__channel_unlock(const weir_channel *channel);

#endif
