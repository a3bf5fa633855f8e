/* SPDX-License-Identifier: MIT */
/* Connection limits: the table of addresses, and the handler. */
#include <weir/connection_limit.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/sys.h"
#include "channel/arg.h"
#include "handler/gate.h"
#include "handler/host_key.h"

#include <weir/channel.h>

#include <errno.h>
#include <stdatomic.h>

#define MAX_TOTAL 65536
#define MAX_PER_ADDRESS 256
#define FEWEST_BUCKETS 64

/* An address from which connections are open. */
typedef struct visitor {
    struct visitor *next; /* of the same bucket */
    uint64_t hash;
    weir_host_key key;
    uint32_t count;
} visitor;

typedef struct bucket {
    visitor *first;
} bucket;

struct weir_connection_limit {
    _Atomic(uint32_t) refs;
    size_t max_total, max_per_address; /* SIZE_MAX: any number */
    unsigned ipv4_bits, ipv6_bits;
    uint64_t secret[2]; /* so that nobody can choose addresses of one bucket */

    pthread_mutex_t lock; /* of what follows */
    weir_connection_limit_stats stats;
    bucket *buckets;
    size_t bucket_count; /* a power of two */
};

/* The table ------------------------------------------------------------------------------------ */

static visitor **first_of(const weir_connection_limit *self, uint64_t hash)
{
    return &self->buckets[hash & (self->bucket_count - 1)].first;
}

/* Twice the buckets, if there is memory for them. */
static void grow(weir_connection_limit *self)
{
    weir_connection_limit larger = { .bucket_count = self->bucket_count * 2 };
    larger.buckets = weir__zalloc(larger.bucket_count * sizeof *larger.buckets);
    if (larger.buckets == NULL)
        return;
    for (size_t i = 0; i < self->bucket_count; i++) {
        for (visitor *one = self->buckets[i].first, *next; one != NULL; one = next) {
            visitor **first = first_of(&larger, one->hash);
            next = one->next;
            one->next = *first;
            *first = one;
        }
    }
    weir__free(self->buckets);
    self->buckets = larger.buckets;
    self->bucket_count = larger.bucket_count;
}

/* Whoever is counted under that key; made, without a count yet, when there is nobody. NULL: no
 * memory. */
static visitor *find_or_make(weir_connection_limit *self, const weir_host_key *key)
{
    weir_hash state;
    weir__hash_init(&state, self->secret);
    weir__hash_add(&state, key->bytes, sizeof key->bytes);
    uint64_t hash = weir__hash_end(&state);
    visitor *found = *first_of(self, hash);
    while (found != NULL && memcmp(&found->key, key, sizeof *key) != 0)
        found = found->next;
    if (found != NULL)
        return found;
    found = weir__alloc(sizeof *found);
    if (found == NULL)
        return NULL;
    if (self->stats.addresses >= self->bucket_count)
        grow(self);
    visitor **first = first_of(self, hash);
    *found = (visitor){ .next = *first, .hash = hash, .key = *key };
    *first = found;
    self->stats.addresses++;
    return found;
}

static void forget(weir_connection_limit *self, visitor *one)
{
    visitor **at = first_of(self, one->hash);
    while (*at != one)
        at = &(*at)->next;
    *at = one->next;
    self->stats.addresses--;
    weir__free(one);
}

/* Counting: under the lock --------------------------------------------------------------------- */

static bool count_total(weir_connection_limit *self)
{
    if (self->stats.open >= self->max_total) {
        self->stats.refused_total++;
        return false;
    }
    self->stats.open++;
    return true;
}

static bool count_address(weir_connection_limit *self, const weir_host_key *key, visitor **counted)
{
    visitor *one = find_or_make(self, key);
    if (one == NULL) {
        self->stats.refused_no_memory++;
        return false;
    }
    if (one->count >= self->max_per_address) {
        self->stats.refused_per_address++;
        return false;
    }
    one->count++;
    *counted = one;
    return true;
}

/* Making ----------------------------------------------------------------------------------------
 */

static size_t limit_of(int number, size_t normal)
{
    return number == WEIR_OFF ? SIZE_MAX : number == 0 ? normal : (size_t)number;
}

static int check(const weir_connection_limit_config *config, weir_error *error)
{
    const struct {
        const char *name;
        int value, least, most;
    } rows[] = {
        { "max_total", config->max_total, WEIR_OFF, INT32_MAX },
        { "max_per_address", config->max_per_address, WEIR_OFF, INT32_MAX },
        { "ipv4_bits", config->ipv4_bits, 0, 32 },
        { "ipv6_bits", config->ipv6_bits, 0, 128 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].value < rows[i].least || rows[i].value > rows[i].most)
            return weir_error_set(error, -EINVAL, "connection limit", "%s is %d: write %d to %d",
                                  rows[i].name, rows[i].value, rows[i].least, rows[i].most);
    }
    return 0;
}

