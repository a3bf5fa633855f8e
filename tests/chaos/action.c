/* SPDX-License-Identifier: MIT */
/* Actions. */
#include "action.h"

#include "guest.h"
#include "ledger.h"
#include "output.h"
#include "route.h"
#include "verdict.h"
#include "world.h"

#include <weir/weir.h>

#include <errno.h>

/* Who acts. */
typedef struct actor {
    end *end;
    weir_channel *channel;
    weir_ctx *ctx; /* NULL: another thread */
    dice *dice;
} actor;

/* A promise in two of three cases, of any binding. */
static weir_promise *any_promise(actor *a, const char *what, ledger_fn fn, void *arg)
{
    switch (dice_below(a->dice, 4)) {
    case 0:
        return ledger_promise(what, a->channel, NULL, fn, arg, 0);
    case 1:
        return ledger_promise(what, NULL, NULL, fn, arg, 0);
    case 2:
        return ledger_promise(what, NULL, weir_group_next(a->end->world->executors), fn, arg, 0);
    default:
        return NULL;
    }
}

/* Writing ------------------------------------------------------------------------------------ */

static void flush(actor *a)
{
    if (a->ctx != NULL)
        weir_ctx_flush(a->ctx);
    else
        weir_channel_flush(a->channel);
}

/* Only an end that main can flush when all is calm may leave something unflushed. */
static bool may_leave_unflushed(const actor *a)
{
    return a->end->role == END_HELD;
}

static void write_some(actor *a)
{
    end *self = a->end;
    bool is_polite = dice_percent(a->dice, 85);
    for (uint32_t left = dice_between(a->dice, 1, 6); left > 0; left--) {
        unsigned events = self->writability_events;
        if (a->ctx == NULL && is_polite && end_is_blocked(self))
            break;
        if (is_polite && !weir_channel_is_writable(a->channel)) {
            if (a->ctx == NULL && self->role == END_HELD)
                end_set_blocked(self, events);
            break;
        }
        bool goes_on = a->ctx != NULL
                           ? output_record(self, self->by_handler, a->ctx, a->dice)
                           : output_record_to(self, self->by_driver, a->channel, a->dice);
        if (!goes_on)
            break;
    }
    if (!may_leave_unflushed(a) || dice_percent(a->dice, 80))
        flush(a);
}

/* A shutdown that succeeds comes after all that its thread has written. */
static void on_shut(void *arg, uint32_t written, weir_future *future)
{
    stream *of = arg;
    if (weir_future_code(future) == 0)
        of->promised = written;
}

static void shut(actor *a)
{
    end *self = a->end;
    stream *own = a->ctx != NULL ? self->by_handler : self->by_driver;
    verdict_trace("end %u: shutdown", self->number);
    atomic_fetch_add(&self->shutdowns, 1);
    self->is_spent = true;
    weir_promise *promise = ledger_promise("shutdown", NULL, NULL, on_shut, own, own->written);
    if (a->ctx != NULL)
        weir_ctx_shutdown(a->ctx, promise);
    else
        weir_channel_shutdown(a->channel, promise);
    weir_promise_release(promise);
}

static void end_it(actor *a)
{
    end *self = a->end;
    bool finishes = dice_one_in(a->dice, 2);
    verdict_trace("end %u: %s", self->number, finishes ? "finish" : "close");
    end_set_ended(self);
    self->is_spent = true;
    weir_promise *promise = any_promise(a, finishes ? "finish" : "close", NULL, NULL);
    if (finishes)
        weir_channel_finish(a->channel, promise);
    else if (a->ctx != NULL)
        weir_ctx_close(a->ctx, promise);
    else
        weir_channel_close(a->channel, promise);
    weir_promise_release(promise);
}

/* Loops -------------------------------------------------------------------------------------- */

static void on_moved(void *arg, uint32_t number, weir_future *future)
{
    (void)number;
    end *self = arg;
    verdict_trace("end %u: moved: %s", self->number, weir_error_name(weir_future_code(future)));
}

