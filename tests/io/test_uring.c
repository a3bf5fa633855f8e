/* SPDX-License-Identifier: MIT */
/* What io_uring does otherwise than backends that try: what comes too late is kept, buffers run
 * out, bursts are held up. */
#include "io/rings.h"

static weir_io *other_io; /* an epoll to move to */
static weir_io_counters other_counters;

static void open_other(void)
{
    assert_int_equal(weir__epoll_open(&kernel.calls, &other_counters, &other_io), 0);
}

static void close_other(void)
{
    other_io->type->close(other_io);
    other_io->type->destroy(other_io);
}

static void move_to_other(owner *self)
{
    io->type->detach(io, &self->file);
    own_at(other_io, self, self->file.fd);
}

#define OTHER_UNTIL(condition)                                                                     \
    do {                                                                                           \
        for (int turns_ = 0; !(condition); turns_++) {                                             \
            assert_true(turns_ < 1000);                                                            \
            turn_for(other_io, SECOND_NS / 100);                                                   \
        }                                                                                          \
    } while (0)

/* The kernel has something to tell, and nobody was told. */
static void let_it_come(void)
{
    for (int i = 0; i < 1000 && !has_results(); i++)
        assert_true(poll_for(io, SECOND_NS / 100) >= 0);
    assert_true(has_results());
}

/* What comes too late ----------------------------------------------------------------------------
 */

static void bytes_that_raced_a_cancel_are_told_next(void)
{
    for (int is_multishot = 0; is_multishot <= 1; is_multishot++) {
        owner a = { .name = "a" };
        int peer = own_half_of_pair(&a);
        a.in.op.is_multishot = is_multishot;
        assert_int_equal(submit(&a.in, WEIR_IO_RECEIVE), WEIR_IO_PENDING);
        turn();
        write_all(peer, "one", 3);
        let_it_come();
        cancel_receive(&a);
        assert_story("a<ECANCELED.");
        write_all(peer, "two", 3);
        receive_always(&a);
        TURN_UNTIL(a.received_length == 6);
        assert_received(&a, "onetwo", 6);
        end_pair(&a, peer);
    }
}

/* Large ones are the buffers of the ring themselves, small ones copies. */
static void what_is_kept_goes_to_another_backend(void)
{
    open_other();
    for (size_t length = 5; length <= 50000; length *= 10) {
        owner a = { .name = "a" };
        int peer = receive_from_peer(&a);
        write_all(peer, pattern(length), length);
        let_it_come();
        cancel_receive(&a);
        assert_int_equal(a.received_length, 0);
        move_to_other(&a);
        write_all(peer, "end", 3);
        receive_once(&a);
        OTHER_UNTIL(a.in.finals == 2);
        assert_true(a.received_length > 0);
        receive_always(&a);
        OTHER_UNTIL(a.received_length == length + 3);
        assert_memory_equal(a.received, pattern(length), length);
        assert_memory_equal(a.received + length, "end", 3);
        end_pair(&a, peer);
    }
    close_other();
}

static void what_is_kept_goes_into_a_pipe(void)
{
    int ends[2];
    char bytes[16];
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    write_all(peer, "kept", 4);
    let_it_come();
    cancel_receive(&a);
    write_all(peer, "more", 4);
    for (size_t at = 0; at < 8; at += (size_t)a.in.last) {
        a.in.op.is_multishot = false;
        a.in.op.splice.fd = ends[1];
        a.in.op.splice.length = 3;
        int finals = a.in.finals;
        assert_int_equal(submit(&a.in, WEIR_IO_SPLICE_IN), WEIR_IO_PENDING);
        TURN_UNTIL(a.in.finals > finals);
        assert_true(a.in.last > 0);
    }
    assert_int_equal(read(ends[0], bytes, sizeof bytes), 8);
    assert_memory_equal(bytes, "keptmore", 8);
    close(ends[0]);
    close(ends[1]);
    end_pair(&a, peer);
}

static void what_is_kept_is_dropped_with_its_file(void)
{
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    write_all(peer, pattern(5000), 5000);
    let_it_come();
    close_owner(&a); /* nothing is left, says the end of the case */
    close(peer);
}

/* A reset behind what is kept comes behind it, whether the kernel has told it by then or not, and
 * wherever the file is. */
