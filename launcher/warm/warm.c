/* warm.c - see warm.h. */
#include "launcher/warm/warm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/warm/warm_keeper.h"
#include "launcher/warm/warm_message.h"
#include "launcher/warm/warm_worker.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

struct warm {
    enum warm_state state;
    pid_t keeper;
    struct loop *loop;
    struct loop_source source; /* fd: our end; -1: closed */
    void (*changed)(void *context);
    void *context;
    char reason[MUSTER_ERROR_TEXT];
    /* a kept template's */
    bool is_kept, ready; /* ready: the job's own template is */
    struct warm_kept kept;
    struct loop_source control; /* fd: kept.control */
    struct warm_reaper_link reaper;
    struct instant deadline; /* for its answer */
    void (*ended)(void *context);
    char note[256];
};

/* --- the socket --- */

static bool is_unanswered(const struct warm *warm)
{
    return warm->is_kept && warm->state == WARM_IMPORTING && !*warm->note;
}

static void lose_link(struct warm *warm)
{
    if (warm->source.fd >= 0)
        loop_remove(warm->loop, &warm->source);
    guard_close(&warm->source.fd); /* a worker that is being made finds it closed, and ends */
    warm->source.fd = -1;
}

/* The reaper stays, with the workers that there are. */
static void end_control(struct warm *warm)
{
    warm->deadline = INSTANT_NEVER;
    if (warm->control.ready)
        loop_remove(warm->loop, &warm->control);
    warm->control.ready = NULL;
    if (warm->is_kept)
        warm_kept_close(&warm->kept);
}

static void warm_end(struct warm *warm, const char *reason)
{
    if (warm->state == WARM_ENDED)
        return;
    warm->state = WARM_ENDED;
    (void)snprintf(warm->reason, sizeof warm->reason, "%s", reason);
    lose_link(warm);
    warm_keeper_end(&warm->keeper);
    end_control(warm);
}

static const char reaper_ended[] = "the parent of its workers (muster-reaper) ended";

/* With the reaper the job's template and its workers end, and any of these ends may be seen first. */
static const char *reason_of_end(const struct warm *warm, const char *otherwise)
{
    return warm->is_kept && warm_reaper_has_ended(&warm->reaper) ? reaper_ended : otherwise;
}

/* The next message, if there is one. -1: the template has ended, or sent something else than an answer. */
static int receive(struct warm *warm, char text[WARM_MESSAGE_LIMIT + 1], struct warm_answer *answer)
{
    ssize_t got;
    do
        got = recv(warm->source.fd, text, WARM_MESSAGE_LIMIT, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got <= 0 && is_unanswered(warm)) { /* the kept template says why, or has ended too */
        lose_link(warm);
        return 0;
    }
    if (got <= 0) {
        const bool is_ready = warm->state != WARM_IMPORTING;
        warm_end(warm, reason_of_end(warm, is_ready ? "it ended" : "it ended before it was ready"));
        return -1;
    }
    text[got] = '\0';
    if (!warm_answer_parse(text, answer)) {
        warm_end(warm, "it sent an unknown message");
        return -1;
    }
    return 1;
}

static bool begin_serving(struct warm *warm)
{
    if (!warm->ready || (warm->is_kept && (!warm->reaper.pid || !*warm->note)))
        return false;
    warm->state = WARM_SERVING;
    return true;
}

static void readable(void *context, uint32_t events)
{
    struct warm *warm = context;
    char text[WARM_MESSAGE_LIMIT + 1];
    struct warm_answer answer;
    (void)events;
    int got = receive(warm, text, &answer);
    if (got == 0)
        return;
    if (got > 0 && warm->state == WARM_IMPORTING && !warm->ready && answer.kind == WARM_READY) {
        /* "NAME\tREASON\n..." as "NAME: REASON; ...". */
        size_t used = 0;
        for (const char *at = answer.text; *at && used + 4 < sizeof warm->reason; at++)
            if (*at == '\t' || (*at == '\n' && at[1])) {
                warm->reason[used++] = *at == '\t' ? ':' : ';';
                warm->reason[used++] = ' ';
            } else if (*at != '\n') {
                warm->reason[used++] = *at;
            }
        warm->reason[used] = '\0';
        warm->ready = true;
        if (!begin_serving(warm))
            return;       /* its reaper is not ready */
    } else if (got > 0) { /* an answer without a request */
        warm_end(warm, answer.kind == WARM_FAILED ? answer.text : "it answered without a request");
    }
    warm->changed(warm->context);
}

/* --- life --- */

static char **environment_with_socket(char *const *envp)
{
    struct text_list list = {0};
    int failed = 0;
    for (; !failed && *envp; envp++)
        failed = text_list_take(&list, mem_strdup(*envp));
    if (failed || text_list_take(&list, mem_printf(WARM_ENV "=%d", SPAWN_EXTRA_FD)) < 0) {
        text_list_free(&list);
        return NULL;
    }
    return list.items;
}

