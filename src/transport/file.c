/* SPDX-License-Identifier: MIT */
/* Files as messages. */
#include "transport/file.h"

#include "base/alloc.h"
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>

static void region_destroy(weir_msg *msg)
{
    weir_sys *sys = weir__sys_linux();
    sys->close(sys, ((weir_file_region *)msg)->fd);
    weir__free(msg);
}

const weir_msg_type weir_file_region_type = { .name = "file region", .destroy = region_destroy };

weir_file_region *weir_file_region_new(int fd, uint64_t offset, uint64_t length)
{
    weir_file_region *self = fd >= 0 ? weir__zalloc(sizeof *self) : NULL;
    if (self == NULL)
        return NULL;
    weir_msg_init(&self->msg, &weir_file_region_type);
    self->fd = fd;
    self->offset = offset;
    self->length = length;
    return self;
}

/* 0, and how long the region is. */
static int measure(weir_sys *sys, int fd, const char *path, uint64_t offset, uint64_t *length,
                   weir_error *error)
{
    struct stat facts;
    int code = sys->fstat(sys, fd, &facts);
    if (code == 0 && !S_ISREG(facts.st_mode))
        code = S_ISDIR(facts.st_mode) ? -EISDIR : -EINVAL;
    if (code < 0)
        return weir_error_set(error, code, "file", "%s: %s", path, weir_error_text(code));
    uint64_t size = (uint64_t)facts.st_size;
    if (offset > size || *length > size - offset)
        return weir_error_set(
            error, -EINVAL, "file", "%s has %llu bytes, but %llu from %llu on were asked for", path,
            (unsigned long long)size, (unsigned long long)*length, (unsigned long long)offset);
    if (*length == 0)
        *length = size - offset;
    return 0;
}

int weir_file_region_open(weir_file_region **region, const char *path, uint64_t offset,
                          uint64_t length, weir_error *error)
{
    weir_sys *sys = weir__sys_linux();
    if (region == NULL || path == NULL)
        return weir_error_set(error, -EINVAL, "file", "there is no path");
    /* A pipe of that name must not keep this thread waiting for somebody to write to it. */
    int fd = sys->open(sys, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return weir_error_set(error, fd, "file", "%s cannot be opened: %s", path,
                              weir_error_text(fd));
    int code = measure(sys, fd, path, offset, &length, error);
    if (code == 0 && (*region = weir_file_region_new(fd, offset, length)) == NULL)
        code = weir_error_set(error, -ENOMEM, "file", "no memory for a region of %s", path);
    if (code < 0)
        sys->close(sys, fd);
    return code;
}

typedef int (*pread_fn)(weir_sys *sys, int fd, void *to, size_t length, uint64_t offset);

static int read_by(pread_fn call, const weir_file_region *region, uint64_t at, size_t max,
                   weir_buf **buf)
{
    weir_sys *sys = weir__sys_linux();
    if (region == NULL || buf == NULL || at > region->length || max == 0)
        return -EINVAL;
    *buf = NULL;
    size_t size = region->length - at < max ? (size_t)(region->length - at) : max;
    if (size == 0)
        return 0;
    weir_buf *made = weir_buf_new(size);
    if (made == NULL)
        return -ENOMEM;
    int code = -EINTR;
    while (code == -EINTR)
        code = call(sys, region->fd, weir_buf_write_ptr(made, size), size, region->offset + at);
    if (code <= 0) {
        weir_buf_release(made);
        return code < 0 ? code : WEIR_EOF;
    }
    weir_buf_advance_writer(made, (size_t)code);
    *buf = made;
    return 0;
}

int weir_file_region_read(const weir_file_region *region, uint64_t at, size_t max, weir_buf **buf)
{
    return read_by(weir__sys_linux()->pread, region, at, max, buf);
}

weir_buf *weir__file_region_read_cached(const weir_file_region *region, uint64_t at, size_t max)
{
    weir_buf *buf = NULL;
    return read_by(weir__sys_linux()->pread_cached, region, at, max, &buf) == 0 ? buf : NULL;
}
