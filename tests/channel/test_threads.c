/* SPDX-License-Identifier: MIT */
/* Channels and more than one thread: what others ask of them arrives, in order, and once. */
#include "harness.h"

#include "channel/channel.h"

#include <weir/embedded.h>

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_THREADS 8

/* Messages that know who made them ------------------------------------------------------------- */

typedef struct number {
    weir_msg msg;
    int from, seq;
    size_t size;
} number;

static size_t number_size(const weir_msg *msg)
{
    return ((const number *)msg)->size;
}

static void number_destroy(weir_msg *msg)
{
    free(msg);
}

static const weir_msg_type number_type = {
    .name = "number",
    .size = number_size,
    .destroy = number_destroy,
};

static weir_msg *number_new(int from, int seq, size_t size)
{
    number *self = malloc(sizeof *self);
    assert_non_null(self);
    weir_msg_init(&self->msg, &number_type);
    self->from = from;
    self->seq = seq;
    self->size = size;
    return &self->msg;
}

/* Groups and threads --------------------------------------------------------------------------- */

static weir_group *new_loops(int loops)
{
    weir_group *group;
    weir_group_config config = { .loops = loops, .name = "t", .watchdog_ns = WEIR_OFF };
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    return group;
}

static void end_group(weir_group *group)
{
    weir_group_shutdown(group, 0, WEIR_SECONDS(10));
    weir_group_free(group);
}

static weir_embedded *new_embedded(weir_group *group, weir_init_fn init, void *arg)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .group = group, .init = init, .arg = arg };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

typedef void (*body_fn)(int index, void *arg);

typedef struct crew {
    pthread_barrier_t start; /* all begin at once */
    int count;
    body_fn body;
    void *arg;
    struct member {
        pthread_t thread;
        struct crew *crew;
        int index;
    } members[MOST_THREADS];
} crew;

static void *run_member(void *arg)
{
    struct member *member = arg;
    pthread_barrier_wait(&member->crew->start);
    member->crew->body(member->index, member->crew->arg);
    return NULL;
}

static void crew_start(crew *self, int count, body_fn body, void *arg)
{
    *self = (crew){ .count = count, .body = body, .arg = arg };
    pthread_barrier_init(&self->start, NULL, (unsigned)count);
    for (int i = 0; i < count; i++) {
        self->members[i].crew = self;
        self->members[i].index = i;
        assert_int_equal(
            pthread_create(&self->members[i].thread, NULL, run_member, &self->members[i]), 0);
    }
}

static void crew_join(crew *self)
{
    for (int i = 0; i < self->count; i++)
        pthread_join(self->members[i].thread, NULL);
    pthread_barrier_destroy(&self->start);
}

static void run_crew(int count, body_fn body, void *arg)
{
    crew self;
    crew_start(&self, count, body, arg);
    crew_join(&self);
}

