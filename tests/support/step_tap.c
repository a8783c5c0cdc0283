/* step_tap.c - starts a program that speaks to the launcher (launcher/docs/heartbeat.md,
 * launcher/docs/notice.md) as the worker of a test: it becomes that program, and a child of it stands between
 * the two, which
 *
 *   - records each beat as a step that was taken (step_record.h), and passes it on;
 *   - takes the next beat no sooner than STEP_MS later, so that training goes no faster: a beat waits for the
 *     one before it to be taken;
 *   - passes other lines and notices on, but for the word that the program can stay when its round has failed
 *     (launcher/docs/regroup.md): a record is of one round; it gives rank 0 its own notice when it sees the
 * file STEP_FOLDER/finish: a program that listens ends all ranks after the same step then;
 *   - ends with the program.
 *
 * Another child learns from the store to which world this rank belongs, while the program already does what
 * it does: it meets its peers by itself, and whatever befalls the store befalls it.
 *
 * usage: step_tap PROGRAM [ARGUMENT ...] */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/env_names.h"
#include "tests/support/step_record.h"

enum { LINE_BYTES = 4096 };

/* Both ways that lead from a worker to its launcher, cut open. */
struct tap {
    struct step_record record;
    int beats, beats_on;                /* the worker's end of a pipe is its own; the launcher's pipe */
    int worker, launcher;               /* sockets for notices */
    int program_beats, program_notices; /* descriptors that the program gets */
    int64_t steps;
    bool ends;            /* the program was told to, or will be: nothing holds it back any more */
    struct instant next;  /* when the next beat is taken */
    bool lies_there;      /* the next beat has come, */
    struct instant since; /* then */
};

static int descriptor_of(const char *name, int *fd, struct muster_error *err)
{
    const char *text = getenv(name);
    int64_t value;
    if (!text || !text_int64(text, &value) || value < 0 || value > INT32_MAX)
        return error_set(err, MUSTER_E_INVALID, "%s is not set: start this under muster run", name);
    *fd = (int)value;
    return 0;
}

static int give_descriptor(const char *name, int fd, struct muster_error *err)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", fd);
    return setenv(name, text, 1) ? error_errno(err, "setenv %s", name) : 0;
}

static int open_tap(struct tap *tap, struct muster_error *err)
{
    int pipes[2], sockets[2];
    if (descriptor_of(ENV_HEARTBEAT_FD, &tap->beats_on, err) ||
        descriptor_of(ENV_NOTICE_FD, &tap->launcher, err))
        return -1;
    /* A pipe of one page in packet mode holds one beat: the next beat waits until that was taken. */
    if (pipe2(pipes, O_DIRECT) || fcntl(pipes[1], F_SETPIPE_SZ, getpagesize()) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets))
        return error_errno(err, "a pipe or a pair of sockets");
    tap->beats = pipes[0];
    tap->program_beats = pipes[1];
    tap->worker = sockets[0];
    tap->program_notices = sockets[1];
    return give_descriptor(ENV_HEARTBEAT_FD, tap->program_beats, err) ||
                   give_descriptor(ENV_NOTICE_FD, tap->program_notices, err)
               ? -1
               : 0;
}

/* Takes the lines "regroup" and "moves" out of what a program has written; the bytes that are left. Lines are
 * short and come whole. */
static size_t without_staying(char *text, size_t length)
{
    static const char *const words[] = {"regroup\n", "moves\n"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char *word = memmem(text, length, words[i], strlen(words[i]));
        if (!word)
            continue;
        length -= strlen(words[i]);
        memmove(word, word + strlen(words[i]), length - (size_t)(word - text));
    }
    return length;
}

