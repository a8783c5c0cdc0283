/* comm_text.c - see comm_text.h. */
#include "runtime/comm/comm_text.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/comm/comm_internal.h"

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

const char *comm_op_text(char out[COMM_TEXT], const struct comm_op *op)
{
    char tail[40] = "";
    if (comm_reduces(op->kind))
        (void)snprintf(tail, sizeof tail, " by %s%s", comm_reduction_name(op->reduction),
                       op->accumulate ? ", accumulating" : "");
    else if (op->kind == COMM_BROADCAST || op->kind == COMM_RECV)
        (void)snprintf(tail, sizeof tail, " from rank %d", op->root);
    else if (op->kind == COMM_SEND)
        (void)snprintf(tail, sizeof tail, " to rank %d", op->root);
    char tag[24] = "";
    if (op->tag)
        (void)snprintf(tag, sizeof tag, " for tag %lu", (unsigned long)op->tag);
    if (op->kind == COMM_BARRIER)
        (void)snprintf(out, COMM_TEXT, "barrier%s", tag);
    else
        (void)snprintf(out, COMM_TEXT, "%s of %lld %s%s%s", comm_kind_name(op->kind), (long long)op->count,
                       dtype_name(op->dtype), tail, tag);
    return out;
}

const char *comm_call_text(char out[COMM_CALL_TEXT], const struct comm_call *call, uint64_t sequence)
{
    char text[COMM_TEXT];
    struct comm_op op = call->op;
    if (comm_is_pair(op.kind) || op.kind == COMM_BROADCAST)
        op.root = comm_named(call->comm, op.root);
    (void)snprintf(out, COMM_CALL_TEXT, "%s #%llu (%s) of comm %s", comm_kind_name(call->op.kind),
                   (unsigned long long)sequence, comm_op_text(text, &op), call->comm->name);
    return out;
}

void comm_ranks_add(struct comm_ranks *ranks, int rank)
{
    enum { RANKS_NAMED = 8 };
    if (ranks->count < RANKS_NAMED)
        (void)text_append(ranks->text, sizeof ranks->text, "%s%d", ranks->count ? ", " : "", rank);
    else if (ranks->count == RANKS_NAMED)
        (void)text_append(ranks->text, sizeof ranks->text, ", ...");
    ranks->count++;
}

const char *comm_ranks_text(const struct comm_ranks *ranks)
{
    return ranks->count ? ranks->text : "?";
}

int comm_differ(const char *comm, struct comm_issued a, struct comm_issued b, struct muster_error *err)
{
    char one[COMM_TEXT], two[COMM_TEXT];
    return error_set(err, MUSTER_E_PEER,
                     "ranks differ in comm %s: rank %d issued %s as #%llu, rank %d issued %s as #%llu", comm,
                     a.rank, comm_op_text(one, a.op), (unsigned long long)a.sequence, b.rank,
                     comm_op_text(two, b.op), (unsigned long long)b.sequence);
}

int comm_late(const struct comm_call *call, uint64_t sequence, const struct comm_ranks *missing,
              struct muster_error *err)
{
    char text[COMM_CALL_TEXT];
    return error_set(err, MUSTER_E_TIMEOUT, "%s waited %.1f s on rank %d for rank %s",
                     comm_call_text(text, call, sequence), (double)call->comm->timeout_ns / (double)NS_PER_S,
                     comm_named(call->comm, call->comm->rank), comm_ranks_text(missing));
}

int comm_aborted(const struct comm_call *call, uint64_t sequence, struct muster_error *err)
{
    char text[COMM_CALL_TEXT];
    return error_set(err, MUSTER_E_CANCELLED, "%s was aborted", comm_call_text(text, call, sequence));
}
