/* SPDX-License-Identifier: MIT */
/* Sends that nothing is heard of unless they fail. */
#include "base/alloc.h"
#include "io/rings.h"

/* A message on its way, and what becomes of it. */
typedef struct parcel {
    weir_buf *buf;
    bool is_released;
    bool is_back; /* with its memory */
} parcel;

/* What came back: how often, and what was said the last time. */
static struct {
    int count, code;
    weir_io_file *file;
} unsent;

static void note_release(void *arg, void *memory)
{
    (void)memory;
    ((parcel *)arg)->is_released = true;
}

static void note_settled(weir_io_file *file, void *memory, int code)
{
    unsent.count++;
    unsent.file = file;
    unsent.code = code;
    if (memory == NULL) /* it went */
        return;
    parcel *self = *(parcel **)memory;
    assert_false(self->is_released);
    self->is_back = true;
    weir_buf_release(self->buf);
    weir__free(memory);
}

/* 0; or -EAGAIN, and then it was not taken. */
static int try_silently(parcel *self, owner *of, const char *text, size_t length)
{
    parcel **memory = weir__alloc(64);
    assert_non_null(memory);
    *self = (parcel){ .buf = weir_buf_wrap((char *)text, length, note_release, self) };
    assert_non_null(self->buf);
    *memory = self;
    io->on_settled = note_settled;
    int code = io->type->send_silently(io, &of->file, weir_buf_msg(self->buf), memory, text,
                                       length);
    if (code < 0) {
        weir_buf_release(self->buf);
        weir__free(memory);
    }
    return code;
}

static void send_silently(parcel *self, owner *of, const char *text)
{
    unsent.count = 0;
    assert_int_equal(try_silently(self, of, text, strlen(text)), 0);
    assert_true(weir__io_is_sending(io, &of->file));
}

static void assert_unsent(const parcel *self, const owner *of, int code)
{
    assert_int_equal(unsent.count, 1);
    assert_ptr_equal(unsent.file, &of->file);
    assert_int_equal(unsent.code, code);
    assert_true(self->is_back);
    assert_false(weir__io_is_sending(io, &of->file));
}

static void assert_went(const parcel *self)
{
    assert_true(self->is_released && !self->is_back);
}

static void assert_arrives(int peer, const char *text)
{
    char bytes[64];
    size_t length = strlen(text);
    assert_int_equal(recv(peer, bytes, sizeof bytes, MSG_DONTWAIT), length);
    assert_memory_equal(bytes, text, length);
}

