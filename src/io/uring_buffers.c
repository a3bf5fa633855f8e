/* SPDX-License-Identifier: MIT */
/* Buffers that the kernel chooses from when there is something to receive. */
#include "io/uring.h"

#include "base/alloc.h"
#include "base/sanitizer.h"

#include <errno.h>

#define DEFAULT_BUFFERS 1024
#define DEFAULT_BYTES 16384
#define FIRST_WANTED 16
#define PHASES_TO_LOOK_AT 1024 /* before there are fewer */
#define PAGE_BYTES 4096

/* What takes so little of its buffer is copied, so that whoever keeps a message does not keep much
 * more memory than that; and no more than so many bytes. */
#define LEAST_SHARE 4
#define MOST_COPIED 4096

static unsigned power_of_two(unsigned at_least)
{
    unsigned size = 1;
    while (size < at_least)
        size *= 2;
    return size;
}

static int allocate(weir_uring_buffers *self)
{
    size_t bytes = self->size * sizeof(struct io_uring_buf);
    self->memory = weir__zalloc(bytes + PAGE_BYTES);
    self->bufs = weir__zalloc(self->size * sizeof(void *));
    self->spare = weir__alloc(self->size * sizeof *self->spare);
    if (self->memory == NULL || self->bufs == NULL || self->spare == NULL)
        return -ENOMEM;
    size_t past_page = (uintptr_t)self->memory % PAGE_BYTES;
    self->ring = (void *)((char *)self->memory + PAGE_BYTES - past_page);
    for (unsigned i = 0; i < self->size; i++)
        self->spare[i] = (uint16_t)(self->size - 1 - i);
    self->spare_count = self->size;
    return 0;
}

/* Without the ring nothing can be received into it, and the engine receives instead. */
int weir__uring_buffers_open(weir_uring *uring)
{
    weir_uring_buffers *self = &uring->buffers;
    weir_sys *sys = uring->base.base.sys;
    unsigned count = uring->config.buffers > 0 ? uring->config.buffers : DEFAULT_BUFFERS;
    self->size = power_of_two(count);
    self->bytes = uring->config.buffer_bytes > 0 ? uring->config.buffer_bytes : DEFAULT_BYTES;
    self->most_copied = self->bytes / LEAST_SHARE;
    if (self->most_copied > MOST_COPIED)
        self->most_copied = MOST_COPIED;
    int code = allocate(self);
    if (code == 0) {
        struct io_uring_buf_reg wish = { .ring_addr = (uintptr_t)self->ring,
                                         .ring_entries = self->size };
        code = sys->io_uring_register(sys, uring->ring.ring_fd, IORING_REGISTER_PBUF_RING, &wish,
                                      1);
    }
    if (code < 0)
        weir__uring_buffers_close(uring);
    return code;
}

/* The kernel has no use for them any more. */
void weir__uring_buffers_close(weir_uring *uring)
{
    weir_uring_buffers *self = &uring->buffers;
    for (unsigned i = 0; self->bufs != NULL && i < self->size; i++)
        weir_buf_release(self->bufs[i]);
    weir__free(self->memory);
    weir__free(self->bufs);
    weir__free(self->spare);
    *self = (weir_uring_buffers){ .users = self->users };
}

/* The kernel has it from now on. */
static inline void offer(weir_uring_buffers *self, unsigned number)
{
    io_uring_buf_ring_add(self->ring, self->bufs[number]->data, self->bytes, (uint16_t)number,
                          io_uring_buf_ring_mask(self->size), 0);
    io_uring_buf_ring_advance(self->ring, 1);
}

/* The first time somebody receives, and then from the pool of the loop's thread. */
bool weir__uring_buffers_fill(weir_uring *uring)
{
    weir_uring_buffers *self = &uring->buffers;
    if (self->wanted == 0)
        self->wanted = self->size < FIRST_WANTED ? self->size : FIRST_WANTED;
    while (self->count < self->wanted) {
        weir_buf *buf = weir_buf_new(self->bytes);
        if (buf == NULL)
            break;
        unsigned number = self->spare[--self->spare_count];
        self->bufs[number] = buf;
        offer(self, number);
        self->count++;
    }
    return self->count > 0;
}

void weir__uring_buffers_grow(weir_uring *uring)
{
    weir_uring_buffers *self = &uring->buffers;
    weir__io_count(&uring->base.base.counters->exhausted);
    bool is_for_many = self->takers >= self->wanted / 2;
    if (self->wanted < self->size && self->wanted < self->users && is_for_many &&
        self->grown_turn != uring->base.base.turn)
        self->wanted *= 2;
    self->grown_turn = uring->base.base.turn;
}

void weir__uring_buffers_review(weir_uring *uring)
{
    weir_uring_buffers *self = &uring->buffers;
    self->most_used = self->used > self->most_used ? self->used : self->most_used;
    self->used = self->takers = 0;
    if (++self->phases < PHASES_TO_LOOK_AT)
        return;
    if (self->wanted > FIRST_WANTED && self->most_used <= self->wanted / 4)
        self->wanted /= 2;
    self->phases = self->most_used = 0;
}

weir_buf *weir__uring_buffers_hand_on(weir_uring *uring, unsigned number)
{
    weir_uring_buffers *self = &uring->buffers;
    weir_buf *buf = self->bufs[number];
    self->bufs[number] = NULL;
    self->spare[self->spare_count++] = (uint16_t)number;
    self->count--;
    return buf;
}

/* Unless there are more than enough. */
static inline void give_back(weir_uring *uring, unsigned number)
{
    weir_uring_buffers *self = &uring->buffers;
    if (self->count > self->wanted)
        weir_buf_release(weir__uring_buffers_hand_on(uring, number));
    else
        offer(self, number);
}

WEIR__HOT inline weir_buf *weir__uring_buffers_take(weir_uring *uring, unsigned number,
                                                    size_t length)
{
    weir_uring_buffers *self = &uring->buffers;
    weir_buf *buf = self->bufs[number];
    self->used++;
    weir__note_written(buf->data, length);
    weir_buf *copy = length <= self->most_copied ? weir_buf_from(buf->data, length) : NULL;
    if (copy != NULL) {
        give_back(uring, number);
        return copy;
    }
    weir__uring_buffers_hand_on(uring, number);
    buf->writer = (uint32_t)length;
    return buf;
}

void *weir__uring_buffers_look(weir_uring *uring, unsigned number)
{
    uring->buffers.used++;
    weir__note_written(uring->buffers.bufs[number]->data, uring->buffers.bytes);
    return uring->buffers.bufs[number]->data;
}

void weir__uring_buffers_put_back(weir_uring *uring, unsigned number)
{
    if (uring->buffers.bufs[number] != NULL)
        give_back(uring, number);
}
