/* SPDX-License-Identifier: MIT */
/* Offloaded handlers. */
#include "channel/offload.h"

#include "base/alloc.h"
#include "channel/extras.h"
#include "exec/executor.h"

#include <weir/log.h>

#include <errno.h>

/* Memory after the struct for copies of the event's error and addresses. */
static void *room_of(weir_offloaded *self)
{
    return self + 1;
}

uint32_t weir__offload_mask(const weir_handler_type *type)
{
    uint32_t wanted = weir__handler_mask(type), mask = 0;
    if (wanted & WEIR__INBOUND_MASK)
        mask |= WEIR__INBOUND_MASK;
    if (wanted & WEIR__OUTBOUND_MASK)
        mask |= WEIR__OUTBOUND_MASK;
    return mask;
}

/* Under the lock. */
static weir_executor *pinned(const weir_channel_extras *extras, const weir_group *group)
{
    const weir_pin *pin = extras->pins;
    while (pin != NULL && pin->group != group)
        pin = pin->next;
    return pin != NULL ? pin->executor : NULL;
}

/* The one that serves the channel already, or the group's next. Its chooser is the user's, so it is
 * not asked under the lock. */
weir_executor *weir__offload_pin(weir_channel *channel, weir_group *group)
{
    weir_channel_extras *extras = weir__channel_need_extras(channel);
    if (extras == NULL)
        return NULL;
    weir__channel_lock(channel);
    weir_executor *executor = pinned(extras, group);
    weir__channel_unlock(channel);
    weir_pin *pin = executor == NULL ? weir__alloc(sizeof *pin) : NULL;
    if (pin == NULL)
        return executor;
    weir_executor *chosen = weir_group_next(group);
    weir__channel_lock(channel);
    executor = pinned(extras, group);
    if (executor == NULL) {
        *pin = (weir_pin){ extras->pins, group, chosen };
        extras->pins = pin;
        pin = NULL;
        executor = chosen;
    }
    weir__channel_unlock(channel);
    weir__free(pin);
    return executor;
}

/* Events that return to the loop --------------------------------------------------------------- */

static void post(weir_offload *self, const weir_event *event);

static weir_offload *offload_of(weir_ctx *boundary)
{
    return (weir_offload *)boundary;
}

static void count_in_flight(weir_offload *self, int step)
{
    weir_channel *channel = self->boundary.ctx.channel;
    int64_t max = weir__channel_option(channel, WEIR_OPTION_MAX_EVENTS_AWAY);
    channel->life.offloaded_events += (uint32_t)step;
    self->in_flight += (unsigned)step;
    weir_hold *hold = &weir__channel_extras(channel)->offload_hold;
    if (channel->life.offloaded_events > max || channel->life.offloaded_events <= max / 2)
        weir_channel_set_read_hold(channel, hold, channel->life.offloaded_events > max);
}

static void close_channel(weir_offload *self, int code)
{
    weir_error error;
    weir_ctx *ctx = &self->boundary.ctx;
    if (weir__channel_is_closing(ctx->channel))
        return;
    weir_error_set(&error, code, self->handler->type->name,
                   "could not be reached on its executor: %s", weir_error_text(code));
    weir__event_pass(ctx, &(weir_event){ .kind = WEIR_EV_ERROR, .error = &error });
    weir__channel_close_now(ctx->channel, NULL);
}

/* The executor has ended, or there is no memory. An event that a handler was to see must not go
 * past it unseen, or it would wait for that for ever: the channel closes. But its end goes on. */
