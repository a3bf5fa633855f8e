/* SPDX-License-Identifier: MIT */
/* What the tests of io_uring alone share: rings of any size, and pairs that receive over them. */
#ifndef WEIR_TESTS_IO_RINGS_H
#define WEIR_TESTS_IO_RINGS_H

#include "io/ops.h"

typedef struct uring_test {
    void (*run)(void);
} uring_test;

static const uring_test *current_test;
static weir_uring_config wish; /* of the next ring */

static inline int open_uring_with(weir_sys *with, weir_io_counters *of, weir_io **out)
{
    weir__uring_hide(0);
    return weir__uring_open(with, of, &wish, out);
}

static inline int open_uring_case(void **state)
{
    current_test = *state;
    *state = &backends[URING];
    wish = (weir_uring_config){ 0 };
    backends[URING].open = open_uring_with;
    return open_backend(state);
}

static inline void run_uring_case(void **state)
{
    (void)state;
    if (current != &backends[URING])
        skip();
    current_test->run();
}

/* A case with an open ring, which is left out where there is none. */
#define uring_case(name)                                                                           \
    {                                                                                              \
#name, run_uring_case, open_uring_case, close_backend, &(uring_test)                       \
        {                                                                                          \
            name                                                                                   \
        }                                                                                          \
    }

/* Another ring, as small as it gets. */
static inline void open_small(unsigned entries, unsigned buffers, unsigned bytes)
{
    io->type->close(io);
    io->type->destroy(io);
    wish = (weir_uring_config){ .entries = entries, .buffers = buffers, .buffer_bytes = bytes };
    assert_int_equal(open_uring_with(&kernel.calls, &counters, &io), 0);
}

/* The kernel receives for the owner when this returns: the other end. */
static inline int receive_from_peer(owner *self)
{
    int peer = own_half_of_pair(self);
    receive_always(self);
    turn();
    return peer;
}

static inline void cancel_receive(owner *self)
{
    int finals = self->in.finals;
    cancel(&self->in);
    TURN_UNTIL(self->in.finals > finals);
}

/* Whatever the story was. */
static inline void end_pair(owner *self, int peer)
{
    close_owner(self);
    close(peer);
}

/* So many of them. */
static inline owner *receive_from_peers(int *peers, int count)
{
    owner *all = calloc((size_t)count, sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < count; i++) {
        all[i].name = "";
        peers[i] = own_half_of_pair(&all[i]);
        receive_always(&all[i]);
    }
    return all;
}

static inline void end_pairs(owner *all, const int *peers, int count)
{
    for (int i = 0; i < count; i++)
        end_pair(&all[i], peers[i]);
    free(all);
}

#endif
