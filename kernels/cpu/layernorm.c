/* layernorm.c - layer normalisation, one row at a time while it is in the first cache (formulas:
 * kernels/ref/layernorm.c).
 *
 * Backward makes one pass over the rows, in blocks (stripes.h). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stripes.h"
#include "kernels/cpu/value.h"

#include <math.h>
#include <string.h>

size_t CPU(layernorm_backward_work)(int N, int C)
{
    return (size_t)stripe_blocks(N) * 2 * (size_t)C * sizeof(float);
}

static void forward_row(VALUE *restrict y, float *mean, float *rstd, const VALUE *restrict x,
                        const WEIGHT *restrict weight, const WEIGHT *restrict bias, int C, float small)
{
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < C; c++)
        sum += LOAD(x[c]);
    float m = sum / (float)C;
#pragma omp simd reduction(+ : squares)
    for (int c = 0; c < C; c++)
        squares += (LOAD(x[c]) - m) * (LOAD(x[c]) - m);
    float r = 1.0f / sqrtf(squares / (float)C + small);
    if (bias) {
        for (int c = 0; c < C; c++)
            STORE(y[c], (LOAD(x[c]) - m) * r * LOAD(weight[c]) + LOAD(bias[c]));
    } else {
        for (int c = 0; c < C; c++)
            STORE(y[c], (LOAD(x[c]) - m) * r * LOAD(weight[c]));
    }
    *mean = m;
    *rstd = r;
}

void CPU(layernorm_forward)(void *out_, void *mean_, void *rstd_, const void *in_, const void *weight,
                            const void *bias, int N, int C, double epsilon, void *stream)
{
    VALUE *out = out_;
    float *mean = mean_, *rstd = rstd_;
    const VALUE *in = in_;
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * C >= CPU_PARALLEL_MIN)
    for (int n = 0; n < N; n++)
        forward_row(out + (size_t)n * C, mean + n, rstd + n, in + (size_t)n * C, weight, bias, C,
                    (float)epsilon);
}

void CPU(add_layernorm_forward)(void *out_, void *sum_, void *mean_, void *rstd_, const void *a_,
                                const void *b_, const void *weight, const void *bias, int N, int C,
                                double epsilon, void *stream)
{
    VALUE *out = out_, *sum = sum_;
    float *mean = mean_, *rstd = rstd_;
    const VALUE *a = a_, *b = b_;
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * C >= CPU_PARALLEL_MIN)
    for (int n = 0; n < N; n++) {
        const size_t row = (size_t)n * C;
        for (int c = 0; c < C; c++)
            STORE(sum[row + c], LOAD(a[row + c]) + LOAD(b[row + c]));
        forward_row(out + row, mean + n, rstd + n, sum + row, weight, bias, C, (float)epsilon);
    }
}

static void backward_row(VALUE *restrict din, float *restrict dweight, float *restrict dbias,
                         const VALUE *restrict dout, const VALUE *restrict in, float mean, float rstd,
                         const WEIGHT *restrict weight, int C, int beta_in)
{
    float g_sum = 0, g_xhat_sum = 0;
#pragma omp simd reduction(+ : g_sum, g_xhat_sum)
    for (int c = 0; c < C; c++) {
        float dy = LOAD(dout[c]), xhat = (LOAD(in[c]) - mean) * rstd, g = dy * LOAD(weight[c]);
        g_sum += g;
        g_xhat_sum += g * xhat;
        dweight[c] += dy * xhat;
        dbias[c] += dy;
    }
    if (!din)
        return;
    float g_mean = g_sum / (float)C, g_xhat_mean = g_xhat_sum / (float)C;
    if (beta_in) {
        for (int c = 0; c < C; c++)
            STORE(din[c], LOAD(din[c]) + rstd * (LOAD(dout[c]) * LOAD(weight[c]) - g_mean -
                                                 (LOAD(in[c]) - mean) * rstd * g_xhat_mean));
    } else {
        for (int c = 0; c < C; c++)
            STORE(din[c], rstd * (LOAD(dout[c]) * LOAD(weight[c]) - g_mean -
                                  (LOAD(in[c]) - mean) * rstd * g_xhat_mean));
    }
}

void CPU(layernorm_backward)(void *din_, void *dweight, void *dbias, const void *dout_, const void *in_,
                             const void *mean_, const void *rstd_, const void *weight, int N, int C,
                             int beta_in, int beta, void *work_, void *stream)
{
    VALUE *din = din_;
    float *work = work_;
    const VALUE *dout = dout_, *in = in_;
    const float *mean = mean_, *rstd = rstd_;
    int blocks = stripe_blocks(N);
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * C >= CPU_PARALLEL_MIN)
    for (int block = 0; block < blocks; block++) {
        float *stripe = work + (size_t)block * 2 * C;
        int end = stripe_first(N, block + 1);
        memset(stripe, 0, 2 * (size_t)C * sizeof(float));
        for (int n = stripe_first(N, block); n < end; n++) {
            size_t row = (size_t)n * C;
            backward_row(din ? din + row : NULL, stripe, stripe + C, dout + row, in + row, mean[n], rstd[n],
                         weight, C, beta_in);
        }
    }
    stripes_add(dweight, work, blocks, 2 * (size_t)C, C, beta);
    stripes_add(dbias, work + C, blocks, 2 * (size_t)C, C, beta);
}
