/* comm.c - names, checks and sums of operations: everything about a comm that needs no peer. */
#include "runtime/comm.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/comm_internal.h"
#include "runtime/comm_reduce.h"

const char *comm_kind_name(enum comm_kind kind)
{
    static const char *const names[COMM_KIND_COUNT] = {
#define COMM_KIND_NAME(symbol, name) [symbol] = name,
        COMM_KINDS(COMM_KIND_NAME)
#undef COMM_KIND_NAME
    };
    return (unsigned)kind < COMM_KIND_COUNT ? names[kind] : "unknown";
}

const char *comm_reduction_name(enum comm_reduction reduction)
{
    static const char *const names[] = {
        [REDUCE_SUM] = "sum", [REDUCE_AVERAGE] = "average", [REDUCE_MAX] = "max"};
    return (unsigned)reduction <= REDUCE_MAX ? names[reduction] : "unknown";
}

int64_t comm_received_bytes(const struct comm_op *op, int size)
{
    int64_t shard = op->count * dtype_size(op->dtype);
    switch (op->kind) {
    case COMM_ALL_GATHER:
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_TO_ALL:
        return (size - 1) * shard;
    case COMM_ALL_REDUCE:
        return (int64_t)(2.0 * (size - 1) / size * (double)shard);
    case COMM_BROADCAST:
    case COMM_RECV:
        return shard;
    default:
        return 0;
    }
}

static bool reduces(enum comm_kind kind)
{
    return kind == COMM_REDUCE_SCATTER || kind == COMM_ALL_REDUCE;
}

static bool to_a_peer(enum comm_kind kind)
{
    return kind == COMM_SEND || kind == COMM_RECV;
}

const char *comm_op_text(char out[COMM_TEXT], const struct comm_op *op)
{
    char tail[40] = "";
    if (reduces(op->kind))
        (void)snprintf(tail, sizeof tail, " by %s%s", comm_reduction_name(op->reduction),
                       op->accumulate ? ", accumulating" : "");
    else if (op->kind == COMM_BROADCAST || op->kind == COMM_RECV)
        (void)snprintf(tail, sizeof tail, " from rank %d", op->root);
    else if (op->kind == COMM_SEND)
        (void)snprintf(tail, sizeof tail, " to rank %d", op->root);
    if (op->kind == COMM_BARRIER)
        (void)snprintf(out, COMM_TEXT, "barrier");
    else
        (void)snprintf(out, COMM_TEXT, "%s of %lld %s%s", comm_kind_name(op->kind), (long long)op->count,
                       dtype_name(op->dtype), tail);
    return out;
}

bool comm_fits(const struct comm_op *a, const struct comm_op *b)
{
    bool pair =
        (a->kind == COMM_SEND && b->kind == COMM_RECV) || (a->kind == COMM_RECV && b->kind == COMM_SEND);
    if (!pair && (a->kind != b->kind || to_a_peer(a->kind)))
        return false;
    if (a->kind == COMM_BARRIER)
        return true;
    if (a->dtype != b->dtype || a->count != b->count)
        return false;
    if (a->kind == COMM_BROADCAST)
        return a->root == b->root;
    return !reduces(a->kind) || a->reduction == b->reduction;
}

/* ---- checks ---- */

static int check_buffers(const struct comm_op *op, const void *send, const void *recv,
                         struct muster_error *err)
{
    bool sends = op->kind != COMM_BROADCAST && op->kind != COMM_RECV && op->kind != COMM_BARRIER;
    bool receives = op->kind != COMM_SEND && op->kind != COMM_BARRIER;
    char text[COMM_TEXT];
    if (op->count && ((sends && !send) || (receives && !recv)))
        return error_set(err, MUSTER_E_INVALID, "%s without a %s buffer", comm_op_text(text, op),
                         sends && !send ? "send" : "receive");
    if (op->count && op->kind == COMM_ALL_TO_ALL && send == recv)
        return error_set(err, MUSTER_E_INVALID, "%s cannot be done in place", comm_op_text(text, op));
    return 0;
}

