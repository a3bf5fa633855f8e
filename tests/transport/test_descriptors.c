/* SPDX-License-Identifier: MIT */
/* Descriptors through Unix streams: they arrive with their bytes, and none is left open, which the
 * end of every case counts. */
#include "transport/datagrams.h"

#include <weir/descriptors.h>

#include <netinet/in.h>
#include <sys/stat.h>

/* Ends ----------------------------------------------------------------------------------------- */

typedef struct pair {
    weir_group *group;
    end *a, *b;
} pair;

static pair pair_open(void **state, int max_descriptors)
{
    int fds[2];
    pair made = { .group = group_of(state, 2) };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    made.a = end_from(made.group, WEIR_SOCKET_STREAM, fds[0]);
    weir_channel *channel;
    assert_int_equal(weir_channel_from_descriptor(&channel, WEIR_SOCKET_STREAM, fds[1], NULL), 0);
    set_option(channel, WEIR_OPTION_MAX_DESCRIPTORS, max_descriptors);
    made.b = end_new();
    end_take(made.b, made.group, channel);
    return made;
}

static void pair_close(pair *self)
{
    end_close(self->a);
    end_close(self->b);
    end_group(self->group);
}

/* So many of this process's own, each another number for the same file. */
static weir_descriptors *parcel_of(unsigned count, weir_buf *bytes)
{
    int fds[WEIR_DESCRIPTORS_MAX];
    for (unsigned i = 0; i < count; i++) {
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(fds[i] >= 0);
    }
    weir_descriptors *parcel = weir_descriptors_new(fds, count, bytes);
    assert_non_null(parcel);
    return parcel;
}

static int send_msg(weir_channel *channel, weir_msg *msg)
{
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_write_and_flush(channel, msg, promise);
    return end_of(promise);
}

static const weir_buf *bytes_of(const weir_msg *msg)
{
    return msg->type == &weir_descriptors_type ? ((const weir_descriptors *)msg)->bytes
                                               : (const weir_buf *)msg;
}

static size_t length_of(end *self)
{
    size_t length = 0, count = atomic_load(&self->count);
    for (size_t i = 0; i < count; i++)
        length += weir_buf_readable(bytes_of(self->kept[i]));
    return length;
}

/* All bytes that came, as one text. */
static void text_of(end *self, char *to)
{
    for (size_t i = 0; i < atomic_load(&self->count); i++) {
        const weir_buf *buf = bytes_of(self->kept[i]);
        size_t length = weir_buf_readable(buf);
        assert_int_equal(weir_buf_get_bytes(buf, weir_buf_reader(buf), to, length), 0);
        to += length;
    }
    *to = '\0';
}

/* The n-th message with descriptors. */
static weir_descriptors *parcel_at(end *self, unsigned n)
{
    for (size_t i = 0; i < atomic_load(&self->count); i++) {
        if (self->kept[i]->type == &weir_descriptors_type && n-- == 0)
            return (weir_descriptors *)self->kept[i];
    }
    return NULL;
}

/* Passing -------------------------------------------------------------------------------------- */

static bool is_same_file(int a, int b)
{
    struct stat facts_a, facts_b;
    return fstat(a, &facts_a) == 0 && fstat(b, &facts_b) == 0 && facts_a.st_ino == facts_b.st_ino &&
           facts_a.st_dev == facts_b.st_dev;
}

