/* SPDX-License-Identifier: MIT */
/* A close that waits in the kernel until the peer has everything (SO_LINGER), which no loop can
 * wait for: it happens in the background. */
#include "base/alloc.h"
#include "exec/executor.h"
#include "transport/sending.h"

#include <weir/threads.h>

#include <errno.h>

/*
 *   set, accepted, adopted    made, with the option: closing must not need memory
 *   begin                     the task's, which takes the descriptor to the background
 *   linger                    closed, at last; the task goes back to the channel's loop
 *   on_closed                 which goes on with its own closing
 */
typedef struct weir_lingering {
    weir_task task;
    weir_channel *channel; /* that is held, and waits for it; NULL: none does */
    weir_sys *sys;
    weir_clock *clock;
    int fd;
    int seconds; /* of the option; not above 0: there is nothing to wait for */
    int64_t until_ns;
} weir_lingering;

int weir__lingering_reserve(weir_socket *self)
{
    weir_socket_extras *extras = weir__socket_need_extras(self);
    if (extras != NULL && extras->lingering == NULL)
        extras->lingering = weir__zalloc(sizeof *extras->lingering);
    return extras != NULL && extras->lingering != NULL ? 0 : -ENOMEM;
}

int weir__lingering_set(weir_socket *self, int seconds)
{
    int code = seconds > 0 ? weir__lingering_reserve(self) : 0;
    if (code == 0 && self->extras != NULL && self->extras->lingering != NULL)
        self->extras->lingering->seconds = seconds;
    return code;
}

int weir__lingering_seconds(const weir_socket *self)
{
    const weir_lingering *lingering = self->extras != NULL ? self->extras->lingering : NULL;
    return lingering != NULL ? lingering->seconds : 0;
}

/* Those that wait in line for the background have waited for that long already. */
static void close_until(weir_lingering *self, int64_t until_ns)
{
    int64_t half_ns = 500000000, left_ns = until_ns - weir_clock_now_ns(self->clock);
    int seconds = left_ns > half_ns ? (int)((left_ns + half_ns) / (2 * half_ns)) : 0;
    struct linger rest = { .l_onoff = seconds > 0, .l_linger = seconds };
    self->sys->setsockopt(self->sys, self->fd, SOL_SOCKET, SO_LINGER, &rest, sizeof rest);
    self->sys->close(self->sys, self->fd);
}

/* Back on the loop; or that has ended, and has given the channel up. */
static int on_closed(weir_task *task)
{
    weir_lingering *self = WEIR_CONTAINER(task, weir_lingering, task);
    weir_socket *socket = weir__socket_of(self->channel);
    weir__free(self);
    socket->is_lingering = false;
    weir__socket_landed(socket);
    weir_channel_release(&socket->channel);
    return 0;
}

static void on_closed_in_vain(weir_task *task)
{
    weir_lingering *self = WEIR_CONTAINER(task, weir_lingering, task);
    weir_channel *channel = self->channel;
    weir__free(self);
    weir_channel_release(channel);
}

static void go_back(weir_lingering *self)
{
    self->task.run = on_closed;
    self->task.dropped = on_closed_in_vain;
    if (self->channel == NULL)
        weir__free(self);
    else if (weir__channel_post(self->channel, &self->task) < 0)
        on_closed_in_vain(&self->task);
}

static int linger(weir_task *task)
{
    weir_lingering *self = WEIR_CONTAINER(task, weir_lingering, task);
    close_until(self, self->until_ns);
    go_back(self);
    return 0;
}

static void linger_no_more(weir_task *task)
{
    weir_lingering *self = WEIR_CONTAINER(task, weir_lingering, task);
    close_until(self, INT64_MIN / 2);
    go_back(self);
}

/* A group that the socket is on no loop of may be gone. */
static weir_executor *background_of(const weir_socket *self)
{
    return self->is_attached ? weir_group_background(weir__channel_loop(&self->channel)->base.group)
                             : weir_executor_global();
}

/* What was not sent will not be, and the end of the stream goes at once, though the close may have
 * to wait in line. */
bool weir__lingering_begin(weir_socket *self, bool is_awaited)
{
    bool is_stream = self->in.kind == WEIR_IO_RECEIVE && self->is_connected;
    if (!is_stream || weir__lingering_seconds(self) <= 0 || self->file.error == -EBADF ||
        !weir__socket_withdraw(self))
        return false;
    weir_lingering *lingering = self->extras->lingering;
    weir_executor *background = background_of(self);
    self->extras->lingering = NULL;
    weir__sending_end(self);
    weir__outbound_fail(&self->channel.outbound, self->channel.spare, WEIR_ECLOSED);
    if (self->is_attached)
        weir__socket_detach(&self->channel);
    lingering->sys = self->sys;
    lingering->clock = background->clock;
    lingering->fd = self->fd;
    lingering->until_ns = weir_clock_now_ns(lingering->clock) +
                          WEIR_MS(1000LL * lingering->seconds);
    lingering->task = (weir_task){ .run = linger, .dropped = linger_no_more, .name = "linger" };
    if (is_awaited)
        lingering->channel = weir_channel_retain(&self->channel);
    self->is_lingering = is_awaited;
    self->sys->shutdown(self->sys, self->fd, SHUT_WR);
    if (weir__executor_post_always(background, &lingering->task) < 0)
        linger_no_more(&lingering->task); /* the kernel goes on by itself */
    return true;
}
