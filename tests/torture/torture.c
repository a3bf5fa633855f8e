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
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum {
    MOST_CALLS = 1 << 16,
    MOST_NAMES = 64,
    NAME_SIZE = 24,
    HANG_S = 60,    /* for a case: a loaded machine, and a sanitizer, take their time */
    MOST_JOBS = 16, /* cases at once */
};

/* What children tell their parent. */
typedef struct shared {
    atomic_uint count; /* of calls */
    char names[MOST_CALLS][NAME_SIZE];
    atomic_uint
        missed; /* cases in which the call was not made as often: with threads that happens */
} shared;

static shared *seen;

/* A fault is the n-th call (from 0) of a name, and not the n-th of all: with threads these come in
 * another order each time, and every call has faults of its own. */
typedef struct fault_case {
    char call[NAME_SIZE];
    unsigned nth;
    int fault; /* 0: none, they are only counted */
} fault_case;

/* Where it happens. */
typedef struct place {
    const scenario *what;
    setting how;
    const char *io_name;
} place;

/* The hook ------------------------------------------------------------------------------------- */

static struct {
    fault_case failing;
    atomic_uint made; /* calls of its name */
    bool is_shown;    /* where it was made */
} hook;

static void show_place(void)
{
    void *frames[40];
    int count = backtrace(frames, sizeof frames / sizeof *frames);
    backtrace_symbols_fd(frames, count, STDERR_FILENO);
}

static int count_call(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    unsigned index = atomic_fetch_add(&seen->count, 1);
    MUST(index < MOST_CALLS);
    snprintf(seen->names[index], NAME_SIZE, "%s", call);
    return 0;
}

static int fail_call(void *arg, const char *call, size_t *length)
{
    (void)arg;
    if (strcmp(call, hook.failing.call) != 0 || atomic_fetch_add(&hook.made, 1) != hook.failing.nth)
        return 0;
    if (hook.is_shown)
        show_place();
    if (hook.failing.fault != FAULT_SHORT)
        return hook.failing.fault;
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
static int run_once(const place *where, weir_fault_fn on_call)
{
    void *state = NULL;
    harness_remember_what_lives(&state);
    weir_log_set(WEIR_LOG_DEBUG, log_line, NULL);
    weir_fault_set(on_call, NULL);
    int code = play(where->what, &where->how);
    weir_fault_set(NULL, NULL);
    harness_assert_nothing_left(&state);
    return code;
}

static int run_counting(const place *where)
{
    int code = run_once(where, count_call);
    if (code < 0)
        fprintf(stderr, "it fails by itself: %s\n", weir_error_text(code));
    return code < 0 ? 2 : 0;
}

/* With the fault, then without. */
static int run_failing(const place *where, const fault_case *failing)
{
    hook.failing = *failing;
    run_once(where, fail_call);
    if (hook.made <= failing->nth)
        seen->missed++;
    int code = run_once(where, NULL);
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

/* In a process of its own. */
static pid_t start_child(const place *where, const fault_case *failing)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("weir-torture: fork");
        exit(2);
    }
    if (child == 0) {
        alarm(HANG_S);
        exit(failing->fault == 0 ? run_counting(where) : run_failing(where, failing));
    }
    return child;
}

static pid_t wait_for_child(int *status)
{
    pid_t child;
    while ((child = wait(status)) < 0 && errno == EINTR)
        ;
    return child;
}

/* All of it ------------------------------------------------------------------------------------ */

typedef struct options {
    const char *scenario;     /* NULL: all */
    const char *io;           /* NULL: all there are */
    bool is_with, is_without; /* threads; neither: both */
    fault_case only;          /* the case to replay; without a fault: all */
    unsigned sample;          /* how many cases of each scenario; 0: all */
    unsigned times;           /* each case */
    unsigned jobs;
} options;

typedef struct job {
    pid_t child; /* 0: none */
    fault_case failing;
} job;

static options chosen = { .times = 1 };
static job jobs[MOST_JOBS];
static unsigned busy_jobs;
static unsigned case_count, failure_count;
static bool is_terminal;

