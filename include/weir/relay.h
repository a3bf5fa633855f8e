/* SPDX-License-Identifier: MIT */
/* Relaying: bytes that go from one stream to another without passing through this process. */
#ifndef WEIR_RELAY_H
#define WEIR_RELAY_H

#include <weir/api.h>
#include <weir/channel.h>
#include <weir/future.h>

WEIR_BEGIN_DECLS

/**
 * From now on what comes in on one stream goes out on the other, inside the kernel (splice), until
 * the end: no handler of either sees a byte of it, and no more is read than the other side takes.
 * Both are active TCP or Unix streams on the loop that calls this; what was written to `to` before
 * is sent. Meanwhile writes to `to` fail with -EOPNOTSUPP, and neither moves to another loop: that
 * waits. Two calls make a proxy, one for each way.
 *
 * When `from` ends its stream, the output of `to` is shut down, and the promise (may be NULL)
 * succeeds; as `from` has ended its input, it is closed then unless it has the option
 * allow_half_closure. When reading or sending fails, the promise fails with the code, the channel
 * that failed is closed, and the other one is its owner's. When one is closed meanwhile, the
 * promise fails with WEIR_ECLOSED; what was taken from `from` before it was closed still goes
 * first. The same when the output of `to` is shut down by somebody else.
 *
 * The promise fails at once, and nothing has changed, with -EINVAL, -EPERM on another thread than
 * the loop's, -EXDEV when they are not on one loop (so always with WEIR_IO_BLOCKING, where each has
 * its own), -EOPNOTSUPP when one is no stream of the kernel's, or has a handler that must see all
 * bytes (is_upgrade, as weir_tls_handler says: they would go out in the clear; do not add one while
 * it is relayed), -EBUSY while
 * `from` or `to` is relayed that way already, or a write to `to` is not complete, -ENOTCONN when
 * one is not active, -ENOMEM, -EMFILE.
 */
WEIR_API void weir_relay(weir_channel *from, weir_channel *to, weir_promise *promise);

WEIR_END_DECLS

#endif
