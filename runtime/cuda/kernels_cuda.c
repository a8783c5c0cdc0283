/* kernels_cuda.c - struct kernels of a CUDA device: each slot enqueues its operation of kernels/cuda or its
 * product (products.h) on the handle's stream and passes an error on to the handle. */
#include "runtime/cuda/kernels_cuda.h"

#include "kernels/cuda/operations.h"
#include "runtime/cuda/kernels_enqueue.h"
#include "runtime/cuda/products.h"

/* ---- products ---- */

static void enqueue_linear_forward(void *out, const void *in, const void *weight, const void *bias, int N,
                                   int C, int OC, int row, void *stream)
{
    ENQUEUE(cuda_linear_forward(out, in, weight, bias, N, C, OC, row, handle, err));
}

static void enqueue_linear_activation_forward(void *out, void *pre, const void *in, const void *weight,
                                              const void *bias, int kind, int N, int C, int OC, void *stream)
{
    ENQUEUE(cuda_linear_activation_forward(out, pre, in, weight, bias, kind, N, C, OC, handle, err));
}

static void enqueue_linear_backward_activation(void *din, const void *dout, const void *weight,
                                               const void *pre, int kind, int N, int C, int OC, void *stream)
{
    ENQUEUE(cuda_linear_backward_activation(din, dout, weight, pre, kind, N, C, OC, handle, err));
}

static void enqueue_linear_backward_input(void *din, const void *dout, const void *weight, int N, int C,
                                          int OC, int row, int beta_in, void *stream)
{
    ENQUEUE(cuda_linear_backward_input(din, dout, weight, N, C, OC, row, beta_in, handle, err));
}

static void enqueue_linear_backward_weight(void *dweight, void *dbias, const void *dout, const void *in,
                                           int N, int C, int OC, int row, int beta, void *stream)
{
    ENQUEUE(cuda_linear_backward_weight(dweight, dbias, dout, in, N, C, OC, row, beta, handle, err));
}

/* ---- layers ---- */

static void enqueue_embedding_forward(void *out, const int32_t *tokens, const void *wte, const void *wpe,
                                      int B, int T, int C, void *stream)
{
    ENQUEUE(cuda_embedding_forward(out, tokens, wte, wpe, B, T, C, queue, err));
}

static void enqueue_embedding_backward(void *dwte, void *dwpe, const void *dout, const int32_t *tokens, int B,
                                       int T, int C, int V, int maxT, int beta, void *stream)
{
    ENQUEUE(cuda_embedding_backward(dwte, dwpe, dout, tokens, B, T, C, V, maxT, beta, queue, err));
}

static void enqueue_rows_add(void *to, int64_t first, int64_t count, int64_t at, const void *rows,
                             const int32_t *index, int N, int T, int C, void *stream)
{
    ENQUEUE(cuda_rows_add(to, first, count, at, rows, index, N, T, C, queue, err));
}

static void enqueue_layernorm_forward(void *out, void *mean, void *rstd, const void *in, const void *weight,
                                      const void *bias, int N, int C, double epsilon, void *stream)
{
    ENQUEUE(cuda_layernorm_forward(out, mean, rstd, in, weight, bias, N, C, epsilon, queue, err));
}

static void enqueue_layernorm_backward(void *din, void *dweight, void *dbias, const void *dout,
                                       const void *in, const void *mean, const void *rstd, const void *weight,
                                       int N, int C, int beta_in, int beta, void *work, void *stream)
{
    ENQUEUE(cuda_layernorm_backward(din, dweight, dbias, dout, in, mean, rstd, weight, N, C, beta_in, beta,
                                    work, queue, err));
}

static void enqueue_rms_norm_forward(void *out, void *rstd, const void *in, const void *weight, int N, int C,
                                     double epsilon, double offset, void *stream)
{
    ENQUEUE(cuda_rms_norm_forward(out, rstd, in, weight, N, C, epsilon, offset, queue, err));
}

static void enqueue_rms_norm_backward(void *din, void *dweight, const void *dout, const void *in,
                                      const void *rstd, const void *weight, double offset, int N, int C,
                                      int beta_in, int beta, void *work, void *stream)
{
    ENQUEUE(cuda_rms_norm_backward(din, dweight, dout, in, rstd, weight, offset, N, C, beta_in, beta, work,
                                   queue, err));
}

static void enqueue_rotary(void *out, const void *in, const struct rotary *settings, int B, int T, int NH,
                           int HS, int backward, int beta, void *stream)
{
    ENQUEUE(cuda_rotary(out, in, settings, B, T, NH, HS, backward, beta, queue, err));
}

static void enqueue_attention_forward(void *out, void *lse, const void *q, const void *k, const void *v,
                                      const struct attention *a, void *work, void *stream)
{
    ENQUEUE(cuda_attention_forward(out, lse, q, k, v, a, work, queue, err));
}

