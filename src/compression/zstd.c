/* SPDX-License-Identifier: MIT */
/*
 * Zstandard, by its library. That one takes its memory from malloc: the functions that would let it
 * use another allocator are not part of what its shared library promises.
 */
#include "compression/format.h"

#include <errno.h>
#include <zstd.h>
#include <zstd_errors.h>

static weir_step fail(weir_coding *coding, size_t result)
{
    ZSTD_ErrorCode error = ZSTD_getErrorCode(result);
    int code = -EBADMSG;
    if (error == ZSTD_error_memory_allocation)
        code = -ENOMEM;
    else if (error == ZSTD_error_frameParameter_windowTooLarge)
        code = WEIR_ELIMIT;
    return weir__step_fail(coding, code,
                           code == WEIR_ELIMIT ? "its window is larger than window_bits allows"
                                               : ZSTD_getErrorString(error));
}

static ZSTD_inBuffer input_of(const weir_coding *coding)
{
    return (ZSTD_inBuffer){ .src = coding->in, .size = coding->in_left };
}

static ZSTD_outBuffer output_of(const weir_coding *coding)
{
    return (ZSTD_outBuffer){ .dst = coding->out, .size = coding->out_left };
}

static void take_back(weir_coding *coding, const ZSTD_inBuffer *in, const ZSTD_outBuffer *out)
{
    if (coding->in != NULL)
        coding->in += in->pos;
    coding->in_left -= in->pos;
    coding->out += out->pos;
    coding->out_left -= out->pos;
}

/* Inflating ------------------------------------------------------------------------------------ */

enum { MAGIC_BYTES = 4 };

typedef struct inflater {
    ZSTD_DCtx *context;
    bool is_skippable;
    unsigned seen; /* of a frame's first bytes */
} inflater;

/* Memory for the window is taken when a frame's header says how large it is, but not touched before
 * the bytes come. */
static int inflater_begin(void *state, weir_compression_format format, unsigned window_bits)
{
    inflater *self = state;
    (void)format;
    self->context = ZSTD_createDCtx();
    if (self->context == NULL)
        return -ENOMEM;
    size_t result = ZSTD_DCtx_setParameter(self->context, ZSTD_d_windowLogMax, (int)window_bits);
    return ZSTD_isError(result) ? -EINVAL : 0;
}

static int inflater_again(void *state)
{
    inflater *self = state;
    self->seen = 0;
    return ZSTD_isError(ZSTD_DCtx_reset(self->context, ZSTD_reset_session_only)) ? -EINVAL : 0;
}

/* The library may know formats from before the standard, too, to which its limit for the window
 * does not apply. */
static bool is_standard(inflater *self, const weir_coding *coding)
{
    static const uint8_t frame[] = { 0x28, 0xb5, 0x2f, 0xfd },
                         skippable[] = { 0x50, 0x2a, 0x4d, 0x18 };
    for (size_t i = 0; i < coding->in_left && self->seen < MAGIC_BYTES; i++, self->seen++) {
        uint8_t byte = coding->in[i];
        if (self->seen == 0) {
            self->is_skippable = (byte & 0xf0) == skippable[0];
            byte = self->is_skippable ? skippable[0] : byte; /* there are sixteen of them */
        }
        if (byte != (self->is_skippable ? skippable : frame)[self->seen])
            return false;
    }
    return true;
}

static weir_step inflater_step(void *state, weir_coding *coding)
{
    inflater *self = state;
    if (!is_standard(self, coding))
        return weir__step_fail(coding, -EBADMSG, "Unknown frame descriptor");
    ZSTD_inBuffer in = input_of(coding);
    ZSTD_outBuffer out = output_of(coding);
    size_t result = ZSTD_decompressStream(self->context, &out, &in);
    take_back(coding, &in, &out);
    if (ZSTD_isError(result))
        return fail(coding, result);
    return result == 0 ? WEIR_STEP_END : WEIR_STEP_ON;
}

static void inflater_end(void *state)
{
    ZSTD_freeDCtx(((inflater *)state)->context);
}

const weir_inflater_type weir__zstd_inflater = {
    .state_size = sizeof(inflater),
    .least_bits = 10,
    .most_bits = 27,
    .normal_bits = 23,
    .is_followed = true,
    .begin = inflater_begin,
    .again = inflater_again,
    .step = inflater_step,
    .end = inflater_end,
};

/* Deflating ------------------------------------------------------------------------------------ */

typedef struct deflater {
    ZSTD_CCtx *context;
} deflater;

static int deflater_begin(void *state, weir_compression_format format, int level,
                          unsigned window_bits)
{
    deflater *self = state;
    (void)format;
    self->context = ZSTD_createCCtx();
    if (self->context == NULL)
        return -ENOMEM;
    bool has_failed =
        ZSTD_isError(ZSTD_CCtx_setParameter(self->context, ZSTD_c_compressionLevel, level)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(self->context, ZSTD_c_checksumFlag, 1)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(self->context, ZSTD_c_windowLog, (int)window_bits));
    return has_failed ? -EINVAL : 0;
}

static int deflater_again(void *state)
{
    const deflater *self = state;
    return ZSTD_isError(ZSTD_CCtx_reset(self->context, ZSTD_reset_session_only)) ? -EINVAL : 0;
}

static weir_step deflater_step(void *state, weir_coding *coding, weir_compress how)
{
    static const ZSTD_EndDirective directives[] = { [WEIR_COMPRESS_SOME] = ZSTD_e_continue,
                                                    [WEIR_COMPRESS_FLUSH] = ZSTD_e_flush,
                                                    [WEIR_COMPRESS_END] = ZSTD_e_end };
    const deflater *self = state;
    ZSTD_inBuffer in = input_of(coding);
    ZSTD_outBuffer out = output_of(coding);
    size_t result = ZSTD_compressStream2(self->context, &out, &in, directives[how]);
    take_back(coding, &in, &out);
    if (ZSTD_isError(result))
        return fail(coding, result);
    bool is_done = coding->in_left == 0 && (result == 0 || how == WEIR_COMPRESS_SOME);
    return is_done ? WEIR_STEP_END : WEIR_STEP_ON;
}

static void deflater_end(void *state)
{
    ZSTD_freeCCtx(((deflater *)state)->context);
}

const weir_deflater_type weir__zstd_deflater = {
    .state_size = sizeof(deflater),
    .most_level = 19, /* those above want windows that others need not accept */
    .normal_level = 3,
    .least_bits = 10,
    .most_bits = 23,
    .begin = deflater_begin,
    .again = deflater_again,
    .step = deflater_step,
    .end = deflater_end,
};
