/* http_server.h - a small HTTP server in the agent's own loop: GET and HEAD of a few paths, nothing else.
 *
 * Nothing here waits for a client: all sockets are non-blocking, each turn of the loop does what is ready and
 * no more. Connections, header sizes and idle times are bounded. A stalled loop does not answer. */
#ifndef MUSTER_LAUNCHER_STATUS_HTTP_SERVER_H
#define MUSTER_LAUNCHER_STATUS_HTTP_SERVER_H

#include <stdint.h>

#include "launcher/loop/loop.h"
#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

struct http_reply {
    unsigned status; /* 200, 404, ... */
    const char *content_type;
    struct buffer body;
};

struct http_server_options {
    struct loop *loop;
    const char *address; /* numeric; NULL: every address of the machine */
    uint16_t port;       /* 0: any */
    /* Fills the zeroed reply, at once: it is called in the loop. */
    void (*answer)(void *context, const char *path, struct http_reply *reply);
    void *context;
};

struct http_server;

/* Serves whenever the loop turns. MUSTER_E_NOT_FOUND where libmicrohttpd is not installed. */
struct http_server *http_server_start(const struct http_server_options *options, struct muster_error *err);
uint16_t http_server_port(const struct http_server *server);
/* Closes all connections. Accepts NULL. */
void http_server_stop(struct http_server *server);

#endif
