/* run_once.c - runs a command once and prints its cost: "WALL_NS PEAK_KB STATUS CPU_US".
 *
 *     run_once [-t SECONDS] PROGRAM [ARGUMENTS]
 *
 * The command has a session of its own, which is killed where it is not done in time.
 *
 * The peak is the largest resident set of the command or of a process that it waited for. This program is
 * small and spawns by vfork, so that nothing of the caller's memory is counted: a process started by Python
 * directly begins with Python's peak. The command's output goes to /dev/null. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"

static volatile pid_t started;

static void kill_session(int signal)
{
    (void)signal;
    (void)kill(-started, SIGKILL);
}

static long long microseconds(struct timeval time)
{
    return time.tv_sec * 1000000LL + time.tv_usec;
}

static int start(char *argv[])
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid;
    if (posix_spawn_file_actions_init(&actions) != 0 || posix_spawnattr_init(&attributes) != 0 ||
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID) != 0 ||
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) != 0 ||
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) != 0)
        return ENOMEM;
    int error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv, environ);
    started = error ? 0 : pid;
    return error;
}

int main(int argc, char *argv[])
{
    char **command = argv + 1;
    unsigned limit = 0;
    if (argc > 3 && !strcmp(argv[1], "-t")) {
        limit = (unsigned)strtoul(argv[2], NULL, 10);
        command += 2;
    }
    if (!*command) {
        (void)fprintf(stderr, "usage: run_once [-t SECONDS] PROGRAM [ARGUMENTS]\n");
        return 2;
    }
    (void)signal(SIGALRM, kill_session);
    struct instant begin = clock_now(NULL);
    int error = start(command);
    if (error) {
        (void)fprintf(stderr, "run_once: %s: %s\n", *command, strerror(error));
        return 1;
    }
    (void)alarm(limit); /* 0: none */
    int status;
    struct rusage used;
    while (wait4(started, &status, 0, &used) < 0)
        if (errno != EINTR)
            return 1;
    (void)printf("%lld %ld %d %lld\n", (long long)instant_diff_ns(clock_now(NULL), begin), used.ru_maxrss,
                 status, microseconds(used.ru_utime) + microseconds(used.ru_stime));
    return 0;
}
