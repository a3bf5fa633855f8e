/* SPDX-License-Identifier: MIT */
/* The PROXY protocol: what the bytes of a header say. */
#include "codec/proxy_protocol.h"

#include "base/address.h"
#include "channel/event.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const uint8_t weir__proxy_v1_signature[WEIR__PROXY_V1_SIGNATURE] = { 'P', 'R', 'O', 'X', 'Y', ' ' };
const uint8_t weir__proxy_v2_signature[WEIR__PROXY_V2_SIGNATURE] = { '\r', '\n', '\r', '\n',
                                                                     0,    '\r', '\n', 'Q',
                                                                     'U',  'I',  'T',  '\n' };

WEIR_PRINTF(3, 4)
static int refuse(weir_proxy_reading *self, size_t at, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    weir__error_set_args(&self->error, -EBADMSG, "", format, args);
    va_end(args);
    self->at = at;
    return -EBADMSG;
}

/* Version 1 ------------------------------------------------------------------------------------ */

enum { LONGEST_WORD = 45 }; /* an IPv6 address that ends as an IPv4 one */

/* The next word of the line, and the space behind it: its length, 0 when there is none or it is too
 * long for any. Between words there is one space. */
static size_t next_word(weir_proxy_reading *self, char word[LONGEST_WORD + 1])
{
    size_t end = self->length - 2, begin = self->at; /* without the line's end */
    const uint8_t *space = begin < end ? memchr(self->bytes + begin, ' ', end - begin) : NULL;
    size_t length = (space != NULL ? (size_t)(space - self->bytes) : end) - begin;
    if (begin >= end || length > LONGEST_WORD || (space != NULL && begin + length + 1 == end))
        length = 0;
    memcpy(word, self->bytes + begin, length);
    word[length] = '\0';
    self->at = begin + length + (space != NULL);
    return length;
}

static int read_host(weir_proxy_reading *self, bool is_ipv6, weir_address *address)
{
    char word[LONGEST_WORD + 1], text[LONGEST_WORD + 8];
    size_t begin = self->at, length = next_word(self, word);
    /* Nothing that weir_address_parse knows besides, as names of interfaces. */
    bool is_plain = strspn(word, is_ipv6 ? "0123456789abcdefABCDEF:." : "0123456789.") == length;
    snprintf(text, sizeof text, is_ipv6 ? "[%s]:0" : "%s:0", word);
    if (length == 0 || !is_plain || weir_address_parse(address, text, NULL) < 0)
        return refuse(self, begin, "no IPv%d address in a PROXY header", is_ipv6 ? 6 : 4);
    return 0;
}

static int read_port(weir_proxy_reading *self, weir_address *address)
{
    char word[LONGEST_WORD + 1];
    size_t begin = self->at, length = next_word(self, word);
    unsigned port = 0;
    bool is_port = length > 0 && length <= 5 && strspn(word, "0123456789") == length &&
                   (word[0] != '0' || length == 1);
    for (size_t i = 0; i < length && is_port; i++)
        port = port * 10 + (unsigned)(word[i] - '0');
    if (!is_port || port > UINT16_MAX)
        return refuse(self, begin, "no port in a PROXY header");
    return weir_address_set_port(address, (uint16_t)port);
}

static int read_addresses(weir_proxy_reading *self, bool is_ipv6)
{
    weir_proxy_header *header = &self->header;
    int code = read_host(self, is_ipv6, &header->source);
    if (code == 0)
        code = read_host(self, is_ipv6, &header->destination);
    if (code == 0)
        code = read_port(self, &header->source);
    if (code == 0)
        code = read_port(self, &header->destination);
    if (code == 0 && self->at != self->length - 2)
        code = refuse(self, self->at, "more than two ports in a PROXY header");
    return code;
}

