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
 * Sums are in a fixed order that depends on the sizes alone: the same call gives the same bits. */
#ifndef MUSTER_KERNELS_CUDA_OPERATIONS_H
#define MUSTER_KERNELS_CUDA_OPERATIONS_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Operations with a slot's arguments and err; signatures.cu checks that. */
#define CUDA_OPERATIONS(X)                                                                                   \
    X(embedding_forward)                                                                                     \
    X(embedding_backward)                                                                                    \
    X(rows_add)                                                                                              \
    X(layernorm_forward)                                                                                     \
    X(layernorm_backward)                                                                                    \
    X(rms_norm_forward)                                                                                      \
    X(rms_norm_backward)                                                                                     \
    X(rotary)                                                                                                \
    X(attention_forward)                                                                                     \
    X(attention_backward)                                                                                    \
    X(conv2d_forward)                                                                                        \
    X(conv2d_backward_input)                                                                                 \
    X(conv2d_backward_weight)                                                                                \
    X(max_pool2d_forward)                                                                                    \
    X(max_pool2d_backward)                                                                                   \
    X(avg_pool2d_forward)                                                                                    \
    X(avg_pool2d_backward)                                                                                   \
    X(mean_forward)                                                                                          \
    X(mean_backward)                                                                                         \
    X(batch_norm_forward)                                                                                    \
    X(batch_norm_fixed)                                                                                      \
    X(batch_norm_backward)                                                                                   \
    X(batch_norm_change)                                                                                     \
    X(batch_norm_step)                                                                                       \
    X(activation_forward)                                                                                    \
    X(activation_backward)                                                                                   \
    X(slice_forward)                                                                                         \
    X(slice_backward)                                                                                        \
    X(gated_forward)                                                                                         \
    X(gated_backward)                                                                                        \
    X(dropout)                                                                                               \
    X(add)                                                                                                   \
    X(accumulate)                                                                                            \
    X(cross_entropy)                                                                                         \
    X(squared_error)                                                                                         \
    X(correct_sum)                                                                                           \
    X(loss_sum)                                                                                              \
    X(clip_factor)                                                                                           \
    X(adamw)                                                                                                 \
    X(adam)                                                                                                  \
    X(sgd)                                                                                                   \
    X(average)                                                                                               \
    X(scale)                                                                                                 \
    X(cast)                                                                                                  \
    X(widen)

int cuda_embedding_forward(void *out, const int32_t *tokens, const void *wte, const void *wpe, int B, int T,
                           int C, void *stream, struct muster_error *err);
/* Reads all B*T tokens for every distinct one. */
int cuda_embedding_backward(void *dwte, void *dwpe, const void *dout, const int32_t *tokens, int B, int T,
                            int C, int V, int maxT, int beta, void *stream, struct muster_error *err);
int cuda_rows_add(void *to, int64_t first, int64_t count, int64_t at, const void *rows, const int32_t *index,
                  int N, int T, int C, void *stream, struct muster_error *err);
int cuda_layernorm_forward(void *out, void *mean, void *rstd, const void *in, const void *weight,
                           const void *bias, int N, int C, double epsilon, void *stream,
                           struct muster_error *err);
int cuda_layernorm_backward(void *din, void *dweight, void *dbias, const void *dout, const void *in,
                            const void *mean, const void *rstd, const void *weight, int N, int C, int beta_in,
                            int beta, void *work, void *stream, struct muster_error *err);
size_t cuda_layernorm_backward_work(int N, int C);
int cuda_rms_norm_forward(void *out, void *rstd, const void *in, const void *weight, int N, int C,
                          double epsilon, double offset, void *stream, struct muster_error *err);
int cuda_rms_norm_backward(void *din, void *dweight, const void *dout, const void *in, const void *rstd,
                           const void *weight, double offset, int N, int C, int beta_in, int beta, void *work,
                           void *stream, struct muster_error *err);
size_t cuda_rms_norm_backward_work(int N, int C);
int cuda_rotary(void *out, const void *in, const struct rotary *rotary, int B, int T, int NH, int HS,
                int backward, int beta, void *stream, struct muster_error *err);
/* Sizes that are no attention are MUSTER_E_INVALID. lengths is device memory too. Any head size; fastest
 * where it is a multiple of 64 and every row of q, k, v and dout begins at a multiple of 16 bytes. */
int cuda_attention_forward(void *out, void *lse, const void *q, const void *k, const void *v,
                           const struct attention *a, void *work, void *stream, struct muster_error *err);
