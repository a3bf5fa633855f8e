/* SPDX-License-Identifier: MIT */
/* The base of aggregators: what there is of a message, and when it is too much. */
#include <weir/aggregator.h>

#include "channel/arg.h"
#include "channel/extras.h"

#include <weir/channel.h>

#include <errno.h>

#define MOST_PIECES 1024
#define LEAST_PIECE 1024 /* bytes; below that a copy is cheaper than a piece */

void weir_aggregator_init(weir_ctx *ctx, const weir_aggregator_type *type,
                          const weir_aggregator_limits *limits)
{
    weir_aggregator *self = weir_ctx_state(ctx);
    if (!weir__arg_check_given(ctx, "weir_aggregator_limits", limits) ||
        !weir__arg_check_size(ctx, "max_bytes", limits->max_bytes, 1, WEIR_BUF_MAX) ||
        !weir__arg_check(ctx, "oversize", limits->oversize, 0, WEIR_AGGREGATOR_TRUNCATE))
        return;
    *self = (weir_aggregator){ .type = type, .limits = *limits };
    if (self->limits.max_pieces == 0)
        self->limits.max_pieces = MOST_PIECES;
}

/* What there is -------------------------------------------------------------------------------- */

static void drop(weir_aggregator *self)
{
    if (self->start != NULL)
        weir_msg_release(self->start);
    if (self->chain != NULL)
        weir_buf_release(self->chain);
    if (self->tail != NULL)
        weir_buf_release(self->tail);
    self->start = NULL;
    self->chain = self->tail = NULL;
    self->length = 0;
}

/* Takes the reference. */
static int add_piece(weir_aggregator *self, weir_buf *piece)
{
    if (self->chain == NULL && (self->chain = weir_buf_new_composite()) == NULL) {
        weir_buf_release(piece);
        return -ENOMEM;
    }
    return weir_buf_composite_add(self->chain, piece);
}

static int end_tail(weir_aggregator *self)
{
    weir_buf *tail = self->tail;
    self->tail = NULL;
    return tail != NULL ? add_piece(self, tail) : 0;
}

/* The tail grows to twice its size each time, so that however many small pieces there are, each
 * byte is copied a few times at most. */
static int append_copy(weir_aggregator *self, const weir_buf *content, size_t length)
{
    if (self->tail == NULL && (self->tail = weir_buf_new(length)) == NULL)
        return -ENOMEM;
    uint8_t *room = weir_buf_write_ptr(self->tail, length);
    if (room == NULL)
        return -ENOMEM;
    weir_buf_get_bytes(content, weir_buf_reader(content), room, length);
    self->copied += length;
    return weir_buf_advance_writer(self->tail, length);
}

/* Whether a copy is cheaper than the pieces, of which there must not be too many. */
static bool is_copied(const weir_aggregator *self, const weir_buf *content, size_t length)
{
    size_t count = weir_buf_is_composite(content) ? weir_buf_composite_count(content) : 1;
    return length < LEAST_PIECE * count ||
           weir_buf_composite_count(self->chain) + count >= self->limits.max_pieces;
}

/* The first `length` bytes of the content. */
static int append(weir_aggregator *self, const weir_buf *content, size_t length)
{
    weir_buf *piece;
    int code;
    if (length == 0)
        return 0;
    if (is_copied(self, content, length)) {
        code = append_copy(self, content, length);
    } else {
        code = end_tail(self);
        if (code == 0)
            code = weir_buf_retained_slice(content, weir_buf_reader(content), length, &piece);
        if (code == 0)
            code = add_piece(self, piece);
    }
    if (code == 0)
        self->length += length;
    return code;
}

/* All of it, as one buffer: NULL when there is none. */
static int take_content(weir_aggregator *self, weir_buf **content)
{
    int code = self->chain != NULL ? end_tail(self) : 0;
    *content = self->chain != NULL ? self->chain : self->tail;
    self->chain = self->tail = NULL;
    return code;
}

/* Ends ----------------------------------------------------------------------------------------- */

/* The stream cannot go on from here. */
static void refuse(weir_ctx *ctx, weir_aggregator *self, int code, const char *what)
{
    self->is_over = true;
    drop(self);
    weir_ctx_fail(ctx, code, "%s", what);
    weir__ctx_close_unless_finishing(ctx);
}

/* Hands the whole on; `last` is NULL for one that is cut short. */
static void finish(weir_ctx *ctx, weir_aggregator *self, weir_msg *last)
{
    weir_aggregate parts = { .start = self->start, .last = last, .is_truncated = last == NULL };
    weir_msg *whole = NULL;
    int code = take_content(self, &parts.content);
    self->start = NULL;
    self->length = 0;
    if (code == 0)
        code = self->type->finish(ctx, &parts, &whole);
    weir_msg_release(parts.start);
    if (parts.content != NULL)
        weir_buf_release(parts.content);
    if (code == 0 && whole == NULL)
        code = -EPROTO;
    if (code < 0) {
        refuse(ctx, self, code, "a message could not be put together");
        return;
    }
    self->has_passed_on = true;
    weir_ctx_fire_read(ctx, whole);
}

/* The present message is too long; `is_last`: and all of it is there. The channel may be closed
 * when this returns, the handler removed, or the next message begun. */
