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
 * An operation is embedded in its owner. The owner submits it to the backend of its loop, and
 * on_done reports the result. All of this happens on the loop's thread, except `wake`. The rules:
 *
 *  1. submit returns WEIR_IO_PENDING, and exactly one final on_done follows; or it returns the
 *     result, and no on_done follows. Only a connect completes inside submit. submit never calls
 *     on_done.
 *  2. on_done is called in the completion phase only.
 *  3. cancel is a request: it cannot fail, allocates nothing and calls nothing back. The final
 *     on_done still follows, with the real result if that was faster, otherwise with -ECANCELED.
 *     Do not free or reuse an operation before it.
 *  4. Memory that an operation refers to stays in place until its final on_done.
 *  5. A file has at most one operation for each direction.
 *  6. on_batch_end is called once at the end of a batch: the completion phase, or 16 completions of
 *     one operation. A final result without data (EOF, an error, -ECANCELED) is reported after the
 *     end of the batch, and nothing follows it. A final result with data, that of a one-shot
 *     receive, is reported before it: in between the operation may be submitted again, but not
 *     freed.
 *  7. The backend supplies receive buffers at completion. A receive without `is_multishot` ends
 * with one buffer. Data that the kernel delivered beyond that is buffered with the file, in order.
 *  8. To close a file: cancel every operation and the send, wait until they have ended, close.
 *
 * Sending is not an operation: see weir__io_send.
 */

typedef struct weir_io weir_io;
typedef struct weir_io_type weir_io_type;
typedef struct weir_io_file weir_io_file;
typedef struct weir_io_op weir_io_op;
struct weir_stack;
struct weir_subject;

/* Completions of one operation, or sends of one file, in one turn: then other files are served. */
#define WEIR_IO_BATCH 16

/* submit returns this if on_done reports the result later. */
#define WEIR_IO_PENDING INT32_MIN

typedef enum weir_io_op_kind {
    /* Inbound. With is_multishot they stay armed. */
    WEIR_IO_ACCEPT,  /* the code is a descriptor */
    WEIR_IO_RECEIVE, /* the code is the number of bytes in `buf`, 0 at EOF */
    /* Outbound, one-shot. */
    WEIR_IO_CONNECT,
    /* For a descriptor that is read and written by other code. Multishot: completes as long as the
     * descriptor is ready. The code is a set of WEIR_IO_READABLE and so on. */
    WEIR_IO_POLL,
    /* One-shot, beside the others: both directions have ended, or the connection was reset. */
    WEIR_IO_HANGUP,
    /* Inbound, for datagram channels and relays. */
    WEIR_IO_RECEIVE_DATAGRAM, /* each completion is one datagram, the code is its length */
    WEIR_IO_SPLICE_IN,        /* into a pipe; the code is the number of bytes, 0 at EOF */
} weir_io_op_kind;

enum {
    WEIR_IO_READABLE = 1,
    WEIR_IO_WRITABLE = 2,
    WEIR_IO_HUNG_UP = 4, /* reported even if not requested */
};

/* The result of an operation. Valid during on_done. */
typedef struct weir_io_result {
    int code;      /* see weir_io_op_kind, or negative */
    bool is_armed; /* more results may follow; false: this is the final one */
    weir_buf *buf; /* of a receive with data: on_done releases it */

    /* Of an accept the peer's address, if the backend knows it; of a datagram the sender's. */
    const struct sockaddr *address;
    socklen_t address_length;

    /* Of a datagram. */
    const weir_address *recipient; /* NULL if the kernel does not say; its port may be 0 */
    uint16_t segment_bytes; /* not 0: several datagrams of this length; the last is shorter */
    bool is_truncated;      /* it was longer than the buffer */
    bool is_broadcast;      /* as far as the kernel says */

    /* Of a receive from a file with max_descriptors: on_done closes them. */
    const int *descriptors;
    unsigned descriptor_count;
} weir_io_result;

/* A datagram to be sent. */
typedef struct weir_io_datagram {
    const weir_address *to;   /* NULL: the address that the socket is connected to */
    const weir_address *from; /* NULL: the kernel chooses */
    int piece_count;
    uint16_t segment_bytes; /* not 0: the kernel cuts it into datagrams of this length */
} weir_io_datagram;

typedef enum weir_io_send_kind {
    WEIR_IO_SEND_BYTES,       /* the result is the number of bytes sent, as for the next three */
    WEIR_IO_SEND_FILE,        /* part of a file. 0: the file has no more */
    WEIR_IO_SEND_PIPE,        /* bytes out of a pipe */
    WEIR_IO_SEND_DESCRIPTORS, /* descriptors, and one piece of bytes with them */
    WEIR_IO_SEND_DATAGRAMS,   /* the result is how many were sent; negative: the first one failed */
} weir_io_send_kind;

