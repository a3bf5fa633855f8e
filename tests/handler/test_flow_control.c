/* SPDX-License-Identifier: MIT */
/* Flow control: one message for each read. */
#include "exec/executors.h"

#include <weir/embedded.h>
#include <weir/fixed_length.h>
#include <weir/flow_control.h>

#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/*
 * What the handler behind it hears, as letters: the bytes of messages, '|' for on_read_complete,
 * '#' for the end of the input, '.' for on_inactive, '!' for an error. And what
 * it does when it hears one of them.
 */
typedef struct world {
    weir_group *group; /* of the flow control, NULL: the loop */
    char text[256];
    size_t length;
    char when;                  /* it hears this, */
    void (*act)(weir_ctx *ctx); /* it does that, */
    int times;                  /* so often */
    unsigned reads;             /* that got to the head's side */
    weir_embedded *embedded;
    weir_error error; /* the last */
} world;

static void hear(weir_ctx *ctx, char letter)
{
    world *self = weir_ctx_arg(ctx);
    assert_true(self->length < sizeof self->text - 1);
    self->text[self->length++] = letter;
    if (letter == self->when && self->times > 0) {
        self->times--;
        self->act(ctx);
    }
}

static void on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_buf *buf = weir_buf_from_msg(msg);
    uint8_t letter = 0;
    while (weir_buf_read_bytes(buf, &letter, 1) == 0)
        hear(ctx, (char)letter);
    weir_msg_release(msg);
}

static void on_read_complete(weir_ctx *ctx)
{
    hear(ctx, '|');
    weir_ctx_fire_read_complete(ctx);
}

static void on_event(weir_ctx *ctx, weir_msg *event)
{
    if (event == &weir_event_input_closed)
        hear(ctx, '#');
    weir_ctx_fire_event(ctx, event);
}

static void on_inactive(weir_ctx *ctx)
{
    hear(ctx, '.');
    weir_ctx_fire_inactive(ctx);
}

static void on_error(weir_ctx *ctx, const weir_error *error)
{
    world *self = weir_ctx_arg(ctx);
    self->error = *error;
    hear(ctx, '!');
}

static const weir_handler_type listener_type = {
    .name = "listener",
    .on_read = on_read,
    .on_read_complete = on_read_complete,
    .on_event = on_event,
    .on_inactive = on_inactive,
    .on_error = on_error,
};

static void count_read(weir_ctx *ctx)
{
    world *self = weir_ctx_arg(ctx);
    self->reads++;
    weir_ctx_read(ctx);
}

static const weir_handler_type reads_type = { .name = "reads", .read = count_read };
static const weir_fixed_length one_byte = { .length = 1 };

/* A decoder that makes a message of each byte. */
static int add_all(weir_channel *channel, void *arg)
{
    world *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_handler_config control = {
        .type = &weir_flow_control_handler,
        .name = "control",
        .place = WEIR_PLACE_LAST,
        .group = self->group,
    };
    int code = weir_pipeline_add_last(pipeline, "reads", &reads_type, self);
    if (code == 0)
        code = weir_pipeline_add_last(pipeline, "bytes", &weir_fixed_length_decoder,
                                      (void *)&one_byte);
    if (code == 0)
        code = weir_pipeline_add(pipeline, &control, NULL);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "listener", &listener_type, self);
}

static void set_auto_read(weir_channel *channel, bool is_auto_read)
{
    assert_int_equal(weir_channel_set_option(channel, WEIR_OPTION_AUTO_READ, is_auto_read, NULL),
                     0);
}

static weir_embedded *begin(world *self, bool is_auto_read)
{
    weir_embedded_config config = { .init = add_all, .arg = self };
    assert_int_equal(weir_embedded_new(&self->embedded, &config, NULL), 0);
    set_auto_read(weir_embedded_channel(self->embedded), is_auto_read);
    weir_embedded_run(self->embedded);
    self->reads = 0;
    return self->embedded;
}

static void receive(world *self, const char *text)
{
    weir_embedded_write_inbound_bytes(self->embedded, text, strlen(text));
}

static void ask(world *self)
{
    weir_channel_read(weir_embedded_channel(self->embedded));
    weir_embedded_run(self->embedded);
}

static bool is_message(char letter)
{
    return letter >= 'a' && letter <= 'z';
}

static void expect(world *self, const char *text)
{
    assert_string_equal(self->text, text);
    memset(self->text, 0, sizeof self->text);
    self->length = 0;
}

static void end(world *self)
{
    assert_int_equal(weir_embedded_finish(self->embedded, NULL), 0);
    weir_embedded_free(self->embedded);
}

/* What the listener may do. */

static void act_read(weir_ctx *ctx)
{
    weir_ctx_read(ctx);
}

