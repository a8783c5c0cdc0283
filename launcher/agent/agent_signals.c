/* agent_signals.c - signals to the agent as events; and a warning if PID 1 keeps them from us. See
 * agent_signals.h. */
#include "launcher/agent/agent_signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "launcher/loop/background_job.h"
#include "launcher/process/spawn.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/failure/failure.h"

struct agent_signals {
    struct loop_source source; /* the signalfd; fd -1: not open yet */
    sigset_t ignored;          /* ignored when this process started */
    int early;                 /* signal that stopped the job during set-up; 0: none */
};

static void pass_on(struct agent *agent, int number, const char *name, unsigned sender)
{
    if (!agent->round.alive) {
        log_info(&agent->log, "%s from pid %u: there are no workers to forward it to", name, sender);
        return;
    }
    log_info(&agent->log, "%s from pid %u: forwarded to the workers", name, sender);
    agent_emit(agent, &(struct agent_event){.kind = AGENT_PASS_ON, .code = number});
}

static void handle_signal(struct agent *agent, int number, unsigned sender)
{
    char scratch[16];
    const char *name = failure_signal_name(number, scratch, sizeof scratch);
    if (agent->config->forwarded_signals & signal_bit(number)) {
        pass_on(agent, number, name, sender);
        return;
    }
    if (!agent->group.leaving)
        log_info(&agent->log, "%s from pid %u: stopping the workers", name, sender);
    agent_emit(agent, &(struct agent_event){.kind = AGENT_SIGNAL, .code = number});
}

static void signals_ready(void *context, uint32_t events)
{
    struct agent *agent = context;
    struct signalfd_siginfo info;
    (void)events;
    while (read(agent->signals->source.fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            agent_emit(agent, &(struct agent_event){.kind = AGENT_CHILDREN});
        else
            handle_signal(agent, (int)info.ssi_signo, info.ssi_pid);
    }
}

/* HUP, INT and QUIT that were ignored when we started (nohup, a shell's background) stay so, unless they
 * are to be forwarded. */
static bool is_wanted(const struct agent *agent, int number)
{
    const struct run_config *config = agent->config;
    bool of_a_session = number == SIGHUP || number == SIGINT || number == SIGQUIT;
    if (config->forwarded_signals & signal_bit(number))
        return true;
    if (!(config->stop_signals & signal_bit(number)))
        return false;
    return !of_a_session || sigismember(&agent->signals->ignored, number) == 0;
}

static int signals_create(struct agent *agent, struct muster_error *err)
{
    agent->signals = mem_calloc(1, sizeof *agent->signals);
    if (!agent->signals)
        return error_set(err, MUSTER_E_NOMEM, "no memory to watch signals");
    agent->signals->source = (struct loop_source){-1, signals_ready, agent};
    sigset_t wanted;
    spawn_ignored_signals(&agent->signals->ignored);
    sigemptyset(&wanted);
    for (int number = 1; number <= SIGNALS_LIMIT; number++)
        if (is_wanted(agent, number))
            sigaddset(&wanted, number);
    return loop_add_signals(&agent->loop, &agent->signals->source, &wanted, err);
}

const sigset_t *agent_signals_ignored(const struct agent *agent)
{
    return &agent->signals->ignored;
}

int agent_signals_early(const struct agent *agent)
{
    return agent->signals ? agent->signals->early : 0;
}

/* --- before the loop turns --- */

/* -1 if it stops the job. */
static int take_early(struct agent *agent, const char *what, struct muster_error *err)
{
    char scratch[16];
    struct signalfd_siginfo info;
    if (read(agent->signals->source.fd, &info, sizeof info) != sizeof info || info.ssi_signo == SIGCHLD)
        return 0;
    const int number = (int)info.ssi_signo;
    const char *name = failure_signal_name(number, scratch, sizeof scratch);
    if (agent->config->forwarded_signals & signal_bit(number)) {
        pass_on(agent, number, name, info.ssi_pid);
        return 0;
    }
    agent->signals->early = number;
    return error_set(err, MUSTER_E_CANCELLED, "stopped by %s from pid %u while waiting for %s", name,
                     (unsigned)info.ssi_pid, what);
}

int agent_signals_await(struct agent *agent, int fd, int64_t patience_ns, const char *what,
                        struct muster_error *err)
{
    const struct instant limit = instant_add(clock_now(NULL), patience_ns);
    for (;;) {
        int64_t left_ns = instant_diff_ns(limit, clock_now(NULL));
        struct pollfd events[] = {{.fd = fd, .events = POLLIN},
                                  {.fd = agent->signals->source.fd, .events = POLLIN}};
        int count = left_ns > 0 ? poll(events, 2, (int)((left_ns + NS_PER_MS - 1) / NS_PER_MS)) : 0;
        if (count < 0 && errno != EINTR)
            return error_errno(err, "cannot wait for %s", what);
        if (count == 0)
            return error_set(err, MUSTER_E_TIMEOUT, "%s: its file system did not respond within %.4g s", what,
                             (double)patience_ns / NS_PER_S);
        if (count > 0 && events[0].revents)
            return 0;
        if (count > 0 && take_early(agent, what, err) < 0)
            return -1;
    }
}

int agent_signals_await_job(struct agent *agent, const struct background_job *job, int64_t patience_ns,
                            const char *what, struct muster_error *err)
{
    if (agent_signals_await(agent, background_job_fd(job), patience_ns, what, err) < 0)
        return -1;
    return background_job_is_done(job) ? 0 : error_set(err, MUSTER_E_STATE, "%s: woken too early", what);
}

/* --- process 1 --- */

/* Neither file makes the kernel read the memory of PID 1, so neither can block. */
static bool read_text(const char *path, char *out, size_t size)
{
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, out, size - 1) : -1;
    out[got > 0 ? got : 0] = '\0';
    return got > 0;
}

void agent_signals_warn_of_init(const struct agent *agent)
{
    char name[32], status[4096];
    if (getpid() == 1 || !read_text("/proc/1/comm", name, sizeof name))
        return;
    name[strcspn(name, "\n")] = '\0';
    bool shell = signal_is_swallowed(name, "", SIGTERM); /* if it has no handler */
    if (shell && read_text("/proc/1/status", status, sizeof status) &&
        signal_is_swallowed(name, status, SIGTERM))
        log_warning(&agent->log,
                    "process 1 here is the shell %s, which does not forward SIGTERM, so this agent will not "
                    "get the stop signal of the pod or container; start it with: exec muster run ...",
                    name);
}

/* --- the part --- */

static void signals_destroy(struct agent *agent)
{
    if (!agent->signals)
        return;
    if (agent->signals->source.fd >= 0)
        (void)close(agent->signals->source.fd); /* a signalfd */
    mem_free(agent->signals);
    agent->signals = NULL;
}

const struct agent_part agent_signals_part = {"signals", signals_create, NULL, NULL, NULL, signals_destroy};
