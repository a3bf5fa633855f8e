/* SPDX-License-Identifier: MIT */
/* A close that waits until the peer has everything (SO_LINGER). The kernel would do the waiting
 * inside close, on the loop's thread; so it is done here, by a timer, and close never waits. */
#include "base/alloc.h"
#include "transport/sending.h"

#include <weir/timer.h>

#include <errno.h>
#include <netinet/tcp.h>

/* Between two looks: twice as long each time. */
#define FIRST_PAUSE_NS WEIR_MS(1)
#define LONGEST_PAUSE_NS WEIR_MS(50)

/*
 *   set, accepted, adopted    made, with the option: closing must not need memory
 *   begin                     the end of the stream goes; the timer looks what has become of it
 *   stop                      acknowledged, or gone, or out of time: the closing goes on
 *   end                       the descriptor is about to be closed
 */
typedef struct weir_lingering {
    weir_timer timer;
    weir_socket *socket;
    int64_t ns; /* of the option; not above 0: there is nothing to wait for */
    bool has_begun;
    int64_t until_ns, pause_ns;
} weir_lingering;

static weir_lingering *lingering_of(const weir_socket *self)
{
    return self->extras != NULL ? self->extras->lingering : NULL;
}

int weir__lingering_reserve(weir_socket *self)
{
    weir_socket_extras *extras = weir__socket_need_extras(self);
    if (extras != NULL && extras->lingering == NULL)
        extras->lingering = weir__zalloc(sizeof *extras->lingering);
    return extras != NULL && extras->lingering != NULL ? 0 : -ENOMEM;
}

int weir__lingering_set(weir_socket *self, int64_t ns)
{
    int code = ns > 0 ? weir__lingering_reserve(self) : 0;
    if (code < 0 || lingering_of(self) == NULL)
        return code;
    lingering_of(self)->ns = ns;
    if (ns <= 0 && self->is_lingering)
        weir_timer_cancel(&lingering_of(self)->timer);
    return 0;
}

int64_t weir__lingering_ns(const weir_socket *self)
{
    return lingering_of(self) != NULL ? lingering_of(self)->ns : 0;
}

void weir__lingering_switch_off(weir_sys *sys, int fd)
{
    const struct linger off = { 0 };
    sys->setsockopt(sys, fd, SOL_SOCKET, SO_LINGER, &off, sizeof off);
}

/* Whether the peer has yet to acknowledge the end of the stream, and so all that is before it. */
static bool is_unacknowledged(const weir_socket *self)
{
    struct tcp_info facts = { 0 };
    socklen_t length = sizeof facts;
    if (self->sys->getsockopt(self->sys, self->fd, IPPROTO_TCP, TCP_INFO, &facts, &length) < 0)
        return false;
    return facts.tcpi_state == TCP_FIN_WAIT1 || facts.tcpi_state == TCP_CLOSING ||
           facts.tcpi_state == TCP_LAST_ACK;
}

/* Whether there is something to wait for, and time, and a timer for it. */
static bool wait_on(weir_lingering *self)
{
    weir_executor *executor = &weir__channel_loop(&self->socket->channel)->base;
    int64_t left_ns = self->until_ns - weir_executor_now_ns(executor);
    int64_t pause_ns = self->pause_ns < left_ns ? self->pause_ns : left_ns;
    if (left_ns <= 0 || !is_unacknowledged(self->socket) ||
        weir_timer_schedule(&self->timer, executor, pause_ns) < 0)
        return false;
    self->pause_ns = 2 * pause_ns < LONGEST_PAUSE_NS ? 2 * pause_ns : LONGEST_PAUSE_NS;
    return true;
}

static void stop(weir_lingering *self)
{
    self->socket->is_lingering = false;
    weir__socket_continue_quiesce(self->socket); /* which frees this */
}

static int on_timer(weir_timer *timer)
{
    weir_lingering *self = WEIR_CONTAINER(timer, weir_lingering, timer);
    if (!wait_on(self))
        stop(self);
    return 0;
}

/* The loop ends, or the channel does not wait any more. */
static void on_cancelled(weir_timer *timer)
{
    weir_lingering *self = WEIR_CONTAINER(timer, weir_lingering, timer);
    if (self->socket->is_lingering)
        stop(self);
}

/* What was not sent will not be. */
bool weir__lingering_begin(weir_socket *self)
{
    bool is_stream = self->in.kind == WEIR_IO_RECEIVE && self->is_connected && self->is_attached;
    if (!is_stream || weir__lingering_ns(self) <= 0 || self->file.error == -EBADF)
        return false;
    weir_lingering *lingering = lingering_of(self);
    if (lingering->has_begun)
        return false;
    int64_t now_ns = weir_loop_now_ns(weir__channel_loop(&self->channel));
    weir__sending_end(self);
    weir__outbound_fail(&self->channel.out.queue, WEIR_ECLOSED);
    self->sys->shutdown(self->sys, self->fd, SHUT_WR);
    lingering->timer =
        (weir_timer){ .fire = on_timer, .cancelled = on_cancelled, .name = "linger" };
    lingering->socket = self;
    lingering->has_begun = true;
    lingering->until_ns = now_ns + lingering->ns;
    lingering->pause_ns = FIRST_PAUSE_NS;
    self->is_lingering = wait_on(lingering);
    return self->is_lingering;
}

void weir__lingering_end(weir_socket *self)
{
    weir_lingering *lingering = lingering_of(self);
    if (lingering == NULL)
        return;
    if (self->is_lingering) {
        self->is_lingering = false;
        weir_timer_cancel(&lingering->timer);
    }
    if (lingering->ns > 0 && self->file.error != -EBADF) /* else it may be another's by now */
        weir__lingering_switch_off(self->sys, self->fd);
    weir__free(lingering);
    self->extras->lingering = NULL;
}
