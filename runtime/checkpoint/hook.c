/* hook.c - see hook.h: a thread that starts the command, keeps the end of its output, and waits for it.
 */
#include "runtime/checkpoint/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/base/text_list.h"
#include "proto/base/thread.h"
#include "proto/env_names.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/hook_queue.h"

enum { TAIL = 320, ENDS = 8, LOOK_MS = 50 };

#define PATIENCE_NS (2 * NS_PER_S) /* from SIGTERM to SIGKILL */

/* The end of one run of the command. */
struct hook_end {
    int64_t step, ns;
    struct muster_error err; /* code 0: success */
};

struct checkpoint_hook {
    char *command, *folder;
    int64_t timeout_ns;
    pthread_mutex_t mutex; /* protects all fields below */
    pthread_cond_t changed;
    pthread_t thread;
    bool started, stops, closes; /* stops: the running command is to be ended */
    struct hook_queue queue;
    int64_t last;
    struct hook_end ends[ENDS]; /* the oldest first; if the array is full the oldest is dropped */
    int end_count;
};

/* ---- the note of the last success ---- */

static char *note_path(const char *folder)
{
    return mem_printf("%s/.command", folder);
}

/* An unreadable note counts as no note: the command is run once more. */
static int64_t read_note(const char *folder)
{
    scope_free char *path = note_path(folder);
    scope_buffer text = {0};
    int64_t step;
    if (!path || io_read_file(path, 64, &text, NULL) < 0 || !text.length)
        return -1;
    text.data[strcspn(text.data, "\n")] = '\0';
    return text_int64(text.data, &step) && step >= 0 ? step : -1;
}

static void write_note(const char *folder, int64_t step)
{
    char text[32];
    scope_free char *path = note_path(folder);
    (void)snprintf(text, sizeof text, "%lld\n", (long long)step); /* fits */
    if (path)
        (void)io_write_file_atomic(path, text, strlen(text), 0666, NULL); /* else it is run once more */
}

/* ---- a process ---- */

/* The last bytes of the command's output. */
struct tail {
    char text[TAIL];
    size_t length;
};

static void tail_add(struct tail *tail, const char *bytes, size_t count)
{
    if (count > TAIL) {
        bytes += count - TAIL;
        count = TAIL;
    }
    const size_t kept = tail->length + count > TAIL ? TAIL - count : tail->length;
    memmove(tail->text, tail->text + tail->length - kept, kept);
    memcpy(tail->text + kept, bytes, count);
    tail->length = kept + count;
}

/* Prints the tail as one line: its lines are joined by " | ". */
static void tail_print(const struct tail *tail, char *out, size_t size)
{
    size_t length = 0;
    for (size_t i = 0; i < tail->length && length + 4 < size; i++) {
        const unsigned char c = (unsigned char)tail->text[i];
        if (c == '\n' && i + 1 < tail->length)
            length += (size_t)snprintf(out + length, size - length, " | ");
        else if (c >= ' ' && c != 127)
            out[length++] = (char)c;
    }
    out[length] = '\0';
}

/* The environment without the worker's own variables, with the variables of the checkpoint. */
static int make_environment(const struct checkpoint_hook *hook, int64_t step, struct text_list *list)
{
    static const char *const own[] = {ENV_HEARTBEAT_FD, ENV_NOTICE_FD, ENV_ERROR_FILE};
    char *folder = realpath(hook->folder, NULL); /* allocated by malloc */
    const char *in = folder ? folder : hook->folder;
    int failed =
        text_list_take(list, mem_printf("%s=%s/step-%lld", ENV_CHECKPOINT, in, (long long)step)) < 0 ||
        text_list_take(list, mem_printf("%s=step-%lld", ENV_CHECKPOINT_NAME, (long long)step)) < 0 ||
        text_list_take(list, mem_printf("%s=%s", ENV_CHECKPOINT_DIR, in)) < 0 ||
        text_list_take(list, mem_printf("%s=%lld", ENV_CHECKPOINT_STEP, (long long)step)) < 0;
    free(folder);
    for (char **variable = environ; !failed && *variable; variable++) {
        bool left_out = !strncmp(*variable, "MUSTER_CHECKPOINT", strlen("MUSTER_CHECKPOINT"));
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            left_out |= !strncmp(*variable, own[i], strlen(own[i])) && (*variable)[strlen(own[i])] == '=';
        if (!left_out)
            failed = text_list_take(list, mem_strdup(*variable)) < 0;
    }
    return failed ? -1 : 0;
}

