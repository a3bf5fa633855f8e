/* SPDX-License-Identifier: MIT */
/* In-process channels, step by step on loops that are driven by hand. */
#include "transport/locals.h"

/* A listener on the first loop, its child on the second, and a client. */
typedef struct scene {
    pair loops;
    server server;
    weir_channel *client;
    ear connected;
} scene;

static void open_scene(scene *self, int (*init_child)(weir_channel *, void *), void *child_arg,
                       int (*init_client)(weir_channel *, void *), void *client_arg)
{
    *self = (scene){ .server = { .init = init_child, .arg = child_arg } };
    open_pair(&self->loops);
    self->server.children = self->loops.second;
    server_open(&self->server, self->loops.first, "local:scene");
    run_pair(&self->loops);
    self->client = new_client(self->loops.first, init_client, client_arg);
    connect_to(self->client, "local:scene", &self->connected, NULL);
    run_pair(&self->loops);
    assert_int_equal(self->connected.code, 0);
    assert_true(weir_channel_is_active(self->client));
    assert_true(weir_channel_is_active(self->server.child));
}

static void close_scene(scene *self)
{
    server_end(&self->server);
    client_end(self->client);
    run_pair(&self->loops);
    end_group(self->loops.group);
}

static void set_option(weir_channel *channel, weir_option option, int64_t value)
{
    assert_int_equal(weir_channel_set_option(channel, option, value, NULL), 0);
}

/* Messages ------------------------------------------------------------------------------------- */

static void s152_an_echo_pair_has_a_pipeline_at_each_end(void **state)
{
    (void)state;
    for (int same = 0; same < 2; same++) {
        story to = STORY;
        scene s = { .server = { .init = add_echo } };
        open_pair(&s.loops);
        s.server.children = same ? s.loops.first : s.loops.second;
        server_open(&s.server, s.loops.first, "local:echo");
        s.client = new_client(s.loops.first, add_recorder, &to);
        connect_to(s.client, "local:echo", &s.connected, &to);
        run_pair(&s.loops);
        story_is(&to, "added registered connect=ok active");
        ear sent;
        write_text(s.client, "one", &sent, &to);
        write_text(s.client, "two", NULL, NULL);
        run_pair(&s.loops);
        story_is(&to, ""); /* not flushed yet */
        weir_channel_flush(s.client);
        run_pair(&s.loops);
        story_is(&to, "one=ok read(one) read(two) complete");
        close_scene(&s);
        story_is(&to, "inactive unregistered removed");
    }
}

static void a_message_arrives_as_the_object_that_was_sent(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    open_scene(&s, add_counter, &seen, NULL, NULL);
    weir_msg *msg = new_number(0, 100);
    weir_channel_write_and_flush(s.client, msg, NULL);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 1);
    assert_ptr_equal(seen.last, msg);
    weir_channel_stats in, out;
    weir_channel_get_stats(s.server.child, &in);
    weir_channel_get_stats(s.client, &out);
    assert_int_equal(in.messages_in, 1);
    assert_int_equal(in.bytes_in, 100);
    assert_int_equal(out.messages_out, 1);
    close_scene(&s);
    assert_int_equal(seen.wrong, 0);
}

static void sixteen_messages_are_a_batch(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    open_scene(&s, add_counter, &seen, NULL, NULL);
    send_numbers(s.client, 0, 40, 1);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 40);
    assert_int_equal(seen.most_in_batch, 16);
    assert_int_equal(seen.completes, 3);
    close_scene(&s);
    assert_int_equal(seen.wrong, 0);
}

static void without_auto_read_a_read_is_one_batch(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    open_scene(&s, add_counter, &seen, NULL, NULL);
    set_option(s.server.child, WEIR_OPTION_AUTO_READ, 0);
    run_pair(&s.loops);
    send_numbers(s.client, 0, 20, 1);
    weir_channel_shutdown(s.client, NULL);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 0);
    weir_channel_read(s.server.child);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 16);
    weir_channel_read(s.server.child);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 20);
    assert_int_equal(seen.completes, 2);
    assert_int_equal(seen.ends, 0); /* nobody has asked for what is behind */
    weir_channel_read(s.server.child);
    run_pair(&s.loops);
    assert_int_equal(seen.ends, 1);
    close_scene(&s);
}

typedef struct stopper {
    counter counter;
    uint32_t at;
} stopper;

static void stopper_on_read(weir_ctx *ctx, weir_msg *msg)
{
    stopper *self = weir_ctx_arg(ctx);
    counter_on_read(ctx, msg);
    if (self->counter.next == self->at)
        set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, 0);
}

static const weir_handler_type stops = { .name = "stops",
                                         .on_read = stopper_on_read,
                                         .on_read_complete = counter_on_read_complete };

static int add_stopper(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "stops", &stops, arg);
}

static void who_stops_in_a_batch_gets_the_rest_later(void **state)
{
    (void)state;
    scene s;
    stopper seen = { .at = 5 };
    open_scene(&s, add_stopper, &seen, NULL, NULL);
    send_numbers(s.client, 0, 10, 1);
    run_pair(&s.loops);
    assert_int_equal(seen.counter.next, 5);
    assert_int_equal(seen.counter.completes, 1);
    weir_channel_move(s.server.child, s.loops.first, NULL); /* with what is left */
    run_pair(&s.loops);
    assert_ptr_equal(executor_of(s.server.child), s.loops.first);
    assert_int_equal(seen.counter.next, 5);
    set_option(s.server.child, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&s.loops);
    assert_int_equal(seen.counter.next, 10);
    assert_int_equal(seen.counter.wrong, 0);
    seen.at = 15;
    send_numbers(s.client, 10, 20, 1);
    run_pair(&s.loops);
    close_scene(&s); /* and here the rest is released */
    assert_int_equal(seen.counter.next, 15);
}

