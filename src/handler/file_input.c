/* SPDX-License-Identifier: MIT */
/* Files as chunked inputs: a slow disk must not stall the loop. */
#include "handler/file_input.h"

#include "base/sys.h"
#include "exec/executor.h"
#include "handler/chunked.h"
#include "transport/file.h"

#include <stdatomic.h>

/*
 * Bytes in the page cache are read at once. For others a thread of the blocking pool reads one
 * chunk and resumes the input; while that chunk is sent, it reads the next one. So at most one
 * chunk is read ahead, and chunks stay in order because one read is in flight at a time.
 *
 *              start                   read_blocking
 *        IDLE --------> READING (pool) --------------> DONE --------> IDLE
 *                                                           take_ahead
 *
 * If the handler leaves meanwhile, the thread has the last reference to the input, and frees it.
 */
enum { IDLE, READING, DONE };

static void set_state(weir_file_input *self, uint8_t state)
{
    atomic_store_explicit(&self->state, state, memory_order_release);
}

/* Reads the chunk at `at`, and waits for the disk. */
static int read_chunk(const weir_chunked *input, uint64_t at, weir_buf **chunk)
{
    return weir_file_region_read(input->config.file, at, input->config.chunk_bytes, chunk);
}

/* On a thread of the pool. From DONE on the handler may start the next read. */
static void read_blocking(weir_blocking_call *call)
{
    weir_file_input *self = WEIR_CONTAINER(call, weir_file_input, call);
    weir_chunked *input = WEIR_CONTAINER(self, weir_chunked, file);
    self->code = read_chunk(input, self->at, &self->chunk);
    set_state(self, DONE);
    weir_chunked_resume(input);
    weir_msg_release(&input->msg);
}

/* Starts to read the chunk at `at` on another thread: 0, or why there is none. */
static int start(weir_chunked *input, uint64_t at)
{
    weir_file_input *self = &input->file;
    self->call.run = read_blocking;
    self->at = at;
    weir_msg_retain(&input->msg);
    set_state(self, READING);
    int code = weir__blocking_pool_run(&weir__file_pool, weir__sys_linux(), &self->call);
    if (code < 0) {
        set_state(self, IDLE);
        weir_msg_release(&input->msg);
    }
    return code;
}

static int take_ahead(weir_file_input *self, weir_buf **chunk)
{
    *chunk = self->chunk;
    self->chunk = NULL;
    set_state(self, IDLE);
    return self->code;
}

/* A manual group has no other thread, and its time may be virtual. */
static bool is_stepped_by_hand(void)
{
    const weir_executor *executor = weir_executor_current();
    return executor != NULL && executor->is_manual;
}

/* The chunk at `given` is in `*chunk`; or false, a thread reads it. */
static bool read_or_start(weir_chunked *input, weir_buf **chunk, int *code)
{
    if (!is_stepped_by_hand()) {
        *chunk = weir__file_region_read_cached(input->config.file, input->given,
                                               input->config.chunk_bytes);
        if (*chunk != NULL)
            return true;
        if (start(input, input->given) == 0)
            return false;
    }
    *code = read_chunk(input, input->given, chunk);
    return true;
}

weir_pulled weir__file_input_pull(weir_chunked *input, void *arg, weir_buf **chunk)
{
    (void)arg;
    int code = 0;
    uint64_t length = input->config.file->length;
    uint8_t state = atomic_load_explicit(&input->file.state, memory_order_acquire);
    if (length == 0)
        return WEIR_PULLED_LAST;
    if (state == DONE)
        code = take_ahead(&input->file, chunk);
    else if (state == READING || !read_or_start(input, chunk, &code))
        return WEIR_PULLED_NOT_NOW;
    if (code == 0)
        code = weir__chunked_shrink(chunk); /* part of it was in the page cache */
    if (code < 0)
        return weir_chunked_fail(input, code);
    uint64_t next = input->given + weir_buf_readable(*chunk);
    if (next == length)
        return WEIR_PULLED_LAST;
    if (state == DONE)
        start(input, next); /* this chunk was on the disk, so the next one is likely to be, too */
    return WEIR_PULLED_CHUNK;
}

void weir__file_input_deinit(weir_file_input *self)
{
    if (self->chunk != NULL)
        weir_buf_release(self->chunk);
}
