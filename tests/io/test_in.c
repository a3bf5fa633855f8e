/* SPDX-License-Identifier: MIT */
/* The way in: readiness, what a read says about it, ends of streams, turns. */
#include "io/ops.h"

#define SMALLEST 64

/* Every read of this owner asks for the smallest size. */
static void guess_small(owner *self)
{
    self->in.op.guess = (weir_guess){ .size = SMALLEST };
    assert_int_equal(weir__guess_size(&self->in.op.guess), SMALLEST);
}

static void keep_guess_small(probe *self, const weir_io_result *result)
{
    (void)result;
    guess_small(self->of);
}

/* Data and the end of the stream ------------------------------------------------------------- */

/* Data and FIN come as one edge, and no second one comes: reading has to go on by itself. */
static void check_data_and_fin(bool is_tcp)
{
    owner a = { .name = "a" };
    int peer = own_half(&a, is_tcp);
    receive_always(&a);
    turn(); /* it can be written to */
    write_all(peer, "hello", 5);
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    wait_for(&a, POLLRDHUP);
    assert_int_equal(poll_for(io, SECOND_NS), 1);
    in_complete++;
    assert_int_equal(io->type->complete(io), 2);
    in_complete--;
    assert_story("a<5 a| a<0.");
    assert_received(&a, "hello", 5);
    assert_int_equal(kernel.receives, 2);
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void data_and_fin_in_one_edge_with_auto_read(void **state)
{
    (void)state;
    check_data_and_fin(true);
    kernel.receives = 0;
    check_data_and_fin(false);
}

static void check_data_and_fin_one_by_one(bool is_tcp)
{
    owner a = { .name = "a" };
    int peer = own_half(&a, is_tcp);
    receive_once(&a);
    turn();
    write_all(peer, "hello", 5);
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    wait_for(&a, POLLRDHUP);
    assert_int_equal(poll_for(io, SECOND_NS), 1);
    in_complete++;
    assert_int_equal(io->type->complete(io), 1);
    in_complete--;
    assert_story("a<5. a|");
    assert_quiet(); /* nobody asked for more */
    receive_once(&a);
    assert_true(has_results()); /* without another edge */
    assert_int_equal(turn(), 1);
    assert_story("a<0.");
    assert_received(&a, "hello", 5);
    assert_quiet();
    receive_once(&a); /* and who asks again is told again */
    assert_int_equal(turn(), 1);
    assert_story("a<0.");
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

static void data_and_fin_in_one_edge_without_auto_read(void **state)
{
    (void)state;
    check_data_and_fin_one_by_one(true);
    check_data_and_fin_one_by_one(false);
}

static void much_data_and_fin_in_one_edge(void **state)
{
    (void)state;
    for (int is_multishot = 0; is_multishot <= 1; is_multishot++) {
        owner *a = calloc(1, sizeof *a);
        a->name = "a";
        int peer = own_server_end(a);
        if (is_multishot) {
            receive_always(a);
        } else {
            a->in.then = receive_again;
            receive_once(a);
        }
        turn();
        const char *bytes = pattern(60000);
        write_all(peer, bytes, 60000);
        assert_int_equal(close(peer), 0);
        wait_for(a, POLLRDHUP);
        TURN_UNTIL(a->in.finals > 0 && a->in.last == 0);
        assert_received(a, bytes, 60000);
        assert_int_equal(a->in.batches, is_multishot ? a->in.batches : a->in.results - 1);
        assert_quiet();
        close_owner(a);
        free(a);
    }
}

/* The end comes later than the data: the backend waits for its edge in between. */
static void fin_after_the_data_is_an_edge_of_its_own(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    receive_always(&a);
    turn();
    write_all(peer, "hello", 5);
    TURN_UNTIL(a.in.results == 1);
    assert_story("a<5 a|");
    assert_quiet();
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    TURN_UNTIL(a.in.finals == 1);
    assert_story("a<0.");
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* Resets ------------------------------------------------------------------------------------- */

static void check_rst_after_half_close(bool is_multishot)
{
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    if (is_multishot)
        receive_always(&a);
    else
        receive_once(&a);
    wait_for_hangup(&a);
    turn();
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    TURN_UNTIL(a.in.finals == 1);
    assert_story("a<0.");
    assert_quiet(); /* half of it still stands */
    assert_int_equal(send_bytes(&a, "unread", 6), 6);
    assert_int_equal(wait_until(peer, POLLIN) & POLLIN, POLLIN);
    reset(peer);
    TURN_UNTIL(a.hangup.finals == 1);
    assert_story("a~0.");
    assert_quiet();
    receive_once(&a);
    assert_int_equal(turn(), 1);
    assert_story("a<0."); /* the stream had ended before the reset */
    assert_int_equal(send_bytes(&a, "x", 1), -EPIPE);
    assert_quiet();
    disown(&a);
}

static void rst_after_half_close_with_auto_read(void **state)
{
    (void)state;
    check_rst_after_half_close(true);
}

static void rst_after_half_close_without_auto_read(void **state)
{
    (void)state;
    check_rst_after_half_close(false);
}

/* Nobody waits for anything when the reset comes: its edge is one event, and no more. */
static void rst_after_half_close_does_not_spin(void **state)
{
    (void)state;
    for (int is_multishot = 0; is_multishot <= 1; is_multishot++) {
        owner a = { .name = "a" };
        int peer = own_server_end(&a);
        a.in.op.is_multishot = is_multishot;
        assert_int_equal(submit(&a.in, WEIR_IO_RECEIVE), WEIR_IO_PENDING);
        turn();
        assert_int_equal(shutdown(peer, SHUT_WR), 0);
        TURN_UNTIL(a.in.finals == 1);
        assert_story("a<0.");
        reset(peer);
        wait_for(&a, POLLHUP);
        assert_int_equal(poll_for(io, SECOND_NS), 1);
        assert_int_equal(io->type->complete(io), 0);
        for (int i = 0; i < 10; i++)
            assert_quiet();
        assert_int_equal(send_bytes(&a, "x", 1), -EPIPE);
        wait_for_hangup(&a); /* who asks later is told from memory */
        assert_int_equal(turn(), 1);
        assert_story("a~0.");
        disown(&a);
    }
}

static void rst_fails_a_pending_send(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    receive_always(&a);
    turn();
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    TURN_UNTIL(a.in.finals == 1);
    assert_story("a<0.");
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    turn();
    assert_story("");
    reset(peer);
    TURN_UNTIL(a.out.finals == 1);
    assert_story("a>EPIPE.");
    assert_quiet();
    disown(&a);
}

static void check_rst(bool is_multishot)
{
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    a.in.op.is_multishot = is_multishot;
    assert_int_equal(submit(&a.in, WEIR_IO_RECEIVE), WEIR_IO_PENDING);
    wait_for_hangup(&a);
    turn();
    reset(peer);
    TURN_UNTIL(a.hangup.finals == 1);
    assert_story("a<ECONNRESET. a~0."); /* reading goes first */
    assert_quiet();
    disown(&a);
}

static void a_reset_fails_the_receive_and_is_a_hangup(void **state)
{
    (void)state;
    check_rst(true);
    check_rst(false);
}

/* A receive that comes after the reset still learns of it. */
static void a_reset_is_kept_for_a_later_receive(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    wait_for_hangup(&a);
    turn();
    reset(peer);
    TURN_UNTIL(a.hangup.finals == 1);
    assert_story("a~0.");
    assert_quiet();
    receive_always(&a);
    assert_int_equal(turn(), 1);
    assert_story("a<ECONNRESET.");
    assert_quiet();
    disown(&a);
}

static void fail_next_receive(probe *self, const weir_io_result *result)
{
    (void)self;
    (void)result;
    kernel.receive_error = -ECONNRESET;
}

static void data_then_an_error_tells_both_in_order(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = fail_next_receive };
    int peer = own_half_of_pair(&a);
    guess_small(&a);
    receive_always(&a);
    turn();
    write_all(peer, pattern(SMALLEST + 5), SMALLEST + 5);
    assert_int_equal(turn(), 2);
    assert_story("a<64 a| a<ECONNRESET.");
    kernel.receive_error = 0;
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* What a read says about the edge ------------------------------------------------------------ */

static void short_read_clears_readable(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    write_all(peer, "hello", 5);
    assert_int_equal(turn(), 1);
    assert_story("a<5 a|");
    assert_int_equal(kernel.receives, 1); /* no second one to hear EAGAIN */
    assert_quiet();
    assert_int_equal(kernel.receives, 1);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void full_read_goes_on_until_eagain(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = keep_guess_small };
    int peer = own_half_of_pair(&a);
    guess_small(&a);
    receive_always(&a);
    turn();
    write_all(peer, pattern(3 * SMALLEST), 3 * SMALLEST);
    assert_int_equal(turn(), 3);
    assert_story("a<64 a<64 a<64 a|");
    assert_int_equal(kernel.receives, 4); /* the last one heard EAGAIN */
    assert_quiet();
    assert_int_equal(kernel.receives, 4);
    assert_received(&a, pattern(3 * SMALLEST), 3 * SMALLEST);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* EAGAIN at once, for another has read it all: no batch, and no end of one. */
static void eagain_alone_tells_nothing(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    write_all(peer, "hello", 5);
    assert_int_equal(poll_for(io, 0), 1);
    assert_int_equal(drain(a.file.fd), 5);
    assert_int_equal(io->type->complete(io), 0);
    assert_story("");
    assert_int_equal(kernel.receives, 1);
    assert_quiet();
    assert_int_equal(kernel.receives, 1);
    write_all(peer, "again", 5);
    assert_int_equal(turn(), 1);
    assert_story("a<5 a|");
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* One full buffer and the end: the guess grows in between. */
static void hung_up_keeps_reading_to_the_end(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_server_end(&a);
    receive_always(&a);
    turn();
    write_all(peer, pattern(5000), 5000);
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    wait_for(&a, POLLRDHUP);
    assert_int_equal(turn(), 3);
    assert_story("a<2048 a<2952 a| a<0.");
    assert_received(&a, pattern(5000), 5000);
    assert_int_equal(kernel.receives, 3);
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* The hang-up alone, without the bit that says readable; and an event without any bit. */
static void s106_hangup_or_no_bits_at_all_lead_to_a_read(void **state)
{
    (void)state;
    const uint32_t what_is_left[] = { EPOLLHUP, EPOLLRDHUP, EPOLLERR | EPOLLHUP, 0 };
    for (size_t i = 0; i < COUNT_OF(what_is_left); i++) {
        owner a = { .name = "a" };
        int peer = own_half_of_pair(&a);
        receive_always(&a);
        turn();
        kernel.event_and = what_is_left[i];
        assert_int_equal(close(peer), 0);
        assert_int_equal(turn(), 1);
        assert_story("a<0.");
        kernel.event_and = UINT32_MAX;
        assert_quiet();
        disown(&a);
    }
}

/* An event without any bit that was a false alarm costs one read. */
static void an_event_without_bits_is_not_taken_for_more_than_it_is(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    wait_for_hangup(&a);
    kernel.event_and = 0;
    assert_int_equal(turn(), 0); /* it said that it can be written to */
    assert_int_equal(kernel.receives, 1);
    assert_story("");
    assert_quiet();
    kernel.event_and = UINT32_MAX;
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* Interrupted calls -------------------------------------------------------------------------- */

static void interrupted_receives_are_made_again(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    write_all(peer, "hello", 5);
    kernel.interruptions = 3;
    assert_int_equal(turn(), 1);
    assert_story("a<5 a|");
    assert_int_equal(kernel.receives, 4);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* A storm of signals costs the file its turn, not the byte; and does not hold the thread. */
static void a_storm_of_interruptions_is_waited_out_in_later_turns(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    write_all(peer, "hello", 5);
    kernel.interruptions = 100;
    assert_int_equal(turn(), 0);
    assert_true(kernel.receives < 20);
    assert_true(has_results());
    TURN_UNTIL(a.in.results == 1);
    assert_int_equal(kernel.interruptions, 0);
    assert_story("a<5 a|");
    assert_quiet();
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* The ready list ----------------------------------------------------------------------------- */

/* Who used up 16 reads goes to the end; the other has its turn in between. */
static void sixteen_reads_then_the_others_turn(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = keep_guess_small };
    owner b = { .name = "b", .in.then = keep_guess_small };
    int a_peer = own_half_of_pair(&a), b_peer = own_half_of_pair(&b);
    guess_small(&a);
    guess_small(&b);
    receive_always(&a);
    receive_always(&b);
    turn();
    write_all(a_peer, pattern(40 * SMALLEST), 40 * SMALLEST);
    write_all(b_peer, pattern(18 * SMALLEST), 18 * SMALLEST);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(has_results(), i > 0);
        turn_for(io, SECOND_NS);
        assert_int_equal(kernel.timeout_ns, i > 0 ? 0 : SECOND_NS); /* no waiting meanwhile */
    }
    expect(16, "a<64");
    expect(1, "a|");
    expect(16, "b<64");
    expect(1, "b|");
    expect(16, "a<64");
    expect(1, "a|");
    expect(2, "b<64");
    expect(1, "b|");
    expect(8, "a<64");
    expect(1, "a|");
    assert_expected();
    assert_received(&a, pattern(40 * SMALLEST), 40 * SMALLEST);
    assert_received(&b, pattern(18 * SMALLEST), 18 * SMALLEST);
    assert_quiet();
    close_owner(&a);
    close_owner(&b);
    assert_int_equal(close(a_peer), 0);
    assert_int_equal(close(b_peer), 0);
}

/* Exactly 16 and nothing more: the next turn finds that out, and then there is rest. */
static void sixteen_reads_and_no_more(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = keep_guess_small };
    int peer = own_half_of_pair(&a);
    guess_small(&a);
    receive_always(&a);
    turn();
    write_all(peer, pattern(16 * SMALLEST), 16 * SMALLEST);
    assert_int_equal(turn(), 16);
    assert_int_equal(a.in.batches, 1);
    assert_true(has_results());
    assert_int_equal(turn(), 0);
    assert_int_equal(a.in.batches, 1);
    assert_quiet();
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void one_megabyte_comes_in_batches_of_sixteen(void **state)
{
    (void)state;
    owner *a = calloc(1, sizeof *a);
    a->name = "a";
    int peer = own_server_end(a);
    receive_always(a);
    turn();
    const char *bytes = pattern(1 << 20);
    size_t sent = 0;
    while (a->received_length < 1 << 20) {
        ssize_t count = send(peer, bytes + sent, (1 << 20) - sent, MSG_DONTWAIT);
        if (count > 0)
            sent += (size_t)count;
        int batches = a->in.batches, results = a->in.results;
        turn_for(io, SECOND_NS / 100);
        assert_true(a->in.results - results <= WEIR_IO_BATCH);
        assert_int_equal(a->in.batches - batches, a->in.results > results);
    }
    assert_received(a, bytes, 1 << 20);
    close_owner(a);
    free(a);
    assert_int_equal(close(peer), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        try_cases(data_and_fin_in_one_edge_with_auto_read),
        try_cases(data_and_fin_in_one_edge_without_auto_read),
        io_cases(much_data_and_fin_in_one_edge),
        io_cases(fin_after_the_data_is_an_edge_of_its_own),
        try_cases(rst_after_half_close_with_auto_read),
        try_cases(rst_after_half_close_without_auto_read),
        try_loop_cases(rst_after_half_close_does_not_spin),
        io_cases(rst_fails_a_pending_send),
        try_cases(a_reset_fails_the_receive_and_is_a_hangup),
        io_cases(a_reset_is_kept_for_a_later_receive),
        try_cases(data_then_an_error_tells_both_in_order),
        call_cases(short_read_clears_readable),
        try_cases(full_read_goes_on_until_eagain),
        try_cases(eagain_alone_tells_nothing),
        try_cases(hung_up_keeps_reading_to_the_end),
        loop_cases(s106_hangup_or_no_bits_at_all_lead_to_a_read),
        epoll_case(an_event_without_bits_is_not_taken_for_more_than_it_is),
        call_cases(interrupted_receives_are_made_again),
        try_cases(a_storm_of_interruptions_is_waited_out_in_later_turns),
        epoll_case(sixteen_reads_then_the_others_turn),
        try_cases(sixteen_reads_and_no_more),
        try_cases(one_megabyte_comes_in_batches_of_sixteen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
