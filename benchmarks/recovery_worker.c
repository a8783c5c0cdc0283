/* recovery_worker.c - the worker of recovery.py: it costs nothing, and records when it started and when it
 * was asked to stop.
 *
 *     recovery_worker FILE [once]
 *
 * Appends "start HOST RANK WORLD_SIZE NS\n" to FILE (a FIFO) and waits; at SIGTERM "stop ..." in the same
 * shape, and dies of it. NS is CLOCK_MONOTONIC, which all network namespaces of a machine share. With `once`
 * it ends after its first line. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int tell(int fd, const char *what)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0)
        return -1;
    char host[65] = "?", line[256]; /* far below PIPE_BUF: lines of many writers stay whole */
    (void)gethostname(host, sizeof host - 1);
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE");
    int length = snprintf(line, sizeof line, "%s %s %s %s %lld\n", what, host, rank ? rank : "0",
                          world ? world : "1", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    return length > 0 && write(fd, line, (size_t)length) == length ? 0 : -1;
}

int main(int argc, char *argv[])
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: recovery_worker FILE [once]\n");
        return 2;
    }
    sigset_t term;
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &term, NULL);
    int fd = open(argv[1], O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0 || tell(fd, "start") < 0) {
        perror(argv[1]);
        return 1;
    }
    if (argc > 2 && strcmp(argv[2], "once") == 0)
        return 0;
    int signal_number;
    while (sigwait(&term, &signal_number) != 0)
        ;
    (void)tell(fd, "stop");
    (void)sigprocmask(SIG_UNBLOCK, &term, NULL);
    (void)raise(SIGTERM);
    return 1; /* SIGTERM was ignored: not by us */
}
