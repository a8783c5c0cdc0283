/* spawn_loop.c - the least that starting workers can cost: posix_spawn of one program several times, then
 * wait for all.
 *
 *     spawn_loop COUNT PROGRAM [ARGUMENTS]
 *
 * Exits 0 where every process did. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char *argv[])
{
    long count = argc > 2 ? strtol(argv[1], NULL, 10) : 0;
    if (count < 1) {
        (void)fprintf(stderr, "usage: spawn_loop COUNT PROGRAM [ARGUMENTS]\n");
        return 2;
    }
    for (long i = 0; i < count; i++) {
        pid_t pid;
        int error = posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ);
        if (error) {
            (void)fprintf(stderr, "spawn_loop: %s: %s\n", argv[2], strerror(error));
            return 1;
        }
    }
    int result = 0, status;
    for (;;) {
        pid_t pid = wait(&status);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            return errno == ECHILD ? result : 1;
        if (status != 0)
            result = 1;
    }
}
