/* SPDX-License-Identifier: MIT */
/* Changes of a pipeline: handlers come and go, from any thread. */
#include "base/alloc.h"
#include "base/assert.h"
#include "channel/inbox.h"
#include "channel/lane.h"

#include <weir/log.h>

#include <errno.h>
#include <string.h>

/* Of a handler. */
#define MOST_STATE ((size_t)1 << 30)

static weir_channel *channel_of(const weir_pipeline *pipeline)
{
    return pipeline->head.channel;
}

/* Do neighbours fit? --------------------------------------------------------------------------- */

static bool fits(const weir_msg_type *given, const weir_msg_type *taken)
{
    return given == NULL || taken == NULL || given == taken;
}

static int refuse_types(weir_error *error, const weir_handler_type *giver,
                        const weir_msg_type *given, const weir_handler_type *taker,
                        const weir_msg_type *taken, const char *what)
{
    return weir_error_set(error, -EPROTOTYPE, "pipeline",
                          "'%s' gives %s of type %s, but '%s' takes %s", giver->name, what,
                          given->name, taker->name, taken->name);
}

/* The next handler on this side that has anything to do with such messages, NULL at the end. */
static const weir_handler_type *neighbour(const weir_ctx *ctx, bool is_forward, bool is_read)
{
    for (; ctx != NULL; ctx = is_forward ? ctx->next : ctx->prev) {
        const weir_handler_type *type = ctx->type;
        bool is_end = type == &weir__head_type || type == &weir__tail_type;
        if (!is_end && ctx->state != WEIR_CTX_REMOVED && ctx->state != WEIR_CTX_UNWANTED &&
            (is_read ? type->on_read != NULL : type->write != NULL))
            return type;
    }
    return NULL;
}

/* A handler of `type` between the two. */
static int check_types(const weir_handler_type *type, const weir_ctx *prev, const weir_ctx *next,
                       weir_error *error)
{
    const weir_handler_type *before = NULL, *after = NULL;
    if (type->takes_reads != NULL)
        before = neighbour(prev, false, true);
    if (type->gives_reads != NULL)
        after = neighbour(next, true, true);
    if (before != NULL && !fits(before->gives_reads, type->takes_reads))
        return refuse_types(error, before, before->gives_reads, type, type->takes_reads, "reads");
    if (after != NULL && !fits(type->gives_reads, after->takes_reads))
        return refuse_types(error, type, type->gives_reads, after, after->takes_reads, "reads");
    before = type->gives_writes != NULL ? neighbour(prev, false, false) : NULL;
    after = type->takes_writes != NULL ? neighbour(next, true, false) : NULL;
    if (after != NULL && !fits(after->gives_writes, type->takes_writes))
        return refuse_types(error, after, after->gives_writes, type, type->takes_writes, "writes");
    if (before != NULL && !fits(type->gives_writes, before->takes_writes))
        return refuse_types(error, type, type->gives_writes, before, before->takes_writes,
                            "writes");
    return 0;
}

/* Changes -------------------------------------------------------------------------------------- */

/* For a change: the loop itself makes it at once, so it cannot refer to what is on its way. */
static weir_ctx *find_for(const weir_pipeline *pipeline, const char *name, bool is_mine)
{
    if (name == NULL)
        return NULL;
    return is_mine ? weir__pipeline_find_linked(pipeline, name)
                   : weir__pipeline_find(pipeline, name);
}

/* Whether handlers that come are told at once. */
static bool is_on_loop(const weir_channel *channel)
{
    return channel->life.is_told_registered ||
           weir__lifecycle_state(&channel->life) >= WEIR_CHANNEL_REGISTERED;
}

/*
 * A handler comes, one goes, or one takes another's place. On the loop it is made at once. From
 * elsewhere it is put into the inbox under the lock, so that the loop makes changes in the order in
 * which they were announced; neighbours are named by their serial, for they may get another name
 * meanwhile, and they stay linked for it when they are removed.
 */
typedef struct change {
    weir_call call;
    weir_ctx *coming; /* NULL: none */
    weir_place place;
    uint32_t base;
    bool has_leaving;
    uint32_t leaving;
} change;

