/* SPDX-License-Identifier: MIT */
/* Shapers: token buckets that are claimed from in turn, and counters. */
#include "handler/traffic_shaper.h"

#include "base/alloc.h"

#include <weir/timer.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>

#define MOST ((int64_t)1 << 50)
#define MAX_WAIT_NS WEIR_SECONDS((int64_t)1 << 32)
#define DEFAULT_WAIT_NS WEIR_SECONDS(4)
#define LONGEST_NS 1e15 /* until somebody looks again */
#define NS_PER_S 1e9

/*
 *                             claimed       allowed, at most a burst more than claimed
 *      ---- bytes ----|---------|---------------|-------->
 *                     |  claim  |  the next one may pass at once if it ends before
 *
 * `allowed` grows with the time, by the rate. Who wants bytes claims them, behind all who did
 * before, and may pass them when `allowed` has got there. So nobody keeps a list of who waits: each
 * knows how long, and waits on its own loop. And who has one claim at a time gets one turn in each
 * round.
 */
typedef struct bucket {
    int64_t rate, burst;
    int64_t allowed, claimed;
    double part;   /* of a byte, which is allowed, too: slow rates would be slower without */
    int64_t at_ns; /* as of when that is so */
    bool is_fresh; /* it is full, as of whenever it is asked */

    uint64_t passed;
    uint64_t slot, before; /* bytes of the present second, and of the one before */
    int64_t slot_at;       /* that second */
} bucket;

struct weir_shaper {
    pthread_mutex_t lock; /* of all that follows; held for a few instructions */
    weir_clock *clock;
    weir_traffic_limits limits;
    bool has_news; /* limits that the buckets have not heard of: what was until now, was by the old
                    */
    bucket buckets[2];
    uint64_t delayed_bytes, delayed_messages, paused;
    int64_t paused_ns, delayed_ns;
};

/* Limits --------------------------------------------------------------------------------------- */

static int refuse(weir_error *error, const char *what, int64_t value)
{
    return weir_error_set(error, -EINVAL, "traffic", "%s cannot be %" PRId64, what, value);
}

static bool is_out_of_range(int64_t bytes)
{
    return bytes < 0 || bytes > MOST;
}

static int check(const weir_traffic_limits *limits, weir_error *error)
{
    if (is_out_of_range(limits->read_bytes_per_second))
        return refuse(error, "read_bytes_per_second", limits->read_bytes_per_second);
    if (is_out_of_range(limits->read_burst_bytes))
        return refuse(error, "read_burst_bytes", limits->read_burst_bytes);
    if (is_out_of_range(limits->write_bytes_per_second))
        return refuse(error, "write_bytes_per_second", limits->write_bytes_per_second);
    if (is_out_of_range(limits->write_burst_bytes))
        return refuse(error, "write_burst_bytes", limits->write_burst_bytes);
    if (limits->max_wait_ns < WEIR_OFF || limits->max_wait_ns > MAX_WAIT_NS)
        return refuse(error, "max_wait_ns", limits->max_wait_ns);
    return 0;
}

static void set_rate(bucket *self, int64_t rate, int64_t burst)
{
    self->is_fresh = self->is_fresh || self->rate == 0; /* who has no limit has used up nothing */
    self->rate = rate;
    self->burst = burst > 0 ? burst : (rate + 9) / 10;
}

static void hear_news(weir_shaper *self)
{
    const weir_traffic_limits *limits = &self->limits;
    self->has_news = false;
    set_rate(&self->buckets[WEIR_WAY_READ], limits->read_bytes_per_second,
             limits->read_burst_bytes);
    set_rate(&self->buckets[WEIR_WAY_WRITE], limits->write_bytes_per_second,
             limits->write_burst_bytes);
}

/* Buckets -------------------------------------------------------------------------------------- */

/* Loops do not all look at the clock at the same time, so it may be a little earlier than it was.
 */
static void fill(bucket *self, int64_t now_ns)
{
    int64_t most = self->claimed + self->burst;
    double gained = self->part;
    if (self->is_fresh) {
        self->is_fresh = false;
        self->allowed = most;
        self->at_ns = now_ns;
    }
    if (now_ns > self->at_ns) {
        gained += (double)(now_ns - self->at_ns) * (double)self->rate / NS_PER_S;
        self->at_ns = now_ns;
    }
    if (gained < (double)(most - self->allowed)) {
        self->allowed += (int64_t)gained;
        self->part = gained - (double)(int64_t)gained;
    } else {
        self->allowed = most;
        self->part = 0;
    }
}

