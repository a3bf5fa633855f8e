/* SPDX-License-Identifier: MIT */
/* Results made of results: a promise that follows a future, and one that joins several. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

/* An executor whose thread runs, and its end. */

static int tell_thread(void *thread)
{
    *(pthread_t *)thread = pthread_self();
    return 0;
}

/* Returns when everything that was posted before has run. */
static pthread_t flush(weir_executor *executor)
{
    pthread_t thread;
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(executor, tell_thread, &thread, &future), 0);
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
    return thread;
}

static weir_executor *start_executor(void)
{
    weir_group *group = NULL;
    assert_int_equal(weir_group_new_executors(&group, &(weir_group_config){ .count = 1 }, NULL), 0);
    flush(weir_group_at(group, 0));
    return weir_group_at(group, 0);
}

static void end_executor(weir_executor *executor)
{
    weir_group *group = weir_executor_group(executor);
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
    weir_group_free(group);
}

static void count_free(void *value)
{
    ++*(unsigned *)value;
}

static void keep_thread(void *arg, weir_future *future)
{
    (void)future;
    *(pthread_t *)arg = pthread_self();
}

static weir_future *future_of(weir_promise *promise)
{
    return weir_promise_future(promise);
}

/* Following ---------------------------------------------------------------------------------- */

static void follower_gets_the_code(void **state)
{
    (void)state;
    const int codes[] = { 0, -EPIPE, WEIR_ECLOSED, -ECANCELED };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
        assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
        assert_false(weir_future_is_done(future_of(to)));
        weir_promise_set(from, codes[i]);
        assert_int_equal(weir_future_code(future_of(to)), codes[i]);
        weir_promise_release(from);
        weir_promise_release(to);
    }
}

static void value_lives_with_the_follower(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        unsigned freed = 0;
        weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
        if (!is_late)
            assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
        weir_promise_succeed(from, &freed, count_free);
        if (is_late)
            assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
        weir_promise_release(from);
        assert_int_equal(freed, 0);
        assert_int_equal(weir_future_code(future_of(to)), 0);
        assert_ptr_equal(weir_future_value(future_of(to)), &freed);
        weir_promise_release(to);
        assert_int_equal(freed, 1);
    }
}

static void value_may_outlive_the_follower(void **state)
{
    (void)state;
    unsigned freed = 0;
    weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
    assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
    weir_promise_release(to); /* the follower's own end is from's business now */
    weir_promise_succeed(from, &freed, count_free);
    assert_int_equal(freed, 0);
    weir_promise_release(from);
    assert_int_equal(freed, 1);
}

static void several_follow_one(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    unsigned freed = 0;
    weir_promise *from = weir_promise_new(NULL), *to[COUNT];
    for (int i = 0; i < COUNT; i++) {
        to[i] = weir_promise_new(NULL);
        assert_int_equal(weir_promise_follow(to[i], future_of(from)), 0);
    }
    weir_promise_succeed(from, &freed, count_free);
    weir_promise_release(from);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(freed, 0);
        assert_ptr_equal(weir_future_value(future_of(to[i])), &freed);
        weir_promise_release(to[i]);
    }
    assert_int_equal(freed, 1);
}

static void constant_can_be_followed(void **state)
{
    (void)state;
    const int codes[] = { 0, -EIO, WEIR_EOF, -ECANCELED };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        weir_promise *to = weir_promise_new(NULL);
        assert_int_equal(weir_promise_follow(to, weir_future_completed(codes[i])), 0);
        assert_int_equal(weir_future_code(future_of(to)), codes[i]);
        weir_promise_release(to);
    }
}

static void cancel_goes_both_ways(void **state)
{
    (void)state;
    for (int is_source = 0; is_source < 2; is_source++) {
        weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
        assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
        assert_int_equal(weir_future_cancel(future_of(is_source ? from : to)), 0);
        assert_int_equal(weir_future_code(future_of(from)), -ECANCELED);
        assert_int_equal(weir_future_code(future_of(to)), -ECANCELED);
        weir_promise_release(from);
        weir_promise_release(to);
    }
}

static void cancelled_before_it_cancels_what_it_shall_follow(void **state)
{
    (void)state;
    weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
    weir_future_cancel(future_of(to));
    assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
    assert_int_equal(weir_future_code(future_of(from)), -ECANCELED);
    weir_promise_release(from);
    weir_promise_release(to);
}

