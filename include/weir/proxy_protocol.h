/* SPDX-License-Identifier: MIT */
/* The PROXY protocol: how a proxy tells, before all else, for whom a connection is. */
#ifndef WEIR_PROXY_PROTOCOL_H
#define WEIR_PROXY_PROTOCOL_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/buf.h>
#include <weir/duration.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/*
 * Version 1 is a line of text, version 2 is binary and can carry more, as TLVs (a type, a length, a
 * value). Both are defined by HAProxy, and spoken by most proxies and load balancers.
 *
 * Whoever can connect can claim to be anybody: let only the proxies connect, by an ip filter before
 * (nearer to the head than) the decoder.
 */

/** For whom the connection is. */
typedef enum weir_proxy_command {
    WEIR_PROXY_PROXIED, /* it is for somebody else: the source */
    WEIR_PROXY_LOCAL, /* it is the proxy's own, as its health checks are; there are no addresses */
} weir_proxy_command;

/** How the client speaks to the proxy. */
typedef enum weir_proxy_transport {
    WEIR_PROXY_STREAM,
    WEIR_PROXY_DATAGRAM,
    WEIR_PROXY_UNKNOWN, /* the proxy does not say: there are no addresses */
} weir_proxy_transport;

/** Types of TLVs. Those from SSL_VERSION to SSL_KEY_ALGORITHM come inside one of type SSL. */
enum {
    WEIR_PROXY_TLV_ALPN = 0x01,
    WEIR_PROXY_TLV_AUTHORITY = 0x02, /* the host name that the client asked for */
    WEIR_PROXY_TLV_CRC32C = 0x03,    /* weir looks after it: not among those of a header */
    WEIR_PROXY_TLV_NOOP = 0x04,
    WEIR_PROXY_TLV_UNIQUE_ID = 0x05,
    WEIR_PROXY_TLV_SSL = 0x20, /* a byte of flags (WEIR_PROXY_SSL_ below), four that are 0 when the
                                  client's certificate was verified, and more TLVs */
    WEIR_PROXY_TLV_SSL_VERSION = 0x21,
    WEIR_PROXY_TLV_SSL_COMMON_NAME = 0x22,
    WEIR_PROXY_TLV_SSL_CIPHER = 0x23,
    WEIR_PROXY_TLV_SSL_SIGNATURE_ALGORITHM = 0x24,
    WEIR_PROXY_TLV_SSL_KEY_ALGORITHM = 0x25,
    WEIR_PROXY_TLV_NETNS = 0x30,
};

/** The flags of WEIR_PROXY_TLV_SSL. */
enum {
    WEIR_PROXY_SSL_USED = 0x01,            /* the client speaks TLS to the proxy */
    WEIR_PROXY_SSL_HAS_CERTIFICATE = 0x02, /* which the client showed on this connection */
    WEIR_PROXY_SSL_HAD_CERTIFICATE = 0x04, /* or in the session that it has resumed */
};

/** What a header says. Zero is a header of version 2 that says nothing yet. */
typedef struct weir_proxy_header {
    int version; /* 1 or 2; 0: 2 */
    weir_proxy_command command;
    weir_proxy_transport transport;
    weir_address source;      /* the client: IPv4, IPv6, or Unix; none when that is not said */
    weir_address destination; /* where the client wanted to; of the same kind */
    const uint8_t *tlvs;      /* as they are sent, see weir_proxy_next_tlv */
    size_t tlv_length;
    bool has_checksum; /* a CRC32C, which protects it: was there, or is to be written */
} weir_proxy_header;

/* TLVs --------------------------------------------------------------------------------------- */

/** One of them. The value is borrowed from the header: bytes, as the proxy wrote them. */
typedef struct weir_proxy_tlv {
    uint8_t type;
    uint8_t depth; /* 1: inside the SSL one that came before it; else 0 */
    uint16_t length;
    const uint8_t *value;

    /* weir's: */
    size_t next, outer_end;
} weir_proxy_tlv;

/**
 * Goes to the next TLV; to the first one from a zeroed `tlv`. False behind the last, and where the
 * bytes are no TLVs, which does not happen in a header that was decoded. Those inside of one for
 * SSL come right behind it; no deeper ones are looked for. Any thread.
 *
 *     weir_proxy_tlv tlv = { 0 };
 *     while (weir_proxy_next_tlv(header, &tlv))
 *         ...
 */
