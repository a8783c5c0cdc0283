/* comm_nccl_issue.c - an operation of comm.h as calls of NCCL on a stream: see comm_nccl.h. */
#include <stdio.h>

#include "kernels/cuda/check.h"
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/cuda/comm_nccl_internal.h"
#include "runtime/cuda/cuda_query.h"
#include "runtime/cuda/cuda_stream.h"

/* ---- in NCCL's words ---- */

static ncclDataType_t type_of(enum dtype dtype)
{
    static const ncclDataType_t types[DTYPE_COUNT] = {
        [DTYPE_F32] = ncclFloat32, [DTYPE_F64] = ncclFloat64, [DTYPE_BF16] = ncclBfloat16,
        [DTYPE_F16] = ncclFloat16, [DTYPE_I32] = ncclInt32,   [DTYPE_U8] = ncclUint8,
    };
    return types[dtype]; /* comm_check knows it */
}

static ncclRedOp_t reduction_of(enum comm_reduction reduction)
{
    static const ncclRedOp_t ops[] = {
        [REDUCE_SUM] = ncclSum, [REDUCE_AVERAGE] = ncclAvg, [REDUCE_MAX] = ncclMax};
    return ops[reduction];
}

/* One operation on its way to a stream, or a group of sends and receives. */
struct launch {
    struct nccl_comm *comm;
    struct comm_call call;
    const struct comm_transfer *group; /* [count]; NULL: call alone */
    int count;
    cudaStream_t stream;
    const struct cuda_stream_handle *handle; /* handle of the device's stream; NULL: stream is ours */
    int slot;                                /* the first */
    struct nccl_buffers buffers;
    struct muster_error *err;
    bool failed;
};

static const char *launch_name(const struct launch *l)
{
    return l->group && l->count > 1 ? "transfers" : comm_kind_name(l->call.op.kind);
}

static ncclResult_t exchange(const struct nccl_calls *calls, const struct launch *l, ncclComm_t handle,
                             ncclDataType_t type)
{
    const struct comm_op *op = &l->call.op;
    struct nccl_comm *comm = l->comm;
    int64_t part = comm_part_bytes(op);
    ncclResult_t result = calls->group_start();
    if (result != ncclSuccess)
        return result;
    for (int peer = 0; peer < comm->comm.size && result == ncclSuccess; peer++) {
        result = calls->send((const char *)l->buffers.send + peer * part, (size_t)op->count, type, peer,
                             handle, l->stream);
        if (result == ncclSuccess)
            result = calls->recv((char *)l->buffers.recv + peer * part, (size_t)op->count, type, peer, handle,
                                 l->stream);
    }
    ncclResult_t end = calls->group_end(); /* also after an error: a group must not stay open */
    return result == ncclSuccess ? end : result;
}

/* NCCL does the operations of a group at once, so that stages may exchange results. */
static ncclResult_t call_group(const struct launch *l, ncclComm_t handle)
{
    const struct nccl_calls *calls = l->comm->family->calls;
    ncclResult_t result = calls->group_start();
    if (result != ncclSuccess)
        return result;
    for (int i = 0; i < l->count && result == ncclSuccess; i++) {
        const struct comm_transfer *t = &l->group[i];
        const size_t count = (size_t)t->op.count;
        if (t->op.kind == COMM_SEND)
            result = calls->send(t->send, count, type_of(t->op.dtype), t->op.root, handle, l->stream);
        else
            result = calls->recv(t->recv, count, type_of(t->op.dtype), t->op.root, handle, l->stream);
    }
    const ncclResult_t ended = calls->group_end();
    return result == ncclSuccess ? ended : result;
}

static ncclResult_t call_nccl(const struct launch *l, ncclComm_t handle)
{
    if (l->group)
        return call_group(l, handle);
    const struct nccl_calls *calls = l->comm->family->calls;
    const struct comm_op *op = &l->call.op;
    const struct nccl_buffers *b = &l->buffers;
    ncclDataType_t type = op->kind == COMM_BARRIER ? ncclUint8 : type_of(op->dtype);
    size_t count = (size_t)op->count;
    switch (op->kind) {
    case COMM_ALL_GATHER:
        return calls->all_gather(b->send, b->recv, count, type, handle, l->stream);
    case COMM_REDUCE_SCATTER:
        return calls->reduce_scatter(b->send, b->recv, count, type, reduction_of(op->reduction), handle,
                                     l->stream);
    case COMM_ALL_REDUCE:
        return calls->all_reduce(b->send, b->recv, count, type, reduction_of(op->reduction), handle,
                                 l->stream);
    case COMM_BROADCAST:
        return calls->broadcast(b->send, b->recv, count, type, op->root, handle, l->stream);
    case COMM_ALL_TO_ALL:
        return exchange(calls, l, handle, type);
    case COMM_SEND:
        return calls->send(b->send, count, type, op->root, handle, l->stream);
    case COMM_RECV:
        return calls->recv(b->recv, count, type, op->root, handle, l->stream);
    default: /* a barrier: one byte that everybody adds to */
        return calls->all_reduce(l->comm->barrier.base, l->comm->barrier.base, 1, ncclUint8, ncclSum, handle,
                                 l->stream);
    }
}

