/* SPDX-License-Identifier: MIT */
/* Pcap files. */
#include "handler/pcap.h"

#include "base/alloc.h"
#include "base/sys.h"

#include <weir/log.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define KEPT_BYTES ((size_t)256 * 1024) /* at least a packet */
#define MAX_BYTES ((int64_t)1 << 30)
#define MOST_SNAP 262144u /* what tcpdump writes, and more than there is in any packet */

#define MAGIC_NANOSECONDS 0xa1b23c4du
#define LINK_RAW_IP 101

enum { FILE_HEADER = 24, RECORD_HEADER = 16, IPV4 = 20, IPV6 = 40, TCP = 20, UDP = 8 };

struct weir_pcap {
    pthread_mutex_t lock;
    weir_pcap_config config;
    char *path;
    int fd;
    int64_t now_ns;
    weir_pcap_stats stats;
    bool has_news; /* the recording has ended, and nobody was told */
    size_t filled;
    uint8_t kept[KEPT_BYTES];
};

/* The file ------------------------------------------------------------------------------------- */

static void end_recording(weir_pcap *self, int code)
{
    self->stats.code = code;
    self->has_news = true;
}

static void write_out(weir_pcap *self)
{
    weir_sys *sys = weir__sys_linux();
    size_t at = 0;
    while (at < self->filled) {
        int length = sys->write(sys, self->fd, self->kept + at, self->filled - at);
        if (length > 0) {
            at += (size_t)length;
        } else if (length != -EINTR) {
            end_recording(self, length < 0 ? length : -EIO);
            break; /* part of a packet may be in the file: it can only be the last */
        }
    }
    self->filled = 0;
}

static uint8_t *put16(uint8_t *to, uint16_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
    return to + 2;
}

static uint8_t *put32(uint8_t *to, uint32_t value)
{
    return put16(put16(to, (uint16_t)(value >> 16)), (uint16_t)value);
}

static void put_native(uint8_t *to, const uint32_t *values, size_t count)
{
    memcpy(to, values, count * sizeof *values);
}

/* In this machine's byte order, as the magic number tells. */
static void put_file_header(weir_pcap *self)
{
    const uint16_t version[2] = { 2, 4 };
    uint32_t fields[6] = { MAGIC_NANOSECONDS, 0, 0, 0, self->config.snap_bytes, LINK_RAW_IP };
    memcpy(&fields[1], version, sizeof version);
    put_native(self->kept, fields, 6);
    self->filled = FILE_HEADER;
    self->stats.bytes = FILE_HEADER;
}

/* 0, or why it cannot be used. */
static int open_file(weir_pcap *self, const char *path)
{
    weir_sys *sys = weir__sys_linux();
    int code = self->config.is_replacing ? sys->unlink(sys, path) : 0;
    if (code < 0 && code != -ENOENT)
        return code;
    self->fd = sys->open(sys, path, O_WRONLY | O_CREAT | O_EXCL | O_NOCTTY);
    if (self->fd < 0)
        return self->fd;
    put_file_header(self);
    write_out(self); /* at once, so that a disk that is full is known */
    if (self->stats.code < 0) {
        sys->close(sys, self->fd);
        sys->unlink(sys, path);
    }
    return self->stats.code;
}

static void set_defaults(weir_pcap_config *config)
{
    if (config->max_bytes == 0)
        config->max_bytes = MAX_BYTES;
    if (config->snap_bytes == 0 || config->snap_bytes > MOST_SNAP)
        config->snap_bytes = MOST_SNAP;
    if (config->clock == NULL)
        config->clock = weir_clock_wall();
}

static void free_pcap(weir_pcap *self)
{
    weir__free(self->path);
    weir__free(self);
}

int weir_pcap_open(weir_pcap **pcap, const char *path, const weir_pcap_config *config,
                   weir_error *error)
{
    if (pcap == NULL || path == NULL)
        return weir_error_set(error, -EINVAL, "pcap", "there is no path");
    if (config != NULL && config->max_bytes < 0 && config->max_bytes != WEIR_OFF)
        return weir_error_set(error, -EINVAL, "pcap", "%s: at most %lld bytes make no file", path,
                              (long long)config->max_bytes);
    weir_pcap *self = weir__zalloc(sizeof *self);
    int code = self != NULL && (self->path = weir__strdup(path)) != NULL ? 0 : -ENOMEM;
    if (code == 0 && config != NULL)
        self->config = *config;
    if (code == 0) {
        set_defaults(&self->config);
        code = open_file(self, path);
    }
    if (code < 0) {
        if (self != NULL)
            free_pcap(self);
        return weir_error_set(error, code, "pcap", "%s cannot be recorded to: %s", path,
                              weir_error_text(code));
    }
    pthread_mutex_init(&self->lock, NULL);
    *pcap = self;
    return 0;
}

int weir_pcap_flush(weir_pcap *self)
{
    if (self == NULL)
        return -EINVAL;
    weir__pcap_lock(self);
    write_out(self);
    int code = self->stats.code;
    weir__pcap_unlock(self);
    return code;
}

int weir_pcap_close(weir_pcap *self)
{
    weir_sys *sys = weir__sys_linux();
    if (self == NULL)
        return 0;
    int code = weir_pcap_flush(self);
    int closed = sys->close(sys, self->fd); /* where some file systems tell what has failed */
    pthread_mutex_destroy(&self->lock);
    free_pcap(self);
    return code < 0 ? code : closed;
}

void weir_pcap_get_stats(weir_pcap *self, weir_pcap_stats *stats)
{
    pthread_mutex_lock(&self->lock);
    *stats = self->stats;
    pthread_mutex_unlock(&self->lock);
}

