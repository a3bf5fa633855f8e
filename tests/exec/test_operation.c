/* SPDX-License-Identifier: MIT */
/* Operations: each order of the end of the work, cancellations and the end of the executor. */
#include "exec/executors.h"

#include "exec/operation.h"

/* An executor that the case steps. Between two steps the case's thread is not the executor's. -----
 */

typedef struct stepped {
    weir_executor base;
    weir_promise *cancelled_at_close; /* by another thread; NULL: none */
    int destroys;
} stepped;

static void *cancel_promise(void *promise)
{
    weir_future_cancel(weir_promise_future(promise));
    return NULL;
}

static void cancel_on_another_thread(weir_promise *promise)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_promise, promise), 0);
    pthread_join(thread, NULL);
}

static bool stepped_turn(weir_executor *executor, int64_t max_wait_ns)
{
    (void)max_wait_ns;
    weir__executor_read_clock(executor);
    return weir__executor_run_batch(executor);
}

static int stepped_wake(weir_executor *executor)
{
    (void)executor;
    return 0;
}

static void stepped_close(weir_executor *executor)
{
    const stepped *self = (const stepped *)executor;
    if (self->cancelled_at_close != NULL)
        cancel_on_another_thread(self->cancelled_at_close);
}

static void stepped_destroy(weir_executor *executor)
{
    ((stepped *)executor)->destroys++;
}

static const weir_executor_type stepped_type = { .name = "stepped",
                                                 .turn = stepped_turn,
                                                 .wake = stepped_wake,
                                                 .close = stepped_close,
                                                 .destroy = stepped_destroy };

static void stepped_init(stepped *self)
{
    memset(self, 0, sizeof *self);
    weir__executor_init(&self->base, &stepped_type,
                        &(weir_executor_config){ .name = "stepped", .is_manual = true });
    assert_int_equal(weir__executor_start_manual(&self->base), 0);
}

static void step_until_idle(stepped *self)
{
    while (weir__executor_step(&self->base, 0) == 1)
        continue;
}

static bool has_terminated(const stepped *self)
{
    return weir_executor_get_state(&self->base) == WEIR_EXECUTOR_TERMINATED;
}

static void stepped_terminate(stepped *self)
{
    weir_executor_shutdown(&self->base, 0, 0);
    while (!has_terminated(self))
        weir__executor_step(&self->base, 0);
}

static void stepped_end(stepped *self)
{
    stepped_terminate(self);
    weir__executor_release(&self->base);
    assert_int_equal(self->destroys, 1);
}

/* Some work ------------------------------------------------------------------------------------ */

typedef enum place {
    AT_EXECUTOR,
    AT_HOME,
    ANYWHERE,
    PLACES,
} place;

/* Where the listeners of the promise run. */
typedef enum binding {
    NO_PROMISE,
    UNBOUND,
    BOUND_TO_THE_SAME,
    BOUND_TO_ANOTHER,
    BINDINGS,
} binding;

typedef struct work {
    weir_operation operation;
    weir_home home; /* a home that is on the executor */
    stepped *executor;
    int home_refs;
    bool ends_when_cancelled; /* at once; else by its own end, later */
    int cancels, cancels_elsewhere, cancels_too_late, destroys;
    int end_code, end_result;
} work;

static bool is_on_executor(const work *self)
{
    return weir_executor_is_current(&self->executor->base);
}

static work *work_at(weir_home *home)
{
    return WEIR_CONTAINER(home, work, home);
}

static bool home_is_here(weir_home *home)
{
    return is_on_executor(work_at(home));
}

/* A call on its way to the home. */
typedef struct carrier {
    weir_task task;
    weir_home *home;
    weir_call *call;
} carrier;

static void perform(weir_task *task)
{
    carrier *self = WEIR_CONTAINER(task, carrier, task);
    carrier copy = *self;
    free(self);
    copy.call->run(copy.home, copy.call);
}

static int run_carrier(weir_task *task)
{
    perform(task);
    return 0;
}