static void act_close(weir_ctx *ctx)
{
    weir_ctx_close(ctx, NULL);
}

static void act_remove(weir_ctx *ctx)
{
    assert_int_equal(weir_pipeline_remove(weir_ctx_pipeline(ctx), "control", NULL), 0);
}

static void act_remove_all(weir_ctx *ctx)
{
    assert_int_equal(weir_pipeline_remove(weir_ctx_pipeline(ctx), "bytes", NULL), 0);
    assert_int_equal(weir_pipeline_remove(weir_ctx_pipeline(ctx), "control", NULL), 0);
}

static void act_auto(weir_ctx *ctx)
{
    set_auto_read(weir_ctx_channel(ctx), true);
}

static void act_no_auto(weir_ctx *ctx)
{
    set_auto_read(weir_ctx_channel(ctx), false);
}

static void act_upgrade(weir_ctx *ctx)
{
    static const weir_handler_type upgrade = { .name = "upgrade", .is_upgrade = true };
    weir_pipeline_add_first(weir_ctx_pipeline(ctx), NULL, &upgrade, NULL);
}

/* One for each --------------------------------------------------------------------------------- */

static void each_read_is_answered_by_one_message(void **state)
{
    (void)state;
    world self = { 0 };
    weir_embedded *embedded = begin(&self, false);
    ask(&self);
    assert_true(weir_embedded_is_reading(embedded));
    receive(&self, "abcd");
    expect(&self, "a|");
    assert_false(weir_embedded_is_reading(embedded));
    assert_int_equal(self.reads, 1);
    ask(&self);
    expect(&self, "b|");
    ask(&self);
    ask(&self);
    expect(&self, "c|d|");
    assert_false(weir_embedded_is_reading(embedded)); /* as long as there is any */
    assert_int_equal(self.reads, 1);
    ask(&self);
    expect(&self, "");
    assert_int_equal(self.reads, 2);
    assert_true(weir_embedded_is_reading(embedded));
    receive(&self, "e");
    expect(&self, "e|");
    end(&self);
}

/* Several before there is anything are one. */
static void reads_do_not_add_up(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, false);
    for (int i = 0; i < 5; i++)
        ask(&self);
    receive(&self, "abc");
    expect(&self, "a|");
    ask(&self);
    ask(&self);
    expect(&self, "b|c|");
    end(&self);
}

/* What nobody asked for waits as well. */
static void what_nobody_asked_for_waits(void **state)
{
    (void)state;
    world self = { 0 };
    begin(&self, false);
    receive(&self, "abc");
    expect(&self, "");
    ask(&self);
    expect(&self, "a|");
    assert_int_equal(weir_pipeline_remove(weir_embedded_pipeline(self.embedded), "control", NULL),
                     0);
    weir_embedded_run(self.embedded);
    expect(&self, "bc|");
    end(&self);
}

static void with_auto_read_all_passes(void **state)
{
    (void)state;
    world self = { 0 };
    weir_embedded *embedded = begin(&self, true);
    receive(&self, "abc");
    expect(&self, "abc|");
    assert_true(weir_embedded_is_reading(embedded));
    receive(&self, "");
    expect(&self, "|");
    end(&self);
}

static void auto_read_can_be_switched(void **state)
{
    (void)state;
    world self = { .when = 'b', .act = act_no_auto, .times = 1 };
    weir_embedded *embedded = begin(&self, true);
    receive(&self, "abcdef");
    expect(&self, "ab|");
    assert_false(weir_embedded_is_reading(embedded));
    ask(&self);
    expect(&self, "c|");
    assert_false(weir_embedded_is_reading(embedded));
    set_auto_read(weir_embedded_channel(embedded), true);
    weir_embedded_run(embedded);
    expect(&self, "def|");
    assert_true(weir_embedded_is_reading(embedded));
    receive(&self, "g");
    expect(&self, "g|");
    set_auto_read(weir_embedded_channel(embedded), false);
    weir_embedded_run(embedded);
    assert_false(weir_embedded_is_reading(embedded));
    receive(&self, "h");
    expect(&self, "");
    self.when = 'h'; /* in the middle of what waits */
    self.act = act_auto;
    self.times = 1;
    receive(&self, "ijk");
    ask(&self);
    expect(&self, "hijk|");
    assert_true(weir_embedded_is_reading(embedded));
    end(&self);
}

/* Switched off with the last one: nobody wants to read any more. */
static void what_was_asked_by_auto_read_is_forgotten_with_it(void **state)
{
    (void)state;
    world self = { 0 };
    weir_embedded *embedded = begin(&self, false);
    receive(&self, "ab");
    self.when = 'b';
    self.act = act_no_auto;
    self.times = 1;
    set_auto_read(weir_embedded_channel(embedded), true);
    weir_embedded_run(embedded);
    expect(&self, "ab|");
    assert_false(weir_embedded_is_reading(embedded));
    end(&self);
}

