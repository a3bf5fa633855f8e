/* SPDX-License-Identifier: MIT */
/* Edits of a pipeline: adding, replacing and removing handlers. */
#include "base/alloc.h"
#include "base/assert.h"
#include "channel/extras.h"
#include "channel/offload.h"

#include <weir/log.h>

#include <errno.h>
#include <string.h>

#define MAX_STATE ((size_t)1 << 30) /* of a handler */

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
        const weir_handler_type *type = weir__ctx_type(ctx);
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

/* Adding on the loop --------------------------------------------------------------------------- */

/* Whether handlers that are added receive `added` at once. */
static bool is_on_loop(const weir_channel *channel)
{
    return channel->life.is_registered_told || weir__channel_state(channel) >= WEIR_LIFE_ATTACHED;
}

/* Where a handler is added: after `prev`, with `before` as its neighbour. These differ when it
 * takes the place of `replaced`, which is `prev` then. */
typedef struct spot {
    weir_ctx *prev, *before, *replaced;
} spot;

static int find_spot(weir_pipeline *pipeline, weir_place place, const char *base_name, spot *at,
                     weir_error *error)
{
    at->replaced = NULL;
    if (place == WEIR_PLACE_FIRST || place == WEIR_PLACE_LAST) {
        at->prev = at->before = place == WEIR_PLACE_FIRST ? &pipeline->head : pipeline->tail.prev;
        return 0;
    }
    weir_ctx *base = weir__pipeline_find(pipeline, base_name);
    if (base == NULL) {
        weir_error_set(error, WEIR_ENOTFOUND, "pipeline", "there is no handler '%s'", base_name);
        return WEIR_ENOTFOUND;
    }
    at->prev = place == WEIR_PLACE_BEFORE ? base->prev : base;
    at->before = place == WEIR_PLACE_AFTER ? base : base->prev;
    at->replaced = place == WEIR_PLACE_INSTEAD_OF ? base : NULL;
    return 0;
}

static int check_unique(weir_pipeline *pipeline, const weir_ctx *ctx, const weir_ctx *replaced,
                        weir_error *error)
{
    const weir_handler_type *type = weir__ctx_type(ctx);
    const char *name = weir__ctx_name(ctx);
    const weir_ctx *same = *name != '\0' ? weir__pipeline_find(pipeline, name) : NULL;
    if (same != NULL && same != replaced)
        return weir_error_set(error, -EEXIST, "pipeline", "there is a handler '%s' already", name);
    const weir_ctx *twin = type->is_single ? weir__pipeline_find_type(pipeline, type) : NULL;
    if (twin != NULL && twin != replaced)
        return weir_error_set(error, -EEXIST, "pipeline",
                              "there is a '%s' already, as '%s', and one is the most", type->name,
                              weir__ctx_name(twin));
    return 0;
}

static size_t held_by(const weir_ctx *ctx)
{
    const weir_offload *offloaded = weir__ctx_offload(ctx);
    return offloaded != NULL ? weir__offload_held(offloaded) : weir__ctx_held(ctx);
}

/* An upgrade changes how the bytes for the handlers after it are encoded: none of these may hold
 * any from before. One that takes the place of another continues what that began. */
static int check_upgrade(const weir_ctx *ctx, const spot *at, weir_error *error)
{
    const weir_handler_type *type = weir__ctx_type(ctx);
    if (!type->is_upgrade || !weir__channel_was_active(ctx->channel) ||
        (at->replaced != NULL && weir__ctx_type(at->replaced)->is_upgrade))
        return 0;
    for (const weir_ctx *after = at->prev->next; after->next != NULL; after = after->next) {
        size_t held = held_by(after);
        if (held > 0)
            return weir_error_set(error, WEIR_EHELD, "pipeline",
                                  "'%s' cannot be added: '%s' holds %zu bytes or messages from "
                                  "before it",
                                  type->name, weir__ctx_name(after), held);
    }
    return 0;
}

/* Links a context, unless the code says why not. */
static int link_ctx(weir_pipeline *pipeline, weir_ctx *ctx, weir_place place, const char *base,
                    weir_ctx **replaced, weir_error *error)
{
    spot at;
    if (weir__channel_state(ctx->channel) == WEIR_LIFE_ENDED)
        return weir_error_set(error, WEIR_ECLOSED, "pipeline", "the channel is closed");
    int code = find_spot(pipeline, place, base, &at, error);
    if (code < 0)
        return code;
    code = check_unique(pipeline, ctx, at.replaced, error);
    if (code == 0)
        code = check_types(weir__ctx_type(ctx), at.before, at.prev->next, error);
    if (code == 0)
        code = check_upgrade(ctx, &at, error);
    if (code < 0)
        return code;
    weir__ctx_set_number(ctx, pipeline->next_number++);
    weir__pipeline_link(at.prev, ctx);
    *replaced = at.replaced;
    return 0;
}

