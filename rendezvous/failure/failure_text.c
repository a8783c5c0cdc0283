/* failure_text.c - texts of failures. See failure.h. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/text.h"
#include "proto/xid.h"
#include "rendezvous/failure/failure.h"

/* glibc's sigabbrev_np is newer than many images that this program is copied into */
#define SIGNALS(X)                                                                                           \
    X(SIGHUP)                                                                                                \
    X(SIGINT)                                                                                                \
    X(SIGQUIT)                                                                                               \
    X(SIGILL)                                                                                                \
    X(SIGTRAP)                                                                                               \
    X(SIGABRT)                                                                                               \
    X(SIGBUS)                                                                                                \
    X(SIGFPE)                                                                                                \
    X(SIGKILL)                                                                                               \
    X(SIGUSR1)                                                                                               \
    X(SIGSEGV)                                                                                               \
    X(SIGUSR2)                                                                                               \
    X(SIGPIPE)                                                                                               \
    X(SIGALRM)                                                                                               \
    X(SIGTERM)                                                                                               \
    X(SIGSTKFLT)                                                                                             \
    X(SIGCHLD)                                                                                               \
    X(SIGCONT)                                                                                               \
    X(SIGSTOP)                                                                                               \
    X(SIGTSTP)                                                                                               \
    X(SIGTTIN)                                                                                               \
    X(SIGTTOU)                                                                                               \
    X(SIGURG) X(SIGXCPU) X(SIGXFSZ) X(SIGVTALRM) X(SIGPROF) X(SIGWINCH) X(SIGIO) X(SIGPWR) X(SIGSYS)

const char *failure_signal_name(int signal, char *scratch, size_t size)
{
    switch (signal) {
#define SIGNAL_CASE(symbol)                                                                                  \
    case symbol:                                                                                             \
        return #symbol;
        SIGNALS(SIGNAL_CASE)
#undef SIGNAL_CASE
    }
    (void)snprintf(scratch, size, "SIG%d", signal); /* truncated if scratch is small */
    return scratch;
}

void failure_excerpt(const struct worker_failure *failure, char *out, size_t size)
{
    size_t length = strcspn(failure->message, "\n");
    const char *line = failure->message;
    if (!length)
        line = failure_informative_line(failure->tail, &length);
    if (length >= size)
        (void)snprintf(out, size, "%.*s...", (int)(size > 4 ? size - 4 : 0), line);
    else
        (void)snprintf(out, size, "%.*s", (int)length, line);
}

void failure_memory_text(const struct worker_failure *failure, char *out, size_t size)
{
    char limit[32], peak[32];
    out[0] = '\0';
    if (!failure->out_of_memory)
        return;
    (void)text_format_bytes(limit, sizeof limit, failure->memory_limit);
    (void)text_format_bytes(peak, sizeof peak, failure->memory_peak);
    (void)text_append(out, size, "%s",
                      failure->memory_host ? "the machine was out of memory" : "out of memory");
    if (failure->memory_limit > 0)
        (void)text_append(out, size, "%s limit is %s",
                          failure->memory_host ? ", though the container's" : ": the container's", limit);
    if (failure->memory_limit > 0 && failure->memory_peak > 0)
        (void)text_append(out, size, ", its peak was %s", peak);
}

void failure_oom_text(const struct worker_failure *failure, char *out, size_t size)
{
    bool killed = failure->signal == SIGKILL && !failure->hung && !failure->unkillable;
    out[0] = '\0';
    if (!killed || failure->out_of_memory)
        return;
    if (failure->oom_check == FAILURE_OOM_NOT_CHECKED)
        (void)text_append(
            out, size,
            "unknown whether the kernel's OOM killer ended it: its counter (cgroup oom_kill) was not "
            "read in time");
    else if (failure->oom_check == FAILURE_OOM_UNREADABLE)
        (void)text_append(
            out, size,
            "unknown whether the kernel's OOM killer ended it: no memory cgroup with an oom_kill counter is "
            "readable here; see dmesg, or the pod's status (OOMKilled)");
    else if (failure->oom_kills > 0)
        (void)text_append(
            out, size,
            "perhaps the kernel's OOM killer: it killed %lld of this container's processes in the same round "
            "(cgroup oom_kill), which are attributed to other workers",
            (long long)failure->oom_kills);
    else
        (void)text_append(
            out, size,
            "not the kernel's OOM killer: its counter for this container (cgroup oom_kill) did not rise in "
            "this round; another process sent SIGKILL");
}

static void describe_extras(const struct worker_failure *failure, char *out, size_t size)
{
    char memory[200];
    failure_memory_text(failure, memory, sizeof memory);
    if (failure->core_dumped)
        (void)text_append(out, size, ", core dumped");
    if (*memory)
        (void)text_append(out, size, ", %s", memory);
    if (failure->xid)
        (void)text_append(out, size, ", NVIDIA Xid %d%s%s%s: %s", failure->xid,
                          *failure->pci ? " at GPU " : "", failure->pci,
                          failure->xid_elsewhere ? " of its node" : "", xid_meaning(failure->xid)->what);
    if (failure->after_stop && failure_class_of(failure) == FAILURE_AFTER_STOP)
        (void)text_append(out, size,
                          failure_is_cut_short(failure) ? " when it was stopped"
                                                        : ", after it was sent SIGTERM");
}

static void describe_saying(const struct worker_failure *failure, char *out, size_t size)
{
    char excerpt[FAILURE_EXCERPT_LIMIT];
    failure_excerpt(failure, excerpt, sizeof excerpt);
    if (*excerpt)
        (void)text_append(out, size, ": %s", excerpt);
}

static void describe_hang(const struct worker_failure *failure, char *out, size_t size)
{
    (void)text_append(out, size, "hung");
    if (failure->step >= 0)
        (void)text_append(out, size, " after step %lld", (long long)failure->step);
}

void failure_describe(const struct worker_failure *failure, char *out, size_t size)
{
    char scratch[16];
    out[0] = '\0';
    if (failure->lost_node) {
        if (failure->group_rank < 0)
            (void)text_append(out, size, "node %s is lost", failure->host);
        else
            (void)text_append(out, size, "node rank %d (%s) is lost", failure->group_rank, failure->host);
        if (*failure->message)
            (void)text_append(out, size, ", %s", failure->message);
        return;
    }
    if (failure->not_started) {
        (void)text_append(out, size, "rank %d on %s could not be started", failure->rank, failure->host);
        describe_saying(failure, out, size);
        return;
    }
    if (failure->pid)
        (void)text_append(out, size, "rank %d (pid %d on %s) ", failure->rank, failure->pid, failure->host);
    else
        (void)text_append(out, size, "rank %d (on %s) ", failure->rank, failure->host);
    if (failure->unkillable)
        (void)text_append(out, size, "survived SIGKILL, so its node is unfit");
    else if (failure->hung)
        describe_hang(failure, out, size);
    else if (failure_is_cut_short(failure))
        (void)text_append(out, size, "was already failing");
    else if (failure->signal > 0)
        (void)text_append(out, size, "was killed by signal %d (%s)", failure->signal,
                          failure_signal_name(failure->signal, scratch, sizeof scratch));
    else
        (void)text_append(out, size, "exited with code %d", failure->exit_code);
    describe_extras(failure, out, size);
    /* its output has the reason of its end */
    bool speaks = failure->signal == 0 || failure->signal == SIGABRT || *failure->message ||
                  failure_shows_place(failure->tail);
    if (speaks || failure->hung || failure_is_cut_short(failure))
        describe_saying(failure, out, size);
}
