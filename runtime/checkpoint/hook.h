/* hook.h - the user's command after each commit (training.checkpoint_command): copies a checkpoint to where
 * folders cannot be, an object store for example.
 *
 * Rank 0's process runs the command for the whole job: the folder of checkpoints is one for all nodes, and
 * has the files of all ranks. A thread waits for the command, so that training does not. The command runs for
 * one checkpoint at a time (hook_queue.h). Checkpoints that it reads or will read are held (hook_holds), and
 * stay in the folder. The last success is noted in DIR/.command, so that the next run knows whether its
 * checkpoint was copied. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_HOOK_H
#define MUSTER_RUNTIME_CHECKPOINT_HOOK_H

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

struct checkpoint_hook;

struct hook_options {
    const char *command; /* for /bin/sh -c, with the variables of env_names.h */
    const char *folder;  /* DIR */
    int64_t timeout_ns;  /* time for one run of the command; then it is ended, and has failed */
};

/* The thread starts with the first checkpoint. */
struct checkpoint_hook *hook_create(const struct hook_options *options, struct muster_error *err);
/* Ends a command that runs: the next run begins it again. Accepts NULL. */
void hook_destroy(struct checkpoint_hook *hook);

/* Reports that a checkpoint is durable. Waits for nothing. */
void hook_add(struct checkpoint_hook *hook, int64_t step);
/* Whether a checkpoint must stay. By any thread; NULL: false. */
bool hook_holds(struct checkpoint_hook *hook, int64_t step);
/* Step of the last success, also of an earlier run; -1: none is known. */
int64_t hook_last(struct checkpoint_hook *hook);

/* How the command ended. 1: success. -1: it failed (err has the exit code and its last lines), or was skipped
 * for a newer checkpoint (MUSTER_E_CANCELLED). 0: no command has ended. *step: its checkpoint; *ns: its
 * duration. With a deadline it waits until a command has ended or nothing is left to do. */
int hook_take(struct checkpoint_hook *hook, struct instant deadline, int64_t *step, int64_t *ns,
              struct muster_error *err);
/* Whether a command runs or waits. */
bool hook_is_busy(struct checkpoint_hook *hook);
/* Ends the command that runs, and drops the checkpoint that waits, for lack of time. hook_take reports both.
 */
void hook_stop(struct checkpoint_hook *hook);

#endif
