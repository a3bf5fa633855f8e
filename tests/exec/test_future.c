/* SPDX-License-Identifier: MIT */
/* Promises and futures: one result, set once, and everybody told once, in order, where it should.
 */
#include "harness.h"

#include "base/asleep.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

/* An executor whose thread runs, and its end. */

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

/* Returns when everything that was posted before has run. */
static void flush(weir_executor *executor)
{
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(executor, nothing, NULL, &future), 0);
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
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

/* Runs a function on the executor's thread and waits for its end. */
static void run_on(weir_executor *executor, weir_call_fn fn, void *arg)
{
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(executor, fn, arg, &future), 0);
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
}

/* A listener that remembers what it was told, and when: as the how manieth of a row. */
typedef struct ear {
    weir_listener listener;
    unsigned calls, drops;
    int code;
    void *value;
    pthread_t thread;
    unsigned *row;
    unsigned place;
} ear;

static void hear(void *arg, weir_future *future)
{
    ear *e = arg;
    e->calls++;
    e->code = weir_future_code(future);
    e->value = weir_future_value(future);
    e->thread = pthread_self();
    if (e->row != NULL)
        e->place = ++*e->row;
}

static void hear_embedded(weir_listener *listener, weir_future *future)
{
    hear(listener, future);
}

static void listen_with(ear *e, weir_future *future)
{
    e->listener.done = hear_embedded;
    weir_future_listen(future, &e->listener);
}

static void count_free(void *value)
{
    ++*(unsigned *)value;
}

/* The result --------------------------------------------------------------------------------- */

static void is_born_pending(void **state)
{
    (void)state;
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(promise);
    assert_non_null(future);
    assert_false(weir_future_is_done(future));
    assert_int_equal(weir_future_code(future), -EINPROGRESS);
    assert_null(weir_future_value(future));
    assert_int_equal(weir_promise_set(promise, 0), 0);
    weir_promise_release(promise);
}

static void succeeds_with_a_value(void **state)
{
    (void)state;
    int value;
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(promise);
    assert_int_equal(weir_promise_succeed(promise, &value, NULL), 0);
    assert_true(weir_future_is_done(future));
    assert_int_equal(weir_future_code(future), 0);
    assert_ptr_equal(weir_future_value(future), &value);
    assert_int_equal(weir_future_await(future), 0);
    weir_promise_release(promise);
}

static void fails_with_a_code(void **state)
{
    (void)state;
    const int codes[] = { -ECONNRESET, WEIR_ECLOSED, -ECANCELED, -100000 };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        weir_promise *promise = weir_promise_new(NULL);
        weir_future *future = weir_promise_future(promise);
        assert_int_equal(weir_promise_fail(promise, codes[i]), 0);
        assert_true(weir_future_is_done(future));
        assert_int_equal(weir_future_code(future), codes[i]);
        assert_null(weir_future_value(future));
        assert_int_equal(weir_future_await(future), codes[i]);
        assert_int_equal(weir_future_wait(future, 0), 0);
        weir_promise_release(promise);
    }
}

static void cancelled_it_has_a_code_and_no_value(void **state)
{
    (void)state;
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(promise);
    assert_int_equal(weir_future_cancel(future), 0);
    assert_true(weir_future_is_done(future));
    assert_int_equal(weir_future_code(future), -ECANCELED);
    assert_null(weir_future_value(future));
    assert_false(weir_promise_set_uncancellable(promise));
    weir_promise_release(promise);
}

static void uncancellable_it_waits_for_its_holder(void **state)
{
    (void)state;
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(promise);
    assert_true(weir_promise_set_uncancellable(promise));
    assert_true(weir_promise_set_uncancellable(promise));
    assert_false(weir_future_is_done(future));
    assert_int_equal(weir_future_code(future), -EINPROGRESS);
    assert_int_equal(weir_future_cancel(future), -EBUSY);
    assert_false(weir_future_is_done(future));
    assert_int_equal(weir_promise_fail(promise, -EPIPE), 0);
    assert_int_equal(weir_future_code(future), -EPIPE);
    assert_int_equal(weir_future_cancel(future), -EALREADY);
    assert_true(weir_promise_set_uncancellable(promise));
    weir_promise_release(promise);
}

/* The ways to complete a promise, by number. */
enum { WAYS = 4 };

static int complete_by(int way, weir_promise *promise, unsigned *freed)
{
    switch (way) {
    case 0:
        return weir_promise_succeed(promise, freed, count_free);
    case 1:
        return weir_promise_fail(promise, -EIO);
    case 2:
        return weir_promise_set(promise, 0);
    default:
        return weir_future_cancel(weir_promise_future(promise));
    }
}

static void is_set_only_once(void **state)
{
    (void)state;
    const int codes[WAYS] = { 0, -EIO, 0, -ECANCELED };
    for (int first = 0; first < WAYS; first++) {
        for (int second = 0; second < WAYS; second++) {
            unsigned freed = 0, refused = 0;
            ear e = { 0 };
            weir_promise *promise = weir_promise_new(NULL);
            weir_future *future = weir_promise_future(promise);
            listen_with(&e, future);
            assert_int_equal(complete_by(first, promise, &freed), 0);
            assert_int_equal(complete_by(second, promise, &refused), -EALREADY);
            assert_int_equal(weir_future_code(future), codes[first]);
            assert_ptr_equal(weir_future_value(future), first == 0 ? &freed : NULL);
            assert_int_equal(e.calls, 1);
            weir_promise_release(promise);
            assert_int_equal(freed, first == 0);
            assert_int_equal(refused, 0); /* it stayed the caller's */
        }
    }
}

