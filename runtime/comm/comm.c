/* comm.c - checks and sums of operations, options and splits: everything about a comm that needs no peer. */
#include "runtime/comm/comm.h"

#include <string.h>

#include "proto/base/error.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_reduce.h"

int comm_reduce_check(const struct comm_op *op, struct muster_error *err)
{
    bool real =
        op->dtype == DTYPE_F32 || op->dtype == DTYPE_F64 || op->dtype == DTYPE_BF16 || op->dtype == DTYPE_F16;
    bool integer = op->dtype == DTYPE_I32 && op->reduction != REDUCE_AVERAGE;
    if ((unsigned)op->reduction > REDUCE_MAX)
        return error_set(err, MUSTER_E_INVALID, "%s: %d is no reduction", comm_kind_name(op->kind),
                         (int)op->reduction);
    if (real || integer)
        return 0;
    return error_set(err, MUSTER_E_UNSUPPORTED,
                     "%s of %s by %s: floats can be reduced by sum, average and max, i32 by sum and max",
                     comm_kind_name(op->kind), dtype_name(op->dtype), comm_reduction_name(op->reduction));
}

int64_t comm_part_bytes(const struct comm_op *op)
{
    return op->kind == COMM_BARRIER ? 0 : op->count * dtype_size(op->dtype);
}

int64_t comm_received_bytes(const struct comm_op *op, int size)
{
    int64_t shard = comm_part_bytes(op);
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

bool comm_fits(const struct comm_op *a, const struct comm_op *b)
{
    bool pair =
        (a->kind == COMM_SEND && b->kind == COMM_RECV) || (a->kind == COMM_RECV && b->kind == COMM_SEND);
    if (!pair && (a->kind != b->kind || comm_is_pair(a->kind)))
        return false;
    if (a->tag != b->tag)
        return false;
    if (a->kind == COMM_BARRIER)
        return true;
    if (a->dtype != b->dtype || a->count != b->count)
        return false;
    if (a->kind == COMM_BROADCAST)
        return a->root == b->root;
    return !comm_reduces(a->kind) || a->reduction == b->reduction;
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
    bool peer = comm_is_pair(op->kind);
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
    if (op->accumulate && !comm_reduces(op->kind))
        return error_set(err, MUSTER_E_INVALID, "%s cannot accumulate", comm_kind_name(op->kind));
    if (comm_reduces(op->kind) && comm_reduce_check(op, err))
        return -1;
    return check_buffers(op, send, recv, err);
}

/* ---- splits and options ---- */

static bool sorts_before(const struct comm_vote *votes, int a, int b)
{
    return votes[a].key != votes[b].key ? votes[a].key < votes[b].key : a < b;
}

int comm_members(const struct comm_vote *votes, int size, int me, int *members, int *rank)
{
    int count = 0;
    for (int other = 0; other < size; other++) {
        if (votes[other].color != votes[me].color)
            continue;
        int at = count++;
        for (; at > 0 && sorts_before(votes, other, members[at - 1]); at--)
            members[at] = members[at - 1];
        members[at] = other;
    }
    *rank = 0;
    while (members[*rank] != me) /* our own color is always among them */
        ++*rank;
    return count;
}

int comm_check_ranks(const struct comm_options *options, const char *what, int ranks,
                     struct muster_error *err)
{
    if (options->size >= 1 && options->size <= ranks && options->rank >= 0 && options->rank < options->size)
        return 0;
    if (ranks == COMM_RANKS_ANY)
        return error_set(err, MUSTER_E_INVALID, "%s of rank %d of %d: ranks count from 0 to size-1", what,
                         options->rank, options->size);
    return error_set(err, MUSTER_E_INVALID, "%s of rank %d of %d: ranks count from 0, and there are 1 to %d",
                     what, options->rank, options->size, ranks);
}

int comm_check_options(const struct comm_options *options, const char *what, int ranks,
                       struct muster_error *err)
{
    if (comm_check_ranks(options, what, ranks, err))
        return -1;
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