static void only_cancelling_goes_to_the_source(void **state)
{
    (void)state;
    unsigned freed = 0;
    weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
    assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
    assert_int_equal(weir_promise_fail(to, -EIO), 0);
    assert_false(weir_future_is_done(future_of(from)));
    assert_int_equal(weir_promise_succeed(from, &freed, count_free), 0);
    assert_int_equal(weir_future_code(future_of(to)), -EIO);
    assert_null(weir_future_value(future_of(to)));
    weir_promise_release(from);
    assert_int_equal(freed, 1);
    weir_promise_release(to);
    assert_int_equal(freed, 1);
}

static void uncancellable_source_goes_on(void **state)
{
    (void)state;
    weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
    assert_true(weir_promise_set_uncancellable(from));
    assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
    assert_int_equal(weir_future_cancel(future_of(to)), 0);
    assert_false(weir_future_is_done(future_of(from)));
    assert_int_equal(weir_promise_set(from, 0), 0);
    assert_int_equal(weir_future_code(future_of(to)), -ECANCELED);
    weir_promise_release(from);
    weir_promise_release(to);
}

static void uncancellable_follower_follows(void **state)
{
    (void)state;
    weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
    assert_true(weir_promise_set_uncancellable(to));
    assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
    assert_int_equal(weir_future_cancel(future_of(to)), -EBUSY);
    assert_int_equal(weir_future_cancel(future_of(from)), 0);
    assert_int_equal(weir_future_code(future_of(to)), -ECANCELED);
    weir_promise_release(from);
    weir_promise_release(to);
}

static void follower_tells_on_its_own_executor(void **state)
{
    (void)state;
    pthread_t from_thread, to_thread;
    unsigned freed = 0;
    weir_executor *from_executor = start_executor(), *to_executor = start_executor();
    weir_promise *from = weir_promise_new(from_executor), *to = weir_promise_new(to_executor);
    assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
    weir_future_on_done(future_of(from), keep_thread, &from_thread);
    weir_future_on_done(future_of(to), keep_thread, &to_thread);
    weir_promise_succeed(from, &freed, count_free);
    assert_int_equal(weir_future_await(future_of(to)), 0);
    assert_ptr_equal(weir_future_value(future_of(to)), &freed);
    pthread_t from_expected = flush(from_executor); /* first: it posts to the other one */
    pthread_t to_expected = flush(to_executor);
    assert_true(pthread_equal(from_thread, from_expected));
    assert_true(pthread_equal(to_thread, to_expected));
    weir_promise_release(from);
    weir_promise_release(to);
    end_executor(from_executor);
    end_executor(to_executor);
    assert_int_equal(freed, 1);
}

static void result_goes_through_a_row_of_followers(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    unsigned freed = 0;
    weir_promise **row = calloc(COUNT, sizeof *row);
    for (int i = 0; i < COUNT; i++) {
        row[i] = weir_promise_new(NULL);
        if (i > 0)
            assert_int_equal(weir_promise_follow(row[i], future_of(row[i - 1])), 0);
    }
    weir_promise_succeed(row[0], &freed, count_free);
    for (int i = 0; i < COUNT - 1; i++)
        weir_promise_release(row[i]);
    assert_int_equal(freed, 0);
    assert_ptr_equal(weir_future_value(future_of(row[COUNT - 1])), &freed);
    weir_promise_release(row[COUNT - 1]);
    assert_int_equal(freed, 1);
    free(row);
}

/* Each keeps the one before it alive for the value: letting go of the last is a loop, too. */
static const char *deepest;

static void note_depth(void *value)
{
    (void)value;
    deepest = __builtin_frame_address(0);
}

static void releasing_a_row_of_followers_does_not_grow_the_stack(void **state)
{
    (void)state;
    weir_promise *last = weir_promise_new(NULL);
    weir_promise_succeed(last, &deepest, note_depth);
    for (int i = 0; i < 10000; i++) {
        weir_promise *next = weir_promise_new(NULL);
        assert_int_equal(weir_promise_follow(next, future_of(last)), 0);
        weir_promise_release(last);
        last = next;
    }
    deepest = NULL;
    weir_promise_release(last);
    assert_non_null(deepest);
    assert_true((const char *)__builtin_frame_address(0) - deepest < 8192);
}

