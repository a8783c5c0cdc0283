/* status_client.c - see status_client.h. */
#include "launcher/status/status_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { SOCKETS_TEXT_LIMIT = 64 << 20, ANSWER_LIMIT = 16 << 20 };

/* --- finding --- */

/* "<digits>-" at *text, which is moved past it. */
static bool take_number(const char **text, long *out)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *out = strtol(*text, &end, 10);
    if (errno || *end != '-')
        return false;
    *text = end + 1;
    return true;
}

static bool parse_name(const char *text, size_t length, struct status_name *out)
{
    long uid, pid;
    if (length >= sizeof out->text || length < strlen(STATUS_SOCKET_PREFIX))
        return false;
    memcpy(out->text, text, length);
    out->text[length] = 0;
    const char *at = out->text + strlen(STATUS_SOCKET_PREFIX);
    if (strncmp(out->text, STATUS_SOCKET_PREFIX, strlen(STATUS_SOCKET_PREFIX)) || !take_number(&at, &uid) ||
        !take_number(&at, &pid))
        return false;
    out->uid = (uid_t)uid;
    out->pid = (pid_t)pid;
    return true;
}

/* "Num: RefCount Protocol Flags Type St Inode Path"; flag 0x10000 is a listener. */
static bool parse_line(const char *line, size_t length, struct status_name *out)
{
    unsigned flags = 0;
    int path = 0;
    char copy[160];
    if (length >= sizeof copy)
        return false; /* a long path, not a name of ours */
    memcpy(copy, line, length);
    copy[length] = 0;
    (void)sscanf(copy, "%*x: %*x %*x %x %*x %*x %*u %n", &flags, &path);
    return path && flags & 0x10000 && copy[path] == '@' &&
           parse_name(copy + path + 1, strlen(copy + path + 1), out);
}

size_t status_names_parse(const char *text, struct status_name *names, size_t limit)
{
    size_t count = 0;
    while (*text) {
        struct status_name found;
        size_t length = strcspn(text, "\n");
        if (parse_line(text, length, &found) && count++ < limit)
            names[count - 1] = found;
        text += length + (text[length] == '\n');
    }
    return count;
}

struct status_name *status_names_read(size_t *count, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file("/proc/net/unix", SOCKETS_TEXT_LIMIT, &text, err) < 0)
        return NULL;
    const char *sockets = text.data ? text.data : "";
    size_t found = status_names_parse(sockets, NULL, 0);
    scope_free struct status_name *names = mem_calloc(found + 1, sizeof *names);
    if (!names) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for %zu names", found);
        return NULL;
    }
    (void)status_names_parse(sockets, names, found);
    *count = 0;
    for (size_t i = 0; i < found; i++)
        if (geteuid() == 0 || names[i].uid == geteuid())
            names[(*count)++] = names[i];
    return take_pointer(&names);
}

/* --- asking --- */

static int dial(const struct status_name *to, int64_t patience_ns, pid_t *pid, struct muster_error *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size_t length = strlen(to->text);
    memcpy(name.sun_path + 1, to->text, length);
    scope_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_errno(err, "cannot make a local socket");
    struct timeval patience = {.tv_sec = (time_t)(patience_ns / NS_PER_S),
                               .tv_usec = (suseconds_t)(patience_ns % NS_PER_S / NS_PER_US)};
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0) /* connect's too */
        return error_errno(err, "cannot set a time-out");
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    if (connect(fd, (struct sockaddr *)&name, size) < 0) {
        if (errno == EAGAIN)
            return error_set(err, MUSTER_E_TIMEOUT,
                             "agent %d does not respond: its queue of status requests is full", (int)to->pid);
        return error_set(err, MUSTER_E_PEER, "agent %d has exited", (int)to->pid);
    }
    struct ucred peer;
    size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return error_errno(err, "agent %d", (int)to->pid);
    if (peer.uid != to->uid) /* any user can take a free abstract name */
        return error_set(err, MUSTER_E_PEER, "the socket @%s does not belong to user %u but to user %u",
                         to->text, (unsigned)to->uid, (unsigned)peer.uid);
    if (pid)
        *pid = peer.pid > 0 ? peer.pid : to->pid; /* 0: it lives in a namespace that is not visible here */
    return take_fd(&fd);
}

pid_t status_whose(const struct status_name *name, struct muster_error *err)
{
    static const int64_t patience_ns = 50 * NS_PER_MS; /* an agent's queue is full only if it is stopped */
    pid_t pid = -1;
    scope_close int fd = dial(name, patience_ns, &pid, err);
    return fd < 0 ? -1 : pid;
}

/* 1: bytes came, 0: the end, -1: err. */
static int read_some(int fd, const struct status_name *from, struct instant deadline, struct buffer *answer,
                     struct muster_error *err)
{
    enum { CHUNK = 16384 };
    int64_t left_ms = instant_diff_ns(deadline, clock_now(NULL)) / NS_PER_MS;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int count = left_ms > 0 ? poll(&ready, 1, (int)left_ms) : 0;
    if (count < 0)
        return errno == EINTR ? 1 : error_errno(err, "poll");
    if (count == 0)
        return error_set(err, MUSTER_E_TIMEOUT,
                         "agent %d does not respond; its event loop is stuck or it is stopped",
                         (int)from->pid);
    char *room = buffer_reserve(answer, CHUNK);
    if (!room)
        return error_set(err, MUSTER_E_LIMIT, "the answer of agent %d is longer than %d bytes",
                         (int)from->pid, ANSWER_LIMIT);
    ssize_t got = recv(fd, room, CHUNK, MSG_DONTWAIT);
    if (got < 0 && errno == ECONNRESET)
        return error_set(err, MUSTER_E_PEER, "agent %d has exited", (int)from->pid);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 1 : error_errno(err, "agent %d", (int)from->pid);
    /* Control characters could make a terminal do things. */
    size_t length = (size_t)got;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)room[i];
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            room[i] = '?';
    }
    answer->length += (size_t)got;
    return got > 0;
}

int status_ask_of(const struct status_name *name, enum status_question question, const char *request,
                  int64_t patience_ns, struct buffer *answer, pid_t *pid, struct muster_error *err)
{
    struct instant deadline = instant_add(clock_now(NULL), patience_ns);
    char line[320];
    scope_close int fd = dial(name, patience_ns, pid, err);
    if (fd < 0)
        return -1;
    int length = snprintf(line, sizeof line, "%s%s%s\n", status_question_word(question), request ? " " : "",
                          request ? request : "");
    if ((size_t)length >= sizeof line)
        return error_set(err, MUSTER_E_LIMIT, "a request of %d bytes is too long", length);
    const ssize_t sent = send(fd, line, (size_t)length, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EPIPE || errno == ECONNRESET))
        return error_set(err, MUSTER_E_PEER, "agent %d has exited", (int)name->pid);
    if (sent != length)
        return error_errno(err, "agent %d", (int)name->pid);
    size_t before = answer->length;
    answer->limit = before + ANSWER_LIMIT;
    int more;
    do
        more = read_some(fd, name, deadline, answer, err);
    while (more > 0);
    answer->limit = 0;
    if (more < 0)
        return -1;
    if (answer->length == before)
        return error_set(err, MUSTER_E_PEER, "agent %d closed the connection without a reply",
                         (int)name->pid);
    answer->data[answer->length] = 0;
    return 0;
}

int status_ask(const struct status_name *name, enum status_question question, int64_t patience_ns,
               struct buffer *answer, pid_t *pid, struct muster_error *err)
{
    return status_ask_of(name, question, NULL, patience_ns, answer, pid, err);
}
