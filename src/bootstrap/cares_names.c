/* SPDX-License-Identifier: MIT */
/* Names by c-ares: the cache and the configuration that the lookups of a group share, and the
 * answers that they have. */
#include "bootstrap/cares.h"

#include "base/alloc.h"

#include <errno.h>

#define TIMEOUT_MS 2000

static void free_names(weir_group_data *data)
{
    weir_names *self = WEIR_CONTAINER(data, weir_names, data);
    weir__name_cache_clear(&self->cache);
    weir__name_config_release(self->config);
    pthread_mutex_destroy(&self->lock);
    ares_library_cleanup();
    weir__free(self);
}

static weir_names *new_names(weir_group *group)
{
    weir_sys *sys = weir__group_sys(group);
    weir_names *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    if (sys->random(sys, self->cache.key, sizeof self->cache.key) < 0 ||
        ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS) {
        weir__free(self);
        return NULL;
    }
    self->data.free = free_names;
    self->paths = (weir_name_paths){ .resolv_conf = "/etc/resolv.conf", .hosts = "/etc/hosts" };
    self->timeout_ms = TIMEOUT_MS;
    pthread_mutex_init(&self->lock, NULL);
    weir__list_init(&self->waiting);
    return self;
}

/* Of several threads that make it at once, the first one's counts. */
weir_names *weir__names_of(weir_group *group)
{
    weir_group_data *data = atomic_load_explicit(&group->names, memory_order_acquire);
    weir_names *own = data == NULL ? new_names(group) : NULL;
    if (own != NULL &&
        atomic_compare_exchange_strong_explicit(&group->names, &data, &own->data,
                                                memory_order_acq_rel, memory_order_acquire))
        return own;
    if (own != NULL)
        free_names(&own->data);
    return data != NULL ? WEIR_CONTAINER(data, weir_names, data) : NULL;
}

int weir__cares_set_up(weir_group *group, const char *resolv_conf, const char *hosts, uint16_t port,
                       int timeout_ms)
{
    weir_names *names = weir__names_of(group);
    if (names == NULL)
        return -ENOMEM;
    names->paths.resolv_conf = resolv_conf;
    if (hosts != NULL)
        names->paths.hosts = hosts;
    names->port = port;
    if (timeout_ms > 0)
        names->timeout_ms = timeout_ms;
    return 0;
}

/* If a changed file cannot be read now, the configuration from before serves, and the next lookup
 * tries again. */
int weir__names_config(weir_names *self, weir_sys *sys, weir_name_config **config)
{
    weir_name_config *next = NULL;
    int code = 0;
    pthread_mutex_lock(&self->lock);
    if (self->config == NULL || !weir__name_config_is_current(self->config, sys, &self->paths))
        code = weir__name_config_load(&next, sys, &self->paths);
    if (next != NULL) {
        if (self->config != NULL)
            weir__name_cache_clear(&self->cache);
        weir__name_config_release(self->config);
        self->config = next;
    }
    if (self->config != NULL) {
        *config = weir__name_config_retain(self->config);
        code = 0;
    }
    pthread_mutex_unlock(&self->lock);
    return code;
}

/* Answers ----------------------------------------------------------------------------------------
 */

/* Whether the cache has an answer for every name that has to be tried; `found` is that of the first
 * one with addresses. */
static bool find_in_cache(weir_names *names, const weir_name_config *config, const char *host,
                          int64_t now_ns, weir_candidates found[WEIR__FAMILIES])
{
    weir_absolute_name name;
    bool is_known = true, has_addresses = false;
    pthread_mutex_lock(&names->lock);
    for (unsigned nth = 0;
         is_known && !has_addresses && weir__search_list_name(&config->search, host, nth, name);
         nth++) {
        is_known =
            name[0] == '\0' ||
            (weir__name_cache_find(&names->cache, name, AF_INET6, now_ns, &found[WEIR__IPV6]) &&
             weir__name_cache_find(&names->cache, name, AF_INET, now_ns, &found[WEIR__IPV4]));
        has_addresses = found[WEIR__IPV6].count[0] > 0 || found[WEIR__IPV4].count[0] > 0;
    }
    pthread_mutex_unlock(&names->lock);
    return is_known;
}

/* Whether no server has to be asked: then *code is 0, and the promise complete; or -ENOMEM. */
static bool answer_at_once(const weir_name_query *query, weir_executor *executor, weir_names *names,
                           const weir_name_config *config, int *code)
{
    weir_candidates found[WEIR__FAMILIES] = { 0 };
    bool has_addresses = weir__hosts_file_find(&config->hosts, query->host, &found[WEIR__IPV6],
                                               &found[WEIR__IPV4]);
    if (!has_addresses &&
        !find_in_cache(names, config, query->host, weir_clock_now_ns(executor->clock), found))
        return false;
    *code = 0;
    if (found[WEIR__IPV6].count[0] > 0 || found[WEIR__IPV4].count[0] > 0)
        *code = weir__candidates_succeed(&found[WEIR__IPV6], &found[WEIR__IPV4], query->port,
                                         query->promise);
    else
        weir_promise_fail(query->promise, WEIR_ENONAME);
    return true;
}

static weir_executor *executor_for(const weir_name_query *query)
{
    weir_executor *bound = query->promise->future.executor;
    return weir_executor_loop(bound) != NULL ? bound : weir_group_at(query->group, 0);
}

bool weir__cares_serves(const weir_name_query *query)
{
    weir_executor *executor = executor_for(query);
    const weir_loop *loop = weir_executor_loop(executor);
    return loop != NULL && !executor->is_manual && executor->sys == weir__sys_linux() &&
           executor->clock == weir_clock_monotonic() && loop->config.io_source == NULL &&
           loop->config.io != WEIR_IO_BLOCKING;
}

int weir__cares_start(const weir_name_query *query)
{
    weir_executor *executor = executor_for(query);
    weir_names *names = weir__names_of(executor->group);
    weir_name_config *config = NULL;
    int code = names != NULL ? weir__names_config(names, executor->sys, &config) : -ENOMEM;
    if (code < 0)
        return code;
    if (!answer_at_once(query, executor, names, config, &code))
        code = weir__ares_lookup_start(query, executor, names, config);
    weir__name_config_release(config);
    return code;
}
