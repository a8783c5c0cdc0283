/* warm_keeper.h - a small process between the agent and its template.
 *
 * It is made without an exit signal, as the guardian is: the agent asks the kernel whether a child is left,
 * and a template that lives on between two rounds must not count. It starts the template, waits for its end
 * and ends with it; it has a session of its own and blocks every signal that can be blocked. If the agent
 * dies, so does the keeper, and the template with it. */
#ifndef MUSTER_LAUNCHER_WARM_WARM_KEEPER_H
#define MUSTER_LAUNCHER_WARM_WARM_KEEPER_H

#include <sys/types.h>

#include "launcher/process/spawn.h"
#include "proto/include/muster_error.h"

/* Starts the keeper, which starts the program of options. its_end: the program's end of the socket; where the
 * program cannot be started, the keeper sends "failed 0 TEXT" there. Returns the keeper's pid; -1 where no
 * process can be made, MUSTER_E_UNSUPPORTED under an emulator without such processes. */
pid_t warm_keeper_start(const struct spawn_options *options, int its_end, struct muster_error *err);
/* Kills it, and with it the template, and reaps it. *pid becomes 0. Accepts 0. */
void warm_keeper_end(pid_t *pid);

/* --- detached ---
 *
 * Starts a process that outlives the agent, and is not its child. */

/* Starts the program of options, whose parent ends at once: process 1, or the next subreaper above this
 * process, adopts it. No process of the caller's may be adopted at that time: call before the first worker.
 */
int warm_keeper_detached_start(const struct spawn_options *options, struct muster_error *err);

#endif
