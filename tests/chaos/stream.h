/* SPDX-License-Identifier: MIT */
/* Streams: numbered records that one writer sends and one receiver checks. */
#ifndef CHAOS_STREAM_H
#define CHAOS_STREAM_H

#include "record.h"

#include <weir/buf.h>

#include <stdatomic.h>

typedef struct end end;

enum { STREAM_MAX_RECORDS = 1024 };

/* A record that was written, and its fate. */
typedef enum fate {
    FATE_NONE,       /* not written yet */
    FATE_UNPROMISED, /* written without a promise */
    FATE_PENDING,    /* written with one, which is not complete */
    FATE_SENT,
    FATE_FAILED, /* with this fate alone a record may be missing between others */
} fate;

/* Written by one thread at a time, in the order of the numbers. */
typedef struct stream {
    uint32_t id;
    end *owner; /* NULL: broadcast to many, of whom each receives a part, in order */
    uint32_t bytes_left;
    atomic_uint written;  /* the next record's number */
    atomic_uint received; /* the next number that its receiver expects */
    atomic_uint promised; /* records before this one were sent, as a shutdown has said */
    _Atomic uint8_t fates[STREAM_MAX_RECORDS];
} stream;

/* Makes a stream and enters it into the table; never fails the seed. NULL when it is full. */
stream *stream_new(end *owner, uint32_t bytes);

/* The stream with an id, NULL when there is none. Any thread. */
stream *stream_find(uint32_t id);

/* Takes the next number, with a length up to `max_length`. False when the stream is at its end. */
bool stream_next_record(stream *self, uint32_t length, record *next);

void stream_set_fate(stream *self, uint32_t number, fate what);
fate stream_fate(const stream *self, uint32_t number);

/* Whether all that has to arrive has been received. */
bool stream_has_arrived(const stream *self);

/* Frees all streams. */
void stream_free_all(void);

/* Receivers ---------------------------------------------------------------------------------- */

enum { RECEIVER_MAX_STREAMS = 8, RECEIVER_MAX_GAPS = 256 };

/* Checks the records that an end receives: no gap, duplicate, reorder or wrong byte. */
typedef struct receiver {
    end *end;
    uint8_t header[RECORD_HEADER_BYTES];
    unsigned header_bytes;
    record current;
    uint32_t payload_bytes; /* of the current record, received so far */
    struct heard {
        stream *stream;
        uint32_t next;
    } heard[RECEIVER_MAX_STREAMS];
    unsigned heard_count;
    struct gap {
        stream *stream;
        uint32_t from, to;
    } gaps[RECEIVER_MAX_GAPS];
    unsigned gap_count;
    uint64_t records;
} receiver;

/* Takes the readable bytes of a buffer; fails the seed when they are not those that must follow. */
void receiver_take(receiver *self, weir_buf *bytes);

/* Whether it has no part of a record. */
bool receiver_is_between_records(const receiver *self);

/* When all promises are complete: each record that is missing before others must have failed. */
void receiver_check_gaps(const receiver *self);

#endif
