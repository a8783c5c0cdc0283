/* warm_keeper_detached.c - see warm_keeper_detached.h. The child makes system calls only, but for the text of
 * a failure: the agent may have threads. */
#include "launcher/warm/warm_keeper_detached.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

static void start_and_end(const struct spawn_options *options, int report) __attribute__((noreturn));
static void start_and_end(const struct spawn_options *options, int report)
{
    struct muster_error err = {0};
    int exit_code;
    if (spawn_worker(options, &exit_code, &err) >= 0)
        _exit(0);
    (void)!write(report, err.text, strlen(err.text)); /* the exit code says that it failed */
    _exit(1);
}

int warm_keeper_detached_start(const struct spawn_options *options, struct muster_error *err)
{
    int ends[2], status = 0, adopts = 0;
    char text[MUSTER_ERROR_TEXT] = "";
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe for the template");
    scope_close int reader = ends[0], writer = ends[1];
    (void)prctl(PR_GET_CHILD_SUBREAPER, &adopts);
    (void)prctl(PR_SET_CHILD_SUBREAPER,
                0); /* the agent adopts the orphans of its descendants: not this one */
    pid_t pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, 0); /* no exit signal: as a keeper */
    if (pid == 0)
        start_and_end(options, writer);
    int failed = pid < 0 ? errno : 0;
    while (pid > 0 && waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    (void)prctl(PR_SET_CHILD_SUBREAPER, adopts);
    errno = failed;
    if (failed)
        return error_errno(err, "cannot make a process for the template");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    guard_close(&writer);
    writer = -1;
    (void)!read(reader, text, sizeof text - 1);
    return error_set(err, MUSTER_E_IO, "%s", *text ? text : "the template could not be started");
}
