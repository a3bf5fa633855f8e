/* SPDX-License-Identifier: MIT */
/* weir-hexdump: shows a file or standard input as a table of bytes, read into pooled buffers. */
#include "options.h"

#include <weir/weir.h>

#include <errno.h>
#include <stdio.h>

static const char program[] = "weir-hexdump";

/* Reads `in` as pieces of 4 KiB, joined without copying. 0, or a negative code. */
static int read_all(FILE *in, weir_buf *all)
{
    int code = 0;
    while (code == 0 && !feof(in)) {
        weir_buf *piece = weir_buf_new(4096);
        uint8_t *room = weir_buf_write_ptr(piece, 4096);
        size_t length = room != NULL ? fread(room, 1, 4096, in) : 0;
        if (ferror(in))
            code = -errno;
        weir_buf_advance_writer(piece, length);
        /* The call takes ownership of the piece, also when it fails. */
        int added = weir_buf_composite_add(all, piece);
        if (code == 0)
            code = added;
    }
    return code;
}

static int dump(FILE *in, const char *name)
{
    weir_buf *all = weir_buf_new_composite();
    weir_buf *text = weir_buf_new(0);
    int code = read_all(in, all);
    if (code == 0)
        code = weir_buf_hex_dump(all, 0, weir_buf_readable(all), text);
    if (code == 0) {
        /* A buffer that is not a composite is contiguous. */
        size_t length = weir_buf_readable(text);
        fwrite(weir_buf_peek(text, 0, length), 1, length, stdout);
    } else {
        fprintf(stderr, "%s: %s: %s\n", program, name, weir_error_text(code));
    }
    if (all != NULL)
        weir_buf_release(all);
    if (text != NULL)
        weir_buf_release(text);
    return code == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *name = NULL;
    const example_option argument = { "FILE", .text = &name };
    const char *about = "Shows the bytes of a file, or of standard input, as a table.\n";
    example_parse(&(example_command){ program, about, .argument = &argument }, argc, argv);
    FILE *in = name != NULL ? fopen(name, "rb") : stdin;
    if (in == NULL) {
        fprintf(stderr, "%s: %s: %s\n", program, name, weir_error_text(-errno));
        return 1;
    }
    int status = dump(in, name != NULL ? name : "standard input");
    fclose(in);
    return status;
}
