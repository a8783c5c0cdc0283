/* status_http.h - /healthz, /metrics and /status of an agent. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_HTTP_H
#define MUSTER_LAUNCHER_STATUS_STATUS_HTTP_H

#include "launcher/status/http_server.h"
#include "launcher/status/status_board.h"

struct status_http {
    struct status_board *board;
    int64_t patience_ns; /* how long a request waits for the loop; below a probe's usual time-out of 1 s */
    int64_t limit_ns;    /* how long the loop may be silent before /healthz says so */
};

/* An answer function of http_server.h; context is a struct status_http. */
void status_http_answer(void *context, const char *path, struct http_reply *reply);

#endif
