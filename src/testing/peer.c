/* SPDX-License-Identifier: MIT */
/* Peers. */
#include "testing/peer.h"

#include "base/alloc.h"

#include <weir/script.h>

#include <errno.h>
#include <string.h>

#define IN_BITS (WEIR_OP_BIT(WEIR_SCRIPT_ACCEPT) | WEIR_OP_BIT(WEIR_SCRIPT_RECEIVE))

/* What they keep ------------------------------------------------------------------------------ */

static weir_item *first_item(const weir_list *items)
{
    weir_list_node *node = weir__list_first(items);
    return node != NULL ? WEIR_CONTAINER(node, weir_item, node) : NULL;
}

weir_item *weir__item_new(weir_item_kind kind, int code, const void *bytes, size_t length)
{
    weir_item *made = weir__alloc(sizeof *made + length);
    if (made == NULL)
        return NULL;
    *made = (weir_item){ .kind = kind, .code = code, .length = length };
    if (bytes != NULL)
        memcpy(made->bytes, bytes, length);
    return made;
}

static void drop_item(weir_item *which)
{
    weir__list_remove(&which->node);
    weir__free(which);
}

static void drop_items(weir_list *items)
{
    weir_item *first;
    while ((first = first_item(items)) != NULL)
        drop_item(first);
}

weir_peer *weir__peer_new(void)
{
    weir_peer *peer = weir__zalloc(sizeof *peer);
    if (peer == NULL)
        return NULL;
    weir__list_init(&peer->in);
    weir__list_init(&peer->answers);
    weir__list_init(&peer->sent);
    return peer;
}

void weir__peer_free(weir_peer *peer)
{
    if (peer == NULL)
        return;
    drop_items(&peer->in);
    drop_items(&peer->answers);
    drop_items(&peer->sent);
    weir__free(peer);
}

void weir__peer_close(weir_peer *peer)
{
    drop_items(&peer->in);
    drop_items(&peer->answers);
    peer->is_closed = true;
    peer->is_blocked = peer->is_hung_up = false;
    peer->out_error = peer->move_error = 0;
    peer->ready = 0;
}

void weir__peer_reopen(weir_peer *peer)
{
    peer->is_closed = false;
    peer->sent_bytes = 0;
    drop_items(&peer->sent);
}

bool weir__peer_is_at_end(const weir_peer *peer)
{
    weir_list_node *last = weir__list_last(&peer->in);
    return last != NULL && WEIR_CONTAINER(last, weir_item, node)->kind == WEIR_ITEM_END;
}

/* What can go on ------------------------------------------------------------------------------ */

bool weir__peer_is_armed(const weir_peer *peer, weir_script_op op)
{
    return peer->armed & WEIR_OP_BIT(op);
}

bool weir__peer_can_go_in(const weir_peer *peer)
{
    return peer->armed & IN_BITS && !weir__list_is_empty(&peer->in);
}

bool weir__peer_can_go_out(const weir_peer *peer)
{
    bool has_answer = peer->out_error < 0 || !peer->is_blocked ||
                      !weir__list_is_empty(&peer->answers);
    return (weir__peer_is_armed(peer, WEIR_SCRIPT_CONNECT) ||
            weir__peer_is_armed(peer, WEIR_SCRIPT_SEND)) &&
           has_answer;
}

unsigned weir__peer_level(const weir_peer *peer)
{
    return weir__peer_is_armed(peer, WEIR_SCRIPT_POLL)
               ? peer->ready & (peer->poll_events | WEIR_IO_HUNG_UP)
               : 0;
}

bool weir__peer_can_go_on(const weir_peer *peer)
{
    return weir__peer_can_go_in(peer) || weir__peer_can_go_out(peer) ||
           weir__peer_level(peer) != 0 ||
           (weir__peer_is_armed(peer, WEIR_SCRIPT_HANGUP) && peer->is_hung_up);
}

/* The way out --------------------------------------------------------------------------------- */

int weir__peer_take_answer(weir_peer *peer, int wait_code)
{
    if (peer->out_error < 0)
        return peer->out_error;
    weir_item *first = first_item(&peer->answers);
    if (first == NULL)
        return peer->is_blocked ? wait_code : WEIR_SCRIPT_ALL;
    int code = first->code;
    peer->is_blocked = code == wait_code;
    drop_item(first);
    return code;
}

int weir__peer_keep_sent(weir_peer *peer, weir_item *sent, const struct iovec *pieces, int count,
                         size_t most)
{
    sent->length = 0;
    for (int i = 0; i < count && sent->length < most; i++) {
        size_t left = most - sent->length;
        size_t length = pieces[i].iov_len < left ? pieces[i].iov_len : left;
        memcpy(sent->bytes + sent->length, pieces[i].iov_base, length);
        sent->length += length;
    }
    peer->sent_bytes += sent->length;
    weir__list_push_back(&peer->sent, &sent->node);
    return (int)sent->length;
}

size_t weir__peer_take_sent(weir_peer *peer, void *to, size_t room)
{
    size_t taken = 0;
    weir_item *first;
    while ((first = first_item(&peer->sent)) != NULL && (taken < room || first->length == 0)) {
        size_t length = first->length < room - taken ? first->length : room - taken;
        if (to != NULL && length > 0)
            memcpy((uint8_t *)to + taken, first->bytes + first->at, length);
        taken += length;
        first->at += length;
        first->length -= length;
        if (first->length == 0)
            drop_item(first);
    }
    peer->sent_bytes -= taken;
    return taken;
}

/* The way in ---------------------------------------------------------------------------------- */

int weir__peer_take_bytes(weir_peer *peer, weir_buf *buf, size_t room)
{
    weir_item *first = first_item(&peer->in);
    if (first->kind == WEIR_ITEM_END)
        return 0;
    int code = first->kind == WEIR_ITEM_FAILURE ? first->code : -ENOTCONN;
    if (first->kind == WEIR_ITEM_BYTES) {
        size_t length = first->length < room ? first->length : room;
        memcpy(weir_buf_write_ptr(buf, length), first->bytes + first->at, length);
        weir_buf_advance_writer(buf, length);
        first->at += length;
        first->length -= length;
        code = (int)length;
    }
    if (first->kind != WEIR_ITEM_BYTES || first->length == 0)
        drop_item(first);
    return code;
}

int weir__peer_take_connection(weir_peer *peer, weir_io_result *result,
                               struct sockaddr_storage *address)
{
    weir_item *first = first_item(&peer->in);
    int code = first->kind == WEIR_ITEM_CONNECTION || first->kind == WEIR_ITEM_FAILURE ? first->code
                                                                                       : -EINVAL;
    if (first->kind == WEIR_ITEM_CONNECTION && first->length > 0) {
        memcpy(address, first->bytes, first->length);
        result->address = (struct sockaddr *)address;
        result->address_length = (socklen_t)first->length;
    }
    if (first->kind != WEIR_ITEM_END)
        drop_item(first);
    return code;
}
