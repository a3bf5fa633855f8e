/* SPDX-License-Identifier: MIT */
/* The trace of a simulation: one line for each step. */
#include "base/alloc.h"
#include "testing/sim.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LONGEST_LINE 512

/* Makes room by forgetting the oldest lines, a quarter at a time. */
static void forget_oldest(weir_sim *sim, size_t length)
{
    size_t room = sim->config.trace_bytes;
    if (sim->kept_bytes + length < room)
        return;
    const char *from = strchr(sim->kept + room / 4, '\n');
    size_t gone = from != NULL ? (size_t)(from + 1 - sim->kept) : sim->kept_bytes;
    sim->kept_bytes -= gone;
    memmove(sim->kept, sim->kept + gone, sim->kept_bytes + 1);
}

static void keep(weir_sim *sim, const char *line)
{
    size_t length = strlen(line) + 1;
    if (length >= sim->config.trace_bytes)
        return;
    while (sim->kept_bytes + length >= sim->config.trace_bytes)
        forget_oldest(sim, length);
    memcpy(sim->kept + sim->kept_bytes, line, length);
    sim->kept_bytes += length;
    sim->kept[sim->kept_bytes - 1] = '\n';
    sim->kept[sim->kept_bytes] = '\0';
}

static size_t begin_line(const weir_sim *sim, const weir_sim_host *host, char line[LONGEST_LINE])
{
    int length = snprintf(line, LONGEST_LINE, "%" PRId64 ".%09" PRId64 " %s ",
                          sim->now_ns / 1000000000, sim->now_ns % 1000000000,
                          host != NULL ? host->name : "-");
    return (size_t)length;
}

static void end_line(weir_sim *sim, const char *line)
{
    if (sim->config.trace != NULL)
        sim->config.trace(sim->config.trace_arg, line);
    if (sim->kept != NULL)
        keep(sim, line);
}

void weir_sim_trace(weir_sim *sim, const weir_sim_host *host, const char *format, ...)
{
    char line[LONGEST_LINE];
    if (!weir__sim_is_traced(sim))
        return;
    size_t length = begin_line(sim, host, line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, sizeof line - length, format, arguments);
    va_end(arguments);
    end_line(sim, line);
}

void weir__sim_note(const weir_sim_file *file, const char *format, ...)
{
    char line[LONGEST_LINE];
    weir_sim *sim = file->host->sim;
    size_t length = begin_line(sim, file->host, line);
    if (file->fd >= 0)
        length += (size_t)snprintf(line + length, sizeof line - length, "#%d ",
                                   file->fd - WEIR_SIM_FIRST_FD);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, sizeof line - length, format, arguments);
    va_end(arguments);
    end_line(sim, line);
}

const char *weir_sim_get_trace(const weir_sim *sim)
{
    return sim->kept != NULL ? sim->kept : "";
}

void weir__sim_trace_free(weir_sim *sim)
{
    weir__free(sim->kept);
    sim->kept = NULL;
}
