/* SPDX-License-Identifier: MIT */
/* The life of a channel, as a table. */
#include "channel/lifecycle.h"

#include <errno.h>

/* The step of an event in a state: the next state, or a negative code. */
#define TO(state) WEIR_LIFE_##state
#define ALREADY (-EALREADY)
#define INVALID (-EINVAL)
#define CLOSED WEIR_ECLOSED
#define REGISTERED WEIR_EREGISTERED

static const int16_t table[WEIR_LIFE_ENDED + 1][WEIR_LIFE_EVENTS] = {
    /* clang-format off */
    /*               attach         arrive        detach         leave         close        stop        end */
    [WEIR_LIFE_DETACHED] =
                   { TO(ATTACHING), INVALID,      ALREADY,       INVALID,      TO(CLOSING), INVALID,    INVALID },
    [WEIR_LIFE_ATTACHING] =
                   { REGISTERED,    TO(ATTACHED), ALREADY,       INVALID,      TO(CLOSING), INVALID,    INVALID },
    [WEIR_LIFE_ATTACHED] =
                   { REGISTERED,    INVALID,      TO(DETACHING), INVALID,      TO(CLOSING), INVALID,    INVALID },
    [WEIR_LIFE_DETACHING] =
                   { REGISTERED,    INVALID,      ALREADY,       TO(DETACHED), TO(CLOSING), INVALID,    INVALID },
    [WEIR_LIFE_CLOSING] =
                   { CLOSED,        CLOSED,       CLOSED,        CLOSED,       ALREADY,     TO(CLOSED), INVALID },
    [WEIR_LIFE_CLOSED] =
                   { CLOSED,        CLOSED,       CLOSED,        CLOSED,       ALREADY,     INVALID,    TO(ENDED) },
    [WEIR_LIFE_ENDED] =
                   { CLOSED,        CLOSED,       CLOSED,        CLOSED,       ALREADY,     INVALID,    INVALID },
    /* clang-format on */
};

/* The store is in one order with the count of pending adds: see pipeline_edit.c. */
int weir__life_step(_Atomic(uint8_t) *state, weir_life_event event)
{
    int next = table[weir__life_state(state)][event];
    if (next < 0)
        return next;
    atomic_store_explicit(state, (uint8_t)next, memory_order_seq_cst);
    return 0;
}
