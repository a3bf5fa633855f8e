/* SPDX-License-Identifier: MIT */
/* Ends. */
#include "end.h"

#include "action.h"
#include "faults.h"
#include "guest.h"
#include "output.h"
#include "route.h"
#include "verdict.h"
#include "world.h"

#include <weir/weir.h>

#include <stdlib.h>
#include <string.h>

static const weir_attr_key end_key = { .name = "chaos end" };

/* In the handler's context. */
typedef struct end_state {
    weir_ctx_timer timer;
    unsigned rounds;
} end_state;

static end *enter(weir_ctx *ctx)
{
    end *self = weir_ctx_arg(ctx);
    tenure_check_thread(&self->tenure, ctx, false);
    MUST(!self->is_closed, "%s: a callback runs after weir_channel_closed", self->tenure.name);
    MUST(self->tenure.removed == 0, "%s: a callback runs after removed", self->tenure.name);
    door_enter(self->tenure.group != NULL ? &self->offloaded : &self->on_loop, &self->tenure);
    return self;
}

static void leave(end *self)
{
    door_leave(self->tenure.group != NULL ? &self->offloaded : &self->on_loop);
}

/* Now and then, inside any callback. */
static void maybe_act(end *self, weir_ctx *ctx, unsigned one_in)
{
    if (!dice_one_in(&self->dice, one_in))
        return;
    atomic_fetch_add(&self->world->acting, 1);
    if (!self->world->is_calm)
        action_by_handler(self, ctx, &self->dice);
    atomic_fetch_sub(&self->world->acting, 1);
}

/* An event that cannot be carried to a handler on another executor closes the channel. */
static bool may_miss_events(const end *self)
{
    return self->tenure.group != NULL || faults_count() > 0;
}

/* Lifecycle ---------------------------------------------------------------------------------- */

static void on_timer(weir_ctx_timer *timer, weir_ctx *ctx)
{
    end_state *state = weir_ctx_state(ctx);
    end *self = enter(ctx);
    maybe_act(self, ctx, 1);
    if (!self->world->is_calm && state->rounds-- > 0)
        weir_ctx_schedule(ctx, timer, (int64_t)dice_between(&self->dice, 100, 3000) * 1000);
    leave(self);
}

static void end_added(weir_ctx *ctx)
{
    end *self = weir_ctx_arg(ctx);
    tenure_check_thread(&self->tenure, ctx, false);
    tenure_begin(&self->tenure);
    self->ctx = ctx;
}

static void end_removed(weir_ctx *ctx)
{
    end *self = weir_ctx_arg(ctx);
    MUST(!self->is_closed, "%s: removed runs after weir_channel_closed", self->tenure.name);
    tenure_check_thread(&self->tenure, ctx, true);
    /* A loop whose shutdown timeout is over removes them without notice. */
    if (!may_miss_events(self) && !self->world->is_ending)
        MUST(!self->is_active, "%s: removed runs while it is active", self->tenure.name);
    tenure_end(&self->tenure);
}

static void end_on_registered(weir_ctx *ctx)
{
    end *self = enter(ctx);
    MUST(!self->is_registered || may_miss_events(self), "%s: on_registered twice",
         self->tenure.name);
    self->is_registered = true;
    weir_ctx_fire_registered(ctx);
    leave(self);
}

static void end_on_unregistered(weir_ctx *ctx)
{
    end *self = enter(ctx);
    MUST(self->is_registered || may_miss_events(self), "%s: on_unregistered twice",
         self->tenure.name);
    self->is_registered = false;
    weir_ctx_fire_unregistered(ctx);
    leave(self);
}

static void end_on_active(weir_ctx *ctx)
{
    end_state *state = weir_ctx_state(ctx);
    end *self = enter(ctx);
    verdict_trace("end %u: active", self->number);
    MUST(!self->was_active, "%s: on_active twice", self->tenure.name);
    self->was_active = self->is_active = true;
    self->is_opened = true;
    state->timer.fire = on_timer;
    state->rounds = dice_between(&self->dice, 5, 60);
    weir_ctx_schedule(ctx, &state->timer, WEIR_MS(1));
    if (self->role == END_HELD && dice_one_in(&self->dice, 3))
        weir_channel_group_add(self->world->room, weir_ctx_channel(ctx));
    output_record(self, self->by_handler, ctx, &self->dice);
    weir_ctx_flush(ctx);
    weir_ctx_fire_active(ctx);
    leave(self);
}

/* A pool closes its connections by itself. */
static void note_eof(end *self)
{
    self->is_input_ended = true;
    if (!self->is_ended && !self->world->is_ending && self->role != END_POOLED)
        self->has_eof = true;
}

