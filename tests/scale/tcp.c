/* SPDX-License-Identifier: MIT */
/* TCP connections over loopback: weir's ends in this process, plain sockets in another one, so that
 * each has all descriptors for its own. */
#include "scale.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    AT_ONCE = 1000, /* less than the backlog */
    OWN_FILES = 64, /* descriptors that are no connections */
    SOURCES = 200,  /* loopback addresses to come from: each has its own ports */
    ANSWER_S = 60,
};

/* The process of clients ----------------------------------------------------------------------- */

typedef enum task { CONNECT, ASK } task;

typedef struct job {
    task what;
    unsigned count;
    unsigned port; /* as wide as the others, for all of it is sent */
} job;

typedef struct outcome {
    int error; /* errno, of the first that failed */
    unsigned done;
    scale_answers answers;
} outcome;

static int connect_from(unsigned source, uint16_t port)
{
    int yes = 1;
    struct timeval patience = { .tv_sec = ANSWER_S };
    struct sockaddr_in from = { .sin_family = AF_INET }, to = from;
    from.sin_addr.s_addr = htonl(0x7f000002u + source % SOURCES);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&from, sizeof from) == 0 &&
        connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One question, and its answer: 0 or errno. */
static int ask(int fd, unsigned nth, histogram *times)
{
    uint8_t question[SCALE_ASK_BYTES], answer[SCALE_ASK_BYTES];
    memset(question, (int)nth, sizeof question);
    uint64_t sent_ns = now_ns();
    if (send(fd, question, sizeof question, MSG_NOSIGNAL) != (ssize_t)sizeof question)
        return errno;
    errno = ECONNRESET; /* which an end would be */
    if (recv(fd, answer, sizeof answer, MSG_WAITALL) != (ssize_t)sizeof answer)
        return errno;
    histogram_add(times, now_ns() - sent_ns);
    return memcmp(question, answer, sizeof answer) == 0 ? 0 : EBADMSG;
}

static outcome carry_out(const job *order, int *fds, unsigned *open)
{
    outcome report = { 0 };
    histogram times = { 0 };
    for (unsigned i = 0; i < order->count && report.error == 0; i++) {
        if (order->what == ASK)
            report.error = ask(fds[i % SCALE_LIVE], i, &times);
        else if ((fds[*open] = connect_from(*open, (uint16_t)order->port)) < 0)
            report.error = errno;
        else
            ++*open;
        report.done += report.error == 0;
    }
    report.answers = scale_answers_of(&times);
    return report;
}

static void be_clients(int with, size_t most)
{
    job order;
    unsigned open = 0;
    int *fds = calloc(most, sizeof *fds);
    while (fds != NULL && read(with, &order, sizeof order) == (ssize_t)sizeof order) {
        outcome report = carry_out(&order, fds, &open);
        if (write(with, &report, sizeof report) != (ssize_t)sizeof report)
            break;
    }
    _exit(0); /* which closes all of them */
}

typedef struct clients {
    pid_t process;
    int with;
    uint16_t port;
} clients;

static clients start_clients(size_t most)
{
    int ends[2];
    clients self = { .process = -1 };
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return self;
    fflush(NULL);
    self.process = fork();
    if (self.process == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[1]);
        be_clients(ends[0], most);
    }
    close(ends[0]);
    self.with = ends[1];
    return self;
}

static outcome tell(const clients *self, task what, unsigned count)
{
    job order = { .what = what, .count = count, .port = self->port };
    outcome report = { .error = EPIPE };
    if (send(self->with, &order, sizeof order, MSG_NOSIGNAL) != (ssize_t)sizeof order ||
        recv(self->with, &report, sizeof report, MSG_WAITALL) != (ssize_t)sizeof report)
        report.error = EPIPE;
    return report;
}

static void end_clients(clients *self)
{
    close(self->with);
    if (self->process > 0)
        waitpid(self->process, NULL, 0);
}

/* The server ----------------------------------------------------------------------------------- */

