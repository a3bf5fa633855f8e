/* SPDX-License-Identifier: MIT */
/* The sessions that a client can resume, one for each server. */
#ifndef WEIR_TLS_SESSIONS_H
#define WEIR_TLS_SESSIONS_H

#include <weir/clock.h>

#include <openssl/ssl.h>

#include <pthread.h>
#include <stdint.h>

typedef struct weir_tls_kept_session weir_tls_kept_session;

/* The one that was used last comes first. */
typedef struct weir_tls_sessions {
    pthread_mutex_t lock;
    weir_tls_kept_session *first;
    int count;
    uint64_t trust; /* who was trusted when they were made; resumed, nobody is verified anew */
} weir_tls_sessions;

void weir__tls_sessions_init(weir_tls_sessions *sessions);
void weir__tls_sessions_deinit(weir_tls_sessions *sessions);

/* Keeps a session for a server, whose reference it takes, in the place of an older one. Without
 * memory, or when others are trusted by now, there is none. */
void weir__tls_sessions_put(weir_tls_sessions *sessions, uint64_t trust, const char *server,
                            SSL_SESSION *session);

/* The session for a server, with a reference; NULL: none. Those of TLS 1.3 are for one use, and one
 * whose life is over (weir__tls_life_left_s) is forgotten. */
SSL_SESSION *weir__tls_sessions_get(weir_tls_sessions *sessions, uint64_t trust, const char *server,
                                    int64_t most_s, weir_clock *wall);

/* Forgets all, for others are trusted from now on. */
void weir__tls_sessions_restart(weir_tls_sessions *sessions, uint64_t trust);

#endif
