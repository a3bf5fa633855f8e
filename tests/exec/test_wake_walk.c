/* SPDX-License-Identifier: MIT */
/* Falling asleep against posting and waking: every interleaving of the real code's steps. */
#include "exec/posters.h" /* here: what is each thread's own is no scheduling point */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

/*
 * The executor's sources are compiled into this program, with a scheduling point before each of
 * their atomic operations. Executor and producers are fibers, of which one runs at a time, and the
 * walk goes depth first through all orders in which their operations can happen.
 *
 * All of them, but each once: two operations on different objects, or two loads, can be swapped
 * without any difference, so of the schedules that differ only in that one is enough (sleep sets,
 * after Godefroid). What only one fiber ever touches is no scheduling point at all; which objects
 * that are is learnt on the way, and the walk begins again whenever it has learnt something.
 *
 * The walk knows one order of all operations. That the weaker memory orders are right it cannot
 * tell; but it looks at those of the sleep word and of the two looks that matter, and under the
 * thread sanitizer, which is told nothing of the scheduler's switches, a missing acquire or release
 * shows as a data race.
 *
 * Nobody in that code spins while another one stands still; if somebody did, a schedule would have
 * no end, and the walk says so.
 */

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#endif
#ifdef HAS_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* What fibers and scheduler share, behind the sanitizer's back. */
#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))

/* Fibers ------------------------------------------------------------------------------------- */

enum {
    CONSUMER,   /* the executor's fiber; the producers follow */
    FIBERS = 4, /* at most */
    STACK_BYTES = 256 * 1024,
    MOST_OBJECTS = 96,
    MOST_STEPS = 1000,
    MOST_OUTCOMES = 64,
};

/* What a fiber is about to do. */
typedef struct walked_step {
    int object; /* its number */
    bool is_write;
    bool is_lock;         /* not before the lock is free */
    bool (*may_go)(void); /* the executor's wait: not before this holds; NULL: always */
} walked_step;

typedef struct fiber {
    ucontext_t context;
    void *stack;
    size_t stack_bytes;
    void *shadow; /* the sanitizers' part of it */
    int number;
    bool is_done;
    walked_step next;
    unsigned ordered_loads, ordered_writes; /* sequentially consistent, since some event */
} fiber;

static fiber scheduler, fibers[FIBERS];
static fiber *running; /* NULL: the scheduler */

static void switch_to(fiber *from, fiber *to, bool syncs)
{
    (void)syncs;
#ifdef HAS_TSAN
    __tsan_switch_to_fiber(to->shadow, syncs ? 0 : __tsan_switch_to_fiber_no_sync);
#endif
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(&from->shadow, to->stack, to->stack_bytes);
#endif
    swapcontext(&from->context, &to->context);
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(from->shadow, NULL, NULL);
#endif
}

UNWATCHED static fiber *own_fiber(void)
{
    return running;
}

UNWATCHED static void set_done(fiber *self)
{
    self->is_done = true;
}

/* The scheduler learns what the fiber did; see resume for the other direction. */
static void give_way(fiber *self)
{
    switch_to(self, &scheduler, true);
}

static void run_body(int number);

static void fiber_main(void)
{
    fiber *self = own_fiber();
#ifdef HAS_ASAN
    const void *stack;
    __sanitizer_finish_switch_fiber(NULL, &stack, &scheduler.stack_bytes);
    memcpy(&scheduler.stack, &stack, sizeof stack);
#endif
    for (;;) {
        run_body(self->number);
        set_done(self);
        give_way(self);
    }
}

static void make_fiber(int number)
{
    fiber *self = &fibers[number];
    *self = (fiber){ .number = number, .stack_bytes = STACK_BYTES };
    self->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                       0);
    assert_ptr_not_equal(self->stack, MAP_FAILED);
    assert_int_equal(getcontext(&self->context), 0);
    self->context.uc_stack.ss_sp = self->stack;
    self->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&self->context, fiber_main, 0);
#ifdef HAS_TSAN
    self->shadow = __tsan_create_fiber(0);
#endif
}

static void free_fiber(int number)
{
    fiber *self = &fibers[number];
#ifdef HAS_TSAN
    __tsan_destroy_fiber(self->shadow);
#endif
#ifdef HAS_ASAN
    __asan_unpoison_memory_region(self->stack, STACK_BYTES);
#endif
    munmap(self->stack, STACK_BYTES);
}

/* The walk ----------------------------------------------------------------------------------- */

/* A place on the way where it was decided who goes on. Sets of fibers are bits. */
typedef struct crossing {
    unsigned enabled;
    unsigned asleep; /* those whose next step would lead where we have been already */
    unsigned tried;
    unsigned chosen;
} crossing;

static struct {
    int fiber_count;
    bool is_full; /* leaves nothing out: neither equal schedules nor points */
    crossing path[MOST_STEPS];
    unsigned path_length; /* how much of it is given; a run adds to it */
    bool is_over;         /* the run: what is left happens without points */
    bool is_redundant;
    bool is_locked;

    const volatile void *objects[MOST_OBJECTS];
    unsigned readers[MOST_OBJECTS], writers[MOST_OBJECTS];
    bool is_shared[MOST_OBJECTS];
    int object_count;
    bool has_learnt;

    const char *weakness; /* an order that is too weak */
    uint64_t outcomes[MOST_OUTCOMES];
    int outcome_count;
    unsigned long schedules, redundant;
    unsigned deepest;
} walk;

UNWATCHED static int number_of(const volatile void *object)
{
    for (int i = 0; i < walk.object_count; i++) {
        if (walk.objects[i] == object)
            return i;
    }
    if (walk.object_count == MOST_OBJECTS)
        abort();
    walk.objects[walk.object_count] = object;
    return walk.object_count++;
}