/* The soft limit becomes the hard one; that is raised only for somebody who wants more, and may. */
static size_t raise_descriptor_limit(size_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    limit.rlim_cur = limit.rlim_max;
    if (wanted + OWN_FILES > limit.rlim_max) {
        struct rlimit more = { wanted + OWN_FILES, wanted + OWN_FILES };
        if (setrlimit(RLIMIT_NOFILE, &more) == 0)
            return wanted;
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur > OWN_FILES ? limit.rlim_cur - OWN_FILES : 0;
}

/* Connects up to so many, as far as memory goes; false when one fails. */
static bool connect_up_to(const clients *them, scale_counts *counts, size_t wanted,
                          scale_figures *figures)
{
    while (figures->connections < wanted) {
        size_t left = wanted - figures->connections;
        if (scale_is_memory_short()) {
            snprintf(figures->note, sizeof figures->note, "there is no memory for more than %zu",
                     figures->connections);
            return true;
        }
        outcome report = tell(them, CONNECT, (unsigned)(left < AT_ONCE ? left : AT_ONCE));
        figures->connections += report.done;
        scale_progress("tcp: connections", figures->connections, wanted);
        if (report.error != 0) {
            scale_fail(figures, "tcp: connection %zu: %s", figures->connections + 1,
                       strerror(report.error));
            return false;
        }
        if (!scale_wait_for("tcp: accepted", &counts->active, figures->connections)) {
            scale_fail(figures, "tcp: only %zu of %zu connections are accepted", counts->active,
                       figures->connections);
            return false;
        }
    }
    return true;
}

static scale_answers ask_some(const clients *them, unsigned count, scale_figures *figures)
{
    outcome report = tell(them, ASK, count);
    if (report.error != 0)
        scale_fail(figures, "tcp: question %u: %s", report.done + 1, strerror(report.error));
    return report.answers;
}

static void measure(const scale_settings *settings, const clients *them, size_t wanted,
                    scale_counts *counts, scale_figures *figures)
{
    if (!connect_up_to(them, counts, SCALE_LIVE, figures))
        return;
    if (figures->connections < SCALE_LIVE) {
        scale_fail(figures, "tcp: %s", figures->note);
        return;
    }
    figures->few = ask_some(them, settings->questions, figures);
    double user = scale_own_bytes(), kernel = scale_kernel_bytes(), begin_s = scale_now_s();
    if (!connect_up_to(them, counts, wanted, figures))
        return;
    figures->seconds = scale_now_s() - begin_s;
    figures->user_bytes = scale_own_bytes() - user;
    figures->kernel_bytes = kernel < 0 ? -1 : (scale_kernel_bytes() - kernel) / 2; /* of one end */
    figures->channels = figures->connections;
    figures->full = ask_some(them, settings->questions, figures);
    scale_watch_idle(settings, counts, figures);
}

static void serve(const scale_settings *settings, clients *them, size_t wanted,
                  scale_figures *figures)
{
    static scale_counts counts;
    weir_group *group;
    weir_server *server;
    weir_error error;
    weir_address address;
    counts.tick_ms = settings->tick_ms;
    if (weir_group_new(&group, &(weir_group_config){ .loops = 1 }, &error) < 0) {
        scale_fail(figures, "tcp: %s", error.message);
        return;
    }
    weir_server_config config = { .workers = group, .init_child = scale_add_echo, .arg = &counts };
    if (weir_server_listen(&server, &config, "127.0.0.1:0", &error) < 0) {
        scale_fail(figures, "tcp: %s", error.message);
        weir_group_free(group);
        return;
    }
    weir_server_address(server, &address);
    them->port = weir_address_port(&address);
    measure(settings, them, wanted, &counts, figures);
    double begin_s = scale_now_s();
    weir_server_drain(server, 0, NULL);
    if (!scale_wait_for("tcp: closed", &counts.inactive, counts.active))
        scale_fail(figures, "tcp: only %zu of %zu connections are closed", counts.inactive,
                   counts.active);
    figures->close_seconds = scale_now_s() - begin_s;
    weir_future_await(weir_server_closed(server));
    weir_server_release(server);
    weir_group_shutdown(group, 0, WEIR_SECONDS(10));
    weir_group_free(group);
}

void scale_tcp(const scale_settings *settings, scale_figures *figures)
{
    size_t most = raise_descriptor_limit(settings->tcp);
    size_t wanted = settings->tcp == 0 || settings->tcp > most ? most : settings->tcp;
    snprintf(figures->note, sizeof figures->note,
             wanted < settings->tcp || settings->tcp == 0
                 ? "as many as there are descriptors for (ulimit -Hn)"
                 : "as many as were asked for");
    if (wanted < SCALE_LIVE) {
        scale_fail(figures, "tcp: there are descriptors for %zu connections only", wanted);
        return;
    }
    clients them = start_clients(wanted);
    if (them.process < 0) {
        scale_fail(figures, "tcp: no process of clients: %s", strerror(errno));
        return;
    }
    serve(settings, &them, wanted, figures);
    end_clients(&them);
}
