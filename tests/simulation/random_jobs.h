/* random_jobs.h - jobs with random nodes, delays and faults, made from a seed and run to their end. */
#ifndef MUSTER_TESTS_SIMULATION_RANDOM_JOBS_H
#define MUSTER_TESTS_SIMULATION_RANDOM_JOBS_H

#include <stdint.h>

#include "tests/simulation/cluster.h"

enum random_kind { RANDOM_STATIC, RANDOM_ELASTIC, RANDOM_KIND_COUNT };

struct random_run {
    struct cluster *cluster; /* the caller's to destroy */
    const char *wrong;       /* the invariant that broke, or what is wrong with the end; NULL: nothing */
};

/* Equal arguments give equal runs. */
struct random_run random_run(enum random_kind kind, uint64_t seed);

#endif
