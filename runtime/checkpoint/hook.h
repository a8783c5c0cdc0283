/* hook.h - the user's command after each commit (training.checkpoint_command): copies a checkpoint to where
 * folders cannot be, an object store for example.
 *
 * One process runs it for the whole job, rank 0's: the folder of checkpoints is one for all nodes, and has
 * the files of all ranks. A thread waits for the command, so that training does not. One checkpoint at a time
 * (hook_queue.h); those that it reads or will read are held (hook_holds), and stay in the folder. The last
 * success is noted in DIR/.command, so that the next run knows whether its checkpoint was copied. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_HOOK_H
#define MUSTER_RUNTIME_CHECKPOINT_HOOK_H

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

struct checkpoint_hook;

struct hook_options {
    const char *command; /* for /bin/sh -c, with the variables of env_names.h */
    const char *folder;  /* DIR */
    int64_t timeout_ns;  /* of one run of it; then it is ended, and has failed */
};

/* Its thread starts with the first checkpoint. */
struct checkpoint_hook *hook_create(const struct hook_options *options, struct muster_error *err);
/* A command that runs is ended: the next run begins it again. Accepts NULL. */
void hook_destroy(struct checkpoint_hook *hook);

/* A checkpoint is durable. Waits for nothing. */
void hook_add(struct checkpoint_hook *hook, int64_t step);
/* Whether a checkpoint must stay. By any thread; NULL: false. */
bool hook_holds(struct checkpoint_hook *hook, int64_t step);
/* The step of the last success, of a run before too; -1: none is known. */
int64_t hook_last(struct checkpoint_hook *hook);

/* How the command ended: 1: well; -1: it failed (err has the exit code and its last lines) or was skipped for
 * a newer one (MUSTER_E_CANCELLED); 0: nothing has ended. *step and *ns: of which checkpoint, and how long it
 * took. With a deadline waits until something has, or nothing is left to do. */
int hook_take(struct checkpoint_hook *hook, struct instant deadline, int64_t *step, int64_t *ns,
              struct muster_error *err);
/* Whether a command runs or waits. */
bool hook_is_busy(struct checkpoint_hook *hook);
/* There is no more time: ends the command that runs, and drops the one that waits. hook_take reports it. */
void hook_stop(struct checkpoint_hook *hook);

#endif
