/* SPDX-License-Identifier: MIT */
/* What fuzz targets share. */
#ifndef WEIR_FUZZ_H
#define WEIR_FUZZ_H

#include <weir/buf.h>
#include <weir/leak.h>
#include <weir/log.h>

#include <stdlib.h>

/* What the fuzzer calls. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Before the first input. Whether operations are to be printed: WEIR_FUZZ_TRACE. */
static inline bool fuzz_begin(void)
{
    /* A stack for every message costs more than all the rest, and the counters show a leak. */
    if (getenv("WEIR_LEAK") == NULL)
        weir_leak_set_mode(WEIR_LEAK_OFF);
    weir_log_set(WEIR_LOG_OFF, NULL, NULL);
    weir_buf_release(weir_buf_new(0)); /* the thread's pool exists from here on */
    return getenv("WEIR_FUZZ_TRACE") != NULL;
}

#endif
