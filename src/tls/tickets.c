/* SPDX-License-Identifier: MIT */
/* Session tickets: their keys, and what is done with them. */
#include "tls/tickets.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <string.h>

#define SECOND_NS 1000000000

void weir__tls_tickets_init(weir_tls_tickets *tickets)
{
    *tickets = (weir_tls_tickets){ 0 };
    pthread_mutex_init(&tickets->lock, NULL);
}

void weir__tls_tickets_deinit(weir_tls_tickets *tickets)
{
    OPENSSL_cleanse(tickets->keys, sizeof tickets->keys);
    pthread_mutex_destroy(&tickets->lock);
}

/* All from the one at `first` on, which are the older ones. */
static void wipe(weir_tls_tickets *tickets, int first)
{
    OPENSSL_cleanse(tickets->keys + first,
                    (size_t)(WEIR__TLS_TICKET_KEYS - first) * sizeof *tickets->keys);
    tickets->count = first;
}

void weir__tls_tickets_set_life(weir_tls_tickets *tickets, int64_t life_s)
{
    pthread_mutex_lock(&tickets->lock);
    tickets->change_ns = life_s * SECOND_NS / 2;
    if (life_s == 0)
        wipe(tickets, 0); /* nobody will ask for them any more */
    pthread_mutex_unlock(&tickets->lock);
}

/* A key makes tickets until it is changed, and the last of them is good for a life, of two changes:
 * three keys are enough. Whoever gets hold of one could read what was said with older tickets. */
static void wipe_old(weir_tls_tickets *tickets, int64_t now_ns)
{
    int good = 0;
    while (good < tickets->count && now_ns - tickets->keys[good].made_ns < 3 * tickets->change_ns)
        good++;
    if (good < tickets->count)
        wipe(tickets, good);
}

/* The newest, made when there is none or it is too old. */
static bool make_newest(weir_tls_tickets *tickets, int64_t now_ns)
{
    weir_tls_ticket_key *first = tickets->keys, made = { .made_ns = now_ns };
    if (tickets->count > 0 && now_ns - first->made_ns < tickets->change_ns)
        return true;
    if (RAND_bytes(made.name, sizeof made.name) != 1 ||
        RAND_priv_bytes(made.secret, sizeof made.secret) != 1 ||
        RAND_priv_bytes(made.mac_secret, sizeof made.mac_secret) != 1)
        return tickets->count > 0; /* rather an old one */
    memmove(first + 1, first, (WEIR__TLS_TICKET_KEYS - 1) * sizeof *first);
    *first = made;
    OPENSSL_cleanse(&made, sizeof made);
    if (tickets->count < WEIR__TLS_TICKET_KEYS)
        tickets->count++;
    return true;
}

static int find(const weir_tls_tickets *tickets, const unsigned char name[16])
{
    for (int i = 0; i < tickets->count; i++) {
        if (CRYPTO_memcmp(tickets->keys[i].name, name, sizeof tickets->keys[i].name) == 0)
            return i;
    }
    return -1;
}

static bool set_mac(EVP_MAC_CTX *mac, const weir_tls_ticket_key *key)
{
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)key->mac_secret,
                                          sizeof key->mac_secret),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_CTX_set_params(mac, parameters) == 1;
}

/* Under a copy of the key, outside of the lock. */
static int apply(const weir_tls_ticket_key *key, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                 EVP_MAC_CTX *mac, int is_encrypting)
{
    if (is_encrypting && RAND_bytes(iv, EVP_CIPHER_get_iv_length(EVP_aes_256_cbc())) != 1)
        return -1;
    bool is_set = EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->secret, iv,
                                    is_encrypting) == 1 &&
                  set_mac(mac, key);
    return is_set ? 1 : -1;
}

int weir__tls_tickets_apply(weir_tls_tickets *tickets, unsigned char name[16], unsigned char *iv,
                            EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int is_encrypting,
                            int64_t now_ns)
{
    weir_tls_ticket_key key;
    pthread_mutex_lock(&tickets->lock);
    wipe_old(tickets, now_ns);
    bool has_keys = make_newest(tickets, now_ns);
    int at = is_encrypting ? 0 : find(tickets, name);
    if (has_keys && at >= 0)
        key = tickets->keys[at];
    pthread_mutex_unlock(&tickets->lock);
    if (!has_keys)
        return -1;
    if (at < 0)
        return 0;
    if (is_encrypting)
        memcpy(name, key.name, sizeof key.name);
    int result = apply(&key, iv, cipher, mac, is_encrypting);
    OPENSSL_cleanse(&key, sizeof key);
    return result == 1 && at > 0 ? 2 : result;
}
