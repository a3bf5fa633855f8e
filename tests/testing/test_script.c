/* SPDX-License-Identifier: MIT */
/* The scripted backend: it keeps the rules of io.h, and says and does what the test told it. */
#include "io/ops.h"

#include "io/io.h"
#include "loop/loop.h"

#include <weir/script.h>

#include <pthread.h>

static weir_script *script;

static int open_script(void **state)
{
    use_linux(state);
    memset(&counters, 0, sizeof counters);
    in_submit = in_complete = 0;
    story_length = 0;
    story[0] = expected_story[0] = '\0';
    assert_int_equal(weir_script_new(&script), 0);
    weir_io_source *source = weir_script_source(script);
    return source->open(source, sys, &counters, &io);
}

static int close_script(void **state)
{
    io->type->close(io);
    io->type->destroy(io);
    weir_script_free(script);
    return harness_assert_nothing_left(state);
}

#define script_case(name) cmocka_unit_test_setup_teardown(name, open_script, close_script)

static void deliver(int fd, const char *text)
{
    assert_int_equal(weir_script_deliver(script, fd, text, strlen(text)), 0);
}

static void answer(int fd, int code)
{
    assert_int_equal(weir_script_answer(script, fd, code), 0);
}

/* What was sent since the last time. */
static void assert_sent(int fd, const char *text)
{
    char bytes[256];
    assert_int_equal(weir_script_sent_bytes(script, fd), strlen(text));
    assert_int_equal(weir_script_take_sent(script, fd, bytes, sizeof bytes), strlen(text));
    assert_memory_equal(bytes, text, strlen(text));
    assert_int_equal(weir_script_sent_bytes(script, fd), 0);
}

static void assert_got(const owner *self, const char *text)
{
    assert_int_equal(self->received_length, strlen(text));
    assert_memory_equal(self->received, text, strlen(text));
}

static int send_text(owner *self, const char *text)
{
    return send_bytes(self, text, strlen(text));
}

static owner *new_owner(const char *name, int fd)
{
    owner *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->name = name;
    own(self, fd);
    return self;
}

static void free_owner(owner *self)
{
    disown(self);
    free(self);
}

/* The source ---------------------------------------------------------------------------------- */

static void one_script_serves_one_loop(void **state)
{
    (void)state;
    weir_io *second = NULL;
    weir_io_source *source = weir_script_source(script);
    assert_int_equal(source->open(source, sys, &counters, &second), -EBUSY);
    assert_null(second);
    weir_group *group = NULL;
    weir_group_config config = { .loops = 1, .is_manual = true, .io_source = source };
    assert_int_equal(weir_group_new(&group, &config, NULL), -EBUSY);
    io->type->close(io);
    assert_int_equal(source->open(source, sys, &counters, &second), -EBUSY); /* wake may come */
    io->type->destroy(io);
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    assert_string_equal(weir_loop_io_name(weir_group_loop_at(group, 0)), "script");
    assert_int_equal(weir_loop_descriptor(weir_group_loop_at(group, 0)), -1);
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
    weir_group_free(group);
    assert_int_equal(source->open(source, sys, &counters, &io), 0);
}

static void free_script(void *arg)
{
    weir_script_free(arg);
}

static void freeing_an_open_script_is_misuse(void **state)
{
    (void)state;
    weir_script_free(NULL);
    assert_null(weir_script_source(NULL));
    if (HARNESS_MISUSE_ABORTS)
        harness_expect_abort(free_script, script, "while a loop uses the script");
}

/* The way in ---------------------------------------------------------------------------------- */

static void deliveries_are_received_one_by_one(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    deliver(7, "early "); /* before anybody asks */
    assert_quiet();
    receive_always(a);
    assert_true(weir_script_is_armed(script, 7, WEIR_SCRIPT_RECEIVE));
    assert_false(weir_script_is_armed(script, 7, WEIR_SCRIPT_ACCEPT));
    assert_story("");
    assert_int_equal(turn(), 1);
    assert_story("a<6 a|");
    deliver(7, "and");
    deliver(7, " late");
    assert_int_equal(turn(), 2);
    assert_story("a<3 a<5 a|");
    assert_got(a, "early and late");
    assert_int_equal(value_of(&counters.receives), 3); /* none to find out that there is no more */
    assert_quiet();
    cancel(&a->in);
    assert_false(weir_script_is_armed(script, 7, WEIR_SCRIPT_RECEIVE));
    turn();
    assert_story("a<ECANCELED.");
    free_owner(a);
}

static void large_delivery_comes_in_pieces(void **state)
{
    (void)state;
    static char bytes[5000], got[5000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7 + i / 256);
    owner *a = new_owner("a", 7);
    assert_int_equal(weir_script_deliver(script, 7, bytes, sizeof bytes), 0);
    bytes[0]++; /* it was copied */
    receive_always(a);
    turn();
    bytes[0]--;
    assert_story("a<2048 a<2952 a|"); /* as large as the guess, which then grows */
    assert_int_equal(a->received_length, sizeof bytes);
    memcpy(got, a->received, sizeof got);
    assert_memory_equal(got, bytes, sizeof bytes);
    cancel(&a->in);
    turn();
    free_owner(a);
}

