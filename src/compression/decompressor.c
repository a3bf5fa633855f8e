/* SPDX-License-Identifier: MIT */
/* Decompressing, and the one place that all of its output goes through. */
#include "compression/format.h"

#include <weir/alloc.h>

#include <errno.h>
#include <inttypes.h>
#include <stdalign.h>

#define NORMAL_CHUNK ((size_t)64 << 10)
#define LEAST_CHUNK ((size_t)512)
#define MOST_CHUNK ((size_t)16 << 20)
#define NORMAL_RATIO 100
#define ANY_RATIO_UP_TO ((uint64_t)64 << 10) /* bytes of output */
#define EXPECTED_RATIO 4

struct weir_decompressor {
    const weir_inflater_type *type;
    weir_decompression config; /* with the defaults filled in */
    uint64_t at;               /* how much of the stream was taken */
    uint64_t in, out;          /* what the limits are about */
    uint64_t begun_at;         /* where the present one of several streams did */
    bool is_begun;             /* it has taken something of that one */
    bool is_ended;             /* the one before that has ended, and none has begun */
    bool has_out;              /* something has come of it */
    bool was_full;             /* the last buffer, so there may be more */
    size_t room;               /* of that */
    weir_error error;          /* its code is 0 until it refuses */
    alignas(max_align_t) uint8_t state[];
};

/* Making --------------------------------------------------------------------------------------- */

static int check(const weir_decompression *config, const weir_inflater_type **type,
                 weir_error *error)
{
    if (config == NULL)
        return weir_error_set(error, -EINVAL, "decompressor", "there is no config");
    int code = weir__format_inflater(config->format, type, error);
    if (code < 0)
        return code;
    if (config->chunk_bytes != 0 &&
        (config->chunk_bytes < LEAST_CHUNK || config->chunk_bytes > MOST_CHUNK))
        return weir_error_set(error, -EINVAL, "decompressor",
                              "chunk_bytes is %zu, but can be from %zu to %zu", config->chunk_bytes,
                              LEAST_CHUNK, MOST_CHUNK);
    if (config->max_ratio < WEIR_OFF)
        return weir_error_set(error, -EINVAL, "decompressor", "max_ratio is %" PRId64,
                              config->max_ratio);
    if (config->window_bits != 0 &&
        (config->window_bits < (*type)->least_bits || config->window_bits > (*type)->most_bits))
        return weir_error_set(error, -EINVAL, "decompressor",
                              "window_bits is %u, but for %s can be from %u to %u",
                              config->window_bits, weir_compression_name(config->format),
                              (*type)->least_bits, (*type)->most_bits);
    return 0;
}

int weir_decompressor_new(weir_decompressor **decompressor, const weir_decompression *config,
                          weir_error *error)
{
    const weir_inflater_type *type = NULL;
    if (decompressor == NULL)
        return -EINVAL;
    *decompressor = NULL;
    int code = check(config, &type, error);
    if (code < 0 || type == NULL)
        return code;
    weir_decompressor *self = weir_zalloc(sizeof *self + type->state_size);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "decompressor", "no memory");
    self->type = type;
    self->config = *config;
    if (config->chunk_bytes == 0)
        self->config.chunk_bytes = NORMAL_CHUNK;
    if (config->max_ratio == 0)
        self->config.max_ratio = NORMAL_RATIO;
    code = type->begin(self->state, config->format,
                       config->window_bits > 0 ? config->window_bits : type->normal_bits);
    if (code < 0) {
        weir_decompressor_free(self);
        return weir_error_set(error, code, "decompressor", "no memory for %s",
                              weir_compression_name(config->format));
    }
    *decompressor = self;
    return 0;
}

void weir_decompressor_free(weir_decompressor *self)
{
    if (self == NULL)
        return;
    self->type->end(self->state);
    weir_free(self);
}

