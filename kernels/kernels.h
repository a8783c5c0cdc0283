/* kernels.h - the table of numeric operations: one struct of function pointers, filled once per device and
 * compute dtype.
 *
 * Letters: B batch, T positions, C channels, NH heads, HS head size, V vocabulary, OC output
 * channels, N = B*T rows (or pictures). "real" is the table's compute dtype: float for kernels_cpu() and
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
    double inverse_tokens; /* loss_scale / tokens that count in the global batch: losses' gradients */
    double clip_norm;      /* 0: no clipping */
    double norm_squared;   /* global, of gradients times loss_scale, written before the step */
    double clip;           /* factor that the optimizer applies to them, written by clip_factor */
    uint64_t step;         /* number of this update, from 1; steps that were skipped do not count */
    uint64_t first_sample; /* global index of the step's first sample, below 2^63 */
    uint64_t seed;         /* the run's seed, for dropout's masks */
    int64_t samples;       /* samples that exist in this rank's part of the step; see struct batch_norm */
    uint32_t skip;         /* not 0: the optimizer changes nothing */
    float loss_scale;      /* what gradients are multiplied by on their way to the optimizer; 0: nothing */
};

/* A run of an optimizer's elements that share a learning rate and a decay. */
struct optimizer_segment {
    int64_t offset, count; /* elements, in all buffers of the call */
    int parameter_class;   /* selects learning_rate[] and weight_decay[] */
};
/* Elements 0..n-1 of one class, as the arguments segments and segment_count. */
#define OPTIMIZER_WHOLE(n, parameter_class) &(const struct optimizer_segment){0, (n), (parameter_class)}, 1

/* Attention of q (B,T,heads,head_size) over k and v (B,T,kv_heads,head_size). Rows of q, k and v lie q_row,
 * k_row and v_row elements apart, so that the three may be parts of one row (packed: each 3C apart); kv_heads
 * divides heads, and query head h reads head h / (heads / kv_heads). */
struct attention {
    int B, T, heads, kv_heads, head_size;
    int causal; /* not 0: position t sees positions 0..t, else all */
    int64_t q_row, k_row, v_row;
    int window; /* position t sees its own and at most window - 1 on each side that it sees; 0: all of them */
    double scale; /* factor of q.k; 0: 1/sqrt(head_size) */
    double cap;   /* scores become cap tanh(score / cap) before the softmax; 0: they stay as they are */
    /* (B), each 0..T: positions at and beyond a sequence's length are not seen, their out and lse are 0 and
     * their gradients are 0; NULL: all T. Device memory; attention_work does not read it. */
    const int32_t *lengths;
    /* (B,T), for causal attention: the place of each position in its own document, 0..t. Documents lie one
     * after the other, and position t sees none before t - positions[b,t]. NULL: a sequence is one document.
     * Device memory; attention_work does not read it. */
    const int32_t *positions;
};

/* Rotary position embedding (Su et al. 2021, arXiv 2104.09864): pair i of a head turns by the angle t *
 * rotary_frequency(..., i) at position t, 0..T-1 in each sequence. */
