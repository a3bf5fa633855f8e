/* SPDX-License-Identifier: MIT */
/* The system calls of Linux, each behind the fault hook. */
#include "base/sys.h"

#include "base/fault.h"
#include "base/sanitizer.h"
#include "base/syscall.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* Leaves the calling wrapper with the fault's code, if there is one. */
#define FAULT(call, length)                                                                        \
    do {                                                                                           \
        int fault_ = weir__fault(call, length);                                                    \
        if (fault_ < 0)                                                                            \
            return fault_;                                                                         \
    } while (0)

static int result_of(long result)
{
    return result < 0 ? -errno : (int)result;
}

static size_t cut(size_t length)
{
    return length < INT_MAX ? length : INT_MAX;
}

static int sys_close(weir_sys *sys, int fd)
{
    (void)sys;
    /* The descriptor is gone whatever close answers, so a fault comes after it. */
    int result = result_of(close(fd));
    FAULT("close", NULL);
    return result;
}

static int sys_own(weir_sys *sys, int fd)
{
    (void)sys;
    FAULT("fcntl", NULL);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    return result_of(fcntl(fd, F_SETFL, flags | O_NONBLOCK));
}

static int sys_read(weir_sys *sys, int fd, void *to, size_t length)
{
    (void)sys;
    FAULT("read", &length);
    return result_of(read(fd, to, cut(length)));
}

static int sys_write(weir_sys *sys, int fd, const void *from, size_t length)
{
    (void)sys;
    FAULT("write", &length);
    return result_of(write(fd, from, cut(length)));
}

static int sys_eventfd(weir_sys *sys, unsigned count)
{
    (void)sys;
    FAULT("eventfd", NULL);
    return result_of(eventfd(count, EFD_CLOEXEC | EFD_NONBLOCK));
}

static int sys_epoll_create(weir_sys *sys)
{
    (void)sys;
    FAULT("epoll_create1", NULL);
    return result_of(epoll_create1(EPOLL_CLOEXEC));
}

static int sys_epoll_ctl(weir_sys *sys, int epoll, int operation, int fd, struct epoll_event *event)
{
    (void)sys;
    FAULT("epoll_ctl", NULL);
    return result_of(epoll_ctl(epoll, operation, fd, event));
}

