/* SPDX-License-Identifier: MIT */
/* What is tried with every call failing once: each scenario stops at the first step that fails, and
 * then cleans up as any program would. */
#include "torture/scenarios.h"

#include "torture/tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SMALL 100
#define LARGE 300000 /* more than a socket takes at once */

/* Talking -------------------------------------------------------------------------------------- */

static void echo_over(world *self, const char *address)
{
    client *who = &self->one;
    serve(self, address);
    connect_client(self, who);
    say_last(self, who, SMALL);
    hear(self, who);
    say(self, who, LARGE);
    say_last(self, who, SMALL);
    hear(self, who);
    close_client(self, who);
}

static void run_tcp(world *self)
{
    echo_over(self, "127.0.0.1:0");
}

/* Several of these may run at once. */
static const char *own_unix_name(void)
{
    static char name[64];
    snprintf(name, sizeof name, "unix:@weir-torture-%d", (int)getpid());
    return name;
}

static void run_unix(world *self)
{
    echo_over(self, own_unix_name());
}

static void run_local(world *self)
{
    echo_over(self, "local:weir-torture");
}

/* The server's handler is on an executor of its own, to which everything is carried. */
static void run_lane(world *self)
{
    make_helpers(self);
    echo_over(self, "127.0.0.1:0");
}

/* Two at once, one of which leaves while its answers are on their way. */
static void run_leave(world *self)
{
    client *one = &self->one, *other = &self->other;
    serve(self, "127.0.0.1:0");
    connect_client(self, one);
    connect_client(self, other);
    say_last(self, one, LARGE);
    say_last(self, other, LARGE);
    close_client(self, one);
    hear(self, other);
    close_client(self, other);
}

/* From loop to loop, with bytes on their way. */
static void run_move(world *self)
{
    enum { MOVES = 4 };
    client *who = &self->one;
    serve(self, "127.0.0.1:0");
    connect_client(self, who);
    for (size_t i = 0; i < MOVES && is_well(self); i++) {
        weir_promise *moved = promised(self, NULL);
        say_last(self, who, LARGE / MOVES);
        if (moved == NULL)
            break;
        weir_channel_move(who->channel, weir_group_at(self->clients, i % 2), moved);
        wait_and_note(self, moved);
        hear(self, who);
    }
    close_client(self, who);
}

static void set_reading(world *self, client *who, bool is_reading)
{
    if (is_well(self))
        note(self, weir_channel_set_option(who->channel, WEIR_OPTION_AUTO_READ, is_reading, NULL));
}

/* Nobody reads for a while: the kernel's buffers and then ours fill up, and every send hears
 * EAGAIN. */
static void run_stall(world *self)
{
    client *who = &self->one;
    serve(self, "127.0.0.1:0");
    connect_client(self, who);
    set_reading(self, who, false);
    for (int i = 0; i < 8; i++)
        say(self, who, LARGE);
    say_last(self, who, SMALL);
    for (int i = 0; i < 20 && is_well(self); i++) {
        if (self->how.has_threads)
            usleep(1000);
        else
            weir_group_step(self->clients);
    }
    set_reading(self, who, true);
    hear(self, who);
    close_client(self, who);
}

/* One byte at a time, so that every read is a short one. */
static void run_trickle(world *self)
{
    enum { TIMES = 20 };
    client *who = &self->one;
    serve(self, "127.0.0.1:0");
    connect_client(self, who);
    for (int i = 0; i < TIMES; i++) {
        say_last(self, who, 1);
        hear(self, who);
    }
    close_client(self, who);
}

/* Closed in good order: all that was written arrives before the end. */
static void run_finish(world *self)
{
    client *who = &self->one;
    serve(self, "127.0.0.1:0");
    connect_client(self, who);
    say_last(self, who, LARGE);
    weir_promise *finished = is_well(self) ? promised(self, who->channel) : NULL;
    if (finished != NULL)
        weir_channel_finish(who->channel, finished);
    wait_and_note(self, finished);
    close_client(self, who);
}

/* A shutdown in the middle of everything. */
static void run_shutdown(world *self)
{
    client *who = &self->one;
    serve(self, "127.0.0.1:0");
    connect_client(self, who);
    say_last(self, who, LARGE);
    shut_down(self);
    if (who->channel != NULL) {
        MUST(!weir_channel_is_open(who->channel));
        weir_channel_release(who->channel);
    }
}

