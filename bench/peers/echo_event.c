/* SPDX-License-Identifier: MIT */
/* echo-event: libevent's bufferevents. What was read moves to the output without a copy. */
#include "peers/listening.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdio.h>

/* As weir's water marks: above the high one nothing more is read, until the low one. */
#define HIGH_BYTES 65536
#define LOW_BYTES 32768

static void on_read(struct bufferevent *connection, void *arg);
static void on_event(struct bufferevent *connection, short what, void *arg);

static void on_drained(struct bufferevent *connection, void *arg)
{
    bufferevent_setcb(connection, on_read, NULL, on_event, arg);
    bufferevent_setwatermark(connection, EV_WRITE, 0, 0);
    bufferevent_enable(connection, EV_READ);
}

static void on_read(struct bufferevent *connection, void *arg)
{
    struct evbuffer *output = bufferevent_get_output(connection);
    evbuffer_add_buffer(output, bufferevent_get_input(connection));
    if (evbuffer_get_length(output) > HIGH_BYTES) {
        bufferevent_disable(connection, EV_READ);
        bufferevent_setcb(connection, on_read, on_drained, on_event, arg);
        bufferevent_setwatermark(connection, EV_WRITE, LOW_BYTES, 0);
    }
}

static void on_all_sent(struct bufferevent *connection, void *arg)
{
    (void)arg;
    bufferevent_free(connection);
}

static void on_event(struct bufferevent *connection, short what, void *arg)
{
    struct evbuffer *output = bufferevent_get_output(connection);
    if ((what & BEV_EVENT_ERROR) || evbuffer_get_length(output) == 0) {
        bufferevent_free(connection);
    } else if (what & BEV_EVENT_EOF) { /* once the last answer is sent */
        bufferevent_disable(connection, EV_READ);
        bufferevent_setwatermark(connection, EV_WRITE, 0, 0);
        bufferevent_setcb(connection, NULL, on_all_sent, on_event, arg);
    }
}

static void on_connection(struct evconnlistener *listener, evutil_socket_t fd,
                          struct sockaddr *address, int length, void *arg)
{
    (void)address;
    (void)length;
    struct bufferevent *connection = bufferevent_socket_new(evconnlistener_get_base(listener), fd,
                                                            BEV_OPT_CLOSE_ON_FREE);
    if (connection == NULL) {
        evutil_closesocket(fd);
        return;
    }
    bufferevent_setcb(connection, on_read, NULL, on_event, arg);
    bufferevent_enable(connection, EV_READ | EV_WRITE);
}

int main(int argc, char **argv)
{
    int fd = listening_open(argc, argv);
    struct event_base *base = event_base_new();
    struct evconnlistener *listener = base == NULL
                                          ? NULL
                                          : evconnlistener_new(base, on_connection, NULL,
                                                               LEV_OPT_CLOSE_ON_EXEC,
                                                               0 /* it listens already */, fd);
    if (listener == NULL) {
        fputs("libevent: no listener\n", stderr);
        return 1;
    }
    listening_announce(fd);
    return event_base_dispatch(base);
}