static void what_is_no_result_is_refused(void **state)
{
    (void)state;
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(promise);
    assert_int_equal(weir_promise_fail(promise, 0), -EINVAL);
    assert_int_equal(weir_promise_fail(promise, EIO), -EINVAL);
    assert_int_equal(weir_promise_set(promise, 1), -EINVAL);
    assert_false(weir_future_is_done(future));
    assert_int_equal(weir_future_on_done(future, NULL, NULL), -EINVAL);
    assert_int_equal(weir_promise_set(promise, 0), 0);
    weir_promise_release(promise);
}

static void null_is_refused(void **state)
{
    (void)state;
    assert_int_equal(weir_promise_succeed(NULL, NULL, NULL), -EINVAL);
    assert_int_equal(weir_promise_fail(NULL, -EIO), -EINVAL);
    assert_int_equal(weir_promise_set(NULL, 0), -EINVAL);
    assert_null(weir_promise_future(NULL));
    assert_null(weir_promise_retain(NULL));
    assert_null(weir_future_retain(NULL));
    weir_promise_release(NULL);
    weir_future_release(NULL);
    assert_false(weir_future_is_done(NULL));
    assert_int_equal(weir_future_code(NULL), -EINVAL);
    assert_null(weir_future_value(NULL));
    assert_int_equal(weir_future_cancel(NULL), -EINVAL);
    assert_int_equal(weir_future_await(NULL), -EINVAL);
    assert_int_equal(weir_future_wait(NULL, 0), -EINVAL);
    assert_int_equal(weir_future_on_done(NULL, hear, NULL), -EINVAL);
}

static void value_is_destroyed_once_with_the_last_reference(void **state)
{
    (void)state;
    unsigned freed = 0;
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_future_retain(weir_promise_future(promise));
    assert_ptr_equal(weir_promise_retain(promise), promise);
    assert_int_equal(weir_promise_succeed(promise, &freed, count_free), 0);
    weir_promise_release(promise);
    weir_promise_release(promise);
    assert_int_equal(freed, 0);
    assert_ptr_equal(weir_future_value(future), &freed);
    weir_future_release(future);
    assert_int_equal(freed, 1);
}

/* Listeners ---------------------------------------------------------------------------------- */

static void listeners_are_called_in_order(void **state)
{
    (void)state;
    enum { COUNT = 12, BEFORE = 8 };
    for (int way = 0; way < WAYS; way++) {
        unsigned row = 0, freed = 0;
        ear ears[COUNT] = { 0 };
        weir_promise *promise = weir_promise_new(NULL);
        weir_future *future = weir_promise_future(promise);
        for (int i = 0; i < COUNT; i++) {
            if (i == BEFORE) {
                assert_int_equal(row, 0);
                complete_by(way, promise, &freed);
                assert_int_equal(row, BEFORE);
            }
            ears[i].row = &row;
            if (i % 2 == 0)
                listen_with(&ears[i], future);
            else
                assert_int_equal(weir_future_on_done(future, hear, &ears[i]), 0);
        }
        for (unsigned i = 0; i < COUNT; i++) {
            assert_int_equal(ears[i].calls, 1);
            assert_int_equal(ears[i].place, i + 1);
            assert_int_equal(ears[i].code, weir_future_code(future));
            assert_ptr_equal(ears[i].value, weir_future_value(future));
        }
        weir_promise_release(promise);
    }
}

/* A listener that adds another one to the same future, which it was given. */
typedef struct adder {
    ear own, added;
    unsigned row_when_back;
} adder;

static void add_another(void *arg, weir_future *future)
{
    adder *a = arg;
    hear(&a->own, future);
    listen_with(&a->added, future);
    a->row_when_back = *a->own.row;
}

static void listener_may_add_a_listener(void **state)
{
    (void)state;
    for (int is_late = 0; is_late < 2; is_late++) {
        unsigned row = 0;
        adder a = { .own.row = &row, .added.row = &row };
        ear next = { .row = &row };
        weir_promise *promise = weir_promise_new(NULL);
        weir_future *future = weir_promise_future(promise);
        if (is_late)
            weir_promise_set(promise, 0);
        assert_int_equal(weir_future_on_done(future, add_another, &a), 0);
        if (!is_late) {
            listen_with(&next, future);
            weir_promise_set(promise, 0);
            assert_int_equal(next.place, 2); /* it came before the added one */
        }
        assert_int_equal(a.own.place, 1);
        assert_int_equal(a.row_when_back, 1); /* not called inside of the other */
        assert_int_equal(a.added.calls, 1);
        assert_int_equal(a.added.place, is_late ? 2 : 3);
        weir_promise_release(promise);
    }
}

/* A listener that is used for one future after the other, from its own call. */
typedef struct traveller {
    weir_listener listener;
    weir_future *next;
    unsigned calls;
} traveller;

static void travel(weir_listener *listener, weir_future *future)
{
    (void)future;
    traveller *t = (traveller *)listener;
    weir_future *next = t->next;
    t->next = NULL;
    t->calls++;
    if (next != NULL)
        weir_future_listen(next, listener);
}