/* The context behind which another comes; NULL when there is none, or it is still on its way. */
static weir_ctx *find_prev(weir_pipeline *pipeline, const change *what)
{
    weir_ctx *base = NULL;
    if (what->has_leaving)
        return weir__pipeline_find_serial(pipeline, what->leaving, false);
    switch (what->place) {
    case WEIR_PLACE_FIRST:
        return &pipeline->head;
    case WEIR_PLACE_LAST:
        return pipeline->tail.prev;
    case WEIR_PLACE_BEFORE:
        base = weir__pipeline_find_serial(pipeline, what->base, true);
        return base != NULL ? base->prev : NULL;
    case WEIR_PLACE_AFTER:
        return weir__pipeline_find_serial(pipeline, what->base, true);
    }
    return NULL;
}

/* Whether those behind it know of the switch that it is, or heard of nothing else. */
static bool has_switched(const weir_ctx *ctx)
{
    return ctx->type->is_switch && (ctx->state > WEIR_CTX_UNWANTED || ctx->is_heir);
}

/* Links what comes. On the loop, under the lock. */
static int link_coming(weir_pipeline *pipeline, const change *what, weir_error *error)
{
    weir_ctx *prev = find_prev(pipeline, what);
    if (prev == NULL)
        return weir_error_set(error, WEIR_ENOTFOUND, "pipeline",
                              "'%s' cannot be added: its neighbour is not there, or not yet",
                              weir__ctx_name(what->coming));
    int code = check_types(what->coming->type, what->has_leaving ? prev->prev : prev, prev->next,
                           error);
    if (code == 0) {
        what->coming->is_heir = what->has_leaving && has_switched(prev);
        weir__pipeline_link(prev, what->coming);
    }
    return code;
}

/* It stays, unless another has its name by now. Under the lock. */
static void list_again(weir_pipeline *pipeline, weir_ctx *leaving)
{
    leaving->is_listed = weir__pipeline_find(pipeline, weir__ctx_name(leaving)) == NULL;
}

/* Makes a change that was announced, as far as the list is concerned. On the loop, under the lock.
 */
static int make(weir_pipeline *pipeline, const change *what, weir_ctx **leaving, weir_error *error)
{
    int code = 0;
    if (what->has_leaving)
        *leaving = weir__pipeline_find_serial(pipeline, what->leaving, false);
    if (weir__lifecycle_state(&channel_of(pipeline)->life) == WEIR_CHANNEL_UNREGISTERED)
        code = weir_error_set(error, WEIR_ECLOSED, "pipeline", "the channel is closed");
    else if (what->coming != NULL)
        code = link_coming(pipeline, what, error);
    if (code < 0 && *leaving != NULL) {
        list_again(pipeline, *leaving);
        *leaving = NULL;
    }
    return code;
}

/* The rest of it, on the loop: callbacks, without the lock. A handler whose replacement fails
 * stays. */
static int finish_change(weir_channel *channel, weir_ctx *coming, weir_ctx *leaving,
                         weir_error *error)
{
    int code = coming != NULL && is_on_loop(channel) ? weir__ctx_call_added(coming, error) : 0;
    if (code == 0 && leaving != NULL) {
        weir__ctx_remove(leaving);
    } else if (leaving != NULL) {
        weir__channel_lock(channel);
        list_again(&channel->pipeline, leaving);
        weir__channel_unlock(channel);
    }
    return code;
}

/* The add has returned 0, so `removed` must run. The context is linked for that, because events
 * that come back from another executor continue from it. */
static void discard(weir_channel *channel, weir_ctx *coming, const weir_error *error)
{
    weir__channel_lock(channel);
    coming->is_listed = false;
    weir__pipeline_link(channel->pipeline.tail.prev, coming);
    weir__channel_unlock(channel);
    bool has_promise = weir__ctx_fail_promise(coming, error->code);
    weir__ctx_remove(coming);
    weir__pipeline_fire_error(channel, error);
    if (!has_promise)
        weir__channel_close_now(channel, NULL);
}

/* A change from another thread: 0 was returned for it. */
static void perform_change(weir_channel *channel, const change *what)
{
    weir_ctx *coming = what->coming, *leaving = NULL;
    weir_error error;
    weir__channel_lock(channel);
    bool is_over = coming != NULL && !weir__pipeline_forget_arriving(&channel->pipeline, coming);
    int code = is_over ? 0 : make(&channel->pipeline, what, &leaving, &error);
    weir__channel_unlock(channel);
    if (is_over)
        return; /* it was removed with all others, and may be gone */
    if (code < 0 && coming != NULL) {
        discard(channel, coming, &error);
        return;
    }
    bool has_promise = coming != NULL && weir__ctx_has_promise(coming);
    if (code == 0 && finish_change(channel, coming, leaving, &error) < 0 && !has_promise)
        weir__channel_close_now(channel, NULL);
}

