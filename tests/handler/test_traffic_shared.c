/* SPDX-License-Identifier: MIT */
/* Traffic shaping of many channels together: on several loops, on threads, over real sockets. */
#include "bootstrap/servers.h"

#include <weir/clock.h>
#include <weir/embedded.h>
#include <weir/traffic.h>

/* Channels on two loops that are driven by hand, in a time that stands still. */
enum { CHANNELS = 5 };

typedef struct world {
    weir_virtual_clock clock;
    weir_group *group;
    weir_shaper *shaper;
    weir_traffic configs[CHANNELS];
    weir_embedded *channels[CHANNELS];
    uint64_t sent[CHANNELS], read[CHANNELS];
} world;

static int add_traffic(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "traffic", &weir_traffic_handler,
                                  arg);
}

static void begin(world *self, const weir_traffic_limits *limits)
{
    weir_virtual_clock_init(&self->clock, WEIR_SECONDS(1000));
    weir_group_config config = { .loops = 2, .is_manual = true, .clock = &self->clock.clock };
    self->group = open_group(&config);
    assert_int_equal(weir_shaper_new(&self->shaper, limits, NULL), 0);
    for (int i = 0; i < CHANNELS; i++) {
        self->configs[i].shared = self->shaper;
        weir_embedded_config embedded = { .init = add_traffic, .arg = &self->configs[i] };
        embedded.group = self->group;
        assert_int_equal(weir_embedded_new(&self->channels[i], &embedded, NULL), 0);
    }
    assert_ptr_not_equal(weir_channel_loop(weir_embedded_channel(self->channels[0])),
                         weir_channel_loop(weir_embedded_channel(self->channels[1])));
}

static void run(world *self)
{
    while (weir_group_next_ns(self->group) == 0)
        weir_group_step(self->group);
}

static void pass_time(world *self, int64_t left_ns)
{
    int64_t next_ns;
    run(self);
    while ((next_ns = weir_group_next_ns(self->group)) > 0 && next_ns <= left_ns) {
        left_ns -= next_ns;
        weir_virtual_clock_advance(&self->clock, next_ns);
        run(self);
    }
    weir_virtual_clock_advance(&self->clock, left_ns);
    run(self);
}

static void take(world *self)
{
    weir_msg *msg;
    for (int i = 0; i < CHANNELS; i++) {
        if (self->channels[i] == NULL)
            continue;
        while ((msg = weir_embedded_read_outbound(self->channels[i])) != NULL) {
            self->sent[i] += weir_msg_size(msg);
            weir_msg_release(msg);
        }
        while ((msg = weir_embedded_read_inbound(self->channels[i])) != NULL) {
            self->read[i] += weir_msg_size(msg);
            weir_msg_release(msg);
        }
    }
}

static uint64_t sum_of(const uint64_t *values)
{
    uint64_t sum = 0;
    for (int i = 0; i < CHANNELS; i++)
        sum += values[i];
    return sum;
}

static void close_one(world *self, int i)
{
    if (self->channels[i] == NULL)
        return;
    weir_embedded_close(self->channels[i]);
    run(self);
    take(self);
    weir_embedded_free(self->channels[i]);
    self->channels[i] = NULL;
}

static void end(world *self)
{
    weir_traffic_stats stats;
    for (int i = 0; i < CHANNELS; i++)
        weir_embedded_close(self->channels[i]);
    run(self);
    take(self);
    weir_shaper_get_stats(self->shaper, &stats);
    assert_int_equal(stats.delayed_bytes, 0);
    assert_int_equal(stats.reads_paused, 0);
    assert_int_equal(stats.written_bytes, sum_of(self->sent));
    assert_int_equal(stats.read_bytes, sum_of(self->read));
    for (int i = 0; i < CHANNELS; i++)
        close_one(self, i);
    end_group(self->group);
    weir_shaper_free(self->shaper);
}

static weir_msg *bytes(size_t size)
{
    weir_buf *buf = weir_buf_new(size);
    assert_int_equal(weir_buf_write_fill(buf, 'x', size), 0);
    return &buf->msg;
}

static void write_some(world *self, int i, size_t size)
{
    weir_channel_write_and_flush(weir_embedded_channel(self->channels[i]), bytes(size), NULL);
    run(self);
}