static int await(weir_promise *promise)
{
    int code = weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

typedef void (*op_fn)(weir_channel *channel, weir_promise *promise);

/* Does something to a channel from outside, and waits for it. */
static int do_op(weir_channel *channel, op_fn op)
{
    weir_promise *promise = weir_channel_promise(channel);
    op(channel, promise);
    return await(promise);
}

static int move_to(weir_channel *channel, weir_executor *loop)
{
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_move(channel, loop, promise);
    return await(promise);
}

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

/* Returns when a loop has done all that it was asked for until now. */
static void settle(weir_group *group)
{
    for (int rounds = 0; rounds < 4; rounds++) { /* removed contexts wait for ends of turns */
        for (size_t i = 0; i < weir_group_count(group); i++) {
            weir_future *future;
            assert_int_equal(weir_executor_submit(weir_group_at(group, i), nothing, NULL, &future),
                             0);
            assert_int_equal(weir_future_await(future), 0);
            weir_future_release(future);
        }
    }
}

/* A loop that is held up until somebody lets it go. */
typedef struct stop {
    sem_t is_there, may_go;
} stop;

static int hold(void *arg)
{
    stop *self = arg;
    sem_post(&self->is_there);
    sem_wait(&self->may_go);
    return 0;
}

static void stop_loop(stop *self, weir_executor *loop)
{
    sem_init(&self->is_there, 0, 0);
    sem_init(&self->may_go, 0, 0);
    assert_int_equal(weir_executor_execute(loop, hold, self), 0);
    sem_wait(&self->is_there);
}

static void let_go(stop *self)
{
    sem_post(&self->may_go);
}

/* Row 62: writes from several threads ---------------------------------------------------------- */

typedef struct writing writing;

typedef struct told {
    weir_listener listener;
    writing *writing;
    int from, seq;
    int code, times;
} told;

struct writing {
    weir_channel *channel;
    int threads, count; /* writes of each thread */
    told *tolds;
    sem_t done;

    /* The channel's loop's. */
    int next[MOST_THREADS];
    int disorder;
};

static void write_done(weir_listener *listener, weir_future *future)
{
    told *self = WEIR_CONTAINER(listener, told, listener);
    writing *all = self->writing;
    self->code = weir_future_code(future);
    /* What fails because the channel is over is told on the writer's own thread. */
    if (self->code == 0 && all->next[self->from]++ != self->seq)
        all->disorder++;
    self->times++;
    sem_post(&all->done);
}

static void writer(int index, void *arg)
{
    writing *all = arg;
    for (int seq = 0; seq < all->count; seq++) {
        told *self = &all->tolds[index * all->count + seq];
        weir_promise *promise = weir_channel_promise(all->channel);
        *self = (told){ .listener.done = write_done, .writing = all, .from = index, .seq = seq };
        weir_future_listen(weir_promise_future(promise), &self->listener);
        if (seq % 3 == 0)
            weir_channel_write_and_flush(all->channel, number_new(index, seq, 0), promise);
        else
            weir_channel_write(all->channel, number_new(index, seq, 0), promise);
        weir_promise_release(promise);
    }
    weir_channel_flush(all->channel);
}

static void writing_init(writing *self, weir_channel *channel, int threads, int count)
{
    *self = (writing){ .channel = channel, .threads = threads, .count = count };
    sem_init(&self->done, 0, 0);
    self->tolds = calloc((size_t)(threads * count), sizeof *self->tolds);
    assert_non_null(self->tolds);
}

static void writing_wait(writing *self)
{
    for (int i = 0; i < self->threads * self->count; i++)
        sem_wait(&self->done);
}

/* Takes out what was sent: each writer's numbers without a gap. How many of each there are. */
static void check_arrived(weir_embedded *embedded, int *arrived)
{
    weir_msg *msg;
    memset(arrived, 0, MOST_THREADS * sizeof *arrived);
    while ((msg = weir_embedded_read_outbound(embedded)) != NULL) {
        const number *self = (const number *)msg;
        assert_int_equal(self->seq, arrived[self->from]);
        arrived[self->from]++;
        weir_msg_release(msg);
    }
}

/* Everything arrived, and everybody was told so, once and in order. */
static void check_all_written(writing *self, weir_embedded *embedded)
{
    int arrived[MOST_THREADS];
    assert_int_equal(weir_embedded_run(embedded), 0);
    check_arrived(embedded, arrived);
    for (int i = 0; i < self->threads; i++)
        assert_int_equal(arrived[i], self->count);
    for (int i = 0; i < self->threads * self->count; i++) {
        assert_int_equal(self->tolds[i].code, 0);
        assert_int_equal(self->tolds[i].times, 1);
    }
    assert_int_equal(self->disorder, 0);
}

static void writing_end(writing *self)
{
    free(self->tolds);
    sem_destroy(&self->done);
}

static void write_with(int threads, int count)
{
    weir_group *group = new_loops(1);
    weir_embedded *embedded = new_embedded(group, NULL, NULL);
    writing all;
    writing_init(&all, weir_embedded_channel(embedded), threads, count);
    run_crew(threads, writer, &all);
    writing_wait(&all);
    check_all_written(&all, embedded);
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
    end_group(group);
    writing_end(&all);
}

static void s062_what_two_threads_write_arrives_in_the_order_of_each(void **state)
{
    (void)state;
    write_with(2, 2000);
}

static void s062_what_four_threads_write_arrives_in_the_order_of_each(void **state)
{
    (void)state;
    write_with(4, 1000);
}

typedef struct moving {
    weir_channel *channel;
    weir_group *group;
    _Atomic(bool) is_enough;
    int moves, failures;
} moving;

static void mover(int index, void *arg)
{
    moving *self = arg;
    (void)index;
    while (!self->is_enough || self->moves < 20) {
        weir_executor *loop = weir_group_at(self->group, (size_t)(++self->moves % 2));
        self->failures += move_to(self->channel, loop) < 0;
    }
}

static void s062_the_order_of_writes_holds_while_the_channel_moves(void **state)
{
    (void)state;
    weir_group *group = new_loops(2);
    weir_embedded *embedded = new_embedded(group, NULL, NULL);
    moving move = { .channel = weir_embedded_channel(embedded), .group = group };
    writing all;
    crew movers;
    writing_init(&all, move.channel, 4, 500);
    crew_start(&movers, 1, mover, &move);
    run_crew(4, writer, &all);
    writing_wait(&all);
    move.is_enough = true;
    crew_join(&movers);
    assert_int_equal(move.failures, 0);
    check_all_written(&all, embedded);
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
    end_group(group);
    writing_end(&all);
}

/* Every promise is complete; those that succeeded come first, and their messages are there. */
static void check_written_until_closed(writing *self, weir_embedded *embedded)
{
    int arrived[MOST_THREADS];
    check_arrived(embedded, arrived);
    for (int i = 0; i < self->threads * self->count; i++) {
        const told *one = &self->tolds[i];
        assert_int_equal(one->times, 1);
        assert_int_equal(one->code, one->seq < arrived[one->from] ? 0 : WEIR_ECLOSED);
    }
}

static void s062_a_close_amid_the_writes_ends_every_promise_once(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    for (int round = 0; round < 20; round++) {
        weir_embedded *embedded = new_embedded(group, NULL, NULL);
        weir_channel *channel = weir_embedded_channel(embedded);
        writing all;
        crew writers;
        writing_init(&all, channel, 4, 100);
        crew_start(&writers, 4, writer, &all);
        for (int i = 0; i < round * 5; i++) /* a little later every time */
            sem_wait(&all.done);
        assert_int_equal(do_op(channel, weir_channel_close), 0);
        for (int i = round * 5; i < 400; i++)
            sem_wait(&all.done);
        crew_join(&writers);
        check_written_until_closed(&all, embedded);
        assert_int_equal(all.disorder, 0);
        weir_embedded_free(embedded);
        writing_end(&all);
    }
    end_group(group);
}

typedef struct refusal {
    weir_listener listener;
    char *log;
    int number;
} refusal;

typedef struct closing {
    weir_channel *channel;
    weir_promise *promises[2];
    refusal writes[2];
    char log[64];
} closing;

static void note_refusal(weir_listener *listener, weir_future *future)
{
    const refusal *self = WEIR_CONTAINER(listener, refusal, listener);
    size_t length = strlen(self->log);
    snprintf(self->log + length, 64 - length, "%d %s, ", self->number,
             weir_error_name(weir_future_code(future)));
}

static int write_close_write(void *arg)
{
    closing *self = arg;
    weir_channel_write(self->channel, number_new(0, 0, 0), self->promises[0]);
    weir_channel_close(self->channel, NULL);
    weir_channel_write(self->channel, number_new(0, 1, 0), self->promises[1]);
    return 0;
}

static void write_promises_fail_in_the_order_of_the_writes_also_during_a_close(void **state)
{
    (void)state;
    weir_embedded *embedded = new_embedded(NULL, NULL, NULL);
    weir_channel *channel = weir_embedded_channel(embedded);
    closing all = { .channel = channel };
    for (int i = 0; i < 2; i++) {
        all.writes[i] = (refusal){ .listener.done = note_refusal, .log = all.log, .number = i };
        all.promises[i] = weir_channel_promise(channel);
        weir_future_listen(weir_promise_future(all.promises[i]), &all.writes[i].listener);
    }
    int result = weir_embedded_call(embedded, write_close_write, &all);
    for (int i = 0; i < 2; i++)
        weir_promise_release(all.promises[i]);
    weir_embedded_free(embedded);
    assert_int_equal(result, 0);
    assert_string_equal(all.log, "0 WEIR_ECLOSED, 1 WEIR_ECLOSED, ");
}

/* Row 9: one thread at a time ------------------------------------------------------------------ */

/* Plain numbers: the thread sanitizer sees it when two threads count. */
typedef struct tally {
    int all, reads, events, errors, writes, flushes, active, inactive, added, removed;
    pthread_t thread;
    bool is_elsewhere;
} tally;

static tally *count(weir_ctx *ctx)
{
    tally *self = weir_ctx_arg(ctx);
    if (self->all++ == 0)
        self->thread = pthread_self();
    self->is_elsewhere |= !pthread_equal(self->thread, pthread_self());
    return self;
}

static void tally_added(weir_ctx *ctx)
{
    count(ctx)->added++;
}

static void tally_removed(weir_ctx *ctx)
{
    count(ctx)->removed++;
}

static void tally_on_active(weir_ctx *ctx)
{
    count(ctx)->active++;
    weir_ctx_fire_active(ctx);
}

static void tally_on_inactive(weir_ctx *ctx)
{
    count(ctx)->inactive++;
    weir_ctx_fire_inactive(ctx);
}

static void tally_on_read(weir_ctx *ctx, weir_msg *msg)
{
    count(ctx)->reads++;
    weir_msg_release(msg);
}

static void tally_on_event(weir_ctx *ctx, weir_msg *event)
{
    count(ctx)->events++;
    weir_ctx_fire_event(ctx, event);
}

static void tally_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    count(ctx)->errors++;
}

static void tally_on_writability(weir_ctx *ctx)
{
    count(ctx);
    weir_ctx_fire_writability(ctx);
}

