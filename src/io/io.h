/* SPDX-License-Identifier: MIT */
/* The io interface: operations on descriptors, and the backends that perform them. */
#ifndef WEIR_IO_IO_H
#define WEIR_IO_IO_H

#include "base/list.h"
#include "base/sys.h"
#include "io/counters.h"
#include "io/guess.h"

#include <weir/address.h>
#include <weir/buf.h>
#include <weir/group.h>

#include <stdatomic.h>

/*
 * An operation is embedded in its owner, who submits it to the backend of its loop and is told when
 * it is done. All of this happens on the loop's thread, but for `wake`. The rules:
 *
 *  1. submit returns WEIR_IO_PENDING, and then exactly one final on_done follows; or it returns the
 *     result, and then none does. Accept, receive and poll never finish inside submit. on_done is
 *     never called from there.
 *  2. on_done comes from the completion phase alone.
 *  3. cancel is a request: it cannot fail, allocates nothing and never calls back. The final
 * on_done still comes, once, with the real result if that won the race, else with -ECANCELED.
 * Nobody frees or reuses an operation before it.
 *  4. Memory given to an operation stays where it is until its final on_done.
 *  5. A file has at most one operation for each direction.
 *  6. At the end of a batch (the completion phase, or 16 completions of one operation) comes one
 *     on_batch_end. A final result without data (end of stream, error, cancelled) comes after the
 *     end of the batch before it, and nothing comes after it. A final result with data, that of a
 *     one-shot receive, comes before: the operation may be submitted again in between, but not
 * freed.
 *  7. Receive buffers are supplied at completion. A receive without `is_multishot` ends with one
 *     buffer. What came but was not asked for stays where it is, in order.
 *  8. Closing is: cancel every operation and the send, wait for their ends, close the file.
 *
 * Sending is not an operation: see weir__io_send.
 */

typedef struct weir_io weir_io;
typedef struct weir_io_type weir_io_type;
typedef struct weir_io_file weir_io_file;
typedef struct weir_io_op weir_io_op;
struct weir_stack;
struct weir_subject;

/* How many completions of one operation, or sends of one file, before it is the others' turn. */
#define WEIR_IO_BATCH 16

/* What submit returns when the result comes later. */
#define WEIR_IO_PENDING INT32_MIN

typedef enum weir_io_op_kind {
    /* For the way in. Stay armed when they are multishot. */
    WEIR_IO_ACCEPT,  /* the code is a descriptor */
    WEIR_IO_RECEIVE, /* the code is how many bytes there are in `buf`, 0 at the end of the stream */
    /* For the way out. One-shot. */
    WEIR_IO_CONNECT,
    /* For a descriptor that somebody else reads and writes. Multishot: comes again as long as the
     * descriptor is ready. The code is a set of WEIR_IO_READABLE and so on. */
    WEIR_IO_POLL,
    /* One-shot, beside the others: both ways of the connection have ended, or it was reset. */
    WEIR_IO_HANGUP,
    /* Those that are rarer, for the way in: */
    WEIR_IO_RECEIVE_DATAGRAM, /* the code is 0; each completion is one datagram */
    WEIR_IO_SPLICE_IN, /* from the file into a pipe. The code is how many bytes, 0 at the end */
} weir_io_op_kind;

enum {
    WEIR_IO_READABLE = 1,
    WEIR_IO_WRITABLE = 2,
    WEIR_IO_HUNG_UP = 4, /* comes unasked */
};

/* What became of an operation. Valid during on_done. */
typedef struct weir_io_result {
    int code;                       /* by the kind of operation, or negative */
    bool is_armed;                  /* more may come; else this is the final result */
    weir_buf *buf;                  /* of a receive with data: on_done's to release */
    const struct sockaddr *address; /* of an accept: the peer's, where the backend knows it */
    socklen_t address_length;       /* of a datagram: the sender's */

    /* Of a datagram. */
    const weir_address *recipient; /* NULL where the kernel does not say; maybe without a port */
    uint16_t segment_bytes;        /* not 0: these are several, each so long, but for the last */
    bool is_truncated;             /* it was longer than the buffer */
    bool is_broadcast;             /* the recipient is everybody, as far as the kernel says */

    /* Of a receive from a file with max_descriptors: on_done's to close. */
    const int *descriptors;
    unsigned descriptor_count;
} weir_io_result;

