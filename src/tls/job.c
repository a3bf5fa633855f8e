/* SPDX-License-Identifier: MIT */
/* Steps of handshakes on other threads. */
#include "tls/job.h"

#include "tls/place.h"

#include <weir/alloc.h>
#include <weir/channel.h>

static void destroy(weir_tls_job *job)
{
    weir__tls_engine_free(job->engine);
    weir_buf_release(job->in);
    weir_promise_release(job->promise);
    weir_free(job);
}

/* On a thread of the executor. */
static int compute(void *arg)
{
    weir_tls_job *job = arg;
    job->step = weir__tls_engine_shake(job->engine, job->in, weir_buf_readable(job->in),
                                       &job->error);
    return 0;
}

static void come_back(weir_tls_job *job)
{
    weir_ctx *ctx = job->ctx;
    job->is_back = ctx != NULL && weir__tls_wait_for_loop(ctx, &job->on_loop);
    if (job->is_back)
        return;
    if (ctx != NULL)
        job->done(job, ctx); /* which takes the engine */
    destroy(job);
}

static void on_computed(weir_listener *listener, weir_future *future)
{
    weir_tls_job *job = WEIR_CONTAINER(listener, weir_tls_job, listener);
    if (weir_future_code(future) < 0) {
        job->step = WEIR_TLS_STEP_FAILED;
        weir_error_set(&job->error, WEIR_ESHUTDOWN, "tls", "the handshake_group has shut down");
    }
    come_back(job);
}

static void on_loop(weir_ctx_timer *timer, weir_ctx *ctx)
{
    (void)ctx;
    come_back(WEIR_CONTAINER(timer, weir_tls_job, on_loop));
}

weir_tls_job *weir__tls_job_start(weir_ctx *ctx, weir_executor *executor, weir_tls_engine *engine,
                                  weir_buf *in, void (*done)(weir_tls_job *job, weir_ctx *ctx))
{
    weir_tls_job *job = weir_zalloc(sizeof *job);
    if (job == NULL)
        return NULL;
    job->promise = weir_channel_promise(weir_ctx_channel(ctx));
    if (job->promise == NULL) {
        weir_free(job);
        return NULL;
    }
    job->done = done;
    job->ctx = ctx;
    job->engine = engine;
    job->in = in;
    job->listener = (weir_listener){ .done = on_computed, .dropped = on_computed };
    job->on_loop.fire = on_loop;
    weir_future_listen(weir_promise_future(job->promise), &job->listener);
    if (weir_executor_submit_to(executor, compute, job, job->promise) < 0)
        weir_promise_set(job->promise, compute(job)); /* rather late than never */
    return job;
}

void weir__tls_job_abandon(weir_tls_job *job)
{
    if (job->is_back) {
        weir_ctx_cancel(job->ctx, &job->on_loop);
        destroy(job);
    } else {
        job->ctx = NULL;
        weir_future_cancel(weir_promise_future(job->promise)); /* if it has not begun */
    }
}