static void tally_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    count(ctx)->writes++;
    weir_ctx_write(ctx, msg, promise);
}

static void tally_flush(weir_ctx *ctx)
{
    count(ctx)->flushes++;
    weir_ctx_flush(ctx);
}

static void tally_read(weir_ctx *ctx)
{
    count(ctx);
    weir_ctx_read(ctx);
}

static const weir_handler_type tally_type = {
    .name = "tally",
    .added = tally_added,
    .removed = tally_removed,
    .on_active = tally_on_active,
    .on_inactive = tally_on_inactive,
    .on_read = tally_on_read,
    .on_event = tally_on_event,
    .on_error = tally_on_error,
    .on_writability = tally_on_writability,
    .write = tally_write,
    .flush = tally_flush,
    .read = tally_read,
};

static int add_tally(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "tally", &tally_type, arg);
}

#define CALLS 300

static void caller(int index, void *arg)
{
    weir_channel *channel = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_hold hold = { .needs_reads = false };
    for (int i = 0; i < CALLS; i++) {
        weir_pipeline_fire_read(pipeline, number_new(index, i, 0));
        weir_pipeline_fire_event(pipeline, number_new(index, i, 0));
        weir_pipeline_fire_error(pipeline, -EIO, "%d", i);
        weir_channel_write_and_flush(channel, number_new(index, i, 0), NULL);
        weir_channel_read(channel);
        weir_channel_set_write_hold(channel, &hold, i % 2 == 1);
        weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, i % 2, NULL);
    }
    weir_channel_set_write_hold(channel, &hold, false);
}

static void s009_all_events_of_a_channel_run_on_one_thread_one_after_another(void **state)
{
    (void)state;
    enum { CHANNELS = 2, THREADS = 4 };
    weir_group *group = new_loops(2);
    weir_embedded *embedded[CHANNELS];
    tally tallies[CHANNELS] = { { 0 } };
    crew crews[CHANNELS];
    for (int i = 0; i < CHANNELS; i++)
        embedded[i] = new_embedded(group, add_tally, &tallies[i]);
    for (int i = 0; i < CHANNELS; i++)
        crew_start(&crews[i], THREADS, caller, weir_embedded_channel(embedded[i]));
    for (int i = 0; i < CHANNELS; i++) {
        crew_join(&crews[i]);
        assert_int_equal(weir_embedded_close(embedded[i]), 0);
        assert_int_equal(weir_embedded_outbound_count(embedded[i]), THREADS * CALLS);
        weir_embedded_free(embedded[i]);
    }
    end_group(group);
    for (int i = 0; i < CHANNELS; i++) {
        const tally *self = &tallies[i];
        assert_int_equal(self->reads, THREADS * CALLS);
        assert_int_equal(self->events, THREADS * CALLS);
        assert_int_equal(self->errors, THREADS * CALLS);
        assert_int_equal(self->writes, THREADS * CALLS);
        assert_int_equal(self->flushes, THREADS * CALLS);
        assert_int_equal(self->active, 1);
        assert_int_equal(self->inactive, 1);
        assert_int_equal(self->added, 1);
        assert_int_equal(self->removed, 1);
        assert_false(self->is_elsewhere);
    }
}

/* Row 153: changes of the pipeline ------------------------------------------------------------- */

typedef struct changes {
    weir_pipeline *pipeline;
    pthread_t loop;
    int added, removed, seen, strays; /* the loop's */
    _Atomic(int) accepted;
    int failures[MOST_THREADS];
} changes;

typedef struct guest {
    bool is_in;
} guest;

static changes *stray(weir_ctx *ctx, bool is_stray)
{
    changes *self = weir_ctx_arg(ctx);
    self->strays += is_stray || !pthread_equal(self->loop, pthread_self());
    return self;
}

static void guest_added(weir_ctx *ctx)
{
    guest *self = weir_ctx_state(ctx);
    stray(ctx, self->is_in)->added++;
    self->is_in = true;
}

static void guest_removed(weir_ctx *ctx)
{
    guest *self = weir_ctx_state(ctx);
    stray(ctx, !self->is_in)->removed++;
    self->is_in = false;
}

