/* SPDX-License-Identifier: MIT */
/* Sessions as messages. */
#include "tls/session.h"

#include "tls/failure.h"
#include "tls/hello.h"

#include <weir/alloc.h>

#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <string.h>
#include <time.h>

static void session_destroy(weir_msg *msg)
{
    weir_free(msg);
}

const weir_msg_type weir_tls_session_type = { .name = "tls session", .destroy = session_destroy };

/* A certificate's own words, until they are copied. */
typedef struct words {
    char *subject, *issuer, *serial;
    unsigned char *der;
    int der_length;
} words;

static char *name_as_text(const X509_NAME *name)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *text = NULL, *bytes;
    if (bio != NULL && X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253) >= 0 &&
        BIO_write(bio, "", 1) == 1) {
        long length = BIO_get_mem_data(bio, &bytes);
        text = OPENSSL_memdup(bytes, (size_t)length);
    }
    BIO_free(bio);
    return text;
}

static char *serial_as_text(const X509 *certificate)
{
    BIGNUM *number = ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), NULL);
    char *text = number != NULL ? BN_bn2hex(number) : NULL;
    BN_free(number);
    return text;
}

static void drop_words(words *of)
{
    OPENSSL_free(of->subject);
    OPENSSL_free(of->issuer);
    OPENSSL_free(of->serial);
    OPENSSL_free(of->der);
}

static bool find_words(words *of, X509 *certificate)
{
    *of = (words){ 0 };
    of->subject = name_as_text(X509_get_subject_name(certificate));
    of->issuer = name_as_text(X509_get_issuer_name(certificate));
    of->serial = serial_as_text(certificate);
    of->der_length = i2d_X509(certificate, &of->der);
    if (of->subject != NULL && of->issuer != NULL && of->serial != NULL && of->der_length > 0)
        return true;
    drop_words(of);
    return false;
}

int64_t weir__tls_seconds_of(const ASN1_TIME *when)
{
    struct tm parts;
    return ASN1_TIME_to_tm(when, &parts) == 1 ? (int64_t)timegm(&parts) : 0;
}

/* What is behind a session in its memory. */
typedef struct tail {
    char *at;
} tail;

static const char *add_text(tail *to, const char *text, size_t length)
{
    char *copy = to->at;
    memcpy(copy, text, length);
    copy[length] = '\0';
    to->at += length + 1;
    return copy;
}

static bool add_certificate(tail *to, weir_tls_certificate *certificate, const words *of,
                            const SSL *ssl, const X509 *x509)
{
    unsigned length = sizeof certificate->sha256;
    certificate->subject = add_text(to, of->subject, strlen(of->subject));
    certificate->issuer = add_text(to, of->issuer, strlen(of->issuer));
    certificate->serial = add_text(to, of->serial, strlen(of->serial));
    certificate->not_before_s = weir__tls_seconds_of(X509_get0_notBefore(x509));
    certificate->not_after_s = weir__tls_seconds_of(X509_get0_notAfter(x509));
    memcpy(to->at, of->der, (size_t)of->der_length);
    certificate->der = (const uint8_t *)to->at;
    certificate->der_length = (size_t)of->der_length;
    to->at += of->der_length;
    certificate->is_verified = SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE &&
                               SSL_get_verify_result(ssl) == X509_V_OK;
    return X509_digest(x509, EVP_sha256(), certificate->sha256, &length) == 1;
}

/* The host of a session: the one a client has verified, or the name it has sent to this server, as
 * the handler for SNI reads it. NULL: none. */
static const char *host_of(const SSL *ssl, const char *host, char read[256])
{
    if (SSL_is_server(ssl) != 1)
        return host;
    if (host == NULL)
        host = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    bool is_name = host != NULL && weir__tls_read_name(host, strlen(host), read);
    return is_name && read[0] != '\0' ? read : NULL;
}

/* With a certificate behind it, when there are words of one. */
static weir_tls_session *make(const SSL *ssl, const char *host, const words *of, const X509 *x509)
{
    const unsigned char *alpn;
    unsigned alpn_length;
    char read[256];
    const char *cipher = SSL_get_cipher_name(ssl);
    SSL_get0_alpn_selected(ssl, &alpn, &alpn_length);
    host = host_of(ssl, host, read);
    size_t size = sizeof(weir_tls_session) + sizeof(weir_tls_certificate) + strlen(cipher) + 1 +
                  alpn_length + 1 + (host != NULL ? strlen(host) + 1 : 0);
    if (of != NULL)
        size += strlen(of->subject) + strlen(of->issuer) + strlen(of->serial) + 3 +
                (size_t)of->der_length;
    weir_tls_session *self = weir_zalloc(size);
    if (self == NULL)
        return NULL;
    weir_tls_certificate *certificate = (weir_tls_certificate *)(self + 1);
    tail to = { .at = (char *)(certificate + 1) };
    weir_msg_init(&self->msg, &weir_tls_session_type);
    self->version = SSL_version(ssl) == TLS1_3_VERSION ? WEIR_TLS_1_3 : WEIR_TLS_1_2;
    self->cipher = add_text(&to, cipher, strlen(cipher));
    self->alpn = alpn_length > 0 ? add_text(&to, (const char *)alpn, alpn_length) : NULL;
    self->host = host != NULL ? add_text(&to, host, strlen(host)) : NULL;
    self->is_server = SSL_is_server(ssl) == 1;
    self->is_resumed = SSL_session_reused(ssl) == 1;
    if (of == NULL)
        return self;
    self->peer = certificate;
    if (add_certificate(&to, certificate, of, ssl, x509))
        return self;
    weir_msg_release(&self->msg);
    return NULL;
}

weir_tls_session *weir__tls_session_new(const SSL *ssl, const char *host)
{
    words of;
    X509 *certificate = SSL_get0_peer_certificate(ssl);
    weir__tls_failure_clear();
    if (certificate == NULL)
        return make(ssl, host, NULL, NULL);
    if (!find_words(&of, certificate)) {
        weir__tls_failure_clear();
        return NULL;
    }
    weir_tls_session *self = make(ssl, host, &of, certificate);
    drop_words(&of);
    return self;
}
