/* SPDX-License-Identifier: MIT */
/* Channels: counting, and what can be seen from outside. */
#include "channel/channel.h"

#include "base/alloc.h"
#include "base/counter.h"
#include "channel/extras.h"
#include "channel/inbox.h"
#include "exec/executor.h"

#include <weir/log.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

static void destroy_nothing(weir_msg *msg)
{
    (void)msg;
}

static const weir_msg_type event_type = { .name = "event", .destroy = destroy_nothing };
weir_msg weir_event_input_closed = WEIR_MSG_CONSTANT(&event_type);
weir_msg weir_event_draining = WEIR_MSG_CONSTANT(&event_type);

/* Locks: for moments, so a few serve all channels. ------------------------------------------- */

#define LOCKS 64
static struct {
    _Alignas(64) pthread_mutex_t mutex;
} locks[LOCKS] = { [0 ... LOCKS - 1] = { PTHREAD_MUTEX_INITIALIZER } };

void weir__channel_lock(const weir_channel *channel)
{
    pthread_mutex_lock(&locks[channel->id % LOCKS].mutex);
}

void weir__channel_unlock(const weir_channel *channel)
{
    pthread_mutex_unlock(&locks[channel->id % LOCKS].mutex);
}

/* Counting ------------------------------------------------------------------------------------- */

/* The loop may be another one in the next moment, and the last one's memory gone: it is looked up
 * and held under the lock, and set to another one there. */
weir_loop *weir__channel_retain_loop(weir_channel *channel)
{
    weir__channel_lock(channel);
    weir_loop *loop = weir__channel_loop(channel);
    if (loop != NULL)
        weir__executor_retain(&loop->base);
    weir__channel_unlock(channel);
    return loop;
}

int weir__channel_post(weir_channel *channel, weir_task *task)
{
    weir_loop *loop = weir__channel_retain_loop(channel);
    if (loop == NULL)
        return WEIR_ECLOSED;
    int code = weir__executor_post_always(&loop->base, task);
    weir__executor_release(&loop->base);
    return code;
}

void weir__channel_set_loop(weir_channel *channel, weir_loop *loop)
{
    weir_loop *before = weir__channel_loop(channel);
    if (loop != NULL)
        weir__executor_retain(&loop->base);
    if (before == NULL) {
        atomic_store_explicit(&channel->shared.loop, loop, memory_order_release);
        return;
    }
    weir__channel_lock(channel);
    atomic_store_explicit(&channel->shared.loop, loop, memory_order_release);
    weir__channel_unlock(channel);
    weir__executor_release(&before->base);
}

/* Before it has a loop, and when it is over, listeners may run on any thread: but not those of a
 * channel that its loop has abandoned, for which they were promised that loop. */
static bool home_is_here(weir_home *home)
{
    const weir_channel *channel = weir__channel_at(home);
    return weir__channel_is_mine(channel) &&
           (weir__channel_loop(channel) != NULL || !channel->life.is_abandoned);
}

/* A promise keeps the memory of its channel, not the channel. One without references is over: no
 * handler of it is left, and the call may run anywhere. */
static bool retain_unless_over(weir_channel *channel)
{
    uint32_t refs = atomic_load_explicit(&channel->shared.refs, memory_order_relaxed);
    while (refs > 0 &&
           !atomic_compare_exchange_weak_explicit(&channel->shared.refs, &refs, refs + 1,
                                                  memory_order_acquire, memory_order_relaxed)) {
    }
    return refs > 0;
}

static void push_home(weir_home *home, weir_call *call)
{
    weir_channel *channel = weir__channel_at(home);
    if (!retain_unless_over(channel)) {
        call->run(home, call);
        return;
    }
    weir__inbox_push(channel, call);
    weir_channel_release(channel);
}