int cuda_attention_backward(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                            const void *v, const void *out, const void *lse, const struct attention *a,
                            const int beta[3], void *work, void *stream, struct muster_error *err);
size_t cuda_attention_work(const struct attention *a);
/* The same by tensor cores, whose products round both factors to tf32 (10 bits of mantissa) and add in float;
 * heads wider than 64, and attention with a cap or with a window
 * on both sides, are computed as above. Needs sm_80. */
int cuda_attention_forward_tf32(void *out, void *lse, const void *q, const void *k, const void *v,
                                const struct attention *a, void *work, void *stream,
                                struct muster_error *err);
int cuda_attention_backward_tf32(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                                 const void *v, const void *out, const void *lse, const struct attention *a,
                                 const int beta[3], void *work, void *stream, struct muster_error *err);
/* An unknown kind is MUSTER_E_INVALID, here and below. */
int cuda_activation_forward(void *out, const void *in, int kind, int64_t n, void *stream,
                            struct muster_error *err);
int cuda_activation_backward(void *din, const void *in, const void *dout, int kind, int beta, int64_t n,
                             void *stream, struct muster_error *err);
int cuda_gated_forward(void *out, const void *gate, const void *up, int kind, int64_t n, void *stream,
                       struct muster_error *err);
int cuda_gated_backward(void *dgate, void *dup, const void *gate, const void *up, const void *dout, int kind,
                        int beta_gate, int beta_up, int64_t n, void *stream, struct muster_error *err);
int cuda_slice_forward(void *out, const void *in, int64_t rows, int row, int first, int width, void *stream,
                       struct muster_error *err);
int cuda_slice_backward(void *din, const void *dout, int64_t rows, int row, int first, int width, int beta,
                        void *stream, struct muster_error *err);
int cuda_dropout(void *out, const void *in, int64_t rows, int width, int rows_per_sample, int64_t sample,
                 uint32_t layer, double p, int beta, const struct step_scalars *scalars, void *stream,
                 struct muster_error *err);
int cuda_add(void *out, const void *a, const void *b, int64_t n, void *stream, struct muster_error *err);
int cuda_accumulate(void *out, const void *in, int beta, int64_t n, void *stream, struct muster_error *err);
int cuda_cross_entropy(void *logits, void *losses, const int32_t *targets, int N, int V, int row,
                       int gradient, const struct step_scalars *scalars, void *stream,
                       struct muster_error *err);
int cuda_squared_error(void *values, void *losses, int32_t *counted, const float *targets, int64_t n,
                       int gradient, const struct step_scalars *scalars, void *stream,
                       struct muster_error *err);
int cuda_loss_sum(double *total, int64_t *count, const void *losses, const int32_t *targets, int64_t n,
                  void *stream, struct muster_error *err);
int cuda_clip_factor(struct step_scalars *scalars, void *stream, struct muster_error *err);
/* A parameter_class outside 0..7 is MUSTER_E_INVALID, for all optimizers; a kernel is launched for each
 * segment. */
int cuda_adamw(void *param, void *m, void *v, const void *grad, const struct optimizer_segment *segments,
               int segment_count, void *moved, enum dtype dtype_moved, const struct step_scalars *scalars,
               void *stream, struct muster_error *err);
int cuda_adam(void *param, void *m, void *v, const void *grad, const struct optimizer_segment *segments,
              int segment_count, void *moved, enum dtype dtype_moved, const struct step_scalars *scalars,
              void *stream, struct muster_error *err);
int cuda_sgd(void *param, void *momentum, const void *grad, const struct optimizer_segment *segments,
             int segment_count, double momentum_factor, double dampening, int nesterov, void *moved,
             enum dtype dtype_moved, const struct step_scalars *scalars, void *stream,
             struct muster_error *err);
int cuda_average(void *average, const void *param, double decay, int64_t n,
                 const struct step_scalars *scalars, void *stream, struct muster_error *err);
int cuda_conv2d_forward(void *out, const void *in, const void *weight, const void *bias,
                        const struct conv2d *c, int N, void *work, void *stream, struct muster_error *err);
int cuda_conv2d_backward_input(void *din, const void *dout, const void *weight, const struct conv2d *c, int N,
                               int beta, void *work, void *stream, struct muster_error *err);
int cuda_conv2d_backward_weight(void *dweight, void *dbias, const void *dout, const void *in,
                                const struct conv2d *c, int N, int beta, void *work, void *stream,
                                struct muster_error *err);
