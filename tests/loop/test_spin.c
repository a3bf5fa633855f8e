/* SPDX-License-Identifier: MIT */
/* When waiting for events goes wrong: polls that end early, fail, or lose a descriptor. */
#include "turns.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>

#define CHANNELS 50

static channel channels[CHANNELS];

static void open_channels(stage *s)
{
    for (int i = 0; i < CHANNELS; i++) {
        channels[i] = (channel){ 0 };
        channel_open(&channels[i], s, 10 + i);
    }
}

static void close_channels(void)
{
    for (int i = 0; i < CHANNELS; i++)
        channel_close(&channels[i]);
}

/* A normal poll: it takes its whole time. */
static void normal_turn(stage *s)
{
    s->is_normal = true;
    weir_loop_run_once(s->loop, WEIR_MS(10));
    s->is_normal = false;
}

static uint64_t rebuilds(const stage *s)
{
    return loop_stats(s).rebuilds;
}

/* Spinning ------------------------------------------------------------------------------------ */

static void s082_512_early_returns_lead_to_one_rebuild(void **state)
{
    (void)state;
    stage s = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    open_channels(&s);
    assert_int_equal(weir_script_blame(s.script, 17), 0);
    harness_log_begin(WEIR_LOG_WARN);
    turns(&s, 511);
    assert_int_equal(rebuilds(&s), 0);
    assert_false(harness_log_has("early"));
    turn(&s);
    assert_int_equal(rebuilds(&s), 1);
    assert_true(harness_log_has("512 times"));
    assert_true(harness_log_has("descriptor 17,"));
    assert_true(harness_log_has("is rebuilt"));
    for (int i = 0; i < CHANNELS; i++)
        assert_echoes(&channels[i]);
    /* It begins to count anew. */
    assert_int_equal(weir_script_blame(s.script, -1), 0);
    turns(&s, 511);
    assert_int_equal(rebuilds(&s), 1);
    turn(&s);
    assert_int_equal(rebuilds(&s), 2);
    assert_int_equal(harness_log_end(), 2); /* a line each, and no other */
    close_channels();
    stage_close(&s);
}

static void s082_limit_can_be_set_or_switched_off(void **state)
{
    (void)state;
    static const int bad[] = { 1, 2, -2, INT_MIN };
    weir_group *group = NULL;
    weir_error error = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weir_group_config config = { .loops = 1, .spin_limit = bad[i] };
        assert_int_equal(weir_group_new(&group, &config, &error), -EINVAL);
        assert_non_null(strstr(error.message, "spin_limit"));
    }
    harness_log_begin(WEIR_LOG_ERROR);
    stage s = { 0 };
    stage_open(&s, (weir_group_config){ .spin_limit = 3 });
    turns(&s, 2);
    assert_int_equal(rebuilds(&s), 0);
    turn(&s);
    assert_int_equal(rebuilds(&s), 1);
    turns(&s, 6);
    assert_int_equal(rebuilds(&s), 3);
    stage_close(&s);
    s = (stage){ 0 };
    stage_open(&s, (weir_group_config){ .spin_limit = WEIR_OFF });
    turns(&s, 5000);
    assert_int_equal(rebuilds(&s), 0);
    stage_close(&s);
    assert_int_equal(harness_log_end(), 0);
}

static void s082_rebuild_that_fails_is_tried_again(void **state)
{
    (void)state;
    stage s = { 0 };
    channel c = { 0 };
    stage_open(&s, (weir_group_config){ .spin_limit = 4 });
    channel_open(&c, &s, 5);
    assert_int_equal(weir_script_fail_rebuilds(s.script, 2, -EMFILE), 0);
    harness_log_begin(WEIR_LOG_ERROR);
    turns(&s, 8);
    assert_int_equal(rebuilds(&s), 0);
    assert_true(harness_log_has("could not rebuild its script"));
    assert_int_equal(harness_log_end(), 2);
    assert_echoes(&c); /* the old one goes on */
    turns(&s, 3);
    assert_int_equal(rebuilds(&s), 0);
    turn(&s);
    assert_int_equal(rebuilds(&s), 1);
    assert_echoes(&c);
    channel_close(&c);
    stage_close(&s);
}

