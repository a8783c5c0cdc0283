/* agent_processes.h - the processes of this agent: signals workers and their descendants, keeps the
 * guardian, and cleans up /dev/shm. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_PROCESSES_H
#define MUSTER_LAUNCHER_AGENT_AGENT_PROCESSES_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_processes_part;

/* A worker was started: the guardian records it, and so does the round. */
void agent_processes_take_up(struct agent *agent, struct worker *worker, pid_t pid);
/* The template of workers was started, has changed or (NULL) is about to end. Its keeper and its reaper are
 * no workers and are not signalled with them; the reaper's other children are. */
struct warm;
void agent_processes_know_template(struct agent *agent, const struct warm *warm);
/* signal, then CONT, to every live worker, and to all descendants: at once or when no worker is left, by
 * --signal-scope. */
void agent_processes_terminate(struct agent *agent, int signal);
/* KILL to every session and all descendants, again and again until the worker group is not KILLING. */
void agent_processes_kill(struct agent *agent);
/* The reaper of warm workers was killed, and they with it: KILL to their remaining processes, which no
 * process of ours adopted.
 */
void agent_processes_kill_left(struct agent *agent, int64_t patience_ns);
/* The loop has failed: KILL once more, and waits so long for it. */
void agent_processes_kill_last(struct agent *agent, int64_t patience_ns);
/* Logs the remaining processes, as found by the last scan. Returns the first; NULL: unknown. */
const struct descendants_process *agent_processes_name_stuck(struct agent *agent);
/* Whether not even an orphan is left. */
bool agent_processes_are_gone(struct agent *agent);
/* While workers stay: KILL to the processes of those that have ended, again and again. Whether none is left.
 */
bool agent_processes_ended_are_gone(struct agent *agent);
/* The guardian records that the session has no leader any more. */
void agent_processes_note_reaped(struct agent *agent, const struct worker *worker);
/* The end: no descendant is left, so that the guardian may end while the agent does the rest. Its pid, for
 * guardian_reap; 0: none. */
pid_t agent_processes_release(struct agent *agent);

/* Cleans up after the workers of this round; AGENT_CLEANED follows when it is done. */
void agent_processes_clean(struct agent *agent);
/* Stops waiting for that. */
void agent_processes_stop_cleaning(struct agent *agent);

#endif
