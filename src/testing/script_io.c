/* SPDX-License-Identifier: MIT */
/* The scripted backend: operations on numbers, of which a test says what becomes. */
#include "testing/script_io.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "io/send.h"

#include <errno.h>

#define MOST_PIECES 64

_Static_assert((int)WEIR_WATCH_READ == WEIR_IO_READABLE &&
                   (int)WEIR_WATCH_WRITE == WEIR_IO_WRITABLE &&
                   (int)WEIR_WATCH_HANGUP == WEIR_IO_HUNG_UP,
               "the same events");

static weir_script *script_of(const weir_io *base)
{
    return (weir_script *)base;
}

/* Peers --------------------------------------------------------------------------------------- */

weir_peer *weir__script_need_peer(weir_script *script, int fd)
{
    weir__script_lock(script);
    weir_peer *found = script->peers[fd];
    weir__script_unlock(script);
    if (found != NULL)
        return found;
    weir_peer *made = weir__peer_new();
    if (made == NULL)
        return NULL;
    weir__script_lock(script);
    if (script->peers[fd] == NULL) {
        script->peers[fd] = made;
        made = NULL;
    }
    found = script->peers[fd];
    weir__script_unlock(script);
    weir__peer_free(made); /* somebody was faster */
    return found;
}

static weir_peer *peer_of(weir_script *script, const weir_io_file *file)
{
    return script->peers[file->fd];
}

void weir__script_refresh(weir_script *script, weir_peer *peer)
{
    if (!weir__peer_can_go_on(peer) || weir__list_is_linked(&peer->link))
        return;
    weir__list_push_back(&script->news, &peer->link);
    pthread_cond_signal(&script->changed);
}

/* Files --------------------------------------------------------------------------------------- */

static int script_attach(weir_io *base, weir_io_file *file, int fd)
{
    weir_script *script = script_of(base);
    *file = (weir_io_file){ .fd = fd };
    if (!weir__script_is_number(fd))
        return -EBADF;
    weir_peer *peer = weir__script_need_peer(script, fd);
    if (peer == NULL)
        return -ENOMEM;
    weir__script_lock(script);
    int code = peer->is_attached ? -EEXIST : 0;
    if (code == 0) {
        peer->is_attached = true;
        peer->file = file;
        if (peer->is_closed)
            weir__peer_reopen(peer);
    }
    weir__script_unlock(script);
    return weir__io_log_twin(base, fd, code);
}

static void forget(weir_script *script, weir_io_file *file, bool is_closed)
{
    WEIR_ASSERT(file->in_flight == 0 && !weir__io_is_sending(file));
    weir__io_forget(&script->base, file);
    weir_peer *peer = peer_of(script, file);
    weir__script_lock(script);
    peer->is_attached = false;
    peer->file = NULL;
    if (weir__list_is_linked(&peer->link))
        weir__list_remove(&peer->link);
    if (is_closed)
        weir__peer_close(peer);
    weir__script_unlock(script);
}

static void script_detach(weir_io *base, weir_io_file *file)
{
    forget(script_of(base), file, false);
}

static void script_close_file(weir_io *base, weir_io_file *file)
{
    forget(script_of(base), file, true);
}

/* Ending operations --------------------------------------------------------------------------- */

static weir_script_op script_op_of(const weir_io_op *op)
{
    switch ((weir_io_op_kind)op->kind) {
    case WEIR_IO_ACCEPT:
        return WEIR_SCRIPT_ACCEPT;
    case WEIR_IO_RECEIVE:
        return WEIR_SCRIPT_RECEIVE;
    case WEIR_IO_CONNECT:
        return WEIR_SCRIPT_CONNECT;
    case WEIR_IO_POLL:
        return WEIR_SCRIPT_POLL;
    default:
        return WEIR_SCRIPT_HANGUP;
    }
}

/* From here on the peer's changes concern the operation, or the send. */
static void join_peer(weir_script *script, weir_peer *peer, weir_script_op op)
{
    weir__script_lock(script);
    peer->armed |= WEIR_OP_BIT(op);
    weir__script_refresh(script, peer);
    weir__script_unlock(script);
}

