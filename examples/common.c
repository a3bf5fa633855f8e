/* SPDX-License-Identifier: MIT */
/* The life of an example server: common options, and weir_app_run with them. */
#include "common.h"

#include <stdio.h>
#include <string.h>

#define MAX_OPTIONS 20
#define DRAIN_S 5

static const char notes[] =
    "An address is 127.0.0.1:80, [::1]:80, :80, localhost:80, unix:/path or unix:@name; to\n"
    "listen, also fd:3 for an inherited socket, or systemd: for the sockets of LISTEN_FDS.\n"
    "With --io blocking each connection has its own loop: --boss and --loops have no effect.\n"
    "SIGINT and SIGTERM end the program: open connections have 5 s to end, or until the next\n"
    "signal.\n";

static int on_start(weir_app *app, void *arg, weir_error *error)
{
    const example *self = arg;
    weir_address address;
    char text[WEIR_ADDRESS_TEXT_MAX];
    int code = weir_server_address(weir_app_server(app, 0), &address);
    if (code == 0 && self->on_start != NULL)
        code = self->on_start(app, &address, error);
    if (code < 0)
        return code;
    weir_address_text(&address, text, sizeof text);
    printf("listening on %s\n", text);
    fflush(stdout);
    return 0;
}

static void on_drain(weir_app *app, void *arg)
{
    const example *self = arg;
    if (weir_app_connections(app) > 0)
        fprintf(stderr, "%s: open connections have %d s to end, or until the next signal\n",
                self->name, DRAIN_S);
}

static void parse(example *self, weir_app_config *app, int argc, char **argv)
{
    const example_option common[] = {
        { "boss", "N", "loops that accept connections", .number = &app->boss.loops, 1, 1024 },
        { "loops", "N", "loops that serve them (default: WEIR_LOOPS, or two per CPU)",
          .number = &app->workers.loops, 1, 1024 },
        { "acceptors", "N", "listeners on the address, one per boss loop",
          .number = &app->server.acceptors, 1, 1024 },
        EXAMPLE_LOOP_OPTIONS,
        { 0 },
    };
    example_option options[MAX_OPTIONS] = {
        { "listen", "ADDR", "where to listen; port 0 is any free one", .text = &app->address },
    };
    size_t count = 1;
    for (const example_option *own = self->options; own != NULL && own->name != NULL; own++)
        options[count++] = *own;
    memcpy(&options[count], common, sizeof common);
    example_parse(&(example_command){ self->name, self->about, options, NULL, notes }, argc, argv);
}

int example_run(example *self, int argc, char **argv)
{
    weir_app_config app = {
        .name = self->name,
        .address = self->listen,
        .server = self->server,
        .boss = { .loops = 1 },
        .workers = { .name = "worker" },
        .on_start = on_start,
        .on_drain = on_drain,
        .arg = self,
        .drain_timeout_ns = WEIR_SECONDS(DRAIN_S),
    };
    int exit_code = 1;
    app.server.acceptors = 1;
    parse(self, &app, argc, argv);
    if (example_tls_connect(&self->connect_tls, self->name, self->connect) &&
        example_tls_serve(&self->tls, self->name))
        exit_code = weir_app_run(&app);
    example_tls_end(&self->tls);
    example_tls_end(&self->connect_tls);
    return exit_code;
}