int weir__proxy_read_v1(weir_proxy_reading *self)
{
    char word[LONGEST_WORD + 1];
    self->header = (weir_proxy_header){ .version = 1 };
    self->at = WEIR__PROXY_V1_SIGNATURE;
    bool is_tcp = next_word(self, word) == 4; /* a word may have a 0 in it, a string ends there */
    bool is_ipv6 = is_tcp && strcmp(word, "TCP6") == 0;
    if (is_ipv6 || (is_tcp && strcmp(word, "TCP4") == 0))
        return read_addresses(self, is_ipv6);
    /* What follows UNKNOWN, also a space alone, is to be ignored. */
    size_t length = sizeof "UNKNOWN" - 1, left = self->length - 2 - WEIR__PROXY_V1_SIGNATURE;
    const uint8_t *begin = self->bytes + WEIR__PROXY_V1_SIGNATURE;
    if (left < length || memcmp(begin, "UNKNOWN", length) != 0 ||
        (left > length && begin[length] != ' '))
        return refuse(self, WEIR__PROXY_V1_SIGNATURE,
                      "neither TCP4, TCP6 nor UNKNOWN in a PROXY header");
    self->header.transport = WEIR_PROXY_UNKNOWN;
    return 0;
}

/* Version 2 ------------------------------------------------------------------------------------ */

/*
 *      0           12                13                 14       16
 *      | signature | version|command | family|transport | length | addresses | TLVs |
 */
enum { COMMAND_AT = 12, FAMILY_AT = 13, LENGTH_AT = 14 };
enum { UNSPECIFIED, INET, INET6, UNIX };
enum { PATH_SIZE = 108 };

int weir__proxy_addresses_size(unsigned family)
{
    static const int sizes[] = { 0, 2 * (4 + 2), 2 * (16 + 2), 2 * PATH_SIZE };
    return family <= UNIX ? sizes[family] : -1;
}

/* How many bytes there are before the TLVs: 0 when the header does not say for whom it is. */
static int read_family(weir_proxy_reading *self)
{
    uint8_t byte = self->bytes[FAMILY_AT];
    unsigned family = byte >> 4, transport = byte & 15;
    int size = weir__proxy_addresses_size(family);
    if (size < 0 || transport > 2 || (family == UNSPECIFIED) != (transport == 0))
        return refuse(self, FAMILY_AT, "an unknown family 0x%02x in a PROXY header", byte);
    self->header.transport = transport == 0   ? WEIR_PROXY_UNKNOWN
                             : transport == 1 ? WEIR_PROXY_STREAM
                                              : WEIR_PROXY_DATAGRAM;
    return size;
}

int weir__proxy_read_v2_begin(weir_proxy_reading *self, size_t most)
{
    uint8_t byte = self->bytes[COMMAND_AT];
    size_t length = weir__load_be16(self->bytes + LENGTH_AT);
    self->header = (weir_proxy_header){ .version = 2 };
    if (byte != 0x20 && byte != 0x21)
        return refuse(self, COMMAND_AT, "an unknown command 0x%02x in a PROXY header", byte);
    self->header.command = byte == 0x21 ? WEIR_PROXY_PROXIED : WEIR_PROXY_LOCAL;
    self->header.transport = WEIR_PROXY_UNKNOWN;
    /* Of a local one the rest, the family included, is to be ignored. */
    int size = self->header.command == WEIR_PROXY_LOCAL ? 0 : read_family(self);
    if (size < 0)
        return size;
    if (length < (size_t)size)
        return refuse(self, LENGTH_AT, "a PROXY header with %zu bytes for addresses of %d", length,
                      size);
    if (WEIR__PROXY_V2_BEGIN + length > most) {
        self->at = LENGTH_AT;
        return weir_error_set(&self->error, WEIR_ELIMIT, "",
                              "a PROXY header of %zu bytes is above the limit of %zu",
                              WEIR__PROXY_V2_BEGIN + length, most);
    }
    return (int)(WEIR__PROXY_V2_BEGIN + length);
}

static void read_unix(const uint8_t *bytes, weir_address *address)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    size_t length = PATH_SIZE;
    while (length > 0 && bytes[length - 1] == 0)
        length--;
    memcpy(un.sun_path, bytes, length);
    weir_address_from_sockaddr(address, (const struct sockaddr *)&un, WEIR__NAME_AT + length);
}

static void read_ip(const uint8_t *host, size_t size, const uint8_t *port, weir_address *address)
{
    struct in_addr in;
    struct in6_addr in6;
    in_port_t in_port;
    memcpy(&in_port, port, sizeof in_port); /* in network order here and there */
    if (size == sizeof in) {
        memcpy(&in, host, sizeof in);
        weir__address_set_ipv4(address, in, in_port);
    } else {
        memcpy(&in6, host, sizeof in6);
        weir__address_set_ipv6(address, in6, 0, in_port);
    }
}