static void follower_of_a_forgotten_promise_is_cancelled(void **state)
{
    (void)state;
    weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
    assert_int_equal(weir_promise_follow(to, future_of(from)), 0);
    harness_log_begin(WEIR_LOG_ERROR);
    weir_promise_release(from);
    assert_int_equal(harness_log_end(), HARNESS_MISUSE_ABORTS); /* reported in debug builds */
    assert_int_equal(weir_future_code(future_of(to)), -ECANCELED);
    weir_promise_release(to);
}

static void cancel_goes_through_a_row_of_followers(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    weir_promise **row = calloc(COUNT, sizeof *row);
    for (int i = 0; i < COUNT; i++) {
        row[i] = weir_promise_new(NULL);
        if (i > 0)
            assert_int_equal(weir_promise_follow(row[i], future_of(row[i - 1])), 0);
    }
    assert_int_equal(weir_future_cancel(future_of(row[COUNT - 1])), 0);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(weir_future_code(future_of(row[i])), -ECANCELED);
        weir_promise_release(row[i]);
    }
    free(row);
}

static void following_nothing_or_itself_is_refused(void **state)
{
    (void)state;
    weir_promise *promise = weir_promise_new(NULL);
    assert_int_equal(weir_promise_follow(NULL, future_of(promise)), -EINVAL);
    assert_int_equal(weir_promise_follow(promise, NULL), -EINVAL);
    assert_int_equal(weir_promise_follow(promise, future_of(promise)), -EINVAL);
    assert_false(weir_future_is_done(future_of(promise)));
    weir_promise_set(promise, 0);
    weir_promise_release(promise);
}

static void following_without_memory_changes_nothing(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        weir_promise *from = weir_promise_new(NULL), *to = weir_promise_new(NULL);
        if (is_late)
            weir_promise_set(from, 0);
        harness_fail_nth(NULL, 1, -ENOMEM);
        assert_int_equal(weir_promise_follow(to, future_of(from)), -ENOMEM);
        assert_int_equal(harness_fail_end(), 1);
        assert_false(weir_future_is_done(future_of(to)));
        if (!is_late)
            weir_promise_set(from, 0);
        assert_false(weir_future_is_done(future_of(to)));
        weir_promise_set(to, 0);
        weir_promise_release(from);
        weir_promise_release(to);
    }
}

/* Threads that complete the source while the follower is cancelled. */

enum { ROUNDS = 500 };

static pthread_barrier_t barrier;

typedef struct completer {
    weir_promise **promises;
    int way; /* 0: success with a value, 1: success, 2: failure, 3: cancel */
    int results[ROUNDS];
    unsigned freed[ROUNDS];
} completer;

static void *complete_all(void *arg)
{
    completer *c = arg;
    for (int i = 0; i < ROUNDS; i++) {
        weir_promise *promise = c->promises[i];
        pthread_barrier_wait(&barrier);
        switch (c->way) {
        case 0:
            c->results[i] = weir_promise_succeed(promise, &c->freed[i], count_free);
            break;
        case 1:
            c->results[i] = weir_promise_set(promise, 0);
            break;
        case 2:
            c->results[i] = weir_promise_fail(promise, -i - 1);
            break;
        default:
            c->results[i] = weir_future_cancel(future_of(promise));
        }
        weir_promise_release(promise);
    }
    return NULL;
}

static void both_ends_may_complete_at_once(void **state)
{
    (void)state;
    static weir_promise *from[ROUNDS], *to[ROUNDS];
    static weir_future *ends[ROUNDS];
    completer *source = calloc(1, sizeof *source), *target = calloc(1, sizeof *target);
    pthread_t thread;
    for (int i = 0; i < ROUNDS; i++) {
        from[i] = weir_promise_new(NULL);
        to[i] = weir_promise_new(NULL);
        ends[i] = weir_future_retain(future_of(to[i]));
        assert_int_equal(weir_promise_follow(to[i], future_of(from[i])), 0);
    }
    source->promises = from;
    target->promises = to;
    target->way = 3;
    pthread_barrier_init(&barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, complete_all, source), 0);
    complete_all(target);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        int code = weir_future_code(ends[i]);
        assert_int_equal(code, target->results[i] == 0 ? -ECANCELED : 0);
        if (target->results[i] < 0)
            assert_int_equal(target->results[i], -EALREADY);
        if (code == 0)
            assert_ptr_equal(weir_future_value(ends[i]), &source->freed[i]);
        weir_future_release(ends[i]);
        assert_int_equal(source->freed[i], source->results[i] == 0);
    }
    free(source);
    free(target);
}

