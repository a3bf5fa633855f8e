/* SPDX-License-Identifier: MIT */
/* The event loop: one turn after another. */
#include "loop/loop.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "exec/manual.h"
#include "exec/per_channel.h"
#include "io/io.h"

#include <weir/log.h>
#include <weir/timer.h>

#include <errno.h>

/* From so many early returns in a row on they are worth a line in the log. */
#define SPINS_TO_MENTION 4

/* After a poll that failed and could not be mended: what else there is to do still gets done. */
#define PAUSE_NS WEIR_MS(10)

/* How long tasks may take in a turn without events. */
#define BUDGET_WITHOUT_EVENTS_NS 50000

/* How often an ending loop looks whether its last residents have gone. */
#define LAST_TURNS 64

/* Deferred calls ------------------------------------------------------------------------------- */

bool weir__loop_defer(weir_loop *loop, weir_deferred *deferred)
{
    if (!weir_executor_is_current(&loop->base) || loop->has_ended || loop->io == NULL)
        return false;
    deferred->next = NULL;
    *loop->last_deferred = deferred;
    loop->last_deferred = &deferred->next;
    return true;
}

/* Those that come in the meantime wait for the end of the next turn. */
static void run_deferred(weir_loop *loop)
{
    weir_deferred *deferred = loop->first_deferred;
    if (deferred != NULL)
        weir__executor_set_running(&loop->base, "deferred calls");
    loop->first_deferred = NULL;
    loop->last_deferred = &loop->first_deferred;
    while (deferred != NULL) {
        weir_deferred *next = deferred->next;
        deferred->run(deferred);
        deferred = next;
    }
}

/* Waiting for events --------------------------------------------------------------------------- */

static int rebuild(weir_loop *loop)
{
    int code = loop->io->type->rebuild(loop->io);
    if (code < 0)
        weir_log(WEIR_LOG_ERROR, loop->base.name, "could not rebuild its %s: %s",
                 loop->io->type->name, weir_error_text(code));
    return code;
}

/* What a poll answers is judged when it is known what came of it. */
static inline __attribute__((always_inline)) void poll_io(weir_loop *loop, int64_t timeout_ns)
{
    bool failed_before = loop->last_poll.code < 0 && loop->last_poll.code != -EINTR;
    int code = loop->io->type->poll(loop->io, timeout_ns);
    loop->last_poll.code = code;
    loop->last_poll.timeout_ns = timeout_ns;
    loop->last_poll.start_ns = loop->base.now_ns;
    if (code >= 0 || code == -EINTR)
        return;
    weir_log(WEIR_LOG_ERROR, loop->base.name, "waiting for events failed, its %s is rebuilt: %s",
             loop->io->type->name, weir_error_text(code));
    weir_sys *sys = loop->base.sys;
    if ((rebuild(loop) < 0 || failed_before) && timeout_ns != 0)
        sys->poll(sys, NULL, 0, timeout_ns > 0 && timeout_ns < PAUSE_NS ? timeout_ns : PAUSE_NS);
}

static inline __attribute__((always_inline)) bool loop_wait(weir_executor *executor,
                                                            int64_t timeout_ns)
{
    weir_loop *loop = (weir_loop *)executor;
    poll_io(loop, timeout_ns);
    loop->last_poll.is_woken = weir__executor_is_woken(executor);
    return loop->last_poll.code != 0 || loop->last_poll.is_woken;
}

static int loop_wake(weir_executor *executor)
{
    weir_io *io = ((weir_loop *)executor)->io;
    io->type->wake(io);
    return 0;
}

static bool loop_is_busy(const weir_executor *executor)
{
    const weir_loop *loop = (const weir_loop *)executor;
    return loop->is_turn_open || loop->first_deferred != NULL ||
           loop->io->type->has_results(loop->io);
}

