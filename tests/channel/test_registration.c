/* SPDX-License-Identifier: MIT */
/* How channels come to loops, leave them, and end with them; and all that without memory. */
#include "channel/stub.h"

/* Registering ---------------------------------------------------------------------------------- */

static int register_here(void *arg)
{
    weir_channel *channel = arg;
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_register(channel, weir_executor_current(), promise);
    int code = weir_future_code(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

static void s118_registering_twice_fails(void **state)
{
    (void)state;
    story to = STORY;
    ear first, second, third;
    weir_embedded_config config = { .init = add_recorder, .arg = &to, .is_unregistered = true };
    weir_embedded *e = open_embedded(&config);
    weir_channel *channel = weir_embedded_channel(e);
    weir_executor *loop = weir_embedded_executor(e);
    go_with_ear(weir_channel_register, channel, loop, &first, &to, "first");
    go_with_ear(weir_channel_register, channel, loop, &second, &to, "second");
    weir_embedded_run(e);
    story_is(&to, "added first=ok registered active second=WEIR_EREGISTERED");
    go_with_ear(weir_channel_register, channel, loop, &third, &to, "third");
    weir_embedded_run(e);
    story_is(&to, "third=WEIR_EREGISTERED");
    assert_string_equal(weir_error_text(third.code), "registered to an event loop already");
    assert_int_equal(weir_embedded_call(e, register_here, channel), WEIR_EREGISTERED);
    assert_true(weir_channel_is_active(channel));
    weir_embedded_free(e);
}

static void s119_an_executor_that_is_no_loop_is_refused(void **state)
{
    (void)state;
    story to = STORY;
    ear wrong, moved, right;
    weir_group *plain = NULL;
    assert_int_equal(weir_group_new_executors(
                         &plain,
                         &(weir_group_config){ .count = 1, .name = "business", .is_manual = true },
                         NULL),
                     0);
    weir_executor *executor = weir_group_at(plain, 0);
    weir_embedded *e = open_embedded(&(weir_embedded_config){ .is_unregistered = true });
    weir_channel *channel = weir_embedded_channel(e);
    harness_log_begin(WEIR_LOG_WARN);
    go_with_ear(weir_channel_register, channel, executor, &wrong, &to, "wrong");
    story_is(&to, "wrong=WEIR_ELOOPTYPE");
    assert_string_equal(weir_error_text(wrong.code), "incompatible event loop type");
    assert_true(harness_log_has("incompatible event loop type: "));
    assert_true(harness_log_has(weir_executor_name(executor)));
    assert_true(harness_log_has("manual executor"));
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_OPEN);
    go_with_ear(weir_channel_register, channel, weir_embedded_executor(e), &right, &to, "right");
    weir_embedded_run(e);
    story_is(&to, "right=ok");
    go_with_ear(weir_channel_move, channel, executor, &moved, &to, "moved");
    weir_embedded_run(e);
    story_is(&to, "moved=WEIR_ELOOPTYPE");
    assert_true(weir_channel_is_active(channel));
    assert_int_equal(harness_log_end(), 2);
    weir_embedded_free(e);
    end_group(plain);
}

static void a_loop_that_is_none_is_refused(void **state)
{
    (void)state;
    story to = STORY;
    ear a, b;
    weir_embedded *e = open_embedded(&(weir_embedded_config){ .is_unregistered = true });
    weir_channel *channel = weir_embedded_channel(e);
    go_with_ear(weir_channel_register, channel, NULL, &a, &to, "register");
    go_with_ear(weir_channel_move, channel, NULL, &b, &to, "move");
    story_is(&to, "register=EINVAL move=EINVAL");
    weir_promise *promise = weir_promise_new(NULL);
    weir_channel_register(NULL, weir_embedded_executor(e), promise);
    assert_int_equal(weir_future_code(weir_promise_future(promise)), -EINVAL);
    weir_promise_release(promise);
    weir_embedded_free(e);
}

static int register_inside(void *arg)
{
    stub *self = arg;
    weir_channel_register(&self->base, weir_executor_current(), NULL);
    return weir_channel_get_state(&self->base) == WEIR_CHANNEL_REGISTERED ? 0 : -EINVAL;
}

static void s120_inside_the_loop_registering_happens_at_once(void **state)
{
    (void)state;
    story to = STORY;
    weir_embedded *e = open_embedded(NULL);
    stub *inside = new_stub(&to, NULL);
    assert_int_equal(weir_embedded_call(e, register_inside, inside), 0);
    story_is(&to, "added registered active");
    weir_channel_close(&inside->base, NULL);
    weir_embedded_run(e);
    story_is(&to, "inactive unregistered removed");
    weir_channel_release(&inside->base);
    weir_embedded_free(e);
}

typedef struct thread_note {
    story *story;
    pthread_t thread;
} thread_note;

static void note_thread(weir_ctx *ctx)
{
    thread_note *note = weir_ctx_arg(ctx);
    note->thread = pthread_self();
    story_add(note->story, "added");
}

static const weir_handler_type notes_thread = { .name = "notes thread", .added = note_thread };

static int say_before(void *arg)
{
    story_add(arg, "before");
    return 0;
}

static int say_after(void *arg)
{
    story_add(arg, "after");
    return 0;
}

static void s120_from_outside_registering_is_a_task(void **state)
{
    (void)state;
    story to = STORY;
    ear done;
    thread_note note = { .story = &to, .thread = pthread_self() };
    weir_group *group = open_group(&(weir_group_config){ .loops = 1 });
    weir_executor *loop = weir_group_at(group, 0);
    stub *channel = new_stub(NULL, NULL);
    weir_pipeline_add_last(&channel->base.pipeline, NULL, &notes_thread, &note);
    weir_promise *promise = ear_promise(&done, &to, "registered", &channel->base);
    weir_future *last;
    weir_executor_execute(loop, say_before, &to);
    weir_channel_register(&channel->base, loop, promise);
    weir_executor_submit(loop, say_after, &to, &last);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    assert_int_equal(weir_future_await(last), 0);
    story_is(&to, "before added registered=ok after");
    assert_false(pthread_equal(note.thread, pthread_self()));
    assert_ptr_equal(done.executor, loop);
    weir_future_release(last);
    weir_promise_release(promise);
    weir_channel_release(&channel->base);
    end_group(group);
}

static void s121_a_loop_that_has_ended_takes_no_channel(void **state)
{
    (void)state;
    for (int is_manual = 0; is_manual < 2; is_manual++) {
        story to = STORY;
        ear refused, closed;
        _Atomic(bool) is_freed = false;
        weir_group *group = ended_group(is_manual);
        stub *channel = new_stub(&to, &is_freed);
        ear_listen(&closed, &to, "closed", weir_channel_closed(&channel->base));
        harness_log_begin(WEIR_LOG_WARN);
        go_with_ear(weir_channel_register, &channel->base, weir_group_at(group, 0), &refused, &to,
                    "register");
        assert_true(story_has(&to, "register=WEIR_ESHUTDOWN"));
        assert_true(story_has(&to, "closed=ok"));
        assert_false(story_has(&to, "added"));
        assert_true(harness_log_has("closed by force"));
        assert_int_equal(harness_log_end(), 1);
        assert_int_equal(weir_channel_get_state(&channel->base), WEIR_CHANNEL_UNREGISTERED);
        weir_channel_release(&channel->base);
        assert_true(is_freed);
        weir_group_free(group);
    }
}

typedef struct activity {
    weir_embedded *embedded;
    story *story;
} activity;

static void note_reading(weir_ctx *ctx)
{
    activity *self = weir_ctx_arg(ctx);
    story_add(self->story, weir_embedded_is_reading(self->embedded) ? "reading" : "idle");
    weir_ctx_fire_active(ctx);
}

static const weir_handler_type notes_reading = { .name = "notes reading",
                                                 .on_active = note_reading };

static void s122_reading_begins_when_it_is_active(void **state)
{
    (void)state;
    story to = STORY;
    weir_address address = { 0 };
    weir_embedded_config config = { .is_unregistered = true, .is_unconnected = true };
    activity self = { open_embedded(&config), &to };
    weir_channel *channel = weir_embedded_channel(self.embedded);
    weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &notes_reading, &self);
    weir_channel_read(channel);
    assert_false(weir_embedded_is_reading(self.embedded));
    weir_channel_register(channel, weir_embedded_executor(self.embedded), NULL);
    weir_embedded_run(self.embedded);
    weir_channel_read(channel);
    weir_embedded_run(self.embedded);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_REGISTERED);
    assert_false(weir_embedded_is_reading(self.embedded));
    weir_channel_bind(channel, &address, NULL);
    weir_embedded_run(self.embedded);
    assert_true(story_has(&to, "idle")); /* inside on_active: only after it */
    assert_false(story_has(&to, "reading"));
    assert_true(weir_embedded_is_reading(self.embedded));
    weir_embedded_free(self.embedded);
}