static void end_oversize(weir_ctx *ctx, weir_aggregator *self, bool is_last)
{
    size_t most = self->limits.max_bytes;
    self->is_skipping = !is_last;
    if (self->limits.oversize == WEIR_AGGREGATOR_TRUNCATE) {
        finish(ctx, self, NULL);
        return;
    }
    weir_msg *start = self->start;
    self->start = NULL;
    drop(self);
    bool is_over = self->limits.oversize == WEIR_AGGREGATOR_CLOSE;
    self->is_over = is_over;
    if (!is_over && self->type->on_oversize != NULL)
        self->type->on_oversize(ctx, start);
    else
        weir_ctx_fail(ctx, WEIR_ELIMIT, "a message is longer than %zu bytes", most);
    if (is_over)
        weir__ctx_close_unless_finishing(ctx);
    weir_msg_release(start);
}

/* Parts ---------------------------------------------------------------------------------------- */

/* False when it is too long already. */
static bool begin(weir_ctx *ctx, weir_aggregator *self, weir_msg *start, bool is_last)
{
    const weir_aggregator_type *type = self->type;
    int64_t announced = type->announced != NULL ? type->announced(ctx, start) : -1;
    self->is_skipping = false;
    self->start = weir_msg_retain(start);
    if (announced > 0 && (uint64_t)announced > self->limits.max_bytes &&
        self->limits.oversize != WEIR_AGGREGATOR_TRUNCATE) {
        end_oversize(ctx, self, is_last);
        return false;
    }
    return true;
}

/* Adds the content of a part; false when that was the end of the message. */
static bool add_content(weir_ctx *ctx, weir_aggregator *self, const weir_msg *part, bool is_last)
{
    const weir_buf *content = self->type->content(ctx, part);
    size_t length = weir_buf_readable(content), room = self->limits.max_bytes - self->length;
    bool is_truncated = length > room && self->limits.oversize == WEIR_AGGREGATOR_TRUNCATE;
    int code = 0;
    if (length <= room || is_truncated)
        code = append(self, content, length < room ? length : room);
    if (code < 0)
        refuse(ctx, self, code, "no memory for the content of a message");
    else if (length > room)
        end_oversize(ctx, self, is_last);
    return code == 0 && length <= room;
}

static void take_part(weir_ctx *ctx, weir_aggregator *self, weir_part part, weir_msg *msg)
{
    bool is_start = part == WEIR_PART_START || part == WEIR_PART_ALL;
    bool is_last = part == WEIR_PART_LAST || part == WEIR_PART_ALL;
    if (is_start && self->start != NULL) {
        refuse(ctx, self, -EPROTO, "a message begins inside another one");
    } else if (self->is_skipping && !is_start) {
        self->is_skipping = !is_last;
    } else if (!is_start && self->start == NULL) {
        refuse(ctx, self, -EPROTO, "a part of a message comes without its start");
    } else {
        bool goes_on = (!is_start || begin(ctx, self, msg, is_last)) &&
                       add_content(ctx, self, msg, is_last);
        if (goes_on && is_last)
            finish(ctx, self, msg);
        else if (goes_on && is_start && self->type->on_start != NULL)
            self->type->on_start(ctx, msg);
    }
}

/* The handler ---------------------------------------------------------------------------------- */

void weir_aggregator_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_aggregator *self = weir_ctx_state(ctx);
    weir_part part = self->type->part(ctx, msg);
    if (part == WEIR_PART_FOREIGN) {
        weir_ctx_fire_read(ctx, msg);
        return;
    }
    if (!self->is_over)
        take_part(ctx, self, part, msg);
    weir_msg_release(msg);
}

/* A message takes as many reads as it takes, whoever asked for one of them. */
void weir_aggregator_on_read_complete(weir_ctx *ctx)
{
    weir_aggregator *self = weir_ctx_state(ctx);
    int64_t reads_by_itself = 1;
    if (!self->has_passed_on && !self->is_over && (self->start != NULL || self->is_skipping))
        weir_channel_get_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, &reads_by_itself);
    if (!reads_by_itself)
        weir_ctx_read(ctx);
    self->has_passed_on = false;
    weir_ctx_fire_read_complete(ctx);
}

/* What came of a message will not become one. */
static void end_inside(weir_ctx *ctx, int code, const char *what)
{
    weir_aggregator *self = weir_ctx_state(ctx);
    bool is_inside = self->start != NULL;
    size_t length = self->length;
    self->is_over = true;
    drop(self);
    if (is_inside)
        weir_ctx_fail(ctx, code, "%s inside a message, behind %zu bytes of its content", what,
                      length);
}

/* Also the rest of a message that is skipped. */
size_t weir_aggregator_held(const weir_ctx *ctx)
{
    const weir_aggregator *self = weir_ctx_state(ctx);
    return !self->is_over && (self->start != NULL || self->is_skipping);
}

void weir_aggregator_on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        end_inside(ctx, WEIR_EOF, "the stream ends");
    weir_ctx_fire_event(ctx, event);
}

void weir_aggregator_on_inactive(weir_ctx *ctx)
{
    end_inside(ctx, WEIR_EOF, "the stream ends");
    weir_ctx_fire_inactive(ctx);
}

void weir_aggregator_removed(weir_ctx *ctx)
{
    weir_aggregator *self = weir_ctx_state(ctx);
    if (weir_channel_is_open(weir_ctx_channel(ctx)))
        end_inside(ctx, -ECANCELED, "the aggregator was removed");
    else
        drop(self);
}
