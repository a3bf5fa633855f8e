/* SPDX-License-Identifier: MIT */
/* Files that are read from a slow disk: other threads wait for it, loops do not. */
#include "transport/sockets.h"

#include <weir/embedded.h>
#include <weir/fault.h>
#include <weir/file_bytes.h>

#define CHUNK ((size_t)65536)

/* The disk ------------------------------------------------------------------------------------- */

/* How reads and threads behave. */
typedef struct plan {
    int cached_code;     /* of pread_cached; 0: as the page cache has it */
    int thread_code;     /* of pthread_create */
    unsigned stuck_from; /* from this pread on the disk does not answer; 0: it does */
    unsigned failing;    /* this pread fails */
    bool is_mixed;       /* hits, misses and short reads */
} plan;

static const plan cold = { .cached_code = -EAGAIN };

/* How often it was asked. */
typedef struct counts {
    unsigned reads, waiting; /* preads that began, and those that wait */
    unsigned on_executor;    /* preads on the thread of an executor */
    unsigned hits;           /* of pread_cached */
} counts;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    plan plan;
    counts seen;
    unsigned random;
} disk = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static unsigned roll(unsigned sides)
{
    disk.random = disk.random * 1103515245 + 12345;
    return (disk.random >> 16) % sides;
}

static bool is_stuck(void)
{
    return disk.plan.stuck_from > 0 && disk.seen.reads >= disk.plan.stuck_from;
}

/* A read waits for longer than any test, but not for ever. */
static int wait_for_disk(void)
{
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 3 * PATIENCE_MS / 1000;
    disk.seen.waiting++;
    while (is_stuck() && error == 0)
        error = pthread_cond_clockwait(&disk.changed, &disk.lock, CLOCK_MONOTONIC, &until);
    disk.seen.waiting--;
    return -error;
}

static int read_from_disk(size_t *length)
{
    disk.seen.reads++;
    disk.seen.on_executor += weir_executor_current() != NULL;
    if (disk.seen.reads == disk.plan.failing)
        return -EIO;
    if (disk.plan.is_mixed && roll(4) == 0)
        *length = 1 + roll((unsigned)*length);
    return wait_for_disk();
}

/* Some kernels return 0 bytes where there are some, and some file systems can never tell. */
static int read_from_cache(size_t *length)
{
    if (disk.plan.cached_code < 0)
        return disk.plan.cached_code;
    unsigned kind = disk.plan.is_mixed ? roll(8) : 8;
    if (kind < 2)
        return kind == 0 ? -EAGAIN : -EOPNOTSUPP;
    if (kind < 4)
        *length = kind == 2 ? 0 : 1 + roll((unsigned)*length);
    disk.seen.hits += *length > 0;
    return 0;
}

static int ask_disk(void *arg, const char *call, size_t *length)
{
    (void)arg;
    int code = 0;
    pthread_mutex_lock(&disk.lock);
    if (strcmp(call, "pread") == 0)
        code = read_from_disk(length);
    else if (strcmp(call, "pread_cached") == 0)
        code = read_from_cache(length);
    else if (strcmp(call, "pthread_create") == 0)
        code = disk.plan.thread_code;
    pthread_mutex_unlock(&disk.lock);
    return code;
}

static void use_disk(plan next)
{
    pthread_mutex_lock(&disk.lock);
    disk.plan = next;
    disk.seen = (counts){ 0 };
    pthread_mutex_unlock(&disk.lock);
    weir_fault_set(ask_disk, NULL);
}

/* No byte is in the page cache, and from that pread on the disk does not answer. */
static void use_stuck_disk(unsigned from)
{
    plan next = cold;
    next.stuck_from = from;
    use_disk(next);
}

static void release_disk(void)
{
    pthread_mutex_lock(&disk.lock);
    disk.plan.stuck_from = 0;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
}

static counts disk_counts(void)
{
    pthread_mutex_lock(&disk.lock);
    counts seen = disk.seen;
    pthread_mutex_unlock(&disk.lock);
    return seen;
}

static bool has_waiting_read(void)
{
    return disk_counts().waiting > 0;
}

/* All threads that read have ended, and what they had to bring back has been brought. */
static void wait_for_readers(void)
{
    assert_int_equal(weir_executor_global_wait_idle(WEIR_MS(PATIENCE_MS)), 0);
}

