/* SPDX-License-Identifier: MIT */
/* Channels: their states, and what can be seen of them and attached to them. */
#include "channel/extras.h"
#include "channel/story.h"

#include <stdatomic.h>

/* Life ----------------------------------------------------------------------------------------- */

static void assert_state(const weir_channel *channel, weir_channel_state state, const char *name)
{
    assert_int_equal(weir_channel_get_state(channel), state);
    assert_string_equal(weir_channel_state_name(weir_channel_get_state(channel)), name);
    assert_int_equal(weir_channel_is_active(channel), state == WEIR_CHANNEL_ACTIVE);
    assert_int_equal(weir_channel_is_open(channel), state < WEIR_CHANNEL_CLOSING);
}

static void on_inactive_tells_state(weir_ctx *ctx)
{
    assert_state(weir_ctx_channel(ctx), WEIR_CHANNEL_CLOSED, "closed");
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type state_checker = {
    .name = "state checker",
    .on_inactive = on_inactive_tells_state,
};

static int close_and_look(void *arg)
{
    weir_channel *channel = arg;
    weir_channel_close(channel, NULL);
    assert_state(channel, WEIR_CHANNEL_CLOSING, "closing");
    return 0;
}

static void a_channel_goes_through_its_states(void **state)
{
    (void)state;
    weir_embedded_config config = { .is_unregistered = true, .is_unconnected = true };
    weir_embedded *e = open_embedded(&config);
    weir_channel *channel = weir_embedded_channel(e);
    assert_state(channel, WEIR_CHANNEL_OPEN, "open");
    assert_null(weir_channel_loop(channel));
    weir_channel_register(channel, weir_embedded_executor(e), NULL);
    weir_embedded_run(e);
    assert_state(channel, WEIR_CHANNEL_REGISTERED, "registered");
    assert_ptr_equal(weir_loop_executor(weir_channel_loop(channel)), weir_embedded_executor(e));
    assert_int_equal(weir_embedded_call(e, bind_somewhere, channel), 0);
    assert_state(channel, WEIR_CHANNEL_ACTIVE, "active");
    weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &state_checker, NULL);
    assert_int_equal(weir_embedded_call(e, close_and_look, channel), 0);
    assert_state(channel, WEIR_CHANNEL_UNREGISTERED, "unregistered");
    assert_string_equal(weir_channel_state_name((weir_channel_state)77), "?");
    weir_embedded_free(e);
}

static void the_end_is_told_in_order(void **state)
{
    (void)state;
    story to = STORY;
    ear closed, close;
    weir_embedded *e = open_recorded(&to);
    weir_channel *channel = weir_embedded_channel(e);
    ear_listen(&closed, &to, "closed", weir_channel_closed(channel));
    story_is(&to, "added registered active");
    call_with_ear(weir_channel_close, channel, &close, &to, "close");
    weir_embedded_run(e);
    story_is(&to, "inactive unregistered removed close=ok closed=ok");
    weir_embedded_free(e);
    story_is(&to, "");
}

static void who_never_was_active_is_not_told_that_it_is_not(void **state)
{
    (void)state;
    story to = STORY;
    weir_embedded_config config = { .init = add_recorder, .arg = &to, .is_unconnected = true };
    weir_embedded *e = open_embedded(&config);
    story_is(&to, "added registered");
    weir_embedded_close(e);
    story_is(&to, "unregistered removed");
    weir_embedded_free(e);
}

static void closing_before_registering_tells_no_handler(void **state)
{
    (void)state;
    story to = STORY;
    ear closed, close;
    weir_embedded_config config = { .init = add_recorder, .arg = &to, .is_unregistered = true };
    weir_embedded *e = open_embedded(&config);
    weir_channel *channel = weir_embedded_channel(e);
    ear_listen(&closed, &to, "closed", weir_channel_closed(channel));
    call_with_ear(weir_channel_close, channel, &close, &to, "close");
    story_is(&to, "close=ok closed=ok");
    assert_state(channel, WEIR_CHANNEL_UNREGISTERED, "unregistered");
    weir_embedded_free(e);
}

/* The promise of a second close, at every moment of the first. */
typedef struct second_close {
    ear at[3];
    story *story;
} second_close;

static void close_once_more(weir_ctx *ctx)
{
    second_close *self = weir_ctx_arg(ctx);
    call_with_ear(weir_channel_close, weir_ctx_channel(ctx), &self->at[2], self->story, "third");
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type closes_once_more = {
    .name = "closes once more",
    .on_inactive = close_once_more,
};

typedef struct close_twice {
    weir_channel *channel;
    second_close *second;
} close_twice;

static int close_twice_here(void *arg)
{
    close_twice *self = arg;
    for (int i = 0; i < 2; i++)
        call_with_ear(weir_channel_close, self->channel, &self->second->at[i], self->second->story,
                      i == 0 ? "first" : "second");
    return 0;
}

static void every_close_succeeds(void **state)
{
    (void)state;
    story to = STORY;
    ear fourth;
    second_close second = { .story = &to };
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &closes_once_more, &second);
    assert_int_equal(weir_embedded_call(e, close_twice_here, &(close_twice){ channel, &second }),
                     0);
    call_with_ear(weir_channel_close, channel, &fourth, &to, "fourth");
    story_is(&to, "first=ok second=ok third=ok fourth=ok");
    weir_embedded_free(e);
}

