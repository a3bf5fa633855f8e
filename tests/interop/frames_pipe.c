/* SPDX-License-Identifier: MIT */
/* Frames between programs: `frames-pipe decode KIND CHUNK` reads a stream, so many bytes at a time,
 * and prints each frame in it as a line of hexadecimal digits; `frames-pipe encode KIND` does the
 * reverse. */
#include <weir/weir.h>

#include <weir/embedded.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20 };

typedef struct kind {
    const char *name;
    const weir_handler_type *decoder;
    const void *decoding;
    const weir_handler_type *encoder; /* NULL: there is none */
    const void *encoding;
} kind;

#define FIELD(name, bytes, is_little)                                                              \
    {                                                                                              \
        name, &weir_length_field_decoder,                                                          \
            &(const weir_length_field){ .max_frame = MOST,                                         \
                                        .width = (bytes),                                          \
                                        .strip = (bytes),                                          \
                                        .is_little_endian = (is_little) },                         \
            &weir_length_prepender_handler, &(const weir_length_prepender)                         \
        {                                                                                          \
            .width = (bytes), .is_little_endian = (is_little)                                      \
        }                                                                                          \
    }

static const kind kinds[] = {
    FIELD(">B", 1, false),
    FIELD(">H", 2, false),
    FIELD("<H", 2, true),
    FIELD(">I", 4, false),
    FIELD("<I", 4, true),
    FIELD(">Q", 8, false),
    FIELD("<Q", 8, true),
    { "varint", &weir_varint_decoder, &(const weir_varint){ .max_frame = MOST },
      &weir_varint_prepender, NULL },
    { "line", &weir_line_decoder, &(const weir_delimited){ .max_length = MOST }, NULL, NULL },
    { "fixed", &weir_fixed_length_decoder, &(const weir_fixed_length){ .length = 7 }, NULL, NULL },
    { "json", &weir_json_decoder, &(const weir_json){ .max_length = MOST }, NULL, NULL },
    { "base64", &weir_base64_decoder, NULL, &weir_base64_encoder, NULL },
};

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "frames-pipe: %s\n", what);
    exit(1);
}

static weir_embedded *open_channel(const weir_handler_type *type, const void *config)
{
    weir_embedded *embedded;
    if (type == NULL || weir_embedded_new(&embedded, NULL, NULL) < 0 ||
        weir_pipeline_add_last(weir_embedded_pipeline(embedded), "codec", type, (void *)config) < 0)
        fail("there is no such codec");
    return embedded;
}

static void check(weir_embedded *embedded)
{
    weir_error error;
    if (weir_embedded_take_error(embedded, &error))
        fail(error.message);
}

static void print_frames(weir_embedded *embedded)
{
    for (weir_msg *msg; (msg = weir_embedded_read_inbound(embedded)) != NULL;) {
        weir_buf *frame = weir_buf_from_msg(msg);
        for (uint8_t byte; weir_buf_read_u8(frame, &byte) == 0;)
            printf("%02x", byte);
        putchar('\n');
        weir_msg_release(msg);
    }
    check(embedded);
}

static void decode(const kind *self, size_t chunk)
{
    weir_embedded *embedded = open_channel(self->decoder, self->decoding);
    char *bytes = malloc(chunk);
    for (size_t count; bytes != NULL && (count = fread(bytes, 1, chunk, stdin)) > 0;) {
        weir_embedded_write_inbound_bytes(embedded, bytes, count);
        print_frames(embedded);
    }
    weir_embedded_end_inbound(embedded, 0);
    print_frames(embedded);
    free(bytes);
    weir_embedded_free(embedded);
}

static weir_buf *from_digits(const char *line)
{
    size_t length = strcspn(line, "\n") / 2;
    weir_buf *bytes = weir_buf_new(length);
    for (size_t i = 0; i < length; i++) {
        char digits[3] = { line[2 * i], line[2 * i + 1] };
        weir_buf_write_u8(bytes, (uint8_t)strtoul(digits, NULL, 16));
    }
    return bytes;
}

static void encode(const kind *self)
{
    weir_embedded *embedded = open_channel(self->encoder, self->encoding);
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        weir_embedded_write_outbound(embedded, weir_buf_msg(from_digits(line)));
        check(embedded);
        uint8_t bytes[4096];
        for (size_t count;
             (count = weir_embedded_read_outbound_bytes(embedded, bytes, sizeof bytes)) > 0;)
            fwrite(bytes, 1, count, stdout);
    }
    free(line);
    weir_embedded_free(embedded);
}

int main(int argc, char **argv)
{
    const kind *found = NULL;
    for (size_t i = 0; argc > 2 && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, argv[2]) == 0)
            found = &kinds[i];
    }
    if (found != NULL && argc == 4 && strcmp(argv[1], "decode") == 0 && atoi(argv[3]) > 0)
        decode(found, (size_t)atoi(argv[3]));
    else if (found != NULL && argc == 3 && strcmp(argv[1], "encode") == 0)
        encode(found);
    else
        fail("usage: frames-pipe decode KIND CHUNK | encode KIND");
    return 0;
}