/* A case whatever happened in it: a disk that is stuck would stop the next ones as well. */
static int end_disk(void **state)
{
    release_disk();
    int code = end_case(state);
    weir_fault_set(NULL, NULL);
    return code;
}

#define disk_case(backend, title, name)                                                            \
    {                                                                                              \
        title, name, begin_case, end_disk, &backends[backend]                                      \
    }
#define disk_loop_cases(name) disk_case(EPOLL, #name, name), disk_case(URING, #name "_uring", name)
#define disk_cases(name) disk_loop_cases(name), disk_case(BLOCKING, #name "_blocking", name)

/* Files and channels --------------------------------------------------------------------------- */

/* A file without a name, of the pattern. */
static int file_of(size_t length)
{
    char path[] = "/tmp/weir-test-file-input-XXXXXX";
    static uint8_t bytes[CHUNK];
    int fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    unlink(path);
    for (size_t at = 0; at < length; at += CHUNK) {
        size_t size = length - at < CHUNK ? length - at : CHUNK;
        fill_pattern(bytes, at, size);
        assert_int_equal(write(fd, bytes, size), (ssize_t)size);
    }
    return fd;
}

static weir_msg *region_of(int fd, size_t at, size_t length)
{
    weir_file_region *region = weir_file_region_new(fd, at, length);
    assert_non_null(region);
    return &region->msg;
}

static weir_msg *file_msg(size_t length)
{
    return region_of(file_of(length), 0, length);
}

/* Between the file bytes handler and the socket: whether chunks are written where they should be,
 * no more than one is read ahead, and none takes much more memory than it has bytes. */
typedef struct spy {
    atomic_size_t bytes;
    atomic_uint chunks;
    atomic_bool is_misplaced, is_ahead, is_wasteful;
} spy;

static void spy_write(weir_ctx *ctx, weir_msg *msg, weir_promise *promise)
{
    spy *self = weir_ctx_arg(ctx);
    if (!weir_executor_is_current(executor_of(weir_ctx_channel(ctx))))
        atomic_store(&self->is_misplaced, true);
    if (disk_counts().reads > atomic_load(&self->chunks) + 2) /* this one, and the next */
        atomic_store(&self->is_ahead, true);
    size_t length = weir_msg_size(msg), capacity = weir_buf_capacity((weir_buf *)msg);
    if (capacity > 1024 && capacity / 4 > length)
        atomic_store(&self->is_wasteful, true);
    atomic_fetch_add(&self->bytes, length);
    atomic_fetch_add(&self->chunks, 1);
    weir_ctx_write(ctx, msg, promise);
}

static const weir_handler_type spy_type = { .name = "spy", .write = spy_write };

static void add_files(weir_channel *channel, spy *seen, weir_group *readers)
{
    weir_pipeline *pipeline = weir_channel_pipeline(channel);
    weir_handler_config files = { .type = &weir_file_bytes_handler, .name = "files" };
    files.place = WEIR_PLACE_LAST;
    files.group = readers;
    assert_int_equal(weir_pipeline_add_last(pipeline, "spy", &spy_type, seen), 0);
    assert_int_equal(weir_pipeline_add(pipeline, &files, NULL), 0);
}

/* A channel that sends files, and its peer. */
static weir_channel *open_sender(spy *seen, record *seen_in, int *peer)
{
    weir_channel *channel = half_pair(TCP, NULL, peer);
    add_files(channel, seen, NULL);
    if (seen_in != NULL)
        add_record(channel, seen_in);
    assert_int_equal(register_it(channel), 0);
    WAIT_FOR(weir_channel_is_active(channel));
    return channel;
}

static weir_promise *start_write(weir_channel *channel, weir_msg *msg)
{
    weir_promise *promise = promise_of(channel);
    weir_channel_write_and_flush(channel, msg, promise);
    return promise;
}

static void end_sender(weir_channel *channel, int peer)
{
    end_channel(channel);
    close(peer);
}

/* Slow disks ----------------------------------------------------------------------------------- */

static void echo_once(weir_channel *channel, record *seen, int peer)
{
    size_t before = atomic_load(&seen->bytes);
    peer_send(peer, "ping", 4);
    peer_expect_text(peer, "ping");
    WAIT_FOR(atomic_load(&seen->bytes) == before + 4);
    assert_true(weir_channel_is_active(channel));
}

