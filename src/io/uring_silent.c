/* SPDX-License-Identifier: MIT */
/* Sends that nothing is heard of, unless they fail. */
#include "base/alloc.h"
#include "base/fault.h"
#include "base/spare.h"
#include "io/uring.h"

#include <errno.h>

/*
 * A send that does not wait for room is over when the kernel has taken its submission. So the entry
 * that hands it over says by itself that it went, if no result says otherwise: there is no
 * operation whose end has to be told, nobody looks at the file again, and the wait in that same
 * entry ends with the next event. All that is left to do is to release what was sent.
 *
 *      sends
 *      [went] [went] [went] [not handed over] [not handed over]
 *       `---- gone ------'                                    ' count
 *
 * MSG_WAITALL makes a short send a failure, which has a result: how much of it went (since 6.1).
 */
#define HOW_TO_SEND (MSG_NOSIGNAL | MSG_DONTWAIT | MSG_WAITALL)

int weir__uring_silent_open(weir_uring *self)
{
    const unsigned needed = WEIR_URING_SILENT | WEIR_URING_SEND;
    weir_uring_silent *silent = &self->silent;
    silent->most = silent->seen = 0;
    if ((self->features & needed) != needed)
        return 0;
    if (silent->sends == NULL)
        silent->sends = weir__alloc(WEIR_URING_MOST_SILENT * sizeof *silent->sends);
    if (silent->sends == NULL)
        return -ENOMEM;
    silent->most = WEIR_URING_MOST_SILENT;
    return 0;
}

void weir__uring_silent_close(weir_uring *self)
{
    weir__free(self->silent.sends);
    self->silent.sends = NULL;
}

/* What may fail, or has failed, goes the other way. */
WEIR__HOT int weir__uring_send_silently(weir_io *base, weir_io_file *file, weir_msg *msg,
                                        void *memory, const void *bytes, size_t length)
{
    weir_uring *self = weir__uring_of(base);
    weir_uring_silent *silent = &self->silent;
    bool is_usual = silent->count < silent->most && file->error == 0 && !weir__has_faults();
    struct io_uring_sqe *entry = is_usual ? weir__uring_next(self) : NULL;
    if (entry == NULL)
        return -EAGAIN;
    weir__io_count(&base->counters->sends);
    io_uring_prep_send(entry, file->fd, bytes, length, HOW_TO_SEND);
    entry->flags = IOSQE_CQE_SKIP_SUCCESS;
    entry->user_data = (uintptr_t)memory + WEIR_URING_UNLESS;
    file->silent_entry = base->entry;
    silent->sends[silent->count++] =
        (weir_uring_send){ .file = file, .msg = msg, .memory = memory };
    return 0;
}

/* What became of them ----------------------------------------------------------------------------
 */

static weir_uring_send *find(weir_uring_silent *silent, uint64_t name)
{
    for (unsigned i = silent->gone; i < silent->count; i++) {
        if ((uintptr_t)silent->sends[i].memory + WEIR_URING_UNLESS == name)
            return &silent->sends[i];
    }
    return NULL;
}

/* Its owner may send again. */
static weir_io_file *part_from(weir_uring_send *send)
{
    weir_io_file *file = send->file;
    file->silent_entry = 0;
    send->file = NULL;
    return file;
}

static void give_back(weir_uring *self, weir_uring_send *send, int code)
{
    weir_io_file *file = part_from(send);
    void *memory = send->memory;
    send->memory = NULL;
    self->base.base.on_settled(file, memory, code);
}

/* Each result is looked at once: what it tells of may be at work again before it is told. */
static void note_failures(weir_uring *self)
{
    weir_uring_silent *silent = &self->silent;
    const struct io_uring_cq *queue = &self->ring.cq;
    unsigned end = io_uring_smp_load_acquire(queue->ktail), at = *queue->khead;
    if (silent->seen - at <= end - at) /* else that was long ago */
        at = silent->seen;
    silent->seen = end;
    for (; at != end; at++) {
        const struct io_uring_cqe *result = &queue->cqes[at & queue->ring_mask];
        if (!weir__uring_is_unless(result->user_data))
            continue;
        weir_uring_send *send = find(silent, result->user_data);
        bool is_undone = weir__uring_is_refusal(result->res) || result->res == -EINTR;
        if (result->res == -EINVAL || result->res == -EOPNOTSUPP)
            silent->most = 0; /* it will not be otherwise the next time */
        if (send != NULL && send->file != NULL)
            give_back(self, send, is_undone ? 0 : result->res);
    }
}