static void listener_is_its_owners_again_in_the_call(void **state)
{
    (void)state;
    weir_promise *first = weir_promise_new(NULL), *second = weir_promise_new(NULL);
    traveller t = { { .done = travel }, weir_promise_future(second), 0 };
    weir_future_listen(weir_promise_future(first), &t.listener);
    weir_promise_set(first, 0);
    assert_int_equal(t.calls, 1);
    t.next = weir_promise_future(first); /* which is complete already */
    weir_promise_set(second, 0);
    assert_int_equal(t.calls, 3);
    weir_promise_release(first);
    weir_promise_release(second);
}

static void release_it(void *arg, weir_future *future)
{
    (void)arg;
    weir_future_release(future);
}

static void listener_may_release_the_last_reference(void **state)
{
    (void)state;
    unsigned freed = 0, row = 0;
    ear after = { .row = &row };
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(promise);
    weir_future_on_done(future, release_it, NULL);
    listen_with(&after, future);
    weir_promise_succeed(promise, &freed, count_free);
    assert_int_equal(after.calls, 1);
    assert_ptr_equal(after.value, &freed);
    assert_int_equal(freed, 1);
}

typedef struct relay {
    weir_promise *next;
    ear *ear;
    unsigned row_when_back;
} relay;

static void complete_next(void *arg, weir_future *future)
{
    (void)future;
    relay *r = arg;
    weir_promise_set(r->next, 0);
    r->row_when_back = *r->ear->row;
}

static void listeners_of_another_promise_are_not_called_inside(void **state)
{
    (void)state;
    unsigned row = 0;
    ear first = { .row = &row }, second = { .row = &row };
    weir_promise *a = weir_promise_new(NULL), *b = weir_promise_new(NULL);
    relay r = { b, &second, 99 };
    weir_future_on_done(weir_promise_future(a), complete_next, &r);
    listen_with(&first, weir_promise_future(a));
    listen_with(&second, weir_promise_future(b));
    weir_promise_set(a, 0);
    assert_int_equal(r.row_when_back, 0);
    assert_int_equal(first.place, 1);
    assert_int_equal(second.place, 2);
    weir_promise_release(a);
    weir_promise_release(b);
}

/* Threads ------------------------------------------------------------------------------------ */

static void *succeed(void *promise)
{
    weir_promise_set(promise, 0);
    return NULL;
}

static int succeed_as_task(void *promise)
{
    return weir_promise_set(promise, 0);
}

static int tell_thread(void *thread)
{
    *(pthread_t *)thread = pthread_self();
    return 0;
}

static void unbound_it_tells_on_the_completing_thread(void **state)
{
    (void)state;
    ear before = { 0 }, after = { 0 };
    pthread_t thread;
    weir_promise *promise = weir_promise_new(NULL);
    listen_with(&before, weir_promise_future(promise));
    assert_int_equal(pthread_create(&thread, NULL, succeed, promise), 0);
    pthread_join(thread, NULL);
    assert_int_equal(before.calls, 1);
    assert_false(pthread_equal(before.thread, pthread_self()));
    listen_with(&after, weir_promise_future(promise));
    assert_int_equal(after.calls, 1);
    assert_true(pthread_equal(after.thread, pthread_self()));
    weir_promise_release(promise);
}

static void post_semaphore(void *arg, weir_future *future)
{
    (void)future;
    sem_post(arg);
}

static void telling_starts_the_executor(void **state)
{
    (void)state;
    sem_t told;
    weir_group *group = NULL;
    assert_int_equal(sem_init(&told, 0, 0), 0);
    assert_int_equal(weir_group_new_executors(&group, &(weir_group_config){ .count = 1 }, NULL), 0);
    weir_promise *promise = weir_promise_new(weir_group_at(group, 0));
    assert_int_equal(weir_future_on_done(weir_promise_future(promise), post_semaphore, &told), 0);
    assert_int_equal(weir_promise_set(promise, 0), 0);
    while (sem_wait(&told) < 0) {
    }
    weir_promise_release(promise);
    weir_group_shutdown(group, 0, WEIR_SECONDS(10));
    weir_group_free(group);
    sem_destroy(&told);
}

static void bound_it_tells_on_the_executors_thread(void **state)
{
    (void)state;
    enum { HERE, ELSEWHERE, INSIDE, PLACES };
    weir_executor *executor = start_executor();
    pthread_t inside, thread;
    run_on(executor, tell_thread, &inside);
    for (int place = HERE; place < PLACES; place++) {
        ear before = { 0 }, after = { 0 };
        weir_promise *promise = weir_promise_new(executor);
        listen_with(&before, weir_promise_future(promise));
        if (place == HERE) {
            weir_promise_set(promise, 0);
        } else if (place == ELSEWHERE) {
            assert_int_equal(pthread_create(&thread, NULL, succeed, promise), 0);
            pthread_join(thread, NULL);
        } else {
            run_on(executor, succeed_as_task, promise);
        }
        listen_with(&after, weir_promise_future(promise));
        flush(executor);
        assert_int_equal(before.calls, 1);
        assert_int_equal(after.calls, 1);
        assert_true(pthread_equal(before.thread, inside));
        assert_true(pthread_equal(after.thread, inside));
        weir_promise_release(promise);
    }
    end_executor(executor);
}