static void home_push(weir_home *home, weir_call *call)
{
    carrier *self = calloc(1, sizeof *self);
    assert_non_null(self);
    *self = (carrier){ .task = { .run = run_carrier, .dropped = perform, .name = "call" } };
    self->home = home;
    self->call = call;
    if (weir__executor_post_always(&work_at(home)->executor->base, &self->task) < 0)
        perform(&self->task);
}

static void home_retain(weir_home *home)
{
    work_at(home)->home_refs++;
}

static void home_release(weir_home *home)
{
    work_at(home)->home_refs--;
}

static const weir_home_type home_type = {
    .is_here = home_is_here, .push = home_push, .retain = home_retain, .release = home_release
};

static work *work_of(weir_operation *operation)
{
    return WEIR_CONTAINER(operation, work, operation);
}

/* The end of the work, if it has not ended. */
static void end_work(work *self, int code)
{
    if (weir__operation_has_ended(&self->operation))
        return;
    self->end_code = code;
    self->end_result = weir__operation_end(&self->operation, code);
}

static void count_cancel(weir_operation *operation)
{
    work *self = work_of(operation);
    self->cancels++;
    self->cancels_elsewhere += !is_on_executor(self);
    self->cancels_too_late += weir__operation_has_ended(operation);
    if (self->ends_when_cancelled)
        end_work(self, -ECANCELED);
}

static void count_destroy(weir_operation *operation)
{
    work_of(operation)->destroys++;
}

static const weir_operation_type work_type = { .cancelled = count_cancel,
                                               .destroy = count_destroy };

static void work_init(work *self, stepped *executor, place at, weir_promise *promise)
{
    *self = (work){ .executor = executor, .home.type = &home_type };
    if (at == AT_HOME)
        weir__operation_init_at(&self->operation, &work_type, promise, &self->home);
    else
        weir__operation_init(&self->operation, &work_type, promise,
                             at == AT_EXECUTOR ? &executor->base : NULL);
}

/* Every order ---------------------------------------------------------------------------------- */

typedef enum event {
    END,          /* on the executor, if it belongs to one */
    CANCEL_HERE,  /* on the executor */
    CANCEL_THERE, /* on a thread of no executor */
    SHUT_DOWN,    /* the executor terminates */
    EVENTS,
} event;

typedef struct scene {
    stepped executor, another;
    place at;
    binding bound;
    bool is_stepped; /* after each event; else after all of them */
    weir_promise *promise;
    work work;
    weir_task end, cancel;
    weir_hook on_shutdown;
} scene;

static int run_end(weir_task *task)
{
    end_work(&WEIR_CONTAINER(task, scene, end)->work, 0);
    return 0;
}

static int run_cancel(weir_task *task)
{
    weir_future_cancel(weir_promise_future(WEIR_CONTAINER(task, scene, cancel)->promise));
    return 0;
}

static void nothing_to_drop(weir_task *task)
{
    (void)task;
}

/* As a loop's residents do. */
static void end_on_shutdown(weir_hook *hook)
{
    end_work(&WEIR_CONTAINER(hook, scene, on_shutdown)->work, WEIR_ESHUTDOWN);
}

static int add_hook(weir_task *task)
{
    scene *self = WEIR_CONTAINER(task, scene, end);
    return weir_executor_add_shutdown_hook(&self->executor.base, &self->on_shutdown);
}

static weir_promise *new_promise(scene *self)
{
    weir_executor *executors[BINDINGS] = { NULL, NULL, &self->executor.base, &self->another.base };
    weir_promise *promise = weir_promise_new(executors[self->bound]);
    assert_non_null(promise);
    return promise;
}

static void open_scene(scene *self, place at, binding bound, bool is_stepped)
{
    *self = (scene){ .at = at, .bound = bound, .is_stepped = is_stepped };
    stepped_init(&self->executor);
    stepped_init(&self->another);
    self->promise = bound != NO_PROMISE ? new_promise(self) : NULL;
    self->on_shutdown.run = end_on_shutdown;
    self->end = (weir_task){ .run = add_hook };
    assert_int_equal(weir_executor_post(&self->executor.base, &self->end), 0);
    step_until_idle(&self->executor);
    self->end = (weir_task){ .run = run_end, .dropped = nothing_to_drop, .name = "end" };
    self->cancel = (weir_task){ .run = run_cancel, .dropped = nothing_to_drop, .name = "cancel" };
}

