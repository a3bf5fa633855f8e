/* SPDX-License-Identifier: MIT */
/* A user's program that compresses. Compiles as C and as C++. */
#include <weir/compression.h>
#include <weir/version.h>

#include <stdio.h>

int main(void)
{
    /* All formats, so that a library that is forgotten is missed. */
    for (int format = WEIR_COMPRESSION_GZIP; format <= WEIR_COMPRESSION_LZ4; format++) {
        weir_compression compression = { WEIR__CAST(weir_compression_format, format), 0, 0 };
        weir_decompression decompression = { compression.format, 0, 0, 0, 0 };
        weir_compressor *compressor;
        weir_decompressor *decompressor;
        weir_buf *in = weir_buf_from("weir", 4), *small, *large;
        uint32_t word = 0;
        if (weir_compression_has(compression.format) &&
            (weir_compressor_new(&compressor, &compression, NULL) < 0 ||
             weir_decompressor_new(&decompressor, &decompression, NULL) < 0 ||
             weir_compressor_run(compressor, in, WEIR_COMPRESS_END, &small, NULL) !=
                 WEIR_COMPRESSED_DONE ||
             weir_decompressor_run(decompressor, small, &large, NULL) != WEIR_COMPRESSED_DONE ||
             weir_buf_get_u32(large, 0, &word) < 0 || word != 0x77656972))
            return 1;
    }
    printf("weir %s says %08x\n", weir_version(), 0x77656972u);
    return 0;
}
