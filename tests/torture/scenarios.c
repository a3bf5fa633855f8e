/* SPDX-License-Identifier: MIT */
/* Scenarios: a server and a client in one thread, which steps them. The clock moves to the next
 * timer when there is nothing else to do; so whoever waits for something that will never happen is
 * found out at once. */
#include "torture/scenarios.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL 100
#define LARGE 300000 /* more than a socket takes at once */

/* For what can never be right, whatever has failed. */
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            _exit(3);                                                                              \
        }                                                                                          \
    } while (0)

/* A little world ------------------------------------------------------------------------------- */

enum { MOST_PROMISES = 64 };

typedef struct world {
    weir_virtual_clock clock;
    weir_group *group;
    weir_server *server;
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_promise *promises[MOST_PROMISES];
    int promise_count;
    int code; /* of the first step that failed */
} world;

static bool is_well(const world *self)
{
    return self->code == 0;
}

static void note(world *self, int code)
{
    if (self->code == 0 && code < 0)
        self->code = code;
}

/* A promise of which the end is checked at the end of the world; NULL without memory. */
static weir_promise *promised(world *self, weir_channel *channel)
{
    weir_promise *promise = channel != NULL ? weir_channel_promise(channel)
                                            : weir_promise_new(weir_group_next(self->group));
    if (promise == NULL)
        note(self, -ENOMEM);
    else
        self->promises[self->promise_count++] = promise;
    return promise;
}

/* Waits: the kernel may need a moment for what the clock does not know. */
static void wait_here(weir_future *future, int line)
{
    int code = weir_future_wait(future, WEIR_MS(1000 * 100));
    for (int tries = 0; code < 0 && tries < 5000; tries++) {
        usleep(1000);
        code = weir_future_wait(future, WEIR_MS(1000 * 100));
    }
    if (code < 0)
        fprintf(stderr, "%s:%d: waits in vain: %s\n", __FILE__, line, weir_error_text(code));
    MUST(code == 0);
}
#define wait_for(future) wait_here(future, __LINE__)

static void wait_and_note(world *self, weir_promise *promise)
{
    if (promise == NULL)
        return;
    wait_for(weir_promise_future(promise));
    note(self, weir_future_code(weir_promise_future(promise)));
}

static void begin_world(world *self, weir_io_kind io)
{
    memset(self, 0, sizeof *self);
    weir_virtual_clock_init(&self->clock, WEIR_MS(1000 * 1));
    weir_group_config config = { .loops = 2, .io = io, .is_manual = true };
    config.clock = &self->clock.clock;
    note(self, weir_group_new(&self->group, &config, NULL));
}

static int end_world(world *self)
{
    if (self->server != NULL) {
        weir_server_drain(self->server, 1000, NULL);
        wait_for(weir_server_closed(self->server));
        weir_server_release(self->server);
    }
    if (self->group != NULL) {
        weir_group_shutdown(self->group, 0, 1000);
        wait_for(weir_group_terminated(self->group));
    }
    for (int i = 0; i < self->promise_count; i++) {
        MUST(weir_future_is_done(weir_promise_future(self->promises[i])));
        weir_promise_release(self->promises[i]);
    }
    weir_group_free(self->group);
    return self->code;
}

/* The server --------------------------------------------------------------------------------- */

static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

static void close_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type echo = {
    .name = "echo",
    .on_read = echo_on_read,
    .on_read_complete = echo_on_read_complete,
    .on_error = close_on_error,
};

static int add_echo(weir_channel *channel, void *arg)
{
    (void)arg;
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "echo", &echo, NULL);
}

static void serve(world *self, const char *address)
{
    weir_server_config config = { .workers = self->group, .init_child = add_echo };
    weir_address bound;
    if (!is_well(self))
        return;
    note(self, weir_server_listen(&self->server, &config, address, NULL));
    if (is_well(self))
        note(self, weir_server_address(self->server, &bound));
    if (is_well(self))
        weir_address_text(&bound, self->address, sizeof self->address);
}

/* The client ----------------------------------------------------------------------------------- */

