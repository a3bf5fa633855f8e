/* SPDX-License-Identifier: MIT */
/* The pcap handler: what it records is what passed, and others can read it. */
#include "exec/executors.h"

#include <weir/datagram.h>
#include <weir/descriptors.h>
#include <weir/embedded.h>
#include <weir/file.h>
#include <weir/pcap.h>
#include <weir/socket.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files ---------------------------------------------------------------------------------------- */

static char directory[64], path[96];

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/weir-test-pcap-XXXXXX");
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/recorded.pcap", directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static weir_pcap *open_pcap(weir_pcap_config config)
{
    weir_pcap *pcap;
    weir_error error;
    config.is_replacing = true;
    if (weir_pcap_open(&pcap, path, &config, &error) < 0)
        fail_msg("%s", error.message);
    return pcap;
}

/* A packet as it stands in the file. */
typedef struct packet {
    uint64_t time_ns;
    size_t known, whole; /* its length in the file, and really */
    int version;
    uint8_t protocol, flags;
    uint16_t from_port, to_port;
    uint8_t from[16], to[16];
    uint32_t seq, ack;
    const uint8_t *content;
    size_t length;
} packet;

enum { FIN = 1, SYN = 2, RST = 4, PSH = 8, ACK = 16, MOST_PACKETS = 60000 };

static uint8_t *file_bytes;
static packet packets[MOST_PACKETS];
static size_t packet_count;

static uint16_t number16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t number32(const uint8_t *at)
{
    return (uint32_t)number16(at) << 16 | number16(at + 2);
}

static void parse_packet(packet *self, const uint8_t *at)
{
    self->version = at[0] >> 4;
    size_t host = self->version == 4 ? 4 : 16, header = self->version == 4 ? 20 : 40;
    assert_int_equal(self->whole,
                     self->version == 4 ? number16(at + 2) : (size_t)40 + number16(at + 4));
    assert_true(self->whole <= 65535 + 40);
    self->protocol = at[self->version == 4 ? 9 : 6];
    memcpy(self->from, at + header - 2 * host, host);
    memcpy(self->to, at + header - host, host);
    at += header;
    self->from_port = number16(at);
    self->to_port = number16(at + 2);
    size_t transport = self->protocol == 17 ? 8 : 20;
    if (self->protocol == 6) {
        self->seq = number32(at + 4);
        self->ack = number32(at + 8);
        self->flags = at[13];
    }
    self->content = at + transport;
    self->length = self->whole - header - transport;
}

static void read_packets(void)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &facts), 0);
    size_t size = (size_t)facts.st_size;
    file_bytes = test_malloc(size);
    for (size_t at = 0; at < size;) {
        ssize_t came = read(fd, file_bytes + at, size - at);
        assert_true(came > 0);
        at += (size_t)came;
    }
    close(fd);
    uint32_t header[6], record[4];
    assert_true(size >= sizeof header);
    memcpy(header, file_bytes, sizeof header);
    assert_int_equal(header[0], 0xa1b23c4d);
    assert_int_equal(header[5], 101);
    packet_count = 0;
    for (size_t at = sizeof header; at < size; at += record[2]) {
        assert_true(size - at >= sizeof record);
        memcpy(record, file_bytes + at, sizeof record);
        at += sizeof record;
        assert_true(size - at >= record[2]);
        assert_true(record[2] <= record[3] && record[2] <= header[4]);
        assert_true(packet_count < MOST_PACKETS);
        packet *self = &packets[packet_count++];
        *self = (packet){ .time_ns = record[0] * 1000000000ull + record[1] };
        self->known = record[2];
        self->whole = record[3];
        parse_packet(self, file_bytes + at);
    }
}

static void forget_packets(void)
{
    test_free(file_bytes);
}

static void close_and_read(weir_pcap *pcap)
{
    assert_int_equal(weir_pcap_close(pcap), 0);
    read_packets();
}

/* The next packet is this one, from the port if there is one. */
static size_t looked_at;

static void expect(uint8_t flags, uint16_t from_port, const char *content)
{
    assert_true(looked_at < packet_count);
    const packet *self = &packets[looked_at++];
    assert_int_equal(self->flags, flags);
    if (from_port > 0)
        assert_int_equal(self->from_port, from_port);
    assert_int_equal(self->length, strlen(content));
    if (self->known == self->whole)
        assert_memory_equal(self->content, content, strlen(content));
}

static void expect_end(void)
{
    assert_int_equal(looked_at, packet_count);
    forget_packets();
    looked_at = 0;
}

/* Follows the streams: sequence numbers and acknowledgements fit, and the bytes of the one from a
 * port are these. */
typedef struct follower {
    uint32_t next[2]; /* by whether it comes from the port */
    uint8_t *bytes;
    size_t length;
    bool has_ended[2];
} follower;

