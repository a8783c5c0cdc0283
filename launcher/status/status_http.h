/* status_http.h - /healthz, /metrics and /status of an agent. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_HTTP_H
#define MUSTER_LAUNCHER_STATUS_STATUS_HTTP_H

#include "launcher/status/http_server.h"
#include "launcher/status/status.h"

struct status_http {
    struct agent_status *(*fill)(void *context); /* a fresh status, or NULL without memory */
    void *context;
};

/* An answer function of http_server.h; context is a struct status_http. */
void status_http_answer(void *context, const char *path, struct http_reply *reply);

#endif
