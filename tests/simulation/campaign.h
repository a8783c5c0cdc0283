/* campaign.h - many seeds, on several processes, with progress and a sum at the end. */
#ifndef MUSTER_TESTS_SIMULATION_CAMPAIGN_H
#define MUSTER_TESTS_SIMULATION_CAMPAIGN_H

#include <stdbool.h>
#include <stdint.h>

enum { CAMPAIGN_FOUND_LIMIT = 32, CAMPAIGN_JOBS_LIMIT = 256 };

struct campaign {
    uint64_t first, count;
    int jobs;           /* processes */
    int64_t every_ns;   /* a line of progress on stderr; 0: none */
    bool stop_at_first; /* finding */
};

struct campaign_result {
    uint64_t seeds, events, finished, failed, restarts;
    uint64_t found[CAMPAIGN_FOUND_LIMIT]; /* seeds that broke an invariant, as many as there is room for */
    uint64_t found_count;
    int64_t took_ns;
};

/* -1: a process could not be started or did not end well. */
int campaign_run(const struct campaign *campaign, struct campaign_result *result);

#endif
