/* SPDX-License-Identifier: MIT */
/* The list of threads that post. */
#include "exec/posters.h"

#include "base/list.h"

#include <pthread.h>
#include <sched.h>

_Thread_local weir_poster weir__poster;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static weir_list posters = { .ring = { &posters.ring, &posters.ring } };
static pthread_key_t at_thread_exit;
static bool has_key;

static void unlist(void *arg)
{
    weir_poster *self = arg;
    pthread_mutex_lock(&lock);
    weir__list_remove(&self->node);
    pthread_mutex_unlock(&lock);
    self->is_listed = false;
}

static void make_key(void)
{
    has_key = pthread_key_create(&at_thread_exit, unlist) == 0;
}

/* A record that nothing would unlist when its thread ends must not be listed. */
bool weir__poster_list(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    if (!has_key || pthread_setspecific(at_thread_exit, &weir__poster) != 0)
        return false;
    pthread_mutex_lock(&lock);
    weir__list_push_back(&posters, &weir__poster.node);
    pthread_mutex_unlock(&lock);
    weir__poster.is_listed = true;
    return true;
}

static bool is_named_by_others(const weir_executor *executor)
{
    bool is_named = false;
    pthread_mutex_lock(&lock);
    for (weir_list_node *node = weir__list_first(&posters); node != NULL && !is_named;
         node = weir__list_next(&posters, node)) {
        const weir_poster *poster = WEIR_CONTAINER(node, weir_poster, node);
        is_named = poster != &weir__poster &&
                   atomic_load_explicit(&poster->executor, memory_order_acquire) == executor;
    }
    pthread_mutex_unlock(&lock);
    return is_named;
}

void weir__posters_wait(const weir_executor *executor)
{
    while (is_named_by_others(executor))
        sched_yield();
}
