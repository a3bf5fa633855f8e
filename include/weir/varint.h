/* SPDX-License-Identifier: MIT */
/* Frames behind their length as a varint, as Protocol Buffers have them. */
#ifndef WEIR_VARINT_H
#define WEIR_VARINT_H

#include <weir/api.h>
#include <weir/decoder.h>

WEIR_BEGIN_DECLS

/*
 * The length in groups of seven bits, the lowest first, each but the last with the eighth bit set:
 *
 *      ac 02 | 300 bytes          05 | 5 bytes          00 |
 */
typedef struct weir_varint {
    size_t max_frame;       /* bytes of the frame with its length; required */
    weir_oversize oversize; /* of frames above that */
} weir_varint;

/** Takes buffers, gives each frame without its length as a buffer of its own, without copying. Add
 * it with a weir_varint as the argument, which is copied; one without a limit cannot
 * be added. A length above 32 bits is refused with -EBADMSG. */
extern WEIR_API const weir_handler_type weir_varint_decoder;

/** Puts its length before each buffer that is written. Its argument is not used. */
extern WEIR_API const weir_handler_type weir_varint_prepender;

WEIR_END_DECLS

#endif
