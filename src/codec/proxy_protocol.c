/* SPDX-License-Identifier: MIT */
/* The PROXY protocol: the decoder. */
#include "codec/proxy_protocol.h"

#include "base/alloc.h"
#include "channel/arg.h"

#include <weir/channel.h>
#include <weir/decoder.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAX_BYTES 4096
#define DEFAULT_TIMEOUT_NS WEIR_SECONDS(5)

/* The event ------------------------------------------------------------------------------------ */

static void event_destroy(weir_msg *msg)
{
    weir__free(msg);
}

const weir_msg_type weir_proxy_event_type = { .name = "proxy header", .destroy = event_destroy };

/* With the TLVs behind it, all but the checksum. */
static weir_proxy_event *make_event(const weir_proxy_reading *reading)
{
    const weir_proxy_header *header = &reading->header;
    weir_proxy_event *event = weir__alloc(sizeof *event + header->tlv_length);
    if (event == NULL)
        return NULL;
    weir_msg_init(&event->msg, &weir_proxy_event_type);
    event->header = *header;
    size_t before = header->has_checksum ? reading->checksum_at : header->tlv_length;
    size_t after = before + (header->has_checksum ? WEIR__PROXY_CHECKSUM : 0);
    uint8_t *tlvs = (uint8_t *)(event + 1);
    if (header->tlv_length > 0) {
        memcpy(tlvs, header->tlvs, before);
        memcpy(tlvs + before, header->tlvs + after, header->tlv_length - after);
    }
    event->header.tlvs = tlvs;
    event->header.tlv_length = before + header->tlv_length - after;
    return event;
}

/* Decoding ------------------------------------------------------------------------------------- */

typedef struct proxy_decoder {
    weir_decoder decoder;
    weir_proxy_event *event; /* what to tell, when it is_done; NULL: there was no header */
    size_t looked;      /* bytes of the signature that fit, then of the line that has not ended */
    size_t length;      /* of a header of version 2; 0: not known yet */
    bool is_recognised; /* the signature was there */
    bool is_done;
    bool is_leaving;
    bool holds_active; /* on_active came, and has not gone on */
    weir_ctx_timer timeout;
} proxy_decoder;

static const weir_proxy_decoding strict;

static const weir_proxy_decoding *config_of(const weir_ctx *ctx)
{
    const weir_proxy_decoding *config = weir_ctx_arg(ctx);
    return config != NULL ? config : &strict;
}

static size_t max_bytes(const weir_proxy_decoding *config)
{
    size_t most = config->max_bytes > 0 ? config->max_bytes : MAX_BYTES;
    return most < WEIR__PROXY_V2_MAX ? most : WEIR__PROXY_V2_MAX;
}

static int64_t timeout_ns(const weir_proxy_decoding *config)
{
    return config->header_timeout_ns != 0 ? config->header_timeout_ns : DEFAULT_TIMEOUT_NS;
}

/* From here on bytes only wait until the decoder has left. They are few, or in memory already. */
static void be_done(proxy_decoder *self)
{
    self->is_done = true;
    weir_decoder_set_max_message(&self->decoder, WEIR_BUF_MAX);
}

static weir_decoded refuse(weir_ctx *ctx, weir_buf *in, const weir_proxy_reading *reading)
{
    weir_buf_skip(in, reading->at);
    return weir_decoder_refuse(ctx, reading->error.code, "%s", reading->error.message);
}

static weir_decoded take_header(weir_ctx *ctx, proxy_decoder *self, weir_buf *in,
                                const weir_proxy_reading *reading)
{
    self->event = make_event(reading);
    if (self->event == NULL)
        return weir_decoder_refuse(ctx, -ENOMEM, "no memory for a PROXY header");
    weir_buf_skip(in, reading->length);
    be_done(self);
    return WEIR_DECODED_SKIPPED;
}