/* All that may be written by then, and read. */
static void be_busy(world *self, int from, int to, size_t size, int duration_ms)
{
    for (int ms = 0; ms < duration_ms; ms += 10) {
        for (int i = from; i < to; i++) {
            while (weir_channel_is_writable(weir_embedded_channel(self->channels[i])))
                write_some(self, i, size);
        }
        pass_time(self, WEIR_MS(10));
        take(self);
    }
}

static void assert_near(uint64_t value, uint64_t expected)
{
    assert_in_range(value, expected * 98 / 100, expected * 102 / 100);
}

/* Together ------------------------------------------------------------------------------------- */

static void together_they_keep_to_the_rate(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self,
          &(weir_traffic_limits){ .write_bytes_per_second = 500000, .write_burst_bytes = 5000 });
    be_busy(&self, 0, CHANNELS, 1000, 10000);
    assert_near(sum_of(self.sent), 5000000 + 5000);
    for (int i = 0; i < CHANNELS; i++)
        assert_near(self.sent[i], 5000000 / CHANNELS);
    end(&self);
}

static void together_they_read_no_faster(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, &(weir_traffic_limits){ .read_bytes_per_second = 500000 });
    for (int ms = 0; ms < 10000; ms++) {
        for (int i = 0; i < CHANNELS; i++) {
            while (weir_embedded_is_reading(self.channels[i]))
                assert_int_equal(weir_embedded_write_inbound(self.channels[i], bytes(1000)), 0);
        }
        pass_time(&self, WEIR_MS(1));
        take(&self);
    }
    assert_near(sum_of(self.read), 5000000 + 50000);
    for (int i = 0; i < CHANNELS; i++)
        assert_in_range(self.read[i], 900000, 1100000);
    end(&self);
}

/* Four with all they can, and one with a little now and then: it waits for a turn of each. */
static void nobody_starves(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, &(weir_traffic_limits){ .write_bytes_per_second = 100000 });
    be_busy(&self, 1, CHANNELS, 5000, 2000);
    for (int round = 1; round <= 10; round++) {
        write_some(&self, 0, 100);
        be_busy(&self, 1, CHANNELS, 5000, 4 * 50 + 20);
        assert_int_equal(self.sent[0], 100 * round);
    }
    end(&self);
}

static void both_limits_hold(void **state)
{
    (void)state;
    world self = { 0 };
    self.configs[0].each.write_bytes_per_second = 5000;
    self.configs[1].each = (weir_traffic_limits){ .write_bytes_per_second = 10000,
                                                  .write_burst_bytes = 1000 };
    begin(&self,
          &(weir_traffic_limits){ .write_bytes_per_second = 100000, .write_burst_bytes = 500 });
    be_busy(&self, 0, CHANNELS, 500, 10000);
    assert_near(self.sent[0], 50000 + 500);
    assert_near(self.sent[1], 100000 + 1000);
    assert_near(sum_of(self.sent), 1000000);
    for (int i = 2; i < CHANNELS; i++)
        assert_near(self.sent[i], (1000000 - 50500 - 101000) / 3);
    end(&self);
}

static void who_leaves_gives_its_turn_back(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, &(weir_traffic_limits){ .write_bytes_per_second = 1000, .write_burst_bytes = 1 });
    for (int round = 0; round < 100; round++) { /* or it would add up */
        weir_channel *channel = weir_embedded_channel(self.channels[0]);
        weir_promise *promise = weir_channel_promise(channel);
        weir_channel_write_and_flush(channel, bytes(3000), promise);
        run(&self);
        assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
        pass_time(&self, WEIR_SECONDS(1));
        weir_promise_release(promise);
    }
    write_some(&self, 0, 4000);
    write_some(&self, 1, 101);
    close_one(&self, 0);
    pass_time(&self, WEIR_SECONDS(1));
    weir_traffic_stats stats;
    weir_shaper_get_stats(self.shaper, &stats);
    assert_int_equal(stats.written_bytes, 101);
    assert_int_equal(stats.delayed_bytes, 0);
    weir_embedded_config embedded = { .init = add_traffic, .arg = &self.configs[0] };
    embedded.group = self.group;
    assert_int_equal(weir_embedded_new(&self.channels[0], &embedded, NULL), 0);
    take(&self);
    end(&self);
}

