/* status_http.c - see status_http.h. */
#include "launcher/status/status_http.h"

#include <stdio.h>
#include <string.h>

#include "launcher/page/page.h"
#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

static const char *page_access_words(enum page_access access);

/* One rendering serves all pages that ask within it. */
static const int64_t board_keep_ns = 250 * NS_PER_MS, page_keep_ns = 60 * NS_PER_S;

/* Headers of the page and its data. Its policy bounds the things that it may load and do. */
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

/* --- access --- */

static const char *page_access_words(enum page_access access)
{
    static const char *const words[] = {
#define PAGE_WORDS(symbol, text) text,
        PAGE_ACCESSES(PAGE_WORDS)
#undef PAGE_WORDS
    };
    return (unsigned)access < PAGE_ACCESS_COUNT ? words[access] : "";
}

/* In a time that does not depend on where they differ. */
static bool is_same(const char *secret, const char *given, size_t length)
{
    const size_t whole = strlen(secret);
    unsigned char difference = whole != length;
    for (size_t i = 0; i < whole; i++)
        difference |= (unsigned char)(secret[i] ^ (length ? given[i % length] : 0));
    return !difference;
}

/* A name may begin like an address, too. */
static bool is_loopback_name(const char *host)
{
    char text[ADDRESS_TEXT];
    /* The host without its port. */
    const char *close = *host == '[' ? strchr(host, ']') : NULL;
    size_t length = close ? (size_t)(close + 1 - host) : strcspn(host, ":");
    const bool brackets = *host == '[';
    if (length == 9 && !strncasecmp(host, "localhost", 9))
        return true;
    length -= brackets ? 2 : 0;
    if (length >= sizeof text)
        return false;
    memcpy(text, host + brackets, length);
    text[length] = 0;
    return address_is_loopback(text) && brackets == (strchr(text, ':') != NULL);
}

/* Whether the browser says that the request is another site's. */
static bool is_foreign(const struct http_request *request)
{
    const char *origin = request->origin, *site = request->fetch_site;
    if (origin) {
        const char *rest = !strncmp(origin, "http://", 7)    ? origin + 7
                           : !strncmp(origin, "https://", 8) ? origin + 8
                                                             : NULL;
        if (!rest || !request->host || strcasecmp(rest, request->host))
            return true;
    }
    if (!site || !strcmp(site, "same-origin") || !strcmp(site, "none"))
        return false;
    /* a link that somebody follows shows the page, and gives nothing to the site that has it */
    return strcmp(request->path, "/") || !request->fetch_mode || strcmp(request->fetch_mode, "navigate");
}

static bool has_cookie(const struct page_keys *keys, const char *cookies)
{
    char name[32];
    const int length = snprintf(name, sizeof name, "muster_%u=", (unsigned)keys->port);
    while (cookies && *cookies) {
        cookies += strspn(cookies, "; ");
        const size_t size = strcspn(cookies, ";");
        if (size > (size_t)length && !strncmp(cookies, name, (size_t)length) &&
            is_same(keys->session, cookies + length, size - (size_t)length))
            return true;
        cookies += size;
    }
    return false;
}

enum page_access page_access_check(const struct page_keys *keys, const struct http_request *request)
{
    static const char bearer[] = "Bearer ";
    const size_t prefix = sizeof bearer - 1;
    if (is_foreign(request))
        return PAGE_FOREIGN;
    if (!*keys->token)
        return request->local && (!request->host || is_loopback_name(request->host)) ? PAGE_ALLOWED
                                                                                     : PAGE_NOT_LOCAL;
    const char *authorization = request->authorization;
    if (authorization && !strncasecmp(authorization, bearer, prefix) &&
        is_same(keys->token, authorization + prefix, strlen(authorization + prefix)))
        return PAGE_ALLOWED;
    if (has_cookie(keys, request->cookie))
        return PAGE_ALLOWED;
    if (request->token && !strcmp(request->path, "/") &&
        is_same(keys->token, request->token, strlen(request->token)))
        return PAGE_SETS_COOKIE;
    return PAGE_NEEDS_TOKEN;
}

void page_access_cookie(const struct page_keys *keys, char *out, size_t size)
{
    (void)snprintf(out, size, "muster_%u=%s; Path=/; HttpOnly; SameSite=Strict", (unsigned)keys->port,
                   keys->session);
}

int page_access_token(const char *text, size_t length, struct page_keys *keys, struct muster_error *err)
{
    while (length && strchr(" \t\r\n", text[length - 1]))
        length--;
    while (length && strchr(" \t\r\n", *text)) {
        text++;
        length--;
    }
    if (length < PAGE_TOKEN_LEAST || length > PAGE_TOKEN_MOST)
        return error_set(err, MUSTER_E_INVALID, "a token of %zu characters; it must have %d to %d", length,
                         PAGE_TOKEN_LEAST, PAGE_TOKEN_MOST);
    for (size_t i = 0; i < length; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return error_set(err, MUSTER_E_INVALID,
                             "character %zu of the token is no printable ASCII character, or a blank", i + 1);
    memcpy(keys->token, text, length);
    keys->token[length] = '\0';
    return 0;
}