static void follow(follower *self, uint16_t port, uint16_t other)
{
    for (size_t i = 0; i < packet_count; i++) {
        const packet *one = &packets[i];
        bool is_from = one->from_port == port && (other == 0 || one->to_port == other);
        bool is_to = one->to_port == port && (other == 0 || one->from_port == other);
        if (one->protocol != 6 || (!is_from && !is_to))
            continue;
        if (one->flags & SYN)
            self->next[is_from] = one->seq;
        assert_int_equal(one->seq, self->next[is_from]);
        if (one->flags & ACK)
            assert_int_equal(one->ack, self->next[!is_from]);
        assert_true(one->length == 0 || !self->has_ended[is_from]);
        self->next[is_from] += (uint32_t)one->length + (one->flags & (SYN | FIN) ? 1 : 0);
        self->has_ended[is_from] |= (one->flags & (FIN | RST)) != 0;
        if (is_from && one->known == one->whole) {
            memcpy(self->bytes + self->length, one->content, one->length);
            self->length += one->length;
        }
    }
}

/* tcpdump -------------------------------------------------------------------------------------- */

static unsigned digit(char hex)
{
    return (unsigned)(hex <= '9' ? hex - '0' : hex - 'a' + 10);
}

/* It reads the file, finds all checksums right, as many packets, and in them the same bytes. */
static void check_with_tcpdump(void)
{
    char command[256], line[1024];
    size_t found = 0, length = 0, lines = 0;
    snprintf(command, sizeof command, "tcpdump -nn -vv -x -r - < %s 2>&1", path);
    FILE *output = popen(command, "re");
    assert_non_null(output);
    while (fgets(line, sizeof line, output) != NULL) {
        lines++;
        unsigned at;
        int used;
        if (sscanf(line, " 0x%x: %n", &at, &used) < 1) {
            if (strstr(line, " bad ") != NULL || strstr(line, "[bad") != NULL ||
                strstr(line, "incorrect") != NULL)
                fail_msg("tcpdump: %s", line);
            continue;
        }
        if (at == 0) {
            if (found > 0)
                assert_int_equal(length, packets[found - 1].known);
            found++;
            length = 0;
        }
        assert_true(found <= packet_count);
        const packet *self = &packets[found - 1];
        size_t header = self->whole - self->length;
        for (const char *hex = line + used; *hex != 0 && *hex != '\n'; hex++) {
            if (*hex == ' ')
                continue;
            unsigned byte = digit(hex[0]) << 4 | digit(hex[1]);
            if (length >= header && length < self->known && byte != self->content[length - header])
                fail_msg("another byte at %zu of packet %zu", length, found);
            length++;
            hex++;
        }
    }
    if (pclose(output) != 0 || lines == 0)
        fail_msg("tcpdump (package tcpdump) did not read the file");
    assert_int_equal(found, packet_count);
}

/* Channels ------------------------------------------------------------------------------------- */

static int add_pcap(weir_channel *channel, void *arg)
{
    return weir_pipeline_add_last(weir_channel_pipeline(channel), "pcap", &weir_pcap_handler, arg);
}

static weir_embedded *open_channel(weir_pcap *pcap)
{
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_pcap, .arg = pcap };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), 0);
    return embedded;
}

static void drop_all(weir_embedded *embedded)
{
    while (weir_embedded_outbound_count(embedded) > 0)
        weir_msg_release(weir_embedded_read_outbound(embedded));
    while (weir_embedded_inbound_count(embedded) > 0)
        weir_msg_release(weir_embedded_read_inbound(embedded));
}

static void close_channel(weir_embedded *embedded)
{
    drop_all(embedded);
    assert_int_equal(weir_embedded_finish(embedded, NULL), 0);
    weir_embedded_free(embedded);
}

static weir_msg *text(const char *bytes)
{
    return &weir_buf_from(bytes, strlen(bytes))->msg;
}

/* The port that an embedded channel has: it is the one that connects. */
static uint16_t port_of(weir_embedded *embedded)
{
    return (uint16_t)weir_channel_id(weir_embedded_channel(embedded));
}

/* What is recorded ----------------------------------------------------------------------------- */

static void what_passes_is_recorded(void **state)
{
    (void)state;
    weir_virtual_clock clock;
    weir_virtual_clock_init(&clock, 1600000000123456789);
    weir_pcap *pcap = open_pcap((weir_pcap_config){ .clock = &clock.clock });
    weir_embedded *embedded = open_channel(pcap);
    uint16_t port = port_of(embedded);
    weir_virtual_clock_advance(&clock, 1);
    weir_embedded_write_outbound(embedded, text("question"));
    weir_virtual_clock_advance(&clock, 999999999);
    weir_embedded_write_inbound(embedded, text("answer"));
    weir_embedded_write_outbound(embedded, text(""));
    close_channel(embedded);
    close_and_read(pcap);
    check_with_tcpdump();
    assert_true(packets[0].time_ns == 1600000000123456789);
    assert_true(packets[3].time_ns == 1600000000123456790);
    assert_true(packets[5].time_ns == 1600000001123456789);
    static const uint8_t server[4] = { 192, 0, 2, 1 };
    assert_memory_equal(packets[0].to, server, 4);
    assert_int_equal(packets[0].from[0], 198);
    assert_int_equal(packets[0].seq, 0);
    assert_int_equal(packets[5].ack, 9);
    expect(SYN, port, "");
    expect(SYN | ACK, 1, "");
    expect(ACK, port, "");
    expect(PSH | ACK, port, "question");
    expect(ACK, 1, "");
    expect(PSH | ACK, 1, "answer");
    expect(ACK, port, "");
    expect(FIN | ACK, port, "");
    expect(ACK, 1, "");
    expect(FIN | ACK, 1, "");
    expect(ACK, port, "");
    expect_end();
}

