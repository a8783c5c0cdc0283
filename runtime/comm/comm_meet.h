/* comm_meet.h - how ranks find each other: they publish records in the store and wait for each other's
 * connections. */
#ifndef MUSTER_RUNTIME_COMM_COMM_MEET_H
#define MUSTER_RUNTIME_COMM_COMM_MEET_H

#include <poll.h>
#include <stddef.h>

#include "proto/base/clock.h"
#include "runtime/comm/comm.h"

/* The records that the ranks of a comm publish for each other, under
 * "<key>/<kind>/<generation>/<what>/<rank>". */
struct comm_board {
    const struct kv_store *store;
    const char *key, *kind; /* the comm's key; "tcp" */
    int rank;               /* ours */
    int64_t generation;     /* how often this key has been used; a key may be used again */
    struct instant deadline;
};

/* Every rank counts its own uses of the key, so that records of an earlier comm under the same key are
 * never mistaken for ours. */
int comm_board_open(struct comm_board *board, struct muster_error *err);
int comm_board_put(const struct comm_board *board, const char *what, const void *data, size_t length,
                   struct muster_error *err);
/* Waits for the record published by a rank, which must have this length. absent: "has not published its
 * address", of that rank. */
int comm_board_get(const struct comm_board *board, const char *what, int rank, const char *absent, void *data,
                   size_t length, struct muster_error *err);

/* Waits until an entry is ready; -1 with MUSTER_E_TIMEOUT or MUSTER_E_IO. what: "connecting to rank 3". */
int comm_await(struct pollfd *entries, int count, struct instant deadline, const char *what,
               struct muster_error *err);
/* The same while a comm is made: MUSTER_E_PEER as well when the store is gone, within COMM_SLICE_NS. A rank
 * may be lost after it has published its record and before it calls; then only the end of the round ends the
 * wait.
 */
int comm_await_peer(const struct kv_store *store, struct pollfd *entries, int count, struct instant deadline,
                    const char *what, struct muster_error *err);

#endif