int weir_decompressor_reset(weir_decompressor *self, bool keeps_window)
{
    if (self == NULL || (keeps_window && self->error.code < 0))
        return -EINVAL;
    self->in = self->out = 0;
    if (keeps_window)
        return 0;
    self->at = self->begun_at = 0;
    self->is_begun = self->is_ended = self->has_out = self->was_full = false;
    self->error.code = 0;
    int code = self->type->again(self->state);
    if (code < 0)
        weir_error_set(&self->error, code, "decompressor", "no memory for another stream");
    return code;
}

/* Refusing ------------------------------------------------------------------------------------- */

static const char *name_of(const weir_decompressor *self)
{
    return weir_compression_name(self->config.format);
}

static void refuse_memory(weir_decompressor *self)
{
    weir_error_set(&self->error, -ENOMEM, "decompressor",
                   "no memory for what %s expands to (at byte %" PRIu64 " of the stream)",
                   name_of(self), self->at);
}

static void refuse_what_follows(weir_decompressor *self)
{
    weir_error_set(&self->error, -EBADMSG, "decompressor",
                   "the %s stream has ended, but bytes follow that are none (at byte %" PRIu64
                   " of the stream)",
                   name_of(self), self->begun_at);
}

static void refuse_step(weir_decompressor *self, const weir_coding *coding)
{
    if (coding->code == -EBADMSG && self->begun_at > 0 && !self->has_out)
        refuse_what_follows(self);
    else
        weir_error_set(&self->error, coding->code, "decompressor",
                       "%s: %s (at byte %" PRIu64 " of the stream)", name_of(self), coding->why,
                       self->at);
}

/* True when it expands to too much. */
static bool is_above_limits(weir_decompressor *self)
{
    const weir_decompression *config = &self->config;
    uint64_t most_of_in;
    if (config->max_output > 0 && self->out > config->max_output)
        weir_error_set(&self->error, WEIR_ELIMIT, "decompressor",
                       "%s expands to more than max_output, %" PRIu64 " bytes: %" PRIu64
                       " bytes in, %" PRIu64 " out (at byte %" PRIu64 " of the stream)",
                       name_of(self), config->max_output, self->in, self->out, self->at);
    else if (config->max_ratio != WEIR_OFF && self->out > ANY_RATIO_UP_TO &&
             !__builtin_mul_overflow(self->in, (uint64_t)config->max_ratio, &most_of_in) &&
             self->out > most_of_in)
        weir_error_set(&self->error, WEIR_ELIMIT, "decompressor",
                       "%s expands to more than max_ratio, %" PRId64 " times: %" PRIu64
                       " bytes in, %" PRIu64 " out (at byte %" PRIu64 " of the stream)",
                       name_of(self), config->max_ratio, self->in, self->out, self->at);
    return self->error.code < 0;
}

/* Running -------------------------------------------------------------------------------------- */

/* Another stream behind the one that has ended; or what follows is wrong. */
static bool begin_next(weir_decompressor *self)
{
    self->begun_at = self->at;
    self->is_ended = self->has_out = false;
    if (!self->type->is_followed)
        refuse_what_follows(self);
    else if (self->type->again(self->state) < 0)
        refuse_memory(self);
    return self->error.code == 0;
}

/* One step of the format's library: no further than into the buffer's room. What is made is counted
 * here, and nowhere else. */
static weir_step step(weir_decompressor *self, weir_buf *in, weir_buf *to)
{
    size_t room = self->room - weir_buf_readable(to);
    weir_coding coding = { .out = weir_buf_write_ptr(to, room), .out_left = room };
    weir__coding_take(&coding, in);
    const uint8_t *from = coding.in, *bytes = coding.out;
    weir_step result = self->type->step(self->state, &coding);
    size_t taken = from != NULL ? (size_t)(coding.in - from) : 0, made = room - coding.out_left;
    weir__coding_wrote(bytes, made);
    weir_buf_skip(in, taken);
    weir_buf_advance_writer(to, made);
    self->at += taken;
    self->in += taken;
    self->out += made;
    self->is_begun |= taken > 0;
    self->has_out |= made > 0;
    if (result == WEIR_STEP_FAILED) {
        refuse_step(self, &coding);
    } else if (result == WEIR_STEP_ON && taken == 0 && made == 0 && coding.in_left > 0) {
        weir__step_fail(&coding, -EBADMSG, "it does not go on");
        refuse_step(self, &coding);
        result = WEIR_STEP_FAILED;
    }
    return result;
}