static void slow_disk_stalls_no_other_channel(void **state)
{
    (void)state;
    spy seen = { 0 };
    record echo = { .is_echo = true };
    int peer, other_peer;
    weir_channel *channel = open_sender(&seen, NULL, &peer);
    weir_channel *other = half_pair(TCP, &echo, &other_peer);
    weir_promise *registered = promise_of(other);
    weir_channel_register(other, executor_of(channel), registered);
    assert_int_equal(outcome(registered), 0);
    assert_ptr_equal(weir_channel_loop(other), weir_channel_loop(channel));
    use_stuck_disk(1);
    weir_promise *written = start_write(channel, file_msg(5 * CHUNK + 7));
    WAIT_FOR(has_waiting_read());
    for (int i = 0; i < 10; i++)
        echo_once(other, &echo, other_peer);
    assert_true(has_waiting_read());
    assert_int_equal(weir_future_code(weir_promise_future(written)), -EINPROGRESS);
    release_disk();
    peer_expect_pattern(peer, 0, 5 * CHUNK + 7);
    assert_int_equal(outcome(written), 0);
    assert_int_equal(disk_counts().on_executor, 0);
    assert_false(atomic_load(&seen.is_misplaced));
    end_sender(other, other_peer);
    end_sender(channel, peer);
}

/* The channel itself still receives, and a write after the file waits for it. */
static void slow_disk_stalls_no_input_of_its_channel(void **state)
{
    (void)state;
    spy seen = { 0 };
    record in = { 0 };
    int peer;
    weir_channel *channel = open_sender(&seen, &in, &peer);
    use_stuck_disk(1);
    weir_promise *written = start_write(channel, file_msg(CHUNK));
    weir_promise *behind = start_write(channel, pattern_msg(CHUNK, 100));
    WAIT_FOR(has_waiting_read());
    peer_send(peer, "ping", 4);
    WAIT_FOR(atomic_load(&in.bytes) == 4);
    assert_true(has_waiting_read());
    assert_int_equal(atomic_load(&seen.bytes), 0);
    release_disk();
    peer_expect_pattern(peer, 0, CHUNK + 100);
    assert_int_equal(outcome(written), 0);
    assert_int_equal(outcome(behind), 0);
    end_sender(channel, peer);
}

static void cached_file_is_read_on_the_loop(void **state)
{
    (void)state;
    spy seen = { 0 };
    int peer;
    weir_channel *channel = open_sender(&seen, NULL, &peer);
    weir_msg *file = file_msg(5 * CHUNK);
    use_disk((plan){
        .thread_code = -EAGAIN }); /* if the kernel has dropped a page, it is read on the loop */
    weir_promise *written = start_write(channel, file);
    peer_expect_pattern(peer, 0, 5 * CHUNK);
    assert_int_equal(outcome(written), 0);
    assert_true(disk_counts().reads < atomic_load(&seen.chunks));
    end_sender(channel, peer);
}

/* A peer that does not read bounds how much of the file is in memory. */
static void one_chunk_is_read_ahead_and_no_more(void **state)
{
    (void)state;
    enum { CHUNKS = 200 };
    spy seen = { 0 };
    int peer;
    weir_channel *channel = open_sender(&seen, NULL, &peer);
    use_disk(cold);
    weir_promise *written = start_write(channel, file_msg(CHUNKS * CHUNK));
    WAIT_FOR(!weir_channel_is_writable(channel));
    wait_for_readers();
    WAIT_FOR(!weir_channel_is_writable(channel) &&
             disk_counts().reads == atomic_load(&seen.chunks) + 1);
    assert_true(atomic_load(&seen.chunks) < CHUNKS);
    peer_expect_pattern(peer, 0, CHUNKS * CHUNK);
    assert_int_equal(outcome(written), 0);
    assert_int_equal(disk_counts().reads, CHUNKS);
    assert_false(atomic_load(&seen.is_ahead));
    assert_int_equal(disk_counts().on_executor, 0);
    end_sender(channel, peer);
}