static void assert_nothing_arrives(int peer)
{
    char byte;
    assert_int_equal(recv(peer, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

static unsigned complete(void)
{
    in_complete++;
    unsigned count = io->type->complete(io);
    in_complete--;
    return count;
}

/* What went ------------------------------------------------------------------------------------ */

static void what_went_is_released_and_ends_no_wait(void)
{
    owner a = { .name = "a" }, b = { .name = "b" };
    int peer = receive_from_peer(&a), b_peer = own_half_of_pair(&b);
    parcel first, second;
    uint64_t sends = value_of(&counters.sends);
    send_silently(&first, &a, "first");
    send_silently(&second, &b, "second");
    assert_int_equal(value_of(&counters.sends), sends + 2);
    write_all(peer, "event", 5);
    uint64_t entries = value_of(&counters.polls);
    assert_true(poll_for(io, -1) > 0);
    assert_false(weir__io_is_sending(io, &a.file));
    assert_false(first.is_released); /* nobody is called from inside poll */
    complete();
    assert_int_equal(value_of(&counters.polls), entries + 1);
    assert_went(&first);
    assert_went(&second);
    assert_story("a<5 a|");
    assert_arrives(peer, "first");
    assert_arrives(b_peer, "second");
    end_pair(&a, peer);
    end_pair(&b, b_peer);
}

/* Though nothing else happens. */
static void what_went_is_released_soon(void)
{
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    parcel only;
    int64_t start_ns = weir_clock_now_ns(weir_clock_monotonic());
    send_silently(&only, &a, "only");
    assert_true(poll_for(io, -1) > 0);
    assert_true(has_results());
    assert_int_equal(complete(), 0);
    assert_went(&only);
    assert_true(io->news > 0); /* it did not wake up for nothing */
    assert_true(weir_clock_now_ns(weir_clock_monotonic()) - start_ns >= 1000000);
    assert_quiet();
    assert_arrives(peer, "only");
    end_pair(&a, peer);
}

/* As many as there may be: the next goes by an operation. Files take turns, and get their bytes in
 * order. */
static void there_is_an_end_to_what_goes_silently(void)
{
    enum { FILES = 64, ROUNDS = WEIR_URING_MOST_SILENT / FILES };
    static parcel parcels[FILES * ROUNDS], one_more;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    int peers[FILES];
    owner *all = receive_from_peers(peers, FILES);
    for (int i = 0; i < FILES * ROUNDS; i++)
        assert_int_equal(try_silently(&parcels[i], &all[i % FILES], &letters[i / FILES % 26], 1),
                         0);
    assert_int_equal(try_silently(&one_more, &all[0], "x", 1), -EAGAIN);
    turn();
    for (int i = 0; i < FILES * ROUNDS; i++)
        assert_went(&parcels[i]);
    assert_int_equal(try_silently(&one_more, &all[0], "x", 1), 0);
    turn();
    assert_went(&one_more);
    for (int i = 0; i < FILES; i++) {
        char bytes[ROUNDS];
        assert_int_equal(recv(peers[i], bytes, sizeof bytes, MSG_DONTWAIT), ROUNDS);
        for (int j = 0; j < ROUNDS; j++)
            assert_int_equal(bytes[j], letters[j % 26]);
    }
    end_pairs(all, peers, FILES);
}

/* What did not go ------------------------------------------------------------------------------ */

static void without_room_it_comes_back(void)
{
    owner a = { .name = "a" }, b = { .name = "b" };
    int peer = receive_from_peer(&a), b_peer = own_half_of_pair(&b);
    parcel first, second;
    fill(a.file.fd);
    send_silently(&first, &a, "first");
    send_silently(&second, &b, "second");
    turn();
    assert_unsent(&first, &a, 0);
    assert_went(&second);
    drain(peer);
    send_silently(&first, &a, "first");
    turn();
    assert_went(&first);
    assert_arrives(peer, "first");
    end_pair(&a, peer);
    end_pair(&b, b_peer);
}

/* A part of it went: how much is told, and is right. */
static void what_went_in_part_comes_back(void)
{
    enum { LENGTH = 1 << 20 };
    owner a = { .name = "a" };
    const char *bytes = pattern(LENGTH);
    for (int is_tcp = 0; is_tcp < 2; is_tcp++) {
        int peer = own_half(&a, is_tcp);
        parcel large;
        int room = 1 << 14;
        setsockopt(a.file.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        unsent.count = 0;
        assert_int_equal(try_silently(&large, &a, bytes, LENGTH), 0);
        turn();
        assert_int_equal(unsent.count, 1);
        assert_in_range(unsent.code, 1, LENGTH - 1);
        assert_true(large.is_back);
        shutdown(a.file.fd, SHUT_WR);
        size_t length = 0;
        char some[4096];
        for (ssize_t count; (count = recv(peer, some, sizeof some, 0)) > 0;) {
            assert_memory_equal(some, bytes + length, (size_t)count);
            length += (size_t)count;
        }
        assert_int_equal(length, unsent.code);
        end_pair(&a, peer);
    }
}

static void an_error_comes_with_it(void)
{
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    parcel late;
    shutdown(a.file.fd, SHUT_WR);
    send_silently(&late, &a, "late");
    turn();
    assert_unsent(&late, &a, -EPIPE);
    end_pair(&a, peer);
}

/* What is told of one that came back is not taken for the next with the same memory. */
static void what_was_told_is_not_told_again(void)
{
    owner a = { .name = "a" }, b = { .name = "b" };
    int peer = receive_from_peer(&a), b_peer = own_half_of_pair(&b);
    parcel first, second;
    weir_spare spare = { 0 };
    fill(a.file.fd);
    send_silently(&first, &a, "first");
    io->type->flush(io); /* its result is there, and was seen, but not told */
    assert_unsent(&first, &a, 0);
    void *memory = weir__alloc(64);
    weir__free(memory); /* most probably the same again */
    send_silently(&second, &b, "second");
    io->type->flush(io);
    io->spare = &spare;
    turn();
    io->spare = NULL;
    assert_int_equal(unsent.count, 0);
    assert_went(&second);
    assert_int_equal(spare.count, 1);
    weir__spare_deinit(&spare);
    end_pair(&a, peer);
    end_pair(&b, b_peer);
}

/* Kernels before 6.1, or somebody who keeps system calls from here: once is enough. */
static int send_nonsense(weir_sys *self, int ring, unsigned count, unsigned least, unsigned flags,
                         const void *arg, size_t size)
{
    struct io_uring_sq *queue = &weir__uring_of(io)->ring.sq;
    for (unsigned i = 0; i < count; i++) {
        struct io_uring_sqe *entry = &queue->sqes[(*queue->khead + i) & queue->ring_mask];
        if (entry->opcode == IORING_OP_SEND)
            entry->ioprio = 0x8000; /* no such flag */
    }
    return sys->io_uring_enter(self, ring, count, least, flags, arg, size);
}

static void a_kernel_that_refuses_is_not_asked_again(void)
{
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    parcel one;
    kernel.calls.io_uring_enter = send_nonsense;
    send_silently(&one, &a, "one");
    turn();
    assert_unsent(&one, &a, 0);
    assert_int_equal(try_silently(&one, &a, "one", 3), -EAGAIN);
    end_pair(&a, peer);
}

/* Who cannot wait ------------------------------------------------------------------------------ */

static void settling_hands_over_at_once(void)
{
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    parcel one;
    assert_true(io->type->settle(io, &a.file)); /* nothing was sent */
    send_silently(&one, &a, "one");
    assert_nothing_arrives(peer);
    io->type->settle(io, &a.file);
    assert_false(weir__io_is_sending(io, &a.file));
    assert_arrives(peer, "one");
    turn();
    assert_went(&one);
    fill(a.file.fd);
    send_silently(&one, &a, "one");
    io->type->settle(io, &a.file);
    assert_unsent(&one, &a, 0);
    end_pair(&a, peer);
}

static void what_was_sent_goes_before_its_file(void)
{
    owner a = { .name = "a" }, b = { .name = "b" };
    int peer = own_half_of_pair(&a), b_peer = own_half_of_pair(&b);
    parcel last;
    send_silently(&last, &a, "last");
    close_owner(&a);
    assert_arrives(peer, "last");
    send_silently(&last, &b, "moved");
    io->type->detach(io, &b.file);
    assert_arrives(b_peer, "moved");
    turn();
    assert_went(&last);
    close(b.file.fd);
    close(b_peer);
    close(peer);
}

/* The kernel takes nothing for a while. */
static int take_nothing(weir_sys *self, int ring, unsigned count, unsigned least, unsigned flags,
                        const void *arg, size_t size)
{
    (void)self, (void)ring, (void)count, (void)least, (void)flags, (void)arg, (void)size;
    return -EBUSY;
}

static void what_the_kernel_does_not_take_is_taken_back(void)
{
    owner a = { .name = "a" }, b = { .name = "b" };
    int peer = receive_from_peer(&a), b_peer = own_half_of_pair(&b);
    parcel first, second;
    send_silently(&first, &a, "first");
    send_silently(&second, &b, "second");
    kernel.calls.io_uring_enter = take_nothing;
    assert_int_equal(io->type->poll(io, 0), -EBUSY);
    assert_true(weir__io_is_sending(io, &a.file));
    io->type->settle(io, &a.file);
    assert_unsent(&first, &a, 0);
    assert_true(weir__io_is_sending(io, &b.file));
    kernel.calls.io_uring_enter = sys->io_uring_enter;
    turn();
    assert_went(&second);
    assert_nothing_arrives(peer);
    assert_arrives(b_peer, "second");
    assert_int_equal(unsent.count, 1);
    end_pair(&a, peer);
    end_pair(&b, b_peer);
}

/* Results that do not fit -----------------------------------------------------------------------
 */

enum { MANY = 300 };

/* There are more results than fit, and the one about this is the last. */
static owner *overflow(int *peers, owner *a, parcel *one, bool is_full)
{
    open_small(8, 0, 0);
    owner *all = receive_from_peers(peers, MANY);
    turn();
    for (int i = 0; i < MANY; i++)
        write_all(peers[i], "hello", 5);
    peers[MANY] = own_half_of_pair(a);
    if (is_full)
        fill(a->file.fd);
    WAIT_FOR_STEPPING(weir__uring_ready(weir__uring_of(io)) >= 64,
                      assert_int_equal(weir__uring_enter(weir__uring_of(io), 0), 0));
    send_silently(one, a, "one");
    return all;
}

static void end_overflow(owner *all, int *peers)
{
    story_length = 0;
    end_pairs(all, peers, MANY);
}

static void what_overflows_is_waited_for(void)
{
    int peers[MANY + 1];
    owner a = { .name = "a" };
    parcel one;
    owner *all = overflow(peers, &a, &one, true);
    io->type->flush(io);
    assert_int_equal(unsent.count, 0);
    assert_true(weir__io_is_sending(io, &a.file)); /* nobody knows */
    TURN_UNTIL(unsent.count > 0);
    assert_unsent(&one, &a, 0);
    end_pair(&a, peers[MANY]);
    end_overflow(all, peers);
}

static void who_asks_before_it_is_known_is_told_later(void)
{
    for (int is_full = 0; is_full < 2; is_full++) {
        int peers[MANY + 1];
        owner a = { .name = "a" };
        parcel one;
        owner *all = overflow(peers, &a, &one, is_full);
        assert_false(io->type->settle(io, &a.file));
        assert_false(io->type->settle(io, &a.file));
        assert_int_equal(unsent.count, 0);
        TURN_UNTIL(unsent.count > 0);
        assert_int_equal(unsent.count, 1);
        assert_ptr_equal(unsent.file, &a.file);
        assert_int_equal(unsent.code, 0);
        assert_int_equal(one.is_back, is_full);
        assert_true(io->type->settle(io, &a.file));
        turn();
        assert_true(one.is_released);
        end_pair(&a, peers[MANY]);
        end_overflow(all, peers);
    }
}

/* Nobody is told then: the file is gone. */
static void a_file_goes_before_it_is_known(void)
{
    for (int is_full = 0; is_full < 2; is_full++) {
        int peers[MANY + 1];
        owner a = { .name = "a" };
        parcel one;
        owner *all = overflow(peers, &a, &one, is_full);
        assert_false(io->type->settle(io, &a.file));
        end_pair(&a, peers[MANY]);
        TURN_UNTIL(one.is_released);
        assert_int_equal(unsent.count, 0);
        assert_false(one.is_back);
        end_overflow(all, peers);
    }
}

/* What is counted for ever -----------------------------------------------------------------------
 */

/* Entries are counted, and the number comes round: a file that never sent is not taken for one that
 * does, nor one that sent that long ago. */
static void the_count_of_entries_comes_round(void)
{
    owner a = { .name = "a" }, b = { .name = "b" };
    int peer = own_half_of_pair(&a), b_peer = own_half_of_pair(&b);
    parcel one;
    io->entry = UINT32_MAX;
    send_silently(&one, &a, "one");
    turn();
    assert_went(&one);
    assert_int_equal(io->entry, 1);
    assert_false(weir__io_is_sending(io, &b.file));
    b.file.silent_entry = io->entry;
    assert_true(io->type->settle(io, &b.file));
    assert_false(weir__io_is_sending(io, &b.file));
    end_pair(&a, peer);
    end_pair(&b, b_peer);
}

/* So are results: those of long ago are not looked at again. */
static void the_count_of_results_comes_round(void)
{
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    parcel one;
    weir__uring_of(io)->silent.seen = *weir__uring_of(io)->ring.cq.khead + (1u << 30);
    send_silently(&one, &a, "one");
    fill(a.file.fd);
    turn();
    assert_int_equal(weir__uring_of(io)->silent.seen, *weir__uring_of(io)->ring.cq.khead);
    assert_unsent(&one, &a, 0);
    end_pair(&a, peer);
}

/* Another ring --------------------------------------------------------------------------------- */

static void rebuild(void)
{
    harness_log_begin(WEIR_LOG_OFF);
    assert_int_equal(io->type->rebuild(io), 0);
    harness_log_end();
}

static void what_was_not_handed_over_comes_back_from_a_broken_ring(void)
{
    owner a = { .name = "a" }, b = { .name = "b" };
    int peer = own_half_of_pair(&a), b_peer = own_half_of_pair(&b);
    parcel first, second;
    send_silently(&first, &b, "first");
    io->type->flush(io);
    send_silently(&second, &a, "second");
    harness_fail_nth("io_uring_enter", 1, -EBADF);
    io->type->flush(io);
    harness_fail_end();
    rebuild();
    assert_unsent(&second, &a, 0);
    turn();
    assert_went(&first);
    assert_arrives(b_peer, "first");
    assert_nothing_arrives(peer);
    send_silently(&second, &a, "second");
    turn();
    assert_went(&second);
    assert_arrives(peer, "second");
    end_pair(&a, peer);
    end_pair(&b, b_peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        uring_case(what_went_is_released_and_ends_no_wait),
        uring_case(what_went_is_released_soon),
        uring_case(there_is_an_end_to_what_goes_silently),
        uring_case(without_room_it_comes_back),
        uring_case(what_went_in_part_comes_back),
        uring_case(an_error_comes_with_it),
        uring_case(what_was_told_is_not_told_again),
        uring_case(a_kernel_that_refuses_is_not_asked_again),
        uring_case(settling_hands_over_at_once),
        uring_case(what_was_sent_goes_before_its_file),
        uring_case(what_the_kernel_does_not_take_is_taken_back),
        uring_case(what_overflows_is_waited_for),
        uring_case(who_asks_before_it_is_known_is_told_later),
        uring_case(a_file_goes_before_it_is_known),
        uring_case(the_count_of_entries_comes_round),
        uring_case(the_count_of_results_comes_round),
        uring_case(what_was_not_handed_over_comes_back_from_a_broken_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