/* Fills a buffer: DONE when there is nothing more to fill it with. */
static weir_compressed fill(weir_decompressor *self, weir_buf *in, weir_buf *to)
{
    do {
        if (self->is_ended && !begin_next(self))
            return WEIR_COMPRESSED_REFUSED;
        weir_step result = step(self, in, to);
        if (is_above_limits(self) || result == WEIR_STEP_FAILED)
            return WEIR_COMPRESSED_REFUSED;
        self->was_full = weir_buf_readable(to) == self->room;
        if (result == WEIR_STEP_END) {
            self->is_ended = true;
            self->is_begun = self->was_full = false;
        }
        if (self->was_full)
            return WEIR_COMPRESSED_MORE;
    } while (weir_buf_readable(in) > 0 && weir_buf_readable(to) < self->room);
    return weir_buf_readable(in) > 0 ? WEIR_COMPRESSED_MORE : WEIR_COMPRESSED_DONE;
}

/* As large as what is expected, and no larger than what is still allowed and one byte more, which
 * tells that there is too much. */
static weir_buf *make_room(weir_decompressor *self, size_t in)
{
    const weir_decompression *config = &self->config;
    in = in < MOST_CHUNK ? in * EXPECTED_RATIO : MOST_CHUNK;
    self->room = weir__coding_room(self->room, self->was_full, in, config->chunk_bytes);
    if (config->max_output > 0 && config->max_output - self->out < self->room)
        self->room = (size_t)(config->max_output - self->out) + 1;
    return weir_buf_new(self->room);
}

/* A library may have failed behind bytes that are good: they come first. Beyond a limit none are.
 */
static bool has_good_bytes(const weir_decompressor *self, const weir_buf *buf)
{
    return weir_buf_readable(buf) > 0 && self->error.code != WEIR_ELIMIT;
}

static weir_compressed refused(const weir_decompressor *self, weir_error *error)
{
    if (error != NULL)
        *error = self->error;
    return WEIR_COMPRESSED_REFUSED;
}

weir_compressed weir_decompressor_run(weir_decompressor *self, weir_buf *in, weir_buf **out,
                                      weir_error *error)
{
    *out = NULL;
    if (self->error.code < 0)
        return refused(self, error);
    if (weir_buf_readable(in) == 0 && !self->was_full)
        return WEIR_COMPRESSED_DONE;
    weir_buf *buf = make_room(self, weir_buf_readable(in));
    if (buf == NULL) {
        refuse_memory(self);
        return refused(self, error);
    }
    weir_compressed result = fill(self, in, buf);
    bool has_bytes = has_good_bytes(self, buf);
    if (has_bytes)
        *out = buf;
    else
        weir_buf_release(buf);
    if (result != WEIR_COMPRESSED_REFUSED)
        return result;
    return has_bytes ? WEIR_COMPRESSED_MORE : refused(self, error);
}

int weir_decompressor_finish(const weir_decompressor *self, weir_error *error)
{
    if (self == NULL)
        return -EINVAL;
    if (self->error.code < 0) {
        refused(self, error);
        return self->error.code;
    }
    if (!self->is_begun)
        return 0;
    return weir_error_set(error, WEIR_EOF, "decompressor",
                          "the %s stream is cut off (at byte %" PRIu64 " of the stream)",
                          name_of(self), self->at);
}
