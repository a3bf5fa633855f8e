/* SPDX-License-Identifier: MIT */
/* A stream of JSON objects and arrays, one after the other. */
#ifndef WEIR_JSON_H
#define WEIR_JSON_H

#include <weir/api.h>
#include <weir/decoder.h>

WEIR_BEGIN_DECLS

/** How a stream of JSON is split. */
typedef struct weir_json {
    size_t max_length;  /* of one; required */
    bool splits_arrays; /* the elements of an array at the top are passed on, one by one, instead of
                           it */
} weir_json;

/** Takes buffers, gives each object or array as a buffer of its own, without copying. It looks for
 * their ends only: brackets outside of strings are counted, and whether the rest is JSON is for
 * whoever parses it. Space between them is skipped; what begins otherwise is refused with -EBADMSG.
 * Add it with a weir_json as the argument, which is copied; one without a limit
 * cannot be added. */
extern WEIR_API const weir_handler_type weir_json_decoder;

WEIR_END_DECLS

#endif
