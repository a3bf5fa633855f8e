/* SPDX-License-Identifier: MIT */
/* Relaying in the kernel: what is refused, what goes through, and all the ways it may end. */
#include "transport/flows.h"
#include "transport/nth_fault.h"

#include "io/readiness.h"
#include "transport/socket.h"

#include <weir/file.h>
#include <weir/relay.h>

#define PIPE_BYTES 65536

/* A hook may change only while nobody runs. */
static void begin_fault(weir_fault_fn fn)
{
    end_group(group);
    weir_fault_set(fn, NULL);
    group = new_loops(&(weir_group_config){ .loops = 2, .watchdog_ns = WEIR_OFF });
}

static void end_fault(void)
{
    end_group(group);
    weir_fault_set(NULL, NULL);
    group = NULL;
}

/* Ways ----------------------------------------------------------------------------------------- */

/* One relay, and what became of it. */
typedef struct way way;
struct way {
    weir_channel *from, *to;
    weir_promise *promise;
    weir_listener listener;
    void (*then)(way *self); /* in the listener */
    void *arg;
    atomic_uint ends;
    atomic_int code;
};

static void on_way_end(weir_listener *listener, weir_future *future)
{
    way *self = WEIR_CONTAINER(listener, way, listener);
    atomic_store(&self->code, weir_future_code(future));
    if (self->then != NULL)
        self->then(self);
    atomic_fetch_add(&self->ends, 1); /* last: what a test waits for */
}

/* On the loop. */
static void begin_way(way *self, weir_channel *from, weir_channel *to)
{
    self->from = from;
    self->to = to;
    self->promise = weir_channel_promise(from);
    self->listener.done = on_way_end;
    weir_future_listen(weir_promise_future(self->promise), &self->listener);
    weir_relay(from, to, self->promise);
}

static int run_begin_way(void *arg)
{
    way *self = arg;
    begin_way(self, self->from, self->to);
    return 0;
}

static void relay(way *self, weir_channel *from, weir_channel *to)
{
    self->from = from;
    self->to = to;
    call_on(executor_of(from), run_begin_way, self);
}

/* Its code, when it has one; it has told it once. */
static int end_of(way *self)
{
    weir_promise *promise = self->promise;
    self->promise = NULL;
    assert_int_equal(weir_future_wait(weir_promise_future(promise), WEIR_MS(PATIENCE_MS)), 0);
    int code = weir_future_code(weir_promise_future(promise));
    WAIT_FOR(atomic_load(&self->ends) > 0);
    assert_int_equal(atomic_load(&self->ends), 1);
    assert_int_equal(atomic_load(&self->code), code);
    weir_promise_release(promise);
    return code;
}

static bool is_going(const way *self)
{
    return !weir_future_is_done(weir_promise_future(self->promise));
}

#define assert_lost(code) assert_true((code) == -ECONNRESET || (code) == -EPIPE)

/* Channels on one loop ------------------------------------------------------------------------- */

static int register_on(weir_channel *channel, weir_executor *loop)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_register(channel, loop, promise);
    return outcome(promise);
}

/* Like pair_with, on the first loop. */
static weir_channel *stream_with(int stream, record *seen, int *peer, bool is_half_open)
{
    weir_channel *channel = half_pair(stream, seen, peer);
    set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, is_half_open);
    assert_int_equal(register_on(channel, weir_group_at(group, 0)), 0);
    WAIT_FOR(weir_channel_is_active(channel));
    return channel;
}

/* Two connections whose ends are channels on the same loop: what the client says shall get to the
 * server. */
typedef struct proxy {
    weir_channel *left, *right;
    record left_seen, right_seen;
    int client, server;
    way there, back;
} proxy;

static void open_proxy(proxy *self, int left, int right, bool is_half_open)
{
    *self = (proxy){ .client = -1 };
    self->left = stream_with(left, &self->left_seen, &self->client, is_half_open);
    self->right = stream_with(right, &self->right_seen, &self->server, is_half_open);
}

static int run_begin_both(void *arg)
{
    proxy *self = arg;
    begin_way(&self->there, self->left, self->right);
    begin_way(&self->back, self->right, self->left);
    return 0;
}

static void start_proxy(proxy *self)
{
    call_on(executor_of(self->left), run_begin_both, self);
}

static void end_proxy(proxy *self)
{
    weir_channel_close(self->left, NULL);
    weir_channel_close(self->right, NULL);
    wait_for_close(self->left);
    wait_for_close(self->right);
    if (self->there.promise != NULL)
        end_of(&self->there);
    if (self->back.promise != NULL)
        end_of(&self->back);
    weir_channel_release(self->left);
    weir_channel_release(self->right);
    close_peer(&self->client);
    close_peer(&self->server);
}

static size_t count_fds(void)
{
    return count_entries("/proc/self/fd");
}

/* Full pipes ----------------------------------------------------------------------------------- */

typedef struct glance {
    weir_socket *socket;
    bool is_stuck;
} glance;

static int run_look(void *arg)
{
    glance *self = arg;
    const weir_io_file *file = &self->socket->file;
    self->is_stuck = weir__io_is_sending(file) && !(file->bits & WEIR_FILE_WRITABLE);
    return 0;
}

/* Whether the kernel takes no more of what is to be sent. */
static bool is_stuck(weir_channel *channel)
{
    glance look = { .socket = weir__socket_of(channel) };
    call_on(executor_of(channel), run_look, &look);
    return look.is_stuck;
}

