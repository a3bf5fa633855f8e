/* SPDX-License-Identifier: MIT */
/* The watchdog. */
#include "exec/watchdog.h"

#include "base/clock.h"
#include "base/sys.h"
#include "base/trace.h"

#include <weir/log.h>

#include <errno.h>
#include <execinfo.h>
#include <semaphore.h>
#include <string.h>

/*
 * One thread for all, there while anybody is watched. Every quarter of the shortest limit it looks
 * at counters that executors keep anyway: who is awake but has not come any further since the last
 * look is in one callback. So the watched pay nothing.
 *
 * The back trace is taken by the watched thread itself, in the handler of a signal which it alone
 * gets. SIGURG, for a program that does not expect it ignores it.
 */
#define TRACE_SIGNAL SIGURG
#define TRACE_WAIT_NS 200000000
#define FRAMES 32
#define LOOKS_PER_LIMIT 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all of these */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static weir_list watched = { { &watched.ring, &watched.ring } };
static bool has_thread;
static pthread_t thread; /* the one that should run: an older one ends */

static bool has_handler;
static struct sigaction handler_before;

/* What passes between the watchdog and the handler. */
static struct {
    _Atomic(bool) is_wanted;
    _Atomic(int) count; /* carries the frames over: not every checker knows the semaphore */
    void *frames[FRAMES];
    sem_t is_taken;
} trace;

static void take_trace(int signal_number)
{
    (void)signal_number;
    int saved_errno = errno;
    if (atomic_exchange_explicit(&trace.is_wanted, false, memory_order_acquire)) {
        int count = backtrace(trace.frames, FRAMES);
        atomic_store_explicit(&trace.count, count, memory_order_release);
        sem_post(&trace.is_taken);
    }
    errno = saved_errno;
}

/* A program that uses the signal for itself keeps it, and gets reports without a trace. */
static void install_handler(void)
{
    struct sigaction action = { .sa_handler = take_trace, .sa_flags = SA_RESTART };
    if (has_handler)
        return; /* since an executor whose watchdog's thread could not be started */
    if (sigaction(TRACE_SIGNAL, NULL, &handler_before) != 0 ||
        (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN))
        return;
    void *frame;
    backtrace(&frame, 1); /* the first call loads a library, which a handler must not */
    sem_init(&trace.is_taken, 0, 0);
    has_handler = sigaction(TRACE_SIGNAL, &action, NULL) == 0;
}

static void remove_handler(void)
{
    if (!has_handler)
        return;
    has_handler = false;
    struct sigaction now;
    /* The program may have installed one of its own since then. */
    if (sigaction(TRACE_SIGNAL, NULL, &now) == 0 && now.sa_handler == take_trace)
        sigaction(TRACE_SIGNAL, &handler_before, NULL);
    sem_destroy(&trace.is_taken);
}

/* Has the thread write down where it is. */
static void ask_for_trace(pthread_t blocked, char *text, size_t size)
{
    text[0] = '\0';
    if (!has_handler)
        return;
    struct timespec until = weir__clock_until(TRACE_WAIT_NS);
    atomic_store_explicit(&trace.is_wanted, true, memory_order_release);
    int error = pthread_kill(blocked, TRACE_SIGNAL) == 0
                    ? sem_clockwait(&trace.is_taken, CLOCK_MONOTONIC, &until)
                    : -1;
    /* Too late: unless the handler has begun, it will find that nobody wants it any more. */
    if (error != 0 && !atomic_exchange_explicit(&trace.is_wanted, false, memory_order_acquire))
        error = sem_wait(&trace.is_taken);
    if (error == 0)
        weir__trace_write(trace.frames, atomic_load_explicit(&trace.count, memory_order_acquire),
                          text, size);
}

/* What is to be logged when the lock is free again: a sink may do what it likes. */
typedef struct finding {
    char executor[16];
    const char *running;
    int64_t blocked_ns;
    char trace[4096];
} finding;

static void describe(finding *found, const weir_executor *executor, int64_t blocked_ns)
{
    memcpy(found->executor, executor->name, sizeof found->executor);
    found->running = atomic_load_explicit(&executor->running, memory_order_relaxed);
    found->blocked_ns = blocked_ns;
    ask_for_trace(executor->watch.thread, found->trace, sizeof found->trace);
}

static void report(const finding *found)
{
    weir_log(
        WEIR_LOG_WARN, found->executor, "has been in '%s' for %lld ms, and nothing else runs%s%s",
        found->running != NULL ? found->running : "its first callback",
        (long long)(found->blocked_ns / 1000000),
        found->trace[0] != '\0' ? ":\n" : " (no back trace: SIGURG has a handler)", found->trace);
}

static uint64_t progress_of(const weir_executor *executor)
{
    uint64_t progress = atomic_load_explicit(&executor->tasks_run, memory_order_relaxed) +
                        atomic_load_explicit(&executor->passes, memory_order_relaxed);
    if (executor->io_progress != NULL)
        progress += atomic_load_explicit(executor->io_progress, memory_order_relaxed);
    return progress;
}

/* Whether it has been in one callback for too long, and nobody has heard of it. */
static bool is_blocked(weir_executor *executor, int64_t now_ns)
{
    weir_watch_state *watch = &executor->watch;
    uint64_t progress = progress_of(executor);
    /* Its first task counts when it is done; that it has begun shows here, also behind a start that
     * took too long itself. */
    const char *running = atomic_load_explicit(&executor->running, memory_order_relaxed);
    if (weir__executor_is_asleep(executor) || progress != watch->progress ||
        running != watch->running) {
        watch->progress = progress;
        watch->running = running;
        watch->since_ns = now_ns;
        watch->is_reported = false;
    }
    bool is_late = now_ns - watch->since_ns >= watch->limit_ns && !watch->is_reported;
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
            describe(found, executor, now_ns - executor->watch.since_ns);
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
