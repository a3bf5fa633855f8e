/* SPDX-License-Identifier: MIT */
/* The outbound queue by itself: what it gives out to send, and when it says that it went. */
#include "harness.h"

#include "channel/outbound.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PIECES 1024 /* what the kernel takes at once */

/* A queue with promises that are watched ------------------------------------------------------- */

typedef struct bench bench;

typedef struct watch {
    weir_listener listener;
    bench *bench;
    char name;
    weir_promise *promise;
} watch;

struct bench {
    weir_outbound queue;
    weir_spare spare;
    watch watches[32];
    size_t watched;
    char told[512]; /* "a b c:ECANCELED ": who was completed, in order */
};

static void note(weir_listener *listener, weir_future *future)
{
    watch *self = WEIR_CONTAINER(listener, watch, listener);
    char *told = self->bench->told;
    int code = weir_future_code(future);
    size_t length = strlen(told);
    snprintf(told + length, sizeof self->bench->told - length, code == 0 ? "%c " : "%c:%s ",
             self->name, weir_error_name(code));
}

static watch *watch_next(bench *b, char name)
{
    assert_true(b->watched < sizeof b->watches / sizeof *b->watches);
    watch *self = &b->watches[b->watched++];
    *self = (watch){ { .done = note }, b, name, weir_promise_new(NULL) };
    assert_non_null(self->promise);
    weir_future_listen(weir_promise_future(self->promise), &self->listener);
    return self;
}

static void put(bench *b, char name, weir_msg *msg)
{
    assert_non_null(msg);
    assert_int_equal(
        weir__outbound_add(&b->queue, msg, weir_msg_size(msg), watch_next(b, name)->promise), 0);
}

static weir_msg *text(const char *string)
{
    return weir_buf_msg(weir_buf_from(string, strlen(string)));
}

static void put_text(bench *b, char name, const char *string)
{
    put(b, name, text(string));
}

static void put_silent(bench *b, weir_msg *msg)
{
    assert_int_equal(weir__outbound_add(&b->queue, msg, weir_msg_size(msg), NULL), 0);
}

static int cancel(bench *b, char name)
{
    for (size_t i = 0; i < b->watched; i++) {
        if (b->watches[i].name == name)
            return weir_future_cancel(weir_promise_future(b->watches[i].promise));
    }
    return -ENOENT;
}

/* The text that would be sent with so many pieces. */
static const char *gathered(bench *b, int max)
{
    static char all[256];
    struct iovec pieces[MOST_PIECES];
    size_t length = 0;
    int count = weir__outbound_gather(&b->queue, pieces, max);
    assert_true(count >= 0 && count <= max);
    for (int i = 0; i < count; i++) {
        assert_true(pieces[i].iov_len > 0);
        memcpy(all + length, pieces[i].iov_base, pieces[i].iov_len);
        length += pieces[i].iov_len;
    }
    all[length] = '\0';
    return all;
}

static void sent(bench *b, size_t bytes)
{
    weir__outbound_sent(&b->queue, bytes);
}

/* The text of everything that is flushed, sent as often as it takes. */
static const char *all_gathered(bench *b)
{
    static char all[256];
    all[0] = '\0';
    while (weir__outbound_current(&b->queue) != NULL) {
        const char *some = gathered(b, 9);
        strcat(all, some);
        sent(b, strlen(some));
    }
    return all;
}

static uint64_t live_memory(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.live;
}

static uint64_t allocations(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.allocations;
}

static void forget_watches(bench *b)
{
    for (size_t i = 0; i < b->watched; i++)
        weir_promise_release(b->watches[i].promise);
    b->watched = 0;
    b->told[0] = '\0';
}

/* Everything that was put in must be out by now. */
static void done_with(bench *b)
{
    assert_true(weir__outbound_is_empty(&b->queue));
    assert_false(weir__outbound_has_flushed(&b->queue));
    assert_int_equal(weir__outbound_bytes(&b->queue), 0);
    weir__spare_deinit(&b->spare);
    forget_watches(b);
}

/* A message that is no buffer. */
typedef struct thing {
    weir_msg msg;
    size_t size;
} thing;

static size_t thing_size(const weir_msg *msg)
{
    return ((const thing *)msg)->size;
}

static void thing_destroy(weir_msg *msg)
{
    free(msg);
}

static const weir_msg_type thing_type = { "thing", thing_size, thing_destroy };
static const weir_msg_type sizeless_type = { "sizeless", NULL, thing_destroy };

static weir_msg *new_thing(const weir_msg_type *type, size_t size)
{
    thing *made = malloc(sizeof *made);
    assert_non_null(made);
    weir_msg_init(&made->msg, type);
    made->size = size;
    return &made->msg;
}

/* A composite of the letters of a string, each piece as long as `piece` says. */
static weir_msg *composite(const char *string, size_t piece)
{
    weir_buf *whole = weir_buf_new_composite();
    assert_non_null(whole);
    for (size_t at = 0, length = strlen(string); at < length; at += piece) {
        size_t part = piece < length - at ? piece : length - at;
        assert_int_equal(weir_buf_composite_add(whole, weir_buf_from(string + at, part)), 0);
    }
    return weir_buf_msg(whole);
}

/* Adding and flushing ------------------------------------------------------------------------ */

