/* SPDX-License-Identifier: MIT */
/* The ip filter: rules in order, and the handler. */
#include <weir/ip_filter.h>

#include "base/address.h"
#include "base/alloc.h"
#include "channel/arg.h"
#include "handler/gate.h"
#include "handler/host_key.h"

#include <weir/channel.h>

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_PARENT SIZE_MAX

typedef struct rule {
    weir_host_key key;
    unsigned bits; /* of the key */
    weir_ip_verdict verdict;
    size_t parent; /* the smallest network around it */
} rule;

struct weir_ip_filter {
    _Atomic(uint32_t) refs;
    _Atomic(uint64_t) accepted, rejected;
    weir_ip_verdict otherwise;
    weir_ip_ask_fn ask;
    void *arg;
    size_t count;

    /* By the first address of their networks, larger networks first. Networks lie inside each other
     * or apart, so those around one come before it. */
    rule rules[];
};

/* Rules as text -------------------------------------------------------------------------------- */

WEIR_PRINTF(3, 4)
static int refuse(weir_error *error, const char *network, const char *format, ...)
{
    char why[160];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return weir_error_set(error, -EINVAL, "ip filter", "'%.60s': %s", network, why);
}

static const char *kind_name(bool is_ipv6)
{
    return is_ipv6 ? "2001:db8::/32" : "10.0.0.0/8";
}

/* The number behind the slash: -1 when it is none. */
static int read_length(const char *text, int most)
{
    int length = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 3 || text[digits] != '\0' || (text[0] == '0' && digits > 1))
        return -1;
    for (size_t i = 0; i < digits; i++)
        length = length * 10 + (text[i] - '0');
    return length <= most ? length : -1;
}

static int read_host(const char *network, size_t length, weir_address *address)
{
    char text[64];
    bool is_ipv6 = memchr(network, ':', length) != NULL;
    if (length == 0 || length > 45 || strspn(network, "0123456789abcdefABCDEF:.") < length)
        return -EINVAL;
    snprintf(text, sizeof text, is_ipv6 ? "[%.*s]:0" : "%.*s:0", (int)length, network);
    return weir_address_parse(address, text, NULL);
}

/* Which one was meant. */
static void masked_text(const weir_address *address, int length, char *to, size_t size)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_address masked = *address;
    bool is_ipv6 = weir_address_kind_of(address) == WEIR_ADDRESS_IPV6;
    if (is_ipv6) {
        struct in6_addr in6 = weir__address_ipv6_of(address).sin6_addr;
        weir__host_mask(in6.s6_addr, sizeof in6.s6_addr, (unsigned)length);
        weir__address_set_ipv6(&masked, in6, 0, 0);
    } else {
        struct in_addr in = weir__address_ipv4_of(address).sin_addr;
        weir__host_mask((uint8_t *)&in, sizeof in, (unsigned)length);
        weir__address_set_ipv4(&masked, in, 0);
    }
    weir_address_text(&masked, text, sizeof text);
    size_t host = strcspn(text + is_ipv6, is_ipv6 ? "]" : ":");
    snprintf(to, size, "%.*s/%d", (int)host, text + is_ipv6, length);
}

static int read_rule(const weir_ip_rule *from, rule *to, weir_error *error)
{
    const char *network = from->network != NULL ? from->network : "";
    size_t host = strcspn(network, "/");
    weir_address address;
    if (read_host(network, host, &address) < 0)
        return refuse(error, network,
                      "it is no network: write one as in 10.0.0.0/8 or "
                      "2001:db8::/32");
    bool is_ipv6 = weir_address_kind_of(&address) == WEIR_ADDRESS_IPV6;
    int most = is_ipv6 ? 128 : 32;
    int length = network[host] == '\0' ? most : read_length(network + host + 1, most);
    if (length < 0)
        return refuse(error, network,
                      "what follows the '/' is no number from 0 to %d: write one "
                      "as in %s",
                      most, kind_name(is_ipv6));
    bool is_mapped = length >= 96 && weir_address_unmap(&address);
    weir__host_key_of(&address, true, &to->key);
    length -= is_mapped ? 96 : 0;
    to->bits = (unsigned)length + WEIR__HOST_TAG_BITS;
    weir_host_key masked = to->key;
    weir__host_mask(masked.bytes, sizeof masked.bytes, to->bits);
    if (memcmp(&masked, &to->key, sizeof masked) != 0) {
        char meant[WEIR_ADDRESS_TEXT_MAX];
        masked_text(&address, length, meant, sizeof meant);
        return refuse(error, network,
                      "bits are set behind the first %d: write %s, or the address "
                      "alone",
                      length, meant);
    }
    to->verdict = from->verdict;
    return 0;
}

