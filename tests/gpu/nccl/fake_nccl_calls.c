/* fake_nccl_calls.c - operations and groups of the fake NCCL: refusals at once, and work that goes to a
 * stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "tests/gpu/nccl/fake_nccl.h"

/* ---- a group of this thread ---- */

struct pending {
    struct ncclComm *comm;
    cudaStream_t stream;
    struct fake_op op;
};

static _Thread_local struct {
    int depth, count, aborts;
    ncclResult_t error;
    struct pending *ops; /* [FAKE_GROUP] */
    struct ncclComm *aborted[FAKE_ABORTS];
} group;

bool fake_group_open(void)
{
    return group.depth > 0;
}

void fake_group_add_abort(struct ncclComm *comm)
{
    if (group.aborts == FAKE_ABORTS) {
        (void)fprintf(stderr, "fake NCCL: more than %d aborts in one group\n", FAKE_ABORTS);
        abort();
    }
    group.aborted[group.aborts++] = comm;
}

/* ---- launching ---- */

static ncclResult_t enqueue(struct fake_work *work)
{
    struct ncclComm *comm = work->comm;
    const char *what = fake_kind_name(work->ops[0].signature.kind);
    if (fake_cudart_records(work->stream)) {
        fake_work_dispose(work);
        return fake_refuse_call(comm, ncclInvalidUsage, "the fake does not record operations");
    }
    work->place = fake_queue_enter(comm, work->stream);
    cudaError_t status = fake_cudart_enqueue(work->stream, what, fake_work_run, work, fake_work_dispose);
    if (status == cudaSuccess)
        return ncclSuccess; /* else the work was disposed of */
    return fake_refuse_call(comm, ncclUnhandledCudaError, "the stream refused the operation: CUDA error %d",
                            (int)status);
}

static void *enqueue_later(void *argument)
{
    struct fake_work *work = argument;
    struct ncclComm *comm = work->comm;
    fake_cudart_use(comm->cuda_device);
    const int64_t cost = fake_thread_ns();
    const int64_t wait = cost ? cost : 2 * NS_PER_MS; /* as long as connecting might take */
    clock_sleep_until(instant_add(clock_now(NULL), wait));
    ncclResult_t result = enqueue(work);
    int waits = ncclInProgress;
    (void)atomic_compare_exchange_strong(&comm->state, &waits, result);
    return NULL;
}

/* Which calls of a non-blocking communicator return early: the first, which connects, and some others. */
static bool returns_early(struct ncclComm *comm)
{
    const char *text = getenv("FAKE_NCCL_IN_PROGRESS");
    uint64_t call = comm->calls++;
    if (comm->blocking || (text && !strcmp(text, "never")))
        return false;
    return (text && !strcmp(text, "always")) || fake_thread_ns() || call == 0 || call * 2654435761u % 8 == 0;
}

/* Enqueues the operations of the group that belong to the same communicator as the one at first. */
static ncclResult_t launch(struct pending *ops, int count, int first)
{
    struct ncclComm *comm = ops[first].comm;
    struct fake_work *work = calloc(1, sizeof *work + (size_t)count * sizeof *work->ops);
    if (!work)
        return fake_refuse_call(comm, ncclSystemError, "no memory");
    *work =
        (struct fake_work){.comm = comm, .stream = ops[first].stream, .sequence = comm->issued, .place = -1};
    for (int i = first; i < count; i++) {
        if (ops[i].comm != comm)
            continue;
        if (ops[i].stream != work->stream) {
            free(work);
            return fake_refuse_call(comm, ncclInvalidUsage, "a group with two streams for one communicator");
        }
        work->ops[work->count++] = ops[i].op;
        ops[i].comm = NULL;
    }
    if (comm->blocking && !fake_inside(comm)) {
        free(work);
        return fake_refuse_call(comm, ncclInternalError, "the call was ended by an abort");
    }
    comm->issued++;
    return returns_early(comm) ? fake_later(comm, enqueue_later, work) : enqueue(work);
}

/* ---- one operation ---- */

struct call {
    const char *function;
    const void *send;
    void *recv;
    size_t count;
    int kind, dtype, op, root;
};

/* Bytes sent and received on this rank. */
static void extent(const struct ncclComm *comm, const struct call *c, size_t *in, size_t *out)
{
    size_t part = c->count * fake_type_size(c->dtype), all = part * (size_t)comm->size;
    *in = c->kind == FAKE_RECV || (c->kind == FAKE_BROADCAST && c->root != comm->rank) ? 0
          : c->kind == FAKE_REDUCE_SCATTER                                             ? all
                                                                                       : part;
    *out = c->kind == FAKE_SEND ? 0 : c->kind == FAKE_ALL_GATHER ? all : part;
}

static ncclResult_t check_memory(struct ncclComm *comm, const struct call *c)
{
    size_t in, out;
    extent(comm, c, &in, &out);
    if (in && fake_cudart_memory(c->send, in) == FAKE_MEMORY_NONE)
        return fake_refuse_call(comm, ncclInvalidArgument,
                                "%s on rank %d: send is not %zu bytes of device memory", c->function,
                                comm->rank, in);
    if (out && fake_cudart_memory(c->recv, out) == FAKE_MEMORY_NONE)
        return fake_refuse_call(comm, ncclInvalidArgument,
                                "%s on rank %d: recv is not %zu bytes of device memory", c->function,
                                comm->rank, out);
    const char *send = c->send, *recv = c->recv;
    if (!in || !out || send >= recv + out || recv >= send + in)
        return ncclSuccess;
    size_t part = c->count * fake_type_size(c->dtype), mine = (size_t)comm->rank * part;
    bool in_place = c->kind == FAKE_ALL_GATHER       ? send == recv + mine
                    : c->kind == FAKE_REDUCE_SCATTER ? recv == send + mine
                                                     : recv == send;
    return in_place ? ncclSuccess
                    : fake_refuse_call(comm, ncclInvalidArgument,
                                       "%s on rank %d: send and recv overlap and are not in place",
                                       c->function, comm->rank);
}

