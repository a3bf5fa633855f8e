/* SPDX-License-Identifier: MIT */
/* Where the load goes to, and what it consists of. */
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    CONNECT_MS = 10000,
    SOURCES = 200,         /* 127.0.0.2 and on */
    CONNECTS_AT_ONCE = 64, /* less than any server's backlog */
};

/* Addresses ------------------------------------------------------------------------------------ */

static int target_from_path(load_target *self, const char *path)
{
    struct sockaddr_un *to = (struct sockaddr_un *)&self->address;
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof to->sun_path) {
        fprintf(stderr, "weir-load: unix:%s: a path of 1 to %zu bytes is wanted\n", path,
                sizeof to->sun_path - 1);
        return -1;
    }
    to->sun_family = AF_UNIX;
    memcpy(to->sun_path, path, length);
    self->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (path[0] == '@')
        to->sun_path[0] = '\0';
    else
        self->length++;
    return 0;
}

int load_target_from(load_target *self, const char *text)
{
    *self = (load_target){ .length = 0 };
    if (strncmp(text, "unix:", 5) == 0)
        return target_from_path(self, text + 5);
    char host[256];
    const char *colon = strrchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : 0;
    bool is_bracketed = length >= 2 && text[0] == '[' && text[length - 1] == ']';
    if (colon == NULL || length >= sizeof host || length == 0) {
        fprintf(stderr, "weir-load: '%s' is no address like 127.0.0.1:7000\n", text);
        return -1;
    }
    snprintf(host, sizeof host, "%.*s", (int)(is_bracketed ? length - 2 : length),
             is_bracketed ? text + 1 : text);
    struct addrinfo wish = { .ai_socktype = SOCK_STREAM }, *found;
    int code = getaddrinfo(host, colon + 1, &wish, &found);
    if (code != 0) {
        fprintf(stderr, "weir-load: %s: %s\n", text, gai_strerror(code));
        return -1;
    }
    memcpy(&self->address, found->ai_addr, found->ai_addrlen);
    self->length = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

/* Connecting ----------------------------------------------------------------------------------- */

/* A closed connection keeps its port for a minute: one address would soon be out of them. */
static void choose_source(load_target *self, int fd)
{
    const struct sockaddr_in *to = (const struct sockaddr_in *)&self->address;
    int yes = 1;
    if (to->sin_family != AF_INET || ntohl(to->sin_addr.s_addr) >> 24 != 127)
        return;
    struct sockaddr_in from = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(0x7f000002u + self->next_source++ % SOURCES),
    };
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    (void)bind(fd, (const struct sockaddr *)&from, sizeof from); /* any other will do, too */
}

int load_target_connect(load_target *self)
{
    int yes = 1;
    int fd = socket(self->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (self->address.ss_family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    choose_source(self, fd);
    if (connect(fd, (const struct sockaddr *)&self->address, self->length) == 0 ||
        errno == EINPROGRESS)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int wait_connected(int fd)
{
    struct pollfd entry = { .fd = fd, .events = POLLOUT };
    int error = ETIMEDOUT;
    socklen_t length = sizeof error;
    if (poll(&entry, 1, CONNECT_MS) == 1)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

/* A few at a time, so that no server's backlog overflows, and none waits long for a handshake. */
int load_target_connect_all(load_target *self, int *fds, unsigned count)
{
    unsigned begun = 0, done = 0;
    int error = 0;
    while (done < count && error == 0) {
        if (begun < count && begun - done < CONNECTS_AT_ONCE) {
            fds[begun] = load_target_connect(self);
            error = fds[begun] < 0 ? errno : 0;
            begun += error == 0;
        } else {
            error = wait_connected(fds[done]);
            if (error == 0 && load_shake(fds[done]) < 0)
                error = EPROTO;
            done += error == 0;
        }
    }
    if (error == 0)
        return 0;
    fprintf(stderr, "weir-load: connection %u of %u: %s\n", done + 1, count, strerror(error));
    while (begun > 0)
        load_close(fds[--begun]);
    return -1;
}

/* Bytes ---------------------------------------------------------------------------------------- */

void load_pattern_init(load_pattern *self, size_t size, size_t least)
{
    size_t length = (least + size - 1) / size * size;
    *self = (load_pattern){ .bytes = malloc(length), .size = size, .length = length };
    if (self->bytes == NULL)
        abort();
    for (size_t i = 0; i < length; i++)
        self->bytes[i] = (uint8_t)('a' + i % size % 23);
}

bool load_pattern_fits(const load_pattern *self, size_t at, const uint8_t *bytes, size_t length)
{
    for (at %= self->size; length > 0; at = 0) {
        size_t part = self->length - at < length ? self->length - at : length;
        if (memcmp(bytes, self->bytes + at, part) != 0)
            return false;
        bytes += part;
        length -= part;
    }
    return true;
}

void load_pattern_end(load_pattern *self)
{
    free(self->bytes);
}
