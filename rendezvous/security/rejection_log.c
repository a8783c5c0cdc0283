/* rejection_log.c - see rejection_log.h. */
#include "rendezvous/security/rejection_log.h"

#include <inttypes.h>
#include <stdio.h>

#include "proto/base/text.h"

static const int64_t first_interval_ns = 60 * NS_PER_S, last_interval_ns = 3600 * NS_PER_S;

static const char *const words[] = {
#define REJECTION_TEXT(symbol, words) [symbol] = words,
    REJECTIONS(REJECTION_TEXT)
#undef REJECTION_TEXT
};

static const char *const names[] = {
    [REJECTION_NO_SECRET] = "no secret",
    [REJECTION_SECRET_UNWANTED] = "secret not expected",
    [REJECTION_OTHER_SECRET] = "another secret",
    [REJECTION_OTHER_JOB] = "another job id",
    [REJECTION_CROWD] = "too many connections",
    [REJECTION_EVICTED] = "idle connection closed",
    [REJECTION_ENDLESS] = "message without an end",
    [REJECTION_PROTOCOL] = "not muster's protocol",
    [REJECTION_SILENT] = "incomplete handshake",
    [REJECTION_MALFORMED] = "a malformed request",
};
_Static_assert(sizeof names / sizeof *names == REJECTION_COUNT, "a name for each reason");

static const char *shown(const char *address)
{
    return *address ? address : "a peer";
}

bool rejection_log_note(struct rejection_log *rejections, enum rejection reason, const char *address,
                        struct instant now, char line[REJECTION_LINE_SIZE])
{
    __typeof__(rejections->reasons[0]) *of = &rejections->reasons[reason];
    (void)snprintf(of->address, sizeof of->address, "%s", address);
    bool first = of->total++ == 0, first_known = *address && !of->placed;
    of->placed = of->placed || *address;
    if (!first && !first_known) {
        of->unlogged++;
        return false;
    }
    if (first) {
        of->interval_ns = first_interval_ns;
        of->log_at = instant_add(now, of->interval_ns);
    }
    (void)snprintf(line, REJECTION_LINE_SIZE, "refused %s: %s", shown(of->address), words[reason]);
    return true;
}

bool rejection_log_next(struct rejection_log *rejections, struct instant now, char line[REJECTION_LINE_SIZE])
{
    for (int reason = 0; reason < REJECTION_COUNT; reason++) {
        __typeof__(rejections->reasons[0]) *of = &rejections->reasons[reason];
        if (!of->unlogged || !instant_reached(now, of->log_at))
            continue;
        (void)snprintf(line, REJECTION_LINE_SIZE,
                       "refused %" PRIu64 " more (%" PRIu64 " in all), the last %s: %s", of->unlogged,
                       of->total, shown(of->address), words[reason]);
        of->unlogged = 0;
        of->interval_ns *= 2;
        if (of->interval_ns > last_interval_ns)
            of->interval_ns = last_interval_ns;
        of->log_at = instant_add(now, of->interval_ns);
        return true;
    }
    return false;
}

struct instant rejection_log_deadline(const struct rejection_log *rejections)
{
    struct instant next = INSTANT_NEVER;
    for (int reason = 0; reason < REJECTION_COUNT; reason++)
        if (rejections->reasons[reason].unlogged)
            next = instant_min(next, rejections->reasons[reason].log_at);
    return next;
}

bool rejection_log_total(const struct rejection_log *rejections, char line[REJECTION_LINE_SIZE])
{
    line[0] = '\0';
    for (int reason = 0; reason < REJECTION_COUNT; reason++)
        if (rejections->reasons[reason].total)
            (void)text_append(line, REJECTION_LINE_SIZE, "%s%" PRIu64 " (%s)",
                              line[0] ? ", " : "connections that were refused: ",
                              rejections->reasons[reason].total, names[reason]);
    return line[0] != '\0';
}
