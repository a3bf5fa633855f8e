/* SPDX-License-Identifier: MIT */
/* Options of channels: checked by their table, and put where they belong. */
#include "base/alloc.h"
#include "channel/extras.h"
#include "channel/inbox.h"

#include <weir/log.h>

#include <errno.h>

static int refuse(weir_error *error, int code, weir_option option, int64_t value, const char *why)
{
    const weir_option_info *info = weir_option_get_info(option);
    return weir_error_set(error, code, "channel", "%s is %lld, which is %s",
                          info != NULL ? info->name : "option", (long long)value, why);
}

static int check(weir_option option, int64_t value, weir_error *error)
{
    const weir_option_info *info = weir_option_get_info(option);
    if (info == NULL)
        return refuse(error, -ENOPROTOOPT, option, (int64_t)option, "none that there is");
    if (value >= info->least && value <= info->most)
        return 0;
    return weir_error_set(error, -EINVAL, "channel", "%s is %lld, which is not from %lld to %lld",
                          info->name, (long long)value, (long long)info->least,
                          (long long)info->most);
}

static int apply_mark(weir_channel *channel, weir_option option, int64_t value, weir_error *error)
{
    bool is_low = option == WEIR_OPTION_WRITE_LOW_BYTES;
    if (is_low ? value > channel->out.high_bytes : value < channel->out.low_bytes)
        return refuse(error, -EINVAL, option, value,
                      is_low ? "above write_high_bytes" : "below write_low_bytes");
    *(is_low ? &channel->out.low_bytes : &channel->out.high_bytes) = (uint32_t)value;
    weir__channel_update_writability(channel);
    return 0;
}

static int apply_to_transport(weir_channel *channel, weir_option option, int64_t value,
                              weir_error *error)
{
    const weir_transport *transport = channel->transport;
    int code = transport->set_option != NULL ? transport->set_option(channel, option, value)
                                             : -ENOPROTOOPT;
    if (code == -ENOPROTOOPT)
        return weir_error_set(error, code, "channel", "%s is nothing that a %s channel has",
                              weir_option_get_info(option)->name, transport->name);
    if (code < 0)
        return weir_error_set(error, code, "channel", "%s cannot be %lld: %s",
                              weir_option_get_info(option)->name, (long long)value,
                              weir_error_text(code));
    return 0;
}

/* On the loop. */
static int apply(weir_channel *channel, weir_option option, int64_t value, weir_error *error)
{
    weir_channel_extras *extras;
    if (weir__channel_is_closing(channel))
        return refuse(error, WEIR_ECLOSED, option, value, "too late: the channel is closed");
    switch (option) {
    case WEIR_OPTION_AUTO_READ:
        weir__channel_set_auto_read(channel, value != 0);
        return 0;
    case WEIR_OPTION_ALLOW_HALF_CLOSURE:
        channel->in.allows_half_closure = value != 0;
        return 0;
    case WEIR_OPTION_PAUSE_WHEN_UNWRITABLE:
        channel->out.pauses_when_unwritable = value != 0;
        weir__channel_update_writability(channel);
        return 0;
    case WEIR_OPTION_WRITE_LOW_BYTES:
    case WEIR_OPTION_WRITE_HIGH_BYTES:
        return apply_mark(channel, option, value, error);
    default:
        if ((int)option >= WEIR__CHANNEL_OPTIONS_END)
            return apply_to_transport(channel, option, value, error);
        extras = weir__channel_need_extras(channel);
        if (extras == NULL)
            return refuse(error, -ENOMEM, option, value, "too much: there is no memory for it");
        atomic_store_explicit(&extras->options[option], value, memory_order_relaxed);
        return 0;
    }
}

/* Both at once, for there is no order of one after the other that is always right. */
static int apply_marks(weir_channel *channel, size_t low_bytes, size_t high_bytes)
{
    if (weir__channel_is_closing(channel))
        return WEIR_ECLOSED;
    channel->out.low_bytes = (uint32_t)low_bytes;
    channel->out.high_bytes = (uint32_t)high_bytes;
    weir__channel_update_writability(channel);
    return 0;
}

typedef struct option_call {
    weir_call call;
    weir_option option; /* WEIR_OPTIONS_END: both water marks */
    int64_t value;
    size_t low_bytes, high_bytes;
} option_call;

static void run_option(weir_home *home, weir_call *call)
{
    weir_channel *channel = weir__channel_at(home);
    option_call *self = WEIR_CONTAINER(call, option_call, call);
    weir_error error;
    if (self->option == WEIR_OPTIONS_END)
        apply_marks(channel, self->low_bytes, self->high_bytes);
    else if (apply(channel, self->option, self->value, &error) < 0)
        weir_log(WEIR_LOG_WARN, "channel", "%08llx: %s", (unsigned long long)channel->id,
                 error.message);
    weir__free(self);
}

int weir_channel_set_option(weir_channel *channel, weir_option option, int64_t value,
                            weir_error *error)
{
    if (channel == NULL)
        return weir_error_set(error, -EINVAL, "channel", "there is no channel");
    int code = check(option, value, error);
    if (code < 0)
        return code;
    if (weir__channel_owner(channel) != WEIR_OWNER_OTHERS || weir__channel_is_closing(channel))
        return apply(channel, option, value, error);
    option_call *call = weir__alloc(sizeof *call);
    if (call == NULL)
        return refuse(error, -ENOMEM, option, value, "too much: there is no memory for it");
    *call = (option_call){ .call.run = run_option, .option = option, .value = value };
    weir__inbox_push(channel, &call->call);
    return 0;
}

