/* SPDX-License-Identifier: MIT */
/* Connecting: resolves a name, starts the race of its addresses, and hands the channel out. */
#include "bootstrap/client.h"

#include "base/alloc.h"
#include "base/time_sum.h"
#include "bootstrap/names.h"
#include "bootstrap/race.h"
#include "exec/per_channel.h"
#include "loop/loop.h"

#include <weir/timer.h>

#include <errno.h>

#define DEFAULT_TIMEOUT_NS WEIR_SECONDS(30)
#define DEFAULT_STAGGER_NS WEIR_MS(250)

/*
 *   start            on the loop; the names are being looked up
 *   on_resolved      the race of the addresses begins
 *   conclude         one has won, all have failed, it has timed out, or it was cancelled:
 *                    everything else is cancelled
 *   settle           and when nothing is in flight any more, the operation ends
 *
 * From `start` on everything runs on the loop. The promises it waits for are bound to the loop, not
 * to the channel, which may move to another before it is connected. If the loop terminates first,
 * the caller's promise fails (`abandon`), and what is left only frees.
 */
typedef struct connector {
    weir_operation operation; /* from `start` on */
    weir_client_plan plan;
    weir_address local;
    char *text;
    weir_executor *executor;
    weir_loop *loop;
    weir_promise *promise; /* the caller's; NULL: none */
    weir_promise *lookup;
    weir_promise *rest; /* of the addresses, if some may follow; NULL: not */
    weir_task start;
    weir_resident resident;
    weir_awaited on_resolved, on_rest, on_registered;
    weir_notice after_news; /* of the channel */
    weir_timer deadline;
    weir_race race;

    weir_channel *channel; /* of the one that has won */
    bool is_asking;        /* for the addresses */
    bool is_asking_more;   /* for further addresses */
    bool is_entering;      /* the channel is being registered, or its handlers notified of that */
    bool is_concluded;
    int failure;
} connector;

static connector *connector_of(weir_operation *operation)
{
    return WEIR_CONTAINER(operation, connector, operation);
}

static void settle(connector *self);

static void destroy(connector *self)
{
    weir_promise_release(self->promise);
    weir_promise_release(self->lookup);
    weir_promise_release(self->rest);
    weir_channel_release(self->channel);
    weir__client_end_plan(&self->plan);
    weir__race_free(&self->race);
    weir__free(self->text);
    weir__free(self);
}

static void destroy_operation(weir_operation *operation)
{
    destroy(connector_of(operation));
}

/* The end -------------------------------------------------------------------------------------- */

/* Cancels what is in flight; settle follows. */
static void conclude(connector *self, int failure)
{
    if (self->is_concluded)
        return;
    weir__operation_retain(&self->operation); /* the cancelled parts may end at once */
    self->is_concluded = true;
    self->failure = failure;
    weir_timer_cancel(&self->deadline);
    if (self->is_asking)
        weir_future_cancel(weir_promise_future(self->lookup));
    if (self->is_asking_more)
        weir_future_cancel(weir_promise_future(self->rest));
    weir__race_stop(&self->race);
    if (self->channel != NULL && failure < 0)
        weir_channel_close(self->channel, NULL);
    settle(self);
    weir__operation_release(&self->operation);
}

/* A channel that was cancelled at the last moment has no owner. */
static void finish(connector *self)
{
    weir_channel *channel = self->channel;
    weir_error error;
    int code = self->failure;
    self->channel = NULL;
    if (code < 0) {
        weir__race_describe(&self->race, code, &error);
        weir__operation_fail(&self->operation, &error);
    } else {
        code = weir__operation_succeed(&self->operation, channel, weir__client_release_channel);
    }
    if (code < 0 && channel != NULL) {
        weir_channel_close(channel, NULL);
        weir_channel_release(channel);
    }
}

/* Ends the operation once nothing is in flight any more. */
static void settle(connector *self)
{
    if (!self->is_concluded || weir__operation_has_ended(&self->operation) ||
        self->race.running > 0 || self->is_asking || self->is_asking_more || self->is_entering)
        return;
    if (weir__list_is_linked(&self->resident.node))
        weir__loop_remove(self->loop, &self->resident);
    finish(self);
}

