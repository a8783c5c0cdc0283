/* agent_mark.h - the file by which the next agent of a job finds processes of one that was killed.
 *
 * A guardian kills an agent's descendants if the agent is killed. If the agent and both guardians are killed
 * at once, descendants in sessions of their own stay. So an agent with --state-dir keeps a file there with
 * its id, this boot and its PID namespace, and holds a lock on it (flock) for its life. The next agent of the
 * job that can take the lock, on the same boot and in the same namespace, kills the descendants of that id
 * and removes the file. The file of an agent that lives is left alone, and for a week that of another
 * machine.
 *
 *     muster agent 1
 *     boot <the kernel's boot id>
 *     namespace <number of the PID namespace>
 *     id <32 hexadecimal digits>
 *  */
#ifndef MUSTER_LAUNCHER_PROCESS_AGENT_MARK_H
#define MUSTER_LAUNCHER_PROCESS_AGENT_MARK_H

#include "launcher/process/descendants.h"
#include "proto/include/muster_error.h"

struct agent_mark {
    int fd;     /* holds the lock; -1: there is no file */
    char *path; /* owned */
};

/* Kills the descendants of agents of this job that were killed on this machine. They have at most 5 s to end.
 * Blocks as the folder does: call on a thread. Returns the number of processes that got SIGKILL. */
int agent_mark_sweep(const char *directory, const char *job_id);
/* Makes this agent's file. Blocks, as above. */
int agent_mark_keep(const char *directory, const char *job_id, const char *id, struct agent_mark *mark,
                    struct muster_error *err);
/* Removes it: no descendant is left. Accepts a mark without a file, and never blocks on a lock. */
void agent_mark_remove(struct agent_mark *mark);

#endif
