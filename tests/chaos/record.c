/* SPDX-License-Identifier: MIT */
/* Records. */
#include "record.h"

#include "dice.h"

#include <string.h>

#define MAGIC 0x57434852u

/* Half noise, half text that compresses; payloads begin anywhere in the first part. */
enum { SPREAD = 65536 };
static uint8_t bytes[SPREAD + RECORD_MAX_PAYLOAD];

void record_init(void)
{
    dice d = { .state = 7 };
    for (size_t i = 0; i < sizeof bytes; i++) {
        bool is_noise = (i / 4096) % 2 == 0;
        bytes[i] = is_noise ? (uint8_t)dice_next(&d) : (uint8_t)("weir "[i % 5]);
    }
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9fb21c651e98df25u;
    return hash ^ (hash >> 32);
}

static uint64_t checksum(const record *self)
{
    return mix(mix(mix(MAGIC, self->stream), self->number), self->length);
}

const uint8_t *record_payload(const record *self)
{
    return bytes + checksum(self) % SPREAD;
}

static void put(uint8_t *to, uint64_t value, unsigned width)
{
    for (unsigned i = 0; i < width; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *from, unsigned width)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < width; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

void record_write_header(const record *self, uint8_t header[RECORD_HEADER_BYTES])
{
    put(header, MAGIC, 4);
    put(header + 4, self->stream, 4);
    put(header + 8, self->number, 4);
    put(header + 12, self->length, 4);
    put(header + 16, checksum(self), 8);
}

bool record_read_header(record *self, const uint8_t header[RECORD_HEADER_BYTES])
{
    self->stream = (uint32_t)get(header + 4, 4);
    self->number = (uint32_t)get(header + 8, 4);
    self->length = (uint32_t)get(header + 12, 4);
    return get(header, 4) == MAGIC && get(header + 16, 8) == checksum(self) &&
           self->length <= RECORD_MAX_PAYLOAD;
}

void record_copy(const record *self, size_t offset, uint8_t *to, size_t length)
{
    uint8_t header[RECORD_HEADER_BYTES];
    if (offset < sizeof header) {
        size_t part = sizeof header - offset < length ? sizeof header - offset : length;
        record_write_header(self, header);
        memcpy(to, header + offset, part);
        offset += part;
        to += part;
        length -= part;
    }
    if (length > 0)
        memcpy(to, record_payload(self) + (offset - sizeof header), length);
}
