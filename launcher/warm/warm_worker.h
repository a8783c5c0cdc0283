/* warm_worker.h - the request of one worker to a template, and the look at the worker that it has made. */
#ifndef MUSTER_LAUNCHER_WARM_WARM_WORKER_H
#define MUSTER_LAUNCHER_WARM_WARM_WORKER_H

#include <stdbool.h>
#include <sys/types.h>

#include "launcher/process/spawn.h"

/* Sends argv, envp and the descriptors of options over the template's socket. parent: of the worker. */
int warm_worker_request(int socket, pid_t parent, unsigned number, const struct spawn_options *options,
                        struct muster_error *err);
/* By /proc. */
bool warm_worker_has_parent(pid_t pid, pid_t parent);

#endif
