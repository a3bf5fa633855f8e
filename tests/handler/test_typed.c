/* SPDX-License-Identifier: MIT */
/* The typed and the duplex handler. */
#include "harness.h"

#include <weir/alloc.h>
#include <weir/duplex.h>
#include <weir/embedded.h>
#include <weir/typed.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A message that is no buffer. */
static void note_destroy(weir_msg *msg)
{
    free(msg);
}

static const weir_msg_type note_type = { .name = "note", .destroy = note_destroy };

static weir_msg *new_note(void)
{
    weir_msg *msg = malloc(sizeof *msg);
    assert_non_null(msg);
    weir_msg_init(msg, &note_type);
    return msg;
}

/* Typed ---------------------------------------------------------------------------------------- */

static void count_message(weir_ctx *ctx, weir_msg *msg)
{
    assert_ptr_equal(msg->type, &note_type);
    ++*(int *)weir_typed_arg(ctx);
}

static int add_typed(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "typed", &weir_typed_handler,
                                  arg);
}

static void typed_takes_its_own_and_passes_the_rest(void **state)
{
    (void)state;
    int count = 0;
    weir_typed typed = { &note_type, count_message, &count };
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_typed, .arg = &typed };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    assert_int_equal(weir_embedded_write_inbound(embedded, new_note()), 0);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "x", 1), 0);
    assert_int_equal(weir_embedded_write_inbound(embedded, new_note()), 0);
    assert_int_equal(count, 2);
    assert_int_equal(weir_embedded_inbound_count(embedded), 1);
    weir_msg_release(weir_embedded_read_inbound(embedded));
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

static void typed_without_a_type_cannot_be_added(void **state)
{
    (void)state;
    weir_typed typed = { .type = &note_type };
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_typed, .arg = &typed };
    weir_error error;
    assert_int_equal(weir_embedded_new(&embedded, &config, &error), -EINVAL);
    assert_string_equal(error.origin, "typed");
}

/* Duplex --------------------------------------------------------------------------------------- */

typedef struct half {
    int calls, removed;
} half;

static void half_on_read(weir_ctx *ctx, weir_msg *msg)
{
    half *self = weir_ctx_arg(ctx);
    self->calls++;
    weir_ctx_fire_read(ctx, msg);
}

static void half_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    half *self = weir_ctx_arg(ctx);
    self->calls++;
    weir_ctx_write(ctx, msg, promise);
}

static void half_removed(weir_ctx *ctx)
{
    half *self = weir_ctx_arg(ctx);
    self->removed++;
}

static const weir_handler_type in_half = { .name = "in",
                                           .on_read = half_on_read,
                                           .removed = half_removed };
static const weir_handler_type out_half = { .name = "out",
                                            .write = half_write,
                                            .removed = half_removed };

static int add_duplex(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "both", &weir_duplex_handler,
                                  arg);
}

static void duplex_is_two_halves(void **state)
{
    (void)state;
    half in = { 0 }, out = { 0 };
    weir_duplex halves = { &in_half, &in, &out_half, &out };
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_duplex, .arg = &halves };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_count(pipeline), 3);
    assert_int_equal(weir_embedded_write_inbound_bytes(embedded, "x", 1), 0);
    assert_int_equal(weir_embedded_write_outbound(embedded, &weir_buf_from("yz", 2)->msg), 0);
    assert_int_equal(in.calls, 1);
    assert_int_equal(out.calls, 1);
    assert_int_equal(weir_pipeline_remove(pipeline, "both", NULL), 0);
    weir_embedded_run(embedded);
    assert_int_equal(in.removed, 1);
    assert_int_equal(out.removed, 1);
    assert_int_equal(weir_pipeline_count(pipeline), 0);
    weir_embedded_free(embedded);
    assert_int_equal(in.removed + out.removed, 2);
}

static void duplex_goes_with_its_channel(void **state)
{
    (void)state;
    half in = { 0 }, out = { 0 };
    weir_duplex halves = { &in_half, &in, &out_half, &out };
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_duplex, .arg = &halves };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
    assert_int_equal(in.removed, 1);
    assert_int_equal(out.removed, 1);
}

static void duplex_wants_real_halves(void **state)
{
    (void)state;
    half one = { 0 };
    const weir_duplex bad[] = { { &out_half, &one, &out_half, &one },
                                { &in_half, &one, &in_half, &one },
                                { &in_half, &one, NULL, NULL } };
    for (size_t i = 0; i < 3; i++) {
        weir_embedded *embedded;
        weir_embedded_config config = { .init = add_duplex, .arg = (void *)(uintptr_t)&bad[i] };
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), -EINVAL);
    }
    assert_int_equal(one.removed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(typed_takes_its_own_and_passes_the_rest),
        weir_case(typed_without_a_type_cannot_be_added),
        weir_case(duplex_is_two_halves),
        weir_case(duplex_goes_with_its_channel),
        weir_case(duplex_wants_real_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
