/* SPDX-License-Identifier: MIT */
/* Durations as text. */
#include <weir/duration.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct unit {
    uint64_t ns;
    const char *name;
} unit;

static const unit *unit_for(uint64_t ns)
{
    static const unit units[] = {
        { 1, "ns" }, { 1000, "us" }, { 1000000, "ms" }, { 1000000000, "s" }
    };
    size_t at = 0;
    while (at < 3 && ns >= units[at + 1].ns)
        at++;
    return &units[at];
}

/* Up to three digits, without zeros at the end; rounds down. */
static void write_fraction(char *to, size_t size, uint64_t rest, const unit *of)
{
    unsigned thousandths = of->ns > 1 ? (unsigned)(rest / (of->ns / 1000)) : 0;
    snprintf(to, size, ".%03u", thousandths);
    size_t length = strlen(to);
    while (length > 0 && (to[length - 1] == '0' || to[length - 1] == '.'))
        to[--length] = '\0';
}

const char *weir_duration_text(int64_t ns, char *text, size_t size)
{
    char fraction[8];
    uint64_t positive_ns = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    const unit *in = unit_for(positive_ns);
    write_fraction(fraction, sizeof fraction, positive_ns % in->ns, in);
    snprintf(text, size, "%s%" PRIu64 "%s %s", ns < 0 ? "-" : "", positive_ns / in->ns, fraction,
             in->name);
    return text;
}
