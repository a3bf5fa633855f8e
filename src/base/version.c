/* SPDX-License-Identifier: MIT */
/* Says which version is running. */
#include <weir/version.h>

#define TEXT(number) TEXT_OF(number)
#define TEXT_OF(number) #number

const char *weir_version(void)
{
    return TEXT(WEIR_VERSION_MAJOR) "." TEXT(WEIR_VERSION_MINOR) "." TEXT(WEIR_VERSION_PATCH);
}