/* Waits when there is nothing else to do, else only looks. */
static void wait_for_events(weir_loop *loop, weir_strategy strategy, int64_t max_wait_ns)
{
    int64_t own_ns = loop->config.max_wait_ns;
    if (own_ns > 0 && (max_wait_ns < 0 || own_ns < max_wait_ns))
        max_wait_ns = own_ns;
    loop->last_poll.is_woken = false;
    if (strategy == WEIR_STRATEGY_BUSY_WAIT ||
        !weir__executor_sleep_by(&loop->base, max_wait_ns, loop_wait))
        poll_io(loop, 0);
}

/* The spin detector ---------------------------------------------------------------------------- */

/* A wait that ended before its time for no reason that anybody can see. */
static bool was_early(weir_loop *loop, unsigned completions)
{
    int64_t timeout_ns = loop->last_poll.timeout_ns;
    bool has_reason = completions > 0 || loop->io->news > 0 || loop->last_poll.is_woken ||
                      weir__executor_has_something(&loop->base);
    return !has_reason && timeout_ns != 0 &&
           (timeout_ns < 0 || loop->base.now_ns - loop->last_poll.start_ns < timeout_ns);
}

static void end_spinning(weir_loop *loop)
{
    if (loop->spins >= SPINS_TO_MENTION)
        weir_log(WEIR_LOG_DEBUG, loop->base.name, "its %s returned early %u times in a row",
                 loop->io->type->name, loop->spins);
    loop->spins = 0;
}

static void watch_for_spinning(weir_loop *loop, unsigned completions)
{
    if (loop->last_poll.code < 0 || !was_early(loop, completions)) {
        if (loop->last_poll.code == -EINTR)
            weir_log(WEIR_LOG_DEBUG, loop->base.name,
                     "waiting for events was interrupted by a signal");
        end_spinning(loop);
        return;
    }
    if (++loop->spins != loop->config.spin_limit)
        return;
    int fd = loop->io->type->spinner(loop->io);
    if (fd >= 0)
        weir_log(WEIR_LOG_WARN, loop->base.name,
                 "its %s returned early %u times in a row, the last time for descriptor %d, "
                 "and is rebuilt",
                 loop->io->type->name, loop->spins, fd);
    else
        weir_log(WEIR_LOG_WARN, loop->base.name,
                 "its %s returned early %u times in a row, and is rebuilt", loop->io->type->name,
                 loop->spins);
    loop->spins = 0;
    rebuild(loop);
}

/* Where the time goes -------------------------------------------------------------------------- */

/*
 * The clock is read when the poll returns, and once more: at the end of the turn, or, when there
 * were events and tasks, between the two. In that case the tasks' time ends with the next poll,
 * which does not wait.
 */
static void end_turn_at(weir_loop *loop, int64_t start_ns)
{
    uint64_t taken_ns = (uint64_t)(loop->base.now_ns - start_ns);
    if (taken_ns > weir__counter_get(&loop->longest_turn_ns))
        atomic_store_explicit(&loop->longest_turn_ns, taken_ns, memory_order_relaxed);
}

static void begin_turn(weir_loop *loop)
{
    int64_t now_ns = weir__executor_read_clock(&loop->base);
    if (loop->is_turn_open) {
        weir__counter_add(&loop->task_ns, (uint64_t)(now_ns - loop->tasks_start_ns));
        end_turn_at(loop, loop->turn_start_ns);
        loop->is_turn_open = false;
    }
    loop->turn_start_ns = now_ns;
}

static void end_turn(weir_loop *loop, unsigned completions, bool has_run)
{
    if (loop->is_turn_open || (completions == 0 && !has_run && !loop->base.is_time_stale))
        return;
    int64_t taken_ns = weir__executor_read_clock(&loop->base) - loop->turn_start_ns;
    weir__counter_add(completions > 0 ? &loop->io_ns : &loop->task_ns, (uint64_t)taken_ns);
    end_turn_at(loop, loop->turn_start_ns);
}

/* The turn ------------------------------------------------------------------------------------- */

