/* SPDX-License-Identifier: MIT */
#include "watch.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SAMPLES_PER_SECOND = 3989, /* a prime: it keeps step with nothing */
    RING_PAGES = 16,
    DRAIN_US = 100000, /* the ring holds ten times what comes in that time */
};

typedef struct watched_thread {
    pid_t tid;
    int samples_fd, entries_fd; /* -1: not to be had */
    struct perf_event_mmap_page *ring;
} watched_thread;

struct watch {
    pid_t pid;
    watched_thread *threads;
    size_t count;
    size_t page_bytes;
    bool has_samples, has_entries;
    uint64_t user_samples, kernel_samples;
    double cpu_ns, user_ticks, system_ticks; /* when it was started */
    pthread_t drainer;
    bool is_running; /* atomically */
};

/* What /proc says ------------------------------------------------------------------------------ */

static bool read_file(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    size_t length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    fclose(file);
    return true;
}

/* By the scheduler's account, which is exact. */
static double cpu_of(const watch *self)
{
    double sum = 0;
    for (size_t i = 0; i < self->count; i++) {
        char path[64], text[128];
        unsigned long long ns;
        snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", self->pid, self->threads[i].tid);
        if (read_file(path, text, sizeof text) && sscanf(text, "%llu", &ns) == 1)
            sum += (double)ns;
    }
    return sum;
}

/* Where the kernel's clock found it when it ticked: rough, but there without any rights. */
static void ticks_of(const watch *self, double *user, double *system)
{
    char path[64], text[1024];
    unsigned long ticks[2] = { 0, 0 };
    snprintf(path, sizeof path, "/proc/%d/stat", self->pid);
    const char *behind_name = read_file(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    if (behind_name != NULL)
        sscanf(behind_name, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &ticks[0],
               &ticks[1]);
    *user = (double)ticks[0];
    *system = (double)ticks[1];
}

int64_t watch_resident_kib(const watch *self)
{
    char path[64], text[4096];
    long long kib;
    snprintf(path, sizeof path, "/proc/%d/status", self->pid);
    const char *line = read_file(path, text, sizeof text) ? strstr(text, "RssAnon:") : NULL;
    return line != NULL && sscanf(line, "RssAnon: %lld", &kib) == 1 ? kib : -1;
}

/* What perf says ------------------------------------------------------------------------------- */

static int open_event(struct perf_event_attr *attr, pid_t tid)
{
    attr->size = sizeof *attr;
    attr->disabled = 1;
    return (int)syscall(SYS_perf_event_open, attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static int open_entries(pid_t tid)
{
    static const char *const places[] = {
        "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
        "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
    };
    char text[32];
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (read_file(places[i], text, sizeof text)) {
            struct perf_event_attr attr = {
                .type = PERF_TYPE_TRACEPOINT,
                .config = strtoull(text, NULL, 10),
            };
            return open_event(&attr, tid);
        }
    }
    return -1;
}

static int open_samples(pid_t tid)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_freq = SAMPLES_PER_SECOND,
        .freq = 1,
        .sample_type = PERF_SAMPLE_IP,
    };
    return open_event(&attr, tid);
}

static void open_thread(watch *self, watched_thread *thread)
{
    size_t bytes = (1 + RING_PAGES) * self->page_bytes;
    thread->entries_fd = open_entries(thread->tid);
    thread->samples_fd = open_samples(thread->tid);
    thread->ring = MAP_FAILED;
    if (thread->samples_fd >= 0)
        thread->ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, thread->samples_fd, 0);
    self->has_entries = self->has_entries && thread->entries_fd >= 0;
    self->has_samples = self->has_samples && thread->ring != MAP_FAILED;
}

/* A record may be cut by the end of the ring; its header, which is all that is looked at, is not:
 * records are multiples of eight bytes. */
static void drain(watch *self, const watched_thread *thread)
{
    const char *data = (const char *)thread->ring + self->page_bytes;
    uint64_t size = RING_PAGES * self->page_bytes, tail = thread->ring->data_tail;
    uint64_t head = __atomic_load_n(&thread->ring->data_head, __ATOMIC_ACQUIRE);
    while (tail < head) {
        struct perf_event_header header;
        memcpy(&header, data + tail % size, sizeof header);
        unsigned mode = header.misc & PERF_RECORD_MISC_CPUMODE_MASK;
        if (header.type == PERF_RECORD_SAMPLE && mode == PERF_RECORD_MISC_USER)
            self->user_samples++;
        else if (header.type == PERF_RECORD_SAMPLE)
            self->kernel_samples++;
        tail += header.size;
    }
    __atomic_store_n(&thread->ring->data_tail, tail, __ATOMIC_RELEASE);
}

