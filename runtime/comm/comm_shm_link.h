/* comm_shm_link.h - connections between the ranks of a node: one Unix socket between each two of them, and
 * every rank's COMM arenas mapped by every other. Shared by a comm and every comm split from it.
 *
 * Messages pass on the sockets only while comms are made (create and split), by the thread that makes
 * them; afterwards any thread may poll them for the peer's end. */
#ifndef MUSTER_RUNTIME_COMM_COMM_SHM_LINK_H
#define MUSTER_RUNTIME_COMM_COMM_SHM_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "runtime/comm/comm.h"
#include "runtime/comm/comm_shm.h"
#include "runtime/comm/comm_shm_channel.h"

struct host_map {
    char *base;
    int64_t bytes;
};

struct host_peer {
    int socket;  /* -1: ourselves */
    int process; /* pidfd; -1 where the system has none, or for a thread of our own process */
    pid_t pid;   /* as seen from here; 0: in a PID namespace that we cannot see */
    int arena_count;
    struct host_map arenas[HOST_ARENAS_MAX]; /* for ourselves: our own mapping */
};

struct host_link {
    _Atomic(int) references;
    int rank, size;
    struct host_peer peers[]; /* [size] */
};

/* A hash that is equal for ranks that can share memory: of this machine and network namespace. */
uint64_t host_link_machine(void);
/* Collective over options->size ranks; needs store, key, arenas and timeout_ns of options. One reference. */
struct host_link *host_link_create(const struct comm_options *options, struct muster_error *err);
struct host_link *host_link_keep(struct host_link *link); /* one reference more */
void host_link_drop(struct host_link *link);              /* accepts NULL */
GUARD_DEFINE(host_link, struct host_link *, host_link_drop);

/* A message of at most HOST_MESSAGE_BYTES to a peer, with a descriptor where fd >= 0. */
enum { HOST_MESSAGE_BYTES = 256 };
int host_link_send(struct host_link *link, int peer, const void *data, size_t length, int fd,
                   struct muster_error *err);
/* The next message of exactly length bytes. fd (may be NULL) gets its descriptor or -1. */
int host_link_receive(struct host_link *link, int peer, void *data, size_t length, int *fd,
                      struct instant deadline, struct muster_error *err);
/* Whether the peer's process has ended or closed its side. Does not wait. */
bool host_link_gone(const struct host_link *link, int peer);
/* The arena of ours that holds all the bytes, or arena -1. */
void host_link_place(const struct host_link *link, const void *data, int64_t bytes, struct host_place *place);
/* Address at which a peer's buffer is mapped here; NULL if it is not wholly inside the arena. */
const char *host_link_at(const struct host_link *link, int peer, const struct host_place *place,
                         int64_t bytes);

#endif
