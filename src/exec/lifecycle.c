/* SPDX-License-Identifier: MIT */
/* Executors: the way from the first task to termination, on a thread or by steps. */
#include "exec/lifecycle.h"

#include "base/sys.h"
#include "exec/timer.h"
#include "exec/watchdog.h"

#include <weir/log.h>

#include <errno.h>

static int state_of(const weir_executor *executor)
{
    return (int)weir_executor_get_state(executor);
}

/* Moves the state forward to `to`, or leaves it when it is there or beyond; returns what it was. */
static int advance(weir_executor *executor, int to)
{
    int state = state_of(executor);
    while (state < to &&
           !atomic_compare_exchange_weak_explicit(&executor->state, &state, to,
                                                  memory_order_seq_cst, memory_order_seq_cst)) {
    }
    return state;
}

/* Hooks -------------------------------------------------------------------------------------- */

static int add_hook(weir_executor *executor, weir_list *hooks, weir_hook *hook)
{
    if (hook == NULL || hook->run == NULL)
        return -EINVAL;
    if (!weir_executor_is_current(executor))
        return -EPERM;
    if (weir__list_is_linked(&hook->node))
        return -EBUSY;
    hook->executor = executor;
    weir__list_push_back(hooks, &hook->node);
    return 0;
}

int weir_executor_add_shutdown_hook(weir_executor *executor, weir_hook *hook)
{
    return executor != NULL ? add_hook(executor, &executor->shutdown_hooks, hook) : -EINVAL;
}

int weir_executor_add_pass_hook(weir_executor *executor, weir_hook *hook)
{
    return executor != NULL ? add_hook(executor, &executor->pass_hooks, hook) : -EINVAL;
}

int weir_executor_remove_hook(weir_executor *executor, weir_hook *hook)
{
    if (executor == NULL || hook == NULL)
        return -EINVAL;
    if (!weir_executor_is_current(executor))
        return -EPERM;
    if (!weir__list_is_linked(&hook->node) || hook->executor != executor)
        return WEIR_ENOTFOUND;
    if (executor->next_pass_hook == &hook->node)
        executor->next_pass_hook = weir__list_next(&executor->pass_hooks, &hook->node);
    weir__list_remove(&hook->node);
    return 0;
}

static bool run_shutdown_hooks(weir_executor *executor)
{
    bool has_run = false;
    weir_list_node *node;
    while ((node = weir__list_pop_front(&executor->shutdown_hooks)) != NULL) {
        weir_hook *hook = WEIR_CONTAINER(node, weir_hook, node);
        hook->run(hook);
        weir__notices_run();
        has_run = true;
    }
    return has_run;
}

/* Shutting down ------------------------------------------------------------------------------- */

static void begin_to_end(weir_executor *executor)
{
    if (executor->is_ending)
        return;
    executor->is_ending = true;
    executor->end_start_ns = weir__executor_read_clock(executor);
    atomic_store_explicit(&executor->last_run_ns, executor->now_ns, memory_order_relaxed);
}

/* A channel that is still closing keeps the quiet period from being over, but not the timeout. */
static bool has_channels(const weir_executor *executor)
{
    return atomic_load_explicit(&executor->channel_count, memory_order_relaxed) > 0;
}

bool weir__executor_confirm_shutdown(weir_executor *executor, int64_t *max_wait_ns)
{
    *max_wait_ns = -1;
    if (state_of(executor) < WEIR_EXECUTOR_SHUTTING_DOWN)
        return false;
    int64_t quiet_ns = atomic_load_explicit(&executor->quiet_ns, memory_order_acquire);
    int64_t timeout_ns = atomic_load_explicit(&executor->timeout_ns, memory_order_acquire);
    begin_to_end(executor);
    weir__timers_cancel_all(executor);
    weir__notices_run();
    bool has_run = weir__executor_run_batch(executor);
    has_run |= run_shutdown_hooks(executor);
    atomic_store_explicit(&executor->tasks_left, weir__task_queue_count(&executor->tasks),
                          memory_order_relaxed);
    int64_t now_ns = weir__executor_read_clock(executor);
    if (has_run)
        atomic_store_explicit(&executor->last_run_ns, now_ns, memory_order_relaxed);
    *max_wait_ns = 0;
    if (state_of(executor) >= WEIR_EXECUTOR_SHUTDOWN)
        return !has_run;
    int64_t left_ns = timeout_ns - (now_ns - executor->end_start_ns);
    if (left_ns <= 0)
        return true;
    int64_t idle_ns = now_ns - atomic_load_explicit(&executor->last_run_ns, memory_order_relaxed);
    if (!has_channels(executor)) {
        if (idle_ns >= quiet_ns)
            return !has_run || quiet_ns <= 0;
        if (quiet_ns - idle_ns < left_ns)
            left_ns = quiet_ns - idle_ns;
    }
    *max_wait_ns = left_ns;
    if (__builtin_add_overflow(now_ns, left_ns, &executor->end_check_ns))
        executor->end_check_ns = INT64_MAX;
    return false;
}