typedef struct late_inside {
    weir_promise *promise;
    ear ear;
    unsigned calls_when_back;
} late_inside;

static int listen_inside(void *arg)
{
    late_inside *l = arg;
    weir_promise_set(l->promise, -EIO);
    listen_with(&l->ear, weir_promise_future(l->promise));
    l->calls_when_back = l->ear.calls;
    return 0;
}

static void listener_on_the_executors_thread_is_called_when_the_task_returns(void **state)
{
    (void)state;
    weir_executor *executor = start_executor();
    late_inside l = { .promise = weir_promise_new(executor) };
    run_on(executor, listen_inside, &l);
    flush(executor);
    assert_int_equal(l.calls_when_back, 0);
    assert_int_equal(l.ear.calls, 1);
    assert_int_equal(l.ear.code, -EIO);
    weir_promise_release(l.promise);
    end_executor(executor);
}

static void never(void *arg, weir_future *future)
{
    (void)arg;
    (void)future;
    fail();
}

static void count_drop(weir_listener *listener, weir_future *future)
{
    ear *self = WEIR_CONTAINER(listener, ear, listener);
    self->drops++;
    self->code = weir_future_code(future);
}

static void add_droppable(ear *self, weir_future *future)
{
    self->listener.dropped = count_drop;
    listen_with(self, future);
}

static void terminated_executor_drops_listeners_and_calls_none(void **state)
{
    (void)state;
    ear before = { 0 }, plain = { 0 }, after = { 0 };
    weir_executor *executor = start_executor();
    weir_promise *promise = weir_promise_new(executor);
    add_droppable(&before, weir_promise_future(promise));
    listen_with(&plain, weir_promise_future(promise));
    assert_int_equal(weir_future_on_done(weir_promise_future(promise), never, NULL), 0);
    weir_executor_shutdown(executor, 0, WEIR_SECONDS(1));
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    weir_promise_set(promise, -EIO);
    assert_int_equal(before.drops, 1);
    assert_int_equal(before.code, -EIO);
    add_droppable(&after, weir_promise_future(promise));
    assert_int_equal(after.drops, 1);
    assert_int_equal(before.calls + plain.calls + after.calls, 0);
    weir_promise_release(promise);
    end_executor(executor);
}

static int refuse_to_start(void *arg, const char *name, void (*run)(void *run_arg), void *run_arg)
{
    (void)arg;
    (void)name;
    (void)run;
    (void)run_arg;
    return -EAGAIN;
}

static void executor_that_cannot_start_drops_listeners(void **state)
{
    (void)state;
    ear only = { 0 };
    weir_group *group;
    weir_group_config config = { .count = 1, .start = refuse_to_start };
    assert_int_equal(weir_group_new_executors(&group, &config, NULL), 0);
    weir_promise *promise = weir_promise_new(weir_group_at(group, 0));
    add_droppable(&only, weir_promise_future(promise));
    weir_promise_set(promise, 0);
    assert_int_equal(only.drops, 1);
    assert_int_equal(only.calls, 0);
    weir_promise_release(promise);
    weir_group_shutdown(group, 0, 0);
    weir_group_free(group);
}

/* Results that follow or join others have no thread of their own: they are complete all the same.
 */
static void terminated_executor_still_completes_followers_and_joins(void **state)
{
    (void)state;
    weir_executor *executor = start_executor();
    weir_promise *from = weir_promise_new(executor), *to = weir_promise_new(NULL),
                 *joined = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(from);
    assert_int_equal(weir_promise_follow(to, future), 0);
    assert_int_equal(weir_promise_join(joined, &future, 1, WEIR_JOIN_ALL), 0);
    weir_executor_shutdown(executor, 0, WEIR_SECONDS(1));
    assert_int_equal(weir_future_await(weir_executor_terminated(executor)), 0);
    weir_promise_set(from, -EIO);
    assert_int_equal(weir_future_code(weir_promise_future(to)), -EIO);
    assert_int_equal(weir_future_code(weir_promise_future(joined)), -EIO);
    weir_promise_release(from);
    weir_promise_release(to);
    weir_promise_release(joined);
    end_executor(executor);
}

/* A row of promises of which each completes the next: where the stack was in each call. */

enum { CHAIN = 1000 };

typedef struct chained chained;
struct chained {
    weir_listener listener;
    weir_promise *promise;
    chained *next;
    bool forgets; /* completes the next by releasing it */
    uintptr_t stack;
};

static void complete_next_chained(weir_listener *listener, weir_future *future)
{
    (void)future;
    chained *self = (chained *)listener;
    self->stack = (uintptr_t)__builtin_frame_address(0);
    if (self->next == NULL)
        return;
    if (self->forgets)
        weir_promise_release(self->next->promise);
    else
        weir_promise_set(self->next->promise, 0);
}

static chained *make_chain(weir_executor *const *executors, bool forgets)
{
    chained *links = calloc(CHAIN, sizeof *links);
    for (int i = 0; i < CHAIN; i++) {
        links[i].listener.done = complete_next_chained;
        links[i].promise = weir_promise_new(executors[i % 2]);
        links[i].next = i + 1 < CHAIN ? &links[i + 1] : NULL;
        links[i].forgets = forgets;
        weir_future_listen(weir_promise_future(links[i].promise), &links[i].listener);
    }
    return links;
}

