/* SPDX-License-Identifier: MIT */
/* The PROXY protocol: headers as bytes. */
#include "codec/proxy_protocol.h"

#include "base/address.h"

#include <errno.h>
#include <string.h>

/* The checksum --------------------------------------------------------------------------------- */

/* CRC32C, four bits at a time. */
static uint32_t add_byte(uint32_t sum, uint8_t byte)
{
    static const uint32_t table[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    sum ^= byte;
    sum = sum >> 4 ^ table[sum & 15];
    return sum >> 4 ^ table[sum & 15];
}

uint32_t weir__proxy_checksum(const uint8_t *header, size_t length, size_t at)
{
    uint32_t sum = UINT32_MAX;
    for (size_t i = 0; i < length; i++)
        sum = add_byte(sum, i >= at && i < at + 4 ? 0 : header[i]);
    return ~sum;
}

/* TLVs ----------------------------------------------------------------------------------------- */

int weir_proxy_write_tlv(weir_buf *to, uint8_t type, const void *value, size_t length)
{
    if (value == NULL && length > 0)
        return -EINVAL;
    if (length > UINT16_MAX)
        return WEIR_ELIMIT;
    int code = weir_buf_ensure_writable(to, 3 + length);
    if (code < 0)
        return code;
    weir_buf_write_u8(to, type);
    weir_buf_write_u16(to, (uint16_t)length);
    return weir_buf_write_bytes(to, value, length);
}

static bool are_tlvs(const weir_proxy_header *header)
{
    weir_proxy_tlv tlv = { 0 };
    int code = header->tlvs != NULL || header->tlv_length == 0 ? 1 : -EINVAL;
    while (code > 0) {
        code = weir__proxy_step(header->tlvs, header->tlv_length, &tlv);
        if (code > 0 && tlv.type == WEIR_PROXY_TLV_CRC32C && tlv.depth == 0)
            return false;
    }
    return code == 0;
}

/* Addresses ------------------------------------------------------------------------------------ */

typedef struct addresses {
    weir_address source, destination;
    weir_address_kind kind; /* of both; NONE: they are not said */
} addresses;

/* Two of one kind. A listener for both families knows its IPv4 peers in the form of IPv6. */
static int choose_addresses(const weir_proxy_header *header, addresses *both)
{
    *both = (addresses){ 0 };
    if (header->command == WEIR_PROXY_LOCAL || header->transport == WEIR_PROXY_UNKNOWN)
        return 0;
    both->source = header->source;
    both->destination = header->destination;
    weir_address_unmap(&both->source);
    weir_address_unmap(&both->destination);
    if (weir_address_kind_of(&both->source) != weir_address_kind_of(&both->destination)) {
        both->source = header->source;
        both->destination = header->destination;
    }
    both->kind = weir_address_kind_of(&both->source);
    if (both->kind != weir_address_kind_of(&both->destination))
        return -EINVAL;
    return both->kind == WEIR_ADDRESS_LOCAL ? -EAFNOSUPPORT : 0;
}

/* Version 1 ------------------------------------------------------------------------------------ */

/* Without the port, the brackets and the interface. */
static int host_text(const weir_address *address, char text[WEIR_ADDRESS_TEXT_MAX])
{
    weir_address_text(address, text, WEIR_ADDRESS_TEXT_MAX);
    bool is_ipv6 = text[0] == '[';
    size_t length = strcspn(text + is_ipv6, is_ipv6 ? "%]" : ":");
    memmove(text, text + is_ipv6, length);
    text[length] = '\0';
    return (int)length;
}

static int write_v1(weir_buf *to, const weir_proxy_header *header, const addresses *both)
{
    char source[WEIR_ADDRESS_TEXT_MAX], destination[WEIR_ADDRESS_TEXT_MAX];
    if (header->tlv_length > 0 || header->has_checksum ||
        header->transport == WEIR_PROXY_DATAGRAM || both->kind == WEIR_ADDRESS_UNIX)
        return -EPROTONOSUPPORT;
    if (both->kind == WEIR_ADDRESS_NONE)
        return weir_buf_write_str(to, "PROXY UNKNOWN\r\n");
    host_text(&both->source, source);
    host_text(&both->destination, destination);
    return weir_buf_printf(to, "PROXY TCP%d %s %s %u %u\r\n",
                           both->kind == WEIR_ADDRESS_IPV4 ? 4 : 6, source, destination,
                           (unsigned)weir_address_port(&both->source),
                           (unsigned)weir_address_port(&both->destination));
}

/* Version 2 ------------------------------------------------------------------------------------ */

static uint8_t *put(uint8_t *to, const void *from, size_t length)
{
    memcpy(to, from, length);
    return to + length;
}

static uint8_t *put_u16(uint8_t *to, size_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
    return to + 2;
}

/* The path, or the zero and the name of an abstract one, and zeros. */
static uint8_t *put_path(uint8_t *to, const weir_address *address)
{
    size_t length = address->length - WEIR__NAME_AT;
    memset(to, 0, WEIR__PATH_SIZE);
    memcpy(to, address->storage.bytes + WEIR__NAME_AT,
           length < WEIR__PATH_SIZE ? length : WEIR__PATH_SIZE);
    return to + WEIR__PATH_SIZE;
}

static uint8_t *put_addresses(uint8_t *to, const addresses *both)
{
    struct sockaddr_in in[2] = { weir__address_ipv4_of(&both->source),
                                 weir__address_ipv4_of(&both->destination) };
    struct sockaddr_in6 in6[2] = { weir__address_ipv6_of(&both->source),
                                   weir__address_ipv6_of(&both->destination) };
    if (both->kind == WEIR_ADDRESS_UNIX)
        return put_path(put_path(to, &both->source), &both->destination);
    if (both->kind == WEIR_ADDRESS_NONE)
        return to;
    for (int i = 0; i < 2; i++) {
        to = both->kind == WEIR_ADDRESS_IPV4 ? put(to, &in[i].sin_addr, sizeof in[i].sin_addr)
                                             : put(to, &in6[i].sin6_addr, sizeof in6[i].sin6_addr);
    }
    to = put_u16(to, weir_address_port(&both->source));
    return put_u16(to, weir_address_port(&both->destination));
}

static int write_v2(weir_buf *to, const weir_proxy_header *header, const addresses *both)
{
    unsigned family = both->kind == WEIR_ADDRESS_NONE   ? 0
                      : both->kind == WEIR_ADDRESS_IPV4 ? 1
                      : both->kind == WEIR_ADDRESS_IPV6 ? 2
                                                        : 3;
    unsigned transport = header->transport == WEIR_PROXY_DATAGRAM ? 2 : 1;
    size_t rest = (size_t)weir__proxy_addresses_size(family) + header->tlv_length +
                  (header->has_checksum ? WEIR__PROXY_CHECKSUM : 0);
    if (!are_tlvs(header))
        return -EINVAL;
    if (rest > UINT16_MAX)
        return WEIR_ELIMIT;
    int code = weir_buf_ensure_writable(to, WEIR__PROXY_V2_BEGIN + rest);
    uint8_t *begin = code < 0 ? NULL : weir_buf_write_ptr(to, WEIR__PROXY_V2_BEGIN + rest);
    if (begin == NULL)
        return code < 0 ? code : -ENOMEM;
    uint8_t *at = put(begin, weir__proxy_v2_signature, WEIR__PROXY_V2_SIGNATURE);
    *at++ = header->command == WEIR_PROXY_LOCAL ? 0x20 : 0x21;
    *at++ = family == 0 ? 0 : (uint8_t)(family << 4 | transport);
    at = put_addresses(put_u16(at, rest), both);
    if (header->tlv_length > 0)
        at = put(at, header->tlvs, header->tlv_length);
    if (header->has_checksum) {
        *at++ = WEIR_PROXY_TLV_CRC32C;
        at = put_u16(at, 4);
        uint32_t sum = weir__proxy_checksum(begin, WEIR__PROXY_V2_BEGIN + rest,
                                            (size_t)(at - begin));
        put_u16(put_u16(at, sum >> 16), sum & 0xffff);
    }
    return weir_buf_advance_writer(to, WEIR__PROXY_V2_BEGIN + rest);
}

int weir_proxy_write_header(weir_buf *to, const weir_proxy_header *header)
{
    addresses both;
    if (to == NULL || header == NULL || header->version < 0 || header->version > 2)
        return -EINVAL;
    int code = choose_addresses(header, &both);
    if (code < 0)
        return code;
    return header->version == 1 ? write_v1(to, header, &both) : write_v2(to, header, &both);
}