static void guest_on_read(weir_ctx *ctx, weir_msg *msg)
{
    const guest *self = weir_ctx_state(ctx);
    stray(ctx, !self->is_in)->seen++;
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type guest_type = {
    .name = "guest",
    .state_size = sizeof(guest),
    .added = guest_added,
    .removed = guest_removed,
    .on_read = guest_on_read,
};

static int result_of(int code, weir_promise *promise)
{
    if (code == 0)
        code = weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

static int add_guest(changes *self, weir_place place, const char *base, const char *name)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_handler_config config = { .type = &guest_type, .arg = self, .name = name, .place = place };
    config.base = base;
    config.promise = promise;
    return result_of(weir_pipeline_add(self->pipeline, &config, NULL), promise);
}

static int remove_guest(changes *self, const char *name)
{
    weir_promise *promise = weir_promise_new(NULL);
    return result_of(weir_pipeline_remove(self->pipeline, name, promise), promise);
}

/* Every call of it succeeds, for the names are this thread's own. */
static void changer(int index, void *arg)
{
    changes *self = arg;
    char first[16], second[16];
    snprintf(first, sizeof first, "a%d", index);
    snprintf(second, sizeof second, "b%d", index);
    for (int i = 0; i < 60; i++) {
        int *failures = &self->failures[index];
        weir_place place = i % 2 == 0 ? WEIR_PLACE_FIRST : WEIR_PLACE_AFTER;
        *failures += add_guest(self, place, "fixed", first) < 0;
        *failures += add_guest(self, WEIR_PLACE_LAST, NULL, first) != -EEXIST;
        *failures += weir_pipeline_find(self->pipeline, first, NULL) != -EPERM;
        *failures += add_guest(self, WEIR_PLACE_INSTEAD_OF, first, second) < 0;
        *failures += remove_guest(self, first) != WEIR_ENOTFOUND;
        *failures += remove_guest(self, second) < 0;
        *failures += remove_guest(self, second) != WEIR_ENOTFOUND;
    }
}

static int count_handlers(void *pipeline)
{
    return (int)weir_pipeline_count(pipeline);
}

static int remember_thread(void *arg)
{
    *(pthread_t *)arg = pthread_self();
    return 0;
}

static void s153_eight_threads_change_a_pipeline_while_messages_flow(void **state)
{
    (void)state;
    enum { MESSAGES = 200 };
    weir_group *group = new_loops(1);
    weir_embedded *embedded = new_embedded(group, NULL, NULL);
    changes all = { .pipeline = weir_embedded_pipeline(embedded) };
    crew changers;
    weir_embedded_call(embedded, remember_thread, &all.loop);
    assert_int_equal(weir_pipeline_add_last(all.pipeline, "fixed", &guest_type, &all), 0);
    crew_start(&changers, 8, changer, &all);
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(weir_embedded_write_inbound(embedded, number_new(0, i, 0)), 0);
    crew_join(&changers);
    for (int i = 0; i < 8; i++)
        assert_int_equal(all.failures[i], 0);
    settle(group);
    assert_int_equal(weir_embedded_call(embedded, count_handlers, all.pipeline), 1);
    for (int i = 0; i < MESSAGES; i++) {
        weir_msg *msg = weir_embedded_read_inbound(embedded);
        assert_non_null(msg);
        assert_int_equal(((number *)msg)->seq, i);
        weir_msg_release(msg);
    }
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
    end_group(group);
    assert_int_equal(all.added, 8 * 60 * 2 + 1);
    assert_int_equal(all.removed, all.added + 8 * 60);
    assert_in_range(all.seen, MESSAGES, INT32_MAX);
    assert_int_equal(all.strays, 8 * 60); /* `removed` without `added`: their name was used */
}

/* Ends that race ------------------------------------------------------------------------------- */

typedef struct race {
    weir_channel *channel;
    const op_fn *ops;
    int codes[MOST_THREADS];
} race;

static void racer(int index, void *arg)
{
    race *self = arg;
    self->codes[index] = do_op(self->channel, self->ops[index]);
}

/* All at once, on a new channel of a group; it is closed in the end. */
static void run_race(race *self, weir_group *group, const op_fn *ops, int count)
{
    tally seen = { 0 };
    weir_embedded *embedded = new_embedded(group, add_tally, &seen);
    *self = (race){ .channel = weir_embedded_channel(embedded), .ops = ops };
    run_crew(count, racer, self);
    assert_int_equal(weir_embedded_close(embedded), 0);
    weir_embedded_free(embedded);
    settle(group);
    assert_int_equal(seen.active, 1);
    assert_int_equal(seen.inactive, 1);
    assert_int_equal(seen.added, 1);
    assert_int_equal(seen.removed, 1);
    assert_false(seen.is_elsewhere);
}

static void a_close_of_four_threads_is_one_close(void **state)
{
    (void)state;
    static const op_fn ops[] = { weir_channel_close, weir_channel_close, weir_channel_close,
                                 weir_channel_close };
    weir_group *group = new_loops(1);
    for (int round = 0; round < 50; round++) {
        race self;
        run_race(&self, group, ops, 4);
        for (int i = 0; i < 4; i++)
            assert_int_equal(self.codes[i], 0);
    }
    end_group(group);
}

static void finish_and_close_at_once_both_succeed(void **state)
{
    (void)state;
    static const op_fn ops[] = { weir_channel_finish, weir_channel_close };
    weir_group *group = new_loops(1);
    for (int round = 0; round < 50; round++) {
        race self;
        run_race(&self, group, ops, 2);
        assert_int_equal(self.codes[0], 0);
        assert_int_equal(self.codes[1], 0);
    }
    end_group(group);
}

static void deregister_and_close_at_once_end_closed(void **state)
{
    (void)state;
    static const op_fn ops[] = { weir_channel_deregister, weir_channel_close };
    weir_group *group = new_loops(1);
    for (int round = 0; round < 50; round++) {
        race self;
        run_race(&self, group, ops, 2);
        assert_true(self.codes[0] == 0 || self.codes[0] == WEIR_ECLOSED);
        assert_int_equal(self.codes[1], 0);
    }
    end_group(group);
}

typedef struct registration {
    weir_channel *channel;
    weir_group *group;
    int codes[2];
} registration;

static void registrar(int index, void *arg)
{
    registration *self = arg;
    weir_promise *promise = weir_channel_promise(self->channel);
    weir_channel_register(self->channel, weir_group_at(self->group, (size_t)index), promise);
    self->codes[index] = await(promise);
}

static void of_two_registrations_at_once_one_wins(void **state)
{
    (void)state;
    weir_group *group = new_loops(2);
    for (int round = 0; round < 50; round++) {
        weir_embedded *embedded = new_embedded(group, NULL, NULL);
        registration self = { .channel = weir_embedded_channel(embedded), .group = group };
        assert_int_equal(do_op(self.channel, weir_channel_deregister), 0);
        run_crew(2, registrar, &self);
        int winner = self.codes[0] == 0 ? 0 : 1;
        assert_int_equal(self.codes[winner], 0);
        assert_int_equal(self.codes[1 - winner], WEIR_EREGISTERED);
        assert_ptr_equal(weir_channel_loop(self.channel),
                         weir_group_loop_at(group, (size_t)winner));
        weir_channel_write_and_flush(self.channel, number_new(0, 0, 0), NULL);
        settle(group);
        weir_msg_release(weir_embedded_read_outbound(embedded));
        assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
        weir_embedded_free(embedded);
    }
    end_group(group);
}

/* Moving --------------------------------------------------------------------------------------- */

/* Waits for as long as anything could still happen; -EINPROGRESS: nobody has completed it. */
static int code_after(weir_group *group, weir_promise *promise)
{
    settle(group);
    int code = weir_future_code(weir_promise_future(promise));
    if (code == -EINPROGRESS)
        weir_promise_set(promise, code); /* so that it is not reported as forgotten, too */
    weir_promise_release(promise);
    return code;
}

static void a_close_during_a_move_ends_the_moves_promise(void **state)
{
    (void)state;
    weir_group *group = new_loops(2);
    tally seen = { 0 };
    stop pause;
    weir_embedded *embedded = new_embedded(group, add_tally, &seen);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_retain(channel);
    /* A handler that leaves holds the channel on its loop until the end of the next turn. */
    stop_loop(&pause, weir_group_at(group, 0));
    assert_int_equal(weir_pipeline_remove(weir_channel_pipeline(channel), "tally", NULL), 0);
    weir_channel_move(channel, weir_group_at(group, 1), promise);
    weir_channel_close(channel, NULL);
    let_go(&pause);
    weir_embedded_close(embedded);
    int code = code_after(group, promise);
    weir_embedded_free(embedded);
    weir_channel_release(channel);
    end_group(group);
    assert_int_equal(code, WEIR_ECLOSED);
}

static void a_channel_that_finishes_can_move(void **state)
{
    (void)state;
    weir_group *group = new_loops(2);
    weir_embedded *embedded = new_embedded(group, NULL, NULL);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_finish(channel, NULL);
    weir_channel_move(channel, weir_group_at(group, 1), promise);
    int code = code_after(group, promise);
    weir_embedded_free(embedded);
    end_group(group);
    assert_int_equal(code, 0);
}

/* Registers the channel elsewhere as soon as it has heard that it is off its loop. */
typedef struct hopper {
    weir_executor *to;
    char log[256]; /* of the loop the channel is on */
    pthread_t thread;
} hopper;

static void hopper_note(weir_ctx *ctx, const char *what)
{
    hopper *self = weir_ctx_arg(ctx);
    size_t length = strlen(self->log);
    bool is_elsewhere = length > 0 && !pthread_equal(self->thread, pthread_self());
    self->thread = pthread_self();
    snprintf(self->log + length, sizeof self->log - length, "%s%s ", is_elsewhere ? "| " : "",
             what);
}

static void hopper_on_registered(weir_ctx *ctx)
{
    hopper_note(ctx, "registered");
    weir_ctx_fire_registered(ctx);
}

static void hopper_on_unregistered(weir_ctx *ctx)
{
    hopper *self = weir_ctx_arg(ctx);
    hopper_note(ctx, "unregistered");
    if (self->to != NULL)
        weir_channel_register(weir_ctx_channel(ctx), self->to, NULL);
    self->to = NULL;
    weir_ctx_fire_unregistered(ctx);
}

static void hopper_on_event(weir_ctx *ctx, weir_msg *event)
{
    hopper_note(ctx, "event");
    weir_ctx_fire_event(ctx, event);
}

static void hopper_on_active(weir_ctx *ctx)
{
    hopper_note(ctx, "active");
    weir_ctx_fire_active(ctx);
}

static void hopper_on_inactive(weir_ctx *ctx)
{
    hopper_note(ctx, "inactive");
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type hopper_type = {
    .name = "hopper",
    .on_registered = hopper_on_registered,
    .on_unregistered = hopper_on_unregistered,
    .on_event = hopper_on_event,
    .on_active = hopper_on_active,
    .on_inactive = hopper_on_inactive,
};

static int add_hopper(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &hopper_type, arg);
}

/* Moves it, by the handler or from outside, and compares what the handler saw where. */
static void check_move(bool by_handler)
{
    weir_group *group = new_loops(2);
    for (int round = 0; round < 20; round++) {
        weir_executor *to = weir_group_at(group, (size_t)(1 + round) % 2);
        hopper self = { .to = by_handler ? to : NULL };
        weir_embedded *embedded = new_embedded(group, add_hopper, &self);
        weir_channel *channel = weir_embedded_channel(embedded);
        if (by_handler)
            assert_int_equal(do_op(channel, weir_channel_deregister), 0);
        else
            assert_int_equal(move_to(channel, to), 0);
        weir_pipeline_fire_event(weir_channel_pipeline(channel), number_new(0, 0, 0));
        settle(group);
        assert_ptr_equal(weir_channel_loop(channel), weir_executor_loop(to));
        assert_int_equal(weir_embedded_close(embedded), 0);
        weir_embedded_free(embedded);
        settle(group);
        assert_string_equal(self.log, "registered active unregistered | registered event "
                                      "inactive unregistered ");
    }
    end_group(group);
}

static void a_channel_that_moves_is_told_on_the_old_loop_then_on_the_new_one(void **state)
{
    (void)state;
    check_move(false);
}

static void a_handler_may_register_its_channel_elsewhere(void **state)
{
    (void)state;
    check_move(true);
}

/* The removed handler's memory is still the old loop's to free, when the channel has a new one. */
static void a_handler_removed_between_two_loops_is_freed_by_neither_under_the_other(void **state)
{
    (void)state;
    weir_group *group = new_loops(2);
    for (int round = 0; round < 30; round++) {
        tally seen = { 0 };
        stop pause;
        weir_embedded *embedded = new_embedded(group, NULL, NULL);
        weir_channel *channel = weir_embedded_channel(embedded);
        weir_pipeline *pipeline = weir_channel_pipeline(channel);
        weir_executor *from = weir_embedded_executor(embedded);
        weir_executor *to = weir_group_at(group, from == weir_group_at(group, 0));
        weir_promise *promise = weir_channel_promise(channel);
        assert_int_equal(weir_pipeline_add_last(pipeline, "tally", &tally_type, &seen), 0);
        stop_loop(&pause, from);
        weir_channel_deregister(channel, NULL);
        assert_int_equal(weir_pipeline_remove(pipeline, "tally", NULL), 0);
        weir_channel_register(channel, to, promise);
        for (int i = 0; i < 20; i++)
            weir_pipeline_fire_event(pipeline, number_new(0, i, 0));
        let_go(&pause);
        assert_int_equal(await(promise), 0);
        assert_int_equal(weir_embedded_close(embedded), 0);
        weir_embedded_free(embedded);
        settle(group);
        assert_int_equal(seen.removed, 1);
        assert_int_equal(seen.events, 0);
    }
    end_group(group);
}

/* References ----------------------------------------------------------------------------------- */

/* A channel without a test at its other side, to be left alone with its loop. */
typedef struct plain {
    weir_channel base;
    sem_t *destroyed;
    pthread_t *closed_on;
    weir_channel *watched; /* whether it is over when this one closes; NULL: none */
    bool *is_watched_over;
} plain;

static bool plain_is_active(const weir_channel *channel)
{
    (void)channel;
    return true;
}

static void plain_ignore(weir_channel *channel)
{
    (void)channel;
}

static void plain_flush(weir_channel *channel)
{
    weir__channel_sent(channel, 0);
}

static bool plain_quiesce(weir_channel *channel, bool is_closing)
{
    (void)channel;
    (void)is_closing;
    return true;
}

static void plain_close(weir_channel *channel)
{
    plain *self = (plain *)channel;
    *self->closed_on = pthread_self();
    if (self->watched != NULL)
        *self->is_watched_over = weir_channel_get_state(self->watched) == WEIR_CHANNEL_UNREGISTERED;
}

static void plain_destroy(weir_channel *channel)
{
    sem_t *destroyed = ((plain *)channel)->destroyed;
    free(channel);
    sem_post(destroyed);
}

static const weir_transport plain_transport = {
    .name = "plain",
    .is_stream = true,
    .is_active = plain_is_active,
    .start_reading = plain_ignore,
    .stop_reading = plain_ignore,
    .flush = plain_flush,
    .quiesce = plain_quiesce,
    .close = plain_close,
    .destroy = plain_destroy,
};

static weir_channel *new_plain(sem_t *destroyed, pthread_t *closed_on)
{
    plain *self = calloc(1, sizeof *self);
    assert_non_null(self);
    weir__channel_init(&self->base, &plain_transport, NULL);
    self->destroyed = destroyed;
    self->closed_on = closed_on;
    return &self->base;
}

static void releaser(int index, void *arg)
{
    (void)index;
    weir_channel_release(arg);
}

static weir_channel *registered_plain(weir_group *group, sem_t *destroyed, pthread_t *closed_on,
                                      tally *seen)
{
    weir_channel *channel = new_plain(destroyed, closed_on);
    weir_promise *promise = weir_channel_promise(channel);
    sem_init(destroyed, 0, 0);
    assert_int_equal(add_tally(channel, seen), 0);
    weir_channel_register(channel, weir_group_at(group, 0), promise);
    assert_int_equal(await(promise), 0);
    return channel;
}

static void the_last_reference_of_a_channel_off_its_loop_closes_it_there(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    sem_t destroyed;
    pthread_t closed_on, loop_thread;
    tally seen = { 0 };
    stop pause;
    weir_channel *channel = registered_plain(group, &destroyed, &closed_on, &seen);
    assert_int_equal(do_op(channel, weir_channel_deregister), 0);
    settle(group);
    stop_loop(&pause, weir_group_at(group, 0));
    run_crew(1, releaser, channel);
    assert_int_equal(sem_trywait(&destroyed), -1); /* the loop is busy, so it cannot be yet */
    let_go(&pause);
    sem_wait(&destroyed);
    weir_future *future;
    assert_int_equal(
        weir_executor_submit(weir_group_at(group, 0), remember_thread, &loop_thread, &future), 0);
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
    end_group(group);
    assert_true(pthread_equal(closed_on, loop_thread));
    assert_int_equal(seen.added, 1);
    assert_int_equal(seen.inactive, 1);
    assert_int_equal(seen.removed, 1);
    assert_false(seen.is_elsewhere);
}

static void the_loops_reference_keeps_a_registered_channel_until_it_is_closed(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    sem_t destroyed;
    pthread_t closed_on;
    tally seen = { 0 };
    stop pause;
    weir_channel *channel = registered_plain(group, &destroyed, &closed_on, &seen);
    stop_loop(&pause, weir_group_at(group, 0));
    weir_channel_close(channel, NULL);
    run_crew(1, releaser, channel);
    assert_int_equal(sem_trywait(&destroyed), -1);
    let_go(&pause);
    sem_wait(&destroyed);
    end_group(group);
    assert_int_equal(seen.removed, 1);
    assert_false(seen.is_elsewhere);
}

/* From outside --------------------------------------------------------------------------------- */

typedef struct order {
    char log[128];
} order;

static void order_on_event(weir_ctx *ctx, weir_msg *event)
{
    order *self = weir_ctx_arg(ctx);
    size_t length = strlen(self->log);
    snprintf(self->log + length, sizeof self->log - length, "event %d, ", ((number *)event)->seq);
    weir_ctx_fire_event(ctx, event);
}

static void order_on_error(weir_ctx *ctx, const weir_error *error)
{
    order *self = weir_ctx_arg(ctx);
    size_t length = strlen(self->log);
    snprintf(self->log + length, sizeof self->log - length, "%s %s %s, ", error->origin,
             error->message, weir_error_name(error->code));
}

static const weir_handler_type order_type = {
    .name = "order",
    .on_event = order_on_event,
    .on_error = order_on_error,
};

static void events_and_errors_from_outside_come_in_order(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    weir_embedded *embedded = new_embedded(group, NULL, NULL);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    order self = { "" };
    assert_int_equal(weir_pipeline_add_last(pipeline, "order", &order_type, &self), 0);
    weir_pipeline_fire_event(pipeline, number_new(0, 1, 0));
    weir_pipeline_fire_error(pipeline, -EIO, "number %d", 2);
    weir_pipeline_fire_event(pipeline, number_new(0, 3, 0));
    weir_pipeline_fire_error(pipeline, 7, "is no code");
    settle(group);
    assert_string_equal(self.log, "event 1, pipeline number 2 EIO, event 3, "
                                  "pipeline is no code EINVAL, ");
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
    end_group(group);
}

static _Atomic(int) values_alive;

static void value_destroy(void *value)
{
    free(value);
    values_alive--;
}

static const weir_attr_key keys[2] = { { "first", value_destroy }, { "second", value_destroy } };

static void setter(int index, void *arg)
{
    weir_channel *channel = arg;
    for (int i = 0; i < 200; i++) {
        values_alive++;
        weir_channel_set_attr(channel, &keys[i % 2], malloc(8));
        weir_channel_set_option(channel, WEIR_OPTION_LINGER_NS, WEIR_SECONDS(1) + index, NULL);
        weir_channel_set_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, 70000 + index, NULL);
        int64_t value = 0;
        weir_channel_get_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, &value);
        weir_channel_attr(channel, &keys[index % 2]);
    }
}