static weir_strategy ask_strategy(weir_loop *loop)
{
    if (loop->config.strategy == NULL)
        return WEIR_STRATEGY_SELECT;
    weir__executor_set_running(&loop->base, "its strategy");
    return loop->config.strategy(loop->config.strategy_arg, loop,
                                 weir__executor_has_tasks(&loop->base));
}

static unsigned complete(weir_loop *loop)
{
    weir__executor_set_running(&loop->base, "an event's handler");
    unsigned completions = loop->io->type->complete(loop->io);
    loop->base.is_time_stale |= completions > 0;
    return completions;
}

/* How long tasks may take after events took `io_ns`; negative: as long as there are any. While
 * there are no events, a look for them is worth its cost only every so often. */
static int64_t budget_ns(weir_loop *loop, int64_t io_ns)
{
    int ratio = atomic_load_explicit(&loop->io_ratio, memory_order_relaxed);
    if (loop->config.task_ns > 0)
        return loop->config.task_ns;
    if (ratio == 100)
        return -1;
    return io_ns > 0 ? io_ns * (100 - ratio) / ratio : BUDGET_WITHOUT_EVENTS_NS;
}

/* What was submitted does not wait for tasks, nor for somebody else's loop. */
static void flush(weir_loop *loop)
{
    if (loop->io->type->flush != NULL)
        loop->io->type->flush(loop->io);
}

static bool run_tasks(weir_loop *loop, unsigned completions)
{
    int64_t io_ns = 0;
    bool has_something = weir__executor_has_something(&loop->base);
    if (has_something)
        flush(loop);
    if (completions > 0 && has_something) {
        loop->tasks_start_ns = weir__executor_read_clock(&loop->base);
        io_ns = loop->tasks_start_ns - loop->turn_start_ns;
        weir__counter_add(&loop->io_ns, (uint64_t)(io_ns));
        loop->is_turn_open = true;
    }
    return weir__executor_run_tasks(&loop->base, budget_ns(loop, io_ns));
}

WEIR__HOT static bool loop_turn(weir_executor *executor, int64_t max_wait_ns)
{
    weir_loop *loop = (weir_loop *)executor;
    if (weir_executor_get_state(executor) >= WEIR_EXECUTOR_SHUTTING_DOWN &&
        weir__loop_evict_all(loop))
        max_wait_ns = 0; /* that they are gone may be all that was waited for */
    weir_strategy strategy = ask_strategy(loop);
    weir__executor_set_running(executor, NULL); /* from here on it waits, or only looks */
    if (strategy == WEIR_STRATEGY_CONTINUE)
        return false;
    wait_for_events(loop, strategy, max_wait_ns);
    begin_turn(loop);
    unsigned completions = complete(loop);
    watch_for_spinning(loop, completions);
    bool has_run = run_tasks(loop, completions);
    run_deferred(loop);
    weir__notices_run();
    if (executor->is_manual)
        flush(loop);
    end_turn(loop, completions, has_run);
    weir__counter_add(&loop->turns, 1);
    return completions > 0 || has_run;
}

/* Opening and closing ---------------------------------------------------------------------------
 */

static int open_io(weir_loop *loop)
{
    weir_executor *executor = &loop->base;
    weir_io_source *source = loop->config.io_source;
    if (source != NULL)
        return source->open(source, executor->sys, &loop->io_counters, &loop->io);
    switch (loop->config.io) {
    case WEIR_IO_BLOCKING:
        return weir__blocking_open(executor->sys, &loop->io_counters, &loop->io);
    case WEIR_IO_URING:
        loop->config.uring.is_by_hand = executor->is_manual;
        return weir__uring_open(executor->sys, &loop->io_counters, &loop->config.uring, &loop->io);
    default:
        return weir__epoll_open(executor->sys, &loop->io_counters, &loop->io);
    }
}

