/* SPDX-License-Identifier: MIT */
/* Pipelines: names, every change to the list, message types, a hundred thousand handlers, faults.
 */
#include "spy.h"

#include <pthread.h>

/* Changes -------------------------------------------------------------------------------------- */

static void handlers_are_added_where_asked(void **state)
{
    (void)state;
    spy_entry entries[] = { { "m", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_first(pipeline, "f", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "l", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_before(pipeline, "m", "mb", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_after(pipeline, "m", "ma", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_before(pipeline, "f", "fb", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_after(pipeline, "l", "la", &spy, NULL), 0);
    spy_expect_names(pipeline, "fb, f, mb, m, ma, l, la");
    assert_int_equal(weir_pipeline_count(pipeline), 7);
    assert_int_equal(weir_pipeline_remove(pipeline, "m", NULL), 0);
    assert_int_equal(weir_pipeline_add_after(pipeline, "mb", "m", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_remove(pipeline, "fb", NULL), 0);
    assert_int_equal(weir_pipeline_remove(pipeline, "la", NULL), 0);
    assert_int_equal(weir_pipeline_remove(pipeline, "la", NULL), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_add_first(pipeline, "1", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "9", &spy, NULL), 0);
    spy_expect_names(pipeline, "1, f, mb, m, ma, l, 9");
    assert_trace("m.removed fb.removed la.removed");
    spy_register(embedded);
    spy_forget();
    weir_pipeline_fire_event(pipeline, spy_text("x"));
    weir_embedded_run(embedded);
    assert_trace("1.on_event f.on_event mb.on_event m.on_event ma.on_event l.on_event 9.on_event");
    spy_end(embedded);
}

static void whoever_names_no_place_is_last(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    weir_handler_config config = { .type = &spy, .name = "b" };
    assert_int_equal(weir_pipeline_add(pipeline, &config, NULL), 0);
    config = (weir_handler_config){ .type = &spy, .name = "f", .place = WEIR_PLACE_FIRST };
    assert_int_equal(weir_pipeline_add(pipeline, &config, NULL), 0);
    spy_expect_names(pipeline, "f, a, b");
    spy_end(embedded);
}

static void names_are_checked(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { "b", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_first(pipeline, "a", &spy, NULL), -EEXIST);
    assert_int_equal(weir_pipeline_add_last(pipeline, "a", &spy_reads, NULL), -EEXIST);
    assert_int_equal(weir_pipeline_add_before(pipeline, "b", "a", &spy, NULL), -EEXIST);
    assert_int_equal(weir_pipeline_add_after(pipeline, "b", "b", &spy, NULL), -EEXIST);
    assert_int_equal(weir_pipeline_replace(pipeline, "a", "b", &spy, NULL), -EEXIST);
    const char *const bad[] = { "", "#", "x#1", "#x" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(weir_pipeline_add_first(pipeline, bad[i], &spy, NULL), -EINVAL);
        assert_int_equal(weir_pipeline_replace(pipeline, "a", bad[i], &spy, NULL), -EINVAL);
    }
    assert_int_equal(weir_pipeline_add_before(pipeline, "c", "x", &spy, NULL), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_add_after(pipeline, "", "x", &spy, NULL), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_replace(pipeline, "c", "x", &spy, NULL), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_remove(pipeline, "c", NULL), WEIR_ENOTFOUND);
    spy_expect_names(pipeline, "a, b");
    /* A name is free again when its handler has gone. */
    assert_int_equal(weir_pipeline_remove(pipeline, "a", NULL), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "a", &spy, NULL), 0);
    spy_expect_names(pipeline, "b, a");
    spy_end(embedded);
}

static void null_is_refused_everywhere(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
    static const weir_handler_type nameless = { .added = spy_added };
    weir_handler_config config = { .type = &spy, .place = WEIR_PLACE_BEFORE };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add(NULL, &config, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_add(pipeline, NULL, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_add(pipeline, &config, NULL), -EINVAL);
    config.place = (weir_place)77;
    config.base = "a";
    assert_int_equal(weir_pipeline_add(pipeline, &config, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_add_first(NULL, "x", &spy, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_add_first(pipeline, "x", NULL, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_add_last(pipeline, "x", &nameless, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_add_before(pipeline, NULL, "x", &spy, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_add_after(pipeline, NULL, "x", &spy, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_remove(NULL, "a", NULL), -EINVAL);
    assert_int_equal(weir_pipeline_remove(pipeline, NULL, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_replace(NULL, "a", "x", &spy, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_replace(pipeline, NULL, "x", &spy, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_replace(pipeline, "a", "x", NULL, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_find(NULL, "a", NULL), -EINVAL);
    assert_int_equal(weir_pipeline_find(pipeline, NULL, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_find_type(NULL, &spy, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_find_type(pipeline, NULL, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_at(NULL, 0, NULL), -EINVAL);
    assert_int_equal(weir_pipeline_count(NULL), 0);
    assert_int_equal(weir_pipeline_names(NULL, NULL, 0), 0);
    assert_null(weir_pipeline_ctx(NULL, "a"));
    assert_null(weir_pipeline_ctx(pipeline, NULL));
    assert_null(weir_pipeline_channel(NULL));
    assert_null(weir_channel_pipeline(NULL));
    assert_int_equal(weir_ctx_remove(NULL), -EINVAL);
    weir_pipeline_fire_event(NULL, spy_text("x"));
    weir_pipeline_fire_event(pipeline, NULL);
    weir_pipeline_fire_read(NULL, spy_text("x"));
    weir_pipeline_fire_read_complete(NULL);
    weir_pipeline_fire_error(NULL, -EIO, "x");
    spy_expect_names(pipeline, "a");
    spy_end(embedded);
}

static void expect_words(weir_pipeline *pipeline, weir_handler_config config, int code,
                         const char *words)
{
    weir_error error = { .code = 0 };
    assert_int_equal(weir_pipeline_add(pipeline, &config, &error), code);
    assert_int_equal(error.code, code);
    assert_string_equal(error.origin, "pipeline");
    assert_non_null(strstr(error.message, words));
}

static void errors_name_what_is_wrong(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    weir_handler_config config = { .type = &spy, .name = "a" };
    expect_words(pipeline, config, -EEXIST, "'a'");
    config.name = "x#y";
    expect_words(pipeline, config, -EINVAL, "'x#y'");
    config.name = "x";
    config.place = WEIR_PLACE_AFTER;
    expect_words(pipeline, config, -EINVAL, "'spy'");
    config.base = "nobody";
    expect_words(pipeline, config, WEIR_ENOTFOUND, "'nobody'");
    config.base = "a";
    weir_embedded_close(embedded);
    expect_words(pipeline, config, WEIR_ECLOSED, "closed");
    spy_end(embedded);
}

static void names_that_weir_gives_are_unique(void **state)
{
    (void)state;
    static const spy_entry entries[] = {
        { NULL, &spy, NULL }, { NULL, &spy_reads, NULL }, { NULL, &spy, NULL }, { 0 }
    };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    spy_expect_names(pipeline, "spy#0, reads#1, spy#2");
    assert_int_equal(weir_pipeline_remove(pipeline, "spy#0", NULL), 0);
    assert_int_equal(weir_pipeline_add_first(pipeline, NULL, &spy, NULL), 0);
    assert_int_equal(weir_pipeline_replace(pipeline, "spy#2", NULL, &spy_writes, NULL), 0);
    spy_expect_names(pipeline, "spy#3, reads#1, writes#4");
    spy_end(embedded);
}

static void handlers_can_be_found(void **state)
{
    (void)state;
    int arg;
    char longest[101];
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    spy_entry entries[] = {
        { "a", &spy_writes, NULL }, { "b", &spy_reads, &arg }, { longest, &spy_reads, NULL }, { 0 }
    };
    weir_handler_info info;
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_find(pipeline, "b", &info), 0);
    assert_ptr_equal(info.type, &spy_reads);
    assert_ptr_equal(info.arg, &arg);
    assert_null(info.executor);
    assert_string_equal(info.name, "b");
    spy_register(embedded);
    assert_int_equal(weir_pipeline_find_type(pipeline, &spy_reads, &info), 0);
    assert_string_equal(info.name, "b");
    assert_ptr_equal(info.executor, weir_embedded_executor(embedded));
    assert_int_equal(weir_pipeline_find_type(pipeline, &spy_errors, &info), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_at(pipeline, 0, &info), 0);
    assert_string_equal(info.name, "a");
    assert_int_equal(weir_pipeline_at(pipeline, 2, &info), 0);
    assert_int_equal(strlen(info.name), sizeof info.name - 1);
    assert_memory_equal(info.name, longest, sizeof info.name - 1);
    assert_int_equal(weir_pipeline_at(pipeline, 3, &info), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_at(pipeline, SIZE_MAX, &info), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_find(pipeline, longest, NULL), 0);
    assert_int_equal(weir_pipeline_at(pipeline, 1, NULL), 0);
    assert_ptr_equal(weir_pipeline_channel(pipeline), weir_embedded_channel(embedded));
    spy_end(embedded);
}

static void names_are_cut_at_every_size(void **state)
{
    (void)state;
    spy_entry entries[] = {
        { "one", &spy, NULL }, { "2", &spy, NULL }, { "three", &spy, NULL }, { 0 }
    };
    static const char all[] = "one, 2, three";
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_names(pipeline, NULL, 0), sizeof all - 1);
    for (size_t size = 1; size < sizeof all + 2; size++) {
        char *to = malloc(size); /* so that a byte too many is seen */
        assert_non_null(to);
        assert_int_equal(weir_pipeline_names(pipeline, to, size), sizeof all - 1);
        size_t length = size < sizeof all ? size - 1 : sizeof all - 1;
        assert_int_equal(strlen(to), length);
        assert_memory_equal(to, all, length);
        free(to);
    }
    spy_end(embedded);
}

static int replace_by_the_same_name(void *arg)
{
    weir_pipeline *pipeline = weir_embedded_pipeline(arg);
    weir_ctx *ctx = weir_pipeline_ctx(pipeline, "b");
    assert_string_equal(weir_ctx_name(ctx), "b");
    assert_int_equal(weir_pipeline_replace(pipeline, "b", "b", &spy, NULL), 0);
    assert_true(weir_ctx_is_removed(ctx));
    assert_true(weir_pipeline_ctx(pipeline, "b") != ctx);
    assert_int_equal(weir_ctx_remove(ctx), WEIR_ENOTFOUND);
    assert_int_equal(weir_pipeline_replace(pipeline, "a", NULL, &spy, NULL), 0);
    return 0;
}

static void replacing_adds_then_removes(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { "b", &spy, NULL }, { "c", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    assert_int_equal(spy_call(embedded, replace_by_the_same_name), 0);
    assert_trace("b.added b.removed spy#5.added a.removed");
    spy_expect_names(weir_embedded_pipeline(embedded), "spy#5, b, c");
    weir_pipeline_fire_event(weir_embedded_pipeline(embedded), spy_text("x"));
    weir_embedded_run(embedded);
    assert_trace("spy#5.on_event b.on_event c.on_event");
    spy_end(embedded);
}

/* From another thread than the loop's ---------------------------------------------------------- */

/* From outside, so the result comes later. */
static weir_promise *add_with_promise(weir_embedded *embedded, const char *name,
                                      const weir_handler_type *type)
{
    weir_promise *promise = weir_channel_promise(weir_embedded_channel(embedded));
    weir_handler_config config = { .type = type, .name = name, .promise = promise };
    assert_int_equal(weir_pipeline_add(weir_embedded_pipeline(embedded), &config, NULL), 0);
    return promise;
}

static void expect_result(weir_promise *promise, int code)
{
    assert_int_equal(weir_future_code(weir_promise_future(promise)), code);
    weir_promise_release(promise);
}

static weir_promise *remove_with_promise(weir_embedded *embedded, const char *name)
{
    weir_promise *promise = weir_channel_promise(weir_embedded_channel(embedded));
    assert_int_equal(weir_pipeline_remove(weir_embedded_pipeline(embedded), name, promise), 0);
    return promise;
}

/* The case's thread is not the loop's while that stands still. */
static void edits_from_outside_report_by_promise(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    weir_promise *added = add_with_promise(embedded, "b", &spy_reads);
    weir_promise *twin = add_with_promise(embedded, "b", &spy);
    weir_promise *removed = remove_with_promise(embedded, "a");
    weir_promise *missing = remove_with_promise(embedded, "a");
    assert_trace("");
    spy_expect_names(weir_embedded_pipeline(embedded), "a");
    weir_embedded_run(embedded);
    assert_trace("b.removed a.removed");
    expect_result(added, 0);
    expect_result(twin, -EEXIST);
    expect_result(removed, 0);
    expect_result(missing, WEIR_ENOTFOUND);
    spy_expect_names(weir_embedded_pipeline(embedded), "b");
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    spy_end(embedded);
}

typedef struct looker {
    weir_pipeline *pipeline;
    size_t count, length;
    int found;
} looker;

static void *look_from_there(void *arg)
{
    looker *self = arg;
    char names[8];
    self->count = weir_pipeline_count(self->pipeline);
    self->length = weir_pipeline_names(self->pipeline, names, sizeof names);
    self->found = weir_pipeline_find(self->pipeline, "a", NULL);
    if (weir_pipeline_at(self->pipeline, 0, NULL) != self->found ||
        weir_pipeline_find_type(self->pipeline, &spy, NULL) != self->found)
        self->found = 1;
    return NULL;
}

static void looking_is_rejected_on_another_thread(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    looker self = { .pipeline = weir_embedded_pipeline(embedded), .count = 1, .length = 1 };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look_from_there, &self), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(self.found, -EPERM);
    assert_int_equal(self.count, 0);
    assert_int_equal(self.length, 0);
    spy_end(embedded);
}

static void changes_from_outside_keep_their_order(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { "z", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    /* The base goes when the new one has its place beside it. */
    assert_int_equal(weir_pipeline_add_after(pipeline, "a", "b", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_remove(pipeline, "a", NULL), 0);
    assert_int_equal(weir_pipeline_add_before(pipeline, "z", "y", &spy, NULL), 0);
    assert_int_equal(weir_embedded_run(embedded), 0);
    assert_int_equal(weir_embedded_check(embedded), 0);
    assert_trace("b.added a.removed y.added");
    spy_expect_names(pipeline, "b, y, z");
    spy_end(embedded);
}

typedef struct adding {
    weir_pipeline *pipeline;
    weir_handler_config config;
} adding;

static int add_here(void *arg)
{
    const adding *self = arg;
    return weir_pipeline_add(self->pipeline, &self->config, NULL);
}

/* On the loop. */
static int spy_add(weir_embedded *embedded, weir_place place, const char *base, const char *name,
                   const weir_handler_type *type, void *arg)
{
    adding self = { .pipeline = weir_embedded_pipeline(embedded) };
    self.config = (weir_handler_config){ .type = type, .name = name, .arg = arg, .place = place };
    self.config.base = base;
    return weir_embedded_call(embedded, add_here, &self);
}

static size_t holder_held(const weir_ctx *ctx)
{
    return *(const size_t *)weir_ctx_arg(ctx);
}

static const weir_handler_type holder = { .name = "holder", .held_reads = holder_held };
static const weir_handler_type upgrade = { .name = "upgrade", .is_upgrade = true, SPY_MOST };

/* Only those after it are asked, only for an active channel, and not if it replaces another. */
static void upgrade_fails_while_a_later_handler_holds_reads(void **state)
{
    (void)state;
    size_t none = 0, some = 3;
    spy_entry entries[] = {
        { "u", &upgrade, NULL }, { "h", &holder, &some }, { "a", &spy, NULL }, { 0 }
    };
    weir_embedded *embedded = spy_open(entries); /* nothing was received before */
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    spy_forget();
    assert_int_equal(spy_add(embedded, WEIR_PLACE_AFTER, "h", "after", &upgrade, NULL), 0);
    assert_int_equal(spy_add(embedded, WEIR_PLACE_INSTEAD_OF, "u", "v", &upgrade, NULL), 0);
    assert_trace("after.added v.added u.removed");
    assert_int_equal(spy_add(embedded, WEIR_PLACE_INSTEAD_OF, "h", "i", &holder, &none), 0);
    assert_int_equal(spy_add(embedded, WEIR_PLACE_FIRST, NULL, "w", &upgrade, NULL), 0);
    spy_expect_names(pipeline, "w, v, i, after, a");
    spy_forget();
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    assert_int_equal(spy_add(embedded, WEIR_PLACE_INSTEAD_OF, "i", "h", &holder, &some), 0);
    assert_int_equal(spy_add(embedded, WEIR_PLACE_FIRST, NULL, "x", &upgrade, NULL), WEIR_EHELD);
    spy_expect_error(embedded, WEIR_EHELD, "pipeline");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    spy_end(embedded);
}

/* Between two loops, too. */
static void upgrade_of_a_moving_channel_asks_the_later_handlers(void **state)
{
    (void)state;
    size_t some = 1;
    spy_entry entries[] = { { "h", &holder, &some }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_channel_deregister(channel, NULL);
    weir_embedded_run(embedded);
    assert_int_equal(spy_add(embedded, WEIR_PLACE_FIRST, NULL, "u", &upgrade, NULL), WEIR_EHELD);
    weir_embedded_run(embedded);
    assert_false(weir_channel_is_open(channel));
    weir_embedded_take_error(embedded, NULL);
    spy_end(embedded);
}

/* The add was made from another thread: the promise has the code, and the channel closes. */
static void failed_upgrade_from_outside_fails_its_promise_and_closes(void **state)
{
    (void)state;
    size_t some = 1;
    spy_entry entries[] = { { "h", &holder, &some }, { "a", &spy_reads, NULL }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_promise *promise = weir_channel_promise(channel);
    weir_handler_config config = { .type = &upgrade, .name = "u", .promise = promise };
    config.place = WEIR_PLACE_FIRST;
    spy_forget();
    assert_int_equal(weir_pipeline_add(weir_embedded_pipeline(embedded), &config, NULL), 0);
    weir_embedded_write_inbound(embedded, spy_text("from before"));
    assert_int_equal(weir_future_code(weir_promise_future(promise)), WEIR_EHELD);
    weir_promise_release(promise);
    assert_false(weir_channel_is_open(channel));
    assert_trace("u.removed"); /* and "a" has read nothing */
    spy_expect_error(embedded, WEIR_EHELD, "pipeline");
    spy_end(embedded);
}

static void replacing_from_outside(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { "b", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    weir_pipeline_fire_event(pipeline, spy_text("before"));
    assert_int_equal(weir_pipeline_replace(pipeline, "a", "n", &spy, NULL), 0);
    weir_pipeline_fire_event(pipeline, spy_text("after"));
    weir_embedded_run(embedded);
    assert_trace("a.on_event b.on_event n.added a.removed n.on_event b.on_event");
    spy_expect_names(pipeline, "n, b");
    spy_end(embedded);
}

static void failed_removal_of_one_on_its_way_changes_nothing(void **state)
{
    (void)state;
    weir_embedded *embedded = spy_open(no_handlers);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_last(pipeline, "a", &spy, NULL), 0);
    harness_fail_nth("alloc", 1, -ENOMEM);
    assert_int_equal(weir_pipeline_remove(pipeline, "a", NULL), -ENOMEM);
    harness_fail_end();
    weir_embedded_run(embedded);
    spy_expect_names(pipeline, "a");
    assert_int_equal(weir_pipeline_remove(pipeline, "a", NULL), 0);
    weir_embedded_run(embedded);
    assert_trace("a.added a.removed");
    spy_end(embedded);
}

/* Message types -------------------------------------------------------------------------------- */

static const weir_handler_type takes_bufs = {
    .name = "takes_bufs",
    .on_read = spy_on_read,
    .write = spy_write,
    .takes_reads = &weir_buf_type,
    .gives_writes = &weir_buf_type,
};
static const weir_handler_type takes_number_writes = {
    .name = "takes_number_writes",
    .write = spy_write,
    .takes_writes = &number_type,
};

/* Adds beside "p", which gives buffers, and expects a refusal that names both. */
static void expect_misfit(weir_pipeline *pipeline, const weir_handler_type *type, weir_place place,
                          const char *base, const char *words)
{
    weir_handler_config config = { .type = type, .name = "x", .place = place, .base = base };
    weir_error error = { .code = 0 };
    size_t before = weir_pipeline_count(pipeline);
    harness_log_begin(WEIR_LOG_ERROR);
    assert_int_equal(weir_pipeline_add(pipeline, &config, &error), -EPROTOTYPE);
    assert_string_equal(error.message, words);
    assert_true(harness_log_has(words));
    assert_int_equal(harness_log_end(), 1);
    assert_int_equal(weir_pipeline_count(pipeline), before);
    assert_int_equal(weir_pipeline_find(pipeline, "x", NULL), WEIR_ENOTFOUND);
}

static void neighbours_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    /* "e" has nothing to do with reads or writes, and is looked through. */
    spy_entry entries[] = { { "p", &printer, NULL }, { "e", &spy_errors, NULL }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    const char reads[] = "'printer' gives reads of type buf, but 'doubler' takes number";
    expect_misfit(pipeline, &doubler, WEIR_PLACE_LAST, NULL, reads);
    expect_misfit(pipeline, &doubler, WEIR_PLACE_AFTER, "p", reads);
    expect_misfit(pipeline, &doubler, WEIR_PLACE_BEFORE, "e", reads);
    expect_misfit(pipeline, &printer, WEIR_PLACE_FIRST, NULL,
                  "'printer' gives reads of type buf, but 'printer' takes number");
    assert_int_equal(weir_pipeline_add_last(pipeline, "t", &takes_bufs, NULL), 0);
    expect_misfit(pipeline, &takes_number_writes, WEIR_PLACE_BEFORE, "e",
                  "'takes_bufs' gives writes of type buf, but 'takes_number_writes' takes number");
    expect_misfit(pipeline, &doubler, WEIR_PLACE_BEFORE, "t", reads);
    assert_int_equal(weir_pipeline_add_first(pipeline, "d", &doubler, NULL), 0);
    /* Who does not say what it takes is no neighbour to argue with. */
    assert_int_equal(weir_pipeline_add_last(pipeline, "u", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "d2", &doubler, NULL), 0);
    spy_expect_names(pipeline, "d, p, e, t, u, d2");
    spy_end(embedded);
}

static void writes_are_checked_towards_the_head(void **state)
{
    (void)state;
    spy_entry entries[] = { { "n", &takes_number_writes, NULL },
                            { "e", &spy_errors, NULL },
                            { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    expect_misfit(weir_embedded_pipeline(embedded), &takes_bufs, WEIR_PLACE_LAST, NULL,
                  "'takes_bufs' gives writes of type buf, but 'takes_number_writes' takes number");
    spy_end(embedded);
}

static void replacing_checks_types(void **state)
{
    (void)state;
    spy_entry entries[] = {
        { "d", &doubler, NULL }, { "p", &printer, NULL }, { "t", &takes_bufs, NULL }, { 0 }
    };
    weir_embedded *embedded = spy_open_unregistered(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_replace(pipeline, "p", "q", &doubler, NULL), -EPROTOTYPE);
    assert_int_equal(weir_pipeline_replace(pipeline, "t", "q", &doubler, NULL), -EPROTOTYPE);
    assert_int_equal(weir_pipeline_replace(pipeline, "d", "q", &printer, NULL), -EPROTOTYPE);
    spy_expect_names(pipeline, "d, p, t");
    /* It is measured against the neighbours, not against the one that goes. */
    assert_int_equal(weir_pipeline_replace(pipeline, "p", "q", &printer, NULL), 0);
    spy_expect_names(pipeline, "d, q, t");
    /* One that is gone counts no more. */
    assert_int_equal(weir_pipeline_remove(pipeline, "t", NULL), 0);
    assert_int_equal(weir_pipeline_replace(pipeline, "q", "d2", &doubler, NULL), 0);
    spy_expect_names(pipeline, "d, d2");
    spy_end(embedded);
}

static void add_from_outside_completes_its_promise(void **state)
{
    (void)state;
    spy_act fails = { "added", fail_eio, false, false };
    spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    spy_forget();
    weir_promise *good = add_with_promise(embedded, "b", &spy);
    weir_promise *bad = weir_channel_promise(weir_embedded_channel(embedded));
    weir_handler_config config = { .type = &spy, .name = "c", .arg = &fails, .promise = bad };
    assert_int_equal(weir_pipeline_add(pipeline, &config, NULL), 0);
    weir_embedded_run(embedded);
    assert_trace("b.added c.added c.removed a.on_error(EIO) b.on_error(EIO)");
    expect_result(good, 0);
    expect_result(bad, -EIO);
    spy_expect_error(embedded, -EIO, "c");
    assert_true(weir_channel_is_open(weir_embedded_channel(embedded)));
    /* A call that fails at once completes it, too. */
    config.name = "#";
    config.promise = weir_channel_promise(weir_embedded_channel(embedded));
    assert_int_equal(weir_pipeline_add(pipeline, &config, NULL), -EINVAL);
    expect_result(config.promise, -EINVAL);
    spy_end(embedded);
}

static void failed_add_from_outside_without_a_promise_closes(void **state)
{
    (void)state;
    spy_act fails = { "added", fail_eio, false, false };
    weir_embedded *embedded = spy_open(no_handlers);
    assert_int_equal(weir_pipeline_add_last(weir_embedded_pipeline(embedded), "c", &spy, &fails),
                     0);
    weir_embedded_run(embedded);
    assert_trace("c.added c.removed");
    spy_expect_error(embedded, -EIO, "c");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    spy_end(embedded);
}

/* `added` runs when the channel is registered, long after the add has returned 0. */
static void failed_add_before_registration_closes(void **state)
{
    (void)state;
    spy_act fails = { "added", fail_eio, false, false };
    spy_entry entries[] = { { "c", &spy, &fails }, { 0 } };
    weir_embedded *embedded = spy_open_unregistered(entries);
    spy_register(embedded);
    spy_expect_error(embedded, -EIO, "c");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    spy_end(embedded);
}

static int replace_failing(void *embedded)
{
    static spy_act act;
    act = (spy_act){ "added", fail_eio, false, false };
    return weir_pipeline_replace(weir_embedded_pipeline(embedded), "a", "n", &spy, &act);
}

static void failed_replacement_leaves_the_old_handler(void **state)
{
    (void)state;
    spy_entry entries[] = { { "a", &spy, NULL }, { 0 } };
    weir_embedded *embedded = spy_open(entries);
    spy_forget();
    assert_int_equal(spy_call(embedded, replace_failing), -EIO);
    assert_trace("n.added n.removed a.on_error(EIO)");
    spy_expect_names(weir_embedded_pipeline(embedded), "a");
    spy_expect_error(embedded, -EIO, "n");
    spy_end(embedded);
}

static int init_ignoring_a_failure(weir_channel *channel, void *arg)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    static spy_act act;
    act = (spy_act){ "added", fail_eio, false, false };
    (void)arg;
    weir_pipeline_add_last(pipeline, "filter", &spy, &act);
    weir_pipeline_add_last(pipeline, "echo", &spy, NULL);
    return 0;
}

/* Whatever the initializer makes of it: the channel does not serve without the handler. */
static void failed_add_during_init_closes_though_init_returns_0(void **state)
{
    (void)state;
    weir_embedded *embedded;
    weir_error error;
    weir_embedded_config config = { .init = init_ignoring_a_failure };
    spy_forget();
    assert_int_equal(weir_embedded_new(&embedded, &config, &error), -EIO);
    assert_trace("filter.added filter.removed echo.added echo.close echo.on_error(EIO) "
                 "echo.removed");
}

typedef struct closing {
    weir_task task;
    weir_channel *channel;
} closing;

static int close_on_loop(weir_task *task)
{
    weir_channel_close(WEIR_CONTAINER(task, closing, task)->channel, NULL);
    return 0;
}

/* An add from another thread has returned 0, and then the channel is gone before the loop gets to
 * it. */
static void removed_runs_once_when_the_channel_is_gone_before_added(void **state)
{
    (void)state;
    for (int is_elsewhere = 0; is_elsewhere < 2; is_elsewhere++) {
        weir_embedded *embedded = spy_open(no_handlers);
        weir_group *group = is_elsewhere ? open_executors(true) : NULL;
        closing first = { .task.run = close_on_loop, .channel = weir_embedded_channel(embedded) };
        weir_channel_deregister(first.channel, NULL);
        weir_embedded_run(embedded);
        assert_int_equal(weir_executor_post(weir_embedded_executor(embedded), &first.task), 0);
        weir_promise *promise = weir_channel_promise(first.channel);
        weir_handler_config config = { .type = &spy, .name = "late", .promise = promise };
        config.group = group;
        assert_int_equal(weir_pipeline_add(weir_embedded_pipeline(embedded), &config, NULL), 0);
        weir_embedded_run(embedded);
        if (is_elsewhere) { /* the channel is not closed before all handlers are removed */
            assert_false(weir_future_is_done(weir_channel_closed(first.channel)));
            weir_group_step(group);
            weir_embedded_run(embedded);
        }
        assert_true(weir_future_is_done(weir_channel_closed(first.channel)));
        assert_trace("late.removed");
        expect_result(promise, WEIR_ECLOSED);
        spy_end(embedded);
        weir_group_shutdown(group, 0, 0);
        weir_group_free(group);
    }
}

static void types_are_checked_from_outside(void **state)
{
    (void)state;
    weir_embedded *embedded = spy_open(no_handlers);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_last(pipeline, "p", &printer, NULL), 0);
    weir_embedded_run(embedded);
    weir_promise *promise = add_with_promise(embedded, "d", &doubler);
    weir_embedded_run(embedded);
    spy_expect_names(pipeline, "p");
    expect_result(promise, -EPROTOTYPE);
    spy_end(embedded);
}

static void mismatched_add_from_outside_without_a_promise_closes(void **state)
{
    (void)state;
    weir_embedded *embedded = spy_open(no_handlers);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_last(pipeline, "p", &printer, NULL), 0);
    weir_embedded_run(embedded);
    assert_int_equal(weir_pipeline_add_last(pipeline, "d", &doubler, NULL), 0);
    weir_embedded_run(embedded);
    spy_expect_error(embedded, -EPROTOTYPE, "pipeline");
    assert_false(weir_channel_is_open(weir_embedded_channel(embedded)));
    spy_end(embedded);
}

static void types_are_checked_against_one_on_its_way(void **state)
{
    (void)state;
    weir_embedded *embedded = spy_open(no_handlers);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    assert_int_equal(weir_pipeline_add_last(pipeline, "p", &printer, NULL), 0);
    weir_promise *promise = add_with_promise(embedded, "d1", &doubler);
    assert_int_equal(weir_pipeline_add_last(pipeline, "u", &spy, NULL), 0);
    assert_int_equal(weir_pipeline_add_last(pipeline, "d2", &doubler, NULL), 0);
    weir_embedded_run(embedded);
    expect_result(promise, -EPROTOTYPE);
    spy_expect_names(pipeline, "p, u, d2");
    spy_end(embedded);
}

/* Many ----------------------------------------------------------------------------------------- */

#define MANY 100000
static weir_ctx *many[MANY];
static size_t many_added, many_removed;

static void many_on_added(weir_ctx *ctx)
{
    many[many_added++] = ctx;
}

static void many_on_removed(weir_ctx *ctx)
{
    (void)ctx;
    many_removed++;
}

static const weir_handler_type one_of_many = {
    .name = "one",
    .added = many_on_added,
    .removed = many_on_removed,
};

static int add_many(void *arg)
{
    for (int i = 0; i < MANY; i++)
        assert_int_equal(
            weir_pipeline_add_last(weir_embedded_pipeline(arg), NULL, &one_of_many, NULL), 0);
    return 0;
}

static int remove_many(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(weir_ctx_remove(many[i % 2 ? i : MANY - 2 - i]), 0);
    return 0;
}

/* An event passes them all. */
static void pass_many(weir_embedded *embedded, size_t count)
{
    assert_int_equal(weir_pipeline_count(weir_embedded_pipeline(embedded)), count);
    assert_int_equal(weir_embedded_write_inbound(embedded, spy_text("x")), 0);
    spy_expect_text(weir_embedded_read_inbound(embedded), "x");
    assert_int_equal(weir_embedded_write_outbound(embedded, spy_text("y")), 0);
    spy_expect_text(weir_embedded_read_outbound(embedded), "y");
}

static void *live_with_many(void *arg)
{
    (void)arg;
    weir_embedded *embedded = spy_open(no_handlers);
    many_added = many_removed = 0;
    assert_int_equal(spy_call(embedded, add_many), 0);
    pass_many(embedded, MANY);
    assert_int_equal(spy_call(embedded, remove_many), 0);
    assert_int_equal(many_removed, MANY);
    pass_many(embedded, 0);
    many_added = 0;
    assert_int_equal(spy_call(embedded, add_many), 0);
    spy_end(embedded);
    assert_int_equal(many_removed, 2 * MANY);
    /* And told all at once, by registration. */
    embedded = spy_open_unregistered(no_handlers);
    many_added = 0;
    add_many(embedded);
    assert_int_equal(many_added, 0);
    spy_register(embedded);
    assert_int_equal(many_added, MANY);
    spy_end(embedded);
    assert_int_equal(many_removed, 3 * MANY);
    return embedded;
}

/* On a small stack, where recursion over the list would be seen. */
static void hundred_thousand_handlers(void **state)
{
    (void)state;
    pthread_t thread;
    pthread_attr_t attributes;
    void *result = NULL;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
    assert_int_equal(pthread_create(&thread, &attributes, live_with_many, NULL), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    pthread_attr_destroy(&attributes);
    assert_non_null(result);
}

/* Leaving while the channel moves ---------------------------------------------------------------
 */

static void leave_on_unregistered(weir_ctx *ctx)
{
    assert_int_equal(weir_ctx_remove(ctx), 0);
    weir_ctx_fire_unregistered(ctx);
}

static const weir_handler_type traveller = { .name = "traveller", .on_error = spy_on_error };
static const weir_handler_type leaver = {
    .name = "leaver",
    .on_unregistered = leave_on_unregistered,
};

static int init_travellers(weir_channel *channel, void *arg)
{
    int code = 0;
    (void)arg;
    for (int i = 0; code == 0 && i < 20; i++)
        code = weir_pipeline_add_last(weir_channel_pipeline(channel), NULL,
                                      i % 2 == 0 ? &leaver : &traveller, NULL);
    return code;
}

static int count_travellers(void *pipeline)
{
    assert_int_equal(weir_pipeline_find_type(pipeline, &leaver, NULL), WEIR_ENOTFOUND);
    return (int)weir_pipeline_count(pipeline);
}

/* The old loop must not free contexts of a channel that is the new one's. */
static void move_and_leave(weir_group *group)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = init_travellers, .group = group };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    weir_promise *moved = weir_promise_new(NULL);
    weir_executor *to = weir_group_at(group, 0);
    if (to == weir_embedded_executor(embedded))
        to = weir_group_at(group, 1);
    weir_channel_move(weir_embedded_channel(embedded), to, moved);
    for (int i = 0; i < 20; i++)
        weir_pipeline_fire_read_complete(pipeline);
    assert_int_equal(weir_future_await(weir_promise_future(moved)), 0);
    assert_int_equal(weir_embedded_call(embedded, count_travellers, pipeline), 10);
    weir_promise_release(moved);
    weir_embedded_free(embedded);
}

static void handlers_may_leave_while_the_channel_moves(void **state)
{
    (void)state;
    weir_group *group;
    weir_group_config config = { .loops = 2 };
    assert_int_equal(weir_group_new(&group, &config, NULL), 0);
    for (int i = 0; i < 50; i++)
        move_and_leave(group);
    weir_group_shutdown(group, 0, 0);
    weir_group_free(group);
}

/* Faults --------------------------------------------------------------------------------------- */

static weir_msg *kept_msg;

/* 0, or the code of the first step that failed; then what was done before it is undone. */
static int change_much(void *arg)
{
    weir_embedded *embedded = arg;
    weir_pipeline *pipeline = weir_embedded_pipeline(embedded);
    int code = weir_pipeline_add_last(pipeline, "a", &spy, NULL);
    if (code == 0)
        code = weir_pipeline_add_before(pipeline, "a", "n", &spy, NULL);
    if (code == 0)
        code = weir_pipeline_replace(pipeline, "a", "b", &spy, NULL);
    if (code == 0)
        code = weir_pipeline_add_initializer(pipeline, spy_init, no_handlers);
    const char *const names[] = { "a", "n", "b" };
    for (int i = 0; code < 0 && i < 3; i++)
        weir_pipeline_remove(pipeline, names[i], NULL);
    spy_expect_names(pipeline, code < 0 ? "s" : "s, n, b");
    return code;
}

static int write_one(void *arg)
{
    weir_channel *channel = weir_embedded_channel(arg);
    weir_promise *promise = weir_channel_promise(channel);
    if (promise == NULL)
        return -ENOMEM;
    weir_channel_write_and_flush(channel, weir_msg_retain(kept_msg), promise);
    int code = weir_future_code(weir_promise_future(promise));
    weir_promise_release(promise);
    return code;
}

/* What the promise says is so. */
static int expect_truth(weir_embedded *embedded, int written)
{
    assert_int_equal(weir_embedded_outbound_count(embedded), written == 0 ? 1 : 0);
    weir_msg_release(weir_embedded_read_outbound(embedded));
    assert_int_equal(weir_msg_refs(kept_msg), 1);
    return written;
}

/* A life with one allocation failing somewhere: 0 or the first code. */
static int live_with_faults(void)
{
    spy_entry entries[] = { { "s", &spy, NULL }, { 0 } };
    weir_embedded *embedded;
    weir_embedded_config config = { .init = spy_init, .arg = entries };
    int code = weir_embedded_new(&embedded, &config, NULL);
    if (code < 0)
        return code;
    code = spy_call(embedded, change_much);
    if (code == -ENOMEM) /* everything is as before: once more */
        assert_int_equal(spy_call(embedded, change_much), 0);
    else
        assert_int_equal(code, 0);
    int written = expect_truth(embedded, spy_call(embedded, write_one));
    weir_embedded_close(embedded);
    assert_int_equal(weir_channel_get_state(weir_embedded_channel(embedded)),
                     WEIR_CHANNEL_UNREGISTERED);
    weir_embedded_free(embedded);
    return code < 0 ? code : written;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    unsigned seen = 0, nth = 0, failures = 0;
    spy_forget();
    kept_msg = spy_text("x");
    do {
        harness_fail_nth("alloc", ++nth, -ENOMEM);
        int code = live_with_faults();
        seen = harness_fail_end();
        assert_true(code == 0 || code == -ENOMEM);
        failures += code < 0;
        spy_forget();
    } while (seen >= nth);
    /* Only closing does without: its call from outside is made up for. */
    assert_int_equal(failures, seen - 1);
    weir_msg_release(kept_msg);
}

static void write_from_outside_without_memory_is_no_success(void **state)
{
    (void)state;
    weir_embedded *embedded = spy_open(no_handlers);
    weir_msg *msg = spy_text("x");
    harness_fail_nth("alloc", 1, -ENOMEM);
    int code = weir_embedded_write_outbound(embedded, msg);
    harness_fail_end();
    assert_int_equal(weir_embedded_outbound_count(embedded), 0);
    assert_true(code < 0);
    weir_embedded_free(embedded);
}

/* One handler type serves any number of channels, also twice in one of them; unless it says that
 * once is the most. */
static void s132_a_type_is_shared_unless_it_says_otherwise(void **state)
{
    (void)state;
    static const weir_handler_type shared = { .name = "shared" };
    static const weir_handler_type single = { .name = "single", .is_single = true };
    weir_embedded *embedded[2];
    weir_error error;
    for (int i = 0; i < 2; i++) {
        spy_entry none[] = { { 0 } };
        embedded[i] = spy_open_unregistered(none);
        weir_pipeline *pipeline = weir_embedded_pipeline(embedded[i]);
        assert_int_equal(weir_pipeline_add_last(pipeline, "a", &shared, NULL), 0);
        assert_int_equal(weir_pipeline_add_last(pipeline, "b", &shared, NULL), 0);
        assert_int_equal(weir_pipeline_add_last(pipeline, "c", &single, NULL), 0);
        const weir_handler_config again = { .name = "d", .type = &single };
        assert_int_equal(weir_pipeline_add(pipeline, &again, &error), -EEXIST);
        assert_non_null(strstr(error.message, "'single'"));
        assert_non_null(strstr(error.message, "'c'"));
        assert_int_equal(weir_pipeline_count(pipeline), 3);
        assert_int_equal(weir_pipeline_replace(pipeline, "a", "d", &single, NULL), -EEXIST);
        assert_int_equal(weir_pipeline_replace(pipeline, "c", "d", &single, NULL), 0);
        assert_int_equal(weir_pipeline_remove(pipeline, "d", NULL), 0);
        assert_int_equal(weir_pipeline_add_first(pipeline, "d", &single, NULL), 0);
    }
    for (int i = 0; i < 2; i++)
        spy_end(embedded[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(handlers_may_leave_while_the_channel_moves),
        weir_case(handlers_are_added_where_asked),
        weir_case(whoever_names_no_place_is_last),
        weir_case(names_are_checked),
        weir_case(null_is_refused_everywhere),
        weir_case(errors_name_what_is_wrong),
        weir_case(names_that_weir_gives_are_unique),
        weir_case(handlers_can_be_found),
        weir_case(names_are_cut_at_every_size),
        weir_case(replacing_adds_then_removes),
        weir_case(upgrade_fails_while_a_later_handler_holds_reads),
        weir_case(upgrade_of_a_moving_channel_asks_the_later_handlers),
        weir_case(failed_upgrade_from_outside_fails_its_promise_and_closes),
        weir_case(replacing_from_outside),
        weir_case(edits_from_outside_report_by_promise),
        weir_case(looking_is_rejected_on_another_thread),
        weir_case(changes_from_outside_keep_their_order),
        weir_case(failed_removal_of_one_on_its_way_changes_nothing),
        weir_case(neighbours_that_do_not_fit_are_refused),
        weir_case(writes_are_checked_towards_the_head),
        weir_case(replacing_checks_types),
        weir_case(add_from_outside_completes_its_promise),
        weir_case(failed_add_from_outside_without_a_promise_closes),
        weir_case(failed_add_before_registration_closes),
        weir_case(failed_replacement_leaves_the_old_handler),
        weir_case(failed_add_during_init_closes_though_init_returns_0),
        weir_case(removed_runs_once_when_the_channel_is_gone_before_added),
        weir_case(types_are_checked_from_outside),
        weir_case(mismatched_add_from_outside_without_a_promise_closes),
        weir_case(types_are_checked_against_one_on_its_way),
        weir_case(s132_a_type_is_shared_unless_it_says_otherwise),
        weir_case(hundred_thousand_handlers),
        weir_case(every_allocation_may_fail),
        weir_case(write_from_outside_without_memory_is_no_success),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