UNWATCHED static void note_access(int object, int who, bool is_write)
{
    walk.readers[object] |= 1U << who;
    if (is_write)
        walk.writers[object] |= 1U << who;
    unsigned all = walk.readers[object];
    bool is_shared = walk.writers[object] != 0 && (all & (all - 1)) != 0;
    if (is_shared && !walk.is_shared[object]) {
        walk.is_shared[object] = true;
        walk.has_learnt = true;
    }
}

/* Before an operation on something shared: lets the scheduler decide who is next. */
UNWATCHED static void point(const volatile void *address, bool is_write)
{
    fiber *self = running;
    if (self == NULL || walk.is_over)
        return;
    int object = number_of(address);
    note_access(object, self->number, is_write);
    if (!walk.is_shared[object] && !walk.is_full)
        return;
    self->next.object = object;
    self->next.is_write = is_write;
    self->next.is_lock = false;
    self->next.may_go = NULL;
    give_way(self);
}

/* The executor's wait: goes on when its object has been written to, and `may_go` holds. */
UNWATCHED static void wait_point(const volatile void *address, bool (*may_go)(void))
{
    fiber *self = running;
    if (self == NULL || walk.is_over)
        return;
    self->next.object = number_of(address);
    self->next.is_write = true;
    self->next.is_lock = false;
    self->next.may_go = may_go;
    note_access(self->next.object, self->number, true);
    give_way(self);
}

/* The lock of an executor's end. */
UNWATCHED static void walked_lock(pthread_mutex_t *mutex)
{
    fiber *self = running;
    if (self != NULL && !walk.is_over) {
        self->next.object = number_of(mutex);
        self->next.is_write = self->next.is_lock = true;
        self->next.may_go = NULL;
        note_access(self->next.object, self->number, true);
        if (walk.is_shared[self->next.object])
            give_way(self);
        walk.is_locked = true;
    }
    pthread_mutex_lock(mutex);
}

UNWATCHED static void walked_unlock(pthread_mutex_t *mutex)
{
    point(mutex, true);
    pthread_mutex_unlock(mutex);
    walk.is_locked = false;
}

/* The atomic operations, with points. */

static bool is_sleep_word(const volatile void *address);
static void look_at_order(const volatile void *address, char operation, int order);
static int mutate_load(int value);
static bool is_sleep_forced(void);
static void note_wake(void);
static bool note_fall(const volatile void *address, bool is_done);

#ifdef __clang__
#define RAW_LOAD(object, order) __c11_atomic_load(object, order)
#define RAW_STORE(object, value, order) __c11_atomic_store(object, value, order)
#define RAW_EXCHANGE(object, value, order) __c11_atomic_exchange(object, value, order)
#define RAW_CAS(object, expected, value, order, other)                                             \
    __c11_atomic_compare_exchange_strong(object, expected, value, order, other)
#define RAW_ADD(object, value, order) __c11_atomic_fetch_add(object, value, order)
#define RAW_SUB(object, value, order) __c11_atomic_fetch_sub(object, value, order)
#else
#define RAW_LOAD(object, order) __atomic_load_n(object, order)
#define RAW_STORE(object, value, order) __atomic_store_n(object, value, order)
#define RAW_EXCHANGE(object, value, order) __atomic_exchange_n(object, value, order)
#define RAW_CAS(object, expected, value, order, other)                                             \
    __atomic_compare_exchange_n(object, expected, value, false, order, other)
#define RAW_ADD(object, value, order) __atomic_fetch_add(object, value, order)
#define RAW_SUB(object, value, order) __atomic_fetch_sub(object, value, order)
#endif

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_exchange_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit

#define BEFORE(object, operation, order)                                                           \
    (look_at_order(object, operation, order), point(object, (operation) != 'l'))

/* What a mutated protocol sees in place of the sleep word fits the type of any other object, too.
 */
#define atomic_load_explicit(object, order)                                                        \
    __extension__({                                                                                \
        BEFORE(object, 'l', order);                                                                \
        __typeof__(RAW_LOAD(object, order)) value_ = RAW_LOAD(object, order);                      \
        if (is_sleep_word(object))                                                                 \
            value_ = (__typeof__(value_))(intptr_t)mutate_load((int)(intptr_t)value_);             \
        value_;                                                                                    \
    })
#define atomic_store_explicit(object, value, order)                                                \
    (BEFORE(object, 's', order), RAW_STORE(object, value, order))
#define atomic_exchange_explicit(object, value, order)                                             \
    __extension__({                                                                                \
        BEFORE(object, 'x', order);                                                                \
        __typeof__(RAW_LOAD(object, order)) value_ = RAW_EXCHANGE(object, value, order);           \
        if (is_sleep_word(object)) {                                                               \
            note_wake();                                                                           \
            value_ = (__typeof__(value_))(intptr_t)mutate_load((int)(intptr_t)value_);             \
        }                                                                                          \
        value_;                                                                                    \
    })
#define atomic_compare_exchange_strong_explicit(object, expected, value, order, other)             \
    (BEFORE(object, 'x', order),                                                                   \
     note_fall(object, is_sleep_word(object) && is_sleep_forced()                                  \
                           ? (RAW_STORE(object, value, memory_order_seq_cst), true)                \
                           : RAW_CAS(object, expected, value, order, other)))
#define atomic_compare_exchange_weak_explicit(object, expected, value, order, other)               \
    (BEFORE(object, 'x', order), RAW_CAS(object, expected, value, order, other))
#define atomic_fetch_add_explicit(object, value, order)                                            \
    (BEFORE(object, 'x', order), RAW_ADD(object, value, order))
#define atomic_fetch_sub_explicit(object, value, order)                                            \
    (BEFORE(object, 'x', order), RAW_SUB(object, value, order))

/* The code under test ------------------------------------------------------------------------ */