static void batch_ends_after_sixteen(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7), *b = new_owner("b", 8);
    receive_always(a);
    receive_always(b);
    for (int i = 0; i < 36; i++)
        deliver(7, "x");
    deliver(8, "yy");
    assert_int_equal(turn(), 17);
    expect(16, "a<1");
    expect(1, "a| b<2 b|");
    assert_expected();
    assert_true(has_results()); /* so the next poll does not wait */
    deliver(8, "yy");
    assert_int_equal(turn_for(io, -1), 17);
    expect(16, "a<1");
    expect(1, "a| b<2 b|");
    assert_expected();
    assert_int_equal(turn_for(io, -1), 4);
    expect(4, "a<1");
    expect(1, "a|");
    assert_expected();
    assert_quiet();
    cancel(&a->in);
    cancel(&b->in);
    turn();
    free_owner(a);
    free_owner(b);
}

static void end_comes_behind_the_data_and_its_batch(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    deliver(7, "last");
    assert_int_equal(weir_script_end(script, 7), 0);
    assert_int_equal(weir_script_end(script, 7), 0);
    assert_int_equal(weir_script_deliver(script, 7, "x", 1), -EPIPE);
    assert_int_equal(weir_script_fail(script, 7, -EIO), -EPIPE);
    receive_always(a);
    turn();
    assert_story("a<4 a| a<0.");
    assert_quiet();
    receive_once(a); /* and it stays at the end */
    turn();
    assert_story("a<0.");
    assert_got(a, "last");
    free_owner(a);
}

static void end_after_sixteen_waits_for_the_next_batch(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    for (int i = 0; i < 16; i++)
        deliver(7, "x");
    weir_script_end(script, 7);
    receive_always(a);
    turn();
    expect(16, "a<1");
    expect(1, "a|");
    assert_expected();
    turn();
    assert_story("a<0.");
    free_owner(a);
}

static void failure_ends_the_receive_once(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    receive_always(a);
    deliver(7, "good");
    assert_int_equal(weir_script_fail(script, 7, -ECONNRESET), 0);
    deliver(7, "for the next");
    turn();
    assert_story("a<4 a| a<ECONNRESET.");
    assert_quiet();
    receive_always(a);
    turn();
    assert_story("a<12 a|");
    cancel(&a->in);
    turn();
    free_owner(a);
}

static void one_shot_receive_takes_one_buffer(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    deliver(7, "one");
    deliver(7, "three");
    deliver(7, "sevens!");
    receive_once(a);
    turn();
    assert_story("a<3. a|"); /* final with data: the batch ends behind it */
    assert_false(weir_script_is_armed(script, 7, WEIR_SCRIPT_RECEIVE));
    assert_quiet(); /* what was not asked for stays */
    a->in.then = receive_again;
    receive_once(a);
    turn();
    assert_story("a<5. a|"); /* submitted again in between, for the next turn */
    assert_true(a->in.is_pending);
    turn();
    assert_story("a<7. a|");
    assert_got(a, "onethreesevens!");
    assert_quiet();
    cancel(&a->in);
    turn();
    free_owner(a);
}

static void cancel_at_batch_end(probe *self)
{
    cancel(self);
}

static void cancel_that_comes_too_late_is_nothing(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    a->in.at_batch_end = cancel_at_batch_end;
    receive_always(a);
    deliver(7, "xy");
    weir_script_fail(script, 7, -ECONNRESET);
    turn();
    assert_story("a<2 a| a<ECONNRESET."); /* it was told already, and would not be again */
    assert_quiet();
    a->in.at_batch_end = cancel_at_batch_end;
    receive_always(a);
    for (int i = 0; i < 17; i++)
        deliver(7, "z");
    turn();
    expect(16, "a<1");
    expect(1, "a|");
    assert_expected();
    turn();
    assert_story("a<ECANCELED."); /* but what was not is there for the next one */
    a->in.at_batch_end = NULL;
    receive_once(a);
    turn();
    assert_story("a<1. a|");
    assert_int_equal(a->in.finals, 3);
    free_owner(a);
}

static void cancel_leaves_what_came(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    receive_always(a);
    deliver(7, "kept");
    cancel(&a->in);
    cancel(&a->in); /* a second time is nothing */
    assert_true(has_results());
    assert_int_equal(turn(), 1);
    assert_story("a<ECANCELED.");
    cancel(&a->in); /* nor after the end */
    assert_quiet();
    receive_always(a);
    turn();
    assert_story("a<4 a|");
    assert_got(a, "kept");
    cancel(&a->in);
    turn();
    free_owner(a);
}

static const struct sockaddr *told_address;
static struct sockaddr_in told;

static void keep_address(probe *self, const weir_io_result *result)
{
    (void)self;
    told_address = result->address;
    if (told_address != NULL) {
        assert_int_equal(result->address_length, sizeof told);
        memcpy(&told, result->address, sizeof told);
    }
}

