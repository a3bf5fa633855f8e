/* SPDX-License-Identifier: MIT */
/* UTF-8: whether bytes are text, however they come. */
#ifndef WEIR_UTF8_H
#define WEIR_UTF8_H

#include <weir/api.h>
#include <weir/decoder.h>

WEIR_BEGIN_DECLS

/** How far a text has been looked at: zeroes at its begin. */
typedef struct weir_utf8 {
    uint8_t left;  /* bytes of the present character that are still to come */
    uint8_t least; /* the next of them lies between these */
    uint8_t most;
} weir_utf8;

/** Looks at the next bytes of a text. 0; or -EILSEQ when they are no UTF-8 (overlong forms,
 * surrogates and what is above U+10FFFF are none), with the place of the first that does not fit in
 * `*at` (may be NULL). A character may end in a later call. Any thread. */
WEIR_API int weir_utf8_check(weir_utf8 *text, const void *bytes, size_t length, size_t *at);

/** Whether the text may end here: not inside a character. */
static inline bool weir_utf8_is_whole(const weir_utf8 *text)
{
    return text->left == 0;
}

/** What is a text for the handler. */
typedef struct weir_utf8_texts {
    bool is_stream; /* all that is read is one text; else each buffer is one, as a framer gives them
                     */
} weir_utf8_texts;

/** Passes buffers on that are UTF-8. What is not is refused with -EILSEQ and the place of the byte
 * that does not fit, and closes the channel; so does a stream that ends inside a character. Add it
 * with a weir_utf8_texts as the argument, which is copied; or NULL: each buffer. */
extern WEIR_API const weir_handler_type weir_utf8_handler;

WEIR_END_DECLS

#endif
