/* cut_step.h - steps that are cut off at a chosen place, in ranks that are threads: a comm over shared memory
 * after whose operation the rank's device fails, as after the loss of a peer. */
#ifndef MUSTER_TESTS_RECOVER_CUT_STEP_H
#define MUSTER_TESTS_RECOVER_CUT_STEP_H

#include "runtime/train/trainer.h"

/* After the sum of the norm over shards or stages; after the sum over all ranks: the other ranks of either
 * have this rank's part, and go on. */
enum cut_at { CUT_NOWHERE, CUT_IN_NORM, CUT_IN_SUM };

/* For trainer_options.comm. */
const struct comm_ops *cut_comm(void);
/* The next step of the calling thread's trainer is cut off there. */
void cut_next_step(const struct trainer *trainer, enum cut_at at);

#endif
