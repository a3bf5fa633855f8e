/* SPDX-License-Identifier: MIT */
/* The logging handler: a line for each event, and nothing changed on the way. */
#include "harness.h"

#include <weir/embedded.h>
#include <weir/logging.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

static weir_hold hold;

static const weir_logging short_lines = { .level = WEIR_LOG_INFO, .origin = "wire" };
static const weir_logging hex_lines = { .level = WEIR_LOG_INFO, .is_hex = true };

static int add_logging(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "log", &weir_logging_handler,
                                  arg);
}

static weir_embedded *open_with(const weir_logging *config, bool is_unconnected)
{
    weir_embedded *embedded = NULL;
    weir_embedded_config how = { .init = add_logging, .arg = (void *)(uintptr_t)config };
    how.is_unconnected = is_unconnected;
    assert_int_equal(weir_embedded_new(&embedded, &how, NULL), 0);
    return embedded;
}

static void every_event_is_a_line(void **state)
{
    (void)state;
    static const char *const lines[] = { "] REGISTERED",
                                         "] BIND: 127.0.0.1:8007",
                                         "] ACTIVE",
                                         "] READ: 5 bytes",
                                         "] READ COMPLETE",
                                         "] EVENT: event",
                                         "] WRITE: 2 bytes",
                                         "] FLUSH",
                                         "] ERROR: pipeline: oh dear (EIO)",
                                         "] SHUTDOWN",
                                         "] CLOSE",
                                         "] INACTIVE",
                                         "] UNREGISTERED",
                                         "WRITABILITY CHANGED: not writable",
                                         "WRITABILITY CHANGED: writable" };
    weir_address address;
    assert_int_equal(weir_address_parse(&address, "127.0.0.1:8007", NULL), 0);
    harness_log_begin(WEIR_LOG_INFO);
    weir_embedded *embedded = open_with(&short_lines, true);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_channel_bind(channel, &address, NULL);
    weir_embedded_run(embedded);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "hello", 5), 0);
    weir_pipeline_fire_event(weir_embedded_pipeline(embedded), &weir_event_input_closed);
    assert_int_equal(weir_embedded_write_outbound(embedded, &weir_buf_from("hi", 2)->msg), 0);
    weir_channel_set_write_hold(channel, fresh_hold(&hold), true);
    weir_embedded_run(embedded);
    weir_channel_set_write_hold(channel, &hold, false);
    weir_embedded_run(embedded);
    weir_pipeline_fire_error(weir_embedded_pipeline(embedded), -EIO, "oh %s", "dear");
    weir_channel_shutdown(channel, NULL);
    weir_embedded_run(embedded);
    assert_true(weir_embedded_take_error(embedded, NULL));
    weir_embedded_close(embedded);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!harness_log_has(lines[i]))
            fail_msg("no line with '%s'", lines[i]);
    }
    char number[32];
    snprintf(number, sizeof number, "[%08llx, L:-, R:-]",
             (unsigned long long)weir_channel_id(channel));
    assert_true(harness_log_has(number));
    harness_log_end();
    weir_msg_release(weir_embedded_read_inbound(embedded));
    weir_msg_release(weir_embedded_read_outbound(embedded));
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

static void hex_shows_the_bytes(void **state)
{
    (void)state;
    char large[3000];
    memset(large, 'z', sizeof large);
    harness_log_begin(WEIR_LOG_INFO);
    weir_embedded *embedded = open_with(&hex_lines, false);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "hello", 5), 0);
    assert_true(harness_log_has("68 65 6c 6c 6f"));
    assert_true(harness_log_has("hello"));
    assert_false(harness_log_has("bytes more"));
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, large, sizeof large), 0);
    assert_true(harness_log_has("and 1976 bytes more"));
    harness_log_end();
    weir_embedded_free(embedded);
}

static void below_its_level_it_is_silent(void **state)
{
    (void)state;
    harness_log_begin(WEIR_LOG_INFO);
    weir_embedded *embedded = open_with(NULL, false); /* debug */
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "hello", 5), 0);
    weir_msg *msg = weir_embedded_read_inbound(embedded);
    assert_non_null(msg);
    assert_int_equal(weir_msg_size(msg), 5);
    weir_msg_release(msg);
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
    assert_int_equal(harness_log_end(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_event_is_a_line),
        weir_case(hex_shows_the_bytes),
        weir_case(below_its_level_it_is_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