static void connections_are_accepted(void **state)
{
    (void)state;
    owner *l = new_owner("l", 3);
    struct sockaddr_in from = loopback();
    from.sin_port = htons(4711);
    assert_int_equal(weir_script_offer(script, 3, 100, (const struct sockaddr *)&from, sizeof from),
                     0);
    l->in.op.is_multishot = true;
    l->in.then = keep_address;
    assert_int_equal(submit(&l->in, WEIR_IO_ACCEPT), WEIR_IO_PENDING);
    assert_true(weir_script_is_armed(script, 3, WEIR_SCRIPT_ACCEPT));
    turn();
    assert_story("l+ l|");
    assert_int_equal(l->accepted[0], 100);
    assert_non_null(told_address);
    assert_int_equal(ntohs(told.sin_port), 4711);
    for (int i = 0; i < 17; i++)
        assert_int_equal(weir_script_offer(script, 3, 101 + i, NULL, 0), 0);
    assert_int_equal(weir_script_fail(script, 3, -EMFILE), 0);
    assert_int_equal(turn(), 16);
    assert_null(told_address);
    turn();
    expect(16, "l+");
    expect(1, "l| l+ l| l+EMFILE.");
    assert_expected();
    assert_int_equal(l->accepted[17], 117);
    assert_int_equal(submit(&l->in, WEIR_IO_ACCEPT), WEIR_IO_PENDING); /* and goes on */
    assert_int_equal(weir_script_offer(script, 3, 0, NULL, 0), 0);
    turn();
    assert_story("l+ l|"); /* 0 is a descriptor, too */
    cancel(&l->in);
    turn();
    free_owner(l);
}

/* The way out --------------------------------------------------------------------------------- */

static void sends_take_all_unless_told_otherwise(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    a->piece_length = 3; /* gathered in four pieces */
    assert_int_equal(send_text(a, "0123456789"), 10);
    assert_sent(7, "0123456789");
    answer(7, 4); /* across a border of pieces */
    answer(7, WEIR_SCRIPT_ALL);
    answer(7, 100);
    answer(7, -ECONNRESET);
    assert_int_equal(send_text(a, "0123456789"), 4);
    assert_int_equal(send_text(a, "456789"), 6);
    assert_int_equal(send_text(a, "xyz"), 3);
    assert_int_equal(send_text(a, "lost"), -ECONNRESET);
    assert_sent(7, "0123456789xyz");
    assert_int_equal(value_of(&counters.sends), 5);
    assert_quiet();
    assert_story("");
    free_owner(a);
}

static void taking_what_was_sent_by_and_by(void **state)
{
    (void)state;
    char bytes[8];
    owner *a = new_owner("a", 7);
    send_text(a, "abc");
    send_text(a, "defg");
    assert_int_equal(weir_script_take_sent(script, 7, bytes, 2), 2);
    assert_int_equal(weir_script_take_sent(script, 7, bytes + 2, 3), 3);
    assert_memory_equal(bytes, "abcde", 5);
    assert_int_equal(weir_script_sent_bytes(script, 7), 2);
    assert_int_equal(weir_script_take_sent(script, 7, NULL, 1), 1); /* dropped */
    assert_sent(7, "g");
    assert_int_equal(weir_script_take_sent(script, 7, bytes, 8), 0);
    assert_int_equal(weir_script_take_sent(script, 99, bytes, 8), 0);
    free_owner(a);
}

static void send_waits_for_the_answer_after_eagain(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    answer(7, -EAGAIN);
    assert_int_equal(send_text(a, "0123456789"), WEIR_IO_PENDING);
    assert_true(weir_script_is_armed(script, 7, WEIR_SCRIPT_SEND));
    assert_quiet();
    answer(7, -EAGAIN); /* once more in vain */
    assert_int_equal(turn(), 0);
    assert_quiet();
    answer(7, 3);
    assert_int_equal(turn(), 1);
    assert_story("a>3.");
    assert_sent(7, "012");
    assert_false(weir_script_is_armed(script, 7, WEIR_SCRIPT_SEND));
    /* The next one is not blocked. */
    assert_int_equal(send_text(a, "345"), 3);
    /* An answer that is there already is found by the next poll, never inside submit. */
    answer(7, -EAGAIN);
    answer(7, -EPIPE);
    assert_int_equal(send_text(a, "678"), WEIR_IO_PENDING);
    assert_story("");
    assert_int_equal(turn_for(io, -1), 1);
    assert_story("a>EPIPE.");
    /* Cancelled while it waits: the next one waits on. */
    answer(7, -EAGAIN);
    assert_int_equal(send_text(a, "678"), WEIR_IO_PENDING);
    cancel(&a->out);
    turn();
    assert_story("a>ECANCELED.");
    assert_int_equal(send_text(a, "678"), WEIR_IO_PENDING);
    answer(7, WEIR_SCRIPT_ALL);
    turn();
    assert_story("a>3.");
    assert_sent(7, "345678");
    free_owner(a);
}

