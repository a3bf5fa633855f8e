/* SPDX-License-Identifier: MIT */
/* Brotli, by Google's library. */
#include "compression/format.h"

#include <weir/alloc.h>

#include <brotli/decode.h>
#include <brotli/encode.h>
#include <errno.h>
#include <setjmp.h>
#include <stdalign.h>

static void *brotli_alloc(void *arg, size_t size)
{
    (void)arg;
    return weir_alloc(size);
}

static void brotli_free(void *arg, void *memory)
{
    (void)arg;
    weir_free(memory);
}

/* Inflating ------------------------------------------------------------------------------------ */

typedef struct inflater {
    BrotliDecoderState *decoder;
} inflater;

static void inflater_end(void *state)
{
    inflater *self = state;
    if (self->decoder != NULL)
        BrotliDecoderDestroyInstance(self->decoder);
    self->decoder = NULL;
}

/* It cannot be used twice. */
static int inflater_again(void *state)
{
    inflater *self = state;
    inflater_end(self);
    self->decoder = BrotliDecoderCreateInstance(brotli_alloc, brotli_free, NULL);
    return self->decoder != NULL ? 0 : -ENOMEM;
}

/* Large windows, of up to 1 GiB, are off unless they are asked for, and here nobody does. */
static int inflater_begin(void *state, weir_compression_format format, unsigned window_bits)
{
    (void)format;
    (void)window_bits;
    return inflater_again(state);
}

static bool is_memory(BrotliDecoderErrorCode code)
{
    return code <= BROTLI_DECODER_ERROR_ALLOC_CONTEXT_MODES &&
           code >= BROTLI_DECODER_ERROR_ALLOC_BLOCK_TYPE_TREES;
}

static weir_step inflater_step(void *state, weir_coding *coding)
{
    const inflater *self = state;
    BrotliDecoderResult result = BrotliDecoderDecompressStream(
        self->decoder, &coding->in_left, &coding->in, &coding->out_left, &coding->out, NULL);
    if (result == BROTLI_DECODER_RESULT_SUCCESS)
        return WEIR_STEP_END;
    if (result != BROTLI_DECODER_RESULT_ERROR)
        return WEIR_STEP_ON;
    BrotliDecoderErrorCode code = BrotliDecoderGetErrorCode(self->decoder);
    return weir__step_fail(coding, is_memory(code) ? -ENOMEM : -EBADMSG,
                           BrotliDecoderErrorString(code));
}

const weir_inflater_type weir__brotli_inflater = {
    .state_size = sizeof(inflater),
    .begin = inflater_begin,
    .again = inflater_again,
    .step = inflater_step,
    .end = inflater_end,
};

/* Deflating ------------------------------------------------------------------------------------ */

/*
 * Without memory the library ends the process, unless it was built in another way. So it does not
 * get back from a call that has none: that one jumps out of the library. The encoder cannot be used
 * any more then; all memory that it has is in a list, by which it is freed.
 */
typedef struct block block;
struct block {
    block *next, **link; /* what points to it */
    alignas(max_align_t) uint8_t memory[];
};

typedef struct deflater {
    BrotliEncoderState *encoder; /* NULL: it failed */
    block *blocks;
    jmp_buf *no_memory; /* where to go; during a call of the library */
    uint32_t level, window_bits;
} deflater;

static void *deflater_alloc(void *arg, size_t size)
{
    deflater *self = arg;
    block *made = weir_alloc(sizeof *made + size);
    if (made == NULL)
        longjmp(*self->no_memory, 1);
    made->next = self->blocks;
    made->link = &self->blocks;
    if (made->next != NULL)
        made->next->link = &made->next;
    self->blocks = made;
    return made->memory;
}

static void deflater_free(void *arg, void *memory)
{
    (void)arg;
    if (memory == NULL)
        return;
    block *freed = WEIR_CONTAINER(memory, block, memory);
    *freed->link = freed->next;
    if (freed->next != NULL)
        freed->next->link = freed->link;
    weir_free(freed);
}

static void deflater_end(void *state)
{
    deflater *self = state;
    while (self->blocks != NULL)
        deflater_free(self, self->blocks->memory);
    self->encoder = NULL;
}

static int deflater_again(void *state)
{
    deflater *self = state;
    jmp_buf no_memory;
    deflater_end(self);
    self->no_memory = &no_memory;
    if (setjmp(no_memory) != 0)
        return -ENOMEM;
    self->encoder = BrotliEncoderCreateInstance(deflater_alloc, deflater_free, self);
    BrotliEncoderSetParameter(self->encoder, BROTLI_PARAM_QUALITY, self->level);
    BrotliEncoderSetParameter(self->encoder, BROTLI_PARAM_LGWIN, self->window_bits);
    return 0;
}

static int deflater_begin(void *state, weir_compression_format format, int level,
                          unsigned window_bits)
{
    deflater *self = state;
    (void)format;
    self->level = (uint32_t)level;
    self->window_bits = window_bits;
    return deflater_again(self);
}

static weir_step deflater_step(void *state, weir_coding *coding, weir_compress how)
{
    static const BrotliEncoderOperation operations[] = {
        [WEIR_COMPRESS_SOME] = BROTLI_OPERATION_PROCESS,
        [WEIR_COMPRESS_FLUSH] = BROTLI_OPERATION_FLUSH,
        [WEIR_COMPRESS_END] = BROTLI_OPERATION_FINISH,
    };
    deflater *self = state;
    jmp_buf no_memory;
    self->no_memory = &no_memory;
    if (setjmp(no_memory) != 0) {
        deflater_end(self);
        return weir__step_fail(coding, -ENOMEM, "no memory");
    }
    if (!BrotliEncoderCompressStream(self->encoder, operations[how], &coding->in_left, &coding->in,
                                     &coding->out_left, &coding->out, NULL))
        return weir__step_fail(coding, -EINVAL, "failed");
    return coding->in_left == 0 && !BrotliEncoderHasMoreOutput(self->encoder) ? WEIR_STEP_END
                                                                              : WEIR_STEP_ON;
}

const weir_deflater_type weir__brotli_deflater = {
    .state_size = sizeof(deflater),
    .most_level = BROTLI_MAX_QUALITY,
    .normal_level = 5, /* the library's own, the highest, is for files that are read often */
    .least_bits = BROTLI_MIN_WINDOW_BITS,
    .most_bits = BROTLI_MAX_WINDOW_BITS,
    .normal_bits = BROTLI_DEFAULT_WINDOW,
    .begin = deflater_begin,
    .again = deflater_again,
    .step = deflater_step,
    .end = deflater_end,
};
