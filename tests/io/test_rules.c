/* SPDX-License-Identifier: MIT */
/* The rules of operations, as io.h counts them. */
#include "io/ops.h"

#define SMALLEST 64

static void guess_small(owner *self)
{
    self->in.op.guess = (weir_guess){ .size = 64 };
}

static uint64_t used_blocks(void)
{
    weir_pool_stats stats;
    weir_pool_get_stats(&stats);
    return stats.used_blocks;
}

/* What tests do from inside on_done and on_batch_end ----------------------------------------- */

static probe *other;

static void cancel_self(probe *self, const weir_io_result *result)
{
    if (result->is_armed)
        cancel(self);
}

static void cancel_self_at_batch_end(probe *self)
{
    cancel(self);
}

static void cancel_other(probe *self, const weir_io_result *result)
{
    (void)self;
    (void)result;
    cancel(other);
}

static void receive_always_again(probe *self, const weir_io_result *result)
{
    if (!result->is_armed) {
        self->then = NULL;
        receive_always(self->of);
    }
}

static void receive_once_at_batch_end(probe *self)
{
    if (!self->is_pending && self->last > 0)
        receive_once(self->of);
}

static void close_own_file(probe *self, const weir_io_result *result)
{
    if (!result->is_armed)
        disown(self->of);
}

static void free_owner(probe *self, const weir_io_result *result)
{
    if (result->is_armed)
        return;
    owner *gone = self->of;
    disown(gone);
    memset(gone, 0x5a, sizeof *gone); /* who still looks at it falls over */
    free(gone);
}

/* Rules 1 and 2: every result of every test is checked by on_done itself --------------------- */