/* Closes the worker's descriptors, which a program would inherit: an agent waits for the end of file on them.
 */
static int close_own(posix_spawn_file_actions_t *actions)
{
    static const char *const own[] = {ENV_HEARTBEAT_FD, ENV_NOTICE_FD};
    int failed = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own && !failed; i++) {
        const char *text = getenv(own[i]);
        int64_t fd;
        if (text && text_int64(text, &fd) && fd > STDERR_FILENO && fd < INT32_MAX)
            failed = posix_spawn_file_actions_addclose(actions, (int)fd);
    }
    return failed;
}

/* Returns 0 or an errno. The process leads its own process group. */
static int spawn_with(const char *command, int output, char **environment, posix_spawnattr_t *attributes,
                      posix_spawn_file_actions_t *actions, pid_t *pid)
{
    char *const words[] = {"sh", "-c", (char *)command, NULL};
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    int failed = posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                                          POSIX_SPAWN_SETSIGDEF);
    if (!failed)
        failed = posix_spawnattr_setpgroup(attributes, 0);
    if (!failed)
        failed = posix_spawnattr_setsigmask(attributes, &none);
    if (!failed)
        failed = posix_spawnattr_setsigdefault(attributes, &all);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!failed)
        failed = posix_spawn_file_actions_adddup2(actions, output, STDOUT_FILENO);
    if (!failed)
        failed = posix_spawn_file_actions_adddup2(actions, output, STDERR_FILENO);
    if (!failed)
        failed = close_own(actions);
    return failed ? failed : posix_spawn(pid, "/bin/sh", actions, attributes, words, environment);
}

static int start_command(const struct checkpoint_hook *hook, int64_t step, int output, pid_t *pid,
                         struct muster_error *err)
{
    scope_text_list list = {0};
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    if (make_environment(hook, step, &list) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to start it");
    errno = posix_spawnattr_init(&attributes);
    if (errno)
        return error_errno(err, "cannot start it");
    errno = posix_spawn_file_actions_init(&actions);
    if (!errno) {
        errno = spawn_with(hook->command, output, list.items, &attributes, &actions, pid);
        const int kept = errno;
        (void)posix_spawn_file_actions_destroy(&actions); /* cannot fail: it was made */
        errno = kept;
    }
    const int failed = errno;
    (void)posix_spawnattr_destroy(&attributes); /* cannot fail: it was made */
    errno = failed;
    return failed ? error_errno(err, "cannot start /bin/sh") : 0;
}

static bool is_stopped(struct checkpoint_hook *hook)
{
    (void)pthread_mutex_lock(&hook->mutex); /* cannot fail: ours */
    const bool stops = hook->stops || hook->closes;
    (void)pthread_mutex_unlock(&hook->mutex); /* cannot fail: ours */
    return stops;
}

/* Ends the command: SIGTERM first, SIGKILL later. `why` becomes the reason in the error. */
static void end_command(pid_t pid, struct instant *killed, const char **why, const char *reason)
{
    const struct instant now = clock_now(NULL);
    const bool first = !*why;
    if (first)
        *why = reason;
    if (!first && !instant_reached(now, *killed))
        return;
    (void)kill(-pid, first ? SIGTERM : SIGKILL); /* it may have ended */
    *killed = instant_add(now, PATIENCE_NS);
}

/* Reads the available output. Returns whether there was any. */
static bool read_output(int output, int wait_ms, struct tail *tail)
{
    struct pollfd wait = {.fd = output, .events = POLLIN};
    char bytes[4096];
    const int ready = poll(&wait, 1, wait_ms);
    const ssize_t got = ready > 0 ? read(output, bytes, sizeof bytes) : 0;
    if (got > 0)
        tail_add(tail, bytes, (size_t)got);
    else if (ready > 0)
        (void)poll(NULL, 0, wait_ms); /* it has closed its output and goes on */
    return got > 0;
}

/* Waits until the command has ended. Returns 0, or the status of a failure (-1: not known). Does not wait for
 * a process that the command has left with the output open. */
static int await_command(struct checkpoint_hook *hook, pid_t pid, int output, struct tail *tail,
                         const char **why)
{
    const struct instant late = instant_add(clock_now(NULL), hook->timeout_ns);
    struct instant killed = INSTANT_NEVER;
    int status = -1;
    for (;;) {
        (void)read_output(output, LOOK_MS, tail);
        const pid_t found = waitpid(pid, &status, WNOHANG);
        if (found == pid || (found < 0 && errno != EINTR))
            break;
        if (is_stopped(hook))
            end_command(pid, &killed, why, "there was no more time");
        else if (instant_reached(clock_now(NULL), late))
            end_command(pid, &killed, why, "it took longer than training.checkpoint_command_timeout");
    }
    while (read_output(output, 0, tail))
        ;
    return *why && !status ? -1 : status;
}

static int say_failed(int status, const char *why, const struct tail *tail, struct muster_error *err)
{
    char text[TAIL + 64], how[64];
    tail_print(tail, text, sizeof text);
    if (why)
        (void)snprintf(how, sizeof how, "was ended");
    else if (status > 0 && WIFSIGNALED(status))
        (void)snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status)); /* fits */
    else
        (void)snprintf(how, sizeof how, "exited with code %d",
                       status > 0 ? WEXITSTATUS(status) : -1); /* fits */
    return error_set(err, MUSTER_E_IO, "the command %s%s%s%s%s", how, why ? ": " : "", why ? why : "",
                     *text ? "; it printed: " : "", text);
}

