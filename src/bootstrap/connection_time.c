/* SPDX-License-Identifier: MIT */
/* How long who asks a pool has to wait, and a connection that nobody needs. */
#include "bootstrap/connection_pool.h"

#include "base/time_sum.h"

#include <errno.h>

/* How long until the oldest has waited long enough, 0 or less when it has; INT64_MAX when there is
 * none. Under the lock. */
static int64_t left_ns(const weir_time_limit *self)
{
    const weir_connection_pool *pool = self->pool;
    bool is_patience = self == &pool->patience;
    weir_list_node *node = is_patience ? weir__list_first(&pool->line)
                                       : weir__list_last(&pool->idle);
    if (node == NULL)
        return INT64_MAX;
    int64_t since_ns = is_patience ? WEIR_CONTAINER(node, weir_waiter, node)->since_ns
                                   : WEIR_CONTAINER(node, weir_connection, node)->idle_since_ns;
    return weir__time_sum(since_ns, self->after_ns) - weir__connection_pool_now_ns(pool);
}

/* Without it those in the line might wait for ever. */
static void end_limit(weir_time_limit *self, int code)
{
    weir_connection_pool *pool = self->pool;
    weir__connection_pool_lock(pool);
    self->is_armed = false;
    if (pool->is_closed)
        code = WEIR_ECLOSED;
    weir__connection_pool_unlock(pool);
    if (self == &pool->patience)
        weir__connection_pool_fail_all(pool, code);
    weir__connection_pool_let_go(pool);
}

static void schedule(weir_time_limit *self, int64_t delay_ns)
{
    int code = weir_timer_schedule(&self->timer, self->pool->executor, delay_ns);
    if (code < 0)
        end_limit(self, code);
}

/* Somebody may have begun to wait. */
void weir__time_limit_arm(weir_time_limit *self)
{
    weir_connection_pool *pool = self->pool;
    if (self->after_ns == 0)
        return;
    weir__connection_pool_lock(pool);
    int64_t delay_ns = left_ns(self);
    bool is_mine = !self->is_armed && !pool->is_closed && delay_ns < INT64_MAX;
    if (is_mine) {
        self->is_armed = true;
        weir__connection_pool_hold(pool);
    }
    weir__connection_pool_unlock(pool);
    if (is_mine)
        schedule(self, delay_ns);
}

/* The group ends, or the pool is closed, or there was no memory. */
static void limit_cancelled(weir_timer *timer)
{
    weir_time_limit *self = WEIR_CONTAINER(timer, weir_time_limit, timer);
    weir_executor_state state = weir_executor_get_state(self->pool->executor);
    end_limit(self, state >= WEIR_EXECUTOR_SHUTTING_DOWN ? WEIR_ESHUTDOWN : -ENOMEM);
}

/* One that has waited long enough: whether there was any. If not, how long to wait for the next. */
static bool expire_one(weir_time_limit *self, int64_t *next_ns)
{
    weir_connection_pool *pool = self->pool;
    weir_waiter *waiter = NULL;
    weir_channel *channel = NULL;
    weir__connection_pool_lock(pool);
    *next_ns = left_ns(self);
    bool is_due = *next_ns <= 0;
    if (is_due && self == &pool->patience) {
        waiter = weir__connection_pool_pop(pool);
        pool->stats.timeouts++;
    } else if (is_due) {
        channel = weir__connection_begin_close(
            WEIR_CONTAINER(weir__list_last(&pool->idle), weir_connection, node));
    } else if (*next_ns == INT64_MAX) {
        self->is_armed = false;
    }
    weir__connection_pool_unlock(pool);
    weir__connection_pool_fail(waiter, -ETIMEDOUT);
    if (channel != NULL)
        weir_channel_close(channel, NULL);
    weir_channel_release(channel);
    return is_due;
}

static int limit_reached(weir_timer *timer)
{
    weir_time_limit *self = WEIR_CONTAINER(timer, weir_time_limit, timer);
    int64_t next_ns;
    while (expire_one(self, &next_ns))
        continue;
    if (next_ns < INT64_MAX)
        schedule(self, next_ns);
    else
        weir__connection_pool_let_go(self->pool);
    return 0;
}

void weir__time_limit_init(weir_time_limit *self, weir_connection_pool *pool, int64_t after_ns)
{
    self->timer = (weir_timer){ .fire = limit_reached, .cancelled = limit_cancelled };
    self->timer.name = "connection pool";
    self->pool = pool;
    self->after_ns = after_ns > 0 ? after_ns : 0;
}
