/* SPDX-License-Identifier: MIT */
/* Frames that say how long they are: five bytes say how, the rest is the stream. */
#include "decoder.h"

#include <weir/length_field.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned widths[] = { 1, 2, 3, 4, 8 };
    enum { CONFIG = 5 };
    if (size < CONFIG)
        return -1;
    weir_length_field field = {
        .max_frame = 8 + data[0] % 64u,
        .offset = data[1] % 8u,
        .width = widths[data[2] % 5],
        .adjustment = (int8_t)data[3],
        .strip = data[4] % 16u,
        .is_little_endian = data[2] & 0x80,
        .oversize = (weir_oversize)(data[1] >> 4) % 3,
    };
    if (field.offset + field.width > field.max_frame || field.strip > field.max_frame)
        return -1;
    fuzz_decode(&weir_length_field_decoder, &field, data + CONFIG, size - CONFIG);
    return 0;
}
