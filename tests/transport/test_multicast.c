/* SPDX-License-Identifier: MIT */
/* Multicast over the loopback interface. */
#include "transport/datagrams.h"

#include <ifaddrs.h>
#include <net/if.h>

/* Groups of this process alone: sockets that have joined none hear all that others here have. */
static const char *group_text(bool is_ipv6)
{
    static char text[64];
    unsigned id = (unsigned)getpid();
    if (is_ipv6)
        snprintf(text, sizeof text, "[ff12::%x:%x]:0", id >> 16 & 0xffff, id & 0xffff);
    else
        snprintf(text, sizeof text, "239.%u.%u.%u:0", 128 + (id >> 16 & 127), id >> 8 & 255,
                 id & 255);
    return text;
}

#define IPV4_GROUP group_text(false)
#define IPV6_GROUP group_text(true)

static unsigned loopback(void)
{
    unsigned index = if_nametoindex("lo");
    assert_true(index > 0);
    return index;
}

/* Linux sends no IPv6 multicast over lo, so another interface has to do that has an address; 0:
 * there is none. What it sends is heard here, too. */
static unsigned ipv6_interface(void)
{
    struct ifaddrs *list;
    unsigned index = 0;
    const unsigned wanted = IFF_UP | IFF_RUNNING | IFF_MULTICAST;
    assert_int_equal(getifaddrs(&list), 0);
    for (const struct ifaddrs *at = list; at != NULL && index == 0; at = at->ifa_next) {
        if (at->ifa_addr != NULL && at->ifa_addr->sa_family == AF_INET6 &&
            (at->ifa_flags & wanted) == wanted)
            index = if_nametoindex(at->ifa_name);
    }
    freeifaddrs(list);
    return index;
}

/* The group with the port of a channel. */
static weir_address group_at(const char *text, const weir_channel *channel)
{
    weir_address group = address_of(text), local = local_of(channel);
    weir_address_set_port(&group, weir_address_port(&local));
    return group;
}

static void prepare_sender(end *sender, unsigned interface)
{
    set_option(sender->channel, WEIR_OPTION_MULTICAST_INTERFACE, interface);
    set_option(sender->channel, WEIR_OPTION_MULTICAST_LOOP, 1);
    settle_channel(sender->channel);
}

/* A member hears it; before it joins and after it leaves, what comes is what is sent to it alone.
 */
static void join_and_leave(void **state, const char *any, const char *sender_at,
                           const char *group_at_text, const char *host, unsigned interface)
{
    weir_group *group = group_of(state, 1);
    end *member = end_bound(group, any), *sender = end_bound(group, sender_at);
    weir_address to = group_at(group_at_text, member->channel);
    weir_address alone = address_of(host);
    weir_address_set_port(&alone, weir_address_port(&to));
    prepare_sender(sender, interface);
    assert_int_equal(send_text(sender->channel, "early", &to), 0);
    assert_int_equal(send_text(sender->channel, "alone", &alone), 0);
    WAIT_FOR(atomic_load(&member->count) == 1);
    assert_true(got(member, 0, "alone"));
    assert_int_equal(weir_datagram_join(member->channel, &to, interface, NULL), 0);
    assert_int_equal(weir_datagram_join(member->channel, &to, interface, NULL), -EADDRINUSE);
    assert_int_equal(send_text(sender->channel, "heard", &to), 0);
    WAIT_FOR(atomic_load(&member->count) == 2);
    assert_true(got(member, 1, "heard"));
    assert_address(&datagram_at(member, 1)->recipient, &to);
    assert_int_equal(weir_datagram_leave(member->channel, &to, interface, NULL), 0);
    assert_int_equal(weir_datagram_leave(member->channel, &to, interface, NULL), -EADDRNOTAVAIL);
    assert_int_equal(send_text(sender->channel, "late", &to), 0);
    assert_int_equal(send_text(sender->channel, "alone", &alone), 0);
    WAIT_FOR(atomic_load(&member->count) == 3);
    assert_true(got(member, 2, "alone"));
    end_close(member);
    end_close(sender);
    end_group(group);
}

static void members_hear_the_group(void **state)
{
    join_and_leave(state, "0.0.0.0:0", "127.0.0.1:0", IPV4_GROUP, "127.0.0.1:0", loopback());
}

static void members_hear_the_group_by_ipv6(void **state)
{
    if (ipv6_interface() > 0)
        join_and_leave(state, "[::]:0", "[::]:0", IPV6_GROUP, "[::1]:0", ipv6_interface());
    weir_group *group = group_of(state, 1);
    end *member = end_bound(group, "[::]:0");
    weir_address to = address_of(IPV6_GROUP), source = address_of("[::1]:0");
    assert_int_equal(weir_datagram_join(member->channel, &to, loopback(), NULL), 0);
    assert_int_equal(weir_datagram_leave(member->channel, &to, loopback(), NULL), 0);
    assert_int_equal(weir_datagram_join(member->channel, &to, loopback(), &source), 0);
    assert_int_equal(weir_datagram_leave(member->channel, &to, loopback(), &source), 0);
    end_close(member);
    end_group(group);
}