static void enqueue_attention_backward(void *dq, void *dk, void *dv, const void *dout, const void *q,
                                       const void *k, const void *v, const void *out, const void *lse,
                                       const struct attention *a, const int beta[3], void *work, void *stream)
{
    ENQUEUE(cuda_attention_backward(dq, dk, dv, dout, q, k, v, out, lse, a, beta, work, queue, err));
}

static void enqueue_attention_forward_tf32(void *out, void *lse, const void *q, const void *k, const void *v,
                                           const struct attention *a, void *work, void *stream)
{
    ENQUEUE(cuda_attention_forward_tf32(out, lse, q, k, v, a, work, queue, err));
}

static void enqueue_attention_backward_tf32(void *dq, void *dk, void *dv, const void *dout, const void *q,
                                            const void *k, const void *v, const void *out, const void *lse,
                                            const struct attention *a, const int beta[3], void *work,
                                            void *stream)
{
    ENQUEUE(cuda_attention_backward_tf32(dq, dk, dv, dout, q, k, v, out, lse, a, beta, work, queue, err));
}

/* ---- element by element ---- */

static void enqueue_activation_forward(void *out, const void *in, int kind, int64_t n, void *stream)
{
    ENQUEUE(cuda_activation_forward(out, in, kind, n, queue, err));
}

static void enqueue_activation_backward(void *din, const void *in, const void *dout, int kind, int beta,
                                        int64_t n, void *stream)
{
    ENQUEUE(cuda_activation_backward(din, in, dout, kind, beta, n, queue, err));
}

static void enqueue_gated_forward(void *out, const void *gate, const void *up, int kind, int64_t n,
                                  void *stream)
{
    ENQUEUE(cuda_gated_forward(out, gate, up, kind, n, queue, err));
}

static void enqueue_gated_backward(void *dgate, void *dup, const void *gate, const void *up, const void *dout,
                                   int kind, int beta_gate, int beta_up, int64_t n, void *stream)
{
    ENQUEUE(cuda_gated_backward(dgate, dup, gate, up, dout, kind, beta_gate, beta_up, n, queue, err));
}

static void enqueue_slice_forward(void *out, const void *in, int64_t rows, int row, int first, int width,
                                  void *stream)
{
    ENQUEUE(cuda_slice_forward(out, in, rows, row, first, width, queue, err));
}

static void enqueue_slice_backward(void *din, const void *dout, int64_t rows, int row, int first, int width,
                                   int beta, void *stream)
{
    ENQUEUE(cuda_slice_backward(din, dout, rows, row, first, width, beta, queue, err));
}

static void enqueue_dropout(void *out, const void *in, int64_t rows, int width, int rows_per_sample,
                            int64_t sample, uint32_t layer, double p, int beta,
                            const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_dropout(out, in, rows, width, rows_per_sample, sample, layer, p, beta, scalars, queue, err));
}

static void enqueue_add(void *out, const void *a, const void *b, int64_t n, void *stream)
{
    ENQUEUE(cuda_add(out, a, b, n, queue, err));
}

static void enqueue_accumulate(void *out, const void *in, int beta, int64_t n, void *stream)
{
    ENQUEUE(cuda_accumulate(out, in, beta, n, queue, err));
}

static void enqueue_scale(void *values, double factor, int64_t n, void *stream)
{
    ENQUEUE(cuda_scale(values, factor, n, queue, err));
}

static void enqueue_cast(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n,
                         void *stream)
{
    ENQUEUE(cuda_cast(to, dtype_to, from, dtype_from, n, queue, err));
}

static void enqueue_widen(void *out, const void *in, enum dtype dtype_in, int beta, int64_t n, void *stream)
{
    ENQUEUE(cuda_widen(out, in, dtype_in, beta, n, queue, err));
}

/* ---- pictures ---- */

static void enqueue_conv2d_forward(void *out, const void *in, const void *weight, const void *bias,
                                   const struct conv2d *c, int N, void *work, void *stream)
{
    ENQUEUE(cuda_conv2d_forward(out, in, weight, bias, c, N, work, queue, err));
}

static void enqueue_conv2d_backward_input(void *din, const void *dout, const void *weight,
                                          const struct conv2d *c, int N, int beta, void *work, void *stream)
{
    ENQUEUE(cuda_conv2d_backward_input(din, dout, weight, c, N, beta, work, queue, err));
}

static void enqueue_conv2d_backward_weight(void *dweight, void *dbias, const void *dout, const void *in,
                                           const struct conv2d *c, int N, int beta, void *work, void *stream)
{
    ENQUEUE(cuda_conv2d_backward_weight(dweight, dbias, dout, in, c, N, beta, work, queue, err));
}

