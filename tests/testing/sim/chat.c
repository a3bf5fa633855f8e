/* SPDX-License-Identifier: MIT */
/* A room: what one says, a line at a time, all read, each speaker's lines in their order. */
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_LINE 600

/* Lines: bytes in, whole lines out ----------------------------------------------------------- */

typedef struct lines {
    char text[LONGEST_LINE + 1];
    size_t length;
} lines;

typedef void (*line_fn)(weir_ctx *ctx, const char *line);

/* False when a line is longer than any that is said here. */
static bool take_bytes(weir_ctx *ctx, lines *self, weir_msg *msg, line_fn each)
{
    weir_buf *buf = weir_buf_from_msg(msg);
    uint8_t byte;
    bool is_good = true;
    while (is_good && weir_buf_read_u8(buf, &byte) == 0) {
        is_good = self->length < LONGEST_LINE;
        self->text[self->length++] = (char)byte;
        if (byte != '\n')
            continue;
        self->text[self->length] = '\0';
        self->length = 0;
        each(ctx, self->text);
    }
    weir_msg_release(msg);
    return is_good;
}

/* The room ----------------------------------------------------------------------------------- */

typedef struct room {
    world *w;
    weir_channel_group *members;
} room;

static void tell_all(weir_ctx *ctx, const char *line)
{
    const room *self = weir_ctx_arg(ctx);
    weir_buf *said = weir_buf_from(line, strlen(line));
    if (said != NULL)
        weir_channel_group_broadcast(self->members, weir_buf_msg(said), NULL);
}

static void member_on_active(weir_ctx *ctx)
{
    const room *self = weir_ctx_arg(ctx);
    weir_channel_group_add(self->members, weir_ctx_channel(ctx));
    weir_ctx_fire_active(ctx);
}

static void member_on_read(weir_ctx *ctx, weir_msg *msg)
{
    const room *self = weir_ctx_arg(ctx);
    bool is_good = take_bytes(ctx, weir_ctx_state(ctx), msg, tell_all);
    demand(self->w, is_good, "the room has heard a line that nobody said");
}

static void member_on_error(weir_ctx *ctx, const weir_error *error)
{
    (void)error;
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type member_type = {
    .name = "member",
    .state_size = sizeof(lines),
    .on_active = member_on_active,
    .on_read = member_on_read,
    .on_error = member_on_error,
};

static int init_child(weir_channel *channel, void *arg)
{
    room *self = arg;
    int code = add_probe(self->w, channel);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), "member", &member_type,
                                             self);
}

/* Guests ------------------------------------------------------------------------------------- */

typedef struct guest {
    world *w;
    unsigned number, total, said, heard;
    int last[MOST_CLIENTS]; /* that was heard of each; -1: nothing yet */
    bool is_over;
    int64_t progress_ns;
    weir_listener on_connect;
} guest;

typedef struct guest_state {
    lines in;
    weir_ctx_timer speak, stall;
} guest_state;