static void check_error_behind(bool is_told, bool is_moving)
{
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    receive_always(&a);
    turn();
    write_all(peer, "last", 4);
    wait_for(&a, POLLIN);
    if (!is_told)
        let_it_come();
    reset(peer);
    wait_for(&a, POLLHUP);
    if (is_told)
        let_it_come();
    cancel_receive(&a);
    assert_int_equal(a.in.last, -ECANCELED);
    if (is_moving)
        move_to_other(&a);
    receive_once(&a);
    WAIT_FOR_STEPPING(a.in.finals >= 2, turn_for(a.at, SECOND_NS / 100));
    assert_received(&a, "last", 4);
    receive_once(&a);
    WAIT_FOR_STEPPING(a.in.finals >= 3, turn_for(a.at, SECOND_NS / 100));
    assert_int_equal(a.in.last, -ECONNRESET);
    disown(&a);
}

static void an_error_behind_what_is_kept_is_not_lost(void)
{
    open_other();
    for (int i = 0; i < 4; i++)
        check_error_behind(i % 2 == 0, i / 2 == 0);
    close_other();
}

/* The kernel is at it when it is asked to end it, and does not find it then. */
static void what_is_cancelled_at_once_ends(void)
{
    const size_t length = 60000;
    for (int i = 0; i < 20; i++) {
        owner a = { .name = "a" };
        int peer = own_server_end(&a);
        write_all(peer, pattern(length), length);
        wait_for(&a, POLLIN);
        receive_always(&a);
        cancel_receive(&a);
        assert_story("a<ECANCELED.");
        receive_always(&a);
        TURN_UNTIL(a.received_length == length);
        assert_received(&a, pattern(length), length);
        end_pair(&a, peer);
    }
}

/* The first time it is told that there is no such thing. */
static void an_end_that_was_not_found_is_asked_for_again(void)
{
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    cancel(&a.in);
    const struct io_uring_sq *queue = &weir__uring_of(io)->ring.sq;
    struct io_uring_sqe *last = &queue->sqes[(queue->sqe_tail - 1) & queue->ring_mask];
    assert_int_equal(last->opcode, IORING_OP_ASYNC_CANCEL);
    last->addr = 8;
    TURN_UNTIL(a.in.finals == 1);
    assert_story("a<ECANCELED.");
    end_pair(&a, peer);
}

static void end_peer(int peer, bool is_reset)
{
    if (is_reset)
        reset(peer);
    else
        close(peer);
}

/* As if the kernel had told of an end. */
static void pretend_end(owner *self)
{
    weir_uring *uring = weir__uring_of(io);
    struct io_uring_sqe *entry = weir__uring_next(uring);
    io_uring_prep_nop(entry);
    entry->user_data = weir__uring_file_name(uring, &self->file, WEIR_URING_FILE_END);
}

/* What looks like an end that the kernel has missed makes a receive begin anew, which costs nobody
 * a byte, the end or the reason. */
static void what_begins_anew_loses_nothing(void)
{
    for (int is_reset = 0; is_reset <= 1; is_reset++) {
        owner a = { .name = "a" };
        int peer = own_server_end(&a);
        receive_always(&a);
        turn();
        write_all(peer, "one", 3);
        pretend_end(&a);
        TURN_UNTIL(a.received_length == 3);
        write_all(peer, "two", 3);
        TURN_UNTIL(a.received_length == 6);
        assert_received(&a, "onetwo", 6);
        assert_int_equal(a.in.finals, 0);
        end_peer(peer, is_reset);
        TURN_UNTIL(a.in.finals == 1);
        assert_int_equal(a.in.last, is_reset ? -ECONNRESET : 0);
        disown(&a);
    }
}

/* It is on its way to begin anew when the end comes. */
static void what_ends_while_it_begins_anew_has_ended(void)
{
    for (int is_reset = 0; is_reset <= 1; is_reset++) {
        owner a = { .name = "a" };
        int peer = own_server_end(&a);
        receive_always(&a);
        turn();
        write_all(peer, "last", 4);
        wait_for(&a, POLLIN);
        let_it_come();
        pretend_end(&a);
        turn();
        end_peer(peer, is_reset);
        wait_for(&a, is_reset ? POLLHUP : POLLRDHUP);
        TURN_UNTIL(a.in.finals == 1);
        assert_received(&a, "last", 4);
        assert_int_equal(a.in.last, is_reset ? -ECONNRESET : 0);
        disown(&a);
    }
}

/* What is received once does not begin anew: whoever has had enough is left alone, and so is the
 * memory of one who is gone. */
