/* http_server.c - see http_server.h. libmicrohttpd keeps its sockets in an epoll descriptor of its own, which
 * is one source of the loop; when it wants to be called without one being ready is a timer. */
#include "launcher/status/http_server.h"

#include <microhttpd.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "proto/base/address.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/library.h"
#include "rendezvous/net/tcp_listen.h"

/* --- libmicrohttpd ---
 *
 * Loading the library with all its own costs as much as the rest of the program's start. So nothing is linked
 * with it: it is loaded when a metrics port is configured, and every call goes through a table. */

#define MICROHTTPD_CALLS(X)                                                                                  \
    X(start_daemon)                                                                                          \
    X(stop_daemon)                                                                                           \
    X(get_daemon_info)                                                                                       \
    X(get_timeout)                                                                                           \
    X(get_connection_info)                                                                                   \
    X(lookup_connection_value)                                                                               \
    X(run)                                                                                                   \
    X(create_response_from_buffer_with_free_callback)                                                        \
    X(add_response_header)                                                                                   \
    X(queue_response)                                                                                        \
    X(destroy_response)

/* http_calls.stop_daemon is MHD_stop_daemon, with the type that microhttpd.h gives it. */
struct microhttpd {
#define HTTP_CALL_MEMBER(name) __typeof__(MHD_##name) *name;
    MICROHTTPD_CALLS(HTTP_CALL_MEMBER)
#undef HTTP_CALL_MEMBER
};

/* Filled by microhttpd_load, and constant from then on. */
static struct microhttpd http_calls;

#define HTTP_CALL_ROW(name) LIBRARY_ROW(struct microhttpd, name, MHD_##name),
static const struct library_function functions[] = {MICROHTTPD_CALLS(HTTP_CALL_ROW)};
#undef HTTP_CALL_ROW

int microhttpd_load(struct muster_error *err)
{
    static const struct library library = {
        .file = "libmicrohttpd.so.12", /* microhttpd.h of 0.9.x and 1.x */
        .needs = "a metrics port needs libmicrohttpd (package libmicrohttpd12)",
        .functions = functions,
        .count = sizeof functions / sizeof *functions,
    };
    return library_load(&library, &http_calls, NULL, err);
}

/* A probe, a scraper and some pages need a few connections; some stay free for new clients. A request of
 * ours is a few hundred bytes. */
enum { CROWDED = HTTP_CONNECTIONS - 8, IDLE_S = 5, CONNECTION_MEMORY = 8192, KEPT = 4, PATH_LENGTH = 32 };

struct connection {
    int fd;   /* -1: free */
    bool cut; /* it was shut down, and is not closed yet */
    struct instant begun;
};

/* A reply that serves all clients for a while. */
struct kept_reply {
    char path[PATH_LENGTH];
    struct MHD_Response *response; /* NULL: none */
    struct instant until;
};

struct http_server {
    struct http_server_options options;
    struct MHD_Daemon *daemon;
    struct loop_source ready, timer; /* the daemon's epoll descriptor; a timerfd */
    uint16_t port;
    int open;
    bool full; /* it was: libmicrohttpd does not watch its listener then */
    struct connection connections[HTTP_CONNECTIONS];
    struct kept_reply kept[KEPT];
    size_t unsent; /* bytes of bodies that libmicrohttpd holds */
};

/* --- replies --- */

/* A body remembers whose it is: libmicrohttpd gives back its text alone. */
struct body {
    struct http_server *server;
    size_t length;
    char text[];
};

static void free_body(void *text)
{
    struct body *body = (struct body *)((char *)text - offsetof(struct body, text));
    body->server->unsent -= body->length;
    mem_free(body);
}

static struct MHD_Response *make_response(struct http_server *server, const struct buffer *text)
{
    struct body *body = mem_calloc(1, sizeof *body + text->length + 1);
    if (!body)
        return NULL;
    *body = (struct body){server, text->length};
    if (text->length)
        memcpy(body->text, text->data, text->length);
    struct MHD_Response *response =
        http_calls.create_response_from_buffer_with_free_callback(text->length, body->text, free_body);
    if (response)
        server->unsent += text->length;
    else
        mem_free(body);
    return response;
}