/* The group is no address to answer from. */
static void an_answer_to_what_the_group_was_asked_arrives(void **state)
{
    weir_group *group = group_of(state, 1);
    end *member = end_bound(group, "0.0.0.0:0"), *sender = end_bound(group, "127.0.0.1:0");
    weir_address to = group_at(IPV4_GROUP, member->channel);
    prepare_sender(sender, loopback());
    assert_int_equal(weir_datagram_join(member->channel, &to, loopback(), NULL), 0);
    assert_int_equal(send_text(sender->channel, "?", &to), 0);
    WAIT_FOR(atomic_load(&member->count) == 1);
    weir_datagram *answer = weir_datagram_answer(datagram_at(member, 0), text_buf("!"));
    weir_promise *promise = weir_channel_promise(member->channel);
    weir_channel_write_and_flush(member->channel, &answer->msg, promise);
    assert_int_equal(end_of(promise), 0);
    WAIT_FOR(atomic_load(&sender->count) == 1);
    assert_true(got(sender, 0, "!"));
    end_close(member);
    end_close(sender);
    end_group(group);
}

static void of_one_source_only(void **state)
{
    weir_group *group = group_of(state, 1);
    end *member = end_bound(group, "0.0.0.0:0");
    end *liked = end_bound(group, "127.0.0.1:0"), *other = end_bound(group, "127.0.0.2:0");
    weir_address to = group_at(IPV4_GROUP, member->channel), source = address_of("127.0.0.1:0");
    prepare_sender(liked, loopback());
    prepare_sender(other, loopback());
    assert_int_equal(weir_datagram_join(member->channel, &to, loopback(), &source), 0);
    assert_int_equal(send_text(other->channel, "other", &to), 0);
    assert_int_equal(send_text(liked->channel, "liked", &to), 0);
    WAIT_FOR(atomic_load(&member->count) == 1);
    assert_true(got(member, 0, "liked"));
    assert_int_equal(weir_datagram_leave(member->channel, &to, loopback(), &source), 0);
    end_close(member);
    end_close(liked);
    end_close(other);
    end_group(group);
}

/* What others on this machine have joined comes to all at the port, unless they want only their
 * own.
 */
static void only_what_it_joined_itself(void **state)
{
    weir_group *group = group_of(state, 1);
    end *member = end_open(group, "0.0.0.0:0"), *sender = end_bound(group, "127.0.0.1:0");
    end *others[] = { end_open(group, "0.0.0.0:0"), end_open(group, "0.0.0.0:0") };
    set_option(member->channel, WEIR_OPTION_REUSE_ADDRESS, 1);
    assert_int_equal(bind_to(member->channel, "0.0.0.0:0"), 0);
    weir_address of_member = local_of(member->channel), to = group_at(IPV4_GROUP, member->channel);
    char same[32];
    snprintf(same, sizeof same, "0.0.0.0:%d", weir_address_port(&of_member));
    for (int all = 0; all < 2; all++) {
        set_option(others[all]->channel, WEIR_OPTION_REUSE_ADDRESS, 1);
        set_option(others[all]->channel, WEIR_OPTION_MULTICAST_ALL, all);
        assert_int_equal(bind_to(others[all]->channel, same), 0);
    }
    assert_int_equal(weir_datagram_join(member->channel, &to, loopback(), NULL), 0);
    prepare_sender(sender, loopback());
    assert_int_equal(send_text(sender->channel, "heard", &to), 0);
    WAIT_FOR(atomic_load(&member->count) == 1 && atomic_load(&others[1]->count) == 1);
    settle_channel(others[0]->channel); /* the kernel gave it to all of them at once */
    assert_int_equal(atomic_load(&others[0]->count), 0);
    end_close(member);
    end_close(sender);
    end_close(others[0]);
    end_close(others[1]);
    end_group(group);
}

static void what_does_not_fit_is_refused(void **state)
{
    char path[64];
    snprintf(path, sizeof path, "unix:@weir-test-multicast-%d", (int)getpid());
    weir_group *group = group_of(state, 1);
    end *member = end_bound(group, "0.0.0.0:0"), *not_udp = end_bound(group, path);
    weir_address to = address_of(IPV4_GROUP), host = address_of("127.0.0.1:0");
    weir_address ipv6 = address_of("[::1]:0");
    assert_int_equal(weir_datagram_join(NULL, &to, 0, NULL), -EINVAL);
    assert_int_equal(weir_datagram_join(member->channel, NULL, 0, NULL), -EINVAL);
    assert_int_equal(weir_datagram_join(member->channel, &host, 0, NULL), -EINVAL);
    assert_int_equal(weir_datagram_join(member->channel, &to, 0, &ipv6), -EINVAL);
    assert_int_equal(weir_datagram_join(not_udp->channel, &to, 0, NULL), -EOPNOTSUPP);
    assert_int_equal(weir_datagram_join(member->channel, &to, 1000000, NULL), -ENODEV);
    close_now(member->channel);
    assert_int_equal(weir_datagram_join(member->channel, &to, loopback(), NULL), WEIR_ECLOSED);
    assert_int_equal(weir_datagram_leave(member->channel, &to, loopback(), NULL), WEIR_ECLOSED);
    end_close(member);
    end_close(not_udp);
    end_group(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_EVERY_BACKEND(members_hear_the_group),
        ON_EVERY_BACKEND(members_hear_the_group_by_ipv6),
        ON_EVERY_BACKEND(an_answer_to_what_the_group_was_asked_arrives),
        ON_EVERY_BACKEND(of_one_source_only),
        ON_EVERY_BACKEND(only_what_it_joined_itself),
        ON_EVERY_BACKEND(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("transport.multicast", tests, NULL, NULL);
}
