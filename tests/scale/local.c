/* SPDX-License-Identifier: MIT */
/* Channels within the process: the accepted ends on one loop, the connecting ones on another. */
#include "scale.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    AT_ONCE = 64,      /* less than the backlog */
    LOOK_EVERY = 4096, /* connections, for whether there is memory for more */
};

typedef struct local_run {
    scale_counts counts;
    weir_group *accepting, *connecting;
    weir_server *server;
    weir_client_config client;

    /* Of the connecting loop, once it runs. */
    size_t wanted, begun, failed;
    bool is_short;
    int first_code; /* of those that failed */
    weir_ctx *live[SCALE_LIVE];
    unsigned live_count;
    unsigned asked, questions, wrong;
    uint64_t sent_ns;
    histogram times;
    weir_promise *answered;

    _Atomic(size_t) done; /* connects that are over */
} local_run;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Asking: the third handler of the connecting ends --------------------------------------------- */

/* The loop has a reference of its own: who waits gives up the other one as soon as it is set. */
static void end_asking(local_run *self, int code)
{
    weir_promise *promise = self->answered;
    weir_promise_set(promise, code);
    weir_promise_release(promise);
}

static void ask_next(local_run *self)
{
    uint8_t question[SCALE_ASK_BYTES];
    weir_ctx *ctx = self->live[self->asked % self->live_count];
    memset(question, (int)self->asked, sizeof question);
    self->sent_ns = now_ns();
    weir_buf *buf = weir_buf_from(question, sizeof question);
    if (buf != NULL)
        weir_ctx_write_and_flush(ctx, weir_buf_msg(buf), NULL);
    else
        end_asking(self, -ENOMEM);
}

static void asker_on_active(weir_ctx *ctx)
{
    local_run *self = weir_ctx_arg(ctx);
    if (self->live_count < SCALE_LIVE)
        self->live[self->live_count++] = ctx;
    weir_ctx_fire_active(ctx);
}

static void asker_on_read(weir_ctx *ctx, weir_msg *msg)
{
    local_run *self = weir_ctx_arg(ctx);
    weir_buf *answer = weir_buf_from_msg(msg);
    histogram_add(&self->times, now_ns() - self->sent_ns);
    const uint8_t *bytes = weir_buf_peek(answer, weir_buf_reader(answer), SCALE_ASK_BYTES);
    self->wrong += weir_buf_readable(answer) != SCALE_ASK_BYTES || bytes == NULL ||
                   bytes[0] != (uint8_t)self->asked;
    weir_msg_release(msg);
    if (++self->asked < self->questions)
        ask_next(self);
    else
        end_asking(self, 0);
}

static const weir_handler_type asker = {
    .name = "asker",
    .on_active = asker_on_active,
    .on_read = asker_on_read,
};

static int init_client(weir_channel *channel, void *arg)
{
    local_run *self = arg;
    int code = scale_add_handlers(channel, &self->counts);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), "asker", &asker, self);
}

static int begin_asking(void *arg)
{
    ask_next(arg);
    return 0;
}

static scale_answers ask_some(local_run *self, const scale_settings *settings,
                              scale_figures *figures)
{
    self->asked = 0;
    self->questions = settings->questions;
    self->times = (histogram){ 0 };
    weir_promise *answered = weir_promise_new(NULL);
    weir_executor *loop = weir_group_at(self->connecting, 0);
    self->answered = weir_promise_retain(answered);
    int code = answered == NULL ? -ENOMEM : weir_executor_execute(loop, begin_asking, self);
    if (code == 0)
        code = weir_future_await(weir_promise_future(answered));
    else
        weir_promise_release(self->answered);
    if (code < 0)
        scale_fail(figures, "local: question %u: %s", self->asked + 1, weir_error_text(code));
    weir_promise_release(answered);
    return scale_answers_of(&self->times);
}

/* Connecting ----------------------------------------------------------------------------------- */

static void on_connected(void *arg, weir_future *future);

static int connect_one(local_run *self)
{
    weir_promise *promise = weir_promise_new(weir_group_at(self->connecting, 0));
    if (promise == NULL)
        return -ENOMEM;
    int code = weir_future_on_done(weir_promise_future(promise), on_connected, self);
    if (code == 0) {
        code = weir_client_start(&self->client, "local:scale", promise, NULL);
        if (code < 0)
            weir_promise_fail(promise, code); /* which tells on_connected */
        code = 0;
    }
    weir_promise_release(promise);
    return code;
}

