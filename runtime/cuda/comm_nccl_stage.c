/* comm_nccl_stage.c - buffers that NCCL cannot use as they are: a host's memory, and results that are added
 * to their buffer. */
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/check.h"
#include "kernels/cuda/operations.h"
#include "proto/base/error.h"
#include "runtime/cuda/comm_nccl_internal.h"

/* ---- memory ---- */

static void block_free(struct nccl_comm *comm, struct device_arena *block)
{
    comm->comm.device_ops->arena_destroy(comm->comm.device, block);
}

/* The block of this class with room for so many bytes; a larger one where there is none yet. */
static struct device_arena *block_of(struct nccl_comm *comm, enum memory_class memory, int64_t bytes,
                                     struct muster_error *err)
{
    struct nccl_stage *stage = &comm->stage;
    struct device_arena **largest = memory == MEMORY_PINNED ? &stage->pinned : &stage->device;
    int64_t size = 1 << 16;
    if (*largest && (*largest)->bytes >= bytes)
        return *largest;
    while (size < bytes)
        size *= 2; /* so that there are few: comm_check keeps the count far below the end */
    if (stage->count == STAGE_BLOCKS) {
        (void)error_set(err, MUSTER_E_LIMIT, "comm %s: more than %d buffers, the next of %lld bytes",
                        comm->comm.name, STAGE_BLOCKS, (long long)size);
        return NULL;
    }
    struct device_arena *block = &stage->blocks[stage->count];
    if (comm->comm.device_ops->arena_create(comm->comm.device, memory, size, block, err)) {
        (void)error_wrap(err, "a buffer of comm %s", comm->comm.name);
        return NULL;
    }
    stage->count++;
    *largest = block;
    return block;
}

int nccl_stage_open(struct nccl_comm *comm, struct muster_error *err)
{
    return block_of(comm, MEMORY_DEVICE, 1, err) && block_of(comm, MEMORY_PINNED, 1, err) ? 0 : -1;
}

void nccl_stage_free(struct nccl_comm *comm)
{
    while (comm->stage.count)
        block_free(comm, &comm->stage.blocks[--comm->stage.count]);
}

/* ---- buffers of an operation ---- */

static int64_t sent_bytes(const struct nccl_comm *comm, const struct comm_op *op)
{
    int64_t part = comm_part_bytes(op);
    if (op->kind == COMM_RECV || op->kind == COMM_BROADCAST) /* a broadcast sends from recv */
        return 0;
    return comm_sends_blocks(op->kind) ? part * comm->comm.size : part;
}

static int64_t received_bytes(const struct nccl_comm *comm, const struct comm_op *op)
{
    int64_t part = comm_part_bytes(op);
    if (op->kind == COMM_SEND)
        return 0;
    return op->kind == COMM_ALL_GATHER || op->kind == COMM_ALL_TO_ALL ? part * comm->comm.size : part;
}

static int memory_type(const void *buffer, enum cudaMemoryType *type, struct muster_error *err)
{
    struct cudaPointerAttributes attributes = {.type = cudaMemoryTypeUnregistered};
    const cudaError_t status = cudaPointerGetAttributes(&attributes, buffer);
    if (status != cudaSuccess) /* memory that is not CUDA's is no error since CUDA 11 */
        return cuda_error(err, (int)status, "cudaPointerGetAttributes");
    *type = attributes.type;
    return 0;
}

/* Whether NCCL may use memory of this type. */
static bool is_device_memory(enum cudaMemoryType type)
{
    return type == cudaMemoryTypeDevice || type == cudaMemoryTypeManaged;
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Memory of a result that is added: of the comm's caller, or our own. */
static void *sums_of(struct nccl_comm *comm, int64_t bytes, struct muster_error *err)
{
    const struct nccl_family *family = comm->family;
    if (!family->sums) {
        const struct device_arena *block = block_of(comm, MEMORY_DEVICE, bytes, err);
        return block ? block->base : NULL;
    }
    if (bytes <= family->sums_bytes)
        return family->sums;
    (void)error_set(err, MUSTER_E_LIMIT, "comm %s: a result of %lld bytes to be added, and room for %lld",
                    comm->comm.name, (long long)bytes, (long long)family->sums_bytes);
    return NULL;
}

int nccl_stage_prepare(struct nccl_comm *comm, const struct comm_call *call, struct nccl_buffers *buffers,
                       struct muster_error *err)
{
    const struct comm_op *op = &call->op;
    int64_t in = sent_bytes(comm, op), out = received_bytes(comm, op);
    enum cudaMemoryType send = cudaMemoryTypeDevice, recv = cudaMemoryTypeDevice;
    *buffers = (struct nccl_buffers){.send = op->kind == COMM_BROADCAST ? call->recv : call->send,
                                     .recv = call->recv};
    if ((in && memory_type(call->send, &send, err)) || (out && memory_type(call->recv, &recv, err)))
        return -1;
    buffers->stage_in = !is_device_memory(op->kind == COMM_BROADCAST ? recv : send);
    buffers->stage_out = !is_device_memory(recv);
    buffers->of_device = (op->kind == COMM_BROADCAST ? recv : send) != cudaMemoryTypeUnregistered;
    buffers->add = op->accumulate;
    if (buffers->add && op->dtype != DTYPE_F32)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "%s of %s, accumulating, by NCCL: only f32 can be added; reduce into another buffer",
                         comm_kind_name(op->kind), dtype_name(op->dtype));
    if (buffers->add && buffers->stage_out)
        return error_set(err, MUSTER_E_UNSUPPORTED, "%s, accumulating, into host memory by NCCL",
                         comm_kind_name(op->kind));
    if (buffers->add && !buffers->stage_in)
        return (buffers->recv = sums_of(comm, out, err)) ? 0 : -1;
    if (!buffers->stage_in && !buffers->stage_out)
        return 0;
    struct device_arena *there = block_of(comm, MEMORY_DEVICE, aligned(in) + aligned(out), err);
    struct device_arena *here = there && (buffers->stage_in || buffers->stage_out)
                                    ? block_of(comm, MEMORY_PINNED, aligned(in) + aligned(out), err)
                                    : there;
    if (!there || !here)
        return -1;
    if (buffers->stage_out || buffers->add)
        buffers->recv = (char *)there->base + aligned(in);
    if (buffers->stage_in)
        buffers->send = op->kind == COMM_BROADCAST ? buffers->recv : there->base;
    return 0;
}

