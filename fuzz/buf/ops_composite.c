/* SPDX-License-Identifier: MIT */
/* Operations on composites. */
#include "buf/input.h"
#include "buf/world.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

/* Whether the model has room for the part, and for a piece by every operation that may follow. */
static bool is_small_enough(const slot *s, const slot *part)
{
    return s->view.count + part->view.count < MODEL_PIECES - MAX_RECORDS &&
           s->view.writer + part->view.writer <= MAX_CONTENT;
}

/* A borrowed slice has no reference to give; as a part it must be refused. */
static slot *take_composite(world *w, slot **part)
{
    slot *other = take_slot(w);
    if (*part == &w->borrowed && take(w) & 1)
        return other;
    slot *composite = *part;
    *part = other;
    return composite;
}

/* The call took a reference to the part, however it ended. */
static void end_add(world *w, slot *part, int code, int expected)
{
    if (ran_out(w, code == -ENOMEM))
        expected = -ENOMEM;
    expect(w, "the code", code, expected);
    if (part != &w->borrowed)
        lose_reference(part);
}

void op_add(world *w, slot *s)
{
    slot *part = s, *composite = take_composite(w, &part);
    if (!is_small_enough(composite, part))
        return;
    SAY("as [%d]: composite_add([%d])", slot_number(w, composite), slot_number(w, part));
    int code = weir_buf_composite_add(composite->buf, part->buf);
    int expected = code == -ENOMEM ? code : model_add(&composite->view, &part->view);
    end_add(w, part, code, expected);
}

void op_insert(world *w, slot *s)
{
    slot *part = s, *composite = take_composite(w, &part);
    size_t at = take_size(w, model_count(&composite->view));
    if (!is_small_enough(composite, part))
        return;
    SAY("as [%d]: composite_insert(%zu, [%d])", slot_number(w, composite), at,
        slot_number(w, part));
    int code = weir_buf_composite_insert(composite->buf, at, part->buf);
    int expected = code == -ENOMEM ? code : model_insert(&composite->view, at, &part->view);
    end_add(w, part, code, expected);
}

void op_remove(world *w, slot *s)
{
    size_t at = take_size(w, model_count(&s->view));
    SAY("composite_remove(%zu)", at);
    int code = weir_buf_composite_remove(s->buf, at);
    expect(w, "the code", code, model_remove(&s->view, at));
}

void op_piece(world *w, slot *s)
{
    size_t at = take_size(w, model_count(&s->view)), index = SIZE_MAX, length = SIZE_MAX;
    SAY("composite_piece(%zu)", at);
    int code = weir_buf_composite_piece(s->buf, at, &index, &length);
    bool has_pieces = model_check_composite(&s->view) != -EINVAL;
    expect(w, "the code", code,
           !has_pieces                   ? -EINVAL
           : at >= model_count(&s->view) ? WEIR_EBOUNDS
                                         : 0);
    if (code < 0 && (index != SIZE_MAX || length != SIZE_MAX))
        fail(w, "failed, but set a result");
}

void op_consolidate(world *w, slot *s)
{
    SAY("composite_consolidate()");
    int code = weir_buf_composite_consolidate(s->buf);
    if (!ran_out(w, code == -ENOMEM))
        expect(w, "the code", code, model_consolidate(&s->view));
}

/* Memory that is only ever counted. */
static void *giant(void)
{
    static void *memory;
    if (memory == NULL) {
        memory = mmap(NULL, GIANT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            abort();
    }
    return memory;
}

/* As if gigabytes had gone through a composite: a giant piece comes in at the front and is
 * dropped again, so that positions count on from far up. */
void op_roll(world *w, slot *s)
{
    model_view *view = &s->view;
    if (model_check_composite(view) < 0 || view->limit < GIANT)
        return;
    size_t length = take(w) & 1 ? GIANT - view->writer : GIANT / 2;
    w->fault_in = 0;
    SAY("composite_insert(0, wrap(%zu bytes)), set_reader(%zu), discard_read()", length, length);
    weir_buf *part = weir_buf_wrap(giant(), length, NULL, NULL);
    expect(w, "insert", weir_buf_composite_insert(s->buf, 0, part), 0);
    expect(w, "set_reader", weir_buf_set_reader(s->buf, length), 0);
    expect(w, "discard_read", weir_buf_discard_read(s->buf), 0);
    /* Marks behind the piece moved with it; in front of none it was appended, and they did not. */
    if (view->writer == 0)
        view->reader_mark = view->writer_mark = 0;
    view->reader = 0;
    size_t mark = view->writer_mark; /* room that gives way to a part takes no mark along */
    model_set_capacity(view, view->writer);
    view->writer_mark = mark;
}