/* Passes data from one socket to the other; whether the first is still open. */
static bool pass_on(int from, int to, bool filtered)
{
    char text[LINE_BYTES];
    ssize_t got = recv(from, text, sizeof text, MSG_DONTWAIT);
    const size_t left = got > 0 && filtered ? without_staying(text, (size_t)got) : got > 0 ? (size_t)got : 0;
    if (left)
        (void)send(to, text, left, MSG_NOSIGNAL); /* who is gone hears nothing */
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Whether it is time to end; rank 0 tells the program so. */
static void look_for_end(struct tap *tap)
{
    static const char notice[] = "{\"coming\": \"job-stops\", \"reason\": \"the test has seen enough\"}\n";
    if (tap->ends || !step_record_told(&tap->record, "finish"))
        return;
    tap->ends = true;
    if (tap->record.rank == 0)
        (void)send(tap->worker, notice, sizeof notice - 1, MSG_NOSIGNAL); /* as above */
}

/* False at the end of the program. */
static bool take_beat(struct tap *tap)
{
    char line[LINE_BYTES];
    ssize_t got = read(tap->beats, line, sizeof line);
    tap->lies_there = false;
    if (got <= 0)
        return got < 0 && errno == EINTR;
    const bool ended = line[0] == '-', beat = ended || (line[0] >= '0' && line[0] <= '9');
    if (!beat) { /* figures of a step, or an error that ends the job */
        (void)!write(tap->beats_on, line, (size_t)got);
        return true;
    }
    if (ended)
        step_record_count(&tap->record, "end", tap->steps, tap->since);
    else
        step_record_count(&tap->record, "step", tap->steps++, tap->since);
    (void)!write(tap->beats_on, line, (size_t)got); /* the launcher may miss a beat */
    look_for_end(tap);
    tap->next = instant_add(clock_now(NULL), tap->ends ? 0 : tap->record.step_ms * NS_PER_MS);
    return true;
}

/* Something to do with beats: one has come, or it is time to take it. */
static bool look_at_beats(struct tap *tap, bool readable)
{
    if (readable && !tap->lies_there) {
        tap->lies_there = true;
        tap->since = clock_now(NULL);
    }
    return !tap->lies_there || !instant_reached(clock_now(NULL), tap->next) || take_beat(tap);
}

static void stand_between(struct tap *tap)
{
    struct pollfd fds[] = {{.fd = tap->beats, .events = POLLIN},
                           {.fd = tap->launcher, .events = POLLIN},
                           {.fd = tap->worker, .events = POLLIN}};
    bool lives = true;
    while (lives) {
        int64_t left = instant_diff_ns(tap->next, clock_now(NULL));
        left = left > 0 ? left : 0;
        struct timespec limit = {.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
        fds[0].fd = tap->lies_there ? -1 : tap->beats;
        int ready = ppoll(fds, 3, tap->lies_there ? &limit : NULL, NULL);
        if (ready < 0 && errno != EINTR)
            return;
        lives = look_at_beats(tap, ready > 0 && fds[0].revents);
        if (ready > 0 && fds[1].revents) {
            tap->ends = true; /* a notice, or the launcher is gone */
            if (!pass_on(tap->launcher, tap->worker, false))
                fds[1].fd = -1;
        }
        if (ready > 0 && fds[2].revents && !pass_on(tap->worker, tap->launcher, true))
            fds[2].fd = -1;
    }
}

/* Notes the world as soon as its store has told which it is. Ends with the program at the latest; a program
 * that ends well waits for it (linger.c). */
static void learn_world(struct step_record *record)
{
    struct muster_error err = {0};
    GUARD(guard_tcpstore_client) struct tcpstore_client *store = step_record_store(&err);
    if (store && !step_record_agree(record, store, &err))
        step_record_begin(record);
    else
        fprintf(stderr, "step_tap: %s\n", err.text);
}

/* In a child: 0 there, the pid in the parent, -1. Signals for the whole session are the program's business.
 */
static pid_t branch(void)
{
    pid_t program = getpid(), child = fork();
    if (child)
        return child;
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGINT, SIG_IGN);
    return prctl(PR_SET_NAME, "step_tap") || getppid() != program ? -1 : 0;
}

static int start_children(struct tap *tap, struct muster_error *err)
{
    pid_t learner = branch();
    if (learner == 0) {
        (void)close(tap->program_beats); /* held open, the worker would seem to live */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        learn_world(&tap->record);
        _exit(0);
    }
    pid_t tapper = learner > 0 ? branch() : -1;
    if (tapper == 0) {
        (void)close(tap->program_beats);
        (void)close(tap->program_notices);
        stand_between(tap);
        _exit(0);
    }
    return tapper < 0 ? error_errno(err, "fork") : 0;
}

int main(int argc, char **argv)
{
    struct tap tap = {.record = {.fd = -1}};
    struct muster_error err = {0};
    if (argc < 2) {
        fputs("usage: step_tap PROGRAM [ARGUMENT ...]\n", stderr);
        return 2;
    }
    if (!step_record_open(&tap.record, &err) && !open_tap(&tap, &err) && !start_children(&tap, &err)) {
        (void)close(tap.beats);
        (void)close(tap.beats_on);
        (void)close(tap.worker);
        (void)close(tap.launcher);
        execvp(argv[1], argv + 1);
        (void)error_errno(&err, "%s", argv[1]);
    }
    fprintf(stderr, "step_tap: %s\n", err.text);
    return 1;
}
