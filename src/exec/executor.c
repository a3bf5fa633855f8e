/* SPDX-License-Identifier: MIT */
/* Executors: posting, waking and running. How they start and end is in lifecycle.c. */
#include "exec/executor.h"

#include "base/counter.h"
#include "base/sys.h"
#include "base/time_sum.h"
#include "buf/pool.h"
#include "exec/group.h"
#include "exec/lifecycle.h"
#include "exec/posters.h"
#include "exec/timer.h"

#include <weir/log.h>
#include <weir/pool.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define TASKS_PER_CLOCK_READ 64
#define MOST_TASKS 16384  /* of a pass with a deadline */
#define TIMERS_AT_ONCE 64 /* so few that they are still in the cache when they run */

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

/* initial-exec: it is asked for at every post, and a call into the loader costs as much as the
 * rest. */
static _Thread_local weir_executor *current_executor __attribute__((tls_model("initial-exec")));

/* Looking ------------------------------------------------------------------------------------ */

weir_executor *weir_executor_current(void)
{
    return current_executor;
}

bool weir_executor_is_current(const weir_executor *executor)
{
    return executor != NULL && current_executor == executor;
}

weir_executor *weir__executor_set_current(weir_executor *executor)
{
    weir_executor *before = current_executor;
    current_executor = executor;
    return before;
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
    executor->is_time_stale = false;
    return executor->now_ns = weir_clock_now_ns(executor->clock);
}

int64_t weir__executor_refresh_clock(weir_executor *executor)
{
    return executor->is_time_stale ? weir__executor_read_clock(executor) : executor->now_ns;
}

void weir_executor_get_stats(const weir_executor *executor, weir_executor_stats *stats)
{
    bool is_counted = executor->tasks.bound > 0;
    const _Atomic(uint64_t) *left = &executor->tasks_left;
    *stats = (weir_executor_stats){
        .tasks_run = atomic_load_explicit(&executor->tasks_run, memory_order_relaxed),
        .tasks_queued = is_counted
                            ? atomic_load_explicit(&executor->tasks.count, memory_order_relaxed)
                            : atomic_load_explicit(left, memory_order_relaxed),
        .tasks_rejected = atomic_load_explicit(&executor->rejected, memory_order_relaxed),
        .timers = atomic_load_explicit(&executor->timer_count, memory_order_relaxed),
        .channels = atomic_load_explicit(&executor->channel_count, memory_order_relaxed),
        .wakeups = atomic_load_explicit(&executor->wakeups, memory_order_relaxed),
        .passes = atomic_load_explicit(&executor->passes, memory_order_relaxed),
        .last_run_ns = atomic_load_explicit(&executor->last_run_ns, memory_order_relaxed),
    };
}

uint64_t weir__executor_progress(const weir_executor *executor)
{
    uint64_t progress = atomic_load_explicit(&executor->tasks_run, memory_order_relaxed) +
                        atomic_load_explicit(&executor->passes, memory_order_relaxed);
    if (executor->io_progress != NULL)
        progress += atomic_load_explicit(executor->io_progress, memory_order_relaxed);
    return progress;
}

/* Waking ------------------------------------------------------------------------------------- */

/* Negative when that was not possible: there is no thread, and none could be had. */
static int wake(weir_executor *executor)
{
    if (atomic_exchange_explicit(&executor->sleep, WOKEN, memory_order_seq_cst) != ASLEEP)
        return 0;
    atomic_fetch_add_explicit(&executor->wakeups, 1, memory_order_relaxed);
    return executor->type->wake(executor);
}

/* After a wake-up that failed: it sleeps on, and the next one may have more luck. */
static void sleep_on(weir_executor *executor)
{
    atomic_store_explicit(&executor->sleep, ASLEEP, memory_order_seq_cst);
    executor->type->wake_failed(executor);
}

void weir_executor_wake(weir_executor *executor)
{
    weir_posting posting = weir__poster_begin(executor);
    int code = wake(executor);
    weir__poster_end(posting);
    if (code >= 0)
        return;
    sleep_on(executor);
    weir_log(WEIR_LOG_ERROR, executor->name, "has no thread to run its tasks yet: %s",
             weir_error_text(code));
}

/* For a task that was just pushed. Without a thread to run it the task goes back to its poster,
 * unless one has run it meanwhile. */
static int wake_for(weir_executor *executor, weir_task_queue *queue, weir_task *task)
{
    int code = wake(executor);
    if (code < 0) {
        if (!weir__task_queue_take_back(queue, task))
            code = 0;
        bool has_others = weir__executor_has_taken(executor);
        sleep_on(executor);
        /* Others have been told that theirs will run. */
        if (has_others || weir__executor_has_new(executor))
            weir_executor_wake(executor);
    }
    return code;
}

