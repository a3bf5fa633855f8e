/* SPDX-License-Identifier: MIT */
/* weir-tick: an event loop with a timer, a watched descriptor and signals.
 *
 * Counts seconds and the bytes typed. Ends at ^C, at EOF of the input, or after the seconds that
 * the command line says. */
#include "options.h"

#include <weir/weir.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char program[] = "weir-tick";

typedef struct ticker {
    weir_group *group;
    weir_loop *loop;
    weir_timer timer;
    weir_watch input;
    weir_signal interrupt, terminate;
    int seconds, limit; /* 0: until the end of input */
} ticker;

static void end(ticker *self, const char *why)
{
    printf("%s, ending\n", why);
    /* Asynchronous: stops the timer, the watch and the signals. */
    weir_group_shutdown(self->group, 0, WEIR_SECONDS(1));
}

static int on_second(weir_timer *timer)
{
    ticker *self = WEIR_CONTAINER(timer, ticker, timer);
    printf("%d s\n", ++self->seconds);
    if (self->seconds == self->limit)
        end(self, "time is up");
    return 0;
}

static void on_input(weir_watch *watch, unsigned events)
{
    (void)events;
    char text[256];
    ssize_t length = read(STDIN_FILENO, text, sizeof text);
    if (length > 0) {
        printf("%zd bytes typed\n", length);
        return;
    }
    weir_watch_stop(watch);
}

/* Also called at once: epoll rejects files and /dev/null, which are always ready. */
static void on_input_end(weir_watch *watch, int code)
{
    ticker *self = WEIR_CONTAINER(watch, ticker, input);
    if (code < 0 && code != WEIR_ESHUTDOWN)
        printf("cannot watch the input: %s\n", weir_error_text(code));
    if (code != WEIR_ESHUTDOWN && self->limit == 0)
        end(self, "end of input");
}

static void on_interrupt(weir_signal *signal, int number)
{
    end(WEIR_CONTAINER(signal, ticker, interrupt), strsignal(number));
}

static void on_terminate(weir_signal *signal, int number)
{
    end(WEIR_CONTAINER(signal, ticker, terminate), strsignal(number));
}

static int start(ticker *self)
{
    int code = weir_loop_signal(self->loop, &self->interrupt, SIGINT);
    if (code == 0)
        code = weir_loop_signal(self->loop, &self->terminate, SIGTERM);
    if (code == 0)
        code = weir_watch_start(&self->input, self->loop, STDIN_FILENO, WEIR_WATCH_READ);
    if (code == 0)
        code = weir_timer_schedule_at_rate(&self->timer, weir_loop_executor(self->loop),
                                           WEIR_SECONDS(1), WEIR_SECONDS(1));
    return code;
}

int main(int argc, char **argv)
{
    ticker self = {
        .timer = { .fire = on_second, .name = "second" },
        .input = { .ready = on_input, .stopped = on_input_end },
        .interrupt = { .raised = on_interrupt },
        .terminate = { .raised = on_terminate },
    };
    weir_error error;
    const example_option argument = { "SECONDS", .number = &self.limit, 1, 1000000000 };
    const char *about =
        "Counts seconds and the bytes typed. Ends at ^C, at EOF or after SECONDS.\n";
    example_parse(&(example_command){ program, about, .argument = &argument }, argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* Not the default of WEIR_IO: a blocking loop waits for one descriptor, and this for three. */
    weir_group_config config = { .loops = 1, .name = "tick", .io = WEIR_IO_EPOLL };
    int code = weir_group_new(&self.group, &config, &error);
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", program, error.message);
        return 1;
    }
    self.loop = weir_group_next_loop(self.group);
    code = start(&self);
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", program, weir_error_text(code));
        weir_group_shutdown(self.group, 0, WEIR_SECONDS(1));
    }
    weir_future_await(weir_group_terminated(self.group));
    weir_group_free(self.group);
    return code < 0 ? 1 : 0;
}
