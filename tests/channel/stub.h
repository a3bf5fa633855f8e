/* SPDX-License-Identifier: MIT */
/* A transport that is quiet when the test says so. */
#ifndef WEIR_TESTS_CHANNEL_STUB_H
#define WEIR_TESTS_CHANNEL_STUB_H

#include "channel/story.h"

#include "base/alloc.h"
#include "channel/channel.h"

#include <stdatomic.h>

typedef struct stub {
    weir_channel base;
    _Atomic(bool) *is_freed;
    bool is_busy; /* an operation is in flight, until stub_become_quiet */
    bool is_connected;
} stub;

static inline bool stub_is_active(const weir_channel *channel)
{
    return ((const stub *)channel)->is_connected;
}

static inline void stub_nothing(weir_channel *channel)
{
    (void)channel;
}

static inline void stub_flush(weir_channel *channel)
{
    while (weir__outbound_has_flushed(&channel->out.queue))
        weir__outbound_remove(&channel->out.queue, 0);
    weir__channel_sent(channel, 0);
}

static inline bool stub_quiesce(weir_channel *channel, bool is_closing)
{
    (void)is_closing;
    return !((stub *)channel)->is_busy;
}

static inline void stub_destroy(weir_channel *channel)
{
    stub *self = (stub *)channel;
    if (self->is_freed != NULL)
        atomic_store(self->is_freed, true);
    weir__free(self);
}

static const weir_transport stub_transport = {
    .name = "stub",
    .is_stream = true,
    .is_active = stub_is_active,
    .start_reading = stub_nothing,
    .stop_reading = stub_nothing,
    .flush = stub_flush,
    .quiesce = stub_quiesce,
    .close = stub_nothing,
    .destroy = stub_destroy,
};

/* One that is on no loop, with a recorder; the caller has the only reference. */
static inline stub *new_stub(story *to, _Atomic(bool) *is_freed)
{
    stub *self = weir__zalloc(sizeof *self);
    assert_non_null(self);
    weir__channel_init(&self->base, &stub_transport, NULL);
    self->is_freed = is_freed;
    self->is_connected = true;
    if (to != NULL)
        assert_int_equal(add_recorder(&self->base, to), 0);
    return self;
}

static inline int stub_become_quiet(void *arg)
{
    stub *self = arg;
    self->is_busy = false;
    weir__channel_quiesced(&self->base);
    return 0;
}

#endif