/* Back-pressure -------------------------------------------------------------------------------- */

static void who_does_not_read_holds_the_writer_up(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    ear last;
    open_scene(&s, add_counter, &seen, NULL, NULL);
    set_option(s.server.child, WEIR_OPTION_AUTO_READ, 0);
    run_pair(&s.loops);
    send_numbers(s.client, 0, 200, 1024);
    weir_promise *promise = ear_promise(&last, NULL, "last", s.client);
    weir_channel_write_and_flush(s.client, new_number(200, 1024), promise);
    weir_promise_release(promise);
    run_pair(&s.loops);
    assert_int_equal(pending_of(s.client), (201 - WEIR__PIPE_MESSAGES) * 1024);
    assert_false(weir_channel_is_writable(s.client));
    assert_int_equal(last.told, 0);
    set_option(s.client, WEIR_OPTION_MAX_OUTBOUND_BYTES, (int64_t)pending_of(s.client) + 1024);
    run_pair(&s.loops);
    ear more, much;
    promise = ear_promise(&more, NULL, "more", s.client);
    weir_channel_write_and_flush(s.client, new_number(201, 1024), promise);
    weir_promise_release(promise);
    promise = ear_promise(&much, NULL, "much", s.client);
    weir_channel_write_and_flush(s.client, new_number(202, 1024), promise);
    weir_promise_release(promise);
    run_pair(&s.loops);
    assert_int_equal(more.told, 0);
    assert_int_equal(much.code, WEIR_ELIMIT);
    set_option(s.server.child, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 202);
    assert_int_equal(seen.wrong, 0);
    assert_int_equal(last.code, 0);
    assert_int_equal(more.code, 0);
    assert_true(weir_channel_is_writable(s.client));
    close_scene(&s);
}

static void large_messages_go_one_by_one(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    open_scene(&s, add_counter, &seen, NULL, NULL);
    set_option(s.server.child, WEIR_OPTION_AUTO_READ, 0);
    run_pair(&s.loops);
    send_numbers(s.client, 0, 10, 1 << 20);
    run_pair(&s.loops);
    assert_int_equal(pending_of(s.client), 9 << 20);
    set_option(s.server.child, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 10);
    assert_int_equal(pending_of(s.client), 0);
    close_scene(&s);
}

static void a_cancelled_write_does_not_go(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    ear first, second;
    open_scene(&s, add_counter, &seen, NULL, NULL);
    weir_promise *promise = ear_promise(&first, NULL, "first", s.client);
    weir_channel_write(s.client, new_number(7, 1), promise);
    run_pair(&s.loops);
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    weir_channel_flush(s.client);
    promise = ear_promise(&second, NULL, "second", s.client);
    weir_channel_write_and_flush(s.client, new_number(0, 1), promise);
    weir_promise_release(promise);
    run_pair(&s.loops);
    assert_int_equal(first.code, -ECANCELED);
    assert_int_equal(second.code, 0);
    assert_int_equal(seen.next, 1);
    assert_int_equal(seen.wrong, 0);
    close_scene(&s);
}

/* Ends ----------------------------------------------------------------------------------------- */

static void half_closed_the_other_direction_goes_on(void **state)
{
    (void)state;
    scene s;
    story child = STORY;
    counter seen = { 0 };
    ear shut;
    open_scene(&s, add_recorder, &child, add_counter, &seen);
    set_option(s.server.child, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
    run_pair(&s.loops);
    write_text(s.client, "last", NULL, NULL);
    call_with_ear(weir_channel_shutdown, s.client, &shut, NULL, "shut");
    run_pair(&s.loops);
    assert_int_equal(shut.code, 0);
    story_is(&child, "added registered active read(last) complete input_closed");
    send_numbers(s.server.child, 0, 1000, 1024);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 1000);
    ear refused;
    write_text(s.client, "late", &refused, NULL);
    run_pair(&s.loops);
    assert_int_equal(refused.code, -EPIPE);
    weir_channel_shutdown(s.server.child, NULL);
    run_pair(&s.loops);
    assert_int_equal(seen.ends, 1);
    story_is(&child, "inactive unregistered removed");
    close_scene(&s);
}

static void without_half_closure_the_end_of_input_closes(void **state)
{
    (void)state;
    scene s;
    story child = STORY;
    open_scene(&s, add_recorder, &child, NULL, NULL);
    write_text(s.client, "last", NULL, NULL);
    weir_channel_shutdown(s.client, NULL);
    run_pair(&s.loops);
    story_is(&child, "added registered active read(last) complete inactive unregistered removed");
    assert_int_equal(weir_channel_get_state(s.client), WEIR_CHANNEL_UNREGISTERED);
    close_scene(&s);
}

static void a_close_comes_behind_all_that_was_sent(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    ear closed;
    open_scene(&s, add_counter, &seen, NULL, NULL);
    send_numbers(s.client, 0, 50, 1);
    call_with_ear(weir_channel_close, s.client, &closed, NULL, "closed");
    weir_loop_run_once(weir_executor_loop(s.loops.first), 0);
    run_pair(&s.loops);
    assert_int_equal(closed.code, 0);
    assert_int_equal(seen.next, 50);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.errors, 0);
    close_scene(&s);
}