/* Bytes that tell their place in the stream. */
static uint8_t byte_at(size_t index)
{
    return (uint8_t)(index * 7 + index / 251);
}

typedef struct client {
    weir_channel *channel;
    size_t sent, came;
    weir_promise *written; /* the last write */
    size_t until;          /* the future below is complete when so many have come, or none will */
    weir_promise *there;   /* NULL: nobody waits */
    int closed_count;
} client;

static void tell_client(client *self)
{
    weir_promise *there = self->there;
    self->there = NULL;
    if (there != NULL)
        weir_promise_set(there, self->came >= self->until ? 0 : -ECONNRESET);
}

static void client_on_read(weir_ctx *ctx, weir_msg *msg)
{
    client *self = weir_ctx_arg(ctx);
    weir_buf *buf = (weir_buf *)msg;
    uint8_t byte;
    MUST(msg->type == &weir_buf_type);
    while (weir_buf_read_u8(buf, &byte) == 0)
        MUST(self->came < self->sent && byte == byte_at(self->came++));
    weir_msg_release(msg);
    if (self->there != NULL && self->came >= self->until)
        tell_client(self);
}

static void client_on_inactive(weir_ctx *ctx)
{
    client *self = weir_ctx_arg(ctx);
    self->closed_count++;
    tell_client(self);
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type client_type = {
    .name = "client",
    .on_read = client_on_read,
    .on_inactive = client_on_inactive,
    .on_error = close_on_error,
};

static int add_client(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "client", &client_type, arg);
}

static void connect_client(world *self, client *who)
{
    weir_client_config config = { .group = self->group, .init = add_client, .arg = who };
    *who = (client){ 0 };
    if (is_well(self))
        note(self, weir_client_connect(&who->channel, &config, self->address, NULL));
}

static weir_buf *next_bytes(client *who, size_t length)
{
    weir_buf *buf = weir_buf_new(length);
    uint8_t *to = buf != NULL ? weir_buf_write_ptr(buf, length) : NULL;
    if (to == NULL) {
        weir_buf_release(buf);
        return NULL;
    }
    for (size_t i = 0; i < length; i++)
        to[i] = byte_at(who->sent + i);
    weir_buf_advance_writer(buf, length);
    return buf;
}

static void write_last(world *self, client *who, weir_msg *msg, size_t length)
{
    weir_promise *promise = msg != NULL ? promised(self, who->channel) : NULL;
    if (promise == NULL) {
        note(self, -ENOMEM);
        weir_msg_release(msg);
        return;
    }
    who->sent += length;
    who->written = promise;
    weir_channel_write_and_flush(who->channel, msg, promise);
}

/* Nobody asks what became of it: if it is lost, so is all that follows. */
static void say(world *self, client *who, size_t length)
{
    weir_buf *buf = is_well(self) && who->channel != NULL ? next_bytes(who, length) : NULL;
    if (buf == NULL) {
        note(self, -ENOMEM);
        return;
    }
    who->sent += length;
    weir_channel_write_and_flush(who->channel, &buf->msg, NULL);
}

static void say_last(world *self, client *who, size_t length)
{
    weir_buf *buf = is_well(self) && who->channel != NULL ? next_bytes(who, length) : NULL;
    if (is_well(self))
        write_last(self, who, buf != NULL ? &buf->msg : NULL, length);
}

/* Until all has come back that was sent, or it is clear that it will not. */
static void hear(world *self, client *who)
{
    if (!is_well(self) || who->channel == NULL || who->came == who->sent)
        return;
    wait_and_note(self, who->written);
    if (!is_well(self))
        return;
    weir_promise *there = promised(self, who->channel);
    if (there == NULL)
        return;
    who->until = who->sent;
    who->there = there;
    if (who->closed_count > 0 || who->came == who->sent) /* maybe while it was being written */
        tell_client(who);
    wait_and_note(self, there);
}

