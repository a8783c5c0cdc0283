/* nccl_test_trials.h - random operations of a comm over memory of the device and of the host, each also done
 * by comm_shm over the host's. */
#ifndef MUSTER_TESTS_NCCL_TEST_TRIALS_H
#define MUSTER_TESTS_NCCL_TEST_TRIALS_H

#include "tests/gpu/nccl/nccl_test_ranks.h"

/* `count` operations by job->seed, of at most `most` elements, and each what comm_shm makes of it; sums of
 * more than two, and averages, within their rounding. Arrays have to fit into halves of the rank's arena. */
int nccl_trials(struct nccl_rank *r, struct nccl_job *job, const struct comm_ops *ops, struct comm *comm,
                int64_t most, int count);

#endif