WEIR_API bool weir_proxy_next_tlv(const weir_proxy_header *header, weir_proxy_tlv *tlv);

/** The first of a type, at either depth: false when there is none. Any thread. */
WEIR_API bool weir_proxy_find_tlv(const weir_proxy_header *header, uint8_t type,
                                  weir_proxy_tlv *tlv);

/** Appends a TLV, to be the `tlvs` of a header or the rest of a value for SSL. WEIR_ELIMIT when
 * the value is longer than 65,535 bytes; -EINVAL; as weir_buf_write_bytes, with nothing written. */
WEIR_API int weir_proxy_write_tlv(weir_buf *to, uint8_t type, const void *value, size_t length);

/* Receiving ---------------------------------------------------------------------------------- */

/** What the decoder makes of a header: an event. */
typedef struct weir_proxy_event {
    weir_msg msg;
    weir_proxy_header header;
} weir_proxy_event;

/** The message type of PROXY events. */
extern WEIR_API const weir_msg_type weir_proxy_event_type;

/** The event inside a message, NULL when it is another. */
static inline const weir_proxy_event *weir_proxy_event_from(const weir_msg *msg)
{
    return msg != NULL && msg->type == &weir_proxy_event_type
               ? WEIR__POINTER(const weir_proxy_event, msg)
               : NULL;
}

/** Which headers are taken. Zero: both versions, and without one the connection is closed. */
typedef struct weir_proxy_decoding {
    bool is_optional; /* what does not begin as a header does passes as it is. Then anybody can
                         decide whether there is one; and it is not for protocols in which the
                         server speaks first, because it waits for the first bytes */
    bool refuses_v1, refuses_v2;
    size_t max_bytes;      /* of a header of version 2, TLVs included, from 16 on; 0: 4,096. One of
                              version 1 has 107 at most */
    bool ignores_checksum; /* does not compare the CRC32C when there is one */

    /* How long the complete header may take from when the channel is active, or the decoder is
     * added if that is later; 0: 5 s, WEIR_OFF: no limit. */
    int64_t header_timeout_ns;
} weir_proxy_decoding;

/**
 * Reads the header at the begin of a connection. Then weir_channel_remote_address is the source,
 * unless that is not said, and weir_channel_peer_address the proxy. Only now the handlers behind it
 * hear that the channel is active, so they never take the proxy for the client; then they get a
 * weir_proxy_event. The decoder leaves the pipeline, and what came behind the header goes on as it
 * is. Of a connection without a header they hear nothing but what is wrong.
 *
 * Add it with a weir_proxy_decoding as the argument, which is copied, or with NULL; one that makes
 * no sense cannot be added. Put it before all that reads. A malformed header raises
 * on_error with the byte offset and closes the channel: -EBADMSG, WEIR_ELIMIT for one
 * above max_bytes, WEIR_EOF for one that ends too early, -ETIMEDOUT after header_timeout_ns, also
 * where a header is optional and no byte has come; -ENOMEM.
 */
extern WEIR_API const weir_handler_type weir_proxy_decoder;

/* Sending ------------------------------------------------------------------------------------ */

/**
 * Appends a header. Version 1 says UNKNOWN for WEIR_PROXY_LOCAL and when there are no addresses;
 * it has no TLVs, no datagrams and no Unix addresses: -EPROTONOSUPPORT. An interface (the %eth0 of
 * an IPv6 address) is not written. -EINVAL for addresses of two kinds, or one without the other
 * (IPv4 in the form of IPv6 fits both), for TLVs that are none, or a CRC32C among them;
 * -EAFNOSUPPORT for local addresses; WEIR_ELIMIT when it is longer than a header can be; -ENOMEM.
 * When it fails nothing was written.
 */
WEIR_API int weir_proxy_write_header(weir_buf *to, const weir_proxy_header *header);

/**
 * Sends a header before everything else that is written, as soon as the channel is active, and
 * leaves the pipeline. Add it with a weir_proxy_header as the argument, before (nearer to the head
 * than) all that writes; the header is copied, with its TLVs. One that cannot be written cannot be
 * added: the codes of weir_proxy_write_header.
 */
extern WEIR_API const weir_handler_type weir_proxy_sender;

WEIR_END_DECLS

#endif
