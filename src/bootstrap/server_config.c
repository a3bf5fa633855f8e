/* SPDX-License-Identifier: MIT */
/* What a server's config says, checked and copied. */
#include "bootstrap/server.h"

#include "base/alloc.h"
#include "exec/group.h"

#include <errno.h>
#include <string.h>

#define MOST_ACCEPTORS 1024

static int refuse(weir_error *error, const char *what, int value, const char *why)
{
    return weir_error_set(error, -EINVAL, "server", "%s is %d, which is %s", what, value, why);
}

static int check_attrs(const weir_attr_value *attrs, size_t count, weir_error *error)
{
    for (size_t i = 0; i < count; i++) {
        if (attrs == NULL || attrs[i].key == NULL || attrs[i].key->destroy != NULL)
            return weir_error_set(error, -EINVAL, "server",
                                  "attribute %zu has no key, or one with a destroy, but would be "
                                  "shared by many channels",
                                  i);
    }
    return 0;
}

/* Loops are made on demand, or have been. */
static bool has_loops(const weir_group *group)
{
    return group == NULL || group->per_channel != NULL || weir_group_loop_at(group, 0) != NULL;
}

static int check_groups(const weir_server_config *config, weir_error *error)
{
    const weir_group *boss = config->boss, *workers = config->workers;
    if (boss == NULL && workers == NULL)
        return weir_error_set(error, -EINVAL, "server", "there is no group: set boss or workers");
    if (!has_loops(boss) || !has_loops(workers))
        return weir_error_set(error, -EINVAL, "server", "%s has no event loops, but executors",
                              has_loops(boss) ? "workers" : "boss");
    if (config->keeps_loop && boss != NULL && workers != NULL && boss != workers)
        return weir_error_set(error, -EINVAL, "server",
                              "keeps_loop needs one group to be both boss and workers");
    if (config->keeps_loop && (boss != NULL ? boss : workers)->per_channel != NULL)
        return weir_error_set(error, -EINVAL, "server",
                              "keeps_loop needs loops that can have more than one channel");
    return 0;
}

int weir__server_check(const weir_server_config *config, const char *address, weir_error *error)
{
    if (config == NULL)
        return weir_error_set(error, -EINVAL, "server", "there is no config");
    if (config->init_child == NULL)
        return weir_error_set(error, -EINVAL, "server",
                              "there is no init_child, so nobody would serve the connections");
    if (address == NULL)
        return weir_error_set(error, -EINVAL, "server", "there is no address");
    if (config->acceptors < 0 || config->acceptors > MOST_ACCEPTORS)
        return refuse(error, "acceptors", config->acceptors, "not from 1 to 1024");
    if (config->backlog < 0)
        return refuse(error, "backlog", config->backlog, "negative");
    if (config->max_connections < 0)
        return refuse(error, "max_connections", config->max_connections, "negative");
    int code = check_groups(config, error);
    if (code == 0)
        code = check_attrs(config->attrs, config->attr_count, error);
    return code < 0 ? code : check_attrs(config->child_attrs, config->child_attr_count, error);
}

/* A copy of a list, NULL for an empty one; false without memory. */
static bool copy_list(const void *from, size_t count, size_t size, void *to)
{
    void *copy = NULL;
    if (from != NULL && count > 0) {
        copy = weir__alloc(count * size);
        if (copy != NULL)
            memcpy(copy, from, count * size);
    }
    memcpy(to, &copy, sizeof copy);
    return copy != NULL || from == NULL || count == 0;
}

bool weir__server_copy_config(weir_server_config *to, const weir_server_config *from)
{
    *to = *from;
    to->boss = from->boss != NULL ? from->boss : from->workers;
    to->workers = from->workers != NULL ? from->workers : from->boss;
    bool has_memory = copy_list(from->options, from->option_count, sizeof *from->options,
                                &to->options);
    has_memory &= copy_list(from->child_options, from->child_option_count,
                            sizeof *from->child_options, &to->child_options);
    has_memory &= copy_list(from->attrs, from->attr_count, sizeof *from->attrs, &to->attrs);
    has_memory &= copy_list(from->child_attrs, from->child_attr_count, sizeof *from->child_attrs,
                            &to->child_attrs);
    return has_memory;
}

void weir__server_free_config(weir_server_config *config)
{
    weir__free((void *)config->options);
    weir__free((void *)config->child_options);
    weir__free((void *)config->attrs);
    weir__free((void *)config->child_attrs);
}
