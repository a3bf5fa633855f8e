/* SPDX-License-Identifier: MIT */
/* A thread for each task. */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"
#include "base/sys.h"

#include <weir/threads.h>

#include <errno.h>
#include <stdio.h>

struct weir_threads {
    weir_sys *sys;
    char name[16];
    size_t stack_bytes;
    pthread_mutex_t lock; /* for the rest */
    pthread_cond_t ended;
    size_t running;
    weir_list over; /* threads to be joined */
};

typedef struct one_thread {
    weir_threads *threads;
    weir_thread_fn body;
    void *arg;
    pthread_t thread;
    weir_list_node node;
} one_thread;

static _Thread_local weir_threads *current_threads;

int weir_threads_new(weir_threads **out, const char *name, size_t stack_bytes)
{
    weir_threads *threads = out != NULL ? weir__zalloc(sizeof *threads) : NULL;
    if (threads == NULL)
        return out != NULL ? -ENOMEM : -EINVAL;
    threads->sys = weir__sys_linux();
    snprintf(threads->name, sizeof threads->name, "%s", name != NULL ? name : "weir-task");
    threads->stack_bytes = stack_bytes;
    pthread_mutex_init(&threads->lock, NULL);
    pthread_cond_init(&threads->ended, NULL);
    weir__list_init(&threads->over);
    *out = threads;
    return 0;
}

static void *run_one(void *arg)
{
    one_thread *self = arg;
    weir_threads *threads = self->threads;
    current_threads = threads;
    self->body(self->arg);
    pthread_mutex_lock(&threads->lock);
    weir__list_push_back(&threads->over, &self->node);
    threads->running--;
    pthread_cond_broadcast(&threads->ended);
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

/* Joins those that have ended; they are on their last instructions. Under the lock. */
static void join_over(weir_threads *threads)
{
    weir_list_node *node;
    while ((node = weir__list_pop_front(&threads->over)) != NULL) {
        one_thread *one = WEIR_CONTAINER(node, one_thread, node);
        pthread_mutex_unlock(&threads->lock);
        pthread_join(one->thread, NULL);
        weir__free(one);
        pthread_mutex_lock(&threads->lock);
    }
}

int weir_threads_start(void *arg, const char *name, weir_thread_fn body, void *body_arg)
{
    weir_threads *threads = arg;
    if (threads == NULL || body == NULL)
        return -EINVAL;
    one_thread *one = weir__zalloc(sizeof *one);
    if (one == NULL)
        return -ENOMEM;
    *one = (one_thread){ .threads = threads, .body = body, .arg = body_arg };
    weir_thread_config config = { .name = name != NULL ? name : threads->name,
                                  .stack_bytes = threads->stack_bytes,
                                  .cpu = WEIR_OFF };
    pthread_mutex_lock(&threads->lock);
    join_over(threads);
    /* Under the lock: the new thread cannot end before its handle is written. */
    int code = threads->sys->thread_create(threads->sys, &one->thread, &config, run_one, one);
    if (code == 0)
        threads->running++;
    pthread_mutex_unlock(&threads->lock);
    if (code < 0)
        weir__free(one);
    return code;
}

size_t weir_threads_count(weir_threads *threads)
{
    pthread_mutex_lock(&threads->lock);
    size_t count = threads->running;
    pthread_mutex_unlock(&threads->lock);
    return count;
}

void weir_threads_free(weir_threads *threads)
{
    if (threads == NULL)
        return;
    if (current_threads == threads) {
        weir__misuse(__func__, "called on one of the threads, which it would have to wait for");
        return;
    }
    pthread_mutex_lock(&threads->lock);
    while (threads->running > 0)
        pthread_cond_wait(&threads->ended, &threads->lock);
    join_over(threads);
    pthread_mutex_unlock(&threads->lock);
    pthread_mutex_destroy(&threads->lock);
    pthread_cond_destroy(&threads->ended);
    weir__free(threads);
}
