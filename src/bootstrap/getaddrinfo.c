/* SPDX-License-Identifier: MIT */
/* The system's name service: getaddrinfo, each name on a thread of its own. */
#include "base/alloc.h"
#include "base/sys.h"
#include "bootstrap/addresses.h"
#include "bootstrap/names.h"
#include "exec/blocking_pool.h"
#include "exec/executor.h"
#include "exec/group.h"

#include <errno.h>
#include <string.h>

/* Of a manual group, a task in its background, which is stepped; else a call on a thread. */
typedef struct lookup {
    weir_task task;
    weir_blocking_call call;
    weir_sys *sys;
    weir_promise *promise;
    uint16_t port;
    char host[];
} lookup;

/* The code for a result of getaddrinfo other than 0; `system_error` is errno after the call. */
static int code_of(int answer, int system_error)
{
    switch (answer) {
    case EAI_NONAME:
    case EAI_NODATA:
    case EAI_ADDRFAMILY:
        return WEIR_ENONAME;
    case EAI_MEMORY:
        return -ENOMEM;
    case EAI_SYSTEM:
        return system_error > 0 ? -system_error : WEIR_ENAMESERVICE;
    default: /* EAI_AGAIN, EAI_FAIL, and what cannot come from such a question */
        return WEIR_ENAMESERVICE;
    }
}

/*
 * One kind of socket, for else each address comes once for every kind. Without AI_ADDRCONFIG, which
 * does not count loopback: where only one family has an interface it would hide half of localhost.
 * It is not needed: getaddrinfo sorts addresses without a route last (RFC 6724, rule 1).
 */
static int ask(const lookup *self, weir_addresses **found)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *answers = NULL;
    int answer = self->sys->getaddrinfo(self->sys, self->host, NULL, &hints, &answers);
    if (answer != 0)
        return code_of(answer, errno);
    weir_candidates all = { 0 };
    for (const struct addrinfo *each = answers; each != NULL; each = each->ai_next) {
        weir_address address;
        if (weir_address_from_sockaddr(&address, each->ai_addr, each->ai_addrlen) == 0 &&
            weir_address_set_port(&address, self->port) == 0)
            weir__candidates_add(&all, &address);
    }
    self->sys->freeaddrinfo(self->sys, answers);
    if (all.count[0] == 0)
        return WEIR_ENONAME;
    *found = weir__candidates_list(&all);
    return *found != NULL ? 0 : -ENOMEM;
}

static void free_lookup(lookup *self)
{
    weir_promise_release(self->promise);
    weir__free(self);
}

static void drop_lookup(weir_task *task)
{
    lookup *self = WEIR_CONTAINER(task, lookup, task);
    weir_promise_fail(self->promise, -ECANCELED);
    free_lookup(self);
}

static bool is_unwanted(const lookup *self)
{
    return weir_future_is_done(weir_promise_future(self->promise));
}

static void complete_lookup(lookup *self)
{
    weir_addresses *found = NULL;
    int code = ask(self, &found);
    if (code < 0)
        weir_promise_fail(self->promise, code);
    else
        weir__addresses_succeed(self->promise, found);
    free_lookup(self);
}

/* Freeing a manual group runs the tasks that its background has left, and must not wait for the
 * name service then. */
static int run_lookup(weir_task *task)
{
    lookup *self = WEIR_CONTAINER(task, lookup, task);
    const weir_executor *child = weir_executor_current()->companion;
    if (is_unwanted(self) || weir_executor_get_state(child) >= WEIR_EXECUTOR_SHUTDOWN)
        drop_lookup(task);
    else
        complete_lookup(self);
    return 0;
}

static void run_call(weir_blocking_call *call)
{
    lookup *self = WEIR_CONTAINER(call, lookup, call);
    if (is_unwanted(self))
        drop_lookup(&self->task);
    else
        complete_lookup(self);
}

int weir__getaddrinfo_start(const weir_name_query *query)
{
    size_t size = strlen(query->host) + 1;
    lookup *self = weir__alloc(sizeof *self + size);
    if (self == NULL)
        return -ENOMEM;
    *self = (lookup){
        .task = { .run = run_lookup, .dropped = drop_lookup, .name = "name lookup" },
        .call.run = run_call,
        .sys = weir__group_sys(query->group),
        .promise = weir_promise_retain(query->promise),
        .port = query->port,
    };
    memcpy(self->host, query->host, size);
    int code = query->group->is_manual
                   ? weir_executor_post(weir_group_background(query->group), &self->task)
                   : weir__blocking_pool_run(&weir__name_pool, self->sys, &self->call);
    if (code < 0)
        free_lookup(self);
    return code;
}
