/* SPDX-License-Identifier: MIT */
/* From a config to what OpenSSL needs. */
#include "tls/material.h"

#include "tls/context.h"
#include "tls/engine.h"
#include "tls/failure.h"
#include "tls/key_log.h"
#include "tls/resumption.h"

#include <weir/alloc.h>
#include <weir/executor.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define DEFAULT_SESSION_S 7200
#define ALPN_MAX 255 /* bytes of a name */

/* The config ----------------------------------------------------------------------------------- */

static bool is_version(weir_tls_version version)
{
    return version == 0 || version == WEIR_TLS_1_2 || version == WEIR_TLS_1_3;
}

/* Both a file and a text, or neither though it is needed. */
static int check_pair(const char *what, const char *file, const char *text, bool is_needed,
                      weir_error *error)
{
    if (file != NULL && text != NULL)
        return weir_error_set(error, -EINVAL, "tls", "both %s_file and %s_pem are given", what,
                              what);
    if (file == NULL && text == NULL && is_needed)
        return weir_error_set(error, -EINVAL, "tls", "neither %s_file nor %s_pem is given", what,
                              what);
    return 0;
}

static int check_files(const weir_tls_config *config, bool is_server, weir_error *error)
{
    bool has_certificate = config->certificate_file != NULL || config->certificate_pem != NULL;
    bool has_key = config->key_file != NULL || config->key_pem != NULL;
    bool has_trusted = config->ca_file != NULL || config->ca_pem != NULL ||
                       config->ca_directory != NULL;
    int code = check_pair("certificate", config->certificate_file, config->certificate_pem,
                          is_server || has_key, error);
    if (code == 0)
        code = check_pair("key", config->key_file, config->key_pem, is_server || has_certificate,
                          error);
    if (code == 0)
        code = check_pair("ca", config->ca_file, config->ca_pem, false, error);
    if (code == 0 && config->client_auth != WEIR_TLS_CLIENT_AUTH_NONE && !is_server)
        code = weir_error_set(error, -EINVAL, "tls", "client_auth is for servers");
    if (code == 0 && config->client_auth != WEIR_TLS_CLIENT_AUTH_NONE && !has_trusted)
        code = weir_error_set(error, -EINVAL, "tls",
                              "client_auth needs ca_file, ca_pem or ca_directory: whom to trust");
    return code;
}

/* The whole seconds of a session's life, at least one. */
static int64_t seconds_of(int64_t lifetime_ns)
{
    if (lifetime_ns == 0)
        return DEFAULT_SESSION_S;
    int64_t seconds = lifetime_ns / WEIR_SECONDS(1);
    return seconds > 0 ? seconds : 1;
}

static int check_numbers(const weir_tls_config *config, weir_error *error)
{
    if (!is_version(config->min_version) || !is_version(config->max_version) ||
        (config->max_version != 0 && config->min_version > config->max_version))
        return weir_error_set(error, -EINVAL, "tls", "min_version is %d and max_version %d",
                              (int)config->min_version, (int)config->max_version);
    if (config->client_auth < WEIR_TLS_CLIENT_AUTH_NONE ||
        config->client_auth > WEIR_TLS_CLIENT_AUTH_REQUIRED)
        return weir_error_set(error, -EINVAL, "tls", "client_auth is %d", (int)config->client_auth);
    if (config->session_lifetime_ns < WEIR_OFF)
        return weir_error_set(error, -EINVAL, "tls", "session_lifetime_ns is %" PRId64,
                              config->session_lifetime_ns);
    return 0;
}

/* Where each string of a config is, but for those of alpn. */
enum { STRINGS = 12 };

static void find_strings(weir_tls_config *config, const char **strings[STRINGS])
{
    const char **all[STRINGS] = { &config->certificate_file, &config->certificate_pem,
                                  &config->key_file,         &config->key_pem,
                                  &config->key_password,     &config->ca_file,
                                  &config->ca_pem,           &config->ca_directory,
                                  &config->ciphers,          &config->cipher_suites,
                                  &config->groups,           &config->key_log_file };
    memcpy(strings, all, sizeof all);
}

static size_t size_of(const char *string)
{
    return string != NULL ? strlen(string) + 1 : 0;
}

/* Moves a string to where its copy goes; returns where the next one does. */
static char *copy_string(const char **string, char *to)
{
    size_t size = size_of(*string);
    if (size == 0)
        return to;
    memcpy(to, *string, size);
    *string = to;
    return to + size;
}

