/* SPDX-License-Identifier: MIT */
/* The race of the addresses of a name. */
#include "bootstrap/race.h"

#include "base/alloc.h"
#include "bootstrap/client.h"
#include "channel/extras.h"
#include "transport/socket.h"

#include <weir/log.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* What the attempts share when nobody has said how long all of it may take. */
#define UNLIMITED_NS WEIR_SECONDS(30)

static void try_next(weir_race *self);

static weir_io *io_of(const weir_race *self)
{
    return self->loop->io;
}

/* The winner ----------------------------------------------------------------------------------- */

static void end_claim(const weir_race *self, weir_attempt *at)
{
    weir__claim_end(self->loop->base.sys, at->claim);
    at->claim = NULL;
}

/* The path goes with the channel from here on. */
static int hand_claim_over(const weir_race *self, weir_attempt *winner, weir_channel *channel)
{
    if (winner->claim == NULL)
        return 0;
    weir_socket_extras *extras = weir__socket_need_extras(weir__socket_of(channel));
    if (extras == NULL) {
        end_claim(self, winner);
        return -ENOMEM;
    }
    extras->claim = winner->claim;
    winner->claim = NULL;
    return 0;
}

/* The socket that has won becomes a channel. */
static int make_channel(const weir_race *self, weir_attempt *winner, weir_channel **channel)
{
    weir_sys *sys = self->loop->base.sys;
    int fd = winner->file.fd;
    int family = weir_address_sockaddr(winner->address, NULL)->sa_family;
    io_of(self)->type->detach(io_of(self), &winner->file);
    int code = weir__stream_new(channel, NULL, sys, fd, family, true);
    if (code < 0) {
        end_claim(self, winner);
        sys->close(sys, fd);
        return code;
    }
    code = hand_claim_over(self, winner, *channel);
    if (code < 0)
        weir_channel_release(*channel); /* which closes it */
    return code;
}

static void win(weir_race *self, weir_attempt *winner)
{
    weir_channel *channel;
    int code = make_channel(self, winner, &channel);
    if (code < 0)
        weir__connector_lost(self, code);
    else
        weir__connector_won(self, channel, false);
}

/* Trying --------------------------------------------------------------------------------------- */

static void close_attempt(weir_race *self, weir_attempt *at)
{
    end_claim(self, at);
    io_of(self)->type->close_file(io_of(self), &at->file);
}

/* An error has room for some addresses, the log for all of them. */
static void tell_failure(const weir_race *self, const weir_attempt *at, int code)
{
    char address[WEIR_ADDRESS_TEXT_MAX];
    weir_address_text(at->address, address, sizeof address);
    weir_log(WEIR_LOG_INFO, "client", "%s: no connection to %s: %s", self->text, address,
             weir_error_text(code));
}

static void fail_attempt(const weir_race *self, weir_attempt *at, int code)
{
    at->code = code;
    tell_failure(self, at, code);
}

static bool was_cancelled(int code)
{
    return code == -ECANCELED || code == WEIR_ECLOSED;
}

/* What was cancelled after the end has not failed by itself; before it, it has not answered. */
static void end_attempt(weir_race *self, weir_attempt *at, int code)
{
    if (!self->is_over) {
        fail_attempt(self, at, at->is_given_up && was_cancelled(code) ? -ETIMEDOUT : code);
        try_next(self);
        return;
    }
    if (!was_cancelled(code) && code < 0)
        fail_attempt(self, at, code);
    weir__connector_settle(self);
}

static void complete_attempt(weir_io_op *op, const weir_io_result *result)
{
    weir_attempt *at = WEIR_CONTAINER(op, weir_attempt, op);
    weir_race *self = at->race;
    int code = result->code;
    self->running--;
    if (code == 0 && !self->is_over) {
        win(self, at);
        return;
    }
    close_attempt(self, at);
    end_attempt(self, at, code);
}

static void on_attempt(weir_io_op *op, const weir_io_result *result)
{
    weir_race *self = WEIR_CONTAINER(op, weir_attempt, op)->race;
    complete_attempt(op, result);
    weir__operation_release(self->operation);
}