static void nothing_is_told_inside_submit(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_once(&a);
    turn();
    write_all(peer, "abc", 3);
    turn();
    assert_story("a<3. a|");
    write_all(peer, "de", 2);
    turn();           /* it is known to be readable */
    receive_once(&a); /* and yet this waits for its turn */
    assert_story("");
    assert_true(has_results());
    assert_int_equal(turn(), 1);
    assert_story("a<2. a|");
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* Rule 3 ------------------------------------------------------------------------------------- */

static void cancel_before_completion(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    cancel(&a.in);
    cancel(&a.in);
    assert_story("");
    assert_true(a.in.op.is_in_flight);
    write_all(peer, "late", 4); /* has to wait for the next receive */
    assert_int_equal(turn(), 1);
    assert_story("a<ECANCELED.");
    assert_int_equal(pending_bytes(a.file.fd), 4);
    assert_quiet();
    receive_always(&a);
    assert_int_equal(turn(), 1);
    assert_story("a<4 a|");
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void cancel_after_completion_does_nothing(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    cancel(&a.in); /* never submitted */
    receive_once(&a);
    write_all(peer, "abc", 3);
    assert_int_equal(turn(), 1);
    assert_story("a<3. a|");
    cancel(&a.in);
    assert_quiet();
    assert_int_equal(send_bytes(&a, "x", 1), 1);
    cancel(&a.out);
    assert_quiet();
    assert_story("");
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* A result that waits to be told has won the race. */
static void cancel_of_what_is_about_to_be_told(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    kernel.refused_fd = a.file.fd;
    kernel.refusal = -ENOSPC;
    receive_always(&a);
    cancel(&a.in);
    assert_int_equal(turn(), 1);
    assert_story("a<ENOSPC.");
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* Inside its own on_done: the batch ends, and then comes the one final result. */
static void cancel_inside_its_own_on_done(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = cancel_self };
    int peer = own_half_of_pair(&a);
    guess_small(&a);
    receive_always(&a);
    turn();
    write_all(peer, pattern(3 * SMALLEST), 3 * SMALLEST);
    assert_int_equal(turn(), 1);
    assert_story("a<64 a|");
    assert_int_equal(turn(), 1);
    assert_story("a<ECANCELED.");
    assert_quiet();
    assert_int_equal(pending_bytes(a.file.fd), 2 * SMALLEST);
    a.in.then = NULL;
    receive_always(&a); /* in order, and without another edge */
    assert_true(turn() >= 1);
    assert_received(&a, pattern(3 * SMALLEST), 3 * SMALLEST);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void cancel_inside_on_batch_end(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.at_batch_end = cancel_self_at_batch_end };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    write_all(peer, "abc", 3);
    assert_int_equal(turn(), 1);
    assert_story("a<3 a|");
    assert_int_equal(turn(), 1);
    assert_story("a<ECANCELED.");
    assert_quiet();
    disown(&a);
    assert_int_equal(close(peer), 0);
}

/* The end of the stream is behind the data, and on_batch_end cancels: one final all the same. */
static void cancel_inside_on_batch_end_before_the_end_of_the_stream(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.at_batch_end = cancel_self_at_batch_end };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    write_all(peer, "abc", 3);
    assert_int_equal(close(peer), 0);
    TURN_UNTIL(a.in.finals == 1);
    assert_true(a.in.last == 0 || a.in.last == -ECANCELED);
    assert_int_equal(a.in.results, 2);
    assert_int_equal(a.in.batches, 1);
    assert_quiet();
    a.in.at_batch_end = NULL;
    receive_always(&a);
    assert_int_equal(turn(), 1);
    assert_int_equal(a.in.last, 0);
    disown(&a);
}

/* By another file's callback, in the phase in which its own turn would have come. */
static void cancel_of_another_in_the_same_batch(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = cancel_other }, b = { .name = "b" };
    int a_peer = own_half_of_pair(&a), b_peer = own_half_of_pair(&b);
    receive_always(&a);
    receive_always(&b);
    turn();
    other = &b.in;
    write_all(a_peer, "a", 1);
    write_all(b_peer, "b", 1);
    assert_int_equal(turn(), 1);
    assert_story("a<1 a|");
    assert_int_equal(turn(), 1);
    assert_story("b<ECANCELED.");
    assert_quiet();
    a.in.then = NULL;
    receive_always(&b); /* nothing was lost */
    assert_int_equal(turn(), 1);
    assert_story("b<1 b|");
    close_owner(&a);
    close_owner(&b);
    assert_int_equal(close(a_peer), 0);
    assert_int_equal(close(b_peer), 0);
}

/* A send's on_done cancels the receive of the same file, whose data is there. */
static void cancel_of_the_other_direction_in_the_same_turn(void **state)
{
    (void)state;
    owner a = { .name = "a", .out.then = cancel_other };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    other = &a.in;
    turn();
    write_all(peer, "abc", 3);
    drain(peer);
    assert_int_equal(turn(), 1);
    assert_story("a>1.");
    assert_int_equal(turn(), 1);
    assert_story("a<ECANCELED.");
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void cancelled_and_submitted_again_inside_the_final_on_done(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = receive_always_again };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    cancel(&a.in);
    write_all(peer, "abc", 3);
    TURN_UNTIL(a.in.results == 2);
    assert_story("a<ECANCELED. a<3 a|");
    assert_quiet();
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void every_kind_can_be_cancelled(void **state)
{
    (void)state;
    owner a = { .name = "a" }, b = { .name = "b" }, c = { .name = "c" };
    int peer = own_half_of_pair(&a);
    own(&b, listen_on_loopback());
    int c_peer = own_half_of_pair(&c);
    receive_always(&a);
    wait_for_hangup(&a);
    fill(a.file.fd);
    assert_int_equal(send_bytes(&a, "x", 1), WEIR_IO_PENDING);
    accept_always(&b);
    watch_level(&c, WEIR_IO_READABLE);
    turn();
    assert_story("");
    cancel(&a.in);
    cancel(&a.hangup);
    cancel(&a.out);
    cancel(&b.in);
    cancel(&c.level);
    assert_int_equal(turn(), 5);
    assert_story("a<ECANCELED. a~ECANCELED. b+ECANCELED. c?ECANCELED. a>ECANCELED.");
    assert_quiet();
    disown(&a);
    disown(&b);
    disown(&c);
    assert_int_equal(close(peer), 0);
    assert_int_equal(close(c_peer), 0);
}

/* Rules 6 and 7 ------------------------------------------------------------------------------ */

/* A one-shot receive that is submitted again inside on_done: one buffer and one end per turn. */
static void one_shot_receives_inside_on_done(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = receive_again };
    int peer = own_half_of_pair(&a);
    receive_once(&a);
    turn();
    write_all(peer, pattern(5000), 5000);
    assert_int_equal(turn(), 1);
    assert_story("a<2048. a|");
    assert_true(has_results());
    assert_int_equal(turn(), 1);
    assert_story("a<2952. a|");
    assert_quiet();
    assert_int_equal(close(peer), 0);
    assert_int_equal(turn(), 1);
    assert_story("a<0.");
    assert_received(&a, pattern(5000), 5000);
    assert_quiet();
    disown(&a);
}

static void one_shot_receives_inside_on_batch_end(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.at_batch_end = receive_once_at_batch_end };
    int peer = own_half_of_pair(&a);
    receive_once(&a);
    write_all(peer, pattern(5000), 5000);
    assert_int_equal(close(peer), 0);
    TURN_UNTIL(a.in.finals == 3);
    assert_story("a<2048. a| a<2952. a| a<0.");
    assert_received(&a, pattern(5000), 5000);
    assert_quiet();
    disown(&a);
}

