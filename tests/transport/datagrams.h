/* SPDX-License-Identifier: MIT */
/* What the tests of datagrams, files and descriptors share: every backend, ends of sockets, and
 * handlers that keep what they get. */
#ifndef WEIR_TESTS_TRANSPORT_DATAGRAMS_H
#define WEIR_TESTS_TRANSPORT_DATAGRAMS_H

#include "loop/loops.h"

#include <weir/datagram.h>
#include <weir/socket.h>

#include <stdio.h>
#include <sys/socket.h>

/* Backends ------------------------------------------------------------------------------------- */

typedef struct backend {
    const char *name;
    weir_io_kind kind;
    bool has_loops; /* that are there before a channel is */
} backend;

static backend backends[] = {
    { "epoll", WEIR_IO_EPOLL, true },
    { "blocking", WEIR_IO_BLOCKING, false },
    { "uring", WEIR_IO_URING, true },
};

static inline int begin_datagrams(void **state)
{
    if (*state == &backends[2] && !harness_has_uring())
        *state = &backends[0];
    return harness_remember_what_lives(state);
}

#define ON_BACKEND(test, name, n)                                                                  \
    {                                                                                              \
#test " (" name ")", test, begin_datagrams, harness_assert_nothing_left, &backends[n]      \
    }

/* A test on every backend, for the table of a program; and one about what single calls answer,
 * which io_uring does without. */
#define ON_CALLING_BACKENDS(test) ON_BACKEND(test, "epoll", 0), ON_BACKEND(test, "blocking", 1)
#define ON_EVERY_BACKEND(test) ON_CALLING_BACKENDS(test), ON_BACKEND(test, "uring", 2)

static inline weir_group *group_of(void **state, int loops)
{
    const backend *io = *state;
    return new_loops(&(weir_group_config){ .loops = io->has_loops ? loops : 0, .io = io->kind });
}