static int set_socket_options(const weir_race *self, int fd, int family)
{
    weir_sys *sys = self->loop->base.sys;
    int code = 0;
    for (size_t i = 0; i < self->plan->config.option_count && code == 0; i++) {
        const weir_option_value *option = &self->plan->config.options[i];
        if (option->option == WEIR_OPTION_CLOSE_LINGER_NS)
            continue; /* who loses is closed at once; the channel will have it */
        code = weir__sockopt_set(sys, fd, family, option->option, option->value);
        if (code == -ENOPROTOOPT)
            code = 0; /* the channel's, or none of this family's: it will say so */
    }
    return code;
}

/* A local address of another family is nothing for this one. */
static int bind_local(const weir_race *self, weir_attempt *at, int fd, int family)
{
    weir_sys *sys = self->loop->base.sys;
    size_t length;
    const struct sockaddr *local = weir_address_sockaddr(self->local, &length);
    if (weir_address_kind_of(self->local) == WEIR_ADDRESS_NONE)
        return 0;
    if (local == NULL || local->sa_family != family)
        return -EAFNOSUPPORT;
    return family == AF_UNIX ? weir__claim_bind(sys, fd, self->local, &at->claim)
                             : sys->bind(sys, fd, local, (socklen_t)length);
}

/* An open socket, with what it has to have before it connects; or a negative code. */
static int open_socket(const weir_race *self, weir_attempt *at, int family)
{
    weir_sys *sys = self->loop->base.sys;
    int fd = sys->socket(sys, family, SOCK_STREAM, 0);
    if (fd < 0)
        return fd;
    if (family != AF_UNIX)
        weir__sockopt_set(sys, fd, family, WEIR_OPTION_NO_DELAY, 1);
    int code = set_socket_options(self, fd, family);
    if (code == 0)
        code = bind_local(self, at, fd, family);
    if (code < 0)
        sys->close(sys, fd);
    return code < 0 ? code : fd;
}

/* WEIR_IO_PENDING, or how it went. -EBUSY when the loop has room for one descriptor only. */
static int begin_attempt(weir_race *self, weir_attempt *at)
{
    weir_io *io = io_of(self);
    const struct sockaddr *address = weir_address_sockaddr(at->address, NULL);
    int fd = address != NULL ? open_socket(self, at, address->sa_family) : -EINVAL;
    if (fd < 0)
        return fd;
    int code = io->type->attach(io, &at->file, fd);
    if (code < 0) {
        end_claim(self, at);
        io->sys->close(io->sys, fd);
        return code;
    }
    at->op = (weir_io_op){ .kind = WEIR_IO_CONNECT, .file = &at->file, .remote = at->address };
    at->op.on_done = on_attempt;
    code = weir__io_submit(io, &at->op);
    if (code == WEIR_IO_PENDING)
        weir__operation_retain(self->operation);
    else if (code < 0)
        close_attempt(self, at);
    return code;
}

static void drop_channel(weir_attempt *at)
{
    weir_channel *channel = at->channel;
    at->channel = NULL;
    weir_channel_close(channel, NULL);
    weir_channel_release(channel);
}

/* Channels within the process have no sockets to race with. Their promise is bound to the loop of
 * the race, for the channel itself may have moved to another. */
static void on_local(weir_awaited *awaited, weir_future *future)
{
    weir_attempt *at = WEIR_CONTAINER(awaited, weir_attempt, on_local);
    weir_race *self = at->race;
    weir_channel *channel = at->channel;
    int code = weir_future_code(future);
    self->running--;
    if (code == 0 && !self->is_over) {
        at->channel = NULL;
        weir__connector_won(self, channel, true);
    } else {
        drop_channel(at);
        end_attempt(self, at, self->plan->init_code < 0 ? self->plan->init_code : code);
    }
}