static void an_empty_queue_has_nothing(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    assert_string_equal(gathered(&b, 4), "");
    assert_null(weir__outbound_current(&b.queue));
    assert_null(weir__outbound_take(&b.queue));
    weir__outbound_flush(&b.queue);
    weir__outbound_remove(&b.queue, 0);
    sent(&b, 0);
    assert_false(weir__outbound_fail(&b.queue, -EIO));
    assert_int_equal(b.queue.messages_out, 0);
    done_with(&b);
}

static void nothing_goes_before_a_flush(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "one");
    assert_false(weir__outbound_is_empty(&b.queue));
    assert_false(weir__outbound_has_flushed(&b.queue));
    assert_string_equal(gathered(&b, 4), "");
    assert_null(weir__outbound_current(&b.queue));
    assert_null(weir__outbound_take(&b.queue));
    weir__outbound_remove(&b.queue, 0);
    sent(&b, 3);
    assert_int_equal(weir__outbound_bytes(&b.queue), 3);
    weir__outbound_flush(&b.queue);
    assert_true(weir__outbound_has_flushed(&b.queue));
    put_text(&b, 'b', "two");
    assert_string_equal(gathered(&b, 4), "one");
    sent(&b, 3);
    assert_string_equal(b.told, "a ");
    assert_false(weir__outbound_has_flushed(&b.queue));
    assert_string_equal(gathered(&b, 4), "");
    put_text(&b, 'c', "three");
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 4), "twothree");
    sent(&b, 8);
    assert_string_equal(b.told, "a b c ");
    done_with(&b);
}

static void sizes_are_what_the_type_says_and_one_at_least(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_silent(&b, new_thing(&thing_type, 1000));
    assert_int_equal(weir__outbound_bytes(&b.queue), 1000);
    put_silent(&b, new_thing(&thing_type, 0));
    assert_int_equal(weir__outbound_bytes(&b.queue), 1001);
    put_silent(&b, new_thing(&sizeless_type, 77));
    assert_int_equal(weir__outbound_bytes(&b.queue), 1002);
    put_silent(&b, text(""));
    assert_int_equal(weir__outbound_bytes(&b.queue), 1003);
    put_silent(&b, text("12345"));
    assert_int_equal(weir__outbound_bytes(&b.queue), 1008);
    weir__outbound_flush(&b.queue);
    const size_t left[] = { 8, 7, 6, 5, 0 };
    const uint64_t out[] = { 1000, 1000, 1000, 1000, 1005 }; /* what is empty sends nothing */
    for (size_t i = 0; i < 5; i++) {
        weir__outbound_remove(&b.queue, 0);
        assert_int_equal(weir__outbound_bytes(&b.queue), left[i]);
        assert_int_equal(b.queue.bytes_out, out[i]);
        assert_int_equal(b.queue.messages_out, i + 1);
    }
    done_with(&b);
}

static void a_size_is_that_at_the_time_of_writing(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    weir_buf *buf = weir_buf_from("abc", 3);
    put(&b, 'a', weir_buf_msg(weir_buf_retain(buf)));
    weir__outbound_flush(&b.queue);
    assert_int_equal(weir_buf_write_str(buf, "def"), 0);
    assert_string_equal(gathered(&b, 4), "abc");
    sent(&b, 3);
    assert_string_equal(b.told, "a ");
    weir_buf_release(buf);
    done_with(&b);
}

static void a_write_without_memory_changes_nothing(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "one");
    weir_msg *msg = text("two");
    weir_promise *promise = weir_promise_new(NULL);
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir__outbound_add(&b.queue, msg, weir_msg_size(msg), promise), -ENOMEM);
    harness_fail_end();
    assert_int_equal(weir__outbound_bytes(&b.queue), 3);
    assert_int_equal(weir_msg_refs(msg), 1);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), -EINPROGRESS);
    assert_int_equal(weir__outbound_add(&b.queue, msg, weir_msg_size(msg), promise), 0);
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 4), "onetwo");
    sent(&b, 6);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    done_with(&b);
}

/* Gathering ---------------------------------------------------------------------------------- */

static void gathering_goes_up_to_the_limit_of_pieces(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "ab");
    put(&b, 'b', composite("cdefgh", 2));
    put_text(&b, 'c', "ij");
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 0), "");
    assert_string_equal(gathered(&b, 1), "ab");
    assert_string_equal(gathered(&b, 2), "abcd");
    assert_string_equal(gathered(&b, 3), "abcdef");
    assert_string_equal(gathered(&b, 4), "abcdefgh");
    assert_string_equal(gathered(&b, 5), "abcdefghij");
    assert_string_equal(gathered(&b, MOST_PIECES), "abcdefghij");
    sent(&b, 5); /* in the middle of the composite's second piece */
    assert_string_equal(gathered(&b, 1), "f");
    assert_string_equal(gathered(&b, 2), "fgh");
    assert_string_equal(gathered(&b, 3), "fghij");
    assert_string_equal(b.told, "a ");
    assert_int_equal(weir__outbound_bytes(&b.queue),
                     8); /* whole messages, until they are through */
    sent(&b, 5);
    assert_string_equal(b.told, "a b c ");
    done_with(&b);
}

