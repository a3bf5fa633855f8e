/* SPDX-License-Identifier: MIT */
/* The configs of all ready-made handlers: an add copies them with all that they point to, on
 * whichever thread it is made; and one that makes no sense is rejected by name and value. */
#include "harness.h"

#include <weir/embedded.h>
#include <weir/weir.h>
#ifdef WEIR_HAS_COMPRESSION
#include <weir/compression.h>
#endif

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Configs in a block that is overwritten and freed --------------------------------------------- */

#define BLOCK 512
#define GARBAGE 0xa5

/* Copies something into the block, behind what is there. */
typedef struct block {
    uint8_t *bytes;
    size_t used;
} block;

static void *put(block *to, const void *from, size_t length)
{
    uint8_t *at = to->bytes + to->used;
    to->used += (length + 15) & ~(size_t)15;
    assert_true(to->used <= BLOCK);
    memcpy(at, from, length);
    return at;
}

#define PUT(to, ...) put(to, &(__VA_ARGS__), sizeof(__VA_ARGS__))

static void *delimited(block *to)
{
    weir_delimiter ends[] = { { put(to, "//", 2), 2 }, { put(to, "END", 3), 3 } };
    const weir_delimiter *list = put(to, ends, sizeof ends);
    return PUT(to, (weir_delimited){ .max_length = 100, .ends = list, .end_count = 2 });
}

static void *line(block *to)
{
    return PUT(to, (weir_delimited){ .max_length = 100, .keeps_end = true });
}

static void *fixed_length(block *to)
{
    return PUT(to, (weir_fixed_length){ .length = 3 });
}

static void *json(block *to)
{
    return PUT(to, (weir_json){ .max_length = 100, .splits_arrays = true });
}

static void *length_field(block *to)
{
    return PUT(to, (weir_length_field){ .max_frame = 100, .width = 2, .strip = 2 });
}

static void *length_prepender(block *to)
{
    return PUT(to, (weir_length_prepender){ .width = 2, .counts_itself = true });
}

static void *varint(block *to)
{
    return PUT(to, (weir_varint){ .max_frame = 5, .oversize = WEIR_OVERSIZE_SKIP });
}

static void *base64(block *to)
{
    return PUT(to, (weir_base64){ .is_url_safe = true, .has_no_padding = true });
}

static void *utf8(block *to)
{
    return PUT(to, (weir_utf8_texts){ .is_stream = false });
}

static void *proxy_decoding(block *to)
{
    return PUT(to, (weir_proxy_decoding){ .is_optional = true, .header_timeout_ns = WEIR_MS(700) });
}

static void *proxy_header(block *to)
{
    static const uint8_t tlv[] = { WEIR_PROXY_TLV_AUTHORITY, 0, 4, 'w', 'e', 'i', 'r' };
    weir_proxy_header header = { .command = WEIR_PROXY_LOCAL };
    header.tlvs = put(to, tlv, sizeof tlv);
    header.tlv_length = sizeof tlv;
    return PUT(to, header);
}

static void *traffic(block *to)
{
    return PUT(to,
               (weir_traffic){ .each.write_bytes_per_second = 10, .each.write_burst_bytes = 1 });
}

static void *logging(block *to)
{
    const char *origin = put(to, "origin-of-config", 17);
    return PUT(to, (weir_logging){ .level = WEIR_LOG_INFO, .origin = origin, .is_hex = true });
}

static void *idle(block *to)
{
    return PUT(to, (weir_idle){ .reader_ns = WEIR_MS(300), .both_ns = WEIR_MS(500) });
}

static void *timeout(block *to)
{
    return PUT(to, (weir_timeout){ .timeout_ns = WEIR_MS(900) });
}

static void *flush_consolidation(block *to)
{
    return PUT(to, (weir_flush_consolidation){ .most_flushes = 3, .is_always = true });
}

static void on_typed(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_fire_read(ctx, &weir_buf_from(weir_typed_arg(ctx), 5)->msg);
    (void)msg;
}

static void *typed(block *to)
{
    static char arg[] = "typed";
    return PUT(to, (weir_typed){ &weir_buf_type, on_typed, arg });
}

/* A handler of a user's, with a config whose one field counts what it still holds. */
typedef struct own_config {
    char *text;
} own_config;

