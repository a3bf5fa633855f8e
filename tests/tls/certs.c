/* SPDX-License-Identifier: MIT */
/* Certificates, keys and files for tests. */
#include "tls/certs.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add_extension(X509 *x509, X509 *issuer, int kind, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, x509, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(x509, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void take_text(BIO *bio, char *to, size_t size)
{
    int length = BIO_read(bio, to, (int)size - 1);
    assert_true(length > 0 && (size_t)length < size - 1);
    to[length] = '\0';
    BIO_free(bio);
}

void cert_make(cert *made, const cert_config *config)
{
    static long serial = 1000;
    *made = (cert){ .x509 = X509_new(), .key = EVP_EC_gen("P-256") };
    assert_non_null(made->key);
    X509 *x509 = made->x509;
    X509 *issuer = config->issuer != NULL ? config->issuer->x509 : x509;
    X509_set_version(x509, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x509), serial++);
    X509_gmtime_adj(X509_getm_notBefore(x509), config->from_s != 0 ? config->from_s : -3600);
    X509_gmtime_adj(X509_getm_notAfter(x509), config->until_s != 0 ? config->until_s : 3600);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_UTF8,
                               (const unsigned char *)config->name, -1, -1, 0);
    X509_set_issuer_name(x509, X509_get_subject_name(issuer));
    X509_set_pubkey(x509, made->key);
    add_extension(x509, issuer, NID_basic_constraints,
                  config->is_ca ? "critical,CA:TRUE" : "critical,CA:FALSE");
    add_extension(x509, issuer, NID_subject_key_identifier, "hash");
    if (config->alt != NULL)
        add_extension(x509, issuer, NID_subject_alt_name, config->alt);
    assert_true(X509_sign(x509, config->issuer != NULL ? config->issuer->key : made->key,
                          EVP_sha256()) > 0);
    BIO *bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, x509);
    take_text(bio, made->pem, sizeof made->pem);
    bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PKCS8PrivateKey(bio, made->key, NULL, NULL, 0, NULL, NULL);
    take_text(bio, made->key_pem, sizeof made->key_pem);
}

void cert_free(cert *made)
{
    X509_free(made->x509);
    EVP_PKEY_free(made->key);
    *made = (cert){ 0 };
}

void cert_key_with_password(const cert *of, const char *password, char *to, size_t size)
{
    BIO *bio = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_write_bio_PKCS8PrivateKey(bio, of->key, EVP_aes_128_cbc(), password,
                                                   (int)strlen(password), NULL, NULL),
                     1);
    take_text(bio, to, size);
}

static char directory[64];

const char *cert_directory(void)
{
    if (directory[0] == '\0') {
        snprintf(directory, sizeof directory, "/tmp/weir-test-tls-XXXXXX");
        assert_non_null(mkdtemp(directory));
    }
    return directory;
}

const char *cert_file(const char *name, const char *text)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", cert_directory(), name);
    if (text == NULL)
        return path;
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    return path;
}

void cert_forget_files(void)
{
    char path[384];
    DIR *all = directory[0] != '\0' ? opendir(directory) : NULL;
    for (struct dirent *next; all != NULL && (next = readdir(all)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", directory, next->d_name);
        if (next->d_name[0] != '.')
            unlink(path);
    }
    if (all != NULL) {
        closedir(all);
        rmdir(directory);
    }
    directory[0] = '\0';
}

const char *cert_hashed_name(const cert *of)
{
    static char name[32];
    snprintf(name, sizeof name, "%08lx.0",
             X509_NAME_hash_ex(X509_get_subject_name(of->x509), NULL, NULL, NULL));
    return name;
}
