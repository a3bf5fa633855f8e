/* SPDX-License-Identifier: MIT */
/* System calls without a detour: the result is the kernel's, a negative error number included. */
#ifndef WEIR_BASE_SYSCALL_H
#define WEIR_BASE_SYSCALL_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__) && !defined(__ILP32__)

static inline long weir__syscall(long number, long a, long b, long c, long d)
{
    long result;
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = 0;
    register long sixth __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
}

#elif defined(__aarch64__)

static inline long weir__syscall(long number, long a, long b, long c, long d)
{
    register long which __asm__("x8") = number;
    register long first __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    register long fifth __asm__("x4") = 0;
    register long sixth __asm__("x5") = 0;
    __asm__ volatile("svc 0"
                     : "+r"(first)
                     : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "memory");
    return first;
}

#else

static inline long weir__syscall(long number, long a, long b, long c, long d)
{
    long result = syscall(number, a, b, c, d, 0L, 0L);
    return result < 0 ? -errno : result;
}

#endif

#endif
