/* operations.h - the operations that CUDA has, all for float: all of kernels.h but the linear_ ones, which
 * are a library's.
 *
 * Each cuda_NAME has the arguments of kernels.h's slot NAME, the same shapes and the same rules for its
 * outputs, and one more: err. (A slot returns nothing; here a launch that is refused is an error of its own
 * call.) Pointers are device memory, `scalars`, `total`, `count` and norm_squared's out too; stream is a
 * cudaStream_t, NULL the default stream, of the calling thread's current device. A function only enqueues,
 * neither allocates nor waits, may be captured into a graph, and returns 0, or -1 with err filled: nothing
 * was enqueued then, or of an operation of several launches only the first ones, so its outputs are lost.
 * Any thread may call; two streams may run the same operation at once with work memory of their own.
 *
 * Sums are in a fixed order that depends on the sizes alone: the same call gives the same bits.
 *
 * cuda_NAME_bf16 and cuda_NAME_f16 are the same operation over values and weights of 16 bits; statistics and
 * gradients of parameters are float.
 *
 * embedding_backward reads all B*T tokens for every distinct one. attention takes any head size, and is
 * fastest where it is a multiple of 64 and every row of q, k, v and dout begins at a multiple of 16 bytes;
 * sizes that are no attention, an unknown kind of activation, an unknown dtype, and a parameter_class outside
 * 0..7 are MUSTER_E_INVALID. An optimizer launches a kernel for each segment. conv2d_work is 0: convolutions
 * need none. */
#ifndef MUSTER_KERNELS_CUDA_OPERATIONS_H
#define MUSTER_KERNELS_CUDA_OPERATIONS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Products of a library, on a stream's handle (runtime/cuda/products.h). */
#define CUDA_LIBRARY_linear_forward             ~,
#define CUDA_LIBRARY_linear_backward_input      ~,
#define CUDA_LIBRARY_linear_backward_weight     ~,
#define CUDA_LIBRARY_linear_activation_forward  ~,
#define CUDA_LIBRARY_linear_backward_activation ~,
/* It has a parameter that its slot lacks: declared below. */
#define CUDA_OTHER_norm_squared ~,

#define CUDA_DECLARE(symbol, parameters)                                                                     \
    int symbol(KERNELS_EACH parameters, void *stream, struct muster_error *err);
#define OPERATION(name, parameters, arguments)                                                               \
    CUDA_DECLARE(cuda_##name, parameters)                                                                    \
    CUDA_DECLARE(cuda_##name##_bf16, parameters)                                                             \
    CUDA_DECLARE(cuda_##name##_f16, parameters)
#define PRODUCT(name, parameters, arguments)                                                                 \
    KERNELS_PICK(CUDA_LIBRARY_##name, , OPERATION(name, parameters, arguments))
#define FIXED(name, parameters, arguments)                                                                   \
    KERNELS_PICK(CUDA_OTHER_##name, , CUDA_DECLARE(cuda_##name, parameters))
#define WORK(name, parameters, arguments) size_t cuda_##name parameters;
/* Compression of gradients and opening of parameters in few bits: the functions of runtime/compress and
 * runtime/rounding, with their bits but for the figures, whose sums have another order. `gradient`,
 * `feedback`, `factor` and the factors are floats. */
#define COMPRESSION(name, parameters, arguments) CUDA_DECLARE(cuda_##name, parameters)
#define COMPRESSION_WORK(name)                   size_t cuda_##name(void);
#include "kernels/operations.inc"

/* The same by tensor cores, whose products round both factors to tf32 (10 bits of mantissa) and add in float;
 * heads wider than 128, and attention with a cap or with a window on both sides, are computed as above. Needs
 * sm_80. */
extern __typeof__(cuda_attention_forward) cuda_attention_forward_tf32;
extern __typeof__(cuda_attention_backward) cuda_attention_backward_tf32;

/* The slot has no work memory; two passes need some: cuda_norm_squared_work() bytes, aligned for double. */
int cuda_norm_squared(double *out, const void *values, int64_t n, int beta, void *work, void *stream,
                      struct muster_error *err);
size_t cuda_norm_squared_work(void);

#ifdef __cplusplus
}
#endif
#endif
