/* SPDX-License-Identifier: MIT */
/* Connection pools: who waits, and the pool itself. */
#include "bootstrap/connection_pool.h"

#include "base/alloc.h"
#include "bootstrap/client.h"

#include <errno.h>
#include <inttypes.h>

#define DEFAULT_MAX 16
#define DEFAULT_MAX_PENDING 1024
#define DEFAULT_ACQUIRE_TIMEOUT_NS WEIR_SECONDS(30)
#define DEFAULT_FINISH_TIMEOUT_NS WEIR_SECONDS(10)

/* Counting ------------------------------------------------------------------------------------- */

static void destroy(weir_connection_pool *pool)
{
    weir__client_free_copy(&pool->client);
    if (pool->init_release != NULL)
        pool->init_release(pool->client.arg);
    weir__free(pool->address);
    weir__free(pool->local);
    pthread_mutex_destroy(&pool->lock);
    weir__free(pool);
}

weir_connection_pool *weir__connection_pool_hold(weir_connection_pool *pool)
{
    atomic_fetch_add_explicit(&pool->holds, 1, memory_order_relaxed);
    return pool;
}

void weir__connection_pool_let_go(weir_connection_pool *pool)
{
    if (atomic_fetch_sub_explicit(&pool->holds, 1, memory_order_acq_rel) == 1)
        destroy(pool);
}

/* The line ------------------------------------------------------------------------------------- */

/* Under the lock. */
static void leave_line(weir_waiter *self)
{
    weir__list_remove(&self->node);
    self->pool->stats.waiting--;
}

weir_waiter *weir__connection_pool_pop(weir_connection_pool *pool)
{
    weir_list_node *node = weir__list_first(&pool->line);
    weir_waiter *first = node != NULL ? WEIR_CONTAINER(node, weir_waiter, node) : NULL;
    if (first != NULL)
        leave_line(first);
    return first;
}

void weir__connection_pool_fail(weir_waiter *waiter, int code)
{
    weir_error error;
    if (waiter == NULL)
        return;
    weir_error_set(&error, code, "connection pool", "no connection to %s: %s",
                   waiter->pool->address, weir_error_text(code));
    weir__operation_fail(&waiter->operation, &error);
}

void weir__connection_pool_fail_all(weir_connection_pool *pool, int code)
{
    weir_waiter *first;
    do {
        weir__connection_pool_lock(pool);
        first = weir__connection_pool_pop(pool);
        weir__connection_pool_unlock(pool);
        weir__connection_pool_fail(first, code);
    } while (first != NULL);
}

/* Any thread. */
static void cancelled(weir_operation *operation)
{
    weir_waiter *self = WEIR_CONTAINER(operation, weir_waiter, operation);
    weir_connection_pool *pool = self->pool;
    weir__connection_pool_lock(pool);
    bool is_in_line = weir__list_is_linked(&self->node);
    if (is_in_line)
        leave_line(self);
    weir__connection_pool_unlock(pool);
    if (is_in_line)
        weir__operation_end(operation, -ECANCELED);
}

static void destroy_waiter(weir_operation *operation)
{
    weir_waiter *self = WEIR_CONTAINER(operation, weir_waiter, operation);
    weir_connection_pool *pool = self->pool;
    weir__free(self);
    weir__connection_pool_let_go(pool);
}

static const weir_operation_type waiter_type = { .cancelled = cancelled,
                                                 .destroy = destroy_waiter };

/* Under the lock: 0, or why not. */
static int join_line(weir_connection_pool *pool, weir_waiter *self)
{
    const weir_connection_pool_stats *stats = &pool->stats;
    if (pool->is_closed)
        return WEIR_ECLOSED;
    if (stats->waiting >= pool->max - stats->borrowed + pool->max_pending)
        return WEIR_ELIMIT;
    self->since_ns = weir__connection_pool_now_ns(pool);
    weir__list_push_back(&pool->line, &self->node);
    pool->stats.waiting++;
    return 0;
}

void weir_connection_pool_acquire(weir_connection_pool *pool, weir_promise *promise)
{
    if (pool == NULL || promise == NULL) {
        weir__promise_end(promise, -EINVAL);
        return;
    }
    weir_waiter *self = weir__zalloc(sizeof *self);
    if (self == NULL) {
        weir_promise_set(promise, -ENOMEM);
        return;
    }
    self->pool = weir__connection_pool_hold(pool);
    weir__operation_init(&self->operation, &waiter_type, promise, NULL);
    weir__connection_pool_lock(pool);
    int code = join_line(pool, self);
    weir__connection_pool_unlock(pool);
    if (code < 0)
        weir__connection_pool_fail(self, code);
    weir__operation_watch(&self->operation);
    if (code < 0)
        return;
    weir__time_limit_arm(&pool->patience);
    weir__connection_pool_pump(pool);
}

/* Closing -------------------------------------------------------------------------------------- */

void weir__connection_pool_tell_if_over(weir_connection_pool *pool)
{
    weir_promise_list told = { 0 };
    weir__connection_pool_lock(pool);
    if (pool->is_closed && weir__connection_pool_places(&pool->stats) == 0) {
        told = pool->on_closed;
        pool->on_closed = (weir_promise_list){ 0 };
    }
    weir__connection_pool_unlock(pool);
    weir__promises_complete(&told, 0);
}

