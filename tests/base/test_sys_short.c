/* SPDX-License-Identifier: MIT */
/* The fault hook lowers a length: short reads and writes, in one piece and in several. */
#include "sockets.h"

#include <string.h>
#include <unistd.h>

/* What the hook lowers a length to, and what it saw. */
typedef struct lowering {
    size_t to;
    unsigned asked;
    size_t length;
} lowering;

static int lower(void *arg, const char *call, size_t *length)
{
    (void)call;
    lowering *self = arg;
    self->asked++;
    self->length = length != NULL ? *length : 0;
    if (length != NULL && *length > self->to)
        *length = self->to;
    return 0;
}

#define TEXT "0123456789abcde"
#define TEXT_LENGTH 15

typedef int (*move_fn)(int fd, char *bytes);

static int read_text(int fd, char *bytes)
{
    return sys->read(sys, fd, bytes, TEXT_LENGTH);
}

static int recv_text(int fd, char *bytes)
{
    return sys->recv(sys, fd, bytes, TEXT_LENGTH, 0);
}

static int write_text(int fd, char *bytes)
{
    return sys->write(sys, fd, bytes, TEXT_LENGTH);
}

static int send_text(int fd, char *bytes)
{
    return sys->send(sys, fd, bytes, TEXT_LENGTH, 0);
}

/* Four pieces, one of them empty. */
static void cut_in_pieces(struct iovec iov[4], char *bytes)
{
    iov[0] = (struct iovec){ bytes, 4 };
    iov[1] = (struct iovec){ bytes + 4, 0 };
    iov[2] = (struct iovec){ bytes + 4, 6 };
    iov[3] = (struct iovec){ bytes + 10, 5 };
}

static int recv_pieces(int fd, char *bytes)
{
    struct iovec iov[4], before[4];
    cut_in_pieces(iov, bytes);
    cut_in_pieces(before, bytes);
    struct msghdr message = { .msg_iov = iov, .msg_iovlen = 4 };
    int result = sys->recvmsg(sys, fd, &message, 0);
    assert_ptr_equal(message.msg_iov, iov);
    assert_int_equal(message.msg_iovlen, 4);
    assert_memory_equal(iov, before, sizeof before);
    return result;
}

static int send_pieces(int fd, char *bytes)
{
    struct iovec iov[4], before[4];
    cut_in_pieces(iov, bytes);
    cut_in_pieces(before, bytes);
    const struct msghdr message = { .msg_iov = iov, .msg_iovlen = 4 };
    int result = sys->sendmsg(sys, fd, &message, 0);
    assert_memory_equal(iov, before, sizeof before);
    return result;
}

static int move_shortened(move_fn move, int fd, char *bytes, size_t length)
{
    lowering asked = { .to = length };
    weir_fault_set(lower, &asked);
    int result = move(fd, bytes);
    weir_fault_set(NULL, NULL);
    assert_int_equal(asked.asked, 1);
    assert_int_equal(asked.length, TEXT_LENGTH);
    return result;
}

static void lowering_the_length_makes_short_reads(void **state)
{
    (void)state;
    static const move_fn moves[] = { read_text, recv_text, recv_pieces };
    for (size_t i = 0; i < COUNT_OF(moves); i++) {
        for (size_t length = 0; length <= TEXT_LENGTH; length++) {
            int fds[2];
            char bytes[TEXT_LENGTH + 1];
            make_pair(fds);
            assert_int_equal(write(fds[0], TEXT, TEXT_LENGTH), TEXT_LENGTH);
            memset(bytes, '-', sizeof bytes);
            assert_int_equal(move_shortened(moves[i], fds[1], bytes, length), length);
            assert_memory_equal(bytes, TEXT, length);
            for (size_t rest = length; rest < sizeof bytes; rest++)
                assert_int_equal(bytes[rest], '-');
            /* The rest comes with the next. */
            assert_int_equal(pending_bytes(fds[1]), TEXT_LENGTH - length);
            if (length < TEXT_LENGTH) {
                assert_int_equal(moves[i](fds[1], bytes), TEXT_LENGTH - length);
                assert_memory_equal(bytes, &TEXT[length], TEXT_LENGTH - length);
            }
            close_pair(fds);
        }
    }
}