/* Many files, some of whose bytes are in the page cache. */
static void hits_and_misses_deliver_every_byte_in_order(void **state)
{
    (void)state;
    enum { FILES = 60 };
    size_t total = 0, lengths[FILES];
    spy seen = { 0 };
    int peer;
    weir_channel *channel = open_sender(&seen, NULL, &peer);
    disk.random = 21;
    for (int i = 0; i < FILES; i++)
        total += lengths[i] = i % 10 == 9 ? 0 : 1 + roll(32000) * (1 + roll(8));
    int fd = file_of(total);
    use_disk((plan){ .is_mixed = true });
    weir_promise *written[FILES];
    for (size_t i = 0, at = 0; i < FILES; at += lengths[i++])
        written[i] = start_write(channel, region_of(dup(fd), at, lengths[i]));
    assert_true(total > 2 * MIB);
    peer_expect_pattern(peer, 0, total);
    for (int i = 0; i < FILES; i++)
        assert_int_equal(outcome(written[i]), 0);
    assert_true(disk_counts().hits > 10);
    assert_true(disk_counts().reads > 10);
    assert_int_equal(disk_counts().on_executor, 0);
    assert_false(atomic_load(&seen.is_misplaced));
    assert_false(atomic_load(&seen.is_wasteful));
    close(fd);
    end_sender(channel, peer);
}

static void file_system_without_nowait_is_read_by_threads(void **state)
{
    (void)state;
    spy seen = { 0 };
    int peer;
    weir_channel *channel = open_sender(&seen, NULL, &peer);
    use_disk((plan){ .cached_code = -EOPNOTSUPP });
    weir_promise *written = start_write(channel, file_msg(3 * CHUNK));
    peer_expect_pattern(peer, 0, 3 * CHUNK);
    assert_int_equal(outcome(written), 0);
    assert_int_equal(disk_counts().reads, 3);
    assert_int_equal(disk_counts().on_executor, 0);
    end_sender(channel, peer);
}

/* Where there is no other thread --------------------------------------------------------------- */

static void without_a_thread_the_loop_reads(void **state)
{
    (void)state;
    spy seen = { 0 };
    int peer;
    weir_channel *channel = open_sender(&seen, NULL, &peer);
    use_disk((plan){ .cached_code = -EAGAIN, .thread_code = -EAGAIN });
    weir_promise *written = start_write(channel, file_msg(3 * CHUNK));
    peer_expect_pattern(peer, 0, 3 * CHUNK);
    assert_int_equal(outcome(written), 0);
    assert_int_equal(disk_counts().reads, 3);
    assert_int_equal(disk_counts().on_executor, 3);
    end_sender(channel, peer);
}

static int init_embedded(weir_channel *channel, void *arg)
{
    add_files(channel, arg, NULL);
    return 0;
}

static void manual_group_reads_on_the_loop(void **state)
{
    (void)state;
    spy seen = { 0 };
    weir_embedded *embedded;
    weir_embedded_config config = { .init = init_embedded, .arg = &seen };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    use_disk(cold);
    weir_promise *written = start_write(weir_embedded_channel(embedded), file_msg(3 * CHUNK));
    weir_embedded_run(embedded);
    assert_int_equal(outcome(written), 0);
    assert_int_equal(disk_counts().on_executor, 3);
    assert_int_equal(disk_counts().reads, 3);
    assert_int_equal(atomic_load(&seen.bytes), 3 * CHUNK);
    weir_embedded_free(embedded);
}

/* On an executor of its own the handler does not wait for the disk, either. */
static void offloaded_handler_gets_the_chunks(void **state)
{
    (void)state;
    spy seen = { 0 };
    int peer;
    weir_group *readers = NULL;
    assert_int_equal(weir_group_new_executors(&readers, &(weir_group_config){ .count = 1 }, NULL),
                     0);
    weir_channel *channel = half_pair(TCP, NULL, &peer);
    add_files(channel, &seen, readers);
    assert_int_equal(register_it(channel), 0);
    use_stuck_disk(3);
    weir_promise *written = start_write(channel, file_msg(20 * CHUNK));
    WAIT_FOR(has_waiting_read());
    settle(weir_group_at(readers, 0));
    release_disk();
    peer_expect_pattern(peer, 0, 20 * CHUNK);
    assert_int_equal(outcome(written), 0);
    assert_int_equal(disk_counts().reads, 20);
    assert_int_equal(disk_counts().on_executor, 0);
    assert_false(atomic_load(&seen.is_misplaced));
    end_sender(channel, peer);
    end_group(readers);
}

/* Failures ------------------------------------------------------------------------------------- */

