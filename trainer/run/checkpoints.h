/* checkpoints.h - when muster-train writes checkpoints, from which it goes on, and what it prints of them.
 *
 * Requests come as signals: SIGUSR2 asks for a checkpoint after the next step, SIGTERM, where no launcher
 * gives stop notices, for one and the end. Ranks agree on both through the step itself. */
#ifndef MUSTER_TRAINER_RUN_CHECKPOINTS_H
#define MUSTER_TRAINER_RUN_CHECKPOINTS_H

#include <stdbool.h>

#include "runtime/config/train_config.h"
#include "runtime/include/muster.h"
#include "trainer/data/data.h"

struct checkpoints {
    const struct train_config *config;
    struct muster_trainer *trainer;
    const char *identity; /* of the data, as of data.h */
    int rank, world_size;
    int64_t last; /* step of the last one; -1: none */
    bool warned;  /* that the disk does not follow */
    bool again;   /* one was not saved, and there is room now: another one is due */
    bool unsaved; /* the last one of the run */
};

/* Whether training.checkpoint_dir is set. */
bool checkpoints_wanted(const struct train_config *config);

/* Installs the handlers of the signals; terminates: of SIGTERM too. */
int checkpoints_listen(bool terminates, struct muster_error *err);
/* Whether SIGTERM has come. */
bool checkpoints_terminated(void);

/* Goes on from a checkpoint, as muster_trainer_resume; prints what was refused and what differs. */
int checkpoints_resume(struct checkpoints *checkpoints, struct muster_error *err);
/* The state of the newest checkpoint in a folder, or of one, as muster_trainer_restore; prints likewise. */
int checkpoints_restore(struct checkpoints *checkpoints, const char *path, struct muster_error *err);
/* Notes for checkpoints what the data are. MUSTER_E_REFUSED: resumed, and those that it was written with are
 * others, whose samples have other numbers; of this rank alone. */
int checkpoints_note_data(struct checkpoints *checkpoints, bool resumed, struct muster_error *err);
/* Back to the newest checkpoint, and on with the samples behind the last step. *step: its step; -1: there is
 * none yet. */
int checkpoints_go_back(struct checkpoints *checkpoints, int64_t *step, struct muster_error *err);
/* Before a step: passes this rank's request on. */
int checkpoints_ask(struct checkpoints *checkpoints, struct muster_error *err);
/* After a step: looks after those that are on their way behind steps, and prints how one ended (before_print
 * is called first). Whether one is due now, by its number, by request or because the run ends: then it has
 * waited until it can begin, or, at the end, for all before. One that was not saved for lack of room is due
 * again, once an older one was given up for it. */
bool checkpoints_go_on(struct checkpoints *checkpoints, bool asked, bool ends, int64_t step,
                       void (*before_print)(void *context), void *context);
/* Writes one: behind the next steps or, where the run ends, at once. One that cannot be written is a warning:
 * training goes on; after the last one `unsaved` is set then. */
void checkpoints_write(struct checkpoints *checkpoints, bool ends);
/* Before the last one of a run that is stopped: warns where it may take longer than left_s. */
void checkpoints_estimate(const struct checkpoints *checkpoints, double left_s);

#endif