static int fail_all(void *arg, const char *call, size_t *length)
{
    (void)arg;
    (void)length;
    return strcmp(call, "alloc") == 0 ? -ENOMEM : 0;
}

/* The promises are made before memory runs out. */
static int close_twice_without_memory(void *arg)
{
    close_twice *self = arg;
    weir_promise *promises[2];
    for (int i = 0; i < 2; i++)
        promises[i] = ear_promise(&self->second->at[i], self->second->story,
                                  i == 0 ? "first" : "second", self->channel);
    weir_fault_set(fail_all, NULL);
    for (int i = 0; i < 2; i++)
        weir_channel_close(self->channel, promises[i]);
    weir_fault_set(NULL, NULL);
    for (int i = 0; i < 2; i++)
        weir_promise_release(promises[i]);
    return 0;
}

static void every_close_succeeds_without_memory(void **state)
{
    (void)state;
    story to = STORY;
    second_close second = { .story = &to };
    weir_embedded *e = open_embedded(NULL);
    close_twice self = { weir_embedded_channel(e), &second };
    assert_int_equal(weir_embedded_call(e, close_twice_without_memory, &self), 0);
    assert_int_equal(second.at[0].code, 0);
    assert_int_equal(second.at[1].code, 0);
    weir_embedded_free(e);
}

typedef struct turn_watch {
    weir_channel *channel;
    ear close, closed;
    story *story;
} turn_watch;

static int close_and_see_nothing(void *arg)
{
    turn_watch *self = arg;
    call_with_ear(weir_channel_close, self->channel, &self->close, self->story, "close");
    story_add(self->story, "returned");
    assert_false(weir_future_is_done(weir_channel_closed(self->channel)));
    return 0;
}

static int next_task(void *arg)
{
    story_add(arg, "task");
    return 0;
}

static void closing_takes_at_least_a_turn(void **state)
{
    (void)state;
    story to = STORY;
    pair loops;
    open_pair(&loops);
    weir_embedded *e = open_embedded(&(weir_embedded_config){ .group = loops.group });
    turn_watch watch = { .channel = weir_embedded_channel(e), .story = &to };
    run_pair(&loops);
    assert_int_equal(weir_executor_execute(loops.first, close_and_see_nothing, &watch), 0);
    assert_int_equal(weir_executor_execute(loops.first, next_task, &to), 0);
    run_pair(&loops);
    story_is(&to, "returned task close=ok"); /* behind all that the turn had to do */
    weir_embedded_free(e);
    end_group(loops.group);
}

/* What fails on a closed channel, by its promise. */
static void register_again(weir_channel *channel, weir_promise *promise)
{
    weir_group *group = open_group(&(weir_group_config){ .loops = 1, .is_manual = true });
    weir_channel_register(channel, weir_group_at(group, 0), promise);
    end_group(group);
}

static void move_again(weir_channel *channel, weir_promise *promise)
{
    weir_group *group = open_group(&(weir_group_config){ .loops = 1, .is_manual = true });
    weir_channel_move(channel, weir_group_at(group, 0), promise);
    end_group(group);
}

static void bind_again(weir_channel *channel, weir_promise *promise)
{
    weir_address address = { 0 };
    weir_channel_bind(channel, &address, promise);
}

static void connect_again(weir_channel *channel, weir_promise *promise)
{
    weir_address address = { 0 };
    weir_channel_connect(channel, &address, NULL, promise);
}

static void write_again(weir_channel *channel, weir_promise *promise)
{
    weir_channel_write(channel, text_msg("x"), promise);
}

static void write_and_flush_again(weir_channel *channel, weir_promise *promise)
{
    weir_channel_write_and_flush(channel, text_msg("x"), promise);
}

static void assert_closed_for_all(weir_channel *channel)
{
    static const promised_fn calls[] = {
        register_again, move_again,  weir_channel_deregister, weir_channel_shutdown, bind_again,
        connect_again,  write_again, write_and_flush_again,
    };
    weir_error error = { 0 };
    ear at;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        call_with_ear(calls[i], channel, &at, NULL, "");
        assert_int_equal(at.told, 1);
        assert_int_equal(at.code, WEIR_ECLOSED);
    }
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_LINGER_NS, WEIR_MS(1), &error),
                     WEIR_ECLOSED);
    assert_non_null(strstr(error.message, "linger_ns is 1"));
    assert_int_equal(
        weir_pipeline_add_last(weir_channel_pipeline(channel), "late", &recorder, NULL),
        WEIR_ECLOSED);
    assert_int_equal(weir_pipeline_remove(weir_channel_pipeline(channel), "recorder", NULL),
                     WEIR_ENOTFOUND);
    weir_channel_read(channel);
    weir_channel_flush(channel);
    weir_channel_write(channel, text_msg("x"), NULL); /* nobody to tell, and nothing is left */
    call_with_ear(weir_channel_close, channel, &at, NULL, "");
    assert_int_equal(at.code, 0);
    call_with_ear(weir_channel_finish, channel, &at, NULL, "");
    assert_int_equal(at.code, 0); /* as close: it is what was asked for */
    assert_false(weir_channel_is_writable(channel));
}