static void enqueue_max_pool2d_forward(void *out, const void *in, const struct pool2d *p, int N, void *stream)
{
    ENQUEUE(cuda_max_pool2d_forward(out, in, p, N, queue, err));
}

static void enqueue_max_pool2d_backward(void *din, const void *in, const void *dout, const struct pool2d *p,
                                        int N, int beta, void *stream)
{
    ENQUEUE(cuda_max_pool2d_backward(din, in, dout, p, N, beta, queue, err));
}

static void enqueue_avg_pool2d_forward(void *out, const void *in, int64_t planes, int height, int width,
                                       int out_height, int out_width, void *stream)
{
    ENQUEUE(cuda_avg_pool2d_forward(out, in, planes, height, width, out_height, out_width, queue, err));
}

static void enqueue_avg_pool2d_backward(void *din, const void *dout, int64_t planes, int height, int width,
                                        int out_height, int out_width, int beta, void *stream)
{
    ENQUEUE(
        cuda_avg_pool2d_backward(din, dout, planes, height, width, out_height, out_width, beta, queue, err));
}

static void enqueue_batch_norm_forward(void *out, void *mean, void *var, const void *in, const void *weight,
                                       const void *bias, const struct batch_norm *b, int N,
                                       const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_batch_norm_forward(out, mean, var, in, weight, bias, b, N, scalars, queue, err));
}

static void enqueue_batch_norm_fixed(void *out, const void *in, const void *weight, const void *bias,
                                     const void *mean, const void *var, const struct batch_norm *b, int N,
                                     void *stream)
{
    ENQUEUE(cuda_batch_norm_fixed(out, in, weight, bias, mean, var, b, N, queue, err));
}

static void enqueue_batch_norm_backward(void *din, void *dweight, void *dbias, const void *dout,
                                        const void *in, const void *mean, const void *var, const void *weight,
                                        const struct batch_norm *b, int N, const int beta[3],
                                        const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_batch_norm_backward(din, dweight, dbias, dout, in, mean, var, weight, b, N, beta, scalars,
                                     queue, err));
}

static void enqueue_batch_norm_change(void *dmean, void *dvar, void *dcount, const void *mean,
                                      const void *var, const void *running_mean, const void *running_var,
                                      const struct batch_norm *b, int N, const int beta[3],
                                      const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_batch_norm_change(dmean, dvar, dcount, mean, var, running_mean, running_var, b, N, beta,
                                   scalars, queue, err));
}

static void enqueue_batch_norm_step(void *values, const void *change, int64_t n, void *moved,
                                    enum dtype dtype_moved, const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_batch_norm_step(values, change, n, moved, dtype_moved, scalars, queue, err));
}

static void enqueue_mean_forward(void *out, const void *in, const int32_t *lengths, int B, int T, int C,
                                 void *stream)
{
    ENQUEUE(cuda_mean_forward(out, in, lengths, B, T, C, queue, err));
}

static void enqueue_mean_backward(void *din, const void *dout, const int32_t *lengths, int B, int T, int C,
                                  int beta, void *stream)
{
    ENQUEUE(cuda_mean_backward(din, dout, lengths, B, T, C, beta, queue, err));
}

static void enqueue_correct_sum(double *total, const void *logits, const int32_t *targets, int N, int V,
                                int row, void *stream)
{
    ENQUEUE(cuda_correct_sum(total, logits, targets, N, V, row, queue, err));
}

/* ---- losses, norms, optimizers ---- */

static void enqueue_cross_entropy(void *logits, void *losses, const int32_t *targets, int N, int V, int row,
                                  int gradient, const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_cross_entropy(logits, losses, targets, N, V, row, gradient, scalars, queue, err));
}

static void enqueue_squared_error(void *values, void *losses, int32_t *counted, const float *targets,
                                  int64_t n, int gradient, const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_squared_error(values, losses, counted, targets, n, gradient, scalars, queue, err));
}

static void enqueue_loss_sum(double *total, int64_t *count, const void *losses, const int32_t *targets,
                             int64_t n, void *stream)
{
    ENQUEUE(cuda_loss_sum(total, count, losses, targets, n, queue, err));
}

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

static void enqueue_clip_factor(struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_clip_factor(scalars, queue, err));
}

static void enqueue_adamw(void *param, void *m, void *v, const void *grad,
                          const struct optimizer_segment *segments, int segment_count, void *moved,
                          enum dtype dtype_moved, const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_adamw(param, m, v, grad, segments, segment_count, moved, dtype_moved, scalars, queue, err));
}

static void enqueue_adam(void *param, void *m, void *v, const void *grad,
                         const struct optimizer_segment *segments, int segment_count, void *moved,
                         enum dtype dtype_moved, const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_adam(param, m, v, grad, segments, segment_count, moved, dtype_moved, scalars, queue, err));
}

