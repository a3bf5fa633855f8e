/* SPDX-License-Identifier: MIT */
/* The life of a channel: every event in every state, and what handlers are notified of. */
#include "channel/stub.h"

#include "channel/lifecycle.h"

/* The table ------------------------------------------------------------------------------------ */

enum { STATES = WEIR_LIFE_ENDED + 1 };

static void expect_step(weir_life_state from, weir_life_event event, int code, weir_life_state to)
{
    _Atomic(uint8_t) state = (uint8_t)from;
    assert_int_equal(weir__life_step(&state, event), code);
    assert_int_equal(weir__life_state(&state), to);
}

/* The steps that lead to another state. */
static const struct {
    weir_life_state from;
    weir_life_event event;
    weir_life_state to;
} steps[] = {
    { WEIR_LIFE_DETACHED, WEIR_LIFE_ATTACH, WEIR_LIFE_ATTACHING },
    { WEIR_LIFE_ATTACHING, WEIR_LIFE_ARRIVE, WEIR_LIFE_ATTACHED },
    { WEIR_LIFE_ATTACHED, WEIR_LIFE_DETACH, WEIR_LIFE_DETACHING },
    { WEIR_LIFE_DETACHING, WEIR_LIFE_LEAVE, WEIR_LIFE_DETACHED },
    { WEIR_LIFE_DETACHED, WEIR_LIFE_CLOSE, WEIR_LIFE_CLOSING },
    { WEIR_LIFE_ATTACHING, WEIR_LIFE_CLOSE, WEIR_LIFE_CLOSING },
    { WEIR_LIFE_ATTACHED, WEIR_LIFE_CLOSE, WEIR_LIFE_CLOSING },
    { WEIR_LIFE_DETACHING, WEIR_LIFE_CLOSE, WEIR_LIFE_CLOSING },
    { WEIR_LIFE_CLOSING, WEIR_LIFE_STOP, WEIR_LIFE_CLOSED },
    { WEIR_LIFE_CLOSED, WEIR_LIFE_END, WEIR_LIFE_ENDED },
};

/* Why all others fail. */
static int expected_code(weir_life_state from, weir_life_event event)
{
    bool is_closing = from >= WEIR_LIFE_CLOSING;
    switch (event) {
    case WEIR_LIFE_ATTACH:
        return is_closing ? WEIR_ECLOSED : WEIR_EREGISTERED;
    case WEIR_LIFE_DETACH:
        return is_closing ? WEIR_ECLOSED : -EALREADY;
    case WEIR_LIFE_CLOSE:
        return -EALREADY;
    case WEIR_LIFE_ARRIVE:
    case WEIR_LIFE_LEAVE:
        return is_closing ? WEIR_ECLOSED : -EINVAL;
    default:
        return -EINVAL;
    }
}

static void every_event_in_every_state_has_its_step(void **state)
{
    (void)state;
    for (int from = 0; from < STATES; from++) {
        for (int event = 0; event < WEIR_LIFE_EVENTS; event++) {
            int code = expected_code((weir_life_state)from, (weir_life_event)event), to = from;
            for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
                if ((int)steps[i].from == from && (int)steps[i].event == event) {
                    code = 0;
                    to = (int)steps[i].to;
                }
            }
            expect_step((weir_life_state)from, (weir_life_event)event, code, (weir_life_state)to);
        }
    }
}

/* Walks ---------------------------------------------------------------------------------------- */

typedef struct walker {
    stub *stub;
    const char *at;
} walker;

static void take(stub *self, char letter)
{
    weir_channel *channel = &self->base;
    switch (letter) {
    case 'r':
        weir_channel_register(channel, weir_executor_current(), NULL);
        break;
    case 'a':
        self->is_connected = true;
        weir__channel_activate(channel);
        break;
    case 'd':
        weir__channel_deregister_now(channel, NULL);
        break;
    case 'c':
        self->is_busy = true;
        weir__channel_close_now(channel, NULL);
        break;
    default:
        stub_become_quiet(self);
        break;
    }
}

static int take_until_told(void *arg)
{
    walker *self = arg;
    while (*self->at != '\0' && *self->at != 't')
        take(self->stub, *self->at++);
    return 0;
}

/* Takes the steps r(egister), a(ctivate), d(eregister), c(lose begins) and C(losed); at each t the
 * callback returns, and the handler is notified. */
static void walk(const char *path, const char *expected)
{
    story to = STORY;
    weir_embedded *e = open_embedded(NULL);
    walker self = { .stub = new_stub(&to, NULL), .at = path };
    self.stub->is_connected = false;
    while (*self.at != '\0') {
        weir_embedded_call(e, take_until_told, &self);
        weir_embedded_run(e);
        self.at += *self.at == 't';
    }
    story_is(&to, expected);
    self.at = "C";
    weir_channel_close(&self.stub->base, NULL);
    weir_embedded_run(e);
    weir_embedded_call(e, take_until_told, &self);
    weir_embedded_run(e);
    weir_channel_release(&self.stub->base);
    weir_embedded_free(e);
}

static void channel_without_a_loop_fires_nothing(void **state)
{
    (void)state;
    walk("t", "");
    walk("ct", "removed");
}

static void attaching_fires_registered_then_active_once(void **state)
{
    (void)state;
    walk("rt", "added registered");
    walk("rat", "added registered active");
    walk("rtat", "added registered active");
    walk("rattt", "added registered active");
}

static void closing_fires_nothing_before_it_is_closed(void **state)
{
    (void)state;
    walk("rct", "added");
    walk("ract", "added");
    walk("ratct", "added registered active");
}

static void closed_channel_fires_the_counterparts_of_what_was_fired(void **state)
{
    (void)state;
    walk("rcCt", "added removed");
    walk("rtcCt", "added registered unregistered removed");
    walk("racCt", "added removed");
    walk("rtacCt", "added registered unregistered removed");
    walk("ratcCt", "added registered active inactive unregistered removed");
    walk("ratcCttt", "added registered active inactive unregistered removed");
}

static void active_channel_does_not_fire_active_again_on_its_next_loop(void **state)
{
    (void)state;
    walk("ratdt", "added registered active unregistered");
    walk("ratdtrt", "added registered active unregistered registered");
    walk("ratdtrtdtrt", "added registered active unregistered registered unregistered registered");
}

static void channel_that_left_before_it_was_active_fires_it_on_the_next_loop(void **state)
{
    (void)state;
    walk("rtdtrat", "added registered unregistered registered active");
    walk("rdtrat", "added registered active");
    walk("radtrat", "added registered active");
}

static void closing_between_two_loops_fires_the_end(void **state)
{
    (void)state;
    walk("ratdtcCt", "added registered active unregistered inactive removed");
    walk("rtdtcCt", "added registered unregistered removed");
    walk("ratdtrcCt", "added registered active unregistered inactive removed");
    walk("ratdtrtcCt",
         "added registered active unregistered registered inactive unregistered removed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(every_event_in_every_state_has_its_step),
        weir_case(channel_without_a_loop_fires_nothing),
        weir_case(attaching_fires_registered_then_active_once),
        weir_case(closing_fires_nothing_before_it_is_closed),
        weir_case(closed_channel_fires_the_counterparts_of_what_was_fired),
        weir_case(active_channel_does_not_fire_active_again_on_its_next_loop),
        weir_case(channel_that_left_before_it_was_active_fires_it_on_the_next_loop),
        weir_case(closing_between_two_loops_fires_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