/* The protocol without one of its parts: each has to be found out. */
typedef enum mutation {
    NONE,
    NO_SECOND_LOOK,    /* at the queues, after saying ASLEEP */
    NO_LOOK_AT_TAIL,   /* in that second look */
    LOOKS_FIRST,       /* the poster looks whether the executor sleeps, then pushes */
    FORGETS_WAKE,      /* falls asleep though it was woken before */
    EVERY_POST_WAKES,  /* whoever posts makes the expensive call */
    SHUTDOWN_IS_QUIET, /* it wakes nobody */
    SHUTDOWN_WAKES_FIRST,
} mutation;

static mutation mutated;

#include "exec/task_queue.c"

static bool is_overlooked(const weir_task_queue *queue);
static void look_first(void);
#define weir__task_queue_is_empty(queue) (is_overlooked(queue) || weir__task_queue_is_empty(queue))
#define weir__task_queue_push(...) (look_first(), weir__task_queue_push(__VA_ARGS__))

#include "exec/executor.c"

static void wake_at_shutdown(weir_executor *executor);
static void wait_for_posters(void);
#define weir__posters_wait(executor) wait_for_posters()
#define state_of state_in_lifecycle
#define weir_executor_wake(executor) wake_at_shutdown(executor)
#define pthread_mutex_lock(mutex) walked_lock(mutex)
#define pthread_mutex_unlock(mutex) walked_unlock(mutex)

#include "exec/lifecycle.c"

#undef weir__task_queue_is_empty
#undef weir__task_queue_push
#undef weir_executor_wake
#undef weir__posters_wait
#undef pthread_mutex_lock
#undef pthread_mutex_unlock

/* The executor under test, and what happens to it --------------------------------------------- */

typedef enum act {
    END, /* of a script */
    POST,
    POST_LAZY,
    POST_TAIL,
    WAKE,
    SHUTDOWN,
    POST_TWO, /* a task that posts another one, from inside */
} act;

enum { MOST_ACTS = 4 };

typedef struct scenario {
    const char *name;
    unsigned long least; /* schedules: fewer would mean that the walk has become blind */
    act scripts[FIBERS - 1][MOST_ACTS];
} scenario;

typedef struct walked_task {
    weir_task task;
    struct walked_task *inner; /* posted when it runs */
    int runs, drops, place;
} walked_task;

static const scenario *played;
static bool retires;       /* the executor is idle at first, and its thread ends */
static int failing_starts; /* of the next thread: so many at first */
static int failing_wakes;  /* so many at first, as when a thread is needed and none can be had */
static bool runs_batches; /* as plain executors do; else until there is nothing left, as loops do */

static struct {
    weir_executor base;
    _Atomic(bool) is_woken;
    _Atomic(bool) is_started; /* the thread after the one that has retired */
    _Atomic(int) posters;     /* producers inside a post */
    int starts, failed_starts;
    bool is_open;
    int wakes, failed_wakes, falls, tasks_run;
    int passes_begun, passes_at_wake; /* when it was last told to wake up */
    walked_task tasks[FIBERS][MOST_ACTS], inner[FIBERS][MOST_ACTS];
    int codes[FIBERS][MOST_ACTS];
    int word_seen[FIBERS]; /* by a poster that looks first */
} subject;

static weir_virtual_clock walk_clock;

static bool is_sleep_word(const volatile void *address)
{
    return address == (const volatile void *)&subject.base.sleep;
}

/* Whether the executor has said that it sleeps, and is about to. */
static bool is_second_look(void)
{
    fiber *self = own_fiber();
    return self != NULL && self->number == CONSUMER &&
           RAW_LOAD(&subject.base.sleep, memory_order_relaxed) != AWAKE;
}

static bool is_overlooked(const weir_task_queue *queue)
{
    return (mutated == NO_SECOND_LOOK ||
            (mutated == NO_LOOK_AT_TAIL && queue == &subject.base.tail_tasks)) &&
           is_second_look();
}

static void look_first(void)
{
    fiber *self = own_fiber();
    if (mutated != LOOKS_FIRST || self == NULL)
        return;
    point(&subject.base.sleep, false);
    subject.word_seen[self->number] = RAW_LOAD(&subject.base.sleep, memory_order_seq_cst);
}

static int mutate_load(int value)
{
    fiber *self = own_fiber();
    if (self == NULL || self->number == CONSUMER)
        return value;
    if (mutated == LOOKS_FIRST)
        return subject.word_seen[self->number];
    return mutated == EVERY_POST_WAKES ? ASLEEP : value;
}

static bool is_sleep_forced(void)
{
    return mutated == FORGETS_WAKE;
}

UNWATCHED static void note_wake(void)
{
    subject.passes_at_wake = subject.passes_begun;
}

UNWATCHED static void note_pass(void)
{
    subject.passes_begun++;
}

/* Counts how often the executor fell asleep. */
static bool note_fall(const volatile void *address, bool is_done)
{
    fiber *self = own_fiber();
    if (is_done && is_sleep_word(address) && self != NULL && self->number == CONSUMER)
        subject.falls++;
    return is_done;
}

static void wake_at_shutdown(weir_executor *executor)
{
    if (mutated != SHUTDOWN_IS_QUIET && mutated != SHUTDOWN_WAKES_FIRST)
        weir_executor_wake(executor);
}

/*
 * One order of all accesses is needed where each side writes, then looks at what the other wrote:
 * at the sleep word, at the poster's last write to the queue, and at the executor's look at both
 * queues. (A queue with fences instead would have to say so here.)
 */