/* The client, which has sent so much, sends until nothing goes any more: how much that was. */
static size_t fill_from(size_t sent, int client, weir_channel *to)
{
    uint8_t bytes[32768];
    for (int times = 0; times < 20;) {
        fill_pattern(bytes, sent, sizeof bytes);
        ssize_t code = send(client, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(code > 0 || errno == EAGAIN);
        sent += code > 0 ? (size_t)code : 0;
        times = code < 0 && is_stuck(to) ? times + 1 : 0;
        if (code < 0)
            usleep(1000);
    }
    return sent;
}

static size_t fill(int client, weir_channel *to)
{
    return fill_from(0, client, to);
}

static size_t fill_there(proxy *self)
{
    make_small(self->server);
    make_small(weir_channel_descriptor(self->right));
    return fill(self->client, self->right);
}

/* Until the kernel takes no more, even after a delayed acknowledgement and a window probe, which
 * come within a quarter of a second. */
static void fill_there_for_good(proxy *self)
{
    size_t sent = fill_there(self);
    uint64_t taken;
    do {
        taken = stats_of_channel(self->left).bytes_in;
        usleep(250000);
        sent = fill_from(sent, self->client, self->right);
    } while (stats_of_channel(self->left).bytes_in != taken);
}

/* The server reads on until the way has ended: how much there was, of all that went through. */
static size_t read_until_end(proxy *self, size_t at)
{
    uint8_t bytes[65536];
    bool is_over = false;
    while (!is_over) {
        is_over = !is_going(&self->there); /* and once more, for what came before that */
        ssize_t code;
        while ((code = recv(self->server, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
            assert_true(is_pattern(bytes, at, (size_t)code));
            at += (size_t)code;
        }
        sched_yield();
    }
    uint64_t sent = stats_of_channel(self->right).bytes_out;
    assert_true(at <= sent);
    peer_expect_pattern(self->server, at, sent - at);
    return sent;
}

/* Refusals ------------------------------------------------------------------------------------- */

typedef struct attempt {
    weir_channel *from, *to;
    int code;
} attempt;

static int run_attempt(void *arg)
{
    attempt *self = arg;
    weir_promise *promise = weir_promise_new(NULL);
    weir_relay(self->from, self->to, promise);
    self->code = weir_future_code(weir_promise_future(promise)); /* at once */
    weir_promise_release(promise);
    weir_relay(self->from, self->to, NULL); /* nobody wants to know */
    return 0;
}

static int refusal(weir_channel *from, weir_channel *to)
{
    attempt self = { .from = from, .to = to };
    size_t fds = count_fds();
    call_on(weir_group_at(group, 0), run_attempt, &self);
    assert_int_equal(count_fds(), fds);
    return self.code;
}

/* It reads and writes as ever. */
static void expect_whole(weir_channel *channel, record *seen, int peer)
{
    size_t before = atomic_load(&seen->bytes);
    peer_send(peer, "in", 2);
    WAIT_FOR(atomic_load(&seen->bytes) == before + 2);
    assert_int_equal(write_it(channel, text_msg("out")), 0);
    peer_expect_text(peer, "out");
}

static void expect_both_whole(proxy *self)
{
    expect_whole(self->left, &self->left_seen, self->client);
    expect_whole(self->right, &self->right_seen, self->server);
}

static void wrong_arguments(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, UNIX, false);
    assert_int_equal(refusal(NULL, self.right), -EINVAL);
    assert_int_equal(refusal(self.left, NULL), -EINVAL);
    assert_int_equal(refusal(self.left, self.left), -EINVAL);
    attempt other_thread = { .from = self.left, .to = self.right };
    run_attempt(&other_thread);
    assert_int_equal(other_thread.code, -EPERM);
    expect_both_whole(&self);
    end_proxy(&self);
}

static void another_loop(void **state)
{
    (void)state;
    proxy self;
    record seen = { 0 };
    int peer;
    open_proxy(&self, TCP, TCP, false);
    weir_channel *elsewhere = half_pair(TCP, &seen, &peer);
    assert_int_equal(register_on(elsewhere, weir_group_at(group, 1)), 0);
    WAIT_FOR(weir_channel_is_active(elsewhere));
    assert_int_equal(refusal(self.left, elsewhere), -EXDEV);
    assert_int_equal(refusal(elsewhere, self.left), -EPERM);
    expect_whole(self.left, &self.left_seen, self.client);
    expect_whole(elsewhere, &seen, peer);
    end_channel(elsewhere);
    close(peer);
    end_proxy(&self);
}

/* With blocking io each has a loop of its own. */
static void run_attempt_in_handler(record *self, weir_ctx *ctx, const char *event)
{
    attempt *mine = self->arg;
    (void)ctx;
    if (strcmp(event, "read") == 0)
        run_attempt(mine);
}

static void not_on_one_loop(void **state)
{
    (void)state;
    attempt mine = { .code = 1 };
    record seen[2] = { { .then = run_attempt_in_handler, .arg = &mine } };
    int peers[2];
    mine.from = pair_with(TCP, &seen[0], &peers[0]);
    mine.to = pair_with(TCP, &seen[1], &peers[1]);
    peer_send(peers[0], "go", 2);
    WAIT_FOR(atomic_load(&seen[0].bytes) == 2);
    assert_int_equal(mine.code, -EXDEV);
    expect_whole(mine.from, &seen[0], peers[0]);
    expect_whole(mine.to, &seen[1], peers[1]);
    end_channel(mine.from);
    end_channel(mine.to);
    close(peers[0]);
    close(peers[1]);
}

static void not_streams_of_the_kernel(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, UNIX, false);
    weir_address address = any_port();
    const weir_socket_kind kinds[] = { WEIR_SOCKET_LISTENER, WEIR_SOCKET_DATAGRAM };
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        weir_channel *channel = new_channel(kinds[i], &address);
        assert_int_equal(register_on(channel, weir_group_at(group, 0)), 0);
        assert_int_equal(bind_to(channel, &address), 0);
        assert_int_equal(refusal(self.left, channel), -EOPNOTSUPP);
        assert_int_equal(refusal(channel, self.left), -EOPNOTSUPP);
        end_channel(channel);
    }
    weir_address local = address_of("local:relay");
    weir_channel *channel = new_channel(WEIR_SOCKET_STREAM, &local);
    assert_int_equal(refusal(self.left, channel), -EOPNOTSUPP);
    assert_int_equal(refusal(channel, self.left), -EOPNOTSUPP);
    end_channel(channel);
    expect_both_whole(&self);
    end_proxy(&self);
}

/* What goes past a handler that encrypts would go out in the clear. */
static void relay_is_rejected_with_an_upgrade_in_the_pipeline(void **state)
{
    static const weir_handler_type sees_all = { .name = "sees all", .is_upgrade = true };
    (void)state;
    proxy self;
    open_proxy(&self, TCP, UNIX, true);
    weir_pipeline *pipeline = weir_channel_pipeline(self.left);
    assert_int_equal(weir_pipeline_add_last(pipeline, "all", &sees_all, NULL), 0);
    assert_int_equal(refusal(self.left, self.right), -EOPNOTSUPP);
    assert_int_equal(refusal(self.right, self.left), -EOPNOTSUPP);
    expect_both_whole(&self);
    relay(&self.there, self.left, self.right);
    weir_future *future = weir_promise_future(self.there.promise);
    assert_non_null(weir_future_error(future));
    assert_non_null(strstr(weir_future_error(future)->message, "all must see"));
    assert_int_equal(end_of(&self.there), -EOPNOTSUPP);
    atomic_store(&self.there.ends, 0);
    assert_int_equal(weir_pipeline_remove(pipeline, "all", NULL), 0);
    start_proxy(&self);
    peer_send(self.client, "through", 7);
    peer_expect_text(self.server, "through");
    end_proxy(&self);
}

static void not_active(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, TCP, true);
    weir_address address = any_port();
    weir_channel *channel = new_channel(WEIR_SOCKET_STREAM, &address);
    assert_int_equal(refusal(self.left, channel), -ENOTCONN); /* on no loop */
    assert_int_equal(refusal(channel, self.left), -ENOTCONN);
    assert_int_equal(register_on(channel, weir_group_at(group, 0)), 0);
    assert_int_equal(refusal(self.left, channel), -ENOTCONN); /* not connected */
    assert_int_equal(refusal(channel, self.left), -ENOTCONN);
    assert_int_equal(close_it(channel), 0);
    WAIT_FOR(weir_channel_get_state(channel) == WEIR_CHANNEL_UNREGISTERED);
    assert_int_equal(refusal(self.left, channel), -ENOTCONN); /* over */
    assert_int_equal(refusal(channel, self.left), -ENOTCONN);
    weir_channel_release(channel);
    expect_both_whole(&self);
    /* No more comes from the one, and nothing may be sent to the other. */
    shutdown(self.client, SHUT_WR);
    WAIT_FOR(atomic_load(&self.left_seen.events) == 1);
    assert_int_equal(refusal(self.left, self.right), -ENOTCONN);
    assert_int_equal(shutdown_it(self.right), 0);
    assert_int_equal(refusal(self.left, self.right), -ENOTCONN);
    end_proxy(&self);
}

