/* SPDX-License-Identifier: MIT */
/* Where a scenario takes place. */
#include "torture/world.h"

#include <errno.h>
#include <string.h>

#define PATIENCE_MS 40000 /* less than the case has */

bool is_well(const world *self)
{
    return self->code == 0;
}

void note(world *self, int code)
{
    int none = 0;
    if (code < 0)
        atomic_compare_exchange_strong(&self->code, &none, code);
}

/* Promises ------------------------------------------------------------------------------------- */

weir_promise *promised(world *self, weir_channel *channel)
{
    weir_promise *promise = channel != NULL ? weir_channel_promise(channel)
                                            : weir_promise_new(weir_group_next(self->clients));
    MUST(self->promise_count < MOST_PROMISES);
    if (promise == NULL)
        note(self, -ENOMEM);
    else
        self->promises[self->promise_count++] = promise;
    return promise;
}

/* The virtual clock does not know that the kernel may need a moment: tries again for that. */
bool wait_a_while(const world *self, weir_future *future, int64_t ms)
{
    int code = weir_future_wait(future, WEIR_MS(ms));
    for (int64_t tries = 0; code < 0 && !self->how.has_threads && tries < ms / 10; tries++) {
        usleep(1000);
        code = weir_future_wait(future, WEIR_MS(ms));
    }
    return code == 0;
}

void wait_here(const world *self, weir_future *future, const char *file, int line)
{
    if (wait_a_while(self, future, PATIENCE_MS))
        return;
    fprintf(stderr, "%s:%d: waits in vain\n", file, line);
    _exit(3);
}

void wait_and_note_here(world *self, weir_promise *promise, const char *file, int line)
{
    if (promise == NULL)
        return;
    wait_here(self, weir_promise_future(promise), file, line);
    note(self, weir_future_code(weir_promise_future(promise)));
}

/* Groups --------------------------------------------------------------------------------------- */

static void begin_group(world *self, weir_group **group, int loops)
{
    weir_group_config config = { .loops = loops, .io = self->how.io };
    if (self->how.io == WEIR_IO_BLOCKING)
        config.loops = 0;
    if (!self->how.has_threads) {
        config.is_manual = true;
        config.clock = &self->clock.clock;
    }
    if (is_well(self))
        note(self, weir_group_new(group, &config, NULL));
}

void begin_world(world *self, const setting *how)
{
    memset(self, 0, sizeof *self);
    self->how = *how;
    weir_virtual_clock_init(&self->clock, WEIR_SECONDS(1));
    begin_group(self, &self->clients, 2);
    if (how->has_threads) {
        begin_group(self, &self->boss, 1);
        begin_group(self, &self->workers, 2);
    } else {
        self->boss = self->workers = self->clients;
    }
}

void make_helpers(world *self)
{
    weir_group_config config = { .count = 1 };
    if (!self->how.has_threads) {
        config.is_manual = true;
        config.clock = &self->clock.clock;
    }
    if (is_well(self))
        note(self, weir_group_new_executors(&self->helpers, &config, NULL));
}

typedef void (*group_fn)(world *self, weir_group *group);

static void visit(world *self, weir_group *group, group_fn fn)
{
    if (group != NULL)
        fn(self, group);
}

/* The loops first: their channels' handlers may run on the helpers. */
static void each_group(world *self, group_fn fn)
{
    visit(self, self->clients, fn);
    if (self->how.has_threads) {
        visit(self, self->boss, fn);
        visit(self, self->workers, fn);
    }
    visit(self, self->helpers, fn);
}

static void shut_group_down(world *self, weir_group *group)
{
    (void)self;
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
}

static void wait_for_end(world *self, weir_group *group)
{
    wait_for(self, weir_group_terminated(group));
}

static void free_group(world *self, weir_group *group)
{
    (void)self;
    weir_group_free(group);
}

void shut_down(world *self)
{
    each_group(self, shut_group_down);
    each_group(self, wait_for_end);
}

int end_world(world *self)
{
    end_server(self, self->server);
    shut_down(self);
    for (int i = 0; i < self->promise_count; i++) {
        MUST(weir_future_is_done(weir_promise_future(self->promises[i])));
        weir_promise_release(self->promises[i]);
    }
    each_group(self, free_group);
    if (self->how.has_threads)
        weir_executor_global_wait_idle(WEIR_MS(PATIENCE_MS));
    return self->code;
}

/* The server ----------------------------------------------------------------------------------- */

static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write(ctx, msg, NULL);
}

static void echo_on_read_complete(weir_ctx *ctx)
{
    weir_ctx_flush(ctx);
}

void close_on_error(weir_ctx *ctx, const weir_error *error)
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

