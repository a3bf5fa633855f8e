/* SPDX-License-Identifier: MIT */
/* Connecting: who looks for a name, has its addresses race, and tells of the channel. */
#include "bootstrap/client.h"

#include "base/alloc.h"
#include "bootstrap/names.h"
#include "bootstrap/race.h"
#include "exec/per_channel.h"
#include "loop/loop.h"

#include <weir/timer.h>

#include <errno.h>

/*
 *   start            on the loop; the names are being looked for
 *   on_resolved      the race of the addresses begins
 *   conclude         one has won, all have failed, time is up, or nobody wants it any more:
 *                    everything else is cancelled
 *   settle           and when nothing is under way any more, that is told
 *
 * All of it is the loop's, from `start` on, but for `on_promise`. The promises that bring something
 * back are bound to the loop, not to the channel, which may move to another before it is connected.
 * When the loop terminates first, the caller's promise fails (`abandon`) and they only free.
 */
typedef struct connector {
    weir_client_plan plan;
    weir_address local;
    char *text;
    weir_executor *executor;
    weir_loop *loop;
    _Atomic(int) parts;    /* that have to be over: the loop's, and each listener and attempt */
    weir_promise *promise; /* the caller's; NULL: nobody wants to know */
    weir_promise *end;     /* completed on the loop, when the promise is complete or would be */
    weir_promise *lookup;
    weir_promise *rest; /* of the addresses, if some may follow; NULL: not */
    weir_task start;
    weir_resident resident;
    weir_listener on_promise, on_end, on_resolved, on_rest, on_registered;
    weir_notice after_news; /* of the channel */
    weir_timer deadline;
    weir_race race;

    weir_channel *channel; /* of the one that has won */
    bool is_asking;        /* for the addresses */
    bool is_asking_more;   /* for further addresses */
    bool is_entering;      /* the channel comes to the loop, and is told so */
    bool is_concluded;
    bool is_told;
    int failure;
} connector;

static void settle(connector *self);

static void destroy(connector *self)
{
    weir_promise_release(self->promise);
    weir_promise_release(self->end);
    weir_promise_release(self->lookup);
    weir_promise_release(self->rest);
    weir_channel_release(self->channel);
    weir__client_free_copy(&self->plan.config);
    weir__race_free(&self->race);
    weir__free(self->text);
    weir__free(self);
}

/* The end -------------------------------------------------------------------------------------- */

static void begin_part(connector *self)
{
    atomic_fetch_add_explicit(&self->parts, 1, memory_order_relaxed);
}

static void end_part(connector *self)
{
    if (atomic_fetch_sub_explicit(&self->parts, 1, memory_order_acq_rel) == 1)
        destroy(self);
}

/* Everything that is under way ends, and settle follows. */
static void conclude(connector *self, int failure)
{
    if (self->is_concluded)
        return;
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
}

/* Who has cancelled in the last moment does not want the channel, and nobody else has it. */
static void tell(connector *self)
{
    weir_channel *channel = self->channel;
    self->is_told = true;
    self->channel = NULL;
    if (self->failure == 0 &&
        weir_promise_succeed(self->promise, channel, weir__client_release_channel) == 0)
        return;
    if (self->failure < 0) {
        weir_error error;
        weir__race_describe(&self->race, self->failure, &error);
        weir_promise_fail_with(self->promise, &error);
    }
    if (channel != NULL && (self->failure < 0 || self->promise != NULL))
        weir_channel_close(channel, NULL);
    weir_channel_release(channel);
}

static void finish(connector *self)
{
    tell(self);
    weir_promise_set(self->end, 0);
    end_part(self);
}

/* Completes the promise, once nothing is under way any more. */
static void settle(connector *self)
{
    if (!self->is_concluded || self->is_told || self->race.running > 0 || self->is_asking ||
        self->is_asking_more || self->is_entering)
        return;
    if (weir__list_is_linked(&self->resident.node))
        weir__loop_remove(self->loop, &self->resident);
    finish(self);
}

/* The promise is complete, by settle, or because somebody has cancelled it. Any thread. */
static void on_promise(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_promise);
    (void)future;
    weir_future_cancel(weir_promise_future(self->end));
    end_part(self);
}

/* The same, on the loop. */
static void on_end(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_end);
    (void)future;
    conclude(self, -ECANCELED);
    end_part(self);
}

static void on_end_dropped(weir_listener *listener, weir_future *future)
{
    (void)future;
    end_part(WEIR_CONTAINER(listener, connector, on_end));
}

