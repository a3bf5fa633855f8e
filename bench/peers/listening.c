/* SPDX-License-Identifier: MIT */
/* What the echo servers of the peers share: a listening socket that is the same for all of them. */
#include "peers/listening.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

struct sockaddr_in listening_address(const char *option, const char *text)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    char host[INET_ADDRSTRLEN];
    unsigned port;
    int length = 0;
    if (sscanf(text, "%15[0-9.]:%5u%n", host, &port, &length) != 2 || text[length] != '\0' ||
        port > UINT16_MAX || inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "%s: '%s' is no ADDRESS:PORT of IPv4\n", option, text);
        exit(2);
    }
    address.sin_port = htons((uint16_t)port);
    return address;
}

static void end_well(int number)
{
    (void)number;
    _exit(0); /* nothing is left that the kernel does not clear up */
}

static void handle_signals(void)
{
    struct sigaction action = { .sa_handler = end_well };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

int listening_open(int argc, char **argv)
{
    if (argc != 1 && (argc != 3 || strcmp(argv[1], "--listen") != 0)) {
        fprintf(stderr, "usage: %s [--listen ADDRESS:PORT]\n", argv[0]);
        exit(2);
    }
    return listening_open_at(argc == 3 ? argv[2] : "127.0.0.1:8007");
}

int listening_open_at(const char *text)
{
    struct sockaddr_in address = listening_address("--listen", text);
    handle_signals();
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("socket");
    const int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
        fail("setsockopt");
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("bind");
    if (listen(fd, LISTENING_BACKLOG) < 0)
        fail("listen");
    return fd;
}

void listening_announce(int fd)
{
    struct sockaddr_in address = { 0 };
    socklen_t length = sizeof address;
    char host[INET_ADDRSTRLEN];
    if (getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        fail("getsockname");
    printf("listening on %s:%u\n", inet_ntop(AF_INET, &address.sin_addr, host, sizeof host),
           ntohs(address.sin_port));
    fflush(stdout);
}
