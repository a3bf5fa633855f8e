/* SPDX-License-Identifier: MIT */
/* The table of files. */
#include "io/slots.h"

#include "base/alloc.h"

#include <errno.h>

#define FIRST_ROOM 64

void weir__slots_deinit(weir_slots *slots)
{
    weir__free(slots->slots);
    weir__free(slots->buckets);
    *slots = (weir_slots){ 0 };
}

/* By descriptor ------------------------------------------------------------------------------ */

/* The kernel hands out the lowest free descriptor, so their low bits spread them evenly. */
static uint32_t *bucket_of(weir_slots *slots, int fd)
{
    return &slots->buckets[(uint32_t)fd & (slots->room / WEIR_SLOTS_PER_BUCKET - 1)];
}

static bool has_fd(weir_slots *slots, int fd)
{
    uint32_t place = *bucket_of(slots, fd);
    while (place != 0 && slots->slots[place - 1].file->fd != fd)
        place = slots->slots[place - 1].next_in_bucket;
    return place != 0;
}

static void link_place(weir_slots *slots, uint32_t place)
{
    weir_slot *at = &slots->slots[place - 1];
    uint32_t *bucket = bucket_of(slots, at->file->fd);
    at->next_in_bucket = *bucket;
    *bucket = place;
}

static void unlink_place(weir_slots *slots, uint32_t place)
{
    uint32_t *link = bucket_of(slots, slots->slots[place - 1].file->fd);
    while (*link != place)
        link = &slots->slots[*link - 1].next_in_bucket;
    *link = slots->slots[place - 1].next_in_bucket;
}

/* Places ------------------------------------------------------------------------------------- */

static int grow(weir_slots *slots)
{
    uint32_t room = slots->room > 0 ? slots->room * 2 : FIRST_ROOM;
    uint32_t *buckets = weir__zalloc(room / WEIR_SLOTS_PER_BUCKET * sizeof *buckets);
    weir_slot *memory = buckets != NULL ? weir__realloc(slots->slots, room * sizeof *memory) : NULL;
    if (memory == NULL) {
        weir__free(buckets);
        return -ENOMEM;
    }
    weir__free(slots->buckets);
    slots->slots = memory;
    slots->buckets = buckets;
    slots->room = room;
    for (uint32_t i = 0; i < slots->count; i++) {
        if (weir__slots_at(slots, i) != NULL)
            link_place(slots, i + 1);
    }
    return 0;
}

int weir__slots_add(weir_slots *slots, weir_io_file *file)
{
    if (slots->room > 0 && has_fd(slots, file->fd))
        return -EEXIST;
    uint32_t place = slots->first_free;
    if (place == 0) {
        if (slots->count == slots->room && grow(slots) < 0)
            return -ENOMEM;
        place = ++slots->count;
        slots->slots[place - 1] = (weir_slot){ 0 };
    }
    weir_slot *at = &slots->slots[place - 1];
    slots->first_free = at->next_free;
    at->file = file;
    at->generation++;
    link_place(slots, place);
    file->slot = place;
    return 0;
}

void weir__slots_remove(weir_slots *slots, weir_io_file *file)
{
    weir_slot *at = &slots->slots[file->slot - 1];
    unlink_place(slots, file->slot);
    at->generation++;
    at->fd = file->fd;
    at->next_free = slots->first_free;
    slots->first_free = file->slot;
    file->slot = 0;
}
