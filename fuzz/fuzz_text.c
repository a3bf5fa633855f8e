/* SPDX-License-Identifier: MIT */
/* UTF-8 and Base64: what they say of bytes does not depend on how those come, and what was decoded
 * is encoded to the same again. */
#include "fuzz.h"

#include <weir/base64.h>
#include <weir/utf8.h>

#include <stdlib.h>
#include <string.h>

static void check_utf8(const uint8_t *bytes, size_t length)
{
    weir_utf8 whole = { 0 }, single = { 0 };
    size_t wrong_at = length, at = 0;
    int code = weir_utf8_check(&whole, bytes, length, &wrong_at);
    while (at < length && weir_utf8_check(&single, bytes + at, 1, NULL) == 0)
        at++;
    if (at != wrong_at || (code < 0) != (at < length) ||
        (code == 0 && weir_utf8_is_whole(&whole) != weir_utf8_is_whole(&single)))
        abort();
}

static void check_base64(const uint8_t *text, size_t length, const weir_base64 *config)
{
    weir_buf *bytes = weir_buf_new(0), *again = weir_buf_new(0);
    size_t at = 0;
    int code = weir_base64_decode(config, text, length, bytes, &at);
    if (code < 0 && (at > length || weir_buf_readable(bytes) > 0))
        abort();
    if (code == 0) {
        /* Padding that may be missing may be there as well. */
        weir_base64 padded = { config->is_url_safe, config->has_no_padding && length % 4 != 0 };
        size_t count = weir_buf_readable(bytes);
        if (weir_base64_encode(&padded, weir_buf_peek(bytes, 0, count), count, again) < 0 ||
            weir_buf_readable(again) != length ||
            memcmp(weir_buf_peek(again, 0, length), text, length) != 0)
            abort();
    }
    weir_buf_release(bytes);
    weir_buf_release(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return -1;
    check_utf8(data + 1, size - 1);
    check_base64(data + 1, size - 1, &(weir_base64){ data[0] & 1, data[0] & 2 });
    return 0;
}
