/* SPDX-License-Identifier: MIT */
/* What <weir/buf.h> promises of buffers, in the plainest form: lists of pieces of shared cells. */
#ifndef WEIR_FUZZ_BUF_MODEL_H
#define WEIR_FUZZ_BUF_MODEL_H

#include <weir/buf.h>

/*
 * A store is an array of cells. A view is a list of pieces of stores: one for a plain buffer, any
 * number for a composite, none when the capacity is 0. Two views share what they have in the same
 * store, so what one writes the other sees. Growth gives a plain view a new store, whether or not
 * the old one was shared: when it was not, nobody can tell.
 *
 * A cell of new room is unknown until it is written, or becomes content by a move of the writer;
 * then the model learns what the buffer has there.
 *
 * The functions return what the real ones must, and change the view only when that is 0. Stores
 * live until model_reset.
 */

#define MODEL_PIECES 192

typedef struct model_store {
    struct model_store *next;
    uint8_t *bytes;
    uint8_t *is_known;
    void *memory; /* wrapped by the buffer; NULL: the buffer's own */
    bool is_lent; /* that memory is to be given back */
    bool is_freed;
    uint8_t cells[];
} model_store;

typedef struct model_piece {
    model_store *store;
    size_t at, length; /* never 0 */
    bool is_read_only;
} model_piece;

typedef struct model_view {
    bool is_live; /* else: NULL */
    bool is_composite, is_read_only, is_borrowed;
    uint32_t refs;
    size_t reader, writer, capacity, limit, reader_mark, writer_mark;
    size_t count;
    model_piece pieces[MODEL_PIECES];
} model_view;

/* Frees all stores, and returns how many had memory that was lent and not given back. */
size_t model_reset(void);

/* Making. The last one makes it a NULL buffer. */
void model_make(model_view *view, size_t capacity);
void model_make_composite(model_view *view);
model_store *model_wrap(model_view *view, void *memory, size_t length);
void model_end(model_view *view);

/* A view of [index, index + length), which is content, with that capacity. */
void model_slice(model_view *view, const model_view *of, size_t index, size_t length);
void model_duplicate(model_view *view, const model_view *of);
void model_copy(model_view *view, const model_view *of, size_t index, size_t length);

/* Cells. The first one says 0 when the range is content, the second when it may be set. */
int model_check(const model_view *view, size_t index, size_t length);
int model_check_settable(const model_view *view, size_t index, size_t length);
void model_get(const model_view *view, size_t index, void *to, size_t length);
void model_put(model_view *view, size_t index, const void *from, size_t length);
void model_learn(model_view *view, size_t index, const void *from, size_t length);
bool model_overlap(const model_view *a, size_t a_index, size_t a_length, const model_view *b,
                   size_t b_index, size_t b_length);

/* In how many pieces [index, index + length) lies. */
size_t model_pieces_in(const model_view *view, size_t index, size_t length);

/* How many pieces the content lies in. */
size_t model_count(const model_view *view);

/* Room. In a composite whose writer was moved back it ends where a read-only piece begins. */
int model_ensure(model_view *view, size_t length);
bool model_write_ptr(model_view *view, size_t length);
int model_set_capacity(model_view *view, size_t capacity);

/* The capacity tells whether the bytes were moved or the room before them was given up. */
int model_discard(model_view *view, size_t real_capacity);

/* Composites. */
int model_check_composite(const model_view *view);
int model_add(model_view *view, const model_view *part);
int model_insert(model_view *view, size_t at, const model_view *part);
int model_remove(model_view *view, size_t at);
int model_consolidate(model_view *view);

#endif
