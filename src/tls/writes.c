/* SPDX-License-Identifier: MIT */
/* Writes that wait. */
#include "tls/writes.h"

#include <errno.h>

int weir__tls_writes_add(weir_tls_writes *writes, weir_buf *buf, weir_promise *promise)
{
    const weir_tls_write added = { buf, weir_buf_readable(buf), promise };
    if (writes->list == NULL)
        writes->list = weir_buf_new(sizeof added);
    if (writes->list == NULL || weir_buf_write_bytes(writes->list, &added, sizeof added) < 0)
        return -ENOMEM;
    if (promise != NULL)
        weir_promise_retain(promise);
    writes->bytes += added.length;
    return 0;
}

bool weir__tls_writes_take(weir_tls_writes *writes, weir_tls_write *taken)
{
    if (writes->list == NULL)
        return false;
    bool has_one = weir_buf_read_bytes(writes->list, taken, sizeof *taken) == 0;
    if (has_one)
        writes->bytes -= taken->length;
    if (weir_buf_readable(writes->list) == 0) {
        weir_buf_release(writes->list);
        writes->list = NULL;
    }
    return has_one;
}

size_t weir__tls_writes_count(const weir_tls_writes *writes)
{
    return weir_buf_readable(writes->list) / sizeof(weir_tls_write);
}

void weir__tls_writes_fail(weir_tls_writes *writes, int code)
{
    for (weir_tls_write next; weir__tls_writes_take(writes, &next);) {
        if (next.buf != NULL)
            weir_buf_release(next.buf);
        if (next.promise != NULL)
            weir_promise_set(next.promise, code);
        weir_promise_release(next.promise);
    }
}
