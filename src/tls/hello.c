/* SPDX-License-Identifier: MIT */
/* Reading a ClientHello, in however many pieces and records it comes. */
#include "tls/hello.h"

#include "tls/engine.h"

#include <weir/address.h>

#include <errno.h>
#include <string.h>

enum {
    CLIENT_HELLO = 1,
    MESSAGE_HEADER = 4,
    RANDOM = 2 + 32, /* the version before it */
    SESSION_ID_MOST = 32,
    SERVER_NAME = 0, /* type of extension */
    HOST_NAME = 0,   /* type of server name */
};

static weir_tls_hello_state refuse(weir_error *error, const char *why)
{
    weir_error_set(error, WEIR_ETLS_RECORD, "tls", "no ClientHello can be made of this: %s", why);
    return WEIR_TLS_HELLO_REFUSED;
}

/* Whether it is labels with dots between them; `has_letter`: so it is no IPv4 address. */
static bool is_labels(const char *name, size_t length, bool *has_letter)
{
    size_t label = 0;
    *has_letter = false;
    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (c == '.' ? label == 0 : !is_letter && c != '-' && (c < '0' || c > '9'))
            return false;
        label = c == '.' ? 0 : label + 1;
        if (label > 63)
            return false;
        *has_letter |= is_letter;
    }
    return label > 0 && length <= 253;
}

bool weir__tls_is_host(const char *name, size_t length)
{
    bool has_letter;
    return is_labels(name, length, &has_letter) && has_letter;
}

/* An IPv6 address, in brackets or not. An interface ("%eth0") means nothing to a peer. */
static bool is_ipv6(const char *name, size_t length)
{
    weir_address address;
    char text[WEIR_ADDRESS_TEXT_MAX] = "[";
    if (length > 2 && name[0] == '[' && name[length - 1] == ']')
        name++, length -= 2;
    if (length + sizeof "[]:0" > sizeof text)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (name[i] == '\0' || strchr("0123456789abcdefABCDEF:.", name[i]) == NULL)
            return false;
    }
    memcpy(text + 1, name, length);
    memcpy(text + 1 + length, "]:0", sizeof "]:0");
    return weir_address_parse(&address, text, NULL) == 0;
}

bool weir__tls_read_name(const char *name, size_t length, char host[256])
{
    bool has_letter;
    host[0] = '\0';
    if (length > 0 && name[length - 1] == '.')
        length--;
    if (!is_labels(name, length, &has_letter))
        return is_ipv6(name, length);
    if (has_letter) {
        memcpy(host, name, length);
        host[length] = '\0';
    }
    return true;
}

/* The message ---------------------------------------------------------------------------------- */

/* What is left to read of something whose length is known. */
typedef struct span {
    const uint8_t *at;
    size_t left;
} span;

/* The next bytes; false when there are fewer. */
static bool take(span *from, size_t length, span *taken)
{
    if (length > from->left)
        return false;
    *taken = (span){ from->at, length };
    from->at += length;
    from->left -= length;
    return true;
}

static bool take_number(span *from, size_t width, size_t *number)
{
    span bytes;
    if (!take(from, width, &bytes))
        return false;
    *number = 0;
    for (size_t i = 0; i < width; i++)
        *number = *number << 8 | bytes.at[i];
    return true;
}

/* What has its length, of so many bytes, before it. */
static bool take_vector(span *from, size_t width, span *taken)
{
    size_t length;
    return take_number(from, width, &length) && take(from, length, taken);
}

/* The extension, of which there is one, with one host name. */
static bool read_server_name(weir_tls_hello *hello, span names)
{
    span list, name;
    size_t type;
    bool has_name = false;
    if (!take_vector(&names, 2, &list) || names.left > 0 || hello->has_server_name)
        return false;
    hello->has_server_name = true;
    while (list.left > 0) {
        if (!take_number(&list, 1, &type) || !take_vector(&list, 2, &name))
            return false;
        if (type != HOST_NAME)
            continue;
        if (has_name || !weir__tls_read_name((const char *)name.at, name.left, hello->host))
            return false;
        has_name = true;
    }
    return true;
}

