/* SPDX-License-Identifier: MIT */
/* A server's tickets and a client's sessions, as OpenSSL asks for them. */
#include "tls/resumption.h"

#include "tls/context.h"
#include "tls/engine.h"
#include "tls/life.h"

static weir_tls_material *material_of(const SSL *ssl)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

/* A server's ----------------------------------------------------------------------------------- */

static int on_key(SSL *ssl, unsigned char name[16], unsigned char *iv, EVP_CIPHER_CTX *cipher,
                  EVP_MAC_CTX *mac, int is_encrypting)
{
    int result = weir__tls_tickets_apply(&material_of(ssl)->context->tickets, name, iv, cipher, mac,
                                         is_encrypting, weir__tls_now_ns());
    bool is_used_up = !is_encrypting && SSL_version(ssl) >= TLS1_3_VERSION; /* good once */
    return result == 1 && is_used_up ? 2 : result;
}

static int64_t left_s(const SSL *ssl, SSL_SESSION *session)
{
    const weir_tls_material *self = material_of(ssl);
    return weir__tls_life_left_s(session, self->session_s, self->context->wall);
}

/* The client is told what is left of the session, which is less each time that it is resumed. With
 * nothing left OpenSSL could make no ticket, and the handshake would fail. */
static int on_ticket_made(SSL *ssl, void *arg)
{
    SSL_SESSION *session = SSL_get_session(ssl);
    (void)arg;
    weir__tls_life_note(ssl, session);
    int64_t told_s = left_s(ssl, session);
    SSL_SESSION_set_timeout(session, told_s > 0 ? (long)told_s : 1);
    return 1;
}

/* What is not resumed gets a whole handshake, and a ticket of that one. */
static SSL_TICKET_RETURN on_ticket_read(SSL *ssl, SSL_SESSION *session, const unsigned char *name,
                                        size_t length, SSL_TICKET_STATUS status, void *arg)
{
    bool is_known = status == SSL_TICKET_SUCCESS || status == SSL_TICKET_SUCCESS_RENEW;
    (void)name, (void)length, (void)arg;
    if (!is_known || left_s(ssl, session) == 0)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

/* A client's ----------------------------------------------------------------------------------- */

static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
    const char *server = weir__tls_engine_server(SSL_get_app_data(ssl));
    weir_tls_material *self = material_of(ssl);
    if (server == NULL)
        return 0; /* it stays OpenSSL's */
    weir__tls_life_note(ssl, session);
    weir__tls_sessions_put(&self->context->sessions, self->trust, server, session);
    return 1;
}

/* OpenSSL's own cache would grow as peers like; tickets are kept by those who want to come back. */
bool weir__tls_resumption_set(const weir_tls_material *material, SSL_CTX *ssl)
{
    SSL_CTX_set_session_cache_mode(ssl, material->is_server || material->session_s == 0
                                            ? SSL_SESS_CACHE_OFF
                                            : SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    if (material->session_s == 0) {
        SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET);
        return !material->is_server || SSL_CTX_set_num_tickets(ssl, 0) == 1;
    }
    SSL_CTX_set_timeout(ssl, (long)material->session_s);
    if (!material->is_server) {
        SSL_CTX_sess_set_new_cb(ssl, on_new_session);
        return true;
    }
    return SSL_CTX_set_tlsext_ticket_key_evp_cb(ssl, on_key) == 1 &&
           SSL_CTX_set_session_ticket_cb(ssl, on_ticket_made, on_ticket_read, NULL) == 1;
}
