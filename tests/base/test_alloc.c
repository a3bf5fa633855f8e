/* SPDX-License-Identifier: MIT */
/* The memory seam: hooks in place of the C library, the counters, and the fault hook. */
#include "harness.h"

#include "base/alloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Hooks that count and remember -------------------------------------------------------------- */

typedef struct counting {
    unsigned allocs, reallocs, frees;
    size_t last_size;
    void *last_memory;
    bool is_empty; /* has no memory to give */
} counting;

static void *counting_alloc(void *arg, size_t size)
{
    counting *self = arg;
    self->allocs++;
    self->last_size = size;
    if (self->is_empty)
        return NULL;
    void *memory = malloc(size);
    if (memory != NULL)
        memset(memory, 0xaa, size); /* so that zeroes are somebody's work */
    return self->last_memory = memory;
}

static void *counting_realloc(void *arg, void *memory, size_t size)
{
    counting *self = arg;
    self->reallocs++;
    self->last_size = size;
    self->last_memory = memory;
    return self->is_empty ? NULL : realloc(memory, size);
}

static void counting_free(void *arg, void *memory)
{
    counting *self = arg;
    self->frees++;
    self->last_memory = memory;
    free(memory);
}

static weir_allocator allocator_of(counting *self)
{
    return (weir_allocator){ counting_alloc, counting_realloc, counting_free, self };
}

static weir_allocator_stats stats(void)
{
    weir_allocator_stats now;
    weir_allocator_get_stats(&now);
    return now;
}

/*
 * An allocator can be replaced only while weir holds no memory at all. The harness' own set-up
 * opens the thread's pool, which stays; so these cases come before the first of its kind.
 */

static int nothing_is_alive(void **state)
{
    (void)state;
    assert_int_equal(stats().live, 0);
    return 0;
}

static int everything_is_as_before(void **state)
{
    (void)state;
    weir_fault_set(NULL, NULL);
    assert_int_equal(stats().live, 0);
    assert_int_equal(weir_allocator_set(NULL), 0);
    return 0;
}

#define first_case(name)                                                                           \
    cmocka_unit_test_setup_teardown(name, nothing_is_alive, everything_is_as_before)

static void all_memory_comes_from_the_hooks(void **state)
{
    (void)state;
    counting hooks = { 0 };
    const weir_allocator allocator = allocator_of(&hooks);
    assert_int_equal(weir_allocator_set(&allocator), 0);

    char *memory = weir__alloc(100);
    assert_non_null(memory);
    assert_ptr_equal(memory, hooks.last_memory);
    assert_int_equal(hooks.allocs, 1);
    assert_int_equal(hooks.last_size, 100);

    memory = weir__realloc(memory, 300);
    assert_non_null(memory);
    assert_int_equal(hooks.reallocs, 1);
    assert_int_equal(hooks.last_size, 300);
    memset(memory, 1, 300);

    weir__free(memory);
    assert_int_equal(hooks.frees, 1);
    assert_ptr_equal(hooks.last_memory, memory);

    weir__free(weir__realloc(NULL, 50)); /* as an allocation, which alone counts as one */
    assert_int_equal(hooks.allocs, 2);
    assert_int_equal(hooks.reallocs, 1);
    assert_int_equal(hooks.last_size, 50);
    assert_int_equal(hooks.frees, 2);
}

static void the_struct_is_copied(void **state)
{
    (void)state;
    counting hooks = { 0 };
    weir_allocator allocator = allocator_of(&hooks);
    assert_int_equal(weir_allocator_set(&allocator), 0);
    memset(&allocator, 0, sizeof allocator);
    weir__free(weir__alloc(1));
    assert_int_equal(hooks.allocs, 1);
    assert_int_equal(hooks.frees, 1);
}

static void null_brings_back_the_c_library(void **state)
{
    (void)state;
    counting hooks = { 0 };
    const weir_allocator allocator = allocator_of(&hooks);
    assert_int_equal(weir_allocator_set(&allocator), 0);
    assert_int_equal(weir_allocator_set(NULL), 0);
    char *memory = weir__alloc(10);
    assert_non_null(memory);
    memory = weir__realloc(memory, 20);
    assert_non_null(memory);
    weir__free(memory);
    assert_int_equal(hooks.allocs + hooks.reallocs + hooks.frees, 0);
}

