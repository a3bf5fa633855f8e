/* SPDX-License-Identifier: MIT */
/* A pause in reading. */
#include "transport/retry.h"

#include <weir/log.h>

static int on_timer(weir_timer *timer)
{
    weir_retry *self = WEIR_CONTAINER(timer, weir_retry, timer);
    weir_channel *channel = &self->socket->channel;
    self->is_waiting = false;
    if (channel->in.is_reading)
        channel->transport->start_reading(channel);
    return 0;
}

void weir__retry_later(weir_retry *self, weir_socket *socket, int code)
{
    weir_channel *channel = &socket->channel;
    char time[WEIR_DURATION_TEXT_MAX];
    weir_log(WEIR_LOG_WARN, channel->transport->name, "%08llx: reads nothing for %s: %s",
             (unsigned long long)channel->id, weir_duration_text(WEIR__RETRY_NS, time, sizeof time),
             weir_error_text(code));
    self->socket = socket;
    self->timer.fire = on_timer;
    /* Without memory even for that it tries again in the next turn. */
    self->is_waiting = weir_timer_schedule(&self->timer, &weir__channel_loop(channel)->base,
                                           WEIR__RETRY_NS) == 0;
}

void weir__retry_cancel(weir_retry *self)
{
    if (self->is_waiting)
        weir_timer_cancel(&self->timer);
    self->is_waiting = false;
}