static void s083_a_normal_return_resets_the_count(void **state)
{
    (void)state;
    stage s = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    turns(&s, 511);
    normal_turn(&s);
    turns(&s, 511);
    assert_int_equal(rebuilds(&s), 0);
    /* A nanosecond too early is early. */
    s.poll_step_ns = WEIR_MS(10) - 1;
    weir_loop_run_once(s.loop, WEIR_MS(10));
    s.poll_step_ns = 0;
    assert_int_equal(rebuilds(&s), 1);
    stage_close(&s);
}

static void wake_it(stage *s)
{
    weir_executor_wake(s->executor);
}

static int lazy_runs;

static int count_lazy(weir_task *task)
{
    (void)task;
    lazy_runs++;
    return 0;
}

static weir_task lazy_task = { .run = count_lazy };

/* As another thread would. */
static void post_lazily(stage *s)
{
    weir_executor *loop = weir__executor_set_current(NULL);
    assert_int_equal(weir_executor_post_lazy(s->executor, &lazy_task), 0);
    weir__executor_set_current(loop);
}

static void s083_a_return_with_a_reason_is_normal(void **state)
{
    (void)state;
    stage s = { 0 };
    channel c = { 0 };
    probe p = PROBE;
    counted_timer t = COUNTED_TIMER;
    stage_open(&s, (weir_group_config){ .spin_limit = 5 });
    channel_open(&c, &s, 5);
    for (int i = 0; i < 7; i++) {
        turns(&s, 4);
        switch (i) {
        case 0: /* an event */
            assert_echoes(&c);
            break;
        case 1: /* a task */
            assert_int_equal(weir_executor_post(s.executor, &p.task), 0);
            turn(&s);
            break;
        case 2: /* a timer, in time */
            schedule(&s, &t, WEIR_MS(1));
            s.is_normal = true;
            turn(&s);
            s.is_normal = false;
            assert_int_equal(t.fires, 1);
            break;
        case 3: /* a wake-up */
            s.in_poll = wake_it;
            turn(&s);
            s.in_poll = NULL;
            break;
        case 4: /* a task that came without a wake-up */
            s.in_poll = post_lazily;
            turn(&s);
            s.in_poll = NULL;
            assert_int_equal(lazy_runs, 1);
            break;
        case 5: /* an event of a descriptor that is there, though nobody had to be told */
            assert_int_equal(weir_script_answer(s.script, 5, -EAGAIN), 0);
            assert_int_equal(weir_script_answer(s.script, 5, -EAGAIN), 0);
            weir__io_send(s.loop->io, &c.file);
            assert_true(weir__io_is_sending(&c.file));
            turn(&s);
            break;
        default: /* it was only asked to look */
            weir_loop_run_once(s.loop, 0);
        }
    }
    turns(&s, 4);
    assert_int_equal(rebuilds(&s), 0);
    turn(&s); /* and the count works */
    assert_int_equal(rebuilds(&s), 1);
    weir__io_cancel_send(s.loop->io, &c.file);
    channel_close(&c);
    stage_close(&s);
}

static void s084_from_four_early_returns_on_a_line_is_logged(void **state)
{
    (void)state;
    stage s = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    harness_log_begin(WEIR_LOG_DEBUG);
    turns(&s, 3);
    normal_turn(&s);
    assert_false(harness_log_has("early"));
    turns(&s, 4);
    assert_false(harness_log_has("early")); /* when it is over */
    normal_turn(&s);
    assert_true(harness_log_has("returned early 4 times in a row"));
    assert_int_equal(harness_log_end(), 1);
    harness_log_begin(WEIR_LOG_INFO); /* a line for who looks for it */
    turns(&s, 100);
    normal_turn(&s);
    assert_int_equal(harness_log_end(), 0);
    stage_close(&s);
}