static void note_end(local_run *self, int code)
{
    if (code < 0 && self->failed++ == 0)
        self->first_code = code;
    self->done++;
}

static int connect_more(void *arg)
{
    local_run *self = arg;
    while (self->begun < self->wanted && self->begun < self->done + AT_ONCE) {
        if (self->begun % LOOK_EVERY == 0 && scale_is_memory_short()) {
            self->is_short = true;
            self->done += self->wanted - self->begun; /* for who waits for all of them */
            self->wanted = self->begun;
            break;
        }
        self->begun++;
        int code = connect_one(self);
        if (code < 0)
            note_end(self, code);
    }
    return 0;
}

static void on_connected(void *arg, weir_future *future)
{
    note_end(arg, weir_future_code(future));
    connect_more(arg);
}

static bool connect_up_to(local_run *self, size_t wanted, scale_figures *figures)
{
    self->wanted = wanted;
    int code = weir_executor_execute(weir_group_at(self->connecting, 0), connect_more, self);
    if (code < 0 || !scale_wait_for("local: connections", &self->done, wanted)) {
        scale_fail(figures, "local: only %zu of %zu connects are over: %s", self->done, wanted,
                   weir_error_text(code));
        return false;
    }
    if (self->failed > 0) {
        scale_fail(figures, "local: %zu connects failed: %s", self->failed,
                   weir_error_text(self->first_code));
        return false;
    }
    figures->connections = self->wanted;
    if (!scale_wait_for("local: active", &self->counts.active, 2 * self->wanted)) {
        scale_fail(figures, "local: only %zu channels are active", self->counts.active);
        return false;
    }
    return true;
}

/* The run -------------------------------------------------------------------------------------- */

static int start(local_run *self, weir_error *error)
{
    weir_group_config one = { .loops = 1 };
    int code = weir_group_new(&self->accepting, &one, error);
    if (code == 0)
        code = weir_group_new(&self->connecting, &one, error);
    self->client = (weir_client_config){
        .group = self->connecting,
        .init = init_client,
        .arg = self,
        .connect_timeout_ns = WEIR_OFF,
    };
    weir_server_config config = {
        .workers = self->accepting,
        .init_child = scale_add_echo,
        .arg = &self->counts,
    };
    return code < 0 ? code : weir_server_listen(&self->server, &config, "local:scale", error);
}

static void measure(local_run *self, const scale_settings *settings, scale_figures *figures)
{
    size_t wanted = settings->local / 2;
    if (!connect_up_to(self, SCALE_LIVE, figures))
        return;
    if (self->is_short) {
        scale_fail(figures, "local: there is no memory to begin with");
        return;
    }
    figures->few = ask_some(self, settings, figures);
    double bytes = scale_own_bytes(), begin_s = scale_now_s();
    if (!connect_up_to(self, wanted, figures))
        return;
    figures->seconds = scale_now_s() - begin_s;
    figures->user_bytes = scale_own_bytes() - bytes;
    figures->channels = 2 * figures->connections;
    snprintf(figures->note, sizeof figures->note,
             self->is_short ? "as many as there is memory for" : "as many as were asked for");
    figures->full = ask_some(self, settings, figures);
    if (self->wrong > 0)
        scale_fail(figures, "local: %u answers are wrong", self->wrong);
    scale_watch_idle(settings, &self->counts, figures);
}

static void end_group(weir_group *group)
{
    if (group != NULL)
        weir_group_shutdown(group, 0, WEIR_SECONDS(10));
    weir_group_free(group);
}

void scale_local(const scale_settings *settings, scale_figures *figures)
{
    static local_run run;
    weir_error error;
    run.counts.tick_ms = settings->tick_ms;
    figures->kernel_bytes = 0; /* it knows nothing of them */
    if (start(&run, &error) < 0)
        scale_fail(figures, "local: %s", error.message);
    else
        measure(&run, settings, figures);
    if (run.server != NULL) {
        double begin_s = scale_now_s();
        weir_server_drain(run.server, 0, NULL);
        if (!scale_wait_for("local: closed", &run.counts.inactive, run.counts.active))
            scale_fail(figures, "local: only %zu of %zu channels are closed", run.counts.inactive,
                       run.counts.active);
        figures->close_seconds = scale_now_s() - begin_s;
        weir_future_await(weir_server_closed(run.server));
        weir_server_release(run.server);
    }
    end_group(run.connecting);
    end_group(run.accepting);
}
