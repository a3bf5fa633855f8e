/* SPDX-License-Identifier: MIT */
/* weir-scale: the options, and the table. */
#include "scale.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static void print_help(void)
{
    printf(
        "usage: weir-scale [OPTION]...\n"
        "Holds as many connections as it can, over TCP and within the process, and says what they\n"
        "cost. Each has three handlers and an idle timer of %d s; %d of them are asked "
        "something.\n\n"
        "  --tcp N        connections (as many as there are descriptors for)\n"
        "  --local N      channels within the process, two for each connection (1000000)\n"
        "  --questions N  to measure the answers with (20000)\n"
        "  --idle S       seconds to watch the idle ones for (5)\n"
        "  --tick MS      idle timers fire at multiples of it; 0: each at its own time (100)\n"
        "  --help         this text\n",
        SCALE_IDLE_S, SCALE_LIVE);
}

static double number(const char *what, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= least && value <= most)) {
        fprintf(stderr, "weir-scale: %s: '%s' is no number from %g to %g\n", what, text, least,
                most);
        exit(2);
    }
    return value;
}

static scale_settings parse(int argc, char **argv)
{
    static const struct option options[] = {
        { "tcp", required_argument, NULL, 't' },
        { "local", required_argument, NULL, 'l' },
        { "questions", required_argument, NULL, 'q' },
        { "idle", required_argument, NULL, 'i' },
        { "tick", required_argument, NULL, 'm' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    scale_settings settings = { .local = 1000000, .questions = 20000, .idle_s = 5, .tick_ms = 100 };
    for (int which; (which = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (which) {
        case 't':
            settings.tcp = (size_t)number("--tcp", optarg, SCALE_LIVE, 1e7);
            break;
        case 'l':
            settings.local = (size_t)number("--local", optarg, 2 * SCALE_LIVE, 1e8);
            break;
        case 'q':
            settings.questions = (unsigned)number("--questions", optarg, 1, 1e8);
            break;
        case 'i':
            settings.idle_s = number("--idle", optarg, 0.1, 3600);
            break;
        case 'm':
            settings.tick_ms = (int)number("--tick", optarg, 0, 10000);
            break;
        case 'h':
            print_help();
            exit(0);
        default: /* getopt_long has told */
            exit(2);
        }
    }
    return settings;
}

/* The table ------------------------------------------------------------------------------------ */

static void print_row(const char *what, const char *format, double tcp, double local)
{
    char cells[2][32];
    const double values[] = { tcp, local };
    for (int i = 0; i < 2; i++) {
        if (values[i] >= 0)
            snprintf(cells[i], sizeof cells[i], format, values[i]);
        else
            snprintf(cells[i], sizeof cells[i], "-");
    }
    printf("  %-44s %12s %12s\n", what, cells[0], cells[1]);
}

static double share(double of, double by)
{
    return by > 0 ? of / by : -1;
}

static void print_table(const scale_figures *tcp, const scale_figures *local)
{
    double tcp_count = (double)tcp->connections, local_count = (double)local->connections;
    printf("  %-44s %12s %12s\n", "", "tcp", "local");
    print_row("connections held", "%.0f", tcp_count, local_count);
    print_row("channels in this process", "%.0f", (double)tcp->channels, (double)local->channels);
    print_row("bytes per connection, user", "%.0f", share(tcp->user_bytes, tcp_count),
              share(local->user_bytes, local_count));
    print_row("bytes per connection, kernel (one end)", "%.0f", share(tcp->kernel_bytes, tcp_count),
              share(local->kernel_bytes, local_count));
    print_row("bytes per channel, user", "%.0f", share(tcp->user_bytes, (double)tcp->channels),
              share(local->user_bytes, (double)local->channels));
    print_row("connections made a second", "%.0f", share(tcp_count, tcp->seconds),
              share(local_count, local->seconds));
    print_row("connections closed a second", "%.0f", share(tcp_count, tcp->close_seconds),
              share(local_count, local->close_seconds));
    print_row("answer of a live one, alone: p50 us", "%.1f", tcp->few.p50_us, local->few.p50_us);
    print_row("answer of a live one, alone: p99 us", "%.1f", tcp->few.p99_us, local->few.p99_us);
    print_row("answer of a live one, full: p50 us", "%.1f", tcp->full.p50_us, local->full.p50_us);
    print_row("answer of a live one, full: p99 us", "%.1f", tcp->full.p99_us, local->full.p99_us);
    print_row("all idle: share of a CPU, %", "%.2f", tcp->idle_cpu * 100, local->idle_cpu * 100);
    print_row("all idle: timers that fire a second", "%.0f", tcp->timers, local->timers);
    printf("  tcp: %s; local: %s\n", tcp->note, local->note);
}

int main(int argc, char **argv)
{
    scale_settings settings = parse(argc, argv);
    scale_figures tcp = { 0 }, local = { 0 };
    scale_tcp(&settings, &tcp); /* first: it forks, which is for a process without threads */
    scale_local(&settings, &local);
    scale_progress_end();
    print_table(&tcp, &local);
    unsigned failures = tcp.failures + local.failures;
    printf("scale: held %zu tcp, %zu local, failures %u\n", tcp.connections, local.channels,
           failures);
    return failures > 0 ? 1 : 0;
}