enum rotary_kind {
    ROTARY_PLAIN,   /* frequency = theta^(-2i/size) */
    ROTARY_LINEAR,  /* divided by factor */
    ROTARY_LLAMA3,  /* divided by factor where the wavelength exceeds original / low, as it is below
                       original / high, between them interpolated */
    ROTARY_DYNAMIC, /* theta grows with the length of the sequence beyond `original` */
    ROTARY_YARN,    /* Peng et al. 2023: pairs that turn more than `high` times within `original` stay as they
                       are,    pairs that turn less than `low` times are divided by factor, between them
                       interpolated */
    ROTARY_LISTED,  /* divided by the pair's own factor; a second list is for sequences beyond `original` */
    ROTARY_KINDS
};
struct rotary {
    double theta;
    enum rotary_kind kind;
    double factor; /* for all kinds but ROTARY_PLAIN and ROTARY_LISTED */
    double low,
        high;     /* ROTARY_LLAMA3: low_freq_factor, high_freq_factor. ROTARY_YARN: beta_slow, beta_fast */
    int original; /* original_max_position_embeddings; ROTARY_DYNAMIC: max_position_embeddings */
    int size;     /* the first elements of a head that turn, even; 0: all */
    double amplitude; /* factor of the turned elements; 0: 1 */
    int exact;        /* ROTARY_YARN: not 0: the limits between pairs are not rounded to whole pairs */
    const double
        *lists; /* ROTARY_LISTED: size/2 factors, and size/2 beyond `original`; lives as long as the model */
    const int32_t *positions; /* (B,T), device memory: positions to turn by in place of t; NULL: 0..T-1 */
};
/* Elements of a head of HS that turn. */
static inline int rotary_size(const struct rotary *rotary, int HS)
{
    return rotary->size > 0 ? rotary->size : HS;
}
static inline double rotary_amplitude(const struct rotary *rotary)
{
    return rotary->amplitude > 0 ? rotary->amplitude : 1.0;
}
/* Radians for one position in a sequence of `positions`; i in 0..rotary_size/2-1. Same formulas as
 * transformers' modeling_rope_utils. */
double rotary_frequency(const struct rotary *rotary, int HS, int positions, int i);

/* Convolution of pictures in planes, (N,channels,height,width), with square filters and zeros around the
 * picture. Outputs are (N,filters,conv2d_size(height,..),conv2d_size(width,..)), weights
 * (filters,channels,kernel,kernel) as in PyTorch's nn.Conv2d. */
struct conv2d {
    int channels, height, width; /* size of the input */
    int filters;                 /* channels of the output */
    int kernel, stride, padding;
};
/* Pooling of planes: windows of `kernel`, `stride` apart; padding, at most half of kernel, never wins. */
struct pool2d {
    int channels, height, width; /* size of the input */
    int kernel, stride, padding;
};
/* One side of the output; below 1: the input is too small. */
static inline int conv2d_size(int size, int kernel, int stride, int padding)
{
    int last = size + 2 * padding - kernel;
    return last < 0 ? 0 : last / stride + 1;
}

/* Normalisation of planes, (N,channels,plane), by the mean and the biased variance of each channel over the
 * pictures of one micro-batch of one rank and the plane. Of the step's samples on this rank, rows_per_sample
 * rows each, the first scalars->samples are there; row 0 of this micro-batch is number `first` among their
 * rows. Rows that are not there count nowhere, and their gradient is 0.
 *
 * The running statistics of a step are what PyTorch makes of the rank's micro-batches one after the other,
 * running += momentum (batch - running) with the unbiased variance, averaged over the ranks. That is linear,
 * so each micro-batch forms its part of the change as a gradient that is summed, and batch_norm_step adds it.
 */
struct batch_norm {
    int channels;
    int64_t plane; /* elements of a channel in a row */
    double epsilon;
    double momentum;     /* momentum of the running statistics */
    int64_t first;       /* first sample of this micro-batch */
    int rows_per_sample; /* at least 1 */
    int ranks;           /* ranks that the change is averaged over, at least 1 */
    int counts;          /* not 0: this rank counts the batches for all */
};
/* Rows of a micro-batch of N that are there. */
static inline int batch_norm_rows(const struct batch_norm *b, int N, int64_t samples)
{
    int64_t rows = samples * b->rows_per_sample - b->first;
    return rows < 0 ? 0 : rows < N ? (int)rows : N;
}
/* How many of the rank's micro-batches of N rows come after this one and have rows. */
static inline int64_t batch_norm_later(const struct batch_norm *b, int N, int64_t samples)
{
    int64_t rows = samples * b->rows_per_sample - b->first;
    return rows <= N ? 0 : (rows - 1) / N;
}

