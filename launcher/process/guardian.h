/* guardian.h - small processes that outlive an agent by less than a second and kill its remaining
 * descendants.
 *
 * It holds the read end of a pipe and sleeps while the agent lives, which writes its sessions into memory
 * that both share: the start and end of a worker do not wake it. If the pipe ends before it was dismissed,
 * the agent was killed, and it sends SIGKILL to all of the agent's descendants (descendants.h) until none
 * is left. It has a session of its own, blocks every signal that can be blocked and holds no other
 * descriptor. Neither its name nor its command line is the agent's, so that a pkill of the agent spares it,
 * and the kernel sends it SIGCONT when the agent ends, so that it need not be running. A second one may
 * follow, which waits a moment for the first: it takes all three to be killed at once for a descendant to
 * survive. Its fork comes before the workers' starts: after the first worker it competed with workers and
 * made a launch of eight 4% slower, with idle-priority work on all processors 40%. It is invisible to a plain
 * wait (it is made without an exit signal), so the agent can query the kernel for "no child is left". */
#ifndef MUSTER_LAUNCHER_PROCESS_GUARDIAN_H
#define MUSTER_LAUNCHER_PROCESS_GUARDIAN_H

#include <sys/types.h>

#include "launcher/process/descendants.h"
#include "proto/include/muster_error.h"

enum { GUARDIAN_SESSIONS_LIMIT = 4096 };

struct guardian {
    pid_t pid;                    /* 0: none */
    int fd;                       /* ours; closes on exec. It reports EPOLLERR if the guardian died */
    pid_t second;                 /* 0: none */
    int second_fd;                /* the same for the second; -1: none */
    struct guardian_table *table; /* shared with it; guardian.c */
};

struct guardian_task {
    const char *id; /* DESCENDANTS_ID_LENGTH bytes; marks of its whole family are looked for */
    const struct descendants_session *sessions; /* existing ones */
    size_t session_count;
    /* Called in the guardian after a killed agent's descendants are gone, with the root as working
     * directory: by system calls only. NULL: nothing */
    void (*afterwards)(const void *context);
    const void *context;
};

/* Orphans of the caller's descendants become its children. MUSTER_E_UNSUPPORTED if the kernel lacks that:
 * under qemu-user. */
int guardian_adopt_orphans(struct muster_error *err);

/* Call before the first worker; the successor of a guardian that died starts with the existing sessions,
 * so that it misses none. */
/* MUSTER_E_UNSUPPORTED if no process can be created without an exit signal: under qemu-user. */
int guardian_start(const struct guardian_task *task, struct guardian *guardian, struct muster_error *err);
/* A second one for the same sessions, later: off the path to the first worker. The task is the same but for
 * its sessions. */
int guardian_start_second(const struct guardian_task *task, struct guardian *guardian,
                          struct muster_error *err);
/* The second one has died, or shall. */
void guardian_dismiss_second(struct guardian *guardian);
/* A session that was started (beyond GUARDIAN_SESSIONS_LIMIT it is found by id and mark alone); a session
 * whose leader was reaped (descendants.h); a session without members. Cheap: no system call. No effect if no
 * guardian runs: its successor gets them from guardian_start. */
void guardian_add(struct guardian *guardian, pid_t session);
void guardian_reaped(struct guardian *guardian, pid_t session);
void guardian_remove(struct guardian *guardian, pid_t session);
/* No descendant is left, and none will be: ends the guardian while the caller ends, too. Its pid, for
 * guardian_reap; 0: none runs. */
pid_t guardian_release(struct guardian *guardian);
/* Waits for a released guardian: it would stay as a zombie under a process 1 that does not reap. */
void guardian_reap(pid_t released);
/* No descendant is left: ends the guardian and reaps it, and frees the rest. Accepts a guardian that is not
 * running, or was released. */
void guardian_dismiss(struct guardian *guardian);

#endif
