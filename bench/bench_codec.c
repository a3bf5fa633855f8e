/* SPDX-License-Identifier: MIT */
/* Cases of codec/ and handler/: from bytes to messages in a pipeline, as they come from a socket.
 */
#include "bench.h"
#include "peers/peers.h"

#include <weir/alloc.h>
#include <weir/delimiter.h>
#include <weir/embedded.h>
#include <weir/idle.h>
#include <weir/length_field.h>

#include <string.h>

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

/* The time that so many reads take. */
static uint64_t time_reads(const decoding *self)
{
    weir_pipeline *pipeline = weir_embedded_pipeline(self->embedded);
    fire_read(self, pipeline); /* the pool has what it needs */
    uint64_t before = allocations();
    taken = 0;
    bench_start(self->run);
    for (uint64_t i = 0; i < self->run->count; i++)
        fire_read(self, pipeline);
    uint64_t time_ns = bench_stop(self->run);
    if (taken != self->run->count * self->messages)
        bench_fail("messages were lost");
    if (allocations() != before)
        bench_fail("%llu allocations beside the pool",
                   (unsigned long long)(allocations() - before));
    return time_ns;
}

static int fire_reads(void *arg)
{
    time_reads(arg);
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

/* Lines of run->size bytes with their ends. */
static weir_buf *make_lines(const bench_run *run)
{
    weir_buf *read = weir_buf_new(READ_BYTES);
    for (size_t i = 0; i < READ_BYTES / run->size; i++) {
        weir_buf_write_fill(read, 'x', run->size - 1);
        weir_buf_write_u8(read, '\n');
    }
    return read;
}

static void line(bench_run *run)
{
    static weir_delimited lines = { .max_length = READ_BYTES };
    run_decoder(run, (decoding){ &weir_line_decoder, &lines, make_lines(run),
                                 .messages = READ_BYTES / run->size });
}

/* The ends of the same lines are found, and nothing is done with them. */
static void line_by_memchr(bench_run *run)
{
    weir_buf *read = make_lines(run);
    const char *bytes = (const char *)weir_buf_peek(read, 0, READ_BYTES);
    uint64_t found = 0;
    bench_start(run);
    for (uint64_t i = 0; i < run->count; i++) {
        const char *at = bench_hide((void *)bytes), *end = bytes + READ_BYTES;
        for (; at < end; at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1)
            found++;
    }
    bench_stop(run);
    if (found != run->count * (READ_BYTES / run->size))
        bench_fail("lines were lost");
    weir_buf_release(read);
}

/* What a handler adds to a read: the difference to the same without it. */
static int time_handler(void *arg)
{
    const decoding *self = arg;
    uint64_t with = time_reads(self);
    if (weir_pipeline_remove(weir_embedded_pipeline(self->embedded), "decoder", NULL) < 0)
        bench_fail("the handler cannot be removed");
    uint64_t without = time_reads(self);
    bench_report(self->run, ((double)with - (double)without) / (double)self->run->count);
    return 0;
}

static void idle(bench_run *run)
{
    static weir_idle idle = { .reader_ns = WEIR_SECONDS(60),
                              .writer_ns = WEIR_SECONDS(60),
                              .both_ns = WEIR_SECONDS(60) };
    decoding self = { &weir_idle_handler, &idle, weir_buf_from("x", 1), .messages = 1, .run = run };
    weir_embedded_config config = { .init = add_handlers, .arg = &self };
    if (weir_embedded_new(&self.embedded, &config, NULL) < 0)
        bench_fail("no channel");
    weir_embedded_call(self.embedded, time_handler, &self);
    weir_embedded_free(self.embedded);
    weir_buf_release(self.read);
}

const bench_case bench_codec_cases[] = {
    { "codec.length_field", "a frame of 64 bytes behind its length, from reads of 16 KiB",
      length_field, BENCH_CPU, .batch = FRAMES,
      .peers = { PEER_NETTY(peer_netty_length_field, 1.0 / 3) } },
    { "codec.line_64", "a line of 64 bytes, from reads of 16 KiB", line, BENCH_CPU,
      .batch = READ_BYTES / 64, .size = 64, .peers = { { "memchr", line_by_memchr, 0 } } },
    { "codec.line_1k", "a line of 1 KiB", line, BENCH_CPU, .batch = READ_BYTES / 1024, .size = 1024,
      .peers = { { "memchr", line_by_memchr, 1.7 } } },
    { "codec.line_8k", "a line of 8 KiB", line, BENCH_CPU, .batch = READ_BYTES / 8192, .size = 8192,
      .peers = { { "memchr", line_by_memchr, 1.5 } } },
    { "handler.idle", "what the idle handler adds to a read", idle, BENCH_CPU, .limit = 5 },
    { 0 },
};