static weir_buf *numbered(size_t length)
{
    weir_buf *buf = weir_buf_new(length);
    assert_non_null(buf);
    for (size_t i = 0; i < length; i++)
        weir_buf_write_u8(buf, (uint8_t)(i * 7 + (i >> 8)));
    return buf;
}

static void check_numbers(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != (uint8_t)(i * 7 + (i >> 8)))
            fail_msg("another byte at %zu", i);
    }
}

/* However they come: in one, in pieces of which some are odd, with a reader that has moved. */
static void large_messages_are_several_packets(void **state)
{
    (void)state;
    enum { LENGTH = 200001 };
    for (int is_composite = 0; is_composite < 2; is_composite++) {
        weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
        weir_embedded *embedded = open_channel(pcap);
        uint16_t port = port_of(embedded);
        weir_buf *buf = numbered(LENGTH), *whole = buf;
        if (is_composite) {
            whole = weir_buf_new_composite();
            weir_buf_composite_add(whole, weir_buf_from("skipped", 7));
            for (size_t at = 0; at < LENGTH; at += 3333) {
                weir_buf *piece;
                size_t length = LENGTH - at < 3333 ? LENGTH - at : 3333;
                assert_int_equal(weir_buf_retained_slice(buf, at, length, &piece), 0);
                weir_buf_composite_add(whole, piece);
            }
            weir_buf_release(buf);
            weir_buf_skip(whole, 7);
        }
        weir_embedded_write_outbound(embedded, &whole->msg);
        close_channel(embedded);
        close_and_read(pcap);
        check_with_tcpdump();
        follower self = { .bytes = test_malloc(LENGTH) };
        follow(&self, port, 0);
        assert_int_equal(self.length, LENGTH);
        check_numbers(self.bytes, LENGTH);
        assert_int_equal(packet_count, 3 + 4 * 2 + 4);
        test_free(self.bytes);
        forget_packets();
    }
}

static void what_is_not_kept_is_known_to_have_been(void **state)
{
    (void)state;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ .snap_bytes = 60 });
    weir_embedded *embedded = open_channel(pcap);
    weir_embedded_write_outbound(embedded, &numbered(1000)->msg);
    weir_embedded_write_outbound(embedded, text("short"));
    close_channel(embedded);
    close_and_read(pcap);
    assert_int_equal(packets[3].known, 60);
    assert_int_equal(packets[3].whole, 1040);
    assert_memory_equal(packets[5].content, "short", 5);
    check_numbers(packets[3].content, 20);
    check_with_tcpdump();
    follower self = { .bytes = test_malloc(2000) };
    follow(&self, packets[0].from_port, 0);
    test_free(self.bytes);
    forget_packets();
}

/* Files that the kernel sends are not read for it, and descriptors come with bytes. */
static void other_messages_are_recorded_as_far_as_they_can_be(void **state)
{
    (void)state;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
    weir_embedded *embedded = open_channel(pcap);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    weir_embedded_write_outbound(embedded, &weir_file_region_new(fd, 0, 70000)->msg);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    weir_descriptors *parcel = weir_descriptors_new(&fd, 1, weir_buf_from("with it", 7));
    assert_non_null(parcel);
    weir_embedded_write_outbound(embedded, &parcel->msg);
    weir_embedded_write_outbound(embedded, text("behind"));
    close_channel(embedded);
    close_and_read(pcap);
    check_with_tcpdump();
    assert_int_equal(packets[3].known, 40);
    assert_int_equal(packets[3].length + packets[5].length, 70000);
    assert_memory_equal(packets[7].content, "with it", 7);
    assert_memory_equal(packets[9].content, "behind", 6);
    follower self = { .bytes = test_malloc(2000) };
    follow(&self, packets[0].from_port, 0);
    assert_int_equal(self.length, 13);
    test_free(self.bytes);
    forget_packets();
}

/* Ends ----------------------------------------------------------------------------------------- */

