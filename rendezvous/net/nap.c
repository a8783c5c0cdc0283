/* nap.c - see nap.h. */
#include "rendezvous/net/nap.h"

void nap_stop(struct nap *pace)
{
    pace->streaming = false;
}

int64_t nap_take(struct nap *pace, const struct nap_limits *limits, size_t received, bool others,
                 struct instant now)
{
    if (!pace->streaming || instant_diff_ns(now, pace->resume) > limits->gap_ns) {
        pace->streaming = true;
        pace->crowd = false;
        pace->since = now;
    }
    if (others)
        pace->others = now;
    pace->crowd = others || (pace->crowd && instant_diff_ns(now, pace->others) <= limits->alone_ns);
    int64_t nap = instant_diff_ns(now, pace->since) / NAP_SHARE;
    if (nap > limits->longest_ns)
        nap = limits->longest_ns;
    if (nap < limits->shortest_ns || received >= limits->plenty || !pace->crowd)
        nap = 0;
    pace->resume = instant_add(now, nap);
    return nap;
}
