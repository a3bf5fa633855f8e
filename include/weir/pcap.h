/* SPDX-License-Identifier: MIT */
/* The pcap handler: what passes a pipeline, in a file that Wireshark and tcpdump read. */
#ifndef WEIR_PCAP_H
#define WEIR_PCAP_H

#include <weir/api.h>
#include <weir/clock.h>
#include <weir/error.h>
#include <weir/handler.h>

WEIR_BEGIN_DECLS

/**
 * A file that any number of channels record to, on any threads. What cannot be written is counted
 * and logged once; from then on nothing is recorded, and the channels do not notice.
 */
typedef struct weir_pcap weir_pcap;

/** 0 is the default everywhere. */
typedef struct weir_pcap_config {
    int64_t max_bytes;   /* the file does not grow further; 0: 1 GiB, WEIR_OFF: as far as it can */
    uint32_t snap_bytes; /* of a packet that are kept, headers (40 or 60 bytes) included; 0: all */
    bool is_replacing;   /* a file of that name is deleted first; else -EEXIST */
    bool is_unbuffered;  /* what passes is in the file at once, as it were if the process died */
    weir_clock *clock;   /* nanoseconds since 1970, must outlive it; NULL: weir_clock_wall */
} weir_pcap_config;

/** Makes a file, which only this user can read (0600): what it will hold may be secret. The config
 * may be NULL. -EINVAL, -ENOMEM, or why it cannot be made or written to; `error` (may be NULL)
 * names the path. Any thread, as all of these. */
WEIR_API int weir_pcap_open(weir_pcap **pcap, const char *path, const weir_pcap_config *config,
                            weir_error *error);

/** Writes what it has kept for the next large write. 0, or why the recording has ended:
 * WEIR_ELIMIT, or what the kernel says. */
WEIR_API int weir_pcap_flush(weir_pcap *pcap);

/** The same, and frees it. The channels that record to it are closed, or their handlers removed.
 * NULL is fine. */
WEIR_API int weir_pcap_close(weir_pcap *pcap);

/** Counters of a recording. */
typedef struct weir_pcap_stats {
    uint64_t packets, bytes; /* recorded, whether they are in the file yet or not */
    uint64_t dropped;        /* packets that were not, since the recording has ended */
    int code;                /* why it has, 0 while it goes on */
} weir_pcap_stats;

/** Copies the counters. Thread-safe. */
WEIR_API void weir_pcap_get_stats(weir_pcap *pcap, weir_pcap_stats *stats);

/**
 * Records the bytes that are read and written where it stands, as TCP packets that they might have
 * come in: with a handshake, each acknowledged at once, and with the end of the stream or a reset;
 * what datagram channels read and write, as UDP. Checksums are right. Add it with a weir_pcap as
 * the argument, an object of many channels that has to live until they are closed; without one it
 * cannot be added. Next to the head it
 * sees what the network sees, behind TLS what that protects.
 *
 * What is written is recorded when it passes, whether it can be sent or not. Of files that the
 * kernel sends there are packets without their bytes. Channels without IP addresses have made-up
 * ones: 192.0.2.1 is the side that was connected to, and the other one has an address of
 * 198.18.0.0/15 and a port for each channel. The file is written on the threads of the channels:
 * with an executor of its own, the loop does not wait for the disk.
 */
extern WEIR_API const weir_handler_type weir_pcap_handler;

WEIR_END_DECLS

#endif
