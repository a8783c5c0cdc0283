/* http_server.c - see http_server.h. libmicrohttpd keeps its sockets in an epoll descriptor of its own, which
 * is one source of the loop; when it wants to be called without one being ready is a timer. */
#include "launcher/status/http_server.h"

#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "launcher/status/microhttpd.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/net/tcp_listen.h"

/* A probe and a scraper need two connections. Those above the limit wait in the kernel's queue until an idle
 * one is dropped. A request of ours is a few hundred bytes. */
enum { CONNECTION_LIMIT = 256, IDLE_S = 5, CONNECTION_MEMORY = 8192 };

struct http_server {
    struct http_server_options options;
    struct MHD_Daemon *daemon;
    struct loop_source ready, timer; /* the daemon's epoll descriptor; a timerfd */
    uint16_t port;
};

static enum MHD_Result send_reply(struct MHD_Connection *connection, struct http_reply *reply)
{
    if (reply->body.failed) {
        buffer_free(&reply->body);
        return MHD_NO; /* without memory: the connection is closed */
    }
    size_t length = reply->body.length;
    char *text = buffer_take(&reply->body);
    struct MHD_Response *response =
        text ? http_calls.create_response_from_buffer_with_free_callback(length, text, mem_free) : NULL;
    if (!response) {
        mem_free(text);
        return MHD_NO;
    }
    enum MHD_Result sent = MHD_NO;
    if (http_calls.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type) &&
        (reply->status != MHD_HTTP_METHOD_NOT_ALLOWED ||
         http_calls.add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD")))
        sent = http_calls.queue_response(connection, reply->status, response);
    http_calls.destroy_response(response);
    return sent;
}

/* Answers before a body could come, so that libmicrohttpd closes the connection behind the answer: nobody
 * keeps one for long. */
static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **request)
{
    struct http_server *server = context;
    struct http_reply reply = {0};
    (void)version, (void)upload, (void)request;
    *upload_size = 0; /* what is uploaded is not read */
    if (!strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD)) {
        server->options.answer(server->options.context, path, &reply);
    } else {
        reply.status = MHD_HTTP_METHOD_NOT_ALLOWED;
        reply.content_type = "text/plain";
        buffer_text(&reply.body, "only GET and HEAD\n");
    }
    return send_reply(connection, &reply);
}

/* --- in the loop --- */

/* One call of the library: what is ready now. What that leaves to do, or an idle connection's end, is for a
 * later turn, so that clients that never stop asking leave every other turn to the agent. */
static void turn(struct http_server *server)
{
    MHD_UNSIGNED_LONG_LONG left_ms;
    struct itimerspec when = {0};         /* zero disarms */
    (void)http_calls.run(server->daemon); /* refuses daemons with threads only */
    if (http_calls.get_timeout(server->daemon, &left_ms) == MHD_YES) {
        when.it_value.tv_sec = (time_t)(left_ms / 1000);
        when.it_value.tv_nsec = (long)(left_ms % 1000) * 1000000 + 1;
    }
    (void)timerfd_settime(server->timer.fd, 0, &when, NULL); /* only fails for what is no timer or no time */
}

static void sockets_ready(void *context, uint32_t events)
{
    (void)events;
    turn(context);
}

static void timer_ready(void *context, uint32_t events)
{
    struct http_server *server = context;
    uint64_t expirations;
    (void)events;
    ssize_t got = read(server->timer.fd, &expirations, sizeof expirations);
    (void)got; /* the count says nothing */
    turn(server);
}

/* --- its life --- */

/* fd: the listener; the daemon's on success. */
static struct MHD_Daemon *start_daemon(struct http_server *server, int fd)
{
    return http_calls.start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, handle, server, MHD_OPTION_LISTEN_SOCKET, fd,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTION_LIMIT, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY, MHD_OPTION_END);
}

static int watch(struct http_server *server, struct muster_error *err)
{
    struct loop *loop = server->options.loop;
    const union MHD_DaemonInfo *info = http_calls.get_daemon_info(server->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    scope_close int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (!info || fd < 0)
        return error_errno(err, "the HTTP server cannot be watched");
    server->ready = (struct loop_source){info->epoll_fd, sockets_ready, server};
    server->timer = (struct loop_source){fd, timer_ready, server};
    if (loop_add(loop, &server->ready, EPOLLIN, err) < 0)
        return -1;
    if (loop_add(loop, &server->timer, EPOLLIN, err) < 0) {
        loop_remove(loop, &server->ready);
        return -1;
    }
    (void)take_fd(&fd);
    return 0;
}

struct http_server *http_server_start(const struct http_server_options *options, struct muster_error *err)
{
    if (microhttpd_load(err) < 0)
        return NULL;
    scope_free struct http_server *server = mem_calloc(1, sizeof *server);
    if (!server) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the HTTP server");
        return NULL;
    }
    server->options = *options;
    scope_close int fd = tcp_listen(options->address, options->port, &server->port, err);
    if (fd < 0)
        return NULL;
    server->daemon = start_daemon(server, fd);
    if (!server->daemon) {
        (void)error_set(err, MUSTER_E_IO, "libmicrohttpd cannot serve on port %u", (unsigned)server->port);
        return NULL;
    }
    (void)take_fd(&fd);
    if (watch(server, err) == 0)
        return take_pointer(&server);
    http_calls.stop_daemon(server->daemon);
    return NULL;
}

uint16_t http_server_port(const struct http_server *server)
{
    return server->port;
}

void http_server_stop(struct http_server *server)
{
    if (!server)
        return;
    loop_remove(server->options.loop, &server->ready);
    loop_remove(server->options.loop, &server->timer);
    (void)close(server->timer.fd); /* a timerfd */
    http_calls.stop_daemon(server->daemon);
    mem_free(server);
}
