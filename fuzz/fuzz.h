/* SPDX-License-Identifier: MIT */
/* What fuzz targets share. */
#ifndef WEIR_FUZZ_H
#define WEIR_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the fuzzer calls: begin.c has the first of them, and each target its second. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whether operations are to be printed: WEIR_FUZZ_TRACE. */
extern bool fuzz_is_tracing;

#endif
