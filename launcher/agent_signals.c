/* agent_signals.c - signals to the agent become events. See agent_internal.h. */
#include <sys/signalfd.h>
#include <unistd.h>

#include "launcher/agent_internal.h"
#include "launcher/report.h"
#include "launcher/spawn.h"
#include "proto/base/error.h"

static void signals_ready(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct signalfd_siginfo info;
    (void)events;
    while (read(agent->signals.fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD) {
            agent_reap(agent);
            continue;
        }
        char scratch[16];
        int number = (int)info.ssi_signo;
        if (!agent->group.leaving)
            log_info(&agent->log, "%s from pid %u: stopping the workers",
                     report_signal_name(number, scratch, sizeof scratch), (unsigned)info.ssi_pid);
        agent_event(agent, &(struct group_event){.kind = GROUP_SIGNAL, .signal = number}, NULL);
    }
}

/* HUP, INT and QUIT that were ignored when we started (nohup, a shell's background) stay so. PIPE is blocked
 * so that a console that went away is an error of write, not an end. */
int agent_watch_signals(struct agent *agent, struct muster_error *err)
{
    static const int stops[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    struct sigaction initial = {.sa_handler = SIG_DFL};
    sigset_t watched, blocked;
    spawn_ignored_signals(&agent->ignored);
    if (sigaction(SIGCHLD, &initial, NULL) < 0) /* ignored, it would take the children's status away */
        return error_errno(err, "sigaction");
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (stops[i] == SIGTERM || sigismember(&agent->ignored, stops[i]) == 0)
            sigaddset(&watched, stops[i]);
    blocked = watched;
    sigaddset(&blocked, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &blocked, NULL); /* fails for a wrong first argument only */
    int fd = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return error_errno(err, "signalfd");
    agent->signals = (struct loop_source){fd, signals_ready, agent};
    return loop_add(&agent->loop, &agent->signals, EPOLLIN, err);
}