static void close_client(world *self, client *who)
{
    if (who->channel == NULL)
        return;
    weir_channel_close(who->channel, NULL);
    weir_future *closed = weir_channel_closed(who->channel);
    if (closed != NULL) {
        wait_for(closed);
        weir_future_release(closed);
    } else {
        note(self, -ENOMEM); /* it closes all the same: the end of the group waits for it */
    }
    weir_channel_release(who->channel);
    who->channel = NULL;
}

/* Scenarios ------------------------------------------------------------------------------------ */

static int echo_over(weir_io_kind io, const char *address)
{
    world all;
    client who = { 0 };
    begin_world(&all, io);
    serve(&all, address);
    connect_client(&all, &who);
    say_last(&all, &who, SMALL);
    hear(&all, &who);
    say(&all, &who, LARGE);
    say_last(&all, &who, SMALL);
    hear(&all, &who);
    close_client(&all, &who);
    int code = end_world(&all);
    MUST(who.closed_count <= 1);
    return code;
}

static int run_tcp(weir_io_kind io)
{
    return echo_over(io, "127.0.0.1:0");
}

static int run_unix(weir_io_kind io)
{
    return echo_over(io, "unix:@weir-torture");
}

static int run_local(weir_io_kind io)
{
    return echo_over(io, "local:weir-torture");
}

/* Two at once, one of which leaves while its answers are on their way. */
static int run_leave(weir_io_kind io)
{
    world all;
    client one = { 0 }, other = { 0 };
    begin_world(&all, io);
    serve(&all, "127.0.0.1:0");
    connect_client(&all, &one);
    connect_client(&all, &other);
    say_last(&all, &one, LARGE);
    say_last(&all, &other, LARGE);
    close_client(&all, &one);
    hear(&all, &other);
    close_client(&all, &other);
    return end_world(&all);
}

/* From loop to loop, with bytes on their way. */
static int run_move(weir_io_kind io)
{
    enum { MOVES = 4 };
    world all;
    client who = { 0 };
    begin_world(&all, io);
    serve(&all, "127.0.0.1:0");
    connect_client(&all, &who);
    for (int i = 0; i < MOVES && is_well(&all) && who.channel != NULL; i++) {
        weir_promise *moved = promised(&all, NULL);
        say_last(&all, &who, LARGE / MOVES);
        if (moved == NULL)
            break;
        weir_channel_move(who.channel, weir_group_at(all.group, (size_t)i % 2), moved);
        wait_and_note(&all, moved);
        hear(&all, &who);
    }
    close_client(&all, &who);
    return end_world(&all);
}

/* Nobody reads for a while: the kernel's buffers and then ours fill up, and every send hears
 * EAGAIN. */
static int run_stall(weir_io_kind io)
{
    world all;
    client who = { 0 };
    begin_world(&all, io);
    serve(&all, "127.0.0.1:0");
    connect_client(&all, &who);
    if (who.channel != NULL)
        note(&all, weir_channel_set_option(who.channel, WEIR_OPTION_AUTO_READ, false, NULL));
    for (int i = 0; i < 8; i++)
        say(&all, &who, LARGE);
    say_last(&all, &who, SMALL);
    for (int i = 0; i < 20 && is_well(&all); i++)
        weir_group_step(all.group);
    if (who.channel != NULL)
        note(&all, weir_channel_set_option(who.channel, WEIR_OPTION_AUTO_READ, true, NULL));
    hear(&all, &who);
    close_client(&all, &who);
    return end_world(&all);
}

/* One byte at a time, so that every read is a short one. */
static int run_trickle(weir_io_kind io)
{
    enum { TIMES = 20 };
    world all;
    client who = { 0 };
    begin_world(&all, io);
    serve(&all, "127.0.0.1:0");
    connect_client(&all, &who);
    for (int i = 0; i < TIMES; i++) {
        say_last(&all, &who, 1);
        hear(&all, &who);
    }
    close_client(&all, &who);
    return end_world(&all);
}

