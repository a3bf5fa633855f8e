/* SPDX-License-Identifier: MIT */
/* Names the handler and callback that a channel runs, for the watchdog. */
#include "channel/offload.h"

/* The name of the callback that is this function; NULL: none of them is. */
static const char *callback_at(const weir_handler_type *type, uintptr_t function)
{
#define IF_IT_IS(kind, callback, ...)                                                              \
    if ((uintptr_t)type->callback == function)                                                     \
        return #callback;
    WEIR__EVENTS(IF_IT_IS)
    IF_IT_IS(, added)
    IF_IT_IS(, removed)
#undef IF_IT_IS
    return NULL;
}

/* Cut to fit. */
static void add_text(weir_subject *subject, const char *text)
{
    size_t length = 0;
    while (subject->handlers[length] != '\0')
        length++;
    while (*text != '\0' && length < sizeof subject->handlers - 1)
        subject->handlers[length++] = *text++;
    subject->handlers[length] = '\0';
}

static const char *name_of(const weir_ctx *ctx)
{
    const char *name = weir__ctx_type(ctx)->name;
    return name != NULL ? name : "unnamed";
}

/* These may interrupt a change of the list: from head to tail it holds together at any moment. */
static bool find_callback(const weir_pipeline *pipeline, uintptr_t function, weir_subject *subject)
{
    for (const weir_ctx *ctx = pipeline->head.next; ctx != &pipeline->tail; ctx = ctx->next) {
        subject->callback = callback_at(ctx->type, function);
        if (subject->callback != NULL) {
            add_text(subject, name_of(ctx));
            return true;
        }
    }
    return false;
}

static void name_all(const weir_pipeline *pipeline, weir_subject *subject)
{
    const weir_ctx *first = pipeline->head.next;
    for (const weir_ctx *ctx = first; ctx != &pipeline->tail; ctx = ctx->next) {
        if (ctx != first)
            add_text(subject, ", ");
        add_text(subject, name_of(ctx));
    }
}

void weir__channel_describe(const void *object, const weir_stack *stack, weir_subject *subject)
{
    const weir_channel *channel = object;
    const weir_pipeline *pipeline = &channel->pipeline;
    subject->channel = channel->id;
    for (int i = 0; i < stack->count; i++) {
        if (stack->functions[i] != 0 && find_callback(pipeline, stack->functions[i], subject))
            return;
    }
    name_all(pipeline, subject);
}

/* Not the pipeline, which is the loop's. */
void weir__ctx_describe(const void *object, const weir_stack *stack, weir_subject *subject)
{
    const weir_ctx *ctx = object;
    subject->channel = ctx->channel->id;
    add_text(subject, name_of(ctx));
    for (int i = 0; i < stack->count && subject->callback == NULL; i++) {
        if (stack->functions[i] != 0)
            subject->callback = callback_at(ctx->type, stack->functions[i]);
    }
}