static void seventeenth_send_of_a_turn_waits_for_the_next(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    turn();
    for (int i = 0; i < WEIR_IO_BATCH; i++)
        assert_int_equal(send_text(a, "x"), 1);
    assert_int_equal(send_text(a, "y"), WEIR_IO_PENDING);
    assert_int_equal(weir_script_sent_bytes(script, 7), 16);
    assert_int_equal(turn_for(io, -1), 1);
    assert_story("a>1.");
    assert_int_equal(weir_script_sent_bytes(script, 7), 17);
    free_owner(a);
}

static void connects_are_answered(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    assert_int_equal(submit(&a->out, WEIR_IO_CONNECT), 0);
    answer(7, -ECONNREFUSED);
    assert_int_equal(submit(&a->out, WEIR_IO_CONNECT), -ECONNREFUSED);
    answer(7, -EINPROGRESS);
    assert_int_equal(submit(&a->out, WEIR_IO_CONNECT), WEIR_IO_PENDING);
    assert_true(weir_script_is_armed(script, 7, WEIR_SCRIPT_CONNECT));
    assert_quiet();
    answer(7, -ETIMEDOUT);
    turn();
    assert_story("a^ETIMEDOUT.");
    answer(7, -EINPROGRESS);
    answer(7, WEIR_SCRIPT_ALL);
    assert_int_equal(submit(&a->out, WEIR_IO_CONNECT), WEIR_IO_PENDING);
    assert_story("");
    turn();
    assert_story("a^0.");
    answer(7, -EINPROGRESS);
    assert_int_equal(submit(&a->out, WEIR_IO_CONNECT), WEIR_IO_PENDING);
    cancel(&a->out);
    turn();
    assert_story("a^ECANCELED.");
    free_owner(a);
}

/* Polls and hang-ups -------------------------------------------------------------------------- */

static void poll_tells_the_level_in_every_turn(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    assert_int_equal(weir_script_set_ready(script, 7, WEIR_WATCH_READ), 0);
    a->level.op.events = WEIR_IO_READABLE;
    assert_int_equal(submit(&a->level, WEIR_IO_POLL), WEIR_IO_PENDING);
    assert_true(weir_script_is_armed(script, 7, WEIR_SCRIPT_POLL));
    turn();
    turn_for(io, -1);
    assert_story("a?1 a?1");
    assert_false(has_results()); /* it is the kernel that says so, each time */
    assert_int_equal(weir_script_set_ready(script, 7, WEIR_WATCH_WRITE), 0);
    turn(); /* may find that it is over */
    assert_quiet();
    assert_int_equal(weir_script_set_ready(script, 7, WEIR_WATCH_WRITE | WEIR_WATCH_HANGUP), 0);
    turn();
    assert_story("a?4"); /* comes unasked, writing does not */
    cancel(&a->level);
    turn();
    assert_story("a?ECANCELED.");
    a->level.op.events = WEIR_IO_READABLE | WEIR_IO_WRITABLE;
    assert_int_equal(submit(&a->level, WEIR_IO_POLL), WEIR_IO_PENDING);
    assert_int_equal(weir_script_set_ready(script, 7, 7), 0);
    turn();
    assert_story("a?7");
    cancel(&a->level);
    turn();
    io->type->detach(io, &a->file);
    assert_false(weir_script_is_closed(script, 7)); /* it is somebody else's */
    assert_false(weir_script_is_attached(script, 7));
    free(a);
}

static void hang_up_ends_everything(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7);
    receive_always(a);
    assert_int_equal(submit(&a->hangup, WEIR_IO_HANGUP), WEIR_IO_PENDING);
    assert_true(weir_script_is_armed(script, 7, WEIR_SCRIPT_HANGUP));
    answer(7, -EAGAIN);
    assert_int_equal(send_text(a, "xyz"), WEIR_IO_PENDING);
    answer(7, 2);
    deliver(7, "last words");
    assert_int_equal(weir_script_hang_up(script, 7, -ECONNRESET), 0);
    turn();
    /* Sending goes first; what was delivered still comes. */
    assert_story("a>ECONNRESET. a<10 a| a<ECONNRESET. a~0.");
    assert_int_equal(send_text(a, "xyz"), -ECONNRESET);
    receive_once(a);
    turn();
    assert_story("a<0.");
    free_owner(a);

    a = new_owner("a", 7); /* a new one: all of that is over */
    assert_int_equal(send_text(a, "xyz"), 3);
    assert_int_equal(submit(&a->hangup, WEIR_IO_HANGUP), WEIR_IO_PENDING);
    assert_int_equal(weir_script_end(script, 7), 0);
    assert_quiet(); /* half of it is not a hang-up */
    assert_int_equal(weir_script_hang_up(script, 7, 0), 0);
    turn();
    assert_story("a~0.");
    assert_int_equal(send_text(a, "xyz"), -EPIPE);
    a->level.op.events = WEIR_IO_WRITABLE;
    assert_int_equal(submit(&a->level, WEIR_IO_POLL), WEIR_IO_PENDING);
    turn();
    assert_story("a?6");
    cancel(&a->level);
    turn();
    free_owner(a);
}

/* Files --------------------------------------------------------------------------------------- */

