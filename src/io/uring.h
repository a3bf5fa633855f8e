/* SPDX-License-Identifier: MIT */
/* The io_uring backend, for its own files. */
#ifndef WEIR_IO_URING_H
#define WEIR_IO_URING_H

#include "io/readiness.h"
#include "io/slots.h"

#include <errno.h>
#include <liburing.h>
#include <string.h>

/*
 * It is the engine of readiness.h over poll requests, by which every operation can be done; and
 * operations that the kernel performs itself, each a feature of its own. Whatever the kernel does
 * not take goes back to the engine.
 */

/* What the kernel has, and WEIR_URING_MASK of the environment does not hide. */
enum {
    WEIR_URING_ACCEPT = 1,       /* accepts, which stay armed */
    WEIR_URING_RECEIVE = 2,      /* receives into provided buffers, which stay armed */
    WEIR_URING_RECVMSG = 4,      /* the same for datagrams */
    WEIR_URING_SEND = 8,         /* send and sendmsg */
    WEIR_URING_CONNECT = 16,     /* connect */
    WEIR_URING_SINGLE = 32,      /* one thread submits */
    WEIR_URING_DEFER = 64,       /* and does the kernel's work when it asks for results */
    WEIR_URING_COOPERATE = 128,  /* or at least is not interrupted for it */
    WEIR_URING_REGISTERED = 256, /* the ring's descriptor is looked up once */
    WEIR_URING_ALL = 511,
};

/* What is there, found out once: a set of these, or negative, as weir__uring_check says. */
int weir__uring_features(weir_sys *sys);

/* For tests: hides features from backends that are opened from now on. */
void weir__uring_hide(unsigned features);

/* Provided buffers: ordinary ones of the pool, which a completion hands on. */
typedef struct weir_uring_buffers {
    struct io_uring_buf_ring *ring; /* NULL: there is none */
    void *memory;                   /* around the ring */
    weir_buf **bufs;                /* by their number at the kernel; NULL: it has none */
    uint16_t *spare;                /* numbers without a buffer */
    unsigned size;                  /* of the ring, a power of two */
    unsigned wanted;                /* how many there should be: more when they ran out */
    unsigned users;                 /* operations that receive into them */
    unsigned count;                 /* how many the kernel has */
    unsigned spare_count;
    unsigned used;        /* in this completion phase */
    unsigned takers;      /* operations that used them */
    unsigned most_used;   /* in one, of those that were counted since the last look */
    unsigned phases;      /* how many that were */
    uint32_t bytes;       /* how large each is */
    uint32_t most_copied; /* of what is received */
    uint32_t grown_turn;  /* when there were not enough last */
} weir_uring_buffers;

#define WEIR_URING_HEADERS 256

typedef struct weir_uring {
    weir_readiness base;
    struct io_uring ring;
    int enter_fd; /* the ring, as enter is given it */
    unsigned enter_flags;
    unsigned features;
    unsigned room;   /* for submissions, before the next entry into the kernel */
    bool is_open;    /* there is a ring */
    bool is_enabled; /* it has its thread */
    bool is_broken;  /* it is of no use any more */
    bool hears_wake; /* the eventfd is polled */
    bool has_left;   /* files whose poll has ended, to be polled again by and by */
    bool has_gaps;   /* a ring before this one had results that nobody could see */
    weir_uring_config config;
    weir_slots slots;
    weir_uring_buffers buffers;

    weir_io_op *uncancelled; /* there was no room to ask the kernel, linked by next_ended */
    weir_io_op *batch;       /* what told data last, and its batch is open */
    unsigned batch_count;
    bool batch_is_full; /* its last buffer is */
    bool has_no_bulk;   /* for tests: see uring_bulk.c */
    weir_io_op *told; /* the kernel has told of its file's end, in this turn; linked the same way */

    /* What was gathered to be sent since the last entry into the kernel. */
    bool is_gathering; /* a message that gather releases may send on another file meanwhile */
    unsigned piece_count, header_count;
    struct iovec pieces[2 * IOV_MAX];
    struct msghdr headers[WEIR_URING_HEADERS];
} weir_uring;

/* What a submission is called. The others are operations by their address, or behind that when it
 * is about their end, and files by their slot: odd numbers, so that they are no addresses. */
enum {
    WEIR_URING_NOTHING = 2, /* nobody wants to know */
    WEIR_URING_WAKE = 4,
    WEIR_URING_END = 2,      /* added to an operation's address */
    WEIR_URING_SEND_TAG = 4, /* added to the address of a file that sends */
    WEIR_URING_TAGS = 7,
    WEIR_URING_FILE_POLL = 1, /* what is asked about a file */
    WEIR_URING_FILE_END = 3,
    WEIR_URING_FILE_SPACE = 5,
};

static inline uint64_t weir__uring_file_name(const weir_uring *self, const weir_io_file *file,
                                             unsigned tag)
{
    uint64_t key = weir__slots_key(&self->slots, file);
    return key >> 32 << 32 | (uint32_t)key << 3 | tag;
}

