/* SPDX-License-Identifier: MIT */
/* weir-sim: runs simulated programs from seed to seed, and tells of those that fail. */
#include "world.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define TAIL_LINES 60
#define LONGEST_LINE 512

static const char usage[] =
    "weir-sim [--program echo|chat|proxy|pool|all] [--seeds N] [--first N] [--seconds N]\n"
    "         [--seed N] [--trace]\n"
    "  --seeds N    tries so many seeds of each program (1000), beginning with --first (1)\n"
    "  --seconds N  stops after so long, whatever --seeds says\n"
    "  --seed N     replays one, with its trace\n"
    "  --trace      prints the trace of every seed\n";

typedef struct options {
    const char *program;
    uint64_t first, seeds, seconds;
    bool is_one, is_traced;
} options;

static void print_line(void *arg, const char *line)
{
    (void)arg;
    puts(line);
}

/* The last lines of a trace. */
typedef struct tail {
    char lines[TAIL_LINES][LONGEST_LINE];
    size_t count;
} tail;

static void keep_line(void *arg, const char *line)
{
    tail *self = arg;
    snprintf(self->lines[self->count++ % TAIL_LINES], LONGEST_LINE, "%s", line);
}

static void print_tail(const tail *self)
{
    size_t first = self->count > TAIL_LINES ? self->count - TAIL_LINES : 0;
    if (first > 0)
        printf("  ... %zu lines before\n", first);
    for (size_t i = first; i < self->count; i++)
        printf("  %s\n", self->lines[i % TAIL_LINES]);
}

/* The same once more, for its trace. */
static void tell_failure(const program *what, uint64_t seed, const char *failure)
{
    char again[256];
    tail *last = calloc(1, sizeof *last);
    printf("%s, seed %" PRIu64 ": %s\n", what->name, seed, failure);
    if (last != NULL) {
        run_seed(what, seed, keep_line, last, again);
        print_tail(last);
    }
    free(last);
    printf("replay with: weir-sim --program %s --seed %" PRIu64 "\n", what->name, seed);
    fflush(stdout);
}

/* One that goes on for ever: its number is all that can be told. */
#define MOST_SECONDS 100

static char endless[100];

static void on_alarm(int number)
{
    (void)number;
    ssize_t ignored = write(STDOUT_FILENO, endless, strlen(endless));
    (void)ignored;
    _exit(1);
}

static void set_alarm(const program *what, uint64_t seed)
{
    snprintf(endless, sizeof endless, "%s, seed %" PRIu64 ": does not end\n", what->name, seed);
    signal(SIGALRM, on_alarm);
    alarm(MOST_SECONDS);
}

static bool try_seed(const program *what, uint64_t seed, const options *o)
{
    char failure[256];
    set_alarm(what, seed);
    bool holds = run_seed(what, seed, o->is_traced ? print_line : NULL, NULL, failure);
    if (!holds && o->is_traced)
        printf("%s, seed %" PRIu64 ": %s\n", what->name, seed, failure);
    else if (!holds)
        tell_failure(what, seed, failure);
    return holds;
}

static bool is_chosen(const program *which, const options *o)
{
    return strcmp(o->program, "all") == 0 || strcmp(o->program, which->name) == 0;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int run_all(const options *o)
{
    uint64_t run = 0, failures = 0;
    double start = seconds_now(), taken = 0;
    for (uint64_t i = 0; i < o->seeds; i++) {
        for (size_t p = 0; programs[p] != NULL; p++) {
            if (!is_chosen(programs[p], o))
                continue;
            run++;
            failures += !try_seed(programs[p], o->first + i, o);
        }
        taken = seconds_now() - start;
        if (failures >= 5 || (o->seconds > 0 && taken >= (double)o->seconds))
            break;
    }
    printf("seeds run %" PRIu64 ", failures %" PRIu64 " (%.1f s, %.0f a second)\n", run, failures,
           taken, taken > 0 ? (double)run / taken : 0);
    return failures > 0;
}

static bool take_number(int argc, char **argv, int *at, uint64_t *number)
{
    char *end;
    if (++*at >= argc)
        return false;
    *number = strtoull(argv[*at], &end, 10);
    return *end == '\0' && end != argv[*at];
}

static bool read_options(int argc, char **argv, options *o)
{
    for (int i = 1; i < argc; i++) {
        bool is_good = true;
        if (strcmp(argv[i], "--program") == 0 && i + 1 < argc)
            o->program = argv[++i];
        else if (strcmp(argv[i], "--seeds") == 0)
            is_good = take_number(argc, argv, &i, &o->seeds);
        else if (strcmp(argv[i], "--first") == 0)
            is_good = take_number(argc, argv, &i, &o->first);
        else if (strcmp(argv[i], "--seconds") == 0)
            is_good = take_number(argc, argv, &i, &o->seconds);
        else if (strcmp(argv[i], "--seed") == 0)
            is_good = o->is_one = take_number(argc, argv, &i, &o->first);
        else if (strcmp(argv[i], "--trace") == 0)
            o->is_traced = true;
        else
            is_good = false;
        if (!is_good)
            return false;
    }
    bool is_known = false;
    for (size_t p = 0; programs[p] != NULL; p++)
        is_known |= is_chosen(programs[p], o);
    if (o->is_one) {
        o->seeds = 1;
        o->is_traced = true;
    }
    return is_known;
}

int main(int argc, char **argv)
{
    options o = { .program = "all", .first = 1, .seeds = 1000 };
    if (!read_options(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    return run_all(&o);
}
