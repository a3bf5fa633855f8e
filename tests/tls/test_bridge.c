/* SPDX-License-Identifier: MIT */
/* Bridges of channels with TLS: on the front, on the back, and on both. */
#include "handler/bridges.h"
#include "tls/pair.h"

#include <openssl/ssl.h>

enum { TLS_FRONT = 1, TLS_BACK = 2, TLS_BOTH = 3 };

/* Peers that are OpenSSL's, or plain -------------------------------------------------------------
 */

typedef struct talker {
    int fd;
    SSL_CTX *context;
    SSL *ssl; /* NULL: plain */
} talker;

static void use_identity(SSL_CTX *context)
{
    BIO *certificate = BIO_new_mem_buf(pair_identity()->certificate_pem, -1);
    BIO *key = BIO_new_mem_buf(pair_identity()->key_pem, -1);
    X509 *x509 = PEM_read_bio_X509(certificate, NULL, NULL, NULL);
    EVP_PKEY *pkey = PEM_read_bio_PrivateKey(key, NULL, NULL, NULL);
    assert_int_equal(SSL_CTX_use_certificate(context, x509), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(context, pkey), 1);
    X509_free(x509);
    EVP_PKEY_free(pkey);
    BIO_free(certificate);
    BIO_free(key);
}

static void open_talker(talker *self, int fd, bool is_tls, bool is_server)
{
    *self = (talker){ .fd = fd };
    if (!is_tls)
        return;
    self->context = SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method());
    assert_non_null(self->context);
    if (is_server)
        use_identity(self->context);
    self->ssl = SSL_new(self->context);
    assert_int_equal(SSL_set_fd(self->ssl, fd), 1);
    if (is_server)
        SSL_set_accept_state(self->ssl);
    else
        SSL_set_connect_state(self->ssl);
}

static void shake(talker *self)
{
    if (self->ssl != NULL && SSL_do_handshake(self->ssl) != 1)
        fail_msg("no handshake, error %d", SSL_get_error(self->ssl, 0));
}

static void say(talker *self, const void *bytes, size_t length)
{
    if (self->ssl == NULL)
        peer_send(self->fd, bytes, length);
    else
        assert_int_equal(SSL_write(self->ssl, bytes, (int)length), (int)length);
}

static void say_pattern(talker *self, size_t at, size_t length)
{
    uint8_t bytes[8192];
    for (size_t part; length > 0; at += part, length -= part) {
        part = length < sizeof bytes ? length : sizeof bytes;
        fill_pattern(bytes, at, part);
        say(self, bytes, part);
    }
}

/* A positive count, 0 for EOF, or -1. */
static int take(talker *self, void *to, size_t size)
{
    if (self->ssl == NULL || SSL_pending(self->ssl) == 0)
        peer_wait(self->fd, POLLIN);
    int code = self->ssl == NULL ? (int)recv(self->fd, to, size, 0)
                                 : SSL_read(self->ssl, to, (int)size);
    if (code > 0 || self->ssl == NULL)
        return code;
    return SSL_get_error(self->ssl, code) == SSL_ERROR_ZERO_RETURN ? 0 : -1;
}

static void hear_pattern(talker *self, size_t at, size_t length)
{
    uint8_t bytes[16384];
    while (length > 0) {
        int code = take(self, bytes, length < sizeof bytes ? length : sizeof bytes);
        if (code <= 0)
            fail_msg("%d with %zu bytes to come", code, length);
        assert_true(is_pattern(bytes, at, (size_t)code));
        at += (size_t)code;
        length -= (size_t)code;
    }
}

static void hear_eof(talker *self)
{
    char byte;
    assert_int_equal(take(self, &byte, 1), 0);
}

/* close_notify, and FIN where there is no TLS to say it. */
static void end_output(talker *self)
{
    if (self->ssl != NULL)
        assert_in_range(SSL_shutdown(self->ssl), 0, 1);
    shutdown(self->fd, SHUT_WR);
}

