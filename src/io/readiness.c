/* SPDX-License-Identifier: MIT */
/* Trying, and noticing when it makes sense to try again. */
#include "io/readiness.h"

#include "base/assert.h"
#include "io/kept.h"
#include "io/send.h"

#include <weir/log.h>

#include <errno.h>

#define MOST_WAKES 8 /* tries to write to the eventfd, which is not supposed to fail */

_Static_assert(EPOLLIN == POLLIN && EPOLLPRI == POLLPRI && EPOLLOUT == POLLOUT &&
                   EPOLLERR == POLLERR && EPOLLHUP == POLLHUP && EPOLLRDHUP == POLLRDHUP,
               "what the two say means the same");

/* Files -------------------------------------------------------------------------------------- */

void weir__readiness_attach(weir_io_file *file, int fd)
{
    weir_io_file fresh = { .fd = fd, .bits = WEIR_FILE_WRITABLE }; /* until it says no */
    weir__kept_bring(file, &fresh);
    *file = fresh;
}

void weir__readiness_forget(weir_readiness *self, weir_io_file *file)
{
    WEIR_ASSERT(file->in_flight == 0 && !weir__io_is_sending(file));
    if (weir__list_is_linked(&file->ready))
        weir__list_remove(&file->ready);
    weir__io_forget(&self->base, file);
}

static int watch(weir_readiness *self, weir_io_file *file)
{
    int code = self->watch != NULL ? self->watch(&self->base, file) : 0;
    if (code == 0)
        file->bits |= WEIR_FILE_WATCHED;
    return code;
}

/* Once, when the first operation must wait: a socket that is not connected would report a hang-up
 * at once. */
static int ensure_watched(weir_readiness *self, weir_io_file *file)
{
    return file->bits & WEIR_FILE_WATCHED ? 0 : watch(self, file);
}

void weir__readiness_unwatch(weir_readiness *self, weir_io_file *file)
{
    if (file->bits & WEIR_FILE_WATCHED && self->unwatch != NULL)
        self->unwatch(&self->base, file);
    file->bits &= (uint8_t) ~(WEIR_FILE_WATCHED | WEIR_FILE_PLAIN);
}

void weir__readiness_lose(weir_readiness *self, weir_io_file *file, int code)
{
    enum { OPS = 3 };
    weir_io_op *ops[OPS] = { file->in, file->out, file->level };
    file->error = (int16_t)code;
    file->bits &= (uint8_t) ~(WEIR_FILE_WATCHED | WEIR_FILE_PLAIN);
    for (int i = 0; i < OPS; i++) {
        if (ops[i] != NULL)
            weir__op_finish_later(&self->base, ops[i], code);
    }
    if (file->send_state == WEIR_SEND_WAITING)
        weir__send_end_later(&self->base, file, code);
}

/* Whose turn it is -------------------------------------------------------------------------- */

/* Whether a connect or a send waits for the file to be writable. */
static inline bool waits_out(const weir_io_file *file)
{
    return file->out != NULL || file->send_state == WEIR_SEND_WAITING;
}

static inline bool can_go_on(const weir_io_file *file)
{
    return (file->bits & WEIR_FILE_READABLE && file->in != NULL) ||
           (file->bits & WEIR_FILE_WRITABLE && waits_out(file)) ||
           (file->bits & WEIR_FILE_DEAD && weir__file_hangup(file) != NULL) ||
           (file->events != 0 && weir__file_poll(file) != NULL);
}

void weir__readiness_make_ready(weir_readiness *self, weir_io_file *file)
{
    if (can_go_on(file) && !weir__list_is_linked(&file->ready))
        weir__list_push_back(&self->ready, &file->ready);
}

/* The way out -------------------------------------------------------------------------------- */

/* Who has had its share waits for the next turn, and so does who was interrupted too often. */
int weir__readiness_try_send(weir_io *base, weir_io_file *file)
{
    weir_readiness *self = (weir_readiness *)base;
    if (!(file->bits & WEIR_FILE_WRITABLE) || !weir__io_take_send(base, file))
        return WEIR_SEND_BLOCKED;
    int code = weir__io_try_send(base, file, &self->arena);
    if (code == -EAGAIN)
        file->bits &= (uint8_t)~WEIR_FILE_WRITABLE;
    return code == -EINTR || code == -EAGAIN ? WEIR_SEND_BLOCKED : code;
}

