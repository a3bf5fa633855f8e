/* SPDX-License-Identifier: MIT */
/* Who comes in, over real sockets: the PROXY protocol, the ip filter and connection limits. */
#include "bootstrap/servers.h"

#include <weir/client.h>
#include <weir/connection_limit.h>
#include <weir/ip_filter.h>
#include <weir/proxy_protocol.h>

/* A server whose connections answer with the address they think they are from, then echo. */
typedef struct door {
    setup setup;
    weir_ip_filter *filter;
    weir_connection_limit *limit;
    bool has_decoder;
    atomic_int actives, inactives;
    _Atomic(weir_channel *) last; /* a reference */
} door;

static void address_text(int code, const weir_address *address, char *to)
{
    weir_address plain = *address;
    weir_address_unmap(&plain);
    snprintf(to, WEIR_ADDRESS_TEXT_MAX, "%s", "none");
    if (code == 0)
        weir_address_text(&plain, to, WEIR_ADDRESS_TEXT_MAX);
}

static void remote_text(const weir_channel *channel, char *to)
{
    weir_address address;
    address_text(weir_channel_remote_address(channel, &address), &address, to);
}

static void answer_on_active(weir_ctx *ctx)
{
    door *self = weir_ctx_arg(ctx);
    char text[WEIR_ADDRESS_TEXT_MAX];
    remote_text(weir_ctx_channel(ctx), text);
    weir_buf *answer = weir_buf_new(64);
    weir_buf_printf(answer, "%s\n", text);
    weir_channel *before = atomic_exchange(&self->last, weir_channel_retain(weir_ctx_channel(ctx)));
    weir_channel_release(before);
    atomic_fetch_add(&self->actives, 1);
    weir_ctx_write_and_flush(ctx, &answer->msg, NULL);
    weir_ctx_fire_active(ctx);
}

static void answer_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write_and_flush(ctx, msg, NULL);
}

static void answer_on_inactive(weir_ctx *ctx)
{
    door *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->inactives, 1);
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type answerer = {
    .name = "answerer",
    .on_active = answer_on_active,
    .on_read = answer_on_read,
    .on_inactive = answer_on_inactive,
};

static int init_door(weir_channel *child, void *arg)
{
    door *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(child);
    int code = 0;
    if (self->has_decoder)
        code = weir_pipeline_add_last(pipeline, "proxy", &weir_proxy_decoder, NULL);
    if (code == 0 && self->filter != NULL)
        code = weir_pipeline_add_last(pipeline, "filter", &weir_ip_filter_handler, self->filter);
    if (code == 0 && self->limit != NULL)
        code = weir_pipeline_add_last(pipeline, "limit", &weir_connection_limit_handler,
                                      self->limit);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "answerer", &answerer, self);
}

static void open_door(door *self, const backend *with, const char *address)
{
    prepare(&self->setup, with, 1, 3);
    self->setup.config.init = NULL;
    self->setup.config.init_child = init_door;
    self->setup.config.arg = self;
    listen_on(&self->setup, address);
}

static void close_door(door *self)
{
    weir_channel_release(atomic_exchange(&self->last, NULL));
    WAIT_FOR(server_stats(self->setup.server).connections == 0);
    close_all(&self->setup);
    weir_ip_filter_release(self->filter);
    weir_connection_limit_release(self->limit);
}

static int dial_at(const weir_server *server, const char *format)
{
    weir_address address = on_port_of(server, format);
    int fd = try_dial(&address);
    assert_true(fd >= 0);
    return fd;
}

/* The address that a socket has at its own end. */
static void own_text(int fd, char *to)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    weir_address address;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &length), 0);
    int code = weir_address_from_sockaddr(&address, (struct sockaddr *)&name, length);
    address_text(code, &address, to);
}

/* The PROXY protocol --------------------------------------------------------------------------- */

#define V1 "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"
#define V1_IPV6 "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n"

/* Over both stacks, and asked on this thread. The proxy stays to be seen. */
static void the_client_is_at_the_other_side(void **state)
{
    static const char *const ways[] = { "127.0.0.1:%u", "[::1]:%u" };
    static const char *const headers[][2] = { { V1, "192.0.2.1:56324\n" },
                                              { V1_IPV6, "[2001:db8::1]:56324\n" } };
    door self = { .has_decoder = true };
    open_door(&self, *state, ":0");
    for (int i = 0; i < 4; i++) {
        int fd = dial_at(self.setup.server, ways[i / 2]);
        char proxy[WEIR_ADDRESS_TEXT_MAX], remote[WEIR_ADDRESS_TEXT_MAX];
        say(fd, headers[i % 2][0]);
        hear(fd, headers[i % 2][1]);
        talk(fd);
        weir_channel *child = atomic_load(&self.last);
        weir_address peer;
        own_text(fd, proxy);
        address_text(weir_channel_peer_address(child, &peer), &peer, remote);
        assert_string_equal(remote, proxy);
        remote_text(child, remote);
        assert_memory_equal(remote, headers[i % 2][1], strlen(remote));
        close(fd);
    }
    close_door(&self);
}

