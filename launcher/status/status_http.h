/* status_http.h - what an agent serves by HTTP: /healthz, /metrics and /status to every peer that reaches the
 * port; the job's page (/) and its data (/board.json, /lines.json?rank=N) by the rules of page_access.h. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_HTTP_H
#define MUSTER_LAUNCHER_STATUS_STATUS_HTTP_H

#include "launcher/status/http_server.h"
#include "launcher/status/page_access.h"
#include "launcher/status/status.h"

struct status_http {
    struct agent_status *(*fill)(void *context); /* a fresh status, or NULL without memory */
    /* Each appends one JSON object; out remembers a failure. */
    void (*board)(void *context, struct buffer *out);
    void (*lines)(void *context, int rank, struct buffer *out);
    void *context;
    struct page_keys keys;
};

/* Functions of http_server.h; context is a struct status_http. */
bool status_http_admit(void *context, const struct http_request *request, struct http_reply *reply);
void status_http_answer(void *context, const struct http_request *request, struct http_reply *reply);

#endif
