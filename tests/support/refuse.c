/* refuse.c - runs a program in which one system call is refused, as a container's seccomp profile does it:
 * refuse CALL ERRNO [VALUE] -- PROGRAM ARG...    (VALUE: only with this first argument; prctl's option)
 * refuse --list: the calls that it knows.
 * Exit code 125: it could not do so here. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALLS(X)                                                                                             \
    X(accept4)                                                                                               \
    X(bind)                                                                                                  \
    X(clone3)                                                                                                \
    X(close_range)                                                                                           \
    X(epoll_create1)                                                                                         \
    X(epoll_ctl)                                                                                             \
    X(eventfd2)                                                                                              \
    X(fcntl)                                                                                                 \
    X(fdatasync)                                                                                             \
    X(flock)                                                                                                 \
    X(fsync)                                                                                                 \
    X(futex)                                                                                                 \
    X(getrandom)                                                                                             \
    X(inotify_init1)                                                                                         \
    X(io_setup)                                                                                              \
    X(io_submit)                                                                                             \
    X(kill)                                                                                                  \
    X(listen)                                                                                                \
    X(madvise)                                                                                               \
    X(memfd_create)                                                                                          \
    X(mlock)                                                                                                 \
    X(openat2)                                                                                               \
    X(perf_event_open)                                                                                       \
    X(personality)                                                                                           \
    X(pidfd_open)                                                                                            \
    X(pidfd_send_signal)                                                                                     \
    X(pipe2)                                                                                                 \
    X(prctl)                                                                                                 \
    X(prlimit64)                                                                                             \
    X(process_vm_readv)                                                                                      \
    X(sched_getaffinity)                                                                                     \
    X(sched_setaffinity)                                                                                     \
    X(set_mempolicy)                                                                                         \
    X(setpriority)                                                                                           \
    X(setsid)                                                                                                \
    X(setsockopt)                                                                                            \
    X(signalfd4)                                                                                             \
    X(socket)                                                                                                \
    X(socketpair)                                                                                            \
    X(splice)                                                                                                \
    X(statfs)                                                                                                \
    X(statx)                                                                                                 \
    X(sync_file_range)                                                                                       \
    X(syslog)                                                                                                \
    X(tee)                                                                                                   \
    X(timerfd_create)                                                                                        \
    X(timerfd_settime)                                                                                       \
    X(unshare)                                                                                               \
    X(vmsplice)                                                                                              \
    X(wait4)                                                                                                 \
    X(waitid)

static const struct {
    const char *name;
    int number;
} known[] = {
#define CALL_ROW(name) {#name, SYS_##name},
    CALLS(CALL_ROW)
#undef CALL_ROW
};

static int give_up(const char *what)
{
    (void)fprintf(stderr, "refuse: %s: %s\n", what, strerror(errno));
    return 125;
}

static int number_of(const char *name)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name))
            return known[i].number;
    return -1;
}

static int refuse(int number, int error, const char *value)
{
    const unsigned only = value ? (unsigned)strtoul(value, NULL, 0) : 0;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, only, 0, (unsigned char)(value ? 1 : 0)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            (void)puts(known[i].name);
        return 0;
    }
    int at = argc > 3 && strcmp(argv[3], "--") != 0 ? 4 : 3;
    if (argc <= at + 1 || strcmp(argv[at], "--") != 0)
        return give_up("usage: refuse CALL ERRNO [VALUE] -- PROGRAM ARG...");
    int number = number_of(argv[1]), error = !strcmp(argv[2], "EPERM") ? EPERM : ENOSYS;
    if (!strcmp(argv[2], "EMFILE"))
        error = EMFILE;
    else if (!strcmp(argv[2], "ENOMEM"))
        error = ENOMEM;
    else if (!strcmp(argv[2], "EAGAIN"))
        error = EAGAIN;
    if (number < 0 || refuse(number, error, at == 4 ? argv[3] : NULL))
        return give_up(argv[1]);
    (void)execvp(argv[at + 1], argv + at + 1);
    return give_up(argv[at + 1]);
}
