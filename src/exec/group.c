/* SPDX-License-Identifier: MIT */
/* Groups: making children, choosing one, ending all. */
#include "exec/group.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "exec/manual.h"
#include "exec/plain.h"

#include <weir/threads.h>
#include <weir/timer.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_QUIET_MS 2000
#define DEFAULT_TIMEOUT_MS 15000
#define MOST_CHILDREN 65536 /* that the environment may ask for */

typedef struct child_end {
    weir_listener listener;
    weir_group *group;
} child_end;

/* Choosing ----------------------------------------------------------------------------------- */

static size_t choose_power_of_two(void *arg, weir_group *group, uint64_t n, size_t count)
{
    (void)arg;
    (void)group;
    return n & (count - 1);
}

/* Unsigned, so the counter's wrap skips a turn at most and never goes below 0. */
static size_t choose_generic(void *arg, weir_group *group, uint64_t n, size_t count)
{
    (void)arg;
    (void)group;
    return n % count;
}

size_t weir_choose_least_loaded(void *arg, weir_group *group, uint64_t n, size_t count)
{
    (void)arg;
    size_t least = n % count;
    uint64_t fewest = UINT64_MAX;
    for (size_t i = 0; i < count && fewest > 0; i++) {
        weir_executor_stats stats;
        size_t at = (n + i) % count;
        weir_executor_get_stats(weir_group_at(group, at), &stats);
        if (stats.tasks_queued < fewest) {
            fewest = stats.tasks_queued;
            least = at;
        }
    }
    return least;
}

static void set_chooser(weir_group *group, const weir_group_config *config)
{
    bool is_power_of_two = (group->count & (group->count - 1)) == 0;
    group->chooser = is_power_of_two ? choose_power_of_two : choose_generic;
    group->chooser_name = is_power_of_two ? "power of two" : "generic";
    if (config->chooser != NULL) {
        group->chooser = config->chooser;
        group->chooser_arg = config->chooser_arg;
        group->chooser_name = "custom";
    }
}

weir_executor *weir_group_next(weir_group *group)
{
    uint64_t n = atomic_fetch_add_explicit(&group->next, 1, memory_order_relaxed);
    size_t at = group->chooser(group->chooser_arg, group, n, group->count);
    return group->children[at < group->count ? at : 0];
}

const char *weir_group_chooser_name(const weir_group *group)
{
    return group->chooser_name;
}

void weir__group_set_counter(weir_group *group, uint64_t n)
{
    atomic_store(&group->next, n);
}

size_t weir_group_count(const weir_group *group)
{
    return group != NULL ? group->count : 0;
}

weir_executor *weir_group_at(const weir_group *group, size_t index)
{
    return index < weir_group_count(group) ? group->children[index] : NULL;
}

/* Rejecting ---------------------------------------------------------------------------------- */

int weir_reject_with_backoff(void *arg, weir_executor *executor, weir_task *task)
{
    const weir_backoff *backoff = arg;
    if (weir_executor_is_current(executor))
        return -EAGAIN; /* waiting for itself to make room would be for ever */
    for (unsigned i = 0; i < backoff->retries; i++) {
        weir_executor_wake(executor);
        /* A pause that ends early when there is nobody left to make room. */
        weir_future_wait(weir_executor_terminated(executor), backoff->pause_ns);
        int code = weir__executor_post_again(executor, task);
        if (code != -EAGAIN)
            return code;
    }
    return -EAGAIN;
}

/* Ending ------------------------------------------------------------------------------------- */

int weir_group_shutdown(weir_group *group, int64_t quiet_ms, int64_t timeout_ms)
{
    if (group == NULL)
        return -EINVAL;
    int code = 0;
    size_t count = group->count;
    /* Another thread may wait for the end, and free the group as soon as it has come. */
    atomic_fetch_add_explicit(&group->refs, 1, memory_order_relaxed);
    for (size_t i = 0; i < count && code == 0; i++)
        code = weir_executor_shutdown(group->children[i], quiet_ms, timeout_ms);
    weir__group_release(group);
    return code;
}

