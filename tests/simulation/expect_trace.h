/* expect_trace.h - for tests: the life of a simulated job as text. */
#ifndef MUSTER_TESTS_SIMULATION_EXPECT_TRACE_H
#define MUSTER_TESTS_SIMULATION_EXPECT_TRACE_H

#include "tests/simulation/cluster.h"

/* Runs the cluster, which was made with a trace, and fails the test where an invariant breaks or another text
 * comes out. The cluster stays the caller's. */
void expect_trace(struct cluster *cluster, int64_t until_ms, const char *expected);

#endif