void weir__pcap_lock(weir_pcap *self)
{
    pthread_mutex_lock(&self->lock);
    self->now_ns = weir_clock_now_ns(self->config.clock);
}

/* What it has to say it says without the lock: the log's sink is the user's. */
void weir__pcap_unlock(weir_pcap *self)
{
    if (self->config.is_unbuffered)
        write_out(self);
    bool has_news = self->has_news;
    int code = self->stats.code;
    self->has_news = false;
    pthread_mutex_unlock(&self->lock);
    if (has_news)
        weir_log(WEIR_LOG_WARN, "pcap", "%s: nothing more is recorded: %s", self->path,
                 weir_error_text(code));
}

/* Packets -------------------------------------------------------------------------------------- */

/* Of 16-bit words, for at most a packet. */
static uint32_t sum(uint32_t so_far, const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i + 1 < length; i += 2)
        so_far += (uint32_t)bytes[i] << 8 | bytes[i + 1];
    return length % 2 ? so_far + ((uint32_t)bytes[length - 1] << 8) : so_far;
}

static uint16_t checksum_of(uint32_t summed)
{
    while (summed >> 16 != 0)
        summed = (summed & 0xffff) + (summed >> 16);
    return (uint16_t)~summed;
}

static size_t host_bytes(const weir_pcap_packet *packet)
{
    return packet->is_ipv6 ? 16 : 4;
}

/* `length` is that of what follows. */
static uint8_t *put_ip(uint8_t *to, const weir_pcap_packet *packet, size_t length)
{
    uint8_t *header = to;
    size_t host = host_bytes(packet);
    if (packet->is_ipv6) {
        to = put32(to, 6u << 28);
        to = put16(to, (uint16_t)length);
        *to++ = packet->protocol;
        *to++ = 64; /* hops */
    } else {
        to = put16(to, 0x4500);
        to = put16(to, (uint16_t)(IPV4 + length));
        to = put32(to, 0x4000); /* no fragments */
        to = put16(to, (uint16_t)(64 << 8 | packet->protocol));
        to = put16(to, 0);
    }
    memcpy(to, packet->from->host, host);
    memcpy(to + host, packet->to->host, host);
    if (!packet->is_ipv6)
        put16(header + 10, checksum_of(sum(0, header, IPV4)));
    return to + 2 * host;
}

static uint8_t *put_transport(uint8_t *to, const weir_pcap_packet *packet)
{
    to = put16(to, packet->from->port);
    to = put16(to, packet->to->port);
    if (packet->protocol == WEIR__PCAP_UDP) {
        to = put16(to, (uint16_t)(UDP + packet->length));
        return put16(to, 0);
    }
    to = put32(to, packet->seq);
    to = put32(to, packet->ack);
    to = put16(to, (uint16_t)(TCP / 4 << 12 | packet->flags));
    to = put16(to, 65535); /* window */
    return put32(to, 0);
}

/* Over the addresses, the transport's header and the content. */
static void put_checksum(uint8_t *header, const weir_pcap_packet *packet, size_t length)
{
    bool is_udp = packet->protocol == WEIR__PCAP_UDP;
    uint32_t summed = packet->protocol + (uint32_t)length;
    summed = sum(summed, packet->from->host, host_bytes(packet));
    summed = sum(summed, packet->to->host, host_bytes(packet));
    uint16_t checksum = checksum_of(sum(summed, header, length));
    put16(header + (is_udp ? 6 : 16), is_udp && checksum == 0 ? 0xffff : checksum);
}

/* Builds a packet: returns how much of it is known; `*whole` is how long it is. */
static size_t build(uint8_t *to, const weir_pcap_packet *packet, size_t *whole)
{
    size_t transport = packet->protocol == WEIR__PCAP_UDP ? UDP : TCP;
    uint8_t *header = put_ip(to, packet, transport + packet->length);
    uint8_t *content = put_transport(header, packet);
    *whole = (size_t)(content - to) + packet->length;
    if (packet->length > 0 && packet->content == NULL)
        return (size_t)(content - to);
    if (packet->length > 0)
        weir_buf_get_bytes(packet->content, packet->at, content, packet->length);
    put_checksum(header, packet, transport + packet->length);
    return *whole;
}

static bool has_room(const weir_pcap *self, size_t length)
{
    return self->config.max_bytes == WEIR_OFF ||
           self->stats.bytes + length <= (uint64_t)self->config.max_bytes;
}

static void put_record(weir_pcap *self, const weir_pcap_packet *packet)
{
    uint8_t *record = self->kept + self->filled;
    size_t whole, known = build(record + RECORD_HEADER, packet, &whole);
    if (known > self->config.snap_bytes)
        known = self->config.snap_bytes;
    if (!has_room(self, RECORD_HEADER + known)) {
        end_recording(self, WEIR_ELIMIT);
        return;
    }
    const uint32_t fields[4] = { (uint32_t)(self->now_ns / 1000000000),
                                 (uint32_t)(self->now_ns % 1000000000), (uint32_t)known,
                                 (uint32_t)whole };
    put_native(record, fields, 4);
    self->filled += RECORD_HEADER + known;
    self->stats.bytes += RECORD_HEADER + known;
}

void weir__pcap_put(weir_pcap *self, const weir_pcap_packet *packet)
{
    if (KEPT_BYTES - self->filled < RECORD_HEADER + IPV6 + TCP + packet->length)
        write_out(self);
    if (self->stats.code == 0)
        put_record(self, packet);
    if (self->stats.code == 0)
        self->stats.packets++;
    else
        self->stats.dropped++;
}
