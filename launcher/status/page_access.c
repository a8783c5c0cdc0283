/* page_access.c - see page_access.h. */
#include "launcher/status/page_access.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/address.h"
#include "proto/base/error.h"

const char *page_access_words(enum page_access access)
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