/* The chunks before it are sent. */
static void failed_read_closes_the_channel_with_its_code(void **state)
{
    (void)state;
    for (unsigned failing = 1; failing <= 3; failing++) {
        for (int has_promise = 0; has_promise < 2; has_promise++) {
            spy seen = { 0 };
            record in = { 0 };
            int peer;
            weir_channel *channel = open_sender(&seen, &in, &peer);
            use_disk((plan){ .cached_code = -EAGAIN, .failing = failing });
            weir_msg *file = file_msg(5 * CHUNK);
            weir_promise *written = has_promise ? start_write(channel, file) : NULL;
            if (!has_promise)
                weir_channel_write_and_flush(channel, file, NULL);
            peer_expect_pattern(peer, 0, (failing - 1) * CHUNK);
            peer_expect_over(peer);
            if (has_promise)
                assert_int_equal(outcome(written), -EIO);
            wait_for_close(channel);
            assert_int_equal(atomic_load(&in.error), has_promise ? 0 : -EIO);
            assert_int_equal(atomic_load(&in.inactives), 1);
            assert_int_equal(disk_counts().on_executor, 0);
            assert_false(atomic_load(&seen.is_misplaced));
            weir_channel_release(channel);
            close(peer);
        }
    }
}

static void file_that_is_truncated_meanwhile_closes_the_channel(void **state)
{
    (void)state;
    spy seen = { 0 };
    int peer;
    int fd = file_of(10 * CHUNK);
    weir_channel *channel = open_sender(&seen, NULL, &peer);
    use_stuck_disk(3);
    weir_promise *written = start_write(channel, region_of(dup(fd), 0, 10 * CHUNK));
    weir_promise *behind = start_write(channel, text_msg("behind"));
    peer_expect_pattern(peer, 0, 2 * CHUNK);
    WAIT_FOR(has_waiting_read());
    assert_int_equal(ftruncate(fd, 2 * CHUNK + CHUNK / 2), 0);
    release_disk();
    peer_expect_pattern(peer, 2 * CHUNK, CHUNK / 2);
    peer_expect_over(peer);
    assert_int_equal(outcome(written), WEIR_EOF);
    assert_int_equal(outcome(behind), WEIR_ECLOSED);
    wait_for_close(channel);
    weir_channel_release(channel);
    close(peer);
    close(fd);
}

/* Ends while a read is in flight --------------------------------------------------------------- */

/* For the first chunk, which the handler waits for, and for one that is read ahead. */
static void close_does_not_wait_for_the_disk(void **state)
{
    (void)state;
    for (unsigned from = 1; from <= 3; from++) {
        spy seen = { 0 };
        record in = { 0 };
        int peer;
        weir_channel *channel = open_sender(&seen, &in, &peer);
        use_stuck_disk(from);
        weir_promise *written = start_write(channel, file_msg(5 * CHUNK));
        WAIT_FOR(has_waiting_read());
        assert_int_equal(close_it(channel), 0);
        assert_int_equal(outcome(written), WEIR_ECLOSED);
        wait_for_close(channel);
        weir_channel_release(channel);
        assert_true(has_waiting_read());
        release_disk();
        wait_for_readers();
        assert_true(atomic_load(&seen.chunks) < from);
        assert_int_equal(atomic_load(&in.inactives), 1);
        close(peer);
    }
}

static void removed_handler_does_not_wait_for_the_disk(void **state)
{
    (void)state;
    spy seen = { 0 };
    int peer;
    weir_channel *channel = open_sender(&seen, NULL, &peer);
    use_stuck_disk(1);
    weir_promise *written = start_write(channel, file_msg(5 * CHUNK));
    WAIT_FOR(has_waiting_read());
    assert_int_equal(weir_pipeline_remove(weir_channel_pipeline(channel), "files", NULL), 0);
    assert_int_equal(outcome(written), -ECANCELED);
    assert_true(has_waiting_read());
    release_disk();
    wait_for_readers();
    assert_int_equal(atomic_load(&seen.chunks), 0);
    assert_int_equal(write_it(channel, text_msg("still here")), 0);
    peer_expect_text(peer, "still here");
    end_sender(channel, peer);
}

static void loop_ends_while_a_read_is_in_flight(void **state)
{
    (void)state;
    spy seen = { 0 };
    record in = { 0 };
    int peer;
    weir_channel *channel = open_sender(&seen, &in, &peer);
    use_stuck_disk(1);
    weir_promise *written = start_write(channel, file_msg(5 * CHUNK));
    WAIT_FOR(has_waiting_read());
    assert_int_equal(weir_group_shutdown(group, 0, WEIR_MS(PATIENCE_MS)), 0);
    assert_true(has_waiting_read());
    assert_int_equal(outcome(written), WEIR_ECLOSED);
    weir_channel_release(channel);
    weir_group_free(group);
    group = NULL;
    release_disk();
    wait_for_readers();
    assert_int_equal(atomic_load(&seen.chunks), 0);
    assert_int_equal(atomic_load(&in.inactives), 1);
    close(peer);
}