static ncclResult_t check(struct ncclComm *comm, const struct call *c)
{
    bool whole = c->dtype <= ncclUint64;
    if (!fake_type_size(c->dtype))
        return fake_refuse_call(comm, ncclInvalidArgument, "%s: type %d", c->function, c->dtype);
    if (c->op < ncclSum || c->op > ncclAvg || (c->op == ncclAvg && whole))
        return fake_refuse_call(comm, ncclInvalidArgument, "%s: reduction %d of type %d", c->function, c->op,
                                c->dtype);
    if (c->root < 0 || c->root >= comm->size)
        return fake_refuse_call(comm, ncclInvalidArgument, "%s: rank %d of %d", c->function, c->root,
                                comm->size);
    if (fake_is_pair(c->kind) && c->root == comm->rank && !group.depth)
        return fake_refuse_call(comm, ncclInvalidUsage, "%s on rank %d: to oneself only in a group",
                                c->function, comm->rank);
    if (atomic_load(&comm->finalized))
        return fake_refuse_call(comm, ncclInvalidUsage, "%s on rank %d: the communicator was finalized",
                                c->function, comm->rank);
    return check_memory(comm, c);
}

static ncclResult_t add(struct ncclComm *comm, const struct call *c, cudaStream_t stream)
{
    struct pending pending = {
        comm,
        stream,
        {.signature = {c->count, c->kind, c->dtype, c->op, c->root}, .send = c->send, .recv = c->recv}};
    if (!group.depth)
        return launch(&pending, 1, 0);
    if (!group.ops)
        group.ops = calloc(FAKE_GROUP, sizeof *group.ops);
    if (!group.ops || group.count == FAKE_GROUP)
        return fake_refuse_call(comm, ncclInternalError, "a group of more than %d operations", FAKE_GROUP);
    group.ops[group.count++] = pending;
    return ncclSuccess;
}

static ncclResult_t issue(struct ncclComm *comm, const struct call *c, cudaStream_t stream)
{
    ncclResult_t result = fake_enter(comm, c->function);
    if (result == ncclSuccess) {
        result = check(comm, c);
        if (result == ncclSuccess)
            result = add(comm, c, stream);
        fake_leave(comm);
    }
    if (group.depth && result != ncclSuccess)
        group.error = result;
    return result;
}

FAKE_EXPORT ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                                       ncclComm_t comm, cudaStream_t stream)
{
    const struct call c = {"ncclAllGather", send, recv, count, FAKE_ALL_GATHER, (int)dtype, 0, 0};
    return issue(comm, &c, stream);
}

FAKE_EXPORT ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    const struct call c = {"ncclReduceScatter", send,       recv,    count,
                           FAKE_REDUCE_SCATTER, (int)dtype, (int)op, 0};
    return issue(comm, &c, stream);
}

FAKE_EXPORT ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                                       ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    const struct call c = {"ncclAllReduce", send, recv, count, FAKE_ALL_REDUCE, (int)dtype, (int)op, 0};
    return issue(comm, &c, stream);
}

FAKE_EXPORT ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t dtype,
                                       int root, ncclComm_t comm, cudaStream_t stream)
{
    const struct call c = {"ncclBroadcast", send, recv, count, FAKE_BROADCAST, (int)dtype, 0, root};
    return issue(comm, &c, stream);
}

FAKE_EXPORT ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t dtype, int peer,
                                  ncclComm_t comm, cudaStream_t stream)
{
    const struct call c = {"ncclSend", send, NULL, count, FAKE_SEND, (int)dtype, 0, peer};
    return issue(comm, &c, stream);
}

FAKE_EXPORT ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                                  cudaStream_t stream)
{
    const struct call c = {"ncclRecv", NULL, recv, count, FAKE_RECV, (int)dtype, 0, peer};
    return issue(comm, &c, stream);
}

FAKE_EXPORT ncclResult_t ncclGroupStart(void)
{
    if (fake_refuse("ncclGroupStart"))
        return fake_refuse_call(NULL, ncclSystemError, "ncclGroupStart is refused by FAKE_CUDA_FAIL");
    group.depth++;
    return ncclSuccess;
}

static ncclResult_t worse(ncclResult_t a, ncclResult_t b)
{
    if (a == ncclSuccess || (a == ncclInProgress && b != ncclSuccess))
        return b;
    return a;
}

static ncclResult_t end_group(bool refused)
{
    ncclResult_t result = group.error;
    int count = group.count, aborts = group.aborts;
    group.error = ncclSuccess;
    group.count = group.aborts = 0;
    for (int i = 0; i < count && !refused && (result == ncclSuccess || result == ncclInProgress); i++) {
        if (group.ops[i].comm)
            result = worse(result, launch(group.ops, count, i));
    }
    for (int i = 0; i < aborts; i++)
        result = worse(fake_finish_abort(group.aborted[i]), result);
    free(group.ops);
    group.ops = NULL;
    return result;
}

FAKE_EXPORT ncclResult_t ncclGroupEnd(void)
{
    if (group.depth == 0)
        return fake_refuse_call(NULL, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    bool refused = fake_refuse("ncclGroupEnd") != 0;
    if (--group.depth == 0) {
        ncclResult_t result = end_group(refused);
        if (!refused)
            return result;
    }
    return refused ? fake_refuse_call(NULL, ncclSystemError, "ncclGroupEnd is refused by FAKE_CUDA_FAIL")
                   : ncclSuccess;
}