static void a_composite_of_many_pieces_goes_in_several_rounds(void **state)
{
    (void)state;
    enum { PIECES = 2500 };
    bench b = { .told = "", .queue.spare = &b.spare };
    struct iovec pieces[MOST_PIECES];
    weir_buf *whole = weir_buf_new_composite();
    for (int i = 0; i < PIECES; i++) {
        char byte = (char)i;
        assert_int_equal(weir_buf_composite_add(whole, weir_buf_from(&byte, 1)), 0);
    }
    put(&b, 'a', weir_buf_msg(whole));
    weir__outbound_flush(&b.queue);
    const int rounds[] = { MOST_PIECES, MOST_PIECES, PIECES - 2 * MOST_PIECES, 0 };
    int at = 0;
    for (size_t round = 0; round < 4; round++) {
        int count = weir__outbound_gather(&b.queue, pieces, MOST_PIECES);
        assert_int_equal(count, rounds[round]);
        for (int i = 0; i < count; i++) {
            assert_int_equal(pieces[i].iov_len, 1);
            assert_int_equal(*(char *)pieces[i].iov_base, (char)at++);
        }
        assert_string_equal(b.told, round < 3 ? "" : "a ");
        sent(&b, (size_t)count);
    }
    done_with(&b);
}

static void what_is_no_buffer_stops_gathering(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "one");
    put(&b, 'b', new_thing(&thing_type, 4));
    put_text(&b, 'c', "two");
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 9), "one");
    sent(&b, 3);
    assert_string_equal(gathered(&b, 9), "");
    weir_msg *msg = weir__outbound_current(&b.queue);
    assert_ptr_equal(msg->type, &thing_type);
    assert_string_equal(b.told, "a ");
    weir__outbound_remove(&b.queue, 0);
    assert_string_equal(gathered(&b, 9), "two");
    sent(&b, 3);
    assert_string_equal(b.told, "a b c ");
    assert_int_equal(b.queue.bytes_out, 10);
    done_with(&b);
}

static void an_empty_thing_is_not_sent_by_what_is_before_it(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "one");
    put_text(&b, 'b', "");
    put(&b, 'c', new_thing(&thing_type, 0));
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 9), "one");
    sent(&b, 3);
    assert_string_equal(b.told, "a b ");
    assert_int_equal(weir__outbound_bytes(&b.queue), 1);
    weir__outbound_remove(&b.queue, 0);
    assert_string_equal(b.told, "a b c ");
    done_with(&b);
}

/* Where the empty ones stand, and what is told after all bytes went. */
static void empty_buffers_need_no_pieces(void **state)
{
    (void)state;
    static const char *const queues[] = { "-x", "x-", "--x--", "x-y", "x--y-z", "-x-y-" };
    for (size_t i = 0; i < sizeof queues / sizeof *queues; i++) {
        bench b = { .told = "", .queue.spare = &b.spare };
        char bytes[8] = "", told[32] = "", name[2] = "a";
        for (const char *at = queues[i]; *at != '\0'; at++, name[0]++) {
            put_text(&b, name[0], *at == '-' ? "" : (char[2]){ *at, '\0' });
            strcat(strcat(told, name), " ");
            if (*at != '-')
                strncat(bytes, at, 1);
        }
        weir__outbound_flush(&b.queue);
        assert_string_equal(gathered(&b, (int)strlen(bytes)), bytes);
        assert_string_equal(b.told, "");
        sent(&b, strlen(bytes));
        if (!weir__outbound_is_empty(&b.queue)) {
            /* Behind the last byte there may be some that nobody had gathered yet. */
            assert_string_equal(gathered(&b, 1), "");
            sent(&b, 0);
        }
        assert_string_equal(b.told, told);
        done_with(&b);
    }
}

static void empty_buffers_alone_are_sent_by_nothing(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    for (char name = 'a'; name < 'e'; name++)
        put_text(&b, name, "");
    weir__outbound_flush(&b.queue);
    put_text(&b, 'e', "");
    assert_int_equal(weir__outbound_bytes(&b.queue), 5);
    assert_string_equal(gathered(&b, 4), "");
    sent(&b, 0);
    assert_string_equal(b.told, "a b c d ");
    assert_int_equal(weir__outbound_bytes(&b.queue), 1);
    weir__outbound_flush(&b.queue);
    sent(&b, 0);
    assert_string_equal(b.told, "a b c d e ");
    assert_int_equal(b.queue.bytes_out, 0);
    assert_int_equal(b.queue.messages_out, 5);
    done_with(&b);
}

/* Somebody who kept a reference has taken bytes out of a buffer that waits. */
static void a_buffer_that_shrank_does_not_hold_up_those_before_it(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    weir_buf *kept = weir_buf_from("two", 3);
    put_text(&b, 'a', "one");
    put(&b, 'b', weir_buf_msg(weir_buf_retain(kept)));
    weir__outbound_flush(&b.queue);
    assert_int_equal(weir_buf_skip(kept, 2), 0);
    assert_string_equal(gathered(&b, 4), "one");
    sent(&b, 3);
    assert_string_equal(b.told, "a ");
    weir__outbound_remove(&b.queue, WEIR_EBOUNDS);
    assert_string_equal(b.told, "a b:WEIR_EBOUNDS ");
    weir_buf_release(kept);
    done_with(&b);
}

/* Progress ----------------------------------------------------------------------------------- */

/* Three letters, nothing, one, a composite of two pieces, nothing, four: thirteen bytes. */
static const struct {
    const char *bytes;
    size_t piece; /* 0: no composite */
} splits[] = { { "abc", 0 }, { "", 0 }, { "d", 0 }, { "efghi", 3 }, { "", 0 }, { "jklm", 0 } };
enum { SPLITS = sizeof splits / sizeof *splits, SPLIT_BYTES = 13 };