static void a_finish_sends_everything_and_waits_for_the_other_end(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    ear finished;
    open_scene(&s, add_counter, &seen, NULL, NULL);
    set_option(s.server.child, WEIR_OPTION_AUTO_READ, 0);
    run_pair(&s.loops);
    send_numbers(s.client, 0, 100, 1);
    call_with_ear(weir_channel_finish, s.client, &finished, NULL, "finished");
    run_pair(&s.loops);
    assert_int_equal(finished.told, 0);
    assert_int_equal(pending_of(s.client), 100 - WEIR__PIPE_MESSAGES);
    set_option(s.server.child, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 100);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(finished.code, 0);
    close_scene(&s);
}

static void writing_to_who_is_gone_is_a_reset(void **state)
{
    (void)state;
    for (int reads = 0; reads < 2; reads++) {
        scene s;
        story child = STORY;
        ear sent;
        open_scene(&s, add_recorder, &child, NULL, NULL);
        set_option(s.server.child, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
        set_option(s.server.child, WEIR_OPTION_AUTO_READ, reads);
        run_pair(&s.loops);
        story_is(&child, "added registered active");
        write_text(s.client, "last", NULL, NULL);
        weir_channel_flush(s.client);
        weir_channel_close(s.client, NULL);
        run_pair(&s.loops);
        story_is(&child, reads ? "read(last) complete input_closed" : "");
        write_text(s.server.child, "sent", &sent, &child);
        weir_channel_flush(s.server.child);
        run_pair(&s.loops);
        story_is(&child, "sent=ECONNRESET inactive unregistered removed");
        close_scene(&s);
    }
}

/* As soon as it is above the water mark it does not read, and would never see that the other end,
 * which did not read either, is gone. */
static void who_waits_for_who_is_gone_is_told(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    open_scene(&s, add_counter, &seen, NULL, NULL);
    set_option(s.client, WEIR_OPTION_AUTO_READ, 0);
    run_pair(&s.loops);
    send_numbers(s.server.child, 0, 200, 1024);
    run_pair(&s.loops);
    assert_false(weir_channel_is_writable(s.server.child));
    send_numbers(s.client, 0, 20, 1);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 0);
    weir_channel_close(s.client, NULL);
    run_pair(&s.loops);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(seen.errors, 1);
    close_scene(&s);
}

/* It echoes what was sent before the other end went, and reads all of it first. */
static void who_reads_and_writes_reads_to_the_end(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    open_scene(&s, add_counter, &seen, NULL, NULL);
    send_numbers(s.client, 0, 50, 1);
    weir_channel_close(s.client, NULL);
    weir_loop_run_once(weir_executor_loop(s.loops.first), 0);
    ear sent;
    write_text(s.server.child, "answer", &sent, NULL);
    weir_channel_flush(s.server.child);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 50);
    assert_int_equal(seen.ends, 1);
    assert_int_equal(sent.code, -ECONNRESET);
    close_scene(&s);
}