/* Promises that take turns between executors are told at two depths, whatever their number. */
static void assert_stack_did_not_grow(const chained *links)
{
    uintptr_t least = UINTPTR_MAX, most = 0;
    for (int i = 0; i < CHAIN; i++) {
        assert_true(links[i].stack != 0);
        least = links[i].stack < least ? links[i].stack : least;
        most = links[i].stack > most ? links[i].stack : most;
    }
    assert_true(most - least < 4096);
}

static void end_chain(chained *links)
{
    for (int i = 0; i < CHAIN && !links[0].forgets; i++)
        weir_promise_release(links[i].promise);
    free(links);
}

static void long_chain_does_not_grow_the_stack(void **state)
{
    (void)state;
    chained *links = make_chain((weir_executor *[2]){ NULL, NULL }, false);
    weir_promise_set(links[0].promise, 0);
    assert_stack_did_not_grow(links);
    end_chain(links);
}

static void long_chain_on_an_executor_does_not_grow_its_stack(void **state)
{
    (void)state;
    weir_executor *executor = start_executor();
    chained *links = make_chain((weir_executor *[2]){ executor, executor }, false);
    run_on(executor, succeed_as_task, links[0].promise);
    flush(executor);
    assert_stack_did_not_grow(links);
    end_chain(links);
    links = make_chain((weir_executor *[2]){ executor, NULL }, false);
    run_on(executor, succeed_as_task, links[0].promise);
    flush(executor);
    assert_stack_did_not_grow(links);
    end_chain(links);
    end_executor(executor);
}

static void long_chain_of_forgotten_ones_does_not_grow_the_stack(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_ERROR);
    chained *links = make_chain((weir_executor *[2]){ NULL, NULL }, true);
    weir_promise_release(links[0].promise);
    assert_int_equal(harness_log_end(), HARNESS_MISUSE_ABORTS ? CHAIN : 0);
    assert_stack_did_not_grow(links);
    end_chain(links);
}

/* Waiting ------------------------------------------------------------------------------------ */

static void waiting_ends_in_time(void **state)
{
    (void)state;
    const int64_t timeouts_ns[] = { 0, -1, INT64_MIN, WEIR_MS(5) };
    weir_promise *promise = weir_promise_new(NULL);
    weir_future *future = weir_promise_future(promise);
    for (size_t i = 0; i < sizeof timeouts_ns / sizeof *timeouts_ns; i++) {
        int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
        assert_int_equal(weir_future_wait(future, timeouts_ns[i]), -ETIMEDOUT);
        assert_true(weir_clock_now_ns(weir_clock_monotonic()) - start_ns >= timeouts_ns[i]);
        assert_false(weir_future_is_done(future));
    }
    weir_promise_fail(promise, -EIO);
    assert_int_equal(weir_future_wait(future, 0), 0);
    assert_int_equal(weir_future_wait(future, INT64_MAX), 0);
    assert_int_equal(weir_future_await(future), -EIO);
    weir_promise_release(promise);
}

typedef struct waiter {
    weir_future *future;
    bool has_timeout;
    _Atomic(int) tid;
    int result;
} waiter;

static void *wait_for_it(void *arg)
{
    waiter *w = arg;
    atomic_store(&w->tid, (int)gettid());
    w->result = w->has_timeout ? weir_future_wait(w->future, INT64_MAX)
                               : weir_future_await(w->future);
    return NULL;
}

static void waiters_on_other_threads_wake_up(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    for (int way = 0; way < WAYS; way++) {
        unsigned freed = 0;
        pthread_t threads[COUNT];
        waiter waiters[COUNT] = { 0 };
        weir_promise *promise = weir_promise_new(NULL);
        for (int i = 0; i < COUNT; i++) {
            waiters[i].future = weir_promise_future(promise);
            waiters[i].has_timeout = i % 2;
            assert_int_equal(pthread_create(&threads[i], NULL, wait_for_it, &waiters[i]), 0);
            WAIT_FOR(atomic_load(&waiters[i].tid) != 0 && is_asleep(atomic_load(&waiters[i].tid)));
        }
        complete_by(way, promise, &freed);
        for (int i = 0; i < COUNT; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(waiters[i].result,
                             i % 2 ? 0 : weir_future_code(weir_promise_future(promise)));
        }
        weir_promise_release(promise);
    }
}

typedef struct inside_waits {
    weir_future *pending, *done, *elsewhere;
    int pending_await, pending_wait, done_await, done_wait, elsewhere_wait;
} inside_waits;

static int wait_inside(void *arg)
{
    inside_waits *w = arg;
    w->pending_await = weir_future_await(w->pending);
    w->pending_wait = weir_future_wait(w->pending, 0);
    w->done_await = weir_future_await(w->done);
    w->done_wait = weir_future_wait(w->done, 0);
    w->elsewhere_wait = weir_future_wait(w->elsewhere, 0);
    return 0;
}

