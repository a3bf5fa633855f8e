/* SPDX-License-Identifier: MIT */
/* A user's program: what the install test builds in each way. Compiles as C and as C++. */
#include <weir/weir.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    weir_buf *buf = weir_buf_new(16);
    uint32_t number = 0;
    if (weir_buf_write_u32(buf, 0x77656972) < 0 || weir_buf_get_u32(buf, 0, &number) < 0)
        return 1;
    weir_buf_release(buf);
    weir_error error;
    if (weir_error_set(&error, WEIR_ELIMIT, "program", "%d is too much", 5) != WEIR_ELIMIT)
        return 1;
    printf("weir %s says %08x\n", weir_version(), number);
    return strcmp(weir_version(), "") == 0;
}