/* f of activation_forward; s is the logistic function. */
enum activation_kind {
    ACTIVATION_GELU_TANH, /* 0.5x(1+tanh(sqrt(2/pi)(x+0.044715x^3))), GPT-2's */
    ACTIVATION_GELU_ERF,  /* 0.5x(1+erf(x/sqrt(2))) */
    ACTIVATION_SILU,      /* x s(x) */
    ACTIVATION_RELU,      /* max(0,x) */
    ACTIVATION_TANH,
    ACTIVATION_SIGMOID, /* s(x) */
    ACTIVATION_KINDS
};

/* The library, and the type of the factors, of matrix products on CPUs. Sums are fp32 in all of them. */
enum kernels_products {
    KERNELS_OPENBLAS, /* fp32 */
    KERNELS_ONEDNN,   /* fp32 */
    KERNELS_BF16,     /* large products by oneDNN, factors rounded to bf16; the others as KERNELS_AUTO */
    KERNELS_AUTO,     /* fp32; each product by the library that is faster for its shape (cpu/product.c) */
    KERNELS_PRODUCTS
};

/* The slots of one library that multiply matrices. */
struct kernels_by {
    void (*linear_forward)(void *out, const void *in, const void *weight, const void *bias, int N, int C,
                           int OC, int row, void *stream);
    void (*linear_backward_input)(void *din, const void *dout, const void *weight, int N, int C, int OC,
                                  int row, int beta_in, void *stream);
    void (*linear_backward_weight)(void *dweight, void *dbias, const void *dout, const void *in, int N, int C,
                                   int OC, int row, int beta, void *stream);
    void (*conv2d_forward)(void *out, const void *in, const void *weight, const void *bias,
                           const struct conv2d *c, int N, void *work, void *stream);
    void (*conv2d_backward_input)(void *din, const void *dout, const void *weight, const struct conv2d *c,
                                  int N, int beta, void *work, void *stream);
    void (*conv2d_backward_weight)(void *dweight, void *dbias, const void *dout, const void *in,
                                   const struct conv2d *c, int N, int beta, void *work, void *stream);
};

/* A run of one tensor in a flat gradient. kept and rank 0: it is sent dense. */
struct compress_piece {
    int param;
    int64_t at;           /* its first element in the gradient */
    int64_t first, count; /* elements of the tensor; count may be 0 for a matrix */
    int64_t kept;         /* top-k: elements that are sent */
    /* PowerSGD: the tensor as a matrix, and where its columns of left and right begin, in elements. Both are
     * stored column by column. */
    int rank;
    int64_t rows, columns, left, right;
};

/* Compression of gradients on a device whose memory the host does not reach: the functions of
 * runtime/compress of the same names, for float, on the stream. Clip factor and skip are those of scalars. */
struct kernels_compress {
    size_t (*topk_work)(void); /* bytes of work memory */
    void (*topk_encode)(void *encoded, void *dense, void *gradient, void *feedback,
                        const struct compress_piece *pieces, int count, const struct step_scalars *scalars,
                        double *figures, void *work, void *stream);
    void (*topk_decode)(void *gradient, const void *encoded, const void *dense,
                        const struct compress_piece *pieces, int count, int replicas, int64_t stride,
                        const struct step_scalars *scalars, void *stream);
    void (*power_left)(void *left, void *dense, void *gradient, const void *feedback, const void *factor,
                       const struct compress_piece *pieces, int count, const struct step_scalars *scalars,
                       void *stream);
    void (*power_right)(void *left, void *right, const void *gradient, const struct compress_piece *pieces,
                        int count, const struct step_scalars *scalars, void *stream);
    size_t (*power_work)(void);
    void (*power_decode)(void *gradient, void *feedback, const void *left, void *right, void *factor,
                         const void *dense, const struct compress_piece *pieces, int count, int replicas,
                         const struct step_scalars *scalars, double *figures, void *work, void *stream);
};

struct kernels {
    uint32_t abi, size;  /* KERNELS_ABI and sizeof(struct kernels) of the library that filled it */
    const char *name;    /* "cpu-avx2", "ref-f64" */
    int64_t chunk_bytes; /* of values that a layer forms in chunks, logits above all; 0: 64 MiB */
    enum dtype dtype;    /* real */
    int row_multiple;    /* rows of a matrix whose distance is free are best so many elements apart, or a
                            multiple of that: kernels_row; at least 1 */

