/* agree.h - ranks that are each about to begin find out whether all of them can.
 *
 * Through the store, before anything else connects them: a rank that cannot go on (memory, unreadable data)
 * ends the attempt on every rank at once, in its own words, where the others would wait for it until their
 * time is over. */
#ifndef MUSTER_RUNTIME_WORLD_AGREE_H
#define MUSTER_RUNTIME_WORLD_AGREE_H

#include <stdint.h>

#include "rendezvous/store/kv_store.h"

struct agree_options {
    const struct kv_store *store; /* NULL: there are no others */
    const char *key;              /* of the meeting; may be used again, since every rank counts its uses */
    int rank, size;
    int64_t timeout_ns; /* how long to wait for the others */
};

/* Collective. failed: what this rank says; not 0: err tells why. Returns 0 where every rank said 0. A rank
 * that fails does not wait: -1, err as it was. The others: -1 with the code of one that failed and "rank R
 * cannot go on: <its text>". MUSTER_E_TIMEOUT says how many ranks are missing. */
int agree(const struct agree_options *options, int failed, struct muster_error *err);

#endif
