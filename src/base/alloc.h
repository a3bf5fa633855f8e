/* SPDX-License-Identifier: MIT */
/* The memory seam: all of weir's memory comes from here. */
#ifndef WEIR_BASE_ALLOC_H
#define WEIR_BASE_ALLOC_H

#include <weir/alloc.h>

/* Uninitialised memory, or NULL. */
void *weir__alloc(size_t size) __attribute__((malloc, warn_unused_result));

/* Memory of zeroes, or NULL. */
void *weir__zalloc(size_t size) __attribute__((malloc, warn_unused_result));

/* Grown or shrunk memory, or NULL, and then the old memory is as it was. */
void *weir__realloc(void *memory, size_t size) __attribute__((warn_unused_result));

/* NULL is fine. */
void weir__free(void *memory);

/* A copy of the string, or NULL. */
char *weir__strdup(const char *string) __attribute__((malloc, warn_unused_result));

#endif
