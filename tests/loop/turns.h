/* SPDX-License-Identifier: MIT */
/* What the tests of the loop's turn share: a loop driven by hand, over a kernel and a clock that
 * the test plays, and channels that send back what they get. */
#ifndef WEIR_TESTS_LOOP_TURNS_H
#define WEIR_TESTS_LOOP_TURNS_H

#include "exec/executors.h"

#include "exec/lifecycle.h"
#include "io/io.h"
#include "loop/loop.h"

#include <weir/loop.h>
#include <weir/script.h>
#include <weir/timer.h>

#include <stdio.h>

#define US(count) ((int64_t)(count)*1000)

/* The stage ----------------------------------------------------------------------------------- */

typedef struct stage {
    weir_virtual_clock clock;
    weir_script *script; /* NULL: over epoll */
    weir_group *group;
    weir_loop *loop;
    weir_executor *executor;

    /* Polls: none waits for real, unless told to. */
    int polls;
    int64_t timeouts[8];  /* of the first ones */
    bool is_normal;       /* a poll takes its whole timeout; else it is over at once */
    int64_t poll_step_ns; /* else it takes so long */
    void (*in_poll)(struct stage *self);
    int answer; /* to the loop, when in_poll is set */
} stage;

static inline int stage_poll(void *arg, int64_t timeout_ns)
{
    stage *self = arg;
    if (self->polls < 8)
        self->timeouts[self->polls] = timeout_ns;
    self->polls++;
    if (self->is_normal && timeout_ns > 0)
        weir_virtual_clock_advance(&self->clock, timeout_ns);
    weir_virtual_clock_advance(&self->clock, self->poll_step_ns);
    if (self->in_poll == NULL)
        return 0;
    self->in_poll(self);
    return self->answer;
}

static inline void stage_open_over(stage *self, weir_group_config config)
{
    weir_virtual_clock_init(&self->clock, WEIR_SECONDS(1000));
    config.loops = 1;
    config.is_manual = true;
    config.clock = &self->clock.clock;
    assert_int_equal(weir_group_new(&self->group, &config, NULL), 0);
    self->loop = weir_group_loop_at(self->group, 0);
    self->executor = weir_loop_executor(self->loop);
    /* The first turn reads the clock. */
    assert_int_equal(weir_loop_run_once(self->loop, 0), 0);
    self->polls = 0;
}

/* Over a script. The struct is all zero but for what the test wants of polls. */
static inline void stage_open(stage *self, weir_group_config config)
{
    assert_int_equal(weir_script_new(&self->script), 0);
    weir_script_set_poll_hook(self->script, stage_poll, self);
    config.io_source = weir_script_source(self->script);
    stage_open_over(self, config);
}

static inline void stage_close(stage *self)
{
    end_group(self->group);
    weir_script_free(self->script);
}

static inline int turn(stage *self)
{
    return weir_loop_run_once(self->loop, -1);
}

static inline void turns(stage *self, int count)
{
    for (int i = 0; i < count; i++)
        turn(self);
}

static inline void pass(stage *self, int64_t step_ns)
{
    weir_virtual_clock_advance(&self->clock, step_ns);
}

static inline weir_loop_stats loop_stats(const stage *self)
{
    weir_loop_stats stats;
    weir_loop_get_stats(self->loop, &stats);
    return stats;
}

/* Channels ------------------------------------------------------------------------------------ */

/* Sends back what it gets, then does what the test wants. Raw operations, over any backend. */
typedef struct channel channel;
struct channel {
    stage *on;
    weir_io_file file;
    weir_io_op in;
    uint8_t bytes[64];
    size_t length;
    int echoes, finals, code; /* the final result's */
    int64_t takes_ns;         /* to handle data */
    void (*then)(channel *self);
};

static inline int channel_gather(weir_io_file *file, weir_io_send *send)
{
    channel *self = WEIR_CONTAINER(file, channel, file);
    send->pieces[0] = (struct iovec){ self->bytes, self->length };
    return 1;
}

static inline void channel_sent(weir_io_file *file, int code)
{
    channel *self = WEIR_CONTAINER(file, channel, file);
    assert_int_equal(code, (int)self->length);
    self->echoes++;
}

static inline void channel_send_cancelled(weir_io_file *file)
{
    (void)file;
}

