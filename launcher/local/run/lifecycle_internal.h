/* lifecycle_internal.h - what lifecycle.c (the job and the operator of PyTorchJobs) shares with batch.c and
 * batch_set.c (the controllers of Jobs and JobSets). */
#ifndef MUSTER_LAUNCHER_LOCAL_RUN_LIFECYCLE_INTERNAL_H
#define MUSTER_LAUNCHER_LOCAL_RUN_LIFECYCLE_INTERNAL_H

#include "launcher/local/run/lifecycle.h"

/* Changes a condition and logs it. */
void lifecycle_set(struct lifecycle *life, enum condition_type type, bool status, const char *reason);
/* The verdict; clean-up begins. exit_code: of the container that failed the job, 0 for none. */
void lifecycle_finish(struct lifecycle *life, bool succeeded, int exit_code, struct instant now);
/* Deletes pods; ended pods only with ended_too. */
void lifecycle_delete_pods(struct lifecycle *life, bool ended_too, struct instant now);
/* Deletes a failed pod and creates it again after pause_ns. */
void lifecycle_recreate(struct lifecycle *life, int pod, int64_t pause_ns, struct instant now);

/* The Job controller's look at an active group: failures, success, its deadline. Then the pods that it lacks.
 */
void batch_examine(struct lifecycle *life, int group, struct instant now);
void batch_create_pods(struct lifecycle *life, int group, struct instant now);
/* One look of the Job controller and of JobSet's at an active job. */
void batch_reconcile(struct lifecycle *life, struct instant now);

#endif
