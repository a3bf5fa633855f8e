/* SPDX-License-Identifier: MIT */
/* Cases of codec/: from bytes to messages, in a pipeline, as they come from a socket. */
#include "bench.h"
#include "peers/peers.h"

#include <weir/alloc.h>
#include <weir/embedded.h>
#include <weir/length_field.h>

#define READ_BYTES 16384
#define FRAME_BYTES 64 /* with its length */
#define FRAMES (READ_BYTES / FRAME_BYTES)

/* Whoever gets the messages. */
static uint64_t taken;

static void take_read(weir_ctx *ctx, weir_msg *msg)
{
    (void)ctx;
    taken++;
    weir_msg_release(msg);
}

static const weir_handler_type last = { .name = "last", .on_read = take_read };

/* A decoder, and what it gets again and again. */
typedef struct decoding {
    const weir_handler_type *type;
    void *config;
    weir_buf *read;
    uint64_t messages; /* in that */
    weir_embedded *embedded;
    bench_run *run;
} decoding;

static int add_handlers(weir_channel *channel, void *arg)
{
    const decoding *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "decoder", self->type, self->config);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "last", &last, NULL);
}

static void fire_read(const decoding *self, weir_pipeline *pipeline)
{
    weir_buf *read;
    if (weir_buf_duplicate(self->read, &read) < 0)
        bench_fail("no memory for a read");
    weir_pipeline_fire_read(pipeline, &read->msg);
}

static uint64_t allocations(void)
{
    weir_allocator_stats stats;
    weir_allocator_get_stats(&stats);
    return stats.allocations;
}

static int fire_reads(void *arg)
{
    const decoding *self = arg;
    weir_pipeline *pipeline = weir_embedded_pipeline(self->embedded);
    fire_read(self, pipeline); /* the pool has what it needs */
    uint64_t before = allocations();
    taken = 0;
    bench_start(self->run);
    for (uint64_t i = 0; i < self->run->count; i++)
        fire_read(self, pipeline);
    bench_stop(self->run);
    if (taken != self->run->count * self->messages)
        bench_fail("messages were lost");
    if (allocations() != before)
        bench_fail("%llu allocations beside the pool",
                   (unsigned long long)(allocations() - before));
    return 0;
}

static void run_decoder(bench_run *run, decoding self)
{
    weir_embedded_config config = { .init = add_handlers, .arg = &self };
    self.run = run;
    if (weir_embedded_new(&self.embedded, &config, NULL) < 0)
        bench_fail("no channel");
    weir_embedded_call(self.embedded, fire_reads, &self);
    weir_embedded_free(self.embedded);
    weir_buf_release(self.read);
}

static void length_field(bench_run *run)
{
    static weir_length_field field = { .max_frame = 1024, .width = 4, .strip = 4 };
    weir_buf *read = weir_buf_new(READ_BYTES);
    for (int i = 0; i < FRAMES; i++) {
        weir_buf_write_u32(read, FRAME_BYTES - 4);
        weir_buf_write_fill(read, 'x', FRAME_BYTES - 4);
    }
    run_decoder(run, (decoding){ &weir_length_field_decoder, &field, read, .messages = FRAMES });
}

const bench_case bench_codec_cases[] = {
    { "codec.length_field", "a frame of 64 bytes behind its length, from reads of 16 KiB",
      length_field, BENCH_CPU, .batch = FRAMES,
      .peers = { PEER_NETTY(peer_netty_length_field, 1.0 / 3) } },
    { 0 },
};
