/* SPDX-License-Identifier: MIT */
/* Records: what streams are made of. Each byte follows from the stream, its number and its length.
 */
#ifndef CHAOS_RECORD_H
#define CHAOS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RECORD_HEADER_BYTES = 24, /* magic, stream, number, length (4 each), checksum of these (8) */
    RECORD_MAX_PAYLOAD = 128 * 1024,
};

typedef struct record {
    uint32_t stream, number, length;
} record;

/* Fills the memory that payloads are views of; once. */
void record_init(void);

/* The bytes of a record: its header, then `length` bytes of payload. */
void record_write_header(const record *self, uint8_t header[RECORD_HEADER_BYTES]);
const uint8_t *record_payload(const record *self);

/* False when the header is none. */
bool record_read_header(record *self, const uint8_t header[RECORD_HEADER_BYTES]);

/* Copies bytes of the whole record, header included, from an offset on. */
void record_copy(const record *self, size_t offset, uint8_t *to, size_t length);

#endif