static void a_closed_channel_refuses_everything(void **state)
{
    (void)state;
    story to = STORY;
    weir_embedded *e = open_recorded(&to);
    weir_channel *channel = weir_channel_retain(weir_embedded_channel(e));
    weir_embedded_close(e);
    assert_closed_for_all(channel);
    weir_embedded_free(e);
    assert_closed_for_all(channel); /* its loop and its group are gone, too */
    story_is(&to, "added registered active inactive unregistered removed");
    weir_channel_release(channel);
}

static int look_while_closing(void *arg)
{
    weir_channel *channel = arg;
    ear at;
    static const promised_fn calls[] = { weir_channel_deregister, weir_channel_shutdown, bind_again,
                                         write_again };
    weir_channel_close(channel, NULL);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        weir_promise *promise = weir_promise_new(NULL);
        calls[i](channel, promise);
        at.code = weir_future_code(weir_promise_future(promise));
        weir_promise_release(promise);
        assert_int_equal(at.code, WEIR_ECLOSED);
    }
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL),
                     WEIR_ECLOSED);
    return 0;
}

static void a_closing_channel_refuses_as_well(void **state)
{
    (void)state;
    weir_embedded *e = open_embedded(NULL);
    assert_int_equal(weir_embedded_call(e, look_while_closing, weir_embedded_channel(e)), 0);
    weir_embedded_free(e);
}

static void giving_up_a_reference_does_not_close(void **state)
{
    (void)state;
    story to = STORY;
    ear closed;
    weir_embedded *e = open_recorded(&to);
    weir_channel *channel = weir_channel_retain(weir_embedded_channel(e));
    ear_listen(&closed, &to, "closed", weir_channel_closed(channel));
    weir_channel_release(channel);
    weir_embedded_run(e);
    assert_true(weir_channel_is_active(weir_embedded_channel(e)));
    story_is(&to, "added registered active");
    weir_embedded_free(e);
}

static void *release_elsewhere(void *channel)
{
    weir_channel_release(channel);
    return NULL;
}

static void run_elsewhere(void *(*fn)(void *arg), void *arg)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fn, arg), 0);
    pthread_join(thread, NULL);
}

static void the_last_reference_can_go_on_any_thread(void **state)
{
    (void)state;
    story to = STORY;
    weir_embedded *e = open_recorded(&to);
    weir_channel *channel = weir_channel_retain(weir_embedded_channel(e));
    weir_embedded_free(e);
    run_elsewhere(release_elsewhere, channel);
    story_is(&to, "added registered active inactive unregistered removed");
}

static void a_channel_on_no_loop_closes_with_its_last_reference(void **state)
{
    (void)state;
    story to = STORY;
    ear closed, shut;
    weir_embedded *e = open_embedded(&(weir_embedded_config){ .is_unregistered = true });
    weir_channel *channel = weir_embedded_channel(e);
    weir_promise *promise = weir_promise_new(NULL);
    ear_listen(&closed, &to, "closed", weir_channel_closed(channel));
    ear_listen(&shut, &to, "shutdown", weir_promise_future(promise));
    weir_channel_shutdown(channel, promise); /* waits for a connection that never comes */
    weir_promise_release(promise);
    weir_embedded_free(e);
    assert_true(story_has(&to, "shutdown=WEIR_ECLOSED"));
    assert_true(story_has(&to, "closed=ok"));
}

static void writes_that_wait_fail_when_a_channel_on_no_loop_goes(void **state)
{
    (void)state;
    story to = STORY;
    ear write;
    weir_embedded *e = open_embedded(&(weir_embedded_config){ .is_unregistered = true });
    weir_promise *promise = weir_promise_new(NULL);
    ear_listen(&write, &to, "write", weir_promise_future(promise));
    weir_channel_write(weir_embedded_channel(e), text_msg("x"), promise);
    weir_promise_release(promise);
    weir_embedded_free(e);
    story_is(&to, "write=WEIR_ECLOSED");
}

static void nothing_is_asked_of_no_channel(void **state)
{
    (void)state;
    static const promised_fn calls[] = {
        weir_channel_deregister, weir_channel_shutdown, weir_channel_close, weir_channel_finish,
        weir_channel_disconnect, write_again,           bind_again,         connect_again
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        weir_promise *promise = weir_promise_new(NULL);
        calls[i](NULL, promise);
        assert_int_equal(weir_future_code(weir_promise_future(promise)), -EINVAL);
        weir_promise_release(promise);
    }
    weir_channel_read(NULL);
    weir_channel_flush(NULL);
    weir_channel_release(NULL);
    assert_null(weir_channel_retain(NULL));
    assert_null(weir_channel_promise(NULL));
    assert_null(weir_channel_pipeline(NULL));
}

