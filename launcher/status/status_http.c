/* status_http.c - see status_http.h. */
#include "launcher/status/status_http.h"

#include <string.h>

#include "launcher/page/page.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

/* One rendering serves all pages that ask within it. */
static const int64_t board_keep_ns = 250 * NS_PER_MS, page_keep_ns = 60 * NS_PER_S;

/* Of the page and its data. What it may load and do is in its policy. */
static const struct http_header page_headers[] = {
    {"Content-Security-Policy", page_policy},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cache-Control", "no-store"},
};
enum { PAGE_HEADERS = sizeof page_headers / sizeof *page_headers };

static bool is_page(const char *path)
{
    return !strcmp(path, "/") || !strcmp(path, "/board.json") || !strcmp(path, "/lines.json");
}

static void guard_page(struct http_reply *reply)
{
    reply->headers = page_headers;
    reply->header_count = PAGE_HEADERS;
}

bool status_http_admit(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct status_http *http = context;
    if (!is_page(request->path))
        return true;
    const enum page_access access = page_access_check(&http->keys, request);
    if (access == PAGE_ALLOWED)
        return true;
    guard_page(reply);
    reply->content_type = "text/plain; charset=utf-8";
    reply->status = access == PAGE_NEEDS_TOKEN ? HTTP_UNAUTHORIZED : HTTP_FORBIDDEN;
    buffer_text(&reply->body, page_access_words(access));
    if (access == PAGE_SETS_COOKIE) { /* and to the address without the token */
        static const struct http_header there[] = {
            {"Location", "/"}, {"Cache-Control", "no-store"}, {"Referrer-Policy", "no-referrer"}};
        reply->status = HTTP_SEE_OTHER;
        reply->headers = there;
        reply->header_count = sizeof there / sizeof *there;
        reply->own_name = "Set-Cookie";
        page_access_cookie(&http->keys, reply->own_value, sizeof reply->own_value);
    }
    return false;
}

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

static void page(const struct status_http *http, const struct http_request *request, struct http_reply *reply)
{
    int64_t rank;
    guard_page(reply);
    reply->status = HTTP_OK;
    if (!strcmp(request->path, "/")) {
        reply->content_type = "text/html; charset=utf-8";
        reply->keep_ns = page_keep_ns;
        buffer_append(&reply->body, page_html, page_html_length);
        return;
    }
    reply->content_type = "application/json";
    if (!strcmp(request->path, "/board.json")) {
        reply->keep_ns = board_keep_ns;
        http->board(http->context, &reply->body);
    } else if (request->rank && text_int64(request->rank, &rank) && rank >= 0 && rank <= INT32_MAX) {
        http->lines(http->context, (int)rank, &reply->body);
    } else {
        reply->status = HTTP_NOT_FOUND;
        reply->content_type = "text/plain";
        buffer_text(&reply->body, "/lines.json?rank=N\n");
    }
}

void status_http_answer(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct status_http *http = context;
    const char *path = request->path;
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
    } else if (is_page(path)) {
        page(http, request, reply);
    } else {
        reply->status = HTTP_NOT_FOUND;
        buffer_text(&reply->body, "not here; there are /, /healthz, /metrics and /status\n");
    }
}
