/* SPDX-License-Identifier: MIT */
/* Stepping manual groups. */
#include "exec/manual.h"

#include "base/sys.h"
#include "exec/plain.h"

#include <errno.h>

/* The manual groups of this thread. */
static _Thread_local weir_list groups;
static _Thread_local bool has_groups;

/* Threads that wait while they step: to be woken when a future is complete elsewhere. */
typedef struct waiter {
    weir_list_node node;
    weir_executor *executor; /* ends the wait when it is woken */
} waiter;

static pthread_mutex_t waiters_lock = PTHREAD_MUTEX_INITIALIZER;
static weir_list waiters = { { &waiters.ring, &waiters.ring } };

/* All executors of the thread's groups: a group's children, then its background. */
#define FOR_EACH_GROUP(group)                                                                      \
    for (weir_group *group = group_of(weir__list_first(&groups)); (group) != NULL;                 \
         (group) = group_of(weir__list_next(&groups, &(group)->link)))

static weir_group *group_of(weir_list_node *node)
{
    return node != NULL ? WEIR_CONTAINER(node, weir_group, link) : NULL;
}

static weir_executor *member(const weir_group *group, size_t index)
{
    weir_executor *child = weir_group_at(group, index);
    return child != NULL ? child : group->background;
}

static bool is_over(const weir_executor *executor)
{
    return weir_executor_get_state(executor) == WEIR_EXECUTOR_TERMINATED;
}

/* A wait that is going on while a callback of it frees a group: another one's executor has to end
 * it. */
static void leave_waiters(const weir_executor *background)
{
    weir_group *other = group_of(weir__list_first(&groups));
    pthread_mutex_lock(&waiters_lock);
    for (weir_list_node *node = weir__list_first(&waiters); node != NULL;
         node = weir__list_next(&waiters, node)) {
        waiter *self = WEIR_CONTAINER(node, waiter, node);
        if (self->executor == background)
            self->executor = other != NULL ? other->background : NULL;
    }
    pthread_mutex_unlock(&waiters_lock);
}

/* Making and ending -------------------------------------------------------------------------- */

int weir__manual_begin(weir_group *group)
{
    weir_executor_config config = { .name = "background",
                                    .clock = weir_group_at(group, 0)->clock,
                                    .cpu = WEIR_OFF,
                                    .is_manual = true };
    int code = weir__plain_executor_new(&group->background, &config);
    if (code < 0)
        return code;
    group->background->companion = weir_group_at(group, 0);
    if (!has_groups)
        weir__list_init(&groups);
    has_groups = true;
    weir__list_push_back(&groups, &group->link); /* first: those that start have to be stepped */
    for (size_t i = 0; i <= group->count && code == 0; i++)
        code = weir__executor_start_manual(member(group, i));
    return code;
}

void weir__manual_end(weir_group *group)
{
    if (weir__list_is_linked(&group->link))
        weir__list_remove(&group->link);
    if (group->background == NULL)
        return;
    leave_waiters(group->background);
    weir_executor_shutdown(group->background, 0, 0);
    while (weir_executor_get_state(group->background) == WEIR_EXECUTOR_SHUTTING_DOWN)
        weir__executor_step(group->background, 0);
    weir__executor_release(group->background);
}

bool weir__manual_is_driver(void)
{
    return has_groups && !weir__list_is_empty(&groups);
}

bool weir__manual_is_in_turn(const weir_group *group)
{
    bool is_in_turn = false;
    for (size_t i = 0; i <= group->count; i++)
        is_in_turn |= member(group, i)->is_in_turn;
    return is_in_turn;
}

/* Stepping ----------------------------------------------------------------------------------- */

static int step(weir_group *group)
{
    int busy = 0;
    for (size_t i = 0; i <= group->count; i++)
        busy += weir__executor_step(member(group, i), 0) > 0;
    return busy;
}

bool weir__manual_is_mine(const weir_group *group)
{
    return group != NULL && group->is_manual && pthread_equal(group->maker, pthread_self());
}

int weir_group_step(weir_group *group)
{
    return weir__manual_is_mine(group) ? step(group) : -EPERM;
}

/* The sooner of two times to wait, of which negative is never. */
static int64_t sooner(int64_t a_ns, int64_t b_ns)
{
    if (a_ns < 0 || b_ns < 0)
        return a_ns < 0 ? b_ns : a_ns;
    return a_ns < b_ns ? a_ns : b_ns;
}

static int64_t next_ns(weir_group *group)
{
    weir_clock *clock = weir_group_at(group, 0)->clock;
    int64_t soonest_ns = clock->next_ns != NULL ? clock->next_ns(clock) : -1;
    for (size_t i = 0; i <= group->count; i++) {
        if (!is_over(member(group, i)) && !member(group, i)->is_in_turn)
            soonest_ns = sooner(soonest_ns, weir__executor_next_ns(member(group, i)));
    }
    return soonest_ns;
}