static void it_goes_on_on_another_loop(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, &(weir_traffic_limits){ .write_bytes_per_second = 1000,
                                         .write_burst_bytes = 1,
                                         .read_bytes_per_second = 1000,
                                         .read_burst_bytes = 1 });
    weir_channel *channel = weir_embedded_channel(self.channels[0]);
    for (int i = 0; i < 10; i++)
        write_some(&self, 0, 100);
    weir_embedded_write_inbound(self.channels[0], bytes(500));
    for (int i = 0; i < 10; i++) {
        weir_channel_move(channel, weir_group_next(self.group), NULL);
        pass_time(&self, WEIR_MS(100));
        take(&self);
        assert_int_equal(self.sent[0], 100 * (i + 1));
        assert_int_equal(weir_embedded_is_reading(self.channels[0]), i >= 4);
    }
    pass_time(&self, WEIR_MS(200));
    take(&self);
    assert_int_equal(self.sent[0], 1000);
    end(&self);
}

/* Real sockets --------------------------------------------------------------------------------- */

enum { CONNECTIONS = 4, EACH = 100 * 4096 };

typedef struct shaped {
    setup servers;
    weir_traffic config;
    atomic_size_t read;
    atomic_bool is_over;
} shaped;

static void send_all(weir_ctx *ctx)
{
    for (size_t at = 0; at < EACH; at += 4096) {
        weir_buf *buf = weir_buf_new(4096);
        for (uint32_t i = 0; i < 4096 / 4; i++)
            weir_buf_write_u32(buf, (uint32_t)at + i);
        weir_ctx_write_and_flush(ctx, &buf->msg, NULL);
    }
    weir_channel_finish(weir_ctx_channel(ctx), NULL);
    weir_ctx_fire_active(ctx);
}

static void count_bytes(weir_ctx *ctx, weir_msg *msg)
{
    shaped *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->read, weir_msg_size(msg));
    weir_msg_release(msg);
}

static const weir_handler_type sender_type = { .name = "sender", .on_active = send_all };
static const weir_handler_type taker_type = { .name = "taker", .on_read = count_bytes };

static int init_shaped(weir_channel *child, void *arg, const weir_handler_type *type)
{
    shaped *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(child);
    int code = weir_pipeline_add_last(pipeline, "traffic", &weir_traffic_handler, &self->config);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, NULL, type, self);
}

static int init_sender(weir_channel *child, void *arg)
{
    return init_shaped(child, arg, &sender_type);
}

static int init_taker(weir_channel *child, void *arg)
{
    return init_shaped(child, arg, &taker_type);
}

static void open_shaped(shaped *self, const backend *with, weir_init_fn init,
                        const weir_traffic_limits *limits)
{
    memset(self, 0, sizeof *self);
    assert_int_equal(weir_shaper_new(&self->config.shared, limits, NULL), 0);
    prepare(&self->servers, with, 1, 3);
    self->servers.config.init = NULL;
    self->servers.config.init_child = init;
    self->servers.config.arg = self;
    listen_on(&self->servers, EVERYWHERE);
}

static void close_shaped(shaped *self)
{
    weir_traffic_stats stats;
    close_all(&self->servers);
    weir_shaper_get_stats(self->config.shared, &stats);
    assert_int_equal(stats.delayed_bytes + stats.delayed_messages + stats.reads_paused, 0);
    weir_shaper_free(self->config.shared);
}

/* Other limits again and again, none of them faster than the first, and looks at what is. */
static void *fiddle(void *arg)
{
    shaped *self = arg;
    weir_traffic_stats stats;
    for (int64_t i = 0; !atomic_load(&self->is_over); i++) {
        weir_traffic_limits limits = { .write_bytes_per_second = 4000000 - i % 10 * 100000,
                                       .read_bytes_per_second = 4000000 - i % 10 * 100000,
                                       .write_burst_bytes = 100000,
                                       .read_burst_bytes = 100000 };
        assert_int_equal(weir_shaper_set_limits(self->config.shared, &limits, NULL), 0);
        weir_shaper_get_stats(self->config.shared, &stats);
        sched_yield();
    }
    return NULL;
}

static const weir_traffic_limits four_mb = { .write_bytes_per_second = 4000000,
                                             .read_bytes_per_second = 4000000,
                                             .write_burst_bytes = 100000,
                                             .read_burst_bytes = 100000 };