/* Looking -------------------------------------------------------------------------------------- */

static void ids_are_unique_and_parents_live_as_long_as_their_children(void **state)
{
    (void)state;
    weir_embedded *a = open_embedded(NULL);
    weir_channel *parent = weir_embedded_channel(a);
    uint64_t id = weir_channel_id(parent);
    weir_embedded *b = open_embedded(&(weir_embedded_config){ .parent = parent });
    weir_channel *child = weir_embedded_channel(b);
    assert_true(weir_channel_id(child) > id);
    assert_ptr_equal(weir_channel_parent(child), parent);
    assert_null(weir_channel_parent(parent));
    assert_string_equal(weir_channel_kind(child), "embedded");
    assert_ptr_equal(weir_pipeline_channel(weir_channel_pipeline(child)), child);
    weir_embedded_free(a);
    assert_int_equal(weir_channel_id(weir_channel_parent(child)), id); /* it is still there */
    weir_embedded_free(b);
    weir_embedded *c = open_embedded(NULL);
    assert_true(weir_channel_id(weir_embedded_channel(c)) > id + 1); /* never one again */
    weir_embedded_free(c);
}

static void what_went_through_is_counted(void **state)
{
    (void)state;
    weir_channel_stats stats;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    weir_embedded_write_inbound_bytes(e, "hello", 5);
    weir_embedded_write_inbound_bytes(e, "you", 3);
    weir_embedded_write_outbound(e, text_msg("12"));
    weir_channel_get_stats(channel, &stats);
    assert_int_equal(stats.messages_in, 2);
    assert_int_equal(stats.bytes_in, 8);
    assert_int_equal(stats.messages_out, 1);
    assert_int_equal(stats.bytes_out, 2);
    assert_int_equal(stats.discarded, 0);
    assert_int_equal(stats.pending_bytes, 0);
    weir_channel_write(channel, text_msg("pending"), NULL);
    weir_channel_get_stats(channel, &stats);
    assert_true(stats.pending_bytes >= 7); /* though the loop has not seen it */
    weir_embedded_run(e);
    weir_channel_get_stats(channel, &stats);
    assert_true(stats.pending_bytes >= 7);
    assert_int_equal(stats.messages_out, 1);
    weir_embedded_flush(e);
    weir_channel_get_stats(channel, &stats);
    assert_int_equal(stats.pending_bytes, 0);
    assert_int_equal(stats.messages_out, 2);
    weir_embedded_free(e);
}

static void a_dump_says_it_in_one_line(void **state)
{
    (void)state;
    story to = STORY;
    char line[512], part[40], expected[32];
    weir_embedded *e = open_recorded(&to);
    weir_channel *channel = weir_embedded_channel(e);
    weir_embedded_write_inbound_bytes(e, "hello", 5);
    size_t length = weir_channel_dump(channel, line, sizeof line);
    assert_int_equal(length, strlen(line));
    snprintf(expected, sizeof expected, "%08llx embedded active on ",
             (unsigned long long)weir_channel_id(channel));
    assert_memory_equal(line, expected, strlen(expected));
    assert_non_null(strstr(line, weir_executor_name(weir_embedded_executor(e))));
    assert_non_null(strstr(line, ", reading, writable, in 1 messages 5 bytes, out 0 messages 0 "
                                 "bytes, 0 bytes pending: recorder"));
    assert_null(strchr(line, '\n'));
    for (size_t size = 0; size <= sizeof part; size++) {
        memset(part, '~', sizeof part);
        assert_int_equal(weir_channel_dump(channel, part, size), length);
        if (size > 0) {
            assert_int_equal(strlen(part), size - 1);
            assert_memory_equal(part, line, size - 1);
        }
        if (size < sizeof part)
            assert_int_equal(part[size], '~');
    }
    line[length] = '~';
    weir_channel_dump(channel, line, length); /* the last character has no room */
    assert_int_equal(strlen(line), length - 1);
    weir_embedded_close(e);
    weir_channel_dump(channel, line, sizeof line);
    assert_non_null(strstr(line, " embedded unregistered on no loop, "));
    assert_non_null(strstr(line, ", not reading, in 1 messages"));
    weir_embedded_free(e);
}

static void an_embedded_channel_has_no_addresses(void **state)
{
    (void)state;
    weir_address address;
    weir_embedded *e = open_embedded(NULL);
    assert_int_equal(weir_channel_local_address(weir_embedded_channel(e), &address),
                     WEIR_ENOTFOUND);
    assert_int_equal(weir_channel_remote_address(weir_embedded_channel(e), &address),
                     WEIR_ENOTFOUND);
    weir_embedded_free(e);
}