static void do_nothing(stage *s)
{
    (void)s;
}

static void s085_an_interrupted_wait_is_no_spin(void **state)
{
    (void)state;
    stage s = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    weir_script_set_poll_hook(s.script, NULL, NULL);
    harness_log_begin(WEIR_LOG_DEBUG);
    assert_int_equal(weir_script_answer_polls(s.script, 600, -EINTR), 0);
    turns(&s, 600);
    assert_int_equal(rebuilds(&s), 0);
    assert_true(harness_log_has("interrupted by a signal"));
    assert_false(harness_log_has("early"));
    assert_int_equal(harness_log_end(), 600);
    /* It also resets the count. */
    weir_script_set_poll_hook(s.script, stage_poll, &s);
    turns(&s, 511);
    s.in_poll = do_nothing;
    s.answer = -EINTR;
    turn(&s);
    s.in_poll = NULL;
    turns(&s, 511);
    assert_int_equal(rebuilds(&s), 0);
    turn(&s);
    assert_int_equal(rebuilds(&s), 1);
    stage_close(&s);
}

/* Failing ------------------------------------------------------------------------------------- */

static void s046_a_failed_poll_is_logged_and_the_loop_lives(void **state)
{
    (void)state;
    stage s = { 0 };
    channel c = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    weir_script_set_poll_hook(s.script, NULL, NULL);
    channel_open(&c, &s, 5);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_script_answer_polls(s.script, 2, -EBADF), 0);
    for (int i = 0; i < 2; i++) {
        probe p = PROBE;
        assert_int_equal(weir_executor_post(s.executor, &p.task), 0);
        assert_int_equal(turn(&s), 1);
        assert_int_equal(atomic_load(&p.runs), 1);
    }
    assert_int_equal(rebuilds(&s), 2);
    assert_true(harness_log_has("waiting for events failed"));
    assert_int_equal(harness_log_end(), 2);
    weir_script_set_poll_hook(s.script, stage_poll, &s);
    assert_echoes(&c);
    channel_close(&c);
    stage_close(&s);
}

static void s046_a_failure_that_stays_does_not_spin(void **state)
{
    (void)state;
    stage s = { 0 };
    probe p = PROBE;
    stage_open(&s, (weir_group_config){ 0 });
    weir_script_set_poll_hook(s.script, NULL, NULL);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(weir_script_answer_polls(s.script, 4, -EBADF), 0);
    assert_int_equal(weir_script_fail_rebuilds(s.script, 3, -EMFILE), 0);
    harness_fail_nth("poll", UINT_MAX, -EIO); /* counts the pauses, which are polls of nothing */
    turn(&s);
    turn(&s);
    assert_int_equal(harness_fail_end(), 2);
    /* With something to do there is no pause. */
    harness_fail_nth("poll", UINT_MAX, -EIO);
    assert_int_equal(weir_executor_post(s.executor, &p.task), 0);
    assert_int_equal(turn(&s), 1);
    assert_int_equal(atomic_load(&p.runs), 1);
    /* But there is, though the rebuild is a success, as long as polls go on failing. */
    turn(&s);
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(rebuilds(&s), 1);
    assert_int_equal(harness_log_end(), 4 + 3);
    stage_close(&s);
}

static int failing_task(weir_task *task)
{
    (void)task;
    return -EIO;
}

static int refuse_all(void *arg, int64_t timeout_ns)
{
    (void)timeout_ns;
    atomic_fetch_add((atomic_int *)arg, 1);
    return -EBADF;
}

