/* SPDX-License-Identifier: MIT */
/* What the tests of codecs share: an embedded channel with one handler, and what comes out of it.
 */
#ifndef WEIR_TESTS_CODECS_H
#define WEIR_TESTS_CODECS_H

#include "harness.h"

#include <weir/embedded.h>
#include <weir/verifier.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct codec {
    const weir_handler_type *type;
    const void *config;
} codec;

static inline int codec_add(weir_channel *channel, void *arg)
{
    const codec *self = arg;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "codec", self->type,
                                  (void *)self->config);
}

static inline weir_embedded *codec_new(const weir_handler_type *type, const void *config)
{
    codec self = { type, config };
    weir_embedded *embedded;
    assert_int_equal(weir_embedded_new(&embedded,
                                       &(weir_embedded_config){ .init = codec_add, .arg = &self },
                                       NULL),
                     0);
    return embedded;
}

/* It must not be possible to add it so. */
static inline void codec_is_refused(const weir_handler_type *type, const void *config)
{
    codec self = { type, config };
    weir_embedded *embedded;
    weir_error error;
    weir_embedded_config refused = { .init = codec_add, .arg = &self };
    assert_int_equal(weir_embedded_new(&embedded, &refused, &error), -EINVAL);
    assert_string_equal(error.origin, "codec");
}

static inline void codec_end(weir_embedded *embedded)
{
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

/* The next message is a buffer with these bytes. */
static inline void codec_check_bytes(weir_msg *msg, const void *bytes, size_t length)
{
    weir_buf *buf = weir_buf_from_msg(msg);
    uint8_t *found = test_malloc(length + 1);
    assert_non_null(buf);
    assert_int_equal(weir_buf_readable(buf), length);
    assert_int_equal(weir_buf_read_bytes(buf, found, length), 0);
    assert_memory_equal(found, bytes, length);
    test_free(found);
    weir_buf_release(buf);
}

static inline void codec_expect(weir_embedded *embedded, const void *bytes, size_t length)
{
    codec_check_bytes(weir_embedded_read_inbound(embedded), bytes, length);
}

static inline void codec_expect_text(weir_embedded *embedded, const char *text)
{
    codec_expect(embedded, text, strlen(text));
}

static inline void codec_expect_written(weir_embedded *embedded, const void *bytes, size_t length)
{
    codec_check_bytes(weir_embedded_read_outbound(embedded), bytes, length);
}

static inline void codec_expect_error(weir_embedded *embedded, int code, const char *text)
{
    weir_error error;
    assert_true(weir_embedded_take_error(embedded, &error));
    assert_int_equal(error.code, code);
    assert_string_equal(error.message, text);
}

static inline int codec_add_upgrade(void *pipeline)
{
    static const weir_handler_type upgrade = { .name = "upgrade", .is_upgrade = true };
    return weir_pipeline_add_first(pipeline, NULL, &upgrade, NULL);
}

/* A protocol upgrade, as TLS is one. If `held` is not 0, a handler holds so much, and it fails. */
static inline void codec_upgrade(weir_embedded *embedded, size_t held)
{
    char text[64];
    weir_error error = { .message = "" };
    int code = weir_embedded_call(embedded, codec_add_upgrade, weir_embedded_pipeline(embedded));
    weir_embedded_run(embedded);
    assert_int_equal(code, held > 0 ? WEIR_EHELD : 0);
    assert_int_equal(weir_channel_is_open(weir_embedded_channel(embedded)), held == 0);
    snprintf(text, sizeof text, "holds %zu bytes or messages from before it", held);
    assert_int_equal(weir_embedded_take_error(embedded, &error), held > 0);
    assert_true(held == 0 || strstr(error.message, text) != NULL);
    while (weir_embedded_take_error(embedded, NULL)) /* the stream ends inside a message */
        assert_true(held > 0);
}

/* Takes the codec out when it hears of an error. */
static inline void codec_remover_on_error(weir_ctx *ctx, const weir_error *error)
{
    weir_pipeline_remove(weir_ctx_pipeline(ctx), "codec", NULL);
    weir_ctx_fire_error(ctx, error);
}

static const weir_handler_type codec_remover = { .name = "remover",
                                                 .on_error = codec_remover_on_error };

/* Bytes are missing behind what is refused: the channel is closed even when whoever hears of it
 * takes the codec out. */
static inline void codec_closes_although_removed(weir_embedded *embedded, weir_msg *msg, int code)
{
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_last(pipeline, "remover", &codec_remover, NULL), 0);
    assert_int_equal(weir_embedded_write_inbound(embedded, msg), code);
    assert_true(weir_embedded_take_error(embedded, NULL));
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    codec_end(embedded);
}

/* However the bytes come, the same comes of them: so many messages and errors. */
static inline void codec_verify_how(const weir_handler_type *type, const void *config,
                                    const void *input, size_t length, unsigned messages,
                                    unsigned errors, bool is_brief)
{
    codec self = { type, config };
    weir_verifier_config verified = {
        .init = codec_add,
        .arg = &self,
        .input = input,
        .length = length,
        .decoder = "codec",
        .random_cuts = 8,
        .is_brief = is_brief,
    };
    weir_verifier_report report;
    weir_error error;
    if (weir_verify(&verified, &report, &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(report.messages, messages);
    assert_int_equal(report.errors, errors);
}

static inline void codec_verify(const weir_handler_type *type, const void *config,
                                const void *input, size_t length, unsigned messages,
                                unsigned errors)
{
    codec_verify_how(type, config, input, length, messages, errors, false);
}

/* For long inputs, whose cost shows. */
static inline void codec_verify_briefly(const weir_handler_type *type, const void *config,
                                        const void *input, size_t length, unsigned messages,
                                        unsigned errors)
{
    codec_verify_how(type, config, input, length, messages, errors, true);
}

#endif
