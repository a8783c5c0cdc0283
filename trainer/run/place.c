/* place.c - observer `place`: where this rank is in its schedule. It is printed on SIGUSR1, which the
 * launcher sends to ranks that hang, and after a time-out. It is also left in the launcher's error file, for
 * the failure report. See observers.h.
 *
 * The signal's handler only wakes a thread: the rest of the process may hang. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/thread.h"
#include "proto/env_names.h"
#include "trainer/run/observers.h"

enum { PLACE_SIZE = 4096 };
static const char asked = 's', ends = 'q';

static int pipe_ends[2] = {-1, -1}; /* one run in a process; the handler writes to the second end */
static pthread_t thread;
static bool running;
static atomic_bool left; /* an error file was written for a signal: the run may yet go on */

static void take_signal(int number)
{
    const int kept = errno;
    (void)number;
    (void)!write(pipe_ends[1], &asked, 1); /* full: it has been asked already */
    errno = kept;
}

static void place_text(const struct run *run, char text[PLACE_SIZE])
{
    *text = '\0';
    if (run->trainer)
        (void)muster_trainer_place(run->trainer, text, PLACE_SIZE); /* what fits */
}

/* One line of standard error for each line of the text, in one write. */
static void print_place(const struct run *run, const char *text)
{
    scope_buffer out = {0};
    for (const char *line = text; *line;) {
        const int length = (int)strcspn(line, "\n");
        buffer_printf(&out, "muster-train: rank %d: %.*s\n", run->rank, length, line);
        line += length + (line[length] == '\n');
    }
    if (!out.failed && out.data)
        (void)io_write_all(STDERR_FILENO, out.data, out.length, "standard error",
                           NULL); /* no place to report it */
}

/* In the form of PyTorch's @record, which the launcher reads (launcher/verdict/error_file.h). */
static void leave_file(const char *message, const char *text)
{
    const char *path = getenv(ENV_ERROR_FILE);
    scope_buffer trace = {0}, out = {0};
    if (!path || !*path)
        return;
    buffer_printf(&trace, "%s%s", text, message);
    buffer_text(&out, "{\"message\": {\"message\": ");
    buffer_json_string(&out, message);
    buffer_text(&out, ", \"extraInfo\": {\"py_callstack\": ");
    buffer_json_string(&out, trace.data);
    buffer_printf(&out, ", \"timestamp\": \"%lld\", \"place\": true}}}\n",
                  (long long)(clock_wall_ns() / NS_PER_S));
    if (!trace.failed && !out.failed)
        (void)io_write_file_atomic(path, out.data, out.length, 0666, NULL); /* standard error has it, too */
}

static void *answer_signals(void *context)
{
    const struct run *run = context;
    char text[PLACE_SIZE], byte;
    for (;;) {
        const ssize_t got = read(pipe_ends[0], &byte, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || byte == ends)
            return NULL;
        place_text(run, text);
        print_place(run, text);
        leave_file("asked for its place by SIGUSR1", text);
        atomic_store(&left, true);
    }
}

static int open_place(struct run *run, struct muster_error *err)
{
    const struct sigaction action = {.sa_handler = take_signal, .sa_flags = SA_RESTART};
    if (pipe2(pipe_ends, O_CLOEXEC) < 0 || fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK) < 0)
        return error_errno(err, "cannot make a pipe for SIGUSR1");
    const int failed = thread_start(&thread, 0, answer_signals, run);
    if (failed)
        return thread_error(err, failed, "the thread that answers SIGUSR1");
    running = true;
    return sigaction(SIGUSR1, &action, NULL) < 0 ? error_errno(err, "cannot handle SIGUSR1") : 0;
}

static void close_place(struct run *run)
{
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)run;
    if (!running)
        return;
    (void)sigaction(SIGUSR1, &ignore, NULL); /* a valid signal */
    while (write(pipe_ends[1], &ends, 1) < 0 && (errno == EINTR || errno == EAGAIN))
        ;
    (void)pthread_join(thread, NULL);
    running = false;
    for (int i = 0; i < 2; i++) {
        (void)close(pipe_ends[i]); /* a pipe's ends */
        pipe_ends[i] = -1;
    }
}

static int step_place(struct run *run, struct run_step *step, struct muster_error *err)
{
    (void)run;
    (void)step;
    (void)err;
    const char *path = getenv(ENV_ERROR_FILE);
    if (atomic_exchange(&left, false) && path && *path)
        (void)unlink(path); /* the rank goes on: a later failure is another one */
    return 0;
}

const struct observer place_observer = {
    .open = open_place, .step = step_place, .stage = close_place, .close = close_place};

void place_failed(const struct run *run, const struct muster_error *err)
{
    char text[PLACE_SIZE];
    if (!run->trainer || (err->code != MUSTER_E_TIMEOUT && err->code != MUSTER_E_PEER))
        return;
    place_text(run, text);
    print_place(run, text);
    leave_file(err->text, text);
}

/* The launcher stops all ranks as soon as one has ended. After a time-out this one, whose connections are
 * closed now, gives the others the moment that they need to notice it and to leave their places. */
void place_linger(const struct run *run, const struct muster_error *err)
{
    if (run->trainer && run->world_size > 1 && err->code == MUSTER_E_TIMEOUT)
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_S));
}