static void close_on_read(weir_ctx *ctx, weir_msg *msg)
{
    counter_on_read(ctx, msg);
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type closes_on_read = { .name = "closes",
                                                  .on_read = close_on_read,
                                                  .on_read_complete = counter_on_read_complete,
                                                  .on_inactive = counter_on_inactive };

static void close_on_read_complete(weir_ctx *ctx)
{
    counter_on_read_complete(ctx);
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type closes_on_complete = { .name = "closes",
                                                      .on_read = counter_on_read,
                                                      .on_read_complete = close_on_read_complete,
                                                      .on_inactive = counter_on_inactive };

static void close_on_active(weir_ctx *ctx)
{
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type closes_on_active = { .name = "closes",
                                                    .on_active = close_on_active,
                                                    .on_read = counter_on_read,
                                                    .on_inactive = counter_on_inactive };

static const weir_handler_type *closer;

static int add_closer(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "closes", closer, arg);
}

static void a_close_in_any_callback_is_seen_at_the_other_end(void **state)
{
    (void)state;
    const weir_handler_type *types[] = { &closes_on_read, &closes_on_complete, &closes_on_active };
    const uint32_t expected[] = { 1, 16, 0 };
    for (int i = 0; i < 3; i++) {
        counter seen = { 0 }, client = { 0 };
        server side = { .init = add_closer, .arg = &seen };
        pair loops;
        closer = types[i];
        open_pair(&loops);
        side.children = loops.second;
        server_open(&side, loops.first, "local:closing");
        weir_channel *channel = new_client(loops.first, add_counter, &client);
        connect_to(channel, "local:closing", NULL, NULL);
        send_numbers(channel, 0, 30, 1);
        run_pair(&loops);
        assert_int_equal(seen.next, expected[i]);
        assert_int_equal(seen.ends, 1);
        assert_int_equal(client.ends, 1);
        assert_int_equal(client.errors, 0);
        server_end(&side);
        client_end(channel);
        run_pair(&loops);
        end_group(loops.group);
    }
}

/* Connecting ----------------------------------------------------------------------------------- */

static void nobody_there_is_a_refusal(void **state)
{
    (void)state;
    story to = STORY;
    pair loops;
    ear connected;
    open_pair(&loops);
    weir_channel *client = new_client(loops.first, add_recorder, &to);
    connect_to(client, "local:nobody", &connected, &to);
    run_pair(&loops);
    story_is(&to, "added registered connect=ECONNREFUSED unregistered removed");
    weir_channel_release(client);
    end_group(loops.group);
}

static void other_kinds_of_addresses_are_none(void **state)
{
    (void)state;
    story to = STORY;
    pair loops;
    ear a, b, c, d;
    open_pair(&loops);
    server side = { .children = NULL };
    server_make(&side, loops.first);
    weir_channel *client = new_client(loops.first, NULL, NULL);
    weir_address tcp = name_of("127.0.0.1:80"), local = name_of("local:kinds"), none = { 0 };
    weir_promise *promise = ear_promise(&a, &to, "bind", side.listener);
    weir_channel_bind(side.listener, &tcp, promise);
    weir_promise_release(promise);
    promise = ear_promise(&b, &to, "connect", client);
    weir_channel_connect(client, &tcp, NULL, promise);
    weir_promise_release(promise);
    promise = ear_promise(&c, &to, "from", client);
    weir_channel_connect(client, &local, &tcp, promise);
    weir_promise_release(promise);
    promise = ear_promise(&d, &to, "none", client);
    weir_channel_bind(client, &none, promise);
    weir_promise_release(promise);
    run_pair(&loops);
    assert_int_equal(a.code, -EAFNOSUPPORT);
    assert_int_equal(b.code, -EAFNOSUPPORT);
    assert_int_equal(c.code, -EAFNOSUPPORT);
    assert_int_equal(d.code, -EAFNOSUPPORT);
    assert_true(weir_channel_is_open(client));
    assert_true(weir_channel_is_open(side.listener));
    server_end(&side);
    client_end(client);
    run_pair(&loops);
    end_group(loops.group);
}

static void bind_with_ear(weir_channel *channel, const char *name, ear *at)
{
    weir_address address = name_of(name);
    weir_promise *promise = ear_promise(at, NULL, "bind", channel);
    weir_channel_bind(channel, &address, promise);
    weir_promise_release(promise);
}

static void a_name_is_one_listeners_until_it_closes(void **state)
{
    (void)state;
    pair loops;
    ear first, second, again, other;
    server a = { .children = NULL }, b = { .children = NULL };
    open_pair(&loops);
    server_make(&a, loops.first);
    server_make(&b, loops.second);
    bind_with_ear(a.listener, "local:name", &first);
    run_pair(&loops);
    bind_with_ear(a.listener, "local:another", &other);
    bind_with_ear(b.listener, "local:name", &second);
    run_pair(&loops);
    assert_int_equal(first.code, 0);
    assert_int_equal(other.code, -EINVAL);
    assert_int_equal(second.code, -EADDRINUSE);
    assert_int_equal(weir_channel_get_state(b.listener), WEIR_CHANNEL_REGISTERED);
    server_end(&a);
    run_pair(&loops);
    bind_with_ear(b.listener, "local:name", &again);
    run_pair(&loops);
    assert_int_equal(again.code, 0);
    server_end(&b);
    run_pair(&loops);
    end_group(loops.group);
}

/* More than there are buckets, so some share one. */
static void many_names_are_found(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    static server servers[COUNT];
    static ear connected[COUNT];
    weir_channel *clients[COUNT];
    char name[32];
    pair loops;
    open_pair(&loops);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "local:many%d", i);
        servers[i] = (server){ .children = loops.second };
        server_open(&servers[i], loops.first, name);
    }
    run_pair(&loops);
    for (int i = 0; i < COUNT; i += 2)
        server_end(&servers[i]);
    run_pair(&loops);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "local:many%d", i);
        clients[i] = new_client(loops.first, NULL, NULL);
        connect_to(clients[i], name, &connected[i], NULL);
    }
    run_pair(&loops);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(connected[i].code, i % 2 == 0 ? -ECONNREFUSED : 0);
        assert_int_equal(servers[i].accepted, i % 2);
        client_end(clients[i]);
        if (i % 2 == 1)
            server_end(&servers[i]);
    }
    run_pair(&loops);
    end_group(loops.group);
}

static void addresses_are_those_of_both_ends(void **state)
{
    (void)state;
    scene s;
    weir_address address, own = name_of("local:own"), scene_name = name_of("local:scene");
    open_scene(&s, NULL, NULL, NULL, NULL);
    assert_int_equal(weir_channel_local_address(s.server.listener, &address), 0);
    assert_true(weir_address_equal(&address, &scene_name));
    assert_int_equal(weir_channel_remote_address(s.server.listener, &address), WEIR_ENOTFOUND);
    assert_int_equal(weir_channel_remote_address(s.client, &address), 0);
    assert_true(weir_address_equal(&address, &scene_name));
    assert_int_equal(weir_channel_local_address(s.client, &address), WEIR_ENOTFOUND);
    assert_int_equal(weir_channel_local_address(s.server.child, &address), 0);
    assert_true(weir_address_equal(&address, &scene_name));
    assert_int_equal(weir_channel_remote_address(s.server.child, &address), WEIR_ENOTFOUND);
    assert_string_equal(weir_channel_kind(s.client), "local");
    assert_ptr_equal(weir_channel_parent(s.server.child), s.server.listener);
    for (int is_bound = 0; is_bound < 2; is_bound++) {
        weir_channel *named = new_client(s.loops.first, NULL, NULL);
        if (is_bound)
            weir_channel_bind(named, &own, NULL);
        weir_channel_connect(named, &scene_name, is_bound ? NULL : &own, NULL);
        run_pair(&s.loops);
        assert_int_equal(weir_channel_local_address(named, &address), 0);
        assert_true(weir_address_equal(&address, &own));
        assert_int_equal(weir_channel_remote_address(s.server.child, &address), 0);
        assert_true(weir_address_equal(&address, &own));
        client_end(named);
    }
    close_scene(&s);
}

