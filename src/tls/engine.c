/* SPDX-License-Identifier: MIT */
/* One connection's TLS over OpenSSL, which reads from and writes to weir's buffers. */
#include "tls/engine.h"

#include "tls/context.h"
#include "tls/failure.h"
#include "tls/hello.h"
#include "tls/life.h"
#include "tls/session.h"

#include <weir/alloc.h>

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct weir_tls_engine {
    SSL *ssl;
    weir_tls_context *context;
    weir_tls_material *material;

    /* Of the step under way: */
    weir_buf *in;
    size_t in_left;
    size_t room; /* for a new `out` */

    weir_buf *out; /* to be sent; NULL: nothing */
    bool is_done;  /* the handshake */
    bool has_failed;
    bool is_without_memory; /* for `out` */
    bool is_named;          /* a client has said whom it wants, or nothing of it */
    char *host;             /* NULL: none */
    char *server;
    uint16_t port; /* a server's */
};

/* Buffers as a BIO ----------------------------------------------------------------------------- */

static int bio_read(BIO *bio, char *to, int size)
{
    weir_tls_engine *self = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    size_t length = (size_t)size < self->in_left ? (size_t)size : self->in_left;
    if (length == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    weir_buf_read_bytes(self->in, to, length);
    self->in_left -= length;
    return (int)length;
}

static int bio_write(BIO *bio, const char *bytes, int length)
{
    weir_tls_engine *self = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (self->out == NULL)
        self->out = weir_buf_new(self->room > (size_t)length ? self->room : (size_t)length);
    if (self->out != NULL && weir_buf_write_bytes(self->out, bytes, (size_t)length) == 0)
        return length;
    self->is_without_memory = true;
    return -1;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* Made once, for all. Two threads may make one each; then one of them is not needed. */
static const BIO_METHOD *bio_method(void)
{
    static _Atomic(BIO_METHOD *) method;
    BIO_METHOD *made = atomic_load_explicit(&method, memory_order_acquire), *first = NULL;
    if (made != NULL)
        return made;
    made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weir buffers");
    if (made == NULL || BIO_meth_set_read(made, bio_read) != 1 ||
        BIO_meth_set_write(made, bio_write) != 1 || BIO_meth_set_ctrl(made, bio_ctrl) != 1) {
        BIO_meth_free(made);
        return NULL;
    }
    if (atomic_compare_exchange_strong(&method, &first, made))
        return made;
    BIO_meth_free(made);
    return first;
}

static bool set_bio(weir_tls_engine *self)
{
    const BIO_METHOD *method = bio_method();
    BIO *bio = method != NULL ? BIO_new(method) : NULL;
    if (bio == NULL)
        return false;
    BIO_set_data(bio, self);
    BIO_set_init(bio, 1);
    SSL_set_bio(self->ssl, bio, bio); /* one reference, for both directions */
    return true;
}

/* Life ----------------------------------------------------------------------------------------- */

static char *copy_text(const char *text, size_t length)
{
    char *copy = weir_alloc(length + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

/* "example.org:443": who the server is, for sessions to be kept under. */
static int name_server(weir_tls_engine *self, uint16_t port)
{
    char number[8];
    size_t length = strlen(self->host);
    size_t digits = (size_t)snprintf(number, sizeof number, ":%u", port);
    self->server = weir_alloc(length + digits + 1);
    if (self->server == NULL)
        return -ENOMEM;
    memcpy(self->server, self->host, length);
    memcpy(self->server + length, number, digits + 1);
    return 0;
}

static bool is_address(const char *host)
{
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
    ASN1_OCTET_STRING_free(address);
    return address != NULL;
}

/* Whom the certificate must be for, which names are also told to the server. OpenSSL takes a dot at
 * the begin for all names that end like this, and, in a certificate without names, a common name
 * for one, which may be anything. */
static bool expect_host(weir_tls_engine *self)
{
    X509_VERIFY_PARAM *rules = SSL_get0_param(self->ssl);
    bool is_ip = is_address(self->host);
    weir__tls_failure_clear(); /* of what is no address */
    if (is_ip)
        return X509_VERIFY_PARAM_set1_ip_asc(rules, self->host) == 1;
    if (!weir__tls_is_host(self->host, strlen(self->host)))
        return false;
    SSL_set_hostflags(self->ssl,
                      X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return SSL_set1_host(self->ssl, self->host) == 1 &&
           SSL_set_tlsext_host_name(self->ssl, self->host) == 1;
}

static void resume(weir_tls_engine *self)
{
    const weir_tls_material *material = self->material;
    SSL_SESSION *session = weir__tls_sessions_get(&self->context->sessions, material->trust,
                                                  self->server, material->session_s,
                                                  self->context->wall);
    if (session == NULL)
        return;
    SSL_set_session(self->ssl, session); /* without it the handshake is a whole one */
    SSL_SESSION_free(session);
    weir__tls_failure_clear();
}

static int set_up_client(weir_tls_engine *self, const weir_tls_peer *peer, weir_error *error)
{
    bool verifies_nothing = atomic_load(&self->context->verifies_nothing);
    SSL_set_connect_state(self->ssl);
    if (verifies_nothing)
        SSL_set_verify(self->ssl, SSL_VERIFY_NONE, NULL);
    if (peer->host == NULL)
        return verifies_nothing ? 0
                                : weir_error_set(error, -EINVAL, "tls",
                                                 "a client must say whom it expects: host");
    size_t length = strlen(peer->host);
    if (length > 1 && peer->host[length - 1] == '.') /* of a whole name; certificates have none */
        length--;
    if (length == 0 || length > TLSEXT_MAXLEN_host_name)
        return weir_error_set(error, -EINVAL, "tls", "'%.40s' is no host", peer->host);
    self->host = copy_text(peer->host, length);
    if (self->host == NULL || name_server(self, peer->port) < 0)
        return weir_error_set(error, -ENOMEM, "tls", "no memory for a connection");
    if (!expect_host(self))
        return weir__tls_failure(error, -EINVAL, "'%.100s' is no host", self->host);
    if (self->material->session_s > 0)
        resume(self);
    return 0;
}

/* A session counts for the context, the port and the name it was made for, and as long as the same
 * clients are trusted. */
bool weir__tls_engine_bind(weir_tls_engine *engine, const unsigned char *name, size_t length)
{
    struct {
        unsigned char id[sizeof engine->context->id];
        uint64_t trust;
        uint64_t port;
    } bound = { .port = engine->port };
    unsigned char digest[SSL_MAX_SID_CTX_LENGTH];
    _Static_assert(sizeof digest == 32, "SHA-256 fills it");
    memcpy(bound.id, engine->context->id, sizeof bound.id);
    if (engine->material->config.client_auth != WEIR_TLS_CLIENT_AUTH_NONE)
        bound.trust = engine->material->trust;
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool is_bound = hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1 &&
                    EVP_DigestUpdate(hash, &bound, sizeof bound) == 1 &&
                    EVP_DigestUpdate(hash, name, length) == 1 &&
                    EVP_DigestFinal_ex(hash, digest, NULL) == 1 &&
                    SSL_set_session_id_context(engine->ssl, digest, sizeof digest) == 1;
    EVP_MD_CTX_free(hash);
    return is_bound;
}

static int set_up(weir_tls_engine *self, const weir_tls_peer *peer, weir_error *error)
{
    weir_error why = { 0 };
    SSL_CTX *ssl = weir__tls_material_ssl(self->material, &why);
    if (ssl == NULL) {
        if (error != NULL)
            *error = why;
        return why.code;
    }
    weir__tls_failure_clear();
    self->ssl = SSL_new(ssl);
    if (self->ssl == NULL || SSL_set_app_data(self->ssl, self) != 1 || !set_bio(self))
        return weir__tls_failure(error, -ENOMEM, "no memory for a connection");
    if (!self->context->is_server)
        return set_up_client(self, peer, error);
    self->port = peer->port;
    SSL_set_accept_state(self->ssl);
    return 0;
}

int weir__tls_engine_new(weir_tls_engine **engine, weir_tls_context *context,
                         const weir_tls_peer *peer, weir_error *error)
{
    weir_tls_engine *self = weir_zalloc(sizeof *self);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "tls", "no memory for a connection");
    self->context = weir_tls_context_retain(context);
    self->material = weir__tls_context_material(context);
    int code = set_up(self, peer, error);
    if (code < 0) {
        weir__tls_engine_free(self);
        return code;
    }
    *engine = self;
    return 0;
}

void weir__tls_engine_free(weir_tls_engine *engine)
{
    if (engine == NULL)
        return;
    SSL_free(engine->ssl);
    if (engine->out != NULL)
        weir_buf_release(engine->out);
    weir_free(engine->host);
    weir_free(engine->server);
    weir__tls_material_release(engine->material);
    weir_tls_context_release(engine->context);
    weir_free(engine);
}

/* Steps ---------------------------------------------------------------------------------------- */

static void begin(weir_tls_engine *self, weir_buf *in, size_t length)
{
    weir__tls_failure_clear(); /* SSL_get_error looks into the thread's queue */
    self->in = in;
    self->in_left = length;
}

static void end(weir_tls_engine *self)
{
    self->in = NULL;
    self->in_left = 0;
}

static weir_tls_step fail(weir_tls_engine *self, weir_error *error)
{
    long verified = SSL_get_verify_result(self->ssl);
    unsigned long last = ERR_peek_last_error();
    self->has_failed = true;
    if (self->is_without_memory)
        weir_error_set(error, -ENOMEM, "tls", "no memory for records");
    else if (verified != X509_V_OK && ERR_GET_REASON(last) == SSL_R_CERTIFICATE_VERIFY_FAILED)
        weir__tls_failure_of_certificate(error, verified, self->host);
    else
        weir__tls_failure(error, WEIR_ETLS, self->is_done ? "TLS" : "the handshake failed");
    return WEIR_TLS_STEP_FAILED;
}

static weir_tls_step fail_ended(weir_tls_engine *self, weir_error *error)
{
    self->has_failed = true;
    weir_error_set(error, WEIR_EOF, "tls",
                   "the other side ended the connection during the handshake: close_notify");
    return WEIR_TLS_STEP_FAILED;
}

static weir_tls_step fail_again(weir_error *error)
{
    weir_error_set(error, WEIR_ECLOSED, "tls", "TLS has failed before");
    return WEIR_TLS_STEP_FAILED;
}

/* In 1.2 a server may answer a ticket with a newer one. Then OpenSSL resumes with the older one no
 * more, and tells of the newer one only here. */
static void keep_renewed(weir_tls_engine *self)
{
    SSL_SESSION *session = SSL_get1_session(self->ssl);
    if (session != NULL && SSL_SESSION_is_resumable(session))
        weir__tls_sessions_put(&self->context->sessions, self->material->trust, self->server,
                               session);
    else
        SSL_SESSION_free(session);
}

static void be_done(weir_tls_engine *self)
{
    bool is_newer = SSL_version(self->ssl) >= TLS1_3_VERSION;
    if (self->server != NULL && is_newer) /* tickets may come much later, and count from here */
        weir__tls_life_note(self->ssl, SSL_get_session(self->ssl));
    if (self->server != NULL && !is_newer && SSL_session_reused(self->ssl) == 1)
        keep_renewed(self);
    self->is_done = true;
}

weir_tls_step weir__tls_engine_shake(weir_tls_engine *engine, weir_buf *in, size_t length,
                                     weir_error *error)
{
    if (engine->has_failed)
        return fail_again(error);
    engine->room = 0;
    begin(engine, in, length);
    int result = SSL_do_handshake(engine->ssl);
    weir_tls_step step = WEIR_TLS_STEP_MORE;
    if (result == 1) {
        be_done(engine);
        step = WEIR_TLS_STEP_DONE;
    } else if (SSL_get_error(engine->ssl, result) == SSL_ERROR_ZERO_RETURN) {
        step = fail_ended(engine, error);
    } else if (SSL_get_error(engine->ssl, result) != SSL_ERROR_WANT_READ) {
        step = fail(engine, error);
    }
    end(engine);
    return step;
}

weir_tls_step weir__tls_engine_decrypt(weir_tls_engine *engine, weir_buf *in, size_t length,
                                       weir_buf *out, weir_error *error)
{
    weir_tls_step step = WEIR_TLS_STEP_MORE;
    size_t got;
    int result;
    if (engine->has_failed)
        return fail_again(error);
    engine->room = 0;
    begin(engine, in, length);
    do { /* asked once too often, OpenSSL gets memory for a whole record to find out that none came
          */
        size_t room = weir_buf_writable(out);
        void *to = weir_buf_write_ptr(out, room);
        result = SSL_read_ex(engine->ssl, to, room, &got);
        if (result == 1)
            weir_buf_advance_writer(out, got);
    } while (result == 1 && weir_buf_writable(out) > 0 && engine->in_left > 0);
    if (result != 1) {
        int reason = SSL_get_error(engine->ssl, result);
        if (reason == SSL_ERROR_ZERO_RETURN)
            step = WEIR_TLS_STEP_ENDED;
        else if (reason != SSL_ERROR_WANT_READ)
            step = fail(engine, error);
    }
    end(engine);
    return step;
}

weir_tls_step weir__tls_engine_encrypt(weir_tls_engine *engine, const void *bytes, size_t length,
                                       size_t more, weir_error *error)
{
    size_t written, all = length + more;
    if (engine->has_failed)
        return fail_again(error);
    engine->room = all + (all / WEIR__TLS_PLAIN_MOST + 1) * WEIR__TLS_OVERHEAD;
    begin(engine, NULL, 0);
    if (length == 0 || SSL_write_ex(engine->ssl, bytes, length, &written) == 1)
        return WEIR_TLS_STEP_MORE;
    return fail(engine, error);
}

void weir__tls_engine_close(weir_tls_engine *engine)
{
    if (engine->has_failed || !engine->is_done)
        return;
    engine->room = 0;
    begin(engine, NULL, 0);
    SSL_shutdown(engine->ssl);
    weir__tls_failure_clear();
}

weir_buf *weir__tls_engine_take_output(weir_tls_engine *engine)
{
    weir_buf *out = engine->out;
    engine->out = NULL;
    return out;
}

size_t weir__tls_engine_output(const weir_tls_engine *engine)
{
    return weir_buf_readable(engine->out);
}

weir_tls_session *weir__tls_engine_session(weir_tls_engine *engine)
{
    return weir__tls_session_new(engine->ssl, engine->host);
}

const char *weir__tls_engine_server(const weir_tls_engine *engine)
{
    return engine->server;
}

bool weir__tls_engine_note_name(weir_tls_engine *engine, const char *name)
{
    bool is_first = !engine->is_named;
    engine->is_named = true;
    if (is_first && name != NULL)
        engine->host = copy_text(name, strlen(name));
    return name == NULL || engine->host == NULL ? name == engine->host
                                                : strcmp(name, engine->host) == 0;
}

/* Records -------------------------------------------------------------------------------------- */

/* How requests begin. */
static bool is_http(const uint8_t *bytes, size_t there)
{
    static const char *const methods[] = { "GET ",     "HEAD ",  "POST ",    "PUT ",   "DELETE ",
                                           "OPTIONS ", "PATCH ", "CONNECT ", "TRACE ", "PRI * " };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        size_t length = strlen(methods[i]);
        length = length < WEIR__TLS_HEADER ? length : WEIR__TLS_HEADER;
        if (there >= length && memcmp(bytes, methods[i], length) == 0)
            return true;
    }
    return false;
}

int weir__tls_record_length(const uint8_t *bytes, size_t there, weir_error *error)
{
    if (there < WEIR__TLS_HEADER)
        return 0;
    size_t length = (size_t)bytes[3] << 8 | bytes[4];
    bool is_record = bytes[0] >= 20 && bytes[0] <= 24 && bytes[1] == 3;
    if (!is_record && is_http(bytes, there))
        return weir_error_set(error, WEIR_ETLS_HTTP, "tls",
                              "plain HTTP came where TLS is spoken: https:// is meant");
    if (!is_record)
        return weir_error_set(error, WEIR_ETLS_PLAIN, "tls",
                              "this is not TLS: it begins with %02x %02x %02x %02x %02x", bytes[0],
                              bytes[1], bytes[2], bytes[3], bytes[4]);
    if (length > WEIR__TLS_RECORD_MOST)
        return weir_error_set(error, WEIR_ETLS_RECORD, "tls", "a record of %zu bytes, more than %d",
                              length, WEIR__TLS_RECORD_MOST);
    return (int)length + WEIR__TLS_HEADER;
}

bool weir__tls_engine_is_renegotiation(const weir_tls_engine *engine, uint8_t type)
{
    return engine->is_done && type == WEIR__TLS_HANDSHAKE &&
           SSL_version(engine->ssl) < TLS1_3_VERSION;
}
