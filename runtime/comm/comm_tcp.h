/* comm_tcp.h - collectives over TCP between nodes: how it works.
 *
 * Connections. Up to TCP_FULL_RANKS ranks every two have some. In larger comms rank r has them to the ranks
 * r + 2^k and r - 2^k, which makes at most 2 log2(size) peers; another pair connects when it first sends and
 * receives. Each two peers have two connections: one for data, one on which a rank reports why it failed, or
 * that it leaves.
 *
 * Meeting. Every rank listens and publishes its address, port and a random token in the store. Of two peers
 * the higher rank calls, and presents the token of the rank that it calls; connections without it are
 * dropped. A rank makes O(log size) requests to the store. Larger comms then exchange all addresses over
 * their own connections, and so does every split, which needs no store. A rank's address is the local
 * address of its connection to the store; ranks on the store's own node may see only loopback there and then
 * take the address that faces a rank on another node.
 *
 * Operations. The first data that passes between two ranks in an operation has a header in front: the
 * sender's operation. Headers that do not match end the comm on every rank. Results have the bits of the host
 * comm: every sum is made in rank order.
 *   - Up to TCP_FULL_RANKS ranks: all connections at once. Blocks go straight to the rank that needs them; a
 *     large all_reduce is summed in slices.
 *   - More ranks, small: by doubling. In step k rank r sends all values that it has to r + 2^k. After
 * log2(size) steps it has the values of all ranks and sums them by itself.
 *   - More ranks, large: along the chain 0, 1, 2, ..., piece by piece. A rank adds its values to the sum that
 *     comes from the rank before. The last rank sends the result back along the chain. All connections of the
 *     chain work at once, in both directions.
 *
 * Failures. A rank that fails reports the reason to its peers, and they pass the report on to theirs, so that
 * every rank ends with the first reason. Reasons are: a lost peer (its connection closes; if its node died
 * silently, keep-alive detects it after a minute and the launcher sooner), operations that do not match,
 * timeout_ns without a byte, an abort, a failure of the device. */
#ifndef MUSTER_RUNTIME_COMM_COMM_TCP_H
#define MUSTER_RUNTIME_COMM_COMM_TCP_H

enum {
    TCP_FULL_RANKS = 8,           /* up to so many ranks all have connections to each other */
    TCP_CHUNK_BYTES = 256 * 1024, /* a peer's part of scratch: data that waits to be summed */
    TCP_SCRATCH_BYTES = 2 << 20,  /* for each comm */
    TCP_EAGER_BYTES = 16 * 1024,  /* an all_reduce up to this size sends everything to all ranks */
    /* More ranks than TCP_FULL_RANKS: */
    TCP_DOUBLING_BYTES =
        512 * 1024,               /* all ranks' data together, up to which doubling is cheaper than a chain */
    TCP_PIECE_BYTES = 64 * 1024,  /* a message of a chain */
    TCP_GROUP_BYTES = 256 * 1024, /* as TCP_DOUBLING_BYTES, where ranks stand for several: see comm_node.h */
};

#endif
