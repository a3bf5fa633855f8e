/* SPDX-License-Identifier: MIT */
/* Guests. */
#include "guest.h"

#include "ledger.h"
#include "verdict.h"
#include "world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ALIVE = 0x600d600d, DEAD = 0x0dead0de, NAMES = 6 };

/* The argument of a guest's handler. It is freed with the channel, which the address sanitizer
 * notices when a callback comes later; in other builds the mark is. */
typedef struct token {
    uint32_t mark;
    bool rejects; /* its `added` fails */
    guest *guest;
} token;

struct guest {
    tenure tenure;
    end *host;
    token *token;
    guest *next;
};

#if defined(__SANITIZE_ADDRESS__)
#define FREES_AT_ONCE 1
#else
#define FREES_AT_ONCE 0
#endif

static void end_token(guest *self)
{
    if (self->token == NULL)
        return;
    self->token->mark = DEAD;
    if (FREES_AT_ONCE) {
        free(self->token);
        self->token = NULL;
    }
}

/* Callbacks ---------------------------------------------------------------------------------- */

static guest *enter(weir_ctx *ctx)
{
    token *arg = weir_ctx_arg(ctx);
    MUST(arg->mark == ALIVE, "a callback of a guest runs after its channel was closed");
    guest *self = arg->guest;
    tenure_check_thread(&self->tenure, ctx, false);
    MUST(self->tenure.removed == 0, "%s: a callback runs after removed", self->tenure.name);
    MUST(self->tenure.added == 1, "%s: a callback runs before added", self->tenure.name);
    door_enter(self->tenure.group != NULL ? &self->host->offloaded : &self->host->on_loop,
               &self->tenure);
    return self;
}

static void leave(guest *self)
{
    door_leave(self->tenure.group != NULL ? &self->host->offloaded : &self->host->on_loop);
}

static void guest_added(weir_ctx *ctx)
{
    token *arg = weir_ctx_arg(ctx);
    MUST(arg->mark == ALIVE, "added of a guest runs after its channel was closed");
    tenure_check_thread(&arg->guest->tenure, ctx, false);
    tenure_begin(&arg->guest->tenure);
    if (arg->rejects)
        weir_ctx_fail(ctx, -EPERM, "this guest does not stay");
}

static void guest_removed(weir_ctx *ctx)
{
    token *arg = weir_ctx_arg(ctx);
    MUST(arg->mark == ALIVE, "removed of a guest runs after its channel was closed");
    tenure_check_thread(&arg->guest->tenure, ctx, true);
    tenure_end(&arg->guest->tenure);
}

#define PASS(name, call)                                                                           \
    static void guest_##name(weir_ctx *ctx)                                                        \
    {                                                                                              \
        guest *self = enter(ctx);                                                                  \
        call;                                                                                      \
        leave(self);                                                                               \
    }
#define PASS_WITH(name, type, call)                                                                \
    static void guest_##name(weir_ctx *ctx, type arg)                                              \
    {                                                                                              \
        guest *self = enter(ctx);                                                                  \
        call;                                                                                      \
        leave(self);                                                                               \
    }

PASS(on_registered, weir_ctx_fire_registered(ctx))
PASS(on_active, weir_ctx_fire_active(ctx))
PASS(on_read_complete, weir_ctx_fire_read_complete(ctx))
PASS(on_writability, weir_ctx_fire_writability(ctx))
PASS(on_inactive, weir_ctx_fire_inactive(ctx))
PASS(on_unregistered, weir_ctx_fire_unregistered(ctx))
PASS(read, weir_ctx_read(ctx))
PASS(flush, weir_ctx_flush(ctx))
PASS_WITH(on_read, weir_msg *, weir_ctx_fire_read(ctx, arg))
PASS_WITH(on_event, weir_msg *, weir_ctx_fire_event(ctx, arg))
PASS_WITH(on_error, const weir_error *, weir_ctx_fire_error(ctx, arg))
PASS_WITH(shutdown, weir_promise *, weir_ctx_shutdown(ctx, arg))
PASS_WITH(close, weir_promise *, weir_ctx_close(ctx, arg))
PASS_WITH(deregister, weir_promise *, weir_ctx_deregister(ctx, arg))

static void guest_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    guest *self = enter(ctx);
    weir_ctx_write(ctx, msg, promise);
    leave(self);
}

#define INBOUND                                                                                    \
    .on_registered = guest_on_registered, .on_active = guest_on_active, .on_read = guest_on_read,  \
    .on_read_complete = guest_on_read_complete, .on_event = guest_on_event,                        \
    .on_writability = guest_on_writability, .on_inactive = guest_on_inactive,                      \
    .on_unregistered = guest_on_unregistered, .on_error = guest_on_error