int weir_channel_set_water_marks(weir_channel *channel, size_t low_bytes, size_t high_bytes)
{
    if (channel == NULL || low_bytes > high_bytes || high_bytes == 0 || high_bytes > INT32_MAX)
        return -EINVAL;
    if (weir__channel_owner(channel) != WEIR_OWNER_OTHERS || weir__channel_is_closing(channel))
        return apply_marks(channel, low_bytes, high_bytes);
    option_call *call = weir__alloc(sizeof *call);
    if (call == NULL)
        return -ENOMEM;
    *call = (option_call){ .call.run = run_option, .option = WEIR_OPTIONS_END };
    call->low_bytes = low_bytes;
    call->high_bytes = high_bytes;
    weir__inbox_push(channel, &call->call);
    return 0;
}

int weir_channel_set_options(weir_channel *channel, const weir_option_value *options, size_t count,
                             weir_error *error)
{
    int code = options != NULL || count == 0 ? 0 : -EINVAL;
    for (size_t i = 0; code == 0 && i < count; i++)
        code = weir_channel_set_option(channel, options[i].option, options[i].value, error);
    return code;
}

static weir_option_value *find_child_option(const weir_channel_extras *extras, weir_option option)
{
    for (size_t i = 0; i < extras->child_option_count; i++) {
        if (extras->child_options[i].option == option)
            return &extras->child_options[i];
    }
    return NULL;
}

static int keep_child_option(weir_channel *channel, weir_option option, int64_t value)
{
    weir_channel_extras *extras = weir__channel_need_extras(channel);
    weir_option_value *kept = extras != NULL ? find_child_option(extras, option) : NULL;
    if (extras != NULL && kept == NULL) {
        size_t count = extras->child_option_count + 1;
        weir_option_value *list = weir__realloc(extras->child_options, count * sizeof *list);
        if (list != NULL) {
            extras->child_options = list;
            extras->child_option_count = count;
            kept = &list[count - 1];
        }
    }
    if (kept == NULL)
        return -ENOMEM;
    *kept = (weir_option_value){ option, value };
    return 0;
}

int weir_channel_set_child_option(weir_channel *channel, weir_option option, int64_t value,
                                  weir_error *error)
{
    if (channel == NULL)
        return weir_error_set(error, -EINVAL, "channel", "there is no channel");
    int code = check(option, value, error);
    if (code < 0)
        return code;
    if (weir__channel_is_closing(channel))
        return refuse(error, WEIR_ECLOSED, option, value, "too late: the channel is closed");
    if (weir__channel_owner(channel) != WEIR_OWNER_ME)
        return refuse(error, -EPERM, option, value, "to be set on the channel's loop");
    const weir_transport *transport = channel->transport;
    bool is_own = (int)option < WEIR__CHANNEL_OPTIONS_END || transport->child_option == NULL;
    int way = is_own ? 0 : transport->child_option(channel, option);
    if (way < 0)
        return weir_error_set(error, way, "channel", "%s is nothing that a child of a %s has",
                              weir_option_get_info(option)->name, transport->name);
    if (way > 0)
        return apply_to_transport(channel, option, value, error);
    code = keep_child_option(channel, option, value);
    return code < 0 ? refuse(error, code, option, value, "too much: there is no memory for it") : 0;
}

static int64_t child_mark(const weir_channel_extras *extras, weir_option option, int64_t own)
{
    const weir_option_value *kept = find_child_option(extras, option);
    return kept != NULL ? kept->value : own;
}

/* Both water marks at once, whichever is set: one after the other there may be no right order. */
static int inherit_marks(weir_channel *child, const weir_channel_extras *extras)
{
    int64_t low = child_mark(extras, WEIR_OPTION_WRITE_LOW_BYTES, child->out.low_bytes);
    int64_t high = child_mark(extras, WEIR_OPTION_WRITE_HIGH_BYTES, child->out.high_bytes);
    return weir_channel_set_water_marks(child, (size_t)(low < high ? low : high), (size_t)high);
}

int weir__channel_inherit(weir_channel *child)
{
    if (child->parent == NULL)
        return 0;
    const weir_channel_extras *extras = weir__channel_extras(child->parent);
    child->out.pauses_when_unwritable = true; /* unless the option says otherwise */
    if (extras == NULL || extras->child_option_count == 0)
        return 0;
    int code = inherit_marks(child, extras);
    for (size_t i = 0; code == 0 && i < extras->child_option_count; i++) {
        weir_option option = extras->child_options[i].option;
        if (option != WEIR_OPTION_WRITE_LOW_BYTES && option != WEIR_OPTION_WRITE_HIGH_BYTES)
            code = apply(child, option, extras->child_options[i].value, NULL);
    }
    return code;
}

int weir_channel_get_option(const weir_channel *channel, weir_option option, int64_t *value)
{
    if (channel == NULL || value == NULL)
        return -EINVAL;
    if (weir_option_get_info(option) == NULL)
        return -ENOPROTOOPT;
    if ((int)option >= WEIR__CHANNEL_OPTIONS_END)
        return channel->transport->get_option != NULL
                   ? channel->transport->get_option(channel, option, value)
                   : -ENOPROTOOPT;
    switch (option) {
    case WEIR_OPTION_AUTO_READ:
        *value = channel->in.is_auto_read;
        break;
    case WEIR_OPTION_ALLOW_HALF_CLOSURE:
        *value = channel->in.allows_half_closure;
        break;
    case WEIR_OPTION_PAUSE_WHEN_UNWRITABLE:
        *value = channel->out.pauses_when_unwritable;
        break;
    case WEIR_OPTION_WRITE_LOW_BYTES:
        *value = channel->out.low_bytes;
        break;
    case WEIR_OPTION_WRITE_HIGH_BYTES:
        *value = channel->out.high_bytes;
        break;
    default:
        *value = weir__channel_option(channel, option);
        break;
    }
    return 0;
}
