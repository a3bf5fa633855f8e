/* SPDX-License-Identifier: MIT */
/* All of weir. Each header stands alone, too. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include <weir/alloc.h>
#include <weir/api.h>
#include <weir/buf.h>
#include <weir/clock.h>
#include <weir/error.h>
#include <weir/fault.h>
#include <weir/leak.h>
#include <weir/log.h>
#include <weir/msg.h>
#include <weir/node.h>
#include <weir/pool.h>
#include <weir/version.h>

#endif
