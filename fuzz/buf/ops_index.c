/* SPDX-License-Identifier: MIT */
/* Operations on indices, marks and room. */
#include "buf/world.h"

#include <errno.h>
#include <string.h>

/* Indices ----------------------------------------------------------------------------------- */

static int set_reader(model_view *view, size_t index)
{
    if (!view->is_live)
        return -EINVAL;
    if (index > view->writer)
        return WEIR_EBOUNDS;
    view->reader = index;
    return 0;
}

/* What lies in front of the writer becomes content; where the model cannot know it, it learns. */
static int set_writer(world *w, slot *s, size_t index)
{
    model_view *view = &s->view;
    if (!view->is_live)
        return -EINVAL;
    if (index < view->reader || index > view->capacity)
        return WEIR_EBOUNDS;
    if (index > view->writer) {
        size_t length = index - view->writer;
        expect(w, "get_bytes", weir_buf_get_bytes(s->buf, view->writer, w->other, length), 0);
        model_learn(view, view->writer, w->other, length);
    }
    view->writer = index;
    return 0;
}

void op_set_reader(world *w, slot *s)
{
    size_t index = take_size(w, s->view.writer);
    SAY("set_reader(%zu)", index);
    int code = weir_buf_set_reader(s->buf, index);
    expect(w, "the code", code, set_reader(&s->view, index));
}

void op_set_writer(world *w, slot *s)
{
    size_t capacity = s->view.capacity;
    size_t index = take_size(w, capacity);
    if (index > MAX_CONTENT && index <= capacity)
        index = MAX_CONTENT;
    SAY("set_writer(%zu)", index);
    int code = weir_buf_set_writer(s->buf, index);
    expect(w, "the code", code, set_writer(w, s, index));
}

void op_skip(world *w, slot *s)
{
    size_t length = take_size(w, s->view.writer - s->view.reader);
    SAY("skip(%zu)", length);
    int code = weir_buf_skip(s->buf, length);
    expect(w, "the code", code, model_check(&s->view, s->view.reader, length));
    if (code == 0)
        s->view.reader += length;
}

void op_advance_writer(world *w, slot *s)
{
    size_t room = s->view.capacity - s->view.writer;
    size_t length = take_size(w, room);
    if (length <= room && length > MAX_CONTENT - s->view.writer)
        length = MAX_CONTENT - s->view.writer;
    SAY("advance_writer(%zu)", length);
    int code = weir_buf_advance_writer(s->buf, length);
    int expected = length > room ? WEIR_EBOUNDS : set_writer(w, s, s->view.writer + length);
    expect(w, "the code", code, s->view.is_live ? expected : -EINVAL);
}

void op_clear(world *w, slot *s)
{
    SAY("clear()");
    expect(w, "the code", weir_buf_clear(s->buf), s->view.is_live ? 0 : -EINVAL);
    s->view.reader = s->view.writer = s->view.reader_mark = s->view.writer_mark = 0;
}

void op_mark_reader(world *w, slot *s)
{
    SAY("mark_reader()");
    expect(w, "the code", weir_buf_mark_reader(s->buf), s->view.is_live ? 0 : -EINVAL);
    s->view.reader_mark = s->view.reader;
}

void op_reset_reader(world *w, slot *s)
{
    SAY("reset_reader()");
    int code = weir_buf_reset_reader(s->buf);
    expect(w, "the code", code, set_reader(&s->view, s->view.reader_mark));
}

void op_mark_writer(world *w, slot *s)
{
    SAY("mark_writer()");
    expect(w, "the code", weir_buf_mark_writer(s->buf), s->view.is_live ? 0 : -EINVAL);
    s->view.writer_mark = s->view.writer;
}

void op_reset_writer(world *w, slot *s)
{
    SAY("reset_writer()");
    int code = weir_buf_reset_writer(s->buf);
    expect(w, "the code", code, set_writer(w, s, s->view.writer_mark));
}

/* Room -------------------------------------------------------------------------------------- */

void op_ensure_writable(world *w, slot *s)
{
    size_t length = take(w) & 1 ? take_capacity(w) : take_size(w, 200);
    SAY("ensure_writable(%zu)", length);
    int code = weir_buf_ensure_writable(s->buf, length);
    if (!ran_out(w, code == -ENOMEM))
        expect(w, "the code", code, model_ensure(&s->view, length));
}

void op_set_capacity(world *w, slot *s)
{
    size_t capacity = take(w) & 1 ? take_capacity(w) : take_size(w, s->view.writer);
    SAY("set_capacity(%zu)", capacity);
    int code = weir_buf_set_capacity(s->buf, capacity);
    if (!ran_out(w, code == -ENOMEM))
        expect(w, "the code", code, model_set_capacity(&s->view, capacity));
}

void op_set_limit(world *w, slot *s)
{
    size_t capacity = s->view.capacity;
    uint8_t how = take(w) & 3;
    size_t limit = how == 0   ? WEIR_BUF_MAX
                   : how == 1 ? take_capacity(w)
                   : how == 2 ? take_size(w, capacity)
                              : capacity + take(w);
    SAY("set_limit(%zu)", limit);
    int code = weir_buf_set_limit(s->buf, limit);
    bool is_good = s->view.is_live && !s->view.is_borrowed && limit >= capacity &&
                   limit <= WEIR_BUF_MAX;
    expect(w, "the code", code, is_good ? 0 : -EINVAL);
    if (code == 0)
        s->view.limit = limit;
}

void op_discard_read(world *w, slot *s)
{
    SAY("discard_read()");
    int code = weir_buf_discard_read(s->buf);
    expect(w, "the code", code, model_discard(&s->view, weir_buf_capacity(s->buf)));
}

void op_write_ptr(world *w, slot *s)
{
    size_t length = take_length(w, s);
    SAY("write_ptr(%zu)", length);
    uint8_t *room = weir_buf_write_ptr(s->buf, length);
    if (w->has_failed) {
        ran_out(w, room == NULL);
        return;
    }
    expect(w, "having room", room != NULL, model_write_ptr(&s->view, length));
    if (room == NULL)
        return;
    /* All of it may be written, though less is then declared content. */
    const uint8_t *bytes = take_bytes(w, length);
    size_t used = take(w) % (length + 1);
    if (length > 0)
        memcpy(room, bytes, length);
    model_put(&s->view, s->view.writer, bytes, length);
    SAY("advance_writer(%zu)", used);
    expect(w, "advance_writer", weir_buf_advance_writer(s->buf, used), 0);
    s->view.writer += used;
}
