/* batch_norm.c - batch normalisation, a channel at a time (formulas: kernels/ref/batch_norm.c). A plane's sum
 * is of float, the sum over planes of double: channels have many elements. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/value.h"

#include <math.h>
#include <string.h>

static int64_t channel_at(const struct batch_norm *b, int n, int c)
{
    return ((int64_t)n * b->channels + c) * b->plane;
}

static float plane_sum(const VALUE *restrict in, int64_t count)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += LOAD(in[i]);
    return sum;
}

static float plane_squares(const VALUE *restrict in, int64_t count, float mean)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++)
        sum += (LOAD(in[i]) - mean) * (LOAD(in[i]) - mean);
    return sum;
}

/* out = in * factor + offset */
static void normalise(VALUE *out, const VALUE *in, const struct batch_norm *b, int N, int c, float factor,
                      float offset)
{
    for (int n = 0; n < N; n++) {
        const VALUE *restrict from = in + channel_at(b, n, c);
        VALUE *restrict to = out + channel_at(b, n, c);
        for (int64_t i = 0; i < b->plane; i++)
            STORE(to[i], LOAD(from[i]) * factor + offset);
    }
}

void CPU(batch_norm_forward)(void *out, void *mean_, void *var_, const void *in_, const void *weight_,
                             const void *bias_, const struct batch_norm *b, int N,
                             const struct step_scalars *scalars, void *stream)
{
    float *mean = mean_, *var = var_;
    const VALUE *in = in_;
    const WEIGHT *weight = weight_, *bias = bias_;
    const int rows = batch_norm_rows(b, N, scalars->samples);
    const double count = (double)rows * (double)b->plane;
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * b->channels * b->plane >= CPU_PARALLEL_MIN)
    for (int c = 0; c < b->channels; c++) {
        double sum = 0, squares = 0;
        for (int n = 0; n < rows; n++)
            sum += (double)plane_sum(in + channel_at(b, n, c), b->plane);
        mean[c] = rows ? (float)(sum / count) : 0;
        for (int n = 0; n < rows; n++)
            squares += (double)plane_squares(in + channel_at(b, n, c), b->plane, mean[c]);
        var[c] = rows ? (float)(squares / count) : 1;
        const float factor = LOAD(weight[c]) / sqrtf(var[c] + (float)b->epsilon);
        normalise(out, in, b, N, c, factor, LOAD(bias[c]) - mean[c] * factor);
    }
}

void CPU(batch_norm_fixed)(void *out, const void *in, const void *weight_, const void *bias_,
                           const void *mean_, const void *var_, const struct batch_norm *b, int N,
                           void *stream)
{
    const WEIGHT *weight = weight_, *bias = bias_, *mean = mean_, *var = var_;
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * b->channels * b->plane >= CPU_PARALLEL_MIN)
    for (int c = 0; c < b->channels; c++) {
        const float factor = LOAD(weight[c]) / sqrtf(LOAD(var[c]) + (float)b->epsilon);
        normalise(out, in, b, N, c, factor, LOAD(bias[c]) - LOAD(mean[c]) * factor);
    }
}

/* Sums of a channel's dout, and of dout (in - mean). */
struct sums {
    double plain, weighted;
};

static struct sums channel_sums(const VALUE *dout_, const VALUE *in_, const struct batch_norm *b, int rows,
                                int c, float mean)
{
    struct sums s = {0, 0};
    for (int n = 0; n < rows; n++) {
        const VALUE *restrict dout = dout_ + channel_at(b, n, c), *restrict in = in_ + channel_at(b, n, c);
        float plain = 0, weighted = 0;
#pragma omp simd reduction(+ : plain, weighted)
        for (int64_t i = 0; i < b->plane; i++) {
            plain += LOAD(dout[i]);
            weighted += LOAD(dout[i]) * (LOAD(in[i]) - mean);
        }
        s.plain += (double)plain;
        s.weighted += (double)weighted;
    }
    return s;
}

/* din = beta*din + factor (dout - level - slope (in - mean)) */
static void input_plane(VALUE *restrict din, const VALUE *restrict dout, const VALUE *restrict in,
                        int64_t count, float mean, float factor, float level, float slope, int beta)
{
    if (beta)
        for (int64_t i = 0; i < count; i++)
            STORE(din[i], LOAD(din[i]) + factor * (LOAD(dout[i]) - level - slope * (LOAD(in[i]) - mean)));
    else
        for (int64_t i = 0; i < count; i++)
            STORE(din[i], factor * (LOAD(dout[i]) - level - slope * (LOAD(in[i]) - mean)));
}

void CPU(batch_norm_backward)(void *din_, void *dweight_, void *dbias_, const void *dout_, const void *in_,
                              const void *mean_, const void *var_, const void *weight_,
                              const struct batch_norm *b, int N, const int beta[3],
                              const struct step_scalars *scalars, void *stream)
{
    VALUE *din = din_;
    float *dweight = dweight_, *dbias = dbias_;
    const VALUE *dout = dout_, *in = in_;
    const float *mean = mean_, *var = var_;
    const WEIGHT *weight = weight_;
    const int rows = batch_norm_rows(b, N, scalars->samples);
    const double count = (double)rows * (double)b->plane;
    (void)stream;
    CPU_PARALLEL_FOR((int64_t)N * b->channels * b->plane >= CPU_PARALLEL_MIN)
    for (int c = 0; c < b->channels; c++) {
        const struct sums s = channel_sums(dout, in, b, rows, c, mean[c]);
        const double r = 1.0 / sqrt((double)var[c] + b->epsilon);
        const float factor = LOAD(weight[c]) * (float)r, level = (float)(s.plain / count);
        const float slope = (float)(s.weighted / count * r * r);
        for (int n = 0; din && n < rows; n++)
            input_plane(din + channel_at(b, n, c), dout + channel_at(b, n, c), in + channel_at(b, n, c),
                        b->plane, mean[c], factor, level, slope, beta[0]);
        for (int n = rows; din && !beta[0] && n < N; n++)
            memset(din + channel_at(b, n, c), 0, (size_t)b->plane * sizeof *din);
        if (dweight)
            dweight[c] = (float)(s.weighted * r) + (beta[1] ? dweight[c] : 0);
        if (dbias)
            dbias[c] = (float)s.plain + (beta[2] ? dbias[c] : 0);
    }
}