/* Each may have something for the other. */
static void step_both(scene *self)
{
    bool has_done;
    do {
        has_done = weir__executor_step(&self->executor.base, 0) == 1;
        has_done |= weir__executor_step(&self->another.base, 0) == 1;
    } while (has_done);
}

static void let_happen(scene *self, event what)
{
    switch (what) {
    case END:
        if (self->at == ANYWHERE)
            run_end(&self->end);
        else
            weir_executor_post(&self->executor.base, &self->end);
        break;
    case CANCEL_HERE:
        if (self->promise != NULL)
            weir_executor_post(&self->executor.base, &self->cancel);
        break;
    case CANCEL_THERE:
        if (self->promise != NULL)
            cancel_on_another_thread(self->promise);
        break;
    default:
        weir_executor_shutdown(&self->executor.base, 0, 0);
        if (self->is_stepped)
            stepped_terminate(&self->executor);
    }
    if (self->is_stepped)
        step_both(self);
}

static void assert_ended_once(const scene *self)
{
    const work *seen = &self->work;
    assert_int_equal(seen->destroys, 1);
    assert_int_equal(seen->home_refs, 0);
    assert_true(seen->cancels <= 1);
    assert_int_equal(seen->cancels_too_late, 0);
    if (self->at != ANYWHERE)
        assert_int_equal(seen->cancels_elsewhere, 0);
    if (self->promise == NULL)
        return;
    int code = weir_future_code(weir_promise_future(self->promise));
    assert_int_equal(code, seen->end_result == 0 ? seen->end_code : -ECANCELED);
    assert_true(seen->end_result == 0 || seen->end_result == -EALREADY);
}

/* Stepped after each event, the first event with an effect decides, and the owner is notified. */
static void assert_first_counts(const scene *self, const event order[EVENTS])
{
    event first = order[0];
    const int codes[EVENTS] = { 0, -ECANCELED, -ECANCELED, WEIR_ESHUTDOWN };
    if (self->promise == NULL)
        return;
    assert_int_equal(weir_future_code(weir_promise_future(self->promise)), codes[first]);
    assert_int_equal(self->work.cancels, first == CANCEL_HERE || first == CANCEL_THERE);
}

static void close_scene(scene *self)
{
    step_both(self);
    stepped_terminate(&self->executor);
    step_both(self);
}

static void free_scene(scene *self)
{
    weir_promise_release(self->promise);
    stepped_end(&self->executor);
    stepped_end(&self->another);
}

static void run_order(const event order[EVENTS], place at, binding bound, bool is_stepped,
                      bool ends_when_cancelled)
{
    scene s;
    open_scene(&s, at, bound, is_stepped);
    harness_fail_nth("alloc", 1, -ENOMEM);
    work_init(&s.work, &s.executor, at, s.promise);
    s.work.ends_when_cancelled = ends_when_cancelled;
    weir__operation_watch(&s.work.operation);
    for (int i = 0; i < EVENTS; i++)
        let_happen(&s, order[i]);
    close_scene(&s);
    assert_int_equal(harness_fail_end(), 0); /* it needs no memory */
    assert_ended_once(&s);
    if (is_stepped)
        assert_first_counts(&s, order);
    free_scene(&s);
}

static void run_order_everywhere(const event order[EVENTS])
{
    for (place at = 0; at < PLACES; at++)
        for (binding bound = 0; bound < BINDINGS; bound++)
            for (int how = 0; how < 4; how++)
                run_order(order, at, bound, how & 1, how & 2);
}

static void permute(event order[EVENTS], int from)
{
    if (from == EVENTS)
        run_order_everywhere(order);
    for (int i = from; i < EVENTS; i++) {
        event chosen = order[i];
        order[i] = order[from];
        order[from] = chosen;
        permute(order, from + 1);
        order[from] = order[i];
        order[i] = chosen;
    }
}