/* By name, which somebody has to look up. */
static void run_name(world *self)
{
    client *who = &self->one;
    serve(self, "127.0.0.1:0");
    if (is_well(self)) {
        char port[16];
        snprintf(port, sizeof port, "%s", strrchr(self->address, ':'));
        snprintf(self->address, sizeof self->address, "localhost%s", port);
    }
    connect_client(self, who);
    say_last(self, who, SMALL);
    hear(self, who);
    close_client(self, who);
}

/* Connections that are lent, given back and lent again. */
static void run_pool(world *self)
{
    enum { TIMES = 3 };
    client *who = &self->one;
    weir_connection_pool *pool = NULL;
    serve(self, "127.0.0.1:0");
    weir_connection_pool_config config = { .max = 1 };
    config.client = (weir_client_config){ .group = self->clients, .init = add_client, .arg = who };
    if (is_well(self))
        note(self, weir_connection_pool_new(&pool, &config, self->address, NULL));
    for (int i = 0; i < TIMES && is_well(self); i++) {
        weir_promise *asked = promised(self, NULL);
        if (asked == NULL)
            break;
        weir_connection_pool_acquire(pool, asked);
        wait_and_note(self, asked);
        who->channel = weir_future_value(weir_promise_future(asked));
        if (who->channel == NULL)
            break;
        say_last(self, who, SMALL);
        hear(self, who);
        note(self, weir_connection_pool_give_back(pool, who->channel));
    }
    if (pool != NULL) {
        weir_promise *closed = promised(self, NULL);
        weir_connection_pool_close(pool, closed);
        wait_and_note(self, closed);
        weir_connection_pool_release(pool);
    }
}

/* What the kernel passes on -------------------------------------------------------------------- */

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
static void run_file(world *self)
{
    client *who = &self->one;
    serve(self, "127.0.0.1:0");
    connect_client(self, who);
    if (is_well(self)) {
        int fd = make_file();
        weir_file_region *region = weir_file_region_new(fd, 0, LARGE);
        if (region == NULL)
            close(fd);
        write_last(self, who, region != NULL ? &region->msg : NULL, LARGE);
    }
    hear(self, who);
    close_client(self, who);
}

static weir_msg *new_descriptors(const client *who)
{
    int fd = dup(STDERR_FILENO);
    weir_buf *buf = next_bytes(who, SMALL);
    MUST(fd >= 0);
    weir_descriptors *made = buf != NULL ? weir_descriptors_new(&fd, 1, buf) : NULL;
    if (made != NULL)
        return &made->msg;
    weir_buf_release(buf);
    close(fd);
    return NULL;
}

/* Descriptors, there and back, between bytes without any. */
static void run_descriptors(world *self)
{
    static const weir_option_value options[] = { { WEIR_OPTION_MAX_DESCRIPTORS, 1 } };
    enum { TIMES = 3 };
    client *who = &self->one;
    serve_options(self, own_unix_name(), options, 1);
    connect_client_options(self, who, options, 1);
    for (int i = 0; i < TIMES && is_well(self); i++) {
        say(self, who, SMALL);
        if (is_well(self))
            write_last(self, who, new_descriptors(who), SMALL);
        hear(self, who);
    }
    close_client(self, who);
}

/* Between the client and the server is one who does not look at the bytes. ----------------------
 */

typedef struct middle {
    world *all;
    char back_address[WEIR_ADDRESS_TEXT_MAX];
} middle;

/* What it reads has to wait until there is somebody to get it. */
static const weir_option_value middle_options[] = {
    { WEIR_OPTION_AUTO_READ, false },
    { WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, false },
};
#define MIDDLE_OPTION_COUNT (sizeof middle_options / sizeof *middle_options)

/* When one side goes, so does the other. */
static void side_on_inactive(weir_ctx *ctx)
{
    weir_channel_close(weir_ctx_arg(ctx), NULL);
    weir_ctx_fire_inactive(ctx);
}

static void side_removed(weir_ctx *ctx)
{
    weir_channel_release(weir_ctx_arg(ctx));
}