    /* A product and an activation as one; NULL: the table has no such thing, and their own slots are called.
     * pre (N,OC) = in (N,C) weight (OC,C)^T + bias (OC), out (N,OC) = f(pre) of the activation `kind`; bias
     * NULL: none; pre NULL: it is not kept. out and pre meet neither each other nor in. */
    void (*linear_activation_forward)(void *out, void *pre, const void *in, const void *weight,
                                      const void *bias, int kind, int N, int C, int OC, void *stream);
    /* din (N,C) = (dout (N,OC) weight (OC,C)) * f'(pre (N,C)), element by element */
    void (*linear_backward_activation)(void *din, const void *dout, const void *weight, const void *pre,
                                       int kind, int N, int C, int OC, void *stream);

    /* A `row` is the distance of the rows of out, of dout or of logits, in elements, at least their width.
     * Elements between two rows are neither read nor written. */

    /* out (N,OC) = in (N,C) weight (OC,C)^T + bias (OC); bias NULL: none */
    void (*linear_forward)(void *out, const void *in, const void *weight, const void *bias, int N, int C,
                           int OC, int row, void *stream);
    /* din (N,C) = beta_in*din + dout (N,OC) weight; NULL din: skipped */
    void (*linear_backward_input)(void *din, const void *dout, const void *weight, int N, int C, int OC,
                                  int row, int beta_in, void *stream);
    /* dweight (OC,C) = beta*dweight + dout^T in; dbias (OC) = beta*dbias + column sums of dout; either
     * NULL: skipped */
    void (*linear_backward_weight)(void *dweight, void *dbias, const void *dout, const void *in, int N, int C,
                                   int OC, int row, int beta, void *stream);

    /* out (B,T,C) = wte[tokens] + wpe; tokens (B,T) i32 in [0,V); wpe (maxT,C); wpe NULL: none is added */
    void (*embedding_forward)(void *out, const int32_t *tokens, const void *wte, const void *wpe, int B,
                              int T, int C, void *stream);
    /* dwte (V,C) += rows of dout; dwpe (maxT,C) += sums over B. Both are zeroed first where beta is 0. Order
     * is fixed. Either may be NULL: skipped (with tied weights the two have different betas: two calls). */
    void (*embedding_backward)(void *dwte, void *dwpe, const void *dout, const int32_t *tokens, int B, int T,
                               int C, int V, int maxT, int beta, void *stream);
    /* The same for a part of one table and rows that came from several ranks: `to` holds elements
     * [first, first+count) of a flat array in which the table's row 0 begins at element `at`. Row r of rows
     * (N,C) is added to row index[r] of the table, without an index to row r % T; elements outside of the
     * part are left out. Each element's sum is in the order of r. NULL in a table: it has no such operation,
     * and plans exchange no rows. */
    void (*rows_add)(void *to, int64_t first, int64_t count, int64_t at, const void *rows,
                     const int32_t *index, int N, int T, int C, void *stream);

    /* out (N,C) = (in - mean)*rstd*weight + bias, rstd = 1/sqrt(var + epsilon); bias NULL: none; mean, rstd
     * (N) are saved for backward */
    void (*layernorm_forward)(void *out, void *mean, void *rstd, const void *in, const void *weight,
                              const void *bias, int N, int C, double epsilon, void *stream);
    /* din (N,C) = beta_in*din + ...; dweight, dbias (C) = beta*... + ...; any of them NULL: skipped; work:
     * layernorm_backward_work(N, C) */
    void (*layernorm_backward)(void *din, void *dweight, void *dbias, const void *dout, const void *in,
                               const void *mean, const void *rstd, const void *weight, int N, int C,
                               int beta_in, int beta, void *work, void *stream);
    size_t (*layernorm_backward_work)(int N, int C);

