/* SPDX-License-Identifier: MIT */
/* Simulated descriptors, and how an epoll watches them. */
#include "base/alloc.h"
#include "testing/sim.h"

#include <errno.h>

/* Numbers ------------------------------------------------------------------------------------ */

static int make_room(weir_sim *sim)
{
    size_t room = sim->file_room > 0 ? 2 * sim->file_room : 64;
    weir_sim_file **files = weir__realloc(sim->files, room * sizeof(weir_sim_file *));
    if (files == NULL)
        return -ENOMEM;
    for (size_t i = sim->file_room; i < room; i++)
        files[i] = NULL;
    sim->files = files;
    sim->file_room = room;
    return 0;
}

/* The lowest number that is free, as the kernel does: so it does not depend on anything else. */
int weir__sim_file_open(weir_sim_host *host, weir_sim_file *file, weir_sim_kind kind)
{
    weir_sim *sim = host->sim;
    size_t at = 0;
    if (host->most_descriptors > 0 && host->descriptors >= host->most_descriptors)
        return -EMFILE;
    while (at < sim->file_room && sim->files[at] != NULL)
        at++;
    if (at == sim->file_room && make_room(sim) < 0)
        return -ENOMEM;
    file->kind = kind;
    file->fd = WEIR_SIM_FIRST_FD + (int)at;
    file->host = host;
    sim->files[at] = file;
    sim->file_count++;
    host->descriptors++;
    return file->fd;
}

void weir_sim_limit_descriptors(weir_sim_host *host, size_t most)
{
    host->most_descriptors = most;
}

weir_sim_file *weir__sim_file_at(const weir_sim *sim, int fd)
{
    size_t at = (size_t)fd - WEIR_SIM_FIRST_FD;
    return fd >= WEIR_SIM_FIRST_FD && at < sim->file_room ? sim->files[at] : NULL;
}

weir_sim_socket *weir__sim_socket_at(const weir_sim *sim, int fd)
{
    weir_sim_file *file = weir__sim_file_at(sim, fd);
    return file != NULL && file->kind == WEIR_SIM_SOCKET ? (weir_sim_socket *)file : NULL;
}

static weir_sim_epoll *epoll_at(const weir_sim *sim, int fd)
{
    weir_sim_file *file = weir__sim_file_at(sim, fd);
    return file != NULL && file->kind == WEIR_SIM_EPOLL ? (weir_sim_epoll *)file : NULL;
}

/* Watching ----------------------------------------------------------------------------------- */

static void unqueue(weir_sim_file *file)
{
    if (!weir__list_is_linked(&file->ready))
        return;
    weir__list_remove(&file->ready);
    file->host->sim->ready_count--;
}

static void queue(weir_sim_file *file)
{
    weir__list_push_back(&file->watcher->ready, &file->ready);
    file->host->sim->ready_count++;
}

static void unwatch(weir_sim_file *file)
{
    unqueue(file);
    file->watcher = NULL;
}

void weir__sim_file_news(weir_sim_file *file)
{
    if (file->watcher != NULL && !weir__list_is_linked(&file->ready))
        queue(file);
}

uint32_t weir__sim_file_events(weir_sim_file *file)
{
    if (file->kind == WEIR_SIM_SOCKET)
        return weir__sim_socket_events((weir_sim_socket *)file);
    bool is_readable = file->kind == WEIR_SIM_EPOLL
                           ? !weir__list_is_empty(&((weir_sim_epoll *)file)->ready)
                           : ((weir_sim_eventfd *)file)->count > 0;
    return is_readable ? EPOLLIN | EPOLLOUT : EPOLLOUT;
}

static uint32_t wanted_events(weir_sim_file *file)
{
    return weir__sim_file_events(file) & (file->watch.events | EPOLLERR | EPOLLHUP);
}

/* One that is watched by another epoll goes over to this one: that is how a backend is rebuilt. */
static int watch(weir_sim_epoll *epoll, weir_sim_file *file, const struct epoll_event *event)
{
    if (file->watcher == epoll)
        return -EEXIST;
    unwatch(file);
    file->watcher = epoll;
    file->watch = *event;
    if (wanted_events(file) != 0)
        queue(file);
    return 0;
}

