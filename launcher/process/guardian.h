/* guardian.h - the small process that outlives an agent by less than a second, to see that nothing else does.
 *
 * It holds the read end of a pipe and sleeps while the agent lives, which writes its sessions into memory
 * that both share: nothing of a worker's start and end wakes it. When the pipe ends and nobody has dismissed
 * it, the agent was killed, and it SIGKILLs all of the agent's kin (descendants.h) until none is left. It has
 * a session of its own, blocks every signal that can be blocked and holds no other descriptor. It is
 * invisible to a plain wait (it is made without an exit signal), so "no child is left" is a question that the
 * agent can ask the kernel. */
#ifndef MUSTER_LAUNCHER_PROCESS_GUARDIAN_H
#define MUSTER_LAUNCHER_PROCESS_GUARDIAN_H

#include <sys/types.h>

#include "launcher/process/descendants.h"
#include "proto/include/muster_error.h"

enum { GUARDIAN_SESSIONS_LIMIT = 4096 };

struct guardian {
    pid_t pid;                    /* 0: none */
    int fd;                       /* ours; closes on exec. It reports EPOLLERR where the guardian died */
    struct guardian_table *table; /* shared with it; guardian.c */
};

struct guardian_task {
    const char *id; /* DESCENDANTS_ID_LENGTH bytes; marks of its whole family are looked for */
    const struct descendants_session *sessions; /* that there are already */
    size_t session_count;
    /* Called behind a killed agent once nobody is left, in the guardian, whose working directory is the root:
     * by system calls only. NULL: nothing */
    void (*afterwards)(const void *context);
    const void *context;
};

/* Orphans of the caller's descendants become its children. MUSTER_E_UNSUPPORTED where the kernel does not
 * know that: under qemu-user. */
int guardian_adopt_orphans(struct muster_error *err);

/* Call before the first worker; the successor of a guardian that died is born knowing the sessions there are,
 * so that there is no moment at which it would miss one. */
/* MUSTER_E_UNSUPPORTED where no process can be made without an exit signal: under qemu-user. */
int guardian_start(const struct guardian_task *task, struct guardian *guardian, struct muster_error *err);
/* A session that was started (beyond GUARDIAN_SESSIONS_LIMIT it is found by id and mark alone); one whose
 * leader was reaped (descendants.h); one that has no member left. Cheap: no system call. Nothing is done
 * where no guardian runs: its successor is told by guardian_start. */
void guardian_add(struct guardian *guardian, pid_t session);
void guardian_reaped(struct guardian *guardian, pid_t session);
void guardian_remove(struct guardian *guardian, pid_t session);
/* Nothing is left to guard, and nothing will be: it is told to end while the agent does something else, and
 * is dismissed later. */
void guardian_release(const struct guardian *guardian);
/* Nothing is left to guard: ends the guardian and reaps it. Accepts one that is not running. */
void guardian_dismiss(struct guardian *guardian);

#endif
