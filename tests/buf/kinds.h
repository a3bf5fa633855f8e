/* SPDX-License-Identifier: MIT */
/* Every kind of buffer there is, made to order, for cases that must hold for all of them. */
#ifndef WEIR_TESTS_BUF_KINDS_H
#define WEIR_TESTS_BUF_KINDS_H

#include "harness.h"

#include <weir/buf.h>

typedef struct subject subject;

/* What a kind is like, beyond what every buffer is. */
enum {
    IS_READ_ONLY = 1, /* every write is refused */
    IS_BORROWED = 2,  /* no message: it has no reference, and does not outlive its parent */
    IS_COMPOSITE = 4,
    CAN_GROW = 8, /* its limit is above its capacity */
};

typedef struct kind {
    const char *name;
    unsigned traits;
    void (*make)(subject *s, const uint8_t *bytes, size_t length);
} kind;

extern const kind kinds[];
extern const size_t kinds_count;

/* A buffer under test, and what it stands on. */
struct subject {
    const kind *of;
    weir_buf *buf;
    weir_buf *parent; /* of a view; NULL: none */
    bool is_guarded;  /* the content of the parent begins and ends with guard bytes */
    weir_buf borrowed;
};

/*
 * Opens a buffer of a kind with that content, reader at 0, and at least `room` bytes between the
 * writer and the capacity: just so many but for those that gave the room a piece of its own.
 */
void subject_open(subject *s, const kind *of, const void *content, size_t length, size_t room);

/* Lets go of what a view stands on, while the view lives; not for borrowed ones. */
void subject_drop_parent(subject *s);

/* Checks that nothing was written beside the content, and releases everything. */
void subject_close(subject *s);

/* Bytes that differ from their neighbours, in all their bits. */
void pattern(uint8_t *to, size_t length, unsigned seed);

/* Asserts that the content, all before the writer, is just this. */
#define assert_content(buf, bytes, length)                                                         \
    kinds_assert_content(buf, bytes, length, __FILE__, __LINE__)
void kinds_assert_content(const weir_buf *buf, const void *bytes, size_t length, const char *file,
                          int line);

/* What can be seen of a buffer from outside, to tell whether a call changed it. */
typedef struct snapshot {
    size_t reader, writer, capacity, limit, reader_mark, writer_mark, pieces;
    uint8_t content[4096];
} snapshot;

void snapshot_take(snapshot *shot, const weir_buf *buf);
void snapshot_compare(const snapshot *shot, const weir_buf *buf, const char *file, int line);

/* Asserts that `call` fails with `code` and leaves the buffer as it is. */
#define assert_refused(buf, code, call)                                                            \
    do {                                                                                           \
        snapshot before_call;                                                                      \
        snapshot_take(&before_call, buf);                                                          \
        assert_int_equal(call, code);                                                              \
        snapshot_compare(&before_call, buf, __FILE__, __LINE__);                                   \
    } while (0)

/* Ranges that lie outside of `length` bytes, some only when 64 bits are cut to 32. */
typedef struct range {
    size_t index, length;
} range;

#define OUTSIDE_COUNT 14
void ranges_outside(size_t length, range ranges[OUTSIDE_COUNT]);

/* One case, run for every kind that has all traits it needs and none that it excludes. */
typedef struct kind_case {
    const char *name;
    void (*run)(const kind *of, const void *arg);
    unsigned needs, excludes;
    const void *arg;
} kind_case;

#define for_all(function)                                                                          \
    {                                                                                              \
        .name = #function, .run = function                                                         \
    }
#define for_those(function, needed, excluded)                                                      \
    {                                                                                              \
        .name = #function, .run = function, .needs = needed, .excludes = excluded                  \
    }

/* Runs `plain` as it is and each of `cases` as case__kind; returns what main must. */
int kinds_run(const char *group, const kind_case *cases, size_t case_count,
              const struct CMUnitTest *plain, size_t plain_count);

#endif