/* In however many pieces, and with the first words behind it. */
static void headers_come_in_pieces(void **state)
{
    door self = { .has_decoder = true };
    open_door(&self, *state, EVERYWHERE);
    int fd = dial(self.setup.server), no_delay = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
    for (const char *at = V1; *at != '\0'; at++)
        say(fd, (char[]){ *at, '\0' });
    hear(fd, "192.0.2.1:56324\n");
    close(fd);
    fd = dial(self.setup.server);
    say(fd, V1 "hello");
    hear(fd, "192.0.2.1:56324\nhello");
    close(fd);
    fd = dial(self.setup.server);
    say(fd, "PROXY TCP4 192.0.2.1");
    shutdown(fd, SHUT_WR);
    hear_end(fd);
    close(fd);
    fd = dial(self.setup.server);
    say(fd, "GET / HTTP/1.1\r\n\r\n");
    hear_end(fd);
    close(fd);
    assert_int_equal(atomic_load(&self.actives), 2);
    close_door(&self);
}

/* A header of version 2 without addresses, as health checks have it. */
static void local_headers_keep_the_peer(void **state)
{
    door self = { .has_decoder = true };
    char own[WEIR_ADDRESS_TEXT_MAX];
    open_door(&self, *state, EVERYWHERE);
    int fd = dial(self.setup.server);
    assert_int_equal(send(fd, "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", 16, MSG_NOSIGNAL), 16);
    own_text(fd, own);
    hear(fd, own);
    hear(fd, "\n");
    close(fd);
    close_door(&self);
}

/* A client that sends one ---------------------------------------------------------------------- */

typedef struct caller {
    weir_proxy_header header;
    char heard[512];
    size_t length;
    atomic_int lines;
} caller;

static void caller_on_read(weir_ctx *ctx, weir_msg *msg)
{
    caller *self = weir_ctx_arg(ctx);
    weir_buf *buf = weir_buf_from_msg(msg);
    size_t length = weir_buf_readable(buf);
    assert_true(self->length + length < sizeof self->heard);
    weir_buf_read_bytes(buf, self->heard + self->length, length);
    self->length += length;
    weir_msg_release(msg);
    if (self->length > 0 && self->heard[self->length - 1] == '!')
        atomic_fetch_add(&self->lines, 1);
}

static const weir_handler_type caller_type = { .name = "caller", .on_read = caller_on_read };

static int init_caller(weir_channel *channel, void *arg)
{
    caller *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "sender", &weir_proxy_sender, &self->header);
    if (code == 0)
        code = weir_pipeline_add_last(pipeline, "caller", &caller_type, self);
    if (code == 0) /* before there is a connection */
        weir_channel_write_and_flush(channel, weir_buf_msg(weir_buf_from("hello!", 6)), NULL);
    return code;
}

/* Over TCP, Unix and in-process channels, with addresses of every kind. */
static void clients_say_for_whom_they_come(void **state)
{
    static const char *const ways[] = { EVERYWHERE, "unix:@weir-admission-%d", "local:admission" };
    static const struct {
        int version;
        const char *source, *destination;
    } rows[] = {
        { 1, "192.0.2.1:5", "192.0.2.2:6" },
        { 2, "192.0.2.1:5", "192.0.2.2:6" },
        { 2, "[2001:db8::1]:5", "[2001:db8::2]:6" },
        { 2, "unix:/run/a", "unix:@b" },
    };
    const backend *with = *state;
    for (size_t i = 0; i < COUNT(ways) * COUNT(rows); i++) {
        const char *way = ways[i / COUNT(rows)];
        if (with->io == WEIR_IO_BLOCKING && strncmp(way, "local", 5) == 0)
            continue; /* has no descriptor to block on */
        door self = { .has_decoder = true };
        caller client = { .header = {
                              .version = rows[i % COUNT(rows)].version,
                              .source = address_of(rows[i % COUNT(rows)].source),
                              .destination = address_of(rows[i % COUNT(rows)].destination),
                              .has_checksum = rows[i % COUNT(rows)].version == 2,
                          } };
        char where[64], text[WEIR_ADDRESS_TEXT_MAX], expected[512];
        snprintf(where, sizeof where, way, (int)getpid());
        open_door(&self, with, where);
        weir_address address = address_of_server(self.setup.server);
        weir_address_text(&address, text, sizeof text);
        weir_group *group = loops_of(with, 1);
        weir_channel *channel;
        weir_error error;
        weir_client_config config = { .group = group, .init = init_caller, .arg = &client };
        if (weir_client_connect(&channel, &config, text, &error) < 0)
            fail_msg("%s", error.message);
        WAIT_FOR(atomic_load(&client.lines) == 1);
        snprintf(expected, sizeof expected, "%s\nhello!", rows[i % COUNT(rows)].source);
        assert_int_equal(client.length, strlen(expected));
        assert_memory_equal(client.heard, expected, client.length);
        weir_promise *closed = new_promise();
        weir_channel_close(channel, closed);
        assert_int_equal(end_of(closed), 0);
        weir_channel_release(channel);
        close_door(&self);
        end_group(group);
    }
}

