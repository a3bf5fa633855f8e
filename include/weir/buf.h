/* SPDX-License-Identifier: MIT */
/* Buffers: counted, bounds-checked bytes with a reader and a writer index. */
#ifndef WEIR_BUF_H
#define WEIR_BUF_H

#include <weir/api.h>
#include <weir/error.h>
#include <weir/msg.h>

#include <stdarg.h>

WEIR_BEGIN_DECLS

/*
 *      0         reader        writer       capacity       limit
 *      |  read     |  readable   |  writable   |   growth    |
 *
 * The content of a buffer is what lies before the writer index: `get` and `set` reach
 * [0, writer), `read` takes from [reader, writer), `write` appends at the writer and grows
 * the buffer as needed, up to the limit. What lies behind the writer is room, and nothing
 * hands it out as content.
 *
 * A buffer is a view of counted storage. Slices and duplicates are views of the same
 * storage: what one sets inside it the others see. Room belongs to one buffer alone: growing
 * past the capacity gives the grower storage of its own when somebody shares the present one
 * (only moving a writer back makes room of what others may still see). A composite is a view of
 * several pieces that acts as one run of bytes; it grows by another piece. Every function takes
 * every kind.
 *
 * Unless a function says otherwise: it returns 0 or a negative code and then has changed
 * nothing; a NULL buffer, or NULL memory with a length, is -EINVAL; an index or length outside is
 * WEIR_EBOUNDS. References may be held and released on any thread; functions that take a const
 * buffer may run on several at once, the others need it for themselves. To hand bytes to several
 * threads give each a duplicate.
 */

typedef struct weir_buf weir_buf;
/** Storage that buffers share. Internal. */
typedef struct weir_block weir_block;

/** The message type of all buffers. */
extern WEIR_API const weir_msg_type weir_buf_type;

/** The largest capacity and limit there is. */
#define WEIR_BUF_MAX 0x7fffffffu

/* The fields serve the inline accessors. Read them with the functions, change none. */
struct weir_buf {
    weir_msg msg;
    uint8_t *data;     /* the byte at index 0; not for composites */
    weir_block *block; /* the storage, or a composite's table of pieces */
    uint32_t reader;
    uint32_t writer;
    uint32_t capacity;
    uint32_t limit;
    uint32_t reader_mark;
    uint32_t writer_mark;
    uint32_t flags;
    uint32_t offset; /* composites: where index 0 lies in the table's count of bytes */
};

#define WEIR__BUF_COMPOSITE 1u
#define WEIR__BUF_READ_ONLY 2u
#define WEIR__BUF_BORROWED 4u

/* Making ------------------------------------------------------------------------------- */

/** An empty buffer from the thread's pool, with room for `capacity` bytes; NULL when there is no
 * memory or `capacity` is above WEIR_BUF_MAX. It grows, up to WEIR_BUF_MAX. */
WEIR_API weir_buf *weir_buf_new(size_t capacity);

/** A buffer that holds a copy of `length` bytes; NULL as weir_buf_new. */
WEIR_API weir_buf *weir_buf_from(const void *bytes, size_t length);

/** Called once, with the memory that was wrapped, when the buffer around it and all that view the
 * same memory are gone; on any thread. */
typedef void (*weir_buf_free_fn)(void *arg, void *memory);

/** A full buffer around memory of the caller's, without copying. `free_fn` may be NULL for memory
 * that outlives it. Growing moves the bytes out of that memory. On NULL (no memory, or a length
 * above WEIR_BUF_MAX) nothing was taken over and `free_fn` is not called. */
WEIR_API weir_buf *weir_buf_wrap(void *memory, size_t length, weir_buf_free_fn free_fn, void *arg);

/** A full read-only buffer around constant bytes that outlive it, without copying: for texts that
 * are always the same. NULL as weir_buf_wrap. */
WEIR_API weir_buf *weir_buf_wrap_const(const void *bytes, size_t length);

