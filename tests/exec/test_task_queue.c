/* SPDX-License-Identifier: MIT */
/* The task queue: its order, its bound, and taking a task back. */
#include "harness.h"

#include "exec/executor.h"

#include <errno.h>

static void comes_out_in_order(void **state)
{
    (void)state;
    weir_task_queue queue;
    weir_task tasks[5] = { { .name = NULL } };
    weir__task_queue_init(&queue, 0);
    assert_true(weir__task_queue_is_empty(&queue));
    assert_null(weir__task_queue_pop(&queue));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 5; i++)
            assert_int_equal(weir__task_queue_push(&queue, &tasks[i], false), 0);
        assert_false(weir__task_queue_is_empty(&queue));
        for (int i = 0; i < 5; i++)
            assert_ptr_equal(weir__task_queue_pop(&queue), &tasks[i]);
        assert_true(weir__task_queue_is_empty(&queue));
    }
}

static void refuses_at_its_bound(void **state)
{
    (void)state;
    static const uint32_t bounds[][2] = { { 1, 16 }, { 15, 16 }, { 16, 16 }, { 17, 17 } };
    for (int b = 0; b < 4; b++) {
        weir_task_queue queue;
        weir_task tasks[18] = { { .name = NULL } };
        uint32_t bound = bounds[b][1];
        weir__task_queue_init(&queue, bounds[b][0]);
        for (uint32_t i = 0; i < bound; i++)
            assert_int_equal(weir__task_queue_push(&queue, &tasks[i], false), 0);
        assert_int_equal(weir__task_queue_push(&queue, &tasks[bound], false), -EAGAIN);
        assert_int_equal(atomic_load(&queue.count), bound);
        assert_ptr_equal(weir__task_queue_pop(&queue), &tasks[0]);
        assert_int_equal(weir__task_queue_push(&queue, &tasks[bound], false), 0);
        for (uint32_t i = 1; i <= bound; i++)
            assert_ptr_equal(weir__task_queue_pop(&queue), &tasks[i]);
        assert_null(weir__task_queue_pop(&queue));
        assert_int_equal(atomic_load(&queue.count), 0);
    }
}

static void push_always_goes_beyond_the_bound(void **state)
{
    (void)state;
    weir_task_queue queue;
    weir_task tasks[20] = { { .name = NULL } };
    weir__task_queue_init(&queue, 16);
    for (int i = 0; i < 20; i++)
        weir__task_queue_push_always(&queue, &tasks[i], false);
    assert_int_equal(atomic_load(&queue.count), 20);
    weir_task more = { .name = NULL };
    for (int i = 0; i < 5; i++) {
        assert_int_equal(weir__task_queue_push(&queue, &more, false), -EAGAIN);
        assert_ptr_equal(weir__task_queue_pop(&queue), &tasks[i]);
    }
    assert_int_equal(weir__task_queue_push(&queue, &more, false), 0);
    for (int i = 5; i < 20; i++)
        assert_ptr_equal(weir__task_queue_pop(&queue), &tasks[i]);
    assert_ptr_equal(weir__task_queue_pop(&queue), &more);
}

static void unbounded_one_counts_nothing(void **state)
{
    (void)state;
    weir_task_queue queue;
    weir_task task = { .name = NULL };
    weir__task_queue_init(&queue, 0);
    assert_int_equal(weir__task_queue_push(&queue, &task, false), 0);
    assert_int_equal(atomic_load(&queue.count), 0);
    assert_ptr_equal(weir__task_queue_pop(&queue), &task);
}

/* Each of five is taken back; the others come in their order, and new ones behind them. */
static void task_taken_back_leaves_the_order_of_the_others(void **state)
{
    (void)state;
    for (int taken = 0; taken < 5; taken++) {
        weir_task_queue queue;
        weir_task tasks[6] = { { .name = NULL } };
        weir__task_queue_init(&queue, 16);
        for (int i = 0; i < 5; i++)
            assert_int_equal(weir__task_queue_push(&queue, &tasks[i], false), 0);
        weir__task_queue_take_back(&queue, &tasks[taken]);
        assert_int_equal(atomic_load(&queue.count), 4);
        assert_int_equal(weir__task_queue_push(&queue, &tasks[5], false), 0);
        for (int i = 0; i < 6; i++) {
            assert_false(weir__task_queue_is_empty(&queue));
            if (i != taken)
                assert_ptr_equal(weir__task_queue_pop(&queue), &tasks[i]);
        }
        assert_true(weir__task_queue_is_empty(&queue));
        assert_int_equal(atomic_load(&queue.count), 0);
    }
}

