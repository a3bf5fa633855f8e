/* SPDX-License-Identifier: MIT */
/* The cache and the configuration that the c-ares lookups of a group share. */
#include "bootstrap/cares.h"

#include "base/alloc.h"
#include "bootstrap/names.h"
#include "exec/group.h"

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
