/* SPDX-License-Identifier: MIT */
/* Buffers: making them, their indices, and their room. */
#include "buf/buf.h"

#include "base/leak.h"
#include "buf/composite.h"

#include <string.h>

#define GROWTH_STEP ((size_t)4 << 20)

/* Making ------------------------------------------------------------------------------------ */

static size_t buf_size(const weir_msg *msg)
{
    return weir_buf_readable((const weir_buf *)msg);
}

__attribute__((noinline)) static void destroy_slow(weir_buf *buf)
{
    weir_block *home = weir__buf_home(buf);
    if (buf->flags & WEIR__BUF_COMPOSITE)
        weir__composite_clear(buf);
    if (buf->block != home)
        weir__block_release(buf->block);
    weir__block_release(home);
}

/* The usual buffers, which are alone in their block or views on loan, end with one release. */
WEIR__HOT static void buf_destroy(weir_msg *msg)
{
    weir_buf *buf = (weir_buf *)msg;
    weir_block *home = weir__buf_home(buf);
    if (buf->flags & WEIR__BUF_COMPOSITE || (buf->block != home && !weir__loan_return(buf->block)))
        destroy_slow(buf);
    else
        weir__block_release(home);
}

const weir_msg_type weir_buf_type = { "buf", buf_size, buf_destroy };

weir_buf *weir__buf_init(weir_block *home, weir_block *storage, uint8_t *data, size_t capacity,
                         uint32_t flags)
{
    weir_buf *buf = &home->buf;
    buf->data = data;
    buf->block = storage;
    buf->reader = buf->writer = 0;
    buf->capacity = (uint32_t)capacity;
    buf->limit = (uint32_t)WEIR_BUF_MAX;
    buf->reader_mark = buf->writer_mark = 0;
    buf->flags = flags;
    buf->offset = 0;
    weir_msg_init(&buf->msg, &weir_buf_type);
    return buf;
}

/* A block that is too large for the pool goes to the system when it is released, and a second
 * release of a buffer inside it could not be told any more. So such a buffer lives in a small block
 * of its own. */
__attribute__((noinline)) static weir_buf *new_large(size_t capacity)
{
    weir_block *home = weir__block_new(0);
    if (home == NULL)
        return NULL;
    weir_block *storage = weir__block_new(capacity);
    if (storage == NULL) {
        weir__block_release(home);
        return NULL;
    }
    return weir__buf_init(home, storage, storage->bytes, capacity, 0);
}

static inline __attribute__((always_inline)) weir_buf *new_buf(size_t capacity)
{
    if (__builtin_expect(capacity > WEIR__LARGEST_POOLED, 0))
        return new_large(capacity);
    weir_block *block = weir__block_new(capacity);
    return block != NULL ? weir__buf_init(block, block, block->bytes, capacity, 0) : NULL;
}

WEIR__HOT weir_buf *weir_buf_new(size_t capacity)
{
    return new_buf(capacity);
}

WEIR__HOT weir_buf *weir_buf_from(const void *bytes, size_t length)
{
    if (bytes == NULL && length > 0)
        return NULL;
    weir_buf *buf = new_buf(length);
    if (buf != NULL && length > 0) {
        memcpy(buf->data, bytes, length);
        buf->writer = (uint32_t)length;
    }
    return buf;
}

weir_buf *weir_buf_wrap(void *memory, size_t length, weir_buf_free_fn free_fn, void *arg)
{
    if (memory == NULL || length > WEIR_BUF_MAX)
        return NULL;
    weir_block *block = weir__block_new(sizeof(weir_wrapped));
    if (block == NULL)
        return NULL;
    block->wraps = true;
    *(weir_wrapped *)block->bytes = (weir_wrapped){ free_fn, arg, memory };
    weir_buf *buf = weir__buf_init(block, block, memory, length, 0);
    buf->writer = (uint32_t)length;
    return buf;
}

weir_buf *weir_buf_wrap_const(const void *bytes, size_t length)
{
    weir_buf *buf = weir_buf_wrap((void *)bytes, length, NULL, NULL);
    if (buf != NULL)
        buf->flags |= WEIR__BUF_READ_ONLY;
    return buf;
}

