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

#include "launcher/process/children.h"
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

/* Kills until so many consecutive scans find nothing: a process may be created after a scan, and in the
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

/* In /proc/self/stat, after the command: arg_start is the 48th field and the next one is arg_end. */
static bool find_arguments(uintptr_t range[2])
{
    enum { FIRST_FIELD = 3, ARG_START = 48 };
    char text[2048];
    scope_close int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text) : -1;
    const char *at = length > 0 ? memrchr(text, ')', (size_t)length) : NULL, *end = text + length;
    int field = FIRST_FIELD - 1;
    range[0] = range[1] = 0;
    for (; at && at < end && field <= ARG_START + 1; at++) {
        if (*at == ' ')
            field++;
        else if (field >= ARG_START && field <= ARG_START + 1 && *at >= '0' && *at <= '9')
            range[field - ARG_START] = range[field - ARG_START] * 10 + (uintptr_t)(*at - '0');
    }
    return range[0] && range[1] > range[0];
}

/* pkill -f finds an agent by its command line, and a fork has the same one. */
static void take_title(const char *title)
{
    uintptr_t range[2];
    if (!find_arguments(range))
        return;
    char *arguments = (char *)range[0]; /* this process's own copy */
    const size_t size = (size_t)(range[1] - range[0]), length = strlen(title);
    memset(arguments, 0, size);
    memcpy(arguments, title, length < size ? length : size - 1);
}

static void detach(int fd, const char *name)
{
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid(); /* cannot fail: a fresh process leads no group */
    (void)chdir("/");
    /* a sandbox may refuse either; SIGCONT continues a process that was stopped though it blocks the signal
     */
    (void)prctl(PR_SET_NAME, name);
    (void)prctl(PR_SET_PDEATHSIG, SIGCONT);
    take_title(name);
    close_descriptors(0, (unsigned)fd - 1);
    close_descriptors((unsigned)fd + 1, UINT_MAX);
}

static void __attribute__((noreturn))
guard(const struct guardian_task *task, const struct guardian_table *table, int fd, bool second)
{
    enum { SECOND_WAITS_MS = 200 }; /* the first has killed all by then, as a rule */
    char nothing;
    guarded.id = task->id;
    detach(fd, second ? DESCENDANTS_SECOND_NAME : DESCENDANTS_GUARDIAN_NAME);
    while (read(fd, &nothing, sizeof nothing) < 0 && errno == EINTR)
        ; /* nothing is ever written: it ends when the agent does */
    if (second)
        (void)poll(NULL, 0, SECOND_WAITS_MS);
    uint32_t used = __atomic_load_n(&table->used, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < used && i < GUARDIAN_SESSIONS_LIMIT; i++) {
        uint64_t place = __atomic_load_n(&table->places[i], __ATOMIC_RELAXED);
        if (place)
            guarded.sessions[guarded.count++] =
                (struct descendants_session){(pid_t)(uint32_t)place, (place & LEADERLESS) != 0};
    }
    /* Everything that can be found without reading a process's memory is killed before the first such read,
     * which may block for ever at an unrelated process that is stuck in the kernel. */
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
    return error_set(
        err, MUSTER_E_UNSUPPORTED,
        "this kernel (an emulator's?) or a seccomp profile does not let this process adopt orphans "
        "(prctl: %s): orphaned processes of workers are found by their environment only",
        strerror(errno));
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

/* *fd gets our end of its pipe. */
static pid_t start_one(const struct guardian_task *task, const struct guardian_table *table, bool second,
                       int *fd, struct muster_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make the guardian's pipe");
    scope_close int reader = ends[0], writer = ends[1];
    /* fork without an exit signal: no SIGCHLD, and only a wait with __WALL sees the child */
    pid_t pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, 0);
    if (pid == 0)
        guard(task, table, reader, second);
    if (pid < 0) {
        if (errno == EINVAL)
            return guardian_unsupported(
                err, "cannot start the guardian, so the workers of a killed agent would survive");
        return thread_error(err, errno, "the guardian");
    }
    *fd = take_fd(&writer);
    return pid;
}

int guardian_start(const struct guardian_task *task, struct guardian *guardian, struct muster_error *err)
{
    *guardian = (struct guardian){.fd = -1, .second_fd = -1};
    struct guardian_table *table = make_table(task);
    if (!table)
        return error_errno(err, "no memory to share with the guardian");
    guardian->pid = start_one(task, table, false, &guardian->fd, err);
    if (guardian->pid < 0) {
        guardian->pid = 0;
        free_table(table);
        return -1;
    }
    guardian->table = table;
    return 0;
}

int guardian_start_second(const struct guardian_task *task, struct guardian *guardian,
                          struct muster_error *err)
{
    if (!guardian->pid || guardian->second)
        return 0;
    const pid_t pid = start_one(task, guardian->table, true, &guardian->second_fd, err);
    guardian->second = pid > 0 ? pid : 0;
    return pid > 0 ? 0 : -1;
}

/* False where a sandbox refuses it. */
static bool end_guardian(pid_t pid)
{
    if (kill(pid, SIGKILL) == 0 || errno == ESRCH)
        return true;
    scope_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0;
}

void guardian_dismiss_second(struct guardian *guardian)
{
    if (guardian->second && end_guardian(guardian->second)) /* before its pipe ends, as below */
        guardian_reap(guardian->second);
    guardian->second = 0;
    guard_close(&guardian->second_fd);
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

void guardian_add(struct guardian *guardian, pid_t session)
{
    struct guardian_table *table = guardian->table;
    uint64_t *place =
        table ? find_place(table, (uint32_t)session) : NULL; /* a reused number: started just now */
    if (table && !place)
        place = find_place(table, 0);
    const bool grows = table && !place && table->used < GUARDIAN_SESSIONS_LIMIT;
    if (grows)
        place = &table->places[table->used];
    if (place)
        put_place(place, (uint32_t)session);
    if (grows)
        __atomic_store_n(&table->used, table->used + 1, __ATOMIC_RELEASE);
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
        (void)end_guardian(pid); /* else it ends with its pipe */
    guardian_dismiss_second(guardian);
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
    *guardian = (struct guardian){.fd = -1, .second_fd = -1};
}