static int run_command(struct checkpoint_hook *hook, int64_t step, struct muster_error *err)
{
    int pipe_fds[2];
    struct tail tail = {.length = 0};
    const char *why = NULL;
    pid_t pid;
    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return error_errno(err, "cannot start the command");
    scope_close int reader = pipe_fds[0], writer = pipe_fds[1];
    if (fcntl(reader, F_SETFL, O_NONBLOCK) < 0)
        return error_errno(err, "cannot start the command");
    if (start_command(hook, step, writer, &pid, err) < 0)
        return -1;
    (void)close(take_fd(&writer));
    const int status = await_command(hook, pid, reader, &tail, &why);
    return status ? say_failed(status, why, &tail, err) : 0;
}

/* ---- the thread ---- */

/* Under the mutex. */
static void put_end(struct checkpoint_hook *hook, const struct hook_end *end)
{
    if (hook->end_count == ENDS)
        memmove(hook->ends, hook->ends + 1, (size_t)--hook->end_count * sizeof *hook->ends);
    hook->ends[hook->end_count++] = *end;
}

static void *run_hook(void *argument)
{
    struct checkpoint_hook *hook = argument;
    (void)pthread_mutex_lock(&hook->mutex); /* cannot fail: our mutex */
    while (!hook->closes) {
        struct hook_end end = {.step = hook->stops ? -1 : hook_queue_begin(&hook->queue)};
        if (end.step < 0) {
            (void)pthread_cond_wait(&hook->changed, &hook->mutex);
            continue;
        }
        (void)pthread_mutex_unlock(&hook->mutex);
        const struct instant begun = clock_now(NULL);
        const int failed = run_command(hook, end.step, &end.err);
        end.ns = instant_diff_ns(clock_now(NULL), begun);
        if (!failed)
            write_note(hook->folder, end.step);
        (void)pthread_mutex_lock(&hook->mutex);
        if (!failed)
            hook->last = end.step;
        hook_queue_end(&hook->queue);
        put_end(hook, &end);
        (void)pthread_cond_broadcast(&hook->changed);
    }
    (void)pthread_mutex_unlock(&hook->mutex);
    return NULL;
}

/* ---- the caller ---- */

GUARD_DEFINE(hook, struct checkpoint_hook *, hook_destroy);

struct checkpoint_hook *hook_create(const struct hook_options *options, struct muster_error *err)
{
    struct checkpoint_hook *made = mem_calloc(1, sizeof *made);
    pthread_condattr_t monotonic;
    if (!made || pthread_condattr_init(&monotonic)) {
        mem_free(made);
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for training.checkpoint_command");
        return NULL;
    }
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* cannot fail: the clock exists */
    (void)pthread_mutex_init(&made->mutex, NULL);                 /* cannot fail here, as glibc has it */
    (void)pthread_cond_init(&made->changed, &monotonic);          /* cannot fail either */
    (void)pthread_condattr_destroy(&monotonic);                   /* cannot fail either */
    GUARD(guard_hook) struct checkpoint_hook *hook = made;
    hook->command = mem_strdup(options->command);
    hook->folder = mem_strdup(options->folder);
    hook->timeout_ns = options->timeout_ns;
    hook->queue = HOOK_QUEUE_EMPTY;
    if (!hook->command || !hook->folder) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for training.checkpoint_command");
        return NULL;
    }
    hook->last = read_note(hook->folder);
    return take_pointer(&hook);
}