static void children_have_the_options_of_the_listener_for_them(void **state)
{
    (void)state;
    scene s;
    int64_t value;
    open_scene(&s, NULL, NULL, NULL, NULL);
    assert_int_equal(
        weir_channel_get_option(s.server.child, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, &value), 0);
    assert_int_equal(value, 1);
    assert_int_equal(weir_channel_get_option(s.client, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, &value),
                     0);
    assert_int_equal(value, 0);
    server other = { .children = s.loops.second };
    other.listener = new_local(true);
    weir_channel_set_child_option(other.listener, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, 0, NULL);
    weir_channel_set_child_option(other.listener, WEIR_OPTION_LINGER_NS, WEIR_MS(7), NULL);
    weir_pipeline_add_last(weir_channel_pipeline(other.listener), "acceptor", &acceptor, &other);
    weir_channel_register(other.listener, s.loops.first, NULL);
    weir_address name = name_of("local:options");
    weir_channel_bind(other.listener, &name, NULL);
    weir_channel *client = new_client(s.loops.second, NULL, NULL);
    run_pair(&s.loops);
    connect_to(client, "local:options", NULL, NULL);
    run_pair(&s.loops);
    assert_int_equal(
        weir_channel_get_option(other.child, WEIR_OPTION_PAUSE_WHEN_UNWRITABLE, &value), 0);
    assert_int_equal(value, 0);
    assert_int_equal(weir_channel_get_option(other.child, WEIR_OPTION_LINGER_NS, &value), 0);
    assert_int_equal(value, WEIR_MS(7));
    server_end(&other);
    client_end(client);
    close_scene(&s);
}

/* A listener that does not accept, and as many clients as one likes. */
typedef struct crowd {
    pair loops;
    server server;
    weir_channel *clients[200];
    ear connected[200];
    int count;
} crowd;

static crowd *open_crowd(int count)
{
    static crowd self;
    self = (crowd){ .count = count };
    open_pair(&self.loops);
    self.server.children = self.loops.second;
    server_make(&self.server, self.loops.first);
    set_option(self.server.listener, WEIR_OPTION_AUTO_READ, 0);
    weir_address name = name_of("local:crowd");
    weir_channel_bind(self.server.listener, &name, NULL);
    run_pair(&self.loops);
    for (int i = 0; i < count; i++) {
        self.clients[i] = new_client(self.loops.second, NULL, NULL);
        connect_to(self.clients[i], "local:crowd", &self.connected[i], NULL);
    }
    run_pair(&self.loops);
    return &self;
}

static int count_code(const crowd *self, int code)
{
    int count = 0;
    for (int i = 0; i < self->count; i++)
        count += self->connected[i].code == code;
    return count;
}

static void close_crowd(crowd *self)
{
    if (self->server.listener != NULL)
        server_end(&self->server);
    for (int i = 0; i < self->count; i++)
        client_end(self->clients[i]);
    run_pair(&self->loops);
    end_group(self->loops.group);
    for (int i = 0; i < self->count; i++)
        assert_int_equal(self->connected[i].told, 1);
}

static void sixteen_are_accepted_in_a_batch(void **state)
{
    (void)state;
    crowd *c = open_crowd(40);
    assert_int_equal(count_code(c, -EINPROGRESS), 40);
    set_option(c->server.listener, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&c->loops);
    assert_int_equal(count_code(c, 0), 40);
    assert_int_equal(c->server.accepted, 40);
    assert_int_equal(c->server.batches, 3);
    assert_int_equal(c->server.most_in_batch, 16);
    close_crowd(c);
}

static void a_read_of_a_listener_is_one_batch(void **state)
{
    (void)state;
    crowd *c = open_crowd(20);
    weir_channel_read(c->server.listener);
    run_pair(&c->loops);
    assert_int_equal(count_code(c, 0), 16);
    assert_int_equal(c->server.accepted, 16);
    weir_channel_move(c->server.listener, c->loops.second, NULL);
    run_pair(&c->loops);
    assert_int_equal(c->server.accepted, 16);
    weir_channel_read(c->server.listener);
    run_pair(&c->loops);
    assert_int_equal(c->server.accepted, 20);
    close_crowd(c);
}

static void the_backlog_bounds_who_waits(void **state)
{
    (void)state;
    crowd *c = open_crowd(WEIR__LOCAL_BACKLOG + 10);
    assert_int_equal(count_code(c, -EINPROGRESS), WEIR__LOCAL_BACKLOG);
    assert_int_equal(count_code(c, -ECONNREFUSED), 10);
    /* Who gives up makes room. */
    weir_channel_close(c->clients[0], NULL);
    run_pair(&c->loops);
    assert_int_equal(count_code(c, WEIR_ECLOSED), 1);
    ear more;
    weir_channel *one_more = new_client(c->loops.first, NULL, NULL);
    connect_to(one_more, "local:crowd", &more, NULL);
    run_pair(&c->loops);
    assert_int_equal(more.code, -EINPROGRESS);
    set_option(c->server.listener, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&c->loops);
    assert_int_equal(more.code, 0);
    assert_int_equal(c->server.accepted, WEIR__LOCAL_BACKLOG);
    client_end(one_more);
    close_crowd(c);
}

static void a_smaller_backlog_can_be_set(void **state)
{
    (void)state;
    crowd *c = open_crowd(3);
    assert_int_equal(weir_channel_set_option(c->server.listener, WEIR_OPTION_BACKLOG, 3, NULL), 0);
    ear more;
    weir_channel *one_more = new_client(c->loops.first, NULL, NULL);
    connect_to(one_more, "local:crowd", &more, NULL);
    run_pair(&c->loops);
    assert_int_equal(more.code, -ECONNREFUSED);
    client_end(one_more);
    close_crowd(c);
}