weir_future *weir_group_terminated(weir_group *group)
{
    return &group->terminated;
}

static void child_terminated(weir_listener *listener, weir_future *future)
{
    (void)future;
    weir_group *group = WEIR_CONTAINER(listener, child_end, listener)->group;
    if (atomic_fetch_sub_explicit(&group->living, 1, memory_order_acq_rel) == 1)
        weir__future_complete(&group->terminated, 0);
}

void weir__group_release(weir_group *group)
{
    if (atomic_fetch_sub_explicit(&group->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir__free(group->ends);
    weir__free(group);
}

void weir_group_get_pending(const weir_group *group, weir_group_pending *pending)
{
    *pending = (weir_group_pending){ 0 };
    for (size_t i = 0; i < weir_group_count(group); i++) {
        weir_executor_stats stats;
        const weir_executor *child = group->children[i];
        if (weir_executor_get_state(child) == WEIR_EXECUTOR_TERMINATED)
            continue;
        weir_executor_get_stats(child, &stats);
        pending->children++;
        pending->tasks += stats.tasks_queued;
        pending->timers += stats.timers;
        pending->channels += stats.channels;
    }
}

weir_executor *weir_group_background(weir_group *group)
{
    return group->background != NULL ? group->background : weir_executor_global();
}

/* Waits for the end of all children and lets go of them. */
static void end_children(weir_group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        weir_executor *child = group->children[i];
        if (group->is_manual)
            weir_future_await(weir_executor_terminated(child));
        else
            weir__future_wait_here(weir_executor_terminated(child), -1);
        weir__executor_join(child);
    }
    if (group->is_manual)
        weir__manual_end(group);
    for (size_t i = 0; i < group->count; i++)
        weir__executor_release(group->children[i]);
}

void weir_group_free(weir_group *group)
{
    if (group == NULL)
        return;
    weir_executor *current = weir_executor_current();
    if (current != NULL && (current->group == group || weir__executor_is_loop(current))) {
        weir__misuse(__func__, "called on %s, which it would have to wait for", current->name);
        return;
    }
    if (group->is_manual && (!weir__manual_is_mine(group) || weir__manual_is_in_turn(group))) {
        weir__misuse(__func__,
                     "of a manual group, but not on its maker's thread between two steps");
        return;
    }
    /* Who never ran a task has nothing to be quiet for. */
    for (size_t i = 0; i < group->count; i++) {
        if (weir_executor_get_state(group->children[i]) == WEIR_EXECUTOR_NOT_STARTED)
            weir_executor_shutdown(group->children[i], 0, DEFAULT_TIMEOUT_MS);
    }
    weir_group_shutdown(group, DEFAULT_QUIET_MS, DEFAULT_TIMEOUT_MS);
    end_children(group);
    weir__group_release(group);
}

/* Making ------------------------------------------------------------------------------------- */

/* 0 when WEIR_LOOPS says something that is no number of loops. */
static int default_count(void)
{
    const char *wish = getenv("WEIR_LOOPS");
    if (wish != NULL && *wish != '\0') {
        char *end;
        long count = strtol(wish, &end, 10);
        return *end == '\0' && count > 0 && count <= MOST_CHILDREN ? (int)count : 0;
    }
    cpu_set_t cpus;
    int count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    return count > 0 ? 2 * count : 1;
}

/* The nth of the CPUs that this process may use, counted round. */
static int nth_cpu(size_t nth)
{
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0 || CPU_COUNT(&cpus) == 0)
        return WEIR_OFF;
    nth %= (size_t)CPU_COUNT(&cpus);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &cpus) && nth-- == 0)
            return (int)cpu;
    }
    return WEIR_OFF;
}

