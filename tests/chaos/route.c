/* SPDX-License-Identifier: MIT */
/* Routes. */
#include "route.h"

#include "ledger.h"
#include "verdict.h"
#include "world.h"

#include <inttypes.h>
#include <unistd.h>

/* Pipelines ---------------------------------------------------------------------------------- */

static int add(const route *self, weir_pipeline *pipeline, const char *name,
               const weir_handler_type *type, const void *arg, bool is_offloaded)
{
    weir_handler_config config = {
        .type = type,
        .name = name,
        .arg = (void *)(uintptr_t)arg,
        .group = is_offloaded ? self->world->executors : NULL,
    };
    return weir_pipeline_add(pipeline, &config, NULL);
}

static int add_transforms(route *self, weir_pipeline *pipeline, bool is_server)
{
    int code = 0;
    (void)is_server;
#ifdef WEIR_HAS_TLS
    if (self->has_tls)
        code = add(self, pipeline, "tls", &weir_tls_handler,
                   is_server ? &self->tls_server : &self->tls_client, self->offloads_tls);
#endif
#ifdef WEIR_HAS_COMPRESSION
    if (code == 0 && self->has_compression)
        code = add(self, pipeline, "decompress", &weir_compression_decoder, &self->decompression,
                   self->offloads_compression);
    if (code == 0 && self->has_compression)
        code = add(self, pipeline, "compress", &weir_compression_encoder, &self->compression,
                   self->offloads_compression);
#endif
    return code;
}

/* From the head: bytes, encrypted bytes, compressed bytes, frames, chunks. */
static int add_handlers(route *self, weir_pipeline *pipeline, bool is_server)
{
    int code = 0;
    if (self->has_traffic)
        code = add(self, pipeline, "traffic", &weir_traffic_handler, &self->traffic, false);
    if (code == 0 && self->has_idle)
        code = add(self, pipeline, "idle", &weir_idle_handler, &self->idle, false);
    if (code == 0)
        code = add_transforms(self, pipeline, is_server);
    if (code == 0 && self->has_flush)
        code = add(self, pipeline, "flush", &weir_flush_consolidation_handler, &self->flush, false);
    if (code == 0 && self->has_frames)
        code = add(self, pipeline, "frames-in", &weir_length_field_decoder, &self->frame_in,
                   self->offloads_frames);
    if (code == 0 && self->has_frames)
        code = add(self, pipeline, "frames-out", &weir_length_prepender_handler, &self->frame_out,
                   self->offloads_frames);
    if (code == 0 && self->has_chunked)
        code = add(self, pipeline, "chunked", &weir_chunked_handler, NULL, self->offloads_chunked);
    if (code == 0 && self->has_file_bytes)
        code = add(self, pipeline, "file-bytes", &weir_file_bytes_handler, NULL,
                   self->offloads_chunked);
    if (code == 0 && self->has_flow)
        code = add(self, pipeline, "flow", &weir_flow_control_handler, NULL, false);
    return code;
}

static int init(route *self, weir_channel *channel, bool is_server, end_role role)
{
    dice d = { .state = self->world->seed * 31 + self->world->inits++ };
    int code = add_handlers(self, weir_channel_pipeline(channel), is_server);
    return code < 0 ? code : end_new(self, channel, is_server, role, &d);
}

static int init_child(weir_channel *channel, void *arg)
{
    world *where = ((route *)arg)->world;
    return init(arg, channel, true, where->children++ % 3 == 0 ? END_LOOSE : END_HELD);
}

static int init_client(weir_channel *channel, void *arg)
{
    world *where = ((route *)arg)->world;
    return init(arg, channel, false, where->clients++ % 3 == 0 ? END_LOOSE : END_HELD);
}

static int init_pooled(weir_channel *channel, void *arg)
{
    return init(arg, channel, false, END_POOLED);
}

/* Choosing ----------------------------------------------------------------------------------- */

static void choose_transforms(route *self, dice *d)
{
#ifdef WEIR_HAS_TLS
    world *where = self->world;
    if (where->tls_server != NULL && where->tls_client != NULL && dice_percent(d, 35)) {
        weir_group *group = dice_percent(d, 40) ? where->executors : NULL;
        self->has_tls = true;
        self->offloads_tls = dice_percent(d, 10);
        self->tls_server = (weir_tls){ .context = where->tls_server,
                                       .close_timeout_ns = WEIR_MS(100),
                                       .handshake_group = group };
        self->tls_client = self->tls_server;
        self->tls_client.context = where->tls_client;
        self->tls_client.host = "localhost";
    }
#endif
#ifdef WEIR_HAS_COMPRESSION
    weir_compression_format format = (weir_compression_format)dice_between(d, WEIR_COMPRESSION_GZIP,
                                                                           WEIR_COMPRESSION_LZ4);
    if (dice_percent(d, 30) && weir_compression_has(format)) {
        self->has_compression = true;
        self->offloads_compression = dice_percent(d, 20);
        self->compression = (weir_compression){ .format = format, .level = 1 };
        self->decompression = (weir_decompression){ .format = format, .max_ratio = WEIR_OFF };
    }
#endif
    (void)d;
}

