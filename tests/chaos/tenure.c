/* SPDX-License-Identifier: MIT */
/* A handler's tenure. */
#include "tenure.h"

#include "verdict.h"

#include <unistd.h>

void tenure_set_result(tenure *self, int code)
{
    atomic_store(&self->state, code == 0 ? ADD_SUCCEEDED : ADD_FAILED);
}

void tenure_begin(tenure *self)
{
    unsigned before = atomic_fetch_add_explicit(&self->added, 1, memory_order_relaxed);
    MUST(before == 0, "%s: added runs %u times", self->name, before + 1);
    MUST(self->removed == 0, "%s: added runs after removed", self->name);
}

void tenure_end(tenure *self)
{
    unsigned before = atomic_fetch_add_explicit(&self->removed, 1, memory_order_relaxed);
    MUST(before == 0, "%s: removed runs %u times", self->name, before + 1);
}

void tenure_check(const tenure *self)
{
    if (self->state == ADD_SUCCEEDED)
        MUST(self->removed == 1, "%s: the add returned 0, and removed ran %u times", self->name,
             self->removed);
    else if (self->state == ADD_FAILED)
        MUST(self->removed <= self->added, "%s: the add failed, and removed ran", self->name);
}

bool channel_has_thread(const weir_channel *channel)
{
    weir_loop *loop = weir_channel_loop(channel);
    return loop != NULL && weir_channel_get_state(channel) != WEIR_CHANNEL_OPEN &&
           weir_executor_get_state(weir_loop_executor(loop)) < WEIR_EXECUTOR_SHUTDOWN;
}

static const char *current_name(void)
{
    weir_executor *current = weir_executor_current();
    return current != NULL ? weir_executor_name(current) : "no executor";
}

static void check_loop(const tenure *self, weir_channel *channel)
{
    if (channel_has_thread(channel))
        MUST(weir_loop_current() == weir_channel_loop(channel),
             "%s: a callback runs on %s, not on the channel's loop", self->name, current_name());
}

/* Of a handler whose executor has terminated `removed` runs on the loop. */
void tenure_check_thread(const tenure *self, weir_ctx *ctx, bool is_removed)
{
    weir_executor *current = weir_executor_current();
    bool is_in_group = self->group != NULL && current != NULL &&
                       weir_executor_group(current) == self->group;
    if (self->group == NULL)
        check_loop(self, weir_ctx_channel(ctx));
    else
        MUST(is_in_group || is_removed, "%s: a callback runs on %s, not on its own group",
             self->name, current_name());
}

void door_enter(door *self, const tenure *who)
{
    int me = gettid();
    int inside = atomic_load_explicit(&self->thread, memory_order_relaxed);
    MUST(inside == 0 || inside == me, "%s: callbacks run on two threads at once", who->name);
    atomic_store_explicit(&self->thread, me, memory_order_relaxed);
    self->depth++;
}

void door_leave(door *self)
{
    if (--self->depth == 0)
        atomic_store_explicit(&self->thread, 0, memory_order_relaxed);
}
