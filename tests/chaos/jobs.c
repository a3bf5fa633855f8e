/* SPDX-License-Identifier: MIT */
/* Jobs. */
#include "jobs.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_JOBS = 64, MAX_FAILED = 200 };

/* Shared by the processes: the next seed, and the present one of each process. */
typedef struct board {
    _Atomic uint64_t next, done;
    _Atomic uint64_t current[MAX_JOBS];
} board;

typedef struct run {
    board *board;
    uint64_t end; /* one past the last seed */
    time_t until; /* 0: any time */
    job_fn fn;
    void *arg;
} run;

static bool is_over(const run *self)
{
    return self->until != 0 && time(NULL) >= self->until;
}

static void work(const run *self, unsigned job)
{
    uint64_t seed;
    while (!is_over(self) && (seed = atomic_fetch_add(&self->board->next, 1)) < self->end) {
        self->board->current[job] = seed;
        self->fn(self->arg, seed);
        atomic_fetch_add(&self->board->done, 1);
    }
}

static pid_t start(const run *self, unsigned job)
{
    fflush(NULL);
    pid_t child = fork();
    if (child != 0)
        return child;
    work(self, job);
    exit(0); /* so that a sanitizer looks for leaks */
}

static unsigned job_of(const pid_t *children, unsigned jobs, pid_t child)
{
    unsigned job = 0;
    while (job < jobs && children[job] != child)
        job++;
    return job;
}

/* Waits for all, and starts one anew that has died of a seed. */
static uint64_t attend(const run *self, pid_t *children, unsigned jobs)
{
    uint64_t failed[MAX_FAILED], count = 0;
    unsigned alive = jobs;
    while (alive > 0) {
        int status;
        pid_t child = wait(&status);
        unsigned job = job_of(children, jobs, child);
        if (child < 0)
            break;
        if (job == jobs)
            continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            alive--;
            continue;
        }
        uint64_t seed = self->board->current[job];
        fprintf(stderr, "chaos: seed %" PRIu64 " ended its process with status %#x\n", seed,
                status);
        failed[count++ % MAX_FAILED] = seed;
        atomic_fetch_add(&self->board->done, 1);
        children[job] = start(self, job);
    }
    for (uint64_t i = 0; i < count && i < MAX_FAILED; i++)
        printf("chaos: failed: seed %" PRIu64 "\n", failed[i]);
    return count;
}

uint64_t jobs_run(unsigned jobs, uint64_t first, uint64_t count, unsigned seconds, job_fn fn,
                  void *arg, uint64_t *done)
{
    pid_t children[MAX_JOBS];
    board *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                         -1, 0);
    if (shared == MAP_FAILED)
        return count;
    shared->next = first;
    run self = { .board = shared, .end = first + count, .fn = fn, .arg = arg };
    self.until = seconds > 0 ? time(NULL) + seconds : 0;
    jobs = jobs < MAX_JOBS ? jobs : MAX_JOBS;
    for (unsigned job = 0; job < jobs; job++)
        children[job] = start(&self, job);
    uint64_t failures = attend(&self, children, jobs);
    *done = shared->done;
    munmap(shared, sizeof *shared);
    return failures;
}
