/* SPDX-License-Identifier: MIT */
/* Mutations of fuzz_buf's inputs, a record at a time. */
#include "buf/input.h"
#include "buf/world.h"

#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max_size, unsigned seed);

static const uint8_t weights[] = {
#define WEIGHT(name, weight) weight,
    OPERATIONS(WEIGHT)
#undef WEIGHT
};

/* Records as they lie in the fuzzer's memory, behind the mode. */
typedef struct records {
    uint8_t *at;
    size_t count, room;
    unsigned seed;
} records;

static size_t below(records *r, size_t limit)
{
    return (size_t)rand_r(&r->seed) % limit;
}

static uint8_t *record(records *r, size_t index)
{
    return r->at + index * RECORD_SIZE;
}

static uint8_t choose_operation(records *r)
{
    size_t sum = 0;
    for (size_t i = 0; i < sizeof weights; i++)
        sum += weights[i];
    size_t left = below(r, sum);
    uint8_t which = 0;
    while (left >= weights[which])
        left -= weights[which++];
    return which;
}

static uint8_t choose_subject(records *r)
{
    uint8_t subject = (uint8_t)below(r, SLOT_COUNT);
    if (below(r, 3) > 0)
        subject |= SUBJECT_IS_SAME;
    if (below(r, 12) == 0)
        subject |= SUBJECT_IS_SLICE;
    return subject;
}

static void insert_new(records *r)
{
    if (r->count == r->room)
        return;
    size_t index = below(r, r->count + 1);
    memmove(record(r, index + 1), record(r, index), (r->count++ - index) * RECORD_SIZE);
    uint8_t *made = record(r, index);
    for (size_t i = 0; i < RECORD_SIZE; i++)
        made[i] = (uint8_t)below(r, 256);
    made[0] = choose_operation(r);
    made[1] = choose_subject(r);
}

static void remove_some(records *r)
{
    size_t index = below(r, r->count), count = 1 + below(r, 4);
    if (count > r->count - index)
        count = r->count - index;
    r->count -= count;
    memmove(record(r, index), record(r, index + count), (r->count - index) * RECORD_SIZE);
}

static void change_one(records *r)
{
    uint8_t *changed = record(r, below(r, r->count));
    switch (below(r, 8)) {
    case 0:
        changed[0] = choose_operation(r);
        break;
    case 1:
        changed[1] = choose_subject(r);
        break;
    case 2:
        changed[2 + below(r, RECORD_SIZE - 2)] ^= (uint8_t)(1 << below(r, 8));
        break;
    case 3:
        changed[2 + below(r, 4)] += (uint8_t)(below(r, 2) ? 1 : -1);
        break;
    default:
        changed[2 + below(r, 6)] = (uint8_t)below(r, 256);
    }
}

static void swap_two(records *r)
{
    uint8_t kept[RECORD_SIZE];
    uint8_t *a = record(r, below(r, r->count)), *b = record(r, below(r, r->count));
    memcpy(kept, a, RECORD_SIZE);
    memmove(a, b, RECORD_SIZE);
    memcpy(b, kept, RECORD_SIZE);
}

static void mutate(records *r)
{
    size_t how = below(r, 10);
    if (how < 5 || r->count == 0)
        insert_new(r);
    else if (how < 7)
        change_one(r);
    else if (how < 9)
        remove_some(r);
    else
        swap_two(r);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    records r = { data + 1, size > 0 ? (size - 1) / RECORD_SIZE : 0, 0, seed };
    if (max_size == 0)
        return 0;
    r.room = (max_size - 1) / RECORD_SIZE;
    if (r.room > MAX_RECORDS)
        r.room = MAX_RECORDS;
    if (r.count > r.room)
        r.count = r.room;
    if (size == 0 || below(&r, 50) == 0)
        data[0] = (uint8_t)below(&r, 2);
    for (size_t left = 1 + below(&r, 6); left > 0; left--)
        mutate(&r);
    return 1 + r.count * RECORD_SIZE;
}

/* The beginning of one and the end of the other. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max_size, unsigned seed)
{
    records r = { out, 0, 0, seed };
    if (a_size == 0 || b_size == 0 || max_size == 0)
        return 0;
    size_t head = 1 + below(&r, (a_size - 1) / RECORD_SIZE + 1) * RECORD_SIZE;
    size_t tail = below(&r, (b_size - 1) / RECORD_SIZE + 1) * RECORD_SIZE;
    if (head + tail > max_size || head > a_size || 1 + tail > b_size)
        return 0;
    memcpy(out, a, head);
    memcpy(out + head, b + b_size - tail, tail);
    return head + tail;
}