static void s123_added_then_the_promise_then_registered_then_active(void **state)
{
    (void)state;
    story to = STORY;
    ear at;
    pair loops;
    open_pair(&loops);
    weir_embedded_config config = { .init = add_recorder, .arg = &to, .is_unregistered = true };
    config.group = loops.group;
    weir_embedded *e = open_embedded(&config);
    weir_channel *channel = weir_embedded_channel(e);
    go_with_ear(weir_channel_register, channel, loops.first, &at, &to, "promise");
    run_pair(&loops);
    story_is(&to, "added promise=ok registered active");
    for (int i = 0; i < 2; i++) { /* active once, however often it comes to a loop */
        call_with_ear(weir_channel_deregister, channel, &at, &to, "left");
        run_pair(&loops);
        story_is(&to, "left=ok unregistered");
        go_with_ear(weir_channel_register, channel, loops.second, &at, &to, "promise");
        run_pair(&loops);
        story_is(&to, "promise=ok registered");
        assert_true(weir_channel_is_active(channel));
        assert_true(weir_embedded_is_reading(e));
    }
    close_on_pair(&loops, e);
    story_is(&to, "inactive unregistered removed");
}

static void who_becomes_active_later_is_told_once_on_whichever_loop(void **state)
{
    (void)state;
    story to = STORY;
    pair loops;
    weir_address address = { 0 };
    open_pair(&loops);
    weir_embedded_config config = { .init = add_recorder, .arg = &to, .is_unconnected = true };
    config.group = loops.group;
    weir_embedded *e = open_embedded(&config);
    weir_channel *channel = weir_embedded_channel(e);
    run_pair(&loops);
    weir_channel_move(channel, loops.second, NULL);
    run_pair(&loops);
    story_is(&to, "added registered unregistered registered");
    weir_channel_bind(channel, &address, NULL);
    run_pair(&loops);
    story_is(&to, "active");
    weir_channel_move(channel, loops.first, NULL);
    run_pair(&loops);
    assert_true(weir_channel_is_active(channel));
    close_on_pair(&loops, e);
    story_is(&to, "unregistered registered inactive unregistered removed");
}