static void forget_reply(struct kept_reply *kept)
{
    if (kept->response)
        http_calls.destroy_response(kept->response); /* responses that are being sent live on */
    kept->response = NULL;
}

static struct kept_reply *kept_place(struct http_server *server, const char *path)
{
    struct kept_reply *place = NULL;
    for (int i = 0; i < KEPT; i++) {
        if (!strcmp(server->kept[i].path, path))
            return &server->kept[i];
        if (!place && !server->kept[i].path[0])
            place = &server->kept[i];
    }
    return place;
}

static enum MHD_Result send_reply(struct http_server *server, struct MHD_Connection *connection,
                                  const char *path, struct http_reply *reply)
{
    scope_buffer body = reply->body;
    reply->body = (struct buffer){0};
    if (body.failed)
        return MHD_NO; /* without memory: the connection is closed */
    struct MHD_Response *response = make_response(server, &body);
    if (!response)
        return MHD_NO;
    enum MHD_Result sent = MHD_NO;
    bool whole = http_calls.add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type);
    for (int i = 0; whole && i < reply->header_count; i++)
        whole = http_calls.add_response_header(response, reply->headers[i].name, reply->headers[i].value);
    if (whole && reply->own_name)
        whole = http_calls.add_response_header(response, reply->own_name, reply->own_value);
    if (whole && reply->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        whole = http_calls.add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (whole)
        sent = http_calls.queue_response(connection, reply->status, response);
    struct kept_reply *place =
        reply->keep_ns && sent == MHD_YES && reply->status == HTTP_OK && strlen(path) < PATH_LENGTH
            ? kept_place(server, path)
            : NULL;
    if (!place) {
        http_calls.destroy_response(response);
        return sent;
    }
    forget_reply(place);
    memcpy(place->path, path, strlen(path) + 1);
    place->response = response;
    place->until = instant_add(clock_now(NULL), reply->keep_ns);
    return sent;
}

/* --- requests --- */

static const char *value_of(struct MHD_Connection *connection, enum MHD_ValueKind kind, const char *name)
{
    return http_calls.lookup_connection_value(connection, kind, name);
}

static bool is_local(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        http_calls.get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    char text[ADDRESS_TEXT];
    return info && info->client_addr && address_is_loopback(address_text(info->client_addr, text));
}

static struct http_request read_request(struct MHD_Connection *connection, const char *path)
{
    return (struct http_request){
        .path = path,
        .token = value_of(connection, MHD_GET_ARGUMENT_KIND, "token"),
        .rank = value_of(connection, MHD_GET_ARGUMENT_KIND, "rank"),
        .host = value_of(connection, MHD_HEADER_KIND, "Host"),
        .origin = value_of(connection, MHD_HEADER_KIND, "Origin"),
        .fetch_site = value_of(connection, MHD_HEADER_KIND, "Sec-Fetch-Site"),
        .fetch_mode = value_of(connection, MHD_HEADER_KIND, "Sec-Fetch-Mode"),
        .authorization = value_of(connection, MHD_HEADER_KIND, "Authorization"),
        .cookie = value_of(connection, MHD_HEADER_KIND, "Cookie"),
        .local = is_local(connection),
    };
}

static void say(struct http_reply *reply, unsigned status, const char *text)
{
    reply->status = status;
    reply->content_type = "text/plain";
    buffer_text(&reply->body, text);
}

/* Answers before a body could come, so that libmicrohttpd closes the connection after the answer: nobody
 * keeps one for long. */
static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_size, void **state)
{
    struct http_server *server = context;
    struct http_reply reply = {0};
    (void)version, (void)upload, (void)state;
    *upload_size = 0; /* an upload is not read */
    const struct http_request request = read_request(connection, path);
    if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) {
        say(&reply, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    } else if (server->options.admit(server->options.context, &request, &reply)) {
        struct kept_reply *kept = kept_place(server, path);
        if (kept && kept->response && !instant_reached(clock_now(NULL), kept->until))
            return http_calls.queue_response(connection, HTTP_OK, kept->response);
        if (server->unsent > HTTP_BYTES_UNSENT)
            say(&reply, HTTP_UNAVAILABLE, "too many clients are slow to read\n");
        else
            server->options.answer(server->options.context, &request, &reply);
    }
    return send_reply(server, connection, path, &reply);
}