/* What came but was not asked for stays where it is. */
static void a_one_shot_receive_leaves_the_rest(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_once(&a);
    write_all(peer, pattern(5000), 5000);
    assert_int_equal(turn(), 1);
    assert_story("a<2048. a|");
    assert_quiet();
    assert_int_equal(kernel.receives, 1);
    assert_int_equal(pending_bytes(a.file.fd), 5000 - 2048);
    receive_always(&a);
    assert_int_equal(turn(), 1);
    assert_received(&a, pattern(5000), 5000);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void an_idle_connection_holds_no_buffer(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    uint64_t before = used_blocks();
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    assert_int_equal(used_blocks(), before);
    write_all(peer, pattern(2048), 2048); /* the second read hears EAGAIN */
    turn();
    assert_int_equal(kernel.receives, 2);
    assert_int_equal(used_blocks(), before);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

/* No memory for the buffer is a final result, and the bytes wait for the next receive. */
static void check_no_memory(const char *call, bool is_multishot)
{
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    a.in.op.is_multishot = is_multishot;
    assert_int_equal(submit(&a.in, WEIR_IO_RECEIVE), WEIR_IO_PENDING);
    turn();
    write_all(peer, "hello", 5);
    weir_pool_trim();
    weir_pool_trim();
    harness_fail_nth(call, 1, -ENOMEM);
    assert_int_equal(turn(), 1);
    assert_int_equal(harness_fail_end(), 1);
    assert_story("a<ENOMEM.");
    assert_quiet();
    assert_int_equal(submit(&a.in, WEIR_IO_RECEIVE), WEIR_IO_PENDING);
    assert_int_equal(turn(), 1); /* without another edge */
    assert_received(&a, "hello", 5);
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}

static void no_memory_for_a_receive_loses_no_byte(void **state)
{
    (void)state;
    for (int is_multishot = 0; is_multishot <= 1; is_multishot++) {
        check_no_memory("pool", is_multishot);
        check_no_memory("alloc", is_multishot);
    }
}

static void no_memory_in_the_middle_of_a_batch(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    turn();
    write_all(peer, pattern(5000), 5000);
    assert_int_equal(close(peer), 0);
    harness_fail_nth("pool", 2, -ENOMEM);
    assert_int_equal(turn(), 2);
    harness_fail_end();
    assert_story("a<2048 a| a<ENOMEM.");
    assert_quiet();
    receive_always(&a);
    assert_int_equal(turn(), 2);
    assert_story("a<2952 a| a<0.");
    assert_received(&a, pattern(5000), 5000);
    disown(&a);
}

/* Rule 8 ------------------------------------------------------------------------------------- */

/* The final on_done may be the last thing that its owner sees. */
static void the_owner_is_freed_inside_a_final_on_done(void **state)
{
    (void)state;
    owner *a = calloc(1, sizeof *a), *b = calloc(1, sizeof *b), *c = calloc(1, sizeof *c);
    a->name = "a";
    b->name = "b";
    c->name = "c";
    a->in.then = b->hangup.then = c->in.then = free_owner;
    int a_peer = own_half_of_pair(a), b_peer = own_half_of_pair(b), c_peer = own_half_of_pair(c);
    receive_always(a);
    wait_for_hangup(b);
    receive_always(c);
    turn();
    write_all(a_peer, "abc", 3);
    assert_int_equal(close(a_peer), 0);
    assert_int_equal(close(b_peer), 0);
    cancel(&c->in);
    assert_int_equal(turn(), 4);
    assert_story("c<ECANCELED. a<3 a| a<0. b~0.");
    assert_quiet();
    assert_int_equal(close(c_peer), 0);
}

/* It stands in the ready list when its final on_done closes it. */
static void the_owner_is_freed_while_it_is_ready(void **state)
{
    (void)state;
    owner *a = calloc(1, sizeof *a);
    a->name = "a";
    int peer = own_half_of_pair(a);
    receive_once(a);
    write_all(peer, pattern(5000), 5000);
    assert_int_equal(turn(), 1);
    assert_story("a<2048. a|");
    a->in.then = free_owner;
    receive_once(a); /* there is more */
    cancel(&a->in);
    assert_int_equal(turn(), 1);
    assert_story("a<ECANCELED.");
    assert_quiet();
    assert_int_equal(close(peer), 0);
}

static void cancel_its_send(probe *self, const weir_io_result *result)
{
    (void)result;
    weir__io_cancel_send(self->of->at, &self->of->file);
}

static void free_when_cancelled(owner *self)
{
    free_owner(&self->out, &(weir_io_result){ .is_armed = false });
}

/* A send ends, and on_send_cancelled closes the file: its data and hang-up are then nobody's. */
static void closed_inside_on_send_cancelled(void **state)
{
    (void)state;
    owner *a = calloc(1, sizeof *a);
    a->name = "a";
    a->out.then = cancel_its_send;
    a->at_send_cancelled = free_when_cancelled;
    int peer = own_half_of_pair(a);
    fill(a->file.fd);
    assert_int_equal(send_bytes(a, "x", 1), WEIR_IO_PENDING);
    turn();
    write_all(peer, "abc", 3);
    assert_int_equal(close(peer), 0);
    assert_int_equal(turn(), 2);
    assert_true(story_length > 0);
    assert_quiet();
}

/* After the last result with data of a one-shot receive, the file may go: no batch end then. */
static void closed_inside_on_done_of_a_one_shot_receive(void **state)
{
    (void)state;
    owner a = { .name = "a", .in.then = close_own_file };
    int peer = own_half_of_pair(&a);
    receive_once(&a);
    write_all(peer, "abc", 3);
    assert_int_equal(turn(), 1);
    assert_story("a<3.");
    assert_quiet();
    assert_int_equal(close(peer), 0);
}

/* No stale event ------------------------------------------------------------------------------ */

static owner *victim, *heir;
static size_t victim_received;
static bool is_replaced;

/* The first of the two: its memory is gone as soon as it is closed. */
static int own_victim(void)
{
    is_replaced = false;
    victim = calloc(1, sizeof *victim);
    assert_non_null(victim);
    victim->name = "b";
    return own_half_of_pair(victim);
}

/* Closes a file, and attaches another one, which gets its descriptor and its slot. */
static void replace_victim(void)
{
    int fd = victim->file.fd;
    uint32_t slot = victim->file.slot;
    victim_received = victim->received_length;
    disown(victim);
    memset(victim, 0xA5, sizeof *victim);
    free(victim);
    own_in_place_of(heir, fd, slot);
    is_replaced = true;
}

static void replace_at_the_final(probe *self, const weir_io_result *result)
{
    (void)self;
    if (!result->is_armed)
        replace_victim();
}

/* The second half of a turn: handles what the poll before has fetched. */
static void handle_fetched(void)
{
    in_complete++;
    io->type->complete(io);
    in_complete--;
}

/* The successor reads its own EOF, and no byte, error or batch of the file before it. */
static void assert_successor_gets_its_own(owner *of, int peer)
{
    TURN_UNTIL(of->in.finals == 1);
    assert_int_equal(of->in.results, 1);
    assert_int_equal(of->in.last, 0);
    assert_int_equal(of->received_length, 0);
    assert_quiet();
    disown(of);
    assert_int_equal(close(peer), 0);
    story_length = 0;
    story[0] = '\0';
}

/* The kernel has told of bytes, and the file is closed before the backend looks at that. */
static void s100_event_of_a_closed_file_does_not_reach_its_successor(void **state)
{
    (void)state;
    owner c = { .name = "c" };
    int peer = own_victim();
    heir = &c;
    receive_once(victim);
    turn();
    write_all(peer, "x", 1);
    TURN_UNTIL(victim->in.finals == 1);
    write_all(peer, "stale", 5); /* nothing is armed: it may be closed at any time */
    bool is_watched = is_epoll() || current == &backends[URING_POLL];
    int fetched = poll_for(io, is_watched ? SECOND_NS : 0);
    assert_int_equal(fetched > 0, is_watched); /* the others are asked only with something armed */
    replace_victim();
    handle_fetched();
    assert_int_equal(value_of(&counters.stale), is_watched);
    assert_successor_gets_its_own(&c, peer);
    assert_int_equal(victim_received, 1);
}

/* It is cancelled with its bytes and its EOF already told by the kernel, and closed in its final
 * result: what is left of that in the batch belongs to nobody. */
static void s100_results_of_a_cancelled_file_do_not_reach_its_successor(void **state)
{
    (void)state;
    owner c = { .name = "c" };
    int peer = own_victim();
    heir = &c;
    receive_always(victim);
    turn();
    write_all(peer, "stale", 5);
    assert_int_equal(shutdown(peer, SHUT_WR), 0);
    assert_true(poll_for(io, SECOND_NS) > 0);
    victim->in.then = replace_at_the_final;
    cancel(&victim->in);
    handle_fetched();
    TURN_UNTIL(is_replaced);
    assert_successor_gets_its_own(&c, peer);
}

/* The same, but it is closed in the middle of its batch: after a full buffer, with more to read. */
static void s100_events_of_a_file_closed_in_its_batch_are_dropped(void **state)
{
    (void)state;
    owner c = { .name = "c" };
    int peer = own_victim();
    heir = &c;
    receive_once(victim);
    write_all(peer, pattern(60000), 60000);
    victim->in.then = replace_at_the_final;
    TURN_UNTIL(is_replaced);
    assert_in_range(victim_received, 1, 60000);
    assert_successor_gets_its_own(&c, peer);
}

static void s100_file_closed_in_the_callback_of_another_leaves_no_event(void **state)
{
    (void)state;
    owner a = { .name = "a" }, c = { .name = "c" };
    int a_peer = own_half_of_pair(&a), b_peer = own_victim();
    heir = &c;
    other = &victim->in;
    receive_once(&a);
    receive_always(victim);
    turn();
    a.in.then = cancel_other;
    victim->in.then = replace_at_the_final;
    write_all(a_peer, "x", 1);
    write_all(b_peer, "stale", 5);
    assert_true(poll_for(io, SECOND_NS) > 0);
    handle_fetched();
    TURN_UNTIL(is_replaced);
    assert_int_equal(a.in.finals, 1);
    assert_successor_gets_its_own(&c, b_peer);
    close_owner(&a);
    assert_int_equal(close(a_peer), 0);
}

/* The kernel would say so later, or, with io_uring, not at all. */
static void descriptor_is_attached_once(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    char text[64];
    int peer = own_half_of_pair(&a), fd = a.file.fd;
    weir_io_file second = { 0 };
    snprintf(text, sizeof text, "descriptor %d is rejected", fd);
    harness_log_begin(WEIR_LOG_WARN);
    assert_int_equal(io->type->attach(io, &second, fd), -EEXIST);
    bool is_named = harness_log_has(text);
    assert_int_equal(harness_log_end(), 1);
    assert_true(is_named);
    receive_always(&a); /* it works as before */
    write_all(peer, "abc", 3);
    TURN_UNTIL(a.in.results == 1);
    cancel(&a.in);
    TURN_UNTIL(a.in.finals == 1);
    io->type->detach(io, &a.file);
    assert_int_equal(io->type->attach(io, &second, fd), 0);
    io->type->close_file(io, &second);
    assert_int_equal(close(peer), 0);
}

#if HARNESS_MISUSE_ABORTS
static void submit_twice(void *arg)
{
    weir__io_submit(io, arg);
}

static void close_in_flight(void *arg)
{
    disown(arg);
}

static void misuse_aborts(void **state)
{
    (void)state;
    owner a = { .name = "a" };
    int peer = own_half_of_pair(&a);
    receive_always(&a);
    harness_expect_abort(submit_twice, &a.in.op, "is_in_flight");
    harness_expect_abort(close_in_flight, &a, "in_flight == 0");
    close_owner(&a);
    assert_int_equal(close(peer), 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        try_loop_cases(nothing_is_told_inside_submit),
        io_cases(cancel_before_completion),
        try_cases(cancel_after_completion_does_nothing),
        epoll_case(cancel_of_what_is_about_to_be_told),
        try_cases(cancel_inside_its_own_on_done),
        io_cases(cancel_inside_on_batch_end),
        io_cases(cancel_inside_on_batch_end_before_the_end_of_the_stream),
        loop_cases(cancel_of_another_in_the_same_batch),
        try_cases(cancel_of_the_other_direction_in_the_same_turn),
        io_cases(cancelled_and_submitted_again_inside_the_final_on_done),
        try_loop_cases(every_kind_can_be_cancelled),
        try_cases(one_shot_receives_inside_on_done),
        try_cases(one_shot_receives_inside_on_batch_end),
        try_cases(a_one_shot_receive_leaves_the_rest),
        try_cases(an_idle_connection_holds_no_buffer),
        try_cases(no_memory_for_a_receive_loses_no_byte),
        try_cases(no_memory_in_the_middle_of_a_batch),
        try_loop_cases(the_owner_is_freed_inside_a_final_on_done),
        try_cases(the_owner_is_freed_while_it_is_ready),
        try_cases(closed_inside_on_send_cancelled),
        io_cases(closed_inside_on_done_of_a_one_shot_receive),
        io_cases(s100_event_of_a_closed_file_does_not_reach_its_successor),
        io_cases(s100_results_of_a_cancelled_file_do_not_reach_its_successor),
        io_cases(s100_events_of_a_file_closed_in_its_batch_are_dropped),
        loop_cases(s100_file_closed_in_the_callback_of_another_leaves_no_event),
        io_cases(descriptor_is_attached_once),
#if HARNESS_MISUSE_ABORTS
        io_cases(misuse_aborts),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
