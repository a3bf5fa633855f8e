/* SPDX-License-Identifier: MIT */
/* Datagram channels over real sockets: what is sent arrives, once, from whom and to whom it says.
 */
#include "transport/datagrams.h"

#include "base/sys.h"

#include <netinet/udp.h>

/* From and to ---------------------------------------------------------------------------------- */

static void round_trip(void **state, const char *here, const char *there)
{
    weir_group *group = group_of(state, 2);
    end *a = end_bound(group, here), *b = end_bound(group, there);
    weir_address of_a = local_of(a->channel), of_b = local_of(b->channel);
    assert_int_equal(send_text(a->channel, "hello", &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    assert_true(got(b, 0, "hello"));
    assert_address(&datagram_at(b, 0)->sender, &of_a);
    assert_address(&datagram_at(b, 0)->recipient, &of_b);
    assert_false(datagram_at(b, 0)->is_truncated);
    weir_datagram *answer = weir_datagram_answer(datagram_at(b, 0), text_buf("yes?"));
    weir_promise *promise = weir_channel_promise(b->channel);
    weir_channel_write_and_flush(b->channel, &answer->msg, promise);
    assert_int_equal(end_of(promise), 0);
    WAIT_FOR(atomic_load(&a->count) == 1);
    assert_true(got(a, 0, "yes?"));
    assert_address(&datagram_at(a, 0)->sender, &of_b);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void they_go_to_and_fro_by_ipv4(void **state)
{
    round_trip(state, "127.0.0.1:0", "127.0.0.1:0");
}

static void they_go_to_and_fro_by_ipv6(void **state)
{
    round_trip(state, "[::1]:0", "[::1]:0");
}

static void they_go_to_and_fro_by_abstract_names(void **state)
{
    char here[64], there[64];
    snprintf(here, sizeof here, "unix:@weir-test-datagram-a-%d", (int)getpid());
    snprintf(there, sizeof there, "unix:@weir-test-datagram-b-%d", (int)getpid());
    round_trip(state, here, there);
}

static void they_go_to_and_fro_by_paths(void **state)
{
    char here[64], there[64];
    path_for(here, sizeof here, "a");
    path_for(there, sizeof there, "b");
    round_trip(state, here, there);
    assert_int_equal(access(here + strlen("unix:"), F_OK), -1);
    assert_int_equal(access(there + strlen("unix:"), F_OK), -1);
}

static void a_sender_without_a_name_has_no_address(void **state)
{
    char there[64];
    path_for(there, sizeof there, "named");
    weir_group *group = group_of(state, 1);
    end *b = end_bound(group, there), *a = end_open(group, there);
    weir_address of_b = local_of(b->channel);
    assert_int_equal(connect_to(a->channel, &of_b), 0);
    weir_promise *promise = weir_channel_promise(a->channel);
    weir_channel_write_and_flush(a->channel, &text_buf("who?")->msg, promise);
    assert_int_equal(end_of(promise), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    assert_true(got(b, 0, "who?"));
    assert_int_equal(weir_address_kind_of(&datagram_at(b, 0)->sender), WEIR_ADDRESS_NONE);
    weir_datagram *answer = weir_datagram_answer(datagram_at(b, 0), text_buf("you"));
    promise = weir_channel_promise(b->channel);
    weir_channel_write_and_flush(b->channel, &answer->msg, promise);
    assert_int_equal(end_of(promise), -ENOTCONN);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Bound to all addresses, it says which one was meant, and answers from there. */
static void asked_and_answered(void **state, const char *any, const char *asker, const char *asked,
                               const char *asked_as)
{
    weir_group *group = group_of(state, 2);
    end *server = end_bound(group, any), *client = end_bound(group, asker);
    weir_address to = address_of(asked), expected = address_of(asked_as);
    weir_address of_server = local_of(server->channel);
    weir_address_set_port(&to, weir_address_port(&of_server));
    weir_address_set_port(&expected, weir_address_port(&of_server));
    assert_int_equal(send_text(client->channel, "?", &to), 0);
    WAIT_FOR(atomic_load(&server->count) == 1);
    assert_address(&datagram_at(server, 0)->recipient, &expected);
    weir_datagram *answer = weir_datagram_answer(datagram_at(server, 0), text_buf("!"));
    weir_promise *promise = weir_channel_promise(server->channel);
    weir_channel_write_and_flush(server->channel, &answer->msg, promise);
    assert_int_equal(end_of(promise), 0);
    WAIT_FOR(atomic_load(&client->count) == 1);
    weir_address sender = datagram_at(client, 0)->sender;
    assert_address(&sender, &to);
    end_close(server);
    end_close(client);
    end_group(group);
}

static void an_answer_comes_from_the_address_asked(void **state)
{
    asked_and_answered(state, "0.0.0.0:0", "127.0.0.1:0", "127.0.0.2:0", "127.0.0.2:0");
    asked_and_answered(state, "0.0.0.0:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0");
}

static void an_answer_comes_from_the_address_asked_by_ipv6(void **state)
{
    asked_and_answered(state, "[::]:0", "[::1]:0", "[::1]:0", "[::1]:0");
}

/* For both families IPv4 has the form of IPv6, as with listeners. */
static void an_answer_comes_from_the_address_asked_for_both_families(void **state)
{
    asked_and_answered(state, ":0", "127.0.0.1:0", "127.0.0.2:0", "[::ffff:127.0.0.2]:0");
}

static void an_address_without_that_form_can_be_written_to_as_well(void **state)
{
    weir_group *group = group_of(state, 1);
    end *both = end_bound(group, ":0"), *ipv4 = end_bound(group, "127.0.0.1:0");
    weir_address of_ipv4 = local_of(ipv4->channel), from = address_of("127.0.0.3:0");
    weir_datagram *datagram = weir_datagram_new(text_buf("x"), &of_ipv4, &from);
    weir_promise *promise = weir_channel_promise(both->channel);
    weir_channel_write_and_flush(both->channel, &datagram->msg, promise);
    assert_int_equal(end_of(promise), 0);
    WAIT_FOR(atomic_load(&ipv4->count) == 1);
    weir_address of_both = local_of(both->channel);
    weir_address_set_port(&from, weir_address_port(&of_both));
    assert_address(&datagram_at(ipv4, 0)->sender, &from);
    end_close(both);
    end_close(ipv4);
    end_group(group);
}

static void empty_ones_arrive(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    weir_promise *promises[3];
    promises[0] = write_buf(a->channel, text_buf(""), &of_b);
    promises[1] = write_buf(a->channel, text_buf("between"), &of_b);
    promises[2] = write_buf(a->channel, text_buf(""), &of_b);
    weir_channel_flush(a->channel);
    for (int i = 0; i < 3; i++)
        assert_int_equal(end_of(promises[i]), 0);
    WAIT_FOR(atomic_load(&b->count) == 3);
    assert_true(got(b, 0, ""));
    assert_true(got(b, 1, "between"));
    assert_true(got(b, 2, ""));
    end_close(a);
    end_close(b);
    end_group(group);
}

static void composites_arrive_in_one_piece(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    weir_buf *composite = weir_buf_new_composite();
    assert_int_equal(weir_buf_composite_add(composite, text_buf("in ")), 0);
    assert_int_equal(weir_buf_composite_add(composite, text_buf("pieces")), 0);
    assert_int_equal(send_buf(a->channel, composite, &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    assert_true(got(b, 0, "in pieces"));
    end_close(a);
    end_close(b);
    end_group(group);
}

/* The kernel takes 1,024 pieces: one of more is not sent in part. */
static void one_of_too_many_pieces_is_refused_whole(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    weir_promise *promises[4];
    for (int round = 0; round < 4; round++) {
        weir_buf *composite = weir_buf_new_composite();
        int pieces = round % 2 == 0 ? 1025 : 1024;
        for (int i = 0; i < pieces; i++)
            assert_int_equal(weir_buf_composite_add(composite, text_buf("x")), 0);
        promises[round] = write_buf(a->channel, composite, &of_b);
    }
    weir_channel_flush(a->channel);
    for (int i = 0; i < 4; i++)
        assert_int_equal(end_of(promises[i]), i % 2 == 0 ? -EMSGSIZE : 0);
    WAIT_FOR(atomic_load(&b->count) == 2);
    assert_int_equal(weir_buf_readable(datagram_at(b, 0)->content), 1024);
    assert_int_equal(weir_buf_readable(datagram_at(b, 1)->content), 1024);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Batches -------------------------------------------------------------------------------------- */

/* In windows, each of which is there before the receiver reads: how often that reads depends on
 * nothing else then. */
static void hundreds_of_them(void **state, const char *here, const char *there, size_t window)
{
    enum { MANY = 1000 };
    weir_group *group = group_of(state, 2);
    end *a = end_bound(group, here), *b = end_bound(group, there);
    weir_address of_b = local_of(b->channel);
    if (window == MANY) /* so that they wait when the receiver has no room */
        assert_int_equal(connect_to(a->channel, &of_b), 0);
    weir_loop_stats before_a = loop_stats_of(weir_channel_loop(a->channel)), after_a;
    weir_loop_stats before_b = loop_stats_of(weir_channel_loop(b->channel)), after_b;
    for (size_t sent = 0; sent < MANY; sent += window) {
        weir_promise *last = NULL;
        blocker held;
        if (window < MANY)
            block(&held, weir_loop_executor(weir_channel_loop(b->channel)));
        for (size_t i = sent; i < sent + window; i++) {
            char text[24];
            snprintf(text, sizeof text, "%zu", i);
            weir_promise_release(last);
            last = write_buf(a->channel, text_buf(text), &of_b);
        }
        weir_channel_flush(a->channel);
        assert_int_equal(end_of(last), 0);
        if (window < MANY)
            unblock(&held);
        WAIT_FOR(atomic_load(&b->count) == sent + window);
    }
    for (size_t i = 0; i < MANY; i++) {
        char text[24];
        snprintf(text, sizeof text, "%zu", i);
        assert_true(got(b, i, text));
    }
    settle_channel(b->channel);
    assert_true(atomic_load(&b->largest_batch) <= 16);
    if (window < MANY) { /* else they come one by one, as there is room for another */
        after_a = loop_stats_of(weir_channel_loop(a->channel));
        after_b = loop_stats_of(weir_channel_loop(b->channel));
        assert_true(after_a.sends - before_a.sends < MANY / 2);
        assert_true(after_b.receives - before_b.receives < MANY / 2);
    }
    weir_channel_stats stats;
    weir_channel_get_stats(a->channel, &stats);
    assert_int_equal(stats.messages_out, MANY);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void thousand_arrive_in_order_with_fewer_calls(void **state)
{
    hundreds_of_them(state, "127.0.0.1:0", "127.0.0.1:0", 100);
}

/* Connected, those wait in the sender's queue: the receiver has room for a few. */
static void thousand_arrive_in_order_over_unix(void **state)
{
    char here[64], there[64];
    path_for(here, sizeof here, "a");
    path_for(there, sizeof there, "b");
    hundreds_of_them(state, here, there, 1000);
}

/* The loop that would read is held until all have come: 16 of them, then read_complete. */
static void batches_are_of_sixteen(void **state)
{
    weir_group *group = group_of(state, 2);
    end *b = end_bound(group, "127.0.0.1:0"), *a = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    for (int warm = 0; warm < 40; warm++)
        assert_int_equal(send_text(a->channel, "warm", &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 40);
    blocker held;
    block(&held, weir_loop_executor(weir_channel_loop(b->channel)));
    for (int i = 0; i < 40; i++)
        assert_int_equal(send_text(a->channel, "cold", &of_b), 0);
    unblock(&held);
    WAIT_FOR(atomic_load(&b->count) == 80);
    settle_channel(b->channel);
    WAIT_FOR(atomic_load(&b->batch) == 0);
    assert_int_equal(atomic_load(&b->largest_batch), 16);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Writes come to the loop while it is held, so that they are one batch. */
static void a_cancelled_one_is_left_out_of_its_batch(void **state)
{
    weir_group *group = group_of(state, 2);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    weir_promise *promises[10];
    blocker held;
    block(&held, weir_loop_executor(weir_channel_loop(a->channel)));
    for (int i = 0; i < 10; i++) {
        char text[2] = { (char)('0' + i), '\0' };
        promises[i] = write_buf(a->channel, text_buf(text), &of_b);
    }
    weir_channel_flush(a->channel);
    const bool is_cancelled[10] = { [0] = true, [4] = true, [5] = true, [9] = true };
    for (int i = 0; i < 10; i++) {
        if (is_cancelled[i])
            assert_int_equal(weir_future_cancel(weir_promise_future(promises[i])), 0);
    }
    unblock(&held);
    for (int i = 0; i < 10; i++)
        assert_int_equal(end_of(promises[i]), is_cancelled[i] ? -ECANCELED : 0);
    WAIT_FOR(atomic_load(&b->count) == 6);
    const char *expected[] = { "1", "2", "3", "6", "7", "8" };
    for (size_t i = 0; i < 6; i++)
        assert_true(got(b, i, expected[i]));
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Failures ------------------------------------------------------------------------------------- */

static void a_bad_one_fails_alone(void **state)
{
    weir_group *group = group_of(state, 2);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel), ipv6 = address_of("[::1]:9");
    weir_address unix_path = address_of("unix:/nowhere");
    weir_promise *promises[8];
    blocker held;
    block(&held, weir_loop_executor(weir_channel_loop(a->channel)));
    promises[0] = write_buf(a->channel, text_buf("first"), &of_b);
    promises[1] = write_buf(a->channel, filled_buf(100000, 'x'), &of_b);
    promises[2] = write_buf(a->channel, text_buf("second"), &of_b);
    promises[3] = write_buf(a->channel, text_buf("wrong"), &ipv6);
    promises[4] = write_buf(a->channel, text_buf("wrong"), &unix_path);
    promises[5] = write_buf(a->channel, text_buf("nowhere"), NULL);
    promises[6] = write_buf(a->channel, text_buf("third"), &of_b);
    promises[7] = write_buf(a->channel, filled_buf(65508, 'x'), &of_b);
    weir_channel_flush(a->channel);
    unblock(&held);
    const int codes[8] = { 0, -EMSGSIZE, 0, -EAFNOSUPPORT, -EINVAL, -EDESTADDRREQ, 0, -EMSGSIZE };
    for (int i = 0; i < 8; i++)
        assert_int_equal(end_of(promises[i]), codes[i]);
    WAIT_FOR(atomic_load(&b->count) == 3);
    assert_true(got(b, 0, "first") && got(b, 1, "second") && got(b, 2, "third"));
    assert_true(weir_channel_is_active(a->channel));
    assert_int_equal(atomic_load(&a->errors), 0);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void without_a_promise_on_error_hears_of_it(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    weir_datagram *large = weir_datagram_new(filled_buf(100000, 'x'), &of_b, NULL);
    weir_channel_write_and_flush(a->channel, &large->msg, NULL);
    WAIT_FOR(atomic_load(&a->errors) == 1);
    assert_int_equal(atomic_load(&a->last_error), -EMSGSIZE);
    assert_true(weir_channel_is_active(a->channel));
    assert_int_equal(send_text(a->channel, "still there", &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void what_is_no_datagram_is_refused(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0");
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    weir_file_region *region = weir_file_region_new(fd, 0, 1);
    weir_promise *promise = weir_channel_promise(a->channel);
    weir_channel_write_and_flush(a->channel, &region->msg, promise);
    assert_int_equal(end_of(promise), -EOPNOTSUPP);
    end_close(a);
    end_group(group);
}

/* Sizes ---------------------------------------------------------------------------------------- */

static uint64_t truncated_of(const weir_channel *channel)
{
    weir_datagram_stats stats;
    assert_int_equal(weir_channel_datagram_stats(channel, &stats), 0);
    return stats.truncated;
}

static void one_that_is_too_long_is_dropped_and_counted(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    int64_t value;
    assert_int_equal(weir_channel_get_option(b->channel, WEIR_OPTION_MAX_DATAGRAM_BYTES, &value),
                     0);
    assert_int_equal(value, 2048);
    assert_int_equal(send_buf(a->channel, filled_buf(2048, 'a'), &of_b), 0);
    assert_int_equal(send_buf(a->channel, filled_buf(2049, 'b'), &of_b), 0);
    assert_int_equal(send_text(a->channel, "c", &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 2);
    assert_int_equal(weir_buf_readable(datagram_at(b, 0)->content), 2048);
    assert_true(got(b, 1, "c"));
    assert_int_equal(truncated_of(b->channel), 1);
    set_option(b->channel, WEIR_OPTION_MAX_DATAGRAM_BYTES, 65535);
    settle_channel(b->channel);
    assert_int_equal(send_buf(a->channel, filled_buf(65507, 'd'), &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 3);
    assert_int_equal(weir_buf_readable(datagram_at(b, 2)->content), 65507);
    set_option(b->channel, WEIR_OPTION_MAX_DATAGRAM_BYTES, 4);
    set_option(b->channel, WEIR_OPTION_DELIVER_TRUNCATED, 1);
    settle_channel(b->channel);
    assert_int_equal(weir_channel_get_option(b->channel, WEIR_OPTION_DELIVER_TRUNCATED, &value), 0);
    assert_int_equal(value, 1);
    assert_int_equal(send_text(a->channel, "1234", &of_b), 0);
    assert_int_equal(send_text(a->channel, "12345", &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 5);
    assert_true(got(b, 3, "1234") && !datagram_at(b, 3)->is_truncated);
    assert_true(got(b, 4, "1234") && datagram_at(b, 4)->is_truncated);
    assert_int_equal(truncated_of(b->channel), 2);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Stands between the kernel and the loops: sees what comes, and can say that a datagram was for
 * somebody else before it was redirected, which nothing on this machine does. */
static struct {
    int (*recvmmsg)(weir_sys *sys, int fd, struct mmsghdr *messages, unsigned count, int flags);
    atomic_int datagrams; /* as the kernel gives them */
    atomic_int originals; /* of them, those that say to whom they were first */
    atomic_bool redirects;
} between;

static weir_address redirected_address(const struct sockaddr *told)
{
    return address_of(told->sa_family == AF_INET ? "192.0.2.9:4321" : "[2001:db8::9]:4321");
}

static bool look_at_original(struct cmsghdr *at)
{
    if ((at->cmsg_level != IPPROTO_IP || at->cmsg_type != IP_ORIGDSTADDR) &&
        (at->cmsg_level != IPPROTO_IPV6 || at->cmsg_type != IPV6_ORIGDSTADDR))
        return false;
    struct sockaddr_storage told = { 0 };
    size_t length = at->cmsg_len - CMSG_LEN(0);
    memcpy(&told, CMSG_DATA(at), length);
    weir_address other = redirected_address((struct sockaddr *)&told);
    if (atomic_load(&between.redirects))
        memcpy(CMSG_DATA(at), weir_address_sockaddr(&other, NULL), length);
    return true;
}

static int receive_between(weir_sys *sys, int fd, struct mmsghdr *messages, unsigned count,
                           int flags)
{
    int came = between.recvmmsg(sys, fd, messages, count, flags);
    for (int i = 0; i < came; i++) {
        bool has_original = false;
        struct msghdr *message = &messages[i].msg_hdr;
        for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL; at = CMSG_NXTHDR(message, at))
            has_original |= look_at_original(at);
        atomic_fetch_add(&between.datagrams, 1);
        atomic_fetch_add(&between.originals, has_original);
    }
    return came;
}

/* Before there is a thread that could call it. */
static void stand_before_the_kernel(void)
{
    weir_sys *sys = weir__sys_linux();
    between.recvmmsg = sys->recvmmsg;
    sys->recvmmsg = receive_between;
    atomic_store(&between.datagrams, 0);
    atomic_store(&between.originals, 0);
    atomic_store(&between.redirects, false);
}

static void stand_aside(void)
{
    weir__sys_linux()->recvmmsg = between.recvmmsg;
}

static weir_promise *write_segments(weir_channel *channel, weir_buf *content,
                                    const weir_address *to, uint16_t segment_bytes)
{
    weir_promise *promise = weir_channel_promise(channel);
    weir_datagram *datagram = weir_datagram_new(content, to, NULL);
    datagram->segment_bytes = segment_bytes;
    weir_channel_write_and_flush(channel, &datagram->msg, promise);
    return promise;
}

static void segments(void **state, const char *here, bool is_offloading)
{
    stand_before_the_kernel();
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, here), *b = end_bound(group, here);
    weir_address of_a = local_of(a->channel), of_b = local_of(b->channel);
    if (is_offloading)
        set_option(b->channel, WEIR_OPTION_RECEIVE_OFFLOAD, 1);
    settle_channel(b->channel);
    weir_buf *content = weir_buf_new(2500);
    for (int i = 0; i < 2500; i++)
        weir_buf_write_fill(content, (uint8_t)(i / 1000), 1);
    assert_int_equal(end_of(write_segments(a->channel, content, &of_b, 1000)), 0);
    WAIT_FOR(atomic_load(&b->count) == 3);
    if (((const backend *)*state)->kind != WEIR_IO_URING) /* which does not call */
        assert_int_equal(atomic_load(&between.datagrams), is_offloading ? 1 : 3);
    for (size_t i = 0; i < 3; i++) {
        const weir_datagram *datagram = datagram_at(b, i);
        size_t length = i < 2 ? 1000 : 500;
        assert_int_equal(weir_buf_readable(datagram->content), length);
        const uint8_t *bytes = weir_buf_peek(datagram->content, weir_buf_reader(datagram->content),
                                             length);
        for (size_t k = 0; k < length; k++)
            assert_int_equal(bytes[k], i);
        assert_address(&datagram->sender, &of_a);
        assert_address(&datagram->recipient, &of_b);
        assert_int_equal(datagram->segment_bytes, 0);
    }
    /* Exact, and shorter than one. */
    assert_int_equal(end_of(write_segments(a->channel, filled_buf(64, 'x'), &of_b, 1)), 0);
    WAIT_FOR(atomic_load(&b->count) == 3 + 64);
    assert_int_equal(end_of(write_segments(a->channel, text_buf("short"), &of_b, 1000)), 0);
    WAIT_FOR(atomic_load(&b->count) == 3 + 64 + 1);
    assert_true(got(b, 3 + 64, "short"));
    assert_true(end_of(write_segments(a->channel, filled_buf(1000, 'x'), &of_b, 1)) < 0);
    assert_true(weir_channel_is_active(a->channel));
    end_close(a);
    end_close(b);
    end_group(group);
    stand_aside();
}

static void the_kernel_cuts_into_segments(void **state)
{
    segments(state, "127.0.0.1:0", false);
    segments(state, "[::1]:0", false);
}

static void the_kernel_puts_segments_together(void **state)
{
    segments(state, "127.0.0.1:0", true);
    segments(state, "[::1]:0", true);
}

/* Together they are longer than the limit, which is for each. */
static void with_offload_the_limit_is_for_each_datagram(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    set_option(b->channel, WEIR_OPTION_RECEIVE_OFFLOAD, 1);
    set_option(b->channel, WEIR_OPTION_MAX_DATAGRAM_BYTES, 1000);
    settle_channel(b->channel);
    assert_int_equal(end_of(write_segments(a->channel, filled_buf(2500, 'x'), &of_b, 1000)), 0);
    WAIT_FOR(atomic_load(&b->count) == 3);
    assert_int_equal(send_buf(a->channel, filled_buf(1001, 'y'), &of_b), 0);
    assert_int_equal(end_of(write_segments(a->channel, filled_buf(2500, 'z'), &of_b, 1200)), 0);
    WAIT_FOR(atomic_load(&b->count) == 4);
    assert_int_equal(weir_buf_readable(datagram_at(b, 3)->content), 100);
    assert_int_equal(truncated_of(b->channel), 3);
    set_option(b->channel, WEIR_OPTION_DELIVER_TRUNCATED, 1);
    settle_channel(b->channel);
    assert_int_equal(send_buf(a->channel, filled_buf(1001, 'y'), &of_b), 0);
    WAIT_FOR(atomic_load(&b->count) == 5);
    assert_true(datagram_at(b, 4)->is_truncated);
    assert_int_equal(weir_buf_readable(datagram_at(b, 4)->content), 1000);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void unix_datagrams_have_no_segments(void **state)
{
    char there[64];
    path_for(there, sizeof there, "segments");
    weir_group *group = group_of(state, 1);
    end *b = end_bound(group, there);
    weir_address of_b = local_of(b->channel);
    assert_int_equal(end_of(write_segments(b->channel, filled_buf(100, 'x'), &of_b, 10)),
                     -EOPNOTSUPP);
    end_close(b);
    end_group(group);
}

/* Broadcast ------------------------------------------------------------------------------------ */

static void broadcast_wants_its_option(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "0.0.0.0:0");
    weir_address all = address_of("127.255.255.255:0"), of_b = local_of(b->channel);
    weir_address_set_port(&all, weir_address_port(&of_b));
    assert_int_equal(send_text(a->channel, "all", &all), -EACCES);
    set_option(a->channel, WEIR_OPTION_BROADCAST, 1);
    settle_channel(a->channel);
    assert_int_equal(send_text(a->channel, "all", &all), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    assert_address(&datagram_at(b, 0)->recipient, &all);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* Asks everybody, and is answered by the one who hears it. */
static void everybody_asked(void **state, const char *at)
{
    weir_group *group = group_of(state, 2);
    end *asker = end_bound(group, "127.0.0.1:0"), *server = end_bound(group, at);
    weir_address all = address_of("127.255.255.255:0"), of_server = local_of(server->channel);
    weir_address_set_port(&all, weir_address_port(&of_server));
    set_option(asker->channel, WEIR_OPTION_BROADCAST, 1);
    settle_channel(asker->channel);
    assert_int_equal(send_text(asker->channel, "?", &all), 0);
    WAIT_FOR(atomic_load(&server->count) == 1);
    const weir_datagram *question = datagram_at(server, 0);
    weir_address recipient = question->recipient;
    weir_address_unmap(&recipient);
    assert_address(&recipient, &all);
    assert_int_equal(question->is_broadcast, weir_address_is_any(&of_server));
    weir_datagram *answer = weir_datagram_answer(question, text_buf("!"));
    weir_promise *promise = weir_channel_promise(server->channel);
    weir_channel_write_and_flush(server->channel, &answer->msg, promise);
    assert_int_equal(end_of(promise), 0);
    WAIT_FOR(atomic_load(&asker->count) == 1);
    assert_true(got(asker, 0, "!"));
    assert_false(datagram_at(asker, 0)->is_broadcast);
    end_close(asker);
    end_close(server);
    end_group(group);
}

static void an_answer_to_a_broadcast_arrives(void **state)
{
    everybody_asked(state, "0.0.0.0:0");
    everybody_asked(state, ":0");
    everybody_asked(state, "127.255.255.255:0");
}

/* Nothing of what else comes along is lost over it. */
static void original_recipient(void **state, const char *at, const char *asked, bool is_redirected)
{
    stand_before_the_kernel();
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, asked), *b = end_open(group, at);
    atomic_store(&between.redirects, is_redirected);
    set_option(b->channel, WEIR_OPTION_RECEIVE_ORIGINAL, 1);
    set_option(b->channel, WEIR_OPTION_RECEIVE_OFFLOAD, 1);
    assert_int_equal(bind_to(b->channel, at), 0);
    weir_address to = address_of(asked), of_b = local_of(b->channel);
    weir_address_set_port(&to, weir_address_port(&of_b));
    weir_address first = redirected_address(weir_address_sockaddr(&to, NULL));
    assert_int_equal(send_text(a->channel, "?", &to), 0);
    WAIT_FOR(atomic_load(&b->count) == 1);
    if (is_redirected)
        assert_int_equal(atomic_load(&between.originals), 1);
    weir_address recipient = datagram_at(b, 0)->recipient;
    weir_address_unmap(&recipient);
    assert_address(&recipient, is_redirected ? &first : &to);
    end_close(a);
    end_close(b);
    end_group(group);
    stand_aside();
}

/* Where nothing is redirected the original is what it is. */
static void a_recipient_is_the_same_by_both_ways_of_telling(void **state)
{
    original_recipient(state, "127.0.0.1:0", "127.0.0.1:0", false);
    original_recipient(state, "0.0.0.0:0", "127.0.0.1:0", false);
    original_recipient(state, "[::1]:0", "[::1]:0", false);
    original_recipient(state, "[::]:0", "[::1]:0", false);
    original_recipient(state, ":0", "[::1]:0", false);
    original_recipient(state, ":0", "127.0.0.1:0", false);
}

/* The kernel tells it when it is asked to, and it is believed, its port included. */
static void the_original_recipient_is_told(void **state)
{
    original_recipient(state, "127.0.0.1:0", "127.0.0.1:0", true);
    original_recipient(state, "0.0.0.0:0", "127.0.0.1:0", true);
    original_recipient(state, "[::1]:0", "[::1]:0", true);
    original_recipient(state, "[::]:0", "[::1]:0", true);
    original_recipient(state, ":0", "[::1]:0", true);
    original_recipient(state, ":0", "127.0.0.1:0", true);
}

static void options_can_be_read_back(void **state)
{
    static const weir_option_value values[] = {
        { WEIR_OPTION_BROADCAST, 1 },      { WEIR_OPTION_MULTICAST_TTL, 7 },
        { WEIR_OPTION_MULTICAST_LOOP, 0 }, { WEIR_OPTION_MULTICAST_INTERFACE, 1 },
        { WEIR_OPTION_MULTICAST_ALL, 0 },  { WEIR_OPTION_RECEIVE_ORIGINAL, 1 },
    };
    static const char *const families[] = { "127.0.0.1:0", "[::1]:0" };
    weir_group *group = group_of(state, 1);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        end *a = end_open(group, families[i]);
        for (size_t j = 0; j < sizeof values / sizeof *values; j++) {
            int64_t value = -1;
            set_option(a->channel, values[j].option, values[j].value);
            settle_channel(a->channel);
            assert_int_equal(weir_channel_get_option(a->channel, values[j].option, &value), 0);
            assert_int_equal(value, values[j].value);
        }
        end_close(a);
    }
    end_group(group);
}

/* Reading -------------------------------------------------------------------------------------- */

static void without_auto_read_each_read_brings_one(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    set_option(b->channel, WEIR_OPTION_AUTO_READ, 0);
    settle_channel(b->channel);
    for (int i = 0; i < 4; i++)
        assert_int_equal(send_text(a->channel, "x", &of_b), 0);
    settle_channel(b->channel);
    assert_int_equal(atomic_load(&b->count), 0);
    for (size_t i = 1; i <= 3; i++) {
        weir_channel_read(b->channel);
        WAIT_FOR(atomic_load(&b->count) == i);
        WAIT_FOR(atomic_load(&b->completes) == (int)i);
        settle_channel(b->channel);
        assert_int_equal(atomic_load(&b->count), i);
    }
    set_option(b->channel, WEIR_OPTION_AUTO_READ, 1);
    WAIT_FOR(atomic_load(&b->count) == 4);
    end_close(a);
    end_close(b);
    end_group(group);
}

/* One that is dropped is not the one that was asked for. */
static void a_read_is_not_used_up_by_one_that_is_dropped(void **state)
{
    weir_group *group = group_of(state, 1);
    end *a = end_bound(group, "127.0.0.1:0"), *b = end_bound(group, "127.0.0.1:0");
    weir_address of_b = local_of(b->channel);
    set_option(b->channel, WEIR_OPTION_AUTO_READ, 0);
    set_option(b->channel, WEIR_OPTION_MAX_DATAGRAM_BYTES, 4);
    settle_channel(b->channel);
    assert_int_equal(send_text(a->channel, "too long", &of_b), 0);
    assert_int_equal(send_text(a->channel, "fits", &of_b), 0);
    weir_channel_read(b->channel);
    WAIT_FOR(atomic_load(&b->count) == 1);
    WAIT_FOR(atomic_load(&b->completes) > 0);
    settle_channel(b->channel);
    assert_int_equal(atomic_load(&b->completes), 1);
    end_close(a);
    end_close(b);
    end_group(group);
}

static void close_on_third(weir_ctx *ctx, end *self, weir_msg *msg)
{
    (void)msg;
    if (atomic_load(&self->count) == 2)
        weir_ctx_close(ctx, NULL);
}

static void closing_in_on_read_ends_the_batch(void **state)
{
    for (int is_offloading = 0; is_offloading < 2; is_offloading++) {
        weir_group *group = group_of(state, 2);
        end *b = end_bound(group, "127.0.0.1:0"), *a = end_bound(group, "127.0.0.1:0");
        weir_address of_b = local_of(b->channel);
        b->then = close_on_third;
        set_option(b->channel, WEIR_OPTION_RECEIVE_OFFLOAD, is_offloading);
        settle_channel(b->channel);
        blocker held;
        block(&held, weir_loop_executor(weir_channel_loop(b->channel)));
        assert_int_equal(end_of(write_segments(a->channel, filled_buf(20, 'x'), &of_b, 1)), 0);
        unblock(&held);
        WAIT_FOR(weir_channel_get_state(b->channel) == WEIR_CHANNEL_UNREGISTERED);
        assert_int_equal(atomic_load(&b->count), 3);
        end_close(a);
        end_close(b);
        end_group(group);
    }
}

static void echo_back(weir_ctx *ctx, end *self, weir_msg *msg)
{
    (void)self;
    const weir_datagram *datagram = (const weir_datagram *)msg;
    weir_datagram *answer = weir_datagram_answer(datagram, weir_buf_retain(datagram->content));
    weir_ctx_write_and_flush(ctx, &answer->msg, NULL);
}

static void one_channel_can_talk_to_many(void **state)
{
    weir_group *group = group_of(state, 2);
    end *server = end_bound(group, "0.0.0.0:0");
    weir_address to = local_of(server->channel), host = address_of("127.0.0.1:0");
    weir_address_set_port(&host, weir_address_port(&to));
    server->then = echo_back;
    end *clients[8];
    for (int i = 0; i < 8; i++)
        clients[i] = end_bound(group, "127.0.0.1:0");
    for (size_t round = 1; round <= 20; round++) {
        for (int i = 0; i < 8; i++)
            assert_int_equal(send_text(clients[i]->channel, "echo", &host), 0);
        for (int i = 0; i < 8; i++)
            WAIT_FOR(atomic_load(&clients[i]->count) == round);
    }
    for (int i = 0; i < 8; i++)
        end_close(clients[i]);
    end_close(server);
    end_group(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_BACKEND(they_go_to_and_fro_by_ipv4),
        ON_EVERY_BACKEND(they_go_to_and_fro_by_ipv6),
        ON_EVERY_BACKEND(they_go_to_and_fro_by_abstract_names),
        ON_EVERY_BACKEND(they_go_to_and_fro_by_paths),
        ON_EVERY_BACKEND(a_sender_without_a_name_has_no_address),
        ON_EVERY_BACKEND(an_answer_comes_from_the_address_asked),
        ON_EVERY_BACKEND(an_answer_comes_from_the_address_asked_by_ipv6),
        ON_EVERY_BACKEND(an_answer_comes_from_the_address_asked_for_both_families),
        ON_EVERY_BACKEND(an_address_without_that_form_can_be_written_to_as_well),
        ON_EVERY_BACKEND(empty_ones_arrive),
        ON_EVERY_BACKEND(composites_arrive_in_one_piece),
        ON_EVERY_BACKEND(one_of_too_many_pieces_is_refused_whole),
        ON_EVERY_BACKEND(thousand_arrive_in_order_with_fewer_calls),
        ON_EVERY_BACKEND(thousand_arrive_in_order_over_unix),
        ON_EVERY_BACKEND(batches_are_of_sixteen),
        ON_EVERY_BACKEND(a_cancelled_one_is_left_out_of_its_batch),
        ON_EVERY_BACKEND(a_bad_one_fails_alone),
        ON_EVERY_BACKEND(without_a_promise_on_error_hears_of_it),
        ON_EVERY_BACKEND(what_is_no_datagram_is_refused),
        ON_EVERY_BACKEND(one_that_is_too_long_is_dropped_and_counted),
        ON_EVERY_BACKEND(the_kernel_cuts_into_segments),
        ON_EVERY_BACKEND(the_kernel_puts_segments_together),
        ON_EVERY_BACKEND(with_offload_the_limit_is_for_each_datagram),
        ON_EVERY_BACKEND(unix_datagrams_have_no_segments),
        ON_EVERY_BACKEND(broadcast_wants_its_option),
        ON_EVERY_BACKEND(an_answer_to_a_broadcast_arrives),
        ON_EVERY_BACKEND(a_recipient_is_the_same_by_both_ways_of_telling),
        ON_EVERY_BACKEND(the_original_recipient_is_told),
        ON_EVERY_BACKEND(options_can_be_read_back),
        ON_EVERY_BACKEND(without_auto_read_each_read_brings_one),
        ON_EVERY_BACKEND(a_read_is_not_used_up_by_one_that_is_dropped),
        ON_EVERY_BACKEND(closing_in_on_read_ends_the_batch),
        ON_EVERY_BACKEND(one_channel_can_talk_to_many),
    };
    return cmocka_run_group_tests_name("transport.datagram", tests, NULL, NULL);
}