int add_echo(weir_channel *channel, void *arg)
{
    const world *self = arg;
    weir_handler_config config = { .name = "echo", .type = &echo, .group = self->helpers };
    return weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
}

void serve_with(world *self, weir_server **server, weir_server_config *config, const char *address)
{
    weir_address bound;
    config->boss = self->boss;
    config->workers = self->workers;
    if (!is_well(self))
        return;
    note(self, weir_server_listen(server, config, address, NULL));
    if (is_well(self))
        note(self, weir_server_address(*server, &bound));
    if (is_well(self))
        weir_address_text(&bound, self->address, sizeof self->address);
}

void serve_options(world *self, const char *address, const weir_option_value *options,
                   size_t option_count)
{
    weir_server_config config = { .init_child = add_echo,
                                  .arg = self,
                                  .child_options = options,
                                  .child_option_count = option_count };
    serve_with(self, &self->server, &config, address);
}

void serve(world *self, const char *address)
{
    serve_options(self, address, NULL, 0);
}

void end_server(world *self, weir_server *server)
{
    if (server == NULL)
        return;
    weir_server_drain(server, WEIR_SECONDS(1), NULL);
    wait_for(self, weir_server_closed(server));
    weir_server_release(server);
}

/* The client ----------------------------------------------------------------------------------- */

/* Whoever takes the promise out tells it. */
static void tell_client(client *self)
{
    weir_promise *there = atomic_exchange(&self->there, NULL);
    if (there != NULL)
        weir_promise_set(there, self->came >= self->until ? 0 : -ECONNRESET);
}

/* The descriptors that came with the bytes go with them. */
static weir_buf *bytes_of(weir_msg *msg)
{
    if (msg->type == &weir_descriptors_type)
        return ((weir_descriptors *)msg)->bytes;
    MUST(msg->type == &weir_buf_type);
    return (weir_buf *)msg;
}

static void client_on_read(weir_ctx *ctx, weir_msg *msg)
{
    client *self = weir_ctx_arg(ctx);
    weir_buf *buf = bytes_of(msg);
    size_t came = self->came, length;
    uint8_t bytes[4096];
    MUST(came + weir_buf_readable(buf) <= self->sent);
    while ((length = weir_buf_readable(buf)) > 0) {
        length = length < sizeof bytes ? length : sizeof bytes;
        MUST(weir_buf_read_bytes(buf, bytes, length) == 0);
        for (size_t i = 0; i < length; i++)
            MUST(bytes[i] == byte_at(came++));
    }
    weir_msg_release(msg);
    self->came = came;
    if (self->there != NULL && came >= self->until)
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

int add_client(weir_channel *channel, void *who)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "client", &client_type, who);
}

void connect_client_options(world *self, client *who, const weir_option_value *options,
                            size_t option_count)
{
    weir_client_config config = { .group = self->clients,
                                  .init = add_client,
                                  .arg = who,
                                  .options = options,
                                  .option_count = option_count };
    if (is_well(self))
        note(self, weir_client_connect(&who->channel, &config, self->address, NULL));
}

void connect_client(world *self, client *who)
{
    connect_client_options(self, who, NULL, 0);
}

weir_buf *next_bytes(const client *who, size_t length)
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

void write_last(world *self, client *who, weir_msg *msg, size_t length)
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

void say(world *self, client *who, size_t length)
{
    weir_buf *buf = is_well(self) ? next_bytes(who, length) : NULL;
    if (buf == NULL) {
        note(self, -ENOMEM);
        return;
    }
    who->sent += length;
    weir_channel_write_and_flush(who->channel, &buf->msg, NULL);
}

void say_last(world *self, client *who, size_t length)
{
    if (!is_well(self))
        return;
    weir_buf *buf = next_bytes(who, length);
    write_last(self, who, buf != NULL ? &buf->msg : NULL, length);
}

void hear(world *self, client *who)
{
    if (!is_well(self) || who->came == who->sent)
        return;
    wait_and_note(self, who->written);
    weir_promise *there = is_well(self) ? promised(self, who->channel) : NULL;
    if (there == NULL)
        return;
    who->until = who->sent;
    who->there = there;
    if (who->closed_count > 0 || who->came >= who->until)
        tell_client(who);
    wait_and_note(self, there);
}

void close_client(world *self, client *who)
{
    if (who->channel == NULL)
        return;
    weir_channel_close(who->channel, NULL);
    weir_future *closed = weir_channel_closed(who->channel);
    if (closed != NULL)
        wait_for(self, closed);
    else
        note(self, -ENOMEM); /* it closes all the same: the end of the group waits for it */
    weir_channel_release(who->channel);
    who->channel = NULL;
    MUST(who->closed_count <= 1);
}