static int start(struct warm *warm, const struct spawn_options *options, struct muster_error *err)
{
    int ends[2];
    char **envp = environment_with_socket(options->envp);
    if (!envp)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the template's environment");
    struct spawn_options its = *options;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        text_list_free_items(envp);
        return error_errno(err, "cannot make a socket for the template");
    }
    scope_close int its_end = ends[1];
    warm->source = (struct loop_source){ends[0], readable, warm};
    its.envp = envp;
    its.extra_fds[0] = its_end;
    its.extra_count = 1;
    pid_t keeper = warm_keeper_start(&its, its_end, err);
    text_list_free_items(envp); /* the keeper has its copy */
    if (keeper < 0)
        return -1;
    warm->keeper = keeper;
    return loop_add(warm->loop, &warm->source, EPOLLIN, err);
}

static struct warm *warm_make(struct loop *loop, void (*changed)(void *context), void *context,
                              struct muster_error *err)
{
    struct warm *warm = mem_calloc(1, sizeof *warm);
    if (!warm) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the template");
        return NULL;
    }
    warm->loop = loop;
    warm->changed = changed;
    warm->context = context;
    warm->source.fd = warm->reaper.source.fd = -1;
    warm->deadline = INSTANT_NEVER;
    return warm;
}

struct warm *warm_open(const struct spawn_options *options, struct loop *loop, void (*changed)(void *context),
                       void *context, struct muster_error *err)
{
    struct warm *warm = warm_make(loop, changed, context, err);
    if (!warm)
        return NULL;
    if (start(warm, options, err) == 0)
        return warm;
    warm_keeper_end(&warm->keeper);
    guard_close(&warm->source.fd);
    mem_free(warm);
    return NULL;
}

/* --- from a kept template --- */

static const int64_t answer_patience_ns = 10 * NS_PER_S; /* for a template that had imported before */

static void reaper_changed(void *context)
{
    struct warm *warm = context;
    if (warm->reaper.gone && is_unanswered(warm))
        return; /* the kept template says why, or has ended too */
    if (warm->reaper.gone && warm->state != WARM_ENDED) {
        warm_end(warm, reaper_ended);
        warm->changed(warm->context);
    } else if (warm->state == WARM_IMPORTING && begin_serving(warm)) {
        warm->changed(warm->context);
    }
    warm->ended(warm->context);
}

/* Requests the job's template, over sockets of its own. */
static int request_job(struct warm *warm, struct muster_error *err)
{
    int template_ends[2], reaper_ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, template_ends) < 0)
        return error_errno(err, "cannot make a socket for the template");
    warm->source = (struct loop_source){template_ends[0], readable, warm};
    scope_close int template_end = template_ends[1];
    if (loop_add(warm->loop, &warm->source, EPOLLIN, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, reaper_ends) < 0)
        return error_errno(err, "cannot make a socket for the workers' parent");
    scope_close int reaper_end = reaper_ends[1];
    if (warm_reaper_open(&warm->reaper, reaper_ends[0], warm->loop, reaper_changed, warm, err) < 0)
        return -1;
    return warm_kept_request(&warm->kept, template_end, reaper_end, err);
}

static void drop_job(struct warm *warm)
{
    lose_link(warm);
    warm_reaper_close(&warm->reaper);
}

static void control_readable(void *context, uint32_t events);

static int connect_job(struct warm *warm, struct muster_error *err)
{
    warm->control = (struct loop_source){warm->kept.control, control_readable, warm};
    if (loop_add(warm->loop, &warm->control, EPOLLIN, err) < 0) {
        warm->control.ready = NULL;
        return -1;
    }
    return warm_kept_greet(&warm->kept, err);
}

/* "serving PID KILOBYTES JOBS" */
static void note_kept(struct warm *warm, const char *text)
{
    long numbers[3] = {0};
    char *at = (char *)text;
    for (int i = 0; i < 3; i++)
        numbers[i] = strtol(at, &at, 10);
    guard_close(&warm->kept.life); /* it has imported: it stays from now on */
    warm->kept.life = -1;
    warm->deadline = INSTANT_NEVER;
    (void)snprintf(warm->note, sizeof warm->note,
                   "template %ld, %ld MB%s%s, stays for %.6g s after its last job", numbers[0],
                   numbers[1] / 1024,
                   !warm->kept.started   ? ", kept from before"
                   : *warm->kept.differs ? ", another is kept and differs in: "
                                         : ", new",
                   warm->kept.started ? warm->kept.differs : "", warm->kept.seconds);
}

