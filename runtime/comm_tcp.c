/* comm_tcp.c - the comm over TCP as an object: creation, splitting, status, abort. See comm_tcp.h for how it
 * works. */
#include "runtime/comm_tcp.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/comm_tcp_internal.h"

static void destroy(struct comm *comm);
GUARD_DEFINE(comm, struct comm *, destroy);

/* ---- creation ---- */

static int allocate_peers(struct tcp_comm *tcp, struct muster_error *err)
{
    size_t size = (size_t)tcp->comm.size;
    int64_t chunk = TCP_SCRATCH_BYTES / tcp->comm.size / 4096 * 4096;
    tcp->chunk_bytes = chunk < TCP_CHUNK_BYTES ? chunk : TCP_CHUNK_BYTES;
    tcp->peers = mem_calloc(size, sizeof *tcp->peers);
    tcp->polls = mem_calloc(1 + 2 * size, sizeof *tcp->polls);
    tcp->scratch = mem_calloc(size, (size_t)tcp->chunk_bytes);
    for (size_t i = 0; tcp->peers && i < size; i++)
        tcp->peers[i].fds[TCP_DATA] = tcp->peers[i].fds[TCP_NEWS] = -1;
    if (!tcp->peers || !tcp->polls || !tcp->scratch)
        return error_set(err, MUSTER_E_NOMEM, "no memory for comm %s", tcp->name);
    tcp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return tcp->wake < 0 ? error_errno(err, "eventfd") : 0;
}

/* faces_store: as tcp_connect has it. */
static struct comm *make(const struct comm_options *options, bool faces_store, struct muster_error *err)
{
    struct tcp_comm *tcp = mem_calloc(1, sizeof *tcp);
    if (!tcp) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a comm");
        return NULL;
    }
    GUARD(guard_comm) struct comm *comm = &tcp->comm;
    tcp->wake = -1;
    comm->rank = options->rank;
    comm->size = options->size;
    comm->timeout_ns = options->timeout_ns;
    comm->device = options->device;
    comm->device_ops = options->device_ops;
    comm->run = tcp_run_call;
    tcp->store = options->store;
    int length = snprintf(tcp->name, sizeof tcp->name, "%s", options->key ? options->key : "alone");
    int address =
        snprintf(tcp->address, sizeof tcp->address, "%s", options->address ? options->address : "127.0.0.1");
    if (length >= TCP_NAME || address >= TCP_ADDRESS) {
        (void)error_set(err, MUSTER_E_LIMIT, "the key %.100s... or the address %.60s is too long for a comm",
                        tcp->name, tcp->address);
        return NULL;
    }
    if (comm->size > 1 && (allocate_peers(tcp, err) || tcp_connect(tcp, faces_store, err))) {
        (void)error_wrap(err, "comm %s, rank %d", tcp->name, comm->rank);
        return NULL;
    }
    return take_pointer(&comm);
}

static struct comm *create(const struct comm_options *options, struct muster_error *err)
{
    return comm_check_options(options, "a TCP comm", TCP_RANKS_MAX, err) ? NULL : make(options, true, err);
}

static void destroy(struct comm *comm)
{
    static const struct muster_error leaves = {0};
    if (!comm)
        return;
    struct tcp_comm *tcp = tcp_comm_of(comm);
    tcp_tell(tcp, &leaves);
    for (int rank = 0; tcp->peers && rank < comm->size; rank++) {
        for (int role = 0; role < TCP_ROLE_COUNT; role++) {
            if (tcp->peers[rank].fds[role] >= 0)
                (void)close(tcp->peers[rank].fds[role]); /* nothing is under way on it */
        }
    }
    if (tcp->wake >= 0)
        (void)close(tcp->wake); /* nobody waits */
    mem_free(tcp->peers);
    mem_free(tcp->polls);
    mem_free(tcp->scratch);
    mem_free(tcp);
}

/* ---- splitting ---- */

struct vote {
    int32_t color, key;
};

static int vote_key(char out[256], const struct tcp_comm *tcp, const char *name, int rank,
                    struct muster_error *err)
{
    if (snprintf(out, 256, "%s/%u-%s/votes/%d", tcp->name, tcp->splits, name, rank) < 256)
        return 0;
    return error_set(err, MUSTER_E_LIMIT, "the name %.100s is too long for a comm", name);
}