static int arm(weir_script *script, weir_io_op *op)
{
    weir_peer *peer = peer_of(script, op->file);
    weir__op_arm(op);
    if (op->kind == WEIR_IO_POLL) {
        weir__script_lock(script);
        peer->poll_events = op->events;
        weir__script_unlock(script);
    }
    join_peer(script, peer, script_op_of(op));
    return WEIR_IO_PENDING;
}

/* The peer's changes concern it no more. */
static void leave_peer(weir_script *script, const weir_io_file *file, weir_script_op op)
{
    weir_peer *peer = peer_of(script, file);
    weir__script_lock(script);
    peer->armed &= ~WEIR_OP_BIT(op);
    if (!weir__peer_can_go_on(peer) && weir__list_is_linked(&peer->link))
        weir__list_remove(&peer->link);
    weir__script_unlock(script);
}

static void finish(weir_script *script, weir_io_op *op, int code)
{
    leave_peer(script, op->file, script_op_of(op));
    weir__op_finish(&script->base, op, code);
}

static void finish_later(weir_script *script, weir_io_op *op, int code)
{
    leave_peer(script, op->file, script_op_of(op));
    weir__op_finish_later(&script->base, op, code);
}

/* The way out --------------------------------------------------------------------------------- */

static int send_bytes(weir_script *script, weir_io_file *file, const struct iovec *pieces,
                      int count)
{
    size_t length = 0;
    weir_peer *peer = peer_of(script, file);
    for (int i = 0; i < count; i++)
        length += pieces[i].iov_len;
    weir_item *sent = weir__item_new(WEIR_ITEM_BYTES, 0, NULL, length);
    if (sent == NULL)
        return -ENOMEM;
    weir__io_count(&script->base.counters->sends);
    weir__script_lock(script);
    int code = weir__peer_take_answer(peer, -EAGAIN);
    if (code > 0) {
        code = weir__peer_keep_sent(peer, sent, pieces, count, (size_t)code);
        sent = NULL;
    }
    weir__script_unlock(script);
    weir__free(sent);
    return code == -EAGAIN ? WEIR_SEND_BLOCKED : code;
}

static int script_try_send(weir_io *base, weir_io_file *file)
{
    struct iovec pieces[MOST_PIECES];
    weir_io_send send = { .pieces = pieces, .max_pieces = MOST_PIECES };
    if (!(weir__io_take_send(base, file) || file->is_send_cancelled))
        return WEIR_SEND_BLOCKED;
    int count = file->sender->gather(file, &send);
    if (count <= 0)
        return count < 0 ? count : WEIR_SEND_NOTHING;
    return send.kind == WEIR_IO_SEND_BYTES ? send_bytes(script_of(base), file, pieces, count)
                                           : -EOPNOTSUPP;
}

static int script_wait_to_send(weir_io *base, weir_io_file *file)
{
    join_peer(script_of(base), peer_of(script_of(base), file), WEIR_SCRIPT_SEND);
    return 0;
}

static void script_cancel_send(weir_io *base, weir_io_file *file)
{
    leave_peer(script_of(base), file, WEIR_SCRIPT_SEND);
    weir__send_end_later(base, file, WEIR_SEND_NOTHING);
}

/* What a connect ends with; -EINPROGRESS when that is still to come. */
static int connect_now(weir_script *script, weir_io_op *op)
{
    weir__script_lock(script);
    int code = weir__peer_take_answer(peer_of(script, op->file), -EINPROGRESS);
    weir__script_unlock(script);
    return code > 0 ? 0 : code;
}

static void complete_out(weir_script *script, weir_io_file *file)
{
    if (file->send_state == WEIR_SEND_WAITING) {
        leave_peer(script, file, WEIR_SCRIPT_SEND);
        weir__send_continue(&script->base, file);
        return;
    }
    int code = file->out != NULL ? connect_now(script, file->out) : -EINPROGRESS;
    if (code != -EINPROGRESS)
        finish(script, file->out, code);
}

/* The way in ---------------------------------------------------------------------------------- */