size_t cuda_conv2d_work(const struct conv2d *c, int N); /* 0: they need none */
int cuda_max_pool2d_forward(void *out, const void *in, const struct pool2d *p, int N, void *stream,
                            struct muster_error *err);
int cuda_max_pool2d_backward(void *din, const void *in, const void *dout, const struct pool2d *p, int N,
                             int beta, void *stream, struct muster_error *err);
int cuda_avg_pool2d_forward(void *out, const void *in, int64_t planes, int height, int width, int out_height,
                            int out_width, void *stream, struct muster_error *err);
int cuda_avg_pool2d_backward(void *din, const void *dout, int64_t planes, int height, int width,
                             int out_height, int out_width, int beta, void *stream, struct muster_error *err);
int cuda_mean_forward(void *out, const void *in, const int32_t *lengths, int B, int T, int C, void *stream,
                      struct muster_error *err);
int cuda_mean_backward(void *din, const void *dout, const int32_t *lengths, int B, int T, int C, int beta,
                       void *stream, struct muster_error *err);
int cuda_batch_norm_forward(void *out, void *mean, void *var, const void *in, const void *weight,
                            const void *bias, const struct batch_norm *b, int N,
                            const struct step_scalars *scalars, void *stream, struct muster_error *err);
int cuda_batch_norm_fixed(void *out, const void *in, const void *weight, const void *bias, const void *mean,
                          const void *var, const struct batch_norm *b, int N, void *stream,
                          struct muster_error *err);
int cuda_batch_norm_backward(void *din, void *dweight, void *dbias, const void *dout, const void *in,
                             const void *mean, const void *var, const void *weight,
                             const struct batch_norm *b, int N, const int beta[3],
                             const struct step_scalars *scalars, void *stream, struct muster_error *err);
int cuda_batch_norm_change(void *dmean, void *dvar, void *dcount, const void *mean, const void *var,
                           const void *running_mean, const void *running_var, const struct batch_norm *b,
                           int N, const int beta[3], const struct step_scalars *scalars, void *stream,
                           struct muster_error *err);
int cuda_batch_norm_step(void *values, const void *change, int64_t n, void *moved, enum dtype dtype_moved,
                         const struct step_scalars *scalars, void *stream, struct muster_error *err);
int cuda_correct_sum(double *total, const void *logits, const int32_t *targets, int N, int V, int row,
                     void *stream, struct muster_error *err);
int cuda_scale(void *values, double factor, int64_t n, void *stream, struct muster_error *err);
/* An unknown dtype is MUSTER_E_INVALID. */
int cuda_cast(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n, void *stream,
              struct muster_error *err);
/* dtype_in is bf16 or f16, else MUSTER_E_INVALID. */
int cuda_widen(void *out, const void *in, enum dtype dtype_in, int beta, int64_t n, void *stream,
               struct muster_error *err);

/* The slot has no work memory; two passes need some: cuda_norm_squared_work() bytes, aligned for double. */
int cuda_norm_squared(double *out, const void *values, int64_t n, int beta, void *work, void *stream,
                      struct muster_error *err);
size_t cuda_norm_squared_work(void);

/* Compression of gradients: slots of struct kernels_compress. The functions of runtime/compress, with their
 * bits but for the figures, whose sums have another order. `gradient`, `feedback`, `factor` and the factors
 * are floats. */
size_t cuda_topk_work(void);
int cuda_topk_encode(void *encoded, void *dense, void *gradient, void *feedback,
                     const struct compress_piece *pieces, int count, const struct step_scalars *scalars,
                     double *figures, void *work, void *stream, struct muster_error *err);
int cuda_topk_decode(void *gradient, const void *encoded, const void *dense,
                     const struct compress_piece *pieces, int count, int replicas, int64_t stride,
                     const struct step_scalars *scalars, void *stream, struct muster_error *err);
int cuda_power_left(void *left, void *dense, void *gradient, const void *feedback, const void *factor,
                    const struct compress_piece *pieces, int count, const struct step_scalars *scalars,
                    void *stream, struct muster_error *err);
int cuda_power_right(void *left, void *right, const void *gradient, const struct compress_piece *pieces,
                     int count, const struct step_scalars *scalars, void *stream, struct muster_error *err);
size_t cuda_power_work(void);
int cuda_power_decode(void *gradient, void *feedback, const void *left, void *right, void *factor,
                      const void *dense, const struct compress_piece *pieces, int count, int replicas,
                      const struct step_scalars *scalars, double *figures, void *work, void *stream,
                      struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