UNWATCHED static void look_at_order(const volatile void *address, char operation, int order)
{
    fiber *self = running;
    if (self == NULL || walk.is_over)
        return;
    bool is_ordered = order == memory_order_seq_cst;
    if (is_sleep_word(address)) {
        if (!is_ordered)
            walk.weakness = "an access to the sleep word";
        if (self->number != CONSUMER && operation == 'l' && self->ordered_writes == 0)
            walk.weakness = "the push before the look at the sleep word";
        self->ordered_loads = self->ordered_writes = 0;
    } else if (is_ordered) {
        self->ordered_loads += operation == 'l';
        self->ordered_writes += operation == 'x';
    }
}

/* A thread that ends, and one that is started, bring what was done before: a wake-up that can fail
 * means these, and so has the lock that keeps them apart. */
static int handovers;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

static void hand_over(void)
{
    if (failing_wakes > 0)
        __atomic_fetch_add(&handovers, 1, __ATOMIC_ACQ_REL);
}

UNWATCHED static bool is_woken(void)
{
    return RAW_LOAD(&subject.is_woken, memory_order_relaxed);
}

static bool walked_wait(weir_executor *executor, int64_t timeout_ns)
{
    (void)executor;
    (void)timeout_ns;
    if (own_fiber()->ordered_loads < 2 && mutated == NONE)
        walk.weakness = "the look at the queues before the wait";
    hand_over();
    wait_point(&subject.is_woken, is_woken);
    /* Relaxed: the protocol must not need the wake-up to bring anything but itself. */
    RAW_STORE(&subject.is_woken, false, memory_order_relaxed);
    hand_over();
    return true;
}

UNWATCHED static void count_wake(void)
{
    subject.wakes++;
}

/* There is a thread to be woken until the executor waits: only then a wake-up can fail. */
UNWATCHED static bool take_failure(void)
{
    bool fails = subject.failed_wakes < failing_wakes && fibers[CONSUMER].next.may_go == is_woken &&
                 !is_woken();
    subject.failed_wakes += fails;
    return fails;
}

static int wake_or_fail(void)
{
    if (take_failure())
        return -EAGAIN;
    hand_over();
    count_wake();
    atomic_store_explicit(&subject.is_woken, true, memory_order_relaxed);
    return 0;
}

UNWATCHED static void look_whether_open(const char *weakness)
{
    if (!subject.is_open)
        walk.weakness = weakness;
}

static int walked_wake(weir_executor *executor)
{
    (void)executor;
    look_whether_open("a wake-up of a backend that is closed");
    if (failing_wakes == 0)
        return wake_or_fail();
    walked_lock(&start_lock);
    hand_over();
    int code = wake_or_fail();
    if (code == 0)
        walked_unlock(&start_lock);
    return code;
}

static void walked_wake_failed(weir_executor *executor)
{
    (void)executor;
    walked_unlock(&start_lock);
}

/* An idle executor wakes up by its timer. */
static bool walked_turn(weir_executor *executor, int64_t max_wait_ns)
{
    if (!executor->may_retire)
        weir__executor_sleep(executor, max_wait_ns);
    note_pass();
    return runs_batches ? weir__executor_run_batch(executor)
                        : weir__executor_run_tasks(executor, -1);
}

/* Retiring. The next thread is the same fiber's, once more. */

static int walked_open(weir_executor *executor)
{
    (void)executor;
    if (subject.is_open)
        walk.weakness = "a backend opened twice";
    subject.is_open = true;
    return 0;
}

/* At the executor's end a backend can be woken until the memory goes. */
static void walked_close(weir_executor *executor)
{
    bool is_end = weir_executor_is_current(executor);
    look_whether_open("a backend closed twice");
    if (is_end && weir_executor_get_state(executor) < WEIR_EXECUTOR_SHUTTING_DOWN)
        walk.weakness = "a backend closed as if its executor had ended";
    subject.is_open = is_end;
}

static void walked_retire(weir_executor *executor)
{
    (void)executor;
    look_whether_open("a backend closed twice");
    subject.is_open = false;
}

UNWATCHED static bool take_start_failure(void)
{
    bool fails = subject.failed_starts < failing_starts;
    subject.failed_starts += fails;
    subject.starts += !fails;
    return fails;
}

/* As a thread's start does it, this brings what was done before. */
static int walked_start(void *start_arg, const char *name, weir_thread_fn body, void *arg)
{
    (void)start_arg;
    (void)name;
    (void)body;
    (void)arg;
    if (take_start_failure())
        return -EAGAIN;
    atomic_store_explicit(&subject.is_started, true, memory_order_release);
    return 0;
}

UNWATCHED static bool is_started(void)
{
    return RAW_LOAD(&subject.is_started, memory_order_relaxed);
}

static void wait_for_start(void)
{
    wait_point(&subject.is_started, is_started);
    (void)RAW_EXCHANGE(&subject.is_started, false, memory_order_acquire);
}

UNWATCHED static bool has_no_posters(void)
{
    return RAW_LOAD(&subject.posters, memory_order_relaxed) == 0;
}

static void wait_for_posters(void)
{
    wait_point(&subject.posters, has_no_posters);
    (void)RAW_LOAD(&subject.posters, memory_order_acquire);
}

static void walked_destroy(weir_executor *executor)
{
    (void)executor;
}

static const weir_executor_type walked_type = {
    .name = "walked",
    .turn = walked_turn,
    .wait = walked_wait,
    .open = walked_open,
    .wake = walked_wake,
    .wake_failed = walked_wake_failed,
    .close = walked_close,
    .retire = walked_retire,
    .destroy = walked_destroy,
};

static int walked_run(weir_task *task)
{
    walked_task *self = WEIR_CONTAINER(task, walked_task, task);
    self->runs++;
    self->place = subject.tasks_run++;
    return self->inner != NULL ? weir_executor_post(&subject.base, &self->inner->task) : 0;
}

static void walked_dropped(weir_task *task)
{
    WEIR_CONTAINER(task, walked_task, task)->drops++;
}

