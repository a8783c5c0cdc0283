/* batch_norm.c - the reference of batch normalisation (Ioffe, Szegedy 2015, arXiv 1502.03167), as PyTorch's
 * nn.BatchNorm2d, and of its running statistics (kernels.h).
 *
 * Backward, with M the number of elements of a channel, r = 1/sqrt(var + epsilon), xhat = (in - mean) r:
 * dbias = sum dout; dweight = sum dout xhat; din = weight r (dout - dbias/M - xhat dweight/M). */
#include "kernels/ref/real.h"

#include <math.h>

/* The planes of channel c in row n. */
static const real *plane_of(const void *base, const struct batch_norm *b, int n, int c)
{
    return (const real *)base + ((int64_t)n * b->channels + c) * b->plane;
}

static void normalise(real *out, const real *in, const struct batch_norm *b, int N, int c, double mean,
                      double r, double weight, double bias)
{
    for (int n = 0; n < N; n++) {
        const real *from = plane_of(in, b, n, c);
        real *to = out + (from - in);
        for (int64_t i = 0; i < b->plane; i++)
            to[i] = (real)(((double)from[i] - mean) * r * weight + bias);
    }
}

/* Sums of a channel over the first `rows` rows. */
static double sum_of(const real *in, const struct batch_norm *b, int rows, int c)
{
    double sum = 0;
    for (int n = 0; n < rows; n++)
        for (int64_t i = 0; i < b->plane; i++)
            sum += (double)plane_of(in, b, n, c)[i];
    return sum;
}

static double squares_of(const real *in, const struct batch_norm *b, int rows, int c, double mean)
{
    double sum = 0;
    for (int n = 0; n < rows; n++)
        for (int64_t i = 0; i < b->plane; i++) {
            double off = (double)plane_of(in, b, n, c)[i] - mean;
            sum += off * off;
        }
    return sum;
}

void REF(batch_norm_forward)(void *out, void *mean_, void *var_, const void *in, const void *weight,
                             const void *bias, const struct batch_norm *b, int N,
                             const struct step_scalars *scalars, void *stream)
{
    real *mean = mean_, *var = var_;
    const int rows = batch_norm_rows(b, N, scalars->samples);
    const double count = (double)rows * (double)b->plane;
    (void)stream;
    for (int c = 0; c < b->channels; c++) {
        const double m = rows ? sum_of(in, b, rows, c) / count : 0;
        const double v = rows ? squares_of(in, b, rows, c, m) / count : 1;
        mean[c] = (real)m;
        var[c] = (real)v;
        normalise(out, in, b, N, c, m, 1.0 / sqrt(v + b->epsilon), (double)((const real *)weight)[c],
                  (double)((const real *)bias)[c]);
    }
}

void REF(batch_norm_fixed)(void *out, const void *in, const void *weight, const void *bias, const void *mean,
                           const void *var, const struct batch_norm *b, int N, void *stream)
{
    (void)stream;
    for (int c = 0; c < b->channels; c++)
        normalise(out, in, b, N, c, (double)((const real *)mean)[c],
                  1.0 / sqrt((double)((const real *)var)[c] + b->epsilon), (double)((const real *)weight)[c],
                  (double)((const real *)bias)[c]);
}

/* A channel's gradients once its sums are known. */
struct channel {
    double mean, r, weight, dbias, dweight, count;
};

static void input_gradient(real *din, const real *dout, const real *in, const struct batch_norm *b, int rows,
                           int N, int c, const struct channel *s, int beta)
{
    for (int n = 0; n < N; n++)
        for (int64_t i = 0; i < b->plane; i++) {
            const int64_t at = plane_of(in, b, n, c) - in + i;
            const double xhat = ((double)in[at] - s->mean) * s->r;
            double d =
                s->weight * s->r * ((double)dout[at] - s->dbias / s->count - xhat * s->dweight / s->count);
            din[at] = (real)((n < rows ? d : 0) + (beta ? (double)din[at] : 0.0));
        }
}

void REF(batch_norm_backward)(void *din, void *dweight_, void *dbias_, const void *dout_, const void *in_,
                              const void *mean, const void *var, const void *weight,
                              const struct batch_norm *b, int N, const int beta[3],
                              const struct step_scalars *scalars, void *stream)
{
    real *dweight = dweight_, *dbias = dbias_;
    const real *dout = dout_, *in = in_;
    const int rows = batch_norm_rows(b, N, scalars->samples);
    (void)stream;
    for (int c = 0; c < b->channels; c++) {
        struct channel s = {.mean = (double)((const real *)mean)[c],
                            .r = 1.0 / sqrt((double)((const real *)var)[c] + b->epsilon),
                            .weight = (double)((const real *)weight)[c],
                            .count = (double)rows * (double)b->plane};
        for (int n = 0; n < rows; n++)
            for (int64_t i = 0; i < b->plane; i++) {
                const int64_t at = plane_of(in, b, n, c) - in + i;
                s.dbias += (double)dout[at];
                s.dweight += (double)dout[at] * ((double)in[at] - s.mean) * s.r;
            }
        if (din)
            input_gradient(din, dout, in, b, rows, N, c, &s, beta[0]);
        if (dweight)
            dweight[c] = (real)(s.dweight + (beta[1] ? (double)dweight[c] : 0.0));
        if (dbias)
            dbias[c] = (real)(s.dbias + (beta[2] ? (double)dbias[c] : 0.0));
    }
}

void REF(batch_norm_change)(void *dmean_, void *dvar_, void *dcount_, const void *mean, const void *var,
                            const void *running_mean, const void *running_var, const struct batch_norm *b,
                            int N, const int beta[3], const struct step_scalars *scalars, void *stream)
{
    real *dmean = dmean_, *dvar = dvar_, *dcount = dcount_;
    const int rows = batch_norm_rows(b, N, scalars->samples);
    const double count = (double)rows * (double)b->plane;
    const double later = (double)batch_norm_later(b, N, scalars->samples);
    const double part = rows ? b->momentum * pow(1.0 - b->momentum, later) / b->ranks : 0;
    (void)stream;
    for (int c = 0; c < b->channels; c++) {
        const double unbiased =
            (double)((const real *)var)[c] * (count > 1 ? count / (count - 1) : 1); /* a count of one: 0 */
        const double off = (double)((const real *)mean)[c] - (double)((const real *)running_mean)[c];
        if (dmean)
            dmean[c] = (real)(part * off + (beta[0] ? (double)dmean[c] : 0.0));
        if (dvar)
            dvar[c] = (real)(part * (unbiased - (double)((const real *)running_var)[c]) +
                             (beta[1] ? (double)dvar[c] : 0.0));
    }
    if (dcount)
        *dcount = (real)((rows && b->counts ? 1.0 : 0.0) + (beta[2] ? (double)*dcount : 0.0));
}

void REF(batch_norm_step)(void *values_, const void *change_, int64_t n, void *moved, enum dtype dtype_moved,
                          const struct step_scalars *scalars, void *stream)
{
    real *values = values_;
    const real *change = change_;
    if (scalars->skip)
        return;
    for (int64_t i = 0; i < n; i++)
        values[i] += change[i];
    if (moved)
        REF(cast)(moved, dtype_moved, values, REF_DTYPE, n, stream);
}
