/* SPDX-License-Identifier: MIT */
/* TLS of the examples. It is a component of weir that may be missing. */
#include "common.h"

#ifdef WEIR_EXAMPLES_HAVE_TLS
#include <weir/tls.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail_options(const char *program, const char *cause)
{
    fprintf(stderr, "%s: %s; try --help\n", program, cause);
    exit(2);
}

static void check_server(const example_tls *self, const char *program)
{
    if (!self->is_wanted && (self->certificate != NULL || self->key != NULL))
        fail_options(program, "--cert and --key are for --tls");
    if ((self->certificate == NULL) != (self->key == NULL))
        fail_options(program, "--cert and --key go together");
}

static void check_client(const example_tls *self, const char *program)
{
    if (!self->is_wanted && (self->ca != NULL || self->host != NULL || self->is_insecure))
        fail_options(program, "--ca, --host and --insecure are for connections with TLS");
    if (self->ca != NULL && self->is_insecure)
        fail_options(program, "--ca and --insecure exclude each other");
}

#ifdef WEIR_EXAMPLES_HAVE_TLS

bool example_tls_serve(example_tls *self, const char *program)
{
    weir_tls_config config = { .certificate_file = self->certificate, .key_file = self->key };
    weir_tls_self_signed own;
    weir_error error;
    int code = 0;
    check_server(self, program);
    if (!self->is_wanted)
        return true;
    if (self->certificate == NULL) {
        code = weir_tls_self_signed_make(&own, "localhost", &error);
        config.certificate_pem = own.certificate_pem;
        config.key_pem = own.key_pem;
    }
    if (code == 0)
        code = weir_tls_context_new_server(&self->context, &config, &error);
    if (code < 0)
        fprintf(stderr, "%s: %s\n", program, error.message);
    else if (self->certificate == NULL)
        fprintf(stderr, "%s: no --cert: using a self-signed certificate for localhost\n", program);
    return code == 0;
}

/* The host of "host:port" and "[host]:port"; localhost for Unix sockets. */
static const char *host_of(const char *address, char *host, size_t size)
{
    bool is_local = strncmp(address, "unix:", 5) == 0;
    const char *port = strrchr(address, ':');
    int length = port != NULL ? (int)(port - address) : (int)strlen(address);
    if (address[0] == '[' && length > 1) {
        address++;
        length -= 2;
    }
    snprintf(host, size, "%.*s", is_local ? 9 : length, is_local ? "localhost" : address);
    return host;
}

bool example_tls_connect(example_tls *self, const char *program, const char *address)
{
    weir_error error;
    check_client(self, program);
    if (!self->is_wanted)
        return true;
    if (self->host == NULL)
        self->host = host_of(address, self->host_of_address, sizeof self->host_of_address);
    if (weir_tls_context_new_client(&self->context, &(weir_tls_config){ .ca_file = self->ca },
                                    &error) < 0) {
        fprintf(stderr, "%s: %s\n", program, error.message);
        return false;
    }
    if (self->is_insecure) {
        weir_tls_context_dangerously_verify_nothing(self->context);
        fprintf(stderr, "%s: --insecure: the server's certificate is not verified\n", program);
    }
    return true;
}

/* Logs the result of the handshake. */
static void session_log_on_event(weir_ctx *ctx, weir_msg *event)
{
    const weir_tls_session *session = weir_tls_session_from(event);
    if (session != NULL)
        weir_log(WEIR_LOG_INFO, "tls", "%08llx: TLS 1.%d, %s%s",
                 (unsigned long long)weir_channel_id(weir_ctx_channel(ctx)), (int)session->version,
                 session->cipher, session->is_resumed ? ", resumed" : "");
    weir_ctx_fire_event(ctx, event);
}

static const weir_handler_type session_log = { .name = "session-log",
                                               .on_event = session_log_on_event };

int example_tls_add(const example_tls *self, weir_channel *channel)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    if (self->context == NULL)
        return 0;
    int code = weir_pipeline_add_last(pipeline, "tls", &weir_tls_handler,
                                      &(weir_tls){ .context = self->context, .host = self->host });
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "session-log", &session_log, NULL);
}

void example_tls_end(example_tls *self)
{
    weir_tls_context_release(self->context);
}

#else

static bool report_absence(const example_tls *self, const char *program)
{
    if (self->is_wanted)
        fprintf(stderr, "%s: there is no TLS here: weir was built without OpenSSL\n", program);
    return !self->is_wanted;
}

bool example_tls_serve(example_tls *self, const char *program)
{
    check_server(self, program);
    return report_absence(self, program);
}

bool example_tls_connect(example_tls *self, const char *program, const char *address)
{
    (void)address;
    check_client(self, program);
    return report_absence(self, program);
}

int example_tls_add(const example_tls *self, weir_channel *channel)
{
    (void)self, (void)channel;
    return 0;
}

void example_tls_end(example_tls *self)
{
    (void)self;
}

#endif