int weir__readiness_wait_to_send(weir_io *base, weir_io_file *file)
{
    weir_readiness *self = (weir_readiness *)base;
    int code = file->bits & WEIR_FILE_WRITABLE ? 0 : ensure_watched(self, file);
    if (code == 0)
        weir__readiness_make_ready(self, file);
    return code;
}

/* One that waits for its share alone is about to continue, and then sends all that it can. */
void weir__readiness_cancel_send(weir_io *base, weir_io_file *file)
{
    if (!(file->bits & WEIR_FILE_WRITABLE))
        weir__send_end_later(base, file, WEIR_SEND_NOTHING);
}

/* A connect that has failed reports a hang-up or an error, and only then the kernel is asked why.
 */
static int connect_result(weir_readiness *self, weir_io_op *op)
{
    return op->file->bits & WEIR_FILE_DEAD ? weir__io_connect_result(&self->base, op) : 0;
}

static void complete_out(weir_readiness *self, weir_io_file *file)
{
    weir_io_op *op = file->out;
    if (op != NULL)
        weir__op_finish(&self->base, op, connect_result(self, op));
    else
        weir__send_continue(&self->base, file);
}

/* The way in --------------------------------------------------------------------------------- */

/* Whether a short read does not mean that there is no more. */
static bool reads_on(const weir_io_file *file)
{
    return file->bits & (WEIR_FILE_HUNG_UP | WEIR_FILE_URGENT) || file->has_boundaries;
}

/* Nothing came any more. */
WEIR__BESIDE static void end_stream(weir_readiness *self, weir_io_op *op, int code, unsigned count)
{
    if (code != -EAGAIN && code != -EINTR) { /* that one in the next turn */
        weir__op_finish_in(&self->base, op, code, count);
        return;
    }
    weir_io_file *file = op->file;
    if (code == -EAGAIN)
        file->bits &= (uint8_t)~WEIR_FILE_READABLE;
    if (count > 0)
        weir__op_end_batch(op);
    if (self->base.current == file)
        weir__readiness_make_ready(self, file);
}

/* A stream: one buffer after the other. Who has more waits for the next turn. */
WEIR__HOT static void complete_stream(weir_readiness *self, weir_io_file *file)
{
    weir_io_op *op = file->in;
    unsigned count = 0;
    weir_io_result result;
    do {
        int code = weir__io_receive(&self->base, op, &self->arena, &result);
        if (code <= 0) {
            end_stream(self, op, code, count);
            return;
        }
        if (result.buf->writer < result.buf->capacity && !reads_on(file))
            file->bits &= (uint8_t)~WEIR_FILE_READABLE;
        count++;
    } while (weir__op_tell_data(&self->base, op, &result) && file->bits & WEIR_FILE_READABLE &&
             count < WEIR_IO_BATCH);
    if (self->base.current == file)
        weir__op_end_batch(op);
}

/* What comes several at a time. */
static void complete_others(weir_readiness *self, weir_io_file *file)
{
    weir_io_op *op = file->in;
    unsigned count = 0;
    bool goes_on = true;
    while (goes_on && file->bits & WEIR_FILE_READABLE && count < WEIR_IO_BATCH) {
        bool may_have_more;
        unsigned room = op->is_multishot ? WEIR_IO_BATCH - count : 1;
        int came = weir__io_try_in(&self->base, op, &self->arena, room, &may_have_more);
        if (came == -EINTR)
            break; /* then in the next turn */
        if (came == -EAGAIN || (!may_have_more && !reads_on(file)))
            file->bits &= (uint8_t)~WEIR_FILE_READABLE;
        if (came == -EAGAIN)
            break;
        if (came <= 0) {
            weir__op_finish_in(&self->base, op, came, count);
            return;
        }
        count += (unsigned)came;
        /* All of them, even if somebody has enough meanwhile: the kernel has them no more, and the
         * operation is there until its final result was told. */
        for (int i = 0; i < came; i++)
            goes_on = weir__op_tell_data(&self->base, op, &self->arena.in.results[i]);
    }
    if (count > 0 && self->base.current == file)
        weir__op_end_batch(op);
}