/* Order ---------------------------------------------------------------------------------------- */

static int compare_rules(const void *a, const void *b)
{
    const rule *one = a, *other = b;
    int order = memcmp(&one->key, &other->key, sizeof one->key);
    return order != 0 ? order : (int)one->bits - (int)other->bits;
}

static bool is_inside(const weir_host_key *key, const rule *network)
{
    weir_host_key masked = *key;
    weir__host_mask(masked.bytes, sizeof masked.bytes, network->bits);
    return memcmp(&masked, &network->key, sizeof masked) == 0;
}

/* The smallest network that a key is in, from `at` outwards. */
static size_t find_around(const rule *rules, size_t at, const weir_host_key *key)
{
    while (at != NO_PARENT && !is_inside(key, &rules[at]))
        at = rules[at].parent;
    return at;
}

/* One rule for a network is enough; two must not contradict each other. */
static int put_in_order(weir_ip_filter *self, const weir_ip_rule *from, weir_error *error)
{
    rule *rules = self->rules;
    size_t kept = 0;
    qsort(rules, self->count, sizeof *rules, compare_rules);
    for (size_t i = 0; i < self->count; i++) {
        rule *last = kept > 0 ? &rules[kept - 1] : NULL;
        if (last != NULL && compare_rules(last, &rules[i]) == 0) {
            if (last->verdict != rules[i].verdict)
                return refuse(error, from[rules[i].parent].network,
                              "another rule for the same network says something else");
            continue;
        }
        rules[kept] = rules[i];
        rules[kept].parent = find_around(rules, kept > 0 ? kept - 1 : NO_PARENT, &rules[i].key);
        kept++;
    }
    self->count = kept;
    return 0;
}

static bool is_verdict(weir_ip_verdict verdict, const weir_ip_filter_config *config)
{
    return verdict == WEIR_IP_REJECT || verdict == WEIR_IP_ACCEPT ||
           (verdict == WEIR_IP_ASK && config->ask != NULL);
}

static int read_rules(weir_ip_filter *self, const weir_ip_filter_config *config, weir_error *error)
{
    for (size_t i = 0; i < config->rule_count; i++) {
        const weir_ip_rule *from = &config->rules[i];
        int code = read_rule(from, &self->rules[i], error);
        if (code < 0)
            return code;
        if (!is_verdict(from->verdict, config))
            return refuse(error, from->network, "there is no such verdict, or nobody to ask");
        self->rules[i].parent = i; /* until they are in order: where it came from */
    }
    return config->rules != NULL ? put_in_order(self, config->rules, error) : 0;
}

/* The filter ----------------------------------------------------------------------------------- */

int weir_ip_filter_new(weir_ip_filter **filter, const weir_ip_filter_config *config,
                       weir_error *error)
{
    if (filter == NULL || config == NULL || (config->rules == NULL && config->rule_count > 0) ||
        !is_verdict(config->otherwise, config))
        return weir_error_set(error, -EINVAL, "ip filter",
                              "there are no rules, no such verdict, or nobody to ask");
    size_t room = (SIZE_MAX - sizeof **filter) / sizeof(rule);
    weir_ip_filter *self = config->rule_count <= room
                               ? weir__zalloc(sizeof *self + config->rule_count * sizeof(rule))
                               : NULL;
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "ip filter", "no memory for %zu rules",
                              config->rule_count);
    atomic_init(&self->refs, 1);
    self->otherwise = config->otherwise;
    self->ask = config->ask;
    self->arg = config->arg;
    self->count = config->rule_count;
    int code = read_rules(self, config, error);
    if (code < 0)
        weir__free(self);
    else
        *filter = self;
    return code;
}