int weir_connection_limit_new(weir_connection_limit **limit,
                              const weir_connection_limit_config *config, weir_error *error)
{
    static const weir_connection_limit_config normal;
    config = config != NULL ? config : &normal;
    if (limit == NULL)
        return weir_error_set(error, -EINVAL, "connection limit", "there is no place for it");
    int code = check(config, error);
    if (code < 0)
        return code;
    weir_connection_limit *self = weir__zalloc(sizeof *self);
    bucket *buckets = weir__zalloc(FEWEST_BUCKETS * sizeof *buckets);
    code = self != NULL && buckets != NULL
               ? weir__sys_linux()->random(weir__sys_linux(), self->secret, sizeof self->secret)
               : -ENOMEM;
    if (code < 0) {
        weir__free(self);
        weir__free(buckets);
        return weir_error_set(error, code, "connection limit", "%s", weir_error_text(code));
    }
    atomic_init(&self->refs, 1);
    self->max_total = limit_of(config->max_total, MAX_TOTAL);
    self->max_per_address = limit_of(config->max_per_address, MAX_PER_ADDRESS);
    self->ipv4_bits = config->ipv4_bits > 0 ? (unsigned)config->ipv4_bits : 32;
    self->ipv6_bits = config->ipv6_bits > 0 ? (unsigned)config->ipv6_bits : 64;
    pthread_mutex_init(&self->lock, NULL);
    self->buckets = buckets;
    self->bucket_count = FEWEST_BUCKETS;
    *limit = self;
    return 0;
}

weir_connection_limit *weir_connection_limit_retain(weir_connection_limit *limit)
{
    if (limit != NULL)
        atomic_fetch_add_explicit(&limit->refs, 1, memory_order_relaxed);
    return limit;
}

/* Who is counted holds a reference, so with the last one the table is empty. */
void weir_connection_limit_release(weir_connection_limit *limit)
{
    if (limit == NULL || atomic_fetch_sub_explicit(&limit->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&limit->lock);
    weir__free(limit->buckets);
    weir__free(limit);
}

void weir_connection_limit_get_stats(weir_connection_limit *limit,
                                     weir_connection_limit_stats *stats)
{
    pthread_mutex_lock(&limit->lock);
    *stats = limit->stats;
    pthread_mutex_unlock(&limit->lock);
}

/* The handler ---------------------------------------------------------------------------------- */

typedef struct limit_handler {
    weir_gate gate;
    weir_connection_limit *limit;
    visitor *counted_as; /* NULL: not for any address */
    bool is_counted;
} limit_handler;

/* What counts of the address; false: nothing. */
static bool key_of(const weir_ctx *ctx, const weir_connection_limit *limit, weir_host_key *key)
{
    weir_address address;
    if (limit->max_per_address == SIZE_MAX ||
        weir_channel_remote_address(weir_ctx_channel(ctx), &address) < 0 ||
        !weir__host_key_of(&address, false, key))
        return false;
    unsigned bits = key->bytes[0] == 4 ? limit->ipv4_bits : limit->ipv6_bits;
    weir__host_mask(key->bytes, sizeof key->bytes, WEIR__HOST_TAG_BITS + bits);
    return true;
}

/* Once, however often it is called. */
static void count_no_more(weir_ctx *ctx)
{
    limit_handler *self = weir_ctx_state(ctx);
    weir_connection_limit *limit = self->limit;
    if (!self->is_counted)
        return;
    pthread_mutex_lock(&limit->lock);
    limit->stats.open--;
    if (self->counted_as != NULL && --self->counted_as->count == 0)
        forget(limit, self->counted_as);
    pthread_mutex_unlock(&limit->lock);
    self->is_counted = false;
    self->counted_as = NULL;
}

static bool admits(weir_ctx *ctx)
{
    limit_handler *self = weir_ctx_state(ctx);
    weir_connection_limit *limit = self->limit;
    weir_host_key key;
    count_no_more(ctx); /* as somebody else */
    bool has_key = key_of(ctx, limit, &key);
    pthread_mutex_lock(&limit->lock);
    self->is_counted = count_total(limit);
    bool is_admitted = self->is_counted &&
                       (!has_key || count_address(limit, &key, &self->counted_as));
    pthread_mutex_unlock(&limit->lock);
    if (!is_admitted)
        count_no_more(ctx);
    return is_admitted;
}

static void limit_added(weir_ctx *ctx)
{
    limit_handler *self = weir_ctx_state(ctx);
    self->limit = weir_ctx_arg(ctx);
    if (weir__arg_check_given(ctx, "weir_connection_limit", self->limit))
        weir__gate_init(ctx, admits);
}

static void limit_removed(weir_ctx *ctx)
{
    count_no_more(ctx);
}

static void limit_on_inactive(weir_ctx *ctx)
{
    count_no_more(ctx);
    weir__gate_on_inactive(ctx);
}

static int limit_retain(void *arg)
{
    weir_connection_limit_retain(arg);
    return 0;
}

static void limit_release(void *arg)
{
    weir_connection_limit_release(arg);
}

const weir_handler_type weir_connection_limit_handler = {
    .name = "connection limit",
    .state_size = sizeof(limit_handler),
    .arg_retain = limit_retain,
    .arg_release = limit_release,
    .added = limit_added,
    .removed = limit_removed,
    .on_active = weir__gate_on_active,
    .on_inactive = limit_on_inactive,
    WEIR__GATE_CALLBACKS,
};
