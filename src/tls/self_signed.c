/* SPDX-License-Identifier: MIT */
/* Certificates for development. */
#include "tls/failure.h"
#include "tls/hello.h"

#include <weir/tls_context.h>

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define YEAR_S (365L * 24 * 3600)
#define EARLY_S 3600L /* clocks differ */

static bool set_serial(X509 *certificate)
{
    unsigned char bytes[8];
    uint64_t number;
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    memcpy(&number, bytes, sizeof number);
    return ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), number >> 1 | 1) == 1;
}

static bool set_name(X509 *certificate, const char *host)
{
    X509_NAME *name = X509_get_subject_name(certificate);
    /* A common name has 64 characters at most; what counts are the names below. */
    size_t length = strlen(host);
    return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)host,
                                      length < 64 ? (int)length : 64, -1, 0) == 1 &&
           X509_set_issuer_name(certificate, name) == 1;
}

static bool add_extension(X509 *certificate, int kind, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    bool is_added = extension != NULL && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return is_added;
}

static bool is_address(const char *host)
{
    ASN1_OCTET_STRING *address = a2i_IPADDRESS(host);
    ASN1_OCTET_STRING_free(address);
    return address != NULL;
}

static bool add_host(X509 *certificate, const char *host)
{
    char names[300];
    snprintf(names, sizeof names, "%s:%s%s", is_address(host) ? "IP" : "DNS", host,
             strcmp(host, "localhost") == 0 ? ",IP:127.0.0.1,IP:::1" : "");
    return add_extension(certificate, NID_subject_alt_name, names);
}

static bool fill(X509 *certificate, EVP_PKEY *key, const char *host)
{
    return X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
           X509_gmtime_adj(X509_getm_notBefore(certificate), -EARLY_S) != NULL &&
           X509_gmtime_adj(X509_getm_notAfter(certificate), YEAR_S) != NULL &&
           set_name(certificate, host) && X509_set_pubkey(certificate, key) == 1 &&
           add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE") &&
           add_extension(certificate, NID_ext_key_usage, "serverAuth,clientAuth") &&
           add_host(certificate, host) && X509_sign(certificate, key, EVP_sha256()) > 0;
}

/* What a BIO holds, as a text. */
static bool take_text(BIO *bio, char *to, size_t size)
{
    char *bytes;
    long length = BIO_get_mem_data(bio, &bytes);
    if (length <= 0 || (size_t)length >= size)
        return false;
    memcpy(to, bytes, (size_t)length);
    to[length] = '\0';
    return true;
}

static bool write_down(weir_tls_self_signed *made, X509 *certificate, EVP_PKEY *key)
{
    BIO *certificate_bio = BIO_new(BIO_s_mem()), *key_bio = BIO_new(BIO_s_secmem());
    bool is_written = certificate_bio != NULL && key_bio != NULL &&
                      PEM_write_bio_X509(certificate_bio, certificate) == 1 &&
                      PEM_write_bio_PKCS8PrivateKey(key_bio, key, NULL, NULL, 0, NULL, NULL) == 1 &&
                      take_text(certificate_bio, made->certificate_pem,
                                sizeof made->certificate_pem) &&
                      take_text(key_bio, made->key_pem, sizeof made->key_pem);
    BIO_free(certificate_bio);
    BIO_free(key_bio);
    return is_written;
}

/* A name, with a wildcard or not, or an address. */
static bool can_be_host(const char *host)
{
    if (host == NULL)
        return false;
    const char *name = strncmp(host, "*.", 2) == 0 ? host + 2 : host;
    return weir__tls_is_host(name, strlen(name)) || is_address(host);
}

int weir_tls_self_signed_make(weir_tls_self_signed *made, const char *host, weir_error *error)
{
    if (made == NULL || !can_be_host(host))
        return weir_error_set(error, -EINVAL, "tls", "'%.100s' is no host",
                              host != NULL ? host : "");
    weir__tls_failure_clear();
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    bool is_made = key != NULL && certificate != NULL && fill(certificate, key, host) &&
                   write_down(made, certificate, key);
    int code = is_made
                   ? 0
                   : weir__tls_failure(error, WEIR_ETLS, "no certificate can be made for %s", host);
    weir__tls_failure_clear();
    X509_free(certificate);
    EVP_PKEY_free(key);
    return code;
}
