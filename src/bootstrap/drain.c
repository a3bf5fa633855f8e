/* SPDX-License-Identifier: MIT */
/* Seeing a server's connections off. */
#include "bootstrap/server.h"

#include "base/alloc.h"
#include "base/time_sum.h"
#include "channel/inbox.h"
#include "exec/executor.h"

#include <weir/log.h>
#include <weir/timer.h>

#include <errno.h>

#define PAUSE_NS WEIR_MS(10)
#define MAX_VAIN_WALKS 100
#define RESET_AFTER_WALKS 100 /* children that do not close are reset */

/*
 * The listeners count their children until the last handler of each is removed, but keep no list of
 * them. So a drain looks at the number every now and then, and is over when it is 0. At the
 * beginning a task walks from loop to loop over the workers and notifies the children it finds, and
 * when the time is up another walk closes them. A child that is counted but not found may be
 * between two loops, and the next walk finds it; or it is on a loop of another group, or on none,
 * and after some walks in vain it stays as it is. A child that does not close, because a handler
 * delays the close or the peer does not read, is reset a second later.
 *
 * At any time it waits for one thing alone, the timer, the task or the workers' end, so nothing
 * needs a lock.
 */
struct weir_drain {
    weir_drain *next; /* the server's: among those that wait for the listeners to be closed */
    weir_server *server;
    weir_promise *promise; /* may be NULL */
    int64_t deadline_ns;
    weir_timer pause;
    weir_task walker;
    weir_listener workers_ended;
    size_t at;         /* which loop it is at */
    bool is_notifying; /* the walks notify, and do not close yet */
    uint64_t found;    /* children, on this walk */
    bool has_notified; /* a child, on this walk */
    unsigned close_walks;
    unsigned vain_walks; /* that have not found children that are counted */
};

static weir_executor *some_executor(const weir_drain *self)
{
    weir_executor *first = weir_group_at(self->server->config.workers, 0);
    return first != NULL ? first : weir_group_background(self->server->config.workers);
}

static int64_t now_ns(const weir_drain *self)
{
    return weir_clock_now_ns(some_executor(self)->clock);
}

static uint64_t count_children(const weir_drain *self)
{
    pthread_mutex_lock(&self->server->lock);
    uint64_t count = weir__server_children(self->server);
    pthread_mutex_unlock(&self->server->lock);
    return count;
}

static void end(weir_drain *self, uint64_t left)
{
    weir_server *server = self->server;
    if (left > 0)
        weir_log(WEIR_LOG_WARN, "server",
                 "the drain of %s ends without %llu connections: they are on no loop of the "
                 "workers, or have handlers on other executors that have not been removed",
                 server->text, (unsigned long long)left);
    weir__promise_end(self->promise, left > 0 ? -ETIMEDOUT : 0);
    weir_promise_release(self->promise);
    weir__free(self);
    weir__server_drained(server);
    weir_server_release(server);
}

/* Walking -------------------------------------------------------------------------------------- */

static void walk(weir_drain *self);

/* The event and the close come later, because their handlers may move other channels. */
static void visit(weir_channel *channel, void *arg)
{
    weir_drain *self = arg;
    if (!weir__server_has_accepted(self->server, channel))
        return;
    self->found++;
    self->has_notified |= self->is_notifying && !weir_channel_is_draining(channel);
    if (self->is_notifying)
        weir_channel_drain(channel);
    else if (self->close_walks > RESET_AFTER_WALKS)
        weir__inbox_push_missed(channel, WEIR__MISSED_RESET);
    else if (!weir__channel_is_closing(channel))
        weir__inbox_push_missed(channel, WEIR__MISSED_CLOSE);
}

static void on_workers_ended(weir_listener *listener, weir_future *future)
{
    weir_drain *self = WEIR_CONTAINER(listener, weir_drain, workers_ended);
    (void)future;
    end(self, count_children(self));
}

/* On any loop that takes the timer; or elsewhere, where each connection has a loop of its own and
 * there is none. Workers that are shutting down close all by themselves. */