static const uint8_t *signature_of(const weir_proxy_decoding *config, uint8_t first, size_t *length)
{
    bool is_v1 = first == weir__proxy_v1_signature[0];
    *length = is_v1 ? WEIR__PROXY_V1_SIGNATURE : WEIR__PROXY_V2_SIGNATURE;
    if (is_v1 ? config->refuses_v1 : config->refuses_v2)
        return NULL;
    return is_v1 ? weir__proxy_v1_signature : weir__proxy_v2_signature;
}

/* WEIR_DECODED_SKIPPED: there is one; but no byte was taken for it. */
static weir_decoded recognise(weir_ctx *ctx, proxy_decoder *self, weir_buf *in,
                              const uint8_t *bytes, size_t there)
{
    const weir_proxy_decoding *config = config_of(ctx);
    size_t length;
    const uint8_t *signature = signature_of(config, bytes[0], &length);
    size_t at = self->looked;
    while (signature != NULL && at < length && at < there && bytes[at] == signature[at])
        at++;
    weir_decoder_looked(&self->decoder, at - self->looked);
    self->looked = at;
    if (signature != NULL && at == length) {
        self->is_recognised = true;
        return WEIR_DECODED_SKIPPED;
    }
    if (signature != NULL && at == there)
        return WEIR_DECODED_NOTHING;
    if (!config->is_optional) {
        weir_buf_skip(in, at);
        return weir_decoder_refuse(ctx, -EBADMSG, "no PROXY header begins with 0x%02x here",
                                   bytes[at]);
    }
    be_done(self);
    return WEIR_DECODED_NOTHING;
}

static weir_decoded decode_v1(weir_ctx *ctx, proxy_decoder *self, weir_buf *in,
                              const uint8_t *bytes, size_t there)
{
    weir_proxy_reading reading = { .bytes = bytes };
    size_t most = WEIR__PROXY_V1_MAX - 1, before = self->looked; /* then there is no \n any more */
    size_t until = there < most ? there : most;
    while (self->looked < until && bytes[self->looked] != '\r' && bytes[self->looked] != '\n')
        self->looked++;
    weir_decoder_looked(&self->decoder, self->looked - before);
    size_t end = self->looked;
    bool has_return = end < until && bytes[end] == '\r';
    if (has_return ? end + 1 == there : end == until && end < most)
        return WEIR_DECODED_NOTHING;
    if (!has_return || bytes[end + 1] != '\n') {
        weir_buf_skip(in, end);
        return weir_decoder_refuse(ctx, -EBADMSG,
                                   "no line end (\\r\\n) in the %d bytes of a PROXY "
                                   "header",
                                   WEIR__PROXY_V1_MAX);
    }
    reading.length = end + 2;
    return weir__proxy_read_v1(&reading) < 0 ? refuse(ctx, in, &reading)
                                             : take_header(ctx, self, in, &reading);
}

static weir_decoded decode_v2(weir_ctx *ctx, proxy_decoder *self, weir_buf *in,
                              const uint8_t *bytes, size_t there)
{
    const weir_proxy_decoding *config = config_of(ctx);
    weir_proxy_reading reading = { .bytes = bytes, .length = there };
    if (self->length == 0 && there >= WEIR__PROXY_V2_BEGIN) {
        int length = weir__proxy_read_v2_begin(&reading, max_bytes(config));
        if (length < 0)
            return refuse(ctx, in, &reading);
        self->length = (size_t)length;
    }
    if (self->length == 0 || there < self->length)
        return WEIR_DECODED_NOTHING;
    reading.length = self->length;
    weir_decoder_looked(&self->decoder, self->length);
    return weir__proxy_read_v2(&reading, config->ignores_checksum) < 0
               ? refuse(ctx, in, &reading)
               : take_header(ctx, self, in, &reading);
}