static void fill_for_split(bench *b)
{
    for (size_t i = 0; i < SPLITS; i++)
        put(b, (char)('0' + i),
            splits[i].piece > 0 ? composite(splits[i].bytes, splits[i].piece)
                                : text(splits[i].bytes));
    weir__outbound_flush(&b->queue);
}

/* Who must be through when so many bytes went, and how much the rest weighs. */
static size_t expect_told(size_t bytes, char *told)
{
    size_t end = 0, left = 0;
    *told = '\0';
    for (size_t i = 0; i < SPLITS; i++) {
        size_t size = strlen(splits[i].bytes);
        end += size;
        if (bytes > 0 && end <= bytes)
            told += sprintf(told, "%zu ", i);
        else
            left += weir__write_weight(size);
    }
    return left;
}

/* `cuts` has a bit for each place between two bytes where one sending ends. */
static void send_in_steps(bench *b, unsigned cuts, int max)
{
    char out[SPLIT_BYTES + 1] = "", told[32];
    size_t done = 0;
    while (done < SPLIT_BYTES) {
        size_t step = 1;
        while (done + step < SPLIT_BYTES && (cuts >> (done + step - 1) & 1) == 0)
            step++;
        const char *bytes = gathered(b, max);
        size_t there = strlen(bytes);
        assert_true(there > 0);
        if (step > there)
            step = there;
        strncat(out, bytes, step);
        sent(b, step);
        done += step;
        assert_int_equal(weir__outbound_bytes(&b->queue), expect_told(done, told));
        assert_string_equal(b->told, told);
    }
    assert_string_equal(out, "abcdefghijklm");
}

static void every_way_of_partial_progress_gives_the_same_bytes(void **state)
{
    (void)state;
    const int limits[] = { 1, 2, 3, MOST_PIECES };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        bench b = { .told = "", .queue.spare = &b.spare };
        for (unsigned cuts = 0; cuts < 1u << (SPLIT_BYTES - 1); cuts++) {
            fill_for_split(&b);
            send_in_steps(&b, cuts, limits[i]);
            assert_true(weir__outbound_is_empty(&b.queue));
            forget_watches(&b);
        }
        assert_int_equal(b.queue.bytes_out, (uint64_t)SPLIT_BYTES << (SPLIT_BYTES - 1));
        assert_int_equal(b.queue.messages_out, (uint64_t)SPLITS << (SPLIT_BYTES - 1));
        done_with(&b);
    }
}

static void a_shared_message_is_sent_by_each_queue_for_itself(void **state)
{
    (void)state;
    bench a = { .told = "" }, b = { .told = "" };
    weir_buf *buf = weir_buf_from("0123456789", 10);
    put(&a, 'a', weir_buf_msg(weir_buf_retain(buf)));
    put(&a, 'b', weir_buf_msg(weir_buf_retain(buf))); /* and twice by one of them */
    put(&b, 'a', weir_buf_msg(weir_buf_retain(buf)));
    weir__outbound_flush(&a.queue);
    weir__outbound_flush(&b.queue);
    sent(&a, 0);
    assert_string_equal(gathered(&a, 1), "0123456789");
    sent(&a, 7);
    assert_string_equal(gathered(&a, 4), "7890123456789");
    assert_string_equal(gathered(&b, 4), "0123456789");
    sent(&b, 1);
    assert_string_equal(gathered(&b, 4), "123456789");
    sent(&a, 5);
    assert_string_equal(gathered(&a, 4), "23456789");
    assert_string_equal(a.told, "a ");
    assert_int_equal(weir_buf_readable(buf), 10);
    sent(&a, 8);
    sent(&b, 9);
    assert_string_equal(a.told, "a b ");
    assert_string_equal(b.told, "a ");
    assert_int_equal(weir_msg_refs(weir_buf_msg(buf)), 1);
    weir_buf_release(buf);
    done_with(&a);
    done_with(&b);
}

/* Cancelling --------------------------------------------------------------------------------- */

static void a_write_can_be_cancelled_until_it_is_gathered(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "one");
    put_text(&b, 'b', "two");
    assert_int_equal(cancel(&b, 'a'), 0); /* before the flush */
    weir__outbound_flush(&b.queue);
    put_text(&b, 'c', "three");
    put_text(&b, 'd', "four");
    weir__outbound_flush(&b.queue);
    assert_int_equal(cancel(&b, 'c'), 0); /* after it, in the middle */
    assert_string_equal(b.told, "a:ECANCELED c:ECANCELED ");
    assert_string_equal(gathered(&b, 1), "two");
    assert_int_equal(weir__outbound_bytes(&b.queue), 12); /* the one behind was not looked at */
    assert_int_equal(cancel(&b, 'b'), -EBUSY);
    assert_string_equal(gathered(&b, 9), "two"); /* a cancelled write ends it */
    assert_int_equal(weir__outbound_bytes(&b.queue), 12);
    sent(&b, 3);
    assert_string_equal(gathered(&b, 9), "four");
    assert_int_equal(weir__outbound_bytes(&b.queue), 4);
    assert_int_equal(cancel(&b, 'd'), -EBUSY);
    sent(&b, 4);
    assert_string_equal(b.told, "a:ECANCELED c:ECANCELED b d ");
    assert_int_equal(b.queue.messages_out, 2);
    assert_int_equal(b.queue.bytes_out, 7);
    done_with(&b);
}

