/* sample_log.h - which samples each step of a run took: JSON lines in one file a rank,
 *
 *   {"run": 1764000000000000000, "step": 17, "rank": 1, "ranks": 3, "samples": [257, 260]}
 *
 * `run` is when rank 0 started, in nanoseconds of its clock, the same on all ranks. A line is written before
 * its step is run: a step that a later run takes again, because its checkpoint was lost, has lines of both,
 * and those of the later run count. */
#ifndef MUSTER_TRAINER_RUN_SAMPLE_LOG_H
#define MUSTER_TRAINER_RUN_SAMPLE_LOG_H

#include "runtime/include/muster.h"

struct sample_log;

/* Collective. Opens folder/rank-R.jsonl, and makes the folder where it is not there; a file that is there is
 * continued, without a last line that a killed process has left unfinished. NULL on error. */
struct sample_log *sample_log_open(const char *folder, struct muster_world *world, struct muster_error *err);
/* Appends the line of a step, counted from 1. -1: it was not written. */
int sample_log_step(struct sample_log *log, int64_t step, const uint64_t *ids, int64_t count,
                    struct muster_error *err);
void sample_log_close(struct sample_log *log); /* accepts NULL */

#endif