static int own_retain(void *arg)
{
    own_config *config = arg;
    config->text = weir_alloc(6);
    if (config->text == NULL)
        return -ENOMEM;
    memcpy(config->text, "owned", 6);
    return 0;
}

static void own_release(void *arg)
{
    weir_free(((own_config *)arg)->text);
}

static void own_on_read(weir_ctx *ctx, weir_msg *msg)
{
    const own_config *config = weir_ctx_arg(ctx);
    weir_msg_release(msg);
    weir_ctx_fire_read(ctx, &weir_buf_from(config->text, 5)->msg);
}

static const weir_handler_type own_type = {
    .name = "own",
    .arg_size = sizeof(own_config),
    .arg_retain = own_retain,
    .arg_release = own_release,
    .on_read = own_on_read,
};

static void *own(block *to)
{
    return PUT(to, (own_config){ .text = NULL });
}

/* Both halves have configs of their own, in the same block. */
static const weir_handler_type in_half = {
    .name = "in half",
    .arg_size = sizeof(own_config),
    .arg_retain = own_retain,
    .arg_release = own_release,
    .on_read = own_on_read,
};

static void *duplex(block *to)
{
    weir_duplex halves = { .in = &in_half, .out = &weir_length_prepender_handler };
    halves.in_arg = own(to);
    halves.out_arg = length_prepender(to);
    return PUT(to, halves);
}

#ifdef WEIR_HAS_COMPRESSION
static void *compression(block *to)
{
    return PUT(to, (weir_compression){ .format = WEIR_COMPRESSION_ZLIB, .level = 9 });
}

static void *decompression(block *to)
{
    return PUT(to, (weir_decompression){ .format = WEIR_COMPRESSION_DEFLATE, .chunk_bytes = 512 });
}
#endif

typedef struct row {
    const weir_handler_type *type;
    void *(*config)(block *to);
    const char *in;
    size_t in_length;
} row;

#define IN(text) (text), sizeof(text) - 1

static const row rows[] = {
    { &weir_delimiter_decoder, delimited, IN("one//twoENDthree//") },
    { &weir_line_decoder, line, IN("one\r\ntwo\nthree") },
    { &weir_fixed_length_decoder, fixed_length, IN("abcdef") },
    { &weir_json_decoder, json, IN("[{},1,\"x\"]") },
    { &weir_length_field_decoder, length_field, IN("\0\2ab\0\1c") },
    { &weir_length_prepender_handler, length_prepender, IN("") },
    { &weir_varint_decoder, varint, IN("\2ab\11ninebytes\1c") },
    { &weir_base64_encoder, base64, IN("") },
    { &weir_base64_decoder, base64, IN("_-8") },
    { &weir_utf8_handler, utf8, IN("\xe2\x82") },
    { &weir_proxy_decoder, proxy_decoding, IN("no header") },
    { &weir_proxy_decoder, proxy_decoding, IN("PROXY") },
    { &weir_proxy_sender, proxy_header, IN("") },
    { &weir_traffic_handler, traffic, IN("abc") },
    { &weir_logging_handler, logging, IN("abc") },
    { &weir_idle_handler, idle, IN("abc") },
    { &weir_read_timeout_handler, timeout, IN("abc") },
    { &weir_write_timeout_handler, timeout, IN("abc") },
    { &weir_flush_consolidation_handler, flush_consolidation, IN("abc") },
    { &weir_typed_handler, typed, IN("abc") },
    { &weir_duplex_handler, duplex, IN("abc") },
    { &own_type, own, IN("abc") },
#ifdef WEIR_HAS_COMPRESSION
    { &weir_compression_encoder, compression, IN("") },
    { &weir_compression_decoder, decompression, IN("\x4b\x4c\x4a\x06\x00") },
#endif
};

/* The same transcript, whatever becomes of the config ------------------------------------------ */

typedef enum place { FROM_INIT, BEFORE_REGISTRATION, FROM_ANOTHER_THREAD, PLACES } place;

typedef struct world {
    const row *row;
    bool is_overwritten; /* the config, as soon as the add has returned */
    weir_channel *channel;
    uint8_t *kept;
    int code; /* of the add on another thread */
    char text[16384];
    size_t length;
} world;