static void the_other_side_ends_first(void **state)
{
    (void)state;
    for (int is_half = 0; is_half < 2; is_half++) {
        weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
        weir_embedded *embedded = open_channel(pcap);
        weir_channel *channel = weir_embedded_channel(embedded);
        uint16_t port = port_of(embedded);
        weir_channel_set_option(channel, WEIR_OPTION_ALLOW_HALF_CLOSURE, is_half, NULL);
        weir_embedded_run(embedded);
        weir_embedded_end_inbound(embedded, 0);
        if (is_half)
            weir_embedded_write_outbound(embedded, text("last words"));
        close_channel(embedded);
        close_and_read(pcap);
        looked_at = 3;
        expect(FIN | ACK, 1, "");
        expect(ACK, port, "");
        if (is_half) {
            expect(PSH | ACK, port, "last words");
            expect(ACK, 1, "");
        }
        expect(FIN | ACK, port, "");
        expect(ACK, 1, "");
        expect_end();
    }
}

static void this_side_ends_first(void **state)
{
    (void)state;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
    weir_embedded *embedded = open_channel(pcap);
    weir_channel *channel = weir_embedded_channel(embedded);
    uint16_t port = port_of(embedded);
    weir_channel_shutdown(channel, NULL);
    weir_embedded_run(embedded);
    weir_promise *late = weir_channel_promise(channel);
    weir_channel_write_and_flush(channel, text("too late"), late);
    weir_embedded_run(embedded);
    assert_int_equal(weir_future_code(weir_promise_future(late)), -EPIPE);
    weir_promise_release(late);
    weir_embedded_write_inbound(embedded, text("answer"));
    close_channel(embedded);
    close_and_read(pcap);
    looked_at = 3;
    expect(FIN | ACK, port, "");
    expect(ACK, 1, "");
    expect(PSH | ACK, 1, "answer");
    expect(ACK, port, "");
    expect(FIN | ACK, 1, "");
    expect(ACK, port, "");
    expect_end();
}

static void a_reset_is_one(void **state)
{
    (void)state;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
    weir_embedded *embedded = open_channel(pcap);
    weir_error error;
    weir_embedded_end_inbound(embedded, -ECONNRESET);
    assert_true(weir_embedded_take_error(embedded, &error));
    close_channel(embedded);
    close_and_read(pcap);
    check_with_tcpdump();
    looked_at = 3;
    expect(RST | ACK, 1, "");
    expect_end();
}

/* Real addresses ------------------------------------------------------------------------------- */

/* Sends back what comes. */
static void echo_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_ctx_write_and_flush(ctx, msg, NULL);
}

static const weir_handler_type echo = { .name = "echo", .on_read = echo_on_read };

static int add_echo(weir_channel *channel, void *arg)
{
    int code = add_pcap(channel, arg);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), "echo", &echo, NULL);
}

static int connect_plainly(const weir_address *address)
{
    size_t length;
    const struct sockaddr *name = weir_address_sockaddr(address, &length);
    int fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, name, (socklen_t)length), 0);
    return fd;
}

static void ask(int fd, const void *bytes, size_t length)
{
    assert_int_equal(send(fd, bytes, length, 0), (ssize_t)length);
    uint8_t *answer = test_malloc(length);
    assert_int_equal(recv(fd, answer, length, MSG_WAITALL), (ssize_t)length);
    assert_memory_equal(answer, bytes, length);
    test_free(answer);
}

static void echo_over(const char *address_text, int version)
{
    weir_group *group = NULL;
    weir_server *server = NULL;
    weir_address address;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 2 }, NULL), 0);
    weir_server_config config = { .boss = group, .workers = group, .init_child = add_echo };
    config.arg = pcap;
    assert_int_equal(weir_server_listen(&server, &config, address_text, NULL), 0);
    assert_int_equal(weir_server_address(server, &address), 0);
    int fd = connect_plainly(&address);
    struct sockaddr_in6 name;
    socklen_t size = sizeof name;
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &size), 0);
    ask(fd, "hello", 5);
    ask(fd, "world!", 6);
    close(fd);
    weir_server_close(server, NULL);
    weir_future_await(weir_server_closed(server));
    weir_server_release(server);
    end_group(group);
    close_and_read(pcap);
    check_with_tcpdump();
    assert_int_equal(packets[0].version, version);
    assert_int_equal(packets[0].flags, SYN); /* the client, which is the other side */
    if (version == 6)
        assert_int_equal(packets[0].from_port, ntohs(name.sin6_port));
    assert_int_equal(packets[0].to_port, weir_address_port(&address));
    for (int i = 0; i < 2; i++) {
        uint8_t bytes[100];
        follower self = { .bytes = bytes };
        follow(&self, i ? packets[0].from_port : packets[0].to_port, 0);
        assert_int_equal(self.length, 11);
        assert_memory_equal(bytes, "helloworld!", 11);
    }
    forget_packets();
}

static void tcp_is_recorded_with_its_addresses(void **state)
{
    (void)state;
    echo_over("127.0.0.1:0", 4);
    echo_over("[::1]:0", 6);
}

