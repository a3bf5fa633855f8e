/* SPDX-License-Identifier: MIT */
/* Executors: posting, waking, running, and the way from the first task to termination. */
#include "exec/executor.h"

#include "base/assert.h"
#include "exec/group.h"
#include "exec/timer.h"

#include <weir/log.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TASKS_PER_CLOCK_READ 64

/*
 * Sleeping. The executor says ASLEEP, looks at its queues once more, and waits. Who posts looks at
 * this after pushing; both go through one order of all such accesses, so one of the two sees the
 * other. Whoever turns ASLEEP into WOKEN makes the expensive call, so a burst of posts makes one.
 * WOKEN is also how a wake-up is remembered that comes while the executor is awake: its next sleep
 * is none.
 */
enum {
    AWAKE,
    ASLEEP,
    WOKEN,
};

static _Thread_local weir_executor *current_executor;

/* Looking ------------------------------------------------------------------------------------ */

weir_executor *weir_executor_current(void)
{
    return current_executor;
}

bool weir_executor_is_current(const weir_executor *executor)
{
    return executor != NULL && current_executor == executor;
}

static int state_of(const weir_executor *executor)
{
    return atomic_load_explicit(&executor->state, memory_order_seq_cst);
}

weir_executor_state weir_executor_get_state(const weir_executor *executor)
{
    return (weir_executor_state)state_of(executor);
}

weir_future *weir_executor_terminated(weir_executor *executor)
{
    return &executor->terminated;
}

weir_group *weir_executor_group(const weir_executor *executor)
{
    return executor->group;
}

const char *weir_executor_name(const weir_executor *executor)
{
    return executor->name;
}

int64_t weir_executor_now_ns(const weir_executor *executor)
{
    return executor->now_ns;
}

int64_t weir__executor_read_clock(weir_executor *executor)
{
    return executor->now_ns = weir_clock_now_ns(executor->clock);
}

static void add(_Atomic(uint64_t) *counter, uint64_t step)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + step, memory_order_relaxed);
}

void weir_executor_get_stats(const weir_executor *executor, weir_executor_stats *stats)
{
    *stats = (weir_executor_stats){
        .tasks_run = atomic_load_explicit(&executor->tasks_run, memory_order_relaxed),
        .tasks_queued = atomic_load_explicit(&executor->tasks.count, memory_order_relaxed),
        .tasks_rejected = atomic_load_explicit(&executor->rejected, memory_order_relaxed),
        .timers = atomic_load_explicit(&executor->timer_count, memory_order_relaxed),
        .wakeups = atomic_load_explicit(&executor->wakeups, memory_order_relaxed),
        .passes = atomic_load_explicit(&executor->passes, memory_order_relaxed),
        .last_run_ns = atomic_load_explicit(&executor->last_run_ns, memory_order_relaxed),
    };
}

/* Waking ------------------------------------------------------------------------------------- */

void weir_executor_wake(weir_executor *executor)
{
    if (atomic_exchange_explicit(&executor->sleep, WOKEN, memory_order_seq_cst) != ASLEEP)
        return;
    atomic_fetch_add_explicit(&executor->wakeups, 1, memory_order_relaxed);
    executor->type->wake(executor);
}

static void wake_if_asleep(weir_executor *executor)
{
    if (atomic_load_explicit(&executor->sleep, memory_order_seq_cst) == ASLEEP)
        weir_executor_wake(executor);
}

bool weir__executor_has_tasks(weir_executor *executor)
{
    return !weir__task_queue_is_empty(&executor->tasks) ||
           !weir__task_queue_is_empty(&executor->tail_tasks);
}

int64_t weir__executor_next_deadline_ns(const weir_executor *executor)
{
    const weir_heap_node *first = weir__heap_first(&executor->timers);
    return first != NULL ? first->key : INT64_MAX;
}

