/* hang.c - see hang.h. */
#include "launcher/policy/hang.h"

#include <assert.h>
#include <string.h>

static const int64_t answer_bound_ns = 5 * NS_PER_S, /* a handler that writes stacks is quick, or hangs too */
    abort_bound_ns = 10 * NS_PER_S; /* the remaining workers are stopped as after any failure */

const char *hang_state_name(enum hang_state state)
{
#define HANG_NAME(symbol, name, ...) [symbol] = (name),
    static const char *const names[] = {HANG_STATES(HANG_NAME)};
#undef HANG_NAME
    return (unsigned)state < HANG_STATE_COUNT ? names[state] : "?";
}

struct cell {
    enum hang_action action;
    enum hang_state next;
};

/* Columns: STALLED, ANSWERED, GONE, DEADLINE, RESET. */
static const struct cell table[HANG_STATE_COUNT][HANG_EVENT_COUNT] = {
    [HANG_WATCHING] = {{HANG_ASK, HANG_ASKING}, {0}, {0}, {0}, {0}},
    [HANG_ASKING] = {{HANG_NOTHING, HANG_ASKING},
                     {HANG_ABORT, HANG_ABORTING},
                     {HANG_TELL, HANG_WATCHING},
                     {HANG_ABORT, HANG_ABORTING},
                     {0}},
    [HANG_ABORTING] = {{HANG_NOTHING, HANG_ABORTING},
                       {HANG_NOTHING, HANG_ABORTING},
                       {HANG_TELL, HANG_WATCHING},
                       {HANG_TELL, HANG_WATCHING},
                       {0}},
};

enum hang_action hang_step(struct hang *hang, enum hang_event event, struct instant now)
{
    const struct cell *cell = &table[hang->state][event];
    if (cell->next != hang->state) {
        const int64_t bounds[] = {[HANG_ASKING] = answer_bound_ns, [HANG_ABORTING] = abort_bound_ns};
        hang->deadline = cell->next == HANG_WATCHING ? INSTANT_NEVER : instant_add(now, bounds[cell->next]);
    }
    hang->state = cell->next;
    assert((hang->state == HANG_WATCHING) == (hang->deadline.ns == INSTANT_NEVER.ns));
    return cell->action;
}

/* --- activity --- */

/* Watchdog threads of NCCL and PyTorch that wake ten times a second stay below it. */
static const int quiet_percent = 1;
/* On a crowded machine such a thread waits for a processor at each of its wakes. A thread that would compute
 * waits nearly all the time. */
static const int starved_percent = 50;

/* A sum that falls: a process has ended. */
static bool is_active(const struct activity *before, const struct activity_sample *sample, struct instant now)
{
    int64_t used = sample->cpu_ns - before->sample.cpu_ns, elapsed = instant_diff_ns(now, before->taken);
    return used < 0 || used > elapsed / 100 * quiet_percent ||
           sample->starved_ns - before->sample.starved_ns > elapsed / 100 * starved_percent ||
           sample->output != before->sample.output || sample->there != before->sample.there;
}

void activity_take(struct activity *activity, const struct activity_sample *sample, struct instant now)
{
    /* The end of a worker is its last sign of life: the others waited for it, and end next. Of its session
     * only helpers are left. */
    if (!activity->known || (activity->over ? !activity->end_seen : is_active(activity, sample, now)))
        activity->quiet_since = now;
    activity->end_seen = activity->over;
    activity->known = true;
    activity->sample = *sample;
    activity->taken = now;
}

int64_t activity_period_ns(int64_t timeout_ns)
{
    const int64_t period = timeout_ns / 8, least = NS_PER_S / 4, most = 10 * NS_PER_S;
    return period < least ? least : period > most ? most : period;
}

/* Workers that wait in the same place as this one, itself included. */
static int count_same(const struct activity *activities, int count, int index)
{
    int same = 0;
    for (int i = 0; i < count; i++)
        same += !activities[i].over && !strcmp(activities[i].sample.wait, activities[index].sample.wait);
    return same;
}

int activities_hung(const struct activity *activities, int count, int64_t timeout_ns)
{
    int suspect = -1, fewest = count + 1;
    for (int i = 0; i < count; i++) {
        const struct activity *a = &activities[i];
        if (!a->known || instant_diff_ns(a->taken, a->quiet_since) < timeout_ns)
            return -1;
        if (a->over)
            continue;
        if (!a->sample.there)
            return -1;
        const int same = count_same(activities, count, i);
        if (same < fewest) {
            fewest = same;
            suspect = i;
        }
    }
    return suspect;
}

static const char *wait_or_unknown(const struct activity *activity)
{
    return *activity->sample.wait ? activity->sample.wait : "an unknown place";
}

int activities_format(const struct activity *activities, int count, int suspect, int rank_base,
                      struct buffer *out)
{
    int other = 0, others = -1;
    for (int i = 0; i < count; i++)
        others += !activities[i].over;
    while (other < count && (activities[other].over ||
                             !strcmp(activities[other].sample.wait, activities[suspect].sample.wait)))
        other++;
    if (other == count)
        buffer_printf(out, "all wait in %s", wait_or_unknown(&activities[suspect]));
    else
        buffer_printf(out, "rank %d waits in %s, %d of %d others in %s", rank_base + suspect,
                      wait_or_unknown(&activities[suspect]), count_same(activities, count, other), others,
                      wait_or_unknown(&activities[other]));
    return out->failed ? -1 : 0;
}
