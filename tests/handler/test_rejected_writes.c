/* SPDX-License-Identifier: MIT */
/* Every outbound handler in front of which writes are rejected: no byte follows a missing piece. */
#include "harness.h"

#include <weir/embedded.h>
#include <weir/weir.h>
#ifdef WEIR_HAS_COMPRESSION
#include <weir/compression.h>
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGES 3
#define MESSAGE_BYTES ((size_t)20000)
#define MAX_BYTES ((size_t)1 << 20)

/* Messages that take several writes ------------------------------------------------------------ */

static uint8_t byte_at(size_t at)
{
    return (uint8_t)(at * at * 31 + (at >> 7));
}

static void fill(uint8_t *to, size_t from, size_t length)
{
    for (size_t i = 0; i < length; i++)
        to[i] = byte_at(from + i);
}

static weir_msg *new_buf(size_t index)
{
    weir_buf *buf = weir_buf_new(MESSAGE_BYTES);
    fill(weir_buf_write_ptr(buf, MESSAGE_BYTES), index * MESSAGE_BYTES, MESSAGE_BYTES);
    weir_buf_advance_writer(buf, MESSAGE_BYTES);
    return &buf->msg;
}

static weir_msg *new_file(size_t index)
{
    char path[] = "/tmp/weir-test-rejected-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    unlink(path);
    size_t length = 2 * ((size_t)64 << 10) + index + 1; /* three buffers */
    uint8_t *bytes = malloc(length);
    assert_non_null(bytes);
    fill(bytes, index, length);
    assert_int_equal(write(fd, bytes, length), (ssize_t)length);
    free(bytes);
    return &weir_file_region_new(fd, 0, length)->msg;
}

/* Three chunks of four bytes. */
typedef struct generator {
    size_t index, given;
} generator;

static weir_pulled pull(weir_chunked *input, void *arg, weir_buf **chunk)
{
    generator *self = arg;
    uint8_t bytes[4];
    (void)input;
    fill(bytes, self->index * 12 + self->given * 4, sizeof bytes);
    *chunk = weir_buf_from(bytes, sizeof bytes);
    return ++self->given == 3 ? WEIR_PULLED_LAST : WEIR_PULLED_CHUNK;
}

static void note_progress(weir_chunked *input, void *arg, uint64_t sent, uint64_t total)
{
    generator *self = arg;
    (void)input;
    (void)total;
    assert_true(sent <= self->given * 4);
}

static weir_msg *new_input(size_t index, bool has_progress)
{
    generator *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->index = index;
    weir_chunked_config config = { .pull = pull, .arg = self, .free = free };
    config.on_progress = has_progress ? note_progress : NULL;
    weir_chunked *input;
    assert_int_equal(weir_chunked_new(&input, &config), 0);
    return weir_chunked_msg(input);
}

static weir_msg *new_quiet_input(size_t index)
{
    return new_input(index, false);
}

static weir_msg *new_watched_input(size_t index)
{
    return new_input(index, true);
}

/* The handlers --------------------------------------------------------------------------------- */

typedef struct row {
    const weir_handler_type *type;
    const void *arg;
    weir_msg *(*message)(size_t index);
    size_t pieces; /* so many of its first writes are pieces, those after them are whole messages */
} row;

#define ALL SIZE_MAX

