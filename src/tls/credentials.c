/* SPDX-License-Identifier: MIT */
/* Reading certificates and keys. */
#include "tls/credentials.h"

#include "tls/failure.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <dirent.h>
#include <errno.h>
#include <string.h>

/* Where a PEM comes from. */
typedef struct source {
    const char *what; /* for errors */
    const char *file, *text;
    weir_error *error;
    BIO *bio;
} source;

static const char *name_of(const source *from)
{
    return from->file != NULL ? from->file : "the text in memory";
}

static int open_source(source *from)
{
    weir__tls_failure_clear();
    from->bio = from->file != NULL ? BIO_new_file(from->file, "r")
                                   : BIO_new_mem_buf(from->text, -1);
    return from->bio != NULL ? 0
                             : weir__tls_failure(from->error, -ENOMEM, "cannot read the %s in %s",
                                                 from->what, name_of(from));
}

/* Behind the last PEM there is nothing more to find, which is no error. */
static bool is_at_end(void)
{
    unsigned long last = ERR_peek_last_error();
    return last == 0 ||
           (ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE);
}

/* A password is given or not; nobody at a terminal is asked. */
typedef struct password {
    const char *text; /* NULL: none */
    bool is_asked;
} password;

static int give_password(char *to, int size, int is_encrypting, void *arg)
{
    password *given = arg;
    (void)is_encrypting;
    given->is_asked = true;
    size_t length = given->text != NULL ? strlen(given->text) : 0;
    if (given->text == NULL || length > (size_t)size)
        return -1;
    memcpy(to, given->text, length);
    return (int)length;
}

/* OpenSSL looks at the extensions once, when it first needs them, and remembers that this failed,
 * also for lack of memory: for a certificate that many share that must not happen in a handshake.
 * False without memory; one that makes no sense is refused when it is used. */
static bool is_looked_at(X509 *certificate)
{
    weir__tls_failure_clear();
    X509_check_purpose(certificate, -1, 0);
    return weir__tls_failure(NULL, 0, "extensions") != -ENOMEM;
}

/* All certificates of a source, in order. */
static int read_certificates(source *from, STACK_OF(X509) * *list)
{
    password none = { 0 };
    int code = open_source(from);
    if (code < 0)
        return code;
    *list = sk_X509_new_null();
    bool has_room = *list != NULL;
    for (X509 *next; has_room && (next = PEM_read_bio_X509_AUX(from->bio, NULL, give_password,
                                                               &none)) != NULL;) {
        has_room = is_looked_at(next) && sk_X509_push(*list, next) > 0;
        if (!has_room)
            X509_free(next);
    }
    BIO_free(from->bio);
    if (has_room && sk_X509_num(*list) > 0 && is_at_end()) {
        weir__tls_failure_clear();
        return 0;
    }
    code = weir__tls_failure(from->error, has_room ? WEIR_ETLS_PEM : -ENOMEM,
                             "no %s can be read from %s", from->what, name_of(from));
    sk_X509_pop_free(*list, X509_free);
    *list = NULL;
    return code;
}

static int read_key(source *from, const char *key_password, EVP_PKEY **key)
{
    password given = { .text = key_password };
    int code = open_source(from);
    if (code < 0)
        return code;
    *key = PEM_read_bio_PrivateKey(from->bio, NULL, give_password, &given);
    BIO_free(from->bio);
    if (*key != NULL)
        return 0;
    if (!given.is_asked)
        return weir__tls_failure(from->error, WEIR_ETLS_PEM, "no %s can be read from %s",
                                 from->what, name_of(from));
    return weir__tls_failure(from->error, WEIR_ETLS_PASSWORD,
                             given.text == NULL ? "the key in %s is encrypted, and there is no "
                                                  "key_password"
                                                : "key_password does not fit the key in %s",
                             name_of(from));
}

/* Who we are ----------------------------------------------------------------------------------- */

