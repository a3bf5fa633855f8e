/* SPDX-License-Identifier: MIT */
/* How long a session may be resumed. Nobody is verified then, so it counts from the handshake in
 * which somebody was, however often the session is resumed and its ticket made anew. */
#ifndef WEIR_TLS_LIFE_H
#define WEIR_TLS_LIFE_H

#include <weir/clock.h>

#include <openssl/ssl.h>

#include <stdbool.h>
#include <stdint.h>

/* Now, by the clock of the executor whose thread this is. */
int64_t weir__tls_now_ns(void);

/* Writes down in a session of `ssl`, whose whole handshake that was, when it began to live and when
 * the other side's certificates expire; in one that has this already nothing changes. It goes with
 * the session, into its ticket and into the sessions that come of it. Without memory there is none,
 * and such a session is not resumed. */
void weir__tls_life_note(const SSL *ssl, SSL_SESSION *session);

/* How many seconds of `most_s` a session still has; 0 when one of those certificates has expired by
 * now, or nothing was written down. */
int64_t weir__tls_life_left_s(SSL_SESSION *session, int64_t most_s, weir_clock *wall);

#endif
