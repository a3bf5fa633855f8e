/* SPDX-License-Identifier: MIT */
/* Connections that are there and do nothing: what each of them takes of the server's memory. Each
 * sends one message first, so that the server has accepted it and used what it uses. */
#include "load.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MS = 10000 };

static int exchange(int fd, const load_pattern *pattern)
{
    uint8_t bytes[65536];
    size_t got = 0;
    if (load_send(fd, pattern->bytes, pattern->size) != (ssize_t)pattern->size)
        return -1;
    while (got < pattern->size) {
        struct pollfd entry = { .fd = fd, .events = POLLIN };
        ssize_t code = -1;
        if (poll(&entry, 1, ANSWER_MS) == 1)
            code = load_recv(fd, bytes, sizeof bytes);
        if (code < 0 && errno == EAGAIN)
            continue; /* it was nothing but TLS */
        if (code <= 0 || !load_pattern_fits(pattern, got, bytes, (size_t)code))
            return -1;
        got += (size_t)code;
    }
    return 0;
}

static void hold(load_span *span)
{
    load_span_warm_up(span);
    while (!load_span_is_over(span, load_now_ns()))
        usleep(1000);
    load_span_close(span);
}

int load_idle(const load_settings *settings, load_result *result)
{
    load_target target;
    load_span span;
    load_pattern pattern;
    int *fds = calloc(settings->connections, sizeof *fds);
    if (fds == NULL)
        abort();
    load_pattern_init(&pattern, settings->size, settings->size);
    int code = load_target_from(&target, settings->to) == 0 &&
                       load_span_open(&span, settings, result) &&
                       load_target_connect_all(&target, fds, settings->connections) == 0
                   ? 0
                   : -1;
    bool is_connected = code == 0;
    for (unsigned i = 0; i < settings->connections && code == 0; i++) {
        code = exchange(fds[i], &pattern);
        if (code < 0)
            fprintf(stderr, "weir-load: %s: connection %u got no answer\n", settings->to, i + 1);
        result->messages += code == 0;
    }
    if (code == 0)
        hold(&span);
    for (unsigned i = 0; i < settings->connections && is_connected; i++)
        load_close(fds[i]);
    free(fds);
    load_pattern_end(&pattern);
    return code;
}
