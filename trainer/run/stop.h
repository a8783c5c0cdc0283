/* stop.h - requests from outside: stop notices of the launcher, SIGTERM, and SIGUSR2 for a checkpoint.
 *
 * SIGUSR2 requests a checkpoint after the next step. SIGTERM requests a checkpoint and the end; it counts
 * where no launcher gives stop notices. Requests reach the ranks at different steps: each rank passes its own
 * on with its next step, and all ranks see it at the end of that step. */
#ifndef MUSTER_TRAINER_RUN_STOP_H
#define MUSTER_TRAINER_RUN_STOP_H

#include "trainer/run/run.h"

/* Listens, once in a process, when everything for the first step is there: before that a stop ends the
 * process.
 */
int stop_listen(struct run *run, struct muster_error *err);
/* Before a step: whether this rank requests the end, and whether SIGUSR2 has come since the last call. */
bool stop_is_requested(const struct run *run);
bool stop_wants_checkpoint(void);
/* After a step that is not the last. agreed: all ranks have seen a request in it. */
int stop_look(struct run *run, bool agreed, struct muster_error *err);
/* Whether all ranks end before the last step, and until when they may take; INSTANT_NEVER: as long as they
 * like.
 */
bool stop_cuts_short(const struct run *run);
struct instant stop_deadline(const struct run *run);
/* Whether the job ends here, by a request or by itself. Otherwise nodes come or go and a new round follows.
 */
bool stop_is_end(const struct run *run);
bool stop_is_terminated(void); /* SIGTERM has come */
void stop_close(struct run *run);

#endif
