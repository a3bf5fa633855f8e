/* SPDX-License-Identifier: MIT */
/* A sample of what `make sim` does; and the same seed does the same. */
#include "harness.h"

#include "sim/world.h"

#include <stdlib.h>
#include <string.h>

/* How many seeds of each program; WEIR_LONG_TESTS tries more. */
#define FEW 150
#define MANY 5000

static void try_program(const program *what)
{
    char failure[256];
    uint64_t count = getenv("WEIR_LONG_TESTS") != NULL ? MANY : FEW;
    for (uint64_t seed = 1; seed <= count; seed++) {
        if (!run_seed(what, seed, NULL, NULL, failure))
            fail_msg("%s, seed %llu: %s", what->name, (unsigned long long)seed, failure);
    }
}

static void echo(void **state)
{
    (void)state;
    try_program(&echo_program);
}

static void chat(void **state)
{
    (void)state;
    try_program(&chat_program);
}

static void proxy(void **state)
{
    (void)state;
    try_program(&proxy_program);
}

static void pool(void **state)
{
    (void)state;
    try_program(&pool_program);
}

/* A whole trace. */
typedef struct text {
    char *bytes;
    size_t length, room;
} text;

static void add_line(void *arg, const char *line)
{
    text *self = arg;
    size_t length = strlen(line);
    while (self->length + length + 2 > self->room) {
        self->room = self->room > 0 ? 2 * self->room : 4096;
        self->bytes = realloc(self->bytes, self->room);
        assert_non_null(self->bytes);
    }
    memcpy(self->bytes + self->length, line, length);
    self->bytes[self->length + length] = '\n';
    self->length += length + 1;
    self->bytes[self->length] = '\0';
}

static text trace_of(const program *what, uint64_t seed)
{
    char failure[256];
    text all = { 0 };
    add_line(&all, what->name);
    assert_true(run_seed(what, seed, add_line, &all, failure));
    return all;
}

/* Though memory lies elsewhere by then, and channels have other ids. */
static void one_seed_leaves_one_trace(void **state)
{
    (void)state;
    for (size_t p = 0; programs[p] != NULL; p++) {
        text before = { 0 };
        for (uint64_t seed = 1; seed <= 15; seed++) {
            text first = trace_of(programs[p], seed);
            void *elsewhere = malloc(seed * 1000);
            text second = trace_of(programs[p], seed);
            assert_int_equal(first.length, second.length);
            assert_memory_equal(first.bytes, second.bytes, first.length);
            assert_true(first.length != before.length ||
                        memcmp(first.bytes, before.bytes, first.length) != 0);
            free(elsewhere);
            free(second.bytes);
            free(before.bytes);
            before = first;
        }
        free(before.bytes);
    }
}

/* The trace only looks. */
static void without_a_trace_the_same_happens(void **state)
{
    (void)state;
    char failure[256];
    weir_allocator_stats before, between, after;
    text all = { 0 };
    for (uint64_t seed = 1; seed <= 10; seed++) {
        weir_allocator_get_stats(&before);
        assert_true(run_seed(&echo_program, seed, NULL, NULL, failure));
        weir_allocator_get_stats(&between);
        assert_true(run_seed(&echo_program, seed, add_line, &all, failure));
        weir_allocator_get_stats(&after);
        assert_int_equal(between.allocations - before.allocations,
                         after.allocations - between.allocations);
    }
    free(all.bytes);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        weir_case(echo),
        weir_case(chat),
        weir_case(proxy),
        weir_case(pool),
        weir_case(one_seed_leaves_one_trace),
        weir_case(without_a_trace_the_same_happens),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
