/* SPDX-License-Identifier: MIT */
/*
 * All of weir. Each header stands alone, too.
 *
 * Nothing here may be called from a signal handler. After fork in a program with several threads
 * the child should call exec or _exit; weir's locks may be held by threads that it does not have.
 */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <weir/accepted.h>
#include <weir/address.h>
#include <weir/aggregator.h>
#include <weir/alloc.h>
#include <weir/api.h>
#include <weir/app.h>
#include <weir/base64.h>
#include <weir/bridge.h>
#include <weir/buf.h>
#include <weir/channel.h>
#include <weir/channel_group.h>
#include <weir/chunked.h>
#include <weir/client.h>
#include <weir/clock.h>
#include <weir/connection_limit.h>
#include <weir/connection_pool.h>
#include <weir/datagram.h>
#include <weir/decoder.h>
#include <weir/delimiter.h>
#include <weir/descriptors.h>
#include <weir/duplex.h>
#include <weir/duration.h>
#include <weir/encoder.h>
#include <weir/error.h>
#include <weir/executor.h>
#include <weir/fault.h>
#include <weir/file.h>
#include <weir/file_bytes.h>
#include <weir/fixed_length.h>
#include <weir/flow_control.h>
#include <weir/flush_consolidation.h>
#include <weir/future.h>
#include <weir/group.h>
#include <weir/guard.h>
#include <weir/handler.h>
#include <weir/idle.h>
#include <weir/ip_filter.h>
#include <weir/json.h>
#include <weir/leak.h>
#include <weir/length_field.h>
#include <weir/log.h>
#include <weir/logging.h>
#include <weir/loop.h>
#include <weir/msg.h>
#include <weir/node.h>
#include <weir/pcap.h>
#include <weir/pipeline.h>
#include <weir/pool.h>
#include <weir/proxy_protocol.h>
#include <weir/relay.h>
#include <weir/resolver.h>
#include <weir/server.h>
#include <weir/signal.h>
#include <weir/socket.h>
#include <weir/threads.h>
#include <weir/timeout.h>
#include <weir/timer.h>
#include <weir/traffic.h>
#include <weir/typed.h>
#include <weir/utf8.h>
#include <weir/varint.h>
#include <weir/version.h>
#include <weir/watch.h>

#endif
