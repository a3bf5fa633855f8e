/* SPDX-License-Identifier: MIT */
/* The verifier: one input, fed in many ways. */
#include <weir/verifier.h>

#include "testing/random.h"

#include <weir/channel.h>
#include <weir/decoder.h>
#include <weir/embedded.h>
#include <weir/leak.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RANDOM_CUTS 32
#define LARGEST_RANDOM_PIECE 16
#define ALL_ENDS_UP_TO 64
#define FEW_ENDS 16

/* A byte may be looked at when it comes, when it is copied to what is kept, and when its message is
 * made; and each of them twice when a message straddles reads. */
#define LOOKS_PER_BYTE 8
#define LOOKS_ANYWAY 4096

/* How the pieces are chosen. */
typedef struct feeding {
    enum { WHOLE, BYTES, CUT, RANDOM } how;
    size_t cut;      /* where; or which of the random ones */
    size_t end;      /* how much of the input there is */
    bool has_closed; /* behind it */
} feeding;

typedef struct verifier {
    const weir_verifier_config *config;
    weir_verifier_report report; /* its messages and errors: of the present run */
    weir_embedded *embedded;
    weir_buf *expected; /* what came of the input as a whole */
    weir_buf *found;    /* what comes of it in the present run */
    uint64_t chance;
    uint64_t looked_at;
    bool is_in_bytes; /* of a stream, which may go on */
    int code;         /* of what could not be written down */
    weir_error *error;
} verifier;

static int fail(verifier *self, const feeding *way, int code, const char *what)
{
    static const char *const names[] = { "as a whole", "byte by byte", "cut at", "cut at random" };
    char cut[32] = "", closed[48] = "";
    if (way->how >= CUT)
        snprintf(cut, sizeof cut, " %zu", way->cut);
    if (way->has_closed)
        snprintf(closed, sizeof closed, ", closed after %zu", way->end);
    return weir_error_set(self->error, code, "verifier", "%s%s%s: %s", names[way->how], cut, closed,
                          what);
}

/* Writing down --------------------------------------------------------------------------------- */

static void remember(verifier *self, int code)
{
    if (self->code == 0)
        self->code = code;
}

static int describe(const verifier *self, const weir_msg *msg)
{
    if (self->config->describe != NULL)
        return self->config->describe(msg, self->found);
    if (msg->type != &weir_buf_type)
        return weir_buf_printf(self->found, "%s of %zu bytes", msg->type->name, weir_msg_size(msg));
    const weir_buf *buf = (const weir_buf *)msg;
    int code = weir_buf_printf(self->found, "%zu bytes\n", weir_buf_readable(buf));
    return code < 0
               ? code
               : weir_buf_hex_dump(buf, weir_buf_reader(buf), weir_buf_readable(buf), self->found);
}

/* A run of bytes is one line, whatever buffers it comes in. */
static void end_bytes(verifier *self)
{
    if (self->is_in_bytes)
        remember(self, weir_buf_write_str(self->found, "\n"));
    self->is_in_bytes = false;
}

static void record_bytes(verifier *self, weir_buf *buf)
{
    uint8_t byte;
    if (!self->is_in_bytes) {
        self->report.messages++;
        remember(self, weir_buf_write_str(self->found, "bytes: "));
    }
    self->is_in_bytes = true;
    while (weir_buf_read_u8(buf, &byte) == 0)
        remember(self, weir_buf_printf(self->found, "%02x", byte));
    weir_buf_release(buf);
}

static void record_on_read(weir_ctx *ctx, weir_msg *msg)
{
    verifier *self = weir_ctx_arg(ctx);
    if (self->config->is_stream && msg->type == &weir_buf_type) {
        record_bytes(self, weir_buf_from_msg(msg));
        return;
    }
    end_bytes(self);
    self->report.messages++;
    remember(self, weir_buf_write_str(self->found, "message: "));
    remember(self, describe(self, msg));
    remember(self, weir_buf_write_str(self->found, "\n"));
    weir_msg_release(msg);
}

static void record_on_error(weir_ctx *ctx, const weir_error *error)
{
    verifier *self = weir_ctx_arg(ctx);
    self->report.errors++;
    end_bytes(self);
    if (self->config->is_stream) {
        remember(self, weir_buf_write_str(self->found, "error\n"));
        return;
    }
    remember(self, weir_buf_printf(self->found, "error: %s: %s: %s\n", error->origin,
                                   weir_error_name(error->code), error->message));
}