/* Whom a proxy speaks for, on any kind of channel. */
static void the_remote_address_can_be_another(void **state)
{
    (void)state;
    weir_address address, client;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    assert_int_equal(weir_address_parse(&client, "192.0.2.1:5", NULL), 0);
    assert_int_equal(weir_channel_set_remote_address(channel, NULL), 0);
    assert_int_equal(weir_channel_set_remote_address(channel, &(weir_address){ 0 }), -EINVAL);
    assert_int_equal(weir_channel_set_remote_address(NULL, &client), -EINVAL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(weir_channel_set_remote_address(channel, &client), 0);
        assert_int_equal(weir_channel_remote_address(channel, &address), 0);
        assert_true(weir_address_equal(&address, &client));
        assert_int_equal(weir_channel_peer_address(channel, &address), WEIR_ENOTFOUND);
        assert_int_equal(weir_address_kind_of(&address), WEIR_ADDRESS_NONE);
        assert_int_equal(weir_address_set_port(&client, 6), 0);
    }
    assert_int_equal(weir_channel_set_remote_address(channel, NULL), 0);
    assert_int_equal(weir_channel_remote_address(channel, &address), WEIR_ENOTFOUND);
    for (unsigned nth = 1, calls = 1; calls >= nth - 1; nth++) { /* until it fails no more */
        weir_embedded *another = open_embedded(NULL);
        channel = weir_embedded_channel(another);
        harness_fail_nth("alloc", nth, -ENOMEM);
        int code = weir_channel_set_remote_address(channel, &client);
        calls = harness_fail_end();
        assert_int_equal(code, nth <= calls ? -ENOMEM : 0);
        assert_int_equal(weir_channel_remote_address(channel, &address),
                         code == 0 ? 0 : WEIR_ENOTFOUND);
        weir_embedded_free(another);
    }
    weir_embedded_free(e);
}

static void *look_at_remote(void *arg)
{
    weir_address address;
    for (int i = 0; i < 2000; i++) {
        if (weir_channel_remote_address(arg, &address) == 0) {
            uint16_t port = weir_address_port(&address);
            assert_in_range(port, 1, 2000);
        }
    }
    return NULL;
}

/* Others look while it changes. */
static void the_remote_address_is_seen_whole(void **state)
{
    (void)state;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    weir_address client;
    pthread_t thread;
    assert_int_equal(weir_address_parse(&client, "192.0.2.1:1", NULL), 0);
    assert_int_equal(pthread_create(&thread, NULL, look_at_remote, channel), 0);
    for (uint16_t port = 1; port <= 2000; port++) {
        weir_address_set_port(&client, port);
        assert_int_equal(weir_channel_set_remote_address(channel, port % 3 == 0 ? NULL : &client),
                         0);
    }
    pthread_join(thread, NULL);
    weir_embedded_free(e);
}

/* Attributes ----------------------------------------------------------------------------------- */

static atomic_int destroyed, destroyed_sum;

static void destroy_number(void *value)
{
    destroyed++;
    destroyed_sum += *(int *)value;
}

static const weir_attr_key number_key = { "number", destroy_number };
static const weir_attr_key other_key = { "number", destroy_number };
static const weir_attr_key plain_key = { "plain", NULL };

static void attributes_are_replaced_and_destroyed(void **state)
{
    (void)state;
    int one = 1, ten = 10, hundred = 100, thousand = 1000;
    destroyed = destroyed_sum = 0;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    assert_null(weir_channel_attr(channel, &number_key));
    assert_int_equal(weir_channel_set_attr(channel, &number_key, NULL), 0);
    assert_int_equal(weir_channel_set_attr(channel, &number_key, &one), 0);
    assert_int_equal(weir_channel_set_attr(channel, &other_key, &ten), 0); /* by address */
    assert_int_equal(weir_channel_set_attr(channel, &plain_key, &thousand), 0);
    assert_ptr_equal(weir_channel_attr(channel, &number_key), &one);
    assert_ptr_equal(weir_channel_attr(channel, &other_key), &ten);
    assert_int_equal(destroyed, 0);
    assert_int_equal(weir_channel_set_attr(channel, &number_key, &hundred), 0);
    assert_int_equal(destroyed_sum, 1);
    assert_int_equal(weir_channel_set_attr(channel, &other_key, NULL), 0);
    assert_int_equal(destroyed_sum, 11);
    assert_null(weir_channel_attr(channel, &other_key));
    weir_embedded_close(e);
    assert_ptr_equal(weir_channel_attr(channel, &number_key), &hundred); /* until it goes */
    weir_embedded_free(e);
    assert_int_equal(destroyed, 3);
    assert_int_equal(destroyed_sum, 111);
}

static void the_same_value_again_is_not_destroyed(void **state)
{
    (void)state;
    int one = 1;
    destroyed = destroyed_sum = 0;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    assert_int_equal(weir_channel_set_attr(channel, &number_key, &one), 0);
    assert_int_equal(weir_channel_set_attr(channel, &number_key, &one), 0);
    assert_int_equal(destroyed, 0);
    weir_embedded_free(e);
    assert_int_equal(destroyed, 1);
}

