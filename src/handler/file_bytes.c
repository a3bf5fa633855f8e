/* SPDX-License-Identifier: MIT */
/* The file bytes handler: the chunked handler, which makes inputs of files. */
#include <weir/file_bytes.h>

#include "handler/chunked.h"

static void file_bytes_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    if (msg->type == &weir_file_region_type) {
        weir_chunked_config config = { .file = (weir_file_region *)msg };
        weir_chunked *input;
        int code = weir_chunked_new(&input, &config);
        if (code < 0) {
            weir_ctx_refuse_write(ctx, msg, promise, code);
            return;
        }
        msg = &input->msg;
    }
    weir__chunked_write(ctx, msg, promise);
}

const weir_handler_type weir_file_bytes_handler = {
    .name = "file bytes",
    WEIR__CHUNKED_CALLBACKS,
    .write = file_bytes_write,
};