static void attributes_and_options_can_be_set_by_several_threads(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    weir_embedded *embedded = new_embedded(group, NULL, NULL);
    weir_channel *channel = weir_embedded_channel(embedded);
    int64_t linger = 0, high = 0;
    values_alive = 0;
    run_crew(4, setter, channel);
    settle(group);
    assert_int_equal(values_alive, 2);
    assert_non_null(weir_channel_attr(channel, &keys[0]));
    assert_non_null(weir_channel_attr(channel, &keys[1]));
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_LINGER_NS, &linger), 0);
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, &high), 0);
    assert_in_range(linger, WEIR_SECONDS(1), WEIR_SECONDS(1) + 3);
    assert_int_equal(high - 70000, linger - WEIR_SECONDS(1)); /* both of the thread that was last */
    weir_embedded_free(embedded);
    end_group(group);
    assert_int_equal(values_alive, 0);
}

static void bytes_that_wait_in_the_inbox_count_for_writability(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    weir_embedded *embedded = new_embedded(group, NULL, NULL);
    weir_channel *channel = weir_embedded_channel(embedded);
    stop pause;
    stop_loop(&pause, weir_embedded_executor(embedded));
    assert_int_equal(weir_channel_bytes_before_unwritable(channel), 65537);
    weir_channel_write(channel, number_new(0, 0, 60000), NULL);
    assert_true(weir_channel_is_writable(channel));
    assert_int_equal(weir_channel_bytes_before_unwritable(channel), 5537);
    weir_channel_write(channel, number_new(0, 1, 5537), NULL);
    assert_false(weir_channel_is_writable(channel));
    assert_int_equal(weir_channel_bytes_before_unwritable(channel), 0);
    assert_int_equal(weir_channel_bytes_before_writable(channel), 65537 - 32768);
    let_go(&pause);
    settle(group);
    assert_false(weir_channel_is_writable(channel));
    weir_channel_flush(channel);
    settle(group);
    assert_true(weir_channel_is_writable(channel));
    assert_int_equal(weir_embedded_finish(embedded, NULL), 2);
    weir_embedded_free(embedded);
    end_group(group);
}

