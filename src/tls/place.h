/* SPDX-License-Identifier: MIT */
/* What TLS shares with the handlers that come before it, and put it in their own place. */
#ifndef WEIR_TLS_PLACE_H
#define WEIR_TLS_PLACE_H

#include <weir/tls.h>

#define WEIR__TLS_HANDSHAKE_NS WEIR_SECONDS(10)

/* How long they may wait, for it is a part of the time for the handshake. */
typedef struct weir_tls_wait {
    int64_t begun_ns;
    weir_ctx_timer timer; /* its `fire` is set by who has it */
} weir_tls_wait;

/* handshake_timeout_ns of the config is 0 no more, but what that stands for. */
void weir__tls_wait_init(weir_tls *config);

/* The channel is active. 0, or -ENOMEM. */
int weir__tls_wait_begin(weir_ctx *ctx, weir_tls_wait *wait, const weir_tls *config);

/* It is over: what is left of the time is for TLS. */
void weir__tls_wait_end(weir_ctx *ctx, const weir_tls_wait *wait, weir_tls *config);

/* Without auto_read nobody else knows that something is awaited. */
void weir__tls_need_read(weir_ctx *ctx);

/* `arg_retain` and `arg_release` of handlers with a weir_tls: copies its host and retains its
 * context. 0, or -ENOMEM. */
int weir__tls_config_retain(void *config);
void weir__tls_config_release(void *config);

/* Whether the handler is where its pipeline can be changed at once. */
bool weir__tls_is_on_loop(const weir_ctx *ctx);

/* For a result that handlers are to hear of: true if the channel is on no loop. Then the timer
 * fires on its next one; without memory for that the channel is closed. Between two loops handlers
 * can neither be replaced nor notified, and if the last loop has terminated this is another thread.
 */
bool weir__tls_wait_for_loop(weir_ctx *ctx, weir_ctx_timer *timer);

/* Whether the connection is lost, so that an error that comes from the channel says why. */
bool weir__tls_is_lost(const weir_ctx *ctx);

/* Puts a weir_tls_handler in the place of the handler: 0, or what weir_pipeline_replace says. What
 * others have asked for before, TLS reads for them. */
int weir__tls_take_place(weir_ctx *ctx, weir_tls *config, bool is_read_asked);

/* For a handler's `added` that has failed: it is removed, and the channel closed, because what is
 * behind it would speak in the clear. */
void weir__tls_give_up(weir_ctx *ctx, int code, const char *message);

/* A handler's `write`, until it is known whether and with whom to encrypt: nothing goes out plain
 * that is meant to be secret. */
void weir__tls_refuse_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise);

#endif
