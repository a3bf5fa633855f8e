/* SPDX-License-Identifier: MIT */
/* The watchdog. */
#include "exec/watchdog.h"

#include "base/clock.h"
#include "base/sys.h"
#include "base/trace.h"

#include <weir/log.h>

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unwind.h>

/*
 * One thread for all, there while anybody is watched. Every quarter of the shortest limit it looks
 * at counters that executors keep anyway: one that runs a callback, and has not come any further
 * since the last look, is in that callback still. So the watched pay nothing.
 *
 * The back trace is taken by the watched thread itself, in the handler of a signal which it alone
 * gets. SIGURG, for a program that does not expect it ignores it. By the functions on its stack the
 * executor's kind also finds out which channel and handler it is.
 */
#define TRACE_SIGNAL SIGURG
#define TRACE_WAIT_NS WEIR_SECONDS(1)
#define FRAMES ((int)(sizeof(((weir_stack *)NULL)->functions) / sizeof(uintptr_t)))
#define LOOKS_PER_LIMIT 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all of these */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static weir_list watched = { { &watched.ring, &watched.ring } };
static bool has_thread;
static pthread_t thread; /* the one that should run: an older one ends */

static bool has_handler;
static struct sigaction handler_before;

/* What passes between the watchdog's thread and the handler. */
static struct {
    _Atomic(bool) is_wanted;
    uint64_t progress;  /* of the executor, when it was found blocked */
    _Atomic(int) count; /* publishes the fields: not every race checker knows sem_post */
    bool is_over;       /* the callback had returned by then */
    void *frames[FRAMES];
    weir_subject subject;
    sem_t is_taken;
} trace;

/* Taking ------------------------------------------------------------------------------------- */

typedef struct unwinding {
    weir_stack stack;
    int count;
} unwinding;

static _Unwind_Reason_Code note_frame(struct _Unwind_Context *context, void *arg)
{
    unwinding *self = arg;
    if (self->count == FRAMES)
        return _URC_END_OF_STACK;
    /* NOLINTNEXTLINE(performance-no-int-to-ptr) */
    trace.frames[self->count] = (void *)_Unwind_GetIP(context);
    self->stack.functions[self->count++] = _Unwind_GetRegionStart(context);
    return _URC_NO_REASON;
}

void weir__visit_begin(weir_visit *visit, weir_describe_fn describe, const void *object)
{
    weir_executor *executor = weir_executor_current();
    *visit = (weir_visit){ .executor = executor, .describe = describe, .object = object };
    if (executor == NULL)
        return;
    visit->outer = executor->visited;
    atomic_signal_fence(memory_order_release); /* for take_trace */
    executor->visited = visit;
}

void weir__visit_end(const weir_visit *visit)
{
    if (visit->executor != NULL)
        visit->executor->visited = visit->outer;
}

static void describe_callback(const weir_executor *executor, const weir_stack *stack)
{
    const weir_visit *visit = executor->visited;
    if (visit != NULL)
        visit->describe(visit->object, stack, &trace.subject);
    else if (executor->type->describe != NULL)
        executor->type->describe(executor, stack, &trace.subject);
}

/* On the blocked thread, in the middle of anything: whatever is called here only reads. */
static void take_trace(int signal_number)
{
    (void)signal_number;
    int saved_errno = errno;
    const weir_executor *executor = weir_executor_current();
    if (atomic_exchange_explicit(&trace.is_wanted, false, memory_order_acquire)) {
        unwinding here = { .count = 0 };
        _Unwind_Backtrace(note_frame, &here);
        here.stack.count = here.count;
        trace.subject = (weir_subject){ .fd = -1 };
        trace.is_over = executor == NULL || weir__executor_progress(executor) != trace.progress;
        if (!trace.is_over)
            describe_callback(executor, &here.stack);
        atomic_store_explicit(&trace.count, here.count, memory_order_release);
        sem_post(&trace.is_taken);
    }
    errno = saved_errno;
}

static _Unwind_Reason_Code note_nothing(struct _Unwind_Context *context, void *arg)
{
    (void)context;
    (void)arg;
    return _URC_END_OF_STACK;
}

