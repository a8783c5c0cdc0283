/* comm_tcp.c - the comm over TCP as an object: creation, splitting, status, abort. See comm_tcp.h for how it
 * works. */
#include "runtime/comm/comm_tcp.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_tcp_internal.h"

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
        return error_set(err, MUSTER_E_NOMEM, "no memory for comm %s", tcp->comm.name);
    tcp->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return tcp->wake < 0 ? error_errno(err, "eventfd") : 0;
}

/* faces_store: as tcp_connect has it. */
static struct comm *tcp_make(const struct comm_options *options, bool faces_store, struct muster_error *err)
{
    struct tcp_comm *tcp = mem_calloc(1, sizeof *tcp);
    if (!tcp) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a comm");
        return NULL;
    }
    GUARD(guard_comm) struct comm *comm = &tcp->comm;
    tcp->wake = -1;
    comm_init(comm, options, tcp_run_call);
    tcp->board =
        (struct comm_board){.store = options->store, .key = comm->name, .kind = "tcp", .rank = options->rank};
    int address =
        snprintf(tcp->address, sizeof tcp->address, "%s", options->address ? options->address : "127.0.0.1");
    if ((options->key && strlen(options->key) >= COMM_NAME) || address >= TCP_ADDRESS) {
        (void)error_set(err, MUSTER_E_LIMIT, "the key %.100s... or the address %.60s is too long for a comm",
                        tcp->comm.name, tcp->address);
        return NULL;
    }
    if (comm->size > 1 && (allocate_peers(tcp, err) || tcp_connect(tcp, faces_store, err))) {
        (void)error_wrap(err, "comm %s, rank %d", comm->name, comm->rank);
        return NULL;
    }
    return take_pointer(&comm);
}

static struct comm *tcp_create(const struct comm_options *options, struct muster_error *err)
{
    return comm_check_options(options, "a TCP comm", TCP_RANKS_MAX, err) ? NULL
                                                                         : tcp_make(options, true, err);
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
                (void)close(tcp->peers[rank].fds[role]); /* no call is in progress */
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

/* Exchanges every rank's color and key; votes has size entries, and ours is filled in. */
static int vote(struct tcp_comm *tcp, const char *name, struct comm_vote *votes, struct muster_error *err)
{
    char what[COMM_NAME];
    int me = tcp->comm.rank;
    if (snprintf(what, sizeof what, "%u-%s", tcp->splits, name) >= COMM_NAME)
        return error_set(err, MUSTER_E_LIMIT, "the name %.100s is too long for a comm", name);
    tcp->board.deadline = instant_add(clock_now(NULL), tcp->comm.timeout_ns);
    if (comm_board_put(&tcp->board, what, &votes[me], sizeof *votes, err))
        return -1;
    for (int rank = 0; rank < tcp->comm.size; rank++) {
        if (comm_board_get(&tcp->board, what, rank, "splits another comm or uses another name", &votes[rank],
                           sizeof *votes, err))
            return -1;
    }
    return 0;
}

static struct comm *split(struct comm *comm, int color, int key, const char *name, struct muster_error *err)
{
    struct tcp_comm *tcp = tcp_comm_of(comm);
    scope_free struct comm_vote *votes = mem_calloc((size_t)comm->size, sizeof *votes);
    scope_free int *members = mem_calloc((size_t)comm->size, sizeof *members);
    if (!votes || !members) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to split comm %s", comm->name);
        return NULL;
    }
    char part[COMM_NAME];
    tcp->splits++;
    votes[comm->rank] = (struct comm_vote){color, key};
    if (comm->size > 1 && vote(tcp, name, votes, err)) {
        (void)error_wrap(err, "splitting comm %s into %s", comm->name, name);
        return NULL;
    }
    if (snprintf(part, sizeof part, "%s/%u-%s.%d", comm->name, tcp->splits, name, color) >= COMM_NAME) {
        (void)error_set(err, MUSTER_E_LIMIT, "the name %.100s is too long for a comm", name);
        return NULL;
    }
    int rank, size = comm_members(votes, comm->size, comm->rank, members, &rank);
    struct comm_options options = comm_part_options(comm, rank, size, part);
    options.store = tcp->board.store;
    options.address = tcp->address;
    return tcp_make(&options, false, err);
}

/* ---- status ---- */

static void status(struct comm *comm, struct comm_status *out)
{
    struct tcp_comm *tcp = tcp_comm_of(comm);
    comm_status_begin(comm, out);
    for (int rank = 0; tcp->peers && rank < comm->size; rank++) {
        if (atomic_load(&tcp->peers[rank].awaited))
            comm_status_add(out, rank);
    }
}

static void abort_waiting(struct comm *comm)
{
    struct tcp_comm *tcp = tcp_comm_of(comm);
    const uint64_t one = 1;
    struct muster_error error = {0};
    (void)error_set(&error, MUSTER_E_PEER, "rank %d aborted comm %s", comm->rank, comm->name);
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
        .create = tcp_create,
        .destroy = destroy,
        .split = split,
        .issue = comm_call_issue,
        .run = comm_call_run,
        .status = status,
        .busy_ns = comm_busy_ns,
        .abort = abort_waiting,
    };
    return &ops;
}