/** An empty composite: add pieces to it, or write to it as to any buffer. NULL: no memory. */
WEIR_API weir_buf *weir_buf_new_composite(void);

/** The buffer inside a message, NULL when it is of another type. The reference stays with `msg`. */
static inline weir_buf *weir_buf_from_msg(weir_msg *msg)
{
    return msg != NULL && msg->type == &weir_buf_type
               ? WEIR__CAST(weir_buf *, WEIR__CAST(void *, msg))
               : NULL;
}

/** The buffer as a message, to pass on. */
static inline weir_msg *weir_buf_msg(weir_buf *buf)
{
    return buf != NULL ? &buf->msg : NULL;
}

/** weir_msg_retain for a buffer. */
static inline weir_buf *weir_buf_retain(weir_buf *buf)
{
    return weir_buf_from_msg(weir_msg_retain(weir_buf_msg(buf)));
}

/** weir_msg_release for a buffer. */
static inline int weir_buf_release(weir_buf *buf)
{
    return weir_msg_release(weir_buf_msg(buf));
}

/* Indices ------------------------------------------------------------------------------ */

/** Bytes between reader and writer; 0 for NULL, as the next ones. */
static inline size_t weir_buf_readable(const weir_buf *buf)
{
    return buf != NULL ? buf->writer - buf->reader : 0;
}

/** Bytes that can be written without growing. */
static inline size_t weir_buf_writable(const weir_buf *buf)
{
    return buf != NULL ? buf->capacity - buf->writer : 0;
}

/** Bytes that can be written with growing; 0 for read-only. */
static inline size_t weir_buf_max_writable(const weir_buf *buf)
{
    if (buf == NULL || buf->flags & WEIR__BUF_READ_ONLY)
        return 0;
    return (buf->flags & WEIR__BUF_BORROWED ? buf->capacity : buf->limit) - buf->writer;
}

/** The reader index; 0 for NULL. */
static inline size_t weir_buf_reader(const weir_buf *buf)
{
    return buf != NULL ? buf->reader : 0;
}

/** The writer index; 0 for NULL. */
static inline size_t weir_buf_writer(const weir_buf *buf)
{
    return buf != NULL ? buf->writer : 0;
}

/** Bytes of storage, read and unread; 0 for NULL. */
static inline size_t weir_buf_capacity(const weir_buf *buf)
{
    return buf != NULL ? buf->capacity : 0;
}

/** The capacity that growing cannot exceed; 0 for NULL. */
static inline size_t weir_buf_limit(const weir_buf *buf)
{
    return buf != NULL ? buf->limit : 0;
}

/** Whether writing is refused with WEIR_EREADONLY. */
static inline bool weir_buf_is_read_only(const weir_buf *buf)
{
    return buf != NULL && (buf->flags & WEIR__BUF_READ_ONLY) != 0;
}

/** Whether the buffer is a composite; false for NULL. */
static inline bool weir_buf_is_composite(const weir_buf *buf)
{
    return buf != NULL && (buf->flags & WEIR__BUF_COMPOSITE) != 0;
}

/** Moves the reader, to at most the writer. */
WEIR_API int weir_buf_set_reader(weir_buf *buf, size_t index);

/** Moves the writer, between the reader and the capacity. Forwards it declares bytes as content
 * that the caller has filled through weir_buf_write_ptr. */
WEIR_API int weir_buf_set_writer(weir_buf *buf, size_t index);

/** Moves the reader forward over `length` bytes. */
WEIR_API int weir_buf_skip(weir_buf *buf, size_t length);

/** Both indices back to 0; the capacity stays, the marks go. */
WEIR_API int weir_buf_clear(weir_buf *buf);

/** Remembers an index (0 until then), and goes back to it. The reset fails with WEIR_EBOUNDS when
 * the other index has meanwhile moved past it. */
