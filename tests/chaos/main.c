/* SPDX-License-Identifier: MIT */
/* weir-chaos: random programs over weir's public headers, one per seed, and what must hold in all
 * of them. See docs/testing.md. */
#include "faults.h"
#include "jobs.h"
#include "verdict.h"
#include "world.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char usage[] =
    "weir-chaos [--seeds N] [--first S] [--seed S] [--io epoll|uring|blocking|all]\n"
    "           [--seconds N] [--faults N] [--jobs N] [--limit N] [-v]\n"
    "  --seeds N    runs N seeds (50), from --first (1) on\n"
    "  --seed S     runs one seed\n"
    "  --io KIND    with this backend only\n"
    "  --seconds N  stops after so long, whatever --seeds says\n"
    "  --faults N   one call in N fails; 0: none. Without it each seed has a rate of its own\n"
    "  --jobs N     in N processes; a seed that fails ends its process, and the others go on\n"
    "  --limit N    a seed that takes more than N seconds fails (30)\n"
    "  -v           prints every action\n";

typedef struct options {
    settings settings;
    const char *program, *io;
    uint64_t first, seeds;
    unsigned seconds, jobs;
} options;

static bool take_number(const char *text, uint64_t *number)
{
    char *rest;
    *number = strtoull(text, &rest, 10);
    return *text != '\0' && *rest == '\0';
}

static bool take_io(options *o, const char *name)
{
    int kind = strcmp(name, "all") == 0 ? WEIR_IO_AUTO : weir_io_kind_from(name);
    o->io = name;
    o->settings.io = (weir_io_kind)kind;
    return kind >= 0;
}

static bool take_option(options *o, int option, const char *text)
{
    uint64_t number = 0;
    bool is_number = text != NULL && take_number(text, &number);
    switch (option) {
    case 'n':
        o->seeds = number;
        return is_number;
    case 'f':
        o->first = number;
        return is_number;
    case 's':
        o->first = number;
        o->seeds = 1;
        return is_number;
    case 't':
        o->seconds = (unsigned)number;
        return is_number;
    case 'r':
        o->settings.fault_in = (int64_t)number;
        return is_number;
    case 'j':
        o->jobs = (unsigned)number;
        return is_number && number > 0;
    case 'l':
        o->settings.limit_s = (unsigned)number;
        return is_number && number > 0;
    case 'i':
        return take_io(o, text);
    case 'v':
        verdict_set_verbose(true);
        return true;
    default:
        return false;
    }
}

static bool read_options(int argc, char **argv, options *o)
{
    static const struct option known[] = {
        { "seeds", 1, NULL, 'n' },   { "first", 1, NULL, 'f' },  { "seed", 1, NULL, 's' },
        { "seconds", 1, NULL, 't' }, { "faults", 1, NULL, 'r' }, { "jobs", 1, NULL, 'j' },
        { "limit", 1, NULL, 'l' },   { "io", 1, NULL, 'i' },     { NULL, 0, NULL, 0 },
    };
    int option;
    while ((option = getopt_long(argc, argv, "v", known, NULL)) != -1) {
        if (!take_option(o, option, optarg))
            return false;
    }
    return optind == argc;
}

static void run_seed(void *arg, uint64_t seed)
{
    const options *o = arg;
    char repeat[256], faults[40] = "";
    static bool is_ready;
    if (!is_ready)
        world_init();
    is_ready = true;
    if (o->settings.fault_in >= 0)
        snprintf(faults, sizeof faults, " --faults %" PRId64, o->settings.fault_in);
    snprintf(repeat, sizeof repeat, "%s --seed %" PRIu64 " --io %s%s", o->program, seed, o->io,
             faults);
    world_run(seed, &o->settings, repeat);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* In this process: the first seed that fails ends it. */
static uint64_t run_here(options *o)
{
    double start = seconds_now();
    uint64_t done = 0;
    for (; done < o->seeds; done++) {
        if (o->seconds > 0 && seconds_now() - start >= o->seconds)
            break;
        run_seed(o, o->first + done);
    }
    return done;
}

int main(int argc, char **argv)
{
    options o = { .settings = { .fault_in = -1, .limit_s = 30 }, .program = argv[0], .io = "all" };
    o.first = 1;
    o.seeds = 50;
    if (!read_options(argc, argv, &o)) {
        fputs(usage, stderr);
        return 2;
    }
    printf("chaos: seeds %" PRIu64 " to %" PRIu64 "\n", o.first, o.first + o.seeds - 1);
    fflush(stdout);
    double start = seconds_now();
    uint64_t failures = 0, done = 0;
    if (o.jobs > 0)
        failures = jobs_run(o.jobs, o.first, o.seeds, o.seconds, run_seed, &o, &done);
    else
        done = run_here(&o);
    printf("chaos: %" PRIu64 " seeds run, %" PRIu64 " failed (%.1f s)\n", done, failures,
           seconds_now() - start);
    return failures > 0;
}