static bool is_linked(const weir_ctx *ctx)
{
    return ctx->next != NULL;
}

/* If the replacement fails, the old handler stays, unless its name is taken by now. If `added` of
 * the new one runs later and fails, the channel closes. */
static void end_replacing(weir_pipeline *pipeline, weir_ctx *ctx, weir_ctx *replaced, int code)
{
    ctx->has_replaced = ctx->state == WEIR_CTX_NEW || weir__ctx_offload(ctx) != NULL;
    if (code == 0)
        weir__ctx_remove(replaced);
    else if (weir__pipeline_find(pipeline, weir__ctx_name(replaced)) == NULL)
        replaced->is_replaced = false;
}

/* Adds a context. If it is not linked, it stays the caller's. */
static int add_ctx(weir_pipeline *pipeline, weir_ctx *ctx, weir_place place, const char *base,
                   weir_error *error)
{
    weir_ctx *replaced = NULL;
    int code = link_ctx(pipeline, ctx, place, base, &replaced, error);
    if (code < 0)
        return code;
    if (replaced != NULL)
        replaced->is_replaced = true;
    if (is_on_loop(channel_of(pipeline)))
        code = weir__ctx_call_added(ctx, error);
    if (replaced != NULL)
        end_replacing(pipeline, ctx, replaced, code);
    return code;
}

/* A peer may have put the data there to be taken for what follows, so no handler receives it. */
static void fail_upgrade(weir_channel *channel, const weir_error *error)
{
    weir__pipeline_reject_reads(&channel->pipeline);
    weir__pipeline_fire_error(channel, error);
    weir__channel_close_now(channel, NULL);
}

/* Edits from other threads --------------------------------------------------------------------- */

typedef struct edit {
    weir_call call;
    weir_ctx *added; /* NULL: removes the handler `base` */
    weir_place place;
    weir_promise *promise;  /* of the removal; may be NULL */
    weir_offload *by;       /* the offloaded handler that has asked; NULL: none */
    weir_progress progress; /* of that */
    char base[];            /* a name; empty: none */
} edit;

/* The add has returned 0, so `removed` must run. The context is linked for that, because events
 * that return from another executor continue from it. */
static void discard(weir_channel *channel, weir_ctx *ctx, const weir_error *error)
{
    weir__ctx_set_number(ctx, channel->pipeline.next_number++);
    weir__pipeline_link(channel->pipeline.tail.prev, ctx);
    bool has_promise = weir__ctx_fail_promise(ctx, error->code);
    weir__ctx_remove(ctx);
    if (error->code == WEIR_EHELD) {
        fail_upgrade(channel, error);
    } else if (error->code != WEIR_ECLOSED && !has_promise) {
        weir__pipeline_fire_error(channel, error);
        weir__channel_close_now(channel, NULL);
    }
}

static void perform_add(weir_channel *channel, const edit *self)
{
    weir_error error;
    weir_ctx *ctx = self->added;
    bool has_promise = weir__ctx_has_promise(ctx);
    if (self->by != NULL)
        self->by->progress = self->progress;
    int code = add_ctx(&channel->pipeline, ctx, self->place, self->base, &error);
    if (code == -EPROTOTYPE)
        weir_log(WEIR_LOG_ERROR, "pipeline", "%s", error.message);
    if (code < 0 && !is_linked(ctx))
        discard(channel, ctx, &error);
    else if (code < 0 && !has_promise)
        weir__channel_close_now(channel, NULL);
    atomic_fetch_sub_explicit(&channel->inbox.pending_adds, 1, memory_order_relaxed);
    weir__channel_recheck(channel);
}

static int remove_named(weir_pipeline *pipeline, const char *name)
{
    weir_ctx *ctx = weir__pipeline_find(pipeline, name);
    if (ctx == NULL)
        return WEIR_ENOTFOUND;
    weir__ctx_remove(ctx);
    return 0;
}