static bool has_shutdown(void)
{
    for (int i = 0; i < walk.fiber_count - 1; i++) {
        for (int j = 0; played->scripts[i][j] != END; j++) {
            if (played->scripts[i][j] == SHUTDOWN)
                return true;
        }
    }
    return false;
}

static int perform(act what, weir_task *task)
{
    switch (what) {
    case POST:
    case POST_TWO:
        return weir_executor_post(&subject.base, task);
    case POST_LAZY:
        return weir_executor_post_lazy(&subject.base, task);
    case POST_TAIL:
        return weir_executor_post_tail(&subject.base, task);
    case WAKE:
        weir_executor_wake(&subject.base);
        return 0;
    default:
        if (mutated == SHUTDOWN_WAKES_FIRST)
            weir_executor_wake(&subject.base);
        return weir_executor_shutdown(&subject.base, 0, WEIR_SECONDS(1));
    }
}

static void run_consumer(void)
{
    while (!weir__executor_run_turns(&subject.base)) {
        wait_for_start();
        if (weir_executor_get_state(&subject.base) == WEIR_EXECUTOR_TERMINATED)
            return;
    }
    if (has_shutdown())
        finish(&subject.base);
}

static void run_body(int number)
{
    if (number == CONSUMER) {
        run_consumer();
        return;
    }
    const act *script = played->scripts[number - 1];
    for (int i = 0; script[i] != END; i++) {
        if (retires)
            atomic_fetch_add_explicit(&subject.posters, 1, memory_order_relaxed);
        subject.codes[number][i] = perform(script[i], &subject.tasks[number][i].task);
        if (retires)
            atomic_fetch_sub_explicit(&subject.posters, 1, memory_order_release);
    }
}

static void prepare(void)
{
    memset(&subject, 0, sizeof subject);
    weir_virtual_clock_init(&walk_clock, WEIR_SECONDS(1));
    weir__executor_init(&subject.base, &walked_type,
                        &(weir_executor_config){
                            .name = "walked", .clock = &walk_clock.clock, .start = walked_start });
    subject.is_open = true;
    subject.base.may_retire = retires;
    atomic_init(&subject.base.state, WEIR_EXECUTOR_STARTED);
    for (int i = 1; i < walk.fiber_count; i++) {
        for (int j = 0; j < MOST_ACTS; j++) {
            weir_task task = { .run = walked_run, .dropped = walked_dropped, .name = "walked" };
            subject.tasks[i][j].task = subject.inner[i][j].task = task;
            if (played->scripts[i - 1][j] == POST_TWO)
                subject.tasks[i][j].inner = &subject.inner[i][j];
            subject.codes[i][j] = 1;
        }
    }
    subject.passes_at_wake = -1; /* never */
}

/* What has to hold when nothing happens any more ------------------------------------------------
 */

static const char *judge_task(const walked_task *task, act what, int code, bool is_ending,
                              bool is_woken_later)
{
    /* The threads that retire here are shut down after the posts, and have time to run them. */
    bool may_drop = !retires || failing_starts > 0;
    if (code == WEIR_ESHUTDOWN && is_ending)
        return task->runs + task->drops == 0 ? NULL : "a refused task was run";
    if (code == -EAGAIN && (failing_wakes > 0 || failing_starts > 0))
        return task->runs + task->drops == 0 ? NULL : "a rejected task was run";
    if (code != 0)
        return "a post failed";
    if (is_ending)
        return task->runs + task->drops == 1 && (task->runs == 1 || may_drop)
                   ? NULL
                   : "a task was lost at the end";
    if (what == POST_LAZY && !is_woken_later)
        return task->runs <= 1 ? NULL : "a lazy task ran twice";
    if (task->runs != 1)
        return task->runs == 0 ? "a task did not run" : "a task ran twice";
    return NULL;
}

static const char *judge_producer(int number, bool is_ending, int *calls, bool *may_leave)
{
    const act *script = played->scripts[number - 1];
    const walked_task *tasks = subject.tasks[number], *last[2] = { NULL };
    for (int i = 0; script[i] != END; i++) {
        *calls += script[i] != POST_LAZY;
        if (script[i] == WAKE || script[i] == SHUTDOWN)
            continue;
        bool is_woken_later = script[i + 1] != END && script[i + 1] != POST_LAZY;
        *may_leave |= script[i] == POST_LAZY && !is_woken_later;
        const char *why = judge_task(&tasks[i], script[i], subject.codes[number][i], is_ending,
                                     is_woken_later);
        if (why == NULL && script[i] == POST_TWO && !is_ending &&
            subject.inner[number][i].runs != 1)
            why = "a task posted from inside did not run";
        if (why != NULL)
            return why;
        const walked_task **before = &last[script[i] == POST_TAIL];
        if (*before != NULL && (*before)->runs == 1 && tasks[i].runs == 1 &&
            tasks[i].place < (*before)->place)
            return "two tasks ran in the wrong order";
        *before = &tasks[i];
    }
    return NULL;
}

/* NULL, or what is wrong. */
static const char *judge(void)
{
    bool is_ending = has_shutdown(), may_leave = false;
    int calls = 0;
    for (int i = 1; i < walk.fiber_count; i++) {
        if (!fibers[i].is_done)
            return "a producer hangs";
        const char *why = judge_producer(i, is_ending, &calls, &may_leave);
        if (why != NULL)
            return why;
    }
    /* Once for each time it fell asleep, but for the last. */
    bool is_retired = fibers[CONSUMER].next.may_go == is_started;
    if (subject.wakes > calls || subject.wakes + !(is_ending || is_retired) > subject.falls)
        return "woken too often";
    if (walk.weakness != NULL && mutated == NONE)
        return walk.weakness;
    if (is_ending) {
        bool has_ended = weir_executor_get_state(&subject.base) == WEIR_EXECUTOR_TERMINATED;
        return has_ended && (is_retired || fibers[CONSUMER].is_done)
                   ? NULL
                   : "the shutdown was not noticed";
    }
    if (is_retired
            ? subject.is_open
            : fibers[CONSUMER].next.may_go != is_woken || !weir__executor_is_asleep(&subject.base))
        return "does not sleep";
    if (!may_leave && weir__executor_has_tasks(&subject.base))
        return "sleeps though there are tasks";
    /* A wake-up that fails counts for nothing, nor does one that came meanwhile, without a task. */
    if (failing_wakes > 0 || retires)
        return NULL;
    /* Asleep or not, after a wake-up it went through its tasks once more. */
    return subject.passes_begun > subject.passes_at_wake ? NULL : "a wake-up was forgotten";
}