/* Everybody tells everybody its color and key; votes has size entries. */
static int vote(struct tcp_comm *tcp, const char *name, struct vote mine, struct vote *votes,
                struct muster_error *err)
{
    char key[256];
    const struct kv_store *store = tcp->store;
    struct instant deadline = instant_add(clock_now(NULL), tcp->comm.timeout_ns);
    if (vote_key(key, tcp, name, tcp->comm.rank, err) || store->set(store->ctx, key, &mine, sizeof mine, err))
        return -1;
    for (int rank = 0; rank < tcp->comm.size; rank++) {
        scope_buffer value = {0};
        int64_t left = instant_diff_ns(deadline, clock_now(NULL));
        if (vote_key(key, tcp, name, rank, err))
            return -1;
        if (store->get(store->ctx, key, &value, left > 0 ? left : 1, err))
            return error_wrap(err, "rank %d does not split alike", rank);
        if (value.length != sizeof mine)
            return error_set(err, MUSTER_E_PROTOCOL, "%s holds no vote of a rank", key);
        memcpy(&votes[rank], value.data, sizeof mine);
    }
    return 0;
}

/* Our rank among those of our color, ordered by key, then by old rank; *count is how many they are. */
static int rank_among(const struct vote *votes, int size, int me, int *count)
{
    int before = 0;
    *count = 0;
    for (int rank = 0; rank < size; rank++) {
        if (votes[rank].color != votes[me].color)
            continue;
        ++*count;
        before += votes[rank].key < votes[me].key || (votes[rank].key == votes[me].key && rank < me);
    }
    return before;
}

static struct comm *split(struct comm *comm, int color, int key, const char *name, struct muster_error *err)
{
    struct tcp_comm *tcp = tcp_comm_of(comm);
    scope_free struct vote *votes = mem_calloc((size_t)comm->size, sizeof *votes);
    if (!votes) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to split comm %s", tcp->name);
        return NULL;
    }
    char part[TCP_NAME];
    tcp->splits++;
    votes[comm->rank] = (struct vote){color, key};
    if (comm->size > 1 && vote(tcp, name, votes[comm->rank], votes, err)) {
        (void)error_wrap(err, "splitting comm %s into %s", tcp->name, name);
        return NULL;
    }
    if (snprintf(part, sizeof part, "%s/%u-%s.%d", tcp->name, tcp->splits, name, color) >= TCP_NAME) {
        (void)error_set(err, MUSTER_E_LIMIT, "the name %.100s is too long for a comm", name);
        return NULL;
    }
    struct comm_options options = {.store = tcp->store,
                                   .key = part,
                                   .timeout_ns = comm->timeout_ns,
                                   .device = comm->device,
                                   .device_ops = comm->device_ops,
                                   .address = tcp->address};
    options.rank = rank_among(votes, comm->size, comm->rank, &options.size);
    return make(&options, false, err);
}

/* ---- looking at it ---- */

static void status(struct comm *comm, struct comm_status *out)
{
    struct tcp_comm *tcp = tcp_comm_of(comm);
    *out =
        (struct comm_status){.issued = atomic_load(&comm->issued), .finished = atomic_load(&comm->finished)};
    for (int rank = 0; tcp->peers && rank < comm->size; rank++) {
        if (atomic_load(&tcp->peers[rank].awaited) &&
            out->missing_count < (int)(sizeof out->missing / sizeof *out->missing))
            out->missing[out->missing_count++] = rank;
    }
}

static int64_t busy_ns(struct comm *comm)
{
    return atomic_load(&comm->busy_ns);
}

static void abort_waiting(struct comm *comm)
{
    struct tcp_comm *tcp = tcp_comm_of(comm);
    const uint64_t one = 1;
    struct muster_error error = {0};
    (void)error_set(&error, MUSTER_E_PEER, "rank %d aborted comm %s", comm->rank, tcp->name);
    atomic_store(&tcp->aborted, true);
    tcp_tell(tcp, &error);
    if (tcp->wake >= 0)
        (void)!write(tcp->wake, &one, sizeof one); /* it is readable afterwards whatever it held */
}

const struct comm_ops *comm_tcp(void)
{
    static const struct comm_ops ops = {
        .abi = COMM_ABI,
        .size = sizeof ops,
        .name = "tcp",
        .create = create,
        .destroy = destroy,
        .split = split,
        .issue = comm_call_issue,
        .status = status,
        .busy_ns = busy_ns,
        .abort = abort_waiting,
    };
    return &ops;
}
