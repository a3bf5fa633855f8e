/* SPDX-License-Identifier: MIT */
/* Lists of addresses. */
#include "bootstrap/addresses.h"

#include "base/alloc.h"

void weir__candidates_add(weir_candidates *self, const weir_address *address)
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

weir_addresses *weir__candidates_list(const weir_candidates *from)
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
    weir_candidates all = { 0 };
    for (size_t i = 0; i < count; i++)
        weir__candidates_add(&all, &from[i]);
    return weir__candidates_list(&all);
}

void weir_addresses_free(void *addresses)
{
    weir__free(addresses);
}

/* A promise that was cancelled does not want them any more. */
void weir__addresses_succeed(weir_promise *promise, weir_addresses *addresses)
{
    if (weir_promise_succeed(promise, addresses, weir_addresses_free) < 0)
        weir_addresses_free(addresses);
}