static const weir_handler_type recorder = {
    .name = "recorder",
    .on_read = record_on_read,
    .on_error = record_on_error,
};

static int init(weir_channel *channel, void *arg)
{
    verifier *self = arg;
    int code = self->config->init(channel, self->config->arg);
    return code < 0 ? code
                    : weir_pipeline_add_last(weir_channel_pipeline(channel), NULL, &recorder, self);
}

/* Feeding -------------------------------------------------------------------------------------- */

/* How long the next piece is. */
static size_t next_piece(verifier *self, const feeding *way, size_t at)
{
    size_t piece = way->end - at, wanted = piece;
    if (way->how == BYTES)
        wanted = 1;
    else if (way->how == CUT && at < way->cut)
        wanted = way->cut - at;
    else if (way->how == RANDOM)
        wanted = 1 + (size_t)(weir__random_next(&self->chance) % LARGEST_RANDOM_PIECE);
    return wanted < piece ? wanted : piece;
}

/* On the channel's loop. A decoder that has left, or closed the channel, has cost what it had. */
static int get_looked_at(void *arg)
{
    verifier *self = arg;
    const weir_ctx *ctx = weir_pipeline_ctx(weir_embedded_pipeline(self->embedded),
                                            self->config->decoder);
    if (ctx != NULL)
        self->looked_at = ((const weir_decoder *)weir_ctx_state(ctx))->looked_at;
    return 0;
}

static void feed(verifier *self, const feeding *way)
{
    const uint8_t *input = self->config->input;
    for (size_t at = 0, piece; at < way->end; at += piece) {
        piece = next_piece(self, way, at);
        if (weir_embedded_write_inbound_bytes(self->embedded, input + at, piece) == WEIR_ECLOSED)
            break; /* the decoder has had enough */
        if (self->config->decoder != NULL)
            weir_embedded_call(self->embedded, get_looked_at, self);
    }
    if (way->has_closed)
        weir_embedded_end_inbound(self->embedded, 0);
}

/* Feeds it once, and writes down what comes of it. */
static int run(verifier *self, const feeding *way)
{
    self->report.runs++;
    self->report.messages = self->report.errors = 0;
    self->looked_at = 0;
    weir_buf_clear(self->found);
    int code = weir_embedded_new(&self->embedded,
                                 &(weir_embedded_config){ .init = init, .arg = self }, self->error);
    if (code < 0)
        return code;
    self->is_in_bytes = false;
    feed(self, way);
    end_bytes(self);
    bool is_open = weir_channel_is_open(weir_embedded_channel(self->embedded));
    remember(self, weir_buf_write_str(self->found, is_open ? "open\n" : "closed\n"));
    weir_verifier_report report = self->report; /* without what comes of the end here */
    size_t left = weir_embedded_finish(self->embedded, NULL);
    weir_embedded_free(self->embedded);
    self->report = report;
    if (self->code < 0)
        return fail(self, way, self->code, "what came of it could not be written down");
    if (left > 0)
        return fail(self, way, -EEXIST, "something is left alive");
    if (self->looked_at > LOOKS_ANYWAY + LOOKS_PER_BYTE * (uint64_t)way->end)
        return fail(self, way, WEIR_ELIMIT, "bytes were looked at too often");
    return 0;
}

/* Comparing ------------------------------------------------------------------------------------ */

/* The line at which two texts begin to differ. */
static void line_of(const weir_buf *text, size_t at, char *to, size_t size)
{
    const char *bytes = (const char *)weir_buf_peek(text, 0, weir_buf_readable(text));
    size_t begin = at, length = 0;
    while (begin > 0 && bytes[begin - 1] != '\n')
        begin--;
    while (begin + length < weir_buf_readable(text) && bytes[begin + length] != '\n' &&
           length < size - 1)
        length++;
    memcpy(to, bytes + begin, length);
    to[length] = '\0';
}

