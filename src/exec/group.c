/* SPDX-License-Identifier: MIT */
/* Groups: making children, choosing one, ending all. */
#include "exec/group.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/sys.h"
#include "exec/lifecycle.h"
#include "exec/manual.h"
#include "exec/per_channel.h"
#include "exec/plain.h"

#include <weir/log.h>
#include <weir/threads.h>
#include <weir/timer.h>

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_TIMEOUT_NS WEIR_SECONDS(15)
#define MOST_CHILDREN 65536 /* that the environment may ask for */

/* Places ------------------------------------------------------------------------------------- */

static unsigned block_of(size_t index)
{
    return 63 - (unsigned)__builtin_clzll(index / WEIR_GROUP_FIRST_BLOCK + 1);
}

weir_group_child *weir__group_place(const weir_group *group, size_t index)
{
    unsigned block = block_of(index);
    size_t first = WEIR_GROUP_FIRST_BLOCK * (((size_t)1 << block) - 1);
    return &group->blocks[block][index - first];
}

/* Makes sure that there are so many places. */
static int make_room(weir_group *group, size_t count)
{
    for (unsigned i = 0; i <= block_of(count - 1); i++) {
        size_t places = (size_t)WEIR_GROUP_FIRST_BLOCK << i;
        if (group->blocks[i] == NULL)
            group->blocks[i] = weir__zalloc(places * sizeof(weir_group_child));
        if (group->blocks[i] == NULL)
            return -ENOMEM;
    }
    return 0;
}

size_t weir_group_count(const weir_group *group)
{
    return group != NULL ? atomic_load_explicit(&group->count, memory_order_acquire) : 0;
}

weir_executor *weir_group_at(const weir_group *group, size_t index)
{
    return index < weir_group_count(group) ? weir__group_place(group, index)->executor : NULL;
}

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
    size_t count = weir_group_count(group);
    bool is_power_of_two = (count & (count - 1)) == 0;
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
    if (group->per_channel != NULL)
        return NULL;
    size_t count = weir_group_count(group);
    uint64_t n = atomic_fetch_add_explicit(&group->next, 1, memory_order_relaxed);
    size_t at = group->chooser(group->chooser_arg, group, n, count);
    return weir_group_at(group, at < count ? at : 0);
}

static void log_skip(weir_group *group, const weir_executor *child, int code)
{
    if (!atomic_exchange_explicit(&group->is_skip_logged, true, memory_order_relaxed))
        weir_log(WEIR_LOG_ERROR, child->name,
                 "cannot run: %s; the group's other loops serve its connections",
                 weir_error_text(code));
}

weir_executor *weir__group_choose(weir_group *group)
{
    weir_executor *chosen = weir_group_next(group);
    size_t count = weir_group_count(group);
    int code = chosen != NULL ? weir__executor_need_thread(chosen) : 0;
    for (size_t i = 1; i < count && code < 0; i++) {
        weir_executor *other = weir_group_at(group, (chosen->number + i) % count);
        if (weir__executor_need_thread(other) == 0) {
            log_skip(group, chosen, code);
            return other;
        }
    }
    return chosen;
}

const char *weir_group_chooser_name(const weir_group *group)
{
    return group->chooser_name;
}

void weir__group_set_counter(weir_group *group, uint64_t n)
{
    atomic_store(&group->next, n);
}

