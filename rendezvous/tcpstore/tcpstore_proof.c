/* tcpstore_proof.c - which connections have the job's key, and the keys that need it. See tcpstore.h. */
#include <string.h>

#include "proto/base/error.h"
#include "rendezvous/tcpstore/tcpstore_internal.h"

void tcpstore_prove(const unsigned char key[MAC_KEY_SIZE], const void *challenge, unsigned char out[MAC_SIZE])
{
    static const char purpose[] = "client of a store";
    unsigned char message[sizeof purpose + MAC_SIZE];
    memcpy(message, purpose, sizeof purpose);
    memcpy(message + sizeof purpose, challenge, MAC_SIZE);
    mac_make(key, message, sizeof message, out);
}

void tcpstore_guard(struct tcpstore *t, const unsigned char key[MAC_KEY_SIZE],
                    const unsigned char random[MAC_KEY_SIZE])
{
    memcpy(t->key, key, sizeof t->key);
    memcpy(t->random, random, sizeof t->random);
    t->guarded = true;
}

static bool is_key(struct store_bytes key, const char *name)
{
    return key.length == strlen(name) && !memcmp(key.data, name, key.length);
}

/* The challenge of this connection alone: a proof that was heard on another connection is invalid here. */
static void challenge_of(const struct tcpstore_connection *c, unsigned char out[MAC_SIZE])
{
    mac_make(c->engine->random, &c->number, sizeof c->number, out);
}

int tcpstore_proof_serve(struct tcpstore_connection *c, struct store_answer *answer,
                         unsigned char room[MAC_SIZE], struct muster_error *err)
{
    const struct tcpstore *t = c->engine;
    const int query = c->parser.query;
    unsigned char right[MAC_SIZE];
    if (!t->guarded || (query != TCPSTORE_GET && query != TCPSTORE_SET))
        return 0;
    challenge_of(c, room);
    if (query == TCPSTORE_GET) {
        answer->found = is_key(t->strings[0], TCPSTORE_CHALLENGE_KEY);
        answer->value = (struct store_bytes){room, MAC_SIZE};
        return answer->found;
    }
    if (!is_key(t->strings[0], TCPSTORE_PROOF_KEY))
        return 0;
    tcpstore_prove(t->key, room, right);
    c->proven = t->strings[1].length == MAC_SIZE && mac_equal(t->strings[1].data, right);
    return c->proven
               ? 1
               : error_set(err, MUSTER_E_REFUSED,
                           "its proof of the job's secret is wrong: it is of another job, or of no job");
}

static bool query_has_values(int query)
{
    return query != TCPSTORE_CHECK && query != TCPSTORE_WAIT && query != TCPSTORE_MULTI_GET;
}

int tcpstore_proof_check(const struct tcpstore_connection *c, struct muster_error *err)
{
    const struct tcpstore *t = c->engine;
    const size_t length = sizeof TCPSTORE_GUARDED - 1;
    if (!t->guarded || c->proven)
        return 0;
    for (size_t i = 0; i < c->parser.count; i++) {
        const bool is_value = c->parser.query == TCPSTORE_MULTI_SET ? i >= c->parser.count / 2
                              : query_has_values(c->parser.query)   ? i > 0
                                                                    : false;
        const struct store_bytes *key = &t->strings[i];
        if (!is_value && key->length >= length && !memcmp(key->data, TCPSTORE_GUARDED, length))
            return error_set(
                err, MUSTER_E_REFUSED,
                "%s of key \"%.*s\", which is muster's own: the peer has not proven that it has the "
                "job's secret",
                tcpstore_query_name(c->parser.query), key->length < 80 ? (int)key->length : 80,
                (const char *)key->data);
    }
    return 0;
}
