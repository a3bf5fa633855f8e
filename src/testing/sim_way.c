/* SPDX-License-Identifier: MIT */
/* The ways between simulated hosts: who is where, how long it takes to get there, and whether one
 * can. */
#include "testing/sim.h"

#include <weir/timer.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_LATENCY_NS 100000
#define DEFAULT_WINDOW_BYTES 65536
#define DEFAULT_CUT_NS WEIR_SECONDS(1)

/* What does not get through is sent again every so often. */
#define RETRY_NS WEIR_MS(200)

/* Links -------------------------------------------------------------------------------------- */

void weir__sim_link_complete(weir_sim_link *link, bool is_own)
{
    if (link->latency_ns == 0 && !is_own)
        link->latency_ns = DEFAULT_LATENCY_NS;
    if (link->latency_ns == WEIR_OFF)
        link->latency_ns = 0;
    if (link->window_bytes == 0)
        link->window_bytes = DEFAULT_WINDOW_BYTES;
    if (link->cut_ns == 0)
        link->cut_ns = DEFAULT_CUT_NS;
}

static int check_chance(const char *name, double chance, weir_error *error)
{
    if (chance >= 0 && chance <= 1)
        return 0;
    return weir_error_set(error, -EINVAL, "sim", "%s is %g, which is not from 0 to 1", name,
                          chance);
}

static int check_number(const char *name, int64_t value, weir_error *error)
{
    if (value >= 0)
        return 0;
    return weir_error_set(error, -EINVAL, "sim", "%s is %lld, which is negative", name,
                          (long long)value);
}