static void numbers_are_attached_once_and_used_again(void **state)
{
    (void)state;
    weir_io_file second = { 0 };
    assert_int_equal(io->type->attach(io, &second, -1), -EBADF);
    assert_int_equal(io->type->attach(io, &second, WEIR_SCRIPT_DESCRIPTORS), -EBADF);
    owner *a = new_owner("a", 7);
    assert_int_equal(io->type->attach(io, &second, 7), -EEXIST);
    assert_true(weir_script_is_attached(script, 7));
    assert_false(weir_script_is_closed(script, 7));
    send_text(a, "old");
    deliver(7, "never read");
    answer(7, -EAGAIN);
    assert_int_equal(send_text(a, "x"), WEIR_IO_PENDING);
    cancel(&a->out);
    turn();
    weir_script_set_ready(script, 7, 1);
    disown(a);
    assert_true(weir_script_is_closed(script, 7));
    assert_sent(7, "old"); /* still there to be looked at */
    deliver(7, "for the new one");
    own(a, 7);
    assert_false(weir_script_is_closed(script, 7));
    story_length = 0;
    a->level.op.events = WEIR_IO_READABLE;
    assert_int_equal(submit(&a->level, WEIR_IO_POLL), WEIR_IO_PENDING);
    receive_always(a);
    assert_int_equal(send_text(a, "y"), 1); /* not blocked */
    turn();
    assert_story("a<15 a|");
    cancel(&a->in);
    cancel(&a->level);
    turn();
    free_owner(a);
}

static owner *victim;

static void close_victim(probe *self, const weir_io_result *result)
{
    if (result->code <= 0 || victim == NULL)
        return;
    (void)self;
    cancel(&victim->in);
}

static void close_oneself(probe *self, const weir_io_result *result)
{
    if (!result->is_armed)
        disown(self->of);
}

static void files_close_in_the_middle_of_a_batch(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7), *b = new_owner("b", 8), *c = new_owner("c", 9);
    victim = b;
    a->in.then = close_victim;
    b->in.then = close_oneself;
    c->in.then = close_oneself;
    receive_always(a);
    receive_always(b);
    receive_once(c);
    deliver(7, "x");
    deliver(8, "not any more");
    deliver(9, "yy");
    turn();
    assert_story("a<1 a| c<2."); /* b is cancelled, and c gone before the end of its batch */
    assert_true(weir_script_is_closed(script, 9));
    assert_false(weir_script_is_closed(script, 8));
    turn();
    assert_story("b<ECANCELED.");
    assert_true(weir_script_is_closed(script, 8));
    cancel(&a->in);
    turn();
    victim = NULL;
    free_owner(a);
    free(b);
    free(c);
}

/* Waiting ------------------------------------------------------------------------------------- */

static weir_script_stats script_stats(void)
{
    weir_script_stats stats;
    weir_script_get_stats(script, &stats);
    return stats;
}

static void polls_are_answered(void **state)
{
    (void)state;
    assert_int_equal(weir_script_answer_polls(script, 2, 0), 0);
    assert_int_equal(io->type->poll(io, -1), 0);
    assert_int_equal(io->type->poll(io, 12345), 0);
    assert_int_equal(script_stats().last_timeout_ns, 12345);
    assert_int_equal(weir_script_answer_polls(script, 2, -EINTR), 0);
    assert_int_equal(io->type->poll(io, -1), -EINTR);
    assert_int_equal(io->type->poll(io, 0), -EINTR);
    assert_int_equal(io->type->poll(io, 0), 0);
    assert_int_equal(io->type->poll(io, 1), 0); /* the time is up */
    assert_int_equal(script_stats().polls, 6);
    assert_int_equal(value_of(&counters.polls), 6);
    assert_int_equal(script_stats().wakes, 0);
    io->type->wake(io);
    io->type->wake(io);
    assert_int_equal(io->type->poll(io, -1), 1); /* one poll for both */
    assert_int_equal(io->type->poll(io, 0), 0);
    assert_int_equal(script_stats().wakes, 2);
    /* An early end does not hide what there is. */
    owner *a = new_owner("a", 7);
    receive_always(a);
    deliver(7, "x");
    assert_int_equal(weir_script_answer_polls(script, 1, 0), 0);
    assert_int_equal(io->type->poll(io, -1), 1);
    deliver(7, "y"); /* too late for this turn only when it was not found */
    cancel(&a->in);
    in_complete++;
    assert_int_equal(io->type->complete(io), 1);
    in_complete--;
    assert_story("a<ECANCELED.");
    free_owner(a);
}

static int64_t asked_ns;
static int hook_answer;

static int note_timeout(void *arg, int64_t timeout_ns)
{
    asked_ns = timeout_ns;
    if (arg != NULL)
        deliver(7, arg); /* while it waits, as it were */
    return hook_answer;
}