/* Rounded up, so that a wait never ends before its time and spins. */
static int milliseconds(int64_t timeout_ns)
{
    if (timeout_ns < 0)
        return -1;
    int64_t ms = timeout_ns / 1000000 + (timeout_ns % 1000000 != 0);
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

WEIR__HOT static int sys_epoll_wait(weir_sys *sys, int epoll, struct epoll_event *events, int max,
                                    int64_t timeout_ns)
{
    /* Set once epoll_pwait2 has answered ENOSYS: kernels before 5.11, and valgrind. The memory
     * sanitizer does not know what it fills in. */
    static _Atomic(bool) lacks_pwait2 = WEIR__HAS_MSAN;

    (void)sys;
    FAULT("epoll_wait", NULL);
    if (!atomic_load_explicit(&lacks_pwait2, memory_order_relaxed)) {
        struct timespec timeout = timespec_of(timeout_ns);
        int result =
            result_of(epoll_pwait2(epoll, events, max, timeout_ns < 0 ? NULL : &timeout, NULL));
        if (result != -ENOSYS)
            return result;
        atomic_store_explicit(&lacks_pwait2, true, memory_order_relaxed);
    }
    return result_of(epoll_wait(epoll, events, max, milliseconds(timeout_ns)));
}

static int sys_poll(weir_sys *sys, struct pollfd *fds, unsigned count, int64_t timeout_ns)
{
    (void)sys;
    FAULT("poll", NULL);
    struct timespec timeout = timespec_of(timeout_ns);
    return result_of(ppoll(fds, count, timeout_ns < 0 ? NULL : &timeout, NULL));
}

static int sys_signalfd(weir_sys *sys, const sigset_t *signals)
{
    (void)sys;
    FAULT("signalfd", NULL);
    return result_of(signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

static int sys_io_uring_setup(weir_sys *sys, unsigned entries, struct io_uring_params *params)
{
    (void)sys;
    FAULT("io_uring_setup", NULL);
    return result_of(syscall(SYS_io_uring_setup, entries, params)); /* close-on-exec by itself */
}

static int sys_io_uring_enter(weir_sys *sys, int ring, unsigned to_submit, unsigned least,
                              unsigned flags, const void *arg, size_t size)
{
    (void)sys;
    FAULT("io_uring_enter", NULL);
    return result_of(syscall(SYS_io_uring_enter, ring, to_submit, least, flags, arg, size));
}

static int sys_io_uring_register(weir_sys *sys, int ring, unsigned opcode, const void *arg,
                                 unsigned count)
{
    (void)sys;
    FAULT("io_uring_register", NULL);
    return result_of(syscall(SYS_io_uring_register, ring, opcode, arg, count));
}

static int sys_socket(weir_sys *sys, int family, int type, int protocol)
{
    (void)sys;
    FAULT("socket", NULL);
    return result_of(socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
}

static int sys_bind(weir_sys *sys, int fd, const struct sockaddr *address, socklen_t length)
{
    (void)sys;
    FAULT("bind", NULL);
    return result_of(bind(fd, address, length));
}

static int sys_listen(weir_sys *sys, int fd, int backlog)
{
    (void)sys;
    FAULT("listen", NULL);
    return result_of(listen(fd, backlog));
}

static int sys_accept(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length)
{
    (void)sys;
    FAULT("accept4", NULL);
    return result_of(accept4(fd, address, length, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

static int sys_connect(weir_sys *sys, int fd, const struct sockaddr *address, socklen_t length)
{
    (void)sys;
    FAULT("connect", NULL);
    return result_of(connect(fd, address, length));
}

static int sys_shutdown(weir_sys *sys, int fd, int how)
{
    (void)sys;
    FAULT("shutdown", NULL);
    return result_of(shutdown(fd, how));
}

static int sys_getsockopt(weir_sys *sys, int fd, int level, int name, void *value,
                          socklen_t *length)
{
    (void)sys;
    FAULT("getsockopt", NULL);
    return result_of(getsockopt(fd, level, name, value, length));
}

static int sys_setsockopt(weir_sys *sys, int fd, int level, int name, const void *value,
                          socklen_t length)
{
    (void)sys;
    FAULT("setsockopt", NULL);
    return result_of(setsockopt(fd, level, name, value, length));
}

static int sys_getsockname(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length)
{
    (void)sys;
    FAULT("getsockname", NULL);
    return result_of(getsockname(fd, address, length));
}

static int sys_getpeername(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length)
{
    (void)sys;
    FAULT("getpeername", NULL);
    return result_of(getpeername(fd, address, length));
}

/*
 * The calls of every message. glibc's are points where a thread may be cancelled, and prepare for
 * that each time once there are two threads; weir's threads are never cancelled. The sanitizers
 * know only glibc's.
 */
#define IS_SANITIZED (WEIR__HAS_ASAN || WEIR__HAS_TSAN || WEIR__HAS_MSAN)

static inline int receive(int fd, void *to, size_t length, int flags)
{
    return IS_SANITIZED ? result_of(recv(fd, to, cut(length), flags))
                        : (int)weir__syscall(SYS_recvfrom, fd, (long)to, (long)length, flags);
}

static inline int transmit(int fd, const void *from, size_t length, int flags)
{
    return IS_SANITIZED ? result_of(send(fd, from, cut(length), flags))
                        : (int)weir__syscall(SYS_sendto, fd, (long)from, (long)length, flags);
}

/* Apart, because what the hook may change has to be in memory. */
WEIR__BESIDE static int receive_with_fault(int fd, void *to, size_t length, int flags)
{
    FAULT("recv", &length);
    return receive(fd, to, length, flags);
}

WEIR__BESIDE static int transmit_with_fault(int fd, const void *from, size_t length, int flags)
{
    FAULT("send", &length);
    return transmit(fd, from, length, flags);
}

WEIR__HOT static int sys_recv(weir_sys *sys, int fd, void *to, size_t length, int flags)
{
    (void)sys;
    return weir__has_faults() ? receive_with_fault(fd, to, length, flags)
                              : receive(fd, to, length, flags);
}

WEIR__HOT static int sys_send(weir_sys *sys, int fd, const void *from, size_t length, int flags)
{
    (void)sys;
    return weir__has_faults() ? transmit_with_fault(fd, from, length, flags)
                              : transmit(fd, from, length, flags);
}

static size_t total(const struct msghdr *message)
{
    size_t length = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++)
        length += message->msg_iov[i].iov_len;
    return length;
}

#define CUT_ROOM 16

/* Makes a message of the first `length` bytes of this one, for a fault that asked for less. */
static void cut_message(struct msghdr *message, size_t length, struct iovec iov[CUT_ROOM])
{
    size_t count = 0;
    while (length > 0 && count < message->msg_iovlen && count < CUT_ROOM) {
        iov[count] = message->msg_iov[count];
        if (iov[count].iov_len > length)
            iov[count].iov_len = length;
        length -= iov[count].iov_len;
        count++;
    }
    message->msg_iov = iov;
    message->msg_iovlen = count;
}

static int sys_recvmsg(weir_sys *sys, int fd, struct msghdr *message, int flags)
{
    (void)sys;
    size_t asked = total(message), length = asked;
    FAULT("recvmsg", &length);
    if (length >= asked)
        return result_of(recvmsg(fd, message, flags));
    struct iovec iov[CUT_ROOM];
    struct msghdr shorter = *message;
    cut_message(&shorter, length, iov);
    int result = result_of(recvmsg(fd, &shorter, flags));
    message->msg_namelen = shorter.msg_namelen;
    message->msg_controllen = shorter.msg_controllen;
    message->msg_flags = shorter.msg_flags;
    return result;
}

static int sys_sendmsg(weir_sys *sys, int fd, const struct msghdr *message, int flags)
{
    (void)sys;
    size_t asked = total(message), length = asked;
    FAULT("sendmsg", &length);
    if (length >= asked)
        return result_of(sendmsg(fd, message, flags));
    struct iovec iov[CUT_ROOM];
    struct msghdr shorter = *message;
    cut_message(&shorter, length, iov);
    return result_of(sendmsg(fd, &shorter, flags));
}

static int sys_recvmmsg(weir_sys *sys, int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    (void)sys;
    FAULT("recvmmsg", NULL);
    return result_of(recvmmsg(fd, messages, count, flags, NULL));
}

static int sys_sendmmsg(weir_sys *sys, int fd, struct mmsghdr *messages, unsigned count, int flags)
{
    (void)sys;
    FAULT("sendmmsg", NULL);
    return result_of(sendmmsg(fd, messages, count, flags));
}

static int sys_open(weir_sys *sys, const char *path, int flags)
{
    (void)sys;
    FAULT("open", NULL);
    return result_of(open(path, flags | O_CLOEXEC, S_IRUSR | S_IWUSR));
}

static int sys_fstat(weir_sys *sys, int fd, struct stat *facts)
{
    (void)sys;
    FAULT("fstat", NULL);
    return result_of(fstat(fd, facts));
}

static int sys_lstat(weir_sys *sys, const char *path, struct stat *facts)
{
    (void)sys;
    FAULT("lstat", NULL);
    return result_of(lstat(path, facts));
}

static int sys_unlink(weir_sys *sys, const char *path)
{
    (void)sys;
    FAULT("unlink", NULL);
    return result_of(unlink(path));
}

static int sys_pread(weir_sys *sys, int fd, void *to, size_t length, uint64_t offset)
{
    (void)sys;
    FAULT("pread", &length);
    return result_of(pread(fd, to, cut(length), (off_t)offset));
}

static int sys_pread_cached(weir_sys *sys, int fd, void *to, size_t length, uint64_t offset)
{
    (void)sys;
    FAULT("pread_cached", &length);
    struct iovec part = { to, cut(length) };
    int code = result_of(preadv2(fd, &part, 1, (off_t)offset, RWF_NOWAIT));
    weir__note_written(to, code > 0 ? (size_t)code : 0);
    return code;
}

/* These two know no MSG_NOSIGNAL. weir's own threads have SIGPIPE blocked anyway; for others, who
 * step a group by hand, it is kept from them while the call is made. */
static _Thread_local bool has_signals_blocked;

static void hold_sigpipe(sigset_t *before)
{
    sigset_t sigpipe;
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    if (!has_signals_blocked)
        pthread_sigmask(SIG_BLOCK, &sigpipe, before);
}

static int let_sigpipe_go(const sigset_t *before, int result)
{
    if (has_signals_blocked || sigismember(before, SIGPIPE))
        return result;
    sigset_t sigpipe;
    const struct timespec at_once = { 0 };
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    if (result == -EPIPE || result >= 0) /* or some of it went before */
        sigtimedwait(&sigpipe, NULL, &at_once);
    pthread_sigmask(SIG_SETMASK, before, NULL);
    return result;
}

static int sys_sendfile(weir_sys *sys, int to, int from, uint64_t offset, size_t length)
{
    (void)sys;
    off_t at = (off_t)offset;
    FAULT("sendfile", &length);
    sigset_t before;
    hold_sigpipe(&before);
    return let_sigpipe_go(&before, result_of(sendfile(to, from, &at, cut(length))));
}

static int sys_pipe(weir_sys *sys, int ends[2])
{
    (void)sys;
    FAULT("pipe2", NULL);
    return result_of(pipe2(ends, O_CLOEXEC | O_NONBLOCK));
}

static int sys_splice(weir_sys *sys, int from, int to, size_t length, unsigned flags)
{
    (void)sys;
    FAULT("splice", &length);
    sigset_t before;
    hold_sigpipe(&before);
    return let_sigpipe_go(&before, result_of(splice(from, NULL, to, NULL, cut(length), flags)));
}

/* EAI_AGAIN stands for whatever fault there is: the name service has no other words. */
static int sys_getaddrinfo(weir_sys *sys, const char *host, const char *service,
                           const struct addrinfo *hints, struct addrinfo **list)
{
    (void)sys;
    if (weir__fault("getaddrinfo", NULL) < 0)
        return EAI_AGAIN;
    return getaddrinfo(host, service, hints, list);
}

static void sys_freeaddrinfo(weir_sys *sys, struct addrinfo *list)
{
    (void)sys;
    freeaddrinfo(list);
}

/* A signal belongs to the program's own threads; the new one inherits this mask. But what the
 * thread itself does wrong must reach the program's handler for it. */
void weir__sys_block_signals(sigset_t *before)
{
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sigdelset(&all, own[i]);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

static int apply(pthread_attr_t *attributes, const weir_thread_config *config)
{
    int error = 0;
    if (config->stack_bytes > 0)
        error = pthread_attr_setstacksize(attributes, config->stack_bytes);
    if (error == 0 && config->cpu >= 0) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((unsigned)config->cpu, &cpus);
        error = pthread_attr_setaffinity_np(attributes, sizeof cpus, &cpus);
    }
    return error;
}

/* What a new thread needs to know. It lives on its creator's stack, who waits until it was read:
 * the creator must not touch the new thread once that is on its way, for it may be over by then. */
typedef struct thread_start {
    void *(*run)(void *arg);
    void *arg;
    const char *name;
    sem_t was_read;
} thread_start;

static void *start_thread(void *arg)
{
    thread_start *start = arg;
    void *(*run)(void *) = start->run;
    void *run_arg = start->arg;
    if (start->name != NULL) {
        char cut_name[16];
        snprintf(cut_name, sizeof cut_name, "%s", start->name);
        pthread_setname_np(pthread_self(),
                           cut_name); /* cosmetic: without it the thread still runs */
    }
    sem_post(&start->was_read);
    has_signals_blocked = true;
    return run(run_arg);
}

static int sys_thread_create(weir_sys *sys, pthread_t *thread, const weir_thread_config *config,
                             void *(*run)(void *), void *arg)
{
    (void)sys;
    FAULT("pthread_create", NULL);
    thread_start start = { .run = run, .arg = arg, .name = config->name };
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return -error;
    sem_init(&start.was_read, 0, 0);
    error = apply(&attributes, config);
    if (error == 0) {
        sigset_t before;
        weir__sys_block_signals(&before);
        error = pthread_create(thread, &attributes, start_thread, &start);
        while (error == 0 && sem_wait(&start.was_read) != 0) {
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    sem_destroy(&start.was_read);
    pthread_attr_destroy(&attributes);
    return -error;
}

static int sys_random(weir_sys *sys, void *to, size_t length)
{
    (void)sys;
    FAULT("getrandom", NULL);
    /* Up to 256 bytes come whole and without interruption; more is asked for in pieces. */
    for (size_t done = 0; done < length;) {
        size_t piece = length - done < 256 ? length - done : 256;
        int result = result_of(getrandom((char *)to + done, piece, 0));
        if (result < 0)
            return result;
        done += (size_t)result;
    }
    return 0;
}

weir_sys *weir__sys_linux(void)
{
    static weir_sys linux_calls = {
        .close = sys_close,
        .own = sys_own,
        .read = sys_read,
        .write = sys_write,
        .eventfd = sys_eventfd,
        .epoll_create = sys_epoll_create,
        .epoll_ctl = sys_epoll_ctl,
        .epoll_wait = sys_epoll_wait,
        .poll = sys_poll,
        .signalfd = sys_signalfd,
        .io_uring_setup = sys_io_uring_setup,
        .io_uring_enter = sys_io_uring_enter,
        .io_uring_register = sys_io_uring_register,
        .socket = sys_socket,
        .bind = sys_bind,
        .listen = sys_listen,
        .accept = sys_accept,
        .connect = sys_connect,
        .shutdown = sys_shutdown,
        .getsockopt = sys_getsockopt,
        .setsockopt = sys_setsockopt,
        .getsockname = sys_getsockname,
        .getpeername = sys_getpeername,
        .recv = sys_recv,
        .send = sys_send,
        .recvmsg = sys_recvmsg,
        .sendmsg = sys_sendmsg,
        .recvmmsg = sys_recvmmsg,
        .sendmmsg = sys_sendmmsg,
        .open = sys_open,
        .fstat = sys_fstat,
        .lstat = sys_lstat,
        .unlink = sys_unlink,
        .pread = sys_pread,
        .pread_cached = sys_pread_cached,
        .sendfile = sys_sendfile,
        .pipe = sys_pipe,
        .splice = sys_splice,
        .getaddrinfo = sys_getaddrinfo,
        .freeaddrinfo = sys_freeaddrinfo,
        .thread_create = sys_thread_create,
        .random = sys_random,
    };
    return &linux_calls;
}
