/* SPDX-License-Identifier: MIT */
/* What the tests of the PROXY protocol share: headers as bytes, and what came of them as text. */
#ifndef WEIR_TESTS_CODEC_PROXY_HEADERS_H
#define WEIR_TESTS_CODEC_PROXY_HEADERS_H

#include "codecs.h"

#include <weir/fixed_length.h>
#include <weir/proxy_protocol.h>

#include <stdio.h>

#define SIGNATURE "\r\n\r\n\0\r\nQUIT\n"
#define V1_LINE "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"

/* Bytes of a literal, without its terminator. */
#define BYTES(literal) (literal), sizeof(literal) - 1

/* A header of version 2 with what is behind its signature. */
typedef struct raw {
    uint8_t bytes[70000];
    size_t length;
} raw;

static inline void raw_add(raw *self, const void *bytes, size_t length)
{
    assert_true(self->length + length <= sizeof self->bytes);
    memcpy(self->bytes + self->length, bytes, length);
    self->length += length;
}

/* The signature, the command, the family, and the length of what will follow. */
static inline void raw_begin(raw *self, uint8_t command, uint8_t family, size_t length)
{
    uint8_t rest[] = { command, family, (uint8_t)(length >> 8), (uint8_t)length };
    self->length = 0;
    raw_add(self, BYTES(SIGNATURE));
    raw_add(self, rest, sizeof rest);
}

static inline void raw_add_tlv(raw *self, uint8_t type, const void *value, size_t length)
{
    uint8_t begin[] = { type, (uint8_t)(length >> 8), (uint8_t)length };
    raw_add(self, begin, sizeof begin);
    raw_add(self, value, length);
}

/* The length is what is there. */
static inline void raw_end(raw *self)
{
    self->bytes[14] = (uint8_t)((self->length - 16) >> 8);
    self->bytes[15] = (uint8_t)(self->length - 16);
}

#define IPV4_ADDRESSES "\300\0\2\1\306\63\144\2\334\4\1\273" /* those of V1_LINE */
#define V1_TEXT "v1 192.0.2.1:56324 to 198.51.100.2:443"
#define V2_TEXT "v2 192.0.2.1:56324 to 198.51.100.2:443"

/* A header as text. */
static inline weir_buf *header_text(const weir_proxy_header *header)
{
    char source[WEIR_ADDRESS_TEXT_MAX], destination[WEIR_ADDRESS_TEXT_MAX];
    static const char *const transports[] = { "", " by datagrams", " unknown" };
    weir_buf *text = weir_buf_new(256);
    weir_proxy_tlv tlv = { 0 };
    weir_address_text(&header->source, source, sizeof source);
    weir_address_text(&header->destination, destination, sizeof destination);
    weir_buf_printf(text, "v%d %s to %s%s%s%s", header->version, source, destination,
                    transports[header->transport],
                    header->command == WEIR_PROXY_LOCAL ? " local" : "",
                    header->has_checksum ? " with a checksum" : "");
    while (weir_proxy_next_tlv(header, &tlv))
        weir_buf_printf(text, " %s%02x:%.*s", tlv.depth > 0 ? ">" : "", tlv.type,
                        tlv.type == WEIR_PROXY_TLV_SSL && tlv.depth == 0 ? 0 : (int)tlv.length,
                        (const char *)tlv.value);
    return text;
}

/* Behind the decoder: events go on as messages, so that their place among those is seen. Nobody
 * hears of an end without a begin, nor the other way round. */
static inline void teller_on_active(weir_ctx *ctx)
{
    bool *is_active = weir_ctx_state(ctx);
    assert_false(*is_active);
    *is_active = true;
    weir_ctx_fire_read(ctx, weir_buf_msg(weir_buf_from("active", 6)));
    weir_ctx_fire_active(ctx);
}

static inline void teller_on_inactive(weir_ctx *ctx)
{
    bool *is_active = weir_ctx_state(ctx);
    assert_true(*is_active);
    *is_active = false;
    weir_ctx_fire_inactive(ctx);
}

static inline void teller_removed(weir_ctx *ctx)
{
    assert_false(*(bool *)weir_ctx_state(ctx));
}

static inline void teller_on_event(weir_ctx *ctx, weir_msg *event)
{
    const weir_proxy_event *proxy = weir_proxy_event_from(event);
    if (proxy != NULL)
        weir_ctx_fire_read(ctx, weir_buf_msg(header_text(&proxy->header)));
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type teller = { .name = "teller",
                                          .state_size = sizeof(bool),
                                          .removed = teller_removed,
                                          .on_active = teller_on_active,
                                          .on_event = teller_on_event,
                                          .on_inactive = teller_on_inactive };

static inline int add_proxy(weir_channel *channel, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "codec", &weir_proxy_decoder, arg);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "teller", &teller, NULL);
}

/* The same for the verifier: what is behind the header comes byte by byte, however it was cut. */
static inline int add_proxy_and_bytes(weir_channel *channel, void *arg)
{
    static const weir_fixed_length one = { 1 };
    int code = add_proxy(channel, arg);
    return code < 0 ? code
                    : weir_pipeline_add_after(weir_channel_pipeline(channel), "codec", "bytes",
                                              &weir_fixed_length_decoder, (void *)&one);
}

static inline weir_embedded *proxy_new(const weir_proxy_decoding *config)
{
    weir_embedded *embedded;
    weir_embedded_config with = { .init = add_proxy, .arg = (void *)config };
    assert_int_equal(weir_embedded_new(&embedded, &with, NULL), 0);
    return embedded;
}

static inline void verify_proxy_how(const weir_proxy_decoding *config, const void *input,
                                    size_t length, unsigned messages, unsigned errors,
                                    bool is_brief)
{
    weir_verifier_report report;
    weir_error error;
    weir_verifier_config verified = {
        .init = add_proxy_and_bytes,
        .arg = (void *)config,
        .input = input,
        .length = length,
        .decoder = "codec",
        .random_cuts = 4,
        .is_brief = is_brief,
    };
    if (weir_verify(&verified, &report, &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(report.messages, messages);
    assert_int_equal(report.errors, errors);
}

static inline void verify_proxy(const weir_proxy_decoding *config, const void *input, size_t length,
                                unsigned messages, unsigned errors)
{
    verify_proxy_how(config, input, length, messages, errors, false);
}

static inline bool has_decoder(weir_embedded *embedded)
{
    return weir_pipeline_find(weir_embedded_pipeline(embedded), "codec", NULL) == 0;
}

static inline void expect_remote(weir_embedded *embedded, const char *text)
{
    char found[WEIR_ADDRESS_TEXT_MAX];
    weir_address address;
    weir_channel_remote_address(weir_embedded_channel(embedded), &address);
    weir_address_text(&address, found, sizeof found);
    assert_string_equal(found, text);
}

#endif
