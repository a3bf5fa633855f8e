/* SPDX-License-Identifier: MIT */
/* Linked into the programs that the thread sanitizer leaves out (see CMakeLists.txt): it makes sure
 * that they really start no thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

typedef void *(*thread_fn)(void *arg);

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, thread_fn fn, void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, thread_fn fn, void *arg);

/* The first one is the harness's own: start_first_thread. */
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, thread_fn fn, void *arg)
{
    static atomic_int count;
    if (atomic_fetch_add(&count, 1) > 0) {
        fprintf(stderr, "a program of the list one_thread in tests/CMakeLists.txt starts a thread: "
                        "remove it there, so that the thread sanitizer sees it\n");
        abort();
    }
    return __real_pthread_create(thread, attr, fn, arg);
}