/* A datagram to be sent. */
typedef struct weir_io_datagram {
    const weir_address *to;   /* NULL: where the socket is connected to */
    const weir_address *from; /* NULL: as the kernel chooses */
    int piece_count;
    uint16_t segment_bytes; /* not 0: the kernel makes several of it, each so long */
} weir_io_datagram;

typedef enum weir_io_send_kind {
    WEIR_IO_SEND_BYTES,       /* the result is the number of bytes sent, as for the next three */
    WEIR_IO_SEND_FILE,        /* part of a file. 0: the file has no more */
    WEIR_IO_SEND_PIPE,        /* bytes out of a pipe */
    WEIR_IO_SEND_DESCRIPTORS, /* descriptors, and one piece of bytes with them */
    WEIR_IO_SEND_DATAGRAMS,   /* the result is how many were sent; negative: the first one failed */
} weir_io_send_kind;

/* What a file sends next. */
typedef struct weir_io_send {
    weir_io_send_kind kind; /* BYTES unless gather sets another one */
    struct iovec *pieces;   /* the backend's memory: for BYTES and DESCRIPTORS */
    int max_pieces;
    int fd; /* FILE, PIPE */
    uint64_t offset;
    size_t length;
    const int *descriptors;
    unsigned descriptor_count;
} weir_io_send;

/* Where the messages of a file come from. The callbacks run on the loop's thread, also from inside
 * weir__io_send, but for on_send_cancelled. */
typedef struct weir_io_sender {
    /* Describes what to send now: the number of pieces (1 unless the kind is BYTES); 0 if there is
     * nothing; negative: on_sent gets this code. Bytes stay in place until on_sent. May be asked
     * again before that. */
    int (*gather)(weir_io_file *file, weir_io_send *send);

    /* The n-th datagram to send now, in at most `max` pieces. False: there is none. */
    bool (*next_datagram)(weir_io_file *file, unsigned n, weir_io_datagram *datagram,
                          struct iovec *pieces, int max);

    /* One send is over: its result, or a negative code. To send more, call weir__io_send again. */
    void (*on_sent)(weir_io_file *file, int code);

    /* The cancelled send is over, and nothing is in flight. From the completion phase. */
    void (*on_send_cancelled)(weir_io_file *file);
} weir_io_sender;

/* The state of a file's send; 0: none is in flight. */
enum {
    WEIR_SEND_BUSY = 1,       /* inside of the backend: gather or on_sent may be running */
    WEIR_SEND_WAITING = 2,    /* for the socket to become writable, or for its turn */
    WEIR_SEND_AT_KERNEL = 4,  /* the kernel performs it */
    WEIR_SEND_ENDED = 8,      /* the result is reported in the next completion phase */
    WEIR_SEND_AGAIN = 16,     /* weir__io_send was called meanwhile */
    WEIR_SEND_CANCELLED = 32, /* weir__io_cancel_send was called */
    WEIR_SEND_POLLED = 64,    /* AT_KERNEL: not a send, but a poll for free space */
};

/* A descriptor at a backend. Embedded in its owner; zero it first. */
struct weir_io_file {
    int fd;
    uint32_t slot; /* the backend's: 1 + where it stands in its table */

    /* Set these after attach: */
    const weir_io_sender *sender; /* NULL: nothing is ever sent */
    bool has_boundaries;          /* a short read does not mean that there is no more */
    bool fails_when_full;         /* EAGAIN says nothing about when to try again: it is -ENOBUFS */
    bool is_described;            /* io->describe knows its owner */
    uint8_t max_descriptors;      /* that one receive may bring along; what is more is dropped */