static void enqueue_sgd(void *param, void *momentum, const void *grad,
                        const struct optimizer_segment *segments, int segment_count, double momentum_factor,
                        double dampening, int nesterov, void *moved, enum dtype dtype_moved,
                        const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_sgd(param, momentum, grad, segments, segment_count, momentum_factor, dampening, nesterov,
                     moved, dtype_moved, scalars, queue, err));
}

static void enqueue_average(void *mean, const void *param, double decay, int64_t n,
                            const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_average(mean, param, decay, n, scalars, queue, err));
}

/* 128 bytes: every row begins at a line of the cache, as the first row does, and cuBLASLt's and our own
 * kernels may take 16 bytes at a time. */
enum { CUDA_ROW_MULTIPLE = 32 };

/* A head's weight gradient is read and written once a chunk: few of them. */
enum { CUDA_CHUNK_BYTES = 512 << 20 };

/* attend_...: where tf32 is not the products' own affair. */
#define KERNELS_CUDA_TABLE(table_name, attend_forward, attend_backward)                                      \
    {                                                                                                        \
        .abi = KERNELS_ABI, .size = sizeof(struct kernels), .name = (table_name), .dtype = DTYPE_F32,        \
        .row_multiple = CUDA_ROW_MULTIPLE, .chunk_bytes = CUDA_CHUNK_BYTES,                                  \
        .linear_activation_forward = enqueue_linear_activation_forward,                                      \
        .linear_backward_activation = enqueue_linear_backward_activation,                                    \
        .linear_forward = enqueue_linear_forward, .linear_backward_input = enqueue_linear_backward_input,    \
        .linear_backward_weight = enqueue_linear_backward_weight,                                            \
        .embedding_forward = enqueue_embedding_forward, .embedding_backward = enqueue_embedding_backward,    \
        .rows_add = enqueue_rows_add, .layernorm_forward = enqueue_layernorm_forward,                        \
        .layernorm_backward = enqueue_layernorm_backward,                                                    \
        .layernorm_backward_work = cuda_layernorm_backward_work,                                             \
        .rms_norm_forward = enqueue_rms_norm_forward, .rms_norm_backward = enqueue_rms_norm_backward,        \
        .rms_norm_backward_work = cuda_rms_norm_backward_work, .rotary = enqueue_rotary,                     \
        .attention_forward = attend_forward, .attention_backward = attend_backward,                          \
        .attention_work = cuda_attention_work, .activation_forward = enqueue_activation_forward,             \
        .activation_backward = enqueue_activation_backward, .gated_forward = enqueue_gated_forward,          \
        .gated_backward = enqueue_gated_backward, .slice_forward = enqueue_slice_forward,                    \
        .slice_backward = enqueue_slice_backward, .dropout = enqueue_dropout, .add = enqueue_add,            \
        .accumulate = enqueue_accumulate, .cross_entropy = enqueue_cross_entropy,                            \
        .squared_error = enqueue_squared_error, .loss_sum = enqueue_loss_sum,                                \
        .norm_squared = enqueue_norm_squared, .clip_factor = enqueue_clip_factor, .adamw = enqueue_adamw,    \
        .adam = enqueue_adam, .sgd = enqueue_sgd, .average = enqueue_average, .scale = enqueue_scale,        \
        .cast = enqueue_cast, .widen = enqueue_widen, .conv2d_forward = enqueue_conv2d_forward,              \
        .conv2d_backward_input = enqueue_conv2d_backward_input,                                              \
        .conv2d_backward_weight = enqueue_conv2d_backward_weight, .conv2d_work = cuda_conv2d_work,           \
        .max_pool2d_forward = enqueue_max_pool2d_forward,                                                    \
        .max_pool2d_backward = enqueue_max_pool2d_backward,                                                  \
        .avg_pool2d_forward = enqueue_avg_pool2d_forward,                                                    \
        .avg_pool2d_backward = enqueue_avg_pool2d_backward,                                                  \
        .batch_norm_forward = enqueue_batch_norm_forward, .batch_norm_fixed = enqueue_batch_norm_fixed,      \
        .batch_norm_backward = enqueue_batch_norm_backward, .batch_norm_change = enqueue_batch_norm_change,  \
        .batch_norm_step = enqueue_batch_norm_step, .correct_sum = enqueue_correct_sum,                      \
        .mean_forward = enqueue_mean_forward, .mean_backward = enqueue_mean_backward,                        \
        .compress = &kernels_compress_cuda,                                                                  \
    }

const struct kernels *kernels_cuda(bool tf32)
{
    static const struct kernels f32 =
        KERNELS_CUDA_TABLE("cuda-f32", enqueue_attention_forward, enqueue_attention_backward);
    static const struct kernels with_tf32 =
        KERNELS_CUDA_TABLE("cuda-tf32", enqueue_attention_forward_tf32, enqueue_attention_backward_tf32);
    return tf32 ? &with_tf32 : &f32;
}
