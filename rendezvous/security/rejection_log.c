/* rejection_log.c - see rejection_log.h. */
#include "rendezvous/security/rejection_log.h"

#include <inttypes.h>
#include <stdio.h>

static const int64_t first_interval_ns = 60 * NS_PER_S, last_interval_ns = 3600 * NS_PER_S;

static const char *const words[] = {
#define REFUSAL_WORDS(symbol, words) [symbol] = words,
    REJECTIONS(REFUSAL_WORDS)
#undef REFUSAL_WORDS
};

static const char *const names[] = {
    [REFUSAL_NO_SECRET] = "no secret",
    [REFUSAL_SECRET_UNWANTED] = "secret not expected",
    [REFUSAL_OTHER_SECRET] = "another secret",
    [REFUSAL_OTHER_JOB] = "another job id",
    [REFUSAL_CROWD] = "too many connections",
    [REFUSAL_PLACE] = "idle connection closed",
    [REFUSAL_STRANGER] = "not muster's protocol",
    [REFUSAL_SILENT] = "incomplete handshake",
    [REFUSAL_MALFORMED] = "a malformed request",
};
_Static_assert(sizeof names / sizeof *names == REFUSAL_COUNT, "a name for each reason");

static const char *shown(const char *address)
{
    return *address ? address : "a peer";
}

bool rejection_log_note(struct rejection_log *refusals, enum refusal reason, const char *address,
                        struct instant now, char line[REFUSAL_LINE_SIZE])
{
    __typeof__(refusals->reasons[0]) *of = &refusals->reasons[reason];
    (void)snprintf(of->address, sizeof of->address, "%s", address);
    bool first = of->total++ == 0, first_known = *address && !of->placed;
    of->placed = of->placed || *address;
    if (!first && !first_known) {
        of->untold++;
        return false;
    }
    if (first) {
        of->interval_ns = first_interval_ns;
        of->tell_at = instant_add(now, of->interval_ns);
    }
    (void)snprintf(line, REFUSAL_LINE_SIZE, "refused %s: %s", shown(of->address), words[reason]);
    return true;
}

bool rejection_log_next(struct rejection_log *refusals, struct instant now, char line[REFUSAL_LINE_SIZE])
{
    for (int reason = 0; reason < REFUSAL_COUNT; reason++) {
        __typeof__(refusals->reasons[0]) *of = &refusals->reasons[reason];
        if (!of->untold || !instant_reached(now, of->tell_at))
            continue;
        (void)snprintf(line, REFUSAL_LINE_SIZE,
                       "refused %" PRIu64 " more (%" PRIu64 " in all), the last %s: %s", of->untold,
                       of->total, shown(of->address), words[reason]);
        of->untold = 0;
        of->interval_ns *= 2;
        if (of->interval_ns > last_interval_ns)
            of->interval_ns = last_interval_ns;
        of->tell_at = instant_add(now, of->interval_ns);
        return true;
    }
    return false;
}

struct instant rejection_log_deadline(const struct rejection_log *refusals)
{
    struct instant next = INSTANT_NEVER;
    for (int reason = 0; reason < REFUSAL_COUNT; reason++)
        if (refusals->reasons[reason].untold)
            next = instant_min(next, refusals->reasons[reason].tell_at);
    return next;
}

bool rejection_log_total(const struct rejection_log *refusals, char line[REFUSAL_LINE_SIZE])
{
    int length = 0;
    line[0] = '\0';
    for (int reason = 0; reason < REFUSAL_COUNT; reason++)
        if (refusals->reasons[reason].total && length < REFUSAL_LINE_SIZE)
            length +=
                snprintf(line + length, (size_t)(REFUSAL_LINE_SIZE - length), "%s%" PRIu64 " (%s)",
                         length ? ", " : "connections that were refused: ", refusals->reasons[reason].total,
                         names[reason]);
    return length > 0;
}
