/* SPDX-License-Identifier: MIT */
/* Chunked inputs: where their bytes come from, and how they say that there are more. */
#include "handler/chunked.h"

#include "base/alloc.h"
#include "channel/ctx.h"
#include "exec/executor.h"

#include <errno.h>
#include <stdatomic.h>

#define CHUNK_BYTES ((size_t)64 * 1024)

/* Sources -------------------------------------------------------------------------------------- */

int weir__chunked_shrink(weir_buf **buf)
{
    weir_buf *copy, *large = *buf;
    if (weir_buf_capacity(large) / 4 <= weir_buf_readable(large))
        return 0;
    int code = weir_buf_copy(large, weir_buf_reader(large), weir_buf_readable(large), &copy);
    if (code < 0)
        return code;
    weir_buf_release(large);
    *buf = copy;
    return 0;
}

/* Reads until the buffer is full, or no more comes: 0 at the end, 1 when there may be more, or why
 * not. */
static int fill(weir_chunked *input, weir_buf *buf, size_t room)
{
    while (room > 0) {
        uint8_t *to = weir_buf_write_ptr(buf, room);
        int length = to != NULL ? input->config.read(input, input->config.arg, to, room) : -ENOMEM;
        if (length <= 0)
            return length;
        if ((size_t)length > room)
            return WEIR_EBOUNDS;
        weir_buf_advance_writer(buf, (size_t)length);
        room -= (size_t)length;
    }
    return 1;
}

static weir_pulled pull_stream(weir_chunked *input, void *arg, weir_buf **chunk)
{
    (void)arg;
    if (input->is_dry) {
        input->is_dry = false;
        return WEIR_PULLED_NOT_NOW;
    }
    weir_buf *buf = weir_buf_new(input->config.chunk_bytes);
    int code = buf != NULL ? fill(input, buf, input->config.chunk_bytes) : -ENOMEM;
    bool is_empty = weir_buf_readable(buf) == 0, is_last = code == 0;
    if (code == -EAGAIN && !is_empty) {
        input->is_dry = true;
        code = 1;
    }
    if (code >= 0 && !is_empty && weir__chunked_shrink(&buf) < 0)
        code = -ENOMEM;
    if (code < 0 || is_empty) {
        weir_buf_release(buf);
        buf = NULL;
    }
    *chunk = buf;
    if (code == -EAGAIN)
        return WEIR_PULLED_NOT_NOW;
    if (code < 0)
        return weir_chunked_fail(input, code);
    return is_last ? WEIR_PULLED_LAST : WEIR_PULLED_CHUNK;
}

/* The message ---------------------------------------------------------------------------------- */

static void input_destroy(weir_msg *msg)
{
    weir_chunked *self = (weir_chunked *)msg;
    weir__file_input_deinit(&self->file);
    if (self->config.file != NULL)
        weir_msg_release(&self->config.file->msg);
    if (self->config.free != NULL)
        self->config.free(self->config.arg);
    weir__free(self);
}

const weir_msg_type weir_chunked_type = { .name = "chunked input", .destroy = input_destroy };

int weir_chunked_new(weir_chunked **input, const weir_chunked_config *config)
{
    if (input == NULL || config == NULL || config->chunk_bytes > WEIR_BUF_MAX ||
        (config->pull != NULL) + (config->read != NULL) + (config->file != NULL) != 1)
        return -EINVAL;
    weir_chunked *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    weir_msg_init(&self->msg, &weir_chunked_type);
    self->config = *config;
    self->pull = config->pull;
    if (self->config.chunk_bytes == 0)
        self->config.chunk_bytes = CHUNK_BYTES;
    if (config->read != NULL)
        self->pull = pull_stream;
    if (config->file != NULL) {
        self->pull = weir__file_input_pull;
        self->config.total_bytes = config->file->length;
    }
    *input = self;
    return 0;
}

weir_msg *weir_chunked_msg(weir_chunked *input)
{
    return input != NULL ? &input->msg : NULL;
}

weir_pulled weir_chunked_fail(weir_chunked *input, int code)
{
    input->code = code < 0 ? code : -EINVAL;
    return WEIR_PULLED_FAILED;
}

/* Waiting -------------------------------------------------------------------------------------- */

/*
 *            asked            "not now"              resume
 *      BUSY -------> BUSY ---------------> WAITING ---------> BUSY: go_on is on its way
 *        \                                    |
 *         '--> RESUMED: ask again             '--> BUSY: the handler leaves
 *       resume
 *
 * Who takes it out of WAITING has what was taken for the wait: a reference to the input, to the
 * channel, and to the executor of a handler that has its own. go_on comes to the handler's thread,
 * where it finds out whether the handler is still there. On the loop it comes through the channel's
 * inbox, and so wherever the channel has moved. The handler does not ask again before that.
 */
enum { BUSY, WAITING, RESUMED };

