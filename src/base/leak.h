/* SPDX-License-Identifier: MIT */
/* Records where messages are made, when asked to. */
#ifndef WEIR_BASE_LEAK_H
#define WEIR_BASE_LEAK_H

#include <weir/leak.h>
#include <weir/msg.h>

#include <stdatomic.h>

/* The mode, or WEIR__LEAK_UNREAD until the environment was looked at. */
#define WEIR__LEAK_UNREAD (-1)
extern _Atomic(int) weir__leak_mode;

uint32_t weir__leak_record(const weir_msg *msg);
void weir__leak_forget(uint32_t track);

/* A message is born: its record's number, 0 for none. Never fails; it may just not record. */
static inline uint32_t weir__leak_born(const weir_msg *msg)
{
    if (atomic_load_explicit(&weir__leak_mode, memory_order_relaxed) == WEIR_LEAK_OFF)
        return 0;
    return weir__leak_record(msg);
}

static inline void weir__leak_died(uint32_t track)
{
    if (track != 0)
        weir__leak_forget(track);
}

/*
 * Writes where a message was made into `text`, also for one that died not long ago; an empty
 * text when it is not known.
 */
void weir__leak_place(const weir_msg *msg, uint32_t track, char *text, size_t size);

#endif
