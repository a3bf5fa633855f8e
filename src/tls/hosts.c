/* SPDX-License-Identifier: MIT */
/* Hosts and their contexts. */
#include "tls/context.h"
#include "tls/hello.h"

#include <weir/alloc.h>
#include <weir/tls_select.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct weir_tls_hosts {
    _Atomic(uint32_t) refs;
    weir_tls_context *otherwise; /* NULL: nobody */
    size_t count;
    weir_tls_host list[]; /* by name; the names lie behind it */
};

static int compare(const void *a, const void *b)
{
    const weir_tls_host *one = a, *other = b;
    return strcasecmp(one->name, other->name);
}

/* A name, or a wildcard in the place of its first label. */
static bool is_name(const char *name)
{
    size_t length = strlen(name);
    bool is_wild = strncmp(name, "*.", 2) == 0;
    return is_wild ? weir__tls_is_host(name + 2, length - 2) : weir__tls_is_host(name, length);
}

static int check(const weir_tls_host *list, size_t count, weir_tls_context *otherwise, size_t *size,
                 weir_error *error)
{
    *size = sizeof(weir_tls_hosts) + count * sizeof *list;
    if ((list == NULL && count > 0) || (otherwise != NULL && !otherwise->is_server))
        return weir_error_set(error, -EINVAL, "tls", "no list of hosts, or a client's context");
    for (size_t i = 0; i < count; i++) {
        if (list[i].name == NULL || !is_name(list[i].name))
            return weir_error_set(error, -EINVAL, "tls", "'%.100s' is no host name",
                                  list[i].name != NULL ? list[i].name : "");
        if (list[i].context == NULL || !list[i].context->is_server)
            return weir_error_set(error, -EINVAL, "tls", "%.100s has no server's context",
                                  list[i].name);
        *size += strlen(list[i].name) + 1;
    }
    return 0;
}

static void fill(weir_tls_hosts *self, const weir_tls_host *list, size_t count)
{
    char *names = (char *)&self->list[count];
    self->count = count;
    for (size_t i = 0; i < count; i++) {
        size_t size = strlen(list[i].name) + 1;
        memcpy(names, list[i].name, size);
        self->list[i] = (weir_tls_host){ names, weir_tls_context_retain(list[i].context) };
        names += size;
    }
    qsort(self->list, count, sizeof *self->list, compare);
}

int weir_tls_hosts_new(weir_tls_hosts **hosts, const weir_tls_host *list, size_t count,
                       weir_tls_context *otherwise, weir_error *error)
{
    size_t size;
    if (hosts == NULL)
        return weir_error_set(error, -EINVAL, "tls", "no place for hosts");
    *hosts = NULL;
    int code = check(list, count, otherwise, &size, error);
    if (code < 0)
        return code;
    weir_tls_hosts *self = weir_zalloc(size);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "tls", "no memory for %zu hosts", count);
    atomic_init(&self->refs, 1);
    self->otherwise = weir_tls_context_retain(otherwise);
    fill(self, list, count);
    for (size_t i = 1; i < count && code == 0; i++) {
        if (compare(&self->list[i - 1], &self->list[i]) == 0)
            code = weir_error_set(error, -EINVAL, "tls", "%.100s is there twice",
                                  self->list[i].name);
    }
    if (code < 0)
        weir_tls_hosts_release(self);
    else
        *hosts = self;
    return code;
}

weir_tls_hosts *weir_tls_hosts_retain(weir_tls_hosts *hosts)
{
    if (hosts != NULL)
        atomic_fetch_add_explicit(&hosts->refs, 1, memory_order_relaxed);
    return hosts;
}

void weir_tls_hosts_release(weir_tls_hosts *hosts)
{
    if (hosts == NULL || atomic_fetch_sub_explicit(&hosts->refs, 1, memory_order_acq_rel) > 1)
        return;
    for (size_t i = 0; i < hosts->count; i++)
        weir_tls_context_release(hosts->list[i].context);
    weir_tls_context_release(hosts->otherwise);
    weir_free(hosts);
}

static weir_tls_context *find(const weir_tls_hosts *self, const char *name)
{
    const weir_tls_host wanted = { .name = name };
    const weir_tls_host *found = bsearch(&wanted, self->list, self->count, sizeof wanted, compare);
    return found != NULL ? found->context : NULL;
}

/* The same with a wildcard in the place of its first label. */
static weir_tls_context *find_wild(const weir_tls_hosts *self, const char *name)
{
    char wild[256] = "*";
    const char *rest = strchr(name, '.');
    if (rest == NULL || strlen(rest) >= sizeof wild - 1)
        return NULL;
    memcpy(wild + 1, rest, strlen(rest) + 1);
    return find(self, wild);
}

weir_tls_context *weir_tls_hosts_find(const weir_tls_hosts *hosts, const char *name)
{
    weir_tls_context *found = NULL;
    if (hosts == NULL)
        return NULL;
    if (name != NULL) {
        found = find(hosts, name);
        if (found == NULL)
            found = find_wild(hosts, name);
    }
    return found != NULL ? found : hosts->otherwise;
}