static void no_change_while_memory_is_out(void **state)
{
    (void)state;
    counting hooks = { 0 }, others = { 0 };
    const weir_allocator allocator = allocator_of(&hooks), other = allocator_of(&others);
    assert_int_equal(weir_allocator_set(&allocator), 0);
    char *memory = weir__alloc(10);
    assert_int_equal(weir_allocator_set(&other), -EBUSY);
    assert_int_equal(weir_allocator_set(NULL), -EBUSY);
    assert_int_equal(weir_allocator_set(&allocator), -EBUSY);

    /* The refused one was not taken: all goes on with the first. */
    memory = weir__realloc(memory, 20);
    assert_int_equal(hooks.reallocs, 1);
    assert_int_equal(weir_allocator_set(&other), -EBUSY);
    weir__free(memory);
    assert_int_equal(hooks.frees, 1);
    assert_int_equal(others.allocs + others.reallocs + others.frees, 0);

    assert_int_equal(weir_allocator_set(&other), 0);
    weir__free(weir__alloc(10));
    assert_int_equal(others.allocs, 1);
    assert_int_equal(others.frees, 1);
    assert_int_equal(hooks.allocs, 1);
}

static void a_missing_function_is_refused(void **state)
{
    (void)state;
    counting hooks = { 0 }, others = { 0 };
    const weir_allocator allocator = allocator_of(&hooks);
    assert_int_equal(weir_allocator_set(&allocator), 0);
    for (int missing = 0; missing < 3; missing++) {
        weir_allocator other = allocator_of(&others);
        if (missing == 0)
            other.alloc = NULL;
        else if (missing == 1)
            other.realloc = NULL;
        else
            other.free = NULL;
        assert_int_equal(weir_allocator_set(&other), -EINVAL);
        weir__free(weir__alloc(1));
        assert_int_equal(hooks.frees, missing + 1);
    }
    assert_int_equal(others.allocs + others.frees, 0);
}

static void hooks_without_memory_fail_the_call(void **state)
{
    (void)state;
    counting hooks = { 0 };
    const weir_allocator allocator = allocator_of(&hooks);
    assert_int_equal(weir_allocator_set(&allocator), 0);
    char *memory = weir__strdup("kept");
    assert_non_null(memory);
    weir_allocator_stats before = stats();
    hooks.is_empty = true;
    assert_null(weir__alloc(10));
    assert_null(weir__zalloc(10));
    assert_null(weir__strdup("x"));
    assert_null(weir__realloc(NULL, 10));
    assert_null(weir__realloc(memory, 1000));
    assert_string_equal(memory, "kept");
    assert_int_equal(stats().failures, before.failures + 5);
    assert_int_equal(stats().allocations, before.allocations);
    assert_int_equal(stats().frees, before.frees);
    hooks.is_empty = false;
    memory = weir__realloc(memory, 1000);
    assert_string_equal(memory, "kept");
    weir__free(memory);
}

/* malloc(0) may answer NULL, which would look like a failure: the hooks never see a zero. */
static void hooks_are_never_asked_for_zero_bytes(void **state)
{
    (void)state;
    counting hooks = { 0 };
    const weir_allocator allocator = allocator_of(&hooks);
    assert_int_equal(weir_allocator_set(&allocator), 0);
    void *memory = weir__alloc(0);
    assert_non_null(memory);
    assert_true(hooks.last_size > 0);
    hooks.last_size = 0;
    memory = weir__realloc(memory, 0);
    assert_non_null(memory);
    assert_true(hooks.last_size > 0);
    weir__free(memory);
    hooks.last_size = 0;
    weir__free(weir__zalloc(0));
    assert_true(hooks.last_size > 0);
    assert_int_equal(hooks.frees, 2);
}

static void zalloc_clears_what_the_hook_left(void **state)
{
    (void)state;
    counting hooks = { 0 };
    const weir_allocator allocator = allocator_of(&hooks);
    static const char zeroes[1000];
    assert_int_equal(weir_allocator_set(&allocator), 0);
    for (size_t size = 1; size <= sizeof zeroes; size += 37) {
        char *memory = weir__zalloc(size);
        assert_non_null(memory);
        assert_memory_equal(memory, zeroes, size);
        weir__free(memory);
    }
}

static void *use_buffers(void *arg)
{
    (void)arg;
    for (size_t size = 16; size <= (size_t)1 << 18; size *= 4)
        weir_buf_release(weir_buf_new(size));
    return NULL;
}

/* A thread's buffers and its pool: when it has ended, all of it has come back to the hooks. */
static void a_threads_pool_uses_the_hooks_and_gives_all_back(void **state)
{
    (void)state;
    counting hooks = { 0 };
    const weir_allocator allocator = allocator_of(&hooks);
    assert_int_equal(weir_allocator_set(&allocator), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, use_buffers, NULL), 0);
    pthread_join(thread, NULL);
    assert_true(hooks.allocs > 4);
    assert_int_equal(hooks.frees, hooks.allocs);
    assert_int_equal(stats().live, 0);
}

