/* SPDX-License-Identifier: MIT */
/* Cases of channel/: events on their way through a pipeline, writes, and what a channel needs. */
#include "base/alloc.h"
#include "bench_exec.h"
#include "bench_memory.h"
#include "channel/channel.h"

#include "peers/hops.h"
#include "peers/peers.h"
#include "peers/work.h"

#include <weir/alloc.h>

#include <stdlib.h>

#define MESSAGE_BYTES 64

static void keep_message(weir_msg *msg)
{
    (void)msg;
}

static size_t message_size(const weir_msg *msg)
{
    (void)msg;
    return MESSAGE_BYTES;
}

static const weir_msg_type message_type = { "message", message_size, keep_message };
static weir_msg message = WEIR_MSG_CONSTANT(&message_type); /* so that nothing is counted */

/* A transport without anything behind it ----------------------------------------------------- */

static bool null_is_active(const weir_channel *channel)
{
    (void)channel;
    return true;
}

static void null_ignore(weir_channel *channel)
{
    (void)channel;
}

static void null_flush(weir_channel *channel)
{
    while (weir__outbound_has_flushed(&channel->out.queue)) {
        if (weir__outbound_current(&channel->out.queue) != NULL)
            weir__outbound_remove(&channel->out.queue, 0);
    }
    weir__channel_sent(channel, 0);
}

static bool null_quiesce(weir_channel *channel, bool is_closing)
{
    (void)channel;
    (void)is_closing;
    return true;
}

static void null_destroy(weir_channel *channel)
{
    weir__free(channel);
}

static const weir_transport null_transport = {
    .name = "null",
    .is_stream = true,
    .is_active = null_is_active,
    .start_reading = null_ignore,
    .stop_reading = null_ignore,
    .flush = null_flush,
    .quiesce = null_quiesce,
    .close = null_ignore,
    .destroy = null_destroy,
};

/* Handlers ----------------------------------------------------------------------------------- */

#define PASS(n)                                                                                    \
    static void read_##n(weir_ctx *ctx, weir_msg *msg)                                             \
    {                                                                                              \
        weir_ctx_fire_read(ctx, msg);                                                              \
        BENCH_APART(n);                                                                            \
    }                                                                                              \
    static void write_##n(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)                     \
    {                                                                                              \
        weir_ctx_write(ctx, msg, promise);                                                         \
        BENCH_APART(n);                                                                            \
    }                                                                                              \
    static void flush_##n(weir_ctx *ctx)                                                           \
    {                                                                                              \
        weir_ctx_flush(ctx);                                                                       \
        BENCH_APART(n);                                                                            \
    }
HOPS(PASS)

