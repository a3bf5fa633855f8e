/* SPDX-License-Identifier: MIT */
/* The plain executor. */
#include "exec/plain.h"

#include "base/alloc.h"

#include <weir/pool.h>

#include <errno.h>
#include <time.h>

typedef struct plain_executor {
    weir_executor base;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool is_woken;
} plain_executor;

/* So long without a task, and the thread's pool gives back what it keeps. */
#define IDLE_NS 1000000000

/* The blocking wait, under a name that a stack trace shows. Whether it was woken. */
static bool wait_for_tasks(plain_executor *self, const struct timespec *until)
{
    int error = 0;
    pthread_mutex_lock(&self->lock);
    while (!self->is_woken && error == 0) {
        error = until != NULL
                    ? pthread_cond_clockwait(&self->woken, &self->lock, CLOCK_MONOTONIC, until)
                    : pthread_cond_wait(&self->woken, &self->lock);
    }
    bool is_woken = self->is_woken;
    self->is_woken = false;
    pthread_mutex_unlock(&self->lock);
    return is_woken;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

static void plain_wait(weir_executor *executor, int64_t timeout_ns)
{
    plain_executor *self = (plain_executor *)executor;
    int64_t until_ns;
    int64_t now_ns = weir_clock_now_ns(weir_clock_monotonic());
    if (timeout_ns < 0 || __builtin_add_overflow(now_ns, timeout_ns, &until_ns))
        until_ns = INT64_MAX;
    if (until_ns - now_ns > IDLE_NS) {
        struct timespec idle = timespec_of(now_ns + IDLE_NS);
        if (wait_for_tasks(self, &idle))
            return;
        weir_pool_trim(); /* what was in use until now counts as needed, but for the second time */
        weir_pool_trim();
    }
    struct timespec until = timespec_of(until_ns);
    wait_for_tasks(self, until_ns < INT64_MAX ? &until : NULL);
}

static void plain_wake(weir_executor *executor)
{
    plain_executor *self = (plain_executor *)executor;
    pthread_mutex_lock(&self->lock);
    self->is_woken = true;
    pthread_cond_signal(&self->woken);
    pthread_mutex_unlock(&self->lock);
}

static void plain_run(weir_executor *executor)
{
    while (!weir__executor_confirm_shutdown(executor)) {
        /* While it ends, confirming does the waiting, and knows for how long. */
        if (weir_executor_get_state(executor) < WEIR_EXECUTOR_SHUTTING_DOWN)
            weir__executor_sleep(executor, -1);
        weir__executor_read_clock(executor);
        weir__executor_run_batch(executor);
    }
}

static void plain_destroy(weir_executor *executor)
{
    plain_executor *self = (plain_executor *)executor;
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->woken);
    weir__free(self);
}

static const weir_executor_type plain_type = {
    .name = "executor",
    .run = plain_run,
    .wait = plain_wait,
    .wake = plain_wake,
    .destroy = plain_destroy,
};

int weir__plain_executor_new(weir_executor **executor, const weir_executor_config *config)
{
    plain_executor *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    weir__executor_init(&self->base, &plain_type, config);
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->woken, NULL);
    *executor = &self->base;
    return 0;
}
