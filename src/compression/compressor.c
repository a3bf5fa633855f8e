/* SPDX-License-Identifier: MIT */
/* Compressing. */
#include "compression/format.h"

#include <weir/alloc.h>

#include <errno.h>
#include <stdalign.h>

#define CHUNK ((size_t)64 << 10)

/* With less room zlib cannot tell that a flush is complete, and begins another one. */
#define LEAST_LEFT ((size_t)16)

struct weir_compressor {
    const weir_deflater_type *type;
    weir_compression_format format;
    bool is_ended;
    bool was_full;
    size_t room;
    weir_error error; /* its code is 0 until it refuses */
    alignas(max_align_t) uint8_t state[];
};

static int check(const weir_compression *config, const weir_deflater_type **type, weir_error *error)
{
    if (config == NULL)
        return weir_error_set(error, -EINVAL, "compressor", "there is no config");
    int code = weir__format_deflater(config->format, type, error);
    if (code < 0)
        return code;
    if (config->level < 0 || config->level > (*type)->most_level)
        return weir_error_set(error, -EINVAL, "compressor",
                              "level is %d, but for %s can be from 1 to %d", config->level,
                              weir_compression_name(config->format), (*type)->most_level);
    if (config->window_bits != 0 &&
        (config->window_bits < (*type)->least_bits || config->window_bits > (*type)->most_bits))
        return weir_error_set(error, -EINVAL, "compressor",
                              "window_bits is %u, but for %s can be from %u to %u",
                              config->window_bits, weir_compression_name(config->format),
                              (*type)->least_bits, (*type)->most_bits);
    return 0;
}

int weir_compressor_new(weir_compressor **compressor, const weir_compression *config,
                        weir_error *error)
{
    const weir_deflater_type *type = NULL;
    if (compressor == NULL)
        return -EINVAL;
    *compressor = NULL;
    int code = check(config, &type, error);
    if (code < 0 || type == NULL)
        return code;
    weir_compressor *self = weir_zalloc(sizeof *self + type->state_size);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "compressor", "no memory");
    self->type = type;
    self->format = config->format;
    code = type->begin(self->state, config->format,
                       config->level > 0 ? config->level : type->normal_level,
                       config->window_bits > 0 ? config->window_bits : type->normal_bits);
    if (code < 0) {
        weir_compressor_free(self);
        return weir_error_set(error, code, "compressor", "no memory for %s",
                              weir_compression_name(config->format));
    }
    *compressor = self;
    return 0;
}

void weir_compressor_free(weir_compressor *self)
{
    if (self == NULL)
        return;
    self->type->end(self->state);
    weir_free(self);
}

int weir_compressor_reset(weir_compressor *self)
{
    if (self == NULL)
        return -EINVAL;
    self->is_ended = self->was_full = false;
    self->error.code = 0;
    int code = self->type->again(self->state);
    if (code < 0)
        weir_error_set(&self->error, code, "compressor", "no memory for another stream");
    return code;
}

/* Running -------------------------------------------------------------------------------------- */

static weir_step step(weir_compressor *self, weir_buf *in, weir_compress how, weir_buf *to)
{
    size_t room = self->room - weir_buf_readable(to);
    weir_coding coding = { .out = weir_buf_write_ptr(to, room), .out_left = room };
    weir__coding_take(&coding, in);
    const uint8_t *from = coding.in, *bytes = coding.out;
    if (coding.in_left < weir_buf_readable(in))
        how = WEIR_COMPRESS_SOME; /* more pieces follow */
    weir_step result = self->type->step(self->state, &coding, how);
    size_t made = room - coding.out_left;
    weir__coding_wrote(bytes, made);
    if (from != NULL)
        weir_buf_skip(in, (size_t)(coding.in - from));
    weir_buf_advance_writer(to, made);
    if (result == WEIR_STEP_FAILED)
        weir_error_set(&self->error, coding.code, "compressor", "%s: %s",
                       weir_compression_name(self->format), coding.why);
    return result;
}

static weir_compressed fill(weir_compressor *self, weir_buf *in, weir_compress how, weir_buf *to)
{
    do {
        weir_step result = step(self, in, how, to);
        if (result == WEIR_STEP_FAILED)
            return WEIR_COMPRESSED_REFUSED;
        if (result == WEIR_STEP_END && weir_buf_readable(in) == 0)
            return WEIR_COMPRESSED_DONE;
    } while (self->room - weir_buf_readable(to) >= LEAST_LEFT);
    return WEIR_COMPRESSED_MORE;
}

static weir_compressed refused(const weir_compressor *self, weir_error *error)
{
    if (error != NULL)
        *error = self->error;
    return WEIR_COMPRESSED_REFUSED;
}

weir_compressed weir_compressor_run(weir_compressor *self, weir_buf *in, weir_compress how,
                                    weir_buf **out, weir_error *error)
{
    *out = NULL;
    if (self->error.code == 0 && self->is_ended)
        weir_error_set(&self->error, -EINVAL, "compressor", "the %s stream has ended",
                       weir_compression_name(self->format));
    if (self->error.code < 0)
        return refused(self, error);
    if (weir_buf_readable(in) == 0 && how == WEIR_COMPRESS_SOME && !self->was_full)
        return WEIR_COMPRESSED_DONE;
    self->room = weir__coding_room(self->room, self->was_full, weir_buf_readable(in), CHUNK);
    weir_buf *buf = weir_buf_new(self->room);
    if (buf == NULL) {
        weir_error_set(&self->error, -ENOMEM, "compressor", "no memory for what was compressed");
        return refused(self, error);
    }
    weir_compressed result = fill(self, in, how, buf);
    self->was_full = result == WEIR_COMPRESSED_MORE;
    self->is_ended = result == WEIR_COMPRESSED_DONE && how == WEIR_COMPRESS_END;
    if (result != WEIR_COMPRESSED_REFUSED && weir_buf_readable(buf) > 0)
        *out = buf;
    else
        weir_buf_release(buf);
    return result == WEIR_COMPRESSED_REFUSED ? refused(self, error) : result;
}
