/* SPDX-License-Identifier: MIT */
/* Names by c-ares: a lookup's way from its query to its end. */
#include "bootstrap/cares.h"

#include "base/alloc.h"
#include "bootstrap/names.h"
#include "exec/group.h"

#include <errno.h>
#include <string.h>

static void begin_next(weir_names *names);
static int run_begin(weir_task *task);

static void release(weir_ares_lookup *self)
{
    if (atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir_promise_release(self->promise);
    weir_promise_release(self->rest);
    weir__executor_release(self->executor);
    weir__name_config_release(self->config);
    weir__free(self);
}

static void retain_for_socket(weir_ares_sockets *sockets)
{
    atomic_fetch_add_explicit(&WEIR_CONTAINER(sockets, weir_ares_lookup, sockets)->refs, 1,
                              memory_order_relaxed);
}

static void release_for_socket(weir_ares_sockets *sockets)
{
    release(WEIR_CONTAINER(sockets, weir_ares_lookup, sockets));
}

/* The end ----------------------------------------------------------------------------------------
 */

/* Another one may run. */
static void leave(weir_ares_lookup *self)
{
    weir_names *names = self->names;
    pthread_mutex_lock(&names->lock);
    bool was_running = self->is_running;
    if (was_running)
        names->running--;
    else if (weir__list_is_linked(&self->waiting))
        weir__list_remove(&self->waiting);
    self->is_running = false;
    pthread_mutex_unlock(&names->lock);
    if (was_running)
        begin_next(names);
}

/* Completes the promises that are pending. Not inside a call of c-ares. */
void weir__ares_lookup_conclude(weir_ares_lookup *self, int code)
{
    if (atomic_exchange_explicit(&self->is_concluded, true, memory_order_acq_rel))
        return;
    weir_timer_cancel(&self->retry);
    weir_timer_cancel(&self->delay);
    if (self->is_open)
        ares_destroy(self->sockets.channel);
    leave(self);
    if (weir__list_is_linked(&self->resident.node))
        weir__loop_remove(self->sockets.loop, &self->resident);
    weir_promise_fail(self->promise, code);
    if (self->rest != NULL)
        weir_promise_fail(self->rest, code);
    release(self);
}

static void evict(weir_resident *resident)
{
    weir__ares_lookup_conclude(WEIR_CONTAINER(resident, weir_ares_lookup, resident),
                               WEIR_ESHUTDOWN);
}

static const weir_resident_type resident_type = { .evict = evict };

/* The last promise is complete: by us, or it was cancelled. Any thread. */
static void on_end(weir_listener *listener, weir_future *future)
{
    weir_ares_lookup *self = WEIR_CONTAINER(listener, weir_ares_lookup, on_end);
    (void)future;
    if (atomic_load_explicit(&self->is_concluded, memory_order_acquire) ||
        weir__executor_post_always(self->executor, &self->cancel) < 0)
        release(self);
}

static int run_cancel(weir_task *task)
{
    weir_ares_lookup *self = WEIR_CONTAINER(task, weir_ares_lookup, cancel);
    weir__ares_lookup_conclude(self, -ECANCELED);
    release(self);
    return 0;
}

static void cancel_dropped(weir_task *task)
{
    release(WEIR_CONTAINER(task, weir_ares_lookup, cancel));
}

/* Beginning --------------------------------------------------------------------------------------
 */

/* Whether it may run now; else it waits in order. */
static bool enter(weir_ares_lookup *self)
{
    weir_names *names = self->names;
    pthread_mutex_lock(&names->lock);
    if (!self->is_running && names->running < WEIR__CARES_MAX) {
        self->is_running = true;
        names->running++;
    } else if (!self->is_running) {
        weir__list_push_back(&names->waiting, &self->waiting);
    }
    bool is_running = self->is_running;
    pthread_mutex_unlock(&names->lock);
    return is_running;
}

/* The first that waits gets the place of one that has ended. If its loop has ended, too, it was
 * concluded there, and gives the place on. */
static void begin_next(weir_names *names)
{
    pthread_mutex_lock(&names->lock);
    weir_list_node *node = names->running < WEIR__CARES_MAX ? weir__list_pop_front(&names->waiting)
                                                            : NULL;
    weir_ares_lookup *next = node != NULL ? WEIR_CONTAINER(node, weir_ares_lookup, waiting) : NULL;
    if (next != NULL) {
        next->is_running = true;
        names->running++;
        atomic_fetch_add_explicit(&next->refs, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&names->lock);
    if (next != NULL && weir__executor_post_always(next->executor, &next->begin) < 0)
        release(next);
}

/* A second time when it has waited: with a reference for that. */
static int run_begin(weir_task *task)
{
    weir_ares_lookup *self = WEIR_CONTAINER(task, weir_ares_lookup, begin);
    bool has_waited = self->resident.type != NULL;
    self->resident.type = &resident_type;
    int code = has_waited || self->is_concluded
                   ? 0
                   : weir__loop_add(self->sockets.loop, &self->resident);
    if (code < 0)
        weir__ares_lookup_conclude(self, code);
    else if (!self->is_concluded && enter(self))
        weir__ares_lookup_run(self);
    if (has_waited)
        release(self);
    return 0;
}

static void begin_dropped(weir_task *task)
{
    weir_ares_lookup *self = WEIR_CONTAINER(task, weir_ares_lookup, begin);
    bool has_waited = self->resident.type != NULL;
    weir__ares_lookup_conclude(self, WEIR_ESHUTDOWN);
    if (has_waited)
        release(self);
}

static weir_ares_lookup *make(const weir_name_query *query, weir_executor *executor,
                              weir_names *names, weir_name_config *config)
{
    static const int families[WEIR__FAMILIES] = { AF_INET6, AF_INET };
    size_t size = strlen(query->host) + 1;
    weir_ares_lookup *self = weir__zalloc(sizeof *self + size);
    weir_promise *rest = self != NULL && query->rest != NULL
                             ? weir_promise_new(query->promise->future.executor)
                             : NULL;
    if (self == NULL || (query->rest != NULL && rest == NULL)) {
        weir__free(self);
        return NULL;
    }
    self->sockets.loop = weir_executor_loop(executor);
    self->sockets.processed = weir__ares_on_processed;
    self->sockets.retain = retain_for_socket;
    self->sockets.release = release_for_socket;
    self->executor = executor;
    self->names = names;
    self->config = weir__name_config_retain(config);
    self->promise = weir_promise_retain(query->promise);
    self->rest = rest;
    self->port = query->port;
    self->passed = WEIR__NO_FAMILY;
    for (int i = 0; i < WEIR__FAMILIES; i++)
        self->questions[i] = (weir_ares_question){ .of = self, .family = families[i] };
    self->begin = (weir_task){ .run = run_begin, .dropped = begin_dropped, .name = "name lookup" };
    self->cancel = (weir_task){ .run = run_cancel, .dropped = cancel_dropped };
    self->on_end = (weir_listener){ .done = on_end, .dropped = on_end };
    self->retry.fire = weir__ares_on_retry;
    self->delay.fire = weir__ares_on_delay;
    memcpy(self->host, query->host, size);
    weir__executor_retain(executor);
    atomic_init(&self->refs, 2); /* the loop's, and the listener's */
    return self;
}

/* Whether the cache has an answer for every name that has to be tried; `found` is that of the first
 * one with addresses. */
static bool find_in_cache(weir_names *names, const weir_name_config *config, const char *host,
                          int64_t now_ns, weir_candidates found[WEIR__FAMILIES])
{
    weir_absolute_name name;
    bool is_known = true, has_addresses = false;
    pthread_mutex_lock(&names->lock);
    for (unsigned nth = 0;
         is_known && !has_addresses && weir__search_list_name(&config->search, host, nth, name);
         nth++) {
        is_known =
            name[0] == '\0' ||
            (weir__name_cache_find(&names->cache, name, AF_INET6, now_ns, &found[WEIR__IPV6]) &&
             weir__name_cache_find(&names->cache, name, AF_INET, now_ns, &found[WEIR__IPV4]));
        has_addresses = found[WEIR__IPV6].count[0] > 0 || found[WEIR__IPV4].count[0] > 0;
    }
    pthread_mutex_unlock(&names->lock);
    return is_known;
}

/* Whether no server has to be asked: then *code is 0, and the promise complete; or -ENOMEM. */
static bool answer_at_once(const weir_name_query *query, weir_executor *executor, weir_names *names,
                           const weir_name_config *config, int *code)
{
    weir_candidates found[WEIR__FAMILIES] = { 0 };
    bool has_addresses = weir__hosts_file_find(&config->hosts, query->host, &found[WEIR__IPV6],
                                               &found[WEIR__IPV4]);
    if (!has_addresses &&
        !find_in_cache(names, config, query->host, weir_clock_now_ns(executor->clock), found))
        return false;
    *code = 0;
    if (found[WEIR__IPV6].count[0] > 0 || found[WEIR__IPV4].count[0] > 0)
        *code = weir__ares_pass(&found[WEIR__IPV6], &found[WEIR__IPV4], query->port,
                                query->promise);
    else
        weir_promise_fail(query->promise, WEIR_ENONAME);
    return true;
}

static weir_executor *executor_for(const weir_name_query *query)
{
    weir_executor *bound = query->promise->future.executor;
    return weir_executor_loop(bound) != NULL ? bound : weir_group_at(query->group, 0);
}

bool weir__cares_serves(const weir_name_query *query)
{
    weir_executor *executor = executor_for(query);
    const weir_loop *loop = weir_executor_loop(executor);
    return loop != NULL && !executor->is_manual && executor->sys == weir__sys_linux() &&
           executor->clock == weir_clock_monotonic() && loop->config.io_source == NULL &&
           loop->config.io != WEIR_IO_BLOCKING;
}

static int post_lookup(const weir_name_query *query, weir_executor *executor, weir_names *names,
                       weir_name_config *config)
{
    weir_ares_lookup *self = make(query, executor, names, config);
    if (self == NULL)
        return -ENOMEM;
    weir_promise *rest = weir_promise_retain(self->rest);
    int code = weir_executor_post(executor, &self->begin);
    if (code < 0) {
        weir__promise_end(rest, code);
        weir_promise_release(rest);
        atomic_store_explicit(&self->refs, 1, memory_order_relaxed);
        release(self);
        return code;
    }
    weir_future_listen(weir_promise_future(rest != NULL ? rest : query->promise), &self->on_end);
    if (query->rest != NULL)
        *query->rest = rest;
    return 0;
}

int weir__cares_start(const weir_name_query *query)
{
    weir_executor *executor = executor_for(query);
    weir_names *names = weir__names_of(executor->group);
    weir_name_config *config;
    int code = names != NULL ? weir__names_config(names, executor->sys, &config) : -ENOMEM;
    if (code < 0)
        return code;
    if (!answer_at_once(query, executor, names, config, &code))
        code = post_lookup(query, executor, names, config);
    weir__name_config_release(config);
    return code;
}