/* Ends of loops -------------------------------------------------------------------------------- */

/* Every call on a channel that is over fails, and says so. */
static void check_over(weir_channel *channel)
{
    static const op_fn refused[] = { weir_channel_deregister, weir_channel_shutdown,
                                     weir_channel_disconnect };
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_promise *promise = weir_channel_promise(channel);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_UNREGISTERED);
    weir_channel_write_and_flush(channel, number_new(0, 0, 0), promise);
    assert_int_equal(await(promise), WEIR_ECLOSED);
    weir_channel_write(channel, number_new(0, 0, 0), NULL);
    weir_channel_flush(channel);
    weir_channel_read(channel);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_int_equal(do_op(channel, refused[i]), WEIR_ECLOSED);
    assert_int_equal(do_op(channel, weir_channel_close), 0);
    assert_int_equal(do_op(channel, weir_channel_finish), 0);
    assert_int_equal(weir_future_await(weir_channel_closed(channel)), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "late", &tally_type, NULL), WEIR_ECLOSED);
    assert_int_equal(weir_pipeline_remove(pipeline, "tally", NULL), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_count(pipeline), 0);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL),
                     WEIR_ECLOSED);
    weir_hold hold = { .needs_reads = false };
    assert_int_equal(weir_channel_set_write_hold(channel, &hold, true), 0);
    assert_false(weir_channel_is_writable(channel));
    assert_null(weir_channel_loop(channel));
    weir_pipeline_fire_event(pipeline, number_new(0, 0, 0));
    weir_pipeline_fire_error(pipeline, -EIO, "late");
    weir_pipeline_fire_read(pipeline, number_new(0, 0, 0));
}

