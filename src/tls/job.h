/* SPDX-License-Identifier: MIT */
/* A step of a handshake that is computed on another thread than the loop's. */
#ifndef WEIR_TLS_JOB_H
#define WEIR_TLS_JOB_H

#include "tls/engine.h"

#include <weir/executor.h>
#include <weir/handler.h>

typedef struct weir_tls_job weir_tls_job;
struct weir_tls_job {
    /* When it is done, on the channel's loop: a channel that is on none gets it on its next one.
     * The job is gone when this returns. Not called once the job is abandoned. */
    void (*done)(weir_tls_job *job, weir_ctx *ctx);
    weir_tls_engine *engine; /* the job's while it is away */
    weir_tls_step step;
    weir_error error;

    /* job.c's: */
    weir_ctx *ctx; /* NULL: abandoned */
    weir_buf *in;
    weir_listener listener;
    weir_promise *promise;
    weir_ctx_timer on_loop; /* the channel is on a loop again */
    bool is_back;           /* computed, and waits for that */
};

/* Has an executor shake with the bytes of `in`, whole records. Takes the engine and the buffer,
 * when it returns a job; NULL: no memory, and nothing has changed. `done` is never called inside.
 */
weir_tls_job *weir__tls_job_start(weir_ctx *ctx, weir_executor *executor, weir_tls_engine *engine,
                                  weir_buf *in, void (*done)(weir_tls_job *job, weir_ctx *ctx));

/* Cancels the job, which frees itself with its engine: at once, unless it is being computed. On the
 * loop. */
void weir__tls_job_abandon(weir_tls_job *job);

#endif
