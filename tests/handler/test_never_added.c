/* SPDX-License-Identifier: MIT */
/* `removed` runs for every handler whose add returned 0, also if its channel never got to a loop:
 * each ready-made handler must cope with a state that is still zero and a config that was not read.
 */
#include "harness.h"

#include <weir/embedded.h>
#include <weir/weir.h>
#ifdef WEIR_HAS_TLS
#include <weir/tls.h>
#include <weir/tls_select.h>
#endif
#ifdef WEIR_HAS_COMPRESSION
#include <weir/compression.h>
#endif

static const weir_handler_type *const types[] = {
    &weir_base64_encoder,
    &weir_base64_decoder,
    &weir_chunked_handler,
    &weir_connection_limit_handler,
    &weir_delimiter_decoder,
    &weir_line_decoder,
    &weir_duplex_handler,
    &weir_file_bytes_handler,
    &weir_fixed_length_decoder,
    &weir_flow_control_handler,
    &weir_flush_consolidation_handler,
    &weir_idle_handler,
    &weir_ip_filter_handler,
    &weir_json_decoder,
    &weir_length_field_decoder,
    &weir_length_prepender_handler,
    &weir_logging_handler,
    &weir_pcap_handler,
    &weir_proxy_decoder,
    &weir_proxy_sender,
    &weir_read_timeout_handler,
    &weir_write_timeout_handler,
    &weir_traffic_handler,
    &weir_typed_handler,
    &weir_utf8_handler,
    &weir_varint_decoder,
    &weir_varint_prepender,
#ifdef WEIR_HAS_TLS
    &weir_tls_handler,
    &weir_tls_sni_handler,
    &weir_tls_protocol_handler,
    &weir_tls_optional_handler,
#endif
#ifdef WEIR_HAS_COMPRESSION
    &weir_compression_decoder,
    &weir_compression_encoder,
#endif
};

static weir_embedded *open_unregistered(const weir_handler_type *type, void *arg)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .is_unregistered = true };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_last(pipeline, "h", type, arg), 0);
    return embedded;
}

static char zeroes[4096]; /* stands for a config that was copied, and then not read */

/* An object that channels share is retained, so none stands for it. */
static void *any_arg(const weir_handler_type *type)
{
    return type->arg_retain != NULL && type->arg_size == 0 ? NULL : zeroes;
}

static void closed_before_it_was_registered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        weir_embedded *embedded = open_unregistered(types[i], any_arg(types[i]));
        weir_channel *channel = weir_embedded_channel(embedded);
        weir_channel_close(channel, NULL);
        assert_true(weir_future_is_done(weir_channel_closed(channel)));
        weir_embedded_free(embedded);
    }
}

static void removed_before_it_was_registered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        weir_embedded *embedded = open_unregistered(types[i], NULL);
        weir_channel *channel = weir_embedded_channel(embedded);
        assert_int_equal(weir_pipeline_remove(weir_embedded_pipeline(embedded), "h", NULL), 0);
        weir_channel_register(channel, weir_embedded_executor(embedded), NULL);
        weir_embedded_run(embedded);
        assert_int_equal(weir_embedded_check(embedded), 0);
        assert_true(weir_channel_is_active(channel));
        weir_embedded_free(embedded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(closed_before_it_was_registered),
        weir_case(removed_before_it_was_registered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