/* The ip filter -------------------------------------------------------------------------------- */

static weir_ip_filter *filter_of(const weir_ip_rule *rules, size_t count)
{
    weir_ip_filter *filter;
    weir_ip_filter_config config = { .rules = rules, .rule_count = count };
    assert_int_equal(weir_ip_filter_new(&filter, &config, NULL), 0);
    return filter;
}

/* A listener for both families sees IPv4 in the form of IPv6; the rule is for IPv4. */
static void the_filter_knows_both_families(void **state)
{
    static const weir_ip_rule four[] = { { "127.0.0.0/8", WEIR_IP_ACCEPT } };
    static const weir_ip_rule six[] = { { "::1", WEIR_IP_ACCEPT } };
    for (int i = 0; i < 2; i++) {
        door self = { .filter = filter_of(i ? six : four, 1) };
        weir_ip_filter_stats stats;
        open_door(&self, *state, ":0");
        int one = dial_at(self.setup.server, "127.0.0.1:%u");
        int other = dial_at(self.setup.server, "[::1]:%u");
        char own[WEIR_ADDRESS_TEXT_MAX];
        own_text(i ? other : one, own);
        hear(i ? other : one, own);
        hear(i ? other : one, "\n");
        talk(i ? other : one);
        hear_end(i ? one : other);
        close(one);
        close(other);
        weir_ip_filter_get_stats(self.filter, &stats);
        assert_int_equal(stats.accepted, 1);
        assert_int_equal(stats.rejected, 1);
        WAIT_FOR(atomic_load(&self.inactives) == 1);
        assert_int_equal(atomic_load(&self.actives), 1);
        close_door(&self);
    }
}

static void the_filter_judges_the_client_of_a_proxy(void **state)
{
    static const weir_ip_rule rules[] = { { "192.0.2.0/24", WEIR_IP_ACCEPT } };
    door self = { .has_decoder = true, .filter = filter_of(rules, 1) };
    open_door(&self, *state, EVERYWHERE);
    int one = dial(self.setup.server), other = dial(self.setup.server);
    say(one, V1);
    hear(one, "192.0.2.1:56324\n");
    say(other, V1_IPV6 "hello");
    hear_end(other);
    close(one);
    close(other);
    WAIT_FOR(atomic_load(&self.inactives) == 1);
    assert_int_equal(atomic_load(&self.actives), 1);
    close_door(&self);
}

/* Connection limits ---------------------------------------------------------------------------- */

enum { CLIENTS = 24, MOST = 5 };

/* Whether it is let in: then something comes, else the end. */
static bool is_let_in(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) == 1;
}

static void expect_limited(const door *self, const char *way, int most)
{
    int fds[CLIENTS], let_in = 0;
    bool is_in[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = dial_at(self->setup.server, way);
    for (int i = 0; i < CLIENTS; i++)
        let_in += is_in[i] = is_let_in(fds[i]);
    assert_int_equal(let_in, most);
    for (int i = 0; i < CLIENTS; i++) {
        if (is_in[i])
            close(fds[i]);
    }
    weir_connection_limit_stats stats;
    WAIT_FOR((weir_connection_limit_get_stats(self->limit, &stats), stats.open == 0));
    assert_int_equal(stats.addresses, 0);
    int again = dial_at(self->setup.server, way); /* there is a place again */
    assert_true(is_let_in(again));
    close(again);
    for (int i = 0; i < CLIENTS; i++) {
        if (!is_in[i])
            close(fds[i]);
    }
    WAIT_FOR((weir_connection_limit_get_stats(self->limit, &stats), stats.open == 0));
}

static void limits_hold_over_all_loops(void **state)
{
    static const weir_connection_limit_config configs[] = { { .max_per_address = MOST },
                                                            { .max_total = MOST } };
    for (int i = 0; i < 2; i++) {
        door self = { 0 };
        assert_int_equal(weir_connection_limit_new(&self.limit, &configs[i], NULL), 0);
        open_door(&self, *state, ":0");
        expect_limited(&self, "127.0.0.1:%u", MOST);
        expect_limited(&self, "[::1]:%u", MOST);
        weir_connection_limit_stats stats;
        weir_connection_limit_get_stats(self.limit, &stats);
        assert_int_equal(i ? stats.refused_total : stats.refused_per_address, 2 * (CLIENTS - MOST));
        close_door(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        each_backend(the_client_is_at_the_other_side),
        each_backend(headers_come_in_pieces),
        each_backend(local_headers_keep_the_peer),
        each_backend(clients_say_for_whom_they_come),
        each_backend(the_filter_knows_both_families),
        each_backend(the_filter_judges_the_client_of_a_proxy),
        each_backend(limits_hold_over_all_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
