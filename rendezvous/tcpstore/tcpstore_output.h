/* tcpstore_output.h - the replies of one connection that were not sent: bytes of its own, and values that it
 * shares with the store. Internal to the engine. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_OUTPUT_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_OUTPUT_H

#include <sys/uio.h>

#include "proto/base/buffer.h"
#include "rendezvous/store/store.h"

/* A value of at least so many bytes is a piece of its own; a smaller one is copied, which is quicker. */
enum { TCPSTORE_SHARED_LEAST = 1024 };

struct tcpstore_piece {
    struct store_hold hold;
    struct tcpstore_piece *next;
    uint64_t after; /* own bytes before it, since the output was empty last */
    const char *data;
    size_t length;
};

/* Zeroed: empty. */
struct tcpstore_output {
    struct buffer own;                   /* limit 0: tcpstore_output_copy has the limit */
    size_t own_sent;                     /* bytes at the front of own that were sent */
    uint64_t own_dropped;                /* bytes of own that are no longer there, since it was empty last */
    struct tcpstore_piece *first, *last; /* between bytes of own */
    size_t first_sent;                   /* bytes of the first piece */
    size_t pieces;
    size_t waiting; /* bytes that were not sent */
    bool failed;    /* limit or memory: the replies are not complete */
};

void tcpstore_output_copy(struct tcpstore_output *o, const void *data, size_t length);
/* A value as store_hold takes it. */
void tcpstore_output_share(struct tcpstore_output *o, struct store *store, struct store_owner *owner,
                           struct store_bytes value);
/* The bytes to send next, as at most `most` runs. Returns how many; they are borrowed until the next call.
 */
size_t tcpstore_output_parts(const struct tcpstore_output *o, struct iovec *parts, size_t most);
/* The first length bytes were sent. */
void tcpstore_output_sent(struct tcpstore_output *o, struct store *store, size_t length);
/* Bytes of memory; shared values are not counted. */
static inline size_t tcpstore_output_memory(const struct tcpstore_output *o)
{
    return o->own.capacity + o->pieces * sizeof *o->first;
}
/* The most that the reply of such a value adds to that. */
size_t tcpstore_output_cost(size_t value_length);
/* Empty again. */
void tcpstore_output_free(struct tcpstore_output *o, struct store *store);

#endif