__attribute__((format(printf, 2, 3))) static void note(world *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(self->text + self->length, sizeof self->text - self->length, format,
                           args);
    va_end(args);
    self->length += (size_t)length;
    assert_true(self->length < sizeof self->text);
}

static void tail_on_event(weir_ctx *ctx, weir_msg *event)
{
    world *self = weir_ctx_arg(ctx);
    const weir_idle_event *is_idle = weir_idle_event_from(event);
    note(self, "event %s %d\n", event->type->name, is_idle != NULL ? (int)is_idle->kind : -1);
    weir_msg_release(event);
}

static void tail_on_error(weir_ctx *ctx, const weir_error *error)
{
    note(weir_ctx_arg(ctx), "error %d: %s\n", error->code, error->message);
}

static const weir_handler_type tail_type = {
    .name = "tail",
    .on_event = tail_on_event,
    .on_error = tail_on_error,
};

static int add_row(world *self)
{
    block memory = { malloc(BLOCK), 0 };
    assert_non_null(memory.bytes);
    void *config = self->row->config(&memory);
    int code = weir_pipeline_add_first(weir_channel_pipeline(self->channel), "h", self->row->type,
                                       config);
    if (self->is_overwritten) {
        memset(memory.bytes, GARBAGE, BLOCK);
        free(memory.bytes);
    } else {
        self->kept = memory.bytes;
    }
    return code;
}

static int init(weir_channel *channel, void *arg)
{
    world *self = arg;
    self->channel = channel;
    return add_row(self);
}

static void *add_on_thread(void *arg)
{
    world *self = arg;
    self->code = add_row(self);
    return NULL;
}

static void add_from_thread(weir_embedded *embedded, world *self)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, add_on_thread, self), 0);
    pthread_join(thread, NULL);
    assert_int_equal(self->code, 0);
    weir_embedded_run(embedded);
}

static weir_embedded *open_with(world *self, place how)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = how == FROM_INIT ? init : NULL, .arg = self };
    config.is_unregistered = how == BEFORE_REGISTRATION;
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    self->channel = weir_embedded_channel(embedded);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_last(pipeline, "tail", &tail_type, self), 0);
    if (how == FROM_ANOTHER_THREAD) {
        add_from_thread(embedded, self);
    } else if (how == BEFORE_REGISTRATION) {
        assert_int_equal(add_row(self), 0);
        weir_channel_register(self->channel, weir_embedded_executor(embedded), NULL);
        weir_embedded_run(embedded);
    }
    return embedded;
}

static void note_msg(world *self, const char *what, weir_msg *msg)
{
    weir_buf *buf = weir_buf_from_msg(msg);
    note(self, "%s %s:", what, msg->type->name);
    for (uint8_t byte; buf != NULL && weir_buf_read_u8(buf, &byte) == 0;)
        note(self, " %02x", byte);
    note(self, "\n");
    weir_msg_release(msg);
}

static void note_all(weir_embedded *embedded, world *self)
{
    for (weir_msg *msg; (msg = weir_embedded_read_inbound(embedded)) != NULL;)
        note_msg(self, "read", msg);
    for (weir_msg *msg; (msg = weir_embedded_read_outbound(embedded)) != NULL;)
        note_msg(self, "sent", msg);
}

/* Bytes through it in both directions, and time. */
static void drive(weir_embedded *embedded, world *self)
{
    for (int i = 0; i < 3; i++) {
        if (self->row->in_length > 0)
            weir_embedded_write_inbound_bytes(embedded, self->row->in, self->row->in_length);
        if (i == 0)
            weir_embedded_write_outbound(embedded, &weir_buf_from("\xff\xef hello", 8)->msg);
        note_all(embedded, self);
        for (int step = 0; step < 10; step++) {
            weir_embedded_advance(embedded, WEIR_MS(100));
            note_all(embedded, self);
            note(self, "at %d.%d: %s\n", i, step,
                 weir_channel_is_open(self->channel) ? "open" : "closed");
        }
    }
}