static void hook_sees_every_poll(void **state)
{
    (void)state;
    char text[] = "from the hook";
    owner *a = new_owner("a", 7);
    receive_always(a);
    weir_script_set_poll_hook(script, note_timeout, text);
    hook_answer = WEIR_SCRIPT_WAIT;
    assert_int_equal(io->type->poll(io, -1), 1);
    assert_int_equal(asked_ns, -1);
    weir_script_set_poll_hook(script, note_timeout, NULL);
    hook_answer = 0;
    assert_int_equal(turn_for(io, 777), 1);
    assert_int_equal(asked_ns, 777);
    assert_story("a<13 a|");
    hook_answer = -EBADF;
    assert_int_equal(io->type->poll(io, 5), -EBADF);
    assert_int_equal(weir_script_answer_polls(script, 1, 0), 0);
    assert_int_equal(io->type->poll(io, 5), -EBADF); /* the hook goes first */
    weir_script_set_poll_hook(script, NULL, NULL);
    assert_int_equal(io->type->poll(io, -1), 0); /* and leaves the answer */
    cancel(&a->in);
    turn();
    free_owner(a);
}

static void *deliver_when_it_waits(void *arg)
{
    (void)arg;
    WAIT_FOR(script_stats().is_waiting);
    deliver(7, "woken");
    WAIT_FOR(script_stats().polls >= 2 && script_stats().is_waiting);
    io->type->wake(io);
    return NULL;
}

static void poll_waits_until_something_comes(void **state)
{
    (void)state;
    pthread_t thread;
    owner *a = new_owner("a", 7);
    receive_always(a);
    assert_int_equal(pthread_create(&thread, NULL, deliver_when_it_waits, NULL), 0);
    assert_int_equal(turn_for(io, -1), 1);
    assert_story("a<5 a|");
    assert_int_equal(io->type->poll(io, 60000000000), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_false(script_stats().is_waiting);
    cancel(&a->in);
    turn();
    free_owner(a);
}

/* Rebuilding ---------------------------------------------------------------------------------- */

static void rebuild_fails_when_told_to_and_loses_one_file(void **state)
{
    (void)state;
    owner *a = new_owner("a", 7), *b = new_owner("b", 8);
    receive_always(a);
    receive_always(b);
    assert_int_equal(submit(&a->hangup, WEIR_IO_HANGUP), WEIR_IO_PENDING);
    assert_int_equal(weir_script_fail_rebuilds(script, 2, -EMFILE), 0);
    assert_int_equal(weir_script_fail_move(script, 7, -ENOSPC), 0);
    assert_int_equal(io->type->rebuild(io), -EMFILE);
    assert_int_equal(io->type->rebuild(io), -EMFILE);
    assert_int_equal(value_of(&counters.rebuilds), 0);
    assert_quiet();
    assert_int_equal(io->type->rebuild(io), 0);
    assert_int_equal(value_of(&counters.rebuilds), 1);
    assert_story("");
    deliver(7, "x");
    deliver(8, "yy");
    turn();
    assert_story("a<ENOSPC. a~ENOSPC. b<2 b|");
    assert_int_equal(send_text(a, "z"), -ENOSPC);
    receive_once(a);
    turn();
    assert_story("a<ENOSPC.");
    io->type->detach(io, &a->file);
    own(a, 7); /* only the next rebuild lost it */
    receive_always(a);
    turn();
    assert_story("a<1 a|");
    assert_int_equal(io->type->rebuild(io), 0);
    assert_quiet();
    cancel(&a->in);
    turn();
    assert_int_equal(io->type->spinner(io), -1);
    assert_int_equal(weir_script_blame(script, 8), 0);
    assert_int_equal(io->type->spinner(io), 8);
    cancel(&b->in);
    turn();
    free_owner(a);
    free_owner(b);
}

/* Bad arguments and no memory ----------------------------------------------------------------- */

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    int outside[] = { -1, WEIR_SCRIPT_DESCRIPTORS };
    struct sockaddr_in from = loopback();
    for (size_t i = 0; i < COUNT_OF(outside); i++) {
        int fd = outside[i];
        assert_int_equal(weir_script_deliver(script, fd, "x", 1), -EINVAL);
        assert_int_equal(weir_script_end(script, fd), -EINVAL);
        assert_int_equal(weir_script_fail(script, fd, -EIO), -EINVAL);
        assert_int_equal(weir_script_offer(script, fd, 1, NULL, 0), -EINVAL);
        assert_int_equal(weir_script_offer(script, 1, fd, NULL, 0), -EINVAL);
        assert_int_equal(weir_script_hang_up(script, fd, 0), -EINVAL);
        assert_int_equal(weir_script_set_ready(script, fd, 1), -EINVAL);
        assert_int_equal(weir_script_answer(script, fd, 1), -EINVAL);
        assert_int_equal(weir_script_fail_move(script, fd, -EIO), -EINVAL);
        assert_int_equal(weir_script_sent_bytes(script, fd), 0);
        assert_false(weir_script_is_armed(script, fd, WEIR_SCRIPT_SEND));
        assert_false(weir_script_is_attached(script, fd));
        assert_false(weir_script_is_closed(script, fd));
    }
    assert_int_equal(weir_script_blame(script, -2), -EINVAL);
    assert_int_equal(weir_script_deliver(script, 1, NULL, 1), -EINVAL);
    assert_int_equal(weir_script_deliver(script, 1, "", 0), -EINVAL);
    assert_int_equal(weir_script_fail(script, 1, 0), -EINVAL);
    assert_int_equal(weir_script_offer(script, 1, 2, (struct sockaddr *)&from, 0), -EINVAL);
    assert_int_equal(weir_script_offer(script, 1, 2, NULL, sizeof from), -EINVAL);
    assert_int_equal(weir_script_offer(script, 1, 2, (struct sockaddr *)&from, 1000), -EINVAL);
    assert_int_equal(weir_script_hang_up(script, 1, 1), -EINVAL);
    assert_int_equal(weir_script_set_ready(script, 1, 8), -EINVAL);
    assert_int_equal(weir_script_answer(script, 1, 0), -EINVAL);
    assert_int_equal(weir_script_fail_move(script, 1, 0), -EINVAL);
    assert_int_equal(weir_script_fail_rebuilds(script, 1, 0), -EINVAL);
    assert_int_equal(weir_script_answer_polls(script, 1, 1), -EINVAL);
    assert_int_equal(weir_script_new(NULL), -EINVAL);
    assert_int_equal(weir_script_deliver(NULL, 1, "x", 1), -EINVAL);
    assert_int_equal(weir_script_answer(NULL, 1, 1), -EINVAL);
}

