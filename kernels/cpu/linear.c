/* linear.c - the dense layer by OpenBLAS: three sgemm calls, bias and its gradient beside them.
 *
 * The bias costs nothing: OpenBLAS always adds its product to what is there (it clears the output in a pass
 * of its own where beta is 0), so the output is filled with the bias and beta is 1. */
#include "kernels/cpu/cpu.h"

#include <cblas.h>
#include <string.h>

void CPU(linear_forward)(void *out_, const void *in, const void *weight, const void *bias, int N, int C,
                         int OC, void *stream)
{
    float *out = out_;
    (void)stream;
    if (bias) {
        CPU_PARALLEL_FOR((int64_t)N * OC >= CPU_PARALLEL_MIN)
        for (int n = 0; n < N; n++)
            memcpy(out + (size_t)n * OC, bias, (size_t)OC * sizeof(float));
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, N, OC, C, 1.0f, in, C, weight, C, bias ? 1.0f : 0.0f,
                out, OC);
}

void CPU(linear_backward_input)(void *din, const void *dout, const void *weight, int N, int C, int OC,
                                int beta_in, void *stream)
{
    (void)stream;
    if (!din)
        return;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, N, C, OC, 1.0f, dout, OC, weight, C,
                beta_in ? 1.0f : 0.0f, din, C);
}

/* Columns are taken in strips of a few cache lines, each strip by one thread from the first row to the last;
 * rows are summed in groups so that the error grows with the root of N and not with N. */
enum { BIAS_STRIP = 64, BIAS_GROUP = 64 };

static void bias_gradient_strip(float *dbias, const float *dout, int N, int OC, int width, int beta)
{
    float total[BIAS_STRIP];
    for (int i = 0; i < width; i++)
        total[i] = beta ? dbias[i] : 0.0f;
    for (int first = 0; first < N; first += BIAS_GROUP) {
        float group[BIAS_STRIP] = {0};
        int end = first + BIAS_GROUP < N ? first + BIAS_GROUP : N;
        for (int n = first; n < end; n++)
            for (int i = 0; i < width; i++)
                group[i] += dout[(size_t)n * OC + i];
        for (int i = 0; i < width; i++)
            total[i] += group[i];
    }
    memcpy(dbias, total, (size_t)width * sizeof(float));
}

void CPU(linear_backward_weight)(void *dweight, void *dbias_, const void *dout_, const void *in, int N, int C,
                                 int OC, int beta, void *stream)
{
    float *dbias = dbias_;
    const float *dout = dout_;
    (void)stream;
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, OC, C, N, 1.0f, dout, OC, in, C, beta ? 1.0f : 0.0f,
                dweight, C);
    if (!dbias)
        return;
    CPU_PARALLEL_FOR((int64_t)N * OC >= CPU_PARALLEL_MIN)
    for (int strip = 0; strip < OC; strip += BIAS_STRIP) {
        int width = OC - strip < BIAS_STRIP ? OC - strip : BIAS_STRIP;
        bias_gradient_strip(dbias + strip, dout + strip, N, OC, width, beta);
    }
}
