/* SPDX-License-Identifier: MIT */
/* Pipes standard input through the handlers that compress, or decompress, to standard output. */
#include <weir/compression.h>
#include <weir/embedded.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pipe_config {
    bool is_decoding;
    weir_compression compression;
    weir_decompression decompression;
} pipe_config;

static int init(weir_channel *channel, void *arg)
{
    pipe_config *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    return self->is_decoding
               ? weir_pipeline_add_last(pipeline, "decoder", &weir_compression_decoder,
                                        &self->decompression)
               : weir_pipeline_add_last(pipeline, "encoder", &weir_compression_encoder,
                                        &self->compression);
}

static void fail(const char *what)
{
    fprintf(stderr, "compression-pipe: %s\n", what);
    exit(1);
}

static void check(weir_embedded *embedded)
{
    weir_error error;
    if (weir_embedded_take_error(embedded, &error))
        fail(error.message);
}

/* What has come out so far. */
static void print(weir_embedded *embedded, bool is_decoding)
{
    static uint8_t bytes[10000];
    weir_msg *msg;
    while ((msg = is_decoding ? weir_embedded_read_inbound(embedded)
                              : weir_embedded_read_outbound(embedded)) != NULL) {
        weir_buf *buf = weir_buf_from_msg(msg);
        size_t length;
        while ((length = weir_buf_readable(buf)) > 0) { /* which may lie in several pieces */
            length = length < sizeof bytes ? length : sizeof bytes;
            weir_buf_read_bytes(buf, bytes, length);
            fwrite(bytes, 1, length, stdout);
        }
        weir_msg_release(msg);
    }
}

static void run(weir_embedded *embedded, bool is_decoding)
{
    static uint8_t bytes[10000];
    size_t length, count = 0;
    while ((length = fread(bytes, 1, sizeof bytes, stdin)) > 0) {
        weir_msg *msg = weir_buf_msg(weir_buf_from(bytes, length));
        if (is_decoding)
            weir_embedded_write_inbound(embedded, msg);
        else
            weir_channel_write(weir_embedded_channel(embedded), msg, NULL);
        weir_embedded_run(embedded);
        if (!is_decoding && ++count % 3 == 0) /* so that there are flushes in the middle */
            weir_embedded_flush(embedded);
        check(embedded);
        print(embedded, is_decoding);
    }
    if (is_decoding)
        weir_embedded_end_inbound(embedded, 0);
    else
        weir_embedded_close(embedded);
    check(embedded);
    print(embedded, is_decoding);
}

int main(int argc, char **argv)
{
    pipe_config self = { .is_decoding = argc > 1 && strcmp(argv[1], "decode") == 0 };
    int format = argc > 2 ? WEIR_COMPRESSION_GZIP : 0;
    while (format > 0 && format <= WEIR_COMPRESSION_LZ4 &&
           strcmp(weir_compression_name((weir_compression_format)format), argv[2]) != 0)
        format++;
    if (format == 0 || format > WEIR_COMPRESSION_LZ4) {
        fprintf(stderr, "usage: compression-pipe encode|decode FORMAT [LEVEL] <IN >OUT\n");
        return 2;
    }
    if (!weir_compression_has((weir_compression_format)format))
        return 3; /* not built in */
    self.compression.format = self.decompression.format = (weir_compression_format)format;
    self.compression.level = argc > 3 ? atoi(argv[3]) : 0;
    self.decompression.max_ratio = WEIR_OFF;
    weir_embedded *embedded;
    weir_error error;
    if (weir_embedded_new(&embedded, &(weir_embedded_config){ .init = init, .arg = &self },
                          &error) < 0)
        fail(error.message);
    check(embedded);
    run(embedded, self.is_decoding);
    weir_embedded_free(embedded);
    return ferror(stdout) || fflush(stdout) != 0 ? 1 : 0;
}
