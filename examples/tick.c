/* SPDX-License-Identifier: MIT */
/* weir-tick: an event loop with a timer, a watched descriptor and signals.
 *
 * Counts seconds, tells what is typed, and ends with ^C, the end of input, or after the seconds
 * that the command line names. */
#include <weir/weir.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct ticker {
    weir_group *group;
    weir_loop *loop;
    weir_timer timer;
    weir_watch input;
    weir_signal interrupt, terminate;
    int seconds, limit;
} ticker;

static void end(ticker *self, const char *why)
{
    printf("%s, ending\n", why);
    weir_group_shutdown(self->group, 0, 1000); /* asynchronous: stops timer, watch and signals */
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
    ticker *self = WEIR_CONTAINER(watch, ticker, input);
    char text[256];
    ssize_t length = read(STDIN_FILENO, text, sizeof text);
    if (length > 0) {
        printf("%zd bytes typed\n", length);
        return;
    }
    weir_watch_stop(watch);
    if (self->limit == 0)
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

int main(int argc, char **argv)
{
    ticker self = {
        .timer = { .fire = on_second, .name = "second" },
        .input = { .ready = on_input },
        .interrupt = { .raised = on_interrupt },
        .terminate = { .raised = on_terminate },
        .limit = argc > 1 ? atoi(argv[1]) : 0,
    };
    weir_error error;
    bool asks_help = argc == 2 && strcmp(argv[1], "--help") == 0;
    if (asks_help || argc > 2 || (argc == 2 && self.limit <= 0)) {
        fprintf(asks_help ? stdout : stderr,
                "usage: weir-tick [SECONDS]\n"
                "Counts seconds, and tells what is typed. Ends with ^C, "
                "the end of input, or after SECONDS.\n");
        return asks_help ? 0 : 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (weir_group_new(&self.group, &(weir_group_config){ .loops = 1, .name = "tick" }, &error) <
        0) {
        fprintf(stderr, "weir-tick: %s\n", error.message);
        return 1;
    }
    self.loop = weir_group_next_loop(self.group);
    if (weir_loop_signal(self.loop, &self.interrupt, SIGINT) < 0 ||
        weir_loop_signal(self.loop, &self.terminate, SIGTERM) < 0 ||
        weir_watch_start(&self.input, self.loop, STDIN_FILENO, WEIR_WATCH_READ) < 0 ||
        weir_timer_schedule_at_rate(&self.timer, weir_loop_executor(self.loop), WEIR_SECONDS(1),
                                    WEIR_SECONDS(1)) < 0)
        end(&self, "no loop could be started");
    weir_future_await(weir_group_terminated(self.group));
    weir_group_free(self.group);
    return 0;
}