static const weir_handler_type passing[HOPS_MOST] = {
#define PASSING(n)                                                                                 \
    { .name = "passing", .on_read = read_##n, .write = write_##n, .flush = flush_##n },
    HOPS(PASSING)
};

static const weir_handler_type skipped[HOPS_MOST] = {
#define SKIPPED(n) { .name = "skipped", .write = write_##n, .flush = flush_##n },
    HOPS(SKIPPED)
};

static uint64_t taken;

static void take_read(weir_ctx *ctx, weir_msg *msg)
{
    (void)ctx;
    (void)msg;
    taken++;
}

static const weir_handler_type last = { .name = "last", .on_read = take_read };

/* Channels ----------------------------------------------------------------------------------- */

static void add_handler(weir_channel *channel, const weir_handler_type *type)
{
    int code = weir_pipeline_add_last(&channel->pipeline, NULL, type, NULL);
    if (code < 0)
        bench_fail("weir_pipeline_add_last: %s", weir_error_text(code));
}

/* A channel on the loop, with the first of the types' handlers and perhaps a last one. */
static weir_channel *open_channel(weir_executor *loop, const weir_handler_type *types, size_t count,
                                  const weir_handler_type *end)
{
    weir_channel *channel = weir__zalloc(sizeof *channel);
    if (channel == NULL)
        bench_fail("no memory for a channel");
    weir__channel_init(channel, &null_transport, NULL);
    for (size_t i = 0; i < count; i++)
        add_handler(channel, &types[i]);
    if (end != NULL)
        add_handler(channel, end);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_register(channel, loop, promise);
    int code = weir_future_await(weir_promise_future(promise));
    if (code < 0)
        bench_fail("weir_channel_register: %s", weir_error_text(code));
    weir_promise_release(promise);
    return channel;
}

static void close_channel(weir_channel *channel)
{
    weir_channel_close(channel, NULL);
    weir_future_await(weir_channel_closed(channel));
    weir_channel_release(channel);
}

/* Reads -------------------------------------------------------------------------------------- */

/* Messages through a pipeline, and the time they took. */
typedef struct passage {
    weir_pipeline *pipeline;
    hop *first;
    uint64_t count;
    bench_run time;
} passage;

/* What the time of so many messages through so many handlers is asked of. */
typedef struct course {
    weir_executor *loop;
    const weir_handler_type *types; /* of the handlers before the last one */
} course;

static int fire_reads(void *arg)
{
    passage *self = arg;
    taken = 0;
    bench_start(&self->time);
    for (uint64_t i = 0; i < self->count; i++)
        weir_pipeline_fire_read(self->pipeline, &message);
    bench_stop(&self->time);
    if (taken != self->count)
        bench_fail("%llu of %llu messages came through", (unsigned long long)taken,
                   (unsigned long long)self->count);
    return 0;
}

static uint64_t time_reads(void *arg, size_t handlers, uint64_t count)
{
    const course *self = arg;
    weir_channel *channel = open_channel(self->loop, self->types, handlers, &last);
    passage through = { .pipeline = &channel->pipeline, .count = count, .time.clock = BENCH_CPU };
    bench_call_on_loop(self->loop, fire_reads, &through);
    close_channel(channel);
    return through.time.taken_ns;
}

/* The hand-written one, on a loop's thread as well, for the sake of the same CPU. */
static int call_hops(void *arg)
{
    passage *self = arg;
    hop *first = bench_hide(self->first);
    bench_start(&self->time);
    for (uint64_t i = 0; i < self->count; i++)
        first->read(first, &message);
    bench_stop(&self->time);
    return 0;
}

static uint64_t time_hops(void *arg, size_t handlers, uint64_t count)
{
    const course *self = arg;
    hop *hops = bench_alloc((handlers + 1) * sizeof *hops);
    for (size_t i = 0; i < handlers; i++)
        hops[i] = (hop){ hops_pass[i], &hops[i + 1], 0 };
    hops[handlers].read = hop_take;
    passage through = { .first = hops, .count = count, .time.clock = BENCH_CPU };
    bench_call_on_loop(self->loop, call_hops, &through);
    if (hops[handlers].taken != count)
        bench_fail("the hand-written pipeline lost messages");
    free(hops);
    return through.time.taken_ns;
}

static void run_course(bench_run *run, work_pass_fn pass, const weir_handler_type *types,
                       size_t few, size_t many)
{
    course self = { .types = types };
    weir_group *group = bench_open_loop(&self.loop);
    if (few == many)
        bench_take(run, pass(&self, many, run->count));
    else
        work_run_difference(run, few, many, pass, &self);
    bench_close_loop(group);
}

static void channel_read(bench_run *run)
{
    run_course(run, time_reads, passing, run->size, run->size);
}

static void hand_read(bench_run *run)
{
    run_course(run, time_hops, NULL, run->size, run->size);
}

static void channel_hop(bench_run *run)
{
    run_course(run, time_reads, passing, WORK_FEW_HOPS, WORK_MANY_HOPS);
}

static void hand_hop(bench_run *run)
{
    run_course(run, time_hops, NULL, WORK_FEW_HOPS, WORK_MANY_HOPS);
}

static void channel_skip(bench_run *run)
{
    run_course(run, time_reads, skipped, 0, run->size);
}

/* Writes ------------------------------------------------------------------------------------- */

typedef struct writing {
    weir_channel *channel;
    bench_run *run;
} writing;

static uint64_t allocations(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.allocations;
}

static void write_messages(weir_channel *channel, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        weir_channel_write_and_flush(channel, &message, NULL);
}

static int time_writes(void *arg)
{
    const writing *self = arg;
    weir_channel_stats stats;
    write_messages(self->channel, 1); /* the loop keeps the entry of the queue */
    uint64_t before = allocations();
    bench_start(self->run);
    write_messages(self->channel, self->run->count);
    bench_stop(self->run);
    if (allocations() != before)
        bench_fail("%llu allocations for writes that need none",
                   (unsigned long long)(allocations() - before));
    weir_channel_get_stats(self->channel, &stats);
    if (stats.messages_out != self->run->count + 1)
        bench_fail("messages were lost");
    return 0;
}

static void channel_write(bench_run *run)
{
    weir_executor *loop;
    weir_group *group = bench_open_loop(&loop);
    writing self = { open_channel(loop, passing, run->size, NULL), run };
    bench_call_on_loop(loop, time_writes, &self);
    close_channel(self.channel);
    bench_close_loop(group);
}

/* Memory ------------------------------------------------------------------------------------- */

#define CHANNELS 1000

static weir_channel *channels[CHANNELS];

static int write_to_all(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < CHANNELS; i++)
        weir_channel_write(channels[i], &message, NULL);
    return 0;
}

/* With a message in each one's queue. */
static void channel_bytes(bench_run *run)
{
    weir_executor *loop;
    bench_count_memory();
    weir_group *group = bench_open_loop(&loop);
    size_t before = bench_held_bytes();
    for (size_t i = 0; i < CHANNELS; i++)
        channels[i] = open_channel(loop, passing, run->size, NULL);
    bench_call_on_loop(loop, write_to_all, NULL);
    bench_report(run, (double)(bench_held_bytes() - before) / CHANNELS);
    for (size_t i = 0; i < CHANNELS; i++)
        close_channel(channels[i]);
    bench_close_loop(group);
}

const bench_case bench_channel_cases[] = {
    { "channel.read_1", "a message that is read, through one handler to a last one", channel_read,
      BENCH_CPU, .size = 1,
      .peers = { { "hand-written", hand_read, 0 }, PEER_NETTY(peer_netty_read, 0) } },
    { "channel.read_8", "the same through eight handlers", channel_read, BENCH_CPU, .size = 8,
      .peers = { { "hand-written", hand_read, 0 }, PEER_NETTY(peer_netty_read, 0) } },
    { "channel.hop", "from one handler to the next: (read_8 - read_1) / 7", channel_hop, BENCH_CPU,
      .peers = { { "hand-written", hand_hop, .target = 2 }, PEER_NETTY(peer_netty_hop, 0.5) } },
    { "channel.skip_8", "a handler without on_read, as one of eight before the last", channel_skip,
      BENCH_CPU, .size = 8, .limit = 1.5 },
    { "channel.write", "write and flush through three handlers, and be rid of it", channel_write,
      BENCH_CPU, .size = 3, .peers = { { "hand-wr. hop", hand_hop, .target = 25 } } },
    { "channel.bytes", "memory of a channel with three handlers and a message in its queue",
      channel_bytes, .size = 3, .unit = "bytes", .limit = 1024 },
    { 0 },
};
