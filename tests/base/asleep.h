/* SPDX-License-Identifier: MIT */
/* Tells whether a thread has got as far as to wait. */
#ifndef WEIR_TESTS_BASE_ASLEEP_H
#define WEIR_TESTS_BASE_ASLEEP_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Whether the kernel says that this thread of ours sleeps, as in a system call that blocks. */
static inline bool is_asleep(int tid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool got_it = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    const char *name_end = strrchr(text, ')');
    return got_it && name_end != NULL && name_end[1] == ' ' && name_end[2] == 'S';
}

#endif
