/* linear.c - the dense layer: three products (product.h), the bias and its gradient.
 *
 * The bias costs nothing. OpenBLAS always adds its product to the output (where beta is 0 it first clears the
 * output in an extra pass), so the output of float is filled with the bias and beta is 1. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/product/product.h"
#include "kernels/cpu/value.h"

#include <string.h>

static void linear_forward(void *out_, const void *in, const void *weight, const void *bias, int N, int C,
                           int OC, int row, enum kernels_products by)
{
    VALUE *out = out_;
    if (bias && !CPU_NARROW) {
        CPU_PARALLEL_FOR((int64_t)N * OC >= CPU_PARALLEL_MIN)
        for (int n = 0; n < N; n++)
            memcpy(out + (size_t)n * row, bias, (size_t)OC * sizeof *out);
    }
    CPU(product)
    (&(struct product){.a_transposed = false,
                       .b_transposed = true,
                       .rows = N,
                       .columns = OC,
                       .depth = C,
                       .a = in,
                       .b = weight,
                       .a_stride = C,
                       .b_stride = C,
                       .bias = CPU_NARROW ? bias : NULL,
                       .beta = bias && !CPU_NARROW ? 1.0f : 0.0f,
                       .out = out,
                       .out_stride = row},
     by);
}

static void linear_backward_input(void *din, const void *dout, const void *weight, int N, int C, int OC,
                                  int row, int beta_in, enum kernels_products by)
{
    if (!din)
        return;
    CPU(product)
    (&(struct product){.a_transposed = false,
                       .b_transposed = false,
                       .rows = N,
                       .columns = C,
                       .depth = OC,
                       .a = dout,
                       .b = weight,
                       .a_stride = row,
                       .b_stride = C,
                       .beta = beta_in ? 1.0f : 0.0f,
                       .out = din,
                       .out_stride = C},
     by);
}

/* Columns are taken in strips of a few cache lines, each strip by one thread from the first row to the last;
 * rows are summed in groups so that the error grows with the root of N and not with N. */
enum { BIAS_STRIP = 64, BIAS_GROUP = 64, BIAS_AHEAD = 24, BIAS_LINE = 16 };

static void bias_gradient_strip(float *dbias, const VALUE *dout, int N, int row, int width, int beta)
{
    float total[BIAS_STRIP];
    for (int i = 0; i < width; i++)
        total[i] = beta ? dbias[i] : 0.0f;
    for (int first = 0; first < N; first += BIAS_GROUP) {
        float group[BIAS_STRIP] = {0};
        int end = first + BIAS_GROUP < N ? first + BIAS_GROUP : N;
        for (int n = first; n < end; n++) {
            const VALUE *values = dout + (size_t)n * row;
            for (int i = 0; i < width; i += BIAS_LINE) /* rows are pages apart: nothing else fetches them */
                __builtin_prefetch(values + (size_t)BIAS_AHEAD * row + i);
            for (int i = 0; i < width; i++)
                group[i] += LOAD(values[i]);
        }
        for (int i = 0; i < width; i++)
            total[i] += group[i];
    }
    memcpy(dbias, total, (size_t)width * sizeof(float));
}

static void linear_backward_weight(void *dweight, void *dbias_, const void *dout_, const void *in, int N,
                                   int C, int OC, int row, int beta, enum kernels_products by)
{
    float *dbias = dbias_;
    const VALUE *dout = dout_;
    if (dweight)
        CPU(product)
    (&(struct product){.a_transposed = true,
                       .b_transposed = false,
                       .rows = OC,
                       .columns = C,
                       .depth = N,
                       .a = dout,
                       .b = in,
                       .a_stride = row,
                       .b_stride = C,
                       .beta = beta ? 1.0f : 0.0f,
                       .out = dweight,
                       .gradient = true,
                       .out_stride = C},
     by);
    if (!dbias)
        return;
    CPU_PARALLEL_FOR((int64_t)N * OC >= CPU_PARALLEL_MIN)
    for (int strip = 0; strip < OC; strip += BIAS_STRIP) {
        int width = OC - strip < BIAS_STRIP ? OC - strip : BIAS_STRIP;
        bias_gradient_strip(dbias + strip, dout + strip, N, row, width, beta);
    }
}

/* ---- the slots, by library ---- */

#define LINEAR_SLOTS(suffix, by)                                                                             \
    void CPU(linear_forward##suffix)(void *out, const void *in, const void *weight, const void *bias, int N, \
                                     int C, int OC, int row, void *stream)                                   \
    {                                                                                                        \
        (void)stream;                                                                                        \
        linear_forward(out, in, weight, bias, N, C, OC, row, by);                                            \
    }                                                                                                        \
    void CPU(linear_backward_input##suffix)(void *din, const void *dout, const void *weight, int N, int C,   \
                                            int OC, int row, int beta_in, void *stream)                      \
    {                                                                                                        \
        (void)stream;                                                                                        \
        linear_backward_input(din, dout, weight, N, C, OC, row, beta_in, by);                                \
    }                                                                                                        \
    void CPU(linear_backward_weight##suffix)(void *dweight, void *dbias, const void *dout, const void *in,   \
                                             int N, int C, int OC, int row, int beta, void *stream)          \
    {                                                                                                        \
        (void)stream;                                                                                        \
        linear_backward_weight(dweight, dbias, dout, in, N, C, OC, row, beta, by);                           \
    }
#ifdef CPU_BF16
LINEAR_SLOTS(, KERNELS_BF16)
#else
LINEAR_SLOTS(, KERNELS_OPENBLAS)
LINEAR_SLOTS(_onednn, KERNELS_ONEDNN)
LINEAR_SLOTS(_bf16, KERNELS_BF16)
LINEAR_SLOTS(_auto, KERNELS_AUTO)
#endif