#define OUTBOUND                                                                                   \
    .read = guest_read, .write = guest_write, .flush = guest_flush, .shutdown = guest_shutdown,    \
    .close = guest_close, .deregister = guest_deregister
#define STAY .added = guest_added, .removed = guest_removed

static const weir_handler_type types[] = {
    { .name = "inbound-guest", STAY, INBOUND },
    { .name = "outbound-guest", STAY, OUTBOUND, .state_size = 40 },
    { .name = "guest", STAY, INBOUND, OUTBOUND, .state_size = 1 },
    { .name = "silent-guest", STAY },
};

/* Changes ------------------------------------------------------------------------------------ */

/* Enters it into the list before the add, whose callbacks may come before it returns. */
static guest *guest_new(end *host, dice *d)
{
    guest *self = calloc(1, sizeof *self);
    token *arg = calloc(1, sizeof *arg);
    MUST(self != NULL && arg != NULL, "chaos itself has no memory");
    *arg = (token){ .mark = ALIVE, .guest = self, .rejects = dice_one_in(d, 60) };
    self->host = host;
    self->token = arg;
    snprintf(self->tenure.name, sizeof self->tenure.name, "g%u", dice_below(d, NAMES));
    self->tenure.group = dice_percent(d, 30) ? host->world->executors : NULL;
    self->next = atomic_load(&host->guests);
    while (!atomic_compare_exchange_weak(&host->guests, &self->next, self))
        ;
    return self;
}

static void guest_returned(guest *self, const char *what, int code)
{
    verdict_trace("end %u: %s %s%s: %s", self->host->number, what, self->tenure.name,
                  self->tenure.group != NULL ? " (offloaded)" : "", weir_error_name(code));
    if (code != 0)
        end_token(self);
    tenure_set_result(&self->tenure, code);
}

/* The end's handler stays the last, so that every read gets to it. */
static void guest_add(end *host, weir_pipeline *pipeline, dice *d)
{
    guest *self = guest_new(host, d);
    weir_handler_config config = {
        .type = &types[dice_below(d, sizeof types / sizeof *types)],
        .name = self->tenure.name,
        .arg = self->token,
        .place = dice_percent(d, 30) ? WEIR_PLACE_FIRST : WEIR_PLACE_BEFORE,
        .base = "end",
        .group = self->tenure.group,
    };
    if (dice_one_in(d, 3))
        config.promise = ledger_promise("add", NULL, NULL, NULL, NULL, 0);
    int code = weir_pipeline_add(pipeline, &config, NULL);
    if (code != 0 && config.promise != NULL)
        weir_promise_fail(config.promise, code); /* when the add left it alone */
    weir_promise_release(config.promise);
    guest_returned(self, "add", code);
}

static void guest_replace(end *host, weir_pipeline *pipeline, dice *d)
{
    char name[16];
    guest *self = guest_new(host, d);
    self->tenure.group = NULL; /* a replacement runs on the loop */
    snprintf(name, sizeof name, "g%u", dice_below(d, NAMES));
    guest_returned(self, "replace by",
                   weir_pipeline_replace(pipeline, name, self->tenure.name,
                                         &types[dice_below(d, sizeof types / sizeof *types)],
                                         self->token));
}

void guest_change(end *host, weir_channel *channel, dice *d)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    char name[16];
    switch (dice_below(d, 5)) {
    case 0:
    case 1:
        guest_add(host, pipeline, d);
        break;
    case 2:
        guest_replace(host, pipeline, d);
        break;
    default:
        snprintf(name, sizeof name, "g%u", dice_below(d, NAMES));
        verdict_trace("end %u: remove %s: %s", host->number, name,
                      weir_error_name(weir_pipeline_remove(pipeline, name, NULL)));
    }
}

/* Ends --------------------------------------------------------------------------------------- */

void guest_channel_closed(end *host)
{
    for (guest *at = host->guests; at != NULL; at = at->next) {
        if (at->tenure.state != ADD_SUCCEEDED)
            continue; /* its add is about to fail, and ends the token itself */
        tenure_check(&at->tenure);
        end_token(at);
    }
}

void guest_check_all(const end *host)
{
    for (guest *at = host->guests; at != NULL; at = at->next)
        tenure_check(&at->tenure);
}

void guest_free_all(end *host)
{
    while (host->guests != NULL) {
        guest *first = host->guests;
        host->guests = first->next;
        free(first->token);
        free(first);
    }
}
