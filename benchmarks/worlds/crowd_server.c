/* crowd_server.c - the serving process of the benchmark `crowd`. See crowd.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "benchmarks/worlds/crowd.h"
#include "proto/base/log.h"
#include "rendezvous/membership.h"

enum { BACKLOG = 4096, EVENTS = 256 };

void crowd_die(const char *what)
{
    (void)fprintf(stderr, "crowd: %s%s%s\n", what, errno ? ": " : "", errno ? zmq_strerror(errno) : "");
    exit(1);
}

struct crowd_usage crowd_usage_now(void)
{
    struct rusage used;
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%*s %ld", &pages) != 1 || getrusage(RUSAGE_SELF, &used) < 0)
        crowd_die("cannot report what this process uses");
    (void)fclose(file);
    int64_t us = (int64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 + used.ru_utime.tv_usec +
                 used.ru_stime.tv_usec;
    return (struct crowd_usage){us * NS_PER_US, pages * (sysconf(_SC_PAGESIZE) / 1024)};
}

/* Answers a request for the usage; at the end of the control pipe the process ends. */
static void answer_control(int control)
{
    char request;
    if (read(control, &request, 1) <= 0)
        _exit(0);
    struct crowd_usage usage = crowd_usage_now();
    if (write(control, &usage, sizeof usage) != sizeof usage)
        _exit(1);
}

static void say_ready(int control)
{
    if (write(control, "r", 1) != 1)
        _exit(1);
}

/* -- ours
 * ---------------------------------------------------------------------------------------------------------
 */

static void take_events(struct membership *membership)
{
    struct membership_event event;
    struct muster_error err;
    int got;
    while ((got = membership_next(membership, &event, &err)) > 0) {
        errno = 0;
        if (event.kind != MEMBERSHIP_EVENT_WORLD)
            crowd_die(event.reason);
        if (membership_report(membership, event.world.id, MEMBERSHIP_REPORT_RUNNING, NULL, &err))
            crowd_die(err.text);
    }
    if (got < 0)
        crowd_die(err.text);
}

static void serve_ours(const struct crowd *crowd, int control)
{
    int err_fd = STDERR_FILENO;
    const struct log_sink log = {log_write_to_fd, &err_fd, LOG_LEVEL_WARNING, "crowd: server"};
    struct membership_options options = {
        .mode = MEMBERSHIP_SERVER,
        .job_id = "crowd",
        .agent_name = "agent-0",
        .node_rank = crowd->elastic ? -1 : 0,
        .min_nodes = crowd->agents,
        .max_nodes = crowd->agents,
        .elastic = crowd->elastic,
        .local_world_size = 8,
        .host = "127.0.0.1",
        .port = crowd->port,
        .keys = crowd->keyed ? &crowd->keys : NULL,
        .store_addr = "127.0.0.1",
        .store_port = 29501,
        .join_timeout_ns = 600 * NS_PER_S,
        .log = &log,
    };
    struct muster_error err;
    (void)mallopt(M_ARENA_MAX, 1); /* as the agent does */
    struct membership *membership = membership_open(&options, &err);
    errno = 0;
    if (!membership)
        crowd_die(err.text);
    say_ready(control);
    for (;;) {
        take_events(membership);
        struct pollfd fds[] = {{membership_fd(membership), POLLIN, 0}, {control, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0)
            crowd_die("poll");
        if (fds[1].revents)
            answer_control(control);
    }
}

/* -- a bare ROUTER
 * ------------------------------------------------------------------------------------------------ */

void crowd_bare_options(void *socket, const struct crowd *crowd, bool server)
{
    const int backlog = BACKLOG, immediate = 1, none = 0, yes = 1, handshake_ms = 60000;
    int failed = zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none) |
                 zmq_setsockopt(socket, ZMQ_HANDSHAKE_IVL, &handshake_ms, sizeof handshake_ms);
    if (server)
        failed |= zmq_setsockopt(socket, ZMQ_BACKLOG, &backlog, sizeof backlog);
    else
        failed |= zmq_setsockopt(socket, ZMQ_IMMEDIATE, &immediate, sizeof immediate);
    if (crowd->keyed && server)
        failed |= zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes) |
                  zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, crowd->keys.server_secret, SECRET_KEY_SIZE);
    else if (crowd->keyed)
        failed |= zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, crowd->keys.server_public, SECRET_KEY_SIZE) |
                  zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, crowd->keys.client_public, SECRET_KEY_SIZE) |
                  zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, crowd->keys.client_secret, SECRET_KEY_SIZE);
    if (failed)
        crowd_die("cannot set a socket's options");
}

