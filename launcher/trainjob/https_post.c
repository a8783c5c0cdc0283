/* https_post.c - see https_post.h. */
#include "launcher/trainjob/https_post.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/address.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/library.h"

/* --- GnuTLS ---
 *
 * Its types are pointers here, and its numbers are gnutls.h's, which have not changed since 3.4: no header
 * of it is needed to build. Debian's and Ubuntu's images have the library, since apt is linked with it.
 *
 * libcurl would make this file shorter, but these images do not have it, nor do slim images of Python: a job
 * there would lose its progress. It also loads 20 libraries more (31 instead of 11). */

enum {
    TLS_CLIENT = 2,           /* GNUTLS_CLIENT */
    TLS_CRD_CERTIFICATE = 1,  /* GNUTLS_CRD_CERTIFICATE */
    TLS_CRT_X509 = 1,         /* GNUTLS_CRT_X509 */
    TLS_NAME_DNS = 1,         /* GNUTLS_NAME_DNS */
    TLS_X509_FMT_PEM = 1,     /* GNUTLS_X509_FMT_PEM */
    TLS_E_AGAIN = -28,        /* GNUTLS_E_AGAIN */
    TLS_E_INTERRUPTED = -52,  /* GNUTLS_E_INTERRUPTED */
    TLS_E_CERTIFICATE = -348, /* GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR */
};

/* gnutls_datum_t */
struct tls_datum {
    char *data;
    unsigned size;
};

/* member, the name without "gnutls_"; result; parameters */
#define GNUTLS_CALLS(X)                                                                                      \
    X(init, int, (void **session, unsigned flags))                                                           \
    X(deinit, void, (void *session))                                                                         \
    X(certificate_allocate_credentials, int, (void **credentials))                                           \
    X(certificate_free_credentials, void, (void *credentials))                                               \
    X(certificate_set_x509_trust_file, int, (void *credentials, const char *file, int format))               \
    X(certificate_set_x509_system_trust, int, (void *credentials))                                           \
    X(credentials_set, int, (void *session, int kind, void *credentials))                                    \
    X(set_default_priority, int, (void *session))                                                            \
    X(server_name_set, int, (void *session, int kind, const void *name, size_t length))                      \
    X(session_set_verify_cert, void, (void *session, const char *host, unsigned flags))                      \
    X(session_get_verify_cert_status, unsigned, (void *session))                                             \
    X(certificate_verification_status_print, int,                                                            \
      (unsigned status, int kind, struct tls_datum *out, unsigned flags))                                    \
    X(transport_set_int2, void, (void *session, int receive, int send))                                      \
    X(handshake, int, (void *session))                                                                       \
    X(record_send, long, (void *session, const void *data, size_t length))                                   \
    X(record_recv, long, (void *session, void *data, size_t length))                                         \
    X(error_is_fatal, int, (int code))                                                                       \
    X(strerror, const char *, (int code))

struct gnutls_calls {
#define GNUTLS_MEMBER(name, result, parameters) result(*name) parameters;
    GNUTLS_CALLS(GNUTLS_MEMBER)
#undef GNUTLS_MEMBER
};

