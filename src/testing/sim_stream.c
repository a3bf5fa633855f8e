/* SPDX-License-Identifier: MIT */
/* Simulated connections: two ways for bytes, with their ends. */
#include "base/alloc.h"
#include "testing/sim.h"

#include <errno.h>
#include <string.h>

enum { /* the states as the kernel numbers them */
       ESTABLISHED = 1,
       FIN_WAIT1 = 4,
       FIN_WAIT2 = 5,
       CLOSED = 7,
       CLOSE_WAIT = 8,
       CLOSING = 11,
};

/* Where bytes take their time they come in pieces of this size, and not all at the end. */
#define SLOW_BYTES 1460

static weir_sim_pipe *pipe_from(weir_sim_connection *connection, int side)
{
    return &connection->pipes[side];
}

static weir_sim_pipe *out_of(const weir_sim_socket *socket)
{
    return pipe_from(socket->connection, socket->side);
}

static weir_sim_pipe *in_of(const weir_sim_socket *socket)
{
    return pipe_from(socket->connection, 1 - socket->side);
}

static weir_sim_host *sender(const weir_sim_pipe *pipe)
{
    return pipe->connection->hosts[pipe->from];
}

static weir_sim_host *receiver(const weir_sim_pipe *pipe)
{
    return pipe->connection->hosts[1 - pipe->from];
}

static weir_sim_segment *first_of(const weir_list *segments)
{
    weir_list_node *node = weir__list_first(segments);
    return node != NULL ? WEIR_CONTAINER(node, weir_sim_segment, node) : NULL;
}

static void drop_segments(weir_list *segments)
{
    weir_list_node *node;
    while ((node = weir__list_pop_front(segments)) != NULL)
        weir__free(WEIR_CONTAINER(node, weir_sim_segment, node));
}

/* Under way ---------------------------------------------------------------------------------- */

/* What is next: bytes, then the end. */
static int64_t next_arrival_ns(const weir_sim_pipe *pipe)
{
    const weir_sim_segment *first = first_of(&pipe->flying);
    if (first != NULL)
        return first->at_ns;
    return pipe->fin_ns < pipe->rst_ns ? pipe->fin_ns : pipe->rst_ns;
}

static void expect_arrival(weir_sim_pipe *pipe)
{
    weir__sim_event_set(pipe->connection->sim, &pipe->arrival, next_arrival_ns(pipe));
}

/* When something that is sent now arrives: not before what was sent before. */
static int64_t arrival_ns(weir_sim_pipe *pipe, size_t bytes)
{
    int64_t now_ns = pipe->connection->sim->now_ns;
    int64_t at_ns = now_ns + weir__sim_travel_ns(sender(pipe), receiver(pipe), bytes);
    if (at_ns > pipe->last_ns)
        pipe->last_ns = at_ns;
    return pipe->last_ns;
}

static void send_reset(weir_sim_pipe *pipe)
{
    if (pipe->rst_ns != WEIR_SIM_NEVER || pipe->has_arrived)
        return;
    pipe->rst_ns = arrival_ns(pipe, 0);
    expect_arrival(pipe);
}

/* Nothing that was sent arrives any more, but for a reset. */
static void still(weir_sim_pipe *pipe)
{
    drop_segments(&pipe->flying);
    pipe->fin_ns = WEIR_SIM_NEVER;
    expect_arrival(pipe);
}

void weir__sim_stream_break(weir_sim_socket *socket, int error)
{
    WEIR_SIM_NOTE(&socket->file, "is broken: %s", weir_error_name(-error));
    socket->state = WEIR_SIM_BROKEN;
    socket->error = error;
    socket->is_shut_in = socket->is_shut_out = true;
    if (socket->connection != NULL)
        still(out_of(socket));
    weir__sim_file_news(&socket->file);
    if (socket->listener != NULL)
        weir__sim_offer(socket); /* whoever accepts it finds out */
}

/* One that has ended already, and hears that nobody wants what it sends, may know what that means.
 */
