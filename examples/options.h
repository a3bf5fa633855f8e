/* SPDX-License-Identifier: MIT */
/* Command lines of the examples: a table of options, and --help and errors made from it. */
#ifndef WEIR_EXAMPLES_OPTIONS_H
#define WEIR_EXAMPLES_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

/* An option, or an argument. Exactly one of `flag`, `text`, `number` and `set` stores it; the value
 * before parsing is the default, which --help shows unless it is NULL or 0. */
typedef struct example_option {
    const char *name;  /* without the dashes; NULL ends a table */
    const char *value; /* the name of its value in --help; NULL: a switch */
    const char *help;  /* one line */

    bool *flag;
    const char **text;
    int *number, min, max;
    const char *(*set)(const char *value); /* returns NULL, or the values that it accepts */
} example_option;

typedef struct example_command {
    const char *program;
    const char *about;              /* complete lines, after the usage line of --help */
    const example_option *options;  /* NULL: only --help, which every program has */
    const example_option *argument; /* one that may follow the options; NULL: none */
    const char *notes;              /* complete lines at the end of --help; NULL: none */
} example_command;

/** Parses the command line and stores its values. Exits with 0 after --help, and with 2 and a line
 * on standard error if an option or a value is invalid. */
void example_parse(const example_command *command, int argc, char **argv);

/* Options of programs with event loops: they apply to the whole process. */
/* clang-format off */
#define EXAMPLE_LOOP_OPTIONS                                                                       \
    { "io", "KIND", "auto, epoll, uring or blocking (default: WEIR_IO, or auto)",                  \
      .set = example_set_io },                                                                     \
    { "log", "LEVEL", "off, error, warn, info, debug or trace (default: WEIR_LOG, or warn)",       \
      .set = example_set_log }
/* clang-format on */

const char *example_set_io(const char *kind);
const char *example_set_log(const char *level);

#endif