/* Closed in good order: all that was written arrives before the end. */
static int run_finish(weir_io_kind io)
{
    world all;
    client who = { 0 };
    begin_world(&all, io);
    serve(&all, "127.0.0.1:0");
    connect_client(&all, &who);
    say_last(&all, &who, LARGE);
    if (who.channel != NULL && is_well(&all)) {
        weir_promise *finished = promised(&all, who.channel);
        weir_channel_finish(who.channel, finished);
        wait_and_note(&all, finished);
    }
    close_client(&all, &who);
    return end_world(&all);
}

/* A shutdown in the middle of everything. */
static int run_shutdown(weir_io_kind io)
{
    world all;
    client who = { 0 };
    begin_world(&all, io);
    serve(&all, "127.0.0.1:0");
    connect_client(&all, &who);
    say_last(&all, &who, LARGE);
    if (all.group != NULL) {
        weir_group_shutdown(all.group, 0, 1000);
        wait_for(weir_group_terminated(all.group));
    }
    if (who.channel != NULL) {
        MUST(!weir_channel_is_open(who.channel));
        weir_channel_release(who.channel);
    }
    return end_world(&all);
}

/* By name, which somebody has to look up. */
static int run_name(weir_io_kind io)
{
    world all;
    client who = { 0 };
    begin_world(&all, io);
    serve(&all, "127.0.0.1:0");
    if (is_well(&all)) {
        char *port = strrchr(all.address, ':');
        char text[WEIR_ADDRESS_TEXT_MAX];
        snprintf(text, sizeof text, "localhost%s", port);
        snprintf(all.address, sizeof all.address, "%s", text);
    }
    connect_client(&all, &who);
    say_last(&all, &who, SMALL);
    hear(&all, &who);
    close_client(&all, &who);
    return end_world(&all);
}

/* Connections that are lent, given back and lent again. */
static int run_pool(weir_io_kind io)
{
    enum { TIMES = 3 };
    world all;
    client who = { 0 };
    weir_connection_pool *pool = NULL;
    begin_world(&all, io);
    serve(&all, "127.0.0.1:0");
    weir_connection_pool_config config = { .max = 1 };
    config.client = (weir_client_config){ .group = all.group, .init = add_client, .arg = &who };
    if (is_well(&all))
        note(&all, weir_connection_pool_new(&pool, &config, all.address, NULL));
    for (int i = 0; i < TIMES && is_well(&all); i++) {
        weir_promise *asked = promised(&all, NULL);
        if (asked == NULL)
            break;
        weir_connection_pool_acquire(pool, asked);
        wait_and_note(&all, asked);
        weir_channel *lent = weir_future_value(weir_promise_future(asked));
        if (lent == NULL)
            break;
        who.channel = lent;
        say_last(&all, &who, SMALL);
        hear(&all, &who);
        who.channel = NULL;
        note(&all, weir_connection_pool_give_back(pool, lent));
    }
    if (pool != NULL) {
        weir_promise *closed = promised(&all, NULL);
        weir_connection_pool_close(pool, closed);
        wait_and_note(&all, closed);
        weir_connection_pool_release(pool);
    }
    return end_world(&all);
}

static int make_file(void)
{
    static uint8_t bytes[LARGE];
    char path[] = "/tmp/weir-torture-XXXXXX";
    int fd = mkstemp(path);
    MUST(fd >= 0 && unlink(path) == 0);
    for (size_t i = 0; i < LARGE; i++)
        bytes[i] = byte_at(i);
    MUST(write(fd, bytes, LARGE) == LARGE);
    return fd;
}

/* A file, sent by the kernel itself. */
static int run_file(weir_io_kind io)
{
    world all;
    client who = { 0 };
    weir_file_region *region = NULL;
    int fd = make_file();
    begin_world(&all, io);
    serve(&all, "127.0.0.1:0");
    connect_client(&all, &who);
    if (is_well(&all))
        region = weir_file_region_new(fd, 0, LARGE);
    if (region == NULL)
        close(fd);
    if (is_well(&all))
        write_last(&all, &who, region != NULL ? &region->msg : NULL, LARGE);
    hear(&all, &who);
    close_client(&all, &who);
    return end_world(&all);
}

