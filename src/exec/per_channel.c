/* SPDX-License-Identifier: MIT */
/* A child for each channel: idle, taken, occupied, idle again. */
#include "exec/per_channel.h"

#include "base/alloc.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define NAME_ROOM 11

typedef struct weir_per_channel {
    /* How children are made. */
    weir_group_config config;
    char name[NAME_ROOM]; /* the config's */
    weir_child_fn new_child;

    pthread_mutex_t lock; /* of the rest, and of making children */
    weir_list idle;       /* who became that last comes first */
    size_t idle_count, active_count;
    bool is_ending;    /* no more are made */
    pthread_t retired; /* the thread that retired last, to be joined */
    bool has_retired;

    _Alignas(max_align_t) char child_arg[];
} weir_per_channel;

/* Under the lock ----------------------------------------------------------------------------- */

static void set_use(weir_group_child *child, bool is_taken, bool is_occupied)
{
    weir_per_channel *self = child->group->per_channel;
    bool was_active = child->is_taken || child->is_occupied;
    bool is_active = is_taken || is_occupied;
    child->is_taken = is_taken;
    child->is_occupied = is_occupied;
    if (child->is_gone || was_active == is_active)
        return;
    if (is_active) {
        weir__list_remove(&child->idle);
        self->idle_count--;
        self->active_count++;
    } else {
        weir__list_push_front(&self->idle, &child->idle);
        self->idle_count++;
        self->active_count--;
    }
}

/* It is neither active nor idle any more. */
static void drop(weir_group_child *child)
{
    weir_per_channel *self = child->group->per_channel;
    if (child->is_gone)
        return;
    child->is_gone = true;
    if (child->is_taken || child->is_occupied) {
        self->active_count--;
    } else {
        weir__list_remove(&child->idle);
        self->idle_count--;
    }
}

/* NULL when there is none. One that somebody shuts down by itself is none. */
static weir_group_child *find_idle(weir_per_channel *self)
{
    weir_list_node *node;
    while ((node = weir__list_first(&self->idle)) != NULL) {
        weir_group_child *child = WEIR_CONTAINER(node, weir_group_child, idle);
        if (weir_executor_get_state(child->executor) < WEIR_EXECUTOR_SHUTTING_DOWN)
            return child;
        drop(child);
    }
    return NULL;
}

static int make_taken(weir_group *group, weir_group_child **child)
{
    weir_per_channel *self = group->per_channel;
    int code = weir__group_make_child(group, &self->config, self->new_child, self->child_arg);
    if (code < 0)
        return code;
    *child = weir__group_place(group, weir_group_count(group) - 1);
    (*child)->is_taken = true;
    self->active_count++;
    return 0;
}

static int take(weir_group *group, weir_group_child **child, bool *is_new)
{
    weir_per_channel *self = group->per_channel;
    size_t most = (size_t)self->config.max_channels;
    if (self->is_ending)
        return WEIR_ESHUTDOWN;
    if (most > 0 && self->active_count >= most)
        return WEIR_ELIMIT;
    *child = find_idle(self);
    *is_new = *child == NULL;
    if (*is_new)
        return make_taken(group, child);
    set_use(*child, true, false);
    return 0;
}

/* Coming and going --------------------------------------------------------------------------- */

int weir__group_take(weir_group *group, weir_executor **executor)
{
    weir_per_channel *self = group->per_channel;
    if (self == NULL) {
        *executor = weir__group_choose(group);
        return 0;
    }
    weir_group_child *child;
    bool is_new;
    pthread_mutex_lock(&self->lock);
    int code = take(group, &child, &is_new);
    pthread_mutex_unlock(&self->lock);
    if (code < 0)
        return code;
    if (is_new)
        weir__group_await_end(child); /* whose end, should it be now, takes the lock */
    *executor = child->executor;
    return 0;
}

static weir_group_child *lock_child(weir_executor *executor)
{
    pthread_mutex_lock(&executor->group->per_channel->lock);
    return weir__group_place(executor->group, executor->number);
}

static void unlock(weir_group *group)
{
    pthread_mutex_unlock(&group->per_channel->lock);
}

void weir__group_give_back(weir_group *group, weir_executor *executor)
{
    if (group->per_channel == NULL)
        return;
    weir_group_child *child = lock_child(executor);
    set_use(child, false, child->is_occupied);
    unlock(group);
}

void weir__per_channel_enter(weir_executor *executor)
{
    weir_group_child *child = lock_child(executor);
    set_use(child, child->is_taken, true);
    unlock(executor->group);
}

void weir__per_channel_leave(weir_executor *executor)
{
    set_use(lock_child(executor), false, false);
    unlock(executor->group);
}

bool weir__per_channel_retire(weir_executor *executor, pthread_t *previous)
{
    if (!executor->is_joinable) /* a thread that the user started */
        return false;
    weir_per_channel *self = executor->group->per_channel;
    executor->is_joinable = false;
    pthread_mutex_lock(&self->lock);
    bool has_previous = self->has_retired;
    *previous = self->retired;
    self->has_retired = true;
    self->retired = pthread_self();
    pthread_mutex_unlock(&self->lock);
    return has_previous;
}

void weir__per_channel_join(weir_group *group)
{
    weir_per_channel *self = group->per_channel;
    if (self->has_retired)
        pthread_join(self->retired, NULL);
    self->has_retired = false;
}

void weir_group_get_channels(weir_group *group, size_t *active, size_t *idle)
{
    weir_per_channel *self = group->per_channel;
    *active = *idle = 0;
    if (self == NULL)
        return;
    pthread_mutex_lock(&self->lock);
    *active = self->active_count;
    *idle = self->idle_count;
    pthread_mutex_unlock(&self->lock);
}

/* Making and ending -------------------------------------------------------------------------- */

int weir__per_channel_new(weir_group **out, const weir_group_config *config,
                          weir_child_fn new_child, const void *child_arg, size_t arg_size,
                          weir_error *error)
{
    int code = out != NULL ? weir__group_check(config, error) : -EINVAL;
    if (code < 0)
        return code;
    weir_group *group = weir__group_alloc(config);
    weir_per_channel *self = group != NULL ? weir__zalloc(sizeof *self + arg_size) : NULL;
    if (self == NULL) {
        weir__free(group);
        return weir_error_set(error, -ENOMEM, "group", "no memory for it");
    }
    self->config = *config;
    if (config->name != NULL) {
        snprintf(self->name, sizeof self->name, "%s", config->name);
        self->config.name = self->name;
    }
    self->new_child = new_child;
    memcpy(self->child_arg, child_arg, arg_size);
    pthread_mutex_init(&self->lock, NULL);
    weir__list_init(&self->idle);
    group->per_channel = self;
    group->chooser_name = "per channel";
    *out = group;
    return 0;
}

void weir__per_channel_end(weir_group *group)
{
    weir_per_channel *self = group->per_channel;
    pthread_mutex_lock(&self->lock);
    bool is_first = !self->is_ending;
    self->is_ending = true;
    pthread_mutex_unlock(&self->lock);
    if (is_first)
        weir__group_count_down(group);
}

void weir__per_channel_forget(weir_group_child *child)
{
    lock_child(child->executor);
    drop(child);
    unlock(child->group);
}

void weir__per_channel_free(weir_per_channel *self)
{
    if (self == NULL)
        return;
    pthread_mutex_destroy(&self->lock);
    weir__free(self);
}
