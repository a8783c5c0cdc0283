/* kernels.h - the table of numeric operations: one struct of function pointers, filled once per device and
 * type of values.
 *
 * Letters: B batch, T positions, C channels, NH heads, HS head size, V vocabulary, OC output
 * channels, N = B*T rows (or pictures). The element types of values, weights, statistics and gradients are
 * the table's: all float for kernels_cpu() and kernels_ref_f32(), double for kernels_ref_f64() (tests and
 * finite differences), values and weights of 16 bits for kernels_ref_bf16() and _f16(). Row-major; weights
 * are (OC,C) as in PyTorch's nn.Linear. Gradients: every d... output has its rule in its comment: "="
 * overwrites, "+=" adds, "beta" is the caller's choice (0 overwrite, 1 add). Outputs may not overlap inputs
 * unless stated. B, N and n may be 0 (an empty micro-batch): sums are then 0.
 *
 * On the CPU a function has finished when it returns and runs on the calling thread (which may fan out by
 * OpenMP or BLAS): the device calls it on its compute-stream thread and on no other. `stream` is for
 * devices that enqueue; the CPU ignores it. No function allocates; `work` memory is the caller's, its size
 * given by the matching ..._work function, in bytes. */
#ifndef MUSTER_KERNELS_H
#define MUSTER_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/stored.h"
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

struct attention_by;

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
    struct attention_by *by; /* the table's attention_by; NULL: by the table's own kernels */
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
    int first;                /* added to t where positions is NULL; sequences have first + T positions */
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
    KERNELS_AUTO,     /* fp32; each product by the faster library for its shape (cpu/product/of_float.c) */
    KERNELS_PRODUCTS
};

/* The slots of one library that multiply matrices. */
struct kernels_by {
#define OPERATION(name, parameters, arguments)
#define PRODUCT(name, parameters, arguments) void (*name)(KERNELS_EACH parameters, void *stream);
#include "kernels/operations.inc"
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

/* The largest finite value of a type of 16 bits. */
static inline float compress_narrow_limit(enum dtype dtype)
{
    return dtype == DTYPE_F16 ? 65504.0f : 3.38953139e38f;
}

/* Compression of gradients, and opening of parameters in few bits, on a device whose memory the host does not
 * reach: the functions of runtime/compress and runtime/rounding of the same names, for float, on the stream.
 * Clip factor and skip are those of scalars. */
struct kernels_compress {
#define COMPRESSION(name, parameters, arguments) void (*name)(KERNELS_EACH parameters, void *stream);
#define COMPRESSION_WORK(name)                   size_t (*name)(void); /* bytes of work memory */
#include "kernels/operations.inc"
};

struct kernels {
    uint32_t abi, size;  /* KERNELS_ABI and sizeof(struct kernels) of the library that filled it */
    const char *name;    /* "cpu-avx2", "ref-f64" */
    int64_t chunk_bytes; /* of values that a layer forms in chunks, logits above all; 0: 64 MiB */
    /* Element types of the roles in operations.inc. Parameters at rest, states of optimizers and reduced
     * gradients are of `statistic`. */
    enum dtype value, weight, statistic, gradient;
    int row_multiple; /* rows of a matrix whose distance is free are best so many elements apart, or a
                         multiple of that: kernels_row; at least 1 */

    /* operations.inc has each with its shapes and rules. */
#define SLOT(name, parameters, arguments)      void (*name)(KERNELS_EACH parameters, void *stream);
#define SLOT_WORK(name, parameters, arguments) size_t(*name) parameters;
#define OPERATION                              SLOT
#define FUSED                                  SLOT
#define WORK                                   SLOT_WORK
#include "kernels/operations.inc"
#undef SLOT
#undef SLOT_WORK

    /* The CPU's tables: linear_* and conv2d_* by other libraries than OpenBLAS, which kernels_cpu_by puts in
     * place. Zeroed elsewhere. */
    struct kernels_by by[KERNELS_PRODUCTS];

