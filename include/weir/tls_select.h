/* SPDX-License-Identifier: MIT */
/* TLS: which certificate, which protocol, and whether at all. */
#ifndef WEIR_TLS_SELECT_H
#define WEIR_TLS_SELECT_H

#include <weir/api.h>
#include <weir/handler.h>
#include <weir/pipeline.h>
#include <weir/tls.h>

WEIR_BEGIN_DECLS

/* Which certificate: by the name that the client asks for (SNI) ------------------------------- */

/** A name, "example.org", or all names with one more label, "*.example.org", and who that is. */
typedef struct weir_tls_host {
    const char *name;
    weir_tls_context *context; /* a server's */
} weir_tls_host;

/** A table of them: counted, never changed. */
typedef struct weir_tls_hosts weir_tls_hosts;

/** Makes one of any number of hosts, whose contexts it keeps. `otherwise` is for clients that name
 * no host, or none of these; NULL: they are refused. -EINVAL for a name that is none or is there
 * twice, which `error` (may be NULL) tells; -ENOMEM. Any thread, as all of these. */
WEIR_API int weir_tls_hosts_new(weir_tls_hosts **hosts, const weir_tls_host *list, size_t count,
                                weir_tls_context *otherwise, weir_error *error);
WEIR_API weir_tls_hosts *weir_tls_hosts_retain(weir_tls_hosts *hosts);
WEIR_API void weir_tls_hosts_release(weir_tls_hosts *hosts);

/** Who a name is: borrowed. NULL: nobody. A NULL name is a client that has not said one. Upper and
 * lower case are the same. An exact name goes before a wildcard. */
WEIR_API weir_tls_context *weir_tls_hosts_find(const weir_tls_hosts *hosts, const char *name);

/** Finds the context for a host name (NULL: the client named none), now or later: completes the
 * promise with a weir_tls_context, a reference of which goes with it (weir_tls_context_release as
 * the value's free function), or fails it; then the client is refused. On the channel's loop. */
typedef void (*weir_tls_choose_fn)(weir_channel *channel, const char *host, weir_promise *promise,
                                   void *arg);

/** How a context is chosen by host name. */
typedef struct weir_tls_sni {
    weir_tls tls;          /* for the handler that follows; its context is not used */
    weir_tls_hosts *hosts; /* one of the two; retained as long as the handler is there */
    weir_tls_choose_fn choose;
    void *arg;        /* of choose */
    size_t max_hello; /* bytes of a ClientHello, at most 65,536; 0: 16,384 */
} weir_tls_sni;

/**
 * Reads the ClientHello, in however many pieces and records it comes, finds the context for the
 * name in it, and puts a weir_tls_handler in its own place. Only then on_active
 * is fired for the handlers after it; earlier writes fail with -ENOTCONN. A trailing dot is removed
 * from the name before it is looked up. A client that sends an address instead of a name (RFC 6066
 * forbids it) gets the same context as one that names no host. A malformed ClientHello, or a name
 * that is no host name, is rejected with an alert before any context is chosen. Without auto_read
 * the handler reads by itself until the ClientHello is complete. The argument is a weir_tls_sni;
 * the add copies it before it returns, and `arg` of choose must outlive the channel.
 * handshake_timeout_ns starts here; a context that is chosen later is not used. On the channel's
 * loop only, as the next but one.
 */
extern WEIR_API const weir_handler_type weir_tls_sni_handler;

/* Which protocol: by ALPN ---------------------------------------------------------------------- */

/** A protocol, and what makes up the pipeline for it. */
typedef struct weir_tls_protocol {
    const char *name; /* "h2"; NULL: when none was agreed on */
    weir_init_fn init;
    void *arg;
} weir_tls_protocol;

/** The protocols of ALPN, and the handlers of each. */
typedef struct weir_tls_protocols {
    const weir_tls_protocol *list;
    size_t count;
} weir_tls_protocols;

/** Behind a weir_tls_handler: when the handshake is done, has the protocol's `init` add handlers,
 * and leaves the pipeline. A protocol that is not in the list closes the channel with
 * -EPROTONOSUPPORT. The argument is a weir_tls_protocols; the add copies it before it returns, with
 * its list and the names in it. `arg` of a protocol must outlive the channel. At most 256
 * protocols, each with an `init`, else the handler is rejected with -EINVAL. */
extern WEIR_API const weir_handler_type weir_tls_protocol_handler;

/* Whether at all ---------------------------------------------------------------------------------
 */

/** Plain and TLS on one port, for the time of a transition: if the first byte is that of a
 * handshake, a weir_tls_handler takes this one's place, else everything passes as it is. Only then
 * on_active is fired for the handlers after it, so a server that speaks first waits for the client;
 * earlier writes fail with -ENOTCONN. Without auto_read it reads by itself until it has decided. A
 * client that sends nothing for handshake_timeout_ns (0: 10 s; WEIR_OFF: no limit) is closed with
 * -ETIMEDOUT; the handshake has the remaining time. The argument is a weir_tls; the add copies it
 * before it returns. Handlers must check for a weir_tls_session before they send secrets. */
extern WEIR_API const weir_handler_type weir_tls_optional_handler;

WEIR_END_DECLS

#endif