/* With the C library's memory ---------------------------------------------------------------- */

static void counters_tell_what_happened(void **state)
{
    (void)state;
    weir_allocator_stats before = stats();
    void *first = weir__alloc(10);
    void *second = weir__realloc(NULL, 10);
    char *third = weir__strdup("three");
    weir_allocator_stats now = stats();
    assert_int_equal(now.allocations, before.allocations + 3);
    assert_int_equal(now.frees, before.frees);
    assert_int_equal(now.live, before.live + 3);
    assert_int_equal(now.failures, before.failures);

    first = weir__realloc(first, 100); /* the same allocation, only larger */
    assert_non_null(first);
    now = stats();
    assert_int_equal(now.allocations, before.allocations + 3);
    assert_int_equal(now.live, before.live + 3);

    weir__free(NULL); /* gives nothing back */
    assert_int_equal(stats().frees, before.frees);
    weir__free(first);
    weir__free(second);
    weir__free(third);
    now = stats();
    assert_int_equal(now.frees, before.frees + 3);
    assert_int_equal(now.live, before.live);
    assert_int_equal(now.live, now.allocations - now.frees);
}

static void realloc_keeps_what_was_in_it(void **state)
{
    (void)state;
    enum { LARGEST = 5000 };
    unsigned char *memory = NULL;
    for (size_t size = 1; size <= LARGEST; size++) {
        memory = weir__realloc(memory, size);
        assert_non_null(memory);
        memory[size - 1] = (unsigned char)(size % 251);
    }
    memory = weir__realloc(memory, 100);
    assert_non_null(memory);
    for (size_t i = 0; i < 100; i++)
        assert_int_equal(memory[i], (i + 1) % 251);
    weir__free(memory);
}

static void realloc_that_fails_leaves_the_memory(void **state)
{
    (void)state;
    char *memory = weir__strdup("as it was");
    weir_allocator_stats before = stats();
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_null(weir__realloc(memory, 100000));
    assert_int_equal(harness_fail_end(), 1);
    assert_string_equal(memory, "as it was");
    assert_int_equal(stats().failures, before.failures + 1);
    assert_int_equal(stats().live, before.live);
    memory = weir__realloc(memory, 100000);
    assert_string_equal(memory, "as it was");
    weir__free(memory);
}

static void zero_bytes_are_an_allocation_too(void **state)
{
    (void)state;
    weir_allocator_stats before = stats();
    void *first = weir__alloc(0), *second = weir__zalloc(0), *third = weir__realloc(NULL, 0);
    assert_non_null(first);
    assert_non_null(second);
    assert_non_null(third);
    assert_ptr_not_equal(first, second);
    assert_ptr_not_equal(second, third);
    first = weir__realloc(first, 0);
    assert_non_null(first);
    assert_int_equal(stats().live, before.live + 3);
    assert_int_equal(stats().failures, before.failures);
    weir__free(first);
    weir__free(second);
    weir__free(third);
}

/* The public names are the same memory: counted, and failing when the rest does. */
static void users_memory_is_weirs(void **state)
{
    (void)state;
    weir_allocator_stats before, after;
    weir_allocator_get_stats(&before);
    char *first = weir_alloc(10), *second = weir_zalloc(10);
    assert_memory_equal(second, "\0\0\0\0\0\0\0\0\0\0", 10);
    weir_allocator_get_stats(&after);
    assert_int_equal(after.live, before.live + 2);
    weir_free(first);
    weir_free(second);
    weir_free(NULL);
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_null(weir_alloc(10));
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_null(weir_zalloc(10));
    harness_fail_end();
    weir_allocator_get_stats(&after);
    assert_int_equal(after.live, before.live);
    assert_int_equal(after.failures, before.failures + 2);
}

static void strdup_copies(void **state)
{
    (void)state;
    char original[] = "some text";
    char *copy = weir__strdup(original);
    assert_non_null(copy);
    original[0] = 'S';
    assert_string_equal(copy, "some text");
    char *empty = weir__strdup("");
    assert_string_equal(empty, "");
    weir__free(copy);
    weir__free(empty);
}

/* The fault hook ----------------------------------------------------------------------------- */

typedef struct witness {
    unsigned asked;
    int answer;
    bool was_wrong; /* another name, or a length */
} witness;

static int answer_alloc(void *arg, const char *call, size_t *length)
{
    witness *self = arg;
    self->asked++;
    if (strcmp(call, "alloc") != 0 || length != NULL)
        self->was_wrong = true;
    return self->answer;
}

