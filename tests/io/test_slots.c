/* SPDX-License-Identifier: MIT */
/* The table of files: keys find their file, and nobody else's. */
#include "harness.h"

#include "io/slots.h"

#include <errno.h>

#define MANY 1000

static weir_slots table;
static weir_io_file files[MANY];
static uint64_t keys[MANY];

static void add(int i)
{
    files[i] = (weir_io_file){ .fd = 100 + i };
    assert_int_equal(weir__slots_add(&table, &files[i]), 0);
    keys[i] = weir__slots_key(&table, &files[i]);
}

static void a_key_finds_its_file(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++) {
        add(i);
        assert_true(keys[i] != 0);
    }
    for (int i = 0; i < MANY; i++) {
        assert_ptr_equal(weir__slots_find(&table, keys[i]), &files[i]);
        assert_int_equal(weir__slots_fd(&table, keys[i]), 100 + i);
        for (int k = 0; k < i; k += 97)
            assert_true(keys[i] != keys[k]);
    }
    weir__slots_deinit(&table);
}

static void a_key_dies_with_its_file(void **state)
{
    (void)state;
    add(0);
    weir__slots_remove(&table, &files[0]);
    assert_int_equal(files[0].slot, 0);
    assert_null(weir__slots_find(&table, keys[0]));
    assert_int_equal(weir__slots_fd(&table, keys[0]), 100);
    weir__slots_deinit(&table);
}

/* The same place, thousands of times: no key is ever valid again. */
static void a_place_is_used_again_with_another_generation(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++) {
        add(i);
        assert_int_equal(files[i].slot, 1);
        for (int k = 0; k < i; k++)
            assert_null(weir__slots_find(&table, keys[k]));
        assert_ptr_equal(weir__slots_find(&table, keys[i]), &files[i]);
        weir__slots_remove(&table, &files[i]);
    }
    assert_int_equal(table.count, 1);
    weir__slots_deinit(&table);
}

/* Free places are used before the table grows. */
static void free_places_come_first(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++)
        add(i);
    uint32_t room = table.room;
    for (int i = 0; i < 64; i += 2)
        weir__slots_remove(&table, &files[i]);
    for (int i = 0; i < 64; i += 2)
        add(i);
    assert_int_equal(table.count, 64);
    assert_int_equal(table.room, room);
    for (int i = 0; i < 64; i++)
        assert_ptr_equal(weir__slots_find(&table, keys[i]), &files[i]);
    add(64);
    assert_int_equal(table.count, 65);
    weir__slots_deinit(&table);
}

/* Also when the low bits of many descriptors are alike, and after the table has grown. */
static void descriptor_has_one_place(void **state)
{
    (void)state;
    for (int i = 0; i < MANY; i++) {
        files[i] = (weir_io_file){ .fd = i % 7 * 65536 + i / 7 };
        assert_int_equal(weir__slots_add(&table, &files[i]), 0);
    }
    for (int removed = 0; removed < MANY; removed += 3)
        weir__slots_remove(&table, &files[removed]);
    for (int i = 0; i < MANY; i++) {
        weir_io_file twin = { .fd = files[i].fd };
        assert_int_equal(weir__slots_add(&table, &twin), i % 3 == 0 ? 0 : -EEXIST);
        if (i % 3 == 0)
            weir__slots_remove(&table, &twin);
        else
            assert_int_equal(twin.slot, 0);
    }
    weir__slots_deinit(&table);
}

/* Without memory the file is not added, and those that are stay; with memory again it goes on. */
static void no_memory_to_grow(void **state)
{
    (void)state;
    for (int i = 0; i < 64; i++)
        add(i);
    for (unsigned nth = 1; nth <= 2; nth++) {
        harness_fail_nth("alloc", nth, -ENOMEM);
        files[64] = (weir_io_file){ .fd = 164 };
        assert_int_equal(weir__slots_add(&table, &files[64]), -ENOMEM);
        assert_int_equal(harness_fail_end(), nth);
        assert_int_equal(files[64].slot, 0);
    }
    for (int i = 0; i < 64; i++)
        assert_ptr_equal(weir__slots_find(&table, keys[i]), &files[i]);
    add(64);
    assert_ptr_equal(weir__slots_find(&table, keys[64]), &files[64]);
    weir__slots_deinit(&table);
}

static void no_memory_to_begin(void **state)
{
    (void)state;
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir__slots_add(&table, &files[0]), -ENOMEM);
    harness_fail_end();
    weir__slots_deinit(&table);
    weir__slots_deinit(&table); /* empty ones, too */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(a_key_finds_its_file),
        weir_case(a_key_dies_with_its_file),
        weir_case(a_place_is_used_again_with_another_generation),
        weir_case(free_places_come_first),
        weir_case(descriptor_has_one_place),
        weir_case(no_memory_to_grow),
        weir_case(no_memory_to_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