static int begin_local(weir_race *self, weir_attempt *at)
{
    weir_channel *channel = NULL;
    int code = weir__channel_open(&channel, self->loop->base.sys, WEIR_SOCKET_STREAM, at->address,
                                  NULL);
    if (code == 0)
        code = weir__client_set_up(&self->plan->config, channel, false);
    weir_promise *promise = code == 0 ? weir_promise_new(&self->loop->base) : NULL;
    if (promise == NULL) {
        weir_channel_release(channel);
        return code < 0 ? code : -ENOMEM;
    }
    at->channel = channel;
    weir__operation_await(self->operation, &at->on_local, weir_promise_future(promise), on_local);
    weir_channel_register(channel, &self->loop->base, NULL);
    weir_channel_connect(channel, at->address, self->local->length > 0 ? self->local : NULL,
                         promise);
    weir_promise_release(promise);
    return WEIR_IO_PENDING;
}

static int try_one(weir_race *self, weir_attempt *at)
{
    return weir_address_kind_of(at->address) == WEIR_ADDRESS_LOCAL ? begin_local(self, at)
                                                                   : begin_attempt(self, at);
}

static void cancel_attempt(weir_race *self, weir_attempt *at)
{
    if (at->op.is_in_flight)
        weir__io_cancel(io_of(self), &at->op);
    if (at->channel != NULL)
        weir_channel_close(at->channel, NULL);
}

/* The one that has had most time; when it has ended, the next one is tried. */
static void give_one_up(weir_race *self)
{
    weir_attempt *at = self->attempts;
    while (!at->op.is_in_flight && at->channel == NULL)
        at++;
    at->is_given_up = true;
    cancel_attempt(self, at);
}

static int on_stagger(weir_timer *timer)
{
    weir_race *self = WEIR_CONTAINER(timer, weir_race, stagger);
    if (self->is_crowded)
        give_one_up(self);
    else
        try_next(self);
    return 0;
}

/* Counted from when the last one was tried. */
static void wait_a_little(weir_race *self)
{
    int64_t passed_ns = weir_executor_now_ns(&self->loop->base) - self->tried_ns;
    if (self->plan->config.stagger_ns > 0 && self->next < self->count)
        weir_timer_schedule(&self->stagger, &self->loop->base,
                            self->plan->config.stagger_ns - passed_ns);
}

/* A loop may be for one descriptor, descriptors may have run out, or the local port may be taken by
 * the attempt before: then one after the other. */
static bool has_to_wait(const weir_race *self, int code)
{
    return self->running > 0 &&
           (code == -EBUSY || code == -EMFILE || code == -ENFILE || code == -EADDRINUSE);
}

/* The time that is left is shared by the attempt that has to end, and those that are to come. */
static void wait_for_room(weir_race *self)
{
    weir_executor *executor = &self->loop->base;
    int64_t left_ns = self->until_ns != 0 ? self->until_ns - weir_executor_now_ns(executor)
                                          : UNLIMITED_NS;
    self->is_crowded = true;
    weir_timer_schedule(&self->stagger, executor,
                        left_ns / (int64_t)(self->count - self->next + 1));
}

static void try_next(weir_race *self)
{
    weir_timer_cancel(&self->stagger);
    self->is_crowded = false;
    while (self->next < self->count) {
        weir_attempt *at = &self->attempts[self->next];
        int code = try_one(self, at);
        if (has_to_wait(self, code)) {
            wait_for_room(self);
            return;
        }
        self->next++;
        if (code == WEIR_IO_PENDING) {
            self->running++;
            self->tried_ns = weir_executor_now_ns(&self->loop->base);
            wait_a_little(self);
            return;
        }
        if (code == 0) {
            win(self, at);
            return;
        }
        fail_attempt(self, at, code);
    }
    if (self->running == 0 && !self->may_get_more)
        weir__connector_lost(self, self->attempts[0].code);
}

/* Its course ----------------------------------------------------------------------------------- */

static void set_address(weir_race *self, size_t at, const weir_address *address)
{
    self->attempts[at].race = self;
    self->attempts[at].address = address;
}

