/* SPDX-License-Identifier: MIT */
/* weir-bench: the options, the choice of cases, and the two ways to print what came out. */
#include "bench.h"

#include <weir/leak.h>
#include <weir/version.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(WEIR_DEBUG) || !defined(__OPTIMIZE__)
#define IS_DEBUG true
#else
#define IS_DEBUG false
#endif

static const bench_case *const tables[] = {
    bench_base_cases,  bench_buf_cases,     bench_exec_cases,  bench_socket_cases,
    bench_timer_cases, bench_channel_cases, bench_codec_cases,
};

/* All cases, counted through the tables; NULL behind the last. */
static const bench_case *case_at(size_t nth)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (const bench_case *at = tables[i]; at->name != NULL; at++) {
            if (nth-- == 0)
                return at;
        }
    }
    return NULL;
}

typedef struct options {
    bench_settings settings;
    bool is_json, is_check;
    unsigned size; /* of the cases that have one; 0: their own */
    char **wishes; /* names and prefixes; none: all */
    int wish_count;
} options;

/* Choosing ---------------------------------------------------------------------------------- */

static bool is_name(const char *wish)
{
    const bench_case *at;
    for (size_t i = 0; (at = case_at(i)) != NULL; i++) {
        if (strcmp(at->name, wish) == 0)
            return true;
    }
    return false;
}

/* A wish that is a name means that case alone, though others begin with it. */
static bool is_wish_for(const char *wish, const bench_case *what)
{
    return is_name(wish) ? strcmp(what->name, wish) == 0
                         : strncmp(what->name, wish, strlen(wish)) == 0;
}

static bool is_chosen(const options *opts, const bench_case *what)
{
    for (int i = 0; i < opts->wish_count; i++) {
        if (is_wish_for(opts->wishes[i], what))
            return true;
    }
    return opts->wish_count == 0;
}

static bool is_known(const char *wish)
{
    const bench_case *at;
    for (size_t i = 0; (at = case_at(i)) != NULL; i++) {
        if (is_wish_for(wish, at))
            return true;
    }
    return false;
}

static void check_wishes(const options *opts)
{
    unsigned unknown = 0;
    for (int i = 0; i < opts->wish_count; i++) {
        if (is_known(opts->wishes[i]))
            continue;
        fprintf(stderr, "weir-bench: no case is called or begins with '%s'\n", opts->wishes[i]);
        unknown++;
    }
    if (unknown > 0)
        exit(2);
}

/* Printing ---------------------------------------------------------------------------------- */

/* One row: a case beside one of its peers, or alone. */
typedef struct row {
    const bench_case *what;
    const bench_stats *own;
    const bench_peer *peer; /* NULL: there is none */
    const bench_stats *peers;
    double ratio;
    double target; /* for the ratio, or without a peer for the value itself */
    bool has_target, holds;
} row;

static row row_of(const bench_case *what, const bench_result *result, unsigned nth)
{
    row r = { .what = what, .own = &result->own };
    if (what->peers[nth].name == NULL) {
        r.target = what->limit;
        r.has_target = r.target > 0;
        r.holds = r.has_target && r.own->median <= r.target;
        return r;
    }
    r.peer = &what->peers[nth];
    if (r.peer->run == NULL)
        return r;
    r.peers = &result->peers[nth];
    r.ratio = result->ratios[nth];
    r.target = r.peer->target;
    r.has_target = r.target > 0;
    r.holds = r.has_target && r.ratio <= r.target;
    return r;
}

static void print_text_head(const options *opts)
{
    if (IS_DEBUG)
        printf("THIS IS A DEBUG BUILD: the numbers mean nothing.\n");
    printf("weir %s, %u CPUs, %u rounds of %u ms; in ns per operation unless a unit is named\n"
           "spread: (p90 - p10) / median; ratio: to the peer, median of the rounds; wanted: at "
           "most the target\n\n",
           weir_version(), bench_cpu_count(), opts->settings.rounds, opts->settings.round_ms);
    printf("%-25s %8s %8s %8s %6s  %-14s %8s %6s %6s\n", "case", "median", "min", "max", "spread",
           "peer", "median", "ratio", "target");
}

static void print_time(double ns)
{
    printf(" %8.*f", ns < 10000 ? 2 : 0, ns);
}

static void print_text_row(const row *r)
{
    printf("%-25s", r->what->name);
    print_time(r->own->median);
    print_time(r->own->min);
    print_time(r->own->max);
    printf(" %5.0f%%", r->own->spread * 100);
    if (r->peers != NULL) {
        printf("  %-14s", r->peer->name);
        print_time(r->peers->median);
        printf(" %6.3f", r->ratio);
    } else if (r->peer != NULL) {
        printf("  %-14s peer missing: make bench installs it", r->peer->name);
    } else if (r->what->unit != NULL || r->has_target) {
        printf("  %-30s", r->what->unit != NULL ? r->what->unit : "");
    }
    if (r->has_target)
        printf(" %6.*f%s", r->target < 100 ? 2 : 0, r->target, r->holds ? " ok" : " NO");
    printf("\n");
    fflush(stdout);
}

static void print_json_head(const options *opts)
{
    printf("{\n  \"version\": \"%s\",\n  \"debug\": %s,\n  \"cpus\": %u,\n  \"rounds\": %u,\n"
           "  \"round_ms\": %u,\n  \"results\": [",
           weir_version(), IS_DEBUG ? "true" : "false", bench_cpu_count(), opts->settings.rounds,
           opts->settings.round_ms);
}

