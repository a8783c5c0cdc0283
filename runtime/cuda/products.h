/* products.h - matrix products of a stream, by cuBLASLt: the linear_* slots of struct kernels.
 *
 * A stream that computes has one `struct cuda_products`: cuBLASLt's handle, CUDA_PRODUCTS_WORKSPACE bytes of
 * device memory, and the algorithm that cuBLASLt's heuristic names first for each shape that was met. Nothing
 * is measured and nothing is chosen by load, so that the same shapes get the same algorithms in every run of
 * one version on one kind of GPU. The first call with a shape allocates a little host memory inside cuBLASLt;
 * later calls allocate nothing. Device memory is allocated by open alone.
 *
 * fp32 multiplies and adds in float. tf32 rounds both factors to 10 bits of mantissa first (tensor cores) and
 * adds in float: another table, with another name, for the numerics fingerprint (kernels_cuda.h).
 *
 * bf16 and f16 are types of values: factors of 16 bits, sums in float, one rounding; gradients of weights and
 * of biases are float. A stream multiplies in all of them. The epilogue adds the bias in float there too.
 *
 * A bias is added by the product's epilogue. An activation and its slope are kernels of ours after the
 * product. cuBLASLt has epilogues for gelu, but in fp32 and tf32 they save nothing: on an H100 they ran as a
 * kernel of their own (epilogue::globalKernel: 2.7 ms forward and 1.3 ms backward of a GPT-2 124M's step of 8
 * x 1024 tokens), and a step of 67.2 ms took 1.4 ms less with our kernels. They are less exact, too: gelu is
 * off by 5.2e-6 (relatively by 1e-4 above -3), its slope by 1.6e-5. A bias's gradient is summed by a kernel
 * of ours in an order that depends on the sizes alone: cuBLASLt's epilogue for it neither adds to the values
 * there nor promises an order.
 */
#ifndef MUSTER_RUNTIME_CUDA_PRODUCTS_H
#define MUSTER_RUNTIME_CUDA_PRODUCTS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/operations.h"
#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_stream_handle;

#define CUDA_PRODUCTS_WORKSPACE ((int64_t)32 << 20) /* upper limit of algorithms for sm_90 */
enum { CUDA_PRODUCTS_ALGORITHMS = 4096 };           /* shapes remembered; beyond, the oldest is forgotten */

/* Loads cuBLASLt, allocates, and sets handle->products; handle->stream is the stream, of the calling thread's
 * current device. Fails with the library, version or function that is missing, or MUSTER_E_NOMEM. */
int cuda_products_open(struct cuda_stream_handle *handle, bool tf32, struct muster_error *err);
/* The stream has finished its work. Clears handle->products; accepts a handle without. */
void cuda_products_close(struct cuda_stream_handle *handle);

/* How often an algorithm was asked for: constant once every shape has been met. */
int64_t cuda_products_chosen(const struct cuda_stream_handle *handle);

/* As the slots of kernels.h, on handle's stream. -1 with err: nothing was enqueued, or of several pieces only
 * the first ones. */
#define CUDA_PRODUCT(symbol, parameters)                                                                     \
    int symbol(KERNELS_EACH parameters, const struct cuda_stream_handle *handle, struct muster_error *err);
#define OPERATION(name, parameters, arguments)
#define PRODUCT(name, parameters, arguments)                                                                 \
    KERNELS_PICK(CUDA_LIBRARY_##name,                                                                        \
                 CUDA_PRODUCT(cuda_##name, parameters) CUDA_PRODUCT(cuda_##name##_bf16, parameters)          \
                     CUDA_PRODUCT(cuda_##name##_f16, parameters), )
#define FUSED PRODUCT
#include "kernels/operations.inc"

/* Scratch memory of the stream for one operation, at most CUDA_PRODUCTS_WORKSPACE bytes; NULL with err where
 * handle has no products. */
void *cuda_products_scratch(const struct cuda_stream_handle *handle, const char *operation,
                            struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
