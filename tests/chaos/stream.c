/* SPDX-License-Identifier: MIT */
/* Streams, and the receivers that check them. */
#include "stream.h"

#include "end.h"
#include "verdict.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_STREAMS = 4096 };

static _Atomic(stream *) table[MAX_STREAMS];
static atomic_uint count;

stream *stream_new(end *owner, uint32_t bytes)
{
    unsigned id = atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    stream *self = id < MAX_STREAMS ? calloc(1, sizeof *self) : NULL;
    if (self == NULL)
        return NULL;
    self->id = id;
    self->owner = owner;
    self->bytes_left = bytes;
    atomic_store_explicit(&table[id], self, memory_order_release);
    return self;
}

stream *stream_find(uint32_t id)
{
    return id < MAX_STREAMS ? atomic_load_explicit(&table[id], memory_order_acquire) : NULL;
}

bool stream_next_record(stream *self, uint32_t length, record *next)
{
    uint32_t number = atomic_load_explicit(&self->written, memory_order_relaxed);
    if (number == STREAM_MAX_RECORDS || self->bytes_left < RECORD_HEADER_BYTES)
        return false;
    uint32_t most = self->bytes_left - RECORD_HEADER_BYTES;
    most = most < RECORD_MAX_PAYLOAD ? most : RECORD_MAX_PAYLOAD;
    length = length < most ? length : most;
    self->bytes_left -= RECORD_HEADER_BYTES + length;
    *next = (record){ .stream = self->id, .number = number, .length = length };
    atomic_store_explicit(&self->written, number + 1, memory_order_release);
    return true;
}

void stream_set_fate(stream *self, uint32_t number, fate what)
{
    atomic_store_explicit(&self->fates[number], (uint8_t)what, memory_order_release);
}

fate stream_fate(const stream *self, uint32_t number)
{
    return (fate)atomic_load_explicit(&self->fates[number], memory_order_acquire);
}

bool stream_has_arrived(const stream *self)
{
    uint32_t written = atomic_load(&self->written);
    while (written > 0 && stream_fate(self, written - 1) == FATE_FAILED)
        written--;
    return atomic_load(&self->received) >= written;
}

void stream_free_all(void)
{
    for (unsigned i = 0; i < MAX_STREAMS; i++) {
        free(table[i]);
        table[i] = NULL;
    }
    count = 0;
}

/* Receivers ---------------------------------------------------------------------------------- */

static struct heard *find_heard(receiver *self, stream *of)
{
    for (unsigned i = 0; i < self->heard_count; i++) {
        if (self->heard[i].stream == of)
            return &self->heard[i];
    }
    MUST(self->heard_count < RECEIVER_MAX_STREAMS, "end %u receives too many streams",
         self->end->number);
    if (of->owner != NULL)
        end_set_peer(self->end, of->owner);
    self->heard[self->heard_count] = (struct heard){ .stream = of };
    return &self->heard[self->heard_count++];
}

static void note_gap(receiver *self, stream *of, uint32_t from, uint32_t to)
{
    if (of->owner == NULL)
        return;
    verdict_trace("end %u: stream %u has a gap from %u to %u", self->end->number, of->id, from, to);
    MUST(self->gap_count < RECEIVER_MAX_GAPS, "end %u: too many gaps", self->end->number);
    self->gaps[self->gap_count++] = (struct gap){ .stream = of, .from = from, .to = to };
}

/* A header is complete: is this the record that must follow? */
static void begin_record(receiver *self)
{
    record *next = &self->current;
    MUST(record_read_header(next, self->header),
         "end %u received bytes that are no record after %llu records", self->end->number,
         (unsigned long long)self->records);
    stream *of = stream_find(next->stream);
    MUST(of != NULL, "end %u: a record of stream %u, which is none", self->end->number,
         next->stream);
    struct heard *heard = find_heard(self, of);
    MUST(next->number >= heard->next,
         "end %u: record %u of stream %u arrives again or too late, %u was expected",
         self->end->number, next->number, next->stream, heard->next);
    MUST(next->number < atomic_load_explicit(&of->written, memory_order_acquire),
         "end %u: record %u of stream %u was not written yet", self->end->number, next->number,
         next->stream);
    if (next->number > heard->next)
        note_gap(self, of, heard->next, next->number);
    heard->next = next->number + 1;
    self->payload_bytes = 0;
}

static void end_record(receiver *self)
{
    stream *of = stream_find(self->current.stream);
    if (of->owner != NULL)
        atomic_store_explicit(&of->received, self->current.number + 1, memory_order_release);
    self->records++;
    self->header_bytes = 0;
}

static void take_header(receiver *self, weir_buf *bytes, size_t readable)
{
    size_t want = RECORD_HEADER_BYTES - self->header_bytes;
    want = want < readable ? want : readable;
    weir_buf_read_bytes(bytes, self->header + self->header_bytes, want);
    self->header_bytes += (unsigned)want;
    if (self->header_bytes < RECORD_HEADER_BYTES)
        return;
    begin_record(self);
    if (self->current.length == 0)
        end_record(self);
}

static void take_payload(receiver *self, weir_buf *bytes, size_t readable)
{
    uint8_t piece[4096];
    size_t want = self->current.length - self->payload_bytes;
    want = want < readable ? want : readable;
    want = want < sizeof piece ? want : sizeof piece;
    weir_buf_read_bytes(bytes, piece, want);
    MUST(memcmp(piece, record_payload(&self->current) + self->payload_bytes, want) == 0,
         "end %u: record %u of stream %u has wrong bytes at %u to %zu of %u", self->end->number,
         self->current.number, self->current.stream, self->payload_bytes,
         self->payload_bytes + want, self->current.length);
    self->payload_bytes += (uint32_t)want;
    if (self->payload_bytes == self->current.length)
        end_record(self);
}

void receiver_take(receiver *self, weir_buf *bytes)
{
    size_t readable;
    while ((readable = weir_buf_readable(bytes)) > 0) {
        if (self->header_bytes < RECORD_HEADER_BYTES)
            take_header(self, bytes, readable);
        else
            take_payload(self, bytes, readable);
    }
}

bool receiver_is_between_records(const receiver *self)
{
    return self->header_bytes == 0;
}

void receiver_check_gaps(const receiver *self)
{
    for (unsigned i = 0; i < self->gap_count; i++) {
        const struct gap *gap = &self->gaps[i];
        for (uint32_t number = gap->from; number < gap->to; number++)
            MUST(stream_fate(gap->stream, number) == FATE_FAILED,
                 "end %u: record %u of stream %u is missing, and its write has not failed",
                 self->end->number, number, gap->stream->id);
    }
}