static void an_attribute_that_is_not_kept_is_destroyed(void **state)
{
    (void)state;
    int one = 1, ten = 10;
    destroyed = destroyed_sum = 0;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    assert_int_equal(weir_channel_set_attr(NULL, &number_key, &one), -EINVAL);
    assert_int_equal(destroyed, 1);
    assert_int_equal(weir_channel_set_attr(channel, NULL, &one), -EINVAL);
    assert_null(weir_channel_attr(channel, NULL));
    assert_null(weir_channel_attr(NULL, &number_key));
    for (unsigned n = 1; n <= 2; n++) { /* of the extras, and of the attribute */
        destroyed = 0;
        harness_fail_nth("alloc", n, -ENOMEM);
        assert_int_equal(weir_channel_set_attr(channel, &number_key, &ten), -ENOMEM);
        harness_fail_end();
        assert_int_equal(destroyed, 1);
        assert_null(weir_channel_attr(channel, &number_key));
    }
    weir_embedded_free(e);
}

enum { SETTERS = 4, SETS = 2000 };

typedef struct setter {
    weir_channel *channel;
    int values[SETS];
} setter;

static void *set_often(void *arg)
{
    setter *self = arg;
    for (int i = 0; i < SETS; i++) {
        weir_channel_set_attr(self->channel, i % 2 ? &number_key : &other_key, &self->values[i]);
        weir_channel_attr(self->channel, &number_key);
        weir_channel_set_attr(self->channel, &other_key, NULL);
    }
    return NULL;
}

static void attributes_come_from_all_threads(void **state)
{
    (void)state;
    pthread_t threads[SETTERS];
    static setter setters[SETTERS];
    destroyed = destroyed_sum = 0;
    weir_embedded *e = open_embedded(NULL);
    for (int i = 0; i < SETTERS; i++) {
        setters[i].channel = weir_embedded_channel(e);
        assert_int_equal(pthread_create(&threads[i], NULL, set_often, &setters[i]), 0);
    }
    for (int i = 0; i < SETTERS; i++)
        pthread_join(threads[i], NULL);
    weir_embedded_free(e);
    assert_int_equal(destroyed, SETTERS * SETS); /* each once */
}

/* Options -------------------------------------------------------------------------------------- */

static int64_t option_of(weir_channel *channel, weir_option option)
{
    int64_t value = -1;
    assert_int_equal(weir_channel_get_option(channel, option, &value), 0);
    return value;
}

/* Sets it, and looks at what the error says. */
static void assert_refused(weir_channel *channel, weir_option option, int64_t value)
{
    weir_error error = { 0 };
    char number[32];
    int64_t before = option_of(channel, option);
    snprintf(number, sizeof number, "%lld", (long long)value);
    assert_int_equal(weir_channel_set_option(channel, option, value, &error), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    assert_non_null(strstr(error.message, weir_option_get_info(option)->name));
    assert_non_null(strstr(error.message, number));
    assert_int_equal(option_of(channel, option), before);
}

/* So that every value in range is allowed for the mark alone. */
static int widen_marks(weir_channel *channel)
{
    weir_option_value marks[] = { { WEIR_OPTION_WRITE_LOW_BYTES, 0 },
                                  { WEIR_OPTION_WRITE_HIGH_BYTES, INT32_MAX } };
    return weir_channel_set_options(channel, marks, 2, NULL);
}

static int check_options(void *arg)
{
    weir_channel *channel = arg;
    for (int i = 0; i < WEIR__CHANNEL_OPTIONS_END; i++) {
        const weir_option_info *info = weir_option_get_info((weir_option)i);
        weir_option option = (weir_option)i;
        assert_int_equal(weir_option_from(info->name), i);
        assert_int_equal(option_of(channel, option), info->normal);
        assert_true(info->least <= info->normal && info->normal <= info->most);
        assert_int_equal(widen_marks(channel), 0);
        assert_refused(channel, option, info->least - 1);
        if (info->most < INT64_MAX)
            assert_refused(channel, option, info->most + 1);
        assert_refused(channel, option, INT64_MIN);
        assert_int_equal(weir_channel_set_option(channel, option, info->most, NULL), 0);
        assert_int_equal(option_of(channel, option), info->most);
        assert_int_equal(widen_marks(channel), 0);
        assert_int_equal(weir_channel_set_option(channel, option, info->least, NULL), 0);
        assert_int_equal(option_of(channel, option), info->least);
        weir_channel_set_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, INT32_MAX, NULL);
        assert_int_equal(weir_channel_set_option(channel, option, info->normal, NULL), 0);
        weir_channel_set_option(channel, WEIR_OPTION_WRITE_LOW_BYTES, 32768, NULL);
        weir_channel_set_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, 65536, NULL);
    }
    /* The others are those of sockets. */
    for (int i = WEIR__CHANNEL_OPTIONS_END; i < WEIR_OPTIONS_END; i++) {
        weir_error error = { 0 };
        int64_t value;
        const weir_option_info *info = weir_option_get_info((weir_option)i);
        assert_int_equal(weir_option_from(info->name), i);
        assert_int_equal(weir_channel_set_option(channel, (weir_option)i, info->most + 1, NULL),
                         -EINVAL);
        assert_int_equal(weir_channel_set_option(channel, (weir_option)i, info->least, &error),
                         -ENOPROTOOPT);
        assert_non_null(strstr(error.message, info->name));
        assert_non_null(strstr(error.message, "embedded"));
        assert_int_equal(weir_channel_get_option(channel, (weir_option)i, &value), -ENOPROTOOPT);
    }
    return 0;
}