#ifdef WEIR_HAS_COMPRESSION
#define COMPRESSION(name)                                                                          \
    {                                                                                              \
        &weir_compression_encoder, &(weir_compression){ .format = WEIR_COMPRESSION_##name },       \
            new_buf, ALL                                                                           \
    }
#endif

static row rows[] = {
    { &weir_chunked_handler, NULL, new_quiet_input, ALL },
    { &weir_chunked_handler, NULL, new_watched_input, ALL },
    { &weir_file_bytes_handler, NULL, new_file, ALL },
    { &weir_file_bytes_handler, NULL, new_quiet_input, ALL },
#ifdef WEIR_HAS_COMPRESSION
    COMPRESSION(GZIP),
    COMPRESSION(ZLIB),
    COMPRESSION(DEFLATE),
    COMPRESSION(BROTLI),
    COMPRESSION(ZSTD),
    COMPRESSION(LZ4),
#endif
    { &weir_proxy_sender, &(weir_proxy_header){ .version = 2 }, new_buf, 1 },
    { &weir_length_prepender_handler, &(weir_length_prepender){ .width = 4 }, new_buf, 0 },
    { &weir_varint_prepender, NULL, new_buf, 0 },
    { &weir_base64_encoder, NULL, new_buf, 0 },
    { &weir_traffic_handler, &(weir_traffic){ .each.write_bytes_per_second = 10000 }, new_buf, 0 },
    { &weir_flush_consolidation_handler, NULL, new_buf, 0 },
    { &weir_logging_handler, NULL, new_buf, 0 },
    { &weir_pcap_handler, NULL, new_buf, 0 }, /* its argument is made before the cases */
};

#define ROWS (sizeof rows / sizeof *rows)

static int open_pcap(void **state)
{
    char path[] = "/tmp/weir-test-rejected-pcap-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    weir_pcap *pcap = NULL;
    int code = weir_pcap_open(&pcap, path, &(weir_pcap_config){ .is_replacing = true }, NULL);
    unlink(path);
    close(fd);
    *state = pcap;
    rows[ROWS - 1].arg = pcap;
    return code;
}

static int close_pcap(void **state)
{
    return weir_pcap_close(*state);
}

/* A format may not be built in. */
static bool is_built(const row *tested)
{
#ifdef WEIR_HAS_COMPRESSION
    if (tested->type == &weir_compression_encoder)
        return weir_compression_has(((const weir_compression *)tested->arg)->format);
#endif
    return tested != NULL;
}

/* The head that rejects, and a tail that answers errors ---------------------------------------- */

/* How the head rejects a write that has a promise. */
typedef enum rejection {
    REFUSE,  /* by weir_ctx_refuse_write */
    FAIL,    /* it completes the promise, and that is all */
    LATE,    /* the same, but with the next write, which it passes on in the same callback */
    NOTHING, /* it passes on NULL, as when there was no memory for what it makes of the message */
} rejection;

typedef struct world {
    weir_embedded *embedded;
    const row *row;
    size_t nth; /* every so many writes one is rejected; 0: none */
    size_t writes, rejected;
    rejection how;
    weir_promise *late; /* of a write that was rejected, but its promise is not complete */
    bool has_promise, has_queue, has_holder;
    size_t lengths[64]; /* of the writes that were passed on, as long as the channel was open */
    size_t passed;
    size_t errors;
    int64_t limit; /* of the bytes in the channel, which sends nothing at first; 0: none */
    weir_promise *promises[MESSAGES];
} world;

static int fail_late(void *arg)
{
    world *self = arg;
    weir_promise *late = self->late;
    self->late = NULL;
    if (late != NULL)
        weir_promise_fail(late, -EMSGSIZE);
    weir_promise_release(late);
    return 0;
}

static void reject_write(world *self, weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    if (promise == NULL || self->how == REFUSE) {
        weir_ctx_refuse_write(ctx, msg, promise, -EMSGSIZE);
        return;
    }
    weir_msg_release(msg);
    if (self->how == FAIL)
        weir_promise_set(promise, -EMSGSIZE);
    else if (self->how == LATE)
        self->late = weir_promise_retain(promise);
    else
        weir_ctx_write(ctx, NULL, promise);
}

static void head_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    world *self = weir_ctx_arg(ctx);
    fail_late(self);
    bool is_open = weir_channel_is_open(weir_ctx_channel(ctx));
    self->writes++;
    bool is_rejected = self->nth > 0 && self->writes % self->nth == 0;
    self->rejected += is_rejected && is_open;
    if (is_rejected) {
        reject_write(self, ctx, msg, promise);
    } else {
        if (is_open && self->passed < 64)
            self->lengths[self->passed++] = weir_msg_size(msg);
        weir_ctx_write(ctx, msg, promise);
    }
}

static const weir_handler_type head_type = { .name = "head", .write = head_write };

