/* SPDX-License-Identifier: MIT */
/* The fault hook. */
#include "base/fault.h"

_Atomic(weir_fault_fn) weir__fault_fn;
static _Atomic(void *) fault_arg;

/* A thread that has read the function before keeps the argument that belongs to it. */
void weir_fault_set(weir_fault_fn fn, void *arg)
{
    if (fn != NULL)
        atomic_store(&fault_arg, arg);
    atomic_store(&weir__fault_fn, fn);
}

__attribute__((noinline, cold)) int weir__fault_ask(const char *call, size_t *length)
{
    weir_fault_fn fn = atomic_load(&weir__fault_fn);
    if (fn == NULL)
        return 0;
    size_t asked = length != NULL ? *length : 0;
    int code = fn(atomic_load(&fault_arg), call, length);
    if (length != NULL && *length > asked)
        *length = asked; /* the caller's memory ends there */
    return code < 0 ? code : 0;
}
