/* guardian.c - see guardian.h. The child half uses system calls and static memory only: the agent may have
 * threads when it starts another guardian. */
#include "launcher/process/guardian.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/process/descendants.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

/* What travels in the pipe: smaller than PIPE_BUF, so never split. */
enum note_kind { NOTE_STARTED, NOTE_REAPED, NOTE_OVER };
struct note {
    int32_t session;
    int32_t kind;
};

/* --- the guardian itself --- */

static struct {
    const char *id; /* in our copy of the agent's memory, which nobody frees */
    struct descendants_session sessions[GUARDIAN_SESSIONS_LIMIT];
    size_t count;
} guarded;

static void take_note(const struct note *note)
{
    size_t i = 0;
    while (i < guarded.count && guarded.sessions[i].id != note->session)
        i++;
    bool known = i < guarded.count;
    if (note->kind == NOTE_STARTED && !known && i < GUARDIAN_SESSIONS_LIMIT)
        guarded.sessions[guarded.count++] = (struct descendants_session){.id = note->session};
    else if (note->kind == NOTE_REAPED && known)
        guarded.sessions[i].leaderless = true;
    else if (note->kind == NOTE_OVER && known)
        guarded.sessions[i] = guarded.sessions[--guarded.count];
}

/* Kills until so many looks in a row find nothing: a process may be born behind a look's back, and in the
 * middle of an exec its environment reads empty for as long as it waits for a processor. */
static void kill_kin(const struct descendants *kin, int clean_looks)
{
    enum { LOOKS_LIMIT = 500, PAUSE_MS = 10 }; /* 5 s; what lives then cannot be killed */
    static const int clean_pauses_ms[] = {0, 10, 50, 200};
    for (int looks = 0, clean = 0; looks < LOOKS_LIMIT; looks++) {
        int found = descendants_sweep(kin, SIGKILL, NULL, NULL);
        if (found < 0)
            return; /* no /proc: the parent-death signal has done what can be done */
        if (!found && clean == clean_looks)
            return;
        (void)poll(NULL, 0, found ? PAUSE_MS : clean_pauses_ms[clean]); /* the dead need a moment to go */
        clean = found ? 0 : clean + 1;
    }
}

/* All that can be found without a look into anybody's memory is dead before the first such look, which may
 * block for ever at a stranger that is stuck in the kernel. */
static void kill_all(void)
{
    enum { BLIND_CLEAN_LOOKS = 2, CLEAN_LOOKS = 4 };
    struct descendants kin = {.id = guarded.id,
                              .family = true,
                              .blind = true,
                              .except = {getpid(), 0},
                              .sessions = guarded.sessions,
                              .session_count = guarded.count};
    kill_kin(&kin, BLIND_CLEAN_LOOKS);
    kin.blind = false;
    kill_kin(&kin, CLEAN_LOOKS);
}

static void close_between(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
        return;
    enum { OLD_KERNEL_LIMIT = 65536 }; /* Linux before 5.9 */
    for (unsigned fd = first; fd <= last && fd < OLD_KERNEL_LIMIT; fd++)
        (void)close((int)fd); /* most are not open */
}

static void detach(int fd)
{
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid(); /* cannot fail: a fresh process leads no group */
    (void)chdir("/");
    (void)prctl(PR_SET_NAME, DESCENDANTS_GUARDIAN_NAME);
    close_between(0, (unsigned)fd - 1);
    close_between((unsigned)fd + 1, UINT_MAX);
}

static void __attribute__((noreturn)) guard(const struct guardian_task *task, int fd)
{
    guarded.id = task->id;
    guarded.count =
        task->session_count < GUARDIAN_SESSIONS_LIMIT ? task->session_count : GUARDIAN_SESSIONS_LIMIT;
    for (size_t i = 0; i < guarded.count; i++)
        guarded.sessions[i] = task->sessions[i];
    detach(fd);
    for (;;) {
        struct note note;
        ssize_t got = read(fd, &note, sizeof note);
        if (got == sizeof note)
            take_note(&note);
        else if (got == 0)
            break;
        else if (got > 0 || errno != EINTR)
            break; /* cannot be: notes are atomic. Whatever it is, the agent cannot reach us any more */
    }
    kill_all();
    if (task->afterwards)
        task->afterwards(task->context);
    _exit(0);
}

/* --- the agent's half --- */

/* Every Linux that we run on has both of these; emulators of its system calls may lack them. */
static int guardian_unsupported(struct muster_error *err, const char *consequence)
{
    return error_set(err, MUSTER_E_UNSUPPORTED, "this kernel (an emulator's?) %s", consequence);
}

int guardian_adopt_orphans(struct muster_error *err)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) == 0)
        return 0;
    if (errno == EINVAL)
        return guardian_unsupported(err, "does not give orphans to their ancestor: what workers leave behind "
                                         "is found by its environment alone");
    return error_errno(err, "cannot become the reaper of orphans");
}

int guardian_start(const struct guardian_task *task, struct guardian *guardian, struct muster_error *err)
{
    int ends[2];
    *guardian = (struct guardian){.fd = -1};
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make the guardian's pipe");
    scope_close int reader = ends[0], writer = ends[1];
    /* fork without an exit signal: no SIGCHLD, and only a wait with __WALL sees the child */
    pid_t pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, 0);
    if (pid < 0 && errno == EINVAL)
        return guardian_unsupported(err, "cannot start the guardian: nobody ends the workers of a killed "
                                         "agent");
    if (pid < 0)
        return error_errno(err, "cannot start the guardian");
    if (pid == 0)
        guard(task, reader);
    /* a dead or stopped guardian must not stop the agent */
    (void)fcntl(writer, F_SETFL, O_NONBLOCK);
    *guardian = (struct guardian){.pid = pid, .fd = take_fd(&writer)};
    return 0;
}

static int tell(struct guardian *guardian, pid_t session, enum note_kind kind, struct muster_error *err)
{
    struct note note = {.session = session, .kind = kind};
    if (!guardian->pid)
        return 0;
    ssize_t done;
    do
        done = write(guardian->fd, &note, sizeof note);
    while (done < 0 && errno == EINTR);
    if (done != sizeof note)
        return error_errno(err, "the guardian (pid %d) does not listen", (int)guardian->pid);
    return 0;
}

int guardian_add(struct guardian *guardian, pid_t session, struct muster_error *err)
{
    return tell(guardian, session, NOTE_STARTED, err);
}

int guardian_reaped(struct guardian *guardian, pid_t session, struct muster_error *err)
{
    return tell(guardian, session, NOTE_REAPED, err);
}

int guardian_remove(struct guardian *guardian, pid_t session, struct muster_error *err)
{
    return tell(guardian, session, NOTE_OVER, err);
}

void guardian_dismiss(struct guardian *guardian)
{
    if (!guardian->pid)
        return;
    /* killed before its pipe ends: it must never take our leaving for our death */
    (void)kill(guardian->pid, SIGKILL);
    while (waitpid(guardian->pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    (void)close(guardian->fd);
    *guardian = (struct guardian){.fd = -1};
}
