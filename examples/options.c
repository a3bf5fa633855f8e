/* SPDX-License-Identifier: MIT */
/* Command lines of the examples: a table of options, and --help and errors made from it. */
#include "options.h"

#include <weir/group.h>
#include <weir/log.h>

#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS 24

/* Values --------------------------------------------------------------------------------------- */

const char *example_set_io(const char *kind)
{
    if (weir_io_kind_from(kind) < 0)
        return "auto, epoll, uring or blocking";
    setenv("WEIR_IO", kind, 1); /* the default of every group */
    return NULL;
}

const char *example_set_log(const char *level)
{
    int number = weir_log_level_from(level);
    if (number < 0)
        return "off, error, warn, info, debug or trace";
    weir_log_to_stderr((weir_log_level)number);
    return NULL;
}

static bool parse_number(const example_option *option, const char *value)
{
    char *end;
    long number = strtol(value, &end, 10);
    if (end == value || *end != '\0' || number < option->min || number > option->max)
        return false;
    *option->number = (int)number;
    return true;
}

static void store(const char *program, const example_option *option, const char *value)
{
    char range[64];
    const char *accepted = NULL;
    if (option->flag != NULL) {
        *option->flag = true;
    } else if (option->text != NULL) {
        *option->text = value;
    } else if (option->set != NULL) {
        accepted = option->set(value);
    } else if (!parse_number(option, value)) {
        snprintf(range, sizeof range, "a number from %d to %d", option->min, option->max);
        accepted = range;
    }
    if (accepted == NULL)
        return;
    fprintf(stderr, "%s: %s%s: '%s' is not %s\n", program, option->value != NULL ? "--" : "",
            option->name, value, accepted);
    exit(2);
}

static const example_option *options_of(const example_command *command)
{
    static const example_option none = { 0 };
    return command->options != NULL ? command->options : &none;
}

/* Help ----------------------------------------------------------------------------------------- */

static int value_length(const example_option *option)
{
    return option->value != NULL ? (int)strlen(option->value) + 1 : 0;
}

static void print_option(const example_option *option, int width)
{
    int value_width = width - (int)strlen(option->name);
    printf("  --%s %-*s %s", option->name, value_width, option->value != NULL ? option->value : "",
           option->help);
    if (option->text != NULL && *option->text != NULL)
        printf(" (default %s)", *option->text);
    if (option->number != NULL && *option->number != 0)
        printf(" (default %d)", *option->number);
    putchar('\n');
}

static void print_help(const example_command *command)
{
    static const example_option help = { .name = "help", .help = "print this text" };
    const example_option *options = options_of(command);
    int width = 0;
    printf("usage: %s [OPTION]...", command->program);
    if (command->argument != NULL)
        printf(" [%s]", command->argument->name);
    printf("\n%s\n", command->about);
    for (const example_option *at = options; at->name != NULL; at++) {
        int length = (int)strlen(at->name) + value_length(at);
        width = length > width ? length : width;
    }
    for (const example_option *at = options; at->name != NULL; at++)
        print_option(at, width);
    print_option(&help, width);
    if (command->notes != NULL)
        printf("\n%s", command->notes);
}

/* Parsing -------------------------------------------------------------------------------------- */

static void fail(const char *program, const char *cause, const char *word)
{
    fprintf(stderr, "%s: %s %s; try --help\n", program, cause, word);
    exit(2);
}

void example_parse(const example_command *command, int argc, char **argv)
{
    const char *program = command->program;
    const example_option *options = options_of(command);
    struct option known[MAX_OPTIONS + 2] = { { "help", no_argument, NULL, 0 } };
    for (int i = 0; options[i].name != NULL && i < MAX_OPTIONS; i++)
        known[i + 1] = (struct option){ options[i].name,
                                        options[i].value != NULL ? required_argument : no_argument,
                                        NULL, 0 };

    opterr = 0; /* getopt_long would print the path of the program */
    int result, index = 0;
    while ((result = getopt_long(argc, argv, ":", known, &index)) == 0) {
        if (index == 0) {
            print_help(command);
            exit(0);
        }
        store(program, &options[index - 1], optarg);
    }
    if (result == ':')
        fail(program, "no value after", argv[optind - 1]);
    if (result == '?')
        fail(program, "unknown option",
             isprint(optopt) ? (char[]){ '-', (char)optopt, '\0' } : argv[optind - 1]);

    int max_arguments = command->argument != NULL ? 1 : 0;
    if (argc - optind > max_arguments)
        fail(program, "unexpected argument", argv[optind + max_arguments]);
    if (command->argument != NULL && optind < argc)
        store(program, command->argument, argv[optind]);
}
