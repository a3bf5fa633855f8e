/* SPDX-License-Identifier: MIT */
/* The configuration of name lookups: reading it, and noticing changes. */
#include "bootstrap/name_config.h"

#include "base/alloc.h"

#include <weir/log.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

/* Opens a file and reads its status: 0, with an empty status if the file does not exist; or a
 * negative code. */
static int open_file(weir_sys *sys, const char *path, int *fd, struct stat *facts)
{
    memset(facts, 0, sizeof *facts);
    *fd = sys->open(sys, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (*fd == -ENOENT || *fd == -ENOTDIR || *fd == -EACCES)
        return 0;
    int code = *fd < 0 ? *fd : sys->fstat(sys, *fd, facts);
    if (code < 0 && *fd >= 0)
        sys->close(sys, *fd);
    return code;
}

static int read_bytes(weir_sys *sys, int fd, char *to, size_t length)
{
    size_t got = 0;
    int code = 1;
    while (got < length && code > 0) {
        code = sys->pread(sys, fd, to + got, length - got, got);
        got += code > 0 ? (size_t)code : 0;
    }
    to[got] = '\0';
    return code < 0 ? code : 0;
}

/* The text of a file, which the caller frees. */
static int read_file(weir_sys *sys, const char *path, size_t max_bytes, struct stat *facts,
                     char **text)
{
    int fd, code = open_file(sys, path, &fd, facts);
    if (code < 0)
        return code;
    size_t length = facts->st_size > 0 ? (size_t)facts->st_size : 0;
    bool is_cut = length > max_bytes;
    length = is_cut ? max_bytes : length;
    *text = weir__alloc(length + 1);
    code = *text == NULL ? -ENOMEM : 0;
    if (code == 0)
        (*text)[0] = '\0';
    if (code == 0 && fd >= 0)
        code = read_bytes(sys, fd, *text, length);
    if (fd >= 0)
        sys->close(sys, fd);
    if (code < 0) {
        weir__free(*text);
    } else if (is_cut) {
        char *end = strrchr(*text, '\n');
        (*text)[end != NULL ? end - *text : 0] = '\0';
        weir_log(WEIR_LOG_WARN, "resolver", "%s: ignored all lines after the first %zu bytes", path,
                 max_bytes);
    }
    return code;
}

static int load_search(weir_name_config *self, weir_sys *sys, const char *path)
{
    char *text;
    int code = read_file(sys, path, WEIR__RESOLV_CONF_MAX, &self->resolv_conf, &text);
    if (code < 0)
        return code;
    weir__search_list_read(&self->search, text, getenv("LOCALDOMAIN"), getenv("RES_OPTIONS"));
    weir__free(text);
    return 0;
}

static int load_hosts(weir_name_config *self, weir_sys *sys, const char *path)
{
    char *text;
    int code = read_file(sys, path, WEIR__HOSTS_FILE_MAX, &self->hosts_file, &text);
    if (code < 0)
        return code;
    code = weir__hosts_file_init(&self->hosts, text);
    if (code < 0)
        weir__free(text);
    return code;
}

int weir__name_config_load(weir_name_config **config, weir_sys *sys, const weir_name_paths *paths)
{
    weir_name_config *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    atomic_init(&self->refs, 1);
    int code = load_search(self, sys, paths->resolv_conf);
    if (code == 0)
        code = load_hosts(self, sys, paths->hosts);
    if (code < 0) {
        weir__name_config_release(self);
        return code;
    }
    *config = self;
    return 0;
}

static bool is_unchanged(weir_sys *sys, const char *path, const struct stat *then)
{
    struct stat now;
    int fd, code = open_file(sys, path, &fd, &now);
    if (code < 0)
        return false;
    if (fd >= 0)
        sys->close(sys, fd);
    return now.st_dev == then->st_dev && now.st_ino == then->st_ino &&
           now.st_size == then->st_size && now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

bool weir__name_config_is_current(const weir_name_config *self, weir_sys *sys,
                                  const weir_name_paths *paths)
{
    return is_unchanged(sys, paths->resolv_conf, &self->resolv_conf) &&
           is_unchanged(sys, paths->hosts, &self->hosts_file);
}

weir_name_config *weir__name_config_retain(weir_name_config *self)
{
    atomic_fetch_add_explicit(&self->refs, 1, memory_order_relaxed);
    return self;
}

void weir__name_config_release(weir_name_config *self)
{
    if (self == NULL || atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir__hosts_file_free(&self->hosts);
    weir__free(self);
}
