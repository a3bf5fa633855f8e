/* SPDX-License-Identifier: MIT */
/* Resolving: reads a text, answers addresses at once, and has names looked up; and the lists of
 * addresses. */
#include "base/alloc.h"
#include "base/env.h"
#include "bootstrap/addresses.h"
#include "bootstrap/names.h"

#include <weir/log.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HOST_MAX 253 /* bytes of a name: what fits in the 255 that DNS has for one */

static const char digits[] = "0123456789";
static const char hex_digits[] = "0123456789abcdefABCDEF";
static const char letters[] = "0123456789.-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/* Lists ------------------------------------------------------------------------------------------
 */

void weir__candidates_add(weir_candidates *self, const weir_address *address)
{
    weir_address_kind kind = weir_address_kind_of(address);
    if (kind == WEIR_ADDRESS_NONE)
        return;
    int side = self->count[0] > 0 && kind != weir_address_kind_of(&self->list[0][0]);
    size_t at = 0;
    while (at < self->count[side] && !weir_address_equal(&self->list[side][at], address))
        at++;
    if (at == self->count[side] && at < WEIR_ADDRESSES_MAX)
        self->list[side][self->count[side]++] = *address;
}

weir_addresses *weir__candidates_list(const weir_candidates *from)
{
    size_t count = from->count[0] + from->count[1];
    if (count > WEIR_ADDRESSES_MAX)
        count = WEIR_ADDRESSES_MAX;
    weir_addresses *self = weir__alloc(sizeof *self + count * sizeof(weir_address));
    if (self == NULL)
        return NULL;
    weir_address *list = (weir_address *)(self + 1);
    size_t taken[2] = { 0, 0 };
    for (size_t i = 0, side = 0; i < count; i++, side ^= 1) {
        if (taken[side] == from->count[side])
            side ^= 1;
        list[i] = from->list[side][taken[side]++];
    }
    *self = (weir_addresses){ .count = count, .list = list };
    return self;
}

weir_addresses *weir_addresses_new(const weir_address *from, size_t count)
{
    weir_candidates all = { 0 };
    for (size_t i = 0; i < count; i++)
        weir__candidates_add(&all, &from[i]);
    return weir__candidates_list(&all);
}

void weir_addresses_free(void *addresses)
{
    weir__free(addresses);
}

/* A promise that was cancelled does not want them any more. */
void weir__addresses_succeed(weir_promise *promise, weir_addresses *addresses)
{
    if (weir_promise_succeed(promise, addresses, weir_addresses_free) < 0)
        weir_addresses_free(addresses);
}

static void add_all(weir_candidates *to, const weir_candidates *from, uint16_t port)
{
    for (size_t side = 0; side < 2; side++) {
        for (size_t i = 0; i < from->count[side]; i++) {
            weir_address address = from->list[side][i];
            weir_address_set_port(&address, port);
            weir__candidates_add(to, &address);
        }
    }
}

/* IPv6 first (RFC 8305, section 4). */
int weir__candidates_succeed(const weir_candidates *ipv6, const weir_candidates *ipv4,
                             uint16_t port, weir_promise *promise)
{
    weir_candidates all = { 0 };
    add_all(&all, ipv6, port);
    add_all(&all, ipv4, port);
    weir_addresses *list = weir__candidates_list(&all);
    if (list == NULL)
        return -ENOMEM;
    weir__addresses_succeed(promise, list);
    return 0;
}

/* Texts ------------------------------------------------------------------------------------------
 */

/* Splits "host:port"; false when it is something else. */
static bool split(const char *text, size_t *length, uint16_t *port)
{
    const char *colon = text != NULL ? strchr(text, ':') : NULL;
    weir_address any;
    if (colon == NULL || colon == text || strncmp(text, "unix:", 5) == 0 ||
        strncmp(text, "local:", 6) == 0 || weir_address_parse(&any, colon, NULL) < 0)
        return false;
    *length = (size_t)(colon - text);
    *port = weir_address_port(&any);
    return strspn(text, letters) >= *length;
}