static void choose_framing(route *self, dice *d)
{
    self->has_frames = dice_percent(d, 50);
    self->offloads_frames = dice_percent(d, 15);
    self->frame_in = (weir_length_field){ .max_frame = 1 << 20, .width = 4, .strip = 4 };
    self->frame_out = (weir_length_prepender){ .width = 4 };
    self->has_chunked = dice_percent(d, 35);
    self->has_file_bytes = !self->has_chunked && dice_percent(d, 35);
    self->offloads_chunked = dice_percent(d, 20);
    bool needs_bytes = self->has_frames || self->has_tls || self->has_compression;
    self->takes_chunked = self->has_chunked || self->has_file_bytes;
    self->takes_files = self->has_file_bytes ||
                        (!needs_bytes && self->transport != TRANSPORT_LOCAL);
    self->has_whole_frames = self->has_frames && !self->takes_chunked;
    self->has_flow = dice_percent(d, 20);
}

static void choose_rest(route *self, dice *d)
{
    self->has_traffic = dice_percent(d, 20);
    self->traffic.each = (weir_traffic_limits){
        .read_bytes_per_second = dice_one_in(d, 2) ? 0 : dice_between(d, 1 << 20, 1 << 24),
        .write_bytes_per_second = dice_between(d, 1 << 20, 1 << 24),
    };
    self->has_idle = dice_percent(d, 20);
    self->idle = (weir_idle){ .reader_ns = WEIR_MS(dice_between(d, 1, 20)), .both_ns = WEIR_MS(5) };
    self->has_flush = dice_percent(d, 25);
    self->flush = (weir_flush_consolidation){ .most_flushes = dice_below(d, 5),
                                              .is_always = dice_one_in(d, 2) };
    self->offloads_end = dice_percent(d, 20);
}

static void add_option(weir_option_value *list, size_t *count, weir_option option, int64_t value)
{
    list[(*count)++] = (weir_option_value){ .option = option, .value = value };
}

static void choose_options(weir_option_value *list, size_t *count, transport kind, dice *d)
{
    add_option(list, count, WEIR_OPTION_LINGER_NS, WEIR_MS(100));
    if (dice_percent(d, 30))
        add_option(list, count, WEIR_OPTION_ALLOW_HALF_CLOSURE, 1);
    if (dice_percent(d, 20))
        add_option(list, count, WEIR_OPTION_MAX_EVENTS_AWAY, dice_between(d, 1, 20));
    if (dice_percent(d, 15))
        add_option(list, count, WEIR_OPTION_MAX_OUTBOUND_BYTES, 300000);
    if (dice_percent(d, 40)) {
        add_option(list, count, WEIR_OPTION_WRITE_LOW_BYTES, 1000);
        add_option(list, count, WEIR_OPTION_WRITE_HIGH_BYTES, 4000);
    }
    if (kind != TRANSPORT_LOCAL && dice_percent(d, 40))
        add_option(list, count, WEIR_OPTION_SEND_BUFFER_BYTES, 4096);
}

static void choose_groups(route *self, dice *d)
{
    world *where = self->world;
    self->workers = where->loops[dice_below(d, where->loop_groups)].group;
    self->boss = dice_one_in(d, 2) ? self->workers
                                   : where->loops[dice_below(d, where->loop_groups)].group;
    self->clients = where->loops[dice_below(d, where->loop_groups)].group;
}

/* Opening ------------------------------------------------------------------------------------ */

static void open_server(route *self, dice *d)
{
    weir_error error;
    weir_address address;
    weir_server_config config = {
        .boss = self->boss,
        .workers = self->workers,
        .init_child = init_child,
        .arg = self,
        .keeps_loop = self->boss == self->workers && !world_is_blocking(self->world, self->boss) &&
                      dice_one_in(d, 3),
        .child_options = self->server_options,
        .child_option_count = self->server_option_count,
    };
    static const char *const forms[] = { "127.0.0.1:0", "unix:@chaos.%d.%" PRIu64 ".%u",
                                         "local:chaos.%d.%" PRIu64 ".%u" };
    snprintf(self->address, sizeof self->address, forms[self->transport], (int)getpid(),
             self->world->seed, self->number);
    int code = weir_server_listen(&self->server, &config, self->address, &error);
    if (code < 0) {
        verdict_trace("route %u: no server: %s", self->number, error.message);
        self->server = NULL;
        return;
    }
    if (self->transport == TRANSPORT_TCP && weir_server_address(self->server, &address) == 0)
        weir_address_text(&address, self->address, sizeof self->address);
}