static void read_binary_addresses(weir_proxy_reading *self, unsigned family)
{
    const uint8_t *bytes = self->bytes + WEIR__PROXY_V2_BEGIN;
    size_t size = family == INET ? 4 : 16;
    if (family == UNIX) {
        read_unix(bytes, &self->header.source);
        read_unix(bytes + PATH_SIZE, &self->header.destination);
    } else if (family != UNSPECIFIED) {
        read_ip(bytes, size, bytes + 2 * size, &self->header.source);
        read_ip(bytes + size, size, bytes + 2 * size + 2, &self->header.destination);
    }
}

/* TLVs ----------------------------------------------------------------------------------------- */

enum { TLV_BEGIN = 3, SSL_BEGIN = 5 };

/*
 *      | type | length |           value of SSL            | type | length | ...
 *                      | five bytes | type | length | ...  |
 *                                   next                   outer_end
 *
 * Going into one is going on behind its five bytes, within its end.
 */
int weir__proxy_step(const uint8_t *tlvs, size_t length, weir_proxy_tlv *tlv)
{
    size_t at = tlv->next;
    bool is_inside = at < tlv->outer_end;
    size_t left = (is_inside ? tlv->outer_end : length) - at;
    if (at >= length)
        return 0;
    size_t size = left >= TLV_BEGIN ? weir__load_be16(tlvs + at + 1) : SIZE_MAX;
    bool has_more = !is_inside && tlvs[at] == WEIR_PROXY_TLV_SSL;
    if (left < TLV_BEGIN || size > left - TLV_BEGIN || (has_more && size < SSL_BEGIN))
        return -EBADMSG;
    tlv->type = tlvs[at];
    tlv->depth = is_inside;
    tlv->length = (uint16_t)size;
    tlv->value = tlvs + at + TLV_BEGIN;
    tlv->next = at + TLV_BEGIN + size;
    if (has_more) {
        tlv->outer_end = tlv->next;
        tlv->next = at + TLV_BEGIN + SSL_BEGIN;
    }
    return 1;
}

bool weir_proxy_next_tlv(const weir_proxy_header *header, weir_proxy_tlv *tlv)
{
    return weir__proxy_step(header->tlvs, header->tlv_length, tlv) > 0;
}

bool weir_proxy_find_tlv(const weir_proxy_header *header, uint8_t type, weir_proxy_tlv *tlv)
{
    *tlv = (weir_proxy_tlv){ 0 };
    while (weir_proxy_next_tlv(header, tlv)) {
        if (tlv->type == type)
            return true;
    }
    return false;
}

static int read_checksum(weir_proxy_reading *self, const weir_proxy_tlv *tlv, bool ignores_checksum)
{
    size_t at = (size_t)(tlv->value - self->bytes);
    if (tlv->length != 4 || self->header.has_checksum)
        return refuse(self, at - TLV_BEGIN, "no checksum, or a second one, in a PROXY header");
    self->header.has_checksum = true;
    self->checksum_at = tlv->next - WEIR__PROXY_CHECKSUM;
    if (!ignores_checksum &&
        weir__proxy_checksum(self->bytes, self->length, at) != weir__load_be32(tlv->value))
        return refuse(self, at, "a PROXY header with a wrong checksum");
    return 0;
}

int weir__proxy_read_v2(weir_proxy_reading *self, bool ignores_checksum)
{
    int code = weir__proxy_read_v2_begin(self, self->length);
    if (code < 0 || self->header.command == WEIR_PROXY_LOCAL)
        return code < 0 ? code : 0;
    unsigned family = self->bytes[FAMILY_AT] >> 4;
    read_binary_addresses(self, family);
    size_t begin = WEIR__PROXY_V2_BEGIN + (size_t)weir__proxy_addresses_size(family);
    self->header.tlvs = self->bytes + begin;
    self->header.tlv_length = self->length - begin;
    weir_proxy_tlv tlv = { 0 };
    while ((code = weir__proxy_step(self->header.tlvs, self->header.tlv_length, &tlv)) > 0) {
        if (tlv.type != WEIR_PROXY_TLV_CRC32C || tlv.depth > 0)
            continue;
        code = read_checksum(self, &tlv, ignores_checksum);
        if (code < 0)
            return code;
    }
    return code < 0 ? refuse(self, begin + tlv.next, "a TLV that does not fit its PROXY header")
                    : 0;
}
