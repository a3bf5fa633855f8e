/* SPDX-License-Identifier: MIT */
/* weir-torture: every scenario once to count its fallible calls, then once for each of them and
 * each way it can fail, each in a process of its own. */
#include "harness.h"
#include "torture/faults.h"
#include "torture/scenarios.h"

#include <errno.h>
#include <execinfo.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_CALLS = 1 << 16,
    NAME_SIZE = 24,
    HANG_S = 60, /* for a case: a loaded machine, and a sanitizer, take their time */
};

/* What a child tells its parent. */
typedef struct shared {
    unsigned count; /* of calls */
    char names[MOST_CALLS][NAME_SIZE];
} shared;

static shared *seen;

/* One case: the call that fails, counted from 0, and how. */
typedef struct fault_case {
    unsigned at;
    unsigned nth;
} fault_case;

/* The hook ------------------------------------------------------------------------------------- */

static struct {
    unsigned calls;
    unsigned at;
    int fault;     /* 0: none, they are only counted */
    bool is_shown; /* where it was made */
} hook;

static void show_place(void)
{
    void *frames[40];
    int count = backtrace(frames, sizeof frames / sizeof *frames);
    backtrace_symbols_fd(frames, count, STDERR_FILENO);
}

static int on_call(void *arg, const char *call, size_t *length)
{
    (void)arg;
    unsigned index = hook.calls++;
    if (hook.fault == 0 && index < MOST_CALLS) {
        snprintf(seen->names[index], NAME_SIZE, "%s", call);
        seen->count = index + 1;
    }
    if (hook.fault == 0 || index != hook.at)
        return 0;
    if (hook.is_shown)
        show_place();
    if (hook.fault != FAULT_SHORT)
        return hook.fault;
    if (length != NULL && *length > 1)
        *length = 1;
    return 0;
}

/* Of a case that is replayed everything is shown, else nothing; but what would be said is made. */
static void log_line(void *arg, weir_log_level level, const char *origin, const char *message)
{
    (void)arg;
    (void)level;
    if (hook.is_shown)
        fprintf(stderr, "%s: %s\n", origin, message);
}

/* Children ------------------------------------------------------------------------------------- */

/* What must hold of a run, whether or not anything failed in it. */
static int run_once(const scenario *what, weir_io_kind io)
{
    void *state = NULL;
    harness_remember_what_lives(&state);
    weir_log_set(WEIR_LOG_DEBUG, log_line, NULL);
    weir_fault_set(on_call, NULL);
    int code = what->run(io);
    weir_fault_set(NULL, NULL);
    harness_assert_nothing_left(&state);
    return code;
}

static int run_counting(const scenario *what, weir_io_kind io)
{
    int code = run_once(what, io);
    if (code < 0)
        fprintf(stderr, "it fails by itself: %s\n", weir_error_text(code));
    return code < 0 ? 2 : 0;
}

/* With the fault, then without. */
static int run_failing(const scenario *what, weir_io_kind io, unsigned at, int fault)
{
    hook.at = at;
    hook.fault = fault;
    run_once(what, io);
    hook.calls = 0;
    hook.at = MOST_CALLS;
    int code = run_once(what, io);
    if (code < 0)
        fprintf(stderr, "the second try fails, too: %s\n", weir_error_text(code));
    return code < 0 ? 2 : 0;
}

static const char *status_text(int status)
{
    static char text[64];
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        return "it hangs";
    if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "it crashed: %s", strsignal(WTERMSIG(status)));
    else
        snprintf(text, sizeof text, "it ended with %d", WEXITSTATUS(status));
    return text;
}