static void not_twice(void **state)
{
    (void)state;
    proxy self, other;
    open_proxy(&self, TCP, TCP, false);
    open_proxy(&other, TCP, TCP, false);
    relay(&self.there, self.left, self.right);
    assert_int_equal(refusal(self.left, self.right), -EBUSY);
    assert_int_equal(refusal(self.left, other.right), -EBUSY);
    assert_int_equal(refusal(other.left, self.right), -EBUSY);
    expect_both_whole(&other);
    pump(self.client, self.server, 1000, 0);
    assert_true(is_going(&self.there));
    end_proxy(&other);
    end_proxy(&self);
}

static int run_write_then_attempt(void *arg)
{
    attempt *self = arg;
    weir_channel_write(self->to, text_msg("before"), NULL); /* and does not flush it */
    return run_attempt(self);
}

static void not_before_what_was_written_is_sent(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, TCP, false);
    attempt mine = { .from = self.left, .to = self.right };
    call_on(executor_of(self.left), run_write_then_attempt, &mine);
    assert_int_equal(mine.code, -EBUSY);
    weir_channel_flush(self.right);
    peer_expect_text(self.server, "before");
    settle_calls(self.right);
    relay(&self.there, self.left, self.right);
    pump(self.client, self.server, 100000, 0);
    end_proxy(&self);
}

static int run_attempt_without(void *arg)
{
    attempt *self = arg;
    weir_promise *promise = weir_promise_new(NULL);
    harness_fail_nth("pipe2", 1, -EMFILE);
    weir_relay(self->from, self->to, promise);
    assert_int_equal(harness_fail_end(), 1);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), -EMFILE);
    weir_promise_release(promise);
    for (unsigned n = 1;; n++) {
        promise = weir_promise_new(NULL);
        harness_fail_nth("alloc", n, -ENOMEM);
        weir_relay(self->from, self->to, promise);
        unsigned made = harness_fail_end();
        int code = weir_future_code(weir_promise_future(promise));
        weir_promise_release(promise);
        if (made < n) {
            assert_int_equal(code, -EINPROGRESS);
            break;
        }
        assert_int_equal(code, -ENOMEM);
        self->code++;
    }
    return 0;
}

static void not_without_memory_or_descriptors(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, TCP, false);
    attempt mine = { .from = self.left, .to = self.right };
    size_t fds = count_fds();
    call_on(executor_of(self.left), run_attempt_without, &mine);
    assert_true(mine.code >= 1);
    assert_int_equal(count_fds(), fds + 2);
    pump(self.client, self.server, 100000, 0);
    end_proxy(&self);
    assert_int_equal(count_fds(), fds - 4);
}

/* What goes through ---------------------------------------------------------------------------- */

static void a_byte_there_and_back(void **state)
{
    (void)state;
    for (int left = TCP; left < STREAMS; left++) {
        for (int right = TCP; right < STREAMS; right++) {
            proxy self;
            open_proxy(&self, left, right, false);
            start_proxy(&self);
            for (int i = 0; i < 10; i++) {
                peer_send(self.client, "a", 1);
                peer_expect_text(self.server, "a");
                peer_send(self.server, "b", 1);
                peer_expect_text(self.client, "b");
            }
            settle(executor_of(self.left));
            assert_story(&self.left_seen, "registered active "); /* and no byte of it */
            assert_story(&self.right_seen, "registered active ");
            weir_channel_stats stats = stats_of_channel(self.left);
            assert_int_equal(stats.bytes_in, 10);
            assert_int_equal(stats.bytes_out, 10);
            assert_int_equal(stats.messages_in, 0);
            assert_idle(self.left);
            end_proxy(&self);
        }
    }
}

static void ten_mib_both_ways_at_once(void **state)
{
    (void)state;
    const int kinds[][2] = { { TCP, TCP }, { TCP, UNIX }, { UNIX, TCP }, { UNIX, UNIX } };
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        proxy self;
        open_proxy(&self, kinds[i][0], kinds[i][1], false);
        start_proxy(&self);
        pump(self.client, self.server, 10 * MIB, 10 * MIB);
        settle(executor_of(self.left));
        for (int side = 0; side < 2; side++) {
            weir_channel_stats stats = stats_of_channel(side == 0 ? self.left : self.right);
            assert_int_equal(stats.bytes_in, 10 * MIB);
            assert_int_equal(stats.bytes_out, 10 * MIB);
        }
        assert_int_equal(atomic_load(&self.left_seen.reads), 0);
        assert_int_equal(atomic_load(&self.right_seen.reads), 0);
        assert_idle(self.left);
        end_proxy(&self);
    }
}

/* Calls that move less than they could, or have to be made again. */
static _Atomic(unsigned) shortened;

static int move_less(void *arg, const char *call, size_t *length)
{
    (void)arg;
    if (strcmp(call, "splice") != 0)
        return 0;
    unsigned n = atomic_fetch_add(&shortened, 1) + 1;
    if (*length > n % 4093 + 1)
        *length = n % 4093 + 1;
    return n % 50 < 9 || n % 7 == 0 ? -EINTR : 0; /* also so often that it is given up for a turn */
}

static void pieces_of_any_size(void **state)
{
    (void)state;
    proxy self;
    begin_fault(move_less);
    open_proxy(&self, TCP, UNIX, false);
    start_proxy(&self);
    pump(self.client, self.server, MIB, MIB);
    end_proxy(&self);
    end_fault();
}

static void a_slow_reader_slows_the_sender_down(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        proxy self;
        open_proxy(&self, stream, stream, false);
        start_proxy(&self);
        size_t sent = fill_there(&self);
        weir_channel_stats in = stats_of_channel(self.left), out = stats_of_channel(self.right);
        assert_true(in.bytes_in > out.bytes_out);
        assert_in_range(in.bytes_in - out.bytes_out, 1, PIPE_BYTES);
        assert_in_range(out.bytes_out, 1, 1024 * 1024); /* what the kernel keeps for such sockets */
        assert_true(sent > in.bytes_in);                /* the rest has not been touched */
        assert_idle(self.left);
        pump(self.client, self.server, 0, 1000); /* the other way does not care */
        peer_expect_pattern(self.server, 0, sent);
        settle(executor_of(self.left));
        assert_int_equal(stats_of_channel(self.right).bytes_out, sent);
        end_proxy(&self);
    }
}

static void without_a_promise(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, TCP, false);
    attempt mine = { .from = self.left, .to = self.right };
    call_on(executor_of(self.left), run_attempt, &mine);
    assert_int_equal(mine.code, -EINPROGRESS);
    pump(self.client, self.server, 100000, 0);
    close_peer(&self.client);
    peer_expect_eof(self.server);
    wait_for_close(self.left);
    end_proxy(&self);
}

static void a_promise_that_is_cancelled_changes_nothing(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, TCP, false);
    relay(&self.there, self.left, self.right);
    weir_future_cancel(weir_promise_future(self.there.promise));
    pump(self.client, self.server, 100000, 0);
    assert_int_equal(end_of(&self.there), -ECANCELED);
    shutdown(self.client, SHUT_WR);
    peer_expect_eof(self.server);
    end_proxy(&self);
}

/* Before and beside ---------------------------------------------------------------------------- */

static void what_came_before_is_relayed(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        proxy self;
        open_proxy(&self, stream, stream, false);
        set_option(self.left, WEIR_OPTION_AUTO_READ, 0);
        settle_calls(self.left);
        peer_send_pattern(self.client, 0, 5000);
        relay(&self.there, self.left, self.right);
        peer_expect_pattern(self.server, 0, 5000);
        peer_send_pattern(self.client, 5000, 5000);
        peer_expect_pattern(self.server, 5000, 5000);
        assert_int_equal(atomic_load(&self.left_seen.reads), 0);
        end_proxy(&self);
    }
}

