/* warm.c - see warm.h. */
#include "launcher/warm/warm.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/warm/warm_keeper.h"
#include "launcher/warm/warm_message.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

struct warm {
    enum warm_state state;
    pid_t keeper;
    struct loop *loop;
    struct loop_source source; /* fd: our end; -1: closed */
    void (*changed)(void *context);
    void *context;
    char reason[MUSTER_ERROR_TEXT];
};

const char *warm_state_name(enum warm_state state)
{
    static const char *const names[] = {
#define WARM_STATE_NAME(symbol, name, meaning) [symbol] = (name),
        WARM_STATES(WARM_STATE_NAME)
#undef WARM_STATE_NAME
    };
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "?";
}

/* --- the socket --- */

static void warm_end(struct warm *warm, const char *reason)
{
    if (warm->state == WARM_ENDED)
        return;
    warm->state = WARM_ENDED;
    (void)snprintf(warm->reason, sizeof warm->reason, "%s", reason);
    loop_remove(warm->loop, &warm->source);
    guard_close(&warm->source.fd); /* a worker that is being made finds it closed, and ends */
    warm->source.fd = -1;
    warm_keeper_end(&warm->keeper);
}

/* "NAME\tREASON\n..." as "NAME: REASON; ...". */
static void keep_left_out(struct warm *warm, const char *lines)
{
    size_t used = 0;
    for (const char *at = lines; *at && used + 4 < sizeof warm->reason; at++)
        if (*at == '\t' || (*at == '\n' && at[1])) {
            warm->reason[used++] = *at == '\t' ? ':' : ';';
            warm->reason[used++] = ' ';
        } else if (*at != '\n') {
            warm->reason[used++] = *at;
        }
    warm->reason[used] = '\0';
}

/* The next message, if there is one. -1: the template has ended, or sent what is no answer. */
static int receive(struct warm *warm, char text[WARM_MESSAGE_LIMIT + 1], struct warm_answer *answer)
{
    ssize_t got;
    do
        got = recv(warm->source.fd, text, WARM_MESSAGE_LIMIT, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (got <= 0) {
        warm_end(warm, warm->state == WARM_IMPORTING ? "it ended before it was ready" : "it ended");
        return -1;
    }
    text[got] = '\0';
    if (!warm_answer_parse(text, answer)) {
        warm_end(warm, "it sent an unknown message");
        return -1;
    }
    return 1;
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
    if (got > 0 && warm->state == WARM_IMPORTING && answer.kind == WARM_READY) {
        warm->state = WARM_SERVING;
        keep_left_out(warm, answer.text);
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

struct warm *warm_open(const struct spawn_options *options, struct loop *loop, void (*changed)(void *context),
                       void *context, struct muster_error *err)
{
    struct warm *warm = mem_calloc(1, sizeof *warm);
    if (!warm) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the template");
        return NULL;
    }
    warm->loop = loop;
    warm->changed = changed;
    warm->context = context;
    warm->source.fd = -1;
    if (start(warm, options, err) == 0)
        return warm;
    warm_keeper_end(&warm->keeper);
    guard_close(&warm->source.fd);
    mem_free(warm);
    return NULL;
}

void warm_close(struct warm *warm)
{
    if (!warm)
        return;
    warm_end(warm, "");
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
    return warm->keeper;
}

/* --- workers --- */

static int make_payload(const struct spawn_options *options, struct muster_error *err)
{
    scope_buffer payload = {0};
    if (warm_payload_write(options->argv, options->envp, &payload) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the request of a worker");
    scope_close int fd = memfd_create("muster-request", MFD_CLOEXEC);
    if (fd < 0)
        return error_errno(err, "cannot make a memfd for the request of a worker");
    if (io_write_all(fd, payload.data, payload.length, "the request of a worker", err) < 0)
        return -1;
    return take_fd(&fd);
}

int warm_request(struct warm *warm, unsigned number, const struct spawn_options *options,
                 struct muster_error *err)
{
    enum { FDS_LIMIT = 3 + SPAWN_EXTRA_LIMIT };
    int fds[FDS_LIMIT], count = 0;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fds)];
    } control = {0};
    scope_buffer text = {0};
    scope_close int payload = make_payload(options, err);
    if (payload < 0)
        return -1;
    if (warm_request_write(number, getpid(), options->cpus, &text) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the request of a worker");
    fds[count++] = payload;
    fds[count++] = options->out_fd;
    fds[count++] = options->err_fd;
    for (int i = 0; i < options->extra_count; i++)
        fds[count++] = options->extra_fds[i];
    struct iovec piece = {text.data, text.length};
    size_t bytes = (size_t)count * sizeof *fds;
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_SPACE(bytes)};
    control.header =
        (struct cmsghdr){.cmsg_len = CMSG_LEN(bytes), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), fds, bytes);
    ssize_t sent = sendmsg(warm->source.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent < 0 ? error_errno(err, "cannot send a request to the template") : 0;
}

static bool is_child(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
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
    if (got > 0 && answer.kind == WARM_WORKER && is_child(answer.pid)) {
        *number = answer.number;
        return answer.pid;
    }
    if (got > 0)
        warm_end(warm, answer.kind == WARM_FAILED ? answer.text : "its worker is not a child of the agent");
    return error_set(err, MUSTER_E_STATE, "the template made no worker: %s", warm->reason);
}