static void s037_shutdown_ends_a_loop_whose_every_turn_fails(void **state)
{
    (void)state;
    atomic_int polls = 0;
    weir_script *script = NULL;
    weir_group *group = NULL;
    weir_task task = { .run = failing_task };
    assert_int_equal(weir_script_new(&script), 0);
    weir_script_set_poll_hook(script, refuse_all, &polls);
    assert_int_equal(weir_script_fail_rebuilds(script, UINT_MAX, -EMFILE), 0);
    harness_log_begin(WEIR_LOG_ERROR);
    weir_group_config config = { .loops = 1, .io_source = weir_script_source(script) };
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    assert_int_equal(weir_executor_post(weir_group_at(group, 0), &task), 0);
    WAIT_FOR(atomic_load(&polls) >= 3);
    assert_int_equal(weir_group_shutdown(group, WEIR_MS(20), WEIR_SECONDS(30)),
                     0); /* a quiet period as well */
    assert_int_equal(weir_future_wait(weir_group_terminated(group), WEIR_SECONDS(20)), 0);
    weir_group_free(group);
    assert_true(harness_log_end() >= 6);
    weir_script_free(script);
}

static void s037_shutdown_by_hand_ends_it_too(void **state)
{
    (void)state;
    atomic_int polls = 0;
    stage s = { 0 };
    channel c = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    channel_open(&c, &s, 5);
    channel_close(&c);
    harness_log_begin(WEIR_LOG_ERROR);
    weir_script_set_poll_hook(s.script, refuse_all, &polls);
    assert_int_equal(weir_script_fail_rebuilds(s.script, UINT_MAX, -EMFILE), 0);
    assert_int_equal(weir_group_shutdown(s.group, WEIR_MS(100), WEIR_SECONDS(1)), 0);
    assert_int_equal(weir_future_await(weir_group_terminated(s.group)), 0);
    harness_log_end();
    stage_close(&s);
}

static void s086_a_failed_poll_leads_to_a_rebuild_and_all_goes_on(void **state)
{
    (void)state;
    static const int codes[] = { -EBADF, -EINVAL, -EFAULT, -ENOMEM };
    stage s = { 0 };
    stage_open(&s, (weir_group_config){ 0 });
    open_channels(&s);
    harness_log_begin(WEIR_LOG_ERROR);
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        weir_script_set_poll_hook(s.script, NULL, NULL);
        assert_int_equal(weir_script_answer_polls(s.script, 1, codes[i]), 0);
        assert_int_equal(turn(&s), 0);
        weir_script_set_poll_hook(s.script, stage_poll, &s);
        assert_int_equal(rebuilds(&s), i + 1);
        for (int j = 0; j < CHANNELS; j++)
            assert_echoes(&channels[j]);
    }
    harness_log_end();
    close_channels();
    stage_close(&s);
}

static void s087_what_cannot_be_moved_fails_alone(void **state)
{
    (void)state;
    stage s = { 0 };
    stage_open(&s, (weir_group_config){ .spin_limit = 3 });
    open_channels(&s);
    assert_int_equal(weir_script_fail_move(s.script, 10 + 31, -ENOSPC), 0);
    harness_log_begin(WEIR_LOG_ERROR);
    turns(&s, 3);
    assert_int_equal(rebuilds(&s), 1);
    turn(&s);
    for (int i = 0; i < CHANNELS; i++) {
        assert_int_equal(channels[i].finals, i == 31);
        assert_int_equal(channels[i].code, i == 31 ? -ENOSPC : 0);
        if (i != 31)
            assert_echoes(&channels[i]);
    }
    harness_log_end();
    close_channels();
    stage_close(&s);
}

/* Over epoll ---------------------------------------------------------------------------------- */

/* The kernel, but for waits that end early. */
static struct {
    weir_sys calls;
    unsigned early, waits;
} kernel;

static int early_wait(weir_sys *self, int epoll, struct epoll_event *events, int max,
                      int64_t timeout_ns)
{
    kernel.waits++;
    if (kernel.early > 0) {
        kernel.early--;
        return 0;
    }
    return weir__sys_linux()->epoll_wait(self, epoll, events, max, timeout_ns);
}