static int64_t now_ns(void)
{
    return weir_clock_now_ns(weir_clock_monotonic());
}

static int64_t shortest_ns(size_t free_bytes)
{
    return (int64_t)(CONNECTIONS * EACH - free_bytes) * 1000 / 4;
}

static void *hear_all(void *arg)
{
    int fd = (int)(intptr_t)arg;
    uint8_t block[4096];
    for (size_t at = 0; at < EACH; at += sizeof block) {
        assert_int_equal(recv(fd, block, sizeof block, MSG_WAITALL), sizeof block);
        for (uint32_t i = 0; i < sizeof block / 4; i++) {
            const uint8_t *word = &block[(size_t)4 * i];
            assert_int_equal(word[0], (uint8_t)((at + i) >> 24));
            assert_int_equal(word[1], (uint8_t)((at + i) >> 16));
            assert_int_equal(word[2], (uint8_t)((at + i) >> 8));
            assert_int_equal(word[3], (uint8_t)(at + i));
        }
    }
    hear_end(fd);
    close(fd);
    return NULL;
}

static void sockets_are_written_at_the_rate(void **state)
{
    shaped self;
    pthread_t threads[CONNECTIONS], fiddler;
    open_shaped(&self, *state, init_sender, &four_mb);
    int64_t begun = now_ns();
    assert_int_equal(pthread_create(&fiddler, NULL, fiddle, &self), 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        void *fd = (void *)(intptr_t)dial(self.servers.server);
        assert_int_equal(pthread_create(&threads[i], NULL, hear_all, fd), 0);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        pthread_join(threads[i], NULL);
    int64_t took_ns = now_ns() - begun;
    atomic_store(&self.is_over, true);
    pthread_join(fiddler, NULL);
    print_message("%d bytes in %lld ms, at least %lld\n", CONNECTIONS * EACH,
                  (long long)took_ns / 1000000, (long long)shortest_ns(100000) / 1000000);
    assert_true(took_ns >= shortest_ns(100000));
    close_shaped(&self);
}

static void *say_all(void *arg)
{
    static const char zeros[EACH];
    int fd = (int)(intptr_t)arg;
    size_t at = 0;
    while (at < EACH) {
        ssize_t sent = send(fd, zeros + at, EACH - at, MSG_NOSIGNAL);
        assert_true(sent > 0);
        at += (size_t)sent;
    }
    return NULL;
}

static void sockets_are_read_at_the_rate(void **state)
{
    shaped self;
    int fds[CONNECTIONS];
    pthread_t threads[CONNECTIONS], fiddler;
    open_shaped(&self, *state, init_taker, &four_mb);
    int64_t begun = now_ns();
    assert_int_equal(pthread_create(&fiddler, NULL, fiddle, &self), 0);
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = dial(self.servers.server);
        assert_int_equal(pthread_create(&threads[i], NULL, say_all, (void *)(intptr_t)fds[i]), 0);
    }
    WAIT_FOR(atomic_load(&self.read) == CONNECTIONS * EACH);
    int64_t took_ns = now_ns() - begun;
    for (int i = 0; i < CONNECTIONS; i++) {
        pthread_join(threads[i], NULL);
        close(fds[i]);
    }
    atomic_store(&self.is_over, true);
    pthread_join(fiddler, NULL);
    /* Each may have read one piece too much, when the others were through. */
    size_t free_bytes = 100000 + CONNECTIONS * (size_t)65536;
    print_message("%d bytes in %lld ms, at least %lld\n", CONNECTIONS * EACH,
                  (long long)took_ns / 1000000, (long long)shortest_ns(free_bytes) / 1000000);
    assert_true(took_ns >= shortest_ns(free_bytes));
    close_shaped(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(together_they_keep_to_the_rate),
        weir_case(together_they_read_no_faster),
        weir_case(nobody_starves),
        weir_case(both_limits_hold),
        weir_case(who_leaves_gives_its_turn_back),
        weir_case(it_goes_on_on_another_loop),
        each_backend(sockets_are_written_at_the_rate),
        each_backend(sockets_are_read_at_the_rate),
    };
    return cmocka_run_group_tests_name("handler.traffic_shared", tests, NULL, NULL);
}