static void cancelled(weir_operation *operation)
{
    conclude(connector_of(operation), -ECANCELED);
}

static const weir_operation_type operation_type = { .cancelled = cancelled,
                                                    .destroy = destroy_operation };

static int on_deadline(weir_timer *timer)
{
    conclude(WEIR_CONTAINER(timer, connector, deadline), -ETIMEDOUT);
    return 0;
}

static void evict(weir_resident *resident)
{
    conclude(WEIR_CONTAINER(resident, connector, resident), WEIR_ESHUTDOWN);
}

/* The loop ends before everything in flight has ended. */
static void abandon(weir_resident *resident)
{
    connector *self = WEIR_CONTAINER(resident, connector, resident);
    if (!weir__operation_has_ended(&self->operation))
        finish(self);
}

static const weir_resident_type resident_type = { .evict = evict, .abandon = abandon };

/* The channel ---------------------------------------------------------------------------------- */

static void on_entered(weir_notice *notice)
{
    connector *self = WEIR_CONTAINER(notice, connector, after_news);
    self->is_entering = false;
    settle(self);
    weir__operation_release(&self->operation);
}

/* The channel's next event is that it is active; a listener of the promise finds it active. */
static void wait_for_news(connector *self)
{
    self->is_entering = true;
    weir__operation_retain(&self->operation);
    self->after_news.run = on_entered;
    weir__notice_queue(&self->after_news);
}

static void on_registered(weir_awaited *awaited, weir_future *future)
{
    connector *self = connector_of(awaited->operation);
    int code = weir_future_code(future);
    if (self->failure == 0)
        self->failure = self->plan.init_code < 0 ? self->plan.init_code : code;
    if (!weir__operation_has_ended(&self->operation))
        wait_for_news(self);
}

/* Registers it with this loop. */
static int enter(connector *self, weir_channel *channel)
{
    weir_promise *promise = weir_promise_new(self->executor);
    if (promise == NULL)
        return -ENOMEM;
    self->is_entering = true;
    weir__operation_await(&self->operation, &self->on_registered, weir_promise_future(promise),
                          on_registered);
    weir_channel_register(channel, self->executor, promise);
    weir_promise_release(promise);
    return 0;
}

void weir__connector_won(weir_race *race, weir_channel *channel, bool is_registered)
{
    connector *self = WEIR_CONTAINER(race, connector, race);
    self->channel = channel;
    if (is_registered) {
        wait_for_news(self);
        conclude(self, 0);
        return;
    }
    int code = weir__client_set_up(&self->plan.config, channel, true);
    conclude(self, code < 0 ? code : enter(self, channel));
}

void weir__connector_lost(weir_race *race, int code)
{
    conclude(WEIR_CONTAINER(race, connector, race), code);
}

void weir__connector_settle(weir_race *race)
{
    settle(WEIR_CONTAINER(race, connector, race));
}

static void on_resolved(weir_awaited *awaited, weir_future *future)
{
    connector *self = connector_of(awaited->operation);
    int code = weir_future_code(future);
    self->is_asking = false;
    if (code == 0 && !self->is_concluded)
        code = weir__race_begin(&self->race, weir_future_value(future), self->is_asking_more);
    if (code < 0)
        conclude(self, code);
    settle(self);
}

/* The addresses of the other family, or none. */
static void on_rest(weir_awaited *awaited, weir_future *future)
{
    connector *self = connector_of(awaited->operation);
    self->is_asking_more = false;
    if (!self->is_concluded && !self->is_asking)
        weir__race_add(&self->race,
                       weir_future_code(future) == 0 ? weir_future_value(future) : NULL);
    settle(self);
}

/* Starting ------------------------------------------------------------------------------------- */

static int limit_time(connector *self, int64_t timeout_ns)
{
    self->race.until_ns = weir__time_sum(weir_executor_now_ns(self->executor), timeout_ns);
    return weir_timer_schedule(&self->deadline, self->executor, timeout_ns);
}

