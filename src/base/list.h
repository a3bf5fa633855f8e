/* SPDX-License-Identifier: MIT */
/* An intrusive doubly linked list: the node lives in what it links, so nothing can fail. */
#ifndef WEIR_BASE_LIST_H
#define WEIR_BASE_LIST_H

#include <weir/node.h>

/* A ring through the list's own node, so that no end is a special case. */
typedef struct weir_list {
    weir_list_node ring;
} weir_list;

static inline void weir__list_init(weir_list *list)
{
    list->ring.prev = list->ring.next = &list->ring;
}

static inline bool weir__list_is_empty(const weir_list *list)
{
    return list->ring.next == &list->ring;
}

static inline bool weir__list_is_linked(const weir_list_node *node)
{
    return node->next != NULL;
}

static inline void weir__list_link(weir_list_node *prev, weir_list_node *node)
{
    node->prev = prev;
    node->next = prev->next;
    prev->next->prev = node;
    prev->next = node;
}

static inline void weir__list_push_front(weir_list *list, weir_list_node *node)
{
    weir__list_link(&list->ring, node);
}

static inline void weir__list_push_back(weir_list *list, weir_list_node *node)
{
    weir__list_link(list->ring.prev, node);
}

/* Leaves the node initialised, so that a second removal can be seen and skipped. */
static inline void weir__list_remove(weir_list_node *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node->next = NULL;
}

/* The ends, and the neighbours; NULL when there is none. */
static inline weir_list_node *weir__list_first(const weir_list *list)
{
    return weir__list_is_empty(list) ? NULL : list->ring.next;
}

static inline weir_list_node *weir__list_last(const weir_list *list)
{
    return weir__list_is_empty(list) ? NULL : list->ring.prev;
}

static inline weir_list_node *weir__list_next(const weir_list *list, const weir_list_node *node)
{
    return node->next == &list->ring ? NULL : node->next;
}

static inline weir_list_node *weir__list_pop_front(weir_list *list)
{
    weir_list_node *node = weir__list_first(list);
    if (node != NULL)
        weir__list_remove(node);
    return node;
}

/* Moves all nodes of `from` to the end of `to`. */
static inline void weir__list_splice_back(weir_list *to, weir_list *from)
{
    if (weir__list_is_empty(from))
        return;
    from->ring.next->prev = to->ring.prev;
    to->ring.prev->next = from->ring.next;
    from->ring.prev->next = &to->ring;
    to->ring.prev = from->ring.prev;
    weir__list_init(from);
}

#endif
