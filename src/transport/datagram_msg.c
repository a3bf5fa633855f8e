/* SPDX-License-Identifier: MIT */
/* Datagrams as messages; their memory comes from the pool of buffers, so that none is allocated. */
#include "buf/pool.h"

#include <weir/datagram.h>

static void datagram_destroy(weir_msg *msg)
{
    weir_block *block = (weir_block *)((uint8_t *)msg - offsetof(weir_block, bytes));
    weir_buf_release(((weir_datagram *)msg)->content);
    weir__block_release(block);
}

static size_t datagram_size(const weir_msg *msg)
{
    return weir_buf_readable(((const weir_datagram *)msg)->content);
}

const weir_msg_type weir_datagram_type = {
    .name = "datagram",
    .size = datagram_size,
    .destroy = datagram_destroy,
};

weir_datagram *weir_datagram_new(weir_buf *content, const weir_address *recipient,
                                 const weir_address *sender)
{
    weir_block *block = content != NULL ? weir__block_new(sizeof(weir_datagram)) : NULL;
    if (block == NULL)
        return NULL;
    weir_datagram *self = (weir_datagram *)block->bytes;
    weir_msg_init(&self->msg, &weir_datagram_type);
    self->content = content;
    self->recipient = recipient != NULL ? *recipient : (weir_address){ 0 };
    self->sender = sender != NULL ? *sender : (weir_address){ 0 };
    self->segment_bytes = 0;
    self->is_truncated = self->is_broadcast = false;
    return self;
}

weir_datagram *weir_datagram_answer(const weir_datagram *datagram, weir_buf *content)
{
    /* Nobody is a group, or everybody: that answer comes from where the kernel chooses. */
    bool is_to_many = datagram->is_broadcast || weir_address_is_multicast(&datagram->recipient);
    return weir_datagram_new(content, &datagram->sender, is_to_many ? NULL : &datagram->recipient);
}
