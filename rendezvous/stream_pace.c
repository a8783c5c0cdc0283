/* stream_pace.c - see stream_pace.h. */
#include "rendezvous/stream_pace.h"

void stream_pace_stop(struct stream_pace *pace)
{
    pace->streaming = false;
}

int64_t stream_pace_nap(struct stream_pace *pace, size_t received, bool others, struct instant now)
{
    if (!pace->streaming || instant_diff_ns(now, pace->resume) > STREAM_PACE_GAP_NS) {
        pace->streaming = true;
        pace->crowd = false;
        pace->since = now;
    }
    if (others)
        pace->others = now;
    pace->crowd = others || (pace->crowd && instant_diff_ns(now, pace->others) <= STREAM_PACE_ALONE_NS);
    int64_t nap = instant_diff_ns(now, pace->since) / STREAM_PACE_SHARE;
    if (nap > STREAM_PACE_LONGEST_NS)
        nap = STREAM_PACE_LONGEST_NS;
    if (nap < STREAM_PACE_SHORTEST_NS || received >= STREAM_PACE_PLENTY || !pace->crowd)
        nap = 0;
    pace->resume = instant_add(now, nap);
    return nap;
}