static void run_change(weir_home *home, weir_call *call)
{
    change *what = WEIR_CONTAINER(call, change, call);
    perform_change(weir__channel_at(home), what);
    weir__free(what);
}

/* TYPE#SERIAL. By hand, because every accepted connection gets one, and snprintf took a tenth of
 * its instructions. */
static void name_by_serial(char *to, const weir_ctx *ctx)
{
    char digits[WEIR__SERIAL_SIZE], *first = digits + sizeof digits;
    uint32_t rest = ctx->serial;
    *--first = '\0';
    do
        *--first = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    *--first = '#';
    memcpy(stpcpy(to, ctx->type->name), first, (size_t)(digits + sizeof digits - first));
}

/* Under the lock: checks what can be seen from here, and takes the name. */
static int announce(weir_pipeline *pipeline, change *what, const weir_handler_config *config,
                    const char *old_name, bool is_mine, weir_error *error)
{
    weir_ctx *ctx = what->coming;
    weir_ctx *leaving = find_for(pipeline, old_name, is_mine),
             *same = weir__pipeline_find(pipeline, config->name);
    weir_ctx *base = NULL;
    if (config->place >= WEIR_PLACE_BEFORE)
        base = find_for(pipeline, config->base, is_mine);
    if (weir__lifecycle_state(&channel_of(pipeline)->life) == WEIR_CHANNEL_UNREGISTERED)
        return weir_error_set(error, WEIR_ECLOSED, "pipeline", "the channel is closed");
    if (old_name != NULL && leaving == NULL)
        return weir_error_set(error, WEIR_ENOTFOUND, "pipeline", "there is no handler '%s'",
                              old_name);
    if (same != NULL && same != leaving)
        return weir_error_set(error, -EEXIST, "pipeline", "there is a handler '%s' already",
                              config->name);
    weir_ctx *twin = config->type->is_single ? weir__pipeline_find_type(pipeline, config->type)
                                             : NULL;
    if (twin != NULL && twin != leaving)
        return weir_error_set(error, -EEXIST, "pipeline",
                              "there is a '%s' already, as '%s', and one is the most",
                              twin->type->name, weir__ctx_name(twin));
    if (config->place >= WEIR_PLACE_BEFORE && base == NULL)
        return weir_error_set(error, WEIR_ENOTFOUND, "pipeline",
                              "there is no handler '%s' to add another beside", config->base);
    what->place = config->place;
    what->base = base != NULL ? base->serial : 0;
    what->has_leaving = leaving != NULL;
    what->leaving = leaving != NULL ? leaving->serial : 0;
    ctx->serial = pipeline->head.serial++; /* the ends have none, so it counts there */
    if (config->name == NULL)
        name_by_serial(weir__ctx_member(ctx)->name, ctx);
    ctx->is_listed = true;
    if (leaving != NULL)
        leaving->is_listed = false;
    return 0;
}

/* Sends an announced change to the loop. Under the lock; weir__inbox_follow comes after it. */
static void send_change(weir_pipeline *pipeline, change *what)
{
    what->call.run = run_change;
    if (what->coming != NULL) {
        what->coming->next = pipeline->arriving;
        pipeline->arriving = what->coming;
    }
    weir__inbox_put(channel_of(pipeline), &what->call);
}

/* `state` is what the handler's memory begins with; NULL: zeroes. `serial` gets its serial; NULL:
 * nobody asks for it. */
static int put(weir_pipeline *pipeline, const weir_handler_config *config, const char *old_name,
               const void *state, uint32_t *serial, weir_error *error)
{
    weir_error own_error;
    error = error != NULL ? error : &own_error;
    weir_channel *channel = channel_of(pipeline);
    bool is_mine = weir__channel_is_mine(channel);
    weir_ctx *ctx = NULL, *leaving = NULL;
    change own = { .coming = NULL };
    change *what = is_mine ? &own : weir__zalloc(sizeof *what);
    int code = what != NULL ? weir__ctx_new(&ctx, channel, config) : -ENOMEM;
    if (code < 0) {
        if (!is_mine)
            weir__free(what);
        return weir_error_set(error, code, "pipeline", "no handler '%s' can be made: %s",
                              config->type->name, weir_error_text(code));
    }
    if (state != NULL)
        memcpy(weir_ctx_state(ctx), state, config->type->state_size);
    what->coming = ctx;
    weir__channel_lock(channel);
    code = announce(pipeline, what, config, old_name, is_mine, error);
    if (code == 0 && is_mine)
        code = make(pipeline, what, &leaving, error);
    else if (code == 0)
        send_change(pipeline, what);
    if (serial != NULL)
        *serial = ctx->serial;
    weir__channel_unlock(channel);
    if (code == -EPROTOTYPE)
        weir_log(WEIR_LOG_ERROR, "pipeline", "%s", error->message);
    if (code < 0) {
        weir__ctx_free(ctx);
        if (!is_mine)
            weir__free(what);
    } else if (is_mine) {
        code = finish_change(channel, ctx, leaving, error);
    } else {
        weir__inbox_follow(channel, false);
    }
    return code;
}