static guest *guest_of(const weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

static unsigned window_of(const world *w)
{
    int64_t window = w->config.link.window_bytes;
    return window > 0 && window < 10000 ? (unsigned)window : 10000;
}

/* The padding depends on who says what, and is compared. Through a small window goes less. */
static void make_line(const world *w, char *to, unsigned who, unsigned number)
{
    int length = snprintf(to, LONGEST_LINE, "%u %u ", who, number);
    unsigned most = window_of(w) < 500 ? window_of(w) : 500;
    unsigned padding = (who * 7 + number * 31) % most;
    memset(to + length, (int)('a' + (who + number) % 26), padding);
    to[(unsigned)length + padding] = '\n';
    to[(unsigned)length + padding + 1] = '\0';
}

static void hear(weir_ctx *ctx, const char *line)
{
    guest *self = guest_of(ctx);
    char expected[LONGEST_LINE + 1];
    unsigned who, number;
    if (!demand(self->w, sscanf(line, "%u %u ", &who, &number) == 2 && who < MOST_CLIENTS,
                "guest %u has heard what is no line", self->number))
        return;
    make_line(self->w, expected, who, number);
    demand(self->w, strcmp(line, expected) == 0, "guest %u has heard what guest %u never said",
           self->number, who);
    int last = self->last[who];
    bool is_next = last == (int)number - 1 || (last < 0 && who != self->number);
    demand(self->w, is_next, "guest %u has heard line %u of guest %u, after line %d", self->number,
           number, who, last);
    self->last[who] = (int)number;
    if (who == self->number && ++self->heard == self->total)
        weir_channel_finish(weir_ctx_channel(ctx), NULL);
}

static void guest_on_read(weir_ctx *ctx, weir_msg *msg)
{
    guest *self = guest_of(ctx);
    self->progress_ns = weir_sim_now_ns(self->w->sim);
    bool is_good = take_bytes(ctx, &((guest_state *)weir_ctx_state(ctx))->in, msg, hear);
    demand(self->w, is_good, "guest %u has heard a line without an end", self->number);
}

static void speak(weir_ctx_timer *timer, weir_ctx *ctx)
{
    guest *self = guest_of(ctx);
    char line[LONGEST_LINE + 1];
    for (int64_t burst = draw_small(self->w, 1, 5); burst > 0 && self->said < self->total;
         burst--) {
        make_line(self->w, line, self->number, self->said++);
        weir_buf *words = weir_buf_from(line, strlen(line));
        if (words != NULL)
            weir_ctx_write(ctx, weir_buf_msg(words), NULL);
    }
    weir_ctx_flush(ctx);
    if (self->said < self->total)
        weir_ctx_schedule(ctx, timer, WEIR_MS(draw_small(self->w, 0, 100)));
}

static void on_stall(weir_ctx_timer *timer, weir_ctx *ctx)
{
    guest *self = guest_of(ctx);
    int64_t quiet_ns = weir_sim_now_ns(self->w->sim) - self->progress_ns;
    if (quiet_ns < STALL_NS) {
        weir_ctx_schedule(ctx, timer, STALL_NS - quiet_ns);
        return;
    }
    demand(self->w, !is_sound(self->w), "guest %u waits for ever: said %u, heard %u of %u",
           self->number, self->said, self->heard, self->total);
    weir_ctx_close(ctx, NULL);
}

static void guest_on_active(weir_ctx *ctx)
{
    guest *self = guest_of(ctx);
    guest_state *own = weir_ctx_state(ctx);
    own->speak.fire = speak;
    own->stall.fire = on_stall;
    self->progress_ns = weir_sim_now_ns(self->w->sim);
    weir_ctx_schedule(ctx, &own->stall, STALL_NS);
    speak(&own->speak, ctx);
}

static void guest_on_inactive(weir_ctx *ctx)
{
    guest *self = guest_of(ctx);
    self->is_over = true;
    if (is_unhurt(self->w))
        demand(self->w, self->heard == self->total, "guest %u has heard %u of its %u lines",
               self->number, self->heard, self->total);
}

static const weir_handler_type guest_type = {
    .name = "guest",
    .state_size = sizeof(guest_state),
    .on_active = guest_on_active,
    .on_read = guest_on_read,
    .on_inactive = guest_on_inactive,
    .on_error = member_on_error,
};

static int init_guest(weir_channel *channel, void *arg)
{
    guest *self = arg;
    int code = add_probe(self->w, channel);
    return code < 0
               ? code
               : weir_pipeline_add_last(weir_channel_pipeline(channel), "guest", &guest_type, self);
}

static void on_connect(weir_listener *listener, weir_future *future)
{
    guest *self = WEIR_CONTAINER(listener, guest, on_connect);
    self->is_over |= weir_future_code(future) < 0;
}

static void invite(guest *self, world *w, unsigned number)
{
    *self = (guest){ .w = w, .number = number, .total = 1 };
    self->total += (unsigned)draw_small(w, 0, window_of(w) < 250 ? window_of(w) / 10 : 25);
    for (unsigned i = 0; i < MOST_CLIENTS; i++)
        self->last[i] = -1;
    self->on_connect.done = on_connect;
    weir_promise *promise = weir_promise_new(NULL);
    weir_client_config config = { .group = w->clients[draw(w, 0, 1)],
                                  .init = init_guest,
                                  .arg = self };
    weir_future_listen(weir_promise_future(promise), &self->on_connect);
    int code = weir_client_start(&config, "server:80", promise, NULL);
    if (!demand(w, code == 0, "guest %u cannot begin", number))
        weir_promise_fail(promise, code);
    weir_promise_release(promise);
}

typedef struct party {
    guest guests[MOST_CLIENTS];
    unsigned count;
} party;

static bool are_over(void *arg)
{
    const party *self = arg;
    for (unsigned i = 0; i < self->count; i++) {
        if (!self->guests[i].is_over)
            return false;
    }
    return true;
}

static void run(world *w)
{
    party all = { .count = (unsigned)draw_small(w, 1, MOST_CLIENTS) };
    room here = { .w = w, .members = weir_channel_group_new() };
    if (weir_sim_chance(w->sim, 0.3)) {
        w->max_outbound_bytes = draw_small(w, 600, 10000);
        w->is_limited = true;
    }
    open_server(w, init_child, &here);
    for (unsigned i = 0; i < all.count; i++)
        invite(&all.guests[i], w, i);
    run_until(w, are_over, &all);
    end_world(w);
    weir_channel_group_release(here.members);
}

const program chat_program = { .name = "chat", .run = run };
