/* SPDX-License-Identifier: MIT */
/* The echo handler of the design, as printed there, in an embedded channel. */
#include "harness.h"

#include <weir/embedded.h>
#include <weir/weir.h>

#include <stdio.h>

static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL); /* the message goes with the call */
}

static void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static void echo_on_error(weir_ctx *ctx, const weir_error *error)
{
    fprintf(stderr, "echo: %s\n", error->message);
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type echo = {
    .name = "echo",
    .on_read = echo_on_read,
    .on_read_complete = echo_on_read_complete,
    .on_error = echo_on_error,
};

static int init_child(weir_channel *ch, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(ch), "echo", &echo, arg);
}

static void echo_answers(void **state)
{
    (void)state;
    weir_embedded *embedded;
    char answer[16];
    assert_int_equal(
        weir_embedded_new(&embedded, &(weir_embedded_config){ .init = init_child }, NULL), 0);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "hello", 5), 0);
    assert_int_equal(weir_embedded_read_outbound_bytes(embedded, answer, sizeof answer), 5);
    assert_memory_equal(answer, "hello", 5);
    assert_int_equal(weir_embedded_inbound_count(embedded), 0);
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(echo_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
