/* SPDX-License-Identifier: MIT */
/* The flow control handler. */
#include <weir/flow_control.h>

#include "base/alloc.h"

#include <weir/channel.h>

#include <errno.h>
#include <string.h>

#define FEW 32 /* so much room is kept when nothing waits */

/*
 *     waiting:   [ gone ] [ msg ] [ msg ] [ msg ] [ room ]
 *                          first   `---- count ---'
 *
 * It is filled by one batch of reads, and empty before there is another, so it needs no ring.
 */
typedef struct flow_control {
    weir_msg **waiting;
    size_t first, count, room;
    bool is_asked;       /* a read has not been answered */
    bool owes_read;      /* nor passed on, in the hope that something waits */
    bool is_handing;     /* further up the stack */
    bool is_in_batch;    /* of reads, whose end will come */
    bool has_come;       /* something, in it */
    bool has_passed;     /* something, with no end told behind it */
    bool is_input_ended; /* which is to be told behind what waits */
    bool has_failed;     /* messages are missing, so there will be no more */
} flow_control;

static bool is_auto(const weir_ctx *ctx)
{
    int64_t is_auto_read = 0;
    weir_channel_get_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, &is_auto_read);
    return is_auto_read != 0;
}

/* What waits ----------------------------------------------------------------------------------- */

static int make_room(flow_control *self)
{
    size_t end = self->first + self->count;
    if (end < self->room)
        return 0;
    if (self->first > self->room / 2) {
        memmove(self->waiting, self->waiting + self->first, self->count * sizeof(weir_msg *));
        self->first = 0;
        return 0;
    }
    size_t room = self->room > 0 ? self->room * 2 : FEW / 2;
    weir_msg **waiting = weir__realloc(self->waiting, room * sizeof(weir_msg *));
    if (waiting == NULL)
        return -ENOMEM;
    self->waiting = waiting;
    self->room = room;
    return 0;
}

static int put(flow_control *self, weir_msg *msg)
{
    int code = make_room(self);
    if (code == 0)
        self->waiting[self->first + self->count++] = msg;
    return code;
}

static void free_room(flow_control *self)
{
    weir__free(self->waiting);
    self->waiting = NULL;
    self->room = 0;
}

static weir_msg *take(flow_control *self)
{
    weir_msg *msg = self->waiting[self->first++];
    if (--self->count > 0)
        return msg;
    self->first = 0;
    if (self->room > FEW)
        free_room(self);
    return msg;
}

/* Passing on ----------------------------------------------------------------------------------- */

static void complete(weir_ctx *ctx, flow_control *self)
{
    if (!self->has_passed)
        return;
    self->has_passed = false;
    weir_ctx_fire_read_complete(ctx);
}

static void tell_end(weir_ctx *ctx, flow_control *self)
{
    if (!self->is_input_ended)
        return;
    self->is_input_ended = false;
    weir_ctx_fire_event(ctx, &weir_event_input_closed);
}

/* One message answers a read, and that is then complete. */
static void hand(weir_ctx *ctx, flow_control *self, weir_msg *msg)
{
    self->is_asked = false;
    if (!is_auto(ctx))
        self->owes_read = false;
    self->has_passed = true;
    weir_ctx_fire_read(ctx, msg);
    if (!weir_ctx_is_removed(ctx) && !is_auto(ctx))
        complete(ctx, self);
}

static bool is_wanted(const weir_ctx *ctx, const flow_control *self)
{
    return (self->is_asked || is_auto(ctx)) && !weir_ctx_is_removed(ctx);
}

/* Nothing waits any more: what is owed is due, if it is still wanted. */
static void settle(weir_ctx *ctx, flow_control *self)
{
    bool reads = self->owes_read && is_wanted(ctx, self);
    self->owes_read = false;
    tell_end(ctx, self);
    if (reads && !weir_ctx_is_removed(ctx))
        weir_ctx_read(ctx);
}

/* Passes on what is wanted of what waits, beginning with a message that has just come (NULL: none
 * has). Who asks for more inside is served by the same loop. */
static void pump(weir_ctx *ctx, flow_control *self, weir_msg *fresh)
{
    self->is_handing = true;
    if (fresh != NULL)
        hand(ctx, self, fresh);
    while (self->count > 0 && is_wanted(ctx, self))
        hand(ctx, self, take(self));
    self->is_handing = false;
    if (weir_ctx_is_removed(ctx))
        return;
    if (!self->is_in_batch)
        complete(ctx, self);
    if (self->count == 0)
        settle(ctx, self);
}

static void hand_all_on(weir_ctx *ctx, flow_control *self)
{
    for (; self->count > 0; self->has_passed = true)
        weir_ctx_fire_read(ctx, take(self));
    complete(ctx, self);
    tell_end(ctx, self);
}

/* The handler ---------------------------------------------------------------------------------- */

static void flow_control_removed(weir_ctx *ctx)
{
    flow_control *self = weir_ctx_state(ctx);
    bool reads = self->owes_read && self->is_asked && self->count == 0;
    self->owes_read = false;
    hand_all_on(ctx, self);
    free_room(self);
    if (reads)
        weir_ctx_read(ctx);
}

/* Messages must not be skipped. */
static void give_up(weir_ctx *ctx, flow_control *self)
{
    self->has_failed = true;
    weir_ctx_fail(ctx, -ENOMEM, "no memory to keep a message until it is asked for");
    if (!weir_ctx_is_removed(ctx))
        weir_ctx_close(ctx, NULL);
}

static void flow_control_on_read(weir_ctx *ctx, weir_msg *msg)
{
    flow_control *self = weir_ctx_state(ctx);
    self->is_in_batch = self->has_come = true;
    if (self->has_failed) {
        weir_msg_release(msg);
    } else if (self->count == 0 && !self->is_handing && is_wanted(ctx, self)) {
        pump(ctx, self, msg);
    } else if (put(self, msg) < 0) {
        weir_msg_release(msg);
        give_up(ctx, self);
    }
}

/* A batch that brought nothing is passed on as such: a decoder needs more for a message. */
static void flow_control_on_read_complete(weir_ctx *ctx)
{
    flow_control *self = weir_ctx_state(ctx);
    self->has_passed |= !self->has_come;
    self->is_in_batch = self->has_come = false;
    complete(ctx, self);
}

static size_t flow_control_held(const weir_ctx *ctx)
{
    return ((const flow_control *)weir_ctx_state(ctx))->count;
}

static void flow_control_on_event(weir_ctx *ctx, weir_msg *event)
{
    flow_control *self = weir_ctx_state(ctx);
    if (event == &weir_event_input_closed && self->count > 0)
        self->is_input_ended = true;
    else
        weir_ctx_fire_event(ctx, event);
}

static void flow_control_on_inactive(weir_ctx *ctx)
{
    hand_all_on(ctx, weir_ctx_state(ctx));
    weir_ctx_fire_inactive(ctx);
}

/* What auto_read asks for is forgotten when it is switched off. */
static void flow_control_read(weir_ctx *ctx)
{
    flow_control *self = weir_ctx_state(ctx);
    self->is_asked = !is_auto(ctx);
    self->owes_read = true;
    if (!self->is_handing)
        pump(ctx, self, NULL);
}

const weir_handler_type weir_flow_control_handler = {
    .name = "flow control",
    .state_size = sizeof(flow_control),
    .removed = flow_control_removed,
    .held_reads = flow_control_held,
    .on_read = flow_control_on_read,
    .on_read_complete = flow_control_on_read_complete,
    .on_event = flow_control_on_event,
    .on_inactive = flow_control_on_inactive,
    .read = flow_control_read,
};
