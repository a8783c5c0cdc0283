/* zap.h - pure: the answer to one request of ZeroMQ's authentication protocol (ZAP, RFC 27), which asks about
 * every connection before anything else of it is heard. Fails closed: what is not understood is refused. */
#ifndef MUSTER_RENDEZVOUS_SECURITY_ZAP_H
#define MUSTER_RENDEZVOUS_SECURITY_ZAP_H

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/security/rejection_log.h"
#include "rendezvous/security/secret.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ZMQ_ZAP_DOMAIN of the server's socket: with it unset, libzmq asks nobody and lets everybody in. */
#define ZAP_DOMAIN "muster"

enum { ZAP_FRAMES_LIMIT = 8, ZAP_ID_LIMIT = 255 };

struct zap_frame {
    const void *data;
    size_t size;
};

struct zap_rules {
    const unsigned char *client_public; /* the one key that may come in; NULL: no secret, everybody may */
    bool crowded;                       /* strangers are turned away for now */
};

struct zap_answer {
    const char *code;     /* "200" come in, "300" not now, "400" not you, "500" not understood */
    bool refused;         /* code is not "200" */
    enum refusal refusal; /* where refused */
    size_t id_size;       /* of the request's id, sent back; 0: none, which libzmq takes for a refusal */
    unsigned char id[ZAP_ID_LIMIT];
    char address[REFUSAL_ADDRESS_SIZE]; /* the peer's, without port; "" where the request has none */
};

/* frames: of one request, without the empty delimiter. */
void zap_decide(const struct zap_rules *rules, const struct zap_frame *frames, size_t count,
                struct zap_answer *out);

#ifdef __cplusplus
}
#endif
#endif
