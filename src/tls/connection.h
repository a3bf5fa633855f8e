/* SPDX-License-Identifier: MIT */
/* The handler's state for one connection, and what its three files do for each other: handler.c
 * begins and ends it, inbound.c has the way of a byte in, outbound.c the way out. */
#ifndef WEIR_TLS_CONNECTION_H
#define WEIR_TLS_CONNECTION_H

#include "tls/engine.h"
#include "tls/job.h"
#include "tls/writes.h"

#include <weir/channel.h>
#include <weir/decoder.h>
#include <weir/pipeline.h>
#include <weir/tls.h>

typedef enum weir_tls_phase {
    WEIR_TLS_WAITING, /* for the channel to be active */
    WEIR_TLS_SHAKING,
    WEIR_TLS_OPEN,
    WEIR_TLS_OVER, /* it has failed, or is removed: nothing is decrypted or encrypted any more */
} weir_tls_phase;

typedef struct weir_tls_connection {
    weir_decoder decoder;

    weir_tls *config; /* the handler's argument, with defaults filled in; NULL: not set up */

    uint8_t phase;
    weir_tls_engine *engine; /* NULL: not begun, over, or with the job */
    weir_promise *handshake;
    weir_ctx_timer timer; /* of the handshake, then of the close */

    /* Inbound: */
    weir_tls_job *job;         /* NULL: none is away */
    weir_hold read_hold;       /* until the job is done */
    weir_buf *next_in;         /* what a job is to be started with, behind the pass */
    weir_tls_session *session; /* to be told */
    weir_error *failure;       /* to be told, behind what was good */
    bool is_read_asked;        /* by others, before it was open */
    bool is_input_ended;       /* close_notify was heard */
    bool is_end_told;          /* to the handlers behind */
    bool is_finishing;         /* that was how */

    /* Outbound: */
    bool is_flush_wanted;   /* once it is open */
    bool is_ending;         /* a shutdown waits for that, too */
    bool is_output_ended;   /* close_notify is said */
    bool is_closing;        /* a close waits for the other side's close_notify */
    weir_hold write_hold;   /* too much waits here for the handshake */
    weir_tls_writes writes; /* to be encrypted */
    weir_tls_writes sealed; /* records, to be passed on */
    weir_promise *shutdown_promise, *close_promise;
} weir_tls_connection;

/* handler.c ------------------------------------------------------------------------------------ */

bool weir__tls_has_option(weir_ctx *ctx, weir_option option);

/* Ends it: an alert is sent, who waits is told, and the channel closes. Only the first counts. */
void weir__tls_fail(weir_ctx *ctx, const weir_error *error);
void weir__tls_fail_for(weir_ctx *ctx, int code, const char *message);

/* inbound.c ------------------------------------------------------------------------------------ */

extern const weir_decoder_type weir__tls_records;

void weir__tls_on_read(weir_ctx *ctx, weir_msg *msg);
void weir__tls_on_read_complete(weir_ctx *ctx);
void weir__tls_read(weir_ctx *ctx);
void weir__tls_on_event(weir_ctx *ctx, weir_msg *event);

/* The connection has ended: too early, unless the other side has said so before. */
void weir__tls_end_input(weir_ctx *ctx, weir_tls_connection *self);

/* The same when no more comes, but a step that is away may turn out to be the last. */
void weir__tls_close_input(weir_ctx *ctx, weir_tls_connection *self);

/* What is under way inbound, and will not be needed. */
void weir__tls_drop_input(weir_ctx *ctx, weir_tls_connection *self);

/* outbound.c ----------------------------------------------------------------------------------- */

void weir__tls_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise);
void weir__tls_flush(weir_ctx *ctx);
void weir__tls_shutdown(weir_ctx *ctx, weir_promise *promise);
void weir__tls_close(weir_ctx *ctx, weir_promise *promise);

/* Records of the engine's own: handshakes, tickets, and answers to key updates, for which a peer
 * may ask without end. */
void weir__tls_send_output(weir_ctx *ctx, weir_tls_connection *self);

/* The same for an alert, behind which nothing comes. */
void weir__tls_send_last_words(weir_ctx *ctx, weir_tls_connection *self);

/* What has waited for the handshake can go. */
void weir__tls_start_output(weir_ctx *ctx, weir_tls_connection *self);

/* Encrypts what was written, says close_notify, and leaves the rest to others. */
void weir__tls_end_output(weir_ctx *ctx, weir_tls_connection *self);

/* The same for a handler that is removed: plain bytes may follow, so the channel closes if the
 * close_notify is rejected. */
void weir__tls_end_output_before_plain(weir_ctx *ctx, weir_tls_connection *self);

/* All that waits to go out ends with a code. */
void weir__tls_let_go(weir_ctx *ctx, weir_tls_connection *self, int code);

/* What is encrypted goes on. */
void weir__tls_pass_sealed(weir_ctx *ctx, weir_tls_connection *self);

/* The close that has waited for the other side's close_notify. */
void weir__tls_close_at_last(weir_ctx *ctx, weir_tls_connection *self);

#endif
