/* SPDX-License-Identifier: MIT */
/* The search list. */
#include "bootstrap/search_list.h"

#include <stdio.h>
#include <string.h>

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