    /* The backend's. */
    uint8_t bits;      /* what it knows about the descriptor */
    uint8_t events;    /* that a poll reports */
    uint8_t withheld;  /* bits that no event sets: the kernel performs that operation itself */
    uint8_t in_flight; /* how many operations */
    int16_t error;     /* the backend lost it: every operation fails with this */
    uint8_t end;       /* whether the kernel was asked to tell of it: see io/uring_ends.c */
    bool is_bulk; /* so much comes in that it is received in larger pieces: see io/uring_bulk.c */
    bool is_sent_by_calls;  /* the kernel does not take its sends as submissions: uring_send.c */
    bool keeps_descriptors; /* see io/kept.h */
    int16_t kept_code;      /* what comes behind what is kept, when it is negative */

    /* The send: see io/send.h. */
    uint8_t sending;    /* WEIR_SEND_* */
    uint8_t sends;      /* done in one turn */
    uint16_t send_turn; /* which that is */
    int send_code;      /* of one that has ENDED */
    weir_io_file *next_sent;

    weir_io_op *in, *out; /* what is armed, by direction: `out` is a connect */
    weir_io_op *level;    /* a poll, or for the hang-up */
    weir_list_node ready; /* in the list of those that can go on */

    /* What the kernel gave though nobody wanted it any more: see io/kept.h. */
    weir_block *kept; /* the last of them, NULL: none */
};

struct weir_io_op {
    /* The owner's, set before submit. */
    uint8_t kind;      /* weir_io_op_kind */
    bool is_multishot; /* on the way in */
    bool is_in_flight; /* the backend's: from submit to the final on_done */
    uint8_t state;     /* the backend's, too */
    int code;          /* the backend's: of a result that waits to be told */
    weir_io_file *file;
    void (*on_done)(weir_io_op *op, const weir_io_result *result);
    void (*on_batch_end)(weir_io_op *op); /* accept, receive; may be NULL */
    union {
        const weir_address *remote; /* connect */
        weir_guess guess; /* receive: how large the next buffer should be; zero it first */
        struct {
            uint32_t bytes;    /* how large a buffer is */
            uint32_t expected; /* the backend's; zero it first */
        } datagrams;           /* receive_datagram */
        struct {
            int fd; /* of the pipe's other end */
            uint32_t length;
        } splice;
        unsigned events; /* poll: what to wait for */
    };

    weir_io_op *next_ended; /* the backend's */
};

struct weir_io_type {
    const char *name;

    /* Registers a file. -ENOMEM, or -errno of the kernel; -EEXIST when a file with this descriptor
     * is attached already, which is logged; -EBUSY when the blocking backend has a file already.
     * The owner keeps it in place until detach, before which none of its operations may be in
     * flight; close also closes the descriptor. */
    int (*attach)(weir_io *io, weir_io_file *file, int fd);
    void (*detach)(weir_io *io, weir_io_file *file);
    void (*close_file)(weir_io *io, weir_io_file *file);

    int (*submit)(weir_io *io, weir_io_op *op);
    void (*cancel)(weir_io *io, weir_io_op *op);

    /* The steps of weir__io_send, for io/send.c. Sends once: the result; PENDING if the kernel
     * performs it; WEIR_SEND_BLOCKED; WEIR_SEND_NOTHING. Waits if it is blocked: 0, or why it
     * cannot. Cancels a send that is WAITING or AT_KERNEL. */
    int (*try_send)(weir_io *io, weir_io_file *file);
    int (*wait_to_send)(weir_io *io, weir_io_file *file);
    void (*cancel_send)(weir_io *io, weir_io_file *file);

    /* Waits for events, at most `timeout_ns` (negative: for ever), not at all when results wait to
     * be told. How many there are, or -EINTR, or a code which says that it needs a rebuild. */
    int (*poll)(weir_io *io, int64_t timeout_ns);

