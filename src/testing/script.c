/* SPDX-License-Identifier: MIT */
/* Scripts: what a test says and asks. */
#include "base/alloc.h"
#include "base/assert.h"
#include "testing/script_io.h"

#include <errno.h>

int weir_script_new(weir_script **out)
{
    weir_script *script = out != NULL ? weir__zalloc(sizeof *script) : NULL;
    if (script == NULL)
        return out != NULL ? -ENOMEM : -EINVAL;
    script->source = (weir_io_source){ .name = "script", .open = weir__script_open };
    pthread_mutex_init(&script->lock, NULL);
    pthread_cond_init(&script->changed, NULL);
    weir__list_init(&script->news);
    weir__list_init(&script->known);
    script->base.last_ended = &script->base.first_ended;
    script->spinner = -1;
    *out = script;
    return 0;
}

void weir__script_wait_until_free(weir_script *script)
{
    weir__script_lock(script);
    while (script->is_open)
        pthread_cond_wait(&script->changed, &script->lock);
    weir__script_unlock(script);
}

void weir_script_free(weir_script *script)
{
    if (script == NULL)
        return;
    if (script->is_open) {
        weir__misuse(__func__, "called while a loop uses the script");
        return;
    }
    for (int fd = 0; fd < WEIR_SCRIPT_DESCRIPTORS; fd++)
        weir__peer_free(script->peers[fd]);
    pthread_cond_destroy(&script->changed);
    pthread_mutex_destroy(&script->lock);
    weir__free(script);
}

weir_io_source *weir_script_source(weir_script *script)
{
    return script != NULL ? &script->source : NULL;
}

int weir_script_answer_polls(weir_script *script, unsigned count, int code)
{
    if (script == NULL || code > 0)
        return -EINVAL;
    weir__script_lock(script);
    script->poll_answers = count;
    script->poll_code = code;
    weir__script_unlock(script);
    return 0;
}

void weir_script_set_poll_hook(weir_script *script, weir_script_poll_fn fn, void *arg)
{
    weir__script_lock(script);
    script->hook = fn;
    script->hook_arg = arg;
    weir__script_unlock(script);
}

int weir_script_fail_rebuilds(weir_script *script, unsigned count, int code)
{
    if (script == NULL || code >= 0)
        return -EINVAL;
    weir__script_lock(script);
    script->rebuild_failures = count;
    script->rebuild_code = code;
    weir__script_unlock(script);
    return 0;
}

int weir_script_blame(weir_script *script, int fd)
{
    if (script == NULL || (fd != -1 && !weir__script_is_number(fd)))
        return -EINVAL;
    weir__script_lock(script);
    script->spinner = fd;
    weir__script_unlock(script);
    return 0;
}

void weir_script_get_stats(weir_script *script, weir_script_stats *stats)
{
    weir__script_lock(script);
    *stats = script->stats;
    weir__script_unlock(script);
}

/* The peer of a number that is one, locked; else a negative code. */
static int begin_with(weir_script *script, int fd, weir_peer **peer)
{
    if (script == NULL || !weir__script_is_number(fd))
        return -EINVAL;
    *peer = weir__script_need_peer(script, fd);
    if (*peer == NULL)
        return -ENOMEM;
    weir__script_lock(script);
    return 0;
}

static int end_with(weir_script *script, weir_peer *peer)
{
    weir__script_refresh(script, peer);
    weir__script_unlock(script);
    return 0;
}

/* Puts an item on the way in, for which NULL stands for no memory. */
static int put_in(weir_script *script, int fd, weir_item *made)
{
    weir_peer *peer;
    int code = made != NULL ? begin_with(script, fd, &peer) : -ENOMEM;
    if (code < 0) {
        weir__free(made);
        return code;
    }
    if (weir__peer_is_at_end(peer)) {
        weir__script_unlock(script);
        weir__free(made);
        return -EPIPE;
    }
    weir__list_push_back(&peer->in, &made->node);
    return end_with(script, peer);
}

int weir_script_deliver(weir_script *script, int fd, const void *bytes, size_t length)
{
    if (script == NULL || !weir__script_is_number(fd) || bytes == NULL || length == 0)
        return -EINVAL;
    return put_in(script, fd, weir__item_new(WEIR_ITEM_BYTES, 0, bytes, length));
}

int weir_script_end(weir_script *script, int fd)
{
    if (script == NULL || !weir__script_is_number(fd))
        return -EINVAL;
    int code = put_in(script, fd, weir__item_new(WEIR_ITEM_END, 0, NULL, 0));
    return code == -EPIPE ? 0 : code;
}

int weir_script_fail(weir_script *script, int fd, int code)
{
    if (script == NULL || !weir__script_is_number(fd) || code >= 0)
        return -EINVAL;
    return put_in(script, fd, weir__item_new(WEIR_ITEM_FAILURE, code, NULL, 0));
}

