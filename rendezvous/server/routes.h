/* routes.h - the serving agent's map between ZeroMQ routing ids and the slots of the roster.
 *
 * Routing ids are given by libzmq and have no meaning; a route exists from the ACCEPT of a session to its
 * end, so there are never more routes than slots, however many unauthenticated peers connect. Every
 * operation is O(1). */
#ifndef MUSTER_RENDEZVOUS_SERVER_ROUTES_H
#define MUSTER_RENDEZVOUS_SERVER_ROUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum { ROUTE_ID_LIMIT = 16 }; /* automatic ids have 5 bytes */

struct route {
    uint64_t session; /* 0: no route */
    unsigned char id[ROUTE_ID_LIMIT];
    size_t id_size;
    int fd;            /* of its connection; -1: unknown */
    bool broken;       /* a send to it has failed; earlier messages from it may still be unread */
    int next, next_fd; /* slot in the same bucket, -1: none */
};

struct routes {
    struct route *slots;
    int *buckets, *fd_buckets; /* first slot, -1: none */
    int slot_count, bucket_count;
};

int routes_init(struct routes *routes, int slot_count, struct muster_error *err);
void routes_free(struct routes *routes);
/* The slot behind the id, or -1. */
int routes_find(const struct routes *routes, const void *id, size_t id_size);
/* The slot whose connection has the descriptor, or -1. */
int routes_find_fd(const struct routes *routes, int fd);
/* Replaces the slot's route. id_size <= ROUTE_ID_LIMIT. */
void routes_set(struct routes *routes, int slot, uint64_t session, const void *id, size_t id_size, int fd);
/* Removes the slot's route if it is the session's. */
void routes_remove(struct routes *routes, int slot, uint64_t session);

#endif