WEIR_API int weir_buf_mark_reader(weir_buf *buf);
WEIR_API int weir_buf_reset_reader(weir_buf *buf);
WEIR_API int weir_buf_mark_writer(weir_buf *buf);
WEIR_API int weir_buf_reset_writer(weir_buf *buf);

/* Room --------------------------------------------------------------------------------- */

/** Makes room to write `length` bytes: to the next power of two from 64 up to 4 MiB, then a
 * quarter more in steps of 4 MiB, never above the limit. WEIR_ELIMIT, -ENOMEM, WEIR_EREADONLY. */
WEIR_API int weir_buf_ensure_writable(weir_buf *buf, size_t length);

/** Grows or shrinks to exactly `capacity`; shrinking cuts the content and moves the indices with
 * it. Fails as weir_buf_ensure_writable. */
WEIR_API int weir_buf_set_capacity(weir_buf *buf, size_t capacity);

/** How far the buffer may grow: from its capacity up to WEIR_BUF_MAX, else -EINVAL. */
WEIR_API int weir_buf_set_limit(weir_buf *buf, size_t limit);

/** Drops the bytes before the reader; indices and marks move down. They become room where the
 * storage is the buffer's alone; else the capacity shrinks, for bytes that another view can see are
 * never moved. WEIR_EREADONLY. */
WEIR_API int weir_buf_discard_read(weir_buf *buf);

/** Where the next `length` bytes can be written in one run, growing if need be; NULL when they
 * cannot. Then tell how many were: weir_buf_advance_writer. Valid until the buffer is next changed.
 */
WEIR_API uint8_t *weir_buf_write_ptr(weir_buf *buf, size_t length);

/** Moves the writer over `length` bytes that were filled through weir_buf_write_ptr. */
WEIR_API int weir_buf_advance_writer(weir_buf *buf, size_t length);

/** The content at [index, index + length) as one run of memory, NULL when it is outside or, in a
 * composite, lies in several pieces. Borrowed: valid until the buffer is next changed or released.
 */
WEIR_API const uint8_t *weir_buf_peek(const weir_buf *buf, size_t index, size_t length);

/* Numbers ------------------------------------------------------------------------------ */

/*
 *      int weir_buf_get_<t>(buf, index, &value)      int weir_buf_read_<t>(buf, &value)
 *      int weir_buf_set_<t>(buf, index, value)       int weir_buf_write_<t>(buf, value)
 *
 * for <t> of u8 i8 u16 i16 u24 i24 u32 i32 u64 i64 f32 f64, big-endian; and for those wider than a
 * byte <t>_le, little-endian. get and set do not move an index, read and write do. The 24-bit ones
 * take and give 32-bit numbers and use the low 24 bits. They stand, inline, in <weir/buf_number.h>.
 */

/* Bytes and text ----------------------------------------------------------------------- */

/** Copies content out, at an index or from the reader, which moves. */
WEIR_API int weir_buf_get_bytes(const weir_buf *buf, size_t index, void *to, size_t length);
WEIR_API int weir_buf_read_bytes(weir_buf *buf, void *to, size_t length);

/** Copies bytes in, over content or at the writer, which moves. `from` may lie in the buffer
 * itself, but must not overlap what is set in a composite. */
WEIR_API int weir_buf_set_bytes(weir_buf *buf, size_t index, const void *from, size_t length);
WEIR_API int weir_buf_write_bytes(weir_buf *buf, const void *from, size_t length);

/** Moves `length` bytes from the reader of `from` to the writer of `buf` by copying; both indices
 * move. -EINVAL when `from` is a borrowed slice of `buf`, here and in weir_buf_hex_dump. */
WEIR_API int weir_buf_write_buf(weir_buf *buf, weir_buf *from, size_t length);

/** Sets or appends `length` times the same byte. */
WEIR_API int weir_buf_fill(weir_buf *buf, size_t index, uint8_t byte, size_t length);
WEIR_API int weir_buf_write_fill(weir_buf *buf, uint8_t byte, size_t length);

