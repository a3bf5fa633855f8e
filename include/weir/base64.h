/* SPDX-License-Identifier: MIT */
/* Base64: bytes as text (RFC 4648). */
#ifndef WEIR_BASE64_H
#define WEIR_BASE64_H

#include <weir/api.h>
#include <weir/buf.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/** Which alphabet, and whether padding is used. */
typedef struct weir_base64 {
    bool is_url_safe;    /* '-' and '_' instead of '+' and '/' */
    bool has_no_padding; /* without '=' at the end; when reading: it may be missing */
} weir_base64;

/** Appends bytes as text; NULL for a config: the ordinary one. Fails as weir_buf_write_bytes. */
WEIR_API int weir_base64_encode(const weir_base64 *config, const void *bytes, size_t length,
                                weir_buf *out);

/** Appends the bytes that a text stands for. -EBADMSG when it is none, with the place of the first
 * character that does not fit in `*at` (may be NULL), the length when it ends too early: nothing
 * but the alphabet and the padding is taken, and bits that stand for nothing must be 0, so that
 * each text is the only one for its bytes. Nothing has been appended then. */
WEIR_API int weir_base64_decode(const weir_base64 *config, const void *text, size_t length,
                                weir_buf *out, size_t *at);

/** A buffer that is written goes on as text; and a buffer that is read, whose bytes are a text (as
 * a framer gives it), as what it stands for; one that is no text closes the channel. Add them with
 * a weir_base64 as the argument, which is copied, or NULL. */
extern WEIR_API const weir_handler_type weir_base64_encoder;
extern WEIR_API const weir_handler_type weir_base64_decoder;

WEIR_END_DECLS

#endif
