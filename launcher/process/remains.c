/* remains.c - see remains.h. */
#include "launcher/process/remains.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static const int64_t patience_ns = 2 * NS_PER_S;

struct sweep {
    struct descendants descendants;
    char id[DESCENDANTS_ID_LENGTH];
    pid_t unread[REMAINS_UNREAD_LIMIT];
    int signal;
    bool spare_groups;
    pid_t reading;   /* atomic */
    unsigned looked; /* atomic */
    pthread_mutex_t lock;
    bool cancelled; /* under the lock, which is held while a signal is sent */
    struct descendants_process left[REMAINS_LEFT_LIMIT];
    int left_count;
    struct descendants_session sessions[];
};

/* --- descendants: the thread --- */

static bool leads_group(const struct sweep *sweep, pid_t group)
{
    for (size_t i = 0; i < sweep->descendants.session_count; i++)
        if (sweep->sessions[i].id == group && !sweep->sessions[i].leaderless)
            return true;
    return false;
}

static bool note_left(void *context, const struct descendants_process *process)
{
    struct sweep *sweep = context;
    if (sweep->left_count < REMAINS_LEFT_LIMIT)
        sweep->left[sweep->left_count++] = *process;
    return !sweep->spare_groups || !leads_group(sweep, process->group);
}

static void deliver(void *context, int pidfd, pid_t pid, int signal)
{
    struct sweep *sweep = context;
    pthread_mutex_lock(&sweep->lock);
    if (!sweep->cancelled) {
        descendants_send(pidfd, pid, signal);
        if (signal != SIGKILL)
            descendants_send(pidfd, pid, SIGCONT);
    }
    pthread_mutex_unlock(&sweep->lock);
}

static void run_sweep(void *payload)
{
    struct sweep *sweep = payload;
    struct descendants blind = sweep->descendants;
    blind.blind = true; /* first those found without reading a process's memory */
    if (sweep->signal == SIGKILL)
        (void)descendants_sweep(&blind, sweep->signal, note_left, sweep);
    sweep->left_count = 0;
    (void)descendants_sweep(&sweep->descendants, sweep->signal, note_left,
                            sweep); /* without /proc the groups are all there is */
}

static void free_sweep(void *payload)
{
    struct sweep *sweep = payload;
    (void)pthread_mutex_destroy(&sweep->lock); /* no other holder is left */
    mem_free(sweep);
}

/* --- descendants: the agent's side --- */

static struct sweep *make_sweep(const struct remains_killer *killer, const struct sweep_order *order)
{
    const size_t count = order->descendants.sessions ? order->descendants.session_count : 0;
    struct sweep *sweep = mem_calloc(1, sizeof *sweep + count * sizeof *sweep->sessions);
    if (!sweep || pthread_mutex_init(&sweep->lock, NULL)) {
        mem_free(sweep);
        return NULL;
    }
    sweep->signal = order->signal;
    sweep->spare_groups = order->spare_groups;
    sweep->descendants = order->descendants;
    if (count)
        memcpy(sweep->sessions, order->descendants.sessions, count * sizeof *sweep->sessions);
    sweep->descendants.sessions = sweep->sessions;
    sweep->descendants.session_count = count;
    memcpy(sweep->unread, killer->unread, sizeof sweep->unread);
    sweep->descendants.unread = sweep->unread;
    sweep->descendants.unread_count = (size_t)killer->unread_count;
    if (order->descendants.id)
        sweep->descendants.id = memcpy(sweep->id, order->descendants.id, DESCENDANTS_ID_LENGTH);
    sweep->descendants.blind = killer->unread_count == REMAINS_UNREAD_LIMIT; /* too many do not respond */
    sweep->descendants.reading = &sweep->reading;
    sweep->descendants.looked = &sweep->looked;
    sweep->descendants.deliver = deliver;
    return sweep;
}

static void release_job(struct remains_killer *killer)
{
    loop_remove(killer->loop, &killer->done);
    background_job_release(killer->job);
    killer->job = NULL;
    killer->sweep = NULL;
}

static void take_result(struct remains_killer *killer)
{
    killer->left_count = killer->sweep->left_count;
    memcpy(killer->left, killer->sweep->left, sizeof killer->left);
    release_job(killer);
}

static void done_ready(void *context, uint32_t events)
{
    struct remains_killer *killer = context;
    (void)events;
    if (background_job_is_done(killer->job))
        take_result(killer);
}

void remains_killer_cancel(struct remains_killer *killer)
{
    if (!killer->job)
        return;
    pthread_mutex_lock(&killer->sweep->lock);
    killer->sweep->cancelled = true;
    pthread_mutex_unlock(&killer->sweep->lock);
    release_job(killer);
}

