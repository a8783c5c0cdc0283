/* pod_isolation.c - see pod_isolation.h. */
#include "launcher/local/run/pod_isolation.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/guard.h"

static int put(const char *path, const char *text)
{
    scope_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t length = strlen(text);
    return fd >= 0 && write(fd, text, length) == (ssize_t)length ? 0 : -1;
}

/* One line that maps the own numbers to themselves is all that the kernel allows without privileges, and only
 * where setgroups is given up. */
static int map_identity(const struct pod_isolation *isolation)
{
    if (put("/proc/self/setgroups", "deny") < 0 && errno != ENOENT)
        return -1;
    return put("/proc/self/uid_map", isolation->uid_map) < 0 ||
                   put("/proc/self/gid_map", isolation->gid_map) < 0
               ? -1
               : 0;
}

int pod_isolation_enter(const void *context)
{
    const struct pod_isolation *isolation = context;
    if (isolation->kind == POD_ISOLATION_NONE)
        return 0;
    if (isolation->kind == POD_ISOLATION_USER && (unshare(CLONE_NEWUSER) < 0 || map_identity(isolation) < 0))
        return -1;
    if (unshare(CLONE_NEWNS | CLONE_NEWUTS) < 0)
        return -1;
    /* later mounts of the machine still appear in the pod, and the pod's do not appear outside */
    if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
        mount(isolation->hosts, "/etc/hosts", NULL, MS_BIND, NULL) < 0)
        return -1;
    if (isolation->mounts && mount_plan_execute(isolation->mounts) < 0)
        return -1;
    return sethostname(isolation->hostname, strlen(isolation->hostname));
}

static bool is_permitted(const struct pod_isolation *isolation)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(pod_isolation_enter(isolation) == 0 ? 0 : errno > 0 && errno < 256 ? errno : EPERM);
    if (child < 0)
        return false;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return false;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : ECHILD;
    return errno == 0;
}

bool pod_isolation_permits(const struct pod_isolation *isolation, const struct mount_plan *mounts)
{
    struct pod_isolation with = *isolation;
    with.mounts = mounts;
    with.hostname = "pod";
    return is_permitted(&with);
}

struct pod_isolation pod_isolation_probe(const char *hosts)
{
    struct pod_isolation isolation = {.hosts = hosts, .hostname = "pod"};
    (void)snprintf(isolation.uid_map, sizeof isolation.uid_map, "%u %u 1", geteuid(), geteuid());
    (void)snprintf(isolation.gid_map, sizeof isolation.gid_map, "%u %u 1", getegid(), getegid());
    static const enum pod_isolation_kind kinds[] = {POD_ISOLATION_PLAIN, POD_ISOLATION_USER};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        isolation.kind = kinds[i];
        if (is_permitted(&isolation))
            return isolation;
    }
    isolation.kind = POD_ISOLATION_NONE;
    return isolation;
}
