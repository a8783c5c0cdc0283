/* run_once.c - runs a command once and prints what it took: "WALL_NS PEAK_KB STATUS".
 *
 *     run_once PROGRAM [ARGUMENTS]
 *
 * The peak is the largest resident set of the command or of a process that it waited for. This program is
 * small and spawns by vfork, so that nothing of the caller's memory is counted: a process started by Python
 * directly begins with Python's peak. The command's output goes to /dev/null. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"

int main(int argc, char *argv[])
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: run_once PROGRAM [ARGUMENTS]\n");
        return 2;
    }
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) != 0 ||
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) != 0)
        return 1;
    pid_t pid;
    struct instant start = clock_now(NULL);
    int error = posix_spawnp(&pid, argv[1], &actions, NULL, argv + 1, environ);
    if (error) {
        (void)fprintf(stderr, "run_once: %s: %s\n", argv[1], strerror(error));
        return 1;
    }
    int status;
    struct rusage used;
    while (wait4(pid, &status, 0, &used) < 0)
        if (errno != EINTR)
            return 1;
    (void)printf("%lld %ld %d\n", (long long)instant_diff_ns(clock_now(NULL), start), used.ru_maxrss, status);
    return 0;
}
