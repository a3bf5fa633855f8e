/* SPDX-License-Identifier: MIT */
/* Who may connect, by address: rules for networks, and a handler that keeps to them. */
#ifndef WEIR_IP_FILTER_H
#define WEIR_IP_FILTER_H

#include <weir/address.h>
#include <weir/api.h>
#include <weir/error.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/** The result of a rule. */
typedef enum weir_ip_verdict {
    WEIR_IP_REJECT,
    WEIR_IP_ACCEPT,
    WEIR_IP_ASK, /* weir_ip_filter_config.ask decides */
} weir_ip_verdict;

/** What becomes of those from a network. */
typedef struct weir_ip_rule {
    const char *network; /* 10.0.0.0/8, 2001:db8::/32, or a single address. All bits behind the
                            length are 0 */
    weir_ip_verdict verdict;
} weir_ip_rule;

/** Whether one is let in. Called where the handler's callbacks run, mostly the channel's loop, and
 * on several threads at once. */
typedef bool (*weir_ip_ask_fn)(weir_channel *channel, const weir_address *address, void *arg);

/**
 * Of the rules for networks that an address is in, the one for the smallest network counts,
 * whatever their order; `otherwise` where there is none, and for what has no IP address, as Unix
 * sockets. IPv4 in the form of IPv6 (::ffff:10.0.0.0/104 as a rule, or a peer of a listener for
 * both) counts as IPv4, and for that no rule for a network of IPv6 does, not even ::/0.
 *
 * Zero lets nobody in. All of it is copied.
 */
typedef struct weir_ip_filter_config {
    const weir_ip_rule *rules;
    size_t rule_count;
    weir_ip_verdict otherwise;
    weir_ip_ask_fn ask; /* needed for WEIR_IP_ASK */
    void *arg;          /* of that */
} weir_ip_filter_config;

/** Counted, and never changed: any number of channels on any loops share one. To change the rules,
 * make another one for those who connect from then on. */
typedef struct weir_ip_filter weir_ip_filter;

/** Makes one: the caller's reference. -EINVAL for a rule that is none, with bits behind its length,
 * or two for a network that contradict each other, which `error` (may be NULL) names; -ENOMEM. Any
 * thread, as all of these. */
WEIR_API int weir_ip_filter_new(weir_ip_filter **filter, const weir_ip_filter_config *config,
                                weir_error *error);

/** Take and release a reference. */
WEIR_API weir_ip_filter *weir_ip_filter_retain(weir_ip_filter *filter);
WEIR_API void weir_ip_filter_release(weir_ip_filter *filter);

/** What the rules say about an address. */
WEIR_API weir_ip_verdict weir_ip_filter_judge(const weir_ip_filter *filter,
                                              const weir_address *address);

/** How many connections were let in, and were not. */
typedef struct weir_ip_filter_stats {
    uint64_t accepted, rejected;
} weir_ip_filter_stats;

/** Copies the counters. */
WEIR_API void weir_ip_filter_get_stats(const weir_ip_filter *filter, weir_ip_filter_stats *stats);

/**
 * Looks at weir_channel_remote_address when it hears that the channel is active: behind a
 * weir_proxy_decoder that is the client's, before it the proxy's. Who is rejected is closed at
 * once, and the handlers behind it hear nothing of that connection but that they were added and
 * removed, and on_registered and on_unregistered. Who is accepted is looked at no more: the handler
 * leaves the pipeline.
 *
 * Add it with a weir_ip_filter as the argument, of which it keeps a reference, before the channel
 * is active, as in `init_child`. Added later it looks at once.
 */
extern WEIR_API const weir_handler_type weir_ip_filter_handler;

WEIR_END_DECLS

#endif
