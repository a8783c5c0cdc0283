/* tcpstore_server.c - see tcpstore_server.h: start, stop and commands from other threads. The sockets' loop
 * is in tcpstore_loop.c, binding in tcp_listen.c. */
#include "rendezvous/tcpstore/tcpstore_server.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "rendezvous/net/tcp_listen.h"
#include "rendezvous/tcpstore/tcpstore_loop.h"

enum command_kind { COMMAND_STATS, COMMAND_NEW_ROUND, COMMAND_STOP };

struct command {
    enum command_kind kind;
    bool done;
    int result;
    struct tcpstore_server_stats *stats;
    struct muster_error *err;
};

struct tcpstore_server {
    struct tcpstore_loop *loop;
    uint16_t port;
    int bell; /* eventfd: there is a command */
    pthread_t thread;
    bool serving; /* there is a thread */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct command *command;     /* one at a time */
    bool over;                   /* the thread answers no more */
    struct muster_error failure; /* why, unless it was told to stop */
};

static void run_command(struct tcpstore_server *server, struct command *command)
{
    switch (command->kind) {
    case COMMAND_STATS:
        tcpstore_loop_stats(server->loop, command->stats);
        break;
    case COMMAND_NEW_ROUND:
        tcpstore_loop_new_round(server->loop);
        break;
    case COMMAND_STOP:
        server->over = true;
        break;
    }
}

/* The bell has rung. Runs on the server's thread; returns whether it goes on. */
static bool answer_command(void *context)
{
    struct tcpstore_server *server = context;
    eventfd_t rings;
    (void)eventfd_read(server->bell, &rings); /* only empties it; the command says what is wanted */
    pthread_mutex_lock(&server->mutex);
    if (server->command) {
        run_command(server, server->command);
        server->command->done = true;
        server->command = NULL;
        pthread_cond_broadcast(&server->changed);
    }
    bool goes_on = !server->over;
    pthread_mutex_unlock(&server->mutex);
    return goes_on;
}

static void *serve(void *argument)
{
    struct tcpstore_server *server = argument;
    struct muster_error err = {0};
    (void)pthread_setname_np(pthread_self(), "muster-store"); /* for people who look at threads */
    int result = tcpstore_loop_run(server->loop, &err);
    pthread_mutex_lock(&server->mutex);
    server->over = true;
    if (result)
        server->failure = err;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

static int ask(struct tcpstore_server *server, struct command *command)
{
    if (!server->serving) {
        run_command(server, command);
        return 0;
    }
    pthread_mutex_lock(&server->mutex);
    while (server->command && !server->over)
        pthread_cond_wait(&server->changed, &server->mutex);
    if (!server->over) {
        server->command = command;
        (void)eventfd_write(server->bell, 1); /* fails only at 2^64 unread rings */
        while (!command->done && !server->over)
            pthread_cond_wait(&server->changed, &server->mutex);
        if (server->command ==
            command) /* the thread ended before it took it; else it may be another's by now */
            server->command = NULL;
    }
    if (!command->done)
        command->result =
            error_set(command->err, MUSTER_E_STATE, "the TCPStore on port %u has stopped: %s", server->port,
                      server->failure.code ? server->failure.text : "it was told to");
    pthread_mutex_unlock(&server->mutex);
    return command->result;
}

int tcpstore_server_serve(struct tcpstore_server *server, struct muster_error *err)
{
    int failed = server->serving ? 0 : thread_start(&server->thread, 0, serve, server);
    if (failed)
        return error_set(err, MUSTER_E_IO, "cannot start the TCPStore's thread: %s", strerror(failed));
    server->serving = true;
    return 0;
}

static void server_free(struct tcpstore_server *server)
{
    tcpstore_loop_destroy(server->loop);
    if (server->bell >= 0)
        close(server->bell);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    mem_free(server);
}

int tcpstore_server_listen(const struct tcpstore_server_options *options, struct tcpstore_server **server,
                           struct muster_error *err)
{
    struct tcpstore_server *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a TCPStore server");
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->bell < 0) {
        error_errno(err, "cannot make an eventfd for the TCPStore");
        server_free(s);
        return -1;
    }
    scope_close int listener = tcp_listen(options->address, options->port, &s->port, err);
    if (listener >= 0)
        s->loop = tcpstore_loop_create(options, s->port, &listener, s->bell, answer_command, s, err);
    if (!s->loop) {
        server_free(s);
        return -1;
    }
    *server = s;
    return 0;
}

int tcpstore_server_start(const struct tcpstore_server_options *options, struct tcpstore_server **server,
                          struct muster_error *err)
{
    struct tcpstore_server *s;
    if (tcpstore_server_listen(options, &s, err) < 0)
        return -1;
    if (tcpstore_server_serve(s, err) < 0) {
        tcpstore_server_destroy(s);
        return -1;
    }
    *server = s;
    return 0;
}

int tcpstore_server_fd(const struct tcpstore_server *server)
{
    return tcpstore_loop_listener(server->loop);
}

uint16_t tcpstore_server_port(const struct tcpstore_server *server)
{
    return server->port;
}

int tcpstore_server_new_round(struct tcpstore_server *server, struct muster_error *err)
{
    struct command command = {.kind = COMMAND_NEW_ROUND, .err = err};
    return ask(server, &command);
}

int tcpstore_server_stats(struct tcpstore_server *server, struct tcpstore_server_stats *stats,
                          struct muster_error *err)
{
    struct command command = {.kind = COMMAND_STATS, .stats = stats, .err = err};
    return ask(server, &command);
}

void tcpstore_server_destroy(struct tcpstore_server *server)
{
    if (!server)
        return;
    struct command command = {.kind = COMMAND_STOP};
    if (server->serving) {
        (void)ask(server, &command); /* fails only where the thread has ended already */
        (void)pthread_join(server->thread, NULL);
    }
    server_free(server);
}
