/* SPDX-License-Identifier: MIT */
/* What the echo servers of the peers share: a listening socket that is the same for all of them. */
#ifndef BENCH_PEERS_LISTENING_H
#define BENCH_PEERS_LISTENING_H

#include <netinet/in.h>

#ifdef __cplusplus
extern "C" {
#endif

/** As weir's default. */
#define LISTENING_BACKLOG 4096

/** Opens the socket that `--listen ADDRESS:PORT` asks for, 127.0.0.1:8007 without it; port 0 is any
 * that is free. It listens, does not block, and what it accepts has TCP_NODELAY, which Linux lets
 * connections inherit. SIGINT and SIGTERM end the program with 0 from now on, and SIGPIPE does not.
 * What goes wrong is told on standard error and ends the program. */
int listening_open(int argc, char **argv);

/** The same for a program with further options, which has read that one. */
int listening_open_at(const char *text);

/** The address that an option names; ends the program with 2 if it is none. */
struct sockaddr_in listening_address(const char *option, const char *text);

/** Prints `listening on ADDRESS:PORT`: to be called when the loop is about to run. */
void listening_announce(int fd);

#ifdef __cplusplus
}
#endif

#endif
