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

/* A message that was born may get a record, whose number is then in it. Never fails; it may just
 * not record. */
void weir__leak_record(weir_msg *msg);
void weir__leak_forget(uint32_t track);

/* Records have serial numbers: that of the next one, how many messages are alive that have this or
 * a later one, whether a message has, and weir_leak_report for those alone. */
uint64_t weir__leak_next_serial(void);
size_t weir__leak_count_since(uint64_t first);
bool weir__leak_is_since(const weir_msg *msg, uint64_t first);
size_t weir__leak_report_since(uint64_t first, weir_leak_fn fn, void *arg);

static inline bool weir__leak_is_on(void)
{
    return __builtin_expect(
        atomic_load_explicit(&weir__leak_mode, memory_order_relaxed) != WEIR_LEAK_OFF, 0);
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
