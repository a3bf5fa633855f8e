/* SPDX-License-Identifier: MIT */
/* Back traces as text. */
#ifndef WEIR_BASE_TRACE_H
#define WEIR_BASE_TRACE_H

#include <stddef.h>

/* Writes one line per frame, indented, as many as fit. */
void weir__trace_write(void *const *frames, int count, char *text, size_t size);

#endif
