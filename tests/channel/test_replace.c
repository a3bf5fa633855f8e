/* SPDX-License-Identifier: MIT */
/* Replacing a handler by one whose `added` fails: on the loop the old one stays; where `added` runs
 * later, the old one is gone by then, so the channel closes. */
#include "channel/spy.h"

enum { ON_THE_LOOP, OFFLOADED, UNREGISTERED, PLACES };

typedef struct replacing {
    int place;
    bool has_promise, fails;
    weir_embedded *embedded;
    weir_group *executors;
    weir_promise *promise;
    spy_act failure;
    int code; /* of the add */
} replacing;

static int replace(void *arg)
{
    replacing *self = arg;
    weir_handler_config config = { .type = &spy, .name = "new", .base = "guard" };
    config.place = WEIR_PLACE_INSTEAD_OF;
    config.arg = self->fails ? &self->failure : NULL;
    config.group = self->place == OFFLOADED ? self->executors : NULL;
    config.promise = self->promise;
    self->code = weir_pipeline_add(weir_embedded_pipeline(self->embedded), &config, NULL);
    return 0;
}

/* Until neither the loop nor the executor has anything left to do. */
static void run_all(replacing *self)
{
    weir_embedded_run(self->embedded);
    while (weir_group_step(self->executors) > 0)
        weir_embedded_run(self->embedded);
}

static void begin(replacing *self)
{
    spy_entry entries[] = { { "guard", &spy, NULL }, { "last", &spy_reads, NULL }, { 0 } };
    self->failure = (spy_act){ "added", fail_eio, false, false };
    self->executors = open_executors(true);
    bool is_early = self->place == UNREGISTERED;
    self->embedded = is_early ? spy_open_unregistered(entries) : spy_open(entries);
    weir_channel *channel = weir_embedded_channel(self->embedded);
    self->promise = self->has_promise ? weir_channel_promise(channel) : NULL;
    spy_forget();
    if (is_early)
        replace(self);
    if (is_early)
        spy_register(self->embedded);
    else
        weir_embedded_call(self->embedded, replace, self);
    run_all(self);
}

static void end(replacing *self)
{
    weir_embedded_close(self->embedded);
    run_all(self);
    weir_embedded_free(self->embedded);
    weir_promise_release(self->promise);
    weir_group_shutdown(self->executors, 0, 0);
    weir_group_free(self->executors);
    spy_forget();
}

static bool saw(const char *event)
{
    return strstr(spy_trace, event) != NULL;
}

static void expect_outcome(const replacing *self, int code)
{
    if (self->has_promise)
        assert_int_equal(weir_future_code(weir_promise_future(self->promise)), code);
}

/* A message that is received now. */
static void feed(replacing *self)
{
    spy_forget();
    weir_embedded_write_inbound(self->embedded, spy_text("hello"));
    run_all(self);
}

static void expect_closed(replacing *self)
{
    assert_int_equal(self->code, 0); /* `added` has not run yet */
    expect_outcome(self, -EIO);
    assert_false(weir_channel_is_open(weir_embedded_channel(self->embedded)));
    assert_true(saw("new.added"));
    assert_true(saw("new.removed"));
    assert_false(saw("last.on_read"));
    spy_expect_error(self->embedded, -EIO, "new");
}

static void failed_replacement_that_is_added_later_closes_the_channel(void **state)
{
    (void)state;
    for (int place = OFFLOADED; place < PLACES; place++) {
        for (int has_promise = 0; has_promise < 2; has_promise++) {
            replacing self = { .place = place, .has_promise = has_promise, .fails = true };
            begin(&self);
            expect_closed(&self);
            end(&self);
        }
    }
}

static void failed_replacement_on_the_loop_leaves_the_old_handler(void **state)
{
    (void)state;
    for (int has_promise = 0; has_promise < 2; has_promise++) {
        replacing self = { .has_promise = has_promise, .fails = true };
        begin(&self);
        assert_int_equal(self.code, -EIO);
        expect_outcome(&self, -EIO);
        assert_true(weir_channel_is_open(weir_embedded_channel(self.embedded)));
        assert_false(saw("guard.removed"));
        spy_expect_error(self.embedded, -EIO, "new");
        spy_expect_names(weir_embedded_pipeline(self.embedded), "guard, last");
        feed(&self);
        assert_true(saw("guard.on_read"));
        end(&self);
    }
}

static void replacement_takes_the_place_of_the_old_handler(void **state)
{
    (void)state;
    for (int place = ON_THE_LOOP; place < PLACES; place++) {
        for (int has_promise = 0; has_promise < 2; has_promise++) {
            replacing self = { .place = place, .has_promise = has_promise };
            begin(&self);
            assert_int_equal(self.code, 0);
            expect_outcome(&self, 0);
            assert_true(weir_channel_is_open(weir_embedded_channel(self.embedded)));
            spy_expect_names(weir_embedded_pipeline(self.embedded), "new, last");
            feed(&self);
            assert_false(saw("guard.on_read"));
            assert_true(saw("new.on_read"));
            assert_true(saw("last.on_read"));
            end(&self);
        }
    }
}

/* An add that replaces nothing: with a promise it is the caller's to decide. */
static int add_failing(void *arg)
{
    replacing *self = arg;
    weir_handler_config config = { .type = &spy, .name = "late", .arg = &self->failure };
    config.place = WEIR_PLACE_LAST;
    config.group = self->executors;
    config.promise = self->promise;
    return weir_pipeline_add(weir_embedded_pipeline(self->embedded), &config, NULL);
}

static void failed_add_after_a_replacement_leaves_the_channel_open(void **state)
{
    (void)state;
    replacing self = { .place = OFFLOADED };
    begin(&self);
    self.promise = weir_channel_promise(weir_embedded_channel(self.embedded));
    assert_int_equal(weir_embedded_call(self.embedded, add_failing, &self), 0);
    run_all(&self);
    assert_int_equal(weir_future_code(weir_promise_future(self.promise)), -EIO);
    assert_true(weir_channel_is_open(weir_embedded_channel(self.embedded)));
    spy_expect_error(self.embedded, -EIO, "late");
    end(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(failed_replacement_that_is_added_later_closes_the_channel),
        weir_case(failed_replacement_on_the_loop_leaves_the_old_handler),
        weir_case(replacement_takes_the_place_of_the_old_handler),
        weir_case(failed_add_after_a_replacement_leaves_the_channel_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
