/* SPDX-License-Identifier: MIT */
/* The simulated network, for its own files: what they share. */
#ifndef WEIR_TESTING_SIM_H
#define WEIR_TESTING_SIM_H

#include "base/heap.h"
#include "base/list.h"
#include "base/sys.h"
#include "io/io.h"

#include <weir/sim.h>

/*
 *      loops of a host           loops of another
 *      io/epoll.c, unchanged     io/epoll.c
 *         |                         |
 *      weir_sys of the host      weir_sys of the other      sim_sys.c
 *         |                         |
 *      descriptors, epolls       ...                        sim_file.c
 *      sockets                   ...                        sim_socket.c
 *         |                         |
 *         +------ connections ------+                       sim_stream.c, sim_connect.c
 *         |  pipe --->  <--- pipe   |                       sim_datagram.c
 *
 * What is under way is an event in one heap, by time. sim.c moves the clock to the first of them,
 * or to the first timer of a loop, when no loop has anything to do.
 */

/* Something that happens at a time. Always in the heap, so that setting it cannot fail. */
typedef struct weir_sim_event weir_sim_event;
struct weir_sim_event {
    weir_heap_node node;
    void (*happen)(weir_sim_event *event);
};

#define WEIR_SIM_NEVER INT64_MAX

/* Descriptors -------------------------------------------------------------------------------- */

/* The first number: far from those that the kernel gives out. */
#define WEIR_SIM_FIRST_FD 1000000

typedef enum weir_sim_kind {
    WEIR_SIM_EVENTFD,
    WEIR_SIM_EPOLL,
    WEIR_SIM_SOCKET,
} weir_sim_kind;

typedef struct weir_sim_epoll weir_sim_epoll;

/* What a descriptor stands for; the base of each kind. */
typedef struct weir_sim_file {
    weir_sim_kind kind;
    int fd; /* -1: nobody has accepted it yet */
    weir_sim_host *host;
    weir_sim_epoll *watcher; /* NULL: none */
    struct epoll_event watch;
    weir_list_node ready; /* in the watcher's list: there may be news */
} weir_sim_file;

struct weir_sim_epoll {
    weir_sim_file file;
    weir_list ready;
};

typedef struct weir_sim_eventfd {
    weir_sim_file file;
    uint64_t count;
} weir_sim_eventfd;

/* Streams ------------------------------------------------------------------------------------ */

typedef struct weir_sim_socket weir_sim_socket;
typedef struct weir_sim_connection weir_sim_connection;

/* Bytes of a stream, or a datagram, under way or arrived. */
typedef struct weir_sim_segment {
    weir_list_node node;
    int64_t at_ns;
    size_t at, length; /* of the bytes, those that are left */
    uint8_t bytes[];
} weir_sim_segment;

/*
 * One way of a connection. Bytes go from `flying` to `arrived` to the reader, and only when the
 * news of that has come back, which takes its time, there is room for more:
 *
 *      send -> [ flying ] --arrival--> [ arrived ] -> recv
 *              used   <-----room-------------- was_read
 */
typedef struct weir_sim_pipe {
    weir_sim_connection *connection;
    int from; /* which end sends */
    weir_sim_event arrival, room;
    weir_list flying, arrived;
    size_t used, unread;
    size_t was_read, told;  /* not yet told to the sender, and on its way there */
    int64_t last_ns;        /* nothing sent from now on arrives before */
    int64_t fin_ns, rst_ns; /* when the end arrives; WEIR_SIM_NEVER: there is none yet */
    int64_t stuck_ns;       /* since when nothing gets through; WEIR_SIM_NEVER: it does */
    bool has_fin;           /* it was sent */
    bool has_arrived;       /* the reset: nothing else will */
} weir_sim_pipe;

struct weir_sim_connection {
    weir_list_node node; /* in the simulation's list */
    weir_sim *sim;
    weir_sim_host *hosts[2];
    weir_sim_socket *ends[2]; /* NULL: closed */
    weir_sim_pipe pipes[2];   /* by the end that sends */
};

/* Sockets ------------------------------------------------------------------------------------ */

typedef enum weir_sim_state {
    WEIR_SIM_FRESH,
    WEIR_SIM_CONNECTING,
    WEIR_SIM_CONNECTED,
    WEIR_SIM_BROKEN, /* was connected, or tried to */
    WEIR_SIM_LISTENING,
} weir_sim_state;

#define WEIR_SIM_OPTIONS 8

