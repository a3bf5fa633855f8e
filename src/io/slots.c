/* SPDX-License-Identifier: MIT */
/* The table of files. */
#include "io/slots.h"

#include "base/alloc.h"

#include <errno.h>

#define FIRST_ROOM 64

void weir__slots_deinit(weir_slots *slots)
{
    weir__free(slots->slots);
    *slots = (weir_slots){ 0 };
}

static int grow(weir_slots *slots)
{
    uint32_t room = slots->room > 0 ? slots->room * 2 : FIRST_ROOM;
    weir_slot *memory = weir__realloc(slots->slots, room * sizeof *memory);
    if (memory == NULL)
        return -ENOMEM;
    slots->slots = memory;
    slots->room = room;
    return 0;
}

int weir__slots_add(weir_slots *slots, weir_io_file *file)
{
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
    at->fd = file->fd;
    at->generation++;
    file->slot = place;
    return 0;
}

void weir__slots_remove(weir_slots *slots, weir_io_file *file)
{
    weir_slot *at = &slots->slots[file->slot - 1];
    at->generation++;
    at->next_free = slots->first_free;
    slots->first_free = file->slot;
    file->slot = 0;
}
