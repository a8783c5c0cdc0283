/* http_server.h - a small HTTP server in a thread of its own: GET and HEAD of a few paths, nothing else.
 *
 * Connections, header sizes and idle times are bounded, so that slow or silent clients cost little and never
 * reach the agent's loop. */
#ifndef MUSTER_LAUNCHER_STATUS_HTTP_SERVER_H
#define MUSTER_LAUNCHER_STATUS_HTTP_SERVER_H

#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

struct http_reply {
    unsigned status; /* 200, 404, ... */
    const char *content_type;
    struct buffer body;
};

struct http_server_options {
    const char *address; /* numeric; NULL: every address of the machine */
    uint16_t port;       /* 0: any */
    /* Fills the zeroed reply. On the server's thread. */
    void (*answer)(void *context, const char *path, struct http_reply *reply);
    void *context;
};

struct http_server;

/* Serves from now on. MUSTER_E_NOT_FOUND where libmicrohttpd is not installed. */
struct http_server *http_server_start(const struct http_server_options *options, struct muster_error *err);
uint16_t http_server_port(const struct http_server *server);
/* No answer is being made any more when it returns. Accepts NULL. */
void http_server_stop(struct http_server *server);

#endif
