/* SPDX-License-Identifier: MIT */
/* Drivers. */
#include "driver.h"

#include "action.h"
#include "ledger.h"
#include "output.h"
#include "verdict.h"

#include <unistd.h>

/* Loans -------------------------------------------------------------------------------------- */

void world_borrow(world *self, weir_connection_pool *pool, weir_channel *channel)
{
    pthread_mutex_lock(&self->lock);
    bool is_full = self->loan_count == MAX_BORROWED;
    if (!is_full)
        self->loans[self->loan_count++] = (loan){ .pool = weir_connection_pool_retain(pool),
                                                  .channel = weir_channel_retain(channel) };
    pthread_mutex_unlock(&self->lock);
    if (is_full)
        weir_connection_pool_give_back(pool, channel);
}

static bool take_loan(world *where, loan *taken)
{
    pthread_mutex_lock(&where->lock);
    bool is_there = where->loan_count > 0;
    if (is_there)
        *taken = where->loans[--where->loan_count];
    pthread_mutex_unlock(&where->lock);
    return is_there;
}

static void return_loan(loan *taken)
{
    int code = weir_connection_pool_give_back(taken->pool, taken->channel);
    verdict_trace("end %u: given back: %s", end_of(taken->channel)->number, weir_error_name(code));
    MUST(code == 0, "the pool takes end %u not back: %s", end_of(taken->channel)->number,
         weir_error_name(code));
    weir_channel_release(taken->channel);
    weir_connection_pool_release(taken->pool);
}

static void use_loan(driver *self)
{
    loan taken;
    if (!take_loan(self->world, &taken))
        return;
    for (uint32_t left = dice_between(&self->dice, 1, 4); left > 0; left--)
        action_by_driver(end_of(taken.channel), taken.channel, &self->dice);
    return_loan(&taken);
}

void driver_return_loans(world *where)
{
    loan taken;
    while (take_loan(where, &taken))
        return_loan(&taken);
}

/* Steps -------------------------------------------------------------------------------------- */

/* Each driver has ends of its own, whose streams it writes. */
static void act_on_end(driver *self)
{
    world *where = self->world;
    unsigned count = where->end_count;
    count = count < MAX_ENDS ? count : MAX_ENDS;
    unsigned at = dice_below(&self->dice, count);
    end *chosen = atomic_load_explicit(&where->ends[at], memory_order_acquire);
    if (chosen != NULL && chosen->role == END_HELD && at % where->driver_count == self->number)
        action_by_driver(chosen, chosen->channel, &self->dice);
}

static bool end_member(void *arg, weir_channel *channel)
{
    (void)arg;
    end_set_ended(end_of(channel));
    return true;
}

static void close_room(driver *self)
{
    world *where = self->world;
    weir_channel_group_each(where->room, end_member, NULL);
    weir_promise *promise = ledger_promise("close_all", NULL, NULL, NULL, NULL, 0);
    verdict_trace("close all of the room");
    weir_channel_group_close_all(where->room, promise);
    weir_promise_release(promise);
}

static void look_around(driver *self)
{
    world *where = self->world;
    weir_group_pending pending;
    weir_listener_stats stats;
    route *at = &where->routes[dice_below(&self->dice, where->route_count)];
    weir_group_get_pending(where->loops[0].group, &pending);
    if (at->server != NULL)
        weir_server_get_stats(at->server, &stats);
#ifdef WEIR_HAS_TLS
    if (where->tls_server != NULL && dice_one_in(&self->dice, 8))
        weir_tls_context_reload(where->tls_server, NULL, NULL);
#endif
}

static void step(driver *self)
{
    world *where = self->world;
    unsigned roll = dice_below(&self->dice, 1000);
    if (roll < 50)
        route_connect(&where->routes[dice_below(&self->dice, where->route_count)], &self->dice);
    else if (roll < 110)
        use_loan(self);
    else if (roll < 130 && self->number == 0)
        output_broadcast(where, &self->dice);
    else if (roll < 140)
        look_around(self);
    else if (roll < 141)
        close_room(self);
    else
        act_on_end(self);
    if (dice_percent(&self->dice, 30))
        usleep(dice_below(&self->dice, 400));
}

static void *drive(void *arg)
{
    driver *self = arg;
    for (unsigned left = self->world->steps; left > 0 && !self->world->is_calm; left--)
        step(self);
    return NULL;
}

void driver_start_all(world *where)
{
    for (unsigned i = 0; i < where->driver_count; i++) {
        driver *self = &where->drivers[i];
        *self = (driver){ .world = where, .number = i, .dice = dice_split(&where->dice) };
        MUST(pthread_create(&self->thread, NULL, drive, self) == 0, "no thread for a driver");
    }
}

void driver_join_all(world *where)
{
    for (unsigned i = 0; i < where->driver_count; i++)
        pthread_join(where->drivers[i].thread, NULL);
}