static void one_is_passed(void **state)
{
    pair p = pair_open(state, 1);
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int sent = ends[1];
    weir_descriptors *parcel = weir_descriptors_new(&sent, 1, text_buf("here"));
    assert_int_equal(send_msg(p.a->channel, &parcel->msg), 0);
    WAIT_FOR(atomic_load(&p.b->count) == 1);
    settle_channel(p.a->channel);
    parcel = parcel_at(p.b, 0);
    assert_non_null(parcel);
    assert_true(buf_is(parcel->bytes, "here"));
    assert_int_equal(parcel->count, 1);
    int fd = weir_descriptors_take(parcel, 0);
    assert_true(fd >= 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(is_same_file(fd, ends[0]));
    assert_int_equal(weir_descriptors_take(parcel, 0), -1);
    assert_int_equal(weir_descriptors_take(parcel, 1), -1);
    assert_int_equal(weir_descriptors_take(NULL, 0), -1);
    /* It is the other end of the pipe indeed, and the only one: when it closes, the pipe ends. */
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
    char bytes[2];
    assert_int_equal(read(ends[0], bytes, 2), 1);
    assert_int_equal(read(ends[0], bytes, 2), 0);
    close(ends[0]);
    pair_close(&p);
}

static void many_are_passed(void **state)
{
    const unsigned counts[] = { 2, 3, 16, WEIR_DESCRIPTORS_MAX };
    pair p = pair_open(state, WEIR_DESCRIPTORS_MAX);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(send_msg(p.a->channel, &parcel_of(counts[i], text_buf("x"))->msg), 0);
        WAIT_FOR(atomic_load(&p.b->count) == i + 1);
        weir_descriptors *parcel = parcel_at(p.b, i);
        assert_non_null(parcel);
        assert_int_equal(parcel->count, counts[i]);
        for (unsigned k = 0; k < parcel->count; k++)
            assert_true(fcntl(parcel->fds[k], F_GETFD) & FD_CLOEXEC);
    }
    pair_close(&p); /* and those that nobody took out are closed with their messages */
}

static void bad_ones_are_not_made(void **state)
{
    (void)state;
    int fds[WEIR_DESCRIPTORS_MAX + 1] = { 0 };
    weir_buf *bytes = text_buf("x"), *none = text_buf("");
    assert_null(weir_descriptors_new(fds, WEIR_DESCRIPTORS_MAX + 1, bytes));
    assert_null(weir_descriptors_new(fds, 0, bytes));
    assert_null(weir_descriptors_new(NULL, 1, bytes));
    assert_null(weir_descriptors_new(fds, 1, NULL));
    assert_null(weir_descriptors_new(fds, 1, none));
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_null(weir_descriptors_new(fds, 1, bytes));
    harness_fail_end();
    weir_buf_release(bytes);
    weir_buf_release(none);
}

/* The kernel counts in whole words, so one more than was asked for may come. */
static void more_than_wanted_are_closed(void **state)
{
    for (int wanted = 1; wanted <= 4; wanted++) {
        for (unsigned sent = 1; sent <= 6; sent++) {
            pair p = pair_open(state, wanted);
            assert_int_equal(send_msg(p.a->channel, &parcel_of(sent, text_buf("x"))->msg), 0);
            WAIT_FOR(atomic_load(&p.b->count) == 1);
            weir_descriptors *parcel = parcel_at(p.b, 0);
            assert_non_null(parcel);
            assert_int_equal(parcel->count, (int)sent < wanted ? (int)sent : wanted);
            pair_close(&p);
        }
    }
}

static void unwanted_ones_are_closed(void **state)
{
    pair p = pair_open(state, 0);
    assert_int_equal(send_msg(p.a->channel, &parcel_of(5, text_buf("bytes"))->msg), 0);
    WAIT_FOR(length_of(p.b) == 5);
    assert_null(parcel_at(p.b, 0));
    pair_close(&p);
}

static void they_can_be_wanted_later(void **state)
{
    pair p = pair_open(state, 0);
    set_option(p.b->channel, WEIR_OPTION_MAX_DESCRIPTORS, 3);
    settle_channel(p.b->channel);
    int64_t value;
    assert_int_equal(weir_channel_get_option(p.b->channel, WEIR_OPTION_MAX_DESCRIPTORS, &value), 0);
    assert_int_equal(value, 3);
    assert_int_equal(send_msg(p.a->channel, &parcel_of(2, text_buf("bytes"))->msg), 0);
    WAIT_FOR(length_of(p.b) == 5);
    assert_int_equal(parcel_at(p.b, 0)->count, 2);
    pair_close(&p);
}

/* Bytes ---------------------------------------------------------------------------------------- */

