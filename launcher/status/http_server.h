/* http_server.h - a small HTTP server in the agent's own loop: GET and HEAD of a few paths, nothing else.
 *
 * Nothing here waits for a client: all sockets are non-blocking, each turn of the loop serves ready
 * connections and no more. Connections, their lifetimes, header sizes and bytes that are still to be sent are
 * bounded: where there are too many connections the oldest is closed, so that silent and slow clients keep no
 * other one out; a connection serves one request and ends after HTTP_LIFE_S in any case. A stalled loop does
 * not answer. */
#ifndef MUSTER_LAUNCHER_STATUS_HTTP_SERVER_H
#define MUSTER_LAUNCHER_STATUS_HTTP_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/loop/loop.h"
#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum {
    HTTP_CONNECTIONS = 256,
    HTTP_LIFE_S = 15,
    HTTP_BYTES_UNSENT = 64 << 20, /* sum over all replies that are being sent; beyond it there is a 503 */
    HTTP_HEADERS = 8,
    HTTP_OK = 200,
    HTTP_SEE_OTHER = 303,
    HTTP_UNAUTHORIZED = 401,
    HTTP_FORBIDDEN = 403,
    HTTP_NOT_FOUND = 404,
    HTTP_UNAVAILABLE = 503,
};

/* Texts live as long as the call that gets the request; NULL: the client sent none. */
struct http_request {
    const char *path;
    const char *token, *rank; /* from the query, "?token=...&rank=..." */
    const char *host, *origin, *fetch_site, *fetch_mode, *authorization, *cookie;
    bool local; /* the client's address is a loopback address */
};

struct http_header {
    const char *name, *value;
};

struct http_reply {
    unsigned status; /* 200, 404, ... */
    const char *content_type;
    struct buffer body;
    int64_t keep_ns; /* this reply serves all requests of its path for so long; 0: it is this client's */
    const struct http_header *headers; /* constant, count of them; sent as they are */
    int header_count;
    const char *own_name; /* name of one more header; NULL: none */
    char own_value[256];
};

struct http_server_options {
    struct loop *loop;
    const char *address; /* numeric; NULL: every address of the machine */
    uint16_t port;       /* 0: any */
    /* May this client have the path? false: the reply is filled, with the reason. Called before a kept reply
     * is given. */
    bool (*admit)(void *context, const struct http_request *request, struct http_reply *reply);
    /* Fills the zeroed reply, at once: both are called in the loop. */
    void (*answer)(void *context, const struct http_request *request, struct http_reply *reply);
    void *context;
};

struct http_server;

/* Serves whenever the loop turns. MUSTER_E_NOT_FOUND where libmicrohttpd is not installed. */
struct http_server *http_server_start(const struct http_server_options *options, struct muster_error *err);
uint16_t http_server_port(const struct http_server *server);
/* Closes all connections. Accepts NULL. */
void http_server_stop(struct http_server *server);

/* Loads libmicrohttpd unless it is there already; it stays until the process ends. From one thread. -1
 * (MUSTER_E_NOT_FOUND) names the package that has it. */
int microhttpd_load(struct muster_error *err);

#endif
