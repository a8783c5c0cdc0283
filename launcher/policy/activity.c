/* activity.c - see activity.h. */
#include "launcher/policy/activity.h"

#include <string.h>

/* Watchdog threads of NCCL and PyTorch that wake ten times a second stay below it. */
static const int quiet_percent = 1;

/* A sum that falls: a process has ended. */
static bool is_active(const struct activity *before, const struct activity_sample *sample, struct instant now)
{
    int64_t used = sample->cpu_ns - before->sample.cpu_ns, elapsed = instant_diff_ns(now, before->taken);
    return used < 0 || used > elapsed / 100 * quiet_percent || sample->output != before->sample.output ||
           sample->there != before->sample.there;
}

void activity_take(struct activity *activity, const struct activity_sample *sample, struct instant now)
{
    if (!activity->known || is_active(activity, sample, now))
        activity->quiet_since = now;
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
        if (a->over)
            continue;
        if (!a->known || !a->sample.there || instant_diff_ns(a->taken, a->quiet_since) < timeout_ns)
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