int weir_script_offer(weir_script *script, int listener, int fd, const struct sockaddr *address,
                      size_t length)
{
    if (script == NULL || !weir__script_is_number(listener) || !weir__script_is_number(fd) ||
        length > sizeof(struct sockaddr_storage) || (address == NULL) != (length == 0))
        return -EINVAL;
    return put_in(script, listener, weir__item_new(WEIR_ITEM_CONNECTION, fd, address, length));
}

int weir_script_hang_up(weir_script *script, int fd, int code)
{
    if (script == NULL || !weir__script_is_number(fd) || code > 0)
        return -EINVAL;
    weir_peer *peer;
    weir_item *end = weir__item_new(WEIR_ITEM_END, 0, NULL, 0),
              *failure = weir__item_new(WEIR_ITEM_FAILURE, code, NULL, 0);
    int made = end != NULL && failure != NULL ? begin_with(script, fd, &peer) : -ENOMEM;
    if (made == 0) {
        if (!weir__peer_is_at_end(peer)) {
            if (code < 0) {
                weir__list_push_back(&peer->in, &failure->node);
                failure = NULL;
            }
            weir__list_push_back(&peer->in, &end->node);
            end = NULL;
        }
        peer->is_hung_up = true;
        peer->out_error = code < 0 ? code : -EPIPE;
        peer->ready = WEIR_IO_READABLE | WEIR_IO_WRITABLE | WEIR_IO_HUNG_UP;
        end_with(script, peer);
    }
    weir__free(end);
    weir__free(failure);
    return made;
}

int weir_script_set_ready(weir_script *script, int fd, unsigned events)
{
    weir_peer *peer;
    if (events & ~(unsigned)(WEIR_IO_READABLE | WEIR_IO_WRITABLE | WEIR_IO_HUNG_UP))
        return -EINVAL;
    int code = begin_with(script, fd, &peer);
    if (code < 0)
        return code;
    peer->ready = events;
    return end_with(script, peer);
}

int weir_script_answer(weir_script *script, int fd, int code)
{
    if (script == NULL || !weir__script_is_number(fd) || code == 0)
        return -EINVAL;
    weir_peer *peer;
    weir_item *made = weir__item_new(WEIR_ITEM_ANSWER, code, NULL, 0);
    int begun = made != NULL ? begin_with(script, fd, &peer) : -ENOMEM;
    if (begun < 0) {
        weir__free(made);
        return begun;
    }
    weir__list_push_back(&peer->answers, &made->node);
    return end_with(script, peer);
}

int weir_script_fail_move(weir_script *script, int fd, int code)
{
    weir_peer *peer;
    int begun = code < 0 ? begin_with(script, fd, &peer) : -EINVAL;
    if (begun < 0)
        return begun;
    peer->move_error = code;
    return end_with(script, peer);
}

/* Looking ------------------------------------------------------------------------------------- */

/* The peer if there is one, locked; asking makes none. */
static weir_peer *look_for(weir_script *script, int fd)
{
    if (script == NULL || !weir__script_is_number(fd))
        return NULL;
    weir__script_lock(script);
    weir_peer *peer = script->peers[fd];
    if (peer == NULL)
        weir__script_unlock(script);
    return peer;
}

size_t weir_script_take_sent(weir_script *script, int fd, void *to, size_t room)
{
    weir_peer *peer = look_for(script, fd);
    if (peer == NULL)
        return 0;
    size_t taken = weir__peer_take_sent(peer, to, room);
    weir__script_unlock(script);
    return taken;
}

size_t weir_script_sent_bytes(weir_script *script, int fd)
{
    weir_peer *peer = look_for(script, fd);
    size_t count = peer != NULL ? peer->sent_bytes : 0;
    if (peer != NULL)
        weir__script_unlock(script);
    return count;
}

bool weir_script_is_armed(weir_script *script, int fd, weir_script_op op)
{
    weir_peer *peer = look_for(script, fd);
    bool armed = peer != NULL && weir__peer_is_armed(peer, op);
    if (peer != NULL)
        weir__script_unlock(script);
    return armed;
}

bool weir_script_is_attached(weir_script *script, int fd)
{
    weir_peer *peer = look_for(script, fd);
    bool is_attached = peer != NULL && peer->is_attached;
    if (peer != NULL)
        weir__script_unlock(script);
    return is_attached;
}

bool weir_script_is_closed(weir_script *script, int fd)
{
    weir_peer *peer = look_for(script, fd);
    bool is_closed = peer != NULL && peer->is_closed;
    if (peer != NULL)
        weir__script_unlock(script);
    return is_closed;
}
