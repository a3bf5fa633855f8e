/* SPDX-License-Identifier: MIT */
/* Files through streams: all of their bytes, in order with the others, and no descriptor left. */
#include "transport/datagrams.h"

#include <weir/file.h>

#include <netinet/in.h>
#include <sys/stat.h>

/* Files ---------------------------------------------------------------------------------------- */

typedef struct test_file {
    char path[64];
    size_t length;
} test_file;

static uint8_t byte_at(uint64_t at)
{
    return (uint8_t)(at * 7 + (at >> 8) + (at >> 16));
}

/* With bytes that say where they belong. */
static test_file file_of(size_t length)
{
    test_file file = { .length = length };
    snprintf(file.path, sizeof file.path, "/tmp/weir-test-file-XXXXXX");
    int fd = mkstemp(file.path);
    assert_true(fd >= 0);
    uint8_t bytes[4096];
    for (size_t at = 0; at < length; at += sizeof bytes) {
        size_t size = length - at < sizeof bytes ? length - at : sizeof bytes;
        for (size_t i = 0; i < size; i++)
            bytes[i] = byte_at(at + i);
        assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    }
    close(fd);
    return file;
}

static weir_file_region *region_of(const test_file *file, uint64_t offset, uint64_t length)
{
    weir_file_region *region;
    assert_int_equal(weir_file_region_open(&region, file->path, offset, length, NULL), 0);
    return region;
}

/* Streams -------------------------------------------------------------------------------------- */

/* Two connected sockets: fds[0] for a channel, fds[1] for the test. */
static void connected_pair(bool is_tcp, int fds[2])
{
    if (!is_tcp) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        return;
    }
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&address, length), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fds[1] >= 0);
    close(listener);
}

/* Reads just so many bytes. */
static void take(int fd, uint8_t *to, size_t length)
{
    while (length > 0) {
        ssize_t came = read(fd, to, length);
        assert_true(came > 0);
        to += came;
        length -= (size_t)came;
    }
}