static int check_name(const char *name, weir_error *error)
{
    if (name == NULL || (*name != '\0' && strchr(name, '#') == NULL))
        return 0;
    return weir_error_set(error, -EINVAL, "pipeline",
                          "'%s' is no name for a handler: it is empty or contains '#'", name);
}

static int check_config(const weir_pipeline *pipeline, const weir_handler_config *config,
                        weir_error *error)
{
    if (pipeline == NULL || config == NULL || config->type == NULL || config->type->name == NULL)
        return weir_error_set(error, -EINVAL, "pipeline", "a handler needs a type with a name");
    if (config->type->state_size > MOST_STATE || config->type->arg_size > MOST_STATE)
        return weir_error_set(error, -EINVAL, "pipeline",
                              "'%s' is too large: state_size is %zu, arg_size %zu",
                              config->type->name, config->type->state_size, config->type->arg_size);
    if ((unsigned)config->place > WEIR_PLACE_AFTER ||
        (config->place >= WEIR_PLACE_BEFORE && config->base == NULL))
        return weir_error_set(error, -EINVAL, "pipeline",
                              "before or after which handler shall '%s' be?", config->type->name);
    if (config->group != NULL && weir_group_loop_at(config->group, 0) != NULL)
        return weir_error_set(error, -EINVAL, "pipeline",
                              "'%s' cannot have a group of event loops, only one of executors",
                              config->type->name);
    return check_name(config->name, error);
}

/* An initializer that goes on without a handler it has asked for must not serve: see
 * weir__channel_init_by. */
static int end_add(weir_pipeline *pipeline, weir_promise *promise, int code)
{
    if (code == 0)
        return 0;
    weir__promise_end(promise, code);
    weir_channel *channel = pipeline != NULL ? channel_of(pipeline) : NULL;
    if (channel != NULL && weir__channel_is_mine(channel) && channel->init_failure == 0)
        channel->init_failure = (int16_t)code;
    return code;
}

int weir__pipeline_add(weir_pipeline *pipeline, const weir_handler_config *config, uint32_t *serial,
                       weir_error *error)
{
    int code = check_config(pipeline, config, error);
    if (code == 0)
        code = put(pipeline, config, NULL, NULL, serial, error);
    return end_add(pipeline, config != NULL ? config->promise : NULL, code);
}

int weir_pipeline_add(weir_pipeline *pipeline, const weir_handler_config *config, weir_error *error)
{
    return weir__pipeline_add(pipeline, config, NULL, error);
}

static int add(weir_pipeline *pipeline, weir_place place, const char *base, const char *name,
               const weir_handler_type *type, void *arg)
{
    weir_handler_config config = { .type = type, .name = name, .arg = arg, .place = place };
    config.base = base;
    return weir_pipeline_add(pipeline, &config, NULL);
}

int weir_pipeline_add_first(weir_pipeline *pipeline, const char *name,
                            const weir_handler_type *type, void *arg)
{
    return add(pipeline, WEIR_PLACE_FIRST, NULL, name, type, arg);
}

int weir_pipeline_add_last(weir_pipeline *pipeline, const char *name, const weir_handler_type *type,
                           void *arg)
{
    return add(pipeline, WEIR_PLACE_LAST, NULL, name, type, arg);
}

int weir_pipeline_add_before(weir_pipeline *pipeline, const char *base, const char *name,
                             const weir_handler_type *type, void *arg)
{
    return add(pipeline, WEIR_PLACE_BEFORE, base, name, type, arg);
}

int weir_pipeline_add_after(weir_pipeline *pipeline, const char *base, const char *name,
                            const weir_handler_type *type, void *arg)
{
    return add(pipeline, WEIR_PLACE_AFTER, base, name, type, arg);
}

