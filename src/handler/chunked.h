/* SPDX-License-Identifier: MIT */
/* What the chunked handler knows of its inputs, and the file bytes handler of it. */
#ifndef WEIR_HANDLER_CHUNKED_H
#define WEIR_HANDLER_CHUNKED_H

#include "channel/inbox.h"
#include "handler/file_input.h"
#include "handler/write_queue.h"

#include <weir/chunked.h>

struct weir_chunked {
    weir_msg msg;
    weir_chunked_config config;
    weir_chunked_pull_fn pull;
    _Atomic(bool) is_written; /* to some channel */

    /* The handler's. */
    uint64_t given; /* bytes, so far */
    int code;       /* why it has failed */
    bool is_dry;    /* a stream said "not now" behind some bytes */
    weir_file_input file;

    /* See chunked_input.c. */
    _Atomic(uint8_t) state;
    weir_ctx *ctx; /* whose handler waits for it */
    void (*go_on)(weir_ctx *ctx);
    weir_channel *channel;
    weir_executor *executor;
    weir_call call;
    weir_task task;
};

/* Asks for the next bytes, and checks what comes: `*chunk` is a buffer, perhaps an empty one with
 * the last. */
weir_pulled weir__chunked_pull(weir_chunked *input, weir_buf **chunk);

/* A few bytes do not keep a large buffer: only they count for the water marks. 0, -ENOMEM. */
int weir__chunked_shrink(weir_buf **buf);

/* It said "not now": true, and `go_on` will be called where the handler is; or false, it can be
 * asked again at once. */
bool weir__chunked_wait(weir_chunked *input, weir_ctx *ctx, void (*go_on)(weir_ctx *ctx));

/* Who waited for it does not any more. */
void weir__chunked_leave(weir_chunked *input);

/* The handler's callbacks, for one that turns other messages into inputs. */
typedef struct weir_chunked_state {
    weir_write_queue queue;
    bool is_begun;   /* the first cannot be cancelled any more */
    bool is_waiting; /* for the first, which said "not now" */
    bool is_pumping; /* further up the stack */
    bool has_failed; /* bytes are missing, so there will be no more */
    weir_ctx_timer again;
    int64_t look_ns; /* how long to wait before it looks again */
} weir_chunked_state;

void weir__chunked_added(weir_ctx *ctx);
void weir__chunked_removed(weir_ctx *ctx);
void weir__chunked_on_registered(weir_ctx *ctx);
void weir__chunked_on_inactive(weir_ctx *ctx);
void weir__chunked_on_writability(weir_ctx *ctx);
void weir__chunked_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise);
void weir__chunked_flush(weir_ctx *ctx);
void weir__chunked_shutdown(weir_ctx *ctx, weir_promise *promise);

#define WEIR__CHUNKED_CALLBACKS                                                                    \
    .state_size = sizeof(weir_chunked_state), .added = weir__chunked_added,                        \
    .removed = weir__chunked_removed, .on_registered = weir__chunked_on_registered,                \
    .on_inactive = weir__chunked_on_inactive, .on_writability = weir__chunked_on_writability,      \
    .flush = weir__chunked_flush, .shutdown = weir__chunked_shutdown

#endif
