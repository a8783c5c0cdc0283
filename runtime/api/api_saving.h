/* api_saving.h - checkpoints of a trainer that are on their way. */
#ifndef MUSTER_RUNTIME_API_API_SAVING_H
#define MUSTER_RUNTIME_API_API_SAVING_H

#include "runtime/api/api_trainer.h"

/* MUSTER_E_INVALID where training.checkpoint_dir is not set. */
int api_check_folder(const struct muster_trainer *trainer, struct muster_error *err);
/* training.checkpoint_local_dir; NULL: there is none. */
/* Memory for what is on its way to the disk; 0: no checkpoints are written. */
int64_t api_staging_bytes(const struct muster_trainer *t);
const char *api_local_dir(const struct muster_trainer *trainer);
/* The notes get what is known of evaluations. */
int api_note_evaluation(struct muster_trainer *trainer, struct muster_error *err);
/* Likewise what ReduceLROnPlateau knows, where that is the schedule. */
int api_note_plateau(struct muster_trainer *trainer, struct muster_error *err);

/* Whether that step's is on its way. */
bool api_saving_step(const struct muster_trainer *trainer, int64_t step);
/* Whether another one has to wait before it can begin; the same on every rank. */
bool api_saving_busy(const struct muster_trainer *trainer);
/* Collective: waits until all that are on their way are saved, or were not. */
void api_saving_settle(struct muster_trainer *trainer);
/* Gives them up, before the trainer ends. */
void api_saving_end(struct muster_trainer *trainer);

/* training.checkpoint_command, on rank 0: before the first checkpoint; an error of this rank alone. */
int api_open_command(struct muster_trainer *trainer, struct muster_error *err);
/* After a resume: it is run for that checkpoint, if it was not. */
void api_command_resumed(struct muster_trainer *trainer);

#endif
