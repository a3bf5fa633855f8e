/* SPDX-License-Identifier: MIT */
/* The send of a file. */
#include "io/send.h"

#include <errno.h>

static inline int try_send(weir_io *io, weir_io_file *file)
{
    return file->error < 0 ? file->error : io->type->try_send(io, file);
}

/* 0: it waits. Else why it cannot. */
static int wait_to_send(weir_io *io, weir_io_file *file)
{
    file->send_state = WEIR_SEND_WAITING;
    int code = io->type->wait_to_send(io, file);
    if (code < 0)
        file->send_state = WEIR_SEND_BUSY;
    return code;
}

/* Reports the result of a send, and sends on. True: nothing is left, or the socket is full and the
 * send was cancelled. False: a send is in flight. */
static inline __attribute__((always_inline)) bool send_on(weir_io *io, weir_io_file *file, int code,
                                                          unsigned *reports)
{
    for (;;) {
        if (__builtin_expect(code == WEIR_SEND_BLOCKED, 0)) {
            if (file->is_send_cancelled)
                return true;
            code = wait_to_send(io, file);
            if (code == 0)
                return false;
        }
        if (code == WEIR_IO_PENDING)
            return false;
        if (code != WEIR_SEND_NOTHING) {
            ++*reports;
            file->sender->on_sent(file, code);
        }
        if (!file->is_send_requested)
            return true;
        file->is_send_requested = false;
        file->send_state = WEIR_SEND_BUSY;
        code = try_send(io, file);
    }
}

WEIR__HOT void weir__io_send(weir_io *io, weir_io_file *file)
{
    unsigned reports = 0; /* of no interest */
    if (file->send_state != WEIR_SEND_IDLE) {
        file->is_send_requested = true;
        return;
    }
    file->send_state = WEIR_SEND_BUSY;
    if (!send_on(io, file, try_send(io, file), &reports))
        return;
    if (file->is_send_cancelled) /* by a callback of the sender */
        weir__send_end_later(io, file, WEIR_SEND_NOTHING);
    else
        file->send_state = WEIR_SEND_IDLE;
}

/* In the completion phase ---------------------------------------------------------------------- */

static void end(weir_io *io, weir_io_file *file)
{
    bool was_cancelled = file->is_send_cancelled;
    file->send_state = WEIR_SEND_IDLE;
    file->is_send_requested = file->is_send_cancelled = false;
    if (!was_cancelled)
        return;
    weir__io_count(&io->counters->completions);
    file->sender->on_send_cancelled(file);
}

static void complete(weir_io *io, weir_io_file *file, int code)
{
    unsigned reports = 0;
    io->finishing = file;
    bool is_over = send_on(io, file, code, &reports);
    weir__counter_add(&io->counters->completions, reports);
    if (is_over)
        end(io, file);
    weir__notices_run();
    io->finishing = NULL;
}

void weir__send_continue(weir_io *io, weir_io_file *file)
{
    file->send_state = WEIR_SEND_BUSY;
    file->is_send_requested = false;
    complete(io, file, try_send(io, file));
}

void weir__send_complete(weir_io *io, weir_io_file *file, int code)
{
    file->send_state = WEIR_SEND_BUSY;
    complete(io, file, code);
}

void weir__send_end_later(weir_io *io, weir_io_file *file, int code)
{
    file->send_state = WEIR_SEND_ENDED;
    file->send_code = code;
    file->next_sent = NULL;
    *io->last_sent = file;
    io->last_sent = &file->next_sent;
}

/* Those that are there now; what ends meanwhile waits for the next time. */
void weir__send_report_ended(weir_io *io)
{
    weir_io_file *file = io->first_sent;
    io->first_sent = NULL;
    io->last_sent = &io->first_sent;
    while (file != NULL) {
        weir_io_file *next = file->next_sent;
        weir__send_complete(io, file, file->send_code);
        file = next;
    }
}

void weir__io_cancel_send(weir_io *io, weir_io_file *file)
{
    if (file->send_state == WEIR_SEND_IDLE || file->is_send_cancelled)
        return;
    file->is_send_cancelled = true;
    if (file->send_state != WEIR_SEND_BUSY && file->send_state != WEIR_SEND_ENDED)
        io->type->cancel_send(io, file);
}
