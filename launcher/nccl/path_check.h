/* path_check.h - --pre-flight between nodes: packets of full size are sent from each node to others of its
 * world, and a pair between which they do not arrive is named with the size that does. */
#ifndef MUSTER_LAUNCHER_NCCL_PATH_CHECK_H
#define MUSTER_LAUNCHER_NCCL_PATH_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/address.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/tcpstore/tcpstore.h"

enum { PATH_CHECK_NAME = 256, PATH_CHECK_PEERS = 16 };

/* Owned by the thread that runs it; zeroed but for its input. */
struct path_check {
    char store[PATH_CHECK_NAME], prefix[48]; /* in: the store of the world, and where in it */
    uint16_t port;
    bool has_key; /* in: the job has a secret, and key is the store's */
    unsigned char key[MAC_KEY_SIZE];
    int rank, count; /* in: of this node */
    char host[PATH_CHECK_NAME];
    char address[64];        /* in: of this node for the others; "": that of the connection to the store */
    int peers;               /* out: to so many nodes packets were sent */
    struct buffer findings;  /* out: a line for each pair */
    struct muster_error err; /* out: why nothing could be checked */
};

/* The peers to which this rank sends: all in a small world, else the peers at a distance that is a power of
 * two. Returns their number. */
int path_check_peers(int rank, int count, int peers[PATH_CHECK_PEERS]);
/* Blocks for seconds, longer where a node is slow to come. */
void path_check_run(struct path_check *check);

/* --- the probe ---
 *
 * Whether packets of a size get from this node to another: over TCP, since that is what gloo and NCCL's
 * sockets use, and since paths may treat other protocols differently.
 *
 * A path that drops large packets and reports nothing (an MTU black hole) lets a connection open and small
 * messages pass; the first full packet is then sent again and again, without an error. */

enum { PATH_TOKEN = 16 };

enum path_result { PATH_PASSES, PATH_UNREACHED, PATH_STALLS };

struct path_probe {
    char address[ADDRESS_TEXT]; /* a receiver's */
    uint16_t port;
    unsigned char token[PATH_TOKEN]; /* the receiver's */
    int largest; /* bytes of a packet with its headers; 0: as large as the kernel makes them */
    /* out */
    enum path_result result;
    int packet; /* bytes of the largest packets that were sent; 0: unknown */
    /* path_probe_run's own */
    int fd;
    size_t sent;
    bool connected;
};

struct path_receiver;

#endif