    /* out (N,C) = in*rstd*(weight + offset), rstd = 1/sqrt(mean(in^2) + epsilon); rstd (N) is saved for
     * backward */
    void (*rms_norm_forward)(void *out, void *rstd, const void *in, const void *weight, int N, int C,
                             double epsilon, double offset, void *stream);
    /* din (N,C) = beta_in*din + ...; dweight (C) = beta*dweight + ...; either NULL: skipped; work:
     * rms_norm_backward_work(N, C) */
    void (*rms_norm_backward)(void *din, void *dweight, const void *dout, const void *in, const void *rstd,
                              const void *weight, double offset, int N, int C, int beta_in, int beta,
                              void *work, void *stream);
    size_t (*rms_norm_backward_work)(int N, int C);

    /* out (B,T,NH,HS) = beta*out + in, of each head element i < size/2 turned with element i + size/2
     * (Hugging Face's order): (x, y) becomes amplitude (x cos - y sin, y cos + x sin). size, even and at most
     * HS, and amplitude are rotary's; elements from size on stay as they are. backward not 0: turned the
     * other way, which is the gradient. With beta 0 out may be in. */
    void (*rotary)(void *out, const void *in, const struct rotary *rotary, int B, int T, int NH, int HS,
                   int backward, int beta, void *stream);

    /* out (B,T,heads,head_size) dense = softmax(scale q k^T) v; lse (B,heads,T) = log-sum-exp of the scaled
     * scores, kept for backward instead of the (T,T) matrix. work: attention_work(a), of both directions. */
    void (*attention_forward)(void *out, void *lse, const void *q, const void *k, const void *v,
                              const struct attention *a, void *work, void *stream);
    /* dq = beta[0]*dq + ..., dk with beta[1], dv with beta[2]. Their rows are as far apart as the rows of q,
     * k and v; elements between rows keep their values. dout is dense. */
    void (*attention_backward)(void *dq, void *dk, void *dv, const void *dout, const void *q, const void *k,
                               const void *v, const void *out, const void *lse, const struct attention *a,
                               const int beta[3], void *work, void *stream);
    size_t (*attention_work)(const struct attention *a);

    /* out = in * weight + bias (filters); bias NULL: none. work, of all three: conv2d_work(c, N). */
    void (*conv2d_forward)(void *out, const void *in, const void *weight, const void *bias,
                           const struct conv2d *c, int N, void *work, void *stream);
    /* din = beta*din + ... */
    void (*conv2d_backward_input)(void *din, const void *dout, const void *weight, const struct conv2d *c,
                                  int N, int beta, void *work, void *stream);
    /* dweight, dbias = beta*... + ...; either NULL: skipped */
    void (*conv2d_backward_weight)(void *dweight, void *dbias, const void *dout, const void *in,
                                   const struct conv2d *c, int N, int beta, void *work, void *stream);
    size_t (*conv2d_work)(const struct conv2d *c, int N);

    /* out = the largest of each window; NaN where it has one */
    void (*max_pool2d_forward)(void *out, const void *in, const struct pool2d *p, int N, void *stream);
    /* din = beta*din + dout at the first of the largest, row by row */
    void (*max_pool2d_backward)(void *din, const void *in, const void *dout, const struct pool2d *p, int N,
                                int beta, void *stream);
    /* out (planes,out_height,out_width) = means of in (planes,height,width) over windows that cover it: row i
     * is rows floor(i height / out_height) to ceil((i+1) height / out_height), columns alike. */
    void (*avg_pool2d_forward)(void *out, const void *in, int64_t planes, int height, int width,
                               int out_height, int out_width, void *stream);
    /* din = beta*din + ... */
    void (*avg_pool2d_backward)(void *din, const void *dout, int64_t planes, int height, int width,
                                int out_height, int out_width, int beta, void *stream);

