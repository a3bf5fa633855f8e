/* SPDX-License-Identifier: MIT */
/* The cache of DNS answers. */
#include "bootstrap/name_cache.h"

#include "base/alloc.h"
#include "base/hash.h"

#include <weir/timer.h>

#include <string.h>
#include <strings.h>

#define BUCKETS 512

typedef struct entry {
    weir_list_node bucket, use;
    int64_t expires_ns;
    int family;
    size_t count;
    const char *name; /* after the addresses */
    weir_address list[];
} entry;

/* Both families of a name share one. */
static weir_list *bucket_of(weir_name_cache *self, const char *name)
{
    weir_hash hash;
    weir__hash_init(&hash, self->key);
    for (; *name != '\0'; name++) {
        uint8_t byte = (uint8_t)(*name >= 'A' && *name <= 'Z' ? *name + ('a' - 'A') : *name);
        weir__hash_add(&hash, &byte, 1);
    }
    return &self->buckets[weir__hash_end(&hash) % BUCKETS];
}

static void drop(weir_name_cache *self, entry *old)
{
    weir__list_remove(&old->bucket);
    weir__list_remove(&old->use);
    self->count--;
    weir__free(old);
}

static entry *find(weir_name_cache *self, const char *name, int family)
{
    weir_list *bucket = self->buckets != NULL ? bucket_of(self, name) : NULL;
    weir_list_node *node = bucket != NULL ? weir__list_first(bucket) : NULL;
    while (node != NULL) {
        entry *one = WEIR_CONTAINER(node, entry, bucket);
        if (one->family == family && strcasecmp(one->name, name) == 0)
            return one;
        node = weir__list_next(bucket, node);
    }
    return NULL;
}

bool weir__name_cache_find(weir_name_cache *self, const char *name, int family, int64_t now_ns,
                           weir_candidates *found)
{
    entry *one = find(self, name, family);
    if (one != NULL && one->expires_ns <= now_ns) {
        drop(self, one);
        one = NULL;
    }
    if (one == NULL)
        return false;
    weir__list_remove(&one->use);
    weir__list_push_front(&self->by_use, &one->use);
    *found = (weir_candidates){ 0 };
    for (size_t i = 0; i < one->count; i++)
        weir__candidates_add(found, &one->list[i]);
    return true;
}

static bool has_buckets(weir_name_cache *self)
{
    if (self->buckets != NULL)
        return true;
    self->buckets = weir__alloc(BUCKETS * sizeof *self->buckets);
    for (size_t i = 0; self->buckets != NULL && i < BUCKETS; i++)
        weir__list_init(&self->buckets[i]);
    weir__list_init(&self->by_use);
    return self->buckets != NULL;
}

static entry *make(const char *name, int family, const weir_candidates *from)
{
    size_t length = strlen(name), count = from->count[0] + from->count[1];
    entry *one = weir__alloc(sizeof *one + count * sizeof *one->list + length + 1);
    if (one == NULL)
        return NULL;
    *one = (entry){ .family = family, .count = count };
    for (size_t side = 0, at = 0; side < 2; side++) {
        for (size_t i = 0; i < from->count[side]; i++)
            one->list[at++] = from->list[side][i];
    }
    one->name = memcpy(&one->list[count], name, length + 1);
    return one;
}

void weir__name_cache_put(weir_name_cache *self, const char *name, int family,
                          const weir_candidates *from, uint32_t ttl_s, int64_t now_ns)
{
    uint32_t max_s = from->count[0] > 0 ? WEIR__NAME_TTL_MAX_S : WEIR__NAME_TTL_ABSENT_S;
    entry *old = find(self, name, family);
    if (old != NULL)
        drop(self, old);
    entry *one = ttl_s > 0 && has_buckets(self) ? make(name, family, from) : NULL;
    if (one == NULL)
        return;
    one->expires_ns = now_ns + WEIR_SECONDS(ttl_s < max_s ? ttl_s : max_s);
    while (self->count >= WEIR__NAME_CACHE_MAX)
        drop(self, WEIR_CONTAINER(weir__list_last(&self->by_use), entry, use));
    weir__list_push_front(bucket_of(self, name), &one->bucket);
    weir__list_push_front(&self->by_use, &one->use);
    self->count++;
}

void weir__name_cache_clear(weir_name_cache *self)
{
    while (self->count > 0)
        drop(self, WEIR_CONTAINER(weir__list_first(&self->by_use), entry, use));
    weir__free(self->buckets);
    self->buckets = NULL;
}