int weir_pipeline_replace(weir_pipeline *pipeline, const char *name, const char *new_name,
                          const weir_handler_type *type, void *arg)
{
    weir_handler_config config = { .type = type, .name = new_name, .arg = arg };
    config.place = WEIR_PLACE_LAST;
    int code = check_config(pipeline, &config, NULL);
    if (code == 0 && name == NULL)
        code = -EINVAL;
    if (code == 0)
        code = put(pipeline, &config, name, NULL, NULL, NULL);
    return end_add(pipeline, NULL, code);
}

/* Takes one out: `ctx`, or the one of a name. */
static int take_out(weir_pipeline *pipeline, weir_ctx *ctx, const char *name)
{
    weir_channel *channel = channel_of(pipeline);
    bool is_mine = weir__channel_is_mine(channel);
    change *what = is_mine ? NULL : weir__zalloc(sizeof *what);
    if (!is_mine && what == NULL)
        return -ENOMEM;
    weir__channel_lock(channel);
    if (ctx == NULL)
        ctx = find_for(pipeline, name, is_mine);
    bool is_there = ctx != NULL && ctx->is_listed;
    if (is_there) {
        ctx->is_listed = false;
        if (!is_mine) {
            *what = (change){ .has_leaving = true, .leaving = ctx->serial };
            send_change(pipeline, what);
        }
    }
    weir__channel_unlock(channel);
    if (is_there && is_mine)
        weir__ctx_remove(ctx);
    else if (is_there)
        weir__inbox_follow(channel, false);
    else
        weir__free(what);
    return is_there ? 0 : WEIR_ENOTFOUND;
}

int weir_pipeline_remove(weir_pipeline *pipeline, const char *name)
{
    return pipeline != NULL && name != NULL ? take_out(pipeline, NULL, name) : -EINVAL;
}

int weir_ctx_remove(weir_ctx *ctx)
{
    if (ctx == NULL)
        return -EINVAL;
    WEIR_ASSERT(weir__ctx_is_here(ctx));
    return take_out(&ctx->channel->pipeline, ctx, NULL);
}

int weir_pipeline_rename(weir_pipeline *pipeline, const char *name, const char *new_name)
{
    if (pipeline == NULL || name == NULL || new_name == NULL || check_name(new_name, NULL) < 0)
        return -EINVAL;
    char *copy = weir__strdup(new_name), *old = NULL;
    if (copy == NULL)
        return -ENOMEM;
    weir__channel_lock(channel_of(pipeline));
    weir_ctx *ctx = weir__pipeline_find(pipeline, name),
             *same = weir__pipeline_find(pipeline, new_name);
    int code = ctx == NULL ? WEIR_ENOTFOUND : same != NULL && same != ctx ? -EEXIST : 0;
    if (code == 0) {
        old = ctx->owns_name ? weir__ctx_member(ctx)->name : NULL;
        weir__ctx_member(ctx)->name = copy;
        ctx->owns_name = true;
    }
    weir__channel_unlock(channel_of(pipeline));
    weir__free(code == 0 ? old : copy);
    return code;
}

/* The initializer ------------------------------------------------------------------------------ */

typedef struct initializer {
    weir_init_fn init;
    void *arg;
} initializer;

int weir__channel_init_by(weir_channel *channel, weir_init_fn init, void *arg)
{
    int16_t outer = channel->init_failure;
    channel->init_failure = 0;
    int code = init(channel, arg);
    if (code >= 0 && channel->init_failure < 0)
        code = channel->init_failure;
    channel->init_failure = outer;
    return code;
}

static void initializer_added(weir_ctx *ctx)
{
    const initializer *self = weir_ctx_state(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    int code = weir__channel_init_by(channel, self->init, self->arg);
    if (code < 0) {
        weir_channel_close(channel, NULL);
        weir_ctx_fail(ctx, code, "the channel could not be initialised, and is closed: %s",
                      weir_error_text(code));
        return; /* which removes it, too */
    }
    weir_ctx_remove(ctx);
}

static const weir_handler_type initializer_type = {
    .name = "initializer",
    .state_size = sizeof(initializer),
    .added = initializer_added,
};

int weir_pipeline_add_initializer(weir_pipeline *pipeline, weir_init_fn init, void *arg)
{
    weir_handler_config config = { .type = &initializer_type, .place = WEIR_PLACE_LAST };
    if (pipeline == NULL || init == NULL)
        return -EINVAL;
    int code = put(pipeline, &config, NULL, &(initializer){ init, arg }, NULL, NULL);
    return end_add(pipeline, NULL, code);
}