static void quit_on_read(weir_ctx *ctx, weir_msg *msg)
{
    weir_msg_release(msg);
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type quitter = { .name = "quitter", .on_read = quit_on_read };

static int add_quitter(weir_channel *channel, void *arg)
{
    int code = add_pcap(channel, arg);
    if (code == 0)
        code = weir_channel_set_option(channel, WEIR_OPTION_CLOSE_LINGER_NS, 0, NULL);
    return code < 0
               ? code
               : weir_pipeline_add_last(weir_channel_pipeline(channel), "quitter", &quitter, NULL);
}

/* A close that does not linger resets the connection. */
static void this_side_resets(void **state)
{
    (void)state;
    weir_group *group = NULL;
    weir_server *server = NULL;
    weir_address address;
    char byte;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 1 }, NULL), 0);
    weir_server_config config = { .boss = group, .workers = group, .init_child = add_quitter };
    config.arg = pcap;
    assert_int_equal(weir_server_listen(&server, &config, "127.0.0.1:0", NULL), 0);
    assert_int_equal(weir_server_address(server, &address), 0);
    int fd = connect_plainly(&address);
    assert_int_equal(send(fd, "x", 1, 0), 1);
    assert_int_equal(recv(fd, &byte, 1, 0), -1);
    assert_int_equal(errno, ECONNRESET);
    close(fd);
    weir_server_close(server, NULL);
    weir_future_await(weir_server_closed(server));
    weir_server_release(server);
    end_group(group);
    close_and_read(pcap);
    looked_at = 5;
    expect(RST | ACK, weir_address_port(&address), "");
    expect_end();
}

/* Datagrams ------------------------------------------------------------------------------------ */

static weir_channel *bind_datagrams(weir_group *group, const char *address_text, weir_pcap *pcap)
{
    weir_address address;
    weir_channel *channel;
    assert_int_equal(weir_address_parse(&address, address_text, NULL), 0);
    assert_int_equal(weir_channel_new(&channel, WEIR_SOCKET_DATAGRAM, &address, NULL), 0);
    assert_int_equal(add_pcap(channel, pcap), 0);
    weir_promise *promise = weir_channel_promise(channel);
    weir_group_register(group, channel, NULL);
    weir_channel_bind(channel, &address, promise);
    assert_int_equal(weir_future_await(weir_promise_future(promise)), 0);
    weir_promise_release(promise);
    return channel;
}

static void end_datagrams(weir_channel *channel)
{
    weir_channel_close(channel, NULL);
    weir_future_await(weir_channel_closed(channel));
    weir_channel_release(channel);
}

/* What one of them sends the other one reads: all of it stands there twice. */
static void datagrams_are_udp(void **state)
{
    (void)state;
    for (int version = 4; version <= 6; version += 2) {
        const char *any = version == 4 ? "127.0.0.1:0" : "[::1]:0";
        weir_group *group = NULL;
        weir_address to, from;
        weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
        assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 1 }, NULL), 0);
        weir_channel *a = bind_datagrams(group, any, pcap), *b = bind_datagrams(group, any, pcap);
        assert_int_equal(weir_channel_local_address(a, &from), 0);
        assert_int_equal(weir_channel_local_address(b, &to), 0);
        static const char *const contents[] = { "one", "", "three segments" };
        for (size_t i = 0; i < 3; i++) {
            weir_buf *content = weir_buf_from(contents[i], strlen(contents[i]));
            weir_datagram *datagram = weir_datagram_new(content, &to, NULL);
            datagram->segment_bytes = i == 2 ? 5 : 0;
            weir_channel_write_and_flush(a, &datagram->msg, NULL);
        }
        weir_channel_stats stats = { 0 };
        WAIT_FOR((weir_channel_get_stats(b, &stats), stats.messages_in >= 5));
        end_datagrams(a);
        end_datagrams(b);
        end_group(group);
        close_and_read(pcap);
        check_with_tcpdump();
        static const char *const parts[] = { "one", "", "three", " segm", "ents" };
        assert_int_equal(packet_count, 10);
        size_t seen[2] = { 0, 0 };
        for (size_t i = 0; i < packet_count; i++) {
            const packet *self = &packets[i];
            assert_int_equal(self->version, version);
            assert_int_equal(self->protocol, 17);
            assert_int_equal(self->from_port, weir_address_port(&from));
            assert_int_equal(self->to_port, weir_address_port(&to));
            for (size_t part = 0; part < 5; part++) {
                if (self->length == strlen(parts[part]) &&
                    memcmp(self->content, parts[part], self->length) == 0)
                    seen[part == 1]++;
            }
        }
        assert_int_equal(seen[0], 8);
        assert_int_equal(seen[1], 2);
        forget_packets();
    }
}