static void expect_text(int fd, const char *text)
{
    uint8_t bytes[256];
    take(fd, bytes, strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
}

static void expect_file(int fd, uint64_t offset, uint64_t length)
{
    static uint8_t bytes[65536];
    for (uint64_t at = 0; at < length;) {
        size_t size = length - at < sizeof bytes ? (size_t)(length - at) : sizeof bytes;
        take(fd, bytes, size);
        for (size_t i = 0; i < size; i++) {
            if (bytes[i] != byte_at(offset + at + i))
                fail_msg("another byte at %llu", (unsigned long long)(offset + at + i));
        }
        at += size;
    }
}

static weir_promise *write_msg(weir_channel *channel, weir_msg *msg)
{
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_write(channel, msg, promise);
    return promise;
}

/* Bytes ---------------------------------------------------------------------------------------- */

static void parts_in_order(void **state, bool is_tcp)
{
    int fds[2];
    test_file file = file_of(300000);
    weir_group *group = group_of(state, 1);
    connected_pair(is_tcp, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    weir_promise *promises[7];
    promises[0] = write_msg(a->channel, &text_buf("before ")->msg);
    promises[1] = write_msg(a->channel, &region_of(&file, 0, 0)->msg);
    promises[2] = write_msg(a->channel, &text_buf(" between ")->msg);
    promises[3] = write_msg(a->channel, &region_of(&file, 299999, 1)->msg);
    promises[4] = write_msg(a->channel, &region_of(&file, 300000, 0)->msg);
    promises[5] = write_msg(a->channel, &region_of(&file, 1000, 250000)->msg);
    promises[6] = write_msg(a->channel, &text_buf(" behind")->msg);
    weir_channel_flush(a->channel);
    expect_text(fds[1], "before ");
    expect_file(fds[1], 0, 300000);
    expect_text(fds[1], " between ");
    expect_file(fds[1], 299999, 1);
    expect_file(fds[1], 1000, 250000);
    expect_text(fds[1], " behind");
    for (int i = 0; i < 7; i++)
        assert_int_equal(end_of(promises[i]), 0);
    weir_channel_stats stats;
    weir_channel_get_stats(a->channel, &stats);
    assert_int_equal(stats.bytes_out, 7 + 300000 + 9 + 1 + 250000 + 7);
    assert_int_equal(stats.messages_out, 7);
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

static void files_go_in_order_with_buffers(void **state)
{
    parts_in_order(state, true);
    parts_in_order(state, false);
}

static void an_empty_file_is_sent(void **state)
{
    int fds[2];
    test_file file = file_of(0);
    weir_group *group = group_of(state, 1);
    connected_pair(true, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    weir_promise *promise = write_msg(a->channel, &region_of(&file, 0, 0)->msg);
    weir_channel_flush(a->channel);
    assert_int_equal(end_of(promise), 0);
    promise = write_msg(a->channel, &text_buf("x")->msg);
    weir_channel_flush(a->channel);
    assert_int_equal(end_of(promise), 0);
    expect_text(fds[1], "x");
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

/* Progress ------------------------------------------------------------------------------------- */

typedef struct meter {
    atomic_uint_fast64_t last;
    atomic_int calls, backwards;
} meter;

static void on_progress(weir_file_region *region, uint64_t sent, void *arg)
{
    meter *self = arg;
    assert_true(sent <= region->length);
    if (sent < atomic_exchange(&self->last, sent))
        atomic_fetch_add(&self->backwards, 1);
    atomic_fetch_add(&self->calls, 1);
}

/* Sparse, so that it costs no room. */
static void hundred_megabytes_arrive_with_progress(void **state)
{
    enum { MANY = 100 * 1024 * 1024 };
    int fds[2];
    test_file file = file_of(0);
    assert_int_equal(truncate(file.path, MANY), 0);
    weir_group *group = group_of(state, 1);
    connected_pair(true, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    meter meter_of = { 0 };
    weir_file_region *region = region_of(&file, 0, 0);
    assert_int_equal(region->length, MANY);
    region->on_progress = on_progress;
    region->arg = &meter_of;
    weir_promise *promise = write_msg(a->channel, &region->msg);
    weir_channel_flush(a->channel);
    static uint8_t bytes[1024 * 1024];
    for (size_t left = MANY; left > 0; left -= sizeof bytes) {
        take(fds[1], bytes, sizeof bytes);
        assert_int_equal(bytes[0] | bytes[sizeof bytes - 1], 0);
    }
    assert_int_equal(end_of(promise), 0);
    settle_channel(a->channel);
    assert_int_equal(atomic_load(&meter_of.last), MANY);
    assert_int_equal(atomic_load(&meter_of.backwards), 0);
    assert_true(atomic_load(&meter_of.calls) > 1);
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

/* Each of the writes has its own way, on two loops, and both tell the same function. */
static void one_region_through_two_channels(void **state)
{
    enum { SIZE = 3000000 };
    int first[2], second[2];
    test_file file = file_of(SIZE);
    weir_group *group = group_of(state, 2);
    connected_pair(true, first);
    connected_pair(false, second);
    end *a = end_from(group, WEIR_SOCKET_STREAM, first[0]);
    end *b = end_from(group, WEIR_SOCKET_STREAM, second[0]);
    meter meter_of = { 0 };
    weir_file_region *region = region_of(&file, 0, 0);
    region->on_progress = on_progress;
    region->arg = &meter_of;
    weir_msg_retain(&region->msg);
    weir_promise *promises[2] = { write_msg(a->channel, &region->msg),
                                  write_msg(b->channel, &region->msg) };
    weir_channel_flush(a->channel);
    weir_channel_flush(b->channel);
    uint64_t at = 0;
    for (; at < SIZE; at += 100000) { /* by turns, so that both are under way */
        expect_file(first[1], at, 100000);
        expect_file(second[1], at, 100000);
    }
    assert_int_equal(end_of(promises[0]), 0);
    assert_int_equal(end_of(promises[1]), 0);
    settle_channel(a->channel);
    settle_channel(b->channel);
    assert_int_equal(atomic_load(&meter_of.last), SIZE);
    end_close(a);
    end_close(b);
    close(first[1]);
    close(second[1]);
    unlink(file.path);
    end_group(group);
}

/* Several in one flush: each tells its end. */
static void short_ones_tell_their_ends(void **state)
{
    int fds[2];
    test_file file = file_of(100);
    weir_group *group = group_of(state, 1);
    connected_pair(false, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    meter meters[3] = { 0 };
    weir_promise *last = NULL;
    blocker held;
    block(&held, weir_loop_executor(weir_channel_loop(a->channel)));
    for (int i = 0; i < 3; i++) {
        weir_file_region *region = region_of(&file, 0, (uint64_t)i + 1);
        region->on_progress = on_progress;
        region->arg = &meters[i];
        weir_promise_release(last);
        last = write_msg(a->channel, &region->msg);
    }
    weir_channel_flush(a->channel);
    unblock(&held);
    assert_int_equal(end_of(last), 0);
    settle_channel(a->channel);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&meters[i].last), i + 1);
        assert_int_equal(atomic_load(&meters[i].calls), 1);
    }
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

static void close_the_channel(weir_file_region *region, uint64_t sent, void *arg)
{
    (void)region;
    (void)sent;
    weir_channel_close(((end *)arg)->channel, NULL);
}

static void closing_in_on_progress(void **state)
{
    int fds[2];
    test_file file = file_of(5000000);
    weir_group *group = group_of(state, 1);
    connected_pair(true, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    weir_file_region *region = region_of(&file, 0, 0);
    region->on_progress = close_the_channel;
    region->arg = a;
    weir_promise *promise = write_msg(a->channel, &region->msg);
    weir_channel_flush(a->channel);
    assert_int_equal(end_of(promise), WEIR_ECLOSED);
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

/* Ends ----------------------------------------------------------------------------------------- */

/* What is behind it would be taken for a part of it. */
static void a_file_that_is_shorter_ends_the_channel(void **state)
{
    for (int has_promise = 0; has_promise < 2; has_promise++) {
        int fds[2];
        test_file file = file_of(1000);
        weir_group *group = group_of(state, 1);
        connected_pair(true, fds);
        end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
        int fd = open(file.path, O_RDONLY | O_CLOEXEC);
        weir_file_region *region = weir_file_region_new(fd, 500, 501);
        weir_promise *promise = has_promise ? weir_channel_promise(a->channel) : NULL;
        weir_promise *behind = weir_channel_promise(a->channel);
        blocker held;
        block(&held, weir_loop_executor(weir_channel_loop(a->channel)));
        weir_channel_write(a->channel, &region->msg, promise);
        weir_channel_write_and_flush(a->channel, &text_buf("behind")->msg, behind);
        unblock(&held);
        if (has_promise)
            assert_int_equal(end_of(promise), WEIR_EOF);
        assert_int_equal(end_of(behind), WEIR_EOF);
        assert_int_equal(weir_future_await(weir_channel_closed(a->channel)), 0);
        WAIT_FOR(weir_channel_get_state(a->channel) == WEIR_CHANNEL_UNREGISTERED);
        assert_int_equal(atomic_load(&a->errors), has_promise ? 0 : 1);
        if (!has_promise)
            assert_int_equal(atomic_load(&a->last_error), WEIR_EOF);
        expect_file(fds[1], 500, 500);
        uint8_t byte;
        assert_int_equal(read(fds[1], &byte, 1), 0);
        end_close(a);
        close(fds[1]);
        unlink(file.path);
        end_group(group);
    }
}

static void a_file_that_is_cut_meanwhile_ends_the_channel(void **state)
{
    enum { SIZE = 20000000 };
    int fds[2];
    test_file file = file_of(SIZE);
    weir_group *group = group_of(state, 1);
    connected_pair(false, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    weir_promise *promise = write_msg(a->channel, &region_of(&file, 0, 0)->msg);
    weir_channel_flush(a->channel);
    expect_file(fds[1], 0, 100000);
    assert_int_equal(truncate(file.path, SIZE / 2), 0);
    expect_file(fds[1], 100000, SIZE / 2 - 100000);
    assert_int_equal(end_of(promise), WEIR_EOF);
    uint8_t byte;
    assert_int_equal(read(fds[1], &byte, 1), 0);
    assert_int_equal(weir_future_await(weir_channel_closed(a->channel)), 0);
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void closing_in_the_middle_closes_the_file(void **state)
{
    int fds[2];
    test_file file = file_of(5000000);
    weir_group *group = group_of(state, 1);
    connected_pair(true, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    meter meter_of = { 0 };
    weir_file_region *region = region_of(&file, 0, 0);
    int fd = region->fd;
    region->on_progress = on_progress;
    region->arg = &meter_of;
    weir_promise *promise = write_msg(a->channel, &region->msg);
    weir_promise *behind = write_msg(a->channel, &region_of(&file, 0, 0)->msg);
    weir_channel_flush(a->channel);
    expect_file(fds[1], 0, 1000);
    assert_true(is_open(fd));
    close_now(a->channel);
    assert_int_equal(end_of(promise), WEIR_ECLOSED);
    assert_int_equal(end_of(behind), WEIR_ECLOSED);
    WAIT_FOR(weir_channel_get_state(a->channel) == WEIR_CHANNEL_UNREGISTERED);
    assert_false(is_open(fd));
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

static void the_other_side_may_go_in_the_middle(void **state)
{
    int fds[2];
    test_file file = file_of(5000000);
    weir_group *group = group_of(state, 1);
    connected_pair(true, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    weir_promise *promise = write_msg(a->channel, &region_of(&file, 0, 0)->msg);
    weir_channel_flush(a->channel);
    expect_file(fds[1], 0, 1000);
    close(fds[1]);
    assert_true(end_of(promise) < 0);
    assert_int_equal(weir_future_await(weir_channel_closed(a->channel)), 0);
    end_close(a);
    unlink(file.path);
    end_group(group);
}

static void a_cancelled_write_is_left_out(void **state)
{
    int fds[2];
    test_file file = file_of(5000000);
    weir_group *group = group_of(state, 1);
    connected_pair(true, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    weir_promise *first = write_msg(a->channel, &region_of(&file, 0, 0)->msg);
    weir_promise *second = write_msg(a->channel, &region_of(&file, 7, 0)->msg);
    weir_promise *third = write_msg(a->channel, &text_buf("end")->msg);
    weir_channel_flush(a->channel);
    expect_file(fds[1], 0, 1000);
    assert_int_equal(weir_future_cancel(weir_promise_future(first)), -EBUSY);
    assert_int_equal(weir_future_cancel(weir_promise_future(second)), 0);
    expect_file(fds[1], 1000, 4999000);
    expect_text(fds[1], "end");
    assert_int_equal(end_of(first), 0);
    assert_int_equal(end_of(second), -ECANCELED);
    assert_int_equal(end_of(third), 0);
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

static void it_moves_in_the_middle(void **state)
{
    enum { SIZE = 20000000 };
    int fds[2];
    test_file file = file_of(SIZE);
    weir_group *group = group_of(state, 2);
    connected_pair(true, fds);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    meter meter_of = { 0 };
    weir_file_region *region = region_of(&file, 0, 0);
    region->on_progress = on_progress;
    region->arg = &meter_of;
    weir_promise *promise = write_msg(a->channel, &region->msg);
    weir_channel_flush(a->channel);
    for (int i = 0; i < 5; i++) {
        expect_file(fds[1], (uint64_t)i * 100000, 100000);
        assert_int_equal(move_within(group, a->channel), 0);
    }
    expect_file(fds[1], 500000, SIZE - 500000);
    assert_int_equal(end_of(promise), 0);
    settle_channel(a->channel);
    assert_int_equal(atomic_load(&meter_of.last), SIZE);
    assert_int_equal(atomic_load(&meter_of.backwards), 0);
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

/* A file counts nothing for the water marks, and the time it takes is the reader's. */
static void a_slow_reader_gets_all_of_it(void **state)
{
    enum { SIZE = 3000000 };
    int fds[2], small = 4096;
    test_file file = file_of(SIZE);
    weir_group *group = group_of(state, 1);
    connected_pair(false, fds);
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
    weir_promise *promise = write_msg(a->channel, &region_of(&file, 0, 0)->msg);
    weir_channel_flush(a->channel);
    settle_channel(a->channel);
    assert_true(weir_channel_is_writable(a->channel));
    for (uint64_t at = 0; at < SIZE; at += 1000)
        expect_file(fds[1], at, 1000);
    assert_int_equal(end_of(promise), 0);
    end_close(a);
    close(fds[1]);
    unlink(file.path);
    end_group(group);
}

/* Opening and reading -------------------------------------------------------------------------- */

static void errors_name_the_path(void **state)
{
    (void)state;
    test_file file = file_of(100);
    weir_file_region *region;
    weir_error error;
    assert_int_equal(weir_file_region_open(&region, "/nowhere/at-all", 0, 0, &error), -ENOENT);
    assert_non_null(strstr(error.message, "/nowhere/at-all"));
    assert_int_equal(weir_file_region_open(&region, "/tmp", 0, 0, &error), -EISDIR);
    assert_non_null(strstr(error.message, "/tmp"));
    assert_int_equal(weir_file_region_open(&region, file.path, 101, 0, &error), -EINVAL);
    assert_non_null(strstr(error.message, file.path));
    assert_int_equal(weir_file_region_open(&region, file.path, 50, 51, &error), -EINVAL);
    assert_int_equal(weir_file_region_open(&region, file.path, 1, UINT64_MAX, &error), -EINVAL);
    assert_int_equal(weir_file_region_open(NULL, file.path, 0, 0, &error), -EINVAL);
    assert_int_equal(weir_file_region_open(&region, NULL, 0, 0, NULL), -EINVAL);
    assert_int_equal(weir_file_region_open(&region, "/dev/null", 0, 0, &error), -EINVAL);
    assert_null(weir_file_region_new(-1, 0, 1));
    for (unsigned at = 1; at < 4; at++) {
        harness_fail_nth(NULL, at, -ENOMEM);
        int code = weir_file_region_open(&region, file.path, 0, 0, &error);
        harness_fail_end();
        assert_int_equal(code, -ENOMEM);
        assert_non_null(strstr(error.message, file.path));
    }
    unlink(file.path);
}

/* Without a writer to open it would wait. */
static void a_named_pipe_is_refused_at_once(void **state)
{
    (void)state;
    char path[64];
    weir_file_region *region;
    snprintf(path, sizeof path, "/tmp/weir-test-fifo-%d", (int)getpid());
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(weir_file_region_open(&region, path, 0, 0, NULL), -EINVAL);
    unlink(path);
}

static void bytes_can_be_taken_out(void **state)
{
    (void)state;
    test_file file = file_of(1000);
    weir_file_region *region = region_of(&file, 100, 800);
    weir_buf *buf;
    uint64_t at = 0;
    while (at < 800) {
        assert_int_equal(weir_file_region_read(region, at, 300, &buf), 0);
        size_t length = weir_buf_readable(buf);
        assert_int_equal(length, at < 600 ? 300 : 200);
        const uint8_t *bytes = weir_buf_peek(buf, weir_buf_reader(buf), length);
        for (size_t i = 0; i < length; i++)
            assert_int_equal(bytes[i], byte_at(100 + at + i));
        at += length;
        weir_buf_release(buf);
    }
    assert_int_equal(weir_file_region_read(region, 800, 300, &buf), 0);
    assert_null(buf);
    assert_int_equal(weir_file_region_read(region, 801, 300, &buf), -EINVAL);
    assert_int_equal(weir_file_region_read(region, 0, 0, &buf), -EINVAL);
    assert_int_equal(weir_file_region_read(NULL, 0, 1, &buf), -EINVAL);
    harness_fail_nth("pread", 1, -EIO);
    assert_int_equal(weir_file_region_read(region, 0, 300, &buf), -EIO);
    harness_fail_nth("pread", 1, -EINTR);
    assert_int_equal(weir_file_region_read(region, 0, 300, &buf), 0);
    harness_fail_end();
    weir_buf_release(buf);
    harness_fail_nth("pool", 1, -ENOMEM);
    assert_int_equal(weir_file_region_read(region, 0, 300, &buf), -ENOMEM);
    harness_fail_end();
    assert_int_equal(truncate(file.path, 500), 0);
    assert_int_equal(weir_file_region_read(region, 400, 300, &buf), WEIR_EOF);
    assert_int_equal(weir_file_region_read(region, 300, 300, &buf), 0);
    assert_int_equal(weir_buf_readable(buf), 100);
    weir_buf_release(buf);
    weir_msg_release(&region->msg);
    unlink(file.path);
}

/* Faults --------------------------------------------------------------------------------------- */

static void a_failing_call_ends_the_channel_and_the_promise(void **state)
{
    const struct {
        const char *call;
        int code, expected;
    } calls[] = {
        { "sendfile", -EIO, -EIO },
        { "sendfile", -EINTR, 0 },
        { "alloc", -ENOMEM, -ENOMEM },
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (int nth = 1; nth <= 2; nth++) {
            int fds[2];
            test_file file = file_of(1500000);
            weir_group *group = group_of(state, 1);
            connected_pair(true, fds);
            end *a = end_from(group, WEIR_SOCKET_STREAM, fds[0]);
            weir_file_region *region = region_of(&file, 0, 0);
            meter meter_of = { 0 };
            region->on_progress = on_progress;
            region->arg = &meter_of;
            weir_promise *promise = write_msg(a->channel, &region->msg);
            settle_channel(a->channel);
            fail_from_to(calls[i].call, calls[i].code, nth, nth);
            weir_channel_flush(a->channel);
            if (calls[i].expected == 0)
                expect_file(fds[1], 0, 1500000);
            else
                close(fds[1]); /* else a send that goes on would wait */
            int code = end_of(promise);
            weir_fault_set(NULL, NULL);
            /* Which allocation fails is not said: it may be one that is not needed. */
            if (calls[i].expected == 0)
                assert_int_equal(code, 0);
            else
                assert_true(code < 0 || strcmp(calls[i].call, "alloc") == 0);
            if (calls[i].expected == 0)
                close(fds[1]);
            end_close(a);
            unlink(file.path);
            end_group(group);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_BACKEND(files_go_in_order_with_buffers),
        ON_EVERY_BACKEND(an_empty_file_is_sent),
        ON_EVERY_BACKEND(hundred_megabytes_arrive_with_progress),
        ON_EVERY_BACKEND(one_region_through_two_channels),
        ON_EVERY_BACKEND(short_ones_tell_their_ends),
        ON_EVERY_BACKEND(closing_in_on_progress),
        ON_EVERY_BACKEND(a_file_that_is_shorter_ends_the_channel),
        ON_EVERY_BACKEND(a_file_that_is_cut_meanwhile_ends_the_channel),
        ON_EVERY_BACKEND(closing_in_the_middle_closes_the_file),
        ON_EVERY_BACKEND(the_other_side_may_go_in_the_middle),
        ON_EVERY_BACKEND(a_cancelled_write_is_left_out),
        ON_EVERY_BACKEND(it_moves_in_the_middle),
        ON_EVERY_BACKEND(a_slow_reader_gets_all_of_it),
        ON_EVERY_BACKEND(a_failing_call_ends_the_channel_and_the_promise),
        weir_case(errors_name_the_path),
        weir_case(a_named_pipe_is_refused_at_once),
        weir_case(bytes_can_be_taken_out),
    };
    return cmocka_run_group_tests_name("transport.file", tests, NULL, NULL);
}
