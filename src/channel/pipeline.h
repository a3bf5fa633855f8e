/* SPDX-License-Identifier: MIT */
/* The pipeline: the list of contexts. */
#ifndef WEIR_CHANNEL_PIPELINE_H
#define WEIR_CHANNEL_PIPELINE_H

#include "channel/ctx.h"
#include "channel/event.h"

#include <weir/pipeline.h>

/* Belongs to the channel's loop; before the first, to the thread that makes the channel. */
struct weir_pipeline {
    weir_ctx head, tail;
    uint32_t next_number; /* of a handler */
    bool rejects_reads;   /* no handler gets on_read: see weir__pipeline_reject_reads */
};

void weir__pipeline_init(weir_pipeline *pipeline, weir_channel *channel);

/* The channel was registered: calls every `added` that waited for it. */
void weir__pipeline_call_added(weir_pipeline *pipeline);

/* Links a context after `prev`. */
void weir__pipeline_link(weir_ctx *prev, weir_ctx *ctx);

/* Removes all handlers, from the tail to the head: the channel has ended. */
void weir__pipeline_remove_all(weir_pipeline *pipeline);

/* Frees those that were removed so. */
void weir__pipeline_free_removed(weir_pipeline *pipeline);

/* From now on every message goes to the tail, which discards it: the channel is being closed. */
void weir__pipeline_reject_reads(weir_pipeline *pipeline);

/* Frees the contexts that are left, when the channel goes. */
void weir__pipeline_deinit(weir_pipeline *pipeline);

/* The context of a handler that is neither removed nor being replaced; NULL: there is none. */
weir_ctx *weir__pipeline_find(const weir_pipeline *pipeline, const char *name);
weir_ctx *weir__pipeline_find_type(const weir_pipeline *pipeline, const weir_handler_type *type);
weir_ctx *weir__pipeline_find_number(const weir_pipeline *pipeline, uint32_t number);

/* weir_pipeline_add on the loop, and which number the handler has got. */
int weir__pipeline_add(weir_pipeline *pipeline, const weir_handler_config *config, uint32_t *number,
                       weir_error *error);

/* The first or last context: ordinary handlers of weir's own, see ends.c. */
extern const weir_handler_type weir__head_type, weir__tail_type;

#endif