/* What was kept goes first. */
static void complete_in(weir_readiness *self, weir_io_file *file)
{
    if (weir__kept_has(file))
        weir__kept_tell(&self->base, file->in);
    else if (self->submit_to_kernel != NULL && self->submit_to_kernel(&self->base, file->in))
        return;
    else
        (file->in->kind == WEIR_IO_RECEIVE ? complete_stream : complete_others)(self, file);
}

/* The completion phase ----------------------------------------------------------------------- */

static void complete_poll(weir_readiness *self, weir_io_file *file)
{
    int events = file->events;
    file->events = 0;
    weir__op_tell(&self->base, weir__file_poll(file),
                  &(weir_io_result){ .code = events, .is_armed = true });
}

/* Connect and send go first: they may free memory. Any callback may be the file's last. */
static void complete_file(weir_readiness *self, weir_io_file *file)
{
    self->base.current = file;
    if (file->events != 0 && weir__file_poll(file) != NULL)
        complete_poll(self, file);
    if (self->base.current == file && file->bits & WEIR_FILE_WRITABLE && waits_out(file))
        complete_out(self, file);
    if (self->base.current == file && file->in != NULL && file->bits & WEIR_FILE_READABLE)
        complete_in(self, file);
    if (self->base.current == file && file->bits & WEIR_FILE_DEAD &&
        weir__file_hangup(file) != NULL)
        weir__op_finish(&self->base, weir__file_hangup(file), 0);
    if (self->base.current == file)
        weir__readiness_make_ready(self, file);
}

static uint8_t level_of(uint32_t events)
{
    return (uint8_t)((events & EPOLLIN ? WEIR_IO_READABLE : 0) |
                     (events & EPOLLOUT ? WEIR_IO_WRITABLE : 0) |
                     (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR) ? WEIR_IO_HUNG_UP : 0));
}

/* An event without any bit also leads to a read, which finds out. */
static uint8_t bits_of(uint32_t events)
{
    uint8_t bits = 0;
    if (events & EPOLLOUT)
        bits |= WEIR_FILE_WRITABLE;
    if (events & EPOLLIN || events == 0)
        bits |= WEIR_FILE_READABLE;
    if (events & EPOLLPRI)
        bits |= WEIR_FILE_READABLE | WEIR_FILE_URGENT;
    if (events & EPOLLRDHUP)
        bits |= WEIR_FILE_READABLE | WEIR_FILE_HUNG_UP;
    if (events & (EPOLLERR | EPOLLHUP))
        bits |= WEIR_FILE_READABLE | WEIR_FILE_WRITABLE | WEIR_FILE_HUNG_UP | WEIR_FILE_DEAD;
    return bits;
}

void weir__readiness_begin_rest(weir_readiness *self, weir_completion *phase)
{
    weir__io_tell_ended(&self->base);
    weir__send_report_ended(&self->base);
    /* Those that are ready now; who comes back waits for the next turn. */
    weir__list_init(&phase->rest);
    weir__list_splice_back(&phase->rest, &self->ready);
}

/* A file that waits in the list of those that are ready gets its turn there. */
WEIR__HOT void weir__readiness_event(weir_readiness *self, weir_io_file *file, uint32_t events)
{
    self->base.news++;
    if (file->bits & WEIR_FILE_PLAIN)
        file->events |= level_of(events);
    else
        file->bits |= bits_of(events) & (uint8_t)~file->withheld;
    if (!weir__list_is_linked(&file->ready))
        complete_file(self, file);
}

void weir__readiness_end_rest(weir_readiness *self, weir_completion *phase)
{
    weir_list rest;
    weir_list_node *node;
    weir__list_init(&rest);
    weir__list_splice_back(&rest, &phase->rest);
    while ((node = weir__list_pop_front(&rest)) != NULL)
        complete_file(self, WEIR_CONTAINER(node, weir_io_file, ready));
}

/* Submitting --------------------------------------------------------------------------------- */

/* For operations that never finish inside submit. */
static int begin_waiting(weir_readiness *self, weir_io_op *op, int code)
{
    if (code < 0)
        weir__op_finish_later(&self->base, op, code);
    else
        weir__readiness_make_ready(self, op->file);
    return WEIR_IO_PENDING;
}

void weir__readiness_wait_in(weir_readiness *self, weir_io_op *op)
{
    op->file->bits |= WEIR_FILE_READABLE; /* as far as anybody knows */
    begin_waiting(self, op, ensure_watched(self, op->file));
}