static int receive(weir_script *script, weir_io_op *op, weir_io_result *result)
{
    size_t size = weir__guess_size(&op->guess);
    weir_buf *buf = weir_buf_new(size);
    if (buf == NULL)
        return -ENOMEM;
    weir__io_count(&script->base.counters->receives);
    weir__script_lock(script);
    int code = weir__peer_take_bytes(peer_of(script, op->file), buf, size);
    weir__script_unlock(script);
    if (code <= 0) {
        weir_buf_release(buf);
        return code;
    }
    weir__guess_learn(&op->guess, (size_t)code);
    result->buf = buf;
    return code;
}

static int accept_now(weir_script *script, weir_io_op *op, weir_io_result *result,
                      struct sockaddr_storage *address)
{
    weir__io_count(&script->base.counters->accepts);
    weir__script_lock(script);
    int code = weir__peer_take_connection(peer_of(script, op->file), result, address);
    weir__script_unlock(script);
    return code;
}

static bool has_input(weir_script *script, const weir_io_file *file)
{
    weir__script_lock(script);
    bool has_some = weir__peer_can_go_in(peer_of(script, file));
    weir__script_unlock(script);
    return has_some;
}

static void complete_in(weir_script *script, weir_io_file *file)
{
    weir_io_op *op = file->in;
    unsigned count = 0;
    bool goes_on = true;
    while (goes_on && count < WEIR_IO_BATCH && has_input(script, file)) {
        struct sockaddr_storage address;
        weir_io_result result = { .is_armed = op->is_multishot };
        result.code = op->kind == WEIR_IO_RECEIVE ? receive(script, op, &result)
                                                  : accept_now(script, op, &result, &address);
        if (op->kind == WEIR_IO_ACCEPT ? result.code < 0 : result.code <= 0) {
            leave_peer(script, op->file, script_op_of(op));
            weir__op_finish_in(&script->base, op, result.code, count);
            return;
        }
        count++;
        if (!op->is_multishot)
            leave_peer(script, op->file, script_op_of(op));
        goes_on = weir__op_tell_data(&script->base, op, &result);
    }
    if (count > 0 && script->base.current == file)
        weir__op_end_batch(op);
}

/* The completion phase ------------------------------------------------------------------------ */

/* What the kernel says about a peer at one moment. */
typedef struct outlook {
    unsigned level;
    bool goes_out, goes_in, is_hung_up;
} outlook;

static outlook look_at(weir_script *script, const weir_peer *peer)
{
    weir__script_lock(script);
    outlook seen = { .level = weir__peer_level(peer),
                     .goes_out = weir__peer_can_go_out(peer),
                     .goes_in = weir__peer_can_go_in(peer),
                     .is_hung_up = peer->is_hung_up };
    weir__script_unlock(script);
    return seen;
}

/* Who has more to tell by itself comes again without a poll's help; a level is found anew. */
static void go_back(weir_script *script, weir_peer *peer)
{
    weir__script_lock(script);
    if (!weir__list_is_linked(&peer->link) &&
        (weir__peer_can_go_in(peer) || weir__peer_can_go_out(peer)))
        weir__list_push_back(&script->known, &peer->link);
    weir__script_refresh(script, peer);
    weir__script_unlock(script);
}

/* Connect and send go first, as with every backend. Any callback may be the file's last. */
static void complete_file(weir_script *script, weir_peer *peer)
{
    weir_io_file *file = peer->file;
    outlook seen = look_at(script, peer);
    script->base.current = file;
    if (weir__file_poll(file) != NULL && seen.level != 0)
        weir__op_tell(&script->base, weir__file_poll(file),
                      &(weir_io_result){ .code = (int)seen.level, .is_armed = true });
    if (script->base.current == file && seen.goes_out)
        complete_out(script, file);
    if (script->base.current == file && file->in != NULL && seen.goes_in)
        complete_in(script, file);
    if (script->base.current == file && weir__file_hangup(file) != NULL && seen.is_hung_up)
        finish(script, weir__file_hangup(file), 0);
    if (script->base.current == file)
        go_back(script, peer);
    script->base.current = NULL;
}