static void tasks_are_taken_back_one_after_another(void **state)
{
    (void)state;
    for (int first = 0; first < 6; first++) {
        for (int second = 0; second < 6; second++) {
            if (first == second)
                continue;
            weir_task_queue queue;
            weir_task tasks[6] = { { .name = NULL } };
            weir__task_queue_init(&queue, 0);
            for (int i = 0; i < 6; i++)
                assert_int_equal(weir__task_queue_push(&queue, &tasks[i], false), 0);
            weir__task_queue_take_back(&queue, &tasks[first]);
            weir__task_queue_take_back(&queue, &tasks[second]);
            for (int i = 0; i < 6; i++) {
                if (i != first && i != second)
                    assert_ptr_equal(weir__task_queue_pop(&queue), &tasks[i]);
            }
            assert_true(weir__task_queue_is_empty(&queue));
        }
    }
}

static void only_task_taken_back_leaves_an_empty_queue(void **state)
{
    (void)state;
    weir_task_queue queue;
    weir_task task = { .name = NULL };
    weir__task_queue_init(&queue, 16);
    assert_int_equal(weir__task_queue_push(&queue, &task, false), 0);
    weir__task_queue_take_back(&queue, &task);
    assert_true(weir__task_queue_is_empty(&queue));
    assert_null(weir__task_queue_pop(&queue));
    assert_int_equal(weir__task_queue_push(&queue, &task, false), 0);
    assert_ptr_equal(weir__task_queue_pop(&queue), &task);
}

static void counts_what_is_there(void **state)
{
    (void)state;
    weir_task_queue queue;
    weir_task tasks[3];
    weir__task_queue_init(&queue, 0);
    assert_int_equal(weir__task_queue_count(&queue), 0);
    for (size_t i = 0; i < 3; i++) {
        weir__task_queue_push(&queue, &tasks[i], false);
        assert_int_equal(weir__task_queue_taken(&queue), i);
        assert_int_equal(weir__task_queue_count(&queue), i + 1);
    }
    weir__task_queue_take_back(&queue, &tasks[2]);
    assert_int_equal(weir__task_queue_count(&queue), 2);
    weir__task_queue_push(&queue, &tasks[2], false); /* behind the end that was taken away */
    for (size_t i = 0; i < 3; i++) {
        assert_ptr_equal(weir__task_queue_pop(&queue), &tasks[i]);
        assert_int_equal(weir__task_queue_count(&queue), 2 - i);
    }
    assert_null(weir__task_queue_pop(&queue));
}

/* So the loop's later looks in the same turn are at its own list. */
static void look_that_finds_tasks_takes_them_over(void **state)
{
    (void)state;
    weir_task_queue queue;
    weir_task tasks[3];
    weir__task_queue_init(&queue, 0);
    weir__task_queue_push(&queue, &tasks[0], false);
    weir__task_queue_push(&queue, &tasks[1], false);
    assert_false(weir__task_queue_is_empty(&queue));
    assert_int_equal(weir__task_queue_taken(&queue), 2);
    assert_false(weir__task_queue_has_new(&queue));
    weir__task_queue_push(&queue, &tasks[2], false);
    assert_false(weir__task_queue_is_empty(&queue));
    assert_true(weir__task_queue_has_new(&queue)); /* not looked for while there are others */
    for (size_t i = 0; i < 3; i++)
        assert_ptr_equal(weir__task_queue_pop(&queue), &tasks[i]);
    assert_true(weir__task_queue_is_empty(&queue));
}

static void posters_write_no_cache_line_that_passes_read(void **state)
{
    (void)state;
    size_t written = offsetof(weir_executor, tasks.mpsc.newest);
    assert_true(written - offsetof(weir_executor, start_code) >= 64);
    assert_true(written - offsetof(weir_executor, sleep) >= 64);
    assert_true(written - offsetof(weir_executor, state) >= 64);
    assert_true(offsetof(weir_executor, tasks.mpsc.first) - written >= 64);
    assert_true(offsetof(weir_executor, tasks.is_bounded) - written >= 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(comes_out_in_order),
        weir_case(refuses_at_its_bound),
        weir_case(push_always_goes_beyond_the_bound),
        weir_case(unbounded_one_counts_nothing),
        weir_case(task_taken_back_leaves_the_order_of_the_others),
        weir_case(tasks_are_taken_back_one_after_another),
        weir_case(only_task_taken_back_leaves_an_empty_queue),
        weir_case(counts_what_is_there),
        weir_case(look_that_finds_tasks_takes_them_over),
        weir_case(posters_write_no_cache_line_that_passes_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