static void take_two(probe *self, const weir_io_result *result)
{
    if (result->code > 0 && self->results < 2)
        receive_once(self->of);
}

static void an_end_behind_single_receives_costs_nothing(void)
{
    for (int is_tcp = 0; is_tcp <= 1; is_tcp++) {
        owner a = { .name = "a" };
        int peer = own_half(&a, is_tcp);
        a.in.then = take_two;
        receive_once(&a);
        turn();
        write_all(peer, pattern(60000), 60000);
        close(peer);
        wait_for(&a, POLLRDHUP);
        TURN_UNTIL(a.in.results == 2);
        for (int i = 0; i < 3; i++)
            turn();
        assert_int_equal(a.in.op.state, 0);
        assert_quiet();
        disown(&a);
        memset(&a, 0xe5, sizeof a);
        for (int i = 0; i < 3; i++)
            turn();
        for (size_t i = 0; i < sizeof a; i++)
            assert_int_equal(((const unsigned char *)&a)[i], 0xe5);
    }
}

/* The kernel takes so many buffers at once, and no more, before it waits. */
static void check_end_behind(size_t length, bool is_tcp, bool is_reset, bool is_late)
{
    const int room = 4 << 20;
    owner a = { .name = "" };
    int peer = own_half(&a, is_tcp);
    setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(a.file.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (!is_late) {
        receive_always(&a);
        turn();
    }
    write_all(peer, pattern(length), length);
    if (is_reset)
        reset(peer);
    else
        shutdown(peer, SHUT_WR);
    wait_for(&a, is_reset ? POLLHUP : POLLRDHUP);
    if (is_late)
        receive_always(&a);
    TURN_UNTIL((story_length = 0, a.in.finals == 1)); /* it would be a long one */
    assert_int_equal(a.received_length, length);
    assert_int_equal(a.in.last, is_reset && is_tcp ? -ECONNRESET : 0);
    close_owner(&a);
    if (!is_reset)
        close(peer);
}

static void an_end_behind_many_buffers_is_told(void)
{
    open_small(0, 64, 1024);
    weir__uring_of(io)->buffers.wanted = 64; /* as when many connections were busy */
    weir__uring_of(io)->has_no_bulk = true;  /* as with buffers of the largest size */
    for (size_t kib = 30; kib <= 210; kib += 10) {
        for (int kind = 0; kind < 8; kind++)
            check_end_behind(kib << 10, kind & 1, kind & 2, kind & 4);
    }
}

/* There is no room to ask, and the kernel takes nothing; or it does not know the other way either.
 */
typedef struct refusal {
    bool is_on;
    bool has_no_other_way;
} refusal;

static int refuse_to_enter(void *arg, const char *call, size_t *length)
{
    const refusal *self = arg;
    (void)length;
    if (self->is_on && strcmp(call, "io_uring_enter") == 0)
        return -EAGAIN;
    return self->is_on && self->has_no_other_way && strcmp(call, "io_uring_register") == 0 ? -EINVAL
                                                                                           : 0;
}

static void fill_queue(void)
{
    struct io_uring_sqe *entry;
    while ((entry = io_uring_get_sqe(&weir__uring_of(io)->ring)) != NULL) {
        io_uring_prep_nop(entry);
        entry->user_data = WEIR_URING_NOTHING;
    }
}

/* Whatever was in its place before: preparing an entry does not set all of it. */
static void a_submission_begins_empty(void)
{
    static const struct io_uring_sqe empty;
    weir_uring *ring = weir__uring_of(io);
    turn(); /* hands over what is there already */
    memset(ring->ring.sq.sqes, 0xe5, ring->ring.sq.ring_entries * sizeof empty);
    for (unsigned i = 0; i <= ring->ring.sq.ring_entries; i++) { /* the last makes room first */
        struct io_uring_sqe *entry = weir__uring_next(ring);
        assert_non_null(entry);
        assert_memory_equal(entry, &empty, sizeof empty);
        io_uring_prep_nop(entry);
        entry->user_data = WEIR_URING_NOTHING;
    }
    turn();
}

static void what_could_not_be_cancelled_is_closed_all_the_same(void)
{
    for (int kind = 0; kind < 4; kind++) {
        refusal kernel_is_busy = { .has_no_other_way = kind & 2 };
        owner a = { .name = "a" };
        int peer = own_half(&a, kind & 1);
        receive_always(&a);
        turn();
        fill_queue();
        weir_fault_set(refuse_to_enter, &kernel_is_busy);
        kernel_is_busy.is_on = true;
        cancel(&a.in);
        kernel_is_busy.is_on = false;
        TURN_UNTIL(a.in.finals == 1);
        weir_fault_set(NULL, NULL);
        assert_story("a<ECANCELED.");
        disown(&a);
        struct pollfd end = { .fd = peer, .events = POLLRDHUP };
        assert_int_equal(poll(&end, 1, 10000), 1);
        close(peer);
    }
}

/* Many wake-ups, the last of which is the end's, which comes at any moment of the kernel's work. */
typedef struct late_end {
    int peer;
    unsigned spins;
    pthread_barrier_t both;
} late_end;

static void *end_late(void *arg)
{
    late_end *self = arg;
    pthread_barrier_wait(&self->both);
    for (volatile unsigned i = 0; i < self->spins; i++) {
    }
    shutdown(self->peer, SHUT_WR);
    return NULL;
}

static void an_end_behind_many_messages_is_told(void)
{
    enum { ROUNDS = 100, MESSAGES = 150, BYTES = 64 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        owner a = { .name = "a" };
        pthread_t thread;
        late_end late = { .peer = receive_from_peer(&a), .spins = round * 1000 };
        write_all(late.peer, "x", 1);
        TURN_UNTIL(a.received_length == 1);
        for (int i = 0; i < MESSAGES; i++)
            write_all(late.peer, pattern(BYTES), BYTES);
        pthread_barrier_init(&late.both, NULL, 2);
        assert_int_equal(pthread_create(&thread, NULL, end_late, &late), 0);
        pthread_barrier_wait(&late.both);
        TURN_UNTIL(a.in.finals == 1);
        assert_int_equal(a.in.last, 0);
        assert_int_equal(a.received_length, 1 + MESSAGES * BYTES);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&late.both);
        end_pair(&a, late.peer);
    }
}