void hook_destroy(struct checkpoint_hook *hook)
{
    if (!hook)
        return;
    (void)pthread_mutex_lock(&hook->mutex); /* cannot fail: our mutex */
    hook->closes = true;
    (void)pthread_cond_broadcast(&hook->changed);
    (void)pthread_mutex_unlock(&hook->mutex);
    if (hook->started)
        (void)pthread_join(hook->thread, NULL); /* cannot fail: ours, joined once */
    (void)pthread_cond_destroy(&hook->changed);
    (void)pthread_mutex_destroy(&hook->mutex);
    mem_free(hook->command);
    mem_free(hook->folder);
    mem_free(hook);
}

void hook_add(struct checkpoint_hook *hook, int64_t step)
{
    struct hook_end end = {.step = step};
    (void)pthread_mutex_lock(&hook->mutex); /* cannot fail: our mutex */
    const int failed = hook->started ? 0 : thread_start(&hook->thread, 0, run_hook, hook);
    hook->started |= !failed;
    if (failed) {
        (void)thread_error(&end.err, failed, "the thread of training.checkpoint_command"); /* reported */
        put_end(hook, &end);
    } else {
        const int64_t skipped = hook_queue_add(&hook->queue, step);
        if (skipped >= 0) {
            end.step = skipped;
            (void)error_set(&end.err, MUSTER_E_CANCELLED,
                            "it is skipped: step %lld is newer, and the command still runs for step %lld",
                            (long long)step, (long long)hook->queue.running); /* reported */
            put_end(hook, &end);
        }
    }
    (void)pthread_cond_broadcast(&hook->changed);
    (void)pthread_mutex_unlock(&hook->mutex);
}

bool hook_holds(struct checkpoint_hook *hook, int64_t step)
{
    if (!hook)
        return false;
    (void)pthread_mutex_lock(&hook->mutex); /* cannot fail: our mutex */
    const bool holds = hook_queue_holds(&hook->queue, step);
    (void)pthread_mutex_unlock(&hook->mutex);
    return holds;
}

int64_t hook_last(struct checkpoint_hook *hook)
{
    (void)pthread_mutex_lock(&hook->mutex); /* cannot fail: our mutex */
    const int64_t last = hook->last;
    (void)pthread_mutex_unlock(&hook->mutex);
    return last;
}

bool hook_is_busy(struct checkpoint_hook *hook)
{
    (void)pthread_mutex_lock(&hook->mutex); /* cannot fail: our mutex */
    const bool busy = !hook_queue_is_empty(&hook->queue);
    (void)pthread_mutex_unlock(&hook->mutex);
    return busy;
}

void hook_stop(struct checkpoint_hook *hook)
{
    (void)pthread_mutex_lock(&hook->mutex); /* cannot fail: our mutex */
    hook->stops = true;
    if (hook->queue.waiting >= 0) {
        struct hook_end end = {.step = hook->queue.waiting};
        (void)error_set(&end.err, MUSTER_E_IO,
                        "the command was not run: there was no more time"); /* reported */
        hook->queue.waiting = -1;
        put_end(hook, &end);
    }
    (void)pthread_cond_broadcast(&hook->changed);
    (void)pthread_mutex_unlock(&hook->mutex);
}

int hook_take(struct checkpoint_hook *hook, struct instant deadline, int64_t *step, int64_t *ns,
              struct muster_error *err)
{
    const struct timespec until = instant_timespec(deadline);
    int result = 0;
    (void)pthread_mutex_lock(&hook->mutex); /* cannot fail: our mutex */
    while (!hook->end_count && !hook_queue_is_empty(&hook->queue) &&
           !instant_reached(clock_now(NULL), deadline))
        (void)pthread_cond_timedwait(&hook->changed, &hook->mutex, &until); /* the loop tests it again */
    if (hook->end_count) {
        const struct hook_end end = hook->ends[0];
        memmove(hook->ends, hook->ends + 1, (size_t)--hook->end_count * sizeof *hook->ends);
        *step = end.step;
        *ns = end.ns;
        if (err)
            *err = end.err;
        result = end.err.code ? -1 : 1;
    }
    (void)pthread_mutex_unlock(&hook->mutex);
    return result;
}