static void move(actor *a)
{
    weir_executor *to = world_any_loop(a->end->world, a->dice);
    if (to == NULL)
        return;
    verdict_trace("end %u: move to %s", a->end->number, weir_executor_name(to));
    weir_promise *promise = any_promise(a, "move", on_moved, a->end);
    weir_channel_move(a->channel, to, promise);
    weir_promise_release(promise);
}

/* A channel on no loop is closed by nothing else. */
static void close_unregistered(end *self)
{
    end_set_ended(self);
    weir_channel_close(self->channel, NULL);
}

static void on_registered_again(void *arg, uint32_t number, weir_future *future)
{
    (void)number;
    end *self = arg;
    int code = weir_future_code(future);
    verdict_trace("end %u: registered again: %s", self->number, weir_error_name(code));
    if (code == 0 || code == WEIR_EREGISTERED)
        return;
    close_unregistered(self);
}

static void register_again(end *self)
{
    world *where = self->world;
    dice d = { .state = (uint64_t)self->number + self->writability_events };
    weir_promise *promise = ledger_promise("register", NULL, NULL, on_registered_again, self, 0);
    weir_executor *loop = world_any_loop(where, &d);
    if (loop != NULL && dice_one_in(&d, 2))
        weir_channel_register(self->channel, loop, promise);
    else
        weir_group_register(where->loops[dice_below(&d, where->loop_groups)].group, self->channel,
                            promise);
    if (promise == NULL) /* no listener would see that it failed */
        close_unregistered(self);
    weir_promise_release(promise);
}

/* Registers the channel with any group, unless the groups are about to be freed: this listener may
 * run on the loop of one group while main frees another. */
static void on_deregistered(void *arg, uint32_t number, weir_future *future)
{
    (void)number;
    end *self = arg;
    world *where = self->world;
    verdict_trace("end %u: deregistered: %s", self->number,
                  weir_error_name(weir_future_code(future)));
    if (weir_future_code(future) != 0)
        return;
    atomic_fetch_add(&where->acting, 1);
    if (where->is_calm && where->is_ending)
        close_unregistered(self);
    else
        register_again(self);
    atomic_fetch_sub(&where->acting, 1);
}

static void deregister(actor *a)
{
    weir_promise *promise = ledger_promise("deregister", NULL, NULL, on_deregistered, a->end, 0);
    if (promise == NULL)
        return;
    verdict_trace("end %u: deregister", a->end->number);
    weir_channel_deregister(a->channel, promise);
    weir_promise_release(promise);
}

/* Flow --------------------------------------------------------------------------------------- */

static void pause_reading(actor *a)
{
    unsigned hold = dice_below(a->dice, END_HOLDS);
    weir_channel_set_read_hold(a->channel, &a->end->read_holds[hold], dice_one_in(a->dice, 2));
}

static void pause_writing(actor *a)
{
    unsigned hold = dice_below(a->dice, END_HOLDS);
    weir_channel_set_write_hold(a->channel, &a->end->write_holds[hold], dice_one_in(a->dice, 2));
}

static void switch_auto_read(actor *a)
{
    weir_channel_set_option(a->channel, WEIR_OPTION_AUTO_READ, dice_below(a->dice, 2), NULL);
    if (dice_one_in(a->dice, 2))
        weir_channel_read(a->channel);
}

static void set_marks(actor *a)
{
    size_t low = dice_below(a->dice, 20000);
    weir_channel_set_water_marks(a->channel, low, low + 1 + dice_below(a->dice, 60000));
}

void action_calm(end *self)
{
    for (unsigned i = 0; i < END_HOLDS; i++) {
        weir_channel_set_write_hold(self->channel, &self->write_holds[i], false);
        weir_channel_set_read_hold(self->channel, &self->read_holds[i], false);
    }
    weir_channel_set_option(self->channel, WEIR_OPTION_AUTO_READ, 1, NULL);
    weir_channel_flush(self->channel);
}

