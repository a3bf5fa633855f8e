/* SPDX-License-Identifier: MIT */
/* Executors: the way from the first task to termination, on a thread or by steps. */
#include "exec/lifecycle.h"

#include "base/sys.h"
#include "base/time_sum.h"
#include "exec/per_channel.h"
#include "exec/posters.h"
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

static bool change_state(weir_executor *executor, int from, int to)
{
    return atomic_compare_exchange_strong_explicit(&executor->state, &from, to,
                                                   memory_order_seq_cst, memory_order_seq_cst);
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
        weir__executor_set_running(executor, "shutdown hooks");
        hook->run(hook);
        weir__notices_run();
        has_run = true;
    }
    weir__executor_set_running(executor, NULL);
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

/* Computed when it is needed: the last channel may close at any moment, also in a turn that runs
 * nothing else. */
int64_t weir__executor_end_ns(const weir_executor *executor)
{
    int64_t quiet_ns = atomic_load_explicit(&executor->quiet_ns, memory_order_acquire);
    int64_t timeout_ns = atomic_load_explicit(&executor->timeout_ns, memory_order_acquire);
    int64_t last_run_ns = atomic_load_explicit(&executor->last_run_ns, memory_order_relaxed);
    int64_t timeout_end_ns = weir__time_sum(executor->end_start_ns, timeout_ns);
    int64_t quiet_end_ns = weir__time_sum(last_run_ns, quiet_ns);
    return has_channels(executor) || timeout_end_ns < quiet_end_ns ? timeout_end_ns : quiet_end_ns;
}

bool weir__executor_confirm_shutdown(weir_executor *executor, int64_t *max_wait_ns)
{
    *max_wait_ns = -1;
    if (state_of(executor) < WEIR_EXECUTOR_SHUTTING_DOWN)
        return false;
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
    int64_t end_ns = weir__executor_end_ns(executor);
    if (end_ns <= now_ns)
        return true;
    *max_wait_ns = end_ns - now_ns;
    return false;
}

/* Runs what is left until the shutdown is over, for a body that ended too early, and for tasks that
 * slipped in at the last moment. */
static void drain(weir_executor *executor)
{
    int64_t max_wait_ns;
    while (!weir__executor_confirm_shutdown(executor, &max_wait_ns))
        weir__executor_sleep(executor, max_wait_ns);
}

int weir__executor_take_back(weir_executor *executor, weir_task_queue *queue, weir_task *task)
{
    pthread_mutex_lock(&executor->end_lock);
    bool is_mine = weir__task_queue_take_back(queue, task);
    pthread_mutex_unlock(&executor->end_lock);
    return is_mine ? WEIR_ESHUTDOWN : 0;
}

static weir_task *pop_late_task(weir_executor *executor)
{
    pthread_mutex_lock(&executor->end_lock);
    weir_task *task = weir__task_queue_pop(&executor->tasks);
    if (task == NULL)
        task = weir__task_queue_pop(&executor->tail_tasks);
    pthread_mutex_unlock(&executor->end_lock);
    return task;
}

/* Drops the tasks that were accepted too late to run. Posters that have seen TERMINATED take their
 * own tasks back at the same time, hence the lock. */
static unsigned drop_late_tasks(weir_executor *executor)
{
    unsigned count = 0;
    weir_task *task;
    while ((task = pop_late_task(executor)) != NULL) {
        count++;
        if (task->dropped != NULL)
            task->dropped(task);
    }
    return count;
}