/* ---- enqueuing ---- */

static int cuda_check(const struct launch *l, cudaError_t status, const char *function)
{
    return status == cudaSuccess ? 0 : cuda_error(l->err, (int)status, function);
}

static int enqueue_nccl(struct launch *l)
{
    struct nccl_family *family = l->comm->family;
    const char *what = launch_name(l);
    if (!l->group && !l->call.op.count && l->call.op.kind != COMM_BARRIER)
        return 0;
    (void)pthread_mutex_lock(&family->lock);
    ncclComm_t handle = l->comm->handle;
    l->comm->issuing = true;
    nccl_family_enter(family, l->comm, (struct nccl_inside){what, .limit_ns = l->comm->comm.timeout_ns});
    ncclResult_t result = handle ? call_nccl(l, handle) : ncclSuccess;
    nccl_family_leave(family, l->comm);
    bool failed = result != ncclSuccess && result != ncclInProgress;
    if (failed)
        (void)nccl_error(family->calls, handle, result, what, l->err);
    (void)pthread_mutex_unlock(&family->lock);
    if (failed)
        return nccl_peers_reason(family, result, l->err);
    if (nccl_family_check(family, l->err))
        return -1;
    if (!handle)
        return nccl_family_ended(family, what, l->err);
    /* Until the state is good again, the operation may not be on the stream. */
    struct instant deadline = instant_add(clock_now(NULL), l->comm->comm.timeout_ns);
    return result == ncclInProgress ? nccl_peers_wait(family, handle, deadline, what, l->err) : 0;
}

/* On the device each operation waits for the operation before it: of the family, or of the comm, whose
 * buffers they share. */
static int enqueue_order(struct launch *l)
{
    const struct nccl_family *family = l->comm->family;
    const struct nccl_comm *last = family->by_schedule ? family->last_comm : l->comm;
    if (!last || !last->last_ended || last->last_stream == l->stream)
        return 0;
    return cuda_check(l, cudaStreamWaitEvent(l->stream, last->last_ended, 0), "cudaStreamWaitEvent");
}

/* The call's buffers. Those of a group are used as they are. */
static int launch_prepare(struct launch *l)
{
    for (int i = 0; l->group && i < l->count; i++) {
        const struct comm_call call = {
            .comm = &l->comm->comm, .op = l->group[i].op, .send = l->group[i].send, .recv = l->group[i].recv};
        if (nccl_stage_prepare(l->comm, &call, &l->buffers, l->err))
            return -1;
        if (l->buffers.stage_in || l->buffers.stage_out)
            return error_set(l->err, MUSTER_E_UNSUPPORTED, "a group with host memory by NCCL");
    }
    return l->group ? 0 : nccl_stage_prepare(l->comm, &l->call, &l->buffers, l->err);
}

static struct nccl_slot *launch_slot(const struct launch *l, int i)
{
    return &l->comm->slots[(l->slot + i) % COMM_CALLS];
}

static int record_all(struct launch *l, bool begun)
{
    for (int i = 0; i < l->count; i++) {
        struct nccl_slot *slot = launch_slot(l, i);
        slot->counts = i == 0;
        if (cuda_check(l, cudaEventRecord(begun ? slot->begun : slot->ended, l->stream), "cudaEventRecord"))
            return -1;
    }
    return 0;
}

static int enqueue_all(struct launch *l)
{
    struct nccl_comm *comm = l->comm;
    struct nccl_family *family = comm->family;
    if ((!l->handle && nccl_family_use(family, l->err)) || /* else the device has seen to it */
        launch_prepare(l) || enqueue_order(l) || record_all(l, true) ||
        (!l->group && nccl_stage_in(comm, &l->call, l->slot, &l->buffers, l->stream, l->err)) ||
        enqueue_nccl(l) ||
        (!l->group && nccl_stage_out(comm, &l->call, l->slot, &l->buffers, l->stream, l->err)) ||
        record_all(l, false))
        return -1;
    comm->last_ended = launch_slot(l, l->count - 1)->ended;
    comm->last_stream = l->stream;
    family->last_comm = comm;
    return 0;
}