static inline int put_on(weir_group *group, weir_channel *channel)
{
    weir_promise *promise = weir_channel_promise(channel);
    assert_non_null(promise);
    weir_group_register(group, channel, promise);
    int code = weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

/* To another loop, where there are any, else off its own and to the next that is free. */
static inline int move_within(weir_group *group, weir_channel *channel)
{
    weir_executor *next = weir_group_next(group);
    weir_promise *promise = weir_channel_promise(channel);
    assert_non_null(promise);
    if (next != NULL)
        weir_channel_move(channel, next, promise);
    else
        weir_channel_deregister(channel, promise);
    int code = weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    return code < 0 || next != NULL ? code : put_on(group, channel);
}

/* Calls ---------------------------------------------------------------------------------------- */

static inline weir_address address_of(const char *text)
{
    weir_address address;
    assert_int_equal(weir_address_parse(&address, text, NULL), 0);
    return address;
}

static inline void assert_address(const weir_address *address, const weir_address *expected)
{
    char text[WEIR_ADDRESS_TEXT_MAX], wanted[WEIR_ADDRESS_TEXT_MAX];
    weir_address_text(address, text, sizeof text);
    weir_address_text(expected, wanted, sizeof wanted);
    assert_string_equal(text, wanted);
}

static inline weir_address local_of(const weir_channel *channel)
{
    weir_address address;
    assert_int_equal(weir_channel_local_address(channel, &address), 0);
    return address;
}

/* Waits for a promise of the caller's, and gives it back. */
static inline int end_of(weir_promise *promise)
{
    int code = weir_future_await(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

static inline int bind_to(weir_channel *channel, const char *address)
{
    weir_address local = address_of(address);
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_bind(channel, &local, promise);
    return end_of(promise);
}

static inline int connect_to(weir_channel *channel, const weir_address *remote)
{
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_connect(channel, remote, NULL, promise);
    return end_of(promise);
}

static inline void close_now(weir_channel *channel)
{
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_close(channel, promise);
    assert_int_equal(end_of(promise), 0);
}

static inline void set_option(weir_channel *channel, weir_option option, int64_t value)
{
    assert_int_equal(weir_channel_set_option(channel, option, value, NULL), 0);
}

static inline int do_nothing(void *arg)
{
    (void)arg;
    return 0;
}

/* What this thread has asked of a channel has happened after this: calls keep their order, and this
 * one changes nothing. */
static inline void settle_channel(weir_channel *channel)
{
    weir_executor *loop = weir_loop_executor(weir_channel_loop(channel));
    weir_promise *promise = weir_channel_promise(channel);
    weir_channel_register(channel, loop, promise);
    assert_int_equal(end_of(promise), WEIR_EREGISTERED);
    call_on(loop, do_nothing, NULL);
}

static inline weir_buf *text_buf(const char *text)
{
    weir_buf *buf = weir_buf_from(text, strlen(text));
    assert_non_null(buf);
    return buf;
}

static inline weir_buf *filled_buf(size_t length, int byte)
{
    weir_buf *buf = weir_buf_new(length);
    assert_non_null(buf);
    assert_int_equal(weir_buf_write_fill(buf, (uint8_t)byte, length), 0);
    return buf;
}

static inline bool buf_is(const weir_buf *buf, const char *text)
{
    size_t length = strlen(text);
    return weir_buf_readable(buf) == length &&
           (length == 0 ||
            memcmp(weir_buf_peek(buf, weir_buf_reader(buf), length), text, length) == 0);
}

/* Ends ----------------------------------------------------------------------------------------- */

#define MOST_KEPT 4096

/* One end of a socket, and what its last handler got. */
typedef struct end {
    weir_channel *channel;
    weir_msg *kept[MOST_KEPT];
    atomic_size_t count; /* of those; written last */
    atomic_int completes, largest_batch, batch;
    atomic_int errors, last_error;
    atomic_int writabilities, inactives;
    /* What else it does; NULL: nothing. */
    void (*then)(weir_ctx *ctx, struct end *self, weir_msg *msg);
    void (*on_error)(weir_ctx *ctx, struct end *self, int code);
} end;

static inline void end_on_read(weir_ctx *ctx, weir_msg *msg)
{
    end *self = weir_ctx_arg(ctx);
    size_t count = atomic_load(&self->count);
    assert_true(count < MOST_KEPT);
    self->kept[count] = msg;
    atomic_fetch_add(&self->batch, 1);
    if (self->then != NULL)
        self->then(ctx, self, msg);
    atomic_store(&self->count, count + 1);
}

static inline void end_on_read_complete(weir_ctx *ctx)
{
    end *self = weir_ctx_arg(ctx);
    int batch = atomic_exchange(&self->batch, 0);
    if (batch > atomic_load(&self->largest_batch))
        atomic_store(&self->largest_batch, batch);
    atomic_fetch_add(&self->completes, 1);
    weir_ctx_fire_read_complete(ctx);
}

static inline void end_on_error(weir_ctx *ctx, const weir_error *error)
{
    end *self = weir_ctx_arg(ctx);
    if (self->on_error != NULL)
        self->on_error(ctx, self, error->code);
    atomic_store(&self->last_error, error->code);
    atomic_fetch_add(&self->errors, 1);
}

static inline void end_on_writability(weir_ctx *ctx)
{
    end *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->writabilities, 1);
}

static inline void end_on_inactive(weir_ctx *ctx)
{
    end *self = weir_ctx_arg(ctx);
    atomic_fetch_add(&self->inactives, 1);
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type end_type = {
    .name = "end",
    .on_read = end_on_read,
    .on_read_complete = end_on_read_complete,
    .on_error = end_on_error,
    .on_writability = end_on_writability,
    .on_inactive = end_on_inactive,
};

/* A zeroed end; ends are large. */
static inline end *end_new(void)
{
    end *self = calloc(1, sizeof *self);
    assert_non_null(self);
    return self;
}

static inline void end_add_handler(end *self)
{
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(self->channel), "end", &end_type, self), 0);
}

/* One that was made elsewhere, on a loop from now on. */
static inline void end_take(end *self, weir_group *group, weir_channel *channel)
{
    self->channel = channel;
    end_add_handler(self);
    assert_int_equal(put_on(group, channel), 0);
}

static inline end *end_from(weir_group *group, weir_socket_kind kind, int fd)
{
    end *self = end_new();
    weir_channel *channel;
    assert_int_equal(weir_channel_from_descriptor(&channel, kind, fd, NULL), 0);
    end_take(self, group, channel);
    return self;
}

/* A datagram channel for such addresses, not bound yet. */
static inline end *end_open(weir_group *group, const char *family)
{
    weir_address address = address_of(family);
    end *self = end_new();
    weir_channel *channel;
    assert_int_equal(weir_channel_new(&channel, WEIR_SOCKET_DATAGRAM, &address, NULL), 0);
    end_take(self, group, channel);
    return self;
}

static inline end *end_bound(weir_group *group, const char *address)
{
    end *self = end_open(group, address);
    assert_int_equal(bind_to(self->channel, address), 0);
    return self;
}

static inline void end_forget(end *self)
{
    for (size_t i = 0; i < atomic_load(&self->count); i++)
        weir_msg_release(self->kept[i]);
    atomic_store(&self->count, 0);
}

static inline void end_close(end *self)
{
    close_now(self->channel);
    WAIT_FOR(weir_channel_get_state(self->channel) == WEIR_CHANNEL_UNREGISTERED);
    end_forget(self);
    weir_channel_release(self->channel);
    free(self);
}

static inline weir_datagram *datagram_at(end *self, size_t n)
{
    assert_true(n < atomic_load(&self->count));
    assert_ptr_equal(self->kept[n]->type, &weir_datagram_type);
    return (weir_datagram *)self->kept[n];
}

static inline bool got(end *self, size_t n, const char *text)
{
    return buf_is(datagram_at(self, n)->content, text);
}

/* A path of this process's own, for a Unix socket. */
static inline void path_for(char *address, size_t size, const char *name)
{
    snprintf(address, size, "unix:/tmp/weir-test-datagram-%s-%d", name, (int)getpid());
}

/* Sending -------------------------------------------------------------------------------------- */

/* Writes a datagram, flushed or not, and returns its promise. */
static inline weir_promise *write_buf(weir_channel *channel, weir_buf *content,
                                      const weir_address *to)
{
    weir_promise *promise = weir_channel_promise(channel);
    weir_datagram *datagram = weir_datagram_new(content, to, NULL);
    assert_non_null(datagram);
    weir_channel_write(channel, &datagram->msg, promise);
    return promise;
}

static inline int send_buf(weir_channel *channel, weir_buf *content, const weir_address *to)
{
    weir_promise *promise = write_buf(channel, content, to);
    weir_channel_flush(channel);
    return end_of(promise);
}

static inline int send_text(weir_channel *channel, const char *text, const weir_address *to)
{
    return send_buf(channel, text_buf(text), to);
}

/* Faults --------------------------------------------------------------------------------------- */

/* Which of the calls of a name fail, on whichever thread: set while they run, so that nobody may
 * find it half set, or gone. */
static struct {
    _Atomic(const char *) call;
    atomic_int code, first, last, seen;
} fault;

static inline int fail_some(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    if (strcmp(call, atomic_load(&fault.call)) != 0)
        return 0;
    int nth = atomic_fetch_add(&fault.seen, 1) + 1;
    return nth >= atomic_load(&fault.first) && nth <= atomic_load(&fault.last)
               ? atomic_load(&fault.code)
               : 0;
}

static inline void fail_from_to(const char *call, int code, int first, int last)
{
    atomic_store(&fault.call, call);
    atomic_store(&fault.code, code);
    atomic_store(&fault.first, first);
    atomic_store(&fault.last, last);
    atomic_store(&fault.seen, 0);
    weir_fault_set(fail_some, NULL);
}

#endif
