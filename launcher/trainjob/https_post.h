/* https_post.h - one POST over HTTP or HTTPS, for a thread that may wait.
 *
 * The server's certificate is checked, its name included, against the given authorities. The server's answer
 * is read up to a bound; no redirect is followed. */
#ifndef MUSTER_LAUNCHER_TRAINJOB_HTTPS_POST_H
#define MUSTER_LAUNCHER_TRAINJOB_HTTPS_POST_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { HTTPS_HOST = 256, HTTPS_PORT = 8, HTTPS_ANSWER = 16 * 1024, HTTPS_PATIENCE_S = 10 };

struct https_address {
    bool encrypted;
    char host[HTTPS_HOST], port[HTTPS_PORT];
    const char *path; /* points into the URL; "" is "/" */
};

/* "https://host[:port]/path" or http (pure). -1: MUSTER_E_INVALID. */
int https_address_parse(const char *url, struct https_address *out, struct muster_error *err);

struct https_request {
    const char *url, *token; /* token: for "Authorization: Bearer"; NULL: none */
    const char *ca_file;     /* certificates in PEM; NULL: the system's */
    const char *content_type, *body;
    size_t length;
};

/* *status: of the answer; its body, cut, is appended. Blocks for HTTPS_PATIENCE_S, the resolver's time aside.
 */
int https_post(const struct https_request *request, int *status, struct buffer *answer,
               struct muster_error *err);

#endif