/* As a server does that answers whatever goes wrong. */
static void tail_on_error(weir_ctx *ctx, const weir_error *error)
{
    world *self = weir_ctx_arg(ctx);
    self->errors++;
    assert_true(error->code == (self->limit > 0 ? WEIR_ELIMIT : -EMSGSIZE) ||
                (self->how == NOTHING && error->code == -ENOMEM));
    weir_channel_write(weir_ctx_channel(ctx), &weir_buf_from("late", 4)->msg, NULL);
    weir_channel_flush(weir_ctx_channel(ctx));
}

/* Passes everything on a little later, however much it is. */
typedef struct holder {
    weir_ctx_timer later;
    size_t count;
    struct {
        weir_msg *msg;
        weir_promise *promise;
    } held[64];
} holder;

static void pass_held(weir_ctx_timer *timer, weir_ctx *ctx)
{
    holder *self = WEIR_CONTAINER(timer, holder, later);
    for (size_t i = 0; i < self->count; i++) {
        weir_ctx_write(ctx, self->held[i].msg, self->held[i].promise);
        weir_promise_release(self->held[i].promise);
    }
    self->count = 0;
    weir_ctx_flush(ctx);
}

static void holder_added(weir_ctx *ctx)
{
    holder *self = weir_ctx_state(ctx);
    self->later.fire = pass_held;
}

static void holder_removed(weir_ctx *ctx)
{
    holder *self = weir_ctx_state(ctx);
    pass_held(&self->later, ctx);
}

static void holder_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    holder *self = weir_ctx_state(ctx);
    assert_true(self->count < 64);
    self->held[self->count].msg = msg;
    self->held[self->count++].promise = promise != NULL ? weir_promise_retain(promise) : NULL;
    weir_ctx_schedule(ctx, &self->later, WEIR_MS(1));
}

static const weir_handler_type holder_type = {
    .name = "holder",
    .state_size = sizeof(holder),
    .added = holder_added,
    .removed = holder_removed,
    .write = holder_write,
};

static const weir_handler_type tail_type = { .name = "tail", .on_error = tail_on_error };

static int add_all(weir_channel *channel, void *arg)
{
    static weir_traffic slow = { .each.write_bytes_per_second = 10000 };
    world *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    int code = weir_pipeline_add_last(pipeline, "head", &head_type, self);
    if (code == 0 && self->has_queue)
        code = weir_pipeline_add_last(pipeline, "queue", &weir_traffic_handler, &slow);
    if (code == 0 && self->has_holder)
        code = weir_pipeline_add_last(pipeline, "holder", &holder_type, NULL);
    if (code == 0)
        code = weir_pipeline_add_last(pipeline, "h", self->row->type, (void *)self->row->arg);
    return code == 0 ? weir_pipeline_add_last(pipeline, "tail", &tail_type, self) : code;
}

/* All in one callback, so that no listener runs between two writes. */
static int write_all(void *arg)
{
    world *self = arg;
    weir_channel *channel = weir_embedded_channel(self->embedded);
    for (size_t i = 0; i < MESSAGES; i++) {
        self->promises[i] = self->has_promise ? weir_channel_promise(channel) : NULL;
        weir_channel_write(channel, self->row->message(i), self->promises[i]);
        weir_channel_flush(channel);
    }
    return 0;
}

/* Writes the messages; the bytes that were sent, and whether the channel is still open. */
static size_t run(world *self, uint8_t *sent, bool *is_open)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_all, .arg = self };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    self->embedded = embedded;
    if (self->limit > 0) {
        weir_embedded_accept(embedded, 0);
        weir_channel_set_option(weir_embedded_channel(embedded), WEIR_OPTION_MAX_OUTBOUND_BYTES,
                                self->limit, NULL);
        weir_embedded_run(embedded);
    }
    weir_embedded_call(embedded, write_all, self);
    if (self->limit > 0) {
        weir_embedded_advance(embedded, WEIR_MS(1));
        weir_embedded_accept(embedded, SIZE_MAX);
    }
    weir_embedded_run(embedded);
    for (int second = 0; second < 60; second++) {
        weir_embedded_call(embedded, fail_late, self);
        weir_embedded_advance(embedded, WEIR_SECONDS(1));
    }
    *is_open = weir_channel_is_open(weir_embedded_channel(embedded));
    size_t length = weir_embedded_read_outbound_bytes(embedded, sent, MAX_BYTES);
    size_t passed = self->passed, rejected = self->rejected;
    weir_embedded_free(embedded); /* which may write the end of a stream */
    self->passed = passed;
    self->rejected = rejected;
    return length;
}