weir_block *weir__buf_take_storage(weir_buf *buf)
{
    weir_block *storage = buf->block;
    weir_block *home = weir__buf_home(buf);
    /* Acquire, as in weir_msg_release: what others did with the buffer is done. */
    if (atomic_load_explicit(&buf->msg.refs, memory_order_acquire) != 1 || storage != home) {
        weir__block_retain(storage);
        weir_buf_release(buf);
        return storage;
    }
    /* The usual case, without a locked instruction: the buffer's reference becomes the caller's. */
    atomic_store_explicit(&buf->msg.refs, 0, memory_order_relaxed);
    weir__leak_died(buf->msg.track);
    return storage;
}

/* Indices ----------------------------------------------------------------------------------- */

int weir_buf_set_reader(weir_buf *buf, size_t index)
{
    if (buf == NULL)
        return -EINVAL;
    if (index > buf->writer)
        return WEIR_EBOUNDS;
    buf->reader = (uint32_t)index;
    return 0;
}

int weir_buf_set_writer(weir_buf *buf, size_t index)
{
    if (buf == NULL)
        return -EINVAL;
    if (index < buf->reader || index > buf->capacity)
        return WEIR_EBOUNDS;
    buf->writer = (uint32_t)index;
    return 0;
}

int weir_buf_skip(weir_buf *buf, size_t length)
{
    int code = weir__buf_check(buf, weir_buf_reader(buf), length);
    if (code == 0)
        buf->reader += (uint32_t)length;
    return code;
}

int weir_buf_advance_writer(weir_buf *buf, size_t length)
{
    if (buf == NULL)
        return -EINVAL;
    if (length > buf->capacity - buf->writer)
        return WEIR_EBOUNDS;
    buf->writer += (uint32_t)length;
    return 0;
}

int weir_buf_clear(weir_buf *buf)
{
    if (buf == NULL)
        return -EINVAL;
    buf->reader = buf->writer = 0;
    buf->reader_mark = buf->writer_mark = 0;
    return 0;
}

int weir_buf_mark_reader(weir_buf *buf)
{
    if (buf == NULL)
        return -EINVAL;
    buf->reader_mark = buf->reader;
    return 0;
}

int weir_buf_reset_reader(weir_buf *buf)
{
    return buf != NULL ? weir_buf_set_reader(buf, buf->reader_mark) : -EINVAL;
}

int weir_buf_mark_writer(weir_buf *buf)
{
    if (buf == NULL)
        return -EINVAL;
    buf->writer_mark = buf->writer;
    return 0;
}

int weir_buf_reset_writer(weir_buf *buf)
{
    return buf != NULL ? weir_buf_set_writer(buf, buf->writer_mark) : -EINVAL;
}

/* Runs -------------------------------------------------------------------------------------- */

weir_run weir__buf_run(const weir_buf *buf, size_t index, size_t length)
{
    weir_run run = buf->flags & WEIR__BUF_COMPOSITE
                       ? weir__composite_run(buf, index)
                       : (weir_run){ buf->data + index, buf->capacity - index };
    if (run.length > length)
        run.length = length;
    return run;
}

weir_run weir__buf_run_before(const weir_buf *buf, size_t end, size_t length)
{
    weir_run run = buf->flags & WEIR__BUF_COMPOSITE ? weir__composite_run_before(buf, end)
                                                    : (weir_run){ buf->data, end };
    if (run.length > length) {
        run.bytes += run.length - length;
        run.length = length;
    }
    return run;
}

const uint8_t *weir_buf_peek(const weir_buf *buf, size_t index, size_t length)
{
    if (weir__buf_check(buf, index, length) < 0)
        return NULL;
    if (length == 0)
        return (const uint8_t *)""; /* any address will do, but NULL means no */
    weir_run run = weir__buf_run(buf, index, length);
    return run.length == length ? run.bytes : NULL;
}

/* Room -------------------------------------------------------------------------------------- */

bool weir__buf_owns_storage(const weir_buf *buf)
{
    return !(buf->flags & WEIR__BUF_BORROWED) && !buf->block->wraps &&
           !weir__block_is_shared(buf->block);
}

size_t weir__buf_grown(size_t needed, size_t limit)
{
    size_t grown;
    if (needed <= 64)
        grown = 64;
    else if (needed <= GROWTH_STEP)
        grown = (size_t)1 << (64 - __builtin_clzll(needed - 1));
    else /* by a quarter, so that filling a large buffer piece by piece copies each byte a few times
          */
        grown = (needed + needed / 4 + GROWTH_STEP - 1) / GROWTH_STEP * GROWTH_STEP;
    return grown < limit ? grown : limit;
}