/* Says one thing to a number that nobody has spoken of. */
static int say(int what, int fd)
{
    switch (what) {
    case 0:
        return weir_script_deliver(script, fd, "x", 1);
    case 1:
        return weir_script_end(script, fd);
    case 2:
        return weir_script_fail(script, fd, -EIO);
    case 3:
        return weir_script_offer(script, fd, 1, NULL, 0);
    case 4:
        return weir_script_hang_up(script, fd, -EIO);
    case 5:
        return weir_script_set_ready(script, fd, 1);
    case 6:
        return weir_script_answer(script, fd, 1);
    default:
        return weir_script_fail_move(script, fd, -EIO);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int what = 0; what < 8; what++) {
        unsigned nth = 0;
        int code;
        do {
            harness_fail_nth("alloc", ++nth, -ENOMEM);
            code = say(what, 20 + what);
            bool has_failed = harness_fail_end() >= nth;
            assert_int_equal(code, has_failed ? -ENOMEM : 0);
        } while (code < 0);
        assert_true(nth > 1);
    }
    owner *d = new_owner("d", 20);
    receive_always(d);
    turn();
    assert_story("d<1 d|"); /* what failed has left nothing behind */
    cancel(&d->in);
    turn();
    free_owner(d);
    story_length = 0;
    harness_fail_nth("alloc", 1, -ENOMEM);
    weir_script *second = NULL;
    assert_int_equal(weir_script_new(&second), -ENOMEM);
    weir_io_file file;
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(io->type->attach(io, &file, 50), -ENOMEM);
    harness_fail_end();

    owner *a = new_owner("a", 7);
    answer(7, 1);
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(send_text(a, "xyz"), -ENOMEM);
    harness_fail_end();
    assert_int_equal(send_text(a, "xyz"), 1); /* the answer was not used up */
    receive_always(a);
    deliver(7, "kept");
    harness_fail_nth("pool", 1, -ENOMEM);
    turn();
    harness_fail_end();
    assert_story("a<ENOMEM.");
    receive_always(a);
    turn();
    assert_story("a<4 a|");
    cancel(&a->in);
    turn();
    free_owner(a);
}

/* Over a thread ------------------------------------------------------------------------------- */

/* A connection on a loop of its own thread that sends back what it gets. */
typedef struct echo {
    weir_loop *loop;
    weir_io_file file;
    weir_io_op in;
    weir_resident resident;
    weir_buf *waiting; /* to be sent */
    bool is_over;
} echo;

static void echo_close_when_over(echo *self)
{
    if (!self->is_over || self->in.is_in_flight || weir__io_is_sending(&self->file))
        return;
    weir_buf_release(self->waiting);
    self->waiting = NULL;
    self->loop->io->type->close_file(self->loop->io, &self->file);
    weir__loop_remove(self->loop, &self->resident);
}

static int echo_gather(weir_io_file *file, weir_io_send *send)
{
    echo *self = WEIR_CONTAINER(file, echo, file);
    return self->waiting == NULL ? 0
                                 : weir_buf_iovec(self->waiting, weir_buf_reader(self->waiting),
                                                  weir_buf_readable(self->waiting), send->pieces,
                                                  send->max_pieces, NULL);
}

static void echo_sent(weir_io_file *file, int code)
{
    echo *self = WEIR_CONTAINER(file, echo, file);
    assert_true(code > 0);
    weir_buf_skip(self->waiting, (size_t)code);
    if (weir_buf_readable(self->waiting) == 0) {
        weir_buf_release(self->waiting);
        self->waiting = NULL;
    }
    weir__io_send(self->loop->io, file);
}

static void echo_send_cancelled(weir_io_file *file)
{
    echo_close_when_over(WEIR_CONTAINER(file, echo, file));
}