static void run(world *self, place how)
{
    bool is_logged = self->row->type == &weir_logging_handler;
    if (is_logged)
        harness_log_begin(WEIR_LOG_INFO);
    weir_embedded *embedded = open_with(self, how);
    drive(embedded, self);
    weir_embedded_free(embedded);
    if (is_logged)
        assert_true(harness_log_has("origin-of-config:") && harness_log_has("61 62 63"));
    if (is_logged)
        harness_log_end();
    free(self->kept);
}

static void an_add_copies_the_config(void **state)
{
    (void)state;
    for (place how = FROM_INIT; how < PLACES; how++) {
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            world *kept = calloc(1, sizeof *kept), *gone = calloc(1, sizeof *gone);
            kept->row = gone->row = &rows[i];
            gone->is_overwritten = true;
            run(kept, how);
            run(gone, how);
            assert_string_equal(gone->text, kept->text);
            free(kept);
            free(gone);
        }
    }
}

/* Without memory for a part of the copy nothing is added, and nothing is left. */
static void an_add_without_memory_leaves_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_embedded *embedded;
        assert_int_equal(weir_embedded_new(&embedded, NULL, NULL), 0);
        world *self = calloc(1, sizeof *self);
        self->row = &rows[i];
        self->is_overwritten = true;
        self->channel = weir_embedded_channel(embedded);
        int code = -ENOMEM;
        for (unsigned nth = 1; code == -ENOMEM; nth++) {
            harness_fail_nth("alloc", nth, -ENOMEM);
            code = add_row(self);
            harness_fail_end();
            assert_true(code == 0 || code == -ENOMEM);
            assert_true(nth < 10);
            if (code < 0) {
                weir_embedded_run(embedded);
                assert_int_equal(weir_pipeline_count(weir_embedded_pipeline(embedded)), 0);
            }
        }
        weir_embedded_free(embedded);
        free(self);
    }
}

/* Objects that channels share ------------------------------------------------------------------ */

typedef struct shared {
    weir_channel *channel;
    int which;
    int code;
} shared;

static int add_filter(weir_channel *channel)
{
    weir_ip_filter *filter = NULL;
    int code = weir_ip_filter_new(&filter, &(weir_ip_filter_config){ .otherwise = WEIR_IP_ACCEPT },
                                  NULL);
    if (code == 0)
        code = weir_pipeline_add_first(weir_channel_pipeline(channel), "h", &weir_ip_filter_handler,
                                       filter);
    weir_ip_filter_release(filter);
    return code;
}

static int add_limit(weir_channel *channel)
{
    weir_connection_limit *limit = NULL;
    int code = weir_connection_limit_new(&limit, NULL, NULL);
    if (code == 0)
        code = weir_pipeline_add_first(weir_channel_pipeline(channel), "h",
                                       &weir_connection_limit_handler, limit);
    weir_connection_limit_release(limit);
    return code;
}

static int add_guard(weir_channel *channel)
{
    weir_guard *guard = NULL;
    int code = weir_guard_new(&guard, NULL, NULL);
    if (code == 0)
        code = weir_guard_add(guard, channel);
    weir_guard_release(guard);
    return code;
}

/* The caller's reference is gone when the add has returned. */
static void *add_shared(void *arg)
{
    static int (*const adds[])(weir_channel * channel) = { add_filter, add_limit, add_guard };
    shared *self = arg;
    self->code = adds[self->which](self->channel);
    return NULL;
}

static void an_add_retains_what_channels_share(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        weir_embedded *embedded;
        weir_embedded_config config = { .is_unregistered = i >= 3 };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        shared self = { weir_embedded_channel(embedded), i % 3, -1 };
        if (i >= 3) {
            add_shared(&self);
            weir_channel_register(self.channel, weir_embedded_executor(embedded), NULL);
        } else {
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, add_shared, &self), 0);
            pthread_join(thread, NULL);
        }
        assert_int_equal(self.code, 0);
        weir_embedded_run(embedded);
        assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "abc", 3), 0);
        assert_true(weir_channel_is_open(self.channel));
        assert_int_equal(weir_embedded_inbound_count(embedded), 1);
        weir_embedded_free(embedded);
    }
}

/* What makes no sense -------------------------------------------------------------------------- */

typedef struct wrong {
    const weir_handler_type *type;
    const void *config;
    const char *text; /* in the error's message */
} wrong;

