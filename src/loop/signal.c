/* SPDX-License-Identifier: MIT */
/* Signals, through a signalfd that is watched. */
#include "base/sys.h"
#include "loop/loop.h"

#include <weir/signal.h>

#include <errno.h>
#include <sys/signalfd.h>

#define MOST_AT_ONCE 16

static void on_ready(weir_watch *watch, unsigned events)
{
    (void)events;
    weir_signal *self = WEIR_CONTAINER(watch, weir_signal, watch);
    weir_sys *sys = watch->loop->base.sys;
    struct signalfd_siginfo info[MOST_AT_ONCE];
    int length = sys->read(sys, watch->fd, info, sizeof info);
    for (size_t i = 0; length > 0 && i < (size_t)length / sizeof *info; i++) {
        if (weir__watch_is_active(watch))
            self->raised(self, self->number);
    }
}

static void on_stopped(weir_watch *watch, int code)
{
    weir_signal *self = WEIR_CONTAINER(watch, weir_signal, watch);
    weir_sys *sys = watch->loop->base.sys;
    sys->close(sys, watch->fd);
    if (self->stopped != NULL)
        self->stopped(self, code);
}

static bool can_be_blocked(int number)
{
    return number > 0 && number < NSIG && number != SIGKILL && number != SIGSTOP;
}

int weir_loop_signal(weir_loop *loop, weir_signal *signal, int number)
{
    if (loop == NULL || signal == NULL || signal->raised == NULL || !can_be_blocked(number))
        return -EINVAL;
    sigset_t signals;
    sigemptyset(&signals);
    if (sigaddset(&signals, number) != 0)
        return -EINVAL;
    if (atomic_load_explicit(&signal->watch.state, memory_order_acquire) != 0)
        return -EBUSY;
    weir_sys *sys = loop->base.sys;
    int fd = sys->signalfd(sys, &signals);
    if (fd < 0)
        return fd;
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal->watch.ready = on_ready;
    signal->watch.stopped = on_stopped;
    signal->number = number;
    int code = weir_watch_start(&signal->watch, loop, fd, WEIR_WATCH_READ);
    if (code < 0)
        sys->close(sys, fd);
    return code;
}

int weir_signal_stop(weir_signal *signal)
{
    return signal != NULL ? weir_watch_stop(&signal->watch) : -EINVAL;
}
