/* canary.h - measures how a process that runs next to a test is served by the machine: at each probe it asks
 * to be woken at a deadline and then does a fixed piece of work. The time for this, in units of the time
 * without any disturbance (the fastest probe so far), is the machine's factor: 1 on an idle machine, about 4
 * where eight busy processes share two processors.
 *
 * canary_note, canary_factor and the like are pure; canary_probe reads the clock and works. */
#ifndef MUSTER_TESTS_CANARY_H
#define MUSTER_TESTS_CANARY_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"

enum {
    CANARY_WINDOW = 20,       /* probes whose mean is looked at for the slowest stretch */
    CANARY_INTERVAL_MS = 100, /* so the slowest stretch is of two seconds */
};

/* Zeroed at first. */
struct canary {
    int64_t probes;
    int64_t total_ns;   /* sum over all probes: from the deadline until the work was done */
    int64_t fastest_ns; /* work alone, of one probe */
    int64_t largest_ns; /* how late the latest wake was */
    int64_t window_ns[CANARY_WINDOW];
    int64_t window_total_ns, slowest_window_ns; /* the latter: of a full window */
};

/* A probe that woke so late and worked so long. */
void canary_note(struct canary *canary, int64_t late_ns, int64_t work_ns);
/* The mean of all probes by the fastest one's work; 1 where there were none. */
double canary_factor(const struct canary *canary);
/* The same of the slowest stretch of CANARY_WINDOW probes; of all where there were fewer. */
double canary_slowest(const struct canary *canary);

/* To be called at the deadline or after it: works, and notes it. */
void canary_probe(struct canary *canary, struct instant deadline);

#endif
