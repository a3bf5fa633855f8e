/* SPDX-License-Identifier: MIT */
/* Results made of results: one that follows another, and one that joins several. */
#include "base/alloc.h"
#include "base/list.h"
#include "exec/future.h"

#include <errno.h>

/* Following ---------------------------------------------------------------------------------- */

typedef struct follower {
    weir_listener from_done, to_done;
    weir_future *from;
    weir_promise *to;
    _Atomic(int) left; /* of the two listeners */
} follower;

static void end_half(follower *self)
{
    if (atomic_fetch_sub_explicit(&self->left, 1, memory_order_acq_rel) != 1)
        return;
    weir_future_release(self->from);
    weir_promise_release(self->to);
    weir__free(self);
}

static void follow(weir_listener *listener, weir_future *from)
{
    follower *self = WEIR_CONTAINER(listener, follower, from_done);
    weir__future_copy(weir_promise_future(self->to), from);
    end_half(self);
}

static void cancel_source(weir_listener *listener, weir_future *to)
{
    follower *self = WEIR_CONTAINER(listener, follower, to_done);
    if (weir_future_code(to) == -ECANCELED)
        weir_future_cancel(self->from);
    end_half(self);
}

int weir_promise_follow(weir_promise *to, weir_future *from)
{
    if (to == NULL || from == NULL || weir_promise_future(to) == from)
        return -EINVAL;
    follower *self = weir__alloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    *self = (follower){
        .from_done = { .done = follow, .dropped = follow },
        .to_done = { .done = cancel_source, .dropped = cancel_source },
        .from = weir_future_retain(from),
        .to = weir_promise_retain(to),
        .left = 2,
    };
    weir_future_listen(weir_promise_future(to), &self->to_done);
    weir_future_listen(from, &self->from_done);
    return 0;
}

/* Joining ------------------------------------------------------------------------------------ */

typedef struct join join;

typedef struct joined {
    weir_listener listener;
    join *join;
} joined;

struct join {
    weir_promise *to;
    weir_join how;
    _Atomic(int) code; /* of the first that failed */
    _Atomic(size_t) left;
    joined parts[];
};

static void part_done(weir_listener *listener, weir_future *future)
{
    join *self = WEIR_CONTAINER(listener, joined, listener)->join;
    int code = weir_future_code(future), none = 0;
    if (code < 0) {
        atomic_compare_exchange_strong(&self->code, &none, code);
        if (self->how == WEIR_JOIN_FIRST_FAILURE)
            weir_promise_fail(self->to, code);
    }
    if (atomic_fetch_sub_explicit(&self->left, 1, memory_order_acq_rel) != 1)
        return;
    weir_promise_set(self->to, atomic_load(&self->code));
    weir_promise_release(self->to);
    weir__free(self);
}

int weir_promise_join(weir_promise *to, weir_future *const *futures, size_t count, weir_join how)
{
    if (to == NULL || (futures == NULL && count > 0))
        return -EINVAL;
    for (size_t i = 0; i < count; i++) {
        if (futures[i] == NULL || futures[i] == weir_promise_future(to))
            return -EINVAL;
    }
    if (count == 0)
        return weir_promise_set(to, 0);
    join *self = weir__alloc(sizeof *self + count * sizeof *self->parts);
    if (self == NULL)
        return -ENOMEM;
    self->to = weir_promise_retain(to);
    self->how = how;
    atomic_init(&self->code, 0);
    atomic_init(&self->left, count);
    for (size_t i = 0; i < count; i++)
        self->parts[i] = (joined){ { .done = part_done, .dropped = part_done }, self };
    /* The last of these may end everything: nothing is touched behind it. */
    for (size_t i = 0; i < count; i++)
        weir_future_listen(futures[i], &self->parts[i].listener);
    return 0;
}