static void reset_arrives(weir_sim_socket *socket)
{
    if (socket == NULL || socket->state == WEIR_SIM_BROKEN)
        return;
    bool is_half_closed = socket->is_shut_in && !socket->is_shut_out;
    weir__sim_stream_break(socket, socket->state == WEIR_SIM_CONNECTING ? ECONNREFUSED
                                   : is_half_closed                     ? EPIPE
                                                                        : ECONNRESET);
}

static bool takes_bytes(const weir_sim_socket *socket)
{
    return socket != NULL && socket->state != WEIR_SIM_BROKEN;
}

/* Whether anything came for which there is a reader. */
static bool bytes_arrive(weir_sim_pipe *pipe, weir_sim_socket *to, int64_t now_ns)
{
    weir_sim_segment *first;
    bool has_come = false;
    while ((first = first_of(&pipe->flying)) != NULL && first->at_ns <= now_ns) {
        weir__list_remove(&first->node);
        if (!takes_bytes(to)) {
            weir__free(first);
            send_reset(pipe_from(pipe->connection, 1 - pipe->from));
            continue;
        }
        WEIR_SIM_NOTE(&to->file, "%zu bytes arrive", first->length);
        weir__list_push_back(&pipe->arrived, &first->node);
        pipe->unread += first->length;
        has_come = true;
    }
    return has_come;
}

static bool end_arrives(weir_sim_pipe *pipe, weir_sim_socket *to, int64_t now_ns)
{
    if (!weir__list_is_empty(&pipe->flying))
        return false;
    bool has_come = false;
    if (pipe->fin_ns <= now_ns) {
        pipe->fin_ns = WEIR_SIM_NEVER;
        if (takes_bytes(to)) {
            WEIR_SIM_NOTE(&to->file, "the end arrives");
            to->is_shut_in = true;
            has_come = true;
        }
    }
    if (pipe->rst_ns <= now_ns) {
        pipe->rst_ns = WEIR_SIM_NEVER;
        pipe->has_arrived = true;
        reset_arrives(to);
    }
    return has_come;
}

/* Nothing gets through: the sender tries again, for a time; whom it never reached hears nothing. */
static void wait_or_give_up(weir_sim_pipe *pipe)
{
    weir_sim *sim = pipe->connection->sim;
    weir_sim_socket *from = pipe->connection->ends[pipe->from];
    if (pipe->stuck_ns == WEIR_SIM_NEVER)
        pipe->stuck_ns = sim->now_ns;
    if (sim->now_ns - pipe->stuck_ns < sim->config.timeout_ns) {
        weir__sim_event_set(sim, &pipe->arrival, weir__sim_retry_ns(sender(pipe), receiver(pipe)));
        return;
    }
    sim->stats.timeouts++;
    if (from != NULL && from->state == WEIR_SIM_CONNECTED)
        weir__sim_stream_break(from, ETIMEDOUT);
    pipe->rst_ns = WEIR_SIM_NEVER;
    still(pipe);
}

static void on_arrival(weir_sim_event *event)
{
    weir_sim_pipe *pipe = WEIR_CONTAINER(event, weir_sim_pipe, arrival);
    weir_sim_connection *connection = pipe->connection;
    weir_sim_socket *to = connection->ends[1 - pipe->from];
    if (weir__sim_is_cut(sender(pipe), receiver(pipe))) {
        wait_or_give_up(pipe);
        return;
    }
    int64_t now_ns = connection->sim->now_ns;
    pipe->stuck_ns = WEIR_SIM_NEVER;
    bool has_come = bytes_arrive(pipe, to, now_ns);
    has_come |= end_arrives(pipe, to, now_ns);
    expect_arrival(pipe);
    if (has_come)
        weir__sim_file_news(&to->file);
}

/* Room --------------------------------------------------------------------------------------- */

