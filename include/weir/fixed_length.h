/* SPDX-License-Identifier: MIT */
/* Frames that are all as long. */
#ifndef WEIR_FIXED_LENGTH_H
#define WEIR_FIXED_LENGTH_H

#include <weir/api.h>
#include <weir/decoder.h>

WEIR_BEGIN_DECLS

/** The length of the frames. */
typedef struct weir_fixed_length {
    size_t length; /* from 1 on */
} weir_fixed_length;

/** Takes buffers, gives buffers of exactly that many bytes, without copying. Add it with a
 * weir_fixed_length as the argument, which is copied; without a length it cannot be
 * added. */
extern WEIR_API const weir_handler_type weir_fixed_length_decoder;

WEIR_END_DECLS

#endif
