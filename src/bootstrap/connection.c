/* SPDX-License-Identifier: MIT */
/* The connections of a pool: made, lent, given back, checked, closed. */
#include "bootstrap/connection_pool.h"

#include "base/alloc.h"
#include "bootstrap/client.h"

#include <errno.h>

/* Counting and states -------------------------------------------------------------------------- */

static weir_connection *retain(weir_connection *self)
{
    atomic_fetch_add_explicit(&self->refs, 1, memory_order_relaxed);
    return self;
}

static void release(void *of)
{
    weir_connection *self = of;
    if (atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir__connection_pool_let_go(self->pool);
    weir__free(self);
}

static const weir_attr_key connection_key = { .name = "connection pool", .destroy = release };

static size_t *count_of(weir_connection *self)
{
    weir_connection_pool_stats *stats = &self->pool->stats;
    switch (self->state) {
    case WEIR__CONNECTING:
        return &stats->connecting;
    case WEIR__IDLE:
        return &stats->idle;
    case WEIR__CHECKING:
        return &stats->checking;
    case WEIR__BORROWED:
    case WEIR__RETURNING:
        return &stats->borrowed;
    case WEIR__CLOSING:
        return &stats->closing;
    default: /* has no place */
        return NULL;
    }
}

static void set_state(weir_connection *self, weir_connection_state state)
{
    size_t *count = count_of(self);
    if (count != NULL)
        --*count;
    if (weir__list_is_linked(&self->node))
        weir__list_remove(&self->node);
    self->state = state;
    count = count_of(self);
    if (count != NULL)
        ++*count;
}

static void set_idle(weir_connection *self)
{
    set_state(self, WEIR__IDLE);
    self->idle_since_ns = weir__connection_pool_now_ns(self->pool);
    weir__list_push_front(&self->pool->idle, &self->node);
}

static weir_connection *first_of(const weir_list *list)
{
    weir_list_node *node = weir__list_first(list);
    return node != NULL ? WEIR_CONTAINER(node, weir_connection, node) : NULL;
}

static void on_closed(weir_listener *listener, weir_future *future)
{
    weir_connection *self = WEIR_CONTAINER(listener, weir_connection, on_closed);
    weir_connection_pool *pool = self->pool;
    (void)future;
    weir_ctx_cancel(&self->channel->pipeline.head, &self->finish_timer);
    weir__connection_pool_lock(pool);
    weir_channel *channel = self->channel;
    self->channel = NULL;
    set_state(self, self->state == WEIR__BORROWED ? WEIR__LOST : WEIR__GONE);
    pool->stats.closed++;
    weir__connection_pool_unlock(pool);
    weir__connection_pool_pump(pool);
    weir__connection_pool_tell_if_over(pool);
    weir_channel_release(channel);
    release(self);
}

/* Lending -------------------------------------------------------------------------------------- */

/* What can be done for those who wait. */
typedef struct step {
    enum { NOTHING, CLOSE, FINISH, CHECK, LEND, CONNECT } what;
    weir_connection *of;
    weir_channel *channel; /* a reference */
    weir_waiter *waiter;   /* which gets it */
} step;

static step make_step(weir_connection *self, weir_connection_state state)
{
    set_state(self, state);
    return (step){ .of = self, .channel = weir_channel_retain(self->channel) };
}

/* To the first in the line; idle without one. Under the lock. */
static step lend(weir_connection *self)
{
    weir_waiter *waiter = weir__connection_pool_pop(self->pool);
    if (waiter == NULL) {
        set_idle(self);
        return (step){ .what = NOTHING };
    }
    step lent = make_step(self, WEIR__BORROWED);
    lent.what = LEND;
    lent.waiter = waiter;
    return lent;
}

static bool is_open(const weir_connection *self)
{
    const weir_channel *channel = self->channel;
    return weir_channel_is_active(channel) && !weir_channel_is_input_closed(channel) &&
           !weir_channel_is_output_closed(channel) && !weir__channel_is_end_requested(channel);
}

/* Whether the next borrower can read and write at once, with nothing of the last one before it. */
static bool is_clean(const weir_connection *self)
{
    const weir_channel *channel = self->channel;
    return is_open(self) && weir_channel_is_writable(channel) &&
           weir__channel_pending_bytes(channel) == 0 && channel->in.holds == 0 &&
           channel->in.is_auto_read == self->is_auto_read;
}

/* Output that the channel has accepted is still sent, unless the pool is closed. */
static step discard(weir_connection *self)
{
    bool has_to_be_quick = self->pool->is_closed || !weir_channel_is_active(self->channel);
    step discarded = make_step(self, WEIR__CLOSING);
    discarded.what = has_to_be_quick ? CLOSE : FINISH;
    if (!has_to_be_quick) {
        weir__list_push_back(&self->pool->finishing, &self->node);
        retain(self); /* for the call of begin_finish */
    }
    return discarded;
}

static step use_idle(weir_connection *self)
{
    step used;
    if (!is_clean(self)) {
        used = discard(self);
    } else if (self->pool->check != NULL) {
        used = make_step(self, WEIR__CHECKING);
        used.what = CHECK;
        retain(self);
    } else {
        used = lend(self);
    }
    return used;
}

static step next_step(weir_connection_pool *pool)
{
    weir_connection_pool_stats *stats = &pool->stats;
    step next = { .what = NOTHING };
    /* What is there goes before what is on its way, which is there for the next then. */
    if (stats->waiting > stats->checking && stats->idle > 0)
        return use_idle(first_of(&pool->idle));
    if (stats->waiting > stats->connecting + stats->checking &&
        weir__connection_pool_places(stats) < pool->max) {
        stats->connecting++;
        next.what = CONNECT;
    }
    return next;
}

/* The borrower has no more to do with it: what becomes of it, under the lock. */
static step end_loan(weir_connection *self)
{
    if (self->pool->is_closed || !is_clean(self))
        return discard(self);
    set_idle(self);
    return (step){ .what = NOTHING };
}

static void take_step(weir_connection_pool *pool, step *next);

/* Whoever it was for has changed their mind: it is there for the next. */
static void take_back(weir_connection *self)
{
    weir_connection_pool *pool = self->pool;
    step next = { .what = NOTHING };
    weir__connection_pool_lock(pool);
    if (self->state == WEIR__BORROWED)
        next = end_loan(self);
    else
        set_state(self, WEIR__GONE);
    weir__connection_pool_unlock(pool);
    take_step(pool, &next);
}

/* The channel's reference goes with the promise. The connection stays at least until its channel
 * goes. */
static void do_lend(step *lent)
{
    if (weir__operation_succeed(&lent->waiter->operation, lent->channel,
                                weir__client_release_channel) == 0)
        lent->channel = NULL;
    else
        take_back(lent->of);
}

static void begin_finish(step *finished);
static void begin_check(step *checked);
static void begin_connect(weir_connection_pool *pool);

static void take_step(weir_connection_pool *pool, step *next)
{
    switch (next->what) {
    case CLOSE:
        weir_channel_close(next->channel, NULL);
        break;
    case FINISH:
        begin_finish(next);
        break;
    case CHECK:
        begin_check(next);
        break;
    case LEND:
        do_lend(next);
        break;
    case CONNECT:
        begin_connect(pool);
        break;
    case NOTHING:
        break;
    }
    weir_channel_release(next->channel);
}

/* A closed pool has nobody in the line, and so nothing to do. */
void weir__connection_pool_pump(weir_connection_pool *pool)
{
    step next;
    weir__connection_pool_hold(pool);
    do {
        weir__connection_pool_lock(pool);
        next = next_step(pool);
        weir__connection_pool_unlock(pool);
        take_step(pool, &next);
    } while (next.what != NOTHING);
    weir__time_limit_arm(&pool->boredom);
    weir__connection_pool_let_go(pool);
}

/* A connection that is as good as new: for the next who waits, unless the pool is closed. Under the
 * lock. */
static step offer(weir_connection *self)
{
    return self->pool->is_closed || !is_open(self) ? discard(self) : lend(self);
}

/* Finishing ------------------------------------------------------------------------------------ */

/* weir_channel_finish has no time limit while it sends. A peer that reads slowly may take as long
 * as it needs; a peer that reads nothing would keep the place for ever. */
static void finish_timer_fire(weir_ctx_timer *timer, weir_ctx *head)
{
    weir_connection *self = WEIR_CONTAINER(timer, weir_connection, finish_timer);
    weir_channel *channel = weir_ctx_channel(head);
    uint64_t sent = weir__channel_sent_bytes(channel);
    bool has_progress = sent != self->sent_before;
    if (channel->out.is_shut || weir__channel_is_closing(channel))
        return; /* from here on WEIR_OPTION_LINGER_NS is the limit */
    self->sent_before = sent;
    if (!has_progress || weir_ctx_schedule(head, timer, self->pool->finish_timeout_ns) < 0)
        weir__channel_close_now(channel, NULL);
}

/* On the loop, after the finish. The timer is the head's, so it moves with the channel; on_closed
 * cancels it. */
static void start_finish_timer(weir_home *home, weir_call *call)
{
    weir_connection *self = WEIR_CONTAINER(call, weir_connection, finishing);
    weir_channel *channel = weir__channel_at(home);
    weir_ctx *head = &channel->pipeline.head;
    if (!weir__channel_is_closing(channel)) {
        self->sent_before = weir__channel_sent_bytes(channel);
        self->finish_timer.fire = finish_timer_fire;
        if (weir_ctx_schedule(head, &self->finish_timer, self->pool->finish_timeout_ns) < 0)
            weir__channel_close_now(channel, NULL);
    }
    release(self);
}

static void begin_finish(step *finished)
{
    weir_connection *self = finished->of;
    weir_channel_finish(finished->channel, NULL);
    if (self->pool->finish_timeout_ns > 0) {
        self->finishing.run = start_finish_timer;
        weir__inbox_push(finished->channel, &self->finishing);
    } else {
        release(self);
    }
}

/* Whether calls of this thread on the channel, a close perhaps, may still be pending. The loop
 * performs the calls it takes from the inbox before it clears the flag. */
static bool has_calls(weir_channel *channel)
{
    return atomic_load_explicit(&channel->inbox.head, memory_order_seq_cst) != NULL ||
           atomic_load_explicit(&channel->inbox.missed, memory_order_seq_cst) != 0 ||
           atomic_load_explicit(&channel->inbox.is_posted, memory_order_seq_cst);
}

/* Checking ------------------------------------------------------------------------------------- */

static void end_check(weir_connection *self, int code)
{
    weir_connection_pool *pool = self->pool;
    step next = { .what = NOTHING };
    weir__connection_pool_lock(pool);
    if (self->state == WEIR__CHECKING && code == 0 && is_clean(self)) {
        next = offer(self);
    } else if (self->state == WEIR__CHECKING && code == 0) {
        next = discard(self);
    } else if (self->state == WEIR__CHECKING) {
        next = make_step(self, WEIR__CLOSING);
        next.what = CLOSE;
    }
    weir__connection_pool_unlock(pool);
    take_step(pool, &next);
    weir__connection_pool_pump(pool);
    release(self);
}

static void on_check_settled(weir_home *home, weir_call *call)
{
    (void)home;
    end_check(WEIR_CONTAINER(call, weir_connection, returned), 0);
}

/* The calls that the check made on the channel are performed first. */
static void on_checked(weir_listener *listener, weir_future *future)
{
    weir_connection *self = WEIR_CONTAINER(listener, weir_connection, on_checked);
    weir_connection_pool *pool = self->pool;
    int code = weir_future_code(future);
    weir__connection_pool_lock(pool);
    weir_channel *channel = self->state == WEIR__CHECKING ? weir_channel_retain(self->channel)
                                                          : NULL;
    weir__connection_pool_unlock(pool);
    if (code == 0 && channel != NULL && has_calls(channel)) {
        self->returned.run = on_check_settled;
        weir__inbox_push(channel, &self->returned);
    } else {
        end_check(self, code);
    }
    weir_channel_release(channel);
}

/* Without memory nobody can be asked: who waits has to hear of it. */
static void skip_check(weir_connection *self)
{
    weir_connection_pool *pool = self->pool;
    weir__connection_pool_lock(pool);
    weir_waiter *waiter = weir__connection_pool_pop(pool);
    step next = { .what = NOTHING };
    if (self->state == WEIR__CHECKING)
        next = end_loan(self);
    weir__connection_pool_unlock(pool);
    take_step(pool, &next);
    weir__connection_pool_fail(waiter, -ENOMEM);
    release(self);
}

static void begin_check(step *checked)
{
    weir_connection *self = checked->of;
    weir_connection_pool *pool = self->pool;
    weir_promise *promise = weir_promise_new(NULL);
    if (promise == NULL) {
        skip_check(self);
        return;
    }
    self->on_checked.done = on_checked;
    weir_future_listen(weir_promise_future(promise), &self->on_checked);
    pool->check(checked->channel, promise, pool->check_arg);
    weir_promise_release(promise);
}

/* Connecting ----------------------------------------------------------------------------------- */

/* One who waits hears of it; its place is free. */
static void give_up_place(weir_connection_pool *pool, weir_connection *self, int code,
                          const weir_error *error)
{
    weir__connection_pool_lock(pool);
    weir_waiter *waiter = weir__connection_pool_pop(pool);
    if (self != NULL)
        set_state(self, WEIR__GONE);
    else
        pool->stats.connecting--;
    weir__connection_pool_unlock(pool);
    if (waiter != NULL && error != NULL)
        weir__operation_fail(&waiter->operation, error);
    else
        weir__connection_pool_fail(waiter, code);
    weir__connection_pool_tell_if_over(pool);
}

/* The channel knows the connection, and the connection will know its end. Without memory it ends
 * right now. */
static int settle_in(weir_connection *self, weir_channel *channel)
{
    weir_future *closed = weir_channel_closed(channel);
    int code = closed != NULL ? weir_channel_set_attr(channel, &connection_key, retain(self))
                              : -ENOMEM;
    if (code < 0) {
        weir_channel_close(channel, NULL);
        return code;
    }
    weir_connection_pool *pool = self->pool;
    weir__connection_pool_lock(pool);
    self->channel = weir_channel_retain(channel);
    self->is_auto_read = channel->in.is_auto_read;
    pool->stats.created++;
    step next = offer(self);
    weir__connection_pool_unlock(pool);
    self->on_closed = (weir_listener){ .done = on_closed, .dropped = on_closed };
    weir_future_listen(closed, &self->on_closed); /* from here on it may be gone */
    take_step(pool, &next);
    return 0;
}

static void on_connected(weir_listener *listener, weir_future *future)
{
    weir_connection *self = WEIR_CONTAINER(listener, weir_connection, on_connected);
    weir_connection_pool *pool = weir__connection_pool_hold(self->pool);
    weir_promise *connected = self->connected;
    int code = weir_future_code(future);
    if (code == 0)
        code = settle_in(self, weir_future_value(future));
    if (code < 0) {
        give_up_place(pool, self, code, weir_future_error(future));
        release(self);
    }
    weir_promise_release(connected);
    weir__connection_pool_pump(pool);
    weir__connection_pool_let_go(pool);
}

static weir_connection *make_connection(weir_connection_pool *pool)
{
    weir_connection *self = weir__zalloc(sizeof *self);
    weir_promise *promise = self != NULL ? weir_promise_new(NULL) : NULL;
    if (promise == NULL) {
        weir__free(self);
        return NULL;
    }
    atomic_init(&self->refs, 1);
    self->pool = weir__connection_pool_hold(pool);
    self->connected = promise;
    self->on_connected = (weir_listener){ .done = on_connected, .dropped = on_connected };
    return self;
}

/* There is a place for it. */
static void begin_connect(weir_connection_pool *pool)
{
    weir_connection *self = make_connection(pool);
    if (self == NULL) {
        give_up_place(pool, NULL, -ENOMEM, NULL);
        return;
    }
    weir__connection_pool_lock(pool);
    weir__list_push_back(&pool->connecting, &self->node);
    bool is_wanted = !pool->is_closed;
    weir__connection_pool_unlock(pool);
    weir_error error;
    int code = is_wanted ? weir_client_start(&pool->client, pool->address, self->connected, &error)
                         : weir_error_set(&error, WEIR_ECLOSED, "connection pool", "closed");
    if (code == 0) {
        weir_future_listen(weir_promise_future(self->connected), &self->on_connected);
        return;
    }
    give_up_place(pool, self, code, &error);
    weir_promise_set(self->connected, code);
    weir_promise_release(self->connected);
    release(self);
}

/* Giving back ---------------------------------------------------------------------------------- */

static void on_returned(weir_home *home, weir_call *call)
{
    weir_connection *self = WEIR_CONTAINER(call, weir_connection, returned);
    weir_connection_pool *pool = self->pool;
    step next = { .what = NOTHING };
    (void)home;
    weir__connection_pool_lock(pool);
    if (self->state == WEIR__RETURNING)
        next = end_loan(self);
    weir__connection_pool_unlock(pool);
    take_step(pool, &next);
    weir__connection_pool_pump(pool);
    release(self);
}

int weir_connection_pool_give_back(weir_connection_pool *pool, weir_channel *channel)
{
    weir_connection *self = channel != NULL ? weir_channel_attr(channel, &connection_key) : NULL;
    if (pool == NULL || self == NULL || self->pool != pool)
        return -EINVAL;
    step next = { .what = NOTHING };
    bool has_to_wait = has_calls(channel);
    weir__connection_pool_lock(pool);
    weir_connection_state before = self->state;
    if (before == WEIR__LOST)
        set_state(self, WEIR__GONE);
    else if (before == WEIR__BORROWED && has_to_wait)
        set_state(retain(self), WEIR__RETURNING);
    else if (before == WEIR__BORROWED)
        next = end_loan(self);
    weir__connection_pool_unlock(pool);
    if (before != WEIR__LOST && before != WEIR__BORROWED)
        return -EINVAL;
    take_step(pool, &next);
    if (before == WEIR__BORROWED && has_to_wait) {
        self->returned.run = on_returned;
        weir__inbox_push(channel, &self->returned);
    }
    weir__connection_pool_pump(pool);
    return 0;
}

int weir_connection_pool_discard(weir_connection_pool *pool, weir_channel *channel)
{
    weir_connection *self = channel != NULL ? weir_channel_attr(channel, &connection_key) : NULL;
    if (pool == NULL || self == NULL || self->pool != pool)
        return -EINVAL;
    weir__connection_pool_lock(pool);
    bool is_lent = self->state == WEIR__BORROWED || self->state == WEIR__LOST;
    weir__connection_pool_unlock(pool);
    if (!is_lent)
        return -EINVAL;
    weir_channel_close(channel, NULL); /* first: after its return it could be lent again */
    return weir_connection_pool_give_back(pool, channel);
}

/* Closing -------------------------------------------------------------------------------------- */

weir_channel *weir__connection_begin_close(weir_connection *self)
{
    set_state(self, WEIR__CLOSING);
    return weir_channel_retain(self->channel);
}

bool weir__connection_close_first(weir_connection_pool *pool, weir_list *list)
{
    step closed = { .what = NOTHING };
    weir__connection_pool_lock(pool);
    weir_connection *first = first_of(list);
    if (first != NULL) {
        closed = make_step(first, WEIR__CLOSING); /* which removes it from the list */
        closed.what = CLOSE;
    }
    weir__connection_pool_unlock(pool);
    take_step(pool, &closed);
    return first != NULL;
}

bool weir__connection_cancel(weir_connection_pool *pool)
{
    weir__connection_pool_lock(pool);
    weir_connection *first = first_of(&pool->connecting);
    weir_promise *promise = NULL;
    if (first != NULL) {
        weir__list_remove(&first->node);
        promise = weir_promise_retain(first->connected);
    }
    weir__connection_pool_unlock(pool);
    weir_future_cancel(weir_promise_future(promise));
    weir_promise_release(promise);
    return first != NULL;
}
