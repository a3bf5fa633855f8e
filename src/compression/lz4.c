/* SPDX-License-Identifier: MIT */
/*
 * LZ4 frames, by its library. That one takes its memory from malloc: the functions that would let
 * it use another allocator are not part of what its shared library promises.
 */
#include "compression/format.h"

#include <weir/alloc.h>

#include <errno.h>
#include <lz4frame.h>
#include <string.h>

/* The library tells its errors apart by their names alone. */
static weir_step fail(weir_coding *coding, size_t result)
{
    const char *name = LZ4F_getErrorName(result);
    return weir__step_fail(coding,
                           strcmp(name, "ERROR_allocation_failed") == 0 ? -ENOMEM : -EBADMSG, name);
}

/* Inflating ------------------------------------------------------------------------------------ */

typedef struct inflater {
    LZ4F_dctx *context;
} inflater;

static int inflater_begin(void *state, weir_compression_format format, unsigned window_bits)
{
    inflater *self = state;
    (void)format;
    (void)window_bits;
    return LZ4F_isError(LZ4F_createDecompressionContext(&self->context, LZ4F_VERSION)) ? -ENOMEM
                                                                                       : 0;
}

static int inflater_again(void *state)
{
    LZ4F_resetDecompressionContext(((inflater *)state)->context);
    return 0;
}

static weir_step inflater_step(void *state, weir_coding *coding)
{
    const inflater *self = state;
    size_t taken = coding->in_left, made = coding->out_left;
    size_t result = LZ4F_decompress(self->context, coding->out, &made, coding->in, &taken, NULL);
    if (LZ4F_isError(result))
        return fail(coding, result);
    if (coding->in != NULL)
        coding->in += taken;
    coding->in_left -= taken;
    coding->out += made;
    coding->out_left -= made;
    return result == 0 ? WEIR_STEP_END : WEIR_STEP_ON;
}

static void inflater_end(void *state)
{
    LZ4F_freeDecompressionContext(((inflater *)state)->context);
}

const weir_inflater_type weir__lz4_inflater = {
    .state_size = sizeof(inflater),
    .is_followed = true,
    .begin = inflater_begin,
    .again = inflater_again,
    .step = inflater_step,
    .end = inflater_end,
};

/* Deflating ------------------------------------------------------------------------------------ */

#define PIECE ((size_t)16 << 10)

/* The library wants room for the worst that can come of what it is given, so it writes to a place
 * of its own, from where it goes on as there is room. */
typedef struct deflater {
    LZ4F_cctx *context;
    LZ4F_preferences_t preferences;
    uint8_t *staged;
    size_t most;
    size_t at, end; /* what is staged */
    bool is_begun, is_ended;
} deflater;

static int deflater_begin(void *state, weir_compression_format format, int level,
                          unsigned window_bits)
{
    deflater *self = state;
    (void)format;
    (void)window_bits;
    self->preferences.compressionLevel = level;
    self->preferences.frameInfo.blockSizeID = LZ4F_max64KB;
    self->preferences.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
    self->most = LZ4F_compressBound(PIECE, &self->preferences);
    self->staged = weir_alloc(self->most);
    if (self->staged == NULL)
        return -ENOMEM;
    return LZ4F_isError(LZ4F_createCompressionContext(&self->context, LZ4F_VERSION)) ? -ENOMEM : 0;
}

/* A frame that is begun forgets the one before. */
static int deflater_again(void *state)
{
    deflater *self = state;
    self->at = self->end = 0;
    self->is_begun = self->is_ended = false;
    return 0;
}

static void unload(deflater *self, weir_coding *coding)
{
    size_t length = self->end - self->at;
    if (length > coding->out_left)
        length = coding->out_left;
    memcpy(coding->out, self->staged + self->at, length);
    self->at += length;
    coding->out += length;
    coding->out_left -= length;
}

/* Stages what comes next; nothing when there is no more to do. */
static size_t stage(deflater *self, weir_coding *coding, weir_compress how)
{
    size_t piece = coding->in_left < PIECE ? coding->in_left : PIECE;
    if (!self->is_begun) {
        self->is_begun = true;
        return LZ4F_compressBegin(self->context, self->staged, self->most, &self->preferences);
    }
    if (piece > 0) {
        size_t result = LZ4F_compressUpdate(self->context, self->staged, self->most, coding->in,
                                            piece, NULL);
        coding->in += piece;
        coding->in_left -= piece;
        return result;
    }
    if (how == WEIR_COMPRESS_FLUSH)
        return LZ4F_flush(self->context, self->staged, self->most, NULL);
    if (how == WEIR_COMPRESS_END && !self->is_ended) {
        self->is_ended = true;
        return LZ4F_compressEnd(self->context, self->staged, self->most, NULL);
    }
    return 0;
}

static weir_step deflater_step(void *state, weir_coding *coding, weir_compress how)
{
    deflater *self = state;
    for (;;) {
        unload(self, coding);
        if (self->at < self->end)
            return WEIR_STEP_ON;
        bool had_more = coding->in_left > 0 || !self->is_begun;
        size_t result = stage(self, coding, how);
        if (LZ4F_isError(result))
            return fail(coding, result);
        self->at = 0;
        self->end = result;
        if (result == 0 && !had_more)
            return WEIR_STEP_END;
    }
}

static void deflater_end(void *state)
{
    deflater *self = state;
    LZ4F_freeCompressionContext(self->context);
    weir_free(self->staged);
}

const weir_deflater_type weir__lz4_deflater = {
    .state_size = sizeof(deflater),
    .most_level = 12,
    .normal_level = 1,
    .begin = deflater_begin,
    .again = deflater_again,
    .step = deflater_step,
    .end = deflater_end,
};
