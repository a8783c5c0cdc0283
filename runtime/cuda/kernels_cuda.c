/* kernels_cuda.c - struct kernels of a CUDA device: each slot enqueues its operation of kernels/cuda or its
 * product (products.h) on the handle's stream and passes an error on to the handle. */
#include "runtime/cuda/kernels_cuda.h"

#include "kernels/cuda/operations.h"
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
#define ENQUEUER(symbol, parameters, arguments, on)                                                          \
    static void enqueue_##symbol(KERNELS_EACH parameters, void *stream)                                      \
    {                                                                                                        \
        ENQUEUE(cuda_##symbol(KERNELS_EACH arguments, on, err));                                             \
    }
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

/* 128 bytes: every row begins at a line of the cache, as the first row does, and cuBLASLt's and our own
 * kernels may take 16 bytes at a time. */
enum { CUDA_ROW_MULTIPLE = 32 };

/* A head's weight gradient is read and written once a chunk: few of them. */
enum { CUDA_CHUNK_BYTES = 512 << 20 };

#define TABLE_HEAD(table_name)                                                                               \
    .abi = KERNELS_ABI, .size = sizeof(struct kernels), .name = (table_name), .value = DTYPE_F32,            \
    .weight = DTYPE_F32, .statistic = DTYPE_F32, .gradient = DTYPE_F32, .row_multiple = CUDA_ROW_MULTIPLE,   \
    .chunk_bytes = CUDA_CHUNK_BYTES, .compress = &kernels_compress_cuda

const struct kernels *kernels_cuda(bool tf32)
{
    static const struct kernels f32 = {
        TABLE_HEAD("cuda-f32"),
#define OPERATION(operation, parameters, arguments) .operation = enqueue_##operation,
#define FUSED                                       OPERATION
#define WORK(operation, parameters, arguments)      .operation = cuda_##operation,
#include "kernels/operations.inc"
    };
    static const struct kernels with_tf32 = {
        TABLE_HEAD("cuda-tf32"),
#define OPERATION(operation, parameters, arguments)                                                          \
    .operation = KERNELS_PICK(CUDA_TENSOR_##operation, enqueue_##operation##_tf32, enqueue_##operation),
#define FUSED                                  OPERATION
#define WORK(operation, parameters, arguments) .operation = cuda_##operation,
#include "kernels/operations.inc"
    };
    return tf32 ? &with_tf32 : &f32;
}