static void run_edit(weir_home *home, weir_call *call)
{
    weir_channel *channel = weir__channel_at(home);
    edit *self = WEIR_CONTAINER(call, edit, call);
    if (self->added != NULL)
        perform_add(channel, self);
    else
        weir__promise_end(self->promise, remove_named(&channel->pipeline, self->base));
    weir_promise_release(self->promise);
    weir__free(self);
}

static edit *new_edit(const char *base)
{
    size_t size = base != NULL ? strlen(base) + 1 : 1;
    edit *self = weir__alloc(sizeof *self + size);
    if (self == NULL)
        return NULL;
    *self = (edit){ .call.run = run_edit };
    memcpy(self->base, base != NULL ? base : "", size);
    return self;
}

/* A channel ends when no add is pending. The add is counted before the state is read, as the loop
 * changes the state before it reads the count: one of the two sees the other. */
static bool begin_pending_add(weir_channel *channel)
{
    atomic_fetch_add_explicit(&channel->inbox.pending_adds, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&channel->life.state, memory_order_seq_cst) != WEIR_LIFE_ENDED)
        return true;
    atomic_fetch_sub_explicit(&channel->inbox.pending_adds, 1, memory_order_relaxed);
    weir__inbox_push_missed(channel, WEIR__MISSED_OTHER); /* the loop may wait for it */
    return false;
}

/* If it fails, the context stays the caller's. */
static int send_add(weir_channel *channel, weir_ctx *ctx, const weir_handler_config *config,
                    weir_error *error)
{
    edit *self = new_edit(config->base);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "pipeline", "no handler '%s' can be added: %s",
                              config->type->name, weir_error_text(-ENOMEM));
    if (!begin_pending_add(channel)) {
        weir__free(self);
        return weir_error_set(error, WEIR_ECLOSED, "pipeline", "the channel is closed");
    }
    self->added = ctx;
    self->place = config->place;
    self->by = weir__offload_running(channel, &self->progress);
    weir__inbox_push(channel, &self->call);
    return 0;
}

/* Adding --------------------------------------------------------------------------------------- */