static void enqueue(void *argument)
{
    struct launch *l = argument;
    if (l->handle && l->handle->note)
        l->handle->note(l->handle, launch_name(l));
    l->failed = enqueue_all(l) != 0;
}

/* ---- the ring of calls ---- */

/* nccl_look_advance for a caller without the lock; its error is the family's. */
static int count_ended(struct nccl_comm *comm, struct muster_error *err)
{
    struct muster_error error = {0};
    (void)pthread_mutex_lock(&comm->family->lock);
    int failed = nccl_look_advance(comm, &error);
    (void)pthread_mutex_unlock(&comm->family->lock);
    if (failed)
        nccl_family_fail(comm->family, &error);
    return nccl_family_check(comm->family, err) || comm->comm.device_ops->poll_error(comm->comm.device, err)
               ? -1
               : 0;
}

/* So many places in the ring. */
static int await_slots(struct nccl_comm *comm, int count, struct muster_error *err)
{
    int64_t nap = 20 * NS_PER_US;
    for (;;) {
        if (count_ended(comm, err))
            return -1;
        if (atomic_load(&comm->comm.issued) - atomic_load(&comm->comm.finished) + (uint64_t)count <=
            COMM_CALLS)
            return 0;
        clock_sleep_until(instant_add(clock_now(NULL), nap));
        nap = nap < NS_PER_MS ? 2 * nap : nap;
    }
}

/* After it was enqueued: it counts, and takes part in the hash of this rank's operations. */
static void count_call(struct nccl_comm *comm, const struct comm_op *op, int slot)
{
    struct {
        int64_t count;
        uint32_t tag;
        int32_t kind, dtype, reduction, root;
    } what = {op->count, op->tag, (int32_t)op->kind, 0, 0, 0};
    if (op->kind == COMM_BARRIER)
        what.count = 0;
    else
        what.dtype = (int32_t)op->dtype;
    if (comm_reduces(op->kind))
        what.reduction = (int32_t)op->reduction;
    if (op->kind == COMM_BROADCAST)
        what.root = op->root;
    (void)pthread_mutex_lock(&comm->family->lock);
    if (!comm_is_pair(op->kind)) { /* the other ranks know nothing of those */
        comm->collectives++;
        comm->last = *op;
        comm->chain = text_hash(comm->chain ? comm->chain : TEXT_HASH_START, &what.count, sizeof what.count);
        comm->chain = text_hash(comm->chain, &what.tag, 5 * sizeof what.tag);
    }
    comm->issuing = false;
    comm->place[slot] = comm->collectives;
    comm->chains[slot] = comm->chain;
    comm_note_issued(&comm->comm, op);
    if (atomic_load(&comm->family->failed)) /* failed since: these copies were not disarmed */
        nccl_stage_disarm(comm);
    (void)pthread_mutex_unlock(&comm->family->lock);
}

/* An operation could not be enqueued: for its own reason, or because an earlier one has failed since. */
static void blame(struct nccl_comm *comm, const struct comm_op *op, struct muster_error *error)
{
    struct nccl_family *family = comm->family;
    ncclResult_t state = ncclSuccess;
    char text[COMM_CALL_TEXT], what[COMM_CALL_TEXT + 32];
    (void)pthread_mutex_lock(&family->lock);
    (void)nccl_look_advance(comm, NULL); /* there is an error already */
    uint64_t issued = atomic_load(&comm->comm.issued), finished = atomic_load(&comm->comm.finished);
    bool asked = comm->handle && family->calls->async_error(comm->handle, &state) == ncclSuccess;
    if (asked && state != ncclSuccess && state != ncclInProgress && finished < issued) {
        (void)snprintf(what, sizeof what, "%s on rank %d",
                       comm_call_text(text, &comm->comm.calls[finished % COMM_CALLS], finished + 1),
                       comm->comm.rank);
        (void)nccl_error(family->calls, comm->handle, state, what, error);
    } else {
        (void)error_wrap(error, "%s #%llu of comm %s on rank %d", comm_kind_name(op->kind),
                         (unsigned long long)issued + 1, comm->comm.name, comm->comm.rank);
    }
    (void)pthread_mutex_unlock(&family->lock);
}

