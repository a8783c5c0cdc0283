/* path_probe.h - whether packets of a size get from this node to another: over TCP, since that is what gloo
 * and NCCL's sockets use, and since paths may treat other protocols differently.
 *
 * A path that drops large packets and reports nothing (an MTU black hole) lets a connection open and small
 * messages pass; the first full packet is then sent again and again, without an error. */
#ifndef MUSTER_LAUNCHER_NCCL_PATH_PROBE_H
#define MUSTER_LAUNCHER_NCCL_PATH_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/address.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

enum { PATH_TOKEN = 16 };

enum path_result { PATH_PASSES, PATH_UNREACHED, PATH_STALLS };

struct path_probe {
    char address[ADDRESS_TEXT]; /* of a receiver */
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

/* Sends to all of them at once, until each has answered or the deadline has come. */
void path_probe_run(struct path_probe *probes, int count, struct instant deadline);

struct path_receiver;

/* Answers probes on a thread. *port and token are for path_probe. */
struct path_receiver *path_receiver_start(uint16_t *port, unsigned char token[PATH_TOKEN],
                                          struct muster_error *err);
/* Accepts NULL. */
void path_receiver_stop(struct path_receiver *receiver);

#endif
