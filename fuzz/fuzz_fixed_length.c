/* SPDX-License-Identifier: MIT */
/* Frames that are all as long, or a stream of text: a byte says how, the rest is the stream. */
#include "decoder.h"

#include <weir/fixed_length.h>
#include <weir/utf8.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const weir_utf8_texts stream = { .is_stream = true };
    if (size < 1)
        return -1;
    weir_fixed_length fixed = { .length = data[0] };
    if (fixed.length > 0)
        fuzz_decode(&weir_fixed_length_decoder, &fixed, data + 1, size - 1);
    else
        fuzz_decode_stream(&weir_utf8_handler, &stream, data + 1, size - 1);
    return 0;
}