/* `length` bytes in one direction, and EOF. */
static void pass_stream(talker *from, talker *to, size_t length)
{
    say_pattern(from, 0, length);
    end_output(from);
    hear_pattern(to, 0, length);
    hear_eof(to);
}

static void close_talker(talker *self)
{
    SSL_free(self->ssl);
    SSL_CTX_free(self->context);
}

/* Proxies ----------------------------------------------------------------------------------------
 */

/* A proxy between two peers, with contexts for the sides that have TLS. */
typedef struct tls_proxy {
    proxy proxy;
    int sides;
    weir_tls front, back;
    talker left, right;
} tls_proxy;

static tls_proxy *tls_of(proxy *self)
{
    return WEIR_CONTAINER(self, tls_proxy, proxy);
}

static int add_tls(weir_channel *channel, const weir_tls *tls)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "tls", &weir_tls_handler,
                                  (void *)(uintptr_t)tls);
}

static int add_front_tls(proxy *self, weir_channel *front)
{
    return tls_of(self)->sides & TLS_FRONT ? add_tls(front, &tls_of(self)->front) : 0;
}

static int add_back_tls(proxy *self, weir_channel *back)
{
    return tls_of(self)->sides & TLS_BACK ? add_tls(back, &tls_of(self)->back) : 0;
}

static void prepare(tls_proxy *self, int sides)
{
    *self = (tls_proxy){ .sides = sides };
    self->front.context = pair_server_context(NULL);
    self->back.context = pair_client_context(NULL);
    self->back.host = "localhost";
    self->proxy.before = add_front_tls;
    self->proxy.init_back = add_back_tls;
    self->proxy.config.relay_after_bytes = 1;
}

static void open_left(tls_proxy *self)
{
    open_talker(&self->left, self->proxy.client, self->sides & TLS_FRONT, false);
}

static void open_right(tls_proxy *self)
{
    open_talker(&self->right, self->proxy.server, self->sides & TLS_BACK, true);
}

/* Connected; handshakes of both are done one after another. */
static void open_tls(tls_proxy *self, int sides)
{
    prepare(self, sides);
    open_proxy(&self->proxy);
    open_left(self);
    open_right(self);
    shake(&self->left);
    shake(&self->right);
}

static void end_tls(tls_proxy *self)
{
    close_talker(&self->left);
    close_talker(&self->right);
    end_proxy(&self->proxy);
    weir_tls_context_release(self->front.context);
    weir_tls_context_release(self->back.context);
}

/* The peer of the back channel, or of the front channel. */
static talker *peer_of(tls_proxy *self, bool is_back)
{
    return is_back ? &self->right : &self->left;
}

#define FOR_EACH_SIDES(sides) for (int sides = TLS_FRONT; (sides) <= TLS_BOTH; (sides)++)

/* Passing on -------------------------------------------------------------------------------------
 */

/* 5000 bytes in each direction, from that place of the pattern on. */
static void exchange(tls_proxy *self, size_t at)
{
    say_pattern(&self->left, at, 5000);
    hear_pattern(&self->right, at, 5000);
    say_pattern(&self->right, at, 5000);
    hear_pattern(&self->left, at, 5000);
}

static void bytes_arrive_in_both_directions(void **state)
{
    (void)state;
    FOR_EACH_SIDES(sides)
    {
        tls_proxy self;
        open_tls(&self, sides);
        for (size_t at = 0; at < 40 * 5000; at += 5000)
            exchange(&self, at);
        end_output(&self.left);
        hear_eof(&self.right);
        end_output(&self.right);
        hear_eof(&self.left);
        expect_complete(&self.proxy.end, 200000, 200000);
        end_tls(&self);
    }
}

/* The kernel would relay them in the clear. */
static void kernel_never_relays(void **state)
{
    (void)state;
    FOR_EACH_SIDES(sides)
    {
        tls_proxy self;
        open_tls(&self, sides);
        exchange(&self, 0);
        assert_false(is_relayed(self.proxy.front));
        assert_false(is_relayed(self.proxy.back));
        end_tls(&self);
    }
}