static void fill_both(weir_shaper *self, int64_t now_ns)
{
    fill(&self->buckets[WEIR_WAY_READ], now_ns);
    fill(&self->buckets[WEIR_WAY_WRITE], now_ns);
}

static bucket *look_at(weir_shaper *self, weir_way way, int64_t now_ns)
{
    fill_both(self, now_ns);
    if (self->has_news) {
        hear_news(self);
        fill_both(self, now_ns);
    }
    return &self->buckets[way];
}

static int64_t wait_for(const bucket *self, int64_t upto)
{
    if (self->rate == 0 || upto <= self->allowed)
        return 0;
    double missing = (double)(upto - self->allowed) - self->part;
    double wait_ns = missing * NS_PER_S / (double)self->rate;
    int64_t whole_ns = (int64_t)(wait_ns < LONGEST_NS ? wait_ns : LONGEST_NS);
    return whole_ns + ((double)whole_ns < wait_ns);
}

static int64_t max_wait_ns(const weir_shaper *shaper)
{
    int64_t chosen_ns = shaper->limits.max_wait_ns;
    if (chosen_ns == WEIR_OFF)
        return INT64_MAX;
    return chosen_ns > 0 ? chosen_ns : DEFAULT_WAIT_NS;
}

/* What a message counts as: not more than what may pass in the longest wait. */
static int64_t weigh(const weir_shaper *shaper, const bucket *self, uint64_t bytes)
{
    int64_t wait_ns = max_wait_ns(shaper);
    double most = (double)self->rate * (double)wait_ns / NS_PER_S;
    int64_t counted = bytes < (uint64_t)MOST ? (int64_t)bytes : MOST;
    return (double)counted < most ? counted : (int64_t)most;
}

/* By the limits of now a claim may count as less than when it was made. */
static void weigh_anew(const weir_shaper *shaper, bucket *self, weir_claim *claim)
{
    int64_t excess = claim->bytes - weigh(shaper, self, (uint64_t)claim->bytes);
    claim->bytes -= excess;
    self->allowed += excess;
}

int64_t weir__shaper_claim(weir_shaper *shaper, weir_way way, uint64_t bytes, int64_t now_ns,
                           weir_claim *claim)
{
    pthread_mutex_lock(&shaper->lock);
    bucket *self = look_at(shaper, way, now_ns);
    claim->bytes = weigh(shaper, self, bytes);
    claim->upto = self->claimed += claim->bytes;
    int64_t wait_ns = wait_for(self, claim->upto);
    pthread_mutex_unlock(&shaper->lock);
    return wait_ns;
}

int64_t weir__shaper_wait(weir_shaper *shaper, weir_way way, weir_claim *claim, int64_t now_ns)
{
    pthread_mutex_lock(&shaper->lock);
    bucket *self = look_at(shaper, way, now_ns);
    weigh_anew(shaper, self, claim);
    int64_t wait_ns = wait_for(self, claim->upto);
    pthread_mutex_unlock(&shaper->lock);
    return wait_ns;
}

/* Those behind it move up. Those before it, too, which is as well: its bytes do not come. */
void weir__shaper_unclaim(weir_shaper *shaper, weir_way way, const weir_claim *claim)
{
    pthread_mutex_lock(&shaper->lock);
    shaper->buckets[way].allowed += claim->bytes;
    pthread_mutex_unlock(&shaper->lock);
}

/* Counters ------------------------------------------------------------------------------------- */

/* A second, and the one before, are enough to tell what the last 1,000 ms were like. */
static void turn_slot(bucket *self, int64_t now_ns)
{
    int64_t slot_at = now_ns / WEIR_SECONDS(1);
    if (slot_at <= self->slot_at)
        return;
    self->before = slot_at == self->slot_at + 1 ? self->slot : 0;
    self->slot = 0;
    self->slot_at = slot_at;
}

static uint64_t speed_of(bucket *self, int64_t now_ns)
{
    turn_slot(self, now_ns);
    double rest = 1 - (double)(now_ns % WEIR_SECONDS(1)) / NS_PER_S;
    return self->slot + (uint64_t)((double)self->before * rest);
}

