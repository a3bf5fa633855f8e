/* SPDX-License-Identifier: MIT */
/* Names by c-ares: asking for both families, and passing the answers on. */
#include "bootstrap/cares.h"

#include <errno.h>
#include <string.h>

#define RESOLUTION_DELAY_NS WEIR_MS(50) /* for AAAA after A: RFC 8305, section 3 */

/* Answers ----------------------------------------------------------------------------------------
 */

static bool has_addresses(const weir_ares_question *one)
{
    return one->found.count[0] > 0;
}

static int pass_family(weir_ares_lookup *self, int family, weir_promise *promise)
{
    static const weir_candidates none;
    return weir__candidates_succeed(&self->questions[family].found, &none, self->port, promise);
}

/* Both answers are there: passes on those that were not passed before. */
static void pass_rest(weir_ares_lookup *self)
{
    const weir_ares_question *questions = self->questions;
    int code = WEIR_ENONAME; /* if there are no more addresses */
    if (self->passed == WEIR__NO_FAMILY)
        code = weir__candidates_succeed(&questions[WEIR__IPV6].found, &questions[WEIR__IPV4].found,
                                        self->port, self->promise);
    else if (has_addresses(&questions[!self->passed]))
        code = pass_family(self, !self->passed, self->rest);
    weir__ares_lookup_conclude(self, code < 0 ? code : WEIR_ENONAME);
}

static int pass_first(weir_ares_lookup *self, int family)
{
    self->passed = family;
    return pass_family(self, family, self->promise);
}

/* The cache --------------------------------------------------------------------------------------
 */

/* Not under another configuration: its servers may have other answers. */
static void remember(const weir_ares_question *one, uint32_t ttl_s)
{
    const weir_ares_lookup *self = one->of;
    pthread_mutex_lock(&self->names->lock);
    if (self->names->config == self->config)
        weir__name_cache_put(&self->names->cache, self->name, one->family, &one->found, ttl_s,
                             weir_clock_now_ns(self->operation.executor->clock));
    pthread_mutex_unlock(&self->names->lock);
}

static bool recall(weir_ares_question *one)
{
    const weir_ares_lookup *self = one->of;
    pthread_mutex_lock(&self->names->lock);
    bool is_found = weir__name_cache_find(&self->names->cache, self->name, one->family,
                                          weir_clock_now_ns(self->operation.executor->clock),
                                          &one->found);
    pthread_mutex_unlock(&self->names->lock);
    one->code = has_addresses(one) ? 0 : WEIR_ENONAME;
    return is_found;
}

/* Asking -----------------------------------------------------------------------------------------
 */

static int code_of(int status)
{
    switch (status) {
    case ARES_SUCCESS:
        return 0;
    case ARES_ENODATA:
    case ARES_ENOTFOUND:
    case ARES_EBADNAME:
    case ARES_ENONAME:
        return WEIR_ENONAME;
    case ARES_ENOMEM:
        return -ENOMEM;
    default: /* a server that does not answer, or refuses to */
        return WEIR_ENAMESERVICE;
    }
}

/* The shortest of those that led to the addresses counts. */
static uint32_t min_ttl(uint32_t ttl_s, int other_s)
{
    uint32_t other = other_s > 0 ? (uint32_t)other_s : 0;
    return other < ttl_s ? other : ttl_s;
}

static uint32_t take_addresses(weir_ares_question *one, const struct ares_addrinfo *info)
{
    uint32_t ttl_s = UINT32_MAX;
    for (const struct ares_addrinfo_node *node = info->nodes; node != NULL; node = node->ai_next) {
        weir_address address;
        if (weir_address_from_sockaddr(&address, node->ai_addr, node->ai_addrlen) == 0)
            weir__candidates_add(&one->found, &address);
        ttl_s = min_ttl(ttl_s, node->ai_ttl);
    }
    for (const struct ares_addrinfo_cname *name = info->cnames; name != NULL; name = name->next)
        ttl_s = min_ttl(ttl_s, name->ttl);
    return ttl_s;
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
    weir_ares_question *one = arg;
    uint32_t ttl_s = WEIR__NAME_TTL_ABSENT_S;
    (void)timeouts;
    one->is_done = true;
    one->is_timed_out = status == ARES_ETIMEOUT;
    one->code = code_of(status);
    if (info != NULL) {
        ttl_s = take_addresses(one, info);
        ares_freeaddrinfo(info);
    }
    if (one->code == 0 && !has_addresses(one))
        one->code = WEIR_ENONAME;
    if (one->code == 0 || one->code == WEIR_ENONAME)
        remember(one, ttl_s);
}