static void every_order_ends_once_and_needs_no_memory(void **state)
{
    (void)state;
    event order[EVENTS] = { END, CANCEL_HERE, CANCEL_THERE, SHUT_DOWN };
    permute(order, 0);
}

/* Corners -------------------------------------------------------------------------------------- */

static void a_promise_cancelled_before_the_watch_cancels(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, AT_EXECUTOR, UNBOUND, true);
    work_init(&s.work, &s.executor, AT_EXECUTOR, s.promise);
    s.work.ends_when_cancelled = true;
    weir_future_cancel(weir_promise_future(s.promise));
    assert_int_equal(s.work.cancels, 0);
    weir__operation_watch(&s.work.operation);
    close_scene(&s);
    assert_int_equal(s.work.cancels, 1);
    assert_ended_once(&s);
    free_scene(&s);
}

static void an_end_before_the_watch_keeps_the_memory_until_it(void **state)
{
    (void)state;
    scene s;
    open_scene(&s, AT_EXECUTOR, UNBOUND, true);
    work_init(&s.work, &s.executor, AT_EXECUTOR, s.promise);
    end_work(&s.work, 0);
    assert_int_equal(s.work.destroys, 0);
    weir__operation_watch(&s.work.operation);
    assert_int_equal(s.work.destroys, 1);
    close_scene(&s);
    assert_ended_once(&s);
    free_scene(&s);
}

/* Its task is in the queue when the executor terminates. */
static void a_dropped_cancellation_only_releases(void **state)
{
    (void)state;
    stepped executor;
    work w;
    stepped_init(&executor);
    weir_promise *promise = weir_promise_new(NULL);
    work_init(&w, &executor, AT_EXECUTOR, promise);
    weir__operation_watch(&w.operation);
    executor.cancelled_at_close = promise;
    harness_log_begin(WEIR_LOG_WARN);
    stepped_terminate(&executor);
    assert_true(harness_log_has("terminated with 1 tasks left"));
    harness_log_end();
    assert_int_equal(w.cancels, 0);
    assert_int_equal(w.destroys, 0);
    end_work(&w, WEIR_ESHUTDOWN);
    assert_int_equal(w.end_result, -EALREADY);
    assert_int_equal(w.destroys, 1);
    weir_promise_release(promise);
    stepped_end(&executor);
}

/* Its owner ends the work too late. */
static void a_cancellation_after_the_executor_only_releases(void **state)
{
    (void)state;
    for (place at = AT_EXECUTOR; at < ANYWHERE; at++) {
        stepped executor;
        work w;
        stepped_init(&executor);
        weir_promise *promise = weir_promise_new(NULL);
        work_init(&w, &executor, at, promise);
        weir__operation_watch(&w.operation);
        stepped_terminate(&executor);
        cancel_on_another_thread(promise);
        assert_int_equal(w.cancels, 0);
        assert_int_equal(w.destroys, 0);
        end_work(&w, WEIR_ESHUTDOWN);
        assert_int_equal(w.destroys, 1);
        assert_int_equal(w.home_refs, 0);
        weir_promise_release(promise);
        stepped_end(&executor);
    }
}

static void memory_stays_for_each_reference(void **state)
{
    (void)state;
    stepped executor;
    work w;
    stepped_init(&executor);
    work_init(&w, &executor, AT_EXECUTOR, NULL);
    weir__operation_retain(&w.operation);
    end_work(&w, 0);
    assert_int_equal(w.destroys, 0);
    stepped_terminate(&executor);
    weir__executor_release(&executor.base);
    assert_int_equal(executor.destroys, 0); /* the operation's reference */
    weir__operation_release(&w.operation);
    assert_int_equal(w.destroys, 1);
    assert_int_equal(executor.destroys, 1);
}

/* Results -------------------------------------------------------------------------------------- */

static void count_free(void *value)
{
    ++*(int *)value;
}

