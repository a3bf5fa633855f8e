/* SPDX-License-Identifier: MIT */
/* The version of weir: the build reads it from here, so it stands in one place. */
#ifndef WEIR_VERSION_H
#define WEIR_VERSION_H

#include <weir/api.h>

WEIR_BEGIN_DECLS

/** The version of these headers. */
#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0

/**
 * The version of the library that is running, as "0.1.0"; it can differ from the
 * macros when a program was built against another one. Any thread.
 */
WEIR_API const char *weir_version(void);

WEIR_END_DECLS

#endif
