/* SPDX-License-Identifier: MIT */
/* The other side of a descriptor that is a mere number: what it sends, answers and was sent. */
#ifndef WEIR_TESTING_PEER_H
#define WEIR_TESTING_PEER_H

#include "io/io.h"

#include <weir/script.h>

/* What waits on the way in, an answer on the way out, or bytes that went. */
typedef enum weir_item_kind {
    WEIR_ITEM_BYTES,
    WEIR_ITEM_CONNECTION, /* the code is its descriptor, the bytes are its address */
    WEIR_ITEM_FAILURE,
    WEIR_ITEM_END, /* stays: nothing comes behind it */
    WEIR_ITEM_ANSWER,
} weir_item_kind;

typedef struct weir_item {
    weir_list_node node;
    weir_item_kind kind;
    int code;
    size_t at, length; /* of the bytes, those that are left */
    uint8_t bytes[];
} weir_item;

/* A number that stands for a descriptor. It lives as long as the script, and the script's lock is
 * around all of it, but for `file`. */
typedef struct weir_peer {
    weir_list in, answers, sent;
    size_t sent_bytes;
    unsigned ready;       /* the level that polls find */
    unsigned armed;       /* a bit for each weir_script_op */
    unsigned poll_events; /* what the armed poll waits for */
    int out_error;        /* hung up: every send fails with this */
    int move_error;       /* what the next rebuild answers for it */
    bool is_blocked;      /* the last answer was to wait for the next */
    bool is_hung_up, is_attached, is_closed;
    weir_list_node link; /* among those of which there is something to tell */
    weir_io_file *file;  /* the loop's thread's */
} weir_peer;

#define WEIR_OP_BIT(op) (1u << (op))

/* NULL without memory. */
weir_peer *weir__peer_new(void);
void weir__peer_free(weir_peer *peer);

/* A copy of the bytes, of room for so many when they are NULL; NULL without memory. */
weir_item *weir__item_new(weir_item_kind kind, int code, const void *bytes, size_t length);

/* The loop closed it: what was said to it is over, what it sent stays to be looked at. */
void weir__peer_close(weir_peer *peer);

/* The number is used again. */
void weir__peer_reopen(weir_peer *peer);

/* Whether its way in has ended. */
bool weir__peer_is_at_end(const weir_peer *peer);

/* Whether an armed operation could go on: for the way in, the way out, or any; and what an armed
 * poll has to be told. */
bool weir__peer_is_armed(const weir_peer *peer, weir_script_op op);
bool weir__peer_can_go_in(const weir_peer *peer);
bool weir__peer_can_go_out(const weir_peer *peer);
bool weir__peer_can_go_on(const weir_peer *peer);
unsigned weir__peer_level(const weir_peer *peer);

/* The next answer to a send or connect; `wait_code` is the one that means to wait for another. */
int weir__peer_take_answer(weir_peer *peer, int wait_code);

/* Keeps at most `most` bytes of the pieces in an item that has the room; how many that were. */
int weir__peer_keep_sent(weir_peer *peer, weir_item *sent, const struct iovec *pieces, int count,
                         size_t most);

/* Moves at most `room` bytes that were sent to `to` (NULL: drops them); how many. */
size_t weir__peer_take_sent(weir_peer *peer, void *to, size_t room);

/* What came first on the way in, where there is something. Bytes into a buffer with that much room:
 * how many, 0 at the end, or a negative code. A connection: its descriptor, or a negative code. */
int weir__peer_take_bytes(weir_peer *peer, weir_buf *buf, size_t room);
int weir__peer_take_connection(weir_peer *peer, weir_io_result *result,
                               struct sockaddr_storage *address);

#endif