/* Everything is closed: sets the state, drops late tasks, then completes the future. */
static void terminate(weir_executor *executor)
{
    advance(executor, WEIR_EXECUTOR_TERMINATED);
    unsigned left = drop_late_tasks(executor);
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

/* Retiring ----------------------------------------------------------------------------------- */

static bool is_unused(weir_executor *executor)
{
    return executor->timers.count == 0 && !has_channels(executor) &&
           weir__list_is_empty(&executor->shutdown_hooks) &&
           weir__list_is_empty(&executor->pass_hooks) && !weir__executor_has_tasks(executor) &&
           !weir__executor_is_busy(executor) && weir__notices.first == NULL;
}

/* False after a shutdown, or if there is a task and no other thread has begun to start a thread for
 * it. A poster pushes, then looks at the state; this sets the state, then looks at the queues. So a
 * task is found by its poster or here. */
static bool give_up_state(weir_executor *executor)
{
    return change_state(executor, WEIR_EXECUTOR_STARTED, WEIR_EXECUTOR_NOT_STARTED) &&
           !(weir__executor_has_tasks(executor) &&
             change_state(executor, WEIR_EXECUTOR_NOT_STARTED, WEIR_EXECUTOR_STARTED));
}

/*
 * Ends the thread of an idle executor: true, and then the next post starts another. While the
 * executor is awake only threads that found it asleep before can wake it, and those are waited for.
 * The decision comes first, and nothing fails after it; the start of the next thread waits for the
 * lock.
 */
static bool retire(weir_executor *executor)
{
    pthread_t previous;
    bool has_previous = false;
    if (!is_unused(executor) || state_of(executor) != WEIR_EXECUTOR_STARTED)
        return false;
    weir__posters_wait(executor);
    weir__watchdog_unwatch(executor); /* without the lock: a report may post here */
    pthread_mutex_lock(&executor->end_lock);
    bool is_retired = give_up_state(executor);
    if (is_retired) {
        executor->may_retire = false;
        weir__heap_deinit(&executor->timers);
        executor->type->retire(executor);
        has_previous = weir__per_channel_retire(executor, &previous);
    }
    pthread_mutex_unlock(&executor->end_lock);
    if (has_previous)
        pthread_join(previous, NULL);
    if (!is_retired)
        weir__watchdog_watch(executor);
    return is_retired;
}

bool weir__executor_run_turns(weir_executor *executor)
{
    int64_t max_wait_ns;
    while (!weir__executor_confirm_shutdown(executor, &max_wait_ns)) {
        executor->type->turn(executor, max_wait_ns);
        if (executor->may_retire && retire(executor))
            return false;
    }
    return true;
}

static void *run_thread(void *arg)
{
    weir_executor *executor = arg;
    weir__executor_set_current(executor);
    weir__executor_read_clock(executor);
    weir__watchdog_watch(executor);
    if (executor->type->begin != NULL)
        executor->type->begin(executor);
    bool is_over = true;
    if (executor->type->run != NULL)
        executor->type->run(executor);
    else
        is_over = weir__executor_run_turns(executor);
    if (is_over) {
        weir__watchdog_unwatch(executor);
        finish(executor);
    }
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
    /* The previous thread may still close its backend: see retire. */
    pthread_mutex_lock(&executor->end_lock);
    pthread_mutex_unlock(&executor->end_lock);
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

/* Terminates an executor that never had a thread. The caller's thread acts as the executor's, so
 * that `dropped` callbacks run on the executor's current thread. */
static void terminate_without_thread(weir_executor *executor)
{
    weir_executor *outer = weir__executor_set_current(executor);
    weir_notices notices = weir__notices_enter();
    advance(executor, WEIR_EXECUTOR_SHUTDOWN);
    terminate(executor);
    weir__notices_leave(notices);
    weir__executor_set_current(outer);
}

/* Whoever wins the state starts the thread. When that fails it takes its own task back, if it has
 * one;
 * `*has_others` is whether there are tasks of others, who were told that theirs will run. */
static int try_start(weir_executor *executor, weir_task_queue *queue, weir_task *own,
                     bool *has_others)
{
    if (!change_state(executor, WEIR_EXECUTOR_NOT_STARTED, WEIR_EXECUTOR_STARTED))
        return 0;
    atomic_store_explicit(&executor->start_code, 0, memory_order_relaxed);
    int code = launch(executor);
    if (code >= 0)
        return 0; /* it may have ended, and be gone */
    atomic_store_explicit(&executor->start_code, code, memory_order_relaxed);
    /* Nobody else takes tasks from the queue, until the state goes back. */
    if (own != NULL)
        weir__task_queue_take_back(queue, own);
    *has_others = weir__executor_has_taken(executor);
    if (!change_state(executor, WEIR_EXECUTOR_STARTED, WEIR_EXECUTOR_NOT_STARTED))
        terminate_without_thread(executor); /* a shutdown came in between, and counts on a thread */
    return code;
}

int weir__executor_start(weir_executor *executor, weir_task_queue *queue, weir_task *task)
{
    bool has_others = false;
    int code = try_start(executor, queue, task, &has_others);
    if (code >= 0 || (!has_others && !weir__executor_has_new(executor)))
        return code;
    int again = try_start(executor, queue, NULL, &has_others);
    if (again < 0)
        weir_log(WEIR_LOG_ERROR, executor->name, "has tasks, but no thread to run them yet: %s",
                 weir_error_text(again));
    return task != NULL ? code : again;
}

int weir__executor_need_thread(weir_executor *executor)
{
    if (state_of(executor) == WEIR_EXECUTOR_STARTED)
        return 0;
    int code = weir__executor_start(executor, &executor->tasks, NULL);
    return code == 0 && state_of(executor) >= WEIR_EXECUTOR_SHUTTING_DOWN ? WEIR_ESHUTDOWN : code;
}

int weir_executor_shutdown(weir_executor *executor, int64_t quiet_ns, int64_t timeout_ns)
{
    int64_t unset = -1;
    if (executor == NULL || quiet_ns < 0 || timeout_ns < quiet_ns)
        return -EINVAL;
    if (executor->is_global)
        return -EPERM;
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
    weir_notices notices = weir__notices_enter();
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
    weir__notices_leave(notices);
    executor->is_in_turn = false;
    weir__executor_set_current(outer);
    return has_done;
}
