/* SPDX-License-Identifier: MIT */
/* Datagram channels in motion and without memory: between loops, in steady state, and with every
 * call failing once. */
#include "transport/datagrams.h"

/* Moving --------------------------------------------------------------------------------------- */

/* A Unix socket loses nothing, so what is missing or out of order in the end was weir's doing. */
static void it_moves_while_they_flow(void **state)
{
    enum { MANY = 2000, MOVES = 20 };
    char there[64];
    snprintf(there, sizeof there, "unix:@weir-test-moving-%d", (int)getpid());
    weir_group *group = group_of(state, 3);
    end *b = end_bound(group, there), *a = end_open(group, there);
    weir_address of_b = local_of(b->channel);
    assert_int_equal(connect_to(a->channel, &of_b), 0);
    size_t written = 0;
    for (int move = 0; move < MOVES; move++) {
        for (; written < (size_t)(move + 1) * MANY / MOVES; written++) {
            weir_buf *content = weir_buf_from(&written, sizeof written);
            weir_channel_write_and_flush(a->channel, &content->msg, NULL);
        }
        weir_channel *moved = move % 2 == 0 ? b->channel : a->channel;
        assert_int_equal(move_within(group, moved), 0);
    }
    WAIT_FOR(atomic_load(&b->count) == MANY);
    for (size_t i = 0; i < MANY; i++) {
        size_t number;
        assert_int_equal(weir_buf_read_bytes(datagram_at(b, i)->content, &number, sizeof number),
                         0);
        assert_int_equal(number, i);
    }
    assert_int_equal(atomic_load(&a->errors), 0);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Steady state --------------------------------------------------------------------------------- */

typedef struct ball {
    weir_address to;
    atomic_int left;
} ball;

static void throw_back(weir_ctx *ctx, weir_msg *msg)
{
    ball *self = weir_ctx_arg(ctx);
    weir_datagram *datagram = (weir_datagram *)msg;
    if (atomic_fetch_sub(&self->left, 1) > 0) {
        weir_datagram *answer = weir_datagram_answer(datagram, weir_buf_retain(datagram->content));
        weir_ctx_write_and_flush(ctx, &answer->msg, NULL);
    }
    weir_msg_release(msg);
}

static const weir_handler_type thrower = { .name = "thrower", .on_read = throw_back };

static weir_channel *player(weir_group *group, ball *thrown)
{
    weir_address local = address_of("127.0.0.1:0");
    weir_channel *channel;
    assert_int_equal(weir_channel_new(&channel, WEIR_SOCKET_DATAGRAM, &local, NULL), 0);
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(channel), "thrower", &thrower, thrown), 0);
    assert_int_equal(put_on(group, channel), 0);
    assert_int_equal(bind_to(channel, "127.0.0.1:0"), 0);
    return channel;
}

static void play(weir_channel *from, ball *thrown, int times)
{
    atomic_store(&thrown->left, times);
    weir_datagram *first = weir_datagram_new(text_buf("ball"), &thrown->to, NULL);
    weir_channel_write_and_flush(from, &first->msg, NULL);
    WAIT_FOR(atomic_load(&thrown->left) < 0);
}

static uint64_t allocations(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.allocations;
}

/* 1,000 to and fro: not one for each, but the one call from this thread. */
static void a_datagram_allocates_nothing_in_steady_state(void **state)
{
    weir_group *group = group_of(state, 1);
    ball thrown = { 0 };
    weir_channel *a = player(group, &thrown), *b = player(group, &thrown);
    thrown.to = local_of(b);
    play(a, &thrown, 1000);
    uint64_t before = allocations();
    play(a, &thrown, 1000);
    assert_true(allocations() - before < 20);
    close_now(a);
    close_now(b);
    WAIT_FOR(weir_channel_get_state(a) == WEIR_CHANNEL_UNREGISTERED &&
             weir_channel_get_state(b) == WEIR_CHANNEL_UNREGISTERED);
    weir_channel_release(a);
    weir_channel_release(b);
    end_group(group);
}

/* Options from elsewhere ----------------------------------------------------------------------- */

/* For the thread sanitizer: who looks while the loop changes them. */
static void options_can_be_read_while_they_change(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0");
    weir_address of_a = local_of(a->channel);
    for (int i = 1; i < 200; i++) {
        int64_t bytes, delivers, offloads;
        set_option(a->channel, WEIR_OPTION_MAX_DATAGRAM_BYTES, 100 + i);
        set_option(a->channel, WEIR_OPTION_DELIVER_TRUNCATED, i % 2);
        set_option(a->channel, WEIR_OPTION_RECEIVE_OFFLOAD, i % 2);
        assert_int_equal(
            weir_channel_get_option(a->channel, WEIR_OPTION_MAX_DATAGRAM_BYTES, &bytes), 0);
        assert_int_equal(
            weir_channel_get_option(a->channel, WEIR_OPTION_DELIVER_TRUNCATED, &delivers), 0);
        assert_int_equal(
            weir_channel_get_option(a->channel, WEIR_OPTION_RECEIVE_OFFLOAD, &offloads), 0);
        assert_true(bytes <= 2048);
        assert_int_equal(send_text(a->channel, "to myself", &of_a), 0);
        WAIT_FOR(atomic_load(&a->count) == (size_t)i);
    }
    end_close(a);
    end_group(group);
}