void weir_connection_pool_close(weir_connection_pool *pool, weir_promise *promise)
{
    if (pool == NULL) {
        weir__promise_end(promise, -EINVAL);
        return;
    }
    weir__connection_pool_hold(pool);
    weir__connection_pool_lock(pool);
    pool->is_closed = true;
    weir__promises_add(&pool->on_closed, promise);
    weir__connection_pool_unlock(pool);
    weir__connection_pool_fail_all(pool, WEIR_ECLOSED);
    weir_timer_cancel(&pool->patience.timer);
    weir_timer_cancel(&pool->boredom.timer);
    while (weir__connection_close_first(pool, &pool->idle) ||
           weir__connection_close_first(pool, &pool->finishing) || weir__connection_cancel(pool))
        continue;
    weir__connection_pool_tell_if_over(pool);
    weir__connection_pool_let_go(pool);
}

void weir_connection_pool_get_stats(weir_connection_pool *pool, weir_connection_pool_stats *stats)
{
    weir__connection_pool_lock(pool);
    *stats = pool->stats;
    weir__connection_pool_unlock(pool);
}

/* Making --------------------------------------------------------------------------------------- */

static int refuse(weir_error *error, const char *what, int64_t value)
{
    return weir_error_set(error, -EINVAL, "connection pool", "%s is %" PRId64 ", which is negative",
                          what, value);
}

static int check_config(const weir_connection_pool_config *config, const char *address,
                        weir_error *error)
{
    if (config == NULL)
        return weir_error_set(error, -EINVAL, "connection pool", "there is no config");
    if (config->max < 0)
        return refuse(error, "max", config->max);
    if (config->max_pending < 0 && config->max_pending != WEIR_OFF)
        return refuse(error, "max_pending", config->max_pending);
    if (config->acquire_timeout_ns < 0 && config->acquire_timeout_ns != WEIR_OFF)
        return refuse(error, "acquire_timeout_ns", config->acquire_timeout_ns);
    if (config->idle_timeout_ns < 0 && config->idle_timeout_ns != WEIR_OFF)
        return refuse(error, "idle_timeout_ns", config->idle_timeout_ns);
    if (config->finish_timeout_ns < 0 && config->finish_timeout_ns != WEIR_OFF)
        return refuse(error, "finish_timeout_ns", config->finish_timeout_ns);
    return weir__client_check(&config->client, address, error);
}

static int64_t with_default(int64_t value, int64_t by_default)
{
    return value != 0 ? value : by_default;
}

/* The loops of a group that has one for each channel are for channels only. */
static weir_executor *executor_of(weir_group *group)
{
    weir_executor *next = weir_group_next(group);
    return next != NULL ? next : weir_group_background(group);
}

static bool copy_config(weir_connection_pool *pool, const weir_connection_pool_config *config,
                        const char *address)
{
    bool has_memory = weir__client_copy(&pool->client, &config->client);
    pool->address = weir__strdup(address);
    if (config->client.local != NULL)
        pool->client.local = pool->local = weir__strdup(config->client.local);
    return has_memory && pool->address != NULL &&
           (config->client.local == NULL || pool->local != NULL);
}

int weir_connection_pool_new(weir_connection_pool **out, const weir_connection_pool_config *config,
                             const char *address, weir_error *error)
{
    int code = check_config(config, address, error);
    if (code < 0 || out == NULL)
        return code < 0 ? code
                        : weir_error_set(error, -EINVAL, "connection pool", "no place for it");
    weir_connection_pool *pool = weir__zalloc(sizeof *pool);
    if (pool == NULL)
        return weir_error_set(error, -ENOMEM, "connection pool", "no memory for it");
    pthread_mutex_init(&pool->lock, NULL);
    if (!copy_config(pool, config, address)) {
        destroy(pool);
        return weir_error_set(error, -ENOMEM, "connection pool", "no memory for it");
    }
    atomic_init(&pool->refs, 1);
    atomic_init(&pool->holds, 1);
    int64_t pending = with_default(config->max_pending, DEFAULT_MAX_PENDING);
    pool->max = (size_t)with_default(config->max, DEFAULT_MAX);
    pool->max_pending = pending > 0 ? (size_t)pending : 0;
    int64_t finish_ns = with_default(config->finish_timeout_ns, DEFAULT_FINISH_TIMEOUT_NS);
    pool->finish_timeout_ns = finish_ns > 0 ? finish_ns : 0;
    pool->check = config->check;
    pool->check_arg = config->check_arg;
    pool->executor = executor_of(config->client.group);
    weir__time_limit_init(&pool->patience, pool,
                          with_default(config->acquire_timeout_ns, DEFAULT_ACQUIRE_TIMEOUT_NS));
    weir__time_limit_init(&pool->boredom, pool, config->idle_timeout_ns);
    pool->init_release = config->client.arg_release; /* once, not for each connection */
    pool->client.arg_release = NULL;
    weir__list_init(&pool->line);
    weir__list_init(&pool->idle);
    weir__list_init(&pool->connecting);
    weir__list_init(&pool->finishing);
    *out = pool;
    return 0;
}

weir_connection_pool *weir_connection_pool_retain(weir_connection_pool *pool)
{
    if (pool != NULL)
        atomic_fetch_add_explicit(&pool->refs, 1, memory_order_relaxed);
    return pool;
}

void weir_connection_pool_release(weir_connection_pool *pool)
{
    if (pool == NULL || atomic_fetch_sub_explicit(&pool->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir_connection_pool_close(pool, NULL);
    weir__connection_pool_let_go(pool);
}
