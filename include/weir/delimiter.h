/* SPDX-License-Identifier: MIT */
/* Frames that end with certain bytes: lines, and whatever has delimiters. */
#ifndef WEIR_DELIMITER_H
#define WEIR_DELIMITER_H

#include <weir/api.h>
#include <weir/decoder.h>

WEIR_BEGIN_DECLS

/** The bytes that end a frame. */
typedef struct weir_delimiter {
    const char *bytes;
    size_t length;
} weir_delimiter;

/** One that is a string literal. */
#define WEIR_DELIMITER(literal)                                                                    \
    {                                                                                              \
        "" literal, sizeof(literal) - 1                                                            \
    }

/** How frames end. Of several delimiters that counts which is complete first, and of those that are
 * complete with the same byte the longest. */
typedef struct weir_delimited {
    size_t max_length; /* of a frame without its end; required */
    const weir_delimiter *ends;
    size_t end_count;
    bool keeps_end;         /* the end is passed on with the frame */
    bool ends_with_stream;  /* what is behind the last end is a frame, too, unless it is empty */
    weir_oversize oversize; /* of frames above max_length */
} weir_delimited;

/** Takes buffers, gives each frame as a buffer of its own, without copying. Add it with a
 * weir_delimited as the argument, which is copied with its ends; one without a limit or without
 * ends cannot be added. */
extern WEIR_API const weir_handler_type weir_delimiter_decoder;

/** The same for lines, which end with LF or CRLF: of the weir_delimited the ends are not looked at.
 */
extern WEIR_API const weir_handler_type weir_line_decoder;

WEIR_END_DECLS

#endif
