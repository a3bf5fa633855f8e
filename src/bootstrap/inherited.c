/* SPDX-License-Identifier: MIT */
/* Sockets that whoever started the process has opened: by number, or as systemd hands them over. */
#include "bootstrap/server.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_DESCRIPTOR 3 /* of those from systemd */
#define MOST_DESCRIPTORS 1024

/* A number that is all of the text; negative when it is none. */
static int number_of(const char *text)
{
    char *end;
    errno = 0;
    long value = text != NULL && *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
    return value >= 0 && errno == 0 && *end == '\0' && value < INT32_MAX ? (int)value : -1;
}

static int find_number(const char *text, int **descriptors, weir_error *error)
{
    int fd = number_of(text);
    if (fd < 0)
        return weir_error_set(error, -EINVAL, "server",
                              "'fd:%s' is no descriptor; write fd: and a number, as in fd:3", text);
    *descriptors = weir__alloc(sizeof fd);
    if (*descriptors == NULL)
        return weir_error_set(error, -ENOMEM, "server", "no memory for fd:%d", fd);
    **descriptors = fd;
    return 1;
}

/* Whether the nth of the names, which colons separate, is this one; an empty one is any. */
static bool has_name(const char *names, int n, const char *name)
{
    if (*name == '\0')
        return true;
    for (; names != NULL && n > 0; n--) {
        names = strchr(names, ':');
        names = names != NULL ? names + 1 : NULL;
    }
    size_t length = strlen(name);
    return names != NULL && strncmp(names, name, length) == 0 &&
           (names[length] == ':' || names[length] == '\0');
}

static int find_handed_over(const char *name, int **descriptors, weir_error *error)
{
    int pid = number_of(getenv("LISTEN_PID")), count = number_of(getenv("LISTEN_FDS")), found = 0;
    if (pid != getpid() || count <= 0 || count > MOST_DESCRIPTORS)
        return weir_error_set(error, -ENOENT, "server",
                              "systemd has handed over no sockets to this process (LISTEN_PID is "
                              "%s, LISTEN_FDS is %s)",
                              getenv("LISTEN_PID") != NULL ? getenv("LISTEN_PID") : "not set",
                              getenv("LISTEN_FDS") != NULL ? getenv("LISTEN_FDS") : "not set");
    int *list = weir__alloc((size_t)count * sizeof *list);
    if (list == NULL)
        return weir_error_set(error, -ENOMEM, "server", "no memory for %d sockets", count);
    for (int i = 0; i < count; i++) {
        if (has_name(getenv("LISTEN_FDNAMES"), i, name))
            list[found++] = FIRST_DESCRIPTOR + i;
    }
    if (found == 0) {
        weir__free(list);
        return weir_error_set(error, -ENOENT, "server",
                              "none of the %d sockets from systemd is called '%s' (LISTEN_FDNAMES)",
                              count, name);
    }
    *descriptors = list;
    return found;
}

int weir__inherited_find(const char *text, int **descriptors, weir_error *error)
{
    static const char number[] = "fd:", handed_over[] = "systemd:";
    if (strncmp(text, number, sizeof number - 1) == 0)
        return find_number(text + sizeof number - 1, descriptors, error);
    if (strncmp(text, handed_over, sizeof handed_over - 1) == 0)
        return find_handed_over(text + sizeof handed_over - 1, descriptors, error);
    return 0;
}
