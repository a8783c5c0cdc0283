/* status_http.h - an agent's answers by HTTP: /healthz, /metrics and /status to every peer that reaches the
 * port; the job's page (/) and its data (/board.json, /lines.json?rank=N) by the rules of access below. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_HTTP_H
#define MUSTER_LAUNCHER_STATUS_STATUS_HTTP_H

#include "launcher/status/http_server.h"
#include "launcher/status/status.h"

/* --- access ---
 *
 * Which clients may see the job's page and its data (pure).
 *
 * Without a token: clients on this machine, by a loopback address and under a name of it (else any site
 * could have its own name resolve to it). With one: clients that show it, in a header "Authorization: Bearer
 * TOKEN", in the cookie that the page sets, or once as /?token=TOKEN, which sets the cookie. A browser that
 * asks for another site is refused in any case. */

/* symbol, text for a refused client */
#define PAGE_ACCESSES(X)                                                                                     \
    X(PAGE_ALLOWED, "")                                                                                      \
    X(PAGE_SETS_COOKIE, "")                                                                                  \
    X(PAGE_NEEDS_TOKEN, "the page needs its token: /?token=..., or a header Authorization: Bearer\n")        \
    X(PAGE_NOT_LOCAL,                                                                                        \
      "the page is for this machine alone (127.0.0.1, a port that is forwarded to it); muster run "          \
      "--page-token-file opens it for others\n")                                                             \
    X(PAGE_FOREIGN, "the page is not for other sites\n")

#define PAGE_ENUM(symbol, text) symbol,
enum page_access { PAGE_ACCESSES(PAGE_ENUM) PAGE_ACCESS_COUNT };
#undef PAGE_ENUM

enum { PAGE_TOKEN_LEAST = 16, PAGE_TOKEN_MOST = 256, PAGE_SESSION = 32 };

/* Zeroed: there is no token. */
struct page_keys {
    char token[PAGE_TOKEN_MOST + 1];
    char
        session[PAGE_SESSION + 1]; /* value of the cookie; random, so that it contains nothing of the token */
    uint16_t port;                 /* cookies of a host are of all its ports */
};

enum page_access page_access_check(const struct page_keys *keys, const struct http_request *request);
/* "muster_PORT=SESSION; ..." of Set-Cookie. */
void page_access_cookie(const struct page_keys *keys, char *out, size_t size);
/* The text of a token file: blanks and newlines around it do not count. -1: MUSTER_E_INVALID names the fault.
 */
int page_access_token(const char *text, size_t length, struct page_keys *keys, struct muster_error *err);

/* --- the pages --- */

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