/* Re-entrancy ---------------------------------------------------------------------------------- */

static void reads_inside_on_read_are_answered(void **state)
{
    (void)state;
    static const char *const when = "b|";
    for (int i = 0; i < 2; i++) {
        world self = { .when = when[i], .act = act_read, .times = 1 };
        begin(&self, false);
        ask(&self);
        receive(&self, "abcd");
        expect(&self, i == 0 ? "a|" : "a|b|");
        ask(&self);
        expect(&self, i == 0 ? "b|c|" : "c|");
        assert_int_equal(
            weir_pipeline_remove(weir_embedded_pipeline(self.embedded), "control", NULL), 0);
        weir_embedded_run(self.embedded);
        expect(&self, "d|");
        end(&self);
    }
}

static void count_and_read(weir_ctx *ctx)
{
    world *self = weir_ctx_arg(ctx);
    self->length = 0;
    memset(self->text, 0, sizeof self->text);
    weir_ctx_read(ctx);
}

/* However many there are, the stack does not grow with them. */
static void many_reads_inside_on_read_need_no_stack(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    world self = { .when = '|', .act = count_and_read, .times = MANY - 1 };
    begin(&self, false);
    weir_buf *buf = weir_buf_new(MANY);
    assert_int_equal(weir_buf_write_fill(buf, 'x', MANY), 0);
    assert_int_equal(weir_embedded_write_inbound(self.embedded, &buf->msg), 0);
    ask(&self);
    assert_int_equal(self.times, 0);
    expect(&self, "x|");
    assert_int_equal(self.reads, 0);
    end(&self);
}

/* What is handed on in answer to its own end does not come twice, or in another order. */
static void it_may_be_removed_everywhere(void **state)
{
    (void)state;
    static const struct {
        char when;
        bool is_auto;
        void (*act)(weir_ctx *ctx);
    } rows[] = {
        { 'a', false, act_remove },    { 'a', true, act_remove }, { '|', false, act_remove },
        { 'c', true, act_remove },     { '.', true, act_remove }, { 'a', false, act_remove_all },
        { 'b', true, act_remove_all }, { 'a', false, act_close }, { 'b', true, act_close },
        { '|', false, act_close },     { '.', true, act_close },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        world self = { .when = rows[i].when, .act = rows[i].act, .times = 1 };
        begin(&self, rows[i].is_auto);
        if (!rows[i].is_auto)
            ask(&self);
        receive(&self, "abcd");
        weir_embedded_close(self.embedded);
        assert_int_equal(self.times, 0);
        char heard[8] = { 0 };
        size_t count = 0;
        for (size_t at = 0; at < self.length; at++) {
            if (is_message(self.text[at]))
                heard[count++] = self.text[at];
        }
        assert_string_equal(heard, "abcd");
        assert_int_equal(self.text[self.length - 1], '.');
        end(&self);
    }
}

static void act_read_and_remove(weir_ctx *ctx)
{
    weir_ctx_read(ctx);
    act_remove(ctx);
}

/* A read that it has not passed on yet is not lost with it. */
static void who_is_removed_passes_the_read_on(void **state)
{
    (void)state;
    world self = { .when = 'a', .act = act_read_and_remove, .times = 1 };
    begin(&self, false);
    ask(&self);
    receive(&self, "a");
    assert_true(weir_embedded_is_reading(self.embedded));
    receive(&self, "b");
    expect(&self, "a||b|"); /* the batch goes on without it, and ends once more */
    end(&self);
}

/* Ends ----------------------------------------------------------------------------------------- */

static void the_end_of_the_input_comes_behind_what_waits(void **state)
{
    (void)state;
    world self = { 0 };
    weir_embedded *embedded = begin(&self, false);
    weir_channel_set_option(weir_embedded_channel(embedded), WEIR_OPTION_ALLOW_HALF_CLOSURE, 1,
                            NULL);
    ask(&self);
    receive(&self, "abc");
    weir_embedded_end_inbound(embedded, 0);
    expect(&self, "a|");
    ask(&self);
    expect(&self, "b|");
    ask(&self);
    expect(&self, "c|#");
    weir_embedded_close(embedded);
    expect(&self, ".");
    end(&self);
}

static void what_waits_at_the_close_is_not_lost(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        world self = { 0 };
        weir_embedded *embedded = begin(&self, false);
        ask(&self);
        receive(&self, "abc");
        expect(&self, "a|");
        if (i == 0)
            weir_embedded_end_inbound(embedded, 0);
        else
            weir_embedded_close(embedded);
        weir_embedded_run(embedded);
        expect(&self, "bc|.");
        end(&self);
    }
}