void weir__executor_run_turns(weir_executor *executor)
{
    int64_t max_wait_ns;
    while (!weir__executor_confirm_shutdown(executor, &max_wait_ns))
        executor->type->turn(executor, max_wait_ns);
}

/* Runs what is left until the shutdown is over, for a body that ended too early, and for tasks that
 * slipped in at the last moment. */
static void drain(weir_executor *executor)
{
    int64_t max_wait_ns;
    while (!weir__executor_confirm_shutdown(executor, &max_wait_ns))
        weir__executor_sleep(executor, max_wait_ns);
}

unsigned weir__executor_drop_tasks(weir_executor *executor, const weir_task *own, bool *has_own)
{
    unsigned count = 0;
    weir_task_queue *queues[] = { &executor->tasks, &executor->tail_tasks };
    for (int i = 0; i < 2;) {
        pthread_mutex_lock(&executor->end_lock);
        weir_task *task = weir__task_queue_pop(queues[i]);
        pthread_mutex_unlock(&executor->end_lock);
        if (task == NULL) {
            i++;
        } else if (task == own) {
            *has_own = true;
        } else {
            count++;
            if (task->dropped != NULL)
                task->dropped(task);
        }
    }
    return count;
}

/* Everything is closed: the state, then what came too late, then everybody who waits. */
static void terminate(weir_executor *executor)
{
    advance(executor, WEIR_EXECUTOR_TERMINATED);
    bool has_own = false;
    unsigned left = weir__executor_drop_tasks(executor, NULL, &has_own);
    if (left > 0)
        weir_log(WEIR_LOG_WARN, executor->name, "terminated with %u tasks left", left);
    weir__future_complete(&executor->terminated, 0);
    weir__notices_run();
}

/* The body is over: from the last tasks to termination. On the executor's thread. */
static void finish(weir_executor *executor)
{
    advance(executor, WEIR_EXECUTOR_SHUTTING_DOWN);
    if (!executor->is_ending)
        weir_log(WEIR_LOG_ERROR, executor->name,
                 "buggy %s: its body ended without confirming the shutdown", executor->type->name);
    if (!executor->is_manual)
        drain(executor); /* a step does not wait; it has been confirmed just now */
    /* From here on posts are refused; what slipped in before still runs. */
    advance(executor, WEIR_EXECUTOR_SHUTDOWN);
    drain(executor);
    weir__heap_deinit(&executor->timers);
    weir_list_node *node;
    while ((node = weir__list_first(&executor->pass_hooks)) != NULL)
        weir_executor_remove_hook(executor, WEIR_CONTAINER(node, weir_hook, node));
    if (executor->type->close != NULL)
        executor->type->close(executor);
    terminate(executor);
}

static void *run_thread(void *arg)
{
    weir_executor *executor = arg;
    weir__executor_set_current(executor);
    weir__executor_read_clock(executor);
    weir__watchdog_watch(executor);
    if (executor->type->run != NULL)
        executor->type->run(executor);
    else
        weir__executor_run_turns(executor);
    weir__watchdog_unwatch(executor);
    finish(executor);
    weir__executor_set_current(NULL);
    weir__executor_release(executor);
    return NULL;
}