/* A program that uses the signal for itself keeps it, and gets reports without a trace. */
static void install_handler(void)
{
    static bool has_semaphore;
    struct sigaction action = { .sa_handler = take_trace, .sa_flags = SA_RESTART };
    if (has_handler)
        return; /* since an executor whose watchdog's thread could not be started */
    if (sigaction(TRACE_SIGNAL, NULL, &handler_before) != 0 ||
        (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN))
        return;
    _Unwind_Backtrace(note_nothing, NULL); /* the first call may load, which a handler must not */
    if (!has_semaphore)
        has_semaphore = sem_init(&trace.is_taken, 0, 0) == 0;
    has_handler = has_semaphore && sigaction(TRACE_SIGNAL, &action, NULL) == 0;
}

/* The program may have installed one of its own since then. */
static bool is_handler_ours(void)
{
    struct sigaction now;
    return has_handler && sigaction(TRACE_SIGNAL, NULL, &now) == 0 && now.sa_handler == take_trace;
}

static void remove_handler(void)
{
    if (is_handler_ours())
        sigaction(TRACE_SIGNAL, &handler_before, NULL);
    has_handler = false;
}

/* Reporting ---------------------------------------------------------------------------------- */

/* What became of the back trace. */
typedef enum outcome {
    TRACE_ASKED_FOR,
    TRACE_TAKEN,
    TRACE_NOT_OURS,
    TRACE_NOT_SENT,
    TRACE_LATE,
    TRACE_OVER,
} outcome;

/* What is to be logged when the lock is free again: a sink may do what it likes. */
typedef struct finding {
    char executor[16];
    const char *running;
    int64_t blocked_ns;
    outcome outcome;
    weir_subject subject;
    char trace[4096];
} finding;

/* Asks the thread to write down where it is. Under the lock: else it might have ended. */
static outcome ask_for_trace(const weir_executor *executor)
{
    if (!is_handler_ours())
        return TRACE_NOT_OURS;
    trace.progress = executor->watch.progress;
    atomic_store_explicit(&trace.is_wanted, true, memory_order_release);
    if (pthread_kill(executor->watch.thread, TRACE_SIGNAL) == 0)
        return TRACE_ASKED_FOR;
    atomic_store_explicit(&trace.is_wanted, false, memory_order_relaxed);
    return TRACE_NOT_SENT;
}

/* Without the lock: others start and end meanwhile. */
static void await_trace(finding *found)
{
    struct timespec until = weir__clock_until(TRACE_WAIT_NS);
    int error = sem_clockwait(&trace.is_taken, CLOCK_MONOTONIC, &until);
    /* Timed out: cancels the request, unless the signal handler has begun. */
    if (error != 0 && !atomic_exchange_explicit(&trace.is_wanted, false, memory_order_acquire))
        error = sem_wait(&trace.is_taken);
    if (error != 0) {
        found->outcome = TRACE_LATE;
        return;
    }
    int count = atomic_load_explicit(&trace.count, memory_order_acquire);
    found->outcome = trace.is_over ? TRACE_OVER : TRACE_TAKEN;
    found->subject = trace.subject;
    if (!trace.is_over)
        weir__trace_write(trace.frames, count, found->trace, sizeof found->trace);
}

static void find(finding *found, const weir_executor *executor, int64_t blocked_ns)
{
    memcpy(found->executor, executor->name, sizeof found->executor);
    found->running = executor->watch.running;
    found->blocked_ns = blocked_ns;
    found->subject = (weir_subject){ .fd = -1 };
    found->trace[0] = '\0';
    found->outcome = ask_for_trace(executor);
}

/* "'task'", "'an event's handler' of descriptor 7", "on_read of handler 'echo' of channel
 * 0000002a". A callback whose last call blocks may have left the stack to it: then all handlers are
 * named. */
static void describe(const finding *found, char *text, size_t size)
{
    const weir_subject *subject = &found->subject;
    unsigned long long id = subject->channel;
    if (subject->callback != NULL)
        snprintf(text, size, "%s of handler '%s' of channel %08llx", subject->callback,
                 subject->handlers, id);
    else if (subject->channel != 0)
        snprintf(text, size, "'%s' of channel %08llx (handlers: %s)", found->running, id,
                 subject->handlers);
    else if (subject->fd >= 0)
        snprintf(text, size, "'%s' of descriptor %d", found->running, subject->fd);
    else
        snprintf(text, size, "'%s'", found->running);
}

static const char *reason_of(outcome of)
{
    switch (of) {
    case TRACE_NOT_OURS:
        return " (no back trace: the program has a SIGURG handler of its own)";
    case TRACE_NOT_SENT:
        return " (no back trace: its thread cannot be sent SIGURG)";
    case TRACE_LATE:
        return " (no back trace: its thread has not run for another second, or blocks SIGURG)";
    case TRACE_OVER:
        return " (no back trace: it has returned since)";
    default:
        return ":\n";
    }
}

