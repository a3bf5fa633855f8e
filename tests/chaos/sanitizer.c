/* SPDX-License-Identifier: MIT */
/* Where the thread sanitizer is wrong. */

#if defined(__SANITIZE_THREAD__)

const char *__tsan_default_suppressions(void);
const char *__tsan_default_options(void);

/* A report ends the process, so that it is the seed's. */
const char *__tsan_default_options(void)
{
    return "halt_on_error=1";
}

/* liburing unmaps a ring by itself, so the sanitizer takes the next ring at the same address for
 * the same memory. Only accesses to the ring itself are left out: the innermost function counts.
 * And OpenSSL is not compiled for it. */
const char *__tsan_default_suppressions(void)
{
    return "race_top:weir__uring_make_ring\n"
           "race_top:weir__uring_next\n"
           "race_top:complete_all\n"
           "race_top:io_uring_\n"
           "called_from_lib:libcrypto.so\n"
           "called_from_lib:libssl.so\n";
}

#else

typedef int nothing_to_suppress; /* a file must not be empty */

#endif
