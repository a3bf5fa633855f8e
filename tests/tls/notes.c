/* SPDX-License-Identifier: MIT */
/* What a handler behind TLS sees. */
#include "tls/notes.h"

#include <stdio.h>
#include <string.h>

static void note(weir_ctx *ctx, const char *text)
{
    notes *self = weir_ctx_arg(ctx);
    size_t length = strlen(self->text);
    assert_true(length + strlen(text) + 2 < sizeof self->text);
    snprintf(self->text + length, sizeof self->text - length, "%s ", text);
}

static void notes_on_active(weir_ctx *ctx)
{
    notes *self = weir_ctx_arg(ctx);
    note(ctx, "active");
    if (self->says != NULL)
        weir_ctx_write_and_flush(ctx, weir_buf_msg(weir_buf_from(self->says, strlen(self->says))),
                                 NULL);
    weir_ctx_fire_active(ctx);
}

static void notes_on_event(weir_ctx *ctx, weir_msg *event)
{
    notes *self = weir_ctx_arg(ctx);
    const weir_tls_session *session = weir_tls_session_from(event);
    note(ctx, session != NULL                     ? "session"
              : event == &weir_event_input_closed ? "input_closed"
                                                  : "event");
    if (session != NULL && self->on_session != NULL)
        self->on_session(ctx, session);
    weir_ctx_fire_event(ctx, event);
}

static void notes_on_read(weir_ctx *ctx, weir_msg *msg)
{
    note(ctx, "read");
    weir_ctx_fire_read(ctx, msg);
}

static void notes_on_inactive(weir_ctx *ctx)
{
    note(ctx, "inactive");
    weir_ctx_fire_inactive(ctx);
}

static void notes_on_error(weir_ctx *ctx, const weir_error *error)
{
    note(ctx, weir_error_name(error->code));
    weir_ctx_fire_error(ctx, error);
}

const weir_handler_type noting = {
    .name = "noting",
    .on_active = notes_on_active,
    .on_read = notes_on_read,
    .on_event = notes_on_event,
    .on_inactive = notes_on_inactive,
    .on_error = notes_on_error,
};
