/* SPDX-License-Identifier: MIT */
/* Frames behind a varint: a byte says how, the rest is the stream. */
#include "decoder.h"

#include <weir/varint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return -1;
    weir_varint varint = { .max_frame = 1 + (data[0] & 0x3f),
                           .oversize = (weir_oversize)(data[0] >> 6) % 3 };
    fuzz_decode(&weir_varint_decoder, &varint, data + 1, size - 1);
    return 0;
}
