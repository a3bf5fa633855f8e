/* SPDX-License-Identifier: MIT */
/* The leak detector: a table of recorded messages with the stack at their making. */
#include "base/leak.h"

#include "base/env.h"
#include "base/trace.h"

#include <weir/log.h>

#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The table takes its memory from the C library itself: it must not show up in the counts it
 * helps to check, nor fail where a test makes weir's memory fail.
 */

#define FRAMES 12
#define SKIPPED_FRAMES 1 /* weir__leak_record itself */
#define SAMPLE_EVERY 128

/* A dead record waits behind this many others, so that an over-release can still name its place. */
#define MIN_DEAD 1024

typedef struct leak_record {
    const weir_msg *msg;
    const weir_msg_type *type;
    uint64_t serial; /* counts all that were ever recorded */
    bool is_live;
    uint32_t next_dead;
    int frame_count;
    void *frames[FRAMES];
} leak_record;

_Atomic(int) weir__leak_mode = WEIR__LEAK_UNREAD;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static leak_record *table; /* record n stands at table[n - 1] */
static uint32_t table_count, table_room;
static uint64_t next_serial;
static uint32_t first_dead, last_dead, dead_count; /* reused first in, first out */

static int mode_from_environment(void)
{
    static weir_env_words modes = { "WEIR_LEAK", { "off", "sample", "all", NULL }, false };
#ifdef WEIR_DEBUG
    return weir__env_word(&modes, WEIR_LEAK_ALL);
#else
    return weir__env_word(&modes, WEIR_LEAK_OFF);
#endif
}

void weir_leak_set_mode(weir_leak_mode mode)
{
    atomic_store(&weir__leak_mode, (int)mode);
}

weir_leak_mode weir_leak_get_mode(void)
{
    int mode = atomic_load_explicit(&weir__leak_mode, memory_order_relaxed);
    if (mode == WEIR__LEAK_UNREAD) {
        /* A set_mode that comes in between wins. */
        int expected = WEIR__LEAK_UNREAD;
        mode = mode_from_environment();
        if (!atomic_compare_exchange_strong(&weir__leak_mode, &expected, mode))
            mode = expected;
    }
    return (weir_leak_mode)mode;
}

/* The number of a free record, 0 when there is no memory for one. Under the lock. */
static uint32_t take_record(void)
{
    if (dead_count > MIN_DEAD) {
        uint32_t track = first_dead;
        first_dead = table[track - 1].next_dead;
        dead_count--;
        return track;
    }
    if (table_count == table_room) {
        uint32_t room = table_room > 0 ? table_room * 2 : 1024;
        leak_record *grown = realloc(table, room * sizeof *grown);
        if (grown == NULL)
            return 0;
        table = grown;
        table_room = room;
    }
    return ++table_count;
}

WEIR__BESIDE void weir__leak_record(weir_msg *msg)
{
    static _Thread_local unsigned until_sample;

    weir_leak_mode mode = weir_leak_get_mode();
    if (mode == WEIR_LEAK_OFF)
        return;
    if (mode == WEIR_LEAK_SAMPLE && until_sample++ % SAMPLE_EVERY != 0)
        return;

    void *frames[FRAMES + SKIPPED_FRAMES];
    int count = backtrace(frames, FRAMES + SKIPPED_FRAMES) - SKIPPED_FRAMES;
    if (count < 0)
        count = 0;

    pthread_mutex_lock(&table_lock);
    uint32_t track = take_record();
    if (track != 0) {
        leak_record *record = &table[track - 1];
        *record = (leak_record){
            .msg = msg, .type = msg->type, .serial = next_serial++, .is_live = true
        };
        record->frame_count = count;
        memcpy(record->frames, frames + SKIPPED_FRAMES, (size_t)count * sizeof *frames);
    }
    pthread_mutex_unlock(&table_lock);
    msg->track = track;
}

WEIR__BESIDE void weir__leak_forget(uint32_t track)
{
    pthread_mutex_lock(&table_lock);
    table[track - 1].is_live = false;
    table[track - 1].next_dead = 0;
    if (dead_count++ == 0)
        first_dead = track;
    else
        table[last_dead - 1].next_dead = track;
    last_dead = track;
    pthread_mutex_unlock(&table_lock);
}

