/* SPDX-License-Identifier: MIT */
/* weir-echo-client: sends messages to an echo server, compares the answers and prints latencies. */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char program[] = "weir-echo-client";

typedef struct settings {
    const char *connect;
    int count, size, connections, timeout_s;
    example_tls tls;
} settings;

/* The argument of its handler. Owned by the loop until the channel is closed, then by main. */
typedef struct connection {
    const settings *wanted;
    weir_channel *channel;
    weir_buf *ping;  /* the last message */
    size_t received; /* bytes of the answer to it */
    int64_t sent_ns;
    weir_ctx_timer answer_timeout;
    int answered;
    int64_t *round_trips_ns; /* of `answered` messages */
    weir_error error;        /* the first one */
} connection;

/* The handler ---------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
    return weir_clock_now_ns(weir_clock_monotonic());
}

/* Messages differ, so that lost, repeated and swapped bytes are detected. */
static weir_buf *new_ping(size_t size, int number)
{
    weir_buf *ping = weir_buf_new(size);
    uint8_t *bytes = weir_buf_write_ptr(ping, size);
    if (bytes == NULL)
        return ping;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251 + (size_t)number);
    weir_buf_advance_writer(ping, size);
    return ping;
}

static void send_ping(weir_ctx *ctx)
{
    connection *self = weir_ctx_arg(ctx);
    weir_buf *copy;
    if (self->ping != NULL)
        weir_buf_release(self->ping);
    self->ping = new_ping((size_t)self->wanted->size, self->answered);
    if (weir_buf_duplicate(self->ping, &copy) < 0) { /* one is sent, one is compared */
        weir_ctx_fail(ctx, -ENOMEM, "no memory for a message");
        return;
    }
    self->received = 0;
    self->sent_ns = now_ns();
    weir_ctx_schedule(ctx, &self->answer_timeout, WEIR_SECONDS(self->wanted->timeout_s));
    weir_ctx_write_and_flush(ctx, weir_buf_msg(copy), NULL);
}

static void on_answer_timeout(weir_ctx_timer *timer, weir_ctx *ctx)
{
    const connection *self = WEIR_CONTAINER(timer, connection, answer_timeout);
    weir_ctx_fail(ctx, -ETIMEDOUT, "no answer within %d s", self->wanted->timeout_s);
}

static void client_on_active(weir_ctx *ctx)
{
    connection *self = weir_ctx_arg(ctx);
    self->answer_timeout.fire = on_answer_timeout;
    send_ping(ctx);
    weir_ctx_fire_active(ctx);
}

static bool is_expected(const connection *self, const weir_buf *answer)
{
    weir_buf expected;
    return weir_buf_slice(self->ping, self->received, weir_buf_readable(answer), &expected) == 0 &&
           weir_buf_equal(&expected, answer);
}

static void client_on_read(weir_ctx *ctx, weir_msg *msg)
{
    connection *self = weir_ctx_arg(ctx);
    const weir_buf *answer = weir_buf_from_msg(msg);
    bool is_right = is_expected(self, answer);
    self->received += weir_buf_readable(answer);
    weir_msg_release(msg);
    if (!is_right) {
        weir_ctx_fail(ctx, -EBADMSG, "answer %d is not what was sent", self->answered + 1);
    } else if (self->received == (size_t)self->wanted->size) {
        self->round_trips_ns[self->answered++] = now_ns() - self->sent_ns;
        if (self->answered < self->wanted->count)
            send_ping(ctx);
        else
            weir_ctx_close(ctx, NULL);
    }
}

static void client_on_error(weir_ctx *ctx, const weir_error *error)
{
    connection *self = weir_ctx_arg(ctx);
    if (self->error.code == 0)
        self->error = *error;
    weir_ctx_close(ctx, NULL);
}

static void client_on_inactive(weir_ctx *ctx)
{
    connection *self = weir_ctx_arg(ctx);
    if (self->answered < self->wanted->count && self->error.code == 0)
        weir_error_set(&self->error, WEIR_EOF, program, "the server has closed the connection");
    weir_ctx_fire_inactive(ctx);
}

static const weir_handler_type client = {
    .name = "client",
    .on_active = client_on_active,
    .on_read = client_on_read,
    .on_error = client_on_error,
    .on_inactive = client_on_inactive,
};

static int init(weir_channel *ch, void *arg)
{
    const connection *self = arg;
    int code = example_tls_add(&self->wanted->tls, ch);
    if (code < 0)
        return code;
    return weir_pipeline_add_last(weir_channel_pipeline(ch), "client", &client, arg);
}

/* The results ---------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

static double in_us(int64_t ns)
{
    return (double)ns / 1000;
}

/* A line for each power of two, from the shortest to the longest. */
static void print_histogram(const int64_t *sorted_ns, size_t count)
{
    int64_t below_ns = 1000;
    for (size_t at = 0; at < count; below_ns *= 2) {
        size_t first = at;
        while (at < count && sorted_ns[at] < below_ns)
            at++;
        if (at > 0)
            printf("  below %8.0f us %8zu %.*s\n", in_us(below_ns), at - first,
                   (int)((at - first) * 50 / count),
                   "##################################################");
    }
}

