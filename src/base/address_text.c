/* SPDX-License-Identifier: MIT */
/* Addresses as text: reading and writing. */
#include "base/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

_Static_assert(WEIR_ADDRESS_TEXT_MAX > sizeof "unix:" + 4 * WEIR__PATH_SIZE, "every byte as \\xNN");

/* From text ----------------------------------------------------------------------------------- */

/* What reads text returns what is wrong with it and what to write instead, NULL if nothing is. */

static const char digits[] = "0123456789";

/* Decimal digits and nothing else, of a value up to `max`. */
static bool read_number(const char *text, uint32_t max, uint32_t *number)
{
    uint64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > max)
            return false;
    }
    *number = (uint32_t)value;
    return true;
}

static const char *read_port(const char *text, in_port_t *port)
{
    uint32_t number;
    if (*text == '\0')
        return "the port is missing: write it after the ':', as in 127.0.0.1:8007";
    if (text[strspn(text, digits)] != '\0')
        return "the port is not a number: write one of 0 to 65535 after the ':'";
    if (!read_number(text, UINT16_MAX, &number))
        return "the port is above 65535: write one of 0 to 65535";
    *port = htons((uint16_t)number);
    return NULL;
}

static const char *read_scope(const char *text, uint32_t *scope)
{
    if (read_number(text, UINT32_MAX, scope) || (*scope = if_nametoindex(text)) != 0)
        return NULL;
    return "no interface was found for what follows the '%': write its name or number";
}

/* "[host]:port" or "[host%scope]:port" */
static const char *read_bracketed(weir_address *address, const char *text)
{
    static const char no_ipv6[] =
        "what is in brackets is not an IPv6 address: write one as in [::1]:8007";
    char host[INET6_ADDRSTRLEN + sizeof "%" + IF_NAMESIZE];
    const char *end = strchr(text, ']');
    if (end == NULL)
        return "the bracket is not closed: write [::1]:8007";
    if (end[1] == '\0')
        return "the port is missing: write it after the bracket, as in [::1]:8007";
    if (end[1] != ':')
        return "after the bracket comes no ':': write [::1]:8007";
    size_t length = (size_t)(end - text - 1);
    if (length >= sizeof host)
        return no_ipv6;
    memcpy(host, text + 1, length);
    host[length] = '\0';

    char *percent = strchr(host, '%');
    if (percent != NULL)
        *percent = '\0';
    struct in6_addr in6;
    if (inet_pton(AF_INET6, host, &in6) != 1)
        return no_ipv6;
    uint32_t scope = 0;
    const char *wrong = percent != NULL ? read_scope(percent + 1, &scope) : NULL;
    in_port_t port;
    if (wrong == NULL && (wrong = read_port(end + 2, &port)) == NULL)
        weir__address_set_ipv6(address, in6, scope, port);
    return wrong;
}

static const char *why_no_host(const char *host, size_t length)
{
    static const char letters[] =
        "0123456789.-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (strspn(host, "0123456789.") >= length)
        return "it is not an IPv4 address: write four numbers of 0 to 255, without leading zeros, "
               "as in 127.0.0.1:8007";
    if (strspn(host, letters) >= length)
        return "a host name needs a resolver: write the address itself, as in 127.0.0.1:8007";
    return "it is no address: write one as in 127.0.0.1:8007, [::1]:8007, :8007 or unix:/path";
}

/* "host:port", ":port" or "*:port" */
static const char *read_plain(weir_address *address, const char *text)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL && (text[0] == '/' || text[0] == '@'))
        return "a path or an abstract name begins with unix: as in unix:/path or unix:@name";
    if (colon == NULL)
        return "the port is missing: write it after a ':', as in 127.0.0.1:8007 or :8007";
    if (strchr(colon + 1, ':') != NULL)
        return "it has more than one ':': write IPv6 in brackets, as in [::1]:8007";
    in_port_t port;
    const char *wrong = read_port(colon + 1, &port);
    if (wrong != NULL)
        return wrong;

    size_t length = (size_t)(colon - text);
    if (length == 0 || (length == 1 && text[0] == '*')) {
        weir__address_set_ipv6(address, in6addr_any, 0, port);
        return NULL;
    }
    char host[INET_ADDRSTRLEN];
    struct in_addr in;
    snprintf(host, sizeof host, "%.*s", (int)(length < sizeof host ? length : 0), text);
    if (inet_pton(AF_INET, host, &in) != 1)
        return why_no_host(text, length);
    weir__address_set_ipv4(address, in, port);
    return NULL;
}