uint32_t weir__readiness_levels(const weir_io_op *poll)
{
    return (poll->events & WEIR_IO_READABLE ? EPOLLIN | EPOLLRDHUP : 0) |
           (poll->events & WEIR_IO_WRITABLE ? EPOLLOUT : 0);
}

static int submit_poll(weir_readiness *self, weir_io_op *op)
{
    weir_io_file *file = op->file;
    if (file->bits & WEIR_FILE_WATCHED)
        return begin_waiting(self, op, -EEXIST); /* and for more than its level */
    file->bits |= WEIR_FILE_PLAIN;
    int code = watch(self, file);
    if (code < 0)
        file->bits &= (uint8_t)~WEIR_FILE_PLAIN;
    return begin_waiting(self, op, code);
}

/* For operations that wait for their turn, or for the kernel. */
static int wait_for_out(weir_readiness *self, weir_io_op *op)
{
    int code = op->file->bits & WEIR_FILE_WRITABLE ? 0 : ensure_watched(self, op->file);
    if (code < 0)
        return weir__op_end_at_once(op, code);
    weir__readiness_make_ready(self, op->file);
    return WEIR_IO_PENDING;
}

void weir__readiness_wait_out(weir_readiness *self, weir_io_op *op)
{
    bool is_writable = op->file->bits & WEIR_FILE_WRITABLE;
    begin_waiting(self, op, is_writable ? 0 : ensure_watched(self, op->file));
}

static int submit_connect(weir_readiness *self, weir_io_op *op)
{
    int code = weir__io_begin_connect(&self->base, op);
    if (code != -EINPROGRESS && code != -EINTR)
        return weir__op_end_at_once(op, code);
    op->file->bits &= (uint8_t)~WEIR_FILE_WRITABLE;
    return wait_for_out(self, op);
}

int weir__readiness_submit(weir_io *base, weir_io_op *op)
{
    weir_readiness *self = (weir_readiness *)base;
    weir_io_file *file = op->file;
    weir__op_arm(op);
    if (file->error < 0)
        return weir__op_is_out(op) ? weir__op_end_at_once(op, file->error)
                                   : begin_waiting(self, op, file->error);
    switch (op->kind) {
    case WEIR_IO_CONNECT:
        return submit_connect(self, op);
    case WEIR_IO_POLL:
        return submit_poll(self, op);
    default:
        return begin_waiting(self, op, ensure_watched(self, file));
    }
}

void weir__readiness_cancel(weir_io *base, weir_io_op *op)
{
    weir_readiness *self = (weir_readiness *)base;
    if (!weir__op_is_armed(op))
        return; /* over, or about to be told */
    if (op->kind == WEIR_IO_POLL) {
        weir__readiness_unwatch(self, op->file);
        op->file->events = 0;
    }
    weir__op_finish_later(&self->base, op, -ECANCELED);
}

bool weir__readiness_has_results(const weir_io *base)
{
    const weir_readiness *self = (const weir_readiness *)base;
    return !weir__list_is_empty(&self->ready) || self->base.first_ended != NULL ||
           self->base.first_sent != NULL;
}

/* Waking -------------------------------------------------------------------------------------- */

void weir__readiness_wake(weir_io *base)
{
    const uint64_t one = 1;
    weir_readiness *self = (weir_readiness *)base;
    int code = -EINTR;
    for (int i = 0; i < MOST_WAKES && code < 0; i++)
        code = base->sys->write(base->sys, self->eventfd, &one, sizeof one);
    if (code < 0)
        weir_log(WEIR_LOG_ERROR, base->type->name,
                 "cannot wake a loop up: writing to its eventfd failed: %s", weir_error_text(code));
}

/* Opening and closing ------------------------------------------------------------------------ */

int weir__readiness_init(weir_readiness *self, const weir_io_type *type, weir_sys *sys,
                         weir_io_counters *counters)
{
    weir__io_init(&self->base, type, sys, counters);
    weir__list_init(&self->ready);
    self->eventfd = sys->eventfd(sys, 0);
    return self->eventfd < 0 ? self->eventfd : 0;
}

void weir__readiness_deinit(weir_readiness *self)
{
    if (self->eventfd >= 0)
        self->base.sys->close(self->base.sys, self->eventfd);
}
