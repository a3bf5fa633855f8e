/* SPDX-License-Identifier: MIT */
/* The life of sessions. */
#include "tls/life.h"

#include "tls/failure.h"
#include "tls/session.h"

#include <weir/executor.h>

#include <string.h>

#define SECOND_NS 1000000000

/* As it is in a session: never seen by another process, for the keys of tickets are not. */
typedef struct life {
    int64_t began_ns; /* by the clock of executors, which nobody sets */
    int64_t until_s;  /* by the wall clock */
} life;

int64_t weir__tls_now_ns(void)
{
    const weir_executor *executor = weir_executor_current();
    return executor != NULL ? weir_executor_now_ns(executor)
                            : weir_clock_now_ns(weir_clock_monotonic());
}

/* When the first of those expires by which the other side was verified. */
static int64_t find_until(const SSL *ssl)
{
    int64_t until_s = INT64_MAX;
    if (SSL_get_verify_mode(ssl) == SSL_VERIFY_NONE)
        return until_s;
    STACK_OF(X509) *chain = SSL_get0_verified_chain(ssl);
    for (int i = 0; i < sk_X509_num(chain); i++) { /* -1 for NULL: nobody has said who it is */
        int64_t its_s = weir__tls_seconds_of(X509_get0_notAfter(sk_X509_value(chain, i)));
        until_s = its_s < until_s ? its_s : until_s;
    }
    return until_s;
}

static bool find_life(SSL_SESSION *session, life *found)
{
    void *bytes = NULL;
    size_t length = 0;
    if (SSL_SESSION_get0_ticket_appdata(session, &bytes, &length) != 1 || length != sizeof *found)
        return false;
    memcpy(found, bytes, sizeof *found);
    return true;
}

void weir__tls_life_note(const SSL *ssl, SSL_SESSION *session)
{
    life its;
    if (session == NULL || find_life(session, &its))
        return;
    its = (life){ .began_ns = weir__tls_now_ns(), .until_s = find_until(ssl) };
    if (SSL_SESSION_set1_ticket_appdata(session, &its, sizeof its) != 1)
        weir__tls_failure_clear();
}

int64_t weir__tls_life_left_s(SSL_SESSION *session, int64_t most_s, weir_clock *wall)
{
    life its;
    if (!find_life(session, &its) || weir_clock_now_ns(wall) / SECOND_NS >= its.until_s)
        return 0;
    int64_t age_s = (weir__tls_now_ns() - its.began_ns) / SECOND_NS;
    return age_s < most_s ? most_s - age_s : 0;
}