/* The client's handshake is done and it has spoken, and the upstream is not known yet. */
static void early_bytes_are_encrypted_for_the_upstream(void **state)
{
    (void)state;
    FOR_EACH_SIDES(sides)
    {
        tls_proxy self;
        prepare(&self, sides);
        self.proxy.is_late = true;
        open_proxy(&self.proxy);
        open_left(&self);
        shake(&self.left);
        say_pattern(&self.left, 0, 30000);
        end_output(&self.left);
        WAIT_FOR(weir_channel_is_input_closed(self.proxy.front));
        answer_upstream(&self.proxy);
        open_right(&self);
        shake(&self.right);
        hear_pattern(&self.right, 0, 30000);
        hear_eof(&self.right);
        pass_stream(&self.right, &self.left, 20000);
        expect_complete(&self.proxy.end, 30000, 20000);
        end_tls(&self);
    }
}

/* Ends -------------------------------------------------------------------------------------------
 */

static void close_notify_leaves_the_other_direction_open(void **state)
{
    (void)state;
    FOR_EACH_SIDES(sides)
    {
        for (int is_back = 0; is_back < 2; is_back++) {
            tls_proxy self;
            open_tls(&self, sides);
            talker *ends = peer_of(&self, is_back), *goes_on = peer_of(&self, !is_back);
            pass_stream(ends, goes_on, 1000);
            say_pattern(goes_on, 0, 300000);
            hear_pattern(ends, 0, 300000);
            assert_int_equal(atomic_load(&self.proxy.end.ends), 0);
            end_output(goes_on);
            hear_eof(ends);
            expect_complete(&self.proxy.end, is_back ? 300000 : 1000, is_back ? 1000 : 300000);
            end_tls(&self);
        }
    }
}

/* FIN without close_notify: somebody may have cut the stream. */
static void truncated_stream_resets_the_other(void **state)
{
    (void)state;
    FOR_EACH_SIDES(sides)
    {
        for (int is_back = 0; is_back < 2; is_back++) {
            tls_proxy self;
            if ((sides & (is_back ? TLS_BACK : TLS_FRONT)) == 0)
                continue;
            open_tls(&self, sides);
            talker *ends = peer_of(&self, is_back), *other = peer_of(&self, !is_back);
            say_pattern(ends, 0, 1000);
            hear_pattern(other, 0, 1000);
            shutdown(ends->fd, SHUT_WR);
            peer_expect_reset(other->fd);
            expect_failed(&self.proxy.end, WEIR_ETLS_TRUNCATED);
            end_tls(&self);
        }
    }
}

/* Bytes that are no TLS. */
static void handshake_that_fails_resets_the_other(void **state)
{
    (void)state;
    for (int is_back = 0; is_back < 2; is_back++) {
        tls_proxy self;
        prepare(&self, is_back ? TLS_BACK : TLS_FRONT);
        open_proxy(&self.proxy);
        int wrong = is_back ? self.proxy.server : self.proxy.client;
        int other = is_back ? self.proxy.client : self.proxy.server;
        peer_send(wrong, "this is no handshake at all", 27);
        peer_expect_reset(other);
        expect_broken(&self.proxy.end);
        end_tls(&self);
    }
}

/* What OpenSSL and weir make once. */
static int warm_up(void **state)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    use_identity(context);
    SSL_CTX_free(context);
    return pair_warm_up(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        bridge_cases(bytes_arrive_in_both_directions),
        bridge_cases(kernel_never_relays),
        bridge_cases(early_bytes_are_encrypted_for_the_upstream),
        bridge_cases(close_notify_leaves_the_other_direction_open),
        bridge_cases(truncated_stream_resets_the_other),
        bridge_cases(handshake_that_fails_resets_the_other),
    };
    return cmocka_run_group_tests(tests, warm_up, NULL);
}
