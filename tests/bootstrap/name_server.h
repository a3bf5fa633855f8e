/* SPDX-License-Identifier: MIT */
/* A name server for tests, on loopback: each name says by its first label how it is answered. */
#ifndef WEIR_TESTS_BOOTSTRAP_NAME_SERVER_H
#define WEIR_TESTS_BOOTSTRAP_NAME_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { NAME_TYPE_A = 1, NAME_TYPE_AAAA = 28 };

/*
 * By the first label:
 *   both*        1.2.3.4 and 2001:db8::1
 *   four*        1.2.3.4 only               six*   2001:db8::1 only
 *   here*        127.0.0.1 and ::1
 *   here_four_first*    the same, but AAAA is held back      here_six_first*  the same for A
 *   held*        as both, but held back
 *   long*        as both, by TCP; by UDP the answer is truncated (TC), and has no address
 *   printer*     1.2.3.4, if the second label is "corp"
 *   broken*      SERVFAIL                   dead*  never answered
 * Any name below a domain "sick" gets SERVFAIL, whatever its first label. Others, and other types,
 * do not exist.
 */
typedef struct name_server {
    uint16_t port; /* on 127.0.0.1 and 127.0.0.2; by TCP on the first alone */
    _Atomic(uint32_t) ttl_s;
    atomic_int questions, second; /* all; those to 127.0.0.2 */
    atomic_int by_tcp;            /* those by TCP */
    atomic_int held;              /* how many are */
    atomic_bool releases;         /* held questions are answered from now on */

    int sockets[2], wake[2], listener;
    struct tcp_client *clients;
    pthread_t thread;
    struct held_question *first_held;
    pthread_mutex_t lock;
    char last[256]; /* the last name asked for by UDP, under the lock */
} name_server;

void name_server_start(name_server *server);
void name_server_stop(name_server *server);

/* The last name asked for, or "". */
void name_server_get_last(name_server *server, char name[256]);

/* Answers the held questions, and holds none from now on. */
void name_server_release(name_server *server);

#endif
