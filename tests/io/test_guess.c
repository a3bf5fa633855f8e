/* SPDX-License-Identifier: MIT */
/* How large the next buffer is guessed to be, against the table that is written out here. */
#include "harness.h"

#include "io/guess.h"

static const size_t sizes[] = {
    64,  80,  96,  112, 128, 144,  160,  176,  192,  208,   224,   240,
    256, 272, 288, 304, 320, 336,  352,  368,  384,  400,   416,   432,
    448, 464, 480, 496, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536,
};
#define LAST (sizeof sizes / sizeof *sizes - 1)

static weir_guess guess;

static size_t learn(size_t length)
{
    weir__guess_learn(&guess, length);
    return weir__guess_size(&guess);
}

static void start_over(void)
{
    guess = (weir_guess){ 0 };
}

/* Two reads of one byte for each step. */
static void shrink_to_the_smallest(void)
{
    for (size_t i = 0; i < 2 * LAST; i++)
        learn(1);
    assert_int_equal(weir__guess_size(&guess), sizes[0]);
}

static void s107_starts_at_2048(void **state)
{
    (void)state;
    start_over();
    assert_int_equal(weir__guess_size(&guess), 2048);
}

static void s107_a_full_read_grows_by_four_steps(void **state)
{
    (void)state;
    start_over();
    assert_int_equal(learn(2048), 32768);
    assert_int_equal(learn(32768), 65536);
    assert_int_equal(learn(65536), 65536);
    start_over();
    shrink_to_the_smallest();
    for (size_t at = 0; at < LAST;) {
        size_t size = sizes[at];
        at = at + 4 < LAST ? at + 4 : LAST;
        assert_int_equal(learn(size), sizes[at]);
    }
}

static void s107_two_small_reads_in_a_row_shrink_by_one_step(void **state)
{
    (void)state;
    start_over();
    for (size_t at = LAST; at > 0; at--) {
        if (at == LAST)
            learn(2048), learn(32768);
        assert_int_equal(weir__guess_size(&guess), sizes[at]);
        assert_int_equal(learn(sizes[at - 1] - 1), sizes[at]); /* would just have fitted */
        assert_int_equal(learn(sizes[at - 1] - 1), sizes[at - 1]);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(learn(1), 64);
}

static void s107_reads_that_fit_change_nothing(void **state)
{
    (void)state;
    start_over();
    for (int i = 0; i < 10; i++) {
        assert_int_equal(learn(1025), 2048);
        assert_int_equal(learn(2047), 2048);
        assert_int_equal(learn(1023), 2048); /* one small one is forgiven */
    }
    assert_int_equal(learn(1500), 2048);
    assert_int_equal(learn(1023), 2048);
    assert_int_equal(learn(1023), 1024);
}

static void s107_growing_forgets_a_small_read(void **state)
{
    (void)state;
    start_over();
    assert_int_equal(learn(1), 2048);
    assert_int_equal(learn(2048), 32768);
    assert_int_equal(learn(1), 32768);
    assert_int_equal(learn(1), 16384);
    assert_int_equal(learn(1), 16384); /* and so does shrinking */
    assert_int_equal(learn(1), 8192);
}

/* A full buffer means another call, to see whether there is more: so none is guessed that the
 * messages of a stream just fill, whatever their size. */
static void s107_messages_of_one_size_do_not_fill_their_buffers(void **state)
{
    (void)state;
    for (size_t length = 1; length < 65536; length++) {
        start_over();
        for (int i = 0; i < 100; i++)
            learn(length);
        for (int i = 0; i < 10; i++)
            assert_true(learn(length) > length);
    }
}

/* A batch has several reads only when all but the last filled their buffers: what is left for the
 * last one says nothing about the next batch. */
static void s107_short_last_read_of_each_batch_does_not_shrink(void **state)
{
    (void)state;
    start_over();
    learn(2048), learn(32768);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(learn(65536), 65536);
        assert_int_equal(learn(1), 65536);
    }
}

/* A real stream: a burst, then a trickle, then a burst again. */
static void s107_feeds_of_given_sizes(void **state)
{
    (void)state;
    static const struct {
        size_t length, next;
    } feeds[] = {
        { 2048, 32768 },  { 32768, 65536 }, { 65536, 65536 }, { 100, 65536 },   { 100, 32768 },
        { 100, 32768 },   { 100, 16384 },   { 16384, 65536 }, { 40000, 65536 }, { 32768, 65536 },
        { 40000, 65536 }, { 32767, 65536 }, { 32767, 32768 }, { 20000, 32768 }, { 1, 32768 },
        { 1, 16384 },     { 1, 16384 },     { 1, 8192 },      { 1, 8192 },      { 1, 4096 },
        { 1, 4096 },      { 1, 2048 },      { 1, 2048 },      { 1, 1024 },      { 1, 1024 },
        { 1, 512 },       { 1, 512 },       { 1, 496 },       { 496, 4096 },    { 4096, 65536 },
    };
    start_over();
    for (size_t i = 0; i < sizeof feeds / sizeof *feeds; i++)
        assert_int_equal(learn(feeds[i].length), feeds[i].next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s107_starts_at_2048),
        weir_case(s107_a_full_read_grows_by_four_steps),
        weir_case(s107_two_small_reads_in_a_row_shrink_by_one_step),
        weir_case(s107_reads_that_fit_change_nothing),
        weir_case(s107_growing_forgets_a_small_read),
        weir_case(s107_messages_of_one_size_do_not_fill_their_buffers),
        weir_case(s107_short_last_read_of_each_batch_does_not_shrink),
        weir_case(s107_feeds_of_given_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
