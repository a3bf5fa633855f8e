/* SPDX-License-Identifier: MIT */
/* The global executor: a plain one whose thread comes and goes. */
#include "base/clock.h"

#include "base/sys.h"
#include "exec/blocking_pool.h"
#include "exec/executor.h"
#include "exec/lifecycle.h"

#include <weir/threads.h>

#include <errno.h>

/*
 * Its thread ends while it sleeps: it leaves the executor asleep, and whoever wakes that starts the
 * next thread. So the protocol of sleeping and waking that all executors have also keeps two
 * threads from running at a time, and a task from being lost between them.
 */
#define IDLE_NS 1000000000

typedef struct global_executor {
    weir_executor base;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_woken;
    bool has_thread;
    unsigned waiting; /* callers of weir_executor_global_wait_idle: an idle thread ends for them */
    pthread_t thread; /* the last one there was */
    bool has_handle;  /* which nobody has joined */
} global_executor;

static global_executor global;

/* The blocking wait, under a name that a stack trace shows. False when it was not woken, and the
 * thread, unless it has to be there for a timer, shall end. */
static bool wait_for_tasks(const struct timespec *until, bool has_timer)
{
    int error = 0;
    pthread_mutex_lock(&global.lock);
    while (!global.is_woken && error == 0 && (has_timer || global.waiting == 0))
        error = pthread_cond_clockwait(&global.changed, &global.lock, CLOCK_MONOTONIC, until);
    bool stays = global.is_woken || has_timer;
    global.is_woken = false;
    global.has_thread = stays;
    if (!stays)
        pthread_cond_broadcast(&global.changed);
    pthread_mutex_unlock(&global.lock);
    return stays;
}

/* Waits for the next task or timer; false when the thread shall end, and leave the executor asleep.
 */
static bool rest(weir_executor *executor)
{
    int64_t timeout_ns;
    if (!weir__executor_fall_asleep(executor, -1, &timeout_ns))
        return true;
    bool has_timer = timeout_ns >= 0;
    if (executor->timers.count == 0)
        weir__heap_deinit(&executor->timers); /* nothing is kept while there is no thread */
    struct timespec until = weir__clock_until(has_timer ? timeout_ns : IDLE_NS);
    if (!wait_for_tasks(&until, has_timer))
        return false;
    weir__executor_get_up(executor);
    return true;
}

static void *run_thread(void *arg)
{
    weir_executor *executor = arg;
    weir__executor_set_current(executor);
    weir__executor_get_up(executor);
    do {
        weir__executor_read_clock(executor);
        weir__executor_run_batch(executor);
    } while (rest(executor));
    weir__executor_set_current(NULL);
    return NULL;
}

/* The thread that was there before has nothing left to do but to end. Under the lock. */
static void join_last(void)
{
    if (global.has_handle)
        pthread_join(global.thread, NULL);
    global.has_handle = false;
}

static int global_wake(weir_executor *executor)
{
    int code = 0;
    pthread_mutex_lock(&global.lock);
    if (global.has_thread) {
        global.is_woken = true;
        pthread_cond_broadcast(&global.changed);
    } else {
        join_last();
        weir_thread_config config = { .name = executor->name, .cpu = WEIR_OFF };
        code = executor->sys->thread_create(executor->sys, &global.thread, &config, run_thread,
                                            executor);
        global.has_thread = global.has_handle = code == 0;
    }
    if (code == 0)
        pthread_mutex_unlock(&global.lock);
    return code;
}

/* The lock kept others from starting a thread. */
static void global_wake_failed(weir_executor *executor)
{
    (void)executor;
    pthread_mutex_unlock(&global.lock);
}

static const weir_executor_type global_type = {
    .name = "global executor",
    .wake = global_wake,
    .wake_failed = global_wake_failed,
};

static void init_global(void)
{
    weir__executor_init(&global.base, &global_type,
                        &(weir_executor_config){ .name = "weir-global", .cpu = WEIR_OFF });
    pthread_mutex_init(&global.lock, NULL);
    pthread_cond_init(&global.changed, NULL);
    global.base.is_global = true;
    weir__executor_start_manual(&global.base); /* that is: without a thread, and asleep */
}

weir_executor *weir_executor_global(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_global);
    return &global.base;
}

int weir_executor_global_wait_idle(int64_t timeout_ns)
{
    if (weir_executor_is_current(weir_executor_global()))
        return -EDEADLK;
    int error = 0;
    struct timespec until = weir__clock_until(timeout_ns > 0 ? timeout_ns : 0);
    pthread_mutex_lock(&global.lock);
    global.waiting++;
    pthread_cond_broadcast(&global.changed);
    while (global.has_thread && error == 0)
        error = pthread_cond_clockwait(&global.changed, &global.lock, CLOCK_MONOTONIC, &until);
    global.waiting--;
    if (!global.has_thread) {
        join_last();
        error = 0;
    }
    pthread_mutex_unlock(&global.lock);
    return error != 0 ? -error : weir__blocking_pools_wait_idle(&until);
}