/* Leaving -------------------------------------------------------------------------------------- */

static void what_is_written_off_a_loop_waits_in_order(void **state)
{
    (void)state;
    story to = STORY;
    ear ears[5];
    pair loops;
    open_pair(&loops);
    weir_embedded *e = open_on_pair(&loops, NULL);
    weir_channel *channel = weir_embedded_channel(e);
    write_text(channel, "a", &ears[0], &to);
    weir_channel_deregister(channel, NULL);
    write_text(channel, "b", &ears[1], &to);
    weir_channel_flush(channel);
    run_pair(&loops);
    assert_int_equal(weir_channel_get_state(channel), WEIR_CHANNEL_OPEN);
    write_text(channel, "c", &ears[2], &to);
    run_pair(&loops);
    story_is(&to, "");
    assert_int_equal(weir_embedded_outbound_count(e), 0);
    weir_channel_register(channel, loops.second, NULL);
    write_text(channel, "d", &ears[3], &to);
    run_pair(&loops);
    sent_is(e, "ab");
    story_is(&to, "a=ok b=ok");
    write_text(channel, "e", &ears[4], &to);
    weir_channel_flush(channel);
    run_pair(&loops);
    sent_is(e, "cde");
    story_is(&to, "c=ok d=ok e=ok");
    assert_ptr_equal(ears[4].executor, loops.second);
    close_on_pair(&loops, e);
}

