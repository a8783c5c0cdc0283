/* status_http.c - see status_http.h. */
#include "launcher/status/status_http.h"

#include <string.h>

#include "proto/base/guard.h"

enum { HTTP_OK = 200, HTTP_NOT_FOUND = 404, HTTP_UNAVAILABLE = 503 };

static void rendered(const struct status_http *http, struct http_reply *reply, const char *content_type,
                     void (*render)(const struct agent_status *, struct buffer *))
{
    scope_free struct agent_status *status = http->fill(http->context);
    if (!status) {
        reply->status = HTTP_UNAVAILABLE;
        buffer_text(&reply->body, "no memory for the status\n");
        return;
    }
    reply->status = HTTP_OK;
    reply->content_type = content_type;
    render(status, &reply->body);
}

void status_http_answer(void *context, const char *path, struct http_reply *reply)
{
    const struct status_http *http = context;
    reply->content_type = "text/plain";
    if (!strcmp(path, "/healthz")) {
        /* Liveness, not readiness: a pod that waits for the others of its world is healthy, or none would
         * ever form. That there is an answer says it: the agent's loop turns. */
        reply->status = HTTP_OK;
        buffer_text(&reply->body, "ok\n");
    } else if (!strcmp(path, "/metrics")) {
        rendered(http, reply, "text/plain; version=0.0.4; charset=utf-8", status_metrics);
    } else if (!strcmp(path, "/status")) {
        rendered(http, reply, "application/json", status_json);
    } else {
        reply->status = HTTP_NOT_FOUND;
        buffer_text(&reply->body, "not here; there are /healthz, /metrics and /status\n");
    }
}