static int on_deadline(weir_timer *timer)
{
    conclude(WEIR_CONTAINER(timer, connector, deadline), -ETIMEDOUT);
    return 0;
}

static void evict(weir_resident *resident)
{
    conclude(WEIR_CONTAINER(resident, connector, resident), WEIR_ESHUTDOWN);
}

/* The loop ends though something is still under way. */
static void abandon(weir_resident *resident)
{
    connector *self = WEIR_CONTAINER(resident, connector, resident);
    if (!self->is_told)
        finish(self);
}

static const weir_resident_type resident_type = { .evict = evict, .abandon = abandon };

/* The channel ---------------------------------------------------------------------------------- */

static void on_entered(weir_notice *notice)
{
    connector *self = WEIR_CONTAINER(notice, connector, after_news);
    self->is_entering = false;
    settle(self);
    end_part(self);
}

/* That it is active is what the channel is told next; who waits for the promise shall find it so.
 */
static void wait_for_news(connector *self)
{
    self->is_entering = true;
    begin_part(self);
    self->after_news.run = on_entered;
    weir__notice_queue(&self->after_news);
}

static void on_registered(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_registered);
    int code = weir_future_code(future);
    if (self->failure == 0)
        self->failure = self->plan.init_code < 0 ? self->plan.init_code : code;
    if (!self->is_told)
        wait_for_news(self);
    end_part(self);
}

static void on_registered_dropped(weir_listener *listener, weir_future *future)
{
    (void)future;
    end_part(WEIR_CONTAINER(listener, connector, on_registered));
}

/* Registers it with this loop. */
static int enter(connector *self, weir_channel *channel)
{
    weir_promise *promise = weir_promise_new(self->executor);
    if (promise == NULL)
        return -ENOMEM;
    self->is_entering = true;
    self->on_registered = (weir_listener){ .done = on_registered,
                                           .dropped = on_registered_dropped };
    begin_part(self);
    weir_future_listen(weir_promise_future(promise), &self->on_registered);
    weir_channel_register(channel, self->executor, promise);
    weir_promise_release(promise);
    return 0;
}

static void on_won(weir_race *race, weir_channel *channel, bool is_registered)
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

static void on_lost(weir_race *race, int code)
{
    conclude(WEIR_CONTAINER(race, connector, race), code);
}

static void on_quiet(weir_race *race)
{
    settle(WEIR_CONTAINER(race, connector, race));
}

static void retain_race(weir_race *race)
{
    begin_part(WEIR_CONTAINER(race, connector, race));
}

static void release_race(weir_race *race)
{
    end_part(WEIR_CONTAINER(race, connector, race));
}

static void on_resolved(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_resolved);
    int code = weir_future_code(future);
    self->is_asking = false;
    if (code == 0 && !self->is_concluded)
        code = weir__race_begin(&self->race, weir_future_value(future), self->is_asking_more);
    if (code < 0)
        conclude(self, code);
    settle(self);
    end_part(self);
}

static void on_resolved_dropped(weir_listener *listener, weir_future *future)
{
    (void)future;
    end_part(WEIR_CONTAINER(listener, connector, on_resolved));
}

/* The addresses of the other family; or there are none, for whatever reason. */
static void on_rest(weir_listener *listener, weir_future *future)
{
    connector *self = WEIR_CONTAINER(listener, connector, on_rest);
    self->is_asking_more = false;
    if (!self->is_concluded && !self->is_asking)
        weir__race_add(&self->race,
                       weir_future_code(future) == 0 ? weir_future_value(future) : NULL);
    settle(self);
    end_part(self);
}

static void on_rest_dropped(weir_listener *listener, weir_future *future)
{
    (void)future;
    end_part(WEIR_CONTAINER(listener, connector, on_rest));
}

/* Starting ------------------------------------------------------------------------------------- */

static int limit_time(connector *self, int64_t timeout_ns)
{
    self->race.until_ns = weir_executor_now_ns(self->executor) + timeout_ns;
    return weir_timer_schedule(&self->deadline, self->executor, timeout_ns);
}