static void drain_all(watch *self)
{
    for (size_t i = 0; i < self->count; i++)
        drain(self, &self->threads[i]);
}

static void *drain_meanwhile(void *arg)
{
    watch *self = arg;
    while (__atomic_load_n(&self->is_running, __ATOMIC_ACQUIRE)) {
        usleep(DRAIN_US);
        drain_all(self);
    }
    return NULL;
}

static void for_all_events(const watch *self, unsigned long request)
{
    for (size_t i = 0; i < self->count; i++) {
        if (self->has_samples)
            ioctl(self->threads[i].samples_fd, request, 0);
        if (self->has_entries)
            ioctl(self->threads[i].entries_fd, request, 0);
    }
}

static int64_t count_entries(const watch *self)
{
    int64_t sum = 0;
    for (size_t i = 0; i < self->count; i++) {
        uint64_t value;
        if (read(self->threads[i].entries_fd, &value, sizeof value) == sizeof value)
            sum += (int64_t)value;
    }
    return sum;
}

/* A watch -------------------------------------------------------------------------------------- */

static void add_thread(watch *self, pid_t tid)
{
    watched_thread *threads = realloc(self->threads, (self->count + 1) * sizeof *threads);
    if (threads == NULL)
        abort();
    self->threads = threads;
    self->threads[self->count] = (watched_thread){ .tid = tid };
    open_thread(self, &self->threads[self->count++]);
}

watch *watch_begin(pid_t pid)
{
    if (kill(pid, 0) < 0 && errno == ESRCH) {
        fprintf(stderr, "weir-load: --watch %d: there is no such process\n", pid);
        return NULL;
    }
    watch *self = calloc(1, sizeof *self);
    if (self == NULL)
        abort();
    *self = (watch){
        .pid = pid,
        .page_bytes = (size_t)sysconf(_SC_PAGESIZE),
        .has_samples = true,
        .has_entries = true,
    };
    return self;
}

static void add_threads(watch *self)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", self->pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] != '.')
            add_thread(self, (pid_t)strtol(entry->d_name, NULL, 10));
    }
    closedir(tasks);
}

void watch_start(watch *self)
{
    add_threads(self);
    self->cpu_ns = cpu_of(self);
    ticks_of(self, &self->user_ticks, &self->system_ticks);
    for_all_events(self, PERF_EVENT_IOC_RESET);
    for_all_events(self, PERF_EVENT_IOC_ENABLE);
    if (!self->has_samples)
        return;
    self->is_running = true;
    if (pthread_create(&self->drainer, NULL, drain_meanwhile, self) != 0)
        abort();
}

static void share_by_samples(watch *self, watch_result *result)
{
    drain_all(self);
    uint64_t all = self->user_samples + self->kernel_samples;
    result->samples = (int64_t)all;
    result->user_share = all > 0 ? (double)self->user_samples / (double)all : -1;
}

static void share_by_ticks(const watch *self, watch_result *result)
{
    double user, system;
    ticks_of(self, &user, &system);
    user -= self->user_ticks;
    system -= self->system_ticks;
    result->samples = 0;
    result->user_share = user + system > 0 ? user / (user + system) : -1;
}

void watch_stop(watch *self, watch_result *result)
{
    for_all_events(self, PERF_EVENT_IOC_DISABLE);
    result->cpu_ns = cpu_of(self) - self->cpu_ns;
    result->entries = self->has_entries ? count_entries(self) : -1;
    result->resident_kib = watch_resident_kib(self);
    if (!self->has_samples) {
        share_by_ticks(self, result);
        return;
    }
    __atomic_store_n(&self->is_running, false, __ATOMIC_RELEASE);
    pthread_join(self->drainer, NULL);
    share_by_samples(self, result);
}

void watch_end(watch *self)
{
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->count; i++) {
        if (self->threads[i].ring != MAP_FAILED)
            munmap(self->threads[i].ring, (1 + RING_PAGES) * self->page_bytes);
        if (self->threads[i].samples_fd >= 0)
            close(self->threads[i].samples_fd);
        if (self->threads[i].entries_fd >= 0)
            close(self->threads[i].entries_fd);
    }
    free(self->threads);
    free(self);
}