/* ---- before and after ---- */

static void host_copy(void *argument)
{
    struct nccl_copy *copy = argument;
    (void)pthread_mutex_lock(&copy->family->copying);
    if (copy->bytes && copy->from)
        memcpy(copy->to, copy->from, copy->bytes);
    else if (copy->bytes)
        memset(copy->to, 0xff, copy->bytes);
    copy->bytes = 0;
    (void)pthread_mutex_unlock(&copy->family->copying);
}

static void set_copy(struct nccl_comm *comm, struct nccl_copy *copy, void *to, const void *from,
                     int64_t bytes)
{
    (void)pthread_mutex_lock(&comm->family->copying);
    *copy = (struct nccl_copy){comm->family, to, from, (size_t)bytes};
    (void)pthread_mutex_unlock(&comm->family->copying);
}

void nccl_stage_disarm(struct nccl_comm *comm)
{
    (void)pthread_mutex_lock(&comm->family->copying);
    for (int slot = 0; slot < COMM_CALLS; slot++) {
        comm->copies_in[slot].from = NULL;
        comm->copies_out[slot].bytes = 0;
    }
    (void)pthread_mutex_unlock(&comm->family->copying);
}

static int stage_check(cudaError_t status, const char *function, struct muster_error *err)
{
    return status == cudaSuccess ? 0 : cuda_error(err, (int)status, function);
}

/* Whether the copy can be made now. An early copy gives the peers the caller's values even if this rank fails
 * before the copy's turn. It is not possible where work on the device may still write the buffer, or
 * operations under way use the block. The comm's own stream is empty. */
static bool is_copied_now(const struct nccl_comm *comm, const struct nccl_buffers *buffers,
                          cudaStream_t stream)
{
    const bool empty = atomic_load(&comm->comm.issued) == atomic_load(&comm->comm.finished);
    return stream == comm->own || (empty && !buffers->of_device);
}

int nccl_stage_in(struct nccl_comm *comm, const struct comm_call *call, int slot,
                  const struct nccl_buffers *buffers, cudaStream_t stream, struct muster_error *err)
{
    if (!buffers->stage_in)
        return 0;
    bool root = call->op.kind == COMM_BROADCAST;
    int64_t in = sent_bytes(comm, &call->op), bytes = root ? received_bytes(comm, &call->op) : in;
    char *pinned = (char *)comm->stage.pinned->base + (root ? aligned(in) : 0);
    struct nccl_copy *copy = &comm->copies_in[slot];
    set_copy(comm, copy, pinned, root ? call->recv : call->send, bytes);
    if (is_copied_now(comm, buffers, stream))
        host_copy(copy);
    else if (stage_check(cudaLaunchHostFunc(stream, host_copy, copy), "cudaLaunchHostFunc", err))
        return -1;
    return stage_check(cudaMemcpyAsync((void *)(uintptr_t)buffers->send, pinned, (size_t)bytes,
                                       cudaMemcpyHostToDevice, stream),
                       "cudaMemcpyAsync", err);
}

int nccl_stage_out(struct nccl_comm *comm, const struct comm_call *call, int slot,
                   const struct nccl_buffers *buffers, cudaStream_t stream, struct muster_error *err)
{
    int64_t bytes = received_bytes(comm, &call->op);
    if (buffers->add)
        return cuda_accumulate(call->recv, buffers->recv, 1, call->op.count, stream, err);
    if (!buffers->stage_out)
        return 0;
    char *pinned = (char *)comm->stage.pinned->base + aligned(sent_bytes(comm, &call->op));
    struct nccl_copy *copy = &comm->copies_out[slot];
    set_copy(comm, copy, call->recv, pinned, bytes);
    if (stage_check(cudaMemcpyAsync(pinned, buffers->recv, (size_t)bytes, cudaMemcpyDeviceToHost, stream),
                    "cudaMemcpyAsync", err))
        return -1;
    return stream == comm->own /* nccl_stage_end does it */
               ? 0
               : stage_check(cudaLaunchHostFunc(stream, host_copy, copy), "cudaLaunchHostFunc", err);
}

void nccl_stage_end(struct nccl_comm *comm, int slot)
{
    if (comm->copies_out[slot].family) /* 0 bytes where this operation has none */
        host_copy(&comm->copies_out[slot]);
}
