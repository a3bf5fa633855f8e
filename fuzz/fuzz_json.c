/* SPDX-License-Identifier: MIT */
/* A stream of JSON objects: a byte says how, the rest is the stream. */
#include "decoder.h"

#include <weir/json.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return -1;
    weir_json json = { .max_length = 1 + (data[0] & 0x7f), .splits_arrays = data[0] & 0x80 };
    fuzz_decode(&weir_json_decoder, &json, data + 1, size - 1);
    return 0;
}
