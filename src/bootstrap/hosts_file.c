/* SPDX-License-Identifier: MIT */
/* The hosts file. */
#include "bootstrap/hosts_file.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Reading ----------------------------------------------------------------------------------------
 */

/* FNV-1a, of lower case. No key is needed: only the administrator adds names to the table. */
static uint32_t hash_of(const char *name, size_t length)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) {
        uint8_t byte = (uint8_t)name[i];
        byte = (uint8_t)(byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte);
        hash = (hash ^ byte) * 16777619u;
    }
    return hash;
}

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

/* The next word of a line, terminated; NULL when there are no more. */
static char *next_word(char **rest)
{
    char *word = *rest;
    while (is_blank(*word))
        word++;
    char *end = word;
    while (*end != '\0' && !is_blank(*end))
        end++;
    *rest = *end != '\0' ? end + 1 : end;
    *end = '\0';
    return word < end ? word : NULL;
}

/* How many words the text has: there are fewer names. */
static uint32_t count_words(const char *text)
{
    uint32_t words = 0;
    bool is_in_word = false;
    for (; *text != '\0'; text++) {
        bool was_in_word = is_in_word;
        is_in_word = !is_blank(*text) && *text != '\n';
        words += is_in_word && !was_in_word;
    }
    return words;
}

static void read_line(weir_hosts_file *self, char *line)
{
    *strchrnul(line, '#') = '\0';
    const char *address = next_word(&line), *name;
    while (address != NULL && (name = next_word(&line)) != NULL)
        self->entries[self->count++] = (weir_hosts_entry){
            .name = (uint32_t)(name - self->text), .address = (uint32_t)(address - self->text)
        };
}

/* From the last to the first, so that each bucket has them in the order of the file. */
static void fill_buckets(weir_hosts_file *self)
{
    for (uint32_t i = self->count; i-- > 0;) {
        const char *name = self->text + self->entries[i].name;
        uint32_t *bucket = &self->buckets[hash_of(name, strlen(name)) & self->mask];
        self->entries[i].next = *bucket;
        *bucket = i + 1;
    }
}

int weir__hosts_file_init(weir_hosts_file *self, char *text)
{
    uint32_t max = count_words(text), buckets = 1;
    while (buckets < max)
        buckets *= 2;
    *self = (weir_hosts_file){ .text = text, .mask = buckets - 1 };
    self->entries = weir__alloc((max + 1) * sizeof *self->entries);
    self->buckets = weir__zalloc(buckets * sizeof *self->buckets);
    if (self->entries == NULL || self->buckets == NULL) {
        self->text = NULL;
        weir__hosts_file_free(self);
        return -ENOMEM;
    }
    for (char *line = text, *end; *line != '\0'; line = end) {
        end = strchrnul(line, '\n');
        if (*end != '\0')
            *end++ = '\0';
        read_line(self, line);
    }
    fill_buckets(self);
    return 0;
}

void weir__hosts_file_free(weir_hosts_file *self)
{
    weir__free(self->text);
    weir__free(self->entries);
    weir__free(self->buckets);
    *self = (weir_hosts_file){ 0 };
}

/* Finding ----------------------------------------------------------------------------------------
 */

/* A line whose address is none adds none. */
static void add_address(const char *text, weir_candidates *ipv6, weir_candidates *ipv4)
{
    weir_address address;
    char with_port[WEIR_ADDRESS_TEXT_MAX];
    bool is_ipv6 = strchr(text, ':') != NULL;
    int size = snprintf(with_port, sizeof with_port, is_ipv6 ? "[%s]:0" : "%s:0", text);
    if (size < (int)sizeof with_port && weir_address_parse(&address, with_port, NULL) == 0 &&
        weir_address_kind_of(&address) == (is_ipv6 ? WEIR_ADDRESS_IPV6 : WEIR_ADDRESS_IPV4))
        weir__candidates_add(is_ipv6 ? ipv6 : ipv4, &address);
}

/* No server is ever asked for it (RFC 6761, section 6.3). */
static bool is_localhost(const char *host, size_t length)
{
    static const char name[] = "localhost";
    size_t size = sizeof name - 1;
    return length >= size && strncasecmp(host + length - size, name, size) == 0 &&
           (length == size || host[length - size - 1] == '.');
}

bool weir__hosts_file_find(const weir_hosts_file *self, const char *host, weir_candidates *ipv6,
                           weir_candidates *ipv4)
{
    size_t length = strlen(host);
    length -= length > 0 && host[length - 1] == '.';
    uint32_t at = self->buckets[hash_of(host, length) & self->mask];
    for (; at != 0; at = self->entries[at - 1].next) {
        const char *name = self->text + self->entries[at - 1].name;
        if (strncasecmp(name, host, length) == 0 && name[length] == '\0')
            add_address(self->text + self->entries[at - 1].address, ipv6, ipv4);
    }
    if (ipv6->count[0] == 0 && ipv4->count[0] == 0 && is_localhost(host, length)) {
        add_address("::1", ipv6, ipv4);
        add_address("127.0.0.1", ipv6, ipv4);
    }
    return ipv6->count[0] > 0 || ipv4->count[0] > 0;
}