/* In a process of its own; true when it ended well. */
static bool run_child(const scenario *what, weir_io_kind io, unsigned at, int fault, int *status)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("weir-torture: fork");
        exit(2);
    }
    if (child == 0) {
        alarm(HANG_S);
        exit(fault == 0 ? run_counting(what, io) : run_failing(what, io, at, fault));
    }
    while (waitpid(child, status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
}

/* All of it ------------------------------------------------------------------------------------ */

typedef struct options {
    const char *scenario; /* NULL: all */
    const char *io;       /* NULL: all there are */
    long only;            /* the case to replay, -1: all */
    unsigned sample;      /* how many cases of each scenario; 0: all */
} options;

typedef struct totals {
    unsigned cases, failures;
} totals;

static bool is_terminal;

static void progress(const scenario *what, const char *io, unsigned done, unsigned count)
{
    if (is_terminal)
        fprintf(stderr, "\rtorture: %s over %s: %u of %u   ", what->name, io, done, count);
}

static void one_case(const scenario *what, weir_io_kind io, const char *io_name, unsigned number,
                     unsigned at, int fault, totals *sum)
{
    int status;
    sum->cases++;
    if (run_child(what, io, at, fault, &status))
        return;
    sum->failures++;
    printf("%storture: %s over %s, case %u (call %u, %s: %s): %s\n"
           "replay with: weir-torture --scenario %s --io %s --case %u\n",
           is_terminal ? "\n" : "", what->name, io_name, number, at, seen->names[at],
           fault_text(fault), status_text(status), what->name, io_name, number);
}

static void torture(const scenario *what, weir_io_kind io, const char *io_name,
                    const options *chosen, totals *sum)
{
    int status;
    memset(seen, 0, sizeof *seen);
    if (!run_child(what, io, 0, 0, &status)) {
        printf("torture: %s over %s does not work at all: %s\n", what->name, io_name,
               status_text(status));
        sum->failures++;
        return;
    }
    unsigned count = 0;
    for (unsigned at = 0; at < seen->count; at++)
        for (unsigned nth = 0; fault_at(seen->names[at], nth) != 0; nth++)
            count++;
    unsigned stride = chosen->sample > 0 && count > chosen->sample ? count / chosen->sample : 1;
    unsigned number = 0;
    for (unsigned at = 0; at < seen->count; at++) {
        int fault;
        for (unsigned nth = 0; (fault = fault_at(seen->names[at], nth)) != 0; nth++, number++) {
            if (chosen->only >= 0 ? number != (unsigned)chosen->only : number % stride != 0)
                continue;
            progress(what, io_name, number, count);
            one_case(what, io, io_name, number, at, fault, sum);
        }
    }
    if (chosen->only < 0)
        printf("%s%-9s %-6s %6u calls %6u cases%s\n", is_terminal ? "\r" : "", what->name, io_name,
               seen->count, (count + stride - 1) / stride, stride > 1 ? " (a sample)" : "");
}

static options parse(int argc, char **argv)
{
    enum { SCENARIO, IO, CASE, SAMPLE };
    static const struct option switches[] = {
        { "scenario", required_argument, NULL, SCENARIO },
        { "io", required_argument, NULL, IO },
        { "case", required_argument, NULL, CASE },
        { "sample", required_argument, NULL, SAMPLE },
        { 0 },
    };
    options self = { .only = -1 };
    for (int which; (which = getopt_long(argc, argv, "", switches, NULL)) != -1;) {
        switch (which) {
        case SCENARIO:
            self.scenario = optarg;
            break;
        case IO:
            self.io = optarg;
            break;
        case CASE:
            self.only = strtol(optarg, NULL, 10);
            break;
        case SAMPLE:
            self.sample = (unsigned)strtoul(optarg, NULL, 10);
            break;
        default:
            fprintf(stderr, "usage: weir-torture [--scenario NAME] [--io KIND] [--case N] "
                            "[--sample N]\n");
            exit(2);
        }
    }
    return self;
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = { "epoll", "uring" };
    options chosen = parse(argc, argv);
    totals sum = { 0 };
    is_terminal = isatty(STDERR_FILENO);
    hook.is_shown = chosen.only >= 0;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) {
        perror("weir-torture: mmap");
        return 2;
    }
    for (const scenario *what = scenarios; what->name != NULL; what++) {
        if (chosen.scenario != NULL && strcmp(chosen.scenario, what->name) != 0)
            continue;
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
            if ((chosen.io != NULL && strcmp(chosen.io, kinds[i]) != 0) ||
                (i > 0 && (!what->is_for_kernel || !harness_has_uring())))
                continue;
            torture(what, (weir_io_kind)weir_io_kind_from(kinds[i]), kinds[i], &chosen, &sum);
        }
    }
    printf("faults tried %u, failures %u\n", sum.cases, sum.failures);
    return sum.failures == 0 && sum.cases > 0 ? 0 : 1;
}
