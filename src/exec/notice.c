/* SPDX-License-Identifier: MIT */
/* Notices: a queue of each thread's own. */
#include "exec/notice.h"

#include <weir/executor.h>

_Thread_local weir_notices weir__notices;

void weir__notices_run_all(void)
{
    if (weir__notices.is_running)
        return;
    weir__notices.is_running = true;
    while (weir__notices.first != NULL) {
        weir_notice *notice = weir__notices.first;
        weir__notices.first = notice->next;
        notice->run(notice);
    }
    weir__notices.is_running = false;
}

weir_notices weir__notices_enter(void)
{
    weir_notices outer = weir__notices;
    weir__notices = (weir_notices){ .is_running = false };
    return outer;
}

void weir__notices_leave(weir_notices outer)
{
    weir__notices_run();
    weir__notices = outer;
}

void weir__notice_queue(weir_notice *notice)
{
    notice->next = NULL;
    if (weir__notices.first == NULL)
        weir__notices.first = notice;
    else
        weir__notices.last->next = notice;
    weir__notices.last = notice;
    if (weir_executor_current() == NULL)
        weir__notices_run_all();
}
