/* SPDX-License-Identifier: MIT */
/* The nodes that link what users embed (tasks, timers) into weir's queues. All fields are weir's.
 */
#ifndef WEIR_NODE_H
#define WEIR_NODE_H

#include <weir/api.h>

/* Links into a queue of many producers and one consumer. */
typedef struct weir_mpsc_node weir_mpsc_node;
struct weir_mpsc_node {
    weir_mpsc_node *next;
};

/* Links into a list. Zero it before first use. */
typedef struct weir_list_node weir_list_node;
struct weir_list_node {
    weir_list_node *prev, *next; /* both NULL: in no list */
};

/* Waits to be told when the callback under way on its thread has returned. */
typedef struct weir_notice weir_notice;
struct weir_notice {
    void (*run)(weir_notice *notice);
    weir_notice *next;
};

/* Stands in a heap, ordered by key, then by arrival. Zero it before first use. */
typedef struct weir_heap_node {
    int64_t key;
    uint64_t id;    /* the order of arrival, which decides between equal keys */
    uint32_t place; /* 1 + where it stands in the heap, 0: in none */
} weir_heap_node;

#endif