static int far_ends[CHANNELS];

/* Fifty channels over pairs of sockets. */
static void open_pairs(stage *s, weir_group_config config)
{
    *s = (stage){ 0 };
    config.io = WEIR_IO_EPOLL;
    stage_open_over(s, config);
    kernel.calls = *weir__sys_linux();
    kernel.calls.epoll_wait = early_wait;
    kernel.early = kernel.waits = 0;
    s->loop->io->sys = &kernel.calls;
    for (int i = 0; i < CHANNELS; i++) {
        int fds[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds),
                         0);
        far_ends[i] = fds[1];
        channels[i] = (channel){ 0 };
        channel_open(&channels[i], s, fds[0]);
    }
}

static void close_pairs(stage *s)
{
    for (int i = 0; i < CHANNELS; i++) {
        close(far_ends[i]);
        channel_close(&channels[i]);
    }
    stage_close(s);
}

/* All but one, -1: none, send back what they get. */
static void assert_pairs_echo(stage *s, int but)
{
    for (int i = 0; i < CHANNELS; i++) {
        if (i != but)
            assert_int_equal(write(far_ends[i], &i, sizeof i), sizeof i);
    }
    for (int i = 0; i < 4; i++)
        weir_loop_run_once(s->loop, 0);
    for (int i = 0; i < CHANNELS; i++) {
        int got = -1;
        if (i == but)
            continue;
        assert_int_equal(read(far_ends[i], &got, sizeof got), sizeof got);
        assert_int_equal(got, i);
    }
    /* That they can be written to is told; and a pool with something in it would be emptied in the
     * middle of a wait. */
    weir_loop_run_once(s->loop, 0);
    weir_pool_trim();
    weir_pool_trim();
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void s082_over_epoll_a_new_one_takes_over(void **state)
{
    (void)state;
    stage s;
    open_pairs(&s, (weir_group_config){ 0 });
    assert_pairs_echo(&s, -1);
    int old = weir_loop_descriptor(s.loop);
    size_t before = count_entries("/proc/self/fd");
    uint64_t controls = loop_stats(&s).controls;
    kernel.early = 511;
    turns(&s, 511);
    assert_int_equal(kernel.early, 0);
    assert_int_equal(rebuilds(&s), 0);
    /* What comes in the very turn of the rebuild is not lost either. */
    kernel.early = 1;
    assert_int_equal(write(far_ends[3], "x", 1), 1);
    harness_log_begin(WEIR_LOG_WARN);
    turn(&s);
    assert_true(harness_log_has("512 times"));
    assert_int_equal(harness_log_end(), 1);
    assert_int_equal(rebuilds(&s), 1);
    assert_int_not_equal(weir_loop_descriptor(s.loop), old);
    assert_false(is_open(old));
    assert_int_equal(count_entries("/proc/self/fd"), before);
    assert_int_equal(loop_stats(&s).controls - controls, CHANNELS + 1); /* and the wake-up */
    int echoes = channels[3].echoes;
    weir_loop_run_once(s.loop, 0);
    assert_int_equal(channels[3].echoes, echoes + 1);
    char got;
    assert_int_equal(read(far_ends[3], &got, 1), 1);
    assert_pairs_echo(&s, -1);
    /* It can be woken, too. */
    probe p = PROBE;
    assert_int_equal(weir_executor_post(s.executor, &p.task), 0);
    assert_int_equal(turn(&s), 1);
    close_pairs(&s);
}

static int interrupt_waits(void *arg, const char *call, size_t *length)
{
    (void)length;
    unsigned *left = arg;
    return strcmp(call, "epoll_wait") == 0 && *left > 0 && (*left)-- > 0 ? -EINTR : 0;
}

static void s085_over_epoll_600_signals_do_not_lead_to_a_rebuild(void **state)
{
    (void)state;
    stage s;
    unsigned left = 600;
    open_pairs(&s, (weir_group_config){ 0 });
    weir_fault_set(interrupt_waits, &left);
    turns(&s, 600);
    weir_fault_set(NULL, NULL);
    assert_int_equal(left, 0);
    assert_int_equal(rebuilds(&s), 0);
    assert_pairs_echo(&s, -1);
    close_pairs(&s);
}

static void s086_over_epoll_it_survives_the_loss_of_its_descriptor(void **state)
{
    (void)state;
    stage s;
    open_pairs(&s, (weir_group_config){ 0 });
    size_t before = count_entries("/proc/self/fd");
    harness_log_begin(WEIR_LOG_ERROR);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(close(weir_loop_descriptor(s.loop)), 0);
        weir_loop_run_once(s.loop, 0);
        assert_int_equal(rebuilds(&s), i); /* once is enough */
        assert_pairs_echo(&s, -1);
        assert_int_equal(rebuilds(&s), i);
        assert_int_equal(count_entries("/proc/self/fd"), before);
    }
    /* The number may be somebody else's by now, whose it stays. */
    int number = weir_loop_descriptor(s.loop);
    assert_int_equal(close(number), 0);
    int taken = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(taken, number);
    weir_loop_run_once(s.loop, 0);
    assert_int_equal(rebuilds(&s), 4);
    assert_pairs_echo(&s, -1);
    assert_true(is_open(taken));
    close(taken);
    assert_true(harness_log_has("waiting for events failed"));
    assert_int_equal(harness_log_end(), 4);
    close_pairs(&s);
}