/* The first bytes are written by hand, and what follows is relayed when they are gone. */
typedef struct handover {
    weir_channel *to;
    way way;
    weir_promise *written;
    weir_listener listener;
} handover;

static void on_first_written(weir_listener *listener, weir_future *future)
{
    handover *self = WEIR_CONTAINER(listener, handover, listener);
    assert_int_equal(weir_future_code(future), 0);
    begin_way(&self->way, self->way.from, self->to);
}

static void hand_over_on_read(weir_ctx *ctx, weir_msg *msg)
{
    handover *self = weir_ctx_arg(ctx);
    assert_null(self->written);
    weir_channel_set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, 0, NULL);
    self->way.from = weir_ctx_channel(ctx);
    self->written = weir_channel_promise(self->to);
    self->listener.done = on_first_written;
    weir_future_listen(weir_promise_future(self->written), &self->listener);
    weir_channel_write_and_flush(self->to, msg, self->written);
    weir_promise_release(self->written);
}

static const weir_handler_type hander = { .name = "hander", .on_read = hand_over_on_read };

static void begun_when_the_first_bytes_are_through(void **state)
{
    (void)state;
    enum { TIMES = 50, BYTES = 200000 };
    for (int i = 0; i < TIMES; i++) {
        int client, sink;
        handover self = { 0 };
        int stream = i % 2 == 0 ? TCP : UNIX;
        weir_channel *left = half_pair(stream, NULL, &client);
        self.to = stream_with(stream, NULL, &sink, false);
        assert_int_equal(
            weir_pipeline_add_last(weir_channel_pipeline(left), "hander", &hander, &self), 0);
        assert_int_equal(register_on(left, weir_group_at(group, 0)), 0);
        pump(client, sink, BYTES, 0);
        close(client);
        peer_expect_eof(sink);
        settle(executor_of(self.to));
        assert_int_equal(end_of(&self.way), 0);
        wait_for_close(left);
        assert_int_equal(stats_of_channel(left).bytes_in, BYTES);
        weir_channel_release(left);
        end_channel(self.to);
        close(sink);
    }
}

/* Begun inside on_read itself, while that receive is under way. */
typedef struct grabber {
    weir_channel *to;
    way way;
    bool has_begun;
    size_t before;
} grabber;

static void grab_on_read(weir_ctx *ctx, weir_msg *msg)
{
    grabber *self = weir_ctx_arg(ctx);
    self->before += weir_msg_size(msg);
    weir_msg_release(msg);
    assert_false(self->has_begun);
    self->has_begun = true;
    begin_way(&self->way, weir_ctx_channel(ctx), self->to);
}

static const weir_handler_type grabber_type = { .name = "grabber", .on_read = grab_on_read };

static void begun_while_a_read_is_told(void **state)
{
    (void)state;
    enum { TIMES = 40, BYTES = 300000 };
    for (int i = 0; i < TIMES; i++) {
        int client, sink;
        grabber self = { 0 };
        int stream = i % 2 == 0 ? TCP : UNIX;
        weir_channel *left = half_pair(stream, NULL, &client);
        self.to = stream_with(stream, NULL, &sink, false);
        set_option(left, WEIR_OPTION_AUTO_READ, i % 4 < 2);
        assert_int_equal(
            weir_pipeline_add_last(weir_channel_pipeline(left), "grabber", &grabber_type, &self),
            0);
        assert_int_equal(register_on(left, weir_group_at(group, 0)), 0);
        WAIT_FOR(weir_channel_is_active(left));
        if (i % 4 >= 2)
            weir_channel_read(left);
        for (size_t sent = 0; sent < 4096; sent += 512)
            peer_send_pattern(client, sent, 512);
        WAIT_FOR(stats_of_channel(left).bytes_in == 4096);
        settle(executor_of(left));
        assert_in_range(self.before, 1, 4096);
        if (self.before < 4096)
            peer_expect_pattern(sink, self.before, 4096 - self.before);
        pump(client, sink, BYTES, 0);
        shutdown(client, SHUT_WR);
        peer_expect_eof(sink);
        assert_int_equal(end_of(&self.way), 0);
        wait_for_close(left);
        weir_channel_release(left);
        end_channel(self.to);
        close(client);
        close(sink);
    }
}

static void writes_meanwhile(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, TCP, false);
    relay(&self.there, self.left, self.right);
    assert_int_equal(write_it(self.right, text_msg("no")), -EOPNOTSUPP);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    weir_file_region *region = weir_file_region_new(file, 0, 10);
    assert_non_null(region);
    assert_int_equal(write_it(self.right, &region->msg), -EOPNOTSUPP);
    assert_int_equal(write_it(self.left, text_msg("yes")), 0);
    peer_expect_text(self.client, "yes");
    peer_send(self.server, "read", 4); /* what comes in there is handled as ever */
    WAIT_FOR(atomic_load(&self.right_seen.bytes) == 4);
    assert_string_equal(self.right_seen.text, "read");
    pump(self.client, self.server, 100000, 0);
    assert_true(is_going(&self.there));
    end_proxy(&self);
}

/* Ends ----------------------------------------------------------------------------------------- */

static void half_closed_in_each_direction(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        for (int first = 0; first < 2; first++) {
            proxy self;
            open_proxy(&self, stream, stream, true);
            start_proxy(&self);
            int fds[] = { self.client, self.server };
            int ender = fds[first], other = fds[1 - first];
            way *way_of_ender = first == 0 ? &self.there : &self.back;
            way *way_back = first == 0 ? &self.back : &self.there;
            peer_send_pattern(ender, 0, 100);
            shutdown(ender, SHUT_WR);
            peer_expect_pattern(other, 0, 100);
            peer_expect_eof(other);
            assert_int_equal(end_of(way_of_ender), 0);
            assert_true(is_going(way_back));
            assert_true(weir_channel_is_open(self.left) && weir_channel_is_open(self.right));
            pump(other, ender, 300000, 0);
            shutdown(other, SHUT_WR);
            peer_expect_eof(ender);
            assert_int_equal(end_of(way_back), 0);
            wait_for_close(self.left); /* both ways are over, so they are */
            wait_for_close(self.right);
            record *seen = first == 0 ? &self.left_seen : &self.right_seen;
            record *others = first == 0 ? &self.right_seen : &self.left_seen;
            assert_story(seen, "registered active input_closed inactive unregistered ");
            assert_story(others, "registered active inactive unregistered ");
            end_proxy(&self);
        }
    }
}

static void the_end_without_half_closure(void **state)
{
    (void)state;
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        proxy self;
        open_proxy(&self, stream, stream, false);
        start_proxy(&self);
        peer_send_pattern(self.client, 0, 70000);
        shutdown(self.client, SHUT_WR);
        peer_expect_pattern(self.server, 0, 70000);
        peer_expect_eof(self.server);
        assert_int_equal(end_of(&self.there), 0);
        wait_for_close(self.left);
        assert_int_equal(end_of(&self.back), WEIR_ECLOSED);
        peer_expect_eof(self.client);
        assert_true(weir_channel_is_open(self.right)); /* its owner's */
        assert_int_equal(write_it(self.right, text_msg("late")), -EPIPE);
        peer_send(self.server, "more", 4);
        WAIT_FOR(atomic_load(&self.right_seen.bytes) == 4);
        end_proxy(&self);
    }
}