static void executor_does_not_wait_for_itself(void **state)
{
    (void)state;
    weir_executor *executor = start_executor();
    weir_promise *pending = weir_promise_new(executor), *done = weir_promise_new(executor);
    weir_promise *elsewhere = weir_promise_new(NULL);
    inside_waits w = { .pending = weir_promise_future(pending),
                       .done = weir_promise_future(done),
                       .elsewhere = weir_promise_future(elsewhere) };
    weir_promise_fail(done, -EPIPE);
    run_on(executor, wait_inside, &w);
    assert_int_equal(w.pending_await, -EDEADLK);
    assert_int_equal(w.pending_wait, -EDEADLK);
    assert_int_equal(w.done_await, -EPIPE);
    assert_int_equal(w.done_wait, 0);
    assert_int_equal(w.elsewhere_wait, -ETIMEDOUT); /* of no concern to this executor */
    weir_promise_set(pending, 0);
    weir_promise_set(elsewhere, 0);
    weir_promise_release(pending);
    weir_promise_release(done);
    weir_promise_release(elsewhere);
    end_executor(executor);
}

/* Constants ---------------------------------------------------------------------------------- */

static const int constant_codes[] = { 0,        -1,           -EINVAL,        -ECANCELED,
                                      WEIR_EOF, WEIR_ECLOSED, WEIR_ESHUTDOWN, -EHWPOISON };
enum { CONSTANTS = sizeof constant_codes / sizeof *constant_codes };

static void constants_are_complete(void **state)
{
    (void)state;
    harness_fail_nth(NULL, 1, -ENOMEM); /* none of this allocates */
    for (int i = 0; i < CONSTANTS; i++) {
        ear e = { 0 };
        weir_future *future = weir_future_completed(constant_codes[i]);
        assert_ptr_equal(weir_future_completed(constant_codes[i]), future);
        assert_true(weir_future_is_done(future));
        assert_int_equal(weir_future_code(future), constant_codes[i]);
        assert_null(weir_future_value(future));
        assert_int_equal(weir_future_cancel(future), -EALREADY);
        assert_int_equal(weir_future_await(future), constant_codes[i]);
        assert_int_equal(weir_future_wait(future, 0), 0);
        assert_ptr_equal(weir_future_retain(future), future);
        for (int j = 0; j < 5; j++)
            weir_future_release(future);
        listen_with(&e, future);
        assert_int_equal(e.calls, 1);
        assert_int_equal(e.code, constant_codes[i]);
    }
    assert_int_equal(harness_fail_end(), 0);
}

static void constants_know_every_errno(void **state)
{
    (void)state;
    for (int code = 0; code >= -EHWPOISON; code--)
        assert_int_equal(weir_future_code(weir_future_completed(code)), code);
    assert_int_equal(weir_future_code(weir_future_completed(1)), -EINVAL);
}

static void listeners_of_constants_are_not_called_inside_each_other(void **state)
{
    (void)state;
    unsigned row = 0;
    adder a = { .own.row = &row, .added.row = &row };
    assert_int_equal(weir_future_on_done(weir_future_completed(0), add_another, &a), 0);
    assert_int_equal(a.own.place, 1);
    assert_int_equal(a.row_when_back, 1);
    assert_int_equal(a.added.place, 2);
}

static pthread_barrier_t barrier;

typedef struct constant_listener {
    unsigned calls, wrong;
} constant_listener;

static void *listen_to_constants(void *arg)
{
    constant_listener *self = arg;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 100 * CONSTANTS; i++) {
        ear e = { 0 };
        listen_with(&e, weir_future_completed(constant_codes[i % CONSTANTS]));
        self->calls += e.calls;
        self->wrong += e.code != constant_codes[i % CONSTANTS] ||
                       !pthread_equal(e.thread, pthread_self());
    }
    return NULL;
}

static void constants_serve_several_threads(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    pthread_t threads[COUNT];
    constant_listener listeners[COUNT] = { 0 };
    pthread_barrier_init(&barrier, NULL, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, listen_to_constants, &listeners[i]), 0);
    for (int i = 0; i < COUNT; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(listeners[i].calls, 100 * CONSTANTS);
        assert_int_equal(listeners[i].wrong, 0);
    }
    pthread_barrier_destroy(&barrier);
}

/* Forgotten ---------------------------------------------------------------------------------- */

static void dropped_without_a_result_it_is_cancelled(void **state)
{
    (void)state;
    ear e = { 0 };
    harness_log_begin(WEIR_LOG_ERROR);
    weir_promise *promise = weir_promise_new(NULL);
    listen_with(&e, weir_promise_future(promise));
    weir_promise_retain(promise);
    weir_promise_release(promise);
    assert_int_equal(e.calls, 0);
    weir_promise_set_uncancellable(promise);
    weir_promise_release(promise);
    assert_int_equal(e.calls, 1);
    assert_int_equal(e.code, -ECANCELED);
    assert_int_equal(harness_log_has("dropped"), HARNESS_MISUSE_ABORTS);
    assert_int_equal(harness_log_end(), HARNESS_MISUSE_ABORTS);
}

static void dropped_without_a_result_it_tells_on_its_executor(void **state)
{
    (void)state;
    ear e = { 0 };
    pthread_t inside;
    weir_executor *executor = start_executor();
    run_on(executor, tell_thread, &inside);
    harness_log_begin(WEIR_LOG_ERROR);
    weir_promise *promise = weir_promise_new(executor);
    listen_with(&e, weir_promise_future(promise));
    weir_promise_release(promise);
    flush(executor);
    assert_int_equal(harness_log_end(), HARNESS_MISUSE_ABORTS);
    assert_int_equal(e.calls, 1);
    assert_int_equal(e.code, -ECANCELED);
    assert_true(pthread_equal(e.thread, inside));
    end_executor(executor);
}