/* A move that is asked for meanwhile follows. */
static void leaving_is_asked_for_once(void **state)
{
    (void)state;
    story to = STORY;
    ear first, second, third;
    pair loops;
    open_pair(&loops);
    stub *channel = new_stub(NULL, NULL);
    channel->is_busy = true;
    weir_channel_register(&channel->base, loops.first, NULL);
    call_with_ear(weir_channel_deregister, &channel->base, &first, &to, "first");
    call_with_ear(weir_channel_deregister, &channel->base, &second, &to, "second");
    go_with_ear(weir_channel_move, &channel->base, loops.second, &third, &to, "move");
    run_pair(&loops);
    story_is(&to, "second=EALREADY");
    assert_true(weir_channel_is_active(&channel->base)); /* something is under way yet */
    on_loop(&loops, loops.first, stub_become_quiet, channel);
    run_pair(&loops);
    story_is(&to, "first=ok move=ok");
    assert_ptr_equal(weir_loop_executor(weir_channel_loop(&channel->base)), loops.second);
    call_with_ear(weir_channel_deregister, &channel->base, &second, &to, "again");
    run_pair(&loops);
    story_is(&to, "again=ok");
    weir_channel_release(&channel->base);
    run_pair(&loops);
    end_group(loops.group);
}

static void who_leaves_does_not_read_or_send(void **state)
{
    (void)state;
    story to = STORY;
    ear written;
    pair loops;
    open_pair(&loops);
    stub *channel = new_stub(NULL, NULL);
    weir_channel_register(&channel->base, loops.first, NULL);
    run_pair(&loops);
    channel->is_busy = true;
    assert_true(channel->base.in.is_reading);
    weir_channel_deregister(&channel->base, NULL);
    write_text(&channel->base, "a", &written, &to);
    weir_channel_flush(&channel->base);
    run_pair(&loops);
    assert_false(channel->base.in.is_reading);
    story_is(&to, "");
    on_loop(&loops, loops.first, stub_become_quiet, channel);
    weir_channel_register(&channel->base, loops.second, NULL);
    run_pair(&loops);
    assert_true(channel->base.in.is_reading);
    story_is(&to, "a=ok");
    weir_channel_close(&channel->base, NULL);
    run_pair(&loops);
    weir_channel_release(&channel->base);
    end_group(loops.group);
}

static void close_while_leaving_ends_both(void **state)
{
    (void)state;
    for (int is_move = 0; is_move < 2; is_move++) {
        story to = STORY;
        ear left, closed;
        pair loops;
        open_pair(&loops);
        stub *channel = new_stub(&to, NULL);
        weir_channel_register(&channel->base, loops.first, NULL);
        run_pair(&loops);
        story_is(&to, "added registered active");
        channel->is_busy = true;
        if (is_move)
            go_with_ear(weir_channel_move, &channel->base, loops.second, &left, &to, "left");
        else
            call_with_ear(weir_channel_deregister, &channel->base, &left, &to, "left");
        call_with_ear(weir_channel_close, &channel->base, &closed, &to, "close");
        run_pair(&loops);
        story_is(&to, is_move ? "left=WEIR_ECLOSED" : ""); /* it goes nowhere */
        on_loop(&loops, loops.first, stub_become_quiet, channel);
        story_is(&to, is_move ? "inactive unregistered removed close=ok"
                              : "left=WEIR_ECLOSED inactive unregistered removed close=ok");
        weir_channel_release(&channel->base);
        run_pair(&loops);
        end_group(loops.group);
    }
}