/* Whether two texts, which differ from `at` on, do so in how far a stream got before an error. */
static bool is_cut_by_error(const verifier *self, size_t at)
{
    size_t expected = weir_buf_readable(self->expected), found = weir_buf_readable(self->found);
    int64_t a = weir_buf_find_bytes(self->expected, 0, expected, "error", 5);
    int64_t b = weir_buf_find_bytes(self->found, 0, found, "error", 5);
    if (!self->config->is_stream || a < 0 || b < 0 || expected - (size_t)a != found - (size_t)b ||
        at + 1 < (size_t)(a < b ? a : b))
        return false;
    return memcmp(weir_buf_peek(self->expected, (size_t)a, expected - (size_t)a),
                  weir_buf_peek(self->found, (size_t)b, found - (size_t)b),
                  expected - (size_t)a) == 0;
}

static int compare(verifier *self, const feeding *way)
{
    size_t expected = weir_buf_readable(self->expected), found = weir_buf_readable(self->found);
    size_t length = expected < found ? expected : found, at = 0;
    const uint8_t *a = weir_buf_peek(self->expected, 0, length);
    const uint8_t *b = weir_buf_peek(self->found, 0, length);
    while (at < length && a[at] == b[at])
        at++;
    if ((at == expected && at == found) || is_cut_by_error(self, at))
        return 0;
    char ours[72], theirs[72], text[192];
    line_of(self->found, at, ours, sizeof ours);
    line_of(self->expected, at, theirs, sizeof theirs);
    snprintf(text, sizeof text, "'%s' instead of '%s'", ours, theirs);
    return fail(self, way, -EBADMSG, text);
}

static int run_and_compare(verifier *self, feeding way)
{
    int code = run(self, &way);
    return code < 0 ? code : compare(self, &way);
}

/* What comes of so much of the input, however it comes. */
static int verify_up_to(verifier *self, size_t end, bool has_closed)
{
    feeding way = { .how = WHOLE, .end = end, .has_closed = has_closed };
    int code = run(self, &way);
    weir_buf *found = self->found;
    self->found = self->expected; /* to be written over */
    self->expected = found;
    weir_verifier_report report = self->report;
    way.how = BYTES;
    code = code < 0 ? code : run_and_compare(self, way);
    way.how = CUT;
    for (way.cut = 1; way.cut < end && code == 0 && !self->config->is_brief; way.cut++)
        code = run_and_compare(self, way);
    way.how = RANDOM;
    unsigned random_cuts = self->config->random_cuts;
    for (way.cut = 0; way.cut < (random_cuts > 0 ? random_cuts : RANDOM_CUTS) && code == 0;
         way.cut++)
        code = run_and_compare(self, way);
    self->report.messages = report.messages;
    self->report.errors = report.errors;
    return code;
}

static int verify(verifier *self)
{
    size_t length = self->config->length, most = self->config->all_ends_up_to;
    int code = 0;
    if (self->config->is_brief) {
        /* no early ends */
    } else if (length <= (most > 0 ? most : ALL_ENDS_UP_TO)) {
        for (size_t end = 0; end < length && code == 0; end++)
            code = verify_up_to(self, end, true);
    } else {
        for (unsigned i = 0; i < FEW_ENDS && code == 0; i++)
            code = verify_up_to(self, (size_t)(weir__random_next(&self->chance) % length), true);
    }
    code = code < 0 ? code : verify_up_to(self, length, true);
    return code < 0 ? code : verify_up_to(self, length, false);
}

int weir_verify(const weir_verifier_config *config, weir_verifier_report *report, weir_error *error)
{
    if (config == NULL || config->init == NULL || (config->input == NULL && config->length > 0))
        return weir_error_set(error, -EINVAL, "verifier", "there is no input, or no `init`");
    weir_leak_mode mode = weir_leak_get_mode();
    if (!config->is_brief)
        weir_leak_set_mode(WEIR_LEAK_ALL); /* also in builds that do not look for leaks */
    verifier self = { .config = config, .chance = config->seed, .error = error };
    self.expected = weir_buf_new(0);
    self.found = weir_buf_new(0);
    int code = self.expected != NULL && self.found != NULL
                   ? verify(&self)
                   : weir_error_set(error, -ENOMEM, "verifier", "no memory");
    weir_buf_release(self.expected);
    weir_buf_release(self.found);
    weir_leak_set_mode(mode);
    if (report != NULL)
        *report = self.report;
    return code;
}