    /* out (B,C) = the mean of rows 0..lengths[b]-1 of in (B,T,C), 0 where lengths[b] is 0; lengths (B), each
     * 0..T, device memory */
    void (*mean_forward)(void *out, const void *in, const int32_t *lengths, int B, int T, int C,
                         void *stream);
    /* din = beta*din + dout / lengths[b] in these rows, beta*din in the others */
    void (*mean_backward)(void *din, const void *dout, const int32_t *lengths, int B, int T, int C, int beta,
                          void *stream);
    /* out = (in - mean) / sqrt(var + epsilon) * weight + bias, all (channels). mean and var (biased) are
     * statistics of the existing rows (0 and 1 without rows) and are saved for backward. */
    void (*batch_norm_forward)(void *out, void *mean, void *var, const void *in, const void *weight,
                               const void *bias, const struct batch_norm *b, int N,
                               const struct step_scalars *scalars, void *stream);
    /* The same by a mean and a variance that are given: evaluation by the running ones. */
    void (*batch_norm_fixed)(void *out, const void *in, const void *weight, const void *bias,
                             const void *mean, const void *var, const struct batch_norm *b, int N,
                             void *stream);
    /* din = beta[0]*din + ..., dweight with beta[1], dbias with beta[2]; any of them NULL: skipped */
    void (*batch_norm_backward)(void *din, void *dweight, void *dbias, const void *dout, const void *in,
                                const void *mean, const void *var, const void *weight,
                                const struct batch_norm *b, int N, const int beta[3],
                                const struct step_scalars *scalars, void *stream);
    /* This micro-batch's part of the change of running statistics: dmean, dvar (channels), dcount (1) =
     * beta*... + ...; any of them NULL: skipped. The i-th of k micro-batches with rows adds momentum
     * (1-momentum)^(k-1-i) / ranks (batch - running); one without rows adds 0. */
    void (*batch_norm_change)(void *dmean, void *dvar, void *dcount, const void *mean, const void *var,
                              const void *running_mean, const void *running_var, const struct batch_norm *b,
                              int N, const int beta[3], const struct step_scalars *scalars, void *stream);
    /* values (n) += change, and moved as in adamw. Nothing where skip. */
    void (*batch_norm_step)(void *values, const void *change, int64_t n, void *moved, enum dtype dtype_moved,
                            const struct step_scalars *scalars, void *stream);

    /* out = f(in), f by its enum activation_kind; out may be in */
    void (*activation_forward)(void *out, const void *in, int kind, int64_t n, void *stream);
    /* din = beta*din + dout * f'(in); with beta 0 din may be dout */
    void (*activation_backward)(void *din, const void *in, const void *dout, int kind, int beta, int64_t n,
                                void *stream);

    /* out = f(gate) * up, f by its enum activation_kind; out may be gate or up */
    void (*gated_forward)(void *out, const void *gate, const void *up, int kind, int64_t n, void *stream);
    /* dgate = beta_gate*dgate + dout * up * f'(gate); dup = beta_up*dup + dout * f(gate). At most one
     * of the two gradients, with beta 0, may be the memory of dout. */
    void (*gated_backward)(void *dgate, void *dup, const void *gate, const void *up, const void *dout,
                           int kind, int beta_gate, int beta_up, int64_t n, void *stream);

    /* out (rows,width) = columns first..first+width-1 of in (rows,row) */
    void (*slice_forward)(void *out, const void *in, int64_t rows, int row, int first, int width,
                          void *stream);
    /* din's columns first..first+width-1 = beta*din + dout, the other columns = beta*din */
    void (*slice_backward)(void *din, const void *dout, int64_t rows, int row, int first, int width, int beta,
                           void *stream);

    /* out (rows,width) = beta*out + in * mask / (1 - p), each element kept with probability 1 - p. The mask
     * is Philox of (scalars->seed; sample, layer, element), with sample = scalars->first_sample + sample +
     * row / rows_per_sample and element the index in the sample's (rows_per_sample,width): the same when it
     * is formed again and in any world (kernels/dropout_place.h). `sample`, the number of the step's samples
     * before these rows, is constant at a place of the schedule; `layer` names the place of use in the model.
     * Backward is the same call on dout. p in 0..1; with beta 0 out may be in. */
    void (*dropout)(void *out, const void *in, int64_t rows, int width, int rows_per_sample, int64_t sample,
                    uint32_t layer, double p, int beta, const struct step_scalars *scalars, void *stream);