void weir__leak_place(const weir_msg *msg, uint32_t track, char *text, size_t size)
{
    text[0] = '\0';
    leak_record record = { 0 };
    pthread_mutex_lock(&table_lock);
    if (track > 0 && track <= table_count && table[track - 1].msg == msg)
        record = table[track - 1];
    pthread_mutex_unlock(&table_lock);
    if (record.frame_count > 0)
        weir__trace_write(record.frames, record.frame_count, text, size);
}

static int compare_places(const void *a, const void *b)
{
    const leak_record *left = a, *right = b;
    if (left->type != right->type)
        return left->type < right->type ? -1 : 1;
    if (left->frame_count != right->frame_count)
        return left->frame_count < right->frame_count ? -1 : 1;
    return memcmp(left->frames, right->frames, (size_t)left->frame_count * sizeof *left->frames);
}

typedef struct leak_group {
    const leak_record *record;
    size_t count;
} leak_group;

static int compare_counts(const void *a, const void *b)
{
    const leak_group *left = a, *right = b;
    return left->count > right->count ? -1 : left->count < right->count;
}

uint64_t weir__leak_next_serial(void)
{
    pthread_mutex_lock(&table_lock);
    uint64_t serial = next_serial;
    pthread_mutex_unlock(&table_lock);
    return serial;
}

bool weir__leak_is_since(const weir_msg *msg, uint64_t first)
{
    pthread_mutex_lock(&table_lock);
    bool is_since = msg->track != 0 && table[msg->track - 1].serial >= first;
    pthread_mutex_unlock(&table_lock);
    return is_since;
}

size_t weir__leak_count_since(uint64_t first)
{
    size_t count = 0;
    pthread_mutex_lock(&table_lock);
    for (uint32_t i = 0; i < table_count; i++)
        count += table[i].is_live && table[i].serial >= first;
    pthread_mutex_unlock(&table_lock);
    return count;
}

/* A copy of the live records, so that `fn` runs without the lock and may release what it sees. */
static leak_record *copy_live(uint64_t first, size_t *count)
{
    *count = 0;
    pthread_mutex_lock(&table_lock);
    leak_record *live = malloc((table_count > 0 ? table_count : 1) * sizeof *live);
    for (uint32_t i = 0; live != NULL && i < table_count; i++) {
        if (table[i].is_live && table[i].serial >= first)
            live[(*count)++] = table[i];
    }
    pthread_mutex_unlock(&table_lock);
    return live;
}

static void log_leak(void *arg, const weir_leak *leak)
{
    (void)arg;
    weir_log(WEIR_LOG_WARN, "leak", "%zu live messages of type %s, made at\n%s", leak->count,
             leak->type, leak->place);
}

size_t weir_leak_report(weir_leak_fn fn, void *arg)
{
    return weir__leak_report_since(0, fn, arg);
}

size_t weir__leak_report_since(uint64_t first, weir_leak_fn fn, void *arg)
{
    size_t count;
    leak_record *live = copy_live(first, &count);
    leak_group *groups = malloc((count > 0 ? count : 1) * sizeof *groups);
    size_t group_count = 0;
    if (live != NULL && groups != NULL) {
        qsort(live, count, sizeof *live, compare_places);
        for (size_t i = 0; i < count; i++) {
            if (i == 0 || compare_places(&live[i - 1], &live[i]) != 0)
                groups[group_count++] = (leak_group){ &live[i], 0 };
            groups[group_count - 1].count++;
        }
        qsort(groups, group_count, sizeof *groups, compare_counts);
    }
    for (size_t i = 0; i < group_count; i++) {
        char place[1600];
        weir__trace_write(groups[i].record->frames, groups[i].record->frame_count, place,
                          sizeof place);
        weir_leak leak = { groups[i].record->type->name, groups[i].count, place };
        (fn != NULL ? fn : log_leak)(arg, &leak);
    }
    free(groups);
    free(live);
    return count;
}
