/* mount_execute.c - see mount_plan.h: the system calls of a plan. Sources are opened as mounts of their own
 * before anything is covered, so that no order of places can hide one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcher/local/run/mount_plan.h"
#include "proto/base/guard.h"

/* Of Linux 5.2 and later; C libraries of many images do not have them. */
enum {
    CALL_OPEN_TREE = 428,
    CALL_MOVE_MOUNT = 429,
    TREE_CLONE = 1,
    TREE_RECURSIVE = 0x8000,
    MOVE_FROM_EMPTY_PATH = 4,
};

static int make_directory(const char *path)
{
    return mkdir(path, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

static int make_file(const char *path)
{
    scope_close int fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : 0;
}

static int become_root(const char *path)
{
    if (chdir(path) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return -1;
    return umount2(".", MNT_DETACH) < 0 ? -1 : chdir("/");
}

/* A change of a mount must repeat what is locked on it. */
static int lock(const char *path)
{
    static const struct {
        unsigned long shown, set;
    } flags[] = {{ST_NOSUID, MS_NOSUID},   {ST_NODEV, MS_NODEV},           {ST_NOEXEC, MS_NOEXEC},
                 {ST_NOATIME, MS_NOATIME}, {ST_NODIRATIME, MS_NODIRATIME}, {ST_RELATIME, MS_RELATIME}};
    struct statvfs status;
    unsigned long kept = 0;
    if (statvfs(path, &status) < 0)
        return -1;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (status.f_flag & flags[i].shown)
            kept |= flags[i].set;
    return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, NULL);
}

static int execute(const struct mount_op *op, const int *sources)
{
    switch (op->kind) {
    case MOUNT_OP_COVER:
        return mount("tmpfs", op->to, "tmpfs", MS_NOSUID | MS_NODEV, op->from);
    case MOUNT_OP_DIRECTORY:
        return make_directory(op->to);
    case MOUNT_OP_FILE:
        return make_file(op->to);
    case MOUNT_OP_LINK:
        return symlink(op->from, op->to);
    case MOUNT_OP_SHOW:
        return mount(op->from, op->to, NULL, MS_BIND | MS_REC, NULL);
    case MOUNT_OP_ROOT:
        return become_root(op->to);
    case MOUNT_OP_PLACE:
        return (int)syscall(CALL_MOVE_MOUNT, sources[op->source], "", AT_FDCWD, op->to, MOVE_FROM_EMPTY_PATH);
    default: /* MOUNT_OP_LOCK */
        return lock(op->to);
    }
}

int mount_plan_execute(const struct mount_plan *plan)
{
    char directory[PATH_MAX];
    int sources[MOUNT_SOURCES_LIMIT], result = 0;
    if (!plan->count)
        return 0;
    bool known = getcwd(directory, sizeof directory) != NULL;
    for (int i = 0; i < plan->source_count; i++)
        sources[i] = -1;
    for (int i = 0; !result && i < plan->source_count; i++)
        if (plan->sources[i] && (sources[i] = (int)syscall(CALL_OPEN_TREE, AT_FDCWD, plan->sources[i],
                                                           TREE_CLONE | TREE_RECURSIVE | O_CLOEXEC)) < 0)
            result = -1;
    for (int i = 0; !result && i < plan->count; i++)
        result = execute(&plan->ops[i], sources);
    const int why = errno;
    for (int i = 0; i < plan->source_count; i++)
        if (sources[i] >= 0)
            (void)close(sources[i]); /* it is mounted, or nothing will be */
    if (!result && known && chdir(directory) < 0 && chdir("/") < 0)
        return -1; /* what is seen at the same path now */
    errno = why;
    return result;
}