static int check_root(const struct comm_op *op, int rank, int size, struct muster_error *err)
{
    bool peer = to_a_peer(op->kind);
    if (!peer && op->kind != COMM_BROADCAST)
        return 0;
    if (op->root >= 0 && op->root < size && !(peer && op->root == rank))
        return 0;
    return error_set(err, MUSTER_E_INVALID, "%s on rank %d of %d: %s must be a rank%s",
                     comm_kind_name(op->kind), rank, size, peer ? "the peer" : "root",
                     peer ? " other than this one" : "");
}

int comm_check(const struct comm_op *op, int rank, int size, const void *send, const void *recv,
               struct muster_error *err)
{
    if ((unsigned)op->kind >= COMM_KIND_COUNT)
        return error_set(err, MUSTER_E_INVALID, "%d is no kind of operation", (int)op->kind);
    if (check_root(op, rank, size, err))
        return -1;
    if (op->kind == COMM_BARRIER)
        return 0;
    int bytes = dtype_size(op->dtype);
    if (!bytes)
        return error_set(err, MUSTER_E_INVALID, "%s: %d is no dtype", comm_kind_name(op->kind),
                         (int)op->dtype);
    if (op->count < 0 || op->count > INT64_MAX / 4 / bytes / size)
        return error_set(err, MUSTER_E_INVALID, "%s: a count of %lld elements", comm_kind_name(op->kind),
                         (long long)op->count);
    if (op->accumulate && !reduces(op->kind))
        return error_set(err, MUSTER_E_INVALID, "%s cannot accumulate", comm_kind_name(op->kind));
    if (reduces(op->kind) && comm_reduce_check(op, err))
        return -1;
    return check_buffers(op, send, recv, err);
}

/* ---- peers that are mirrors ---- */

static void mirror_reduce(const struct comm_op *op, int size, const void *from, void *recv)
{
    const void *sources[COMM_RANKS_MAX];
    for (int rank = 0; rank < size; rank++)
        sources[rank] = from;
    comm_reduce(op, size, recv, sources, op->count);
}

static void copy_unless_same(void *to, const void *from, int64_t bytes)
{
    if (to != from && bytes)
        memmove(to, from, (size_t)bytes);
}

void comm_mirror(const struct comm_op *op, int rank, int size, const void *send, void *recv)
{
    int64_t bytes = op->count * dtype_size(op->dtype);
    const char *mine = op->kind == COMM_REDUCE_SCATTER || op->kind == COMM_ALL_TO_ALL
                           ? (const char *)send + rank * bytes
                           : send;
    switch (op->kind) {
    case COMM_ALL_GATHER:
    case COMM_ALL_TO_ALL:
        for (int peer = 0; peer < size; peer++)
            copy_unless_same((char *)recv + peer * bytes, mine, bytes);
        break;
    case COMM_REDUCE_SCATTER:
    case COMM_ALL_REDUCE:
        mirror_reduce(op, size, mine, recv);
        break;
    default: /* a root's data is here already, and a peer that is not there sends nothing */
        break;
    }
}

int comm_check_options(const struct comm_options *options, const char *what, int ranks,
                       struct muster_error *err)
{
    if (options->size < 1 || options->size > ranks || options->rank < 0 || options->rank >= options->size)
        return error_set(err, MUSTER_E_INVALID,
                         "%s of rank %d of %d: ranks count from 0, and there are 1 to %d", what,
                         options->rank, options->size, ranks);
    if (!options->device || !options->device_ops || strcmp(options->device_ops->name, "cpu") != 0)
        return error_set(err, MUSTER_E_UNSUPPORTED, "%s moves memory of the cpu device only, not %s", what,
                         options->device_ops ? options->device_ops->name : "(none)");
    if (options->size > 1 && (!options->store || !options->key))
        return error_set(err, MUSTER_E_INVALID, "%d ranks need a store and a key to find each other",
                         options->size);
    if (options->timeout_ns <= 0)
        return error_set(err, MUSTER_E_INVALID, "a time-out of %lld ns: must be above 0",
                         (long long)options->timeout_ns);
    return 0;
}