int remains_killer_start(struct remains_killer *killer, const struct sweep_order *order,
                         struct muster_error *err)
{
    if (killer->job && killer->sweep->signal == order->signal)
        return 0;
    remains_killer_cancel(killer);
    struct sweep *sweep = make_sweep(killer, order);
    if (!sweep)
        return error_set(err, MUSTER_E_NOMEM, "no memory to look for the workers' processes");
    killer->job =
        background_job_start_or_run("looking for the workers' processes", run_sweep, sweep, free_sweep, err);
    if (!killer->job)
        return -1;
    killer->sweep = sweep;
    killer->deadline = instant_add(clock_now(NULL), patience_ns);
    killer->looked = 0;
    killer->done = (struct loop_source){background_job_fd(killer->job), done_ready, killer};
    if (loop_add(killer->loop, &killer->done, EPOLLIN, err) == 0)
        return 0;
    remains_killer_wait(killer, patience_ns);
    return -1;
}

int64_t remains_killer_pause_ns(int64_t elapsed_ns)
{
    const int64_t least_ns = 20 * NS_PER_MS, most_ns = NS_PER_S, pause_ns = elapsed_ns / 8;
    return pause_ns < least_ns ? least_ns : pause_ns < most_ns ? pause_ns : most_ns;
}

void remains_killer_wait(struct remains_killer *killer, int64_t patience)
{
    if (killer->job && background_job_wait(killer->job, patience))
        take_result(killer);
}

struct instant remains_killer_deadline(const struct remains_killer *killer)
{
    return killer->job ? killer->deadline : INSTANT_NEVER;
}

pid_t remains_killer_tick(struct remains_killer *killer, struct instant now)
{
    if (!instant_reached(now, remains_killer_deadline(killer)))
        return 0;
    const unsigned looked = __atomic_load_n(&killer->sweep->looked, __ATOMIC_RELAXED);
    if (looked != killer->looked) { /* it makes progress, though slowly: the machine is busy, or has very
                                        many processes */
        killer->looked = looked;
        killer->deadline = instant_add(now, patience_ns);
        return 0;
    }
    pid_t stuck = __atomic_load_n(&killer->sweep->reading, __ATOMIC_RELAXED);
    if (stuck && killer->unread_count < REMAINS_UNREAD_LIMIT)
        killer->unread[killer->unread_count++] = stuck;
    remains_killer_cancel(killer);
    return stuck;
}

/* --- files: pure --- */

static bool is_of_dead(const char *number, const struct remains_files_scope *scope)
{
    char *end;
    long pid = strtol(number, &end, 10);
    for (size_t i = 0; end > number && *end == '_' && i < scope->dead_count; i++)
        if (scope->dead[i] == pid)
            return true;
    return false;
}

bool remains_files_is_candidate(const struct remains_files_file *file,
                                const struct remains_files_scope *scope)
{
    static const char *const with_pid[] = {"torch_", "__KMP_REGISTERED_LIB_"};
    if (file->uid != scope->uid || file->changed_ns < scope->since_ns)
        return false;
    for (size_t i = 0; i < sizeof with_pid / sizeof *with_pid; i++) {
        size_t length = strlen(with_pid[i]);
        if (!strncmp(file->name, with_pid[i], length))
            return is_of_dead(file->name + length, scope);
    }
    static const char *const unnamed[] = {"nccl-", "mpich_shm_", "ucx_shm_posix_", "Intel_MPI_"};
    for (size_t i = 0; i < sizeof unnamed / sizeof *unnamed; i++)
        if (!strncmp(file->name, unnamed[i], strlen(unnamed[i])))
            return scope->sees_all;
    return false;
}

/* --- files: looking --- */

enum { FILES_LIMIT = 1024, NAME_LIMIT = 128 };

struct candidates {
    const char *directory;
    int count;
    struct {
        char name[NAME_LIMIT];
        bool in_use;
        dev_t device;
        ino_t inode;
    } files[FILES_LIMIT];
};

static void find_candidates(const struct remains_files *cleanup, struct candidates *found)
{
    DIR *directory = opendir(cleanup->directory);
    const struct dirent *entry;
    struct stat status;
    if (!directory)
        return;
    while (found->count < FILES_LIMIT && (entry = readdir(directory))) {
        size_t length = strlen(entry->d_name);
        if (length >= NAME_LIMIT ||
            fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(status.st_mode))
            continue;
        struct remains_files_file file = {.name = entry->d_name,
                                          .uid = status.st_uid,
                                          .changed_ns =
                                              status.st_ctim.tv_sec * NS_PER_S + status.st_ctim.tv_nsec};
        if (!remains_files_is_candidate(&file, &cleanup->scope))
            continue;
        memcpy(found->files[found->count].name, entry->d_name, length + 1);
        found->files[found->count].device = status.st_dev;
        found->files[found->count++].inode = status.st_ino;
    }
    (void)closedir(directory);
}