    /* out = a + b; out may be a or b */
    void (*add)(void *out, const void *a, const void *b, int64_t n, void *stream);
    /* out = beta*out + in: gradients that meet in one value */
    void (*accumulate)(void *out, const void *in, int beta, int64_t n, void *stream);

    /* Softmax cross-entropy that forms its gradient in the forward pass. logits (N,V) become dlogits =
     * (softmax - onehot) * scalars->inverse_tokens where gradient is not 0; losses (N) = -log p (0 for target
     * < 0, which does not count and has gradient 0). */
    void (*cross_entropy)(void *logits, void *losses, const int32_t *targets, int N, int V, int row,
                          int gradient, const struct step_scalars *scalars, void *stream);
    /* Squared differences that form their gradient in the forward pass. values (n) become 2 (value - target)
     * * scalars->inverse_tokens where gradient is not 0; losses (n) = (value - target)^2. A target that is
     * NaN does not count: its loss and gradient are 0 and its counted (n) is -1, else 0, as loss_sum reads
     * it. targets are float in every table. */
    void (*squared_error)(void *values, void *losses, int32_t *counted, const float *targets, int64_t n,
                          int gradient, const struct step_scalars *scalars, void *stream);
    /* *total (one double) += rows of logits (N,V) whose target is 0 or more and the first of their largest */
    void (*correct_sum)(double *total, const void *logits, const int32_t *targets, int N, int V, int row,
                        void *stream);
    /* *total (one double) += the sum of n losses in a fixed order; count (one int64) += targets >= 0 */
    void (*loss_sum)(double *total, int64_t *count, const void *losses, const int32_t *targets, int64_t n,
                     void *stream);

    /* *out = beta * *out + the sum of squares of n values, accumulated in double in a fixed order; out is
     * &scalars->norm_squared or a partial sum that a collective adds up */
    void (*norm_squared)(double *out, const void *values, int64_t n, int beta, void *stream);
    /* scalars->clip = min(1, clip_norm / (norm + 1e-6)) / loss_scale with norm = sqrt(norm_squared) /
     * loss_scale, 1 / loss_scale where clip_norm is 0; a norm that is not finite sets skip */
    void (*clip_factor)(struct step_scalars *scalars, void *stream);
    /* AdamW with decoupled decay, clip folded in: g = grad*clip; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
     * p -= lr (m/c1 / (sqrt(v/c2) + eps) + wd p). Nothing where skip. All optimizers make one pass over all
     * segments, which are in host memory, ascend and do not overlap; elements outside every segment keep
     * their values. moved, of dtype_moved, gets the new parameters, rounded; NULL: none. */
    void (*adamw)(void *param, void *m, void *v, const void *grad, const struct optimizer_segment *segments,
                  int segment_count, void *moved, enum dtype dtype_moved, const struct step_scalars *scalars,
                  void *stream);

    /* Adam as torch.optim.Adam: as adamw, but the decay is part of the gradient: g = grad*clip + wd p, and p
     * -= lr m/c1 / (sqrt(v/c2) + eps). */
    void (*adam)(void *param, void *m, void *v, const void *grad, const struct optimizer_segment *segments,
                 int segment_count, void *moved, enum dtype dtype_moved, const struct step_scalars *scalars,
                 void *stream);
    /* SGD as torch.optim.SGD: g = grad*clip + wd p; momentum = g where scalars->step is 1, else
     * momentum_factor*momentum + (1-dampening) g; p -= lr (nesterov ? g + momentum_factor*momentum :
     * momentum). momentum NULL: none, p -= lr g. Nothing where skip. */
    void (*sgd)(void *param, void *momentum, const void *grad, const struct optimizer_segment *segments,
                int segment_count, double momentum_factor, double dampening, int nesterov, void *moved,
                enum dtype dtype_moved, const struct step_scalars *scalars, void *stream);