/* From a socket for both families to one of IPv4, and from an address of IPv6 all the same. */
static void families_that_differ_become_one(void **state)
{
    (void)state;
    static const struct row {
        const char *from, *to;
        int version;
    } rows[] = {
        { "[::]:5", "1.2.3.4:6", 4 },    { "[::]:5", "[::ffff:1.2.3.4]:6", 4 },
        { "[::1]:5", "1.2.3.4:6", 6 },   { "[::]:5", "[::2]:6", 6 },
        { "1.2.3.5:5", "1.2.3.4:6", 4 },
    };
    weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
    weir_embedded *embedded = open_channel(pcap);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weir_address from, to;
        assert_int_equal(weir_address_parse(&from, rows[i].from, NULL), 0);
        assert_int_equal(weir_address_parse(&to, rows[i].to, NULL), 0);
        weir_datagram *datagram = weir_datagram_new(weir_buf_from("x", 1), &to, &from);
        weir_embedded_write_outbound(embedded, &datagram->msg);
    }
    close_channel(embedded);
    close_and_read(pcap);
    check_with_tcpdump();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const packet *self = &packets[3 + i];
        assert_int_equal(self->version, rows[i].version);
        assert_int_equal(self->from_port, 5);
        assert_int_equal(self->to_port, 6);
    }
    static const uint8_t mapped[16] = { [10] = 0xff, 0xff, 1, 2, 3, 4 };
    assert_memory_equal(packets[5].to, mapped, 16);
    assert_memory_equal(packets[3].to, mapped + 12, 4);
    forget_packets();
}

/* Files ---------------------------------------------------------------------------------------- */

static void files_are_made_for_one_user(void **state)
{
    (void)state;
    weir_pcap *pcap, *second;
    weir_error error;
    struct stat facts;
    mode_t before = umask(0);
    unlink(path);
    assert_int_equal(weir_pcap_open(&pcap, path, NULL, NULL), 0);
    umask(before);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0600);
    assert_int_equal(facts.st_size, 24);
    assert_int_equal(weir_pcap_open(&second, path, NULL, &error), -EEXIST);
    assert_non_null(strstr(error.message, path));
    assert_int_equal(weir_pcap_close(pcap), 0);
    assert_int_equal(weir_pcap_close(NULL), 0);
    assert_int_equal(chmod(path, 0644), 0); /* what is replaced does not lend its mode */
    pcap = open_pcap((weir_pcap_config){ 0 });
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_mode & 07777, 0600);
    assert_int_equal(weir_pcap_close(pcap), 0);
    weir_pcap_config config = { .max_bytes = -2 };
    assert_int_equal(weir_pcap_open(&pcap, path, &config, &error), -EINVAL);
    assert_non_null(strstr(error.message, "-2"));
    assert_int_equal(weir_pcap_open(&pcap, "/nowhere/at/all", NULL, &error), -ENOENT);
    assert_non_null(strstr(error.message, "/nowhere/at/all"));
    assert_int_equal(weir_pcap_open(&pcap, NULL, NULL, &error), -EINVAL);
    assert_int_equal(weir_pcap_open(NULL, path, NULL, &error), -EINVAL);
    assert_int_equal(weir_pcap_flush(NULL), -EINVAL);
}

static void the_file_is_limited(void **state)
{
    (void)state;
    enum { LIMIT = 5000 };
    weir_pcap *pcap = open_pcap((weir_pcap_config){ .max_bytes = LIMIT });
    weir_embedded *embedded = open_channel(pcap);
    weir_pcap_stats stats;
    struct stat facts;
    harness_log_begin(WEIR_LOG_WARN);
    for (int i = 0; i < 40; i++)
        weir_embedded_write_outbound(embedded, &numbered(500)->msg);
    assert_true(harness_log_has("nothing more is recorded"));
    assert_int_equal(harness_log_end(), 1);
    assert_int_equal(weir_embedded_outbound_count(embedded), 40); /* nobody else noticed */
    close_channel(embedded);
    weir_pcap_get_stats(pcap, &stats);
    assert_int_equal(stats.code, WEIR_ELIMIT);
    assert_true(stats.bytes <= LIMIT && stats.bytes > LIMIT - 600);
    assert_int_equal(stats.packets + stats.dropped, 3 + 80 + 4);
    assert_int_equal(weir_pcap_flush(pcap), WEIR_ELIMIT);
    assert_int_equal(weir_pcap_close(pcap), WEIR_ELIMIT);
    assert_int_equal(stat(path, &facts), 0);
    assert_int_equal(facts.st_size, stats.bytes);
    read_packets();
    assert_int_equal(packet_count, stats.packets);
    check_with_tcpdump();
    forget_packets();
}