static void s087_over_epoll_one_that_cannot_be_moved_fails_alone(void **state)
{
    (void)state;
    stage s;
    open_pairs(&s, (weir_group_config){ .spin_limit = 3 });
    kernel.early = 3;
    harness_log_begin(WEIR_LOG_ERROR);
    /* The first is for the wake-up, then one for each. */
    harness_fail_nth("epoll_ctl", 1 + 1 + 20, -ENOSPC);
    turns(&s, 3);
    harness_fail_end();
    assert_int_equal(rebuilds(&s), 1);
    weir_loop_run_once(s.loop, 0);
    int lost = -1, count = 0;
    for (int i = 0; i < CHANNELS; i++) {
        if (channels[i].finals > 0) {
            lost = i;
            count++;
        }
    }
    assert_int_equal(count, 1);
    assert_int_equal(channels[lost].finals, 1);
    assert_int_equal(channels[lost].code, -ENOSPC);
    assert_true(harness_log_has("could not be moved"));
    assert_pairs_echo(&s, lost);
    harness_log_end();
    close_pairs(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s082_512_early_returns_lead_to_one_rebuild),
        weir_case(s082_limit_can_be_set_or_switched_off),
        weir_case(s082_rebuild_that_fails_is_tried_again),
        weir_case(s083_a_normal_return_resets_the_count),
        weir_case(s083_a_return_with_a_reason_is_normal),
        weir_case(s084_from_four_early_returns_on_a_line_is_logged),
        weir_case(s085_an_interrupted_wait_is_no_spin),
        weir_case(s046_a_failed_poll_is_logged_and_the_loop_lives),
        weir_case(s046_a_failure_that_stays_does_not_spin),
        weir_case(s037_shutdown_ends_a_loop_whose_every_turn_fails),
        weir_case(s037_shutdown_by_hand_ends_it_too),
        weir_case(s086_a_failed_poll_leads_to_a_rebuild_and_all_goes_on),
        weir_case(s087_what_cannot_be_moved_fails_alone),
        weir_case(s082_over_epoll_a_new_one_takes_over),
        weir_case(s085_over_epoll_600_signals_do_not_lead_to_a_rebuild),
        weir_case(s086_over_epoll_it_survives_the_loss_of_its_descriptor),
        weir_case(s087_over_epoll_one_that_cannot_be_moved_fails_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
