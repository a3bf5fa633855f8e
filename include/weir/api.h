/* SPDX-License-Identifier: MIT */
/* What every public header needs: linkage, visibility and compiler attributes. */
#ifndef WEIR_API_H
#define WEIR_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Around the declarations of each header: C linkage in C++. */
#ifdef __cplusplus
#define WEIR_BEGIN_DECLS extern "C" {
#define WEIR_END_DECLS }
#else
#define WEIR_BEGIN_DECLS
#define WEIR_END_DECLS
#endif

/* Everything without it stays inside the library. */
#define WEIR_API __attribute__((visibility("default")))

/* Has the compiler check the arguments of a function that takes a format. */
#define WEIR_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))

/*
 * An atomic field of a public struct. C++ has no _Atomic; it sees the plain type,
 * which has the same size and alignment, and never touches such a field itself.
 */
#ifdef __cplusplus
#define WEIR_ATOMIC(type) type
#else
#define WEIR_ATOMIC(type) _Atomic(type)
#endif

/* A cast that neither language warns about. */
#ifdef __cplusplus
#define WEIR__CAST(type, value) static_cast<type>(value)
#else
#define WEIR__CAST(type, value) ((type)(value))
#endif

/* What every message passes through: such functions lie together, in few pages. */
#define WEIR__HOT __attribute__((hot))

/* What seldom follows from it: neither in line nor among them. */
#define WEIR__BESIDE __attribute__((noinline, cold))

/** The struct of `type` whose `member` is at `pointer`: how a callback gets from what weir hands
 * it, a task or a timer, to what that is embedded in. */
#ifdef __cplusplus
#define WEIR_CONTAINER(pointer, type, member)                                                      \
    reinterpret_cast<type *>(reinterpret_cast<char *>(pointer) - offsetof(type, member))
#else
#define WEIR_CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
#endif

/* In a config 0 means the default; a field where "none" is itself a wish takes this. */
#define WEIR_OFF (-1)

#endif