static void a_channel_off_its_loop_closes_in_order(void **state)
{
    (void)state;
    story to = STORY;
    ear closed, close, written;
    pair loops;
    open_pair(&loops);
    weir_embedded *e = open_on_pair(&loops, &to);
    weir_channel *channel = weir_embedded_channel(e);
    weir_channel_deregister(channel, NULL);
    write_text(channel, "a", &written, &to);
    run_pair(&loops);
    story_is(&to, "unregistered");
    ear_listen(&closed, &to, "closed", weir_channel_closed(channel));
    call_with_ear(weir_channel_close, channel, &close, &to, "close");
    run_pair(&loops);
    story_is(&to, "a=WEIR_ECLOSED inactive removed close=ok closed=ok");
    close_on_pair(&loops, e);
}

static void *release_it(void *channel)
{
    weir_channel_release(channel);
    return NULL;
}

static void a_forgotten_channel_off_its_loop_is_closed(void **state)
{
    (void)state;
    for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
        story to = STORY;
        ear written;
        pair loops;
        pthread_t thread;
        _Atomic(bool) is_freed = false;
        open_pair(&loops);
        stub *channel = new_stub(&to, &is_freed);
        weir_promise *promise = weir_promise_new(NULL);
        ear_listen(&written, &to, "written", weir_promise_future(promise));
        weir_channel_register(&channel->base, loops.first, NULL);
        run_pair(&loops);
        weir_channel_deregister(&channel->base, NULL);
        run_pair(&loops);
        weir_channel_write(&channel->base, text_msg("a"), promise);
        weir_promise_release(promise);
        run_pair(&loops);
        story_is(&to, "added registered active unregistered");
        assert_false(is_freed);
        if (is_elsewhere) {
            assert_int_equal(pthread_create(&thread, NULL, release_it, &channel->base), 0);
            pthread_join(thread, NULL);
        } else {
            weir_channel_release(&channel->base);
        }
        run_pair(&loops);
        story_is(&to, "written=WEIR_ECLOSED inactive removed");
        assert_true(is_freed);
        end_group(loops.group);
    }
}

static int leave_and_come_back(void *arg)
{
    weir_channel *channel = arg;
    weir_channel_deregister(channel, NULL);
    weir_channel_register(channel, weir_executor_current(), NULL);
    return 0;
}

static void leaving_and_coming_back_at_once_is_told(void **state)
{
    (void)state;
    story to = STORY;
    pair loops;
    open_pair(&loops);
    weir_embedded *e = open_on_pair(&loops, &to);
    weir_channel *channel = weir_embedded_channel(e);
    on_loop(&loops, loops.first, leave_and_come_back, channel);
    story_is(&to, "unregistered registered");
    assert_true(weir_channel_is_active(channel));
    assert_true(weir_embedded_is_reading(e));
    close_on_pair(&loops, e);
}

/* The end of loops ----------------------------------------------------------------------------- */

enum { MANY = 20 };

