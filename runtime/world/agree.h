/* agree.h - before ranks begin, they find out whether all of them can.
 *
 * Works through the store, before anything else connects the ranks: a rank that cannot go on (memory,
 * unreadable data) ends the attempt on every rank at once with its own error text, instead of letting the
 * others wait for their time-out. */
#ifndef MUSTER_RUNTIME_WORLD_AGREE_H
#define MUSTER_RUNTIME_WORLD_AGREE_H

#include <stdint.h>

#include "rendezvous/store/kv_store.h"

struct agree_options {
    const struct kv_store *store; /* NULL: a single rank */
    const char *key;              /* name of the meeting; may be reused, since every rank counts its uses */
    int rank, size;
    int64_t timeout_ns; /* limit for waiting for the others */
};

/* Collective. failed: this rank's result; if not 0, err holds the reason. Returns 0 if every rank passed
 * 0. A rank that fails does not wait: -1, err unchanged. The others: -1 with the code of a failed rank and
 * "rank R cannot go on: <its text>". MUSTER_E_TIMEOUT names the number of missing ranks. */
int agree(const struct agree_options *options, int failed, struct muster_error *err);

#endif