static void a_listener_that_closes_refuses_who_waits(void **state)
{
    (void)state;
    crowd *c = open_crowd(20);
    weir_channel_read(c->server.listener);
    run_pair(&c->loops);
    server_end(&c->server);
    run_pair(&c->loops);
    assert_int_equal(count_code(c, 0), 16);
    assert_int_equal(count_code(c, -ECONNREFUSED), 4);
    close_crowd(c);
}

static void a_connect_that_takes_too_long_fails(void **state)
{
    (void)state;
    crowd *c = open_crowd(2);
    weir_channel *one_more = new_local(false);
    ear more;
    set_option(one_more, WEIR_OPTION_CONNECT_TIMEOUT_NS, 0);
    weir_channel_register(one_more, c->loops.first, NULL);
    connect_to(one_more, "local:crowd", &more, NULL);
    run_pair(&c->loops);
    advance_pair(&c->loops, WEIR_MS(29999));
    assert_int_equal(count_code(c, -EINPROGRESS), 2);
    weir_channel_move(c->clients[1], c->loops.first, NULL); /* its timer goes with it */
    run_pair(&c->loops);
    advance_pair(&c->loops, WEIR_MS(1));
    assert_int_equal(count_code(c, -ETIMEDOUT), 2);
    assert_false(weir_channel_is_open(c->clients[0]));
    assert_false(weir_channel_is_open(c->clients[1]));
    advance_pair(&c->loops, WEIR_MS(100000000));
    set_option(c->server.listener, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&c->loops);
    assert_int_equal(c->server.accepted, 1); /* who has no time limit */
    assert_int_equal(more.code, 0);
    assert_int_equal(stats_of(c->loops.first).timers + stats_of(c->loops.second).timers, 0);
    client_end(one_more);
    close_crowd(c);
}

static void a_connect_can_be_cancelled(void **state)
{
    (void)state;
    for (int is_own = 0; is_own < 2; is_own++) {
        crowd *c = open_crowd(0);
        ear connected;
        weir_channel *client = new_client(c->loops.first, NULL, NULL);
        weir_address name = name_of("local:crowd");
        weir_promise *promise = is_own ? weir_channel_promise(client) : weir_promise_new(NULL);
        ear_listen(&connected, NULL, "connect", weir_promise_future(promise));
        weir_channel_connect(client, &name, NULL, promise);
        run_pair(&c->loops);
        assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
        weir_promise_release(promise);
        run_pair(&c->loops);
        assert_int_equal(connected.code, -ECANCELED);
        assert_false(weir_channel_is_open(client));
        set_option(c->server.listener, WEIR_OPTION_AUTO_READ, 1);
        run_pair(&c->loops);
        assert_int_equal(c->server.accepted, 0);
        weir_channel_release(client);
        close_crowd(c);
    }
}