static bool is_control(uint8_t byte)
{
    return byte < ' ' || byte == 0x7f;
}

static const char *read_ip(weir_address *address, const char *text)
{
    for (const char *at = text; *at != '\0'; at++)
        if (*at == ' ' || is_control((uint8_t)*at))
            return "it has a space or a control character in it: leave that out";
    return text[0] == '[' ? read_bracketed(address, text) : read_plain(address, text);
}

static int read_hex_digit(char digit)
{
    return digit >= '0' && digit <= '9'   ? digit - '0'
           : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
           : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                          : -1;
}

/* Takes the byte at `*text`, plain or as \xNN; -1 if it is neither. */
static int take_byte(const char **text)
{
    const char *at = *text;
    if (*at != '\\') {
        *text += 1;
        return is_control((uint8_t)*at) ? -1 : (uint8_t)*at;
    }
    int high, low;
    if (at[1] != 'x' || (high = read_hex_digit(at[2])) < 0 || (low = read_hex_digit(at[3])) < 0)
        return -1;
    *text += 4;
    return high * 16 + low;
}

static const char *read_name(const char *text, uint8_t name[WEIR_ADDRESS_NAME_MAX], size_t *length)
{
    if (*text == '\0')
        return "the name is missing: write unix:/path, unix:@name or local:name";
    if (text[0] == ' ' || text[strlen(text) - 1] == ' ')
        return "the name has a space at an end: leave it out, or write \\x20 if it belongs there";
    *length = 0;
    while (*text != '\0') {
        int byte = take_byte(&text);
        if (byte < 0)
            return "control characters and backslashes in a name: write each as \\xNN, "
                   "a backslash as \\x5c";
        if (*length == WEIR_ADDRESS_NAME_MAX)
            return "the path or name is longer than 107 bytes: write a shorter one";
        name[(*length)++] = (uint8_t)byte;
    }
    return NULL;
}

static const char *read_named(weir_address *address, const char *text, bool is_local)
{
    uint8_t name[WEIR_ADDRESS_NAME_MAX];
    size_t length;
    bool is_abstract = !is_local && text[0] == '@';
    const char *wrong = read_name(text + (is_abstract ? 1 : 0), name, &length);
    if (wrong != NULL)
        return wrong;
    if (!is_abstract && memchr(name, 0, length) != NULL)
        return "a path or local name cannot contain \\x00: write unix:@name for an abstract name";
    if (is_abstract)
        weir__address_set_abstract(address, name, length);
    else if (is_local)
        weir__address_set_local(address, name, length);
    else
        weir__address_set_path(address, name, length);
    return NULL;
}

/* To text ------------------------------------------------------------------------------------- */

/* Text that counts on when there is no more room. */
typedef struct output {
    char *to;
    size_t size, length;
} output;

static void put(output *out, char c)
{
    if (out->length < out->size)
        out->to[out->length] = c;
    out->length++;
}

/* Terminates it, in place of the last character if need be, and returns the length of it all. */
static size_t put_end(output *out)
{
    if (out->size > 0)
        out->to[out->length < out->size ? out->length : out->size - 1] = '\0';
    return out->length;
}

static void put_text(output *out, const char *text)
{
    while (*text != '\0')
        put(out, *text++);
}

static void put_escaped(output *out, uint8_t byte)
{
    static const char hex[] = "0123456789abcdef";
    put_text(out, "\\x");
    put(out, hex[byte >> 4]);
    put(out, hex[byte & 15]);
}

/* A byte as it is if it can be printed, else escaped. */
static void put_byte(output *out, uint8_t byte)
{
    if (is_control(byte) || byte >= 0x80)
        put_escaped(out, byte);
    else
        put(out, (char)byte);
}

