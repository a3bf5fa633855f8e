/* SPDX-License-Identifier: MIT */
/* The executor as a base: what plain executors and event loops share, and what each brings along.
 */
#ifndef WEIR_EXEC_EXECUTOR_H
#define WEIR_EXEC_EXECUTOR_H

#include "base/heap.h"
#include "base/list.h"
#include "buf/pool.h"
#include "exec/future.h"
#include "exec/task_queue.h"

#include <weir/clock.h>
#include <weir/executor.h>
#include <weir/group.h>

#include <pthread.h>

typedef struct weir_sys weir_sys;

/* Where a thread is: the functions on its stack, innermost first. 0: not known. */
typedef struct weir_stack {
    uintptr_t functions[32];
    int count;
} weir_stack;

/* The channel, handler and callback that an executor runs, as far as known: for the watchdog. */
typedef struct weir_subject {
    uint64_t channel;     /* its id; 0: none */
    int fd;               /* of a descriptor that is no channel's; -1: none */
    const char *callback; /* of its handler; NULL: not known */
    char handlers[96];    /* the name of that handler's type; else of all that the channel has */
} weir_subject;

/* Describes an object whose callback runs. Called in a signal handler on the executor's thread: it
 * only reads, and takes no lock. */
typedef void (*weir_describe_fn)(const void *object, const weir_stack *stack,
                                 weir_subject *subject);

/* A callback that runs, on the stack of its caller. Visits may be nested. */
typedef struct weir_visit weir_visit;
struct weir_visit {
    weir_executor *executor; /* the current one; NULL: none */
    weir_describe_fn describe;
    const void *object; /* stays until the end of the visit */
    const weir_visit *outer;
};
void weir__visit_begin(weir_visit *visit, weir_describe_fn describe, const void *object);
void weir__visit_end(const weir_visit *visit);

/* What kind of executor it is. The executor is the first member of a struct of its kind's. */
typedef struct weir_executor_type {
    const char *name;
    bool is_loop; /* no future may be waited for on its thread */

    /* Before there is a thread, by whoever starts it: opens what it needs. NULL: nothing. */
    int (*open)(weir_executor *executor);

    /* The first thing on its thread. NULL: nothing. */
    void (*begin)(weir_executor *executor);

    /* The thread's body: turns until weir__executor_confirm_shutdown says that it is over. NULL:
     * weir__executor_run_turns. */
    void (*run)(weir_executor *executor);

    /* One turn: unless there is something to do, waits at most `max_wait_ns` (negative: no limit);
     * then does it. Whether there was anything. */
    bool (*turn)(weir_executor *executor, int64_t max_wait_ns);

    /* Whether something besides tasks waits to be done in the next turn. NULL: never. */
    bool (*is_busy)(const weir_executor *executor);

    /* Waits until woken, at most `timeout_ns` (negative: for ever); whether anything ended the wait
     * before its time. On its thread, from weir__executor_sleep. */
    bool (*wait)(weir_executor *executor, int64_t timeout_ns);

    /* Ends a wait that is going on or about to begin. 0, or a negative code when there is no thread
     * and none can be started; then no thread starts one until wake_failed is called: the caller of
     * wake owns the queues until then. NULL for a kind that always has one. Any thread. */
    int (*wake)(weir_executor *executor);
    void (*wake_failed)(weir_executor *executor);

    /* Describes the callback that runs now, if it is no visit. In a signal handler, as
     * weir_describe_fn. NULL: never known. */
    void (*describe)(const weir_executor *executor, const weir_stack *stack, weir_subject *subject);

    /* What becomes readable when a manual one is woken: a descriptor to poll. NULL: none. */
    int (*descriptor)(const weir_executor *executor);

    /* The last thing on its thread: closes what was opened. NULL: nothing. */
    void (*close)(weir_executor *executor);

    /* The same for a thread that ends because it is idle, while the executor stays: `open` follows
     * when there is another thread. Runs no callbacks; no other thread calls wake meanwhile. NULL:
     * it never retires. */
    void (*retire)(weir_executor *executor);

    /* Frees the struct. */
    void (*destroy)(weir_executor *executor);
} weir_executor_type;

/* What one executor is made of. */
typedef struct weir_executor_config {
    const char *name;
    weir_clock *clock; /* NULL: the monotonic one */
    weir_sys *sys;     /* NULL: Linux */
    uint32_t max_pending_tasks;
    weir_reject_fn reject;
    void *reject_arg;
    weir_thread_start_fn start;
    void *start_arg;
    size_t stack_bytes;
    int cpu; /* WEIR_OFF, or the CPU that its thread stays on */
    bool is_manual;
} weir_executor_config;