static void lowering_the_length_makes_short_writes(void **state)
{
    (void)state;
    static const move_fn moves[] = { write_text, send_text, send_pieces };
    for (size_t i = 0; i < COUNT_OF(moves); i++) {
        for (size_t length = 0; length <= TEXT_LENGTH; length++) {
            int fds[2];
            char text[] = TEXT, bytes[TEXT_LENGTH + 1];
            make_pair(fds);
            assert_int_equal(move_shortened(moves[i], fds[0], text, length), length);
            assert_string_equal(text, TEXT);
            assert_int_equal(pending_bytes(fds[1]), length);
            if (length > 0)
                assert_int_equal(read(fds[1], bytes, sizeof bytes), length);
            assert_memory_equal(bytes, TEXT, length);
            close_pair(fds);
        }
    }
}

static void many_pieces_can_be_shortened_too(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    char out[COUNT], in[COUNT], rest[COUNT];
    struct iovec out_iov[COUNT], in_iov[COUNT];
    struct msghdr sent = { .msg_iov = out_iov, .msg_iovlen = COUNT };
    struct msghdr received = { .msg_iov = in_iov, .msg_iovlen = COUNT };
    for (size_t i = 0; i < COUNT; i++) {
        out[i] = (char)('A' + i);
        out_iov[i] = (struct iovec){ &out[i], 1 };
        in_iov[i] = (struct iovec){ &in[i], 1 };
    }
    for (size_t length = 1; length < COUNT; length++) {
        int fds[2];
        lowering asked = { .to = length };
        make_pair(fds);
        weir_fault_set(lower, &asked);
        int went = sys->sendmsg(sys, fds[0], &sent, 0);
        weir_fault_set(NULL, NULL);
        assert_int_equal(asked.length, COUNT);
        assert_true(went > 0 && (size_t)went <= length); /* short, and no longer than wished */
        assert_int_equal(read(fds[1], rest, COUNT), went);
        assert_memory_equal(rest, out, (size_t)went);

        assert_int_equal(sys->sendmsg(sys, fds[0], &sent, 0), COUNT);
        memset(in, '-', sizeof in);
        weir_fault_set(lower, &asked);
        int came = sys->recvmsg(sys, fds[1], &received, 0);
        weir_fault_set(NULL, NULL);
        assert_true(came > 0 && (size_t)came <= length);
        assert_memory_equal(in, out, (size_t)came);
        assert_int_equal(in[came], '-');
        assert_int_equal(pending_bytes(fds[1]), COUNT - came);
        close_pair(fds);
    }
}

/* What a shortened recvmsg learns besides the bytes reaches the caller's own struct. */
static void a_shortened_datagram_still_has_name_flags_and_control(void **state)
{
    (void)state;
    struct sockaddr_in address = loopback(), from = { 0 };
    const int on = 1;
    int receiver = sys->socket(sys, AF_INET, SOCK_DGRAM, 0);
    int sender = sys->socket(sys, AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(sys->bind(sys, receiver, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(sys->setsockopt(sys, receiver, IPPROTO_IP, IP_PKTINFO, &on, sizeof on), 0);
    address = name_of(receiver);
    assert_int_equal(sys->connect(sys, sender, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(sys->send(sys, sender, TEXT, TEXT_LENGTH, 0), TEXT_LENGTH);
    wait_until(receiver, POLLIN);

    char bytes[TEXT_LENGTH + 1];
    _Alignas(struct cmsghdr) char control[256];
    struct iovec iov = { bytes, TEXT_LENGTH };
    struct msghdr message = { .msg_name = &from,
                              .msg_namelen = sizeof from,
                              .msg_iov = &iov,
                              .msg_iovlen = 1,
                              .msg_control = control,
                              .msg_controllen = sizeof control };
    lowering asked = { .to = 7 };
    memset(bytes, '-', sizeof bytes);
    weir_fault_set(lower, &asked);
    int result = sys->recvmsg(sys, receiver, &message, 0);
    weir_fault_set(NULL, NULL);
    assert_int_equal(result, 7);
    assert_memory_equal(bytes, "0123456---------", sizeof bytes);
    assert_int_equal(message.msg_flags & MSG_TRUNC, MSG_TRUNC);
    assert_int_equal(message.msg_namelen, sizeof from);
    assert_int_equal(from.sin_port, name_of(sender).sin_port);
    const struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    assert_non_null(first);
    assert_int_equal(first->cmsg_type, IP_PKTINFO);
    assert_true(message.msg_controllen < sizeof control);
    assert_int_equal(iov.iov_len, TEXT_LENGTH);
    assert_int_equal(sys->close(sys, receiver), 0);
    assert_int_equal(sys->close(sys, sender), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        sys_case(lowering_the_length_makes_short_reads),
        sys_case(lowering_the_length_makes_short_writes),
        sys_case(many_pieces_can_be_shortened_too),
        sys_case(a_shortened_datagram_still_has_name_flags_and_control),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