static void a_value_goes_to_the_promise_or_stays_with_the_caller(void **state)
{
    (void)state;
    for (int is_cancelled = 0; is_cancelled < 2; is_cancelled++) {
        stepped executor;
        work w;
        int freed = 0;
        stepped_init(&executor);
        weir_promise *promise = weir_promise_new(NULL);
        work_init(&w, &executor, ANYWHERE, promise);
        if (is_cancelled)
            weir_future_cancel(weir_promise_future(promise));
        int result = weir__operation_succeed(&w.operation, &freed, count_free);
        weir__operation_watch(&w.operation);
        assert_int_equal(result, is_cancelled ? -EALREADY : 0);
        assert_int_equal(w.destroys, 1);
        assert_int_equal(freed, 0);
        weir_promise_release(promise);
        assert_int_equal(freed, !is_cancelled);
        stepped_end(&executor);
    }
}

static void a_value_without_a_promise_is_freed_at_once(void **state)
{
    (void)state;
    work w;
    stepped executor;
    int freed = 0;
    stepped_init(&executor);
    work_init(&w, &executor, ANYWHERE, NULL);
    assert_int_equal(weir__operation_succeed(&w.operation, &freed, count_free), 0);
    assert_int_equal(freed, 1);
    assert_int_equal(w.destroys, 1);
    stepped_end(&executor);
}

static void an_error_keeps_its_words_unless_memory_is_missing(void **state)
{
    (void)state;
    for (int is_poor = 0; is_poor < 2; is_poor++) {
        stepped executor;
        work w;
        weir_error error;
        stepped_init(&executor);
        weir_promise *promise = weir_promise_new(NULL);
        weir_future *future = weir_promise_future(promise);
        work_init(&w, &executor, ANYWHERE, promise);
        weir__operation_watch(&w.operation);
        weir_error_set(&error, -EPIPE, "test", "the pipe broke");
        if (is_poor)
            harness_fail_nth("alloc", 1, -ENOMEM);
        assert_int_equal(weir__operation_fail(&w.operation, &error), 0);
        if (is_poor)
            harness_fail_end();
        assert_int_equal(weir_future_code(future), -EPIPE);
        assert_int_equal(weir_future_error(future) != NULL, !is_poor);
        assert_int_equal(w.destroys, 1);
        weir_promise_release(promise);
        stepped_end(&executor);
    }
}

static void end_twice(void *arg)
{
    (void)arg;
    stepped executor;
    work w;
    stepped_init(&executor);
    work_init(&w, &executor, ANYWHERE, NULL);
    weir__operation_end(&w.operation, 0);
    weir__operation_end(&w.operation, 0);
}

static void ending_twice_aborts(void **state)
{
    (void)state;
    if (HARNESS_MISUSE_ABORTS)
        harness_expect_abort(end_twice, NULL, "has_ended");
}

/* Awaited futures ------------------------------------------------------------------------------ */

typedef struct asker {
    work work;
    weir_awaited awaited;
    int calls, calls_elsewhere, code;
} asker;

static void note_answer(weir_awaited *awaited, weir_future *future)
{
    asker *self = WEIR_CONTAINER(awaited, asker, awaited);
    self->calls++;
    self->calls_elsewhere += !is_on_executor(&self->work);
    self->code = weir_future_code(future);
    assert_ptr_equal(awaited->operation, &self->work.operation);
    assert_int_equal(self->work.destroys, 0);
}

static weir_promise *ask(asker *self, stepped *executor)
{
    *self = (asker){ .calls = 0 };
    work_init(&self->work, executor, AT_EXECUTOR, NULL);
    weir_promise *question = weir_promise_new(&executor->base);
    assert_non_null(question);
    weir__operation_await(&self->work.operation, &self->awaited, weir_promise_future(question),
                          note_answer);
    return question;
}