/* Not while the queue fails as a whole: then the channel is closed for that. */
void weir__channel_lose(weir_channel *channel, int code)
{
    bool is_on_loop = weir__channel_loop(channel) != NULL && weir__channel_is_mine(channel);
    if (is_on_loop && !weir__channel_is_closing(channel) && !channel->out.queue.is_failed) {
        weir__channel_lost(channel, code);
    } else if (!is_on_loop) {
        atomic_store_explicit(&channel->inbox.lost, (int16_t)code, memory_order_relaxed);
        weir__inbox_push_missed(channel, WEIR__MISSED_MESSAGE);
    }
}

static void reject_piece(weir_home *home, int code)
{
    weir_channel *channel = weir__channel_at(home);
    if (!retain_unless_over(channel))
        return;
    weir__channel_lose(channel, code);
    weir_channel_release(channel);
}

static bool home_is_manual(weir_home *home)
{
    const weir_loop *loop = weir__channel_loop(weir__channel_at(home));
    return loop == NULL || loop->base.is_manual;
}

/* A promise may itself be in the channel's queue, so it keeps its memory alone. */
static void retain_home(weir_home *home)
{
    atomic_fetch_add_explicit(&weir__channel_at(home)->shared.anchors, 1, memory_order_relaxed);
}

static void release_home(weir_home *home)
{
    weir_channel *channel = weir__channel_at(home);
    if (atomic_fetch_sub_explicit(&channel->shared.anchors, 1, memory_order_acq_rel) != 1)
        return;
    if (channel->shared.closed != weir_future_completed(0))
        weir__free(channel->shared.closed);
    channel->transport->destroy(channel);
}

static const weir_home_type home_type = {
    .is_here = home_is_here,
    .push = push_home,
    .is_manual = home_is_manual,
    .piece_rejected = reject_piece,
    .retain = retain_home,
    .release = release_home,
};

void weir__channel_init(weir_channel *channel, const weir_transport *transport,
                        weir_channel *parent)
{
    static _Atomic(uint64_t) next_id;
    *channel = (weir_channel){
        .transport = transport,
        .parent = weir_channel_retain(parent),
        .id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed) + 1,
        .in.is_auto_read = true,
        .out.writability.run = weir__channel_fire_writability,
        .life.member.type = &weir__channel_member_type,
        .inbox.task = { weir__inbox_run, weir__inbox_dropped, "channel calls", { NULL } },
        .shared.home = { &home_type },
    };
    channel->out.low_bytes = (uint32_t)weir_option_get_info(WEIR_OPTION_WRITE_LOW_BYTES)->normal;
    channel->out.high_bytes = (uint32_t)weir_option_get_info(WEIR_OPTION_WRITE_HIGH_BYTES)->normal;
    atomic_init(&channel->shared.refs, 1);
    atomic_init(&channel->shared.anchors, 1); /* of all references together */
    weir__pipeline_init(&channel->pipeline, channel);
    weir_channel_extras *of_parent = parent != NULL ? weir__channel_extras(parent) : NULL;
    channel->life.is_counted = of_parent != NULL;
    if (of_parent != NULL)
        atomic_fetch_add_explicit(&of_parent->children, 1, memory_order_relaxed);
}

weir_channel *weir_channel_retain(weir_channel *channel)
{
    if (channel != NULL)
        atomic_fetch_add_explicit(&channel->shared.refs, 1, memory_order_relaxed);
    return channel;
}

static void destroy(weir_channel *channel)
{
    weir_channel *parent = channel->parent;
    weir__pipeline_deinit(&channel->pipeline);
    weir__channel_free_extras(channel);
    release_home(&channel->shared.home);
    weir_channel_release(parent);
}

/* The last reference to a channel that is on no loop goes: closing it holds another until it is
 * done. */
static void close_unowned(weir_channel *channel)
{
    if (weir__channel_is_mine(channel))
        weir__channel_close_now(channel, NULL);
    else
        weir__inbox_push_missed(channel, WEIR__MISSED_CLOSE);
}

