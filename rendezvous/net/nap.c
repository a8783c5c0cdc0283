/* stream_pace.c - see stream_pace.h. */
#include "rendezvous/stream_pace.h"

void stream_pace_stop(struct stream_pace *pace)
{
    pace->streaming = false;
}

int64_t stream_pace_nap(struct stream_pace *pace, const struct stream_pace_limits *limits, size_t received,
                        bool others, struct instant now)
{
    if (!pace->streaming || instant_diff_ns(now, pace->resume) > limits->gap_ns) {
        pace->streaming = true;
        pace->crowd = false;
        pace->since = now;
    }
    if (others)
        pace->others = now;
    pace->crowd = others || (pace->crowd && instant_diff_ns(now, pace->others) <= limits->alone_ns);
    int64_t nap = instant_diff_ns(now, pace->since) / STREAM_PACE_SHARE;
    if (nap > limits->longest_ns)
        nap = limits->longest_ns;
    if (nap < limits->shortest_ns || received >= limits->plenty || !pace->crowd)
        nap = 0;
    pace->resume = instant_add(now, nap);
    return nap;
}