static void they_go_in_order_with_plain_bytes(void **state)
{
    pair p = pair_open(state, 4);
    weir_channel_write(p.a->channel, &text_buf("before ")->msg, NULL);
    weir_channel_write(p.a->channel, &parcel_of(1, text_buf("first "))->msg, NULL);
    weir_channel_write(p.a->channel, &text_buf("between ")->msg, NULL);
    weir_channel_write(p.a->channel, &parcel_of(2, text_buf("second "))->msg, NULL);
    weir_channel_write(p.a->channel, &parcel_of(3, text_buf("third "))->msg, NULL);
    assert_int_equal(send_msg(p.a->channel, &text_buf("behind")->msg), 0);
    const char *all = "before first between second third behind";
    WAIT_FOR(length_of(p.b) == strlen(all));
    char text[64];
    text_of(p.b, text);
    assert_string_equal(text, all);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(parcel_at(p.b, i)->count, i + 1);
    assert_null(parcel_at(p.b, 3));
    pair_close(&p);
}

/* More than the socket takes at once, and in two pieces: the descriptors come once. */
static void they_travel_with_the_first_of_many_bytes(void **state)
{
    enum { SIZE = 2000000 };
    pair p = pair_open(state, 4);
    weir_buf *bytes = weir_buf_new_composite();
    assert_int_equal(weir_buf_composite_add(bytes, text_buf("head")), 0);
    assert_int_equal(weir_buf_composite_add(bytes, filled_buf(SIZE, 'x')), 0);
    weir_promise *promises[2] = { weir_channel_promise(p.a->channel),
                                  weir_channel_promise(p.a->channel) };
    weir_channel_write(p.a->channel, &parcel_of(2, bytes)->msg, promises[0]);
    weir_channel_write_and_flush(p.a->channel, &text_buf("tail")->msg, promises[1]);
    assert_int_equal(end_of(promises[0]), 0);
    assert_int_equal(end_of(promises[1]), 0);
    WAIT_FOR(length_of(p.b) == SIZE + 8);
    char *text = malloc(SIZE + 9);
    text_of(p.b, text);
    assert_memory_equal(text, "head", 4);
    assert_memory_equal(text + 4 + SIZE, "tail", 4);
    for (size_t i = 0; i < SIZE; i++)
        assert_true(text[4 + i] == 'x');
    free(text);
    assert_int_equal(parcel_at(p.b, 0)->count, 2);
    assert_null(parcel_at(p.b, 1));
    weir_channel_stats stats;
    weir_channel_get_stats(p.a->channel, &stats);
    assert_int_equal(stats.bytes_out, SIZE + 8);
    pair_close(&p);
}

/* Faults --------------------------------------------------------------------------------------- */

static void tcp_refuses_them(void **state)
{
    weir_group *group = group_of(state, 1);
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, length), 0);
    end *a = end_from(group, WEIR_SOCKET_STREAM, fd);
    assert_int_equal(send_msg(a->channel, &parcel_of(1, text_buf("x"))->msg), -EOPNOTSUPP);
    assert_true(weir_channel_is_active(a->channel));
    end_close(a);
    close(listener);
    end_group(group);
}

static void one_that_was_taken_out_before_it_went_fails(void **state)
{
    pair p = pair_open(state, 4);
    weir_descriptors *parcel = parcel_of(2, text_buf("x"));
    close(weir_descriptors_take(parcel, 1));
    assert_int_equal(send_msg(p.a->channel, &parcel->msg), -EBADF);
    pair_close(&p);
}

static void closing_before_they_went_closes_them(void **state)
{
    pair p = pair_open(state, 4);
    blocker held;
    block(&held, weir_loop_executor(weir_channel_loop(p.b->channel)));
    weir_promise *fill = weir_channel_promise(p.a->channel);
    weir_promise *promise = weir_channel_promise(p.a->channel);
    weir_channel_write(p.a->channel, &filled_buf(4000000, 'x')->msg, fill);
    weir_channel_write_and_flush(p.a->channel, &parcel_of(3, text_buf("x"))->msg, promise);
    close_now(p.a->channel);
    assert_int_equal(end_of(fill), WEIR_ECLOSED);
    assert_int_equal(end_of(promise), WEIR_ECLOSED);
    unblock(&held);
    pair_close(&p);
}