/* `state` is what the handler's memory begins with; NULL: zeroes. */
static int add(weir_pipeline *pipeline, const weir_handler_config *config, const void *state,
               uint32_t *number, weir_error *error)
{
    weir_ctx *ctx;
    weir_channel *channel = channel_of(pipeline);
    int code = weir__ctx_new(&ctx, channel, config);
    if (code < 0)
        return weir_error_set(error, code, "pipeline", "no handler '%s' can be made: %s",
                              config->type->name, weir_error_text(code));
    if (state != NULL)
        memcpy(weir_ctx_state(ctx), state, config->type->state_size);
    code = weir__channel_is_mine(channel)
               ? add_ctx(pipeline, ctx, config->place, config->base, error)
               : send_add(channel, ctx, config, error);
    if (code == 0 && number != NULL)
        *number = ctx->number;
    if (code == -EPROTOTYPE)
        weir_log(WEIR_LOG_ERROR, "pipeline", "%s", error->message);
    if (code < 0 && !is_linked(ctx))
        weir__ctx_free(ctx);
    if (code == WEIR_EHELD)
        fail_upgrade(channel, error);
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
    if (config->type->state_size > MAX_STATE || config->type->arg_size > MAX_STATE)
        return weir_error_set(error, -EINVAL, "pipeline",
                              "'%s' is too large: state_size is %zu, arg_size %zu",
                              config->type->name, config->type->state_size, config->type->arg_size);
    if ((unsigned)config->place > WEIR_PLACE_INSTEAD_OF ||
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
    if (channel != NULL && weir__channel_is_mine(channel) && channel->life.init_failure == 0)
        channel->life.init_failure = (int16_t)code;
    return code;
}

int weir__pipeline_add(weir_pipeline *pipeline, const weir_handler_config *config, uint32_t *number,
                       weir_error *error)
{
    weir_error own;
    error = error != NULL ? error : &own;
    int code = check_config(pipeline, config, error);
    if (code == 0)
        code = add(pipeline, config, NULL, number, error);
    return end_add(pipeline, config != NULL ? config->promise : NULL, code);
}

int weir_pipeline_add(weir_pipeline *pipeline, const weir_handler_config *config, weir_error *error)
{
    return weir__pipeline_add(pipeline, config, NULL, error);
}

static int add_at(weir_pipeline *pipeline, weir_place place, const char *base, const char *name,
                  const weir_handler_type *type, void *arg)
{
    weir_handler_config config = { .type = type, .name = name, .arg = arg, .place = place };
    config.base = base;
    return weir_pipeline_add(pipeline, &config, NULL);
}

int weir_pipeline_add_first(weir_pipeline *pipeline, const char *name,
                            const weir_handler_type *type, void *arg)
{
    return add_at(pipeline, WEIR_PLACE_FIRST, NULL, name, type, arg);
}

int weir_pipeline_add_last(weir_pipeline *pipeline, const char *name, const weir_handler_type *type,
                           void *arg)
{
    return add_at(pipeline, WEIR_PLACE_LAST, NULL, name, type, arg);
}

int weir_pipeline_add_before(weir_pipeline *pipeline, const char *base, const char *name,
                             const weir_handler_type *type, void *arg)
{
    return add_at(pipeline, WEIR_PLACE_BEFORE, base, name, type, arg);
}

int weir_pipeline_add_after(weir_pipeline *pipeline, const char *base, const char *name,
                            const weir_handler_type *type, void *arg)
{
    return add_at(pipeline, WEIR_PLACE_AFTER, base, name, type, arg);
}

int weir_pipeline_replace(weir_pipeline *pipeline, const char *name, const char *new_name,
                          const weir_handler_type *type, void *arg)
{
    return add_at(pipeline, WEIR_PLACE_INSTEAD_OF, name, new_name, type, arg);
}

/* Removing ------------------------------------------------------------------------------------- */

static int send_remove(weir_channel *channel, const char *name, weir_promise *promise)
{
    edit *self = new_edit(name);
    if (self == NULL)
        return -ENOMEM;
    self->promise = weir_promise_retain(promise);
    weir__inbox_push(channel, &self->call);
    return 0;
}

int weir_pipeline_remove(weir_pipeline *pipeline, const char *name, weir_promise *promise)
{
    bool is_valid = pipeline != NULL && name != NULL;
    bool is_mine = is_valid && weir__channel_is_mine(channel_of(pipeline));
    int code = !is_valid ? -EINVAL
               : is_mine ? remove_named(pipeline, name)
                         : send_remove(channel_of(pipeline), name, promise);
    if (is_mine || code < 0)
        weir__promise_end(promise, code);
    return code;
}

int weir_ctx_remove(weir_ctx *ctx)
{
    if (ctx == NULL)
        return -EINVAL;
    WEIR_ASSERT(weir__ctx_is_here(ctx));
    if (ctx->state == WEIR_CTX_REMOVED || ctx->state == WEIR_CTX_UNWANTED || ctx->is_replaced)
        return WEIR_ENOTFOUND;
    if (ctx->is_offloaded)
        return weir__offload_request_removal(weir__handler_offload(ctx));
    weir__ctx_remove(ctx);
    return 0;
}

/* The initializer ------------------------------------------------------------------------------ */

#define INIT_FAILED "the channel could not be initialised, and is closed: %s"

typedef struct initializer {
    weir_init_fn init;
    void *arg;
} initializer;

int weir__channel_init_by(weir_channel *channel, weir_init_fn init, void *arg)
{
    int16_t outer = channel->life.init_failure;
    channel->life.init_failure = 0;
    int code = init(channel, arg);
    if (code >= 0 && channel->life.init_failure < 0)
        code = channel->life.init_failure;
    channel->life.init_failure = outer;
    return code;
}

void weir__channel_init_child(weir_channel *channel)
{
    weir_error error;
    const weir_channel_extras *of_parent = weir__channel_extras(channel->parent);
    channel->life.needs_init = false;
    int code = weir__channel_init_by(channel, of_parent->init_child, of_parent->init_child_arg);
    if (code >= 0)
        return;
    weir_channel_close(channel, NULL);
    weir_error_set(&error, code, "initializer", INIT_FAILED, weir_error_text(code));
    weir__pipeline_fire_error(channel, &error);
    weir__channel_close_now(channel, NULL); /* a handler may keep the other close */
}

static void initializer_added(weir_ctx *ctx)
{
    const initializer *self = weir_ctx_state(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    int code = weir__channel_init_by(channel, self->init, self->arg);
    if (code < 0) {
        weir_channel_close(channel, NULL);
        weir_ctx_fail(ctx, code, INIT_FAILED, weir_error_text(code));
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
    weir_error error;
    int code = add(pipeline, &config, &(initializer){ init, arg }, NULL, &error);
    return end_add(pipeline, NULL, code);
}
