/* status_http.c - see status_http.h. */
#include "launcher/status/status_http.h"

#include <string.h>

#include "proto/base/guard.h"

enum { HTTP_OK = 200, HTTP_NOT_FOUND = 404, HTTP_UNAVAILABLE = 503 };

/* Liveness, not readiness: a pod that waits for the others of its world is healthy, or none would ever form.
 */
static void healthz(const struct status_http *http, struct http_reply *reply)
{
    scope_free struct agent_status *status = NULL;
    struct muster_error err = {0};
    bool answered = status_board_ask(http->board, http->patience_ns, &status, &err) == 0;
    struct instant since = status_board_unanswered_since(http->board);
    if (answered || status_is_alive(clock_now(NULL), since, http->limit_ns)) {
        reply->status = HTTP_OK;
        buffer_text(&reply->body, "ok\n");
        return;
    }
    reply->status = HTTP_UNAVAILABLE;
    buffer_printf(&reply->body, "the agent's loop has not turned for %.3g s\n",
                  (double)instant_diff_ns(clock_now(NULL), since) / (double)NS_PER_S);
}

static void rendered(const struct status_http *http, struct http_reply *reply, const char *content_type,
                     void (*render)(const struct agent_status *, struct buffer *))
{
    scope_free struct agent_status *status = NULL;
    struct muster_error err = {0};
    if (status_board_ask(http->board, http->patience_ns, &status, &err) < 0) {
        reply->status = HTTP_UNAVAILABLE;
        buffer_printf(&reply->body, "%s\n", err.text);
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
        healthz(http, reply);
    } else if (!strcmp(path, "/metrics")) {
        rendered(http, reply, "text/plain; version=0.0.4; charset=utf-8", status_metrics);
    } else if (!strcmp(path, "/status")) {
        rendered(http, reply, "application/json", status_json);
    } else {
        reply->status = HTTP_NOT_FOUND;
        buffer_text(&reply->body, "not here; there are /healthz, /metrics and /status\n");
    }
}
