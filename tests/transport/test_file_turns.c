/* SPDX-License-Identifier: MIT */
/* Files through streams: each loop turn sends a bounded share, and on_progress is called with the
 * bytes of its own region. */
#include "transport/sockets.h"

#include <weir/fault.h>
#include <weir/file.h>

/* A sparse file without a name. */
static weir_file_region *new_region(size_t length)
{
    char path[] = "/tmp/weir-test-region-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ftruncate(fd, (off_t)length), 0);
    weir_file_region *region = weir_file_region_new(fd, 0, length);
    assert_non_null(region);
    return region;
}

/* The share of a turn ---------------------------------------------------------------------------
 */

enum { SHARE = 16, MANY = 20 * SHARE };

/* Counts the calls of sendfile in each loop turn. Each sends one byte, so the socket never fills
 * and the peer has to read nothing. */
static struct {
    atomic_uint calls, max_in_turn;
    unsigned in_turn;
    uint64_t turn;
    const weir_loop *loop;
} sent;

static int count_sendfile(void *arg, const char *call, size_t *length)
{
    (void)arg;
    weir_loop *loop = weir_loop_current();
    if (strcmp(call, "sendfile") != 0)
        return 0;
    uint64_t turn = loop_stats_of(loop).turns;
    sent.in_turn = loop == sent.loop && turn == sent.turn ? sent.in_turn + 1 : 1;
    sent.loop = loop;
    sent.turn = turn;
    if (sent.in_turn > atomic_load(&sent.max_in_turn))
        atomic_store(&sent.max_in_turn, sent.in_turn);
    atomic_fetch_add(&sent.calls, 1);
    *length = 1;
    return 0;
}

static void close_channel(weir_channel *channel)
{
    weir_channel_close(channel, NULL);
}

static void finish_channel(weir_channel *channel)
{
    weir_channel_finish(channel, NULL);
}

static void shut_down_channel(weir_channel *channel)
{
    weir_channel_shutdown(channel, NULL);
}

static void move_channel(weir_channel *channel)
{
    unsigned before;
    weir_promise *promise = promise_of(channel);
    weir_executor *first = weir_group_at(group, 0);
    bool is_on_first = executor_of(channel) == first;
    weir_channel_move(channel, is_on_first ? weir_group_at(group, 1) : first, promise);
    assert_int_equal(outcome(promise), 0);
    before = atomic_load(&sent.calls);
    WAIT_FOR(atomic_load(&sent.calls) > before + MANY); /* it goes on there */
}

static void send_and(void (*act)(weir_channel *channel))
{
    int peer;
    weir_channel *channel = pair_with(TCP, NULL, &peer);
    weir_promise *promise = promise_of(channel);
    memset(&sent, 0, sizeof sent);
    weir_fault_set(count_sendfile, NULL);
    weir_channel_write_and_flush(channel, &new_region(MIB)->msg, promise);
    WAIT_FOR(atomic_load(&sent.calls) > MANY);
    act(channel);
    weir_channel_close(channel, NULL);
    assert_int_equal(outcome(promise), WEIR_ECLOSED);
    wait_for_close(channel);
    weir_fault_set(NULL, NULL);
    assert_in_range(atomic_load(&sent.max_in_turn), 1, 2 * SHARE);
    weir_channel_release(channel);
    close(peer);
}

static void close_move_or_finish_sends_no_more_than_the_share_of_a_turn(void **state)
{
    (void)state;
    send_and(close_channel);
    send_and(finish_channel);
    send_and(shut_down_channel);
    send_and(move_channel);
}

/* Progress ---------------------------------------------------------------------------------------
 */

typedef struct meter {
    atomic_uint_fast64_t last;
    atomic_uint calls;
    weir_file_region *region; /* to be compared */
    atomic_bool is_wrong;
} meter;

static void on_progress(weir_file_region *region, uint64_t sent_bytes, void *arg)
{
    meter *self = arg;
    if (region != self->region || sent_bytes > region->length)
        atomic_store(&self->is_wrong, true);
    atomic_store(&self->last, sent_bytes);
    atomic_fetch_add(&self->calls, 1);
}

static weir_file_region *metered(meter *self, size_t length)
{
    *self = (meter){ .region = new_region(length) };
    self->region->on_progress = on_progress;
    self->region->arg = self;
    return self->region;
}

/* Fills the socket of a channel past it: how many bytes that were. */
static size_t fill_socket(const weir_channel *channel)
{
    static char bytes[65536];
    size_t total = 0;
    ssize_t code;
    int fd = weir_channel_descriptor(channel);
    while ((code = send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
        total += (size_t)code;
    return total;
}

static void take(int fd, size_t length)
{
    static char bytes[65536];
    while (length > 0) {
        peer_wait(fd, POLLIN);
        ssize_t code = recv(fd, bytes, length < sizeof bytes ? length : sizeof bytes, 0);
        assert_true(code > 0);
        length -= (size_t)code;
    }
}

static void cancel_before_first_byte(int stream, bool has_meter)
{
    enum { FIRST = 100000, SECOND = 50000 };
    meter cancelled, next = { .calls = 0 };
    int peer;
    weir_channel *channel = pair_with(stream, NULL, &peer);
    size_t filled = fill_socket(channel);
    weir_promise *first = promise_of(channel), *second = promise_of(channel);
    weir_channel_write_and_flush(channel, &metered(&cancelled, FIRST)->msg, first);
    settle_calls(channel);
    assert_int_equal(weir_promise_fail(first, -ECANCELED), 0); /* the owner of the write may */
    weir_msg *msg = has_meter ? &metered(&next, SECOND)->msg : &new_region(SECOND)->msg;
    weir_channel_write_and_flush(channel, msg, second);
    take(peer, filled + SECOND);
    assert_int_equal(outcome(second), 0);
    assert_int_equal(outcome(first), -ECANCELED);
    settle(executor_of(channel));
    assert_int_equal(atomic_load(&cancelled.calls), 0);
    assert_int_equal(atomic_load(&next.last), has_meter ? SECOND : 0);
    assert_false(atomic_load(&next.is_wrong));
    end_channel(channel);
    close(peer);
}

static void progress_of_a_cancelled_region_is_not_that_of_the_next(void **state)
{
    (void)state;
    for (int has_meter = 0; has_meter < 2; has_meter++) {
        cancel_before_first_byte(TCP, has_meter);
        cancel_before_first_byte(UNIX, has_meter);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        loop_cases(close_move_or_finish_sends_no_more_than_the_share_of_a_turn),
        loop_cases(progress_of_a_cancelled_region_is_not_that_of_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
