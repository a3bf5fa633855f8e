/* SPDX-License-Identifier: MIT */
/* Servers and clients with TLS, and a count of what they have seen. */
#include "tls/town.h"

#include <string.h>

static void echo_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static void echo_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static void town_on_event(weir_ctx *ctx, weir_msg *event)
{
    town *self = weir_ctx_arg(ctx);
    if (weir_tls_session_from(event) != NULL)
        atomic_fetch_add(&self->sessions, 1);
    weir_ctx_fire_event(ctx, event);
}

static void town_on_error(weir_ctx *ctx, const weir_error *error)
{
    town *self = weir_ctx_arg(ctx);
    atomic_store(&self->last_error, error->code);
    atomic_fetch_add(&self->errors, 1);
}

static void town_on_inactive(weir_ctx *ctx)
{
    town *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->inactives, 1);
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type echoes = { .name = "echoes",
                                          .on_read = echo_read,
                                          .on_read_complete = echo_read_complete,
                                          .on_event = town_on_event,
                                          .on_error = town_on_error,
                                          .on_inactive = town_on_inactive };

int town_add_tls(weir_channel *channel, const char *name, const weir_tls *tls, weir_group *group)
{
    weir_handler_config config = {
        .type = &weir_tls_handler, .name = name, .arg = (void *)(uintptr_t)tls, .group = group
    };
    return weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
}

/* Once, or once more inside of that. */
static int add_layers(const town *self, weir_channel *channel, const weir_tls *tls)
{
    int code = 0;
    for (int i = 0; i < (self->is_double ? 2 : 1) && code == 0; i++)
        code = town_add_tls(channel, i == 0 ? "tls" : "tls inside", tls,
                            self->place == ALL_ELSEWHERE ? self->others : NULL);
    return code;
}

int town_init_child(weir_channel *channel, void *arg)
{
    town *self = arg;
    if (self->linger_ns > 0)
        weir_channel_set_option(channel, WEIR_OPTION_LINGER_NS, self->linger_ns, NULL);
    int code = self->sni != NULL ? weir_pipeline_add_last(weir_channel_pipeline(channel), "tls",
                                                          &weir_tls_sni_handler, self->sni)
                                 : add_layers(self, channel, &self->tls);
    if (code == 0)
        code = weir_pipeline_add_last(weir_channel_pipeline(channel), "echo", &echoes, self);
    weir_channel_release(atomic_exchange(&self->accepted, weir_channel_retain(channel)));
    atomic_fetch_add(&self->accepted_count, 1);
    return code;
}

static void caller_on_read(weir_ctx *ctx, weir_msg *msg)
{
    caller *self = weir_ctx_arg(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    size_t at = atomic_load(&self->heard), length = weir_buf_readable(buf);
    const uint8_t *bytes = weir_buf_peek(buf, weir_buf_reader(buf), length);
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (uint8_t)((at + i) % 251))
            atomic_store(&self->wrong, 1);
    atomic_fetch_add(&self->heard, length);
    weir_buf_release(buf);
}

static void caller_on_error(weir_ctx *ctx, const weir_error *error)
{
    caller *self = weir_ctx_arg(ctx);
    (void)ctx;
    atomic_store(&self->last_error, error->code);
    atomic_fetch_add(&self->errors, 1);
}

static void caller_on_inactive(weir_ctx *ctx)
{
    caller *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->inactives, 1);
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type calling = { .name = "calling",
                                           .on_read = caller_on_read,
                                           .on_error = caller_on_error,
                                           .on_inactive = caller_on_inactive };

int town_init_caller(weir_channel *channel, void *arg)
{
    caller *self = arg;
    int code = add_layers(self->town, channel, &self->tls);
    return code < 0
               ? code
               : weir_pipeline_add_last(weir_channel_pipeline(channel), "calling", &calling, self);
}

