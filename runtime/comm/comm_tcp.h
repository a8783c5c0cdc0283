/* comm_tcp.h - collectives over TCP between nodes: how it works.
 *
 * Every rank listens, publishes its address, port and a random token in the store, connects to all lower
 * ranks and answers the higher ones. A caller presents the token of the rank that it calls; connections
 * without it are dropped. Each pair of ranks has two connections: one for data, one on which a rank
 * reports why it failed, or that it leaves. A rank's address is the local address of its connection to the
 * store; ranks on the store's own node may see only loopback there and then take the address that faces a
 * rank on another node.
 *
 * In an operation a rank sends each peer a header (what it issued) followed by its data and reads the same
 * from it: all connections at once, without blocking, on the stream's thread. Headers that do not match
 * end the comm on every rank.
 *   - all_gather, all_to_all, broadcast: straight from buffer to buffer.
 *   - reduce_scatter: blocks go to their owner, who sums them chunk by chunk in rank order, so that results
 *     are those of the host comm bit for bit.
 *   - all_reduce: the same over slices, then a gather of the slices; small and accumulating ones: every rank
 *     sends everything to all.
 *
 * Reasons that end an operation early: a lost peer (its connection closes; if its node died silently,
 * keep-alive detects it after a minute and the launcher sooner), operations that do not match, timeout_ns
 * without a byte, an abort, a failure of the device. */
#ifndef MUSTER_RUNTIME_COMM_COMM_TCP_H
#define MUSTER_RUNTIME_COMM_COMM_TCP_H

enum {
    TCP_RANKS_MAX = 256,          /* of one comm: each rank has two connections to each other */
    TCP_CHUNK_BYTES = 256 * 1024, /* of a peer's block that wait to be summed, at most */
    TCP_SCRATCH_BYTES = 8 << 20,  /* of all peers together */
    TCP_EAGER_BYTES = 16 * 1024,  /* an all_reduce up to this size sends everything to all ranks */
};

#endif