static void end_wait(weir_chunked *self)
{
    weir_channel_release(self->channel);
    if (self->executor != NULL)
        weir__executor_release(self->executor);
    weir_msg_release(&self->msg);
}

static void arrive(weir_chunked *self)
{
    if (self->ctx != NULL)
        self->go_on(self->ctx);
    end_wait(self);
}

static void run_call(weir_home *home, weir_call *call)
{
    (void)home;
    arrive(WEIR_CONTAINER(call, weir_chunked, call));
}

static int run_task(weir_task *task)
{
    arrive(WEIR_CONTAINER(task, weir_chunked, task));
    return 0;
}

static void drop_task(weir_task *task)
{
    end_wait(WEIR_CONTAINER(task, weir_chunked, task)); /* the handler goes with its executor */
}

bool weir__chunked_wait(weir_chunked *self, weir_ctx *ctx, void (*go_on)(weir_ctx *ctx))
{
    uint8_t expected = BUSY;
    weir_msg_retain(&self->msg);
    self->ctx = ctx;
    self->go_on = go_on;
    self->channel = weir_channel_retain(weir_ctx_channel(ctx));
    self->executor = ctx->is_offloaded ? weir_ctx_executor(ctx) : NULL;
    if (self->executor != NULL)
        weir__executor_retain(self->executor);
    self->call = (weir_call){ .run = run_call };
    self->task = (weir_task){ .run = run_task, .dropped = drop_task, .name = "resume" };
    if (atomic_compare_exchange_strong_explicit(&self->state, &expected, WAITING,
                                                memory_order_acq_rel, memory_order_acquire))
        return true;
    end_wait(self);
    return false;
}

void weir__chunked_leave(weir_chunked *self)
{
    uint8_t expected = WAITING;
    self->ctx = NULL;
    if (atomic_compare_exchange_strong_explicit(&self->state, &expected, BUSY, memory_order_acq_rel,
                                                memory_order_acquire))
        end_wait(self);
}

/* What is held for the wait may be given back before these return: both hold what they touch. */
static void wake_executor(weir_chunked *self)
{
    weir_executor *executor = self->executor;
    weir__executor_retain(executor);
    if (weir__executor_post_always(executor, &self->task) < 0)
        end_wait(self);
    weir__executor_release(executor);
}

static void wake_channel(weir_chunked *self)
{
    weir_channel *channel = weir_channel_retain(self->channel);
    weir__inbox_push(channel, &self->call);
    weir_channel_release(channel);
}

void weir_chunked_resume(weir_chunked *self)
{
    if (self == NULL)
        return;
    uint8_t state = atomic_load_explicit(&self->state, memory_order_relaxed), next;
    do /* also where it is RESUMED: what this thread has made must be seen when it is asked */
        next = state == WAITING ? BUSY : RESUMED;
    while (!atomic_compare_exchange_weak_explicit(&self->state, &state, next, memory_order_acq_rel,
                                                  memory_order_relaxed));
    if (state != WAITING)
        return;
    if (self->executor != NULL)
        wake_executor(self);
    else
        wake_channel(self);
}

/* Asking --------------------------------------------------------------------------------------- */

/* The end is where it was said to be. */
static int check(const weir_chunked *self, weir_pulled pulled, const weir_buf *chunk)
{
    uint64_t given = self->given + weir_buf_readable(chunk), total = self->config.total_bytes;
    if (pulled == WEIR_PULLED_CHUNK && weir_buf_readable(chunk) == 0)
        return -EPROTO;
    if (total > 0 && given > total)
        return WEIR_ELIMIT;
    return pulled == WEIR_PULLED_LAST && given < total ? WEIR_EOF : 0;
}

weir_pulled weir__chunked_pull(weir_chunked *self, weir_buf **chunk)
{
    int code = 0;
    *chunk = NULL;
    self->code = -EPROTO; /* when it fails without a reason, or says what is nothing */
    if (atomic_exchange_explicit(&self->state, BUSY, memory_order_acq_rel) == RESUMED)
        self->is_dry = false;
    weir_pulled pulled = self->pull(self, self->config.arg, chunk);
    bool has_bytes = pulled == WEIR_PULLED_CHUNK || pulled == WEIR_PULLED_LAST;
    if (has_bytes)
        code = check(self, pulled, *chunk);
    if (pulled == WEIR_PULLED_LAST && *chunk == NULL && code == 0 &&
        (*chunk = weir_buf_new(0)) == NULL)
        code = -ENOMEM;
    if (code < 0)
        pulled = weir_chunked_fail(self, code);
    if (*chunk != NULL && (!has_bytes || code < 0)) {
        weir_buf_release(*chunk);
        *chunk = NULL;
    }
    self->given += weir_buf_readable(*chunk);
    return has_bytes || pulled == WEIR_PULLED_NOT_NOW ? pulled : WEIR_PULLED_FAILED;
}
