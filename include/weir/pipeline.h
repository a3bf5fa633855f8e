/* SPDX-License-Identifier: MIT */
/* Pipelines: the handlers of a channel, in order. */
#ifndef WEIR_PIPELINE_H
#define WEIR_PIPELINE_H

#include <weir/api.h>
#include <weir/error.h>
#include <weir/group.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/*
 *   transport -> head -> [a] -> [b] -> [c] -> tail      inbound: bytes come in
 *   transport <- head <- [a] <- [b] <- [c] <- tail      outbound: bytes go out
 *
 * Every channel has one, which lives as long as the channel. Handlers are added between its head
 * and its tail. The pipeline belongs to the channel's loop; before the first registration to the
 * thread that makes the channel. There an edit is made when the call returns. Any other thread may
 * add, replace and remove handlers, too: the edit is sent to the loop, in order with the other
 * calls of the thread on the channel, and a promise reports what came of it.
 *
 * Names are copied. They must not be empty or contain '#', which marks the names weir gives to
 * handlers that are added with NULL for a name.
 *
 * Adding returns 0; -EINVAL for a NULL or a bad name; -EEXIST when the name is used; -EPROTOTYPE
 * when the handler and a neighbour declare message types that do not fit, which is logged;
 * WEIR_ENOTFOUND when there is no handler of the name `base`; WEIR_EHELD when an upgrade finds data
 * from before it; WEIR_ECLOSED; -ENOMEM; or the code that the handler's `added` failed with. From
 * another thread than the loop's only -EINVAL, WEIR_ECLOSED and -ENOMEM are returned, the others go
 * to the promise. An add is one allocation, state and name included.
 *
 * The argument is copied before the call returns if the handler has a config, as all of weir's with
 * one do: a compound literal is always right. See `arg_size` of weir_handler_type.
 *
 * A connection never goes on without a handler that was asked for. If an add fails while an
 * initializer runs, the channel closes, whatever the initializer returns. If it fails after the
 * call has returned 0, because it was made on another thread, before the channel was registered, or
 * for a handler with a group of its own, the error is raised at the head and the channel closes;
 * with a `promise` in its config only that fails.
 */
typedef struct weir_pipeline weir_pipeline;

/** Add a handler at the head, at the tail, or beside the handler `base`. `name` may be NULL. */
WEIR_API int weir_pipeline_add_first(weir_pipeline *pipeline, const char *name,
                                     const weir_handler_type *type, void *arg);
WEIR_API int weir_pipeline_add_last(weir_pipeline *pipeline, const char *name,
                                    const weir_handler_type *type, void *arg);
WEIR_API int weir_pipeline_add_before(weir_pipeline *pipeline, const char *base, const char *name,
                                      const weir_handler_type *type, void *arg);
WEIR_API int weir_pipeline_add_after(weir_pipeline *pipeline, const char *base, const char *name,
                                     const weir_handler_type *type, void *arg);

/** Where a handler is added. */
typedef enum weir_place {
    WEIR_PLACE_LAST, /* what zero means, too */
    WEIR_PLACE_FIRST,
    WEIR_PLACE_BEFORE,
    WEIR_PLACE_AFTER,
    WEIR_PLACE_INSTEAD_OF, /* as weir_pipeline_replace */
} weir_place;

/** All that can be said about a handler that is added. */
typedef struct weir_handler_config {
    const weir_handler_type *type;
    const char *name; /* NULL: weir gives it one */
    void *arg;
    weir_place place;
    const char *base; /* of WEIR_PLACE_BEFORE, _AFTER and _INSTEAD_OF */

    /* Its callbacks run on an executor of this group instead of the channel's loop, always the same
     * one for all handlers of a channel that have the same group. Events are carried there and
     * back in order; while more are on their way than max_events_away of the channel, it does not
     * read. A group of weir_group_new_executors, which must outlive the channel: free the loops'
     * group first. NULL: on the loop. */
    weir_group *group;

    /* Completed with 0 when `added` has run, or with the code of what failed. NULL: a failure that
     * the call cannot return closes the channel. */
    weir_promise *promise;
} weir_handler_config;

