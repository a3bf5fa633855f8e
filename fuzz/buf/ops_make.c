/* SPDX-License-Identifier: MIT */
/* Operations that make buffers and end them. */
#include "buf/world.h"

#include <weir/pool.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static model_view made; /* the model of what is being made */

/* How much to make a buffer of. */
static size_t take_new_length(world *w)
{
    uint8_t byte = take(w);
    return byte < 0xc0 ? byte % 0x60 : (size_t)(byte - 0xc0) * 20;
}

/* New ones ---------------------------------------------------------------------------------- */

void op_new(world *w, slot *s)
{
    slot *to = s == &w->borrowed ? take_slot(w) : s;
    size_t capacity = take_capacity(w);
    SAY("new(%zu)", capacity);
    weir_buf *buf = weir_buf_new(capacity);
    if (capacity > WEIR_BUF_MAX) {
        w->has_failed = false; /* it may ask before it looks */
        expect(w, "a buffer", buf != NULL, false);
        return;
    }
    if (ran_out(w, buf == NULL))
        return;
    model_make(&made, capacity);
    put_in(w, to, buf, &made);
}

static void model_from(const uint8_t *bytes, size_t length)
{
    model_make(&made, length);
    made.writer = length;
    model_put(&made, 0, bytes, length);
}

void op_from(world *w, slot *s)
{
    slot *to = s == &w->borrowed ? take_slot(w) : s;
    size_t length = take_new_length(w);
    const uint8_t *bytes = take_bytes(w, length);
    SAY("from(%zu bytes)", length);
    weir_buf *buf = weir_buf_from(bytes, length);
    if (ran_out(w, buf == NULL))
        return;
    model_from(bytes, length);
    put_in(w, to, buf, &made);
}

static void give_back(void *arg, void *memory)
{
    model_store *store = *(model_store **)arg;
    if (store->is_freed || memory != store->memory)
        abort();
    store->is_freed = true;
    free(memory);
    free(arg);
}

void op_wrap(world *w, slot *s)
{
    slot *to = s == &w->borrowed ? take_slot(w) : s;
    size_t length = take_new_length(w);
    bool is_lent = take(w) % 4 != 0;
    model_store **arg = is_lent ? malloc(sizeof *arg) : NULL;
    void *memory = malloc(length + 1);
    memcpy(memory, take_bytes(w, length), length);
    SAY("wrap(%zu bytes, %s)", length, is_lent ? "free_fn" : "NULL");
    weir_buf *buf = weir_buf_wrap(memory, length, is_lent ? give_back : NULL, arg);
    if (ran_out(w, buf == NULL)) {
        free(memory);
        free(arg);
        return;
    }
    model_store *store = model_wrap(&made, memory, length);
    store->is_lent = is_lent;
    if (is_lent)
        *arg = store;
    put_in(w, to, buf, &made);
}

void op_new_composite(world *w, slot *s)
{
    slot *to = s == &w->borrowed ? take_slot(w) : s;
    SAY("new_composite()");
    weir_buf *buf = weir_buf_new_composite();
    if (ran_out(w, buf == NULL))
        return;
    model_make_composite(&made);
    put_in(w, to, buf, &made);
}

/* On another thread ------------------------------------------------------------------------- */

/* A thread costs as much as a hundred operations. */
static bool may_go_elsewhere(world *w)
{
    if (w->was_elsewhere || take(w) % 8 != 0)
        return false;
    w->was_elsewhere = true;
    return true;
}

/* Runs `fn` on a thread of its own, with a pool that ends when it does. */
static void *run_elsewhere(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, fn, arg) != 0)
        abort();
    pthread_join(thread, &result);
    return result;
}

typedef struct byte_range {
    const uint8_t *bytes;
    size_t length;
} byte_range;

static void *make_from(void *arg)
{
    const byte_range *range = arg;
    return weir_buf_from(range->bytes, range->length);
}

void op_from_elsewhere(world *w, slot *s)
{
    slot *to = s == &w->borrowed ? take_slot(w) : s;
    if (!may_go_elsewhere(w))
        return;
    size_t length = take_new_length(w);
    byte_range range = { take_bytes(w, length), length };
    SAY("from(%zu bytes) on another thread", length);
    weir_buf *buf = run_elsewhere(make_from, &range);
    if (ran_out(w, buf == NULL))
        return;
    model_from(range.bytes, length);
    put_in(w, to, buf, &made);
}

static void *release_here(void *buf)
{
    return weir_buf_release(buf) == 1 ? buf : NULL;
}

void op_release_elsewhere(world *w, slot *s)
{
    if (s->buf == NULL || s == &w->borrowed || !may_go_elsewhere(w))
        return;
    SAY("release() on another thread");
    bool was_last = run_elsewhere(release_here, s->buf) != NULL;
    expect(w, "its being the last reference", was_last, s->view.refs == 1);
    lose_reference(s);
}