static void completed_it_is_dropped_silently(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_TRACE);
    for (int way = 0; way < WAYS; way++) {
        unsigned freed = 0;
        weir_promise *promise = weir_promise_new(NULL);
        complete_by(way, promise, &freed);
        weir_promise_release(promise);
    }
    assert_int_equal(harness_log_end(), 0);
}

/* Races -------------------------------------------------------------------------------------- */

enum { ROUNDS = 500 };

typedef struct racer {
    weir_promise **promises;
    int way;
    int results[ROUNDS];
    unsigned freed[ROUNDS];
} racer;

static void *race(void *arg)
{
    racer *r = arg;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        r->results[i] = complete_by(r->way, r->promises[i], &r->freed[i]);
        weir_promise_release(r->promises[i]);
    }
    return NULL;
}

static void one_of_several_completing_threads_wins(void **state)
{
    (void)state;
    const int codes[WAYS] = { 0, -EIO, 0, -ECANCELED };
    static weir_promise *promises[ROUNDS];
    racer *racers = calloc(WAYS, sizeof *racers);
    ear *ears = calloc(ROUNDS, sizeof *ears);
    pthread_t threads[WAYS];
    for (int i = 0; i < ROUNDS; i++) {
        promises[i] = weir_promise_new(NULL);
        listen_with(&ears[i], weir_promise_future(promises[i]));
        for (int j = 1; j < WAYS; j++)
            weir_promise_retain(promises[i]);
    }
    pthread_barrier_init(&barrier, NULL, WAYS);
    for (int way = 0; way < WAYS; way++) {
        racers[way].promises = promises;
        racers[way].way = way;
        assert_int_equal(pthread_create(&threads[way], NULL, race, &racers[way]), 0);
    }
    for (int way = 0; way < WAYS; way++)
        pthread_join(threads[way], NULL);
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        int winners = 0;
        for (int way = 0; way < WAYS; way++) {
            bool has_won = racers[way].results[i] == 0;
            winners += has_won;
            if (has_won)
                assert_int_equal(ears[i].code, codes[way]);
            else
                assert_int_equal(racers[way].results[i], -EALREADY);
            assert_int_equal(racers[way].freed[i], has_won && way == 0);
        }
        assert_int_equal(winners, 1);
        assert_int_equal(ears[i].calls, 1);
    }
    free(racers);
    free(ears);
}

typedef struct canceller {
    weir_promise **promises;
    int results[ROUNDS];
} canceller;

static void *cancel_all(void *arg)
{
    canceller *c = arg;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        c->results[i] = weir_future_cancel(weir_promise_future(c->promises[i]));
    }
    return NULL;
}

static void cancelled_or_uncancellable_but_not_both(void **state)
{
    (void)state;
    static weir_promise *promises[ROUNDS];
    static bool is_uncancellable[ROUNDS];
    canceller *c = calloc(1, sizeof *c);
    c->promises = promises;
    pthread_t thread;
    for (int i = 0; i < ROUNDS; i++)
        promises[i] = weir_promise_new(NULL);
    pthread_barrier_init(&barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, cancel_all, c), 0);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        is_uncancellable[i] = weir_promise_set_uncancellable(promises[i]);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(c->results[i], is_uncancellable[i] ? -EBUSY : 0);
        assert_int_equal(weir_promise_set(promises[i], 0), is_uncancellable[i] ? 0 : -EALREADY);
        weir_promise_release(promises[i]);
    }
    free(c);
}

/* Threads that add listeners while another one completes. */

enum { ADDERS = 3, EACH = 4 };

typedef struct shared_ear {
    weir_listener listener;
    _Atomic(unsigned) calls;
    _Atomic(unsigned) *told; /* of all, counted after the call is through with the rest */
    unsigned *last;          /* the number of this thread's listener that was called last */
    unsigned number;
    bool is_in_order;
} shared_ear;

static void hear_shared(weir_listener *listener, weir_future *future)
{
    (void)future;
    shared_ear *e = (shared_ear *)listener;
    e->is_in_order = *e->last + 1 == e->number;
    *e->last = e->number;
    atomic_fetch_add(&e->calls, 1);
    atomic_fetch_add(e->told, 1);
}

typedef struct adding_thread {
    weir_promise **promises;
    shared_ear ears[ROUNDS][EACH];
    unsigned last[ROUNDS];
} adding_thread;

static void *add_listeners(void *arg)
{
    adding_thread *self = arg;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        for (int j = 0; j < EACH; j++)
            weir_future_listen(weir_promise_future(self->promises[i]), &self->ears[i][j].listener);
    }
    return NULL;
}