/* Every subset of five writes, cancelled before or after the flush. */
static void any_of_the_writes_may_be_cancelled(void **state)
{
    (void)state;
    static const char *const texts[] = { "a", "bb", "", "cccc", "d" };
    for (unsigned subset = 0; subset < 1u << 6; subset++) {
        bench b = { .told = "", .queue.spare = &b.spare };
        char bytes[16] = "";
        size_t messages = 0;
        bool is_flushed_first = subset >> 5;
        for (char i = 0; i < 5; i++)
            put_text(&b, (char)('0' + i), texts[(int)i]);
        if (is_flushed_first)
            weir__outbound_flush(&b.queue);
        for (char i = 0; i < 5; i++) {
            if (subset >> i & 1) {
                assert_int_equal(cancel(&b, (char)('0' + i)), 0);
                continue;
            }
            strcat(bytes, texts[(int)i]);
            messages++;
        }
        weir__outbound_flush(&b.queue);
        assert_string_equal(all_gathered(&b), bytes);
        put_text(&b, 'z', "z"); /* the end of the list has stayed in order */
        weir__outbound_flush(&b.queue);
        assert_string_equal(gathered(&b, 9), "z");
        sent(&b, 1);
        assert_int_equal(b.queue.messages_out, messages + 1);
        done_with(&b);
    }
}

static void what_is_begun_cannot_be_cancelled(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put(&b, 'a', new_thing(&thing_type, 5));
    put_text(&b, 'b', "two");
    weir__outbound_flush(&b.queue);
    assert_non_null(weir__outbound_current(&b.queue));
    assert_int_equal(cancel(&b, 'a'), -EBUSY);
    assert_int_equal(cancel(&b, 'b'), 0);
    assert_non_null(weir__outbound_current(&b.queue));
    weir__outbound_remove(&b.queue, 0);
    assert_null(weir__outbound_current(&b.queue));
    assert_string_equal(b.told, "b:ECANCELED a ");
    done_with(&b);
}

/* Half of it went; that its promise is set by somebody must not tear the stream. */
static void a_promise_that_is_set_from_outside_loses_no_bytes(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "one");
    put_text(&b, 'b', "two");
    put_text(&b, 'c', "three");
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 2), "onetwo");
    sent(&b, 4);
    assert_int_equal(weir_promise_set(b.watches[1].promise, -EIO), 0);
    assert_int_equal(weir_promise_set(b.watches[2].promise, 0), 0);
    assert_string_equal(gathered(&b, 4), "wothree");
    sent(&b, 7);
    assert_string_equal(b.told, "a b:EIO c ");
    done_with(&b);
}

static void a_started_message_survives_a_promise_set_to_cancelled(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "one");
    put_text(&b, 'b', "two");
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 2), "onetwo");
    sent(&b, 4);
    /* Its holder may still do this; "t" is out, so "wo" has to follow. */
    assert_int_equal(weir_promise_set(b.watches[1].promise, -ECANCELED), 0);
    assert_string_equal(gathered(&b, 4), "wo");
    sent(&b, 2);
    done_with(&b);
}

/* One promise for several writes is completed by the first; all bytes go all the same. */
static void writes_may_share_a_promise(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "one");
    weir_promise *promise = b.watches[0].promise;
    assert_int_equal(weir__outbound_add(&b.queue, text("two"), 3, promise), 0);
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 1), "one");
    sent(&b, 3);
    assert_string_equal(b.told, "a ");
    assert_string_equal(gathered(&b, 1), "two");
    sent(&b, 3);
    done_with(&b);
}

/* Taking, removing and failing --------------------------------------------------------------- */

static void taking_gives_the_message_and_succeeds(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    weir_msg *first = text("one"), *third = new_thing(&thing_type, 9);
    put(&b, 'a', first);
    put_text(&b, 'b', "two");
    put(&b, 'c', third);
    weir__outbound_flush(&b.queue);
    put_text(&b, 'd', "late");
    assert_int_equal(cancel(&b, 'b'), 0);
    assert_ptr_equal(weir__outbound_take(&b.queue), first);
    assert_int_equal(weir_msg_refs(first), 1);
    assert_string_equal(b.told, "b:ECANCELED a ");
    assert_ptr_equal(weir__outbound_take(&b.queue), third);
    assert_string_equal(b.told, "b:ECANCELED a c ");
    assert_null(weir__outbound_take(&b.queue));
    assert_int_equal(weir__outbound_bytes(&b.queue), 4);
    assert_int_equal(b.queue.bytes_out, 12);
    assert_int_equal(b.queue.messages_out, 2);
    weir_msg_release(first);
    weir_msg_release(third);
    assert_false(weir__outbound_fail(&b.queue, WEIR_ECLOSED));
    assert_string_equal(b.told, "b:ECANCELED a c d:WEIR_ECLOSED ");
    done_with(&b);
}