/* What is in the pipe, and in the buffers, goes before the end. */
static void the_end_comes_behind_all_bytes(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, TCP, false);
    relay(&self.there, self.left, self.right);
    size_t sent = fill_there(&self);
    shutdown(self.client, SHUT_WR);
    assert_true(is_going(&self.there));
    peer_expect_pattern(self.server, 0, sent);
    peer_expect_eof(self.server);
    assert_int_equal(end_of(&self.there), 0);
    end_proxy(&self);
}

enum { BEFORE, BETWEEN, STUCK, STAGES };

static void bring_to_stage(proxy *self, int stage, size_t *sent)
{
    *sent = 0;
    relay(&self->there, self->left, self->right);
    if (stage == BETWEEN) {
        pump(self->client, self->server, 1000, 0);
        *sent = 1000;
    } else if (stage == STUCK) {
        *sent = fill_there(self);
    }
}

static void the_sender_resets(void **state)
{
    (void)state;
    for (int stage = BEFORE; stage < STAGES; stage++) {
        proxy self;
        size_t sent;
        open_proxy(&self, TCP, TCP, false);
        bring_to_stage(&self, stage, &sent);
        uint64_t taken = stats_of_channel(self.left).bytes_in;
        peer_reset(self.client);
        self.client = -1;
        if (stage == STUCK) { /* that is known when it reads again, and all before it has gone */
            settle(executor_of(self.left));
            assert_true(is_going(&self.there));
            assert_true(read_until_end(&self, 0) >= taken);
        }
        assert_int_equal(end_of(&self.there), -ECONNRESET);
        wait_for_close(self.left);
        assert_true(story_has(&self.left_seen, "error:ECONNRESET"));
        expect_whole(self.right, &self.right_seen, self.server); /* its owner's */
        end_proxy(&self);
    }
}

static void the_receiver_resets(void **state)
{
    (void)state;
    for (int stage = BEFORE; stage < STAGES; stage++) {
        for (int is_reading = 0; is_reading < 2; is_reading++) {
            proxy self;
            size_t sent;
            open_proxy(&self, TCP, TCP, false);
            set_option(self.right, WEIR_OPTION_AUTO_READ, is_reading);
            settle_calls(self.right);
            bring_to_stage(&self, stage, &sent);
            peer_reset(self.server);
            self.server = -1;
            if (!is_reading && stage != STUCK)
                peer_send(self.client, "lost", 4); /* else nobody would know */
            int code = end_of(&self.there);
            if (is_reading && stage != STUCK)
                assert_int_equal(code, WEIR_ECLOSED); /* it has read that itself */
            else
                assert_lost(code);
            wait_for_close(self.right);
            /* The other one is its owner's, who hears it again. */
            assert_true(weir_channel_is_open(self.left));
            assert_int_equal(write_it(self.left, text_msg("sorry")), 0);
            peer_expect_text(self.client, "sorry");
            shutdown(self.client, SHUT_WR);
            wait_for_close(self.left);
            assert_true(stage != STUCK || atomic_load(&self.left_seen.bytes) > 0);
            end_proxy(&self);
        }
    }
}

static void both_reset(void **state)
{
    (void)state;
    for (int stage = BEFORE; stage < STAGES; stage++) {
        for (int first = 0; first < 2; first++) {
            proxy self;
            open_proxy(&self, TCP, TCP, true);
            start_proxy(&self);
            if (stage == BETWEEN)
                pump(self.client, self.server, 1000, 1000);
            else if (stage == STUCK)
                fill_there(&self);
            int fds[] = { self.client, self.server };
            peer_reset(fds[first]);
            peer_reset(fds[1 - first]);
            self.client = self.server = -1;
            assert_true(end_of(&self.there) < 0);
            assert_true(end_of(&self.back) < 0);
            end_proxy(&self);
        }
    }
}

/* Closed by their owner ------------------------------------------------------------------------ */

enum { LEFT, RIGHT, BOTH, WHO };

static void close_who(proxy *self, int who)
{
    if (who != RIGHT)
        weir_channel_close(self->left, NULL);
    if (who != LEFT)
        weir_channel_close(self->right, NULL);
}

static void closed_while_it_waits(void **state)
{
    (void)state;
    for (int who = 0; who < WHO; who++) {
        for (int is_proxy = 0; is_proxy < 2; is_proxy++) {
            for (int reads = 0; reads < 2; reads++) {
                proxy self;
                open_proxy(&self, TCP, UNIX, false);
                set_option(self.right, WEIR_OPTION_AUTO_READ, reads);
                if (is_proxy)
                    start_proxy(&self);
                else
                    relay(&self.there, self.left, self.right);
                pump(self.client, self.server, 1000, 0);
                close_who(&self, who);
                assert_int_equal(end_of(&self.there), WEIR_ECLOSED);
                if (is_proxy)
                    assert_int_equal(end_of(&self.back), WEIR_ECLOSED);
                if (who != RIGHT)
                    wait_for_close(self.left);
                if (who != LEFT)
                    wait_for_close(self.right);
                if (who == LEFT && (reads || is_proxy)) {
                    set_option(self.right, WEIR_OPTION_AUTO_READ, 1);
                    expect_whole(self.right, &self.right_seen, self.server);
                }
                if (who == RIGHT)
                    expect_whole(self.left, &self.left_seen, self.client);
                end_proxy(&self);
            }
        }
    }
}

static int move_little(void *arg, const char *call, size_t *length)
{
    (void)arg;
    if (strcmp(call, "splice") == 0 && *length > 3000 && *length != PIPE_BYTES) /* which reads */
        *length = 3000;
    return 0;
}

/* It takes many calls to send what is in the pipe. */
static void closed_while_it_is_stuck(void **state)
{
    (void)state;
    begin_fault(move_little);
    for (int who = 0; who < WHO; who++) {
        for (int is_proxy = 0; is_proxy < 2; is_proxy++) {
            proxy self;
            open_proxy(&self, TCP, TCP, false);
            if (is_proxy)
                start_proxy(&self);
            else
                relay(&self.there, self.left, self.right);
            if (who == LEFT)
                fill_there_for_good(&self);
            else
                fill_there(&self);
            uint64_t taken = stats_of_channel(self.left).bytes_in;
            close_who(&self, who);
            if (who == LEFT) { /* what was taken still goes */
                wait_for_close(self.left);
                assert_true(is_going(&self.there));
                assert_int_equal(read_until_end(&self, 0), taken);
            }
            assert_int_equal(end_of(&self.there), WEIR_ECLOSED);
            if (is_proxy)
                assert_int_equal(end_of(&self.back), WEIR_ECLOSED);
            if (who == LEFT)
                expect_whole(self.right, &self.right_seen, self.server);
            end_proxy(&self);
        }
    }
    end_fault();
}