static void report(finding *found)
{
    char what[256];
    if (found->outcome == TRACE_ASKED_FOR)
        await_trace(found);
    describe(found, what, sizeof what);
    char time[WEIR_DURATION_TEXT_MAX];
    int64_t blocked_ns = found->blocked_ns / WEIR_MS(1) * WEIR_MS(1);
    weir_log(WEIR_LOG_WARN, found->executor, "blocked for %s in %s, and nothing else runs%s%s",
             weir_duration_text(blocked_ns, time, sizeof time), what, reason_of(found->outcome),
             found->trace);
}

/* Looking ------------------------------------------------------------------------------------ */

/* Whether it has been in one callback for too long, and that was not reported. Several looks have
 * to find it there: the time may have passed while the process did not run. */
static bool is_blocked(weir_executor *executor, int64_t now_ns)
{
    weir_watch_state *watch = &executor->watch;
    uint64_t progress = weir__executor_progress(executor);
    /* A task counts when it is done; that it has begun shows here. */
    const char *running = atomic_load_explicit(&executor->running, memory_order_relaxed);
    if (running == NULL || weir__executor_is_asleep(executor) || progress != watch->progress ||
        running != watch->running) {
        watch->progress = progress;
        watch->running = running;
        watch->since_ns = now_ns;
        watch->looks = 0;
        watch->is_reported = false;
        return false;
    }
    bool is_late = ++watch->looks >= LOOKS_PER_LIMIT &&
                   now_ns - watch->since_ns >= watch->limit_ns && !watch->is_reported;
    watch->is_reported |= is_late;
    return is_late;
}

/* Looks at all, or until it finds one; under the lock. `*pause_ns` is how long until the next look.
 */
static bool look_round(finding *found, int64_t *pause_ns)
{
    *pause_ns = INT64_MAX;
    int64_t now_ns = weir_clock_now_ns(weir_clock_monotonic());
    for (weir_list_node *node = weir__list_first(&watched); node != NULL;
         node = weir__list_next(&watched, node)) {
        weir_executor *executor = WEIR_CONTAINER(node, weir_executor, watch.node);
        if (is_blocked(executor, now_ns)) {
            find(found, executor, now_ns - executor->watch.since_ns);
            return true;
        }
        if (executor->watch.limit_ns / LOOKS_PER_LIMIT < *pause_ns)
            *pause_ns = executor->watch.limit_ns / LOOKS_PER_LIMIT;
    }
    return false;
}

static void *run_watchdog(void *arg)
{
    (void)arg;
    finding found;
    int64_t pause_ns;
    pthread_mutex_lock(&lock);
    while (has_thread && pthread_equal(thread, pthread_self())) {
        if (look_round(&found, &pause_ns)) {
            pthread_mutex_unlock(&lock);
            report(&found);
            pthread_mutex_lock(&lock);
            continue;
        }
        struct timespec until = weir__clock_until(pause_ns);
        pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void allow_signal(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, TRACE_SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

void weir__watchdog_watch(weir_executor *executor)
{
    if (executor->watch.limit_ns <= 0)
        return;
    pthread_mutex_lock(&lock);
    executor->watch.thread = pthread_self();
    executor->watch.since_ns = weir_clock_now_ns(weir_clock_monotonic());
    weir__list_push_back(&watched, &executor->watch.node);
    if (has_thread) {
        pthread_cond_signal(&changed); /* its limit may be shorter than the others' */
    } else {
        install_handler();
        weir_thread_config config = { .name = "weir-watchdog", .cpu = WEIR_OFF };
        int code = executor->sys->thread_create(executor->sys, &thread, &config, run_watchdog,
                                                NULL);
        has_thread = code == 0;
        if (code < 0)
            weir_log(WEIR_LOG_WARN, executor->name, "runs without a watchdog: %s",
                     weir_error_text(code));
    }
    if (has_handler)
        allow_signal();
    pthread_mutex_unlock(&lock);
}

void weir__watchdog_unwatch(weir_executor *executor)
{
    if (executor->watch.limit_ns <= 0)
        return;
    pthread_mutex_lock(&lock);
    weir__list_remove(&executor->watch.node);
    bool is_last = weir__list_is_empty(&watched);
    bool must_join = is_last && has_thread;
    pthread_t last_thread = thread;
    if (is_last) {
        has_thread = false;
        remove_handler();
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    if (must_join)
        pthread_join(last_thread, NULL);
}
