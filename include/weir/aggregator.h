/* SPDX-License-Identifier: MIT */
/* The base of aggregators: from a message that comes in parts to the whole. */
#ifndef WEIR_AGGREGATOR_H
#define WEIR_AGGREGATOR_H

#include <weir/api.h>
#include <weir/buf.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/*
 * An aggregator is a handler behind a decoder whose messages come in parts: a start, pieces of
 * content, a last one. It is asked what each of them is, and how to make a whole of them; limits,
 * what becomes of a message above them, ends in the middle, and content in one buffer without
 * copying it are done here.
 *
 *     typedef struct letter_aggregator {
 *         weir_aggregator aggregator; // first
 *     } letter_aggregator;
 *
 *     static weir_part part_of_letter(weir_ctx *ctx, const weir_msg *msg);
 *     static const weir_buf *content_of_letter(weir_ctx *ctx, const weir_msg *part);
 *     static int finish_letter(weir_ctx *ctx, const weir_aggregate *parts, weir_msg **whole);
 *
 *     static const weir_aggregator_type letters = {
 *         .part = part_of_letter,
 *         .content = content_of_letter,
 *         .finish = finish_letter,
 *     };
 *
 *     static void letter_added(weir_ctx *ctx)
 *     {
 *         weir_aggregator_init(ctx, &letters, weir_ctx_arg(ctx)); // a weir_aggregator_limits
 *     }
 *
 *     static const weir_handler_type letter_handler = {
 *         .name = "letters",
 *         .state_size = sizeof(letter_aggregator),
 *         .added = letter_added,
 *         WEIR_AGGREGATOR_CALLBACKS,
 *     };
 */

/** What a message that is read is. */
typedef enum weir_part {
    WEIR_PART_FOREIGN, /* no part of anything: it passes */
    WEIR_PART_START,
    WEIR_PART_CONTENT,
    WEIR_PART_LAST,
    WEIR_PART_ALL, /* a start that is also the last */
} weir_part;

/** What becomes of a message whose content is longer than max_bytes. */
typedef enum weir_aggregator_oversize {
    WEIR_AGGREGATOR_CLOSE,    /* it is told by on_error, and the channel is closed */
    WEIR_AGGREGATOR_SKIP,     /* it is told to on_oversize, its rest is dropped, the next one counts
                               */
    WEIR_AGGREGATOR_TRUNCATE, /* so much of it is handed on, and its rest is dropped */
} weir_aggregator_oversize;

/** Chosen by the user of an aggregator. weir_aggregator_init copies it. */
typedef struct weir_aggregator_limits {
    size_t max_bytes; /* of content in one message: from 1 to WEIR_BUF_MAX, there is no default */
    weir_aggregator_oversize oversize;

    /* Pieces that are chained; what comes behind is copied, and so are pieces below 1 KiB, next to
     * each other. 0: 1,024. */
    size_t max_pieces;
} weir_aggregator_limits;

/** What there is of a message. Borrowed: retain what you keep. */
typedef struct weir_aggregate {
    weir_msg *start;
    weir_buf *content; /* of all parts, in one buffer, perhaps a composite; NULL: none */
    weir_msg *last;    /* NULL: there is none, it was truncated */
    bool is_truncated; /* there was more */
} weir_aggregate;

/** What kind of aggregator it is: const and static, one for any number of channels. The first four
 * must not call into the pipeline. */
typedef struct weir_aggregator_type {
    weir_part (*part)(weir_ctx *ctx, const weir_msg *msg);

    /* The content of a part, whichever it is: borrowed, NULL for none. */
    const weir_buf *(*content)(weir_ctx *ctx, const weir_msg *part);

    /* How long a start says that the content will be; negative: it does not. One above max_bytes is
     * too long already, unless it would be truncated. NULL: none of them says. */
    int64_t (*announced)(weir_ctx *ctx, const weir_msg *start);

    /* Makes the whole, which is then handed on. A negative code is told by on_error, and the
     * channel is closed. */
    int (*finish)(weir_ctx *ctx, const weir_aggregate *parts, weir_msg **whole);

    /* A message has begun, whose rest is to come, and is not too long as far as is known: for a
     * protocol that answers to that ("100 continue"). NULL: nothing. Everything is allowed in it.
     */
    void (*on_start)(weir_ctx *ctx, const weir_msg *start);

    /* With WEIR_AGGREGATOR_SKIP: a message is too long, once for each: for an answer ("413"), or to
     * close. NULL: on_error is told. Everything is allowed in it. */
    void (*on_oversize)(weir_ctx *ctx, const weir_msg *start);
} weir_aggregator_type;

/** The beginning of an aggregator's state. All of it is weir's. */
typedef struct weir_aggregator {
    const weir_aggregator_type *type;
    weir_aggregator_limits limits;
    weir_msg *start;    /* of the present message; NULL: there is none */
    weir_buf *chain;    /* its content, as a composite; NULL: none */
    weir_buf *tail;     /* small pieces behind that, copied together */
    size_t length;      /* of both */
    uint64_t copied;    /* bytes, for tests */
    bool is_skipping;   /* the rest of one that was too long */
    bool is_over;       /* it was refused: no more parts go on */
    bool has_passed_on; /* in this batch of reads */
} weir_aggregator;

/** The handler's callbacks, behind `.added` in its type. They expect a state that begins with a
 * weir_aggregator. A handler that wants one of these events itself names its own, and calls the
 * function of the aggregator from it. */
#define WEIR_AGGREGATOR_CALLBACKS                                                                  \
    .removed = weir_aggregator_removed, .on_read = weir_aggregator_on_read,                        \
    .on_read_complete = weir_aggregator_on_read_complete, .on_event = weir_aggregator_on_event,    \
    .on_inactive = weir_aggregator_on_inactive, .held_reads = weir_aggregator_held

/*
 * A start inside a message, and content outside of one, is refused with -EPROTO: on_error is told,
 * and the channel is closed. Behind a message that was too long a start may come without its last
 * part. The end of the stream inside a message is WEIR_EOF to on_error. When the handler is removed
 * inside one, what there is of it is dropped, and on_error told -ECANCELED.
 */
WEIR_API void weir_aggregator_removed(weir_ctx *ctx);
WEIR_API void weir_aggregator_on_read(weir_ctx *ctx, weir_msg *msg);
WEIR_API void weir_aggregator_on_read_complete(weir_ctx *ctx);
WEIR_API void weir_aggregator_on_event(weir_ctx *ctx, weir_msg *event);
WEIR_API void weir_aggregator_on_inactive(weir_ctx *ctx);
WEIR_API size_t weir_aggregator_held(const weir_ctx *ctx);

/** In `added`. Without limits that make sense the handler fails with -EINVAL, and is not added. */
WEIR_API void weir_aggregator_init(weir_ctx *ctx, const weir_aggregator_type *type,
                                   const weir_aggregator_limits *limits);

WEIR_END_DECLS

#endif