/* Walking ------------------------------------------------------------------------------------ */

UNWATCHED static void resume(int number, bool is_start)
{
    running = &fibers[number];
    current_executor = number == CONSUMER ? &subject.base : NULL;
    /* Without a synchronisation, but for the first time in a run: the sanitizer is not to believe
     * that what one fiber did before has happened before what the next one does. */
    switch_to(&scheduler, &fibers[number], is_start);
    running = NULL;
    current_executor = NULL;
}

static bool is_enabled(const fiber *self)
{
    if (self->is_done)
        return false;
    if (self->next.may_go != NULL)
        return self->next.may_go();
    return !self->next.is_lock || !walk.is_locked;
}

static unsigned enabled_fibers(void)
{
    unsigned enabled = 0;
    for (int i = 0; i < walk.fiber_count; i++)
        enabled |= (unsigned)is_enabled(&fibers[i]) << i;
    return enabled;
}

/* Those of a set whose next step could as well come after that of the chosen one. */
static unsigned independent_of(unsigned chosen, unsigned set)
{
    const walked_step *own = &fibers[chosen].next;
    for (int i = 0; i < walk.fiber_count; i++) {
        const walked_step *other = &fibers[i].next;
        if (own->object == other->object && (own->is_write || other->is_write))
            set &= ~(1U << i);
    }
    return set & ~(1U << chosen);
}

static unsigned first_of(unsigned set)
{
    return (unsigned)__builtin_ctz(set);
}

/* Who goes on at this place: as the path says, which may end here and gets longer then. */
static unsigned choose(unsigned depth, unsigned enabled, unsigned asleep)
{
    crossing *here = &walk.path[depth];
    if (depth == walk.path_length) {
        walk.is_redundant = (enabled & ~asleep) == 0; /* wherever it leads, we have been there */
        if (walk.is_redundant)
            return first_of(enabled);
        *here = (crossing){ .enabled = enabled,
                            .asleep = asleep,
                            .chosen = first_of(enabled & ~asleep) };
        walk.path_length++;
    }
    if (here->enabled != enabled)
        fail_msg("%s: a schedule that cannot be repeated", played->name);
    return here->chosen;
}

static void start_run(void)
{
    prepare();
    walk.is_over = walk.is_redundant = false;
    walk.is_locked = false;
    walk.weakness = NULL;
    for (int i = 0; i < walk.fiber_count; i++) {
        fibers[i].is_done = false;
        fibers[i].ordered_loads = fibers[i].ordered_writes = 0;
    }
    for (int i = 0; i < walk.fiber_count; i++)
        resume(i, true); /* up to its first point */
}

/* Whoever is still there gets to its end: the executor by a shutdown. */
static void end_run(void)
{
    walk.is_over = true;
    atomic_store(&subject.base.timeout_ns, 0);
    if (subject.base.state < WEIR_EXECUTOR_SHUTTING_DOWN)
        atomic_store(&subject.base.state, WEIR_EXECUTOR_SHUTTING_DOWN);
    for (int i = 0; i < walk.fiber_count; i++) {
        if (!fibers[i].is_done)
            resume(i, true);
    }
    weir__executor_release(&subject.base);
}

/* How it went, as far as one could tell from outside. */
static void note_outcome(void)
{
    uint64_t outcome = (uint64_t)subject.wakes << 32 |
                       RAW_LOAD(&subject.base.passes, memory_order_relaxed) << 16;
    for (int i = 1; i < walk.fiber_count; i++) {
        for (int j = 0; j < MOST_ACTS; j++)
            outcome = outcome * 5 + (uint64_t)(subject.tasks[i][j].place + subject.codes[i][j]);
    }
    for (int i = 0; i < walk.outcome_count; i++) {
        if (walk.outcomes[i] == outcome)
            return;
    }
    assert_true(walk.outcome_count < MOST_OUTCOMES);
    walk.outcomes[walk.outcome_count++] = outcome;
}

/* One run along the path and beyond it. NULL, or what is wrong. */
static const char *run_once(void)
{
    unsigned enabled, asleep = 0, depth = 0;
    start_run();
    for (; (enabled = enabled_fibers()) != 0; depth++) {
        if (depth >= MOST_STEPS)
            fail_msg("%s: a schedule without end", played->name);
        unsigned chosen = walk.is_redundant ? first_of(enabled) : choose(depth, enabled, asleep);
        if (!walk.is_redundant) {
            const crossing *here = &walk.path[depth];
            asleep = walk.is_full ? 0 : independent_of(chosen, here->asleep | here->tried);
        }
        resume((int)chosen, false);
    }
    const char *why = judge();
    note_outcome();
    if (depth > walk.deepest)
        walk.deepest = depth;
    end_run();
    return why;
}

/* Goes back to the last place where somebody else could go on; false when there is none. */
static bool go_back(void)
{
    while (walk.path_length > 0) {
        crossing *last = &walk.path[walk.path_length - 1];
        last->tried |= 1U << last->chosen;
        unsigned left = last->enabled & ~last->asleep & ~last->tried;
        if (left != 0) {
            last->chosen = first_of(left);
            return true;
        }
        walk.path_length--;
    }
    return false;
}

