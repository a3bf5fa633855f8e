/* SPDX-License-Identifier: MIT */
/* Output. */
#include "output.h"

#include "ledger.h"
#include "route.h"
#include "verdict.h"
#include "world.h"

#include <weir/weir.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t record_bytes(const record *what)
{
    return RECORD_HEADER_BYTES + what->length;
}

/* Buffers ------------------------------------------------------------------------------------ */

static weir_buf *copy_of(const record *what, size_t offset, size_t length)
{
    weir_buf *buf = weir_buf_new(length);
    uint8_t piece[2048];
    for (size_t done = 0; buf != NULL && done < length;) {
        size_t part = length - done < sizeof piece ? length - done : sizeof piece;
        record_copy(what, offset + done, piece, part);
        if (weir_buf_write_bytes(buf, piece, part) < 0) {
            weir_buf_release(buf);
            buf = NULL;
        }
        done += part;
    }
    return buf;
}

static void free_memory(void *arg, void *memory)
{
    (void)arg;
    free(memory);
}

static weir_buf *wrapped(const record *what)
{
    size_t length = record_bytes(what);
    uint8_t *memory = malloc(length);
    MUST(memory != NULL, "chaos itself has no memory");
    record_copy(what, 0, memory, length);
    weir_buf *buf = weir_buf_wrap(memory, length, free_memory, NULL);
    if (buf == NULL)
        free(memory);
    return buf;
}

/* In up to five pieces. */
static weir_buf *composite(const record *what, dice *d)
{
    size_t length = record_bytes(what), done = 0;
    weir_buf *whole = weir_buf_new_composite();
    for (unsigned i = 0; whole != NULL && done < length; i++) {
        size_t part = i == 4 ? length - done : dice_between(d, 1, (uint32_t)(length - done));
        weir_buf *piece = copy_of(what, done, part);
        if (piece == NULL || weir_buf_composite_add(whole, piece) < 0) {
            weir_buf_release(whole);
            whole = NULL;
        }
        done += part;
    }
    return whole;
}

/* A view of a larger buffer, which is gone when it is written. */
static weir_buf *slice_of(const record *what, dice *d)
{
    size_t length = record_bytes(what), before = dice_below(d, 50);
    weir_buf *whole = weir_buf_new(length + before + 10), *slice = NULL;
    weir_buf *bytes = copy_of(what, 0, length);
    if (whole != NULL && bytes != NULL && weir_buf_write_fill(whole, 0xee, before) == 0 &&
        weir_buf_write_buf(whole, bytes, length) == 0 && weir_buf_write_fill(whole, 0xee, 5) == 0 &&
        weir_buf_retained_slice(whole, before, length, &slice) < 0)
        slice = NULL;
    if (whole != NULL)
        weir_buf_release(whole);
    if (bytes != NULL)
        weir_buf_release(bytes);
    return slice;
}

static weir_msg *any_buffer(const record *what, dice *d)
{
    switch (dice_below(d, 6)) {
    case 0:
        return weir_buf_msg(wrapped(what));
    case 1:
        return weir_buf_msg(composite(what, d));
    case 2:
        return weir_buf_msg(slice_of(what, d));
    default:
        return weir_buf_msg(copy_of(what, 0, record_bytes(what)));
    }
}

/* Inputs of the chunked handler -------------------------------------------------------------- */

typedef struct input {
    record what;
    size_t done;
    dice dice;
    world *world;
} input;

/* Resumes an input from another executor. */
typedef struct resumption {
    weir_timer timer;
    weir_chunked *source;
} resumption;

static void resumption_run(weir_timer *timer)
{
    resumption *self = WEIR_CONTAINER(timer, resumption, timer);
    weir_chunked_resume(self->source);
    weir_msg_release(weir_chunked_msg(self->source));
    free(self);
}

static int resumption_fire(weir_timer *timer)
{
    resumption_run(timer);
    return 0;
}

/* At once, or from another executor a little later. */
static void resume_soon(weir_chunked *source, input *self)
{
    resumption *later = calloc(1, sizeof *later);
    MUST(later != NULL, "chaos itself has no memory");
    later->timer.fire = resumption_fire;
    later->timer.cancelled = resumption_run;
    later->source = source;
    weir_msg_retain(weir_chunked_msg(source));
    if (dice_one_in(&self->dice, 2) ||
        weir_timer_schedule(&later->timer, weir_group_next(self->world->executors),
                            dice_below(&self->dice, 2000) * 1000) < 0)
        resumption_run(&later->timer);
}

static weir_pulled pull(weir_chunked *source, void *arg, weir_buf **chunk)
{
    input *self = arg;
    size_t left = record_bytes(&self->what) - self->done;
    if (dice_one_in(&self->dice, 6)) {
        resume_soon(source, self);
        return WEIR_PULLED_NOT_NOW;
    }
    if (dice_one_in(&self->dice, 400))
        return weir_chunked_fail(source, -EIO);
    size_t part = dice_between(&self->dice, 1, (uint32_t)left);
    *chunk = copy_of(&self->what, self->done, part);
    if (*chunk == NULL)
        return weir_chunked_fail(source, -ENOMEM);
    self->done += part;
    return part == left ? WEIR_PULLED_LAST : WEIR_PULLED_CHUNK;
}

