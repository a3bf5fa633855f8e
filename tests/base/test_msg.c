/* SPDX-License-Identifier: MIT */
/* Messages: counting references, and what happens when somebody counts wrong. */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct note {
    weir_msg msg;
    unsigned *destroyed;
    char text[16];
} note;

static size_t note_size(const weir_msg *msg)
{
    return strlen(((const note *)msg)->text);
}

static void note_destroy(weir_msg *msg)
{
    (*((note *)msg)->destroyed)++;
}

static const weir_msg_type note_type = { "note", note_size, note_destroy };
static const weir_msg_type plain_type = { "plain", NULL, note_destroy };

static note *note_init(note *n, unsigned *destroyed)
{
    weir_msg_init(&n->msg, &note_type);
    n->destroyed = destroyed;
    strcpy(n->text, "hello");
    return n;
}

static void is_born_with_one_reference(void **state)
{
    (void)state;
    unsigned destroyed = 0;
    note n;
    note_init(&n, &destroyed);
    assert_int_equal(weir_msg_refs(&n.msg), 1);
    assert_ptr_equal(n.msg.type, &note_type);
    assert_int_equal(weir_msg_release(&n.msg), 1);
    assert_int_equal(destroyed, 1);
    assert_int_equal(weir_msg_refs(&n.msg), 0);
}

static void lives_until_the_last_release(void **state)
{
    (void)state;
    unsigned destroyed = 0;
    note n;
    note_init(&n, &destroyed);
    assert_ptr_equal(weir_msg_retain(&n.msg), &n.msg);
    assert_ptr_equal(weir_msg_retain(&n.msg), &n.msg);
    assert_int_equal(weir_msg_refs(&n.msg), 3);
    assert_int_equal(weir_msg_release(&n.msg), 0);
    assert_int_equal(weir_msg_release(&n.msg), 0);
    assert_int_equal(destroyed, 0);
    assert_int_equal(weir_msg_release(&n.msg), 1);
    assert_int_equal(destroyed, 1);
}

static void size_is_what_the_type_says(void **state)
{
    (void)state;
    unsigned destroyed = 0;
    note n;
    note_init(&n, &destroyed);
    assert_int_equal(weir_msg_size(&n.msg), 5);
    weir_msg_release(&n.msg);
    weir_msg_init(&n.msg, &plain_type);
    assert_int_equal(weir_msg_size(&n.msg), 0);
    weir_msg_release(&n.msg);
}

static void null_is_refused(void **state)
{
    (void)state;
    assert_null(weir_msg_retain(NULL));
    assert_int_equal(weir_msg_release(NULL), -EINVAL);
    assert_int_equal(weir_msg_size(NULL), 0);
    assert_int_equal(weir_msg_refs(NULL), 0);
}

static void constant_one_never_dies(void **state)
{
    (void)state;
    static note constant = { .msg = WEIR_MSG_CONSTANT(&note_type) };
    for (int i = 0; i < 10; i++)
        assert_int_equal(weir_msg_release(&constant.msg), 0);
    for (int i = 0; i < 10; i++)
        assert_ptr_equal(weir_msg_retain(&constant.msg), &constant.msg);
    assert_int_equal(weir_msg_refs(&constant.msg), WEIR_MSG_IMMORTAL);
}

static void too_many_references_make_it_immortal(void **state)
{
    (void)state;
    unsigned destroyed = 0;
    note n;
    note_init(&n, &destroyed);
    n.msg.refs = WEIR_MSG_IMMORTAL - 1;
    weir_msg_retain(&n.msg);
    weir_msg_retain(&n.msg);
    assert_int_equal(weir_msg_refs(&n.msg), WEIR_MSG_IMMORTAL);
    assert_int_equal(weir_msg_release(&n.msg), 0);
    assert_int_equal(weir_msg_refs(&n.msg), WEIR_MSG_IMMORTAL);
    assert_int_equal(destroyed, 0);
    n.msg.refs = 1; /* for the leak detector's sake */
    assert_int_equal(weir_msg_release(&n.msg), 1);
}

/* Two threads and the last reference: it is destroyed once, after both are through with it. */

typedef struct shared_note {
    note n;
    unsigned char marks[2]; /* written before each release, read by the destructor */
    unsigned destroyed, sum;
} shared_note;

static void shared_destroy(weir_msg *msg)
{
    shared_note *s = (shared_note *)msg;
    s->destroyed++;
    s->sum = s->marks[0] + s->marks[1];
}

static const weir_msg_type shared_type = { "shared", NULL, shared_destroy };

static pthread_barrier_t barrier;

typedef struct releaser {
    shared_note *notes;
    int count, mark;
} releaser;

