/* isolated_call.c - see isolated_call.h. */
#include "launcher/host/isolated_call.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

struct answer {
    int result;
    struct muster_error err; /* then size bytes, where result is 0 */
};

struct call {
    int (*body)(void *context, void *result, struct muster_error *err);
    void *context, *result;
    size_t size;
};

/* --- in the process --- */

/* Closes all inherited descriptors: the process may live on, and readers of our output wait for its end. */
static void close_all_but(int *fd)
{
    int high = fcntl(*fd, F_DUPFD, 3), null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (high < 0 || null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 ||
        dup2(high, 3) < 0)
        _exit(1);
    *fd = 3;
    if (syscall(SYS_close_range, 4U, UINT_MAX, 0) == 0)
        return;
    long limit = sysconf(_SC_OPEN_MAX); /* Linux before 5.9 */
    for (int other = 4; other < limit && other < 65536; other++)
        (void)close(other);
}

static void __attribute__((noreturn)) run_apart(const struct call *call, int fd)
{
    struct answer answer = {0};
    close_all_but(&fd);
    answer.result = call->body(call->context, call->result, &answer.err);
    if (io_write_all(fd, &answer, sizeof answer, "answer", NULL) < 0 ||
        (answer.result == 0 && io_write_all(fd, call->result, call->size, "answer", NULL) < 0))
        _exit(1);
    _exit(0);
}

/* --- here --- */

/* The middle process ends at once, so that the other one is its orphan. Returns that one's number, which is
 * known before it has run at all, or -1. */
static pid_t start_process(const struct call *call, int writer, struct muster_error *err)
{
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe");
    scope_close int reader = ends[0], pid_writer = ends[1];
    pid_t middle = fork(), pid = -1;
    if (middle < 0)
        return error_errno(err, "cannot make a process");
    if (middle == 0) {
        pid = fork();
        if (pid == 0)
            run_apart(call, writer);
        _exit(pid < 0 || io_write_all(pid_writer, &pid, sizeof pid, "number", NULL) < 0);
    }
    while (waitpid(middle, &status, 0) < 0 && errno == EINTR)
        ;
    if (status == 0 && io_read_all(reader, &pid, sizeof pid, "number", NULL) == 0)
        return pid;
    return error_set(err, MUSTER_E_IO, "cannot make a process");
}

/* size bytes before the deadline. false: not all of them came. */
static bool receive(int fd, void *data, size_t size, struct instant deadline, bool *late)
{
    for (size_t got = 0; got < size;) {
        int64_t left = instant_diff_ns(deadline, clock_now(NULL));
        struct pollfd ready = {fd, POLLIN, 0};
        int count = left > 0 ? poll(&ready, 1, (int)(left / NS_PER_MS) + 1) : 0;
        if (count < 0 && errno == EINTR)
            continue;
        *late = count == 0;
        if (count <= 0)
            return false;
        ssize_t piece = read(fd, (char *)data + got, size - got);
        if (piece < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (piece <= 0)
            return false;
        got += (size_t)piece;
    }
    return true;
}

int isolated_call(int (*body)(void *context, void *result, struct muster_error *err), void *context,
                  void *result, size_t size, int64_t patience_ns, const char *what, struct muster_error *err)
{
    struct instant deadline = instant_add(clock_now(NULL), patience_ns);
    struct call call = {body, context, result, size};
    struct answer answer = {0};
    bool late = false;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_errno(err, "cannot make a pipe");
    scope_close int reader = ends[0], writer = ends[1];
    pid_t pid = start_process(&call, writer, err);
    if (pid < 0)
        return -1;
    (void)close(take_fd(&writer)); /* its end of file is the process's end */
    if (receive(reader, &answer, sizeof answer, deadline, &late)) {
        if (answer.result < 0) {
            if (err)
                *err = answer.err;
            return -1;
        }
        if (receive(reader, result, size, deadline, &late))
            return 0;
    }
    if (!late)
        return error_set(err, MUSTER_E_IO, "%s ended without a result", what);
    (void)kill(pid, SIGKILL); /* it has not closed the pipe: the number is its own */
    return error_set(err, MUSTER_E_TIMEOUT, "%s did not respond in %.3g s", what,
                     (double)patience_ns / NS_PER_S);
}
