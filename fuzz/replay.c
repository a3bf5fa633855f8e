/* SPDX-License-Identifier: MIT */
/* A fuzz target without a fuzzer: runs the files of a folder, and a few thousand inputs made of
 * them. */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 4096, CHANGED = 300 };

static uint64_t chance = 1;

static size_t random_below(size_t limit)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (size_t)(chance % limit);
}

/* A few bytes of it are others, or gone, or there twice. */
static size_t change(const uint8_t *seed, size_t size, uint8_t *to)
{
    memcpy(to, seed, size);
    for (size_t times = 1 + random_below(4); times > 0 && size > 1; times--) {
        size_t at = random_below(size), kind = random_below(3);
        if (kind == 0) {
            to[at] = (uint8_t)random_below(256);
        } else if (kind == 1) {
            memmove(to + at, to + at + 1, size - at - 1);
            size--;
        } else if (size < MOST_BYTES) {
            memmove(to + at + 1, to + at, size - at);
            size++;
        }
    }
    return size;
}

static void run_file(const char *path)
{
    uint8_t seed[MOST_BYTES], changed[MOST_BYTES];
    FILE *file = fopen(path, "rb");
    size_t size = file != NULL ? fread(seed, 1, sizeof seed, file) : 0;
    if (file == NULL || size == 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(seed, size);
    for (int i = 0; i < CHANGED; i++)
        LLVMFuzzerTestOneInput(changed, change(seed, size, changed));
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    unsigned count = 0;
    if (folder == NULL) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    LLVMFuzzerInitialize(&argc, &argv);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[1024];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        run_file(path);
        count++;
    }
    closedir(folder);
    printf("%u files\n", count);
    return count > 0 ? 0 : 1;
}