static void *release_all(void *arg)
{
    releaser *r = arg;
    for (int i = 0; i < r->count; i++) {
        pthread_barrier_wait(&barrier);
        r->notes[i].marks[r->mark] = 1;
        weir_msg_release(&r->notes[i].n.msg);
    }
    return NULL;
}

static void released_by_two_threads_dies_once(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    shared_note *notes = calloc(COUNT, sizeof *notes);
    for (int i = 0; i < COUNT; i++) {
        weir_msg_init(&notes[i].n.msg, &shared_type);
        weir_msg_retain(&notes[i].n.msg);
    }
    pthread_barrier_init(&barrier, NULL, 2);
    releaser a = { notes, COUNT, 0 }, b = { notes, COUNT, 1 };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, release_all, &a), 0);
    release_all(&b);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(notes[i].destroyed, 1);
        assert_int_equal(notes[i].sum, 2);
    }
    free(notes);
}

/* What is within a message that two threads hold has one reference, and both may take another. */

typedef struct within {
    note n;
    atomic_int here; /* threads that are about to retain it */
} within;

enum { WITHIN = 20000 };

static void *retain_all(void *arg)
{
    within *all = arg;
    for (int i = 0; i < WITHIN; i++) {
        atomic_fetch_add(&all[i].here, 1);
        for (int looks = 1; atomic_load(&all[i].here) < 2; looks++) {
            if (looks % 1024 == 0)
                sched_yield(); /* there may be one processor for both */
        }
        weir_msg_retain(&all[i].n.msg);
    }
    return NULL;
}

static void retained_by_two_threads_within_another(void **state)
{
    (void)state;
    unsigned destroyed = 0;
    within *all = calloc(WITHIN, sizeof *all);
    for (int i = 0; i < WITHIN; i++)
        note_init(&all[i].n, &destroyed);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, retain_all, all), 0);
    retain_all(all);
    pthread_join(thread, NULL);
    for (int i = 0; i < WITHIN; i++) {
        assert_int_equal(weir_msg_refs(&all[i].n.msg), 3);
        for (int j = 0; j < 3; j++)
            assert_int_equal(weir_msg_release(&all[i].n.msg), j == 2);
    }
    assert_int_equal(destroyed, WITHIN);
    free(all);
}

/* Not static, so that the dynamic symbol table and with it a back trace has its name. */
void make_a_note_in_this_place(note *n, unsigned *destroyed);
__attribute__((noinline)) void make_a_note_in_this_place(note *n, unsigned *destroyed)
{
    note_init(n, destroyed);
    __asm__ volatile("" ::: "memory"); /* no tail call: the frame must be on the stack */
}

static void release_twice(void *arg)
{
    note *n = arg;
    weir_msg_release(&n->msg);
    weir_msg_release(&n->msg);
}

static void retain_dead(void *arg)
{
    note *n = arg;
    weir_msg_release(&n->msg);
    weir_msg_retain(&n->msg);
}

static void over_release_is_caught_with_its_place(void **state)
{
    (void)state;
    unsigned destroyed = 0;
    note n;
    weir_leak_mode mode = weir_leak_get_mode();
    weir_leak_set_mode(WEIR_LEAK_ALL);
    make_a_note_in_this_place(&n, &destroyed);
    if (HARNESS_MISUSE_ABORTS) {
        harness_expect_abort(release_twice, &n, "weir_msg_release");
        harness_expect_abort(release_twice, &n, "of type note");
        harness_expect_abort(release_twice, &n, "make_a_note_in_this_place");
        harness_expect_abort(retain_dead, &n, "weir_msg_retain");
        assert_int_equal(weir_msg_release(&n.msg), 1);
    } else {
        harness_log_begin(WEIR_LOG_ERROR);
        assert_int_equal(weir_msg_release(&n.msg), 1);
        assert_int_equal(weir_msg_release(&n.msg), -EINVAL);
        assert_true(harness_log_has("weir_msg_release"));
        assert_true(harness_log_has("make_a_note_in_this_place"));
        assert_null(weir_msg_retain(&n.msg));
        assert_true(harness_log_has("weir_msg_retain"));
        assert_int_equal(harness_log_end(), 2);
    }
    assert_int_equal(destroyed, 1);
    weir_leak_set_mode(mode);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(is_born_with_one_reference),
        weir_case(lives_until_the_last_release),
        weir_case(size_is_what_the_type_says),
        weir_case(null_is_refused),
        weir_case(constant_one_never_dies),
        weir_case(too_many_references_make_it_immortal),
        weir_case(released_by_two_threads_dies_once),
        weir_case(retained_by_two_threads_within_another),
        weir_case(over_release_is_caught_with_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