/** Appends a string without its terminator, or with it. */
WEIR_API int weir_buf_write_str(weir_buf *buf, const char *string);
WEIR_API int weir_buf_write_cstr(weir_buf *buf, const char *string);

/** Copies `length` bytes out as a terminated string; `size` is the room at `to` and must be above
 * `length`, else WEIR_ELIMIT. Bytes are taken as they are, a 0 among them included. */
WEIR_API int weir_buf_get_str(const weir_buf *buf, size_t index, size_t length, char *to,
                              size_t size);
WEIR_API int weir_buf_read_str(weir_buf *buf, size_t length, char *to, size_t size);

/** Reads a string up to its 0 byte, which is consumed; WEIR_ENOTFOUND when there is none,
 * WEIR_ELIMIT when it does not fit `size`. */
WEIR_API int weir_buf_read_cstr(weir_buf *buf, char *to, size_t size);

/** Appends formatted text. */
WEIR_API int weir_buf_printf(weir_buf *buf, const char *format, ...) WEIR_PRINTF(2, 3);
WEIR_API int weir_buf_vprintf(weir_buf *buf, const char *format, va_list args) WEIR_PRINTF(2, 0);

/** Parses the digits at [index, index + length), up to the first other byte, as an unsigned decimal
 * or hexadecimal number (without 0x). Returns how many digits there are; -EINVAL for none, -ERANGE
 * above 64 bits, and `number` is then unchanged. The second two consume the digits at the reader.
 */
WEIR_API int weir_buf_get_decimal(const weir_buf *buf, size_t index, size_t length,
                                  uint64_t *number);
WEIR_API int weir_buf_get_hex(const weir_buf *buf, size_t index, size_t length, uint64_t *number);
WEIR_API int weir_buf_read_decimal(weir_buf *buf, uint64_t *number);
WEIR_API int weir_buf_read_hex(weir_buf *buf, uint64_t *number);

/** Appends to `out` a table of the content at [index, index + length): offset, sixteen bytes in
 * hex, text. */
WEIR_API int weir_buf_hex_dump(const weir_buf *buf, size_t index, size_t length, weir_buf *out);

/* Views and copies --------------------------------------------------------------------- */

/** Makes `slice`, a struct of the caller's, a view of the content at [index, index + length): no
 * allocation and no reference. It is good while `buf` lives unchanged, cannot grow, and is not a
 * message: never retain, release or pass it; weir_buf_retained_slice of it gives one that can. */
WEIR_API int weir_buf_slice(const weir_buf *buf, size_t index, size_t length, weir_buf *slice);

/** A buffer of its own that views the content at [index, index + length) and keeps the storage
 * alive. Its limit is its length. The caller releases it. -ENOMEM. */
WEIR_API int weir_buf_retained_slice(const weir_buf *buf, size_t index, size_t length,
                                     weir_buf **slice);

/** weir_buf_retained_slice of the next `length` readable bytes; the reader moves over them. */
WEIR_API int weir_buf_read_slice(weir_buf *buf, size_t length, weir_buf **slice);

/** A buffer of its own over the same content, with its own copy of the indices, marks and limit.
 * Its capacity ends at the writer: room is never shared, so writing to it makes it grow away.
 * -ENOMEM. */
WEIR_API int weir_buf_duplicate(const weir_buf *buf, weir_buf **duplicate);

/** A duplicate that refuses to be written. -ENOMEM. */
WEIR_API int weir_buf_read_only(const weir_buf *buf, weir_buf **view);

/** A buffer with storage of its own, holding the content at [index, index + length). -ENOMEM. */
WEIR_API int weir_buf_copy(const weir_buf *buf, size_t index, size_t length, weir_buf **copy);

struct iovec; /* <sys/uio.h> */

/** Describes the content at [index, index + length) by at most `max` iovecs, without copying.
 * Returns how many it filled, and in `*covered` (may be NULL) how many bytes they hold: fewer than
 * `length` when `max` was too small. Borrowed as weir_buf_peek. */
