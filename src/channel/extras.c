/* SPDX-License-Identifier: MIT */
/* What few channels need: attributes, rare options, a client behind the peer. */
#include "channel/extras.h"

#include "base/alloc.h"

#include <errno.h>
#include <string.h>

/* Options -------------------------------------------------------------------------------------- */

static const weir_option_info infos[] = {
#define INFO(id, name, kind, least, most, normal)                                                  \
    [WEIR_OPTION_##id] = { #name, WEIR_KIND_##kind, least, most, normal },
    WEIR_OPTIONS(INFO)
#undef INFO
};

const weir_option_info *weir_option_get_info(weir_option option)
{
    return (unsigned)option < WEIR_OPTIONS_END ? &infos[option] : NULL;
}

int weir_option_from(const char *name)
{
    for (int i = 0; name != NULL && i < WEIR_OPTIONS_END; i++) {
        if (strcmp(infos[i].name, name) == 0)
            return i;
    }
    return -EINVAL;
}

weir_channel_extras *weir__channel_need_extras(weir_channel *channel)
{
    weir_channel_extras *extras = weir__channel_extras(channel), *none = NULL;
    if (extras != NULL)
        return extras;
    extras = weir__zalloc(sizeof *extras);
    if (extras == NULL)
        return NULL;
    extras->channel = channel;
    weir__list_init(&extras->timers);
    for (int i = 0; i < WEIR__CHANNEL_OPTIONS_END; i++)
        atomic_init(&extras->options[i], infos[i].normal);
    if (atomic_compare_exchange_strong_explicit(&channel->shared.extras, &none, extras,
                                                memory_order_acq_rel, memory_order_acquire))
        return extras;
    weir__free(extras);
    return none;
}

int64_t weir__channel_option(const weir_channel *channel, weir_option option)
{
    weir_channel_extras *extras = weir__channel_extras(channel);
    return extras != NULL ? atomic_load_explicit(&extras->options[option], memory_order_relaxed)
                          : infos[option].normal;
}

/* Attributes ----------------------------------------------------------------------------------- */

static void destroy_value(const weir_attr_key *key, void *value)
{
    if (value != NULL && key->destroy != NULL)
        key->destroy(value);
}

void weir__channel_free_extras(weir_channel *channel)
{
    weir_channel_extras *extras = weir__channel_extras(channel);
    if (extras == NULL)
        return;
    for (weir_attr *attr = extras->attrs, *next; attr != NULL; attr = next) {
        next = attr->next;
        destroy_value(attr->key, attr->value);
        weir__free(attr);
    }
    for (weir_pin *pin = extras->pins, *next; pin != NULL; pin = next) {
        next = pin->next;
        weir__free(pin);
    }
    weir__free(extras->client);
    weir__free(extras->child_options);
    weir__free(extras);
}

static weir_attr *find_attr(const weir_channel *channel, const weir_attr_key *key)
{
    weir_channel_extras *extras = weir__channel_extras(channel);
    weir_attr *attr = extras != NULL ? extras->attrs : NULL;
    while (attr != NULL && attr->key != key)
        attr = attr->next;
    return attr;
}

void *weir_channel_attr(const weir_channel *channel, const weir_attr_key *key)
{
    if (channel == NULL || key == NULL)
        return NULL;
    weir__channel_lock(channel);
    const weir_attr *attr = find_attr(channel, key);
    void *value = attr != NULL ? attr->value : NULL;
    weir__channel_unlock(channel);
    return value;
}

int weir_channel_set_attr(weir_channel *channel, const weir_attr_key *key, void *value)
{
    if (channel == NULL || key == NULL) {
        if (key != NULL)
            destroy_value(key, value);
        return -EINVAL;
    }
    weir_channel_extras *extras = weir__channel_need_extras(channel);
    weir_attr *spare = extras != NULL ? weir__alloc(sizeof *spare) : NULL;
    weir__channel_lock(channel);
    weir_attr *attr = find_attr(channel, key);
    if (attr == NULL && spare != NULL && value != NULL) {
        *spare = (weir_attr){ .next = extras->attrs, .key = key };
        attr = extras->attrs = spare;
        spare = NULL;
    }
    void *old = value;
    if (attr != NULL) {
        old = attr->value;
        attr->value = value;
    }
    weir__channel_unlock(channel);
    weir__free(spare);
    if (attr == NULL || old != value)
        destroy_value(key, old); /* what was there, or what found no place */
    return attr != NULL || value == NULL ? 0 : -ENOMEM;
}

/* The client ----------------------------------------------------------------------------------- */

bool weir__channel_client(const weir_channel *channel, weir_address *address)
{
    weir_channel_extras *extras = weir__channel_extras(channel);
    if (extras == NULL)
        return false;
    weir__channel_lock(channel);
    bool is_known = extras->client != NULL;
    if (is_known)
        *address = *extras->client;
    weir__channel_unlock(channel);
    return is_known;
}

int weir_channel_set_remote_address(weir_channel *channel, const weir_address *address)
{
    bool has_client = address != NULL;
    if (channel == NULL || (has_client && weir_address_kind_of(address) == WEIR_ADDRESS_NONE))
        return -EINVAL;
    weir_channel_extras *extras = has_client ? weir__channel_need_extras(channel)
                                             : weir__channel_extras(channel);
    weir_address *client = has_client && extras != NULL ? weir__alloc(sizeof *client) : NULL;
    if (has_client && client == NULL)
        return -ENOMEM;
    if (extras == NULL)
        return 0;
    if (has_client)
        *client = *address;
    weir__channel_lock(channel);
    weir_address *before = extras->client;
    extras->client = client;
    weir__channel_unlock(channel);
    weir__free(before);
    return 0;
}