int weir__race_begin(weir_race *self, const weir_addresses *addresses, bool may_get_more)
{
    if (addresses == NULL || addresses->count == 0)
        return WEIR_ENONAME;
    size_t places = may_get_more ? WEIR_ADDRESSES_MAX : addresses->count;
    self->attempts = weir__zalloc(places * sizeof *self->attempts);
    if (self->attempts == NULL)
        return -ENOMEM;
    self->count = addresses->count;
    self->may_get_more = may_get_more;
    self->stagger.fire = on_stagger;
    for (size_t i = 0; i < addresses->count; i++)
        set_address(self, i, &addresses->list[i]);
    try_next(self);
    return 0;
}

/* Puts one at a place among those that were not tried; if there are too many, the last one goes. */
static void insert_address(weir_race *self, size_t at, const weir_address *address)
{
    if (at >= WEIR_ADDRESSES_MAX)
        return;
    if (self->count < WEIR_ADDRESSES_MAX)
        self->count++;
    for (size_t i = self->count - 1; i > at; i--)
        set_address(self, i, self->attempts[i - 1].address);
    set_address(self, at, address);
}

void weir__race_add(weir_race *self, const weir_addresses *addresses)
{
    bool is_starved = self->running == 0;
    bool was_last = self->next == self->count;
    self->may_get_more = false;
    if (self->is_over || self->attempts == NULL)
        return;
    for (size_t i = 0; addresses != NULL && i < addresses->count; i++) {
        size_t at = self->next + 2 * i;
        insert_address(self, at < self->count ? at : self->count, &addresses->list[i]);
    }
    if (is_starved)
        try_next(self);
    else if (was_last)
        wait_a_little(self);
}

void weir__race_stop(weir_race *self)
{
    self->is_over = true;
    weir_timer_cancel(&self->stagger);
    for (size_t i = 0; i < self->next; i++)
        cancel_attempt(self, &self->attempts[i]);
}

/* "one; two; and 3 more": as many as there is room for. */
static void list_attempts(const weir_race *self, int failure, char *list, size_t size)
{
    static const char rest[] = "; and 1234567890 more";
    size_t used = 0;
    for (size_t i = 0; i < self->next; i++) {
        const weir_attempt *at = &self->attempts[i];
        char address[WEIR_ADDRESS_TEXT_MAX], one[sizeof address + 100];
        bool is_last = i + 1 == self->next;
        weir_address_text(at->address, address, sizeof address);
        int length = snprintf(one, sizeof one, "%s%s: %s", i > 0 ? "; " : "", address,
                              weir_error_text(at->code < 0 ? at->code : failure));
        if (self->next > 1 && used + (size_t)length + (is_last ? 1 : sizeof rest) > size) {
            snprintf(list + used, size - used, i > 0 ? "; and %zu more" : "%zu addresses",
                     self->next - i);
            return;
        }
        used += (size_t)snprintf(list + used, size - used, "%s", one);
    }
}

void weir__race_describe(const weir_race *self, int failure, weir_error *error)
{
    static const char frame[] = "cannot connect to  ()";
    char list[sizeof error->message];
    size_t taken = sizeof frame - 1 + strlen(self->text);
    for (size_t i = 0; i < self->next; i++) {
        if (self->attempts[i].code == 0)
            tell_failure(self, &self->attempts[i], failure);
    }
    list_attempts(self, failure, list, taken < sizeof list ? sizeof list - taken : 1);
    if (self->next == 0)
        weir_error_set(error, failure, "client", "cannot connect to %s: %s", self->text,
                       weir_error_text(failure));
    else if (self->next == 1 && strncmp(list, self->text, strlen(self->text)) == 0)
        weir_error_set(error, failure, "client", "cannot connect to %s", list);
    else
        weir_error_set(error, failure, "client", "cannot connect to %s (%s)", self->text, list);
}

/* A channel is left if the loop has terminated while it connected. */
void weir__race_free(weir_race *self)
{
    for (size_t i = 0; i < self->next; i++) {
        if (self->attempts[i].channel != NULL)
            drop_channel(&self->attempts[i]);
    }
    weir__free(self->attempts);
}