/* Whether getaddrinfo would take it for an IPv4 address in one of the old forms: 127.1, 0x7f.1. No
 * host that can be asked for has such a last label. */
static bool ends_in_number(const char *host)
{
    size_t end = strlen(host);
    if (host[end - 1] == '.')
        end--;
    size_t start = end;
    while (start > 0 && host[start - 1] != '.')
        start--;
    const char *label = host + start;
    size_t length = end - start;
    if (length > 2 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X'))
        return strspn(label + 2, hex_digits) >= length - 2;
    return length > 0 && strspn(label, digits) >= length;
}

/* The host and port of a text that is no address, which `wrong` tells; 0 or -EINVAL. */
static int read_name(const char *text, char host[HOST_MAX + 1], uint16_t *port, weir_error *wrong)
{
    size_t length;
    if (!split(text, &length, port))
        return -EINVAL;
    if (length > HOST_MAX)
        return weir_error_set(wrong, -EINVAL, "resolver",
                              "'%.60s...': the host has %zu bytes: write one of %d at most", text,
                              length, HOST_MAX);
    memcpy(host, text, length);
    host[length] = '\0';
    if (ends_in_number(host))
        return weir_error_set(wrong, -EINVAL, "resolver",
                              "'%.60s%s': a host name does not end in a number: write a name, or "
                              "four numbers of 0 to 255, as in 127.0.0.1:8007",
                              text, strlen(text) > 60 ? "..." : "");
    return 0;
}

/* Whether the environment excludes c-ares. */
static bool wants_getaddrinfo(void)
{
    static weir_env_words words = { "WEIR_RESOLVER", { "auto", "getaddrinfo", NULL }, false };
    return weir__env_word(&words, 0) == 1;
}

static weir_name_service service_for(const weir_name_query *query)
{
    return !wants_getaddrinfo() && weir__cares_serves(query) ? weir__cares_start
                                                             : weir__getaddrinfo_start;
}

static int answer_with(const weir_address *address, weir_promise *promise)
{
    weir_addresses *one = weir__alloc(sizeof *one + sizeof *address);
    if (one == NULL)
        return -ENOMEM;
    weir_address *list = (weir_address *)(one + 1);
    list[0] = *address;
    *one = (weir_addresses){ .count = 1, .list = list };
    weir__addresses_succeed(promise, one);
    return 0;
}

int weir__resolve(weir_resolver *resolver, const char *text, weir_name_query *query,
                  weir_error *error)
{
    weir_address address;
    weir_error wrong;
    char host[HOST_MAX + 1];
    int code = 0;
    if (weir_address_parse(&address, text, &wrong) == 0) {
        code = answer_with(&address, query->promise);
    } else if (read_name(text, host, &query->port, &wrong) < 0) {
        if (error != NULL)
            *error = wrong;
        return -EINVAL;
    } else if (resolver != NULL) {
        code = resolver->resolve(resolver, weir_group_background(query->group), host, query->port,
                                 query->promise);
    } else {
        query->host = host;
        code = service_for(query)(query);
        query->host = NULL; /* the service has copied it */
    }
    if (code < 0)
        return weir_error_set(error, code, "resolver", "'%.100s%s': %s", text,
                              strlen(text) > 100 ? "..." : "", weir_error_text(code));
    return 0;
}

int weir_resolve(weir_group *group, weir_resolver *resolver, const char *text,
                 weir_promise *promise, weir_error *error)
{
    if (group == NULL || promise == NULL)
        return weir_error_set(error, -EINVAL, "resolver", "NULL for the %s: pass one",
                              group == NULL ? "group" : "promise");
    weir_name_query query = { .group = group, .promise = promise };
    return weir__resolve(resolver, text, &query, error);
}