/* Gives a contiguous buffer `capacity` bytes, not below its writer. */
static int grow_storage(weir_buf *buf, size_t capacity)
{
    if (buf->flags & WEIR__BUF_BORROWED)
        return WEIR_ELIMIT;
    if (weir__buf_owns_storage(buf) &&
        capacity <= (size_t)(buf->block->bytes + buf->block->room - buf->data)) {
        buf->capacity = (uint32_t)capacity;
        return 0;
    }
    weir_block *block = weir__block_new(capacity);
    if (block == NULL)
        return -ENOMEM;
    memcpy(block->bytes, buf->data, buf->writer);
    /* The home stays whatever happens to the storage: the buffer itself lives there. */
    if (buf->block != weir__buf_home(buf))
        weir__block_release(buf->block);
    buf->block = block;
    buf->data = block->bytes;
    buf->capacity = (uint32_t)capacity;
    return 0;
}

int weir_buf_ensure_writable(weir_buf *buf, size_t length)
{
    if (buf == NULL)
        return -EINVAL;
    if (buf->flags & WEIR__BUF_READ_ONLY)
        return WEIR_EREADONLY;
    if (length > buf->limit - buf->writer)
        return WEIR_ELIMIT;
    if (buf->flags & WEIR__BUF_COMPOSITE)
        return weir__composite_ensure_writable(buf, length);
    if (length <= buf->capacity - buf->writer)
        return 0;
    return grow_storage(buf, weir__buf_grown(buf->writer + length, buf->limit));
}

static void cut_content(weir_buf *buf, size_t capacity)
{
    buf->capacity = (uint32_t)capacity;
    if (buf->writer > capacity)
        buf->writer = (uint32_t)capacity;
    if (buf->reader > buf->writer)
        buf->reader = buf->writer;
    /* What was marked behind it is lost, also when the buffer grows again. */
    if (buf->writer_mark > capacity)
        buf->writer_mark = (uint32_t)capacity;
}

int weir_buf_set_capacity(weir_buf *buf, size_t capacity)
{
    if (buf == NULL)
        return -EINVAL;
    if (buf->flags & WEIR__BUF_READ_ONLY)
        return WEIR_EREADONLY;
    if (capacity > buf->limit)
        return WEIR_ELIMIT;
    if (capacity <= buf->capacity) {
        cut_content(buf, capacity);
        if (buf->flags & WEIR__BUF_COMPOSITE)
            weir__composite_cut(buf);
        return 0;
    }
    return buf->flags & WEIR__BUF_COMPOSITE ? weir__composite_set_capacity(buf, capacity)
                                            : grow_storage(buf, capacity);
}

int weir_buf_set_limit(weir_buf *buf, size_t limit)
{
    if (buf == NULL || limit < buf->capacity || limit > WEIR_BUF_MAX ||
        buf->flags & WEIR__BUF_BORROWED)
        return -EINVAL;
    buf->limit = (uint32_t)limit;
    return 0;
}

static uint32_t moved_down(uint32_t index, uint32_t by)
{
    return index > by ? index - by : 0;
}

int weir_buf_discard_read(weir_buf *buf)
{
    if (buf == NULL)
        return -EINVAL;
    if (buf->flags & WEIR__BUF_READ_ONLY)
        return WEIR_EREADONLY;
    uint32_t dropped = buf->reader;
    if (buf->flags & WEIR__BUF_COMPOSITE) {
        weir__composite_drop_front(buf, dropped);
    } else if (weir__buf_owns_storage(buf)) {
        memmove(buf->data, buf->data + dropped, buf->writer - dropped);
    } else {
        buf->data += dropped;
        buf->capacity -= dropped;
    }
    buf->reader = 0;
    buf->writer -= dropped;
    buf->reader_mark = moved_down(buf->reader_mark, dropped);
    buf->writer_mark = moved_down(buf->writer_mark, dropped);
    return 0;
}

uint8_t *weir_buf_write_ptr(weir_buf *buf, size_t length)
{
    if (!weir_buf_is_composite(buf))
        return weir_buf_ensure_writable(buf, length) == 0 ? buf->data + buf->writer : NULL;
    if (buf->flags & WEIR__BUF_READ_ONLY || length > buf->limit - buf->writer)
        return NULL;
    /* Never written to, but NULL means no. */
    return length == 0 ? buf->block->bytes : weir__composite_write_ptr(buf, length);
}