static bool read_extensions(weir_tls_hello *hello, span extensions)
{
    span one;
    size_t type;
    while (extensions.left > 0) {
        if (!take_number(&extensions, 2, &type) || !take_vector(&extensions, 2, &one))
            return false;
        if (type == SERVER_NAME && !read_server_name(hello, one))
            return false;
    }
    return true;
}

static bool read_message(weir_tls_hello *hello, span message)
{
    span random, session, ciphers, compressions, extensions;
    if (!take(&message, RANDOM, &random) || !take_vector(&message, 1, &session) ||
        session.left > SESSION_ID_MOST || !take_vector(&message, 2, &ciphers) || ciphers.left < 2 ||
        ciphers.left % 2 != 0 || !take_vector(&message, 1, &compressions) || compressions.left == 0)
        return false;
    if (message.left == 0)
        return true; /* from before there were extensions */
    return take_vector(&message, 2, &extensions) && message.left == 0 &&
           read_extensions(hello, extensions);
}

/* Records -------------------------------------------------------------------------------------- */

/* 0: its length is not there yet. */
static size_t message_length(const weir_tls_hello *hello)
{
    uint32_t begin;
    if (weir_buf_get_u32(hello->message, 0, &begin) < 0)
        return 0;
    return MESSAGE_HEADER + (begin & 0xffffff);
}

/* The part of it that is in the next record. */
static weir_tls_hello_state add_record(weir_tls_hello *hello, const weir_buf *in, size_t index,
                                       size_t length, size_t most, weir_error *error)
{
    uint8_t type = 0;
    if (hello->message == NULL)
        hello->message = weir_buf_new(length);
    uint8_t *room = hello->message != NULL ? weir_buf_write_ptr(hello->message, length) : NULL;
    if (room == NULL) {
        weir_error_set(error, -ENOMEM, "tls", "no memory for a ClientHello");
        return WEIR_TLS_HELLO_REFUSED;
    }
    weir_buf_get_bytes(in, index, room, length);
    weir_buf_advance_writer(hello->message, length);
    size_t there = weir_buf_readable(hello->message), whole = message_length(hello);
    weir_buf_get_u8(hello->message, 0, &type);
    if (type != CLIENT_HELLO)
        return refuse(error, "it is another message");
    if (there > most || whole > most) {
        weir_error_set(error, WEIR_ELIMIT, "tls", "a ClientHello of more than %zu bytes", most);
        return WEIR_TLS_HELLO_REFUSED;
    }
    if (whole == 0 || there < whole)
        return WEIR_TLS_HELLO_MORE;
    if (there > whole)
        return refuse(error, "there is more in its last record");
    const span message = { weir_buf_peek(hello->message, MESSAGE_HEADER, whole - MESSAGE_HEADER),
                           whole - MESSAGE_HEADER };
    return read_message(hello, message) ? WEIR_TLS_HELLO_DONE
                                        : refuse(error, "its parts do not fit");
}

weir_tls_hello_state weir__tls_hello_read(weir_tls_hello *hello, const weir_buf *in, size_t most,
                                          weir_error *error)
{
    weir_tls_hello_state state = WEIR_TLS_HELLO_MORE;
    while (state == WEIR_TLS_HELLO_MORE) {
        size_t index = weir_buf_reader(in) + hello->looked;
        size_t left = weir_buf_readable(in) - hello->looked;
        uint8_t header[WEIR__TLS_HEADER];
        size_t part = left < sizeof header ? left : sizeof header;
        weir_buf_get_bytes(in, index, header, part);
        int length = weir__tls_record_length(header, part, error);
        if (length < 0)
            return WEIR_TLS_HELLO_REFUSED;
        if (length > 0 && header[0] != WEIR__TLS_HANDSHAKE)
            return refuse(error, "it is no handshake");
        if (length == WEIR__TLS_HEADER)
            return refuse(error, "a record is empty");
        if (length == 0 || (size_t)length > left)
            return WEIR_TLS_HELLO_MORE;
        hello->looked += (size_t)length;
        state = add_record(hello, in, index + WEIR__TLS_HEADER, (size_t)length - WEIR__TLS_HEADER,
                           most, error);
    }
    return state;
}

void weir__tls_hello_deinit(weir_tls_hello *hello)
{
    if (hello->message != NULL)
        weir_buf_release(hello->message);
    hello->message = NULL;
}