static void an_answer_is_received_on_the_executor_even_after_the_end(void **state)
{
    (void)state;
    for (int is_over = 0; is_over < 2; is_over++) {
        stepped executor;
        asker a;
        stepped_init(&executor);
        weir_promise *question = ask(&a, &executor);
        if (is_over)
            end_work(&a.work, 0);
        weir_promise_fail(question, -EPIPE);
        weir_promise_release(question);
        assert_int_equal(a.calls, 0);
        step_until_idle(&executor);
        assert_int_equal(a.calls, 1);
        assert_int_equal(a.calls_elsewhere, 0);
        assert_int_equal(a.code, -EPIPE);
        end_work(&a.work, 0);
        assert_int_equal(a.work.destroys, 1);
        stepped_end(&executor);
    }
}

static void an_answer_after_the_executor_only_releases(void **state)
{
    (void)state;
    stepped executor;
    asker a;
    stepped_init(&executor);
    weir_promise *question = ask(&a, &executor);
    end_work(&a.work, WEIR_ESHUTDOWN);
    stepped_terminate(&executor);
    weir_promise_set(question, 0);
    weir_promise_release(question);
    assert_int_equal(a.calls, 0);
    assert_int_equal(a.work.destroys, 1);
    stepped_end(&executor);
}

/* Threads -------------------------------------------------------------------------------------- */

/* Work on an executor with a thread, which one more thread cancels at the same time. */
typedef struct race {
    weir_operation operation;
    weir_task end;
    weir_executor *executor;
    atomic_int cancels, cancels_elsewhere, destroys;
} race;

static int race_end(weir_task *task)
{
    race *self = WEIR_CONTAINER(task, race, end);
    weir__operation_end(&self->operation, 0);
    return 0;
}

static void race_cancelled(weir_operation *operation)
{
    race *self = WEIR_CONTAINER(operation, race, operation);
    atomic_fetch_add(&self->cancels, 1);
    if (!weir_executor_is_current(self->executor))
        atomic_fetch_add(&self->cancels_elsewhere, 1);
}

static void race_destroy(weir_operation *operation)
{
    atomic_fetch_add(&WEIR_CONTAINER(operation, race, operation)->destroys, 1);
}

static const weir_operation_type race_type = { .cancelled = race_cancelled,
                                               .destroy = race_destroy };

static void an_end_and_a_cancellation_may_meet(void **state)
{
    (void)state;
    enum { ROUNDS = 200 };
    for (int i = 0; i < ROUNDS; i++) {
        weir_group *group = new_group_of(1);
        weir_executor *executor = weir_group_at(group, 0);
        weir_promise *promise = weir_promise_new(i % 2 == 0 ? NULL : executor);
        race r = { .end = { .run = race_end, .name = "end" }, .executor = executor };
        pthread_t thread;
        weir__operation_init(&r.operation, &race_type, promise, executor);
        weir__operation_watch(&r.operation);
        assert_int_equal(pthread_create(&thread, NULL, cancel_promise, promise), 0);
        assert_int_equal(weir_executor_post(executor, &r.end), 0);
        pthread_join(thread, NULL);
        WAIT_FOR(atomic_load(&r.destroys) == 1);
        assert_true(atomic_load(&r.cancels) <= 1);
        assert_int_equal(atomic_load(&r.cancels_elsewhere), 0);
        int code = weir_future_code(weir_promise_future(promise));
        assert_true(code == 0 || code == -ECANCELED);
        weir_promise_release(promise);
        end_group(group);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_order_ends_once_and_needs_no_memory),
        weir_case(a_promise_cancelled_before_the_watch_cancels),
        weir_case(an_end_before_the_watch_keeps_the_memory_until_it),
        weir_case(a_dropped_cancellation_only_releases),
        weir_case(a_cancellation_after_the_executor_only_releases),
        weir_case(memory_stays_for_each_reference),
        weir_case(a_value_goes_to_the_promise_or_stays_with_the_caller),
        weir_case(a_value_without_a_promise_is_freed_at_once),
        weir_case(an_error_keeps_its_words_unless_memory_is_missing),
        weir_case(ending_twice_aborts),
        weir_case(an_answer_is_received_on_the_executor_even_after_the_end),
        weir_case(an_answer_after_the_executor_only_releases),
        weir_case(an_end_and_a_cancellation_may_meet),
    };
    return cmocka_run_group_tests_name("exec.operation", tests, NULL, NULL);
}
