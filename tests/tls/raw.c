/* SPDX-License-Identifier: MIT */
/* OpenSSL with two memory BIOs. */
#include "tls/raw.h"

#include <weir/channel.h>

#include <openssl/err.h>
#include <openssl/pem.h>

#include <string.h>

static void show_identity(SSL_CTX *context)
{
    BIO *bio = BIO_new_mem_buf(pair_identity()->certificate_pem, -1);
    X509 *x509 = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    bio = BIO_new_mem_buf(pair_identity()->key_pem, -1);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    BIO_free(bio);
    assert_int_equal(SSL_CTX_use_certificate(context, x509), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, key), 1);
    X509_free(x509);
    EVP_PKEY_free(key);
}

void raw_begin(raw *self, weir_embedded *to, bool is_server, int version)
{
    memset(self, 0, sizeof *self);
    self->to = to;
    self->context = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
    assert_non_null(self->context);
    if (version != 0)
        SSL_CTX_set_max_proto_version(self->context, version);
    if (is_server)
        show_identity(self->context);
    self->ssl = SSL_new(self->context);
    SSL_set_bio(self->ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if (is_server)
        SSL_set_accept_state(self->ssl);
    else
        SSL_set_connect_state(self->ssl);
}

size_t raw_send(raw *self)
{
    static char bytes[1 << 20];
    int length = BIO_read(SSL_get_wbio(self->ssl), bytes, sizeof bytes);
    if (length <= 0)
        return 0;
    if (weir_channel_is_open(weir_embedded_channel(self->to)))
        weir_embedded_write_inbound_bytes(self->to, bytes, (size_t)length);
    return (size_t)length;
}

static size_t take(raw *self)
{
    static char bytes[1 << 20];
    size_t length = weir_embedded_read_outbound_bytes(self->to, bytes, sizeof bytes);
    if (length > 0)
        BIO_write(SSL_get_rbio(self->ssl), bytes, (int)length);
    return length;
}

static void step(raw *self)
{
    int result;
    ERR_clear_error();
    if (!SSL_is_init_finished(self->ssl)) {
        result = SSL_do_handshake(self->ssl);
        self->last = SSL_get_error(self->ssl, result);
    }
    do {
        size_t room = sizeof self->heard - 1 - self->length, got = 0;
        result = SSL_read_ex(self->ssl, self->heard + self->length, room, &got);
        self->last = SSL_get_error(self->ssl, result);
        self->length += got;
    } while (result == 1);
    self->heard[self->length] = '\0';
    ERR_clear_error();
}

void raw_carry(raw *self)
{
    size_t moved;
    do {
        step(self);
        moved = raw_send(self);
        moved += take(self);
    } while (moved > 0);
}

void raw_say(raw *self, const char *text)
{
    assert_int_equal(SSL_write(self->ssl, text, (int)strlen(text)), (int)strlen(text));
}

void raw_end(raw *self)
{
    SSL_free(self->ssl);
    SSL_CTX_free(self->context);
}
