/* SPDX-License-Identifier: MIT */
/* The table behind the numbers that the kernel is given in place of pointers to files. */
#ifndef WEIR_IO_SLOTS_H
#define WEIR_IO_SLOTS_H

#include "io/io.h"

/* A key is a place in the table and its generation, which grows with every file that stood there:
 * what the kernel still says about a file that is gone finds another generation. */
typedef struct weir_slot {
    union {
        weir_io_file *file;
        uint32_t next_free; /* as file->slot counts; 0: none */
    };
    uint32_t generation; /* odd while a file stands there */
    union {
        uint32_t next_in_bucket; /* while a file stands there: as file->slot counts; 0: none */
        int fd;                  /* of the last file, else */
    };
} weir_slot;

/* Memory of every connection against memory that is looked at when one is attached. */
#define WEIR_SLOTS_PER_BUCKET 4

/* All zero is an empty table. */
typedef struct weir_slots {
    weir_slot *slots;
    uint32_t *buckets; /* places by their descriptor, one for every WEIR_SLOTS_PER_BUCKET */
    uint32_t room, count, first_free;
} weir_slots;

void weir__slots_deinit(weir_slots *slots);

/* Gives the file a place. -ENOMEM; -EEXIST when a file with its descriptor has one. */
int weir__slots_add(weir_slots *slots, weir_io_file *file);
void weir__slots_remove(weir_slots *slots, weir_io_file *file);

/* Never 0. */
static inline uint64_t weir__slots_key(const weir_slots *slots, const weir_io_file *file)
{
    return (uint64_t)slots->slots[file->slot - 1].generation << 32 | file->slot;
}

/* The file stays, but what the kernel still says about its old key concerns nobody. */
static inline void weir__slots_renew(weir_slots *slots, const weir_io_file *file)
{
    slots->slots[file->slot - 1].generation += 2;
}

/* The nth, NULL when its place is free. */
static inline weir_io_file *weir__slots_at(const weir_slots *slots, uint32_t n)
{
    return slots->slots[n].generation % 2 == 1 ? slots->slots[n].file : NULL;
}

/* NULL when the file is gone. */
static inline weir_io_file *weir__slots_find(const weir_slots *slots, uint64_t key)
{
    const weir_slot *at = &slots->slots[(uint32_t)key - 1];
    return at->generation == key >> 32 ? at->file : NULL; /* keys have odd ones only */
}

/* The descriptor that a key was made for, or the next one in its place. */
static inline int weir__slots_fd(const weir_slots *slots, uint64_t key)
{
    uint32_t n = (uint32_t)key - 1;
    const weir_io_file *file = weir__slots_at(slots, n);
    return file != NULL ? file->fd : slots->slots[n].fd;
}

#endif