/* The rest ----------------------------------------------------------------------------------- */

static void change_guests(actor *a)
{
    guest_change(a->end, a->channel, a->dice);
}

/* Handlers of weir that pass on what they keep when they are removed. */
static void remove_handler(actor *a)
{
    static const char *const names[] = { "traffic", "idle", "flush", "flow" };
    const char *name = names[dice_below(a->dice, 4)];
    int code = weir_pipeline_remove(weir_channel_pipeline(a->channel), name, NULL);
    verdict_trace("end %u: remove %s: %s", a->end->number, name, weir_error_name(code));
}

static void cancel(actor *a)
{
    ledger_cancel_any(a->dice);
}

static void look(actor *a)
{
    char names[200];
    weir_channel_stats stats;
    weir_address address;
    weir_handler_info info;
    weir_channel_get_stats(a->channel, &stats);
    weir_channel_remote_address(a->channel, &address);
    weir_channel_local_address(a->channel, &address);
    weir_pipeline_names(weir_channel_pipeline(a->channel), names, sizeof names);
    weir_pipeline_find(weir_channel_pipeline(a->channel), "g1", &info);
    weir_channel_bytes_before_unwritable(a->channel);
    weir_channel_bytes_before_writable(a->channel);
}

static const weir_msg_type event_type = { .name = "chaos event" };
static weir_msg event = WEIR_MSG_CONSTANT(&event_type);

static void fire_event(actor *a)
{
    weir_pipeline_fire_event(weir_channel_pipeline(a->channel), &event);
}

static int act_later(void *arg)
{
    (void)arg;
    return 0;
}

/* A timer on whichever loop the channel is on, cancelled at times. */
static void schedule(actor *a)
{
    weir_loop *loop = weir_channel_loop(a->channel);
    weir_future *future;
    if (loop == NULL || weir_executor_schedule(weir_loop_executor(loop), act_later, NULL,
                                               dice_below(a->dice, 5000) * 1000, &future) < 0)
        return;
    if (dice_one_in(a->dice, 2))
        weir_future_cancel(future);
    weir_future_release(future);
}

enum { ONLY_HELD = 1, NOT_POOLED = 2 };

static const struct {
    void (*act)(actor *a);
    unsigned weight;
    unsigned flags;
} actions[] = {
    { write_some, 60, 0 },
    { flush, 5, 0 },
    { change_guests, 14, 0 },
    { remove_handler, 1, 0 },
    { move, 4, NOT_POOLED },
    { deregister, 2, ONLY_HELD },
    { pause_reading, 3, ONLY_HELD },
    { pause_writing, 3, ONLY_HELD },
    { switch_auto_read, 3, ONLY_HELD },
    { set_marks, 2, 0 },
    { cancel, 6, 0 },
    { look, 3, 0 },
    { fire_event, 2, 0 },
    { schedule, 2, 0 },
    { shut, 1, 0 },
    { end_it, 1, 0 },
};

static void act(actor *a)
{
    unsigned total = 0;
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++)
        total += actions[i].weight;
    unsigned at = dice_below(a->dice, total);
    size_t i = 0;
    for (; at >= actions[i].weight; i++)
        at -= actions[i].weight;
    if ((actions[i].flags & ONLY_HELD) && a->end->role != END_HELD)
        return;
    if ((actions[i].flags & NOT_POOLED) && a->end->role == END_POOLED)
        return;
    if (actions[i].act == shut && a->end->role == END_POOLED && a->ctx != NULL)
        return; /* its borrower alone does that */
    if (actions[i].act == end_it && a->end->role == END_POOLED && a->ctx != NULL)
        return;
    actions[i].act(a);
}

void action_by_handler(end *self, weir_ctx *ctx, dice *d)
{
    act(&(actor){ .end = self, .channel = weir_ctx_channel(ctx), .ctx = ctx, .dice = d });
}

void action_by_driver(end *self, weir_channel *channel, dice *d)
{
    act(&(actor){ .end = self, .channel = channel, .dice = d });
}