weir_sys *weir__group_sys(const weir_group *group)
{
    const weir_executor *first = weir_group_at(group, 0);
    return first != NULL ? first->sys : weir__sys_linux();
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

void weir__group_count_down(weir_group *group)
{
    if (atomic_fetch_sub_explicit(&group->living, 1, memory_order_acq_rel) == 1)
        weir__future_complete(&group->terminated, 0);
}

int weir_group_shutdown(weir_group *group, int64_t quiet_ns, int64_t timeout_ns)
{
    if (group == NULL || quiet_ns < 0 || timeout_ns < quiet_ns)
        return -EINVAL;
    int code = 0;
    /* Another thread may wait for the end, and free the group as soon as it has come. */
    weir__group_retain(group);
    if (group->per_channel != NULL)
        weir__per_channel_end(group);
    size_t count = weir_group_count(group);
    for (size_t i = 0; i < count && code == 0; i++)
        code = weir_executor_shutdown(weir_group_at(group, i), quiet_ns, timeout_ns);
    weir__group_release(group);
    return code;
}

weir_future *weir_group_terminated(weir_group *group)
{
    return &group->terminated;
}

weir_group *weir__group_retain(weir_group *group)
{
    atomic_fetch_add_explicit(&group->refs, 1, memory_order_relaxed);
    return group;
}

void weir__group_release(weir_group *group)
{
    if (atomic_fetch_sub_explicit(&group->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < WEIR_GROUP_BLOCKS; i++)
        weir__free(group->blocks[i]);
    weir__per_channel_free(group->per_channel);
    weir_group_data *names = atomic_load_explicit(&group->names, memory_order_acquire);
    if (names != NULL)
        names->free(names);
    weir__free(group);
}

static void retain_home(weir_home *home)
{
    weir__group_retain(WEIR_CONTAINER(home, weir_group, home));
}

static void release_home(weir_home *home)
{
    weir__group_release(WEIR_CONTAINER(home, weir_group, home));
}

static const weir_home_type home_type = { .retain = retain_home, .release = release_home };

void weir_group_get_pending(const weir_group *group, weir_group_pending *pending)
{
    *pending = (weir_group_pending){ 0 };
    for (size_t i = 0; i < weir_group_count(group); i++) {
        weir_executor_stats stats;
        const weir_executor *child = weir_group_at(group, i);
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
    size_t count = weir_group_count(group);
    for (size_t i = 0; i < count; i++) {
        weir_executor *child = weir_group_at(group, i);
        if (group->is_manual)
            weir_future_await(weir_executor_terminated(child));
        else
            weir__future_wait_here(weir_executor_terminated(child), -1);
        weir__executor_join(child);
    }
    if (group->is_manual)
        weir__manual_end(group);
    if (group->per_channel != NULL)
        weir__per_channel_join(group);
    for (size_t i = 0; i < count; i++)
        weir__executor_release(weir_group_at(group, i));
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
    if (group->per_channel != NULL)
        weir__per_channel_end(group);
    weir_group_shutdown(group, 0, DEFAULT_TIMEOUT_NS);
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

int weir__group_make_child(weir_group *group, const weir_group_config *config,
                           weir_child_fn new_child, void *child_arg)
{
    char name[16];
    size_t index = weir_group_count(group);
    int code = make_room(group, index + 1);
    if (code < 0)
        return code;
    snprintf(name, sizeof name, "%.10s-%u", config->name != NULL ? config->name : "weir",
             (unsigned)index % 10000);
    weir_executor_config own = {
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
    weir_group_child *child = weir__group_place(group, index);
    code = new_child(child_arg, &own, &child->executor);
    if (code < 0)
        return code;
    child->group = weir__group_retain(group);
    child->executor->group = group;
    child->executor->number = index;
    if (config->watchdog_ns > 0)
        child->executor->watch.limit_ns = config->watchdog_ns;
    atomic_fetch_add_explicit(&group->living, 1, memory_order_relaxed);
    atomic_store_explicit(&group->count, index + 1, memory_order_release);
    return 0;
}

/* Its place is kept as long as the group's struct, to which the child has a reference. */
static void child_terminated(weir_listener *listener, weir_future *future)
{
    (void)future;
    weir_group_child *child = WEIR_CONTAINER(listener, weir_group_child, on_end);
    weir_group *group = child->group;
    if (group->per_channel != NULL)
        weir__per_channel_forget(child);
    weir__group_count_down(group);
}

void weir__group_await_end(weir_group_child *child)
{
    child->on_end = (weir_listener){ .done = child_terminated };
    weir_future_listen(weir_executor_terminated(child->executor), &child->on_end);
}

weir_group *weir__group_alloc(const weir_group_config *config)
{
    weir_group *group = weir__zalloc(sizeof *group);
    if (group == NULL)
        return NULL;
    group->is_manual = config->is_manual;
    group->maker = pthread_self();
    atomic_init(&group->refs, 1);
    atomic_init(&group->living, 1);
    group->home.type = &home_type;
    weir__future_init(&group->terminated, &group->home);
    return group;
}

static int refuse_negative(int64_t value, const char *what, weir_error *error)
{
    return value < 0 ? weir_error_set(error, -EINVAL, "group",
                                      "%s is %" PRId64 ", which is negative", what, value)
                     : 0;
}

int weir__group_check(const weir_group_config *config, weir_error *error)
{
    int code = refuse_negative(config->count, "count", error);
    if (code == 0)
        code = refuse_negative(config->max_pending_tasks, "max_pending_tasks", error);
    if (code == 0)
        code = refuse_negative(config->max_channels, "max_channels", error);
    if (code == 0 && config->idle_loop_ns != WEIR_OFF)
        code = refuse_negative(config->idle_loop_ns, "idle_loop_ns", error);
    if (code == 0 && config->watchdog_ns != WEIR_OFF)
        code = refuse_negative(config->watchdog_ns, "watchdog_ns", error);
    return code;
}

int weir__group_new(weir_group **out, const weir_group_config *config, weir_child_fn new_child,
                    void *child_arg, weir_error *error)
{
    static const weir_group_config defaults;
    if (config == NULL)
        config = &defaults;
    int code = out != NULL ? weir__group_check(config, error) : -EINVAL;
    if (code < 0)
        return code;
    size_t count = (size_t)(config->count > 0 ? config->count : default_count());
    if (count == 0)
        return weir_error_set(error, -EINVAL, "group",
                              "WEIR_LOOPS is '%s' in the environment, which is no number of loops",
                              getenv("WEIR_LOOPS"));
    weir_group *group = weir__group_alloc(config);
    if (group == NULL || make_room(group, count) < 0) {
        if (group != NULL)
            weir__group_release(group);
        return weir_error_set(error, -ENOMEM, "group", "no memory for %zu children", count);
    }
    for (size_t i = 0; i < count && code == 0; i++)
        code = weir__group_make_child(group, config, new_child, child_arg);
    if (code == 0 && config->is_manual)
        code = weir__manual_begin(group);
    if (code < 0) {
        weir_error_set(error, code, "group",
                       "failed to create a child event loop: number %zu of %zu: %s",
                       weir_group_count(group), count, weir_error_text(code));
        weir_group_shutdown(group, 0, DEFAULT_TIMEOUT_NS);
        end_children(group);
        weir__group_release(group);
        return code;
    }
    set_chooser(group, config);
    for (size_t i = 0; i < count; i++)
        weir__group_await_end(weir__group_place(group, i));
    weir__group_count_down(group);
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