static const weir_io_sender channel_sender = { .gather = channel_gather,
                                               .on_sent = channel_sent,
                                               .on_send_cancelled = channel_send_cancelled };

static inline void channel_received(weir_io_op *op, const weir_io_result *result)
{
    channel *self = WEIR_CONTAINER(op, channel, in);
    pass(self->on, self->takes_ns);
    if (result->code > 0) {
        self->length = weir_buf_readable(result->buf);
        assert_true(self->length <= sizeof self->bytes);
        assert_int_equal(weir_buf_read_bytes(result->buf, self->bytes, self->length), 0);
        weir_buf_release(result->buf);
        int before = self->echoes;
        weir__io_send(self->on->loop->io, &self->file);
        assert_int_equal(self->echoes, before + 1); /* at once */
    }
    if (!result->is_armed) {
        self->finals++;
        self->code = result->code;
    }
    if (self->then != NULL)
        self->then(self);
}

static inline void channel_open(channel *self, stage *on, int fd)
{
    weir_io *io = on->loop->io;
    self->on = on;
    self->in = (weir_io_op){ .kind = WEIR_IO_RECEIVE,
                             .is_multishot = true,
                             .file = &self->file,
                             .on_done = channel_received };
    assert_int_equal(io->type->attach(io, &self->file, fd), 0);
    self->file.sender = &channel_sender;
    assert_int_equal(weir__io_submit(io, &self->in), WEIR_IO_PENDING);
}

/* Also closes the descriptor. */
static inline void channel_close(channel *self)
{
    weir_io *io = self->on->loop->io;
    self->then = NULL;
    self->takes_ns = 0;
    weir__io_cancel(io, &self->in);
    if (self->in.is_in_flight)
        turn(self->on);
    assert_false(self->in.is_in_flight);
    io->type->close_file(io, &self->file);
}

/* Over a script: what it gets comes back in the next turn. */
static inline void assert_echoes(channel *self)
{
    char text[8];
    static unsigned number;
    snprintf(text, sizeof text, "%07u", number++ % 10000000);
    int fd = self->file.fd;
    assert_int_equal(weir_script_deliver(self->on->script, fd, text, 7), 0);
    int before = self->echoes;
    turn(self->on);
    assert_int_equal(self->echoes, before + 1);
    char got[8];
    assert_int_equal(weir_script_take_sent(self->on->script, fd, got, 8), 7);
    assert_memory_equal(got, text, 7);
}

static inline void deliver(channel *self)
{
    assert_int_equal(weir_script_deliver(self->on->script, self->file.fd, "x", 1), 0);
}

/* Tasks --------------------------------------------------------------------------------------- */

/* A task that takes its time. */
typedef struct slow_task {
    weir_task task;
    stage *on;
    int64_t takes_ns;
    int *runs;
} slow_task;

static inline int slow_run(weir_task *task)
{
    slow_task *self = WEIR_CONTAINER(task, slow_task, task);
    pass(self->on, self->takes_ns);
    ++*self->runs;
    return 0;
}

/* Posts so many, from outside. */
static inline void post_slow(stage *on, slow_task *tasks, int count, int64_t takes_ns, int *runs)
{
    for (int i = 0; i < count; i++) {
        tasks[i] = (slow_task){ { .run = slow_run, .name = "slow" }, on, takes_ns, runs };
        assert_int_equal(weir_executor_post(on->executor, &tasks[i].task), 0);
    }
}

/* A timer that counts. */
typedef struct counted_timer {
    weir_timer timer;
    int fires;
    int64_t at_ns; /* the loop's time when it did */
} counted_timer;

static inline int counted_fire(weir_timer *timer)
{
    counted_timer *self = WEIR_CONTAINER(timer, counted_timer, timer);
    self->fires++;
    self->at_ns = weir_executor_now_ns(timer->executor);
    return 0;
}

#define COUNTED_TIMER                                                                              \
    (counted_timer)                                                                                \
    {                                                                                              \
        .timer = {.fire = counted_fire, .name = "counted" }                                        \
    }

/* Schedules from inside: no task is left behind. */
static inline void schedule(stage *on, counted_timer *timer, int64_t delay_ns)
{
    weir_executor *outer = weir__executor_set_current(on->executor);
    assert_int_equal(weir_timer_schedule(&timer->timer, on->executor, delay_ns), 0);
    weir__executor_set_current(outer);
}

#endif