/* Whether there was a message, which has gone back. */
static bool echo_one(void *router)
{
    char id[256], body[CROWD_MESSAGE];
    int id_size = zmq_recv(router, id, sizeof id, ZMQ_DONTWAIT);
    if (id_size < 0)
        return false;
    int size = zmq_recv(router, body, sizeof body, ZMQ_DONTWAIT);
    if (size < 0 || zmq_send(router, id, (size_t)id_size, ZMQ_SNDMORE) < 0 ||
        zmq_send(router, body, (size_t)size, 0) < 0)
        crowd_die("cannot echo");
    return true;
}

static void serve_bare(const struct crowd *crowd, int control)
{
    char where[64];
    void *context = zmq_ctx_new(), *router = context ? zmq_socket(context, ZMQ_ROUTER) : NULL;
    if (!router)
        crowd_die("cannot make a ROUTER");
    crowd_bare_options(router, crowd, true);
    (void)snprintf(where, sizeof where, "tcp://127.0.0.1:%u", crowd->port);
    if (zmq_bind(router, where))
        crowd_die(where);
    say_ready(control);
    for (;;) {
        zmq_pollitem_t items[] = {{.socket = router, .events = ZMQ_POLLIN},
                                  {.fd = control, .events = ZMQ_POLLIN}};
        if (zmq_poll(items, 2, -1) < 0)
            crowd_die("zmq_poll");
        while (echo_one(router))
            ;
        if (items[1].revents)
            answer_control(control);
    }
}

/* -- plain TCP
 * ---------------------------------------------------------------------------------------------------- */

static void watch(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        crowd_die("cannot watch a descriptor");
}

static void echo_bytes(int fd)
{
    char bytes[CROWD_MESSAGE];
    ssize_t size = read(fd, bytes, sizeof bytes);
    if (size <= 0)
        (void)close(fd);
    else if (write(fd, bytes, (size_t)size) != size)
        crowd_die("cannot echo");
}

static void serve_tcp(const struct crowd *crowd, int control)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(crowd->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), epoll = epoll_create1(EPOLL_CLOEXEC);
    const int yes = 1;
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
        bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, BACKLOG) < 0)
        crowd_die("cannot listen");
    watch(epoll, listener);
    watch(epoll, control);
    say_ready(control);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                watch(epoll, accept4(listener, NULL, NULL, SOCK_CLOEXEC));
            else if (fd == control)
                answer_control(control);
            else
                echo_bytes(fd);
        }
    }
}

pid_t crowd_serve(const struct crowd *crowd, int *control)
{
    static void (*const servers[])(const struct crowd *, int) = {
        [CROWD_OURS] = serve_ours, [CROWD_BARE] = serve_bare, [CROWD_TCP] = serve_tcp};
    int pair[2];
    char ready;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        crowd_die("cannot make a socket pair");
    pid_t pid = fork();
    if (pid < 0)
        crowd_die("fork");
    if (pid == 0) {
        (void)close(pair[0]);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        servers[crowd->kind](crowd, pair[1]);
    }
    (void)close(pair[1]);
    errno = 0;
    if (read(pair[0], &ready, 1) != 1)
        crowd_die("the server did not start");
    *control = pair[0];
    return pid;
}