/* As Linux does: it is worth telling when a third is free. */
bool weir__sim_stream_has_room(weir_sim_socket *socket)
{
    const weir_sim_pipe *pipe = out_of(socket);
    size_t most = (size_t)weir__sim_way(sender(pipe), receiver(pipe))->link.window_bytes;
    return pipe->used < most && (most - pipe->used) * 3 >= most;
}

/* The receiver tells what it has read, one message at a time. */
static void tell_room(weir_sim_pipe *pipe)
{
    weir_sim *sim = pipe->connection->sim;
    if (pipe->told > 0 || pipe->was_read == 0)
        return;
    pipe->told = pipe->was_read;
    pipe->was_read = 0;
    weir__sim_event_set(sim, &pipe->room,
                        sim->now_ns + weir__sim_travel_ns(receiver(pipe), sender(pipe), 0));
}

static void on_room(weir_sim_event *event)
{
    weir_sim_pipe *pipe = WEIR_CONTAINER(event, weir_sim_pipe, room);
    weir_sim_socket *from = pipe->connection->ends[pipe->from];
    if (weir__sim_is_cut(receiver(pipe), sender(pipe))) {
        weir__sim_event_set(pipe->connection->sim, &pipe->room,
                            weir__sim_retry_ns(receiver(pipe), sender(pipe)));
        return;
    }
    weir__sim_event_set(pipe->connection->sim, &pipe->room, WEIR_SIM_NEVER);
    pipe->used -= pipe->told;
    pipe->told = 0;
    tell_room(pipe);
    if (from != NULL && from->wants_room && weir__sim_stream_has_room(from)) {
        from->wants_room = false;
        weir__sim_file_news(&from->file);
    }
}

/* Sending ------------------------------------------------------------------------------------ */

static weir_sim_segment *copy_pieces(const struct iovec *pieces, size_t count, size_t at,
                                     size_t length)
{
    weir_sim_segment *segment = weir__alloc(sizeof *segment + length);
    if (segment == NULL)
        return NULL;
    *segment = (weir_sim_segment){ .length = length };
    size_t filled = 0;
    for (size_t i = 0; i < count && filled < length; i++) {
        if (at >= pieces[i].iov_len) {
            at -= pieces[i].iov_len;
            continue;
        }
        size_t left = pieces[i].iov_len - at;
        size_t part = left < length - filled ? left : length - filled;
        memcpy(segment->bytes + filled, (const uint8_t *)pieces[i].iov_base + at, part);
        filled += part;
        at = 0;
    }
    return segment;
}

/* In one piece or in several; how many bytes are on their way. */
static size_t launch(weir_sim_pipe *pipe, const struct iovec *pieces, size_t count, size_t length)
{
    weir_sim *sim = pipe->connection->sim;
    bool is_slow = weir__sim_way(sender(pipe), receiver(pipe))->link.bytes_per_second > 0;
    size_t done = 0, most = is_slow ? SLOW_BYTES : SIZE_MAX;
    while (done < length) {
        size_t part = length - done < most ? length - done : most;
        if (weir_sim_chance(sim, sim->config.short_read))
            part = 1 + (size_t)weir_sim_random(sim, part);
        weir_sim_segment *segment = copy_pieces(pieces, count, done, part);
        if (segment == NULL)
            break;
        segment->at_ns = arrival_ns(pipe, part);
        weir__list_push_back(&pipe->flying, &segment->node);
        pipe->used += part;
        done += part;
    }
    return done;
}

static size_t total(const struct iovec *pieces, size_t count)
{
    size_t length = 0;
    for (size_t i = 0; i < count; i++)
        length += pieces[i].iov_len;
    return length;
}

static int take_error(weir_sim_socket *socket, int otherwise)
{
    int error = socket->error;
    socket->error = 0;
    return error != 0 ? -error : otherwise;
}

