/* SPDX-License-Identifier: MIT */
/* Channel groups. */
#include "bootstrap/channel_group.h"

#include "base/alloc.h"
#include "base/list.h"
#include "exec/future.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

/*
 *     weir_channel_group                     weir_channel
 *       table, order                           attribute
 *          |                                       |
 *          +------------- member ----------- memberships ---- listener of weir_channel_closed
 *          +------------- member                   |
 *          :                 :        member ------+
 *
 * Listeners cannot be taken back, and who comes and goes all day must not leave one each time. So a
 * channel has one for all its groups, with the list of what it is a member of.
 *
 * A group's lock comes before that of memberships. Neither is held while anything of others is
 * called, which the release of a channel may do.
 */

typedef struct memberships {
    weir_listener closed;
    _Atomic(uint32_t) refs; /* the channel's and the listener's */
    pthread_mutex_t lock;
    bool is_closed;
    weir_list members;
} memberships;

typedef struct member member;
struct member {
    weir_channel_place place;
    member *next; /* in its bucket */
    weir_channel_group *group;
    weir_channel *channel;
    memberships *of;     /* the channel's */
    weir_list_node node; /* in that; whoever takes it out of there has to free it */
    bool is_closing;     /* close_all waits for it */
    bool is_removed;     /* but it only stays for that */
};

#define FEW 8

struct weir_channel_group {
    _Atomic(uint32_t) refs;
    pthread_mutex_t lock;

    /* Under the lock. */
    weir_list order;
    uint64_t last_number;
    member **buckets;
    size_t bucket_count; /* a power of two */
    member *few[FEW];    /* the first buckets */
    size_t entries;      /* in the table */
    size_t removed;      /* of them, those that are members no more */
    size_t closing;      /* of them, those that are waited for; with any the group holds itself */
    weir_promise_list waiting;
    bool is_closed;
};

/* The table ---------------------------------------------------------------------------------- */

/* Ids are counted, not chosen by a peer, but those in one group may be evenly apart. */
static size_t bucket_of(uint64_t id, size_t bucket_count)
{
    return (size_t)((id * 0x9e3779b97f4a7c15u) >> 32) & (bucket_count - 1);
}

static member **find_place(weir_channel_group *group, uint64_t id)
{
    member **at = &group->buckets[bucket_of(id, group->bucket_count)];
    while (*at != NULL && weir_channel_id((*at)->channel) != id)
        at = &(*at)->next;
    return at;
}

static void fill_bucket(member **buckets, size_t bucket_count, member *one)
{
    member **at = &buckets[bucket_of(weir_channel_id(one->channel), bucket_count)];
    one->next = *at;
    *at = one;
}

static void free_buckets(weir_channel_group *group)
{
    if (group->buckets != group->few)
        weir__free(group->buckets);
}

/* Without memory the buckets become longer, and the next one that comes tries again. */
static void grow(weir_channel_group *group)
{
    size_t bucket_count = group->bucket_count * 2;
    member **buckets = weir__zalloc(bucket_count * sizeof(member *));
    if (buckets == NULL)
        return;
    for (size_t i = 0; i < group->bucket_count; i++) {
        for (member *one = group->buckets[i], *next; one != NULL; one = next) {
            next = one->next;
            fill_bucket(buckets, bucket_count, one);
        }
    }
    free_buckets(group);
    group->buckets = buckets;
    group->bucket_count = bucket_count;
}

static void put_in(weir_channel_group *group, member *one)
{
    if (group->entries >= group->bucket_count)
        grow(group);
    fill_bucket(group->buckets, group->bucket_count, one);
    group->entries++;
    one->place.number = ++group->last_number;
    weir__list_push_back(&group->order, &one->place.node);
}

static void take_out(weir_channel_group *group, member *one)
{
    *find_place(group, weir_channel_id(one->channel)) = one->next;
    group->entries--;
    group->removed -= one->is_removed;
    weir__list_remove(&one->place.node);
}

/* NULL when it is none, or not any more. */
static member *find_member(weir_channel_group *group, uint64_t id)
{
    member *one = *find_place(group, id);
    return one != NULL && !one->is_removed ? one : NULL;
}

static void free_member(member *one)
{
    weir_channel_release(one->channel);
    weir__free(one);
}

/* Counting ----------------------------------------------------------------------------------- */