static weir_decoded decode(weir_ctx *ctx, weir_buf *in, weir_msg **out)
{
    proxy_decoder *self = weir_ctx_state(ctx);
    size_t there = weir_buf_readable(in);
    const uint8_t *bytes = weir_buf_peek(in, weir_buf_reader(in), there);
    (void)out;
    if (self->is_done || there == 0)
        return WEIR_DECODED_NOTHING;
    if (!self->is_recognised) {
        weir_decoded found = recognise(ctx, self, in, bytes, there);
        if (found != WEIR_DECODED_SKIPPED)
            return found;
    }
    return bytes[0] == weir__proxy_v1_signature[0] ? decode_v1(ctx, self, in, bytes, there)
                                                   : decode_v2(ctx, self, in, bytes, there);
}

/* The decoder ---------------------------------------------------------------------------------- */

/* Who asked for a read, and got nothing of it, does not know that it was used up. */
static void read_on(weir_ctx *ctx)
{
    int64_t reads_by_itself = 1;
    weir_channel_get_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, &reads_by_itself);
    if (!reads_by_itself)
        weir_ctx_read(ctx);
}

static void give_up(weir_ctx *ctx, proxy_decoder *self, const char *what)
{
    self->decoder.is_over = true;
    weir_ctx_fail(ctx, -ENOMEM, "%s", what);
    weir_ctx_close(ctx, NULL);
}

static void on_timeout(weir_ctx_timer *timer, weir_ctx *ctx)
{
    proxy_decoder *self = WEIR_CONTAINER(timer, proxy_decoder, timeout);
    if (self->is_done || self->decoder.is_over)
        return;
    self->decoder.is_over = true;
    char time[WEIR_DURATION_TEXT_MAX];
    weir_ctx_fail(ctx, -ETIMEDOUT, "no complete PROXY header within %s, only %zu bytes",
                  weir_duration_text(timeout_ns(config_of(ctx)), time, sizeof time),
                  weir_buf_readable(self->decoder.kept));
    weir_ctx_close(ctx, NULL);
}

/* Without memory for the timer a peer could keep the connection for ever. */
static void start_timeout(weir_ctx *ctx, proxy_decoder *self)
{
    int64_t ns = timeout_ns(config_of(ctx));
    if (ns != WEIR_OFF && weir_ctx_schedule(ctx, &self->timeout, ns) < 0)
        give_up(ctx, self, "no memory for the timeout of a PROXY header");
}

/* From now on the handlers behind it know who is at the other side. */
static void tell_active(weir_ctx *ctx, proxy_decoder *self)
{
    bool holds_active = self->holds_active;
    self->holds_active = false;
    if (holds_active)
        weir_ctx_fire_active(ctx);
}

/* What comes while the handlers are told waits here, and goes on when this one has left. */
static void leave(weir_ctx *ctx, proxy_decoder *self)
{
    weir_proxy_event *event = self->event;
    const weir_address *source = event != NULL ? &event->header.source : NULL;
    self->is_leaving = true;
    if (weir_address_kind_of(source) != WEIR_ADDRESS_NONE &&
        weir_channel_set_remote_address(weir_ctx_channel(ctx), source) < 0) {
        give_up(ctx, self, "no memory for the address of the client");
        return;
    }
    self->event = NULL;
    tell_active(ctx, self);
    if (event != NULL)
        weir_ctx_fire_event(ctx, &event->msg);
    if (weir_ctx_is_removed(ctx))
        return;
    if (weir_buf_readable(self->decoder.kept) == 0)
        read_on(ctx);
    if (weir_ctx_remove(ctx) == -ENOMEM)
        give_up(ctx, self, "no memory to leave behind a PROXY header");
}

static void decoder_on_read(weir_ctx *ctx, weir_msg *msg)
{
    proxy_decoder *self = weir_ctx_state(ctx);
    weir_decoder_on_read(ctx, msg);
    if (self->is_done && !self->is_leaving && !self->decoder.is_over)
        leave(ctx, self);
}

/* Nobody behind it has got anything. */
static void decoder_on_read_complete(weir_ctx *ctx)
{
    const proxy_decoder *self = weir_ctx_state(ctx);
    if (!self->decoder.is_over)
        read_on(ctx);
}