static int read_input(weir_chunked *source, void *arg, void *to, size_t room)
{
    input *self = arg;
    size_t left = record_bytes(&self->what) - self->done;
    if (left > 0 && dice_one_in(&self->dice, 6)) {
        resume_soon(source, self);
        return -EAGAIN;
    }
    size_t part = left < room ? left : room;
    part = part > 0 ? dice_between(&self->dice, 1, (uint32_t)part) : 0;
    record_copy(&self->what, self->done, to, part);
    self->done += part;
    return (int)part;
}

static weir_msg *chunked(const record *what, world *where, dice *d)
{
    input *self = malloc(sizeof *self);
    MUST(self != NULL, "chaos itself has no memory");
    *self = (input){ .what = *what, .world = where, .dice = dice_split(d) };
    weir_chunked_config config = {
        .arg = self,
        .free = free,
        .total_bytes = dice_one_in(d, 2) ? record_bytes(what) : 0,
        .chunk_bytes = dice_one_in(d, 2) ? 0 : dice_between(d, 100, 20000),
    };
    if (dice_one_in(d, 2))
        config.pull = pull;
    else
        config.read = read_input;
    weir_chunked *source;
    if (weir_chunked_new(&source, &config) == 0)
        return weir_chunked_msg(source);
    free(self);
    return NULL;
}

/* Files -------------------------------------------------------------------------------------- */

static weir_msg *file(const record *what, dice *d)
{
    size_t length = record_bytes(what);
    uint32_t before = dice_below(d, 100);
    int fd = memfd_create("chaos", MFD_CLOEXEC);
    uint8_t *bytes = malloc(before + length);
    MUST(fd >= 0 && bytes != NULL, "chaos itself has no memory or descriptor");
    memset(bytes, 0xee, before);
    record_copy(what, 0, bytes + before, length);
    MUST(write(fd, bytes, before + length) == (ssize_t)(before + length), "no room for a file");
    free(bytes);
    weir_file_region *region = weir_file_region_new(fd, before, length);
    if (region == NULL)
        close(fd);
    return region != NULL ? &region->msg : NULL;
}

/* Writing ------------------------------------------------------------------------------------ */

static uint32_t any_length(dice *d)
{
    switch (dice_below(d, 20)) {
    case 0:
        return dice_below(d, 40000);
    case 1:
    case 2:
    case 3:
    case 4:
        return dice_below(d, 4000);
    case 5:
        return 0;
    default:
        return dice_below(d, 300);
    }
}

static weir_msg *any_message(const record *what, end *self, dice *d)
{
    if (self->route->takes_chunked && dice_one_in(d, 5))
        return chunked(what, self->world, d);
    if (self->route->takes_files && dice_one_in(d, 8))
        return file(what, d);
    return any_buffer(what, d);
}

static void on_written(void *arg, uint32_t number, weir_future *future)
{
    stream *of = arg;
    int code = weir_future_code(future);
    stream_set_fate(of, number, code == 0 ? FATE_SENT : FATE_FAILED);
    if (code != 0 && code != -ECANCELED)
        of->owner->has_failed = true;
}

static bool output(end *self, stream *to, weir_ctx *ctx, weir_channel *channel, dice *d)
{
    record what;
    if (!stream_next_record(to, any_length(d), &what))
        return false;
    weir_msg *msg = any_message(&what, self, d);
    weir_promise *promise = NULL;
    stream_set_fate(to, what.number, FATE_UNPROMISED);
    if (dice_percent(d, 40)) {
        stream_set_fate(to, what.number, FATE_PENDING);
        promise = ledger_promise("write", dice_one_in(d, 2) ? channel : NULL, NULL, on_written, to,
                                 what.number);
        if (promise == NULL)
            stream_set_fate(to, what.number, FATE_UNPROMISED);
        else if (dice_one_in(d, 6))
            ledger_offer(promise, d);
    }
    if (ctx != NULL)
        weir_ctx_write(ctx, msg, promise);
    else
        weir_channel_write(channel, msg, promise);
    weir_promise_release(promise);
    return true;
}

bool output_record(end *self, stream *to, weir_ctx *ctx, dice *d)
{
    return output(self, to, ctx, ctx != NULL ? weir_ctx_channel(ctx) : self->channel, d);
}

bool output_record_to(end *self, stream *to, weir_channel *channel, dice *d)
{
    return output(self, to, NULL, channel, d);
}

void output_broadcast(world *where, dice *d)
{
    record what;
    if (where->broadcasts == NULL || !stream_next_record(where->broadcasts, any_length(d), &what))
        return;
    weir_broadcast how = { 0 };
    if (dice_one_in(d, 2))
        how.promise = ledger_promise("broadcast", NULL, NULL, NULL, NULL, 0);
    weir_msg *msg = any_buffer(&what, d);
    if (msg != NULL)
        weir_channel_group_broadcast(where->room, msg, &how);
    else if (how.promise != NULL)
        weir_promise_fail(how.promise, -ENOMEM);
    weir_promise_release(how.promise);
}