static int start(weir_task *task)
{
    connector *self = WEIR_CONTAINER(task, connector, start);
    self->loop = weir_executor_loop(self->executor);
    self->race.loop = self->loop;
    self->resident.type = &resident_type;
    begin_part(self); /* of on_end, and of on_resolved */
    begin_part(self);
    weir_future_listen(weir_promise_future(self->end), &self->on_end);
    int code = weir__loop_add(self->loop, &self->resident);
    if (code == 0 && self->plan.config.connect_timeout_ms > 0)
        code = limit_time(self, WEIR_MS(self->plan.config.connect_timeout_ms));
    self->is_asking = true;
    self->is_asking_more = self->rest != NULL;
    weir_future_listen(weir_promise_future(self->lookup), &self->on_resolved);
    if (self->rest != NULL) {
        begin_part(self);
        weir_future_listen(weir_promise_future(self->rest), &self->on_rest);
    }
    if (code < 0)
        conclude(self, code);
    return 0;
}

/* The loop has ended. */
static void start_dropped(weir_task *task)
{
    connector *self = WEIR_CONTAINER(task, connector, start);
    weir_future_cancel(weir_promise_future(self->lookup));
    if (self->rest != NULL)
        weir_future_cancel(weir_promise_future(self->rest));
    weir__promise_end(self->promise, WEIR_ESHUTDOWN);
    weir_promise_set(self->end, WEIR_ESHUTDOWN);
    end_part(self);
}

static connector *make(const weir_client_config *config, const char *text, weir_executor *executor)
{
    connector *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    bool has_memory = weir__client_plan(&self->plan, config);
    self->text = weir__strdup(text);
    self->executor = executor;
    self->end = weir_promise_new(executor);
    self->lookup = weir_promise_new(executor);
    self->on_promise = (weir_listener){ .done = on_promise, .dropped = on_promise };
    self->on_end = (weir_listener){ .done = on_end, .dropped = on_end_dropped };
    self->on_resolved = (weir_listener){ .done = on_resolved, .dropped = on_resolved_dropped };
    self->on_rest = (weir_listener){ .done = on_rest, .dropped = on_rest_dropped };
    self->deadline.fire = on_deadline;
    self->race = (weir_race){ .plan = &self->plan, .text = self->text, .local = &self->local };
    self->race.won = on_won;
    self->race.lost = on_lost;
    self->race.quiet = on_quiet;
    self->race.retain = retain_race;
    self->race.release = release_race;
    self->start = (weir_task){ .run = start, .dropped = start_dropped };
    if (has_memory && self->text != NULL && self->end != NULL && self->lookup != NULL)
        return self;
    weir__promise_end(self->end, -ENOMEM);
    weir__promise_end(self->lookup, -ENOMEM);
    destroy(self);
    return NULL;
}

static void give_loop_back(const weir_client_config *config, weir_executor *executor)
{
    if (config->loop == NULL)
        weir__group_give_back(config->group, executor);
}

/* Nobody has heard of it yet. */
static int give_up(connector *self, int code)
{
    weir_promise_set(self->end, code);
    weir_promise_set(self->lookup, code);
    weir__promise_end(self->rest, code);
    give_loop_back(&self->plan.config, self->executor);
    destroy(self);
    return code;
}

static int refuse(weir_error *error, int code, const char *text)
{
    return weir_error_set(error, code, "client", "cannot connect to %s: %s", text,
                          weir_error_text(code));
}

/* From here on it is the loop's; but the promise may be complete at any time. */
static int hand_over(connector *self, weir_promise *promise)
{
    self->promise = weir_promise_retain(promise);
    atomic_init(&self->parts, promise != NULL ? 2 : 1);
    int code = weir__executor_post_always(self->executor, &self->start);
    if (code == 0 && promise != NULL)
        weir_future_listen(weir_promise_future(promise), &self->on_promise);
    return code;
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

int weir__connector_start(const weir_client_config *config, const char *text, weir_promise *promise,
                          weir_error *error)
{
    weir_executor *executor;
    weir_address local = { 0 };
    int code = config->local != NULL ? weir_address_parse(&local, config->local, error) : 0;
    if (code < 0)
        return code;
    code = take_loop(config, &executor);
    if (code < 0)
        return refuse(error, code, text);
    connector *self = make(config, text, executor);
    if (self == NULL) {
        give_loop_back(config, executor);
        return weir_error_set(error, -ENOMEM, "client", "no memory to connect to %s", text);
    }
    self->local = local;
    weir_name_query query = { .group = config->group,
                              .promise = self->lookup,
                              .rest = &self->rest };
    code = weir__resolve(config->resolver, text, &query, error);
    if (code < 0)
        return give_up(self, code);
    code = hand_over(self, promise);
    return code < 0 ? give_up(self, refuse(error, code, text)) : 0;
}