static void pause_walk(weir_drain *self, int64_t delay_ns)
{
    weir_group *workers = self->server->config.workers;
    size_t count = weir_group_count(workers);
    int code = WEIR_ESHUTDOWN;
    for (size_t i = 0; i < count && code == WEIR_ESHUTDOWN; i++)
        code = weir_timer_schedule(&self->pause, weir_group_at(workers, i), delay_ns);
    if (count == 0)
        code = weir_timer_schedule(&self->pause, weir_group_background(workers), delay_ns);
    if (code == WEIR_ESHUTDOWN)
        weir_future_listen(weir_group_terminated(workers), &self->workers_ended);
    else if (code < 0)
        walk(self); /* at once, for want of memory */
}

static void look(weir_drain *self)
{
    int64_t left_ns = self->deadline_ns - now_ns(self);
    bool is_late = left_ns <= 0;
    if (is_late && self->is_notifying)
        self->vain_walks = 0;
    self->is_notifying &= !is_late;
    if (count_children(self) == 0)
        end(self, 0);
    else if (is_late || self->is_notifying)
        walk(self);
    else
        pause_walk(self, left_ns < PAUSE_NS ? left_ns : PAUSE_NS);
}

/* Every loop was visited. */
static void end_walk(weir_drain *self)
{
    uint64_t left = count_children(self);
    bool is_vain = self->found == 0;
    if (self->is_notifying) /* one that was notified may have closed, and hide one that was missed
                             */
        is_vain = self->found < left || self->has_notified;
    self->vain_walks = is_vain ? self->vain_walks + 1 : 0;
    bool is_last = self->vain_walks == MAX_VAIN_WALKS;
    if (left == 0 || (is_last && !self->is_notifying)) {
        end(self, left);
        return;
    }
    self->is_notifying &= is_vain && !is_last;
    pause_walk(self, PAUSE_NS);
}

/* To the next loop that takes the task. */
static void go_on(weir_drain *self)
{
    weir_group *workers = self->server->config.workers;
    while (self->at < weir_group_count(workers)) {
        weir_executor *executor = weir_group_at(workers, self->at++);
        if (weir__executor_post_always(executor, &self->walker) == 0)
            return;
    }
    end_walk(self);
}

static int visit_loop(weir_task *task)
{
    weir_drain *self = WEIR_CONTAINER(task, weir_drain, walker);
    weir_loop *loop = weir_executor_loop(weir_group_at(self->server->config.workers, self->at - 1));
    if (loop != NULL)
        weir__loop_each_channel(loop, visit, self);
    go_on(self);
    return 0;
}

static void loop_has_ended(weir_task *task)
{
    go_on(WEIR_CONTAINER(task, weir_drain, walker));
}

static void walk(weir_drain *self)
{
    self->found = 0;
    self->has_notified = false;
    self->close_walks += !self->is_notifying;
    self->at = 0;
    go_on(self);
}

/* Beginning ------------------------------------------------------------------------------------ */

static int on_pause(weir_timer *timer)
{
    look(WEIR_CONTAINER(timer, weir_drain, pause));
    return 0;
}

/* Its loop has ended, but others may have not. */
static void pause_cancelled(weir_timer *timer)
{
    look(WEIR_CONTAINER(timer, weir_drain, pause));
}

static int64_t deadline(const weir_drain *self, int64_t timeout_ns)
{
    return timeout_ns < 0 ? INT64_MAX : weir__time_sum(now_ns(self), timeout_ns);
}

weir_drain *weir__drain_new(weir_server *server, int64_t timeout_ns, weir_promise *promise)
{
    weir_drain *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    self->server = weir_server_retain(server);
    self->promise = weir_promise_retain(promise);
    self->deadline_ns = deadline(self, timeout_ns);
    self->is_notifying = true;
    self->walker.run = visit_loop;
    self->walker.dropped = loop_has_ended;
    self->workers_ended.done = on_workers_ended;
    self->pause.fire = on_pause;
    self->pause.cancelled = pause_cancelled;
    return self;
}

void weir__drain_begin(weir_drain *self)
{
    look(self);
}

void weir__drain_queue(weir_drain *self, weir_drain **list)
{
    self->next = *list;
    *list = self;
}

weir_drain *weir__drain_next(const weir_drain *self)
{
    return self->next;
}