static void not_delivered(weir_offload *self, const weir_event *event, int code)
{
    weir_error error;
    weir_ctx *ctx = &self->boundary.ctx;
    weir_channel *channel = ctx->channel;
    switch (event->kind) {
    case WEIR_EV_READ:
        self->has_gap = true;
        weir_msg_release(event->msg);
        close_channel(self, code);
        break;
    case WEIR_EV_EVENT:
        weir_msg_release(event->msg);
        close_channel(self, code);
        break;
    case WEIR_EV_REGISTERED:
    case WEIR_EV_ACTIVE:
    case WEIR_EV_READ_COMPLETE:
    case WEIR_EV_WRITABILITY:
        weir__event_pass(ctx, event);
        close_channel(self, code);
        break;
    case WEIR_EV_ERROR:
        weir__event_pass(ctx, event);
        weir__channel_close_now(channel, NULL);
        break;
    case WEIR_EV_ADDED:
        weir_error_set(&error, code, self->handler->type->name,
                       "could not be added on its executor: %s", weir_error_text(code));
        weir__ctx_added_there(ctx, event->promise, &error);
        break;
    case WEIR_EV_REMOVED:
        /* Its executor has terminated, or has no thread: none can be using its state. */
        self->is_on_loop = true;
        weir__ctx_run_removed(self->handler);
        break;
    case WEIR_OP_WRITE:
        weir__event_drop(channel, event, code);
        break;
    default:
        weir__event_pass(ctx, event); /* to close, above all, must go on */
        break;
    }
}

static void flush_returned(weir_offload *self)
{
    bool owes_flush = self->owes_flush;
    self->is_flush_in_flight = self->owes_flush = false;
    if (owes_flush)
        post(self, &(weir_event){ .kind = WEIR_OP_FLUSH });
}

static void on_returned(weir_home *home, weir_call *call)
{
    weir_channel *channel = weir__channel_at(home);
    weir_offloaded *event = WEIR_CONTAINER(call, weir_offloaded, returned);
    weir_offload *self = event->offload;
    const weir_error *failure = room_of(event);
    if (event->code == 0)
        self->progress = event->progress;
    if (event->code < 0)
        not_delivered(self, &event->event, event->code);
    else if (event->continues)
        weir__event_pass(&self->boundary.ctx, &event->event);
    else if (event->event.kind == WEIR_EV_ADDED)
        weir__ctx_added_there(&self->boundary.ctx, event->event.promise,
                              failure->code < 0 ? failure : NULL);
    weir_promise_release(event->event.promise);
    if (event == &self->flush)
        flush_returned(self);
    else if (event != &self->removal)
        weir__free(event);
    count_in_flight(self, -1);
    weir__ctx_returned(&self->boundary.ctx);
    weir__channel_recheck(channel);
    weir_channel_release(channel);
}

/* On the executor ------------------------------------------------------------------------------ */

/* The handler that runs on this thread. */
static _Thread_local weir_offload *running;

static weir_progress progress_of(const weir_offload *self)
{
    return (weir_progress){ self->reads, weir__ctx_held(self->handler) };
}

weir_offload *weir__offload_running(const weir_channel *channel, weir_progress *progress)
{
    if (running == NULL || running->boundary.ctx.channel != channel)
        return NULL;
    *progress = progress_of(running);
    return running;
}

/* An event that the handler has no callback for was posted all the same, to keep its place. It
 * continues, as do those that came too late for a handler that has been removed. */
static void deliver(weir_offload *self, weir_offloaded *event)
{
    weir_ctx *handler = self->handler;
    bool is_read = event->event.kind == WEIR_EV_READ;
    bool is_rejected = is_read && (self->has_lost || atomic_load(&self->rejects_reads));
    self->reads += is_read;
    if ((handler->state == WEIR_CTX_FAILED && !self->is_optional) || is_rejected) {
        event->code = WEIR_ECLOSED; /* it must not go past the handler: the channel closes */
        return;
    }
    event->continues = (handler->mask & 1u << event->event.kind) == 0;
    if (event->continues)
        return;
    self->current = event;
    weir__event_call(handler, &event->event);
    self->current = NULL;
}

static void handle(weir_offload *self, weir_offloaded *event)
{
    if (event->event.kind == WEIR_EV_ADDED)
        weir__ctx_run_added(self->handler, room_of(event));
    else if (event->event.kind == WEIR_EV_REMOVED)
        weir__ctx_run_removed(self->handler);
    else
        deliver(self, event);
}

/* The reference that keeps the channel alive, and with that its loop, goes with the event: both are
 * retained until this thread has stopped touching them. */
static void send_back(weir_offloaded *event)
{
    weir_channel *channel = weir_channel_retain(event->offload->boundary.ctx.channel);
    weir_loop *loop = weir__channel_retain_loop(channel);
    weir__inbox_push(channel, &event->returned);
    weir_channel_release(channel);
    if (loop != NULL)
        weir__executor_release(&loop->base);
}