/* How long to wait; negative: for ever. */
static int64_t wait_ns(weir_executor *executor, int64_t max_ns)
{
    int64_t deadline_ns = weir__executor_next_deadline_ns(executor);
    if (deadline_ns == INT64_MAX)
        return max_ns;
    weir__executor_read_clock(executor); /* tasks may have taken a while */
    int64_t left_ns = deadline_ns > executor->now_ns ? deadline_ns - executor->now_ns : 0;
    return max_ns >= 0 && max_ns < left_ns ? max_ns : left_ns;
}

bool weir__executor_sleep(weir_executor *executor, int64_t max_ns)
{
    int64_t timeout_ns = wait_ns(executor, max_ns);
    int expected = AWAKE;
    if (timeout_ns == 0 ||
        !atomic_compare_exchange_strong_explicit(&executor->sleep, &expected, ASLEEP,
                                                 memory_order_seq_cst, memory_order_relaxed) ||
        weir__executor_has_tasks(executor)) {
        atomic_store_explicit(&executor->sleep, AWAKE, memory_order_seq_cst);
        return false;
    }
    executor->type->wait(executor, timeout_ns);
    atomic_store_explicit(&executor->sleep, AWAKE, memory_order_seq_cst);
    return true;
}

/* Posting ------------------------------------------------------------------------------------ */

/*
 * The executor has terminated, and nobody takes tasks from its queues any more but whoever finds
 * one there. Drops them and returns how many; `own` is not dropped but stays its poster's, who is
 * told by `*has_own`.
 */