int weir__sim_stream_send(weir_sim_socket *socket, const struct iovec *pieces, size_t count)
{
    weir_sim *sim = socket->file.host->sim;
    if (socket->error != 0 || socket->is_shut_out)
        return take_error(socket, -EPIPE);
    if (socket->state != WEIR_SIM_CONNECTED)
        return socket->state == WEIR_SIM_CONNECTING ? -EAGAIN : -EPIPE;
    weir_sim_pipe *pipe = out_of(socket);
    const weir_sim_link *link = &weir__sim_way(sender(pipe), receiver(pipe))->link;
    size_t asked = total(pieces, count), most = (size_t)link->window_bytes;
    size_t room = most > pipe->used ? most - pipe->used : 0;
    size_t length = asked < room ? asked : room;
    if (length < asked)
        socket->wants_room = true;
    if (length == 0 && asked > 0)
        return -EAGAIN;
    if (length > 1 && weir_sim_chance(sim, sim->config.short_write))
        length = 1 + (size_t)weir_sim_random(sim, length - 1);
    weir__sim_draw_cut(sender(pipe), receiver(pipe));
    bool is_lost = weir_sim_chance(sim, link->reset);
    bool is_in_vain = is_lost || pipe->rst_ns != WEIR_SIM_NEVER; /* it was lost before */
    size_t sent = is_in_vain ? length : launch(pipe, pieces, count, length);
    if (sent == 0 && asked > 0)
        return -ENOBUFS;
    WEIR_SIM_NOTE(&socket->file, "send %zu of %zu", sent, asked);
    sim->stats.bytes_sent += sent;
    if (is_lost)
        weir__sim_connection_lose(socket->connection);
    else
        expect_arrival(pipe);
    return (int)sent;
}

void weir__sim_stream_finish(weir_sim_socket *socket)
{
    weir_sim_pipe *pipe = out_of(socket);
    socket->is_shut_out = true;
    if (pipe->has_fin || pipe->has_arrived)
        return;
    pipe->has_fin = true;
    pipe->fin_ns = arrival_ns(pipe, 0);
    expect_arrival(pipe);
}

void weir__sim_stream_reset(weir_sim_socket *socket)
{
    send_reset(out_of(socket));
}

/* Both ends hear of it, each in its time, and nothing that is under way arrives. */
void weir__sim_connection_lose(weir_sim_connection *connection)
{
    connection->sim->stats.resets++;
    for (int i = 0; i < 2; i++) {
        weir_sim_pipe *pipe = &connection->pipes[i];
        if (pipe->has_arrived)
            continue;
        drop_segments(&pipe->flying);
        pipe->fin_ns = WEIR_SIM_NEVER;
        send_reset(pipe);
        expect_arrival(pipe);
    }
}

/* Receiving ---------------------------------------------------------------------------------- */

static size_t take_bytes(weir_sim_pipe *pipe, uint8_t *to, size_t length)
{
    size_t taken = 0;
    weir_sim_segment *first;
    while (taken < length && (first = first_of(&pipe->arrived)) != NULL) {
        size_t part = first->length < length - taken ? first->length : length - taken;
        memcpy(to + taken, first->bytes + first->at, part);
        taken += part;
        first->at += part;
        first->length -= part;
        if (first->length == 0) {
            weir__list_remove(&first->node);
            weir__free(first);
        }
    }
    return taken;
}

/* A short one is as if the rest had come right behind it: then there are news of that, too. */
int weir__sim_stream_receive(weir_sim_socket *socket, void *to, size_t length)
{
    weir_sim *sim = socket->file.host->sim;
    weir_sim_pipe *pipe = socket->connection != NULL ? in_of(socket) : NULL;
    if (pipe == NULL || pipe->unread == 0) {
        if (socket->error != 0 || socket->is_shut_in)
            return take_error(socket, 0);
        return socket->state == WEIR_SIM_FRESH ? -ENOTCONN : -EAGAIN;
    }
    size_t there = pipe->unread < length ? pipe->unread : length;
    bool is_short = there > 1 && weir_sim_chance(sim, sim->config.short_read);
    size_t taken = take_bytes(pipe, to, is_short ? 1 + weir_sim_random(sim, there - 1) : there);
    pipe->unread -= taken;
    pipe->was_read += taken;
    tell_room(pipe);
    if (is_short)
        weir__sim_file_news(&socket->file);
    WEIR_SIM_NOTE(&socket->file, "recv %zu", taken);
    sim->stats.bytes_received += taken;
    return (int)taken;
}

