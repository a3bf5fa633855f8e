/* SPDX-License-Identifier: MIT */
/* Benchmarks of channels over sockets. */
#include "bench.h"
#include "bench_memory.h"

#include <weir/weir.h>

#include <arpa/inet.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process of clients that connect and then say nothing ------------------------------------- */

typedef struct crowd {
    pid_t process;
    int port; /* where the port is written to */
} crowd;

static void connect_all(int from, size_t count)
{
    uint16_t port;
    if (read(from, &port, sizeof port) != (ssize_t)sizeof port)
        _exit(1);
    struct sockaddr_in server = { .sin_family = AF_INET, .sin_port = htons(port) };
    server.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (size_t i = 0; i < count; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&server, sizeof server) < 0)
            _exit(1);
    }
    char byte;
    _exit(read(from, &byte, 1) == 0 ? 0 : 1); /* until the pipe is closed */
}

static crowd make_crowd(size_t count)
{
    int ends[2];
    if (pipe(ends) < 0)
        bench_fail("no pipe");
    crowd self = { fork(), ends[1] };
    if (self.process < 0)
        bench_fail("no process of clients");
    if (self.process == 0) {
        close(ends[1]);
        connect_all(ends[0], count);
    }
    close(ends[0]);
    return self;
}

static void end_crowd(const crowd *self)
{
    int status;
    close(self->port);
    waitpid(self->process, &status, 0);
    if (status != 0)
        bench_fail("a client could not connect");
}

/* Memory ------------------------------------------------------------------------------------- */

static void pass_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_fire_read(ctx, msg);
}

static const weir_handler_type passing = { .name = "passing", .on_read = pass_read };

static _Atomic(size_t) ready;

static int add_three(weir_channel *channel, void *arg)
{
    static const char *const names[] = { "framing", "codec", "service" };
    (void)arg;
    for (int i = 0; i < 3; i++) {
        int code = weir_pipeline_add_last(weir_channel_pipeline(channel), names[i], &passing, NULL);
        if (code < 0)
            return code;
    }
    ready++;
    return 0;
}

static weir_server *listen_on(weir_group *group, uint16_t *port)
{
    weir_error error;
    weir_server *server;
    weir_address address;
    const weir_server_config config = { .workers = group, .init_child = add_three };
    if (weir_server_listen(&server, &config, "127.0.0.1:0", &error) < 0)
        bench_fail("%s", error.message);
    weir_server_address(server, &address);
    *port = weir_address_port(&address);
    return server;
}

/* With everything that comes with them: their places in tables, and what the heap adds. */
static void idle_bytes(bench_run *run)
{
    weir_group *group;
    weir_error error;
    uint16_t port;
    const struct rlimit files = { run->size + 1000, run->size + 1000 };
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) < 0 ||
        (now.rlim_cur < files.rlim_cur && setrlimit(RLIMIT_NOFILE, &files) < 0))
        bench_fail("no %zu descriptors; try ulimit -n", run->size + 1000);
    bench_count_memory();
    crowd clients = make_crowd(run->size);
    if (weir_group_new(&group, &(weir_group_config){ .loops = 1 }, &error) < 0)
        bench_fail("%s", error.message);
    weir_server *server = listen_on(group, &port);
    size_t before = bench_held_bytes();
    ready = 0;
    if (write(clients.port, &port, sizeof port) != (ssize_t)sizeof port)
        bench_fail("no clients");
    while (ready < run->size)
        sched_yield();
    bench_report(run, (double)(bench_held_bytes() - before) / (double)run->size);
    weir_server_drain(server, 0, NULL);
    weir_future_await(weir_server_closed(server));
    weir_server_release(server);
    weir_group_shutdown(group, 0, WEIR_SECONDS(10));
    weir_group_free(group);
    end_crowd(&clients);
}

const bench_case bench_socket_cases[] = {
    { "socket.idle_bytes", "memory of one of 10,000 idle connections with three handlers",
      idle_bytes, .size = 10000, .unit = "bytes", .limit = 1024 },
    { 0 },
};
