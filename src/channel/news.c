/* SPDX-License-Identifier: MIT */
/* What a channel's handlers are told about its coming and going. */
#include "channel/inbox.h"
#include "channel/registration.h"

/* By then the loop may be at the end of a task or an operation of another channel's. */
static void fire(weir_channel *channel, weir_event_kind kind)
{
    weir_visit visit;
    weir__visit_begin(&visit, weir__channel_describe, channel);
    weir__pipeline_fire(channel, kind);
    weir__visit_end(&visit);
}

/* It has come to the loop, or has become active: what waited goes on. */
static void go_on(weir_channel *channel, weir_event_kind kind)
{
    if (kind == WEIR_EV_ACTIVE)
        fire(channel, WEIR_EV_ACTIVE);
    if (channel->is_read_wanted || (kind != WEIR_EV_ACTIVE && channel->is_auto_read))
        weir__channel_read_now(channel);
    if (weir__outbound_has_flushed(&channel->outbound) || channel->is_output_ended)
        weir__channel_resume_output(channel);
}

/* What was told has to come back from there before the end of everything is told. */
static bool waits_for_handlers_elsewhere(const weir_channel *channel)
{
    return channel->away > 0 && !channel->is_abandoned &&
           weir__lifecycle_state(&channel->life) == WEIR_CHANNEL_CLOSED &&
           !channel->life.is_told_active && !channel->life.is_told_registered;
}

static void tell(weir_channel *channel)
{
    const weir_transport *transport = channel->transport;
    channel->is_news_queued = false;
    while (!waits_for_handlers_elsewhere(channel)) {
        switch (weir__lifecycle_news(&channel->life)) {
        case WEIR_NEWS_REGISTERED:
            fire(channel, WEIR_EV_REGISTERED);
            if (transport->is_active != NULL && transport->is_active(channel))
                weir__lifecycle_activate(&channel->life);
            continue;
        case WEIR_NEWS_ACTIVE:
            go_on(channel, WEIR_EV_ACTIVE);
            continue;
        case WEIR_NEWS_AGAIN:
            go_on(channel, WEIR_EV_REGISTERED);
            continue;
        case WEIR_NEWS_INACTIVE:
            fire(channel, WEIR_EV_INACTIVE);
            continue;
        case WEIR_NEWS_UNREGISTERED:
            fire(channel, WEIR_EV_UNREGISTERED);
            continue;
        case WEIR_NEWS_OVER:
            weir__pipeline_remove_all(&channel->pipeline);
            weir__channel_try_to_go(channel);
            break;
        case WEIR_NEWS_NONE:
            weir__channel_go_elsewhere(channel); /* and from then on it is another thread's */
            break;
        }
        break;
    }
    weir_channel_release(channel);
}

static void run_notice(weir_notice *notice)
{
    tell(WEIR_CONTAINER(notice, weir_channel, news));
}

static void run_call(weir_home *home, weir_call *call)
{
    (void)call;
    tell(weir__channel_at(home));
}

/* Fires lifecycle events after the listeners of promises that are complete by now. Without a loop,
 * removed handlers of other executors return on any thread: the inbox serialises both. */
void weir__channel_queue_news(weir_channel *channel)
{
    if (channel->is_news_queued)
        return;
    channel->is_news_queued = true;
    weir_channel_retain(channel);
    if (weir__channel_loop(channel) == NULL && weir__channel_is_closing(channel)) {
        channel->news_call.run = run_call;
        weir__inbox_push(channel, &channel->news_call);
        return;
    }
    channel->news.run = run_notice;
    weir__channel_queue_notice(channel, &channel->news);
}

void weir__channel_activate(weir_channel *channel)
{
    if (weir__lifecycle_activate(&channel->life) == 0)
        weir__channel_queue_news(channel);
}