/* Not ready-made, but its base checks what it is given. */
static void aggregating_added(weir_ctx *ctx)
{
    static const weir_aggregator_type type = { .part = NULL };
    weir_aggregator_init(ctx, &type, weir_ctx_arg(ctx));
}

static const weir_handler_type aggregating = {
    .name = "aggregating",
    .state_size = sizeof(weir_aggregator),
    .arg_size = sizeof(weir_aggregator_limits),
    .added = aggregating_added,
};

static const weir_delimiter no_end[] = { { "", 0 } }, null_end[] = { { NULL, 1 } };

static const wrong wrongs[] = {
    { &weir_delimiter_decoder, NULL, "weir_delimited is NULL" },
    { &weir_delimiter_decoder, &(weir_delimited){ .ends = no_end, .end_count = 1 },
      "max_length is 0, but can be from 1 to " },
    { &weir_delimiter_decoder, &(weir_delimited){ .max_length = 1 }, "ends is NULL" },
    { &weir_delimiter_decoder, &(weir_delimited){ .max_length = 1, .ends = no_end },
      "end_count is 0, but can be from 1 to " },
    { &weir_delimiter_decoder,
      &(weir_delimited){ .max_length = 1, .ends = no_end, .end_count = 99999 },
      "end_count is 99999, but can be from 1 to " },
    { &weir_delimiter_decoder, &(weir_delimited){ .max_length = 1, .ends = no_end, .end_count = 1 },
      "length of an end is 0, but can be from 1 to " },
    { &weir_delimiter_decoder,
      &(weir_delimited){ .max_length = 1, .ends = null_end, .end_count = 1 },
      "bytes of an end is NULL" },
    { &weir_line_decoder, NULL, "weir_delimited is NULL" },
    { &weir_line_decoder, &(weir_delimited){ .max_length = 1, .oversize = (weir_oversize)7 },
      "oversize is 7, but can be from 0 to 2" },
    { &weir_fixed_length_decoder, NULL, "weir_fixed_length is NULL" },
    { &weir_fixed_length_decoder, &(weir_fixed_length){ .length = 0 }, "length is 0, but can be" },
    { &weir_json_decoder, NULL, "weir_json is NULL" },
    { &weir_json_decoder, &(weir_json){ .max_length = SIZE_MAX },
      "max_length is 18446744073709551615, but can be from 1 to " },
    { &weir_length_field_decoder, NULL, "weir_length_field is NULL" },
    { &weir_length_field_decoder, &(weir_length_field){ .max_frame = 9, .width = 5 },
      "width is 5, but can be 1, 2, 3, 4 or 8" },
    { &weir_length_field_decoder, &(weir_length_field){ .max_frame = 3 },
      "max_frame is 3, but can be from 4 to " },
    { &weir_length_field_decoder, &(weir_length_field){ .max_frame = 9, .strip = 10 },
      "strip is 10, but can be from 0 to 9" },
    { &weir_length_field_decoder, &(weir_length_field){ .max_frame = 9, .offset = 6 },
      "offset is 6, but can be from 0 to 5" },
    { &weir_length_field_decoder,
      &(weir_length_field){ .max_frame = 9, .adjustment = (int64_t)1 << 40 },
      "adjustment is 1099511627776, but can be" },
    { &weir_length_prepender_handler, NULL, "weir_length_prepender is NULL" },
    { &weir_length_prepender_handler, &(weir_length_prepender){ .width = 7 }, "width is 7" },
    { &weir_varint_decoder, NULL, "weir_varint is NULL" },
    { &weir_varint_decoder, &(weir_varint){ .max_frame = 0 }, "max_frame is 0, but can be" },
    { &weir_proxy_decoder, &(weir_proxy_decoding){ .refuses_v1 = true, .refuses_v2 = true },
      "refuses_v1 and refuses_v2 are both true" },
    { &weir_proxy_decoder, &(weir_proxy_decoding){ .max_bytes = 15 }, "max_bytes is 15, but can" },
    { &weir_proxy_decoder, &(weir_proxy_decoding){ .header_timeout_ns = -2 },
      "header_timeout_ns is -2, but can be from -1 to " },
    { &weir_proxy_sender, NULL, "weir_proxy_header is NULL" },
    { &weir_traffic_handler, NULL, "weir_traffic is NULL" },
    { &weir_traffic_handler, &(weir_traffic){ .each.max_wait_ns = -3 },
      "max_wait_ns cannot be -3" },
    { &weir_logging_handler, &(weir_logging){ .level = (weir_log_level)9 },
      "level is 9, but can be from 0 to 5" },
    { &weir_idle_handler, NULL, "weir_idle is NULL" },
    { &weir_idle_handler, &(weir_idle){ .reader_ns = 0 },
      "no time is set: reader_ns, writer_ns or both_ns" },
    { &weir_idle_handler, &(weir_idle){ .reader_ns = WEIR_MS(1), .writer_ns = -5 },
      "writer_ns is -5, but can be from -1 to " },
    { &weir_read_timeout_handler, NULL, "weir_timeout is NULL" },
    { &weir_read_timeout_handler, &(weir_timeout){ .timeout_ns = 0 },
      "timeout_ns is 0, but can be from 1 to " },
    { &weir_write_timeout_handler, &(weir_timeout){ .timeout_ns = -1 },
      "timeout_ns is -1, but can be from 1 to " },
    { &weir_flush_consolidation_handler, &(weir_flush_consolidation){ .most_flushes = -4 },
      "most_flushes is -4, but can be from 0 to " },
    { &weir_typed_handler, NULL, "weir_typed is NULL" },
    { &weir_typed_handler, &(weir_typed){ .on_message = on_typed }, "type is NULL" },
    { &weir_typed_handler, &(weir_typed){ .type = &weir_buf_type }, "on_message is NULL" },
    { &weir_duplex_handler, NULL, "weir_duplex is NULL" },
    { &weir_duplex_handler, &(weir_duplex){ .in = &own_type }, "out is NULL" },
    { &weir_duplex_handler, &(weir_duplex){ .in = &weir_varint_prepender, .out = &in_half },
      "in is 'varint prepender', which has callbacks for the other direction" },
    { &weir_ip_filter_handler, NULL, "weir_ip_filter is NULL" },
    { &weir_connection_limit_handler, NULL, "weir_connection_limit is NULL" },
    { &weir_pcap_handler, NULL, "weir_pcap is NULL" },
    { &aggregating, NULL, "weir_aggregator_limits is NULL" },
    { &aggregating, &(weir_aggregator_limits){ .max_bytes = 0 }, "max_bytes is 0, but can be" },
    { &aggregating,
      &(weir_aggregator_limits){ .max_bytes = 1, .oversize = (weir_aggregator_oversize)3 },
      "oversize is 3, but can be from 0 to 2" },
#ifdef WEIR_HAS_COMPRESSION
    { &weir_compression_encoder,
      &(weir_compression){ .format = WEIR_COMPRESSION_GZIP, .level = 10 },
      "level is 10, but for gzip can be from 1 to 9" },
    { &weir_compression_decoder,
      &(weir_decompression){ .format = WEIR_COMPRESSION_GZIP, .chunk_bytes = 1 },
      "chunk_bytes is 1, but can be from 512 to " },
    { &weir_compression_decoder,
      &(weir_decompression){ .format = WEIR_COMPRESSION_GZIP, .max_ratio = -2 },
      "max_ratio is -2" },
#endif
};

static int add_wrong(weir_channel *channel, void *arg)
{
    const wrong *self = arg;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "h", self->type,
                                  (void *)self->config);
}

static void a_config_that_makes_no_sense_is_rejected_by_field_and_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        weir_embedded *embedded;
        weir_error error;
        weir_embedded_config config = { .init = add_wrong, .arg = (void *)&wrongs[i] };
        assert_int_equal(weir_embedded_new(&embedded, &config, &error), -EINVAL);
        assert_string_equal(error.origin, "h");
        if (strstr(error.message, wrongs[i].text) == NULL)
            fail_msg("'%s' is not in '%s'", wrongs[i].text, error.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(an_add_copies_the_config),
        weir_case(an_add_without_memory_leaves_nothing),
        weir_case(an_add_retains_what_channels_share),
        weir_case(a_config_that_makes_no_sense_is_rejected_by_field_and_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
