/* SPDX-License-Identifier: MIT */
/* Files and descriptors on their way through a stream. */
#include "transport/sending.h"

#include "base/alloc.h"
#include "base/counter.h"
#include "transport/descriptors.h"

#include <weir/descriptors.h>
#include <weir/file.h>

#include <errno.h>

/* More at once would keep other channels waiting. */
#define MOST_FILE_BYTES ((size_t)1024 * 1024)

/* How far one write of a region has got; there until the last of it was told. */
typedef struct progress {
    weir_notice notice;
    weir_file_region *region;
    uint64_t sent;
    bool is_queued;
    bool is_over; /* the write is, so nobody else holds this */
} progress;

typedef struct weir_sending {
    progress *progress; /* of the region that is being sent, if somebody wants to know */
} weir_sending;

bool weir__sending_takes(const weir_socket *self, const weir_msg *msg)
{
    return msg->type == &weir_file_region_type ||
           (msg->type == &weir_descriptors_type && self->family == AF_UNIX);
}

static void free_progress(progress *self)
{
    weir_msg_release(&self->region->msg);
    weir__free(self);
}

static void end_progress(weir_sending *self)
{
    progress *ended = self->progress;
    self->progress = NULL;
    if (ended == NULL)
        return;
    ended->is_over = true;
    if (!ended->is_queued)
        free_progress(ended);
}

static int begin_progress(weir_sending *self, weir_file_region *region)
{
    progress *begun = weir__zalloc(sizeof *begun);
    if (begun == NULL)
        return -ENOMEM;
    weir_msg_retain(&region->msg);
    begun->region = region;
    self->progress = begun;
    return 0;
}

static int prepare_region(weir_socket *self, weir_file_region *region, weir_io_send *send)
{
    weir_sending *sending = self->extras->sending;
    if (sending->progress != NULL && sending->progress->region != region)
        end_progress(sending); /* of a file that was cancelled before its first byte */
    if (region->on_progress != NULL && sending->progress == NULL &&
        begin_progress(sending, region) < 0)
        return -ENOMEM;
    uint64_t sent = self->channel.out.queue.first->sent;
    uint64_t left = region->length - sent;
    send->kind = WEIR_IO_SEND_FILE;
    send->fd = region->fd;
    send->offset = region->offset + sent;
    send->length = left < MOST_FILE_BYTES ? (size_t)left : MOST_FILE_BYTES;
    return 1;
}

static int prepare_parcel(const weir_descriptors *parcel, weir_io_send *send)
{
    size_t length = weir_buf_readable(parcel->bytes);
    int count = weir_buf_iovec(parcel->bytes, weir_buf_reader(parcel->bytes), length, send->pieces,
                               1, NULL);
    if (count < 1)
        return WEIR_EBOUNDS; /* somebody has read the bytes meanwhile */
    for (unsigned i = 0; i < parcel->count; i++) {
        if (parcel->fds[i] < 0)
            return -EBADF; /* or taken a descriptor out */
    }
    send->kind = WEIR_IO_SEND_DESCRIPTORS;
    send->descriptors = parcel->fds;
    send->descriptor_count = parcel->count;
    return 1;
}

int weir__sending_prepare(weir_socket *self, weir_msg *msg, weir_io_send *send)
{
    if (msg->type == &weir_descriptors_type)
        return prepare_parcel((weir_descriptors *)msg, send);
    weir_socket_extras *extras = weir__socket_need_extras(self);
    if (extras != NULL && extras->sending == NULL)
        extras->sending = weir__zalloc(sizeof *extras->sending);
    if (extras == NULL || extras->sending == NULL)
        return -ENOMEM;
    return prepare_region(self, (weir_file_region *)msg, send);
}

/* Told behind the callback under way, once for all that has gone until then. */
static void tell_progress(weir_notice *notice)
{
    progress *self = WEIR_CONTAINER(notice, progress, notice);
    weir_file_region *region = self->region;
    uint64_t sent = self->sent;
    weir_msg_retain(&region->msg);
    self->is_queued = false;
    if (self->is_over)
        free_progress(self);
    region->on_progress(region, sent, region->arg);
    weir_msg_release(&region->msg);
}

static void queue_progress(progress *self, uint64_t sent)
{
    if (self == NULL)
        return;
    self->sent = sent;
    if (self->is_queued)
        return;
    self->is_queued = true;
    self->notice.run = tell_progress;
    weir__notice_queue(&self->notice);
}

static int region_sent(weir_socket *self, weir_file_region *region, int sent)
{
    weir_channel *channel = &self->channel;
    weir_write *entry = channel->out.queue.first;
    if (sent == 0 && entry->sent < region->length)
        return WEIR_EOF;
    entry->sent += (size_t)sent;
    weir__counter_add(&channel->out.queue.bytes_out, (uint64_t)sent);
    queue_progress(self->extras->sending->progress, entry->sent);
    if (entry->sent == region->length) {
        end_progress(self->extras->sending);
        weir__outbound_remove(&channel->out.queue, 0);
    }
    return 0;
}

/* The descriptors went with the first bytes; the others are bytes as any. */
static int parcel_sent(weir_socket *self, weir_descriptors *parcel, int sent)
{
    weir_channel *channel = &self->channel;
    weir_write *entry = channel->out.queue.first;
    entry->msg = weir_msg_retain(&parcel->bytes->msg);
    weir_msg_release(&parcel->msg);
    weir__outbound_sent(&channel->out.queue, (size_t)sent);
    return 0;
}

int weir__sending_sent(weir_socket *self, int sent)
{
    weir_msg *msg = self->channel.out.queue.first->msg;
    return msg->type == &weir_descriptors_type ? parcel_sent(self, (weir_descriptors *)msg, sent)
                                               : region_sent(self, (weir_file_region *)msg, sent);
}

void weir__sending_end(weir_socket *self)
{
    weir_sending *sending = self->extras != NULL ? self->extras->sending : NULL;
    if (sending == NULL)
        return;
    end_progress(sending);
    weir__free(sending);
    self->extras->sending = NULL;
}

weir_msg *weir__received(weir_sys *sys, const weir_io_result *result)
{
    if (result->descriptor_count == 0)
        return &result->buf->msg;
    weir_descriptors *parcel = weir__descriptors_new(sys, result->descriptors,
                                                     result->descriptor_count, result->buf);
    if (parcel != NULL)
        return &parcel->msg;
    for (unsigned i = 0; i < result->descriptor_count; i++)
        sys->close(sys, result->descriptors[i]);
    weir_buf_release(result->buf);
    return NULL;
}