/* The promises: after one that failed none succeeds, and if a piece was rejected one has failed. */
static void check_promises(world *self, bool has_lost_piece)
{
    bool has_failed = false;
    for (size_t i = 0; self->has_promise && i < MESSAGES; i++) {
        int code = weir_future_code(weir_promise_future(self->promises[i]));
        assert_true(weir_future_is_done(weir_promise_future(self->promises[i])));
        assert_true(code == 0 || code == (self->limit > 0 ? WEIR_ELIMIT : -EMSGSIZE) ||
                    (self->how == NOTHING && code == -ENOMEM) || code == WEIR_ECLOSED);
        if (has_lost_piece && has_failed)
            assert_true(code < 0);
        has_failed |= code < 0;
    }
    for (size_t i = 0; i < MESSAGES; i++)
        weir_promise_release(self->promises[i]);
    if (self->has_promise && has_lost_piece)
        assert_true(has_failed);
}

/* Without the writes that were rejected the rest is the same, if they were whole messages. */
static void check_whole(const world *self, const world *right, const uint8_t *all,
                        const uint8_t *sent, size_t length)
{
    size_t at = 0, from = 0;
    for (size_t i = 0; i < right->passed; from += right->lengths[i++]) {
        if ((i + 1) % self->nth == 0)
            continue;
        assert_true(at + right->lengths[i] <= length);
        assert_memory_equal(sent + at, all + from, right->lengths[i]);
        at += right->lengths[i];
    }
    assert_int_equal(at, length);
}

static void reject(const row *tested, bool has_promise, bool has_queue, rejection how)
{
    if (!is_built(tested))
        return;
    uint8_t *all = malloc(MAX_BYTES), *sent = malloc(MAX_BYTES);
    bool is_open;
    world right = { .row = tested, .has_promise = has_promise, .has_queue = has_queue };
    size_t all_length = run(&right, all, &is_open);
    assert_true(is_open && right.errors == 0 && right.passed >= MESSAGES && right.passed < 64);
    check_promises(&right, false);
    for (size_t nth = 1; nth <= right.passed; nth++) {
        world self = { .row = tested, .nth = nth, .has_promise = has_promise };
        self.has_queue = has_queue;
        self.how = how;
        size_t length = run(&self, sent, &is_open);
        bool has_lost_piece = !has_promise || nth <= tested->pieces;
        check_promises(&self, has_lost_piece);
        if (has_lost_piece) {
            assert_false(is_open);
            assert_int_equal(self.rejected, 1);
            assert_int_equal(self.errors, 1);
            assert_true(length < all_length);
            assert_memory_equal(sent, all, length);
        } else {
            assert_true(is_open);
            assert_int_equal(self.errors, 0);
            check_whole(&self, &right, all, sent, length);
        }
    }
    free(all);
    free(sent);
}

static void no_byte_follows_a_rejected_piece(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        for (int has_promise = 0; has_promise < 2; has_promise++)
            reject(&rows[i], has_promise, false, REFUSE);
    }
}

static void no_byte_follows_a_piece_that_a_queue_passed_on_later(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        for (int has_promise = 0; has_promise < 2 && rows[i].pieces == ALL; has_promise++)
            reject(&rows[i], has_promise, true, REFUSE);
    }
}

static void a_handler_may_reject_a_piece_by_its_promise_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        for (rejection how = FAIL; how <= NOTHING; how++)
            reject(&rows[i], true, false, how);
    }
}

