/* SPDX-License-Identifier: MIT */
/* weir-chat: a chat room. Each line of a guest is sent to all other guests. */
#include "common.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

#define MAX_LINE 8192
#define MAX_NAME 32
#define MAX_UNREAD (1 << 20) /* bytes queued for a guest; more disconnect it */

/* Lines: bytes in, lines out ------------------------------------------------------------------- */

typedef struct lines {
    weir_buf *rest; /* the incomplete line */
} lines;

static bool is_control(void *arg, uint8_t byte)
{
    (void)arg;
    return (byte < ' ' && byte != '\t') || byte == 127;
}

/* Forwards the next `length` bytes as a line, and skips the LF after them. */
static int forward_line(weir_ctx *ctx, weir_buf *rest, size_t length)
{
    weir_buf *line;
    if (length > MAX_LINE)
        return WEIR_ELIMIT;
    int code = weir_buf_read_slice(rest, length, &line);
    if (code < 0)
        return code;
    weir_buf_skip(rest, 1);
    if (length > 0 && *weir_buf_peek(line, length - 1, 1) == '\r')
        weir_buf_set_writer(line, --length);
    /* Terminals of other guests will show it. */
    for (int64_t at = 0;
         (at = weir_buf_find_if(line, (size_t)at, length - (size_t)at, is_control, NULL)) >= 0;)
        weir_buf_set_u8(line, (size_t)at, '?');
    weir_ctx_fire_read(ctx, weir_buf_msg(line));
    return 0;
}

static void lines_on_read(weir_ctx *ctx, weir_msg *msg)
{
    lines *self = weir_ctx_state(ctx);
    weir_buf *in = weir_buf_from_msg(msg);
    if (self->rest == NULL)
        self->rest = weir_buf_new(256);
    weir_buf *rest = self->rest;
    int code = rest != NULL ? weir_buf_write_buf(rest, in, weir_buf_readable(in)) : -ENOMEM;
    weir_msg_release(msg);
    while (code == 0) {
        size_t start = weir_buf_reader(rest);
        int64_t end = weir_buf_find(rest, start, weir_buf_readable(rest), '\n');
        if (end < 0)
            break;
        code = forward_line(ctx, rest, (size_t)end - start);
    }
    if (code == 0 && weir_buf_readable(rest) > MAX_LINE)
        code = WEIR_ELIMIT;
    if (code == 0)
        weir_buf_discard_read(rest);
    else
        weir_ctx_fail(ctx, code, "a line could not be read: %s", weir_error_text(code));
}

static void lines_removed(weir_ctx *ctx)
{
    lines *self = weir_ctx_state(ctx);
    if (self->rest != NULL)
        weir_buf_release(self->rest);
}

static const weir_handler_type lines_type = {
    .name = "lines",
    .state_size = sizeof(lines),
    .on_read = lines_on_read,
    .removed = lines_removed,
};

/* Chat: the first line is the guest's name, the others are sent to all ------------------------- */

typedef struct guest {
    char name[MAX_NAME + 1]; /* empty: not in the room yet */
} guest;

/* Every guest's handler has the room as its argument. */
static weir_channel_group *room_of(const weir_ctx *ctx)
{
    return weir_ctx_arg(ctx);
}

/* Takes ownership of the buffer; NULL means that there was no memory for it. */
static void send_to_others(weir_ctx *ctx, weir_buf *text)
{
    weir_broadcast to_others = { .except = weir_ctx_channel(ctx) };
    if (text != NULL)
        weir_channel_group_broadcast(room_of(ctx), weir_buf_msg(text), &to_others);
    else
        weir_ctx_fail(ctx, -ENOMEM, "no memory for a message to the others");
}

static void answer(weir_ctx *ctx, const char *text)
{
    weir_buf *buf = weir_buf_new(128);
    if (weir_buf_write_str(buf, text) == 0)
        weir_ctx_write_and_flush(ctx, weir_buf_msg(buf), NULL);
    else
        weir_ctx_fail(ctx, -ENOMEM, "no memory to answer");
}

