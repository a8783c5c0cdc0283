/* status_socket.c - see status_socket.h. */
#include "launcher/status/status_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

/* Every client is the same user; beyond this many the oldest connection is dropped. */
enum { CONNECTION_LIMIT = 16, QUESTION_LIMIT = 320, BACKLOG = 16 };

struct connection {
    struct loop_source source;
    struct status_socket *server;
    uint64_t number; /* in order of arrival; 0: free */
    char question[QUESTION_LIMIT];
    size_t asked; /* bytes of it */
    struct buffer answer;
};

struct status_socket {
    struct status_socket_options options;
    struct loop_source listener;
    struct connection connections[CONNECTION_LIMIT];
    uint64_t connected; /* so far */
};

const char *status_question_word(enum status_question question)
{
    static const char *const words[] = {
#define STATUS_WORD(symbol, word) word,
        STATUS_QUESTIONS(STATUS_WORD)
#undef STATUS_WORD
    };
    return (unsigned)question < STATUS_QUESTION_COUNT ? words[question] : "?";
}

static void hang_up(struct connection *connection)
{
    loop_remove(connection->server->options.loop, &connection->source);
    (void)close(connection->source.fd);
    buffer_free(&connection->answer);
    connection->number = 0;
}

/* --- one connection --- */

static void answer(struct connection *connection)
{
    static void (*const renderings[])(const struct agent_status *, struct buffer *) = {
        [STATUS_ASK_TABLE] = status_table,
        [STATUS_ASK_JSON] = status_json,
        [STATUS_ASK_SUMMARY] = status_summary,
    };
    const struct status_socket_options *options = &connection->server->options;
    char *const rest = strchr(connection->question, ' ');
    if (rest)
        *rest = '\0';
    for (int i = 0; i < STATUS_QUESTION_COUNT; i++) {
        if (strcmp(connection->question, status_question_word(i)) || !rest != (i != STATUS_ASK_DRAIN))
            continue;
        if (i == STATUS_ASK_DRAIN) {
            options->drain(options->context, rest + 1, &connection->answer);
            continue;
        }
        void (*const fill)(void *, struct buffer *) = i == STATUS_ASK_CHECKPOINT ? options->checkpoint
                                                      : i == STATUS_ASK_SAVED    ? options->saved
                                                      : i == STATUS_ASK_BOARD    ? options->board
                                                                                 : NULL;
        if (fill) {
            fill(options->context, &connection->answer);
            continue;
        }
        scope_free struct agent_status *status = options->fill(options->context);
        if (status)
            renderings[i](status, &connection->answer);
    }
    if (connection->answer.failed)
        buffer_clear(&connection->answer); /* without memory the answer is empty, which is no status */
}

/* 1: all written; 0: later; -1: the peer is gone. */
static int send_answer(struct connection *connection)
{
    struct buffer *text = &connection->answer;
    while (text->length) {
        ssize_t sent = send(connection->source.fd, text->data, text->length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == EAGAIN ? 0 : -1;
        buffer_consume(text, (size_t)sent);
    }
    return 1;
}

/* 1: the request is complete; 0: later; -1: the peer is gone or sent an unknown request. */
static int read_question(struct connection *connection)
{
    size_t room = sizeof connection->question - 1 - connection->asked;
    char *at = connection->question + connection->asked;
    ssize_t got = recv(connection->source.fd, at, room, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    connection->asked += (size_t)got;
    char *end = memchr(connection->question, '\n', connection->asked);
    if (!end)
        return got == 0 || connection->asked == sizeof connection->question - 1 ? -1 : 0;
    *end = 0;
    return 1;
}

static void connection_ready(void *context, uint32_t events)
{
    struct connection *connection = context;
    struct loop *loop = connection->server->options.loop;
    (void)events;
    if (!connection->answer.length) {
        int whole = read_question(connection);
        if (whole == 0)
            return;
        if (whole > 0)
            answer(connection);
    }
    if (!connection->answer.length || send_answer(connection) != 0 ||
        loop_modify(loop, &connection->source, EPOLLOUT, NULL) < 0)
        hang_up(connection);
}

/* --- the listener --- */

static bool is_welcome(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == 0 || peer.uid == geteuid());
}

static struct connection *free_place(struct status_socket *server)
{
    struct connection *oldest = &server->connections[0];
    for (int i = 0; i < CONNECTION_LIMIT; i++) {
        struct connection *one = &server->connections[i];
        if (!one->number)
            return one;
        if (one->number < oldest->number)
            oldest = one;
    }
    hang_up(oldest);
    return oldest;
}

/* On failure fd stays the caller's. */
static int take_in(struct status_socket *server, int fd)
{
    struct connection *place = free_place(server);
    *place = (struct connection){.server = server, .source = {fd, connection_ready, place}};
    if (loop_add(server->options.loop, &place->source, EPOLLIN, NULL) < 0)
        return -1;
    place->number = ++server->connected;
    return 0;
}

static void listener_ready(void *context, uint32_t events)
{
    struct status_socket *server = context;
    int fd;
    (void)events; /* edge-triggered: if descriptors have run out, the next connection tries again */
    while ((fd = accept4(server->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
        if (!is_welcome(fd) || take_in(server, fd) < 0)
            (void)close(fd); /* nothing was received */
}

static int bind_name(int fd, const char *agent_id, struct muster_error *err)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX}; /* a name that begins with NUL is no file */
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, STATUS_SOCKET_PREFIX "%u-%d-%.8s",
                          (unsigned)geteuid(), (int)getpid(), agent_id);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(fd, (struct sockaddr *)&name, size) < 0 || listen(fd, BACKLOG) < 0)
        return error_errno(err, "cannot listen on the local socket @%s", name.sun_path + 1);
    return 0;
}

struct status_socket *status_socket_open(const struct status_socket_options *options,
                                         struct muster_error *err)
{
    scope_free struct status_socket *server = mem_calloc(1, sizeof *server);
    if (!server) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the status socket");
        return NULL;
    }
    server->options = *options;
    scope_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        (void)error_errno(err, "cannot make a local socket");
        return NULL;
    }
    server->listener = (struct loop_source){fd, listener_ready, server};
    if (bind_name(fd, options->agent_id, err) < 0 ||
        loop_add(options->loop, &server->listener, EPOLLIN | EPOLLET, err) < 0)
        return NULL;
    (void)take_fd(&fd);
    return take_pointer(&server);
}

void status_socket_close(struct status_socket *server)
{
    if (!server)
        return;
    for (int i = 0; i < CONNECTION_LIMIT; i++)
        if (server->connections[i].number)
            hang_up(&server->connections[i]);
    loop_remove(server->options.loop, &server->listener);
    (void)close(server->listener.fd);
    mem_free(server);
}