static int run_offloaded(weir_task *task)
{
    weir_offloaded *event = WEIR_CONTAINER(task, weir_offloaded, task);
    weir_offload *self = event->offload, *outer = running;
    weir_visit visit;
    running = self;
    weir__visit_begin(&visit, weir__ctx_describe, self->handler);
    handle(self, event);
    weir__visit_end(&visit);
    running = outer;
    event->progress = progress_of(self);
    send_back(event);
    return 0;
}

static void drop_offloaded(weir_task *task)
{
    weir_offloaded *event = WEIR_CONTAINER(task, weir_offloaded, task);
    event->code = WEIR_ESHUTDOWN;
    send_back(event);
}

/* Posting to the executor: on the loop --------------------------------------------------------- */

static void post_prepared(weir_offload *self, weir_offloaded *posted, const weir_event *event)
{
    *posted = (weir_offloaded){ .offload = self, .returned.run = on_returned };
    posted->task = (weir_task){ .run = run_offloaded,
                                .dropped = drop_offloaded,
                                .name = self->handler->type->name };
    weir__event_copy(&posted->event, event, room_of(posted));
    self->reads_sent += event->kind == WEIR_EV_READ;
    count_in_flight(self, 1);
    weir_channel_retain(self->boundary.ctx.channel);
    /* An executor without a thread may get one for the next event, which must not come first. */
    if (self->rejected == 0)
        self->rejected = weir__executor_post_always(self->executor, &posted->task);
    if (self->rejected < 0) {
        posted->code = self->rejected;
        weir__inbox_push(self->boundary.ctx.channel, &posted->returned); /* after those in flight */
    }
}

static void post_flush_without_memory(weir_offload *self, const weir_event *event)
{
    self->owes_flush = self->is_flush_in_flight;
    if (self->is_flush_in_flight)
        return;
    self->is_flush_in_flight = true;
    post_prepared(self, &self->flush, event);
}

static void post(weir_offload *self, const weir_event *event)
{
    if (event->kind == WEIR_EV_READ && self->has_gap) {
        weir_msg_release(event->msg); /* the channel is being closed for the one before */
        return;
    }
    size_t room = event->kind == WEIR_EV_ADDED ? sizeof(weir_error) : weir__event_room(event);
    weir_offloaded *posted = weir__alloc(sizeof *posted + room);
    if (posted != NULL)
        post_prepared(self, posted, event);
    else if (event->kind == WEIR_OP_FLUSH)
        post_flush_without_memory(self, event);
    else
        not_delivered(self, event, -ENOMEM);
}

void weir__offload_add(weir_offload *self, weir_promise *promise)
{
    self->is_optional = promise != NULL && !self->handler->type->is_upgrade;
    post(self, &(weir_event){ .kind = WEIR_EV_ADDED, .promise = promise });
}

void weir__offload_remove(weir_offload *self)
{
    post_prepared(self, &self->removal, &(weir_event){ .kind = WEIR_EV_REMOVED });
}

void weir__offload_reject_reads(weir_offload *self)
{
    atomic_store(&self->rejects_reads, true);
}

size_t weir__offload_held(const weir_offload *self)
{
    return self->progress.held + (self->reads_sent - self->progress.reads);
}

/* Continuing on the loop: from the executor ---------------------------------------------------- */

typedef struct continuation {
    weir_call call;
    weir_offload *offload;
    weir_event event;
    weir_progress progress;
    size_t weight; /* of a write, as counted in the inbox */
    _Alignas(8) char room[];
} continuation;

static void run_continuation(weir_home *home, weir_call *call)
{
    continuation *self = WEIR_CONTAINER(call, continuation, call);
    weir__inbox_uncount(weir__channel_at(home), self->weight);
    self->offload->progress = self->progress;
    weir__event_pass(&self->offload->boundary.ctx, &self->event);
    weir_promise_release(self->event.promise);
    weir__free(self);
}

/* Without memory: an event without arguments, for which the handler is being called, continues when
 * that returns. */
