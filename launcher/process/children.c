/* children.c - see children.h. */
#include "launcher/process/children.h"

#include <errno.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/error.h"

static bool is_refused(int error)
{
    return error == EPERM || error == EACCES || error == ENOSYS;
}

int children_init(struct children *children, struct muster_error *err)
{
    siginfo_t info = {0};
    *children = (struct children){0};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || !is_refused(errno))
        return 0;
    children->by_wait4 = true;
    if (children_are_none(children) || !is_refused(errno))
        return 0;
    return error_errno(err,
                       "waitid and wait4 are refused (by a seccomp profile?), without which the end of a "
                       "worker cannot be seen: allow one of them");
}

/* 0 if none has ended, -1 with errno. */
static pid_t take_by_wait4(struct child_end *end)
{
    int status = 0;
    pid_t pid;
    do
        pid = waitpid(-1, &status, WNOHANG);
    while (pid < 0 && errno == EINTR);
    if (pid <= 0)
        return pid;
    *end = WIFEXITED(status)
               ? (struct child_end){pid, CLD_EXITED, WEXITSTATUS(status)}
               : (struct child_end){pid, WCOREDUMP(status) ? CLD_DUMPED : CLD_KILLED, WTERMSIG(status)};
    return pid;
}

bool children_next(struct children *children, struct child_end *end)
{
    siginfo_t info = {0};
    if (children->held.pid) {
        *end = children->held;
        children->held = (struct child_end){0};
        return true;
    }
    if (children->by_wait4)
        return take_by_wait4(end) > 0;
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) < 0 || !info.si_pid)
        return false;
    *end = (struct child_end){info.si_pid, info.si_code, info.si_status};
    return true;
}

bool children_are_none(struct children *children)
{
    siginfo_t info = {0};
    if (children->held.pid)
        return false;
    if (children->by_wait4)
        return take_by_wait4(&children->held) < 0 && errno == ECHILD;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

/* --- descriptors --- */

void close_descriptors(unsigned first, unsigned last)
{
    if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
        return;
    enum { OLD_KERNEL_LIMIT = 65536 }; /* Linux before 5.9 */
    for (unsigned fd = first; fd <= last && fd < OLD_KERNEL_LIMIT; fd++)
        (void)close((int)fd); /* most are not open */
}
