/* SPDX-License-Identifier: MIT */
/* What the operations of fuzz_buf work on: slots with buffers, their models, and the input. */
#ifndef WEIR_FUZZ_BUF_WORLD_H
#define WEIR_FUZZ_BUF_WORLD_H

#include "buf/model.h"
#include "fuzz.h"

/* An empty slot is a NULL buffer, which every function must refuse. */
typedef struct slot {
    weir_buf *buf;
    model_view view;
} slot;

#define SLOT_COUNT 8

/* Content stays below this, so that an input is fast. A big buffer is mostly room. */
#define MAX_CONTENT 8192

/* A wrapped mapping that nobody looks into, to count a composite's positions far up. */
#define GIANT ((size_t)0x7fffffff)

typedef struct world {
    const uint8_t *at, *end; /* what is left of the operation's record */
    slot slots[SLOT_COUNT];
    slot *subject; /* what the last operation worked on */

    /* A slice without a reference, the subject of one operation, and whom it was borrowed from. */
    slot borrowed;
    weir_buf borrowed_buf;
    slot *lender;

    const char *operation;
    int number;        /* of the operation in this input */
    unsigned fault_in; /* that many requests for memory until one fails; 0: none will */
    bool has_failed;   /* one failed, and the operation has not answered for it yet */
    uint8_t next_byte;
    bool was_big, was_elsewhere; /* what an input may do but once */

    uint8_t bytes[MAX_CONTENT]; /* what an operation writes */
    uint8_t other[MAX_CONTENT]; /* what it reads */
} world;

typedef void (*operation_fn)(world *w, slot *s);

/* Every operation, void op_<name>(world *, slot *subject), and how often to choose it. What changes
 * who owns what is chosen more often than what only looks. */
#define OPERATIONS(X)                                                                              \
    X(new, 2)                                                                                      \
    X(from, 4)                                                                                     \
    X(wrap, 2)                                                                                     \
    X(new_composite, 4)                                                                            \
    X(from_elsewhere, 1)                                                                           \
    X(retained_slice, 5)                                                                           \
    X(read_slice, 3)                                                                               \
    X(duplicate, 4)                                                                                \
    X(read_only, 3)                                                                                \
    X(copy, 1)                                                                                     \
    X(retain, 2)                                                                                   \
    X(release, 4)                                                                                  \
    X(release_elsewhere, 1)                                                                        \
    X(set_reader, 3)                                                                               \
    X(set_writer, 4)                                                                               \
    X(skip, 2)                                                                                     \
    X(advance_writer, 1)                                                                           \
    X(clear, 3)                                                                                    \
    X(mark_reader, 2)                                                                              \
    X(reset_reader, 2)                                                                             \
    X(mark_writer, 2)                                                                              \
    X(reset_writer, 2)                                                                             \
    X(ensure_writable, 2)                                                                          \
    X(set_capacity, 4)                                                                             \
    X(set_limit, 2)                                                                                \
    X(discard_read, 5)                                                                             \
    X(write_ptr, 3)                                                                                \
    X(get_number, 1)                                                                               \
    X(set_number, 2)                                                                               \
    X(read_number, 1)                                                                              \
    X(write_number, 2)                                                                             \
    X(get_bytes, 1)                                                                                \
    X(read_bytes, 2)                                                                               \
    X(set_bytes, 2)                                                                                \
    X(write_bytes, 4)                                                                              \
    X(set_own_bytes, 2)                                                                            \
    X(write_own_bytes, 3)                                                                          \
    X(write_buf, 3)                                                                                \
    X(fill, 1)                                                                                     \
    X(write_fill, 2)                                                                               \
    X(write_str, 1)                                                                                \
    X(get_str, 1)                                                                                  \
    X(read_str, 1)                                                                                 \
    X(read_cstr, 1)                                                                                \
    X(printf, 1)                                                                                   \
    X(hex_dump, 1)                                                                                 \
    X(add, 8)                                                                                      \
    X(insert, 6)                                                                                   \
    X(remove, 4)                                                                                   \
    X(consolidate, 3)                                                                              \
    X(piece, 1)                                                                                    \
    X(roll, 1)                                                                                     \
    X(peek, 1)                                                                                     \
    X(iovec, 1)                                                                                    \
    X(find, 1)                                                                                     \
    X(find_bytes, 3)                                                                               \
    X(find_if, 1)                                                                                  \
    X(compare, 1)                                                                                  \
    X(hash, 1)                                                                                     \
    X(fault, 2)                                                                                    \
    X(trim, 1)

#define DECLARE_OPERATION(name, weight) void op_##name(world *w, slot *s);
OPERATIONS(DECLARE_OPERATION)
#undef DECLARE_OPERATION

/* Prints what is about to be called, when WEIR_FUZZ_TRACE is set. */
#define SAY(...)                                                                                   \
    do {                                                                                           \
        if (fuzz_is_tracing)                                                                       \
            say(w, s, __VA_ARGS__);                                                                \
    } while (0)
void say(const world *w, const slot *s, const char *format, ...) WEIR_PRINTF(3, 4);

/* Aborts: buffer and model disagree. */
_Noreturn void fail(const world *w, const char *format, ...) WEIR_PRINTF(2, 3);

/* What an operation asks for: a byte, 0 behind the end of its record. */
uint8_t take(world *w);

/* An index or length: mostly from 0 to `max`, sometimes a little above, rarely absurd. */
size_t take_size(world *w, size_t max);

/* How much to write or to make room for: what still fits MAX_CONTENT, rarely an absurd number. */
size_t take_length(world *w, const slot *s);

/* A capacity or limit: small, rarely large, once per input above 4 MiB, rarely above all limits. */
size_t take_capacity(world *w);

/* Some bytes, in w->bytes. */
const uint8_t *take_bytes(world *w, size_t length);

/* A slot other than the lender of the borrowed slice. */
slot *take_slot(world *w);

/* The slot's name in a trace. */
int slot_number(const world *w, const slot *s);

/* Demands that a call returned what the model says. */
void expect(world *w, const char *what, int64_t actual, int64_t expected);

/* Whether the fault hook made the call fail; if so it must have said so, and only then. */
bool ran_out(world *w, bool says_no_memory);

/* Puts a new buffer in a slot; what was there is released. */
void put_in(world *w, slot *to, weir_buf *buf, const model_view *view);

/* One reference of the slot's went; empties it when that was the last. */
void lose_reference(slot *s);

/* Gives all references of a slot back. */
void empty(world *w, slot *s);

/* Compares a buffer with its model in everything that can be seen. */
void check(world *w, const slot *s);

/* Counts requests for memory and fails the one that was chosen; `arg` is the world. */
int on_fault(void *arg, const char *call, size_t *length);

#endif
