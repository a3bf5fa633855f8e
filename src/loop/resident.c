/* SPDX-License-Identifier: MIT */
/* The residents of a loop: channels, watches and pending connects. */
#include "base/assert.h"
#include "exec/per_channel.h"
#include "loop/loop.h"

#include <weir/timer.h>

static bool is_vacant(const weir_loop *loop)
{
    return weir__list_is_empty(&loop->residents) && weir__list_is_empty(&loop->evicted);
}

/* Whether it is there for one channel at a time. */
static bool is_for_one(const weir_loop *loop)
{
    return loop->base.group != NULL && loop->base.group->per_channel != NULL;
}

static int on_idle(weir_timer *timer)
{
    WEIR_CONTAINER(timer, weir_loop, idle)->base.may_retire = true;
    return 0;
}

/* Without memory for the timer the thread stays. */
static void arm_idle_timer(weir_loop *loop)
{
    if (loop->config.idle_ns > 0)
        weir_timer_schedule(&loop->idle, &loop->base, loop->config.idle_ns);
}

static int tell_vacancy(weir_task *task)
{
    weir_loop *loop = WEIR_CONTAINER(task, weir_loop, vacancy);
    loop->is_vacancy_posted = false;
    if (!is_vacant(loop))
        return 0;
    weir__per_channel_leave(&loop->base);
    arm_idle_timer(loop);
    return 0;
}

static void post_vacancy(weir_loop *loop)
{
    if (loop->is_vacancy_posted ||
        weir_executor_get_state(&loop->base) >= WEIR_EXECUTOR_SHUTTING_DOWN)
        return;
    loop->is_vacancy_posted = true;
    loop->vacancy = (weir_task){ .run = tell_vacancy, .name = "vacancy" };
    weir__executor_post_always(&loop->base, &loop->vacancy);
}

int weir__loop_add(weir_loop *loop, weir_resident *resident)
{
    WEIR_ASSERT(weir_executor_is_current(&loop->base));
    if (weir_executor_get_state(&loop->base) >= WEIR_EXECUTOR_SHUTTING_DOWN)
        return WEIR_ESHUTDOWN;
    if (is_for_one(loop)) {
        weir__per_channel_enter(&loop->base);
        weir_timer_cancel(&loop->idle);
        loop->base.may_retire = false;
    }
    weir__list_push_back(&loop->residents, &resident->node);
    weir__counter_add(&loop->base.channel_count, 1);
    return 0;
}

void weir__loop_remove(weir_loop *loop, weir_resident *resident)
{
    WEIR_ASSERT(weir_executor_is_current(&loop->base));
    weir__list_remove(&resident->node);
    weir__counter_add(&loop->base.channel_count, (uint64_t)-1);
    if (is_for_one(loop) && is_vacant(loop))
        post_vacancy(loop);
}

bool weir__loop_evict_all(weir_loop *loop)
{
    weir_list_node *node;
    bool has_evicted = !weir__list_is_empty(&loop->residents);
    if (has_evicted)
        weir__executor_set_running(&loop->base, "closing its channels");
    while ((node = weir__list_pop_front(&loop->residents)) != NULL) {
        weir_resident *resident = WEIR_CONTAINER(node, weir_resident, node);
        weir__list_push_back(&loop->evicted, node);
        resident->type->evict(resident);
    }
    return has_evicted;
}

/* Unlinked first: a resident must not find the loop's list when it leaves later. */
void weir__loop_abandon_all(weir_loop *loop)
{
    weir_list_node *node = weir__list_first(&loop->evicted);
    while (node != NULL) {
        weir_resident *resident = WEIR_CONTAINER(node, weir_resident, node);
        node = weir__list_next(&loop->evicted, node);
        weir__list_remove(&resident->node);
        if (resident->type->abandon != NULL)
            resident->type->abandon(resident);
    }
}

void weir__loop_begin_idle(weir_loop *loop)
{
    if (is_for_one(loop))
        arm_idle_timer(loop);
}

void weir__loop_init_residents(weir_loop *loop)
{
    weir__list_init(&loop->residents);
    weir__list_init(&loop->evicted);
    loop->idle = (weir_timer){ .fire = on_idle, .name = "idle loop" };
}