/* through: the device's stream to launch through; NULL: stream is ours. */
static int issue(struct launch *l, struct device_stream *through)
{
    struct nccl_comm *comm = l->comm;
    struct muster_error error = {0}, *err = l->err;
    l->err = &error;
    l->handle = through ? comm->comm.device_ops->stream_handle(through) : NULL;
    l->slot = (int)(atomic_load(&comm->comm.issued) % COMM_CALLS);
    comm->comm.calls[l->slot] = l->call;
    for (int i = 0; l->group && i < l->count; i++)
        comm->comm.calls[(l->slot + i) % COMM_CALLS] = (struct comm_call){
            .comm = &comm->comm, .op = l->group[i].op, .send = l->group[i].send, .recv = l->group[i].recv};
    if (!through)
        enqueue(l);
    else if (comm->comm.device_ops->launch(through, enqueue, l) && !error.code)
        l->failed =
            comm->comm.device_ops->poll_error(comm->comm.device, &error) ||
            error_set(&error, MUSTER_E_STATE, "the stream refused an operation without giving a reason");
    if (!l->failed) {
        for (int i = 0; i < l->count; i++)
            count_call(comm, &comm->comm.calls[(l->slot + i) % COMM_CALLS].op, (l->slot + i) % COMM_CALLS);
        return 0;
    }
    (void)pthread_mutex_lock(&comm->family->lock);
    nccl_stage_disarm(comm); /* the caller's buffers may go now, and the family fails, if it has not yet */
    (void)pthread_mutex_unlock(&comm->family->lock);
    if (nccl_family_check(comm->family, err)) /* that is why */
        return -1;
    blame(comm, &l->call.op, &error);
    nccl_family_fail(comm->family, &error); /* the peers would wait for an operation that never comes */
    return nccl_family_check(comm->family, err);
}

static int issue_on(struct nccl_comm *comm, const struct comm_call *call, struct device_stream *through,
                    cudaStream_t stream, struct muster_error *err)
{
    if (comm_check(&call->op, comm->comm.rank, comm->comm.size, call->send, call->recv, err) ||
        await_slots(comm, 1, err))
        return -1;
    struct launch l = {.comm = comm, .call = *call, .count = 1, .stream = stream, .err = err};
    return issue(&l, through);
}

int nccl_issue(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
               struct device_stream *stream, struct muster_error *err)
{
    const struct cuda_stream_handle *handle = comm->device_ops->stream_handle(stream);
    const struct comm_call call = {.comm = comm, .op = *op, .send = send, .recv = recv};
    return issue_on(nccl_comm_of(comm), &call, stream, handle->stream, err);
}

int nccl_exchange(struct comm *comm, const struct comm_transfer *transfers, int count,
                  struct device_stream *stream, struct muster_error *err)
{
    struct nccl_comm *nccl = nccl_comm_of(comm);
    _Static_assert((int)COMM_TRANSFERS <= (int)COMM_CALLS, "a group has places in the ring");
    if (count < 1 || count > COMM_TRANSFERS)
        return error_set(err, MUSTER_E_LIMIT, "a group of %d transfers; use 1 to %d", count, COMM_TRANSFERS);
    for (int i = 0; i < count; i++) {
        const struct comm_transfer *t = &transfers[i];
        if (!comm_is_pair(t->op.kind))
            return error_set(err, MUSTER_E_INVALID, "%s in a group of transfers", comm_kind_name(t->op.kind));
        if (comm_check(&t->op, comm->rank, comm->size, t->send, t->recv, err))
            return -1;
    }
    if (await_slots(nccl, count, err))
        return -1;
    const struct cuda_stream_handle *handle = comm->device_ops->stream_handle(stream);
    struct launch l = {
        .comm = nccl,
        .call = {.comm = comm, .op = transfers[0].op, .send = transfers[0].send, .recv = transfers[0].recv},
        .group = transfers,
        .count = count,
        .stream = handle->stream,
        .err = err};
    return issue(&l, stream);
}

/* ---- at once ---- */

static int await_end(struct nccl_comm *comm, struct muster_error *err)
{
    int64_t nap = 10 * NS_PER_US;
    for (;;) {
        if (count_ended(comm, err))
            return -1;
        if (atomic_load(&comm->comm.issued) == atomic_load(&comm->comm.finished))
            return 0;
        clock_sleep_until(instant_add(clock_now(NULL), nap));
        nap = nap < NS_PER_MS ? 2 * nap : nap;
    }
}

int nccl_run(struct comm *comm, const struct comm_op *op, const void *send, void *recv,
             struct muster_error *err)
{
    struct nccl_comm *nccl = nccl_comm_of(comm);
    const struct comm_call call = {.comm = comm, .op = *op, .send = send, .recv = recv};
    if (count_ended(nccl, err))
        return -1;
    uint64_t issued = atomic_load(&comm->issued), finished = atomic_load(&comm->finished);
    if (issued != finished)
        return error_set(err, MUSTER_E_STATE,
                         "%llu operations of comm %s are still under way: sync their stream first",
                         (unsigned long long)(issued - finished), comm->name);
    if (issue_on(nccl, &call, NULL, nccl->own, err) || await_end(nccl, err))
        return -1;
    nccl_stage_end(nccl, (int)(issued % COMM_CALLS));
    return 0;
}
