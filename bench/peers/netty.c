/* SPDX-License-Identifier: MIT */
/* Netty beside weir: a JVM for each case, which is told what to do by lines through a pipe. */
#include "peers/peers.h"
#include "peers/work.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t jvm;
static FILE *to_jvm, *from_jvm;

/* The JVM ends when its input does. */
static void end_jvm(void)
{
    fclose(to_jvm);
    fclose(from_jvm);
    waitpid(jvm, NULL, 0);
}

_Noreturn static void become_jvm(int input, int output)
{
    dup2(input, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    execl(BENCH_JAVA, BENCH_JAVA, "-cp", BENCH_NETTY_CLASSPATH, "NettyPeer", (char *)NULL);
    bench_fail("cannot run %s: %s", BENCH_JAVA, strerror(errno));
}

static void start_jvm(void)
{
    int to[2], from[2];
    if (pipe(to) < 0 || pipe(from) < 0)
        bench_fail("cannot make a pipe: %s", strerror(errno));
    jvm = fork();
    if (jvm < 0)
        bench_fail("cannot fork: %s", strerror(errno));
    if (jvm == 0) {
        close(to[1]);
        become_jvm(to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    to_jvm = fdopen(to[1], "w");
    from_jvm = fdopen(from[0], "r");
    if (to_jvm == NULL || from_jvm == NULL)
        bench_fail("no streams to the JVM: %s", strerror(errno));
    atexit(end_jvm);
}

static void pin_task(pid_t task)
{
    char path[64], name[32] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)jvm, (int)task);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return; /* it ended just now */
    if (fgets(name, sizeof name, file) == NULL)
        name[0] = '\0';
    fclose(file);
    if (strncmp(name, "loop", 4) == 0)
        bench_pin_thread(task, 0);
    else if (strncmp(name, "control", 7) == 0)
        bench_pin_thread(task, BENCH_BUT_FIRST);
}

/* As the work's threads here: Java's have the names of their Thread objects, and the producers
 * inherit from the thread that makes them. The compiler's and the collector's go where they like.
 */
static void pin_jvm(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)jvm);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        bench_fail("cannot look into %s: %s", path, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] != '.')
            pin_task((pid_t)atoi(entry->d_name));
    }
    closedir(tasks);
}

static uint64_t tell(const char *verb, const char *what, size_t size, uint64_t count)
{
    uint64_t answer;
    fprintf(to_jvm, "%s %s %zu %" PRIu64 " %d\n", verb, what, size, count, WORK_WINDOW);
    fflush(to_jvm);
    if (fscanf(from_jvm, "%" SCNu64, &answer) != 1)
        bench_fail("Netty's program has no answer to '%s %s'", verb, what);
    return answer;
}

static uint64_t time_netty(const char *what, size_t size, uint64_t count)
{
    if (to_jvm == NULL) {
        start_jvm();
        tell("warm", what, size, count); /* until its code is compiled, some seconds */
        pin_jvm();
    }
    return tell("run", what, size, count);
}

static void run_netty(bench_run *run, const char *what)
{
    bench_take(run, time_netty(what, run->size, run->count));
}

void peer_netty_tasks(bench_run *run)
{
    run_netty(run, "tasks");
}

void peer_netty_schedule_cancel(bench_run *run)
{
    run_netty(run, "schedule_cancel");
}

void peer_netty_reschedule(bench_run *run)
{
    run_netty(run, "reschedule");
}

void peer_netty_schedule_fire(bench_run *run)
{
    run_netty(run, "schedule_fire");
}

void peer_netty_read(bench_run *run)
{
    run_netty(run, "read");
}

static uint64_t time_read(void *arg, size_t handlers, uint64_t count)
{
    (void)arg;
    return time_netty("read", handlers, count);
}

void peer_netty_hop(bench_run *run)
{
    work_run_difference(run, WORK_FEW_HOPS, WORK_MANY_HOPS, time_read, NULL);
}

void peer_netty_length_field(bench_run *run)
{
    run_netty(run, "length_field");
}
