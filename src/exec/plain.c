/* SPDX-License-Identifier: MIT */
/* The plain executor. */
#include "exec/plain.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/sys.h"

#include <errno.h>

typedef struct plain_executor {
    weir_executor base;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool is_woken;
    int eventfd; /* of a manual one, which others may have to wait for together with more */
} plain_executor;

/* The blocking wait, under a name that a stack trace shows. Whether it was woken. */
static bool wait_for_tasks(plain_executor *self, const struct timespec *until)
{
    int error = 0;
    pthread_mutex_lock(&self->lock);
    while (!self->is_woken && error == 0)
        error = pthread_cond_clockwait(&self->woken, &self->lock, CLOCK_MONOTONIC, until);
    bool is_woken = self->is_woken;
    self->is_woken = false;
    pthread_mutex_unlock(&self->lock);
    return is_woken;
}

static bool plain_wait(weir_executor *executor, int64_t timeout_ns)
{
    struct timespec until = weir__clock_until(timeout_ns);
    return wait_for_tasks((plain_executor *)executor, &until);
}

static int plain_wake(weir_executor *executor)
{
    plain_executor *self = (plain_executor *)executor;
    pthread_mutex_lock(&self->lock);
    self->is_woken = true;
    pthread_cond_signal(&self->woken);
    pthread_mutex_unlock(&self->lock);
    return 0;
}

static bool plain_turn(weir_executor *executor, int64_t max_wait_ns)
{
    weir__executor_sleep(executor, max_wait_ns);
    weir__executor_read_clock(executor);
    return weir__executor_run_batch(executor);
}

static void plain_destroy(weir_executor *executor)
{
    plain_executor *self = (plain_executor *)executor;
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->woken);
    if (self->eventfd >= 0)
        executor->sys->close(executor->sys, self->eventfd);
    weir__free(self);
}

static const weir_executor_type plain_type = {
    .name = "executor",
    .turn = plain_turn,
    .wait = plain_wait,
    .wake = plain_wake,
    .destroy = plain_destroy,
};

/* The manual kind: its wake-up is a descriptor. That stays open until the struct is freed, for
 * somebody may be about to write to it. */

static int manual_open(weir_executor *executor)
{
    int fd = executor->sys->eventfd(executor->sys, 0);
    if (fd >= 0)
        ((plain_executor *)executor)->eventfd = fd;
    return fd < 0 ? fd : 0;
}

static bool take_wakeup(weir_executor *executor)
{
    uint64_t count;
    int fd = ((plain_executor *)executor)->eventfd;
    return executor->sys->read(executor->sys, fd, &count, sizeof count) > 0;
}

static bool manual_wait(weir_executor *executor, int64_t timeout_ns)
{
    struct pollfd fd = { .fd = ((plain_executor *)executor)->eventfd, .events = POLLIN };
    executor->sys->poll(executor->sys, &fd, 1, timeout_ns);
    return take_wakeup(executor);
}

static int manual_wake(weir_executor *executor)
{
    const uint64_t one = 1;
    executor->sys->write(executor->sys, ((plain_executor *)executor)->eventfd, &one, sizeof one);
    if (executor->companion != NULL)
        weir_executor_wake(executor->companion); /* for who drives that alone */
    return 0;
}

static bool manual_turn(weir_executor *executor, int64_t max_wait_ns)
{
    if (!weir__executor_sleep(executor, max_wait_ns))
        take_wakeup(executor); /* one that came while it rested is over with this turn */
    weir__executor_read_clock(executor);
    return weir__executor_run_batch(executor);
}

static int manual_descriptor(const weir_executor *executor)
{
    return ((const plain_executor *)executor)->eventfd;
}

static const weir_executor_type manual_type = {
    .name = "manual executor",
    .open = manual_open,
    .turn = manual_turn,
    .wait = manual_wait,
    .wake = manual_wake,
    .descriptor = manual_descriptor,
    .destroy = plain_destroy,
};

int weir__plain_executor_new(weir_executor **executor, const weir_executor_config *config)
{
    plain_executor *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    weir__executor_init(&self->base, config->is_manual ? &manual_type : &plain_type, config);
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->woken, NULL);
    self->eventfd = -1;
    *executor = &self->base;
    return 0;
}
