/* SPDX-License-Identifier: MIT */
/* weir-hexdump: shows a file or standard input as a table of bytes, read into pooled buffers. */
#include <weir/weir.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads all of `in` as pieces of 4 KiB, joined without copying. NULL: no memory, or a read error.
 */
static weir_buf *read_all(FILE *in)
{
    weir_buf *all = weir_buf_new_composite();
    while (all != NULL && !feof(in)) {
        weir_buf *piece = weir_buf_new(4096);
        uint8_t *room = weir_buf_write_ptr(piece, 4096);
        size_t length = room != NULL ? fread(room, 1, 4096, in) : 0;
        weir_buf_advance_writer(piece, length);
        /* The piece goes with the call, whatever that answers. */
        if (weir_buf_composite_add(all, piece) < 0 || ferror(in)) {
            weir_buf_release(all);
            return NULL;
        }
    }
    return all;
}

static int dump(FILE *in, const char *name)
{
    weir_buf *all = read_all(in);
    weir_buf *text = weir_buf_new(0);
    int code = weir_buf_hex_dump(all, 0, weir_buf_readable(all), text);
    if (code == 0) {
        /* The table has grown in one piece, so there is a pointer to all of it. */
        size_t length = weir_buf_readable(text);
        fwrite(weir_buf_peek(text, 0, length), 1, length, stdout);
    } else {
        fprintf(stderr, "weir-hexdump: %s: %s\n", name, weir_error_text(code));
    }
    if (all != NULL)
        weir_buf_release(all);
    if (text != NULL)
        weir_buf_release(text);
    return code == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--help") == 0)) {
        printf("usage: weir-hexdump [FILE]\nShows a file, or standard input, byte by byte.\n");
        return argc > 2 ? 2 : 0;
    }
    if (argc < 2)
        return dump(stdin, "standard input");
    FILE *in = fopen(argv[1], "rb");
    if (in == NULL) {
        perror(argv[1]);
        return 1;
    }
    int status = dump(in, argv[1]);
    fclose(in);
    return status;
}