/* Its course --------------------------------------------------------------------------------- */

static int add_pipe(weir_sim_connection *connection, int from)
{
    weir_sim_pipe *pipe = &connection->pipes[from];
    *pipe = (weir_sim_pipe){ .connection = connection,
                             .from = from,
                             .fin_ns = WEIR_SIM_NEVER,
                             .rst_ns = WEIR_SIM_NEVER,
                             .stuck_ns = WEIR_SIM_NEVER };
    weir__list_init(&pipe->flying);
    weir__list_init(&pipe->arrived);
    int code = weir__sim_event_add(connection->sim, &pipe->arrival, on_arrival);
    return code < 0 ? code : weir__sim_event_add(connection->sim, &pipe->room, on_room);
}

static void free_connection(weir_sim_connection *connection)
{
    weir_sim *sim = connection->sim;
    for (int i = 0; i < 2; i++) {
        weir_sim_pipe *pipe = &connection->pipes[i];
        weir__sim_event_remove(sim, &pipe->arrival);
        weir__sim_event_remove(sim, &pipe->room);
        drop_segments(&pipe->flying);
        drop_segments(&pipe->arrived);
    }
    weir__list_remove(&connection->node);
    sim->stats.connections--;
    weir__free(connection);
}

int weir__sim_connection_new(weir_sim_socket *one, weir_sim_socket *other)
{
    weir_sim *sim = one->file.host->sim;
    weir_sim_connection *connection = weir__zalloc(sizeof *connection);
    if (connection == NULL)
        return -ENOMEM;
    connection->sim = sim;
    weir__list_push_back(&sim->connections, &connection->node);
    sim->stats.connections++;
    weir_sim_socket *ends[2] = { one, other };
    int code = 0;
    for (int i = 0; i < 2; i++) {
        connection->hosts[i] = ends[i]->file.host;
        int added = add_pipe(connection, i);
        code = code < 0 ? code : added;
    }
    if (code < 0) {
        free_connection(connection);
        return code;
    }
    for (int i = 0; i < 2; i++) {
        connection->ends[i] = ends[i];
        ends[i]->connection = connection;
        ends[i]->side = i;
    }
    return 0;
}

/* Who closes and has not read everything resets, and so does who was told to. */
void weir__sim_stream_close(weir_sim_socket *socket)
{
    weir_sim_connection *connection = socket->connection;
    bool is_abrupt = in_of(socket)->unread > 0 || socket->file.fd < 0 ||
                     (socket->linger.l_onoff && socket->linger.l_linger == 0) ||
                     socket->state == WEIR_SIM_CONNECTING;
    if (socket->state != WEIR_SIM_BROKEN) {
        if (is_abrupt)
            weir__sim_stream_reset(socket);
        else
            weir__sim_stream_finish(socket);
    }
    connection->ends[socket->side] = NULL;
    socket->connection = NULL;
    if (connection->ends[1 - socket->side] == NULL)
        free_connection(connection);
}

int weir__sim_stream_tcp_state(const weir_sim_socket *socket)
{
    if (socket->state != WEIR_SIM_CONNECTED)
        return CLOSED;
    const weir_sim_pipe *pipe = out_of(socket);
    bool is_acknowledged = pipe->fin_ns == WEIR_SIM_NEVER;
    if (!pipe->has_fin)
        return socket->is_shut_in ? CLOSE_WAIT : ESTABLISHED;
    if (socket->is_shut_in)
        return is_acknowledged ? CLOSED : CLOSING;
    return is_acknowledged ? FIN_WAIT2 : FIN_WAIT1;
}