static void decoder_on_active(weir_ctx *ctx)
{
    proxy_decoder *self = weir_ctx_state(ctx);
    self->holds_active = true;
    start_timeout(ctx, self);
}

/* No more comes. What might have become a header, but was all there is, passes where none has to
 * be; else there is nobody for the handlers behind it. */
static void end(weir_ctx *ctx, proxy_decoder *self)
{
    weir_buf *rest = self->decoder.kept;
    size_t left = weir_buf_readable(rest);
    if (config_of(ctx)->is_optional && !self->is_recognised) {
        self->decoder.kept = NULL;
        be_done(self);
        self->is_leaving = true;
        tell_active(ctx, self);
        if (rest != NULL) {
            weir_ctx_fire_read(ctx, &rest->msg);
            weir_ctx_fire_read_complete(ctx);
        }
        return;
    }
    self->decoder.is_over = true;
    if (left > 0)
        weir_ctx_fail(ctx, WEIR_EOF,
                      "the stream ends inside a PROXY header (at byte %zu of the stream)", left);
    weir_ctx_close(ctx, NULL);
}

static void end_once(weir_ctx *ctx, proxy_decoder *self)
{
    if (!self->is_leaving && !self->decoder.is_over)
        end(ctx, self);
}

static void decoder_on_event(weir_ctx *ctx, weir_msg *event)
{
    proxy_decoder *self = weir_ctx_state(ctx);
    if (event == &weir_event_input_closed)
        end_once(ctx, self);
    if (event == &weir_event_input_closed && self->decoder.is_over)
        weir_msg_release(event);
    else
        weir_ctx_fire_event(ctx, event);
}

static void decoder_on_inactive(weir_ctx *ctx)
{
    proxy_decoder *self = weir_ctx_state(ctx);
    if (weir_buf_readable(self->decoder.kept) > 0)
        end_once(ctx, self);
    if (!self->holds_active)
        weir_ctx_fire_inactive(ctx);
}

static void decoder_removed(weir_ctx *ctx)
{
    proxy_decoder *self = weir_ctx_state(ctx);
    if (self->event != NULL)
        weir_msg_release(&self->event->msg);
    self->event = NULL;
    if (weir_channel_is_open(weir_ctx_channel(ctx)))
        tell_active(ctx, self);
    weir_decoder_removed(ctx);
}

static void decoder_added(weir_ctx *ctx)
{
    static const weir_decoder_type type = { .decode = decode };
    proxy_decoder *self = weir_ctx_state(ctx);
    const weir_proxy_decoding *config = config_of(ctx);
    weir_decoder_init(&self->decoder, &type);
    size_t most = max_bytes(config);
    weir_decoder_set_max_message(&self->decoder,
                                 most > WEIR__PROXY_V1_MAX ? most : WEIR__PROXY_V1_MAX);
    self->timeout.fire = on_timeout;
    if (config->refuses_v1 && config->refuses_v2)
        weir_ctx_fail(ctx, -EINVAL, "refuses_v1 and refuses_v2 are both true");
    else if (weir__arg_check_size(ctx, "max_bytes", most, WEIR__PROXY_V2_BEGIN, SIZE_MAX) &&
             weir__arg_check(ctx, "header_timeout_ns", config->header_timeout_ns, WEIR_OFF,
                             INT64_MAX) &&
             weir_channel_is_active(weir_ctx_channel(ctx)))
        start_timeout(ctx, self);
}

const weir_handler_type weir_proxy_decoder = {
    .name = "proxy decoder",
    .state_size = sizeof(proxy_decoder),
    .arg_size = sizeof(weir_proxy_decoding),
    .added = decoder_added,
    .removed = decoder_removed,
    .on_active = decoder_on_active,
    .held_reads = weir_decoder_held,
    .on_read = decoder_on_read,
    .on_read_complete = decoder_on_read_complete,
    .on_event = decoder_on_event,
    .on_inactive = decoder_on_inactive,
    .takes_reads = &weir_buf_type,
    .gives_reads = &weir_buf_type,
};
