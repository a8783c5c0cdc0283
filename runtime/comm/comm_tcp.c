/* comm_tcp.c - the comm over TCP as an object: creation, splitting, status, abort. See comm_tcp_internal.h
 * for how it works. */
#include "runtime/comm/comm_tcp_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"

static void destroy(struct comm *comm);
GUARD_DEFINE(comm, struct comm *, destroy);

/* ---- creation ---- */

/* Without connections. */
static struct comm *tcp_make(const struct comm_options *options, struct muster_error *err)
{
    struct tcp_comm *tcp = mem_calloc(1, sizeof *tcp);
    if (!tcp) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a comm");
        return NULL;
    }
    comm_init(&tcp->comm, options, tcp_run_call);
    GUARD(guard_comm) struct comm *comm = &tcp->comm;
    int failed = tcp_allocate(tcp, options->size > 1, err);
    tcp->board =
        (struct comm_board){.store = options->store, .key = comm->name, .kind = "tcp", .rank = options->rank};
    int address =
        snprintf(tcp->address, sizeof tcp->address, "%s", options->address ? options->address : "127.0.0.1");
    if (failed)
        return NULL;
    if ((options->key && strlen(options->key) >= COMM_NAME) || address >= TCP_ADDRESS) {
        (void)error_set(err, MUSTER_E_LIMIT, "the key %.100s... or the address %.60s is too long for a comm",
                        tcp->comm.name, tcp->address);
        return NULL;
    }
    return take_pointer(&comm);
}

static struct comm *tcp_create(const struct comm_options *options, struct muster_error *err)
{
    if (comm_check_options(options, "a TCP comm", COMM_RANKS_ANY, err))
        return NULL;
    GUARD(guard_comm) struct comm *comm = tcp_make(options, err);
    if (comm && comm->size > 1 && tcp_meet(tcp_comm_of(comm), true, err)) {
        (void)error_wrap(err, "comm %s, rank %d", comm->name, comm->rank);
        return NULL;
    }
    return take_pointer(&comm);
}

static void destroy(struct comm *comm)
{
    static const struct muster_error leaves = {0};
    if (!comm)
        return;
    tcp_tell(tcp_comm_of(comm), &leaves);
    tcp_free(tcp_comm_of(comm));
    mem_free(comm);
}

/* ---- splitting ---- */

/* The record that the ranks of a comm exchange when it is split. */
struct tcp_vote {
    struct comm_vote vote;
    uint64_t name; /* a hash: all ranks use the same name */
    struct tcp_listing at;
};

static int check_split_names(const struct tcp_vote *records, int size, int me, struct muster_error *err)
{
    for (int rank = 0; rank < size; rank++) {
        if (records[rank].name != records[me].name)
            return error_set(err, MUSTER_E_PEER,
                             "rank %d splits another comm or uses another name; all ranks must split alike",
                             rank);
    }
    return 0;
}

/* Connects the ranks whose votes have our color. Takes the listener. */
static struct comm *join_part(struct tcp_comm *tcp, const char *name, const struct tcp_vote *records,
                              int listener, struct muster_error *err)
{
    int size = tcp->comm.size, me = tcp->comm.rank, rank;
    scope_close int ours = listener;
    const size_t room = size > 0 ? (size_t)size : 0; /* compilers see that it may not be negative */
    scope_free struct comm_vote *votes = mem_calloc(room, sizeof *votes);
    scope_free int *members = mem_calloc(room, sizeof *members);
    if (!votes || !members) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to split comm %s", tcp->comm.name);
        return NULL;
    }
    for (int other = 0; other < size; other++)
        votes[other] = records[other].vote;
    int count = comm_members(votes, size, me, members, &rank);
    struct comm_options options = comm_part_options(&tcp->comm, rank, count, name);
    options.address = tcp->address;
    options.store =
        tcp->board.store; /* a member may be lost before it calls: the end of the store is heard */
    GUARD(guard_comm) struct comm *comm = tcp_make(&options, err);
    if (!comm || count == 1)
        return take_pointer(&comm);
    struct tcp_comm *part = tcp_comm_of(comm);
    part->mine = records[me].at;
    part->listener = take_fd(&ours);
    part->listings = mem_calloc(room, sizeof *part->listings);
    for (int i = 0; part->listings && i < count; i++)
        part->listings[i] = records[members[i]].at;
    if (!part->listings)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the addresses of %d ranks", count);
    else if (!tcp_connect(part, err))
        return take_pointer(&comm);
    return NULL;
}

static struct comm *split(struct comm *comm, int color, int key, const char *name, struct muster_error *err)
{
    struct tcp_comm *tcp = tcp_comm_of(comm);
    char part[COMM_NAME];
    scope_free struct tcp_vote *records = mem_calloc((size_t)comm->size, sizeof *records);
    if (!records) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to split comm %s", comm->name);
        return NULL;
    }
    tcp->splits++;
    if (snprintf(part, sizeof part, "%s/%u-%s.%d", comm->name, tcp->splits, name, color) >= COMM_NAME) {
        (void)error_set(err, MUSTER_E_LIMIT, "the name %.100s is too long for a comm", name);
        return NULL;
    }
    struct tcp_vote *mine = &records[comm->rank];
    mine->vote = (struct comm_vote){color, key};
    mine->name = text_hash(TEXT_HASH_START, name, strlen(name));
    int listener = comm->size > 1 ? tcp_open_listener(tcp->address, &mine->at, err) : -1;
    if (comm->size > 1 && (listener < 0 || tcp_gather_records(tcp, records, sizeof *records, err) ||
                           check_split_names(records, comm->size, comm->rank, err))) {
        if (listener >= 0)
            (void)close(listener); /* nobody has called yet */
        (void)error_wrap(err, "splitting comm %s into %s", comm->name, name);
        return NULL;
    }
    struct comm *made = join_part(tcp, part, records, listener, err);
    if (!made)
        (void)error_wrap(err, "comm %s", part);
    return made;
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
    (void)error_set(&error, MUSTER_E_PEER, "rank %d aborted comm %s", comm_named(comm, comm->rank),
                    comm->name);
    atomic_store(&tcp->aborted, true);
    tcp_tell(tcp, &error);
    if (tcp->wake >= 0)
        (void)!write(tcp->wake, &one, sizeof one); /* it is readable afterwards with any count */
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