/* The next thing that a file sends. */
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

/* The source of what a file sends. The callbacks run on the loop's thread; gather, next_datagram
 * and on_sent also inside weir__io_send. */
typedef struct weir_io_sender {
    /* Describes what to send now. Returns the number of pieces (1 unless the kind is BYTES), 0 if
     * there is nothing to send, or a negative code that on_sent gets. It may remove entries of the
     * queue that carry no bytes: empty and cancelled messages. Bytes stay in place until on_sent.
     * May be called again before that. */
    int (*gather)(weir_io_file *file, weir_io_send *send);

    /* Describes the n-th datagram to send now, in at most `max` pieces. False: there is none. */
    bool (*next_datagram)(weir_io_file *file, unsigned n, weir_io_datagram *datagram,
                          struct iovec *pieces, int max);

    /* One send has ended with this result, or negative code. To send more, call weir__io_send. */
    void (*on_sent)(weir_io_file *file, int code);

    /* The cancelled send has ended, and nothing is in flight. In the completion phase. */
    void (*on_send_cancelled)(weir_io_file *file);
} weir_io_sender;

/* The state of a file's send. */
typedef enum weir_send_state {
    WEIR_SEND_IDLE,
    WEIR_SEND_BUSY,      /* inside of the backend: gather or on_sent may be running */
    WEIR_SEND_WAITING,   /* until the socket is writable, or for the next turn */
    WEIR_SEND_POLLED,    /* until the socket is writable, which the kernel was asked to report */
    WEIR_SEND_SUBMITTED, /* the kernel performs it */
    WEIR_SEND_ENDED,     /* its result is reported in the next completion phase */
} weir_send_state;

/* What try_send returns besides results: gather had nothing; the send has to wait. */
#define WEIR_SEND_NOTHING (INT32_MIN + 1)
#define WEIR_SEND_BLOCKED (INT32_MIN + 2)

/* A descriptor at a backend. Embedded in its owner; zero it first. */
struct weir_io_file {
    int fd;
    uint32_t slot; /* the backend's: 1 + where it stands in its table */

    /* Set these after attach: */
    const weir_io_sender *sender; /* NULL: nothing is ever sent */
    bool has_boundaries;          /* a short read does not mean that the socket is empty */
    bool fails_when_full;         /* EAGAIN is -ENOBUFS: no event says when to try again */
    bool is_described;            /* io->describe knows its owner */
    uint8_t max_descriptors;      /* of one receive; further ones are closed */

    /* The rest is the backend's. */
    uint8_t bits;      /* WEIR_FILE_*: what it knows about the descriptor */
    uint8_t events;    /* that a poll reports */
    uint8_t withheld;  /* bits that no event sets, because the kernel performs the operation */
    uint8_t in_flight; /* operations */
    int16_t error;     /* not 0: the descriptor is lost, every operation fails with this */

    /* Of io_uring alone. */
    uint8_t end;           /* see uring_ends.c */
    bool is_bulk;          /* see uring_bulk.c */
    bool is_sent_by_calls; /* see uring_send.c */

    /* Results that were not delivered yet: see kept.h. */
    bool keeps_descriptors;
    int16_t kept_code; /* negative: follows them */

    /* The send: see send.h. */
    uint8_t send_state;     /* weir_send_state */
    bool is_send_requested; /* weir__io_send was called while one was in flight */
    bool is_send_cancelled; /* until on_send_cancelled is called */
    uint8_t sends;          /* done in one turn */
    uint16_t send_turn;     /* which that is */
    int send_code;          /* of one that has ENDED */
    weir_io_file *next_sent;

    weir_io_op *in, *out; /* armed operations by direction: `out` is a connect */
    weir_io_op *level;    /* a poll, or a hang-up */
    weir_list_node ready; /* in the list of files that can continue */
    weir_block *kept;     /* see kept.h: the last one, NULL: none */
};

struct weir_io_op {
    /* Set these before submit, except what is the backend's. */
    uint8_t kind;      /* weir_io_op_kind */
    bool is_multishot; /* inbound operations */
    bool is_in_flight; /* the backend's: from submit to the final on_done */
    uint8_t state;     /* the backend's */
    int code;          /* the backend's: of a result that was not reported yet */
    weir_io_file *file;
    void (*on_done)(weir_io_op *op, const weir_io_result *result);
    void (*on_batch_end)(weir_io_op *op); /* accept, receive; may be NULL */
    union {
        const weir_address *remote; /* connect */
        weir_guess guess;           /* receive: the size of the next buffer; zero it first */
        struct {
            uint32_t bytes;    /* the size of a buffer */
            uint32_t expected; /* the backend's; zero it first */
        } datagrams;           /* receive_datagram */
        struct {
            int fd; /* the end of the pipe to write to */
            uint32_t length;
        } splice;
        unsigned events; /* poll: WEIR_IO_READABLE, WEIR_IO_WRITABLE */
    };