typedef struct weir_sim_option {
    int level, name, value;
} weir_sim_option;

struct weir_sim_socket {
    weir_sim_file file;
    int family, type;
    weir_sim_state state;
    weir_address local, remote;
    weir_list_node bound; /* in the host's list */
    bool has_path;        /* of a Unix socket: nobody has unlinked it */
    uint64_t inode;
    int error; /* told once */
    bool is_shut_in, is_shut_out;
    bool wants_room; /* somebody was told that there is none */
    struct linger linger;
    weir_sim_option options[WEIR_SIM_OPTIONS];

    weir_sim_connection *connection;
    int side; /* which end it is */

    /* Of one that connects, or was connected to: see sim_connect.c */
    weir_sim_event step;
    int64_t give_up_ns;
    weir_sim_socket *listener; /* whose `waiting` it is in */
    weir_list_node link;
    bool is_acceptable, is_refused;

    /* Of a listener: those that nobody has accepted; of a datagram socket: what has come. */
    weir_list waiting;
    int waiting_count, backlog;
};

/* Hosts -------------------------------------------------------------------------------------- */

typedef struct weir_sim_way {
    weir_sim_link link; /* with its defaults filled in */
    int64_t free_ns;    /* when all that was sent before is through, at its speed */
    int64_t cut_until_ns;
} weir_sim_way;

struct weir_sim_host {
    weir_sys sys; /* first: what a system call gets is the host's */
    weir_io_source source;
    weir_sim *sim;
    unsigned index;
    char name[32];
    weir_address addresses[WEIR_SIM_ADDRESSES];
    unsigned address_count;
    weir_list sockets; /* that are bound */
    uint16_t next_port;
    size_t descriptors, most_descriptors;
    weir_sim_way ways[WEIR_SIM_HOSTS]; /* to each other, and to itself */
};

struct weir_sim {
    weir_clock clock;
    int64_t now_ns;
    weir_sim_config config;
    uint64_t random;
    weir_heap events;

    weir_sim_host *hosts[WEIR_SIM_HOSTS];
    unsigned host_count;
    weir_group **groups;
    size_t group_count;
    weir_executor **loops; /* of all groups */
    size_t loop_count;

    weir_sim_file **files; /* by number; NULL: it is free */
    size_t file_room, file_count;
    size_t ready_count; /* files in the list of an epoll */
    weir_list connections;
    weir_list datagrams; /* under way */
    uint64_t last_inode;

    char *kept; /* of the trace */
    size_t kept_bytes;
    weir_sim_stats stats;
};

/* The parts ---------------------------------------------------------------------------------- */

static inline bool weir__sim_is_traced(const weir_sim *sim)
{
    return sim->config.trace != NULL || sim->kept != NULL;
}

/* A line about a descriptor. */
void weir__sim_note(const weir_sim_file *file, const char *format, ...) WEIR_PRINTF(2, 3);
#define WEIR_SIM_NOTE(file, ...)                                                                   \
    do {                                                                                           \
        if (weir__sim_is_traced((file)->host->sim))                                                \
            weir__sim_note((file), __VA_ARGS__);                                                   \
    } while (0)
void weir__sim_trace_free(weir_sim *sim);

/* Events. The first is -ENOMEM; from then on it is there, and set to a time. */
int weir__sim_event_add(weir_sim *sim, weir_sim_event *event,
                        void (*happen)(weir_sim_event *event));
void weir__sim_event_set(weir_sim *sim, weir_sim_event *event, int64_t at_ns);
void weir__sim_event_remove(weir_sim *sim, weir_sim_event *event);
/* Lets everything happen whose time has come. */
void weir__sim_catch_up(weir_sim *sim);
/* How long until something happens: 0 when it has, negative never. */
int64_t weir__sim_next_ns(weir_sim *sim);

/* Ways. How long something takes that goes now, with what its length costs. */
weir_sim_way *weir__sim_way(weir_sim_host *from, weir_sim_host *to);
int64_t weir__sim_travel_ns(weir_sim_host *from, weir_sim_host *to, size_t bytes);
/* Draws whether the way is cut from now on. */
void weir__sim_draw_cut(weir_sim_host *from, weir_sim_host *to);
bool weir__sim_is_cut(weir_sim_host *from, weir_sim_host *to);
/* When it makes sense to try again. */
int64_t weir__sim_retry_ns(weir_sim_host *from, weir_sim_host *to);
void weir__sim_link_complete(weir_sim_link *link, bool is_own);
int weir__sim_config_check(const weir_sim_config *config, weir_error *error);
/* Who has the address, as seen from a host; NULL: nobody. */
weir_sim_host *weir__sim_find_host(weir_sim_host *from, const weir_address *address);
weir_sim_host *weir__sim_find_name(weir_sim *sim, const char *name);