static void control_readable(void *context, uint32_t events)
{
    struct warm *warm = context;
    char text[WARM_MESSAGE_LIMIT + 1];
    struct muster_error err = {0};
    (void)events;
    ssize_t got = recv(warm->control.fd, text, WARM_MESSAGE_LIMIT, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    text[got > 0 ? got : 0] = '\0';
    if (got <= 0 && warm->state == WARM_SERVING) { /* it has ended; the job's template and reaper live on */
        end_control(warm);
        return;
    }
    if (!strcmp(text, "hello")) {
        if (request_job(warm, &err) == 0)
            return;
        warm_end(warm, err.text);
    } else if (!strncmp(text, "serving ", 8)) {
        note_kept(warm, text + 8);
        if (warm->source.fd < 0 || warm->reaper.gone)
            warm_end(warm, "it ended before it was ready");
        else if (!begin_serving(warm))
            return;
    } else if (!strncmp(text, "changed ", 8)) {
        /* "changed FILE": it imports anew, and will answer then. */
        loop_remove(warm->loop, &warm->control);
        warm->control.ready = NULL;
        drop_job(warm);
        warm->deadline = INSTANT_NEVER;
        if ((warm_kept_connect(&warm->kept, &err) < 0 ? -1 : connect_job(warm, &err)) == 0)
            return;
        warm_end(warm, err.text);
    } else {
        warm_end(warm,
                 !strncmp(text, "refused ", 8) ? text + 8 : "the kept template ended before it was ready");
    }
    warm->changed(warm->context);
}

struct warm *warm_open_kept(const struct spawn_options *options, const struct warm_keep *keep,
                            struct loop *loop, void (*changed)(void *context), void (*ended)(void *context),
                            void *context, struct muster_error *err)
{
    struct warm *warm = warm_make(loop, changed, context, err);
    if (!warm)
        return NULL;
    warm->is_kept = true;
    warm->ended = ended;
    if (warm_kept_open(&warm->kept, keep, options, err) == 0 && connect_job(warm, err) == 0) {
        if (!warm->kept.started)
            warm->deadline = instant_add(clock_now(NULL), answer_patience_ns);
        return warm;
    }
    drop_job(warm);
    end_control(warm);
    mem_free(warm);
    return NULL;
}

pid_t warm_reaper(const struct warm *warm)
{
    return warm->reaper.pid;
}

bool warm_reaper_has_gone(const struct warm *warm)
{
    return warm->reaper.gone;
}

const char *warm_note(const struct warm *warm)
{
    return warm->note;
}

struct instant warm_deadline(const struct warm *warm)
{
    return warm ? warm->deadline : INSTANT_NEVER;
}

void warm_tick(struct warm *warm, struct instant now)
{
    if (!warm || !instant_reached(now, warm->deadline))
        return;
    warm_end(warm, "the kept template does not answer; muster warm --stop ends it");
    warm->changed(warm->context);
}

bool warm_take_end(struct warm *warm, struct warm_end *end)
{
    return warm && warm->is_kept && warm->reaper.loop && warm_reaper_take(&warm->reaper, end);
}

bool warm_is_empty(const struct warm *warm)
{
    return !warm || !warm->is_kept || !warm->reaper.loop || warm_reaper_is_empty(&warm->reaper);
}

/* --- the end --- */

void warm_close(struct warm *warm)
{
    if (!warm)
        return;
    warm_end(warm, "");
    warm_reaper_close(&warm->reaper);
    mem_free(warm);
}

enum warm_state warm_state(const struct warm *warm)
{
    return warm->state;
}

const char *warm_reason(const struct warm *warm)
{
    return warm->reason;
}

pid_t warm_keeper(const struct warm *warm)
{
    return warm->is_kept ? warm->reaper.keeper : warm->keeper;
}

/* --- workers --- */

int warm_request(struct warm *warm, unsigned number, const struct spawn_options *options,
                 struct muster_error *err)
{
    return warm_worker_request(warm->source.fd, warm->is_kept ? warm->reaper.pid : getpid(), number, options,
                               err);
}

static bool is_taken(struct warm *warm, pid_t pid)
{
    siginfo_t info = {0};
    if (warm->is_kept)
        return warm_worker_has_parent(pid, warm->reaper.pid) && warm_reaper_add(&warm->reaper, pid) == 0;
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
        return true;
    return errno != ECHILD &&
           warm_worker_has_parent(pid, getpid()); /* a sandbox refuses to look without taking */
}

pid_t warm_collect(struct warm *warm, struct instant deadline, unsigned *number, struct muster_error *err)
{
    char text[WARM_MESSAGE_LIMIT + 1];
    struct warm_answer answer;
    int got = 0;
    while (warm->state == WARM_SERVING && (got = receive(warm, text, &answer)) == 0) {
        int64_t left_ns = instant_diff_ns(deadline, clock_now(NULL));
        struct pollfd wait = {warm->source.fd, POLLIN, 0};
        if (left_ns <= 0)
            warm_end(warm, "it did not answer in time");
        else if (poll(&wait, 1, (int)(left_ns / NS_PER_MS) + 1) < 0 && errno != EINTR)
            warm_end(warm, "its socket failed");
    }
    if (got > 0 && answer.kind == WARM_WORKER && is_taken(warm, answer.pid)) {
        *number = answer.number;
        return answer.pid;
    }
    if (got > 0)
        warm_end(warm, answer.kind == WARM_FAILED
                           ? answer.text
                           : reason_of_end(warm, "its worker is not a child of the agent"));
    return error_set(err, MUSTER_E_STATE, "the template made no worker: %s", warm->reason);
}