    /* Moving average of parameters, as torch.optim.swa_utils.AveragedModel's with ema decay: average (n) =
     * param where scalars->step is 1, else average + (1-decay) (param - average). Nothing where skip. */
    void (*average)(void *average, const void *param, double decay, int64_t n,
                    const struct step_scalars *scalars, void *stream);

    /* values *= factor */
    void (*scale)(void *values, double factor, int64_t n, void *stream);
    /* to[i] = (dtype_to) from[i] */
    void (*cast)(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t n,
                 void *stream);
    /* out = beta*out + in, in of dtype_in: bf16 or f16 */
    void (*widen)(void *out, const void *in, enum dtype dtype_in, int beta, int64_t n, void *stream);

    /* The CPU's tables: linear_* and conv2d_* by other libraries than OpenBLAS, which kernels_cpu_by puts in
     * place. Zeroed elsewhere. */
    struct kernels_by by[KERNELS_PRODUCTS];

    const struct kernels_compress *compress; /* NULL: gradients are in the host's memory */
};

enum { KERNELS_ABI = 14 };

/* How far apart the rows of a matrix are best that has `width` columns and whose distance is free; width
 * where an int does not hold the multiple. */
static inline int kernels_row(const struct kernels *kernels, int width)
{
    const int64_t multiple = kernels->row_multiple;
    const int64_t row = (width + multiple - 1) / multiple * multiple;
    return row <= INT32_MAX ? (int)row : width;
}

/* The reference, kept for ever: plain loops, one thread. */
const struct kernels *kernels_ref_f32(void);
const struct kernels *kernels_ref_f64(void);

/* The fast table of this machine, picked by CPU features. mask (KERNELS_ISA_... bits, -1: all) forces a
 * variant in tests; a variant that the processor lacks is never picked. Never fails; any thread may
 * call it. */
const struct kernels *kernels_cpu(unsigned isa_mask);
/* kernels_cpu(-1) with linear_* and conv2d_* by a library; its name ends in the library's:
 * "cpu-avx512-onednn". NULL: MUSTER_E_NOT_FOUND without libdnnl, MUSTER_E_UNSUPPORTED where this build has no
 * oneDNN, or the processor no instructions for bf16. KERNELS_AUTO never fails: it is kernels_cpu(-1) where
 * oneDNN is absent or would compute without AVX-512. Any thread may call it. */
const struct kernels *kernels_cpu_by(enum kernels_products by, struct muster_error *err);
enum { KERNELS_ISA_BASE = 1, KERNELS_ISA_AVX2 = 2, KERNELS_ISA_AVX512 = 4 };
/* Threads of the kernels that the calling thread runs, itself included; set once, by the compute-stream
 * thread, before the first kernel. Fails if OpenBLAS is not the OpenMP build. Also makes these threads treat
 * denormals as zero, which is part of the numerics. Without OpenMP (MUSTER_OPENMP=OFF) there is always one
 * thread. The same call gives the same bits for the same number of threads; only the linear_* functions give
 * other bits for another number. */
int kernels_cpu_threads(int threads, struct muster_error *err);
/* Chooses OpenBLAS's kernels, once a process, before the first product. Where OpenBLAS took kernels that are
 * older than the instruction set of kernels_cpu(-1), kernels of that instruction set are forced, unless
 * OPENBLAS_CORETYPE is set or another object of this process uses the same OpenBLAS. Every CPU device and
 * kernels_cpu_threads call it. Returns the text of the numerics fingerprint: "OpenBLAS 0.3.21 ... SkylakeX
 * MAX_THREADS=64"; static. */
const char *kernels_cpu_blas(void);
/* The same of the library that multiplies for a table of kernels_cpu or kernels_cpu_by. */
const char *kernels_cpu_library(const struct kernels *kernels);
/* One sentence where OpenBLAS computes with kernels older than the processor all the same: why, and the way
 * out; else "". Static. */
const char *kernels_cpu_blas_note(void);

#ifdef __cplusplus
}
#endif
#endif