static int start(weir_task *task)
{
    connector *self = WEIR_CONTAINER(task, connector, start);
    self->loop = weir_executor_loop(self->executor);
    self->race.loop = self->loop;
    self->race.operation = &self->operation;
    self->resident.type = &resident_type;
    weir__operation_init(&self->operation, &operation_type, self->promise, self->executor);
    weir__operation_watch(&self->operation);
    int code = weir__loop_add(self->loop, &self->resident);
    if (code == 0 && self->plan.config.connect_timeout_ns > 0)
        code = limit_time(self, self->plan.config.connect_timeout_ns);
    self->is_asking = true;
    weir__operation_await(&self->operation, &self->on_resolved, weir_promise_future(self->lookup),
                          on_resolved);
    self->is_asking_more = self->rest != NULL;
    if (self->is_asking_more)
        weir__operation_await(&self->operation, &self->on_rest, weir_promise_future(self->rest),
                              on_rest);
    if (code < 0)
        conclude(self, code);
    return 0;
}

/* The loop has terminated. */
static void start_dropped(weir_task *task)
{
    connector *self = WEIR_CONTAINER(task, connector, start);
    weir_future_cancel(weir_promise_future(self->lookup));
    if (self->rest != NULL)
        weir_future_cancel(weir_promise_future(self->rest));
    weir__promise_end(self->promise, WEIR_ESHUTDOWN);
    destroy(self);
}

static connector *make(const weir_client_config *config, const char *text, weir_executor *executor)
{
    connector *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    bool has_memory = weir__client_plan(&self->plan, config);
    self->text = weir__strdup(text);
    self->executor = executor;
    self->lookup = weir_promise_new(executor);
    self->deadline.fire = on_deadline;
    self->race = (weir_race){ .plan = &self->plan, .text = self->text, .local = &self->local };
    self->start = (weir_task){ .run = start, .dropped = start_dropped };
    if (has_memory && self->text != NULL && self->lookup != NULL)
        return self;
    weir__promise_end(self->lookup, -ENOMEM);
    self->plan.init_release = NULL;
    destroy(self);
    return NULL;
}

static void give_loop_back(const weir_client_config *config, weir_executor *executor)
{
    if (config->loop == NULL)
        weir__group_give_back(config->group, executor);
}

/* Nothing has started yet. */
static int give_up(connector *self, int code)
{
    weir_promise_set(self->lookup, code);
    weir__promise_end(self->rest, code);
    give_loop_back(&self->plan.config, self->executor);
    self->plan.init_release = NULL;
    destroy(self);
    return code;
}

static int refuse(weir_error *error, int code, const char *text)
{
    return weir_error_set(error, code, "client", "cannot connect to %s: %s", text,
                          weir_error_text(code));
}

static int take_loop(const weir_client_config *config, weir_executor **executor)
{
    if (config->loop != NULL) {
        *executor = weir_loop_executor(config->loop);
        return 0;
    }
    int code = weir__group_take(config->group, executor);
    return code == 0 && weir_executor_loop(*executor) == NULL ? WEIR_ELOOPTYPE : code;
}

static void set_default(int64_t *value, int64_t by_default)
{
    if (*value == 0)
        *value = by_default;
}

int weir_client_start(const weir_client_config *config, const char *address, weir_promise *promise,
                      weir_error *error)
{
    weir_executor *executor;
    weir_address local = { 0 };
    int code = weir__client_check(config, address, error);
    if (code == 0 && config->local != NULL)
        code = weir_address_parse(&local, config->local, error);
    if (code < 0)
        return code;
    code = take_loop(config, &executor);
    if (code < 0)
        return refuse(error, code, address);
    connector *self = make(config, address, executor);
    if (self == NULL) {
        give_loop_back(config, executor);
        return weir_error_set(error, -ENOMEM, "client", "no memory to connect to %s", address);
    }
    set_default(&self->plan.config.connect_timeout_ns, DEFAULT_TIMEOUT_NS);
    set_default(&self->plan.config.stagger_ns, DEFAULT_STAGGER_NS);
    self->local = local;
    weir_name_query query = { .group = config->group,
                              .promise = self->lookup,
                              .rest = &self->rest };
    code = weir__resolve(config->resolver, address, &query, error);
    if (code < 0)
        return give_up(self, code);
    self->promise = weir_promise_retain(promise);
    code = weir__executor_post_always(executor, &self->start);
    return code < 0 ? give_up(self, refuse(error, code, address)) : 0;
}