void weir_channel_release(weir_channel *channel)
{
    if (channel == NULL)
        return;
    uint32_t refs = atomic_load_explicit(&channel->shared.refs, memory_order_acquire);
    do {
        if (refs == 1 && !weir__channel_is_closing(channel)) {
            close_unowned(channel);
            refs = atomic_load_explicit(&channel->shared.refs, memory_order_acquire);
        }
    } while (!atomic_compare_exchange_weak_explicit(&channel->shared.refs, &refs, refs - 1,
                                                    memory_order_acq_rel, memory_order_acquire));
    if (refs == 1)
        destroy(channel);
}

void weir_channel_release_value(void *channel)
{
    weir_channel_release(channel);
}

/* Once its loop has terminated, any thread may perform the calls of a channel, one at a time. */
static bool has_ended_loop(const weir_channel *channel)
{
    const weir_loop *loop = weir__channel_loop(channel);
    return loop != NULL && weir_executor_get_state(&loop->base) == WEIR_EXECUTOR_TERMINATED;
}

/* Once the loop has terminated, any thread may perform the channel's calls: a notice runs at once,
 * because another thread may own the channel later. */
void weir__channel_queue_notice(weir_channel *channel, weir_notice *notice)
{
    if (weir__channel_is_mine(channel) && !has_ended_loop(channel))
        weir__notice_queue(notice);
    else
        notice->run(notice);
}

/* Looking -------------------------------------------------------------------------------------- */

weir_channel_state weir_channel_get_state(const weir_channel *channel)
{
    static const weir_channel_state states[] = {
        [WEIR_LIFE_DETACHED] = WEIR_CHANNEL_OPEN,
        [WEIR_LIFE_ATTACHING] = WEIR_CHANNEL_OPEN,
        [WEIR_LIFE_ATTACHED] = WEIR_CHANNEL_REGISTERED,
        [WEIR_LIFE_DETACHING] = WEIR_CHANNEL_REGISTERED,
        [WEIR_LIFE_CLOSING] = WEIR_CHANNEL_CLOSING,
        [WEIR_LIFE_CLOSED] = WEIR_CHANNEL_CLOSED,
        [WEIR_LIFE_ENDED] = WEIR_CHANNEL_UNREGISTERED,
    };
    weir_channel_state state = states[weir__channel_state(channel)];
    bool is_active = state == WEIR_CHANNEL_REGISTERED && channel->life.is_active;
    return is_active ? WEIR_CHANNEL_ACTIVE : state;
}

const char *weir_channel_state_name(weir_channel_state state)
{
    static const char *const names[] = { "open",    "registered", "active",
                                         "closing", "closed",     "unregistered" };
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "?";
}

bool weir_channel_is_active(const weir_channel *channel)
{
    return weir__channel_is_active(channel);
}

bool weir_channel_is_open(const weir_channel *channel)
{
    return !weir__channel_is_closing(channel);
}

bool weir_channel_is_input_closed(const weir_channel *channel)
{
    return channel->in.is_ended;
}

bool weir_channel_is_output_closed(const weir_channel *channel)
{
    return channel->out.is_ended || weir__channel_is_closing(channel);
}

uint64_t weir_channel_id(const weir_channel *channel)
{
    return channel->id;
}

weir_channel *weir_channel_parent(const weir_channel *channel)
{
    return channel->parent;
}

weir_pipeline *weir_channel_pipeline(weir_channel *channel)
{
    return channel != NULL ? &channel->pipeline : NULL;
}

weir_loop *weir_channel_loop(const weir_channel *channel)
{
    return weir__channel_loop(channel);
}

const char *weir_channel_kind(const weir_channel *channel)
{
    return channel->transport->name;
}

int weir_channel_local_address(const weir_channel *channel, weir_address *address)
{
    *address = (weir_address){ 0 };
    return channel->transport->local_address != NULL
               ? channel->transport->local_address(channel, address)
               : WEIR_ENOTFOUND;
}