/** Adds a handler; what is wrong is told in words, too (NULL: it is not). */
WEIR_API int weir_pipeline_add(weir_pipeline *pipeline, const weir_handler_config *config,
                               weir_error *error);

/** Makes up a channel's pipeline: 0, or a negative code. On the channel's loop. */
typedef int (*weir_init_fn)(weir_channel *channel, void *arg);

/** Has `init` called once, when the channel is registered, to add handlers. When it, or any add in
 * it, fails, the channel is closed. */
WEIR_API int weir_pipeline_add_initializer(weir_pipeline *pipeline, weir_init_fn init, void *arg);

/** Removes a handler: `removed` runs on its executor, and no other callback after it. On the loop
 * returns 0 or WEIR_ENOTFOUND, which the promise (may be NULL) gets as well; from another thread 0
 * or -ENOMEM, and the promise gets the result. */
WEIR_API int weir_pipeline_remove(weir_pipeline *pipeline, const char *name, weir_promise *promise);

/** Puts another handler in the place of one: the new one is added, then the old one removed, with
 * no event in between. If it fails, the old one stays. Where `added` of the new one runs later (it
 * is offloaded, or the channel is not registered yet) the old one is removed first, and the channel
 * closes if `added` fails. `new_name` may be the old one. Inbound events that the old one still
 * passes on reach the new one. */
WEIR_API int weir_pipeline_replace(weir_pipeline *pipeline, const char *name, const char *new_name,
                                   const weir_handler_type *type, void *arg);

/* Looking ------------------------------------------------------------------------------------ */

/*
 * On the channel's loop, or the thread that steps it if its group is manual, or when the channel is
 * on no loop. On another thread these return -EPERM, and a count or length of 0.
 */

/** A copy of what there is to know about a handler. */
typedef struct weir_handler_info {
    const weir_handler_type *type;
    void *arg;               /* as weir_ctx_arg: a copied config is gone with its handler */
    weir_executor *executor; /* where its callbacks run; NULL: the channel is on no loop yet */
    char name[64];           /* cut when it is longer */
} weir_handler_info;

/** The handler of a name. WEIR_ENOTFOUND. `info` may be NULL. */
WEIR_API int weir_pipeline_find(const weir_pipeline *pipeline, const char *name,
                                weir_handler_info *info);

/** The handler at a place, counted from the head's side, without head and tail; WEIR_ENOTFOUND
 * after the last. And how many there are. */
WEIR_API int weir_pipeline_at(const weir_pipeline *pipeline, size_t index, weir_handler_info *info);
WEIR_API size_t weir_pipeline_count(const weir_pipeline *pipeline);

/** The first of a type. */
WEIR_API int weir_pipeline_find_type(const weir_pipeline *pipeline, const weir_handler_type *type,
                                     weir_handler_info *info);

/** Writes the names, head's side first, as "a, b, c", and returns the length like snprintf. */
WEIR_API size_t weir_pipeline_names(const weir_pipeline *pipeline, char *to, size_t size);

/** The context of a handler, NULL when there is none of that name. */
WEIR_API weir_ctx *weir_pipeline_ctx(weir_pipeline *pipeline, const char *name);

/** The channel of a pipeline: borrowed. */
WEIR_API weir_channel *weir_pipeline_channel(weir_pipeline *pipeline);

/* Events from outside ------------------------------------------------------------------------ */

/** Sends an event or an error through the pipeline, from the head. The message goes with the call.
 * Any thread. */
WEIR_API void weir_pipeline_fire_event(weir_pipeline *pipeline, weir_msg *event);
WEIR_API void weir_pipeline_fire_error(weir_pipeline *pipeline, int code, const char *format, ...)
    WEIR_PRINTF(3, 4);

/** The same for a message that was read: for what speaks to a channel in the transport's place. */
WEIR_API void weir_pipeline_fire_read(weir_pipeline *pipeline, weir_msg *msg);
WEIR_API void weir_pipeline_fire_read_complete(weir_pipeline *pipeline);

WEIR_END_DECLS

#endif