/* What passes is in the file when it has passed, or is kept for a large write. */
static void writes_are_kept_for_a_large_one(void **state)
{
    (void)state;
    for (int is_unbuffered = 0; is_unbuffered < 2; is_unbuffered++) {
        struct stat facts;
        weir_pcap *pcap = open_pcap((weir_pcap_config){ .is_unbuffered = is_unbuffered });
        weir_embedded *embedded = open_channel(pcap);
        weir_embedded_write_outbound(embedded, text("question"));
        harness_fail_nth("write", 1000, -EIO); /* to count them */
        for (int i = 0; i < 20; i++)
            weir_embedded_write_outbound(embedded, text("another"));
        assert_int_equal(harness_fail_end(), is_unbuffered ? 20 : 0);
        assert_int_equal(stat(path, &facts), 0);
        assert_int_equal(facts.st_size > 1000, is_unbuffered);
        assert_int_equal(weir_pcap_flush(pcap), 0);
        assert_int_equal(stat(path, &facts), 0);
        assert_true(facts.st_size > 1000);
        close_channel(embedded);
        assert_int_equal(weir_pcap_close(pcap), 0);
    }
}

static void a_disk_that_is_full_stops_the_recording_alone(void **state)
{
    (void)state;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ .is_unbuffered = true });
    weir_embedded *embedded = open_channel(pcap);
    weir_pcap_stats stats;
    harness_log_begin(WEIR_LOG_WARN);
    weir_embedded_write_outbound(embedded, text("before"));
    harness_fail_nth("write", 1, -ENOSPC);
    for (int i = 0; i < 10; i++)
        weir_embedded_write_outbound(embedded, text("behind"));
    assert_int_equal(harness_fail_end(), 1);
    assert_true(harness_log_has(path));
    assert_int_equal(harness_log_end(), 1);
    assert_int_equal(weir_embedded_outbound_count(embedded), 11);
    close_channel(embedded);
    weir_pcap_get_stats(pcap, &stats);
    assert_int_equal(stats.code, -ENOSPC);
    assert_int_equal(stats.dropped, 18 + 4);
    assert_int_equal(weir_pcap_close(pcap), -ENOSPC);
    read_packets();
    assert_int_equal(packet_count, 5);
    forget_packets();
}

static int short_writes(void *arg, const char *call, size_t *length)
{
    int *count = arg;
    if (strcmp(call, "write") != 0)
        return 0;
    if (++*count % 3 == 0)
        return -EINTR;
    *length = *length > 7 ? 7 : *length;
    return 0;
}

static void short_and_interrupted_writes_go_on(void **state)
{
    (void)state;
    int count = 0;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
    weir_embedded *embedded = open_channel(pcap);
    weir_embedded_write_outbound(embedded, &numbered(500)->msg);
    close_channel(embedded);
    weir_fault_set(short_writes, &count);
    assert_int_equal(weir_pcap_flush(pcap), 0);
    weir_fault_set(NULL, NULL);
    close_and_read(pcap);
    assert_true(count > 50);
    check_numbers(packets[3].content, 500);
    forget_packets();
}

/* Places --------------------------------------------------------------------------------------- */

static void without_a_file_it_cannot_be_added(void **state)
{
    (void)state;
    weir_embedded *embedded;
    weir_embedded_config config = { .init = add_pcap };
    assert_int_equal(weir_embedded_new(&embedded, &config, NULL), -EINVAL);
}

/* It can come late and go early: a stream that begins and does not end. */
static void it_can_be_added_and_removed_in_the_middle(void **state)
{
    (void)state;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
    weir_embedded *embedded;
    assert_int_equal(weir_embedded_new(&embedded, NULL, NULL), 0);
    weir_channel *channel = weir_embedded_channel(embedded);
    weir_embedded_write_outbound(embedded, text("before"));
    add_pcap(channel, pcap);
    weir_embedded_write_outbound(embedded, text("while"));
    weir_pipeline_remove(weir_channel_pipeline(channel), "pcap", NULL);
    weir_embedded_write_outbound(embedded, text("after"));
    close_channel(embedded);
    close_and_read(pcap);
    expect(SYN, 0, "");
    expect(SYN | ACK, 1, "");
    expect(ACK, 0, "");
    expect(PSH | ACK, 0, "while");
    expect(ACK, 1, "");
    expect_end();
}

/* Several channels on several threads, some with the handler on an executor of its own: each is a
 * stream of its own in the same file. */
static int add_elsewhere(weir_channel *channel, void *arg)
{
    void **both = arg;
    weir_handler_config config = { .type = &weir_pcap_handler, .place = WEIR_PLACE_LAST };
    config.arg = both[0];
    config.group = weir_channel_id(channel) % 2 ? both[1] : NULL;
    int code = weir_pipeline_add(weir_channel_pipeline(channel), &config, NULL);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), "echo", &echo, NULL);
}