/* As STARTTLS does: the handler that asks for it receives nothing from before. */
static void upgrade_inside_on_read_fails_while_messages_wait(void **state)
{
    (void)state;
    static const struct {
        const char *input, *heard;
    } rows[] = { { "a", "a|" }, { "ab", "a!|." }, { "abcd", "a!|." } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        world self = { .when = 'a', .act = act_upgrade, .times = 1 };
        weir_embedded *embedded = begin(&self, false);
        ask(&self);
        receive(&self, rows[i].input);
        ask(&self);
        expect(&self, rows[i].heard);
        assert_int_equal(weir_channel_is_open(weir_embedded_channel(embedded)), i == 0);
        end(&self);
    }
}

/* It is this handler that holds them: the decoder before it has nothing left by then. */
static void upgrade_fails_while_messages_wait(void **state)
{
    (void)state;
    static const weir_handler_type upgrade = { .name = "upgrade", .is_upgrade = true };
    static const char *const messages[] = {
        NULL, "'upgrade' cannot be added: 'control' holds 1 bytes or messages from before it",
        "'upgrade' cannot be added: 'control' holds 3 bytes or messages from before it"
    };
    static const char *const inputs[] = { "a", "ab", "abcd" };
    for (size_t i = 0; i < COUNT(inputs); i++) {
        world self = { 0 };
        weir_embedded *embedded = begin(&self, false);
        weir_channel *channel = weir_embedded_channel(embedded);
        ask(&self);
        receive(&self, inputs[i]);
        expect(&self, "a|");
        assert_int_equal(
            weir_pipeline_add_first(weir_embedded_pipeline(embedded), NULL, &upgrade, NULL), 0);
        weir_embedded_run(embedded);
        expect(&self, i == 0 ? "" : "!|.");
        assert_int_equal(weir_channel_is_open(channel), i == 0);
        if (i > 0) {
            assert_int_equal(self.error.code, WEIR_EHELD);
            assert_string_equal(self.error.origin, "pipeline");
            assert_string_equal(self.error.message, messages[i]);
        }
        end(&self);
    }
}

static void every_call_may_fail_once(void **state)
{
    (void)state;
    for (unsigned nth = 1, seen = 1; seen >= nth - 1; nth++) { /* until it fails no more */
        world self = { 0 };
        weir_embedded *embedded = begin(&self, false);
        weir_buf *buf = weir_buf_from("abcdefghijklmnopqrstuvwxyz", 26);
        ask(&self);
        harness_fail_nth("alloc", nth, -ENOMEM);
        weir_embedded_write_inbound(embedded, &buf->msg);
        seen = harness_fail_end();
        for (int i = 0; i < 26; i++)
            ask(&self);
        weir_embedded_close(embedded);
        char last = 'a' - 1;
        for (size_t i = 0; i < self.length; i++) {
            if (is_message(self.text[i]))
                assert_int_equal(self.text[i], ++last);
        }
        assert_true(last == 'z' || strchr(self.text, '!') != NULL);
        weir_embedded_free(embedded);
    }
}

static void it_can_have_an_executor_of_its_own(void **state)
{
    (void)state;
    world self = { .group = new_group_of(1), .when = '|', .act = act_read, .times = 100 };
    weir_embedded *embedded = begin(&self, false);
    ask(&self);
    receive(&self, "abcdefgh");
    WAIT_FOR_STEPPING(strchr(self.text, 'h') != NULL, weir_embedded_run(embedded));
    for (int i = 0; i < 8; i++)
        assert_int_equal(self.text[2 * i], 'a' + i);
    weir_embedded_free(embedded);
    end_group(self.group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(each_read_is_answered_by_one_message),
        weir_case(reads_do_not_add_up),
        weir_case(what_nobody_asked_for_waits),
        weir_case(with_auto_read_all_passes),
        weir_case(auto_read_can_be_switched),
        weir_case(what_was_asked_by_auto_read_is_forgotten_with_it),
        weir_case(reads_inside_on_read_are_answered),
        weir_case(many_reads_inside_on_read_need_no_stack),
        weir_case(it_may_be_removed_everywhere),
        weir_case(who_is_removed_passes_the_read_on),
        weir_case(the_end_of_the_input_comes_behind_what_waits),
        weir_case(what_waits_at_the_close_is_not_lost),
        weir_case(upgrade_inside_on_read_fails_while_messages_wait),
        weir_case(upgrade_fails_while_messages_wait),
        weir_case(every_call_may_fail_once),
        weir_case(it_can_have_an_executor_of_its_own),
    };
    return cmocka_run_group_tests_name("handler.flow_control", tests, NULL, NULL);
}
