/* SPDX-License-Identifier: MIT */
/* Sessions to resume, by server. */
#include "tls/sessions.h"

#include "tls/life.h"

#include <weir/alloc.h>

#include <stddef.h>
#include <string.h>

#define MOST 256

struct weir_tls_kept_session {
    weir_tls_kept_session *next;
    SSL_SESSION *session;
    char server[];
};

void weir__tls_sessions_init(weir_tls_sessions *sessions)
{
    *sessions = (weir_tls_sessions){ 0 };
    pthread_mutex_init(&sessions->lock, NULL);
}

void weir__tls_sessions_deinit(weir_tls_sessions *sessions)
{
    weir__tls_sessions_restart(sessions, 0);
    pthread_mutex_destroy(&sessions->lock);
}

static void drop(weir_tls_kept_session *kept)
{
    SSL_SESSION_free(kept->session);
    weir_free(kept);
}

/* Takes out the one for a server, or the last when there is none and too many; NULL. */
static weir_tls_kept_session *take(weir_tls_sessions *sessions, const char *server, int most)
{
    weir_tls_kept_session **at = &sessions->first;
    while (*at != NULL && strcmp((*at)->server, server) != 0 &&
           ((*at)->next != NULL || sessions->count < most))
        at = &(*at)->next;
    weir_tls_kept_session *taken = *at;
    if (taken == NULL)
        return NULL;
    *at = taken->next;
    sessions->count--;
    return taken;
}

static void put_first(weir_tls_sessions *sessions, weir_tls_kept_session *kept)
{
    kept->next = sessions->first;
    sessions->first = kept;
    sessions->count++;
}

void weir__tls_sessions_put(weir_tls_sessions *sessions, uint64_t trust, const char *server,
                            SSL_SESSION *session)
{
    size_t length = strlen(server) + 1;
    weir_tls_kept_session *kept = weir_alloc(sizeof *kept + length);
    if (kept == NULL) {
        SSL_SESSION_free(session);
        return;
    }
    kept->session = session;
    memcpy(kept->server, server, length);
    pthread_mutex_lock(&sessions->lock);
    bool is_trusted = trust == sessions->trust;
    weir_tls_kept_session *old = is_trusted ? take(sessions, server, MOST) : kept;
    if (is_trusted)
        put_first(sessions, kept);
    pthread_mutex_unlock(&sessions->lock);
    if (old != NULL)
        drop(old);
}

SSL_SESSION *weir__tls_sessions_get(weir_tls_sessions *sessions, uint64_t trust, const char *server,
                                    int64_t most_s, weir_clock *wall)
{
    SSL_SESSION *session = NULL;
    pthread_mutex_lock(&sessions->lock);
    weir_tls_kept_session *kept = trust == sessions->trust ? take(sessions, server, MOST + 1)
                                                           : NULL;
    bool is_good = kept != NULL && weir__tls_life_left_s(kept->session, most_s, wall) > 0;
    bool is_kept = is_good && SSL_SESSION_get_protocol_version(kept->session) < TLS1_3_VERSION;
    if (is_good) {
        session = kept->session;
        SSL_SESSION_up_ref(session);
    }
    if (is_kept)
        put_first(sessions, kept);
    pthread_mutex_unlock(&sessions->lock);
    if (kept != NULL && !is_kept)
        drop(kept);
    return session;
}

void weir__tls_sessions_restart(weir_tls_sessions *sessions, uint64_t trust)
{
    pthread_mutex_lock(&sessions->lock);
    sessions->trust = trust;
    weir_tls_kept_session *all = sessions->first;
    sessions->first = NULL;
    sessions->count = 0;
    pthread_mutex_unlock(&sessions->lock);
    while (all != NULL) {
        weir_tls_kept_session *next = all->next;
        drop(all);
        all = next;
    }
}
