/* SPDX-License-Identifier: MIT */
/* Opening a key log. */
#include "tls/key_log.h"

#include "tls/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Not through a link, by which somebody else could say where the secrets go, and without waiting
 * for somebody to read from a pipe. */
#define FLAGS (O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY)

static int refuse(weir_error *error, const char *path, int code)
{
    const char *why = code == -ELOOP    ? "it is a symbolic link"
                      : code == -EINVAL ? "it is no regular file"
                                        : weir_error_text(code);
    return weir_error_set(error, code, "tls", "cannot write secrets to %s: %s", path, why);
}

/* What was there may be everybody's to read, or another's. */
static int check(int fd)
{
    struct stat about;
    if (fstat(fd, &about) < 0)
        return -errno;
    if (!S_ISREG(about.st_mode))
        return -EINVAL;
    if (about.st_uid != geteuid())
        return -EPERM;
    bool is_ours = (about.st_mode & (S_IRWXG | S_IRWXO)) == 0;
    return is_ours || fchmod(fd, S_IRUSR | S_IWUSR) == 0 ? 0 : -errno;
}

static BIO *make_bio(int fd)
{
    FILE *file = fdopen(fd, "a");
    if (file == NULL) {
        close(fd);
        return NULL;
    }
    BIO *made = BIO_new_fp(file, BIO_CLOSE);
    if (made == NULL)
        fclose(file);
    return made;
}

int weir__tls_key_log_open(BIO **log, const char *path, weir_error *error)
{
    int fd = open(path, FLAGS, S_IRUSR | S_IWUSR);
    if (fd < 0)
        return refuse(error, path, errno == ENXIO ? -EINVAL : -errno); /* a pipe, or a socket */
    int code = check(fd);
    if (code < 0) {
        close(fd);
        return refuse(error, path, code);
    }
    weir__tls_failure_clear();
    *log = make_bio(fd);
    return *log != NULL ? 0 : refuse(error, path, -ENOMEM);
}
