/* SPDX-License-Identifier: MIT */
/* Resolving: from text, which may name a host, to the addresses to try. */
#ifndef WEIR_RESOLVER_H
#define WEIR_RESOLVER_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/error.h>
#include <weir/executor.h>
#include <weir/future.h>

WEIR_BEGIN_DECLS

/* Lists of addresses ------------------------------------------------------------------------- */

/** As many addresses as a list has at most: nobody wants to wait for more of them to fail. */
#define WEIR_ADDRESSES_MAX 16

/** Addresses in the order in which to try them. To be read; it does not change. */
typedef struct weir_addresses {
    size_t count;
    const weir_address *list;
} weir_addresses;

/**
 * Copies `count` addresses, the most wanted first, into a list that takes turns between their kinds
 * (RFC 8305, section 4): the first one, then the first of another kind, the second of the first
 * kind, and so on, so that a family that does not work here costs one try and not all of them.
 * What occurs again and what is no address is left out, and so is what comes after
 * WEIR_ADDRESSES_MAX. The caller frees it. NULL: no memory. Any thread.
 */
WEIR_API weir_addresses *weir_addresses_new(const weir_address *from, size_t count);

/** Frees a list; NULL is fine. Is a weir_value_free_fn. */
WEIR_API void weir_addresses_free(void *addresses);

/* Resolving ---------------------------------------------------------------------------------- */

/** Who is asked for names, in place of the system: embed it, and set `resolve`. It has to outlive
 * its last question. */
typedef struct weir_resolver weir_resolver;
struct weir_resolver {
    /**
     * Looks for the addresses of a host and gives them that port. 0, and then `promise`, retained
     * for so long, is completed some time with a weir_addresses of at least one
     * (weir_promise_succeed with weir_addresses_free), or failed, best with WEIR_ENONAME or
     * WEIR_ENAMESERVICE, before what it is bound to ends. Or a negative code, and the promise is
     * left alone. When somebody cancels the promise, weir_promise_succeed says so, and the list
     * stays the resolver's to free. Must not wait: for that is `background`, borrowed. The host has
     * only letters, digits, and ".-_", 253 bytes at most, and is the caller's again after the call.
     * Any thread, several at once.
     */
    int (*resolve)(weir_resolver *resolver, weir_executor *background, const char *host,
                   uint16_t port, weir_promise *promise);
};

/**
 * Reads text and completes the promise with the addresses that it means, a weir_addresses that the
 * promise owns. The text has one of the forms of weir_address_parse, which are answered at once and
 * with one address, or is host:port, as in example.org:80. Then `resolver` is asked, or if that is
 * NULL, one of two name services; lookups run concurrently, and none waits for another's answer.
 *
 * c-ares, if weir was built with it: on the loop that the promise is bound to, or the group's
 * first, both families at once. A lookup reads the hosts file and /etc/resolv.conf again if they
 * have changed. The search list is that of its `search`, `domain` and `options ndots:` lines, or of
 * LOCALDOMAIN and RES_OPTIONS of the environment; without these it is empty, and the domain of the
 * machine's own host name is not used. Answers are cached for their lifetime, an hour at most, and
 * for 5 s that a name does not exist or has no address of a family, 2048 answers for each group.
 *
 * getaddrinfo otherwise, on up to 32 threads: also for groups that are manual, WEIR_IO_BLOCKING or
 * have a clock or a network of their own, and when WEIR_RESOLVER of the environment is
 * "getaddrinfo" (default: "auto"; a warning is logged for other values). A manual group asks when
 * it is stepped.
 *
 * 0, and then the promise is completed, with the list or with
 *     WEIR_ENONAME        there is no such host, or it has no address
 *     WEIR_ENAMESERVICE   the name service did not answer, or only that it failed; try again later
 *     -ENOMEM, or a system error that kept the name service from being asked
 *     -ECANCELED          somebody cancelled it, or a manual group was freed
 *     WEIR_ESHUTDOWN      the loop that looks it up has ended
 * Or a negative code, and then the promise is left alone, and `error` (NULL allowed) names the text
 * and says what to write instead: -EINVAL for a text that is neither, -ENOMEM, or the error of
 * starting the background's thread or of reading the files named above.
 *
 * Any thread. Cancelling the promise ends a lookup by c-ares; getaddrinfo cannot be interrupted,
 * and its answer is dropped. The group may be freed meanwhile, and that whose executor the promise
 * is bound to: c-ares' lookups fail then, getaddrinfo's complete on their thread.
 */
WEIR_API int weir_resolve(weir_group *group, weir_resolver *resolver, const char *text,
                          weir_promise *promise, weir_error *error);

WEIR_END_DECLS

#endif