/* Datagrams: each may be lost, none may be wrong. */
typedef struct listener {
    int came;
    weir_promise *there;
} listener;

static void datagram_on_read(weir_ctx *ctx, weir_msg *msg)
{
    listener *self = weir_ctx_arg(ctx);
    const weir_datagram *datagram = (const weir_datagram *)msg;
    MUST(msg->type == &weir_datagram_type && weir_buf_readable(datagram->content) == SMALL);
    weir_msg_release(msg);
    self->came++;
    weir_promise *there = self->there;
    self->there = NULL;
    if (there != NULL)
        weir_promise_set(there, 0);
}

static void ignore_error(weir_ctx *ctx, const weir_error *error)
{
    (void)ctx;
    (void)error;
}

static const weir_handler_type datagram_type = {
    .name = "datagrams",
    .on_read = datagram_on_read,
    .on_error = ignore_error,
};

static int add_listener(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "datagrams", &datagram_type, arg);
}

static int run_datagram(weir_io_kind io)
{
    enum { TIMES = 3 };
    world all;
    listener here = { 0 }, there = { 0 };
    weir_channel *from = NULL, *to = NULL;
    weir_address address;
    begin_world(&all, io);
    weir_client_config config = { .group = all.group, .init = add_listener, .arg = &here };
    if (is_well(&all))
        note(&all, weir_client_bind(&from, &config, "127.0.0.1:0", NULL));
    config.arg = &there;
    if (is_well(&all))
        note(&all, weir_client_bind(&to, &config, "127.0.0.1:0", NULL));
    if (is_well(&all))
        note(&all, weir_channel_local_address(to, &address));
    for (int i = 0; i < TIMES && is_well(&all); i++) {
        weir_promise *written = promised(&all, from), *came = promised(&all, to);
        client nobody = { 0 };
        weir_buf *buf = next_bytes(&nobody, SMALL);
        weir_datagram *datagram = buf != NULL ? weir_datagram_new(buf, &address, NULL) : NULL;
        if (datagram == NULL || written == NULL || came == NULL) {
            note(&all, -ENOMEM);
            if (datagram != NULL)
                weir_msg_release(&datagram->msg);
            else
                weir_buf_release(buf);
            for (int j = 0; j < 2; j++) {
                weir_promise *promise = j == 0 ? written : came;
                if (promise != NULL)
                    weir_promise_set(promise, -ENOMEM);
            }
            break;
        }
        there.there = came;
        weir_channel_write_and_flush(from, &datagram->msg, written);
        wait_and_note(&all, written);
        /* Lost on the way: then a second try, in the next run of this, gets through. */
        if (weir_future_wait(weir_promise_future(came), WEIR_MS(1000 * 1)) < 0) {
            usleep(2000);
            if (weir_future_wait(weir_promise_future(came), WEIR_MS(1000 * 1)) < 0) {
                there.there = NULL;
                weir_promise_set(came, -ETIMEDOUT);
                note(&all, -ETIMEDOUT);
            }
        }
    }
    if (from != NULL)
        weir_channel_close(from, NULL);
    if (to != NULL)
        weir_channel_close(to, NULL);
    weir_channel_release(from);
    weir_channel_release(to);
    return end_world(&all);
}

const scenario scenarios[] = {
    { "tcp", "connect, echo, close", run_tcp, true },
    { "unix", "the same over a Unix socket", run_unix, true },
    { "local", "the same in the process", run_local, false },
    { "leave", "two clients, one leaves early", run_leave, true },
    { "move", "a channel that moves between loops", run_move, true },
    { "stall", "a client that does not read for a while", run_stall, true },
    { "trickle", "one byte at a time", run_trickle, true },
    { "finish", "closing in good order", run_finish, true },
    { "shutdown", "a shutdown in the middle", run_shutdown, true },
    { "name", "connecting to a name", run_name, false },
    { "pool", "a pool of connections", run_pool, true },
    { "file", "sending a file", run_file, true },
    { "datagram", "datagrams", run_datagram, true },
    { 0 },
};
