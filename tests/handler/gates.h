/* SPDX-License-Identifier: MIT */
/* What the tests of gates share: a channel from some address, and a witness behind the gate. */
#ifndef WEIR_TESTS_HANDLER_GATES_H
#define WEIR_TESTS_HANDLER_GATES_H

#include "harness.h"

#include <weir/embedded.h>
#include <weir/proxy_protocol.h>

#include <errno.h>
#include <string.h>

static inline weir_address address_of(const char *text)
{
    weir_address address;
    assert_int_equal(weir_address_parse(&address, text, NULL), 0);
    return address;
}

/* What was heard behind the gate, as letters: Active, Read, read Complete, Proxy header, Error,
 * Inactive. */
typedef struct visit {
    const weir_handler_type *gate;
    void *gate_arg;
    const char *from; /* the address; NULL: none */
    bool has_decoder; /* of the PROXY protocol, before the gate */
    bool is_unconnected;
    char heard[64];
    size_t count;
    int registered; /* and not unregistered: the gate is not asked about that */
    weir_embedded *embedded;
} visit;

static inline void hear(weir_ctx *ctx, char what)
{
    visit *self = weir_ctx_arg(ctx);
    assert_true(self->count < sizeof self->heard - 1);
    self->heard[self->count++] = what;
}

static inline void hear_active(weir_ctx *ctx)
{
    hear(ctx, 'A');
}

static inline void hear_read(weir_ctx *ctx, weir_msg *msg)
{
    hear(ctx, 'R');
    weir_msg_release(msg);
}

static inline void hear_read_complete(weir_ctx *ctx)
{
    hear(ctx, 'C');
}

static inline void hear_event(weir_ctx *ctx, weir_msg *event)
{
    hear(ctx, weir_proxy_event_from(event) != NULL ? 'P' : '?');
    weir_msg_release(event);
}

static inline void hear_writability(weir_ctx *ctx)
{
    hear(ctx, 'W');
}

static inline void hear_inactive(weir_ctx *ctx)
{
    hear(ctx, 'I');
}

static inline void hear_registered(weir_ctx *ctx)
{
    visit *self = weir_ctx_arg(ctx);
    self->registered++;
}

static inline void hear_unregistered(weir_ctx *ctx)
{
    visit *self = weir_ctx_arg(ctx);
    self->registered--;
}

static inline void hear_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    hear(ctx, 'E');
}

static const weir_handler_type hearer = {
    .name = "hearer",
    .on_registered = hear_registered,
    .on_active = hear_active,
    .on_read = hear_read,
    .on_read_complete = hear_read_complete,
    .on_event = hear_event,
    .on_writability = hear_writability,
    .on_inactive = hear_inactive,
    .on_unregistered = hear_unregistered,
    .on_error = hear_error,
};

static inline int visit_init(weir_channel *channel, void *arg)
{
    visit *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = 0;
    if (self->from != NULL) {
        weir_address from = address_of(self->from);
        assert_int_equal(weir_channel_set_remote_address(channel, &from), 0);
    }
    if (self->has_decoder)
        code = weir_pipeline_add_last(pipeline, "proxy", &weir_proxy_decoder, NULL);
    if (code == 0)
        code = weir_pipeline_add_last(pipeline, "gate", self->gate, self->gate_arg);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "hearer", &hearer, self);
}

static inline void visit_begin(visit *self)
{
    weir_embedded_config config = { .init = visit_init,
                                    .arg = self,
                                    .is_unconnected = self->is_unconnected };
    assert_int_equal(weir_embedded_new(&self->embedded, &config, NULL), 0);
}

static inline bool visit_is_open(const visit *self)
{
    return weir_channel_is_open(weir_embedded_channel(self->embedded));
}

static inline bool has_gate(const visit *self)
{
    return weir_pipeline_find(weir_embedded_pipeline(self->embedded), "gate", NULL) == 0;
}

static inline void visit_read(visit *self, const char *text)
{
    weir_embedded_write_inbound_bytes(self->embedded, text, strlen(text));
}

static inline void visit_expect(visit *self, const char *heard)
{
    assert_string_equal(self->heard, heard);
    memset(self->heard, 0, sizeof self->heard);
    self->count = 0;
}

static inline void visit_end(visit *self)
{
    assert_int_equal(self->registered, visit_is_open(self));
    assert_int_equal(weir_embedded_finish(self->embedded, NULL), 0);
    assert_int_equal(self->registered, 0);
    weir_embedded_free(self->embedded);
}

static inline void gate_needs_an_argument(const weir_handler_type *type)
{
    weir_embedded *embedded;
    weir_error error;
    assert_int_equal(weir_embedded_new(&embedded, NULL, NULL), 0);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_last(pipeline, "gate", type, NULL), 0);
    weir_embedded_run(embedded);
    assert_true(weir_embedded_take_error(embedded, &error));
    assert_int_equal(error.code, -EINVAL);
    weir_embedded_free(embedded);
}

#endif