static void threads_share_a_file(void **state)
{
    (void)state;
    enum { CLIENTS = 8, ROUNDS = 40, LENGTH = 3000 };
    weir_group *group = NULL, *others = new_group_of(2);
    weir_server *server = NULL;
    weir_address address;
    weir_pcap *pcap = open_pcap((weir_pcap_config){ 0 });
    void *both[2] = { pcap, others };
    assert_int_equal(weir_group_new(&group, &(weir_group_config){ .loops = 3 }, NULL), 0);
    weir_server_config config = { .boss = group, .workers = group, .init_child = add_elsewhere };
    config.arg = both;
    assert_int_equal(weir_server_listen(&server, &config, "127.0.0.1:0", NULL), 0);
    assert_int_equal(weir_server_address(server, &address), 0);
    int fds[CLIENTS];
    uint16_t ports[CLIENTS];
    weir_buf *sent = numbered(LENGTH);
    for (int i = 0; i < CLIENTS; i++) {
        struct sockaddr_in name;
        socklen_t size = sizeof name;
        fds[i] = connect_plainly(&address);
        assert_int_equal(getsockname(fds[i], (struct sockaddr *)&name, &size), 0);
        ports[i] = ntohs(name.sin_port);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < CLIENTS; i++)
            assert_int_equal(send(fds[i], weir_buf_peek(sent, 0, LENGTH), LENGTH, 0), LENGTH);
        for (int i = 0; i < CLIENTS; i++) {
            uint8_t answer[LENGTH];
            assert_int_equal(recv(fds[i], answer, LENGTH, MSG_WAITALL), LENGTH);
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    weir_server_close(server, NULL);
    weir_future_await(weir_server_closed(server));
    weir_server_release(server);
    end_group(group);
    end_group(others);
    close_and_read(pcap);
    check_with_tcpdump();
    for (int i = 0; i < CLIENTS; i++) {
        follower self = { .bytes = test_malloc((size_t)ROUNDS * LENGTH) };
        follow(&self, ports[i], weir_address_port(&address));
        assert_int_equal(self.length, ROUNDS * LENGTH);
        for (int round = 0; round < ROUNDS; round++)
            check_numbers(self.bytes + (size_t)round * LENGTH, LENGTH);
        assert_true(self.has_ended[0] && self.has_ended[1]);
        test_free(self.bytes);
    }
    weir_buf_release(sent);
    forget_packets();
}

/* Whichever fails when it is opened: there is an error, and nothing left. */
static void opening_may_fail_anywhere(void **state)
{
    (void)state;
    weir_pcap *pcap = NULL;
    weir_pcap_config config = { .is_replacing = true };
    unsigned nth = 0;
    int code = -EIO;
    while (code < 0) {
        weir_error error;
        harness_fail_nth(NULL, ++nth, -EIO);
        code = weir_pcap_open(&pcap, path, &config, &error);
        harness_fail_end();
        if (code < 0)
            assert_non_null(strstr(error.message, path));
    }
    assert_int_equal(nth, 6); /* behind two allocations, unlink, open and write */
    assert_int_equal(weir_pcap_close(pcap), 0);
}

/* Whichever fails while it records: what passes passes. */
static void recording_may_fail_anywhere(void **state)
{
    (void)state;
    enum { WRITES = 4 };
    harness_log_begin(WEIR_LOG_WARN);
    for (unsigned nth = 1; nth <= WRITES; nth++) {
        weir_pcap *pcap = open_pcap((weir_pcap_config){ .is_unbuffered = true });
        harness_fail_nth("write", nth, -EIO);
        weir_embedded *embedded = open_channel(pcap); /* which is one, for the handshake */
        for (int i = 1; i < WRITES; i++)
            weir_embedded_write_outbound(embedded, text("question"));
        assert_int_equal(harness_fail_end(), nth); /* none behind it */
        assert_int_equal(weir_embedded_outbound_count(embedded), WRITES - 1);
        close_channel(embedded);
        assert_int_equal(weir_pcap_close(pcap), -EIO);
        read_packets();
        assert_int_equal(packet_count, nth == 1 ? 0 : 3 + 2 * (nth - 2));
        forget_packets();
    }
    assert_int_equal(harness_log_end(), WRITES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(what_passes_is_recorded),
        weir_case(large_messages_are_several_packets),
        weir_case(what_is_not_kept_is_known_to_have_been),
        weir_case(other_messages_are_recorded_as_far_as_they_can_be),
        weir_case(the_other_side_ends_first),
        weir_case(this_side_ends_first),
        weir_case(a_reset_is_one),
        weir_case(tcp_is_recorded_with_its_addresses),
        weir_case(this_side_resets),
        weir_case(datagrams_are_udp),
        weir_case(families_that_differ_become_one),
        weir_case(files_are_made_for_one_user),
        weir_case(the_file_is_limited),
        weir_case(writes_are_kept_for_a_large_one),
        weir_case(a_disk_that_is_full_stops_the_recording_alone),
        weir_case(short_and_interrupted_writes_go_on),
        weir_case(without_a_file_it_cannot_be_added),
        weir_case(it_can_be_added_and_removed_in_the_middle),
        weir_case(threads_share_a_file),
        weir_case(opening_may_fail_anywhere),
        weir_case(recording_may_fail_anywhere),
    };
    return cmocka_run_group_tests_name("handler.pcap", tests, make_directory, remove_directory);
}
