/* SPDX-License-Identifier: MIT */
/* Frames that end with certain bytes: two bytes say how, the rest is the stream. */
#include "decoder.h"

#include <weir/delimiter.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const weir_delimiter ends[] = { WEIR_DELIMITER(";"), WEIR_DELIMITER("ab"),
                                           WEIR_DELIMITER("aab"), WEIR_DELIMITER("aaaaab"),
                                           WEIR_DELIMITER("\0\0") };
    enum { CONFIG = 2 };
    if (size < CONFIG)
        return -1;
    weir_delimited frames = {
        .max_length = 1 + data[0] % 32u,
        .ends = ends + data[1] % 5,
        .end_count = 5 - data[1] % 5u,
        .keeps_end = data[1] & 0x80,
        .ends_with_stream = data[1] & 0x40,
        .oversize = (weir_oversize)(data[0] >> 5) % 3,
    };
    fuzz_decode(data[1] & 0x20 ? &weir_line_decoder : &weir_delimiter_decoder, &frames,
                data + CONFIG, size - CONFIG);
    return 0;
}
