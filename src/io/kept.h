/* SPDX-License-Identifier: MIT */
/* What the kernel gave to a file after its owner had enough: bytes, or accepted connections. It is
 * told first when the owner asks again, in order, wherever the file is by then. */
#ifndef WEIR_IO_KEPT_H
#define WEIR_IO_KEPT_H

#include "io/io.h"

/* Takes the buffer over. They are linked by their blocks, so this cannot fail. */
void weir__kept_add(weir_io_file *file, weir_buf *buf);

/* The same for a descriptor, in a buffer with others. -ENOMEM: it is still the caller's. */
int weir__kept_add_descriptor(weir_io_file *file, int fd);

/* Tells the armed operation of the way in, in the completion phase: one batch at most. */
void weir__kept_tell(weir_io *io, weir_io_op *op);

/* The file closes: nobody will ask. */
void weir__kept_drop(weir_sys *sys, weir_io_file *file);

/* Whether there is anything to tell. */
static inline bool weir__kept_has(const weir_io_file *file)
{
    return __builtin_expect(file->kept != NULL || file->kept_code < 0, 0);
}

/* What is kept goes with the file to another backend. */
static inline void weir__kept_bring(const weir_io_file *from, weir_io_file *to)
{
    if (!weir__kept_has(from))
        return;
    to->kept = from->kept;
    to->kept_code = from->kept_code;
    to->keeps_descriptors = from->keeps_descriptors;
    to->bits |= WEIR_IO_READABLE;
}

/* Fills in who is at the other end of an accepted connection, if the kernel still knows. */
void weir__io_name_peer(weir_io *io, struct sockaddr_storage *address, weir_io_result *result);

#endif
