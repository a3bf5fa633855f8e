/* SPDX-License-Identifier: MIT */
/* Compressed streams: the first byte picks the format and the limits, the rest is the stream. */
#include "decoder.h"

#include <weir/compression.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return -1;
    weir_decompression config = {
        .format = (weir_compression_format)(1 + (data[0] & 0x0f) % 6),
        .chunk_bytes = data[0] & 0x10 ? 512 : 0,
        .max_output = data[0] & 0x20 ? 1000 : 20000,
        .max_ratio = data[0] & 0x40 ? 3 : 0,
    };
    if (!weir_compression_has(config.format))
        return -1;
    fuzz_decode_stream(&weir_compression_decoder, &config, data + 1, size - 1);
    return 0;
}