void weir__shaper_passed(weir_shaper *shaper, weir_way way, uint64_t bytes, int64_t now_ns)
{
    pthread_mutex_lock(&shaper->lock);
    bucket *self = &shaper->buckets[way];
    turn_slot(self, now_ns);
    self->slot += bytes;
    self->passed += bytes;
    pthread_mutex_unlock(&shaper->lock);
}

void weir__shaper_delayed(weir_shaper *shaper, int64_t bytes, int messages)
{
    pthread_mutex_lock(&shaper->lock);
    shaper->delayed_bytes += (uint64_t)bytes;
    shaper->delayed_messages += (uint64_t)messages;
    pthread_mutex_unlock(&shaper->lock);
}

void weir__shaper_waited(weir_shaper *shaper, int64_t time_ns)
{
    pthread_mutex_lock(&shaper->lock);
    shaper->delayed_ns += time_ns;
    pthread_mutex_unlock(&shaper->lock);
}

void weir__shaper_paused(weir_shaper *shaper)
{
    pthread_mutex_lock(&shaper->lock);
    shaper->paused++;
    pthread_mutex_unlock(&shaper->lock);
}

void weir__shaper_resumed(weir_shaper *shaper, int64_t time_ns)
{
    pthread_mutex_lock(&shaper->lock);
    shaper->paused--;
    shaper->paused_ns += time_ns;
    pthread_mutex_unlock(&shaper->lock);
}

void weir_shaper_get_stats(weir_shaper *shaper, weir_traffic_stats *stats)
{
    pthread_mutex_lock(&shaper->lock);
    bucket *in = &shaper->buckets[WEIR_WAY_READ], *out = &shaper->buckets[WEIR_WAY_WRITE];
    int64_t now_ns = weir_clock_now_ns(shaper->clock);
    *stats = (weir_traffic_stats){
        .read_bytes = in->passed,
        .written_bytes = out->passed,
        .read_bytes_per_second = speed_of(in, now_ns),
        .written_bytes_per_second = speed_of(out, now_ns),
        .delayed_bytes = shaper->delayed_bytes,
        .delayed_messages = shaper->delayed_messages,
        .reads_paused = shaper->paused,
        .read_paused_ns = shaper->paused_ns,
        .write_delayed_ns = shaper->delayed_ns,
    };
    pthread_mutex_unlock(&shaper->lock);
}

/* Making and changing -------------------------------------------------------------------------- */

int weir_shaper_new(weir_shaper **shaper, const weir_traffic_limits *limits, weir_error *error)
{
    if (shaper == NULL || limits == NULL)
        return weir_error_set(error, -EINVAL, "traffic", "a shaper needs limits");
    int code = check(limits, error);
    if (code < 0)
        return code;
    weir_shaper *self = weir__zalloc(sizeof *self);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "traffic", "no memory for a shaper");
    pthread_mutex_init(&self->lock, NULL);
    self->clock = weir_clock_monotonic();
    self->limits = *limits;
    hear_news(self);
    *shaper = self;
    return 0;
}

void weir_shaper_free(weir_shaper *shaper)
{
    if (shaper != NULL)
        pthread_mutex_destroy(&shaper->lock);
    weir__free(shaper);
}

int weir_shaper_set_limits(weir_shaper *shaper, const weir_traffic_limits *limits,
                           weir_error *error)
{
    if (shaper == NULL || limits == NULL)
        return weir_error_set(error, -EINVAL, "traffic", "a shaper needs limits");
    int code = check(limits, error);
    if (code < 0)
        return code;
    pthread_mutex_lock(&shaper->lock);
    shaper->limits = *limits;
    shaper->has_news = true;
    pthread_mutex_unlock(&shaper->lock);
    return 0;
}

void weir_shaper_get_limits(weir_shaper *shaper, weir_traffic_limits *limits)
{
    pthread_mutex_lock(&shaper->lock);
    *limits = shaper->limits;
    pthread_mutex_unlock(&shaper->lock);
}

void weir__shaper_set_clock(weir_shaper *shaper, weir_clock *clock)
{
    pthread_mutex_lock(&shaper->lock);
    shaper->clock = clock;
    pthread_mutex_unlock(&shaper->lock);
}