/* NULL when it is gone. */
static inline weir_io_file *weir__uring_file_of(const weir_uring *self, uint64_t name)
{
    return weir__slots_find(&self->slots, name >> 32 << 32 | (uint32_t)name >> 3);
}

/* The state of an operation. */
enum {
    WEIR_OP_AT_KERNEL = 1,
    WEIR_OP_CANCELLED = 2, /* its owner does not want it any more */
    WEIR_OP_PAUSED = 4,    /* we have cancelled it, and it goes on when it has ended */
    WEIR_OP_REFUSED = 8,   /* the kernel does not perform it itself */
    WEIR_OP_ASKED = 16,    /* the kernel was asked to end it, and has not answered */
    WEIR_OP_ENDED = 32,    /* it did end it, and the answer is still to come */
    WEIR_OP_TOLD = 128,    /* it is a receive, and the kernel has told of its file's end */
};

static inline weir_uring *weir__uring_of(weir_io *io)
{
    return (weir_uring *)io;
}

static inline uint64_t weir__uring_name_of(const weir_io_op *op)
{
    return (uintptr_t)op;
}

static inline void *weir__uring_address_of(uint64_t name)
{
    void *pointer;
    uintptr_t address = name & ~(uint64_t)WEIR_URING_TAGS;
    memcpy(&pointer, &address, sizeof address);
    return pointer;
}

static inline weir_io_op *weir__uring_op_of(uint64_t name)
{
    return weir__uring_address_of(name);
}

/* Whether it is the result of a send, and not WEIR_URING_WAKE. */
static inline bool weir__uring_is_send(uint64_t name)
{
    return (name & WEIR_URING_TAGS) == WEIR_URING_SEND_TAG && name > WEIR_URING_TAGS;
}

/* The ring: uring_ring.c --------------------------------------------------------------------- */

/* io_uring_setup: the descriptor, or a negative code. */
int weir__uring_set_up(weir_sys *sys, unsigned entries, struct io_uring_params *params);

/* Makes the ring, which any thread may do, and unmakes it. */
int weir__uring_make_ring(weir_uring *self);
void weir__uring_end_ring(weir_uring *self);

/* Room for a submission, with nothing in it; NULL when there is none, even after handing over what
 * there was. */
struct io_uring_sqe *weir__uring_make_room(weir_uring *self);

static inline struct io_uring_sqe *weir__uring_next(weir_uring *self)
{
    struct io_uring_sq *queue = &self->ring.sq;
    if (__builtin_expect(self->room == 0, 0))
        return weir__uring_make_room(self);
    self->room--;
    struct io_uring_sqe *entry = &queue->sqes[queue->sqe_tail++ & queue->ring_mask];
    *entry = (struct io_uring_sqe){ 0 }; /* since liburing 2.6 preparing one does not set it all */
    return entry;
}

/* Enters the kernel: hands over, and waits so long for a result. 0 or a negative code. */
int weir__uring_enter(weir_uring *self, int64_t timeout_ns);

static inline bool weir__uring_has_submissions(const weir_uring *self)
{
    return self->ring.sq.sqe_tail != *self->ring.sq.khead;
}

/* Whether there were more results than fit, of which some are still to come. */
static inline bool weir__uring_has_overflown(const weir_uring *self)
{
    return IO_URING_READ_ONCE(*self->ring.sq.kflags) & IORING_SQ_CQ_OVERFLOW;
}

static inline unsigned weir__uring_ready(const weir_uring *self)
{
    return io_uring_cq_ready(&self->ring);
}

/* Provided buffers: uring_buffers.c ---------------------------------------------------------- */

int weir__uring_buffers_open(weir_uring *self);
void weir__uring_buffers_close(weir_uring *self);

/* Makes up for what was handed on. False: there is not a single one. */
bool weir__uring_buffers_fill(weir_uring *self);

/* They ran out: there shall be more, up to one for each that receives, when there were too few for
 * many. Who sends much has to wait for those that the loop has seen to. */
void weir__uring_buffers_grow(weir_uring *self);

/* A completion phase is over. When far fewer were needed for a long time, there shall be fewer. */
void weir__uring_buffers_review(weir_uring *self);

/* The buffer that the kernel has put something into, or a copy of what is short. */
weir_buf *weir__uring_buffers_take(weir_uring *self, unsigned number, size_t length);

/* The buffer itself, with nothing in it as far as it knows. */
weir_buf *weir__uring_buffers_hand_on(weir_uring *self, unsigned number);

/* The buffer of that number, to look at, and to give back, unless it was handed on. */
void *weir__uring_buffers_look(weir_uring *self, unsigned number);
void weir__uring_buffers_put_back(weir_uring *self, unsigned number);

/* Giving operations to the kernel: uring_give.c ---------------------------------------------- */

/* What comes in front of a datagram. */
#define WEIR_URING_DATAGRAM_ROOM                                                                   \
    (sizeof(struct io_uring_recvmsg_out) + sizeof(struct sockaddr_storage) + WEIR_IO_CONTROL_SIZE)

static inline bool weir__uring_needs_buffers(const weir_io_op *op)
{
    return op->kind == WEIR_IO_RECEIVE || op->kind == WEIR_IO_RECEIVE_DATAGRAM;
}