static bool continue_with_current(weir_offload *self, const weir_event *event)
{
    weir_offloaded *current = self->current;
    bool is_bare = event->msg == NULL && event->promise == NULL && event->error == NULL;
    if (current == NULL || !is_bare || current->event.kind != event->kind)
        return false;
    current->continues = true;
    return true;
}

static void drop_for_memory(weir_offload *self, const weir_event *event)
{
    self->has_lost |= event->kind == WEIR_EV_READ;
    weir__event_drop(self->boundary.ctx.channel, event, -ENOMEM);
}

static void send_on(weir_offload *self, const weir_event *event)
{
    weir_channel *channel = self->boundary.ctx.channel;
    if (event->kind == WEIR_EV_READ && self->has_lost) {
        weir_msg_release(event->msg); /* the channel is being closed for the one before */
        return;
    }
    if (weir__inbox_is_over_limit(channel, event)) {
        weir__event_drop(channel, event, WEIR_ELIMIT);
        return;
    }
    continuation *sent = weir__alloc(sizeof *sent + weir__event_room(event));
    if (sent == NULL) {
        if (!continue_with_current(self, event))
            drop_for_memory(self, event);
        return;
    }
    *sent = (continuation){ .call.run = run_continuation, .offload = self };
    sent->progress = progress_of(self);
    sent->weight = weir__inbox_count(channel, event);
    weir__event_copy(&sent->event, event, sent->room);
    weir__inbox_push(channel, &sent->call);
}

/* From a handler that is removed on the loop at once: its context may be gone when the inbox gets
 * to the event. */
static void continue_from(weir_ctx *way_back, const weir_event *event)
{
    weir_offload *self = WEIR_CONTAINER(way_back, weir_offload, way_back);
    if (self->is_on_loop)
        weir__event_pass(&self->boundary.ctx, event);
    else
        send_on(self, event);
}

static void run_leave(weir_home *home, weir_call *call)
{
    (void)home;
    weir__ctx_remove(&WEIR_CONTAINER(call, weir_offload, leave)->boundary.ctx);
}

/* The contexts stay: an event is in flight, or the removal will be, behind this in both queues. */
int weir__offload_request_removal(weir_offload *self)
{
    if (self->is_leaving)
        return WEIR_ENOTFOUND;
    self->is_leaving = true;
    self->leave.run = run_leave;
    weir__inbox_push(self->boundary.ctx.channel, &self->leave);
    return 0;
}

/* The two types -------------------------------------------------------------------------------- */

#define POST(event_kind, callback, parameters, arguments, ...)                                     \
    static void post_##callback parameters                                                         \
    {                                                                                              \
        post(offload_of(ctx), &(weir_event){ .kind = WEIR_##event_kind, __VA_ARGS__ });            \
    }
#define CONTINUE(event_kind, callback, parameters, arguments, ...)                                 \
    static void continue_##callback parameters                                                     \
    {                                                                                              \
        continue_from(ctx, &(weir_event){ .kind = WEIR_##event_kind, __VA_ARGS__ });               \
    }
#define POST_FIELD(kind, callback, ...) .callback = post_##callback,
#define CONTINUE_FIELD(kind, callback, ...) .callback = continue_##callback,

WEIR__EVENTS(POST)
WEIR__EVENTS(CONTINUE)

const weir_handler_type weir__boundary_type = { .name = "boundary", WEIR__EVENTS(POST_FIELD) };

static const weir_handler_type way_back_type = { .name = "way back", WEIR__EVENTS(CONTINUE_FIELD) };

void weir__offload_init(weir_ctx *handler, weir_executor *executor)
{
    weir_offload *self = weir__handler_offload(handler);
    weir_channel *channel = handler->channel;
    weir__ctx_init_end(&self->way_back, channel, &way_back_type);
    self->boundary.ctx = (weir_ctx){ .type = &weir__boundary_type, .channel = channel };
    self->boundary.ctx.is_slow = self->way_back.is_slow;
    self->handler = handler;
    self->executor = executor;
    weir__list_init(&self->timers);
    handler->is_offloaded = true;
    handler->prev = handler->next = &self->way_back;
}
