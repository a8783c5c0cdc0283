/* rms_norm.c - root mean square normalisation, one row at a time while it is in the first cache (formulas:
 * kernels/ref/rms_norm.c). Backward makes one pass over the rows, in blocks (stripes.h). */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/stripes.h"
#include "kernels/cpu/value.h"

#include <math.h>
#include <string.h>

size_t CPU(rms_norm_backward_work)(int N, int C)
{
    return (size_t)stripe_blocks(N) * (size_t)C * sizeof(float);
}

/* rstd of the row. */
static float forward_row(VALUE *restrict y, const VALUE *restrict x, const WEIGHT *restrict weight, int C,
                         float small, float more)
{
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int c = 0; c < C; c++)
        squares += LOAD(x[c]) * LOAD(x[c]);
    float r = 1.0f / sqrtf(squares / (float)C + small);
    for (int c = 0; c < C; c++)
        STORE(y[c], LOAD(x[c]) * r * (LOAD(weight[c]) + more));
    return r;
}

void CPU(rms_norm_forward)(void *out_, void *rstd_, const void *in_, const void *weight, int N, int C,
                           double epsilon, double offset, void *stream)
{
    VALUE *out = out_;
    float *rstd = rstd_;
    const VALUE *in = in_;
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * C >= CPU_PARALLEL_MIN)
    for (int n = 0; n < N; n++)
        rstd[n] =
            forward_row(out + (size_t)n * C, in + (size_t)n * C, weight, C, (float)epsilon, (float)offset);
}

void CPU(add_rms_norm_forward)(void *out_, void *sum_, void *rstd_, const void *a_, const void *b_,
                               const void *weight, int N, int C, double epsilon, double offset, void *stream)
{
    VALUE *out = out_, *sum = sum_;
    float *rstd = rstd_;
    const VALUE *a = a_, *b = b_;
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * C >= CPU_PARALLEL_MIN)
    for (int n = 0; n < N; n++) {
        const size_t row = (size_t)n * C;
        for (int c = 0; c < C; c++)
            STORE(sum[row + c], LOAD(a[row + c]) + LOAD(b[row + c]));
        rstd[n] = forward_row(out + row, sum + row, weight, C, (float)epsilon, (float)offset);
    }
}

static void backward_row(VALUE *restrict din, float *restrict dweight, const VALUE *restrict dout,
                         const VALUE *restrict in, float rstd, const WEIGHT *restrict weight, float more,
                         int C, int beta_in)
{
    float g_xhat_sum = 0;
#pragma omp simd reduction(+ : g_xhat_sum)
    for (int c = 0; c < C; c++) {
        float dy = LOAD(dout[c]), xhat = LOAD(in[c]) * rstd;
        g_xhat_sum += dy * (LOAD(weight[c]) + more) * xhat;
        dweight[c] += dy * xhat;
    }
    if (!din)
        return;
    float g_xhat_mean = g_xhat_sum / (float)C;
    if (beta_in) {
        for (int c = 0; c < C; c++)
            STORE(din[c], LOAD(din[c]) + rstd * (LOAD(dout[c]) * (LOAD(weight[c]) + more) -
                                                 LOAD(in[c]) * rstd * g_xhat_mean));
    } else {
        for (int c = 0; c < C; c++)
            STORE(din[c],
                  rstd * (LOAD(dout[c]) * (LOAD(weight[c]) + more) - LOAD(in[c]) * rstd * g_xhat_mean));
    }
}

void CPU(rms_norm_backward)(void *din_, void *dweight, const void *dout_, const void *in_, const void *rstd_,
                            const void *weight, double offset, int N, int C, int beta_in, int beta,
                            void *work_, void *stream)
{
    VALUE *din = din_;
    float *work = work_;
    const VALUE *dout = dout_, *in = in_;
    const float *rstd = rstd_;
    int blocks = stripe_blocks(N);
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * C >= CPU_PARALLEL_MIN)
    for (int block = 0; block < blocks; block++) {
        float *stripe = work + (size_t)block * C;
        int end = stripe_first(N, block + 1);
        memset(stripe, 0, (size_t)C * sizeof(float));
        for (int n = stripe_first(N, block); n < end; n++) {
            size_t row = (size_t)n * C;
            backward_row(din ? din + row : NULL, stripe, dout + row, in + row, rstd[n], weight, (float)offset,
                         C, beta_in);
        }
    }
    stripes_add(dweight, work, blocks, (size_t)C, C, beta);
}