static weir_peer *next_of(weir_script *script, weir_list *todo)
{
    weir__script_lock(script);
    weir_list_node *node = weir__list_pop_front(todo);
    weir__script_unlock(script);
    return node != NULL ? WEIR_CONTAINER(node, weir_peer, link) : NULL;
}

static unsigned script_complete(weir_io *base)
{
    weir_script *script = script_of(base);
    uint64_t before = atomic_load_explicit(&base->counters->completions, memory_order_relaxed);
    weir__io_tell_ended(base);
    weir__send_report_ended(base);
    /* Those that are known now; who comes back waits for the next turn. */
    weir_list todo;
    weir_peer *peer;
    weir__list_init(&todo);
    weir__script_lock(script);
    weir__list_splice_back(&todo, &script->known);
    weir__script_unlock(script);
    base->news = 0;
    while ((peer = next_of(script, &todo)) != NULL) {
        base->news++;
        complete_file(script, peer);
    }
    return (unsigned)(atomic_load_explicit(&base->counters->completions, memory_order_relaxed) -
                      before);
}

/* Submitting ---------------------------------------------------------------------------------- */

static int submit_connect(weir_script *script, weir_io_op *op)
{
    int code = connect_now(script, op);
    return code == -EINPROGRESS ? arm(script, op) : code;
}

static int script_submit(weir_io *base, weir_io_op *op)
{
    weir_script *script = script_of(base);
    weir_io_file *file = op->file;
    WEIR_ASSERT(*weir__op_place(op) == NULL && !op->is_in_flight);
    int error = op->kind > WEIR_IO_HANGUP ? -EOPNOTSUPP : file->error;
    if (error < 0 && weir__op_is_out(op))
        return error;
    if (error < 0) {
        weir__op_arm(op);
        finish_later(script, op, error);
        return WEIR_IO_PENDING;
    }
    return op->kind == WEIR_IO_CONNECT ? submit_connect(script, op) : arm(script, op);
}

static void script_cancel(weir_io *base, weir_io_op *op)
{
    if (!weir__op_is_armed(op))
        return; /* over, or about to be told */
    finish_later(script_of(base), op, -ECANCELED);
}

/* Waiting ------------------------------------------------------------------------------------- */

static bool script_has_results(const weir_io *base)
{
    weir_script *script = script_of(base);
    weir__script_lock(script);
    bool has_known = !weir__list_is_empty(&script->known);
    weir__script_unlock(script);
    return has_known || script->base.first_ended != NULL || script->base.first_sent != NULL;
}

/* Under the lock: the blocking wait, under a name that a stack trace shows. */
static void wait_for_script(weir_script *script, const struct timespec *until)
{
    int error = 0;
    script->stats.is_waiting = true;
    while (!script->is_woken && weir__list_is_empty(&script->news) && error == 0)
        error = pthread_cond_clockwait(&script->changed, &script->lock, CLOCK_MONOTONIC, until);
    script->stats.is_waiting = false;
}

static void wait_at_most(weir_script *script, int64_t timeout_ns)
{
    struct timespec until = weir__clock_until(timeout_ns);
    wait_for_script(script, &until);
}

/* Under the lock: moves what there is to tell to what is known. */
static int find_events(weir_script *script)
{
    int count = script->is_woken ? 1 : 0;
    script->is_woken = false;
    weir_list_node *node;
    while ((node = weir__list_pop_front(&script->news)) != NULL) {
        weir__list_push_back(&script->known, node);
        count++;
    }
    return count;
}

/* Asks the test: WEIR_SCRIPT_WAIT, or what ends the poll. */
static int ask_test(weir_script *script, int64_t timeout_ns)
{
    weir__script_lock(script);
    script->stats.polls++;
    script->stats.last_timeout_ns = timeout_ns;
    weir_script_poll_fn hook = script->hook;
    void *arg = script->hook_arg;
    weir__script_unlock(script);
    int code = hook != NULL ? hook(arg, timeout_ns) : WEIR_SCRIPT_WAIT;
    weir__script_lock(script);
    if (code > 0 && script->poll_answers > 0) {
        script->poll_answers--;
        code = script->poll_code;
    }
    weir__script_unlock(script);
    return code;
}

