/* SPDX-License-Identifier: MIT */
/* The frame of the micro-benchmarks: what a case is, and how its time is taken. */
#ifndef WEIR_BENCH_H
#define WEIR_BENCH_H

#include <weir/api.h>

#include <pthread.h>
#include <sys/types.h>

/*
 * A case is a function that does something `run->count` times. The frame finds the count that
 * makes a round long enough, runs a round to warm up, then rounds of the case and of its peers by
 * turns: A B A B ... Each case has a process of its own, so that none sees the heap another left.
 *
 * To add one: write the function, and a line in its file's table.
 */
typedef struct bench_run bench_run;
typedef void (*bench_fn)(bench_run *run);

/* What a round's time is. */
typedef enum bench_clock {
    BENCH_WALL, /* what a watch shows: for cases that wait or have several threads */
    BENCH_CPU,  /* what the calling thread had of a CPU: other programs disturb it less */
} bench_clock;

struct bench_run {
    uint64_t count; /* how often to do it */
    size_t size;    /* the case's */

    /* The frame's. */
    bench_clock clock;
    bool is_stopped;
    bool has_value;
    uint64_t started_ns;
    uint64_t taken_ns;
    double value;
};

/* The same work done by other means. */
typedef struct bench_peer {
    const char *name; /* NULL: no more peers */
    bench_fn run;     /* NULL: this build is without the peer, which the row then says */
    double target;    /* the case's value divided by the peer's should not be above it; 0: none */
} bench_peer;

#define BENCH_PEERS 4

typedef struct bench_case {
    const char *name; /* <module>.<what>; NULL ends a table */
    const char *what; /* a line for --list: one operation */
    bench_fn run;
    bench_clock clock;
    unsigned batch;   /* operations in each of `count`; 0: one */
    size_t size;      /* whatever the function makes of it */
    const char *unit; /* of what the function reports; NULL: ns/op */
    double limit;     /* the value itself should not be above it; 0: none; only without peers */
    bench_peer peers[BENCH_PEERS];
} bench_case;

/* The tables, one for each file of cases. */
extern const bench_case bench_base_cases[];
extern const bench_case bench_buf_cases[];
extern const bench_case bench_channel_cases[];
extern const bench_case bench_codec_cases[];
extern const bench_case bench_exec_cases[];
extern const bench_case bench_socket_cases[];
extern const bench_case bench_timer_cases[];

/* For cases --------------------------------------------------------------------------------- */

/* The clock runs from the call of the function to its return. Preparation goes before bench_start,
 * which sets it to zero, and cleaning up behind bench_stop. Both on the same thread: that whose CPU
 * time is meant. bench_stop returns the time. */
void bench_start(bench_run *run);
uint64_t bench_stop(bench_run *run);

/* The round's value where it is not time / operations: a percentile, a count. The time is still
 * taken, to find out how many make a round. */
void bench_report(bench_run *run, double value);

/* The time was taken elsewhere, by a peer in a process of its own. */
void bench_take(bench_run *run, uint64_t taken_ns);

/* What a watch shows, for cases that time each operation. */
uint64_t bench_now_ns(void);

/* Ends the program: a case cannot do what it says. */
_Noreturn void bench_fail(const char *format, ...) WEIR_PRINTF(1, 2);

/* Zeroed memory on a cache line of its own, to be freed with free(); never NULL. */
void *bench_alloc(size_t size);

/* Pins a thread, by its id or 0 for the calling one, to the nth of the CPUs there are, counted
 * round, or to all of them but the first. */
#define BENCH_BUT_FIRST UINT32_MAX
void bench_pin_thread(pid_t thread, unsigned nth);
void bench_pin(unsigned nth);

/* Runs `fn` on a thread that is pinned so. */
typedef struct bench_thread {
    pthread_t thread;
    unsigned nth;
    void (*fn)(void *arg);
    void *arg;
} bench_thread;

void bench_thread_start(bench_thread *thread, unsigned nth, void (*fn)(void *arg), void *arg);
void bench_thread_join(bench_thread *thread);

/* One more turn of a loop that waits for another thread; `*turns` was 0 at first. */
void bench_wait(unsigned *turns);

/* A moment for the other thread of the core. */
void bench_relax(void);

/* The compiler knows nothing about the result, and takes all memory for read and written. */
static inline void *bench_hide(void *pointer)
{
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

/* The same for a number, but for the memory. */
static inline uint32_t bench_hide_u32(uint32_t number)
{
    __asm__ volatile("" : "+r"(number));
    return number;
}

/* At the end of functions that differ in the number only, and whose last call is to be one: the
 * compiler would make them one function, and the call a jump. */
#define BENCH_APART(number) __asm__ volatile("" : : "i"(number))

/* A cheap random number. */
static inline uint64_t bench_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* For the program --------------------------------------------------------------------------- */

typedef struct bench_settings {
    unsigned rounds;
    unsigned round_ms;
} bench_settings;

#define BENCH_MAX_ROUNDS 1000

typedef struct bench_stats {
    double median, min, max; /* nanoseconds per operation, or whatever the case reports */
    double spread;           /* (p90 - p10) / median */
} bench_stats;

typedef struct bench_result {
    bench_stats own;
    bench_stats peers[BENCH_PEERS];
    double ratios[BENCH_PEERS]; /* the median of the rounds' own value / peer's value */
} bench_result;

/* Remembers the CPUs there are; before anything else. */
void bench_init(void);
unsigned bench_cpu_count(void);

/* Runs a case in a child process; false, and says so, when that died. */
bool bench_measure(const bench_case *what, const bench_settings *settings, bench_result *result);

#endif