int weir_channel_peer_address(const weir_channel *channel, weir_address *address)
{
    *address = (weir_address){ 0 };
    return channel->transport->remote_address != NULL
               ? channel->transport->remote_address(channel, address)
               : WEIR_ENOTFOUND;
}

int weir_channel_remote_address(const weir_channel *channel, weir_address *address)
{
    return weir__channel_client(channel, address) ? 0 : weir_channel_peer_address(channel, address);
}

/* Most channels are never asked, so they do without. Whoever comes late gets a constant. */
weir_future *weir_channel_closed(weir_channel *channel)
{
    weir_future *closed = atomic_load_explicit(&channel->shared.closed, memory_order_acquire);
    if (closed != NULL)
        return closed;
    weir_future *made = weir__alloc(sizeof *made);
    if (made == NULL)
        return NULL;
    weir__future_init(made, &channel->shared.home);
    if (atomic_compare_exchange_strong_explicit(&channel->shared.closed, &closed, made,
                                                memory_order_acq_rel, memory_order_acquire))
        return made;
    weir__free(made); /* somebody was faster, or it has closed meanwhile */
    return closed;
}

void weir__channel_complete_closed(weir_channel *channel)
{
    weir_future *closed = NULL;
    if (!atomic_compare_exchange_strong_explicit(&channel->shared.closed, &closed,
                                                 weir_future_completed(0), memory_order_acq_rel,
                                                 memory_order_acquire))
        weir__future_complete(closed, 0);
}

weir_promise *weir_channel_promise(weir_channel *channel)
{
    if (channel == NULL)
        return NULL;
    weir_promise *promise = weir__promise_new_at(&channel->shared.home);
    if (promise != NULL)
        retain_home(&channel->shared.home);
    return promise;
}

void weir_channel_get_stats(const weir_channel *channel, weir_channel_stats *stats)
{
    *stats = (weir_channel_stats){
        .bytes_in = weir__counter_get(&channel->in.bytes),
        .messages_in = weir__counter_get(&channel->in.messages),
        .bytes_out = weir__counter_get(&channel->out.queue.bytes_out),
        .messages_out = weir__counter_get(&channel->out.queue.messages_out),
        .discarded = weir__counter_get(&channel->in.discarded),
        .pending_bytes = weir__channel_pending_bytes(channel),
    };
}

size_t weir_channel_dump(const weir_channel *channel, char *to, size_t size)
{
    weir_channel_stats stats;
    weir_address address;
    char local[WEIR_ADDRESS_TEXT_MAX], remote[WEIR_ADDRESS_TEXT_MAX];
    weir_loop *loop = weir__channel_loop(channel);
    weir_channel_get_stats(channel, &stats);
    weir_channel_local_address(channel, &address);
    weir_address_text(&address, local, sizeof local);
    weir_channel_remote_address(channel, &address);
    weir_address_text(&address, remote, sizeof remote);
    int length =
        snprintf(to, size,
                 "%08llx %s %s on %s, local %s, remote %s, %s%s%s, in %llu messages %llu bytes, "
                 "out %llu messages %llu bytes, %zu bytes pending: ",
                 (unsigned long long)channel->id, channel->transport->name,
                 weir_channel_state_name(weir_channel_get_state(channel)),
                 loop != NULL ? weir_executor_name(&loop->base) : "no loop", local, remote,
                 channel->in.is_reading   ? "reading"
                 : channel->in.holds != 0 ? "paused"
                                          : "not reading",
                 channel->in.is_ended ? ", input ended" : "",
                 weir_channel_is_writable(channel) ? ", writable" : "",
                 (unsigned long long)stats.messages_in, (unsigned long long)stats.bytes_in,
                 (unsigned long long)stats.messages_out, (unsigned long long)stats.bytes_out,
                 stats.pending_bytes);
    size_t used = (size_t)length < size ? (size_t)length : size;
    return (size_t)length + weir_pipeline_names(&channel->pipeline, to + used, size - used);
}
