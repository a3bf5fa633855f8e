/* SPDX-License-Identifier: MIT */
/* The PROXY protocol: a byte says which headers are taken, the rest is the stream. */
#include "decoder.h"

#include <weir/fixed_length.h>
#include <weir/proxy_protocol.h>

/* What a header says, as a message. */
static void teller_on_event(weir_ctx *ctx, weir_msg *event)
{
    const weir_proxy_event *proxy = weir_proxy_event_from(event);
    weir_buf *told = proxy != NULL ? weir_buf_new(256) : NULL;
    if (told != NULL) {
        char source[WEIR_ADDRESS_TEXT_MAX], destination[WEIR_ADDRESS_TEXT_MAX];
        weir_proxy_tlv tlv = { 0 };
        weir_address_text(&proxy->header.source, source, sizeof source);
        weir_address_text(&proxy->header.destination, destination, sizeof destination);
        weir_buf_printf(told, "%d %d %d %s %s %d", proxy->header.version, proxy->header.command,
                        proxy->header.transport, source, destination, proxy->header.has_checksum);
        while (weir_proxy_next_tlv(&proxy->header, &tlv)) {
            weir_buf_write_u8(told, tlv.depth);
            weir_proxy_write_tlv(told, tlv.type, tlv.value, tlv.length);
        }
        /* What was understood can be written; in version 1 only what that can say. */
        weir_buf *again = weir_buf_new(256);
        if (weir_proxy_write_header(again, &proxy->header) < 0)
            abort();
        weir_buf_release(again);
        weir_ctx_fire_read(ctx, &told->msg);
    }
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type teller = { .name = "teller", .on_event = teller_on_event };

static int add_all(weir_channel *channel, void *arg)
{
    static const weir_fixed_length one = { 1 };
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "decoder", &weir_proxy_decoder, arg);
    if (code == 0)
        code = weir_pipeline_add_last(pipeline, "bytes", &weir_fixed_length_decoder, (void *)&one);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "teller", &teller, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return -1;
    weir_proxy_decoding config = {
        .is_optional = data[0] & 1,
        .refuses_v1 = (data[0] & 6) == 2,
        .refuses_v2 = (data[0] & 6) == 4,
        .ignores_checksum = data[0] & 8,
        .max_bytes = data[0] & 16 ? 100 : 0,
    };
    fuzz_verify(add_all, &config, data + 1, size - 1);
    return 0;
}