/* References -------------------------------------------------------------------------------- */

void op_retain(world *w, slot *s)
{
    if (s == &w->borrowed || s->view.refs > 3)
        return;
    SAY("retain()");
    weir_buf *buf = weir_buf_retain(s->buf);
    if (buf != s->buf || weir_buf_from_msg(weir_buf_msg(buf)) != buf)
        fail(w, "is another buffer");
    s->view.refs += s->view.is_live;
}

void op_release(world *w, slot *s)
{
    if (s == &w->borrowed)
        return;
    SAY("release()");
    int code = weir_buf_release(s->buf);
    expect(w, "the code", code, s->view.is_live ? s->view.refs == 1 : -EINVAL);
    lose_reference(s);
}

/* Views and copies -------------------------------------------------------------------------- */

/* A slice in one piece may be a plain buffer, whatever it was cut from. */
static void settle_kind(const weir_buf *slice)
{
    if (made.count > 1 || weir_buf_is_composite(slice))
        return;
    made.is_composite = false;
    made.is_read_only |= made.count == 1 && made.pieces[0].is_read_only;
}

/* What all ways to a new view have in common: where they fail, they do as told and give no buffer.
 */
static bool was_made(world *w, int code, int expected, const weir_buf *buf)
{
    if (ran_out(w, code == -ENOMEM))
        expected = -ENOMEM;
    expect(w, "the code", code, expected);
    if (code < 0 && buf != NULL)
        fail(w, "failed, but set the result");
    return code == 0;
}

void op_retained_slice(world *w, slot *s)
{
    slot *to = take_slot(w);
    size_t index = take_size(w, s->view.writer);
    size_t length = take_size(w, index <= s->view.writer ? s->view.writer - index : 0);
    weir_buf *buf = NULL;
    SAY("retained_slice(%zu, %zu) into [%d]", index, length, slot_number(w, to));
    int code = weir_buf_retained_slice(s->buf, index, length, &buf);
    if (!was_made(w, code, model_check(&s->view, index, length), buf))
        return;
    model_slice(&made, &s->view, index, length);
    settle_kind(buf);
    put_in(w, to, buf, &made);
}

void op_read_slice(world *w, slot *s)
{
    slot *to = take_slot(w);
    size_t reader = s->view.reader, length = take_size(w, s->view.writer - reader);
    weir_buf *buf = NULL;
    SAY("read_slice(%zu) into [%d]", length, slot_number(w, to));
    int code = weir_buf_read_slice(s->buf, length, &buf);
    if (!was_made(w, code, model_check(&s->view, reader, length), buf))
        return;
    model_slice(&made, &s->view, reader, length);
    settle_kind(buf);
    s->view.reader += length;
    put_in(w, to, buf, &made);
}

void op_duplicate(world *w, slot *s)
{
    slot *to = take_slot(w);
    weir_buf *buf = NULL;
    SAY("duplicate() into [%d]", slot_number(w, to));
    int code = weir_buf_duplicate(s->buf, &buf);
    if (!was_made(w, code, s->view.is_live ? 0 : -EINVAL, buf))
        return;
    model_duplicate(&made, &s->view);
    put_in(w, to, buf, &made);
}

void op_read_only(world *w, slot *s)
{
    slot *to = take_slot(w);
    weir_buf *buf = NULL;
    SAY("read_only() into [%d]", slot_number(w, to));
    int code = weir_buf_read_only(s->buf, &buf);
    if (!was_made(w, code, s->view.is_live ? 0 : -EINVAL, buf))
        return;
    model_duplicate(&made, &s->view);
    made.is_read_only = true;
    put_in(w, to, buf, &made);
}

void op_copy(world *w, slot *s)
{
    slot *to = take_slot(w);
    size_t index = take_size(w, s->view.writer);
    size_t length = take_size(w, index <= s->view.writer ? s->view.writer - index : 0);
    weir_buf *buf = NULL;
    SAY("copy(%zu, %zu) into [%d]", index, length, slot_number(w, to));
    int code = weir_buf_copy(s->buf, index, length, &buf);
    if (!was_made(w, code, model_check(&s->view, index, length), buf))
        return;
    model_copy(&made, &s->view, index, length);
    put_in(w, to, buf, &made);
}

/* The pool ---------------------------------------------------------------------------------- */

void op_fault(world *w, slot *s)
{
    w->fault_in = take(w) % 6;
    SAY("memory fails at request %u", w->fault_in);
}

void op_trim(world *w, slot *s)
{
    SAY("pool_trim()");
    weir_pool_trim();
    weir_pool_trim();
    expect(w, "what the third trim finds", (int64_t)weir_pool_trim(), 0);
}
