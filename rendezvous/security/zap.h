/* zap.h - pure: the answer to one request of ZeroMQ's authentication protocol (ZAP, RFC 27), sent for
 * every connection before any of its messages is delivered. Fails closed: a malformed request is refused. */
#ifndef MUSTER_RENDEZVOUS_SECURITY_ZAP_H
#define MUSTER_RENDEZVOUS_SECURITY_ZAP_H

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/security/rejection_log.h"
#include "rendezvous/security/secret.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ZMQ_ZAP_DOMAIN of the server's socket: without it libzmq sends no requests and admits all peers. */
#define ZAP_DOMAIN "muster"

enum { ZAP_FRAMES_LIMIT = 8, ZAP_ID_LIMIT = 255 };

struct zap_frame {
    const void *data;
    size_t size;
};

struct zap_rules {
    const unsigned char *client_public; /* the only admitted key; NULL: no secret, all are admitted */
    bool crowded;                       /* unauthenticated peers are rejected for now */
};

struct zap_answer {
    const char *code;         /* "200" admitted, "300" not now, "400" rejected, "500" malformed */
    bool refused;             /* code is not "200" */
    enum rejection rejection; /* where refused */
    size_t id_size; /* size of the request's id, sent back; 0: none, which libzmq takes for a rejection */
    unsigned char id[ZAP_ID_LIMIT];
    char address[REJECTION_ADDRESS_SIZE]; /* the peer's, without port; "" if the request has none */
};

/* frames: of one request, without the empty delimiter. */
void zap_decide(const struct zap_rules *rules, const struct zap_frame *frames, size_t count,
                struct zap_answer *out);

#ifdef __cplusplus
}
#endif
#endif