/* Descriptors: a negative code, -EMFILE or -ENOMEM; NULL when it is none of that kind. */
int weir__sim_file_open(weir_sim_host *host, weir_sim_file *file, weir_sim_kind kind);
weir_sim_file *weir__sim_file_at(const weir_sim *sim, int fd);
weir_sim_socket *weir__sim_socket_at(const weir_sim *sim, int fd);
void weir__sim_file_forget(weir_sim_file *file);
int weir__sim_close(weir_sim *sim, int fd);
/* Something about it has changed: whoever watches it will look. */
void weir__sim_file_news(weir_sim_file *file);
uint32_t weir__sim_file_events(weir_sim_file *file);
int weir__sim_eventfd_open(weir_sim_host *host, unsigned count);
int weir__sim_epoll_open(weir_sim_host *host);
int weir__sim_epoll_control(weir_sim *sim, int epoll, int operation, int fd,
                            const struct epoll_event *event);
int weir__sim_epoll_wait(weir_sim *sim, int epoll, struct epoll_event *events, int max);

/* Sockets. */
int weir__sim_socket_new(weir_sim_host *host, int family, int type, weir_sim_socket **socket);
void weir__sim_socket_free(weir_sim_socket *socket);
uint32_t weir__sim_socket_events(weir_sim_socket *socket);
int weir__sim_bind(weir_sim_socket *socket, const weir_address *local);
/* A port, if it has none yet, of the family that the remote address has. */
int weir__sim_bind_any(weir_sim_socket *socket, const weir_address *remote);
weir_sim_socket *weir__sim_find_socket(weir_sim_host *host, int type, const weir_address *address,
                                       bool is_listening);
int weir__sim_listen(weir_sim_socket *socket, int backlog);
int weir__sim_shutdown(weir_sim_socket *socket, int how);
int weir__sim_get_option(weir_sim_socket *socket, int level, int name, void *value,
                         socklen_t *length);
int weir__sim_set_option(weir_sim_socket *socket, int level, int name, const void *value,
                         socklen_t length);
int weir__sim_option(const weir_sim_socket *socket, int level, int name);
/* An address as a socket of the family sees it. */
void weir__sim_write_address(int family, const weir_address *address, struct sockaddr *to,
                             socklen_t *length);

/* Connecting. */
int weir__sim_connect(weir_sim_socket *socket, const weir_address *remote);
int weir__sim_accept(weir_sim_socket *listener, weir_sim_socket **child);
void weir__sim_offer(weir_sim_socket *child); /* it may be accepted */
void weir__sim_handshake_end(weir_sim_socket *socket);
void weir__sim_listener_end(weir_sim_socket *listener);

/* Streams. */
int weir__sim_connection_new(weir_sim_socket *one, weir_sim_socket *other);
int weir__sim_stream_send(weir_sim_socket *socket, const struct iovec *pieces, size_t count);
int weir__sim_stream_receive(weir_sim_socket *socket, void *to, size_t length);
bool weir__sim_stream_has_room(weir_sim_socket *socket);
void weir__sim_stream_finish(weir_sim_socket *socket); /* no more is sent */
void weir__sim_stream_reset(weir_sim_socket *socket);  /* the other side is to hear of it */
void weir__sim_stream_close(weir_sim_socket *socket);
void weir__sim_stream_break(weir_sim_socket *socket, int error);
/* The network loses it. */
void weir__sim_connection_lose(weir_sim_connection *connection);
/* The state that the kernel would tell of. */
int weir__sim_stream_tcp_state(const weir_sim_socket *socket);

/* Datagrams. */
int weir__sim_datagram_send(weir_sim_socket *socket, const struct msghdr *message);
int weir__sim_datagram_receive(weir_sim_socket *socket, struct msghdr *message);
void weir__sim_datagrams_drop(weir_sim_socket *socket); /* that it has not received */
void weir__sim_datagrams_end(weir_sim *sim);            /* all that are under way */

/* The system calls of a host. */
void weir__sim_sys_init(weir_sim_host *host);

#endif