/* Whether the kernel can perform it, as things are. */
bool weir__uring_takes(const weir_uring *self, const weir_io_op *op);

/* Gives it one that is armed: PENDING; or why not, of which -EAGAIN and -EINTR mean that the engine
 * may try. */
int weir__uring_give(weir_uring *self, weir_io_op *op);

/* Watching files: uring_watch.c --------------------------------------------------------------- */

/* The engine's, and the same for a file that is known to be one to watch. */
int weir__uring_watch(weir_io *base, weir_io_file *file);
void weir__uring_unwatch(weir_io *base, weir_io_file *file);
int weir__uring_poll_file(weir_uring *self, weir_io_file *file);

/* Takes a poll about a file back, by its name. False: the kernel could not be asked, and holds the
 * file until the poll has something to say. */
bool weir__uring_end_poll(weir_uring *self, uint64_t name);

/* The file cannot be watched any more. */
void weir__uring_lose(weir_uring *self, weir_io_file *file, int code);

/* A result of a poll. */
void weir__uring_complete_poll(weir_uring *self, uint64_t name, int code, unsigned flags);

/* Polls files again whose polls ended because there were too many results. */
void weir__uring_watch_left(weir_uring *self);

/* Sends: uring_send.c -------------------------------------------------------------------------- */

/* The backend's steps of weir__io_send. */
int weir__uring_try_send(weir_io *base, weir_io_file *file);
int weir__uring_wait_to_send(weir_io *base, weir_io_file *file);
void weir__uring_cancel_send(weir_io *base, weir_io_file *file);

/* The result of a send, and of a poll for free space. */
void weir__uring_complete_send(weir_uring *self, weir_io_file *file, int code);
void weir__uring_complete_space(weir_uring *self, uint64_t name);

/* The ring is replaced: keeps a result that was not reported; and sends on. False: the result of a
 * send is lost with the ring. */
void weir__uring_salvage_send(weir_uring *self, weir_io_file *file, int code);
bool weir__uring_restore_send(weir_uring *self, weir_io_file *file);

/* The ends of what is received: uring_ends.c -------------------------------------------------- */

/* Has the kernel tell of the end beside a receive that is about to be given and stays armed. False:
 * no room. */
bool weir__uring_watch_end(weir_uring *self, weir_io_file *file);

/* Nobody wants to know any more; or it has come, and the kernel is done with it. */
void weir__uring_unwatch_end(weir_uring *self, weir_io_file *file);
void weir__uring_end_is_known(weir_io_file *file);
bool weir__uring_watches_end(const weir_io_file *file);

/* Whether it has told: then a receive that stays armed could miss it, and is given as one that does
 * not, again and again. */
bool weir__uring_saw_end(const weir_io_file *file);

/* The kernel tells; and when all is told, a receive that has missed it begins anew, unless it has
 * ended, or nobody wants it any more. */
void weir__uring_complete_file_end(weir_uring *self, uint64_t name, int code);
void weir__uring_forget_end(weir_uring *self, weir_io_op *op);
void weir__uring_review_ends(weir_uring *self);

/* Files that much comes in from: uring_bulk.c ------------------------------------------------- */

/* More was received in the batch of a receive that stays armed, after a full buffer. */
void weir__uring_note_full(weir_uring *self, weir_io_op *op);

/* The engine is about to receive: when that was less of late, the kernel shall do it again. */
void weir__uring_review_bulk(weir_uring *self, weir_io_op *op);

/* Whether the kernel does not want to perform something: then the engine finds out why. */
static inline bool weir__uring_is_refusal(int code)
{
    return code == -EINVAL || code == -EOPNOTSUPP || code == -EAGAIN;
}

/* Whether a send or connect has had no effect, so that a system call may do it instead. */
static inline bool weir__uring_is_undone(int code)
{
    return weir__uring_is_refusal(code) || code == -EINTR;
}

/* What becomes of them: uring_ops.c ----------------------------------------------------------- */

/* Gives one of the way in that is armed; when that fails it ends, or is the engine's. */
void weir__uring_give_or_end(weir_uring *self, weir_io_op *op);

/* One of the way in ends at the kernel, and goes on anew. */
void weir__uring_pause(weir_uring *self, weir_io_op *op);

/* Asks for the end of one; and asks for those again that there was no room for. */
void weir__uring_ask_end(weir_uring *self, weir_io_op *op);
void weir__uring_ask_again(weir_uring *self);

/* A completion of one; the kernel's answer to who asked for its end; and the end of an open batch.
 */
void weir__uring_complete_op(weir_uring *self, weir_io_op *op, int code, unsigned flags);
void weir__uring_complete_end(weir_uring *self, weir_io_op *op, int code);
void weir__uring_end_batch(weir_uring *self);

/* The ring is given up: keeps what a completion brought that was not told; and takes back what is
 * at the kernel, to be given to the next ring, or to be lost. */
void weir__uring_salvage(weir_uring *self, weir_io_op *op, int code, unsigned flags);
void weir__uring_reclaim(weir_uring *self, weir_io_op *op);

#endif
