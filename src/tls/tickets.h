/* SPDX-License-Identifier: MIT */
/* The keys of a server's session tickets, which change with time. */
#ifndef WEIR_TLS_TICKETS_H
#define WEIR_TLS_TICKETS_H

#include <openssl/ssl.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define WEIR__TLS_TICKET_KEYS 3

typedef struct weir_tls_ticket_key {
    unsigned char name[16], secret[32], mac_secret[32];
    int64_t made_ns;
} weir_tls_ticket_key;

/* The newest first. Tickets are made with that one, and understood with all. */
typedef struct weir_tls_tickets {
    pthread_mutex_t lock;
    weir_tls_ticket_key keys[WEIR__TLS_TICKET_KEYS];
    int count;
    int64_t change_ns; /* how old the newest may get */
} weir_tls_tickets;

void weir__tls_tickets_init(weir_tls_tickets *tickets);
void weir__tls_tickets_deinit(weir_tls_tickets *tickets);

/* How long a ticket is good for; 0: none is. */
void weir__tls_tickets_set_life(weir_tls_tickets *tickets, int64_t life_s);

/* What OpenSSL's callback for tickets returns: 1, 2 when the ticket should be made anew, 0 when it
 * is not known, -1. Keys whose tickets cannot be good any more are wiped before. */
int weir__tls_tickets_apply(weir_tls_tickets *tickets, unsigned char name[16], unsigned char *iv,
                            EVP_CIPHER_CTX *cipher, EVP_MAC_CTX *mac, int is_encrypting,
                            int64_t now_ns);

#endif
