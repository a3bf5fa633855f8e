/* SPDX-License-Identifier: MIT */
/* The pipeline: the list of contexts. */
#ifndef WEIR_CHANNEL_PIPELINE_H
#define WEIR_CHANNEL_PIPELINE_H

#include "channel/ctx.h"
#include "channel/event.h"

#include <weir/pipeline.h>

struct weir_pipeline {
    weir_ctx head, tail;
    weir_ctx *arriving; /* named already, but not in the list yet: under the lock */
};

void weir__pipeline_init(weir_pipeline *pipeline, weir_channel *channel);

/* The channel was registered: calls every `added` that waited for it. */
void weir__pipeline_call_added(weir_pipeline *pipeline);

/* Links a context after `prev`. On the loop, under the lock. */
void weir__pipeline_link(weir_ctx *prev, weir_ctx *ctx);

/* Takes a context off the list of pending adds; false if it is not on it. Under the lock. */
bool weir__pipeline_forget_arriving(weir_pipeline *pipeline, const weir_ctx *ctx);

/* Removes all handlers, from the tail to the head, pending adds included. */
void weir__pipeline_remove_all(weir_pipeline *pipeline);

/* Frees what is left, when the channel goes. */
void weir__pipeline_deinit(weir_pipeline *pipeline);

/* By name: among those that are linked, or also those on their way; NULL. Under the lock. */
weir_ctx *weir__pipeline_find_type(const weir_pipeline *pipeline, const weir_handler_type *type);
weir_ctx *weir__pipeline_find_linked(const weir_pipeline *pipeline, const char *name);
weir_ctx *weir__pipeline_find(const weir_pipeline *pipeline, const char *name);

/* The linked one with a serial, NULL when it went in the meantime; one that was removed stays
 * linked as long as another may refer to it. On the loop, or under the lock. */
weir_ctx *weir__pipeline_find_serial(weir_pipeline *pipeline, uint32_t serial, bool may_be_removed);

/* weir_pipeline_add, and which serial the handler has got. */
int weir__pipeline_add(weir_pipeline *pipeline, const weir_handler_config *config, uint32_t *serial,
                       weir_error *error);

/* The first or last context: ordinary handlers of weir's own, see ends.c. */
extern const weir_handler_type weir__head_type, weir__tail_type;

#endif