static void every_option_has_a_range_and_can_be_read_back(void **state)
{
    (void)state;
    weir_embedded *e = open_embedded(NULL);
    assert_int_equal(weir_embedded_call(e, check_options, weir_embedded_channel(e)), 0);
    weir_embedded_free(e);
}

static int check_marks(void *arg)
{
    weir_channel *channel = arg;
    assert_refused(channel, WEIR_OPTION_WRITE_LOW_BYTES, 65537);
    assert_refused(channel, WEIR_OPTION_WRITE_HIGH_BYTES, 32767);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_WRITE_LOW_BYTES, 65536, NULL), 0);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, 65536, NULL),
                     0);
    return 0;
}

static void the_low_mark_stays_below_the_high_one(void **state)
{
    (void)state;
    weir_embedded *e = open_embedded(NULL);
    assert_int_equal(weir_embedded_call(e, check_marks, weir_embedded_channel(e)), 0);
    weir_embedded_free(e);
}

static void options_that_there_are_not_are_refused(void **state)
{
    (void)state;
    weir_error error = { 0 };
    int64_t value;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    assert_null(weir_option_get_info(WEIR_OPTIONS_END));
    assert_null(weir_option_get_info((weir_option)-1));
    assert_int_equal(weir_option_from("auto-read"), -EINVAL);
    assert_int_equal(weir_option_from(NULL), -EINVAL);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTIONS_END, 1, &error), -ENOPROTOOPT);
    assert_int_equal(error.code, -ENOPROTOOPT);
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTIONS_END, &value), -ENOPROTOOPT);
    assert_int_equal(weir_channel_get_option(channel, WEIR_OPTION_AUTO_READ, NULL), -EINVAL);
    assert_int_equal(weir_channel_set_option(NULL, WEIR_OPTION_AUTO_READ, 1, &error), -EINVAL);
    weir_embedded_free(e);
}

static void a_list_of_options_ends_at_the_first_that_fails(void **state)
{
    (void)state;
    weir_error error = { 0 };
    const weir_option_value list[] = { { WEIR_OPTION_LINGER_NS, WEIR_MS(7) },
                                       { WEIR_OPTION_MAX_EVENTS_AWAY, 0 },
                                       { WEIR_OPTION_CONNECT_TIMEOUT_NS, WEIR_MS(9) } };
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    assert_int_equal(weir_channel_set_options(channel, list, 3, &error), -EINVAL);
    assert_non_null(strstr(error.message, "max_events_away is 0"));
    weir_embedded_run(e);
    assert_int_equal(option_of(channel, WEIR_OPTION_LINGER_NS), WEIR_MS(7));
    assert_int_equal(option_of(channel, WEIR_OPTION_CONNECT_TIMEOUT_NS), WEIR_SECONDS(30));
    assert_int_equal(weir_channel_set_options(channel, NULL, 0, &error), 0);
    assert_int_equal(weir_channel_set_options(channel, NULL, 1, &error), -EINVAL);
    weir_embedded_free(e);
}

static void options_from_another_thread_are_set_in_order(void **state)
{
    (void)state;
    weir_embedded *e = open_embedded(NULL);
    weir_channel *channel = weir_embedded_channel(e);
    harness_log_begin(WEIR_LOG_WARN);
    /* This is not the loop's thread while nothing is stepped. */
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_LINGER_NS, WEIR_MS(1), NULL), 0);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_LINGER_NS, WEIR_MS(2), NULL), 0);
    assert_refused(channel, WEIR_OPTION_LINGER_NS, -1);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_WRITE_LOW_BYTES, 99999, NULL),
                     0); /* in range, but above the high mark */
    assert_int_equal(option_of(channel, WEIR_OPTION_LINGER_NS), WEIR_SECONDS(5));
    weir_embedded_run(e);
    assert_int_equal(option_of(channel, WEIR_OPTION_LINGER_NS), WEIR_MS(2));
    assert_int_equal(option_of(channel, WEIR_OPTION_WRITE_LOW_BYTES), 32768);
    assert_true(harness_log_has("write_low_bytes is 99999"));
    assert_int_equal(harness_log_end(), 1);
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_LINGER_NS, WEIR_MS(3), NULL),
                     -ENOMEM);
    harness_fail_end();
    weir_embedded_free(e);
}

static void assert_option(weir_embedded *e, weir_option option, int64_t value)
{
    assert_int_equal(option_of(weir_embedded_channel(e), option), value);
}

