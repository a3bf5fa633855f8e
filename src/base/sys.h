/* SPDX-License-Identifier: MIT */
/* The system call seam: the kernel as a table of functions that a loop can be given another of. */
#ifndef WEIR_BASE_SYS_H
#define WEIR_BASE_SYS_H

#include <weir/api.h>

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* What a thread is made with. */
typedef struct weir_thread_config {
    const char *name;   /* cut to 15 bytes; NULL: its creator's */
    size_t stack_bytes; /* 0: the system's default */
    int cpu;            /* the only one it may run on; negative: any */
} weir_thread_config;

/*
 * Each function means what the system call of its name does, but returns a negative code
 * where that sets errno, and never retries: -EINTR is the caller's to handle. Lengths above
 * INT_MAX are cut, as the kernel itself does. Every descriptor is made close-on-exec and sockets
 * and eventfds non-blocking, so that none forgets to ask. The fault hook knows each function by its
 * name here, but for epoll_create1, accept4,
 * pipe2, fcntl, pthread_create and getrandom.
 */
typedef struct weir_sys weir_sys;
struct io_uring_params;
struct weir_sys {
    int (*close)(weir_sys *sys, int fd);
    /* Makes a descriptor that somebody else opened as ours are: close-on-exec and non-blocking. */
    int (*own)(weir_sys *sys, int fd);
    int (*read)(weir_sys *sys, int fd, void *to, size_t length);
    int (*write)(weir_sys *sys, int fd, const void *from, size_t length);

    int (*eventfd)(weir_sys *sys, unsigned count);
    int (*epoll_create)(weir_sys *sys);
    int (*epoll_ctl)(weir_sys *sys, int epoll, int operation, int fd, struct epoll_event *event);
    /* `timeout_ns` is negative to wait for ever; epoll_pwait2, or epoll_wait on old kernels. */
    int (*epoll_wait)(weir_sys *sys, int epoll, struct epoll_event *events, int max,
                      int64_t timeout_ns);
    /* ppoll, with the same timeout. */
    int (*poll)(weir_sys *sys, struct pollfd *fds, unsigned count, int64_t timeout_ns);
    int (*signalfd)(weir_sys *sys, const sigset_t *signals);

    /* io_uring. `arg` and `size` of enter are as its flags say, those of register as its opcode
     * says. */
    int (*io_uring_setup)(weir_sys *sys, unsigned entries, struct io_uring_params *params);
    int (*io_uring_enter)(weir_sys *sys, int ring, unsigned to_submit, unsigned least,
                          unsigned flags, const void *arg, size_t size);
    int (*io_uring_register)(weir_sys *sys, int ring, unsigned opcode, const void *arg,
                             unsigned count);

    int (*socket)(weir_sys *sys, int family, int type, int protocol);
    int (*bind)(weir_sys *sys, int fd, const struct sockaddr *address, socklen_t length);
    int (*listen)(weir_sys *sys, int fd, int backlog);
    int (*accept)(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length);
    int (*connect)(weir_sys *sys, int fd, const struct sockaddr *address, socklen_t length);
    int (*shutdown)(weir_sys *sys, int fd, int how);
    int (*getsockopt)(weir_sys *sys, int fd, int level, int name, void *value, socklen_t *length);
    int (*setsockopt)(weir_sys *sys, int fd, int level, int name, const void *value,
                      socklen_t length);
    int (*getsockname)(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length);
    int (*getpeername)(weir_sys *sys, int fd, struct sockaddr *address, socklen_t *length);
    int (*recv)(weir_sys *sys, int fd, void *to, size_t length, int flags);
    int (*send)(weir_sys *sys, int fd, const void *from, size_t length, int flags);
    int (*recvmsg)(weir_sys *sys, int fd, struct msghdr *message, int flags);
    int (*sendmsg)(weir_sys *sys, int fd, const struct msghdr *message, int flags);
    /* How many of the messages went or came; a code only when that is none. */
    int (*recvmmsg)(weir_sys *sys, int fd, struct mmsghdr *messages, unsigned count, int flags);
    int (*sendmmsg)(weir_sys *sys, int fd, struct mmsghdr *messages, unsigned count, int flags);

    /* Files, and bytes that go from one descriptor to another without passing through here. The
     * offset says from where, and is not changed. */
    int (*open)(weir_sys *sys, const char *path, int flags); /* what it makes is only this user's */
    int (*fstat)(weir_sys *sys, int fd, struct stat *facts);
    int (*lstat)(weir_sys *sys, const char *path, struct stat *facts);
    int (*unlink)(weir_sys *sys, const char *path);
    int (*pread)(weir_sys *sys, int fd, void *to, size_t length, uint64_t offset);
    /* The same for bytes in the page cache: preadv2 with RWF_NOWAIT. -EAGAIN: they are on the disk;
     * -EOPNOTSUPP: the file system cannot tell. 0 is no sure EOF (Linux 5.9 and 5.10). */
    int (*pread_cached)(weir_sys *sys, int fd, void *to, size_t length, uint64_t offset);
    int (*sendfile)(weir_sys *sys, int to, int from, uint64_t offset, size_t length);
    int (*pipe)(weir_sys *sys, int ends[2]); /* non-blocking, too */
    int (*splice)(weir_sys *sys, int from, int to, size_t length, unsigned flags);

    /* Asks the name service, which takes time: 0 and a list for freeaddrinfo, or an EAI_ number,
     * which is negative as well. With EAI_SYSTEM the error is in errno. */
    int (*getaddrinfo)(weir_sys *sys, const char *host, const char *service,
                       const struct addrinfo *hints, struct addrinfo **list);
    void (*freeaddrinfo)(weir_sys *sys, struct addrinfo *list);

    /*
     * Threads and chance. The new thread has all signals blocked, but for those of its own faults.
     * It is the creator's to join, or detaches itself. What `thread` points to is written before
     * this returns, but maybe not before `run` begins.
     */
    int (*thread_create)(weir_sys *sys, pthread_t *thread, const weir_thread_config *config,
                         void *(*run)(void *), void *arg);
    int (*random)(weir_sys *sys, void *to, size_t length);
};

/* The signal mask of weir's threads, for the calling one. */
void weir__sys_block_signals(sigset_t *before);

/* Linux itself, with the fault hook in front of every call. */
weir_sys *weir__sys_linux(void);

#endif