static void ask(weir_ares_lookup *self)
{
    for (int i = 0; i < WEIR__FAMILIES; i++) {
        weir_ares_question *one = &self->questions[i];
        const struct ares_addrinfo_hints hints = { .ai_family = one->family,
                                                   .ai_socktype = SOCK_STREAM };
        one->is_done = recall(one);
        if (!one->is_done)
            ares_getaddrinfo(self->channel, self->name, NULL, &hints, on_answer, one);
    }
}

static bool ask_next(weir_ares_lookup *self)
{
    do {
        if (!weir__search_list_name(&self->config->search, self->host, self->tried, self->name))
            return false;
        self->tried++;
    } while (self->name[0] == '\0');
    ask(self);
    return true;
}

/* c-ares has its own idea of when to ask again. */
static int await_retry(weir_ares_lookup *self)
{
    struct timeval wait;
    if (ares_timeout(self->channel, NULL, &wait) == NULL)
        return 0;
    int64_t wait_ns = WEIR_SECONDS(wait.tv_sec) + wait.tv_usec * INT64_C(1000) + WEIR_MS(1);
    return weir_timer_reschedule(&self->retry, wait_ns) == 0
               ? 0
               : weir_timer_schedule(&self->retry, self->operation.executor, wait_ns);
}

/* Whether the next name may be tried after this answer. A server that fails may do so for this name
 * alone; one that does not answer costs as much time again for each name, and ends the search, as
 * it does in glibc. */
static bool permits_next(const weir_ares_question *one)
{
    return one->is_done &&
           (one->code == WEIR_ENONAME || (one->code == WEIR_ENAMESERVICE && !one->is_timed_out));
}

/* Whether both questions are answered, and neither has addresses, but other names are left. */
static bool goes_on(weir_ares_lookup *self)
{
    const weir_ares_question *ipv6 = &self->questions[WEIR__IPV6],
                             *ipv4 = &self->questions[WEIR__IPV4];
    if (!permits_next(ipv6) || !permits_next(ipv4))
        return false;
    self->has_failed |= ipv6->code == WEIR_ENAMESERVICE || ipv4->code == WEIR_ENAMESERVICE;
    return ask_next(self);
}

/* All names were tried, or one could not be. */
static void fail_lookup(weir_ares_lookup *self)
{
    int code = self->questions[WEIR__IPV6].code;
    if (code == WEIR_ENONAME)
        code = self->questions[WEIR__IPV4].code;
    weir__ares_lookup_conclude(self,
                               self->has_failed && code == WEIR_ENONAME ? WEIR_ENAMESERVICE : code);
}

/* IPv6 is preferred, but not waited for for long (RFC 8305, section 3). */
static int pass_what_is_there(weir_ares_lookup *self)
{
    if (self->rest == NULL || self->passed != WEIR__NO_FAMILY)
        return 0;
    if (has_addresses(&self->questions[WEIR__IPV6]))
        return pass_first(self, WEIR__IPV6);
    if (!has_addresses(&self->questions[WEIR__IPV4]))
        return 0;
    if (self->is_delay_over)
        return pass_first(self, WEIR__IPV4);
    int code = weir_timer_schedule(&self->delay, self->operation.executor, RESOLUTION_DELAY_NS);
    return code == -EBUSY ? 0 : code;
}

void weir__ares_lookup_proceed(weir_ares_lookup *self)
{
    int code = self->failure;
    if (self->is_concluded)
        return;
    while (code == 0 && goes_on(self))
        code = self->failure;
    if (code < 0) {
        weir__ares_lookup_conclude(self, code);
    } else if (!self->questions[WEIR__IPV6].is_done || !self->questions[WEIR__IPV4].is_done) {
        code = pass_what_is_there(self);
        if (code == 0)
            code = await_retry(self);
        if (code < 0)
            weir__ares_lookup_conclude(self, code);
    } else if (has_addresses(&self->questions[WEIR__IPV6]) ||
               has_addresses(&self->questions[WEIR__IPV4])) {
        pass_rest(self);
    } else {
        fail_lookup(self);
    }
}

int weir__ares_on_retry(weir_timer *timer)
{
    weir_ares_lookup *self = WEIR_CONTAINER(timer, weir_ares_lookup, retry);
    ares_process_fd(self->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    weir__ares_lookup_proceed(self);
    return 0;
}

int weir__ares_on_delay(weir_timer *timer)
{
    weir_ares_lookup *self = WEIR_CONTAINER(timer, weir_ares_lookup, delay);
    self->is_delay_over = true;
    weir__ares_lookup_proceed(self);
    return 0;
}

void weir__ares_lookup_run(weir_ares_lookup *self)
{
    int status = weir__ares_sockets_open(self);
    self->is_open = status == ARES_SUCCESS;
    if (!self->is_open) {
        weir__ares_lookup_conclude(self, status == ARES_ENOMEM ? -ENOMEM : WEIR_ENAMESERVICE);
        return;
    }
    ask_next(self);
    weir__ares_lookup_proceed(self);
}