/* --- connections --- */

static void cut_connection(struct connection *connection)
{
    connection->cut = true;
    (void)shutdown(connection->fd, SHUT_RDWR); /* libmicrohttpd sees its end, and closes it */
}

static struct connection *oldest(struct http_server *server)
{
    struct connection *first = NULL;
    for (int i = 0; i < HTTP_CONNECTIONS; i++) {
        struct connection *one = &server->connections[i];
        if (one->fd >= 0 && !one->cut && (!first || one->begun.ns < first->begun.ns))
            first = one;
    }
    return first;
}

static void note_connection(void *context, struct MHD_Connection *connection, void **state,
                            enum MHD_ConnectionNotificationCode code)
{
    struct http_server *server = context;
    const union MHD_ConnectionInfo *info =
        http_calls.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        struct connection *one = *state;
        if (one) {
            one->fd = -1;
            server->open--;
        }
        *state = NULL;
        return;
    }
    for (int i = 0; info && i < HTTP_CONNECTIONS; i++) {
        struct connection *one = &server->connections[i];
        if (one->fd >= 0)
            continue;
        *one = (struct connection){.fd = (int)info->connect_fd, .begun = clock_now(NULL)};
        *state = one;
        server->open++;
        break;
    }
    server->full = server->full || server->open == HTTP_CONNECTIONS;
    struct connection *first = server->open > CROWDED ? oldest(server) : NULL;
    if (first)
        cut_connection(first);
}

/* --- in the loop --- */

/* One call of the library: for ready connections. Remaining work, or an idle connection's end, is for a later
 * turn, so that clients that never stop asking leave every other turn to the agent. */
static void turn(struct http_server *server)
{
    MHD_UNSIGNED_LONG_LONG left_ms;
    struct itimerspec when = {0}; /* zero disarms */
    const struct instant now = clock_now(NULL);
    /* Ends connections whose time is over; returns when the next one's is. */
    struct connection *one;
    while ((one = oldest(server)) && instant_reached(now, instant_add(one->begun, HTTP_LIFE_S * NS_PER_S)))
        cut_connection(one);
    struct instant next = one ? instant_add(one->begun, HTTP_LIFE_S * NS_PER_S) : INSTANT_NEVER;
    (void)http_calls.run(server->daemon); /* refuses daemons with threads only */
    if (server->full && server->open < HTTP_CONNECTIONS) {
        /* its next call, and no event, has it watch the listener again: clients may wait there already */
        server->full = false;
        next = now;
    }
    if (http_calls.get_timeout(server->daemon, &left_ms) == MHD_YES)
        next = instant_min(
            next, instant_add(now, (int64_t)(left_ms < IDLE_S * 1000 ? left_ms : IDLE_S * 1000) * NS_PER_MS));
    if (next.ns != INSTANT_NEVER.ns) {
        const int64_t left = instant_diff_ns(next, now) > 0 ? instant_diff_ns(next, now) : 0;
        when.it_value.tv_sec = (time_t)(left / NS_PER_S);
        when.it_value.tv_nsec = (long)(left % NS_PER_S) + (left % NS_PER_S < NS_PER_S - 1);
    }
    (void)timerfd_settime(server->timer.fd, 0, &when, NULL); /* fails only for a wrong timer or time */
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
    return http_calls.start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, handle, server, MHD_OPTION_LISTEN_SOCKET, fd,
                                   MHD_OPTION_CONNECTION_LIMIT, (unsigned)HTTP_CONNECTIONS,
                                   MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
                                   MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
                                   MHD_OPTION_NOTIFY_CONNECTION, note_connection, server, MHD_OPTION_END);
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
    for (int i = 0; i < HTTP_CONNECTIONS; i++)
        server->connections[i].fd = -1;
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
    for (int i = 0; i < KEPT; i++)
        forget_reply(&server->kept[i]);
    http_calls.stop_daemon(server->daemon);
    mem_free(server);
}