/* What the watchdog knows about an executor; under its lock, but for the limit. */
typedef struct weir_watch_state {
    int64_t limit_ns; /* 0: not watched */
    weir_list_node node;
    pthread_t thread;
    uint64_t progress;   /* as of the last look, and since when */
    const char *running; /* then */
    int64_t since_ns;
    unsigned looks; /* without any progress */
    bool is_reported;
} weir_watch_state;

struct weir_executor {
    /* Set once. */
    const weir_executor_type *type;
    weir_group *group;
    size_t number; /* among the group's children */
    weir_clock *clock;
    weir_sys *sys;
    char name[16];
    weir_reject_fn reject;
    void *reject_arg;
    weir_thread_start_fn start;
    void *start_arg;
    size_t stack_bytes;
    int cpu;
    bool is_manual;           /* has no thread: its maker steps it */
    weir_executor *companion; /* of a manual group's background: a child to wake with it */
    bool is_global;           /* cannot be shut down */

    /* Any thread's. */
    _Atomic(int) state;
    _Atomic(int) sleep;      /* awake, asleep or woken: see executor.c */
    _Atomic(int) start_code; /* why it could not be started the last time; 0: it could */
    char apart[64];          /* posters write the next line, and every pass reads the ones before */
    weir_task_queue tasks;
    weir_task_queue tail_tasks;
    _Atomic(int64_t) quiet_ns, timeout_ns; /* of the shutdown */
    weir_home home;                        /* of the next, for which the executor stays */
    weir_future terminated;
    _Atomic(size_t) refs;     /* the owner's, and the thread's */
    pthread_mutex_t end_lock; /* of a thread that retires, and of tasks that came too late */
    pthread_t thread;
    bool is_joinable; /* it is a thread of weir's own, and started */

    /* Its own thread's. */
    weir_heap timers;
    weir_list shutdown_hooks, pass_hooks;
    weir_list_node *next_pass_hook; /* while they are being called */
    int64_t now_ns;
    bool is_time_stale;   /* something ran since the clock was read */
    bool is_in_turn;      /* of a manual one: it is being stepped */
    int64_t end_start_ns; /* when it began to end */
    bool is_ending;
    bool may_retire; /* it is idle: its thread may end, if nothing else is to be done */

    /* Counters: written by its thread, but for the first two. */
    _Atomic(uint64_t) wakeups, rejected;
    _Atomic(uint64_t) tasks_run, passes, timer_count, channel_count, tasks_left;
    _Atomic(int64_t) last_run_ns;
    /* The name of the callback that runs, for the watchdog; NULL: none does. */
    _Atomic(const char *) running;
    const weir_visit *visited; /* the innermost; NULL: none. A signal handler reads it, too */
    const _Atomic(uint64_t) *io_progress; /* a loop's completions; NULL: it has none */
    weir_watch_state watch;
};

/* Prepares the base part; the owner has a reference. The config is copied, its name cut. */
void weir__executor_init(weir_executor *executor, const weir_executor_type *type,
                         const weir_executor_config *config);

/* Takes one more, by who knows that there is one. */
void weir__executor_retain(weir_executor *executor);

/* Gives a reference back; the last one destroys. The executor has terminated or never started. */
void weir__executor_release(weir_executor *executor);

/* Waits for the end of weir's own thread, after termination; nothing for threads of others. */
void weir__executor_join(weir_executor *executor);

/* Starts a manual one: opens what it needs. */
int weir__executor_start_manual(weir_executor *executor);

/* One turn of a manual one on the calling thread, waiting at most `max_wait_ns`: 1 when it did
 * something, 0, -EDEADLK inside itself, WEIR_ESHUTDOWN after its end. */
int weir__executor_step(weir_executor *executor, int64_t max_wait_ns);

/* How long until a manual one should be stepped, when nobody wakes it: negative for ever. */
int64_t weir__executor_next_ns(weir_executor *executor);

/* Posts what must not be refused, bound or not. WEIR_ESHUTDOWN after termination, or what starting
 * the thread failed with. */
int weir__executor_post_always(weir_executor *executor, weir_task *task);

/* Posts a task once more that found the queue full, without asking for the rejection again. */
int weir__executor_post_again(weir_executor *executor, weir_task *task);

/* Whether the future can be complete only after the executor has ended. */
bool weir__executor_ends_with(weir_executor *executor, const weir_future *future);

/* Whether it waits for something to do. Any thread. */
bool weir__executor_is_asleep(const weir_executor *executor);

/* Whether no future may be waited for on its thread. */
bool weir__executor_is_loop(const weir_executor *executor);