/* Who drives it by hand may wait for its descriptor first. */
static int loop_open(weir_executor *executor)
{
    weir_loop *loop = (weir_loop *)executor;
    int code = open_io(loop);
    if (code < 0)
        return code;
    if (executor->is_manual)
        flush(loop);
    return 0;
}

/* A thread that was started for a task, not for a channel, ends as well when it is idle. */
static void loop_begin(weir_executor *executor)
{
    weir__loop_begin_idle((weir_loop *)executor);
}

static void let_residents_go(weir_loop *loop)
{
    weir__loop_evict_all(loop);
    for (int i = 0; i < LAST_TURNS && !weir__list_is_empty(&loop->evicted); i++) {
        poll_io(loop, 0);
        complete(loop);
        run_deferred(loop);
        weir__notices_run();
    }
    size_t left = (size_t)atomic_load_explicit(&loop->base.channel_count, memory_order_relaxed);
    if (left > 0)
        weir_log(WEIR_LOG_ERROR, loop->base.name, "ends with %zu channels that did not close",
                 left);
    weir__loop_abandon_all(loop);
}

/* A context that was removed last waits for two ends of turns. */
static void run_all_deferred(weir_loop *loop)
{
    while (loop->first_deferred != NULL || weir__notices.first != NULL) {
        run_deferred(loop);
        weir__notices_run();
    }
}

static void loop_retire(weir_executor *executor)
{
    weir_loop *loop = (weir_loop *)executor;
    loop->io->type->close(loop->io);
    loop->io->type->destroy(loop->io);
    loop->io = NULL;
}

static void loop_close(weir_executor *executor)
{
    weir_loop *loop = (weir_loop *)executor;
    if (weir_executor_is_current(executor)) {
        let_residents_go(loop);
        run_all_deferred(loop);
        loop->has_ended = true;
        /* Its memory stays until the loop's: somebody may be about to wake it. */
        loop->io->type->close(loop->io);
    } else {
        loop->io->type->destroy(loop->io); /* its thread could not be started */
        loop->io = NULL;
    }
}

static int descriptor_of(const weir_executor *executor)
{
    const weir_loop *loop = (const weir_loop *)executor;
    return loop->io != NULL ? loop->io->type->descriptor(loop->io) : -1;
}

static void loop_destroy(weir_executor *executor)
{
    weir_loop *loop = (weir_loop *)executor;
    if (loop->io != NULL)
        loop->io->type->destroy(loop->io);
    weir__spare_deinit(&loop->writes);
    weir__free(loop);
}

/* The file whose operation completes. */
static void loop_describe(const weir_executor *executor, const weir_stack *stack,
                          weir_subject *subject)
{
    const weir_loop *loop = (const weir_loop *)executor;
    const weir_io *io = loop->io;
    const weir_io_file *file = NULL;
    if (io != NULL)
        file = io->finishing != NULL ? io->finishing : io->current;
    if (file != NULL && file->is_described)
        io->describe(file, stack, subject);
    else if (file != NULL)
        subject->fd = file->fd;
}

static const weir_executor_type loop_type = {
    .name = "loop",
    .is_loop = true,
    .open = loop_open,
    .begin = loop_begin,
    .turn = loop_turn,
    .is_busy = loop_is_busy,
    .wait = loop_wait,
    .wake = loop_wake,
    .describe = loop_describe,
    .descriptor = descriptor_of,
    .close = loop_close,
    .retire = loop_retire,
    .destroy = loop_destroy,
};

int weir__loop_new(weir_loop **out, const weir_executor_config *executor,
                   const weir_loop_config *config)
{
    weir_loop *loop = weir__zalloc(sizeof *loop);
    if (loop == NULL)
        return -ENOMEM;
    weir_executor_config own = *executor;
    if (config->io_source != NULL)
        own.sys = config->io_source->sys;
    weir__executor_init(&loop->base, &loop_type, &own);
    loop->base.io_progress = &loop->io_counters.completions;
    loop->config = *config;
    atomic_init(&loop->io_ratio, config->io_ratio);
    weir__loop_init_residents(loop);
    loop->last_deferred = &loop->first_deferred;
    *out = loop;
    return 0;
}

