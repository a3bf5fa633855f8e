/* SPDX-License-Identifier: MIT */
/* What io_uring there is: the kernel is asked once, and the environment may hide some of it. */
#include "io/uring.h"

#include <weir/log.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_OPCODES 256

static const struct {
    const char *name;
    unsigned feature;
    int opcode; /* of the kernel that brought it; negative: it is tried when it is used */
} known[] = {
    { "accept", WEIR_URING_ACCEPT, IORING_OP_SOCKET },    /* 5.19 */
    { "receive", WEIR_URING_RECEIVE, IORING_OP_SEND_ZC }, /* 6.0 */
    { "recvmsg", WEIR_URING_RECVMSG, IORING_OP_SEND_ZC }, /* 6.0 */
    { "send", WEIR_URING_SEND, IORING_OP_SEND },          /* 5.6 */
    { "connect", WEIR_URING_CONNECT, IORING_OP_CONNECT }, /* 5.5 */
    { "single", WEIR_URING_SINGLE, -1 },                  /* 6.0 */
    { "defer", WEIR_URING_DEFER, -1 },                    /* 6.1 */
    { "cooperate", WEIR_URING_COOPERATE, -1 },            /* 5.19 */
    { "registered", WEIR_URING_REGISTERED, -1 },          /* 5.18 */
    { "all", WEIR_URING_ALL, -1 },                        /* io_uring itself */
};
#define KNOWN (sizeof known / sizeof *known)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_known; /* under the lock, as the next ones */
static bool is_mask_read;
static int found;       /* features, or why there are none */
static unsigned masked; /* by the environment */
static unsigned hidden; /* by a test */

/* The environment ------------------------------------------------------------------------------ */

static unsigned feature_of(const char *name, size_t length)
{
    for (size_t i = 0; i < KNOWN; i++) {
        if (strlen(known[i].name) == length && strncmp(known[i].name, name, length) == 0)
            return known[i].feature;
    }
    return 0;
}

static void complain(const char *name, size_t length)
{
    char names[256] = "";
    for (size_t i = 0, at = 0; i < KNOWN; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, " %s", known[i].name);
    weir_log(WEIR_LOG_WARN, "uring", "WEIR_URING_MASK has '%.*s', but there are only:%s",
             (int)length, name, names);
}

static void read_mask(void)
{
    const char *at = getenv("WEIR_URING_MASK");
    while (at != NULL && *at != '\0') {
        size_t length = strcspn(at, ",");
        unsigned feature = feature_of(at, length);
        masked |= feature;
        if (feature == 0 && length > 0)
            complain(at, length);
        at += length + (at[length] == ',');
    }
    is_mask_read = true;
}

/* The kernel ----------------------------------------------------------------------------------- */

static int ask(weir_sys *sys, int ring)
{
    _Alignas(
        struct io_uring_probe) char room[sizeof(struct io_uring_probe) +
                                         MOST_OPCODES * sizeof(struct io_uring_probe_op)] = { 0 };
    const struct io_uring_probe *answer = (const struct io_uring_probe *)room;
    int features = 0;
    int code = sys->io_uring_register(sys, ring, IORING_REGISTER_PROBE, room, MOST_OPCODES);
    if (code < 0)
        return code;
    for (size_t i = 0; i < KNOWN - 1; i++) {
        bool is_there = known[i].opcode < 0 ||
                        answer->ops[known[i].opcode].flags & IO_URING_OP_SUPPORTED;
        features |= is_there ? (int)known[i].feature : 0;
    }
    return features;
}

static int probe(weir_sys *sys)
{
    const unsigned needed = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE |
                            IORING_FEAT_RSRC_TAGS; /* 5.13: polls that stay armed */
    struct io_uring_params params = { 0 };
    int ring = weir__uring_set_up(sys, 4, &params);
    if (ring < 0)
        return ring;
    int features = (params.features & needed) == needed ? ask(sys, ring) : -ENOSYS;
    sys->close(sys, ring);
    return features;
}

int weir__uring_features(weir_sys *sys)
{
    pthread_mutex_lock(&lock);
    if (!is_mask_read)
        read_mask();
    if (!is_known && masked != WEIR_URING_ALL) {
        found = probe(sys);
        is_known = found >= 0; /* a refusal may be over the next time */
    }
    int features = masked == WEIR_URING_ALL ? -ENOSYS : found;
    if (features >= 0)
        features &= (int)~(masked | hidden);
    pthread_mutex_unlock(&lock);
    return features;
}

void weir__uring_hide(unsigned features)
{
    pthread_mutex_lock(&lock);
    hidden = features;
    pthread_mutex_unlock(&lock);
}

int weir__uring_check(weir_sys *sys, weir_error *error)
{
    int features = weir__uring_features(sys);
    const char *why = "";
    if (features >= 0)
        return 0;
    if (masked == WEIR_URING_ALL)
        why = ", as WEIR_URING_MASK=all of the environment says";
    else if (features == -ENOSYS)
        why = ": this kernel has none, or one that is too old (5.13 is needed)";
    else if (features == -EPERM)
        why =
            ": see the sysctl kernel.io_uring_disabled, or what else keeps system calls from here";
    else if (features == -ENOMEM)
        why = ": see the limit of locked memory, RLIMIT_MEMLOCK (ulimit -l)";
    return weir_error_set(error, features, "uring", "there is no io_uring here%s (%s)", why,
                          weir_error_text(features));
}