/* The kernel lets go of what it polls before it is closed, not when it next gets to it. */
static void what_is_closed_is_closed_at_once(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    own(&a, listen_on_loopback());
    struct sockaddr_in address = name_of(a.file.fd);
    accept_always(&a);
    turn();
    close_owner(&a);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof address), -1);
    assert_int_equal(errno, ECONNREFUSED);
    close(client);
}

/* Connections ------------------------------------------------------------------------------------
 */

#define CLIENTS 40

static void connect_many(const owner *self, int *clients)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct sockaddr_in address = name_of(self->file.fd);
        clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(clients[i], (struct sockaddr *)&address, sizeof address), 0);
    }
}

static int listen_for_many(void)
{
    int fd = listen_on_loopback();
    assert_int_equal(listen(fd, CLIENTS), 0);
    return fd;
}

/* The kernel accepts, and all of them have come. */
static void begin_burst(owner *self, int *clients)
{
    own(self, listen_for_many());
    accept_always(self);
    turn();
    connect_many(self, clients);
}

static void close_many(owner *self, int *clients)
{
    for (int i = 0; i < CLIENTS; i++) {
        if (i < self->in.results)
            close(self->accepted[i]);
        close(clients[i]);
    }
}

static int accepted_of(const owner *self)
{
    return self->in.results - self->in.finals;
}

static void a_burst_is_told_by_and_by(void)
{
    int clients[CLIENTS];
    owner a = { .name = "a" };
    begin_burst(&a, clients);
    WAIT_FOR_STEPPING(accepted_of(&a) >= CLIENTS,
                      assert_in_range(turn_for(io, SECOND_NS), 0, WEIR_IO_BATCH));
    assert_in_range(a.in.batches, 3, CLIENTS);
    for (int i = 0; i < CLIENTS; i++) { /* in their order */
        struct sockaddr_in peer = { 0 }, own;
        socklen_t length = sizeof peer;
        assert_int_equal(getpeername(a.accepted[i], (struct sockaddr *)&peer, &length), 0);
        own = name_of(clients[i]);
        assert_int_equal(peer.sin_port, own.sin_port);
    }
    close_many(&a, clients);
    close_owner(&a);
}