/* Those who could not be told when they asked. */
static void tell_awaited(weir_uring *self)
{
    weir_uring_silent *silent = &self->silent;
    silent->has_awaited = false;
    for (unsigned i = 0; i < silent->gone; i++) {
        weir_uring_send *send = &silent->sends[i];
        if (send->file != NULL && send->is_awaited)
            self->base.base.on_settled(part_from(send), NULL, 0);
    }
}

/* 0 is for files on which nothing was ever sent silently. */
static void count_entry(weir_io *base)
{
    if (++base->entry == 0)
        base->entry = 1;
}

/* What the kernel has not taken yet, or what it says about it and found no room for, is known with
 * a later entry. */
void weir__uring_settle_silent(weir_uring *self)
{
    weir_uring_silent *silent = &self->silent;
    note_failures(self);
    if (weir__uring_has_submissions(self) || weir__uring_has_overflown(self))
        return;
    silent->gone = silent->count;
    count_entry(&self->base.base);
    if (silent->has_awaited)
        tell_awaited(self);
}

/* Whether the kernel has taken the submission; else it is made one of nothing. */
static bool was_taken(weir_uring *self, const weir_uring_send *send)
{
    struct io_uring_sq *queue = &self->ring.sq;
    for (unsigned at = *queue->khead; at != queue->sqe_tail; at++) {
        struct io_uring_sqe *entry = &queue->sqes[at & queue->ring_mask];
        if (entry->user_data == (uintptr_t)send->memory + WEIR_URING_UNLESS) {
            *entry = (struct io_uring_sqe){ 0 };
            io_uring_prep_nop(entry);
            entry->user_data = WEIR_URING_NOTHING;
            return false;
        }
    }
    return true;
}

/* NULL: it was so long ago that the number of its entry has come round. */
static weir_uring_send *send_of(weir_uring_silent *silent, const weir_io_file *file)
{
    for (unsigned i = silent->gone; i < silent->count; i++) {
        if (silent->sends[i].file == file)
            return &silent->sends[i];
    }
    return NULL;
}

bool weir__uring_settle(weir_io *base, weir_io_file *file)
{
    weir_uring *self = weir__uring_of(base);
    if (weir__io_is_sending(base, file))
        weir__uring_enter(self, 0);
    if (!weir__io_is_sending(base, file))
        return true;
    weir_uring_send *send = send_of(&self->silent, file);
    if (send == NULL) {
        file->silent_entry = 0;
        return true;
    }
    if (!was_taken(self, send)) {
        give_back(self, send, 0);
        return true;
    }
    send->is_awaited = self->silent.has_awaited = true;
    return false;
}

/* It had its attempt: nobody wants to know any more what came of it. */
void weir__uring_forget_silent(weir_uring *self, weir_io_file *file)
{
    if (!weir__uring_settle(&self->base.base, file))
        part_from(send_of(&self->silent, file));
}

/* Of what was taken nobody will ever know, if results were missing. */
void weir__uring_salvage_silent(weir_uring *self)
{
    weir_uring_silent *silent = &self->silent;
    note_failures(self);
    int lost = weir__uring_has_overflown(self) ? -EIO : 0;
    for (unsigned i = silent->gone; i < silent->count; i++) {
        weir_uring_send *send = &silent->sends[i];
        if (send->file != NULL && !was_taken(self, send))
            give_back(self, send, 0);
        else if (send->file != NULL && lost < 0)
            give_back(self, send, lost);
    }
    silent->gone = silent->count;
    count_entry(&self->base.base);
    tell_awaited(self);
}

/* The end ----------------------------------------------------------------------------------------
 */

/* At the end of the loop there may be some that nobody was told of. */
void weir__uring_release_all(weir_uring *self)
{
    while (self->silent.count > 0) {
        self->silent.gone = self->silent.count;
        weir__uring_release_sent(self);
    }
}

/* What is sent meanwhile comes behind, and is for the next time. */
WEIR__HOT void weir__uring_release_sent(weir_uring *self)
{
    weir_uring_silent *silent = &self->silent;
    unsigned gone = silent->gone;
    self->base.base.news += gone;
    for (unsigned i = 0; i < gone; i++) {
        weir_uring_send send = silent->sends[i];
        if (send.memory == NULL)
            continue;
        weir__spare_put(self->base.base.spare, send.memory);
        weir_msg_release(send.msg);
    }
    silent->count -= gone;
    silent->gone -= gone;
    if (silent->count > 0)
        memmove(silent->sends, silent->sends + gone, silent->count * sizeof *silent->sends);
}
