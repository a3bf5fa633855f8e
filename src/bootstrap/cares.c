/* SPDX-License-Identifier: MIT */
/* Names by c-ares: a lookup that servers answer, from its start to its end. */
#include "bootstrap/cares.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

static void begin_next(weir_names *names);

static void destroy(weir_ares_lookup *self)
{
    weir_promise_release(self->promise);
    weir_promise_release(self->rest);
    weir__name_config_release(self->config);
    weir__free(self);
}

static void destroy_operation(weir_operation *operation)
{
    destroy(WEIR_CONTAINER(operation, weir_ares_lookup, operation));
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

void weir__ares_lookup_conclude(weir_ares_lookup *self, int code)
{
    if (self->is_concluded)
        return;
    self->is_concluded = true;
    weir_timer_cancel(&self->retry);
    weir_timer_cancel(&self->delay);
    if (self->is_open)
        ares_destroy(self->channel);
    leave(self);
    if (weir__list_is_linked(&self->resident.node))
        weir__loop_remove(self->loop, &self->resident);
    weir_promise_fail(self->promise, code);
    weir__operation_end(&self->operation, code);
}

static void evict(weir_resident *resident)
{
    weir__ares_lookup_conclude(WEIR_CONTAINER(resident, weir_ares_lookup, resident),
                               WEIR_ESHUTDOWN);
}

static const weir_resident_type resident_type = { .evict = evict };

static void cancelled(weir_operation *operation)
{
    weir__ares_lookup_conclude(WEIR_CONTAINER(operation, weir_ares_lookup, operation), -ECANCELED);
}

static const weir_operation_type operation_type = { .cancelled = cancelled,
                                                    .destroy = destroy_operation };

/* Beginning --------------------------------------------------------------------------------------
 */

/* Whether it may run now; else it waits in order. */
static bool enter(weir_ares_lookup *self)
{
    weir_names *names = self->names;
    pthread_mutex_lock(&names->lock);
    bool may_run = names->running < WEIR__CARES_MAX;
    self->is_running = may_run;
    names->running += may_run;
    if (!may_run)
        weir__list_push_back(&names->waiting, &self->waiting);
    pthread_mutex_unlock(&names->lock);
    return may_run;
}

static int run_turn(weir_task *task)
{
    weir_ares_lookup *self = WEIR_CONTAINER(task, weir_ares_lookup, task);
    if (!self->is_concluded)
        weir__ares_lookup_run(self);
    weir__operation_release(&self->operation);
    return 0;
}

static void turn_dropped(weir_task *task)
{
    weir_ares_lookup *self = WEIR_CONTAINER(task, weir_ares_lookup, task);
    weir__ares_lookup_conclude(self, WEIR_ESHUTDOWN);
    weir__operation_release(&self->operation);
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
        weir__operation_retain(&next->operation);
    }
    pthread_mutex_unlock(&names->lock);
    if (next == NULL)
        return;
    next->task = (weir_task){ .run = run_turn, .dropped = turn_dropped, .name = "name lookup" };
    if (weir__executor_post_always(next->operation.executor, &next->task) < 0)
        weir__operation_release(&next->operation);
}

static int run_start(weir_task *task)
{
    weir_ares_lookup *self = WEIR_CONTAINER(task, weir_ares_lookup, task);
    weir__operation_init(&self->operation, &operation_type,
                         self->rest != NULL ? self->rest : self->promise, weir_executor_current());
    weir__operation_watch(&self->operation);
    int code = weir__loop_add(self->loop, &self->resident);
    if (code < 0)
        weir__ares_lookup_conclude(self, code);
    else if (enter(self))
        weir__ares_lookup_run(self);
    return 0;
}

static void start_dropped(weir_task *task)
{
    weir_ares_lookup *self = WEIR_CONTAINER(task, weir_ares_lookup, task);
    weir_promise_fail(self->promise, WEIR_ESHUTDOWN);
    weir__promise_end(self->rest, WEIR_ESHUTDOWN);
    destroy(self);
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
    self->loop = weir_executor_loop(executor);
    self->names = names;
    self->config = weir__name_config_retain(config);
    self->promise = weir_promise_retain(query->promise);
    self->rest = rest;
    self->port = query->port;
    self->passed = WEIR__NO_FAMILY;
    for (int i = 0; i < WEIR__FAMILIES; i++)
        self->questions[i] = (weir_ares_question){ .of = self, .family = families[i] };
    self->task = (weir_task){ .run = run_start, .dropped = start_dropped, .name = "name lookup" };
    self->resident.type = &resident_type;
    self->retry.fire = weir__ares_on_retry;
    self->delay.fire = weir__ares_on_delay;
    memcpy(self->host, query->host, size);
    return self;
}

int weir__ares_lookup_start(const weir_name_query *query, weir_executor *executor,
                            weir_names *names, weir_name_config *config)
{
    weir_ares_lookup *self = make(query, executor, names, config);
    if (self == NULL)
        return -ENOMEM;
    weir_promise *rest = weir_promise_retain(self->rest);
    int code = weir_executor_post(executor, &self->task);
    if (code < 0) {
        weir__promise_end(rest, code);
        weir_promise_release(rest);
        destroy(self);
        return code;
    }
    if (query->rest != NULL)
        *query->rest = rest;
    return 0;
}
