/* comm_shm.h - collectives over shared memory inside one node: how it works.
 *
 * Ranks are processes or threads, of one user, on one node and in one network namespace. Two things are
 * shared; neither has a name in /dev/shm or in any file system:
 *   - the COMM arenas: every rank maps every other rank's, to read only. Their memfds travel once, over Unix
 *     sockets with abstract names of 128 random bits that are exchanged through the kv_store
 *     (comm_shm_link.h). The sockets stay open and show when a peer dies.
 *   - one control memfd for each comm, with a channel (comm_shm_channel.h) for the collectives and one for
 *     each pair of ranks.
 *
 * A channel moves in phases. In phase p each member writes a record (its operation, the place of its data)
 * and perhaps data into its own slot p mod 2, arrives, and waits until all members have arrived; then all
 * may read all slots p mod 2, until they arrive at p+1. So one futex barrier a phase is the whole
 * protocol.
 *   - Small operations (HOST_EAGER_BYTES) put data and record into the first phase and are done after it.
 *   - Where every rank's buffer lies in a COMM arena, ranks copy and reduce straight out of their peers'
 *     arenas and pass one more barrier, so that buffers may be reused when the operation has finished.
 *   - Otherwise the data passes through the slots, chunk by chunk, one phase each.
 * The choice is a function of all records, so all ranks choose alike.
 *
 * send and recv are a rendezvous: a send finishes when its peer has copied the data. Two ranks that send
 * to each other first and receive then wait for each other, and the mismatch is reported.
 *
 * The reason that ends an operation early is written into the control memory for all ranks: a lost peer
 * (seen within COMM_SLICE_NS), operations that do not match, a time-out, an abort, a failure of the
 * device. */
#ifndef MUSTER_RUNTIME_COMM_COMM_SHM_H
#define MUSTER_RUNTIME_COMM_COMM_SHM_H

enum {
    HOST_RANKS_MAX = 256,             /* in a comm */
    HOST_ARENAS_MAX = 8,              /* for each rank */
    HOST_EAGER_BYTES = 16 * 1024,     /* in a rank's part of the slot */
    HOST_SLOT_BYTES = 256 * 1024,     /* collectives: each of a member's two slots */
    HOST_PAIR_SLOT_BYTES = 64 * 1024, /* send and recv */
};

#endif