/* The listener's side is through, and the connecting one does not know yet. */
static void a_cancel_after_the_accept_closes_the_child(void **state)
{
    (void)state;
    crowd *c = open_crowd(0);
    counter seen = { 0 };
    weir_channel *client = new_client(c->loops.second, NULL, NULL);
    weir_address name = name_of("local:crowd");
    weir_promise *promise = weir_promise_new(NULL);
    c->server.init = add_counter;
    c->server.arg = &seen;
    c->server.children = c->loops.first;
    weir_channel_connect(client, &name, NULL, promise);
    run_pair(&c->loops);
    set_option(c->server.listener, WEIR_OPTION_AUTO_READ, 1);
    WAIT_FOR_STEPPING(c->server.accepted != 0,
                      weir_loop_run_once(weir_executor_loop(c->loops.first), 0));
    assert_int_equal(weir_future_cancel(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    run_pair(&c->loops);
    assert_false(weir_channel_is_open(client));
    assert_int_equal(seen.ends, 1);
    weir_channel_release(client);
    close_crowd(c);
}

static void a_second_connect_fails(void **state)
{
    (void)state;
    crowd *c = open_crowd(1);
    ear while_waiting, afterwards, bound;
    connect_to(c->clients[0], "local:crowd", &while_waiting, NULL);
    run_pair(&c->loops);
    assert_int_equal(while_waiting.code, -EALREADY);
    set_option(c->server.listener, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&c->loops);
    connect_to(c->clients[0], "local:crowd", &afterwards, NULL);
    bind_with_ear(c->clients[0], "local:late", &bound);
    run_pair(&c->loops);
    assert_int_equal(afterwards.code, -EISCONN);
    assert_int_equal(bound.code, -EINVAL);
    assert_true(weir_channel_is_active(c->clients[0]));
    close_crowd(c);
}

static void a_child_that_nobody_takes_is_closed(void **state)
{
    (void)state;
    crowd *c = open_crowd(3);
    c->server.children = NULL;
    set_option(c->server.listener, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&c->loops);
    assert_int_equal(count_code(c, 0), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(weir_channel_get_state(c->clients[i]), WEIR_CHANNEL_UNREGISTERED);
    close_crowd(c);
}

static void what_was_written_before_connecting_goes_afterwards(void **state)
{
    (void)state;
    crowd *c = open_crowd(0);
    counter seen = { 0 };
    c->server.init = add_counter;
    c->server.arg = &seen;
    weir_channel *client = new_local(false);
    connect_to(client, "local:crowd", NULL, NULL);
    send_numbers(client, 0, 5, 1);
    weir_channel_register(client, c->loops.second, NULL);
    run_pair(&c->loops);
    assert_int_equal(pending_of(client), 5);
    set_option(c->server.listener, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&c->loops);
    assert_int_equal(seen.next, 5);
    client_end(client);
    close_crowd(c);
}

static void listeners_send_nothing(void **state)
{
    (void)state;
    crowd *c = open_crowd(0);
    ear sent, connected, shut;
    write_text(c->server.listener, "x", &sent, NULL);
    weir_channel_flush(c->server.listener);
    connect_to(c->server.listener, "local:crowd", &connected, NULL);
    call_with_ear(weir_channel_shutdown, c->server.listener, &shut, NULL, "shut");
    run_pair(&c->loops);
    assert_int_equal(sent.code, -EOPNOTSUPP);
    assert_int_equal(connected.code, -EOPNOTSUPP);
    assert_int_equal(shut.code, -EOPNOTSUPP);
    close_crowd(c);
}

static void what_was_never_used_goes(void **state)
{
    (void)state;
    weir_channel_release(new_local(true));
    weir_channel_release(new_local(false));
    weir_channel *client = new_local(false);
    connect_to(client, "local:unused", NULL, NULL);
    weir_channel_release(client);
}

/* A connecting end that was taken off its loop, and is forgotten there. */
static void a_connect_that_is_forgotten_goes(void **state)
{
    (void)state;
    crowd *c = open_crowd(1);
    weir_channel_deregister(c->clients[0], NULL);
    run_pair(&c->loops);
    weir_channel_release(c->clients[0]);
    c->count = 0;
    run_pair(&c->loops);
    assert_int_equal(c->connected[0].code, WEIR_ECLOSED);
    close_crowd(c);
}

/* Moving --------------------------------------------------------------------------------------- */

static void a_connect_goes_on_after_a_move(void **state)
{
    (void)state;
    crowd *c = open_crowd(2);
    weir_channel_move(c->clients[0], c->loops.first, NULL);
    weir_channel_deregister(c->clients[1], NULL); /* and is on no loop when it is accepted */
    run_pair(&c->loops);
    set_option(c->server.listener, WEIR_OPTION_AUTO_READ, 1);
    run_pair(&c->loops);
    assert_int_equal(c->connected[0].code, 0);
    assert_int_equal(c->connected[1].code, -EINPROGRESS);
    weir_channel_register(c->clients[1], c->loops.first, NULL);
    run_pair(&c->loops);
    assert_int_equal(c->connected[1].code, 0);
    assert_true(weir_channel_is_active(c->clients[1]));
    close_crowd(c);
}

static void what_comes_while_it_is_on_no_loop_is_kept(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    open_scene(&s, add_counter, &seen, NULL, NULL);
    weir_channel_deregister(s.server.child, NULL);
    run_pair(&s.loops);
    send_numbers(s.client, 0, 100, 1);
    run_pair(&s.loops);
    assert_int_equal(pending_of(s.client), 100 - WEIR__PIPE_MESSAGES);
    weir_channel_deregister(s.client, NULL);
    run_pair(&s.loops);
    weir_channel_register(s.server.child, s.loops.first, NULL);
    run_pair(&s.loops);
    assert_int_equal(seen.next, WEIR__PIPE_MESSAGES);
    weir_channel_register(s.client, s.loops.second, NULL);
    run_pair(&s.loops);
    assert_int_equal(seen.next, 100);
    assert_int_equal(seen.wrong, 0);
    weir_channel_deregister(s.server.child, NULL);
    run_pair(&s.loops);
    weir_channel_close(s.client, NULL); /* nobody hears of it before it is back */
    run_pair(&s.loops);
    assert_int_equal(seen.ends, 0);
    weir_channel_register(s.server.child, s.loops.second, NULL);
    run_pair(&s.loops);
    assert_int_equal(seen.ends, 1);
    close_scene(&s);
}

typedef struct mover {
    counter counter;
    weir_executor *loops[2];
    bool is_told_complete; /* before it left */
} mover;

static void mover_on_read(weir_ctx *ctx, weir_msg *msg)
{
    mover *self = weir_ctx_arg(ctx);
    weir_channel *channel = weir_ctx_channel(ctx);
    counter_on_read(ctx, msg);
    weir_channel_move(channel, self->loops[executor_of(channel) == self->loops[0]], NULL);
    assert_true(weir_channel_is_active(channel)); /* it stays until the batch is over */
}

static void mover_on_unregistered(weir_ctx *ctx)
{
    mover *self = weir_ctx_arg(ctx);
    self->is_told_complete = self->counter.in_batch == 0;
}

static const weir_handler_type moves = { .name = "moves",
                                         .on_read = mover_on_read,
                                         .on_read_complete = counter_on_read_complete,
                                         .on_unregistered = mover_on_unregistered };

static int add_mover(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "moves", &moves, arg);
}

static void a_move_inside_a_batch_ends_it(void **state)
{
    (void)state;
    scene s;
    mover seen = { .is_told_complete = false };
    open_scene(&s, add_mover, &seen, NULL, NULL);
    seen.loops[0] = s.loops.first;
    seen.loops[1] = s.loops.second;
    send_numbers(s.client, 0, 40, 1);
    run_pair(&s.loops);
    assert_int_equal(seen.counter.next, 40);
    assert_int_equal(seen.counter.wrong, 0);
    assert_int_equal(seen.counter.completes, 40);
    assert_int_equal(seen.counter.most_in_batch, 1);
    assert_true(seen.is_told_complete);
    close_scene(&s);
}

/* It could not have waited for room: what it flushed is held only until it stops reading. */
static void who_stops_reading_from_who_is_gone_is_told(void **state)
{
    (void)state;
    scene s;
    stopper seen = { .at = 20 };
    ear sent;
    open_scene(&s, add_stopper, &seen, NULL, NULL);
    send_numbers(s.client, 0, 50, 1);
    weir_channel_close(s.client, NULL);
    weir_loop_run_once(weir_executor_loop(s.loops.first), 0);
    write_text(s.server.child, "answer", &sent, NULL);
    weir_channel_flush(s.server.child);
    run_pair(&s.loops);
    assert_int_equal(seen.counter.next, 20);
    assert_int_equal(sent.code, -ECONNRESET);
    close_scene(&s);
}

/* The pipe by itself --------------------------------------------------------------------------- */

static void what_is_put_for_nobody_is_released(void **state)
{
    (void)state;
    weir_local_pipe *pipe = weir__local_pipe_new();
    weir_msg *msg = weir_msg_retain(new_number(0, 1));
    unsigned messages;
    size_t bytes;
    assert_false(weir__local_pipe_room(pipe, 1, &messages, &bytes));
    weir__local_pipe_put(pipe, 1, &(weir_local_parcel){ msg, 1 }, 1, false);
    assert_int_equal(weir_msg_refs(msg), 1);
    weir_msg_release(msg);
    weir__local_pipe_release(pipe);
}

static void connecting_ends_once(void **state)
{
    (void)state;
    weir_local_pipe *pipe = weir__local_pipe_new();
    assert_int_equal(weir__local_pipe_outcome(pipe), -EINPROGRESS);
    assert_true(weir__local_pipe_settle(pipe, 0));
    assert_false(weir__local_pipe_settle(pipe, -ECANCELED));
    assert_int_equal(weir__local_pipe_outcome(pipe), 0);
    weir__local_pipe_release(pipe);
}

static void steady_traffic_allocates_nothing_on_its_way(void **state)
{
    (void)state;
    scene s;
    counter seen = { 0 };
    weir_allocator_stats before, after;
    open_scene(&s, add_counter, &seen, NULL, NULL);
    weir_msg *msgs[3] = { new_number(0, 1), new_number(1, 1), new_number(2, 1) };
    weir_channel_write_and_flush(s.client, msgs[0], NULL);
    run_pair(&s.loops);
    /* From another thread a write is a call with memory of its own: one for each. */
    weir_allocator_get_stats(&before);
    weir_channel_write_and_flush(s.client, msgs[1], NULL);
    weir_channel_write_and_flush(s.client, msgs[2], NULL);
    run_pair(&s.loops);
    weir_allocator_get_stats(&after);
    assert_int_equal(seen.next, 3);
    assert_int_equal(after.allocations - before.allocations, 2);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(s152_an_echo_pair_has_a_pipeline_at_each_end),
        weir_case(a_message_arrives_as_the_object_that_was_sent),
        weir_case(sixteen_messages_are_a_batch),
        weir_case(without_auto_read_a_read_is_one_batch),
        weir_case(who_stops_in_a_batch_gets_the_rest_later),
        weir_case(who_does_not_read_holds_the_writer_up),
        weir_case(large_messages_go_one_by_one),
        weir_case(a_cancelled_write_does_not_go),
        weir_case(half_closed_the_other_direction_goes_on),
        weir_case(without_half_closure_the_end_of_input_closes),
        weir_case(a_close_comes_behind_all_that_was_sent),
        weir_case(a_finish_sends_everything_and_waits_for_the_other_end),
        weir_case(writing_to_who_is_gone_is_a_reset),
        weir_case(who_waits_for_who_is_gone_is_told),
        weir_case(who_reads_and_writes_reads_to_the_end),
        weir_case(a_close_in_any_callback_is_seen_at_the_other_end),
        weir_case(nobody_there_is_a_refusal),
        weir_case(other_kinds_of_addresses_are_none),
        weir_case(a_name_is_one_listeners_until_it_closes),
        weir_case(many_names_are_found),
        weir_case(addresses_are_those_of_both_ends),
        weir_case(children_have_the_options_of_the_listener_for_them),
        weir_case(sixteen_are_accepted_in_a_batch),
        weir_case(a_read_of_a_listener_is_one_batch),
        weir_case(the_backlog_bounds_who_waits),
        weir_case(a_smaller_backlog_can_be_set),
        weir_case(a_listener_that_closes_refuses_who_waits),
        weir_case(a_connect_that_takes_too_long_fails),
        weir_case(a_connect_can_be_cancelled),
        weir_case(a_cancel_after_the_accept_closes_the_child),
        weir_case(a_second_connect_fails),
        weir_case(a_child_that_nobody_takes_is_closed),
        weir_case(what_was_written_before_connecting_goes_afterwards),
        weir_case(listeners_send_nothing),
        weir_case(what_was_never_used_goes),
        weir_case(a_connect_that_is_forgotten_goes),
        weir_case(a_connect_goes_on_after_a_move),
        weir_case(what_comes_while_it_is_on_no_loop_is_kept),
        weir_case(a_move_inside_a_batch_ends_it),
        weir_case(who_stops_reading_from_who_is_gone_is_told),
        weir_case(what_is_put_for_nobody_is_released),
        weir_case(connecting_ends_once),
        weir_case(steady_traffic_allocates_nothing_on_its_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