bool weir__executor_is_asleep(const weir_executor *executor)
{
    return atomic_load_explicit(&executor->sleep, memory_order_relaxed) == ASLEEP;
}

bool weir__executor_is_woken(const weir_executor *executor)
{
    return atomic_load_explicit(&executor->sleep, memory_order_seq_cst) == WOKEN;
}

/* How long to wait; negative: for ever. */
static int64_t wait_ns(weir_executor *executor, int64_t max_ns)
{
    int64_t deadline_ns = weir__executor_next_deadline_ns(executor);
    if (deadline_ns == INT64_MAX)
        return max_ns;
    int64_t now_ns = weir__executor_refresh_clock(executor);
    int64_t left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
    return max_ns >= 0 && max_ns < left_ns ? max_ns : left_ns;
}

/* What was in use until now counts as needed, but for the second time. */
int64_t weir__executor_idle(int64_t timeout_ns)
{
    weir_pool_trim();
    weir_pool_trim();
    return timeout_ns < 0 ? timeout_ns : timeout_ns - WEIR__IDLE_NS;
}

int64_t weir__executor_next_ns(weir_executor *executor)
{
    if (weir__executor_has_tasks(executor) || weir__executor_is_woken(executor) ||
        weir__executor_is_busy(executor))
        return 0;
    int64_t deadline_ns = executor->is_ending ? weir__executor_end_ns(executor)
                                              : weir__executor_next_deadline_ns(executor);
    if (deadline_ns == INT64_MAX)
        return -1;
    int64_t now_ns = weir__executor_read_clock(executor);
    return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

/* Whether there is something to do; then it stays awake. Looks before it says ASLEEP: while it is
 * busy nobody needs to hear about it. */
static bool stays_awake(weir_executor *executor)
{
    if (!weir__executor_is_busy(executor) && !weir__executor_has_tasks(executor))
        return false;
    if (weir__executor_is_woken(executor))
        weir__executor_get_up(executor);
    return true;
}

WEIR__HOT bool weir__executor_fall_asleep(weir_executor *executor, int64_t max_ns,
                                          int64_t *timeout_ns)
{
    int expected = AWAKE;
    *timeout_ns = 0;
    if (stays_awake(executor))
        return false;
    *timeout_ns = wait_ns(executor, max_ns);
    if (*timeout_ns != 0 &&
        atomic_compare_exchange_strong_explicit(&executor->sleep, &expected, ASLEEP,
                                                memory_order_seq_cst, memory_order_relaxed) &&
        !weir__executor_has_tasks(executor))
        return true;
    weir__executor_get_up(executor);
    return false;
}

void weir__executor_get_up(weir_executor *executor)
{
    atomic_store_explicit(&executor->sleep, AWAKE, memory_order_seq_cst);
}

bool weir__executor_sleep(weir_executor *executor, int64_t max_ns)
{
    return weir__executor_sleep_by(executor, max_ns, executor->type->wait);
}

void weir__executor_set_resting(weir_executor *executor, bool is_resting)
{
    int from = is_resting ? AWAKE : ASLEEP;
    atomic_compare_exchange_strong_explicit(&executor->sleep, &from, is_resting ? ASLEEP : AWAKE,
                                            memory_order_seq_cst, memory_order_relaxed);
}

/* Posting ------------------------------------------------------------------------------------ */

static int reject(weir_executor *executor, const weir_task_queue *queue, weir_task *task)
{
    atomic_fetch_add_explicit(&executor->rejected, 1, memory_order_relaxed);
    if (executor->reject == NULL || queue != &executor->tasks)
        return -EAGAIN;
    return executor->reject(executor->reject_arg, executor, task);
}

/* The executor has no thread yet, has terminated or sleeps: starts it, takes the task back, or
 * wakes it. Ends the post. */
WEIR__BESIDE static int arrived_slow(weir_executor *executor, weir_task_queue *queue,
                                     weir_task *task, bool wakes, weir_posting posting)
{
    int code = 0, state = state_of(executor);
    if (state == WEIR_EXECUTOR_NOT_STARTED)
        code = weir__executor_start(executor, queue, task);
    else if (state == WEIR_EXECUTOR_TERMINATED)
        code = weir__executor_take_back(executor, queue, task);
    else if (wakes)
        code = wake_for(executor, queue, task);
    weir__poster_end(posting);
    return code;
}

/* After a push from another thread: makes sure that a thread takes the task, or takes it back. Ends
 * the post. */
static inline int arrived(weir_executor *executor, weir_task_queue *queue, weir_task *task,
                          bool wakes, weir_posting posting)
{
    bool is_running = state_of(executor) == WEIR_EXECUTOR_STARTED;
    bool is_asleep = atomic_load_explicit(&executor->sleep, memory_order_seq_cst) == ASLEEP;
    if (__builtin_expect(!is_running || is_asleep, 0))
        return arrived_slow(executor, queue, task, wakes && is_asleep, posting);
    weir__poster_end(posting);
    return 0;
}

int weir__executor_post_again(weir_executor *executor, weir_task *task)
{
    if (state_of(executor) >= WEIR_EXECUTOR_SHUTDOWN)
        return WEIR_ESHUTDOWN;
    weir_posting posting = weir__poster_begin(executor);
    int code = weir__task_queue_push(&executor->tasks, task, false);
    if (code == 0)
        return arrived(executor, &executor->tasks, task, true, posting);
    weir__poster_end(posting);
    return code;
}

/* For the first post of a thread, and for a queue that may be full. */
__attribute__((noinline)) static int post_slow(weir_executor *executor, weir_task_queue *queue,
                                               weir_task *task, bool wakes)
{
    weir_posting posting = weir__poster_begin(executor);
    if (weir__task_queue_push(queue, task, false) == 0)
        return arrived(executor, queue, task, wakes, posting);
    int code = reject(executor, queue, task);
    weir__poster_end(posting);
    return code;
}

/*
 * From the push on the task may have run, and the executor have no owner any more. Calls only what
 * ends the post, so it saves no registers: the push, a locked instruction, waits for all stores
 * before it.
 */
static inline int post_from_outside(weir_executor *executor, weir_task_queue *queue,
                                    weir_task *task, bool wakes)
{
    if (__builtin_expect(queue->bound > 0 || !weir__poster_is_listed(), 0))
        return post_slow(executor, queue, task, wakes);
    weir_posting posting = weir__poster_begin_listed(executor);
    weir__task_queue_push(queue, task, false); /* without a bound it takes every task */
    return arrived(executor, queue, task, wakes, posting);
}

__attribute__((noinline)) static int post_from_inside(weir_executor *executor,
                                                      weir_task_queue *queue, weir_task *task)
{
    return weir__task_queue_push(queue, task, true) < 0 ? reject(executor, queue, task) : 0;
}

static inline __attribute__((always_inline)) int post(weir_executor *executor,
                                                      weir_task_queue *queue, weir_task *task,
                                                      bool wakes)
{
    if (executor == NULL || task == NULL || task->run == NULL)
        return -EINVAL;
    if (state_of(executor) >= WEIR_EXECUTOR_SHUTDOWN)
        return WEIR_ESHUTDOWN;
    return weir_executor_is_current(executor) ? post_from_inside(executor, queue, task)
                                              : post_from_outside(executor, queue, task, wakes);
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
    bool is_inside = weir_executor_is_current(executor);
    weir_posting posting = weir__poster_begin(executor);
    weir__task_queue_push_always(&executor->tasks, task, is_inside);
    if (!is_inside)
        return arrived(executor, &executor->tasks, task, true, posting);
    weir__poster_end(posting);
    return 0;
}

/* Running ------------------------------------------------------------------------------------ */

WEIR__BESIDE static void log_failed(const weir_executor *executor, const char *name, int code)
{
    weir_log(WEIR_LOG_WARN, executor->name, "%s failed: %s (%s)", name, weir_error_text(code),
             weir_error_name(code));
}

static inline void run_task(weir_executor *executor, weir_task *task)
{
    const char *name = task->name != NULL ? task->name : "task";
    weir__executor_set_running(executor, name);
    int code = task->run(task); /* and from here on the task may be gone */
    weir__notices_run();
    weir__counter_add(&executor->tasks_run, 1);
    if (code < 0)
        log_failed(executor, name, code);
}

/* Runs the tasks that are there now, but none that they add. */
WEIR__HOT static bool run_batch(weir_executor *executor, weir_task_queue *queue)
{
    size_t count = weir__task_queue_count(queue);
    bool has_run = count > 0;
    weir_task *task;
    while (count-- > 0 && (task = weir__task_queue_pop(queue)) != NULL) /* one may be taken back */
        run_task(executor, task);
    return has_run;
}

/*
 * Runs tasks until the deadline, which is looked at every 64th (and a clock that stands still does
 * not keep it from ending), or until those are done that the last look at the queue has found, and
 * what they posted here. Tasks that other threads post meanwhile wait for the next pass: a consumer
 * that looks for it after every task would take the queue's cache line from them each time. Without
 * a deadline all run.
 */
static bool run_until(weir_executor *executor, int64_t deadline_ns)
{
    unsigned count = 0;
    weir_task *task;
    bool has_deadline = deadline_ns < INT64_MAX;
    weir_task_queue *tasks = &executor->tasks;
    if (weir__task_queue_is_empty(tasks))
        return false;
    while ((task = has_deadline ? weir__task_queue_pop_taken(tasks)
                                : weir__task_queue_pop(tasks)) != NULL) {
        run_task(executor, task);
        if (++count % TASKS_PER_CLOCK_READ != 0)
            continue;
        bool is_ending = state_of(executor) >= WEIR_EXECUTOR_SHUTTING_DOWN;
        if (weir__executor_read_clock(executor) >= deadline_ns || is_ending ||
            (has_deadline && count >= MOST_TASKS))
            break;
    }
    return count > 0;
}

static void run_pass_hooks(weir_executor *executor)
{
    weir_list *hooks = &executor->pass_hooks;
    weir_list_node *node = weir__list_first(hooks);
    if (node != NULL)
        weir__executor_set_running(executor, "pass hooks");
    while (node != NULL) {
        weir_hook *hook = WEIR_CONTAINER(node, weir_hook, node);
        executor->next_pass_hook = weir__list_next(hooks, node);
        hook->run(hook);
        node = executor->next_pass_hook;
        executor->is_time_stale = true;
    }
}

WEIR__HOT static bool end_pass(weir_executor *executor, bool has_run)
{
    /* The quiet period is counted from the end of what ran. */
    if (has_run && executor->is_ending)
        weir__executor_read_clock(executor);
    if (has_run)
        atomic_store_explicit(&executor->last_run_ns, executor->now_ns, memory_order_relaxed);
    bool has_run_tail = run_batch(executor, &executor->tail_tasks);
    executor->is_time_stale |= has_run || has_run_tail;
    run_pass_hooks(executor);
    weir__notices_run();
    atomic_store_explicit(&executor->tasks_left, weir__task_queue_taken(&executor->tasks),
                          memory_order_relaxed);
    weir__counter_add(&executor->passes, 1);
    weir__executor_set_running(executor, NULL);
    return has_run || has_run_tail;
}

/* Whether there is nothing to run, nor anybody to be told that a pass is over. */
static inline bool is_quiet(weir_executor *executor)
{
    return !weir__executor_has_something(executor) && weir__list_is_empty(&executor->pass_hooks);
}

static bool run_pass(weir_executor *executor, int64_t budget_ns)
{
    bool has_run = false, has_moved_all;
    int64_t deadline_ns = budget_ns < 0 ? INT64_MAX : weir__time_sum(executor->now_ns, budget_ns);
    do {
        has_moved_all = weir__timers_move_due(executor, TIMERS_AT_ONCE);
        has_run |= run_until(executor, deadline_ns);
    } while (!has_moved_all && executor->now_ns < deadline_ns);
    return end_pass(executor, has_run);
}

bool weir__executor_run_tasks(weir_executor *executor, int64_t budget_ns)
{
    if (!is_quiet(executor))
        return run_pass(executor, budget_ns);
    weir__notices_run();
    atomic_store_explicit(&executor->tasks_left, 0, memory_order_relaxed);
    weir__counter_add(&executor->passes, 1);
    return false;
}

bool weir__executor_run_batch(weir_executor *executor)
{
    weir__timers_move_due(executor, UINT_MAX);
    return end_pass(executor, run_batch(executor, &executor->tasks));
}

/* The base ----------------------------------------------------------------------------------- */

static void retain_home(weir_home *home)
{
    weir__executor_retain(WEIR_CONTAINER(home, weir_executor, home));
}

static void release_home(weir_home *home)
{
    weir__executor_release(WEIR_CONTAINER(home, weir_executor, home));
}

static const weir_home_type home_type = { .retain = retain_home, .release = release_home };

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
        .cpu = config->cpu,
        .is_manual = config->is_manual,
        .end_lock = PTHREAD_MUTEX_INITIALIZER,
    };
    snprintf(executor->name, sizeof executor->name, "%s",
             config->name != NULL ? config->name : "weir");
    atomic_init(&executor->refs, 1);
    atomic_init(&executor->timeout_ns, -1);
    weir__task_queue_init(&executor->tasks, config->max_pending_tasks);
    weir__task_queue_init(&executor->tail_tasks, config->max_pending_tasks);
    weir__list_init(&executor->shutdown_hooks);
    weir__list_init(&executor->pass_hooks);
    executor->home.type = &home_type;
    weir__future_init(&executor->terminated, &executor->home);
}

void weir__executor_retain(weir_executor *executor)
{
    atomic_fetch_add_explicit(&executor->refs, 1, memory_order_relaxed);
}

void weir__executor_release(weir_executor *executor)
{
    if (atomic_fetch_sub_explicit(&executor->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir_group *group = executor->group;
    weir__posters_wait(executor);
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