weir_channel_group *weir_channel_group_new(void)
{
    weir_channel_group *group = weir__zalloc(sizeof *group);
    if (group == NULL)
        return NULL;
    atomic_init(&group->refs, 1);
    pthread_mutex_init(&group->lock, NULL);
    weir__list_init(&group->order);
    group->buckets = group->few;
    group->bucket_count = FEW;
    return group;
}

weir_channel_group *weir_channel_group_retain(weir_channel_group *group)
{
    if (group != NULL)
        atomic_fetch_add_explicit(&group->refs, 1, memory_order_relaxed);
    return group;
}

/* False when the last reference is gone, and the group about to be. */
static bool try_to_retain(weir_channel_group *group)
{
    uint32_t refs = atomic_load_explicit(&group->refs, memory_order_relaxed);
    while (refs > 0) {
        if (atomic_compare_exchange_weak_explicit(&group->refs, &refs, refs + 1,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    }
    return false;
}

/* Takes it off its channel's list; false when the channel has done so, being closed. */
static bool detach(member *one)
{
    pthread_mutex_lock(&one->of->lock);
    bool was_linked = weir__list_is_linked(&one->node);
    if (was_linked)
        weir__list_remove(&one->node);
    pthread_mutex_unlock(&one->of->lock);
    return was_linked;
}

void weir_channel_group_release(weir_channel_group *group)
{
    if (group == NULL || atomic_fetch_sub_explicit(&group->refs, 1, memory_order_acq_rel) != 1)
        return;
    weir_list_node *node;
    while ((node = weir__list_pop_front(&group->order)) != NULL) {
        member *one = WEIR_CONTAINER(node, member, place.node);
        detach(one); /* else its channel has found that the group goes, and left it */
        free_member(one);
    }
    free_buckets(group);
    pthread_mutex_destroy(&group->lock);
    weir__free(group);
}

/* Channels that close ------------------------------------------------------------------------ */

static void release_memberships(void *value)
{
    memberships *self = value;
    if (atomic_fetch_sub_explicit(&self->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&self->lock);
    weir__free(self);
}

static const weir_attr_key memberships_key = { "channel groups", release_memberships };

/* A member was taken off its channel's list, which is closed, and its group is held. */
static void leave(member *one)
{
    weir_channel_group *group = one->group;
    weir_promise_list done = { NULL };
    bool was_last = false;
    pthread_mutex_lock(&group->lock);
    if (weir__list_is_linked(&one->place.node))
        take_out(group, one);
    if (one->is_closing && --group->closing == 0) {
        was_last = true;
        done = group->waiting;
        group->waiting.first = NULL;
    }
    pthread_mutex_unlock(&group->lock);
    free_member(one);
    weir__promises_complete(&done, 0);
    if (was_last)
        weir_channel_group_release(group);
    weir_channel_group_release(group);
}

/* Takes the first off the list, and holds its group; false when there is none. A group that is
 * about to be freed is left alone (NULL): it waits for the lock before it frees the member and
 * itself. */
static bool take_first(memberships *self, member **first)
{
    pthread_mutex_lock(&self->lock);
    self->is_closed = true;
    weir_list_node *node = weir__list_pop_front(&self->members);
    *first = node != NULL ? WEIR_CONTAINER(node, member, node) : NULL;
    if (*first != NULL && !try_to_retain((*first)->group))
        *first = NULL;
    pthread_mutex_unlock(&self->lock);
    return node != NULL;
}

static void channel_closed(weir_listener *listener, weir_future *future)
{
    memberships *self = WEIR_CONTAINER(listener, memberships, closed);
    member *one;
    (void)future;
    while (take_first(self, &one)) {
        if (one != NULL)
            leave(one);
    }
    release_memberships(self);
}

static memberships *new_memberships(weir_channel *channel)
{
    memberships *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    self->closed = (weir_listener){ .done = channel_closed, .dropped = channel_closed };
    atomic_init(&self->refs, 2);
    pthread_mutex_init(&self->lock, NULL);
    weir__list_init(&self->members);
    if (weir_channel_set_attr(channel, &memberships_key, self) == 0)
        return self;
    release_memberships(self); /* the other reference went with the call */
    return NULL;
}

/* What a channel is a member of, made on first use: NULL without memory. */
static memberships *memberships_of(weir_channel *channel)
{
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER; /* two threads must not both */
    memberships *self = weir_channel_attr(channel, &memberships_key);
    weir_future *closed = self == NULL ? weir_channel_closed(channel) : NULL;
    if (self != NULL || closed == NULL)
        return self;
    pthread_mutex_lock(&making);
    self = weir_channel_attr(channel, &memberships_key);
    bool is_new = self == NULL;
    if (is_new)
        self = new_memberships(channel);
    pthread_mutex_unlock(&making);
    if (is_new && self != NULL)
        weir_future_listen(closed, &self->closed);
    return self;
}

/* Members ------------------------------------------------------------------------------------ */

/* Under the lock. One that close_all waits for, and was removed, is not taken back. */
static int join(weir_channel_group *group, member *one)
{
    const member *present = *find_place(group, weir_channel_id(one->channel));
    if (present != NULL)
        return present->is_removed ? WEIR_ECLOSED : -EEXIST;
    if (group->is_closed)
        return WEIR_ECLOSED;
    pthread_mutex_lock(&one->of->lock);
    bool is_late = one->of->is_closed;
    if (!is_late)
        weir__list_push_back(&one->of->members, &one->node);
    pthread_mutex_unlock(&one->of->lock);
    if (is_late)
        return WEIR_ECLOSED;
    put_in(group, one);
    return 0;
}

static int add(weir_channel_group *group, weir_channel *channel)
{
    memberships *of = memberships_of(channel);
    member *one = of != NULL ? weir__zalloc(sizeof *one) : NULL;
    if (one == NULL)
        return -ENOMEM;
    one->group = group;
    one->channel = weir_channel_retain(channel);
    one->of = of;
    pthread_mutex_lock(&group->lock);
    int code = join(group, one);
    pthread_mutex_unlock(&group->lock);
    if (code < 0)
        free_member(one);
    return code;
}

int weir_channel_group_add(weir_channel_group *group, weir_channel *channel)
{
    if (group == NULL || channel == NULL)
        return -EINVAL;
    if (!weir_channel_is_open(channel))
        return WEIR_ECLOSED;
    int code = weir_channel_group_is_closed(group) ? WEIR_ECLOSED : add(group, channel);
    if (code == WEIR_ECLOSED) /* or is about to be, so that this does no harm */
        weir_channel_close(channel, NULL);
    return code;
}

int weir_channel_group_remove(weir_channel_group *group, weir_channel *channel)
{
    if (group == NULL || channel == NULL)
        return -EINVAL;
    member *gone = NULL;
    pthread_mutex_lock(&group->lock);
    member *one = find_member(group, weir_channel_id(channel));
    if (one != NULL && one->is_closing) {
        one->is_removed = true;
        group->removed++;
    } else if (one != NULL) {
        take_out(group, one);
        gone = detach(one) ? one : NULL;
    }
    pthread_mutex_unlock(&group->lock);
    if (gone != NULL)
        free_member(gone);
    return one != NULL ? 0 : WEIR_ENOTFOUND;
}

weir_channel *weir_channel_group_find(weir_channel_group *group, uint64_t id)
{
    if (group == NULL)
        return NULL;
    pthread_mutex_lock(&group->lock);
    const member *one = find_member(group, id);
    weir_channel *channel = one != NULL ? weir_channel_retain(one->channel) : NULL;
    pthread_mutex_unlock(&group->lock);
    return channel;
}

bool weir_channel_group_contains(weir_channel_group *group, const weir_channel *channel)
{
    if (group == NULL || channel == NULL)
        return false;
    pthread_mutex_lock(&group->lock);
    bool is_in = find_member(group, weir_channel_id(channel)) != NULL;
    pthread_mutex_unlock(&group->lock);
    return is_in;
}

size_t weir_channel_group_count(weir_channel_group *group)
{
    if (group == NULL)
        return 0;
    pthread_mutex_lock(&group->lock);
    size_t count = group->entries - group->removed;
    pthread_mutex_unlock(&group->lock);
    return count;
}

/* Walks -------------------------------------------------------------------------------------- */

void weir__channel_walk_begin(weir_channel_walk *walk, weir_channel_group *group)
{
    *walk = (weir_channel_walk){ .group = weir_channel_group_retain(group) };
    pthread_mutex_lock(&group->lock);
    walk->last = group->last_number;
    weir__list_push_front(&group->order, &walk->place.node);
    pthread_mutex_unlock(&group->lock);
}

void weir__channel_walk_end(weir_channel_walk *walk)
{
    pthread_mutex_lock(&walk->group->lock);
    weir__list_remove(&walk->place.node);
    pthread_mutex_unlock(&walk->group->lock);
    weir_channel_group_release(walk->group);
}

/* The member at a place in the order; NULL for a walk. */
static member *member_at(weir_list_node *node)
{
    weir_channel_place *place = WEIR_CONTAINER(node, weir_channel_place, node);
    return place->number > 0 ? WEIR_CONTAINER(place, member, place) : NULL;
}

/* The first behind a place that a walk may visit, NULL when there is none. */
static member *next_to_visit(const weir_channel_walk *walk)
{
    weir_list *order = &walk->group->order;
    weir_list_node *node = weir__list_next(order, &walk->place.node);
    for (; node != NULL; node = weir__list_next(order, node)) {
        member *one = member_at(node);
        if (one != NULL && one->place.number > walk->last)
            break;
        if (one != NULL && (walk->sees_removed || !one->is_removed))
            return one;
    }
    return NULL;
}

weir_channel *weir__channel_walk_on(weir_channel_walk *walk)
{
    weir_channel *channel = NULL;
    pthread_mutex_lock(&walk->group->lock);
    member *one = next_to_visit(walk);
    if (one != NULL) {
        channel = weir_channel_retain(one->channel);
        weir__list_remove(&walk->place.node);
        weir__list_link(&one->place.node, &walk->place.node);
    }
    pthread_mutex_unlock(&walk->group->lock);
    return channel;
}

size_t weir_channel_group_each(weir_channel_group *group, weir_channel_visit_fn visit, void *arg)
{
    size_t count = 0;
    weir_channel *channel;
    weir_channel_walk walk;
    if (group == NULL || visit == NULL)
        return 0;
    weir__channel_walk_begin(&walk, group);
    for (bool goes_on = true; goes_on && (channel = weir__channel_walk_on(&walk)) != NULL;
         count++) {
        goes_on = visit(arg, channel);
        weir_channel_release(channel);
    }
    weir__channel_walk_end(&walk);
    return count;
}

/* Closing many ------------------------------------------------------------------------------- */

/* Whether there is something to wait for. The group stays until that is over. */
static bool mark_all(weir_channel_group *group, weir_promise *promise, bool closes_group)
{
    pthread_mutex_lock(&group->lock);
    group->is_closed |= closes_group;
    bool was_waiting = group->closing > 0;
    weir_list_node *node = weir__list_first(&group->order);
    for (; node != NULL; node = weir__list_next(&group->order, node)) {
        member *one = member_at(node);
        if (one != NULL && !one->is_closing) {
            one->is_closing = true;
            group->closing++;
        }
    }
    bool waits = group->closing > 0;
    if (waits && !was_waiting)
        weir_channel_group_retain(group);
    if (waits)
        weir__promises_add(&group->waiting, promise);
    pthread_mutex_unlock(&group->lock);
    return waits;
}

static void close_members(weir_channel_group *group, weir_promise *promise, bool closes_group)
{
    weir_channel *channel;
    weir_channel_walk walk;
    if (group == NULL || !mark_all(group, promise, closes_group)) {
        weir__promise_end(promise, group != NULL ? 0 : -EINVAL);
        return;
    }
    weir__channel_walk_begin(&walk, group);
    walk.sees_removed = true; /* since it was marked */
    while ((channel = weir__channel_walk_on(&walk)) != NULL) {
        weir_channel_close(channel, NULL);
        weir_channel_release(channel);
    }
    weir__channel_walk_end(&walk);
}

void weir_channel_group_close_all(weir_channel_group *group, weir_promise *promise)
{
    close_members(group, promise, false);
}

void weir_channel_group_close(weir_channel_group *group, weir_promise *promise)
{
    close_members(group, promise, true);
}

bool weir_channel_group_is_closed(weir_channel_group *group)
{
    if (group == NULL)
        return false;
    pthread_mutex_lock(&group->lock);
    bool is_closed = group->is_closed;
    pthread_mutex_unlock(&group->lock);
    return is_closed;
}