/* Joining ------------------------------------------------------------------------------------ */

static const weir_join hows[] = { WEIR_JOIN_ALL, WEIR_JOIN_FIRST_FAILURE };
enum { HOWS = sizeof hows / sizeof *hows, PARTS = 4 };

typedef struct parts {
    weir_promise *to, *promises[PARTS];
    weir_future *futures[PARTS];
} parts;

static void parts_init(parts *p, weir_executor *executor)
{
    p->to = weir_promise_new(executor);
    for (int i = 0; i < PARTS; i++) {
        p->promises[i] = weir_promise_new(executor);
        p->futures[i] = future_of(p->promises[i]);
    }
}

static void parts_release(parts *p)
{
    weir_promise_release(p->to);
    for (int i = 0; i < PARTS; i++)
        weir_promise_release(p->promises[i]);
}

static void joined_successes_succeed_with_the_last(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        parts p;
        parts_init(&p, NULL);
        assert_int_equal(weir_promise_join(p.to, p.futures, PARTS, hows[h]), 0);
        for (int i = PARTS - 1; i >= 0; i--) {
            assert_int_equal(weir_future_code(future_of(p.to)), -EINPROGRESS);
            weir_promise_set(p.promises[i], 0);
        }
        assert_int_equal(weir_future_code(future_of(p.to)), 0);
        assert_null(weir_future_value(future_of(p.to)));
        parts_release(&p);
    }
}

static void joined_all_end_with_the_first_failure_after_the_last(void **state)
{
    (void)state;
    parts p;
    parts_init(&p, NULL);
    assert_int_equal(weir_promise_join(p.to, p.futures, PARTS, WEIR_JOIN_ALL), 0);
    weir_promise_set(p.promises[0], 0);
    weir_promise_fail(p.promises[2], -EPIPE);
    weir_promise_fail(p.promises[1], -EIO);
    assert_false(weir_future_is_done(future_of(p.to)));
    weir_promise_set(p.promises[3], 0);
    assert_int_equal(weir_future_code(future_of(p.to)), -EPIPE);
    parts_release(&p);
}

static void first_failure_ends_a_join_at_once(void **state)
{
    (void)state;
    parts p;
    parts_init(&p, NULL);
    assert_int_equal(weir_promise_join(p.to, p.futures, PARTS, WEIR_JOIN_FIRST_FAILURE), 0);
    weir_promise_set(p.promises[0], 0);
    weir_future_cancel(p.futures[2]);
    assert_int_equal(weir_future_code(future_of(p.to)), -ECANCELED);
    assert_false(weir_future_is_done(p.futures[1])); /* the others are left alone */
    assert_false(weir_future_is_done(p.futures[3]));
    weir_promise_fail(p.promises[1], -EIO);
    weir_promise_set(p.promises[3], 0);
    assert_int_equal(weir_future_code(future_of(p.to)), -ECANCELED);
    parts_release(&p);
}

static void join_of_none_succeeds_at_once(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        weir_promise *to = weir_promise_new(NULL);
        assert_int_equal(weir_promise_join(to, NULL, 0, hows[h]), 0);
        assert_int_equal(weir_future_code(future_of(to)), 0);
        weir_promise_release(to);
    }
}

static void what_is_complete_can_be_joined(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        for (int failing = -1; failing < PARTS; failing++) {
            weir_future *futures[PARTS];
            weir_promise *to = weir_promise_new(NULL);
            for (int i = 0; i < PARTS; i++)
                futures[i] = weir_future_completed(i == failing ? -EIO : 0);
            assert_int_equal(weir_promise_join(to, futures, PARTS, hows[h]), 0);
            assert_int_equal(weir_future_code(future_of(to)), failing < 0 ? 0 : -EIO);
            weir_promise_release(to);
        }
    }
}