static void the_end_of_a_loop_closes_its_channels(void **state)
{
    (void)state;
    for (int is_manual = 0; is_manual < 2; is_manual++) {
        story stories[MANY];
        stub *channels[MANY];
        _Atomic(bool) is_freed[MANY] = { false };
        ear closed[MANY];
        weir_group *group = open_group(&(weir_group_config){ .loops = 2, .is_manual = is_manual });
        for (int i = 0; i < MANY; i++) {
            stories[i] = STORY;
            weir_promise *promise = weir_promise_new(NULL);
            channels[i] = new_stub(&stories[i], &is_freed[i]);
            ear_listen(&closed[i], &stories[i], "closed", weir_channel_closed(&channels[i]->base));
            weir_channel_register(&channels[i]->base, weir_group_next(group), promise);
            assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
            weir_promise_release(promise);
            if (i % 2 == 0) /* half of them are nobody's but the loop's */
                weir_channel_release(&channels[i]->base);
        }
        end_group(group);
        for (int i = 0; i < MANY; i++) {
            story_is(&stories[i],
                     "added registered active inactive unregistered removed closed=ok");
            assert_int_equal(is_freed[i], i % 2 == 0);
            if (i % 2 != 0)
                weir_channel_release(&channels[i]->base);
            assert_true(is_freed[i]);
        }
    }
}

static void the_end_of_a_loop_cuts_a_leaving_short(void **state)
{
    (void)state;
    for (int is_move = 0; is_move < 2; is_move++) {
        story to = STORY;
        ear left;
        pair loops;
        open_pair(&loops);
        stub *channel = new_stub(&to, NULL);
        weir_channel_register(&channel->base, loops.first, NULL);
        run_pair(&loops);
        channel->is_busy = true;
        if (is_move)
            go_with_ear(weir_channel_move, &channel->base, loops.second, &left, &to, "left");
        else
            call_with_ear(weir_channel_deregister, &channel->base, &left, &to, "left");
        run_pair(&loops);
        story_is(&to, "added registered active");
        assert_int_equal(weir_executor_shutdown(loops.first, 0, WEIR_SECONDS(10)), 0);
        for (int i = 0; i < 3; i++)
            weir_loop_run_once(weir_executor_loop(loops.first), 0);
        /* It waits for the operation in flight, but goes nowhere. */
        story_is(&to, is_move ? "left=WEIR_ECLOSED" : "");
        assert_int_equal(weir_executor_execute(loops.first, stub_become_quiet, channel), 0);
        assert_int_equal(weir_future_await(weir_executor_terminated(loops.first)), 0);
        story_is(&to, is_move ? "inactive unregistered removed"
                              : "left=WEIR_ECLOSED inactive unregistered removed");
        weir_channel_release(&channel->base);
        end_group(loops.group);
    }
}

static void a_channel_that_left_survives_its_loop(void **state)
{
    (void)state;
    story to = STORY;
    ear moved;
    pair loops;
    open_pair(&loops);
    weir_embedded *e = open_on_pair(&loops, &to);
    weir_channel *channel = weir_embedded_channel(e);
    weir_channel_deregister(channel, NULL);
    run_pair(&loops);
    assert_int_equal(weir_executor_shutdown(loops.first, 0, 0), 0);
    assert_int_equal(weir_future_await(weir_executor_terminated(loops.first)), 0);
    write_text(channel, "a", NULL, NULL);
    go_with_ear(weir_channel_register, channel, loops.second, &moved, &to, "moved");
    weir_channel_flush(channel);
    run_pair(&loops);
    story_is(&to, "unregistered moved=ok registered");
    sent_is(e, "a");
    close_on_pair(&loops, e);
}

static void a_channel_that_left_survives_its_group(void **state)
{
    (void)state;
    story to = STORY;
    ear moved;
    pair old, loops;
    open_pair(&old);
    open_pair(&loops);
    stub *channel = new_stub(&to, NULL);
    weir_channel_register(&channel->base, old.first, NULL);
    run_pair(&old);
    weir_channel_deregister(&channel->base, NULL);
    run_pair(&old);
    story_is(&to, "added registered active unregistered");
    end_group(old.group);
    go_with_ear(weir_channel_register, &channel->base, loops.first, &moved, &to, "moved");
    run_pair(&loops);
    story_is(&to, "moved=ok registered");
    weir_channel_close(&channel->base, NULL);
    run_pair(&loops);
    weir_channel_release(&channel->base);
    end_group(loops.group);
}

