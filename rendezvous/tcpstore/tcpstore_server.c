/* tcpstore_server.c - see tcpstore_server.h: start, stop and commands from other threads. tcpstore_loop.c has
 * the loop over the sockets, tcp_listen.c binds. */
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
    int wakeup; /* eventfd: a command is pending */
    pthread_t thread;
    bool serving; /* the thread was started */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct command *command;     /* the command in progress; NULL: none */
    bool stopped;                /* the thread takes no further command */
    struct muster_error failure; /* failure of the loop; code 0 after COMMAND_STOP */
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
        server->stopped = true;
        break;
    }
}

/* The wakeup descriptor is readable. Runs on the server's thread; returns whether to continue. */
static bool take_command(void *context)
{
    struct tcpstore_server *server = context;
    eventfd_t wakeups;
    (void)eventfd_read(server->wakeup, &wakeups); /* only resets it; the command is in server->command */
    pthread_mutex_lock(&server->mutex);
    if (server->command) {
        run_command(server, server->command);
        server->command->done = true;
        server->command = NULL;
        pthread_cond_broadcast(&server->changed);
    }
    bool continues = !server->stopped;
    pthread_mutex_unlock(&server->mutex);
    return continues;
}

static void *serve(void *argument)
{
    struct tcpstore_server *server = argument;
    struct muster_error err = {0};
    (void)pthread_setname_np(pthread_self(), "muster-store"); /* shown by ps and debuggers */
    int result = tcpstore_loop_run(server->loop, &err);
    pthread_mutex_lock(&server->mutex);
    server->stopped = true;
    if (result)
        server->failure = err;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

static int run_on_thread(struct tcpstore_server *server, struct command *command)
{
    if (!server->serving) {
        run_command(server, command);
        return 0;
    }
    pthread_mutex_lock(&server->mutex);
    while (server->command && !server->stopped)
        pthread_cond_wait(&server->changed, &server->mutex);
    if (!server->stopped) {
        server->command = command;
        (void)eventfd_write(server->wakeup, 1); /* fails only at 2^64 unread wakeups */
        while (!command->done && !server->stopped)
            pthread_cond_wait(&server->changed, &server->mutex);
        if (server->command ==
            command) /* the thread ended before it took this one; else another caller's may be there */
            server->command = NULL;
    }
    if (!command->done)
        command->result =
            error_set(command->err, MUSTER_E_STATE, "the TCPStore on port %u has stopped: %s", server->port,
                      server->failure.code ? server->failure.text : "it is shutting down");
    pthread_mutex_unlock(&server->mutex);
    return command->result;
}

int tcpstore_server_serve(struct tcpstore_server *server, struct muster_error *err)
{
    int failed = server->serving ? 0 : thread_start(&server->thread, 0, serve, server);
    if (failed)
        return thread_error(err, failed, "the TCPStore's thread");
    server->serving = true;
    return 0;
}

static void server_free(struct tcpstore_server *server)
{
    tcpstore_loop_destroy(server->loop);
    if (server->wakeup >= 0)
        close(server->wakeup);
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
    s->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wakeup < 0) {
        error_errno(err, "cannot create an eventfd for the TCPStore");
        server_free(s);
        return -1;
    }
    scope_close int listener = tcp_listen(options->address, options->port, &s->port, err);
    if (listener >= 0)
        s->loop = tcpstore_loop_create(options, s->port, &listener, s->wakeup, take_command, s, err);
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
    return run_on_thread(server, &command);
}

int tcpstore_server_stats(struct tcpstore_server *server, struct tcpstore_server_stats *stats,
                          struct muster_error *err)
{
    struct command command = {.kind = COMMAND_STATS, .stats = stats, .err = err};
    return run_on_thread(server, &command);
}

void tcpstore_server_destroy(struct tcpstore_server *server)
{
    if (!server)
        return;
    struct command command = {.kind = COMMAND_STOP};
    if (server->serving) {
        (void)run_on_thread(server, &command); /* fails only if the thread has ended already */
        (void)pthread_join(server->thread, NULL);
    }
    server_free(server);
}