    /* Hands over to the kernel what was submitted, without waiting. NULL: that is done at once. */
    void (*flush)(weir_io *io);

    /* The completion phase: tells what poll found. How many results that were. */
    unsigned (*complete)(weir_io *io);

    /* Whether results wait to be told, so that the next poll must not wait. */
    bool (*has_results)(const weir_io *io);

    /* Ends a poll that is going on or about to begin. Any thread. */
    void (*wake)(weir_io *io);

    /* Replaces what it has at the kernel and moves all files over; one that cannot be moved fails
     * alone. `spinner` is the descriptor that events came for last without any use, or -1. */
    int (*rebuild)(weir_io *io);
    int (*spinner)(const weir_io *io);

    /* What is readable when there are events: for somebody else's loop. */
    int (*descriptor)(const weir_io *io);

    /* Gives back what it has at the kernel, on its thread; then the memory, when nobody can call
     * wake any more. */
    void (*close)(weir_io *io);
    void (*destroy)(weir_io *io);
};

/* The base of every backend; see io/ops.h. */
struct weir_io {
    const weir_io_type *type;
    weir_sys *sys;
    weir_io_op *first_ended; /* operations whose final result waits to be told */
    weir_io_op **last_ended;
    weir_io_file *current;    /* whose callbacks run; NULL once it is gone */
    weir_io_file *finishing;  /* whose final result is being told; NULL: none, or it is gone */
    uint32_t turn;            /* counts polls */
    weir_io_file *first_sent; /* files whose send has ENDED */
    weir_io_file **last_sent;

    /* Describes the callback of a file with is_described: see weir_executor_type. Sockets set it.
     */
    void (*describe)(const weir_io_file *file, const struct weir_stack *stack,
                     struct weir_subject *subject);
    weir_io_counters *counters; /* the loop's, which outlive it */
    unsigned news; /* events of the last completion phase that were about anything there is */
};

/* Opens the epoll backend, or the blocking one, which serves one file. Negative when the kernel or
 * the memory says no. */
int weir__epoll_open(weir_sys *sys, weir_io_counters *counters, weir_io **io);
int weir__blocking_open(weir_sys *sys, weir_io_counters *counters, weir_io **io);

/* Opens the io_uring backend. Whether there is one, and why not: negative, with words. */
int weir__uring_open(weir_sys *sys, weir_io_counters *counters, const weir_uring_config *config,
                     weir_io **io);
int weir__uring_check(weir_sys *sys, weir_error *error);

/* A way to make backends, for those that are not the kernel's. */
struct weir_io_source {
    const char *name;
    int (*open)(weir_io_source *source, weir_sys *sys, weir_io_counters *counters, weir_io **io);
    weir_sys *sys; /* of the loops that have such a backend; NULL: Linux */
};

static inline int weir__io_submit(weir_io *io, weir_io_op *op)
{
    return io->type->submit(io, op);
}

static inline void weir__io_cancel(weir_io *io, weir_io_op *op)
{
    io->type->cancel(io, op);
}

/*
 * Sends what the file's sender has, until it has no more or the socket is full; then continues when
 * it is writable. on_sent reports each result, from inside this call or later. While a send is in
 * flight, or inside a callback of the sender, this only makes the backend ask `gather` once more.
 */
void weir__io_send(weir_io *io, weir_io_file *file);

static inline bool weir__io_is_sending(const weir_io_file *file)
{
    return file->sending != 0;
}

/* Requests the end of the send in flight; no effect if there is none. The bytes that the sender
 * still has get one attempt, results are reported as always, and then on_send_cancelled follows. */
void weir__io_cancel_send(weir_io *io, weir_io_file *file);

/* One more, by the only thread that counts. */
static inline void weir__io_count(_Atomic(uint64_t) *counter)
{
    weir__counter_add(counter, 1);
}

#endif