static void print_results(int64_t *ns, size_t count, const settings *wanted, int64_t took_ns)
{
    qsort(ns, count, sizeof *ns, compare);
    printf("%zu answers of %d bytes over %d connection%s in %.3f s, all as sent\n", count,
           wanted->size, wanted->connections, wanted->connections == 1 ? "" : "s",
           (double)took_ns / 1e9);
    printf("round trip: min %.1f, median %.1f, 99%% %.1f, max %.1f us\n", in_us(ns[0]),
           in_us(ns[count / 2]), in_us(ns[count * 99 / 100]), in_us(ns[count - 1]));
    print_histogram(ns, count);
}

/* The run -------------------------------------------------------------------------------------- */

/* Connects all and waits until all are closed. Returns whether all connected. */
static bool run(weir_group *group, connection *connections, const settings *wanted)
{
    bool is_fine = true;
    for (int i = 0; i < wanted->connections && is_fine; i++) {
        weir_client_config config = { .group = group, .init = init, .arg = &connections[i] };
        weir_error error;
        is_fine = weir_client_connect(&connections[i].channel, &config, wanted->connect, &error) ==
                  0;
        if (!is_fine)
            fprintf(stderr, "%s: %s\n", program, error.message);
    }
    for (int i = 0; i < wanted->connections && connections[i].channel != NULL; i++) {
        connection *self = &connections[i];
        weir_future_await(weir_channel_closed(self->channel));
        weir_channel_release(self->channel);
    }
    return is_fine;
}

/* Prints the errors; the loops have ended. Returns whether there are none. */
static bool check(connection *connections, const settings *wanted)
{
    bool is_fine = true;
    for (int i = 0; i < wanted->connections; i++) {
        const connection *self = &connections[i];
        if (self->ping != NULL)
            weir_buf_release(self->ping);
        if (self->error.code == 0)
            continue;
        fprintf(stderr, "%s: connection %d, after %d of %d answers: %s\n", program, i + 1,
                self->answered, wanted->count, self->error.message);
        is_fine = false;
    }
    return is_fine;
}

static void parse(settings *wanted, int argc, char **argv)
{
    const example_option options[] = {
        { "connect", "ADDR", "the server", .text = &wanted->connect },
        { "count", "N", "messages over each connection", .number = &wanted->count, 1, 10000000 },
        { "size", "BYTES", "of each message", .number = &wanted->size, 1, 8 << 20 },
        { "connections", "N", "at the same time", .number = &wanted->connections, 1, 10000 },
        { "timeout", "SECONDS", "for each answer", .number = &wanted->timeout_s, 1, 3600 },
        { "tls", NULL, "speak TLS", .flag = &wanted->tls.is_wanted },
        EXAMPLE_TLS_CLIENT_OPTIONS(&wanted->tls),
        EXAMPLE_LOOP_OPTIONS,
        { 0 },
    };
    const char *about =
        "Sends messages to an echo server, one after another on each connection, compares the\n"
        "answers, and prints the round-trip times. Exits with 1 after any failure.\n";
    example_parse(&(example_command){ program, about, options, NULL, NULL }, argc, argv);
}

int main(int argc, char **argv)
{
    settings wanted = {
        .connect = "127.0.0.1:8007",
        .count = 1000,
        .size = 64,
        .connections = 1,
        .timeout_s = 5,
    };
    parse(&wanted, argc, argv);
    if (!example_tls_connect(&wanted.tls, program, wanted.connect))
        return 1;
    weir_error error;
    weir_group *group = NULL;
    if (weir_group_new(&group, &(weir_group_config){ .loops = 1 }, &error) < 0) {
        fprintf(stderr, "%s: %s\n", program, error.message);
        example_tls_end(&wanted.tls);
        return 1;
    }
    size_t count = (size_t)wanted.count, connection_count = (size_t)wanted.connections;
    int64_t *round_trips_ns = calloc(count * connection_count, sizeof *round_trips_ns);
    connection *connections = calloc(connection_count, sizeof *connections);
    bool is_fine = round_trips_ns != NULL && connections != NULL;
    if (!is_fine)
        fprintf(stderr, "%s: no memory for %zu round trips on each of %zu connections\n", program,
                count, connection_count);
    for (size_t i = 0; is_fine && i < connection_count; i++) {
        connections[i].wanted = &wanted;
        connections[i].round_trips_ns = &round_trips_ns[i * count];
    }
    int64_t started_ns = now_ns();
    is_fine = is_fine && run(group, connections, &wanted);
    int64_t took_ns = now_ns() - started_ns;
    weir_group_shutdown(group, 0, WEIR_SECONDS(1));
    weir_group_free(group);
    example_tls_end(&wanted.tls);
    is_fine = connections != NULL && check(connections, &wanted) && is_fine;
    weir_leak_report(NULL, NULL);
    if (is_fine)
        print_results(round_trips_ns, count * connection_count, &wanted, took_ns);
    free(connections);
    free(round_trips_ns);
    return is_fine ? 0 : 1;
}
