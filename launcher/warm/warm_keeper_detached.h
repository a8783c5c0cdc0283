/* warm_keeper_detached.h - starts a process that outlives the agent, and is not its child. */
#ifndef MUSTER_LAUNCHER_WARM_WARM_KEEPER_DETACHED_H
#define MUSTER_LAUNCHER_WARM_WARM_KEEPER_DETACHED_H

#include "launcher/process/spawn.h"
#include "proto/include/muster_error.h"

/* Starts the program of options, whose parent ends at once: process 1, or the next subreaper above this
 * process, adopts it. Nothing of the caller's may be adopted meanwhile: call before the first worker. */
int warm_keeper_detached_start(const struct spawn_options *options, struct muster_error *err);

#endif
