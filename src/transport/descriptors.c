/* SPDX-License-Identifier: MIT */
/* Messages of descriptors. */
#include "transport/descriptors.h"

#include "base/alloc.h"

#include <string.h>

/* With the system calls that the descriptors are closed with. */
typedef struct parcel {
    weir_descriptors self;
    weir_sys *sys;
    int fds[];
} parcel;

static void descriptors_destroy(weir_msg *msg)
{
    weir_descriptors *self = (weir_descriptors *)msg;
    parcel *outer = (parcel *)self;
    for (unsigned i = 0; i < self->count; i++) {
        if (self->fds[i] >= 0)
            outer->sys->close(outer->sys, self->fds[i]);
    }
    weir_buf_release(self->bytes);
    weir__free(outer);
}

static size_t descriptors_size(const weir_msg *msg)
{
    return weir_buf_readable(((const weir_descriptors *)msg)->bytes);
}

const weir_msg_type weir_descriptors_type = {
    .name = "descriptors",
    .size = descriptors_size,
    .destroy = descriptors_destroy,
};

weir_descriptors *weir__descriptors_new(weir_sys *sys, const int *fds, unsigned count,
                                        weir_buf *bytes)
{
    if (fds == NULL || count == 0 || count > WEIR_DESCRIPTORS_MAX || bytes == NULL ||
        weir_buf_readable(bytes) == 0)
        return NULL;
    parcel *outer = weir__alloc(sizeof *outer + count * sizeof *fds);
    if (outer == NULL)
        return NULL;
    outer->sys = sys;
    weir_msg_init(&outer->self.msg, &weir_descriptors_type);
    outer->self.bytes = bytes;
    outer->self.count = count;
    outer->self.fds = outer->fds;
    memcpy(outer->self.fds, fds, count * sizeof *fds);
    return &outer->self;
}

weir_descriptors *weir_descriptors_new(const int *fds, unsigned count, weir_buf *bytes)
{
    return weir__descriptors_new(weir__sys_linux(), fds, count, bytes);
}

int weir_descriptors_take(weir_descriptors *self, unsigned index)
{
    if (self == NULL || index >= self->count)
        return -1;
    int fd = self->fds[index];
    self->fds[index] = -1;
    return fd;
}