static void tell_failure(const place *where, const fault_case *failing, int status)
{
    const char *threads = where->how.has_threads ? "--threads" : "--no-threads";
    const char *fault = fault_name(failing->fault);
    failure_count++;
    printf("%storture: %s over %s, %s, call %u of %s, %s: %s\n"
           "replay with: weir-torture --scenario %s --io %s %s --fail %s:%u:%s\n",
           is_terminal ? "\n" : "", where->what->name, where->io_name, threads + 2, failing->nth,
           failing->call, fault, status_text(status), where->what->name, where->io_name, threads,
           failing->call, failing->nth, fault);
}

static void end_job(const place *where)
{
    int status;
    pid_t child = wait_for_child(&status);
    for (job *one = jobs; one < jobs + MOST_JOBS; one++) {
        if (one->child != child)
            continue;
        one->child = 0;
        busy_jobs--;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            tell_failure(where, &one->failing, status);
    }
}

static void start_job(const place *where, const fault_case *failing)
{
    if (busy_jobs == chosen.jobs)
        end_job(where);
    job *one = jobs;
    while (one->child != 0)
        one++;
    one->failing = *failing;
    one->child = start_child(where, failing);
    busy_jobs++;
    case_count++;
}

static void try_case(const place *where, const fault_case *failing)
{
    for (unsigned i = 0; i < chosen.times; i++)
        start_job(where, failing);
}

/* The n-th (from 0) case in the order of the calls that were counted; false behind the last. */
typedef struct cases {
    unsigned at, nth_fault;
    struct {
        const char *name;
        unsigned made;
    } calls[MOST_NAMES];
} cases;

static unsigned *calls_made(cases *self, const char *name)
{
    for (unsigned i = 0; i < MOST_NAMES; i++) {
        if (self->calls[i].name == NULL)
            self->calls[i].name = name;
        if (strcmp(self->calls[i].name, name) == 0)
            return &self->calls[i].made;
    }
    MUST(false); /* more names than expected */
    return NULL;
}

static bool next_case(cases *self, fault_case *found)
{
    while (self->at < seen->count) {
        const char *name = seen->names[self->at];
        unsigned *made = calls_made(self, name);
        *found = (fault_case){ .nth = *made, .fault = fault_at(name, self->nth_fault++) };
        memcpy(found->call, name, NAME_SIZE);
        if (found->fault != 0)
            return true;
        ++*made;
        self->at++;
        self->nth_fault = 0;
    }
    return false;
}

static unsigned count_cases(void)
{
    unsigned count = 0;
    fault_case ignored;
    for (cases all = { 0 }; next_case(&all, &ignored);)
        count++;
    return count;
}