static int check_alpn(const char *const *names, size_t *count, weir_error *error)
{
    size_t size = 0, n = 0;
    for (; names != NULL && names[n] != NULL; n++) {
        size_t length = strlen(names[n]);
        if (length == 0 || length > ALPN_MAX)
            return weir_error_set(error, -EINVAL, "tls", "'%.40s' in alpn has %zu bytes", names[n],
                                  length);
        size += length + 1;
    }
    *count = n;
    return size <= UINT16_MAX ? 0
                              : weir_error_set(error, -EINVAL, "tls", "alpn has %zu bytes", size);
}

static int copy_config(weir_tls_material *self, const weir_tls_config *config, size_t names)
{
    const char **strings[STRINGS];
    size_t size = 1;
    self->config = *config;
    self->config.alpn = NULL;
    find_strings(&self->config, strings);
    for (size_t i = 0; i < STRINGS; i++)
        size += size_of(*strings[i]);
    for (size_t i = 0; i < names; i++)
        size += size_of(config->alpn[i]);
    self->texts = weir_alloc(size);
    self->alpn_names = weir_zalloc((names + 1) * sizeof *self->alpn_names);
    if (self->texts == NULL || self->alpn_names == NULL) {
        self->config = (weir_tls_config){ 0 };
        return -ENOMEM;
    }
    char *to = self->texts;
    for (size_t i = 0; i < STRINGS; i++)
        to = copy_string(strings[i], to);
    for (size_t i = 0; i < names; i++) {
        self->alpn_names[i] = config->alpn[i];
        to = copy_string(&self->alpn_names[i], to);
    }
    self->config.alpn = self->alpn_names;
    return 0;
}

/* As it is sent. */
static int write_alpn(weir_tls_material *self)
{
    size_t size = 0;
    for (const char *const *name = self->config.alpn; *name != NULL; name++)
        size += size_of(*name);
    self->alpn = weir_alloc(size + 1);
    if (self->alpn == NULL)
        return -ENOMEM;
    for (const char *const *name = self->config.alpn; *name != NULL; name++) {
        size_t length = strlen(*name);
        self->alpn[self->alpn_length] = (unsigned char)length;
        memcpy(self->alpn + self->alpn_length + 1, *name, length);
        self->alpn_length += (unsigned)length + 1;
    }
    return 0;
}

/* What OpenSSL asks ---------------------------------------------------------------------------- */

static weir_tls_material *material_of(const SSL *ssl)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

/* That the name was understood; without this OpenSSL does not keep it with a session. A client that
 * is asked for a second hello may not name another: the context was chosen by the first. */
static int on_name(SSL *ssl, int *alert, void *arg)
{
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)arg;
    if (!weir__tls_engine_note_name(SSL_get_app_data(ssl), name)) {
        *alert = SSL_AD_ILLEGAL_PARAMETER;
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    return name != NULL ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

/* Before anything is made of a ClientHello: with another name in it no session is resumed, as RFC
 * 6066 wants it and OpenSSL leaves to others. */
static int on_hello(SSL *ssl, int *alert, void *arg)
{
    const unsigned char *name = NULL;
    size_t length = 0;
    (void)arg;
    SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &name, &length);
    if (weir__tls_engine_bind(SSL_get_app_data(ssl), name, length))
        return SSL_CLIENT_HELLO_SUCCESS;
    *alert = SSL_AD_INTERNAL_ERROR;
    return SSL_CLIENT_HELLO_ERROR;
}