/* Whoever shuts the output down, what was taken goes before the end. */
static void shut_down_by_others(void **state)
{
    (void)state;
    for (int is_finish = 0; is_finish < 2; is_finish++) {
        for (int is_stuck = 0; is_stuck < 2; is_stuck++) {
            proxy self;
            open_proxy(&self, TCP, TCP, true);
            relay(&self.there, self.left, self.right);
            if (is_stuck)
                fill_there(&self);
            else
                pump(self.client, self.server, 1000, 0);
            uint64_t taken = stats_of_channel(self.left).bytes_in;
            weir_promise *promise = promise_of(self.right);
            if (is_finish)
                weir_channel_finish(self.right, promise);
            else
                weir_channel_shutdown(self.right, promise);
            uint64_t at = is_stuck ? read_until_end(&self, 0) : 1000;
            assert_int_equal(at, taken);
            peer_expect_eof(self.server);
            assert_int_equal(end_of(&self.there), WEIR_ECLOSED);
            close_peer(&self.server);
            assert_int_equal(outcome(promise), 0);
            end_proxy(&self);
        }
    }
}

/* It waits for the relay, and the shutdown ends that. */
static void shut_down_while_a_move_waits(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, TCP, true);
    relay(&self.there, self.left, self.right);
    weir_promise *left = promise_of(self.right), *down = promise_of(self.right);
    weir_channel_deregister(self.right, left);
    weir_channel_shutdown(self.right, down);
    assert_int_equal(end_of(&self.there), WEIR_ECLOSED);
    assert_int_equal(outcome(left), 0);
    assert_int_equal(register_it(self.right), 0); /* where the shutdown goes on */
    peer_expect_eof(self.server);
    assert_int_equal(outcome(down), 0);
    end_proxy(&self);
}

/* The other side has no more questions, but there are answers for it in the pipe. */
static void the_end_of_the_targets_input_waits_for_what_was_taken(void **state)
{
    (void)state;
    proxy self;
    open_proxy(&self, TCP, TCP, false);
    relay(&self.there, self.left, self.right);
    fill_there(&self);
    uint64_t taken = stats_of_channel(self.left).bytes_in;
    assert_int_equal(shutdown(self.server, SHUT_WR), 0);
    assert_true(read_until_end(&self, 0) >= taken);
    peer_expect_eof(self.server);
    assert_int_equal(end_of(&self.there), WEIR_ECLOSED);
    wait_for_close(self.right);
    end_proxy(&self);
}

static atomic_bool is_failing;

/* A whole pipe is what it asks for on the way in, and does not get. */
static int fail_to_send(void *arg, const char *call, size_t *length)
{
    (void)arg;
    if (strcmp(call, "splice") != 0)
        return 0;
    if (*length == PIPE_BYTES) {
        *length = PIPE_BYTES - 1;
        return 0;
    }
    return atomic_load(&is_failing) ? -ENOMEM : 0;
}

/* What was lost must not look like a good end. */
static void a_shutdown_fails_when_bytes_are_lost(void **state)
{
    (void)state;
    proxy self;
    atomic_store(&is_failing, false);
    begin_fault(fail_to_send);
    open_proxy(&self, TCP, TCP, true);
    relay(&self.there, self.left, self.right);
    fill_there_for_good(&self); /* room that came later would let all of it go */
    weir_promise *down = promise_of(self.right);
    weir_channel_shutdown(self.right, down);
    settle_calls(self.right);
    atomic_store(&is_failing, true);
    WAIT_FOR_STEPPING(!is_going(&self.there), peer_drain(self.server));
    assert_int_equal(end_of(&self.there), -ENOMEM);
    assert_true(outcome(down) < 0);
    wait_for_close(self.right);
    end_proxy(&self);
    end_fault();
}

/* In the same callback as it was begun, and while a receive is being cancelled. */
static int run_begin_and_close(void *arg)
{
    proxy *self = arg;
    run_begin_both(self);
    close_who(self, *(int *)self->there.arg);
    return 0;
}

static void closed_when_just_begun(void **state)
{
    (void)state;
    for (int who = 0; who < WHO; who++) {
        proxy self;
        open_proxy(&self, TCP, TCP, false);
        self.there.arg = &who;
        call_on(executor_of(self.left), run_begin_and_close, &self);
        assert_int_equal(end_of(&self.there), WEIR_ECLOSED);
        assert_int_equal(end_of(&self.back), WEIR_ECLOSED);
        if (who == LEFT)
            expect_whole(self.right, &self.right_seen, self.server);
        end_proxy(&self);
    }
}

static void close_in_listener(way *self)
{
    proxy *owner = self->arg;
    close_who(owner, BOTH);
}

static void closed_in_the_listener(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        proxy self;
        open_proxy(&self, TCP, TCP, true);
        self.there.then = close_in_listener;
        self.there.arg = &self;
        start_proxy(&self);
        if (how == 0) {
            shutdown(self.client, SHUT_WR);
        } else if (how == 1) {
            peer_reset(self.client);
            self.client = -1;
        } else {
            weir_channel_close(self.left, NULL);
        }
        assert_int_equal(end_of(&self.there), how == 0 ? 0 : how == 1 ? -ECONNRESET : WEIR_ECLOSED);
        assert_int_equal(end_of(&self.back), WEIR_ECLOSED);
        wait_for_close(self.left);
        wait_for_close(self.right);
        end_proxy(&self);
    }
}

/* The one whose sender has gone gets the next one's bytes. */
static void relay_next(way *self)
{
    way *next = self->arg;
    begin_way(next, next->from, self->to);
}

static void one_sender_after_another(void **state)
{
    (void)state;
    enum { SENDERS = 20 };
    weir_channel *senders[SENDERS];
    way ways[SENDERS] = { { 0 } };
    int clients[SENDERS], sink;
    weir_channel *to = stream_with(TCP, NULL, &sink, false);
    weir_allocator_stats before, after;
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = stream_with(TCP, NULL, &clients[i], false);
        ways[i].from = senders[i];
        if (i + 1 < SENDERS) {
            ways[i].then = relay_next;
            ways[i].arg = &ways[i + 1];
        }
    }
    relay(&ways[0], senders[0], to);
    for (int i = 0; i < SENDERS; i++) {
        peer_send(clients[i], "turn", 4);
        peer_expect_text(sink, "turn");
        if (i == 1)
            weir_allocator_get_stats(&before);
        peer_reset(clients[i]);
        assert_int_equal(end_of(&ways[i]), -ECONNRESET);
        wait_for_close(senders[i]);
        weir_channel_release(senders[i]);
        settle(executor_of(to));
    }
    settle(executor_of(to));
    weir_allocator_get_stats(&after);
    assert_true(after.live < before.live); /* nothing of them is kept */
    assert_in_range(before.live - after.live, SENDERS - 2, UINT64_MAX / 2);
    end_channel(to);
    close(sink);
}

static void the_group_ends_meanwhile(void **state)
{
    (void)state;
    for (int stage = BEFORE; stage < STAGES; stage++) {
        proxy self;
        open_proxy(&self, TCP, TCP, false);
        start_proxy(&self);
        if (stage == BETWEEN)
            pump(self.client, self.server, 1000, 1000);
        else if (stage == STUCK)
            fill_there(&self);
        end_group(group);
        assert_int_equal(end_of(&self.there), WEIR_ECLOSED);
        assert_int_equal(end_of(&self.back), WEIR_ECLOSED);
        end_proxy(&self);
        group = new_loops(&(weir_group_config){ .loops = 2, .watchdog_ns = WEIR_OFF });
    }
}

/* Moving --------------------------------------------------------------------------------------- */

static weir_promise *ask_to_move(weir_channel *channel, int loop)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_move(channel, weir_group_at(group, (size_t)loop), promise);
    return promise;
}