static void children_get_the_options_that_are_set_for_them(void **state)
{
    (void)state;
    weir_embedded *parent = NULL, *child = NULL;
    weir_error error;
    assert_int_equal(
        weir_embedded_new(&parent, &(weir_embedded_config){ .is_unregistered = true }, NULL), 0);
    weir_channel *channel = weir_embedded_channel(parent);
    /* Above the high mark of a new channel, so their order must not matter. */
    assert_int_equal(
        weir_channel_set_child_option(channel, WEIR_OPTION_WRITE_LOW_BYTES, 100000, NULL), 0);
    assert_int_equal(
        weir_channel_set_child_option(channel, WEIR_OPTION_WRITE_HIGH_BYTES, 200000, NULL), 0);
    assert_int_equal(weir_channel_set_child_option(channel, WEIR_OPTION_AUTO_READ, 0, NULL), 0);
    assert_int_equal(
        weir_channel_set_child_option(channel, WEIR_OPTION_LINGER_NS, WEIR_MS(7), NULL), 0);
    assert_int_equal(weir_channel_set_child_option(channel, WEIR_OPTION_LINGER_NS, -1, &error),
                     -EINVAL);
    assert_non_null(strstr(error.message, "linger_ns is -1"));
    assert_int_equal(weir_channel_set_child_option(channel, WEIR_OPTIONS_END, 1, &error),
                     -ENOPROTOOPT);
    assert_int_equal(weir_channel_set_child_option(NULL, WEIR_OPTION_LINGER_NS, WEIR_MS(1), &error),
                     -EINVAL);
    weir_embedded_config config = { .parent = channel };
    for (unsigned n = 1; child == NULL; n++) {
        harness_fail_nth("alloc", n, -ENOMEM); /* it gets all of them, or is not made */
        weir_embedded_new(&child, &config, NULL);
        harness_fail_end();
    }
    assert_option(child, WEIR_OPTION_WRITE_LOW_BYTES, 100000);
    assert_option(child, WEIR_OPTION_WRITE_HIGH_BYTES, 200000);
    assert_option(child, WEIR_OPTION_AUTO_READ, 0);
    assert_option(child, WEIR_OPTION_LINGER_NS, WEIR_MS(7));
    assert_false(weir_embedded_is_reading(child));
    assert_option(parent, WEIR_OPTION_AUTO_READ, 1); /* they are not its own */
    assert_option(parent, WEIR_OPTION_WRITE_HIGH_BYTES, 65536);
    weir_embedded_free(child);
    weir_channel_close(channel, NULL);
    assert_int_equal(
        weir_channel_set_child_option(channel, WEIR_OPTION_LINGER_NS, WEIR_MS(1), &error),
        WEIR_ECLOSED);
    weir_embedded_free(parent);
}

static void child_options_belong_to_the_loop(void **state)
{
    (void)state;
    weir_embedded *e = open_embedded(NULL);
    weir_error error;
    assert_int_equal(weir_channel_set_child_option(weir_embedded_channel(e), WEIR_OPTION_LINGER_NS,
                                                   WEIR_MS(1), &error),
                     -EPERM);
    weir_embedded_free(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(a_channel_goes_through_its_states),
        weir_case(the_end_is_told_in_order),
        weir_case(who_never_was_active_is_not_told_that_it_is_not),
        weir_case(closing_before_registering_tells_no_handler),
        weir_case(every_close_succeeds),
        weir_case(every_close_succeeds_without_memory),
        weir_case(closing_takes_at_least_a_turn),
        weir_case(a_closed_channel_refuses_everything),
        weir_case(a_closing_channel_refuses_as_well),
        weir_case(giving_up_a_reference_does_not_close),
        weir_case(the_last_reference_can_go_on_any_thread),
        weir_case(a_channel_on_no_loop_closes_with_its_last_reference),
        weir_case(writes_that_wait_fail_when_a_channel_on_no_loop_goes),
        weir_case(nothing_is_asked_of_no_channel),
        weir_case(ids_are_unique_and_parents_live_as_long_as_their_children),
        weir_case(what_went_through_is_counted),
        weir_case(a_dump_says_it_in_one_line),
        weir_case(an_embedded_channel_has_no_addresses),
        weir_case(the_remote_address_can_be_another),
        weir_case(the_remote_address_is_seen_whole),
        weir_case(attributes_are_replaced_and_destroyed),
        weir_case(the_same_value_again_is_not_destroyed),
        weir_case(an_attribute_that_is_not_kept_is_destroyed),
        weir_case(attributes_come_from_all_threads),
        weir_case(every_option_has_a_range_and_can_be_read_back),
        weir_case(the_low_mark_stays_below_the_high_one),
        weir_case(options_that_there_are_not_are_refused),
        weir_case(a_list_of_options_ends_at_the_first_that_fails),
        weir_case(options_from_another_thread_are_set_in_order),
        weir_case(children_get_the_options_that_are_set_for_them),
        weir_case(child_options_belong_to_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