/* Spaces at the ends are escaped because parsing takes them for mistakes. */
static void put_name(output *out, const uint8_t *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bool is_end = i == 0 || i + 1 == length;
        if (name[i] == '\\' || (name[i] == ' ' && is_end))
            put_escaped(out, name[i]);
        else
            put_byte(out, name[i]);
    }
}

static void put_unix(output *out, const weir_address *address)
{
    const uint8_t *name = address->storage.bytes + WEIR__NAME_AT;
    size_t length = address->length - WEIR__NAME_AT;
    put_text(out, "unix:");
    if (length > 0 && name[0] == 0) {
        put(out, '@');
        put_name(out, name + 1, length - 1);
        return;
    }
    length = strnlen((const char *)name, length);
    if (length > 0 && name[0] == '@') { /* a file that only looks like an abstract name */
        put_escaped(out, *name++);
        length--;
    }
    put_name(out, name, length);
}

static void put_ip(output *out, const weir_address *address)
{
    char text[INET6_ADDRSTRLEN], tail[32];
    unsigned port = weir_address_port(address);
    if (weir_address_kind_of(address) == WEIR_ADDRESS_IPV4) {
        struct sockaddr_in in = weir__address_ipv4_of(address);
        put_text(out, inet_ntop(AF_INET, &in.sin_addr, text, sizeof text));
        snprintf(tail, sizeof tail, ":%u", port);
    } else {
        struct sockaddr_in6 in6 = weir__address_ipv6_of(address);
        put(out, '[');
        put_text(out, inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text));
        /* By number: a name would cost system calls, and may be another's when it is read. */
        if (in6.sin6_scope_id != 0)
            snprintf(tail, sizeof tail, "%%%u]:%u", (unsigned)in6.sin6_scope_id, port);
        else
            snprintf(tail, sizeof tail, "]:%u", port);
    }
    put_text(out, tail);
}

size_t weir_address_text(const weir_address *address, char *to, size_t size)
{
    output out = { .to = to, .size = to != NULL ? size : 0 };
    switch (weir_address_kind_of(address)) {
    case WEIR_ADDRESS_IPV4:
    case WEIR_ADDRESS_IPV6:
        put_ip(&out, address);
        break;
    case WEIR_ADDRESS_UNIX:
        put_unix(&out, address);
        break;
    case WEIR_ADDRESS_LOCAL:
        put_text(&out, "local:");
        put_name(&out, address->storage.bytes + WEIR__NAME_AT, address->length - WEIR__NAME_AT);
        break;
    case WEIR_ADDRESS_NONE:
        put(&out, '-');
        break;
    }
    return put_end(&out);
}

/* Quotes the text, as much of it as leaves room for the reason; it may be anything. */
static int refuse(weir_error *error, const char *text, const char *wrong)
{
    char quoted[64];
    output out = { .to = quoted, .size = sizeof quoted };
    for (const char *at = text; *at != '\0' && out.length < sizeof quoted; at++)
        put_byte(&out, (uint8_t)*at);
    bool is_cut = put_end(&out) >= sizeof quoted;
    return weir_error_set(error, -EINVAL, "address", "'%s%s': %s", quoted, is_cut ? "..." : "",
                          wrong);
}

int weir_address_parse(weir_address *address, const char *text, weir_error *error)
{
    if (address == NULL)
        return weir_error_set(error, -EINVAL, "address", "NULL for the address: pass one to fill");
    *address = (weir_address){ 0 };
    if (text == NULL)
        return weir_error_set(error, -EINVAL, "address",
                              "NULL for the text: pass one as 127.0.0.1:8007 or unix:/path");
    const char *wrong;
    if (text[0] == '\0')
        wrong = "it is empty: write an address as 127.0.0.1:8007, [::1]:8007, :8007 or unix:/path";
    else if (strncmp(text, "unix:", 5) == 0)
        wrong = read_named(address, text + 5, false);
    else if (strncmp(text, "local:", 6) == 0)
        wrong = read_named(address, text + 6, true);
    else
        wrong = read_ip(address, text);
    return wrong != NULL ? refuse(error, text, wrong) : 0;
}
