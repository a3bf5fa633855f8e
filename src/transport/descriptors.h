/* SPDX-License-Identifier: MIT */
/* Making messages of descriptors, where the system calls are a loop's. */
#ifndef WEIR_TRANSPORT_DESCRIPTORS_H
#define WEIR_TRANSPORT_DESCRIPTORS_H

#include "base/sys.h"

#include <weir/descriptors.h>

weir_descriptors *weir__descriptors_new(weir_sys *sys, const int *fds, unsigned count,
                                        weir_buf *bytes);

#endif
