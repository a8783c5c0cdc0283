/* kernels_cuda.c - struct kernels of a CUDA device: each slot enqueues its operation of kernels/cuda or its
 * product (products.h) on the handle's stream and passes an error on to the handle. */
#include "runtime/cuda/kernels_cuda.h"

#include "kernels/cuda/operations.h"
#include "proto/base/error.h"
#include "runtime/cuda/kernels_attention.h"
#include "runtime/cuda/kernels_enqueue.h"
#include "runtime/cuda/products.h"

/* The slot has no work memory: the stream's own has it. */
static int norm_squared_enqueue(double *out, const void *values, int64_t n, int beta,
                                const struct cuda_stream_handle *handle, struct muster_error *err)
{
    void *work = cuda_products_scratch(handle, "norm_squared", err);
    return work ? cuda_norm_squared(out, values, n, beta, work, handle->stream, err) : -1;
}

static void enqueue_norm_squared(double *out, const void *values, int64_t n, int beta, void *stream)
{
    ENQUEUE(norm_squared_enqueue(out, values, n, beta, handle, err));
}

/* One function a slot: a product gets the stream's handle, another operation its CUDA stream. */
#define ENQUEUER_OF(symbol, function, parameters, arguments, on)                                             \
    static void enqueue_##symbol(KERNELS_EACH parameters, void *stream)                                      \
    {                                                                                                        \
        ENQUEUE(function(KERNELS_EACH arguments, on, err));                                                  \
    }
#define ENQUEUER(symbol, parameters, arguments, on)                                                          \
    ENQUEUER_OF(symbol, cuda_##symbol, parameters, arguments, on)
#define OPERATION(name, parameters, arguments)                                                               \
    KERNELS_PICK(CUDA_OTHER_##name, ,                                                                        \
                 ENQUEUER(name, parameters, arguments, KERNELS_PICK(CUDA_LIBRARY_##name, handle, queue)))
#define FUSED OPERATION
#include "kernels/operations.inc"

/* Where tf32 is not the products' own affair. */
#define CUDA_TENSOR_attention_forward  ~,
#define CUDA_TENSOR_attention_backward ~,
#define OPERATION(name, parameters, arguments)                                                               \
    KERNELS_PICK(CUDA_TENSOR_##name, ENQUEUER(name##_tf32, parameters, arguments, queue), )
#include "kernels/operations.inc"

/* ---- values and weights of 16 bits ---- */

/* A library's or ours, by the shape (kernels_attention.c). */
#define CUDA_CHOSEN_attention_forward  ~,
#define CUDA_CHOSEN_attention_backward ~,
#define CUDA_CHOSEN_attention_work     ~,

#define NARROW_ENQUEUER(symbol, name, parameters, arguments)                                                 \
    ENQUEUER_OF(symbol, KERNELS_PICK(CUDA_CHOSEN_##name, chosen_##symbol, cuda_##symbol), parameters,        \
                arguments, KERNELS_PICK(CUDA_LIBRARY_##name, handle, queue))
#define OPERATION(name, parameters, arguments)                                                               \
    NARROW_ENQUEUER(name##_bf16, name, parameters, arguments)                                                \
    NARROW_ENQUEUER(name##_f16, name, parameters, arguments)
#define FUSED OPERATION
#define FIXED(name, parameters, arguments)
#include "kernels/operations.inc"

/* 128 bytes: every row begins at a line of the cache, as the first row does, and cuBLASLt's and our own
 * kernels may take 16 bytes at a time. */
enum { CUDA_ROW_BYTES = 128 };

/* A head's weight gradient is read and written once a chunk: few of them. */
enum { CUDA_CHUNK_BYTES = 512 << 20 };

#define TABLE_HEAD(table_name, values, size_of_value)                                                        \
    .abi = KERNELS_ABI, .size = sizeof(struct kernels), .name = (table_name), .value = (values),             \
    .weight = (values), .statistic = DTYPE_F32, .gradient = DTYPE_F32,                                       \
    .row_multiple = CUDA_ROW_BYTES / (size_of_value), .chunk_bytes = CUDA_CHUNK_BYTES,                       \
    .compress = &kernels_compress_cuda

static const struct kernels f32 = {
    TABLE_HEAD("cuda-f32", DTYPE_F32, 4),
#define OPERATION(operation, parameters, arguments) .operation = enqueue_##operation,
#define FUSED                                       OPERATION
#define WORK(operation, parameters, arguments)      .operation = cuda_##operation,
#include "kernels/operations.inc"
};
static const struct kernels with_tf32 = {
    TABLE_HEAD("cuda-tf32", DTYPE_F32, 4),
#define OPERATION(operation, parameters, arguments)                                                          \
    .operation = KERNELS_PICK(CUDA_TENSOR_##operation, enqueue_##operation##_tf32, enqueue_##operation),
#define FUSED                                  OPERATION
#define WORK(operation, parameters, arguments) .operation = cuda_##operation,
#include "kernels/operations.inc"
};
static const struct kernels bf16 = {
    TABLE_HEAD("cuda-bf16", DTYPE_BF16, 2),
#define OPERATION(operation, parameters, arguments) .operation = enqueue_##operation##_bf16,
#define FUSED                                       OPERATION
#define FIXED(operation, parameters, arguments)     .operation = enqueue_##operation,
#define WORK(operation, parameters, arguments)                                                               \
    .operation = KERNELS_PICK(CUDA_CHOSEN_##operation, chosen_##operation, cuda_##operation),
#include "kernels/operations.inc"
};
static const struct kernels f16 = {
    TABLE_HEAD("cuda-f16", DTYPE_F16, 2),
#define OPERATION(operation, parameters, arguments) .operation = enqueue_##operation##_f16,
#define FUSED                                       OPERATION
#define FIXED(operation, parameters, arguments)     .operation = enqueue_##operation,
#define WORK(operation, parameters, arguments)                                                               \
    .operation = KERNELS_PICK(CUDA_CHOSEN_##operation, chosen_##operation, cuda_##operation),
#include "kernels/operations.inc"
};

void kernels_cuda_with(struct kernels *table, enum dtype values, struct attention_by *by)
{
    *table = *kernels_cuda(values, false);
    table->name = values == DTYPE_BF16 ? "cuda-bf16-cudnn" : "cuda-f16-cudnn";
    table->attention_by = by;
}

const struct kernels *kernels_cuda(enum dtype values, bool tf32)
{
    return values == DTYPE_BF16 ? &bf16 : values == DTYPE_F16 ? &f16 : tf32 ? &with_tf32 : &f32;
}
