/* zap.c - see zap.h. */
#include "rendezvous/security/zap.h"

#include <string.h>

#include "proto/base/address.h"

/* the order of a request's frames */
enum { AT_VERSION, AT_ID, AT_DOMAIN, AT_ADDRESS, AT_ROUTING_ID, AT_MECHANISM, AT_KEY };

static bool is_text(const struct zap_frame *frame, const char *text)
{
    return frame->size == strlen(text) && !memcmp(frame->data, text, frame->size);
}

/* It goes into the log. */
static void take_address(const struct zap_frame *frame, struct zap_answer *out)
{
    const unsigned char *bytes = frame->data;
    if (frame->size >= sizeof out->address)
        return;
    for (size_t i = 0; i < frame->size; i++)
        if (bytes[i] <= ' ' || bytes[i] > '~')
            return;
    if (frame->size)
        memcpy(out->address, bytes, frame->size);
    struct address address; /* an IPv4 peer at a socket for both families is written as IPv4 */
    if (address_parse(out->address, 0, &address))
        (void)address_text(&address.of.any, out->address);
}

static void zap_reject(struct zap_answer *out, const char *code, enum rejection rejection)
{
    out->code = code;
    out->refused = true;
    out->rejection = rejection;
}

void zap_decide(const struct zap_rules *rules, const struct zap_frame *frames, size_t count,
                struct zap_answer *out)
{
    const bool keys = rules->client_public != NULL;
    *out = (struct zap_answer){0};
    zap_reject(out, "500", REJECTION_MALFORMED);
    if (count > AT_ID && frames[AT_ID].size <= ZAP_ID_LIMIT && frames[AT_ID].size) {
        out->id_size = frames[AT_ID].size;
        memcpy(out->id, frames[AT_ID].data, out->id_size);
    }
    if (count > AT_ADDRESS)
        take_address(&frames[AT_ADDRESS], out);
    if (count <= AT_MECHANISM || !out->id_size || !is_text(&frames[AT_VERSION], "1.0") ||
        !is_text(&frames[AT_DOMAIN], ZAP_DOMAIN))
        return;
    if (!is_text(&frames[AT_MECHANISM], keys ? "CURVE" : "NULL")) {
        zap_reject(out, "400", keys ? REJECTION_NO_SECRET : REJECTION_SECRET_UNWANTED);
        return;
    }
    if (count != (size_t)(keys ? AT_KEY + 1 : AT_MECHANISM + 1) ||
        (keys && frames[AT_KEY].size != SECRET_KEY_SIZE))
        return;
    if (keys && memcmp(frames[AT_KEY].data, rules->client_public, SECRET_KEY_SIZE) != 0) {
        zap_reject(out, "400", REJECTION_OTHER_JOB);
        return;
    }
    if (!keys && rules->crowded) { /* a peer with the secret is not an unauthenticated one */
        zap_reject(out, "300", REJECTION_CROWD);
        return;
    }
    out->code = "200";
    out->refused = false;
}
