/* SPDX-License-Identifier: MIT */
/* What the tests of bridges share: a proxy between a client and a server that are plain sockets,
 * and two channels that are bridged by hand. */
#ifndef WEIR_TESTS_HANDLER_BRIDGES_H
#define WEIR_TESTS_HANDLER_BRIDGES_H

#include "transport/flows.h"

#include "transport/socket.h"

#include <weir/bridge.h>
#include <weir/client.h>
#include <weir/resolver.h>
#include <weir/server.h>

/* Cases ---------------------------------------------------------------------------------------- */

/* Whether the two channels of a bridge are on different loops; with blocking io they always are. */
typedef struct variant {
    int backend;
    bool is_apart;
} variant;

enum { ON_EPOLL, ON_URING, APART_ON_EPOLL, APART_ON_URING, ON_BLOCKING, VARIANTS };

static const variant variants[] = {
    [ON_EPOLL] = { EPOLL, false },      [ON_URING] = { URING, false },
    [APART_ON_EPOLL] = { EPOLL, true }, [APART_ON_URING] = { URING, true },
    [ON_BLOCKING] = { BLOCKING, true },
};

static bool is_apart;

static inline int begin_bridge_case(void **state)
{
    const variant *how = *state;
    is_apart = how->is_apart;
    *state = &backends[how->backend];
    harness_log_begin(WEIR_LOG_ERROR);
    return begin_case(state);
}

/* A promise that is dropped is a bug that only the log tells. */
static inline int end_bridge_case(void **state)
{
    if (group != NULL)
        end_group(group);
    group = NULL;
    assert_int_equal(weir_executor_global_wait_idle(WEIR_MS(PATIENCE_MS)), 0);
    bool has_dropped = harness_log_has("dropped without a result");
    harness_log_end();
    int code = harness_assert_nothing_left(state);
    assert_false(has_dropped);
    return code;
}

#define bridge_case(index, title, name)                                                            \
    {                                                                                              \
        title, name, begin_bridge_case, end_bridge_case, (void *)(uintptr_t)&variants[index]       \
    }

