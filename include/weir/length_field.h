/* SPDX-License-Identifier: MIT */
/* Frames that say how long they are: the decoder, and the encoder that says it. */
#ifndef WEIR_LENGTH_FIELD_H
#define WEIR_LENGTH_FIELD_H

#include <weir/api.h>
#include <weir/decoder.h>

WEIR_BEGIN_DECLS

/*
 *      |   offset   |  width  |              value + adjustment              |
 *      +------------+---------+----------------------------------------------+
 *      |   header   |  value  |            the rest of the frame             |
 *      +------------+---------+----------------------------------------------+
 *      |       strip: not passed on       |      what the next handler gets   |
 *
 * Layouts, for a body of 12 bytes (BODY), and what the next handler gets:
 *
 *   bytes                  the length is that of    offset width adjust. strip  gets
 *   00 0c BODY             the body                      0     2      0      0  14 bytes
 *   00 0c BODY             the body                      0     2      0      2  BODY
 *   00 0e BODY             the frame                     0     2     -2      0  14 bytes
 *   ca fe 00 00 0c BODY    the body                      2     3      0      0  17 bytes
 *   00 00 0c ca fe BODY    the body, behind a header     0     3      2      0  17 bytes
 *   ca 00 0c fe BODY       the body, behind a byte       1     2      1      3  fe BODY
 *   ca 00 10 fe BODY       the frame                     1     2     -3      3  fe BODY
 */
typedef struct weir_length_field {
    size_t max_frame;   /* bytes of the whole frame; required */
    size_t offset;      /* where the length is */
    unsigned width;     /* in bytes: 1, 2, 3, 4 or 8; 0: 4 */
    int64_t adjustment; /* what is added to the value to get the number of bytes behind it */
    size_t strip;       /* bytes at the begin of the frame that are not passed on */
    bool is_little_endian;
    weir_oversize oversize; /* of frames above max_frame */
} weir_length_field;

/** Takes buffers, gives each frame as a buffer of its own, without copying. Add it with a
 * weir_length_field as the argument, which is copied; one that makes no sense
 * cannot be added. A length that is negative, too small for the frame's own header, or overflows,
 * is refused with -EBADMSG. */
extern WEIR_API const weir_handler_type weir_length_field_decoder;

/** What the prepender writes. */
typedef struct weir_length_prepender {
    unsigned width;     /* 1, 2, 3, 4 or 8; 0: 4 */
    int64_t adjustment; /* is added to the length of the message */
    bool counts_itself; /* so is the width */
    bool is_little_endian;
} weir_length_prepender;

/** Puts its length before each buffer that is written. A length that is negative or does not fit
 * the width fails the write with -EMSGSIZE. Add it with a weir_length_prepender, which is
 * copied. */
extern WEIR_API const weir_handler_type weir_length_prepender_handler;

WEIR_END_DECLS

#endif
