/* SPDX-License-Identifier: MIT */
/* Messages: the reference count. */
#include "base/assert.h"
#include "base/leak.h"

#include <weir/msg.h>

#include <errno.h>
#include <stdatomic.h>

void weir_msg_init(weir_msg *msg, const weir_msg_type *type)
{
    WEIR_ASSERT(msg != NULL && type != NULL && type->destroy != NULL);
    msg->type = type;
    atomic_init(&msg->refs, 1);
    msg->track = 0;
    if (weir__leak_is_on())
        weir__leak_record(msg);
}

__attribute__((noinline, cold)) static void report_dead(const char *function, const weir_msg *msg)
{
    char place[1600];
    weir__leak_place(msg, msg->track, place, sizeof place);
    weir__misuse(function,
                 "message %p of type %s is dead: released too often, or a borrowed slice%s%s",
                 (const void *)msg, msg->type != NULL ? msg->type->name : "?",
                 place[0] != '\0' ? "; it was made at\n" : "", place);
}

weir_msg *weir_msg_retain(weir_msg *msg)
{
    if (msg == NULL)
        return NULL;
    uint32_t refs = atomic_load_explicit(&msg->refs, memory_order_relaxed);
    if (refs == 0) {
        report_dead(__func__, msg);
        return NULL;
    }
    /* From 2^31 references on a message is immortal: better lost than freed under somebody. Locked
     * even for a count of 1: it may be that of another message, which two threads hold. */
    if (refs < WEIR_MSG_IMMORTAL)
        atomic_fetch_add_explicit(&msg->refs, 1, memory_order_relaxed);
    return msg;
}

__attribute__((noinline)) static int destroy_tracked(weir_msg *msg)
{
    weir__leak_died(msg->track);
    msg->type->destroy(msg);
    return 1;
}

static inline int destroy(weir_msg *msg)
{
    atomic_store_explicit(&msg->refs, 0, memory_order_relaxed);
    if (__builtin_expect(msg->track != 0, 0))
        return destroy_tracked(msg);
    msg->type->destroy(msg);
    return 1;
}

__attribute__((noinline)) static int release_shared(weir_msg *msg, uint32_t refs)
{
    if (refs >= WEIR_MSG_IMMORTAL)
        return 0;
    if (refs == 0) {
        report_dead("weir_msg_release", msg);
        return -EINVAL;
    }
    refs = atomic_fetch_sub_explicit(&msg->refs, 1, memory_order_release);
    if (refs != 1)
        return 0;
    /* The others left between the two: this load pairs with their decrements. */
    (void)atomic_load_explicit(&msg->refs, memory_order_acquire);
    return destroy(msg);
}

WEIR__HOT int weir_msg_release(weir_msg *msg)
{
    if (msg == NULL)
        return -EINVAL;
    /* Acquire: what others did before they released is done before the message is destroyed. */
    uint32_t refs = atomic_load_explicit(&msg->refs, memory_order_acquire);
    /* Alone: nobody else can be changing the count. */
    return refs == 1 ? destroy(msg) : release_shared(msg, refs);
}

void weir_msg_release_value(void *msg)
{
    weir_msg_release(msg);
}

size_t weir_msg_size(const weir_msg *msg)
{
    return msg != NULL && msg->type->size != NULL ? msg->type->size(msg) : 0;
}

uint32_t weir_msg_refs(const weir_msg *msg)
{
    return msg != NULL ? atomic_load_explicit(&msg->refs, memory_order_relaxed) : 0;
}