static int make_child(weir_group *group, size_t index, const weir_group_config *config,
                      weir_child_fn new_child, void *child_arg)
{
    char name[16];
    snprintf(name, sizeof name, "%.10s-%u", config->name != NULL ? config->name : "weir",
             (unsigned)index % 10000);
    weir_executor_config child = {
        .name = name,
        .clock = config->clock,
        .max_pending_tasks = (uint32_t)config->max_pending_tasks,
        .reject = config->reject,
        .reject_arg = config->reject_arg,
        .start = config->start,
        .start_arg = config->start_arg,
        .stack_bytes = config->stack_bytes,
        .cpu = config->is_pinned ? nth_cpu(index) : WEIR_OFF,
        .is_manual = config->is_manual,
    };
    int code = new_child(child_arg, &child, &group->children[index]);
    if (code < 0)
        return code;
    atomic_fetch_add_explicit(&group->refs, 1, memory_order_relaxed);
    group->children[index]->group = group;
    group->count = index + 1;
    if (config->watchdog_ms > 0)
        group->children[index]->watch.limit_ns = WEIR_MS(config->watchdog_ms);
    return 0;
}

static int refuse_negative(int value, const char *what, weir_error *error)
{
    return value < 0
               ? weir_error_set(error, -EINVAL, "group", "%s is %d, which is negative", what, value)
               : 0;
}

static int check(const weir_group_config *config, weir_error *error)
{
    int code = refuse_negative(config->count, "count", error);
    if (code == 0)
        code = refuse_negative(config->max_pending_tasks, "max_pending_tasks", error);
    if (code == 0 && config->watchdog_ms != WEIR_OFF)
        code = refuse_negative(config->watchdog_ms, "watchdog_ms", error);
    return code;
}

int weir__group_new(weir_group **out, const weir_group_config *config, weir_child_fn new_child,
                    void *child_arg, weir_error *error)
{
    static const weir_group_config defaults;
    if (config == NULL)
        config = &defaults;
    int code = out != NULL ? check(config, error) : -EINVAL;
    if (code < 0)
        return code;
    size_t count = (size_t)(config->count > 0 ? config->count : default_count());
    if (count == 0)
        return weir_error_set(error, -EINVAL, "group",
                              "WEIR_LOOPS is '%s' in the environment, which is no number of loops",
                              getenv("WEIR_LOOPS"));
    weir_group *group = weir__zalloc(sizeof *group + count * sizeof(weir_executor *));
    child_end *ends = weir__zalloc(count * sizeof *ends);
    if (group == NULL || ends == NULL) {
        weir__free(group);
        weir__free(ends);
        return weir_error_set(error, -ENOMEM, "group", "no memory for %zu children", count);
    }
    group->ends = ends;
    group->is_manual = config->is_manual;
    group->maker = pthread_self();
    atomic_init(&group->refs, 1);
    weir__future_init(&group->terminated, NULL);
    for (size_t i = 0; i < count && code == 0; i++)
        code = make_child(group, i, config, new_child, child_arg);
    if (code == 0 && config->is_manual)
        code = weir__manual_begin(group);
    if (code < 0) {
        weir_error_set(error, code, "group",
                       "failed to create a child event loop: number %zu of %zu: %s", group->count,
                       count, weir_error_text(code));
        weir_group_shutdown(group, 0, DEFAULT_TIMEOUT_MS);
        end_children(group);
        weir__group_release(group);
        return code;
    }
    set_chooser(group, config);
    atomic_init(&group->living, count);
    for (size_t i = 0; i < count; i++) {
        ends[i] = (child_end){ { .done = child_terminated }, group };
        weir_future_listen(weir_executor_terminated(group->children[i]), &ends[i].listener);
    }
    *out = group;
    return 0;
}

static int new_plain_child(void *arg, const weir_executor_config *config, weir_executor **executor)
{
    (void)arg;
    return weir__plain_executor_new(executor, config);
}

int weir_group_new_executors(weir_group **group, const weir_group_config *config, weir_error *error)
{
    return weir__group_new(group, config, new_plain_child, NULL, error);
}