weir_ip_filter *weir_ip_filter_retain(weir_ip_filter *filter)
{
    if (filter != NULL)
        atomic_fetch_add_explicit(&filter->refs, 1, memory_order_relaxed);
    return filter;
}

void weir_ip_filter_release(weir_ip_filter *filter)
{
    if (filter != NULL && atomic_fetch_sub_explicit(&filter->refs, 1, memory_order_acq_rel) == 1)
        weir__free(filter);
}

/* The last rule whose network begins at or before a key: that, or one around it, is the smallest
 * the key is in. */
static size_t find_last(const weir_ip_filter *filter, const weir_host_key *key)
{
    size_t begin = 0, end = filter->count;
    while (begin < end) {
        size_t middle = begin + (end - begin) / 2;
        if (memcmp(&filter->rules[middle].key, key, sizeof *key) <= 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin > 0 ? begin - 1 : NO_PARENT;
}

weir_ip_verdict weir_ip_filter_judge(const weir_ip_filter *filter, const weir_address *address)
{
    weir_host_key key;
    if (!weir__host_key_of(address, false, &key))
        return filter->otherwise;
    size_t found = find_around(filter->rules, find_last(filter, &key), &key);
    return found != NO_PARENT ? filter->rules[found].verdict : filter->otherwise;
}

void weir_ip_filter_get_stats(const weir_ip_filter *filter, weir_ip_filter_stats *stats)
{
    *stats = (weir_ip_filter_stats){
        .accepted = atomic_load_explicit(&filter->accepted, memory_order_relaxed),
        .rejected = atomic_load_explicit(&filter->rejected, memory_order_relaxed),
    };
}

/* The handler ---------------------------------------------------------------------------------- */

typedef struct filter_handler {
    weir_gate gate;
    weir_ip_filter *filter;
} filter_handler;

static bool admits(weir_ctx *ctx)
{
    filter_handler *self = weir_ctx_state(ctx);
    weir_ip_filter *filter = self->filter;
    weir_channel *channel = weir_ctx_channel(ctx);
    weir_address address;
    weir_channel_remote_address(channel, &address);
    weir_ip_verdict verdict = weir_ip_filter_judge(filter, &address);
    bool is_accepted = verdict == WEIR_IP_ASK ? filter->ask(channel, &address, filter->arg)
                                              : verdict == WEIR_IP_ACCEPT;
    atomic_fetch_add_explicit(is_accepted ? &filter->accepted : &filter->rejected, 1,
                              memory_order_relaxed);
    return is_accepted;
}

static void filter_added(weir_ctx *ctx)
{
    filter_handler *self = weir_ctx_state(ctx);
    self->filter = weir_ctx_arg(ctx);
    if (weir__arg_check_given(ctx, "weir_ip_filter", self->filter))
        weir__gate_init(ctx, admits);
}

static void filter_on_active(weir_ctx *ctx)
{
    const filter_handler *self = weir_ctx_state(ctx);
    weir__gate_on_active(ctx);
    if (!self->gate.is_refused)
        weir_ctx_remove(ctx);
}

static int filter_retain(void *arg)
{
    weir_ip_filter_retain(arg);
    return 0;
}

static void filter_release(void *arg)
{
    weir_ip_filter_release(arg);
}

const weir_handler_type weir_ip_filter_handler = {
    .name = "ip filter",
    .state_size = sizeof(filter_handler),
    .arg_retain = filter_retain,
    .arg_release = filter_release,
    .added = filter_added,
    .on_active = filter_on_active,
    .on_inactive = weir__gate_on_inactive,
    WEIR__GATE_CALLBACKS,
};
