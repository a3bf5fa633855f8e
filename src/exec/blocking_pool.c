/* SPDX-License-Identifier: MIT */
/* The threads for calls that block: started on demand, and gone after an idle second. */
#include "exec/blocking_pool.h"

#include "base/clock.h"
#include "base/sys.h"

#include <errno.h>

#define IDLE_NS 1000000000

struct weir_blocking_pool {
    const char *thread_name;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    weir_list calls; /* that no thread has taken yet */
    size_t call_count;
    unsigned threads, idle;
    unsigned waiting; /* for the end of all threads */
    pthread_t last;   /* the thread that ended last, to be joined by the next one */
    bool has_last;
};

#define POOL(pool, name)                                                                           \
    {                                                                                              \
        .thread_name = (name), .lock = PTHREAD_MUTEX_INITIALIZER,                                  \
        .changed = PTHREAD_COND_INITIALIZER, .calls = {                                            \
            { &(pool).calls.ring, &(pool).calls.ring }                                             \
        }                                                                                          \
    }

weir_blocking_pool weir__name_pool = POOL(weir__name_pool, "weir-names");
weir_blocking_pool weir__file_pool = POOL(weir__file_pool, "weir-files");

static _Thread_local bool is_pool_thread;

/* Under the lock: the next call, or NULL when the thread has been idle for long enough. */
static weir_blocking_call *take_call(weir_blocking_pool *pool)
{
    struct timespec until = weir__clock_until(IDLE_NS);
    int error = 0;
    pool->idle++;
    while (pool->call_count == 0 && error == 0 && pool->waiting == 0)
        error = pthread_cond_clockwait(&pool->changed, &pool->lock, CLOCK_MONOTONIC, &until);
    pool->idle--;
    if (pool->call_count == 0)
        return NULL;
    pool->call_count--;
    return WEIR_CONTAINER(weir__list_pop_front(&pool->calls), weir_blocking_call, node);
}

/* Under the lock, which it releases. Each thread joins the one that ended before it. */
static void end_thread(weir_blocking_pool *pool)
{
    pthread_t before = pool->last;
    bool has_before = pool->has_last;
    pool->last = pthread_self();
    pool->has_last = true;
    pool->threads--;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    if (has_before)
        pthread_join(before, NULL);
}

static void *run_thread(void *arg)
{
    weir_blocking_pool *pool = arg;
    weir_blocking_call *call;
    is_pool_thread = true;
    pthread_mutex_lock(&pool->lock);
    while ((call = take_call(pool)) != NULL) {
        pthread_mutex_unlock(&pool->lock);
        call->run(call);
        pthread_mutex_lock(&pool->lock);
    }
    end_thread(pool);
    return NULL;
}

/* Under the lock: one more thread, if the calls need it and it may be. */
static int add_thread(weir_blocking_pool *pool, weir_sys *sys)
{
    pthread_t thread;
    const weir_thread_config config = { .name = pool->thread_name, .cpu = -1 };
    if (pool->call_count <= pool->idle || pool->threads == WEIR__BLOCKING_THREADS)
        return 0;
    int code = sys->thread_create(sys, &thread, &config, run_thread, pool);
    pool->threads += code == 0;
    return pool->threads > 0 ? 0 : code; /* those that run take it when they can */
}

int weir__blocking_pool_run(weir_blocking_pool *pool, weir_sys *sys, weir_blocking_call *call)
{
    pthread_mutex_lock(&pool->lock);
    weir__list_push_back(&pool->calls, &call->node);
    pool->call_count++;
    int code = add_thread(pool, sys);
    if (code < 0) {
        weir__list_remove(&call->node);
        pool->call_count--;
    } else {
        pthread_cond_broadcast(&pool->changed);
    }
    pthread_mutex_unlock(&pool->lock);
    return code;
}

static int wait_idle(weir_blocking_pool *pool, const struct timespec *until)
{
    int error = 0;
    pthread_mutex_lock(&pool->lock);
    pool->waiting++;
    pthread_cond_broadcast(&pool->changed);
    while (pool->threads > 0 && error == 0)
        error = pthread_cond_clockwait(&pool->changed, &pool->lock, CLOCK_MONOTONIC, until);
    pool->waiting--;
    if (pool->threads == 0) {
        error = 0;
        if (pool->has_last)
            pthread_join(pool->last, NULL);
        pool->has_last = false;
    }
    pthread_mutex_unlock(&pool->lock);
    return -error;
}

int weir__blocking_pools_wait_idle(const struct timespec *until)
{
    if (is_pool_thread)
        return -EDEADLK;
    int code = wait_idle(&weir__name_pool, until);
    return code < 0 ? code : wait_idle(&weir__file_pool, until);
}
