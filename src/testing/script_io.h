/* SPDX-License-Identifier: MIT */
/* The scripted backend, for the functions that a test calls. */
#ifndef WEIR_TESTING_SCRIPT_IO_H
#define WEIR_TESTING_SCRIPT_IO_H

#include "testing/peer.h"

#include <weir/script.h>

struct weir_script {
    weir_io base;
    weir_io_source source;

    pthread_mutex_t lock; /* no callback is called, and no memory allocated, under it */
    pthread_cond_t changed;
    bool is_open, is_woken;
    weir_script_poll_fn hook;
    void *hook_arg;
    unsigned poll_answers, rebuild_failures; /* how many are left, and what they are */
    int poll_code, rebuild_code;
    int spinner;
    weir_script_stats stats;
    weir_list news;  /* peers of which the next poll will find something to tell */
    weir_list known; /* those of which a poll has, or that have used up their batch */
    weir_peer *peers[WEIR_SCRIPT_DESCRIPTORS];
};

static inline void weir__script_lock(weir_script *script)
{
    pthread_mutex_lock(&script->lock);
}

static inline void weir__script_unlock(weir_script *script)
{
    pthread_mutex_unlock(&script->lock);
}

/* The peer behind a number, made when it is spoken of for the first time. NULL without memory. */
weir_peer *weir__script_need_peer(weir_script *script, int fd);

/* Under the lock: something about the peer changed. */
void weir__script_refresh(weir_script *script, weir_peer *peer);

/* The source's way to open the backend, which is the script itself. */
int weir__script_open(weir_io_source *source, weir_sys *sys, weir_io_counters *counters,
                      weir_io **io);

static inline bool weir__script_is_number(int fd)
{
    return fd >= 0 && fd < WEIR_SCRIPT_DESCRIPTORS;
}

/* The loop's memory may be held a moment longer than its group, by who is just waking it. */
void weir__script_wait_until_free(weir_script *script);

#endif
