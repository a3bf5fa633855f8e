/* SPDX-License-Identifier: MIT */
/* Views of the same storage, and copies with storage of their own. */
#include "buf/buf.h"
#include "buf/composite.h"

#include <string.h>
#include <sys/uio.h>

int weir_buf_slice(const weir_buf *buf, size_t index, size_t length, weir_buf *slice)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0 || slice == NULL)
        return code < 0 ? code : -EINVAL;
    weir_buf view = {
        .msg = { .type = &weir_buf_type }, /* no reference: dead to retain and release */
        .block = buf->block,
        .flags = buf->flags | WEIR__BUF_BORROWED,
        .capacity = (uint32_t)length,
        .limit = (uint32_t)length,
        .writer = (uint32_t)length,
    };
    if (buf->flags & WEIR__BUF_COMPOSITE)
        view.offset = buf->offset + (uint32_t)index;
    else
        view.data = buf->data + index;
    memcpy(slice, &view, sizeof view);
    return 0;
}

/* A buffer in `home` over content of one that is no composite. */
static inline weir_buf *init_view(weir_block *home, const weir_buf *buf, size_t index,
                                  size_t length)
{
    weir_buf *view = &home->buf;
    weir__block_retain(buf->block);
    *view = (weir_buf){
        .data = buf->data + index,
        .block = buf->block,
        .writer = (uint32_t)length,
        .capacity = (uint32_t)length,
        .limit = (uint32_t)length,
        .flags = buf->flags & WEIR__BUF_READ_ONLY,
    };
    weir_msg_init(&view->msg, &weir_buf_type);
    return view;
}

WEIR__BESIDE static weir_buf *view_slow(const weir_buf *buf, size_t index, size_t length)
{
    weir_block *home = weir__block_new_slow(0);
    return home != NULL ? init_view(home, buf, index, length) : NULL;
}

WEIR__HOT weir_buf *weir__buf_view(const weir_buf *buf, size_t index, size_t length)
{
    weir_block *home = weir__block_cached(0);
    return home != NULL ? init_view(home, buf, index, length) : view_slow(buf, index, length);
}

static int composite_slice(const weir_buf *buf, size_t index, size_t length, weir_buf **slice)
{
    weir_buf *view = NULL;
    int code = weir__composite_view(buf, index, length, true, &view);
    if (code < 0)
        return code;
    view->writer = view->limit = (uint32_t)length;
    *slice = view;
    return 0;
}

int weir_buf_retained_slice(const weir_buf *buf, size_t index, size_t length, weir_buf **slice)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0 || slice == NULL)
        return code < 0 ? code : -EINVAL;
    if (buf->flags & WEIR__BUF_COMPOSITE)
        return composite_slice(buf, index, length, slice);
    *slice = weir__buf_view(buf, index, length);
    return *slice != NULL ? 0 : -ENOMEM;
}

int weir_buf_read_slice(weir_buf *buf, size_t length, weir_buf **slice)
{
    int code = weir_buf_retained_slice(buf, weir_buf_reader(buf), length, slice);
    if (code == 0)
        buf->reader += (uint32_t)length;
    return code;
}

int weir_buf_duplicate(const weir_buf *buf, weir_buf **duplicate)
{
    if (buf == NULL || duplicate == NULL)
        return -EINVAL;
    weir_buf *view = NULL;
    int code = 0;
    if (buf->flags & WEIR__BUF_COMPOSITE)
        code = weir__composite_view(buf, 0, buf->writer, false, &view);
    else if ((view = weir__buf_view(buf, 0, buf->writer)) == NULL)
        code = -ENOMEM;
    if (code < 0)
        return code;
    view->reader = buf->reader;
    view->writer = buf->writer;
    view->limit = buf->limit;
    view->reader_mark = buf->reader_mark;
    view->writer_mark = buf->writer_mark;
    *duplicate = view;
    return 0;
}

int weir_buf_read_only(const weir_buf *buf, weir_buf **view)
{
    int code = weir_buf_duplicate(buf, view);
    if (code == 0)
        (*view)->flags |= WEIR__BUF_READ_ONLY;
    return code;
}

int weir_buf_copy(const weir_buf *buf, size_t index, size_t length, weir_buf **copy)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0 || copy == NULL)
        return code < 0 ? code : -EINVAL;
    weir_buf *made = weir_buf_new(length);
    if (made == NULL)
        return -ENOMEM;
    weir_buf_get_bytes(buf, index, made->data, length);
    made->writer = (uint32_t)length;
    *copy = made;
    return 0;
}

int weir_buf_iovec(const weir_buf *buf, size_t index, size_t length, struct iovec *iov, int max,
                   size_t *covered)
{
    int code = weir__buf_check(buf, index, length);
    if (code < 0)
        return code;
    if (iov == NULL || max < 0)
        return -EINVAL;
    int count = 0;
    size_t start = index, end = index + length;
    while (index < end && count < max) {
        weir_run run = weir__buf_run(buf, index, end - index);
        iov[count++] = (struct iovec){ run.bytes, run.length };
        index += run.length;
    }
    if (covered != NULL)
        *covered = index - start;
    return count;
}
