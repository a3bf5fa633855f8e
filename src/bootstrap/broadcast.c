/* SPDX-License-Identifier: MIT */
/* Writing a message to the channels of a group. */
#include "bootstrap/channel_group.h"

#include "base/alloc.h"
#include "exec/future.h"

#include <weir/buf.h>

#include <errno.h>
#include <stdatomic.h>

/* The results of a broadcast that somebody waits for. */
typedef struct tally {
    weir_promise *promise;
    weir_broadcast_result *result; /* may be NULL */
    _Atomic(size_t) left;          /* writes, and the broadcast itself */
    _Atomic(size_t) succeeded, failed;
    _Atomic(int) code; /* of the first that failed */
} tally;

typedef struct answer {
    weir_listener listener;
    tally *to;
} answer;

/* NULL: there is no memory, or it was cancelled, and nothing should begin. */
static tally *new_tally(weir_promise *promise, weir_broadcast_result *result)
{
    if (!weir_promise_set_uncancellable(promise))
        return NULL;
    tally *self = weir__zalloc(sizeof *self);
    if (self == NULL) {
        weir_promise_fail(promise, -ENOMEM);
        return NULL;
    }
    self->promise = weir_promise_retain(promise);
    self->result = result;
    atomic_init(&self->left, 1);
    return self;
}

static void end_part(tally *self)
{
    if (atomic_fetch_sub_explicit(&self->left, 1, memory_order_acq_rel) != 1)
        return;
    if (self->result != NULL)
        *self->result = (weir_broadcast_result){ self->succeeded, self->failed };
    weir_promise_set(self->promise, self->code);
    weir_promise_release(self->promise);
    weir__free(self);
}

static void count_result(tally *self, int code)
{
    int none = 0;
    atomic_fetch_add_explicit(code == 0 ? &self->succeeded : &self->failed, 1,
                              memory_order_relaxed);
    if (code < 0)
        atomic_compare_exchange_strong(&self->code, &none, code);
    end_part(self);
}

static void write_done(weir_listener *listener, weir_future *future)
{
    answer *self = WEIR_CONTAINER(listener, answer, listener);
    tally *to = self->to;
    weir__free(self);
    count_result(to, weir_future_code(future));
}

/* The outbound queue leaves a message as it is, but the handlers on the way to it move a buffer's
 * indices, on several threads at once. A duplicate is a small block of the pool. */
static weir_msg *share(weir_msg *msg)
{
    weir_buf *duplicate = NULL;
    if (msg == NULL || weir_buf_from_msg(msg) == NULL)
        return weir_msg_retain(msg);
    weir_buf_duplicate(weir_buf_from_msg(msg), &duplicate);
    return weir_buf_msg(duplicate);
}

static void write_told(weir_channel *channel, weir_msg *msg, tally *to)
{
    answer *self = msg != NULL ? weir__alloc(sizeof *self) : NULL;
    weir_promise *promise = self != NULL ? weir_channel_promise(channel) : NULL;
    atomic_fetch_add_explicit(&to->left, 1, memory_order_relaxed);
    if (promise == NULL) {
        weir__free(self);
        weir_msg_release(msg);
        count_result(to, -ENOMEM);
        return;
    }
    *self = (answer){ .listener = { .done = write_done, .dropped = write_done }, .to = to };
    weir_future_listen(weir_promise_future(promise), &self->listener);
    weir_channel_write_and_flush(channel, msg, promise);
    weir_promise_release(promise);
}

static bool is_addressed(const weir_broadcast *how, weir_channel *channel)
{
    return channel != how->except &&
           (how->matches == NULL || how->matches(how->match_arg, channel));
}

static size_t write_to_all(weir_channel_group *group, weir_msg *msg, const weir_broadcast *how,
                           tally *to)
{
    size_t count = 0;
    weir_channel *channel;
    weir_channel_walk walk;
    weir__channel_walk_begin(&walk, group);
    while ((channel = weir__channel_walk_on(&walk)) != NULL) {
        if (is_addressed(how, channel)) {
            count++;
            if (to != NULL)
                write_told(channel, share(msg), to);
            else /* NULL, without memory, closes the channel: a stream has no gaps */
                weir_channel_write_and_flush(channel, share(msg), NULL);
        }
        weir_channel_release(channel);
    }
    weir__channel_walk_end(&walk);
    return count;
}

size_t weir_channel_group_broadcast(weir_channel_group *group, weir_msg *msg,
                                    const weir_broadcast *how)
{
    const weir_broadcast chosen = how != NULL ? *how : (weir_broadcast){ 0 };
    size_t count = 0;
    if (group == NULL) {
        weir__promise_end(chosen.promise, -EINVAL);
    } else if (chosen.promise == NULL) {
        count = write_to_all(group, msg, &chosen, NULL);
    } else {
        tally *to = new_tally(chosen.promise, chosen.result);
        if (to != NULL) {
            count = write_to_all(group, msg, &chosen, to);
            end_part(to);
        }
    }
    weir_msg_release(msg);
    return count;
}