static void the_fault_hook_is_asked_before_every_allocation(void **state)
{
    (void)state;
    witness seen = { 0 };
    weir_fault_set(answer_alloc, &seen);
    void *first = weir__alloc(1);
    assert_int_equal(seen.asked, 1);
    void *second = weir__zalloc(1);
    assert_int_equal(seen.asked, 2);
    char *third = weir__strdup("x");
    assert_int_equal(seen.asked, 3);
    void *fourth = weir__realloc(NULL, 1);
    assert_int_equal(seen.asked, 4);
    fourth = weir__realloc(fourth, 2);
    assert_int_equal(seen.asked, 5);
    weir__free(first);
    weir__free(second);
    weir__free(third);
    weir__free(fourth);
    weir__free(NULL);
    assert_int_equal(seen.asked, 5); /* giving back cannot fail */
    assert_false(seen.was_wrong);
    weir_fault_set(NULL, NULL);
    weir__free(weir__alloc(1));
    assert_int_equal(seen.asked, 5);
}

static void a_fault_fails_the_call_without_making_it(void **state)
{
    (void)state;
    char *memory = weir__strdup("x");
    weir_allocator_stats before = stats();
    witness seen = { .answer = -ENOMEM };
    weir_fault_set(answer_alloc, &seen);
    assert_null(weir__alloc(1));
    assert_null(weir__alloc(0));
    assert_null(weir__zalloc(1));
    assert_null(weir__strdup("y"));
    assert_null(weir__realloc(NULL, 1));
    assert_null(weir__realloc(memory, 1000));
    weir_fault_set(NULL, NULL);
    assert_int_equal(seen.asked, 6);
    assert_int_equal(stats().allocations, before.allocations);
    assert_int_equal(stats().failures, before.failures + 6);
    weir__free(memory);
}

static void the_nth_allocation_fails_alone(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 4; nth++) {
        harness_fail_nth("alloc", nth, -ENOMEM);
        for (unsigned i = 1; i <= 4; i++) {
            void *memory = weir__alloc(8);
            assert_int_equal(memory == NULL, i == nth);
            weir__free(memory);
        }
        assert_int_equal(harness_fail_end(), 4);
    }
}

/* Threads ------------------------------------------------------------------------------------ */

#define ROUNDS 50000u

static void *allocate_and_free(void *arg)
{
    pthread_barrier_wait(arg);
    for (unsigned i = 0; i < ROUNDS; i++)
        weir__free(weir__alloc(i % 64));
    return NULL;
}

static void counters_are_exact_over_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    pthread_barrier_t start;
    weir_allocator_stats before = stats();
    pthread_barrier_init(&start, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, &start), 0);
    pthread_barrier_wait(&start);
    /* Each thread has at most one at a time; live never wraps below what there was. */
    for (int i = 0; i < 1000; i++) {
        weir_allocator_stats now = stats();
        assert_true(now.live >= before.live);
        assert_true(now.frees <= now.allocations);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    weir_allocator_stats after = stats();
    assert_int_equal(after.allocations, before.allocations + THREADS * ROUNDS);
    assert_int_equal(after.frees, before.frees + THREADS * ROUNDS);
    assert_int_equal(after.live, before.live);
    assert_int_equal(after.failures, before.failures);
}

int main(void)
{
    const struct CMUnitTest first_tests[] = {
        first_case(all_memory_comes_from_the_hooks),
        first_case(the_struct_is_copied),
        first_case(null_brings_back_the_c_library),
        first_case(no_change_while_memory_is_out),
        first_case(a_missing_function_is_refused),
        first_case(hooks_without_memory_fail_the_call),
        first_case(hooks_are_never_asked_for_zero_bytes),
        first_case(zalloc_clears_what_the_hook_left),
        first_case(a_threads_pool_uses_the_hooks_and_gives_all_back),
    };
    const struct CMUnitTest tests[] = {
        weir_case(counters_tell_what_happened),
        weir_case(realloc_keeps_what_was_in_it),
        weir_case(realloc_that_fails_leaves_the_memory),
        weir_case(zero_bytes_are_an_allocation_too),
        weir_case(users_memory_is_weirs),
        weir_case(strdup_copies),
        weir_case(the_fault_hook_is_asked_before_every_allocation),
        weir_case(a_fault_fails_the_call_without_making_it),
        weir_case(the_nth_allocation_fails_alone),
        weir_case(counters_are_exact_over_threads),
    };
    int failed = cmocka_run_group_tests_name("first", first_tests, NULL, NULL);
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
