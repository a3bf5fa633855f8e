/* SPDX-License-Identifier: MIT */
/* Scenarios with TLS, which are there when the component is. */
#ifndef WEIR_TESTS_TORTURE_TLS_H
#define WEIR_TESTS_TORTURE_TLS_H

#include "torture/world.h"

/* Two handshakes, the second of which resumes what the first began, and an echo in each. */
void run_tls(world *self);

/* The same, with handshakes that executors of their own compute. */
void run_tls_offload(world *self);

#endif