/* The first of ours that the client has. */
static int on_alpn(SSL *ssl, const unsigned char **chosen, unsigned char *length,
                   const unsigned char *offered, unsigned offered_length, void *arg)
{
    const weir_tls_material *self = arg;
    unsigned char *found;
    (void)ssl;
    if (SSL_select_next_proto(&found, length, self->alpn, self->alpn_length, offered,
                              offered_length) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *chosen = found;
    return SSL_TLSEXT_ERR_OK;
}

static void on_key_log(const SSL *ssl, const char *line)
{
    weir_tls_material *self = material_of(ssl);
    pthread_mutex_lock(&self->lock);
    BIO_puts(self->key_log, line);
    BIO_puts(self->key_log, "\n");
    (void)BIO_flush(self->key_log);
    pthread_mutex_unlock(&self->lock);
}

/* An SSL_CTX ----------------------------------------------------------------------------------- */

static int number_of(weir_tls_version version)
{
    return version == WEIR_TLS_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION;
}

static bool set_protocol(const weir_tls_material *self, SSL_CTX *ssl)
{
    const weir_tls_config *config = &self->config;
    const char *ciphers = config->ciphers != NULL ? config->ciphers : "ECDHE+AESGCM:ECDHE+CHACHA20";
    const char *groups = config->groups != NULL ? config->groups : "X25519:P-256:P-384";
    return SSL_CTX_set_min_proto_version(ssl, number_of(config->min_version)) == 1 &&
           (config->max_version == 0 ||
            SSL_CTX_set_max_proto_version(ssl, number_of(config->max_version)) == 1) &&
           SSL_CTX_set_cipher_list(ssl, ciphers) == 1 &&
           (config->cipher_suites == NULL ||
            SSL_CTX_set_ciphersuites(ssl, config->cipher_suites) == 1) &&
           SSL_CTX_set1_groups_list(ssl, groups) == 1;
}

static bool set_credentials(const weir_tls_material *self, SSL_CTX *ssl)
{
    const weir_tls_credentials *credentials = &self->credentials;
    if (credentials->certificate != NULL &&
        (SSL_CTX_use_certificate(ssl, credentials->certificate) != 1 ||
         SSL_CTX_set1_chain(ssl, credentials->chain) != 1 ||
         SSL_CTX_use_PrivateKey(ssl, credentials->key) != 1))
        return false;
    if (credentials->trusted != NULL)
        SSL_CTX_set1_cert_store(ssl, credentials->trusted);
    if (self->is_server && credentials->trusted_names != NULL) {
        STACK_OF(X509_NAME) *names = SSL_dup_CA_list(credentials->trusted_names);
        if (names == NULL)
            return false;
        SSL_CTX_set_client_CA_list(ssl, names);
    }
    return true;
}

static void set_verification(const weir_tls_material *self, SSL_CTX *ssl)
{
    int mode = self->is_server ? SSL_VERIFY_NONE : SSL_VERIFY_PEER;
    if (self->config.client_auth != WEIR_TLS_CLIENT_AUTH_NONE)
        mode = SSL_VERIFY_PEER;
    if (self->config.client_auth == WEIR_TLS_CLIENT_AUTH_REQUIRED)
        mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
    SSL_CTX_set_verify(ssl, mode, NULL);
}

static bool set_alpn(weir_tls_material *self, SSL_CTX *ssl)
{
    if (self->alpn_length == 0)
        return true;
    if (!self->is_server)
        return SSL_CTX_set_alpn_protos(ssl, self->alpn, self->alpn_length) == 0;
    SSL_CTX_set_alpn_select_cb(ssl, on_alpn, self);
    return true;
}

static SSL_CTX *make_ssl(weir_tls_material *self, weir_error *error)
{
    weir__tls_failure_clear();
    SSL_CTX *ssl = SSL_CTX_new(self->is_server ? TLS_server_method() : TLS_client_method());
    if (ssl == NULL || SSL_CTX_set_app_data(ssl, self) != 1) {
        weir__tls_failure(error, -ENOMEM, "OpenSSL cannot make a context");
        SSL_CTX_free(ssl);
        return NULL;
    }
    SSL_CTX_set_options(ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ssl, SSL_MODE_RELEASE_BUFFERS);
    set_verification(self, ssl);
    if (self->is_server) {
        SSL_CTX_set_client_hello_cb(ssl, on_hello, NULL);
        SSL_CTX_set_tlsext_servername_callback(ssl, on_name);
    }
    if (self->key_log != NULL)
        SSL_CTX_set_keylog_callback(ssl, on_key_log);
    if (set_protocol(self, ssl) && set_credentials(self, ssl) &&
        weir__tls_resumption_set(self, ssl) && set_alpn(self, ssl))
        return ssl;
    weir__tls_failure(error, -EINVAL, "OpenSSL refuses the config");
    SSL_CTX_free(ssl);
    return NULL;
}

/* Shards --------------------------------------------------------------------------------------- */

static size_t place_of(const void *owner)
{
    uint64_t mixed = (uint64_t)(uintptr_t)owner * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(mixed >> 58);
}

_Static_assert(WEIR__TLS_SHARDS == 64, "six bits of the hash");

/* The shard of an owner, or the place for it, or, when all are taken, the one to share. */
static weir_tls_shard *find(weir_tls_material *self, const void *owner)
{
    size_t place = place_of(owner);
    for (size_t i = 0; i < WEIR__TLS_SHARDS; i++) {
        weir_tls_shard *shard = &self->shards[(place + i) % WEIR__TLS_SHARDS];
        const void *its = atomic_load_explicit(&shard->owner, memory_order_acquire);
        if (its == owner || its == NULL)
            return shard;
    }
    return &self->shards[place];
}

SSL_CTX *weir__tls_material_ssl(weir_tls_material *material, weir_error *error)
{
    const void *owner = weir_executor_current();
    if (owner == NULL)
        owner = material; /* all threads that are no executor's */
    weir_tls_shard *shard = find(material, owner);
    if (atomic_load_explicit(&shard->owner, memory_order_acquire) != NULL)
        return shard->ssl;
    pthread_mutex_lock(&material->lock);
    shard = find(material, owner); /* somebody may have come first */
    SSL_CTX *ssl = shard->ssl;
    if (atomic_load_explicit(&shard->owner, memory_order_relaxed) == NULL) {
        ssl = make_ssl(material, error);
        shard->ssl = ssl;
        if (ssl != NULL)
            atomic_store_explicit(&shard->owner, owner, memory_order_release);
    }
    pthread_mutex_unlock(&material->lock);
    return ssl;
}

/* Life ----------------------------------------------------------------------------------------- */

static int fill(weir_tls_material *self, const weir_tls_config *config, weir_error *error)
{
    size_t names = 0;
    int code = check_numbers(config, error);
    if (code == 0)
        code = check_files(config, self->is_server, error);
    if (code == 0)
        code = check_alpn(config->alpn, &names, error);
    if (code == 0 && (copy_config(self, config, names) < 0 || write_alpn(self) < 0))
        code = weir_error_set(error, -ENOMEM, "tls", "no memory for a config");
    if (code == 0 && config->key_log_file != NULL)
        code = weir__tls_key_log_open(&self->key_log, config->key_log_file, error);
    if (code == 0)
        code = weir__tls_credentials_read(&self->credentials, &self->config, self->is_server,
                                          error);
    if (code < 0)
        return code;
    if (config->session_lifetime_ns != WEIR_OFF)
        self->session_s = seconds_of(config->session_lifetime_ns);
    weir_error why = { 0 };
    if (weir__tls_material_ssl(self, &why) != NULL)
        return 0;
    if (error != NULL)
        *error = why;
    return why.code;
}

int weir__tls_material_new(weir_tls_material **material, weir_tls_context *context,
                           const weir_tls_config *config, weir_error *error)
{
    weir_tls_material *self = weir_zalloc(sizeof *self);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "tls", "no memory for a context");
    atomic_init(&self->refs, 1);
    pthread_mutex_init(&self->lock, NULL);
    self->context = context;
    self->is_server = context->is_server;
    self->trust = atomic_fetch_add_explicit(&context->trusts, 1, memory_order_relaxed) + 1;
    int code = fill(self, config, error);
    if (code < 0) {
        weir__tls_material_release(self);
        return code;
    }
    *material = self;
    return 0;
}

weir_tls_material *weir__tls_material_retain(weir_tls_material *material)
{
    atomic_fetch_add_explicit(&material->refs, 1, memory_order_relaxed);
    return material;
}

/* A secret among the texts. */
static void wipe(const weir_tls_material *self, const char *text)
{
    if (text != NULL)
        OPENSSL_cleanse(self->texts + (text - self->texts), strlen(text));
}

void weir__tls_material_release(weir_tls_material *material)
{
    if (material == NULL || atomic_fetch_sub_explicit(&material->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < WEIR__TLS_SHARDS; i++)
        SSL_CTX_free(material->shards[i].ssl);
    weir__tls_credentials_free(&material->credentials);
    BIO_free(material->key_log);
    weir_free(material->alpn);
    wipe(material, material->config.key_pem);
    wipe(material, material->config.key_password);
    weir_free(material->alpn_names);
    weir_free(material->texts);
    pthread_mutex_destroy(&material->lock);
    weir_free(material);
}
