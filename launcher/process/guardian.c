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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/process/close_descriptors.h"
#include "launcher/process/descendants.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/thread.h"

/* Shared by the agent and its guardian: the agent writes, the guardian reads once, when the agent is gone.
 * A slot holds a whole session in one word, so that an agent killed while it writes leaves no torn value. */
struct guardian_table {
    uint32_t used;                            /* slots from the first on that may hold one */
    uint64_t places[GUARDIAN_SESSIONS_LIMIT]; /* 0: none; else its id, and LEADERLESS */
};
#define LEADERLESS ((uint64_t)1 << 32)

/* --- the guardian itself --- */

static struct {
    const char *id; /* in our copy of the agent's memory, which is never freed */
    struct descendants_session sessions[GUARDIAN_SESSIONS_LIMIT];
    size_t count;
} guarded;

static void take_sessions(const struct guardian_table *table)
{
    uint32_t used = __atomic_load_n(&table->used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used && i < GUARDIAN_SESSIONS_LIMIT; i++) {
        uint64_t place = __atomic_load_n(&table->places[i], __ATOMIC_RELAXED);
        if (place)
            guarded.sessions[guarded.count++] =
                (struct descendants_session){(pid_t)(uint32_t)place, (place & LEADERLESS) != 0};
    }
}

/* Kills until so many consecutive scans find nothing: a process may be created behind a scan, and in the
 * middle of an exec its environment reads empty for as long as it waits for CPU time. */
static void kill_descendants(const struct descendants *descendants, int clean_looks)
{
    enum { LOOKS_LIMIT = 500, PAUSE_MS = 10 }; /* 5 s; processes still alive then cannot be killed */
    static const int clean_pauses_ms[] = {0, 10, 50, 200};
    for (int looks = 0, clean = 0; looks < LOOKS_LIMIT; looks++) {
        int found = descendants_sweep(descendants, SIGKILL, NULL, NULL);
        if (found < 0)
            return; /* no /proc: the parent-death signal was the only means */
        if (!found && clean == clean_looks)
            return;
        (void)poll(NULL, 0,
                   found ? PAUSE_MS : clean_pauses_ms[clean]); /* killed processes need a moment to end */
        clean = found ? 0 : clean + 1;
    }
}

/* Everything that can be found without reading a process's memory is killed before the first such read,
 * which may block for ever at an unrelated process that is stuck in the kernel. */
static void kill_all(void)
{
    enum { BLIND_CLEAN_LOOKS = 2, CLEAN_LOOKS = 4 };
    struct descendants descendants = {.id = guarded.id,
                                      .family = true,
                                      .blind = true,
                                      .except = {getpid(), 0},
                                      .sessions = guarded.sessions,
                                      .session_count = guarded.count};
    kill_descendants(&descendants, BLIND_CLEAN_LOOKS);
    descendants.blind = false;
    kill_descendants(&descendants, CLEAN_LOOKS);
}

static void detach(int fd)
{
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid(); /* cannot fail: a fresh process leads no group */
    (void)chdir("/");
    (void)prctl(PR_SET_NAME, DESCENDANTS_GUARDIAN_NAME);
    close_descriptors(0, (unsigned)fd - 1);
    close_descriptors((unsigned)fd + 1, UINT_MAX);
}

static void __attribute__((noreturn))
guard(const struct guardian_task *task, const struct guardian_table *table, int fd)
{
    char nothing;
    guarded.id = task->id;
    detach(fd);
    while (read(fd, &nothing, sizeof nothing) < 0 && errno == EINTR)
        ; /* nothing is ever written: it ends when the agent does */
    take_sessions(table);
    kill_all();
    if (task->afterwards)
        task->afterwards(task->context);
    _exit(0);
}

/* --- the agent's half --- */

/* Every supported Linux has both of these; emulators of its system calls may lack them. */
static int guardian_unsupported(struct muster_error *err, const char *consequence)
{
    return error_set(err, MUSTER_E_UNSUPPORTED, "this kernel (an emulator's?) %s", consequence);
}