static void end_on_inactive(weir_ctx *ctx)
{
    end *self = enter(ctx);
    verdict_trace("end %u: inactive", self->number);
    MUST(self->is_active || may_miss_events(self), "%s: on_inactive without on_active",
         self->tenure.name);
    /* Without memory to carry an error here, it has passed this handler. */
    bool may_miss_error = self->tenure.group != NULL && faults_count() > 0;
    if (weir_channel_is_input_closed(weir_ctx_channel(ctx)) && !may_miss_error)
        note_eof(self);
    self->is_active = false;
    self->is_down = true;
    weir_ctx_fire_inactive(ctx);
    leave(self);
}

/* Everything else ---------------------------------------------------------------------------- */

static void end_on_read(weir_ctx *ctx, weir_msg *msg)
{
    end *self = enter(ctx);
    weir_buf *bytes = weir_buf_from_msg(msg);
    MUST(bytes != NULL, "%s: read a %s", self->tenure.name, msg->type->name);
    MUST(self->is_active || may_miss_events(self), "%s: reads while it is not active",
         self->tenure.name);
    receiver_take(&self->in, bytes);
    if (self->route->has_whole_frames)
        MUST(receiver_is_between_records(&self->in), "%s: a frame is not a record",
             self->tenure.name);
    weir_msg_release(msg);
    maybe_act(self, ctx, 40);
    leave(self);
}

static void end_on_read_complete(weir_ctx *ctx)
{
    end *self = enter(ctx);
    maybe_act(self, ctx, 20);
    leave(self);
}

static void end_on_event(weir_ctx *ctx, weir_msg *event)
{
    end *self = enter(ctx);
    if (event == &weir_event_input_closed) {
        verdict_trace("end %u: input closed", self->number);
        note_eof(self);
    }
    weir_ctx_fire_event(ctx, event);
    maybe_act(self, ctx, 10);
    leave(self);
}

static void end_on_writability(weir_ctx *ctx)
{
    end *self = enter(ctx);
    atomic_fetch_add(&self->writability_events, 1);
    maybe_act(self, ctx, 10);
    leave(self);
}

static void end_on_error(weir_ctx *ctx, const weir_error *error)
{
    end *self = enter(ctx);
    verdict_trace("end %u: error %s, %s: %s", self->number, weir_error_name(error->code),
                  error->origin, error->message);
    self->has_failed = true;
    if (dice_one_in(&self->dice, 4)) {
        end_set_ended(self);
        weir_ctx_close(ctx, NULL);
    }
    leave(self);
}

static const weir_handler_type end_type = {
    .name = "end",
    .state_size = sizeof(end_state),
    .added = end_added,
    .removed = end_removed,
    .on_registered = end_on_registered,
    .on_unregistered = end_on_unregistered,
    .on_active = end_on_active,
    .on_inactive = end_on_inactive,
    .on_read = end_on_read,
    .on_read_complete = end_on_read_complete,
    .on_event = end_on_event,
    .on_writability = end_on_writability,
    .on_error = end_on_error,
};

/* Making and ending -------------------------------------------------------------------------- */

static void note_closed(weir_listener *listener, weir_future *future)
{
    (void)future;
    end *self = WEIR_CONTAINER(listener, end, closed);
    verdict_trace("end %u: closed", self->number);
    MUST(!self->is_closed, "%s: weir_channel_closed completes twice", self->tenure.name);
    tenure_check(&self->tenure);
    guest_channel_closed(self);
    self->is_closed = true;
}

static int add_handler(end *self, weir_channel *channel)
{
    weir_handler_config config = {
        .type = &end_type,
        .name = "end",
        .arg = self,
        .group = self->tenure.group,
    };
    int code = weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
    tenure_set_result(&self->tenure, code);
    return code;
}

int end_new(route *path, weir_channel *channel, bool is_server, end_role role, dice *d)
{
    end *self = calloc(1, sizeof *self);
    MUST(self != NULL, "chaos itself has no memory");
    *self = (end){ .world = path->world, .route = path, .is_server = is_server, .role = role };
    self->dice = dice_split(d);
    self->in.end = self;
    self->tenure.group = path->offloads_end ? path->world->executors : NULL;
    if (!world_number_end(path->world, self)) {
        free(self);
        return WEIR_ELIMIT;
    }
    snprintf(self->tenure.name, sizeof self->tenure.name, "end %u", self->number);
    self->by_handler = stream_new(self, path->stream_bytes);
    self->by_driver = stream_new(self, path->stream_bytes);
    MUST(self->by_handler != NULL && self->by_driver != NULL, "chaos itself has no memory");
    if (role == END_HELD)
        self->channel = weir_channel_retain(channel);
    int code = weir_channel_set_attr(channel, &end_key, self);
    weir_future *closed = weir_channel_closed(channel);
    if (closed != NULL) {
        self->is_watched = true;
        self->closed.done = self->closed.dropped = note_closed;
        weir_future_listen(closed, &self->closed);
    }
    world_publish_end(path->world, self);
    return code < 0 ? code : add_handler(self, channel);
}

