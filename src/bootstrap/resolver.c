/* SPDX-License-Identifier: MIT */
/* Resolving: what names no host at once, names by getaddrinfo in the background. */
#include "base/alloc.h"
#include "base/list.h"
#include "base/sys.h"
#include "bootstrap/server.h"
#include "exec/executor.h"
#include "exec/group.h"

#include <weir/resolver.h>

#include <errno.h>
#include <string.h>

#define HOST_MAX 253 /* bytes of a name: what fits in the 255 that DNS has for one */

/* Lists of addresses ------------------------------------------------------------------------- */

/* What was found, in the order it came: those of the first one's kind, and the others. */
typedef struct candidates {
    size_t count[2];
    weir_address list[2][WEIR_ADDRESSES_MAX];
} candidates;

static void add(candidates *self, const weir_address *address)
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

/* A list of both sides by turns, and when one is used up, of the other. */
static weir_addresses *take_turns(const candidates *from)
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
    candidates all = { 0 };
    for (size_t i = 0; i < count; i++)
        add(&all, &from[i]);
    return take_turns(&all);
}

void weir_addresses_free(void *addresses)
{
    weir__free(addresses);
}

/* A promise that was cancelled does not want them any more. */
static void succeed(weir_promise *promise, weir_addresses *addresses)
{
    if (weir_promise_succeed(promise, addresses, weir_addresses_free) < 0)
        weir_addresses_free(addresses);
}

/* The system's name service ------------------------------------------------------------------ */

typedef struct lookup {
    weir_task task;
    weir_sys *sys;
    weir_promise *promise;
    weir_executor *listening; /* where the promise's listeners run: a reference, or NULL */
    uint16_t port;
    char host[];
} lookup;

/* What an answer other than 0 means; `system_error` is errno as it was then. */
static int code_of(int answer, int system_error)
{
    switch (answer) {
    case EAI_NONAME:
    case EAI_NODATA:
    case EAI_ADDRFAMILY:
        return WEIR_ENONAME;
    case EAI_MEMORY:
        return -ENOMEM;
    case EAI_SYSTEM:
        return system_error > 0 ? -system_error : WEIR_ENAMESERVICE;
    default: /* EAI_AGAIN, EAI_FAIL, and what cannot come from such a question */
        return WEIR_ENAMESERVICE;
    }
}

/*
 * One kind of socket, for else each address comes once for every kind. Without AI_ADDRCONFIG, which
 * does not count loopback: where only one family has an interface it would hide half of localhost.
 * What it saves, tries that are bound to fail, the order does as well: getaddrinfo puts addresses
 * without a route last (RFC 6724, rule 1).
 */
static int ask(const lookup *self, weir_addresses **found)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *answers = NULL;
    int answer = self->sys->getaddrinfo(self->sys, self->host, NULL, &hints, &answers);
    if (answer != 0)
        return code_of(answer, errno);
    candidates all = { 0 };
    for (const struct addrinfo *each = answers; each != NULL; each = each->ai_next) {
        weir_address address;
        if (weir_address_from_sockaddr(&address, each->ai_addr, each->ai_addrlen) == 0 &&
            weir_address_set_port(&address, self->port) == 0)
            add(&all, &address);
    }
    self->sys->freeaddrinfo(self->sys, answers);
    if (all.count[0] == 0)
        return WEIR_ENONAME;
    *found = take_turns(&all);
    return *found != NULL ? 0 : -ENOMEM;
}

static void free_lookup(lookup *self)
{
    weir_promise_release(self->promise);
    if (self->listening != NULL)
        weir__executor_release(self->listening);
    weir__free(self);
}

static void drop_lookup(weir_task *task)
{
    lookup *self = WEIR_CONTAINER(task, lookup, task);
    weir_promise_fail(self->promise, -ECANCELED);
    free_lookup(self);
}

/* Nobody is left who could use the answer. Freeing a manual group runs what its background has
 * left, and must not wait for the name service then. */
static bool is_unwanted(const lookup *self)
{
    const weir_executor *child = weir_executor_current()->companion;
    return weir_future_is_done(weir_promise_future(self->promise)) ||
           (child != NULL && weir_executor_get_state(child) >= WEIR_EXECUTOR_SHUTDOWN);
}

static int run_lookup(weir_task *task)
{
    lookup *self = WEIR_CONTAINER(task, lookup, task);
    if (is_unwanted(self)) {
        drop_lookup(task);
        return 0;
    }
    weir_addresses *found = NULL;
    int code = ask(self, &found);
    if (code < 0)
        weir_promise_fail(self->promise, code);
    else
        succeed(self->promise, found);
    free_lookup(self);
    return 0;
}

static int start_lookup(weir_group *group, const char *host, uint16_t port, weir_promise *promise)
{
    size_t size = strlen(host) + 1;
    lookup *self = weir__alloc(sizeof *self + size);
    if (self == NULL)
        return -ENOMEM;
    *self = (lookup){
        .task = { .run = run_lookup, .dropped = drop_lookup, .name = "name lookup" },
        .sys = weir__group_sys(group),
        .promise = weir_promise_retain(promise),
        .listening = promise->future.executor,
        .port = port,
    };
    memcpy(self->host, host, size);
    /* The name service may take longer than its group lives. */
    if (self->listening != NULL)
        weir__executor_retain(self->listening);
    int code = weir_executor_post(weir_group_background(group), &self->task);
    if (code < 0)
        free_lookup(self);
    return code;
}

/* Text --------------------------------------------------------------------------------------- */

static const char digits[] = "0123456789";
static const char hex_digits[] = "0123456789abcdefABCDEF";
static const char letters[] = "0123456789.-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

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

int weir_resolve(weir_group *group, weir_resolver *resolver, const char *text,
                 weir_promise *promise, weir_error *error)
{
    if (group == NULL || promise == NULL)
        return weir_error_set(error, -EINVAL, "resolver", "NULL for the %s: pass one",
                              group == NULL ? "group" : "promise");
    weir_address address;
    weir_error wrong;
    char host[HOST_MAX + 1];
    uint16_t port;
    int code = 0;
    if (weir_address_parse(&address, text, &wrong) == 0) {
        weir_addresses *one = weir_addresses_new(&address, 1);
        if (one != NULL)
            succeed(promise, one);
        else
            code = -ENOMEM;
    } else if (read_name(text, host, &port, &wrong) < 0) {
        if (error != NULL)
            *error = wrong;
        return -EINVAL;
    } else if (resolver != NULL) {
        code = resolver->resolve(resolver, weir_group_background(group), host, port, promise);
    } else {
        code = start_lookup(group, host, port, promise);
    }
    if (code < 0)
        return weir_error_set(error, code, "resolver", "'%.100s%s': %s", text,
                              strlen(text) > 100 ? "..." : "", weir_error_text(code));
    return 0;
}