/* Faults --------------------------------------------------------------------------------------- */

/* Reading pauses when something has run out, and goes on. */
static void recovers_from(void **state, const char *call, int code)
{
    weir_group *group = group_of(state, 2);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    assert_int_equal(send_text(a->channel, "before", &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    settle_channel(b->channel);
    blocker held;
    block(&held, weir_loop_executor(weir_channel_loop(b->channel)));
    assert_int_equal(send_text(a->channel, "meanwhile", &of_b), 0);
    settle_channel(a->channel);
    /* io_uring has received it by then, and passes on the buffer that it was received into. */
    int times = ((const backend *)*state)->kind == WEIR_IO_URING ? 1 : 2;
    fail_from_to(call, code, 1, times);
    unblock(&held);
    WAIT_FOR(atomic_load(&b->count) == 2);
    weir_fault_set(NULL, NULL);
    assert_true(atomic_load(&fault.seen) >= times);
    assert_true(got(b, 1, "meanwhile"));
    assert_true(weir_channel_is_active(b->channel));
    assert_int_equal(atomic_load(&b->errors), 0);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void without_buffers_it_pauses_and_recovers(void **state)
{
    recovers_from(state, "pool", -ENOMEM);
}

static void a_pause_can_be_cut_short_by_closing(void **state)
{
    for (int is_moving = 0; is_moving < 2; is_moving++) {
        weir_group *group = group_of(state, 2);
        end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
        weir_address of_b = local_of(b->channel);
        blocker held;
        block(&held, weir_loop_executor(weir_channel_loop(b->channel)));
        assert_int_equal(send_text(a->channel, "meanwhile", &of_b), 0);
        settle_channel(a->channel);
        fail_from_to("pool", -ENOMEM, 1, 1);
        unblock(&held);
        WAIT_FOR(atomic_load(&fault.seen) == 1);
        weir_fault_set(NULL, NULL);
        settle_channel(b->channel);
        if (is_moving) {
            assert_int_equal(move_within(group, b->channel), 0);
            WAIT_FOR(atomic_load(&b->count) == 1);
        }
        end_close(b);
        end_close(a);
        end_group(group);
    }
}

/* Whatever fails, nothing hangs, nothing is left, and each promise comes to its end. */
static void exchange(void **state, const char *call, int code, int at, int *seen)
{
    weir_group *group = NULL;
    char here[64], there[64];
    snprintf(here, sizeof here, "unix:/tmp/weir-test-faults-a-%d", (int)getpid());
    snprintf(there, sizeof there, "unix:@weir-test-faults-b-%d", (int)getpid());
    const char *addresses[2][2] = { { "127.0.0.1:0", "0.0.0.0:0" }, { here, there } };
    const backend *io = *state;
    weir_group_config config = { .loops = io->has_loops ? 1 : 0, .io = io->kind };
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    fail_from_to(call, code, at, at);
    for (int kind = 0; kind < 2; kind++) {
        weir_channel *channels[2] = { NULL, NULL };
        end *ends[2] = { end_new(), end_new() };
        bool is_bound = true;
        for (int i = 0; i < 2; i++) {
            weir_address address = address_of(addresses[kind][i]);
            if (weir_channel_new(&channels[i], WEIR_SOCKET_DATAGRAM, &address, NULL) < 0) {
                is_bound = false;
                continue;
            }
            if (weir_pipeline_add_last(weir_channel_pipeline(channels[i]), "end", &end_type,
                                       ends[i]) < 0)
                is_bound = false;
            weir_promise *promises[2] = { weir_channel_promise(channels[i]),
                                          weir_channel_promise(channels[i]) };
            weir_group_register(group, channels[i], promises[0]);
            weir_channel_bind(channels[i], &address, promises[1]);
            for (int k = 0; k < 2; k++) {
                if (promises[k] == NULL || end_of(promises[k]) < 0)
                    is_bound = false;
            }
        }
        weir_address to;
        if (is_bound && weir_channel_local_address(channels[1], &to) == 0) {
            weir_address loopback = address_of("127.0.0.1:0");
            if (kind == 0) {
                weir_address_set_port(&loopback, weir_address_port(&to));
                to = loopback;
            }
            for (int i = 0; i < 5; i++) {
                weir_promise *promise = weir_channel_promise(channels[0]);
                weir_buf *content = weir_buf_from("fault", 5);
                weir_datagram *datagram = weir_datagram_new(content, &to, NULL);
                if (datagram != NULL && promise != NULL)
                    weir_channel_write_and_flush(channels[0], &datagram->msg, promise);
                else if (datagram != NULL)
                    weir_msg_release(&datagram->msg);
                else if (content != NULL)
                    weir_buf_release(content);
                if (promise != NULL && datagram == NULL)
                    weir_promise_set(promise, -ENOMEM);
                if (promise != NULL)
                    end_of(promise);
            }
        }
        for (int i = 0; i < 2; i++) {
            if (channels[i] != NULL) {
                weir_future *closed = weir_future_retain(weir_channel_closed(channels[i]));
                weir_channel_close(channels[i], NULL);
                weir_future_await(closed);
                weir_future_release(closed);
                WAIT_FOR(weir_channel_get_state(channels[i]) == WEIR_CHANNEL_UNREGISTERED);
            }
            end_forget(ends[i]);
            weir_channel_release(channels[i]);
            free(ends[i]);
        }
    }
    weir_fault_set(NULL, NULL);
    *seen = atomic_load(&fault.seen);
    end_group(group);
}

static void every_call_may_fail_once(void **state)
{
    const struct {
        const char *call;
        int code;
    } calls[] = {
        { "alloc", -ENOMEM },       { "pool", -ENOMEM },         { "socket", -EMFILE },
        { "bind", -EADDRINUSE },    { "getsockname", -ENOBUFS }, { "getsockopt", -ENOBUFS },
        { "setsockopt", -ENOBUFS }, { "epoll_ctl", -ENOSPC },    { "sendmmsg", -ENOBUFS },
        { "sendmmsg", -EINTR },     { "recvmmsg", -EINTR },      { "lstat", -EACCES },
        { "unlink", -EACCES },
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int seen = 1;
        for (int at = 1; at <= seen; at++)
            exchange(state, calls[i].call, calls[i].code, at, &seen);
        char left[64];
        snprintf(left, sizeof left, "/tmp/weir-test-faults-a-%d", (int)getpid());
        unlink(left); /* when unlink or lstat failed, it stays */
    }
}

/* Too much at once ----------------------------------------------------------------------------- */

static int no_memory(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    return strcmp(call, "alloc") == 0 ? -ENOMEM : 0;
}

/* Many writes that nobody waits for, while the loop is busy: all, or all but the first few, are
 * lost. */
static void lose_many(end *self, const weir_address *to, int expected)
{
    blocker hold;
    atomic_store(&self->last_error, 0);
    block(&hold, weir_loop_executor(weir_channel_loop(self->channel)));
    for (int i = 0; i < 50; i++) {
        weir_datagram *datagram = weir_datagram_new(filled_buf(100, 'x'), to, NULL);
        weir_fault_set(expected == -ENOMEM ? no_memory : NULL, NULL);
        weir_channel_write(self->channel, &datagram->msg, NULL);
        weir_fault_set(NULL, NULL);
    }
    unblock(&hold);
    WAIT_FOR(atomic_load(&self->last_error) == expected);
}

/* It is told why, and the log does not grow with what is lost. */
static void what_is_lost_on_the_way_to_the_loop_is_logged_once(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    set_option(a->channel, WEIR_OPTION_MAX_OUTBOUND_BYTES, 500);
    settle_channel(a->channel);
    harness_log_begin(WEIR_LOG_WARN);
    lose_many(a, &of_b, WEIR_ELIMIT);
    lose_many(a, &of_b, -ENOMEM); /* it has not been better in between */
    assert_true(harness_log_has("limit exceeded"));
    assert_int_equal(harness_log_end(), 1);

    settle_channel(a->channel); /* now it has */
    harness_log_begin(WEIR_LOG_WARN);
    lose_many(a, &of_b, -ENOMEM);
    assert_int_equal(harness_log_end(), 1);
    end_close(a);
    end_close(b);
    end_group(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_BACKEND(it_moves_while_they_flow),
        ON_EVERY_BACKEND(a_datagram_allocates_nothing_in_steady_state),
        ON_EVERY_BACKEND(options_can_be_read_while_they_change),
        ON_EVERY_BACKEND(without_buffers_it_pauses_and_recovers),
        ON_CALLING_BACKENDS(a_pause_can_be_cut_short_by_closing),
        ON_EVERY_BACKEND(every_call_may_fail_once),
        ON_EVERY_BACKEND(what_is_lost_on_the_way_to_the_loop_is_logged_once),
    };
    return cmocka_run_group_tests_name("transport.datagram_flow", tests, NULL, NULL);
}