end *end_of(weir_channel *channel)
{
    return weir_channel_attr(channel, &end_key);
}

void end_set_peer(end *self, end *peer)
{
    end *none = NULL;
    if (!atomic_compare_exchange_strong(&self->peer, &none, peer))
        MUST(none == peer, "end %u receives records of ends %u and %u", self->number, none->number,
             peer->number);
    none = NULL;
    if (!atomic_compare_exchange_strong(&peer->peer, &none, self))
        MUST(none == self, "records of end %u arrive at ends %u and %u", peer->number, none->number,
             self->number);
}

void end_set_ended(end *self)
{
    self->is_ended = true;
}

/* Writability -------------------------------------------------------------------------------- */

void end_set_blocked(end *self, unsigned events_before)
{
    self->is_blocked = true;
    self->blocked_at = events_before;
}

bool end_is_blocked(end *self)
{
    if (self->is_blocked && self->writability_events != self->blocked_at)
        self->is_blocked = false;
    return self->is_blocked;
}

/* Checks ------------------------------------------------------------------------------------- */

static bool is_going(const end *self)
{
    return self->is_opened && !self->is_closed && !self->is_down && !self->is_ended;
}

bool end_has_settled(end *self)
{
    end *peer = self->peer;
    if (!is_going(self) || self->shutdowns > 0 || self->is_input_ended)
        return true;
    if (self->role == END_HELD && !weir_channel_is_open(self->channel))
        return true;
    if (peer != NULL && !is_going(peer))
        return true;
    return stream_has_arrived(self->by_handler) && stream_has_arrived(self->by_driver) &&
           !end_is_blocked(self);
}

/* The receiver has read to EOF, and nothing failed: all that was reported sent has arrived. */
static void check_stream_at_eof(const end *self, const stream *from)
{
    uint32_t received = from->received, written = from->written;
    /* Behind another shutdown, or a close, writes fail and a shutdown has nothing to do. */
    bool has_other_end = from->owner->shutdowns > 1 || from->owner->is_ended;
    uint32_t promised = has_other_end ? 0 : from->promised;
    for (uint32_t number = received; number < written; number++) {
        fate what = stream_fate(from, number);
        MUST(what != FATE_SENT, "end %u read to EOF, and record %u of stream %u of end %u %s",
             self->number, number, from->id, from->owner->number,
             "never arrived though its write has succeeded");
        MUST(what == FATE_FAILED || number >= promised,
             "end %u read to EOF, and record %u of stream %u of end %u %s", self->number, number,
             from->id, from->owner->number, "never arrived though a later shutdown has succeeded");
    }
}

void end_check(const end *self)
{
    tenure_check(&self->tenure);
    guest_check_all(self);
    receiver_check_gaps(&self->in);
    if (self->is_watched)
        MUST(self->is_closed, "%s: weir_channel_closed never completed", self->tenure.name);
    const end *peer = self->peer;
    if (self->has_eof && !self->has_failed && peer != NULL) {
        check_stream_at_eof(self, peer->by_handler);
        check_stream_at_eof(self, peer->by_driver);
    }
}

static void print_stream(const stream *of, FILE *to)
{
    if (of == NULL)
        return;
    fprintf(to, "    stream %u: %u written, %u received%s", of->id, of->written, of->received,
            stream_has_arrived(of) ? "" : ", NOT ARRIVED, fates from there:");
    for (uint32_t n = of->received;
         !stream_has_arrived(of) && n < of->written && n < of->received + 8; n++)
        fprintf(to, " %d", (int)stream_fate(of, n));
    fputc('\n', to);
}

void end_print(const end *self, FILE *to)
{
    static const char *const roles[] = { "held", "loose", "pooled" };
    const end *peer = self->peer;
    fprintf(to, "  end %u of route %u, %s, %s, peer %d:%s%s%s%s%s%s%s%s%s, %u writability events\n",
            self->number, self->route->number, self->is_server ? "server" : "client",
            roles[self->role], peer != NULL ? (int)peer->number : -1,
            self->is_opened ? " opened" : "", self->is_ended ? " ended" : "",
            self->shutdowns > 0 ? " shut" : "", self->has_eof ? " eof" : "",
            self->has_failed ? " failed" : "", self->is_down ? " down" : "",
            self->is_closed ? " closed" : "", self->is_blocked ? " BLOCKED" : "",
            self->tenure.group != NULL ? " offloaded" : "", self->writability_events);
    print_stream(self->by_handler, to);
    print_stream(self->by_driver, to);
    if (self->channel != NULL && !self->is_closed) {
        char names[256], line[512];
        weir_pipeline_names(weir_channel_pipeline(self->channel), names, sizeof names);
        weir_channel_dump(self->channel, line, sizeof line);
        fprintf(to, "    %s\n    pipeline: %s\n", line, names);
    }
}

void end_free(end *self)
{
    weir_channel_release(self->channel);
    guest_free_all(self);
    free(self);
}