static const weir_io_sender echo_sender = { .gather = echo_gather,
                                            .on_sent = echo_sent,
                                            .on_send_cancelled = echo_send_cancelled };

static void echo_received(weir_io_op *op, const weir_io_result *result)
{
    echo *self = WEIR_CONTAINER(op, echo, in);
    if (result->code > 0) {
        uint8_t bytes[64];
        size_t length = weir_buf_readable(result->buf);
        assert_true(length <= sizeof bytes);
        weir_buf_read_bytes(result->buf, bytes, length);
        weir_buf_release(result->buf);
        if (self->waiting == NULL)
            self->waiting = weir_buf_new(64);
        weir_buf_write_bytes(self->waiting, bytes, length);
        weir__io_send(self->loop->io, &self->file);
    } else {
        self->is_over = true;
        weir__io_cancel_send(self->loop->io, &self->file);
        echo_close_when_over(self);
    }
}

static void echo_evict(weir_resident *resident)
{
    echo *self = WEIR_CONTAINER(resident, echo, resident);
    self->is_over = true;
    weir__io_cancel(self->loop->io, &self->in);
    weir__io_cancel_send(self->loop->io, &self->file);
}

static int echo_begin(void *arg)
{
    echo *self = arg;
    static const weir_resident_type type = { .evict = echo_evict };
    self->resident.type = &type;
    self->in = (weir_io_op){
        .kind = WEIR_IO_RECEIVE, .is_multishot = true, .file = &self->file, .on_done = echo_received
    };
    assert_int_equal(self->loop->io->type->attach(self->loop->io, &self->file, 7), 0);
    self->file.sender = &echo_sender;
    assert_int_equal(weir__loop_add(self->loop, &self->resident), 0);
    assert_int_equal(weir__io_submit(self->loop->io, &self->in), WEIR_IO_PENDING);
    return 0;
}

static void test_plays_the_kernel_from_another_thread(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    weir_script *own = NULL;
    weir_group *group = NULL;
    assert_int_equal(weir_script_new(&own), 0);
    weir_group_config config = { .loops = 1, .io_source = weir_script_source(own) };
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    echo e = { .loop = weir_group_loop_at(group, 0) };
    weir_future *future = NULL;
    assert_int_equal(weir_executor_submit(weir_loop_executor(e.loop), echo_begin, &e, &future), 0);
    assert_int_equal(weir_future_await(future), 0);
    weir_future_release(future);
    size_t taken = 0, length = 0;
    static char sent[COUNT * 5 + 1], got[COUNT * 5 + 1];
    for (int i = 0; i < COUNT; i++) {
        assert_true(weir_script_is_armed(own, 7, WEIR_SCRIPT_RECEIVE));
        snprintf(sent + length, 6, "%05u", (unsigned)i % 100000);
        if (i % 7 == 0)
            assert_int_equal(weir_script_answer(own, 7, -EAGAIN), 0);
        assert_int_equal(weir_script_deliver(own, 7, sent + length, 5), 0);
        length += 5;
        if (i % 7 == 0)
            assert_int_equal(weir_script_answer(own, 7, 3), 0);
        taken += weir_script_take_sent(own, 7, got + taken, sizeof got - taken);
    }
    WAIT_FOR((taken += weir_script_take_sent(own, 7, got + taken, sizeof got - taken)) == length);
    assert_memory_equal(got, sent, length);
    assert_int_equal(weir_script_end(own, 7), 0);
    WAIT_FOR(weir_script_is_closed(own, 7));
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
    weir_group_free(group);
    weir_script_free(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        script_case(one_script_serves_one_loop),
        script_case(freeing_an_open_script_is_misuse),
        script_case(deliveries_are_received_one_by_one),
        script_case(large_delivery_comes_in_pieces),
        script_case(batch_ends_after_sixteen),
        script_case(end_comes_behind_the_data_and_its_batch),
        script_case(end_after_sixteen_waits_for_the_next_batch),
        script_case(failure_ends_the_receive_once),
        script_case(one_shot_receive_takes_one_buffer),
        script_case(cancel_that_comes_too_late_is_nothing),
        script_case(cancel_leaves_what_came),
        script_case(connections_are_accepted),
        script_case(sends_take_all_unless_told_otherwise),
        script_case(taking_what_was_sent_by_and_by),
        script_case(send_waits_for_the_answer_after_eagain),
        script_case(seventeenth_send_of_a_turn_waits_for_the_next),
        script_case(connects_are_answered),
        script_case(poll_tells_the_level_in_every_turn),
        script_case(hang_up_ends_everything),
        script_case(numbers_are_attached_once_and_used_again),
        script_case(files_close_in_the_middle_of_a_batch),
        script_case(polls_are_answered),
        script_case(hook_sees_every_poll),
        script_case(poll_waits_until_something_comes),
        script_case(rebuild_fails_when_told_to_and_loses_one_file),
        script_case(bad_arguments_are_refused),
        script_case(every_allocation_may_fail),
        script_case(test_plays_the_kernel_from_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