static void mark(struct candidates *found, const struct stat *status)
{
    for (int i = 0; i < found->count; i++)
        if (found->files[i].inode == status->st_ino && found->files[i].device == status->st_dev)
            found->files[i].in_use = true;
}

/* /proc/PID/map_files is for root alone, so the mapped path is looked up again: the file itself where it
 * still has the name. */
static void mark_mapped(struct candidates *found, const char *pid)
{
    char path[64], line[1024];
    struct stat status;
    size_t length = strlen(found->directory);
    (void)snprintf(path, sizeof path, "/proc/%.16s/maps", pid);
    scope_fclose FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        char *name = strchr(line, '/');
        if (!name || strncmp(name, found->directory, length) != 0)
            continue;
        name[strcspn(name, "\n")] = '\0';
        if (stat(name, &status) == 0)
            mark(found, &status);
    }
}

static void mark_open(struct candidates *found, const char *pid)
{
    char path[64];
    struct stat status;
    (void)snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *directory = opendir(path);
    const struct dirent *entry;
    if (!directory)
        return;
    while ((entry = readdir(directory)))
        if (entry->d_name[0] != '.' && fstatat(dirfd(directory), entry->d_name, &status, 0) == 0)
            mark(found, &status);
    (void)closedir(directory);
}

/* false if /proc cannot be read: then all may be in use. */
static bool mark_used(struct candidates *found)
{
    DIR *proc = opendir("/proc");
    const struct dirent *entry;
    if (!proc)
        return false;
    while ((entry = readdir(proc))) {
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
            continue;
        mark_mapped(found, entry->d_name);
        mark_open(found, entry->d_name);
    }
    (void)closedir(proc);
    return true;
}

static bool is_initial(const char *namespace, const char *initial)
{
    char text[64];
    ssize_t got = readlink(namespace, text, sizeof text - 1);
    if (got <= 0)
        return false;
    text[got] = '\0';
    return !strcmp(text, initial);
}

/* If /dev/shm is the host's (its IPC namespace is) but /proc is a container's, other pods may use it
 * unseen. The numbers are the kernel's, fixed. */
static bool sees_all(void)
{
    return is_initial("/proc/self/ns/pid", "pid:[4026531836]") ||
           !is_initial("/proc/self/ns/ipc", "ipc:[4026531839]");
}

/* --- files: removing --- */

static void remove_ours(struct remains_files *cleanup, const struct candidates *found)
{
    scope_close int directory = open(cleanup->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; directory >= 0 && i < found->count; i++) {
        if (found->files[i].in_use || unlinkat(directory, found->files[i].name, 0) < 0)
            continue; /* it may have been removed already */
        buffer_printf(&cleanup->removed, "%s%s", cleanup->count++ ? " " : "", found->files[i].name);
    }
}

static void remove_files(void *payload)
{
    struct remains_files *cleanup = payload;
    scope_free struct candidates *found = mem_calloc(1, sizeof *found);
    if (!found)
        return;
    cleanup->scope.sees_all = sees_all();
    found->directory = cleanup->directory;
    find_candidates(cleanup, found);
    if (found->count && mark_used(found))
        remove_ours(cleanup, found);
}

static void remains_files_free(void *payload)
{
    struct remains_files *cleanup = payload;
    buffer_free(&cleanup->removed);
    mem_free((pid_t *)cleanup->scope.dead);
    mem_free(cleanup->directory);
    mem_free(cleanup);
}

struct background_job *remains_files_start(const struct remains_files_scope *scope, const char *directory,
                                           struct remains_files **cleanup, struct muster_error *err)
{
    struct remains_files *made = mem_calloc(1, sizeof *made);
    pid_t *dead = mem_calloc(scope->dead_count + 1, sizeof *dead);
    char *name = mem_strdup(directory);
    if (!made || !dead || !name) {
        mem_free(made);
        mem_free(dead);
        mem_free(name);
        error_set(err, MUSTER_E_NOMEM, "no memory to clean up after the workers");
        return NULL;
    }
    if (scope->dead_count)
        memcpy(dead, scope->dead, scope->dead_count * sizeof *dead);
    made->scope = *scope;
    made->scope.dead = dead;
    made->directory = name;
    made->removed.limit = 4096;
    *cleanup = made;
    return background_job_start_or_run("cleaning up after the workers", remove_files, made,
                                       remains_files_free, err);
}
