/* SPDX-License-Identifier: MIT */
/* Bridges when memory and system calls fail: each call once, during an exchange through a proxy. */
#include "handler/bridges.h"
#include "transport/nth_fault.h"

#include <weir/fault.h>

#define BYTES_THERE ((size_t)150000)
#define BYTES_BACK ((size_t)120000)
#define MAX_CALLS 3000

/* Peers that survive -----------------------------------------------------------------------------
 */

/* One end of the exchange: the pattern out and in, until the stream ends in either way. */
typedef struct end_point {
    int fd;
    size_t to_send, sent, got, expected;
    bool has_shut, has_eof, has_reset, cannot_send;
} end_point;

static bool has_ended(const end_point *self)
{
    bool has_sent = self->has_shut || self->cannot_send;
    return self->fd < 0 || self->has_reset || (self->has_eof && has_sent);
}

static void try_send(end_point *self)
{
    uint8_t bytes[16384];
    size_t part = self->to_send - self->sent;
    part = part < sizeof bytes ? part : sizeof bytes;
    fill_pattern(bytes, self->sent, part);
    ssize_t code = part > 0 ? send(self->fd, bytes, part, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    self->sent += code > 0 ? (size_t)code : 0;
    self->cannot_send = code < 0 && errno != EAGAIN;
    self->has_reset = code < 0 && errno == ECONNRESET; /* recv does not report it again */
    if (self->sent == self->to_send) {
        shutdown(self->fd, SHUT_WR);
        self->has_shut = true;
    }
}

static void try_receive(end_point *self)
{
    uint8_t bytes[65536];
    ssize_t code = recv(self->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (code < 0 && errno == EAGAIN)
        return;
    self->has_eof = code == 0;
    self->has_reset = code < 0;
    if (code <= 0)
        return;
    if (!is_pattern(bytes, self->got, (size_t)code))
        fail_msg("wrong bytes after %zu when %s fails, number %u", self->got, nth.name, nth.at);
    self->got += (size_t)code;
}

static void step_end(end_point *self, short events)
{
    if (has_ended(self))
        return;
    if (events & POLLOUT && !self->has_shut && !self->cannot_send)
        try_send(self);
    if (events & (POLLIN | POLLHUP | POLLERR) && !self->has_eof && !self->has_reset)
        try_receive(self);
}

static struct pollfd entry_of(const end_point *self)
{
    bool is_sending = !self->has_shut && !self->cannot_send;
    short events = (short)((self->has_eof ? 0 : POLLIN) | (is_sending ? POLLOUT : 0));
    return (struct pollfd){ .fd = has_ended(self) ? -1 : self->fd, .events = events };
}

/* The upstream connection, if it is made. */
static void try_accept(proxy *self, end_point *back)
{
    if (back->fd >= 0)
        return;
    self->server = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    back->fd = self->server;
}

/* Until both peers have seen the end of their streams; a client alone may have no server. */
static void exchange(proxy *self, end_point *front, end_point *back)
{
    while (!has_ended(front) || !has_ended(back)) {
        struct pollfd entries[] = { entry_of(front), entry_of(back), { .fd = -1 } };
        if (back->fd < 0)
            entries[2] = (struct pollfd){ .fd = self->listener, .events = POLLIN };
        if (poll(entries, COUNT_OF(entries), PATIENCE_MS) <= 0)
            fail_msg("it hangs when %s fails, number %u: %zu and %zu bytes arrived", nth.name,
                     nth.at, back->got, front->got);
        step_end(front, entries[0].revents);
        step_end(back, entries[1].revents);
        if (entries[2].revents != 0)
            try_accept(self, back);
    }
}

/* What must hold ---------------------------------------------------------------------------------
 */

/* EOF says that everything is there. Where no bridge came about nothing was passed on. */
static void expect_complete_or_reset(const end_point *self, const proxy *of)
{
    bool is_bridged = of->end.to_back + of->end.to_front > 0;
    if (self->fd < 0)
        return;
    assert_true(self->got <= self->expected);
    if (self->has_eof && self->got != self->expected && (is_bridged || self->got > 0))
        fail_msg("EOF after %zu of %zu bytes when %s fails, number %u: %s", self->got,
                 self->expected, nth.name, nth.at, of->end.error.message);
}

static void expect_consistent(proxy *self, const end_point *front, const end_point *back)
{
    bool is_complete = front->has_eof && back->has_eof && front->got == BYTES_BACK &&
                       back->got == BYTES_THERE;
    bool has_begun = atomic_load(&self->fronts) > 0 && self->code == 0;
    if (has_begun)
        expect_ended(&self->end);
    expect_complete_or_reset(front, self);
    expect_complete_or_reset(back, self);
    if (!has_begun)
        return;
    if (self->end.error.code == 0 && !is_complete)
        fail_msg("on_end says complete when %s fails, number %u", nth.name, nth.at);
    if (!atomic_load(&nth.has_failed))
        expect_complete(&self->end, BYTES_THERE, BYTES_BACK);
}

/* Each call fails once ---------------------------------------------------------------------------
 */

static void begin_faults(void)
{
    nth.name[0] = '\0';
    atomic_store(&nth.seen, 0);
    atomic_store(&nth.has_failed, false);
    atomic_store(&nth.is_paused, false);
}

/* The last look at the listener: a connection may have been made and ended meanwhile. */
static void exchange_all(proxy *self, end_point *front, end_point *back)
{
    exchange(self, front, back);
    if (atomic_load(&self->fronts) > 0 && self->code == 0)
        expect_ended(&self->end);
    try_accept(self, back);
    exchange(self, front, back);
}

static void run_exchange(int64_t relay_after_bytes)
{
    proxy self = { .is_alone = true, .config.relay_after_bytes = relay_after_bytes };
    open_proxy(&self);
    fcntl(self.listener, F_SETFL, O_NONBLOCK);
    begin_faults();
    self.client = peer_connect(&self.address);
    end_point front = { .fd = self.client, .to_send = BYTES_THERE, .expected = BYTES_BACK };
    end_point back = { .fd = -1, .to_send = BYTES_BACK, .expected = BYTES_THERE };
    exchange_all(&self, &front, &back);
    expect_consistent(&self, &front, &back);
    atomic_store(&nth.is_paused, true);
    end_proxy(&self);
}

/* `fails` says which calls. Until none is left to fail: how many have. */
static unsigned fail_each(weir_fault_fn fails, int64_t relay_after_bytes)
{
    unsigned failures = 0;
    is_test_thread = true;
    atomic_store(&nth.is_paused, true);
    harness_log_end();
    harness_log_begin(WEIR_LOG_OFF); /* a fault is no bug */
    weir_fault_set(fails, NULL);
    for (nth.at = 1; nth.at < MAX_CALLS; nth.at++) {
        run_exchange(relay_after_bytes);
        if (!atomic_load(&nth.has_failed))
            break;
        failures++;
    }
    weir_fault_set(NULL, NULL);
    assert_true(nth.at < MAX_CALLS);
    return failures;
}

static bool is_memory(const char *call)
{
    return strcmp(call, "alloc") == 0 || strcmp(call, "pool") == 0;
}

static int fail_memory(void *arg, const char *call, size_t *length)
{
    return is_memory(call) ? fail_nth(arg, call, length) : 0;
}

static int fail_call(void *arg, const char *call, size_t *length)
{
    return is_memory(call) ? 0 : fail_nth(arg, call, length);
}

static void no_byte_is_lost_when_memory_fails(void **state)
{
    (void)state;
    assert_true(fail_each(fail_memory, WEIR_OFF) >= 10);
}

static void no_byte_is_lost_when_memory_fails_and_the_kernel_relays(void **state)
{
    (void)state;
    assert_true(fail_each(fail_memory, 1) >= 10);
}

static void no_byte_is_lost_when_a_call_fails(void **state)
{
    (void)state;
    assert_true(fail_each(fail_call, WEIR_OFF) >= 5);
}

static void no_byte_is_lost_when_a_call_fails_and_the_kernel_relays(void **state)
{
    (void)state;
    assert_true(fail_each(fail_call, 1) >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        bridge_cases(no_byte_is_lost_when_memory_fails),
        together_cases(no_byte_is_lost_when_memory_fails_and_the_kernel_relays),
        bridge_cases(no_byte_is_lost_when_a_call_fails),
        together_cases(no_byte_is_lost_when_a_call_fails_and_the_kernel_relays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