static void removing_with_a_code_fails_one(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    put_text(&b, 'a', "one");
    put_text(&b, 'b', "two");
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 9), "onetwo");
    sent(&b, 1);
    weir__outbound_remove(&b.queue, -EMSGSIZE);
    assert_string_equal(b.told, "a:EMSGSIZE ");
    assert_int_equal(weir__outbound_bytes(&b.queue), 3);
    assert_string_equal(gathered(&b, 9), "two");
    weir__outbound_remove(&b.queue, 0);
    assert_string_equal(b.told, "a:EMSGSIZE b ");
    assert_int_equal(b.queue.messages_out, 1);
    assert_int_equal(b.queue.bytes_out, 3);
    done_with(&b);
}

static void failing_fails_everything_in_order(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    for (char name = 'a'; name < 'f'; name++)
        put_text(&b, name, "text");
    weir__outbound_flush(&b.queue);
    put_text(&b, 'f', "unflushed");
    assert_int_equal(cancel(&b, 'c'), 0);
    assert_string_equal(gathered(&b, 1), "text");
    sent(&b, 6);
    assert_false(weir__outbound_fail(&b.queue, -ECONNRESET));
    assert_string_equal(b.told, "c:ECANCELED a b:ECONNRESET d:ECONNRESET e:ECONNRESET "
                                "f:ECONNRESET ");
    assert_int_equal(b.queue.messages_out, 1);
    put_text(&b, 'g', "again"); /* must not follow what was lost */
    weir__outbound_flush(&b.queue);
    assert_string_equal(gathered(&b, 4), "");
    assert_false(weir__outbound_fail(&b.queue, WEIR_ECLOSED));
    done_with(&b);
}

static void failing_says_whether_nobody_was_told(void **state)
{
    (void)state;
    for (int silent = 0; silent < 3; silent++) {
        bench b = { .told = "", .queue.spare = &b.spare };
        for (int i = 0; i < 3; i++) {
            if (i == silent)
                put_silent(&b, text("x"));
            else
                put_text(&b, (char)('a' + i), "x");
        }
        weir__outbound_flush(&b.queue);
        assert_true(weir__outbound_fail(&b.queue, -EIO));
        assert_false(weir__outbound_fail(&b.queue, -EIO));
        done_with(&b);
    }
}

/* Memory ------------------------------------------------------------------------------------- */

static void writing_allocates_nothing_when_warm(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    weir_buf *buf = weir_buf_from("0123456789", 10);
    uint64_t before = 0;
    for (int i = 0; i < 1000; i++) {
        if (i == 1)
            before = allocations();
        for (int n = 0; n < 16; n++)
            put_silent(&b, weir_buf_msg(weir_buf_retain(buf)));
        weir__outbound_flush(&b.queue);
        assert_int_equal(strlen(gathered(&b, 16)), 160);
        sent(&b, 95);
        assert_int_equal(strlen(gathered(&b, 16)), 65);
        sent(&b, 65);
    }
    assert_int_equal(allocations() - before, 0);
    assert_int_equal(b.spare.count, 16);
    weir_buf_release(buf);
    done_with(&b);
}

static void spare_entries_are_kept_up_to_a_limit(void **state)
{
    (void)state;
    bench b = { .told = "", .queue.spare = &b.spare };
    weir_buf *buf = weir_buf_from("x", 1);
    uint64_t before = live_memory();
    for (int i = 0; i < WEIR__MOST_SPARES + 500; i++)
        put_silent(&b, weir_buf_msg(weir_buf_retain(buf)));
    assert_int_equal(live_memory() - before, WEIR__MOST_SPARES + 500);
    weir__outbound_flush(&b.queue);
    sent(&b, WEIR__MOST_SPARES + 500);
    assert_true(weir__outbound_is_empty(&b.queue));
    assert_int_equal(b.spare.count, WEIR__MOST_SPARES);
    assert_int_equal(live_memory() - before, WEIR__MOST_SPARES);
    weir_buf_release(buf);
    done_with(&b);
}

static void a_queue_works_without_spares(void **state)
{
    (void)state;
    bench b = { .told = "" };
    weir_msg *one = text("one"), *two = text("two");
    uint64_t before = live_memory();
    assert_int_equal(weir__outbound_add(&b.queue, one, weir_msg_size(one), NULL), 0);
    assert_int_equal(weir__outbound_add(&b.queue, two, weir_msg_size(two), NULL), 0);
    assert_int_equal(live_memory(), before + 2);
    weir__outbound_flush(&b.queue);
    weir__outbound_sent(&b.queue, 3);
    assert_true(weir__outbound_fail(&b.queue, -EIO));
    assert_int_equal(live_memory(), before);
    done_with(&b);
}

/* Against a model ---------------------------------------------------------------------------- */

/*
 * The same operations on the queue and on a plain array. An entry's bytes follow from its number,
 * so that whatever is gathered can be told apart from everything else.
 */
enum { MODEL_MOST = 64, MODEL_STEPS = 200000, PARTS = 3 };

typedef struct entry {
    uint32_t number;
    weir_listener listener;
    weir_promise *promise; /* the model's own reference, or NULL */
    weir_msg *msg;         /* only to compare */
    size_t parts[PARTS];   /* lengths of the pieces; one for what is no composite */
    size_t size, sent;
    bool is_buf, is_flushed, is_begun;
    int code; /* what its promise must have */
} entry;

typedef struct model {
    weir_outbound queue;
    weir_spare spare;
    entry *entries[MODEL_MOST];
    size_t count;
    size_t bytes;
    uint64_t bytes_out, messages_out;
    uint32_t next_number;
    uint64_t random;
} model;

static uint32_t last_told; /* numbers of writes that were not cancelled must grow */