/* The channel itself rejects writes above its limit. */
static void no_byte_follows_a_piece_above_the_limit(void **state)
{
    (void)state;
    uint8_t *all = malloc(MAX_BYTES), *sent = malloc(MAX_BYTES);
    bool is_open;
    for (size_t i = 0; i < 4 * ROWS; i++) {
        world right = { .row = &rows[i / 4], .has_promise = i % 2, .has_holder = i % 4 >= 2 };
        if (right.row->pieces != ALL || !is_built(right.row))
            continue;
        size_t all_length = run(&right, all, &is_open), rejections = 0;
        check_promises(&right, false);
        for (int step = 1; step < 20; step++) {
            world self = { .row = right.row, .has_promise = right.has_promise };
            self.has_holder = right.has_holder;
            self.limit = (int64_t)all_length * step / 20;
            size_t length = run(&self, sent, &is_open);
            check_promises(&self, !is_open);
            assert_int_equal(self.errors, is_open ? 0 : 1);
            assert_memory_equal(sent, all, length);
            assert_true(is_open ? length == all_length : length < all_length);
            rejections += !is_open;
        }
        assert_true(rejections > 0);
    }
    free(all);
    free(sent);
}

/* Between executors ---------------------------------------------------------------------------- */

typedef struct offloaded {
    weir_group *group;
    bool is_holder; /* the handler before it is offloaded instead of itself */
    size_t errors;
} offloaded;

static void count_error(weir_ctx *ctx, const weir_error *error)
{
    offloaded *self = weir_ctx_arg(ctx);
    (void)error;
    self->errors++;
}

static const weir_handler_type counts_errors = { .name = "errors", .on_error = count_error };

static int add_offloaded(weir_channel *channel, void *arg)
{
    const offloaded *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_handler_config held = { .type = &holder_type, .group = self->group };
    weir_handler_config chunked = { .type = &weir_chunked_handler };
    chunked.group = self->is_holder ? NULL : self->group;
    int code = self->is_holder ? weir_pipeline_add(pipeline, &held, NULL) : 0;
    if (code == 0)
        code = weir_pipeline_add(pipeline, &chunked, NULL);
    return code == 0 ? weir_pipeline_add_last(pipeline, NULL, &counts_errors, arg) : code;
}

/* Writes the messages; true if the channel is open, and then each was sent completely or not at
 * all. */
static bool write_offloaded(offloaded *self, unsigned nth, unsigned *calls)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_offloaded, .arg = self };
    self->errors = 0;
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_promise *promises[MESSAGES];
    weir_msg *inputs[MESSAGES];
    uint8_t sent[64], expected[64];
    size_t length = 0;
    for (size_t i = 0; i < MESSAGES; i++) {
        promises[i] = weir_channel_promise(channel);
        inputs[i] = new_quiet_input(i);
    }
    harness_fail_nth("alloc", nth, -ENOMEM);
    for (size_t i = 0; i < MESSAGES; i++) {
        weir_channel_write(channel, inputs[i], promises[i]);
        weir_channel_flush(channel);
    }
    for (size_t i = 0; i < MESSAGES; i++) {
        while (!weir_future_is_done(weir_promise_future(promises[i]))) {
            weir_embedded_advance(embedded, WEIR_MS(1));
            weir_channel_flush(channel); /* if it was the flush that failed */
        }
    }
    *calls = harness_fail_end();
    weir_embedded_advance(embedded, WEIR_SECONDS(1));
    bool is_open = weir_channel_is_open(channel);
    for (size_t i = 0; i < MESSAGES; i++) {
        bool is_sent = weir_future_code(weir_promise_future(promises[i])) == 0;
        fill(expected + length, i * 12, is_sent ? 12 : 0);
        length += is_sent ? 12 : 0;
        weir_promise_release(promises[i]);
    }
    size_t sent_length = weir_embedded_read_outbound_bytes(embedded, sent, sizeof sent);
    assert_true(self->errors <= 1); /* none for an input that fails: its promise has the code */
    if (is_open) {
        assert_int_equal(self->errors, 0);
        assert_int_equal(sent_length, length);
        assert_memory_equal(sent, expected, length);
    }
    weir_embedded_free(embedded);
    return is_open;
}