static bool take_name(guest *self, weir_buf *line)
{
    size_t length = weir_buf_readable(line);
    if (length == 0 || weir_buf_read_str(line, length, self->name, sizeof self->name) < 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)self->name[i])) {
            self->name[0] = '\0';
            return false;
        }
    }
    return true;
}

static void enter(weir_ctx *ctx, weir_buf *line)
{
    guest *self = weir_ctx_state(ctx);
    if (!take_name(self, line)) {
        answer(ctx, "* a name is 1 to 32 letters and digits; yours?\n");
        return;
    }
    int code = weir_channel_group_add(room_of(ctx), weir_ctx_channel(ctx));
    if (code < 0) {
        weir_ctx_fail(ctx, code, "%s cannot enter: %s", self->name, weir_error_text(code));
        return;
    }
    weir_buf *text = weir_buf_new(64);
    weir_buf_printf(text, "* %s came in\n", self->name);
    send_to_others(ctx, text);
    char welcome[64];
    snprintf(welcome, sizeof welcome, "* welcome, %zu in the room\n",
             weir_channel_group_count(room_of(ctx)));
    answer(ctx, welcome);
}

static void say(weir_ctx *ctx, weir_buf *line)
{
    const guest *self = weir_ctx_state(ctx);
    weir_buf *text = weir_buf_new(64 + weir_buf_readable(line)); /* fits all of it */
    weir_buf_printf(text, "%s: ", self->name);
    weir_buf_write_buf(text, line, weir_buf_readable(line));
    weir_buf_write_str(text, "\n");
    send_to_others(ctx, text);
}

static void chat_on_active(weir_ctx *ctx)
{
    answer(ctx, "* your name?\n");
    weir_ctx_fire_active(ctx);
}

static void chat_on_read(weir_ctx *ctx, weir_msg *msg)
{
    const guest *self = weir_ctx_state(ctx);
    if (self->name[0] == '\0')
        enter(ctx, weir_buf_from_msg(msg));
    else
        say(ctx, weir_buf_from_msg(msg));
    weir_msg_release(msg);
}

static void chat_on_inactive(weir_ctx *ctx)
{
    const guest *self = weir_ctx_state(ctx);
    if (self->name[0] != '\0') {
        weir_buf *text = weir_buf_new(64);
        weir_buf_printf(text, "* %s has left\n", self->name);
        send_to_others(ctx, text); /* a closed channel has left the room */
    }
    weir_ctx_fire_inactive(ctx);
}

/* Also receives the errors of `lines`. */
static void chat_on_error(weir_ctx *ctx, const weir_error *error)
{
    fprintf(stderr, "chat: %s\n", error->message);
    weir_ctx_close(ctx, NULL);
}

static const weir_handler_type chat = {
    .name = "chat",
    .state_size = sizeof(guest),
    .on_active = chat_on_active,
    .on_read = chat_on_read,
    .on_inactive = chat_on_inactive,
    .on_error = chat_on_error,
};

/* `lines` receives the bytes and forwards lines to `chat`. */
static int init_child(weir_channel *ch, void *room)
{
    weir_pipeline *pipeline = weir_channel_pipeline(ch);
    int code = weir_pipeline_add_last(pipeline, "lines", &lines_type, NULL);
    return code < 0 ? code : weir_pipeline_add_last(pipeline, "chat", &chat, room);
}

int main(int argc, char **argv)
{
    weir_channel_group *room = weir_channel_group_new();
    weir_option_value limit = { WEIR_OPTION_MAX_OUTBOUND_BYTES, MAX_UNREAD };
    example self = {
        .name = "weir-chat",
        .about = "A chat room, for nc 127.0.0.1 8023: the first line is your name, the others are\n"
                 "sent to all other guests. Lines have up to 8192 bytes; a guest that sends a\n"
                 "longer one, or does not read, is disconnected.\n",
        .listen = "127.0.0.1:8023",
        .server = { .init_child = init_child,
                    .arg = room,
                    .child_options = &limit,
                    .child_option_count = 1 },
    };
    if (room == NULL) {
        fprintf(stderr, "weir-chat: no memory\n");
        return 1;
    }
    int exit_code = example_run(&self, argc, argv);
    weir_channel_group_release(room); /* all channels that have it as an argument are closed */
    return exit_code;
}