int guardian_adopt_orphans(struct muster_error *err)
{
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) == 0)
        return 0;
    if (errno == EINVAL)
        return guardian_unsupported(err, "does not reparent orphans to their ancestor: orphaned processes of "
                                         "workers are found by their environment only");
    return error_errno(err, "cannot become a child subreaper");
}

static struct guardian_table *make_table(const struct guardian_task *task)
{
    struct guardian_table *table =
        mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return NULL;
    for (; table->used < task->session_count && table->used < GUARDIAN_SESSIONS_LIMIT; table->used++) {
        const struct descendants_session *session = &task->sessions[table->used];
        table->places[table->used] = (uint32_t)session->id | (session->leaderless ? LEADERLESS : 0);
    }
    return table;
}

static void free_table(struct guardian_table *table)
{
    if (table)
        (void)munmap(table, sizeof *table); /* our own mapping: cannot fail */
}

int guardian_start(const struct guardian_task *task, struct guardian *guardian, struct muster_error *err)
{
    int ends[2];
    *guardian = (struct guardian){.fd = -1};
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make the guardian's pipe");
    scope_close int reader = ends[0], writer = ends[1];
    struct guardian_table *table = make_table(task);
    if (!table)
        return error_errno(err, "no memory to share with the guardian");
    /* fork without an exit signal: no SIGCHLD, and only a wait with __WALL sees the child */
    pid_t pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, 0);
    if (pid == 0)
        guard(task, table, reader);
    if (pid < 0) {
        int refused = errno;
        free_table(table);
        if (refused == EINVAL)
            return guardian_unsupported(
                err, "cannot start the guardian, so the workers of a killed agent would survive");
        return thread_error(err, refused, "the guardian");
    }
    *guardian = (struct guardian){.pid = pid, .fd = take_fd(&writer), .table = table};
    return 0;
}

static uint64_t *find_place(struct guardian_table *table, uint32_t session)
{
    for (uint32_t i = 0; i < table->used; i++)
        if ((uint32_t)table->places[i] == session)
            return &table->places[i];
    return NULL;
}

static void put_place(uint64_t *place, uint64_t value)
{
    __atomic_store_n(place, value, __ATOMIC_RELEASE);
}

/* A reused number: its process was started just now. */
void guardian_add(struct guardian *guardian, pid_t session)
{
    struct guardian_table *table = guardian->table;
    uint64_t *place = table ? find_place(table, (uint32_t)session) : NULL;
    if (table && !place)
        place = find_place(table, 0);
    if (place)
        put_place(place, (uint32_t)session);
    else if (table && table->used < GUARDIAN_SESSIONS_LIMIT) {
        put_place(&table->places[table->used], (uint32_t)session);
        __atomic_store_n(&table->used, table->used + 1, __ATOMIC_RELEASE);
    }
}

void guardian_reaped(struct guardian *guardian, pid_t session)
{
    uint64_t *place = guardian->table ? find_place(guardian->table, (uint32_t)session) : NULL;
    if (place)
        put_place(place, (uint32_t)session | LEADERLESS);
}

void guardian_remove(struct guardian *guardian, pid_t session)
{
    uint64_t *place = guardian->table ? find_place(guardian->table, (uint32_t)session) : NULL;
    if (place)
        put_place(place, 0);
}

/* Killed before its pipe ends, so that it cannot mistake a clean exit for a crash. */
pid_t guardian_release(struct guardian *guardian)
{
    const pid_t pid = guardian->pid;
    if (pid)
        (void)kill(pid, SIGKILL);
    guardian->pid = 0;
    return pid;
}

void guardian_reap(pid_t released)
{
    while (released && waitpid(released, NULL, __WALL) < 0 && errno == EINTR)
        ;
}

void guardian_dismiss(struct guardian *guardian)
{
    guardian_reap(guardian_release(guardian));
    guard_close(&guardian->fd);
    free_table(guardian->table);
    *guardian = (struct guardian){.fd = -1};
}