static void note_order(weir_listener *listener, weir_future *future)
{
    entry *self = WEIR_CONTAINER(listener, entry, listener);
    if (weir_future_code(future) == -ECANCELED)
        return;
    assert_true(self->number > last_told);
    last_told = self->number;
}

/* xorshift: the same on every machine. */
static size_t pick(model *m, size_t below)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (size_t)(m->random >> 20) % below;
}

static uint8_t byte_at(const entry *e, size_t at)
{
    return (uint8_t)(e->number * 31 + at * 7);
}

static weir_buf *part_of(entry *e, size_t from, size_t length)
{
    uint8_t bytes[64];
    for (size_t i = 0; i < length; i++)
        bytes[i] = byte_at(e, from + i);
    return weir_buf_from(bytes, length);
}

static weir_msg *make_message(model *m, entry *e)
{
    size_t kind = pick(m, 8);
    e->is_buf = kind > 0;
    if (kind == 0 || kind > 2) {
        e->size = e->parts[0] = pick(m, 4) == 0 ? 0 : pick(m, 20) + 1;
        return e->is_buf ? weir_buf_msg(part_of(e, 0, e->size)) : new_thing(&thing_type, e->size);
    }
    weir_buf *whole = weir_buf_new_composite();
    for (int i = 0; i < PARTS; i++) {
        e->parts[i] = pick(m, 10);
        assert_int_equal(weir_buf_composite_add(whole, part_of(e, e->size, e->parts[i])), 0);
        e->size += e->parts[i];
    }
    return weir_buf_msg(whole);
}

static void model_add(model *m)
{
    if (m->count == MODEL_MOST)
        return;
    entry *e = calloc(1, sizeof *e);
    assert_non_null(e);
    *e = (entry){ .number = ++m->next_number, .listener.done = note_order, .code = -EINPROGRESS };
    e->msg = make_message(m, e);
    e->promise = pick(m, 3) > 0 ? weir_promise_new(NULL) : NULL;
    if (e->promise != NULL)
        weir_future_listen(weir_promise_future(e->promise), &e->listener);
    assert_int_equal(weir__outbound_add(&m->queue, e->msg, weir_msg_size(e->msg), e->promise), 0);
    m->entries[m->count++] = e;
    m->bytes += weir__write_weight(e->size);
}

/* Takes an entry out of the model; what became of its promise must be seen already. */
static void model_drop(model *m, size_t at, int code)
{
    entry *e = m->entries[at];
    m->count--;
    memmove(&m->entries[at], &m->entries[at + 1], (m->count - at) * sizeof *m->entries);
    m->bytes -= weir__write_weight(e->size);
    if (code == 0) {
        m->messages_out++;
        m->bytes_out += e->size;
    }
    if (e->promise != NULL) {
        int expected = e->code == -ECANCELED ? -ECANCELED : code;
        assert_int_equal(weir_future_code(weir_promise_future(e->promise)), expected);
        weir_promise_release(e->promise);
    }
    free(e);
}

static bool model_begin(entry *e)
{
    if (e->code == -ECANCELED)
        return false;
    e->is_begun = true;
    return true;
}

/* Drops what was cancelled at the front: NULL when nothing is to be sent. */
static entry *model_current(model *m)
{
    while (m->count > 0 && m->entries[0]->is_flushed) {
        if (model_begin(m->entries[0]))
            return m->entries[0];
        model_drop(m, 0, -ECANCELED);
    }
    return NULL;
}

static void model_cancel(model *m)
{
    if (m->count == 0)
        return;
    entry *e = m->entries[pick(m, m->count)];
    if (e->promise == NULL)
        return;
    int expected = e->code == -ECANCELED ? -EALREADY : e->is_begun ? -EBUSY : 0;
    assert_int_equal(weir_future_cancel(weir_promise_future(e->promise)), expected);
    if (expected == 0)
        e->code = -ECANCELED;
}

/* Compares the pieces that must come from an entry; returns how many there were. */
static int compare_pieces(const entry *e, const struct iovec *pieces, int room, size_t *bytes)
{
    int count = 0;
    size_t at = 0;
    for (int part = 0; part < PARTS && count < room; at += e->parts[part++]) {
        size_t end = at + e->parts[part], begin = at > e->sent ? at : e->sent;
        if (begin >= end)
            continue;
        assert_int_equal(pieces[count].iov_len, end - begin);
        for (size_t i = begin; i < end; i++)
            assert_int_equal(((uint8_t *)pieces[count].iov_base)[i - begin], byte_at(e, i));
        *bytes += end - begin;
        count++;
    }
    return count;
}

/* Returns how many bytes were gathered. */
static size_t model_gather(model *m)
{
    struct iovec pieces[128];
    int max = pick(m, 4) == 0 ? 128 : (int)pick(m, 6);
    int count = weir__outbound_gather(&m->queue, pieces, max), seen = 0;
    size_t bytes = 0;
    if (model_current(m) == NULL) {
        assert_int_equal(count, 0);
        return 0;
    }
    for (size_t i = 0; i < m->count && m->entries[i]->is_flushed && seen < max;) {
        entry *e = m->entries[i];
        if (!e->is_buf || !model_begin(e))
            break;
        seen += compare_pieces(e, pieces + seen, max - seen, &bytes);
        i++;
    }
    assert_int_equal(count, seen);
    return bytes;
}