    /* A library's attention for one device, which attention_work counts too (struct attention's `by`); NULL:
     * the table's own. */
    struct attention_by *attention_by;

    const struct kernels_compress *compress; /* NULL: gradients are in the host's memory */
};

enum { KERNELS_ABI = 18 };

/* How far apart the rows of a matrix are best that has `width` columns and whose distance is free; width
 * where an int does not hold the multiple. */
static inline int kernels_row(const struct kernels *kernels, int width)
{
    const int64_t multiple = kernels->row_multiple;
    const int64_t row = (width + multiple - 1) / multiple * multiple;
    return row <= INT32_MAX ? (int)row : width;
}

/* The reference, kept for ever: plain loops, one thread. Of 16 bits: values and weights, rounded at each
 * store; statistics and gradients of parameters are float. */
const struct kernels *kernels_ref_f32(void);
const struct kernels *kernels_ref_f64(void);
const struct kernels *kernels_ref_bf16(void);
const struct kernels *kernels_ref_f16(void);

/* The fast table of this machine, picked by CPU features. mask (KERNELS_ISA_... bits, -1: all) forces a
 * variant in tests; a variant that the processor lacks is never picked. Never fails; any thread may
 * call it. */
const struct kernels *kernels_cpu(unsigned isa_mask);
/* kernels_cpu(-1) with linear_* and conv2d_* by a library; its name ends in the library's:
 * "cpu-avx512-onednn". NULL: MUSTER_E_NOT_FOUND without libdnnl, MUSTER_E_UNSUPPORTED where this build has no
 * oneDNN, or the processor no instructions for bf16. KERNELS_AUTO never fails: it is kernels_cpu(-1) where
 * oneDNN is absent or would compute without AVX-512. Any thread may call it. */
const struct kernels *kernels_cpu_by(enum kernels_products by, struct muster_error *err);
/* The table of this machine whose values and weights are of a type, DTYPE_F32, _BF16 or _F16:
 * kernels_cpu(-1), or the one of bf16 where the processor has AVX512-BF16 and libdnnl is there, else the
 * reference of 16 bits. */
const struct kernels *kernels_cpu_values(enum dtype value);
enum { KERNELS_ISA_BASE = 1, KERNELS_ISA_AVX2 = 2, KERNELS_ISA_AVX512 = 4 };
/* Threads of the kernels that the calling thread runs, itself included; set once, by the compute-stream
 * thread, before the first kernel. Fails as kernels_cpu_open does. Also makes these threads treat
 * denormals as zero, which is part of the numerics. Without OpenMP (MUSTER_OPENMP=OFF) there is always one
 * thread. The same call gives the same bits for the same number of threads; only the linear_* functions give
 * other bits for another number. */
int kernels_cpu_threads(int threads, struct muster_error *err);
/* Bytes that each thread needs for products of that table, in blocks of bf16 (a multiple of 4096); 0: none.
 */
int64_t kernels_cpu_scratch_bytes(const struct kernels *kernels);
/* Lends them to the threads of kernels_cpu_threads, one after the other, for as long as these live. Without
 * that a thread takes its own where it multiplies first. From the thread that called kernels_cpu_threads. */
void kernels_cpu_scratch(void *memory);
/* Loads OpenBLAS and chooses its kernels, once a process, before the first product. Where OpenBLAS took
 * kernels that are older than the instruction set of kernels_cpu(-1), kernels of that instruction set are
 * forced, unless OPENBLAS_CORETYPE is set or another object of this process uses the same OpenBLAS. Every CPU
 * device and kernels_cpu_threads call it. -1: MUSTER_E_NOT_FOUND where it is absent or another library has
 * its name, MUSTER_E_NOMEM under a limit of address space (ulimit -v) that leaves too little for it,
 * MUSTER_E_UNSUPPORTED where it is not the OpenMP build. */
int kernels_cpu_open(struct muster_error *err);
/* The same; returns the text of the numerics fingerprint: "OpenBLAS 0.3.21 ... SkylakeX MAX_THREADS=64", or
 * "no OpenBLAS" after an error; static. */
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