/* Leaves the calling function with the first that is wrong. */
#define CHECK(kind, from, field)                                                                   \
    do {                                                                                           \
        if (check_##kind(#field, (from)->field, error) < 0)                                        \
            return -EINVAL;                                                                        \
    } while (0)

static int check_link(const weir_sim_link *link, weir_error *error)
{
    if (link->latency_ns != WEIR_OFF)
        CHECK(number, link, latency_ns);
    CHECK(number, link, jitter_ns);
    CHECK(number, link, bytes_per_second);
    CHECK(number, link, window_bytes);
    CHECK(number, link, cut_ns);
    CHECK(chance, link, reset);
    CHECK(chance, link, refuse);
    CHECK(chance, link, cut);
    CHECK(chance, link, lose);
    CHECK(chance, link, duplicate);
    return 0;
}

int weir__sim_config_check(const weir_sim_config *config, weir_error *error)
{
    CHECK(chance, config, short_read);
    CHECK(chance, config, short_write);
    CHECK(chance, config, reorder);
    CHECK(chance, config, interrupt);
    CHECK(number, config, timeout_ns);
    if (config->interrupt == 1)
        return weir_error_set(error, -EINVAL, "sim", "interrupt is 1: nothing would ever be done");
    return check_link(&config->link, error);
}

int weir_sim_set_link(weir_sim_host *from, weir_sim_host *to, const weir_sim_link *link,
                      weir_error *error)
{
    int code = check_link(link, error);
    if (code < 0)
        return code;
    weir_sim_way *way = weir__sim_way(from, to);
    way->link = *link;
    weir__sim_link_complete(&way->link, from == to);
    return 0;
}

/* Travelling --------------------------------------------------------------------------------- */

weir_sim_way *weir__sim_way(weir_sim_host *from, weir_sim_host *to)
{
    return &from->ways[to->index];
}

/* At a limited speed one thing goes behind the other. */
int64_t weir__sim_travel_ns(weir_sim_host *from, weir_sim_host *to, size_t bytes)
{
    weir_sim *sim = from->sim;
    weir_sim_way *way = weir__sim_way(from, to);
    const weir_sim_link *link = &way->link;
    int64_t travel_ns = link->latency_ns;
    if (link->jitter_ns > 0)
        travel_ns += (int64_t)weir_sim_random(sim, (uint64_t)link->jitter_ns + 1);
    if (link->bytes_per_second == 0 || bytes == 0)
        return travel_ns;
    if (way->free_ns < sim->now_ns)
        way->free_ns = sim->now_ns;
    way->free_ns += (int64_t)((double)bytes * 1e9 / (double)link->bytes_per_second);
    return way->free_ns - sim->now_ns + travel_ns;
}

/* Cutting ------------------------------------------------------------------------------------ */

bool weir__sim_is_cut(weir_sim_host *from, weir_sim_host *to)
{
    return weir__sim_way(from, to)->cut_until_ns > from->sim->now_ns;
}

int64_t weir__sim_retry_ns(weir_sim_host *from, weir_sim_host *to)
{
    int64_t open_ns = weir__sim_way(from, to)->cut_until_ns;
    int64_t retry_ns = from->sim->now_ns + RETRY_NS;
    return open_ns < retry_ns ? open_ns : retry_ns;
}

static void cut_until(weir_sim_host *one, weir_sim_host *other, int64_t until_ns)
{
    weir__sim_way(one, other)->cut_until_ns = until_ns;
    weir__sim_way(other, one)->cut_until_ns = until_ns;
}

void weir__sim_draw_cut(weir_sim_host *from, weir_sim_host *to)
{
    const weir_sim_link *link = &weir__sim_way(from, to)->link;
    if (from != to && weir_sim_chance(from->sim, link->cut))
        weir_sim_cut(from, to, 1 + (int64_t)weir_sim_random(from->sim, (uint64_t)link->cut_ns));
}

static void cut(weir_sim_host *host, weir_sim_host *other, int64_t duration_ns)
{
    weir_sim *sim = host->sim;
    int64_t until_ns;
    if (duration_ns < 0 || __builtin_add_overflow(sim->now_ns, duration_ns, &until_ns))
        until_ns = INT64_MAX;
    sim->stats.cuts++;
    weir_sim_trace(sim, host, "is cut off from %s", other->name);
    cut_until(host, other, until_ns);
}

/* The other one, or with NULL everybody else. */
static bool is_meant(const weir_sim_host *each, const weir_sim_host *host,
                     const weir_sim_host *other)
{
    return other != NULL ? each == other : each != host;
}

void weir_sim_cut(weir_sim_host *host, weir_sim_host *other, int64_t duration_ns)
{
    for (unsigned i = 0; i < host->sim->host_count; i++) {
        weir_sim_host *each = host->sim->hosts[i];
        if (is_meant(each, host, other))
            cut(host, each, duration_ns);
    }
}

void weir_sim_mend(weir_sim_host *host, weir_sim_host *other)
{
    for (unsigned i = 0; i < host->sim->host_count; i++) {
        weir_sim_host *each = host->sim->hosts[i];
        if (!is_meant(each, host, other))
            continue;
        weir_sim_trace(host->sim, host, "reaches %s again", each->name);
        cut_until(host, each, 0);
    }
}

size_t weir_sim_reset(weir_sim_host *host, weir_sim_host *other)
{
    weir_list *all = &host->sim->connections;
    size_t count = 0;
    for (weir_list_node *node = weir__list_first(all); node != NULL;
         node = weir__list_next(all, node)) {
        weir_sim_connection *connection = WEIR_CONTAINER(node, weir_sim_connection, node);
        weir_sim_host **hosts = connection->hosts;
        bool is_between = (hosts[0] == host && (other == NULL || hosts[1] == other)) ||
                          (hosts[1] == host && (other == NULL || hosts[0] == other));
        if (!is_between)
            continue;
        weir__sim_connection_lose(connection);
        count++;
    }
    return count;
}

/* Who is where ------------------------------------------------------------------------------- */

weir_sim_host *weir__sim_find_name(weir_sim *sim, const char *name)
{
    for (unsigned i = 0; i < sim->host_count; i++) {
        if (strcmp(sim->hosts[i]->name, name) == 0)
            return sim->hosts[i];
    }
    return NULL;
}

static bool has_address(const weir_sim_host *host, const weir_address *address)
{
    weir_address plain = *address;
    weir_address_set_port(&plain, 0);
    for (unsigned i = 0; i < host->address_count; i++) {
        if (weir_address_equal(&host->addresses[i], &plain))
            return true;
    }
    return false;
}

weir_sim_host *weir__sim_find_host(weir_sim_host *from, const weir_address *address)
{
    if (weir_address_is_loopback(address) || weir_address_is_any(address))
        return from;
    for (unsigned i = 0; i < from->sim->host_count; i++) {
        if (has_address(from->sim->hosts[i], address))
            return from->sim->hosts[i];
    }
    return NULL;
}

int weir_sim_add_address(weir_sim_host *host, const char *text)
{
    char with_port[80];
    weir_address address;
    if (host == NULL || text == NULL)
        return -EINVAL;
    bool is_ipv6 = strchr(text, ':') != NULL;
    snprintf(with_port, sizeof with_port, "%s%s%s:0", is_ipv6 ? "[" : "", text, is_ipv6 ? "]" : "");
    if (weir_address_parse(&address, with_port, NULL) < 0 || weir_address_is_any(&address) ||
        weir_address_is_loopback(&address))
        return -EINVAL;
    if (weir__sim_find_host(host, &address) != NULL)
        return -EEXIST;
    if (host->address_count == WEIR_SIM_ADDRESSES)
        return -ENOSPC;
    host->addresses[host->address_count++] = address;
    return 0;
}
