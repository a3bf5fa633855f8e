/* SPDX-License-Identifier: MIT */
/* A whole connection over the scripted kernel, which takes and brings one byte at a time. */
#include "tls/town.h"

#include <weir/clock.h>
#include <weir/script.h>

#include <string.h>
#include <sys/socket.h>

/* One end: the kernel of its descriptor is played here, but for shutdown, which gets to `far`. */
typedef struct end {
    int fd, far;
    weir_channel *channel;
    size_t answered, sent; /* bytes that sends may take, and have taken */
    bool has_ended;        /* which the other end was told */
} end;

typedef struct stage {
    town town;
    caller by;
    weir_script *script;
    weir_group *group;
    weir_virtual_clock clock;
    end ends[2]; /* the client's and the server's */
} stage;

static void open_end(stage *self, size_t i)
{
    end *one = &self->ends[i];
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    one->fd = fds[0];
    one->far = fds[1];
    assert_int_equal(weir_channel_from_descriptor(&one->channel, WEIR_SOCKET_STREAM, one->fd, NULL),
                     0);
    assert_int_equal(i == 0 ? town_init_caller(one->channel, &self->by)
                            : town_init_child(one->channel, &self->town),
                     0);
    weir_channel_register(one->channel, weir_group_at(self->group, 0), NULL);
}

static void open_stage(stage *self, weir_tls_version version)
{
    *self = (stage){ 0 };
    self->town.contexts[0] = pair_server_context(&(weir_tls_config){ .max_version = version });
    self->town.contexts[1] = pair_client_context(NULL);
    self->town.tls.context = self->town.contexts[0];
    self->by.town = &self->town;
    self->by.tls = (weir_tls){ .context = self->town.contexts[1], .host = "localhost" };
    weir_virtual_clock_init(&self->clock, 0);
    assert_int_equal(weir_script_new(&self->script), 0);
    weir_group_config config = { .loops = 1, .is_manual = true, .watchdog_ns = WEIR_OFF };
    config.clock = &self->clock.clock;
    config.io_source = weir_script_source(self->script);
    assert_int_equal(weir_group_new(&self->group, &config, NULL), 0);
    open_end(self, 0);
    open_end(self, 1);
}

static void close_stage(stage *self)
{
    for (size_t i = 0; i < 2; i++) {
        weir_channel_release(self->ends[i].channel);
        assert_int_equal(close(self->ends[i].fd), 0); /* the script has closed nothing */
        close(self->ends[i].far);
    }
    weir_channel_release(self->town.accepted);
    weir_group_free(self->group);
    weir_script_free(self->script);
    weir_tls_context_release(self->town.contexts[0]);
    weir_tls_context_release(self->town.contexts[1]);
}

/* Never takes more than a byte, and now and then it would block. Without an answer a send takes
 * everything, so there are always more than a turn can use up. */
static void let_send(stage *self, end *one)
{
    for (; one->answered - one->sent < 256; one->answered++) {
        if (one->answered % 5 == 0)
            assert_int_equal(weir_script_answer(self->script, one->fd, -EAGAIN), 0);
        assert_int_equal(weir_script_answer(self->script, one->fd, 1), 0);
    }
}

static bool is_shut(const stage *self, const end *one)
{
    char byte;
    return weir_script_is_closed(self->script, one->fd) ||
           recv(one->far, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

/* From one to the other, a byte at a time. */
static void carry(stage *self, end *from, const end *to)
{
    uint8_t bytes[256];
    size_t length = weir_script_take_sent(self->script, from->fd, bytes, sizeof bytes);
    from->sent += length;
    assert_true(from->sent < from->answered);
    if (weir_script_is_closed(self->script, to->fd))
        return;
    for (size_t i = 0; i < length; i++)
        assert_int_equal(weir_script_deliver(self->script, to->fd, &bytes[i], 1), 0);
    if (length == 0 && !from->has_ended && is_shut(self, from)) {
        from->has_ended = true;
        assert_int_equal(weir_script_end(self->script, to->fd), 0);
    }
}

static void turn(stage *self)
{
    for (size_t i = 0; i < 2; i++)
        let_send(self, &self->ends[i]);
    weir_group_step(self->group);
    for (size_t i = 0; i < 2; i++)
        carry(self, &self->ends[i], &self->ends[1 - i]);
}

static void a_byte_at_a_time(void **state)
{
    enum { MUCH = 100 << 10 };
    (void)state;
    for (weir_tls_version version = WEIR_TLS_1_2; version <= WEIR_TLS_1_3; version++) {
        static stage self;
        weir_tls_context_stats stats;
        open_stage(&self, version);
        town_say(self.ends[0].channel, MUCH);
        WAIT_FOR_STEPPING(self.by.heard >= MUCH || self.by.errors > 0, turn(&self));
        assert_int_equal(self.by.heard, MUCH);
        assert_int_equal(self.by.wrong, 0);
        weir_channel_close(self.ends[0].channel, NULL);
        WAIT_FOR_STEPPING(self.by.inactives > 0 && self.town.inactives > 0, turn(&self));
        assert_int_equal(self.by.errors, 0); /* no truncation on either side */
        assert_int_equal(self.town.errors, 0);
        assert_true(self.ends[0].sent > MUCH && self.ends[1].sent > MUCH);
        weir_tls_context_get_stats(self.town.contexts[0], &stats);
        assert_int_equal(stats.handshakes, 1);
        assert_int_equal(weir_clock_now_ns(&self.clock.clock), 0); /* nobody had to wait */
        close_stage(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(a_byte_at_a_time),
    };
    return cmocka_run_group_tests(tests, pair_warm_up, NULL);
}
