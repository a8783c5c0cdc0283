/* kernels.h - the table of numeric operations: one struct of function pointers, filled once per device and
 * compute dtype.
 *
 * Letters: B batch, T positions, C channels, NH heads, HS = C/NH head size, V vocabulary, OC output
 * channels, N = B*T rows. "real" is the table's compute dtype: float for kernels_cpu() and
 * kernels_ref_f32(), double for kernels_ref_f64() (tests and finite differences). Statistics (mean, rstd,
 * lse, losses) and optimizer state are real too. Row-major; weights are (OC,C) as in PyTorch's nn.Linear.
 * Gradients: every d... output has its rule in its comment: "=" overwrites, "+=" adds, "beta" is the
 * caller's choice (0 overwrite, 1 add). Outputs may not overlap inputs unless stated. B, N and n may be 0
 * (an empty micro-batch): sums are then 0.
 *
 * On the CPU a function has finished when it returns and runs on the calling thread (which may fan out by
 * OpenMP or BLAS): the device calls it on its compute-stream thread and on no other. `stream` is for
 * devices that enqueue; the CPU ignores it. No function allocates; `work` memory is the caller's, its size
 * given by the matching ..._work function, in bytes. */
#ifndef MUSTER_KERNELS_H
#define MUSTER_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dtype { DTYPE_F32, DTYPE_F64, DTYPE_BF16, DTYPE_F16, DTYPE_I32, DTYPE_U8, DTYPE_COUNT };
int dtype_size(enum dtype dtype);         /* bytes of one element */
const char *dtype_name(enum dtype dtype); /* "f32" */

/* Values that change from step to step and from micro-batch to micro-batch. They are in device memory and
 * written by copies in the schedule or by kernels, so that no layer ever sees a changing host scalar (and
 * a CUDA graph can be replayed). */
struct step_scalars {
    double learning_rate[8]; /* one for each parameter class; class 0 decays, class 1 does not */
    double weight_decay[8];
    double beta1, beta2, epsilon;
    double bias_correction1, bias_correction2; /* 1 - beta^t */
    double inverse_tokens;                     /* 1 / tokens that count in the global batch */
    double clip_norm;                          /* 0: no clipping */
    double norm_squared;                       /* global, written by the schedule before the step */
    double clip;                               /* factor, written by clip_factor */
    uint64_t step, first_sample;
    uint32_t skip; /* not 0: the optimizer changes nothing */
    uint32_t reserved;
};

struct kernels {
    uint32_t abi, size; /* KERNELS_ABI and sizeof(struct kernels) of the library that filled it */
    const char *name;   /* "cpu-avx2", "ref-f64" */
    enum dtype dtype;   /* real */

    /* out (N,OC) = in (N,C) weight (OC,C)^T + bias (OC); bias NULL: none */
    void (*linear_forward)(void *out, const void *in, const void *weight, const void *bias, int N, int C,
                           int OC, void *stream);
    /* din (N,C) = beta_in*din + dout (N,OC) weight; NULL din: skipped */
    void (*linear_backward_input)(void *din, const void *dout, const void *weight, int N, int C, int OC,
                                  int beta_in, void *stream);
    /* dweight (OC,C) = beta*dweight + dout^T in; dbias (OC) = beta*dbias + column sums of dout; dbias NULL:
     * skipped */
    void (*linear_backward_weight)(void *dweight, void *dbias, const void *dout, const void *in, int N, int C,
                                   int OC, int beta, void *stream);

    /* out (B,T,C) = wte[tokens] + wpe; tokens (B,T) i32 in [0,V); wpe (maxT,C) */
    void (*embedding_forward)(void *out, const int32_t *tokens, const void *wte, const void *wpe, int B,
                              int T, int C, void *stream);
    /* dwte (V,C) += rows of dout; dwpe (maxT,C) += sums over B. Both are zeroed first where beta is 0. Order
     * is fixed. Either may be NULL: skipped (with tied weights the two have different betas: two calls). */
    void (*embedding_backward)(void *dwte, void *dwpe, const void *dout, const int32_t *tokens, int B, int T,
                               int C, int V, int maxT, int beta, void *stream);

    /* out (N,C) = (in - mean)*rstd*weight + bias, rstd = 1/sqrt(var + 1e-5); mean, rstd (N) are saved for
     * backward */
    void (*layernorm_forward)(void *out, void *mean, void *rstd, const void *in, const void *weight,
                              const void *bias, int N, int C, void *stream);
    /* din (N,C) = beta_in*din + ...; dweight, dbias (C) = beta*... + ...; work: layernorm_backward_work(N, C)
     */
    void (*layernorm_backward)(void *din, void *dweight, void *dbias, const void *dout, const void *in,
                               const void *mean, const void *rstd, const void *weight, int N, int C,
                               int beta_in, int beta, void *work, void *stream);
    size_t (*layernorm_backward_work)(int N, int C);