/* A thread that somebody else made, and may use again: it has weir's signal mask for as long. */
static void run_foreign_thread(void *arg)
{
    sigset_t before;
    weir__sys_block_signals(&before);
    run_thread(arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Starting ----------------------------------------------------------------------------------- */

static int launch(weir_executor *executor)
{
    int code = executor->type->open != NULL ? executor->type->open(executor) : 0;
    if (code < 0)
        return code;
    atomic_fetch_add_explicit(&executor->refs, 1, memory_order_relaxed);
    if (executor->start != NULL) {
        code = executor->start(executor->start_arg, executor->name, run_foreign_thread, executor);
    } else {
        executor->is_joinable = true;
        weir_thread_config thread = { .name = executor->name,
                                      .stack_bytes = executor->stack_bytes,
                                      .cpu = executor->cpu };
        code = executor->sys->thread_create(executor->sys, &executor->thread, &thread, run_thread,
                                            executor);
    }
    if (code < 0) {
        executor->is_joinable = false;
        atomic_fetch_sub_explicit(&executor->refs, 1, memory_order_relaxed);
        if (executor->type->close != NULL)
            executor->type->close(executor);
    }
    return code;
}

/* Without a thread there is nothing to wait for. */
static void terminate_without_thread(weir_executor *executor)
{
    advance(executor, WEIR_EXECUTOR_SHUTDOWN);
    terminate(executor);
}

/* Whoever wins the state starts the thread. When that fails it takes its own task back, if it has
 * one;
 * `*has_others` is whether there are tasks of others, who were told that theirs will run. */
static int try_start(weir_executor *executor, weir_task_queue *queue, weir_task *own,
                     bool *has_others)
{
    int expected = WEIR_EXECUTOR_NOT_STARTED;
    if (!atomic_compare_exchange_strong_explicit(&executor->state, &expected, WEIR_EXECUTOR_STARTED,
                                                 memory_order_seq_cst, memory_order_seq_cst))
        return 0;
    atomic_store_explicit(&executor->start_code, 0, memory_order_relaxed);
    int code = launch(executor);
    if (code >= 0)
        return 0; /* it may have ended, and be gone */
    atomic_store_explicit(&executor->start_code, code, memory_order_relaxed);
    /* Nobody else takes tasks from the queue, until the state goes back. */
    if (own != NULL)
        weir__task_queue_take_back(queue, own);
    *has_others = weir__task_queue_taken(queue) > 0;
    expected = WEIR_EXECUTOR_STARTED;
    if (!atomic_compare_exchange_strong_explicit(&executor->state, &expected,
                                                 WEIR_EXECUTOR_NOT_STARTED, memory_order_seq_cst,
                                                 memory_order_seq_cst))
        terminate_without_thread(executor); /* a shutdown came in between, and counts on a thread */
    return code;
}

int weir__executor_start(weir_executor *executor, weir_task_queue *queue, weir_task *task)
{
    bool has_others = false;
    int code = try_start(executor, queue, task, &has_others);
    if (code >= 0 || (!has_others && !weir__task_queue_has_new(queue)))
        return code;
    int again = try_start(executor, queue, NULL, &has_others);
    if (again < 0)
        weir_log(WEIR_LOG_ERROR, executor->name, "has tasks, but no thread to run them yet: %s",
                 weir_error_text(again));
    return code;
}

int weir_executor_shutdown(weir_executor *executor, int64_t quiet_ms, int64_t timeout_ms)
{
    int64_t quiet_ns, timeout_ns, unset = -1;
    if (executor == NULL || quiet_ms < 0 || timeout_ms < quiet_ms)
        return -EINVAL;
    if (executor->is_global)
        return -EPERM;
    if (__builtin_mul_overflow(quiet_ms, 1000000, &quiet_ns))
        quiet_ns = INT64_MAX;
    if (__builtin_mul_overflow(timeout_ms, 1000000, &timeout_ns))
        timeout_ns = INT64_MAX;
    if (!atomic_compare_exchange_strong_explicit(&executor->timeout_ns, &unset, timeout_ns,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return 0;
    /* Somebody else may wait for the end, and free it as soon as it has come. */
    atomic_fetch_add_explicit(&executor->refs, 1, memory_order_relaxed);
    atomic_store_explicit(&executor->quiet_ns, quiet_ns, memory_order_release);
    int before = advance(executor, WEIR_EXECUTOR_SHUTTING_DOWN);
    if (before == WEIR_EXECUTOR_NOT_STARTED && (executor->is_manual || launch(executor) < 0))
        terminate_without_thread(executor);
    weir_executor_wake(executor);
    weir__executor_release(executor);
    return 0;
}

/* By steps ----------------------------------------------------------------------------------- */

int weir__executor_start_manual(weir_executor *executor)
{
    int code = executor->type->open != NULL ? executor->type->open(executor) : 0;
    if (code == 0) {
        advance(executor, WEIR_EXECUTOR_STARTED);
        weir__executor_set_resting(executor, true);
    }
    return code;
}

int weir__executor_step(weir_executor *executor, int64_t max_wait_ns)
{
    if (executor->is_in_turn)
        return -EDEADLK;
    if (state_of(executor) == WEIR_EXECUTOR_NOT_STARTED)
        return 0;
    if (state_of(executor) == WEIR_EXECUTOR_TERMINATED)
        return WEIR_ESHUTDOWN;
    int64_t wait_ns;
    bool has_done = true;
    weir_executor *outer = weir__executor_set_current(executor);
    executor->is_in_turn = true;
    weir__executor_set_resting(executor, false);
    executor->is_time_stale = true; /* its driver was elsewhere */
    if (weir__executor_confirm_shutdown(executor, &wait_ns)) {
        finish(executor);
    } else {
        bool is_shorter = wait_ns >= 0 && (max_wait_ns < 0 || wait_ns < max_wait_ns);
        has_done = executor->type->turn(executor, is_shorter ? wait_ns : max_wait_ns);
        weir__executor_set_resting(executor, true);
    }
    executor->is_in_turn = false;
    weir__executor_set_current(outer);
    return has_done;
}