static void model_send(model *m)
{
    size_t there = model_gather(m), bytes = pick(m, 3) == 0 ? there : pick(m, there + 1);
    weir__outbound_sent(&m->queue, bytes);
    while (m->count > 0 && m->entries[0]->is_flushed) {
        entry *e = m->entries[0];
        size_t left = e->size - e->sent;
        if (bytes < left) {
            e->sent += bytes;
            return;
        }
        if (left == 0 && (!e->is_buf || !model_begin(e)))
            return;
        bytes -= left;
        model_drop(m, 0, 0);
    }
}

static void model_take(model *m)
{
    weir_msg *msg = weir__outbound_take(&m->queue);
    entry *e = model_current(m);
    assert_ptr_equal(msg, e != NULL ? e->msg : NULL);
    if (msg == NULL)
        return;
    model_drop(m, 0, 0);
    weir_msg_release(msg);
}

static void model_remove(model *m)
{
    weir_msg *msg = weir__outbound_current(&m->queue);
    entry *e = model_current(m);
    int code = pick(m, 2) == 0 ? 0 : -EMSGSIZE;
    assert_ptr_equal(msg, e != NULL ? e->msg : NULL);
    weir__outbound_remove(&m->queue, code);
    if (e != NULL)
        model_drop(m, 0, code);
}

static void model_fail(model *m)
{
    bool has_lost = false;
    for (size_t i = 0; i < m->count; i++)
        has_lost |= m->entries[i]->promise == NULL;
    assert_int_equal(weir__outbound_fail(&m->queue, WEIR_ECLOSED), has_lost);
    while (m->count > 0)
        model_drop(m, 0, WEIR_ECLOSED);
    m->queue.is_failed = false; /* the next queue */
}

static void model_flush(model *m)
{
    weir__outbound_flush(&m->queue);
    for (size_t i = 0; i < m->count; i++)
        m->entries[i]->is_flushed = true;
}

static void model_compare(model *m)
{
    assert_int_equal(weir__outbound_bytes(&m->queue), m->bytes);
    assert_int_equal(m->queue.bytes_out, m->bytes_out);
    assert_int_equal(m->queue.messages_out, m->messages_out);
    assert_int_equal(weir__outbound_is_empty(&m->queue), m->count == 0);
    assert_int_equal(weir__outbound_has_flushed(&m->queue),
                     m->count > 0 && m->entries[0]->is_flushed);
    for (size_t i = 0; i < m->count; i++) {
        const entry *e = m->entries[i];
        if (e->promise != NULL)
            assert_int_equal(weir_future_code(weir_promise_future(e->promise)), e->code);
    }
}

static void model_step(model *m)
{
    size_t what = pick(m, 100);
    if (what < 45)
        model_add(m);
    else if (what < 57)
        model_flush(m);
    else if (what < 70)
        model_cancel(m);
    else if (what < 76)
        model_gather(m);
    else if (what < 90)
        model_send(m);
    else if (what < 95)
        model_take(m);
    else if (what < 99)
        model_remove(m);
    else if (pick(m, 10) == 0)
        model_fail(m);
}

static void random_operations_agree_with_a_model(void **state)
{
    (void)state;
    model m = { .queue.spare = &m.spare, .random = 0x9e3779b97f4a7c15u };
    last_told = 0;
    for (int step = 0; step < MODEL_STEPS; step++) {
        model_step(&m);
        model_compare(&m);
    }
    assert_true(m.messages_out > MODEL_STEPS / 10); /* else the mixture tests little */
    model_fail(&m);
    model_compare(&m);
    weir__spare_deinit(&m.spare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(an_empty_queue_has_nothing),
        weir_case(nothing_goes_before_a_flush),
        weir_case(sizes_are_what_the_type_says_and_one_at_least),
        weir_case(a_size_is_that_at_the_time_of_writing),
        weir_case(a_write_without_memory_changes_nothing),
        weir_case(gathering_goes_up_to_the_limit_of_pieces),
        weir_case(a_composite_of_many_pieces_goes_in_several_rounds),
        weir_case(what_is_no_buffer_stops_gathering),
        weir_case(an_empty_thing_is_not_sent_by_what_is_before_it),
        weir_case(empty_buffers_need_no_pieces),
        weir_case(empty_buffers_alone_are_sent_by_nothing),
        weir_case(a_buffer_that_shrank_does_not_hold_up_those_before_it),
        weir_case(every_way_of_partial_progress_gives_the_same_bytes),
        weir_case(a_shared_message_is_sent_by_each_queue_for_itself),
        weir_case(a_write_can_be_cancelled_until_it_is_gathered),
        weir_case(any_of_the_writes_may_be_cancelled),
        weir_case(what_is_begun_cannot_be_cancelled),
        weir_case(a_promise_that_is_set_from_outside_loses_no_bytes),
        weir_case(a_started_message_survives_a_promise_set_to_cancelled),
        weir_case(writes_may_share_a_promise),
        weir_case(taking_gives_the_message_and_succeeds),
        weir_case(removing_with_a_code_fails_one),
        weir_case(failing_fails_everything_in_order),
        weir_case(failing_says_whether_nobody_was_told),
        weir_case(writing_allocates_nothing_when_warm),
        weir_case(spare_entries_are_kept_up_to_a_limit),
        weir_case(a_queue_works_without_spares),
        weir_case(random_operations_agree_with_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