/* Looking ---------------------------------------------------------------------------------------
 */

weir_executor *weir_loop_executor(weir_loop *loop)
{
    return loop != NULL ? &loop->base : NULL;
}

weir_loop *weir_executor_loop(weir_executor *executor)
{
    return executor != NULL && executor->type == &loop_type ? (weir_loop *)executor : NULL;
}

weir_loop *weir_loop_current(void)
{
    return weir_executor_loop(weir_executor_current());
}

int64_t weir_loop_now_ns(const weir_loop *loop)
{
    return loop->base.now_ns;
}

const char *weir_loop_io_name(const weir_loop *loop)
{
    if (loop->config.io_source != NULL)
        return loop->config.io_source->name;
    switch (loop->config.io) {
    case WEIR_IO_BLOCKING:
        return "blocking";
    case WEIR_IO_URING:
        return "uring";
    default:
        return "epoll";
    }
}

bool weir_loop_is_for_one_channel(const weir_loop *loop)
{
    return loop->base.group->per_channel != NULL;
}

int weir_loop_set_io_ratio(weir_loop *loop, int ratio)
{
    if (loop == NULL || ratio < 1 || ratio > 100)
        return -EINVAL;
    atomic_store_explicit(&loop->io_ratio, ratio, memory_order_relaxed);
    return 0;
}

void weir_loop_get_stats(const weir_loop *loop, weir_loop_stats *stats)
{
    weir_executor_stats base;
    weir_executor_get_stats(&loop->base, &base);
    const weir_io_counters *io = &loop->io_counters;
    *stats = (weir_loop_stats){
        .turns = weir__counter_get(&loop->turns),
        .polls = weir__counter_get(&io->polls),
        .io_ns = (int64_t)weir__counter_get(&loop->io_ns),
        .task_ns = (int64_t)weir__counter_get(&loop->task_ns),
        .longest_turn_ns = (int64_t)weir__counter_get(&loop->longest_turn_ns),
        .tasks_run = base.tasks_run,
        .tasks_queued = base.tasks_queued,
        .timers = base.timers,
        .wakeups = base.wakeups,
        .rebuilds = weir__counter_get(&io->rebuilds),
        .channels = base.channels,
        .completions = weir__counter_get(&io->completions),
        .stale_events = weir__counter_get(&io->stale),
        .receives = weir__counter_get(&io->receives),
        .sends = weir__counter_get(&io->sends),
        .accepts = weir__counter_get(&io->accepts),
        .controls = weir__counter_get(&io->controls),
        .exhausted = weir__counter_get(&io->exhausted),
    };
}

/* By hand ---------------------------------------------------------------------------------------
 */

static bool is_mine(const weir_loop *loop)
{
    return loop != NULL && loop->base.is_manual && weir__manual_is_mine(loop->base.group);
}

int weir_loop_run_once(weir_loop *loop, int64_t timeout_ns)
{
    if (!is_mine(loop))
        return -EPERM;
    int code = weir__executor_step(&loop->base, timeout_ns);
    if (code < 0)
        return code;
    weir_executor *background = loop->base.group->background;
    bool has_more = weir__executor_next_ns(background) == 0;
    return code > 0 || (has_more && weir__executor_step(background, 0) > 0);
}

int weir_loop_descriptor(const weir_loop *loop)
{
    return is_mine(loop) ? descriptor_of(&loop->base) : -EPERM;
}

int64_t weir_loop_next_ns(weir_loop *loop)
{
    if (!is_mine(loop))
        return INT64_MIN;
    int64_t own_ns = weir__executor_next_ns(&loop->base);
    int64_t background_ns = weir__executor_next_ns(loop->base.group->background);
    bool is_background_sooner = background_ns >= 0 && (own_ns < 0 || background_ns < own_ns);
    return is_background_sooner ? background_ns : own_ns;
}