static void race_listeners(weir_executor *executor)
{
    weir_promise *promises[ROUNDS];
    _Atomic(unsigned) told = 0;
    adding_thread *adders = calloc(ADDERS, sizeof *adders);
    pthread_t threads[ADDERS];
    for (int i = 0; i < ROUNDS; i++)
        promises[i] = weir_promise_new(executor);
    pthread_barrier_init(&barrier, NULL, ADDERS + 1);
    for (int t = 0; t < ADDERS; t++) {
        adders[t].promises = promises;
        for (int i = 0; i < ROUNDS; i++) {
            for (unsigned j = 0; j < EACH; j++)
                adders[t].ears[i][j] = (shared_ear){ .listener.done = hear_shared,
                                                     .told = &told,
                                                     .last = &adders[t].last[i],
                                                     .number = j + 1 };
        }
        assert_int_equal(pthread_create(&threads[t], NULL, add_listeners, &adders[t]), 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        weir_promise_set(promises[i], 0);
    }
    for (int t = 0; t < ADDERS; t++)
        pthread_join(threads[t], NULL);
    WAIT_FOR(atomic_load(&told) >= ADDERS * ROUNDS * EACH);
    if (executor != NULL)
        flush(executor);
    pthread_barrier_destroy(&barrier);
    for (int t = 0; t < ADDERS; t++) {
        for (int i = 0; i < ROUNDS; i++) {
            for (int j = 0; j < EACH; j++) {
                assert_int_equal(adders[t].ears[i][j].calls, 1);
                assert_true(adders[t].ears[i][j].is_in_order);
            }
        }
    }
    for (int i = 0; i < ROUNDS; i++)
        weir_promise_release(promises[i]);
    free(adders);
}

static void each_listener_of_several_threads_is_called_once(void **state)
{
    (void)state;
    race_listeners(NULL);
}

static void each_listener_of_several_threads_is_called_once_on_an_executor(void **state)
{
    (void)state;
    weir_executor *executor = start_executor();
    race_listeners(executor);
    end_executor(executor);
}

/* Memory ------------------------------------------------------------------------------------- */

static void without_memory_nothing_happens(void **state)
{
    (void)state;
    ear e = { 0 };
    harness_fail_nth(NULL, 1, -ENOMEM);
    assert_null(weir_promise_new(NULL));
    assert_int_equal(harness_fail_end(), 1);
    weir_promise *promise = weir_promise_new(NULL);
    harness_fail_nth(NULL, 1, -ENOMEM);
    assert_int_equal(weir_future_on_done(weir_promise_future(promise), hear, &e), -ENOMEM);
    assert_int_equal(harness_fail_end(), 1);
    weir_promise_set(promise, 0);
    assert_int_equal(e.calls, 0);
    harness_fail_nth(NULL, 1, -ENOMEM);
    assert_int_equal(weir_future_on_done(weir_promise_future(promise), hear, &e), -ENOMEM);
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(e.calls, 0);
    weir_promise_release(promise);
}

static void completing_needs_no_memory(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        unsigned freed = 0;
        ear e = { 0 };
        weir_executor *executor = start_executor();
        weir_promise *promise = weir_promise_new(executor);
        harness_fail_nth(NULL, 1, -ENOMEM);
        listen_with(&e, weir_promise_future(promise));
        assert_int_equal(complete_by(way, promise, &freed), 0);
        assert_int_equal(weir_future_wait(weir_promise_future(promise), 0), 0);
        assert_int_equal(harness_fail_end(), 0);
        weir_promise_release(promise);
        end_executor(executor);
        assert_int_equal(e.calls, 1);
        assert_int_equal(freed, way == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(is_born_pending),
        weir_case(succeeds_with_a_value),
        weir_case(fails_with_a_code),
        weir_case(cancelled_it_has_a_code_and_no_value),
        weir_case(uncancellable_it_waits_for_its_holder),
        weir_case(is_set_only_once),
        weir_case(what_is_no_result_is_refused),
        weir_case(null_is_refused),
        weir_case(value_is_destroyed_once_with_the_last_reference),
        weir_case(listeners_are_called_in_order),
        weir_case(listener_may_add_a_listener),
        weir_case(listener_is_its_owners_again_in_the_call),
        weir_case(listener_may_release_the_last_reference),
        weir_case(listeners_of_another_promise_are_not_called_inside),
        weir_case(unbound_it_tells_on_the_completing_thread),
        weir_case(bound_it_tells_on_the_executors_thread),
        weir_case(telling_starts_the_executor),
        weir_case(listener_on_the_executors_thread_is_called_when_the_task_returns),
        weir_case(terminated_executor_drops_listeners_and_calls_none),
        weir_case(executor_that_cannot_start_drops_listeners),
        weir_case(terminated_executor_still_completes_followers_and_joins),
        weir_case(long_chain_does_not_grow_the_stack),
        weir_case(long_chain_on_an_executor_does_not_grow_its_stack),
        weir_case(long_chain_of_forgotten_ones_does_not_grow_the_stack),
        weir_case(waiting_ends_in_time),
        weir_case(waiters_on_other_threads_wake_up),
        weir_case(executor_does_not_wait_for_itself),
        weir_case(constants_are_complete),
        weir_case(constants_know_every_errno),
        weir_case(listeners_of_constants_are_not_called_inside_each_other),
        weir_case(constants_serve_several_threads),
        weir_case(dropped_without_a_result_it_is_cancelled),
        weir_case(dropped_without_a_result_it_tells_on_its_executor),
        weir_case(completed_it_is_dropped_silently),
        weir_case(one_of_several_completing_threads_wins),
        weir_case(cancelled_or_uncancellable_but_not_both),
        weir_case(each_listener_of_several_threads_is_called_once),
        weir_case(each_listener_of_several_threads_is_called_once_on_an_executor),
        weir_case(without_memory_nothing_happens),
        weir_case(completing_needs_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
