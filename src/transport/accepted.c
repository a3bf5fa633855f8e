/* SPDX-License-Identifier: MIT */
/* The messages that listeners read. */
#include "transport/accepted.h"

#include "base/alloc.h"

static void accepted_destroy(weir_msg *msg)
{
    weir_channel_release(((weir_accepted *)msg)->channel); /* which closes it: it is on no loop */
    weir__free(msg);
}

const weir_msg_type weir_accepted_type = { .name = "accepted", .destroy = accepted_destroy };

weir_msg *weir__accepted_new(weir_channel *child)
{
    weir_accepted *self = weir__alloc(sizeof *self);
    if (self == NULL)
        return NULL;
    weir_msg_init(&self->msg, &weir_accepted_type);
    self->channel = child;
    return &self->msg;
}

weir_channel *weir_accepted_take(weir_msg *msg)
{
    if (msg == NULL || msg->type != &weir_accepted_type)
        return NULL;
    weir_accepted *self = (weir_accepted *)msg;
    weir_channel *channel = self->channel;
    self->channel = NULL;
    return channel;
}