static void moved_when_it_has_ended(void **state)
{
    (void)state;
    for (int who = 0; who < WHO; who++) {
        for (int is_proxy = 0; is_proxy < 2; is_proxy++) {
            proxy self;
            weir_promise *moves[2] = { NULL };
            open_proxy(&self, TCP, UNIX, true);
            if (is_proxy)
                start_proxy(&self);
            else
                relay(&self.there, self.left, self.right);
            weir_executor *first = executor_of(self.left);
            if (who != RIGHT)
                moves[0] = ask_to_move(self.left, 1);
            if (who != LEFT)
                moves[1] = ask_to_move(self.right, 1);
            pump(self.client, self.server, 500000, is_proxy ? 500000 : 0);
            for (int i = 0; i < 2; i++)
                assert_true(moves[i] == NULL ||
                            !weir_future_is_done(weir_promise_future(moves[i])));
            shutdown(self.client, SHUT_WR);
            peer_expect_eof(self.server);
            assert_int_equal(end_of(&self.there), 0);
            if (is_proxy) {
                pump(self.client, self.server, 0, 1000);
                shutdown(self.server, SHUT_WR);
                peer_expect_eof(self.client);
                assert_int_equal(end_of(&self.back), 0);
            }
            for (int i = 0; i < 2; i++) {
                if (moves[i] == NULL)
                    continue;
                int code = outcome(moves[i]);
                assert_true(code == 0 || (is_proxy && code == WEIR_ECLOSED));
                weir_channel *moved = i == 0 ? self.left : self.right;
                assert_true(is_proxy || executor_of(moved) != first);
            }
            if (!is_proxy) { /* the ways that were not relayed */
                assert_int_equal(write_it(self.left, text_msg("still")), 0);
                peer_expect_text(self.client, "still");
                peer_send(self.server, "here", 4);
                WAIT_FOR(atomic_load(&self.right_seen.bytes) == 4);
            }
            end_proxy(&self);
        }
    }
}

static void moved_when_the_other_was_lost(void **state)
{
    (void)state;
    for (int who = 0; who < BOTH; who++) {
        proxy self;
        open_proxy(&self, TCP, TCP, false);
        start_proxy(&self);
        weir_channel *moved = who == LEFT ? self.left : self.right;
        weir_promise *move = ask_to_move(moved, 1);
        pump(self.client, self.server, 1000, 1000);
        weir_channel_close(who == LEFT ? self.right : self.left, NULL);
        assert_int_equal(outcome(move), 0);
        assert_int_equal(end_of(&self.there), WEIR_ECLOSED);
        assert_int_equal(end_of(&self.back), WEIR_ECLOSED);
        assert_ptr_equal(executor_of(moved), weir_group_at(group, 1));
        if (who == LEFT)
            expect_whole(self.left, &self.left_seen, self.client);
        else
            expect_whole(self.right, &self.right_seen, self.server);
        end_proxy(&self);
    }
}

static void closed_while_a_move_waits(void **state)
{
    (void)state;
    for (int who = 0; who < BOTH; who++) {
        for (int stage = BEFORE; stage < STAGES; stage++) {
            proxy self;
            size_t sent;
            open_proxy(&self, TCP, TCP, false);
            bring_to_stage(&self, stage, &sent);
            weir_channel *moved = who == LEFT ? self.left : self.right;
            weir_promise *move = ask_to_move(moved, 1);
            settle(executor_of(moved));
            weir_channel_close(moved, NULL);
            assert_int_equal(outcome(move), WEIR_ECLOSED);
            wait_for_close(moved);
            peer_drain(self.server);
            weir_channel_close(self.right, NULL);
            assert_int_equal(end_of(&self.there), WEIR_ECLOSED);
            end_proxy(&self);
        }
    }
}

static void lost_while_a_move_waits(void **state)
{
    (void)state;
    for (int who = 0; who < BOTH; who++) {
        proxy self;
        size_t sent;
        open_proxy(&self, TCP, TCP, false);
        bring_to_stage(&self, who == LEFT ? BETWEEN : STUCK, &sent);
        weir_channel *moved = who == LEFT ? self.left : self.right;
        weir_promise *move = ask_to_move(moved, 1);
        settle(executor_of(moved));
        peer_reset(who == LEFT ? self.client : self.server);
        *(who == LEFT ? &self.client : &self.server) = -1;
        assert_lost(end_of(&self.there));
        int code = outcome(move); /* it may have got there first */
        assert_true(code == 0 || code == WEIR_ECLOSED);
        wait_for_close(moved);
        if (who == LEFT)
            expect_whole(self.right, &self.right_seen, self.server);
        end_proxy(&self);
    }
}

static void deregistered_when_it_has_ended(void **state)
{
    (void)state;
    for (int who = 0; who < BOTH; who++) {
        proxy self;
        open_proxy(&self, TCP, TCP, true);
        relay(&self.there, self.left, self.right);
        weir_channel *leaver = who == LEFT ? self.left : self.right;
        weir_promise *promise = promise_of(leaver);
        weir_channel_deregister(leaver, promise);
        pump(self.client, self.server, 100000, 0);
        assert_false(weir_future_is_done(weir_promise_future(promise)));
        shutdown(self.client, SHUT_WR);
        assert_int_equal(end_of(&self.there), 0);
        assert_int_equal(outcome(promise), 0);
        WAIT_FOR(weir_channel_loop(leaver) == NULL ||
                 weir_channel_get_state(leaver) == WEIR_CHANNEL_OPEN);
        assert_int_equal(register_on(leaver, weir_group_at(group, 1)), 0);
        peer_expect_eof(self.server);
        assert_int_equal(write_it(self.left, text_msg("still")), 0);
        peer_expect_text(self.client, "still");
        peer_send(self.server, "here", 4);
        WAIT_FOR(atomic_load(&self.right_seen.bytes) == 4);
        end_proxy(&self);
    }
}

/* Costs and faults ----------------------------------------------------------------------------- */

static void nothing_is_allocated_for_a_chunk(void **state)
{
    (void)state;
    enum { FIRST = 100, TRIPS = 1000 };
    for (int stream = TCP; stream <= UNIX; stream += UNIX - TCP) {
        proxy self;
        weir_allocator_stats before, after;
        open_proxy(&self, stream, stream, false);
        start_proxy(&self);
        weir_loop_stats at_first = { 0 };
        for (int i = 0; i < FIRST + TRIPS; i++) {
            if (i == FIRST) {
                settle(executor_of(self.left));
                weir_allocator_get_stats(&before);
                at_first = stats_of_loop(self.left);
            }
            peer_send(self.client, "ping", 4);
            peer_expect_text(self.server, "ping");
            peer_send(self.server, "pong", 4);
            peer_expect_text(self.client, "pong");
        }
        weir_allocator_get_stats(&after);
        weir_loop_stats at_last = stats_of_loop(self.left);
        /* A long wait is taken in two, to give memory back in between. */
        assert_in_range(after.allocations - before.allocations, 0, 20);
        assert_in_range(at_last.sends - at_first.sends, 2 * TRIPS - 1, 2 * TRIPS);
        /* Each looks once more, whether there is more. */
        assert_in_range(at_last.receives - at_first.receives, 2 * TRIPS, 4 * TRIPS + 2);
        assert_int_equal(at_last.controls, at_first.controls);
        end_proxy(&self);
    }
}