static const weir_handler_type side_type = {
    .name = "side",
    .on_inactive = side_on_inactive,
    .on_error = close_on_error,
    .removed = side_removed,
};

static int add_side(weir_channel *channel, weir_channel *other)
{
    int code = weir_pipeline_add_last(weir_channel_pipeline(channel), "side", &side_type,
                                      weir_channel_retain(other));
    if (code < 0)
        weir_channel_release(other);
    return code;
}

static void close_on_failure(void *channel, weir_future *future)
{
    if (weir_future_code(future) < 0)
        weir_channel_close(channel, NULL);
    weir_channel_release(channel);
}

static int begin_relay(weir_channel *from, weir_channel *to)
{
    weir_promise *promise = weir_channel_promise(from);
    if (promise == NULL)
        return -ENOMEM;
    weir_channel_retain(from);
    int code = weir_future_on_done(weir_promise_future(promise), close_on_failure, from);
    if (code < 0) {
        weir_channel_release(from);
        weir_promise_fail(promise, code);
    } else {
        weir_relay(from, to, promise);
    }
    weir_promise_release(promise);
    return code;
}

/* On the loop of both. */
static void on_back_there(void *arg, weir_future *future)
{
    weir_channel *front = arg, *back = weir_future_value(future);
    int code = weir_future_code(future);
    if (code == 0)
        code = add_side(front, back);
    if (code == 0)
        code = add_side(back, front);
    if (code == 0)
        code = begin_relay(front, back);
    if (code == 0)
        code = begin_relay(back, front);
    if (code < 0) {
        weir_channel_close(front, NULL);
        if (back != NULL)
            weir_channel_close(back, NULL);
    }
    weir_channel_release(front);
}

static int connect_back(const middle *self, weir_channel *front)
{
    weir_promise *promise = weir_channel_promise(front);
    if (promise == NULL)
        return -ENOMEM;
    weir_client_config config = { .group = self->all->workers,
                                  .loop = weir_channel_loop(front),
                                  .options = middle_options,
                                  .option_count = MIDDLE_OPTION_COUNT };
    weir_channel_retain(front);
    int code = weir_future_on_done(weir_promise_future(promise), on_back_there, front);
    if (code < 0)
        weir_channel_release(front);
    else
        code = weir_client_start(&config, self->back_address, promise, NULL);
    if (code < 0)
        weir_promise_fail(promise, code);
    weir_promise_release(promise);
    return code;
}

static void front_on_active(weir_ctx *ctx)
{
    if (connect_back(weir_ctx_arg(ctx), weir_ctx_channel(ctx)) < 0)
        weir_ctx_close(ctx, NULL);
}

static const weir_handler_type front_type = {
    .name = "front",
    .on_active = front_on_active,
    .on_error = close_on_error,
};

static int add_front(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "front", &front_type, arg);
}

static void run_relay(world *self)
{
    static middle between; /* as long as anything that has it */
    between.all = self;
    weir_server *front = NULL;
    client *who = &self->one;
    serve(self, "127.0.0.1:0");
    memcpy(between.back_address, self->address, sizeof between.back_address);
    weir_server_config config = { .init_child = add_front,
                                  .arg = &between,
                                  .child_options = middle_options,
                                  .child_option_count = MIDDLE_OPTION_COUNT };
    serve_with(self, &front, &config, "127.0.0.1:0");
    connect_client(self, who);
    say(self, who, LARGE);
    say_last(self, who, SMALL);
    hear(self, who);
    close_client(self, who);
    end_server(self, front);
}

/* Datagrams: each may be lost, none may be wrong. ------------------------------------------------
 */

typedef struct receiver {
    weir_channel *channel;
    _Atomic(weir_promise *) there; /* NULL: nobody waits */
    bool answers;
} receiver;

static void datagram_on_read(weir_ctx *ctx, weir_msg *msg)
{
    receiver *self = weir_ctx_arg(ctx);
    weir_datagram *datagram = (weir_datagram *)msg;
    MUST(msg->type == &weir_datagram_type && weir_buf_readable(datagram->content) == SMALL);
    if (self->answers) {
        weir_buf *content = weir_buf_retain(datagram->content);
        weir_datagram *answer = weir_datagram_answer(datagram, content);
        if (answer == NULL)
            weir_buf_release(content);
        else
            weir_ctx_write_and_flush(ctx, &answer->msg, NULL);
    }
    weir_msg_release(msg);
    weir_promise *there = atomic_exchange(&self->there, NULL);
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

static int add_receiver(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "datagrams", &datagram_type, arg);
}