int weir__sim_epoll_control(weir_sim *sim, int fd, int operation, int target,
                            const struct epoll_event *event)
{
    weir_sim_epoll *epoll = epoll_at(sim, fd);
    weir_sim_file *file = weir__sim_file_at(sim, target);
    if (epoll == NULL || file == NULL)
        return target < WEIR_SIM_FIRST_FD && target >= 0 ? -EPERM : -EBADF;
    if (operation == EPOLL_CTL_ADD)
        return watch(epoll, file, event);
    if (file->watcher != epoll)
        return -ENOENT;
    unwatch(file);
    return operation == EPOLL_CTL_DEL ? 0 : watch(epoll, file, event);
}

/* Waiting ------------------------------------------------------------------------------------ */

static size_t count_ready(const weir_sim_epoll *epoll)
{
    size_t count = 0;
    for (weir_list_node *node = weir__list_first(&epoll->ready); node != NULL;
         node = weir__list_next(&epoll->ready, node))
        count++;
    return count;
}

static weir_sim_file *nth_ready(const weir_sim_epoll *epoll, size_t n)
{
    weir_list_node *node = weir__list_first(&epoll->ready);
    while (n-- > 0)
        node = weir__list_next(&epoll->ready, node);
    return WEIR_CONTAINER(node, weir_sim_file, ready);
}

/* Each file that may have news is asked once, and told of if it has; for its level, as long as it
 * has it. An order that is drawn leaves some to the next time. */
int weir__sim_epoll_wait(weir_sim *sim, int fd, struct epoll_event *events, int max)
{
    weir_sim_epoll *epoll = epoll_at(sim, fd);
    if (epoll == NULL)
        return -EBADF;
    weir__sim_catch_up(sim);
    int found = 0;
    size_t count = count_ready(epoll);
    bool is_drawn = count > 1 && weir_sim_chance(sim, sim->config.reorder);
    size_t left = is_drawn ? 1 + (size_t)weir_sim_random(sim, count) : count;
    for (; left > 0 && found < max; left--, count--) {
        weir_sim_file *file = nth_ready(epoll, is_drawn ? weir_sim_random(sim, count) : 0);
        uint32_t told = wanted_events(file);
        unqueue(file);
        if (told == 0)
            continue;
        events[found++] = (struct epoll_event){ .events = told, .data = file->watch.data };
        if (!(file->watch.events & EPOLLET))
            queue(file);
    }
    return found;
}

/* Opening and closing ------------------------------------------------------------------------ */

int weir__sim_eventfd_open(weir_sim_host *host, unsigned count)
{
    weir_sim_eventfd *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    self->count = count;
    int fd = weir__sim_file_open(host, &self->file, WEIR_SIM_EVENTFD);
    if (fd < 0)
        weir__free(self);
    return fd;
}

int weir__sim_epoll_open(weir_sim_host *host)
{
    weir_sim_epoll *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return -ENOMEM;
    weir__list_init(&self->ready);
    int fd = weir__sim_file_open(host, &self->file, WEIR_SIM_EPOLL);
    if (fd < 0)
        weir__free(self);
    return fd;
}

void weir__sim_file_forget(weir_sim_file *file)
{
    weir_sim *sim = file->host->sim;
    unwatch(file);
    if (file->fd < 0)
        return;
    sim->files[file->fd - WEIR_SIM_FIRST_FD] = NULL;
    sim->file_count--;
    file->host->descriptors--;
}

static void unwatch_all(weir_sim *sim, const weir_sim_epoll *epoll)
{
    for (size_t i = 0; i < sim->file_room; i++) {
        if (sim->files[i] != NULL && sim->files[i]->watcher == epoll)
            unwatch(sim->files[i]);
    }
}

int weir__sim_close(weir_sim *sim, int fd)
{
    weir_sim_file *file = weir__sim_file_at(sim, fd);
    if (file == NULL)
        return -EBADF;
    if (file->kind == WEIR_SIM_SOCKET) {
        WEIR_SIM_NOTE(file, "close");
        weir__sim_socket_free((weir_sim_socket *)file);
        return 0;
    }
    if (file->kind == WEIR_SIM_EPOLL)
        unwatch_all(sim, (weir_sim_epoll *)file);
    weir__sim_file_forget(file);
    weir__free(file);
    return 0;
}
