/* SPDX-License-Identifier: MIT */
/* Files as chunked inputs. */
#ifndef WEIR_HANDLER_FILE_INPUT_H
#define WEIR_HANDLER_FILE_INPUT_H

#include "exec/blocking_pool.h"

#include <weir/chunked.h>

/* The part of a chunked input that reads its file. */
typedef struct weir_file_input {
    _Atomic(uint8_t) state;  /* see file_input.c */
    weir_blocking_call call; /* the read on another thread: of the chunk at `at` */
    uint64_t at;
    weir_buf *chunk; /* its result, or NULL and `code` */
    int code;
} weir_file_input;

/* A weir_chunked_pull_fn. */
weir_pulled weir__file_input_pull(weir_chunked *input, void *arg, weir_buf **chunk);
void weir__file_input_deinit(weir_file_input *self);

#endif