/* They have come, but there is no memory for their message. */
static void without_memory_they_are_closed_with_the_channel(void **state)
{
    pair p = pair_open(state, 4);
    assert_int_equal(send_msg(p.a->channel, &text_buf("warm")->msg), 0);
    WAIT_FOR(length_of(p.b) == 4); /* the loop has its pool now */
    blocker held;
    block(&held, weir_loop_executor(weir_channel_loop(p.b->channel)));
    assert_int_equal(send_msg(p.a->channel, &parcel_of(3, text_buf("x"))->msg), 0);
    settle_channel(p.a->channel);
    fail_from_to("alloc", -ENOMEM, 1, 1);
    unblock(&held);
    WAIT_FOR(atomic_load(&p.b->errors) == 1);
    weir_fault_set(NULL, NULL);
    assert_int_equal(atomic_load(&p.b->last_error), -ENOMEM);
    assert_int_equal(weir_future_await(weir_channel_closed(p.b->channel)), 0);
    pair_close(&p);
}

static void a_send_that_fails_closes_them(void **state)
{
    const struct {
        const char *call;
        int code, expected;
    } calls[] = { { "sendmsg", -ETOOMANYREFS, -ETOOMANYREFS }, { "sendmsg", -EINTR, 0 } };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        pair p = pair_open(state, 4);
        weir_promise *promise = weir_channel_promise(p.a->channel);
        weir_channel_write(p.a->channel, &parcel_of(3, text_buf("x"))->msg, promise);
        settle_channel(p.a->channel);
        blocker held;
        block(&held, weir_loop_executor(weir_channel_loop(p.a->channel)));
        weir_channel_flush(p.a->channel);
        fail_from_to(calls[i].call, calls[i].code, 1, 1);
        unblock(&held);
        assert_int_equal(end_of(promise), calls[i].expected);
        weir_fault_set(NULL, NULL);
        if (calls[i].expected == 0)
            WAIT_FOR(atomic_load(&p.b->count) == 1);
        pair_close(&p);
    }
}

/* A message that is shared is closed with its last reference, and each sends all of its bytes:
 * what two threads do at the same time, so it is tried more than once. */
static void one_message_goes_to_two(void **state)
{
    enum { TIMES = 50 };
    pair p = pair_open(state, 4), q = pair_open(state, 4);
    for (int i = 1; i <= TIMES; i++) {
        weir_descriptors *parcel = parcel_of(2, text_buf("both"));
        weir_msg_retain(&parcel->msg);
        weir_promise *promises[2] = { weir_channel_promise(p.a->channel),
                                      weir_channel_promise(q.a->channel) };
        weir_channel_write_and_flush(p.a->channel, &parcel->msg, promises[0]);
        weir_channel_write_and_flush(q.a->channel, &parcel->msg, promises[1]);
        assert_int_equal(end_of(promises[0]), 0);
        assert_int_equal(end_of(promises[1]), 0);
        WAIT_FOR(length_of(p.b) == 4 * (size_t)i && length_of(q.b) == 4 * (size_t)i);
    }
    for (unsigned i = 0; i < TIMES; i++) {
        assert_int_equal(parcel_at(p.b, i)->count, 2);
        assert_int_equal(parcel_at(q.b, i)->count, 2);
    }
    pair_close(&p);
    pair_close(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_BACKEND(one_is_passed),
        ON_EVERY_BACKEND(many_are_passed),
        weir_case(bad_ones_are_not_made),
        ON_EVERY_BACKEND(more_than_wanted_are_closed),
        ON_EVERY_BACKEND(unwanted_ones_are_closed),
        ON_EVERY_BACKEND(they_can_be_wanted_later),
        ON_EVERY_BACKEND(they_go_in_order_with_plain_bytes),
        ON_EVERY_BACKEND(they_travel_with_the_first_of_many_bytes),
        ON_EVERY_BACKEND(tcp_refuses_them),
        ON_EVERY_BACKEND(one_that_was_taken_out_before_it_went_fails),
        ON_EVERY_BACKEND(closing_before_they_went_closes_them),
        ON_EVERY_BACKEND(without_memory_they_are_closed_with_the_channel),
        ON_EVERY_BACKEND(a_send_that_fails_closes_them),
        ON_EVERY_BACKEND(one_message_goes_to_two),
    };
    return cmocka_run_group_tests_name("transport.descriptors", tests, NULL, NULL);
}