static void bind_receiver(world *self, receiver *who, weir_group *group)
{
    weir_client_config config = { .group = group, .init = add_receiver, .arg = who };
    if (is_well(self))
        note(self, weir_client_bind(&who->channel, &config, "127.0.0.1:0", NULL));
}

static void end_receiver(receiver *who)
{
    if (who->channel != NULL)
        weir_channel_close(who->channel, NULL);
    weir_channel_release(who->channel);
}

static void send_datagram(world *self, receiver *from, const weir_address *to,
                          weir_promise *promise)
{
    client nobody = { 0 };
    weir_buf *buf = next_bytes(&nobody, SMALL);
    weir_datagram *datagram = buf != NULL ? weir_datagram_new(buf, to, NULL) : NULL;
    if (datagram != NULL) {
        weir_channel_write_and_flush(from->channel, &datagram->msg, promise);
        return;
    }
    note(self, -ENOMEM);
    weir_buf_release(buf);
    if (promise != NULL)
        weir_promise_set(promise, -ENOMEM);
}

/* Asks until there is an answer. */
static void ask(world *self, receiver *from, const weir_address *to)
{
    enum { TRIES = 200 };
    weir_promise *written = promised(self, from->channel);
    weir_promise *answered = promised(self, from->channel);
    if (answered != NULL)
        from->there = answered;
    if (written != NULL)
        send_datagram(self, from, to, written);
    wait_and_note(self, written);
    for (int i = 0; i < TRIES && is_well(self); i++) {
        if (wait_a_while(self, weir_promise_future(answered), 50))
            return;
        send_datagram(self, from, to, NULL);
    }
    note(self, -ETIMEDOUT);
    weir_promise *left = atomic_exchange(&from->there, NULL);
    if (left != NULL)
        weir_promise_set(left, -ETIMEDOUT);
}

static void run_datagram(world *self)
{
    enum { TIMES = 3 };
    static receiver here, there; /* as long as their channels */
    weir_address address;
    here = (receiver){ 0 };
    there = (receiver){ .answers = true };
    bind_receiver(self, &here, self->clients);
    bind_receiver(self, &there, self->workers);
    if (is_well(self))
        note(self, weir_channel_local_address(there.channel, &address));
    for (int i = 0; i < TIMES && is_well(self); i++)
        ask(self, &here, &address);
    end_receiver(&here);
    end_receiver(&there);
}

const scenario scenarios[] = {
    { "tcp", "connect, echo, close", run_tcp, ON_ALL },
    { "unix", "the same over a Unix socket", run_unix, ON_ALL },
    { "local", "the same in the process", run_local, ON_EPOLL },
    { "lane", "a handler on an executor of its own", run_lane, ON_ALL },
    { "leave", "two clients, one leaves early", run_leave, ON_ALL },
    { "move", "a channel that moves between loops", run_move, ON_EPOLL | ON_URING },
    { "stall", "a client that does not read for a while", run_stall, ON_ALL },
    { "trickle", "one byte at a time", run_trickle, ON_ALL },
    { "finish", "closing in good order", run_finish, ON_ALL },
    { "shutdown", "a shutdown in the middle", run_shutdown, ON_ALL },
    { "name", "connecting to a name", run_name, ON_EPOLL },
    { "pool", "a pool of connections", run_pool, ON_ALL },
    { "file", "sending a file", run_file, ON_ALL },
    { "descriptors", "passing descriptors", run_descriptors, ON_ALL },
    { "relay", "a proxy in the kernel", run_relay, ON_EPOLL | ON_URING },
    { "datagram", "datagrams, and answers to them", run_datagram, ON_ALL },
#ifdef WEIR_TORTURE_TLS
    { "tls", "an echo over TLS, then one of a resumed session", run_tls, ON_ALL },
    { "tls_offload", "handshakes on executors of their own", run_tls_offload, ON_ALL },
#endif
    { 0 },
};

int play(const scenario *what, const setting *how)
{
    world all;
    begin_world(&all, how);
    what->run(&all);
    return end_world(&all);
}