static void no_byte_follows_a_piece_that_is_lost_between_executors(void **state)
{
    (void)state;
    weir_group *readers;
    assert_int_equal(weir_group_new_executors(&readers, &(weir_group_config){ .count = 1 }, NULL),
                     0);
    unsigned closed[2] = { 0 };
    harness_log_begin(WEIR_LOG_WARN); /* each lost event is logged */
    for (unsigned i = 0; i < 2; i++) {
        offloaded self = { .group = readers, .is_holder = i };
        /* How many calls there are depends on the threads: five runs without a failure are enough.
         */
        for (unsigned nth = 1, calls, whole = 0; whole < 5; nth++) {
            closed[i] += !write_offloaded(&self, nth, &calls);
            whole = calls < nth ? whole + 1 : 0;
        }
    }
    harness_log_end();
    assert_true(closed[0] > 0 && closed[1] > 0);
    weir_group_shutdown(readers, 0, WEIR_SECONDS(1));
    weir_group_free(readers);
}

/* The handler that rejects runs on another executor, and completes the promise there. */
static void picky_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    atomic_size_t *writes = weir_ctx_arg(ctx);
    if (promise == NULL || atomic_fetch_add(writes, 1) > 0) {
        weir_ctx_write(ctx, msg, promise);
        return;
    }
    weir_msg_release(msg);
    weir_promise_set(promise, -EMSGSIZE);
}

static const weir_handler_type picky_type = { .name = "picky", .write = picky_write };

typedef struct picky_setup {
    weir_group *group;
    const row *row;
    atomic_size_t writes;
} picky_setup;

static int add_picky(weir_channel *channel, void *arg)
{
    picky_setup *self = arg;
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_handler_config config = { .type = &picky_type, .group = self->group };
    config.arg = &self->writes;
    int code = weir_pipeline_add(pipeline, &config, NULL);
    return code == 0
               ? weir_pipeline_add_last(pipeline, NULL, self->row->type, (void *)self->row->arg)
               : code;
}

static void no_byte_follows_a_piece_rejected_on_another_executor(void **state)
{
    (void)state;
    weir_group *group;
    assert_int_equal(weir_group_new_executors(&group, &(weir_group_config){ .count = 1 }, NULL), 0);
    for (size_t i = 0; i < 20 * ROWS; i++) {
        const row *tested = &rows[i % ROWS];
        picky_setup self = { .group = group, .row = tested };
        weir_embedded *embedded;
        weir_embedded_config config = { .init = add_picky, .arg = &self };
        if (tested->pieces != ALL || !is_built(tested))
            continue;
        assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
        weir_channel *channel = weir_embedded_channel(embedded);
        weir_promise *promise = weir_channel_promise(channel), *next;
        weir_channel_write_and_flush(channel, tested->message(0), promise);
        WAIT_FOR_STEPPING(weir_future_is_done(weir_promise_future(promise)),
                          weir_embedded_advance(embedded, WEIR_MS(1)));
        assert_true(weir_future_code(weir_promise_future(promise)) < 0);
        next = weir_channel_promise(channel);
        weir_channel_write_and_flush(channel, tested->message(1), next);
        WAIT_FOR_STEPPING(weir_future_is_done(weir_promise_future(next)),
                          weir_embedded_advance(embedded, WEIR_MS(1)));
        assert_true(weir_future_code(weir_promise_future(next)) < 0);
        assert_false(weir_channel_is_open(channel));
        weir_promise_release(promise);
        weir_promise_release(next);
        weir_embedded_free(embedded);
    }
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
    weir_group_free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(no_byte_follows_a_rejected_piece),
        weir_case(no_byte_follows_a_piece_that_a_queue_passed_on_later),
        weir_case(no_byte_follows_a_piece_above_the_limit),
        weir_case(no_byte_follows_a_piece_that_is_lost_between_executors),
        weir_case(a_handler_may_reject_a_piece_by_its_promise_alone),
        weir_case(no_byte_follows_a_piece_rejected_on_another_executor),
    };
    return cmocka_run_group_tests(tests, open_pcap, close_pcap);
}