    /* Causal multi-head attention. qkv (B,T,3C): q, k, v each (NH,HS) per row; out (B,T,C); lse (B,NH,T)
     * log-sum-exp of the scaled scores (scale 1/sqrt(HS)), kept for backward instead of the (T,T) matrix.
     * work: attention_work(B,T,C,NH). */
    void (*attention_forward)(void *out, void *lse, const void *qkv, int B, int T, int C, int NH, void *work,
                              void *stream);
    /* dqkv (B,T,3C) = */
    void (*attention_backward)(void *dqkv, const void *dout, const void *qkv, const void *out,
                               const void *lse, int B, int T, int C, int NH, void *work, void *stream);
    size_t (*attention_work)(int B, int T, int C, int NH);

    /* GPT-2's tanh form: 0.5x(1+tanh(sqrt(2/pi)(x+0.044715x^3))) */
    void (*gelu_forward)(void *out, const void *in, int64_t n, void *stream);
    /* din = dout * gelu'(in); din may be dout */
    void (*gelu_backward)(void *din, const void *in, const void *dout, int64_t n, void *stream);

    /* out = a + b; out may be a or b */
    void (*add)(void *out, const void *a, const void *b, int64_t n, void *stream);

    /* Softmax cross-entropy that forms its gradient in the forward pass. logits (N,V) become dlogits =
     * (softmax - onehot) * scalars->inverse_tokens where gradient is not 0; losses (N) = -log p (0 for target
     * < 0, which does not count and has gradient 0). */
    void (*cross_entropy)(void *logits, void *losses, const int32_t *targets, int N, int V, int gradient,
                          const struct step_scalars *scalars, void *stream);
    /* *total (one double) += the sum of n losses in a fixed order; count (one int64) += targets >= 0 */
    void (*loss_sum)(double *total, int64_t *count, const void *losses, const int32_t *targets, int64_t n,
                     void *stream);

    /* *out = beta * *out + the sum of squares of n values, accumulated in double in a fixed order; out is
     * &scalars->norm_squared or a partial sum that a collective adds up */
    void (*norm_squared)(double *out, const void *values, int64_t n, int beta, void *stream);
    /* scalars->clip = min(1, clip_norm / (sqrt(norm_squared) + 1e-6)), 1 where clip_norm is 0; a norm that is
     * not finite sets skip */
    void (*clip_factor)(struct step_scalars *scalars, void *stream);
    /* AdamW with decoupled decay, clip folded in: g = grad*clip; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
     * p -= lr (m/c1 / (sqrt(v/c2) + eps) + wd p). class selects learning_rate[] and weight_decay[]. Nothing
     * where skip. */
    void (*adamw)(void *param, void *m, void *v, const void *grad, int64_t n, int parameter_class,
                  const struct step_scalars *scalars, void *stream);

    /* values *= factor */
    void (*scale)(void *values, double factor, int64_t n, void *stream);
    /* to[i] = (dtype_to) from[i] */
    void (*cast)(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n,
                 void *stream);
};

enum { KERNELS_ABI = 1 };

/* The reference, kept for ever: plain loops, one thread. */
const struct kernels *kernels_ref_f32(void);
const struct kernels *kernels_ref_f64(void);

/* The fast table of this machine. Picks by CPU features; mask (KERNELS_ISA_... bits, -1: all) forces a
 * variant in tests, and what the processor lacks is never picked. Never fails; any thread may
 * call it. */
const struct kernels *kernels_cpu(unsigned isa_mask);
enum { KERNELS_ISA_BASE = 1, KERNELS_ISA_AVX2 = 2, KERNELS_ISA_AVX512 = 4 };
/* OpenMP and BLAS threads of the calling thread; set once, by the compute-stream thread, before the first
 * kernel. Fails if OpenBLAS is not the OpenMP build. Also makes these threads treat denormals as zero,
 * which is part of the numerics. Without OpenMP (MUSTER_OPENMP=OFF) there is always one thread. The same
 * call gives the same bits for the same number of threads; only the linear_* functions give other bits for
 * another number. */
int kernels_cpu_threads(int threads, struct muster_error *err);
/* For the numerics fingerprint, beside the table's name: "OpenBLAS 0.3.21 ... Zen MAX_THREADS=64". Static. */
const char *kernels_cpu_blas(void);

#ifdef __cplusplus
}
#endif
#endif