static int read_identity(weir_tls_credentials *self, const weir_tls_config *config,
                         weir_error *error)
{
    source certificate = { "certificate", config->certificate_file, config->certificate_pem,
                           .error = error };
    source key = { "key", config->key_file, config->key_pem, .error = error };
    int code = read_certificates(&certificate, &self->chain);
    if (code < 0)
        return code;
    self->certificate = sk_X509_shift(self->chain);
    code = read_key(&key, config->key_password, &self->key);
    if (code < 0)
        return code;
    if (X509_check_private_key(self->certificate, self->key) == 1)
        return 0;
    return weir__tls_failure(error, WEIR_ETLS_KEY,
                             "the key in %s does not belong to the "
                             "certificate in %s",
                             name_of(&key), name_of(&certificate));
}

/* Whom we trust -------------------------------------------------------------------------------- */

static bool add_name(weir_tls_credentials *self, X509 *certificate)
{
    X509_NAME *name = X509_NAME_dup(X509_get_subject_name(certificate));
    if (name != NULL && sk_X509_NAME_push(self->trusted_names, name) > 0)
        return true;
    X509_NAME_free(name);
    return false;
}

static int trust(weir_tls_credentials *self, const weir_tls_config *config, weir_error *error)
{
    STACK_OF(X509) * list;
    source from = { "trusted certificate", config->ca_file, config->ca_pem, .error = error };
    int code = read_certificates(&from, &list);
    if (code < 0)
        return code;
    self->trusted_names = sk_X509_NAME_new_null();
    bool is_added = self->trusted_names != NULL;
    for (int i = 0; i < sk_X509_num(list) && is_added; i++) {
        X509 *next = sk_X509_value(list, i);
        is_added = X509_STORE_add_cert(self->trusted, next) == 1 && add_name(self, next);
    }
    sk_X509_pop_free(list, X509_free);
    return is_added
               ? 0
               : weir__tls_failure(error, -ENOMEM, "cannot trust what is in %s", name_of(&from));
}

/* OpenSSL looks into it when a certificate is verified, and would only then find nobody there. */
static int trust_directory(weir_tls_credentials *self, const char *path, weir_error *error)
{
    DIR *directory = opendir(path);
    if (directory == NULL)
        return weir_error_set(error, -errno, "tls", "cannot trust what is in %s: %s", path,
                              weir_error_text(-errno));
    closedir(directory);
    return X509_STORE_load_path(self->trusted, path) == 1
               ? 0
               : weir__tls_failure(error, -ENOMEM, "cannot trust what is in %s", path);
}

static int read_trusted(weir_tls_credentials *self, const weir_tls_config *config, bool is_server,
                        weir_error *error)
{
    bool has_list = config->ca_file != NULL || config->ca_pem != NULL;
    if (is_server && !has_list && config->ca_directory == NULL)
        return 0;
    weir__tls_failure_clear();
    self->trusted = X509_STORE_new();
    if (self->trusted == NULL)
        return weir__tls_failure(error, -ENOMEM, "no memory for whom to trust");
    int code = has_list ? trust(self, config, error) : 0;
    if (code == 0 && config->ca_directory != NULL)
        code = trust_directory(self, config->ca_directory, error);
    if (code == 0 && !has_list && config->ca_directory == NULL &&
        X509_STORE_set_default_paths(self->trusted) != 1)
        code = weir__tls_failure(error, -ENOMEM, "cannot trust whom the system trusts");
    weir__tls_failure_clear();
    return code;
}

int weir__tls_credentials_read(weir_tls_credentials *credentials, const weir_tls_config *config,
                               bool is_server, weir_error *error)
{
    *credentials = (weir_tls_credentials){ 0 };
    bool has_identity = config->certificate_file != NULL || config->certificate_pem != NULL;
    int code = has_identity ? read_identity(credentials, config, error) : 0;
    if (code == 0)
        code = read_trusted(credentials, config, is_server, error);
    if (code < 0)
        weir__tls_credentials_free(credentials);
    return code;
}

void weir__tls_credentials_free(weir_tls_credentials *credentials)
{
    X509_free(credentials->certificate);
    sk_X509_pop_free(credentials->chain, X509_free);
    EVP_PKEY_free(credentials->key);
    X509_STORE_free(credentials->trusted);
    sk_X509_NAME_pop_free(credentials->trusted_names, X509_NAME_free);
    *credentials = (weir_tls_credentials){ 0 };
}