/* A case about channels on one loop, about two loops, and about all of them. */
#define together_cases(name)                                                                       \
    bridge_case(ON_EPOLL, #name, name), bridge_case(ON_URING, #name "_uring", name)
#define apart_cases(name)                                                                          \
    bridge_case(APART_ON_EPOLL, #name "_apart", name),                                             \
        bridge_case(APART_ON_URING, #name "_apart_uring", name)
#define loops_cases(name) together_cases(name), apart_cases(name)
#define bridge_cases(name) loops_cases(name), bridge_case(ON_BLOCKING, #name "_blocking", name)

static inline bool is_blocking(void)
{
    return current->io == WEIR_IO_BLOCKING;
}

/* The loop that a channel is not on, of two. */
static inline weir_loop *other_loop(const weir_loop *loop)
{
    weir_loop *first = weir_group_loop_at(group, 0);
    return loop == first ? weir_group_loop_at(group, 1) : first;
}

/* Peers ---------------------------------------------------------------------------------------- */

static inline void reset_peer(int *fd)
{
    peer_reset(*fd);
    *fd = -1;
}

/* A resolver that answers when it is told to ----------------------------------------------------
 */

typedef struct late {
    weir_resolver base;
    int refusal; /* what it says at once */
    _Atomic(weir_promise *) promise;
} late;

static inline int late_resolve(weir_resolver *resolver, weir_executor *background, const char *host,
                               uint16_t port, weir_promise *promise)
{
    late *self = WEIR_CONTAINER(resolver, late, base);
    (void)background, (void)host, (void)port;
    if (self->refusal == 0)
        atomic_store(&self->promise, weir_promise_retain(promise));
    return self->refusal;
}

/* One address, or a code. */
static inline void answer(late *self, int code, const weir_address *address)
{
    WAIT_FOR(atomic_load(&self->promise) != NULL);
    weir_promise *promise = atomic_exchange(&self->promise, NULL);
    weir_addresses *list = code == 0 ? weir_addresses_new(address, 1) : NULL;
    if (list == NULL)
        weir_promise_fail(promise, code);
    else if (weir_promise_succeed(promise, list, weir_addresses_free) < 0)
        weir_addresses_free(list);
    weir_promise_release(promise);
}

/* The end of a bridge ----------------------------------------------------------------------------
 */

/* What on_end has said. */
typedef struct ending {
    atomic_int ends;
    weir_error error;
    uint64_t to_back, to_front;
    weir_channel *front, *back; /* to be compared */
    uint64_t front_id, back_id;
    bool were_open;
} ending;

static inline void note_end(void *arg, const weir_bridge_result *result)
{
    ending *self = arg;
    self->error = result->error;
    self->to_back = result->bytes_to_back;
    self->to_front = result->bytes_to_front;
    self->front = result->front;
    self->back = result->back;
    self->front_id = weir_channel_id(result->front);
    self->back_id = result->back != NULL ? weir_channel_id(result->back) : 0;
    self->were_open = weir_channel_is_open(result->front) ||
                      (result->back != NULL && weir_channel_is_open(result->back));
    atomic_fetch_add(&self->ends, 1); /* last: what a test waits for */
}

static inline void expect_ended(ending *self)
{
    WAIT_FOR(atomic_load(&self->ends) > 0);
    assert_int_equal(atomic_load(&self->ends), 1);
    assert_false(self->were_open);
}

/* Both directions have reached EOF, with so many bytes. */
static inline void expect_complete(ending *self, uint64_t there, uint64_t back)
{
    expect_ended(self);
    if (self->error.code < 0)
        fail_msg("it ended with %s: %s", weir_error_name(self->error.code), self->error.message);
    assert_int_equal(self->to_back, there);
    assert_int_equal(self->to_front, back);
}

static inline void expect_failed(ending *self, int code)
{
    expect_ended(self);
    if (self->error.code != code)
        fail_msg("it ended with %s: %s", weir_error_name(self->error.code), self->error.message);
    assert_true(self->error.message[0] != '\0');
}

/* Early, for whatever reason. */
static inline void expect_broken(ending *self)
{
    expect_ended(self);
    assert_true(self->error.code < 0);
    assert_true(self->error.message[0] != '\0');
}

/* Proxies ----------------------------------------------------------------------------------------
 */

/* A server of weir's whose connections are bridged with another server, a socket of the test's. */
typedef struct proxy proxy;
struct proxy {
    /* What it shall be. Zero: TCP, and every default. */
    weir_bridge_config config;
    weir_client_config upstream;
    const char *text; /* where the upstream is; NULL: at the test's own listener */
    int stream;       /* on both sides */
    bool is_late;     /* the address of the upstream is told by answer_upstream */
    bool is_small;    /* all buffers of the kernel's are */
    bool is_alone;    /* no client is connected yet */
    int (*before)(proxy *self, weir_channel *front); /* adds handlers, before the bridge */
    int (*after)(proxy *self, weir_channel *front);
    int (*init_back)(proxy *self, weir_channel *back);

    /* What it is. */
    int client, server; /* the test's ends */
    int listener;       /* where `server` comes from */
    weir_address upstream_address, address;
    weir_server *weir;
    late resolver;
    _Atomic(weir_channel *) front, back; /* references */
    int code;                            /* of weir_bridge_connect */
    weir_error error;                    /* the same */
    atomic_int fronts, inits, releases;
    ending end;
};

static inline void proxy_release(void *arg)
{
    proxy *self = arg;
    atomic_fetch_add(&self->releases, 1);
}

static inline int proxy_init_back(weir_channel *back, void *arg)
{
    proxy *self = arg;
    atomic_fetch_add(&self->inits, 1);
    atomic_store(&self->back, weir_channel_retain(back));
    return self->init_back != NULL ? self->init_back(self, back) : 0;
}

static inline void upstream_text(const proxy *self, char *to, size_t size)
{
    if (self->text != NULL)
        snprintf(to, size, "%s", self->text);
    else if (self->is_late)
        snprintf(to, size, "upstream.test:80");
    else
        weir_address_text(&self->upstream_address, to, size);
}

/* On the loop of `front`. */
static inline int proxy_connect(proxy *self, weir_channel *front)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_client_config client = self->upstream;
    weir_bridge_config config = self->config;
    upstream_text(self, text, sizeof text);
    if (is_apart && !is_blocking() && client.loop == NULL) {
        client.group = group;
        client.loop = other_loop(weir_channel_loop(front));
    }
    client.resolver = self->is_late ? &self->resolver.base : client.resolver;
    client.init = proxy_init_back;
    client.arg = self;
    client.arg_release = proxy_release;
    config.on_end = note_end;
    config.arg = &self->end;
    self->code = weir_bridge_connect(front, &client, text, &config, &self->error);
    return self->code;
}

static inline int proxy_init_front(weir_channel *front, void *arg)
{
    proxy *self = arg;
    if (self->is_small) {
        weir_channel_set_option(front, WEIR_OPTION_SEND_BUFFER_BYTES, 65536, NULL);
        weir_channel_set_option(front, WEIR_OPTION_RECEIVE_BUFFER_BYTES, 65536, NULL);
    }
    int code = self->before != NULL ? self->before(self, front) : 0;
    if (code == 0)
        code = proxy_connect(self, front);
    if (code == 0 && self->after != NULL)
        code = self->after(self, front);
    atomic_store(&self->front, weir_channel_retain(front));
    atomic_fetch_add(&self->fronts, 1);
    return code;
}

static inline void open_upstream(proxy *self)
{
    self->upstream_address = any_address(self->stream);
    self->listener = peer_listen(&self->upstream_address, 16);
    self->resolver.base.resolve = late_resolve;
}

static inline void listen_proxy(proxy *self, weir_init_fn init)
{
    char text[WEIR_ADDRESS_TEXT_MAX];
    weir_error error;
    weir_address address = any_address(self->stream);
    weir_server_config config = { .boss = group, .init_child = init, .arg = self };
    weir_address_text(&address, text, sizeof text);
    if (weir_server_listen(&self->weir, &config, text, &error) < 0)
        fail_msg("%s", error.message);
    assert_int_equal(weir_server_address(self->weir, &self->address), 0);
}

static inline void accept_upstream(proxy *self)
{
    self->server = peer_accept(self->listener);
    if (self->is_small)
        make_small(self->server);
}

static inline void answer_upstream(proxy *self)
{
    answer(&self->resolver, 0, &self->upstream_address);
    accept_upstream(self);
}

static inline void open_proxy_with(proxy *self, weir_init_fn init)
{
    static const weir_option_value small[] = { { WEIR_OPTION_SEND_BUFFER_BYTES, 65536 },
                                               { WEIR_OPTION_RECEIVE_BUFFER_BYTES, 65536 } };
    self->client = self->server = -1;
    if (self->is_small)
        self->upstream.options = small, self->upstream.option_count = COUNT_OF(small);
    open_upstream(self);
    listen_proxy(self, init);
    if (self->is_alone)
        return;
    self->client = peer_connect(&self->address);
    if (self->is_small)
        make_small(self->client);
    WAIT_FOR(atomic_load(&self->front) != NULL);
}

/* The client is connected, and so is the server unless the address is late or not the test's. */
static inline void open_proxy(proxy *self)
{
    open_proxy_with(self, proxy_init_front);
    if (!self->is_late && !self->is_alone && self->text == NULL)
        accept_upstream(self);
}

/* Both channels, when the server speaks the first word that the client hears. */
static inline void expect_connected(proxy *self)
{
    peer_send(self->server, "hi", 2);
    peer_expect_text(self->client, "hi");
}

/* Connected, with small buffers. */
static inline void open_small_proxy(proxy *self, int64_t relay_after_bytes)
{
    *self = (proxy){ .is_small = true, .config.relay_after_bytes = relay_after_bytes };
    open_proxy(self);
    expect_connected(self);
}

static inline void end_proxy_channel(_Atomic(weir_channel *) *at)
{
    weir_channel *channel = atomic_exchange(at, NULL);
    if (channel == NULL)
        return;
    weir_channel_close(channel, NULL);
    release_when_closed(channel);
}

static inline void close_server(proxy *self)
{
    weir_server_close(self->weir, NULL);
    assert_int_equal(weir_future_wait(weir_server_closed(self->weir), WEIR_MS(PATIENCE_MS)), 0);
    weir_server_release(self->weir);
}

/* However it has ended: on_end was called once, and so was the release of the client's argument. */
static inline void end_proxy(proxy *self)
{
    int begun = self->code == 0 && atomic_load(&self->fronts) > 0;
    close_peer(&self->client);
    close_peer(&self->server);
    close_server(self);
    end_proxy_channel(&self->front);
    end_proxy_channel(&self->back);
    WAIT_FOR(atomic_load(&self->releases) >= begun);
    WAIT_FOR(atomic_load(&self->end.ends) >= begun);
    assert_int_equal(atomic_load(&self->releases), begun);
    assert_int_equal(atomic_load(&self->end.ends), begun);
    assert_true(atomic_load(&self->inits) <= 1);
    close_peer(&self->listener);
    forget_path(&self->upstream_address);
    forget_path(&self->address);
}

static inline void end_both_directions(proxy *self)
{
    end_streams(self->client, self->server);
}

/* Sends until nothing goes any more, and the channel reads nothing more: how much that was. */
static inline size_t send_until_stuck(int fd, size_t at, size_t most, weir_channel *reader)
{
    uint8_t bytes[32768];
    uint64_t taken = 0;
    for (int quiet = 0; quiet < 20 && at < most;) {
        fill_pattern(bytes, at, sizeof bytes);
        ssize_t code = send(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        assert_true(code > 0 || errno == EAGAIN);
        at += code > 0 ? (size_t)code : 0;
        uint64_t now = stats_of_channel(reader).bytes_in;
        quiet = code > 0 || now != taken ? 0 : quiet + 1;
        taken = now;
        if (code < 0)
            usleep(1000);
    }
    return at;
}

/* The kernel's relay ------------------------------------------------------------------------------
 */

/* When the kernel begins to relay: never, after the default, at once, and in between. */
static const int64_t relay_limits[] = { WEIR_OFF, 0, 1, 100000 };

typedef struct relay_look {
    const weir_socket *socket;
    bool is_relayed;
} relay_look;

static inline int run_relay_look(void *arg)
{
    relay_look *self = arg;
    self->is_relayed = self->socket->is_relayed;
    return 0;
}

/* Whether the kernel relays what the channel receives. */
static inline bool is_relayed(weir_channel *channel)
{
    relay_look look = { .socket = weir__socket_of(channel) };
    call_on(executor_of(channel), run_relay_look, &look);
    return look.is_relayed;
}

static inline bool may_be_relayed(void)
{
    return !is_apart;
}

/* Channels that are bridged by hand ---------------------------------------------------------------
 */

/* Two connections, each with a channel at one end and a socket of the test's at the other. */
typedef struct couple {
    weir_bridge_config config;
    int stream;

    weir_channel *front, *back;
    int client, server;
    int code; /* of weir_bridge */
    ending end;
} couple;

static inline void register_half(weir_channel *channel, size_t loop)
{
    weir_promise *promise = promise_of(channel);
    if (is_blocking())
        put_on_loop(channel, promise);
    else
        weir_channel_register(channel, weir_group_at(group, loop), promise);
    assert_int_equal(outcome(promise), 0);
    WAIT_FOR(weir_channel_is_active(channel));
}

/* Registered and active, and not bridged yet. */
static inline void open_couple(couple *self)
{
    self->front = half_pair(self->stream, NULL, &self->client);
    self->back = half_pair(self->stream, NULL, &self->server);
    register_half(self->front, 0);
    register_half(self->back, is_apart ? 1 : 0);
}

static inline int run_bridge(void *arg)
{
    couple *self = arg;
    weir_bridge_config config = self->config;
    config.on_end = note_end;
    config.arg = &self->end;
    self->code = weir_bridge(self->front, self->back, &config);
    return self->code;
}

static inline int bridge_couple(couple *self)
{
    return call_on(executor_of(self->front), run_bridge, self);
}

static inline void end_couple(couple *self)
{
    weir_channel_close(self->front, NULL);
    weir_channel_close(self->back, NULL);
    release_when_closed(self->front);
    release_when_closed(self->back);
    close_peer(&self->client);
    close_peer(&self->server);
}

#endif
