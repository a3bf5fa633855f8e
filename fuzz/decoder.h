/* SPDX-License-Identifier: MIT */
/* What the targets of decoders share: the same must come of an input however it is cut. */
#ifndef WEIR_FUZZ_DECODER_H
#define WEIR_FUZZ_DECODER_H

#include "fuzz.h"

#include <weir/channel.h>
#include <weir/pool.h>
#include <weir/verifier.h>

#include <stdio.h>
#include <stdlib.h>

typedef struct fuzz_decoder {
    const weir_handler_type *type;
    const void *config;
} fuzz_decoder;

static inline int fuzz_add_decoder(weir_channel *channel, void *arg)
{
    const fuzz_decoder *self = arg;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "decoder", self->type,
                                  (void *)self->config);
}

/* Aborts when two ways to feed it do not come to the same, or something is left alive. */
static inline void fuzz_run_verifier(weir_verifier_config verified)
{
    weir_error error;
    weir_pool_stats before, after;
    weir_pool_get_stats(&before);
    verified.random_cuts = 2;
    verified.seed = verified.length;
    verified.is_brief = true;
    int code = weir_verify(&verified, NULL, &error);
    weir_pool_get_stats(&after);
    if (code == 0 && before.used_blocks == after.used_blocks)
        return;
    fprintf(stderr, "%s\n", code < 0 ? error.message : "blocks of the pool are left");
    abort();
}

/* Of messages; the handler "decoder" is the one whose cost is looked at. */
static inline void fuzz_verify(weir_init_fn init, void *arg, const uint8_t *bytes, size_t length)
{
    fuzz_run_verifier((weir_verifier_config){
        .init = init, .arg = arg, .input = bytes, .length = length, .decoder = "decoder" });
}

/* The same for a decoder alone. */
static inline void fuzz_decode(const weir_handler_type *type, const void *config,
                               const uint8_t *bytes, size_t length)
{
    fuzz_decoder self = { type, config };
    fuzz_verify(fuzz_add_decoder, &self, bytes, length);
}

/* The same for one of a stream, which is no weir_decoder. */
static inline void fuzz_decode_stream(const weir_handler_type *type, const void *config,
                                      const uint8_t *bytes, size_t length)
{
    fuzz_decoder self = { type, config };
    fuzz_run_verifier((weir_verifier_config){ .init = fuzz_add_decoder,
                                              .arg = &self,
                                              .input = bytes,
                                              .length = length,
                                              .is_stream = true });
}

#endif
