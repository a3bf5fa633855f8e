/* SPDX-License-Identifier: MIT */
/* The verifier: whether a decoder understands a stream the same however its bytes arrive. */
#ifndef WEIR_VERIFIER_H
#define WEIR_VERIFIER_H

#include <weir/api.h>
#include <weir/buf.h>
#include <weir/pipeline.h>

WEIR_BEGIN_DECLS

/*
 * Bytes arrive in pieces of any size, and the connection may end after each of them. The verifier
 * feeds an input as a whole, byte by byte, cut in two at every place, and cut at random; and all
 * of that again for every part of it that it may end after. It demands the same messages and the
 * same errors in the same order each time, that nothing is left alive, and that the bytes the
 * decoder has looked at (weir_decoder_looked) are not many times those there were.
 *
 *     static int add_lines(weir_channel *channel, void *arg) { ... }
 *
 *     weir_error error;
 *     weir_verifier_config config = { .init = add_lines, .input = "a\nbc\n", .length = 5 };
 *     if (weir_verify(&config, NULL, &error) < 0)
 *         puts(error.message); // "cut at 3, closed after 4: ..."
 */
typedef struct weir_verifier_config {
    weir_init_fn init; /* adds the decoder, and whatever comes before and after it */
    void *arg;
    const void *input;
    size_t length;

    /* Appends what tells a message from others; 0 or a negative code. NULL: of a buffer its bytes,
     * of others the name of their type and their size. */
    int (*describe)(const weir_msg *msg, weir_buf *to);

    /* The name of the handler whose cost is looked at, as weir_decoder_looked has counted it; its
     * state begins with a weir_decoder. Bytes that are looked at again and again show in inputs of
     * some hundred bytes. NULL: it is not. */
    const char *decoder;

    /* It decodes a stream, not messages: buffers may be cut anywhere, so their bytes are compared
     * as one run. Before an error there may be more or less of them; and only that there is one is
     * compared, because which is found first may depend on how far it was able to look. */
    bool is_stream;

    unsigned random_cuts; /* how often it is cut at random; 0: 32 */
    uint64_t seed;        /* of those */

    /* Inputs above this many bytes end after some of their parts only, chosen at random, because
     * the work grows with the third power. 0: 64. */
    size_t all_ends_up_to;

    /* The whole input alone, and no cuts at every place: for fuzzers, which bring many inputs. What
     * is left alive is then found only in the mode WEIR_LEAK_ALL; else that is in force meanwhile.
     */
    bool is_brief;
} weir_verifier_config;

/** What was done. */
typedef struct weir_verifier_report {
    uint64_t runs;
    uint64_t messages, errors; /* in the whole input */
} weir_verifier_report;

/** 0; -EBADMSG when two ways to feed it did not come to the same, WEIR_ELIMIT when it looked at
 * bytes too often, -EEXIST when something is left alive; `error` says in which run. Or what `init`
 * failed with, -EINVAL, -ENOMEM. `report` and `error` may be NULL. On any thread that is no loop's.
 */
WEIR_API int weir_verify(const weir_verifier_config *config, weir_verifier_report *report,
                         weir_error *error);

WEIR_END_DECLS

#endif