#define GNUTLS_ROW(name, result, parameters)                                                                 \
    {"gnutls_" #name, offsetof(struct gnutls_calls, name), false, NULL},
static const struct library_function gnutls_functions[] = {GNUTLS_CALLS(GNUTLS_ROW)};
#undef GNUTLS_ROW

/* Fills the zeroed struct; the library stays until the process ends. */
static int gnutls_calls_load(struct gnutls_calls *tls, struct muster_error *err)
{
    static const struct library library = {
        .file = "libgnutls.so.30",
        .needs = "an https URL needs GnuTLS (package libgnutls30)",
        .functions = gnutls_functions,
        .count = sizeof gnutls_functions / sizeof *gnutls_functions,
    };
    return library_load(&library, tls, NULL, err);
}

struct connection {
    const struct https_address *address;
    struct instant deadline;
    int fd;
    struct gnutls_calls tls;
    void *session, *credentials; /* NULL: not encrypted */
};

/* --- the address --- */

static bool https_copy(char *out, size_t size, const char *text, size_t length)
{
    if (!length || length >= size)
        return false;
    memcpy(out, text, length);
    out[length] = '\0';
    return true;
}

int https_address_parse(const char *url, struct https_address *out, struct muster_error *err)
{
    static const char clear[] = "http://", encrypted[] = "https://";
    *out = (struct https_address){.encrypted = !strncmp(url, encrypted, sizeof encrypted - 1)};
    const char *at = url + (out->encrypted ? sizeof encrypted : sizeof clear) - 1;
    if (!out->encrypted && strncmp(url, clear, sizeof clear - 1) != 0)
        return error_set(err, MUSTER_E_INVALID, "%s: not of the form https://HOST[:PORT]/PATH", url);
    const size_t length = strcspn(at, "/");
    const bool six = *at == '[';
    const char *end = six ? memchr(at, ']', length) : memchr(at, ':', length);
    const char *name = six ? at + 1 : at;
    const size_t name_length = end ? (size_t)(end - name) : length;
    const char *colon = end ? end + (six ? 1 : 0) : NULL;
    out->path = at + length;
    bool good = https_copy(out->host, sizeof out->host, name, name_length) && (!six || end) &&
                strcspn(url, " \t\r\n") == strlen(url);
    if (good && colon && colon < out->path)
        good = *colon == ':' &&
               https_copy(out->port, sizeof out->port, colon + 1, (size_t)(out->path - colon - 1)) &&
               strspn(out->port, "0123456789") == strlen(out->port);
    else
        (void)snprintf(out->port, sizeof out->port, "%s", out->encrypted ? "443" : "80");
    return good ? 0 : error_set(err, MUSTER_E_INVALID, "%s: not of the form https://HOST[:PORT]/PATH", url);
}

/* --- the connection --- */

/* Sets the remaining time as limit of the next call of the socket; false: none. */
static bool limit_wait(const struct connection *c)
{
    const int64_t left = instant_diff_ns(c->deadline, clock_now(NULL));
    const struct timeval wait = {.tv_sec = (time_t)(left / NS_PER_S),
                                 .tv_usec = (suseconds_t)(left % NS_PER_S / NS_PER_US)};
    return left > NS_PER_MS && setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0 &&
           setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0;
}

static int too_slow(const struct connection *c, struct muster_error *err)
{
    return error_set(err, MUSTER_E_TIMEOUT, "%s:%s does not answer within %d s", c->address->host,
                     c->address->port, HTTPS_PATIENCE_S);
}

static int connect_to(struct connection *c, struct muster_error *err)
{
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    const int failed = getaddrinfo(c->address->host, c->address->port, &hints, &found);
    if (failed)
        return error_set(err, MUSTER_E_NOT_FOUND, "%s: %s", c->address->host, gai_strerror(failed));
    bool open = false;
    for (const struct addrinfo *one = found; one && !open; one = one->ai_next) {
        c->fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (c->fd < 0)
            continue;
        open = limit_wait(c) && connect(c->fd, one->ai_addr, one->ai_addrlen) == 0;
        if (open)
            break;
        (void)error_errno(err, "%s:%s", c->address->host, c->address->port);
        (void)close(c->fd); /* not connected */
        c->fd = -1;
    }
    freeaddrinfo(found);
    return open ? 0 : error_wrap(err, "cannot connect");
}

static int tls_failed(const struct connection *c, int code, struct muster_error *err)
{
    struct tls_datum why = {0};
    if (code == TLS_E_CERTIFICATE &&
        c->tls.certificate_verification_status_print(c->tls.session_get_verify_cert_status(c->session),
                                                     TLS_CRT_X509, &why, 0) == 0) {
        (void)error_set(err, MUSTER_E_REFUSED, "the certificate of %s: %.*s", c->address->host, (int)why.size,
                        why.data);
        free(why.data); /* GnuTLS's own memory is malloc's */
        return -1;
    }
    return error_set(err, MUSTER_E_IO, "TLS with %s: %s", c->address->host, c->tls.strerror(code));
}

static bool goes_on(int code)
{
    return code == TLS_E_AGAIN || code == TLS_E_INTERRUPTED;
}

static int shake_hands(struct connection *c, struct muster_error *err)
{
    int code;
    do {
        if (!limit_wait(c))
            return too_slow(c, err);
        code = c->tls.handshake(c->session);
    } while (code < 0 && (goes_on(code) || !c->tls.error_is_fatal(code)));
    return code < 0 ? tls_failed(c, code, err) : 0;
}

static int begin_tls(struct connection *c, const char *ca_file, struct muster_error *err)
{
    const char *host = c->address->host;
    if (gnutls_calls_load(&c->tls, err) < 0)
        return -1;
    int code = c->tls.certificate_allocate_credentials(&c->credentials);
    if (code >= 0 && ca_file) {
        code = c->tls.certificate_set_x509_trust_file(c->credentials, ca_file, TLS_X509_FMT_PEM);
        if (code <= 0) /* else: how many certificates */
            return error_set(err, MUSTER_E_INVALID, "%s has no certificates: %s", ca_file,
                             c->tls.strerror(code));
    } else if (code >= 0) {
        code = c->tls.certificate_set_x509_system_trust(c->credentials);
    }
    if (code >= 0)
        code = c->tls.init(&c->session, TLS_CLIENT);
    if (code >= 0)
        code = c->tls.set_default_priority(c->session);
    if (code >= 0)
        code = c->tls.credentials_set(c->session, TLS_CRD_CERTIFICATE, c->credentials);
    if (code >= 0 && !address_is_numeric(host)) /* which name is asked for; an address is none */
        code = c->tls.server_name_set(c->session, TLS_NAME_DNS, host, strlen(host));
    if (code < 0)
        return tls_failed(c, code, err);
    c->tls.session_set_verify_cert(c->session, host, 0);
    c->tls.transport_set_int2(c->session, c->fd, c->fd);
    return shake_hands(c, err);
}

/* --- the exchange --- */

static int send_all(struct connection *c, const char *data, size_t length, struct muster_error *err)
{
    while (length) {
        if (!limit_wait(c))
            return too_slow(c, err);
        const long sent = c->session ? c->tls.record_send(c->session, data, length)
                                     : (long)send(c->fd, data, length, MSG_NOSIGNAL);
        if (sent < 0 && c->session && !goes_on((int)sent))
            return tls_failed(c, (int)sent, err);
        if (sent < 0 && !c->session && errno != EINTR && errno != EAGAIN)
            return error_errno(err, "%s:%s", c->address->host, c->address->port);
        data += sent > 0 ? sent : 0;
        length -= sent > 0 ? (size_t)sent : 0;
    }
    return 0;
}

/* Up to the end of the connection, or the bound: then the rest is not wanted. */
static int https_receive(struct connection *c, struct buffer *answer, struct muster_error *err)
{
    while (answer->length < HTTPS_ANSWER) {
        char data[2048];
        if (!limit_wait(c))
            return too_slow(c, err);
        const long got = c->session ? c->tls.record_recv(c->session, data, sizeof data)
                                    : (long)recv(c->fd, data, sizeof data, 0);
        if (got > 0 && buffer_append(answer, data, (size_t)got) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory for an answer");
        if (got == 0)
            return 0;
        if (got < 0 && c->session && !goes_on((int)got)) /* some servers close without a word of TLS */
            return answer->length ? 0 : tls_failed(c, (int)got, err);
        if (got < 0 && !c->session && errno != EINTR && errno != EAGAIN)
            return error_errno(err, "%s:%s", c->address->host, c->address->port);
    }
    return 0;
}

static int https_exchange(struct connection *c, const struct https_request *request, struct buffer *text,
                          struct muster_error *err)
{
    scope_buffer message = {0};
    const bool six = strchr(c->address->host, ':') != NULL;
    buffer_printf(&message,
                  "POST %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nConnection: close\r\nUser-Agent: muster\r\n",
                  *c->address->path ? c->address->path : "/", six ? "[" : "", c->address->host,
                  six ? "]" : "", c->address->port);
    if (request->token)
        buffer_printf(&message, "Authorization: Bearer %s\r\n", request->token);
    buffer_printf(&message, "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n", request->content_type,
                  request->length);
    if ((buffer_append(&message, request->body, request->length)) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a request");
    if (connect_to(c, err) < 0 || (c->address->encrypted && begin_tls(c, request->ca_file, err) < 0))
        return -1;
    return send_all(c, message.data, message.length, err) < 0 ? -1 : https_receive(c, text, err);
}

int https_post(const struct https_request *request, int *status, struct buffer *answer,
               struct muster_error *err)
{
    struct https_address address;
    scope_buffer text = {0};
    if (https_address_parse(request->url, &address, err) < 0)
        return -1;
    struct connection c = {
        .address = &address, .deadline = instant_add(clock_now(NULL), HTTPS_PATIENCE_S * NS_PER_S), .fd = -1};
    const int failed = https_exchange(&c, request, &text, err);
    if (c.session)
        c.tls.deinit(c.session);
    if (c.credentials)
        c.tls.certificate_free_credentials(c.credentials);
    if (c.fd >= 0)
        (void)close(c.fd); /* the answer is read, or is not wanted */
    if (failed)
        return -1;
    const char *body = text.data ? strstr(text.data, "\r\n\r\n") : NULL;
    if (!text.data || sscanf(text.data, "HTTP/1.%*1[01] %d", status) != 1)
        return error_set(err, MUSTER_E_PROTOCOL, "%s:%s does not speak HTTP", address.host, address.port);
    return body ? buffer_text(answer, body + 4) : 0;
}
