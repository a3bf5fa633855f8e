/* SPDX-License-Identifier: MIT */
/* What every target does before the first input. */
#include "fuzz.h"

#include <weir/buf.h>
#include <weir/leak.h>
#include <weir/log.h>

#include <stdlib.h>

bool fuzz_is_tracing;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    /* A stack for every message costs more than all the rest, and the counters show a leak. */
    if (getenv("WEIR_LEAK") == NULL)
        weir_leak_set_mode(WEIR_LEAK_OFF);
    weir_log_set(WEIR_LOG_OFF, NULL, NULL);
    weir_buf_release(weir_buf_new(0)); /* the thread's pool exists from here on */
    fuzz_is_tracing = getenv("WEIR_FUZZ_TRACE") != NULL;
    return 0;
}