static weir_client_config client_config(route *self, weir_init_fn init_fn)
{
    return (weir_client_config){
        .group = self->clients,
        .init = init_fn,
        .arg = self,
        .options = self->client_options,
        .option_count = self->client_option_count,
        .connect_timeout_ns = WEIR_MS(10000),
    };
}

static void open_pool(route *self, dice *d)
{
    weir_connection_pool_config config = {
        .client = client_config(self, init_pooled),
        .max = (int)dice_between(d, 1, 3),
        .max_pending = (int)dice_between(d, 1, 20),
        .acquire_timeout_ns = WEIR_MS(dice_one_in(d, 3) ? 2 : 5000),
        .idle_timeout_ns = dice_one_in(d, 3) ? WEIR_MS(2) : 0,
    };
    if (weir_connection_pool_new(&self->pool, &config, self->address, NULL) < 0)
        self->pool = NULL;
}

void route_open(route *self, world *where, unsigned number, dice *d)
{
    *self = (route){ .world = where, .number = number };
    self->transport = (transport)dice_below(d, 3);
    self->stream_bytes = dice_one_in(d, 8) ? 1000000 : dice_between(d, 10000, 150000);
    choose_groups(self, d);
    choose_transforms(self, d);
    choose_framing(self, d);
    choose_rest(self, d);
    choose_options(self->server_options, &self->server_option_count, self->transport, d);
    choose_options(self->client_options, &self->client_option_count, self->transport, d);
    open_server(self, d);
    if (dice_percent(d, 35))
        open_pool(self, d);
}

/* Connecting --------------------------------------------------------------------------------- */

static void on_connected(void *arg, uint32_t number, weir_future *future)
{
    (void)arg;
    (void)number;
    verdict_trace("connected: %s", weir_error_name(weir_future_code(future)));
}

static void on_acquired(void *arg, uint32_t number, weir_future *future)
{
    (void)number;
    route *self = arg;
    weir_channel *channel = weir_future_value(future);
    if (channel == NULL)
        return;
    end *lent = end_of(channel);
    MUST(lent != NULL, "the pool lends a channel that was not initialised");
    MUST(!lent->is_spent, "the pool lends end %u, which its last borrower has ended", lent->number);
    verdict_trace("end %u: acquired", lent->number);
    world_borrow(self->world, self->pool, channel);
}

void route_connect(route *self, dice *d)
{
    weir_client_config config = client_config(self, init_client);
    if (self->pool != NULL && dice_one_in(d, 2)) {
        weir_promise *promise = ledger_promise("acquire", NULL, NULL, on_acquired, self,
                                               self->number);
        if (promise != NULL) {
            if (dice_one_in(d, 10))
                ledger_offer(promise, d);
            weir_connection_pool_acquire(self->pool, promise);
        }
        weir_promise_release(promise);
        return;
    }
    weir_promise *promise = ledger_promise("connect", NULL, NULL, on_connected, self, 0);
    if (promise != NULL && dice_one_in(d, 20))
        ledger_offer(promise, d);
    int code = weir_client_start(&config, self->address, promise, NULL);
    if (code < 0 && promise != NULL)
        weir_promise_fail(promise, code);
    weir_promise_release(promise);
}

void route_release_server(route *self)
{
    if (self->server != NULL)
        weir_server_release(self->server);
    self->server = NULL;
}

void route_release(route *self)
{
    route_release_server(self);
    if (self->pool != NULL)
        weir_connection_pool_release(self->pool);
    self->pool = NULL;
}

void route_print(const route *self, FILE *to)
{
    fprintf(to, "  route %u: %s%s, to the tail:%s%s%s%s%s%s%s%s%s%s\n", self->number, self->address,
            self->server != NULL ? "" : " (no server)", self->has_traffic ? " traffic" : "",
            self->has_idle ? " idle" : "",
            !self->has_tls       ? ""
            : self->offloads_tls ? " tls*"
                                 : " tls",
            !self->has_compression       ? ""
            : self->offloads_compression ? " compression*"
                                         : " compression",
            self->has_flush ? " flush" : "",
            !self->has_frames       ? ""
            : self->offloads_frames ? " frames*"
                                    : " frames",
            !self->has_chunked       ? ""
            : self->offloads_chunked ? " chunked*"
                                     : " chunked",
            !self->has_file_bytes    ? ""
            : self->offloads_chunked ? " file-bytes*"
                                     : " file-bytes",
            self->has_flow ? " flow" : "", self->offloads_end ? " end*" : " end");
    const weir_option_value *lists[] = { self->server_options, self->client_options };
    size_t counts[] = { self->server_option_count, self->client_option_count };
    for (unsigned side = 0; side < 2; side++) {
        fprintf(to, "    %s options:", side == 0 ? "server" : "client");
        for (size_t i = 0; i < counts[side]; i++)
            fprintf(to, " %s=%" PRId64, weir_option_get_info(lists[side][i].option)->name,
                    lists[side][i].value);
        fputc('\n', to);
    }
}