void town_open_filled(town *self, const backend *io, place where, const char *address)
{
    self->place = where;
    self->contexts[0] = pair_server_context(NULL);
    self->contexts[1] = pair_client_context(NULL);
    self->others = new_group_of(2);
    self->tls.context = self->contexts[0];
    self->tls.handshake_group = where == HANDSHAKE_ELSEWHERE ? self->others : NULL;
    self->loops = loops_of(io, 2);
    self->clients = loops_of(io, 1);
    weir_server_config config = { .workers = self->loops,
                                  .init_child = town_init_child,
                                  .arg = self };
    weir_error error;
    if (weir_server_listen(&self->server, &config, address, &error) < 0)
        fail_msg("%s", error.message);
    snprintf(self->address, sizeof self->address, "%s", address);
    if (strncmp(address, "127", 3) == 0) {
        weir_address bound = address_of_server(self->server);
        weir_address_text(&bound, self->address, sizeof self->address);
    }
}

void town_open(town *self, const backend *io, place where, const char *address)
{
    *self = (town){ 0 };
    town_open_filled(self, io, where, address);
}

weir_channel *town_call(town *self, caller *by)
{
    weir_channel *channel = NULL;
    weir_error error;
    *by = (caller){ .town = self,
                    .tls = { .context = self->contexts[1],
                             .host = "localhost",
                             .handshake_group = self->place == HANDSHAKE_ELSEWHERE ? self->others
                                                                                   : NULL } };
    weir_client_config config = { .group = self->clients, .init = town_init_caller, .arg = by };
    if (weir_client_connect(&channel, &config, self->address, &error) < 0)
        fail_msg("%s", error.message);
    return channel;
}

void town_close(town *self)
{
    weir_promise *promise = new_promise();
    weir_server_close(self->server, promise);
    weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    weir_server_release(self->server);
    end_group(self->clients);
    end_group(self->loops);
    weir_channel_release(self->accepted); /* a connection may be set up until its loop has ended */
    end_group(self->others);
    weir_tls_context_release(self->contexts[0]);
    weir_tls_context_release(self->contexts[1]);
}

void town_hang_up(weir_channel *channel)
{
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_close(channel, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    weir_channel_release(channel);
}

void town_say(weir_channel *channel, size_t length)
{
    for (size_t at = 0, part; at < length; at += part) {
        part = length - at < 50000 ? 1 + (at * 7 + 3) % 40000 : length - at;
        part = part < length - at ? part : length - at;
        weir_buf *buf = weir_buf_new(part);
        uint8_t *to = weir_buf_write_ptr(buf, part);
        for (size_t i = 0; i < part; i++)
            to[i] = (uint8_t)((at + i) % 251);
        weir_buf_advance_writer(buf, part);
        weir_channel_write(channel, &buf->msg, NULL);
    }
    weir_channel_flush(channel);
}

void town_echo(town *self)
{
    enum { CALLERS = 4, MUCH = 300000 };
    caller callers[CALLERS];
    weir_channel *channels[CALLERS];
    for (size_t i = 0; i < CALLERS; i++) {
        channels[i] = town_call(self, &callers[i]);
        town_say(channels[i], i % 2 == 0 ? 100 : MUCH);
    }
    for (size_t i = 0; i < CALLERS; i++) {
        size_t length = i % 2 == 0 ? 100 : MUCH;
        WAIT_FOR(atomic_load(&callers[i].heard) >= length || atomic_load(&callers[i].errors) > 0);
        assert_int_equal(atomic_load(&callers[i].last_error), 0);
        assert_int_equal(atomic_load(&callers[i].heard), length);
        assert_int_equal(atomic_load(&callers[i].wrong), 0);
        town_hang_up(channels[i]);
        WAIT_FOR(atomic_load(&callers[i].inactives) == 1); /* the last it knows of the caller */
    }
    WAIT_FOR(atomic_load(&self->inactives) == CALLERS);
    assert_int_equal(atomic_load(&self->errors), 0);
    assert_int_equal(atomic_load(&self->sessions), CALLERS);
    weir_tls_context_stats stats;
    weir_tls_context_get_stats(self->contexts[0], &stats);
    assert_int_equal(stats.handshakes, self->is_double ? 2 * CALLERS : CALLERS);
    assert_int_equal(stats.failed, 0);
}