static void complete_and_pending_can_be_joined(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        parts p;
        parts_init(&p, NULL);
        weir_promise_set(p.promises[0], 0);
        weir_promise_fail(p.promises[3], -EIO);
        assert_int_equal(weir_promise_join(p.to, p.futures, PARTS, hows[h]), 0);
        assert_int_equal(weir_future_is_done(future_of(p.to)), hows[h] == WEIR_JOIN_FIRST_FAILURE);
        weir_promise_fail(p.promises[1], -EPIPE);
        weir_promise_set(p.promises[2], 0);
        assert_int_equal(weir_future_code(future_of(p.to)), -EIO);
        parts_release(&p);
    }
}

static void one_future_may_be_joined_twice(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        weir_promise *to = weir_promise_new(NULL), *part = weir_promise_new(NULL);
        weir_future *futures[] = { future_of(part), future_of(part) };
        assert_int_equal(weir_promise_join(to, futures, 2, hows[h]), 0);
        weir_promise_set(part, 0);
        assert_int_equal(weir_future_code(future_of(to)), 0);
        weir_promise_release(part);
        weir_promise_release(to);
    }
}

static void joined_promise_may_be_complete_before(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        parts p;
        parts_init(&p, NULL);
        assert_int_equal(weir_promise_join(p.to, p.futures, PARTS, hows[h]), 0);
        assert_int_equal(weir_future_cancel(future_of(p.to)), 0);
        for (int i = 0; i < PARTS; i++) {
            assert_false(weir_future_is_done(p.futures[i]));
            weir_promise_fail(p.promises[i], -EIO);
        }
        assert_int_equal(weir_future_code(future_of(p.to)), -ECANCELED);
        assert_int_equal(weir_promise_join(p.to, NULL, 0, hows[h]), -EALREADY);
        parts_release(&p);
    }
}

static void part_that_was_dropped_is_a_failure(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_ERROR);
    for (int h = 0; h < HOWS; h++) {
        weir_promise *to = weir_promise_new(NULL), *part = weir_promise_new(NULL);
        weir_future *futures[] = { weir_future_completed(0), future_of(part) };
        assert_int_equal(weir_promise_join(to, futures, 2, hows[h]), 0);
        weir_promise_release(part);
        assert_int_equal(weir_future_code(future_of(to)), -ECANCELED);
        weir_promise_release(to);
    }
    assert_int_equal(harness_log_end(), HARNESS_MISUSE_ABORTS ? HOWS : 0);
}

static void join_keeps_its_promise_alive(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        pthread_t thread;
        weir_promise *to = weir_promise_new(NULL), *part = weir_promise_new(NULL);
        weir_future *futures[] = { future_of(part) };
        assert_int_equal(weir_promise_join(to, futures, 1, hows[h]), 0);
        weir_future_on_done(future_of(to), keep_thread, &thread);
        weir_promise_release(to);
        weir_promise_set(part, 0);
        assert_true(pthread_equal(thread, pthread_self()));
        weir_promise_release(part);
    }
}

static void join_without_futures_is_refused(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        parts p;
        parts_init(&p, NULL);
        assert_int_equal(weir_promise_join(NULL, p.futures, PARTS, hows[h]), -EINVAL);
        assert_int_equal(weir_promise_join(p.to, NULL, 1, hows[h]), -EINVAL);
        for (int i = 0; i < PARTS; i++) {
            p.futures[i] = NULL;
            assert_int_equal(weir_promise_join(p.to, p.futures, PARTS, hows[h]), -EINVAL);
            p.futures[i] = future_of(p.to);
            assert_int_equal(weir_promise_join(p.to, p.futures, PARTS, hows[h]), -EINVAL);
            p.futures[i] = future_of(p.promises[i]);
        }
        for (int i = 0; i < PARTS; i++)
            weir_promise_set(p.promises[i], -EIO);
        assert_false(weir_future_is_done(future_of(p.to)));
        weir_promise_set(p.to, 0);
        parts_release(&p);
    }
}