static void a_channel_outlives_its_group_and_refuses_everything(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    tally seen = { 0 };
    weir_embedded *embedded = new_embedded(group, add_tally, &seen);
    weir_channel *channel = weir_channel_retain(weir_embedded_channel(embedded));
    weir_group_shutdown(group, 0, WEIR_SECONDS(10));
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    weir_embedded_free(embedded);
    weir_group_free(group);
    assert_int_equal(seen.inactive, 1);
    assert_int_equal(seen.removed, 1);
    assert_false(seen.is_elsewhere);
    check_over(channel);
    weir_channel_release(channel);
}

/* Its loop cannot close it, for it is off it; but the loop's memory must not be used any more. */
static void a_channel_off_its_loop_outlives_its_group(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    sem_t destroyed;
    pthread_t closed_on;
    tally seen = { 0 };
    weir_channel *channel = registered_plain(group, &destroyed, &closed_on, &seen);
    assert_int_equal(do_op(channel, weir_channel_deregister), 0);
    end_group(group);
    assert_int_equal(do_op(channel, weir_channel_close), 0);
    weir_channel_release(channel);
    sem_wait(&destroyed);
    assert_int_equal(seen.removed, 1);
}

/* Two channels that are off their loop, and closed when that takes its last tasks, but does not run
 * them any more. */
typedef struct late_close {
    weir_channel *first, *second;
} late_close;

static void close_both(int index, void *arg)
{
    late_close *self = arg;
    (void)index;
    weir_channel_close(self->first, NULL);
    weir_channel_close(self->second, NULL);
}

static void close_both_on_inactive(weir_ctx *ctx)
{
    run_crew(1, close_both, weir_ctx_arg(ctx));
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type late_closer = {
    .name = "late closer",
    .on_inactive = close_both_on_inactive,
};

static int add_late_closer(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &late_closer, arg);
}

/* Others may perform its calls from then on, so no notice of it may wait on the loop's thread. */
static void loop_that_has_terminated_leaves_no_notice_of_a_channel(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    sem_t destroyed[2];
    pthread_t closed_on[2];
    tally seen[2] = { { 0 } };
    bool is_first_over = false;
    late_close both = {
        registered_plain(group, &destroyed[0], &closed_on[0], &seen[0]),
        registered_plain(group, &destroyed[1], &closed_on[1], &seen[1]),
    };
    ((plain *)both.second)->watched = both.first;
    ((plain *)both.second)->is_watched_over = &is_first_over;
    assert_int_equal(do_op(both.first, weir_channel_deregister), 0);
    assert_int_equal(do_op(both.second, weir_channel_deregister), 0);
    weir_embedded *embedded = new_embedded(group, add_late_closer, &both);
    assert_int_equal(weir_group_shutdown(group, 0, 0), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    weir_embedded_free(embedded);
    weir_channel_release(both.first);
    weir_channel_release(both.second);
    sem_wait(&destroyed[0]);
    sem_wait(&destroyed[1]);
    weir_group_free(group);
    assert_true(pthread_equal(closed_on[0], closed_on[1]));
    assert_true(is_first_over);
    assert_int_equal(seen[0].removed + seen[1].removed, 2);
}

typedef struct hearing {
    weir_listener listener;
    atomic_int done, dropped;
} hearing;

static void hearing_done(weir_listener *listener, weir_future *future)
{
    (void)future;
    atomic_fetch_add(&WEIR_CONTAINER(listener, hearing, listener)->done, 1);
}

static void hearing_dropped(weir_listener *listener, weir_future *future)
{
    (void)future;
    atomic_fetch_add(&WEIR_CONTAINER(listener, hearing, listener)->dropped, 1);
}

/* They were promised the loop's thread, and there is none. */
static void loop_that_has_terminated_drops_listeners_of_its_channels(void **state)
{
    (void)state;
    weir_group *group = new_loops(1);
    sem_t destroyed;
    pthread_t closed_on;
    tally seen = { 0 };
    hearing it = { .listener = { .done = hearing_done, .dropped = hearing_dropped } };
    weir_channel *channel = registered_plain(group, &destroyed, &closed_on, &seen);
    assert_int_equal(do_op(channel, weir_channel_deregister), 0);
    weir_promise *promise = weir_channel_promise(channel);
    weir_future_listen(weir_promise_future(promise), &it.listener);
    assert_int_equal(weir_group_shutdown(group, 0, 0), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
    weir_promise_set(promise, 0);
    assert_int_equal(it.dropped, 1);
    assert_int_equal(it.done, 0);
    weir_promise_release(promise);
    weir_channel_release(channel);
    sem_wait(&destroyed);
    weir_group_free(group);
}

static void no_call_is_lost_when_the_loop_ends(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        weir_group *group = new_loops(1);
        weir_embedded *embedded = new_embedded(group, NULL, NULL);
        writing all;
        crew writers;
        writing_init(&all, weir_embedded_channel(embedded), 4, 100);
        crew_start(&writers, 4, writer, &all);
        for (int i = 0; i < round * 10; i++)
            sem_wait(&all.done);
        weir_group_shutdown(group, 0, 0);
        for (int i = round * 10; i < 400; i++)
            sem_wait(&all.done);
        crew_join(&writers);
        assert_int_equal(weir_future_await(weir_group_terminated(group)), 0);
        check_written_until_closed(&all, embedded);
        weir_embedded_free(embedded);
        weir_group_free(group);
        writing_end(&all);
    }
}

/* Misuse --------------------------------------------------------------------------------------- */

static weir_ctx *kept_ctx;

static void keep_ctx(weir_ctx *ctx)
{
    kept_ctx = ctx;
}

static const weir_handler_type keeper_type = { .name = "keeper", .added = keep_ctx };

static int add_keeper(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "keeper", &keeper_type, arg);
}

static void flush_on_a_foreign_thread(void *arg)
{
    (void)arg;
    new_embedded(new_loops(1), add_keeper, NULL);
    weir_ctx_flush(kept_ctx);
}

static void look_up_a_context_on_a_foreign_thread(void *arg)
{
    (void)arg;
    weir_embedded *embedded = new_embedded(new_loops(1), add_keeper, NULL);
    weir_pipeline_ctx(weir_embedded_pipeline(embedded), "keeper");
}

static void a_context_belongs_to_its_loops_thread(void **state)
{
    (void)state;
    if (!HARNESS_MISUSE_ABORTS)
        skip();
    harness_expect_abort(flush_on_a_foreign_thread, NULL, "weir__ctx_is_here");
    harness_expect_abort(look_up_a_context_on_a_foreign_thread, NULL, "may_look");
}

