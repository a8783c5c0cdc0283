/* checkpoints.h - when muster-train writes checkpoints, and from which checkpoint it goes on. */
#ifndef MUSTER_TRAINER_RUN_CHECKPOINTS_H
#define MUSTER_TRAINER_RUN_CHECKPOINTS_H

#include "trainer/run/run.h"

int checkpoints_open(struct run *run, struct muster_error *err);
void checkpoints_close(struct run *run);

/* Collective. Goes on from a checkpoint of the same data; prints refusals and differences. 1: from a
 * checkpoint; 0: there is none; 2: a stage begins from the checkpoint of the stage before. */
int checkpoints_resume(struct run *run, struct muster_error *err);
/* Collective. The state of the newest checkpoint in a folder, or of a checkpoint: muster_trainer_restore. */
int checkpoints_restore(struct run *run, const char *path, struct muster_error *err);
/* Collective. Reloads the newest checkpoint; the run continues with the samples after the last step. *step:
 * the step of the checkpoint; -1: there is none yet. */
int checkpoints_go_back(struct run *run, int64_t *step, struct muster_error *err);

/* Before a step: passes this rank's request for a checkpoint on. */
int checkpoints_ask(struct run *run, struct muster_error *err);
/* After a step: prints how checkpoints have ended that were written during steps, and writes a checkpoint
 * that is due: by its number, because it is requested, or because the run ends (`last`). A failure to write
 * is a warning, and training goes on. -1: an error of the world. */
int checkpoints_step(struct run *run, int64_t step, bool requested, bool last, struct muster_error *err);
/* Writes a checkpoint now, at the end of a stage. */
void checkpoints_write_last(struct run *run);
/* Step of the last one; -1: none. And whether the run's last checkpoint could not be written. */
int64_t checkpoints_last(const struct run *run);
bool checkpoints_unsaved(const struct run *run);

/* ---- checkpoint_command.c: training.checkpoint_command, and the end of a run that keeps checkpoints ---- */

/* Prints how runs of the command have ended. */
void checkpoint_command_step(struct run *run);
/* Collective, at the end of the run: waits for the command, until the deadline of a stop, or until it ends.
 */
int checkpoint_command_end(struct run *run, struct muster_error *err);
/* Collective, after that. MUSTER_E_IO: the run has not left its last checkpoint, or no copy of it by the
 * command; the message has the missing file. */
int checkpoint_command_check(struct run *run, struct muster_error *err);

#endif