/* Names the callback that runs from now on; NULL: none does. On its thread. */
static inline void weir__executor_set_running(weir_executor *executor, const char *name)
{
    atomic_store_explicit(&executor->running, name, memory_order_relaxed);
}

/* How far it has come: grows whenever a callback has returned. Any thread. */
uint64_t weir__executor_progress(const weir_executor *executor);

/* For the body of a kind, on the executor's thread --------------------------------------------- */

/* Reads the clock. */
int64_t weir__executor_read_clock(weir_executor *executor);

/* Reads it when something ran since the last time. */
int64_t weir__executor_refresh_clock(weir_executor *executor);

/* Whether a task waits, in the tail, too. */
static inline bool weir__executor_has_tasks(weir_executor *executor)
{
    return !weir__task_queue_is_empty(&executor->tasks) ||
           !weir__task_queue_is_empty(&executor->tail_tasks);
}

/* The two halves of it, for a poster who finds that no thread can be had: tasks that were taken
 * over from their posters, while it is alone with the queues; and tasks that came since. */
static inline bool weir__executor_has_taken(const weir_executor *executor)
{
    return weir__task_queue_taken(&executor->tasks) > 0 ||
           weir__task_queue_taken(&executor->tail_tasks) > 0;
}

static inline bool weir__executor_has_new(const weir_executor *executor)
{
    return weir__task_queue_has_new(&executor->tasks) ||
           weir__task_queue_has_new(&executor->tail_tasks);
}

/* Whether something besides tasks waits to be done in the next turn. */
static inline bool weir__executor_is_busy(const weir_executor *executor)
{
    return executor->type->is_busy != NULL && executor->type->is_busy(executor);
}

/* Whether somebody has asked it to wake up since it fell asleep. */
bool weir__executor_is_woken(const weir_executor *executor);

/* When the next timer is due, INT64_MAX when there is none. */
static inline int64_t weir__executor_next_deadline_ns(const weir_executor *executor)
{
    const weir_heap_node *first = weir__heap_first(&executor->timers);
    return first != NULL ? first->key : INT64_MAX;
}

/* Whether there is something to run: a task, or a timer that was due when the clock was read last.
 */
static inline bool weir__executor_has_something(weir_executor *executor)
{
    return weir__executor_has_tasks(executor) ||
           weir__executor_next_deadline_ns(executor) <= executor->now_ns;
}

/*
 * Goes to sleep unless there is something to do: returns false when there is, else calls the kind's
 * wait until the next timer or `max_ns` (negative: no limit) and returns true.
 */
bool weir__executor_sleep(weir_executor *executor, int64_t max_ns);

/* The two halves of it: false when there is something to do, else how long to wait; and the end of
 * the wait. */
bool weir__executor_fall_asleep(weir_executor *executor, int64_t max_ns, int64_t *timeout_ns);
void weir__executor_get_up(weir_executor *executor);

/* A wait takes so long that the thread's pool is emptied: an idle thread keeps no memory. How long
 * it still has to wait. */
#define WEIR__IDLE_NS 1000000000
int64_t weir__executor_idle(int64_t timeout_ns);

/* The same as weir__executor_sleep, for who knows how it waits. Inline, as everything between a
 * thread's sleep and its work should be: the processor has forgotten where calls return to. */
static inline __attribute__((always_inline)) bool weir__executor_sleep_by(
    weir_executor *executor, int64_t max_ns,
    bool (*wait)(weir_executor *executor, int64_t timeout_ns))
{
    int64_t timeout_ns;
    if (!weir__executor_fall_asleep(executor, max_ns, &timeout_ns))
        return false;
    bool may_idle = (timeout_ns < 0 || timeout_ns > WEIR__IDLE_NS) && weir__pool_has_cache();
    if (!wait(executor, may_idle ? WEIR__IDLE_NS : timeout_ns) && may_idle)
        wait(executor, weir__executor_idle(timeout_ns));
    weir__executor_get_up(executor);
    return true;
}

/*
 * Moves due timers to the queue and runs tasks, for `budget_ns` (negative: until there is none),
 * then the tail. The clock is read after every 64th task. Whether anything ran.
 */
bool weir__executor_run_tasks(weir_executor *executor, int64_t budget_ns);

/* The same for the tasks that are there now, but none that they add. */
bool weir__executor_run_batch(weir_executor *executor);

/* A body: turns until the shutdown is over; or false when the idle thread has retired. */
bool weir__executor_run_turns(weir_executor *executor);

/*
 * Whether the body should end. While it should not, `*max_wait_ns` is how long the next turn may
 * wait: negative (no limit) unless a shutdown is going on, for which this runs what is left.
 */
bool weir__executor_confirm_shutdown(weir_executor *executor, int64_t *max_wait_ns);

#endif