/* Everything at once --------------------------------------------------------------------------- */

enum { STRESS_CHANNELS = 3, STRESS_THREADS = 4, STRESS_STEPS = 600 };

typedef struct stress {
    weir_group *group;
    weir_channel *channels[STRESS_CHANNELS];
    changes guests[STRESS_CHANNELS];
    _Atomic(int) asked, answered;
} stress;

typedef struct answer {
    weir_listener listener;
    stress *all;
} answer;

static void answered(weir_listener *listener, weir_future *future)
{
    answer *self = WEIR_CONTAINER(listener, answer, listener);
    (void)future;
    self->all->answered++;
    free(self);
}

/* A promise that is counted when it is complete. */
static weir_promise *ask(stress *all, weir_channel *channel)
{
    answer *self = malloc(sizeof *self);
    weir_promise *promise = weir_channel_promise(channel);
    *self = (answer){ .listener.done = answered, .all = all };
    all->asked++;
    weir_future_listen(weir_promise_future(promise), &self->listener);
    return promise;
}

/* Guests come and go on any loop, so nothing but how often is looked at. */
static void visitor_added(weir_ctx *ctx)
{
    ((changes *)weir_ctx_arg(ctx))->added++;
}

static void visitor_removed(weir_ctx *ctx)
{
    ((changes *)weir_ctx_arg(ctx))->removed++;
}

static const weir_handler_type visitor_type = {
    .name = "visitor",
    .added = visitor_added,
    .removed = visitor_removed,
};

/* A failure of one with a promise leaves the channel open. */
static bool add_visitor(weir_pipeline *pipeline, changes *guests, weir_place place,
                        const char *base, const char *name)
{
    weir_promise *promise = weir_promise_new(NULL);
    weir_handler_config config = { .type = &visitor_type, .arg = guests, .name = name };
    config.place = place;
    config.base = base;
    config.promise = promise;
    int code = weir_pipeline_add(pipeline, &config, NULL);
    weir_promise_release(promise);
    return code == 0;
}

static void change_something(weir_pipeline *pipeline, changes *guests, unsigned what, unsigned n)
{
    char name[8], other[8];
    snprintf(name, sizeof name, "v%u", n % 5);
    snprintf(other, sizeof other, "v%u", n / 5 % 5);
    switch (what % 4) {
    case 0:
        guests->accepted += add_visitor(pipeline, guests, WEIR_PLACE_LAST, NULL, name);
        break;
    case 1:
        guests->accepted += add_visitor(pipeline, guests, WEIR_PLACE_INSTEAD_OF, name, other);
        break;
    default:
        weir_pipeline_remove(pipeline, name, NULL);
        break;
    }
}

static void do_something(stress *all, int which, unsigned what, unsigned n)
{
    weir_channel *channel = all->channels[which];
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_promise *promise = ask(all, channel);
    weir_executor *loop = weir_group_at(all->group, n % 2);
    switch (what) {
    case 0:
    case 1:
        weir_channel_write(channel, number_new(0, 0, n % 1000), promise);
        break;
    case 2:
        weir_channel_write_and_flush(channel, number_new(0, 0, n % 1000), promise);
        break;
    case 3:
        weir_channel_move(channel, loop, promise);
        break;
    case 4:
        weir_channel_deregister(channel, promise);
        break;
    case 5:
    case 6:
        weir_channel_register(channel, loop, promise);
        break;
    default:
        change_something(pipeline, &all->guests[which], what, n);
        weir_pipeline_fire_event(pipeline, number_new(0, 0, 0));
        weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, n % 2, NULL);
        weir_promise_set(promise, 0);
        break;
    }
    weir_promise_release(promise);
}

static void stressor(int index, void *arg)
{
    stress *all = arg;
    unsigned seed = (unsigned)index + 1;
    for (int i = 0; i < STRESS_STEPS; i++) {
        unsigned dice = (unsigned)rand_r(&seed), n = (unsigned)rand_r(&seed);
        do_something(all, (int)(n / 64 % STRESS_CHANNELS), dice / 32 % 12, n / 4096);
    }
}

static void anything_from_four_threads_leaves_nothing(void **state)
{
    (void)state;
    stress all = { .group = new_loops(2) };
    weir_embedded *embedded[STRESS_CHANNELS];
    for (int i = 0; i < STRESS_CHANNELS; i++) {
        embedded[i] = new_embedded(all.group, NULL, NULL);
        all.channels[i] = weir_embedded_channel(embedded[i]);
    }
    run_crew(STRESS_THREADS, stressor, &all);
    for (int i = 0; i < STRESS_CHANNELS; i++) {
        assert_int_equal(weir_embedded_close(embedded[i]), 0);
        weir_embedded_free(embedded[i]);
    }
    end_group(all.group);
    assert_int_equal(all.answered, all.asked);
    for (int i = 0; i < STRESS_CHANNELS; i++)
        assert_int_equal(all.guests[i].removed, all.guests[i].accepted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s062_what_two_threads_write_arrives_in_the_order_of_each),
        weir_case(s062_what_four_threads_write_arrives_in_the_order_of_each),
        weir_case(s062_the_order_of_writes_holds_while_the_channel_moves),
        weir_case(s062_a_close_amid_the_writes_ends_every_promise_once),
        weir_case(write_promises_fail_in_the_order_of_the_writes_also_during_a_close),
        weir_case(s009_all_events_of_a_channel_run_on_one_thread_one_after_another),
        weir_case(s153_eight_threads_change_a_pipeline_while_messages_flow),
        weir_case(a_close_of_four_threads_is_one_close),
        weir_case(finish_and_close_at_once_both_succeed),
        weir_case(deregister_and_close_at_once_end_closed),
        weir_case(of_two_registrations_at_once_one_wins),
        weir_case(a_close_during_a_move_ends_the_moves_promise),
        weir_case(a_channel_that_finishes_can_move),
        weir_case(a_channel_that_moves_is_told_on_the_old_loop_then_on_the_new_one),
        weir_case(a_handler_removed_between_two_loops_is_freed_by_neither_under_the_other),
        weir_case(the_last_reference_of_a_channel_off_its_loop_closes_it_there),
        weir_case(the_loops_reference_keeps_a_registered_channel_until_it_is_closed),
        weir_case(events_and_errors_from_outside_come_in_order),
        weir_case(attributes_and_options_can_be_set_by_several_threads),
        weir_case(bytes_that_wait_in_the_inbox_count_for_writability),
        weir_case(a_channel_outlives_its_group_and_refuses_everything),
        weir_case(loop_that_has_terminated_leaves_no_notice_of_a_channel),
        weir_case(loop_that_has_terminated_drops_listeners_of_its_channels),
        weir_case(no_call_is_lost_when_the_loop_ends),
        weir_case(a_context_belongs_to_its_loops_thread),
        weir_case(anything_from_four_threads_leaves_nothing),
        weir_case(a_handler_may_register_its_channel_elsewhere),
        weir_case(a_channel_off_its_loop_outlives_its_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
