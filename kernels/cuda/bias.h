/* bias.h - the bias of a dense layer, added to rows, and its gradient. These functions are not slots of
 * kernels.h: the products in runtime/cuda use them. Conventions as in operations.h. */
#ifndef MUSTER_KERNELS_CUDA_BIAS_H
#define MUSTER_KERNELS_CUDA_BIAS_H

#include <stddef.h>

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* out (N,OC) += bias (OC), to every row, both of type `values`: f32, bf16 or f16 */
int cuda_bias_add(void *out, const void *bias, enum dtype values, int N, int OC, int row, void *stream,
                  struct muster_error *err);

/* dbias (OC), float, = beta*dbias + column sums of dout (N,OC), of type `values`, summed in runs of rows
 * whose number depends on N, OC and work_bytes alone; work: work_bytes of device memory, aligned for float,
 * at least one float a column (else MUSTER_E_LIMIT). */
int cuda_bias_gradient(void *dbias, const void *dout, enum dtype values, int N, int OC, int row, int beta,
                       void *work, size_t work_bytes, void *stream, struct muster_error *err);

/* As cuda_activation_backward in place, on rows, and cuda_bias_gradient of what it stores, with the bits of
 * the two: din (N,C) *= f'(pre (N,C)), dbias (C) = beta*dbias + column sums of din. din is read and written
 * once. */
int cuda_activation_bias_gradient(void *din, void *dbias, const void *pre, enum dtype values, int kind, int N,
                                  int C, int beta, void *work, size_t work_bytes, void *stream,
                                  struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
