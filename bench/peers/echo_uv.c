/* SPDX-License-Identifier: MIT */
/* echo-uv: libuv. All connections read into one buffer, and uv_try_write answers from there: what
 * the library's heaviest user, Node, does for speed, where the library's own example allocates for
 * each read and each write. */
#include "peers/listening.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

/* What the socket did not take; nothing is read meanwhile, so there is one per connection. */
typedef struct rest {
    uv_write_t request;
    char bytes[];
} rest;

static char buffer[64 * 1024];

static void check(int code, const char *what)
{
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", what, uv_strerror(code));
        exit(1);
    }
}

static void on_close(uv_handle_t *handle)
{
    free(handle);
}

static void end(uv_stream_t *stream)
{
    uv_close((uv_handle_t *)stream, on_close);
}

static void lend_buffer(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(buffer, sizeof buffer);
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buf);

static void on_written(uv_write_t *request, int code)
{
    uv_stream_t *stream = request->handle;
    free(request);
    if (code == UV_ECANCELED)
        return; /* it is being closed */
    if (code < 0 || uv_read_start(stream, lend_buffer, on_read) < 0)
        end(stream);
}

static int write_later(uv_stream_t *stream, const char *bytes, size_t length)
{
    rest *self = malloc(sizeof *self + length);
    if (self == NULL)
        return UV_ENOMEM;
    uv_buf_t buf = uv_buf_init(memcpy(self->bytes, bytes, length), (unsigned)length);
    uv_read_stop(stream);
    int code = uv_write(&self->request, stream, &buf, 1, on_written);
    if (code < 0)
        free(self);
    return code;
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buf)
{
    if (length == 0) /* there was nothing, after all */
        return;
    int code = (int)length; /* or UV_EOF: all that came before it is sent */
    if (length > 0) {
        uv_buf_t answer = uv_buf_init(buf->base, (unsigned)length);
        code = uv_try_write(stream, &answer, 1);
        if (code == UV_EAGAIN)
            code = 0;
        if (code >= 0 && code < length)
            code = write_later(stream, buf->base + code, (size_t)(length - code));
    }
    if (code < 0)
        end(stream);
}

static void on_connection(uv_stream_t *server, int code)
{
    uv_tcp_t *client = code < 0 ? NULL : malloc(sizeof *client);
    if (client == NULL)
        return;
    uv_tcp_init(server->loop, client);
    if (uv_accept(server, (uv_stream_t *)client) < 0 ||
        uv_read_start((uv_stream_t *)client, lend_buffer, on_read) < 0)
        end((uv_stream_t *)client);
}

int main(int argc, char **argv)
{
    int listener = listening_open(argc, argv);
    uv_loop_t *loop = uv_default_loop();
    uv_tcp_t server;
    check(uv_tcp_init(loop, &server), "uv_tcp_init");
    check(uv_tcp_open(&server, listener), "uv_tcp_open");
    check(uv_listen((uv_stream_t *)&server, LISTENING_BACKLOG, on_connection), "uv_listen");
    listening_announce(listener);
    return uv_run(loop, UV_RUN_DEFAULT);
}