static void count_run(void)
{
    if (walk.is_redundant)
        walk.redundant++;
    else
        walk.schedules++;
}

/* When something turned out to be shared that was not known to be. */
static bool begin_again(void)
{
    if (!walk.has_learnt)
        return false;
    walk.has_learnt = false;
    walk.path_length = 0;
    walk.schedules = walk.redundant = 0;
    walk.outcome_count = 0;
    return true;
}

/* Walks all schedules, up to the first that goes wrong: NULL, or what it was. */
static const char *walk_all(const scenario *which, bool is_full)
{
    const char *why;
    memset(&walk, 0, sizeof walk);
    walk.is_full = is_full;
    played = which;
    for (walk.fiber_count = 1; which->scripts[walk.fiber_count - 1][0] != END;)
        walk.fiber_count++;
    for (int i = 0; i < walk.fiber_count; i++)
        make_fiber(i);
    do {
        why = run_once();
        count_run();
    } while (why == NULL && (begin_again() || go_back()));
    for (int i = 0; i < walk.fiber_count; i++)
        free_fiber(i);
    return why;
}

/* The protocol is right ------------------------------------------------------------------------ */

static void walk_one(const scenario *which, bool by_batches)
{
    mutated = NONE;
    runs_batches = by_batches;
    const char *why = walk_all(which, false);
    print_message("             %s, %s: %lu schedules of up to %u steps, %d outcomes\n",
                  which->name, runs_batches ? "by batches" : "until nothing is left",
                  walk.schedules, walk.deepest, walk.outcome_count);
    if (why != NULL)
        fail_msg("%s: %s, in schedule %lu", which->name, why, walk.schedules);
    assert_true(walk.schedules >= which->least);
}

static void walk_both(const scenario *which)
{
    walk_one(which, true);
    walk_one(which, false);
}

static void s058_no_post_is_slept_through(void **state)
{
    (void)state;
    walk_both(&(scenario){ "a post", 5, { { POST } } });
    walk_both(&(scenario){ "two posts", 50, { { POST, POST } } });
    walk_both(&(scenario){ "two posters", 1000, { { POST }, { POST } } });
}

/* A minute, instead of seconds. */
static void more_posts_than_usual(void **state)
{
    (void)state;
    if (getenv("WEIR_LONG_TESTS") == NULL)
        skip();
    walk_both(&(scenario){ "a post that posts, and a post", 5000, { { POST_TWO }, { POST } } });
    walk_both(&(scenario){ "three posts", 2000, { { POST, POST, POST } } });
}

static void s052_post_from_inside_is_not_slept_through(void **state)
{
    (void)state;
    walk_both(&(scenario){ "a post that posts", 5, { { POST_TWO } } });
}

static void s055_lazy_post_runs_with_the_next_wake_up(void **state)
{
    (void)state;
    walk_both(&(scenario){ "a lazy post", 2, { { POST_LAZY } } });
    walk_both(&(scenario){ "a lazy post, and a wake-up", 4, { { POST_LAZY, WAKE } } });
    walk_both(&(scenario){ "a lazy post, then a post", 20, { { POST_LAZY, POST } } });
    walk_both(&(scenario){ "a lazy post beside a post", 100, { { POST_LAZY }, { POST } } });
}

static void s031_wake_up_is_not_forgotten(void **state)
{
    (void)state;
    walk_both(&(scenario){ "a wake-up", 2, { { WAKE } } });
    walk_both(&(scenario){ "two wake-ups", 5, { { WAKE, WAKE } } });
    walk_both(&(scenario){ "two who wake", 10, { { WAKE }, { WAKE } } });
    walk_both(&(scenario){ "a wake-up beside a post", 20, { { WAKE }, { POST } } });
}

static void s064_tail_task_is_not_slept_through(void **state)
{
    (void)state;
    walk_both(&(scenario){ "a tail task", 5, { { POST_TAIL } } });
    walk_both(&(scenario){ "a tail task, and a post", 50, { { POST_TAIL, POST } } });
    walk_both(&(scenario){ "a tail task beside a post", 200, { { POST_TAIL }, { POST } } });
}

static void s060_shutdown_is_noticed_and_loses_nothing(void **state)
{
    (void)state;
    walk_both(&(scenario){ "a shutdown", 2, { { SHUTDOWN } } });
    walk_both(&(scenario){ "a post, and a shutdown", 5, { { POST, SHUTDOWN } } });
    walk_both(&(scenario){ "a shutdown beside a post", 200, { { SHUTDOWN }, { POST } } });
}

/* Its poster gets its task back when no thread can be had. The tasks of others, who were told that
 * theirs will run, must not wait for the next post. */
static void wake_up_that_fails_loses_no_task_of_others(void **state)
{
    (void)state;
    failing_wakes = 1; /* of the global executor, which runs batches */
    walk_one(&(scenario){ "a post without a thread", 5, { { POST } } }, true);
    walk_one(&(scenario){ "two posters without a thread", 5000, { { POST }, { POST } } }, true);
    walk_one(&(scenario){ "a tail task without a thread", 500, { { POST_TAIL }, { POST } } }, true);
    failing_wakes = 0;
}

/* A thread that ends because it is idle, beside posts and a shutdown: a loop's, so without batches.
 */
static void walk_retiring(const scenario *which, int failures)
{
    retires = true;
    failing_starts = failures;
    walk_one(which, false);
    failing_starts = 0;
    retires = false;
}

static void retiring_thread_loses_no_task(void **state)
{
    (void)state;
    walk_retiring(&(scenario){ "a post to a retiring thread", 5, { { POST } } }, 0);
    walk_retiring(&(scenario){ "two posts to a retiring thread", 50, { { POST, POST } } }, 0);
    walk_retiring(&(scenario){ "a tail task for a retiring thread", 5, { { POST_TAIL } } }, 0);
}