    weir_io_op *next_ended; /* the backend's */
};

struct weir_io_type {
    const char *name;

    /* Registers a file. Returns -ENOMEM, -errno of the kernel, -EEXIST if the descriptor is
     * registered already (which is logged), -EBUSY if the blocking backend has a file already. The
     * owner keeps the file in place until detach or close_file, which also closes the descriptor;
     * no operation may be in flight then. */
    int (*attach)(weir_io *io, weir_io_file *file, int fd);
    void (*detach)(weir_io *io, weir_io_file *file);
    void (*close_file)(weir_io *io, weir_io_file *file);

    int (*submit)(weir_io *io, weir_io_op *op);
    void (*cancel)(weir_io *io, weir_io_op *op);

    /* The steps of weir__io_send, for io/send.c. try_send sends once and returns the result,
     * PENDING if the kernel performs it, BLOCKED or NOTHING. wait_to_send begins to wait: 0, or a
     * negative code. cancel_send cancels a send that waits or that the kernel has. */
    int (*try_send)(weir_io *io, weir_io_file *file);
    int (*wait_to_send)(weir_io *io, weir_io_file *file);
    void (*cancel_send)(weir_io *io, weir_io_file *file);

    /* Waits for events, at most `timeout_ns` (negative: without a limit), and not at all if results
     * wait to be reported. Returns how many there are, -EINTR, or a code that asks for a rebuild.
     */
    int (*poll)(weir_io *io, int64_t timeout_ns);

    /* Submits pending operations to the kernel, without waiting. NULL: none is ever pending. */
    void (*flush)(weir_io *io);

    /* The completion phase: reports the results that poll found. Returns how many. */
    unsigned (*complete)(weir_io *io);

    /* Whether results wait to be reported, so that the next poll must not wait. */
    bool (*has_results)(const weir_io *io);

    /* Ends the poll in progress, or the next one. Thread-safe. */
    void (*wake)(weir_io *io);

    /* Replaces the epoll or ring and moves all files; one that cannot be moved fails alone.
     * `spinner` is the descriptor of the last event without effect, or -1. */
    int (*rebuild)(weir_io *io);
    int (*spinner)(const weir_io *io);

    /* A descriptor that is readable when there are events, for foreign event loops. */
    int (*descriptor)(const weir_io *io);

    /* close releases the kernel's resources, on the loop's thread; destroy frees the memory, when
     * no thread can call wake any more. */
    void (*close)(weir_io *io);
    void (*destroy)(weir_io *io);
};

/* The base of every backend; see io/ops.h. */
struct weir_io {
    const weir_io_type *type;
    weir_sys *sys;
    weir_io_op *first_ended; /* operations whose final result waits to be reported */
    weir_io_op **last_ended;
    weir_io_file *current;    /* whose callbacks run; NULL: none, or it was closed in one */
    weir_io_file *finishing;  /* the same for final results and sends, inside a batch of another */
    uint32_t turn;            /* counts polls */
    weir_io_file *first_sent; /* files whose send has ENDED */
    weir_io_file **last_sent;

    /* Describes the callback of a file with is_described: see weir_executor_type. Sockets set it.
     */
    void (*describe)(const weir_io_file *file, const struct weir_stack *stack,
                     struct weir_subject *subject);
    weir_io_counters *counters; /* the loop's, which outlive it */
    unsigned news;              /* events of the last completion phase that had an effect */
};

/* Opens the epoll backend, or the blocking one, which serves one file. -errno or -ENOMEM. */
int weir__epoll_open(weir_sys *sys, weir_io_counters *counters, weir_io **io);
int weir__blocking_open(weir_sys *sys, weir_io_counters *counters, weir_io **io);

/* Opens the io_uring backend; and checks whether there is one: 0, or the reason in `error`. */
int weir__uring_open(weir_sys *sys, weir_io_counters *counters, const weir_uring_config *config,
                     weir_io **io);
int weir__uring_check(weir_sys *sys, weir_error *error);

/* Makes backends that are not the kernel's: the scripted one, the simulated network. */
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
 * Sends what the file's sender has, until there is no more or the socket is full; then continues
 * when it is writable. on_sent reports each result, inside this call or later. While a send is in
 * flight, or inside a callback of the sender, this only makes the backend call `gather` once more.
 */
void weir__io_send(weir_io *io, weir_io_file *file);

static inline bool weir__io_is_sending(const weir_io_file *file)
{
    return file->send_state != WEIR_SEND_IDLE;
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