static void join_without_memory_changes_nothing(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        parts p;
        parts_init(&p, NULL);
        harness_fail_nth(NULL, 1, -ENOMEM);
        assert_int_equal(weir_promise_join(p.to, p.futures, PARTS, hows[h]), -ENOMEM);
        assert_int_equal(harness_fail_end(), 1);
        for (int i = 0; i < PARTS; i++)
            weir_promise_set(p.promises[i], -EIO);
        assert_false(weir_future_is_done(future_of(p.to)));
        harness_fail_nth(NULL, 1, -ENOMEM);
        assert_int_equal(weir_promise_join(p.to, NULL, 0, hows[h]), 0);
        assert_int_equal(harness_fail_end(), 0);
        parts_release(&p);
    }
}

static void join_works_across_executors(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++) {
        pthread_t thread;
        parts p;
        weir_executor *executor = start_executor(), *to_executor = start_executor();
        parts_init(&p, executor);
        weir_promise *to = weir_promise_new(to_executor);
        assert_int_equal(weir_promise_join(to, p.futures, PARTS, hows[h]), 0);
        weir_future_on_done(future_of(to), keep_thread, &thread);
        for (int i = 0; i < PARTS; i++)
            weir_promise_set(p.promises[i], i == 1 ? -EIO : 0);
        assert_int_equal(weir_future_await(future_of(to)), -EIO);
        flush(executor); /* first: it posts to the other one */
        pthread_t expected = flush(to_executor);
        assert_true(pthread_equal(thread, expected));
        weir_promise_set(p.to, 0);
        parts_release(&p);
        weir_promise_release(to);
        end_executor(executor);
        end_executor(to_executor);
    }
}

static void join_all_from_several_threads(weir_join how)
{
    enum { THREADS = 3 };
    static weir_promise *promises[THREADS][ROUNDS], *to[ROUNDS];
    completer *completers = calloc(THREADS, sizeof *completers);
    pthread_t threads[THREADS];
    for (int i = 0; i < ROUNDS; i++) {
        weir_future *futures[THREADS];
        for (int t = 0; t < THREADS; t++) {
            promises[t][i] = weir_promise_new(NULL);
            futures[t] = future_of(promises[t][i]);
        }
        to[i] = weir_promise_new(NULL);
        assert_int_equal(weir_promise_join(to[i], futures, THREADS, how), 0);
    }
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int t = 0; t < THREADS; t++) {
        completers[t].promises = promises[t];
        completers[t].way = t;
        assert_int_equal(pthread_create(&threads[t], NULL, complete_all, &completers[t]), 0);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(weir_future_code(future_of(to[i])), -i - 1);
        weir_promise_release(to[i]);
    }
    free(completers);
}

static void join_takes_results_from_several_threads(void **state)
{
    (void)state;
    for (int h = 0; h < HOWS; h++)
        join_all_from_several_threads(hows[h]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(follower_gets_the_code),
        weir_case(value_lives_with_the_follower),
        weir_case(value_may_outlive_the_follower),
        weir_case(several_follow_one),
        weir_case(constant_can_be_followed),
        weir_case(cancel_goes_both_ways),
        weir_case(cancelled_before_it_cancels_what_it_shall_follow),
        weir_case(only_cancelling_goes_to_the_source),
        weir_case(uncancellable_source_goes_on),
        weir_case(uncancellable_follower_follows),
        weir_case(follower_tells_on_its_own_executor),
        weir_case(result_goes_through_a_row_of_followers),
        weir_case(cancel_goes_through_a_row_of_followers),
        weir_case(releasing_a_row_of_followers_does_not_grow_the_stack),
        weir_case(follower_of_a_forgotten_promise_is_cancelled),
        weir_case(following_nothing_or_itself_is_refused),
        weir_case(following_without_memory_changes_nothing),
        weir_case(both_ends_may_complete_at_once),
        weir_case(joined_successes_succeed_with_the_last),
        weir_case(joined_all_end_with_the_first_failure_after_the_last),
        weir_case(first_failure_ends_a_join_at_once),
        weir_case(join_of_none_succeeds_at_once),
        weir_case(what_is_complete_can_be_joined),
        weir_case(complete_and_pending_can_be_joined),
        weir_case(one_future_may_be_joined_twice),
        weir_case(joined_promise_may_be_complete_before),
        weir_case(part_that_was_dropped_is_a_failure),
        weir_case(join_keeps_its_promise_alive),
        weir_case(join_without_futures_is_refused),
        weir_case(join_without_memory_changes_nothing),
        weir_case(join_works_across_executors),
        weir_case(join_takes_results_from_several_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