static int script_poll(weir_io *base, int64_t timeout_ns)
{
    weir_script *script = script_of(base);
    script->base.turn++;
    weir__io_count(&base->counters->polls);
    int code = ask_test(script, timeout_ns);
    if (code < 0)
        return code;
    bool waits = code > 0 && timeout_ns != 0 && !script_has_results(base);
    weir__script_lock(script);
    if (waits)
        wait_at_most(script, timeout_ns);
    int count = find_events(script);
    weir__script_unlock(script);
    return count;
}

static void script_wake(weir_io *base)
{
    weir_script *script = script_of(base);
    weir__script_lock(script);
    script->is_woken = true;
    script->stats.wakes++;
    pthread_cond_signal(&script->changed);
    weir__script_unlock(script);
}

static int script_descriptor(const weir_io *base)
{
    (void)base;
    return -1;
}

static int script_spinner(const weir_io *base)
{
    weir_script *script = script_of(base);
    weir__script_lock(script);
    int fd = script->spinner;
    weir__script_unlock(script);
    return fd;
}

/* Opening, rebuilding, closing ---------------------------------------------------------------- */

/* What waits on a file that could not be moved fails; the others know nothing of it. */
static void lose(weir_script *script, weir_io_file *file, int code)
{
    enum { OPS = 3 };
    weir_io_op *ops[OPS] = { file->in, file->out, file->level };
    file->error = (int16_t)code;
    for (int i = 0; i < OPS; i++) {
        if (ops[i] != NULL)
            finish_later(script, ops[i], code);
    }
    if (file->send_state == WEIR_SEND_WAITING) {
        leave_peer(script, file, WEIR_SCRIPT_SEND);
        weir__send_end_later(&script->base, file, code);
    }
}

static int script_rebuild(weir_io *base)
{
    weir_script *script = script_of(base);
    weir__script_lock(script);
    int code = script->rebuild_failures > 0 ? script->rebuild_code : 0;
    script->rebuild_failures -= code < 0;
    weir__script_unlock(script);
    if (code < 0)
        return code;
    weir__io_count(&base->counters->rebuilds);
    for (int fd = 0; fd < WEIR_SCRIPT_DESCRIPTORS; fd++) {
        weir__script_lock(script);
        weir_peer *peer = script->peers[fd];
        bool is_lost = peer != NULL && peer->is_attached && peer->move_error < 0;
        int error = is_lost ? peer->move_error : 0;
        if (is_lost)
            peer->move_error = 0;
        weir__script_unlock(script);
        if (is_lost)
            lose(script, peer->file, error);
    }
    return 0;
}

static void script_close(weir_io *base)
{
    (void)base; /* nothing is at any kernel */
}

static void script_destroy(weir_io *base)
{
    weir_script *script = script_of(base);
    weir__script_lock(script);
    script->is_open = script->is_woken = false;
    pthread_cond_broadcast(&script->changed);
    weir__script_unlock(script);
}

static const weir_io_type script_type = {
    .name = "script",
    .attach = script_attach,
    .detach = script_detach,
    .close_file = script_close_file,
    .submit = script_submit,
    .cancel = script_cancel,
    .try_send = script_try_send,
    .wait_to_send = script_wait_to_send,
    .cancel_send = script_cancel_send,
    .poll = script_poll,
    .complete = script_complete,
    .has_results = script_has_results,
    .wake = script_wake,
    .rebuild = script_rebuild,
    .spinner = script_spinner,
    .descriptor = script_descriptor,
    .close = script_close,
    .destroy = script_destroy,
};

int weir__script_open(weir_io_source *source, weir_sys *sys, weir_io_counters *counters,
                      weir_io **io)
{
    weir_script *script = WEIR_CONTAINER(source, weir_script, source);
    weir__script_lock(script);
    int code = script->is_open ? -EBUSY : 0;
    script->is_open = true;
    weir__script_unlock(script);
    if (code < 0)
        return code;
    weir__io_init(&script->base, &script_type, sys, counters);
    *io = &script->base;
    return 0;
}