WEIR_API int weir_buf_iovec(const weir_buf *buf, size_t index, size_t length, struct iovec *iov,
                            int max, size_t *covered);

/* Composites: -EINVAL for any other kind of buffer -------------------------------------- */

/** Appends the readable bytes of `part` as a piece, without copying: they become readable at the
 * end, and room behind the writer is dropped. Takes the reference to `part`, also when it fails.
 * WEIR_ELIMIT, -ENOMEM, WEIR_EREADONLY. */
WEIR_API int weir_buf_composite_add(weir_buf *composite, weir_buf *part);

/** The same before piece `at` (or at the end when `at` is the count). Indices and marks stay on
 * their bytes, or before the new ones when they stood just there. */
WEIR_API int weir_buf_composite_insert(weir_buf *composite, size_t at, weir_buf *part);

/** Removes piece `at`; the indices stay on their bytes, or go to where it was. */
WEIR_API int weir_buf_composite_remove(weir_buf *composite, size_t at);

/** How many pieces there are, 0 for anything but a composite and for a borrowed slice of one. A
 * part that was itself a composite counts as its pieces. */
WEIR_API size_t weir_buf_composite_count(const weir_buf *composite);

/** Where piece `at` begins and how long it is. */
WEIR_API int weir_buf_composite_piece(const weir_buf *composite, size_t at, size_t *index,
                                      size_t *length);

/** Copies the content into one piece. WEIR_EREADONLY never: the pieces are not written. -ENOMEM. */
WEIR_API int weir_buf_composite_consolidate(weir_buf *composite);

/* Looking ------------------------------------------------------------------------------ */

/** Finds a byte in the content at [index, index + length): the first, or the last. Returns its
 * index in the buffer, WEIR_ENOTFOUND, or another negative code; the same for the next two pairs.
 */
WEIR_API int64_t weir_buf_find(const weir_buf *buf, size_t index, size_t length, uint8_t byte);
WEIR_API int64_t weir_buf_find_last(const weir_buf *buf, size_t index, size_t length, uint8_t byte);

/** Finds a sequence; it lies whole in the range. An empty one is -EINVAL. Linear for short
 * sequences and in one run of memory; at worst both lengths multiplied, from the back or across
 * small pieces. */
WEIR_API int64_t weir_buf_find_bytes(const weir_buf *buf, size_t index, size_t length,
                                     const void *sequence, size_t sequence_length);
WEIR_API int64_t weir_buf_find_last_bytes(const weir_buf *buf, size_t index, size_t length,
                                          const void *sequence, size_t sequence_length);

/** Finds a byte for which `matches` says true; it is asked in order and must leave the buffer
 * alone. */
typedef bool (*weir_buf_match_fn)(void *arg, uint8_t byte);
WEIR_API int64_t weir_buf_find_if(const weir_buf *buf, size_t index, size_t length,
                                  weir_buf_match_fn matches, void *arg);
WEIR_API int64_t weir_buf_find_last_if(const weir_buf *buf, size_t index, size_t length,
                                       weir_buf_match_fn matches, void *arg);

/** Compares the readable bytes as memcmp does, the shorter first when one begins the other: -1,
 * 0, 1. NULL counts as empty, here and in the next two. */
WEIR_API int weir_buf_compare(const weir_buf *a, const weir_buf *b);

/** Whether the readable bytes are the same. */
WEIR_API bool weir_buf_equal(const weir_buf *a, const weir_buf *b);

/** SipHash of the readable bytes, whatever pieces they lie in, under a 128-bit key: two random
 * numbers for tables that a peer can fill. NULL: a fixed key. */
WEIR_API uint64_t weir_buf_hash(const weir_buf *buf, const uint64_t key[2]);

/** The same of bytes anywhere. */
WEIR_API uint64_t weir_hash_bytes(const void *bytes, size_t length, const uint64_t key[2]);

WEIR_END_DECLS

#include <weir/buf_number.h>

#endif