int64_t weir_group_next_ns(weir_group *group)
{
    return weir__manual_is_mine(group) ? next_ns(group) : INT64_MIN;
}

/* Waiting ------------------------------------------------------------------------------------ */

static weir_clock *thread_clock(void)
{
    return weir_group_at(group_of(weir__list_first(&groups)), 0)->clock;
}

#define MOST_DESCRIPTORS 64

/* The blocking wait, under a name that a stack trace shows. */
static void wait_for_groups(int64_t timeout_ns)
{
    struct pollfd fds[MOST_DESCRIPTORS];
    unsigned count = 0;
    weir_sys *sys = weir__sys_linux();
    FOR_EACH_GROUP(group)
    {
        for (size_t i = 0; i <= group->count && count < MOST_DESCRIPTORS; i++) {
            weir_executor *executor = member(group, i);
            if (!is_over(executor))
                fds[count++] = (struct pollfd){ .fd = executor->type->descriptor(executor),
                                                .events = POLLIN };
        }
    }
    /* Who drives more than that is looked after every so often. */
    if (count == MOST_DESCRIPTORS)
        timeout_ns = sooner(timeout_ns, 1000000);
    sys->poll(sys, fds, count, timeout_ns);
    /* Those whose task is waiting here take no wake-up themselves. */
    FOR_EACH_GROUP(group)
    {
        for (size_t i = 0; i <= group->count; i++) {
            if (member(group, i)->is_in_turn)
                member(group, i)->type->wait(member(group, i), 0);
        }
    }
}

/* Moves every clock of the thread that does not run by itself. */
static bool skip(int64_t step_ns)
{
    bool has_skipped = false;
    FOR_EACH_GROUP(group)
    {
        weir_clock *clock = weir_group_at(group, 0)->clock;
        bool is_first_with_it = true;
        for (weir_group *before = group_of(weir__list_first(&groups)); before != group;
             before = group_of(weir__list_next(&groups, &before->link)))
            is_first_with_it &= weir_group_at(before, 0)->clock != clock;
        if (clock->skip != NULL && is_first_with_it) {
            clock->skip(clock, step_ns);
            has_skipped = true;
        }
    }
    return has_skipped;
}

/* Lets time pass until something happens, at most `left_ns`; false when nothing ever will. */
static bool pass_time(const weir_future *future, int64_t left_ns)
{
    int64_t soonest_ns = left_ns;
    FOR_EACH_GROUP(group)
    soonest_ns = sooner(soonest_ns, next_ns(group));
    bool is_virtual = thread_clock()->skip != NULL && !weir__future_is_others_work(future);
    if (is_virtual && soonest_ns < 0)
        return false;
    if (!is_virtual || !skip(soonest_ns))
        wait_for_groups(soonest_ns);
    return true;
}

static int wait_by_stepping(weir_future *future, int64_t timeout_ns)
{
    weir_clock *clock = thread_clock();
    int64_t start_ns = weir_clock_now_ns(clock);
    while (!weir_future_is_done(future)) {
        int busy = 0;
        FOR_EACH_GROUP(group)
        busy += step(group);
        if (weir_future_is_done(future))
            break;
        int64_t left_ns = -1;
        if (timeout_ns >= 0) {
            left_ns = timeout_ns - (weir_clock_now_ns(clock) - start_ns);
            if (left_ns <= 0 && (busy == 0 || clock->skip == NULL))
                return -ETIMEDOUT;
        }
        if (busy == 0 && !pass_time(future, left_ns))
            return -EDEADLK;
    }
    return 0;
}

int weir__manual_wait(weir_future *future, int64_t timeout_ns)
{
    waiter self = { .executor = group_of(weir__list_first(&groups))->background };
    pthread_mutex_lock(&waiters_lock);
    weir__list_push_back(&waiters, &self.node);
    pthread_mutex_unlock(&waiters_lock);
    int code = wait_by_stepping(future, timeout_ns);
    pthread_mutex_lock(&waiters_lock);
    weir__list_remove(&self.node);
    pthread_mutex_unlock(&waiters_lock);
    return code;
}

/* Whether it sleeps or not: it may be its own task that waits. */
static void wake(weir_executor *executor)
{
    if (executor != NULL)
        executor->type->wake(executor);
}

void weir__manual_wake_waiting(void)
{
    pthread_mutex_lock(&waiters_lock);
    for (weir_list_node *node = weir__list_first(&waiters); node != NULL;
         node = weir__list_next(&waiters, node))
        wake(WEIR_CONTAINER(node, waiter, node)->executor);
    pthread_mutex_unlock(&waiters_lock);
}