static unsigned drop_tasks(weir_executor *executor, const weir_task *own, bool *has_own)
{
    unsigned count = 0;
    weir_task_queue *queues[] = { &executor->tasks, &executor->tail_tasks };
    for (int i = 0; i < 2;) {
        pthread_mutex_lock(&executor->end_lock);
        bool is_empty = weir__task_queue_is_empty(queues[i]);
        weir_task *task = is_empty ? NULL : weir__task_queue_pop(queues[i]);
        pthread_mutex_unlock(&executor->end_lock);
        if (task == NULL) {
            i += is_empty; /* else its producer is between its two steps */
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

static int reject(weir_executor *executor, const weir_task_queue *queue, weir_task *task)
{
    atomic_fetch_add_explicit(&executor->rejected, 1, memory_order_relaxed);
    if (executor->reject == NULL || queue != &executor->tasks)
        return -EAGAIN;
    return executor->reject(executor->reject_arg, executor, task);
}

static int start(weir_executor *executor, weir_task_queue *queue, weir_task *task);

/* A task was pushed from another thread: makes sure that somebody takes it, or takes it back. */
static int arrived(weir_executor *executor, weir_task_queue *queue, weir_task *task, bool wakes)
{
    bool has_own = false;
    switch (state_of(executor)) {
    case WEIR_EXECUTOR_NOT_STARTED:
        return start(executor, queue, task);
    case WEIR_EXECUTOR_TERMINATED:
        drop_tasks(executor, task, &has_own);
        return has_own ? WEIR_ESHUTDOWN : 0;
    default:
        if (wakes)
            wake_if_asleep(executor);
        return 0;
    }
}

int weir__executor_post_again(weir_executor *executor, weir_task *task)
{
    if (state_of(executor) >= WEIR_EXECUTOR_SHUTDOWN)
        return WEIR_ESHUTDOWN;
    int code = weir__task_queue_push(&executor->tasks, task);
    return code < 0 ? code : arrived(executor, &executor->tasks, task, true);
}

static int post(weir_executor *executor, weir_task_queue *queue, weir_task *task, bool wakes)
{
    if (executor == NULL || task == NULL || task->run == NULL)
        return -EINVAL;
    if (state_of(executor) >= WEIR_EXECUTOR_SHUTDOWN)
        return WEIR_ESHUTDOWN;
    if (weir__task_queue_push(queue, task) < 0)
        return reject(executor, queue, task);
    if (weir_executor_is_current(executor))
        return 0;
    return arrived(executor, queue, task, wakes);
}

int weir_executor_post(weir_executor *executor, weir_task *task)
{
    return post(executor, executor != NULL ? &executor->tasks : NULL, task, true);
}

int weir_executor_post_lazy(weir_executor *executor, weir_task *task)
{
    return post(executor, executor != NULL ? &executor->tasks : NULL, task, false);
}

int weir_executor_post_tail(weir_executor *executor, weir_task *task)
{
    return post(executor, executor != NULL ? &executor->tail_tasks : NULL, task, true);
}

int weir__executor_post_always(weir_executor *executor, weir_task *task)
{
    if (state_of(executor) == WEIR_EXECUTOR_TERMINATED)
        return WEIR_ESHUTDOWN;
    weir__task_queue_push_always(&executor->tasks, task);
    if (weir_executor_is_current(executor))
        return 0;
    return arrived(executor, &executor->tasks, task, true);
}

/* Running ------------------------------------------------------------------------------------ */

static void run_task(weir_executor *executor, weir_task *task)
{
    const char *name = task->name != NULL ? task->name : "task";
    int code = task->run(task); /* and from here on the task may be gone */
    add(&executor->tasks_run, 1);
    if (code < 0)
        weir_log(WEIR_LOG_WARN, executor->name, "%s failed: %s (%s)", name, weir_error_text(code),
                 weir_error_name(code));
}

/* Runs the tasks that are there now, but none that they add. */
static bool run_batch(weir_executor *executor, weir_task_queue *queue)
{
    const weir_task *last = weir__task_queue_newest(queue);
    bool has_run = false;
    while (last != NULL) {
        weir_task *task = weir__task_queue_pop(queue);
        if (task == NULL) {
            if (weir__task_queue_is_empty(queue))
                break;
            continue; /* its producer is between its two steps */
        }
        if (task == last)
            last = NULL;
        run_task(executor, task);
        has_run = true;
    }
    return has_run;
}

/* Runs tasks until the deadline, which is looked at every 64th, or there is none. */
static bool run_until(weir_executor *executor, int64_t deadline_ns)
{
    unsigned count = 0;
    weir_task *task;
    while ((task = weir__task_queue_pop(&executor->tasks)) != NULL) {
        run_task(executor, task);
        if (++count % TASKS_PER_CLOCK_READ == 0 &&
            weir__executor_read_clock(executor) >= deadline_ns)
            break;
    }
    return count > 0;
}

static bool end_pass(weir_executor *executor, bool has_run)
{
    if (has_run)
        atomic_store_explicit(&executor->last_run_ns, executor->now_ns, memory_order_relaxed);
    run_batch(executor, &executor->tail_tasks);
    add(&executor->passes, 1);
    return has_run;
}

bool weir__executor_run_tasks(weir_executor *executor, int64_t budget_ns)
{
    bool has_run = false, has_moved_all;
    int64_t deadline_ns;
    if (budget_ns < 0 || __builtin_add_overflow(executor->now_ns, budget_ns, &deadline_ns))
        deadline_ns = INT64_MAX;
    do {
        has_moved_all = weir__timers_move_due(executor);
        has_run |= run_until(executor, deadline_ns);
    } while (!has_moved_all && executor->now_ns < deadline_ns);
    return end_pass(executor, has_run);
}

bool weir__executor_run_batch(weir_executor *executor)
{
    weir__timers_move_due(executor);
    return end_pass(executor, run_batch(executor, &executor->tasks));
}

/* Shutting down ------------------------------------------------------------------------------- */

int weir_executor_add_shutdown_hook(weir_executor *executor, weir_shutdown_hook *hook)
{
    if (executor == NULL || hook == NULL || hook->run == NULL)
        return -EINVAL;
    if (!weir_executor_is_current(executor))
        return -EPERM;
    if (hook->is_added)
        return -EBUSY;
    hook->is_added = true;
    hook->next = NULL;
    *executor->last_hook = hook;
    executor->last_hook = &hook->next;
    return 0;
}

int weir_executor_remove_shutdown_hook(weir_executor *executor, weir_shutdown_hook *hook)
{
    if (executor == NULL || hook == NULL)
        return -EINVAL;
    if (!weir_executor_is_current(executor))
        return -EPERM;
    for (weir_shutdown_hook **at = &executor->first_hook; *at != NULL; at = &(*at)->next) {
        if (*at != hook)
            continue;
        *at = hook->next;
        if (executor->last_hook == &hook->next)
            executor->last_hook = at;
        hook->is_added = false;
        return 0;
    }
    return WEIR_ENOTFOUND;
}

static bool run_hooks(weir_executor *executor)
{
    bool has_run = false;
    weir_shutdown_hook *hook;
    while ((hook = executor->first_hook) != NULL) {
        weir_executor_remove_shutdown_hook(executor, hook);
        hook->run(hook);
        has_run = true;
    }
    return has_run;
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

bool weir__executor_confirm_shutdown(weir_executor *executor)
{
    if (state_of(executor) < WEIR_EXECUTOR_SHUTTING_DOWN)
        return false;
    int64_t quiet_ns = atomic_load_explicit(&executor->quiet_ns, memory_order_acquire);
    int64_t timeout_ns = atomic_load_explicit(&executor->timeout_ns, memory_order_acquire);
    weir__timers_cancel_all(executor);
    if (!executor->is_ending) {
        executor->is_ending = true;
        executor->end_start_ns = weir__executor_read_clock(executor);
        atomic_store_explicit(&executor->last_run_ns, executor->now_ns, memory_order_relaxed);
    }
    bool has_run = weir__executor_run_batch(executor);
    has_run |= run_hooks(executor);
    int64_t now_ns = weir__executor_read_clock(executor);
    if (has_run)
        atomic_store_explicit(&executor->last_run_ns, now_ns, memory_order_relaxed);
    int64_t waited_ns = now_ns - executor->end_start_ns;
    if (state_of(executor) >= WEIR_EXECUTOR_SHUTDOWN)
        return !has_run;
    if (waited_ns >= timeout_ns)
        return true;
    int64_t idle_ns = now_ns - atomic_load_explicit(&executor->last_run_ns, memory_order_relaxed);
    if (idle_ns >= quiet_ns)
        return !has_run || quiet_ns <= 0;
    int64_t left_ns = quiet_ns - idle_ns < timeout_ns - waited_ns ? quiet_ns - idle_ns
                                                                  : timeout_ns - waited_ns;
    weir__executor_sleep(executor, left_ns);
    return false;
}

/* Everything is closed: the state, then what came too late, then everybody who waits. */
static void terminate(weir_executor *executor)
{
    advance(executor, WEIR_EXECUTOR_TERMINATED);
    bool has_own = false;
    unsigned left = drop_tasks(executor, NULL, &has_own);
    if (left > 0)
        weir_log(WEIR_LOG_WARN, executor->name, "terminated with %u tasks left", left);
    weir__future_complete(&executor->terminated, 0);
}

static void *run_thread(void *arg)
{
    weir_executor *executor = arg;
    current_executor = executor;
    weir__executor_read_clock(executor);
    executor->type->run(executor);

    advance(executor, WEIR_EXECUTOR_SHUTTING_DOWN);
    if (!executor->is_ending)
        weir_log(WEIR_LOG_ERROR, executor->name,
                 "buggy %s: its body ended without confirming the shutdown", executor->type->name);
    while (!weir__executor_confirm_shutdown(executor)) {
    }
    /* From here on posts are refused; what slipped in before still runs. */
    advance(executor, WEIR_EXECUTOR_SHUTDOWN);
    while (!weir__executor_confirm_shutdown(executor)) {
    }
    weir__heap_deinit(&executor->timers);
    if (executor->type->close != NULL)
        executor->type->close(executor);
    terminate(executor);
    current_executor = NULL;
    weir__executor_release(executor);
    return NULL;
}

static void run_foreign_thread(void *arg)
{
    run_thread(arg);
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
        code = executor->sys->thread_create(executor->sys, &executor->thread, executor->name,
                                            executor->stack_bytes, run_thread, executor);
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

/* Whoever wins the state starts the thread; when that fails it takes its task back. */
static int start(weir_executor *executor, weir_task_queue *queue, weir_task *task)
{
    int expected = WEIR_EXECUTOR_NOT_STARTED;
    if (!atomic_compare_exchange_strong_explicit(&executor->state, &expected, WEIR_EXECUTOR_STARTED,
                                                 memory_order_seq_cst, memory_order_seq_cst))
        return 0;
    int code = launch(executor);
    if (code >= 0)
        return 0;
    /* Nobody else takes tasks from the queue, until the state goes back. */
    weir__task_queue_take_back(queue, task);
    expected = WEIR_EXECUTOR_STARTED;
    if (!atomic_compare_exchange_strong_explicit(&executor->state, &expected,
                                                 WEIR_EXECUTOR_NOT_STARTED, memory_order_seq_cst,
                                                 memory_order_seq_cst))
        terminate_without_thread(executor); /* a shutdown came in between, and counts on a thread */
    return code;
}

int weir_executor_shutdown(weir_executor *executor, int64_t quiet_ms, int64_t timeout_ms)
{
    int64_t quiet_ns, timeout_ns, unset = -1;
    if (executor == NULL || quiet_ms < 0 || timeout_ms < quiet_ms)
        return -EINVAL;
    if (__builtin_mul_overflow(quiet_ms, 1000000, &quiet_ns))
        quiet_ns = INT64_MAX;
    if (__builtin_mul_overflow(timeout_ms, 1000000, &timeout_ns))
        timeout_ns = INT64_MAX;
    if (!atomic_compare_exchange_strong_explicit(&executor->timeout_ns, &unset, timeout_ns,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return 0;
    atomic_store_explicit(&executor->quiet_ns, quiet_ns, memory_order_release);
    int before = advance(executor, WEIR_EXECUTOR_SHUTTING_DOWN);
    if (before == WEIR_EXECUTOR_NOT_STARTED && launch(executor) < 0)
        terminate_without_thread(executor);
    weir_executor_wake(executor);
    return 0;
}

/* The base ----------------------------------------------------------------------------------- */

void weir__executor_init(weir_executor *executor, const weir_executor_type *type,
                         const weir_executor_config *config)
{
    *executor = (weir_executor){
        .type = type,
        .clock = config->clock != NULL ? config->clock : weir_clock_monotonic(),
        .sys = config->sys != NULL ? config->sys : weir__sys_linux(),
        .reject = config->reject,
        .reject_arg = config->reject_arg,
        .start = config->start,
        .start_arg = config->start_arg,
        .stack_bytes = config->stack_bytes,
        .end_lock = PTHREAD_MUTEX_INITIALIZER,
    };
    snprintf(executor->name, sizeof executor->name, "%s",
             config->name != NULL ? config->name : "weir");
    atomic_init(&executor->refs, 1);
    atomic_init(&executor->timeout_ns, -1);
    weir__task_queue_init(&executor->tasks, config->max_pending_tasks);
    weir__task_queue_init(&executor->tail_tasks, config->max_pending_tasks);
    executor->last_hook = &executor->first_hook;
    weir__future_init(&executor->terminated, NULL);
}

void weir__executor_release(weir_executor *executor)
{
    if (atomic_fetch_sub_explicit(&executor->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir_group *group = executor->group;
    weir__heap_deinit(&executor->timers);
    pthread_mutex_destroy(&executor->end_lock);
    executor->type->destroy(executor);
    if (group != NULL)
        weir__group_release(group);
}

void weir__executor_join(weir_executor *executor)
{
    if (executor->is_joinable)
        pthread_join(executor->thread, NULL);
    executor->is_joinable = false;
}

bool weir__executor_ends_with(weir_executor *executor, const weir_future *future)
{
    return future == &executor->terminated ||
           (executor->group != NULL && future == weir_group_terminated(executor->group));
}

bool weir__executor_is_loop(const weir_executor *executor)
{
    return executor->type->is_loop;
}