static void a_channel_that_left_can_go_after_its_group(void **state)
{
    (void)state;
    story to = STORY;
    _Atomic(bool) is_freed = false;
    pair old;
    open_pair(&old);
    stub *channel = new_stub(&to, &is_freed);
    weir_channel_register(&channel->base, old.first, NULL);
    run_pair(&old);
    weir_channel_deregister(&channel->base, NULL);
    run_pair(&old);
    end_group(old.group);
    weir_channel_release(&channel->base);
    assert_true(is_freed);
    story_is(&to, "added registered active unregistered inactive removed");
}

/* Without memory ------------------------------------------------------------------------------- */

static int fail_all(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    return strcmp(call, "alloc") == 0 ? -ENOMEM : 0;
}

static void move_to_its_own(weir_channel *channel, weir_promise *promise)
{
    weir_channel_move(channel, executor_of(channel), promise);
}

static void without_memory_a_close_from_elsewhere_still_closes(void **state)
{
    (void)state;
    static const promised_fn calls[] = { weir_channel_close, weir_channel_finish };
    for (size_t i = 0; i < 2; i++) {
        for (int has_promise = 0; has_promise < 2; has_promise++) {
            story to = STORY;
            weir_embedded *e = open_recorded(&to);
            weir_channel *channel = weir_embedded_channel(e);
            weir_promise *promise = has_promise ? weir_promise_new(NULL) : NULL;
            weir_fault_set(fail_all, NULL);
            calls[i](channel, promise);
            weir_fault_set(NULL, NULL);
            weir_embedded_run(e);
            story_is(&to, "added registered active inactive unregistered removed");
            if (has_promise)
                assert_int_equal(weir_future_code(weir_promise_future(promise)), -ENOMEM);
            weir_promise_release(promise);
            weir_embedded_free(e);
        }
    }
}

/* As the header says: its promise fails, and without one the channel is closed. */
static void without_memory_a_call_from_elsewhere_is_not_lost_in_silence(void **state)
{
    (void)state;
    static const promised_fn calls[] = { weir_channel_shutdown, weir_channel_deregister,
                                         weir_channel_disconnect, move_to_its_own };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (int has_promise = 0; has_promise < 2; has_promise++) {
            weir_embedded *e = open_embedded(NULL);
            weir_channel *channel = weir_embedded_channel(e);
            weir_promise *promise = has_promise ? weir_promise_new(NULL) : NULL;
            weir_fault_set(fail_all, NULL);
            calls[i](channel, promise);
            weir_fault_set(NULL, NULL);
            weir_embedded_run(e);
            assert_int_equal(weir_channel_is_open(channel), has_promise);
            if (has_promise)
                assert_int_equal(weir_future_code(weir_promise_future(promise)), -ENOMEM);
            weir_promise_release(promise);
            weir_embedded_free(e);
        }
    }
}

/* All that a channel is asked in its life; every promise has to be completed. */
enum { PROMISES = 8 };

typedef struct life {
    weir_task task;
    pair *loops;
    weir_channel *channel;
    weir_promise *promises[PROMISES];
    weir_msg *messages[2];
    int destroyed;
} life;

static void count_destroyed(void *value)
{
    ++*(int *)value;
}

static const weir_attr_key count_key = { "count", count_destroyed };

static int live(weir_task *task)
{
    life *self = (life *)task;
    weir_channel *channel = self->channel;
    weir_channel_set_attr(channel, &count_key, &self->destroyed);
    weir_channel_set_option(channel, WEIR_OPTION_LINGER_NS, WEIR_MS(10), NULL);
    weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1, NULL);
    weir_channel_write(channel, self->messages[0], self->promises[0]);
    weir_channel_flush(channel);
    weir_channel_deregister(channel, self->promises[1]);
    weir_channel_register(channel, self->loops->second, self->promises[2]);
    weir_channel_write_and_flush(channel, self->messages[1], self->promises[3]);
    weir_channel_move(channel, self->loops->first, self->promises[4]);
    weir_channel_read(channel);
    weir_channel_finish(channel, self->promises[5]);
    weir_channel_close(channel, self->promises[6]);
    weir_channel_close(channel, self->promises[7]);
    return 0;
}