static void shutdown_of_a_retiring_thread_runs_accepted_tasks(void **state)
{
    (void)state;
    walk_retiring(&(scenario){ "a shutdown, retiring", 5, { { SHUTDOWN } } }, 0);
    walk_retiring(&(scenario){ "a post, and a shutdown, retiring", 20, { { POST, SHUTDOWN } } }, 0);
}

/* Its poster gets the task back, or the retiring thread runs it; the executor stays usable. */
static void failed_start_beside_a_retiring_thread_loses_no_task_of_others(void **state)
{
    (void)state;
    walk_retiring(&(scenario){ "a post without a next thread", 5, { { POST } } }, 1);
    walk_retiring(&(scenario){ "two posts, one next thread", 50, { { POST, POST } } }, 1);
    walk_retiring(&(scenario){ "a shutdown without it", 20, { { POST, SHUTDOWN } } }, 1);
}

/* Minutes. */
static void more_posters_at_a_retiring_thread(void **state)
{
    (void)state;
    if (getenv("WEIR_LONG_TESTS") == NULL)
        skip();
    walk_retiring(&(scenario){ "two posters to a retiring thread", 1000, { { POST }, { POST } } },
                  0);
    walk_retiring(&(scenario){ "two posters, one next thread", 1000, { { POST }, { POST } } }, 1);
}

/* The walk is right ---------------------------------------------------------------------------- */

/* Leaving out what makes no difference makes none. */
static void equal_schedules_can_be_left_out(void **state)
{
    (void)state;
    const scenario both[] = {
        { "a post", 5000, { { POST } } },
        { "two who wake", 200, { { WAKE }, { WAKE } } },
    };
    mutated = NONE;
    runs_batches = true;
    for (size_t i = 0; i < sizeof both / sizeof *both; i++) {
        uint64_t outcomes[MOST_OUTCOMES];
        assert_null(walk_all(&both[i], false));
        int count = walk.outcome_count;
        memcpy(outcomes, walk.outcomes, sizeof outcomes);
        assert_null(walk_all(&both[i], true));
        print_message("             %s: %lu schedules, %d outcomes\n", both[i].name, walk.schedules,
                      walk.outcome_count);
        assert_true(walk.schedules >= both[i].least);
        assert_int_equal(walk.outcome_count, count);
        for (int j = 0; j < count; j++) {
            bool is_known = false;
            for (int k = 0; k < count; k++)
                is_known |= walk.outcomes[j] == outcomes[k];
            assert_true(is_known);
        }
    }
}

static void expect_found(mutation what, const char *name, scenario which, const char *expected)
{
    mutated = what;
    for (int i = 0; i < 2; i++) {
        runs_batches = i == 0;
        const char *why = walk_all(&which, false);
        print_message("             %s: %s, in schedule %lu\n", name, why != NULL ? why : "nothing",
                      walk.schedules + walk.redundant);
        assert_non_null(why);
        assert_string_equal(why, expected);
    }
    mutated = NONE;
}

static void mutated_protocols_are_found_out(void **state)
{
    (void)state;
    const char *lost = "a task did not run";
    expect_found(NO_SECOND_LOOK, "no second look", (scenario){ "", 0, { { POST } } }, lost);
    expect_found(NO_LOOK_AT_TAIL, "no second look at the tail",
                 (scenario){ "", 0, { { POST_TAIL } } }, lost);
    expect_found(LOOKS_FIRST, "looks, then pushes", (scenario){ "", 0, { { POST } } }, lost);
    expect_found(FORGETS_WAKE, "sleeps though woken", (scenario){ "", 0, { { WAKE } } },
                 "a wake-up was forgotten");
    expect_found(EVERY_POST_WAKES, "every post wakes", (scenario){ "", 0, { { POST, POST } } },
                 "woken too often");
    expect_found(SHUTDOWN_IS_QUIET, "shutdown without a wake-up",
                 (scenario){ "", 0, { { SHUTDOWN } } }, "the shutdown was not noticed");
    expect_found(SHUTDOWN_WAKES_FIRST, "shutdown that wakes first",
                 (scenario){ "", 0, { { SHUTDOWN } } }, "the shutdown was not noticed");
}

/* What a mutation does not concern is still right. */
static void mutations_are_what_they_say(void **state)
{
    (void)state;
    runs_batches = true;
    mutated = NO_LOOK_AT_TAIL;
    assert_null(walk_all(&(scenario){ "a post", 0, { { POST, POST } } }, false));
    mutated = SHUTDOWN_IS_QUIET;
    assert_null(walk_all(&(scenario){ "a post", 0, { { POST, POST } } }, false));
    mutated = NONE;
}

int main(void)
{
#ifdef HAS_TSAN
    scheduler.shadow = __tsan_get_current_fiber();
#endif
    const struct CMUnitTest tests[] = {
        weir_case(s058_no_post_is_slept_through),
        weir_case(more_posts_than_usual),
        weir_case(s052_post_from_inside_is_not_slept_through),
        weir_case(s055_lazy_post_runs_with_the_next_wake_up),
        weir_case(s031_wake_up_is_not_forgotten),
        weir_case(s064_tail_task_is_not_slept_through),
        weir_case(s060_shutdown_is_noticed_and_loses_nothing),
        weir_case(wake_up_that_fails_loses_no_task_of_others),
        weir_case(retiring_thread_loses_no_task),
        weir_case(shutdown_of_a_retiring_thread_runs_accepted_tasks),
        weir_case(failed_start_beside_a_retiring_thread_loses_no_task_of_others),
        weir_case(more_posters_at_a_retiring_thread),
        weir_case(equal_schedules_can_be_left_out),
        weir_case(mutated_protocols_are_found_out),
        weir_case(mutations_are_what_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
