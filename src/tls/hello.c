/* SPDX-License-Identifier: MIT */
/* Reading a ClientHello, in however many pieces and records it comes. */
#include "tls/hello.h"

#include "tls/engine.h"

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

bool weir__tls_is_host(const char *name, size_t length)
{
    bool has_letter = false;
    size_t label = 0;
    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (c == '.' ? label == 0 : !is_letter && c != '-' && (c < '0' || c > '9'))
            return false;
        label = c == '.' ? 0 : label + 1;
        if (label > 63)
            return false;
        has_letter |= is_letter;
    }
    return label > 0 && length <= 253 && has_letter;
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

/* The one host name in the extension. */
static bool read_server_name(span names, char host[256])
{
    span list, name;
    size_t type;
    if (!take_vector(&names, 2, &list) || names.left > 0 || host[0] != '\0')
        return false;
    while (list.left > 0) {
        if (!take_number(&list, 1, &type) || !take_vector(&list, 2, &name))
            return false;
        if (type != HOST_NAME)
            continue;
        if (host[0] != '\0' || !weir__tls_is_host((const char *)name.at, name.left))
            return false;
        memcpy(host, name.at, name.left);
        host[name.left] = '\0';
    }
    return true;
}

static bool read_extensions(span extensions, char host[256])
{
    span one;
    size_t type;
    while (extensions.left > 0) {
        if (!take_number(&extensions, 2, &type) || !take_vector(&extensions, 2, &one))
            return false;
        if (type == SERVER_NAME && !read_server_name(one, host))
            return false;
    }
    return true;
}

static bool read_message(span message, char host[256])
{
    span random, session, ciphers, compressions, extensions;
    if (!take(&message, RANDOM, &random) || !take_vector(&message, 1, &session) ||
        session.left > SESSION_ID_MOST || !take_vector(&message, 2, &ciphers) || ciphers.left < 2 ||
        ciphers.left % 2 != 0 || !take_vector(&message, 1, &compressions) || compressions.left == 0)
        return false;
    if (message.left == 0)
        return true; /* from before there were extensions */
    return take_vector(&message, 2, &extensions) && message.left == 0 &&
           read_extensions(extensions, host);
}

/* Records -------------------------------------------------------------------------------------- */

/* 0: its length is not there yet. */
static size_t message_length(const weir_tls_hello *hello)
{
    uint32_t begin = 0;
    if (weir_buf_readable(hello->message) < MESSAGE_HEADER)
        return 0;
    weir_buf_get_u32(hello->message, 0, &begin);
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
    return read_message(message, hello->host) ? WEIR_TLS_HELLO_DONE
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