static void connections_that_raced_a_cancel_are_told_next(void)
{
    open_other();
    for (int is_moving = 0; is_moving <= 1; is_moving++) {
        int clients[CLIENTS];
        owner a = { .name = "a" };
        begin_burst(&a, clients);
        let_it_come();
        cancel_receive(&a);
        assert_story("a+ECANCELED.");
        a.in.results = a.in.finals = 0;
        if (is_moving)
            move_to_other(&a);
        accept_always(&a);
        WAIT_FOR_STEPPING(accepted_of(&a) >= CLIENTS,
                          assert_in_range(turn_for(a.at, SECOND_NS), 0, WEIR_IO_BATCH));
        close_many(&a, clients);
        close_owner(&a);
    }
    close_other();
}

static void connections_that_are_kept_are_closed_with_the_listener(void)
{
    int clients[CLIENTS];
    char byte;
    owner a = { .name = "a" };
    begin_burst(&a, clients);
    let_it_come();
    close_owner(&a);
    for (int i = 0; i < CLIENTS; i++) {
        assert_true(recv(clients[i], &byte, 1, 0) <= 0);
        close(clients[i]);
    }
}

static void what_does_not_listen_is_told_so(void)
{
    owner a = { .name = "a" };
    own(&a, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    accept_always(&a);
    TURN_UNTIL(a.in.finals == 1);
    assert_story("a+EINVAL.");
    disown(&a);
}

/* Too few of everything ---------------------------------------------------------------------------
 */

#define FILES 48

static bool have_received(const owner *all, int count, size_t length)
{
    for (int i = 0; i < count; i++) {
        if (all[i].received_length < length)
            return false;
    }
    return true;
}

static void echo_over_many(size_t length)
{
    int peers[FILES];
    owner *all = receive_from_peers(peers, FILES);
    for (int round = 1; round <= 5; round++) {
        for (int i = 0; i < FILES; i++)
            write_all(peers[i], pattern(length * 5) + (size_t)(round - 1) * length, length);
        TURN_UNTIL(have_received(all, FILES, length * (size_t)round));
        story_length = 0;
    }
    for (int i = 0; i < FILES; i++)
        assert_received(&all[i], pattern(length * 5), length * 5);
    end_pairs(all, peers, FILES);
}

static void buffers_that_run_out_lose_nothing(void)
{
    open_small(0, 2, 1024);
    echo_over_many(3000);
    assert_true(value_of(&counters.exhausted) > 0);
}

static void a_short_queue_is_handed_over_in_between(void)
{
    open_small(1, 0, 0);
    echo_over_many(3000);
}

/* More results than the kernel has room for: they wait there. */
static void completions_that_overflow_are_not_lost(void)
{
    enum { MANY = 300 };
    open_small(2, 0, 0);
    int peers[MANY];
    owner *all = receive_from_peers(peers, MANY);
    for (int i = 0; i < MANY; i++)
        write_all(peers[i], "hello", 5);
    for (int turns = 0; !have_received(all, MANY, 5); turns++) {
        assert_true(turns < 1000);
        turn_for(io, SECOND_NS / 100);
        story_length = 0;
    }
    end_pairs(all, peers, MANY);
}

/* After a burst from many the memory is not kept for ever. A kernel that defers its work may hand
 * over so few at a time that they never run out. */
static void a_ring_that_has_grown_gets_smaller_again(void)
{
    enum { MANY = 100, ROUNDS = 3200, LENGTH = 600 };
    weir_pool_stats small, large, again;
    int peers[MANY];
    weir__uring_hide(WEIR_URING_DEFER);
    open_small(0, 64, 1024);
    owner *all = receive_from_peers(peers, MANY);
    write_all(peers[0], pattern(LENGTH), LENGTH);
    TURN_UNTIL(have_received(all, 1, LENGTH));
    weir_pool_get_stats(&small);
    large = small;
    for (int round = 2; large.used_blocks < small.used_blocks + 40; round++) {
        assert_true(round < 50);
        for (int i = 1; i < MANY; i++)
            write_all(peers[i], pattern(LENGTH), LENGTH);
        TURN_UNTIL(have_received(all + 1, MANY - 1, LENGTH * (size_t)(round - 1)));
        story_length = 0;
        weir_pool_get_stats(&large);
    }
    for (int round = 2; round <= ROUNDS; round++) {
        write_all(peers[0], "x", 1);
        TURN_UNTIL(have_received(all, 1, LENGTH + (size_t)round - 1));
        story_length = 0;
    }
    weir_pool_get_stats(&again);
    assert_int_equal(again.used_blocks, small.used_blocks);
    end_pairs(all, peers, MANY);
    weir__uring_hide(0);
}

/* The user keeps what came: the next ones get others. */
static void kept_buffers_do_not_stop_it(void)
{
    open_small(0, 2, 2048);
    weir_pool_stats before, after;
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    weir_pool_get_stats(&before);
    for (int i = 1; i <= 20; i++) {
        write_all(peer, pattern(2000), 2000);
        TURN_UNTIL(a.received_length == (size_t)i * 2000);
    }
    weir_pool_get_stats(&after);
    assert_true(after.used_blocks <= before.used_blocks + 2);
    end_pair(&a, peer);
}

/* Without memory it ends as everywhere, and what came is there for the next. */
static void without_memory_nothing_is_lost(void)
{
    open_small(0, 1, 1024);
    owner a = { .name = "a" };
    int peer = receive_from_peer(&a);
    harness_fail_nth("pool", 1, -ENOMEM);
    write_all(peer, pattern(6000), 6000);
    for (int turns = 0; a.received_length < 6000; turns++) {
        assert_true(turns < 1000);
        turn_for(io, SECOND_NS / 100);
        if (!a.in.is_pending) {
            assert_int_equal(a.in.last, -ENOMEM);
            harness_fail_end();
            receive_always(&a);
        }
    }
    harness_fail_end();
    assert_received(&a, pattern(6000), 6000);
    end_pair(&a, peer);
}

/* Sending -----------------------------------------------------------------------------------------
 */

static void a_send_is_gathered_into_one(void)
{
    char bytes[64];
    owner a = { .name = "a", .piece_length = 3 };
    int peer = own_half_of_pair(&a);
    for (int i = 0; i < 2 * WEIR_URING_HEADERS; i++) {
        assert_int_equal(send_bytes(&a, "twelve bytes", 12), WEIR_IO_PENDING);
        TURN_UNTIL(!a.out.is_pending);
        assert_int_equal(a.out.last, 12);
        assert_int_equal(recv(peer, bytes, sizeof bytes, 0), 12);
        assert_memory_equal(bytes, "twelve bytes", 12);
        story_length = 0;
    }
    assert_int_equal(kernel.sends, 0);
    end_pair(&a, peer);
}

/* The queue is full in between: the pieces of each are its own until they are handed over. */
static void sends_that_do_not_fit_are_not_mixed_up(void)
{
    enum { SENDERS = 12, LENGTH = 12 };
    static const char texts[SENDERS][LENGTH + 1] = {
        "aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc", "dddddddddddd",
        "eeeeeeeeeeee", "ffffffffffff", "gggggggggggg", "hhhhhhhhhhhh",
        "iiiiiiiiiiii", "jjjjjjjjjjjj", "kkkkkkkkkkkk", "llllllllllll",
    };
    open_small(4, 0, 0);
    int peers[SENDERS];
    owner *all = receive_from_peers(peers, SENDERS);
    turn();
    for (int i = 0; i < SENDERS; i++) {
        all[i].piece_length = 3;
        assert_int_equal(send_bytes(&all[i], texts[i], LENGTH), WEIR_IO_PENDING);
    }
    for (int i = 0; i < SENDERS; i++) {
        char bytes[LENGTH + 1];
        TURN_UNTIL(!all[i].out.is_pending);
        assert_int_equal(all[i].out.last, LENGTH);
        assert_int_equal(recv(peers[i], bytes, sizeof bytes, 0), LENGTH);
        assert_memory_equal(bytes, texts[i], LENGTH);
    }
    end_pairs(all, peers, SENDERS);
}

static void a_send_waits_for_room(void)
{
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    for (int i = 0; i < 20; i++)
        turn();
    assert_story("");
    assert_quiet();
    drain(peer);
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a>1.");
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    turn();
    cancel(&a.out);
    TURN_UNTIL(a.out.finals == 2);
    assert_story("a>ECANCELED.");
    end_pair(&a, peer);
}

static int cut_send(void *arg, const char *call, size_t *length)
{
    (void)arg;
    if (length != NULL && (strcmp(call, "send") == 0 || strcmp(call, "sendmsg") == 0))
        *length = 5;
    return 0;
}

static void short_sends_are_told_as_they_are(void)
{
    char bytes[64];
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    weir_fault_set(cut_send, NULL);
    for (size_t piece = 0; piece <= 4; piece += 4) {
        a.piece_length = piece;
        assert_int_equal(send_bytes(&a, "twelve bytes", 12), WEIR_IO_PENDING);
        TURN_UNTIL(!a.out.is_pending);
        assert_int_equal(a.out.last, 5);
        assert_int_equal(recv(peer, bytes, sizeof bytes, 0), 5);
        assert_memory_equal(bytes, "twelv", 5);
    }
    weir_fault_set(NULL, NULL);
    end_pair(&a, peer);
}

/* Much at once ----------------------------------------------------------------------------------
 */

enum { MUCH = 40000, LITTLE = 10, SMALL_BUFFER = 1024 };

static int largest; /* result of a receive */

static void note_largest(probe *self, const weir_io_result *result)
{
    (void)self;
    largest = result->code > largest ? result->code : largest;
}

static bool is_at_kernel(const owner *self)
{
    return self->in.op.state == WEIR_OP_AT_KERNEL && !(self->file.bits & WEIR_FILE_WATCHED);
}

/* The bytes of the pattern that come next. */
static void write_next(owner *self, int peer, size_t length)
{
    size_t before = self->received_length;
    write_all(peer, pattern(before + length) + before, length);
    TURN_UNTIL(self->received_length == before + length);
    story_length = 0;
}

/* As long as much comes at once it is received in larger pieces than the kernel has buffers. */
static void much_at_once_comes_in_larger_pieces(void)
{
    open_small(0, 16, SMALL_BUFFER);
    for (int kind = 0; kind < 2; kind++) {
        owner a = { .name = "a", .in.then = note_largest };
        int peer = own_half(&a, kind);
        receive_always(&a);
        write_next(&a, peer, LITTLE);
        assert_true(is_at_kernel(&a));
        for (int i = 0; i < 2; i++) {
            largest = 0;
            write_next(&a, peer, i == 0 ? MUCH : MUCH / 2);
            assert_true(largest > SMALL_BUFFER);
            assert_true(a.file.is_bulk);
            for (int j = 0; j < 20; j++)
                write_next(&a, peer, LITTLE);
            assert_false(a.file.is_bulk);
            assert_true(is_at_kernel(&a));
        }
        assert_received(&a, pattern(a.received_length), a.received_length);
        shutdown(peer, SHUT_WR);
        TURN_UNTIL(a.in.finals == 1);
        assert_int_equal(a.in.last, 0);
        end_pair(&a, peer);
        assert_quiet();
    }
}

/* The end, or a reset, comes behind it. */
static void much_at_once_and_its_end(void)
{
    open_small(0, 16, SMALL_BUFFER);
    for (int i = 0; i < 50; i++) {
        owner a = { .name = "a" };
        int peer = own_half(&a, i & 1);
        receive_always(&a);
        if (i & 2)
            turn();
        write_all(peer, pattern(MUCH), MUCH);
        shutdown(peer, SHUT_WR);
        TURN_UNTIL(a.in.finals == 1);
        assert_int_equal(a.in.last, 0);
        assert_received(&a, pattern(MUCH), MUCH);
        story_length = 0;
        end_pair(&a, peer);
    }
}

static int results_left;

static void cancel_in_time(probe *self, const weir_io_result *result)
{
    if (result->is_armed && --results_left == 0)
        weir__io_cancel(io, &self->op);
}

/* Whoever has enough in the middle gets the rest later, and in order. */
static void much_at_once_can_be_stopped_anywhere(void)
{
    open_small(0, 16, SMALL_BUFFER);
    for (int when = 1; when < 40; when++) {
        owner a = { .name = "a", .in.then = cancel_in_time };
        int peer = own_half(&a, when & 1);
        results_left = when;
        receive_always(&a);
        write_all(peer, pattern(MUCH), MUCH);
        TURN_UNTIL(a.received_length == MUCH || a.in.finals == 1);
        for (int i = 0; i < 3; i++)
            turn(); /* nothing more, if it has ended */
        while (a.received_length < MUCH) {
            if (!a.in.is_pending)
                receive_always(&a);
            turn();
        }
        assert_received(&a, pattern(MUCH), MUCH);
        story_length = 0;
        end_pair(&a, peer);
    }
}

/* Somebody who waits for the hang-up of the same file still hears of it. */
static void much_at_once_beside_a_hangup(void)
{
    open_small(0, 16, SMALL_BUFFER);
    owner a = { .name = "a" };
    int peer = own_half(&a, 1);
    receive_always(&a);
    assert_int_equal(submit(&a.hangup, WEIR_IO_HANGUP), WEIR_IO_PENDING);
    write_next(&a, peer, MUCH);
    for (int j = 0; j < 20; j++)
        write_next(&a, peer, LITTLE);
    assert_false(a.file.is_bulk);
    shutdown(a.file.fd, SHUT_WR);
    shutdown(peer, SHUT_WR);
    TURN_UNTIL(a.in.finals == 1 && a.hangup.finals == 1);
    story_length = 0;
    end_pair(&a, peer);
}

/* Whoever closes it elsewhere closes it: the kernel does not hold what it watched here. */
static void much_at_once_and_gone(void)
{
    open_small(0, 16, SMALL_BUFFER);
    for (int kind = 0; kind < 2; kind++) {
        owner a = { .name = "a" };
        char byte;
        int peer = own_half(&a, kind);
        receive_always(&a);
        write_next(&a, peer, MUCH);
        assert_true(a.file.is_bulk);
        cancel(&a.in);
        TURN_UNTIL(a.in.finals == 1);
        io->type->detach(io, &a.file);
        close(a.file.fd);
        assert_int_equal(recv(peer, &byte, 1, MSG_DONTWAIT), 0);
        close(peer);
        story_length = 0;
    }
}

/* The end of its stream was seen in this completion phase, and it waits to begin anew; then its
 * owner cancels it. That list and the one of those that could not be cancelled share their link. */
static void receive_that_is_cancelled_does_not_begin_anew(void)
{
    weir_uring *ring = weir__uring_of(io);
    owner a = { .name = "a" }, b = { .name = "b" };
    int peer = receive_from_peer(&a), b_peer = receive_from_peer(&b);
    owner *both[] = { &a, &b };
    for (int i = 0; i < 2; i++)
        weir__uring_complete_file_end(
            ring, weir__uring_file_name(ring, &both[i]->file, WEIR_URING_FILE_END), POLLRDHUP);
    assert_ptr_equal(ring->told, &b.in.op);
    cancel(&a.in);
    assert_ptr_equal(ring->told, &b.in.op);
    assert_null(b.in.op.next_ended);
    cancel(&b.in);
    assert_null(ring->told);
    TURN_UNTIL(a.in.finals == 1 && b.in.finals == 1);
    assert_int_equal(a.in.last, -ECANCELED);
    assert_int_equal(b.in.last, -ECANCELED);
    assert_quiet();
    disown(&a);
    disown(&b);
    close(peer);
    close(b_peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        uring_case(receive_that_is_cancelled_does_not_begin_anew),
        uring_case(bytes_that_raced_a_cancel_are_told_next),
        uring_case(what_is_kept_goes_to_another_backend),
        uring_case(what_is_kept_goes_into_a_pipe),
        uring_case(what_is_kept_is_dropped_with_its_file),
        uring_case(an_error_behind_what_is_kept_is_not_lost),
        uring_case(what_is_cancelled_at_once_ends),
        uring_case(an_end_that_was_not_found_is_asked_for_again),
        uring_case(what_begins_anew_loses_nothing),
        uring_case(what_ends_while_it_begins_anew_has_ended),
        uring_case(an_end_behind_single_receives_costs_nothing),
        uring_case(an_end_behind_many_buffers_is_told),
        uring_case(what_could_not_be_cancelled_is_closed_all_the_same),
        uring_case(an_end_behind_many_messages_is_told),
        uring_case(a_submission_begins_empty),
        loop_cases(what_is_closed_is_closed_at_once),
        uring_case(a_burst_is_told_by_and_by),
        uring_case(connections_that_raced_a_cancel_are_told_next),
        uring_case(connections_that_are_kept_are_closed_with_the_listener),
        uring_case(what_does_not_listen_is_told_so),
        uring_case(buffers_that_run_out_lose_nothing),
        uring_case(a_short_queue_is_handed_over_in_between),
        uring_case(completions_that_overflow_are_not_lost),
        uring_case(a_ring_that_has_grown_gets_smaller_again),
        uring_case(kept_buffers_do_not_stop_it),
        uring_case(without_memory_nothing_is_lost),
        uring_case(a_send_is_gathered_into_one),
        uring_case(sends_that_do_not_fit_are_not_mixed_up),
        uring_case(a_send_waits_for_room),
        uring_case(short_sends_are_told_as_they_are),
        uring_case(much_at_once_comes_in_larger_pieces),
        uring_case(much_at_once_and_its_end),
        uring_case(much_at_once_can_be_stopped_anywhere),
        uring_case(much_at_once_beside_a_hangup),
        uring_case(much_at_once_and_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
