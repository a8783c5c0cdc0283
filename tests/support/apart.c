/* apart.c - starts a test apart from other tests: in its own network, where no other process takes its ports,
 * its local sockets' names or its places in queues, and with a /dev/shm of its own.
 *
 *   apart [--here] [--computes] [--canary FILE [--every MILLISECONDS]] PROGRAM [ARGUMENT...]
 *
 * The program finds TEST_APART=1 in its environment. It needs root: for others the program shares the machine
 * with whatever else runs there. --here: in this network all the same. --computes: with TESTS_NICE=N in the
 * environment the program and the canary have that niceness, so that tests that promise seconds come first.
 *
 * --canary: FILE says how the machine served a process next to the program (canary.h): a line of names and
 * values, written anew every two seconds, so that a killed program has it too. The tests'
 * runner reads whether a test that failed was starved (tests/support/run_tests.py), the end-to-end tests how
 * slow the machine is (tests/e2e/harness). --every: the time between probes where not CANARY_INTERVAL_MS, for
 * a program that ends within a second.
 *
 * Ends as the program does: with its status, or by its signal. Passes the signals that it gets on to the
 * program; the program does not outlive it. */
#include <errno.h>
#include <linux/if.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/canary.h"

struct watched {
    pid_t pid;
    const char *record; /* NULL: none is wanted */
    int64_t interval_ns;
    struct instant begun;
    struct canary canary;
};

static int raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int result = ioctl(fd, SIOCGIFFLAGS, &request);
    request.ifr_flags |= IFF_UP;
    if (!result)
        result = ioctl(fd, SIOCSIFFLAGS, &request);
    (void)close(fd); /* nothing was written */
    return result;
}

/* Later mounts of the machine are still seen; mounts of the test are not seen outside. */
static int mount_shared_memory(void)
{
    if (mount("none", "/", NULL, MS_REC | MS_SLAVE, NULL))
        return -1;
    return mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
}

/* 0, or -1 when it was said why not. */
static int go_apart(void)
{
    if (unshare(CLONE_NEWNET | CLONE_NEWNS)) {
        if (errno != EPERM)
            fprintf(stderr, "apart: not possible here: %s\n", strerror(errno));
        return 0;
    }
    if (raise_loopback() || mount_shared_memory() || setenv("TEST_APART", "1", 1)) {
        fprintf(stderr, "apart: loopback or /dev/shm: %s\n", strerror(errno));
        return -1;
    }
    return 0;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* As a whole: a reader never sees half of it. */
static void write_record(const struct watched *watched)
{
    char scratch[4096];
    struct rusage used = {0};
    if (!watched->record)
        return;
    int length = snprintf(scratch, sizeof scratch, "%s.new", watched->record);
    FILE *file = length > 0 && (size_t)length < sizeof scratch ? fopen(scratch, "we") : NULL;
    (void)getrusage(RUSAGE_CHILDREN,
                    &used); /* use of the processes waited for: all, once the program has ended */
    int failed =
        !file || fprintf(file, "seconds %.3f cpu %.3f probes %lld factor %.3f slowest %.3f largest_ms %.3f\n",
                         (double)instant_diff_ns(clock_now(NULL), watched->begun) / 1e9,
                         seconds(used.ru_utime) + seconds(used.ru_stime), (long long)watched->canary.probes,
                         canary_factor(&watched->canary), canary_slowest(&watched->canary),
                         (double)watched->canary.largest_ns / 1e6) < 0;
    if (file && fclose(file))
        failed = -1;
    if (failed || rename(scratch, watched->record))
        fprintf(stderr, "apart: %s: %s\n", watched->record, strerror(errno));
}

/* Until the program has ended; its wait status. */
static int watch(struct watched *watched, const sigset_t *signals)
{
    struct instant deadline = instant_add(watched->begun, watched->interval_ns);
    for (;;) {
        struct instant now = clock_now(NULL);
        if (instant_reached(now, deadline)) {
            canary_probe(&watched->canary, deadline);
            if (watched->canary.probes % CANARY_WINDOW == 0)
                write_record(watched);
            now = clock_now(NULL);
            deadline = instant_add(now, watched->interval_ns);
        }
        struct timespec left = instant_timespec((struct instant){instant_diff_ns(deadline, now)});
        siginfo_t info;
        int signal = sigtimedwait(signals, &info, &left);
        if (signal == SIGCHLD) {
            int status;
            if (waitpid(watched->pid, &status, WNOHANG) == watched->pid)
                return status;
        } else if (signal > 0 && info.si_code <= 0) { /* a terminal sends it to the program too */
            (void)kill(watched->pid, signal);
        }
    }
}

/* Does not return where the program was ended by a signal. */
static int end_as(int status)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    const struct rlimit none = {0, 0};
    sigset_t only;
    (void)setrlimit(RLIMIT_CORE, &none); /* the program's own is enough */
    (void)signal(WTERMSIG(status), SIG_DFL);
    sigemptyset(&only);
    sigaddset(&only, WTERMSIG(status));
    (void)sigprocmask(SIG_UNBLOCK, &only, NULL);
    (void)raise(WTERMSIG(status));
    return 128 + WTERMSIG(status);
}

static int become(char **program, const sigset_t *mask, pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        return 127;
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(program[0], program);
    fprintf(stderr, "apart: %s: %s\n", program[0], strerror(errno));
    return 127;
}

static int run(char **program, const char *record, int interval_ms)
{
    struct watched watched = {.record = record, .interval_ns = interval_ms * NS_PER_MS};
    sigset_t signals, before;
    sigemptyset(&signals);
    for (const int *s = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, 0}; *s;
         s++)
        sigaddset(&signals, *s);
    pid_t parent = getpid();
    if (record && unlink(record) && errno != ENOENT) {
        fprintf(stderr, "apart: %s: %s\n", record, strerror(errno));
        return 2;
    }
    (void)sigprocmask(SIG_BLOCK, &signals, &before);
    watched.pid = fork();
    if (watched.pid == 0)
        return become(program, &before, parent);
    if (watched.pid < 0) {
        fprintf(stderr, "apart: fork: %s\n", strerror(errno));
        return 2;
    }
    (void)prctl(PR_SET_TIMERSLACK, 1); /* nanosecond */
    watched.begun = clock_now(NULL);
    int status = watch(&watched, &signals);
    write_record(&watched);
    return end_as(status);
}

int main(int argc, char **argv)
{
    const char *record = NULL;
    bool here = false, computes = false;
    int at = 1, interval_ms = CANARY_INTERVAL_MS;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (!strcmp(argv[at], "--here")) {
            here = true;
        } else if (!strcmp(argv[at], "--canary") && at + 1 < argc) {
            record = argv[++at];
        } else if (!strcmp(argv[at], "--computes")) {
            computes = true;
        } else if (!strcmp(argv[at], "--every") && at + 1 < argc && (interval_ms = atoi(argv[at + 1])) > 0) {
            at++;
        } else {
            fprintf(stderr, "apart: '%s' is no option of it\n", argv[at]);
            return 2;
        }
    }
    if (at >= argc) {
        fprintf(stderr, "apart: no program\n");
        return 2;
    }
    const char *nice = getenv("TESTS_NICE");
    if (computes && nice && setpriority(PRIO_PROCESS, 0, atoi(nice)))
        fprintf(stderr, "apart: TESTS_NICE=%s: %s\n", nice, strerror(errno)); /* the same test without it */
    if (!here && go_apart())
        return 2;
    return run(argv + at, record, interval_ms);
}
