/* shm_cleanup.c - see shm_cleanup.h. */
#include "launcher/process/shm_cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

/* --- pure --- */

static bool is_of_dead(const char *number, const struct shm_cleanup_scope *scope)
{
    char *end;
    long pid = strtol(number, &end, 10);
    for (size_t i = 0; end > number && *end == '_' && i < scope->dead_count; i++)
        if (scope->dead[i] == pid)
            return true;
    return false;
}

bool shm_cleanup_is_candidate(const struct shm_cleanup_file *file, const struct shm_cleanup_scope *scope)
{
    static const char *const with_pid[] = {"torch_", "__KMP_REGISTERED_LIB_"};
    if (file->uid != scope->uid || file->changed_ns < scope->since_ns)
        return false;
    for (size_t i = 0; i < sizeof with_pid / sizeof *with_pid; i++) {
        size_t length = strlen(with_pid[i]);
        if (!strncmp(file->name, with_pid[i], length))
            return is_of_dead(file->name + length, scope);
    }
    return scope->sees_all && !strncmp(file->name, "nccl-", 5);
}

/* --- looking --- */

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

static void find_candidates(const struct shm_cleanup *cleanup, struct candidates *found)
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
        struct shm_cleanup_file file = {.name = entry->d_name,
                                        .uid = status.st_uid,
                                        .changed_ns =
                                            status.st_ctim.tv_sec * NS_PER_S + status.st_ctim.tv_nsec};
        if (!shm_cleanup_is_candidate(&file, &cleanup->scope))
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

/* --- removing --- */

static void remove_ours(struct shm_cleanup *cleanup, const struct candidates *found)
{
    scope_close int directory = open(cleanup->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; directory >= 0 && i < found->count; i++) {
        if (found->files[i].in_use || unlinkat(directory, found->files[i].name, 0) < 0)
            continue; /* it may have been removed already */
        buffer_printf(&cleanup->removed, "%s%s", cleanup->count++ ? " " : "", found->files[i].name);
    }
}

static void run(void *payload)
{
    struct shm_cleanup *cleanup = payload;
    scope_free struct candidates *found = mem_calloc(1, sizeof *found);
    if (!found)
        return;
    cleanup->scope.sees_all = sees_all();
    found->directory = cleanup->directory;
    find_candidates(cleanup, found);
    if (found->count && mark_used(found))
        remove_ours(cleanup, found);
}

static void shm_cleanup_free(void *payload)
{
    struct shm_cleanup *cleanup = payload;
    buffer_free(&cleanup->removed);
    mem_free((pid_t *)cleanup->scope.dead);
    mem_free(cleanup->directory);
    mem_free(cleanup);
}

struct background_job *shm_cleanup_start(const struct shm_cleanup_scope *scope, const char *directory,
                                         struct shm_cleanup **cleanup, struct muster_error *err)
{
    struct shm_cleanup *made = mem_calloc(1, sizeof *made);
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
    return background_job_start_or_run("cleaning up after the workers", run, made, shm_cleanup_free, err);
}
