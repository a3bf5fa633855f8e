/* SPDX-License-Identifier: MIT */
/* Which sanitizer watches this build, by gcc's way of telling and by clang's. Each is 0 or 1. */
#ifndef WEIR_BASE_SANITIZER_H
#define WEIR_BASE_SANITIZER_H

#ifdef __has_feature
#define WEIR__HAS_FEATURE(name) __has_feature(name)
#else
#define WEIR__HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || WEIR__HAS_FEATURE(address_sanitizer)
#define WEIR__HAS_ASAN 1
#else
#define WEIR__HAS_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || WEIR__HAS_FEATURE(thread_sanitizer)
#define WEIR__HAS_TSAN 1
#else
#define WEIR__HAS_TSAN 0
#endif

#if WEIR__HAS_FEATURE(memory_sanitizer)
#define WEIR__HAS_MSAN 1
#include <sanitizer/msan_interface.h>
#else
#define WEIR__HAS_MSAN 0
#endif

#include <stddef.h>

/* The kernel has written to memory in a call that the memory sanitizer does not know. */
static inline void weir__note_written(const void *bytes, size_t length)
{
#if WEIR__HAS_MSAN
    __msan_unpoison(bytes, length);
#else
    (void)bytes;
    (void)length;
#endif
}

#endif