static bool count_calls(const place *where)
{
    int status;
    memset(seen->names, 0, sizeof seen->names);
    seen->count = 0;
    start_child(where, &(fault_case){ .fault = 0 });
    wait_for_child(&status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return true;
    printf("torture: %s over %s does not work at all: %s\n", where->what->name, where->io_name,
           status_text(status));
    failure_count++;
    return false;
}

static void torture(const place *where)
{
    if (!count_calls(where))
        return;
    const char *threads = where->how.has_threads ? "threads" : "";
    unsigned count = count_cases(), number = 0, tried = 0;
    unsigned stride = chosen.sample > 0 && count > chosen.sample ? count / chosen.sample : 1;
    fault_case next;
    for (cases all = { 0 }; next_case(&all, &next); number++) {
        if (number % stride != 0)
            continue;
        if (is_terminal)
            fprintf(stderr, "\rtorture: %s over %s %s: %u of %u   ", where->what->name,
                    where->io_name, threads, number, count);
        try_case(where, &next);
        tried++;
    }
    while (busy_jobs > 0)
        end_job(where);
    printf("%s%-11s %-8s %-7s %6u calls %6u cases%s\n", is_terminal ? "\r" : "", where->what->name,
           where->io_name, threads, seen->count, tried, stride > 1 ? " (a sample)" : "");
}

static void replay(const place *where)
{
    try_case(where, &chosen.only);
    while (busy_jobs > 0)
        end_job(where);
}

/* CALL:NTH:FAULT, as it was printed. */
static bool parse_case(char *text, fault_case *to)
{
    const char *call = strtok(text, ":"), *nth = strtok(NULL, ":"), *fault = strtok(NULL, ":");
    if (fault == NULL)
        return false;
    snprintf(to->call, sizeof to->call, "%s", call);
    to->nth = (unsigned)strtoul(nth, NULL, 10);
    to->fault = fault_named(call, fault);
    return to->fault != 0;
}

static bool parse(int argc, char **argv)
{
    enum { SCENARIO, IO, THREADS, NO_THREADS, FAIL, SAMPLE, TIMES, JOBS };
    static const struct option switches[] = {
        { "scenario", required_argument, NULL, SCENARIO },
        { "io", required_argument, NULL, IO },
        { "threads", no_argument, NULL, THREADS },
        { "no-threads", no_argument, NULL, NO_THREADS },
        { "fail", required_argument, NULL, FAIL },
        { "sample", required_argument, NULL, SAMPLE },
        { "times", required_argument, NULL, TIMES },
        { "jobs", required_argument, NULL, JOBS },
        { 0 },
    };
    for (int which; (which = getopt_long(argc, argv, "", switches, NULL)) != -1;) {
        unsigned number = optarg != NULL ? (unsigned)strtoul(optarg, NULL, 10) : 0;
        if (which == SCENARIO)
            chosen.scenario = optarg;
        else if (which == IO)
            chosen.io = optarg;
        else if (which == THREADS)
            chosen.is_with = true;
        else if (which == NO_THREADS)
            chosen.is_without = true;
        else if (which == SAMPLE)
            chosen.sample = number;
        else if (which == TIMES)
            chosen.times = number;
        else if (which == JOBS)
            chosen.jobs = number;
        else if (which != FAIL || !parse_case(optarg, &chosen.only))
            return false;
    }
    return optind == argc && chosen.jobs <= MOST_JOBS;
}

static bool is_chosen(const place *where, unsigned backend)
{
    return (where->what->backends & backend) != 0 &&
           (chosen.scenario == NULL || strcmp(chosen.scenario, where->what->name) == 0) &&
           (chosen.io == NULL || strcmp(chosen.io, where->io_name) == 0) &&
           (where->how.has_threads ? !chosen.is_without : !chosen.is_with) &&
           (backend != ON_URING || harness_has_uring());
}

int main(int argc, char **argv)
{
    static const struct {
        const char *io;
        unsigned backend;
        bool has_threads;
    } settings[] = {
        { "epoll", ON_EPOLL, false },      { "uring", ON_URING, false },
        { "epoll", ON_EPOLL, true },       { "uring", ON_URING, true },
        { "blocking", ON_BLOCKING, true },
    };
    if (!parse(argc, argv)) {
        fprintf(stderr,
                "usage: weir-torture [--scenario NAME] [--io KIND] [--threads|--no-threads] "
                "[--fail CALL:NTH:FAULT] [--times N] [--sample N] [--jobs N]\n");
        return 2;
    }
    is_terminal = isatty(STDERR_FILENO);
    hook.is_shown = chosen.only.fault != 0 && chosen.times == 1;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (chosen.jobs == 0) /* many of them wait for a while */
        chosen.jobs = cpus < MOST_JOBS / 2 ? 2 * (unsigned)cpus : MOST_JOBS;
    seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) {
        perror("weir-torture: mmap");
        return 2;
    }
    for (const scenario *what = scenarios; what->name != NULL; what++) {
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            place where = { .what = what, .io_name = settings[i].io };
            where.how.io = (weir_io_kind)weir_io_kind_from(where.io_name);
            where.how.has_threads = settings[i].has_threads;
            if (!is_chosen(&where, settings[i].backend))
                continue;
            if (chosen.only.fault != 0)
                replay(&where);
            else
                torture(&where);
        }
    }
    printf("faults tried %u, of calls that were not made this time %u, failures %u\n", case_count,
           seen->missed, failure_count);
    return failure_count == 0 && case_count > 0 ? 0 : 1;
}
