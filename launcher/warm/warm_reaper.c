/* warm_reaper.c - the reaper's half of warm_reaper.h. */
#include "launcher/warm/warm_reaper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/process/children.h"
#include "proto/exit_code.h"

struct reaper {
    pid_t waits; /* a child that ended, of which the agent knows; 0: none */
    int reaped;
    bool reported_empty;
};

static bool tell(enum warm_reaper_kind kind, pid_t pid, int code, int value)
{
    const struct warm_reaper_message message = {kind, pid, code, value};
    return send(WARM_REAPER_FD, &message, sizeof message, MSG_NOSIGNAL) == sizeof message;
}

/* Tells of the next child that has ended, or of there being none at all; answer: also that nothing is new. */
static bool reaper_look(struct reaper *reaper, bool answer)
{
    siginfo_t info = {0};
    if (reaper->waits)
        return true; /* one at a time */
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0) {
        reaper->reported_empty = false;
        reaper->waits = info.si_pid;
        if (info.si_pid)
            return tell(WARM_REAPER_ENDED, info.si_pid, info.si_code, info.si_status);
    } else if (errno == ECHILD && (answer || !reaper->reported_empty)) {
        reaper->reported_empty = true;
        return tell(WARM_REAPER_EMPTY, 0, 0, reaper->reaped);
    }
    return !answer || tell(WARM_REAPER_NONE, 0, 0, 0);
}

static bool take_order(struct reaper *reaper)
{
    struct warm_reaper_message message;
    if (recv(WARM_REAPER_FD, &message, sizeof message, 0) != sizeof message ||
        message.kind != WARM_REAPER_REAP)
        return false; /* the agent has gone */
    siginfo_t info;
    if (reaper->waits)
        (void)waitid(P_PID, (id_t)reaper->waits, &info, WEXITED | WNOHANG); /* it has ended */
    reaper->waits = 0;
    reaper->reaped++;
    return reaper_look(reaper, true);
}

int warm_reaper_main(int argc, char *argv[])
{
    struct reaper reaper = {.reported_empty = true};
    struct signalfd_siginfo info;
    const long keeper = argc == 1 ? strtol(argv[0], NULL, 10) : 0;
    int type;
    socklen_t size = sizeof type;
    if (keeper <= 0 || getsockopt(WARM_REAPER_FD, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
        return EXIT_CODE_USAGE;
    /* The agent's streams are not held. */
    close_descriptors(WARM_REAPER_FD + 1, UINT_MAX);
    int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; nothing >= 0 && fd < 3; fd++)
        (void)dup2(nothing, fd);
    if (nothing > 2)
        (void)close(nothing);
    (void)prctl(PR_SET_NAME, "muster-reaper");
    sigset_t all, children;
    sigfillset(&all);
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ||
        !tell(WARM_REAPER_READY, getpid(), 0, (int)keeper))
        return EXIT_CODE_FAILURE;
    for (;;) {
        struct pollfd events[] = {{WARM_REAPER_FD, POLLIN, 0}, {signals, POLLIN, 0}};
        if (poll(events, 2, -1) < 0 && errno != EINTR)
            return EXIT_CODE_FAILURE;
        while (events[1].revents && read(signals, &info, sizeof info) == sizeof info)
            ;
        if (events[0].revents && !take_order(&reaper))
            return EXIT_CODE_OK;
        if (events[1].revents && !reaper_look(&reaper, false))
            return EXIT_CODE_OK;
    }
}
