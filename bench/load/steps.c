/* SPDX-License-Identifier: MIT */
/* A thread that traces all threads of the process: each stop is a step. */
#include "steps.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

struct steps {
    pid_t pid;
    uint64_t count;
    int error; /* why it is not traced */
    sem_t begun;
    pthread_t tracer;
};

/* Threads that it starts are traced from their first instruction. */
static bool seize_thread(pid_t thread)
{
    uintptr_t options = PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
    return ptrace(PTRACE_SEIZE, thread, NULL, options) == 0 &&
           ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0;
}

static int seize_process(pid_t pid)
{
    char path[64];
    int error = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return errno;
    for (const struct dirent *entry; error == 0 && (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] != '.' && !seize_thread((pid_t)atoi(entry->d_name)))
            error = errno;
    }
    closedir(tasks);
    return error;
}

/* Lets a thread that has stopped run one instruction. A stop for another reason is no step. */
static void step(steps *self, pid_t thread, int status)
{
    bool is_event = status >> 16 != 0, is_step = !is_event && WSTOPSIG(status) == SIGTRAP;
    uintptr_t signal = is_event || is_step ? 0 : (uintptr_t)WSTOPSIG(status);
    self->count += is_step;
    ptrace(PTRACE_SINGLESTEP, thread, NULL, signal); /* it may be gone: that is reported next */
}

/* On the CPU of the process no step has to wake another one. */
static void share_cpu(pid_t pid)
{
    cpu_set_t cpus;
    if (sched_getaffinity(pid, sizeof cpus, &cpus) == 0)
        sched_setaffinity(0, sizeof cpus, &cpus);
}

static void *trace(void *arg)
{
    steps *self = arg;
    int status;
    share_cpu(self->pid);
    self->error = seize_process(self->pid);
    bool is_traced = self->error == 0;
    sem_post(&self->begun);
    for (pid_t thread; is_traced && (thread = waitpid(-1, &status, __WALL)) > 0;) {
        if (WIFSTOPPED(status))
            step(self, thread, status);
    }
    return NULL;
}

steps *steps_begin(pid_t pid)
{
    steps *self = calloc(1, sizeof *self);
    if (self == NULL)
        abort();
    self->pid = pid;
    sem_init(&self->begun, 0, 0);
    if (pthread_create(&self->tracer, NULL, trace, self) != 0)
        abort();
    while (sem_wait(&self->begun) < 0)
        ;
    if (self->error != 0) {
        fprintf(stderr, "weir-load: --steps: cannot trace %d: %s\n", pid, strerror(self->error));
        exit(1);
    }
    return self;
}

uint64_t steps_end(steps *self)
{
    if (self == NULL)
        return 0;
    kill(self->pid, SIGKILL);
    pthread_join(self->tracer, NULL);
    uint64_t count = self->count;
    sem_destroy(&self->begun);
    free(self);
    return count;
}
