/* SPDX-License-Identifier: MIT */
/* In-process channels: destructors of cancelled messages run inside a flush and may flush. */
#include "transport/locals.h"

/* A client whose cancelled messages call `act` when they are freed. */
typedef struct sender sender;
struct sender {
    pair loops;
    server server;
    weir_channel *client;
    counter seen; /* by the child */
    void (*act)(sender *self);
    uint32_t next; /* to be written */
    uint32_t run;  /* messages before each cancelled one, and after the last */
    unsigned cancelled;
    bool ends_cancelled; /* none after the last */
    int freed;
};

static void write_run(sender *self, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        weir_channel_write(self->client, new_number(self->next++, 1), NULL);
}

static void flush_again(sender *self)
{
    weir_channel_flush(self->client);
}

/* Once: its messages follow all that was written before. */
static void write_and_flush(sender *self)
{
    self->act = flush_again;
    write_run(self, self->run);
    weir_channel_flush(self->client);
}

static void close_client(sender *self)
{
    weir_channel_close(self->client, NULL);
}

static void on_free(void *arg, void *memory)
{
    sender *self = arg;
    (void)memory;
    self->freed++;
    self->act(self);
}

static void write_cancelled(sender *self)
{
    static char memory[] = "cancelled";
    weir_buf *buf = weir_buf_wrap(memory, sizeof memory - 1, on_free, self);
    weir_promise *promise = weir_channel_promise(self->client);
    assert_non_null(buf);
    weir_channel_write(self->client, &buf->msg, promise);
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
}

static int send_runs(void *arg)
{
    sender *self = arg;
    for (unsigned i = 0; i < self->cancelled; i++) {
        write_run(self, self->run);
        write_cancelled(self);
    }
    write_run(self, self->ends_cancelled ? 0 : self->run);
    weir_channel_flush(self->client);
    return 0;
}

static void open_sender(sender *self)
{
    self->server.init = add_counter;
    self->server.arg = &self->seen;
    open_pair(&self->loops);
    self->server.children = self->loops.second;
    server_open(&self->server, self->loops.first, "local:freeing");
    self->client = new_client(self->loops.first, NULL, NULL);
    connect_to(self->client, "local:freeing", NULL, NULL);
    run_pair(&self->loops);
    assert_true(weir_channel_is_active(self->client));
}

static void end_sender(sender *self)
{
    server_end(&self->server);
    client_end(self->client);
    run_pair(&self->loops);
    end_group(self->loops.group);
    assert_int_equal(self->seen.wrong, 0);
    assert_int_equal(self->freed, self->cancelled);
}

/* Runs that are shorter than what the pipe holds, that fill it, and that are longer. */
static const uint32_t runs[] = { 1, 3, 60, WEIR__PIPE_MESSAGES, 3 * WEIR__PIPE_MESSAGES };

static void send_with(sender self)
{
    open_sender(&self);
    on_loop(&self.loops, self.loops.first, send_runs, &self);
    assert_true(self.next >= self.run * self.cancelled);
    assert_int_equal(self.seen.next, self.next);
    assert_int_equal(pending_of(self.client), 0);
    end_sender(&self);
}

static void send_all_with(void (*act)(sender *self))
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        for (unsigned cancelled = 1; cancelled <= 3; cancelled++) {
            send_with((sender){ .act = act, .run = runs[i], .cancelled = cancelled });
            send_with((sender){
                .act = act, .run = runs[i], .cancelled = cancelled, .ends_cancelled = true });
        }
    }
}

static void flush_in_destructor_keeps_order(void **state)
{
    (void)state;
    send_all_with(flush_again);
}

static void write_and_flush_in_destructor_keeps_order(void **state)
{
    (void)state;
    send_all_with(write_and_flush);
}

static void close_in_destructor_ends_the_channel(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        sender self = { .act = close_client, .run = runs[i], .cancelled = 2 };
        open_sender(&self);
        on_loop(&self.loops, self.loops.first, send_runs, &self);
        assert_int_equal(weir_channel_get_state(self.client), WEIR_CHANNEL_UNREGISTERED);
        assert_true(self.seen.next <= self.next);
        assert_int_equal(self.seen.ends, 1);
        end_sender(&self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(flush_in_destructor_keeps_order),
        weir_case(write_and_flush_in_destructor_keeps_order),
        weir_case(close_in_destructor_ends_the_channel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
