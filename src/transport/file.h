/* SPDX-License-Identifier: MIT */
/* File regions, for handlers that read them. */
#ifndef WEIR_TRANSPORT_FILE_H
#define WEIR_TRANSPORT_FILE_H

#include <weir/file.h>

/* weir_file_region_read for bytes in the page cache: some of them; or NULL if reading them could
 * block or fails, which only weir_file_region_read can tell. */
weir_buf *weir__file_region_read_cached(const weir_file_region *region, uint64_t at, size_t max);

#endif
