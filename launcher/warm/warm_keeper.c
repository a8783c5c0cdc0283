/* warm_keeper.c - see warm_keeper.h. The keeper's half makes system calls only, but for the text of a
 * failure: the agent may have threads. */
#include "launcher/warm/warm_keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/process/children.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

static void __attribute__((noreturn)) keep(const struct spawn_options *options, int its_end, pid_t agent)
{
    struct muster_error err = {0};
    int exit_code;
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid(); /* cannot fail: a fresh process leads no group */
    (void)prctl(PR_SET_NAME, "muster-template");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(0); /* it died before that */
    pid_t pid = spawn_worker(options, &exit_code, &err);
    if (pid < 0) {
        char text[MUSTER_ERROR_TEXT + 16];
        int length = snprintf(text, sizeof text, "failed 0 %s", err.text);
        (void)send(its_end, text, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT);
        _exit(1);
    }
    close_descriptors(0, UINT_MAX); /* the agent's pipes, and the template's end */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    _exit(0);
}

pid_t warm_keeper_start(const struct spawn_options *options, int its_end, struct muster_error *err)
{
    pid_t agent = getpid(), pid = (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, 0); /* no exit signal */
    if (pid == 0)
        keep(options, its_end, agent);
    if (pid < 0 && errno == EINVAL)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "this kernel (an emulator's?) makes no process without an exit signal");
    return pid < 0 ? error_errno(err, "cannot make a process for the template") : pid;
}

void warm_keeper_end(pid_t *pid)
{
    if (*pid <= 0)
        return;
    (void)kill(*pid, SIGKILL);
    while (waitpid(*pid, NULL, __WALL) < 0 && errno == EINTR)
        ;
    *pid = 0;
}

/* --- detached --- */

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
