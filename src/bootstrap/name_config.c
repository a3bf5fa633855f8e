/* SPDX-License-Identifier: MIT */
/* The configuration of name lookups: the search list, reading the files, and noticing changes. */
#include "bootstrap/name_config.h"

#include "base/alloc.h"

#include <weir/log.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The search list ------------------------------------------------------------------------------ */

static const char domain_bytes[] =
    "0123456789.-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/* A piece of the text, which is not changed. */
typedef struct span {
    const char *start, *end;
} span;

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

static bool next_word(span *rest, span *word)
{
    while (rest->start < rest->end && is_blank(*rest->start))
        rest->start++;
    word->start = rest->start;
    while (rest->start < rest->end && !is_blank(*rest->start))
        rest->start++;
    word->end = rest->start;
    return word->start < word->end;
}

/* Whether a line begins with the keyword and a blank; removes both from the line. */
static bool has_keyword(span *line, const char *keyword)
{
    size_t length = strlen(keyword);
    if ((size_t)(line->end - line->start) <= length || strncmp(line->start, keyword, length) != 0 ||
        !is_blank(line->start[length]))
        return false;
    line->start += length;
    return true;
}

/* Labels that are not empty, of bytes that host names have. */
static bool is_domain(const char *start, size_t length)
{
    if (length == 0 || length > WEIR__NAME_MAX || strspn(start, domain_bytes) < length ||
        start[0] == '.' || start[length - 1] == '.')
        return false;
    for (size_t i = 1; i < length; i++) {
        if (start[i] == '.' && start[i - 1] == '.')
            return false;
    }
    return true;
}

static void read_domains(weir_search_list *self, span words, unsigned max)
{
    span word;
    self->count = 0;
    while (self->count < max && next_word(&words, &word)) {
        size_t length = (size_t)(word.end - word.start);
        length -= word.end[-1] == '.';
        if (is_domain(word.start, length)) {
            memcpy(self->domains[self->count], word.start, length);
            self->domains[self->count++][length] = '\0';
        }
    }
}

/* "ndots:" and digits; other words are for c-ares. */
static void read_options(weir_search_list *self, span words)
{
    static const char name[] = "ndots:";
    span word;
    while (next_word(&words, &word)) {
        const char *at = word.start + (sizeof name - 1);
        if (at >= word.end || strncmp(word.start, name, sizeof name - 1) != 0)
            continue;
        unsigned value = 0;
        for (; at < word.end && *at >= '0' && *at <= '9'; at++) {
            value = value * 10 + (unsigned)(*at - '0');
            value = value < WEIR__NDOTS_MAX ? value : WEIR__NDOTS_MAX;
        }
        if (at == word.end)
            self->ndots = value;
    }
}

static span whole(const char *text)
{
    return (span){ text, text + strlen(text) };
}

void weir__search_list_read(weir_search_list *self, const char *resolv_conf,
                            const char *localdomain, const char *res_options)
{
    self->ndots = 1;
    self->count = 0;
    for (const char *at = resolv_conf; *at != '\0';) {
        const char *end = strchrnul(at, '\n');
        span line = { at, end };
        if (has_keyword(&line, "search"))
            read_domains(self, line, WEIR__SEARCH_MAX);
        else if (has_keyword(&line, "domain"))
            read_domains(self, line, 1);
        else if (has_keyword(&line, "options"))
            read_options(self, line);
        at = *end != '\0' ? end + 1 : end;
    }
    if (localdomain != NULL)
        read_domains(self, whole(localdomain), WEIR__SEARCH_MAX);
    if (res_options != NULL)
        read_options(self, whole(res_options));
}

bool weir__search_list_name(const weir_search_list *self, const char *host, unsigned nth,
                            weir_absolute_name name)
{
    unsigned dots = 0;
    size_t length = strlen(host);
    for (const char *at = host; *at != '\0'; at++)
        dots += *at == '.';
    bool is_absolute = host[length - 1] == '.';
    if (is_absolute ? nth > 0 : nth > self->count)
        return false;
    unsigned position = is_absolute || dots >= self->ndots ? 0 : self->count; /* of the host */
    const char *domain = nth == position ? "" : self->domains[nth - (nth > position)];
    int size = snprintf(name, sizeof(weir_absolute_name), "%.*s%s%s.", (int)(length - is_absolute),
                        host, *domain != '\0' ? "." : "", domain);
    if (size > WEIR__NAME_MAX + 1)
        name[0] = '\0';
    return true;
}

/* The files ------------------------------------------------------------------------------------ */

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
