/* api_stages.h - trainers of a training in stages: which checkpoints one of them takes, and what of them. */
#ifndef MUSTER_RUNTIME_API_API_STAGES_H
#define MUSTER_RUNTIME_API_API_STAGES_H

#include "runtime/api/api_trainer.h"

/* Before a checkpoint is looked for. */
void api_stage_look(struct muster_trainer *trainer);
/* Whether this stage begins from it: it is that of the end of the stage before. */
bool api_stage_begins(const struct muster_trainer *trainer, const struct manifest_run *run);
/* What of it is loaded (enum checkpoint_parts). goes_on: the trainer goes on as the run that wrote it. */
unsigned api_stage_parts(const struct muster_trainer *trainer, const struct manifest_run *run, bool goes_on);
/* MUSTER_E_REFUSED: it is of another stage, which is kept for stage_found of the state, or of a training
 * without them. */
int api_stage_accept(struct muster_trainer *trainer, const struct manifest_run *run,
                     struct muster_error *err);
/* It was loaded, with the notes of the run that wrote it unless this stage begins: steps, updates and samples
 * are set, and the notes have the stage. */
int api_stage_take(struct muster_trainer *trainer, const struct manifest_run *run, struct muster_error *err);
/* Collective, after one was refused: the ranks agree on stage_found of the state. */
void api_stage_refused(struct muster_trainer *trainer);

#endif