/* Other loops ---------------------------------------------------------------------------------- */

static void moved_channel_gets_its_chunks_on_the_new_loop(void **state)
{
    (void)state;
    spy seen = { 0 };
    int peer;
    weir_channel *channel = open_sender(&seen, NULL, &peer);
    use_stuck_disk(2);
    weir_promise *written = start_write(channel, file_msg(20 * CHUNK));
    WAIT_FOR(has_waiting_read());
    weir_executor *to = weir_group_at(group, 0);
    if (to == executor_of(channel))
        to = weir_group_at(group, 1);
    weir_promise *moved = promise_of(channel);
    weir_channel_move(channel, to, moved);
    assert_int_equal(outcome(moved), 0);
    assert_ptr_equal(executor_of(channel), to);
    assert_true(has_waiting_read());
    release_disk();
    peer_expect_pattern(peer, 0, 20 * CHUNK);
    assert_int_equal(outcome(written), 0);
    assert_false(atomic_load(&seen.is_misplaced));
    assert_int_equal(disk_counts().on_executor, 0);
    end_sender(channel, peer);
}

static weir_group *another_group(void)
{
    weir_group *made = NULL;
    weir_group_config config = { .loops = current->io == WEIR_IO_BLOCKING ? 0 : 1 };
    config.io = current->io;
    config.watchdog_ns = WEIR_OFF;
    assert_int_equal(weir_group_new(&made, &config, NULL), 0);
    return made;
}

/* The thread that reads must not run handlers, though there is no loop to run them on. */
static void channel_on_no_loop_gets_its_chunks_on_the_next_one(void **state)
{
    (void)state;
    spy seen = { 0 };
    int peer;
    weir_group *first = another_group();
    weir_channel *channel = half_pair(TCP, NULL, &peer);
    add_files(channel, &seen, NULL);
    weir_promise *registered = promise_of(channel), *left = promise_of(channel);
    weir_group_register(first, channel, registered);
    assert_int_equal(outcome(registered), 0);
    use_stuck_disk(1);
    weir_promise *written = start_write(channel, file_msg(20 * CHUNK));
    WAIT_FOR(has_waiting_read());
    weir_channel_deregister(channel, left);
    assert_int_equal(outcome(left), 0);
    assert_int_equal(weir_group_shutdown(first, 0, WEIR_MS(PATIENCE_MS)), 0);
    release_disk();
    wait_for_readers();
    assert_int_equal(atomic_load(&seen.chunks), 0);
    assert_int_equal(register_it(channel), 0);
    peer_expect_pattern(peer, 0, 20 * CHUNK);
    assert_int_equal(outcome(written), 0);
    assert_false(atomic_load(&seen.is_misplaced));
    end_sender(channel, peer);
    weir_group_free(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        disk_loop_cases(slow_disk_stalls_no_other_channel),
        disk_cases(slow_disk_stalls_no_input_of_its_channel),
        disk_cases(cached_file_is_read_on_the_loop),
        disk_cases(one_chunk_is_read_ahead_and_no_more),
        disk_cases(hits_and_misses_deliver_every_byte_in_order),
        disk_cases(file_system_without_nowait_is_read_by_threads),
        disk_cases(without_a_thread_the_loop_reads),
        disk_case(EPOLL, "manual_group_reads_on_the_loop", manual_group_reads_on_the_loop),
        disk_cases(offloaded_handler_gets_the_chunks),
        disk_cases(failed_read_closes_the_channel_with_its_code),
        disk_cases(file_that_is_truncated_meanwhile_closes_the_channel),
        disk_cases(close_does_not_wait_for_the_disk),
        disk_cases(removed_handler_does_not_wait_for_the_disk),
        disk_cases(loop_ends_while_a_read_is_in_flight),
        disk_loop_cases(moved_channel_gets_its_chunks_on_the_new_loop),
        disk_cases(channel_on_no_loop_gets_its_chunks_on_the_next_one),
    };
    return cmocka_run_group_tests_name("handler.file_input", tests, NULL, NULL);
}