/* One life with a failing allocation, in the calls or in what comes of them; false when there were
 * not so many. */
static bool live_with_failure(unsigned nth, bool is_inside)
{
    pair loops;
    story to = STORY;
    open_pair(&loops);
    life self = { .task = { .run = live, .name = "life" }, .loops = &loops };
    weir_embedded *e = open_on_pair(&loops, &to);
    self.channel = weir_embedded_channel(e);
    for (int i = 0; i < PROMISES; i++)
        self.promises[i] = weir_promise_new(NULL);
    for (int i = 0; i < 2; i++)
        self.messages[i] = text_msg("x");
    harness_fail_nth("alloc", nth, -ENOMEM);
    if (is_inside)
        weir_executor_post(loops.first, &self.task);
    else
        live(&self.task);
    run_pair(&loops);
    advance_pair(&loops, WEIR_MS(10));
    bool has_failed = harness_fail_end() >= nth;
    for (int i = 0; i < PROMISES; i++) {
        if (!weir_future_is_done(weir_promise_future(self.promises[i])))
            fail_msg("allocation %u failed, and promise %d was forgotten", nth, i);
        weir_promise_release(self.promises[i]);
    }
    if (weir_channel_is_open(self.channel))
        fail_msg("allocation %u failed, and the channel is %s", nth,
                 weir_channel_state_name(weir_channel_get_state(self.channel)));
    close_on_pair(&loops, e);
    assert_true(story_has(&to, "removed"));
    assert_int_equal(self.destroyed, 1);
    return has_failed;
}

static void no_failing_allocation_leaves_a_promise_or_a_byte(void **state)
{
    (void)state;
    for (int is_inside = 0; is_inside < 2; is_inside++) {
        unsigned n = 1;
        while (live_with_failure(n, is_inside))
            n++;
        assert_true(n > 5); /* there were some */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s118_registering_twice_fails),
        weir_case(s119_an_executor_that_is_no_loop_is_refused),
        weir_case(a_loop_that_is_none_is_refused),
        weir_case(s120_inside_the_loop_registering_happens_at_once),
        weir_case(s120_from_outside_registering_is_a_task),
        weir_case(s121_a_loop_that_has_ended_takes_no_channel),
        weir_case(s122_reading_begins_when_it_is_active),
        weir_case(s123_added_then_the_promise_then_registered_then_active),
        weir_case(who_becomes_active_later_is_told_once_on_whichever_loop),
        weir_case(what_is_written_off_a_loop_waits_in_order),
        weir_case(leaving_is_asked_for_once),
        weir_case(who_leaves_does_not_read_or_send),
        weir_case(close_while_leaving_ends_both),
        weir_case(a_channel_off_its_loop_closes_in_order),
        weir_case(a_forgotten_channel_off_its_loop_is_closed),
        weir_case(leaving_and_coming_back_at_once_is_told),
        weir_case(the_end_of_a_loop_closes_its_channels),
        weir_case(the_end_of_a_loop_cuts_a_leaving_short),
        weir_case(a_channel_that_left_survives_its_loop),
        weir_case(without_memory_a_close_from_elsewhere_still_closes),
        weir_case(no_failing_allocation_leaves_a_promise_or_a_byte),
        /* These fail at present, the last two under asan. */
        weir_case(without_memory_a_call_from_elsewhere_is_not_lost_in_silence),
        weir_case(a_channel_that_left_survives_its_group),
        weir_case(a_channel_that_left_can_go_after_its_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