/* Names of cases and peers are plain text, nothing in them needs escaping. */
static void print_json_row(const row *r, bool is_first)
{
    printf("%s\n    { \"case\": \"%s\", \"unit\": \"%s\", \"median\": %.3f, \"min\": %.3f, "
           "\"max\": %.3f, \"spread\": %.4f,\n      ",
           is_first ? "" : ",", r->what->name, r->what->unit != NULL ? r->what->unit : "ns/op",
           r->own->median, r->own->min, r->own->max, r->own->spread);
    if (r->peers != NULL)
        printf("\"peer\": \"%s\", \"peer_median\": %.3f, \"ratio\": %.4f, ", r->peer->name,
               r->peers->median, r->ratio);
    else if (r->peer != NULL)
        printf("\"peer\": \"%s\", \"peer_median\": null, \"ratio\": null, ", r->peer->name);
    else
        printf("\"peer\": null, \"peer_median\": null, \"ratio\": null, ");
    if (r->has_target)
        printf("\"target\": %g, \"holds\": %s }", r->target, r->holds ? "true" : "false");
    else
        printf("\"target\": null, \"holds\": null }");
}

static void list_cases(void)
{
    const bench_case *at;
    for (size_t i = 0; (at = case_at(i)) != NULL; i++)
        printf("%-25s %s\n", at->name, at->what);
}

static void print_help(void)
{
    printf("usage: weir-bench [options] [case or prefix ...]\n"
           "\n"
           "Runs the micro-benchmarks whose names are given or begin so (weir-bench buf), or all.\n"
           "\n"
           "  --list       the cases and what one operation of each is\n"
           "  --json       print for programs\n"
           "  --check      exit with 1 when a target does not hold\n"
           "  --quick      3 short rounds: a look, not a measurement\n"
           "  --rounds N   that many rounds of each case and of its peers, 9 unless told\n"
           "  --size N     so many of whatever there are many of, timers for example\n"
           "  --help       this\n");
}

/* Running ----------------------------------------------------------------------------------- */

/* Prints a case's rows, one at least and one for each peer; returns how many targets it missed. */
static unsigned print_case(const options *opts, const bench_case *what, const bench_result *result,
                           bool is_first)
{
    unsigned missed = 0;
    for (unsigned i = 0; i == 0 || (i < BENCH_PEERS && what->peers[i].name != NULL); i++) {
        row r = row_of(what, result, i);
        if (opts->is_json)
            print_json_row(&r, is_first && i == 0);
        else
            print_text_row(&r);
        missed += r.has_target && !r.holds;
    }
    return missed;
}

static bench_case sized(const options *opts, const bench_case *what)
{
    bench_case result = *what;
    if (opts->size > 0 && what->size > 0) {
        result.size = opts->size;
        if (what->batch == what->size)
            result.batch = opts->size;
    }
    return result;
}

static int run_cases(const options *opts)
{
    unsigned printed = 0, missed = 0, failed = 0;
    const bench_case *at;
    (opts->is_json ? print_json_head : print_text_head)(opts);
    for (size_t i = 0; (at = case_at(i)) != NULL; i++) {
        bench_result result;
        if (!is_chosen(opts, at))
            continue;
        bench_case chosen = sized(opts, at);
        if (bench_measure(&chosen, &opts->settings, &result))
            missed += print_case(opts, &chosen, &result, printed++ == 0);
        else
            failed++;
    }
    if (opts->is_json)
        printf("\n  ]\n}\n");
    else if (missed > 0)
        printf("\ntargets that do not hold: %u\n", missed);
    return failed > 0 || (opts->is_check && missed > 0) ? 1 : 0;
}

static unsigned parse_number(const char *name, const char *text, long most)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (end == text || *end != '\0' || number < 1 || number > most) {
        fprintf(stderr, "weir-bench: %s is a number from 1 to %ld, not '%s'\n", name, most, text);
        exit(2);
    }
    return (unsigned)number;
}

/* False: nothing is left to run. */
static bool parse_options(int argc, char **argv, options *opts)
{
    static const struct option longs[] = {
        { "list", no_argument, NULL, 'l' },       { "json", no_argument, NULL, 'j' },
        { "check", no_argument, NULL, 'c' },      { "rounds", required_argument, NULL, 'r' },
        { "size", required_argument, NULL, 's' }, { "quick", no_argument, NULL, 'q' },
        { "help", no_argument, NULL, 'h' },       { NULL, 0, NULL, 0 },
    };
    bool is_quick = false;
    int option;
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (option) {
        case 'l':
            list_cases();
            return false;
        case 'h':
            print_help();
            return false;
        case 'j':
            opts->is_json = true;
            break;
        case 'c':
            opts->is_check = true;
            break;
        case 'q':
            is_quick = true;
            break;
        case 'r':
            opts->settings.rounds = parse_number("--rounds", optarg, BENCH_MAX_ROUNDS);
            break;
        case 's':
            opts->size = parse_number("--size", optarg, 100000000);
            break;
        default: /* getopt_long has named it */
            fprintf(stderr, "weir-bench: see weir-bench --help\n");
            exit(2);
        }
    }
    if (opts->settings.rounds == 0)
        opts->settings.rounds = is_quick ? 3 : 9;
    opts->settings.round_ms = is_quick ? 10 : 60;
    opts->wishes = argv + optind;
    opts->wish_count = argc - optind;
    check_wishes(opts);
    return true;
}

int main(int argc, char **argv)
{
    options opts = { 0 };
    if (!parse_options(argc, argv, &opts))
        return 0;
    bench_init();
    weir_leak_set_mode(WEIR_LEAK_OFF);
    return run_cases(&opts);
}