static void large_chunks_take_few_calls(void **state)
{
    (void)state;
    proxy self;
    weir_allocator_stats before, after;
    open_proxy(&self, TCP, TCP, false);
    start_proxy(&self);
    pump(self.client, self.server, MIB, 0);
    settle(executor_of(self.left));
    weir_allocator_get_stats(&before);
    weir_loop_stats at_first = stats_of_loop(self.left);
    pump(self.client, self.server, 16 * MIB, 0);
    settle(executor_of(self.left));
    weir_allocator_get_stats(&after);
    weir_loop_stats at_last = stats_of_loop(self.left);
    uint64_t calls = at_last.receives - at_first.receives + at_last.sends - at_first.sends;
    print_message("%llu calls of splice for 16 MiB\n", (unsigned long long)calls);
    assert_in_range(calls, 16 * MIB / PIPE_BYTES * 2, 16 * MIB / 4096);
    assert_in_range(after.allocations - before.allocations, 0, 20);
    end_proxy(&self);
}

/* A client says something and hears the same: whole, or a channel was closed and the ways ended. */
static void proxy_once(void)
{
    enum { BYTES = 3000 };
    proxy self;
    open_proxy(&self, TCP, TCP, true);
    atomic_store(&nth.is_paused, false);
    start_proxy(&self);
    peer_send_pattern(self.client, 0, BYTES);
    shutdown(self.client, SHUT_WR);
    size_t got = 0;
    bool is_over[2] = { false };
    uint8_t bytes[BYTES];
    int fds[] = { self.server, self.client };
    for (int side = 0; side < 2; side++) {
        got = 0;
        while (!is_over[side]) {
            struct pollfd entry = { .fd = fds[side], .events = POLLIN };
            bool has_died = !weir_channel_is_open(self.left) || !weir_channel_is_open(self.right) ||
                            !is_going(&self.there) || !is_going(&self.back);
            int ready = poll(&entry, 1, 20);
            if (ready == 0 && has_died && atomic_load(&nth.has_failed))
                break; /* it was to be expected */
            ssize_t code = ready > 0 ? recv(fds[side], bytes, sizeof bytes, 0) : 1;
            is_over[side] = ready > 0 && code <= 0;
            if (ready > 0 && code > 0) {
                assert_true(is_pattern(bytes, got, (size_t)code));
                got += (size_t)code;
            }
        }
        if (side == 0 && is_over[0]) {
            uint8_t answer[BYTES];
            fill_pattern(answer, 0, got);
            if (got > 0)
                send(self.server, answer, got, MSG_NOSIGNAL);
            shutdown(self.server, SHUT_WR);
        }
    }
    if (!atomic_load(&nth.has_failed))
        assert_int_equal(got, BYTES);
    end_proxy(&self);
    atomic_store(&nth.is_paused, true);
}

static void every_call_fails_once(void **state)
{
    (void)state;
    is_test_thread = true;
    atomic_store(&nth.is_paused, true);
    begin_fault(fail_nth);
    harness_log_begin(WEIR_LOG_OFF);
    unsigned failures = 0;
    for (nth.at = 1;; nth.at++) {
        atomic_store(&nth.seen, 0);
        atomic_store(&nth.has_failed, false);
        proxy_once();
        if (!atomic_load(&nth.has_failed))
            break;
        failures++;
        assert_true(nth.at < 1000);
    }
    harness_log_end();
    end_fault();
    print_message("%u calls failed, each once\n", failures);
}

/* Cut at random -------------------------------------------------------------------------------- */

static unsigned random_number(unsigned *seed, unsigned below)
{
    *seed = *seed * 1103515245 + 12345;
    return (*seed >> 16) % below;
}

static void cut_at_random(void **state)
{
    (void)state;
    enum { TIMES = 400 };
    harness_log_begin(WEIR_LOG_OFF);
    unsigned seed = 7;
    for (int i = 0; i < TIMES; i++) {
        proxy self;
        open_proxy(&self, (int)random_number(&seed, STREAMS), (int)random_number(&seed, STREAMS),
                   random_number(&seed, 2));
        start_proxy(&self);
        static uint8_t bytes[300000];
        for (int cuts = 0; cuts < 4; cuts++) {
            int fd = random_number(&seed, 2) ? self.client : self.server;
            weir_channel *channel = random_number(&seed, 2) ? self.left : self.right;
            send(fd, bytes, random_number(&seed, sizeof bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
            switch (random_number(&seed, 9)) {
            case 0:
                shutdown(fd, SHUT_WR);
                break;
            case 1:
                weir_channel_close(channel, NULL);
                break;
            case 2:
                weir_channel_finish(channel, NULL);
                break;
            case 3:
                weir_channel_shutdown(channel, NULL);
                break;
            case 4:
                weir_channel_move(channel, weir_group_at(group, 1), NULL);
                break;
            case 5:
                shutdown(fd, SHUT_RDWR);
                break;
            case 6:
                peer_drain(fd);
                break;
            case 7:
                weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL);
                break;
            default:
                if (fd == self.client)
                    self.client = -1;
                else
                    self.server = -1;
                if (fd >= 0)
                    peer_reset(fd);
            }
        }
        end_proxy(&self);
    }
    harness_log_end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        loop_cases(wrong_arguments),
        loop_cases(another_loop),
        case_over(BLOCKING, "not_on_one_loop", not_on_one_loop),
        loop_cases(not_streams_of_the_kernel),
        loop_cases(relay_is_rejected_with_an_upgrade_in_the_pipeline),
        loop_cases(not_active),
        loop_cases(not_twice),
        loop_cases(not_before_what_was_written_is_sent),
        loop_cases(not_without_memory_or_descriptors),
        loop_cases(a_byte_there_and_back),
        loop_cases(ten_mib_both_ways_at_once),
        loop_cases(pieces_of_any_size),
        loop_cases(a_slow_reader_slows_the_sender_down),
        loop_cases(without_a_promise),
        loop_cases(a_promise_that_is_cancelled_changes_nothing),
        loop_cases(what_came_before_is_relayed),
        loop_cases(begun_when_the_first_bytes_are_through),
        loop_cases(begun_while_a_read_is_told),
        loop_cases(writes_meanwhile),
        loop_cases(half_closed_in_each_direction),
        loop_cases(the_end_without_half_closure),
        loop_cases(the_end_comes_behind_all_bytes),
        loop_cases(the_sender_resets),
        loop_cases(the_receiver_resets),
        loop_cases(both_reset),
        loop_cases(closed_while_it_waits),
        loop_cases(closed_while_it_is_stuck),
        loop_cases(shut_down_by_others),
        loop_cases(shut_down_while_a_move_waits),
        loop_cases(the_end_of_the_targets_input_waits_for_what_was_taken),
        loop_cases(a_shutdown_fails_when_bytes_are_lost),
        loop_cases(closed_when_just_begun),
        loop_cases(closed_in_the_listener),
        loop_cases(one_sender_after_another),
        loop_cases(the_group_ends_meanwhile),
        loop_cases(moved_when_it_has_ended),
        loop_cases(moved_when_the_other_was_lost),
        loop_cases(closed_while_a_move_waits),
        loop_cases(lost_while_a_move_waits),
        loop_cases(deregistered_when_it_has_ended),
        loop_cases(nothing_is_allocated_for_a_chunk),
        loop_cases(large_chunks_take_few_calls),
        loop_cases(every_call_fails_once),
        loop_cases(cut_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
